"""Fails where gradtape has become slower or takes more memory: ``python benchmarks/gate.py BASE NEW``.

BASE and NEW are wheels, source trees, or commits of this repository. Both run the works of this folder, in this installation of Python.

In a round, three processes measure all works, two with BASE and one with NEW, in random order. If nothing has changed, NEW is the slowest,
the second or the fastest of the three with equal chances, whatever the noise of the machine is. The ranks of all rounds therefore give
the exact chance of a result by noise alone, and no threshold depends on the machine. Works that are slower by more than the tolerance
in the first rounds are measured again, without the others. The new rounds decide; their number grows with that of the works
(Bonferroni). They end early where NEW could not fail any more.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from math import exp, log
from pathlib import Path
from typing import Any

import report
from run import HERE, PACKAGES, THREADS, MeasureError, chosen_of, measure_part
from tools import TOOLS
from works import QUICK_SIZES, SIZES

QUANTITIES = {
    "value_s": ("value", 1e6, "us", 1e-9),
    "gradient_s": ("gradient", 1e6, "us", 1e-9),
    "first_s": ("first call", 1e3, "ms", 1e-9),
    "peak_mb": ("memory", 1.0, "MB", 1.0),
}
"""What is compared: its name, factor and unit in the table, and the least amount that counts."""

STARTUP = "startup::"
"""The label of the import and a first small gradient."""

SMALLEST = "rosen:2:"
"""What is measured where nothing but the startup is asked for."""

Cell = tuple[str, str, str, str]
"""A work, its size, its wording, and a quantity."""

Round = tuple[float, float, float]
"""What two processes with BASE and one with NEW have measured."""

Measure = Callable[[Sequence[Cell]], dict[Cell, Round]]


def slowdown(rounds: Sequence[Round]) -> float:
    """Return the median ratio of NEW to the geometric mean of both with BASE."""
    return exp(statistics.median([log(new) - (log(one) + log(other)) / 2 for one, other, new in rounds]))


def noise(rounds: Sequence[Round]) -> float:
    """Return the median ratio of the larger to the smaller of both with BASE."""
    return exp(statistics.median([abs(log(one) - log(other)) for one, other, _ in rounds]))


def chance(rounds: Sequence[Round]) -> float:
    """Return how likely it is that NEW ranks as high as here if nothing has changed: exactly, since each rank has the chance 1/3."""
    return tail(len(rounds), total_rank(rounds))


def total_rank(rounds: Sequence[Round]) -> int:
    """Return the sum of NEW's ranks, doubled so that a tie is a whole number: 0 for the fastest of three, 4 for the slowest."""
    return sum(int(new > base) + int(new >= base) for one, other, new in rounds for base in (one, other))


def tail(count: int, least: int) -> float:
    """Return the chance that the ranks of so many rounds, each 0, 2 or 4, add up to `least` or more."""
    ways = [1]
    for _ in range(count):
        ways = [
            sum(ways[total - rank] for rank in (0, 2, 4) if 0 <= total - rank < len(ways))
            for total in range(len(ways) + 4)
        ]
    return sum(ways[least:]) / 3**count


def rounds_needed(cells: int, alpha: float) -> int:
    """Return after how many rounds two second places still leave a chance below `alpha`, shared by all cells."""
    count = 3
    while tail(count, 4 * count - 4) > alpha / cells:
        count += 1
    return count


def judge(
    cells: Sequence[Cell], measure: Measure, first: int, tolerance: float, alpha: float
) -> tuple[dict[Cell, list[Round]], list[Cell]]:
    """Return the rounds of each cell, those that decide, and the cells that have become worse.

    Parameters
    ----------
    cells : sequence of Cell
        What is compared.
    measure : callable
        Returns a round of each of the given cells.
    first : int
        The rounds of each cell before those that are slower are measured again.
    tolerance : float
        Which part of slowdown is no failure: 0.03 is three percent.
    alpha : float
        The chance that any cell fails although nothing has changed.
    """
    rounds: dict[Cell, list[Round]] = {cell: [] for cell in cells}
    for _ in range(first):
        extend(rounds, measure(cells))
    slower = [cell for cell in cells if slowdown(rounds[cell]) > 1 + tolerance]
    rounds |= {cell: [] for cell in slower}
    needed = rounds_needed(max(len(slower), 1), alpha)
    undecided = slower
    for _ in range(needed):
        undecided = [cell for cell in undecided if may_fail(rounds[cell], needed, alpha / len(slower))]
        if undecided:
            extend(rounds, measure(undecided))
    worse = [
        cell
        for cell in undecided
        if slowdown(rounds[cell]) > 1 + tolerance and chance(rounds[cell]) <= alpha / len(slower)
    ]
    return rounds, worse


def extend(rounds: dict[Cell, list[Round]], measured: dict[Cell, Round]) -> None:
    """Append a round of some cells."""
    for cell, times in measured.items():
        rounds[cell].append(times)


def may_fail(rounds: Sequence[Round], needed: int, alpha: float) -> bool:
    """Return whether a cell could still fail if NEW were the slowest in all rounds that are left."""
    return tail(needed, total_rank(rounds) + 4 * (needed - len(rounds))) <= alpha


class Processes:
    """Rounds of three processes, each of which measures all works that are asked for, in an order of its round."""

    def __init__(self, trees: tuple[Path, Path], options: argparse.Namespace) -> None:
        self._trees, self._options = trees, options
        self._started = time.monotonic()

    def __call__(self, cells: Sequence[Cell]) -> dict[Cell, Round]:
        labels = sorted({":".join(cell[:3]) for cell in cells} - {STARTUP})
        print(f"{time.monotonic() - self._started:.0f} s: {len(cells)} cells", file=sys.stderr, flush=True)
        random.shuffle(labels)
        base, new = self._trees
        order = [(0, base), (1, base), (2, new)]
        random.shuffle(order)
        rows: list[dict[str, Any]] = [{}, {}, {}]
        for position, tree in order:
            rows[position] = self._measured(tree, labels)
        found = {}
        for cell in cells:
            least = QUANTITIES[cell[3]][3]
            one, other, last = (max(row[":".join(cell[:3])][cell[3]], least) for row in rows)
            found[cell] = one, other, last
        return found

    def _measured(self, tree: Path, labels: Sequence[str]) -> dict[str, Any]:
        options = self._options
        command = [sys.executable, str(HERE / "measure_works.py"), *(labels or [SMALLEST])]
        command += ["--seconds", str(options.seconds)]
        if options.core is not None:
            command += ["--core", str(options.core)]
        return measure_part(command, options.timeout, THREADS | {"PYTHONPATH": str(tree)})


def unpacked(given: str, folder: Path) -> Path:
    """Return the folder to import gradtape from, of a wheel, a source tree or a commit."""
    path = Path(given).resolve()
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
        return folder
    if path.is_dir():
        return path / "src" if (path / "src").is_dir() else path
    done = subprocess.run(["git", "archive", given, "src"], cwd=HERE.parent, capture_output=True)
    if done.returncode:
        sys.exit(f"{given} is no wheel, no folder and no commit: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def check_import(tree: Path) -> None:
    """End the program unless this folder is where gradtape is imported from."""
    found = subprocess.run(
        [sys.executable, "-c", "import gradtape; print(gradtape.__file__)"],
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    if not found.stdout.startswith(str(tree)):
        sys.exit(f"gradtape is not imported from {tree}: {found.stdout}{found.stderr}")


def table(rounds: dict[Cell, list[Round]], worse: Sequence[Cell]) -> str:
    """Return the medians as a Markdown table."""
    lines = [
        "| work | size | wording | quantity | base | new | new / base | noise | rounds | chance | |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for cell, found in rounds.items():
        name, factor, unit, _ = QUANTITIES[cell[3]]
        base = factor * statistics.median([value for one, other, _ in found for value in (one, other)])
        new = factor * statistics.median([new for *_, new in found])
        cells = [*cell[:3], f"{name}, {unit}", f"{base:.4g}", f"{new:.4g}"]
        cells += [
            f"{slowdown(found):.3f}",
            f"{noise(found) - 1:.1%}",
            f"{len(found)}",
            f"{chance(found):.2g}",
        ]
        lines.append("| " + " | ".join([*cells, "worse" if cell in worse else ""]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a wheel, a source tree, or a commit")
    parser.add_argument("new", help="another one")
    parser.add_argument("--works", type=chosen_of(SIZES), default=list(SIZES), help="of " + ",".join(SIZES))
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: within ten minutes on an idle machine"
    )
    parser.add_argument("--rounds", type=int, default=3, help="before slower works are measured again (3)")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each of value and gradient (0.1)")
    parser.add_argument("--tolerance", type=float, default=0.03, help="slowdown that is no failure (0.03)")
    parser.add_argument(
        "--alpha", type=float, default=0.01, help="chance of a failure without a change (0.01)"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each process (600)")
    parser.add_argument("--core", type=int, help="the core to measure on (the last one)")
    options = parser.parse_args()
    if options.core is None and sys.platform == "linux":
        options.core = max(os.sched_getaffinity(0))
    cells: list[Cell] = [
        (work, size, wording, quantity)
        for work in options.works
        for size in (QUICK_SIZES if options.quick else SIZES)[work]
        for wording in TOOLS["gradtape"].wordings_of(work, size)
        for quantity in QUANTITIES
    ]
    cells.append(("startup", "", "", "first_s"))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        trees = unpacked(options.base, Path(one)), unpacked(options.new, Path(other))
        for tree in trees:
            check_import(tree)
        try:
            measure = Processes(trees, options)
            rounds, worse = judge(cells, measure, options.rounds, options.tolerance, options.alpha)
        except MeasureError as error:
            sys.exit(f"a process failed: {error}")
    print(table(rounds, worse), report.machine(PACKAGES), sep="\n\n")
    for cell in worse:
        print(
            f"{' '.join(filter(None, cell[:3]))}: {QUANTITIES[cell[3]][0]} is {slowdown(rounds[cell]):.2f} times that of {options.base}"
        )
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
