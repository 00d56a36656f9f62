"""Least squares of a polynomial through the signs of n equidistant points of [-1, 1]."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def half_sum_of_squares(x, points):
    polynomial = np.zeros_like(points)
    for coefficient in x[::-1]:  # Horner's rule
        polynomial = polynomial * points + coefficient
    return 0.5 * np.sum((np.sign(points) - polynomial) ** 2)


value = gt.jit(half_sum_of_squares)
derivative = gt.grad(half_sum_of_squares)


def arguments(message):
    return np.array(message["x"]), np.linspace(-1.0, 1.0, message["n"])


@wrap.multiple_runs(pre=arguments, post=float)
def primal(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def gradient(arguments):
    return derivative(*arguments)
