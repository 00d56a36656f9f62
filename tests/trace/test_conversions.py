"""Lists of traced numbers, and calls that would convert traced arrays, in all that NumPy and `math` have."""

from __future__ import annotations

import cmath
import copy
import functools
import inspect
import math
import pickle
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import special

import gradtape as gt
import gradtape.autograd
from gradtape.kinds.registry import TRIALS, WRITERS
from tests.support.differences import gradient_by_differences
from tests.support.numpy_calls import Call, theirs, title

X = np.array([0.6, 1.7, 2.3, 0.9])
Function = Callable[..., Any]


def is_replaced(argument: Any) -> bool:
    return (
        isinstance(argument, np.ndarray)
        and argument.dtype == float
        and argument.ndim > 0
        and argument.size > 0
    )


def with_lists(argument: Any, elements: Any) -> Any:
    """Return an argument with nested lists of the next elements in place of arrays."""
    if is_replaced(argument):
        items = [next(elements) for _ in range(argument.size)]
        for extent in argument.shape[:0:-1]:
            items = [items[k : k + extent] for k in range(0, len(items), extent)]
        return items
    return [with_lists(item, elements) for item in argument] if isinstance(argument, list) else argument


def numbers_of(argument: Any) -> list[float]:
    if isinstance(argument, list):
        return [number for item in argument for number in numbers_of(item)]
    return argument.ravel().tolist() if is_replaced(argument) else []


def flatten(result: Any) -> list[Any]:
    return (
        [leaf for item in result for leaf in flatten(item)] if isinstance(result, tuple | list) else [result]
    )


def outcome(function: Function, *args: Any, **kwargs: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return error


@pytest.mark.filterwarnings("error::gradtape.errors.GradtapeWarning")
@pytest.mark.parametrize("key", [key for key in TRIALS if key not in WRITERS], ids=title)
def test_nested_lists_wherever_numpy_takes_an_array(key: Any) -> None:
    for sample in TRIALS[key].samples[:2]:
        call = Call(sample)
        numbers = np.array(numbers_of(call.args))
        plain = with_lists(call.args, iter(numbers.tolist()))
        expected = outcome(theirs(key), *plain, **call.kwargs)
        if not numbers.size or isinstance(expected, Exception):
            continue
        with gt.GradientTape() as tape:
            x = tape.watch(numbers)
            found = theirs(key)(*with_lists(call.args, iter(x)), **call.kwargs)
        for got, wanted in zip(flatten(found), flatten(expected), strict=True):
            if np.asarray(wanted).dtype.kind == "f":
                assert isinstance(got, gt.Array), "it is not supported"
            if isinstance(got, gt.Array):
                assert (got.shape, got.dtype) == (np.shape(wanted), np.asarray(wanted).dtype)
                np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-8, atol=1e-8)


def recursive_fft(x: Any) -> Any:
    if len(x) == 1:
        return [x[0] + 0j]
    even, odd = recursive_fft(x[::2]), recursive_fft(x[1::2])
    n = len(x)
    turned = [cmath.exp(-2j * math.pi * k / n) * odd[k] for k in range(n // 2)]
    return [even[k] + turned[k] for k in range(n // 2)] + [even[k] - turned[k] for k in range(n // 2)]


def rotation(angle: Any) -> Any:
    return [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]


def haversine(p: Any) -> Any:
    lat1, lon1, lat2, lon2 = map(math.radians, p)
    a = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371 * math.asin(math.sqrt(a))


def newton_system(x: Any) -> Any:
    a, b = x[0], x[1]
    for _ in range(3):
        residual = [a * a + b - 3.0, a - b * b + 1.0]
        step = np.linalg.solve([[2 * a, 1.0], [1.0, -2 * b]], residual)
        a, b = a - step[0], b - step[1]
    return a * x[2] + b * x[3]


PROGRAMS: dict[str, Function] = {
    "reductions": lambda x: (
        np.sum([x[0], x[1]]) + np.max([x[2], x[3]]) * np.mean((x[0], 2.0, x[3])) + np.std([*x])
    ),
    "ufuncs": lambda x: np.sum(np.exp([x[0], x[1]]) * [x[2], 1.0] + np.arctan2([x[0]], (x[1], x[2]))),
    "operators of ndarrays": lambda x: np.sum((X + [x[0], 1.0, x[2], x[3]]) / list(x) - [*x[::-1]] * X),
    "matrix products": lambda x: np.eye(2) @ [x[0], x[1]] @ [x[2], x[3]] + np.dot([x[0], x[1]], [x[2], 3.0]),
    "methods of ndarrays": lambda x: (
        X.dot([*x]) + X.clip([x[3], x[0], x[0], 0.0]).sum() + X.take([1, 2]).dot([x[0], x[1]])
    ),
    "matrices": lambda x: (
        np.linalg.det([[x[0], x[1]], [x[2], x[3]]]) + np.trace(np.linalg.inv([x[:2], x[2:]]))
    ),
    "joins": lambda x: (
        np.sum(np.concatenate([[x[0], x[1]], x, [3.0]]) ** 2) + np.sum(np.hstack([x, [x[0]]]) ** 3)
    ),
    "interpolation": lambda x: np.interp(1.3, [0.0, x[0], 2.0 + x[1]], [x[2], x[3], 1.0]),
    "contractions": lambda x: (
        np.einsum("i,ij->", [x[0], x[1]], [[x[2], 1.0], [x[3], x[0]]]) + np.sum(np.kron([x[0], x[1]], x))
    ),
    "sums of ufuncs": lambda x: (
        np.add.reduce([*x]) * np.multiply.reduce((x[0], x[1]))
        + np.sum(np.subtract.outer([*x[:2]], [*x[2:]]) ** 2)
    ),
    "differences": lambda x: (
        np.sum(np.diff([*x]) ** 2)
        + np.cumsum([*x])[2]
        + np.sum(np.diag([x[0], x[1]]) @ np.diag([[x[2], 1.0], [2.0, x[3]]]))
    ),
    "math": lambda x: (
        math.sin(x[0]) * math.log(x[1], 3)
        + math.hypot(x[0], x[2], x[3]) ** 2
        + math.atan2(x[1], x[2])
        + math.pow(x[3], 1.5)
    ),
    "more math": lambda x: (
        math.erf(x[0])
        + math.gamma(x[1]) * math.lgamma(x[2])
        + math.fsum([x[0], x[3]])
        + math.dist(x[:2], [x[2], 1.0])
        + math.erfc(x[3])
        + math.remainder(x[2], 1.0) * math.fmod(x[1], 1.0)
    ),
    "scalar types": lambda x: np.float64(x[0]) * float(2) + np.float64(x[1:3])[1] ** np.float64(x[3]),
    "sums of lists": lambda x: sum([math.exp(-abs(a - b)) for a in x for b in x]) * math.prod([x[0], x[1]]),
    "a special function": lambda x: np.sum(special.expit([x[0], x[1]])) + special.erf([x[2]])[0],
    "recursive FFT": lambda x: np.sum(np.abs(recursive_fft(x)) ** 3),
    "rotation": lambda x: np.sum(np.array(rotation(x[0])) @ rotation(x[1]) @ [x[2], x[3]]),
    "haversine": haversine,
    "Newton's method": newton_system,
}


@pytest.mark.filterwarnings("error::gradtape.errors.GradtapeWarning")
@pytest.mark.parametrize("function", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(function: Function) -> None:
    expected, slope = function(X), gradient_by_differences(function, X)
    np.testing.assert_allclose(gt.jit(function)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(gt.grad(function)(X), slope, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gt.vmap(function)(np.stack([X, X])), [expected, expected], rtol=1e-12)
    for _ in range(3):  # a record that is known is made by another way
        with gt.GradientTape() as tape:
            x = tape.watch(X)
            y = function(x)
        assert isinstance(y, gt.Array)
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope, rtol=1e-5, atol=1e-5)


def test_types_are_those_of_numpy_scalars() -> None:
    @gt.jit
    def cast(x: Any) -> Any:
        return np.float32(x[0]), np.int64(x[1]), np.complex128(x[0]), np.float64(x), np.bool_(x[0] - x[0])

    found = cast(X)
    wanted = np.float32(X[0]), np.int64(X[1]), np.complex128(X[0]), X, np.bool_(False)
    for got, expected in zip(found, wanted, strict=True):
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(got, expected)


def test_predicates_of_math_look() -> None:
    @gt.jit
    def chosen(x: Any) -> Any:
        return x * 2 if math.isfinite(x) and not math.isclose(x, 1.0, rel_tol=1e-3) else x * 0

    assert [float(chosen(v)) for v in (3.0, 1.0001, 5.0)] == [6.0, 0.0, 10.0]
    assert math.isnan(gt.jit(lambda x: x if math.isnan(x) else x + 1)(math.nan))


def test_what_nobody_follows_is_left_to_numpy() -> None:
    plain = gt.constant(X)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        assert type(np.sum([plain[0], plain[1]])) is np.float64
        assert type(math.sin(plain[0])) is float
        assert type(np.float64(plain[0])) is np.float64
        assert type(np.exp([1.0, 2.0])) is np.ndarray
        with pytest.raises(TypeError):
            math.sin(x)
        with pytest.raises(TypeError):
            math.sin()
        with pytest.raises(TypeError):
            np.sum([x[0]], no_such_argument=1)


def test_arrays_made_in_a_compiled_function_have_numpys_type() -> None:
    def squares_if_arrays(x: Any) -> Any:
        made = np.zeros(4)
        return np.sum(x * x + made) if type(made) is np.ndarray and type(x) is np.ndarray else np.sum(x)

    np.testing.assert_array_equal(gt.grad(squares_if_arrays)(X), 2 * X)
    assert gt.jit(squares_if_arrays)(X) == np.sum(X * X)


def doubled_if_array(x: Any) -> Any:
    return 2.0 * x if type(x) is np.ndarray else 3.0 * x


def calls_a_function_that_asks(x: Any) -> Any:
    return doubled_if_array(x)


class Asks:
    def ask(self, x: Any) -> Any:
        return doubled_if_array(x)


ASKING = {
    "itself": doubled_if_array,
    "by a helper": calls_a_function_that_asks,
    "a method": Asks().ask,
    "a partial": partial(lambda unused, x: doubled_if_array(x), 0.0),
    "a closure": (lambda helper: lambda x: helper(x))(doubled_if_array),
}

OUTSIDE_OF_COMPILED_FUNCTIONS = {
    "scan": lambda f, x: gt.scan(lambda c, _: (f(c), None), x, np.zeros(1))[0],
    "map": lambda f, x: gt.map(f, np.stack([x, x]))[1],
    "cond": lambda f, x: gt.cond(np.True_, f, lambda x: x, x),
    "switch": lambda f, x: gt.switch(0, [f, f], x),
    "fori_loop": lambda f, x: gt.fori_loop(0, 1, lambda i, c: f(c), x),
    "while_loop": lambda f, x: gt.while_loop(lambda k, c: k < 1, lambda k, c: (k + 1, f(c)), (0, x))[1],
    "checkpoint": lambda f, x: gt.checkpoint(f)(x),
    "vmap": lambda f, x: gt.vmap(f)(np.stack([x, x]))[1],
    "vjp": lambda f, x: gt.vjp(f, x)[0],
    "jvp": lambda f, x: gt.jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("way", OUTSIDE_OF_COMPILED_FUNCTIONS)
@pytest.mark.parametrize("function", ASKING)
def test_functions_that_are_recorded_have_numpys_types(function: str, way: str) -> None:
    x = np.array([1.0, 2.0])
    run = OUTSIDE_OF_COMPILED_FUNCTIONS[way]
    np.testing.assert_array_equal(run(ASKING[function], x), 2.0 * x)
    with gt.GradientTape() as tape:
        y = run(ASKING[function], tape.watch(x))
    np.testing.assert_array_equal(np.asarray(y), 2.0 * x)


def test_objects_stay_what_they_are() -> None:
    functions = [math.sin, math.log, math.hypot, math.fsum, np.exp, np.sum, np.add.reduce, np.float64]
    before = [(hash(function), repr(function)) for function in functions]
    with gt.GradientTape() as tape:
        x = tape.watch(1.0)
        tape.gradient(math.sin(x), x)
        during = [(hash(function), repr(function)) for function in functions[:6]]
    assert during == before[:6] and np.float64 in {np.float64: 1}
    assert pickle.loads(pickle.dumps(math.sin)) is math.sin and copy.copy(np.exp) is np.exp
    assert str(inspect.signature(math.sin)) == "(x, /)" and "axis" in inspect.signature(np.sum).parameters
    for number in (0.5, np.float32(0.5), 2):
        assert (
            math.sin.__call__(number)
            == functools.partial(math.sin, number)()
            == next(map(math.sin, [number]))
        )
        assert math.log(*[number]) == math.log.__call__(number)
    assert type(type("Own", (np.float64,), {})(2.0)).__name__ == "Own"
    assert isinstance(np.float64(3), np.float64) and np.float64([1]).shape == (1,)


def test_threads_that_record_nothing_compute_with_numbers() -> None:
    found: list[Any] = []
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        thread = threading.Thread(
            target=lambda: found.append((np.sum([1.0, 2.0]), math.sin(0.5), np.float64(2)))
        )
        thread.start()
        thread.join()
        y = np.sum([x[0], x[1]])
    assert found == [(3.0, math.sin(0.5), 2.0)] and [type(item) for item in found[0]] == [
        np.float64,
        float,
        np.float64,
    ]
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [1.0, 1.0, 0.0, 0.0])


def relu(t: Any, slope: Any) -> Any:
    return t if t > 1 else slope * math.sin(t)


CLASSES: dict[str, Function] = {
    "r_": lambda x: np.r_[x, 1.0, x[:2], 0:2, [x[0], 2.0]],
    "c_": lambda x: np.c_[x, np.ones(4), x**2],
    "r_ of rows": lambda x: np.r_["0,2", x, [x[0], 1.0, x[1], 2.0]],
    "r_ of columns": lambda x: np.r_["1,2,0", x, x * 2],
    "vectorize": lambda x: np.vectorize(relu)(x, 2.0),
    "vectorize of several": lambda x: np.multiply(
        *np.vectorize(lambda a, b: (a * b, a - b))(x[:, None], [x[0], 1.0])
    ),
    "vectorize of rows": lambda x: np.vectorize(lambda a: np.sum(a**2), signature="(n)->()")(x.reshape(2, 2)),
}


@pytest.mark.filterwarnings("error::gradtape.errors.GradtapeWarning")
@pytest.mark.parametrize("function", CLASSES.values(), ids=CLASSES)
def test_classes_that_are_written_in_python(function: Function) -> None:
    expected, found = function(X), gt.jit(function)(X)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-12)

    def weighed(x: Any) -> Any:
        return np.sum(np.sin(function(x)) * np.arange(1.0, expected.size + 1).reshape(expected.shape))

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = weighed(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), gradient_by_differences(weighed, X), atol=1e-5)
    assert np.r_[1:3, 4].tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.array(x.flat) ** 2,
        lambda x: np.asarray(x.T.flat) * np.arange(6.0),
        lambda x: np.concatenate([x.flat, 2.0 * x.ravel()]),
        lambda x: np.array([x.flat, x.flat]) * np.arange(6.0),
        lambda x: np.where(np.array(x.flat) > 2.0, np.array(x.flat), 0.0),
    ],
)
def test_iterators_over_elements_are_converted_as_their_arrays(function):
    x = np.arange(6.0).reshape(2, 3) + 0.5
    weights = np.cos(np.arange(function(x).size)).reshape(function(x).shape)
    slopes = [
        np.sum(weights * (function(x + e) - function(x - e))) / 2e-6
        for e in 1e-6 * np.eye(6).reshape(6, 2, 3)
    ]
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        total = np.sum(weights * function(watched))
    np.testing.assert_allclose(tape.gradient(total, watched).reshape(-1), slopes, rtol=1e-6)
    np.testing.assert_allclose(
        gt.grad(lambda x: np.sum(weights * function(x)))(x).reshape(-1), slopes, rtol=1e-6
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x * math.sqrt(w),
        lambda x, w: x / math.gamma(w),
        lambda x, w: x * math.log(w, 3) + math.fabs(w),
        lambda x, w: x * math.hypot(w, 1.0, w),
        lambda x, w: x * cmath.exp(1j * w),
        lambda x, w: x * cmath.polar(w)[0],
        lambda x, w: math.sqrt(w),
    ],
)
@pytest.mark.parametrize("w", [2.0, np.float64(2.0), np.float32(2.0)], ids=lambda w: type(w).__name__)
def test_functions_of_math_return_numbers_of_python(function, w):
    """Which take the dtype of the arrays that they meet."""
    x = np.array([1.0, 2.0], np.float32)
    wanted, found = function(x, w), gt.jit(function)(x, w)
    with gt.GradientTape():
        taped = function(gt.Variable(x), gt.Variable(w)).numpy()
    for one in (found, taped):
        assert np.asarray(one).dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


def test_numpys_code_may_multiply_its_own_arrays_in_place_by_traced_ones() -> None:
    x, y, weights = np.linspace(0.0, 1.0, 6), np.sin(np.arange(6.0)), np.linspace(1.0, 2.0, 6)
    with gt.GradientTape() as tape:
        w = tape.watch(weights)
        fitted = np.sum(np.polyfit(x, y, 2, w=w) ** 2)
    slopes = tape.gradient(fitted, w)

    def of_weights(w: Any) -> Any:
        return np.sum(np.polyfit(list(x), y, 2, w=w) ** 2)

    np.testing.assert_allclose(slopes, gradient_by_differences(of_weights, weights), rtol=1e-6)
    np.testing.assert_allclose(gt.grad(of_weights)(weights), slopes, rtol=1e-9)
    np.testing.assert_allclose(gt.jit(gt.grad(of_weights))(weights), slopes, rtol=1e-9)


def on_a_tape(function: Function, x: Any) -> Any:
    with gt.GradientTape() as tape:
        watched = gt.Variable(x)
        result = function(watched)
    return tape.gradient(result, watched).numpy()


WAYS: dict[str, Callable[[Function, Any], Any]] = {
    "grad": lambda function, x: gt.grad(function)(x),
    "jit of grad": lambda function, x: gt.jit(gt.grad(function))(x),
    "vjp": lambda function, x: gt.vjp(function, x)[1](1.0)[0],
    "jvp": lambda function, x: np.stack([gt.jvp(function, (x,), (e,))[1] for e in np.eye(x.size)]),
    "a tape": on_a_tape,
    "autograd": lambda function, x: gt.autograd.grad(function)(x),
}


@pytest.mark.parametrize("way", WAYS)
def test_from_dlpack_has_the_derivative_of_a_view(way: str) -> None:
    found = WAYS[way](lambda x: np.sum(np.from_dlpack(x) ** 2 * np.from_dlpack(x, copy=True)), X)
    np.testing.assert_allclose(found, 3 * X**2)


TAKES_MEMORY: dict[str, Function] = {
    "memoryview": lambda x: np.sum(np.asarray(memoryview(x))),
    "data": lambda x: np.sum(np.frombuffer(x.data)),
    "frombuffer": lambda x: np.sum(np.frombuffer(x)),
    "tobytes": lambda x: np.sum(np.frombuffer(x.tobytes())),
    "ctypes": lambda x: x.ctypes.data + np.sum(x),
    "as_ctypes": lambda x: np.ctypeslib.as_ctypes(x)[0] + np.sum(x),
    "array interface": lambda x: x.__array_interface__["data"][0] + np.sum(x),
    "array struct": lambda x: x.__array_struct__ and np.sum(x),
    "dumps": lambda x: np.sum(pickle.loads(x.dumps())),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", TAKES_MEMORY)
def test_memory_of_traced_arrays_is_refused_by_name(case: str, way: str) -> None:
    function = TAKES_MEMORY[case]
    function(X)
    with pytest.raises((AttributeError, TypeError), match=r"no memory of its own|not '(Array|Variable)'"):
        WAYS[way](function, X)


INDICES = (np.array([0, 0, 2]), np.array([1, 1, 0]))


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum])
@pytest.mark.parametrize("index", [lambda i, j: (i, j), lambda i, j: (i, slice(None)), lambda i, j: [i, j]])
def test_traced_indices_of_at_are_one_for_each_axis(ufunc, index):
    """A tuple of index arrays is no array: `np.add.at(z, (i, j), v)` adds to elements, not to rows."""

    def f(x, i, j):
        z = x * 1.0
        ufunc.at(z, index(i, j), 2.5)
        return z

    x = np.arange(9.0).reshape(3, 3)
    expected = f(x, *INDICES)
    np.testing.assert_array_equal(gt.jit(f)(x, *INDICES), expected)
    np.testing.assert_array_equal(gt.vmap(f, in_axes=(0, None, None))(x[None], *INDICES)[0], expected)
    np.testing.assert_array_equal(f(gt.constant(x), *INDICES), expected)


def test_a_target_in_a_tuple_is_written_to():
    def f(x):
        z = x * 1.0
        np.clip(z, -1.0, 1.0, out=(z,))
        return z

    x = np.array([-2.0, 0.5, 3.0])
    np.testing.assert_array_equal(gt.jit(f)(x), f(x))
    np.testing.assert_array_equal(f(gt.constant(x)), f(x))


@pytest.mark.parametrize("function", [np.sum, np.cumsum, np.mean, np.max])
def test_other_functions_refuse_targets_in_tuples_and_lists(function):
    """NumPy does; a trace ignored them."""
    for container in (tuple, list):
        with pytest.raises(TypeError):
            function(np.ones(3), out=container([np.ones(3)]))
        with pytest.raises(TypeError, match="out= of np"):
            gt.jit(lambda x, container=container: function(x, out=container([x * 1.0])))(np.ones(3))


@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "nanstd", "argmax", "median", "all"])
def test_keepdims_that_is_not_given_is_false(name):
    def f(x):
        return getattr(np, name)(x, axis=0, keepdims=np._NoValue)

    x = np.arange(6.0).reshape(2, 3)
    compiled = gt.jit(f)
    for got in (compiled(x), f(gt.constant(x)), f(gt.constant(x))):
        np.testing.assert_allclose(got, f(x))


@pytest.mark.parametrize("method", ["__iter__", "__len__", "__getitem__", "__setitem__", "__contains__"])
def test_code_asks_numbers_for_the_methods_of_sequences(method: str) -> None:
    answers: list[list[bool]] = []

    def asked(x: Any, number: Any) -> Any:
        things = [x, x[0], np.sum(x), np.sum(x)[...], x[:1], 2.0 * number, np.asarray(x[0]), [x]]
        answers.append([hasattr(thing, method) for thing in things])
        return np.sum(x) * number

    asked(X, 0.5)
    gt.grad(asked)(X, 0.5)
    with gt.GradientTape() as tape:
        asked(tape.watch(X), 0.5)
    assert answers[1:] == [answers[0]] * 2


def test_arrays_that_are_broadcast_together_are_asked_for_their_shape_and_elements() -> None:
    x, y = np.array([1.0, 2.0]), np.array([[3.0], [-1.0], [0.5]])

    def function(x: Any) -> Any:
        both, plain = np.broadcast(x, y), np.broadcast(np.ones(2), y)
        for name in ("shape", "ndim", "nd", "size", "numiter", "index"):
            assert getattr(both, name) == getattr(plain, name)
        out = np.empty(both.shape)
        out.flat = [u * v for u, v in both]
        with pytest.raises(StopIteration):
            next(both)
        both.reset()
        first, second = next(both)
        assert both.index == 1
        assert isinstance(both, np.broadcast)
        three, plain = np.broadcast(both, np.ones((2, 1, 1))), np.broadcast(plain, np.ones((2, 1, 1)))
        assert (three.shape, three.numiter) == (plain.shape, plain.numiter)
        return np.sum(out * np.arange(6.0).reshape(3, 2)) * first * second

    slope = gradient_by_differences(function, x)
    np.testing.assert_allclose(gt.grad(function)(x), slope, rtol=1e-6)
    np.testing.assert_allclose(gt.jvp(function, (x,), (x,)), (function(x), slope @ x), rtol=1e-6)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        result = function(watched)
    np.testing.assert_allclose(tape.gradient(result, watched), slope, rtol=1e-6)
    with pytest.raises(ValueError, match="broadcast"):
        gt.jit(lambda x: np.broadcast(x, np.ones(3)).size * x)(x)
