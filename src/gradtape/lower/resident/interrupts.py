"""Ctrl-C in loops of kernels: what a long loop asks now and then, and what becomes of the answer.

Python remembers a signal and runs its handler when it comes to. A kernel that loops for seconds has to ask for that. It does so
in the main thread alone, where handlers run, and takes the interpreter lock for it once in 10 ms.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from typing import Final

from gradtape.locks import renewed_in_child
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol

POLL: Final = "gradtape.poll"
"""The symbol of the routine ``int32_t (void)``: not zero if a handler has raised an exception."""

RAISE: Final = "gt.raise"
"""The symbol of the routine ``PyObject *(void)`` that raises this exception and returns NULL."""

INTERRUPTED: Final = -2
"""What a kernel returns then."""

PERIOD: Final = 10_000_000
"""Nanoseconds between two questions."""

_PYTHON: Final = (
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyGILState_Ensure",
    "PyGILState_Release",
)

_CLOCK: Final = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
"""

_WINDOWS_CLOCK: Final = """
declare i64 @GetTickCount64()
define internal i64 @now() nounwind {
  %milliseconds = call i64 @GetTickCount64()
  %sum = mul i64 %milliseconds, 1000000
  ret i64 %sum
}
"""

_THREAD: Final = """
declare i64 @pthread_self()
define internal i64 @self() nounwind {
  %name = call i64 @pthread_self()
  ret i64 %name
}
"""

_WINDOWS_THREAD: Final = """
declare i32 @GetCurrentThreadId()
define internal i64 @self() nounwind {
  %name = call i32 @GetCurrentThreadId()
  %wide = zext i32 %name to i64
  ret i64 %wide
}
"""

_POLL: Final = f"""
@main = global i64 0
@last = internal global i64 0
@kind = internal global ptr null
@value = internal global ptr null
@trace = internal global ptr null
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)

define i32 @poll() nounwind {{
entry:
  %self = call i64 @self()
  %main = load i64, ptr @main
  %ours = icmp eq i64 %self, %main
  br i1 %ours, label %look, label %fine
look:
  %now = call i64 @now()
  %last = load i64, ptr @last
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, {PERIOD}
  br i1 %due, label %ask, label %fine
ask:
  store i64 %now, ptr @last
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %keep, label %leave
keep:
  call void @PyErr_Fetch(ptr @kind, ptr @value, ptr @trace)
  br label %leave
leave:
  call void @PyGILState_Release(i32 %state)
  %result = select i1 %some, i32 {INTERRUPTED}, i32 0
  ret i32 %result
fine:
  ret i32 0
}}

define ptr @raise() nounwind {{
  %kind = load ptr, ptr @kind
  %value = load ptr, ptr @value
  %trace = load ptr, ptr @trace
  store ptr null, ptr @kind
  store ptr null, ptr @value
  store ptr null, ptr @trace
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  ret ptr null
}}
"""


@functools.cache
def _routines() -> dict[str, int]:
    if has_symbol("clock_gettime") and has_symbol("pthread_self"):
        text = _CLOCK.replace("i32 CLOCK", f"i32 {int(time.CLOCK_MONOTONIC)}") + _THREAD
    else:
        text = _WINDOWS_CLOCK + _WINDOWS_THREAD
    python = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON
    }
    found = load_resident(text + _POLL, POLL, ("poll", "raise", "main"), python)
    main = ctypes.c_int64.from_address(found["main"])

    def know_main() -> None:
        main.value = threading.main_thread().ident or 0

    know_main()
    renewed_in_child(know_main)
    return dict(found)


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
