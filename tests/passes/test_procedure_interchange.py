"""Loop interchange in procedures: products across rows become sums of rows, term by term in the same order."""

import random

import numpy as np
import pytest

from gradtape.ir.types import aval
from gradtape.lower.procedures.optimise import optimise_procedure
from gradtape.lower.procedures.standalone import compile_procedure
from gradtape.ops.core.elementwise.exponential import sin
from gradtape.ops.core.elementwise.logic import less
from gradtape.passes.procedures.interchange import interchange_loops
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import For, Load, Pop, Push
from gradtape.procedures.traversal import walk
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure

N = 9
SIZE = N * N
TYPE = aval((SIZE,), np.dtype(float))


def copied(build, name, source):
    array = build.allocate(name, SIZE)
    with build.loop(SIZE) as i:
        build.store(array, i, build.load(source, i))
    return array


def triangular_product(count=N):
    """For each row, add the rows below, scaled by a column of another matrix."""
    build = ProcedureBuilder("product")
    a, x = build.array("a", (SIZE,)), build.array("x", (SIZE,))
    b = copied(build, "b", x)
    with build.loop(N) as i, build.loop(count) as j:
        total = build.variable("total", 0.0)
        first = build.load(b, i * N + j)
        with build.loop(N - 1 - i) as k:
            row = i + 1 + k
            build.assign(total, build.read(total) + build.load(a, row * N + i) * build.load(b, row * N + j))
        build.store(b, i * N + j, first + build.read(total))
    return build.finish([b], [TYPE])


def innermost(procedure):
    """Return by innermost loop the factors of its number in the indices of loads and stores."""
    return [
        s
        for s in walk(procedure.body)
        if isinstance(s, For) and not any(isinstance(t, For) for t in walk(s.body))
    ]


def random_nest(seed):
    """Return a procedure of nests whose inner loop is between statements."""
    choose = random.Random(seed)
    build = ProcedureBuilder(f"nest{seed}")
    x, y = build.array("x", (SIZE,)), build.scalar("y")
    a, b, c = (copied(build, name, x) for name in "abc")
    state = build.variable("state", y)
    for _ in range(2):
        with build.loop(N - 1) as i, build.loop(N - 1) as j:
            places = [i * N + j, i * N, j, j * N + i, (i + 1) * N + j + 1, 3]
            total = build.variable("total", 0.0)
            known = [y, build.load(choose.choice([a, b, c]), choose.choice(places))]
            if choose.random() < 0.3:
                build.assign(state, build.read(state) * 0.5 + known[-1])
            if choose.random() < 0.4:
                build.store(choose.choice([a, b, c]), choose.choice(places), sin(known[-1]))
            with build.loop(choose.choice([N - 1, N - 1 - i, j])) as k:
                inner = [
                    k * N + j,
                    k * N + j,
                    k * N + j + 1,
                    k * N + i,
                    k,
                    i * N + j,
                    (k + 1) * N + j,
                    i * N + k,
                ]
                term = build.load(choose.choice([a, b, c, x]), choose.choice(inner)) * 0.3 + choose.choice(
                    known
                )
                if choose.random() < 0.8:
                    build.assign(total, build.read(total) + term)
                if choose.random() < 0.4:
                    array, place = choose.choice([a, b, c]), choose.choice(inner)
                    build.store(array, place, build.load(array, place) + term * 0.1)
                if choose.random() < 0.2:
                    with build.branch(less(term, 0.3)):
                        build.store(choose.choice([a, b, c]), choose.choice(inner), term)
            if choose.random() < 0.8:
                build.store(choose.choice([a, b, c]), choose.choice(places), build.read(total) + known[-1])
            if choose.random() < 0.3:
                build.assign(state, build.read(state) + sin(build.read(total)))
    return build.finish([a, b, c, build.read(state)], [TYPE] * 3 + [aval((), np.dtype(float))])


def arguments_of(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=SIZE) * 0.5, rng.normal()]


def check(procedure, arguments):
    changed = interchange_loops(procedure)
    verify_procedure(changed)
    for one, other in zip(
        run_procedure(changed, arguments), run_procedure(procedure, arguments), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return changed is not procedure


def test_random_nests_compute_the_same():
    assert sum(check(random_nest(seed), arguments_of(seed)) for seed in range(80)) > 5


def test_derivatives_of_random_nests_compute_the_same():
    for seed in range(12):
        pulled = vjp_procedure(random_nest(seed), [True, True], [True] * 4)
        check(pulled, [*arguments_of(seed), *[np.ones(SIZE)] * 3, 1.0])


def test_the_inner_loop_walks_along_rows():
    changed = interchange_loops(triangular_product())
    (product,) = [s for s in innermost(changed) if sum(isinstance(t, Load) for t in s.body) == 3]
    assert [type(s).__name__ for s in product.body] == ["Load", "Load", "Load", "Store"]
    check(triangular_product(), [np.arange(SIZE) * 0.1, np.ones(SIZE)])


def test_a_short_loop_stays_outside():
    procedure = triangular_product(5)
    assert interchange_loops(procedure) is procedure


def test_the_reverse_sweep_walks_along_rows():
    pulled = optimise_procedure(vjp_procedure(triangular_product(), [True, True], [True]))
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=SIZE) for _ in range(3)]
    expected = run_procedure(vjp_procedure(triangular_product(), [True, True], [True]), arguments)
    for one, other in zip(run_procedure(pulled, arguments), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    for one, other in zip(compile_procedure(pulled)(*arguments), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    kinds = [[type(t).__name__ for t in loop.body] for loop in innermost(pulled)]
    assert ["Load", "Load", "Load", "Load", "Store", "Load", "Store"] in kinds


@pytest.mark.parametrize("places, changes", [("b", True), ("a", True), ("ab", False), ("i", False)])
def test_the_order_of_the_tape_is_kept(places, changes):
    """Records of one part stay in their order; those of two parts would be exchanged."""
    build = ProcedureBuilder("records")
    x = build.array("x", (SIZE,))
    total = build.variable("total", 0.0)
    sums = build.allocate("sums", N)

    def push(place, value):
        if place in places:
            build.append(Push((value,)))

    with build.loop(N) as j:
        build.assign(total, 0.0)
        push("b", build.load(x, j))
        with build.loop(N) as k:
            build.assign(total, build.read(total) + build.load(x, k * N + j))
            push("i", build.read(total))
        build.store(sums, j, build.read(total))
        push("a", build.read(total) * 2.0)
    last = build.variable("last", 0.0)
    with build.loop(N * len(places) if places != "i" else SIZE):
        out = leaf(float)
        build.append(Pop((out,)))
        build.assign(last, build.read(last) * 0.5 + out)
    procedure = build.finish(
        [sums, build.read(last)], [aval((N,), np.dtype(float)), aval((), np.dtype(float))]
    )
    changed = interchange_loops(procedure)
    assert (changed is not procedure) is changes
    x = np.random.default_rng(0).normal(size=SIZE)
    for one, other in zip(run_procedure(changed, [x]), run_procedure(procedure, [x]), strict=True):
        np.testing.assert_array_equal(one, other)
