"""The verifier of loops: programs that keep the rules, and for each rule one that breaks it."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import numpy as np
import pytest

from gradtape.errors import VerifyError
from gradtape.kinds.registry import ROWS
from gradtape.loops.affine import Var, affine
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    DoubleBuffer,
    For,
    GrowStack,
    Guard,
    Index,
    IndexSwitch,
    Load,
    LoopProgram,
    Number,
    OpenStack,
    Register,
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
    const,
)
from gradtape.loops.passes import pipeline
from gradtape.loops.verifier import verify_loops
from gradtape.lower.pipeline import schedule_of
from tests.support.lowering import array_input, graph_of

F64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)
X, OUT = Buffer("x0", F64, 8, "input"), Buffer("out0", F64, 8, "output")
KEYS = Buffer("x1", INT64, 8, "input")
W, V = Buffer("w0", F64, 8, "scratch"), Buffer("w1", F64, 8, "scratch")
STACK = Buffer("s0", F64, 8, "stack")
VAR = Var("i", 0, 7)
AT = affine(VAR)
T, U, A, K = Register("t", F64), Register("u", F64), Register("a", F64), Register("k", INT64)
ONE = const(1.0, F64)


def loops(*statements: Statement, scratch: tuple[Buffer, ...] = (W, V)) -> LoopProgram:
    return LoopProgram("f", [X, KEYS], [OUT], list(scratch), list(statements))


def over(*statements: Statement, var: Var = VAR, **flags: Any) -> For:
    return For(var, list(statements), **flags)


def add(target: Register, *args: Number) -> Compute:
    return Compute(target, "add", None, args)


def pair(current: Buffer, following: Buffer, first: Buffer = W, second: Buffer = V) -> DoubleBuffer:
    return DoubleBuffer(current, following, (first, 0), (second, 0), (OUT, 0))


P, Q = Buffer("p", F64, 8, "pair"), Buffer("q", F64, 8, "pair")
FILL = over(Store(W, AT, ONE))
STEP = [over(Load(T, P, AT), Store(Q, AT, T))]
TIME = Var("n", 0, 3)

GOOD: dict[str, LoopProgram] = {
    "elementwise": loops(over(Load(T, X, AT), add(U, T, ONE), Store(OUT, AT, U))),
    "sum": loops(Declare(A, ONE), over(Load(T, X, AT), add(U, A, T), Assign(A, U)), Store(OUT, 0, A)),
    "names in two loops": loops(
        over(Load(T, X, AT), Store(W, AT, T)), over(Load(T, W, AT), Store(OUT, AT, T))
    ),
    "gather": loops(
        over(
            Load(Register("n", INT64), KEYS, AT),
            Wrap(K, Register("n", INT64), 8),
            Load(T, X, affine(Var("k", 0, 7))),
            Store(OUT, AT, T),
        )
    ),
    "sequential": loops(FILL, SequentialFor(TIME, STEP, None, (pair(P, Q),), 4)),
    "while": loops(
        Declare(A, ONE),
        WhileLoop(
            TIME,
            [Compute(Register("c", BOOL), "less", None, (A, ONE))],
            Register("c", BOOL),
            [add(U, A, ONE), Assign(A, U)],
        ),
    ),
    "stack": loops(
        ReserveStack(STACK, const(0, INT64)),
        SequentialFor(TIME, [GrowStack(STACK, Index(affine(TIME))), Store(STACK, affine(TIME) * 8, ONE)]),
        OpenStack(STACK),
    ),
    "branch": loops(IndexSwitch(const(0, INT64), ([Store(OUT, 0, ONE)], []))),
    "guard and routine": loops(
        Guard(1, const(1, INT64), 1), RoutineCall("argsort", ((X, 0), (OUT, 0), (W, 0)), (8,))
    ),
}


@pytest.mark.parametrize("program", GOOD.values(), ids=GOOD)
def test_programs_that_keep_the_rules(program: LoopProgram) -> None:
    verify_loops(program)


BROKEN: dict[str, tuple[LoopProgram, str]] = {
    "undefined number": (loops(Store(OUT, 0, T)), "t is used where it is not known in `out0[0] = t`"),
    "number after its loop": (
        loops(over(Load(T, X, AT)), Store(OUT, 0, T)),
        "t is used where it is not known",
    ),
    "number before its definition": (loops(add(U, T, ONE), Load(T, X, 0)), "t is used where it is not known"),
    "number of a branch": (
        loops(IndexSwitch(const(0, INT64), ([Load(T, X, 0)], [])), Store(OUT, 0, T)),
        "t is used where it is not known",
    ),
    "number defined twice": (loops(Load(T, X, 0), over(Load(T, X, AT))), "t is defined twice"),
    "variable defined twice": (loops(over(over(Store(OUT, AT, ONE)))), "i is defined twice"),
    "assigned number": (loops(Load(T, X, 0), Assign(T, ONE)), "t is not an accumulator"),
    "accumulator after its loop": (loops(over(Declare(A, ONE)), Assign(A, ONE)), "a is not an accumulator"),
    "undeclared buffer": (loops(Store(W, 0, ONE), scratch=()), "w0 is not declared"),
    "stack that was not begun": (loops(GrowStack(STACK, const(0, INT64))), "s0 is not declared"),
    "alias outside its loop": (
        loops(FILL, SequentialFor(TIME, STEP, None, (pair(P, Q),)), Load(T, P, 0)),
        "p is not declared",
    ),
    "buffers of one name": (loops(scratch=(W, W)), "two buffers have the same name"),
    "scratch read first": (loops(over(Load(T, W, AT))), "w0 is read before it is written"),
    "loop variable outside": (loops(Store(OUT, AT, ONE)), "i is used where it is not known"),
    "loop variable with another range": (
        loops(over(Store(OUT, affine(Var("i", 0, 3)), ONE))),
        "i ranges over 0 to 3, not as its loop does",
    ),
    "index as a number": (loops(Store(KEYS, 0, Index(AT))), "i is used where it is not known"),
    "position of a float": (
        loops(Load(T, X, 0), Store(OUT, affine(Var("t", 0, 7)), ONE)),
        "t is used where it is not known",
    ),
    "beyond the end": (loops(over(Store(OUT, AT + 1, ONE))), "elements 1 to 8 of out0, which has 8"),
    "before the start": (loops(over(Store(OUT, AT - 1, ONE))), "elements -1 to 6 of out0"),
    "routine beyond the end": (loops(RoutineCall("argsort", ((X, 8),), (8,))), "elements 8 to 8 of x0"),
    "stored dtype": (loops(Store(OUT, 0, const(1, INT64))), "int64 meets float64 in `out0[0] = 1`"),
    "loaded dtype": (loops(Load(K, X, 0)), "int64 meets float64"),
    "dtype of a sum": (loops(add(T, ONE, const(1, INT64))), "int64 meets float64"),
    "dtype of a comparison": (loops(Compute(T, "less", None, (ONE, ONE))), "float64 meets bool"),
    "dtype of a choice": (loops(Compute(T, "where", None, (ONE, ONE, ONE))), "float64 meets bool"),
    "dtype of an accumulator": (loops(Declare(A, ONE), Assign(A, const(1, INT64))), "float64 meets int64"),
    "dtype of a name": (loops(Load(T, X, 0), add(U, Register("t", INT64), ONE)), "float64 meets int64"),
    "wrapped float": (loops(Wrap(K, ONE, 8)), "an index is not an integer"),
    "condition": (loops(WhileLoop(TIME, [], const(1, INT64), [])), "int64 meets bool"),
    "number of a branch as a float": (loops(IndexSwitch(ONE, ([], []))), "the number of a branch"),
    "trip count": (loops(SequentialFor(TIME, [], ONE)), "float64 meets int64"),
    "poll": (loops(SequentialFor(TIME, [], poll=3)), "a power of 2"),
    "no iteration": (loops(over(var=Var("i", 0, -1))), "a loop makes no iteration"),
    "loop in lanes": (loops(over(over(Store(OUT, 0, ONE), var=TIME), lanes=True)), "holds a loop"),
    "private output": (loops(over(Store(OUT, AT, ONE), private=(OUT,))), "out0 is private and not scratch"),
    "guard in a loop": (loops(over(Guard(1, const(1, INT64), 1))), "a guard stands inside a loop"),
    "guards of one number": (
        loops(Guard(1, const(1, INT64), 1), Guard(1, const(1, INT64), 1)),
        "the same number",
    ),
    "carry that is not written": (
        loops(FILL, SequentialFor(TIME, [over(Load(T, P, AT))], None, (pair(P, Q),))),
        "no iteration writes q",
    ),
    "carry without a beginning": (
        loops(SequentialFor(TIME, STEP, None, (pair(P, Q),))),
        "w0 is read before it is written",
    ),
    "carries of two sizes": (
        loops(FILL, SequentialFor(TIME, STEP, None, (pair(P, Buffer("q", F64, 4, "pair")),))),
        "q is swapped with another size",
    ),
    "stack of another role": (loops(OpenStack(W)), "w0 is no stack"),
}


@pytest.mark.parametrize(("program", "rule"), BROKEN.values(), ids=BROKEN)
def test_programs_that_break_a_rule(program: LoopProgram, rule: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(rule)) as caught:
        verify_loops(program, "some_pass")
    assert "after the stage some_pass" in str(caught.value)


def _shifted(program: LoopProgram) -> LoopProgram:
    """Let each loop store one element further."""

    def moved(statement: Statement) -> Statement:
        if isinstance(statement, For):
            return For(statement.var, [moved(inner) for inner in statement.body])
        if isinstance(statement, Store):
            return Store(statement.buffer, statement.index + 1, statement.value)
        return statement

    body = [moved(statement) for statement in program.body]
    return LoopProgram(program.name, program.inputs, program.outputs, program.scratch, body)


def test_a_pass_that_breaks_a_rule_is_named() -> None:
    x = array_input(5)
    graph = graph_of([x], [ROWS["exp"](x)])  # type: ignore[operator]
    with (
        mock.patch.object(pipeline, "LOOP_PASSES", (*pipeline.LOOP_PASSES, _shifted)),
        pytest.raises(VerifyError, match=r"elements 1 to 5 of out0.*\n.*after the stage _shifted"),
    ):
        schedule_of(graph)
