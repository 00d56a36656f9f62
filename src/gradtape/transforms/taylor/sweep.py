"""The sweep in Taylor mode: coefficients of targets from those of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.ir.graph import Value
from gradtape.transforms.taylor import control as control  # enters the rules of loops and branches
from gradtape.transforms.taylor.series import Coefficient, Expansion


def taylor(
    targets: Sequence[Value],
    sources: Sequence[Value],
    coefficients: Sequence[Sequence[Coefficient]],
    order: int,
    stop: Callable[[Value], bool],
) -> list[list[Coefficient]]:
    """Append the nodes that compute the series of `targets` in one variable.

    Parameters
    ----------
    targets, sources : sequence of Value
        The values to which and from which series are propagated.
    coefficients : sequence of sequences of (Value or None)
        Per source, its coefficients 1, 2, ..., of its shape; None, and those that are missing, are zero.
    order : int
        The highest order.
    stop : callable
        Predicate on values: those that count as constants.

    Returns
    -------
    list of lists of (Value or None)
        Coefficients 1, ..., `order` of each target; None where one is zero.

    Notes
    -----
    A. Griewank and A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 13 (Taylor arithmetic).
    """
    return Expansion(dict(zip(sources, coefficients, strict=True)), stop).coefficients(targets, order)
