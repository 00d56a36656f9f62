"""What people really pass: wrong types and shapes, odd layouts, nothing at all; by every way in."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import (
    PAIR,
    Function,
    at_a_line_of,
    by_jit,
    by_tape,
    derivatives,
    expect,
    traced_ways,
    ways,
)

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
    dtype = np.asarray(x).dtype
    what = f"is an array of {dtype}" if np.ndim(x) else f"is a number of dtype {dtype}"
    remedy = "x.astype(float)" if np.ndim(x) else "convert it: float(x)"
    error = expect(errors.IntegerInputError, lambda: way(lambda x: x * 1.0, x), what, remedy)
    assert at_a_line_of(way, error)


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
        (lambda x: None, "returned None"),
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
        lambda x: np.dot(x, np.ones(3)),
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


# Functions that are not supported


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
def test_functions_that_make_objects_are_refused_in_a_trace(way: Function) -> None:
    def function(x: Any) -> Any:
        return np.frompyfunc(abs, 1, 1)(x)

    error = expect(errors.UnsupportedFunctionError, lambda: way(function, PAIR), "call that function")
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
        refused = errors.DtypeError if isinstance(given, bytearray) else errors.StaticArgumentError
        error = expect(refused, call, type(given).__name__)
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


# Leaves of nested arguments


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad, gt.jacobian, gt.hessian])
@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        ("tanh", "is a str, which is neither"),
        (np.arange(3), "is an array of int64"),
        (object(), "is an object"),
    ],
)
def test_the_leaf_that_is_wrong_is_named(transform: Function, leaf: Any, said: str) -> None:
    def loss(scale: float, params: dict[str, Any]) -> Any:
        return scale * np.sum(params["layers"][0] ** 2)

    given = {"bias": 1.0, "layers": [PAIR, PAIR, leaf]}
    part = f"params['layers'][2] {said}"
    expect(errors.GradtapeError, lambda: transform(loss, argnums=1)(2.0, given), part)
    expect(errors.GradtapeError, lambda: transform(loss, argnames="params")(2.0, params=given), part)


def test_primals_are_named_by_their_position() -> None:
    wrong = [1.0, "b"]
    calls: dict[str, Function] = {
        "jvp: primal 1['a'][1]": lambda: gt.jvp(lambda x, y: x, (1.0, {"a": wrong}), (1.0, {"a": wrong})),
        "vjp: primal 0[1]": lambda: gt.vjp(lambda x: x, wrong),
        "linear_transpose: primal 0[1]": lambda: gt.linear_transpose(lambda x: x[0], wrong),
        "grad: argument 1[1]": lambda: gt.grad(lambda *xs: xs[0], argnums=1)(1.0, wrong),
    }
    for leaf, call in calls.items():
        expect(errors.DtypeError, call, f"{leaf} is a str")
