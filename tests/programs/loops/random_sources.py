"""Random functions with loops, as source text that Python and Numba run: scalars and arrays as state, early exits, views.

All numbers stay small: what is stored is damped. Indices are within bounds by construction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

MOST_DEPTH = 3
"""Loops and branches in each other."""


class SourceMaker:
    """Draws a function ``f(a, m, x)`` of a vector, a square matrix and a number; `n` is their size.

    Attributes
    ----------
    lines : list of str
        What is drawn so far.
    scalars, vectors, matrices, indices : list of str
        Expressions of each kind that the open block knows; an index is in ``range(n)``.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.lines = ["def f(a, m, x):", "    n = len(a)"]
        self.margin = 1
        self.loops = 0
        self.count = 0
        self.scalars = ["x"]
        self.vectors: list[str] = []
        self.matrices: list[str] = []
        self.indices: list[str] = []
        self.kept: set[str] = set()

    def source(self) -> str:
        """Return the function's text."""
        self.write("v = a.copy()", "w = np.zeros(n)", "p = m.copy()", "s = 0.3 * x", "k = 0")
        self.vectors += ["v", "w"]
        self.matrices += ["p"]
        self.scalars += ["s"]
        if self.chance(0.3):
            self.write("def g(y, z):", "    return np.sin(y) * z + 0.1 * y")
            self.kept.add("g")
        for _ in range(self.random.integers(2, 5)):
            self.statement(0)
        self.write(
            "total = s + 0.1 * k",
            "for i in range(n):",
            "    total += (1.0 + i) * v[i] + np.sin(w[i])",
            "    for j in range(n):",
            "        total += 0.1 * (i - j + 2) * p[i, j]",
            "return total",
        )
        return "\n".join(self.lines) + "\n"

    def write(self, *lines: str) -> None:
        self.lines += ["    " * self.margin + line for line in lines]

    def chance(self, probability: float) -> bool:
        return bool(self.random.uniform() < probability)

    def pick(self, things: list[str]) -> str:
        return things[self.random.integers(len(things))]

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    @contextmanager
    def block(self) -> Iterator[None]:
        """Open a block: what is known in it alone is forgotten at its end."""
        known = [list(x) for x in (self.scalars, self.vectors, self.matrices, self.indices)]
        self.margin += 1
        yield
        self.margin -= 1
        self.scalars, self.vectors, self.matrices, self.indices = known

    # Expressions

    def index(self) -> str:
        """Return an index within bounds; it may be negative or of the data."""
        choices = ["0", "n - 1", "-1", "k % n"]
        if self.indices:
            i = self.pick(self.indices)
            choices = [i, i, i, i, f"({i} + 1) % n", f"n - 1 - {i}", f"{i} - 1", *choices]
        if self.chance(0.06):
            return f"int(2.0 + np.sin(3.0 * {self.pick(self.scalars)})) % n"
        return self.pick(choices)

    def element(self) -> str:
        if self.matrices and self.chance(0.5):
            return f"{self.pick(self.matrices)}[{self.index()}, {self.index()}]"
        return f"{self.pick(self.vectors)}[{self.index()}]"

    def number(self, depth: int = 0) -> str:
        """Return an expression that is not much larger than what it is made of."""
        choice = self.random.integers(14 if depth < 2 else 5)
        if choice < 2:
            return self.pick(self.scalars)
        if choice < 5:
            return self.element()
        one, other = self.number(depth + 1), self.number(depth + 1)
        forms = [
            f"np.sin({one})",
            f"math.tanh({one} * {other})",
            f"(0.6 * {one} - 0.5 * {other})",
            f"{one} / (1.5 + {other} ** 2)",
            f"math.exp(-abs({one}))",
            f"max({one}, 0.5 * {other})",
            f"({one} if {other} > 0.1 else 0.4 * {other})",
            f"math.sqrt(1.0 + {one} * {one})",
        ]
        if "g" in self.kept:
            forms.append(f"g(0.5 * {one}, {other})")
        return self.pick(forms)

    def condition(self) -> str:
        choices = [f"{self.number(1)} > {self.random.uniform(-0.5, 0.5):.3f}"]
        if self.indices:
            i = self.pick(self.indices)
            choices += [f"{i} % 2 == 0", f"{i} > {self.index()}", f"{choices[0]} and {i} != 1"]
        return self.pick(choices)

    # Statements

    def statement(self, depth: int) -> None:
        inner = depth < MOST_DEPTH
        kinds = [self.assign, self.store, self.store, self.store, self.augment, self.slices, self.reduce]
        if inner:
            kinds += [self.loop, self.loop, self.loop, self.branch, self.loop_while]
        else:
            kinds += [self.swap]
        if self.loops:
            kinds += [self.leave, self.row, self.fresh]
        kinds[self.random.integers(len(kinds))](depth)

    def body(self, depth: int) -> None:
        for _ in range(self.random.integers(1, 4)):
            self.statement(depth + 1)

    def assign(self, depth: int) -> None:
        name = "s" if self.chance(0.6) else self.name("t")
        self.write(
            f"{name} = {self.number()}" if self.chance(0.5) else f"{name} = 0.7 * s + 0.2 * {self.number()}"
        )
        if name not in self.scalars:
            self.scalars.append(name)

    def store(self, depth: int) -> None:
        place = self.element()
        self.write(f"{place} = {self.number()}")

    def augment(self, depth: int) -> None:
        place = self.element()
        self.write(
            self.pick(
                [
                    f"{place} += 0.2 * {self.number()}",
                    f"{place} *= 0.9",
                    "k += 1",
                    f"s -= 0.1 * {self.number()}",
                ]
            )
        )

    def slices(self, depth: int) -> None:
        v, w = self.pick(self.vectors), self.pick(self.vectors)
        i = self.pick(self.indices) if self.indices else "n - 1"
        p = self.pick(self.matrices)
        j = self.index()
        self.write(
            self.pick(
                [
                    f"{v}[:{i}] = 0.5 * {w}[:{i}]",
                    f"{v}[{i}:] += 0.1 * {w}[{i}:] * s",
                    f"{v}[:] = 0.5 * {w} + 0.2",
                    f"{p}[{j}, :] = np.sin({v})",
                    f"{p}[:, {j}] *= 0.8",
                    f"{p}[{j}] = 0.5 * {p}[:, {self.index()}] + 0.1 * {v}",
                    f"{v}[1:] = {v}[:-1].copy()",
                    f"{p}[:{i}, {j}] = 0.3 * s",
                ]
            )
        )

    def reduce(self, depth: int) -> None:
        v, w, p = self.pick(self.vectors), self.pick(self.vectors), self.pick(self.matrices)
        i = self.pick(self.indices) if self.indices else "n"
        self.write(
            self.pick(
                [
                    f"s = 0.3 * np.sum({v}[:{i}]) + 0.5 * s",
                    f"s = 0.2 * np.dot({v}, {w})",
                    f"s = 0.3 * {v}.max() + 0.1 * s",
                    f"s += 0.05 * ({p} * {p}.T).sum()",
                    f"s = 0.4 * np.mean({p}[{self.index()}, :]) - 0.2 * s",
                    f"s = 0.2 * np.dot({p}[{self.index()}, :{i}], {v}[:{i}]) + 0.3 * s",
                ]
            )
        )

    def loop(self, depth: int) -> None:
        i = self.name("i")
        ranges = ["n", "n", "1, n", "n - 1, -1, -1", "0, n, 2"]
        if self.indices:
            other = self.pick(self.indices)
            ranges += [other, f"{other} + 1, n", f"{other} + 1", f"{other}, -1, -1"]
        kind = self.random.integers(8)
        with self.opened(i):
            if kind == 0:
                t = self.name("t")
                self.lines.append(
                    "    " * (self.margin - 1) + f"for {i}, {t} in enumerate({self.pick(self.vectors)}):"
                )
                self.scalars.append(t)
            elif kind == 1:
                t, u = self.name("t"), self.name("t")
                one, other = self.pick(self.vectors), self.pick(self.vectors)
                self.lines.append("    " * (self.margin - 1) + f"for {t}, {u} in zip({one}, {other}):")
                self.scalars += [t, u]
                self.indices.remove(i)
            else:
                self.lines.append("    " * (self.margin - 1) + f"for {i} in range({self.pick(ranges)}):")
            self.body(depth)

    @contextmanager
    def opened(self, i: str) -> Iterator[None]:
        with self.block():
            self.loops += 1
            self.indices.append(i)
            yield
            self.loops -= 1

    def loop_while(self, depth: int) -> None:
        c = self.name("c")
        most = self.random.integers(1, 6)
        self.write(f"{c} = 0", f"while {c} < {most} and {self.condition()}:")
        with self.block():
            self.loops += 1
            self.write(f"{c} += 1")
            self.body(depth)
            self.loops -= 1

    def branch(self, depth: int) -> None:
        self.write(f"if {self.condition()}:")
        with self.block():
            self.body(depth)
        if self.chance(0.5):
            self.write("else:")
            with self.block():
                self.body(depth)

    def leave(self, depth: int) -> None:
        what = "return s + v[0]" if self.chance(0.15) else self.pick(["break", "continue"])
        self.write(f"if {self.condition()}:", f"    {what}")

    def swap(self, depth: int) -> None:
        if self.chance(0.5):
            self.write("v, w = w, v")
        else:
            one, other = self.element(), self.element()
            self.write(f"{one}, {other} = {other}, {one}")

    def row(self, depth: int) -> None:
        """A name for a view, through which the block goes on to write."""
        r = self.name("r")
        p = self.pick(self.matrices)
        self.write(
            self.pick(
                [
                    f"{r} = {p}[{self.index()}]",
                    f"{r} = {p}[:, {self.index()}]",
                    f"{r} = {p}.T[{self.index()}]",
                ]
            )
        )
        self.vectors.append(r)
        self.write(f"{r}[{self.index()}] = {self.number()}")

    def fresh(self, depth: int) -> None:
        """A new array in each iteration."""
        z = self.name("z")
        self.write(
            self.pick(
                [f"{z} = np.zeros(n)", f"{z} = 0.5 * {self.pick(self.vectors)}", f"{z} = np.full(n, s)"]
            )
        )
        self.vectors.append(z)
        self.write(f"{z}[{self.index()}] += {self.number()}")


def random_source(seed: int) -> str:
    """Return the source text of a random function.

    Examples
    --------
    >>> random_source(0).splitlines()[0]
    'def f(a, m, x):'
    """
    return SourceMaker(seed).source()
