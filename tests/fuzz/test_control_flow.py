"""Random bodies: a scan with branches and loops inside has the values and derivatives of the same turns in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Function = Callable[..., Any]
State = dict[str, Any]


def bent(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = np.tanh(p * r + q)


def summed(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["s"] = state["s"] * 0.5 + np.sum(p * q) * 0.1


def chosen(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = np.where(p > r, q, state["a"]) * 0.9


def turned(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = state["a"][::-1] + np.sin(q)


def largest(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["s"] = np.tanh(state["s"] + np.max(p))


def shifted(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = np.concatenate([q[1:], [state["s"]]])


def written(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    a = state["a"] * 1.0 + 0.0 * p
    a[place] = q[place] + state["s"]
    state["a"] = a


def running(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = np.cumsum(p) * 0.2 + state["a"] * 0.1


def outer(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    state["a"] = np.outer(p, q)[place] * 0.2 + p


def branched(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    def bell(p: Any) -> Any:
        return np.exp(-p * p) * r

    def line(p: Any) -> Any:
        return p * 0.3

    above = state["s"] > r
    state["a"] = gt.cond(above, bell, line, p) if combined else bell(p) if above else line(p)


def counted(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    if combined:
        state["a"] = gt.fori_loop(0, 3, lambda n, z: np.sin(z + n * q * 0.1), state["a"])
    else:
        for n in range(3):
            state["a"] = np.sin(state["a"] + n * q * 0.1)


def shrunk(state: State, p: Any, q: Any, r: float, place: int, combined: bool) -> None:
    if combined:
        state["s"] = gt.while_loop(lambda z: np.abs(z) > 0.5, lambda z: z * 0.6, state["s"])
    else:
        while np.abs(state["s"]) > 0.5:
            state["s"] = state["s"] * 0.6


STEPS = (
    bent,
    summed,
    chosen,
    turned,
    largest,
    shifted,
    written,
    running,
    outer,
    branched,
    counted,
    shrunk,
)
POLICIES = (None, "all", 1, 2, "sqrt", ("treeverse", 2))


def random_turn(rng: np.random.Generator) -> Function:
    """Return a turn of several steps: of what is carried, an element, and weights."""
    plan = [
        (STEPS[rng.integers(len(STEPS))], rng.normal(), *map(int, rng.integers(3, size=3)))
        for _ in range(rng.integers(2, 6))
    ]

    def turn(carry: State, x: Any, w: Any, combined: bool) -> Any:
        state = dict(carry)
        for step, r, first, second, place in plan:
            operands = (state["a"], x, w)
            step(state, operands[first], operands[second], r, place, combined)
        return state, (state["a"] * state["s"], [state["s"]])

    return turn


@pytest.mark.parametrize("seed", range(12))
def test_random_turns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn = random_turn(rng)
    count, unroll = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    reverse, policy = bool(rng.integers(2)), POLICIES[rng.integers(len(POLICIES))]
    args = rng.normal(size=3), rng.normal(size=3), rng.normal(size=(count, 3))
    first = float(rng.normal())

    def measured(carry: State, y: Any, z: Any) -> Any:
        ends = np.sum(carry["a"] * np.arange(3.0)) + carry["s"]
        return ends + np.sum(y**2) + np.sum(z * np.arange(count))

    def looped(w: Any, a: Any, xs: Any) -> Any:
        carry, (y, (z,)) = gt.scan(
            lambda c, x: turn(c, x, w, True),
            {"a": a, "s": first},
            xs,
            reverse=reverse,
            unroll=unroll,
            checkpoint=policy,
        )
        return measured(carry, y, z)

    def plain(w: Any, a: Any, xs: Any) -> Any:
        carry: State = {"a": a, "s": first}
        ys: list[Any] = [None] * count
        zs: list[Any] = [None] * count
        for k in reversed(range(count)) if reverse else range(count):
            carry, (ys[k], (zs[k],)) = turn(carry, xs[k], w, False)
        return measured(carry, np.stack(ys), np.stack(zs))

    every = (0, 1, 2)
    value, gradients = gt.value_and_grad(plain, every)(*args)
    found, parts = gt.value_and_grad(looped, every)(*args)
    np.testing.assert_allclose(gt.jit(looped)(*args), value, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-11)
    for part, gradient in zip(parts, gradients, strict=True):
        np.testing.assert_allclose(part, gradient, rtol=1e-7, atol=1e-9)
    tangents = np.ones(3), np.arange(3.0), np.cos(args[2])
    along = sum(np.sum(g * t) for g, t in zip(gradients, tangents, strict=True))
    np.testing.assert_allclose(gt.jvp(looped, args, tangents)[1], along, rtol=1e-7, atol=1e-9)
    if seed % 3 == 0:
        seconds = zip(gt.hvp(looped, args, tangents), gt.hvp(plain, args, tangents), strict=True)
        for part, wanted in seconds:
            np.testing.assert_allclose(part, wanted, rtol=1e-6, atol=1e-8)
        starts = np.stack([args[1], -args[1]])
        rows = gt.vmap(gt.grad(looped, 1), (None, 0, None))(args[0], starts, args[2])
        wanted_rows = [gt.grad(plain, 1)(args[0], start, args[2]) for start in starts]
        np.testing.assert_allclose(rows, np.stack(wanted_rows), rtol=1e-7, atol=1e-9)
