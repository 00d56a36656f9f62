"""Random functions with loops, as source text that Python and Numba run: scalars, arrays, tuples and lists as state, early exits, views of
views, masks, permutations, arrays whose shape changes, local functions that write to arrays, complex numbers.

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

    Parameters
    ----------
    seed : int
    rich : bool
        Draw from all kinds of statements; else from those that there were first, so that old seeds have their functions.

    Attributes
    ----------
    lines : list of str
        What is drawn so far.
    scalars, vectors, matrices, indices : list of str
        Expressions of each kind that the open block knows; an index is in ``range(n)``.
    """

    def __init__(self, seed: int, rich: bool = False) -> None:
        self.rich = rich
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
        self.lists: list[str] = []

    def source(self) -> str:
        """Return the function's text."""
        self.write("v = a.copy()", "w = np.zeros(n)", "p = m.copy()", "s = 0.3 * x", "k = 0")
        self.vectors += ["v", "w"]
        self.matrices += ["p"]
        self.scalars += ["s"]
        if self.chance(0.3):
            self.write("def g(y, z):", "    return np.sin(y) * z + 0.1 * y")
            self.kept.add("g")
        if self.rich:
            self.start_rich()
        for _ in range(self.random.integers(2, 5)):
            self.statement(0)
        self.write(
            "total = s + 0.1 * k",
            *(["for y in u:", "    total = 0.9 * total + y"] if self.lists else []),
            "for i in range(n):",
            f"    total += (1.0 + i) * v[i] + np.sin(w[i]){' * (1 + q[i])' if self.rich else ''}",
            "    for j in range(n):",
            "        total += 0.1 * (i - j + 2) * p[i, j]",
            "return total",
        )
        return "\n".join(self.lines) + "\n"

    def start_rich(self) -> None:
        """Define what the further kinds of statements need."""
        self.write("q = np.arange(n)")
        if self.chance(0.3):
            self.write("def h(y, i):", "    y[i] = 0.5 * y[i - 1] + 0.3 * np.sin(y[i])", "    return y[i]")
            self.kept.add("h")
        if self.chance(0.3):
            self.write("u = [s]")
            self.lists.append("u")

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
        choices = ["0", "n - 1", "-1", "k % n", *(["q[k % n]"] if self.rich else [])]
        if self.indices:
            i = self.pick(self.indices)
            choices = [
                i,
                i,
                i,
                i,
                f"({i} + 1) % n",
                f"n - 1 - {i}",
                f"{i} - 1",
                *([f"q[{i}]"] if self.rich else []),
                *choices,
            ]
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
        if self.indices and self.rich:
            choices += [f"not ({choices[0]} or {i} == n - 2)", f"-0.6 < {self.element()} <= 0.5 * s"]
        return self.pick(choices)

    # Statements

    def statement(self, depth: int) -> None:
        inner = depth < MOST_DEPTH
        kinds = [self.assign, self.store, self.store, self.store, self.augment, self.slices, self.reduce]
        if self.rich:
            kinds += [self.masked, self.permute, self.complex, self.resize, self.pair]
        if inner:
            kinds += [self.loop, self.loop, self.loop, self.branch, self.loop_while]
        else:
            kinds += [self.swap]
        if self.lists:
            kinds += [self.append, self.append]
        if "h" in self.kept:
            kinds += [self.call]
        if self.loops:
            kinds += [self.leave, self.row, self.fresh, *([self.part] if self.rich else [])]
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

    def masked(self, depth: int) -> None:
        """Write where a condition holds."""
        v, w = self.pick(self.vectors), self.pick(self.vectors)
        bound = f"{self.random.uniform(-0.5, 0.5):.3f}"
        b = self.name("b")
        self.write(
            *[
                [f"{v}[{v} > {bound}] *= 0.7"],
                [f"{v}[{w} < {bound}] = 0.5 * s"],
                [f"{v}[:] = np.where({w} > {bound}, 0.5 * {v}, 0.3 * {w})"],
                [f"s = 0.5 * s + 0.2 * {v}[{v} > {bound}].sum()"],
                [f"{b} = {v} > {bound}", f"if {b}[{self.index()}]:", f"    k += {b}.sum()"],
            ][self.random.integers(5)]
        )

    def permute(self, depth: int) -> None:
        """Change the integers, or read by them."""
        one, other = self.index(), self.index()
        v = self.pick(self.vectors)
        self.write(
            self.pick(
                [
                    f"q[{one}], q[{other}] = q[{other}], q[{one}]",
                    f"q[{one}] = (q[{other}] + 1) % n",
                    f"{v}[:] = 0.8 * {v}[q]",
                    f"s = 0.5 * s + 0.2 * {v}[q[{one}]]",
                    "q[:] = q[::-1].copy()",
                ]
            )
        )

    def complex(self, depth: int) -> None:
        c = self.name("c")
        self.write(
            f"{c} = complex({self.number(1)}, {self.number(1)})",
            f"{c} = {c} * {c} / (2.0 + abs({c}) ** 2)",
            f"s = 0.5 * s + {c}.real * 0.3 - {c}.imag * 0.2",
        )

    def resize(self, depth: int) -> None:
        """An array whose length depends on data."""
        z = self.name("z")
        self.write(f"{z} = {self.pick(self.vectors)}.copy()")
        shorter = f"{z} = {z}[1:]"
        if self.chance(0.5):
            self.write(
                f"while len({z}) > 1 and {self.condition()}:", f"    {shorter}", f"    {z}[0] += 0.3 * s"
            )
        elif self.chance(0.5):
            self.write(f"if {self.condition()}:", f"    {z} = np.append({z}, s)")
        else:
            self.write("for i in range(2):", f"    {z} = {z}[{z} > {self.random.uniform(-0.5, 0.2):.3f}]")
        self.write(f"s = 0.4 * s + 0.2 * np.sum({z} * {z}) + 0.1 * len({z})")

    def pair(self, depth: int) -> None:
        """A tuple of numbers, of which one may change."""
        t = self.name("t")
        self.write(f"{t} = ({self.number(1)}, {self.number(1)}, k)")
        if self.chance(0.5):
            self.write(f"if {self.condition()}:", f"    {t} = ({t}[1], 0.5 * {t}[0], {t}[2] + 1)")
        self.write(f"s, k = 0.5 * s + 0.3 * {t}[0] * {t}[1], {t}[2]")

    def append(self, depth: int) -> None:
        u = self.pick(self.lists)
        self.write(
            *[
                [f"{u}.append({self.number(1)})"],
                [f"if {self.condition()}:", f"    {u}.append({self.number(1)})"],
                [f"{u}[-1] = 0.5 * {u}[-1] + {self.number(1)}"],
                [f"s = 0.6 * s + 0.2 * {u}[len({u}) // 2]"],
                [f"if len({u}) > 2:", f"    s = 0.5 * s + 0.3 * {u}.pop()"],
            ][self.random.integers(5)]
        )

    def call(self, depth: int) -> None:
        """A local function that writes to an array, or to a part of one."""
        v, p = self.pick(self.vectors), self.pick(self.matrices)
        given = self.pick([v, v, f"{p}[{self.index()}]", f"{p}[:, {self.index()}]", f"{v}[::-1]"])
        self.write(f"s = 0.5 * s + 0.4 * h({given}, {self.index()})")

    def part(self, depth: int) -> None:
        """A name for a view of a view, of any length, through which the block writes."""
        r, i = self.name("r"), self.pick(self.indices) if self.indices else "1"
        base = self.pick([self.pick(self.vectors), f"{self.pick(self.matrices)}[{self.index()}]"])
        self.write(
            f"{r} = {base}{self.pick(['[::-1]', f'[{i}:]', '[::2]', f'[:{i} + 1]', '[1:][::-1]'])}",
            f"if len({r}) > 1:",
            f"    {r}[-1] = 0.5 * {r}[0] + {self.number(1)}",
            f"    s = 0.5 * s + 0.2 * {r}.sum()",
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
        if self.rich and self.chance(0.15):
            self.write("else:", f"    s = 0.5 * s + 0.2 * {self.element()}")

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


def random_source(seed: int, rich: bool = False) -> str:
    """Return the source text of a random function; see `SourceMaker`.

    Examples
    --------
    >>> random_source(0).splitlines()[0]
    'def f(a, m, x):'
    """
    return SourceMaker(seed, rich).source()
