"""Who goes first where threads meet: they may share pending arrays and the content of variables."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from gradtape.locks import renewed_in_child

Change = TypeVar("Change", bound=Callable[..., Any])

SEVERAL: Final = 64
"""Locks that variables share out among themselves: few enough to be renewed in a forked process."""


class _Turns:
    """The locks of this process. Whoever holds one of the first kind may take the second, and not the other way round.

    Attributes
    ----------
    changing : tuple of RLock
        Held while the next content of a variable is made of the present one: its serial number tells which.
    computing : RLock
        Held while it is found out how to compute what is pending, and while the results are written down; not while machine code runs.
    noting : RLock
        Held for the moment in which it is written down or counted what was read of variables; nothing else is asked for meanwhile.
    """

    __slots__ = ("changing", "computing", "noting")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget who holds what: in a forked process the other threads are gone."""
        self.changing = tuple(threading.RLock() for _ in range(SEVERAL))
        self.computing = threading.RLock()
        self.noting = threading.RLock()


turns: Final = _Turns()

renewed_in_child(turns.renew)


def undisturbed(change: Change) -> Change:
    """Return a method of variables that changes the content: what it reads is still there when it writes."""

    @functools.wraps(change)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with turns.changing[self.serial % SEVERAL]:
            return change(self, *args, **kwargs)

    return cast(Change, alone)
