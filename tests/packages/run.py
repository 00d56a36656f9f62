"""Runs the calls of a package in a process of its own: one that crashes or hangs is a result, and the next call goes on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.packages.environment import ROOT
from tests.packages.table import Package

PATIENCE = 120.0
"""Seconds that a stage of a call may take: value and differences, compiled, on a tape."""

STAGES = ("plain", "jit", "tape")


def measure(
    package: Package, python: Path, most: int | None = None, patience: float = PATIENCE
) -> list[dict[str, Any]]:
    """Return the results of a package's calls, or of the first ones."""
    count = len(package.calls) if most is None else min(most, len(package.calls))
    results: list[dict[str, Any]] = [{} for _ in range(count)]
    start = 0
    while start < count:
        start = _process(package, python, results, start, patience)
    return results


def _process(
    package: Package, python: Path, results: list[dict[str, Any]], start: int, patience: float
) -> int:
    """Fill in results from a call on, until all are there or the process ends; return the call that is next."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "MPLBACKEND": "Agg"}
    environment.pop("GRADTAPE_VERIFY", None)
    command = [str(python), "-m", "tests.packages.worker", json.dumps(package), str(start)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout
        call, why = start, ""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            pending, deadline = b"", time.monotonic() + patience
            while call < len(results):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    why = "hangs"
                    break
                block = os.read(process.stdout.fileno(), 65536)
                if not block:
                    why = "crashes"
                    break
                *lines, pending = (pending + block).split(b"\n")
                for line in lines:
                    said = json.loads(line)
                    stage = said.pop("stage")
                    if said.pop("call") != call:
                        continue
                    deadline = time.monotonic() + patience
                    if stage == "end":
                        call += 1
                        if call == len(results):
                            break
                    else:
                        results[call][stage] = said
        if why != "crashes":
            process.kill()
        process.wait()
        process.stdout.close()
        if call < len(results):
            missing = next((stage for stage in STAGES if stage not in results[call]), "tape")
            reason = f"after {patience:.0f} s" if why == "hangs" else _last_words(process.returncode, errors)
            status = why if missing != "plain" else "fails"
            results[call][missing] = {"status": status, "error": "", "reason": f"{why}: {reason}"}
            call += 1
    return call


def _last_words(code: int, errors: Any) -> str:
    """Return the signal that ended a process, or the last line of its errors."""
    if code < 0:
        return signal.Signals(-code).name
    errors.seek(0)
    lines = [line for line in errors.read().splitlines() if line.strip()]
    return lines[-1][:240] if lines else f"exit code {code}"
