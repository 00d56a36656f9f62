"""Gradient descent with the step rule that GradBench prescribes for `particle` and `saddle`."""

from functools import partial

import numpy as np

import gradtape as gt

# Either mode computes a gradient: the first letter of a function of these evals is the outer mode.
MODES = {"f": partial(gt.jacobian, mode="fwd"), "r": gt.grad}


def argmin(value, gradient, start):
    """Finds a minimum; `value` and `gradient` take arrays of the shape of `start`."""

    def goes_on(x, lowest, slope, step, accepted, moved):
        return (np.linalg.norm(slope) > 1e-5) & moved

    def longer(x, lowest, slope, step, accepted, moved):
        return x, lowest, slope, 2.0 * step, 0, moved

    def attempt(x, lowest, slope, step, accepted, moved):
        candidate = x - step * slope
        reached = value(candidate)
        return gt.cond(
            np.linalg.norm(candidate - x) <= 1e-5,
            lambda: (x, lowest, slope, step, accepted, False),
            lambda: gt.cond(
                reached < lowest,
                lambda: (candidate, reached, gradient(candidate), step, accepted + 1, True),
                lambda: (x, lowest, slope, 0.5 * step, 0, True),
            ),
        )

    def iterate(*state):
        return gt.cond(state[4] == 10, longer, attempt, *state)

    start = np.asarray(start)
    state = (start, value(start), gradient(start), 1e-5, 0, True)
    return gt.while_loop(goes_on, iterate, state)[0]


def argmax(value, gradient, start):
    """Finds a maximum as the minimum of the negative."""
    return argmin(lambda x: -value(x), lambda x: -gradient(x), start)
