"""Imports of autograd that mean gradtape.autograd, the program that runs suites so, and examples of other packages with gradtape."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import gradtape
from gradtape.autograd import grad
from gradtape.autograd.builtins import DictBox, SequenceBox

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = """
from autograd import grad
import autograd.numpy as np
from autograd.builtins import DictBox
from autograd.scipy.stats import norm
from autograd.numpy.numpy_boxes import ArrayBox


def slope(x):
    return grad(lambda x: np.sum(norm.logpdf(x)))(x)
"""
SUITE = """
import pytest
from autograd import grad
from installed import slope


def test_right():
    assert grad.__module__.startswith("gradtape")
    assert slope(2.0) == -2.0


@pytest.mark.parametrize("text", ["a", "b"])
def test_wrong(text):
    raise ValueError("one cause")
"""


def run(folder, *command):
    places = [str(folder), str(Path(gradtape.__file__).parents[1])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(places))
    command = [sys.executable, *map(str, command)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_suites_run_redirected(tmp_path):
    (tmp_path / "installed.py").write_text(INSTALLED)
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = run(tmp_path, ROOT / "tests" / "autograd" / "redirected.py", "test_suite.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\n2 ValueError: one cause\n" in done.stdout
    assert "test_wrong[b]" in done.stdout
    assert done.stdout.endswith("\n2 failed, 1 passed\n")


def test_redirection_after_autograd_is_an_error(tmp_path):
    (tmp_path / "autograd.py").write_text("")
    program = "import autograd; from gradtape.autograd.redirect import redirect_imports; redirect_imports()"
    done = run(tmp_path, "-c", program)
    assert done.returncode == 1
    assert "call it first" in done.stderr


def test_containers_of_traced_arrays():
    seen = []

    def loss(parts):
        seen.append((isinstance(parts, DictBox), isinstance(parts["a"], SequenceBox)))
        return parts["a"][0] * 2.0

    grad(loss)({"a": [1.0, 2.0]})
    assert seen[0] == (True, True)
    assert not isinstance({"a": 1.0}, DictBox)
    assert not isinstance([numpy.ones(2)], SequenceBox)


@pytest.mark.parametrize(
    "script, package", [("pymanopt_backend.py", "pymanopt"), ("mici_wrapper.py", "mici")]
)
def test_examples_without_their_package_say_what_to_install(tmp_path, script, package):
    (tmp_path / f"{package}.py").write_text("raise ImportError")
    done = run(tmp_path, ROOT / "examples" / script)
    assert done.returncode == 1
    assert f"pip install {package}" in done.stderr


def test_pymanopt(tmp_path):
    pytest.importorskip("pymanopt", reason="pip install pymanopt")
    done = run(tmp_path, ROOT / "examples" / "pymanopt_backend.py")
    assert done.returncode == 0, done.stderr
    found, known = (float(line.split()[-1]) for line in done.stdout.splitlines())
    assert found == pytest.approx(known, rel=1e-9)


def test_mici(tmp_path):
    pytest.importorskip("mici", reason="pip install mici")
    done = run(tmp_path, ROOT / "examples" / "mici_wrapper.py", "--samples", "40")
    assert done.returncode == 0, done.stderr
    assert "largest violation of the constraint" in done.stdout
