"""The callers of hooked functions: user code or traced packages, or compiled code that runs in their frames.

Compiled code has no frame: ``rng.normal(size=3)`` calls `numpy.empty` in the frame of the user, and needs an ndarray. So the expression
that the frame calls is read from the positions of its instructions, and its names are looked up.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import takewhile
from types import CellType, CodeType, FrameType
from typing import Any, Final

import numpy as np

from gradtape.trace.patching.bytecode import callee_names, instruction_at
from gradtape.trace.source.sites import is_traced_file

_NUMPY_CALLERS: Final = {
    id(vars(np)[name].__code__): vars(np)[name] for name in ("ones", "full", "eye", "identity")
}
"""Functions of NumPy that are written in Python and call hooked functions, by the ids of their code."""

_ITERATES: Final = ("map",)
"""The callee of a frame that steps through an iterator, ``a, b = map(np.asarray, (a, b))``: an iterator that has no frame of its own calls
the function that it was made of."""

_callee_cache: Final[dict[int, tuple[CodeType, dict[int, tuple[str, ...]]]]] = {}
"""By the id of code: the code, which keeps the id valid, and the names of its callees by offset; none for code of libraries."""


def calling_frame(frame: FrameType, function: Any = None) -> tuple[FrameType, Any]:
    """Return the frame that calls a function, or that calls a function of NumPy's that calls it, and the called function."""
    while (outer := _NUMPY_CALLERS.get(id(frame.f_code))) is not None and frame.f_back is not None:
        frame, function = frame.f_back, outer
    return frame, function


def called_directly(frame: FrameType, function: Any) -> bool:
    """Return whether a frame is of user code, or of a traced package, and calls a function itself, rather than through compiled code.

    Parameters
    ----------
    frame : frame
        The frame in which `function` is called.
    function : callable
        A hooked function.
    """
    code = frame.f_code
    if id(code) in _NUMPY_CALLERS:
        frame, function = calling_frame(frame, function)
        code = frame.f_code
    cached = _callee_cache.get(id(code))
    if cached is None:
        if len(_callee_cache) >= 4096:
            _callee_cache.clear()
        cached = _callee_cache[id(code)] = code, {}
    instruction = frame.f_lasti
    answer = cached[1].get(instruction)
    if answer is None:
        answer = cached[1][instruction] = (
            _callee_names(frame, function) if is_traced_file(code.co_filename) else ()
        )
    if not answer:
        return False
    return (
        answer is _ITERATES
        or answer[-1] == function.__name__
        or _is_same_function(_value_of(answer, frame), function)
    )


def _callee_names(frame: FrameType, function: Any) -> tuple[str, ...]:
    """Return the names of the callee of a frame; none if it is another function of the same name."""
    if instruction_at(frame) in ("UNPACK_SEQUENCE", "FOR_ITER"):
        return _ITERATES
    names = callee_names(frame)
    if names in (("list",), ("tuple",)) and _value_of(names, frame) is None:
        return _ITERATES
    if not names or not names[-1]:
        return ()
    if not all(names):
        return ("", names[-1])
    if names[-1] == function.__name__:
        callee = _value_of(names, frame)
        if callee is not None and not _is_same_function(callee, function):
            return ()
    return names


def _is_same_function(callee: Any, function: Any) -> bool:
    while isinstance(callee, functools.partial | staticmethod):
        callee = callee.func if isinstance(callee, functools.partial) else callee.__func__
    return callee is function


def callee_of(frame: FrameType, offset: int | None = None) -> Any:
    """Return the function that a frame calls, or None; for ``x.copy().fill(y)`` it is ``x.copy``, the names before the first call.

    For a frame that an error has left, `offset` is where that was.
    """
    names = tuple(takewhile(bool, callee_names(frame, offset)))
    return _value_of(names, frame, getattr) if names else None


def extension_module_of(function: Any) -> str:
    """Return the name of the extension module of a package that a function is compiled in; empty for all other functions.

    Python's library and NumPy are no such packages: their functions have messages of their own.
    """
    if type(function).__name__ == "fortran":  # by f2py: it does not name its module
        return "f2py"
    name = getattr(function, "__module__", None)
    if not isinstance(name, str) or name.partition(".")[0] in {"numpy", *sys.stdlib_module_names}:
        return ""
    origin = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
    return name if isinstance(origin, str) and origin.endswith(tuple(EXTENSION_SUFFIXES)) else ""


def library_of(function: Any) -> str:
    """Return the top-level package that a function belongs to; that of the class it is bound to where it has no module of its own."""
    owner = getattr(function, "__self__", None)
    for candidate in (function, owner, type(owner)):
        name = getattr(candidate, "__module__", None)
        if isinstance(name, str) and name != "builtins":
            return name.partition(".")[0]
    return ""


def calls(frame: FrameType, function: Any) -> bool:
    """Return whether the code of a frame, of whatever package, calls a function itself, and not compiled code that runs in the frame."""
    return callee_of(frame) is function


def _value_of(
    names: tuple[str, ...], frame: FrameType, get: Callable[..., Any] = inspect.getattr_static
) -> Any:
    """Return the object that names and attributes refer to, or None; the default of `get` runs no code of the objects."""
    first, *attributes = names
    current = _local(frame, first)
    if current is None:
        current = frame.f_globals.get(first)
    for name in attributes:
        current = get(current, name, None)
    return current


def _local(frame: FrameType, name: str) -> Any:
    """Return the object that a local name of a frame refers to, or None.

    Before Python 3.13 ``frame.f_locals`` makes a dict, which keeps its objects alive until the frame ends.
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
    """Read a local variable from the memory of a frame of CPython 3.11, which has no function for it."""
    code = frame.f_code
    inside = _at(id(frame) + object.__basicsize__ + _WORD).value or 0
    if _at(inside + 4 * _WORD).value != id(code):
        return None
    own_cells = [cell for cell in code.co_cellvars if cell not in code.co_varnames]
    slot = [*code.co_varnames, *own_cells, *code.co_freevars].index(name)
    address = _at(inside + (9 + slot) * _WORD).value
    if address is None:
        return None
    content = ctypes.cast(address, ctypes.py_object).value
    if isinstance(content, CellType) and (name in code.co_cellvars or name in code.co_freevars):
        try:
            return content.cell_contents
        except ValueError:
            return None
    return content


_read_local: Final = _get_var() if sys.version_info >= (3, 12) else _from_memory
