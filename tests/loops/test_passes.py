"""The passes over loops: collapsing, row blocking, strip mining."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS
from gradtape.loops.affine import Var, affine
from gradtape.loops.ir import Buffer, Compute, For, Load, LoopProgram, Register, SequentialFor, Store, const
from gradtape.loops.passes import row_blocking
from gradtape.loops.passes.pipeline import optimise_loops
from gradtape.loops.passes.strip_mine import LONG, STRIP, strip_mine
from gradtape.loops.printer import print_loops
from gradtape.lower.pipeline import schedule_of
from tests.support.lowering import array_input, check, graph_of, inputs_like, with_gradient

ROW: dict[str, Any] = dict(ROWS)


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


FLOAT = np.dtype(np.float64)


def decay(size: int, buffer: Buffer, fill: Buffer) -> LoopProgram:
    """Return a program that fills an array and multiplies another one, which may be the same, by 0.5 ten times."""
    x = Buffer("x0", FLOAT, size, "input")
    i, j, n = Var("i_1", 0, size - 1), Var("i_2", 0, size - 1), Var("i_3", 0, 9)
    given, before, after = (Register(name, FLOAT) for name in ("t1", "t2", "t3"))
    first = For(i, [Load(given, x, affine(i)), Store(fill, affine(i), given)], initial=True)
    half = Compute(after, "multiply", ROW["multiply"].body, (before, const(0.5, FLOAT)))
    step = For(j, [Load(before, buffer, affine(j)), half, Store(buffer, affine(j), after)])
    return LoopProgram("decay", [x], list({buffer, fill}), [], [first, SequentialFor(n, [step])])


def test_strips_go_through_all_iterations() -> None:
    size = LONG + 100
    out = Buffer("out0", FLOAT, size, "output")
    program = decay(size, out, out)
    plain, strips = print_loops(program), optimise_loops(program, check=True)
    (loop, *rest) = strips.body
    assert isinstance(loop, SequentialFor) and loop.var.high + 1 == size // STRIP
    assert [type(statement) for statement in loop.body] == [type(s) for s in rest] == [For, SequentialFor]
    x = np.arange(float(size))
    results = []
    for source in (plain, print_loops(strips)):
        names: dict[str, Any] = {"np": np}
        exec(source, names)
        results.append(np.empty(size))
        names["decay"](x, results[-1])
    assert np.array_equal(results[0], x / 1024) and np.array_equal(*results)


def test_neighbouring_loops_are_cut_along() -> None:
    out, other = (Buffer(name, FLOAT, LONG, "output") for name in ("out0", "out1"))
    (loop,) = strip_mine(decay(LONG, out, other)).body
    assert isinstance(loop, SequentialFor) and [type(s) for s in loop.body] == [For, SequentialFor]


def test_short_loops_are_not_cut_into_strips() -> None:
    out = Buffer("out0", FLOAT, LONG - 1, "output")
    program = decay(LONG - 1, out, out)
    assert strip_mine(program) is program
