"""The order of all locks, and the one hook that runs when the process forks.

Whoever holds a lock may take those below it, and none above it:

1. tracing: one function is traced at a time (`gradtape.trace.jit.callsite`)
2. changing a variable, computing what is pending, noting a reading (`gradtape.trace.variables.locks`), in this order
3. keeping a script's arrays (`gradtape.trace.lazy.script_reader`)
4. building one program, then the table of programs (`gradtape.runtime.compile.cache`); a program's loops are built while it is
5. installing the hooks of NumPy's functions (`gradtape.trace.patching.recorders`)
6. compiling a module (`gradtape.runtime.compile.engine`)
7. handing out a linker (`gradtape.runtime.compile.loader`)
8. loading a compiled module of SciPy (`gradtape.lower.target.extensions`)
9. llvmlite's own, around each of its functions
10. leaves, under which nothing else is taken: types, native entries, profiles

A fork copies locks, but not the threads that hold them. Locks under which the user's code may run (1 to 4), and those that guard no
more than a table (10), are made anew in the child: what they guard is whole between two instructions. Locks under which memory is
changed in many steps (5 to 9) are waited for before the fork, in their order, and so are imports of packages that compiling needs: what
was imported by half would stay so for ever.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

Held = Callable[[], AbstractContextManager[Any] | None]

PACKAGES: Final = ("gradtape", "llvmlite", "numpy", "scipy", "filelock", "platformdirs", "opt_einsum")
"""Whose imports a fork waits for. Any other may run a whole program while it is imported."""

_held: Final[list[tuple[int, Held]]] = []
_renew: Final[list[Callable[[], object]]] = []
_paused: Final = ExitStack()


def held_at_fork(rank: int, lock: Held) -> None:
    """Let a fork wait for a lock, which is taken after those of lower rank.

    Parameters
    ----------
    rank : int
        The lock's place in the order above.
    lock : callable
        Returns the lock, or None where there is none yet.
    """
    _held.append((rank, lock))
    _held.sort(key=lambda entry: entry[0])


def renewed_in_child(renew: Callable[[], object]) -> None:
    """Let a function run in a forked process: its other threads are gone, and nobody is left to release what they held."""
    _renew.append(renew)


def _before() -> None:
    try:
        while True:  # ends: an import that begins meanwhile begins once
            _wait_for_imports()  # without locks, which an import may need
            for _, lock in _held:
                found = lock()
                if found is not None:
                    _paused.enter_context(found)
            if not _importing():
                return
            _paused.close()
    except BaseException:
        _paused.close()
        raise


def _in_child() -> None:
    _paused.close()
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

_llvmlite_lock: Final[Held] = lambda: getattr(  # noqa: E731 - a lock that exists once llvmlite is there
    getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None
)
held_at_fork(9, _llvmlite_lock)
