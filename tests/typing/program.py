"""A typed program as users write it: jitted functions keep their parameters, gradients have the types of the arguments."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import gradtape as gt

Vector = NDArray[np.float64]


def loss(x: Vector, scale: float = 1.0) -> np.float64:
    return np.sum(x**2) * np.float64(scale)


assert_type(gt.grad(loss)(np.ones(2), scale=2.0), Vector)
assert_type(gt.grad(loss, (0, 1))(np.ones(2), 2.0), tuple[Vector, float])
assert_type(gt.grad(loss, 1)(np.ones(2), 2.0), float)
assert_type(gt.value_and_grad(loss)(np.ones(2)), tuple[np.float64, Vector])
g = gt.grad(lambda x: np.sum(x**2))
assert_type(g(np.ones(2)), Any)


@gt.jit
def f(x: Vector, n: int = 2) -> Vector:
    return x * n


assert_type(f(np.ones(2), n=3), Vector)


@gt.jit(static_argnums=1)
def f2(x: Vector, n: int = 2) -> Vector:
    return x * n


assert_type(f2(np.ones(2), 3), Vector)
f("a")  # type: ignore[arg-type] # jitted functions check their arguments
x = gt.constant([1.0, 2.0])
assert_type(x + 1, gt.Array)
assert_type(x[0], gt.Array)
assert_type(x.sum(axis=0), gt.Array)
assert_type(x.T @ x, gt.Array)
v = gt.Variable([1.0])
assert_type(v * 2, gt.Array)
v += 1
assert_type(v, gt.Variable)
