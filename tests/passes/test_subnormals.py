"""Weights that vanish gradually: no subnormal number is in the inner loop of a product, and the products are what they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Graph, Literal, Value
from gradtape.passes.pipeline import optimise
from gradtape.passes.simplify.subnormals import share_vanishing_weights
from tests.support.compiled import graph_of, mixture


def moments(exponents: Any, points: Any, mu: Any) -> Any:
    """Weighted products of coordinates, for each component."""
    offsets = points - mu[:, None, :]
    weights = np.exp(exponents)
    return np.swapaxes(offsets * weights[:, :, None], 1, 2) @ (2.0 * offsets)


def operands(graph: Graph, arrays: list[np.ndarray[Any, Any]]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the operands of all contractions of a graph, and the exponentials."""
    known: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))

    def array(value: Value) -> Any:
        return known[value] if value in known else np.asarray(value.data, value.dtype)

    for node in graph.nodes:
        known.update(
            zip(node.outs, node.op.evaluate([array(x) for x in node.inputs], node.params), strict=True)
        )
        if node.op.name == "contract":
            yield from (array(x) for x in node.inputs if not isinstance(x, Literal))


def n_subnormal(array: np.ndarray[Any, Any]) -> int:
    return int(np.sum((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)))


def far_points() -> list[np.ndarray[Any, Any]]:
    """Two components; the exponents of the points range down to where exponentials are zero."""
    x = np.linspace(0.1, 40.0, 300)[:, None] * np.array([1.0, 0.3])
    return [np.array([[0.0, 0.5], [40.0, 12.0]]), np.stack([np.eye(2)] * 2), x]


def test_no_operand_of_a_product_is_subnormal():
    mu, q, x = far_points()
    gradient = gt.value_and_grad(mixture, argnums=(0, 1))
    graph = graph_of(gradient, mu, q, x)
    arrays = [mu, q, x][: len(graph.inputs)]
    assert sum(map(n_subnormal, operands(graph, arrays))) > 20
    with_passes = optimise(graph)
    assert sum(1 for node in with_passes.nodes if node.op.name == "where") == 2
    assert sum(map(n_subnormal, operands(with_passes, arrays))) == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_of_subnormal_weights_keep_their_digits(dtype):
    tiny = np.log(float(np.finfo(dtype).smallest_subnormal))
    exponents = np.linspace(tiny, 0.8 * tiny, 40).reshape(2, 20).astype(dtype)
    rng = np.random.default_rng(0)
    points, mu = (rng.normal(size=shape).astype(dtype) for shape in ((20, 3), (2, 3)))
    points *= dtype(1e30 if dtype is np.float64 else 1e4)
    got = gt.jit(moments)(exponents, points, mu)
    # The exponential itself is rounded to a subnormal number; from there on nothing is lost.
    weights = np.exp(exponents).astype(np.longdouble)
    offsets = (points - mu[:, None, :]).astype(np.longdouble)
    wanted = np.einsum("kn,kni,knj->kij", weights, offsets, 2.0 * offsets)
    scale = np.max(np.abs(wanted), axis=(1, 2), keepdims=True)
    assert np.max(np.abs(got - wanted) / scale) < 40 * np.finfo(dtype).eps


def test_infinities_zeros_and_what_is_not_a_number_are_as_before():
    exponents = np.array(
        [[-np.inf, -800.0, -720.0, np.inf], [np.nan, 0.0, -720.0, 1.0], [-720.0, -720.0, -np.inf, -710.0]]
    )
    points = np.array([[1.0, 2.0], [1e308, 1e-308], [-1e300, 0.0], [np.inf, 3.0]])
    mu = np.zeros((3, 2))
    with np.errstate(all="ignore"):
        for mine in (points, points[:3]):
            rows = exponents[:, : len(mine)]
            np.testing.assert_array_equal(
                np.isfinite(gt.jit(moments)(rows, mine, mu)), np.isfinite(moments(rows, mine, mu))
            )
            np.testing.assert_array_equal(
                np.isnan(gt.jit(moments)(rows, mine, mu)), np.isnan(moments(rows, mine, mu))
            )


def without_exponential(weights: Any, points: Any, mu: Any) -> Any:
    offsets = points - mu
    return (offsets * weights[:, None]).T @ (2.0 * offsets)


def of_an_input(exponents: Any, points: Any, mu: Any) -> Any:
    """The second factor is not computed: a product with it would be another array."""
    return (np.exp(exponents)[:, None] * points).T @ points + mu


def of_vectors(exponents: Any, points: Any, mu: Any) -> Any:
    """Each product of a weight takes part in one other product."""
    offsets = points[:, 0] - mu[0]
    return (np.exp(exponents)[:, None] * points).T @ offsets


@pytest.mark.parametrize("function", [without_exponential, of_an_input, of_vectors])
def test_other_products_stay(function):
    rng = np.random.default_rng(0)
    graph = graph_of(gt.jit(function), rng.normal(size=20), rng.normal(size=(20, 3)), rng.normal(size=3))
    assert share_vanishing_weights(graph) is graph


def test_derivatives_of_all_orders_agree():
    mu, q, x = far_points()
    hessian = gt.hessian(mixture)
    got = hessian(mu, q, x[::20])
    with gt.config.override(jit=False):
        wanted = hessian(mu, q, x[::20])
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
