"""Locks of variables and of pending values, which threads may share: a thread that holds one may take those below it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from gradtape.locks import Rank, new_lock

Change = TypeVar("Change", bound=Callable[..., Any])

changing: Final = tuple([new_lock(Rank.VARIABLE) for _ in range(64)])
"""Held while the next content of a variable is computed from the present one; variables share them, by their serial numbers."""

computing: Final = new_lock(Rank.PENDING)
"""Held while pending values are planned, and while their results are stored; not while machine code runs."""

noting: Final = new_lock(Rank.READS)
"""Held while reads of variables are recorded or counted."""


def atomic(change: Change) -> Change:
    """Return a method that changes the content of a variable: no other thread assigns between its reads and its writes."""

    @functools.wraps(change)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with changing[self.serial % len(changing)]:
            return change(self, *args, **kwargs)

    return cast(Change, locked)
