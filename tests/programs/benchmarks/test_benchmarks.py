"""The benchmarks run, agree with each other and write their tables. No time is asserted."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape
from tests.programs.loops.all import PROGRAMS
from tests.support.differences import gradient_by_differences

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1])) | variables
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments, "--out", str(folder / "table.md")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def is_row(line: str) -> bool:
    return line.startswith("|")


def rows(folder: Path) -> list[dict[str, str]]:
    """Of the first table."""
    lines = (folder / "table.md").read_text().splitlines()
    lines = list(takewhile(is_row, dropwhile(lambda line: not is_row(line), lines)))
    header, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, line, strict=True)) for line in body]


CLAIMED = """
| work | size | wording | c us | gradtape us | jax us |
| --- | --- | --- | ---: | ---: | ---: |
| rosen | 2 |  | 0.164 | 0.072 | 3.8 |
| hmm | K16_T500 | loop | 78.3 | 92.8 |  |
| bs | 1000000 |  | 6,800 | 6,997 | 85,553 |
"""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gate")


def test_the_chance_of_ranks_is_that_of_all_orders(gate: Any) -> None:
    orders = list(itertools.permutations([1.0, 2.0, 3.0]))
    for rounds in ([(1.0, 2.0, 3.0)] * 3, [(1.0, 2.0, 3.0), (1.0, 3.0, 2.0), (2.0, 3.0, 1.0)]):
        rank = sum(new for *_, new in rounds)
        all_ways = list(itertools.product(orders, repeat=3))
        share = np.mean([sum(new for *_, new in way) >= rank for way in all_ways])
        np.testing.assert_allclose(gate.chance(rounds), share)
    assert gate.chance([(2.0, 2.0, 2.0)] * 9) > 0.5  # ties, as of memory, are no evidence
    assert gate.chance([(1.0, 1.0, 0.5)] * 9) == 1.0
    for cells in (1, 10, 100):
        count = gate.rounds_needed(cells, 0.01)
        assert gate.chance([(1.0, 1.1, 2.0)] * (count - 2) + [(1.0, 2.0, 1.5)] * 2) <= 0.01 / cells


def machine(gate: Any, rng: Any, factors: dict[Any, float]) -> Any:
    """Return a measurement of made-up processes: noise of five percent, and one in ten takes up to three times as long."""

    def measure(cell: Any) -> Any:
        times = np.exp(0.05 * rng.normal(size=3)) * np.where(rng.random(3) < 0.1, rng.uniform(1, 3, 3), 1.0)
        one, other, new = times * [1.0, 1.0, factors[cell]]
        return one, other, new

    return lambda cells: {cell: measure(cell) for cell in cells}


def test_the_gate_fails_rarely_without_a_change_and_mostly_with_one(gate: Any) -> None:
    rng = np.random.default_rng(0)
    cells = [("work", str(k), "", "value_s") for k in range(10)]
    same = dict.fromkeys(cells, 1.0)
    slower = same | {cells[3]: 1.3}
    false, found = [], []
    for _ in range(60):
        false.append(gate.judge(cells, machine(gate, rng, same), 3, 0.03, 0.01)[1])
        found.append(gate.judge(cells, machine(gate, rng, slower), 3, 0.03, 0.01)[1])
    assert sum(map(bool, false)) <= 4  # 0.6 are expected at most
    assert sum(cells[3] in worse for worse in found) >= 36
    assert sum(worse not in ([], [cells[3]]) for worse in found) <= 4


def test_the_gate_ends_early_where_a_cell_cannot_fail(gate: Any) -> None:
    cell = ("work", "1", "", "value_s")
    needed = gate.rounds_needed(1, 0.01)
    first, slow, fast = [(1.0, 1.01, 1.2)] * 3, (1.0, 1.01, 1.2), (1.0, 1.01, 0.9)
    given = iter([*first, slow, fast, fast, *[slow] * needed])
    rounds, worse = gate.judge([cell], lambda cells: {cell: next(given)}, 3, 0.03, 0.01)
    assert worse == [] and rounds[cell] == [slow, fast, fast]
    assert gate.chance([slow, fast, fast, *[slow] * (needed - 3)]) > 0.01
    assert gate.chance([slow, fast, *[slow] * (needed - 2)]) <= 0.01


def test_later_rounds_of_the_gate_measure_the_slower_works_alone(gate: Any) -> None:
    slow, same = (1.0, 1.01, 1.2), (1.0, 1.01, 1.0)
    cells = [("work", str(k), "", "value_s") for k in range(3)]
    asked: list[list[Any]] = []

    def measure(cells: Any) -> Any:
        asked.append(list(cells))
        return {cell: slow if cell[1] == "1" else same for cell in cells}

    rounds, worse = gate.judge(cells, measure, 2, 0.03, 0.01)
    assert worse == [cells[1]]
    assert asked == [cells] * 2 + [[cells[1]]] * gate.rounds_needed(1, 0.01)
    assert [len(rounds[cell]) for cell in cells] == [2, gate.rounds_needed(1, 0.01), 2]


def test_the_gate_passes_over_slowdowns_within_the_tolerance_and_reports_ratios(gate: Any) -> None:
    cell = ("work", "1", "", "gradient_s")
    rounds, worse = gate.judge([cell], lambda cells: {cell: (1.0, 1.01, 1.02)}, 3, 0.03, 0.01)
    assert worse == [] and len(rounds[cell]) == 3
    rounds, worse = gate.judge([cell], lambda cells: {cell: (1.0, 1.01, 1.2)}, 3, 0.03, 0.01)
    assert worse == [cell] and len(rounds[cell]) == gate.rounds_needed(1, 0.01)
    np.testing.assert_allclose(
        [gate.slowdown(rounds[cell]), gate.noise(rounds[cell])], [1.194, 1.01], rtol=1e-3
    )
    assert "| work | 1 |  | gradient, us | 1.005e+06 | 1.2e+06 | 1.194 | 1.0% |" in gate.table(rounds, worse)


def test_the_gate_measures_two_trees_and_refuses_what_is_none(tmp_path: Path) -> None:
    source = Path(gradtape.__file__).parents[1]
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        str(BENCHMARKS / "gate.py"),
        str(source),
        str(copy),
        "--quick",
        "--works",
        "rosen",
    ]
    options = ["--rounds", "1", "--seconds", "0.01", "--tolerance", "1000"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| rosen")]
    assert (
        len(lines) == 8
        and "| startup |" in done.stdout
        and all(quantity in done.stdout for quantity in ("first call, ms", "memory, MB"))
    )
    command[3] = str(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "gradtape is not imported from" in done.stderr


def test_the_check_of_the_readme_names_the_rows_that_are_slower_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report

    measured = CLAIMED.replace("92.8", "1,250").replace("6,997", "7,997").replace("0.072", "0.012")
    assert report.broken_claims(CLAIMED, CLAIMED) == []
    assert report.broken_claims(CLAIMED, measured) == [
        "hmm K16_T500 loop: 16 times c's time, the table says 1.19."
    ]


def test_the_table_in_the_readme_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report
    import run as program

    claims = report.read_speed_table(
        (BENCHMARKS.parent / "README.md").read_text().split(program.README_MARK)[1]
    )
    assert {work for work, _, _ in claims} >= {"rosen", "gmm", "pendulum", "lstm", "hmm"}
    assert all(times["gradtape"] > 0 for times in claims.values())


ARRAYS = ["c", "numpy", "gradtape"]
LOOPS = ["c", "numpy", "gradtape loop"]


@pytest.mark.parametrize(
    "work, measured",
    [
        ("rosen", ARRAYS * 2),
        ("bs", ARRAYS),
        ("lse", ARRAYS),
        ("gmm", ARRAYS),
        ("ba", ARRAYS),
        ("mlp", ["numpy", "gradtape"]),
        ("jacmlp", ["numpy", "gradtape"]),
        ("hesslr", ["numpy", "gradtape"]),
        ("pendulum", LOOPS),
        ("lstm", LOOPS),
        ("hmm", LOOPS),
        ("newton", LOOPS * 2),
    ],
)
def test_all_agree_with_the_gradients_by_hand(tmp_path: Path, work: str, measured: list[str]) -> None:
    done = run(tmp_path, "--quick", "--works", work, "--wordings", "loop", "--tools", "c,numpy,gradtape")
    assert done.returncode == 0, done.stderr
    table = rows(tmp_path)
    assert [f"{row['tool']} {row['wording']}".rstrip() for row in table] == measured, done.stdout
    for row in table:
        assert float(row["largest error"]) < 1e-11, row
        assert all(math.isfinite(float(row[name])) for name in ("value ms", "gradient ms", "peak MB"))


@pytest.mark.parametrize(
    "work, size",
    [
        ("ba", "7"),
        ("pendulum", "3"),
        ("lstm", "l2_c6"),
        ("lstm", "l3_c4"),
        ("hmm", "K16_T7"),
        ("hmm", "K11_T5"),
        ("newton", "1"),
        ("newton", "31"),
        ("newton", "300"),
    ],
)
def test_wordings_and_limits_agree(monkeypatch: pytest.MonkeyPatch, work: str, size: str) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import byhand
    import native
    import works

    job = works.work(work, size)
    value, gradients = byhand.derivatives(job)(*job.arguments)
    for wording in works.wordings(work):
        worded = works.work(work, size, wording)
        assert worded.function()(*worded.arguments) == pytest.approx(value, rel=1e-13)
    limit = native.bind(job)
    assert limit.value() == pytest.approx(value, rel=1e-13)
    assert limit.gradient() == pytest.approx(value, rel=1e-13)
    for actual, wanted in zip(limit.outputs, gradients, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-12 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("work", ["ba", "mlp", "jacmlp", "hesslr", "pendulum", "lstm", "hmm", "newton"])
def test_derivatives_by_hand_are_differences(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import byhand
    import works

    job = works.work(work, works.QUICK_SIZES[work][-1])
    function = job.function()
    found = byhand.derivatives(job)(*job.arguments)
    if job.derivative == "hessian":
        function = gradtape.grad(function)
    derivatives = found[1] if job.derivative == "gradient" else (found,)
    for k, derivative in enumerate(derivatives):
        direction = np.random.default_rng(k).normal(size=np.shape(job.arguments[k]))
        ahead, behind = (
            function(*(a + sign * 1e-6 * direction if i == k else a for i, a in enumerate(job.arguments)))
            for sign in (1.0, -1.0)
        )
        wanted = np.tensordot(derivative, direction, direction.ndim)
        np.testing.assert_allclose((ahead - behind) / 2e-6, wanted, rtol=1e-6, atol=1e-8)


def test_tools_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report

    def row(tool: str, wording: str, seconds: float, peak: float) -> dict[str, object]:
        name = {"work": "pendulum", "size": "9", "tool": tool, "wording": wording, "by_hand": tool == "c"}
        times = {"first_s": seconds, "later_first_s": seconds, "value_s": seconds, "gradient_s": seconds}
        return name | times | {"peak_mb": peak, "faults": 0.0, "error": 0.0, "cpu_share": 1.0}

    measured = [
        row("c", "", 1.0, 1.0),
        row("gradtape", "scan", 2.0, 5.0),
        row("gradtape", "loop", 5.0, 1.0),
        row("jax", "scan", 4.0, 8.0),
    ]
    scan, loop = report.against(measured)
    assert scan[2:] == ["scan", *["2 / 4 0.50x"] * 2, "2e+03 / 4e+03 0.50x", "5 / 8 **0.62x**", "0 / 0"]
    assert loop[2:4] == ["loop", "5 / 4 **1.25x**"]
    assert loop[6] == "1 / 8 0.12x"
    lines = report.speed_table(measured).splitlines()
    assert lines[0] == "| work | size | wording | c us | gradtape us | jax us |"
    assert lines[2] == "| pendulum | 9 | scan | 1,000,000 | 2,000,000 | 4,000,000 |"
    assert lines[3] == "| pendulum | 9 | loop | 1,000,000 | 5,000,000 |  |"


def test_startup_is_measured_with_a_cold_and_a_warm_cache(tmp_path: Path) -> None:
    done = run(tmp_path, "--startup", "--tools", "gradtape", "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert [row["cache"] for row in rows(tmp_path)] == ["cold", "warm"]


def test_missing_tools_are_said(tmp_path: Path) -> None:
    (tmp_path / "run_without.py").write_text(
        "import importlib.util, runpy, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'autograd' else find(name)\n"
        f"sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "runpy.run_module('run', run_name='__main__')\n"
    )
    command = [sys.executable, "run_without.py", "--quick", "--works", "lse", "--tools", "numpy,autograd"]
    done = subprocess.run([*command, "--out", "table.md"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["tool"] for row in rows(tmp_path)] == ["numpy"]
    assert "autograd is not installed" in (tmp_path / "table.md").read_text()


def test_slow_tools_are_said(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick", "--works", "lse", "--tools", "numpy", "--timeout", "0.01")
    assert done.returncode == 1
    assert rows(tmp_path) == []
    assert "lse 1000 numpy failed: it takes more than 0.01 s" in (tmp_path / "table.md").read_text()


def test_missing_gcc_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick", "--tools", "c", PATH="")
    assert done.returncode == 1
    assert "gcc is needed" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_names_and_sizes_are_refused(tmp_path: Path) -> None:
    assert "'roses' is none of rosen" in run(tmp_path, "--works", "roses").stderr
    assert "is a number of elements" in run(tmp_path, "--works", "lse", "--sizes", "many").stderr


@pytest.mark.parametrize(
    "folder, work, size, blocks",
    [
        ("examples", "gmm", "d2_K5_n1000", ("alpha", "mu", "q", "l")),
        ("examples", "gmm", "d10_K25_n1000", ("alpha", "mu", "q", "l")),
        ("benchmarks", "gmm", "d10_K25_n10000", ("alpha", "mu", "q", "l")),
        ("benchmarks", "lstm", "l2_c1024", ("main", "extra")),
    ],
)
def test_gradients_by_hand_are_those_of_adbench(
    monkeypatch: pytest.MonkeyPatch, folder: str, work: str, size: str, blocks: tuple[str, ...]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import byhand
    import works

    job = works.work(work, size)
    value, gradients = byhand.derivatives(job)(*job.arguments)
    with np.load(BENCHMARKS.parent / folder / "data" / "expected.npz") as expected:
        assert value == pytest.approx(float(expected[f"{work}_{size}/value"]), rel=1e-13)
        for block, gradient in zip(blocks, gradients, strict=True):
            wanted = expected[f"{work}_{size}/{block}"]
            np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-13 * np.max(np.abs(wanted)))


def test_single_operations_are_listed() -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    command = [sys.executable, str(BENCHMARKS / "steps.py"), "--operations", "--rounds", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| `x * y` |" in done.stdout
    assert "| `np.concatenate((x, y))` |" in done.stdout


def test_programs_of_a_checkout_of_npbench_are_measured(tmp_path: Path) -> None:
    """A checkout with one program that writes to its argument, without a port for JAX."""
    folder = tmp_path / "npbench" / "benchmarks" / "double"
    folder.mkdir(parents=True)
    (tmp_path / "bench_info").mkdir()
    information = {
        "relative_path": "double",
        "module_name": "double",
        "func_name": "kernel",
        "parameters": {"S": {"N": 5}},
        "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["A", "b"]},
        "input_args": ["N", "A", "b"],
        "output_args": ["A"],
    }
    (tmp_path / "bench_info" / "double.json").write_text(json.dumps({"benchmark": information}))
    (folder / "double.py").write_text(
        "import numpy as np\ndef initialize(N):\n    return np.ones((N, N)), np.arange(float(N))\n"
    )
    (folder / "double_numpy.py").write_text(
        "def kernel(N, A, b):\n    for i in range(N):\n        A[i, :] *= 2.0 * b[i]\n"
    )
    command = [sys.executable, str(BENCHMARKS / "npbench.py"), str(tmp_path), "--tools", "numpy,gradtape"]
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| double"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert float(cells[2]) > 0.0 and float(cells[4]) > 0.0, done.stderr
    assert cells[-1] == "", done.stderr


@pytest.mark.parametrize("name", ["cholesky", "thomas", "nbody"])
def test_adjoints_in_c_are_the_derivatives(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import loops

    case = PROGRAMS[name]
    function, arguments = case.function, case.arguments()
    run, gradients = loops.by_hand(name, arguments)
    assert run() == pytest.approx(function(*arguments), rel=1e-12)
    for k, found in zip(case.active, gradients, strict=True):
        expected = gradient_by_differences(
            lambda x, k=k: function(*arguments[:k], x, *arguments[k + 1 :]), arguments[k]
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert np.float64(5e-324) * np.float64(1.0) > 0.0, (
        "the library flushes the subnormal numbers of the process"
    )


def test_filters_stand_beside_those_of_scipy() -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    command = [sys.executable, str(BENCHMARKS / "filters.py"), "--works", "ndimage.correlate,correlate"]
    done = subprocess.run(
        [*command, "--rounds", "1"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert not done.returncode, done.stderr
    body = [line for line in done.stdout.splitlines() if is_row(line)][2:]
    assert [float(line.strip("|").split("|")[-1]) < 1e-12 for line in body] == [True, True]


def test_both_ways_of_a_loop_have_one_answer() -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    command = [
        sys.executable,
        str(BENCHMARKS / "engines.py"),
        "--works",
        "recurrence,rk4",
        "--seconds",
        "0.01",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    body = [line.strip().strip("|").split("|") for line in done.stdout.splitlines() if is_row(line)][2:]
    assert [cells[0].split()[0] for cells in body] == ["rk4", "recurrence"]
    assert all(float(cells[1]) > 0.0 and not cells[-1].strip() for cells in body)


def test_first_calls_are_measured(tmp_path: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    command = [sys.executable, str(BENCHMARKS / "first_calls.py"), "--works", "least", "loops thomas"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    assert [line[0] for line in lines] == ["| least squares", "| loops thomas"]
    assert all(float(number) >= 0 for line in lines for number in line[1:6])
