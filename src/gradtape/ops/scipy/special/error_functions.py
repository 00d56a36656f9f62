"""Error functions and related ones: Dawson's, Faddeeva's, Voigt's, Fresnel's."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Libm, SciPy, elementwise
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.logic import equal, greater
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs, hypot
from gradtape.ops.scipy.special.rows import joined, result, several, special

inf, nan = np.inf, np.nan
SQRT_PI = math.sqrt(math.pi)
TAILS = ((0.0,), (inf,), (-inf,), (nan,), (5.0,), (-5.0,), (26.0,), (-26.0,))

erf = elementwise(
    "erf",
    "scipy.special:erf",
    body=Libm("erf"),
    partials=(lambda z, x: 2.0 / SQRT_PI * exp(-(x * x)),),
    edges=TAILS,
    slopes=(((0.0,), (2.0 / SQRT_PI,)), ((inf,), (0.0,))),
    dtype_samples="df",
)
erfc = elementwise(
    "erfc",
    "scipy.special:erfc",
    body=Libm("erfc"),
    partials=(lambda z, x: -2.0 / SQRT_PI * exp(-(x * x)),),
    edges=TAILS,
    slopes=(((0.0,), (-2.0 / SQRT_PI,)), ((26.0,), (-2.9470349932662695e-294,)), ((-inf,), (0.0,))),
    dtype_samples="df",
)


def erfcx_slope(z: Value, x: Value) -> Value:
    """Far to the right 2 x z and 2 / sqrt(pi) cancel; there the asymptotic series takes over (to 1e-14)."""
    inverse = 0.5 / (x * x)
    series: Value | float = 1.0
    for odd in (11.0, 9.0, 7.0, 5.0, 3.0):
        series = 1.0 - odd * inverse * series
    far = (-2.0 / SQRT_PI) * inverse * series
    return where(greater(x, 50.0), far, 2.0 * x * z - 2.0 / SQRT_PI)


erfcx = elementwise(
    "erfcx",
    "scipy.special:erfcx",
    body=SciPy("erfcx"),
    partials=(erfcx_slope,),
    edges=((0.0,), (inf,), (-inf,), (nan,), (-26.0,), (1e5,)),
    slopes=(
        ((0.0,), (-2.0 / SQRT_PI,)),
        ((51.0,), (-2.1678759208511815e-4,)),
        ((1e5,), (-5.641895834631e-11,)),
        ((inf,), (0.0,)),
    ),
    dtype_samples="df",
)
erfinv = elementwise(
    "erfinv",
    "scipy.special:erfinv",
    body=SciPy("erfinv"),
    partials=(lambda z, x: 0.5 * SQRT_PI * exp(z * z),),
    domain=((-0.8, 0.8),),
    edges=((0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (1e-300,)),
    slopes=(((0.0,), (0.5 * SQRT_PI,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples="df",
)
erfcinv = elementwise(
    "erfcinv",
    "scipy.special:erfcinv",
    body=SciPy("erfcinv"),
    partials=(lambda z, x: -0.5 * SQRT_PI * exp(z * z),),
    domain=((0.2, 1.8),),
    edges=((0.0,), (2.0,), (1.0,), (3.0,), (nan,), (1e-300,)),
    slopes=(((1.0,), (-0.5 * SQRT_PI,)), ((2.0,), (-inf,))),
    kinks="-inf at 0 and at 2",
    dtype_samples="df",
)
erfi = special(
    "erfi",
    lambda z, x: 2.0 / SQRT_PI * exp(x * x),
    domain=((-2.0, 2.0),),
    edges=((0.0,), (inf,), (-inf,), (nan,), (5.0,)),
    slopes=(((0.0,), (2.0 / SQRT_PI,)),),
    dtype_samples="df",
)


def _dawsn_slope(z: Value, x: Value) -> Value:
    """Far from zero 1 and 2 x z cancel; there the asymptotic series takes over."""
    near = 1.0 - 2.0 * x * z
    if x.dtype.kind == "c":
        return near
    inverse = 0.5 / (x * x)
    series: Value | float = 1.0
    for odd in (11.0, 9.0, 7.0, 5.0, 3.0):
        series = 1.0 + odd * inverse * series
    return where(greater(fabs(x), 50.0), -inverse * series, near)


dawsn = special(
    "dawsn",
    _dawsn_slope,
    domain=((-4.0, 4.0),),
    edges=((0.0,), (inf,), (-inf,), (nan,), (60.0,)),
    slopes=(((0.0,), (1.0,)), ((100.0,), (np.float64(-5.000750187567071e-05),))),
    dtype_samples="df",
)

PLANE = ((-2.0, 2.0), (0.1, 2.0))


def _faddeeva_x(re: Value, im: Value, x: Value, y: Value) -> tuple[Value, Value]:
    """Return the parts of the derivative, ``-2 z w + 2i / sqrt(pi)``."""
    return -2.0 * (x * re - y * im), 2.0 / SQRT_PI - 2.0 * (x * im + y * re)


wofz_real: Elementwise = result(
    "wofz",
    None,
    "wofz_real",
    lambda z, x, y: _faddeeva_x(z, wofz_imag(x, y), x, y)[0],
    lambda z, x, y: -_faddeeva_x(z, wofz_imag(x, y), x, y)[1],
    part="real",
    loop="D->D",
    domain=PLANE,
)
wofz_imag: Elementwise = result(
    "wofz",
    None,
    "wofz_imag",
    lambda z, x, y: _faddeeva_x(wofz_real(x, y), z, x, y)[1],
    lambda z, x, y: _faddeeva_x(wofz_real(x, y), z, x, y)[0],
    part="imag",
    loop="D->D",
    domain=PLANE,
)
wofz = elementwise(
    "wofz",
    "scipy.special:wofz",
    body=SciPy("wofz"),
    complex_body=lambda z: (wofz_real(*z), wofz_imag(*z)),
    partials=(lambda w, z: -2.0 * z * w + 2j / SQRT_PI,),
    domain=((-2.0, 2.0),),
    dtype_samples="D",
)


def _voigt(name: str) -> Elementwise:
    def parts(x: Value, sigma: Value, gamma: Value) -> tuple[Value, Value]:
        """Return the derivatives in x and in gamma, where the profile is the real part of ``w((x + i gamma) / (sigma sqrt(2)))``."""
        narrow = equal(sigma, 0.0)
        scale = 1.0 / (math.sqrt(2.0) * where(narrow, 1.0, sigma))
        u, v = x * scale, gamma * scale
        re, im = _faddeeva_x(wofz_real(u, v), wofz_imag(u, v), u, v)
        factor = scale * scale / SQRT_PI
        # Cauchy's profile, gamma / (pi (x**2 + gamma**2)).
        length = where(narrow, hypot(x, gamma), 1.0)
        a, b = x / length, gamma / length
        cauchy = 1.0 / (math.pi * length * length)
        return (
            where(narrow, -2.0 * (a * b) * cauchy, factor * re),
            where(narrow, (a - b) * (a + b) * cauchy, -factor * im),
        )

    def in_sigma(z: Value, x: Value, sigma: Value, gamma: Value) -> Value:
        along, across = parts(x, sigma, gamma)
        narrow = equal(sigma, 0.0)
        return where(narrow, 0.0, -(z + x * along + gamma * across) / where(narrow, 1.0, sigma))

    return special(
        name,
        lambda z, x, sigma, gamma: parts(x, sigma, gamma)[0],
        in_sigma,
        lambda z, x, sigma, gamma: parts(x, sigma, gamma)[1],
        domain=((-3.0, 3.0), (0.5, 2.0), (0.2, 2.0)),
        slopes=(((1.0, 0.0, 2.0), (-4.0 / (25.0 * math.pi), 0.0, -3.0 / (25.0 * math.pi))),),
    )


voigt_profile = _voigt("voigt_profile")

WAVE = ((-2.0, 2.0),)
fresnel_s = result(
    "fresnel", 0, "fresnel_s", lambda z, x: sin(0.5 * math.pi * x * x), domain=WAVE, dtype_samples="df"
)
fresnel_c = result(
    "fresnel", 1, "fresnel_c", lambda z, x: cos(0.5 * math.pi * x * x), domain=WAVE, dtype_samples="df"
)
several("fresnel", fresnel_s, fresnel_c)


def _modified(ufunc: str, sign: float) -> None:
    """Enter the modified Fresnel integrals: of ``exp(+-i t**2)`` from x on, and scaled by ``exp(-+i (x**2 + pi/4)) / sqrt(pi)``.

    For x < 0 SciPy's values lack a term; the derivatives are right.
    """
    half = 1.0 / math.sqrt(2.0 * math.pi)
    f_real = result(
        ufunc, 0, f"{ufunc}_f_real", lambda z, x: -cos(x * x), part="real", loop="d->DD", domain=((0.1, 2.0),)
    )
    f_imag = result(
        ufunc,
        0,
        f"{ufunc}_f_imag",
        lambda z, x: -sign * sin(x * x),
        part="imag",
        loop="d->DD",
        domain=((0.1, 2.0),),
    )
    k_real: Elementwise = result(
        ufunc,
        1,
        f"{ufunc}_k_real",
        lambda z, x: sign * 2.0 * x * k_imag(x) - half,
        part="real",
        loop="d->DD",
        domain=((0.1, 2.0),),
    )
    k_imag: Elementwise = result(
        ufunc,
        1,
        f"{ufunc}_k_imag",
        lambda z, x: sign * (half - 2.0 * x * k_real(x)),
        part="imag",
        loop="d->DD",
        domain=((0.1, 2.0),),
    )
    several(ufunc, joined(f_real, f_imag), joined(k_real, k_imag))


_modified("modfresnelp", 1.0)
_modified("modfresnelm", -1.0)
