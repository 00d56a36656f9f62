"""An installation without llvmlite, on a system without threads, as in a browser: the NumPy interpreter computes everything."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.util
import sys
import threading
import warnings

MISSING = ("llvmlite", "numba")


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def refuse(thread):
    raise RuntimeError("can't start new thread")


find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in MISSING else find_spec(name, package)
sys.meta_path.insert(0, Absent())
threading.Thread.start = refuse

import numpy as np
import gradtape as gt

assert not gt.config.jit
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    healthy = gt.doctor()
(warning,) = [str(each.message) for each in caught]
assert "llvmlite" in warning and "np.zeros(n, like=x)" in warning, warning
assert healthy

A = np.array([[2.0, 0.5], [0.5, 1.0]])


@gt.jit
def energy(x):
    for _ in range(3):
        x = np.tanh(A @ x)
    return np.sum(x**2)


x = np.array([0.3, -0.2])
step = 1e-6 * np.eye(2)
slopes = [(energy(x + h) - energy(x - h)) / 2e-6 for h in step]
np.testing.assert_allclose(gt.grad(energy)(x), slopes, rtol=1e-6)
np.testing.assert_allclose(gt.vmap(gt.grad(energy))(np.stack([x, x])), [slopes, slopes], rtol=1e-6)
with gt.GradientTape() as tape:
    v = gt.Variable(x)
    loss = energy(v)
np.testing.assert_allclose(tape.gradient(loss, v), slopes, rtol=1e-6)
total = gt.jit(lambda x: gt.scan(lambda c, v: (c * v, None), 1.0, x)[0])
np.testing.assert_allclose(gt.hessian(total)(x), [[0, 1], [1, 0]])
"""


def test_the_interpreter_computes_values_and_derivatives() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "compiler:      none, since llvmlite is not installed" in run.stdout
