"""Loops cut where comparisons of their index change: which pieces there are, and that they compute the same."""

import random

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import number_of
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.passes.procedures.pipeline import eliminate_checks, followed_by, optimise_procedure
from gradtape.passes.procedures.splitting import MOST_PIECES, split_loops
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import For
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk

TRIPS = 11
COMPARISONS = (less, less_equal, greater, greater_equal, equal, not_equal)


def selections(procedure):
    """Return how many operands of a procedure's statements choose between numbers."""
    return sum(
        getattr(x, "node", None) is not None and x.node.op in (where, minimum, maximum)
        for s in walk(procedure.body)
        for x in s.uses()
    )


def counts(procedure):
    return [int(number_of(s.count)) for s in walk(procedure.body) if isinstance(s, For)]


@pytest.mark.parametrize("row", COMPARISONS, ids=lambda row: row.name)
@pytest.mark.parametrize("factor", [1, -1, 2, -3])
def test_each_comparison_is_cut_where_it_changes(row, factor):
    for offset in range(-35, 36):
        build = ProcedureBuilder("compared")
        out = build.allocate("out", TRIPS)
        with build.loop(TRIPS) as i:
            build.store(out, i, where(row(i * factor, integer(offset)), 1.0, 2.0))
        procedure = build.finish([out], [aval((TRIPS,), np.dtype(float))])
        split = followed_by(split_loops, eliminate_checks)(procedure)
        verify_procedure(split, "the split")
        assert selections(split) == 0 or split is procedure
        numbers = np.arange(TRIPS) * factor
        wanted = np.where(row.function(numbers, offset), 1.0, 2.0)
        np.testing.assert_array_equal(run_procedure(split, [])[0], wanted)
        changes = np.any(wanted[1:] != wanted[:-1])
        assert (split is not procedure) == changes or row in (equal, not_equal)


@pytest.mark.parametrize("row", [minimum, maximum], ids=lambda row: row.name)
def test_clamped_positions_are_plain_in_each_piece(row):
    build = ProcedureBuilder("clamped")
    x, out = build.array("x", (TRIPS,)), build.allocate("out", TRIPS)
    with build.loop(TRIPS) as i:
        build.store(out, i, build.load(x, row(i, integer(4))))
    procedure = build.finish([out], [aval((TRIPS,), np.dtype(float))])
    split = optimise_procedure(procedure, check=True)
    assert selections(split) == 0
    numbers = np.linspace(1.0, 2.0, TRIPS)
    np.testing.assert_array_equal(
        run_procedure(split, [numbers])[0], numbers[row.function(np.arange(TRIPS), 4)]
    )


def test_a_loop_that_hands_on_keeps_its_order():
    for seed in range(40):
        choose = random.Random(seed)
        build = ProcedureBuilder("ordered")
        out, total = build.allocate("out", TRIPS * TRIPS, zero=True), build.variable("total", 1.0)
        with build.loop(TRIPS) as i, build.loop(TRIPS) as j:
            first = choose.choice([i, j, i + j, i - j])
            test = choose.choice(COMPARISONS)(first, integer(choose.randrange(-3, 12)))
            other = choose.choice(COMPARISONS)(j, integer(choose.randrange(12)))
            build.assign(total, where(test, build.read(total) * 1.25 + 1.0, build.read(total) - 0.5))
            build.store(out, i * TRIPS + j, where(other, build.read(total), 3.0))
        procedure = build.finish(
            [build.read(total), out], [aval((), np.dtype(float)), aval((TRIPS * TRIPS,), np.dtype(float))]
        )
        split = split_loops(procedure)
        verify_procedure(split, "the split")
        for got, wanted in zip(run_procedure(split, []), run_procedure(procedure, []), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_loop_of_many_borders_stays():
    build = ProcedureBuilder("many")
    out = build.allocate("out", 100)
    with build.loop(100) as i:
        value = i * 1.0
        for border in range(MOST_PIECES):
            value = where(less(i, integer(3 * border + 2)), value, -value)
        build.store(out, i, value)
    procedure = build.finish([out], [aval((100,), np.dtype(float))])
    assert split_loops(procedure) is procedure


def test_loops_of_unknown_length_stay():
    build = ProcedureBuilder("unknown")
    n, total = build.scalar("n", "int64"), build.variable("total", 0.0)
    with build.loop(n) as i:
        build.assign(total, build.read(total) + where(less(i, integer(3)), 1.0, 2.0))
    procedure = build.finish([build.read(total)])
    assert split_loops(procedure) is procedure


def test_the_first_iteration_of_neighbours_is_cut_off():
    def smoothed(x):
        out = np.zeros(200)
        for i in range(200):
            out[i] = x[i] - 0.5 * x[i - 1] if i > 0 else x[i]
        return np.sum(out**2)

    x = np.random.default_rng(0).normal(size=200)
    with gt.config.override(loops="compile"):
        gradient = gt.grad(smoothed)(x)
    difference = x - 0.5 * np.concatenate([[0.0], x[:-1]])
    wanted = 2 * difference - np.concatenate([difference[1:], [0.0]])
    np.testing.assert_allclose(gradient, wanted, rtol=1e-13)
