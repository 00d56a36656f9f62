"""Recursive filters: `lfilter` and `sosfilt`, which are loops over the samples.

A loop carries what a filter remembers, in the transposed direct form II, as SciPy's routines do.

References
----------
A. V. Oppenheim and R. W. Schafer, "Discrete-Time Signal Processing", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import as_array, one_axis, promoted
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.correlation import reversed_along
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import full, stack
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import pad, reshape
from gradtape.ops.numpy.arrays.shape import atleast_1d, cut, moved
from gradtape.ops.numpy.statistics.calculus import sliding_products


def _common(*arrays: Value | None) -> list[Any]:
    """Return arrays in their common dtype, which must be one of floats or of complex numbers."""
    given = [array for array in arrays if array is not None]
    dtype = np.result_type(*[array.dtype for array in given])
    if dtype.char not in "fdFD":
        raise NotImplementedError(f"input type '{dtype}' not supported")
    return [None if array is None else convert(array, dtype) for array in arrays]


def _coefficients(c: Any, name: str) -> Value:
    found: Value = atleast_1d(as_array(c, name))
    if found.ndim != 1 or found.size == 0:
        raise ValueError(f"Parameter {name} is not a non-empty 1d array, since {name}.shape={found.shape}!")
    return found


def _numbers(c: Value, count: int) -> list[Value]:
    """Return the elements of a vector, and zeros after them."""
    zero = full((), 0, c.dtype)
    return [getitem(c, k) if k < c.size else zero for k in range(count)]


@borrows("scipy.signal._signaltools.lfilter")
def lfilter(b: Any, a: Any, x: Any, axis: Any = -1, zi: Any = None) -> Value | tuple[Value, Value]:
    """Follow `scipy.signal.lfilter`."""
    b, a = _coefficients(b, "b"), _coefficients(a, "a")
    b, a, signal, state = _common(b, a, as_array(x, "x"), None if zi is None else as_array(zi, "zi"))
    if signal.ndim == 0:
        raise ValueError("x must be at least 1-D")
    position = one_axis(axis, signal.ndim)
    if a.data is not None and not a.tags and a.data[0] == 0:
        raise ValueError("BUG: filter coefficient a[0] == 0 not supported yet")
    order = max(b.size, a.size) - 1
    start = None if state is None else _state(state, signal.shape, position, order)
    first = getitem(a, 0)
    b, a = b / first, a / first
    lead = (*signal.shape[:position], *signal.shape[position + 1 :])
    if signal.shape[position] == 0:
        y: Value = signal
        end = [full((math.prod(lead),), 0, signal.dtype)] * order if start is None else start
    elif a.size == 1:
        y, end = _moving_average(b, signal, position, start)
    else:
        y, end = _recursive(b, a, signal, position, order, start)
    if state is None:
        return y
    whole = reshape(stack(*end), (order, *lead)) if end else full((0, *lead), 0, signal.dtype)
    return y, moved(whole, (0,), (position,))


def _state(zi: Value, shape: Shape, position: int, order: int) -> list[Value]:
    """Return what the filter remembers at the beginning, for each lag an element per signal."""
    expected = tuple([order if axis == position else n for axis, n in enumerate(shape)])
    fits = zi.ndim == len(shape) and all(
        have == want or (have == 1 and axis != position)
        for axis, (have, want) in enumerate(zip(zi.shape, expected, strict=True))
    )
    if not fits:
        raise ValueError(f"Unexpected shape for parameter zi: expected {expected}, found {zi.shape}.")
    rows = moved(broadcast_to(zi, expected), (position,), (0,))
    return [reshape(getitem(rows, k), (math.prod(rows.shape[1:]),)) for k in range(order)]


def _rows(x: Value, position: int) -> Value:
    """Return signals as columns: the samples in front."""
    front = moved(x, (position,), (0,))
    return reshape(front, (front.shape[0], math.prod(front.shape[1:])))


def _restored(rows: Value, shape: Shape, position: int) -> Value:
    lead = (*shape[:position], *shape[position + 1 :])
    return moved(reshape(rows, (rows.shape[0], *lead)), (0,), (position,))


def _moving_average(
    b: Value, x: Value, position: int, start: list[Value] | None
) -> tuple[Value, list[Value]]:
    """Filter without feedback: a convolution."""
    order = b.size - 1
    if x.ndim == 1 and start is None and x.size >= b.size:
        return cut(sliding_products(x, reversed_along(b, 1), "full"), 0, 0, x.size), []
    return _recursive(b, full((1,), 1, b.dtype), x, position, order, start)


def _recursive(
    b: Value, a: Value, x: Value, position: int, order: int, start: list[Value] | None
) -> tuple[Value, list[Value]]:
    """Filter by a loop over the samples."""
    rows = _rows(x, position)
    single = rows.shape[1] == 1
    if single:  # numbers, not arrays of one number
        rows = reshape(rows, (rows.shape[0],))
    shape = rows.shape[1:]
    zero = full(shape, 0, x.dtype)
    carries = [zero] * order if start is None else [reshape(each, shape) for each in start]
    feedback = a.size > 1
    coefficients = [*_numbers(b, order + 1), *(_numbers(a, order + 1) if feedback else [])]

    def step(
        consts: Sequence[Value], state: Sequence[Value], elements: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (sample,) = elements
        forward, back = consts[: order + 1], consts[order + 1 :]
        y = forward[0] * sample + state[0] if order else forward[0] * sample
        following = []
        for k in range(1, order + 1):
            next_ = forward[k] * sample
            if feedback:
                next_ = next_ - back[k] * y
            following.append(next_ + state[k] if k < order else next_)
        return following, [y]

    end, (ys,) = HOOKS.scan(step, coefficients, carries, [rows])
    whole = reshape(ys, (rows.shape[0], 1)) if single else ys
    return _restored(whole, x.shape, position), [reshape(each, (math.prod(shape),)) for each in end]


@borrows("scipy.signal._signaltools.sosfilt")
def sosfilt(sos: Any, x: Any, axis: Any = -1, zi: Any = None) -> Value | tuple[Value, Value]:
    """Follow `scipy.signal.sosfilt`."""
    sections = as_array(sos, "sos")
    if sections.ndim == 1:
        sections = reshape(sections, (1, sections.size))
    if sections.ndim != 2 or sections.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    if sections.data is not None and not sections.tags and not (sections.data[:, 3] == 1).all():
        raise ValueError("sos[:, 3] should be all ones")
    sections, signal, state = _common(sections, as_array(x, "x"), None if zi is None else as_array(zi, "zi"))
    if signal.ndim == 0:
        raise ValueError("x must be at least 1-D")
    position, count = one_axis(axis, signal.ndim), sections.shape[0]
    expected = (count, *[2 if k == position else n for k, n in enumerate(signal.shape)])
    if state is not None and state.shape != expected:
        raise ValueError(
            f"Invalid zi shape. With axis={axis!r}, an input with shape {signal.shape!r}, and an sos array with "
            f"{count} sections, zi must have shape {expected!r}, got {state.shape!r}."
        )
    rows = _rows(signal, position)
    single = rows.shape[1] == 1
    if single:
        rows = reshape(rows, (rows.shape[0],))
    shape = rows.shape[1:]
    if state is None:
        carries = [full(shape, 0, signal.dtype)] * (2 * count)
    else:
        parts = moved(state, (position + 1,), (1,))
        carries = [reshape(getitem(parts, (k // 2, k % 2)), shape) for k in range(2 * count)]
    numbers = [getitem(sections, (s, k)) for s in range(count) for k in (0, 1, 2, 4, 5)]

    def step(
        consts: Sequence[Value], memory: Sequence[Value], elements: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (sample,) = elements
        following = []
        for s in range(count):
            b0, b1, b2, a1, a2 = consts[5 * s : 5 * s + 5]
            y = b0 * sample + memory[2 * s]
            following += [b1 * sample - a1 * y + memory[2 * s + 1], b2 * sample - a2 * y]
            sample = y
        return following, [sample]

    if rows.shape[0]:
        end, (ys,) = HOOKS.scan(step, numbers, carries, [rows])
    else:
        end, ys = carries, rows
    y = _restored(reshape(ys, (rows.shape[0], math.prod(shape))), signal.shape, position)
    if state is None:
        return y
    lead = (*signal.shape[:position], *signal.shape[position + 1 :])
    return y, moved(reshape(stack(*end), (count, 2, *lead)), (1,), (position + 1,))


@borrows("scipy.signal._signaltools.lfilter_zi")
def lfilter_zi(b: Any, a: Any) -> Value:
    """Follow `scipy.signal.lfilter_zi`: part k of the state, for ones, is what later coefficients add when the filter has settled."""
    if as_array(b, "b").ndim > 1 or as_array(a, "a").ndim > 1:
        raise ValueError("Numerator b and denominator a must be 1-D.")
    b, a = promoted(_coefficients(b, "b"), _coefficients(a, "a"))
    if b.dtype.kind not in "fc":
        b, a = convert(b, np.dtype(float)), convert(a, np.dtype(float))
    first, order = getitem(a, 0), max(a.size, b.size)
    b, a = (pad(c / first, (order,), (0,)) for c in (b, a))
    gain = reduce_sum(b, axes=(0,)) / reduce_sum(a, axes=(0,))
    return cumsum(cut(b - a * gain, 0, 1, order), axis=0, reverse=True)
