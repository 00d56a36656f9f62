"""Who calls a hooked function: the user's own code, or something compiled that runs in its frame.

Compiled code has no frame: ``rng.normal(size=3)`` calls `numpy.empty` in the frame of the user, and needs an ndarray. So the expression
that the frame is calling is read from the positions of its instructions, and looked up by its names.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
from collections.abc import Callable
from itertools import takewhile
from types import CellType, CodeType, FrameType
from typing import Any, Final

import numpy as np

from gradtape.trace.patching.bytecode import callee_names
from gradtape.trace.source.sites import is_user_file

_NUMPY_CALLERS: Final = {
    id(vars(np)[name].__code__): vars(np)[name] for name in ("ones", "full", "eye", "identity")
}
"""By the ids of their code, functions that NumPy wrote in Python: who calls them calls what they call."""

_callee_cache: Final[dict[int, tuple[CodeType, dict[int, tuple[str, ...]]]]] = {}
"""By the id of code, with the code itself, which keeps the id its own: the names of what it calls where; none in code of libraries."""


def calling_frame(frame: FrameType, function: Any = None) -> tuple[FrameType, Any]:
    """Return the frame that calls a function, or a function of NumPy's that calls it, and the one that is called there."""
    while (outer := _NUMPY_CALLERS.get(id(frame.f_code))) is not None and frame.f_back is not None:
        frame, function = frame.f_back, outer
    return frame, function


def called_by_user(frame: FrameType, function: Any) -> bool:
    """Return whether a frame is of the user's own code and calls a function, rather than something compiled that does.

    Parameters
    ----------
    frame : frame
        From which `function` is called, by itself or by something compiled.
    function : callable
        A hooked function.
    """
    code = frame.f_code
    if id(code) in _NUMPY_CALLERS:
        frame, function = calling_frame(frame, function)
        code = frame.f_code
    known = _callee_cache.get(id(code))
    if known is None:
        if len(_callee_cache) >= 4096:
            _callee_cache.clear()
        known = _callee_cache[id(code)] = code, {}
    place = frame.f_lasti
    answer = known[1].get(place)
    if answer is None:
        answer = known[1][place] = _callee_names(frame, function) if is_user_file(code.co_filename) else ()
    if not answer:
        return False
    return answer[-1] == function.__name__ or _is_same_function(_value_of(answer, frame), function)


def _callee_names(frame: FrameType, function: Any) -> tuple[str, ...]:
    """Return the names of what a frame is calling; none, where that is another function of the same name."""
    names = callee_names(frame)
    if not names or not names[-1]:
        return ()
    if not all(names):
        return ("", names[-1])
    if names[-1] == function.__name__:
        found = _value_of(names, frame)
        if found is not None and not _is_same_function(found, function):
            return ()
    return names


def _is_same_function(found: Any, function: Any) -> bool:
    while isinstance(found, functools.partial | staticmethod):
        found = found.func if isinstance(found, functools.partial) else found.__func__
    return found is function


def callee_of(frame: FrameType) -> Any:
    """Return the function that a frame calls, or None; of ``x.copy().fill(y)`` it is what the names before the first call stand for."""
    names = tuple(takewhile(bool, callee_names(frame)))
    return _value_of(names, frame, getattr) if names else None


def _value_of(
    names: tuple[str, ...], frame: FrameType, get: Callable[..., Any] = inspect.getattr_static
) -> Any:
    """Return what an expression of names stands for, or None. Unless `get` does, no code of an object runs for its attributes."""
    first, *attributes = names
    found = _local(frame, first)
    if found is None:
        found = frame.f_globals.get(first)
    for name in attributes:
        found = get(found, name, None)
    return found


def _local(frame: FrameType, name: str) -> Any:
    """Return what a local name of a frame stands for, or None.

    Before Python 3.13 ``frame.f_locals`` makes a dict, which keeps what stands in it until the frame ends.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or sys.version_info >= (3, 13):
        return frame.f_locals.get(name)
    if name not in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return None
    try:
        return _read_local(frame, name)
    except NameError:  # it is not assigned yet
        return None


def _get_var() -> Callable[[FrameType, str], Any]:
    get: Any = ctypes.pythonapi.PyFrame_GetVar
    get.restype, get.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.py_object]
    return lambda frame, name: get(frame, name)


_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_at: Final = ctypes.c_void_p.from_address


def _from_memory(frame: FrameType, name: str) -> Any:
    """Read a local of a frame of CPython 3.11, where no function does."""
    code = frame.f_code
    inside = _at(id(frame) + object.__basicsize__ + _WORD).value or 0
    if _at(inside + 4 * _WORD).value != id(code):
        return None
    own = [cell for cell in code.co_cellvars if cell not in code.co_varnames]
    place = [*code.co_varnames, *own, *code.co_freevars].index(name)
    address = _at(inside + (9 + place) * _WORD).value
    if address is None:
        return None
    found = ctypes.cast(address, ctypes.py_object).value
    if isinstance(found, CellType) and (name in code.co_cellvars or name in code.co_freevars):
        try:
            return found.cell_contents
        except ValueError:
            return None
    return found


_read_local: Final = _get_var() if sys.version_info >= (3, 12) else _from_memory
