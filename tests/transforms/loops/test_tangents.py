"""Derivatives of hyperbolic tangents in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

STEPS = 40
WIDTH = 14


def by_scan(h: Any, w: Any, rows: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.tanh(h * w + row)
        return h, h * h

    return np.sum(gt.scan(step, h, rows)[1])


def by_loop(h: Any, w: Any, rows: Any) -> Any:
    total = 0.0
    for t in range(len(rows)):
        h = np.tanh(h * w + rows[t])
        total = total + np.sum(h * h)
    return total


def arguments() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3.0, 3.0, (STEPS, WIDTH))
    rows[5, :6] = 0.0, -0.0, 19.5, -25.0, 360.0, -400.0
    return rng.normal(size=WIDTH), rng.normal(size=WIDTH), rows


def by_hand(h: Any, w: Any, rows: Any) -> tuple[Any, list[Any]]:
    states, inputs = [h], []
    for row in rows:
        inputs.append(states[-1] * w + row)
        states.append(np.tanh(inputs[-1]))
    by_h, by_w, by_rows = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros_like(rows)
    for t in reversed(range(len(rows))):
        decay = np.exp(-2.0 * np.abs(inputs[t]))
        by_rows[t] = (by_h + 2.0 * states[t + 1]) * 4.0 * decay / (1.0 + decay) ** 2
        by_h, by_w = by_rows[t] * w, by_w + by_rows[t] * states[t]
    return sum(np.sum(state**2) for state in states[1:]), [by_h, by_w, by_rows]


@pytest.mark.parametrize("mode", ("trace", "compile"))
@pytest.mark.parametrize("f", (by_scan, by_loop))
def test_gradients_in_all_ways(f: Callable[..., Any], mode: str) -> None:
    args = arguments()
    value, gradients = by_hand(*args)
    with gt.config.override(loops=mode):
        for way in (gt.value_and_grad(f, argnums=(0, 1, 2)), gt.jit(gt.value_and_grad(f, argnums=(0, 1, 2)))):
            found, by = way(*args)
            assert found == pytest.approx(value, rel=1e-14)
            for each, expected in zip(by, gradients, strict=True):
                np.testing.assert_allclose(each, expected, rtol=1e-12, atol=1e-300)
        batch = [np.stack([x, x]) for x in args]
        for each, expected in zip(gt.vmap(gt.grad(f, argnums=(0, 1, 2)))(*batch), gradients, strict=True):
            np.testing.assert_allclose(each[1], expected, rtol=1e-12, atol=1e-300)
        tangents = gt.jvp(f, args, tuple(np.ones_like(x) for x in args))[1]
        assert tangents == pytest.approx(sum(np.sum(each) for each in gradients), rel=1e-9)


@pytest.mark.parametrize("f", (by_scan, by_loop))
def test_second_derivatives(f: Callable[..., Any]) -> None:
    h, w, rows = arguments()
    rows = rows[:4] / 3.0

    def slope(x: Any) -> Any:
        return np.sum(gt.grad(f, argnums=1)(h, x, rows) * h)

    found, step = gt.grad(slope)(w), 1e-6
    for k in range(WIDTH):
        shift = np.where(np.arange(WIDTH) == k, step, 0.0)
        assert found[k] == pytest.approx(
            (slope(w + shift) - slope(w - shift)) / (2 * step), rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("f", (by_scan, by_loop))
def test_infinities_and_nan_pass(f: Callable[..., Any]) -> None:
    h, w, rows = arguments()
    rows[3, :3] = np.inf, -np.inf, np.nan
    value, (by_h, _, by_rows) = by_hand(h, w, rows)
    found, (each, _, rest) = gt.value_and_grad(f, argnums=(0, 1, 2))(h, w, rows)
    assert np.isnan(found) and np.isnan(value)
    np.testing.assert_allclose(each[:2], by_h[:2], rtol=1e-12)
    np.testing.assert_allclose(rest[:, :2], by_rows[:, :2], rtol=1e-12, atol=1e-300)
    assert np.isnan(rest[3, 2])


def test_the_slope_keeps_its_digits() -> None:
    x = np.concatenate(
        [np.linspace(-40.0, 40.0, 4001), 10.0 ** np.linspace(-300.0, 0.0, 500), [350.0, 372.0]]
    )
    wide = np.abs(x).astype(np.longdouble)
    decay = np.exp(-2.0 * wide)
    expected = (4.0 * decay / (1.0 + decay) ** 2).astype(float)
    found = gt.grad(lambda y: np.sum(np.tanh(y)))(x)
    assert np.all(np.abs(found - expected) <= 5 * np.spacing(expected))
