"""Whole programs: random graphs three ways, guards, indices out of bounds, writes in place, views,
structure budgets."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Graph, Value, constant, literal
from gradtape.ir.types import INTP
from gradtape.kinds.registry import ROWS
from gradtape.loops.ir import Compute, For, Statement, Store
from gradtape.lower.pipeline import lower, schedule_of
from tests.support.graphs import calls
from tests.support.lowering import Compiled, array_input, check, graph_of, inputs_like, with_gradient
from tests.support.programs.graphs import black_scholes, log_sum_exp, rosenbrock

ROW: dict[str, Any] = dict(ROWS)
UNARY = ("exp", "tanh", "sin", "negative", "sqrt", "absolute", "cos")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def random_graph(seed: int) -> tuple[Graph, list[Any]]:
    """Return a graph of rows of all kinds on small arrays, and arrays for it."""
    choose = random.Random(seed)
    rng = np.random.default_rng(seed)
    shapes = [choose.choice(((4,), (9,), (3, 4), (4, 3), (2, 3, 4), (9, 4))) for _ in range(3)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    inputs = inputs_like(arrays)
    values = list(inputs)
    for _ in range(choose.randint(3, 14)):
        x = choose.choice(values)
        values.append(random_step(choose, rng, x, values))
    outputs = values[-choose.randint(1, 4) :]
    return graph_of(inputs, outputs), arrays


def random_step(choose: random.Random, rng: Any, x: Value, values: list[Value]) -> Value:
    kind = choose.choice(
        (
            "unary",
            "binary",
            "binary",
            "number",
            "reduce",
            "move",
            "where",
            "scan",
            "contract",
            "gather",
            "put",
        )
    )
    alike = [value for value in values if value.shape == x.shape]
    if kind == "binary":
        return ROW[choose.choice(BINARY)](x, choose.choice(alike))  # type: ignore[no-any-return]
    if kind == "number":
        return ROW[choose.choice(BINARY)](x, choose.choice((0.5, 2.0, -1.0)))  # type: ignore[no-any-return]
    if kind == "where":
        return ROW["where"](ROW["less"](x, choose.choice(alike)), x, choose.choice(alike))  # type: ignore[no-any-return]
    if kind == "unary" or x.ndim == 0:
        return ROW[choose.choice(UNARY)](x)  # type: ignore[no-any-return]
    axis = choose.randrange(x.ndim)
    if kind == "reduce":
        name = choose.choice(("reduce_sum", "reduce_max", "reduce_prod"))
        return ROW[name](x, axes=(axis,))  # type: ignore[no-any-return]
    if kind == "scan":
        return ROW["cumsum"](x, axis=axis, reverse=choose.random() < 0.5)  # type: ignore[no-any-return]
    if kind == "contract":
        names = tuple(range(x.ndim))
        other = tuple(n if n == axis else n + 10 for n in names)
        out = tuple(n for n in (*names, *other) if n != axis)
        if len(out) <= 3:
            return ROW["contract"](x, x, x=names, y=other, out=out)  # type: ignore[no-any-return]
        return x * 2.0
    if kind == "gather":
        where = constant(rng.integers(-x.shape[0], x.shape[0], 4).astype(INTP))
        return ROW["gather"](x, where)  # type: ignore[no-any-return]
    if kind == "put":
        where = constant(rng.integers(-x.shape[0], x.shape[0], 3).astype(INTP))
        part = (
            ROW["slice"](x, starts=(0,) * x.ndim, shape=(3, *x.shape[1:]), strides=(1,) * x.ndim)
            if x.shape[0] >= 3
            else None
        )
        if part is None:
            return x + 1.0
        return ROW[choose.choice(("put", "put_add"))](x, part, where)  # type: ignore[no-any-return]
    return random_move(choose, x, axis)


def random_move(choose: random.Random, x: Value, axis: int) -> Value:
    extent, ones, zeros = x.shape[axis], (1,) * x.ndim, (0,) * x.ndim

    def on_axis(number: int, base: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number if k == axis else n for k, n in enumerate(base))

    kind = choose.choice(("flip", "cut and pad", "permute", "reshape", "expand", "update"))
    if kind == "flip":
        return ROW["slice"](x, starts=on_axis(extent - 1, zeros), shape=x.shape, strides=on_axis(-1, ones))  # type: ignore[no-any-return]
    if kind == "cut and pad" and extent > 1:
        cut = ROW["slice"](x, starts=on_axis(1, zeros), shape=on_axis(extent - 1, x.shape), strides=ones)
        return ROW["pad"](cut, shape=x.shape, starts=on_axis(choose.randint(0, 1), zeros), strides=ones)  # type: ignore[no-any-return]
    if kind == "permute":
        return ROW["permute"](x, axes=tuple(choose.sample(range(x.ndim), x.ndim)))  # type: ignore[no-any-return]
    if kind == "expand" and x.ndim < 3:
        return ROW["expand"](x, shape=(3, *x.shape), axes=tuple(range(1, x.ndim + 1)))  # type: ignore[no-any-return]
    if kind == "update" and extent > 1:
        cut = ROW["slice"](x, starts=zeros, shape=on_axis(extent - 1, x.shape), strides=ones)
        return ROW["update"](x, cut * 3.0, starts=on_axis(1, zeros), strides=ones)  # type: ignore[no-any-return]
    return ROW["reshape"](x, shape=(x.size,) if x.ndim > 1 else (1, x.size))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(150))
def test_random_graph(seed: int) -> None:
    graph, arrays = random_graph(seed)
    check(graph, arrays, rtol=1e-8)


@pytest.mark.parametrize("seed", range(200, 260))
def test_gradient_of_random_graph(seed: int) -> None:
    graph, arrays = random_graph(seed)
    total: Value = literal(0.0)
    for out in graph.outputs:
        bounded = ROW["tanh"](out)
        total = total + (ROW["reduce_sum"](bounded, axes=tuple(range(out.ndim))) if out.ndim else bounded)
    if total.node is not None:
        check(with_gradient(graph.inputs, total), arrays, rtol=1e-7)


def test_guards_stop_at_the_first_that_is_missed() -> None:
    x = array_input(3)
    total = ROW["reduce_sum"](x, axes=(0,))
    positive = ROW["greater"](total, 0.0)
    count = ROW["reduce_sum"](ROW["convert"](ROW["greater"](x, 0.0), dtype=np.dtype(np.int64)), axes=(0,))
    kernel = Compiled(graph_of([x], [total * 2.0], guards=[(positive, 1), (count, 3)]))
    assert kernel([np.array([1.0, 2.0, 3.0])])[0] == 12.0
    assert kernel.status([np.array([-1.0, -2.0, -3.0])])[0] == 1
    assert kernel.workspace[:8].view(np.int64)[0] == 0
    assert kernel.status([np.array([-1.0, 2.0, 3.0])])[0] == 2
    assert kernel.workspace[:8].view(np.int64)[0] == 2


@pytest.mark.parametrize("index, status", (([0, -3, 2], 0), ([3, 0, 0], -1), ([0, 0, -4], -1)))
def test_an_index_out_of_bounds_is_reported(index: list[int], status: int) -> None:
    x, k = array_input(3), array_input(3, dtype=np.intp)
    for out in (ROW["gather"](x, k) * 2.0, ROW["put_add"](x, x, k)):
        assert Compiled(graph_of([x, k], [out])).status([np.ones(3), np.array(index)])[0] == status


def test_a_chain_of_writes_is_in_place() -> None:
    x = array_input(50)
    state = ROW["exp"](x)
    for k in range(1, 5):
        part = ROW["slice"](state, starts=(k,), shape=(1,), strides=(1,))
        state = ROW["update"](state, part * 2.0, starts=(k,), strides=(1,))
    graph = graph_of([x], [state])
    assert schedule_of(graph).scratch == []
    assert sum(isinstance(statement, For) for statement in schedule_of(graph).body) == 1
    check(graph, [np.linspace(0.0, 1.0, 50)])


def test_a_write_that_reads_its_base_elsewhere_stores_it_first() -> None:
    x = array_input(8)
    base = ROW["exp"](x)
    moved = ROW["slice"](base, starts=(0,), shape=(7,), strides=(1,))
    check(graph_of([x], [ROW["update"](base, moved, starts=(1,), strides=(1,))]), [np.arange(8.0)])


def test_a_base_that_is_read_later_is_copied() -> None:
    x = array_input(8)
    base = ROW["exp"](x)
    changed = ROW["update"](
        base, ROW["slice"](x, starts=(0,), shape=(3,), strides=(1,)), starts=(2,), strides=(1,)
    )
    check(graph_of([x], [changed, base, changed - base]), [np.arange(8.0)])


def test_outputs_that_are_inputs_constants_numbers_views_or_listed_twice() -> None:
    x = array_input(6)
    y = ROW["exp"](x)
    outputs = [
        x,
        y,
        y,
        ROW["reshape"](y, shape=(2, 3)),
        constant(np.arange(3.0)),
        literal(2.5),
        ROW["reshape"](x, shape=(3, 2)),
    ]
    check(graph_of([x], outputs), [np.arange(6.0)])


def test_long_chains_need_no_deep_recursion() -> None:
    x = array_input(16)
    y = x
    for _ in range(3000):
        y = y * 0.999 + x
    kernel = check(graph_of([x], [y]), [np.linspace(0.0, 1.0, 16)], rtol=1e-9)
    assert "alloca" not in kernel.lowered.ir_text


def test_a_thousand_operations_lower_in_linear_work() -> None:
    def chain(steps: int) -> Graph:
        x = array_input()
        y = x
        for k in range(steps):
            y = ROW["sin"](y) * (1.0 + k)
        return graph_of([x], [y])

    assert calls(lambda: lower(chain(500))) < 2.5 * calls(lambda: lower(chain(250)))


def counts(statements: list[Statement]) -> dict[str, int]:
    """Return how many nests, stores of arrays in loops, and costly functions the statements have."""
    found = {"nests": 0, "stores": 0, "functions": 0}

    def visit(inner: list[Statement], depth: int) -> None:
        for statement in inner:
            if isinstance(statement, For):
                found["nests"] += depth == 0
                visit(statement.body, depth + 1)
            elif isinstance(statement, Store):
                found["stores"] += depth > 0
            elif isinstance(statement, Compute):
                found["functions"] += depth > 0 and statement.function in ("exp", "log", "erf", "sqrt")

    visit(statements, 0)
    return found


BUDGETS = (
    (rosenbrock, 1, {"nests": 1, "stores": 1, "functions": 0}, 0),
    (log_sum_exp, 1, {"nests": 3, "stores": 2, "functions": 1}, 0),
    (black_scholes, 5, {"nests": 1, "stores": 5, "functions": 7}, 0),
)


@pytest.mark.parametrize("function, arity, budget, scratch", BUDGETS)
def test_budget_of_value_and_gradient(
    function: Any, arity: int, budget: dict[str, int], scratch: int
) -> None:
    inputs = [array_input(1000) for _ in range(arity)]
    graph = with_gradient(inputs, function(*inputs))
    program = schedule_of(graph)
    assert counts(program.body) == budget
    assert sum(buffer.size for buffer in program.scratch if buffer in lives(program.body)) == scratch
    rng = np.random.default_rng(0)
    check(graph, [rng.uniform(0.5, 1.5, 1000) for _ in inputs], rtol=1e-8)


def lives(statements: list[Statement]) -> set[Any]:
    """Return the buffers that are written."""
    found: set[Any] = set()
    for statement in statements:
        if isinstance(statement, For):
            found |= lives(statement.body)
        elif isinstance(statement, Store):
            found.add(statement.buffer)
    return found
