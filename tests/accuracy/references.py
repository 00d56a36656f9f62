"""The functions in arbitrary precision: what the sweep compares with, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import scipy.special
from mpmath import mp

inf = float("inf")
half = mpmath.mpf(1) / 2


class Reference(NamedTuple):
    """A function in arbitrary precision.

    Attributes
    ----------
    function : callable
        The function of NumPy or SciPy.
    exact : callable
        The same of numbers of mpmath. What it raises, and complex results, say that the point is outside the domain.
    domain : tuple of (low, high)
        Per argument: the sweep stays inside, ends included.
    near : tuple of float
        Numbers in whose neighbourhood the sweep has more points.
    bits : int
        The working precision. Differences divide by the square of a step of 2**-(bits / 20), so that most of it serves them.
    """

    function: Callable[..., Any]
    exact: Callable[..., Any]
    domain: tuple[tuple[float, float], ...] = ((-inf, inf),)
    near: tuple[float, ...] = ()
    bits: int = 4000


REFERENCES: dict[str, Reference] = {}

ANY, POSITIVE, UNIT = (-inf, inf), (0.0, inf), (-1.0, 1.0)
MODERATE = (1e-6, 1e6)
SHORT = 700
"""Bits for functions that mpmath computes by series: their sweep stays in a range where that takes milliseconds."""


def _numpy(
    name: str, exact: Callable[..., Any], *domain: tuple[float, float], near: tuple[float, ...] = ()
) -> None:
    REFERENCES[f"np.{name}"] = Reference(getattr(np, name), exact, domain or (ANY,), near)


def _scipy(
    name: str,
    exact: Callable[..., Any],
    *domain: tuple[float, float],
    near: tuple[float, ...] = (),
    bits: int = SHORT,
) -> None:
    function = getattr(scipy.special, name)
    REFERENCES[f"scipy.special.{name}"] = Reference(function, exact, domain or (ANY,), near, bits)


def _logaddexp(x: Any, y: Any, base: Any = None) -> Any:
    top, low = max(x, y), min(x, y)
    unit = mp.log(base) if base else mp.mpf(1)
    return top + mp.log1p(mp.exp((low - top) * unit)) / unit


_numpy("square", lambda x: x * x)
_numpy("sqrt", mp.sqrt, POSITIVE)
_numpy("cbrt", lambda x: mp.sign(x) * mp.cbrt(abs(x)))
_numpy("reciprocal", lambda x: 1 / x)
_numpy("absolute", abs)
_numpy("exp", mp.exp, near=(709.7, -745.0, -708.0, 88.7, -87.3, -103.9))
_numpy("exp2", lambda x: mp.mpf(2) ** x, near=(1023.9, -1022.0, -1074.0, 127.9, -126.0, -149.0))
_numpy("expm1", mp.expm1, near=(709.7, -37.0, 88.7, -17.0))
_numpy("sin", mp.sin, near=(3.14159265, 1.57079633))
_numpy("cos", mp.cos, near=(3.14159265, 1.57079633))
_numpy("tan", mp.tan, near=(3.14159265, 1.57079633))
_numpy("sinh", mp.sinh, near=(710.0, 22.0, 88.7))
_numpy("cosh", mp.cosh, near=(710.0, 22.0, 88.7))
_numpy("tanh", mp.tanh, near=(0.5, 10.0, 19.0, 22.0, 50.0, 373.0))
_numpy("sinc", lambda x: mp.sin(mp.pi * x) / (mp.pi * x), (-1e15, 1e15), near=(0.1, 0.5, 1.0))
_numpy("degrees", lambda x: x * 180 / mp.pi)
_numpy("radians", lambda x: x * mp.pi / 180)
_numpy("log", mp.log, POSITIVE, near=(1.0,))
_numpy("log2", lambda x: mp.log(x) / mp.log(2), POSITIVE, near=(1.0,))
_numpy("log10", lambda x: mp.log(x) / mp.log(10), POSITIVE, near=(1.0,))
_numpy("log1p", mp.log1p, (-1.0, inf), near=(-1.0, -0.5))
_numpy("arcsin", mp.asin, UNIT, near=(0.5, 1.0))
_numpy("arccos", mp.acos, UNIT, near=(0.5, 1.0))
_numpy("arctan", mp.atan, near=(1.0,))
_numpy("arcsinh", mp.asinh, near=(1.0,))
_numpy("arccosh", mp.acosh, (1.0, inf), near=(1.0,))
_numpy("arctanh", mp.atanh, UNIT, near=(0.5, 1.0))
_numpy("multiply", lambda x, y: x * y, ANY, ANY)
_numpy("divide", lambda x, y: x / y, ANY, ANY)
_numpy("hypot", lambda x, y: mp.sqrt(x * x + y * y), ANY, ANY)
_numpy("arctan2", mp.atan2, ANY, ANY)
_numpy("power", lambda x, y: x**y, POSITIVE, ANY)
_numpy("logaddexp", _logaddexp, ANY, ANY)
_numpy("logaddexp2", lambda x, y: _logaddexp(x, y, 2), ANY, ANY)

_scipy("expit", lambda x: 1 / (1 + mp.exp(-x)), near=(710.0, 37.0, 17.0), bits=4000)
_scipy("log_expit", lambda x: -mp.log1p(mp.exp(-x)), near=(710.0, 37.0), bits=4000)
_scipy("logit", lambda x: mp.log(x / (1 - x)), (0.0, 1.0), near=(0.5, 1.0), bits=4000)
_scipy("exp10", lambda x: mp.mpf(10) ** x, near=(308.2, -307.6), bits=4000)
_scipy("cosm1", lambda x: -2 * mp.sin(x / 2) ** 2, bits=4000)
_scipy("exprel", lambda x: mp.expm1(x) / x, near=(709.7, 716.0, -37.0), bits=4000)
_scipy("xlogy", lambda x, y: x * mp.log(y), ANY, POSITIVE, bits=4000)
_scipy("xlog1py", lambda x, y: x * mp.log1p(y), ANY, (-1.0, inf), bits=4000)
_scipy("entr", lambda x: -x * mp.log(x), POSITIVE, near=(1.0, 0.36787944), bits=4000)
_scipy("rel_entr", lambda x, y: x * mp.log(x / y), POSITIVE, POSITIVE, bits=4000)
_scipy("kl_div", lambda x, y: x * mp.log(x / y) - x + y, POSITIVE, POSITIVE, bits=4000)
_scipy("pseudo_huber", lambda d, r: d * d * (mp.sqrt(1 + (r / d) ** 2) - 1), POSITIVE, ANY, bits=4000)
_scipy("boxcox", lambda x, p: mp.expm1(p * mp.log(x)) / p, POSITIVE, (-20.0, 20.0), bits=4000)
_scipy("boxcox1p", lambda x, p: mp.expm1(p * mp.log1p(x)) / p, (-1.0, inf), (-20.0, 20.0), bits=4000)
_scipy("inv_boxcox", lambda y, p: mp.exp(mp.log1p(p * y) / p), (-20.0, 20.0), (-20.0, 20.0), bits=4000)
_scipy("inv_boxcox1p", lambda y, p: mp.expm1(mp.log1p(p * y) / p), (-20.0, 20.0), (-20.0, 20.0), bits=4000)
_scipy("powm1", lambda x, y: mp.powm1(x, y), POSITIVE, ANY, bits=4000)
_scipy("erf", mp.erf, (-30.0, 30.0), near=(6.0, 27.0), bits=3000)
_scipy("erfc", mp.erfc, (-30.0, 30.0), near=(6.0, 27.0), bits=3000)
_scipy("erfcx", lambda x: mp.exp(x * x) * mp.erfc(x), (-26.0, 26.0), near=(6.0, 26.0), bits=2000)
_scipy("erfi", mp.erfi, (-26.0, 26.0), bits=2000)
_scipy("ndtr", mp.ncdf, (-38.0, 38.0), near=(8.0,), bits=3000)
_scipy("log_ndtr", lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), (-38.0, 38.0), near=(8.0,), bits=3000)
_scipy("gamma", mp.gamma, (1e-308, 171.6), near=(1.0, 2.0, 171.0))
_scipy("gammaln", mp.loggamma, (1e-308, 1e300), near=(1.0, 2.0))
_scipy("rgamma", mp.rgamma, (-30.3, 171.0), near=(1.0,))
_scipy("psi", mp.digamma, (1e-308, 1e300), near=(1.4616321449683622, 1.0))
_scipy("j0", mp.j0, (-300.0, 300.0), near=(2.404825557695773,))
_scipy("j1", mp.j1, (-300.0, 300.0), near=(3.8317059702075125,))
_scipy("i0", lambda x: mp.besseli(0, x), (-713.0, 713.0), near=(713.0, 8.0), bits=3000)
_scipy("i1", lambda x: mp.besseli(1, x), (-713.0, 713.0), near=(713.0, 8.0), bits=3000)
_scipy("i0e", lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), (-700.0, 700.0), near=(8.0,), bits=3000)
_scipy("i1e", lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), (-700.0, 700.0), near=(8.0,), bits=3000)
_scipy("k0", lambda x: mp.besselk(0, x), (1e-300, 700.0), near=(2.0,))
_scipy("k1", lambda x: mp.besselk(1, x), (1e-300, 700.0), near=(2.0,))
_scipy("exp1", mp.e1, (1e-300, 700.0), near=(1.0,))
_scipy("expi", mp.ei, (1e-300, 700.0), near=(0.37250741078136663,), bits=3000)
_scipy("ellipk", mp.ellipk, (-1e6, 1.0), near=(1.0,))
_scipy("ellipe", mp.ellipe, (-1e6, 1.0), near=(1.0,))
_scipy("agm", mp.agm, (1e-300, 1e300), (1e-300, 1e300))
_scipy("elliprc", mp.elliprc, (1e-100, 1e100), (1e-100, 1e100))
_scipy("elliprf", mp.elliprf, *(MODERATE,) * 3)
_scipy("elliprd", mp.elliprd, *(MODERATE,) * 3)
_scipy("elliprg", mp.elliprg, *(MODERATE,) * 3)
_scipy(
    "betainc",
    lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
    (0.05, 30.0),
    (0.05, 30.0),
    (1e-3, 0.999),
)
