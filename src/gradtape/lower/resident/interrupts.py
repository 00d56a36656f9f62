"""Polling for signals: long loops of kernels can be interrupted by Ctrl-C, and show their progress.

Python runs the handler of a signal in the main thread, between two bytecodes. A kernel that runs for seconds has to let it: in the main
thread it takes the interpreter lock every 10 ms and calls the handlers. There it also calls `show_iterations` from time to time, if one
run of an outermost loop takes long.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gradtape.locks import renewed_in_child
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol
from gradtape.progress import PATIENCE, PAUSE, show_iterations
from gradtape.reference_counts import keep_for_ever

POLL: Final = "gradtape.poll_at"
"""The symbol of the routine ``int32_t (int64_t done, int64_t total)``, which returns `INTERRUPTED` if a handler has raised an exception.

It returns 0 otherwise. It takes the number of iterations that are done, and of all: `UNKNOWN_TOTAL`, or `INSIDE` for a loop that shows
no progress.
"""

OVER: Final = "gradtape.poll_over"
"""The symbol of the routine ``int32_t (void)``, which a loop that shows its progress calls at its end; it returns the same."""

UNKNOWN_TOTAL: Final = -1
INSIDE: Final = 0

_ATTRIBUTES: Final = "cold nounwind memory(inaccessiblemem: readwrite)"

POLL_DECLARATION: Final = f'declare i32 @"{POLL}"(i64, i64) {_ATTRIBUTES}'
"""Its declaration, of which a module may have one."""

OVER_DECLARATION: Final = f'declare i32 @"{OVER}"() {_ATTRIBUTES}'

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
    places = {
        "clock": int(getattr(time, "CLOCK_MONOTONIC", 1)),
        "period": PERIOD,
        "interrupted": INTERRUPTED,
        "patience": int(PATIENCE * 1e9),
        "pause": int(PAUSE * 1e9),
        "most": 2**63 - 1,
        "show": id(keep_for_ever(show_iterations)),
    }
    text = "".join([read_ll(__package__, file, **places) for file in files])
    found = load_resident(text, POLL, ("poll", "over", "keep", "raise", "main", "patience", "pause"))
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


def over_address() -> int:
    """Return the address of the routine that kernels call as `OVER`."""
    return _routines()["over"]


@contextmanager
def progress_after(seconds: float) -> Iterator[None]:
    """Let loops show their progress after so many seconds, and each time that they poll, for tests."""
    places = [ctypes.c_int64.from_address(_routines()[name]) for name in ("patience", "pause")]
    before = [place.value for place in places]
    try:
        for place in places:
            place.value = int(seconds * 1e9)
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.value = value


def keep_address() -> int:
    """Return the address of a routine that keeps the exception which Python code has raised, and returns `INTERRUPTED`."""
    return _routines()["keep"]


def raise_address() -> int:
    """Return the address of a routine that raises the exception for which the last kernel was interrupted, and returns NULL."""
    return _routines()["raise"]


def raise_interruption() -> None:
    """Raise the exception for which the last kernel was interrupted."""
    ctypes.PYFUNCTYPE(ctypes.py_object)(raise_address())()
