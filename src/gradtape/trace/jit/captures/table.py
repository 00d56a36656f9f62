"""The capture table: the checks of captures for native code."""

from __future__ import annotations

import functools
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final

import numpy as np

from gradtape.runtime.call.capture_entry import (
    CheckedFunction,
    NativeCheck,
    Read,
    Test,
    checked,
    collecting,
    is_contiguous,
)
from gradtape.trace.jit.captures.steps import Check, Source, Step, read_captures, type_key
from gradtape.trace.patching.copies import ABSENT

_COMPARED: Final = (int, str, bytes)
_KEYS: Final = (str, int, bool, bytes, float, type(None))
_OWN_READS: Final[dict[tuple[type | None, str], Read]] = {
    (FunctionType, "__code__"): Read.CODE,
    (FunctionType, "__defaults__"): Read.DEFAULTS,
    (FunctionType, "__kwdefaults__"): Read.KWDEFAULTS,
    (MethodType, "__func__"): Read.METHOD_FUNCTION,
    (MethodType, "__self__"): Read.METHOD_SELF,
}
_AT_ONCE: Final = frozenset({Check.SAME, Check.ALIVE, Check.ABSENT, Check.INPUT, Check.NOTHING})
"""Checks whose result is the same as long as a dict holds the same objects."""


class _Unsuited(Exception):
    """Raised for a step that native code cannot check."""


class _Table:
    """Builds the rows of the table; each step has the register of its number."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.rows: list[NativeCheck] = []
        self.registers = [0] * len(steps)
        self.references: list[tuple[int, Any]] = []
        self.tags: list[tuple[int, type, Callable[[], bool]]] = []
        self.kept: list[Any] = []
        self._done: set[int] = set()
        self._groups: dict[tuple[int, Source], list[int]] = {}
        self._later: list[tuple[int, Step]] = []
        for number, step in enumerate(steps):
            if step.source in (Source.ENTRY, Source.FIELD):
                self._groups.setdefault((step.parent, step.source), []).append(number)
        self._keys = {
            number
            for number, step in enumerate(steps)
            if step.check is Check.KEYS and (number, Source.ENTRY) in self._groups
        }
        for number in range(len(steps)):
            self._add(number)
        for number, step in self._later:
            self._row(Read.KNOWN, number, 0, (Test.REGISTER, step.expected, 0, 0), number)

    def address(self, referent: Any) -> int:
        self.kept.append(referent)
        return id(referent)

    def equal(self, number: int, kind: type, content: Any) -> None:
        """Check that what is passed, by its number, is an object of this kind with this content."""
        out = self.constant(None)
        read, a = (Read.ARGUMENT, -1 - number) if number < 0 else (Read.KNOWN, number)
        test = (
            (Test.CONTENT, self.address(content), content.nbytes, 0)
            if kind is np.ndarray
            else (Test.BITS, id(kind), _bits(content), 0)
        )
        self._row(read, a, 0, test, out)

    def constant(self, referent: object) -> int:
        """Return the number of a register with an object."""
        self.registers.append(self.address(referent))
        return len(self.registers) - 1

    def _row(self, read: Read, a: int, b: int, test: tuple[Test, int, int, int], out: int) -> None:
        self.rows.append(NativeCheck(read, a, b, *test, out))

    def _add(self, number: int) -> None:
        if number in self._done:
            return
        step = self.steps[number]
        if step.source in (Source.ENTRY, Source.FIELD):
            self._add_group(step.parent, step.source)
            return
        self._done.add(number)
        if step.source is Source.FIXED:
            self.registers[number] = self.address(step.key)
            if step.check is not Check.NOTHING and number not in self._keys:
                self._check(number, Read.KNOWN, number, 0)
            return
        read, a, b = self._operands(step)
        if number in self._keys:
            self._row(read, a, b, (Test.TYPE, self.address(step.expected[0]), 0, 0), number)
        else:
            self._check(number, read, a, b)

    def _operands(self, step: Step) -> tuple[Read, int, int]:
        if step.source is Source.ARGUMENT:
            return Read.ARGUMENT, step.key, 0
        if step.source is Source.CELL:
            if step.key is None and step.check is not Check.ABSENT:
                return Read.ATTRIBUTE, step.parent, self.address("cell_contents")
            if step.key is not None:
                return Read.CELL, self.address(step.key), 0
        if step.source is Source.ITEM:
            holder = self.steps[step.parent]
            if holder.check is not Check.LENGTH:
                raise _Unsuited
            return (Read.LIST if issubclass(holder.expected[0], list) else Read.TUPLE), step.parent, step.key
        if step.source is Source.ATTRIBUTE and step.check is not Check.ABSENT:
            # the C functions return no object for None
            is_none = step.check is Check.SAME and step.expected is None
            own_read = None if is_none else _OWN_READS.get((self._kind_of(step.parent), step.key))
            return (
                (Read.ATTRIBUTE, step.parent, self.address(step.key))
                if own_read is None
                else (own_read, step.parent, 0)
            )
        raise _Unsuited

    def _kind_of(self, number: int) -> type | None:
        """Return the type of what a step reads, where it is known before the call."""
        step = self.steps[number]
        if step.source is Source.FIXED:
            return type(step.key)
        kinds: dict[Check, Callable[[], type]] = {
            Check.TYPE: lambda: step.expected,
            Check.SAME: lambda: type(step.expected),
            Check.ALIVE: lambda: type(step.expected()),
        }
        return kinds[step.check]() if step.check in kinds else None

    def _add_group(self, parent: int, source: Source) -> None:
        """Add all reads of one dict: while its version is the same as in the last call, they are skipped."""
        holder = parent
        if source is Source.FIELD:
            holder = len(self.registers)
            self.registers.append(0)
            self._row(Read.FIELDS, parent, 0, (Test.PRESENT, 0, 0, 0), holder)
        begin = len(self.rows)
        self._row(Read.VERSION, holder, 0, (Test.NOTHING, 0, 0, 0), holder)
        late = []
        if parent in self._keys and source is Source.ENTRY:
            self._row(Read.KNOWN, holder, 0, self._test(self.steps[parent]), holder)
        for number in self._groups[parent, source]:
            self._done.add(number)
            step = self.steps[number]
            if type(step.key) not in _KEYS:
                raise _Unsuited
            key = self.address(step.key)
            if step.check in _AT_ONCE:
                self._check(number, Read.ENTRY, holder, key)
            else:
                self._row(Read.ENTRY, holder, key, (Test.PRESENT, 0, 0, 0), number)
                late.append(number)
        self._row(Read.REMEMBER, holder, begin, (Test.NOTHING, 0, 0, 0), holder)
        self.rows[begin] = self.rows[begin]._replace(b=len(self.rows) - begin - 1)
        for number in late:
            step = self.steps[number]
            if number in self._keys:
                self._row(Read.KNOWN, number, 0, (Test.TYPE, self.address(step.expected[0]), 0, 0), number)
            else:
                self._check(number, Read.KNOWN, number, 0)

    def _check(self, number: int, read: Read, a: int, b: int) -> None:
        step = self.steps[number]
        if step.check is Check.AS_STEP:
            self._later.append((number, step))
            self._row(read, a, b, (Test.PRESENT, 0, 0, 0), number)
            return
        if step.check is Check.ALIVE:
            referent = step.expected()
            if referent is None:
                raise _Unsuited
            self.references.append((len(self.rows), referent))
            self._row(read, a, b, (Test.IS, id(referent), 0, 0), number)
            return
        if step.check is Check.CLASS:
            self.tags.append((len(self.rows), step.key, functools.partial(step.holds, step.key, ())))
        self._row(read, a, b, self._test(step), number)

    def _test(self, step: Step) -> tuple[Test, int, int, int]:
        """Return the test of a step: its kind and three operands."""
        check, expected = step.check, step.expected
        if check is Check.NOTHING or check is Check.INPUT:
            return Test.PRESENT, 0, 0, 0
        if check is Check.SAME:
            if type(expected) in _COMPARED:
                return Test.EQUAL, self.address(expected), id(type(expected)), 0
            return Test.IS, self.address(expected), 0, 0
        if check is Check.TYPE:
            return Test.TYPE, self.address(expected), 0, 0
        if check is Check.KEYS:
            kind, keys = expected
            if issubclass(kind, OrderedDict):  # whose order is not that of the dict below it
                raise _Unsuited
            self.kept.append(keys)
            # The items of a tuple stand behind its head.
            return Test.KEYS, self.address(kind), len(keys), id(keys) + tuple.__basicsize__
        if check is Check.LENGTH:
            kind, length = expected
            return Test.LENGTH, self.address(kind), length, 0
        if check is Check.EQUAL and type(expected) is frozenset:
            return Test.IS, self.address(expected), 0, 0
        is_units = isinstance(expected, Mapping) and not isinstance(expected, dict | MappingProxyType)
        if check is Check.EQUAL and (is_units or not expected):
            return Test.EQUAL, self.address(expected), id(type(expected)), 0
        if check is Check.CONTENT and is_contiguous(expected):
            return Test.CONTENT, self.address(expected), expected.nbytes, 0
        if check is Check.PINNED:
            return self._pinned(*expected)
        if check is Check.CLASS:
            return Test.VERSION_TAG, 0, 0, 0
        if check is Check.ABSENT:
            return Test.ABSENT, 0, 0, 0
        raise _Unsuited

    def _pinned(self, form: Any, content: Any) -> tuple[Test, int, int, int]:
        if form is float:
            return Test.BITS, id(float), _bits(content), 0
        if form is int:
            return Test.EQUAL, self.address(int(content)), id(int), 0
        if isinstance(form, tuple) and form[1] == "scalar" and content.dtype == np.float64:
            return Test.BITS, id(np.float64), _bits(content), 0
        if isinstance(form, tuple) and len(form) == 2 and form[1] != "scalar" and is_contiguous(content):
            return Test.CONTENT, self.address(content), content.nbytes, 0
        raise _Unsuited


def _bits(content: Any) -> int:
    number: int = struct.unpack("q", np.float64(content).tobytes())[0]
    return number


class NativeReader:
    """Reads what all steps read, and checks it, in native code. Where a check fails, or native code cannot make it, Python reads.

    Parameters
    ----------
    steps : list of Step
        The checks.
    arguments : int
        How many leaves a call has.
    """

    __slots__ = ("_inputs", "_native", "steps")

    def __init__(self, steps: list[Step], arguments: int) -> None:
        self.steps = steps
        self._inputs = [
            (number, step.expected) for number, step in enumerate(steps) if step.check is Check.INPUT
        ]
        self._native: CheckedFunction | None = None
        with suppress(_Unsuited):
            table = _Table(steps)
            absent = table.constant(ABSENT)
            registers = [
                absent if step.check is Check.ABSENT else number for number, step in enumerate(steps)
            ]
            self._native = _checked(collecting(), _nothing, arguments, table, registers)

    def read(self, leaves: Sequence[Any]) -> Sequence[Any] | None:
        """Return the objects that all steps read; None where a check fails."""
        native = self._native
        if native is None:
            return read_captures(self.steps, leaves)
        objects: Sequence[Any] | None = native(*leaves)
        if objects is not None and all(type_key(objects[number]) == key for number, key in self._inputs):
            return objects
        objects = read_captures(self.steps, leaves)
        if objects is not None:
            native.renew()
        return objects


def _nothing(*leaves: Any) -> None:
    return None


def _checked(
    behind: Any, fallback: Callable[..., Any], arguments: int, table: _Table, registers: Sequence[int] | None
) -> CheckedFunction | None:
    return checked(
        behind,
        fallback,
        arguments,
        table.rows,
        table.registers,
        registers,
        references=table.references,
        tags=table.tags,
        kept=table.kept,
    )


def checked_function(
    behind: Any,
    fallback: Callable[..., Any],
    steps: Sequence[Step],
    arguments: int,
    registers: Sequence[int] | None,
    *,
    equal: Sequence[tuple[int, type, Any]] = (),
    further: Sequence[object] = (),
) -> CheckedFunction | None:
    """Return a native function behind the checks of its captures; None where native code cannot make them.

    Parameters
    ----------
    behind : NativeHead
        The native function.
    fallback : callable
        Takes the other calls.
    steps : sequence of Step
        The checks.
    arguments : int
        How many arguments there are.
    passed : sequence of int or None
        What `behind` is called with: numbers of steps, and for arguments -1 - their numbers; None for the arguments as they are.
    equal : sequence of (int, type, ndarray)
        What is compared in each call: as in `registers` which one, its type (ndarray, float or float64), and its content.
    further : sequence of object
        What `behind` is called with after that.
    """
    try:
        table = _Table(steps)
    except _Unsuited:
        return None
    for number, kind, content in equal:
        table.equal(number, kind, content)
    if further and registers is not None:
        registers = [*registers, *map(table.constant, further)]
    return _checked(behind, fallback, arguments, table, registers)
