"""The benchmarks run, agree with each other and write their tables. No time is asserted."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradtape

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1])) | variables
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments, "--out", str(folder / "table.md")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def rows(folder: Path) -> list[dict[str, str]]:
    lines = [line for line in (folder / "table.md").read_text().splitlines() if line.startswith("|")]
    header, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, line, strict=True)) for line in body]


@pytest.mark.parametrize("work, n_sizes", [("rosen", 2), ("bs", 1), ("lse", 1), ("gmm", 1)])
def test_all_agree_with_the_gradients_by_hand(tmp_path: Path, work: str, n_sizes: int) -> None:
    done = run(tmp_path, "--quick", "--works", work, "--tools", "c,numpy,gradtape")
    assert done.returncode == 0, done.stderr
    table = rows(tmp_path)
    assert [row["tool"] for row in table] == ["c", "numpy", "gradtape"] * n_sizes, done.stdout
    for row in table:
        assert float(row["largest error"]) < 1e-11, row
        assert all(math.isfinite(float(row[name])) for name in ("value ms", "gradient ms", "peak RSS MB"))


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


def test_missing_gcc_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick", "--tools", "c", PATH="")
    assert done.returncode == 1
    assert "gcc is needed" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_names_and_sizes_are_refused(tmp_path: Path) -> None:
    assert "'roses' is none of rosen" in run(tmp_path, "--works", "roses").stderr
    assert "is a number of elements" in run(tmp_path, "--works", "lse", "--sizes", "many").stderr


@pytest.mark.parametrize(
    "folder, name",
    [
        ("examples", "gmm_d2_K5_n1000"),
        ("examples", "gmm_d10_K25_n1000"),
        ("benchmarks", "gmm_d10_K25_n10000"),
    ],
)
def test_gradients_by_hand_are_those_of_adbench(
    monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import byhand
    import works

    job = works.work("gmm", name.removeprefix("gmm_"))
    value, gradients = byhand.value_and_gradient(job)(*job.arguments)
    with np.load(BENCHMARKS.parent / folder / "data" / "expected.npz") as expected:
        assert value == pytest.approx(float(expected[f"{name}/value"]), rel=1e-13)
        for block, gradient in zip(("alpha", "mu", "q", "l"), gradients, strict=True):
            wanted = expected[f"{name}/{block}"]
            np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-13 * np.max(np.abs(wanted)))


def test_single_operations_are_listed() -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(gradtape.__file__).parents[1]))
    command = [sys.executable, str(BENCHMARKS / "steps.py"), "--operations", "--rounds", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| `x * y` |" in done.stdout
    assert "| `np.concatenate((x, y))` |" in done.stdout
