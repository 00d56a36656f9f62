"""Convolution and correlation in any number of dimensions, and resampling by a filter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import as_array, as_int, one_axis, promoted
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.correlation import correlate_row, reversed_along
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import rint
from gradtape.ops.core.join import join, stack
from gradtape.ops.core.shape import pad, reshape, slice_
from gradtape.ops.numpy.arrays.pad import pad_
from gradtape.ops.numpy.arrays.shape import cut, moved
from gradtape.ops.numpy.linalg.products import conjugated
from gradtape.ops.numpy.statistics.calculus import sliding_products
from gradtape.ops.scipy.extension import extended, picked, with_constants

DIRECT = 500
"""Elements of a kernel up to which shifted products are faster than Fourier transforms."""


def _mode(mode: Any) -> str:
    names = {0: "valid", 1: "same", 2: "full", "valid": "valid", "same": "same", "full": "full"}
    if mode not in names:
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    return names[mode]


def _swaps(mode: str, first: Shape, second: Shape) -> bool:
    """Return whether the second array is the larger one, in which the first moves."""
    if mode != "valid" or all(n >= k for n, k in zip(first, second, strict=True)):
        return False
    if any(n > k for n, k in zip(first, second, strict=True)):
        raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
    return True


def _operands(in1: Any, in2: Any) -> tuple[Value, Value]:
    x, w = promoted(as_array(in1, "in1"), as_array(in2, "in2"))
    if x.ndim != w.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    return x, w


@borrows("scipy.signal._signaltools.convolve")
def convolve(in1: Any, in2: Any, mode: Any = "full", method: Any = "auto") -> Value:
    """Follow `scipy.signal.convolve`."""
    x, w = _operands(in1, in2)
    mode = _mode(mode)
    if not x.ndim:
        return x * w
    if _swaps(mode, x.shape, w.shape):
        x, w = w, x
    if method not in ("auto", "fft", "direct"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    if method == "fft" or (method == "auto" and x.dtype.kind in "fc" and min(x.size, w.size) > DIRECT):
        import scipy.signal

        convolved: Value = HOOKS.call(scipy.signal.fftconvolve, x, w, mode=mode)
        return convert(convolved if x.dtype.kind in "fc" else rint(convolved), x.dtype)
    return _direct(x, w, mode)


def _direct(x: Value, w: Value, mode: str) -> Value:
    """Return a convolution as the sum of shifted products; the result of the mode "same" has the shape of the first array."""
    if not x.size or not w.size:
        raise ValueError("a convolution with an empty array")
    if mode == "full" and w.size > x.size:
        x, w = w, x
    kernel = reversed_along(w, x.ndim)
    if x.ndim == 1 and x.size >= w.size:
        return sliding_products(x, kernel, mode)
    if mode == "valid":
        return correlate_row(x, kernel, rank=x.ndim)
    before = [k - 1 if mode == "full" else k // 2 for k in w.shape]
    after = [k - 1 if mode == "full" else k - 1 - k // 2 for k in w.shape]
    shape = tuple([n + b + a for n, b, a in zip(x.shape, before, after, strict=True)])
    return correlate_row(pad(x, shape, tuple(before)), kernel, rank=x.ndim)


@borrows("scipy.signal._signaltools.correlate")
def correlate(in1: Any, in2: Any, mode: Any = "full", method: Any = "auto") -> Value:
    """Follow `scipy.signal.correlate`."""
    x, w = _operands(in1, in2)
    if mode not in ("full", "same", "valid"):
        raise ValueError("Acceptable mode flags are 'valid', 'same', or 'full'.")
    if not x.ndim:
        return x * conjugated(w)
    if _swaps(mode, x.shape, w.shape):
        return reversed_along(conjugated(correlate(w, x, mode, method)), x.ndim)
    return convolve(x, reversed_along(conjugated(w), x.ndim), mode, method)


@borrows("scipy.signal._signaltools.convolve2d")
def convolve2d(in1: Any, in2: Any, mode: Any = "full", boundary: Any = "fill", fillvalue: Any = 0) -> Value:
    """Follow `scipy.signal.convolve2d`."""
    x, w = _planes(in1, in2, "convolve2d")
    mode = _mode(mode)
    if _swaps(mode, x.shape, w.shape):
        x, w = w, x
    return _sliding_plane(x, reversed_along(w, 2), mode, boundary, fillvalue, [k // 2 for k in w.shape])


@borrows("scipy.signal._signaltools.correlate2d")
def correlate2d(in1: Any, in2: Any, mode: Any = "full", boundary: Any = "fill", fillvalue: Any = 0) -> Value:
    """Follow `scipy.signal.correlate2d`."""
    x, w = _planes(in1, in2, "correlate2d")
    mode = _mode(mode)
    swapped = _swaps(mode, x.shape, w.shape)
    if swapped:
        x, w = w, x
    correlated = _sliding_plane(x, conjugated(w), mode, boundary, fillvalue, [(k - 1) // 2 for k in w.shape])
    return reversed_along(correlated, 2) if swapped else correlated


def _planes(in1: Any, in2: Any, name: str) -> tuple[Value, Value]:
    x, w = promoted(as_array(in1, "in1"), as_array(in2, "in2"))
    if not x.ndim == w.ndim == 2:
        raise ValueError(f"{name} inputs must both be 2-D arrays")
    return x, w


def _sliding_plane(
    x: Value, kernel: Value, mode: str, boundary: Any, fillvalue: Any, middle: list[int]
) -> Value:
    """Return the sums of products at the positions of a mode; `middle` is how far the kernel begins outside for "same"."""
    extensions = {"fill": "constant", "pad": "constant", "wrap": "wrap", "circular": "wrap"}
    extensions.update({"symm": "reflect", "symmetric": "reflect"})
    if boundary not in extensions:
        raise ValueError(
            "Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and 'symmetric' (or 'symm')."
        )
    for axis, (k, before) in enumerate(zip(kernel.shape, middle, strict=True)):
        sides = {"full": (k - 1, k - 1), "same": (before, k - 1 - before), "valid": (0, 0)}[mode]
        x = extended(x, axis, *sides, extensions[boundary], fillvalue)
    return correlate_row(x, kernel, rank=2)


@borrows("scipy.signal.sepfir2d")
def sepfir2d(input: Any, hrow: Any, hcol: Any) -> Value:
    """Follow `scipy.signal.sepfir2d`."""
    x, row, column = promoted(input, hrow, hcol)
    for axis, w in ((1, row), (0, column)):
        if w.ndim != 1 or w.size % 2 == 0:
            raise ValueError("hrow and hcol must be 1-D and have an odd number of elements")
        wide = extended(x, axis, w.size // 2, w.size // 2, "reflect")
        shape = tuple([w.size if k == axis else 1 for k in range(2)])
        x = correlate_row(wide, reversed_along(reshape(w, shape), 2), rank=2)
    return x


# Resampling by a filter


@borrows("scipy.signal._upfirdn.upfirdn")
def upfirdn(
    h: Any, x: Any, up: Any = 1, down: Any = 1, axis: Any = -1, mode: Any = "constant", cval: Any = 0
) -> Value:
    """Follow `scipy.signal.upfirdn`: each phase of the filter is a filter of its own, which makes every so manyth element."""
    taps, signal = as_array(h, "h"), as_array(x, "x")
    if taps.ndim != 1 or not taps.size:
        raise ValueError("h must be 1-D with non-zero length")
    dtype = np.result_type(taps.dtype, signal.dtype, np.float32)
    taps, signal = convert(taps, dtype), convert(signal, dtype)
    up, down = as_int(up, "up"), as_int(down, "down")
    if up < 1 or down < 1:
        raise ValueError("Both up and down must be >= 1")
    position = one_axis(axis, signal.ndim)
    rows = moved(signal, (position,), (signal.ndim - 1,))
    n = rows.shape[-1]
    count = ((n - 1) * up + taps.size - 1) // down + 1
    common = math.gcd(up, down)
    phases, step = up // common, down // common
    length = -(-taps.size // up)
    each = -(-count // phases)
    last = ((phases - 1) * down) // up + (each - 1) * step
    rows = _extended(rows, length - 1, max(last - n + 1, 0), str(mode).lower(), cval)
    phase_results = []
    for phase in range(phases):
        first, offset = divmod(phase * down, up)
        phase_taps = slice_(taps, (offset,), (max(-(-(taps.size - offset) // up), 0),), (up,))
        phase_taps = pad(phase_taps, (length,), (0,))
        kernel = broadcast_to(reversed_along(phase_taps, 1), (*rows.shape[:-1], length))
        part = cut(rows, rows.ndim - 1, first, first + (each - 1) * step + length)
        products = correlate_row(part, kernel, rank=1)
        starts = (0,) * rows.ndim
        phase_results.append(
            slice_(products, starts, (*rows.shape[:-1], each), (*[1] * (rows.ndim - 1), step))
        )
    interleaved = reshape(stack(*phase_results, axis=rows.ndim), (*rows.shape[:-1], each * phases))
    return moved(cut(interleaved, rows.ndim - 1, 0, count), (rows.ndim - 1,), (position,))


def _extended(x: Value, before: int, after: int, mode: str, cval: Any) -> Value:
    """Return signals extended along the last axis in a mode of `upfirdn`."""
    axis, n = x.ndim - 1, x.shape[-1]
    plain = {"symmetric": "reflect", "reflect": "mirror", "edge": "nearest", "wrap": "wrap"}
    if mode == "constant":
        return with_constants(x, axis, before, after, cval)
    if mode in plain:
        return extended(x, axis, before, after, plain[mode])
    if mode == "antireflect":
        return pad_(x, [(0, 0)] * axis + [(before, after)], "reflect", reflect_type="odd")
    left, right = np.arange(-before, 0), np.arange(n, n + after)
    if mode == "antisymmetric":
        sides = []
        for positions in (left, right):
            folded = positions % (2 * n)
            parts = picked(x, axis, np.where(folded < n, folded, 2 * n - 1 - folded))
            signs = np.where(folded < n, 1.0, -1.0)
            sides.append([join(parts, axis) * signs.astype(x.dtype)] if parts else [])
        return join([*sides[0], x, *sides[1]], axis)
    first, end = cut(x, axis, 0, 1), cut(x, axis, n - 1, n)
    if mode == "smooth":
        slopes = (first, end) if n == 1 else (cut(x, axis, 1, 2) - first, end - cut(x, axis, n - 2, n - 1))
        if n == 1:
            return extended(x, axis, before, after, "nearest")
    elif mode == "line":
        slope = (end - first) / max(n - 1, 1)
        slopes = (slope, slope)
    else:
        raise ValueError(f"Unknown mode: {mode}")
    parts = [x]
    if before:
        parts.insert(0, first + slopes[0] * left.astype(x.dtype))
    if after:
        parts.append(end + slopes[1] * (right - (n - 1)).astype(x.dtype))
    return join(parts, axis)
