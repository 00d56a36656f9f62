"""Other calls of `scipy.special`, `scipy.linalg`, `scipy.fft`, `scipy.spatial`, `scipy.integrate` and `scipy.cluster`."""

from __future__ import annotations

import numpy as np
import scipy.cluster.vq as vq
import scipy.fft as fft
import scipy.integrate as integrate
import scipy.linalg as linalg
import scipy.spatial as spatial
import scipy.spatial.distance as distance
import scipy.special as special
from scipy.spatial.transform import Rotation, Slerp

from tests.coverage.cases import Array, Case, call

RNG = np.random.default_rng(8)
X = RNG.uniform(0.2, 1.7, 5)
P = RNG.uniform(0.1, 0.9, 5)
A = RNG.normal(size=(3, 4))
T = RNG.normal(size=(2, 3, 4))
S = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
Z = RNG.normal(size=5) + 1j * RNG.normal(size=5)
ZM = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3)) + 3 * np.eye(3)
STACK = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
SYMMETRIC = S @ S.T
MATRIX = RNG.uniform(0.2, 1.7, (2, 3))

SPECIAL: dict[str, list[Case]] = {
    "logsumexp axis b": call(lambda a, b: special.logsumexp(a, 1, np.abs(b), True), A, A + 2),
    "logsumexp return_sign": call(
        lambda a: special.logsumexp(a, axis=0, b=[[1.0], [-0.3], [2.0]], return_sign=True)[0], A
    ),
    "softmax axes": call(lambda t: [special.softmax(t, (0, 2)), special.log_softmax(t, axis=1)], T),
    "gamma negative": call(
        lambda x: [special.gamma(-x), special.gammaln(-x), special.rgamma(-x), special.gammasgn(-x)], X
    ),
    "gamma complex": call(
        lambda z: [special.gamma(z), special.loggamma(z), special.rgamma(z), special.digamma(z)], Z
    ),
    "digamma negative": call(lambda x: special.psi(-x), X),
    "polygamma broadcast": call(lambda x: special.polygamma([[1], [3]], x), X),
    "zeta q": call(lambda x, q: [special.zeta(x + 1.5, q), special.zetac(x + 1.5)], X, X + 0.3),
    "beta negative": call(
        lambda a, b: [special.beta(a, b), special.betaln(a, b), special.beta(-a, b)], X, X[::-1] + 0.1
    ),
    "betainc": call(
        lambda a, b, x: [special.betainc(a, b, x), special.betaincc(b, a, x)], 4 * X, X, P, rtol=1e-4
    ),
    "betaincinv": call(lambda a, b, p: special.betaincinv(a, b, p), X, X[::-1], P, rtol=1e-4),
    "gammainc large": call(
        lambda a, x: [special.gammainc(10 * a, 11 * x), special.gammaincc(a, 5 * x)], X, X, rtol=1e-4
    ),
    "gammaincinv": call(
        lambda a, p: [special.gammaincinv(a, p), special.gammainccinv(3 * a, p)], X, P, rtol=1e-4
    ),
    "erf complex": call(
        lambda z: [
            special.erf(z),
            special.erfc(z),
            special.wofz(z),
            special.dawsn(z),
            special.erfcx(z),
            special.erfi(z),
        ],
        Z * 0.5,
    ),
    "erfinv edges": call(lambda p: [special.erfinv(2 * p - 1), special.erfcinv(2 * p), special.ndtri(p)], P),
    "log_ndtr tails": call(
        lambda x: [special.log_ndtr(x), special.log_ndtr(-20 * x), special.ndtri_exp(-x)], X
    ),
    "voigt": call(lambda x, s, g: special.voigt_profile(x, s, g), X, P, X[::-1]),
    "jv orders": call(
        lambda x: [special.jv(2, x), special.jv(-1.3, x), special.jn(3, 4 * x), special.jve(1.5, x)], X
    ),
    "yv kv iv": call(
        lambda x: [
            special.yv(1.2, x),
            special.kv(-0.7, x),
            special.iv(2.5, x),
            special.ive(1, -x),
            special.kve(2.3, x),
            special.yn(2, x),
        ],
        X,
    ),
    "bessel in order": call(
        lambda v, x: [special.jv(v, 3 * x), special.iv(v, x), special.kv(v, x)], X, X[::-1], rtol=1e-4
    ),
    "hankel complex": call(lambda z: [special.hankel1(0.5, z), special.hankel2e(1, z)], Z),
    "bessel complex": call(
        lambda z: [special.jv(1, z), special.iv(0.3, z), special.kv(2, z), special.yv(0, z)], Z
    ),
    "spherical bessel": call(
        lambda x: [
            special.spherical_jn(2, 3 * x),
            special.spherical_yn(1, x, True),
            special.spherical_in(3, x),
            special.spherical_kn(2, x, derivative=True),
        ],
        X,
    ),
    "jvp yvp": call(
        lambda x: [special.jvp(1, x, 2), special.ivp(2, x), special.kvp(1.5, x, 3), special.h1vp(0, x)], X
    ),
    "airy negative complex": call(lambda z: [special.airy(z), special.airye(np.abs(z))], Z),
    "airy negative": call(lambda x: [special.airy(-3 * x), special.itairy(x)], X),
    "ellip negative m": call(lambda m: [special.ellipk(-m), special.ellipe(m * 0.5), special.ellipkm1(m)], P),
    "ellipinc beyond": call(
        lambda f, m: [special.ellipkinc(3 * f, m), special.ellipeinc(-f, -m), special.ellipj(f, m)],
        X,
        P,
        rtol=1e-4,
    ),
    "carlson": call(
        lambda x, y: [
            special.elliprf(x, y, 0.3),
            special.elliprd(x, y, x + y),
            special.elliprj(x, y, 1.0, 2.0),
            special.elliprc(x, y + 2),
            special.elliprg(x, y, 0.1),
        ],
        X,
        X[::-1],
    ),
    "expn exp1 expi": call(
        lambda x: [special.expn(3, x), special.exp1(x), special.expi(-x), special.expn(0, x)], X
    ),
    "sici shichi complex": call(lambda z: [special.sici(z), special.shichi(z)], Z),
    "fresnel": call(lambda z: [special.fresnel(z), special.modfresnelp(np.abs(z))], Z * 0.7),
    "hyp": call(
        lambda z: [
            special.hyp2f1(0.5, 1.2, 2.3, z),
            special.hyp1f1(0.7, 1.9, 3 * z),
            special.hyp0f1(1.3, z),
            special.hyperu(1.2, 0.4, z),
        ],
        P,
    ),
    "hyp complex": call(lambda z: [special.hyp2f1(0.5, 1.2, 2.3, 0.3 * z), special.hyp1f1(0.7, 1.9, z)], Z),
    "orthogonal polynomials": call(
        lambda x: [
            special.eval_legendre(4, x - 1),
            special.eval_chebyt(3, x),
            special.eval_jacobi(3, 0.5, 1.5, x),
            special.eval_hermite(4, x),
            special.eval_genlaguerre(3, 0.7, x),
            special.eval_gegenbauer(4, 1.3, x),
            special.eval_sh_legendre(3, x),
        ],
        X,
    ),
    "jacobi parameters": call(lambda a, b: special.eval_jacobi(3, a, b, 0.4), X, P, rtol=1e-4),
    "polynomial objects": call(
        lambda x: special.legendre(3)(x) + special.chebyt(4)(x) + special.genlaguerre(3, 0.5)(x), X
    ),
    "lambertw branches": call(
        lambda x: [special.lambertw(x).real, special.lambertw(-0.2 * P, -1).real, special.wrightomega(x)], X
    ),
    "lambertw complex": call(lambda z: special.lambertw(z, 1), Z),
    "struve": call(lambda x: [special.struve(0.5, x), special.modstruve(1, x), special.itstruve0(x)], X),
    "kelvin": call(lambda x: [special.ber(x), special.keip(x), special.kelvin(x)[0].real], X),
    "parabolic cylinder": call(
        lambda x: [special.pbdv(1.5, x)[0], special.pbwa(0.4, x)[0], special.pbvv(0.7, x)[0]], X
    ),
    "entropies": call(
        lambda x, y: [
            special.entr(x),
            special.rel_entr(x, y),
            special.kl_div(x, y),
            special.huber(0.9, x - y),
            special.pseudo_huber(0.8, x),
        ],
        X,
        X[::-1] + 0.2,
    ),
    "boxcox": call(
        lambda x, p: [
            special.boxcox(x, p),
            special.boxcox1p(x, -p),
            special.inv_boxcox(0.3 * x, p),
            special.inv_boxcox1p(0.2 * x, p),
        ],
        X,
        P,
    ),
    "boxcox at zero": call(lambda x: [special.boxcox(x, 0.0), special.inv_boxcox(x, 0.0)], X),
    "xlogy xlog1py": call(
        lambda x, y: [special.xlogy(x, y), special.xlog1py(x, y), special.xlogy(x, 0.3 + y * 1j).imag], X, P
    ),
    "exprel and kin": call(
        lambda x: [
            special.exprel(x),
            special.expm1(-x),
            special.cosm1(x),
            special.log1p(x),
            special.powm1(x, 0.7),
            special.sinc(x) if hasattr(special, "sinc") else x,
        ],
        X,
    ),
    "logit expit": call(lambda p: [special.logit(p), special.expit(-p), special.log_expit(3 * p)], P),
    "statistics": call(
        lambda x: [
            special.chdtr(3.5, x),
            special.chdtrc(2.0, x),
            special.stdtr(4.0, x),
            special.fdtr(3, 4, x),
            special.fdtrc(2.5, 3, x),
            special.pdtr(2, x),
            special.bdtr(2, 5, x * 0.5),
        ],
        X,
    ),
    "inverses of statistics": call(
        lambda p: [
            special.chdtri(3, p),
            special.stdtrit(4, p),
            special.fdtri(3, 4, p),
            special.pdtri(2, p),
            special.gdtrix(1.2, 2.3, p),
            special.nrdtrimn(p, 1.3, 0.7),
        ],
        P,
        rtol=1e-4,
    ),
    "noncentral": call(
        lambda x, n: [special.chndtr(x, 3.0, n), special.nctdtr(4.0, n, x), special.ncfdtr(2, 3, n, x)],
        X,
        P,
        rtol=1e-4,
    ),
    "kolmogorov": call(
        lambda x: [special.kolmogorov(x), special.kolmogi(0.5 * P), special.smirnov(5, P)], X, rtol=1e-4
    ),
    "tukeylambda": call(lambda x, p: special.tklmbda(0.3 * x, p), X, 0.7, rtol=1e-4),
    "owens_t": call(lambda h, a: special.owens_t(h, a), X, P),
    "comb perm poch": call(
        lambda x: [
            special.comb(x + 3, 2.0),
            special.binom(x + 4, x),
            special.perm(x + 4, 2),
            special.poch(x, 1.5),
            special.factorial(x),
        ],
        X,
        rtol=1e-4,
    ),
    "multigammaln": call(lambda x: special.multigammaln(x + 3, 3), X),
    "sph_harm": call(lambda t, f: special.sph_harm_y(3, -2, t, f), X, P),
    "sph_harm all": call(lambda t, f: special.sph_harm_y_all(2, 2, t, f), 0.7, 0.4),
    "legendre_p": call(
        lambda x: [special.legendre_p(3, x - 0.9, diff_n=1), special.assoc_legendre_p(3, 1, x * 0.5)], X
    ),
    "diric": call(lambda x: special.diric(x, 5), X),
    "degrees": call(
        lambda x: [
            special.sindg(40 * x),
            special.cotdg(30 * x),
            special.radian(x, 10, 2),
            special.cbrt(x),
            special.exp10(x),
        ],
        X,
    ),
    "agm spence": call(lambda x, y: [special.agm(x, y), special.spence(x), special.spence(x + 2)], X, P),
    "spence complex": call(lambda z: special.spence(z), Z),
    "wright bessel": call(lambda x: special.wright_bessel(0.7, 1.2, x), X, rtol=1e-4),
    "stirling zeros constants": call(lambda x: x * special.stirling2(5, 2) + special.jn_zeros(0, 5), X),
    "2d broadcasting": call(
        lambda a, x: [special.jv(1, a + x[:3]), special.gammaln(a * x[:3]), special.betaln(a, x[:3])],
        MATRIX,
        X,
    ),
    "bernoulli euler lpmv": call(
        lambda x: [special.lpmv(1, 3, x * 0.5), special.clpmn if False else special.eval_chebyu(3, x)], X
    ),
    "logpdf by hand": call(lambda a, x: np.sum(special.xlogy(a - 1, x) - x - special.gammaln(a)), X, X[::-1]),
    "bivariate": call(
        lambda x: [special.bei(x), special.it2j0y0(x)[0], special.iti0k0(x)[0], special.itj0y0(x)[1]], X
    ),
}

LINALG: dict[str, list[Case]] = {
    "solve assume_a": call(
        lambda s, b: [
            linalg.solve(s @ s.T, b, assume_a="pos"),
            linalg.solve(s + s.T, b, assume_a="sym", lower=True),
            linalg.solve(s, b, transposed=True),
        ],
        S,
        A,
    ),
    "solve complex her": call(lambda z, x: linalg.solve(z @ z.conj().T, x[:3], assume_a="her"), ZM, X),
    "solve_triangular": call(
        lambda s, b: [
            linalg.solve_triangular(s, b, 1, lower=True),
            linalg.solve_triangular(s, b, trans="N", unit_diagonal=True),
        ],
        S,
        A,
    ),
    "inv det": call(lambda t: [linalg.inv(t), linalg.det(t)], STACK),
    "cholesky lower": call(lambda s: [linalg.cholesky(s @ s.T, True), linalg.cholesky(s @ s.T)], S),
    "cho_solve": call(lambda s, b: linalg.cho_solve(linalg.cho_factor(s @ s.T, lower=True), b), S, A),
    "lu permute_l": call(lambda s: linalg.lu(s, True), S),
    "lu rectangular": call(lambda a: linalg.lu(a)[1:], A),
    "lu p_indices stack": call(lambda t: linalg.lu(t, p_indices=True)[1:], STACK),
    "lu_solve trans": call(
        lambda s, b: [linalg.lu_solve(linalg.lu_factor(s), b, t) for t in (0, 1, 2)], S, A
    ),
    "lu complex": call(lambda z: linalg.lu(z)[1:], ZM),
    "qr economic pivoting": call(lambda a: linalg.qr(a.T, mode="economic", pivoting=True)[:2], A),
    "qr r": call(lambda a: linalg.qr(a, mode="r"), A),
    "qr_multiply": call(lambda a, b: linalg.qr_multiply(a.T, b, "right"), A, A),
    "rq": call(lambda a: linalg.rq(a, mode="economic"), A),
    "svd": call(lambda a: [u**2 for u in linalg.svd(a, False)], A),
    "svd gesvd complex": call(lambda z: linalg.svd(z, compute_uv=False, lapack_driver="gesvd"), ZM),
    "svdvals": call(lambda a: linalg.svdvals(a.T), A),
    "eigh generalised": call(
        lambda s: [w**2 for w in linalg.eigh(s + s.T, SYMMETRIC, subset_by_index=[0, 1])], S
    ),
    "eigh type": call(lambda s, m: linalg.eigh(s + s.T, m @ m.T, eigvals_only=True, type=2), S, S + 1),
    "eigvalsh complex": call(lambda z: linalg.eigvalsh(z + z.conj().T), ZM),
    "eig generalised": call(lambda s: np.sort_complex(linalg.eigvals(s, SYMMETRIC)), S),
    "eig left right": call(
        lambda s: [np.abs(v) for v in linalg.eig(s, left=True)], S + np.diag([0.0, 1.0, 3.0])
    ),
    "eig_banded": call(lambda s: linalg.eig_banded(np.abs(s[:2]) + [[2.0] * 3, [0.0] * 3], lower=True)[0], S),
    "eigh_tridiagonal": call(
        lambda d, e: linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 3))[0], X, P[:4]
    ),
    "schur": call(lambda s: np.sort_complex(np.diag(linalg.schur(s, "complex")[0])), S),
    "schur real": call(lambda s: [np.abs(m) for m in linalg.schur(s)], SYMMETRIC + np.triu(A[:, :3])),
    "expm stack": call(lambda t: linalg.expm(0.5 * t), STACK),
    "expm complex": call(lambda z: linalg.expm(0.3j * z), ZM),
    "expm_frechet": call(lambda s, e: linalg.expm_frechet(s * 0.5, e), S, S.T),
    "logm sqrtm": call(lambda s: [linalg.logm(s), linalg.sqrtm(s)], SYMMETRIC),
    "logm general": call(lambda s: linalg.logm(s).real, S),
    "sqrtm complex": call(lambda z: linalg.sqrtm(z), ZM),
    "trigonometric": call(
        lambda s: [
            f(0.3 * s)
            for f in (linalg.cosm, linalg.sinm, linalg.tanm, linalg.coshm, linalg.sinhm, linalg.tanhm)
        ],
        S,
    ),
    "fractional power": call(lambda s: linalg.fractional_matrix_power(s, 0.4), SYMMETRIC),
    "funm": call(lambda s: linalg.funm(s, lambda x: np.exp(-(x**2)) + x), S),
    "signm": call(lambda s: linalg.signm(s - 3 * np.diag([1.0, 1.0, 2.5])), S),
    "polar left": call(lambda s: linalg.polar(s, "left"), S),
    "polar rectangular": call(lambda a: linalg.polar(a.T), A),
    "pinv pinvh": call(lambda a: [linalg.pinv(a, rtol=1e-9), linalg.pinvh(a @ a.T)], A),
    "pinv rank": call(lambda a: linalg.pinv(a, return_rank=True)[0], A),
    "lstsq": call(lambda a, x: linalg.lstsq(a.T, x[:4], lapack_driver="gelsy")[0], A, X),
    "null_space orth": call(lambda a: [n @ n.T for n in (linalg.null_space(a), linalg.orth(a.T))], A),
    "norm": call(
        lambda t: [
            linalg.norm(t),
            linalg.norm(t[0], 1),
            linalg.norm(t, axis=1),
            linalg.norm(t, np.inf, (0, 2), True),
        ],
        T,
    ),
    "sylvester": call(lambda a, b, q: linalg.solve_sylvester(a, b, q), S, S.T + np.eye(3), SYMMETRIC),
    "lyapunov": call(
        lambda a, q: [
            linalg.solve_continuous_lyapunov(a, q),
            linalg.solve_discrete_lyapunov(a / 9, q, method="bilinear"),
        ],
        S,
        SYMMETRIC,
    ),
    "riccati": call(
        lambda a, q: [
            linalg.solve_continuous_are(a, np.eye(3), q @ q.T, np.eye(3)),
            linalg.solve_discrete_are(a / 5, S, q @ q.T, np.eye(3)),
        ],
        S,
        S.T,
        rtol=1e-4,
    ),
    "banded": call(lambda ab, b: linalg.solve_banded((1, 1), ab + [[0], [4], [0]], b.T), A, A),
    "solveh_banded": call(
        lambda d, e, b: linalg.solveh_banded(np.stack([np.append(0, e), d + 3]), b), X, P[:4], Z.real
    ),
    "toeplitz": call(
        lambda c, r, b: [
            linalg.toeplitz(c, r) @ b,
            linalg.solve_toeplitz((c + [5, 0, 0, 0, 0], r), b),
            linalg.matmul_toeplitz((c, r), b),
        ],
        X,
        X[::-1],
        P,
    ),
    "circulant": call(
        lambda c, b: [
            linalg.circulant(c),
            linalg.solve_circulant(c + [5, 0, 0, 0, 0], b),
            linalg.hankel(c, b),
            linalg.companion(c),
        ],
        X,
        P,
    ),
    "structured": call(
        lambda c: [
            linalg.leslie(c, P[:4]),
            linalg.convolution_matrix(c, 3, "same"),
            linalg.fiedler(c),
            linalg.block_diag(c, c[:2] ** 2),
        ],
        X,
    ),
    "khatri_rao": call(lambda a, b: linalg.khatri_rao(a, b), A, A[:2]),
    "ldl": call(lambda s: linalg.ldl(s)[:2], SYMMETRIC),
    "hessenberg": call(lambda s: [np.abs(m) for m in linalg.hessenberg(s, calc_q=True)], S),
    "diagsvd bandwidth": call(lambda x: linalg.diagsvd(x[:3], 3, 4) @ A.T, X),
    "det stack complex": call(lambda z: [linalg.det(z), linalg.inv(z)], ZM),
}

FFT: dict[str, list[Case]] = {
    "fft keywords": call(lambda a: fft.fft(a, 6, axis=0, norm="ortho", workers=1), A),
    "rfft irfft": call(lambda a: fft.irfft(fft.rfft(a, n=7), n=5, norm="forward"), A),
    "hfft": call(lambda z: [fft.hfft(z, n=7), fft.ihfft(z.real, 5, norm="ortho")], Z),
    "rfftn irfftn": call(lambda t: fft.irfftn(fft.rfftn(t, (2, 4), (0, 2)), s=(2, 3), axes=[0, 2]), T),
    "hfftn": call(
        lambda z: [fft.hfft2(z, s=(3, 4)), fft.hfftn(z, axes=(0,), s=(4,)), fft.ihfftn(z.real)], ZM
    ),
    "dct types": call(lambda a: [fft.dct(a, t, norm=n) for t in (1, 2, 3, 4) for n in (None, "ortho")], A),
    "idct types": call(lambda a: [fft.idct(a, t, 5, axis=0, norm="forward") for t in (1, 2, 3, 4)], A),
    "dst types": call(
        lambda a: [fft.dst(a, t, n=3, norm="ortho", orthogonalize=False) for t in (1, 2, 3, 4)], A
    ),
    "dctn": call(
        lambda t: [
            fft.dctn(t, axes=(1, 2), s=(2, 5)),
            fft.idstn(t, type=3),
            fft.dstn(t, 4, axes=0),
            fft.idctn(t, norm="ortho"),
        ],
        T,
    ),
    "dct orthogonalize complex": call(lambda z: [fft.dct(z, orthogonalize=True), fft.idst(z, 1)], Z),
    "fht": call(lambda a: fft.fht(a, 0.1, 0.5, offset=0.05, bias=-0.2), X),
    "ifht": call(lambda a: fft.ifht(a, 0.1, 1.5), X),
    "shifts": call(lambda t: [fft.fftshift(t, (0, 1)), fft.ifftshift(t)], T),
    "fft2 ifft2": call(lambda z: fft.ifft2(z, s=(4, 4), norm="backward"), ZM),
}


def turned(a: Array) -> Array:
    return Rotation.from_euler("ZYX", 60 * a, degrees=True).as_matrix()


SPATIAL: dict[str, list[Case]] = {
    "cdist metrics": call(
        lambda a, b: [
            distance.cdist(a, b, m)
            for m in ("cityblock", "cosine", "braycurtis", "sqeuclidean", "seuclidean")
        ],
        A,
        A[:2] ** 2 + 0.1,
    ),
    "pdist metrics": call(
        lambda a: [
            distance.pdist(a, m) for m in ("chebyshev", "minkowski", "correlation", "canberra", "mahalanobis")
        ],
        RNG.normal(size=(7, 3)),
    ),
    "cdist minkowski p": call(lambda a, b: distance.cdist(a, b, "minkowski", p=1.5), A, A[:2] ** 2),
    "cdist function": call(lambda a: distance.cdist(a, a**2, distance.canberra), A),
    "distances with weights": call(
        lambda x, y, w: [
            distance.minkowski(x, y, 3, w),
            distance.cosine(x, y, w),
            distance.correlation(x, y, w, False),
            distance.braycurtis(x, y, w),
        ],
        X,
        P,
        X[::-1],
    ),
    "squareform": call(lambda x: distance.squareform(x[:3], "tomatrix"), X),
    "hausdorff": call(lambda a: distance.directed_hausdorff(a, A**2 + 0.3)[0], A),
    "booleans of floats": call(
        lambda x: [distance.dice(x > 0.5, x > 1.0), distance.yule(x > 0.5, x > 1.0)], X
    ),
    "distance_matrix p": call(lambda a: spatial.distance_matrix(a, A[:2] + 1, p=3, threshold=1), A),
    "slerp": call(
        lambda a: spatial.geometric_slerp(
            a / np.linalg.norm(a), np.array([0.0, 0.0, 1.0]), np.linspace(0, 1, 4)
        ),
        X[:3],
    ),
    "rotation euler": call(lambda a: turned(a[:3]), X),
    "rotation stack apply": call(lambda a: Rotation.from_rotvec(a[:, :3]).apply(a[:, 1:]), A),
    "rotation composition": call(
        lambda a: [
            (Rotation.from_quat(a) * Rotation.from_quat(a[0]).inv()).as_rotvec(degrees=True),
            Rotation.from_quat(a).magnitude(),
        ],
        A,
    ),
    "rotation scalar_first": call(
        lambda q: Rotation.from_quat(q[:4], scalar_first=True).as_quat(canonical=True), X
    ),
    "rotation euler single": call(lambda t: Rotation.from_euler("x", t).as_matrix(), 0.7),
    "rotation mean weights": call(
        lambda a: Rotation.from_rotvec(0.3 * a[:, :3]).mean([1.0, 2.0, 0.5]).as_matrix(), A
    ),
    "slerp times": call(
        lambda t: Slerp([0, 1, 2], Rotation.from_rotvec(A[:, :3]))(t).as_rotvec(), [0.3, 1.6]
    ),
    "kmeans2 vq": call(lambda a: vq.vq(a, A[:2, :])[1], A + 0.3),
    "whiten": call(lambda a: vq.whiten(a), A),
    "kdtree": call(lambda a: spatial.KDTree(A).query(a[:2] + 0.1, k=2)[0], A),
}

INTEGRATE: dict[str, list[Case]] = {
    "simpson even": call(
        lambda a: [integrate.simpson(a, dx=0.3), integrate.simpson(a.T, x=np.array([0, 1, 3.0]))], A
    ),
    "simpson in x": call(lambda x: integrate.simpson(np.sin(np.cumsum(x)), x=np.cumsum(x)), X),
    "cumulative": call(
        lambda a: [
            integrate.cumulative_trapezoid(a, dx=0.2, axis=0),
            integrate.cumulative_simpson(a, dx=0.2, initial=0.0),
        ],
        A,
    ),
    "romb axis": call(lambda a: integrate.romb(a, dx=0.4, axis=0), A),
    "fixed_quad": call(
        lambda a: integrate.fixed_quad(lambda x, k: np.sin(k * x), 0.0, a, args=(1.3,), n=4)[0], 0.9
    ),
    "quad args": call(
        lambda k, b: integrate.quad(lambda x, k, c: np.exp(-k * x) * c, 0, b, args=(k, 2.0))[0], 0.7, 1.4
    ),
    "quad infinite weight": call(
        lambda k: [
            integrate.quad(lambda x: np.exp(-k * x), 0, np.inf)[0],
            integrate.quad(lambda x: np.exp(-k * x), 0, 2, weight="cos", wvar=2.0)[0],
        ],
        0.7,
    ),
    "quad points": call(lambda k: integrate.quad(lambda x: np.abs(x - 0.5) ** k, 0, 1, points=[0.5])[0], 1.7),
    "quad method": call(lambda k: integrate.quad(np.polynomial.Polynomial([1.0, 2.0]), 0, k)[0], 1.7),
    "dblquad": call(
        lambda k, b: integrate.dblquad(
            lambda y, x: np.exp(-k * x * y), 0, b, lambda x: x, lambda x: 1 + k * x
        )[0],
        0.7,
        1.1,
    ),
    "nquad options": call(
        lambda k: integrate.nquad(
            lambda x, y, c: np.exp(-c * x * y), [lambda y, c: [0, y], [0, k]], args=(k,)
        )[0],
        0.7,
    ),
    "quad_vec": call(lambda k: integrate.quad_vec(lambda x: np.sin(k * x), 0, 1.0, norm="max")[0], X),
    "tanhsinh vector": call(
        lambda c: integrate.tanhsinh(lambda x, c: np.exp(-c * x), 0.0, np.inf, args=(c,)).integral, X
    ),
    "nsum vector": call(
        lambda p: integrate.nsum(lambda k, p: 1 / k**p, 1, np.inf, args=(p,)).sum,
        X + 1.5,
        second=False,
        rtol=1e-4,
    ),
    "nsum finite": call(lambda p: integrate.nsum(lambda k: p**k, 0, 10).sum, 0.6),
    "cubature 2d": call(
        lambda c: (
            integrate.cubature(
                lambda x: np.exp(-c * x[:, 0] * x[:, 1]), [0, 0], [1, 2.0], rule="gk15"
            ).estimate
        ),
        0.7,
    ),
    "cubature vector": call(
        lambda c: integrate.cubature(lambda x, c: np.sin(x * c), [0.0], [1.0], args=(c,)).estimate,
        X,
        second=False,
    ),
    "cubature in limits": call(
        lambda b: integrate.cubature(lambda x: np.exp(-x[:, 0]), [0.0], b).estimate, [1.3], second=False
    ),
    "solve_ivp": call(
        lambda k: integrate.solve_ivp(
            lambda t, y, k: [y[1], -k * y[0]], [0, 2], [1.0, 0.0], args=(k,), rtol=1e-9, atol=1e-10
        ).y[:, -1],
        1.3,
        second=False,
        rtol=1e-4,
    ),
    "solve_ivp methods": call(
        lambda k: [
            integrate.solve_ivp(
                lambda t, y: -k * y, (0, 1), [1.0], method=m, t_eval=[0.4, 1.0], rtol=1e-9, atol=1e-10
            ).y
            for m in ("RK23", "DOP853", "Radau")
        ],
        1.3,
        second=False,
        rtol=1e-4,
    ),
    "odeint tfirst": call(
        lambda k: integrate.odeint(
            lambda t, y: -k * y, [1.0], [0.0, 1.0], tfirst=True, rtol=1e-10, atol=1e-10
        ),
        1.3,
        second=False,
        rtol=1e-4,
    ),
}


CALLS = {
    "scipy.special": SPECIAL,
    "scipy.linalg": LINALG,
    "scipy.fft": FFT,
    "scipy.spatial": SPATIAL,
    "scipy.integrate": INTEGRATE,
}
