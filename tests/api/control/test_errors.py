"""Wrong uses of loops and branches: each error names the argument, what it got, the line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    ShapeError,
    StructureError,
)
from tests.support.ways import expect, line_of

Function = Callable[..., Any]
XS = np.arange(4.0)


def same(c: Any, x: Any) -> Any:
    return c, None


def test_a_carry_that_changes_its_dtype() -> None:
    def step(c: Any, x: Any) -> Any:
        total = c["n"]
        total = total + x
        return {"n": total}, None

    expect(
        DtypeError,
        lambda: gt.scan(step, {"n": np.zeros(3, int)}, XS),
        "scan: init['n'] starts as i64[3], and the body returns f64[3] for it",
        line_of(step, "total + x"),
        "x.astype(float64)",
    )


def test_a_carry_that_changes_its_shape() -> None:
    def step(c: Any, x: Any) -> Any:
        return (c[0], np.stack([c[1], c[1]])), None

    expect(
        ShapeError,
        lambda: gt.scan(step, (1.0, np.ones(2)), XS),
        "scan: init[1] starts as f64[2], and the body returns f64[2,2] for it",
        line_of(step, "np.stack"),
        "start with an array of shape (2, 2)",
    )


@pytest.mark.parametrize(
    ("init", "step", "parts"),
    [
        # A sum over the number would be another sum over an array of it.
        (
            1.5,
            lambda c, x: (np.sum(c) * np.ones(2), None),
            ("the Python number 1.5", "f64[2]", "np.full((2,), ...)"),
        ),
        (0, lambda c, x: (np.outer(c, np.ones(2)), None), ("the Python number 0", "f64[1,2]")),
        (0.5, lambda c, x: (x.astype(int), None), ("the Python number 0.5", "i64[]")),
        (np.float32(1), lambda c, x: (c + x, None), ("init starts as f32[]", "f64[]")),
        (np.ones(2), lambda c, x: (1.0, None), ("init starts as f64[2]", "f64[]")),
        (np.ones(2, bool), lambda c, x: (c + 1, None), ("bool[2]", "i64[2]")),
    ],
)
def test_carries_that_do_not_settle(init: Any, step: Function, parts: tuple[str, ...]) -> None:
    expect((DtypeError, ShapeError), lambda: gt.scan(step, init, XS), *parts)
    expect((DtypeError, ShapeError), lambda: gt.jit(lambda x: gt.scan(step, init, x))(XS), *parts)


def test_the_shape_of_a_number_may_change_once() -> None:
    expect(
        ShapeError,
        lambda: gt.scan(lambda c, x: (c + np.ones((2, *np.shape(c))), None), 0.0, XS),
        "f64[2,2]",
    )


def test_a_carry_that_changes_its_structure() -> None:
    def step(c: Any, x: Any) -> Any:
        return {"a": c["a"]}, None

    expect(
        StructureError,
        lambda: gt.scan(step, {"a": 1.0, "b": 2.0}, XS),
        "scan: the carry that 'step' returned has the structure {'a': *}, and init has {'a': *, 'b': *}",
        line_of(step, "def step"),
        "return the containers of init",
    )
    expect(StructureError, lambda: gt.scan(lambda c, x: (None, None), 1.0, XS), "has the structure None")
    expect(StructureError, lambda: gt.fori_loop(0, 3, lambda i, c: (c, c), 1.0), "fori_loop", "(*, *)")

    def squares(k: Any, out: Any) -> None:
        out[k] = k**2

    expect(StructureError, lambda: gt.fori_loop(0, 3, squares, np.zeros(3)), "out[k] = x; return out")
    expect(
        StructureError,
        lambda: gt.while_loop(lambda a, b: a < 3, lambda a, b: (a + 1, (b, b)), (0, 1.0)),
        "while_loop: what '<lambda>' returned",
        "loop_vars has (*, *)",
    )


def test_what_is_no_array_does_not_change() -> None:
    expect(
        StructureError,
        lambda: gt.scan(lambda c, x: ((c[0], "other"), None), (1.0, "name"), XS),
        "[1] is 'other', and init[1] is 'name'",
    )
    expect(
        DtypeError,
        lambda: gt.scan(lambda c, x: (("text", c[1]), None), (1.0, 2.0), XS),
        "[0] is a str, which is neither an array nor a number",
    )


@pytest.mark.parametrize(
    "result", [lambda c: c, lambda c: (c, c, c), lambda c: None, lambda c: {"c": c, "y": c}]
)
def test_a_body_of_a_scan_returns_a_pair(result: Function) -> None:
    def step(c: Any, x: Any) -> Any:
        return result(c)

    expect(
        StructureError,
        lambda: gt.scan(step, 1.0, XS),
        "scan: 'step' returned ",
        "not a pair",
        "return carry, y; without an output, return carry, None",
        line_of(step, "def step"),
    )


def test_what_is_left_behind_can_be_stacked() -> None:
    expect(
        DtypeError,
        lambda: gt.scan(lambda c, x: (c, {"name": "x"}), 1.0, XS),
        "the output of '<lambda>': ['name'] is a str",
    )


# Lengths


def test_lengths_that_differ() -> None:
    expect(
        ShapeError,
        lambda: gt.scan(same, 1.0, {"a": XS, "b": np.zeros((5, 2))}),
        "scan: the first axes of xs have different extents: xs['a'] has 4; xs['b'] has 5",
        "cut the arrays to the same length",
    )
    expect(ShapeError, lambda: gt.scan(same, 1.0, XS, length=5), "length is 5, but xs has 4", "omit length")
    expect(
        ShapeError, lambda: gt.map(lambda pair: pair[0], (XS, XS[:2])), "map: ", "xs[0] has 4; xs[1] has 2"
    )
    expect(
        ShapeError,
        lambda: gt.associative_scan(lambda a, b: a, (XS, XS[:2])),
        "associative_scan: the arrays of elems differ along axis 0: elems[0] has 4; elems[1] has 2",
    )


@pytest.mark.parametrize(
    ("xs", "place"), [(1.0, "xs"), ([1.0, 2.0], "xs[0]"), ({"a": XS, "b": np.float64(3)}, "xs['b']")]
)
def test_elements_without_an_axis(xs: Any, place: str) -> None:
    expect(
        ShapeError,
        lambda: gt.scan(same, 1.0, xs),
        f"scan: {place} is a number; it has no first axis",
        "np.array(xs)",
    )
    expect(ShapeError, lambda: gt.map(lambda x: x, xs), f"map: {place} is a number")


def test_elements_that_are_no_arrays() -> None:
    expect(
        ShapeError, lambda: gt.scan(same, 1.0, (XS, "text")), "scan: xs[1] is a str, which has no first axis"
    )


def test_neither_arrays_nor_length() -> None:
    expect(ArgumentError, lambda: gt.scan(same, 1.0), "scan: neither xs nor length is given", "length=10")
    expect(ArgumentError, lambda: gt.scan(same, 1.0, (None, [])), "neither xs nor length")
    expect(ArgumentError, lambda: gt.map(lambda x: x, None), "map: xs holds no array")
    expect(ArgumentError, lambda: gt.associative_scan(np.add, []), "associative_scan: elems holds no array")


def test_lengths_that_are_none() -> None:
    expect(ArgumentError, lambda: gt.scan(same, 1.0, length=-1), "scan: length is -1; it must be at least 0")
    for length in (2.0, "3", True, XS, None.__class__):
        expect(
            DtypeError,
            lambda length=length: gt.scan(same, 1.0, length=length),
            "scan: length must be an int, got",
        )
    expect(
        DtypeError,
        lambda: gt.jit(lambda n: gt.scan(same, 1.0, length=n))(3.0),
        "got an array f64[]",
        "length=10",
    )


# Functions


NOT_CALLABLE = {
    "scan": lambda f: gt.scan(f, 1.0, XS),
    "map": lambda f: gt.map(f, XS),
    "fori_loop": lambda f: gt.fori_loop(0, 3, f, 1.0),
    "cond": lambda f: gt.cond(True, f, lambda: 1),
    "switch": lambda f: gt.switch(0, [f], 1.0),
    "associative_scan": lambda f: gt.associative_scan(f, XS),
}
ROLES = {
    "scan": "f",
    "map": "f",
    "fori_loop": "body",
    "cond": "true_fn",
    "switch": "branches[0]",
    "associative_scan": "fn",
}


@pytest.mark.parametrize("caller", NOT_CALLABLE)
def test_what_cannot_be_called(caller: str) -> None:
    call, role = NOT_CALLABLE[caller], ROLES[caller]
    expect(
        ArgumentError, lambda: call(3), f"{caller}: {role} is an int, which cannot be called", f"as {role}"
    )
    expect(ArgumentError, lambda: call(None), f"{caller}: {role} is None")


@pytest.mark.parametrize("caller", NOT_CALLABLE)
def test_functions_of_another_number_of_arguments(caller: str) -> None:
    def wrong(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a

    expect(
        ArgumentError,
        lambda: NOT_CALLABLE[caller](wrong),
        f"{caller}: {ROLES[caller]} is called with",
        "which wrong(a: Any, b: Any, c: Any, d: Any) -> Any does not take".replace("Any", "'Any'"),
    )


def test_branches_are_looked_at_in_the_order_of_the_arguments() -> None:
    expect(
        ArgumentError,
        lambda: gt.cond(True, np.sin, np.cos),
        "cond: true_fn is called with 0 arguments",
        "sin(",
    )
    expect(
        ArgumentError, lambda: gt.cond(True, lambda: 1.0, np.cos), "cond: false_fn is called with 0 arguments"
    )
    expect(
        ArgumentError,
        lambda: gt.switch(1, [np.sin, np.cos]),
        "switch: branches[0] is called with 0 arguments",
    )


def test_functions_of_a_while() -> None:
    expect(ArgumentError, lambda: gt.while_loop(3, lambda x: x, 1.0), "while_loop: cond is an int")
    expect(ArgumentError, lambda: gt.while_loop(lambda x: x < 3, None, 1.0), "while_loop: body is None")
    expect(
        ArgumentError,
        lambda: gt.while_loop(lambda v: v[0] < 3, lambda v: v, (0, 1.0)),
        "while_loop: cond is called with 2 arguments: the entries of loop_vars, which <lambda>(v) does not take",
        "loop_vars=(variables,)",
    )
    expect(
        ArgumentError,
        lambda: gt.while_loop(lambda x: x < 3, lambda: 1, 0),
        "while_loop: body is called with 1 argument: loop_vars, which <lambda>() does not take",
    )


# Conditions and choices


@pytest.mark.parametrize(
    ("condition", "error", "parts"),
    [
        (lambda x: x, DtypeError, ("f64[]", "and not one bool")),
        (lambda x: 1, DtypeError, ("i64[]", "and not one bool")),
        (lambda x: np.stack([x > 0]), ShapeError, ("bool[1]", "np.any(x > 0)")),
        (lambda x: (x > 0,), DtypeError, ("a tuple of length 1",)),
        (lambda x: None, DtypeError, ("None",)),
        (lambda x: "yes", DtypeError, ("is a str",)),
    ],
)
def test_conditions_are_one_bool(condition: Function, error: type[Exception], parts: tuple[str, ...]) -> None:
    expect(
        error,
        lambda: gt.while_loop(condition, lambda x: x * 2, 1.0),
        "the condition '<lambda>' returned",
        *parts,
    )


@pytest.mark.parametrize("most", [-1, 1.5, "3", True])
def test_limits_of_a_while(most: Any) -> None:
    error = ArgumentError if most == -1 else DtypeError
    call = lambda: gt.while_loop(lambda x: x < 3, lambda x: x + 1, 0, max_iterations=most)  # noqa: E731
    expect(error, call, "while_loop: max_iterations", "max_iterations=100, or None")


@pytest.mark.parametrize("pred", [1, 0.5, "yes", None, XS > 0, np.array([True]), [True]])
def test_choices_are_one_bool(pred: Any) -> None:
    expect(
        DtypeError, lambda: gt.cond(pred, lambda: 1, lambda: 2), "cond: pred must be one bool, got", "np.any"
    )


def test_traced_choices_are_one_bool() -> None:
    expect(DtypeError, lambda: gt.jit(lambda x: gt.cond(x, lambda: 1, lambda: 2))(XS), "got an array f64[4]")
    expect(
        DtypeError, lambda: gt.jit(lambda x: gt.cond(x > 0, lambda: 1, lambda: 2))(XS), "bool[4]", "np.where"
    )


@pytest.mark.parametrize("index", [1.0, "1", None, True, np.array([1]), np.float64(1), XS])
def test_indices_are_one_integer(index: Any) -> None:
    expect(DtypeError, lambda: gt.switch(index, [np.sin], 1.0), "switch: index must be one integer, got")


@pytest.mark.parametrize("branches", [[], (), np.sin, None, 3])
def test_branches_are_a_list_of_functions(branches: Any) -> None:
    expect(
        ArgumentError,
        lambda: gt.switch(0, branches, 1.0),
        "switch: branches must be a list or tuple",
        "[f, g]",
    )


def test_branches_of_different_types() -> None:
    def single(x: Any) -> Any:
        return {"y": (x, np.float32(1) * x.astype("f4"))}

    def double(x: Any) -> Any:
        return {"y": (x, x * 2)}

    expect(
        DtypeError,
        lambda: gt.cond(True, single, double, np.float64(1.5)),
        "cond: result['y'][1] is f32[] in true_fn 'single' and f64[] in false_fn 'double'",
        line_of(single, "np.float32"),
        "x.astype(float64)",
    )
    expect(
        ShapeError,
        lambda: gt.switch(0, [lambda x: x, lambda x: 0.0, lambda x: x[:2]], XS),
        "switch: result is f64[] in branches[1] '<lambda>' and f64[4] in branches[0] '<lambda>'",
        "np.broadcast_to(x, (4,))",
    )
    expect(DtypeError, lambda: gt.cond(True, lambda: XS, lambda: np.arange(4)), "f64[4]", "i64[4]")


def test_branches_of_different_containers() -> None:
    expect(
        StructureError,
        lambda: gt.cond(True, lambda: (1, 2), lambda: [1, 2]),
        "cond: true_fn '<lambda>' returned the structure (*, *), and false_fn '<lambda>' returned [*, *]",
    )
    expect(StructureError, lambda: gt.cond(True, lambda: 1.0, lambda: None), "returned None")
    expect(
        DtypeError,
        lambda: gt.cond(True, lambda: "a", lambda: "b"),
        "result is 'a' in true_fn",
        "'b' in false_fn",
    )
    expect(DtypeError, lambda: gt.cond(True, lambda: [1], lambda: ["b"]), "result[0]")


@pytest.mark.parametrize("bound", [0.5, "3", None, True, np.float64(2), XS])
def test_bounds_are_integers(bound: Any) -> None:
    expect(
        DtypeError, lambda: gt.fori_loop(bound, 3, lambda i, c: c, 0), "fori_loop: lower must be an int, got"
    )
    expect(
        DtypeError, lambda: gt.fori_loop(0, bound, lambda i, c: c, 0), "fori_loop: upper must be an int, got"
    )


def test_traced_bounds_are_integers() -> None:
    loop = gt.jit(lambda n: gt.fori_loop(0, n, lambda i, c: c + 1, 0))
    expect(
        DtypeError, lambda: loop(2.5), "fori_loop: upper must be an integer scalar, got f64[]", "astype(int)"
    )
    expect(DtypeError, lambda: loop(np.arange(2)), "got i64[2]")


# Options


def test_unrolled_iterations() -> None:
    expect(
        ArgumentError, lambda: gt.scan(same, 1.0, XS, unroll=0), "scan: unroll is 0; it must be at least 1"
    )
    expect(DtypeError, lambda: gt.scan(same, 1.0, XS, unroll=2.0), "scan: unroll must be an int, got 2.0")
    expect(DtypeError, lambda: gt.scan(same, 1.0, XS, unroll=True), "scan: unroll must be an int, got True")


def test_directions() -> None:
    expect(DtypeError, lambda: gt.scan(same, 1.0, XS, reverse=1), "scan: reverse must be a bool, got an int")
    expect(
        DtypeError,
        lambda: gt.associative_scan(np.add, XS, reverse="yes"),
        "reverse must be a bool, got a str",
    )


@pytest.mark.parametrize(
    ("checkpoint", "error", "parts"),
    [
        ("sqr", ArgumentError, ("checkpoint is 'sqr'; did you mean 'sqrt'?", 'checkpoint="all"')),
        (("treverse", 3), ArgumentError, ("did you mean 'treeverse'?",)),
        ("never", ArgumentError, ("checkpoint is 'never'",)),
        ("treeverse", StructureError, ("needs the number of carries", '("treeverse", 10)')),
        (("treeverse", 0), ArgumentError, ("the number of checkpoints for treeverse is 0",)),
        (("treeverse", 1.5), DtypeError, ("got 1.5 of type float",)),
        (0, ArgumentError, ("checkpoint is 0; it must be at least 1",)),
        (2.5, DtypeError, ("checkpoint must be an int, got 2.5",)),
        (True, DtypeError, ("checkpoint must be an int, got True",)),
        ([], DtypeError, ("checkpoint must be an int, got []",)),
    ],
)
def test_memory_policies(checkpoint: Any, error: type[Exception], parts: tuple[str, ...]) -> None:
    expect(error, lambda: gt.scan(same, 1.0, XS, checkpoint=checkpoint), *parts)


def test_axes_of_prefixes() -> None:
    expect(
        ShapeError, lambda: gt.associative_scan(np.add, XS, axis=1), "elems has shape (4,); it has no axis 1"
    )
    expect(
        ShapeError,
        lambda: gt.associative_scan(np.add, [1.0, 2.0]),
        "elems[0] has shape ()",
        "np.array(elems)",
    )
    expect(ArgumentError, lambda: gt.associative_scan(np.add, XS, axis=0.0), "axis must be an int, got 0.0")


def test_functions_of_prefixes() -> None:
    expect(
        ShapeError,
        lambda: gt.associative_scan(lambda a, b: a[:1], XS),
        "is f64[1] for elems, and it got f64[2]",
    )
    expect(ShapeError, lambda: gt.associative_scan(np.true_divide, np.arange(3)), "f64[1]", "i64[1]")
    expect(StructureError, lambda: gt.associative_scan(lambda a, b: (a, b), XS), "has the structure (*, *)")
