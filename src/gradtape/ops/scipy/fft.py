"""The functions of `scipy.fft` besides those of `numpy.fft`: cosine and sine transforms, Hermitian ones of several axes.

A cosine or sine transform is a Fourier transform of the samples and their mirror image. On an axis of n samples that has 2 (n - 1) to
8 n numbers of which most are zero or repeated. So few numbers are transformed, in loops; many are by SciPy's own routine (ADR 90).

References
----------
J. Makhoul, "A fast cosine transform in one and two dimensions", 1980.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import FLOAT64
from gradtape.kinds.arguments import as_array, as_int, one_axis
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, from_parts, imag, real
from gradtape.ops.core.fourier import cosine_transform
from gradtape.ops.core.join import full, join
from gradtape.ops.core.shape import pad, slice_
from gradtape.ops.numpy.arrays.shape import cut, moved
from gradtape.ops.numpy.linalg.fft import hfft, ihfft, irfft, irfftn, rfft, rfftn

LONG = 256
"""Numbers in a line above which SciPy's routine transforms it: a loop takes up to 7 times its time then (ADR 90)."""

MANY = 2048
"""Numbers, counted once for each axis that is transformed, from which that is so for shorter lines too."""

_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _reversed(x: Value) -> Value:
    last = x.ndim - 1
    starts = (*[0] * last, x.shape[-1] - 1 if x.shape[-1] else 0)
    return slice_(x, starts, x.shape, (*[1] * last, -1))


def _part(x: Value, start: int, stop: int) -> Value:
    return cut(x, x.ndim - 1, start, stop)


def _scaled(x: Value, factors: Any) -> Value:
    """Return an array times factors along its last axis."""
    return x * broadcast_to(_in_dtype(factors, x.dtype), x.shape)


def _in_dtype(factors: Any, dtype: np.dtype[Any]) -> Value:
    if isinstance(factors, Value):
        return convert(factors, dtype)
    return constant(np.asarray(factors).astype(dtype))


def _joined(*parts: Value) -> Value:
    return join([part for part in parts if part.shape[-1]], parts[0].ndim - 1)


def _zeros(x: Value, count: int) -> Value:
    return full((*x.shape[:-1], count), 0, x.dtype)


def _turned(spectrum: Value, angles: Any) -> tuple[Value, Value]:
    """Return the parts of a spectrum times ``exp(-i angle)``."""
    a, b = real(spectrum), imag(spectrum)
    c, s = np.cos(angles), np.sin(angles)
    return _scaled(a, c) + _scaled(b, s), _scaled(b, c) - _scaled(a, s)


def _cosine(x: Value, kind: int) -> Value:
    """Return SciPy's discrete cosine transform without a norm, along the last axis."""
    n = x.shape[-1]
    if kind == 1:
        return real(rfft(_joined(x, _reversed(_part(x, 1, n - 1)))))
    k = np.arange(n)
    if kind == 2:
        spectrum = _part(rfft(_joined(x, _reversed(x))), 0, n)
        return _turned(spectrum, np.pi * k / (2 * n))[0]
    if kind == 3:
        # The transpose of the second kind: a spectrum whose inverse transform is read at the first n of 2 n places.
        angles = np.pi * k / (2 * n)
        weights = np.full(n, 2.0 * n)
        spectrum = from_parts(_scaled(x, weights * np.cos(angles)), _scaled(x, weights * np.sin(angles)))
        return _part(irfft(_joined(spectrum, _zeros(spectrum, 1)), 2 * n), 0, n)
    # The fourth kind is the second one of a spectrum of twice the length, at odd places.
    wide = _joined(x, -_reversed(x), -x, _reversed(x))
    return _quarter(wide, n, 0)


def _quarter(wide: Value, n: int, which: int) -> Value:
    """Return, of samples continued to four times their number, the parts of the spectrum at odd frequencies, halved."""
    spectrum = rfft(wide)
    starts = (*[0] * (wide.ndim - 1), 1)
    odd = slice_(spectrum, starts, (*wide.shape[:-1], n), (*[1] * (wide.ndim - 1), 2))
    angles = np.pi * (2 * np.arange(n) + 1) / (4 * n)
    parts = _turned(odd, angles)
    return (parts[0] if which == 0 else -parts[1]) * 0.5


def _sine(x: Value, kind: int) -> Value:
    """Return SciPy's discrete sine transform without a norm, along the last axis."""
    n = x.shape[-1]
    if kind == 1:
        zero = _zeros(x, 1)
        return -imag(_part(rfft(_joined(zero, x, zero, -_reversed(x))), 1, n + 1))
    signs = np.where(np.arange(n) % 2, -1.0, 1.0)
    if kind == 2:
        return _reversed(_cosine(_scaled(x, signs), 2))
    if kind == 3:
        return _scaled(_cosine(_reversed(x), 3), signs)
    return _quarter(_joined(x, _reversed(x), -x, -_reversed(x)), n, 1)


def _transformed(x: Value, kind: int, norm: Any, sine: bool, orthogonalize: bool) -> Value:
    """Transform along the last axis, with a norm, as SciPy scales."""
    n = x.shape[-1]
    whole = 2 * (n + (0 if kind != 1 else 1 if sine else -1))
    factor = {"backward": 1.0, None: 1.0, "ortho": 1 / math.sqrt(whole), "forward": 1 / whole}[norm]
    ends = np.ones(n)
    if orthogonalize and kind == 1 and not sine:
        ends[[0, -1]] = math.sqrt(2)
    elif orthogonalize and kind == 3:
        ends[-1 if sine else 0] = math.sqrt(2)
    if (ends != 1).any():
        x = _scaled(x, ends)
    found = (_sine if sine else _cosine)(x, kind)
    after = np.full(n, factor)
    if orthogonalize and kind == 1 and not sine:
        after[[0, -1]] *= math.sqrt(0.5)
    elif orthogonalize and kind == 2:
        after[-1 if sine else 0] *= math.sqrt(0.5)
    return _scaled(found, after) if (after != 1).any() else found


def _along(x: Value, axis: int, rule: Callable[[Value], Value]) -> Value:
    """Apply a rule along an axis."""
    last = x.ndim - 1
    return moved(rule(moved(x, (axis,), (last,))), (last,), (axis,))


def _resized(x: Value, axis: int, n: int | None) -> Value:
    """Return n samples along an axis: as many of the array, or zeros after them."""
    if n is None or n == x.shape[axis]:
        return x
    if n < 1:
        raise ValueError(f"invalid number of data points ({n}) specified")
    if n < x.shape[axis]:
        return cut(x, axis, 0, n)
    return pad(x, (*x.shape[:axis], n, *x.shape[axis + 1 :]), (0,) * x.ndim)


def _along_all(
    x: Value, axes: Sequence[int], kind: int, norm: Any, sine: bool, inverse: bool, orthogonalize: bool
) -> Value:
    """Transform along axes: by one call of SciPy's routine where there are many numbers."""
    if kind == 1 and not sine and any(x.shape[axis] < 2 for axis in axes):
        raise ValueError("DCT-I is not defined for size < 2")
    if inverse:
        kind = {2: 3, 3: 2}.get(kind, kind)
        norm = _SWAPPED[norm]
    if any(x.shape[axis] > LONG for axis in axes) or x.size * len(axes) >= MANY:
        positions = tuple([axis - x.ndim for axis in axes])

        def rule(rows: Value) -> Value:
            return cosine_transform(
                rows, kind=kind, sine=sine, axes=positions, norm=norm or "backward", ortho=orthogonalize
            )

    else:

        def rule(rows: Value) -> Value:
            for axis in axes:
                rows = _along(rows, axis, lambda line: _transformed(line, kind, norm, sine, orthogonalize))
            return rows

    return from_parts(rule(real(x)), rule(imag(x))) if x.dtype.kind == "c" else rule(x)


def _floats(x: Any) -> Value:
    value = as_array(x, "x")
    return value if value.dtype.kind in "fc" else convert(value, np.dtype(float))


@functools.cache
def _scales_complex_numbers() -> bool:
    """Return whether `orthogonalize` counts for complex numbers: SciPy 1.17 does not pass it on with them."""
    import scipy.fft

    return bool(scipy.fft.dct([1j], orthogonalize=True)[0] != scipy.fft.dct([1j])[0])


def _checked(kind: Any, norm: Any, orthogonalize: Any, x: Value) -> tuple[int, bool]:
    if kind not in (1, 2, 3, 4):
        raise ValueError(f"invalid type {kind}")
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward".')
    by_norm = orthogonalize is None or (x.dtype.kind == "c" and not _scales_complex_numbers())
    return int(kind), norm == "ortho" if by_norm else bool(orthogonalize)


def _of_one_axis(name: str, sine: bool, inverse: bool) -> None:
    @borrows(f"scipy.fft.{name}")
    def follow(
        x: Any,
        type: Any = 2,
        n: Any = None,
        axis: Any = -1,
        norm: Any = None,
        overwrite_x: bool = False,
        workers: Any = None,
        orthogonalize: Any = None,
    ) -> Value:
        value = _floats(x)
        kind, ortho = _checked(type, norm, orthogonalize, value)
        count = None if n is None else as_int(n, "n")
        position = one_axis(axis, value.ndim)
        return _along_all(_resized(value, position, count), (position,), kind, norm, sine, inverse, ortho)


def _of_axes(name: str, sine: bool, inverse: bool) -> None:
    @borrows(f"scipy.fft.{name}")
    def follow(
        x: Any,
        type: Any = 2,
        s: Any = None,
        axes: Any = None,
        norm: Any = None,
        overwrite_x: bool = False,
        workers: Any = None,
        *,
        orthogonalize: Any = None,
    ) -> Value:
        value = _floats(x)
        kind, ortho = _checked(type, norm, orthogonalize, value)
        counts, positions = _places(value, s, axes)
        for count, position in zip(counts, positions, strict=True):
            value = _resized(value, position, count)
        return _along_all(value, positions, kind, norm, sine, inverse, ortho)


def _places(x: Value, s: Any, axes: Any) -> tuple[Sequence[int | None], list[int]]:
    counts = None if s is None else [as_int(n, "s") for n in np.atleast_1d(s)]
    if axes is None:
        positions = list(range(x.ndim if counts is None else len(counts)))
        positions = [x.ndim - len(positions) + k for k in positions]
    else:
        positions = [one_axis(axis, x.ndim) for axis in np.atleast_1d(axes)]
    if counts is None:
        return [None] * len(positions), positions
    if len(counts) != len(positions):
        raise ValueError("when given, axes and shape arguments have to be of the same length")
    return counts, positions


for _sign in (False, True):
    _of_one_axis("dst" if _sign else "dct", _sign, False)
    _of_one_axis("idst" if _sign else "idct", _sign, True)
    _of_axes("dstn" if _sign else "dctn", _sign, False)
    _of_axes("idstn" if _sign else "idctn", _sign, True)


def _as_fftpack(name: str, sine: bool, swaps: bool) -> None:
    """Follow a function of `scipy.fftpack`, whose inverse transforms are transforms of the inverse type, without a factor."""

    @borrows(f"scipy.fftpack.{name}")
    def follow(
        x: Any, type: Any = 2, n: Any = None, axis: Any = -1, norm: Any = None, overwrite_x: bool = False
    ) -> Value:
        value = _floats(x)
        kind, ortho = _checked(type, norm, None, value)
        kind = {2: 3, 3: 2}.get(kind, kind) if swaps else kind
        count = None if n is None else as_int(n, "n")
        position = one_axis(axis, value.ndim)
        return _along_all(_resized(value, position, count), (position,), kind, norm, sine, False, ortho)


for _sign in (False, True):
    _as_fftpack("dst" if _sign else "dct", _sign, False)
    _as_fftpack("idst" if _sign else "idct", _sign, True)


# Hermitian spectra


@borrows("scipy.fft.hfft")
def _hfft(x: Any, n: Any = None, axis: Any = -1, norm: Any = None, *args: Any, **kwargs: Any) -> Value:
    return hfft(x, n, axis, norm)


@borrows("scipy.fft.ihfft")
def _ihfft(x: Any, n: Any = None, axis: Any = -1, norm: Any = None, *args: Any, **kwargs: Any) -> Value:
    return ihfft(x, n, axis, norm)


def _hermitian(name: str, last: Any, inverse: bool) -> None:
    @borrows(f"scipy.fft.{name}")
    def follow(x: Any, s: Any = None, axes: Any = last, norm: Any = None, *args: Any, **kwargs: Any) -> Value:
        value = _floats(x)
        if inverse:
            return conjugate(rfftn(value, s, axes, _SWAPPED.get(norm, norm)))
        return irfftn(
            conjugate(value) if value.dtype.kind == "c" else value, s, axes, _SWAPPED.get(norm, norm)
        )


for _inverse in (False, True):
    _hermitian("ihfft2" if _inverse else "hfft2", (-2, -1), _inverse)
    _hermitian("ihfftn" if _inverse else "hfftn", None, _inverse)


# The Hankel transform on a logarithmic grid


def _hankel(a: Any, dln: Any, mu: Any, offset: Any, bias: Any, inverse: bool) -> Value:
    """Multiply the spectrum by coefficients (J. D. Talman, 1978; A. J. S. Hamilton, 2000)."""
    x = convert(as_array(a, "a"), FLOAT64)
    n = x.shape[-1]
    numbers = (dln, mu, offset, bias)
    function = _hankel_factors if any(isinstance(number, Value) for number in numbers) else _hankel_numbers
    before, u, after = HOOKS.call(function, n, *numbers, inverse)
    spectrum = rfft(_scaled(x, before))
    product = spectrum * broadcast_to(_in_dtype(u, spectrum.dtype), spectrum.shape)
    return _scaled(_reversed(irfft(product, n)), after)


def _hankel_numbers(n: int, dln: float, mu: float, offset: float, bias: float, inverse: bool) -> Any:
    from scipy.fft._fftlog_backend import fhtcoeff

    u = fhtcoeff(n, dln, mu, offset=offset, bias=bias, inverse=inverse)
    before, after = _powers(n, dln, offset, bias)
    return (1 / before, 1 / u.conj(), 1 / after) if inverse else (before, u, after)


def _powers(n: int, dln: Any, offset: Any, bias: Any) -> Any:
    """Return the powers of the coordinates by which samples and results are multiplied."""
    positions = (np.arange(n) - (n - 1) / 2) * dln
    return np.exp(-bias * positions), np.exp(-bias * (positions + offset))


def _hankel_factors(n: int, dln: Any, mu: Any, offset: Any, bias: Any, inverse: bool) -> Any:
    """Return the same of traced parameters, where the transform is not singular."""
    from scipy.special import loggamma

    y = np.linspace(0, np.pi * (n // 2) / n, n // 2 + 1) / dln
    up, down = (loggamma((mu + 1 + sign * bias) / 2 + 1j * y) for sign in (1, -1))
    size = np.exp(np.real(up) - np.real(down) + math.log(2) * bias)
    angle = np.imag(up) + np.imag(down) + 2 * (math.log(2) - offset) * y
    sine = np.sin(angle)
    if n % 2 == 0:
        sine = sine * (np.arange(n // 2 + 1) < n // 2)
    u = size * (np.cos(angle) + 1j * sine)
    before, after = _powers(n, dln, offset, bias)
    return (1 / before, 1 / np.conj(u), 1 / after) if inverse else (before, u, after)


@borrows("scipy.fft.fht")
def fht(a: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Value:
    """Follow `scipy.fft.fht`."""
    return _hankel(a, dln, mu, offset, bias, False)


@borrows("scipy.fft.ifht")
def ifht(A: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Value:
    """Follow `scipy.fft.ifht`."""
    return _hankel(A, dln, mu, offset, bias, True)
