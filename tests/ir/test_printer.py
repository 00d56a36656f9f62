"""The printed forms of graphs and loops, compared with files in the folder golden, and fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Site, Value, constant, literal
from gradtape.ir.printer import print_graph
from gradtape.kinds.registry import ROWS
from gradtape.loops.printer import print_loops
from gradtape.lower.pipeline import schedule_of
from tests.support.graphs import calls
from tests.support.lowering import array_input, graph_of, with_gradient
from tests.support.processes import words_printed
from tests.support.programs.graphs import black_scholes, log_sum_exp, rosenbrock

ROW: dict[str, Any] = dict(ROWS)
Golden = Callable[[str, str], None]


def softmax_rows(x: Value) -> Value:
    top = ROW["expand"](ROW["reduce_max"](x, axes=(1,)), shape=x.shape, axes=(0,))
    shifted = ROW["exp"](x - top)
    total = ROW["expand"](ROW["reduce_sum"](shifted, axes=(1,)), shape=x.shape, axes=(0,))
    return ROW["reduce_sum"]((shifted / total) ** 2, axes=(0, 1))  # type: ignore[no-any-return]


PROGRAMS = (
    ("rosenbrock", rosenbrock, [(1000,)]),
    ("log_sum_exp", log_sum_exp, [(1000,)]),
    ("black_scholes", black_scholes, [(1000,)] * 5),
    ("softmax_rows", softmax_rows, [(10, 200)]),
)


@pytest.mark.parametrize("name, function, shapes", PROGRAMS)
def test_printed_forms(name: str, function: Any, shapes: Any, golden: Golden) -> None:
    inputs = [array_input(*shape) for shape in shapes]
    graph = with_gradient(inputs, function(*inputs))
    golden(f"{name}_graph", print_graph(graph))
    golden(f"{name}_loops", print_loops(schedule_of(graph)))


def test_a_graph_prints_with_the_users_lines() -> None:
    x = array_input(2)
    x.name = "x"
    k = constant(np.array([1, 0]))
    y = ROW["gather"](x, k) * np.float32(2.0)
    z = ROW["convert"](y, dtype=np.dtype(np.float32))
    assert y.node is not None and z.node is not None
    y.node.site = z.node.site = Site("somewhere/model.py", 7, "loss")
    positive = ROW["greater"](ROW["reduce_sum"](x, axes=(0,)), 0.0)
    graph = graph_of([x], [z, x], guards=[(positive, 1)])
    assert print_graph(graph).splitlines() == [
        "def f(x: f64[2]) -> (f32[2], f64[2]):",
        "    c0: i64[2] = constant(...)",
        "    v0: f64[2] = gather(x, c0)",
        "    # model.py:7",
        "    v1: f64[2] = multiply(v0, 2.0)",
        "    v2: f32[2] = convert(v1, dtype=f32)",
        "    v3: f64[] = reduce_sum(x, axes=(0,))",
        "    v4: bool[] = greater(v3, 0.0)",
        "    assert v4 == 1",
        "    return v2, x",
    ]


def variants() -> list[Graph]:
    """Return graphs that one kernel could not serve two of."""
    x, wide, single = array_input(4), array_input(2, 2), array_input(4, dtype=np.float32)
    k = array_input(4, dtype=np.intp)
    one, other = constant(np.zeros(4)), constant(np.zeros((1, 4)))
    total = ROW["reduce_sum"](x, axes=(0,))
    return [
        graph_of([x], [x * 2.0]),
        graph_of([x], [x * 3.0]),
        graph_of([x], [x + 2.0]),
        graph_of([x], [x * 2.0, x]),
        graph_of([x, wide], [x * 2.0]),
        graph_of([wide], [wide * 2.0]),
        graph_of([single], [single * 2.0]),
        graph_of([x], [x * -0.0]),
        graph_of([x], [x * 0.0]),
        graph_of([x], [x * one]),
        graph_of([x], [x * ROW["reshape"](other, shape=(4,))]),
        graph_of([x], [ROW["cumsum"](x, axis=0, reverse=False)]),
        graph_of([x], [ROW["cumsum"](x, axis=0, reverse=True)]),
        graph_of([x, k], [ROW["gather"](x, k)]),
        graph_of([x], [ROW["sin"](ROW["cos"](x))]),
        graph_of([x], [ROW["cos"](ROW["sin"](x))]),
        graph_of([x], [x * 2.0], guards=[(ROW["less"](total, 0.0), 0)]),
        graph_of([x], [x * 2.0], guards=[(ROW["less"](total, 0.0), 1)]),
    ]


def test_fingerprints_tell_graphs_apart() -> None:
    prints = [fingerprint(graph) for graph in variants()]
    assert len(set(prints)) == len(prints)
    assert prints == [fingerprint(graph) for graph in variants()]


def test_fingerprints_do_not_see_the_data_of_constants() -> None:
    x = array_input(4)
    graphs = [graph_of([x], [x * constant(np.full(4, number))]) for number in (1.0, 2.0)]
    assert fingerprint(graphs[0]) == fingerprint(graphs[1])


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = "from tests.ir.test_printer import variants, fingerprint; print(*map(fingerprint, variants()))"
    assert words_printed(code) == [fingerprint(graph) for graph in variants()]


def test_fingerprints_cost_the_same_for_every_node() -> None:
    short, long = chain(1000), chain(2000)
    cost = calls(lambda: fingerprint(short))
    assert calls(lambda: fingerprint(long)) < 2.1 * cost
    assert cost < 30 * len(short.nodes)


def chain(steps: int) -> Graph:
    x = array_input()
    y: Value = x
    for k in range(steps):
        y = ROW["sin"](y) * (1.0 + k)
    return graph_of([x], [y, literal(1.0)])
