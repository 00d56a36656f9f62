"""Polling for signals: long loops of kernels can be interrupted by Ctrl-C.

Python runs the handler of a signal in the main thread, between two bytecodes. A kernel that runs for seconds has to let it: in the main
thread it takes the interpreter lock every 10 ms and calls the handlers.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Sequence
from typing import Final

from gradtape.locks import renewed_in_child
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol

POLL: Final = "gradtape.poll"
"""The symbol of the routine ``int32_t (void)``, which returns `INTERRUPTED` if a handler has raised an exception, and 0 otherwise."""

POLL_DECLARATION: Final = f'declare i32 @"{POLL}"() cold nounwind memory(inaccessiblemem: readwrite)'
"""Its declaration, of which a module may have one."""

RAISE: Final = "gt.raise"
"""The symbol of the routine ``PyObject *(void)`` that raises this exception and returns NULL."""

INTERRUPTED: Final = -2
"""The status that a kernel then returns."""

PERIOD: Final = 10_000_000
"""Nanoseconds between two polls."""


@functools.cache
def _routines() -> dict[str, int]:
    if has_symbol("clock_gettime") and has_symbol("pthread_self"):
        files: Sequence[str] = ("clock_posix.ll", "thread_posix.ll", "poll.ll")
    else:
        files = ("clock_windows.ll", "thread_windows.ll", "poll.ll")
    places = {"clock": int(getattr(time, "CLOCK_MONOTONIC", 1)), "period": PERIOD, "interrupted": INTERRUPTED}
    text = "".join([read_ll(__package__, file, **places) for file in files])
    found = load_resident(text, POLL, ("poll", "raise", "main"))
    main = ctypes.c_int64.from_address(found["main"])

    def set_main_thread() -> None:
        main.value = threading.main_thread().ident or 0

    set_main_thread()
    renewed_in_child(set_main_thread)
    return found


def poll_address() -> int:
    """Return the address of the routine that kernels call as `POLL`.

    Examples
    --------
    >>> poll_address() == poll_address() != 0
    True
    """
    return _routines()["poll"]


def raise_address() -> int:
    """Return the address of a routine that raises the exception for which the last kernel was interrupted, and returns NULL."""
    return _routines()["raise"]


def raise_interruption() -> None:
    """Raise the exception for which the last kernel was interrupted."""
    ctypes.PYFUNCTYPE(ctypes.py_object)(raise_address())()
