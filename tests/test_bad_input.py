"""What people really pass: wrong types, odd layouts, nothing at all. Each through every way into gradtape that it can take."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors

Function = Callable[..., Any]
PAIR = np.array([1.0, 2.0])


def by_jit(function: Function, x: Any) -> Any:
    return gt.jit(function)(x)


def by_grad(function: Function, x: Any) -> Any:
    return gt.grad(lambda x: np.sum(function(x)))(x)


def by_value_and_grad(function: Function, x: Any) -> Any:
    return gt.value_and_grad(lambda x: np.sum(function(x)))(x)[1]


def by_vjp(function: Function, x: Any) -> Any:
    y, pullback = gt.vjp(function, x)
    return pullback(np.ones_like(y))[0]


def by_jvp(function: Function, x: Any) -> Any:
    return gt.jvp(function, (x,), (np.ones(np.shape(x)),))[1]


def by_tape(function: Function, x: Any) -> Any:
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        y = function(x)
    gradient = tape.gradient(y, x)
    return None if gradient is None else gradient.numpy()


ways = pytest.mark.parametrize("way", [by_jit, by_grad, by_value_and_grad, by_vjp, by_jvp, by_tape])
derivatives = pytest.mark.parametrize("way", [by_grad, by_value_and_grad, by_vjp, by_jvp])
reverse_ways = pytest.mark.parametrize("way", [by_grad, by_value_and_grad, by_vjp, by_tape])
traced_ways = pytest.mark.parametrize("way", [by_jit, by_grad, by_value_and_grad])


def expect(error: type[Exception], function: Callable[[], Any], *parts: str) -> Any:
    """Check that an error is raised and says these things; return it."""
    with pytest.raises(error) as caught:
        function()
    for part in parts:
        assert part in str(caught.value)
    return caught.value


def at_a_line_of(function: Callable[..., Any], error: Any) -> bool:
    """Return whether an error names a line of this function."""
    lines, first = inspect.getsourcelines(function)
    return error.where.filename == __file__ and first <= error.where.line < first + len(lines)


# No path


@derivatives
def test_no_path_is_zero_in_transforms(way: Function) -> None:
    np.testing.assert_array_equal(way(lambda x: np.floor(x) * 0 + 1, PAIR), [0.0, 0.0])
    np.testing.assert_array_equal(way(lambda x: gt.stop_gradient(x), PAIR), [0.0, 0.0])
    np.testing.assert_array_equal(way(lambda x: np.ones(2), PAIR), [0.0, 0.0])


def test_no_path_is_none_on_a_tape() -> None:
    def gradient(function: Function, **options: Any) -> Any:
        with gt.GradientTape() as tape:
            x = tape.watch(PAIR)
            y = function(x)
        return tape.gradient(y, {"x": x}, **options)["x"]

    cut = [
        lambda x: np.argmax(x),
        lambda x: gt.stop_gradient(x),
        lambda x: gt.constant(3.0),
        lambda x: x.astype(int),
    ]
    for function in cut:
        assert gradient(function) is None
        assert gradient(function, unconnected_gradients="none") is None
        zeros = gradient(function, unconnected_gradients="zero")
        np.testing.assert_array_equal(zeros.numpy(), [0.0, 0.0])
        error = expect(
            errors.UnconnectedError, lambda f=function: gradient(f, unconnected_gradients="raise"), "['x']"
        )
        assert at_a_line_of(gradient, error)
    np.testing.assert_array_equal(gradient(np.floor).numpy(), [0.0, 0.0])
    expect(errors.ArgumentError, lambda: gradient(np.sin, unconnected_gradients="zeros"), "'zeros'", '"zero"')


# Integers


@derivatives
@pytest.mark.parametrize(
    "x", [np.arange(3), np.array([True, False]), np.int64(3), np.array(3), True], ids=repr
)
def test_an_integer_has_no_derivative(way: Function, x: Any) -> None:
    error = expect(errors.IntegerInputError, lambda: way(lambda x: x * 1.0, x), "astype(float)")
    assert error.where.filename == __file__


@derivatives
def test_a_python_int_is_the_float_that_it_equals(way: Function) -> None:
    assert way(lambda x: x**2, 3) == 6.0
    assert way(lambda x: x**-1, 2) == -0.25


def test_integers_on_a_tape_have_no_gradient() -> None:
    for x in (np.arange(3), np.array([True]), np.int64(3), 3):
        with pytest.warns(errors.IntegerWatchWarning, match="astype"):
            assert by_tape(lambda x: x * 1.0, x) is None


def test_integers_are_fine_where_no_derivative_is_asked_for() -> None:
    assert gt.grad(lambda x, n: np.sum(x) * n)(PAIR, 3).tolist() == [3.0, 3.0]
    assert gt.grad(lambda x, k: np.sum(x[k]))(PAIR, np.array([1, 1])).tolist() == [0.0, 2.0]
    assert gt.jit(np.sum)(np.arange(4)) == 6


# Results that are not one number


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
@pytest.mark.parametrize(
    "function, part",
    [
        (lambda x: x, "shape (2,)"),
        (lambda x: x[:1], "shape (1,)"),
        (lambda x: np.argmax(x), "int64"),
        (lambda x: np.sum(x) > 0, "bool"),
        (lambda x: np.sum(x) * 1j, "complex128"),
        (lambda x: None, "NoneType"),
        (lambda x: "three", "str"),
        (lambda x: (np.sum(x), np.sum(x)), "tuple"),
        (lambda x: {"y": np.sum(x)}, "dict"),
        (lambda x: [np.sum(x)], "list"),
    ],
)
def test_a_gradient_is_of_one_real_number(transform: Function, function: Function, part: str) -> None:
    def call() -> Any:
        return transform(function)(PAIR)

    error = expect(errors.NonScalarOutputError, call, part, transform.__name__, "what to do")
    assert at_a_line_of(call, error)


# Shapes


@ways
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + np.ones(3),
        lambda x: np.maximum(np.ones((3, 3)), x),
        lambda x: x @ np.ones((3, 3)),
        lambda x: np.concatenate([x[None], np.ones((1, 3))]),
        lambda x: np.reshape(x, (3,)),
        lambda x: np.broadcast_to(x, (3,)),
        lambda x: np.einsum("i,i", x, np.ones(3)),
        lambda x: np.stack([x, np.ones(3)]),
        lambda x: np.where(np.ones(3) > 0, x, 0.0),
        lambda x: np.linalg.inv(x) if False else np.dot(x, np.ones(3)),
    ],
)
def test_shapes_that_do_not_fit(way: Function, function: Function) -> None:
    error = expect(errors.ShapeError, lambda: way(function, PAIR), "what to do")
    assert at_a_line_of(function, error)


@ways
def test_assigning_a_wrong_shape(way: Function) -> None:
    def function(x: Any) -> Any:
        x = x * 2
        x[:] = np.ones(3)
        return x

    error = expect(errors.ShapeError, lambda: way(function, PAIR))
    assert at_a_line_of(function, error)


@ways
def test_growing_in_place(way: Function) -> None:
    def function(x: Any) -> Any:
        x = x * 2
        x += np.ones((3, 2))
        return x

    error = expect(errors.ShapeError, lambda: way(function, PAIR), "x = x + y")
    assert at_a_line_of(function, error)


@ways
def test_numpys_own_errors_stay_numpys(way: Function) -> None:
    expect(IndexError, lambda: way(lambda x: x[5], PAIR), "5")
    expect(IndexError, lambda: way(lambda x: x[:, 0], PAIR))
    expect(np.exceptions.AxisError, lambda: way(lambda x: np.sum(x, axis=3), PAIR))
    expect(ValueError, lambda: way(lambda x: x if x > 0 else -x, PAIR), "ambiguous")
    expect(ValueError, lambda: way(lambda x: np.max(x[:0]), PAIR))
    expect(TypeError, lambda: way(lambda x: np.sum(x, axes=0), PAIR))
    expect(AttributeError, lambda: way(lambda x: x.summe(), PAIR), "summe")
    expect(TypeError, lambda: way(lambda x: len(x[0]), PAIR))


# Functions that are not followed


@ways
@pytest.mark.parametrize(
    "function, name",
    [
        (lambda x: np.isnat(x), "numpy.isnat"),
        (lambda x: np.strings.upper(x), "numpy.strings.upper"),
        (lambda x: np.frompyfunc(abs, 1, 1)(x), "abs"),
    ],
)
def test_functions_that_are_not_followed(way: Function, function: Function, name: str) -> None:
    error = expect(errors.UnsupportedFunctionError, lambda: way(function, PAIR), name, "why", "what to do")
    assert at_a_line_of(function, error)


@traced_ways
def test_a_mask_is_refused_in_a_trace(way: Function) -> None:
    def function(x: Any) -> Any:
        return x[x > 1]

    error = expect(errors.UnsupportedFunctionError, lambda: way(function, PAIR), "np.where")
    assert at_a_line_of(function, error)


def test_a_mask_is_followed_on_a_tape() -> None:
    np.testing.assert_array_equal(by_tape(lambda x: x[x > 1] ** 2, PAIR), [0.0, 4.0])


# Static arguments


@pytest.mark.parametrize(
    "given", [{1, 2}, bytearray(b"a"), slice(1, 2), functools.partial(dict, a=1)], ids=repr
)
def test_static_arguments_must_be_hashable(given: Any) -> None:
    def call() -> Any:
        return gt.jit(lambda x, y: x)(PAIR, given)

    try:
        hash(given)
    except TypeError:
        error = expect(errors.StaticArgumentError, call, type(given).__name__)
        assert at_a_line_of(call, error)
    else:
        np.testing.assert_array_equal(call(), PAIR)


def test_named_static_arguments_must_be_hashable() -> None:
    f = gt.jit(lambda x, y=None: x, static_argnums=1, static_argnames="y")
    expect(errors.StaticArgumentError, lambda: f(PAIR, [1]), "list")
    expect(errors.StaticArgumentError, lambda: f(PAIR, y=PAIR), "ndarray")
    np.testing.assert_array_equal(f(PAIR, (1,)), PAIR)


# Arguments that change their type


def test_arguments_that_change_their_type_between_calls() -> None:
    def plain(x: Any) -> Any:
        return x * 2 if x is not None else 0

    f = gt.jit(plain)
    calls = [
        1,
        1.0,
        True,
        None,
        1j,
        np.float32(1),
        np.int8(3),
        np.ones(2),
        np.ones((1, 2)),
        np.arange(2),
        np.ones(2, "f4"),
    ]
    for x in [*calls, *reversed(calls)]:
        result, expected = f(x), plain(x)
        np.testing.assert_array_equal(result, expected)
        assert np.asarray(result).dtype == np.asarray(expected).dtype
    expect(TypeError, lambda: f({"a": 1}))
    np.testing.assert_array_equal(f(PAIR), plain(PAIR))


def test_gradients_of_arguments_that_change_their_type_between_calls() -> None:
    g = gt.grad(lambda x: np.sum(x) * 2)
    for _ in range(2):
        assert g(1.0) == 2.0
        assert g(3) == 2.0
        np.testing.assert_array_equal(g(PAIR), [2.0, 2.0])
        assert g(PAIR.astype("f4")).dtype == np.float32
        expect(errors.IntegerInputError, lambda: g(np.arange(2)))


# Numbers that are none


@ways
def test_nan_and_infinity_are_numpys(way: Function) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = way(lambda x: x * np.abs(x), x)
    with np.errstate(all="ignore"):
        expected = x * np.abs(x) if way is by_jit else 2 * np.abs(x)
    np.testing.assert_array_equal(result, expected)


def test_values_that_are_no_numbers_are_numpys() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0])
    for function in (
        np.sqrt,
        np.log,
        lambda x: 1 / x,
        lambda x: x / x,
        np.max,
        np.sort,
        np.sum,
        np.mean,
        np.floor,
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(gt.jit(function)(x), function(x))


# Layouts

X = np.arange(1.0, 7.0).reshape(2, 3)


def read_only(x: np.ndarray) -> np.ndarray:
    frozen = x.copy()
    frozen.flags.writeable = False
    return frozen


def unaligned(x: np.ndarray) -> np.ndarray:
    moved = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype)
    return moved.reshape(x.shape)


LAYOUTS = {
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": X[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": X.T.copy().T,
    "broadcast": np.broadcast_to(X[0], (2, 3)),
    "byte-swapped": X.astype(X.dtype.newbyteorder()),
    "read-only": read_only(X),
    "unaligned": unaligned(X),
    "field of a record": np.rec.fromarrays([X, X], names="a,b").view(np.ndarray)["a"],
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@layouts
@ways
def test_any_layout_is_taken(way: Function, layout: str) -> None:
    x = LAYOUTS[layout]
    before = x.copy()
    expected = x**2 if way is by_jit else 2 * x
    np.testing.assert_allclose(way(lambda x: x**2, x), expected, rtol=1e-14)
    np.testing.assert_array_equal(x, before)


@layouts
def test_any_layout_is_taken_by_a_compiled_function(layout: str) -> None:
    f = gt.value_and_grad(lambda x: np.sum(x**2))
    for _ in range(2):
        for x in (X, LAYOUTS[layout], X):
            value, gradient = f(x)
            assert value == np.sum(x**2)
            np.testing.assert_array_equal(gradient, 2 * x)


@layouts
def test_any_layout_is_captured(layout: str) -> None:
    captured = LAYOUTS[layout]
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(x * captured))(X), captured)


@layouts
def test_any_layout_is_a_cotangent(layout: str) -> None:
    _, pullback = gt.vjp(lambda x: 2 * x, X)
    np.testing.assert_array_equal(pullback(LAYOUTS[layout])[0], 2 * LAYOUTS[layout])


@ways
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_arrays(way: Function, shape: tuple[int, ...]) -> None:
    result = way(lambda x: np.sin(x) * 2, np.zeros(shape))
    assert result.shape == shape and result.dtype == np.float64


def test_reductions_of_empty_arrays_are_numpys() -> None:
    x = np.zeros((0, 3))
    for _ in range(2):
        assert gt.jit(np.sum)(x) == 0.0
        np.testing.assert_array_equal(gt.jit(lambda x: np.prod(x, axis=0))(x), np.ones(3))
        np.testing.assert_array_equal(gt.jit(lambda x: x.T @ x)(x), np.zeros((3, 3)))
        assert gt.jit(lambda x: np.max(x, axis=1))(x).shape == (0,)
        assert np.isnan(gt.jit(lambda x: np.sum(x) / x.size)(x))
        expect(ValueError, lambda: gt.jit(lambda x: np.max(x, axis=0))(x), "zero-size")
    assert gt.grad(np.sum)(x).shape == (0, 3)


@ways
def test_rank_0(way: Function) -> None:
    for x in (np.array(3.0), np.float64(3.0), 3.0, np.array(3.0, ">f8")):
        result = way(lambda x: x**2, x)
        assert result == (9.0 if way is by_jit else 6.0)
        assert np.shape(result) == ()
        assert np.asarray(result).dtype == np.float64


def test_results_of_rank_0_are_numpys_scalars() -> None:
    f = gt.jit(lambda x: x * 2)
    for _ in range(3):
        assert type(f(np.array(3.0))) is np.float64
        assert type(f(3.0)) is np.float64
        assert type(f(np.float32(3.0))) is np.float32


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
    assert error.where.filename == __file__


@ways
@pytest.mark.parametrize("make", [SUBCLASSES["matrix"], SUBCLASSES["masked"]], ids=["matrix", "masked"])
def test_subclasses_are_refused_as_operands(way: Function, make: Callable[[], Any]) -> None:
    other = make()
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
    assert error.where.filename == __file__


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
    assert error.where.filename == __file__


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
    y = np.zeros(2)
    y[0] = x[0]
    return y


def slice_written(x: Any) -> Any:
    y = np.zeros(4)
    y[:2] = x
    return y


LEAVING = {
    "float": lambda x: float(x[0]),
    "complex": lambda x: complex(x[0]),
    "math.sin": lambda x: math.sin(x[0]),
    "np.asarray": lambda x: np.asarray(x, dtype=object),
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "an element of an ndarray": zeros_written,
    "a slice of an ndarray": slice_written,
    "format": lambda x: f"{float(x[0]):.3f}",
    "round": lambda x: round(float(x[0])),
    "out": lambda x: np.sin(x, out=np.zeros(2)),
    "ufunc.at": lambda x: np.add.at(np.zeros(2), [0], x[0]),
    "random": lambda x: np.random.default_rng(0).normal(x),
    "fromiter": lambda x: np.fromiter((v for v in x), float),
}


@traced_ways
@pytest.mark.parametrize("function", LEAVING.values(), ids=LEAVING)
def test_numbers_do_not_leave_a_trace(way: Function, function: Function) -> None:
    error = expect(
        (errors.ConcretizationError, errors.InPlaceError, errors.DtypeError),
        lambda: way(function, PAIR),
        "what to do",
    )
    assert at_a_line_of(function, error)


def test_a_write_into_an_ndarray_names_the_remedy() -> None:
    for function in (zeros_written, slice_written):
        expect(errors.ConcretizationError, lambda f=function: gt.jit(f)(PAIR), "like=x")


def test_numbers_leave_a_tape_when_asked() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        assert (
            float(x[0]) == 1.0 and int(x[1]) == 2 and math.exp(float(x[0])) == math.e and not math.isnan(x[0])
        )
        with pytest.warns(errors.GradtapeWarning, match="math.exp takes the number"):
            assert math.exp(x[0]) == math.e
        assert x.tolist() == [1.0, 2.0] and x[1].item() == 2.0 and f"{x[1]:.1f}" == "2.0"
        with pytest.warns(errors.GradtapeWarning, match="like=x"):
            np.testing.assert_array_equal(zeros_written(x), [1.0, 0.0])


def test_only_one_number_is_a_number() -> None:
    x = gt.constant(PAIR)
    expect(TypeError, lambda: float(x))
    expect(TypeError, lambda: int(x))
    expect(ValueError, lambda: bool(x))
    expect(ValueError, lambda: bool(gt.constant(np.zeros(0))), "empty")


# Arguments of the transforms


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
def test_argnums(transform: Function) -> None:
    def f(x: Any, y: Any) -> Any:
        return np.sum(x) * np.sum(y)

    def call(argnums: Any) -> Any:
        return transform(f, argnums=argnums)(PAIR, PAIR)

    for argnums in (2, -3, (0, 2)):
        error = expect(errors.ArgumentError, lambda a=argnums: call(a), "argnums", "2 positional")
        assert at_a_line_of(call, error)
    for argnums in ("x", 1.0, (0, "y"), None, True):
        expect(errors.DtypeError, lambda a=argnums: call(a), "argnums", "int")
    expect(errors.ArgumentError, lambda: call((0, 0)), "argnums", "twice")
    expect(errors.ArgumentError, lambda: call((0, -2)), "argnums", "twice")
    gradient = call(-1)
    np.testing.assert_array_equal(gradient if transform is gt.grad else gradient[1], [3.0, 3.0])


def test_an_argument_that_is_passed_by_keyword_has_no_position() -> None:
    expect(errors.ArgumentError, lambda: gt.grad(lambda x: x)(x=1.0), "by position")


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
@pytest.mark.parametrize("result", [1.0, None, (1.0,), (1.0, 2.0, 3.0), [1.0, 2.0]], ids=repr)
def test_has_aux_needs_a_pair(transform: Function, result: Any) -> None:
    def call() -> Any:
        return transform(lambda x: result, has_aux=True)(PAIR)

    error = expect(errors.StructureError, call, "has_aux", "pair")
    assert at_a_line_of(call, error)


def test_a_pair_needs_has_aux() -> None:
    expect(errors.NonScalarOutputError, lambda: gt.grad(lambda x: (np.sum(x), x))(PAIR), "has_aux=True")


def test_cotangents_must_match() -> None:
    y, pullback = gt.vjp(lambda x: {"a": x, "b": np.sum(x)}, PAIR)

    def pull(cotangent: Any) -> Any:
        return pullback(cotangent)

    for wrong in ({"a": PAIR}, {"a": PAIR, "b": 1.0, "c": 1.0}, [PAIR, 1.0], PAIR, 1.0, None):
        error = expect(errors.StructureError, lambda w=wrong: pull(w), "cotangent")
        assert at_a_line_of(pull, error)
    error = expect(errors.ShapeError, lambda: pull({"a": np.ones(3), "b": 1.0}), "(3,)", "(2,)")
    assert at_a_line_of(pull, error)
    error = expect(errors.DtypeError, lambda: pull({"a": PAIR * 1j, "b": 1.0}), "complex128")
    assert at_a_line_of(pull, error)
    expect(errors.DtypeError, lambda: pull({"a": "b", "b": 1.0}), "str")
    expect(errors.ArraySubclassError, lambda: pull({"a": np.ma.array(PAIR), "b": 1.0}), "Masked")
    np.testing.assert_array_equal(pull(y)[0], PAIR + 3.0)


def test_tangents_must_match() -> None:
    def push(primals: Any, tangents: Any) -> Any:
        return gt.jvp(lambda x, y: x * y, primals, tangents)

    for primals, tangents in (
        ((PAIR, PAIR), (PAIR,)),
        (({"a": PAIR}, PAIR), ({"b": PAIR}, PAIR)),
        ((PAIR, PAIR), PAIR),
        (PAIR, (PAIR,)),
        ((PAIR, PAIR), None),
    ):
        error = expect(errors.StructureError, lambda p=primals, t=tangents: push(p, t), "what to do")
        assert at_a_line_of(push, error)
    error = expect(errors.ShapeError, lambda: push((PAIR, PAIR), (PAIR, np.ones(3))), "(3,)", "(2,)")
    assert at_a_line_of(push, error)
    expect(errors.DtypeError, lambda: push((PAIR, PAIR), (PAIR, PAIR * 1j)), "complex128")
    expect(errors.DtypeError, lambda: push((PAIR, PAIR), (PAIR, {"a": PAIR})), "dict")
    np.testing.assert_array_equal(push([PAIR, PAIR], [PAIR, np.array([0, 0])])[1], PAIR**2)


def test_seeds_of_a_tape_must_match() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(PAIR)
        y = x * 2
    expect(errors.ShapeError, lambda: tape.gradient(y, x, output_gradients=np.ones(3)), "(3,)")
    expect(
        errors.ShapeError,
        lambda: tape.gradient([y, y], x, output_gradients=[PAIR]),
        "1 entries for 2 targets",
    )
    expect(errors.DtypeError, lambda: tape.gradient(y, x, output_gradients=PAIR * 1j), "complex128")
    np.testing.assert_array_equal(tape.gradient(y, x, output_gradients=PAIR), 2 * PAIR)


def test_arguments_of_check_grads() -> None:
    expect(errors.ArgumentError, lambda: gt.check_grads(np.sin, PAIR), "tuple")
    expect(errors.ArgumentError, lambda: gt.check_grads(np.sin, (PAIR,), modes=("reverse",)), "'reverse'")
    gt.check_grads(np.sin, (PAIR,), modes="rev")
    expect(errors.ArgumentError, lambda: gt.check_grads(np.sin, (PAIR,), order=0), "order")
    expect(errors.IntegerInputError, lambda: gt.check_grads(np.sin, (np.arange(3),)))


def test_arguments_of_jit() -> None:
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnums="x"), "static_argnums")
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnums=1.0), "static_argnums")
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnames=3), "static_argnames")
    expect(TypeError, lambda: gt.jit(lambda x: x)(), "missing")
    expect(TypeError, lambda: gt.jit(lambda x: x)(1.0, 2.0), "positional")
    expect(TypeError, lambda: gt.jit(lambda x: x)(1.0, z=2.0), "z")


def test_inspecting_what_was_not_compiled() -> None:
    for look in (gt.inspect.graph, gt.inspect.loops, gt.inspect.llvm, gt.inspect.asm, gt.inspect.explain):
        expect(errors.ArgumentError, lambda look=look: look(np.sin), "gt.jit")
    for look in (gt.inspect.graph, gt.inspect.loops, gt.inspect.llvm, gt.inspect.asm):
        expect(errors.ArgumentError, lambda look=look: look(gt.jit(lambda x: x * 2)), "has not been called")


# Out of order


@pytest.mark.parametrize("use", [repr, float, np.sum, lambda x: x + 1, lambda x: x[0], lambda x: x.numpy()])
def test_leaked_arrays(use: Function) -> None:
    kept: list[Any] = []
    gt.jit(lambda x: kept.append(x * 2) or x)(np.array(3.0) if use is float else PAIR)

    def late() -> Any:
        return repr(use(kept[0]))

    error = expect(errors.LeakedValueError, late, "return it")
    assert error.where.filename == __file__


def test_leaked_arrays_in_another_trace() -> None:
    kept: list[Any] = []
    gt.jit(lambda x: kept.append(x) or x)(PAIR)
    expect(errors.LeakedValueError, lambda: gt.jit(lambda x: x + kept[0])(PAIR), "return it")


def test_a_one_shot_tape_gives_one_gradient() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x)
    tape.gradient(y, x)

    def again() -> Any:
        return tape.gradient(y, x)

    error = expect(errors.TapeError, again, "persistent=True")
    assert at_a_line_of(again, error)
    expect(errors.TapeError, lambda: tape.watch(x), "used")


def test_a_tape_that_was_never_entered() -> None:
    tape = gt.GradientTape()
    expect(errors.TapeError, lambda: tape.watch(PAIR), "with gt.GradientTape() as tape")
    expect(errors.TapeError, lambda: tape.gradient(gt.constant(1.0), gt.constant(1.0)), "never entered")
    expect(errors.DtypeError, lambda: gt.GradientTape(persistent="yes"), "persistent", "str")
    with tape:
        expect(ValueError, tape.__enter__, "recording already")


def test_a_refused_call_leaves_the_tape_as_it_was() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x**2)
    expect(errors.ShapeError, lambda: tape.gradient(y, x, output_gradients=np.ones(2)))
    expect(errors.ArgumentError, lambda: tape.gradient(y, PAIR))
    expect(errors.ArgumentError, lambda: tape.gradient(y, x, unconnected_gradients="bad"))
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, 4.0])


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
