"""Accumulations in the branches that have something to add, and adjoints that loops leave as they were."""

import numpy as np
import pytest

from gradtape.ir.graph import literal
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.passes.procedures.branch_sinking import sink_into_branches
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.dataflow import kept_variables
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Assign, For, If, Load, Read, Store
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure

N = 12
X = np.random.default_rng(0).normal(size=3 * N)


def near_pairs(tail=lambda build, out, total, slope, place: None, *, start=0.0, stride=3):
    """A number that one branch makes other than a start, multiples of it that are added to elements and a sum, and a tail."""
    build = ProcedureBuilder("near")
    x = build.array("x", (3 * N,))
    out, total = build.allocate("out", 3 * N, zero=True), build.variable("total", 0.0)
    with build.loop(N) as i:
        held = build.load(x, i * 3)
        slope = build.variable("slope", start)
        with build.branch(held * held < 0.5):
            build.assign(slope, held * 3.0)
        read, place = build.read(slope), i * stride
        build.store(out, place, build.load(out, place) - (held + 1.0) * read)
        build.assign(total, build.read(total) + (read + read) / 4.0)
        tail(build, out, total, read, i)
    return build.finish(
        [out, build.read(total)], [aval((3 * N,), np.dtype(float)), aval((), np.dtype(float))]
    )


def in_branches(procedure):
    """Return how many stores and assignments stand in branches."""
    found = [s for branch in walk(procedure.body) if isinstance(branch, If) for s in walk(branch.then)]
    return sum(isinstance(s, Store) for s in found), sum(isinstance(s, Assign) for s in found)


def not_a_multiple(build, out, total, slope, place):
    build.assign(total, build.read(total) + slope + 1.0)


def read_otherwise(build, out, total, slope, place):
    build.store(out, place * 3 + 1, slope * slope)


def loaded_again(build, out, total, slope, place):
    build.store(out, place * 3 + 1, build.load(out, place * 3))


def read_in_a_block(build, out, total, slope, place):
    with build.branch(build.load(out, place) > 0.0):
        build.store(out, place * 3 + 1, slope)


@pytest.mark.parametrize(
    ("procedure", "expected"),
    [
        (near_pairs(), (1, 2)),
        (near_pairs(read_in_a_block), (1, 1)),
        (near_pairs(start=-0.0), (1, 2)),
        (near_pairs(start=1.0), (0, 1)),
        (near_pairs(stride=1), (0, 1)),  # vectors are selected
        (near_pairs(not_a_multiple), (0, 1)),
        (near_pairs(read_otherwise), (0, 1)),
        (near_pairs(loaded_again), (0, 1)),
    ],
    ids=[
        "sunk",
        "read in a block",
        "negative zero",
        "not zero",
        "neighbours",
        "no multiple",
        "read otherwise",
        "loaded again",
    ],
)
def test_multiples_of_a_zero_are_added_in_the_branch_that_makes_it_other_than_zero(procedure, expected):
    sunk = sink_into_branches(procedure)
    verify_procedure(sunk, "the pass")
    assert in_branches(sunk) == expected
    assert (sunk is procedure) == (expected[1] == 1)
    results = run_procedure(procedure, (X,))
    for changed in (run_procedure(sunk, (X,)), compile_procedure(procedure)(X)):
        for actual, wanted in zip(changed, results, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-13)


def test_what_is_a_result_as_well_stays_behind_the_branch():
    build = ProcedureBuilder("chosen")
    x = build.array("x", (4,))
    out = build.allocate("out", 4, zero=True)
    one, other = build.variable("one", 0.0), build.variable("other", -0.0)
    held = build.load(x, 0)
    with build.branch(held > 0.1):
        build.assign(one, held * 2.0)
        build.assign(other, held * 3.0)
    build.store(out, 0, build.load(out, 0) + build.read(one))
    types = [aval((4,), np.dtype(float)), aval((), np.dtype(float))]
    procedure = build.finish([out, build.read(other) + 0.0], types)
    sunk = sink_into_branches(procedure)
    assert in_branches(sunk) == (1, 2)
    for x0 in (0.5, -0.5):
        xs = np.full(4, x0)
        for found in (run_procedure(sunk, (xs,)), compile_procedure(procedure)(xs)):
            assert found[0][0] == (1.0 if x0 > 0 else 0.0)
            assert found[1] == (1.5 if x0 > 0 else 0.0)


def energy(kept):
    """The sum over pairs of a function of what is near; its reverse adds nothing for the others."""
    build = ProcedureBuilder("energy")
    x = build.array("x", (3 * N,))
    total = build.variable("total", 0.0)
    with build.loop(N) as i:
        inner = build.variable("inner", build.read(total))
        with build.loop(N) as j:
            d = build.load(x, i * 3) - build.load(x, j * 3 + 1)
            with build.branch(d * d < kept):
                build.assign(inner, build.read(inner) + d * d * d)
        build.assign(total, build.read(inner))
    return build.finish([build.read(total)])


def test_the_adjoint_of_a_sum_is_the_seed_in_all_iterations():
    pulled = optimise_procedure(vjp_procedure(energy(0.5), [True], [True]), check=True)
    reverse = [s for s in pulled.body if isinstance(s, For)][-1]
    assert not any(isinstance(s, Read) and "_b" in s.variable.name for s in walk(reverse.body))
    (branch,) = [
        s for s in walk(reverse.body) if isinstance(s, If) and any(isinstance(x, Load) for x in s.then)
    ]
    assert any(isinstance(s, Store) for s in branch.then)
    value, gradient = compile_procedure(vjp_procedure(energy(0.5), [True], [True]))(X, 2.0)
    d = X[::3, None] - X[None, 1::3]
    slopes = np.where(d * d < 0.5, 6.0 * d * d, 0.0)
    expected = np.zeros(3 * N)
    expected[::3], expected[1::3] = slopes.sum(1), -slopes.sum(0)
    np.testing.assert_allclose(value, np.sum(d**3, where=d * d < 0.5), rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_what_is_not_used_have_no_sign():
    build = ProcedureBuilder("unused")
    x, y = build.scalar("x"), build.scalar("y")
    total = build.variable("total", 0.0)
    with build.loop(build.scalar("n", np.int64)) as _:
        build.assign(total, build.read(total) + x * y)
    pulled = vjp_procedure(build.finish([build.read(total)]), [True, True, False], [True])
    for run in (compile_procedure(pulled), lambda *arguments: run_procedure(pulled, arguments)):
        assert [str(float(part)) for part in run(2.0, 3.0, 0, 1.0)] == ["0.0", "0.0", "0.0"]
        assert [float(part) for part in run(2.0, 3.0, 4, 1.0)] == [24.0, 12.0, 8.0]


def loop_of(change):
    """Return the loop of a procedure in which a variable is changed, and the variables before it."""
    build = ProcedureBuilder("kept")
    x = build.scalar("x")
    one, other = build.variable("one", x), build.variable("other", -0.0)
    with build.loop(3) as i:
        change(build, one, other, i)
    procedure = build.finish([build.read(one), build.read(other)])
    (loop,) = [s for s in procedure.body if isinstance(s, For)]
    return procedure, kept_variables(
        loop.body, {s.variable: s.value for s in procedure.body if isinstance(s, Assign)}
    )


def through_another(build, one, other, i):
    build.assign(other, build.read(other) + build.read(one))
    build.assign(one, -0.0)
    build.assign(one, build.read(other))
    build.assign(other, -0.0)


def on_both_ways(build, one, other, i):
    held = build.read(one)
    with build.branch(i < 1) as branch:
        build.assign(one, held)
        build.start_otherwise(branch)
        build.assign(one, 2.0)
        build.assign(one, held)


def in_inner_loops(build, one, other, i):
    with build.loop(2) as j:
        through_another(build, one, other, j)


def changed(build, one, other, i):
    build.assign(one, build.read(one) + 1.0)


def on_one_way(build, one, other, i):
    with build.branch(i < 1):
        build.assign(one, 2.0)


def exchanged(build, one, other, i):
    held = build.read(one)
    build.assign(one, build.read(other))
    build.assign(other, held)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (through_another, {"one", "other"}),
        (on_both_ways, {"one"}),
        (in_inner_loops, {"one", "other"}),
        (changed, set()),
        (on_one_way, set()),
        (exchanged, set()),
    ],
)
def test_variables_that_an_iteration_leaves_as_they_were(change, names):
    procedure, kept = loop_of(change)
    assert {variable.name for variable in kept} == names
    forwarded = forward_elements(procedure)
    verify_procedure(forwarded, "the pass")
    assert run_procedure(forwarded, (1.5,)) == run_procedure(procedure, (1.5,))


def powers(hands_on, costly=True):
    """A sum of costly terms under a condition, in a loop that hands a number on, or not."""
    build = ProcedureBuilder("powers")
    x = build.array("x", (N,))
    last, total = build.variable("last", 1.0), build.variable("total", 0.0)
    with build.loop(N) as i:
        held = build.load(x, i)
        term = power(held, held) if costly else held * 2.5
        is_wanted = build.read(last) < held if hands_on else held < 1.0
        build.assign(total, build.read(total) - where(is_wanted, literal(0.0), term))
        build.assign(last, held)
    return build.finish([build.read(total), build.read(last)])


@pytest.mark.parametrize(
    ("hands_on", "costly", "expected"), [(True, True, 1), (False, True, 0), (True, False, 0)]
)
def test_costly_terms_are_computed_under_their_condition_where_there_are_no_vectors(
    hands_on, costly, expected
):
    procedure = powers(hands_on, costly)
    optimised = optimise_procedure(procedure, check=True)
    assert sum(isinstance(s, If) for s in walk(optimised.body)) == expected
    x = np.abs(X[:N]) + 0.5
    found, wanted = compile_procedure(procedure)(x), run_procedure(procedure, (x,))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
