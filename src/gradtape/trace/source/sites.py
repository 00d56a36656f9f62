"""Where in the user's code something happens."""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import numpy as np

from gradtape.errors import LIBRARIES
from gradtape.trace.patching.bytecode import line_at

PACKAGE = __name__.split(".")[0]


INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
OWN: Final = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep
    for module in (os, np, sys.modules[PACKAGE])
)
"""Where Python's own library, NumPy and gradtape are."""


@functools.lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
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
        return line_at(self.code, self.instruction)

    def __repr__(self) -> str:
        via = f" (in {self.via})" if self.via else ""
        cell = notebook_cell(self.filename)
        return f"{f'Cell {cell}' if cell else self.filename}:{self.line} in {self.function}{via}"


def notebook_cell(filename: str) -> str:
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


def site_of(frame: FrameType) -> Site:
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
