"""Subclasses, things that are no numbers, numbers that leave, and what belongs to the caller."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import (
    PAIR,
    Function,
    at_a_line_of,
    derivatives,
    expect,
    traced_ways,
    ways,
)

MAKERS = [np.zeros]


def zeros(n: int) -> Any:
    """Return an ndarray, whoever records: a function out of a list is known by no name."""
    return MAKERS[0](n)


# Subclasses and things that are no numbers


class Tagged(np.ndarray):
    """A subclass of somebody's own."""


SUBCLASSES = {
    "matrix": lambda: np.ones((2, 2)).view(np.matrix),
    "masked": lambda: np.ma.masked_invalid([1.0, np.nan]),
    "recarray": lambda: np.ones(2).view(np.recarray),
    "of somebody's own": lambda: np.ones(2).view(Tagged),
}


@ways
@pytest.mark.parametrize("make", SUBCLASSES.values(), ids=SUBCLASSES)
def test_subclasses_are_refused(way: Function, make: Callable[[], Any]) -> None:
    x = make()
    error = expect(errors.ArraySubclassError, lambda: way(lambda x: x * 2, x), type(x).__name__, "what to do")
    assert at_a_line_of(way, error)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@ways
def test_matrices_are_refused_as_operands(way: Function) -> None:
    other = SUBCLASSES["matrix"]()
    for function in (lambda x: x * other, lambda x: other * x, lambda x: np.add(other, x)):
        expect(errors.ArraySubclassError, lambda f=function: way(f, np.ones(2)), type(other).__name__)


@pytest.mark.parametrize("make", SUBCLASSES.values(), ids=SUBCLASSES)
def test_subclasses_are_refused_by_a_compiled_function(make: Callable[[], Any]) -> None:
    x = make()
    f = gt.jit(lambda x: x * 2)
    for _ in range(3):
        f(np.ones(x.shape))
    expect(errors.ArraySubclassError, lambda: f(x), type(x).__name__)
    np.testing.assert_array_equal(f(np.ones(x.shape)), np.full(x.shape, 2.0))


class Level(enum.IntEnum):
    """Numbers that are more than numbers."""

    LOW = 2


class Metres(float):
    """A float of somebody's own."""


@pytest.mark.parametrize("number", [Level.LOW, Metres(2.0)], ids=repr)
def test_subclasses_of_numbers_are_numbers(number: Any) -> None:
    x = np.ones(2, np.float32)
    for _ in range(2):
        for function in (
            lambda x: x * number,
            lambda x: number * x,
            lambda x: np.maximum(x, number),
            lambda x: x**number,
        ):
            result = gt.jit(function)(x)
            np.testing.assert_array_equal(result, function(x))
            assert result.dtype == function(x).dtype
    f = gt.jit(lambda x, s: x * s)
    for given in (2.0, number, 2, number):
        np.testing.assert_array_equal(f(x, given), 2 * x)


def test_a_derivative_in_a_float_of_somebodys_own() -> None:
    assert gt.grad(lambda x: x * x)(Metres(2.0)) == 4.0


def test_numbers_are_weak_and_numpys_scalars_are_not() -> None:
    x = np.ones(2, np.float32)
    f = gt.jit(lambda x, s: x * s)
    for _ in range(3):
        for s in (0.5, np.float64(0.5), np.float32(0.5), 2, np.int64(2), True, np.True_, np.array(0.5)):
            result, expected = f(x, s), x * s
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype


def test_memory_maps_are_taken(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=3)
    x[:] = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(x**2))(x), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(gt.jit(np.abs)(x), [1.0, 2.0, 3.0])


NO_NUMBERS = {
    "objects": np.array([1.0, None]),
    "strings": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "records": np.zeros(2, "f8,i4"),
    "bytes": np.array([b"ab"]),
}


@ways
@pytest.mark.parametrize("x", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_arrays_of_no_numbers_are_refused(way: Function, x: Any) -> None:
    error = expect(errors.DtypeError, lambda: way(lambda x: x * 2, x), str(x.dtype), "what to do")
    assert at_a_line_of(way, error)


@ways
@pytest.mark.parametrize("x", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_arrays_of_no_numbers_are_refused_as_operands(way: Function, x: Any) -> None:
    def function(y: Any) -> Any:
        return y[0] * x

    error = expect(errors.DtypeError, lambda: way(function, PAIR), str(x.dtype))
    assert at_a_line_of(function, error)


@derivatives
@pytest.mark.parametrize(
    "x", ["three", b"three", object(), {1.0}, range(3), print], ids=lambda x: type(x).__name__
)
def test_objects_have_no_derivative(way: Function, x: Any) -> None:
    error = expect(errors.DtypeError, lambda: way(lambda x: x, x), type(x).__name__, "what to do")
    assert at_a_line_of(way, error)


@pytest.mark.parametrize(
    "x", ["three", b"three", object(), {1.0}, range(3), print], ids=lambda x: type(x).__name__
)
def test_objects_cannot_be_watched(x: Any) -> None:
    def watch() -> None:
        with gt.GradientTape() as tape:
            tape.watch(x)

    error = expect(errors.DtypeError, watch, type(x).__name__)
    assert at_a_line_of(watch, error)


def test_none_in_a_wrong_place() -> None:
    expect(errors.DtypeError, lambda: gt.grad(lambda x: 1.0)(None), "None")
    assert gt.vjp(lambda x, nothing: x * 2, 1.0, None)[1](3.0) == (6.0, None)
    assert gt.jvp(lambda x, nothing: x * 2, (1.0, None), (3.0, None)) == (2.0, 6.0)
    expect(errors.ArgumentError, lambda: gt.constant(None), "None")
    expect(errors.DtypeError, lambda: gt.asarray(None), "NoneType")
    tape = gt.GradientTape()
    with tape:
        expect(errors.ArgumentError, lambda: tape.watch(None), "None")
        x = tape.watch(PAIR)
        y = np.sum(x)
    expect(errors.DtypeError, lambda: tape.gradient(None, x), "None")
    expect(errors.DtypeError, lambda: tape.gradient(y, None), "None")
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 1.0])


@ways
@pytest.mark.parametrize("other", [None, "a", {"a": 1.0}, object()], ids=lambda other: type(other).__name__)
def test_operands_that_are_no_numbers(way: Function, other: Any) -> None:
    expect(TypeError, lambda: way(lambda x: x + other, PAIR))
    expect(TypeError, lambda: way(lambda x: other * x, PAIR))
    expect(errors.DtypeError, lambda: way(lambda x: np.add(x, other), PAIR), type(other).__name__)


def test_plain_arrays_and_numbers_cannot_be_sources_or_targets_of_a_tape() -> None:
    x = PAIR.copy()
    tape = gt.GradientTape(persistent=True)
    with tape:
        watched = tape.watch(x)
        y = np.sum(watched)
    for source in (x, 3.0, [watched, x], np.float64(1.0)):
        expect(errors.ArgumentError, lambda s=source: tape.gradient(y, s), "tape.watch(x)")
    for target in (x, 3.0, np.float64(2.0)):
        expect(errors.ArgumentError, lambda t=target: tape.gradient(t, watched), "target")
    for thing in ("x", object()):
        expect(errors.DtypeError, lambda t=thing: tape.gradient(y, t), type(thing).__name__)
        expect(errors.DtypeError, lambda t=thing: tape.gradient(t, watched), type(thing).__name__)


def test_things_that_cannot_be_called() -> None:
    for transform in (gt.jit, gt.grad, gt.value_and_grad):
        expect(errors.ArgumentError, lambda t=transform: t(3), "int", transform.__name__)
    for name, call in {
        "vjp": lambda: gt.vjp(3, PAIR),
        "jvp": lambda: gt.jvp(3, (PAIR,), (PAIR,)),
        "check_grads": lambda: gt.check_grads(3, (PAIR,)),
    }.items():
        expect(errors.ArgumentError, call, "int", name)


# Taking numbers out of a trace


def zeros_written(x: Any) -> Any:
    y = zeros(2)
    y[0] = x[0]
    return y


def slice_written(x: Any) -> Any:
    y = zeros(4)
    y[:2] = x
    return y


LEAVING = {
    "float": lambda x: float(x[0]),
    "complex": lambda x: complex(x[0]),
    "math.frexp": lambda x: math.frexp(x[0]),
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "an element of an ndarray": zeros_written,
    "a slice of an ndarray": slice_written,
    "format": lambda x: f"{float(x[0]):.3f}",
    "round": lambda x: round(float(x[0])),
    "out": lambda x: np.sin(x, out=zeros(2)),
    "ufunc.at": lambda x: np.add.at(zeros(2), [0], x[0]),
}


@pytest.mark.usefixtures("loops_are_traced")
@traced_ways
@pytest.mark.parametrize("function", LEAVING.values(), ids=LEAVING)
def test_numbers_do_not_leave_a_trace(way: Function, function: Function) -> None:
    error = expect(
        (errors.ConcretizationError, errors.InPlaceError, errors.DtypeError),
        lambda: way(function, PAIR),
        "what to do",
    )
    assert at_a_line_of(function, error)


def test_arrays_of_objects_are_no_results() -> None:
    def objects(x: Any) -> Any:
        return np.asarray(2 * x, dtype=object)

    error = expect(errors.DtypeError, lambda: gt.jit(objects)(PAIR), "np.stack")
    assert at_a_line_of(objects, error)
    np.testing.assert_array_equal(gt.jit(lambda x: np.stack(list(objects(x))))(PAIR), 2 * PAIR)
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(objects(x)))(PAIR), [2.0, 2.0])


@pytest.mark.usefixtures("loops_are_traced")
def test_a_write_into_an_ndarray_names_the_remedy() -> None:
    for function in (zeros_written, slice_written):
        expect(errors.ConcretizationError, lambda f=function: gt.jit(f)(PAIR), "like=x")


def test_numbers_leave_a_tape_when_asked() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        assert (
            float(x[0]) == 1.0 and int(x[1]) == 2 and math.exp(float(x[0])) == math.e and not math.isnan(x[0])
        )
        with pytest.warns(errors.GradtapeWarning, match="math.frexp converts a watched array"):
            assert math.frexp(x[0]) == (0.5, 1)
        assert x.tolist() == [1.0, 2.0] and x[1].item() == 2.0 and f"{x[1]:.1f}" == "2.0"
        with pytest.warns(errors.GradtapeWarning, match="like=x"):
            np.testing.assert_array_equal(zeros_written(x), [1.0, 0.0])


def test_only_one_number_is_a_number() -> None:
    x = gt.constant(PAIR)
    expect(TypeError, lambda: float(x))
    expect(TypeError, lambda: int(x))
    expect(ValueError, lambda: bool(x))
    expect(ValueError, lambda: bool(gt.constant(np.zeros(0))), "empty")


# The caller's arrays


def overwritten(x: Any) -> Any:
    x[0] = 7.0
    x *= 2
    view = x.reshape(-1)
    view[1:] = 0.0
    np.add(x, 1.0, out=x)
    x.sort()
    return x


@ways
def test_the_callers_array_is_never_changed(way: Function) -> None:
    x = PAIR.copy()
    for _ in range(3):
        way(overwritten, x)
        np.testing.assert_array_equal(x, PAIR)


@ways
def test_the_callers_array_is_never_changed_by_a_call_that_fails(way: Function) -> None:
    class Stop(Exception):
        pass

    def function(x: Any) -> Any:
        overwritten(x)
        raise Stop

    x = PAIR.copy()
    for _ in range(2):
        expect(Stop, lambda: way(function, x))
        np.testing.assert_array_equal(x, PAIR)


def test_results_belong_to_the_caller() -> None:
    constant = np.ones(2)
    f = gt.jit(lambda x: (x, x * 1.0, constant, np.ones(2)))
    for _ in range(3):
        x = PAIR.copy()
        for result in f(x):
            assert not np.shares_memory(result, x) and not np.shares_memory(result, constant)
            result[:] = 9.0
        np.testing.assert_array_equal(x, PAIR)
        np.testing.assert_array_equal(constant, [1.0, 1.0])


def test_a_failing_call_leaves_no_trace_behind() -> None:
    fails = True

    @gt.jit
    def f(x: Any) -> Any:
        if fails:
            raise KeyError("not now")
        return x * 2

    expect(KeyError, lambda: f(PAIR))
    fails = False
    np.testing.assert_array_equal(f(PAIR), 2 * PAIR)


def test_the_settings_are_checked() -> None:
    expect(AttributeError, lambda: setattr(gt.config, "jti", True), "Did you mean 'jit'?")
    expect(TypeError, lambda: setattr(gt.config, "jit", "yes"), "bool")
    expect(ValueError, lambda: setattr(gt.config, "trace_limit", 0), "at least 1")
