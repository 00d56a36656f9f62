"""What is no longer used is freed by reference counts alone, and caches keep nothing of the user's."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.lazy import force
from tests.support.compiled import forget_structures

N = 5_000
BYTES = 8 * N
X = np.linspace(0.1, 1.0, N)
PROGRAMS: dict[str, Callable[[], Any]] = {}

variable = gt.Variable(X.copy())


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


pytestmark = pytest.mark.usefixtures("others_set_aside")


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The collector is off, and what is compiled is compiled at once: before memory is measured."""
    monkeypatch.setattr(force, "SMALL_WORK", 0)
    monkeypatch.setattr(force, "WORK_PER_NODE", 0)
    forget_structures()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def curve(x):
    y = np.sin(x) * np.cos(x)
    return np.sum(y * y)


@program
def tape():
    with gt.GradientTape() as t:
        x = t.watch(X)
        loss = curve(x)
    return float(t.gradient(loss, x)[0])


@program
def tape_computed_inside():
    with gt.GradientTape() as t:
        x = t.watch(X)
        loss = curve(x)
        float(loss)
    return float(t.gradient(loss, x)[0])


@program
def tape_without_gradient():
    with gt.GradientTape() as t:
        float(curve(t.watch(X)))


@program
def persistent_tape():
    with gt.GradientTape(persistent=True) as t:
        x = t.watch(X)
        y = np.sin(x)
        loss = np.sum(y * y)
        float(loss)
    t.gradient(loss, x).numpy()
    t.gradient(y, x).numpy()


@program
def nested_tapes():
    with gt.GradientTape() as outer:
        x = outer.watch(X)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = np.sum(x**3)
        slope = np.sum(inner.gradient(y, x) ** 2)
        float(slope)
    outer.gradient(slope, x).numpy()


@program
def variable_updated():
    with gt.GradientTape() as t:
        loss = np.sum(variable * variable)
    variable.assign_sub(0.01 * t.gradient(loss, variable))
    float(loss)


@program
def variable_dropped():
    own = gt.Variable(X)
    with gt.GradientTape() as t:
        loss = np.sum(own * own)
    own.assign_sub(0.1 * t.gradient(loss, own))
    float(np.sum(own))


@program
def forward():
    x = gt.constant(X)
    with gt.ForwardAccumulator(x, gt.constant(X)) as directions:
        y = np.sum(np.sin(x) * x)
        float(y)
    float(directions.jvp(y))


@program
def pullback():
    _, pull = gt.vjp(lambda x: np.sin(x) * x, X)
    pull(X)


@program
def pullback_on_a_tape():
    with gt.GradientTape() as t:
        x = t.watch(X)
        y, pull = gt.vjp(lambda x: np.sin(x) * x, x)
        loss = np.sum(pull(y)[0])
        float(loss)
    t.gradient(loss, x).numpy()


@program
def pushforward():
    gt.jvp(lambda x: np.sin(x) * x, (X,), (X,))


@program
def jit_dropped():
    gt.jit(lambda x: np.sin(x) * x)(X)


@program
def jit_of_nests_dropped():
    f = gt.jit(lambda p: np.sum(np.sin(p["a"]) * p["b"]))
    f({"a": X, "b": X})
    f({"a": X, "b": X})


@program
def grad_with_branches_dropped():
    f = gt.grad(lambda x: x * x if x > 0 else x * 3)
    f(1.0)
    f(-1.0)


@program
def hvp():
    gt.hvp(lambda x: np.sum(x**3), (X,), (X,))


@program
def jacobian():
    with gt.GradientTape() as t:
        x = t.watch(X[:5])
        y = x * x
    t.jacobian(y, x).numpy()


@program
def vmap():
    gt.vmap(lambda x: np.sum(x * x))(np.ones((3, 4)))


@program
def loops():
    with gt.GradientTape() as t:
        x = t.watch(2.0)
        y = gt.fori_loop(0, 3, lambda i, c: c * x, x)
        z = gt.while_loop(lambda c: c < 100.0, lambda c: c * x, y)
        w = gt.cond(x > 0, lambda x: x * 2, lambda x: x * 3, z)
    float(t.gradient(w, x))


@program
def custom_gradient():
    weights = np.ones(N)

    @gt.custom_gradient
    def f(x):
        e = np.exp(x) * weights
        return e, lambda u: u * e * weights

    with gt.GradientTape() as t:
        x = t.watch(X)
        loss = np.sum(f(x))
        float(loss)
    t.gradient(loss, x).numpy()


@program
def custom_rules():
    @gt.custom_vjp
    def f(x):
        return np.sin(x)

    f.defvjp(lambda x: (np.sin(x), x), lambda r, c: (c * np.cos(r),))

    @gt.custom_jvp
    def g(x):
        return np.sin(x)

    g.defjvp(lambda p, t: (np.sin(p[0]), np.cos(p[0]) * t[0]))
    with gt.GradientTape() as t:
        x = t.watch(X)
        loss = np.sum(f(g(x)))
    t.gradient(loss, x).numpy()


@program
def checkpoint():
    with gt.GradientTape() as t:
        x = t.watch(X)
        loss = np.sum(gt.checkpoint(lambda x: np.sin(np.cos(x)))(x))
        float(loss)
    t.gradient(loss, x).numpy()


@program
def views_and_writes():
    with gt.GradientTape() as t:
        x = t.watch(X.reshape(2, -1))
        a, b = x.T, x[0]
        a[0] = 1.0
        b += x[1]
        loss = np.sum(a)
    t.gradient(loss, x).numpy()


@program
def preallocated():
    with gt.GradientTape() as t:
        x = t.watch(2.0)
        a, b, c = np.ones((4, N)), np.zeros(N), np.empty(N)
        a[1:][0] = x
        b[0] = x
        c[:] = 1.0
        a.T[0] = x
        loss = np.sum(a) + np.sum(b) + np.sum(c * x)
    float(t.gradient(loss, x))


@program
def gathers():
    with gt.GradientTape() as t:
        x = t.watch(np.ones((10, 3)))
        y = np.sum(x[[1, 2, 3]])
    str(t.gradient(y, x))


@program
def errors():
    with contextlib.suppress(ValueError), gt.GradientTape() as t:
        np.sum(t.watch(X))
        raise ValueError
    with contextlib.suppress(gt.errors.GradtapeError), gt.GradientTape() as t:
        t.watch(X) + np.ones(3)
    with contextlib.suppress(gt.errors.GradtapeError):
        t.gradient(t.watch(1.0), 1.0)


@program
def suspended_generator():
    def steps():
        with gt.GradientTape() as t:
            yield t.watch(X) * 2

    next(steps())


@program
def explained():
    with gt.GradientTape() as t:
        x = t.watch(X)
        y = np.sum(x)
    str(gt.debug.explain_gradient(t, y, x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_waits_for_the_cycle_collector(name):
    run = PROGRAMS[name]
    for _ in range(5):
        run()
    gc.collect()
    run()
    if not gc.collect():
        return
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(2):
            run()
        gc.collect()
        found = Counter(type(item).__qualname__ for item in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not found


def growth(run: Callable[[], Any], times: int = 8) -> float:
    """Return how many bytes a call leaves behind."""
    for _ in range(5):
        run()
    tracemalloc.start()
    try:
        run()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            run()
        return (tracemalloc.get_traced_memory()[0] - before) / times
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_leave_nothing_behind(name):
    assert growth(PROGRAMS[name]) < BYTES / 4


@pytest.mark.parametrize(
    ("look", "gradient", "persistent"),
    [
        (look, gradient, persistent)
        for look in ("never", "inside", "between", "after")
        for gradient in (True, False)
        for persistent in (True, False)
        if look != "never"
        or gradient > persistent  # what waits to be computed keeps what it is computed from
    ],
)
def test_a_loss_that_is_kept_does_not_keep_its_tape(look, gradient, persistent):
    kept = []

    def step():
        with gt.GradientTape(persistent=persistent) as t:
            x = t.watch(X)
            loss = curve(x)
            kept.append(loss)
            if look == "inside":
                float(loss)
        if look == "between":
            float(loss)
        if gradient:
            t.gradient(loss, x).numpy()
        if look == "after" or not gradient:
            float(loss)

    assert growth(step) < BYTES / 4
    assert all(float(loss) == float(kept[0]) for loss in kept)


@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("watch", [True, False])
def test_state_that_is_carried_from_tape_to_tape_does_not_keep_them(look, gradient, watch):
    state = gt.constant(X)

    def step():
        nonlocal state
        with gt.GradientTape() as t:
            w = t.watch(0.5)
            if watch:
                t.watch(state)
            state = np.sin(state * w) + state * 0.5
            loss = np.sum(state)
            if look:
                float(loss)
        if gradient:
            float(t.gradient(loss, w))
        float(loss)

    assert growth(step) < BYTES / 4


def test_what_a_gradient_that_is_missing_is_asked_about_is_kept_until_the_tape_goes():
    with gt.GradientTape() as t:
        x = t.watch(X)
        other = t.watch(1.0)
        loss = curve(x)
        float(loss)
    missing = t.gradient(loss, other)
    before = loss.value.is_made
    del t
    assert missing is None
    assert (before, loss.value.is_made) == (True, False)


class Weights(np.ndarray):
    """An array to which there are weak references."""


def weighted() -> tuple[Callable[..., Any], weakref.ref[Any]]:
    weights = np.ones(N).view(Weights)

    @gt.custom_gradient
    def f(x):
        return x * 2.0, lambda u: u * np.asarray(weights)

    return f, weakref.ref(weights)


def test_a_value_without_history_keeps_no_rule():
    f, weights = weighted()
    with gt.GradientTape() as t:
        x = t.watch(X)
        y = f(x)
    t.gradient(y, x).numpy()
    y.numpy()
    del f
    assert weights() is None


def test_looking_for_what_is_called_keeps_no_copy_of_the_local_variables():
    with gt.GradientTape() as t:
        x = t.watch(X)
        y = np.sum(x)
        assert np.isfinite(abs(float(y)))
    known = locals()
    with gt.GradientTape() as t:
        x = t.watch(X)
        assert np.isfinite(abs(float(np.sum(x))))
    assert known["y"] is y
    del known
    gone = weakref.ref(t)
    del t
    assert gone() is None


# Caches


def state_of_package() -> Iterator[tuple[str, Any]]:
    """Yield every global object of the package that is no class, module or plain function, with its name."""
    for name in sorted(sys.modules):
        if name.partition(".")[0] == "gradtape":
            for key, item in list(vars(sys.modules[name]).items()):
                skipped = isinstance(item, type | ModuleType | FunctionType)
                if not key.startswith("__") and not skipped:
                    yield f"{name}.{key}", item


def referents(item: Any) -> Iterable[Any]:
    """Return what an object holds; of a function what it encloses, and not its module."""
    if isinstance(item, FunctionType):
        return [cell.cell_contents for cell in item.__closure__ or () if cell != CellType()]
    return gc.get_referents(item)


def reachable(roots: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield what objects hold, and by which of them it was found."""
    seen: set[int] = set()
    for path, root in roots:
        ahead = [root]
        while ahead:
            for item in referents(ahead.pop()):
                if id(item) in seen or isinstance(item, type | ModuleType | FrameType | CodeType | str):
                    continue
                seen.add(id(item))
                if isinstance(item, dict) and "__name__" in item:  # what a module says, which it may keep
                    continue
                yield path, item
                ahead.append(item)


def large_arrays(roots: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the shapes of large arrays that objects hold; bytes are scratch memory, in a few blocks."""
    return [
        (path, item.shape)
        for path, item in reachable(roots)
        if isinstance(item, np.ndarray) and item.nbytes >= BYTES and item.dtype != np.uint8
    ]


def long_lists() -> list[Any]:
    """Return the lists and tuples of at least `N` items that the package holds."""
    found = [item for _, item in reachable(state_of_package()) if isinstance(item, tuple | list)]
    return [item for item in found if len(item) >= N]


def test_caches_keep_no_arrays():
    before = large_arrays(state_of_package())  # those of other tests, and what gradtape computed for itself
    for run in PROGRAMS.values():
        for _ in range(3):
            run()
    assert [found for found in large_arrays(state_of_package()) if found not in before] == []


@pytest.mark.parametrize("make", [list, tuple, lambda items: [list(items)] * 2])
def test_caches_keep_no_long_lists(make):
    def step():
        factors = make([float(k) for k in range(N)])
        with gt.GradientTape() as t:
            x = t.watch(X)
            y = np.sum(x * factors) + np.sum(np.take(x, make(range(N))))
        t.gradient(y, x).numpy()

    before = {id(item): item for item in long_lists()}  # of other tests
    lengths = {number: len(item) for number, item in before.items()}
    for _ in range(4):
        step()
    assert [len(item) for item in long_lists() if len(item) > lengths.get(id(item), 0)] == []


def branching(x):
    y = np.sin(x)
    for _ in range(3):
        y = y * np.sum(y)
        if np.sum(y) > 1e9:
            break
    return np.sum(y) if np.max(y) > 0 else np.sum(x**2)


@pytest.mark.parametrize("transform", [gt.jit, gt.grad])
def test_a_compiled_function_keeps_no_numbers_of_the_calls_that_it_traced(transform):
    function = transform(branching)
    function(X)
    function(0 * X)
    assert function.site.traces == 2
    assert large_arrays([("function", function)]) == []


@pytest.mark.parametrize("name", ["custom_gradient", "custom_rules", "checkpoint"])
def test_caches_keep_no_rules(name):
    rules: list[weakref.ref[Any]] = []
    begin = gt.kinds.control.Rule.__init__

    @functools.wraps(begin)
    def noted(self, *args):
        rules.append(weakref.ref(self))
        begin(self, *args)

    gt.kinds.control.Rule.__init__ = noted
    try:
        for _ in range(5):
            PROGRAMS[name]()
    finally:
        gt.kinds.control.Rule.__init__ = begin
    assert rules
    assert [rule for rule in rules if rule() is not None] == []


def scaled(k):
    @gt.custom_gradient
    def f(x):
        return x * 1.0, lambda u: u * k

    return f


BODIES = {
    "fori_loop": (lambda f, x: gt.fori_loop(0, 3, lambda i, c: f(c), x), 3),
    "scan": (lambda f, x: gt.scan(lambda c, _: (f(c), None), x, None, length=3)[0], 3),
    "while_loop": (lambda f, x: gt.while_loop(lambda c, n: n < 3, lambda c, n: (f(c), n + 1), (x, 0))[0], 3),
    "cond": (lambda f, x: gt.cond(x > 0, f, lambda x: x * 7.0, x), 1),
    "cond in a loop": (
        lambda f, x: gt.fori_loop(0, 2, lambda i, c: gt.cond(c > 0, f, lambda c: c * 7.0, c), x),
        2,
    ),
    "vmap": (lambda f, x: np.sum(gt.vmap(f)(x * np.ones(1))), 1),
    "checkpoint": (lambda f, x: gt.checkpoint(f)(x), 1),
}


@pytest.mark.parametrize("name", BODIES)
def test_rules_of_one_name_in_bodies_are_not_taken_for_each_other(name):
    run, power = BODIES[name]
    for k in (2.0, 3.0, 2.0, 5.0, 6.0, 7.0):
        with gt.GradientTape() as t:
            x = t.watch(2.0)
            y = run(scaled(k), x)
        assert float(t.gradient(y, x)) == k**power
        assert float(gt.grad(functools.partial(run, scaled(k)))(2.0)) == k**power
        two = gt.grad(lambda x, k=k: run(scaled(k), x) * run(scaled(k + 1), x))(2.0)
        assert float(two) == 2.0 * (k**power + (k + 1) ** power)
