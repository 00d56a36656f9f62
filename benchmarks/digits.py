"""Measures `gt.debug.digits`: digits against mpmath's, the lines where they are lost, false alarms, and the time.

    OPENBLAS_NUM_THREADS=1 GRADTAPE_CACHE_DIR=$(mktemp -d) python benchmarks/digits.py [--repeats 5] [--only NAME]

The programs are those of `cancellations.py`: 100 that lose digits at lines with a comment that says so, and 60 that lose none. The truth is
the error of value and gradient, computed op by op in double precision, against mpmath with 120 digits. Digits count as right within one of
it, for the value and for the gradient. A line is found if the first loss that is reported is at a line with a comment; a false alarm is
any loss of a program that loses none, or that is at a line without a comment. Where an argument is read twice and the derivatives of both
paths cancel, as they do if the paths are subtracted, the line of the first path says so in a comment of its own.

Times are CPU times, as in `kinks.py`: against the first gradient (with an empty disk cache), and against a gradient on a tape.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import statistics
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import mpmath
import numpy as np
from cancellations import ILL, WELL, Program
from scipy import special

import gradtape as gt
from gradtape.api.debug.precision import ENOUGH

WORKING: Final = 120
"""Digits of mpmath."""

ALL: Final = 15.95


class Doubles:
    """The functions of a program by NumPy and SciPy."""

    solve, det, inv = staticmethod(np.linalg.solve), staticmethod(np.linalg.det), staticmethod(np.linalg.inv)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name, None) or getattr(special, name)


class Exact:
    """The same functions by mpmath, of numbers and of arrays of numbers."""

    NAMES: Final = {
        "arctan": "atan",
        "arctan2": "atan2",
        "arcsin": "asin",
        "arccos": "acos",
        "ndtr": "ncdf",
        "gammaln": "loggamma",
    }

    def log1p(self, x: Any) -> Any:
        """Return log(1 + x), by more digits."""
        return np.frompyfunc(lambda y: mpmath.log(1 + y), 1, 1)(x)

    def solve(self, a: Any, b: Any) -> Any:
        """Return the solution of a linear system."""
        return np.array(list(mpmath.lu_solve(mpmath.matrix(a.tolist()), mpmath.matrix(b.tolist()))))

    def det(self, a: Any) -> Any:
        """Return a determinant."""
        return mpmath.det(mpmath.matrix(a.tolist()))

    def inv(self, a: Any) -> Any:
        """Return an inverse."""
        return np.array((mpmath.matrix(a.tolist()) ** -1).tolist())

    def __getattr__(self, name: str) -> Any:
        function = getattr(mpmath, self.NAMES.get(name, name))
        return np.frompyfunc(function, 2 if name == "arctan2" else 1, 1)


class Row(NamedTuple):
    """What is measured of a program.

    Attributes
    ----------
    truth, reported : tuple of float
        Digits of the value, and of the gradient.
    losses : list of tuple
        The lines that are reported, the largest loss first, each with whether it is that of the derivative.
    planted, in_derivative : set of int
        Lines with comments.
    """

    truth: tuple[float, float]
    reported: tuple[float, float]
    losses: list[tuple[int, bool]]
    planted: set[int]
    in_derivative: set[int]

    @property
    def close(self) -> tuple[bool, ...]:
        """Whether digits of value and gradient are within one of the truth."""
        return tuple(abs(a - b) <= 1.0 for a, b in zip(self.truth, self.reported, strict=True))

    @property
    def has_lost(self) -> bool:
        """Whether digits are lost at these arguments; the errors of a formula that loses digits may happen to be small."""
        return min(self.truth) < ENOUGH

    @property
    def is_found(self) -> bool:
        """Whether the first loss is at a planted line."""
        return bool(self.losses) and self.losses[0][0] in self.planted

    @property
    def is_false(self) -> bool:
        """Whether a line is blamed that loses nothing."""
        return any(
            line not in self.planted and not (is_derivative and line in self.in_derivative)
            for line, is_derivative in self.losses
        )


def lines_of(program: Program, mark: str) -> set[int]:
    """Return the lines with a comment."""
    lines, first = inspect.getsourcelines(program.function)
    return {number for number, line in enumerate(lines, first) if line.rstrip().endswith(f"# {mark}")}


def _exact(program: Program) -> tuple[Any, list[Any]]:
    """Return the value and the derivatives with respect to all numbers, by central differences of very small steps."""
    parts = [np.array(np.frompyfunc(mpmath.mpf, 1, 1)(x), dtype=object) for x in program.arguments]
    m, step = Exact(), mpmath.mpf(10) ** (-WORKING // 3)

    def at(moved: int = -1, place: int = 0, by: Any = 0) -> Any:
        given = [part.copy() for part in parts]
        if moved >= 0:
            given[moved].flat[place] += by
        return program.function(m, *(part if part.ndim else part[()] for part in given))

    slopes = [
        [(at(k, i, step) - at(k, i, -step)) / (2 * step) for i in range(part.size)]
        for k, part in enumerate(parts)
    ]
    return at(), slopes


def _right(computed: Any, exact: Any) -> float:
    """Return the digits of the largest number of an array that are right."""
    pairs = list(zip(np.ravel(computed), np.ravel(np.array(exact, dtype=object)), strict=True))
    error = max(abs(mpmath.mpf(float(a)) - b) for a, b in pairs)
    size = max(abs(b) for _, b in pairs)
    if error == 0:
        return ALL
    return float(min(ALL, max(0, -mpmath.log10(error / size)))) if size else 0.0


def truth(program: Program) -> tuple[float, float]:
    """Return the digits of value and gradient that are right, where they are computed op by op: kernels fuse products and sums."""
    with gt.debug.check_numerics(), np.errstate(all="ignore"):
        value, slopes = gt.value_and_grad(_doubles(program), tuple(range(len(program.arguments))))(
            *program.arguments
        )
    with mpmath.workdps(WORKING):
        exact, parts = _exact(program)
        digits = [_right(slope, part) for slope, part in zip(slopes, parts, strict=True)]
        return _right(value, exact), min(digits)


def _doubles(program: Program) -> Callable[..., Any]:
    """Return the function of doubles; by its own code, so that it has programs of its own."""
    return functools.partial(program.function, Doubles())


def measured(program: Program) -> Row:
    """Return what `gt.debug.digits` says about a program, beside the truth."""
    found = gt.debug.digits(_doubles(program), *program.arguments)
    losses = [(loss.site.line, loss.in_derivative_of is not None) for loss in found.losses]
    marks = [lines_of(program, mark) for mark in ("loses", "loses in the derivative")]
    return Row(truth(program), (found.value, found.derivative), losses, *marks)


def _timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _times(program: Program, repeats: int) -> tuple[float, float, float]:
    """Return the times of `digits`, of the first gradient, and of a gradient on a tape."""
    function, arguments = _doubles(program), program.arguments
    every = tuple(range(len(arguments)))
    first = _timed(lambda: gt.grad(function, every)(*arguments))

    def on_tape() -> Any:
        with gt.GradientTape() as tape:
            watched = [tape.watch(np.asarray(x)) for x in arguments]
            result = function(*watched)
        return tape.gradient(result, watched)

    on_tape()
    here, there = [], []
    for _ in range(repeats):
        here.append(_timed(lambda: gt.debug.digits(function, *arguments)))
        there.append(_timed(lambda: [on_tape() for _ in range(10)]) / 10)
    return statistics.median(here), first, statistics.median(there)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows: dict[str, list[Row]] = {}
    times: dict[str, list[tuple[float, float, float]]] = {}
    for kind, programs in (("ill", ILL), ("well", WELL)):
        for name, program in programs.items():
            if options.only and options.only != name:
                continue
            row = measured(program)
            group = program.trade if kind == "ill" else "none lost"
            rows.setdefault(group, []).append(row)
            if options.repeats:
                times.setdefault(group, []).append(_times(program, options.repeats))
            missed = kind == "ill" and row.has_lost and not row.is_found
            if options.only or not all(row.close) or missed or row.is_false:
                digits = " ".join(f"{a:.1f}/{b:.1f}" for a, b in zip(row.reported, row.truth, strict=True))
                print(f"{name}: {digits}, losses {row.losses}, planted {sorted(row.planted)}", flush=True)
    print("\n| programs | number | digits within one | line found | false alarms | digits, ms | ", end="")
    print("/ the first gradient | / on a tape |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for group, found in rows.items():
        print(_line(group, found, times.get(group, [])))
    lost = [group for group in rows if group != "none lost"]
    every = [row for group in lost for row in rows[group]]
    print(_line("all that lose digits", every, [each for group in lost for each in times.get(group, [])]))


def _line(group: str, rows: list[Row], times: list[tuple[float, float, float]]) -> str:
    close = [each for row in rows for each in row.close]
    lost = [row for row in rows if row.has_lost]
    has_lines = any(row.planted for row in rows)
    cells = [
        str(len(rows)),
        f"{sum(close)} of {len(close)}",
        f"{sum(row.is_found for row in lost)} of {len(lost)}" if has_lines else "",
        f"{sum(row.is_false for row in rows)}",
    ]
    if times:
        here, first, tape = (np.array(each) for each in zip(*times, strict=True))
        cells += [
            f"{1e3 * np.median(here):.0f}",
            f"{np.median(here / first):.2f}",
            f"{np.median(here / tape):.0f}",
        ]
    else:
        cells += [""] * 3
    return f"| {group} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
