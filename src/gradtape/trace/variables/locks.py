"""Locks of variables and of what is pending, which threads may share: each may be taken by who holds the one before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from gradtape.locks import Rank, new_lock

Change = TypeVar("Change", bound=Callable[..., Any])

changing: Final = tuple([new_lock(Rank.VARIABLE) for _ in range(64)])
"""Held while the next content of a variable is made of the present one; variables share them, by their serial numbers."""

computing: Final = new_lock(Rank.PENDING)
"""Held while it is found out how to compute what is pending, and while the results are written down; not while machine code runs."""

noting: Final = new_lock(Rank.READS)
"""Held for the moment in which it is written down or counted what was read of variables."""


def undisturbed(change: Change) -> Change:
    """Return a method of variables that changes the content: what it reads is still there when it writes."""

    @functools.wraps(change)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with changing[self.serial % len(changing)]:
            return change(self, *args, **kwargs)

    return cast(Change, alone)
