"""Random classes: methods, properties and containers of objects that read and write state between and during calls.

An object is called several times, and its state changes between the calls. Compiled functions, tapes and gradients have to give the
results, and leave the state, that plain NumPy gives and leaves; gradients are compared with differences.
"""

from __future__ import annotations

import copy
import linecache
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import gradtape as gt
from gradtape.errors import GradtapeError

CLASSES: Final = """
from collections import deque
from dataclasses import dataclass, replace
import numpy as np


@dataclass
class Item:
    u: float
    v: np.ndarray

    def weight(self):
        return self.u + np.mean(self.v)

    def __mul__(self, other):
        return Item(self.u * other, self.v * other)


class Base:
    rate = 0.5
    count = 0

    def __init__(self, child=None):
        self.a = 0.3
        self.calls = 0
        self.mode = "plus"
        self.w = np.array([0.2, -0.4, 0.9])
        self.parts = {"u": 0.7, "v": np.array([1.0, 0.1, -0.3])}
        self.items = [Item(0.4, np.array([0.3, 0.6, -0.2])), Item(-0.8, np.array([-0.5, 0.2, 0.7]))]
        self.recent = deque([0.1], maxlen=3)
        self.child = child

    @property
    def level(self):
        return self.a * self.rate + len(self.recent)

    @level.setter
    def level(self, value):
        self.a = value * 0.5

    @classmethod
    def scaled(cls, x):
        return x * cls.rate

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        return self.items[place]

    def __iter__(self):
        return iter(self.items)
"""

SCALARS: Final = (
    "self.a", "self.rate", "self.level", "self.parts['u']", "self.items[0].u", "self[-1].weight()", "len(self)", "self.calls",
    "sum(item.u for item in self)", "max(self.recent)", "np.mean({v})", "getattr(self, 'a')", "self.__dict__['a']",
    "(1.0 if self.child is None else self.child.a)",
)  # fmt: skip
VECTORS: Final = (
    "x", "x", "self.w", "self.parts['v']", "self.items[-1].v", "np.tanh({v} * {s})", "self.scaled({v})", "({v} + {v})",
    "(self.items[0] * {s}).v", "np.where(np.arange(3) < self.calls, {v}, {v})",
)  # fmt: skip
STATEMENTS: Final = (
    "self.a = np.tanh({s})", "self.calls += 1", "self.w = np.tanh({v})", "self.w[{k}] = np.tanh({s})", "self.w *= 0.9",
    "self.recent.append(np.tanh({s}))", "self.parts['u'] = np.tanh({s})", "self.parts['v'] = np.tanh({v})", "self.level = np.tanh({s})",
    "self.items[0].u = np.tanh({s})", "self.items[-1].v = np.tanh({v})", "self.items = self.items[1:] + self.items[:1]",
    "self.items[1] = replace(self.items[1], u=np.tanh({s}))", "self.items[{k} % 2] = Item(np.tanh({s}), np.tanh({v}))",
    "self.mode = 'minus' if self.mode == 'plus' else 'plus'", "type(self).count += 1", "self.late = getattr(self, 'late', 0) + 1",
    "y = y + {v} * {s}", "y = np.sin(y) + {v}", "y = y * self.parts.setdefault('t', 0.5)",
    "for item in self:\n    y = y + item.u * {v}", "for item in self.items:\n    item.u = item.u * 0.9 + 0.05 * {s}",
    "self.parts['v'] *= 0.9", "self.items[0].v[{k}] = np.tanh({s})", "self.w = self.parts['v']",
    "if self.calls % 2 == 0:\n    {one}\nelse:\n    {one}", "if self.mode == 'plus':\n    {one}", "if {s} > 0.37:\n    {one}",
    "if self.child is not None:\n    y = y + self.child(x)", "if isinstance(self.child, Second):\n    {one}",
)  # fmt: skip
EVENTS: Final = (
    "root.a = {n}", "root.calls += 1", "root.mode = 'minus'", "root.w = np.array([{n}, 0.2, -0.1])", "root.w[1] = {n}",
    "root.parts['u'] = {n}", "root.items.append(Item({n}, np.array([0.1, {n}, 0.3])))", "root.items.pop()", "root.items.reverse()",
    "root.items[1] = root.items[0]", "Base.rate = {n}", "First.rate = {n}", "root.child = None", "root.child = First()",
    "root.child = Second(First())", "root.recent.clear(); root.recent.append({n})", "root.parts = {{'v': root.w, 'u': {n}}}",
    "root.rate = {n}", "root.items[0].v = root.w", "root.w = root.parts['v']", "root.child.w = root.w",
)  # fmt: skip


class Program:
    """Classes, and what happens to an object between its calls.

    Attributes
    ----------
    text : str
        The classes.
    events : list of str
        A statement before each call.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.filename = f"<classes {seed}>"
        self.text = CLASSES + self._subclass("First", "Base") + self._subclass("Second", "First")
        self.events = ["pass", "pass"]
        for _ in range(3):
            number = f"{self.random.uniform(-0.9, 0.9):.3f}"
            self.events += [self.random.choice(EVENTS).format(n=number), "pass"]
        linecache.cache[self.filename] = len(self.text), None, self.text.splitlines(True), self.filename

    def _subclass(self, name: str, base: str) -> str:
        lines = [f"\n\nclass {name}({base}):"]
        for method in ("step", "__call__"):
            lines += [f"    def {method}(self, x):", "        y = x"]
            if base == "First" and method == "step":
                lines.append("        y = y + super().step(x)")
            if method == "__call__":
                lines.append("        y = y + self.step(x)")
            for _ in range(self.random.randint(2, 4)):
                lines += ["        " + line for line in self._filled("{one}").splitlines()]
            lines.append("        return y\n")
        return "\n".join(lines)

    def _filled(self, text: str, depth: int = 0) -> str:
        choose = self.random.choice
        while "{" in text:
            before, _, rest = text.partition("{")
            kind, after = rest[0], rest[rest.index("}") + 1 :]
            if kind == "o":
                indent = before[before.rfind("\n") + 1 :]
                one = self._filled(choose(STATEMENTS[: -5 if depth else None]), depth + 1)
                part = one.replace("\n", "\n" + indent)
            elif kind == "k":
                part = str(self.random.randrange(3))
            else:
                kinds = SCALARS if kind == "s" else VECTORS
                plain = [each for each in kinds if "{" not in each]
                part = choose(plain if depth > 3 or self.random.random() < 0.5 else kinds)
                part = self._filled(part, depth + 2) if "{" in part else part
            text = before + part + after
        return text

    def run(self, make: Callable[[Any, dict[str, Any]], Callable[[Any], Any]]) -> Iterator[Any]:
        """Yield the result and the state after each call of what `make` makes of an object."""
        space: dict[str, Any] = {"__name__": __name__}
        exec(compile(self.text, self.filename, "exec"), space)
        root = space["root"] = space["Second"](space["First"]())
        call = make(root, space)
        for place, event in enumerate(self.events):
            exec(event, space)
            yield call(np.array([0.31, -0.62, 0.17]) * (1 + 0.3 * place)), state_of(root, space)


def state_of(root: Any, space: dict[str, Any]) -> Any:
    """Return copies of all numbers and names that classes and objects hold, and which objects are the same."""
    seen: dict[int, int] = {}

    def walked(thing: Any) -> Any:
        if thing is None or isinstance(thing, str):
            return thing
        if np.isscalar(thing) or (isinstance(thing, np.ndarray | gt.Array) and not thing.ndim):
            return np.array(thing)
        if id(thing) in seen:
            return f"object {seen[id(thing)]}"
        seen[id(thing)] = len(seen)
        if isinstance(thing, np.ndarray | gt.Array):
            return np.array(thing)
        if isinstance(thing, dict):
            return {key: walked(item) for key, item in thing.items()}
        if hasattr(thing, "__dict__"):
            return type(thing).__name__, walked(vars(thing))
        return type(thing).__name__, [walked(item) for item in thing]

    classes = {
        name: {key: vars(space[name]).get(key) for key in ("rate", "count")}
        for name in ("Base", "First", "Second")
    }
    return walked(root), {name: walked(found) for name, found in classes.items()}


def same(one: Any, other: Any) -> bool:
    """Return whether two results or states are the same, but for rounding."""
    if isinstance(one, dict | tuple | list):
        if type(one) is not type(other) or len(one) != len(other):
            return False
        if isinstance(one, dict):
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        return all(map(same, one, other))
    if one is None or isinstance(one, str):
        return bool(one == other)
    first, second = np.asarray(one), np.asarray(other)
    return first.shape == second.shape and np.allclose(first, second, rtol=1e-9, atol=1e-10)


def plain(root: Any, space: dict[str, Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return np.array(root(x))

    return call


def differences(root: Any, space: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the function of the value and its derivative, by differences of calls of copies of the object."""

    def at(x: Any) -> float:
        numbers = {name: dict(vars(space[name])) for name in ("Base", "First", "Second")}
        value = float(np.sum(copy.deepcopy(root)(x) * WEIGHTS))
        for name, found in numbers.items():
            if "count" in found:
                space[name].count = found["count"]
            elif "count" in vars(space[name]):
                del space[name].count
        return value

    def call(x: Any) -> Any:
        steps = np.eye(3) * 1e-6
        slope = np.array([(at(x + step) - at(x - step)) / 2e-6 for step in steps])
        return float(np.sum(root(x) * WEIGHTS)), slope

    return call


WEIGHTS: Final = np.array([1.0, -0.7, 0.4])


def weighted(root: Any, x: Any) -> Any:
    return np.sum(root(x) * WEIGHTS)


def taped(root: Any, space: dict[str, Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            value = weighted(root, watched)
        return float(value), tape.gradient(value, watched).numpy()

    return call


VALUES: Final[dict[str, Any]] = {
    "jit of the object": lambda root, space: gt.jit(root),
    "jit of a function": lambda root, space: gt.jit(lambda x: root(x)),
}
SLOPES: Final[dict[str, Any]] = {
    "gradient": lambda root, space: gt.value_and_grad(lambda x: weighted(root, x)),
    "tape": taped,
}


def failures(seed: int) -> Iterator[str]:
    """Yield how the ways to run a program differ from plain NumPy."""
    program = Program(seed)
    try:
        with np.errstate(all="ignore"):
            wanted, slopes = list(program.run(plain)), list(program.run(differences))
    except Exception:  # the program is none
        return
    for ways, results in ((VALUES, wanted), (SLOPES, slopes)):
        for way, make in ways.items():
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", gt.errors.GradtapeWarning)
                place = 0
                try:
                    for place, ((found, state), (result, left)) in enumerate(
                        zip(program.run(make), results, strict=True)
                    ):
                        if any("left the tape" in str(warning.message) for warning in said):
                            break  # a traced number is written to an array of NumPy: not in silence
                        if ways is SLOPES and not np.allclose(found[1], result[1], rtol=1e-5, atol=1e-6):
                            yield f"{way}, call {place}: slope {found[1]} for {result[1]}"
                            break
                        if not same(
                            found[0] if ways is SLOPES else found, result[0] if ways is SLOPES else result
                        ):
                            yield f"{way}, call {place}: {found} for {result}"
                            break
                        if not same(state, left):
                            yield f"{way}, call {place}: state {state} for {left}"
                            break
                except GradtapeError as error:
                    yield f"{way}, call {place}: {type(error).__name__}: {error}"
                except Exception:
                    yield f"{way}, call {place}: {traceback.format_exc(limit=-3)}"
