"""Matrix equations: Sylvester's, Riccati's, and the linear ones of implicit differentiation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeWarning, SingularJacobianError, warn
from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate
from gradtape.ops.core.matrices import adjoint, transposed
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import solved


def scipy_function(name: str) -> Callable[..., Any]:
    """Return a function of `scipy.linalg`."""
    import scipy.linalg  # late: it takes a while, and programs without these routines do without it

    function: Callable[..., Any] = getattr(scipy.linalg, name)
    return function


def total(*terms: Value | None) -> Value | None:
    """Return the sum of those terms that are there."""
    sum_of_terms: Value | None = None
    for term in terms:
        if term is not None:
            sum_of_terms = term if sum_of_terms is None else sum_of_terms + term
    return sum_of_terms


def common_dtypes(*dtypes: np.dtype[Any], **params: Any) -> tuple[np.dtype[Any], ...]:
    """Return the dtype of a row's result: that of all operands together."""
    return (np.result_type(*dtypes),)


def _sylvester(a: NDArray, b: NDArray, q: NDArray) -> NDArray:
    return np.asarray(scipy_function("solve_sylvester")(a, b, q)) if q.size else q


def _sylvester_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (x,), (a, b, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        da, db, dq = tangents
        change = total(dq, None if da is None else -matmul(da, x), None if db is None else -matmul(x, db))
        return None if change is None else sylvester(a, b, change)

    return push


def _sylvester_transpose(ct: Value, node: Node) -> Value:
    a, b, _ = node.inputs
    return sylvester(transposed(a), transposed(b), ct)


sylvester: Callback = callback_row(
    "sylvester",
    ranks=(2, 2, 2),
    shapes=lambda a, b, q: (q,),
    dtypes=common_dtypes,
    evaluate=_sylvester,
    tangent=_sylvester_tangent,
    transpose=_sylvester_transpose,
    linear_in=2,
    samples=(
        ((3, 3), (2, 2), (3, 2), {}),
        ((2, 2, 2), (2, 2, 2), (2, 2, 2), {}),
        ((0, 2, 2), (0, 1, 1), (0, 2, 1), {}),
    ),
)
"""The solution of a x + x b = q."""


# Riccati


def _riccati(
    a: NDArray, b: NDArray, q: NDArray, r: NDArray, e: NDArray, s: NDArray, *, discrete: bool, balanced: bool
) -> NDArray:
    name = "solve_discrete_are" if discrete else "solve_continuous_are"
    return np.asarray(scipy_function(name)(a, b, q, r, e, s, balanced=balanced))


def _both(x: Value | None) -> Value | None:
    """Return the sum of matrices and their adjoints."""
    return None if x is None else x + adjoint(x)


def _product(*factors: Value | None) -> Value | None:
    """Return a product, None where a factor is."""
    result, *others = factors
    for other in others:
        if result is None or other is None:
            return None
        result = matmul(result, other)
    return result


def _riccati_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """The residual of the equation stays zero: its change at the same x is minus that by x, an equation of Lyapunov's for dx."""
    (x,), (a, b, _, r, e, s) = outs, inputs
    discrete: bool = params["discrete"]

    def push(tangents: Tangents) -> Value | None:
        if all(tangent is None for tangent in tangents):
            return None
        da, db, dq, dr, de, ds = tangents
        ah, bh, eh = adjoint(a), adjoint(b), adjoint(e)
        xb = matmul(x, b)
        weight = r + matmul(bh, xb) if discrete else r
        mixed = matmul(ah if discrete else eh, xb) + s
        gain = solved(weight, adjoint(mixed))
        if discrete:
            dm = total(_product(_turned(da), x, b), _product(ah, x, db), ds)
            dg = total(dr, _both(_product(bh, x, db)))
            change = total(dq, _both(_product(ah, x, da)), _negative(_both(_product(eh, x, de))))
        else:
            dm = total(_product(_turned(de), x, b), _product(eh, x, db), ds)
            dg = dr
            change = total(dq, _both(_product(eh, x, da)), _both(_product(ah, x, de)))
        change = total(change, _negative(_both(_product(dm, gain))), _product(adjoint(gain), dg, gain))
        if change is None:
            return None
        closed = _over(a - matmul(b, gain), e)
        inner = _over(adjoint(_over(adjoint(change), e)), e)  # 1/E.H dF 1/E
        if discrete:
            return discrete_lyapunov(adjoint(closed), inner)
        return sylvester(adjoint(closed), closed, -inner)

    return push


def _turned(x: Value | None) -> Value | None:
    return None if x is None else adjoint(x)


def _negative(x: Value | None) -> Value | None:
    return None if x is None else -x


def _over(b: Value, a: Value) -> Value:
    """Return the solution of x a = b."""
    return transposed(solved(transposed(a), transposed(b)))


BILINEAR: Final = 10
"""Rows of a matrix from which the discrete equation of Lyapunov is transformed to the continuous one, as SciPy does."""


def discrete_lyapunov(a: Value, q: Value, bilinear: bool | None = None) -> Value:
    """Return the solution of x = a x a.H + q."""
    n = a.shape[-1]
    dtype = np.result_type(a.dtype, q.dtype)
    a, q = convert(a, dtype), convert(q, dtype)
    unit = expand(constant(np.eye(n, dtype=dtype)), a.shape, (a.ndim - 2, a.ndim - 1))
    ah = adjoint(a)
    if n >= BILINEAR if bilinear is None else bilinear:
        # with b = (a.H - 1) / (a.H + 1), the same x solves b.H x + x b = -2 / (a + 1) q / (a.H + 1)
        b = _over(ah - unit, ah + unit)
        right = _over(solved(a + unit, q), ah + unit) * 2
        solution: Value = sylvester(adjoint(b), b, -right)
        return solution
    lead = a.shape[:-2]
    left = expand(a, (*lead, n, n, n, n), (*range(len(lead)), len(lead), len(lead) + 2))
    other = conjugate(a) if a.dtype.kind == "c" else a
    right = expand(other, (*lead, n, n, n, n), (*range(len(lead)), len(lead) + 1, len(lead) + 3))
    system = reshape(left * right, (*lead, n * n, n * n))
    flat = expand(constant(np.eye(n * n, dtype=dtype)), system.shape, (len(lead), len(lead) + 1)) - system
    return reshape(solved(flat, reshape(q, (*lead, n * n, 1))), q.shape)


def _stable(a: Value, b: Value, q: Value, r: Value, e: Value, s: Value) -> list[Value]:
    def definite(x: Value) -> Value:
        matrix: Value = (x + adjoint(x)) * 0.05 + np.eye(x.shape[-1], dtype=x.dtype)
        return matrix

    return [a * 0.3, b, definite(q), definite(r), e * 0.05 + np.eye(e.shape[-1], dtype=e.dtype), s * 0.05]


riccati: Callback = callback_row(
    "riccati",
    ranks=(2,) * 6,
    shapes=lambda a, b, q, r, e, s, **params: (a,),
    dtypes=common_dtypes,
    evaluate=_riccati,
    tangent=_riccati_tangent,
    kinks="that of Hermitian q and r",
    samples=tuple(
        (*(((3, 3), (3, 2), (3, 3), (2, 2), (3, 3), (3, 2))), {"discrete": discrete, "balanced": True})
        for discrete in (False, True)
    ),
    prepare=_stable,
)
"""The stabilising solution of an algebraic equation of Riccati's."""


# Implicit differentiation


def _regular(a: NDArray) -> NDArray:
    """Return a matrix, after a look at its condition.

    Raises
    ------
    SingularJacobianError
        If it is singular.
    """
    if not a.size or not np.isfinite(a).all():
        return a
    linalg: Any = importlib.import_module("scipy.linalg.lapack")
    factors, _, info = linalg.dgetrf(a)
    if info > 0:
        raise SingularJacobianError(
            "the Jacobian of the equations that a solver solved is singular at the solution",
            why="then the solution is not a smooth function of its parameters: it may not be unique, equations or active constraints may "
            "depend on each other, or it is a root of higher order",
            remedy="make the solution unique (with a regularisation, for example), leave out redundant equations or constraints, or pass "
            "gt.stop_gradient(x) where no derivative is needed",
        )
    condition, _ = linalg.dgecon(factors, np.linalg.norm(a, 1))
    if condition < np.finfo(a.dtype).eps:
        warn(
            GradtapeWarning,
            "the Jacobian of the equations that a solver solved is nearly singular at the solution: its condition is "
            f"{1 / max(condition, 1e-300):.1g}",
            why="the derivative of the solution divides by it",
            remedy="scale the unknowns and equations, or make the solution unique",
        )
    return a


def _unchanged_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    return lambda tangents: tangents[0]


regular: Callback = callback_row(
    "regular",
    ranks=(2,),
    shapes=lambda a: (a,),
    evaluate=_regular,
    tangent=_unchanged_tangent,
    transpose=lambda ct, node: ct,
    linear_in=0,
    samples=(((3, 3), {}), ((2, 2, 2), {})),
    codes="fd",
)
"""A matrix itself; an error if it is singular."""
