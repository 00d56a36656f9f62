"""Random loops with several states, scalars, integers and arrays that do not fit in registers: all compile, and agree with the interpreter.

Warnings are errors in the tests: a loop whose machine code LLVM refuses fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

SHAPES: list[tuple[int, ...]] = [(), (), (3,), (90,), (90,), (8, 12)]
POLICIES = [None, None, None, "sqrt", 3, ("treeverse", 2)]

Arrays = list[Any]


def as_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """Return something of this shape made of all of `x`."""
    return x if np.shape(x) == shape else np.sum(x) * 0.01 + np.zeros(shape)


def changed(rng: np.random.Generator, state: Arrays, turn: Any, depth: int) -> Arrays:
    """Return the next state; the choices come from `rng`, which begins anew for each trace."""
    after = []
    for place, x in enumerate(state):
        shape = np.shape(x)
        other = as_shape(state[int(rng.integers(len(state)))], shape)
        kind = int(rng.integers(9))
        if kind == 0:
            x = x * 0.9 + 0.1 * np.sin(other)
        elif kind == 1 and shape:
            x = 0.5 * x + 0.2 * np.roll(other, 1) + 0.2 * np.roll(x, -1)
        elif kind == 2:
            x = np.where(other > 0.3, x * 0.9, other - x)
        elif kind == 3 and len(shape) == 1:
            x = x.at[place].set(np.sum(other) * 0.05) if hasattr(x, "at") else x * 0.7
        elif kind == 4 and len(shape) == 2:
            x = np.tanh(x @ other.T @ x * 0.05)
        elif kind == 5 and depth:
            x = gt.fori_loop(
                0, int(rng.integers(2, 5)), lambda k, c, other=other: c * 0.8 + np.cos(other) * 0.1, x
            )
        elif kind == 6:
            x = gt.cond(
                np.sum(other) > 0.5,
                lambda x, other: x * 0.7 + other * 0.1,
                lambda x, other: np.sin(x) - other * 0.2,
                x,
                other,
            )
        elif kind == 7 and depth:
            inner = [x, other * 0.5]
            x = gt.scan(
                lambda c, _, rng=rng: ((c[1] * 0.6, c[0] * 0.5 + np.roll(c[1], 1) * 0.2), None),
                tuple(inner),
                None,
                length=3,
            )[0][0]
        else:
            x = x * (0.5 + 0.01 * turn) + other * 0.2
        after.append(x)
    return after


def program(seed: int) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function of arrays with a random loop in it, and arguments."""
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[k] for k in rng.integers(len(SHAPES), size=int(rng.integers(2, 5)))]
    arguments: list[Any] = [rng.random(shape) if shape else float(rng.random()) for shape in shapes]
    form = ("scan", "scan", "fori", "told", "while")[int(rng.integers(5))]
    policy = POLICIES[int(rng.integers(len(POLICIES)))]
    trips, body_seed = int(rng.integers(0, 12)), int(rng.integers(2**31))
    leaves = bool(rng.integers(2))

    def body(state: Any, turn: Any) -> tuple[Any, ...]:
        return tuple(changed(np.random.default_rng(body_seed), list(state), turn, 1))

    def run(*state: Any) -> Any:
        extra: Any = 0.0
        if form == "scan":

            def step(carry: Any, element: Any) -> tuple[Any, Any]:
                *state, count = carry
                return (*body(state, count), count + 1), (np.sum(state[0]) if leaves else None)

            (*last, _), stacked = gt.scan(step, (*state, 0), None, length=trips, checkpoint=policy)
            extra = np.sum(stacked) if leaves else 0.0
        elif form == "fori":
            last = gt.fori_loop(0, trips, lambda i, c: body(c, i), state)
        elif form == "told":
            count = trips + (np.sum(state[0]) > 1e9)
            last = gt.fori_loop(0, count, lambda i, c: body(c, i), state)
        else:
            *last, _ = gt.while_loop(
                lambda *c: (c[-1] < trips) & (np.sum(c[0]) < 50.0),
                lambda *c: (*body(c[:-1], c[-1]), c[-1] + 1),
                (*state, 0),
            )
        return sum([np.sum(x * x) for x in last], extra)

    return run, arguments


def check(seed: int) -> None:
    run, arguments = program(seed)
    both = gt.value_and_grad(run, argnums=tuple(range(len(arguments))))
    value, slopes = both(*arguments)
    with gt.config.override(jit=False):
        want, wanted = gt.value_and_grad(run, argnums=tuple(range(len(arguments))))(*arguments)
    np.testing.assert_allclose(value, want, rtol=1e-9)
    for one, other in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_loops_with_several_states(seed: int) -> None:
    check(seed)


if __name__ == "__main__":  # python -m tests.fuzz.test_loop_state FIRST LAST: any number of programs
    import sys
    import warnings

    warnings.simplefilter("error")
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            check(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
