"""Programs that write to objects outside: each is a maker of a function of an array and a number, and of what it has written."""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import types
from typing import Any

import numpy as np

Program = tuple[Any, Any]
PROGRAMS: dict[str, Any] = {}


def program(make: Any) -> Any:
    """Add a program to the table."""
    PROGRAMS[make.__name__] = make
    return make


class Model:
    """An object with state of several kinds."""

    scale = 2.0
    made = 0

    def __init__(self) -> None:
        self.mean = np.zeros(3)
        self.calls = 0
        self.rate = 0.5
        self.label = "new"
        self.cache: dict[Any, Any] = {}
        self.history: list[Any] = []
        self.best: Any = None
        self._basis: Any = None

    @property
    def level(self) -> Any:
        return self.rate

    @level.setter
    def level(self, rate: Any) -> None:
        self.rate = rate * 2.0

    @functools.cached_property
    def basis(self) -> Any:
        return np.arange(3.0) + 1.0


@program
def running_mean() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.mean = 0.9 * model.mean + 0.1 * x
        model.calls += 1
        return np.sum((x - model.mean) ** 2)

    return f, lambda: vars(model)


@program
def method_with_state() -> Program:
    class Cell(Model):
        def step(self, x: Any) -> Any:
            self.mean = np.tanh(self.mean + x)
            self.rate = self.rate * 0.9
            self.label = "used"
            return np.sum(self.mean) * self.rate

    cell = Cell()
    return cell.step, lambda: vars(cell)


@program
def augmented_number() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.rate += 0.25
        model.calls += 2
        model.calls -= 1
        return np.sum(x) * model.rate * model.calls

    return f, lambda: vars(model)


@program
def array_in_place() -> Program:
    model = Model()
    alias = model.mean

    def f(x: Any) -> Any:
        model.mean += x
        model.mean[0] = 1.0
        return np.sum(model.mean * x)

    return f, lambda: (vars(model), alias)


@program
def two_names_of_one_object() -> Program:
    model = Model()
    other = [model, {"model": model}]

    def f(x: Any) -> Any:
        model.rate = model.rate + 1.0
        other[1]["model"].rate *= 2.0
        other[0].mean = x * model.rate
        return np.sum(model.mean)

    return f, lambda: (vars(model), other[0] is model and other[1]["model"] is model)


@program
def moved_between_attributes() -> Program:
    model = Model()
    model.best = np.ones(3)

    def f(x: Any) -> Any:
        model.best, model.mean = model.mean, model.best * 2.0
        return np.sum(model.best * x)

    return f, lambda: vars(model)


@program
def one_new_array_under_two_names() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        y = x * 2.0
        model.best = model.mean = y
        return np.sum(y)

    return f, lambda: (vars(model), model.best is model.mean)


@program
def entries_of_a_dict() -> Program:
    state = {"n": 0, "h": np.ones(3), "k": 1.0}

    def f(x: Any) -> Any:
        state["n"] += 1
        state["h"] = state["h"] * 0.5 + x
        state["k"] *= 2.0
        state.update(last=np.max(x))
        return np.sum(state["h"]) * state["k"]

    return f, lambda: state


@program
def popped_entries() -> Program:
    state: dict[str, Any] = {"a": 1.0, "b": 2.0}

    def f(x: Any) -> Any:
        a = state.pop("a")
        state["a"] = a + 1.0
        return np.sum(x) * a

    return f, lambda: list(state.items())


@program
def items_of_a_list() -> Program:
    items = [1.0, np.ones(3), 0]

    def f(x: Any) -> Any:
        items[0] = items[0] * 2.0
        items[1] = x + items[1]
        items[2] += 1
        return np.sum(items[1]) * items[0]

    return f, lambda: items


@program
def nested_containers() -> Program:
    state = {"layers": [{"w": np.ones(3)}, {"w": np.zeros(3)}]}

    def f(x: Any) -> Any:
        for layer in state["layers"]:
            layer["w"] = layer["w"] - 0.1 * x
            layer["norm"] = np.sum(layer["w"] ** 2)
        return state["layers"][0]["norm"]

    return f, lambda: state


@program
def log_of_values() -> Program:
    log: list[Any] = []
    names: set[Any] = set()

    def f(x: Any) -> Any:
        y = np.sum(x)
        log.append(y)
        log.extend([x * 2.0, "text", (1, y)])
        names.add(len(x))
        return y

    return f, lambda: (log, names)


@program
def log_of_an_object() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.history.append(np.sum(x))
        return np.sum(x * 2.0)

    return f, lambda: vars(model)


@program
def bounded_history() -> Program:
    history: list[Any] = []

    def f(x: Any) -> Any:
        history.append(np.sum(x))
        if len(history) > 2:
            history.pop(0)
        return history[0] * np.sum(x)

    return f, lambda: history


@program
def list_methods() -> Program:
    items: list[Any] = [3.0, 1.0]

    def f(x: Any) -> Any:
        items.insert(0, np.sum(x))
        last = items.pop()
        items.reverse()
        return last * np.sum(x)

    return f, lambda: items


@program
def cleared_list() -> Program:
    items: list[Any] = []

    def f(x: Any) -> Any:
        items.clear()
        items.append(np.sum(x))
        items.append(1)
        return items[0] * 2.0

    return f, lambda: items


@program
def closure_variable() -> Program:
    total, count = 0.0, 0

    def f(x: Any) -> Any:
        nonlocal total, count
        total = total + np.sum(x)
        count += 1
        return total * count

    return f, lambda: (total, count)


GLOBAL_TOTAL, GLOBAL_COUNT, GLOBAL_STATE = 0.0, 0, np.zeros(3)


@program
def global_variables() -> Program:
    global GLOBAL_TOTAL, GLOBAL_COUNT, GLOBAL_STATE
    GLOBAL_TOTAL, GLOBAL_COUNT, GLOBAL_STATE = 0.0, 0, np.zeros(3)

    def f(x: Any) -> Any:
        global GLOBAL_TOTAL, GLOBAL_COUNT, GLOBAL_STATE
        GLOBAL_TOTAL = GLOBAL_TOTAL + np.sum(x)
        GLOBAL_COUNT += 1
        GLOBAL_STATE = GLOBAL_STATE * 0.5 + x
        return GLOBAL_TOTAL * GLOBAL_COUNT

    return f, lambda: (GLOBAL_TOTAL, GLOBAL_COUNT, GLOBAL_STATE)


@program
def global_that_is_only_written() -> Program:
    names: dict[str, Any] = {"np": np, "__name__": "writes_of_exec"}
    exec(
        "last = None\ndef f(x):\n    global last, first\n    last = x * 2\n    first = 1\n    return np.sum(x)",
        names,
    )
    return names["f"], lambda: (names["last"], names.get("first"))


@program
def attribute_that_is_only_written() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.best = np.sum(x)
        model.label = "done"
        return np.sum(x * 3.0)

    return f, lambda: vars(model)


@program
def attribute_that_gets_what_it_has() -> Program:
    model = Model()
    model.label = "done"

    def f(x: Any) -> Any:
        model.label = "done"
        return np.sum(x * 3.0)

    def state() -> Any:
        before = model.label
        model.label = "other"
        return before

    return f, state


@program
def argument_is_kept() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.best = x
        return np.sum(x)

    return f, lambda: model.best


@program
def class_attribute() -> Program:
    class Counted(Model):
        made = 0

    def f(x: Any) -> Any:
        Counted.made += 1
        return np.sum(x) * Counted.made

    return f, lambda: Counted.made


@program
def attribute_over_that_of_the_class() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.scale = model.scale * 1.5
        return np.sum(x) * model.scale

    return f, lambda: vars(model)


@program
def by_setattr() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        setattr(model, "rate", getattr(model, "rate") * 2.0)  # noqa: B009, B010
        object.__setattr__(model, "label", "set")
        return np.sum(x) * model.rate

    return f, lambda: vars(model)


@program
def by_dict_of_the_object() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.__dict__.update(rate=model.rate + 1.0, best=np.sum(x))
        vars(model)["label"] = "set"
        return np.sum(x) * model.rate

    return f, lambda: vars(model)


@program
def property_with_setter() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.level = np.sum(x)
        return model.level * 2.0

    return f, lambda: vars(model)


@program
def frozen_dataclass() -> Program:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        value: Any = 1.0
        count: int = 0

    frozen = Frozen()

    def f(x: Any) -> Any:
        object.__setattr__(frozen, "value", frozen.value + np.sum(x))
        object.__setattr__(frozen, "count", frozen.count + 1)
        return frozen.value * frozen.count

    return f, lambda: vars(frozen)


@program
def slots() -> Program:
    class Slotted:
        __slots__ = ("count", "late", "mean")

        def __init__(self) -> None:
            self.count, self.mean = 0, np.zeros(3)

    slotted = Slotted()

    def f(x: Any) -> Any:
        slotted.count += 1
        slotted.mean = slotted.mean + x
        slotted.late = np.sum(x)
        return np.sum(slotted.mean) * slotted.count

    return f, lambda: [getattr(slotted, name, None) for name in Slotted.__slots__]


@program
def defaultdict_by_reading() -> Program:
    counts: Any = collections.defaultdict(float)

    def f(x: Any) -> Any:
        counts["a"] += np.sum(x)
        return counts["b"] + counts["a"]

    return f, lambda: dict(counts)


@program
def counter() -> Program:
    counts: Any = collections.Counter()

    def f(x: Any) -> Any:
        counts["calls"] += 1
        counts.update(["a", "a"])
        return np.sum(x) * counts["calls"]

    return f, lambda: dict(counts)


@program
def double_ended_queue() -> Program:
    recent: Any = collections.deque([0.0], maxlen=2)

    def f(x: Any) -> Any:
        recent.append(np.sum(x))
        return recent[0] * np.sum(x)

    return f, lambda: list(recent)


@program
def memo() -> Program:
    cache: dict[Any, Any] = {}

    def f(x: Any) -> Any:
        key = len(x)
        if key not in cache:
            cache[key] = np.arange(1.0, key + 1.0) * 2.0
        return np.sum(cache[key] * x)

    return f, lambda: cache


@program
def memo_of_traced_values() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        if "sum" not in model.cache:
            model.cache["sum"] = np.sum(x)
        return model.cache["sum"] * np.sum(x)

    return f, lambda: vars(model)


@program
def lazy_attribute() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        if model._basis is None:
            model._basis = np.arange(3.0) * 2.0
        return np.sum(model._basis * x)

    return f, lambda: vars(model)


@program
def cached_property() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        return np.sum(model.basis * x)

    return f, lambda: vars(model)


@program
def best_so_far() -> Program:
    model = Model()
    model.best = 1e9

    def f(x: Any) -> Any:
        loss = np.sum((x - 1.0) ** 2)
        if loss < model.best:
            model.best = loss
            model.label = "better"
        else:
            model.label = "worse"
        return loss

    return f, lambda: vars(model)


@program
def every_second_call() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        model.calls += 1
        if model.calls % 2 == 0:
            return np.sum(x) * 2.0
        return np.sum(x) * 3.0

    return f, lambda: vars(model)


@program
def new_objects() -> Program:
    model = Model()

    class Point:
        def __init__(self, x: Any) -> None:
            self.x, self.norm, self.tags = x, np.sum(x**2), ["a", {"n": 1}]

    def f(x: Any) -> Any:
        model.best = Point(x * 2.0)
        return model.best.norm

    return f, lambda: vars(model.best) if model.best is not None else None


@program
def new_containers_with_aliases() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        y = x * 2.0
        inner = [y]
        model.best = {"a": inner, "b": (inner, y, {1, 2}), "c": None}
        return np.sum(y)

    def state() -> Any:
        best = model.best
        return best, best is None or (best["a"] is best["b"][0] and best["b"][1] is best["a"][0])

    return f, state


@program
def deleted_attribute() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        if hasattr(model, "best"):
            del model.best
        else:
            model.best = np.sum(x)
        return np.sum(x)

    return f, lambda: vars(model)


@program
def attribute_of_a_function() -> Program:
    def f(x: Any) -> Any:
        f.calls += 1  # type: ignore[attr-defined]
        f.last = x * 2.0  # type: ignore[attr-defined]
        return np.sum(x) * f.calls  # type: ignore[attr-defined]

    f.calls, f.last = 0, None  # type: ignore[attr-defined]
    return f, lambda: vars(f)


@program
def appended_by_a_bound_method() -> Program:
    log: list[Any] = []
    note = log.append

    def f(x: Any) -> Any:
        note(np.sum(x))
        return np.sum(x)

    return f, lambda: log


@program
def mutable_default() -> Program:
    kept: list[Any] = []

    def f(x: Any, kept: Any = kept) -> Any:
        kept.append(np.sum(x))
        return np.sum(x) * len(kept)

    return f, lambda: kept


@program
def simple_namespace() -> Program:
    state = types.SimpleNamespace(n=0, h=np.zeros(3))

    def f(x: Any) -> Any:
        state.n += 1
        state.h = state.h + x
        state.new = np.sum(x)
        return np.sum(state.h)

    return f, lambda: vars(state)


@program
def written_by_a_helper() -> Program:
    model = Model()

    def note(key: Any, value: Any) -> None:
        model.cache[key] = value

    def f(x: Any) -> Any:
        for k in range(3):
            note(k, x[k] * 2.0)
        return np.sum(x)

    return f, lambda: vars(model)


@program
def bytes_and_integers() -> Program:
    model = Model()
    model.best = np.zeros(3, int)
    buffer = bytearray(b"ab")

    def f(x: Any) -> Any:
        model.best = model.best + 1
        buffer.append(99)
        return np.sum(x * model.best)

    return f, lambda: (vars(model), bytes(buffer))


@program
def lru_cache() -> Program:
    @functools.lru_cache
    def weights(n: int) -> Any:
        return np.arange(float(n))

    def f(x: Any) -> Any:
        return np.sum(weights(len(x)) * x)

    return f, lambda: None


@program
def partial_with_state() -> Program:
    model = Model()

    def f(x: Any, model: Any) -> Any:
        model.rate = model.rate * 2.0
        return np.sum(x) * model.rate

    return functools.partial(f, model=model), lambda: vars(model)


@program
def ordered_dict() -> Program:
    table = collections.OrderedDict(a=1.0, b=2.0)

    def f(x: Any) -> Any:
        table.move_to_end("a")
        table["a"] = table["a"] + np.sum(x)
        return table["a"]

    return f, lambda: list(table.items())


@program
def integers_without_end() -> Program:
    model = Model()
    model.calls = 1

    def f(x: Any) -> Any:
        model.calls = model.calls * 1_000_003 + 7
        return np.sum(x)

    return f, lambda: model.calls


@program
def module_made_by_code() -> Program:
    module = types.ModuleType("made")
    module.scale = 1.0  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        module.scale = module.scale * 2.0  # type: ignore[attr-defined]
        return np.sum(x) * module.scale

    return f, lambda: module.scale


@program
def array_of_the_library() -> Program:
    numbers = array.array("d", [0.0])

    def f(x: Any) -> Any:
        numbers[0] += 1.0
        numbers.append(2.0)
        return np.sum(x) * numbers[0]

    return f, lambda: list(numbers)


@program
def function_that_holds_a_traced_value() -> Program:
    model = Model()

    def f(x: Any) -> Any:
        total = np.sum(x)
        model.best = lambda: total
        return total

    return f, lambda: None if model.best is None else float(model.best())


@program
def operator_on_a_list() -> Program:
    items: list[Any] = [3.0, 1.0]

    def f(x: Any) -> Any:
        items.sort()
        items[1:2] = [np.sum(x), 2.0]
        del items[0]
        return np.sum(x) * items[0]

    return f, lambda: items
