"""Rows of the ufuncs of `scipy.special`: kernels call SciPy's own function, and a ufunc of several results is a row for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Refused, Rule, SciPy, elementwise
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.complex_parts import from_parts

Box = tuple[tuple[float, float], ...]


def special(name: str, *partials: Rule | None, domain: Box, **facts: Any) -> Elementwise:
    """Enter the row of a ufunc with one result.

    Parameters
    ----------
    name : str
        Of the ufunc in `scipy.special`; with ``_ufuncs.`` in front for one that only SciPy's own code calls.
    *partials : callable or None
        A formula per argument.
    domain : tuple of (low, high)
    **facts
        Of `Elementwise`.
    """
    module, _, own = name.rpartition(".")
    return elementwise(
        own,
        f"scipy.special{module and '.'}{module}:{own}",
        body=SciPy(name),
        partials=partials or None,
        domain=domain,
        **facts,
    )


def result(
    ufunc: str,
    output: int | None,
    name: str,
    *partials: Rule | None,
    domain: Box,
    part: str = "",
    loop: str = "",
    **facts: Any,
) -> Elementwise:
    """Enter the row of one result of a ufunc, or of a part of a complex one; for `part` and `loop` see `SciPy`."""
    module, _, own = ufunc.rpartition(".")
    return elementwise(
        name,
        f"scipy.special{module and '.'}{module}:{own}",
        body=SciPy(ufunc, output, part, loop),
        partials=partials or None,
        domain=domain,
        **facts,
    )


def several(ufunc: str, *rows: Callable[..., Value]) -> None:
    """Enter the rows of a ufunc's results, in their order."""

    def apply(*operands: Any) -> tuple[Value, ...]:
        return tuple([row(*operands) for row in rows])

    UFUNCS[ufunc] = apply


def joined(real: Elementwise, imag: Elementwise) -> Callable[..., Value]:
    """Return a function for the complex numbers whose parts two rows compute."""

    def apply(*operands: Any) -> Value:
        return from_parts(real(*operands), imag(*operands))

    return apply


def refused(function: str, argument: str, why: str) -> Refused:
    """Return what stands in place of a partial derivative that there is no formula for.

    Parameters
    ----------
    function : str
        In `scipy.special`.
    argument : str
        As SciPy's documentation calls it.
    why : str
        A clause.
    """
    return Refused(f"scipy.special.{function} in its argument {argument}", why)


NO_FORMULA = "there is no closed formula for it"
