"""Draws in mapped functions whose parameters differ between the elements."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import gradtape as gt

MAPPED: dict[str, Any] = {
    "gamma": lambda rng, p: rng.gamma(p[0], p[1], size=3),
    "gamma of a shared shape": lambda rng, p: rng.gamma(2.0, p[1]) * rng.normal(p[0]),
    "dirichlet": lambda rng, p: rng.dirichlet(p),
    "vonmises": lambda rng, p: rng.vonmises(p[0], p[1]),
    "poisson": lambda rng, p: rng.poisson(5.0 * p) * p,
    "binomial": lambda rng, p: rng.binomial(10, 0.3 * p[0], size=(2, 2)) * p[1],
}


@pytest.mark.filterwarnings("ignore:.*the derivative does not see it")
@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("made", [np.random.default_rng, np.random.RandomState])
def test_each_element_draws_with_its_own_parameters(name: str, made: Any) -> None:
    """Each element draws from the state before; the generator goes on from the first one's."""
    draw, points = MAPPED[name], np.array([[1.3, 0.8], [0.4, 2.1], [2.2, 0.7]])
    loop = np.stack([draw(made(5), p) for p in points])
    traced, plain = made(5), made(5)
    mapped = gt.vmap(lambda p: draw(traced, p))
    draw(plain, points[0])
    np.testing.assert_allclose(mapped(points), loop, rtol=1e-13)
    assert traced.normal() == plain.normal()
    again = np.stack([draw(deepcopy(plain), p) for p in points])
    np.testing.assert_allclose(mapped(points), again, rtol=1e-13)
    taped = made(5)
    with gt.GradientTape() as tape:
        watched = tape.watch(points)
        found = gt.vmap(lambda p: draw(taped, p))(watched)
        total = np.sum(found**2)
    np.testing.assert_allclose(found, loop, rtol=1e-13)
    singles = []
    for p in points:
        fresh = made(5)
        singles.append(gt.grad(lambda p, fresh=fresh: np.sum(draw(fresh, p) ** 2))(p))
    np.testing.assert_allclose(tape.gradient(total, watched), singles, rtol=1e-10)


def test_nested_maps_draw_for_each_element_of_both() -> None:
    shapes, scales = np.array([0.5, 1.5, 4.0]), np.array([1.0, 2.0])
    rng = np.random.default_rng(2)
    found = gt.vmap(lambda a: gt.vmap(lambda b: rng.gamma(a, b) + rng.standard_gamma(a * b))(scales))(shapes)
    assert found.shape == (3, 2)

    def one(a: float, b: float) -> float:
        fresh = np.random.default_rng(2)
        first = fresh.gamma(a, b)
        later = np.random.default_rng(2)
        later.gamma(shapes[0], scales[0])
        return float(first + later.standard_gamma(a * b))

    np.testing.assert_allclose(found, [[one(a, b) for b in scales] for a in shapes], rtol=1e-13)
