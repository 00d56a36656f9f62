"""The sample of the tests that a plain `python -m pytest` runs.

A parametrised test function has one cell for each set of its arguments. A sample runs as many cells of a function as take a budget of
seconds of a processor, and all functions but slow ones. Budgets and limits are those of the first of `LEVELS` with which the sample takes
no more than `TOTAL`. What must not be missed is added: each op, each NumPy function with samples, each page of the documentation and each
value of a parameter of a test file has a cell, and each test file has a test.

The choice is the same in each run: it depends on the names of the tests and on `tests/durations.txt` alone, which
`python -m pytest --all --write-durations` writes. Tests that the file does not contain are taken to be fast.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple

import pytest

from gradtape.kinds.registry import ROWS, TRIALS

TESTS: Final = Path(__file__).parents[1]
DURATIONS: Final = TESTS / "durations.txt"

TOTAL: Final = 300.0
"""Seconds of a processor for the sample: minutes on two cores, with collecting and with what processes of pytest-xdist wait for."""


class Level(NamedTuple):
    """How much of the tests a sample takes, in seconds of a processor.

    Attributes
    ----------
    budget : float
        For the cells of one function.
    slow : float
        From which on a test is left out, unless nothing else tests the same.
    dear : float
        From which on a cell is not added because of a value of a parameter.
    """

    budget: float
    slow: float
    dear: float


LEVELS: Final = (
    Level(0.25, 2.0, 0.25),
    Level(0.12, 1.0, 0.25),
    Level(0.06, 1.0, 0.1),
    Level(0.06, 0.6, 0.1),
    Level(0.06, 0.4, 0.06),
    Level(0.0, 0.2, 0.04),
    Level(0.0, 0.1, 0.02),
)

SHARE: Final = 0.2
"""Of all cells of a function, a part runs besides: the budget times this."""

FEW: Final = 40
"""A parameter with so many values is a list of ways; one with more is a list of cases, of which a part will do."""

USUAL: Final = 0.01
"""Seconds of a test without an entry in the file."""

LISTED: Final = 0.05
"""Seconds from which on the file lists a test."""


@dataclass(frozen=True)
class Durations:
    """Seconds of a processor that tests take.

    Attributes
    ----------
    seconds : dict of str to float
        By the name of a function (the mean of its cells), or of a cell that takes much longer than the others.
    """

    seconds: dict[str, float]

    @classmethod
    def load(cls, file: Path = DURATIONS) -> Durations:
        """Return the content of a file."""
        lines = file.read_text().splitlines() if file.exists() else []
        pairs = [line.split(" ", 1) for line in lines if not line.startswith("#")]
        return cls({name: float(seconds) for seconds, name in pairs})

    def of(self, name: str) -> float:
        """Return the seconds of a test."""
        return self.seconds.get(name, self.seconds.get(function_of(name), USUAL))

    def text(self, measured: dict[str, float]) -> str:
        """Return the lines of a file: the measured functions, and the others as they were.

        A cell that takes three times the mean of its function, and half a second or more, has a line of its own. The line of the function
        is the mean of the other cells: one page of 34 s among 400 counted as 0.1 s for each of them.
        """
        cells: dict[str, list[str]] = defaultdict(list)
        for name in measured:
            cells[function_of(name)].append(name)
        listed = {name: seconds for name, seconds in self.seconds.items() if function_of(name) not in cells}
        for function, names in cells.items():
            limit = max(3 * mean(measured[name] for name in names), 10 * LISTED)
            long = [name for name in names if measured[name] >= limit and name != function]
            listed |= {name: measured[name] for name in long}
            usual = mean(measured[name] for name in names if name not in long)
            if usual >= LISTED:
                listed[function] = usual
        head = "# Seconds of a processor, written by `python -m pytest --all --write-durations`."
        return "\n".join([head, *(f"{listed[name]:.2g} {name}" for name in sorted(listed)), ""])


def function_of(name: str) -> str:
    """Return the name of a test without the arguments of its cell."""
    return name.partition("[")[0]


def file_of(name: str) -> str:
    """Return the file of a test."""
    return name.partition("::")[0]


def is_function_key(value: Any) -> bool:
    """Return whether an argument is a NumPy function with samples, or the name of a ufunc and its method."""
    try:
        return value in TRIALS
    except (TypeError, ValueError):  # not every argument has a hash
        return False


def subjects(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the op, the function and the page that an argument of a test stands for."""
    row = getattr(value, "row", value)
    name = row if isinstance(row, str) else getattr(row, "name", None)
    if isinstance(name, str) and name in ROWS:
        yield "op", name
    if isinstance(value, Path):
        yield "page", value.as_posix()
    if is_function_key(value):
        yield (
            "function",
            ".".join(value) if isinstance(value, tuple) else f"{value.__module__}.{value.__name__}",
        )


def tested_subjects(items: Iterable[pytest.Item]) -> set[tuple[str, str]]:
    """Return the ops, functions and pages that are arguments of tests, or parts of the names of their cells."""
    found: set[tuple[str, str]] = set()
    for item in items:
        if callspec := getattr(item, "callspec", None):
            for argument in [*callspec.params.values(), *callspec.id.split("-")]:
                found.update(subjects(argument))
    return found


def tested_names(item: pytest.Item) -> set[str]:
    """Return the names of the ops and functions that are arguments of a test, with and without their modules."""
    names = {name for kind, name in tested_subjects([item]) if kind != "page"}
    return names | {name.rpartition(".")[2] for name in names}


def values(item: pytest.Item) -> Iterator[tuple[str, str, int]]:
    """Yield the values of parameters in a cell: the file, the parameter, and the position among its values."""
    callspec: Any = getattr(item, "callspec", None)
    for name, place in callspec.indices.items() if callspec is not None else ():
        yield file_of(item.nodeid), name, place


def ways(items: Sequence[pytest.Item]) -> set[Hashable]:
    """Return the values of the parameters that have few."""
    values_of: dict[Hashable, set[Hashable]] = defaultdict(set)
    for item in items:
        for value in values(item):
            values_of[value[:2]].add(value)
    return {value for values in values_of.values() if len(values) <= FEW for value in values}


def spread(cells: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cells of a function in an order in which new values of all parameters come first."""
    seen: set[Hashable] = set()
    ranked = []
    for cell in sorted(cells, key=lambda cell: zlib.crc32(cell.nodeid.encode())):
        own = set(values(cell))
        ranked.append((0 if not own & seen else 2 if own <= seen else 1, len(ranked), cell))
        seen |= own
    return [cell for _, _, cell in sorted(ranked, key=lambda entry: entry[:2])]


def sample(items: Sequence[pytest.Item], durations: Durations) -> list[pytest.Item]:
    """Return the tests of the sample, in their order."""
    for level in LEVELS:
        chosen = sample_within(items, durations, level)
        if sum(durations.of(item.nodeid) for item in chosen) <= TOTAL:
            break
    return chosen


def sample_within(items: Sequence[pytest.Item], durations: Durations, level: Level) -> list[pytest.Item]:
    """Return the tests of a sample of a level."""
    kept: set[pytest.Item] = set()
    cells: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cells[function_of(item.nodeid)].append(item)
    for group in cells.values():
        most = level.budget * (1 + SHARE * sum(durations.of(cell.nodeid) for cell in group))
        total = 0.0
        for cell in spread(group):
            seconds = durations.of(cell.nodeid)
            if total + seconds <= most or (not total and seconds < level.slow):
                kept.add(cell)
                total += seconds

    def add(subjects_of: Any, most: float) -> None:
        touched = {subject for item in kept for subject in subjects_of(item)}
        for item in sorted(items, key=lambda item: durations.of(item.nodeid)):
            new = set(subjects_of(item)) - touched
            if new and durations.of(item.nodeid) <= most:
                kept.add(item)
                touched.update(new)

    add(lambda item: tested_subjects([item]), float("inf"))
    few = ways(items)
    add(lambda item: few.intersection(values(item)), level.dear)
    add(lambda item: [file_of(item.nodeid)], float("inf"))
    return [item for item in items if item in kept]


def processor_seconds() -> float:
    """Return the seconds of a processor that this process and its children have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
