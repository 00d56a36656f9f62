"""Fourier transforms: products with small matrices of roots of unity, between which the axis is folded.

A transform of n = a b numbers is b transforms of a numbers, factors, and a transforms of b numbers. Transforms of up to 32 numbers are
products with their matrix, which BLAS or vectors compute; that costs n (a + b) products where the fastest way takes 5 n log2(n), and is
linear in plain sight: derivatives, batches and machine code follow from the rows that are there.

References
----------
J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965.
L. I. Bluestein, "A linear filtering approach to the computation of the discrete Fourier transform", 1970.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_array, as_int, one_axis
from gradtape.kinds.registry import borrows, implements, sample
from gradtape.ops.core.contract import contract_row
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, from_parts, imag, real
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.fourier import complex_fourier, half_fourier, real_fourier
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import expand, pad, permute, reshape, slice_
from gradtape.ops.numpy.arrays.shape import moved

DIRECT = 32
"""Numbers up to which a transform is one product with its matrix."""

PRIME = 64
"""Numbers up to which it is that where they do not factor."""

LONG = 2048
"""Numbers from which NumPy's routine transforms them, which takes less time then than what a call of Python costs more."""

MANY = 1 << 14
"""Numbers in all lines from which that is so for shorter lines too: products took 1.0 to 11 times the routine's time (ADR 79)."""

FOLD = 8
"""What folding costs beside a product, in products for each number."""


@functools.lru_cache(maxsize=4096)
def _plan(n: int) -> tuple[int, int]:
    """Return the products that a transform takes for each number, and the length of the transforms that come first.

    It is all of them where one matrix does, and 0 where the numbers are many and do not factor.
    """
    best = (n, n) if n <= PRIME else (1 << 40, 0)
    for first in range(2, min(DIRECT, n // 2) + 1):
        if n % first == 0:
            products, _ = _plan(n // first)
            best = min(best, (first + products + FOLD, first))
    return best


def _takes_routine(x: Value, n: int) -> bool:
    """Return whether NumPy's routine transforms the lines of an array, of n numbers each."""
    return n >= LONG or (n > DIRECT and math.prod(x.shape[:-1]) * n >= MANY)


def _roots(n: int, products: NDArray, sign: int) -> NDArray:
    """Return powers of the root of unity, by exponents that are reduced first, exactly."""
    angle = 2.0 * np.pi / n * (products % n)
    return np.cos(angle) + 1j * sign * np.sin(angle)


@functools.lru_cache(maxsize=256)
def _matrix(rows: int, columns: int, n: int, sign: int) -> NDArray:
    return _roots(n, np.multiply.outer(np.arange(rows), np.arange(columns)), sign)


def _multiplied(x: Value, matrix: NDArray, axis: int) -> Value:
    """Return the product over one of the last two axes with a matrix, in whose second axis the result goes on."""
    subscripts = tuple(range(x.ndim))
    out = tuple([x.ndim if subscript == subscripts[axis] else subscript for subscript in subscripts])
    all_subscripts = {"x": subscripts, "y": (subscripts[axis], x.ndim), "out": out}
    if x.dtype.kind == "c":
        return contract_row(x, constant(matrix.astype(x.dtype)), **all_subscripts)
    parts = [
        contract_row(x, constant(part.astype(x.dtype)), **all_subscripts)
        for part in (matrix.real, matrix.imag)
    ]
    return from_parts(*parts)


def _scaled(x: Value, factors: NDArray) -> Value:
    """Return an array times factors along its last axes."""
    dtype = x.dtype if x.dtype.kind == "c" else np.result_type(x.dtype, np.complex64)
    axes = tuple(range(x.ndim - factors.ndim, x.ndim))
    return convert(x, dtype) * expand(constant(factors.astype(dtype)), x.shape, axes)


def transform(x: Value, sign: int) -> Value:
    """Return ``sum x[j] exp(sign 2 pi i j k / n)`` along the last axis."""
    n = x.shape[-1]
    if _takes_routine(x, n):
        return complex_fourier(x, sign=sign) if x.dtype.kind == "c" else _mirrored(half_fourier(x), n, sign)
    _, first = _plan(n)
    if first == n:
        return _multiplied(x, _matrix(n, n, n, sign), -1)
    if first == 0:
        return _by_convolution(x, sign)
    second = n // first
    folded = _multiplied(reshape(x, (*x.shape[:-1], first, second)), _matrix(first, first, first, sign), -2)
    inner = transform(_scaled(folded, _matrix(first, second, n, sign)), sign)
    transposed = permute(inner, (*range(x.ndim - 1), x.ndim, x.ndim - 1))
    return reshape(transposed, x.shape)


def _mirrored(half: Value, n: int, sign: int) -> Value:
    """Return the whole spectrum of n real numbers from the first half."""
    starts = (*[0] * (half.ndim - 1), (n - 1) // 2)
    shape = (*half.shape[:-1], (n - 1) // 2)
    other = conjugate(slice_(half, starts, shape, (*[1] * (half.ndim - 1), -1)))
    spectrum = join([half, other], half.ndim - 1)
    return spectrum if sign < 0 else conjugate(spectrum)


def _by_convolution(x: Value, sign: int) -> Value:
    """With j k = (j**2 + k**2 - (k - j)**2) / 2 it is a convolution, of a length that factors well."""
    n = x.shape[-1]
    size = 1 << (2 * n - 1).bit_length()
    chirp = _roots(2 * n, np.arange(n) ** 2, sign)
    kernel = np.zeros(size, complex)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp[:0:-1].conj()
    spectrum = transform(_resized(_scaled(x, chirp), size), -1)
    convolved = transform(_scaled(spectrum, np.fft.fft(kernel) / size), 1)
    return _scaled(_resized(convolved, n), chirp)


def _resized(x: Value, n: int) -> Value:
    """Return the first n numbers along the last axis, zeros where there are not as many."""
    zeros = (0,) * x.ndim
    if n < x.shape[-1]:
        return slice_(x, zeros, (*x.shape[:-1], n), (1,) * x.ndim)
    return pad(x, (*x.shape[:-1], n), zeros)


def _floating(operand: Any) -> Value:
    x = as_array(operand, "a")
    if x.dtype.char == "e":
        return convert(x, np.dtype(np.float32))
    return x if x.dtype.kind in "fc" else convert(x, np.dtype(float))


def _factor(n: int, norm: Any, forward: bool) -> float:
    """Return what a result is multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(
            f"norm is {norm!r}", where=here.site, remedy='choose "backward", "ortho" or "forward"'
        )
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if forward == (norm == "forward") else 1.0


def _length(n: Any, x: Value, axis: int) -> int:
    count = x.shape[axis] if n is None else as_int(n, "n")
    if count < 1:
        raise ArgumentError(
            f"a Fourier transform of {count} numbers",
            where=here.site,
            remedy="n, and the axis without it, must be at least 1",
        )
    return count


Rule = Callable[[Value, int, Any], Value]


def _complex(sign: int) -> Rule:
    def rule(x: Value, n: int, norm: Any) -> Value:
        factor = _factor(n, norm, sign < 0)
        transformed = transform(_resized(x, n), sign)
        return transformed if factor == 1 else transformed * factor

    return rule


def _half(x: Value, n: int, norm: Any) -> Value:
    _factor(n, norm, True)
    if x.dtype.kind == "c":
        raise TypeError(
            "ufunc 'rfft' did not contain a loop with signature matching types; rfft takes real numbers"
        )
    if _takes_routine(x, n):
        factor = _factor(n, norm, True)
        transformed = half_fourier(_resized(x, n))
        return transformed if factor == 1 else transformed * factor
    return _with_real_ends(_resized(_complex(-1)(x, n, norm), n // 2 + 1), n)


def _with_real_ends(half: Value, n: int) -> Value:
    """Return half of a spectrum of real numbers with imaginary parts of +0 where it is real: angles depend on the sign."""
    inner = np.ones(half.shape[-1], bool)
    inner[0] = False
    inner[-1] = n % 2 == 1 and n > 1
    mask = expand(constant(inner), half.shape, (half.ndim - 1,))
    return from_parts(real(half), where(mask, imag(half), 0.0))


def _whole(x: Value, n: int, norm: Any) -> Value:
    """The other half is the conjugate of this one: twice the real part of what this half contributes."""
    half_length = n // 2 + 1
    if _takes_routine(x, n):
        spectrum = _resized(x, half_length)
        if spectrum.dtype.kind != "c":
            spectrum = convert(spectrum, np.result_type(spectrum.dtype, np.complex64))
        return real_fourier(spectrum, n=n) * _factor(n, norm, False)
    weights = np.full(half_length, 2.0)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    factor = _factor(n, norm, False)
    return real(transform(_resized(_scaled(_resized(x, half_length), weights * factor), n), 1))


def _along(rule: Rule, a: Any, n: Any, axis: Any, norm: Any, whole: bool = False) -> Value:
    """Apply a rule to one axis."""
    x = _floating(a)
    position = one_axis(axis, x.ndim)
    if whole and n is None:
        n = 2 * (x.shape[position] - 1)
    count = _length(n, x, position)
    last = moved(x, (position,), (x.ndim - 1,))
    return moved(rule(last, count, norm), (x.ndim - 1,), (position,))


_FORWARD, _BACKWARD = _complex(-1), _complex(1)

LINES = (
    sample((8,)),
    sample((2, 6), axis=0),
    sample((2, 5), 8),
    sample((2, 9), 4, norm="ortho"),
    sample((3, 4), norm="forward"),
    sample((7,), norm="backward"),
    sample((60,)),
    sample((67,)),
    sample((134,)),
    sample((3,), 0),
    sample((3, 2), axis=2),
    sample((3,), norm="what"),
)


@implements(np.fft.fft, samples=LINES, dtypes="?qfFD")
def fft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.fft`."""
    return _along(_FORWARD, a, n, axis, norm)


@implements(np.fft.ifft, samples=LINES, dtypes="?qfFD")
def ifft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.ifft`."""
    return _along(_BACKWARD, a, n, axis, norm)


@implements(np.fft.rfft, samples=LINES, dtypes="?qf")
def rfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.rfft`."""
    return _along(_half, a, n, axis, norm)


@implements(np.fft.irfft, samples=(*LINES, sample((3, 4), 7), sample((1,))), dtypes="?qfFD")
def irfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.irfft`."""
    return _along(_whole, a, n, axis, norm, whole=True)


_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


@implements(np.fft.hfft, samples=(sample((5,)), sample((2, 4), 5, norm="ortho")), dtypes="qfFD")
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.hfft`."""
    x = _floating(a)
    return _along(
        _whole, conjugate(x) if x.dtype.kind == "c" else x, n, axis, _SWAPPED.get(norm, norm), whole=True
    )


@implements(np.fft.ihfft, samples=(sample((5,)), sample((2, 4), 5, norm="ortho")), dtypes="qf")
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Value:
    """Follow `numpy.fft.ihfft`."""
    return conjugate(_along(_half, a, n, axis, _SWAPPED.get(norm, norm)))


def _several(a: Any, s: Any, axes: Any, whole: bool = False) -> tuple[Value, list[int], list[int]]:
    """Return an array, the lengths along the axes, and the axes, of which there may be some more than once.

    Lengths that are not given are those of the array as it is; the last one is then that of the `whole` of what is a half.
    """
    x = _floating(a)
    if axes is None:
        positions = list(range(0 if s is None else x.ndim - len(s), x.ndim))
    else:
        positions = [one_axis(axis, x.ndim) for axis in axes]
    sizes = [-1] * len(positions)
    if s is not None:
        if len(s) != len(positions):
            raise ArgumentError(
                f"s has {len(s)} entries for {len(positions)} axes",
                where=here.site,
                remedy="give one length for each axis",
            )
        sizes = [as_int(each, "s") for each in s]
    lengths = [x.shape[position] if n == -1 else n for n, position in zip(sizes, positions, strict=True)]
    if whole and sizes[-1:] == [-1]:
        lengths[-1] = 2 * (x.shape[positions[-1]] - 1)
    return x, lengths, positions


def _one_after_the_other(
    rule: Rule, x: Value, lengths: Sequence[int | None], axes: Sequence[int], norm: Any
) -> Value:
    for length, axis in reversed(list(zip(lengths, axes, strict=True))):
        x = _along(rule, x, length, axis, norm)
    return x


PLANES = (
    sample((4, 6)),
    sample((2, 3, 5), axes=(0, 2)),
    sample((3, 4), s=(4, 2), axes=(0, 1), norm="ortho"),
    sample((2, 3, 4), norm="forward"),
)


@implements(np.fft.fftn, samples=PLANES, dtypes="qfD")
def fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Value:
    """Follow `numpy.fft.fftn`."""
    return _one_after_the_other(_FORWARD, *_several(a, s, axes), norm)


@implements(np.fft.ifftn, samples=PLANES, dtypes="qfD")
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Value:
    """Follow `numpy.fft.ifftn`."""
    return _one_after_the_other(_BACKWARD, *_several(a, s, axes), norm)


@implements(np.fft.rfftn, samples=PLANES, dtypes="qf")
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Value:
    """Follow `numpy.fft.rfftn`."""
    x, lengths, positions = _several(a, s, axes)
    x = _along(_half, x, lengths[-1], positions[-1], norm)
    return _one_after_the_other(_FORWARD, x, lengths[:-1], positions[:-1], norm)


@implements(np.fft.irfftn, samples=PLANES, dtypes="qfD")
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Value:
    """Follow `numpy.fft.irfftn`."""
    x, lengths, positions = _several(a, s, axes, whole=True)
    x = _one_after_the_other(_BACKWARD, x, lengths[:-1], positions[:-1], norm)
    return _along(_whole, x, lengths[-1], positions[-1], norm, whole=True)


@implements(np.fft.fft2, samples=PLANES[:3], dtypes="fD")
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Value:
    """Follow `numpy.fft.fft2`."""
    return fftn(a, s, axes, norm)


@implements(np.fft.ifft2, samples=PLANES[:3], dtypes="fD")
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Value:
    """Follow `numpy.fft.ifft2`."""
    return ifftn(a, s, axes, norm)


@implements(np.fft.rfft2, samples=PLANES[:3], dtypes="f")
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Value:
    """Follow `numpy.fft.rfft2`."""
    return rfftn(a, s, axes, norm)


@implements(np.fft.irfft2, samples=PLANES[:3], dtypes="fD")
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Value:
    """Follow `numpy.fft.irfft2`."""
    return irfftn(a, s, axes, norm)


def _as_scipy(name: str, rule: Callable[..., Value]) -> None:
    last = (-2, -1) if name.endswith("2") else None if name.endswith("n") else -1

    @borrows(f"scipy.fft.{name}")
    def follow(
        x: Any,
        n: Any = None,
        axes: Any = last,
        norm: Any = None,
        overwrite_x: bool = False,
        workers: Any = None,
        *,
        plan: Any = None,
        **named: Any,
    ) -> Value:
        return rule(x, named.get("s", n), named.get("axis", axes), norm)


for _name, _rule in (
    *{"fft": fft, "ifft": ifft, "rfft": rfft, "irfft": irfft, "fft2": fft2, "ifft2": ifft2}.items(),
    *{
        "rfft2": rfft2,
        "irfft2": irfft2,
        "fftn": fftn,
        "ifftn": ifftn,
        "rfftn": rfftn,
        "irfftn": irfftn,
    }.items(),
):
    _as_scipy(_name, _rule)


def _as_fftpack(name: str, rule: Callable[..., Value], is_of_axes: bool) -> None:
    """Follow a function of `scipy.fftpack` that has the result of NumPy's."""
    last = (-2, -1) if name.endswith("2") else None if is_of_axes else -1

    @borrows(f"scipy.fftpack.{name}")
    def follow(x: Any, shape: Any = None, axes: Any = last, overwrite_x: bool = False, **named: Any) -> Value:
        return rule(x, named.get("n", shape), named.get("axis", axes))


for _name, _rule in {
    "fft": fft,
    "ifft": ifft,
    "fft2": fft2,
    "ifft2": ifft2,
    "fftn": fftn,
    "ifftn": ifftn,
}.items():
    _as_fftpack(_name, _rule, _name.endswith("n"))
