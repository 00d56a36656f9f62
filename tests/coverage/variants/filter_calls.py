"""Other calls of `scipy.signal`, `scipy.ndimage` and `scipy.interpolate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate as interpolate
import scipy.ndimage as ndimage
import scipy.signal as signal

from tests.coverage.cases import Case, call

RNG = np.random.default_rng(9)
X = RNG.normal(size=20)
K = RNG.normal(size=5)
A = RNG.normal(size=(6, 7))
W = RNG.normal(size=(3, 3))
T = RNG.normal(size=(2, 4, 5))
Z = RNG.normal(size=12) + 1j * RNG.normal(size=12)
SOS = signal.butter(4, 0.3, output="sos")
TIMES = np.cumsum(RNG.uniform(0.2, 1.0, 8))
Y = np.sin(TIMES)
Q = np.linspace(TIMES[0] + 0.03, TIMES[-1] - 0.05, 7)
PLACES = np.array([[0.7, 2.3, 4.1], [1.2, 3.9, 0.4]])


def first(function: Any, *arrays: Any, **options: Any) -> list[Case]:
    """Return the case of a function without second derivatives."""
    return call(function, *arrays, second=False, **options)


SIGNAL: dict[str, list[Case]] = {
    "convolve modes": first(
        lambda x, k: [
            signal.convolve(x, k, m, method)
            for m in ("full", "same", "valid")
            for method in ("direct", "fft")
        ],
        X,
        K,
    ),
    "convolve 2d": first(
        lambda a, w: [signal.convolve(a, w, mode="same"), signal.correlate(a, w, "valid")], A, W
    ),
    "convolve complex": first(lambda z, k: [signal.convolve(z, k), signal.correlate(z, k, "same")], Z, K),
    "fftconvolve axes": first(lambda a, b: signal.fftconvolve(a, b, mode="same", axes=1), A, A[:, :3]),
    "oaconvolve": first(lambda a, k: signal.oaconvolve(a, k[None], mode="full", axes=1), A, K),
    "convolve2d boundary": first(
        lambda a, w: [signal.convolve2d(a, w, "same", b, 0.3) for b in ("fill", "wrap", "symm")], A, W
    ),
    "correlate2d": first(lambda a, w: signal.correlate2d(a, w, "full", boundary="wrap"), A, W),
    "lfilter axis zi": first(
        lambda b, a, x: signal.lfilter(b, np.append(1.0, 0.1 * a), x, axis=0, zi=np.ones((2, 7)))[0],
        K[:3],
        K[3:],
        A,
    ),
    "lfilter complex": first(lambda z: signal.lfilter([1.0, 0.5j], [1.0, -0.3], z), Z),
    "sosfilt axis": first(lambda x: signal.sosfilt(SOS, x, axis=0), A),
    "filtfilt options": first(
        lambda x: [
            signal.filtfilt([0.3, 0.2], [1, -0.4], x, padtype=p, padlen=4)
            for p in ("even", "constant", "odd", None)
        ],
        X,
    ),
    "filtfilt gust": first(lambda x: signal.filtfilt([0.3, 0.2], [1, -0.4], x, method="gust"), X),
    "filtfilt axis": first(lambda a: signal.filtfilt([0.5, 0.5], 1, a, axis=0, padlen=2), A),
    "sosfiltfilt": first(lambda x: signal.sosfiltfilt(SOS[:1], x, padtype="even", padlen=6), X),
    "savgol": first(
        lambda a: [
            signal.savgol_filter(a, 5, 2, deriv=1, delta=0.3, axis=0, mode=m)
            for m in ("interp", "nearest", "wrap", "mirror", "constant")
        ],
        A,
    ),
    "decimate": first(
        lambda x: [signal.decimate(x, 2, n=4), signal.decimate(x, 2, ftype="fir", zero_phase=False)], X
    ),
    "resample": first(
        lambda a: [
            signal.resample(a, 9, axis=1),
            signal.resample(a, 5, window="hann"),
            signal.resample(a, 4, axis=0, domain="freq"),
        ],
        A,
    ),
    "resample t": first(lambda x: signal.resample(x, 30, np.arange(20.0))[0], X),
    "resample_poly": first(
        lambda a: [signal.resample_poly(a, 3, 2, axis=1, padtype=p) for p in ("constant", "line", "mean")], A
    ),
    "upfirdn": first(lambda k, a: signal.upfirdn(k, a, 3, 2, axis=0, mode="symmetric"), K, A),
    "hilbert": first(lambda a: [signal.hilbert(a, 8, axis=0), signal.hilbert2(a)], A),
    "envelope": first(lambda x: signal.envelope(x, (1, 6)), X),
    "detrend": first(lambda a: [signal.detrend(a, 0, "constant"), signal.detrend(a, bp=[3])], A),
    "welch options": first(
        lambda a: signal.welch(a, 2.0, "hamming", 4, 2, 8, "linear", scaling="spectrum", average="median")[1],
        A,
    ),
    "csd coherence": first(
        lambda x, y: [signal.csd(x, y, nperseg=8)[1], signal.coherence(x, y, nperseg=6)[1]], X, X[::-1] ** 2
    ),
    "periodogram": first(
        lambda x: signal.periodogram(x, window="hann", scaling="spectrum", return_onesided=False)[1], X
    ),
    "spectrogram": first(
        lambda x: [signal.spectrogram(x, nperseg=6, mode=m)[2] for m in ("psd", "complex", "magnitude")], X
    ),
    "stft istft": first(
        lambda x: signal.istft(
            signal.stft(x, nperseg=6, noverlap=4, boundary=None)[2], nperseg=6, noverlap=4
        )[1],
        X + 3,
    ),
    "stft axis padded": first(
        lambda a: signal.stft(a, nperseg=4, axis=0, padded=False, detrend="linear")[2], A
    ),
    "lombscargle": first(
        lambda y, f: signal.lombscargle(TIMES, y, f, normalize=True, floating_mean=True), Y, [0.7, 1.9]
    ),
    "czt zoom": first(
        lambda z: [signal.czt(z, 5, 0.9 + 0.1j, 1.1), signal.zoom_fft(z, [0.1, 0.5], 6, fs=2)], Z
    ),
    "butter types": first(
        lambda w: [
            signal.butter(3, [w, 0.6], "band"),
            signal.butter(2, w, "high", output="sos"),
            signal.butter(2, w, fs=3.0, output="zpk"),
        ],
        0.3,
    ),
    "cheby ellip": first(
        lambda r, w: [
            signal.cheby1(3, r, w),
            signal.cheby2(3, 30 * r, w, "highpass"),
            signal.ellip(3, r, 40, w),
        ],
        0.8,
        0.4,
        rtol=1e-4,
    ),
    "bessel": first(
        lambda w: [signal.bessel(3, w, norm=n) for n in ("phase", "delay", "mag")], 0.4, rtol=1e-4
    ),
    "freqz": first(
        lambda b, a: [
            signal.freqz(b, np.append(1.0, 0.1 * a), worN=5, whole=True)[1],
            signal.freqz(b, worN=np.array([0.1, 0.5]))[1],
        ],
        K,
        K[:2],
    ),
    "freqs sosfreqz": first(
        lambda b: [
            signal.freqs(b[:2], b[2:], [0.3, 1.0])[1],
            signal.freqz_zpk(b[:2], b[2:4], 1.3, worN=4)[1],
        ],
        K,
    ),
    "group_delay": first(lambda b: signal.group_delay((b, [1.0, 0.2]), w=4)[1], K),
    "firwin": first(
        lambda c: [
            signal.firwin(7, c),
            signal.firwin(7, [c, 0.7], pass_zero=False, window=("kaiser", 4.0), scale=False),
        ],
        0.3,
    ),
    "firwin2 firls": first(
        lambda g: [
            signal.firwin2(9, [0, 0.3, 1], np.array([1.0, 1.0, 0]) * g),
            signal.firls(7, [0, 0.3, 0.5, 1], np.array([1.0, 1.0, 0, 0]) * g),
        ],
        1.3,
    ),
    "zpk tf ss": first(
        lambda b: [
            signal.tf2zpk(b, [1.0, 0.3, 0.1])[2],
            signal.tf2ss(b[:3], [1.0, 0.5, 0.3]),
            signal.zpk2tf(b[:2], b[2:4], b[4]),
        ],
        K,
    ),
    "ss2tf": first(lambda a: signal.ss2tf(a[:2, :2], a[:2, 2:3], a[2:3, :2], a[3:4, 3:4]), A),
    "lsim step": first(
        lambda a: [
            signal.lsim(([1.0], [1.0, a, 2.0]), np.sin(np.arange(6.0)), 0.3 * np.arange(6.0))[1],
            signal.step(([1.0], [1.0, a]), T=np.arange(4.0))[1],
        ],
        0.8,
    ),
    "dlsim": first(lambda a: signal.dlsim(([1.0, 0.3], [1.0, a], 0.1), np.cos(np.arange(5.0)))[1], 0.4),
    "bode": first(lambda a: signal.bode(([1.0], [1.0, a, 2.0]), w=[0.5, 1.5])[1:], 0.8),
    "residue": first(lambda b: [np.sort_complex(signal.residue(b[:2], [1.0, 3.0, 1.0])[0])], K),
    "waveforms": first(
        lambda t, w: [
            signal.sawtooth(t, w),
            signal.gausspulse(t, fc=w, bw=0.4),
            signal.chirp(t, w, 1.0, 3.0, "quadratic", phi=20),
        ],
        X * 0.3 + 3,
        0.6,
    ),
    "medfilt": first(lambda a: [signal.medfilt(a, 3), signal.medfilt2d(a, [3, 5])], A),
    "order_filter wiener": first(
        lambda a: [signal.order_filter(a, np.ones((3, 3)), 2), signal.wiener(a, (3, 3), noise=0.2)], A
    ),
    "sepfir2d": first(lambda a, k: signal.sepfir2d(a, k, k[:3]), A, K),
    "splines": first(
        lambda a: [
            signal.cspline2d(a),
            signal.qspline1d_eval(signal.qspline1d(a[0]), np.array([0.7, 2.2])),
            signal.cspline1d(a[1], 0.5),
        ],
        np.pad(A, 5),
    ),
    "gauss_spline": first(lambda x: [signal.gauss_spline(x, 3)], X),
    "deconvolve": first(lambda x: signal.deconvolve(x, [1.0, 0.5, 0.2]), X),
    "find_peaks prominence": first(lambda x: x[signal.find_peaks(X)[0]] ** 2, X),
    "peak_prominences": first(lambda x: signal.peak_prominences(x, signal.find_peaks(X)[0])[0], X),
    "peak_widths": first(lambda x: signal.peak_widths(x, signal.find_peaks(X)[0], rel_height=0.6)[:2], X),
    "windows": first(
        lambda b: [
            signal.get_window(("kaiser", 3 * b), 7),
            signal.get_window(("gaussian", b), 6, fftbins=False),
            signal.windows.general_cosine(5, [0.5, b]),
            signal.windows.dpss(8, 2.5)[2] * b,
            signal.windows.chebwin(7, 40 + b),
            signal.windows.exponential(6, 2.0, b, False),
            signal.windows.taylor(6, sll=25 + b),
        ],
        1.3,
    ),
    "sos conversions": first(
        lambda z: [
            signal.zpk2sos([], z[:2] * 0.4, 0.7),
            signal.sos2tf(signal.tf2sos([1.0, 0.3], [1.0, 0.2, 0.05 * np.abs(z[0])])),
        ],
        K,
    ),
    "iirfilter notch": first(
        lambda w: [signal.iirnotch(w, 20.0), signal.iirpeak(w, 10.0), signal.iircomb(0.25, 20 * w)], 0.3
    ),
    "place": first(
        lambda p: signal.place_poles(np.array([[0.0, 1], [2, 3]]), np.array([[0.0], [1]]), p).gain_matrix,
        [-1.2, -2.3],
    ),
    "vectorstrength": first(lambda t: signal.vectorstrength(t, 1.3), TIMES),
    "ShortTimeFFT": first(lambda x: signal.ShortTimeFFT(signal.windows.hann(6), 3, 1.0).stft(x), X),
}

NDIMAGE: dict[str, list[Case]] = {
    "gaussian modes": first(
        lambda a: [
            ndimage.gaussian_filter(a, 1.3, mode=m, cval=0.4)
            for m in ("reflect", "constant", "nearest", "mirror", "wrap")
        ],
        A,
    ),
    "gaussian order sigma": first(
        lambda a, s: [
            ndimage.gaussian_filter(a, (s, 0.7), order=(1, 0)),
            ndimage.gaussian_filter1d(a, s, 0, 2, truncate=3.0),
            ndimage.gaussian_filter(a, s, radius=2, axes=(1,)),
        ],
        A,
        1.1,
    ),
    "correlate": first(
        lambda a, w: [
            ndimage.correlate(a, w, mode="wrap", origin=(1, -1)),
            ndimage.convolve(a, w, None, "mirror"),
            ndimage.convolve1d(a, w[0], 0, mode="constant", cval=1.2),
        ],
        A,
        W,
    ),
    "correlate even": first(lambda a, w: ndimage.correlate(a, w[:2], origin=-1), A, W),
    "uniform": first(
        lambda a: [
            ndimage.uniform_filter(a, (3, 4), mode="nearest", origin=(0, 1)),
            ndimage.uniform_filter1d(a, 3, axis=0, mode="wrap"),
        ],
        A,
    ),
    "derivatives": first(
        lambda a: [
            ndimage.sobel(a, 0, mode="wrap"),
            ndimage.prewitt(a),
            ndimage.laplace(a, mode="constant"),
            ndimage.gaussian_laplace(a, 1.2),
            ndimage.gaussian_gradient_magnitude(a, (1.0, 0.8)),
        ],
        A,
    ),
    "generic": first(
        lambda a: [
            ndimage.generic_laplace(
                a,
                lambda x, axis, output, mode, cval: ndimage.correlate1d(
                    x, [1, -2, 1], axis, output, mode, cval
                ),
            ),
            ndimage.generic_filter(a, np.var, 3),
        ],
        A,
    ),
    "morphology": first(
        lambda a: [
            ndimage.grey_dilation(a, (3, 3)),
            ndimage.grey_erosion(a, footprint=np.eye(3)),
            ndimage.grey_opening(a, structure=W),
            ndimage.white_tophat(a, 3, mode="nearest"),
            ndimage.morphological_gradient(a, (2, 3)),
        ],
        A,
    ),
    "ranks": first(
        lambda a: [
            ndimage.median_filter(a, (3, 1)),
            ndimage.percentile_filter(a, 30, 3, mode="wrap"),
            ndimage.rank_filter(a, 2, footprint=W > 0),
            ndimage.maximum_filter(a, 3, origin=1),
            ndimage.minimum_filter1d(a, 3, mode="constant", cval=-0.3),
        ],
        A,
    ),
    "map_coordinates orders": first(
        lambda a, c: [
            ndimage.map_coordinates(a, c, order=k, mode=m)
            for k in (1, 2, 3, 5)
            for m in ("reflect", "grid-wrap")
        ],
        A,
        PLACES,
    ),
    "map_coordinates prefilter": first(
        lambda a, c: [
            ndimage.map_coordinates(a, c, order=4, mode="mirror", prefilter=False),
            ndimage.map_coordinates(a, c, order=0),
        ],
        A,
        PLACES,
    ),
    "map_coordinates constant": first(
        lambda a, c: ndimage.map_coordinates(a, 1.7 * c, mode="constant", cval=0.4, order=1), A, PLACES
    ),
    "shift zoom": first(
        lambda a, s: [
            ndimage.shift(a, (s, -1.3), mode="nearest", order=2),
            ndimage.zoom(a, (1.5, 0.7), order=3, mode="mirror"),
            ndimage.zoom(a, 2, grid_mode=True, mode="grid-constant"),
        ],
        A,
        0.6,
    ),
    "rotate": first(
        lambda a: [
            ndimage.rotate(a, 25, reshape=False, order=1, mode="wrap"),
            ndimage.rotate(a, 33.0, mode="nearest"),
        ],
        A,
    ),
    "rotate in the angle": first(
        lambda a, t: ndimage.rotate(a, t, reshape=False, order=3, mode="reflect"), A, 25.3
    ),
    "affine": first(
        lambda a, m, o: [
            ndimage.affine_transform(a, m + np.eye(2) * 0.7, o, order=2, mode="reflect"),
            ndimage.affine_transform(a, [0.8, 1.1], 0.3, output_shape=(4, 4)),
        ],
        A,
        W[:2, :2] * 0.1,
        W[2, :2] * 0.5,
    ),
    "affine homogeneous": first(
        lambda a: ndimage.affine_transform(
            a, np.array([[0.9, 0.1, 0.3], [-0.1, 1.0, 0.2], [0, 0, 1]]), order=1
        ),
        A,
    ),
    "spline_filter": first(
        lambda a: [
            ndimage.spline_filter(a, 4, mode="wrap"),
            ndimage.spline_filter1d(a, 3, axis=0, mode="reflect"),
        ],
        A,
    ),
    "geometric": first(
        lambda a: ndimage.geometric_transform(a, lambda o: (o[0] * 0.9 + 0.2, o[1] + 0.1 * o[0]), order=2), A
    ),
    "fourier": first(
        lambda z: [
            ndimage.fourier_gaussian(z, 1.2),
            ndimage.fourier_shift(z, 0.7),
            ndimage.fourier_uniform(z, 3),
            ndimage.fourier_ellipsoid(z, 2.0),
        ],
        Z,
    ),
    "measurements": first(
        lambda a: [
            ndimage.mean(a, A > 0, 1),
            ndimage.variance(a, np.arange(42).reshape(6, 7) % 3, [0, 2]),
            ndimage.center_of_mass(a**2),
            ndimage.maximum(a, A > 0, [0, 1]),
            ndimage.median(a, A > 0),
            ndimage.sum_labels(a, A > 0, 1),
        ],
        A,
    ),
    "measurement positions": first(
        lambda a: [
            ndimage.extrema(a)[:2],
            ndimage.standard_deviation(a, A > 0),
            ndimage.labeled_comprehension(a, (A > 0).astype(int), [0, 1], np.mean, float, 0.0),
        ],
        A,
    ),
    "distance sampling": first(lambda a: a * ndimage.distance_transform_edt(A > 0, sampling=[1.0, 0.5]), A),
    "label constant": first(lambda a: a * ndimage.label(a > 0)[0], A),
    "3d": first(
        lambda t: [
            ndimage.gaussian_filter(t, 0.8),
            ndimage.shift(t, 0.4, order=1),
            ndimage.uniform_filter(t, 2),
        ],
        T,
    ),
    "complex": first(
        lambda z: [
            ndimage.gaussian_filter(z, 1.0),
            ndimage.map_coordinates(z, [[0.7, 2.4]]),
            ndimage.correlate1d(z, [1.0, 2.0j, 1.0]),
        ],
        Z,
    ),
}


GRID2 = (np.arange(6.0), np.arange(7.0) * 0.5)
SCATTERED = RNG.uniform(0, 1, (30, 2))
HEIGHTS = np.sin(3 * SCATTERED[:, 0]) * SCATTERED[:, 1] + SCATTERED[:, 0]
INNER = RNG.uniform(0.3, 0.7, (4, 2))
ROUGH = np.sin(np.arange(12.0)) + 0.3 * np.cos(7 * np.arange(12.0))
AT = np.linspace(0.3, 10.6, 6)

INTERPOLATE: dict[str, list[Case]] = {
    "CubicSpline axis": first(
        lambda a, q: interpolate.CubicSpline(TIMES[:6], a, 0, "clamped")(q, nu=1), A, Q[:3]
    ),
    "CubicSpline extrapolate": first(
        lambda y: [
            interpolate.CubicSpline(TIMES, y, extrapolate=False)(Q),
            interpolate.CubicSpline(TIMES, y)(TIMES[-1] + 0.7),
            interpolate.CubicSpline(TIMES, y).antiderivative()(Q),
        ],
        Y,
    ),
    "CubicSpline complex": first(lambda y: interpolate.CubicSpline(TIMES, y + 1j * y**2)(Q), Y),
    "Pchip": first(
        lambda x, y: [
            interpolate.PchipInterpolator(x, y, axis=0)(Q),
            interpolate.PchipInterpolator(x, y).derivative()(Q),
            interpolate.PchipInterpolator(x, y).integrate(TIMES[0], Q[3]),
        ],
        TIMES,
        Y,
    ),
    "Akima": first(lambda y: interpolate.Akima1DInterpolator(TIMES, y, extrapolate=True)(Q + 0.2), Y),
    "Hermite BPoly": first(
        lambda y: [
            interpolate.BPoly.from_derivatives(TIMES, list(np.stack([y, y**2], 1)), orders=3)(Q),
            interpolate.BPoly.from_power_basis(interpolate.CubicSpline(TIMES, y))(Q),
        ],
        Y,
    ),
    "BSpline methods": first(
        lambda c: [
            interpolate.BSpline(np.arange(12.0), c, 3)(Q + 3, extrapolate=False),
            interpolate.BSpline(np.arange(12.0), c, 3).antiderivative()(Q + 2),
            interpolate.BSpline.design_matrix([4.2, 5.1], np.arange(12.0), 3).toarray() @ c,
        ],
        Y,
    ),
    "make_interp_spline": first(
        lambda y: [
            interpolate.make_interp_spline(TIMES, y, k=5)(Q),
            interpolate.make_interp_spline(TIMES, y, bc_type=([(1, 0.3)], [(2, 0.0)]))(Q),
            interpolate.make_interp_spline(TIMES, y, k=1)(Q),
            interpolate.make_interp_spline(TIMES, y, bc_type="clamped")(Q),
        ],
        Y,
    ),
    "make_lsq_spline": first(
        lambda y, w: interpolate.make_lsq_spline(
            TIMES, y, np.r_[[TIMES[0]] * 3, TIMES[4], [TIMES[-1]] * 3], 2, w=w
        )(Q),
        np.stack([Y, Y**2], 1),
        1 + Y**2,
    ),
    "make_smoothing_spline": first(
        lambda y, w, lam: interpolate.make_smoothing_spline(TIMES, y, w, lam)(Q), Y, 1 + Y**2, 0.4
    ),
    "splrep t w": first(
        lambda y, w: interpolate.splev(Q, interpolate.splrep(TIMES, y, w, t=[TIMES[3]], task=-1, k=3)),
        Y,
        1 + Y**2,
    ),
    "splrep smoothing": first(
        lambda y, q: interpolate.splev(q, interpolate.splrep(np.arange(12.0), y, s=0.4)), ROUGH, AT, rtol=2e-2
    ),
    "splrep large s": first(
        lambda y: interpolate.splev(AT, interpolate.splrep(np.arange(12.0), y, s=50.0), der=1, ext=1), ROUGH
    ),
    "UnivariateSpline default": first(
        lambda y, q: interpolate.UnivariateSpline(np.arange(12.0), y)(q), ROUGH, AT, rtol=2e-2
    ),
    "UnivariateSpline s": first(
        lambda y: interpolate.UnivariateSpline(np.arange(12.0), y, k=4, s=0.3)(AT, nu=1), ROUGH, rtol=5e-2
    ),
    "UnivariateSpline weights": first(
        lambda y, w: interpolate.UnivariateSpline(np.arange(12.0), y, w=w, k=2, s=4.0)(AT),
        ROUGH,
        1 + 0.1 * ROUGH**2,
        rtol=2e-2,
    ),
    "UnivariateSpline methods": first(
        lambda y: [
            interpolate.UnivariateSpline(np.arange(12.0), y, s=0).derivative(2)(AT),
            interpolate.UnivariateSpline(np.arange(12.0), y, s=0).integral(0.4, 3.3),
            interpolate.UnivariateSpline(np.arange(12.0), y, s=0).derivatives(2.2),
            interpolate.UnivariateSpline(np.arange(12.0), y, s=0, ext=3)([-2.0, 20.0]),
        ],
        ROUGH,
    ),
    "UnivariateSpline residual": first(
        lambda y: interpolate.UnivariateSpline(np.arange(12.0), y, s=30.0).get_residual(), ROUGH
    ),
    "LSQUnivariateSpline": first(
        lambda y, w: interpolate.LSQUnivariateSpline(TIMES, y, [TIMES[3]], w, k=2)(Q), Y, 1 + Y**2
    ),
    "interp1d": first(
        lambda y: [
            interpolate.interp1d(TIMES, y, k, bounds_error=False, fill_value=(0.3, 0.4))(np.append(Q, 99.0))
            for k in ("linear", "cubic", "nearest-up", "next", "slinear", 2)
        ],
        Y,
    ),
    "interp1d axis": first(
        lambda a, q: interpolate.interp1d(GRID2[0], a, axis=0, kind="quadratic")(q), A, [0.3, 2.2]
    ),
    "interpn nearest splinef2d": first(
        lambda v, q: [
            interpolate.interpn(GRID2, v, q, "splinef2d"),
            interpolate.interpn(GRID2, v, q * 9, bounds_error=False, fill_value=None),
        ],
        A,
        PLACES.T * 0.7,
    ),
    "SmoothBivariateSpline": first(
        lambda z, q: interpolate.SmoothBivariateSpline(*SCATTERED.T, z)(q, q, grid=False), HEIGHTS, [0.3, 0.6]
    ),
    "SmoothBivariateSpline weights": first(
        lambda z, w: interpolate.SmoothBivariateSpline(*SCATTERED.T, z, w=w, kx=2, ky=2)(
            *INNER.T, grid=False
        ),
        HEIGHTS,
        1 + HEIGHTS**2,
    ),
    "LSQBivariateSpline": first(
        lambda z: interpolate.LSQBivariateSpline(*SCATTERED.T, z, [0.5], [0.5], kx=1, ky=2)(
            *INNER.T, grid=False
        ),
        HEIGHTS,
    ),
    "bisplrep": first(
        lambda z: interpolate.bisplev([0.3, 0.6], [0.2, 0.5], interpolate.bisplrep(*SCATTERED.T, z)), HEIGHTS
    ),
    "LinearND rescale": first(
        lambda v: interpolate.LinearNDInterpolator(SCATTERED, np.stack([v, v**2], 1), rescale=True)(INNER),
        HEIGHTS,
    ),
    "RBF": first(
        lambda v, e: [
            interpolate.RBFInterpolator(SCATTERED, v, kernel=k, epsilon=e, degree=1)(INNER)
            for k in ("multiquadric", "cubic", "inverse_quadratic", "linear")
        ],
        HEIGHTS,
        1.3,
        rtol=1e-4,
    ),
    "RBF neighbors": first(lambda v: interpolate.RBFInterpolator(SCATTERED, v, neighbors=8)(INNER), HEIGHTS),
    "barycentric krogh": first(
        lambda y, q: [
            interpolate.BarycentricInterpolator(TIMES[:5], y[:5], rng=1)(q),
            interpolate.KroghInterpolator(TIMES[:5], y[:5]).derivative(q, 2),
            interpolate.lagrange(TIMES[:3], y[:3])(q),
        ],
        Y,
        Q[:3],
    ),
    "FloaterHormann": first(lambda y, q: interpolate.FloaterHormannInterpolator(TIMES, y, d=2)(q), Y, Q),
    "sproot": first(lambda y: interpolate.sproot(interpolate.splrep(TIMES, y)), Y, rtol=1e-4),
    "make_splrep smooth": first(
        lambda y: interpolate.make_splrep(np.arange(12.0), y, s=0.5)(AT), ROUGH, rtol=2e-2
    ),
    "splprep": first(
        lambda x, y: interpolate.splev([0.3, 0.7], interpolate.splprep([x, y], s=0, k=3)[0]), TIMES, Y
    ),
    "splprep smooth": first(
        lambda y: interpolate.splev(
            [0.3, 0.7], interpolate.splprep([np.arange(12.0), y], s=0.5, u=np.linspace(0, 1, 12))[0]
        ),
        ROUGH,
        rtol=2e-2,
    ),
    "pade taylor": first(
        lambda c: [
            interpolate.pade(c[:5] + 2, 2)[0](0.3),
            interpolate.pchip_interpolate(TIMES, c, Q, der=[0, 1]),
        ],
        Y,
    ),
    "NdPPoly NdBSpline": first(
        lambda c: interpolate.NdBSpline((np.arange(8.0), np.arange(9.0)), c[:4, :5], 3)(
            np.array([[3.3, 3.8], [4.1, 4.4]])
        ),
        A,
    ),
}

CALLS = {"scipy.signal": SIGNAL, "scipy.ndimage": NDIMAGE, "scipy.interpolate": INTERPOLATE}
