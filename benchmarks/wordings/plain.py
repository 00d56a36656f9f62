"""The loops of the wordings in plain Python; a tool binds its own instead."""

import numpy as np


def scan(step, carry, xs=None, length=None):
    """`xs` is None, an array or a tuple of arrays; what the steps return beside the carry is an array or None."""
    if length is None:
        length = len(xs[0] if isinstance(xs, tuple) else xs)
    results = []
    for i in range(length):
        x = None if xs is None else tuple(x[i] for x in xs) if isinstance(xs, tuple) else xs[i]
        carry, result = step(carry, x)
        results.append(result)
    return carry, None if results[0] is None else np.stack(results)


def while_loop(condition, body, loop_vars):
    while condition(*loop_vars):
        loop_vars = body(*loop_vars)
    return loop_vars
