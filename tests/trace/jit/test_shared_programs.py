"""Programs that functions of one code share: what differs between two functions of one code is checked, and nothing is traced twice."""

# ruff: noqa: B023

from __future__ import annotations

import functools
import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.transforms import sharing
from gradtape.api.transforms.sharing import SharedSite
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.tracing import Tracer
from tests.support.recording import traces_of

X: Final = np.array([1.0, 2.0, 4.0])

Make = Callable[[Any], Callable[..., Any]]
PAIRS: Final[dict[str, tuple[Make, Any, Any]]] = {}
"""By name: what makes functions of one code, and two values for which they compute something else."""


def pair(first: Any, second: Any) -> Callable[[Make], Make]:
    """Register what makes functions with two values for which they differ."""

    def register(make: Make) -> Make:
        PAIRS[make.__name__] = make, first, second
        return make

    return register


@pair(2.0, 3.0)
def float_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x**2) * k


@pair(2, 3)
def int_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x**k)


@pair(2, 2.0)
def type_of_a_number_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x) * (5.0 if isinstance(k, int) else 7.0)


@pair(True, 1)
def bool_or_int_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x) * (5.0 if k is True else 7.0)


@pair("a", "b")
def text_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x) * (5.0 if k == "a" else 7.0)


@pair(np.ones(3), np.arange(3.0))
def array_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x * k)


@pair(np.ones(3), np.ones((2, 3)))
def shape_of_an_array_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x * k)


@pair(np.ones(3), np.ones(3, np.float32) * 1.1)
def dtype_of_an_array_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x * k)


@pair(np.array([0, 1]), np.array([2, 1]))
def indices_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x[k]) + sum(x[i] for i in k)


@pair(np.array([True, False, True]), np.array([False, False, True]))
def mask_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x[k])


@pair([1.0, 2.0], [1.0, 2.0, 3.0])
def length_of_a_list_in_a_cell(k: Any) -> Any:
    return lambda x: sum(np.sum(x) * item for item in k)


@pair({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0})
def order_of_a_dict_in_a_cell(k: Any) -> Any:
    return lambda x: sum(np.sum(x) * item * (1 + place) for place, item in enumerate(k.values()))


@pair((1, (2.0, "a")), (1, (2.0, "b")))
def nest_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(x) * k[1][0] * (5.0 if k[1][1] == "a" else 7.0)


@pair(2.0, 3.0)
def default_of_a_parameter(k: Any) -> Any:
    def f(x: Any, scale: float = k) -> Any:
        return np.sum(x) * scale

    return f


@pair("a", "b")
def text_that_is_a_default(k: Any) -> Any:
    return lambda x, mode=k: np.sum(x) * (5.0 if mode == "a" else 7.0)


@pair("a", "b")
def default_of_a_keyword(k: Any) -> Any:
    def f(x: Any, *, mode: Any = k) -> Any:
        return np.sum(x) * (5.0 if mode == "a" else 7.0)

    return f


@pair((2.0,), None)
def default_or_none(k: Any) -> Any:
    def f(x: Any, *scale: Any) -> Any:
        return np.sum(x) * 3.0

    def g(x: Any, scale: Any = 5.0) -> Any:
        return np.sum(x) * scale

    g.__defaults__ = k or (5.0,)
    return g


@pair({"mode": "a"}, {"mode": "b"})
def globals_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if mode == "a" else 7.0)  # type: ignore[name-defined] # noqa: F821

    return FunctionType(f.__code__, {**globals(), **k})


@pair("a", "b")
def attribute_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if f.mode == "a" else 7.0)  # type: ignore[attr-defined]

    f.mode = k  # type: ignore[attr-defined]
    return f


@pair("f", "g")
def name_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if f.__name__ == "f" else 7.0)

    f.__name__ = k
    return f


@pair("f", "g")
def qualified_name_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if f.__qualname__ == "f" else 7.0)

    f.__qualname__ = k
    return f


@pair("one", "two")
def docstring_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if f.__doc__ == "one" else 7.0)

    f.__doc__ = k
    return f


@pair(int, float)
def annotation_of_a_function(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if f.__annotations__["return"] is int else 7.0)

    f.__annotations__ = {"return": k}
    return f


@pair(int, float)
def annotation_that_is_asked_for(k: Any) -> Any:
    def f(x: Any) -> Any:
        return np.sum(x) * (5.0 if getattr(f, "__annotations__")["return"] is int else 7.0)  # noqa: B009

    f.__annotations__ = {"return": k}
    return f


@pair(np.sin, np.cos)
def ufunc_in_a_cell(k: Any) -> Any:
    return lambda x: np.sum(k(x))


@pair("a", "b")
def function_in_a_cell(k: Any) -> Any:
    def helper(x: Any) -> Any:
        return np.sum(x) * (5.0 if k == "a" else 7.0)

    return lambda x: helper(x)


@pair(0, 1)
def functions_of_other_code_in_a_cell(k: Any) -> Any:
    helper = (lambda x: np.sum(x) * 5.0, lambda x: np.sum(x) * 7.0)[k]
    return lambda x: helper(x)


@pair(2.0, 3.0)
def function_around_a_function_around_a_function(k: Any) -> Any:
    def outer() -> Any:
        def inner(x: Any) -> Any:
            return np.sum(x) * k

        return lambda x: inner(x) + 1.0

    made = outer()
    return lambda x: made(x) * 2.0


@pair("a", "b")
def function_in_a_list_in_a_cell(k: Any) -> Any:
    helpers = [lambda x: np.sum(x) * (5.0 if k == "a" else 7.0)]
    return lambda x: helpers[0](x)


@pair("a", "b")
def function_that_is_a_default(k: Any) -> Any:
    def helper(x: Any) -> Any:
        return np.sum(x) * (5.0 if k == "a" else 7.0)

    return lambda x, helper=helper: helper(x)


@pair(2, 3)
def function_that_calls_itself(k: Any) -> Any:
    def f(x: Any, depth: int = k) -> Any:
        return np.sum(x) if depth == 0 else 2.0 * f(x, depth - 1)

    return lambda x: f(x)


@pair("a", "b")
def functions_that_call_each_other(k: Any) -> Any:
    def even(x: Any, n: int) -> Any:
        return np.sum(x) if n == 0 else odd(x, n - 1) * (5.0 if k == "a" else 7.0)

    def odd(x: Any, n: int) -> Any:
        return np.sum(x) if n == 0 else even(x, n - 1) + 1.0

    return lambda x: even(x, 3)


@pair("a", "b")
def decorated_function(k: Any) -> Any:
    def decorate(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any) -> Any:
            return f(*args) * (5.0 if k == "a" else 7.0)

        return wrapper

    return decorate(lambda x: np.sum(x))


@pair(0, 1)
def wrapped_function_that_is_called(k: Any) -> Any:
    def wrapper(x: Any) -> Any:
        return wrapper.__wrapped__(x)  # type: ignore[attr-defined]

    wrapper.__wrapped__ = (lambda x: np.sum(x) * 5.0, lambda x: np.sum(x) * 7.0)[k]  # type: ignore[attr-defined]
    return wrapper


@pair(2.0, 3.0)
def argument_of_a_partial(k: Any) -> Any:
    return functools.partial(lambda scale, x: np.sum(x) * scale, k)


@pair("a", "b")
def keyword_of_a_partial(k: Any) -> Any:
    def f(x: Any, mode: str) -> Any:
        return np.sum(x) * (5.0 if mode == "a" else 7.0)

    return functools.partial(f, mode=k)


class Model:
    def __init__(self, mode: Any, scale: float = 2.0) -> None:
        self.mode, self.scale = mode, scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model)

    def __hash__(self) -> int:
        return 1

    def loss(self, x: Any) -> Any:
        return np.sum(x) * self.scale * (5.0 if self.mode == "a" else 7.0)

    def __call__(self, x: Any) -> Any:
        return self.loss(x)


class Other(Model):
    def loss(self, x: Any) -> Any:
        return np.sum(x) * 11.0


@pair("a", "b")
def method_of_an_equal_object(k: Any) -> Any:
    return Model(k).loss


@pair(2.0, 3.0)
def method_of_an_object_with_another_number(k: Any) -> Any:
    return Model("a", k).loss


@pair(Model, Other)
def method_of_another_class(k: Any) -> Any:
    return k("a").loss


@pair("a", "b")
def object_that_is_called(k: Any) -> Any:
    return Model(k)


@pair(Model, Other)
def object_in_a_cell(k: Any) -> Any:
    model = k("b")
    return lambda x: model.loss(x)


@pair("a", "b")
def object_in_an_object(k: Any) -> Any:
    held = SimpleNamespace(inner=SimpleNamespace(mode=k))
    return lambda x: np.sum(x) * (5.0 if held.inner.mode == "a" else 7.0)


@pair("a", "b")
def list_that_changes_in_place(k: Any) -> Any:
    modes.append(k)
    held = modes
    return lambda x: np.sum(x) * (5.0 if held[-1] == "a" else 7.0) * len(held)


modes: Final[list[str]] = []


@pair(False, True)
def cell_that_two_functions_share(k: Any) -> Any:
    """One of two functions assigns to a variable that the other one reads, or to another variable."""

    def two() -> tuple[Any, Any]:
        state = 1.0

        def write(value: float) -> None:
            nonlocal state
            state = value

        return write, lambda: state

    write, read = two()
    if k:
        _, read = two()

    def f(x: Any) -> Any:
        write(3.0)
        result = np.sum(x) * read()
        write(1.0)
        return result

    return f


@pair(0, 1)
def one_array_in_two_cells(k: Any) -> Any:
    a = np.ones(3)
    b = a if k else np.arange(3.0)
    return lambda x: np.sum(x * a) + 2.0 * np.sum(x * b)


@pair(0, 1)
def empty_cell(k: Any) -> Any:
    def f(x: Any) -> Any:
        try:
            return np.sum(x) * later
        except NameError:
            return np.sum(x) * 7.0

    if k:
        later = 3.0
    return f


@pair(1, 2)
def jitted_function_in_a_cell(k: Any) -> Any:
    helper = gt.jit(lambda x: np.sum(x**k))
    return lambda x: helper(x)


@pair("a", "b")
def class_made_with_it(k: Any) -> Any:
    class Local:
        mode = k

        def loss(self, x: Any) -> Any:
            return np.sum(x) * (5.0 if self.mode == "a" else 7.0)

    return Local().loss


@pair(2, 3)
def int_that_is_converted(k: Any) -> Any:
    return lambda x: np.sum(x) * float(k)


@pair(2, 3)
def int_that_counts(k: Any) -> Any:
    def f(x: Any) -> Any:
        for _ in range(k):
            x = np.sin(x)
        return np.sum(x)

    return f


WAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "jit": lambda f: gt.jit(f)(X),
    "grad": lambda f: gt.grad(f)(X),
    "value_and_grad": lambda f: gt.value_and_grad(f)(X),
    "jacobian": lambda f: gt.jacobian(f)(X),
    "hessian": lambda f: gt.hessian(f)(X),
    "vmap": lambda f: gt.vmap(f)(np.stack([X, 2 * X])),
    "jvp": lambda f: gt.jvp(f, (X,), (2 * X,)),
    "vjp": lambda f: gt.vjp(f, X)[1](2.0),
    "linearize": lambda f: gt.linearize(f, X)[1](2 * X),
    "nested": lambda f: gt.jit(lambda p: {"y": f(p["x"])})({"x": X})["y"],
}


def _flat(result: Any) -> Any:
    return np.concatenate([np.ravel(part) for part in (result if isinstance(result, tuple) else (result,))])


@pytest.mark.filterwarnings("ignore::gradtape.errors.SideEffectWarning")
# gt.vmap refuses functions that write to variables outside
@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for name in PAIRS
        for way in WAYS
        if (name, way) != ("cell_that_two_functions_share", "vmap")
    ],
)
def test_functions_of_one_code_that_differ_give_what_each_gives_alone(name: str, way: str) -> None:
    make, first, second = PAIRS[name]
    for k in (first, first, first, second, first, second, second, first):
        sharing_count = len(modes)
        shared = WAYS[way](make(k))
        families = sharing._families._entries
        sharing._families._entries = {}
        del modes[sharing_count:]
        alone = WAYS[way](make(k))
        sharing._families._entries = families
        # what is recorded rounds otherwise than what is compiled
        digits = 1e-13 if way in ("jvp", "vjp", "linearize") else 0.0
        np.testing.assert_allclose(_flat(shared), _flat(alone), digits, 0.0, err_msg=f"{name} {way} {k}")


@pytest.mark.parametrize("name", PAIRS)
def test_the_pairs_differ(name: str) -> None:
    make, first, second = PAIRS[name]
    modes.clear()
    wanted = [float(make(k)(X)) for k in (first, second)]
    assert wanted[0] != wanted[1]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_made_at_each_call_of_one_function_is_traced_twice(way: str) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x)

    wanted = _flat(WAYS[way](f))
    with traces_of() as traces:
        for _ in range(6):
            np.testing.assert_allclose(_flat(WAYS[way](f)), wanted, rtol=1e-12)
    # behind the first call, which nobody knew to be one of many
    assert len(traces) == (2 if way in ("vjp", "linearize") else 1)


@pytest.mark.parametrize("way", WAYS)
def test_functions_made_at_each_call_are_traced_twice(way: str) -> None:
    def f(x: Any, k: Any) -> Any:
        return np.sum(np.sin(x) * k)

    with traces_of() as traces:
        for k in range(6):
            number = float(k)
            shared = WAYS[way](lambda x: f(x, number))
            np.testing.assert_allclose(_flat(shared), _flat(WAYS[way](functools.partial(f, k=number))))
    assert len(traces) <= 5


def test_a_loop_that_keeps_the_last_function_shares_its_program() -> None:
    with traces_of() as traces:
        for k in range(8):
            number = float(k)
            gradient = gt.grad(lambda x: np.sum(x**2) * number)
            np.testing.assert_array_equal(gradient(X), 2 * X * number)
    assert len(traces) == 3


def test_functions_that_are_kept_have_programs_of_their_own() -> None:
    kept = [gt.grad(PAIRS["float_in_a_cell"][0](float(k))) for k in range(4)]
    for k, gradient in enumerate(kept):
        np.testing.assert_array_equal(gradient(X), 2 * X * k)
    assert [gradient.site.traces for gradient in kept] == [1] * 4


def test_a_function_that_is_called_again_has_machine_code_of_the_shared_program() -> None:
    make = PAIRS["float_in_a_cell"][0]
    for _ in range(3):
        gt.grad(make(2.0))(X)
    gradient = gt.grad(make(3.0))
    for _ in range(4):
        np.testing.assert_array_equal(gradient(X), 6 * X)
    assert gradient.site.traces == 0
    assert gradient.entry and len(gradient.site.specialisations()) == 1
    np.testing.assert_array_equal(gradient(X[:2]), 6 * X[:2])
    np.testing.assert_array_equal(gradient(X), 6 * X)


def test_machine_code_answers_nested_arguments_beside_functions_and_static_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(k: float) -> Any:
        return gt.jit(lambda p: p["x"] * k)

    power = gt.jit(lambda p, k: p["x"] ** k, static_argnums=1)
    for k in (2.0, 3.0, 4.0):
        np.testing.assert_array_equal(made(k)({"x": X}), X * k)
        np.testing.assert_array_equal(power({"x": X}, int(k)), X**k)
    shared = made(5.0)
    shared({"x": X})

    def refuse(*_: Any) -> Any:
        raise AssertionError("a call was answered in Python")

    monkeypatch.setattr(CallSite, "_answer", refuse)
    np.testing.assert_array_equal(shared({"x": 2 * X}), X * 10)
    np.testing.assert_array_equal(power({"x": 2 * X}, 4), (2 * X) ** 4)
    monkeypatch.undo()
    for exponent in (3, 4.0, True, np.float32(2)):
        np.testing.assert_allclose(power({"x": X}, exponent), X**exponent)
        assert power({"x": X}, exponent).dtype == (X**exponent).dtype


def test_what_changes_after_machine_code_is_bound_is_checked() -> None:
    def make() -> tuple[Any, Any]:
        scale: Any = 2.0
        mode = "a"

        def f(x: Any) -> Any:
            return np.sum(np.sum(x) * scale) * (1.0 if mode == "a" else 10.0)

        def change(new: Any, new_mode: str) -> None:
            nonlocal scale, mode
            scale, mode = new, new_mode

        return f, change

    for _ in range(3):
        gt.grad(make()[0])(X)
    f, change = make()
    gradient = gt.grad(f)
    for new, mode in ((2.0, "a"), (3.0, "a"), (3.0, "b"), (np.arange(3.0), "b"), (2.0, "a")):
        change(new, mode)
        for _ in range(3):
            factor = (1.0 if mode == "a" else 10.0) * np.sum(new)
            np.testing.assert_array_equal(gradient(X), np.full(3, factor))
    mode = scale = 0.0
    f.__code__ = (lambda x: np.sum(x) * 4.0 + mode + scale).__code__
    change(0.0, 0.0)
    np.testing.assert_array_equal(gradient(X), np.full(3, 4.0))


def test_side_effects_are_those_of_every_call() -> None:
    seen: list[int] = []

    def f(x: Any, k: int) -> Any:
        seen.append(k)
        return np.sum(x) * k

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(6):
            gt.grad(lambda x: f(x, k))(X)
    assert seen == list(range(6))


def test_an_error_is_that_of_the_function_and_comes_each_time() -> None:
    seen: list[int] = []

    def make(k: int) -> Any:
        def f(x: Any) -> Any:
            seen.append(k)
            if k > 2:
                raise ValueError(f"{k} is too large")
            return np.sum(x) * k

        return f

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            gt.grad(make(k))(X)
        for k in range(3, 6):
            with pytest.raises(ValueError, match=f"{k} is too large"):
                gt.grad(make(k))(X)
    assert seen == [0, 1, 2]  # a call that raises an error writes nothing


def test_bad_arguments_are_named_as_of_the_function() -> None:
    make = PAIRS["float_in_a_cell"][0]
    for _ in range(3):
        gt.grad(make(2.0))(X)
    for bad in ("text", np.array([1, 2]), object()):
        messages = []
        for _ in range(2):
            with pytest.raises(Exception) as caught:
                gt.grad(make(2.0))(bad)
            messages.append(str(caught.value).partition("\n")[0])
            sharing.clear()
        assert messages[0] == messages[1]


@pytest.mark.parametrize("transform", [gt.jit, gt.grad, gt.value_and_grad])
def test_messages_name_the_function_that_is_called(transform: Any) -> None:
    def named(name: str) -> Any:
        def f(x: Any) -> Any:
            return np.sum(x * x)

        f.__name__ = name
        return transform(f)

    for number in range(4):
        named(f"double{number}")(X)
    named("a")(X)  # a letter of the names of the transforms
    with pytest.warns(gt.errors.CompileWarning, match=r"\bhalf0\b.* could not be compiled") as caught:
        named("half0")(X.astype(np.float16))
    assert len(caught) == 1


def test_random_numbers_are_drawn_at_each_call() -> None:
    rng = np.random.default_rng(1)
    other = np.random.default_rng(1)
    for _ in range(6):
        found = gt.grad(lambda x: np.sum(x * rng.normal(size=3)))(X)
        np.testing.assert_array_equal(found, other.normal(size=3))


def test_tapes_and_other_transforms_see_through_functions_that_share() -> None:
    make = PAIRS["float_in_a_cell"][0]
    for k in (2.0, 3.0, 4.0, 5.0):
        with gt.GradientTape() as tape:
            x = gt.Variable(X)
            y = np.sum(gt.grad(make(k))(x))
        np.testing.assert_allclose(tape.gradient(y, x), np.full(3, 2 * k))
        np.testing.assert_allclose(gt.hessian(lambda z: gt.jit(make(k))(z))(X), 2 * k * np.eye(3))
        np.testing.assert_allclose(gt.vmap(gt.grad(make(k)))(np.stack([X, X])), 2 * k * np.stack([X, X]))


def test_results_are_written_to_arrays() -> None:
    make, out = PAIRS["float_in_a_cell"][0], np.empty(3)
    for k in (2.0, 3.0, 4.0, 5.0):
        assert gt.grad(make(k))(X, out=out) is out
        np.testing.assert_array_equal(out, 2 * k * X)


def test_settings_hold_for_functions_that_share() -> None:
    make = PAIRS["int_that_counts"][0]
    for loops in ("trace", "auto", "trace", "auto"):
        with gt.config.override(loops=loops):
            for _ in range(2):
                assert float(gt.jit(make(2))(X)) == pytest.approx(float(np.sum(np.sin(np.sin(X)))))


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_no_program_keeps_the_arrays_of_a_function(size: int) -> None:
    def make() -> tuple[Any, list[weakref.ref[Any]]]:
        data, indices = np.ones(size), np.arange(size) % 3
        model = Model("a", 2.0)
        model.data = data  # type: ignore[attr-defined]
        f = lambda x: np.sum(x[indices] * data) + model.loss(x)  # noqa: E731
        return f, [weakref.ref(data), weakref.ref(model), weakref.ref(f)]

    for _ in range(5):
        f, held = make()
        gt.grad(f)(X)
        gradient = gt.value_and_grad(f)
        for _ in range(4):
            gradient(X)
        del f, gradient
        gc.collect()
        assert [each() for each in held] == [None] * 3


def test_programs_with_large_constants_are_not_kept() -> None:
    class Table:
        def __init__(self) -> None:
            self.values = np.arange(30_000)

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    for _ in range(4):
        table = Table()
        assert gt.grad(lambda x: np.sum(x * table.values[:3]))(X).tolist() == [0.0, 1.0, 2.0]
    (family, _), *_ = sharing._families._entries.values()
    assert family.program is None or not family.program.site.specialisations()


def test_the_number_of_shared_programs_is_bounded() -> None:
    with gt.config.override(memory_cache=4):
        for number in range(12):
            space: dict[str, Any] = {"np": np}
            exec(f"def f(x): return np.sum(x) * {number}.0", space)
            for _ in range(3):
                assert gt.grad(space["f"])(X).tolist() == [number] * 3
        assert len(sharing._families) <= 4
    assert sharing.clear() <= 4


def test_threads_share_programs() -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for k in range(60):
            number = float(seed * 100 + k)
            found = gt.grad(lambda x: np.sum(x**2) * number)(X)
            if not np.array_equal(found, 2 * X * number):
                wrong.append((number, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _maps(f: Any, x: Any, seeds: Any, tangents: Any) -> list[Any]:
    y, pullback = gt.vjp(f, x)
    z, push = gt.linearize(f, x)
    w, moved = gt.jvp(f, (x,), (tangents,))
    return [y, pullback(seeds)[0], pullback(2 * seeds)[0], z, push(tangents), push(2 * tangents), w, moved]


MAPS: Final[dict[str, Callable[[Any], Any]]] = {
    "sqrt": np.sqrt,
    "where": lambda x: np.where(x > 0, 1 / x, x),
    "norm": lambda x: np.sqrt(np.sum(x**2)) * x,
    "product": lambda x: np.outer(x, x) @ x,
    "constant": lambda x: np.ones(3),
    "identity": lambda x: x,
    "branch": lambda x: 2 * x if np.sum(x) > 0 else -x,
    "loop": lambda x: functools.reduce(lambda y, _: np.sin(y) * x, range(40), x),
    "prefix": np.cumprod,
    "integers": lambda x: x.astype(int) * 1.0,
    "arctan2": lambda x: np.arctan2(x, x[::-1]),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MAPS)
def test_linear_maps_of_programs_are_those_of_recordings(name: str) -> None:
    f = MAPS[name]
    points = [0.0, 0.0, 0.0], [0.0, 1.0, np.inf], [np.nan, 0.0, -1.0], [0.3, 0.1, 0.7]
    for x in map(np.array, points):
        for seeds in map(np.array, ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.0, 1.0, 0.0])):
            sharing.clear()
            recorded = _maps(f, x, seeds, seeds)
            for _ in range(3):
                kept = _maps(f, x, seeds, seeds)
            for one, other in zip(recorded, kept, strict=True):
                assert one.shape == other.shape and one.dtype == other.dtype
                np.testing.assert_allclose(other, one, rtol=1e-12, atol=0)
    assert all(not entry[0].program.site.refused for entry in sharing._families._entries.values())


def test_a_pullback_stays_what_it_was_when_it_was_made() -> None:
    scale, weights, x = 2.0, np.array([1.0, 2.0, 3.0]), X.copy()
    for _ in range(3):
        scale, weights[:], x[:] = 2.0, (1.0, 2.0, 3.0), X
        _, pullback = gt.vjp(lambda z: np.sum(z**2 * weights) * scale, x)
        _, push = gt.linearize(lambda z: np.sum(z**2 * weights) * scale, x)
        scale, weights[:], x[:] = 5.0, 0.0, 0.0
        np.testing.assert_allclose(pullback(1.0)[0], 4 * X * [1.0, 2.0, 3.0])
        assert float(push(X)) == pytest.approx(float(np.sum(4 * X**2 * [1.0, 2.0, 3.0])))


def test_seeds_of_pullbacks_are_differentiated() -> None:
    def f(x: Any) -> Any:
        return np.sqrt(x) * x[::-1]

    for _ in range(3):
        _, pullback = gt.vjp(f, X)
        _, push = gt.linearize(f, X)
        jacobian = gt.jacobian(f)(X)
        zero = np.array([0.0, 1.0, 0.0])
        np.testing.assert_allclose(gt.jacobian(lambda v: pullback(v)[0])(zero), jacobian.T)
        np.testing.assert_allclose(gt.jacobian(push)(zero), jacobian)
        with gt.GradientTape() as tape:
            seed = gt.Variable(zero)
            total = np.sum(pullback(seed)[0])
        np.testing.assert_allclose(tape.gradient(total, seed), jacobian.T.sum(axis=0))
        np.testing.assert_allclose(gt.jit(lambda v: pullback(v)[0])(zero), jacobian.T @ zero)
        np.testing.assert_allclose(gt.vmap(lambda v: pullback(v)[0])(np.eye(3)), jacobian)


def test_nests_aux_and_several_primals() -> None:
    def f(p: Any, k: Any) -> Any:
        return {"a": np.sum(p["w"] * k), "b": (p["w"] ** 2, p["b"])}, {"note": "text", "sum": np.sum(k)}

    p = {"w": X, "b": 2.0}
    ct = {"a": 1.0, "b": (np.ones(3), 3.0)}
    for _ in range(4):
        y, pullback, aux = gt.vjp(f, p, 3.0, has_aux=True)
        assert float(y["a"]) == 21.0 and aux["note"] == "text" and float(aux["sum"]) == 3.0
        by_p, by_k = pullback(ct)
        np.testing.assert_array_equal(by_p["w"], 3.0 + 2 * X)
        assert (float(by_p["b"]), float(by_k)) == (3.0, 7.0)
        _, push, _ = gt.linearize(f, p, 3.0, has_aux=True)
        moved = push({"w": X, "b": 1.0}, 0.0)
        assert (float(moved["a"]), float(moved["b"][1])) == (21.0, 1.0)
        _, tangent, _ = gt.jvp(f, (p, 3.0), ({"w": X, "b": 1.0}, 0.0), has_aux=True)
        assert float(tangent["a"]) == 21.0


@pytest.mark.parametrize("convention", ["jax", "tensorflow"])
def test_conventions_of_complex_cotangents(convention: Any) -> None:
    for _ in range(4):
        _, pullback = gt.vjp(lambda z: z**2, 1.0 + 2.0j, convention=convention)
        assert complex(pullback(1.0 + 0.0j)[0]) == (2 + 4j if convention == "jax" else 2 - 4j)


def test_errors_of_linear_maps_are_those_of_recordings() -> None:
    def messages() -> list[str]:
        _, pullback = gt.vjp(np.sin, X)
        _, push = gt.linearize(np.sin, X)
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: pullback(np.ones(2)),
            lambda: pullback(np.ones(3) * 1j),
            lambda: pullback((X, X)),
            lambda: push(np.ones(2)),
            lambda: push(X, X),
            lambda: gt.vjp(np.sin, np.arange(3)),
            lambda: gt.jvp(np.sin, (X,), (np.ones(2),)),
            lambda: gt.jvp(np.sin, (X,), (X, X)),
            lambda: gt.jvp(np.sin, (np.arange(3),), (X,)),
        )
        found = []
        for attempt in attempts:
            with pytest.raises(gt.errors.GradtapeError) as caught:
                attempt()
            found.append(str(caught.value))
        return found

    first = messages()
    assert messages() == messages() == first


def test_a_pullback_of_a_program_is_pickled() -> None:
    for _ in range(3):
        _, pullback = gt.vjp(lambda x: x**2, X)
        _, push = gt.linearize(lambda x: x**2, X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pullback))(X)[0], 2 * X**2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(push))(X), 2 * X**2)


def test_rules_of_the_user_are_called() -> None:
    @gt.custom_gradient
    def doubled(x: Any) -> Any:
        return 2 * x, lambda upstream: upstream * 10.0

    for _ in range(4):
        np.testing.assert_array_equal(
            gt.vjp(lambda x: doubled(x) * 1.0, X)[1](np.ones(3))[0], np.full(3, 10.0)
        )


def test_branches_have_linear_maps_of_their_own() -> None:
    def f(x: Any) -> Any:
        return 2 * x if x[0] > 0 else x**2

    for sign in (1, -1, 1, -1, -1, 1):
        x = sign * X
        wanted = np.full(3, 2.0) if sign > 0 else 2 * x
        np.testing.assert_array_equal(gt.vjp(f, x)[1](np.ones(3))[0], wanted)
        np.testing.assert_array_equal(gt.linearize(f, x)[1](np.ones(3)), wanted)


def test_threads_that_meet_before_the_first_trace_have_their_own_function(monkeypatch: Any) -> None:
    """The capture of one thread's function was traced for the other one's call, whose result was that of the first."""
    functions = [_times(float(number)) for number in range(4)]
    sharing.clear()
    gt.grad(functions[0])(X)
    gt.grad(functions[1])  # the second one gives the family a program
    barrier, before = threading.Barrier(2), SharedSite._answer

    def meet(site: Any, call: Any, captured: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=5)
        return before(site, call, captured)

    monkeypatch.setattr(SharedSite, "_answer", meet)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = gt.grad(functions[number])(X)

    threads = [threading.Thread(target=work, args=(number,)) for number in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: list(value) for number, value in found.items()} == {k: list(2 * X * k) for k in (2, 3)}


def _times(number: float) -> Any:
    return lambda x: np.sum(x**2) * number


def test_a_transform_that_is_made_at_the_call_makes_nothing_but_the_call(monkeypatch: Any) -> None:
    """Once functions of one code share a program, the gradient of another one is completed when it is asked for more than results."""
    sharing.clear()
    for number in range(3):
        gt.grad(_times(float(number)))(X)
    completed = []
    before = CallSite.__init__
    monkeypatch.setattr(CallSite, "__init__", lambda *args: (completed.append(args[0]), before(*args))[1])
    for number in range(5):
        assert gt.grad(_times(float(number)))(X).tolist() == (2 * X * number).tolist()
    assert not completed
    gradient = gt.grad(_times(3.0))
    assert gradient.__module__ == __name__ and gradient.__doc__ is None
    assert gradient.__name__ == "grad(<lambda>)" and len(completed) == 2
    assert repr(gradient) == "<gradtape.jit of grad(<lambda>): 0 traces>"
    assert gradient(X).tolist() == (2 * X * 3).tolist()
    assert len(gradient.site.specialisations()) == 1
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gradient.nothing  # noqa: B018


def test_a_kept_function_of_a_shared_program_is_completed_once() -> None:
    sharing.clear()
    for number in range(3):
        gt.grad(_times(float(number)))(X)
    gradient = gt.grad(_times(5.0))
    assert [gradient(X).tolist() for _ in range(4)] == [(2 * X * 5).tolist()] * 4
    site = gradient.site
    assert gradient.site is site and len(site.specialisations()) == 1
    assert gt.grad(_times(7.0), argnums=(0,))(X)[0].tolist() == (2 * X * 7).tolist()
    assert gt.grad(gradient)(X[0]) == 10.0


@pytest.mark.parametrize("kind", ["method", "partial", "jit"])
def test_methods_and_partials_that_are_made_anew_share_programs_without_a_site(
    kind: str, monkeypatch: Any
) -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def loss(self, x: Any) -> Any:
            return np.sum(x**2) * self.scale

    def loss(x: Any, scale: float) -> Any:
        return np.sum(x**2) * scale

    def value(number: float) -> Any:
        if kind == "method":
            return gt.grad(Model(number).loss)(X)
        if kind == "partial":
            return gt.grad(functools.partial(loss, scale=number))(X)
        return gt.jit(_times(number))(X)

    def expected(number: float) -> Any:
        return np.sum(X**2) * number if kind == "jit" else 2 * X * number

    sharing.clear()
    for number in (1.0, 2.0, 3.0):
        assert np.array_equal(value(number), expected(number))
    completed: list[Any] = []
    before = CallSite.__init__
    monkeypatch.setattr(CallSite, "__init__", lambda *args: (completed.append(args[0]), before(*args))[1])
    for number in (4.0, 5.0, 6.0):
        assert np.array_equal(value(number), expected(number))
    assert not completed


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale, self.shift, self.options = scale, X * scale, {"weight": scale}

    def loss(self, x: Any) -> Any:
        return np.sum((x * self.scale + self.shift) ** 2) * self.options["weight"]


HELD: Final = SimpleNamespace(model=Scaled(1.0))
CHANGING: Final[dict[str, Callable[[Scaled], Any]]] = {
    "grad of a method": lambda model: gt.grad(model.loss)(X),
    "value_and_grad of a lambda": lambda model: gt.value_and_grad(lambda x: model.loss(x))(X)[1],
    "vjp of a lambda": lambda model: gt.vjp(lambda x: model.loss(x), X)[1](1.0)[0],
    "kept, argument": lambda model: BY_ARGUMENT(X, model),
    "kept, captured": lambda model: (setattr(HELD, "model", model), BY_CAPTURE(X))[1],
}
BY_ARGUMENT: Final = gt.grad(lambda x, model: model.loss(x))
BY_CAPTURE: Final = gt.grad(lambda x: HELD.model.loss(x))


@pytest.mark.parametrize("case", CHANGING)
def test_calls_with_changing_objects_are_traced_no_more_and_keep_nothing(case: str, monkeypatch: Any) -> None:
    gradient = CHANGING[case]
    attempts: list[Any] = []
    before = Tracer._attempt
    for number in range(20):
        gradient(Scaled(float(number)))
    monkeypatch.setattr(Tracer, "_attempt", lambda *args: (attempts.append(1), before(*args))[1])
    kept: weakref.WeakSet[Scaled] = weakref.WeakSet()
    for number in range(1, 301):
        model = Scaled(float(number))
        kept.add(model)
        found = gradient(model)
        assert np.allclose(found, 2 * number**2 * (X * number + X * number), rtol=1e-13)
    del model
    gc.collect()
    assert not attempts and len(kept) <= 2


def test_traces_of_functions_made_anew_that_never_match_again_are_said() -> None:
    x = np.ones(3)

    def call() -> Any:
        lock = threading.Lock()

        def locked(p: Any) -> Any:
            with lock:
                return np.sum(p * p)

        return gt.grad(locked)(x)

    with pytest.warns(
        gt.errors.TraceLimitWarning, match="3 traces that can never be reused.*closure variable 'lock'"
    ) as caught:
        for _ in range(12):
            np.testing.assert_array_equal(call(), 2 * x)
    assert len(caught) == 1


def test_what_changes_in_functions_made_anew_is_said_at_the_limit_of_traces() -> None:
    def call(name: str) -> Any:
        return gt.grad(lambda p: np.sum(p * len(name)))(np.ones(3))

    with pytest.warns(
        gt.errors.TraceLimitWarning, match="because the closure variable 'name' of <lambda> changes"
    ) as caught:
        for k in range(14):
            np.testing.assert_array_equal(call("n" * k), np.full(3, k))
    assert len(caught) == 1
