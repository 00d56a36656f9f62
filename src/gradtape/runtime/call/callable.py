"""Vectorcall objects: Python objects that are called at the speed of a C function, which can be replaced.

CPython calls an object through a C function pointer inside the object when the object's type says so (PEP
590, the vectorcall protocol). A class statement cannot ask for that, but `PyType_FromSpecWithBases` can;
it needs no compiler, and ctypes reaches it. While the pointer is null, CPython uses ``__call__`` as it
would for any object.

Measured (CPython 3.11, two arguments): a builtin function 11 ns, an object of this kind 14, an instance
of a class whose ``__call__`` is a builtin 30, a Python ``__call__`` that forwards 135. And unlike one
class per object, these objects are ordinary garbage.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["ENTRY_OFFSET", "FALLBACK_OFFSET", "STATE_OFFSET", "FastCallable", "NativeHead", "vectorcalled"]

C = TypeVar("C", bound=type)

_READ_ONLY: Final = 1
_SIZE_MEMBER: Final = 19
_SLOT_MEMBERS: Final = 72
_FLAG_DEFAULT: Final = 1 << 18
_FLAG_BASE_TYPE: Final = 1 << 10
_FLAG_VECTORCALL: Final = 1 << 11
_FLAG_METHOD_DESCRIPTOR: Final = 1 << 17


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


_specifications: Final[list[Any]] = []
"""CPython keeps pointers into member tables, so the tables live as long as the process."""


def _make_type(name: str, base: type, size: int, members: tuple[_Member, ...], flags: int) -> Any:
    table = (_Member * (len(members) + 1))(*members)
    slots = (_Slot * 2)(_Slot(_SLOT_MEMBERS, ctypes.addressof(table)))
    spec = _Spec(f"{__name__}.{name}".encode(), size, 0, _FLAG_DEFAULT | _FLAG_BASE_TYPE | flags, slots)
    _specifications.append((table, slots, spec))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object]
    return make(ctypes.addressof(spec), (base,))


class _Fallback:
    """The first field of a native object: the Python callable that takes what machine code refuses."""

    __slots__ = ("fallback",)

    fallback: Callable[..., Any]


FALLBACK_OFFSET: Final = object.__basicsize__
STATE_OFFSET: Final = _Fallback.__basicsize__
ENTRY_OFFSET: Final = STATE_OFFSET + ctypes.sizeof(ctypes.c_void_p)

if TYPE_CHECKING:

    class NativeHead(_Fallback):
        """An object whose first fields machine code reads: fallback, state, entry."""

        state: int
        entry: int

else:
    NativeHead = _make_type(
        "NativeHead",
        _Fallback,
        ENTRY_OFFSET + ctypes.sizeof(ctypes.c_void_p),
        (
            _Member(b"state", _SIZE_MEMBER, STATE_OFFSET, 0, None),
            _Member(b"entry", _SIZE_MEMBER, ENTRY_OFFSET, 0, None),
        ),
        0,
    )


def vectorcalled(cls: C) -> C:
    """Make a subclass of :class:`NativeHead` whose objects are called through their `entry` pointer.

    A subclass of the result loses the property on CPython 3.11 and must be decorated again.

    Parameters
    ----------
    cls : type
        A class with the methods ``__call__``, used while `entry` is zero, and ``__get__``.

    Returns
    -------
    type
        A subclass of `cls` under the same name.
    """
    flags = _FLAG_VECTORCALL | _FLAG_METHOD_DESCRIPTOR
    if "d" in getattr(sys, "abiflags", ""):
        # A debug build insists on a tp_call of the type's own, which would shadow the inherited __call__.
        return cls
    offset = _Member(b"__vectorcalloffset__", _SIZE_MEMBER, ENTRY_OFFSET, _READ_ONLY, None)
    made: C = _make_type(cls.__name__, cls, 0, (offset,), flags)
    made.__module__, made.__qualname__, made.__doc__ = cls.__module__, cls.__qualname__, cls.__doc__
    return made


class _PythonCallable(NativeHead):
    """The Python methods of a fast callable."""

    __slots__ = ("__dict__", "__weakref__", "_native")

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, slow: Callable[..., Any], wrapped: Callable[..., Any] | None = None) -> None:
        functools.update_wrapper(self, slow if wrapped is None else wrapped)
        self.fallback = slow
        self._native: NativeHead | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fallback(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self) -> _PythonCallable:
        return self

    def __deepcopy__(self, memo: Any) -> _PythonCallable:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__dict__.get('__qualname__', 'of an unnamed function')}>"

    def install(self, native: NativeHead) -> None:
        """Send calls to `native`, made by :func:`~gradtape.runtime.call.entry.bind`.

        Calls that it refuses go to this object's own `slow` callable.
        """
        self.uninstall()
        self.state = native.state
        self._native = native
        self.entry = native.entry

    def uninstall(self) -> None:
        """Send every call to the `slow` callable again."""
        self.entry = 0
        self._native = None


if TYPE_CHECKING:

    class FastCallable(_PythonCallable):
        """A Python function whose calls can be answered by machine code."""

else:

    @vectorcalled
    class FastCallable(_PythonCallable):
        """A Python function whose calls can be answered by machine code.

        Parameters
        ----------
        slow : callable
            Answers while no machine code is installed, and whatever the machine code cannot take.
        wrapped : callable, optional
            The function whose name, documentation and signature this object shows; `slow` by default.

        Examples
        --------
        >>> def twice(x):
        ...     return 2 * x
        >>> fast = FastCallable(twice)
        >>> fast(4), fast.__name__
        (8, 'twice')
        """

        __slots__ = ()
