"""``memory=`` of transforms and tapes: a limit that is checked once, and holds while they record and differentiate."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from gradtape.config import bytes_of
from gradtape.errors import ArgumentError, DtypeError, kind_of
from gradtape.trace.source.sites import user_site

Memory: TypeAlias = int | str | None
"""A number of bytes, a text as in ``gt.config.memory``, or None for that setting."""


def memory_limit(memory: Memory | Any, caller: str) -> str | None:
    """Return a limit as ``gt.config.memory`` would have it; None where nothing is said.

    Raises
    ------
    DtypeError
        For what is neither a number nor a text.
    ArgumentError
        For numbers below 1, and other texts.

    Examples
    --------
    >>> memory_limit("2 GB", "grad"), memory_limit(800, "grad"), memory_limit(None, "grad")
    ('2 GB', '800 B', None)
    """
    if memory is None:
        return None
    is_number = isinstance(memory, int | np.integer) and not isinstance(memory, bool)
    if not is_number and not isinstance(memory, str):
        raise DtypeError(
            f"{caller}: memory must be an int, a str or None, got {kind_of(memory)}",
            where=user_site(),
            remedy='memory="2 GB", or a number of bytes',
        )
    text = f"{int(memory)} B" if is_number else str(memory)
    try:
        bytes_of(text)
    except ValueError:
        raise ArgumentError(
            f"{caller}: memory is {memory!r}",
            where=user_site(),
            why="it is a number of bytes, at least 1, or a string of a number and a unit",
            remedy='memory="2 GB", "500 MB", or a number of bytes',
        ) from None
    return text
