"""Cotangents in the iterations of loops equal those in the iterations of Python's loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

XS = np.array([0.35, -0.82, 0.33, 1.3])
Loss = Callable[[Any, Any], Any]


def named(x: Any) -> Any:
    return gt.name(x, "h")


def python_scan(step: Any, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """Return what `gt.scan` does, by a loop of Python's."""
    columns = xs if isinstance(xs, tuple) else (xs,)
    count = len(columns[0])
    left: list[Any] = [None] * count
    for iteration in reversed(range(count)) if reverse else range(count):
        element = tuple(column[iteration] for column in columns) if isinstance(xs, tuple) else xs[iteration]
        carry, left[iteration] = step(carry, element)
    if left[0] is None:
        return carry, None
    if isinstance(left[0], tuple):
        return carry, tuple(np.stack(column) for column in zip(*left, strict=True))
    return carry, np.stack(left)


def chosen_behind(scan: Any) -> Loss:
    def step(c: Any, v: Any, w: Any) -> Any:
        h = named(np.tanh(w * c + v))
        return h, h

    def loss(w: Any, xs: Any) -> Any:
        _, states = scan(lambda c, v: step(c, v, w), 0.0, xs)
        return np.sum(np.where(states > 0.2, np.sqrt(np.abs(states)), 0.0))

    return loss


def chosen_inside(scan: Any) -> Loss:
    return lambda w, xs: scan(
        lambda c, v: (c + np.where(v > 0.34, named(np.sqrt(v - 0.33 * w)), 0.0), None), 0.0, xs
    )[0]


def two_carries(scan: Any) -> Loss:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            h = named(np.sin(w * c[0] + v))
            return (h, c[0] + h), h * c[1]

        (first, second), left = scan(step, (0.1, 0.2), xs)
        return first * second + np.sum(left)

    return loss


def backwards(scan: Any) -> Loss:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            h = named(np.tanh(w * c + v))
            return h, h * v

        return np.sum(scan(step, w, xs, reverse=True)[1] ** 2)

    return loss


def vectors(scan: Any) -> Loss:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            h = named(np.tanh(c * w + v))
            return h, np.sum(h)

        return np.sum(scan(step, np.ones(3) * w, xs)[1])

    return loss


def several_elements(scan: Any) -> Loss:
    return lambda w, xs: scan(lambda c, v: (named(c * v[0] + w * v[1]), None), 1.0, (xs, xs**2))[0]


def loops_in_loops(scan: Any) -> Loss:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            return scan(lambda d, u: (named(np.tanh(d * w + u * v)), None), c, xs)[0], None

        return scan(step, w, xs)[0]

    return loss


def what_nobody_reads(scan: Any) -> Loss:
    return lambda w, xs: scan(lambda c, v: (named(c * np.cos(v * w)), c * 5.0), 1.0, xs)[0]


def two_of_a_name(scan: Any) -> Loss:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            a, b = named(c * w), named(c + v)
            return a * b, (a, b)

        carry, (first, second) = scan(step, 1.0, xs)
        return carry + np.sum(first * second)

    return loss


@pytest.mark.parametrize(
    "make",
    [
        chosen_behind,
        chosen_inside,
        two_carries,
        backwards,
        vectors,
        several_elements,
        loops_in_loops,
        what_nobody_reads,
        two_of_a_name,
    ],
)
@pytest.mark.parametrize("tape", [False, True], ids=["jitted", "tape"])
def test_cotangents_in_the_iterations(make: Callable[[Any], Loss], tape: bool) -> None:
    def gradients(loss: Loss) -> tuple[Any, dict[str, Any]]:
        with gt.debug.GradientsDebugger().watch_gradients_by_tensor_names(None, "h") as debugger:
            if tape:
                with gt.GradientTape() as recording:
                    w, xs = recording.watch((0.7, XS))
                    y = loss(w, xs)
                slopes = recording.gradient(y, [w, xs])
            else:
                slopes = gt.grad(loss, argnums=(0, 1))(0.7, XS)
        return slopes, debugger.gradient_tensors()

    (slope, slopes), found = gradients(make(gt.scan))
    (wanted, wanteds), expected = gradients(make(python_scan))
    assert np.allclose(float(slope), float(wanted)) and np.allclose(np.asarray(slopes), np.asarray(wanteds))
    assert list(found) == list(expected) and found
    for name, gradient in found.items():
        assert np.isfinite(gradient.numpy()).all() and np.allclose(gradient.numpy(), expected[name].numpy())
