"""The saddle point of a quadratic function by nested gradient descent."""

from functools import partial

import numpy as np
from gradbench import wrap
from gradbench.tools.gradtape.descent import MODES, argmax, argmin

import gradtape as gt


def difference(x, y):
    return np.sum(x**2) - np.sum(y**2)


def saddle_point(outer, inner):
    def highest(x, start):
        """Where the function is largest in its second argument."""
        f = partial(difference, x)
        return argmax(f, MODES[inner](f), start)

    @gt.jit
    def solve(start):
        def maximum(x):
            return difference(x, highest(x, start))

        x = argmin(maximum, MODES[outer](maximum), start)
        return np.concatenate([x, highest(x, start)])

    return wrap.multiple_runs(pre=lambda message: np.array(message["start"]), post=np.ndarray.tolist)(solve)


ff, fr, rf, rr = (
    saddle_point("f", "f"),
    saddle_point("f", "r"),
    saddle_point("r", "f"),
    saddle_point("r", "r"),
)
