"""Folding of what is computed from numbers in the program text, while statements are emitted.

Where a loop is split at the borders of slices and pads, tests of positions, masks and zeros outside a pad become numbers, which the
graph did not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gradtape.kinds.elementwise import Elementwise
from gradtape.loops.ir import Const, Dtype, Number, const
from gradtape.ops.core.elementwise.arithmetic import add, negative, subtract
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, logical_and, logical_or
from gradtape.ops.core.elementwise.select import where

NO_PARAMS: Final[Mapping[str, Any]] = MappingProxyType({})


@cache
def padding(dtype: Dtype) -> Const:
    """Return the zero outside a pad. Nothing is added there: `folded` leaves the sum out, though ``-0.0 + 0.0`` is 0.0.

    It is told from other zeros by its identity.
    """
    return const(0, dtype)


def folded(
    row: Elementwise, args: tuple[Number, ...], dtype: Dtype, params: Mapping[str, Any]
) -> Number | None:
    """Return a row of numbers without an instruction; None where it takes one."""
    known = [arg for arg in args if isinstance(arg, Const)]
    if not known or row.is_opaque:
        return None
    if row is where:
        return _chosen(args, dtype)
    if dtype.kind == "b" and row in (bitwise_or, logical_or, bitwise_and, logical_and):
        return _decided(args, row in (bitwise_or, logical_or))
    zero = padding(dtype)
    if row is add and any(arg is zero for arg in args):
        return args[0] if args[1] is zero else args[1]
    if row is subtract and args[1] is zero:
        return args[0]
    if row is negative and args[0] is zero:
        return zero
    if len(known) < len(args):
        return None
    with np.errstate(all="ignore"):
        (result,) = row.evaluate([arg.value for arg in known], dict(params))
    return const(result, dtype)


def _chosen(args: tuple[Number, ...], dtype: Dtype) -> Number | None:
    condition, first, second = args
    if isinstance(condition, Const):
        chosen = first if condition.value else second
        if isinstance(chosen, Const) and chosen == padding(dtype):
            return padding(dtype)
        return chosen if chosen.dtype == dtype else None
    return first if first is second and first.dtype == dtype else None


def _decided(args: tuple[Number, ...], absorbing: bool) -> Number | None:
    """Return the conjunction or disjunction of two truth values, of which one is known."""
    first, second = args
    for number, other in ((first, second), (second, first)):
        if isinstance(number, Const) and number.dtype.kind == "b":
            chosen = number if bool(number.value) is absorbing else other
            return chosen if chosen.dtype.kind == "b" else None
    return None
