"""Other calls of `numpy`, `numpy.linalg`, `numpy.fft` and `numpy.polynomial`."""

from __future__ import annotations

import numpy as np

from tests.coverage.cases import Array, Case, call

RNG = np.random.default_rng(7)
X = RNG.uniform(0.2, 1.7, 6)
A = RNG.normal(size=(3, 4))
T = RNG.normal(size=(2, 3, 4))
S = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
SPD = S @ S.T
Z = RNG.normal(size=5) + 1j * RNG.normal(size=5)
ZM = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3)) + 3 * np.eye(3)
STACK = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
MASK = np.array([True, False, True, True, False, True])
POLY = np.polynomial


def written_out(a: Array) -> Array:
    out = np.zeros((3, 4))
    np.multiply(a, 2.0, out=out[:, ::1])
    return out * a


def rolled_rows(a: Array) -> Array:
    made = a.copy()
    made[1:, ::2] += made[:-1, ::2] ** 2
    made[[0, 2], [1, 3]] = made[1, 1]
    made[made > 1.0] *= 0.5
    return made


NUMPY: dict[str, list[Case]] = {
    "sum axis tuple by position": call(lambda t: np.sum(t, (0, 2), None, None, True) ** 2, T),
    "sum where initial": call(lambda x: np.sum(x, where=MASK, initial=0.3) ** 2, X),
    "prod axis -1": call(lambda t: np.prod(t, -1), T),
    "prod with zero": call(lambda x: np.prod(x * (x > 0.6)), X),
    "max axis keepdims": call(lambda t: np.max(t, axis=1, keepdims=True) * t, T),
    "max where initial": call(lambda x: np.max(x, where=MASK, initial=-1.0), X),
    "mean complex": call(lambda z: np.mean(z) * z, Z),
    "mean dtype where": call(lambda x: np.mean(x, None, np.float64, where=MASK), X),
    "std ddof axis": call(lambda t: np.std(t, (0, 1), ddof=1), T),
    "var complex": call(lambda z: np.var(z), Z),
    "var correction mean": call(lambda a: np.var(a, axis=1, correction=1), A),
    "median axis": call(lambda t: np.median(t, axis=(0, 2)), T),
    "average weights axis returned": call(lambda a, w: np.average(a, 1, w, returned=True), A, X[:4]),
    "quantile methods": call(
        lambda a: [np.quantile(a, [0.2, 0.55], 1, method=m) for m in ("linear", "hazen", "weibull")], A
    ),
    "quantile in q": call(lambda x, q: np.quantile(x, q), X, [0.23, 0.61]),
    "quantile weights": call(lambda x: np.quantile(x, 0.4, weights=X + 0.1, method="inverted_cdf"), X),
    "percentile lower nearest": call(
        lambda x: [np.percentile(x, 33, method=m) for m in ("lower", "nearest")], X
    ),
    "nanquantile axis": call(lambda a: np.nanquantile(np.where(A > 1, np.nan, a), 0.3, axis=0), A),
    "cumsum axis": call(lambda t: np.cumsum(t, 1) ** 2, T),
    "cumprod flat": call(lambda a: np.cumprod(a), A),
    "cumulative_sum include_initial": call(
        lambda a: np.cumulative_sum(a, axis=1, include_initial=True) ** 2, A
    ),
    "diff n prepend append": call(lambda a, x: np.diff(a, 2, 1, x[:3, None], append=0.5), A, X),
    "ediff1d to_begin": call(lambda x: np.ediff1d(x, to_begin=[0.2, 0.3], to_end=x[0]) ** 2, X),
    "gradient spacing axes": call(lambda a: np.gradient(a, 0.5, 0.3, edge_order=2), A),
    "gradient coordinates": call(lambda a, x: np.gradient(a, np.cumsum(x[:4]), axis=1), A, X),
    "trapezoid x axis": call(lambda a, x: np.trapezoid(a, np.cumsum(x[:3]), axis=0), A, X),
    "unwrap period axis": call(lambda a: np.unwrap(3 * a, axis=0, period=4.0), A),
    "sort axis None": call(lambda a: np.sort(a, axis=None), A),
    "sort kind axis 0": call(lambda a: np.sort(a, 0, "stable") * a, A),
    "sort complex": call(lambda z: np.sort(z), Z),
    "partition axis": call(lambda a: np.partition(a, 1, axis=0)[1], A),
    "flip axes": call(lambda t: np.flip(t, (0, 2)) * t, T),
    "rot90 k axes": call(lambda t: np.rot90(t, 3, (1, 2)), T),
    "roll axes": call(lambda t: np.roll(t, (1, -2), (0, 2)) * t, T),
    "transpose method": call(lambda t: t.transpose(2, 0, 1) @ T[0], T),
    "reshape F order": call(lambda t: np.reshape(t, (4, -1), order="F") ** 2, T),
    "ravel order": call(lambda t: np.ravel(t, "F") * T.ravel(), T),
    "swapaxes squeeze": call(lambda t: np.squeeze(np.swapaxes(t[:1], 1, 2), 0), T),
    "diag offset": call(lambda x: np.diag(x, -2) @ np.ones(8), X),
    "diagonal axes": call(lambda t: np.diagonal(t, 1, 1, 2), T),
    "trace offset axes": call(lambda t: np.trace(t, 1, 2, 1), T),
    "tril k stack": call(lambda t: np.tril(t, -1), T),
    "cov rowvar weights": call(lambda a: np.cov(a, rowvar=False, ddof=0, aweights=[1.0, 0.5, 2.0]), A),
    "cov two arguments": call(lambda a, b: np.cov(a, b), A, A[::-1] ** 2),
    "cov complex": call(lambda z: np.cov(np.stack([z, z * z])), Z),
    "corrcoef columns": call(lambda a: np.corrcoef(a, rowvar=False), A),
    "concatenate axis None": call(lambda a, x: np.concatenate([a, x[None, :4]], axis=None), A, X),
    "stack axis": call(lambda a: np.stack([a, a * a], axis=-1), A),
    "block nested": call(lambda a, s: np.block([[a, s], [2 * a, s.T]]), A, S),
    "split indices axis": call(lambda a: np.split(a, [1, 3], axis=1)[1] ** 2, A),
    "tensordot axes": call(lambda t, u: np.tensordot(t, u, ([0, 1], [1, 0])), T, np.swapaxes(T, 0, 1)),
    "einsum implicit": call(lambda a, b: np.einsum("ij,kj", a, b), A, A + 1),
    "einsum ellipsis": call(lambda t: np.einsum("...ij->...ji", t) ** 2, T),
    "einsum repeated": call(lambda s: np.einsum("ii->i", s) ** 2, S),
    "einsum three optimize": call(lambda a, s: np.einsum("ij,ik,kl->jl", a, s, a, optimize=True), A, S),
    "einsum sublists": call(lambda a, s: np.einsum(s, [0, 1], a, [1, 2], [0, 2]), A, S),
    "matmul stack vector": call(lambda t, x: t @ x, T, X[:4]),
    "matmul complex": call(lambda z: z @ z.conj().T, ZM),
    "dot 3d": call(lambda t, a: np.dot(t, a.T), T, A),
    "inner 2d": call(lambda a, t: np.inner(a, t), A, T),
    "vdot complex": call(lambda z: np.vdot(z, z * z), Z),
    "outer out of 2d": call(lambda a, x: np.outer(a, x), A, X),
    "kron 3d": call(lambda t, a: np.kron(t, a[:2, :2]), T, A),
    "cross axes": call(lambda a: np.cross(a, a**2 + 1, axisa=0, axisb=0, axisc=0), A),
    "convolve modes": call(lambda x, y: [np.convolve(x, y, m) for m in ("same", "valid")], X, X[:3]),
    "correlate full complex": call(lambda z: np.correlate(z, z[:3], "full"), Z),
    "interp left right period": call(
        lambda x, fp: [
            np.interp(x * 4 - 1, [0, 1, 2.5, 4], fp, left=-1.0, right=2.0),
            np.interp(x * 4 - 1, [0, 1, 2.5, 4], fp, period=5.0),
        ],
        X,
        X[:4],
    ),
    "interp complex": call(lambda z: np.interp([0.3, 1.6], [0.0, 1.0, 2.0], z[:3]), Z),
    "pad modes": call(
        lambda a: [np.pad(a, ((1, 2), (0, 3)), m) for m in ("edge", "wrap", "symmetric", "mean", "maximum")],
        A,
    ),
    "pad constant linear_ramp": call(
        lambda a, c: [np.pad(a, 1, constant_values=c), np.pad(a, (2, 1), "linear_ramp", end_values=c)], A, 0.7
    ),
    "pad reflect odd": call(lambda x: np.pad(x, (2, 3), mode="reflect", reflect_type="odd"), X),
    "where broadcasting": call(lambda a, x: np.where(a > 0, a, x[:4]) ** 2, A, X),
    "select default array": call(lambda x: np.select([x < 0.5, x < 1.0], [x**2, np.sin(x)], default=x), X),
    "choose mode": call(lambda a: np.choose([3, 1, 5, -1], a[:3], mode="wrap"), A),
    "clip one side": call(lambda a, lo: [np.clip(a, lo, None), a.clip(max=lo)], A, 0.2),
    "clip arrays": call(lambda a, x: np.clip(a, -x[:4], x[:4]), A, X),
    "take axis mode": call(lambda t: np.take(t, [[0, 5], [-1, 2]], axis=2, mode="wrap") ** 2, T),
    "take_along_axis 2d": call(lambda a: np.take_along_axis(a, np.argsort(A, 1)[:, :2], 1) * 2, A),
    "compress axis": call(lambda a: np.compress([True, False, True], a, axis=0), A),
    "delete slice axis": call(lambda a: np.delete(a, np.s_[::2], 1), A),
    "insert axis": call(lambda a, x: np.insert(a, 2, x[:3], axis=1), A, X),
    "append axis": call(lambda a: np.append(a, a[:1] ** 2, axis=0), A),
    "repeat counts axis": call(lambda a: np.repeat(a, [1, 0, 2], axis=0), A),
    "tile 2d": call(lambda a: np.tile(a, (2, 1, 2)), A),
    "resize larger": call(lambda x: np.resize(x, (3, 4)), X[:5]),
    "linspace arrays axis": call(lambda x: np.linspace(x, 2 * x, 4, endpoint=False, axis=1), X),
    "linspace retstep": call(lambda a, b: np.linspace(a, b, 5, retstep=True), 0.3, 2.1),
    "logspace base": call(lambda a, b: np.logspace(a, 2 * a, 4, base=b), 0.6, 3.0),
    "geomspace complex": call(lambda a: np.geomspace(a + 1j, (2 - 1j) * a, 4), X),
    "folds": call(lambda a: [np.hypot.reduce(a), np.subtract.accumulate(a), np.hypot.reduceat(a, [0, 2])], X),
    "geomspace endpoint": call(lambda a: np.geomspace(a, 3 * a, 4, endpoint=False), X),
    "meshgrid ij sparse": call(lambda x: np.meshgrid(x, x[:2], indexing="ij", sparse=True)[0] * x[:2], X),
    "vander increasing": call(lambda x: np.vander(x, 4, increasing=True), X),
    "polyfit weights cov": call(lambda y: np.polyfit(np.arange(6.0), y, 2, w=X, cov=True)[1], X, rtol=1e-4),
    "polyfit 2d": call(lambda y: np.polyfit(np.arange(4.0), y.T, 1), A),
    "polyder m": call(lambda x: [np.polyder(x, 2), np.polyint(x, 2, [0.3, 0.1])], X),
    "poly matrix": call(lambda s: np.poly(s), SPD, rtol=1e-4),
    "poly1d": call(lambda x, q: np.poly1d(x)(q) + np.poly1d(x).deriv()(q), X, X[:2]),
    "histogram density": call(lambda w: np.histogram(np.arange(6.0), 3, (0.0, 5.0), True, w)[0], X),
    "bincount minlength": call(lambda w: np.bincount([0, 3, 1, 3, 0, 1], w, 6), X),
    "digitize and index": call(lambda x: x[np.digitize(x, [0.5, 1.0])], X),
    "ufunc where out": call(lambda x: np.log(x, where=MASK, out=np.zeros(6)), X),
    "ufunc reduce": call(
        lambda a: [np.add.reduce(a, 1), np.multiply.reduce(a, axis=0), np.maximum.reduce(a)], A
    ),
    "ufunc accumulate": call(
        lambda a: [
            np.multiply.accumulate(a, 1),
            np.maximum.accumulate(a, axis=0),
            np.logaddexp.accumulate(a),
        ],
        A,
    ),
    "ufunc outer reduceat": call(lambda x: [np.subtract.outer(x, x**2), np.add.reduceat(x, [0, 2, 4])], X),
    "ufunc at": call(rolled_rows, A),
    "out": call(written_out, A),
    "divmod negative": call(lambda a: np.divmod(a, -0.7), A),
    "mod fmod": call(lambda a, b: [np.mod(a, b), np.fmod(a, -b), a % b, a // b], A, 0.37),
    "power negative base": call(lambda a: [a**3, a**-2, np.power(a, 2.0)], A),
    "power complex": call(lambda z: [z**2.5, z**z, 2.0**z], Z),
    "complex functions": call(lambda z: [np.exp(z), np.log(z), np.sqrt(z), np.tan(z), np.arcsinh(z)], Z),
    "complex abs angle": call(lambda z: [np.abs(z), np.angle(z, True), z.real * z.imag, np.conj(z) * z], Z),
    "complex from parts": call(lambda x: np.exp(1j * x) * (x + 2j), X),
    "arctan2 broadcast": call(lambda a, x: np.arctan2(a, x[:4]), A, X),
    "hypot logaddexp": call(lambda a: np.hypot(a, np.logaddexp(a, a.mean())), A),
    "sinc spherical": call(lambda a: [np.sinc(a), np.i0(a), np.heaviside(a, 0.5) * a], A),
    "nan functions axis": call(
        lambda a: [
            f(np.where(A > 1, np.nan, a), axis=1) for f in (np.nansum, np.nanmean, np.nanstd, np.nanmax)
        ],
        A,
    ),
    "nancumsum nanprod": call(lambda a: [np.nancumsum(a, axis=0), np.nanprod(a, axis=1)], A),
    "nan_to_num keywords": call(
        lambda a: np.nan_to_num(a / np.maximum(A, 0), nan=0.3, posinf=1.0, neginf=-1.0) * a, A
    ),
    "apply_along_axis vectors": call(lambda a: np.apply_along_axis(lambda r: np.outer(r, r), 0, a), A),
    "vectorize signature": call(lambda a: np.vectorize(lambda r: r @ r, signature="(n)->()")(a), A),
    "vectorize scalars": call(lambda x: np.vectorize(lambda v, w: v * w if v > 0.7 else v - w)(x, 0.3), X),
    "piecewise extra": call(
        lambda x: np.piecewise(x, [x < 0.5], [lambda v, k: k * v, lambda v, k: v**k], 2.5), X
    ),
    "unique inverse axis": call(lambda x: np.unique(x, return_inverse=True)[0] * 2, X),
    "lexsort index": call(lambda a: a[:, np.lexsort((A[0], A[1]))], A),
    "nonzero index": call(lambda a: a[np.nonzero(a > 0)] ** 2, A),
    "boolean index 2d": call(lambda a: a[a > 0.3].sum() + np.sum(a[:, A[0] > 0]), A),
    "ix_ newaxis": call(lambda t: t[np.ix_([1, 0], [0, 2], [3, 1])][..., None] * 2, T),
    "strides sliding": call(lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, axis=1).mean(-1), A),
    "methods": call(
        lambda a: [
            a.sum(0),
            a.mean(1, keepdims=True),
            a.cumsum(),
            a.T.dot(a),
            a.std(),
            a.ptp() if hasattr(a, "ptp") else 0 * a,
        ],
        A,
    ),
    "broadcast assign": call(lambda x: np.broadcast_to(x, (3, 6)) * np.arange(18.0).reshape(3, 6), X),
    "full arange like": call(lambda x: np.full((2, 6), x) * np.ones_like(x), X),
    "put_along_axis copyto": call(rolled_rows, A * 1.3),
    "fill_diagonal wrap": call(lambda s, v: _diagonal(s, v), S, 0.4),
    "matvec vecdot": call(lambda t, a: [np.matvec(t, a[0]), np.vecdot(t, a, axis=-1)], T, A),
    "moveaxis many": call(lambda t: np.moveaxis(t, [0, 1], [-1, 0]) @ np.ones((2, 2)), T),
    "float_power logaddexp2": call(lambda x: [np.float_power(x, 1.7), np.logaddexp2(x, 1.0), np.cbrt(-x)], X),
    "searchsorted take": call(lambda x, q: np.sort(x)[np.searchsorted(np.sort(x), q) - 1] * q, X, [0.9, 1.2]),
    "triu_indices": call(lambda s: s[np.triu_indices(3, 1)] ** 2, S),
    "nditer": call(lambda x: np.array([v * v for v in x]).sum() + sum(v for _, v in np.ndenumerate(x)), X),
}


def _diagonal(s: Array, v: Array) -> Array:
    made = s * 1.0
    np.fill_diagonal(made, v)
    return made


NUMPY_LINALG: dict[str, list[Case]] = {
    "norm orders": call(
        lambda a: [np.linalg.norm(a, o) for o in (None, "fro", "nuc", 1, -1, 2, -2, np.inf)], A
    ),
    "norm axis keepdims": call(
        lambda t: [np.linalg.norm(t, 3, 1, True), np.linalg.norm(t, "nuc", (1, 2))], T
    ),
    "vector_norm ord axis": call(lambda t: np.linalg.vector_norm(t, axis=(0, 2), ord=3, keepdims=True), T),
    "matrix_norm stack": call(lambda t: np.linalg.matrix_norm(t, ord=1), T),
    "norm complex": call(
        lambda z: [np.linalg.norm(z), np.linalg.norm(z, 2), np.linalg.norm(z, 1, axis=0)], ZM
    ),
    "solve stack": call(lambda t, a: np.linalg.solve(t, a[:, :2]), STACK, A),
    "solve complex": call(lambda z, x: np.linalg.solve(z, x[:3]), ZM, X),
    "inv stack": call(lambda t: np.linalg.inv(t), STACK),
    "inv complex": call(lambda z: np.linalg.inv(z), ZM),
    "det slogdet stack": call(lambda t: [np.linalg.det(t), *np.linalg.slogdet(t)], STACK),
    "slogdet complex": call(lambda z: np.linalg.slogdet(z)[1], ZM),
    "det complex": call(lambda z: np.linalg.det(z), ZM),
    "cholesky upper": call(lambda s: np.linalg.cholesky(s @ s.T + np.eye(3), upper=True), S),
    "cholesky complex": call(lambda z: np.linalg.cholesky(z @ z.conj().T), ZM),
    "qr modes": call(lambda a: [np.linalg.qr(a.T, "r"), *np.linalg.qr(a.T)], A),
    "qr complete": call(lambda a: np.linalg.qr(a.T @ a + np.eye(4), mode="complete")[0], A),
    "qr stack complex": call(lambda z: np.abs(np.linalg.qr(z)[1]), ZM),
    "eigh upper": call(lambda s: np.linalg.eigh(s + s.T, "U")[0] ** 2, S),
    "eigh vectors": call(lambda s: np.linalg.eigh(s + s.T)[1] ** 2, S),
    "eigh complex": call(lambda z: np.abs(np.linalg.eigh(z + z.conj().T).eigenvectors), ZM),
    "eigvalsh stack": call(lambda t: np.linalg.eigvalsh(t @ np.swapaxes(t, 1, 2)), STACK),
    "eigvals complex": call(lambda z: np.sort_complex(np.linalg.eigvals(z)), ZM),
    "eig real": call(lambda s: np.abs(np.linalg.eig(s)[1]), S + np.diag([0.0, 1.0, 3.0])),
    "svd compute_uv": call(lambda a: np.linalg.svd(a, compute_uv=False), A),
    "svd thin": call(lambda a: [u**2 for u in np.linalg.svd(a, full_matrices=False)], A),
    "svd complex": call(lambda z: np.abs(np.linalg.svd(z)[0]), ZM),
    "svdvals stack": call(lambda t: np.linalg.svdvals(t), T),
    "svd hermitian": call(lambda s: np.linalg.svd(s @ s.T, hermitian=True)[1], S),
    "pinv stack rcond": call(lambda t: np.linalg.pinv(t, 1e-10), T),
    "pinv hermitian": call(lambda s: np.linalg.pinv(s + s.T, hermitian=True), S),
    "pinv complex": call(lambda z: np.linalg.pinv(z[:, :2]), ZM),
    "lstsq": call(lambda a, b: np.linalg.lstsq(a.T, b[:4], None)[:2], A, X),
    "lstsq under": call(lambda a, b: np.linalg.lstsq(a, b[:3])[0], A, X),
    "matrix_power": call(lambda t: [np.linalg.matrix_power(t, 5), np.linalg.matrix_power(t, -2)], STACK),
    "multi_dot": call(lambda a, s, x: np.linalg.multi_dot([x[:3], s, a, x[:4]]), A, S, X),
    "cond": call(lambda s: [np.linalg.cond(s, p) for p in (None, 1, "fro", -2)], S),
    "tensorsolve axes": call(
        lambda t, b: np.linalg.tensorsolve(t.reshape(3, 2, 6), b, None), RNG.normal(size=(6, 6)), A[:, :2]
    ),
    "tensorinv": call(lambda t: np.linalg.tensorinv(t.reshape(6, 3, 2), 1), RNG.normal(size=(6, 6))),
    "cross outer trace": call(
        lambda a: [
            np.linalg.cross(a[:, 0], a[:, 1]),
            np.linalg.trace(a, offset=1),
            np.linalg.outer(a[0], a[1]),
        ],
        A,
    ),
    "matrix_rank": call(lambda s: s * np.linalg.matrix_rank(s), S),
    "diagonal vecdot": call(lambda t: [np.linalg.diagonal(t, offset=-1), np.linalg.vecdot(t, t, axis=1)], T),
}

NUMPY_FFT: dict[str, list[Case]] = {
    "fft n axis norm": call(lambda a: np.fft.fft(a, 5, 0, "ortho"), A),
    "ifft complex n": call(lambda z: np.fft.ifft(z, 8, norm="forward"), Z),
    "rfft odd": call(lambda a: np.fft.rfft(a, n=3, axis=0), A),
    "irfft n": call(lambda z: np.fft.irfft(z, 7), Z),
    "irfft odd norm": call(lambda z: np.fft.irfft(z, n=9, norm="backward"), Z),
    "hfft ihfft": call(lambda z: [np.fft.hfft(z, 8), np.fft.ihfft(z.real)], Z),
    "fft2 s axes": call(lambda t: np.fft.fft2(t, (4, 3), (0, 2)), T),
    "rfftn": call(lambda t: np.fft.rfftn(t, axes=(1, 2), norm="ortho"), T),
    "irfftn s": call(lambda t: np.fft.irfftn(t + 1j * t**2, s=(3, 6), axes=(1, 2)), T),
    "irfft2": call(lambda z: np.fft.irfft2(z), ZM),
    "fftshift axes": call(lambda t: [np.fft.fftshift(t, axes=(0, 2)), np.fft.ifftshift(t, 1)], T),
    "convolution": call(lambda x: np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(x**2), 6), X),
    "spectrum": call(lambda x: np.abs(np.fft.fft(x)) ** 2, X),
}

NUMPY_POLYNOMIAL: dict[str, list[Case]] = {
    "Polynomial domain": call(lambda c, q: POLY.Polynomial(c, domain=[0, 2], window=[-1, 1])(q), X, X[:3]),
    "Chebyshev algebra": call(
        lambda c, q: (POLY.Chebyshev(c) * POLY.Chebyshev(c[:3]) + 2).deriv(2)(q), X, X[:3]
    ),
    "Legendre integ": call(lambda c, q: POLY.Legendre(c).integ(2, k=[0.1, 0.2], lbnd=-1)(q), X, X[:3]),
    "Hermite convert": call(lambda c: POLY.Hermite(c).convert(kind=POLY.Polynomial).coef, X),
    "Laguerre roots": call(lambda c: np.sort_complex(POLY.Laguerre(c[:4]).roots()), X, rtol=1e-4),
    "Chebyshev fit": call(lambda y: POLY.Chebyshev.fit(np.arange(6.0), y, 3).coef, X),
    "Polynomial fit in x": call(
        lambda x, y: POLY.polynomial.polyfit(x, y, 2, w=[1, 2, 1, 2, 1, 1]), X, X**2 + 1
    ),
    "chebval2d": call(lambda c, x: POLY.chebyshev.chebval2d(x, x**2, c), A, X[:2]),
    "polygrid3d": call(lambda c, x: POLY.polynomial.polygrid3d(x, x, x, c), T, X[:2]),
    "legvander2d": call(lambda x: POLY.legendre.legvander2d(x, x**2, [2, 1]), X),
    "hermeval tensor": call(lambda c, x: POLY.hermite_e.hermeval(x, c, tensor=False), A, X[:4]),
    "polydiv": call(lambda c: POLY.polynomial.polydiv(c, c[:2] + 1), X),
    "polycompanion": call(lambda c: POLY.chebyshev.chebcompanion(c), X),
    "polyfromroots": call(lambda c: [POLY.legendre.legfromroots(c[:4]), POLY.polynomial.polyfromroots(c)], X),
    "polypow": call(lambda c: POLY.laguerre.lagpow(c[:3], 3), X),
    "Polynomial substitution": call(lambda c: POLY.Polynomial(c)(POLY.Polynomial([0.1, 2.0])).coef, X),
    "chebinterpolate": call(lambda a: POLY.chebyshev.chebinterpolate(lambda x: np.exp(a * x), 4), 0.7),
}

CALLS = {
    "numpy": NUMPY,
    "numpy.linalg": NUMPY_LINALG,
    "numpy.fft": NUMPY_FFT,
    "numpy.polynomial": NUMPY_POLYNOMIAL,
}
