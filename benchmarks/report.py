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
    "wording",
    "first gradient call s",
    "value ms",
    "gradient ms",
    "gradient/value",
    "gradient vs best by hand",
    "peak MB",
    "page faults per gradient",
    "largest error",
    "CPU/wall",
)
N_NAMES = 4
AGAINST_COLUMNS = (
    "work",
    "size",
    "wording",
    "first gradient call s",
    "compile s",
    "gradient ms",
    "peak MB",
    "page faults",
)

NOTES = """\
One process for each row, one thread on one core, float64, medians. Each tool gets the same source text
(`wordings/`), with `np`, `scan` and `while_loop` bound to its own; `c`, `numba` and `numpy` are derived by
hand, value and gradient. The works with loops have two wordings: the loop of the tool, and a plain Python
loop. *Gradient* is value and gradient together; of `jacmlp` the Jacobian and of `hesslr` the Hessian. *First
gradient call* is tracing and compiling with an empty cache, and importing what that takes. *Peak MB* is the
largest memory while a first gradient is compiled and called, above that of the process before, which holds
the arguments and has done the same with a few elements, less the size of the results. The limit `c` (`limits/`) is called through ctypes
with all buffers made beforehand; the others return new arrays. `rosen` of 2 elements measures the call
itself, in a plain Python loop. *Largest error* is relative to the largest entry of each array, against NumPy
by hand. CPU/wall well below 1 means that the machine was busy: measure again.
"""
NOTES_AGAINST = """\
gradtape / JAX, and the ratio; **bold** where a first gradient takes longer than JAX's, a later one is slower,
or the peak is above a quarter of JAX's. *Compile* is the first gradient call in a process that has done the
same with a few elements: nothing is imported any more. Beside a plain Python loop stands JAX's `lax.scan`:
JAX would unroll the loop, and takes 8.4 s and 1 GB for the first gradient of 100 steps of the pendulum. JAX
has no gradient of a `while_loop`.
"""
# How much of JAX's each may be.
FIRST, GRADIENT, PEAK = 1.0, 1.0, 0.25
# How far a ratio of two tools may be above the published one: two runs on one quiet machine differ by up to a sixth.
CLAIM_NOISE = 1.25

Row = dict[str, Any]


def results(rows: Sequence[Row], remarks: Sequence[str]) -> str:
    """All that is measured, and gradtape against JAX."""
    text = f"{NOTES}\n{results_table(rows)}" + "".join(f"\n{remark}\n" for remark in remarks)
    lines = list(against(rows))
    return f"{text}\n{NOTES_AGAINST}\n{table(AGAINST_COLUMNS, 3, lines)}" if lines else text


def results_table(rows: Sequence[Row]) -> str:
    """One line for each row that was measured."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["by_hand"]:
            key = row["work"], row["size"]
            best[key] = min(row["gradient_s"], best.get(key, row["gradient_s"]))
    return table(COLUMNS, N_NAMES, (_cells(row, best.get((row["work"], row["size"]))) for row in rows))


def against(rows: Sequence[Row]) -> Iterable[list[str]]:
    """gradtape and JAX side by side. JAX has but one wording of each work."""
    peers = {(row["work"], row["size"]): row for row in rows if row["tool"] == "jax"}
    for row in rows:
        peer = peers.get((row["work"], row["size"]))
        if row["tool"] == "gradtape" and peer:
            yield [
                *(row[name] for name in ("work", "size", "wording")),
                _side_by_side(row["first_s"], peer["first_s"], FIRST),
                _side_by_side(row["later_first_s"], peer["later_first_s"], FIRST),
                _side_by_side(1e3 * row["gradient_s"], 1e3 * peer["gradient_s"], GRADIENT),
                _side_by_side(row["peak_mb"], peer["peak_mb"], PEAK),
                f"{row['faults']:.0f} / {peer['faults']:.0f}",
            ]


def _side_by_side(own: float, other: float, most: float) -> str:
    ratio = f"{own / other:.2f}x" if other > 0.0 else "-"
    return f"{own:.3g} / {other:.3g} {ratio if own <= most * other else f'**{ratio}**'}"


def speed_table(rows: Sequence[Row]) -> str:
    """One line for each wording: the time of value and gradient by each tool, in microseconds."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    keys = [(row["work"], row["size"], row["wording"], row["tool"]) for row in rows]
    times = {key: 1e6 * row["gradient_s"] for key, row in zip(keys, rows, strict=True)}
    by_hand = {row["tool"] for row in rows if row["by_hand"]}
    wordings: dict[tuple[str, str], list[str]] = {}
    for work, size, wording, tool in keys:
        known = wordings.setdefault((work, size), [])
        if tool not in by_hand and wording not in known:
            known.append(wording)
    lines = []
    for (work, size), known in wordings.items():
        for wording in known or [""]:
            found = (times.get((work, size, "" if tool in by_hand else wording, tool)) for tool in tools)
            lines.append([work, size, wording, *map(_microseconds, found)])
    return table(("work", "size", "wording", *[f"{tool} us" for tool in tools]), 3, lines)


def read_speed_table(text: str) -> dict[tuple[str, str, str], dict[str, float]]:
    """The times of a table as `speed_table` writes it, in microseconds, by work, size and wording, and by tool."""
    header, _, *lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    tools = [column.removesuffix(" us") for column in header[3:]]
    return {
        (work, size, wording): {
            tool: float(cell.replace(",", "")) for tool, cell in zip(tools, cells, strict=True) if cell
        }
        for work, size, wording, *cells in lines
    }


def broken_claims(claimed: str, measured: str) -> list[str]:
    """What a published table says of gradtape that a measured one does not: ratios to other tools of the same run.

    A row that only one of them has is not compared: machines and versions differ in what they can run.
    """
    claims = read_speed_table(claimed)
    broken = []
    for key, times in read_speed_table(measured).items():
        claim = claims.get(key, {})
        tools = times.keys() & claim.keys()
        for tool in tools - {"gradtape"} if "gradtape" in tools else ():
            ratio, claimed_ratio = times["gradtape"] / times[tool], claim["gradtape"] / claim[tool]
            if ratio > CLAIM_NOISE * claimed_ratio:
                label = " ".join(filter(None, key))
                broken.append(
                    f"{label}: {ratio:.3g} times {tool}'s time, the table says {claimed_ratio:.3g}."
                )
    return sorted(broken)


def _microseconds(time: float | None) -> str:
    return "" if time is None else f"{time:.3g}" if time < 1000 else f"{time:,.0f}"


def _cells(row: Row, best: float | None) -> list[str]:
    return [
        row["work"],
        row["size"],
        row["tool"],
        row["wording"],
        f"{row['first_s']:.3g}",
        f"{1e3 * row['value_s']:.3g}",
        f"{1e3 * row['gradient_s']:.3g}",
        f"{row['gradient_s'] / row['value_s']:.3g}",
        "" if best is None else f"{row['gradient_s'] / best:.3g}x",
        f"{row['peak_mb']:.1f}",
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
