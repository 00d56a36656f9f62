"""The functions and classes of `scipy.signal` and `scipy.signal.windows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.signal as signal

from tests.coverage.cases import Case, Namespace, call, public_functions

K = np.arange(24.0)
X = np.sin(0.7 * K) + 0.3 * np.cos(2.1 * K + 0.4)
Y = np.cos(0.5 * K + 0.2) + 0.1 * np.sin(1.9 * K)
LONG = np.sin(0.31 * np.arange(80.0)) + 0.4 * np.cos(1.3 * np.arange(80.0) + 0.7)
IMAGE = np.sin(1.7 * np.arange(30.0) + 0.2).reshape(5, 6) + 0.1 * np.arange(30.0).reshape(5, 6)
SQUARE = np.sin(0.7 * np.arange(26 * 27.0)).reshape(26, 27)
H = np.array([0.7, -0.4, 0.25, 0.1, -0.3])
KERNEL = np.array([[0.2, -0.4, 0.7], [1.1, 0.3, -0.2]])
B, A = np.array([0.4, 0.5, 0.1]), np.array([1.1, -0.5, 0.3])
Z, P = np.array([-0.3, 0.6]), np.array([0.5 + 0.3j, 0.5 - 0.3j])
SOS = np.array([[0.2, 0.3, 0.1, 1.0, -0.5, 0.3], [0.5, -0.1, 0.2, 1.0, 0.2, 0.1]])
FIVE = np.ascontiguousarray(SOS[:, [0, 1, 2, 4, 5]])
W = np.array([0.2, 0.9, 1.7, 2.6])
MATRICES = (
    np.array([[-0.5, 0.2], [-0.3, -0.8]]),
    np.array([[1.0], [0.4]]),
    np.array([[0.7, -0.2]]),
    np.array([[0.1]]),
)
T = np.linspace(0.0, 2.0, 9)


def first(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the case of a function without second derivatives."""
    return call(function, *arrays, second=False)


def designed(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the cases of a design of filters: coefficients, zeros and poles, and sections."""
    return [
        *call(lambda *a: function(*a, output="ba"), *arrays),
        *first(lambda *a: function(*a, output="zpk"), *arrays),
        *first(lambda *a: function(*a, output="sos"), *arrays),
    ]


def sections(numbers: Any) -> Any:
    """Return second-order sections of the five coefficients of each."""
    ones = np.ones((numbers.shape[0], 1))
    return np.ascontiguousarray(np.concatenate([numbers[:, :3], ones, numbers[:, 3:]], axis=1))


def pair(poles: Any) -> Any:
    """Return complex numbers with their conjugates."""
    return np.concatenate([poles, np.conj(poles)])


def stft_and_back(transform: Any, x: Any) -> Any:
    return transform.istft(transform.stft(x) ** 2)


CASES: dict[str, list[Case]] = {
    # convolution
    "convolve": [
        *call(signal.convolve, X, H),
        *first(lambda a, b: signal.convolve(a, b, "same", "fft"), X, H),
        *first(lambda a, b: signal.convolve(a, b, "valid"), IMAGE, KERNEL),
    ],
    "correlate": [
        *call(signal.correlate, X, H),
        *first(lambda a, b: signal.correlate(a, b, "same", "fft"), X, H),
        *first(lambda a, b: signal.correlate(a, b, "valid"), IMAGE, KERNEL),
    ],
    "fftconvolve": [
        *call(signal.fftconvolve, X, H),
        *first(lambda a, b: signal.fftconvolve(a, b, "same"), IMAGE, KERNEL),
        *first(lambda a, b: signal.fftconvolve(a, b, "valid", axes=1), IMAGE, IMAGE[:, :3]),
    ],
    "oaconvolve": [
        *call(signal.oaconvolve, LONG, H),
        *first(lambda a, b: signal.oaconvolve(a, b, "same"), X, H),
    ],
    "convolve2d": [
        *call(signal.convolve2d, IMAGE, KERNEL),
        *first(lambda a, b: signal.convolve2d(a, b, "same", "symm"), IMAGE, KERNEL),
        *first(lambda a, b: signal.convolve2d(a, b, "full", "wrap"), IMAGE, KERNEL),
    ],
    "correlate2d": [
        *call(signal.correlate2d, IMAGE, KERNEL),
        *first(lambda a, b: signal.correlate2d(a, b, "same", "fill", 0.3), IMAGE, KERNEL),
    ],
    "sepfir2d": call(signal.sepfir2d, IMAGE, H, H[:3]),
    "upfirdn": [
        *call(lambda h, x: signal.upfirdn(h, x, 3, 2), H, X),
        *first(lambda h, x: signal.upfirdn(h, x, 2, mode="smooth"), H, X),
    ],
    # filtering
    "order_filter": first(lambda a: signal.order_filter(a, np.ones((3, 3)), 4), IMAGE),
    "medfilt": first(lambda a: signal.medfilt(a, 3), X),
    "medfilt2d": first(lambda a: signal.medfilt2d(a, 3), IMAGE),
    "wiener": [
        *first(lambda a: signal.wiener(a, 3), X),
        *first(lambda a, n: signal.wiener(a, 3, n), IMAGE, 0.1),
    ],
    "symiirorder1": first(lambda a, c, z: signal.symiirorder1(a, c, z), X, 0.3, 0.25),
    "symiirorder2": first(lambda a, r, w: signal.symiirorder2(a, r, w), X, 0.3, 0.4),
    "lfilter": [
        *call(signal.lfilter, B, A, X),
        *first(
            lambda b, a, x, z: signal.lfilter(b, a, x, axis=0, zi=z),
            B,
            A,
            IMAGE,
            np.cos(np.arange(12.0)).reshape(2, 6),
        ),
        *first(lambda b, x: signal.lfilter(b, 1.0, x), H, X),
    ],
    "lfiltic": call(signal.lfiltic, B, A, [0.3, -0.2], [0.7, 0.1]),
    "lfilter_zi": call(signal.lfilter_zi, B, A),
    "filtfilt": [
        *call(lambda b, a, x: signal.filtfilt(b, a, x), B, A, X),
        *first(lambda b, a, x: signal.filtfilt(b, a, x, padtype="even", padlen=5), B, A, X),
        *first(lambda b, a, x: signal.filtfilt(b, a, x, method="gust", irlen=12), B, A, X),
        *first(lambda b, a, x: signal.filtfilt(b, a, x, padtype=None, axis=0), B, A, IMAGE),
    ],
    "deconvolve": call(lambda a, b: signal.deconvolve(a, b), X[:8], B),
    "sosfilt": [
        *call(lambda s, x: signal.sosfilt(sections(s), x), FIVE, X),
        *first(lambda x, z: signal.sosfilt(SOS, x, zi=z), X, 0.1 * np.ones((2, 2))),
    ],
    "sosfilt_zi": call(lambda s: signal.sosfilt_zi(sections(s)), FIVE),
    "sosfiltfilt": [
        *call(lambda s, x: signal.sosfiltfilt(sections(s), x), FIVE, X),
        *first(lambda x: signal.sosfiltfilt(SOS, x, padtype="constant", padlen=4), X),
    ],
    "hilbert": [*call(signal.hilbert, X), *first(lambda a: signal.hilbert(a, 30), X)],
    "hilbert2": call(signal.hilbert2, IMAGE),
    "envelope": [
        *call(lambda a: signal.envelope(a), X),
        *first(lambda a: signal.envelope(a, (1, 6), squared=True), X),
    ],
    "decimate": [
        *call(lambda a: signal.decimate(a, 2), LONG),
        *first(lambda a: signal.decimate(a, 3, ftype="fir"), LONG),
    ],
    "detrend": [
        *call(signal.detrend, X),
        *first(lambda a: signal.detrend(a, type="constant"), IMAGE),
        *first(lambda a: signal.detrend(a, bp=[7]), X),
    ],
    "resample": [
        *call(lambda a: signal.resample(a, 17), X),
        *first(lambda a: signal.resample(a, 30, window="hann"), X),
        *first(lambda a: signal.resample(a, 11, axis=1)[0], IMAGE),
    ],
    "resample_poly": [
        *call(lambda a: signal.resample_poly(a, 3, 2), X),
        *first(lambda a: signal.resample_poly(a, 2, 3, padtype="line", window=("kaiser", 4.0)), X),
    ],
    "savgol_filter": [
        *call(lambda a: signal.savgol_filter(a, 5, 2), X),
        *first(lambda a, d: signal.savgol_filter(a, 7, 3, deriv=1, delta=d, mode="wrap"), X, 0.3),
        *first(lambda a: signal.savgol_filter(a, 4, 2, mode="mirror"), X),
    ],
    "savgol_coeffs": call(lambda d: signal.savgol_coeffs(5, 2, deriv=1, delta=d), 0.3),
    # splines
    "gauss_spline": call(lambda a: signal.gauss_spline(a, 3), X),
    "cspline1d": [*call(signal.cspline1d, X), *first(lambda a, lamb: signal.cspline1d(a, lamb), X, 0.3)],
    "qspline1d": call(signal.qspline1d, X),
    "cspline2d": first(lambda a: signal.cspline2d(a), SQUARE),
    "qspline2d": first(lambda a: signal.qspline2d(a), SQUARE),
    "cspline1d_eval": call(lambda c, t: signal.cspline1d_eval(c, t), X, [0.3, 4.4, 19.2]),
    "qspline1d_eval": call(lambda c, t: signal.qspline1d_eval(c, t), X, [0.3, 4.4, 19.2]),
    "spline_filter": first(lambda a: signal.spline_filter(a, 0.0), SQUARE),
    # design of filters
    "bilinear": [*call(lambda b, a, fs: signal.bilinear(b, a, fs), B, A, 1.3), *first(signal.bilinear, H, A)],
    "bilinear_zpk": call(lambda z, p, k, fs: signal.bilinear_zpk(z, p, k, fs), Z, P, 0.7, 1.3),
    "findfreqs": first(lambda b, a: signal.findfreqs(b, a, 5), B, A),
    "firls": call(lambda f, d: signal.firls(7, [0.0, f, 0.5, 1.0], d), 0.3, [1.0, 1.0, 0.1, 0.2]),
    "firwin": [
        *call(lambda c: signal.firwin(9, c), 0.3),
        *first(lambda c: signal.firwin(9, c, pass_zero=False, window="blackman", fs=3.0), [0.3, 0.7]),
        *first(lambda c, w: signal.firwin(9, c, width=w), 0.3, 0.4),
    ],
    "firwin2": call(lambda f, g: signal.firwin2(9, [0.0, f, 1.0], g, nfreqs=17), 0.4, [1.0, 0.7, 0.0]),
    "firwin_2d": first(lambda f: signal.firwin_2d((3, 5), (("kaiser", 5.0), ("kaiser", 5.0)), fc=f), 0.4),
    "freqs": [
        *call(lambda b, a: signal.freqs(b, a, W)[1], B, A),
        *first(lambda b, w: signal.freqs(b, A, w)[1], B, W),
    ],
    "freqs_zpk": call(lambda z, p, k, w: signal.freqs_zpk(z, p, k, w)[1], Z, P, 0.7, W),
    "freqz": [
        *call(lambda b, a: signal.freqz(b, a, 8)[1], B, A),
        *first(lambda b, a, w: signal.freqz(b, a, w)[1], B, A, W),
        *first(lambda b: signal.freqz(b, worN=7, whole=True)[1], H),
    ],
    "freqz_sos": call(lambda s: signal.freqz_sos(sections(s), 8)[1], FIVE),
    "sosfreqz": first(lambda s: signal.sosfreqz(sections(s), 8)[1], FIVE),
    "freqz_zpk": call(lambda z, p, k, w: signal.freqz_zpk(z, p, k, w)[1], Z, P, 0.7, W),
    "gammatone": [
        *first(lambda f: signal.gammatone(f, "iir", fs=16.0), 3.0),
        *first(lambda f: signal.gammatone(f, "fir", numtaps=8, fs=16.0), 3.0),
    ],
    "group_delay": call(lambda b, a: signal.group_delay((b, a), W)[1], B, A),
    "iirdesign": first(lambda w: signal.iirdesign(w, 0.6, 1, 40), 0.2),
    "iirfilter": designed(
        lambda w, **o: signal.iirfilter(3, w, btype="band", ftype="butter", **o), [0.2, 0.5]
    ),
    "kaiser_atten": call(lambda w: signal.kaiser_atten(21, w), 0.2),
    "kaiser_beta": call(signal.kaiser_beta, 40.0),
    "kaiserord": first(lambda r: signal.kaiserord(r, 0.3)[1], 40.0),
    "minimum_phase": first(
        lambda h: signal.minimum_phase(np.concatenate([h, h[-2::-1]]), n_fft=64), [0.1, 0.25, 0.6]
    ),
    "place_poles": first(lambda a: signal.place_poles(a, MATRICES[1], [-1.0, -2.0]).gain_matrix, MATRICES[0]),
    "butter": [
        *designed(lambda w, **o: signal.butter(3, w, **o), 0.3),
        *first(lambda w: signal.butter(2, w, "bandpass", fs=4.0), [0.3, 0.9]),
        *first(lambda w: signal.butter(2, w, "highpass", analog=True), 0.3),
    ],
    "cheby1": designed(lambda r, w, **o: signal.cheby1(3, r, w, **o), 0.5, 0.3),
    "cheby2": designed(lambda r, w, **o: signal.cheby2(3, r, w, **o), 30.0, 0.3),
    "ellip": designed(lambda w, **o: signal.ellip(3, 0.5, 30.0, w, **o), 0.3),
    "bessel": designed(lambda w, **o: signal.bessel(3, w, **o), 0.3),
    "buttord": first(lambda w, r: signal.buttord(w, 0.4, r, 30.0)[1], 0.2, 1.0),
    "cheb1ord": first(lambda w, r: signal.cheb1ord(w, 0.4, r, 30.0)[1], 0.2, 1.0),
    "cheb2ord": first(lambda w, r: signal.cheb2ord(w, 0.4, r, 30.0)[1], 0.2, 1.0),
    "ellipord": first(lambda w, r: signal.ellipord(w, 0.4, r, 30.0)[1], 0.2, 1.0),
    "iirnotch": call(lambda w, q: signal.iirnotch(w, q), 0.3, 12.0),
    "iirpeak": call(lambda w, q: signal.iirpeak(w, q), 0.3, 12.0),
    "iircomb": call(lambda q: signal.iircomb(0.25, q), 12.0),
    "cheb1ap": call(lambda r: signal.cheb1ap(3, r), 0.5),
    "cheb2ap": call(lambda r: signal.cheb2ap(3, r), 30.0),
    "ellipap": first(lambda r: signal.ellipap(3, r, 30.0), 0.5),
    "band_stop_obj": first(
        lambda w, s, g: signal.band_stop_obj(w, 0, np.array([0.2, 0.8]), s, g, 40.0, "cheby"),
        0.25,
        [0.35, 0.6],
        1.0,
    ),
    # conversions
    **{
        name: first(getattr(signal, name), B, A, *frequencies)
        for name, frequencies in {
            "lp2lp": (1.3,),
            "lp2hp": (1.3,),
            "lp2bp": (1.3, 0.4),
            "lp2bs": (1.3, 0.4),
        }.items()
    },
    **{
        name: first(lambda z, p, *f, name=name: getattr(signal, name)(z, p, *f), Z, P, 0.7, *frequencies)
        for name, frequencies in {
            "lp2lp_zpk": (1.3,),
            "lp2hp_zpk": (1.3,),
            "lp2bp_zpk": (1.3, 0.4),
            "lp2bs_zpk": (1.3, 0.4),
        }.items()
    },
    "tf2zpk": first(lambda b, a: signal.tf2zpk(b, a), B, A),
    "tf2sos": first(lambda b, a: signal.tf2sos(b, a), B, A),
    "tf2ss": call(lambda b, a: signal.tf2ss(b, a), B, A),
    "zpk2tf": call(lambda z, p, k: signal.zpk2tf(z, pair(p), k), Z, P[:1], 0.7),
    "zpk2sos": [
        *first(lambda z, p, k: signal.zpk2sos(z, pair(p), k), Z, P[:1], 0.7),
        *first(lambda z, p: signal.zpk2sos(z, p, 0.7, pairing="keep_odd"), Z[:1], [0.3, -0.4, 0.6]),
    ],
    "zpk2ss": first(lambda z, p, k: signal.zpk2ss(z, pair(p), k), Z, P[:1], 0.7),
    "ss2tf": first(lambda *m: signal.ss2tf(*m), *MATRICES),
    "ss2zpk": first(lambda *m: signal.ss2zpk(*m), *MATRICES),
    "sos2zpk": first(lambda s: signal.sos2zpk(sections(s)), FIVE),
    "sos2tf": call(lambda s: signal.sos2tf(sections(s)), FIVE),
    "cont2discrete": [
        *[
            found
            for method in ("zoh", "foh", "bilinear", "euler", "backward_diff", "impulse")
            for found in first(
                lambda a, b, c, dt, method=method: signal.cont2discrete(
                    (a, b, c, np.zeros((1, 1))), dt, method
                )[:4],
                *MATRICES[:3],
                0.3,
            )
        ],
        *first(lambda b, a, dt: signal.cont2discrete((b, a), dt)[:2], B, A, 0.3),
    ],
    "abcd_normalize": call(lambda *m: signal.abcd_normalize(*m), *MATRICES),
    "normalize": call(lambda b, a: signal.normalize(b, a), B, A),
    "residue": first(lambda b, a: signal.residue(b, a)[:2], B[:2], A),
    "residuez": first(lambda b, a: signal.residuez(b, a)[:2], B[:2], A),
    "invres": first(lambda r, p: signal.invres(r, p, []), [0.3, -0.2], [0.5, -0.4]),
    "invresz": first(lambda r, p: signal.invresz(r, p, []), [0.3, -0.2], [0.5, -0.4]),
    "unique_roots": first(lambda p: signal.unique_roots(p)[0], [0.3, 1.2, 2.0]),
    # linear systems
    **{
        name: [
            *first(lambda *m, name=name: getattr(signal, name)(m, T=T)[1], *MATRICES),
            *first(lambda b, a, name=name: getattr(signal, name)((b, a), T=T)[1], B, A),
        ]
        for name in ("impulse", "step")
    },
    "lsim": [
        *first(lambda a, b, c, d, u: signal.lsim((a, b, c, d), u, T)[1:], *MATRICES, np.cos(T)),
        *first(lambda b, a, u: signal.lsim((b, a), u, T, interp=False)[1], B, A, np.cos(T)),
        *first(lambda u, x: signal.lsim(MATRICES, u, T, X0=x)[1], np.cos(T), [0.3, 0.1]),
    ],
    "dlsim": [
        *first(lambda a, b, c, d, u: signal.dlsim((a, b, c, d, 0.5), u)[1:], *MATRICES, np.cos(T)),
        *first(lambda b, a, u: signal.dlsim((b, a, 0.5), u)[1], B, A, np.cos(T)),
    ],
    "dimpulse": first(lambda b, a: signal.dimpulse((b, a, 0.5), n=6)[1], B, A),
    "dstep": first(lambda *m: signal.dstep((*m, 0.5), n=6)[1], *MATRICES),
    "freqresp": first(lambda b, a: signal.freqresp((b, a), W)[1], B, A),
    "bode": first(lambda b, a: signal.bode((b, a), W)[1:], B, A),
    "dfreqresp": first(lambda b, a: signal.dfreqresp((b, a, 0.5), W)[1], B, A),
    "dbode": first(lambda b, a: signal.dbode((b, a, 0.5), W)[1:], B, A),
    "lti": [
        *first(lambda b, a: signal.lti(b, a).step(T=T)[1], B, A),
        *first(lambda b, a: signal.lti(b, a).to_ss().A, B, A),
    ],
    "dlti": first(lambda b, a: signal.dlti(b, a, dt=0.5).freqresp(W)[1], B, A),
    "StateSpace": [
        *first(lambda a, b, c, d: signal.StateSpace(a, b, c, d).impulse(T=T)[1], *MATRICES),
        *first(
            lambda a, b, c, d: (signal.StateSpace(a, b, c, d) * signal.StateSpace(a, b, c, d)).A, *MATRICES
        ),
    ],
    "TransferFunction": [
        *first(lambda b, a: signal.TransferFunction(b, a).freqresp(W)[1], B, A),
        *first(lambda b, a: signal.TransferFunction(b, a).to_zpk().poles, B, A),
    ],
    "ZerosPolesGain": [
        *first(lambda z, p, k: signal.ZerosPolesGain(z, pair(p), k).to_tf().num, Z, P[:1], 0.7),
        *first(lambda z, p: signal.ZerosPolesGain(z, p, 0.7).freqresp(W)[1], Z, [-0.4, -0.6]),
    ],
    # waves
    "chirp": [
        *[
            found
            for method in ("linear", "quadratic", "logarithmic", "hyperbolic")
            for found in call(lambda t, f, g, method=method: signal.chirp(t, f, 2.0, g, method), T, 1.3, 2.2)
        ]
    ],
    "gausspulse": call(lambda t, f: signal.gausspulse(t, f, retquad=True, retenv=True), T, 1.3),
    "sawtooth": [
        *first(lambda t: signal.sawtooth(t), X * 3),
        *first(lambda t, w: signal.sawtooth(t, w), X * 3, 0.4),
    ],
    "sweep_poly": [
        *call(lambda t: signal.sweep_poly(t, [0.1, -0.3, 1.0]), T),
        *first(lambda t, p: signal.sweep_poly(t, p), T, [0.1, -0.3, 1.0]),
    ],
    # spectra
    "periodogram": [
        *call(lambda x: signal.periodogram(x)[1], X),
        *first(lambda x, fs: signal.periodogram(x, fs, "hann", scaling="spectrum")[1], X, 2.0),
    ],
    "welch": [
        *call(lambda x: signal.welch(x, nperseg=8)[1], X),
        *first(lambda x: signal.welch(x, nperseg=8, detrend="linear", average="median")[1], X),
    ],
    "csd": first(lambda x, y: signal.csd(x, y, nperseg=8)[1], X, Y),
    "coherence": first(lambda x, y: signal.coherence(x, y, nperseg=8)[1], X, Y),
    "spectrogram": [
        *call(lambda x: signal.spectrogram(x, nperseg=8)[2], X),
        *first(lambda x: signal.spectrogram(x, nperseg=8, mode="magnitude")[2], X),
        *first(lambda x: signal.spectrogram(x, nperseg=8, mode="complex")[2], X),
    ],
    "stft": [
        *call(lambda x: signal.stft(x, nperseg=8)[2], X),
        *first(lambda x: signal.stft(x, nperseg=8, padded=False, boundary=None, detrend="constant")[2], X),
    ],
    "istft": call(lambda z: signal.istft(z, nperseg=8)[1], signal.stft(X, nperseg=8)[2]),
    "lombscargle": [
        *first(lambda t, x, w: signal.lombscargle(t, x, w), K + 0.1 * X, X, [0.5, 0.9]),
        *first(lambda x: signal.lombscargle(K, x, [0.5, 0.9], normalize=True, floating_mean=True), X),
    ],
    "vectorstrength": call(lambda e: signal.vectorstrength(e, 2.1), T + 0.1),
    "closest_STFT_dual_window": first(
        lambda w: signal.closest_STFT_dual_window(w, 2)[0], 1.5 + np.cos(K[:8])
    ),
    "ShortTimeFFT": [
        *first(lambda x, w: signal.ShortTimeFFT(w, 4, 1.0).stft(x), X, 1.0 + 0.3 * np.cos(K[:8])),
        *first(lambda x: signal.ShortTimeFFT(np.ones(8), 4, 1.0).spectrogram(x), X),
        *first(lambda x: np.real(stft_and_back(signal.ShortTimeFFT(np.hanning(9)[:8] + 0.1, 4, 1.0), x)), X),
    ],
    "czt": [
        *call(lambda x: signal.czt(x), X[:8]),
        *first(lambda x: signal.czt(x, 5, np.exp(-0.3j), 0.9 + 0.1j), X[:8]),
        *first(lambda x, a: signal.czt(x, 5, a=a), X[:8], 0.9 + 0.1j),
    ],
    "czt_points": first(lambda w, a: signal.czt_points(5, w, a), np.exp(-0.3j), 0.9 + 0.1j),
    "zoom_fft": [
        *call(lambda x: signal.zoom_fft(x, [0.2, 0.7], 5), X[:8]),
        *first(lambda x, f: signal.zoom_fft(x, f, 5), X[:8], [0.2, 0.7]),
    ],
    "CZT": first(lambda x: signal.CZT(8, 5, np.exp(-0.3j))(x), X[:8]),
    "ZoomFFT": first(lambda x: signal.ZoomFFT(8, [0.2, 0.7], 5)(x), X[:8]),
    # peaks
    "find_peaks": first(lambda x: signal.find_peaks(x, height=0.1)[1]["peak_heights"], X),
    "peak_prominences": first(lambda x: signal.peak_prominences(x, signal.find_peaks(X)[0])[0], X),
    "peak_widths": first(lambda x: signal.peak_widths(x, signal.find_peaks(X)[0])[0], X),
}


CONSTANT: dict[str, list[Case]] = {
    "argrelextrema": call(lambda x: signal.argrelextrema(x, np.greater)[0], X),
    "argrelmax": call(lambda x: signal.argrelmax(x)[0], X),
    "argrelmin": call(lambda x: signal.argrelmin(x)[0], X),
    "find_peaks_cwt": call(lambda x: signal.find_peaks_cwt(x, [2, 3]), X),
    "square": call(lambda t, d: signal.square(t, d), X * 3, 0.4),
    "check_COLA": call(lambda w: signal.check_COLA(w, 8, 4), 1.0 + np.cos(K[:8])),
    "check_NOLA": call(lambda w: signal.check_NOLA(w, 8, 4), 1.0 + np.cos(K[:8])),
    "choose_conv_method": call(lambda a, b: np.ones(1) * (signal.choose_conv_method(a, b) == "direct"), X, H),
}
OTHERS = {
    **dict.fromkeys(
        ["buttap", "besselap", "correlation_lags", "max_len_seq", "unit_impulse"], "it takes integers only"
    ),
    "get_window": "it is counted in `scipy.signal.windows`",
}
REFUSED = {
    "remez": "it exchanges points in compiled code",
}
REFUSALS = {
    "remez": first(lambda d: signal.remez(7, [0.0, 0.1, 0.2, 0.5], d), [1.0, 0.0]),
}
M = 9
WINDOWS: dict[str, list[Case]] = {
    **{
        name: [
            *call(lambda *p, name=name: getattr(signal.windows, name)(M, *p), *parameters),
            *first(lambda *p, name=name: getattr(signal.windows, name)(M - 1, *p, sym=False), *parameters),
        ]
        for name, parameters in {
            "kaiser": (5.3,),
            "gaussian": (1.7,),
            "general_gaussian": (1.2, 1.7),
            "general_hamming": (0.6,),
            "tukey": (0.43,),
            "dpss": (2.3,),
            "chebwin": (60.0,),
        }.items()
    },
    "exponential": call(lambda t: signal.windows.exponential(M, tau=t), 3.0),
    "general_cosine": call(lambda a: signal.windows.general_cosine(M, a), [0.4, 0.5, 0.1]),
    "kaiser_bessel_derived": call(lambda b: signal.windows.kaiser_bessel_derived(8, b), 5.3),
    "taylor": first(lambda s: signal.windows.taylor(M, sll=s), 30),
    "get_window": [
        *call(lambda b: signal.windows.get_window(("kaiser", b), M), 5.3),
        *first(lambda b: signal.get_window(b, M), 5.3),
    ],
}
SCIPY_SIGNAL = Namespace(
    "scipy.signal",
    public_functions(signal, classes=True),
    {name: cases for name, cases in CASES.items() if name not in REFUSED},
    {name: cases for name, cases in CONSTANT.items() if name not in REFUSED},
    REFUSED,
    REFUSALS,
    OTHERS,
)
SCIPY_WINDOWS = Namespace(
    "scipy.signal.windows",
    public_functions(signal.windows),
    WINDOWS,
    others={
        name: "it takes integers only" for name in public_functions(signal.windows) if name not in WINDOWS
    },
)
