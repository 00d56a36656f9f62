"""Where in the user's code something happens."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import os
import re
import sys
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import numpy as np

from gradtape.errors import LIBRARIES
from gradtape.reference_counts import reference_count

PACKAGE = __name__.split(".")[0]


INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
OWN: Final = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep
    for module in (os, np, sys.modules[PACKAGE])
)
"""Where Python's own library, NumPy and gradtape are."""


@functools.lru_cache(maxsize=4096)
def is_users(filename: str) -> bool:
    """Return whether a file holds code of the user's own: neither Python's library nor an installed package."""
    return not (
        filename.startswith(("<frozen ", *OWN)) or any(directory in filename for directory in INSTALLED)
    )


class _Clock:
    """Tells what happened before an array was watched from what happened afterwards."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


CLOCK = _Clock()


class Site:
    """A place in the user's code, resolved to a line when somebody looks, and when it was: by the clock that watching moves."""

    __slots__ = ("code", "instruction", "tick", "via")

    def __init__(self, code: CodeType, instruction: int, via: str = "") -> None:
        self.code = code
        self.instruction = instruction
        self.via = via
        self.tick = CLOCK.ticks

    @property
    def filename(self) -> str:
        return self.code.co_filename

    @property
    def function(self) -> str:
        return self.code.co_name

    @property
    def line(self) -> int:
        for start, stop, line in self.code.co_lines():
            if start <= self.instruction < stop and line is not None:
                return line
        return self.code.co_firstlineno

    def __repr__(self) -> str:
        via = f" (in {self.via})" if self.via else ""
        cell = cell_of(self.filename)
        return f"{f'Cell {cell}' if cell else self.filename}:{self.line} in {self.function}{via}"


def cell_of(filename: str) -> str:
    """Return which cell of a notebook a file is, as ``In[3]``; empty for other files.

    A notebook's kernel compiles each cell under the name of a file that does not exist, which tells its reader nothing.
    """
    if f"{os.sep}ipykernel_" not in filename:
        return ""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    named = None if shell is None else shell.compile.format_code_name(filename)
    return "" if named is None else str(named[1])


def user_frame(depth: int = 1) -> FrameType:
    """Return the nearest frame of the user's code, from `depth` callers up."""
    frame: FrameType | None = sys._getframe(depth)
    last = frame
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES:
        last, frame = frame, frame.f_back
    found = frame if frame is not None else last
    assert found is not None
    return found


_libraries: dict[Any, bool] = {}
"""Whether a module belongs to a library, by its name."""

_frame = sys._getframe
_make = object.__new__


def user_site(depth: int = 2, via: str = "") -> Site:
    """Return the place in the user's code that called."""
    frame = _frame(depth)
    library = _libraries.get(frame.f_globals.get("__name__"))
    if library is not False:
        if library is None:
            name = frame.f_globals.get("__name__", "")
            library = _libraries[name] = name.partition(".")[0] in LIBRARIES
        if library:
            frame = user_frame(depth + 1)
    site = _make(Site)  # what its constructor does, quicker: this runs for every operation that is recorded
    site.code = frame.f_code
    site.instruction = frame.f_lasti
    site.via = via
    site.tick = CLOCK.ticks
    return site


def instruction_at(frame: FrameType) -> str:
    """Return the name of the bytecode instruction that a frame is executing."""
    first, _ = instruction_of(frame)
    return dis.opname[frame.f_code.co_code[first]]


def instruction_of(frame: FrameType) -> tuple[int, int]:
    """Return where the instruction begins that a frame is executing, and the end of the caches behind it, where the frame may stand."""
    code, first = frame.f_code.co_code, frame.f_lasti
    while dis.opname[code[first]] == "CACHE":  # where a call of a Python function stands
        first -= 2
    last = first
    while last + 2 < len(code) and dis.opname[code[last + 2]] == "CACHE":
        last += 2
    return first, last


def called_at(frame: FrameType) -> Any:
    """Return the function that a frame is calling, or None where its source does not tell."""
    code = frame.f_code
    line, last_line, column, _ = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    if line is None or column is None or line != last_line or not instruction_at(frame).startswith("CALL"):
        return None
    text = linecache.getline(code.co_filename, line, frame.f_globals).encode()[column:].decode()
    names = re.match(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?=\()", text)
    if names is None:
        return None
    first, *rest = names[0].split(".")
    found = _variable_of(frame, first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def _variable_of(frame: FrameType, name: str) -> Any:
    """Return what a name stands for in a frame, None if it stands for nothing.

    Up to Python 3.12 the local variables of a function are copied into a dictionary that the frame keeps. It is emptied again, or it would
    keep tapes and arrays alive that the function has deleted; unless somebody else has it (who called ``locals()``), or may be about to
    write it back (a debugger).
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a module's, a class's: the names themselves
        return frame.f_locals.get(name, frame.f_globals.get(name))
    if name not in frame.f_code.co_varnames + frame.f_code.co_cellvars + frame.f_code.co_freevars:
        return frame.f_globals.get(name)
    variables = frame.f_locals
    found = variables.get(name, frame.f_globals.get(name))
    if type(variables) is dict and reference_count(variables) <= 3 and sys.gettrace() is None:
        variables.clear()
    return found


def describe(frame: FrameType) -> Site:
    """Return the place that a frame is at."""
    return Site(frame.f_code, frame.f_lasti)


def without_internals(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback with only the frames of the user's code, so that an error ends at the user's own line."""
    frames = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] != PACKAGE:
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for entry in reversed(frames):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
