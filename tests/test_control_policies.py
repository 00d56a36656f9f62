"""What a scan keeps for its gradient: the same numbers, by less memory."""

import re
from math import comb
from typing import Any

import numpy as np
import pytest
from control_cases import counted as counted_body
from control_cases import (
    graph_of,
    integers,
    like,
    looked_up,
    pendulum,
    rnn,
    row,
    scanned,
)
from test_control_rules import pulled, pushed

import gradtape as gt
from gradtape.ir.body import bodies_of
from gradtape.ir.evaluate import compute_outputs
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import closed
from gradtape.runtime.program import program_for
from gradtape.transforms.control import scan

POLICIES = [
    "all",
    1,
    2,
    3,
    7,
    13,
    40,
    "sqrt",
    ("treeverse", 1),
    ("treeverse", 2),
    ("treeverse", 4),
    ("treeverse", 99),
]
BODIES = {
    "rnn": (rnn, [(3, 3), (3,)], [(3,)], [(3,)]),
    "pendulum": (pendulum, [()], [(), ()], []),
    "counted": (counted_body, [], [np.asarray(1), np.asarray(True), ()], [()]),
    "looked-up": (looked_up, [(4,), (3,)], [()], [integers(4)]),
}


def graph_with(body, length, policy, reverse=False, orders="r"):
    case = scanned("policy", *BODIES[body], length, policy=policy, reverse=reverse)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    for order in orders:
        outs = [*outs, *(pushed(outs, inputs) if order == "f" else pulled(outs, inputs))]
    return closed(graph_of(outs, inputs)), case.arrays


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 13, 26])
@pytest.mark.parametrize("body", BODIES)
def test_the_same_bits(body, length, reverse):
    graph, arrays = graph_with(body, length, "all", reverse)
    want = compute_outputs(graph, arrays)
    for policy in POLICIES[1:]:
        graph, _ = graph_with(body, length, policy, reverse)
        for one, other in zip(compute_outputs(graph, arrays), want, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(policy))


@pytest.mark.parametrize("orders", ["rf", "rr", "fr"])
@pytest.mark.parametrize("policy", [1, 4, "sqrt", ("treeverse", 3)])
@pytest.mark.parametrize("body", ["rnn", "pendulum"])
def test_higher_orders(body, policy, orders):
    want = compute_outputs(*graph_with(body, 13, None, orders=orders))
    got = compute_outputs(*graph_with(body, 13, policy, orders=orders))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("policy", [None, "all", 1, 4, "sqrt", ("treeverse", 3)])
@pytest.mark.parametrize("body", BODIES)
def test_as_a_kernel(body, policy):
    graph, arrays = graph_with(body, 18, policy)
    program = program_for(graph)
    assert program.kernel.loaded is not None, program.kernel.reason
    for one, other in zip(program.run(list(arrays)), compute_outputs(graph, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def memory(graph):
    """Return the bytes of all results of nodes, those of bodies included once."""
    whole = sum(out.size * out.dtype.itemsize for node in graph.nodes for out in node.outs)
    return whole + sum(memory(body) for node in graph.nodes for body in bodies_of(node))


def test_the_root_of_the_length_is_kept():
    length = 1_000_000
    sizes = {}
    for policy in ("all", "sqrt", ("treeverse", 20)):
        case = scanned("x", *BODIES["pendulum"], 2)
        body = case.loop(*[like(x) for x in case.arrays])[0].node.params["body"]
        inputs = [like(x) for x in case.arrays]
        outs = scan(body, inputs[:1], inputs[1:], [], length, policy=policy)[:2]
        graph = closed(graph_of([*outs, *pulled(outs, inputs)], inputs))
        sizes[policy] = memory(optimise(graph))
    assert sizes["sqrt"] < 0.01 * sizes["all"]
    assert sizes["treeverse", 20] < 0.01 * sizes["sqrt"] + 1_000_000


def turns(graph, name):
    """Return how often ops of this name run, if all loops have known lengths."""
    count = 0
    for node in graph.nodes:
        count += node.op.name == name
        count += node.params.get("length", 1) * sum(turns(body, name) for body in bodies_of(node))
    return count


@pytest.mark.parametrize("policy", [2, 4, "sqrt"])
def test_a_chunk_is_run_again_once(policy):
    everything, _ = graph_with("rnn", 16, "all")
    graph, _ = graph_with("rnn", 16, policy)
    assert turns(optimise(everything), "tanh") == 16
    assert turns(optimise(graph), "tanh") == 32


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 11, 24])
def test_treeverse_runs_the_least_turns(count, length, monkeypatch):
    """Griewank and Walther, equation 2: r l - (s + r)! / (s + 1)! (r - 1)! turns with s kept, each run at most r times."""
    case = scanned(
        "x", lambda i, c, s, e: (row("sinh")(s[0] * 0.1),), [], [()], [], length, policy=("treeverse", count)
    )
    inputs = [like(x) for x in case.arrays]
    outs = case.loop(*inputs)
    graph = graph_of([outs[0], *pulled(outs, inputs)], inputs)
    calls = []
    sinh = row("sinh")
    evaluate = sinh.evaluate
    monkeypatch.setattr(sinh, "evaluate", lambda *args: calls.append(1) or evaluate(*args))
    compute_outputs(graph, case.arrays)
    runs = next(r for r in range(length + 1) if comb(count + r, count) >= length)
    least = runs * length - (comb(count + runs, count + 1) if runs else 0)
    assert len(calls) - length == least


@pytest.mark.parametrize("policy", ["all", 3, "sqrt", ("treeverse", 3)])
def test_a_loop_over_integers_has_policies(policy: Any) -> None:
    def f(x: Any, checkpoint: Any = policy) -> Any:
        return np.sum(gt.fori_loop(2, 40, lambda k, c: np.sin(c * x + 0.01 * k), x, checkpoint=checkpoint))

    x = np.linspace(0.1, 1.0, 500)
    np.testing.assert_allclose(gt.jit(gt.grad(f))(x), gt.grad(lambda x: f(x, None))(x), rtol=1e-12)
    if policy != "all":

        def workspace(checkpoint: Any) -> int:
            loops = gt.inspect.loops(gt.grad(lambda x: f(x, checkpoint)), x)
            return sum(int(size) for size in re.findall(r"np\.empty\((\d+)", loops))

        assert workspace(policy) < workspace(None)
    with pytest.raises(gt.errors.ArgumentError, match="depends on arguments"):
        gt.jit(lambda x, n: gt.fori_loop(0, n, lambda k, c: c * x, x, checkpoint="sqrt"))(1.0, 3)
