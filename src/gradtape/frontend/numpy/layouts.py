"""The memory layout of what functions of NumPy return: NumPy is asked, by a call with arrays of the same shapes and strides.

Whether a reshape is a view or a copy depends on it. It is only asked where code reshapes arrays (`ProcedureBuilder.keeps_order`).
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gradtape.interruptions import raise_interruption
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import OWN_ORDER, iteration_order
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.nests import (
    as_view,
    is_order_known,
    memory_order,
    new_array,
    span_of_strides,
    store,
    value_of,
)
from gradtape.procedures.arrays.view import ArrayView, Deferred, Expression
from gradtape.procedures.builder import ProcedureBuilder

MOST_ELEMENTS: Final = 1 << 18
"""Larger arrays are not made to ask: their layout is taken for unknown."""


PARTS: Final = (np.real, np.imag)
"""Functions whose results have gaps: NumPy's are views of complex numbers."""


class _UnknownLayoutError(Exception):
    """NumPy cannot be asked."""


def with_layout(
    build: ProcedureBuilder, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
) -> Any:
    """Return the result of a function with its new arrays in the layout of NumPy's.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    function : callable
        NumPy's function, or what calls a method of the first argument.
    args, kwargs
        Its arguments.
    result : object
        What was computed for it: arrays, numbers, and tuples of these.
    """
    operands = [*_expressions(args), *_expressions(kwargs.values())]
    memories = {view.pointer.memory for x in operands for view in x.views() if isinstance(view, ArrayView)}
    if not any(x.ndim > 1 and not _is_of(x, memories) for x in _expressions([result])):
        return result
    if not build.keeps_order:
        build.loses_order |= (
            function in OWN_ORDER or function in PARTS or not all(map(_is_row_major, operands))
        )
        return result
    try:
        layout: Any = _asked(function, args, kwargs)
    except Exception as error:  # whatever NumPy says to these numbers
        raise_interruption(error)
        layout = None
    return _arranged(result, layout, memories)


def _expressions(items: Any) -> Iterator[Expression]:
    for item in items:
        if isinstance(item, Expression):
            yield item
        elif isinstance(item, list | tuple):
            yield from _expressions(item)


def _is_of(x: Expression, memories: Any) -> bool:
    """Return whether an array is a view of one of the arguments."""
    return isinstance(x, ArrayView) and x.pointer.memory in memories


def _is_row_major(x: Expression) -> bool:
    return is_order_known(x) and (
        x.is_contiguous if isinstance(x, ArrayView) else list(memory_order(x, "K")) == list(range(x.ndim))
    )


def _asked(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what NumPy returns for arguments of the same shapes and strides."""
    positional = [_sample(x) for x in args]
    keywords = {name: _sample(x) for name, x in kwargs.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*positional, **keywords)


def _sample(x: Any) -> Any:
    """Return an argument of NumPy's with the layout of an abstract value."""
    if isinstance(x, Expression):
        return _sample_array(x)
    if isinstance(x, Value):
        return x.dtype.type(0 if x.dtype.kind in "iub" else 1)
    if isinstance(x, list | tuple):
        items = [_sample(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, types.FunctionType | types.MethodType) or not isinstance(
        x, int | float | complex | str | type | np.generic | np.dtype | np.ndarray | slice | None
    ):
        raise _UnknownLayoutError  # a function of the user's must not run
    return x


def _sample_array(x: Expression) -> Any:
    shape = ix.static_shape(x.shape)
    if shape is None or not is_order_known(x):
        raise _UnknownLayoutError
    if isinstance(x, ArrayView):
        strides: Any = ix.static_shape(x.strides)
    else:
        order = list(memory_order(x, "K"))
        dense = ix.row_major(tuple([shape[axis] for axis in order]))
        strides = [dense[order.index(axis)] for axis in range(len(shape))]
    if strides is None or ix.product(shape) > MOST_ELEMENTS:
        raise _UnknownLayoutError
    first, size = span_of_strides(shape, strides)
    if size > 4 * MOST_ELEMENTS:
        raise _UnknownLayoutError
    memory = np.zeros(size, x.dtype)
    steps = [stride * x.dtype.itemsize for stride in strides]
    sample: Any = np.lib.stride_tricks.as_strided(memory[first:], shape, steps)
    if x.dtype.kind in "fc" and 0 not in strides and sample.size:
        sample[...] = 1  # positive definite where it is square, which routines of linear algebra take
        if len(shape) > 1:
            positions = np.arange(min(shape[-2:]))
            sample[..., positions, positions] += 1 + len(positions)
    return sample


def _arranged(result: Any, layout: Any, memories: Any) -> Any:
    """Return results in the layouts that NumPy has answered with; those without an answer are noted as unknown."""
    if isinstance(result, list | tuple):
        answers = (
            list(layout)
            if isinstance(layout, list | tuple) and len(layout) == len(result)
            else [None] * len(result)
        )
        items = [_arranged(item, answer, memories) for item, answer in zip(result, answers, strict=True)]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if not isinstance(result, Expression) or result.ndim < 2 or _is_of(result, memories):
        return result
    build = result.build
    if not isinstance(layout, np.ndarray) or layout.shape != ix.static_shape(result.shape):
        view = as_view(build, result)
        build.unknown_orders.add(view.pointer.memory)
        return view
    target = _like(result, layout)
    if isinstance(result, ArrayView) and (target is None or target.strides == result.strides):
        return result
    assert target is not None
    store(target, value_of(result))
    if isinstance(result, Deferred) and result.viewed is not None:
        build.note_copy(target.pointer, result.viewed.pointer)
    return target


def _like(result: Expression, layout: Any) -> ArrayView | None:
    """Return a new array with the layout of an array of NumPy's; None for one that is dense in C order."""
    build, shape = result.build, layout.shape
    if layout.flags.c_contiguous and isinstance(result, ArrayView):
        return None if result.is_contiguous else new_array(build, shape, result.dtype)
    order = iteration_order(
        layout.ndim,
        [[0 if extent == 1 else stride for extent, stride in zip(shape, layout.strides, strict=True)]],
    )
    if layout.transpose(order).flags.c_contiguous or not layout.size:
        return new_array(build, shape, result.dtype, axes=order)
    step = layout.itemsize
    if any(stride % step for stride in layout.strides):
        step = np.gcd.reduce([abs(stride) for stride in layout.strides])
    strides = tuple([int(stride // step) for stride in layout.strides])
    first, size = span_of_strides(shape, strides)
    pointer = build.allocate("array", size, result.dtype)
    return ArrayView(build, pointer, first, shape, strides)
