"""NumPy code in place of compiled routines of `scipy.signal`, and of functions of it that ask for numbers: peaks, boundary conditions of
spline filters, multiple roots, the bilinear transform."""

from __future__ import annotations

import math
import sys
from typing import Any, Final

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.distances import root
from gradtape.trace.routines.registry import constant_or_traced, known_numbers, lookup, stands_for

# Design of filters


@stands_for("scipy.signal._filter_design._validate_fs")
def validate_rate(fs: Any, allow_none: bool = True) -> Any:
    """Return a traced sampling frequency as it is."""
    if np.ndim(fs):
        raise ValueError("Sampling frequency fs must be a single scalar.")
    return np.asarray(fs) + 0.0


@stands_for("scipy.signal._signaltools.lfiltic")
def initial_state(b: Any, a: Any, y: Any, x: Any = None) -> Any:
    """Follow `scipy.signal.lfiltic`, which divides by the first coefficient where that is not 1: it has a derivative there too."""
    a, b = np.atleast_1d(a), np.atleast_1d(b)
    for name, given in (("a", a), ("b", b)):
        if given.ndim > 1:
            raise ValueError(f"Filter coefficients `{name}` must be 1-D.")
    size = max(a.shape[0], b.shape[0]) - 1
    total: Any = 0.0
    for sign, coefficients, past in ((1.0, b, x), (-1.0, a, y)):
        count = coefficients.shape[0] - 1
        if past is None or not count:
            continue
        before = np.concatenate([np.atleast_1d(past), np.zeros(count)])[:count]
        states = [np.sum(coefficients[m + 1 :] * before[: count - m]) for m in range(count)]
        total = total + sign * np.concatenate([np.stack(states), np.zeros(size - count)])
    return (total + np.zeros(size)) / a[0]


@stands_for("scipy.signal._filter_design.bilinear")
def bilinear(b: Any, a: Any, fs: Any = 1.0) -> tuple[Any, Any]:
    """Follow `scipy.signal.bilinear`, which computes with objects of NumPy's polynomials."""
    b, a = (np.trim_zeros(np.atleast_1d(np.asarray(c)), "f") for c in (b, a))
    order = max(len(b), len(a)) - 1
    rows = np.zeros((order + 1, order + 1))
    for q in range(order + 1):
        rows[q] = np.poly([-1.0] * (order - q) + [1.0] * q)
    factors = np.sqrt(np.asarray(fs) * 2) ** (2 * np.arange(order + 1) - order)
    numerator, denominator = ((c[::-1] * factors[: len(c)]) @ rows[: len(c)] for c in (b, a))
    normalized: tuple[Any, Any] = sys.modules["scipy.signal"].normalize(numerator, denominator)
    return normalized


@stands_for("scipy.signal._filter_design.band_stop_obj")
def band_stop_obj(wp: Any, ind: int, passb: Any, stopb: Any, gpass: Any, gstop: Any, type: str) -> Any:
    """Follow `scipy.signal.band_stop_obj`, which writes the edge into an array."""
    band = np.where(np.arange(2) == ind, wp, passb)
    ratio = np.asarray(stopb) * (band[0] - band[1]) / (np.asarray(stopb) ** 2 - band[0] * band[1])
    nat = np.min(np.abs(ratio))
    stop, passing = 10 ** (0.1 * np.abs(gstop)) - 1.0, 10 ** (0.1 * np.abs(gpass)) - 1.0
    if type == "butter":
        return np.log10(stop / passing) / (2 * np.log10(nat))
    if type == "cheby":
        return np.arccosh(np.sqrt(stop / passing)) / np.arccosh(nat)
    if type != "ellip":
        raise ValueError(f"Incorrect type: {type}")
    ellipk = sys.modules["scipy.special"].ellipk
    small, ratio = np.sqrt(passing / stop), 1.0 / nat
    return ellipk(ratio**2) * ellipk(1 - small**2) / (ellipk(1 - ratio**2) * ellipk(small**2))


@stands_for("scipy.signal._fir_filter_design.minimum_phase")
def minimum_phase(h: Any, method: str = "homomorphic", n_fft: Any = None, *, half: bool = True) -> Any:
    """Follow `scipy.signal.minimum_phase`, which takes the square root of a response that is zero somewhere."""
    h = np.asarray(h)
    if h.dtype.kind == "c" or h.ndim != 1 or h.size <= 2:
        raise ValueError("h must be real, 1-D, and at least 3 samples long")
    if method not in ("homomorphic", "hilbert") or (method == "hilbert" and not half):
        raise ValueError(f'method must be "homomorphic", or "hilbert" with half=True, got {method!r}')
    middle, count = h.size // 2, 2 ** math.ceil(math.log2(2 * (h.size - 1) / 0.01))
    count = int(count if n_fft is None else n_fft)
    if count < h.size:
        raise ValueError(f"n_fft must be at least len(h)=={h.size}")
    spectrum = np.fft.fft(h, count)
    if method == "hilbert":
        response = np.real(spectrum * np.exp(2j * np.pi / count * middle * np.arange(count)))
        above, below = np.max(response) - 1, -np.min(response)
        response = 4 * (response + below) / (np.sqrt(1 + above + below) + np.sqrt(1 - above + below)) ** 2
        sizes = root(response) + 1e-10
        signs = np.zeros(count)
        signs[1 : count // 2], signs[count // 2 + 1 :] = 1, -1
        filter_taps = np.real(np.fft.ifft(sizes * np.exp(np.fft.fft(signs * np.fft.ifft(np.log(sizes))))))
    else:
        sizes = np.abs(spectrum)
        smallest = np.min(np.where(sizes > 0, sizes, np.inf))
        logarithm = np.log(sizes + 1e-7 * smallest) * (0.5 if half else 1.0)
        window = np.zeros(count)
        window[0], window[1 : count // 2], window[count // 2] = 1, 2, count % 2
        filter_taps = np.real(np.fft.ifft(np.exp(np.fft.fft(np.real(np.fft.ifft(logarithm)) * window))))
    return filter_taps[: middle + h.size % 2 if half else h.size].astype(
        h.dtype if h.dtype.kind == "f" else float
    )


# Waves


@stands_for("scipy.signal._waveforms.sawtooth")
def sawtooth(t: Any, width: Any = 1) -> Any:
    """Follow `scipy.signal.sawtooth`, which writes each part of the wave by itself."""
    t = np.asarray(t)
    w = np.asarray(width) + 0.0 * t
    phase = np.mod(t, 2 * np.pi)
    rising = phase / (np.pi * np.where(w == 0, 1.0, w)) - 1
    falling = (np.pi * (w + 1) - phase) / (np.pi * np.where(w == 1, 1.0, 1 - w))
    return np.where((w > 1) | (w < 0), np.nan, np.where(phase < w * 2 * np.pi, rising, falling))


# Roots


@stands_for("scipy.signal._signaltools.unique_roots")
def unique_roots(p: Any, tol: float = 1e-3, rtype: str = "min") -> tuple[Any, Any]:
    """Follow `scipy.signal.unique_roots`: whether two roots are the same is a branch."""
    reductions: dict[str, Any] = {"max": np.max, "maximum": np.max, "min": np.min, "minimum": np.min}
    reductions.update({"avg": np.mean, "mean": np.mean})
    if rtype not in reductions:
        raise ValueError("`rtype` must be one of {'max', 'maximum', 'min', 'minimum', 'avg', 'mean'}")
    p = np.asarray(p)
    left = list(range(len(p)))
    roots, counts = [], []
    while left:
        first = left[0]
        group = [k for k in left if k == first or np.abs(p[k] - p[first]) <= tol]
        roots.append(p[first] if len(group) == 1 else reductions[rtype](p[np.array(group)]))
        counts.append(len(group))
        left = [k for k in left if k not in group]
    return np.stack(roots), constant_or_traced(np.array(counts))


# Spline filters: the sums over the mirrored samples end where a term is smaller than the precision

PRECISION: Final = {"f": 1e-6, "F": 1e-6, "d": 1e-11, "D": 1e-11}
"""The precisions that the compiled routines choose, by dtype."""


def _summed(signal: Any, weights: Any, precision: float, power: int = 2) -> Any:
    """Return the sums over samples, which end after the first weight whose square is not larger than a power of the precision."""
    if not 0 < precision < 1:
        precision = PRECISION[signal.dtype.char]
    goes_on = np.abs(weights) ** 2 > precision**power
    if not isinstance(goes_on, Handle) and goes_on[:-1].all():
        raise ValueError("Sum to find symmetric boundary conditions did not converge.")
    added = np.concatenate([np.ones(1), np.cumprod(goes_on[:-1] * 1.0)])
    return signal @ (weights * added).astype(signal.dtype)


@stands_for("scipy.signal._spline_filters.symiirorder1_ic")
def first_order_start(signal: Any, z1: Any, precision: float = -1.0) -> Any:
    """Return the first result of a filter of the first order, of mirrored samples."""
    weights = np.asarray(z1) ** np.arange(1, signal.shape[1] + 1)
    return signal[:, :1] + _summed(signal, weights, precision)[:, None]


def _impulse(k: Any, cs: Any, r: Any, omega: Any) -> Any:
    """Return the response of a filter of the second order to an impulse, after k samples."""
    if omega == 0.0:
        return cs * r**k * (k + 1)
    if omega == math.pi:
        return cs * r**k * (k + 1) * (1 - 2 * (k % 2))
    return cs * r**k * np.sin(omega * (k + 1)) / np.sin(omega)


def _symmetric(k: Any, cs: Any, rsq: Any, omega: Any) -> Any:
    """Return the response of the filter forward and backward."""
    k = np.abs(k)
    size = np.sqrt(rsq) ** k
    if omega == 0.0 or omega == math.pi:
        signs = 1 if omega == 0.0 else 1 - 2 * (k % 2)
        return cs**2 * (1 + rsq) / (1 - rsq) ** 3 * size * (1 + (1 - rsq) / (1 + rsq) * signs * k)
    c0 = cs**2 * (1 + rsq) / (1 - rsq) / (1 - 2 * rsq * np.cos(2 * omega) + rsq**2)
    gamma = (1 - rsq) / (1 + rsq) / np.tan(omega)
    return c0 * size * (np.cos(omega * k) + gamma * np.sin(omega * k))


@stands_for("scipy.signal._spline_filters.symiirorder2_ic_fwd")
def second_order_start(signal: Any, r: Any, omega: Any, precision: float = -1.0) -> Any:
    """Return the first two results of a filter of the second order, of mirrored samples."""
    cs = 1 - 2 * r * np.cos(omega) + r * r
    h = _impulse(np.arange(signal.shape[1] + 2), cs, r, omega)
    first = h[0] * signal[:, 0] + _summed(signal, h[1:-1], precision)
    second = h[0] * signal[:, 1] + h[1] * signal[:, 0] + _summed(signal, h[2:], precision)
    return np.stack([first, second], axis=1).astype(signal.dtype)


@stands_for("scipy.signal._spline_filters.symiirorder2_ic_bwd")
def second_order_end(signal: Any, r: Any, omega: Any, precision: float = -1.0) -> Any:
    """Return the last two results of the filter that runs backward."""
    cs = 1 - 2 * r * np.cos(omega) + r * r
    k = np.arange(signal.shape[1])
    h = [_symmetric(k + ahead, cs, r * r, omega) for ahead in (-1, 0, 1, 2)]
    reverse = signal[:, ::-1]
    last, before = (_summed(reverse, a + b, precision, 1) for a, b in ((h[1], h[2]), (h[0], h[3])))
    return np.stack([last, before], axis=1).astype(signal.dtype)


@stands_for("scipy.signal._spline_filters.cspline1d_eval")
def cubic_spline(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """Follow `scipy.signal.cspline1d_eval`."""
    return _mirrored_spline(cj, newx, dx, x0, 3)


@stands_for("scipy.signal._spline_filters.qspline1d_eval")
def quadratic_spline(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """Follow `scipy.signal.qspline1d_eval`."""
    return _mirrored_spline(cj, newx, dx, x0, 2)


def _mirrored_spline(cj: Any, newx: Any, dx: Any, x0: Any, degree: int) -> Any:
    x, c = (np.asarray(newx) - x0) / dx, np.asarray(cj)
    last = len(c) - 1
    if last < 0:
        raise ValueError("Spline coefficients 'cj' must not be empty.")
    if last:
        x = np.abs(x - 2 * last * np.rint(x / (2 * last)))
    first = np.floor(x - (degree + 1) / 2).astype(int) + 1
    bump = _cubic if degree == 3 else _quadratic
    values: Any = sum(
        lookup(c, np.clip(first + k, 0, last)) * bump(np.abs(x - (first + k))) for k in range(degree + 1)
    )
    return values.astype(c.dtype if degree == 3 else x.dtype)


def _cubic(d: Any) -> Any:
    near, far = 2 / 3 - d**2 * (2 - d) / 2, (2 - d) ** 3 / 6
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def _quadratic(d: Any) -> Any:
    return np.where(d < 0.5, 0.75 - d**2, np.where(d < 1.5, (d - 1.5) ** 2 / 2, 0.0))


# Spectra


@stands_for("scipy.signal._spectral_py._fft_helper")
def spectra(x: Any, win: Any, detrend_func: Any, nperseg: int, noverlap: int, nfft: int, sides: str) -> Any:
    """Return the Fourier transforms of segments that overlap."""
    segments = detrend_func(_segments(x, nperseg, nperseg - noverlap)) * win
    fft = sys.modules["scipy.fft"]
    if sides == "twosided":
        return fft.fft(segments, n=nfft)
    return fft.rfft(np.real(segments), n=nfft)


def _segments(x: Any, size: int, step: int) -> Any:
    """Return segments that begin after each step, made of the parts of the array that are as long as a step."""
    count = (x.shape[-1] - size) // step + 1
    parts = -(-size // step)
    if parts > min(count, 16):
        return np.lib.stride_tricks.sliding_window_view(x, size, axis=-1)[..., ::step, :]
    missing = max((count + parts - 1) * step - x.shape[-1], 0)
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], missing), x.dtype)], axis=-1) if missing else x
    rows = padded[..., : (count + parts - 1) * step].reshape(*x.shape[:-1], count + parts - 1, step)
    beside = [rows[..., k : k + count, :] for k in range(parts)]
    return np.concatenate(beside, axis=-1)[..., :size]


# Peaks


@stands_for("scipy.signal._peak_finding._local_maxima_1d")
def local_maxima(x: Any) -> tuple[Any, Any, Any]:
    """Return the middles and ends of the runs of equal samples that are higher than the samples beside them."""
    count = x.shape[0]
    if count < 3:
        return (np.zeros(0, np.intp),) * 3
    positions = np.arange(count - 1)
    steps = np.diff(x)
    ends = np.minimum.accumulate(np.where(steps != 0, positions, count)[::-1])[::-1]
    falls = np.concatenate([steps < 0, np.zeros(1, bool)])
    is_left = (steps[:-1] > 0) & lookup(falls, np.minimum(ends[1:], count - 1))
    left = np.flatnonzero(is_left) + 1
    right = lookup(ends, left)
    return (left + right) // 2, left, right


@stands_for("scipy.signal._peak_finding._peak_prominences")
def prominences(x: Any, peaks: Any, wlen: int = -1) -> tuple[Any, Any, Any]:
    """Return how far peaks stand out of what surrounds them up to higher samples."""
    k = np.arange(x.shape[0])
    middle = np.asarray(peaks)[:, None]
    tops = lookup(x, peaks)[:, None]
    beyond = x > tops
    if wlen >= 2:
        beyond = beyond | (np.abs(k - middle) > wlen // 2)
    left = np.max(np.where(beyond & (k < middle), k, -1), axis=1)[:, None]
    right = np.min(np.where(beyond & (k > middle), k, x.shape[0]), axis=1)[:, None]
    before = np.where((k > left) & (k <= middle), x, np.inf)[:, ::-1]
    after = np.where((k < right) & (k >= middle), x, np.inf)
    bases = x.shape[0] - 1 - np.argmin(before, axis=1), np.argmin(after, axis=1)
    lowest = np.maximum(lookup(x, bases[0]), lookup(x, bases[1]))
    return tops[:, 0] - lowest, bases[0], bases[1]


@stands_for("scipy.signal._peak_finding._peak_widths")
def widths(
    x: Any, peaks: Any, rel_height: Any, prominences: Any, left_bases: Any, right_bases: Any
) -> tuple[Any, Any, Any, Any]:
    """Return how wide peaks are at a height, between the lines that join the samples."""
    k = np.arange(x.shape[0])
    middle = np.asarray(peaks)[:, None]
    heights = lookup(x, peaks) - prominences * rel_height
    low = x <= heights[:, None]
    left = np.max(np.where((low & (k <= middle)) | (k == np.asarray(left_bases)[:, None]), k, -1), axis=1)
    right = np.min(
        np.where((low & (k >= middle)) | (k == np.asarray(right_bases)[:, None]), k, x.shape[0]), axis=1
    )
    first = left + _crossing(x, left, 1, heights)
    last = right - _crossing(x, right, -1, heights)
    return last - first, heights, first, last


def _crossing(x: Any, position: Any, step: int, heights: Any) -> Any:
    """Return at which part of the way to the next sample the line crosses the height; 0 if the sample is not lower."""
    height, other = lookup(x, position), lookup(x, np.clip(position + step, 0, x.shape[0] - 1))
    lower = height < heights
    return np.where(lower, (heights - height) / np.where(lower, other - height, 1.0), 0.0)


@stands_for("scipy.signal._peak_finding._select_by_peak_distance")
def distant_peaks(peaks: Any, priority: Any, distance: Any) -> Any:
    """Return which peaks are kept; it has no derivative."""
    plain = sys.modules["scipy.signal._peak_finding"]._select_by_peak_distance
    numbers = [known_numbers(array, "a choice of peaks by their distance") for array in (peaks, priority)]
    return plain(numbers[0].astype(np.intp), numbers[1], float(distance))
