"""Rows of distribution functions from the derivatives in all arguments, and of their inverses by the implicit function theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.logic import greater_equal, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.rows import Box, special

SEARCHED: Final = 1e-9
"""The accuracy of inverses that SciPy finds by a search."""

FROM_ZERO: Final = (1e-9, math.inf)
"""Where SciPy's searches for numbers of events end."""

BEYOND: Final = (1e-9, 1e10)
"""Where those for numbers of trials, degrees of freedom and shifts end."""

Slopes = Callable[..., tuple[Value, ...]]


def distribution(name: str, slopes: Slopes, domain: Box, sign: float = 1.0, **facts: Any) -> Elementwise:
    """Enter a distribution function F: `slopes` returns its derivatives in all arguments, `sign` is -1 for 1 - F."""

    def partial(position: int) -> Callable[..., Value]:
        return lambda z, *args: sign * slopes(*args)[position]

    return special(name, *[partial(position) for position in range(len(domain))], domain=domain, **facts)


def inverse(
    name: str,
    slopes: Slopes,
    place: int,
    given: int,
    domain: Box,
    sign: float = 1.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    **facts: Any,
) -> Elementwise:
    """Enter an inverse of a distribution function in its argument number `place`, by the implicit function theorem.

    Parameters
    ----------
    name : str
    slopes : callable
        The derivatives of the distribution function F in all of its arguments.
    place : int
        The argument that is searched.
    given : int
        The position of the probability among the arguments of the inverse. The others are those of F in their order.
    domain : tuple of (low, high)
    sign : float
        -1 where 1 - F has the probability.
    bounds : tuple of float
        Where SciPy's search ends: what lies there solves no equation, and has derivative 0.
    """
    low, high = bounds

    def partial(position: int) -> Callable[..., Value]:
        def rule(z: Value, *args: Value) -> Value:
            others = [x for k, x in enumerate(args) if k != given]
            found = slopes(*others[:place], z, *others[place:])
            if position == given:
                slope = sign / found[place]
            else:
                number = position - (position > given)
                slope = -found[number + (number >= place)] / found[place]
            if low > -math.inf:
                slope = where(less_equal(z, low), 0.0, slope)
            return where(greater_equal(z, high), 0.0, slope) if high < math.inf else slope

        return rule

    return special(name, *[partial(position) for position in range(len(domain))], domain=domain, **facts)
