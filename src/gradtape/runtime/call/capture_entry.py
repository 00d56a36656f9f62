"""The native entry of functions with captures: it checks the captured objects, and passes hidden inputs after the arguments.

The checks of one function are a table: where each object is found, and what it must be. One resident routine walks the table and calls
the function's own entry. CPython gives a version to each state of a dict (up to 3.12): a dict with the version of the last walk is not
read again, so that the globals of a module cost one comparison.

All references are borrowed: no Python code runs between the first read and the call, and what is passed on is held while the kernel runs.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident, python_functions
from gradtape.runtime.call.callable import (
    ENTRY_OFFSET,
    FALLBACK_OFFSET,
    STATE_OFFSET,
    NativeHead,
    vectorcalled,
)
from gradtape.runtime.call.capi import (
    ARRAY_DATA,
    ARRAY_DESCR,
    ARRAY_DIMENSIONS,
    ARRAY_FLAGS,
    ARRAY_NDIM,
    FREE_THREADED,
    HEAD,
    LIST_ITEMS,
    TUPLE_ITEMS,
    TYPE,
)

__all__ = [
    "MISSED",
    "CheckedFunction",
    "NativeCheck",
    "Read",
    "Test",
    "can_check_classes",
    "checked",
    "collecting",
    "missing",
]


class Read(IntEnum):
    """Where a check finds its object. `a` and `b` are words of the check."""

    KNOWN = 0
    """Register `a`."""
    CELL = 1
    """The content of the closure cell at address `a`."""
    ENTRY = 2
    """Entry `b` of the dict in register `a`."""
    LIST = 3
    """Item number `b` of the list in register `a`."""
    TUPLE = 4
    """Item number `b` of the tuple in register `a`."""
    FIELDS = 5
    """The ``__dict__`` of the object in register `a`."""
    ARGUMENT = 6
    """Argument number `a`."""
    CODE = 7
    DEFAULTS = 8
    KWDEFAULTS = 9
    METHOD_FUNCTION = 10
    METHOD_SELF = 11
    ATTRIBUTE = 12
    """Attribute `b` of the object in register `a`, which the object itself holds."""
    VERSION = 13
    """If the dict in register `a` has the version `c`, the next `b` checks are skipped."""
    REMEMBER = 14
    """Give the check at address `b` the version of the dict in register `a`."""


class Test(IntEnum):
    """The kinds of checks. `c`, `d` and `e` are words of the check."""

    __test__ = False

    PRESENT = 0
    NOTHING = 1
    IS = 2
    """It is the object at address `c`."""
    EQUAL = 3
    """It is the object at address `c`, or one of the type `d` that is equal to it."""
    TYPE = 4
    """Its type is `c`."""
    KEYS = 5
    """It is a dict of type `c` with `d` keys, those at address `e`."""
    LENGTH = 6
    """It has the type `c` and the length `d`."""
    ABSENT = 7
    REGISTER = 8
    """It is the object in register `c`."""
    VERSION_TAG = 9
    """It is a class that has not been changed since its version was `c`."""
    CONTENT = 10
    """It is a contiguous array with the type and content of the array at address `c`."""
    BITS = 11
    """It is a number of the type `c`, with the bits `d`."""


class NativeCheck(NamedTuple):
    """One check; `out` is the register for the object that was read."""

    read: Read
    a: int
    b: int
    test: Test
    c: int
    d: int
    e: int
    out: int


_CHECK_BYTES: Final = 64
_VERSION_OF_DICT: Final = HEAD + 8
_VERSION_OF_TYPE: Final = 384

MISSED: Final = object()
"""What the entry that is called after the checks returns for arguments that it cannot take."""


@functools.cache
def _routines() -> dict[str, int]:
    """Return the addresses of the routines, compiled once in a process."""
    imports = {"gt.missed": id(MISSED)}
    return load_resident(_text(), "gradtape.captures", ("checked", "collected", "missed"), imports, effort=1)


@functools.cache
def _text() -> str:
    return read_ll(
        "gradtape.runtime",
        "native/capture_check.ll",
        **{f"read_{read.name.lower()}": read.value for read in Read},
        **{f"test_{test.name.lower()}": test.value for test in Test},
        state=STATE_OFFSET,
        fallback=FALLBACK_OFFSET,
        entry=ENTRY_OFFSET,
        head=HEAD,
        list_items=LIST_ITEMS,
        tuple_items=TUPLE_ITEMS,
        dict_version=_VERSION_OF_DICT,
        type_version=_VERSION_OF_TYPE,
        check=_CHECK_BYTES,
        type=TYPE,
        data=ARRAY_DATA,
        ndim=ARRAY_NDIM,
        dimensions=ARRAY_DIMENSIONS,
        descr=ARRAY_DESCR,
        flags=ARRAY_FLAGS,
    )


@functools.cache
def _has_functions() -> bool:
    return not FREE_THREADED and all(python_functions(_text()).values())


def _version_of(cls: type) -> int:
    return ctypes.c_uint32.from_address(id(cls) + _VERSION_OF_TYPE).value


@functools.cache
def can_check_classes() -> bool:
    """Return whether the version of a class is at the expected offset, and changes with the class."""
    probe: Any = type("Probe", (), {"f": 1})
    versions = []
    for number in range(3):
        probe.f = number
        getattr(probe(), "f")  # noqa: B009 - a look-up gives it a version
        versions.append(_version_of(probe))
    return 0 not in versions and len(set(versions)) == 3


def version_tag(cls: type) -> int:
    """Return the version of a class, which a look-up assigns; 0 where it has none."""
    getattr(cls, "_no_such_attribute", None)  # a name that the metaclass does not answer for
    return _version_of(cls)


@functools.cache
def _dicts_have_versions() -> bool:
    """Return whether the version of a dict is at the expected offset, and changes with each write."""
    if sys.version_info >= (3, 13):
        return False
    table: dict[str, int] = {}
    versions = []
    for number in range(4):
        table[f"k{number % 2}"] = number
        versions.append(ctypes.c_uint64.from_address(id(table) + _VERSION_OF_DICT).value)
        versions.append(ctypes.c_uint64.from_address(id(dict(table)) + _VERSION_OF_DICT).value)
    still = ctypes.c_uint64.from_address(id(table) + _VERSION_OF_DICT).value
    return len(set(versions)) == len(versions) and still == versions[-2]


class _PythonChecked(NativeHead):
    """The Python methods of a checked function."""

    __slots__ = ("__weakref__", "kept", "tags")

    kept: tuple[object, ...]
    tags: list[tuple[Any, type, Callable[[], bool]]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fallback(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def renew(self) -> None:
        """Set the present versions of the classes that are what they should be; the checks of the others fail."""
        for word, cls, holds in self.tags:
            version = version_tag(cls)
            word[0] = version if word[0] == version or holds() else 0


if TYPE_CHECKING:

    class CheckedFunction(_PythonChecked):
        """A native function that is called after checks of its captures."""

else:

    @vectorcalled
    class CheckedFunction(_PythonChecked):
        """A native function that is called after checks of its captures; made by :func:`checked`."""

        __slots__ = ()


class _PythonMissing(NativeHead):
    """The Python methods of `missing` and `collecting`."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return MISSED

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self


if TYPE_CHECKING:
    _Missing = _PythonMissing
else:

    @vectorcalled
    class _Missing(_PythonMissing):
        __slots__ = ()


@functools.cache
def missing() -> Any:
    """Return a native callable that returns `MISSED`."""
    return _routine("missed")


@functools.cache
def collecting() -> Any:
    """Return a native callable that returns its arguments as a tuple; without native code it returns `MISSED`."""
    return _routine("collected")


def _routine(name: str) -> Any:
    routine = _Missing()
    routine.fallback = routine
    if _has_functions():
        routine.entry = _routines()[name]
    return routine


def checked(
    behind: Any,
    fallback: Callable[..., Any],
    arguments: int,
    checks: Sequence[NativeCheck],
    registers: Sequence[int],
    result_registers: Sequence[int] | None,
    *,
    references: Sequence[tuple[int, Any]] = (),
    tags: Sequence[tuple[int, type, Callable[[], bool]]] = (),
    kept: Sequence[object] = (),
) -> CheckedFunction | None:
    """Return a callable that runs checks and calls a native function; None for a Python with unknown layouts.

    Parameters
    ----------
    behind : NativeHead
        The native function.
    fallback : callable
        Takes the calls for which a check fails, or that `behind` refuses.
    arguments : int
        How many positional arguments there must be.
    checks : sequence of NativeCheck
        The checks. The `REMEMBER` check of a `VERSION` check has its number in `b`.
    registers : sequence of int
        What the registers hold at first: addresses of known objects.
    passed : sequence of int or None
        What is passed to `behind`: registers, and for arguments -1 - their numbers; None for the arguments as they are.
    references : sequence of (int, weakref.ref)
        Checks for an object which may die: then they always fail.
    tags : sequence of (int, type, callable)
        Checks of the versions of classes, and functions that return whether a class is what it should be: its version may be that of
        another state.
    kept : sequence of object
        What must stay alive.
    """
    if not _has_functions() or (tags and not can_check_classes()):
        return None
    versions = _dicts_have_versions()
    words = np.zeros(8 * len(checks) + 8, np.int64)
    base = _address(words)
    for number, check in enumerate(checks):
        if check.read is Read.VERSION and not versions:
            check = check._replace(read=Read.KNOWN, test=Test.NOTHING, out=check.a)
        elif check.read is Read.REMEMBER:
            check = check._replace(b=base + _CHECK_BYTES * check.b)
            if not versions:
                check = check._replace(read=Read.KNOWN, test=Test.NOTHING, out=check.a)
        words[8 * number : 8 * number + 8] = check
    register_array = np.array([*registers, 0], np.int64)
    register_numbers = np.array([*(result_registers or ()), 0], np.int64)
    end = base + _CHECK_BYTES * len(checks)
    count = -1 if result_registers is None else len(result_registers)
    state = np.array(
        [id(behind), arguments, base, end, _address(register_array), count, _address(register_numbers), 0],
        np.int64,
    )
    function = CheckedFunction()
    function.fallback = fallback
    watched = []
    for number, referent in references:
        watched.append(weakref.ref(referent, functools.partial(_forget, words, 8 * number + 4)))
    function.tags = [(words[8 * number + 4 : 8 * number + 5], cls, holds) for number, cls, holds in tags]
    function.renew()
    function.kept = (behind, words, register_array, register_numbers, state, watched, tuple(kept))
    function.state = _address(state)
    function.entry = _routines()["checked"]
    return function


def _address(words: Any) -> int:
    address: int = words.__array_interface__["data"][0]
    return address


def _forget(words: Any, position: int, reference: object) -> None:
    """Let a check always fail: its object has died, and the address may be that of another object."""
    words[position] = 0


def is_contiguous(array: Any) -> bool:
    """Return whether native code can compare the content of an array."""
    return type(array) is np.ndarray and bool(array.flags.c_contiguous) and not array.dtype.hasobject
