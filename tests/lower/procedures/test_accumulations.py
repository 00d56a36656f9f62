"""Loops in the form that LLVM's vectoriser takes: accumulations and independent iterations."""

import numpy as np
import pytest

from gradtape.ir.graph import number_of
from gradtape.ir.types import aval
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Assign, For, Store
from gradtape.statements import walk
from tests.lower.procedures.standalone import compile_procedure, procedure_module

RANDOM = np.random.default_rng(0)
N = 50


def accumulating(update, *, size=N, trips=N - 2):
    """Copy x, and add to elements of the copy in a loop."""
    build = ProcedureBuilder("accumulating")
    x, w, number = build.array("x", (size,)), build.array("w", (size,)), build.scalar("k", np.int64)
    out = build.allocate("out", size)
    with build.loop(size) as i:
        build.store(out, i, build.load(x, i))
    with build.loop(trips if trips is not None else number) as i:
        update(build, out, w, i, number)
    return build.finish([out], [aval((size,), np.dtype(float))])


def add_to(build, out, index, value):
    build.store(out, index, build.load(out, index) + value)


def stencil(build, out, w, i, number):
    term = build.load(w, i) * 2.0
    add_to(build, out, i, term)
    add_to(build, out, i + 1, -term)
    add_to(build, out, i + 2, build.load(w, i + 1))


def one_element_and_many(build, out, w, i, number):
    term = build.load(w, i)
    add_to(build, out, number, term)
    add_to(build, out, i, 3.0 * term)
    build.store(out, number, build.load(out, number) - 0.5 * term)


def one_element_that_is_read(build, out, w, i, number):
    add_to(build, out, number, build.load(w, i))
    add_to(build, out, i, build.load(out, i + 2))


def scattered(build, out, w, i, number):
    add_to(build, out, number, build.load(w, i))
    add_to(build, out, i * i - i * i + 3, 1.0)


@pytest.mark.parametrize("update", [stencil, one_element_and_many, one_element_that_is_read, scattered])
@pytest.mark.parametrize("trips", [None, N - 2, 0])
def test_accumulations(update, trips):
    procedure = accumulating(update, trips=trips)
    for number in (0, 5, N - 2):
        arguments = (RANDOM.normal(size=N), RANDOM.normal(size=N), number)
        (expected,) = run_procedure(procedure, arguments)
        (found,) = compile_procedure(procedure)(*arguments)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def counts_and_stores(procedure):
    loops = [s for s in walk(optimise_procedure(procedure).body) if isinstance(s, For)]
    return [
        (number_of(loop.count) and int(number_of(loop.count)), sum(isinstance(s, Store) for s in loop.body))
        for loop in loops
    ]


def test_what_is_added_to_neighbours_is_gathered():
    """Two elements at each border get fewer additions."""
    assert counts_and_stores(accumulating(stencil)) == [(N, 1), (N - 4, 1), (2, 1), (2, 1)]


def test_neighbours_have_loops_of_their_own_where_borders_are_most_of_a_loop_or_unknown():
    assert counts_and_stores(accumulating(stencil, trips=20)) == [(N, 1), (20, 1), (20, 1), (20, 1)]
    assert counts_and_stores(accumulating(stencil, trips=None)) == [(N, 1), (None, 1), (None, 1), (None, 1)]


@pytest.mark.parametrize("trips", [1, 2, 15, 16, 17, 33, 34, 63, 200])
@pytest.mark.parametrize("step", [1, -1, 2, -3])
@pytest.mark.parametrize("offsets", [(0, 1), (1, 0, 2), (3, -3, 0, 0), (0, 6, -6), (0, 5, 1, 70), (2, 2)])
def test_neighbours_at_any_distance_and_step(offsets, step, trips):
    size = 3 * 200 + 100

    def update(build, out, w, i, number):
        term = build.load(w, i + 1)
        place = 10 + i * step + max(0, -step * (trips - 1))
        for count, offset in enumerate(offsets):
            add_to(build, out, place + offset, term * build.load(w, i + count) * (count + 1.0))

    procedure = accumulating(update, size=size, trips=trips)
    arguments = (RANDOM.normal(size=size), RANDOM.normal(size=size), 0)
    (expected,) = run_procedure(procedure, arguments)
    (found,) = run_procedure(optimise_procedure(procedure, check=True), arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_term_that_the_loop_changes_is_not_gathered():
    def update(build, out, w, i, number):
        held = build.load(out, i)
        add_to(build, out, i + 60, held)
        add_to(build, out, i + 61, held)
        build.store(out, i, 0.5 * held)

    procedure = accumulating(update, size=200, trips=100)
    arguments = (RANDOM.normal(size=200), RANDOM.normal(size=200), 0)
    (expected,), (found,) = run_procedure(procedure, arguments), compile_procedure(procedure)(*arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_one_element_is_a_sum_in_a_variable():
    body = optimise_procedure(accumulating(one_element_and_many)).body
    loop = [s for s in body if isinstance(s, For)][-1]
    assert any(isinstance(s, Assign) for s in loop.body)
    assert sum(isinstance(s, Store) for s in loop.body) == 1
    body = optimise_procedure(accumulating(one_element_that_is_read)).body
    assert not any(isinstance(s, Assign) for s in walk(body))


def test_expensive_terms_are_not_computed_twice():
    def update(build, out, w, i, number):
        term = build.load(w, i)
        for _ in range(4):
            term = 1.0 / (1.0 + term * term) ** 0.3
        add_to(build, out, i, term)
        add_to(build, out, i + 1, term)

    loops = [s for s in walk(optimise_procedure(accumulating(update)).body) if isinstance(s, For)]
    assert len(loops) == 2


def elimination(n, first):
    """``m[i, j] -= m[i, k] * m[k, j]`` for the rows below each k; columns from k + `first` on."""
    build = ProcedureBuilder("elimination")
    x = build.array("x", (n, n))
    m = build.allocate("m", n * n)
    with build.loop(n * n) as i:
        build.store(m, i, build.load(x, i))
    with build.loop(n) as k, build.loop(n - 1 - k) as below:
        i = k + 1 + below
        with build.loop(n - k - first) as right:
            j = k + first + right
            product = build.load(m, i * n + k) * build.load(m, k * n + j)
            build.store(m, i * n + j, build.load(m, i * n + j) - product)
    return build.finish([m], [aval((n, n), np.dtype(float))])


@pytest.mark.parametrize("first", [0, 1])
def test_independent_iterations_of_triangles(first):
    """From column k + 1 on, no iteration changes what another one reads; column k itself is read by all."""
    procedure = elimination(12, first)
    assert ("llvm.loop.parallel_accesses" in procedure_module(procedure).text()) == bool(first)
    x = RANDOM.normal(size=(12, 12)) + 12 * np.eye(12)
    (expected,), (found,) = run_procedure(procedure, [x]), compile_procedure(procedure)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shift", [1, 3, 20])
def test_dependent_iterations(shift):
    build = ProcedureBuilder("recurrence")
    x, step = build.array("x", (100,)), build.scalar("step", np.int64)
    out = build.allocate("out", 100)
    with build.loop(100) as i:
        build.store(out, i, build.load(x, i))
    with build.loop(100 - step) as i:
        build.store(out, i + step, build.load(out, i) * 0.5 + build.load(out, i + step))
    procedure = build.finish([out], [aval((100,), np.dtype(float))])
    assert "llvm.loop.parallel_accesses" not in procedure_module(procedure).text()
    x = RANDOM.normal(size=100)
    (expected,), (found,) = run_procedure(procedure, [x, shift]), compile_procedure(procedure)(x, shift)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def in_a_branch(build, out, w, i, number):
    """Where no branch is taken, the element is none of the array."""
    with build.branch(i < number):
        add_to(build, out, number * 1000 - 1000 * number + N - 1, build.load(w, i))
        add_to(build, out, i, 2.0)


@pytest.mark.parametrize("number", [0, 7])
def test_accumulations_in_branches(number):
    procedure = accumulating(in_a_branch)
    arguments = (RANDOM.normal(size=N), RANDOM.normal(size=N), number)
    (expected,), (found,) = run_procedure(procedure, arguments), compile_procedure(procedure)(*arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    loop = [s for s in optimise_procedure(procedure).body if isinstance(s, For)][-1]
    assert sum(isinstance(s, Store) for s in walk(loop.body)) == 1


def test_conditional_sum_through_another_variable_is_vectorised():
    """``y = x + w[i] if w[i] > 0 else x; x = y`` is a sum of any order."""
    build = ProcedureBuilder("conditional")
    w = build.array("w", (N,))
    x, y = build.variable("x", 0.0), build.variable("y", 0.0)
    with build.loop(N) as i:
        element = build.load(w, i)
        with build.branch(element > 0.0) as branch:
            build.assign(y, build.read(x) + element)
            build.start_otherwise(branch)
            build.assign(y, build.read(x))
        build.assign(x, build.read(y))
    procedure = build.finish([build.read(x)])
    assert "fadd reassoc" in procedure_module(procedure).text()
    w = RANDOM.normal(size=N)
    np.testing.assert_allclose(compile_procedure(procedure)(w)[0], w[w > 0].sum(), rtol=1e-13)


def test_compensated_sum_keeps_its_order():
    """Kahan's sum: what is lost by an addition is found by subtractions in the given order."""
    build = ProcedureBuilder("kahan")
    w = build.array("w", (1000,))
    total, lost = build.variable("total", 0.0), build.variable("lost", 0.0)
    with build.loop(1000) as i:
        before = build.read(total)
        term = build.load(w, i) - build.read(lost)
        after = before + term
        build.assign(lost, (after - before) - term)
        build.assign(total, after)
    procedure = build.finish([build.read(total)])
    w = np.where(np.arange(1000) % 2, 1e-8, 1.0) * RANDOM.uniform(size=1000)
    (expected,), (found,) = run_procedure(procedure, [w]), compile_procedure(procedure)(w)
    assert abs(found - expected) <= np.spacing(expected)
