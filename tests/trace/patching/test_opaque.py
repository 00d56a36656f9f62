"""Functions of SciPy that compute with numbers: traced values that reach them, by whatever way, are never lost in silence."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.integrate as si
import scipy.optimize as so
import scipy.sparse
import scipy.sparse.linalg as sl

import gradtape as gt
from gradtape.errors import GradtapeWarning, UnsupportedFunctionError
from gradtape.trace.patching.opaque import traced_parts

A = scipy.sparse.csc_array(np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]]))
B = np.array([1.0, 2.0, 3.0])


class Model:
    def __init__(self, rate: Any) -> None:
        self.rate = rate

    def decay(self, x: float) -> Any:
        return np.exp(-self.rate * x)

    def __call__(self, x: float) -> Any:
        return np.exp(-self.rate * x)


def line(x: Any, slope: Any) -> Any:
    return slope * x


def lowest(function: Any, args: Any = ()) -> Any:
    """Return the least value of a function at some points, which SciPy calls with numbers."""
    return so.brute(function, ((0, 1),), args=args, Ns=3, finish=None, full_output=True)[1]


CALLS: dict[str, Callable[[Any], Any]] = {
    "args": lambda a: lowest(line, (a,)),
    "closure": lambda a: lowest(lambda x: np.exp(-a * x)),
    "explicit float": lambda a: lowest(lambda x: float(a) * x),
    "range": lambda a: so.brute(lambda x: x, ((0, a),), Ns=3, finish=None, full_output=True)[1],
    "partial": lambda a: lowest(functools.partial(line, slope=a)),
    "method": lambda a: lowest(Model(a).decay),
    "object": lambda a: lowest(Model(a)),
    "default": lambda a: lowest(lambda x, a=a: a * x),
    "inner function": lambda a: lowest(lambda x: (lambda y: a * y)(x)),
    "list": lambda a: lowest(lambda x, c: c[0] * x, ([a, 1.0],)),
    "ode": lambda a: si.ode(lambda t, y: -a * y).set_initial_value(1.0).integrate(1.0)[0],
    "onenormest": lambda a: sl.onenormest(A * a),
    "eigs": lambda a: sl.eigs(A * a, k=1, v0=np.ones(A.shape[0]))[0][0].real,
}


@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS)
def test_traced_values_are_refused_in_jit_and_warned_of_on_tapes(function: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedFunctionError, match="scipy"):
        gt.jit(function)(2.0)
    with gt.GradientTape() as tape:
        a = tape.watch(2.0)
        with pytest.warns(GradtapeWarning, match="scipy") as caught:
            value = function(a)
        after = a * a
    assert len([found for found in caught if found.category is GradtapeWarning]) == 1
    assert not isinstance(value, gt.Array)
    np.testing.assert_allclose(value, function(2.0), rtol=1e-6)
    assert float(tape.gradient(after, a)) == 4.0  # it records again


def test_variables_that_a_callback_reads() -> None:
    rate = gt.Variable(2.0)
    with gt.GradientTape() as tape, pytest.warns(GradtapeWarning, match="brute"):
        value = lowest(lambda x: np.exp(-rate * x)) * rate
    np.testing.assert_allclose(tape.gradient(value, rate), np.exp(-2.0))


def test_a_value_that_the_search_does_not_find_is_warned_of_when_it_is_converted() -> None:
    with gt.GradientTape() as tape:
        holder: Any = tape.watch(2.0)
        for _ in range(6):
            holder = SimpleNamespace(held=[holder])

        def hidden(x: float) -> float:
            item: Any = holder
            while isinstance(item, SimpleNamespace):
                item = item.held[0]
            return float(item) * x

        with pytest.warns(GradtapeWarning, match="brute converts a watched array"):
            lowest(hidden)


def test_containers_may_be_nested_deeper_than_functions_may_call() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        holder: Any = [1.0, x]
        for _ in range(5000):
            holder = [holder]
        assert list(traced_parts(holder)) == [x]
        for _ in range(6):
            holder = SimpleNamespace(held=holder)
        assert not list(traced_parts(holder))


def test_calls_without_traced_values_are_not_touched() -> None:
    """Callbacks may use tapes and compiled functions of their own, and captured arrays are numbers."""

    def loss(x: Any) -> tuple[float, Any]:
        with gt.GradientTape() as inner:
            watched = inner.watch(x)
            value = np.sum((watched - 1.0) ** 2)
        return float(value), inner.gradient(value, watched).numpy()

    scale = np.array([3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gt.GradientTape() as tape:
            a = tape.watch(2.0)
            best = so.minimize(loss, np.zeros(2), jac=True).x
            area = si.quad(np.sin, 0, np.zeros(1)[0] + 1.0)[0]
            value = a * best[0] * area
        integral = gt.jit(lambda x: si.quad(lambda s: scale[0] * s, 0, 1)[0] * x)
        assert np.isclose(integral(2.0), 3.0)
    np.testing.assert_allclose(tape.gradient(value, a), 1 - np.cos(1.0), rtol=1e-6)


def test_messages_name_the_function_and_the_line() -> None:
    with pytest.raises(UnsupportedFunctionError, match=r"scipy\.optimize\.brute is not supported") as caught:
        gt.grad(lambda a: lowest(lambda x: x - a))(2.0)
    assert "test_opaque.py" in str(caught.value)
    with gt.GradientTape() as tape, pytest.warns(GradtapeWarning):
        a = tape.watch(2.0)
        y = gt.constant(lowest(lambda x: x - a))
    assert "brute" in str(gt.debug.explain_gradient(tape, y, a))


class Answering:
    """An object without attributes, which has a function for any name: handles of C libraries are such objects."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return lambda: name


def test_objects_that_have_a_function_for_any_name_hold_nothing() -> None:
    thing = Answering()
    assert list(traced_parts(thing)) == []

    def root(a: Any) -> Any:
        return so.brentq(lambda x, a, thing: x**3 - a, 0.0, 10.0, args=(a, thing))

    np.testing.assert_allclose(gt.grad(root)(8.0), 1 / 12, rtol=1e-9)
