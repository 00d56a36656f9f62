"""Arrays that are zero whenever an iteration begins: their first additions are assignments, and no iteration zeroes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.logic import less
from gradtape.passes.procedures.dead import remove_resets
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Allocate, Procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk

N, TRIPS = 6, 3

Part = Callable[[ProcedureBuilder, Any, Any, Any], None]
"""Appends the first or the last loop of an iteration: builder, array, data, iteration."""


def add(build: ProcedureBuilder, pointer: Any, index: Any, value: Any) -> None:
    build.store(pointer, index, build.load(pointer, index) + value)


def procedure(first: Part, last: Part, after: bool = False) -> Procedure:
    """Add products to an array in each iteration, sum neighbours into a result, and zero the array."""
    build = ProcedureBuilder("sums")
    x = build.array("x", (N,))
    held = build.allocate("held", N, zero=True)
    out = build.allocate("out", N, zero=True)
    with build.loop(TRIPS) as trip:
        first(build, held, x, trip)
        with build.loop(N - 1) as i:
            add(build, out, i, build.load(held, i + 1) * build.load(held, i))
        last(build, held, out, trip)
    if after:
        with build.loop(N) as i:
            add(build, out, i, build.load(held, i))
    return build.finish([out], [aval((N,), np.dtype(float))])


def adding(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, held, i, build.load(x, i) * (trip + 1.5))


def adding_backwards(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, held, 5 - i, build.load(x, i) * (trip + 1.5))


def adding_to_some(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N - 1) as i:
        add(build, held, i + 1, build.load(x, i) * (trip + 1.5))


def adding_twice(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, held, i, build.load(x, i) * (trip + 1.5))
        add(build, held, i, build.load(x, i))


def adding_to_one(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, held, trip, build.load(x, i))


def adding_in_a_branch(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(N) as i, build.branch(less(build.load(x, i), 0.0)):
        add(build, held, i, build.load(x, i))


def adding_by_rows(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(2) as i, build.loop(3) as j:
        add(build, held, 3 * i + j, build.load(x, 3 * i + j) * (trip + 1.5))


def adding_by_columns(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(2) as i, build.loop(3) as j:
        add(build, held, 5 - i - 2 * j, build.load(x, 3 * i + j) * (trip + 1.5))


def adding_to_rows_that_overlap(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(2) as i, build.loop(3) as j:
        add(build, held, 2 * i + j, build.load(x, 3 * i + j) * (trip + 1.5))


def adding_to_each_row(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(2) as i, build.loop(3) as j:
        add(build, held, 3 * i + j, build.load(x, i))
        add(build, held, 3 * i + j, build.load(x, j))


def adding_to_rows_and_sums(build: ProcedureBuilder, held: Any, x: Any, trip: Any) -> None:
    with build.loop(2) as i:
        with build.loop(3) as j:
            add(build, held, 3 * i + j, build.load(x, j))
        with build.loop(3) as j:
            add(build, held, j, build.load(held, 3 * i + j))


def zeroing(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, out, i, build.load(held, i))
        build.store(held, i, 0.0)


def zeroing_by_rows(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(2) as i:
        with build.loop(3) as j:
            place = 3 * i + j
            add(build, out, i, build.load(held, place))
            build.store(held, place, 0.0)
        add(build, out, 5, build.load(out, i))


def zeroing_rows_before_a_read(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(2) as i:
        with build.loop(3) as j:
            build.store(held, 3 * i + j, 0.0)
        add(build, out, i, build.load(held, 0))


def zeroing_before_a_read(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N) as i:
        build.store(held, i, 0.0)
        add(build, out, i, build.load(held, i))


def zeroing_what_is_read_later(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N) as i:
        add(build, out, i, build.load(held, 5 - i))
        build.store(held, i, 0.0)


def zeroing_some(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N - 1) as i:
        build.store(held, i, 0.0)


def zeroing_with_a_sign(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N) as i:
        build.store(held, i, -0.0)


def halving(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.loop(N) as i:
        build.store(held, i, 0.5 * build.load(held, i))


def zeroing_sometimes(build: ProcedureBuilder, held: Any, out: Any, trip: Any) -> None:
    with build.branch(less(trip, 1)), build.loop(N) as i:
        build.store(held, i, 0.0)


def checked(made: Procedure) -> Procedure:
    """Return the procedure after the pass, which computes the same bits."""
    changed = remove_resets(made)
    verify_procedure(changed, "a test")
    x = np.array([1.5, -0.0, 0.0, -2.0, np.inf, 3.0])
    np.testing.assert_array_equal(run_procedure(changed, [x])[0], run_procedure(made, [x])[0])
    return changed


@pytest.mark.parametrize("last", [zeroing, zeroing_by_rows])
@pytest.mark.parametrize("first", [adding, adding_backwards, adding_by_rows, adding_by_columns])
def test_an_array_that_each_iteration_zeroes_is_assigned(first: Part, last: Part) -> None:
    changed = checked(procedure(first, last))
    held, out = [s for s in walk(changed.body) if isinstance(s, Allocate)]
    assert (held.zero, out.zero) == (False, True)


@pytest.mark.parametrize(
    "first",
    [
        adding_to_some,
        adding_twice,
        adding_to_one,
        adding_in_a_branch,
        adding_to_rows_that_overlap,
        adding_to_each_row,
        adding_to_rows_and_sums,
    ],
)
def test_first_additions_that_leave_elements_out_or_repeat_them(first: Part) -> None:
    made = procedure(first, zeroing)
    assert checked(made) is made


@pytest.mark.parametrize(
    "last",
    [
        zeroing_before_a_read,
        zeroing_rows_before_a_read,
        zeroing_what_is_read_later,
        zeroing_some,
        zeroing_with_a_sign,
        halving,
        zeroing_sometimes,
    ],
)
def test_arrays_that_are_not_zero_when_an_iteration_begins(last: Part) -> None:
    made = procedure(adding, last)
    assert checked(made) is made


def test_an_array_that_is_read_after_the_loop() -> None:
    made = procedure(adding, zeroing, after=True)
    assert checked(made) is made


def smoothed(u: Any, a: Any, steps: int) -> Any:
    u = u.copy()
    for _ in range(steps):
        u[1:-1] += a * u[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u * u)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [3, 4, 35, 36, 100])
def test_gradients_of_stencils_agree_in_all_modes(size: int, steps: int) -> None:
    """From 36 elements on, what an iteration adds to neighbours is gathered."""
    u = np.random.default_rng(size).random(size)
    with gt.config.override(loops="trace"):
        wanted = gt.grad(smoothed, argnums=(0, 1))(u, 0.1, steps)
        second = gt.grad(lambda a: np.sum(gt.grad(smoothed)(u, a, steps) ** 2))(0.1)
    with gt.config.override(loops="compile"):
        for function in (gt.grad(smoothed, argnums=(0, 1)), gt.jit(gt.grad(smoothed, argnums=(0, 1)))):
            for found, expected in zip(function(u, 0.1, steps), wanted, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
        slope = gt.jvp(lambda a: smoothed(u, a, steps), (0.1,), (1.0,))[1]
        assert slope == pytest.approx(wanted[1], rel=1e-10, abs=1e-13)
        bent = gt.grad(lambda a: np.sum(gt.grad(smoothed)(u, a, steps) ** 2))(0.1)
        assert bent == pytest.approx(second, rel=1e-9, abs=1e-12)
        with gt.GradientTape() as tape:
            a = tape.watch(0.1)
            y = gt.jit(smoothed)(u, a, steps)
        taped = tape.gradient(y, a)
        assert (0.0 if taped is None else taped) == pytest.approx(wanted[1], rel=1e-10, abs=1e-13)
        rows = gt.vmap(lambda a: gt.grad(smoothed)(u, a, steps))(np.array([0.3, 0.1]))
        np.testing.assert_allclose(rows[1], wanted[0], rtol=1e-11, atol=1e-13)
