"""The first recording of a process installs the hooks, the last one is before Python clears its modules."""

from __future__ import annotations

import subprocess
import sys

FIRST = """
import scipy.optimize, gradtape as gt

search = scipy.optimize.brute  # a global name of the user's, which a trace copies with the function
try:
    gt.jit(lambda a: search(lambda x: a * x, ((0, 1),), Ns=3, finish=None, full_output=True)[1])(2.0)
except gt.errors.UnsupportedFunctionError as error:
    print(error)
"""

LAST = """
import atexit

@atexit.register  # called after the function of the library, which is registered later
def late():
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(3))
        print("recording" if RECORDERS else "no recording", float(np.sum(np.ones(3))))

import numpy as np, gradtape as gt
from gradtape.trace.patching.recorders import RECORDERS

gt.grad(np.sum)(np.ones(3))
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_the_first_jitted_function_calls_hooked_functions() -> None:
    assert "scipy.optimize.brute is not supported" in run(FIRST)


def test_nothing_is_recorded_while_python_ends() -> None:
    assert run(LAST) == "no recording 3.0\n"
