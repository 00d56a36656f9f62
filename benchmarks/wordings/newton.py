"""Square roots by Newton's iteration, until none of them moves by more than the tolerance; their sum."""

import numpy as np

from wordings.plain import while_loop


def newton_while_loop(a, *, tolerance):
    def moves(x, move):
        return np.max(np.abs(move)) > tolerance

    def improve(x, move):
        after = 0.5 * (x + a / x)
        return after, after - x

    x = 0.5 * (1.0 + a)
    x, _ = while_loop(moves, improve, (x, x - 1.0))
    return np.sum(x)


def newton_loop(a, *, tolerance):
    x = 0.5 * (1.0 + a)
    move = x - 1.0
    while np.max(np.abs(move)) > tolerance:
        after = 0.5 * (x + a / x)
        move = after - x
        x = after
    return np.sum(x)
