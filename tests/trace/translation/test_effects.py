"""What a function does besides returning its result, in each way of running it: as plain Python does it, or an error or warning says so.

Nothing is lost in silence, but for what `STATED` names, with the page that says it.
"""

from __future__ import annotations

import collections
import copy
import functools
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import GradtapeError, LeakedValueError, SideEffectWarning

XS = np.array([1.5, 2.0, 0.5])
EFFECTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {}


class Cell:
    made = 0

    def __init__(self) -> None:
        self.value, self.calls = 1.0, 0

    @functools.cached_property
    def basis(self) -> Any:
        self.calls += 1
        return 3.0

    def step(self, x: Any) -> Any:
        self.value = self.value * 0.5 + x
        return self.value


def effect(make: Callable[[], Any]) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Enter a function that changes what `make` makes."""

    def enter(write: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        EFFECTS[write.__name__] = make, write
        return write

    return enter


@effect(lambda: [1.0])
def append(s: Any, x: Any) -> Any:
    s.append(2.0 * x)
    return x * x


@effect(lambda: [1.0])
def append_constant(s: Any, x: Any) -> Any:
    s.append(2.0)
    return x * x


@effect(lambda: [1.0, 2.0, 3.0])
def list_slice(s: Any, x: Any) -> Any:
    s[1:] = [x, 2.0 * x]
    return x * s[0]


@effect(lambda: [1.0, 2.0])
def augmented_item(s: Any, x: Any) -> Any:
    s[1] += x
    return s[1] * x


@effect(lambda: [float(k) for k in range(12)])
def pop(s: Any, x: Any) -> Any:
    return x * s.pop()


@effect(lambda: [[1.0], 2.0])
def inner_list(s: Any, x: Any) -> Any:
    s[0].append(x)
    return x * s[1]


@effect(Cell)
def attribute(s: Any, x: Any) -> Any:
    s.value = 2.0 * x
    return x * x


@effect(Cell)
def counter(s: Any, x: Any) -> Any:
    s.calls += 1
    return x * x


@effect(Cell)
def method_with_state(s: Any, x: Any) -> Any:
    return s.step(x) * x


@effect(Cell)
def cached_property(s: Any, x: Any) -> Any:
    return s.basis * x


@effect(lambda: {"a": 1.0})
def dict_item(s: Any, x: Any) -> Any:
    s["a"] += x
    s["b"] = 2.0
    return x * s["a"]


@effect(lambda: {1})
def set_add(s: Any, x: Any) -> Any:
    s.add(len(s) + 1)
    return x * x


@effect(lambda: collections.deque([1.0], maxlen=3))
def deque(s: Any, x: Any) -> Any:
    s.append(x)
    return x * x


@effect(lambda: np.zeros(3))
def array_write(s: Any, x: Any) -> Any:
    s[0] += x
    return x * s[0]


@effect(lambda: np.zeros(3))
def array_augmented(s: Any, x: Any) -> Any:
    s += x
    return x * s[0]


@effect(lambda: np.zeros(4))
def view_write(s: Any, x: Any) -> Any:
    view = s[::2]
    view[:] = x
    return np.sum(view)


@effect(lambda: np.zeros(2))
def out(s: Any, x: Any) -> Any:
    np.multiply(np.ones(2), x, out=s)
    return np.sum(s)


@effect(lambda: np.array([3.0, 1.0, 2.0]))
def array_sort(s: Any, x: Any) -> Any:
    s.sort()
    return x * s[0]


@effect(lambda: np.zeros(2))
def copyto(s: Any, x: Any) -> Any:
    np.copyto(s, x)
    return np.sum(s)


@effect(lambda: {"a": np.zeros(2)})
def array_in_a_dict(s: Any, x: Any) -> Any:
    s["a"][0] += x
    return np.sum(s["a"])


@effect(lambda: np.random.default_rng(1))
def draw(s: Any, x: Any) -> Any:
    return x * s.normal()


@effect(lambda: random.Random(1))
def python_draw(s: Any, x: Any) -> Any:
    return x * s.random()


@effect(lambda: iter([float(k) for k in range(12)]))
def iterator(s: Any, x: Any) -> Any:
    return x * next(s)


@effect(io.StringIO)
def written_text(s: Any, x: Any) -> Any:
    print("called", file=s)
    return x * x


def captured(make: Callable[[], Any], write: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return a function that has captured what it changes, and what shows that."""
    state = make()
    return lambda x: write(state, x), lambda: state


def class_attribute() -> tuple[Any, Any]:
    class Made:
        count = 0

    def f(x: Any) -> Any:
        Made.count += 1
        return x * x

    return f, lambda: Made.count


def closure_variable() -> tuple[Any, Any]:
    total = 0.0

    def f(x: Any) -> Any:
        nonlocal total
        total = total + x
        return x * total

    return f, lambda: total


TOTAL = 0.0


def global_variable() -> tuple[Any, Any]:
    global TOTAL
    TOTAL = 0.0

    def f(x: Any) -> Any:
        global TOTAL
        TOTAL = TOTAL + x
        return x * TOTAL

    return f, lambda: TOTAL


def default() -> tuple[Any, Any]:
    def f(x: Any, log: Any = []) -> Any:  # noqa: B006
        log.append(x)
        return x * x

    return f, lambda: f.__defaults__[0]  # type: ignore[index]


def attribute_of_a_function() -> tuple[Any, Any]:
    def f(x: Any) -> Any:
        f.calls += 1  # type: ignore[attr-defined]
        return x * x

    f.calls = 0  # type: ignore[attr-defined]
    return f, lambda: f.calls  # type: ignore[attr-defined]


def bound_method() -> tuple[Any, Any]:
    log: list[Any] = []
    add = log.append

    def f(x: Any) -> Any:
        add(x)
        return x * x

    return f, lambda: log


MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    **{name: functools.partial(captured, *parts) for name, parts in EFFECTS.items()},
    **{
        make.__name__: make
        for make in (
            class_attribute,
            closure_variable,
            global_variable,
            default,
            attribute_of_a_function,
            bound_method,
        )
    },
}


def compiled_from_code(f: Any) -> Any:
    compiled = gt.jit(f)

    def call(*args: Any) -> Any:
        with gt.config.override(loops="compile"):
            return compiled(*args)

    return call


def with_a_loop(f: Any) -> Any:
    """A loop whose end depends on numbers is translated, and the function with it, where that is possible."""

    def g(*args: Any) -> Any:
        y, z = f(*args), args[-1]
        while z > 1.0:
            z = z / 2.0
        return y + 0.0 * z

    return gt.jit(g)


def on_a_tape(f: Any) -> Any:
    def call(*args: Any) -> Any:
        with gt.GradientTape() as tape:
            x = tape.watch(args[-1])
            y = f(*args[:-1], x)
        tape.gradient(y, x)
        return y

    return call


def value_of_grad(f: Any) -> Any:
    def call(*args: Any) -> Any:
        return gt.value_and_grad(f, argnums=len(args) - 1)(*args)[0]

    return call


def chosen(f: Any) -> Any:
    return lambda *args: gt.cond(args[-1] > 0.0, f, lambda *args: args[-1], *args)


EACH: dict[str, Callable[[Any], Any]] = {
    "jit": gt.jit,
    "grad": value_of_grad,
    "compiled from code": compiled_from_code,
    "with a loop": with_a_loop,
    "tape": on_a_tape,
    "jit on a tape": lambda f: on_a_tape(gt.jit(f)),
    "vjp": lambda f: lambda *args: gt.vjp(f, *args)[0],
    "checkpoint": gt.checkpoint,
    "jit of checkpoint": lambda f: gt.jit(gt.checkpoint(f)),
    "grad of checkpoint": lambda f: value_of_grad(gt.checkpoint(f)),
    "jit in jit": lambda f: gt.jit(lambda *args: gt.jit(f)(*args)),
    "cond": chosen,
    "jit of cond": lambda f: gt.jit(chosen(f)),
}
"""How a function is called once for each number."""

ON_CAPTURES: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: lambda x: gt.jvp(f, (x,), (1.0,))[0],
    "callback": lambda f: gt.jit(lambda x: gt.callback(lambda v: np.asarray(f(float(v))), 1.0, x)),
}

ALL: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda f, xs: gt.vmap(f)(xs),
    "vectorized_map": gt.vectorized_map,
    "map": gt.map,
    "scan": lambda f, xs: gt.scan(lambda c, x: (c, f(x)), 0.0, xs)[1],
    "jit of scan": lambda f, xs: gt.jit(lambda xs: gt.scan(lambda c, x: (c, f(x)), 0.0, xs)[1])(xs),
    "jit of fori_loop": lambda f, xs: gt.jit(
        lambda xs: gt.fori_loop(0, len(xs), lambda i, c: c + f(xs[i]), 0.0)
    )(xs),
    "jit of while_loop": lambda f, xs: gt.jit(
        lambda xs: gt.while_loop(lambda v: v[0] < len(xs), lambda v: (v[0] + 1, v[1] + f(xs[v[0]])), (0, 0.0))
    )(xs),
    "loop compiled from code": lambda f, xs: compiled_from_code(lambda xs: added_up(f, xs))(xs),
}
"""How a function is called for all numbers at once."""


def added_up(f: Any, xs: Any) -> Any:
    total = 0.0
    for k in range(len(xs)):
        total = total + f(xs[k])
    return total


ARRAYS = {"array_write", "array_augmented", "view_write", "out", "array_sort", "copyto", "array_in_a_dict"}
STATED: set[tuple[str, str]] = {
    # docs/reference/numpy.md: a += x of an ndarray and a watched array binds the name to an Array.
    *[("array_augmented", way) for way in ("tape", "jit on a tape", "vjp", "jvp", "cond", "map", "scan")],
    ("array_augmented", "vectorized_map"),
    # docs/how-to/random-numbers.md: the elements of gt.vmap share what is drawn.
    ("draw", "vmap"),
    ("draw", "vectorized_map"),
    # docs/reference/errors/SideEffectWarning.md: bodies run once, and what they print or consume is not watched outside of a trace.
    *[(name, way) for name in ("python_draw", "iterator", "written_text") for way in ("map", "scan")],
    *[(name, "vectorized_map") for name in ("python_draw", "iterator", "written_text")],
}


def shown(thing: Any) -> Any:
    """Return the content of what has been changed, as numbers."""
    if isinstance(thing, gt.Array | np.ndarray | float | np.floating):
        return np.round(np.asarray(thing).astype(float), 9).tolist()
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    if isinstance(thing, random.Random):
        return thing.getstate()
    if isinstance(thing, io.StringIO):
        return thing.getvalue()
    if isinstance(thing, dict):
        return [(key, shown(item)) for key, item in thing.items()]
    if isinstance(thing, list | collections.deque):
        return [shown(item) for item in thing]
    if hasattr(thing, "__next__"):
        return list(copy.copy(thing))
    return shown(vars(thing)) if isinstance(thing, Cell) else thing


def is_kept_or_told(run: Callable[[], Any], state: Callable[[], Any], wanted: Any) -> bool:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            run()
        except GradtapeError:
            return True
    try:
        return shown(state()) == wanted or any(one.category is SideEffectWarning for one in told)
    except LeakedValueError:
        return True


@pytest.mark.parametrize("way", [*EACH, *ON_CAPTURES])
@pytest.mark.parametrize("name", MAKERS)
def test_changes_of_what_is_captured(name: str, way: str) -> None:
    plain, plain_state = MAKERS[name]()
    for x in XS.tolist():
        plain(x)
    wanted = copy.deepcopy(shown(plain_state()))
    function, state = MAKERS[name]()

    def run() -> None:
        called = (EACH | ON_CAPTURES)[way](function)
        for x in XS.tolist():
            called(x)

    assert is_kept_or_told(run, state, wanted) is ((name, way) not in STATED)


@pytest.mark.parametrize("way", ALL)
@pytest.mark.parametrize("name", MAKERS)
def test_changes_of_what_is_captured_by_a_function_that_is_called_for_many(name: str, way: str) -> None:
    plain, plain_state = MAKERS[name]()
    for x in XS.tolist():
        plain(x)
    wanted = copy.deepcopy(shown(plain_state()))
    function, state = MAKERS[name]()
    kept = is_kept_or_told(lambda: ALL[way](function, XS.copy()), state, wanted)
    assert kept is ((name, way) not in STATED)


# docs/reference/numpy.md: the caller's arrays are never changed.
@pytest.mark.parametrize("way", EACH)
@pytest.mark.parametrize("name", sorted(EFFECTS.keys() - ARRAYS))
def test_changes_of_what_is_an_argument(name: str, way: str) -> None:
    make, write = EFFECTS[name]
    wanted, state = make(), make()
    for x in XS.tolist():
        write(wanted, x)

    def run() -> None:
        called = EACH[way](write)
        for x in XS.tolist():
            called(state, x)

    assert is_kept_or_told(run, lambda: state, shown(wanted))


def test_a_checkpointed_function_that_runs_again_sees_the_state_that_it_saw() -> None:
    cell = Cell()

    def f(x: Any) -> Any:
        return cell.step(x) ** 2 + cell.calls * x

    gradient = gt.grad(gt.checkpoint(f))
    for x, value in ((1.5, 1.0), (2.0, 2.0), (0.5, 3.0)):
        assert float(gradient(x)) == 2.0 * (0.5 * value + x)
        assert cell.value == 0.5 * value + x


def test_containers_that_a_branch_writes_to_are_returned() -> None:
    def doubled(s: Any, x: Any) -> Any:
        s["a"] = s["a"] * x
        return s

    def lost(s: Any, x: Any) -> Any:
        s["a"] = s["a"] * x
        return {"a": x}

    s = {"a": 3.0}
    assert gt.cond(True, doubled, lambda s, x: s, s, 2.0) == {"a": 6.0}
    with pytest.raises(gt.errors.InPlaceError, match=r"writes to operands\[0\]"):
        gt.cond(True, lost, lambda s, x: s, s, 2.0)
    assert s == {"a": 3.0}
