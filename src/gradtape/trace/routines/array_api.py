"""Helpers for code of the array API standard, of which SciPy and scikit-learn have copies: namespaces, and writes to elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.trace.array.attributes import array_namespace
from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.registry import constant_or_traced, stands_for
from gradtape.trace.source.sites import user_site


@stands_for("scipy._lib.array_api_extra._lib._at:at._op")
def write_elements(
    self: Any, at_op: Any, in_place_op: Any, out_of_place_op: Any, y: Any, /, copy: Any, xp: Any
) -> Any:
    """Return an array with other elements, as ``xpx.at(x)[k].set(y)`` does, which writes to arrays where it can."""
    written = isinstance(self._x, Handle) and not copy
    made = self._x if written else constant_or_traced(self._x) + 0
    made = made if made.ndim else made[...]  # numbers become arrays of rank 0
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


@stands_for("scipy._lib.array_api_compat.common._helpers:array_namespace")
def namespace_of(*xs: Any, api_version: str | None = None, use_compat: bool | None = None) -> Any:
    """Return the namespace of traced arrays, whose functions take NumPy's arrays beside them."""
    for x in xs:
        if not isinstance(x, Handle | np.ndarray | np.generic | int | float | complex | None):
            raise ArgumentError(
                f"a traced array and {type(x).__module__}.{type(x).__qualname__} have no common namespace",
                where=user_site(),
                why="gradtape.array_api takes its own arrays, NumPy's, and numbers",
                remedy="convert the other array, by gradtape.array_api.from_dlpack for one",
            )
    return array_namespace(api_version)


@stands_for("sklearn.utils._array_api:check_same_namespace")
def check_same_namespace(X: Any, estimator: Any, *, attribute: str, method: str) -> None:
    """Follow the function: estimators that were fitted to NumPy's arrays take traced ones."""


@stands_for(
    "scipy._lib.array_api_extra._lib._utils._helpers:is_python_scalar",
    "scipy._lib.array_api_extra._lib._helpers:is_python_scalar",
)
def is_python_scalar(x: Any) -> bool:
    """Return False: code that looks up the type of a number of Python's does not find that of a traced one."""
    return False
