"""Filters of spectra: `fourier_gaussian`, `fourier_uniform`, `fourier_ellipsoid` and `fourier_shift`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import Aval, Shape, part_dtype
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import from_parts
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.scipy.ndimage.filters import along
from gradtape.ops.scipy.special.bessel import j1


def _angles(x: Value, parameters: Any, n: int, axis: int) -> list[Value]:
    """Return, along each axis, pi times the parameter times the frequencies, as fractions of the number of samples."""
    given = as_array(parameters, "parameters")
    dtype = part_dtype(x.dtype) if x.dtype.kind == "c" else x.dtype
    found = []
    for place, count in enumerate(x.shape):
        numbers = np.arange(count, dtype=float)
        if place == axis and n >= 0:  # the first half of the spectrum of n real numbers
            numbers /= n
        else:
            numbers[(count + 1) // 2 :] -= count
            numbers /= count
        own = constant(math.pi * numbers) * getitem(given, place)
        found.append(convert(along(own, place, x.ndim), dtype))
    return found


def _quotient(above: Callable[[Value], Value], t: Value, power: int = 1) -> Value:
    """Return a function over a power of its argument, which is 1 at zero."""
    none = equal(t, 0)
    safe = where(none, 1.0, t)
    return where(none, 1.0, above(safe) / safe**power)


@borrows("scipy.ndimage._nd_image.fourier_filter", writes=4)
def fourier_filter(input: Any, parameters: Any, n: int, axis: int, output: Aval, kind: int) -> Value:
    """Follow the routine of `scipy.ndimage.fourier_gaussian`, `fourier_uniform` and `fourier_ellipsoid`."""
    x = as_array(input, "input")
    if x.dtype.kind not in "fc":
        x = convert(x, np.dtype(float))
    angles = _angles(x, parameters, n, axis)
    if kind == 2 and x.ndim in (1, 2, 3):
        return x * _ellipsoid(angles, x.shape)
    for t in angles:
        factor = exp(t * t * -2.0) if kind == 0 else _quotient(sin, t)
        x = x * broadcast_to(factor, x.shape)
    return x


def _ellipsoid(angles: list[Value], shape: Shape) -> Value:
    if len(angles) == 1:
        return _quotient(sin, angles[0])
    square = broadcast_to(angles[0] * angles[0], shape)
    for t in angles[1:]:
        square = square + broadcast_to(t * t, shape)
    none = equal(square, 0)
    radius = sqrt(where(none, 1.0, square))
    if len(angles) == 2:
        found = 2.0 * j1(radius) / radius
    else:
        found = 3.0 * (sin(radius) - radius * cos(radius)) / (radius * radius * radius)
    return where(none, 1.0, found)


@borrows("scipy.ndimage._nd_image.fourier_shift", writes=4)
def fourier_shift(input: Any, shifts: Any, n: int, axis: int, output: Aval) -> Value:
    """Follow the routine of `scipy.ndimage.fourier_shift`."""
    x = as_array(input, "input")
    if x.dtype.kind not in "fc":
        x = convert(x, np.dtype(float))
    total: Value | None = None
    for t in _angles(x, shifts, n, axis):
        angle = broadcast_to(t * -2.0, x.shape)
        total = angle if total is None else total + angle
    assert total is not None
    return x * from_parts(cos(total), sin(total))
