"""Index expressions, and the passes over loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS
from gradtape.loops.affine import Affine, Var, affine, clamp, interval, substitute
from gradtape.loops.ir import For
from gradtape.loops.passes import row_blocking
from gradtape.loops.printer import print_loops
from gradtape.lower.pipeline import schedule_of
from tests.support.lowering import array_input, check, graph_of, inputs_like, with_gradient

ROW: dict[str, Any] = dict(ROWS)


def test_expressions_compute_as_integers_do() -> None:
    i, j = Var("i", 0, 4), Var("j", -3, 6)
    x, y = affine(i), affine(j)
    expressions: list[Any] = [
        (x * 7 + y) // 7,
        (x * 6 + y * 2 + 5) % 4,
        (y - x) // 3 * 3 + (y - x) % 3,
        clamp(x * 2 - y, 0, 5) + (x + 1) // 2,
        -(y + 2) // 5,
        (x * 5 + 2) % 5 + (x * 5 + 2) // 5,
    ]
    meanings: list[Any] = [
        lambda a, b: (a * 7 + b) // 7,
        lambda a, b: (a * 6 + b * 2 + 5) % 4,
        lambda a, b: b - a,
        lambda a, b: min(max(a * 2 - b, 0), 5) + (a + 1) // 2,
        lambda a, b: -(b + 2) // 5,
        lambda a, b: 2 + a,
    ]
    for expression, meaning in zip(expressions, meanings, strict=True):
        low, high = interval(expression)
        for a, b in itertools.product(range(5), range(-3, 7)):
            value = substitute(expression, {i: a, j: b})
            assert value == meaning(a, b)
            assert low <= value <= high
            assert eval(str(expression), {"i": a, "j": b, "min": min, "max": max}) == value


def test_quotients_and_remainders_simplify() -> None:
    i, j = affine(Var("i", 0, 9)), affine(Var("j", 0, 3))
    flat = i * 4 + j
    assert (flat // 4, flat % 4) == (i, j)
    assert (i * 8 + j) % 4 == j
    assert i - i == 0 and i * 0 == 0 and i // 1 == i and i % 1 == 0
    assert (i + 10) // 10 == 1
    with pytest.raises(TypeError, match="not affine"):
        i * j
    assert isinstance(flat // 3, Affine)


def test_contiguous_loops_collapse() -> None:
    x = array_input(30, 40)
    program = schedule_of(graph_of([x], [x * 2.0]))
    (loop,) = program.body
    assert isinstance(loop, For) and loop.var.high == 1199
    wide = ROW["expand"](ROW["reduce_sum"](x, axes=(0,)), shape=(30, 40), axes=(1,))
    assert "for" in print_loops(schedule_of(graph_of([x], [x - wide])))


def soft_rows(x: Value, centres: Value) -> Value:
    """Return the logarithms of sums of Gaussians around centres, with a covariance each."""
    (n, d), k = x.shape, centres.shape[0]
    wide = ROW["expand"](x, shape=(n, k, d), axes=(0, 2)) - ROW["expand"](
        centres, shape=(n, k, d), axes=(1, 2)
    )
    mixed = wide * 0.5
    square = ROW["reduce_sum"](mixed * mixed, axes=(2,))
    top = ROW["reduce_max"](square, axes=(1,))
    shifted = ROW["exp"](square - ROW["expand"](top, shape=(n, k), axes=(0,)))
    return top + ROW["log"](ROW["reduce_sum"](shifted, axes=(1,)))


@pytest.mark.parametrize("rows", (5, 15, 16, 32, 64, 71, 100))
def test_blocks_of_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocking, "DENSE", 0)
    rng = np.random.default_rng(rows)
    arrays = [rng.standard_normal((rows, 3)), rng.standard_normal((5, 3))]
    inputs = inputs_like(arrays)
    per_row = soft_rows(*inputs)
    total = ROW["reduce_sum"](per_row, axes=(0,))
    graph = with_gradient(inputs, total)
    assert ("block" in print_loops(schedule_of(graph))) == (rows >= 16)
    check(graph, arrays, rtol=1e-9)
    check(graph_of(inputs, [per_row, total]), arrays, rtol=1e-9)


@pytest.mark.parametrize("rows", (40, 70))
def test_blocks_of_rows_with_products(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocking, "DENSE", 0)
    rng = np.random.default_rng(rows)
    arrays = [rng.standard_normal((rows, 6)), rng.standard_normal((6, 7)), rng.standard_normal(7)]
    x, w, b = inputs_like(arrays)
    hidden = ROW["tanh"](
        ROW["contract"](x, w, x=(0, 1), y=(1, 2), out=(0, 2)) + ROW["expand"](b, shape=(rows, 7), axes=(1,))
    )
    total = ROW["reduce_sum"](hidden * hidden, axes=(0, 1))
    check(with_gradient([x, w, b], total), arrays, rtol=1e-9)


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("reverse", (False, True))
def test_runs_along_rows_stay_in_order(axis: int, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocking, "DENSE", 0)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 6))
    (value,) = inputs_like([x])
    run = ROW["cumsum"](value, axis=axis, reverse=reverse)
    out = ROW["reduce_max"](ROW["exp"](run * 0.1), axes=(1,))
    check(graph_of([value], [out, run]), [x])
    place = ROW["argmax"](run, axes=(0,))
    check(graph_of([value], [place, out]), [x])


def test_blocks_need_enough_to_compute_for_what_they_gather() -> None:
    rng = np.random.default_rng(0)
    few, many = array_input(100, 16), array_input(100, 4)
    wide = ROW["reduce_sum"](ROW["exp"](few), axes=(1,))
    assert "block" not in print_loops(schedule_of(graph_of([few], [wide])))
    series = many
    for _ in range(40):
        series = ROW["sin"](series) * 0.5 + 1.0
    deep = graph_of([many], [ROW["reduce_max"](series, axes=(1,))])
    assert "block" in print_loops(schedule_of(deep))
    check(deep, [rng.standard_normal((100, 4))], rtol=1e-9)
