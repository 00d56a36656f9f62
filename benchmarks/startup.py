"""From the start of a process to its first gradient."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from processes import environment

CHILD = Path(__file__).resolve().parent / "first_gradient.py"
TOOLS = ("gradtape", "jax")
COLUMNS = ("tool", "cache", "start to first gradient s", "fastest s", "slowest s")
NOTES = """\
Wall time from the start of a fresh Python process to the first gradient of Rosenbrock's function (1000
elements), imports, tracing and compiling included; bytecode is cached. Cold: the disk cache is empty. Warm:
another process has filled it. JAX keeps nothing on disk unless told to.
"""


def measure(tools: list[str], runs: int, core: int | None) -> str:
    """The table, as Markdown."""
    lines, remarks = [], ""
    for tool in tools:
        if importlib.util.find_spec(tool) is None:
            remarks += f"\n{tool}: not measured, it is not installed.\n"
            continue
        # Writes the bytecode of all that is imported.
        start_to_gradient(tool, core, None)
        for cache in ("cold", "warm") if tool == "gradtape" else ("none",):
            seconds = [once(tool, core, warm=cache == "warm") for _ in range(runs)]
            numbers = statistics.median(seconds), min(seconds), max(seconds)
            lines.append([tool, cache, *(f"{number:.3f}" for number in numbers)])
    return f"{NOTES}\n{report.table(COLUMNS, 2, lines)}{remarks}"


def once(tool: str, core: int | None, *, warm: bool) -> float:
    with tempfile.TemporaryDirectory() as cache:
        if warm:
            start_to_gradient(tool, core, cache)
        return start_to_gradient(tool, core, cache)


def start_to_gradient(tool: str, core: int | None, cache: str | None) -> float:
    """Seconds of the system's monotonic clock, which all processes share."""
    command = [sys.executable, str(CHILD), tool]
    if core is not None:
        command.append(str(core))
    with tempfile.TemporaryDirectory() as empty:
        kept = environment(JAX_PLATFORMS="cpu", GRADTAPE_CACHE_DIR=empty if cache is None else cache)
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, env=kept)
    if done.returncode:
        sys.exit(f"{tool} failed to compute a gradient:\n{done.stderr}")
    return float(done.stdout) - started
