"""Reverse mode of procedures: the adjoint identity with forward mode, and second derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.graph import literal
from gradtape.ir.types import aval, is_inexact
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Assign, Push, Variable
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.transforms.procedures.evaluator import run_procedure
from tests.transforms.procedures.samples import SAMPLES, cholesky
from tests.transforms.procedures.test_jvp import active_parameters, directions, moved


def seeded_results(procedure):
    return [is_inexact(type_.dtype) for type_ in procedure.result_types]


def pullback(procedure):
    pulled = vjp_procedure(procedure, active_parameters(procedure), seeded_results(procedure))
    verify_procedure(pulled)
    return pulled


def seeds_of(procedure, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=type_.shape) for type_ in procedure.result_types if is_inexact(type_.dtype)]


def dot(xs, ys):
    return sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True))


def check_adjoint(procedure, arguments, rtol=1e-9):
    """Compare the pullback with the tangents: <ct, J dx> = <J^T ct, dx>."""
    count = len(procedure.results)
    pulled = pullback(procedure)
    seeds, tangents = seeds_of(procedure), directions(procedure, arguments)
    results = run_procedure(pulled, [*arguments, *seeds])
    for result, expected in zip(results[:count], run_procedure(procedure, arguments), strict=True):
        np.testing.assert_array_equal(result, expected)
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    verify_procedure(pushed)
    images = run_procedure(pushed, [*arguments, *tangents])[count:]
    np.testing.assert_allclose(dot(results[count:], tangents), dot(seeds, images), rtol=rtol, atol=1e-10)
    return results[count:]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_the_pullback_is_the_transpose_of_the_tangents(sample):
    cotangents = check_adjoint(*sample())
    if sample.__name__ != "zero_trips":
        assert all(np.any(cotangent) for cotangent in cotangents)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_second_derivatives(sample):
    """The pullback of the tangents: the adjoint identity, and the part in x against differences of the pullback."""
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    tangents = directions(procedure, arguments)
    check_adjoint(pushed, [*arguments, *tangents], 1e-8)
    if not seeded_results(procedure).count(True):
        return
    seeds = seeds_of(procedure)
    zeros = [np.zeros_like(seed) for seed in seeds]
    count = len(pushed.results)
    results = run_procedure(pullback(pushed), [*arguments, *tangents, *zeros, *seeds])[count:]
    first = pullback(procedure)

    def gradient(step):
        return run_procedure(first, [*moved(procedure, arguments, tangents, step), *seeds])[
            len(procedure.results) :
        ]

    for result, ahead, behind in zip(results[: len(tangents)], gradient(1e-6), gradient(-1e-6), strict=True):
        np.testing.assert_allclose(result, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-5)


def test_a_part_of_the_parameters_and_results():
    """Cotangents are returned for active parameters alone, and taken for seeded results alone."""
    build = ProcedureBuilder("parts")
    x, y, n = build.array("x", (3,)), build.scalar("y"), build.scalar("n", np.int64)
    out = build.allocate("out", 3)
    with build.loop(3) as i:
        build.store(out, i, build.load(x, i) * y)
    procedure = build.finish(
        [out, y, y * y, n, literal(2.5)],
        [aval((3,), np.dtype(float)), y.aval, y.aval, n.aval, aval((), np.dtype(float))],
    )
    arguments = [np.array([1.0, 2.0, 3.0]), 0.5, 7]
    pulled = vjp_procedure(procedure, [False, True, False], [True, True, False, False, True])
    verify_procedure(pulled)
    assert len(pulled.parameters) == 3 + 3
    results = run_procedure(pulled, [*arguments, np.array([1.0, 10.0, 100.0]), 1000.0, 1.0])
    assert [float(np.sum(x)) for x in results] == [3.0, 0.5, 0.25, 7.0, 2.5, 321.0 + 1000.0]
    pulled = vjp_procedure(procedure, [True, True, False], [False, False, True, False, False])
    results = run_procedure(pulled, [*arguments, 3.0])
    np.testing.assert_array_equal(results[5], np.zeros(3))
    assert results[6] == 3.0


def test_a_parameter_that_is_not_active_in_an_active_memory():
    """Pointers to both go through one variable: the shadow of the other one is made, and not returned."""
    build = ProcedureBuilder("mixed")
    x, y, flag = build.array("x", (2,)), build.array("y", (2,)), build.scalar("flag", np.bool_)
    both = build.allocate("a", 2)
    other = build.allocate("b", 2, memory=both.memory)
    with build.loop(2) as i:
        build.store(both, i, build.load(x, i))
        build.store(other, i, build.load(y, i))
    chosen = build.variable("p", both)
    with build.branch(flag):
        build.assign(chosen, other)
    pointer = build.read(chosen)
    procedure = build.finish([build.load(pointer, 0) * build.load(pointer, 1)])
    pulled = vjp_procedure(procedure, [True, False, False], [True])
    verify_procedure(pulled)
    for flag, expected in ((False, [3.0, 2.0]), (True, [0.0, 0.0])):
        results = run_procedure(pulled, [[2.0, 3.0], [5.0, 7.0], flag, 1.0])
        np.testing.assert_array_equal(results[1], expected)


def test_masks_do_not_let_infinite_partial_derivatives_through():
    build = ProcedureBuilder("masks")
    x = build.array("x", (3,))
    total = build.variable("s", 0.0)
    with build.loop(3) as i:
        v = build.load(x, i)
        build.assign(total, build.read(total) + where(less(literal(0.0), v), sqrt(v), v))
    pulled = pullback(build.finish([build.read(total)]))
    np.testing.assert_array_equal(run_procedure(pulled, [[4.0, 0.0, -1.0], 1.0])[1], [0.25, 1.0, 1.0])


def test_an_array_that_the_reverse_sweep_restores_is_returned_as_it_was():
    build = ProcedureBuilder("squares")
    x = build.array("x", (6,))
    a = build.allocate("a", 6)
    with build.loop(6) as i:
        build.store(a, i, build.load(x, i))
    with build.loop(5), build.loop(5) as j, build.loop(j) as k:
        build.store(a, 5 - k, build.load(a, j) * build.load(a, k) * 0.5)
    procedure = build.finish([a], [aval((6,), np.dtype(float))])
    check_adjoint(procedure, [np.linspace(0.5, 1.5, 6)])


def test_branches_tell_which_elements_an_iteration_writes():
    """Of a Cholesky decomposition nothing is kept: where ``i == j``, the root that is written is not read in the same iteration."""
    procedure, _ = cholesky(4)
    assert not any(isinstance(s, Push) for s in walk(pullback(procedure).body))


@pytest.mark.parametrize("salt", range(6))
def test_the_order_of_shadows_does_not_depend_on_addresses(monkeypatch, salt):
    """Equal programs have equal code in each process: the cotangents of variables begin in the order of the program."""
    monkeypatch.setattr(Variable, "__hash__", lambda self: hash((salt, self.name)))
    build = ProcedureBuilder("f")
    x = build.scalar("x")
    names = ("a", "b", "c", "d", "e")
    variables = [build.variable(name, x * (k + 1.0)) for k, name in enumerate(names)]
    with build.loop(3):
        for first, second in zip(variables, variables[1:] + variables[:1], strict=True):
            build.assign(first, build.read(first) * build.read(second))
    pulled = pullback(build.finish([build.read(variables[0])], [aval((), np.dtype(float))]))
    begun = dict.fromkeys(s.variable.name for s in walk(pulled.body) if isinstance(s, Assign))
    assert [name for name in begun if name not in names] == [f"{name}_b" for name in names]
