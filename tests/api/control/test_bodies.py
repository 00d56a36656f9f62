"""What bodies of loops and branches cannot do: ask for numbers, write to what lies outside, let values leak."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import (
    ArraySubclassError,
    ConcretizationError,
    DtypeError,
    InPlaceError,
    LeakedValueError,
    ShapeError,
)
from tests.support.ways import expect, line_of

zeros = functools.partial(np.zeros)
"""NumPy's own, whoever records: known by no name of NumPy's."""

Function = Callable[..., Any]
XS = np.arange(4.0)


def same(c: Any, x: Any) -> Any:
    return c, None


# Numbers that nobody knows


ASKING = {
    "bool": lambda x: x if x > 0 else -x,
    "and": lambda x: (x > 0) and (x < 1),
    "while": lambda x: [x for _ in iter(lambda: bool(x > 0), False)],
    "float": lambda x: float(x),
    "int": lambda x: int(x),
    "range": lambda x: range(x.astype(int)),
    "item": lambda x: x.item(),
    "numpy": lambda x: x.numpy(),
    "tolist": lambda x: x.tolist(),
    "memoryview": lambda x: memoryview(XS)[: int(x)],
    "slice": lambda x: gt.constant(XS)[: x.astype(int)],
    "list": lambda x: [1, 2, 3][x.astype(int)],
    "ndarray": lambda x: np.linspace(0.0, 1.0, 3)[x.astype(int)],
    "shape": lambda x: np.zeros(x.astype(int)),
}


@pytest.mark.usefixtures("loops_are_traced")
@pytest.mark.parametrize("asking", ASKING.values(), ids=list(ASKING))
def test_numbers_of_an_iteration(asking: Function) -> None:
    for loop, described in (
        (lambda f: gt.scan(lambda c, x: (c, f(x)), 1.0, XS), "the body '<lambda>' of gt.scan"),
        (
            lambda f: gt.while_loop(lambda x: True, lambda x: [f(x), x][1], 1.0),
            "the body '<lambda>' of gt.while_loop",
        ),
        (lambda f: gt.cond(True, lambda x: f(x), lambda x: x, 1.0), "true_fn '<lambda>' of gt.cond"),
    ):
        error = expect(ConcretizationError, lambda loop=loop: loop(asking), described, "what to do: ")
        assert f"{__file__}:" in str(error)
        expect(ConcretizationError, lambda loop=loop: gt.jit(lambda z: loop(asking))(1.0), described)


@pytest.mark.usefixtures("loops_are_traced")
@pytest.mark.parametrize(
    ("asking", "remedies"),
    [
        ("bool", ("gt.cond", "np.where")),
        ("and", ("`a & b`",)),
        ("while", ("gt.while_loop",)),
        ("float", ("np.sin(x) instead of np.sin(float(x))",)),
        ("ndarray", ("gt.constant(y)[k]",)),
        ("list", ("np.stack(y)",)),
        ("shape", ("np.where",)),
    ],
)
def test_what_to_write_instead(asking: str, remedies: tuple[str, ...]) -> None:
    expect(ConcretizationError, lambda: gt.scan(lambda c, x: (c, ASKING[asking](x)), 1.0, XS), *remedies)


def test_masks_in_a_body() -> None:
    rows = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    _, sums = gt.scan(lambda c, x: (c, x[x > 0].sum()), 1.0, rows)
    np.testing.assert_array_equal(sums, [4.0, 9.0])
    call = lambda: gt.scan(lambda c, x: (c, np.sort(x[x > 0])), 1.0, rows)  # noqa: E731
    expect(ConcretizationError, call, "the body '<lambda>' of gt.scan", "use np.where")


def test_stores_and_looks_into_tables_in_a_body() -> None:
    def stored(x: Any) -> Any:
        y = zeros(3)
        y[0] = x
        return np.take(XS, y.astype(int)) + y

    _, rows = gt.scan(lambda c, x: (c, stored(x)), 1.0, XS % 3)
    np.testing.assert_array_equal(rows, [stored(x) for x in XS % 3])


# Values that leak


@pytest.mark.parametrize(
    ("loop", "described", "remedy"),
    [
        (
            lambda f: gt.scan(lambda c, x: (f(c), None), 1.0, XS),
            "the body '<lambda>' of gt.scan",
            "second element of the pair",
        ),
        (lambda f: gt.map(f, XS), "of gt.map", "second element of the pair"),
        (lambda f: gt.fori_loop(0, 3, lambda i, c: f(c), 1.0), "of gt.fori_loop", "carry it"),
        (
            lambda f: gt.while_loop(lambda x: x < 3, lambda x: f(x) + 1, 0.0),
            "of gt.while_loop",
            "loop's variables",
        ),
        (lambda f: gt.cond(True, f, lambda x: x, 1.0), "true_fn '", "return it from every branch"),
    ],
)
def test_values_that_leave_a_body_by_a_side_way(loop: Function, described: str, remedy: str) -> None:
    kept: list[Any] = []

    def keeping(x: Any) -> Any:
        kept.append(x * 2)
        kept.append(x)
        return x

    loop(keeping)
    for leaked in kept:
        for use in (
            float,
            print,
            lambda x: np.sin(x).numpy(),
            lambda x: gt.scan(lambda c, y: (c + x, None), 1.0, XS),
        ):
            expect(LeakedValueError, lambda use=use, leaked=leaked: use(leaked), described, remedy)

    @gt.jit
    def function(x: Any) -> Any:
        kept.clear()
        loop(keeping)
        return x + kept[0]

    expect(LeakedValueError, lambda: function(1.0), described)


BUFFER = gt.constant(np.zeros(4))


@pytest.mark.parametrize("where", ["module", "closure"])
def test_a_body_does_not_write_to_arrays_from_outside(where: str) -> None:
    buffer = gt.constant(np.zeros(4))

    def global_one(i: Any, c: Any) -> Any:
        BUFFER[0] = c
        return c + 1

    def local_one(i: Any, c: Any) -> Any:
        buffer[1:] += 1
        return c + buffer[1]

    body, name = (global_one, "BUFFER") if where == "module" else (local_one, "buffer")
    expect(
        InPlaceError,
        lambda: gt.fori_loop(0, 3, body, 0.0),
        f"the body {body.__name__!r} of gt.fori_loop writes to {name!r}, an array from outside",
        line_of(body, f"def {body.__name__}"),
        "let the array be one of its arguments",
    )
    assert not BUFFER.numpy().any()
    assert not buffer.numpy().any()
    assert gt.fori_loop(0, 3, lambda i, c: c + buffer[0], 1.0) == 1


@pytest.mark.parametrize("loop", ["fori_loop", "scan", "cond"])
@pytest.mark.parametrize("write", ["y[k] = x", "np.add(x, 1, out=y)", "np.copyto(y, x)"])
def test_a_body_does_not_write_to_an_ndarray_from_outside(loop: str, write: str) -> None:
    y = np.zeros(3)

    def body(x: Any) -> Any:
        exec(write, {"np": np, "y": y, "x": x, "k": 0})  # as in a file: the frame is that of the statement
        return x + 1

    calls: dict[str, Callable[[], Any]] = {
        "fori_loop": lambda: gt.fori_loop(0, 3, lambda i, x: body(x), 0.0),
        "scan": lambda: gt.scan(lambda x, element: (body(x), None), 0.0, np.arange(3.0)),
        "cond": lambda: gt.cond(np.float64(1) > 0, body, lambda x: x, 1.0),
    }
    with pytest.raises(gt.errors.GradtapeError, match="let the array be one of its arguments"):
        calls[loop]()
    assert not y.any()


def test_a_body_reads_what_the_function_has_created() -> None:
    @gt.jit
    def read(x: Any) -> Any:
        scale = np.full(3, 0.5)
        return gt.fori_loop(0, 3, lambda i, y: y / scale, x * np.ones(3))

    np.testing.assert_array_equal(read(1.0), np.full(3, 8.0))

    @gt.jit
    def write(x: Any) -> Any:
        scale = np.full(3, 0.5)

        def body(i: Any, y: Any) -> Any:
            scale[0] += 1
            return y / scale

        return gt.fori_loop(0, 3, body, x * np.ones(3))

    expect(InPlaceError, lambda: write(1.0), "writes to 'scale', an array from outside")


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        gt.scan(lambda c, x: (c + x, None), 300, np.arange(3, dtype=np.int8))


def test_arrays_that_nobody_follows() -> None:
    masked, objects = np.ma.masked_array([1.0]), np.array([1, None])
    expect(ArraySubclassError, lambda: gt.scan(same, {"m": masked}, XS), "init['m'] is a MaskedArray")
    expect(DtypeError, lambda: gt.map(lambda x: x, (XS, objects)), "xs[1] has dtype object")
    expect(
        DtypeError, lambda: gt.cond(True, lambda x: x, lambda x: x, objects), "operands[0] has dtype object"
    )
    expect(
        ShapeError,
        lambda: gt.scan(same, 0.0, range(3)),
        "xs is a range, which has no first axis",
        "np.arange(n)",
    )


def test_values_that_leak_into_a_loop_around() -> None:
    def outer(c: Any, x: Any) -> Any:
        kept: list[Any] = []

        def inner(d: Any, y: Any) -> Any:
            kept.append(d + y)
            return d + y, None

        return gt.scan(inner, c, XS)[0] + kept[-1], None

    expect(LeakedValueError, lambda: gt.scan(outer, 0.0, XS), "the body 'inner' of gt.scan")


def test_an_error_of_the_users_passes_through() -> None:
    def failing(c: Any, x: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        gt.scan(failing, 0.0, XS)
    # What was going on around is as it was.
    assert gt.scan(lambda c, x: (c + x, None), 0.0, XS)[0] == 6
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        with pytest.raises(ZeroDivisionError):
            gt.scan(failing, x, XS)
        y = x * x
    assert float(tape.gradient(y, x)) == 4
