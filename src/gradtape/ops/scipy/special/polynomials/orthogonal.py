"""Orthogonal polynomials: their derivatives are polynomials of a degree less, of other parameters (DLMF 18.9.15 ff.).

Derivatives in parameters are sums over all lower degrees (Froehlich, Parameter derivatives of the Jacobi polynomials, 1994).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64
from gradtape.kinds.elementwise import Elementwise, Refused, Rule
from gradtape.kinds.operands import broadcast_shapes
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import equal, greater
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.gamma import binom, poch, psi
from gradtape.ops.scipy.special.quadrature import sum_over
from gradtape.ops.scipy.special.rows import refused, special

DEGREES = "the degree is a whole number"


class OfKnownDegree(Refused):
    """The derivative in a parameter, which is a sum over the lower degrees: there is none where the degree is traced.

    Parameters
    ----------
    function : str
        In `scipy.special`.
    argument : str
        The parameter.
    formula : callable
        Returns the derivative, of the degrees as an array, of the result, and of the other arguments.
    """

    def __init__(self, function: str, argument: str, formula: Callable[..., Value]) -> None:
        super().__init__(
            f"scipy.special.{function} of a traced degree in its argument {argument}",
            "the formula is a sum over all lower degrees",
        )
        self.formula = formula

    def __call__(self, *args: Any, **params: Any) -> Value:
        """Return the derivative, or raise the error."""
        z, n, *others = args
        degrees = _known(n)
        if degrees is None or np.any(degrees != np.floor(degrees)):
            return super().__call__(*args, **params)
        return self.formula(np.asarray(degrees, np.int64), z, *others)


def _known(x: Value) -> NDArray | None:
    """Return numbers that are constant, or computed of constants; None for others."""
    if x.data is not None:
        return np.asarray(x.data)
    if x.node is None:
        return None
    operands = [_known(operand) for operand in x.node.inputs]
    arrays = [operand for operand in operands if operand is not None]
    if len(arrays) < len(operands):
        return None
    return x.node.op.evaluate(arrays, x.node.params)[x.node.outs.index(x)]


def _lower_sum(
    n: NDArray,
    term: Callable[..., tuple[Value, Value]],
    row: Callable[..., Value],
    z: Value,
    *arguments: Value,
) -> Value:
    """Return the sum over k < n of ``first * z + second * row(k, *arguments)``, where `term` returns the two coefficients.

    `term` has the arguments ``(k, n, n - k, sign, *arguments)``, where the sign is ``(-1)**(n-k)``.
    """
    shape = broadcast_shapes([n.shape, *[x.shape for x in (z, *arguments)]])
    k = np.arange(max(int(n.max(initial=0)), 1))
    degrees = np.repeat(np.broadcast_to(n, shape)[..., None], k.size, axis=-1)
    inside = k < degrees
    distance = np.where(inside, degrees - k, 1)

    def addend(
        k: Value, weight: Value, n: Value, distance: Value, sign: Value, z: Value, *arguments: Value
    ) -> Value:
        first, second = term(convert(k, FLOAT64), n, distance, sign, *arguments)
        return weight * (first * z + second * row(k, *arguments))

    given = [x * 1.0 for x in (inside, degrees, distance, (-1.0) ** distance)]
    return sum_over([k, *given], addend, shape, z, *arguments)


def _gegenbauer_term(
    k: Value, n: Value, distance: Value, sign: Value, a: Value, x: Value
) -> tuple[Value, Value]:
    upper = k + n + 2.0 * a
    own = 2.0 * (1.0 + k) / ((k + 2.0 * a) * (1.0 + 2.0 * k + 2.0 * a)) + 2.0 / upper
    return own, 2.0 * (1.0 + sign) * (k + a) / (upper * distance)


def _jacobi_term(second: bool) -> Callable[..., tuple[Value, Value]]:
    """Return the coefficients for the derivative in alpha, or in beta."""

    def term(
        k: Value, n: Value, distance: Value, sign: Value, a: Value, b: Value, x: Value
    ) -> tuple[Value, Value]:
        total = a + b + k + 1.0
        factor = (
            (total + k) / distance * poch((a if second else b) + k + 1.0, distance) / poch(total, distance)
        )
        upper = 1.0 / (total + n)
        return upper, upper * (sign * factor if second else factor)

    return term


def _laguerre_term(
    k: Value, n: Value, distance: Value, sign: Value, a: Value, x: Value
) -> tuple[Value, Value]:
    return 0.0 * distance, 1.0 / distance


def _polynomial(
    name: str,
    slope: Rule,
    low: float,
    high: float,
    parameters: tuple[tuple[str, Callable[..., Value]], ...] = (),
    codes: str = "",
) -> Elementwise:
    """Enter the row of a family: `slope` is the derivative in x, of ``(n, *parameters, x)``."""
    rules: list[Rule] = [refused(f"eval_{name}", "n", DEGREES)]
    rules += [OfKnownDegree(f"eval_{name}", parameter, formula) for parameter, formula in parameters]
    given = "d" * len(parameters) + "d"
    return special(
        f"eval_{name}",
        *rules,
        lambda z, *args: slope(*args),
        domain=((0.0, 5.0), *((0.6, 2.0),) * len(parameters), (low, high)),
        edges=((0.0, *(1.5,) * len(parameters), 0.5), (3.0, *(1.5,) * len(parameters), 1.0)),
        dtype_samples=codes.split() or (f"l{given}", f"d{given}"),
        accuracy=1e-12,
    )


eval_gegenbauer: Elementwise = _polynomial(
    "gegenbauer",
    lambda n, a, x: 2.0 * a * eval_gegenbauer(n - 1, a + 1.0, x),
    -0.9,
    0.9,
    (("alpha", lambda n, z, *args: _lower_sum(n, _gegenbauer_term, eval_gegenbauer, z, *args)),),
)
eval_jacobi: Elementwise = _polynomial(
    "jacobi",
    lambda n, a, b, x: 0.5 * (n + a + b + 1.0) * _lower_jacobi(n, a + 1.0, b + 1.0, x),
    -0.9,
    0.9,
    (
        ("alpha", lambda n, z, *args: _jacobi_in(False, n, z, *args)),
        ("beta", lambda n, z, *args: _jacobi_in(True, n, z, *args)),
    ),
)


def _lower_jacobi(n: Value, a: Value, b: Value, x: Value) -> Value:
    """Return Jacobi's polynomial of a degree less, 0 below degree 0: SciPy's is NaN at -1."""
    return where(equal(n, 0), 0.0, eval_jacobi(where(equal(n, 0), 0, n - 1), a, b, x))


def _jacobi_in(second: bool, n: NDArray, z: Value, a: Value, b: Value, x: Value) -> Value:
    return _lower_sum(n, _jacobi_term(second), eval_jacobi, z, a, b, x)


eval_genlaguerre: Elementwise = _polynomial(
    "genlaguerre",
    lambda n, a, x: -eval_genlaguerre(n - 1, a + 1.0, x),
    0.1,
    4.0,
    (("alpha", lambda n, z, *args: _lower_sum(n, _laguerre_term, eval_genlaguerre, z, *args)),),
)
eval_laguerre = _polynomial("laguerre", lambda n, x: -eval_genlaguerre(n - 1, 1.0, x), 0.1, 4.0)
eval_legendre = _polynomial("legendre", lambda n, x: eval_gegenbauer(n - 1, 1.5, x), -0.9, 0.9)
eval_chebyu: Elementwise = _polynomial("chebyu", lambda n, x: 2.0 * eval_gegenbauer(n - 1, 2.0, x), -0.9, 0.9)
eval_chebyt = _polynomial("chebyt", lambda n, x: n * eval_chebyu(n - 1, x), -0.9, 0.9)
eval_chebyc = _polynomial("chebyc", lambda n, x: n * eval_chebyu(n - 1, 0.5 * x), -1.8, 1.8)
eval_chebys = _polynomial("chebys", lambda n, x: eval_gegenbauer(n - 1, 2.0, 0.5 * x), -1.8, 1.8)
eval_sh_legendre = _polynomial(
    "sh_legendre", lambda n, x: 2.0 * eval_gegenbauer(n - 1, 1.5, 2.0 * x - 1.0), 0.1, 0.9
)
eval_sh_chebyt = _polynomial("sh_chebyt", lambda n, x: 2.0 * n * eval_chebyu(n - 1, 2.0 * x - 1.0), 0.1, 0.9)
eval_sh_chebyu = _polynomial(
    "sh_chebyu", lambda n, x: 4.0 * eval_gegenbauer(n - 1, 2.0, 2.0 * x - 1.0), 0.1, 0.9
)


def _below(n: Value) -> Value:
    """Return a degree less, or 0: below that these functions of SciPy are NaN."""
    return where(greater(n, 0), n - 1, 0)


eval_hermite: Elementwise = _polynomial(
    "hermite", lambda n, x: 2.0 * n * eval_hermite(_below(n), x), -2.0, 2.0, codes="ld"
)
eval_hermitenorm: Elementwise = _polynomial(
    "hermitenorm", lambda n, x: n * eval_hermitenorm(_below(n), x), -2.0, 2.0, codes="ld"
)


def _shifted_in(n: NDArray, z: Value, p: Value, q: Value, x: Value) -> tuple[Value, Value]:
    """Return the derivatives of ``eval_jacobi(n, p - q, q - 1, 2 x - 1) / binom(2 n + p - 1, n)`` in p and q."""
    a, b, y = p - q, q - 1.0, 2.0 * x - 1.0
    degrees = literal(float(n), FLOAT64) if n.ndim == 0 else constant(n * 1.0)
    scale = binom(2.0 * degrees + p - 1.0, degrees)
    plain = scale * z
    in_a, in_b = _jacobi_in(False, n, plain, a, b, y), _jacobi_in(True, n, plain, a, b, y)
    return in_a / scale - z * (psi(2.0 * degrees + p) - psi(degrees + p)), (in_b - in_a) / scale


eval_sh_jacobi: Elementwise = _polynomial(
    "sh_jacobi",
    lambda n, p, q, x: (
        (n + p) * _lower_jacobi(n, p - q + 1.0, q, 2.0 * x - 1.0) / binom(2.0 * n + p - 1.0, n)
    ),
    0.1,
    0.9,
    (
        ("p", lambda n, z, *args: _shifted_in(n, z, *args)[0]),
        ("q", lambda n, z, *args: _shifted_in(n, z, *args)[1]),
    ),
)
