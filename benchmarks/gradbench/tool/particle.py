"""The parameter with which a charged particle, moved by Euler's method, hits the origin."""

from functools import partial

import numpy as np
from gradbench import wrap
from gradbench.tools.gradtape.descent import MODES, argmin

import gradtape as gt

DELTA = 0.1


def potential(position, charges):
    return np.sum(1.0 / np.sqrt(np.sum((position - charges) ** 2, axis=1)))


def squared_distance(w, force_mode):
    """The square of the abscissa at which the particle crosses the axis."""
    charges = np.array([[10.0, 10.0 - w[0]], [10.0, 0.0]])
    slope = MODES[force_mode](potential)

    def is_above(position, next_position, velocity):
        return next_position[1] > 0.0

    def step(position, next_position, velocity):
        velocity = velocity - DELTA * slope(position, charges)
        return next_position, next_position + DELTA * velocity, velocity

    position, velocity = np.array([0.0, 8.0]), np.array([0.75, 0.0])
    _, below, velocity = gt.while_loop(is_above, step, (position, position + DELTA * velocity, velocity))
    return (below[0] - below[1] / velocity[1] * velocity[0]) ** 2


def control(outer, inner):
    distance = partial(squared_distance, force_mode=inner)
    solve = gt.jit(partial(argmin, distance, MODES[outer](distance)))
    return wrap.multiple_runs(pre=lambda message: np.array([message["w"]]), post=lambda w: w[0].item())(solve)


ff, fr, rf, rr = control("f", "f"), control("f", "r"), control("r", "f"), control("r", "r")
