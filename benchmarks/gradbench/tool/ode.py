"""Steps of the classical Runge-Kutta method, and the gradient of the last component of the result."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def slope(x, y):
    return np.concatenate([x[:1], x[1:] * y[:-1]])


def solve(x, steps):
    h = 2.0 / steps
    y = np.zeros_like(x)
    for _ in range(steps):
        k1 = slope(x, y)
        k2 = slope(x, y + h / 2 * k1)
        k3 = slope(x, y + h / 2 * k2)
        k4 = slope(x, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


value = gt.jit(solve)
derivative = gt.grad(lambda x, steps: solve(x, steps)[-1])


def arguments(message):
    return np.array(message["x"]), message["s"]


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def primal(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def gradient(arguments):
    return derivative(*arguments)
