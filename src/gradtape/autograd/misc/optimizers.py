"""Gradient descent with steps of three kinds, for containers of any nest.

`grad` is called as ``grad(x, i)`` with the iteration number, `callback` as ``callback(x, i, gradient)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.autograd.misc.flatten import flatten
from gradtape.autograd.wrap_util import wraps


def unflatten_optimizer(optimize: Callable[..., Any]) -> Callable[..., Any]:
    """Let an optimiser of vectors take nested containers."""

    @wraps(optimize)
    def _optimize(grad: Callable[..., Any], x0: Any, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def gradient(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def report(x: Any, i: int, g: Any) -> None:
            callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(gradient, vector, report if callback else None, *args, **kwargs))

    return _optimize


@unflatten_optimizer
def sgd(
    grad: Any, x: Any, callback: Any = None, num_iters: int = 200, step_size: float = 0.1, mass: float = 0.9
) -> Any:
    """Descend with momentum."""
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Any,
    x: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Descend with steps divided by a mean of the size of the gradient."""
    mean_square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        mean_square = mean_square * gamma + g**2 * (1 - gamma)
        x = x - step_size * g / (np.sqrt(mean_square) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Any,
    x: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Descend by means of the gradient and of its square, https://arxiv.org/abs/1412.6980."""
    m, v = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * (g**2) + b2 * v
        x = x - step_size * (m / (1 - b1 ** (i + 1))) / (np.sqrt(v / (1 - b2 ** (i + 1))) + eps)
    return x
