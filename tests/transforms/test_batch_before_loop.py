"""Batching before a loop: code that depends on elements only is computed for all iterations at once."""

import numpy as np
import pytest

from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import number_of
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import closed
from gradtape.procedures.ir import Apply, For
from gradtape.statements import walk
from gradtape.transforms.loops import batch_before_loop
from gradtape.transforms.loops.ops import scan
from tests.support.control_cases import (
    INT64,
    all_cases,
    body_of,
    exp,
    graph_of,
    like,
    matvec,
    scanned,
    tanh,
    value,
)
from tests.support.loop_derivatives import derived, pulled, reverse_of
from tests.support.random_loops import drawn, whole_graph

CASES = [case for case in all_cases() if case.name.endswith("-5")]


@pytest.fixture
def always(monkeypatch):
    """Let it pay from the first iteration."""
    monkeypatch.setattr(batch_before_loop, "MIN_LENGTH", 1)
    monkeypatch.setattr(batch_before_loop, "MANY_PRODUCTS", 0)


@pytest.mark.parametrize("orders", ["r", "f", "rr", "fr"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_derivatives(case, orders, always):
    got, want = derived(case.loop, case.arrays, orders), derived(case.plain, case.arrays, orders)
    for one, other in zip(got, want, strict=True):
        tolerance = 1e-4 if one.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(500, 530))
def test_random_bodies(seed, always):
    case = drawn(seed, (None,))
    for orders in ("", "r", "f"):
        graph = whole_graph(case, orders)
        want = compute_outputs(graph, case.arrays)
        plain = derived(case.plain, case.arrays, orders)
        if orders:
            for one, other in zip(derived(case.loop, case.arrays, orders), plain, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)
        for one, other in zip(compute_outputs(optimise(graph, check=True), case.arrays), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def layered(index, consts, carries, elements):
    (w, u), (h,), (x,) = consts, carries, elements
    h = tanh(matvec(w, h) + matvec(u, x))
    return (h,)


def test_one_product_in_procedures():
    case = scanned("layer", layered, [(20, 20), (20, 20)], [(20,)], [(20,)], 20)
    procedure, _ = reverse_of(case)
    loops = [s for s in procedure.body if isinstance(s, For) and number_of(s.count) == 20]
    products = [s for s in walk(procedure.body) if isinstance(s, Apply)]
    inside = [s for loop in loops for s in walk(loop.body) if isinstance(s, Apply)]
    # With the carries: forward with w, backward with w, and the outer products of w, of all iterations.
    assert [s.outputs[0].aval.shape for s in inside] == [(20,), (20, 20), (20,)]
    # With u: forward, its own cotangent, and the elements'; what is left of the outer products of w.
    assert len(products) - len(inside) == 3
    assert sum(len(s.outputs) for s in products if s not in inside) == 4


def test_functions_of_scalar_elements_are_computed_together():
    inputs = [value((), INT64), value(), value()]
    body = body_of(lambda i, s, e: (s * exp(e * 2.0),), inputs)
    x, es = value(), value((100,))
    graph = optimise(graph_of(scan(body, [], [x], [es], 100), [x, es]))
    (loop,) = [node for node in graph.nodes if node.op is scan]
    assert [node.op.name for node in loop.params["body"].nodes] == ["multiply"]
    arrays = [np.asarray(1.5), np.linspace(-0.1, 0.1, 100)]
    np.testing.assert_allclose(compute_outputs(graph, arrays)[0], 1.5 * np.exp(2.0 * arrays[1].sum()))


def test_one_product_for_the_elements_of_all_iterations():
    case = scanned("layer", layered, [(20, 20), (20, 20)], [(20,)], [(20,)], 20)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    graph = optimise(closed(graph_of([*outs, *pulled(outs, inputs)], inputs)))
    loops = [node for node in graph.nodes if node.op is scan]
    assert len(loops) == 2
    # With the carries: forward with w, backward with w, and the outer product of w.
    products = sum(node.op.name == "contract" for loop in loops for node in loop.params["body"].nodes)
    assert products == 3
    # With u: forward, its own cotangent, and the elements'.
    assert sum(node.op.name == "contract" for node in graph.nodes) == 3
