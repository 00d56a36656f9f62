"""A bounded LRU cache."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from itertools import count
from typing import Any, Final, Generic, TypeVar

from gradtape.locks import Rank, new_lock

K = TypeVar("K")
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A bounded table that drops the least recently used entries; safe to use from several threads.

    An entry has the time of its last use, so that a key, which may be long, is hashed once for each use, without a lock. The oldest
    entry is searched for only when the table is full.

    Parameters
    ----------
    limit : callable
        Returns how many entries to keep.

    Examples
    --------
    >>> table = LRU(lambda: 2)
    >>> for number, key in enumerate("abac"):
    ...     table[key] = number
    >>> table.get("a"), table.get("b"), table.get("c"), len(table)
    (2, None, 3, 2)
    """

    __slots__ = ("_clock", "_entries", "_limit")

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._clock = count()
        self._entries: dict[K, list[Any]] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as a use; None for a key that is not there.

        Raises
        ------
        TypeError
            For a key without a hash.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry[1] = next(self._clock)
        value: V = entry[0]
        return value

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        entries[key] = [value, next(self._clock)]
        if len(entries) > self._limit():
            with _dropping:
                limit = self._limit()
                excess = len(entries) - limit + limit // 64  # a large one finds the oldest of many at once
                oldest = nsmallest(excess, list(entries.items()), _last_use)
                dropped = [entries.pop(key, None) for key, _ in oldest]
            del dropped  # after the lock is released: a finaliser may take other locks

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> int:
        """Drop every entry, and return how many there were."""
        dropped, self._entries = self._entries, {}
        return len(dropped)


_dropping: Final = new_lock(Rank.LEAF)


def _last_use(item: tuple[object, list[Any]]) -> Any:
    return item[1][1]
