"""The functions and classes of `numpy.polynomial`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.polynomial as package

from tests.coverage.cases import Case, Namespace, call, public_functions

C = np.array([1.2, -0.7, 0.5, 0.9])
D = np.array([0.4, 1.1, -0.8])
X = np.array([0.3, -0.2, 0.55])
Y = np.array([0.1, 0.2, 0.4])
Z = np.array([0.3, -0.3, 0.9])
POINTS = np.linspace(-0.9, 0.8, 7)
MATRIX = np.arange(6.0).reshape(2, 3) * 0.3 - 0.4
BLOCK = np.arange(8.0).reshape(2, 2, 2) * 0.2 - 0.5
ROOTS = np.array([0.2, -2.0, 0.1, 1.0])

MODULES = {
    "polynomial": ("poly", "Polynomial"),
    "chebyshev": ("cheb", "Chebyshev"),
    "legendre": ("leg", "Legendre"),
    "hermite": ("herm", "Hermite"),
    "hermite_e": ("herme", "HermiteE"),
    "laguerre": ("lag", "Laguerre"),
}


def module_cases(name: str, prefix: str) -> dict[str, list[Case]]:
    """Return calls of the functions of one module, by their names without the prefix."""
    module: Any = getattr(package, name)

    def get(suffix: str) -> Any:
        return getattr(module, prefix + suffix)

    own = {
        "line": call(lambda a, b: get("line")(a, b), 0.3, 0.7, second=False),
        **{
            suffix: call(get(suffix), C, D, second=suffix == "div") for suffix in ("add", "sub", "mul", "div")
        },
        "mulx": call(get("mulx"), C, second=False),
        "pow": call(lambda c: get("pow")(c, 3), D),
        "val": call(get("val"), X, C),
        "der": call(lambda c: get("der")(c, 2), C, second=False),
        "int": call(lambda c, k: get("int")(c, 2, [k, 0.1], 0.2, 1.5), C, 0.4, second=False),
        "fromroots": call(get("fromroots"), X, second=False),
        "vander": call(lambda x: get("vander")(x, 3), X),
        "fit": [
            *call(lambda x, y: get("fit")(x, y, 3), POINTS, np.cos(2 * POINTS), second=name == "chebyshev"),
            *call(
                lambda y, w: get("fit")(POINTS, y, [0, 2], w=w),
                np.cos(2 * POINTS),
                1 + POINTS**2,
                second=False,
            ),
        ],
        "trim": call(get("trim"), C, second=False),
        "companion": call(get("companion"), C, second=False),
        "val2d": call(get("val2d"), X, Y, MATRIX, second=False),
        "val3d": call(get("val3d"), X, Y, Z, BLOCK, second=False),
        "grid2d": call(get("grid2d"), X, Y[:2], MATRIX, second=False),
        "grid3d": call(get("grid3d"), X, Y[:2], Z, BLOCK, second=False),
        "vander2d": call(lambda x, y: get("vander2d")(x, y, [2, 1]), X, Y, second=False),
        "vander3d": call(lambda x, y, z: get("vander3d")(x, y, z, [2, 1, 1]), X, Y, Z, second=False),
    }
    cases = {prefix + suffix: found for suffix, found in own.items()}
    if name == "polynomial":
        cases["polyvalfromroots"] = call(module.polyvalfromroots, X, Y)
    else:
        cases[prefix + "weight"] = call(get("weight"), X)
        cases[prefix + "2poly"] = call(get("2poly"), C, second=False)
        cases["poly2" + prefix] = call(getattr(module, "poly2" + prefix), C, second=False)
    if name == "chebyshev":
        cases["chebinterpolate"] = call(
            lambda a: module.chebinterpolate(lambda x, a: np.exp(a * x), 4, args=(a,)), 0.4
        )
    return cases


def coefficients(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the coefficients of its polynomials as its result."""

    def run(*args: Any) -> Any:
        made = function(*args)
        return [getattr(item, "coef", item) for item in (made if isinstance(made, tuple | list) else (made,))]

    return run


def class_cases(kind: Any) -> list[Case]:
    """Return programs with the methods and operators of a class of polynomials."""
    power = package.Polynomial

    def arithmetic(c: Any, d: Any) -> Any:
        p, q = kind(c), kind(d)
        return (
            p + q,
            p - q,
            p * q,
            *divmod(p, q),
            -p,
            q**2,
            2 + p * 0.5,
            p / 2.0,
            kind([1.0, 2.0, 0.0, 1.0]) - q,
        )

    def methods(c: Any, k: Any) -> Any:
        p = kind(c, domain=[-1, 2])
        copied = p.copy().trim(), p.truncate(2), p.cutdeg(2)
        return p.deriv(2), p.integ(1, k=[k], lbnd=0.3), *p.linspace(5), *copied, p.degree() * c

    def converted(c: Any) -> Any:
        p = kind(c, domain=[-1, 2])
        return p.convert(kind=power), package.Chebyshev(c).convert(kind=kind), kind.cast(power(c))

    return [
        *call(lambda c, x: kind(c, domain=[-1, 2])(x), C, X),
        *call(coefficients(arithmetic), C, D, second=False),
        *call(coefficients(methods), C, 0.2, second=False),
        *call(coefficients(converted), C, second=False),
        *call(lambda c, d: kind(c)(kind(d)).coef, D, X, second=False),
        *call(lambda x, y: kind.fit(x, y, 3, domain=[-1, 1]).coef, POINTS, np.cos(2 * POINTS), second=False),
        *call(
            lambda x: kind.fromroots(x).coef + kind.basis(3)(x[0]) * kind.identity()(x[1]), X, second=False
        ),
        *call(
            lambda a, x: [kind(C, domain=a)(x), *kind(C, domain=a).mapparms()], [-1.0, 2.0], X, second=False
        ),
    ]


def root_cases(name: str, prefix: str, kind: str) -> dict[str, list[Case]]:
    """Return calls that find the roots of polynomials: three real ones, and two that are complex."""
    module: Any = getattr(package, name)
    function = getattr(module, f"{prefix}roots")
    return {
        f"{name}.{prefix}roots": [
            *call(function, ROOTS, second=False),
            *call(function, [2.2, 0.4, 1.1], second=False),
            *call(lambda c: getattr(module, kind)(c, domain=[-1, 2]).roots(), ROOTS, second=False),
        ]
    }


ROOT_CASES = {
    name: cases
    for module, (prefix, kind) in MODULES.items()
    for name, cases in root_cases(module, prefix, kind).items()
}
PUBLIC = [
    f"{name}.{function}" for name in MODULES for function in public_functions(getattr(package, name))
] + [kind for _, kind in MODULES.values()]
NUMPY_POLYNOMIAL = Namespace(
    "numpy.polynomial",
    PUBLIC,
    cases={
        **{
            f"{name}.{function}": found
            for name, (prefix, _) in MODULES.items()
            for function, found in module_cases(name, prefix).items()
        },
        **ROOT_CASES,
        **{kind: class_cases(getattr(package, kind)) for _, kind in MODULES.values()},
    },
    others={
        **{
            f"{name}.{prefix}gauss": "points and weights of a number of points"
            for name, (prefix, _) in MODULES.items()
            if prefix != "poly"
        },
        **{f"chebyshev.{name}": "points of a number of points" for name in ("chebpts1", "chebpts2")},
    },
)
