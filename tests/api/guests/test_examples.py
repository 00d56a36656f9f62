"""The example of a NumPy loop in models of NumPyro and PyMC."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIBRARIES = pytest.mark.parametrize("library", ["numpyro", "pymc"])


def run(library: str, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(path), *sys.path])
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reservoir.py"), library, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": places},
        check=False,
    )


@LIBRARIES
def test_the_example_says_what_to_install(library: str, tmp_path: Path) -> None:
    (tmp_path / f"{library}.py").write_text("raise ImportError")
    done = run(library, tmp_path)
    assert done.returncode == 1
    assert f"pip install {library}" in done.stderr


@LIBRARIES
def test_the_outlet_is_found(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"no part of the test environment: pip install {library}")
    done = run(library, tmp_path, "--draws", "300")
    assert done.returncode == 0, done.stderr
    outlet = float(done.stdout.split("outlet ")[1].split()[0])
    assert outlet == pytest.approx(0.6, abs=0.02)
