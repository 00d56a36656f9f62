"""Unroll and jam: two rows at once where they share loads, and nowhere where the order of rows matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.ir import Buffer, Compute, For, Load, LoopProgram, Register, Statement, Store, const
from gradtape.loops.passes import pipeline
from gradtape.loops.passes.unroll_and_jam import unroll_and_jam
from gradtape.loops.verifier import verify_loops
from gradtape.lower.pipeline import build_loops
from gradtape.statements import walk
from tests.support import lowering
from tests.support.compiled import graph_of, mixture

F64 = np.dtype(np.float64)
LANES, ROWS, COLUMNS = 8, 4, 3
MATRIX = Buffer("x0", F64, ROWS * COLUMNS, "input")
VECTORS = Buffer("x1", F64, COLUMNS * LANES, "input")
OUT = Buffer("out0", F64, ROWS * LANES, "output")
SUM = Buffer("w0", F64, LANES, "scratch")


def register(name: str) -> Register:
    return Register(name, F64)


def lanes(name: str) -> tuple[Var, Position]:
    var = Var(name, 0, LANES - 1)
    return var, affine(var)


def product(read: Position | None = None, rows: int = ROWS, first: float | None = 0.0) -> LoopProgram:
    """A product of a matrix with vectors in lanes; a row may read an element of the result besides, and begin with any sum."""
    row, column = Var("row", 0, rows - 1), Var("column", 0, COLUMNS - 1)
    body: list[Statement] = []
    if first is not None:
        var, lane = lanes("clear")
        body.append(For(var, [Store(SUM, lane, const(first, F64))], lanes=True))
    var, lane = lanes("add")
    step: list[Statement] = [
        Load(register("v"), VECTORS, affine(column) * LANES + lane),
        Compute(register("p"), "multiply", None, (register("m"), register("v"))),
        Load(register("s"), SUM, lane),
        Compute(register("t"), "add", None, (register("s"), register("p")), True),
        Store(SUM, lane, register("t")),
    ]
    if read is not None:
        step.append(Load(register("other"), OUT, read))
    load = Load(register("m"), MATRIX, affine(row) * COLUMNS + affine(column))
    body.append(For(column, [load, For(var, step, lanes=True)]))
    var, lane = lanes("end")
    whole = [Load(register("u"), SUM, lane), Store(OUT, affine(row) * LANES + lane, register("u"))]
    body.append(For(var, whole, lanes=True))
    return LoopProgram("product", [MATRIX, VECTORS], [OUT], [SUM], [For(row, body)])


def test_two_rows_of_a_product_share_the_vectors() -> None:
    program = unroll_and_jam(product())
    verify_loops(program, "unroll_and_jam")
    (rows,) = program.body
    assert isinstance(rows, For) and rows.trip_count == ROWS // 2
    (nest,) = [s for s in rows.body if isinstance(s, For) and not s.lanes]
    inner = [s for s in nest.body if isinstance(s, For)]
    assert [s.lanes for s in inner] == [True, True]
    assert len({s.buffer for each in inner for s in each.body if isinstance(s, Store)}) == 2
    assert len([s for s in walk(program.body) if isinstance(s, Load) and s.buffer is VECTORS]) == 2


ROW = Var("row", 0, ROWS - 1)


@pytest.mark.parametrize(
    "program",
    [
        product(affine(ROW) * LANES - LANES),  # what the row before it has stored
        product(7),  # an element that one of the rows stores
        product(rows=3),  # rows that are left over
        product(first=None),  # a sum that goes on from row to row
    ],
)
def test_rows_whose_order_matters_stay(program: LoopProgram) -> None:
    assert unroll_and_jam(program) is program


@pytest.mark.parametrize("sides", [(3, 4), (5, 6), (4, 10)])
def test_results_are_the_same_to_the_last_digit(sides: tuple[int, int], monkeypatch: Any) -> None:
    k, d = sides
    rng = np.random.default_rng(k)
    arguments = [rng.normal(size=shape) for shape in ((k, d), (k, d, d), (701, d))]
    graph = graph_of(gt.value_and_grad(mixture, argnums=(0, 1)), *arguments)
    arrays = arguments[: len(graph.inputs)]
    program, _ = build_loops(graph)
    assert sum(isinstance(s, For) and s.var.name.endswith("_both") for s in walk(program.body)) >= 2
    jammed = lowering.Compiled(graph)(arrays)
    without = tuple(step for step in pipeline.LOOP_PASSES if step is not unroll_and_jam)
    monkeypatch.setattr(pipeline, "LOOP_PASSES", without)
    for mine, other in zip(jammed, lowering.Compiled(graph)(arrays), strict=True):
        np.testing.assert_array_equal(mine, other)
