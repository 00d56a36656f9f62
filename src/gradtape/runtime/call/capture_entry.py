"""A native entry in front of another: it checks what a function reads from outside, and passes hidden inputs on behind the arguments.

The checks of one function are a table, one row per read: where the object is found, and what it must be. One routine, which
stays in memory, walks the table and calls the function's own entry. What a dict held when it was looked at last is remembered with the
version that CPython gives to each state of a dict (up to 3.12), so that the names of a module cost one comparison.

All reads are borrowed: no Python code runs between the first and the call, and what is passed on is held while the kernel runs.
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

__all__ = ["MISSED", "CheckedFunction", "Read", "Row", "Test", "can_check_classes", "checked", "missing"]


class Read(IntEnum):
    """Where a row finds its object. `a` and `b` are words of the row."""

    KNOWN = 0
    """Register `a`."""
    CELL = 1
    """What the closure cell at address `a` holds."""
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
    """If the dict in register `a` has the version `c`, the next `b` rows need not be looked at."""
    REMEMBER = 14
    """Give the row at address `b` the version of the dict in register `a`."""


class Test(IntEnum):
    """What is checked. `c`, `d` and `e` are words of the row."""

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


class Row(NamedTuple):
    """One row; `out` is the register for what was read."""

    read: Read
    a: int
    b: int
    test: Test
    c: int
    d: int
    e: int
    out: int


_ROW_BYTES: Final = 64
_VERSION_OF_DICT: Final = HEAD + 8
_VERSION_OF_TYPE: Final = 384

MISSED: Final = object()
"""What an entry behind the checks returns for arguments that it cannot take."""


@functools.cache
def _routines() -> dict[str, int]:
    """Return the addresses of the routines, compiled once in a process."""
    imports = {"gt.missed": id(MISSED)}
    return load_resident(_text(), "gradtape.captures", ("checked", "missed"), imports, effort=1)


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
        row=_ROW_BYTES,
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
    """Return whether a class has a version where it is looked for, which changes with the class."""
    probe: Any = type("Probe", (), {"f": 1})
    versions = []
    for number in range(3):
        probe.f = number
        getattr(probe(), "f")  # noqa: B009 - a look-up gives it a version
        versions.append(_version_of(probe))
    return 0 not in versions and len(set(versions)) == 3


def version_tag(cls: type) -> int:
    """Return the version of a class, which it gets by a look-up; 0 where it has none."""
    getattr(cls, "_no_such_attribute", None)  # a name that the metaclass does not answer for
    return _version_of(cls)


@functools.cache
def _dicts_have_versions() -> bool:
    """Return whether a dict has a version where it is looked for, which changes with each write."""
    if sys.version_info >= (3, 13):
        return False
    one: dict[str, int] = {}
    versions = []
    for number in range(4):
        one[f"k{number % 2}"] = number
        versions.append(ctypes.c_uint64.from_address(id(one) + _VERSION_OF_DICT).value)
        versions.append(ctypes.c_uint64.from_address(id(dict(one)) + _VERSION_OF_DICT).value)
    still = ctypes.c_uint64.from_address(id(one) + _VERSION_OF_DICT).value
    return len(set(versions)) == len(versions) and still == versions[-2]


class _PythonChecked(NativeHead):
    """What a checked function does in Python."""

    __slots__ = ("__weakref__", "kept", "tags")

    kept: tuple[object, ...]
    tags: list[tuple[Any, type, Callable[[], bool]]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fallback(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def renew(self) -> None:
        """Take the present versions of the classes that are what they should be; the others' checks do not hold."""
        for word, cls, holds in self.tags:
            version = version_tag(cls)
            word[0] = version if word[0] == version or holds() else 0


if TYPE_CHECKING:

    class CheckedFunction(_PythonChecked):
        """A native function behind checks of what it reads from outside."""

else:

    @vectorcalled
    class CheckedFunction(_PythonChecked):
        """A native function behind checks of what it reads from outside; made by :func:`checked`."""

        __slots__ = ()


class _PythonMissing(NativeHead):
    """What the object behind the checks does in Python."""

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
    """Return a callable that returns `MISSED`, at the price of a native call."""
    made = _Missing()
    made.fallback = made
    if _has_functions():
        made.entry = _routines()["missed"]
    return made


def checked(
    behind: Any,
    fallback: Callable[..., Any],
    arguments: int,
    rows: Sequence[Row],
    registers: Sequence[int],
    passed: Sequence[int] | None,
    *,
    references: Sequence[tuple[int, Any]] = (),
    tags: Sequence[tuple[int, type, Callable[[], bool]]] = (),
    kept: Sequence[object] = (),
) -> CheckedFunction | None:
    """Return a callable that checks rows and calls a native function; None where this Python cannot be looked into.

    Parameters
    ----------
    behind : NativeHead
        The native function.
    fallback : callable
        Takes the calls for which a row does not hold, or that `behind` refuses.
    arguments : int
        How many positional arguments there must be.
    rows : sequence of Row
        The checks. A `VERSION` row's `REMEMBER` row has the number of the former in `b`.
    registers : sequence of int
        What the registers hold at first: addresses of known objects.
    passed : sequence of int or None
        What is passed to `behind`: registers, and for arguments -1 - their numbers; None for the arguments as they are.
    references : sequence of (int, weakref.ref)
        Rows that wait for an object which may die: then they never hold again.
    tags : sequence of (int, type, callable)
        Rows that look at the versions of classes, and what says whether a class is what it should be: another state of it may have
        been compiled in the meantime.
    kept : sequence of object
        What must stay alive.
    """
    if not _has_functions() or (tags and not can_check_classes()):
        return None
    versions = _dicts_have_versions()
    words = np.zeros(8 * len(rows) + 8, np.int64)
    base = _address(words)
    for number, row in enumerate(rows):
        if row.read is Read.VERSION and not versions:
            row = row._replace(read=Read.KNOWN, test=Test.NOTHING, out=row.a)
        elif row.read is Read.REMEMBER:
            row = row._replace(b=base + _ROW_BYTES * row.b)
            if not versions:
                row = row._replace(read=Read.KNOWN, test=Test.NOTHING, out=row.a)
        words[8 * number : 8 * number + 8] = row
    held = np.array([*registers, 0], np.int64)
    places = np.array([*(passed or ()), 0], np.int64)
    end = base + _ROW_BYTES * len(rows)
    count = -1 if passed is None else len(passed)
    state = np.array([id(behind), arguments, base, end, _address(held), count, _address(places), 0], np.int64)
    function = CheckedFunction()
    function.fallback = fallback
    watched = []
    for number, thing in references:
        watched.append(weakref.ref(thing, functools.partial(_forget, words, 8 * number + 4)))
    function.tags = [(words[8 * number + 4 : 8 * number + 5], cls, holds) for number, cls, holds in tags]
    function.renew()
    function.kept = (behind, words, held, places, state, watched, tuple(kept))
    function.state = _address(state)
    function.entry = _routines()["checked"]
    return function


def _address(words: Any) -> int:
    address: int = words.__array_interface__["data"][0]
    return address


def _forget(words: Any, place: int, reference: object) -> None:
    """Let a row never hold again: what it waits for has died, and its address may be another object's."""
    words[place] = 0


def is_contiguous(array: Any) -> bool:
    """Return whether the content of an array can be compared natively."""
    return type(array) is np.ndarray and bool(array.flags.c_contiguous) and not array.dtype.hasobject
