"""Results of a call that are written into arrays of the caller's: ``f(x, out=buffer)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, InPlaceError, ShapeError, kind_of
from gradtape.ir.builder import here
from gradtape.kinds.operands import as_value
from gradtape.trace.array.handle import Handle, is_recorded
from gradtape.trace.lazy.force import force
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, flatten_up_to


def has_out(function: Callable[..., Any]) -> bool:
    """Return whether a function of the user's takes ``out`` itself; NumPy's own leave it to whoever calls them."""
    if (
        isinstance(function, np.ufunc)
        or str(getattr(function, "__module__", "")).partition(".")[0] == "numpy"
    ):
        return False
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "out" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def written(out: Any, results: Any, name: str) -> Any:
    """Write results into arrays, and return these.

    Parameters
    ----------
    out : ndarray, Array, Variable, or nest of them
        One per result.
    results : nest of arrays and numbers
        What a function has returned.
    name : str
        The function, for errors.

    Raises
    ------
    StructureError
        If the containers are not those of the results.
    ShapeError, DtypeError, ArgumentError, InPlaceError
        If an array cannot take its result; then nothing is written.
    """
    here.site = user_site()
    leaves, spec = flatten(results)
    targets = flatten_up_to(spec, out, "out", f"the result of {name}", here.site)
    for target, leaf in zip(targets, leaves, strict=True):
        _check(target, leaf, name)
    for position, target in enumerate(targets):
        if any(_overlap(target, other) for other in targets[:position]):
            raise ArgumentError(
                f"{name}: two arrays in out= share memory",
                where=here.site,
                why="one result would overwrite another",
                remedy="give each result an array of its own",
            )
    for target, leaf in zip(targets, leaves, strict=True):
        if isinstance(target, Handle):
            target.write_result(leaf.value if isinstance(leaf, Handle) else as_value(leaf, "a result"), name)
        else:
            np.copyto(
                target, force([leaf.value])[0] if isinstance(leaf, Handle) else leaf, casting="same_kind"
            )
    return out


def _check(target: Any, leaf: Any, name: str) -> None:
    """Raise an error unless an array can take a result as it is."""
    if not isinstance(leaf, Handle | np.ndarray | np.generic | int | float | complex):
        raise DtypeError(
            f"{name} with out= returned {kind_of(leaf)}",
            where=here.site,
            why="only arrays and numbers can be written",
            remedy="call it without out=",
        )
    if not isinstance(target, Handle | np.ndarray):
        raise DtypeError(
            f"{name}: out= has {kind_of(target)}",
            where=here.site,
            remedy="give an ndarray for each result: out=np.empty(shape)",
        )
    result = leaf if isinstance(leaf, Handle) else np.asarray(leaf)
    if target.shape != result.shape:
        raise ShapeError(
            f"{name}: out= has an array of shape {target.shape} for a result of shape {result.shape}",
            where=here.site,
            remedy=f"give an array of shape {result.shape}",
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise DtypeError(
            f"{name}: out= has an array of {target.dtype} for a result of {result.dtype}",
            where=here.site,
            remedy=f"give an array of {result.dtype}",
        )
    if not isinstance(target, Handle):
        if not target.flags.writeable:
            raise InPlaceError(
                f"{name}: an array in out= is read-only", where=here.site, remedy="give a copy of it"
            )
        if is_recorded(leaf):
            raise InPlaceError(
                f"{name}: out= has an ndarray, but the result is traced",
                where=here.site,
                why="an ndarray needs numbers, which are not known yet",
                remedy="omit out= on tapes and in traced functions",
            )


def _overlap(one: Any, other: Any) -> bool:
    if issubclass(type(one), np.ndarray) and issubclass(type(other), np.ndarray):
        return np.may_share_memory(one, other)
    return one is other
