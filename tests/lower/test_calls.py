"""What kernels call: BLAS for large products, sorting and searching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.kinds.registry import ROWS
from gradtape.loops.ir import For, RoutineCall, Statement
from gradtape.lower.pipeline import schedule_of
from tests.support.lowering import array_input, check, graph_of, inputs_like

ROW: dict[str, Any] = dict(ROWS)

PRODUCTS = (
    ((40, 50), (50, 60), "ab", "bc", "ac"),
    ((50, 40), (50, 60), "ba", "bc", "ac"),
    ((40, 50), (60, 50), "ab", "cb", "ac"),
    ((50, 40), (60, 50), "ba", "cb", "ac"),
    ((40, 50), (50, 60), "ab", "bc", "ca"),
    ((3, 40, 50), (3, 50, 60), "zab", "zbc", "zac"),
    ((40, 50, 3), (3, 50, 60), "abz", "zbc", "zac"),
    ((4, 10, 50), (50, 60), "xab", "bc", "xac"),
    ((40, 5, 10), (5, 10, 60), "axy", "xyc", "ac"),
    ((40, 5, 30), (30, 5, 60), "axy", "yxc", "ac"),
    ((200, 16), (16, 20), "ab", "bc", "ac"),
)


@pytest.mark.parametrize("shapes", [((0, 0), (0, 0)), ((0, 3), (3, 0)), ((2, 0), (0, 4))])
def test_products_of_nothing(shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = [array_input(*shape) for shape in shapes]
    product = ROW["contract"](*inputs, x=(0, 1), y=(1, 2), out=(0, 2))
    check(graph_of(inputs, [product]), [np.zeros(shape) for shape in shapes])


def subscripts(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def called(statements: list[Statement]) -> list[str]:
    """Return the routines that loops call."""
    names = []
    for statement in statements:
        if isinstance(statement, RoutineCall):
            names.append(statement.function)
        elif isinstance(statement, For):
            names += called(statement.body)
    return names


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
@pytest.mark.parametrize("x, y, a, b, out", PRODUCTS)
def test_large_products_are_blas(x: Any, y: Any, a: str, b: str, out: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in (x, y)]
    inputs = inputs_like(arrays)
    result = ROW["contract"](*inputs, x=subscripts(a), y=subscripts(b), out=subscripts(out))
    graph = graph_of(inputs, [result])
    assert called(schedule_of(graph).body) == ["gemm"]
    if dtype == np.float64:
        check(graph, arrays, rtol=1e-10)


def test_products_read_views_in_place_and_compute_what_is_not_stored() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 80)), rng.standard_normal((50, 45))
    a, b = inputs_like([x, y])
    part = ROW["slice"](a, starts=(3, 5), shape=(40, 50), strides=(1, 1))
    product = ROW["contract"](part, ROW["exp"](b), x=(0, 1), y=(1, 2), out=(0, 2))
    graph = graph_of([a, b], [ROW["tanh"](product) + product])
    program = schedule_of(graph)
    assert called(program.body) == ["gemm"]
    assert sorted(buffer.size for buffer in program.scratch) == [1800, 2250]
    check(graph, [x, y], rtol=1e-10)


def test_small_products_are_loops() -> None:
    a, b = array_input(8, 9), array_input(9, 7)
    graph = graph_of([a, b], [ROW["contract"](a, b, x=(0, 1), y=(1, 2), out=(0, 2))])
    assert called(schedule_of(graph).body) == []
    rng = np.random.default_rng(0)
    check(graph, [rng.standard_normal((8, 9)), rng.standard_normal((9, 7))])


@pytest.mark.parametrize("code", "?bhilBHILfd")
@pytest.mark.parametrize("shape", ((1,), (2,), (37,), (4, 50), (2, 3, 17), (0,), (3, 0)))
def test_argsort(code: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2 if code == "?" else 9, shape).astype(code)
    if code in "fd" and x.size > 3:
        x.reshape(-1)[[1, 3]] = np.nan, -np.inf
    (value,) = inputs_like([x])
    check(graph_of([value], [ROW["argsort"](value)]), [x])


def test_argsort_of_what_is_computed() -> None:
    x = np.random.default_rng(1).standard_normal((3, 20))
    (value,) = inputs_like([x])
    order = ROW["argsort"](ROW["permute"](value, axes=(1, 0)) * 2.0)
    check(graph_of([value], [order, order + 1]), [x])


@pytest.mark.parametrize("side", ("left", "right"))
def test_searchsorted(side: str) -> None:
    a = np.array([-1.0, 0.0, 0.0, 2.0, 5.0, np.nan])
    v = np.array([[0.0, -3.0, 2.5], [np.nan, 5.0, 9.0]])
    inputs = inputs_like([a, v])
    check(graph_of(inputs, [ROW["searchsorted"](*inputs, side=side)]), [a, v])
    empty = inputs_like([np.zeros(0), v])
    check(graph_of(empty, [ROW["searchsorted"](*empty, side=side)]), [np.zeros(0), v])


def test_searchsorted_of_a_number_that_is_computed() -> None:
    a, x = np.array([-1.0, 0.0, 2.0]), np.asarray(0.5)
    inputs = inputs_like([a, x])
    number = ROW["sin"](inputs[1])
    found = ROW["searchsorted"](inputs[0], number, side="left")
    check(graph_of(inputs, [found]), [a, x])
    check(graph_of(inputs, [found, number * 2.0, number]), [a, x])
    total = ROW["reduce_sum"](inputs[0], axes=(0,))
    check(graph_of(inputs, [ROW["searchsorted"](inputs[0], total, side="right")]), [a, x])


def test_what_has_no_elements_is_sorted_and_searched_for() -> None:
    x = np.zeros((0, 3))
    (value,) = inputs_like([x])
    made = ROW["sin"](value)
    keys = ROW["argsort"](ROW["permute"](made, axes=(1, 0)))
    flat = ROW["reshape"](made, shape=(0,))
    found = ROW["searchsorted"](flat, ROW["cos"](array := array_input(2)), side="left")
    check(graph_of([value, array], [keys, found]), [x, np.ones(2)])
