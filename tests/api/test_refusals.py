"""What is neither a number nor an array is refused by its name, with what to pass instead."""

from __future__ import annotations

import functools
from array import array
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from gradtape.kinds.refusals import LIBRARIES, wrong_dtype
from tests.support.ways import PAIR, Function, at_a_line_of, expect, traced_ways, ways


def of_library(module: str, name: str = "Tensor") -> Any:
    """Return an array of a library that need not be installed."""

    def operate(self: Any, other: Any) -> Any:
        return NotImplemented

    members = {
        "__module__": f"{module}.core",
        "__array__": lambda self, dtype=None, copy=None: PAIR,
        "__mul__": operate,
        "toarray": None,
    }
    return type(name, (), members)()


async def coroutine() -> float:
    return 1.0


USED_UP: dict[str, Callable[[], Any]] = {
    "generator": lambda: (i for i in range(2)),
    "map": lambda: map(float, [1, 2]),
    "zip": lambda: zip([1.0], [2.0], strict=True),
    "list_iterator": lambda: iter([1.0, 2.0]),
    "dict_values": lambda: {"a": 1.0}.values(),
}

OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "set": (lambda: {1.0, 2.0}, "np.array(sorted(x))"),
    "array.array": (lambda: array("d", [1.0, 2.0]), "np.asarray(x)"),
    "memoryview": (lambda: memoryview(PAIR), "np.asarray(x)"),
    **{kind: (make, "np.array(list(x))") for kind, make in USED_UP.items()},
    "torch Tensor": (
        lambda: of_library("torch"),
        "x.detach().cpu().numpy(), or wrap the function: gt.torch(f)",
    ),
    "jax DynamicJaxprTracer": (
        lambda: of_library("jax", "DynamicJaxprTracer"),
        "wrap the function: gt.jax(f) for use in JAX",
    ),
    "polars Series": (lambda: of_library("polars", "Series"), "x.to_numpy()"),
    "dask Array": (lambda: of_library("dask", "Array"), "x.compute()"),
    "scipy csr_array": (lambda: of_library("scipy", "csr_array"), "x.toarray()"),
}


@ways
@pytest.mark.parametrize("kind", OTHERS)
def test_arguments(way: Function, kind: str) -> None:
    make, remedy = OTHERS[kind]
    error = expect(errors.DtypeError, lambda: way(lambda x: x * 2.0, make()), kind, remedy)
    assert at_a_line_of(way, error)


def test_an_argument_is_named() -> None:
    f = gt.jit(lambda *args, **kwargs: 1.0)
    for call, name in (
        (lambda x: f(1.0, x), "argument 1 "),
        (lambda x: f(1.0, x=x), "x "),
        (lambda x: f({"w": [1.0, x]}), "argument 0['w'][1] "),
    ):
        expect(errors.DtypeError, lambda call=call: call(iter([1.0])), f"{name}is a list_iterator")
        expect(
            errors.DtypeError,
            lambda call=call: call(PAIR.astype(np.longdouble)),
            f"{name}has dtype",
            "astype(float)",
        )
        expect(errors.StaticArgumentError, lambda call=call: call({1.0}), name.strip(), "set")
    f(PAIR)
    expect(errors.DtypeError, lambda: f(of_library("jax")), "argument 0 is a jax Tensor", "np.asarray(x)")


@pytest.mark.parametrize(
    "make", [gt.constant, gt.asarray, gt.Variable], ids=["constant", "asarray", "Variable"]
)
def test_making_arrays(make: Function) -> None:
    for kind in ("set", "generator", "map"):
        expect(errors.DtypeError, lambda kind=kind: make(OTHERS[kind][0]()), kind, "np.array(")
    expect(errors.DtypeError, lambda: make(Decimal("1.5")), "Decimal", "float(")


def test_operands() -> None:
    for other in (of_library("torch"), of_library("polars")):
        for function in (lambda x, o=other: x * o, lambda x, o=other: o * x, lambda x, o=other: np.add(x, o)):
            expect(
                errors.DtypeError,
                lambda f=function: gt.jit(f)(PAIR),
                type(other).__module__.partition(".")[0],
                "numpy()",
            )
            expect(errors.DtypeError, lambda f=function: f(gt.constant(PAIR)), "operand")
    for other in ({1.0}, iter([1.0]), "x", object()):
        expect(TypeError, lambda o=other: gt.constant(PAIR) * o)
        expect(TypeError, lambda o=other: o * gt.constant(PAIR))


@traced_ways
@pytest.mark.parametrize(
    "other",
    [deque([3.0, 4.0]), array("d", [3.0, 4.0]), range(3, 5), memoryview(np.array([3.0, 4.0]))],
    ids=lambda o: type(o).__name__,
)
def test_sequences_are_operands_as_numpys(way: Function, other: Any) -> None:
    for function in (lambda x: x * other, lambda x: other * x, lambda x: other - x, lambda x: x @ other):
        np.testing.assert_array_equal(
            way(function, PAIR), way(lambda x, f=function: f_of_array(f, other, x), PAIR)
        )


def f_of_array(function: Function, other: Any, x: Any) -> Any:
    """Return what a function of the tests above gives with an ndarray for the sequence that it has captured."""
    body = type(function)(
        function.__code__, function.__globals__, closure=(type(function.__closure__[0])(np.array(other)),)
    )
    return body(x)


def test_a_deque_of_traced_numbers_is_an_operand() -> None:
    np.testing.assert_array_equal(gt.jit(lambda x: x * deque([x[1], x[0]]))(PAIR), [2.0, 2.0])


def test_every_library_has_a_remedy() -> None:
    for name, remedy in LIBRARIES.items():
        error = expect(
            errors.DtypeError,
            lambda name=name: gt.asarray(of_library(name)),
            f" {name} Tensor",
            remedy.format(x="a"),
        )
        assert "{" not in str(error)


# Dtypes


@ways
@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_long_doubles(way: Function, dtype: Any) -> None:
    remedy = "astype(float)" if dtype is np.longdouble else "astype(complex)"
    for x in (PAIR.astype(dtype), dtype(1.0)):
        error = expect(
            errors.DtypeError, lambda x=x: way(lambda x: x * 2, x), "dtype", remedy, "up to float64"
        )
        assert at_a_line_of(way, error)
        expect(errors.DtypeError, lambda x=x: way(lambda y: y * x, PAIR), remedy)


def test_bfloat16_is_said_clearly() -> None:
    # NumPy has no such dtype; ml_dtypes, which has, need not be installed.
    stand_in: Any = SimpleNamespace(
        name="bfloat16",
        char="E",
        kind="V",
        names=None,
        type=type("bfloat16", (), {"__module__": "ml_dtypes"}),
    )
    for argument, remedy in (
        ("weights", "weights.astype(np.float32)"),
        ("an argument", "x.astype(np.float32)"),
    ):
        error = wrong_dtype(stand_in, argument)
        assert "ml_dtypes" in str(error) and remedy in str(error)
    for call in (
        lambda: gt.constant([1.0], dtype="bfloat16"),
        lambda: gt.Variable([1.0], dtype="bfloat16"),
        lambda: gt.jit(lambda x: x.astype("bfloat16"))(PAIR),
    ):
        expect(errors.DtypeError, call, "bfloat16", "ml_dtypes", "float32")


def test_records_and_objects() -> None:
    expect(errors.DtypeError, lambda: gt.grad(np.sum)(np.zeros(2, "f8,i4")), "records", "x['f0']")
    expect(errors.DtypeError, lambda: gt.jit(np.sum)(np.array([1.0, None])), "Python objects")


# Functions that return before they have run


def generator(x: Any) -> Any:
    yield x * 2


async def asynchronous(x: Any) -> Any:
    return x * 2


async def asynchronous_generator(x: Any) -> Any:
    yield x * 2


class Caller:
    """Objects that are called."""

    async def __call__(self, x: Any) -> Any:
        return x

    def method(self, x: Any) -> Any:
        yield x


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (generator, "generator"),
        (asynchronous, "async"),
        (asynchronous_generator, "async generator"),
        (functools.partial(generator), "generator"),
        (Caller().method, "generator"),
        (Caller(), "async"),
    ],
)
def test_functions_that_run_later(function: Function, kind: str) -> None:
    for name, call in {
        "jit": lambda: gt.jit(function),
        "grad": lambda: gt.grad(function),
        "value_and_grad": lambda: gt.value_and_grad(function),
        "jacobian": lambda: gt.jacobian(function),
        "hessian": lambda: gt.hessian(function),
        "vmap": lambda: gt.vmap(function),
        "vjp": lambda: gt.vjp(function, 1.0),
        "jvp": lambda: gt.jvp(function, (1.0,), (1.0,)),
        "linearize": lambda: gt.linearize(function, 1.0),
        "hvp": lambda: gt.hvp(function, (1.0,), (1.0,)),
        "check_grads": lambda: gt.check_grads(function, (1.0,)),
    }.items():
        expect(errors.ArgumentError, call, f"{name} got", f"{kind} function")


def test_results_that_run_later() -> None:
    expect(
        errors.DtypeError,
        lambda: gt.jit(lambda x: (2 * v for v in x))(PAIR),
        "returned a generator",
        "list or tuple",
    )
    expect(errors.DtypeError, lambda: gt.jit(lambda x: map(np.sin, x))(PAIR), "returned a map")
    expect(errors.DtypeError, lambda: gt.jit(lambda x: {"a": x}.values())(PAIR), "returned a dict_values")
    made = coroutine()
    expect(errors.DtypeError, lambda: gt.jit(lambda x: made)(PAIR), "returned a coroutine")
    expect(errors.DtypeError, lambda: gt.jit(lambda x: x)(made), "await x")
    made.close()


def test_an_array_is_no_function() -> None:
    y = gt.constant(1.0)
    expect(errors.ArgumentError, lambda: gt.grad(y, y), "Array", "tape.gradient(y, x)")
    expect(errors.DtypeError, lambda: gt.hessian(np.sum, PAIR), "argnums", "hessian(f)(x)")


# A list where an array was meant


AS_ARRAYS: dict[str, Function] = {
    "power": lambda x: np.sum(x**2),
    "product": lambda x: np.sum(x * 2.0),
    "matrix product": lambda x: x @ x,
    "sign": lambda x: np.sum(-x),
    "method": lambda x: x.sum(),
    "attribute": lambda x: x[0] * x.shape[0],
    "indices": lambda x: x[0, 0],
    "mask": lambda x: np.sum(x[x > 0]),
}


def by_jit_alone(function: Function, x: Any) -> Any:
    return gt.jit(function)(x)


def by_linearize(function: Function, x: Any) -> Any:
    return gt.linearize(function, x)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("function", AS_ARRAYS.values(), ids=AS_ARRAYS)
def test_a_list_where_an_array_was_meant(function: Function, kind: type) -> None:
    for way in (gt.jit, gt.grad, gt.value_and_grad, gt.jacobian, gt.hessian):
        error = expect(
            errors.DtypeError,
            lambda way=way: way(function)(kind([1.0, 2.0])),
            f"the argument x is a {kind.__name__}",
            "np.array(x)",
        )
        assert at_a_line_of(function, error)
    for call in (
        lambda: gt.vjp(function, kind([1.0])),
        lambda: gt.jvp(function, (kind([1.0]),), (kind([1.0]),)),
    ):
        expect(errors.DtypeError, call, "np.array(x)")


def test_lists_that_are_meant_work() -> None:
    assert gt.grad(lambda x: x[0] ** 2 + 3 * x[1])([1.0, 2.0]) == [2.0, 3.0]
    assert gt.jit(lambda x: sum(x))([1.0, 2.0]) == 3.0
    assert gt.jit(lambda x, axes: np.sum(x, axes))(np.ones((2, 2)), (0, 1)) == 4.0


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(TypeError, match=r"^can only concatenate") as caught:
        gt.jit(lambda x, names: names + 1)(1.0, ["a", "b"])
    assert type(caught.value) is TypeError
    with pytest.raises(AttributeError, match="has no attribute 'nothing'") as caught:
        gt.jit(lambda x, y: x.nothing)(PAIR, [1.0])
    assert type(caught.value) is AttributeError
    with pytest.raises(TypeError, match="unsupported") as caught:
        gt.jit(lambda x, tree: tree**2)(1.0, {"a": 1.0})
    assert type(caught.value) is TypeError


def test_a_list_is_not_blamed_for_a_tuple() -> None:
    with pytest.raises(TypeError) as caught:
        gt.jit(lambda x, y: (x, x) ** 2)(1.0, [1.0])
    assert type(caught.value) is TypeError


def test_control_flow_refuses_functions_that_run_later() -> None:
    async def later(*args: Any) -> Any:
        return args

    for name, call in {
        "scan": lambda: gt.scan(later, 0.0, PAIR),
        "map": lambda: gt.map(later, PAIR),
        "cond": lambda: gt.cond(True, later, later, 1.0),
        "fori_loop": lambda: gt.fori_loop(0, 3, later, 1.0),
        "while_loop": lambda: gt.while_loop(lambda c: c < 3, later, (1.0,)),
    }.items():
        expect(errors.ArgumentError, call, f"{name} got later", "async function")


def test_a_file_may_be_an_argument(tmp_path: Any) -> None:
    with open(tmp_path / "log", "w") as file:
        assert gt.jit(lambda x, file: 2 * x)(1.0, file) == 2.0
        with pytest.warns(errors.SideEffectWarning, match="uses a file among the arguments"):
            assert gt.jit(lambda x, file: file.write("met") * x)(1.0, file) == 3.0


def test_a_list_in_a_container() -> None:
    for way in (gt.jit, gt.grad):
        expect(
            errors.DtypeError,
            lambda way=way: way(lambda p: p["w"][1] ** 2)({"w": (PAIR, [1.0, 2.0])}),
            "p['w'][1] is a list",
        )
    expect(errors.DtypeError, lambda: gt.jit(lambda x, w: w + 1.0)(1.0, w=[1.0]), "argument w is a list")


def test_a_tape_that_was_given_a_list_notes_it() -> None:
    with pytest.raises(TypeError, match="unsupported") as caught, gt.GradientTape() as tape:
        x = tape.watch([1.0, 2.0])
        x**2
    assert "np.array(x)" in caught.value.__notes__[0]
    with pytest.raises(TypeError) as caught, gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        [1.0] ** 2  # noqa: B018
    assert not hasattr(caught.value, "__notes__")


class Unit:
    """A unit as pint has them: its operators take arrays of any kind, and are asked where it is the right operand."""

    __module__ = "pint.facets"

    def __mul__(self, other: Any) -> Any:
        return {"metres": other}

    __rmul__ = __mul__


@traced_ways
def test_operators_of_units_take_traced_arrays(way: Function) -> None:
    def squares(x: Any) -> Any:
        length = x * Unit()
        return np.sum(length["metres"] ** 2)

    way(squares, PAIR)
    np.testing.assert_array_equal(gt.grad(squares)(PAIR), 2 * PAIR)
    assert gt.jit(squares)(PAIR) == np.sum(PAIR**2)
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = squares(x)
    np.testing.assert_array_equal(tape.gradient(y, x), 2 * PAIR)


def test_quantities_of_pint_hold_traced_arrays() -> None:
    pint = pytest.importorskip("pint", reason="units are those of pint: pip install pint")
    units = pint.UnitRegistry()
    seconds = units.Quantity(2.0, "s")
    for program, slope in (
        (lambda x: (x * units.km).to("m").magnitude, 1000.0),
        (lambda x: (x * seconds).magnitude, 2.0),
        (lambda x: (x / seconds).magnitude, 0.5),
        (lambda x: (seconds * x).magnitude, 2.0),
        (lambda x: units.Quantity(x, "km").to("m").magnitude, 1000.0),
    ):
        np.testing.assert_array_equal(gt.grad(lambda x, f=program: np.sum(f(x)))(PAIR), [slope, slope])
        with gt.GradientTape() as tape:
            x = tape.watch(PAIR)
            y = np.sum(program(x))
        np.testing.assert_array_equal(tape.gradient(y, x), [slope, slope])
    with pytest.raises(pint.DimensionalityError):
        gt.grad(lambda x: np.sum((x + seconds).magnitude))(PAIR)
