"""The examples, run as a reader runs them: from somewhere else, in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradtape

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = EXAMPLES / "data" / "gmm_d2_K5_n1000.txt"


def run(folder: Path, *arguments: str | Path, script: str = "gmm.py") -> subprocess.CompletedProcess[str]:
    """Modules in `folder` hide those that are installed."""
    places = [folder, Path(gradtape.__file__).parents[1]]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, places)))
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def hide(folder: Path, module: str) -> None:
    (folder / f"{module}.py").write_text(f"raise ImportError('no {module} here')\n")


def relative_errors(output: str) -> dict[str, float]:
    (line,) = re.findall(r"relative errors +(.*)", output)
    return {name: float(error) for name, error in (part.split() for part in line.split(", "))}


@pytest.mark.parametrize("name", ["gmm_d2_K5_n1000", "gmm_d10_K25_n1000"])
def test_value_and_gradient_are_those_of_adbench(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, "--data", EXAMPLES / "data" / f"{name}.txt", "--iterations", "3")
    assert done.returncode == 0, done.stderr
    with np.load(EXAMPLES / "data" / "expected.npz") as expected:
        wanted = float(expected[f"{name}/value"])
    (printed,) = re.findall(r"^log posterior +(\S+)$", done.stdout, re.MULTILINE)
    assert float(printed) == pytest.approx(wanted, rel=1e-12)
    errors = relative_errors(done.stdout)
    assert set(errors) == {"value", "alpha", "mu", "q", "l"}
    assert max(errors.values()) < 1e-10


def test_fit_improves_the_posterior_and_says_how_fast(tmp_path: Path) -> None:
    done = run(tmp_path, "--data", SMALL, "--iterations", "20")
    assert done.returncode == 0, done.stderr
    ((before, after),) = re.findall(r"^fit +log posterior (\S+) -> (\S+)$", done.stdout, re.MULTILINE)
    assert float(after) > float(before)
    rates = re.findall(r"^(value and gradient|finite differences) +(\S+) calls/s", done.stdout, re.MULTILINE)
    assert len(rates) == 2
    assert all(float(rate) > 0 for _, rate in rates)
    assert "20/20" in done.stderr


def test_plot_is_written(tmp_path: Path) -> None:
    done = run(tmp_path, "--plot", "fit.png", "--iterations", "3")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_without_tqdm_lines_are_printed(tmp_path: Path) -> None:
    hide(tmp_path, "tqdm")
    done = run(tmp_path, "--data", SMALL, "--iterations", "20")
    assert done.returncode == 0, done.stderr
    assert "iteration 20: log posterior" in done.stdout


def test_without_matplotlib_the_remedy_is_said(tmp_path: Path) -> None:
    hide(tmp_path, "matplotlib")
    done = run(tmp_path, "--plot", "fit.png", "--iterations", "3")
    assert done.returncode == 1
    assert "pip install matplotlib" in done.stderr


@pytest.mark.parametrize(
    "text, message",
    [
        ("two 5 1000", "cannot be read as a mixture"),
        ("", "cannot be read as a mixture"),
        ("2 5 1000 1.0", "call for 2032 more numbers, but 1 follow"),
        ("2 -5 1000 1.0", "must be positive"),
    ],
)
def test_wrong_data_are_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wrong.txt").write_text(text)
    done = run(tmp_path, "--data", "wrong.txt")
    assert done.returncode == 1
    assert "wrong.txt" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_results_that_differ_from_the_expected_ones_fail(tmp_path: Path) -> None:
    words = SMALL.read_text().split()
    words[3] = "0.125"
    (tmp_path / SMALL.name).write_text(" ".join(words))
    done = run(tmp_path, "--data", SMALL.name)
    assert done.returncode == 1
    assert "differ from those expected" in done.stderr


def test_plot_needs_two_dimensions(tmp_path: Path) -> None:
    done = run(tmp_path, "--plot", "fit.png", "--data", EXAMPLES / "data" / "gmm_d10_K25_n1000.txt")
    assert done.returncode == 2
    assert "has 10" in done.stderr


@pytest.mark.parametrize("script", ["pendulum.py", "lstm.py", "greeks.py", "amplifier.py"])
def test_programs_are_short(script: str) -> None:
    assert len((EXAMPLES / script).read_text().splitlines()) <= 100


def test_pendulum_finds_the_parameters(tmp_path: Path) -> None:
    done = run(tmp_path, "--plot", "fit.png", script="pendulum.py")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w+) +(\S+) \+- (\S+) +\(truth (\S+)\)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in found] == ["angle", "speed", "damping", "stiffness", "drive"]
    for _, value, error, truth in found:
        assert abs(float(value) - float(truth)) < 4 * float(error)
    (fit,) = re.findall(r"^chi squared per measurement: (\S+)$", done.stdout, re.MULTILINE)
    assert 0.8 < float(fit) < 1.2
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_lstm_has_adbenchs_gradient_and_learns(tmp_path: Path) -> None:
    done = run(tmp_path, "--steps", "40", script="lstm.py")
    assert done.returncode == 0, done.stderr
    with np.load(EXAMPLES / "data" / "expected.npz") as expected:
        wanted = float(expected["lstm_l2_c1024/value"])
    (loss,) = re.findall(r"loss (\S+)$", done.stdout.splitlines()[0])
    assert float(loss) == pytest.approx(wanted, rel=1e-10)
    errors = re.findall(r"^gradient in (main|extra): relative error (\S+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in errors] == ["main", "extra"]
    assert all(float(error) < 1e-10 for _, error in errors)
    ((before, after),) = re.findall(r"^40 steps in \S+ s: loss (\S+) -> (\S+)$", done.stdout, re.MULTILINE)
    assert float(after) < float(before)


def test_greeks_are_those_of_the_formula(tmp_path: Path) -> None:
    done = run(tmp_path, "--days", "50", script="greeks.py")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^ +(\w+) +(\S+) \+- (\S+) +Black-Scholes +(\S+)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in found] == ["price", "delta", "vega", "rho", "theta"]
    for _, value, error, known in found:
        assert abs(float(value) - float(known)) < 5 * float(error)
    asian = done.stdout[done.stdout.index("Asian call") :]
    assert float(re.findall(r"^ +price +(\S+)", asian, re.MULTILINE)[0]) > 0


def test_the_amplifier_has_the_output_of_the_test_set(tmp_path: Path) -> None:
    done = run(tmp_path, "--plot", "band.png", script="amplifier.py")
    assert done.returncode == 0, done.stderr
    ends = re.search(r"^output at the end (\S+) \(reference (\S+)\)$", done.stdout, re.MULTILINE)
    assert ends is not None and float(ends[1]) == pytest.approx(float(ends[2]), abs=1e-5)
    shares = dict(re.findall(r"^ +(\w+) +(\S+) %$", done.stdout, re.MULTILINE))
    assert list(shares)[:2] == ["C4", "C2"]
    assert float(shares["C4"]) == pytest.approx(0.65, abs=0.01)
    assert (tmp_path / "band.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "script, arguments",
    [
        ("pendulum.py", ("--steps", "3")),
        ("pendulum.py", ("--noise", "0")),
        ("greeks.py", ("--batches", "1")),
        ("amplifier.py", ("--tolerance", "0")),
    ],
)
def test_useless_options_are_explained(tmp_path: Path, script: str, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, *arguments, script=script)
    assert done.returncode == 2
    assert "must be at least" in done.stderr
    assert "Traceback" not in done.stderr
