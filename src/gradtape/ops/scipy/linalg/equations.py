"""Equations of matrices: Sylvester's, Lyapunov's and Riccati's."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.linalg.equations import discrete_lyapunov, riccati, sylvester
from gradtape.ops.core.matrices import adjoint
from gradtape.ops.numpy.linalg.solve import in_double, inexact, square, stacked


def _alike(*operands: Value) -> list[Value]:
    """Return stacks of matrices of any shapes in one dtype, with the same axes in front."""
    dtype = np.result_type(*[operand.dtype for operand in operands])
    lead = broadcast_shapes([operand.shape[:-2] for operand in operands])
    return [broadcast_to(convert(x, dtype), (*lead, *x.shape[-2:])) for x in operands]


@borrows("scipy.linalg.solve_sylvester")
def solve_sylvester(a: Any, b: Any, q: Any) -> Value:
    """Follow `scipy.linalg.solve_sylvester`."""
    x, y = square(inexact(a)), square(inexact(b, "b"))
    right = stacked(inexact(q, "q"))
    if right.shape[-2:] != (x.shape[-1], y.shape[-1]):
        raise ValueError(
            f"q of shape {right.shape} does not fit a of shape {x.shape} and b of shape {y.shape}"
        )
    return sylvester(*_alike(x, y, right))


@borrows("scipy.linalg.solve_continuous_lyapunov")
def solve_continuous_lyapunov(a: Any, q: Any) -> Value:
    """Follow `scipy.linalg.solve_continuous_lyapunov`."""
    x = square(inexact(a))
    return solve_sylvester(x, adjoint(x), q)


@borrows("scipy.linalg.solve_discrete_lyapunov")
def solve_discrete_lyapunov(a: Any, q: Any, method: Any = None) -> Value:
    """Follow `scipy.linalg.solve_discrete_lyapunov`."""
    if method not in (None, "direct", "bilinear"):
        raise ValueError(f"Unknown solver {method}")
    x, right = _alike(square(in_double(a)), square(in_double(q, "q")))
    if x.shape != right.shape:
        raise ValueError(f"q of shape {right.shape} does not fit a of shape {x.shape}")
    return discrete_lyapunov(x, right, None if method is None else method == "bilinear")


def _riccati(a: Any, b: Any, q: Any, r: Any, e: Any, s: Any, balanced: Any, discrete: bool) -> Value:
    x, y = square(in_double(a)), stacked(inexact(b, "b"))
    n, m = x.shape[-1], y.shape[-1]
    if y.shape[-2] != n:
        raise ValueError("Matrix a and b should have the same number of rows.")
    middle = constant(np.eye(n)) if e is None else square(inexact(e, "e"))
    mixed = constant(np.zeros((n, m))) if s is None else stacked(inexact(s, "s"))
    operands = _alike(x, y, square(inexact(q, "q")), square(inexact(r, "r")), middle, mixed)
    return riccati(*operands, discrete=discrete, balanced=bool(balanced))


@borrows("scipy.linalg.solve_continuous_are")
def solve_continuous_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Value:
    """Follow `scipy.linalg.solve_continuous_are`; the derivative is that of Hermitian q and r."""
    return _riccati(a, b, q, r, e, s, balanced, False)


@borrows("scipy.linalg.solve_discrete_are")
def solve_discrete_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Value:
    """Follow `scipy.linalg.solve_discrete_are`; the derivative is that of Hermitian q and r."""
    return _riccati(a, b, q, r, e, s, balanced, True)
