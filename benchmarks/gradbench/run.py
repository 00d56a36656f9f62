"""Runs GradBench's evals with its tools and ours, without containers: `python benchmarks/gradbench/run.py --help`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
EVALS = (HERE / "tool" / "evals.txt").read_text().split()
PYTHON_TOOLS = ("gradtape", "jax", "pytorch", "tensorflow")

# What an eval is given: all sizes of GradBench but those that take minutes or gigabytes.
SIZES = {
    "ba": ["--max", "5"],
    "det": ["-l", "5", "6", "7", "8", "9", "10"],
    "gmm": ["-d", "2", "10", "32", "-k", "5", "25", "50"],
    "ht": ["--max", "5", "--model", "small"],
    "kmeans": ["-k", "10", "100", "-n", "1000", "10000"],
    "llsq": ["-n", "16", "256", "4096", "16392"],
    "lse": ["-n", "2500", "40000", "640000"],
    "lstm": ["-l", "2", "4", "-c", "1024", "4096"],
    "ode": ["-n", "1000", "10000", "-s", "10", "100"],
}
# A copy of the repository may lack this file, which is large; the eval takes any text.
LSTM_TEXT = Path("evals/lstm/data/lstm_full.txt")


@dataclass
class Run:
    """What one tool did with one eval: the median nanoseconds of each call, and what was not right."""

    times: dict[tuple[str, str], float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    valid: int = 0


def main() -> None:
    options = arguments()
    checkout = options.checkout.resolve()
    install(checkout)
    text = []
    failed = False
    for name in options.evals:
        if (checkout / "tools" / "manual" / f"{name}.cpp").exists():  # the reference of the eval
            subprocess.run(["make", "-s", "-C", checkout / "tools" / "manual", f"bin/{name}"], check=True)
        runs = {tool: run(checkout, name, tool, options) for tool in options.tools}
        text.append(table(name, runs))
        print(text[-1], flush=True)
        failed |= bool(runs.get("gradtape", Run()).failures)
    if options.out:
        options.out.write_text("\n".join(text))
    sys.exit(failed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "checkout", type=Path, help="a clone of github.com/gradbench/gradbench, which our tool is put into"
    )
    parser.add_argument("--evals", nargs="+", default=EVALS, choices=EVALS, metavar="EVAL")
    parser.add_argument(
        "--tools", nargs="+", default=["manual", "gradtape"], help="folders of its tools/, or gradtape"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each call is repeated")
    parser.add_argument("--core", type=int, help="the processor that all tools run on")
    parser.add_argument("--out", type=Path, help="a file for the tables")
    return parser.parse_args()


def install(checkout: Path) -> None:
    """Copies our tool to its two places in GradBench's repository, as a pull request would add it."""
    package = checkout / "python" / "gradbench" / "gradbench" / "tools" / "gradtape"
    described = checkout / "tools" / "gradtape"
    for folder in (package, described):
        folder.mkdir(parents=True, exist_ok=True)
    for path in (HERE / "tool").iterdir():
        if path.is_file():
            shutil.copy(path, package if path.suffix == ".py" else described)
    if not (checkout / LSTM_TEXT).exists():
        (checkout / LSTM_TEXT).write_text(
            (checkout / "CONTRIBUTING.md").read_text().encode("ascii", "ignore").decode()
        )


def run(checkout: Path, name: str, tool: str, options: argparse.Namespace) -> Run:
    """Lets an eval and a tool talk to each other, as GradBench's intermediary does."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(checkout / "python" / "gradbench"), os.environ.get("PYTHONPATH", "")]
        ),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "JAX_PLATFORMS": "cpu",
    }
    folder = Path("python/gradbench/gradbench")
    command = [folder / "tools" / tool / "run.py"] if tool in PYTHON_TOOLS else [folder / "cpp.py", tool]
    sizes = (
        [*SIZES.get(name, []), "--min-runs", "5", "--min-seconds", str(options.seconds)]
        if name != "hello"
        else []
    )

    def start(command: list[Any]) -> subprocess.Popen[str]:
        pinned = ["taskset", "-c", str(options.core)] if options.core is not None else []
        command = [*pinned, sys.executable, *map(str, command)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=checkout, env=environment, text=True)

    with start([folder / "evals" / name / "run.py", *sizes]) as asks, start(command) as answers:
        result = converse(asks, answers)
        answers.kill()
    if asks.returncode:
        result.failures.append("the eval ended with an error")
    return result


def converse(asks: subprocess.Popen[str], answers: subprocess.Popen[str]) -> Run:
    result = Run()
    calls: dict[int, tuple[str, str]] = {}
    for line in lines(asks):
        message = json.loads(line)
        write(answers, line)
        answer = lines(answers).readline()
        if not answer:
            result.failures.append(f"{calls.get(message['id'] - 1, message['kind'])}: the tool ended")
            break
        response = json.loads(answer)
        if message["kind"] == "evaluate":
            call = calls[message["id"]] = message.get("description", ""), message["function"]
            times = [
                each["nanoseconds"] for each in response.get("timings", []) if each["name"] == "evaluate"
            ]
            if times:
                # The first call compiles.
                result.times[call] = statistics.median(times[len(times) > 1 :])
        if message["kind"] == "analysis":
            result.valid += message["valid"]
            if not message["valid"]:
                result.failures.append(f"{calls[message['of']]}: {message['error']}")
        if not response.get("success", True):
            reason = str(response.get("error")).strip().splitlines()[-12:]
            result.failures.append("\n".join([f"{message.get('description', message['kind'])}:", *reason]))
        write(asks, answer)
    return result


def lines(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def table(name: str, runs: dict[str, Run]) -> str:
    calls = list(dict.fromkeys(call for each in runs.values() for call in each.times))
    text = [
        f"## {name}",
        "",
        f"| size | function | {' | '.join(runs)} |",
        "| --- | --- |" + " ---: |" * len(runs),
    ]
    for call in calls:
        times = [each.times.get(call) for each in runs.values()]
        cells = [f"{time / 1e3:,.1f} us" if time is not None else "-" for time in times]
        text.append(f"| {call[0]} | {call[1]} | {' | '.join(cells)} |")
    for tool, each in runs.items():
        text += ["", f"{tool}: {each.valid} results are those of the reference."]
        text += [f"{tool} failed: {failure}" for failure in each.failures]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
