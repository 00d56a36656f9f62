"""The order of all locks, and the one hook that runs when the process forks.

No other module makes a lock, or registers a hook of `os.register_at_fork`. A fork copies locks, but not the threads that hold them. Locks
under which the user's code may run, and those that guard no more than a table, are free in the child unless the thread that forked holds
them: what they guard is whole between two instructions. Locks under which memory is changed in many steps are waited for before the fork,
in their order, and so are imports of packages that compiling needs: what was imported by half would stay so for ever.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from enum import IntEnum
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

Lock: TypeAlias = AbstractContextManager[Any]


class Rank(IntEnum):
    """The order of locks: a thread that holds one may take those of a higher rank."""

    PROFILE = 1
    """A profile begins."""
    TRACE = 2
    """One function is traced at a time."""
    DRAWS = 3
    """Random numbers are drawn, where the generator has no lock that a thread may take again."""
    VARIABLE = 4
    """The next content of a variable is made of the present one; several are taken in ascending order of their numbers."""
    PENDING = 5
    """Pending values are planned, and their results stored; not held while machine code runs."""
    READS = 6
    """Reads of variables are recorded or counted."""
    CALL_TRACE = 7
    """A call trace is replayed."""
    PROFILED_KERNEL = 8
    """A profiled kernel is built."""
    PROGRAM = 9
    """One program is built; the kernels of its loops are built meanwhile, each under a lock of the same rank."""
    PROGRAMS = 10
    """The table of programs."""
    PATCHES = 11
    """The hooks of NumPy's functions are installed."""
    COMPILER = 12
    """A module is compiled."""
    LINKERS = 13
    """A linker is handed out."""
    EXTENSIONS = 14
    """A compiled module of SciPy is loaded."""
    LLVMLITE = 15
    """llvmlite's own lock, around each of its functions."""
    LEAF = 16
    """Tables, under whose locks no other one is taken: types, native entries, records of a profile."""


WAITED_FOR: Final = range(Rank.PATCHES, Rank.LEAF)
"""Ranks of the locks that a fork waits for."""

PACKAGES: Final = ("gradtape", "llvmlite", "numpy", "scipy", "filelock", "platformdirs", "opt_einsum")
"""Packages whose imports a fork waits for. Any other may run a whole program while it is imported."""

_locks: Final[WeakKeyDictionary[Any, Rank]] = WeakKeyDictionary()
_renew: Final[list[Callable[[], object]]] = []
_end: Final[list[Callable[[], object]]] = []
_paused: Final = ExitStack()


def new_lock(rank: Rank) -> Any:
    """Return a reentrant lock of a rank.

    Examples
    --------
    >>> with new_lock(Rank.LEAF):
    ...     pass
    """
    lock = threading.RLock()
    _locks[lock] = rank
    return lock


def ended_before_fork(end: Callable[[], object]) -> None:
    """Call a function before the process forks: from 3.12 on, Python warns of other threads then."""
    _end.append(end)


def renewed_in_child(renew: Callable[[], object]) -> None:
    """Call a function in forked processes, whose other threads are gone."""
    _renew.append(renew)


def _waited_for() -> list[Lock]:
    """Return the locks that a fork waits for, in their order."""
    llvmlite = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    found = [
        (rank, lock)
        for reference in _locks.keyrefs()  # copied in one instruction: other threads make locks meanwhile
        if (lock := reference()) is not None and (rank := _locks[lock]) in WAITED_FOR
    ]
    if llvmlite is not None:  # it exists once llvmlite is there
        found.append((Rank.LLVMLITE, llvmlite))
    return [lock for _, lock in sorted(found, key=lambda entry: entry[0])]


def _before() -> None:
    for end in _end:
        end()
    try:
        while True:  # ends: an import that begins meanwhile begins once
            _wait_for_imports()  # without locks, which an import may need
            for lock in _waited_for():
                _paused.enter_context(lock)
            if not _importing():
                return
            _paused.close()
    except BaseException:
        _paused.close()
        raise


def _in_child() -> None:
    _paused.close()
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for renew in _renew:
        renew()


def _wait_for_imports() -> None:
    while under_way := _importing():
        importlib._bootstrap._lock_unlock_module(under_way[0])  # type: ignore[attr-defined]


def _importing() -> list[str]:
    """Return which modules of the packages other threads are importing."""
    me = threading.get_ident()
    found = []
    for name, reference in list(_MODULE_LOCKS.items()):
        lock = reference()
        owner = None if lock is None else getattr(lock, "owner", None)
        if owner not in (None, me) and name.partition(".")[0] in PACKAGES:
            found.append(name)
    return found


_MODULE_LOCKS: Final[dict[str, Callable[[], Any]]] = getattr(
    importlib._bootstrap,
    "_module_locks",
    {},
)
"""CPython's lock of each module that is being imported."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_paused.close, after_in_child=_in_child)
