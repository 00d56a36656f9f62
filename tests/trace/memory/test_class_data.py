"""Numbers, arrays and containers of classes are inputs as those of objects are: each call reads the class."""

from __future__ import annotations

import enum
import inspect
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import TraceLimitWarning
from gradtape.trace.patching.copies import ClassData

X = np.array([0.5, 1.5, 2.5])


class Shared:
    count = 0
    scale = 1.0
    table = np.ones(3)
    settings: ClassVar[dict[str, Any]] = {"rate": 0.5, "power": 2}
    parts: ClassVar[list[Any]] = [1.0, np.ones(3)]

    def by_object(self, x: Any) -> Any:
        return np.sum(x * self.table) * self.scale * self.settings["rate"] + self.count * np.sum(x**2)

    def by_type(self, x: Any) -> Any:
        return np.sum(x * type(self).table) * type(self).scale * type(self).settings["rate"]

    def by_class_of(self, x: Any) -> Any:
        return np.sum(x * self.__class__.parts[1]) * self.__class__.parts[0] * self.__class__.count

    @classmethod
    def by_class(cls, x: Any) -> Any:
        return np.sum(x * cls.table) * cls.settings["rate"] * cls.count

    @staticmethod
    def by_name(x: Any) -> Any:
        return np.sum(x ** Shared.settings["power"] * Shared.parts[1]) * Shared.scale + Shared.count * np.sum(
            x
        )


class Below(Shared):
    scale = 3.0

    def of_base(self, x: Any) -> Any:
        return np.sum(x * self.table) * super().scale * self.scale


def _changed(k: int) -> None:
    Shared.count = k
    Shared.scale = 1.0 + k
    if k % 2:
        Shared.table[1] = 2.0 * k
    else:
        Shared.table = np.arange(3.0) + k
    Shared.settings["rate"] = 0.25 * k
    Shared.parts[0] = 1.0 - k
    Shared.parts[1][2] = 4.0 * k
    Below.scale = 0.5 * k


READERS: dict[str, Callable[..., Any]] = {
    "an object": Shared().by_object,
    "its type": Shared().by_type,
    "its class": Shared().by_class_of,
    "the class": Shared.by_class,
    "its name": Shared.by_name,
    "an object of a subclass": Below().by_object,
    "the type of a subclass": Below().by_type,
    "a subclass": Below.by_class,
    "super": Below().of_base,
}

WAYS: dict[str, Callable[..., Any]] = {
    "jit": gt.jit,
    "grad": gt.grad,
    "forward": lambda f: gt.jit(lambda x: gt.jvp(f, (x,), (np.ones(3),))[1]),
    "hessian": gt.hessian,
    "vmap": lambda f: gt.vmap(lambda x: f(x * np.ones(3))),
}


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    yield
    Shared.count, Shared.scale, Shared.table = 0, 1.0, np.ones(3)
    Shared.settings, Shared.parts, Below.scale = {"rate": 0.5, "power": 2}, [1.0, np.ones(3)], 3.0


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("reader", list(READERS))
def test_what_a_class_holds_is_read_in_each_call(reader: str, way: str) -> None:
    f = READERS[reader]
    kept = WAYS[way](f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceLimitWarning)
        for k in range(10):
            _changed(k)
            np.testing.assert_allclose(kept(X), WAYS[way](lambda x: f(x))(X), rtol=1e-12)
            if way == "jit":
                np.testing.assert_allclose(kept(X), f(X), rtol=1e-12)


@pytest.mark.parametrize("way", ["jit", "grad"])
def test_numbers_that_change_stop_being_traced_anew(way: str) -> None:
    def f(x: Any) -> Any:
        return np.sum(x * Shared.table) * Shared.scale + Shared.count * np.sum(x)

    kept = WAYS[way](f)
    for k in range(12):
        _changed(k)
        kept(X)
    assert kept.site.traces <= 4


class Counter:
    calls = 0
    total = 0.0
    history: ClassVar[list[Any]] = []

    def step(self, x: Any) -> Any:
        type(self).calls += 1
        Counter.total = Counter.total + np.sum(x)
        self.history.append(Counter.total)
        return np.sum(x) * self.calls + self.total

    def __init__(self) -> None:
        Counter.calls += 1


def test_what_a_function_writes_to_a_class_is_what_it_reads() -> None:
    Counter.calls, Counter.total, Counter.history = 0, 0.0, []
    kept = gt.jit(Counter().step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceLimitWarning)
        results = [float(kept(X * k)) for k in range(1, 12)]
    found = Counter.calls, Counter.total, [float(each) for each in Counter.history]
    Counter.calls, Counter.total, Counter.history = 0, 0.0, []
    counter = Counter()
    expected = [float(counter.step(X * k)) for k in range(1, 12)]
    assert results == pytest.approx(expected)
    assert found[0] == Counter.calls and found[1] == pytest.approx(Counter.total)
    assert found[2] == pytest.approx([float(each) for each in Counter.history])
    assert type(Counter.calls) is int and vars(Counter)["calls"] == 12


def test_objects_that_a_function_makes_are_counted() -> None:
    Counter.calls = 0
    kept = gt.grad(
        lambda x: np.sum(x**2) * (Counter().calls - Counter().calls + 1.0) + Counter.calls * np.sum(x)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceLimitWarning)
        for k in range(1, 10):
            np.testing.assert_array_equal(kept(X), np.full(3, 2.0 * k))
            assert Counter.calls == 2 * k


def test_a_branch_on_a_number_of_a_class_is_taken_in_each_call() -> None:
    kept = gt.jit(lambda x: np.sum(x) if Shared.count % 3 else np.sum(x**2))
    for k in range(9):
        Shared.count = k
        assert float(kept(X)) == pytest.approx(np.sum(X) if k % 3 else np.sum(X**2))


def test_other_threads_read_the_class_while_it_is_traced() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        reader = threading.Thread(target=lambda: seen.append((Shared.scale, Shared.table, Shared().settings)))
        reader.start()
        reader.join()
        return np.sum(x * Shared.table) * type(Shared()).scale * Shared.settings["rate"]

    table, settings = Shared.table, Shared.settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(4):
            Shared.scale = 2.0 + k
            gt.jit(f)(X)
    assert seen and all(type(scale) is float for scale, _, _ in seen)
    assert all(one is table and other is settings for _, one, other in seen)
    assert (
        vars(Shared)["table"] is table
        and vars(Shared)["settings"] is settings
        and type(vars(Shared)["scale"]) is float
    )


def test_threads_that_the_code_starts_read_the_class_in_each_call() -> None:
    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: np.sum(x * Shared.table) * Shared.settings["rate"]).result()

    kept, slope = gt.jit(f), gt.grad(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceLimitWarning)
        for k in range(4):
            Shared.table = np.ones(3)
            Shared.table[1] = k + 1.0
            Shared.settings["rate"] = 0.5 + k
            assert float(kept(X)) == pytest.approx(float(f(X)))
            np.testing.assert_allclose(slope(X), Shared.table * Shared.settings["rate"])
    Shared.settings["rate"] = 0.5


def test_members_that_a_function_lists_are_read_in_each_call() -> None:
    kept = gt.jit(lambda x: np.sum(x) * dict(inspect.getmembers(Shared))["scale"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceLimitWarning)
        for k in range(4):
            Shared.scale = 1.5 + k
            assert float(kept(X)) == pytest.approx(np.sum(X) * (1.5 + k))


class Lazy:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get__(self, thing: Any, cls: Any = None) -> Any:
        size = thing.__dict__[self.function.__name__] = self.function(thing)
        return size


class Sized:
    def __len__(self) -> int:
        return 3

    @Lazy
    def size(self) -> float:
        return len(self) * 1.0

    def scaled(self, x: Any) -> Any:
        return np.sum(x) * self.size


def test_descriptors_of_a_class_are_not_asked_without_an_object() -> None:
    sized = Sized()
    assert sized.size == 3.0
    assert float(gt.jit(sized.scaled)(X)) == pytest.approx(3.0 * np.sum(X))


def test_a_removal_that_is_interrupted_leaves_what_the_class_held(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Shared.table = np.ones(3)
    with monkeypatch.context() as patch:
        patch.setattr(ClassData, "remove", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            gt.jit(lambda x: np.sum(x * Shared.table))(X)
    assert Shared.table is table
    kept = gt.jit(lambda x: np.sum(x * Shared.table) * Shared.scale)
    for k in range(3):
        Shared.table[0], Shared.scale = k, k + 1.0
        assert float(kept(X)) == pytest.approx(np.sum(X * Shared.table) * (k + 1.0))
    assert vars(Shared)["table"] is table


def test_a_class_holds_its_own_again_after_an_error() -> None:
    table, settings = Shared.table, Shared.settings

    def f(x: Any) -> Any:
        y = x * Shared.table * Shared.settings["rate"]
        raise RuntimeError(y.shape)

    with pytest.raises(RuntimeError):
        gt.jit(f)(X)
    assert vars(Shared)["table"] is table and vars(Shared)["settings"] is settings


class Level(enum.Enum):
    LOW = 1.0
    HIGH = 2.0


def test_what_may_read_all_of_a_class_sees_it_as_it_is() -> None:
    kept = gt.jit(
        lambda x: np.sum(x * sum(v for v in vars(Shared).values() if type(v) is float)) * Level.HIGH.value
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceLimitWarning)
        for k in range(4):
            Shared.scale = 1.0 + k
            assert float(kept(X)) == pytest.approx(np.sum(X) * (1.0 + k) * 2.0)
