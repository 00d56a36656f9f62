"""A typed program as users write it: jitted functions keep their parameters, gradients have the types of the arguments."""

import functools
from collections.abc import Callable
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


# Methods keep their parameters behind the instance.


class Model:
    @gt.jit
    def value(self, x: Vector, n: int = 2) -> Vector:
        return x * n

    @gt.checkpoint
    def block(self, x: Vector) -> Vector:
        return np.sin(x)


assert_type(Model().value(np.ones(2), n=3), Vector)
assert_type(Model().block(np.ones(2)), Vector)

# Derivatives of higher rank and order, products, linear maps.


def twice(x: Vector) -> Vector:
    return x * 2.0


def measured(x: Vector, scale: float) -> tuple[np.float64, dict[str, Vector]]:
    return np.sum(x) * np.float64(scale), {"x": x}


ones: Vector = np.ones(2)
assert_type(gt.jacobian(twice)(ones), Vector)
assert_type(gt.hessian(loss)(ones, scale=2.0), Vector)
assert_type(gt.hvp(loss, (ones,), (ones,)), Vector)
assert_type(gt.jvp(twice, (ones,), (ones,)), tuple[Vector, Vector])
gt.jvp(lambda x: x**2, (3.0,), (1.0,))  # the types of lambdas' results differ between checkers
value, pullback, aux = gt.vjp(measured, ones, 2.0, has_aux=True)
assert_type(value, np.float64)
assert_type(pullback(1.0), tuple[Vector, float])
assert_type(aux, dict[str, Vector])
y, push = gt.linearize(twice, ones)
assert_type(push(y), Vector)
assert_type(gt.linear_transpose(twice, ones)(ones), tuple[Vector])
assert_type(gt.vmap(twice)(np.ones((3, 2))), Vector)
assert_type(gt.jit(loss).lower(ones).compile()(ones), np.float64)

# Control, and rules of one's own.

assert_type(gt.cond(True, twice, lambda x: x, ones), Vector)
assert_type(gt.switch(1, [twice, twice], ones), Vector)
assert_type(gt.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), (0, ones)), tuple[int, Vector])
assert_type(gt.scan(lambda carry, x: (carry * x, None), ones, ones)[0], Vector)
assert_type(gt.associative_scan(np.multiply, ones), Vector)
assert_type(gt.stop_gradient({"a": ones}), dict[str, Vector])
assert_type(gt.stop_gradient(v), gt.Array)


@functools.partial(gt.custom_vjp, nondiff_argnums=(1,))
def clipped(x: Vector, limit: float) -> Vector:
    return x


def forward(x: Vector, limit: float) -> tuple[Vector, None]:
    return x, None


def backward(limit: float, residuals: None, cotangent: Vector) -> tuple[Vector]:
    return (np.clip(cotangent, -limit, limit),)


clipped.defvjp(forward, backward)
assert_type(gt.grad(lambda x: np.sum(3 * clipped(x, 1.0)))(ones), Any)


@gt.custom_jvp
def same(x: Vector) -> Vector:
    return x


@same.defjvp
def same_rule(primals: tuple[Vector], tangents: tuple[Vector]) -> tuple[Vector, Vector]:
    return same(*primals), tangents[0]


@gt.custom_gradient
def softplus(x: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
    return np.logaddexp(0.0, x), lambda upstream: upstream / (1.0 + np.exp(-x))


assert_type(same(ones), Vector)
assert_type(softplus(ones), Vector)
assert_type(gt.array_api.asarray([1.0]), gt.Array)
