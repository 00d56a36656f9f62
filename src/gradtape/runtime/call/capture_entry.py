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

from gradtape.lower.resident.routine import load_resident
from gradtape.runtime.call.callable import FALLBACK_OFFSET, STATE_OFFSET, NativeHead, vectorcalled

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
_HEAD: Final = object.__basicsize__
_TYPE: Final = _HEAD - 8
_ENTRY_OFFSET: Final = STATE_OFFSET + 8
_VERSION_OF_DICT: Final = _HEAD + 8
_VERSION_OF_TYPE: Final = 384
_LIST_ITEMS: Final = _HEAD + 8
_TUPLE_ITEMS: Final = tuple.__basicsize__
_FREE_THREADED: Final = "t" in getattr(sys, "abiflags", "")

MISSED: Final = object()
"""What an entry behind the checks returns for arguments that it cannot take."""

_FUNCTIONS: Final = {
    "PyDict_GetItemWithError": "ptr (ptr, ptr)",
    "PyDict_Next": "i32 (ptr, ptr, ptr, ptr)",
    "PyDict_Size": "i64 (ptr)",
    "PyErr_Clear": "void ()",
    "PyFunction_GetCode": "ptr (ptr)",
    "PyFunction_GetDefaults": "ptr (ptr)",
    "PyFunction_GetKwDefaults": "ptr (ptr)",
    "PyMethod_Function": "ptr (ptr)",
    "PyMethod_Self": "ptr (ptr)",
    "PyObject_GetAttr": "ptr (ptr, ptr)",
    "PyObject_RichCompareBool": "i32 (ptr, ptr, i32)",
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
    "_PyObject_GetDictPtr": "ptr (ptr)",
}

_TEXT: Final = """
declare i32 @memcmp(ptr, ptr, i64)

define ptr @missed(ptr %self, ptr %args, i64 %count, ptr %names) {
  call void @Py_IncRef(ptr @gt.missed)
  ret ptr @gt.missed
}

; Words of the state: the entry behind, arguments, rows and their end, registers, how many are passed on (-1: the arguments), their places.
define ptr @checked(ptr %self, ptr %args, i64 %countf, ptr %names) {
entry:
  %position = alloca i64
  %key = alloca ptr
  %state_at = getelementptr i8, ptr %self, i64 STATE
  %state = load ptr, ptr %state_at
  %plain = icmp eq ptr %names, null
  %count = and i64 %countf, 9223372036854775807
  %expected_at = getelementptr i64, ptr %state, i64 1
  %expected = load i64, ptr %expected_at
  %fits = icmp eq i64 %count, %expected
  %both = and i1 %plain, %fits
  br i1 %both, label %begin, label %fallback

begin:
  %rows_at = getelementptr ptr, ptr %state, i64 2
  %rows = load ptr, ptr %rows_at
  %end_at = getelementptr ptr, ptr %state, i64 3
  %end = load ptr, ptr %end_at
  %registers_at = getelementptr ptr, ptr %state, i64 4
  %registers = load ptr, ptr %registers_at
  br label %loop

loop:
  %row = phi ptr [%rows, %begin], [%after, %next], [%beyond, %skip]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %matched, label %read

read:
  %kind = load i64, ptr %row
  %a_at = getelementptr i64, ptr %row, i64 1
  %a = load i64, ptr %a_at
  %b_at = getelementptr i64, ptr %row, i64 2
  %b = load ptr, ptr %b_at
  %number = ptrtoint ptr %b to i64
  switch i64 %kind, label %fallback [
    i64 0, label %read.known    i64 1, label %read.cell     i64 2, label %read.entry
    i64 3, label %read.list     i64 4, label %read.tuple    i64 5, label %read.fields
    i64 6, label %read.argument i64 7, label %read.code     i64 8, label %read.defaults
    i64 9, label %read.kwdefaults  i64 10, label %read.function  i64 11, label %read.self
    i64 12, label %read.attribute  i64 13, label %read.version   i64 14, label %remember ]

read.known:
  %known_at = getelementptr ptr, ptr %registers, i64 %a
  %known = load ptr, ptr %known_at
  br label %test

read.cell:
  %cell = inttoptr i64 %a to ptr
  %cell_at = getelementptr i8, ptr %cell, i64 HEAD
  %held = load ptr, ptr %cell_at
  br label %test

read.entry:
  %dict_at = getelementptr ptr, ptr %registers, i64 %a
  %dict = load ptr, ptr %dict_at
  %item = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %b)
  br label %test

read.list:
  %list_at = getelementptr ptr, ptr %registers, i64 %a
  %list = load ptr, ptr %list_at
  %length_at = getelementptr i8, ptr %list, i64 HEAD
  %length = load i64, ptr %length_at
  %within = icmp ult i64 %number, %length
  br i1 %within, label %list.item, label %fallback
list.item:
  %items_at = getelementptr i8, ptr %list, i64 LIST_ITEMS
  %items = load ptr, ptr %items_at
  %element_at = getelementptr ptr, ptr %items, i64 %number
  %element = load ptr, ptr %element_at
  br label %test

read.tuple:
  %tuple_at = getelementptr ptr, ptr %registers, i64 %a
  %tuple = load ptr, ptr %tuple_at
  %tuple_items = getelementptr i8, ptr %tuple, i64 TUPLE_ITEMS
  %part_at = getelementptr ptr, ptr %tuple_items, i64 %number
  %part = load ptr, ptr %part_at
  br label %test

read.fields:
  %object_at = getelementptr ptr, ptr %registers, i64 %a
  %object = load ptr, ptr %object_at
  %fields_at = call ptr @_PyObject_GetDictPtr(ptr %object)
  %has_fields = icmp ne ptr %fields_at, null
  br i1 %has_fields, label %fields.load, label %fallback
fields.load:
  %fields = load ptr, ptr %fields_at
  br label %test

read.argument:
  %argument_at = getelementptr ptr, ptr %args, i64 %a
  %argument = load ptr, ptr %argument_at
  br label %test

read.code:
  %coded_at = getelementptr ptr, ptr %registers, i64 %a
  %coded = load ptr, ptr %coded_at
  %code = call ptr @PyFunction_GetCode(ptr %coded)
  br label %test

read.defaults:
  %defaulted_at = getelementptr ptr, ptr %registers, i64 %a
  %defaulted = load ptr, ptr %defaulted_at
  %defaults = call ptr @PyFunction_GetDefaults(ptr %defaulted)
  br label %test

read.kwdefaults:
  %named_at = getelementptr ptr, ptr %registers, i64 %a
  %named = load ptr, ptr %named_at
  %kwdefaults = call ptr @PyFunction_GetKwDefaults(ptr %named)
  br label %test

read.function:
  %method_at = getelementptr ptr, ptr %registers, i64 %a
  %method = load ptr, ptr %method_at
  %function = call ptr @PyMethod_Function(ptr %method)
  br label %test

read.self:
  %bound_at = getelementptr ptr, ptr %registers, i64 %a
  %bound = load ptr, ptr %bound_at
  %owner = call ptr @PyMethod_Self(ptr %bound)
  br label %test

read.attribute:
  %holder_at = getelementptr ptr, ptr %registers, i64 %a
  %holder = load ptr, ptr %holder_at
  %attribute = call ptr @PyObject_GetAttr(ptr %holder, ptr %b)
  %found = icmp ne ptr %attribute, null
  br i1 %found, label %attribute.found, label %attribute.lost
attribute.found:
  call void @Py_DecRef(ptr %attribute)
  br label %test
attribute.lost:
  call void @PyErr_Clear()
  br label %test

read.version:
  %versioned_at = getelementptr ptr, ptr %registers, i64 %a
  %versioned = load ptr, ptr %versioned_at
  %version_at = getelementptr i8, ptr %versioned, i64 DICT_VERSION
  %version = load i64, ptr %version_at
  %former_at = getelementptr i64, ptr %row, i64 4
  %former = load i64, ptr %former_at
  %unchanged = icmp eq i64 %version, %former
  br i1 %unchanged, label %skip, label %stale
stale:
  ; What the registers hold from here on belongs to no version until all rows have been looked at.
  store i64 -1, ptr %former_at
  br label %next
skip:
  %skipped = add i64 %number, 1
  %bytes = mul i64 %skipped, 64
  %beyond = getelementptr i8, ptr %row, i64 %bytes
  br label %loop

remember:
  %seen_at = getelementptr ptr, ptr %registers, i64 %a
  %seen = load ptr, ptr %seen_at
  %present_at = getelementptr i8, ptr %seen, i64 DICT_VERSION
  %present = load i64, ptr %present_at
  %note_at = getelementptr i64, ptr %b, i64 4
  store i64 %present, ptr %note_at
  br label %next

test:
  %value = phi ptr [%known, %read.known], [%held, %read.cell], [%item, %read.entry], [%element, %list.item], [%part, %read.tuple],
    [%fields, %fields.load], [%argument, %read.argument], [%code, %read.code], [%defaults, %read.defaults],
    [%kwdefaults, %read.kwdefaults], [%function, %read.function], [%owner, %read.self], [%attribute, %attribute.found],
    [null, %attribute.lost]
  %out_at = getelementptr i64, ptr %row, i64 7
  %out = load i64, ptr %out_at
  %register = getelementptr ptr, ptr %registers, i64 %out
  store ptr %value, ptr %register
  %test_at = getelementptr i64, ptr %row, i64 3
  %wants = load i64, ptr %test_at
  %c_at = getelementptr i64, ptr %row, i64 4
  %c = load ptr, ptr %c_at
  %d_at = getelementptr i64, ptr %row, i64 5
  %d = load i64, ptr %d_at
  %empty = icmp eq ptr %value, null
  %nullable = icmp eq i64 %wants, 7
  %any = icmp eq i64 %wants, 1
  %allowed = or i1 %nullable, %any
  br i1 %empty, label %nothing, label %something
nothing:
  br i1 %allowed, label %next, label %fallback
something:
  %kind_at = getelementptr i8, ptr %value, i64 TYPE
  %class = load ptr, ptr %kind_at
  %is_class = icmp eq ptr %class, %c
  switch i64 %wants, label %fallback [
    i64 0, label %next        i64 1, label %next       i64 2, label %test.is
    i64 3, label %test.equal  i64 4, label %test.type  i64 5, label %test.keys
    i64 6, label %test.length i64 8, label %test.register  i64 9, label %test.tag
    i64 10, label %test.content  i64 11, label %test.bits ]

test.is:
  %same = icmp eq ptr %value, %c
  br i1 %same, label %next, label %fallback

test.equal:
  %identical = icmp eq ptr %value, %c
  br i1 %identical, label %next, label %test.equal.type
test.equal.type:
  %wanted = inttoptr i64 %d to ptr
  %alike = icmp eq ptr %class, %wanted
  br i1 %alike, label %test.equal.compare, label %fallback
test.equal.compare:
  %compared = call i32 @PyObject_RichCompareBool(ptr %value, ptr %c, i32 2)
  %equal = icmp eq i32 %compared, 1
  br i1 %equal, label %next, label %fallback

test.type:
  br i1 %is_class, label %next, label %fallback

test.length:
  %size_at = getelementptr i8, ptr %value, i64 HEAD
  br i1 %is_class, label %test.length.compare, label %fallback
test.length.compare:
  %size = load i64, ptr %size_at
  %as_long = icmp eq i64 %size, %d
  br i1 %as_long, label %next, label %fallback

test.keys:
  br i1 %is_class, label %keys.count, label %fallback
keys.count:
  %entries = call i64 @PyDict_Size(ptr %value)
  %as_many = icmp eq i64 %entries, %d
  br i1 %as_many, label %keys.begin, label %fallback
keys.begin:
  store i64 0, ptr %position
  %keys_at = getelementptr i64, ptr %row, i64 6
  %keys = load ptr, ptr %keys_at
  br label %keys.loop
keys.loop:
  %k = phi i64 [0, %keys.begin], [%k.next, %keys.same]
  %more = icmp ult i64 %k, %d
  br i1 %more, label %keys.step, label %next
keys.step:
  %stepped = call i32 @PyDict_Next(ptr %value, ptr %position, ptr %key, ptr null)
  %one = load ptr, ptr %key
  %other_at = getelementptr ptr, ptr %keys, i64 %k
  %other = load ptr, ptr %other_at
  %agree = icmp eq ptr %one, %other
  br i1 %agree, label %keys.same, label %fallback
keys.same:
  %k.next = add i64 %k, 1
  br label %keys.loop

test.register:
  %place = ptrtoint ptr %c to i64
  %twin_at = getelementptr ptr, ptr %registers, i64 %place
  %twin = load ptr, ptr %twin_at
  %twins = icmp eq ptr %value, %twin
  br i1 %twins, label %next, label %fallback

test.tag:
  %tag_at = getelementptr i8, ptr %value, i64 TYPE_VERSION
  %tag = load i32, ptr %tag_at
  %tag_long = zext i32 %tag to i64
  %tag_wanted = ptrtoint ptr %c to i64
  %tagged = icmp eq i64 %tag_long, %tag_wanted
  %valid = icmp ne i32 %tag, 0
  %unpatched = and i1 %tagged, %valid
  br i1 %unpatched, label %next, label %fallback

test.bits:
  br i1 %is_class, label %bits.compare, label %fallback
bits.compare:
  %bits_at = getelementptr i8, ptr %value, i64 HEAD
  %bits = load i64, ptr %bits_at
  %exact = icmp eq i64 %bits, %d
  br i1 %exact, label %next, label %fallback

test.content:
  %known_kind_at = getelementptr i8, ptr %c, i64 TYPE
  %known_kind = load ptr, ptr %known_kind_at
  %array = icmp eq ptr %class, %known_kind
  br i1 %array, label %content.layout, label %fallback
content.layout:
  %descr_at = getelementptr i8, ptr %value, i64 DESCR
  %descr = load ptr, ptr %descr_at
  %known_descr_at = getelementptr i8, ptr %c, i64 DESCR
  %known_descr = load ptr, ptr %known_descr_at
  %same_descr = icmp eq ptr %descr, %known_descr
  %rank_at = getelementptr i8, ptr %value, i64 NDIM
  %rank = load i32, ptr %rank_at
  %known_rank_at = getelementptr i8, ptr %c, i64 NDIM
  %known_rank = load i32, ptr %known_rank_at
  %same_rank = icmp eq i32 %rank, %known_rank
  %flags_at = getelementptr i8, ptr %value, i64 FLAGS
  %flags = load i32, ptr %flags_at
  %contiguous = and i32 %flags, 1
  %is_contiguous = icmp eq i32 %contiguous, 1
  %layout1 = and i1 %same_descr, %same_rank
  %layout = and i1 %layout1, %is_contiguous
  br i1 %layout, label %content.shape, label %fallback
content.shape:
  %shape_at = getelementptr i8, ptr %value, i64 DIMENSIONS
  %shape = load ptr, ptr %shape_at
  %known_shape_at = getelementptr i8, ptr %c, i64 DIMENSIONS
  %known_shape = load ptr, ptr %known_shape_at
  %rank_long = sext i32 %rank to i64
  %shape_bytes = shl i64 %rank_long, 3
  %shapes = call i32 @memcmp(ptr %shape, ptr %known_shape, i64 %shape_bytes)
  %same_shape = icmp eq i32 %shapes, 0
  br i1 %same_shape, label %content.compare, label %fallback
content.compare:
  %data_at = getelementptr i8, ptr %value, i64 DATA
  %data = load ptr, ptr %data_at
  %known_data_at = getelementptr i8, ptr %c, i64 DATA
  %known_data = load ptr, ptr %known_data_at
  %contents = call i32 @memcmp(ptr %data, ptr %known_data, i64 %d)
  %same_content = icmp eq i32 %contents, 0
  br i1 %same_content, label %next, label %fallback

next:
  %after = getelementptr i8, ptr %row, i64 ROW
  br label %loop

matched:
  %behind = load ptr, ptr %state
  %entry_at = getelementptr i8, ptr %behind, i64 ENTRY
  %target = load ptr, ptr %entry_at
  %passed_at = getelementptr i64, ptr %state, i64 5
  %passed = load i64, ptr %passed_at
  %straight = icmp slt i64 %passed, 0
  br i1 %straight, label %tail, label %collect

tail:
  %answered = musttail call ptr %target(ptr %behind, ptr %args, i64 %countf, ptr %names)
  ret ptr %answered

collect:
  %places_at = getelementptr ptr, ptr %state, i64 6
  %places = load ptr, ptr %places_at
  %room = add i64 %passed, 1
  %all = alloca ptr, i64 %room
  %vector = getelementptr ptr, ptr %all, i64 1
  br label %fill
fill:
  %i = phi i64 [0, %collect], [%i.next, %fill.next]
  %filled = icmp eq i64 %i, %passed
  br i1 %filled, label %call, label %fill.one
fill.one:
  %where_at = getelementptr i64, ptr %places, i64 %i
  %where = load i64, ptr %where_at
  %from_args = icmp slt i64 %where, 0
  %flipped = xor i64 %where, -1
  %base = select i1 %from_args, ptr %args, ptr %registers
  %index = select i1 %from_args, i64 %flipped, i64 %where
  %source_at = getelementptr ptr, ptr %base, i64 %index
  %source = load ptr, ptr %source_at
  call void @Py_IncRef(ptr %source)
  %slot = getelementptr ptr, ptr %vector, i64 %i
  store ptr %source, ptr %slot
  br label %fill.next
fill.next:
  %i.next = add i64 %i, 1
  br label %fill

call:
  %result = call ptr %target(ptr %behind, ptr %vector, i64 %passed, ptr null)
  br label %drop
drop:
  %j = phi i64 [0, %call], [%j.next, %drop.one]
  %dropped = icmp eq i64 %j, %passed
  br i1 %dropped, label %answer, label %drop.one
drop.one:
  %old_at = getelementptr ptr, ptr %vector, i64 %j
  %old = load ptr, ptr %old_at
  call void @Py_DecRef(ptr %old)
  %j.next = add i64 %j, 1
  br label %drop
answer:
  %refused = icmp eq ptr %result, @gt.missed
  br i1 %refused, label %refusal, label %return
return:
  ret ptr %result
refusal:
  call void @Py_DecRef(ptr %result)
  br label %fallback

fallback:
  %fallback_at = getelementptr i8, ptr %self, i64 FALLBACK
  %python = load ptr, ptr %fallback_at
  %slow = musttail call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %countf, ptr %names)
  ret ptr %slow
}
"""


@functools.cache
def _routines() -> dict[str, int]:
    """Return the addresses of the routines, compiled once in a process."""
    text = _TEXT
    for word, number in {
        "STATE": STATE_OFFSET,
        "FALLBACK": FALLBACK_OFFSET,
        "ENTRY": _ENTRY_OFFSET,
        "HEAD": _HEAD,
        "LIST_ITEMS": _LIST_ITEMS,
        "TUPLE_ITEMS": _TUPLE_ITEMS,
        "DICT_VERSION": _VERSION_OF_DICT,
        "TYPE_VERSION": _VERSION_OF_TYPE,
        "ROW": _ROW_BYTES,
        "TYPE": _TYPE,
        "DATA": _HEAD,
        "NDIM": _HEAD + 8,
        "DIMENSIONS": _HEAD + 16,
        "DESCR": _HEAD + 40,
        "FLAGS": _HEAD + 48,
    }.items():
        text = text.replace(f"i64 {word}\n", f"i64 {number}\n")
    declared = []
    for name, kind in _FUNCTIONS.items():
        result, _, arguments = kind.partition(" ")
        declared.append(f"declare {result} @{name}{arguments}")
    text = "\n".join((*declared, "@gt.missed = external global i8", text))
    imports = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS
    }
    imports["gt.missed"] = id(MISSED)
    return dict(load_resident(text, "gradtape.captures", ("checked", "missed"), imports, effort=1))


@functools.cache
def _has_functions() -> bool:
    return not _FREE_THREADED and all(hasattr(ctypes.pythonapi, name) for name in _FUNCTIONS)


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
