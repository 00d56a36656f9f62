"""Passes over graphs with loops and branches: what is left of them."""

from collections import Counter
from unittest import mock

import numpy as np
import pytest

from gradtape.errors import VerifyError
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Value, constant
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.printer import print_graph
from gradtape.ir.verifier import verify
from gradtape.kinds.control import barrier
from gradtape.passes import pipeline
from gradtape.passes.complex.graphs import split_complex
from gradtape.passes.control import loop_fusion
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import closed
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop
from gradtape.transforms.procedures.ops import procedure_vjp
from tests.support.control_cases import (
    INT64,
    all_cases,
    body_of,
    complexed,
    complexes,
    cos,
    exp,
    graph_of,
    like,
    literal,
    matvec,
    rnn,
    scanned,
    sin,
    spread,
    tanh,
    value,
)
from tests.support.loop_derivatives import pulled, pushed

CASES = all_cases()
expand = PRIMITIVES["expand"]
LOOPS = ("scan", "while_loop", "repeat", "switch")


def ops(graph):
    return Counter(node.op.name for node in graph.nodes)


def only(graph, op):
    (node,) = [node for node in graph.nodes if node.op is op]
    return node


def shape(graph):
    """Return what an optimised graph says of its loops: how many carries, and results left behind."""
    node = only(graph, scan)
    carries = node.params["carries"]
    return (
        node.params["consts"],
        carries,
        len(node.inputs) - node.params["consts"] - carries,
        len(node.outs) - carries,
    )


def scan_of(function, consts=(), carries=(), arrays=(), length=5):
    inputs = [
        value((), INT64),
        *[like(x) for x in (*consts, *carries)],
        *[value(x.shape[1:], x.dtype) for x in arrays],
    ]
    return scan(body_of(function, inputs), consts, carries, arrays, length)


@pytest.mark.parametrize("orders", ["", "r", "f", "fr", "rr"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_same_numbers(case, orders):
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    for order in orders:
        outs = [*outs, *(pushed(outs, inputs) if order == "f" else pulled(outs, inputs))]
    graph = closed(graph_of(outs, inputs))
    want = compute_outputs(graph, case.arrays)
    split = split_complex(graph)
    optimised = optimise(split, check=True)
    arrays = list(case.arrays)
    if split is not graph:
        arrays = [_parts(x) for x in (*arrays, *[v.data for v in graph.constants()])]
    for one, other in zip(compute_outputs(optimised, arrays), want, strict=True):
        tolerance = 1e-4 if other.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(one, _parts(other), rtol=tolerance, atol=tolerance)


def _parts(x):
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


@pytest.mark.parametrize("case", [c for c in CASES if c.name.endswith("-5")], ids=lambda c: c.name)
def test_a_value_and_its_gradient_are_one_loop_forward_and_one_backward(case):
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    optimised = optimise(split_complex(closed(graph_of([*outs, *pulled(outs, inputs)], inputs))))
    directions = [node.params["reverse"] for node in optimised.nodes if node.op is scan]
    assert sorted(directions) == [False, True]


@pytest.mark.parametrize(
    ("name", "loops"), [("while-scalar", [while_loop, repeat]), ("while-vector", [procedure_vjp])]
)
def test_a_while_loop_and_its_gradient(name, loops):
    """One that multiplies matrices is differentiated as a procedure, which computes its results as well."""
    case = next(case for case in CASES if case.name == name)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    optimised = optimise(closed(graph_of([*outs, *pulled(outs, inputs)], inputs)))
    names = (*LOOPS, procedure_vjp.name)
    assert [node.op for node in optimised.nodes if node.op.name in names] == loops


def test_a_value_and_its_tangent_are_one_loop():
    case = scanned("rnn", rnn, [(3, 3), (3,)], [(3,)], [(3,)], 5)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    assert ops(optimise(closed(graph_of([*outs, *pushed(outs, inputs)], inputs))))["scan"] == 1


def test_different_loops_stay_apart():
    x, y = value(), value()
    a = scan_of(lambda i, s: (sin(s),), [], [x])
    b = scan_of(lambda i, s: (sin(s),), [], [y])
    c = scan_of(lambda i, s: (cos(s),), [], [a[0]])
    assert ops(optimise(graph_of([a[0], b[0], c[0]], [x, y])))["scan"] == 3


def test_invariants_leave_the_loop():
    w, c, x = value((3, 3)), value((3,)), value((3,))
    outs = scan_of(lambda i, w, c, s: (s * exp(c) + matvec(w, c),), [w, c], [x])
    optimised = optimise(graph_of(outs, [w, c, x]))
    assert ops(optimised)["exp"] == ops(optimised)["contract"] == 1
    assert ops(only(optimised, scan).params["body"]) == {"multiply": 1, "add": 1}


def test_an_expansion_stays_inside():
    c, x = value(), value((1000,))
    outs = scan_of(lambda i, c, s: (s * spread(c, 1000),), [c], [x])
    optimised = optimise(graph_of(outs, [c, x]))
    assert [v.shape for v in only(optimised, scan).inputs] == [(), (1000,)]


def test_a_gradient_is_put_into_a_slice_after_the_loop():
    w, x = value((100,)), value()
    part = lambda w: body_slice(w, 3)  # noqa: E731
    outs = scan_of(lambda i, w, s: (s * part(w),), [w], [x])
    graph = graph_of(pulled(outs, [w]), [w, x])
    assert (100,) not in [out.shape for node in graph.nodes if node.op is scan for out in node.outs]


def body_slice(w, k):
    from tests.support.control_cases import PRIMITIVES

    return PRIMITIVES["reshape"](PRIMITIVES["slice"](w, (k,), (1,), (1,)), ())


def test_dead_carries_and_results():
    x, y, e = value(), value(), value((5,))
    outs = scan_of(lambda i, s, t, e: (s + 1.0, t * e, s * t), [], [x, y], [e])
    assert shape(optimise(graph_of([outs[0]], [x, y, e]))) == (0, 1, 0, 0)
    assert shape(optimise(graph_of([outs[2]], [x, y, e]))) == (0, 2, 1, 1)


def test_a_carry_that_never_changes():
    x, y = value(), value()
    outs = scan_of(lambda i, s, t: (s * t, t), [], [x, y])
    optimised = optimise(graph_of(outs, [x, y]))
    assert shape(optimised) == (1, 1, 0, 0)
    assert optimised.outputs[1] is y


def test_equal_carries():
    x = value()
    outs = scan_of(lambda i, s, t, u: (sin(s), sin(t), u + t), [], [x, x, x])
    optimised = optimise(graph_of(outs, [x]))
    assert shape(optimised) == (0, 2, 0, 0)
    assert optimised.outputs[0] is optimised.outputs[1]


def test_carries_that_only_begin_equal():
    x = value()
    outs = scan_of(lambda i, s, t: (sin(s), cos(t)), [], [x, x])
    assert shape(optimise(graph_of(outs, [x]))) == (0, 2, 0, 0)


def test_numbers_are_known_inside():
    x = value()
    ones = spread(literal(1.0), 5)
    outs = scan_of(lambda i, c, s, e: (s * c + e,), [literal(2.0)], [x], [ones])
    optimised = optimise(graph_of(outs, [x]))
    assert only(optimised, scan).inputs == (x,)
    assert float(compute_outputs(optimised, [np.asarray(1.0)])[0]) == 63.0


def test_what_is_handed_through():
    x, e = value(), value((5,))
    outs = scan_of(lambda i, s, e: (s + e, e, literal(3.0)), [], [x], [e])
    optimised = optimise(graph_of(outs, [x, e]))
    assert shape(optimised) == (0, 1, 1, 0)
    assert optimised.outputs[1] is e
    np.testing.assert_array_equal(
        compute_outputs(optimised, [np.asarray(0.0), np.ones(5)])[2], np.full(5, 3.0)
    )


@pytest.mark.parametrize("length", [0, 1])
def test_no_turn_and_one(length):
    case = scanned("rnn", rnn, [(3, 3), (3,)], [(3,)], [(3,)], length)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    assert "scan" not in ops(optimise(closed(graph_of([*outs, *pulled(outs, inputs)], inputs))))


def test_a_branch_that_is_known():
    x = value()
    branches = [body_of(lambda x: (sin(x),), [value()]), body_of(lambda x: (cos(x),), [value()])]
    outs = switch(branches, literal(7, INT64), [x])
    assert ops(optimise(graph_of(outs, [x]))) == {"cos": 1}


def test_branches_of_one_index_are_one():
    x, k = value(), value((), INT64)
    branches = [body_of(lambda x: (sin(x), x), [value()]), body_of(lambda x: (cos(x), x), [value()])]
    (a, _), (b, _) = switch(branches, k, [x]), switch(branches, k, [x * 2.0])
    graph = optimise(graph_of([a, b], [x, k]))
    assert ops(graph)["switch"] == 1
    for index in (0, 1):
        got = compute_outputs(graph, [np.asarray(0.3), np.asarray(index)])
        want = (np.sin, np.cos)[index](np.array([0.3, 0.6]))
        np.testing.assert_allclose(got, want)


def test_equal_bodies_are_optimised_once(monkeypatch):
    seen = []
    prepared = pipeline._prepared
    monkeypatch.setattr(
        pipeline, "_prepared", lambda graph, check, *notes: (seen.append(graph), prepared(graph, check))[1]
    )
    pipeline._prepared_body.cache_clear()
    x, y = value(), value()
    a = scan_of(lambda i, s: (sin(s) * 1.0 + 0.125,), [], [x])
    b = scan_of(lambda i, s: (sin(s) * 1.0 + 0.125,), [], [y])
    optimise(graph_of([*a, *b], [x, y]))
    raw = [graph for graph in seen if isinstance(graph, Body)]
    assert len({body.digest for body in raw}) == len(raw)


def test_complex_carries_are_pairs():
    case = scanned("complex", complexed, [complexes(2)], [complexes(2), (2,)], [(2,)], 5)
    inputs = [like(x) for x in case.arrays]
    node = only(optimise(split_complex(graph_of(case.loop(*inputs), inputs))), scan)
    assert node.params["carries"] == 3
    assert all(v.dtype == np.dtype(float) for v in node.inputs)


def test_what_is_computed_again_stays_apart():
    """A barrier inside a body holds until the passes are over."""
    case = scanned("chunks", rnn, [(3, 3), (3,)], [(3,)], [(3,)], 6, policy=3)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    graph = optimise(closed(graph_of([*outs, *pulled(outs, inputs)], inputs)))
    inner = [ops(body)["scan"] for node in graph.nodes for body in bodies_of(node)]
    assert sorted(inner) == [1, 2]


def test_a_barrier_in_a_body_holds():
    def step(i, s):
        y = tanh(s)
        (again,) = barrier([s], [y])
        return (y + tanh(again),)

    x = value()
    graph = optimise(graph_of(scan(body_of(step, [value((), INT64), value()]), [], [x], [], 6), [x]))
    formulas = Counter(node.op.name for node in only(graph, scan).params["body"].nodes)
    assert formulas["tanh"] == 2


def broken(change):
    x = value()
    inputs = [value((), INT64), value()]
    good = body_of(lambda i, s: (tanh(s),), inputs)
    return graph_of(scan(change(good), [], [x], [], 3), [x])


def test_bodies_are_verified():
    verify(broken(lambda body: body))

    def with_constant(body):
        out = body.outputs[0] + constant(np.asarray(1.0))
        return Body(body.inputs, [*body.nodes, out.node], [out])

    def used_too_early(body):
        out = sin(body.outputs[0])
        return Body(body.inputs, [out.node, *body.nodes], [out])

    for change in (with_constant, used_too_early):
        with pytest.raises(VerifyError):
            verify(broken(change))


def test_fingerprints_see_bodies():
    x = value()
    graphs = [graph_of(scan_of(lambda i, s, f=f: (f(s),), [], [x]), [x]) for f in (sin, cos, sin)]
    prints = [fingerprint(graph) for graph in graphs]
    assert prints[0] == prints[2] != prints[1]


def test_a_loop_prints_as_python():
    w, h, xs, k = value((3, 3)), value((3,)), value((5, 3)), value((), INT64)
    inputs = [value((), INT64), like(w), like(h), value((3,))]
    body = body_of(lambda i, w, h, x: (tanh(matvec(w, h) + x), h), inputs)
    h2, left = scan(body, [w], [h], [xs], 5, reverse=True)
    condition = body_of(lambda i, s: (s < 3.0,), [value((), INT64), value()])
    turn = body_of(lambda i, s: (s * 2.0, s), [value((), INT64), value()])
    s, count, stack = while_loop(condition, turn, [], [value()], 10)
    (start,) = s.node.inputs
    add = body_of(lambda i, t, e: (t + e,), [value((), INT64), value(), value()])
    (total,) = repeat(add, count, [], [start], [stack])
    branches = [body_of(lambda x: (sin(x),), [value()]), body_of(lambda x: (x,), [value()])]
    (chosen,) = switch(branches, k, [total])
    graph = graph_of([h2, left, chosen], [w, h, xs, start, k])
    assert print_graph(graph) == EXPECTED.strip()


EXPECTED = """
def f(x0: f64[3,3], x1: f64[3], x2: f64[5,3], x3: f64[], x4: i64[]) -> (f64[3], f64[5,3], f64[]):
    v0: f64[3] = x1
    v1: f64[5,3] = empty()
    for i0 in reversed(range(5)):
        v2: f64[3] = contract(x0, v0, x=(0, 1), y=(1,), out=(0,))
        v3: f64[3] = add(v2, x2[i0])
        v4: f64[3] = tanh(v3)
        v0, v1[i0] = v4, v0
    v5: f64[] = x3
    v7: stack = []
    v6: i64[] = 0
    while v6 < 10:
        v8: bool[] = less(v5, 3.0)
        if not v8: break
        v9: f64[] = multiply(v5, 2.0)
        v5, v7[v6] = v9, v5
        v6 += 1
    v10: f64[] = x3
    for i1 in range(v6):
        v11: f64[] = add(v10, v7[i1])
        v10 = v11
    match x4:  # v12: f64[]
        case 0:
            v13: f64[] = sin(v10)
            v12 = v13
        case _:
            v12 = v10
    return v0, v1, v12
"""


def test_a_graph_is_not_changed():
    case = scanned("rnn", rnn, [(3, 3), (3,)], [(3,)], [(3,)], 5)
    inputs = [like(x) for x in case.arrays]
    graph = graph_of(case.loop(*inputs), inputs)
    before = print_graph(graph)
    optimise(graph)
    assert print_graph(graph) == before
    assert isinstance(graph, Graph) and all(isinstance(v, Value) for v in graph.inputs)


def test_elements_that_repeat_a_number_of_their_own():
    one = expand(literal(1.0), (), ())
    ones = expand(one, (5,), ())
    outs = scan_of(
        lambda i, c, s, x: (c + s, c * x), [], [constant(np.zeros(()))], [ones, constant(np.arange(5.0))]
    )
    optimised = optimise(graph_of(outs, []), check=True)
    for left, right in zip(compute_outputs(optimised, []), (5.0, np.arange(5.0) ** 2), strict=True):
        np.testing.assert_array_equal(left, right)


def test_all_loops_that_can_be_are_fused_at_once():
    """Five loops over the same carry are one after one change of the graph; the last one starts where another one ended, and stays."""
    x, elements = like(np.float64(0.5)), like(np.arange(5.0))
    outputs = [
        scan_of(lambda i, c, s, e, k=k: (sin(c), s + k * c * e), [], [x, literal(0.0)], [elements])[1]
        for k in (1.0, 2.0, 3.0, 4.0, 5.0)
    ]
    outputs.append(scan_of(lambda i, c, s, e: (sin(c), s - c), [], [x, outputs[1]], [elements])[1])
    graph = graph_of(outputs, [x, elements])
    with mock.patch.object(loop_fusion, "_replace_outputs", wraps=loop_fusion._replace_outputs) as replaced:
        fused = loop_fusion.fuse_loops(closed(graph))
    assert replaced.call_count == 1
    verify(fused)
    assert sum(node.op is scan for node in fused.nodes) == 2
    arrays = [np.array(0.7), np.array([1.0, -2.0, 0.5, 3.0, 0.1])]
    expected = compute_outputs(graph, arrays)
    for found in (compute_outputs(fused, arrays), compute_outputs(optimise(graph, check=True), arrays)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
