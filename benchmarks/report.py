"""Tables in Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

COLUMNS = (
    "work",
    "size",
    "tool",
    "import s",
    "first gradient call s",
    "value ms",
    "gradient ms",
    "gradient/value",
    "gradient vs best by hand",
    "peak RSS MB",
    "page faults per gradient",
    "largest error",
    "CPU/wall",
)
N_NAMES = 3

NOTES = """\
One process for each row, one thread on one core, float64, medians. Each tool gets the same source text
(`wordings/`), with `np` bound to its own namespace; `c`, `numba` and `numpy` are derived by hand, value and
gradient. *Gradient* is value and gradient together. *First gradient call* is tracing and compiling with an
empty cache. The limit `c` (`limits/`) is called through ctypes with all buffers made beforehand; the others
return new arrays. `rosen` of 2 elements measures the call itself, in a plain Python loop. *Largest error* is
relative to the largest entry of each array, against NumPy by hand. CPU/wall well below 1 means that the
machine was busy: measure again.
"""


def results_table(rows: Sequence[dict[str, Any]]) -> str:
    """One line for each row that was measured."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["by_hand"]:
            key = row["work"], row["size"]
            best[key] = min(row["gradient_s"], best.get(key, row["gradient_s"]))
    return table(COLUMNS, N_NAMES, (_cells(row, best.get((row["work"], row["size"]))) for row in rows))


def speed_table(rows: Sequence[dict[str, Any]]) -> str:
    """One line for each work and size: the time of value and gradient by each tool, in microseconds."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    times = {(row["work"], row["size"], row["tool"]): 1e6 * row["gradient_s"] for row in rows}
    works = list(dict.fromkeys((row["work"], row["size"]) for row in rows))
    lines = [[*name, *[_microseconds(times.get((*name, tool))) for tool in tools]] for name in works]
    return table(("work", "size", *[f"{tool} us" for tool in tools]), 2, lines)


def _microseconds(time: float | None) -> str:
    return "" if time is None else f"{time:.3g}" if time < 1000 else f"{time:,.0f}"


def _cells(row: dict[str, Any], best: float | None) -> list[str]:
    return [
        row["work"],
        row["size"],
        row["tool"],
        f"{row['import_s']:.2f}",
        f"{row['first_s']:.3g}",
        f"{1e3 * row['value_s']:.3g}",
        f"{1e3 * row['gradient_s']:.3g}",
        f"{row['gradient_s'] / row['value_s']:.3g}",
        "" if best is None else f"{row['gradient_s'] / best:.3g}x",
        f"{row['peak_mb']:.0f}",
        f"{row['faults']:.0f}",
        f"{row['error']:.0e}",
        f"{row['cpu_share']:.2f}",
    ]


def table(columns: Sequence[str], n_names: int, lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first `n_names` columns are names and whose others are numbers."""
    rule = ["---"] * n_names + ["---:"] * (len(columns) - n_names)
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, rule, *lines))


def machine(packages: Iterable[str]) -> str:
    """The processor and the versions of what was measured, in one sentence."""
    versions = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{_processor()}, {os.cpu_count()} cores; {', '.join(versions)}."


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor() or platform.machine()
    lines = information.read_text().splitlines()
    facts = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    vectors = "AVX-512" if "avx512f" in facts.get("flags", "") else platform.machine()
    return f"{facts.get('model name', platform.machine()).strip()} ({vectors})"
