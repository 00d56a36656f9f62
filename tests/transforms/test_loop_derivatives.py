"""Derivatives of loops and branches: against the same computation without loops."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import NotDifferentiableError
from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Value, constant, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import aval
from gradtape.passes.pipeline import optimise
from gradtape.procedures.ir import Apply, For
from gradtape.procedures.printer import source_of
from gradtape.statements import walk
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops import deferred_accumulation
from gradtape.transforms.loops.ops import scan
from gradtape.transforms.procedures import adjoint as accumulate
from gradtape.transforms.procedures.reference import _cotangent_of
from gradtape.transforms.vjp import vjp
from tests.support.control_cases import (
    all_cases,
    graph_of,
    integers,
    looked_up,
    matvec,
    pendulum,
    rnn,
    scanned,
    tanh,
    total,
)
from tests.support.loop_derivatives import derived, is_real, never, numbers, pulled, reverse_of
from tests.transforms.procedures.evaluator import Evaluator, run_procedure

CASES = all_cases()
cases = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
WEAK = np.random.default_rng(1).normal(size=(40, 40)) * 0.1
ways = pytest.mark.parametrize("orders", ["f", "r", "ff", "fr", "rf", "rr", "frr", "rrf"])


@cases
def test_values(case):
    for got, want in zip(
        derived(case.loop, case.arrays, ""), derived(case.plain, case.arrays, ""), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype and got.shape == want.shape


@cases
@ways
def test_derivatives_are_those_without_loops(case, orders):
    got = derived(case.loop, case.arrays, orders)
    want = derived(case.plain, case.arrays, orders)
    for one, other in zip(got, want, strict=True):
        tolerance = 1e-4 if one.dtype == np.float32 else 1e-9
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@cases
def test_forward_and_reverse_agree(case):
    """<ct, J t> is <J^T ct, t>."""
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    outs = [out for out in case.loop(*inputs) if is_real(out)]
    sources = [x for x in inputs if is_real(x)]
    tangents = [constant(numbers(x, k)) for k, x in enumerate(sources)]
    seeds = [constant(numbers(out, 50 + k)) for k, out in enumerate(outs)]
    forward = _inner(seeds, jvp(outs, sources, tangents, never))
    reverse = _inner(vjp(outs, sources, seeds, never), tangents)
    (a, b) = compute_outputs(graph_of([forward, reverse], inputs), case.arrays)
    np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype == np.float32 else 1e-10, atol=1e-12)


def _inner(xs, ys):
    parts = [
        total(PRIMITIVES["real"](x * y) if x.dtype.kind == "c" else x * y)
        for x, y in zip(xs, ys, strict=True)
        if x is not None and y is not None
    ]
    return sum(parts[1:], parts[0])


@cases
@pytest.mark.parametrize("orders", ["r", "rr", "fr"])
def test_sums_over_iterations_after_the_loop(case, orders, monkeypatch):
    monkeypatch.setattr(deferred_accumulation, "LARGE_MATRIX", 1)
    test_derivatives_are_those_without_loops(case, orders)


def test_matrices_are_summed_up_after_a_loop_over_products():
    """A loop over several products remains a loop."""

    def step(index, consts, carries, elements):
        (w, u), (h,) = consts, carries
        return (tanh(matvec(w, tanh(matvec(u, h)))),)

    case = scanned("twice", step, [WEAK, WEAK.T], [(40,)], [], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    graph = graph_of(pulled(list(case.loop(*inputs)), inputs), inputs)
    carried = [out.shape for node in graph.nodes if node.op is scan for out in node.outs]
    assert carried and (40, 40) not in carried
    for one, other in zip(
        compute_outputs(graph, case.arrays), derived(case.plain, case.arrays, "r"), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@cases
@pytest.mark.parametrize("orders", ["r", "rr", "fr"])
@pytest.mark.parametrize("most", [2, 5])
def test_sums_of_products_after_iterations(case, orders, most, monkeypatch):
    """Few products wait, so that they are added in the loop as well as after it."""
    for name in ("MOST_DEFERRED", "SOME_DEFERRED"):
        monkeypatch.setattr(accumulate, name, most)
    for name in ("LEAST_DEFERRED", "LEAST_SUM"):
        monkeypatch.setattr(accumulate, name, 1)
    _cotangent_of.cache_clear()
    test_derivatives_are_those_without_loops(case, orders)
    _cotangent_of.cache_clear()


@pytest.mark.parametrize(("length", "sums"), [(6, [6]), (200, [64])])
def test_a_matrix_is_summed_up_after_iterations(length, sums):
    """The outer products of a number of iterations are one product of matrices."""
    case = scanned("rnn", rnn, [WEAK, (40,)], [(40,)], [(40,)], length)
    procedure, arguments = reverse_of(case)
    summed = [
        s.graph.inputs[0].shape[0]
        for s in walk(procedure.body)
        if isinstance(s, Apply) and s.outputs[0].aval.shape == (40, 40)
    ]
    # In the loop, where enough products wait, and after it.
    assert summed == 2 * sums
    wanted = derived(case.plain, case.arrays, "r")
    for one, other in zip(run_procedure(procedure, arguments)[-len(wanted) :], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_procedure_sums_up_a_table_in_one_place():
    case = scanned("looked-up", looked_up, [(100,), (3,)], [()], [integers(100)], 6)
    procedure, arguments = reverse_of(case)
    loops = [s for s in procedure.body if isinstance(s, For) and number_of(s.count) == 6]
    assert loops and not [
        s for x in loops for s in walk(x.body) if isinstance(s, For) and number_of(s.count) == 100
    ]
    wanted = derived(case.plain, case.arrays, "r")
    for one, other in zip(run_procedure(procedure, arguments)[-len(wanted) :], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("conjugates", [False, True])
def test_holomorphic_derivatives_look_into_bodies(conjugates):
    def function(z):
        def step(carry, x):
            w, size = carry
            w = w * z + x
            return ((np.conj(w) * z if conjugates else w), size + np.abs(w)), None

        (w, _), _ = gt.scan(step, (z, 0.0), np.arange(3.0))
        return w

    if conjugates:
        with pytest.raises(NotDifferentiableError, match="conjugate"):
            gt.grad(function, holomorphic=True)(0.3 + 0.2j)
    else:
        z = 0.3 + 0.2j
        np.testing.assert_allclose(gt.grad(function, holomorphic=True)(z), 4 * z**3 + 1)


def test_a_carry_is_kept_once():
    """The next iteration begins with the carry of this one. The derivative of the tangent reads its argument (ADR 107)."""
    case = scanned("rnn", lambda *given: rnn(*given)[:1], [(3, 3), (3,)], [(3,)], [(3,)], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    graph = graph_of(pulled(list(case.loop(*inputs)), inputs), inputs)
    forward = next(node for node in graph.nodes if node.op is scan)
    assert [out.shape for out in forward.outs] == [(3,), (6, 3), (6, 3)]


def test_a_carry_is_kept_once_on_the_tape():
    """The next iteration begins with the carry of this one. The derivative of the tangent reads its argument (ADR 107)."""
    case = scanned("rnn", lambda *given: rnn(*given)[:1], [(3, 3), (3,)], [(3,)], [(3,)], 6)
    procedure, arguments = reverse_of(case)
    evaluator = Evaluator()
    run_procedure(procedure, arguments, evaluator)
    assert evaluator.most == 6 * (3 + 3)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_procedure_keeps_its_sines_and_their_cosines(shape):
    case = scanned("pendulum", lambda *given: pendulum(*given)[:2], [shape], [shape, shape], [], 6)
    procedure, _ = reverse_of(case)
    forward, _, backward = source_of(procedure).text.partition(".pop()")
    assert "sin(" in forward and "cos(" in forward
    assert "sin(" not in backward and "cos(" not in backward


def test_a_matrix_is_summed_up_after_the_loop():
    case = scanned("rnn", rnn, [(40, 40), (40,)], [(40,)], [(40,)], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    outs = list(case.loop(*inputs))
    graph = graph_of(pulled(outs, inputs), inputs)
    carried = [out.shape for node in graph.nodes if node.op is scan for out in node.outs]
    assert (40, 40) not in carried
    for one, other in zip(
        compute_outputs(graph, case.arrays), derived(case.plain, case.arrays, "r"), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def test_a_table_is_summed_up_after_the_loop():
    case = scanned("looked-up", looked_up, [(100,), (3,)], [()], [integers(100)], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    graph = optimise(graph_of(pulled(list(case.loop(*inputs)), inputs), inputs))
    assert (100,) not in [out.shape for node in graph.nodes if node.op is scan for out in node.outs]
    for one, other in zip(
        compute_outputs(graph, case.arrays), derived(case.plain, case.arrays, "r"), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def test_a_pendulum_keeps_its_sines_and_their_cosines():
    case = scanned("pendulum", lambda *given: pendulum(*given)[:2], [()], [(), ()], [], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    graph = graph_of(pulled(list(case.loop(*inputs)), inputs), inputs)
    forward, backward = [node for node in graph.nodes if node.op is scan]
    assert [out.shape for out in forward.outs] == [(), (), *[(6,)] * 8]
    names = [[node.op.name for node in loop.params["body"].nodes] for loop in (forward, backward)]
    assert [(ops.count("sin"), ops.count("cos")) for ops in names] == [(4, 4), (0, 0)]


def test_the_cosines_of_arrays_are_computed_again():
    case = scanned("pendulum", lambda *given: pendulum(*given)[:2], [(3,)], [(3,), (3,)], [], 6)
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    graph = graph_of(pulled(list(case.loop(*inputs)), inputs), inputs)
    _, backward = [node for node in graph.nodes if node.op is scan]
    ops = [node.op.name for node in backward.params["body"].nodes]
    assert ops.count("cos") == 4 and "sin" not in ops
