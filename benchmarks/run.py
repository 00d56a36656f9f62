"""Compares gradtape with its peers and with hand-written code: `python benchmarks/run.py --help`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import native
import report
import startup
from processes import environment
from tools import TOOLS, Tool
from works import LOOPS, QUICK_SIZES, SIZES, work

HERE = Path(__file__).resolve().parent
README_MARK = "<!-- speed table -->"
PACKAGES = ("numpy", "scipy", "gradtape", "numba", "jax", "torch", "autograd")
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}


def main() -> None:
    options = arguments()
    core = options.core
    if core is None and sys.platform == "linux":
        core = max(os.sched_getaffinity(0))
    failures: list[str] = []
    if options.startup:
        text = startup.measure([tool for tool in options.tools if tool in startup.TOOLS], options.runs, core)
        out = options.out or HERE / "STARTUP.md"
    else:
        rows, absences, failures = measure_all(options, core)
        text = report.results(rows, absences + failures)
        out = options.out or HERE / "RESULTS.md"
        if options.check:
            _, claimed, _ = (HERE.parent / "README.md").read_text().split(README_MARK)
            failures += report.broken_claims(claimed, report.speed_table(rows))
            print(*failures, sep="\n", file=sys.stderr)
        elif options.readme and not failures:
            write_readme(f"{report.speed_table(rows)}\n{report.machine(PACKAGES)}\n")
    text = f"{text}\n{report.machine(PACKAGES)}\n"
    print(text)
    out.write_text(text)
    sys.exit(bool(failures))


def write_readme(text: str) -> None:
    """Put a text between the marks of the speed table in the README."""
    readme = HERE.parent / "README.md"
    before, _, after = readme.read_text().split(README_MARK)
    readme.write_text(f"{before}{README_MARK}\n{text}{README_MARK}{after}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", type=chosen_of(SIZES), default=list(SIZES), help="of " + ",".join(SIZES))
    parser.add_argument("--tools", type=chosen_of(TOOLS), default=list(TOOLS), help="of " + ",".join(TOOLS))
    parser.add_argument("--sizes", type=lambda text: text.split(","), help="instead of each work's own sizes")
    parser.add_argument(
        "--wordings", type=chosen_of(LOOPS), default=list(LOOPS), help="of " + ",".join(LOOPS)
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of value and gradient (2)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each process (600)")
    parser.add_argument("--readme", action="store_true", help="write the times into the README as well")
    parser.add_argument(
        "--check", action="store_true", help="fail where a ratio to another tool is above the README's"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few repetitions")
    parser.add_argument("--startup", action="store_true", help="time from process start to first gradient")
    parser.add_argument("--runs", type=int, default=7, help="processes for each line of --startup (7)")
    parser.add_argument("--core", type=int, help="the core to measure on (the last one)")
    parser.add_argument("--out", type=Path, help="the file to write (RESULTS.md or STARTUP.md here)")
    options = parser.parse_args()
    if options.quick:
        options.seconds = min(options.seconds, 0.02)
    return options


def chosen_of(known: Any) -> Any:
    """An argument type: names out of `known`, separated by commas."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return parse


Row = dict[str, Any]


class MeasureError(Exception):
    """A tool failed on a work: the line that names the exception."""


def measure_all(options: argparse.Namespace, core: int | None) -> tuple[list[Row], list[str], list[str]]:
    """The rows of the table, what to say about tools that are not installed, and about those that failed."""
    tools, absences, failures = [], [], []
    for tool in (TOOLS[name] for name in options.tools):
        missing = [name for name in tool.modules if importlib.util.find_spec(name.split(".")[0]) is None]
        if missing:
            absences.append(f"{tool.name}: not measured, {missing[0]} is not installed.")
        else:
            tools.append(tool)
    if any(tool.name == "c" for tool in tools):
        try:
            native.build()
        except native.BuildError as error:
            sys.exit(str(error))
    rows = []
    for name in options.works:
        for size in options.sizes or (QUICK_SIZES if options.quick else SIZES)[name]:
            work(name, size)
            for tool in tools:
                chosen = ("", *options.wordings)
                for wording in (w for w in tool.wordings_of(name, size) if w in chosen):
                    label = {"work": name, "size": size, "tool": tool.name, "wording": wording}
                    print(*label.values(), file=sys.stderr)
                    try:
                        row = measure_one(tool, name, size, wording, options, core)
                    except MeasureError as error:
                        failures.append(f"{' '.join(filter(None, label.values()))} failed: {error}")
                    else:
                        rows.append(row | label | {"by_hand": tool.by_hand})
    return rows, absences, failures


def measure_one(
    tool: Tool,
    name: str,
    size: str,
    wording: str,
    options: argparse.Namespace,
    core: int | None,
    **variables: str,
) -> Row:
    """Times and memory, each in a fresh process with empty caches and these environment variables."""
    command = [sys.executable, str(HERE / "measure.py"), tool.name, name, size]
    command += ["--modules", ",".join(tool.modules), "--seconds", str(options.seconds)]
    if wording:
        command += ["--wording", wording]
    if core is not None:
        command += ["--core", str(core)]
    times = measure_part(command, options.timeout, variables)
    return times | measure_part([*command, "--memory"], options.timeout, variables)


def measure_part(command: list[str], timeout: float, variables: dict[str, str]) -> Row:
    with tempfile.TemporaryDirectory() as cache:
        own = environment(**THREADS | variables, GRADTAPE_CACHE_DIR=cache)
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise MeasureError(f"it takes more than {timeout:g} s.") from None
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        named = re.findall(r"^[\w.]+: .*$", done.stderr, re.MULTILINE)
        raise MeasureError(named[-1] if named else f"exit code {done.returncode}")
    part: Row = json.loads(done.stdout.splitlines()[-1])
    return part


if __name__ == "__main__":
    main()
