"""The functions of `scipy.special`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

from tests.coverage.cases import Case, Namespace, because, call, public_functions

X = np.array([0.35, 0.9, 1.4])
Y = np.array([1.2, 0.7, 2.3])
Z = np.array([0.8, 2.1, 1.6])
W = np.array([1.7, 0.6, 1.1])
P = np.array([0.3, 0.55, 0.8])
WIDE = np.array([-2.2, 0.4, 3.1])
SMALL = np.array([-0.6, 0.2, 0.7])
FAR = np.array([2.2, 2.9, 3.4])
DEGREES = np.array([20.0, 45.0, 70.0])
COMPLEX = np.array([0.4 + 0.3j, 1.2 - 0.5j, 0.8 + 0.9j])


def of(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """Return a function of the last argument, where the ones before it are given."""
    return lambda x: function(*given, x)


def of_number(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """Return the same for a function that takes a number, not an array."""
    return lambda x: function(*given, x[()])


def with_order(function: Callable[..., Any], first: Any, last: Any) -> Callable[..., Any]:
    """Return a function of the second of three arguments."""
    return lambda x: function(first, x, last)


def derivative_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the derivative of spherical functions of several orders."""
    return lambda x: function(np.array([0, 1, 3]), x, derivative=True)


def made_of(function: Callable[..., Any], degree: int) -> Callable[..., Any]:
    """Return the values of a polynomial of a degree, which is an object."""
    return lambda x: function(degree)(x)


def cases_of(names: str, *arrays: Any, rtol: float = 2e-5) -> dict[str, list[Case]]:
    """Return the same call of several functions; the registry tests second derivatives of ufuncs."""
    return {name: call(getattr(sp, name), *arrays, second=False, rtol=rtol) for name in names.split()}


ORDER = np.array([0.4, 1.3, 2.2])
POLYNOMIALS = (
    "eval_legendre eval_chebyt eval_chebyu eval_chebyc eval_chebys eval_laguerre eval_sh_legendre eval_sh_chebyt "
    "eval_sh_chebyu eval_hermite eval_hermitenorm"
)
FAMILIES = "legendre chebyt chebyu chebyc chebys laguerre hermite hermitenorm sh_legendre sh_chebyt sh_chebyu"

CASES: dict[str, list[Case]] = {
    **cases_of(
        "erf erfc erfcx erfi dawsn ndtr log_ndtr cosm1 exprel exp2 exp10 expm1 cbrt expit log_expit sinc softplus fresnel sici "
        "shichi i0e i1e j0 j1 i0 i1 ber bei berp beip sindg cosdg tandg",
        X,
    ),
    **cases_of(
        "gamma gammaln loggamma rgamma psi digamma log1p exp1 expi entr spence wrightomega k0 k1 k0e k1e y0 y1 ker kei kerp keip kelvin "
        "airy airye modfresnelp modfresnelm cotdg",
        Y,
    ),
    **cases_of("zetac kolmogorov", 1.0 + 0.3 * X),
    **cases_of("itairy iti0k0 itj0y0 it2i0k0 it2j0y0 itstruve0 itmodstruve0 it2struve0", Y, rtol=1e-4),
    **cases_of("erfinv", SMALL),
    **cases_of("erfcinv ndtri logit kolmogi", P),
    "ndtri_exp": call(sp.ndtri_exp, -Y, second=False),
    **cases_of("ellipk ellipe", SMALL),
    "ellipkm1": call(sp.ellipkm1, P, second=False),
    **cases_of("ellipkinc ellipeinc ellipj", WIDE, P),
    **cases_of(
        "elliprc agm beta betaln poch boxcox boxcox1p inv_boxcox inv_boxcox1p powm1 kl_div rel_entr xlogy xlog1py",
        Y,
        Z,
    ),
    **cases_of("huber pseudo_huber owens_t", Y, WIDE),
    **cases_of("elliprd elliprf elliprg", X, Y, Z),
    "elliprj": call(sp.elliprj, X, Y, Z, W, second=False),
    "binom": call(sp.binom, 2.0 + Y, X, second=False),
    "voigt_profile": call(sp.voigt_profile, WIDE, Y, X, second=False),
    "radian": call(sp.radian, 20 * X, Y, Z, second=False),
    "tklmbda": call(sp.tklmbda, 0.5 * SMALL, P, second=False, rtol=1e-4),
    **cases_of("jv jn yv iv kv jve yve ive kve", ORDER, Y),
    **{name: call(of(getattr(sp, name), 2), Y, second=False) for name in ("kn", "yn", "expn")},
    **{
        name: call(of(getattr(sp, name), 0.7), Y, second=False)
        for name in ("hankel1", "hankel2", "hankel1e", "hankel2e", "struve", "modstruve")
    },
    **{
        name: [
            *call(of(getattr(sp, name), 2), Y, second=False),
            *call(derivative_of(getattr(sp, name)), Y, second=False),
        ]
        for name in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn")
    },
    **{
        name: [
            *call(with_order(getattr(sp, name), 1.3, 2), Y),
            *call(getattr(sp, name), ORDER, Y, second=False),
        ]
        for name in ("jvp", "yvp", "ivp", "kvp")
    },
    **{name: call(with_order(getattr(sp, name), 1.3, 2), Y, second=False) for name in ("h1vp", "h2vp")},
    **{
        name: call(of_number(getattr(sp, name), 3), 1.3, second=False)
        for name in ("riccati_jn", "riccati_yn")
    },
    "lmbda": call(of_number(sp.lmbda, 2), 1.3, second=False),
    "besselpoly": call(lambda a, lmb: sp.besselpoly(a, lmb, 1.5), X, Y, second=False),
    "wofz": [*call(sp.wofz, X, second=False), *call(sp.wofz, COMPLEX, second=False)],
    "lambertw": [
        *call(sp.lambertw, Y, second=False),
        *call(lambda z: sp.lambertw(z, -1), COMPLEX, second=False),
    ],
    "zeta": [
        *call(sp.zeta, 1.5 + X, Y, second=False),
        *call(sp.zeta, 1.5 + X),
        *call(sp.zeta, -X, second=False),
    ],
    "polygamma": [
        *call(of(sp.polygamma, 2), Y),
        *call(of(sp.polygamma, np.array([0, 1, 3])), Y, second=False),
    ],
    "multigammaln": call(lambda a: sp.multigammaln(a, 3), 2.0 + Y),
    "comb": [
        *call(sp.comb, 3.0 + Y, X, second=False),
        *call(lambda n, k: sp.comb(n, k, repetition=True), 3.0 + Y, X, second=False),
    ],
    "perm": call(sp.perm, 3.0 + Y, X, second=False),
    "factorial": call(sp.factorial, Y),
    "factorial2": call(lambda n: sp.factorial2(n, extend="complex"), Y, second=False),
    "factorialk": call(lambda n: sp.factorialk(n, 3, extend="complex"), Y, second=False),
    "diric": call(lambda x: sp.diric(x, 4), Y),
    # Incomplete functions and distributions
    **cases_of("gammainc gammaincc chdtr chdtrc", Y, Z),
    **cases_of("gammaincinv gammainccinv chdtri", Y, P),
    "chdtriv": call(sp.chdtriv, P, Z, second=False),
    **cases_of("betainc betaincc betaincinv betainccinv fdtri", Y, Z, P, rtol=1e-4),
    **cases_of("fdtr fdtrc gdtr gdtrc", X, Y, Z),
    "gdtria": call(sp.gdtria, P, Y, Z, second=False, rtol=1e-4),
    "gdtrib": call(sp.gdtrib, X, P, Z, second=False, rtol=1e-4),
    "gdtrix": call(sp.gdtrix, X, Y, P, second=False, rtol=1e-4),
    "btdtria": call(sp.btdtria, P, Y, P[::-1], second=False, rtol=1e-4),
    "btdtrib": call(sp.btdtrib, Y, P, P[::-1], second=False, rtol=1e-4),
    "stdtr": call(sp.stdtr, 1.0 + Y, WIDE, second=False),
    "stdtrit": call(sp.stdtrit, 1.0 + Y, P, second=False, rtol=1e-4),
    "stdtridf": call(sp.stdtridf, [0.8, 0.81], [1.0, 1.05], second=False, rtol=1e-3),
    "fdtridfd": call(sp.fdtridfd, [2.0, 3.0], [0.5, 0.52], [1.0, 1.05], second=False, rtol=1e-3),
    **{
        name: call(of(getattr(sp, name), 2, 5), P, second=False)
        for name in ("bdtr", "bdtrc", "bdtri", "nbdtr", "nbdtrc", "nbdtri")
    },
    **{name: call(of(getattr(sp, name), 2), Y, second=False) for name in ("pdtr", "pdtrc")},
    "pdtri": call(of(sp.pdtri, 2), P, second=False),
    "pdtrik": call(sp.pdtrik, P, 3.0 + Z, second=False, rtol=1e-4),
    "bdtrik": call(sp.bdtrik, P, 6.0 + Z, [0.5, 0.6, 0.4], second=False, rtol=1e-4),
    "bdtrin": call(sp.bdtrin, Z, P, [0.5, 0.6, 0.4], second=False, rtol=1e-4),
    "nbdtrik": call(sp.nbdtrik, P, 3.0 + Z, [0.3, 0.4, 0.2], second=False, rtol=1e-4),
    "nbdtrin": call(sp.nbdtrin, Z, P, [0.5, 0.6, 0.4], second=False, rtol=1e-4),
    "nrdtrimn": call(sp.nrdtrimn, P, Y, Z, second=False),
    "nrdtrisd": call(sp.nrdtrisd, -Y, [0.6, 0.7, 0.8], Z, second=False),
    **{name: call(of(getattr(sp, name), 4), 0.5 * P, second=False) for name in ("smirnov", "smirnovi")},
    "chndtr": call(sp.chndtr, Y, Z, X, second=False),
    "chndtrix": call(sp.chndtrix, P, Z, X, second=False, rtol=1e-4),
    "chndtridf": call(sp.chndtridf, 1.0 + Y, 0.5 * P, X, second=False, rtol=1e-3),
    "chndtrinc": call(sp.chndtrinc, Y, Z, 0.3 * P, second=False, rtol=1e-3),
    "nctdtr": call(sp.nctdtr, 2.0 + Y, X, WIDE, second=False, rtol=1e-4),
    "nctdtrit": call(sp.nctdtrit, 2.0 + Y, X, P, second=False, rtol=1e-4),
    "nctdtridf": call(sp.nctdtridf, [0.6, 0.7], [0.9, 1.0], [1.5, 1.9], second=False, rtol=1e-3),
    "nctdtrinc": call(sp.nctdtrinc, 2.0 + Y, P, Z, second=False, rtol=1e-3),
    "ncfdtr": call(sp.ncfdtr, 1.0 + Y, 2.0 + Z, X, W, second=False, rtol=1e-4),
    "ncfdtri": call(sp.ncfdtri, 1.0 + Y, 2.0 + Z, X, P, second=False, rtol=1e-4),
    "ncfdtridfn": call(
        sp.ncfdtridfn, [0.5, 0.52], [3.0, 4.0], [0.3, 0.5], [1.0, 1.05], second=False, rtol=1e-3
    ),
    "ncfdtridfd": call(
        sp.ncfdtridfd, [3.0, 4.0], [0.4, 0.42], [0.3, 0.5], [1.0, 1.05], second=False, rtol=1e-3
    ),
    "ncfdtrinc": call(sp.ncfdtrinc, 1.0 + Y, 2.0 + Z, 0.4 * P, W, second=False, rtol=1e-3),
    # Hypergeometric functions, in the argument
    "hyp0f1": call(of(sp.hyp0f1, 1.5), WIDE, second=False),
    "hyp1f1": call(of(sp.hyp1f1, 1.5, 0.7), WIDE, second=False),
    "hyperu": call(of(sp.hyperu, 1.5, 0.7), Y, second=False, rtol=1e-4),
    "hyp2f1": call(of(sp.hyp2f1, 1.5, 0.7, 2.2), SMALL, second=False),
    "wright_bessel": call(of(sp.wright_bessel, 1.5, 0.7), Y, second=False),
    "log_wright_bessel": call(of(sp.log_wright_bessel, 1.5, 0.7), Y, second=False),
    # Polynomials
    **{name: call(of(getattr(sp, name), 3), P, second=False) for name in POLYNOMIALS.split()},
    "eval_gegenbauer": call(lambda a, x: sp.eval_gegenbauer(3, a, x), 1.5, P, second=False),
    "eval_genlaguerre": call(lambda a, x: sp.eval_genlaguerre(3, a, x), 1.5, P, second=False),
    "eval_jacobi": call(lambda a, b, x: sp.eval_jacobi(3, a, b, x), X, Y, P),
    "eval_sh_jacobi": call(lambda p, q, x: sp.eval_sh_jacobi(3, p, q, x), 1.5, 0.7, P, second=False),
    "assoc_laguerre": call(lambda x, k: sp.assoc_laguerre(x, 3, k), P, 1.5, second=False),
    **{name: call(made_of(getattr(sp, name), 3), P, second=False) for name in FAMILIES.split()},
    "genlaguerre": call(lambda x: sp.genlaguerre(3, 1.5)(x), P, second=False),
    "gegenbauer": call(lambda x: sp.gegenbauer(3, 1.5)(x), P, second=False),
    "jacobi": call(lambda x: sp.jacobi(3, 1.5, 0.7)(x), P, second=False),
    "sh_jacobi": call(lambda x: sp.sh_jacobi(3, 1.5, 0.7)(x), P, second=False),
    "lpmv": call(of(sp.lpmv, 1, 2.5), SMALL, second=False),
    "legendre_p": [
        *call(of(sp.legendre_p, 3), SMALL),
        *call(lambda x: sp.legendre_p(np.array([[0], [2]]), x, diff_n=2), SMALL, second=False),
    ],
    "assoc_legendre_p": [
        *call(of(sp.assoc_legendre_p, 3, 2), SMALL),
        *call(lambda x: sp.assoc_legendre_p(3, -1, x, norm=True, diff_n=2), SMALL, second=False),
    ],
    "sph_legendre_p": call(lambda x: sp.sph_legendre_p(3, 2, x, diff_n=1), Y),
    "sph_harm_y": [
        *call(lambda t, p: sp.sph_harm_y(3, -2, t, p), Y, WIDE),
        *call(lambda t, p: sp.sph_harm_y(3, 1, t, p, diff_n=1), Y, WIDE, second=False),
    ],
    "legendre_p_all": call(of(sp.legendre_p_all, 3), SMALL, second=False),
    "assoc_legendre_p_all": call(of(sp.assoc_legendre_p_all, 3, 2), SMALL, second=False),
    "sph_legendre_p_all": call(of(sp.sph_legendre_p_all, 3, 2), Y, second=False),
    "sph_harm_y_all": call(lambda t, p: sp.sph_harm_y_all(2, 1, t, p), Y, WIDE, second=False),
    "lqn": call(of(sp.lqn, 3), np.array([0.4, -0.6, 2.0]), second=False),
    "pbdn_seq": call(of_number(sp.pbdn_seq, 3), 1.3, second=False),
    # Functions of wave equations
    **{
        name: call(of(getattr(sp, name), 2), Y, second=False, rtol=1e-4)
        for name in ("mathieu_a", "mathieu_b")
    },
    **{
        name: call(of(getattr(sp, name), 2, 1.3), DEGREES, second=False, rtol=1e-4)
        for name in ("mathieu_cem", "mathieu_sem")
    },
    **{
        name: call(of(getattr(sp, name), 2, 1.3), X, second=False, rtol=1e-3)
        for name in ("mathieu_modcem1", "mathieu_modcem2", "mathieu_modsem1", "mathieu_modsem2")
    },
    **{name: call(of(getattr(sp, name), 1, 2), Y, second=False, rtol=1e-4) for name in ("pro_cv", "obl_cv")},
    **{
        name: call(of(getattr(sp, name), 1, 2, 2.0), P, second=False, rtol=1e-3)
        for name in ("pro_ang1", "obl_ang1")
    },
    **{
        name: call(of(getattr(sp, name), 1, 2, 2.0), FAR, second=False, rtol=1e-3)
        for name in ("pro_rad1", "pro_rad2", "obl_rad1", "obl_rad2")
    },
    "pro_ang1_cv": call(of(sp.pro_ang1_cv, 1, 2, 2.0, sp.pro_cv(1, 2, 2.0)), P, second=False, rtol=1e-3),
    "obl_ang1_cv": call(of(sp.obl_ang1_cv, 1, 2, 2.0, sp.obl_cv(1, 2, 2.0)), P, second=False, rtol=1e-3),
    **{
        f"{kind}_{name}_cv": call(
            of(getattr(sp, f"{kind}_{name}_cv"), 1, 2, 2.0, getattr(sp, f"{kind}_cv")(1, 2, 2.0)),
            FAR,
            second=False,
            rtol=1e-3,
        )
        for kind in ("pro", "obl")
        for name in ("rad1", "rad2")
    },
    **{
        name: call(of_number(getattr(sp, name), 1, 4), 1.3, second=False, rtol=1e-4)
        for name in ("pro_cv_seq", "obl_cv_seq")
    },
    **{
        name: call(of(getattr(sp, name), 1.5), Y, second=False, rtol=1e-4)
        for name in ("pbdv", "pbvv", "pbwa")
    },
    **{
        name: call(of_number(getattr(sp, name), 2.5), 1.3, second=False, rtol=1e-4)
        for name in ("pbdv_seq", "pbvv_seq")
    },
    # Reductions
    "logsumexp": [*call(sp.logsumexp, X), *call(lambda a, b: sp.logsumexp(a, b=b), X, Y)],
    "softmax": call(sp.softmax, X),
    "log_softmax": call(sp.log_softmax, X),
}

CONSTANT: dict[str, list[Case]] = {
    "gammasgn": call(sp.gammasgn, WIDE),
    "round": call(sp.round, WIDE),
}

NUMBERS = (
    "ai_zeros bei_zeros beip_zeros ber_zeros bernoulli berp_zeros bi_zeros erf_zeros euler fresnel_zeros fresnelc_zeros fresnels_zeros "
    "jn_zeros jnjnp_zeros jnp_zeros jnyn_zeros kei_zeros keip_zeros kelvin_zeros ker_zeros kerp_zeros y0_zeros y1_zeros y1p_zeros "
    "yn_zeros ynp_zeros stirling2"
)
ROOTS = (
    "legendre chebyt chebyu chebyc chebys jacobi laguerre genlaguerre hermite hermitenorm gegenbauer sh_legendre sh_chebyt "
    "sh_chebyu sh_jacobi"
)
LAME = "Lame functions are the solutions of an eigenvalue problem"
COEFFICIENTS = "the coefficients are those of a recurrence that SciPy computes in compiled code"
SHORT = "p t u c s j l la h he cg ps ts us js"

SCIPY_SPECIAL = Namespace(
    "scipy.special",
    public_functions(sp),
    cases=CASES,
    constant=CONSTANT,
    refused={
        "lqmn": "its results are a table of two recurrences that SciPy computes in compiled code",
        "ellip_harm": LAME,
        "ellip_harm_2": LAME,
        "ellip_normal": LAME,
        "mathieu_even_coef": COEFFICIENTS,
        "mathieu_odd_coef": COEFFICIENTS,
    },
    refusals={
        "lqmn": call(of(sp.lqmn, 2, 3), 0.4),
        "ellip_harm": call(lambda s: sp.ellip_harm(1.0, 2.0, 1, 1, s), 1.5),
        "ellip_harm_2": call(lambda s: sp.ellip_harm_2(1.0, 2.0, 1, 1, s), 2.5),
        "ellip_normal": call(lambda h: sp.ellip_normal(h, 4.0, 1, 1), 1.5),
        "mathieu_even_coef": call(of_number(sp.mathieu_even_coef, 2), 1.3),
        "mathieu_odd_coef": call(of_number(sp.mathieu_odd_coef, 2), 1.3),
    },
    others={
        **because(
            numbers_of_whole_numbers=NUMBERS,
            settings_of_error_handling="geterr seterr",
        ),
        **{f"roots_{name}": "points and weights of a number of points" for name in ROOTS.split()},
        **{f"{name}_roots": "points and weights of a number of points" for name in SHORT.split()},
    },
)
