"""Hooks in compiled functions: handlers that are asked what a call returns while somebody records.

A call of a compiled function goes through a C pointer in the function object, its *vectorcall slot* (PEP 590). A hook puts the address
of a few native instructions there. They read how many recorders there are; for none they jump to NumPy's own code, else to the handler.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import sys
import sysconfig
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final

import numpy as np

from ...errors import GradtapeWarning, warn
from ...lower.resident import load_resident
from .recorders import COUNT, RECORDERS, at_first

Function = Callable[..., Any]


class When(enum.Enum):
    """Which calls a handler is asked about, of those while somebody records."""

    ALWAYS = "always"
    """All."""
    CONVERSION = "conversion"
    """Those whose first argument is not exactly an ndarray, or that have arguments by keyword."""
    SEQUENCE = "sequence"
    """Those with a list or tuple among the arguments."""


_hooks: Final[dict[int, tuple[Any, Function, When]]] = {}
"""The functions with hooks, by their ids: each with what makes its handler and when that is asked."""

_handlers: Final[dict[Any, Function]] = {}
"""The handlers of installed hooks, by function. Native code looks them up here."""

_own: Final[dict[int, Function]] = {}
"""What does without a hook what a function did, by the function's id."""


def hook(function: Any, handler_of: Callable[[Function], Function], when: When = When.ALWAYS) -> None:
    """Let a handler answer calls of a compiled function while somebody records.

    Parameters
    ----------
    function : builtin function, ufunc or dispatcher of NumPy
        What has a vectorcall slot and is no Python function.
    handler_of : callable
        Makes the handler, of a function that does what `function` does without a hook. The handler is called with the arguments of the
        call, and from the frame that called.
    when : When
        The calls that it is asked about.
    """
    _hooks[id(function)] = function, handler_of, when
    at_first(lambda: _install(function, handler_of, when))


def own(function: Function) -> Function:
    """Return what does what a function does without its hook; the function itself, if it has none."""
    return _own.get(id(function), function)


# Layout of CPython's objects

_read: Final = ctypes.c_void_p.from_address
_HEAD: Final = object.__basicsize__
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_METHOD: Final = _HEAD
"""Where a builtin function has its PyMethodDef."""
_SELF: Final = _HEAD + _WORD
_SLOT_OFFSET: Final = _HEAD + 5 * _WORD
"""Where a type says where its objects have their vectorcall slots."""
_FLAGS: Final = _HEAD + 19 * _WORD
"""Where a type has its flags."""
_HAS_SLOT: Final = 1 << 11

_UNSPECIALISED: Final = 0x02
"""Flags that no specialised instruction of the interpreter knows: it calls through the slot."""


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    )


def _slot(function: Any) -> int:
    """Return the address of a function's vectorcall slot."""
    offset = _read(id(type(function)) + _SLOT_OFFSET).value or 0
    return id(function) + offset


def unknown_layout() -> str:
    """Return why hooks cannot be installed in this Python; empty if they can."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or _WORD != 8:
        return "hooks need CPython with a GIL, of 64 bits"
    probe = {1, 2, 3}
    if ctypes.c_ssize_t.from_address(id(probe) + COUNT - id(RECORDERS)).value != 3:
        return "sets have another layout"
    if any(
        ctypes.c_ulong.from_address(id(kind) + _FLAGS).value != kind.__flags__ for kind in (list, tuple, int)
    ):
        return "types have another layout"
    for function, _, _ in _hooks.values():
        kind = type(function)
        offset = _read(id(kind) + _SLOT_OFFSET).value or 0
        if not kind.__flags__ & _HAS_SLOT or not _HEAD <= offset <= kind.__basicsize__ - _WORD:
            return f"objects of type {kind.__name__} have no slot"
        if kind is BuiltinFunctionType:
            method = _MethodDef.from_address(_read(id(function) + _METHOD).value or 0)
            named = ctypes.string_at(method.name or 0).decode() == function.__name__
            if not named or _read(id(function) + _SELF).value != id(function.__self__):
                return "builtin functions have another layout"
    return ""


@functools.cache
def _can_install() -> bool:
    """Return whether hooks can be installed; where they cannot, say so once."""
    why = unknown_layout()
    if why:
        warn(
            GradtapeWarning,
            "NumPy's functions cannot be hooked in this Python: np.zeros takes no traced numbers, np.array no lists of them",
            why=why,
            remedy="write np.zeros(n, like=x) and np.stack([a, b])",
        )
    return not why


def _install(function: Any, handler_of: Callable[[Function], Function], when: When) -> None:
    if id(function) in _own or not _can_install():
        return
    slot, builtin = _slot(function), type(function) is BuiltinFunctionType
    code = _read(slot).value
    plain = _as_numpy_made_it(function) if code is None else _calling(code, function)
    _handlers[function] = handler_of(plain)
    native = _native(code, id(plain))[when]
    if builtin:
        method = _MethodDef.from_address(_read(id(function) + _METHOD).value or 0)
        changed = _forever(_MethodDef(method.name, method.call, _UNSPECIALISED, method.doc))
        _read(id(function) + _METHOD).value = ctypes.addressof(changed)
    _own[id(function)] = plain
    _read(slot).value = native


def _calling(code: int, function: Any) -> Function:
    """Return a function that calls what stood in another one's slot: the slot's signature is that of METH_FASTCALL | METH_KEYWORDS."""
    name = ctypes.create_string_buffer(str(function.__name__).encode())
    method = _MethodDef(ctypes.addressof(_forever(name)), code, 0x80 | 0x02, None)
    return _made(ctypes.addressof(_forever(method)), id(function))


def _as_numpy_made_it(function: Any) -> Function:
    """Return another object for the same builtin function, which has no slot."""
    return _made(_read(id(function) + _METHOD).value or 0, id(function.__self__))


def _made(method: int, self: int) -> Function:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    made: Function = make(method, self, None)
    return made


def _forever(thing: Any) -> Any:
    """Keep an object until the process ends: NumPy's functions outlive this module, and use it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


_forever(RECORDERS)
_forever(_handlers)

_TEXT: Final = """
@recorders = external global i64
@handlers = external global i8
@array_type = external global i8
@plain = external global i8
declare ptr @own(ptr, ptr, i64, ptr)
declare ptr @ask(ptr, ptr, i64, ptr)
declare ptr @find(ptr, ptr)

define ptr @always(ptr %function, ptr %args, i64 %number, ptr %names) {
  %used = load i64, ptr @recorders
  %nobody = icmp eq i64 %used, 0
  br i1 %nobody, label %go, label %hand
go:
  %result = musttail call ptr @own(ptr OWN, ptr %args, i64 %number, ptr %names)
  ret ptr %result
hand:
  %handler = call ptr @find(ptr @handlers, ptr %function)
  %answer = musttail call ptr @ask(ptr %handler, ptr %args, i64 %number, ptr %names)
  ret ptr %answer
}

define ptr @conversion(ptr %function, ptr %args, i64 %number, ptr %names) {
  %used = load i64, ptr @recorders
  %nobody = icmp eq i64 %used, 0
  br i1 %nobody, label %go, label %look
look:
  %positional = and i64 %number, 9223372036854775807
  %none = icmp eq i64 %positional, 0
  %named = icmp ne ptr %names, null
  %unclear = or i1 %none, %named
  br i1 %unclear, label %hand, label %first
first:
  %argument = load ptr, ptr %args
  %typed = getelementptr i8, ptr %argument, i64 TYPE
  %type = load ptr, ptr %typed
  %array = icmp eq ptr %type, @array_type
  br i1 %array, label %go, label %hand
go:
  %result = musttail call ptr @own(ptr OWN, ptr %args, i64 %number, ptr %names)
  ret ptr %result
hand:
  %handler = call ptr @find(ptr @handlers, ptr %function)
  %answer = musttail call ptr @ask(ptr %handler, ptr %args, i64 %number, ptr %names)
  ret ptr %answer
}

define ptr @sequence(ptr %function, ptr %args, i64 %number, ptr %names) {
  %used = load i64, ptr @recorders
  %nobody = icmp eq i64 %used, 0
  br i1 %nobody, label %go, label %count
count:
  %positional = and i64 %number, 9223372036854775807
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %look, label %named
named:
  %sized = getelementptr i8, ptr %names, i64 HEAD
  %size = load i64, ptr %sized
  %all = add i64 %positional, %size
  br label %look
look:
  %total = phi i64 [ %positional, %count ], [ %all, %named ]
  br label %next
next:
  %k = phi i64 [ 0, %look ], [ %following, %seen ]
  %over = icmp eq i64 %k, %total
  br i1 %over, label %go, label %seen
seen:
  %place = getelementptr ptr, ptr %args, i64 %k
  %argument = load ptr, ptr %place
  %typed = getelementptr i8, ptr %argument, i64 TYPE
  %type = load ptr, ptr %typed
  %flagged = getelementptr i8, ptr %type, i64 FLAGS
  %flags = load i64, ptr %flagged
  %kinds = and i64 %flags, LISTS
  %following = add i64 %k, 1
  %other = icmp eq i64 %kinds, 0
  br i1 %other, label %next, label %hand
go:
  %result = musttail call ptr @own(ptr OWN, ptr %args, i64 %number, ptr %names)
  ret ptr %result
hand:
  %handler = call ptr @find(ptr @handlers, ptr %function)
  %answer = musttail call ptr @ask(ptr %handler, ptr %args, i64 %number, ptr %names)
  ret ptr %answer
}
"""
"""What stands in slots. OWN is the function itself where its own slot is called, and another object where it had none."""

_LISTS: Final = 1 << 25 | 1 << 26
"""Flags of the types of lists and of tuples."""


def _text(own_object: str) -> str:
    text = _TEXT.replace("OWN", own_object).replace("LISTS", str(_LISTS)).replace("FLAGS", str(_FLAGS))
    return text.replace("TYPE", str(_HEAD - _WORD)).replace("HEAD", str(_HEAD))


_modules: Final[dict[int, dict[When, int]]] = {}


def _native(code: int | None, plain: int) -> dict[When, int]:
    """Return the addresses of what to put into a slot where `code` stood; without any, `plain` is called."""
    key = plain if code is None else code
    known = _modules.get(key)
    if known is None:
        find = _address("PyDict_GetItem")
        call = _address("PyObject_Vectorcall")
        imports = {
            "recorders": COUNT,
            "handlers": id(_handlers),
            "array_type": id(np.ndarray),
            "plain": plain,
            "own": call if code is None else code,
            "ask": call,
            "find": find,
        }
        names = [when.value for when in When]
        found = load_resident(
            _text("@plain" if code is None else "%function"), "gradtape.hooks", names, imports
        )
        known = _modules[key] = {when: found[when.value] for when in When}
    return known


def _address(name: str) -> int:
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found
