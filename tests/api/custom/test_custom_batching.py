"""Functions with derivatives of their own keep them under maps, in Jacobians, and in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt

RNG = np.random.default_rng(4)
X, W = RNG.normal(size=(5, 3)), RNG.normal(size=3)


@gt.custom_gradient
def tripled(x: Any, w: Any) -> Any:
    """x w, with three times the derivative."""
    inside = x * 3.0

    def gradient(upstream: Any) -> Any:
        return upstream * w * 3.0, upstream * inside

    return x * w, gradient


@gt.custom_jvp
def pushed(x: Any, w: Any) -> Any:
    return x * w


@pushed.defjvp
def pushed_rule(primals: Any, tangents: Any) -> Any:
    (x, w), (dx, dw) = primals, tangents
    return x * w, 3.0 * (dx * w + x * dw)


@gt.custom_vjp
def pulled(x: Any, w: Any) -> Any:
    return x * w


pulled.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, ct: (3.0 * ct * kept[1], 3.0 * ct * kept[0]))

RULES = pytest.mark.parametrize("rule", [tripled, pushed, pulled], ids=["gradient", "jvp", "vjp"])


@RULES
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None)])
def test_gradients_of_a_map(rule: Any, in_axes: Any) -> None:
    w = X[::-1] if in_axes[1] == 0 else W
    mapped = gt.vmap(lambda x, w: np.sum(rule(x, w) ** 2), in_axes=in_axes)
    np.testing.assert_allclose(mapped(X, w), np.sum((X * w) ** 2, axis=1))
    dx, dw = gt.grad(lambda x, w: np.sum(mapped(x, w)), argnums=(0, 1))(X, w)
    np.testing.assert_allclose(dx, 6.0 * X * w * w)
    expected = 6.0 * X * X * w
    np.testing.assert_allclose(dw, expected if in_axes[1] == 0 else expected.sum(axis=0))


@RULES
def test_a_map_of_gradients(rule: Any) -> None:
    slopes = gt.vmap(gt.grad(lambda x: np.sum(rule(x, W))))
    np.testing.assert_allclose(slopes(X), np.broadcast_to(3.0 * W, X.shape))


@RULES
def test_directions_of_a_map(rule: Any) -> None:
    _, tangent = gt.jvp(lambda x: gt.vmap(lambda x: rule(x, W))(x), (X,), (X,))
    np.testing.assert_allclose(tangent, 3.0 * X * W)


@RULES
def test_maps_of_maps(rule: Any) -> None:
    twice = gt.vmap(gt.vmap(rule))
    points = np.stack([X, 2 * X])
    slopes = gt.grad(lambda x: np.sum(twice(x, points)))(points)
    np.testing.assert_allclose(slopes, 3.0 * points)


@RULES
@pytest.mark.parametrize("transform", [gt.jacfwd, gt.jacrev, gt.jacobian])
def test_jacobians(rule: Any, transform: Any) -> None:
    np.testing.assert_allclose(transform(lambda x: rule(x, W) * 2.0)(X[0]), np.diag(6.0 * W))
    np.testing.assert_allclose(transform(lambda w: rule(X[0], w))(W), np.diag(3.0 * X[0]))


@RULES
@pytest.mark.parametrize("way", [{}, {"parallel_iterations": 2}, {"experimental_use_pfor": False}])
def test_jacobians_of_tapes(rule: Any, way: dict[str, Any]) -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = rule(x, X * 1.0)
    np.testing.assert_allclose(
        tape.batch_jacobian(y, x, **way).numpy(), np.stack([np.diag(3.0 * row) for row in X])
    )
    assert tape.jacobian(y, x, **way).shape == (5, 3, 5, 3)


def test_a_recomputed_function() -> None:
    layer = gt.recompute_grad(lambda x: np.tanh(x) * np.sum(x))
    plain = gt.vmap(lambda x: np.tanh(x) * np.sum(x))
    np.testing.assert_allclose(gt.vmap(layer)(X), plain(X))
    slopes = gt.grad(lambda x: np.sum(gt.vmap(layer)(x) ** 2))(X)
    np.testing.assert_allclose(slopes, gt.grad(lambda x: np.sum(plain(x) ** 2))(X))
    np.testing.assert_allclose(gt.jacobian(layer)(W), gt.jacobian(lambda x: np.tanh(x) * np.sum(x))(W))


@gt.custom_gradient
def clipped(x: Any) -> Any:
    """A gradient function that looks at numbers."""

    def gradient(upstream: Any) -> Any:
        return upstream if float(np.sum(upstream)) > 0 else -upstream

    return x * 1.0, gradient


def test_a_gradient_function_that_looks_at_numbers() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(W)
        y = clipped(x) * np.array([1.0, -2.0, 3.0])
    with pytest.raises(gt.errors.ConcretizationError, match="experimental_use_pfor=False"):
        tape.jacobian(y, x)
    rows = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_array_equal(rows.numpy(), np.diag([1.0, 2.0, 3.0]))
