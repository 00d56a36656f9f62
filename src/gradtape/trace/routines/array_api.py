"""SciPy's helpers for the array API standard, which write to elements that a condition selects."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.registry import constant_or_traced, stands_for


@stands_for("scipy._lib.array_api_extra._lib._at:at._op")
def write_elements(
    self: Any, at_op: Any, in_place_op: Any, out_of_place_op: Any, y: Any, /, copy: Any, xp: Any
) -> Any:
    """Return an array with other elements, as ``xpx.at(x)[k].set(y)`` does, which writes to arrays where it can."""
    written = isinstance(self._x, Handle) and not copy
    made = self._x if written else constant_or_traced(self._x) + 0
    made[self._idx] = y if in_place_op is None else in_place_op(made[self._idx], y)
    return made


@stands_for("scipy._lib.array_api_compat.common._aliases:clip")
def clip(x: Any, /, min: Any = None, max: Any = None, *, xp: Any, out: Any = None) -> Any:
    """Follow the function: the result has the dtype of x, and NaN where a bound is NaN."""
    made = constant_or_traced(x)
    kind = made.dtype
    if kind.kind in "iu":
        min = None if type(min) is int and min <= np.iinfo(kind).min else min
        max = None if type(max) is int and max >= np.iinfo(kind).max else max
    made = np.clip(made, _bound(min, kind), _bound(max, kind))
    if out is None:
        return made
    out[...] = made
    return out


def _bound(bound: Any, kind: np.dtype[Any]) -> Any:
    return None if bound is None else np.asarray(bound, dtype=kind)
