"""The object that is called: a Python function whose calls machine code may answer."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
import types
import weakref
from typing import Any

import numpy as np
import pytest

from gradtape.runtime.call.callable import FastCallable, NativeHead, vectorcalled
from gradtape.runtime.call.convention import ArraySpec, Signature, StaticSpec
from tests.support.kernels import NUMBER, TWICE, VALUE_AND_GRADIENT, VECTOR, elementwise, native, told

X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(scope="module")
def gradient() -> Any:
    return native(VALUE_AND_GRADIENT, Signature((VECTOR,), (NUMBER, VECTOR), (0, 1)))


def test_a_fast_callable_is_slow_until_machine_code_is_installed(gradient: Any) -> None:
    def f(x: Any, *, scale: float = 1.0) -> Any:
        """Documented."""
        return "slow", x, scale

    fast = FastCallable(f)
    assert (fast.__name__, fast.__doc__) == ("f", "Documented.")
    assert inspect.unwrap(fast) is f
    assert fast(1, scale=2.0) == ("slow", 1, 2.0)
    fast.install(gradient)
    assert fast(X)[0] == 14.0
    assert fast(1) == ("slow", 1, 1.0)
    assert fast(X, scale=3.0) == ("slow", X, 3.0)
    with pytest.raises(TypeError, match="nonsense"):
        fast(X, nonsense=1)
    fast.uninstall()
    assert fast(1) == ("slow", 1, 1.0)


def test_a_fast_callable_is_a_method() -> None:
    class Model:
        step = FastCallable(told)

    model = Model()
    assert model.step(1, k=2) == ("fallback", (model, 1), {"k": 2})
    assert isinstance(model.step, types.MethodType)
    assert isinstance(Model.step, FastCallable)
    Model.step.install(native(TWICE, Signature((StaticSpec(), VECTOR), (VECTOR,), 0), statics=(model,)))
    np.testing.assert_array_equal(model.step(X), 2 * X)
    assert Model().step(X)[0] == "fallback"
    np.testing.assert_array_equal(Model.step(model, X), 2 * X)


def test_a_fallback_may_install_other_machine_code_while_it_runs() -> None:
    calls = []

    def retrace(x: Any) -> Any:
        calls.append(x)
        spec = ArraySpec("float64", x.shape)
        kernel = elementwise(len(x), "  %r = fadd double %x0, %x0")
        fast.install(native(kernel, Signature((spec,), (spec,), 0), told))
        gc.collect()
        return fast(x)

    fast = FastCallable(retrace)
    for length in (2, 3, 2, 5, 5):
        x = np.arange(float(length))
        np.testing.assert_array_equal(fast(x), 2 * x)
    assert [len(x) for x in calls] == [2, 3, 2, 5]


def test_a_native_function_may_drop_itself_from_its_own_fallback() -> None:
    holder: list[Any] = []

    def fallback(*_: Any) -> str:
        holder.clear()
        gc.collect()
        return "still here"

    holder.append(native(TWICE, Signature((VECTOR,), (VECTOR,), 0), fallback))
    assert holder[0]("miss") == "still here"
    assert holder == []


def test_fast_callables_and_native_functions_are_garbage_when_nobody_holds_them() -> None:
    def make() -> tuple[weakref.ref[Any], weakref.ref[Any], weakref.ref[Any]]:
        def slow_one(*_: Any) -> Any:
            return fast

        fast = FastCallable(slow_one)
        function = native(TWICE, Signature((VECTOR,), (VECTOR,), 0), slow_one)
        fast.install(function)
        fast.extra = fast  # type: ignore[attr-defined]
        return weakref.ref(fast), weakref.ref(function), weakref.ref(function._resources.loaded)

    gc.collect()
    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


def test_many_fast_callables_leave_nothing() -> None:
    def make() -> None:
        for _ in range(2000):
            FastCallable(lambda x: x)(1)

    make()
    gc.collect()
    before = sys.getallocatedblocks()
    make()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


def test_copies_of_a_fast_callable_are_itself() -> None:
    fast = FastCallable(told)
    assert copy.copy(fast) is fast
    assert copy.deepcopy([fast])[0] is fast


def test_a_subclass_is_fast_when_it_is_decorated(gradient: Any) -> None:
    @vectorcalled
    class Decorated(FastCallable):
        """A decorated subclass."""

        __slots__ = ("note",)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return "own call", args, kwargs

    assert (Decorated.__name__, Decorated.__doc__) == ("Decorated", "A decorated subclass.")
    function = Decorated(told)
    function.note = 5  # type: ignore[attr-defined]
    assert function(1) == ("own call", (1,), {})
    function.install(gradient)
    assert function(X)[0] == 14.0
    assert function(1) == ("fallback", (1,), {})
    assert isinstance(function, NativeHead)


def test_representations_name_the_function(gradient: Any) -> None:
    assert "told" in repr(FastCallable(told))
    assert "told" in repr(gradient)


def test_recursion_through_the_fallback_ends_as_pythons_does() -> None:
    def again(*args: Any) -> Any:
        return fast(*args)

    fast = FastCallable(again)
    fast.install(native(TWICE, Signature((VECTOR,), (VECTOR,), 0), again))
    with pytest.raises(RecursionError):
        fast(1)
    np.testing.assert_array_equal(fast(X), 2 * X)
