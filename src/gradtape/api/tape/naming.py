"""Names of values: graphs, errors and debuggers show them."""

from __future__ import annotations

from typing import Any, TypeVar

from gradtape.errors import DtypeError, kind_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.masked import Selection, without_selections
from gradtape.trace.source.sites import user_site

T = TypeVar("T")


def name(x: T, name: str) -> T:
    """Name a value, and return it.

    Debuggers find the value by its name, statistics and reprs show it. The name belongs to the value: what in-place code makes of an
    array later is another value.

    Parameters
    ----------
    x : Array or anything else
        What is not an `Array` of a recording is returned as it is, so that the code still runs on plain ndarrays.
    name : str
        Any text that is not empty.

    Returns
    -------
    same type as `x`
        `x` itself.

    Raises
    ------
    DtypeError
        If `name` is no text.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     hidden = gt.name(np.tanh(x), "hidden")
    >>> hidden.name
    'hidden'
    """
    checked_name(name, "name")
    if isinstance(x, Handle):
        x.value.name = name
    return x


def checked_name(given: Any, caller: str) -> str:
    """Return a name that can be used; raise DtypeError for any other."""
    if not isinstance(given, str) or not given:
        raise DtypeError(
            f"{caller} got {given!r} as a name", where=user_site(3), remedy="pass a string that is not empty"
        )
    return given


def described(x: Any) -> str:
    """Return what an argument is, for an error."""
    return repr(x) if x is None or isinstance(x, str) else kind_of(x)


def as_handle(x: Any, caller: str) -> Handle:
    """Return an argument that must be an array of a recording."""
    x = without_selections(x) if type(x) is Selection else x
    if isinstance(x, Handle):
        return x
    raise DtypeError(
        f"{caller} got {described(x)}",
        where=user_site(3),
        why="only an Array knows what was computed from it",
        remedy="pass what tape.watch returned, or what was computed from it",
    )
