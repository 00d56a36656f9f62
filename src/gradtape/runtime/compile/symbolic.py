"""Symbolic kernels: modules that differ in their numbers only share machine code that reads these numbers when it is called.

Programs that differ in the lengths of their arrays are traced, optimised and lowered as any others. Where their modules are the same text
but for numbers, most of them trip counts, strides and offsets, one of them is compiled for all: the numbers that differ are loaded from a
table, which the loader binds to the machine code once for each program. The program of a new length uses machine code only if its own
module is that text with other numbers. So it does not matter what Python, a pass or the scheduler has made of a length.
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from gradtape.config import config
from gradtape.ir.graph import Graph
from gradtape.locks import Rank, new_lock
from gradtape.lru import LRU
from gradtape.runtime.call.convention import HEAVY
from gradtape.runtime.compile.cache import CachedObject, MemoryCache, cached_object

__all__ = [
    "SIZES",
    "Parsed",
    "SymbolicCode",
    "Template",
    "families",
    "note_lengths",
    "parse",
    "symbolic_code",
    "symbolic_codes",
]

SIZES: Final = "gradtape.sizes"
"""The symbol of the table of numbers, of eight bytes each."""

MOST_TEMPLATES: Final = 8
"""Templates that one form may have; then its programs are compiled as they are."""

_ADDRESS: Final = f'@"{SIZES}"'

_LITERAL: Final = r"0x[0-9A-F]{16}|-?\d+(?:\.\d+(?:e[+-]?\d+)?)?"
_TYPE: Final = r"i64|i32|double|float"
_BINARY: Final = re.compile(
    r"(?P<head>  %\S+ = (?:add|sub|mul|udiv|sdiv|urem|srem|and|or|xor|shl|lshr|ashr|icmp|fadd|fsub|fmul|fdiv|frem|fcmp)"
    rf"(?: [a-z]+)* (?P<type>{_TYPE}) )(?P<left>[^ ,]+), (?P<right>[^ ,]+)(?P<tail>.*)"
)
_PHI: Final = re.compile(rf"  %\S+ = phi (?P<type>{_TYPE}) ")
_INCOMING: Final = re.compile(rf"\[ ?({_LITERAL}), ")
_OPERAND: Final = re.compile(
    rf"(?:\b(?P<type>{_TYPE}) (?P<number>{_LITERAL})|ptr @(?P<kind>int|trip_count)\.(?P<pointed>-?\d+))(?=[,)\]]|$)"
)
_NUMBER: Final = re.compile(_LITERAL)
_POINTED: Final = re.compile(r"@(int|trip_count)\.-?\d+ = internal constant ")
_BOUND: Final = re.compile(r" dereferenceable\((\d+)\)")
_SHAPE: Final = re.compile(r"(@entry\.shape\d+ = private constant \[\d+ x i64\] )\[([^\]]*)\]$")
_SPLAT: Final = re.compile(rf"<(?P<type>{_TYPE}) (?P<number>{_LITERAL})(?:, (?P=type) (?P=number))+>")
_LANES: Final = re.compile(r"<(\d+) times (\w+) ([^>]*)>")
_FLAG: Final = re.compile(rf"  {HEAVY} = icmp ne i32 ([01]), 0")
_HOLE: Final = re.compile("\x00(.)")
_LOADED: Final = re.compile(r"%size\.(\d+)\b(?:\.x(\d+))?")
_CODES: Final = {"i64": "q", "i32": "i", "double": "d", "float": "f", "int": "I", "trip_count": "Q"}
_TYPES: Final = {"q": "i64", "i": "i32", "d": "double", "f": "float"}
FLAG: Final = "F"
DROPPED: Final = "b"
SHAPE: Final = "s"


class Parsed(NamedTuple):
    """A module as its text without numbers, and the numbers.

    Attributes
    ----------
    form : str
        The text; a null character and a letter, which says of what kind it is, stand for each number that may be read from the table.
    numbers : tuple of str
        The numbers, as they are written.
    """

    form: str
    numbers: tuple[str, ...]


def parse(text: str) -> Parsed:
    """Take those numbers out of a module that may be loaded from a table.

    Examples
    --------
    >>> form, numbers = parse("define void @f() {\\n  %x = add nsw i64 %i, 7\\n  %y = alloca [7 x i8]\\n}")
    >>> numbers, form.count("7")
    (('7',), 1)
    """
    numbers: list[str] = []

    def hole(code: str, number: str) -> str:
        numbers.append(number)
        return f"\x00{code}"

    def plain(type_: str, text: str) -> str:
        return hole(_CODES[type_], text) if _NUMBER.fullmatch(text) else text

    def splat(match: re.Match[str]) -> str:
        lanes = match[0].count(",") + 1
        return f"<{lanes} times {match['type']} {hole(_CODES[match['type']], match['number'])}>"

    def operand(match: re.Match[str]) -> str:
        if match["type"] is None:
            return f"ptr {hole(_CODES[match['kind']], match['pointed'])}"
        return f"{match['type']} {hole(_CODES[match['type']], match['number'])}"

    lines: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("  "):
            if line.startswith("define "):
                line = _BOUND.sub(lambda match: hole(DROPPED, match[1]), line)
            elif line.startswith("@"):
                if _POINTED.match(line):
                    continue
                line = _SHAPE.sub(lambda match: match[1] + hole(SHAPE, match[2]), line)
        elif "shufflevector" in line or line.startswith("  switch "):  # the numbers have to be constants
            pass
        elif "<" in line:  # of vectors, those of one number
            line = _SPLAT.sub(splat, line)
        elif flag := _FLAG.fullmatch(line):
            line = f"  {HEAVY} = icmp ne i32 {hole(FLAG, flag[1])}, 0"
        elif binary := _BINARY.fullmatch(line):
            type_ = binary["type"]
            left, right = plain(type_, binary["left"]), plain(type_, binary["right"])
            line = f"{binary['head']}{left}, {right}{binary['tail']}"
        elif phi := _PHI.match(line):
            code = _CODES[phi["type"]]
            line = _INCOMING.sub(partial(_incoming, hole, code), line)
        else:
            line = _OPERAND.sub(operand, line)
        lines.append(line)
    return Parsed("\n".join(lines), tuple(numbers))


def _incoming(hole: Callable[[str, str], str], code: str, match: re.Match[str]) -> str:
    return f"[ {hole(code, match[1])}, "


class Template:
    """A module whose numbers are loaded from a table as far as they differ between programs.

    Numbers that were the same in all of them stay in the text; numbers that were equal to each other in each of them are one number of
    the table, and so known to the optimiser to be equal. A program of other numbers has its own template.

    Parameters
    ----------
    form : str
        The text; see `Parsed`.
    samples : sequence of tuple of str
        The numbers of programs, two at least.
    """

    __slots__ = ("_constants", "_slots", "size", "text")

    def __init__(self, form: str, samples: Sequence[tuple[str, ...]]) -> None:
        self._constants: dict[int, str] = {}
        self._slots: list[_Slot] = []
        self.size = 0
        slots: dict[tuple[str, tuple[str, ...]], _Slot] = {}
        pointed: dict[str, None] = {}
        position = -1

        def fill(match: re.Match[str]) -> str:
            nonlocal position
            position += 1
            code = match[1]
            column = tuple([sample[position] for sample in samples])
            number = column[0]
            if len(set(column)) == 1 and code != FLAG:
                self._constants[position] = number
                return _literal(code, number, pointed)
            if code == DROPPED:
                return ""
            slot = slots.get((code.lower(), column))
            if slot is None:
                count = len(number.split(",")) if code == SHAPE else 1
                is_size = code in "qiQI" and all(int(given) > 0 for given in column)
                kind = "i" if code == FLAG else code.lower()
                slot = _Slot(kind, self.size, is_size, [])
                slots[code.lower(), column] = slot
                self.size += count
            slot.positions.append(position)
            return slot.operand(code)

        text = _LANES.sub(_splat, _with_shapes(_HOLE.sub(fill, form)))
        self._slots = list(slots.values())
        loaded = {str(slot.place): slot for slot in self._slots}
        head, *functions = text.split("\ndefine ")
        # The first function may begin the text.
        functions = [_with_loads(function, loaded) for function in (f"\n{head}", *functions)]
        table = f"{_ADDRESS} = external constant [{self.size} x i64]"
        self.text = "\n".join(["\ndefine ".join(functions)[1:].rstrip(), *pointed, table]) + "\n"

    def table(self, numbers: tuple[str, ...]) -> tuple[int, ...] | None:
        """Return the table for a program of this form with these numbers, as int64; None if it has another template."""
        if any(numbers[position] != number for position, number in self._constants.items()):
            return None
        table: list[int] = []
        for slot in self._slots:
            first, *others = [numbers[position] for position in slot.positions]
            if any(other != first for other in others) or (slot.is_size and int(first) <= 0):
                return None
            table += slot.words(first)
        return tuple(table)


class _Slot(NamedTuple):
    """A number of a table, or the lengths of a shape.

    Attributes
    ----------
    code : str
        What it is.
    place : int
        Where it is in the table.
    is_size : bool
        Whether it is an integer of 1 or more.
    positions : list of int
        Which of the numbers of the form have its value.
    """

    code: str
    place: int
    is_size: bool
    positions: list[int]

    def operand(self, code: str) -> str:
        """Return the operand that stands for a number of the form."""
        if code == SHAPE:
            return f"{_LENGTHS}{self.place}"
        return _address(self.place) if code in "IQ" else f"%size.{self.place}"

    def load(self) -> str:
        """Return the instruction that loads it."""
        bounds = ""
        if self.is_size:
            bounds = f", !range !{{{_TYPES[self.code]} 1, {_TYPES[self.code]} {2**63 - 1 if self.code == 'q' else 2**31 - 1}}}"
        return f"  %size.{self.place} = load {_TYPES[self.code]}, ptr {_address(self.place)}{bounds}"

    def vector(self, lanes: str) -> str:
        """Return the instructions that make a vector of it."""
        type_, name = f"<{lanes} x {_TYPES[self.code]}>", f"%size.{self.place}"
        first = f"  {name}.first{lanes} = insertelement {type_} poison, {_TYPES[self.code]} {name}, i64 0\n"
        zeros = f"<{lanes} x i32> zeroinitializer"
        return (
            f"{first}  {name}.x{lanes} = shufflevector {type_} {name}.first{lanes}, {type_} poison, {zeros}\n"
        )

    def words(self, number: str) -> list[int]:
        """Return the words of the table for its value."""
        if self.code == SHAPE:
            return [int(length.split()[1]) for length in number.split(", ")]
        if number.startswith("0x"):
            # LLVM writes a float as the double of its value.
            bits = int(number, 16)
            if self.code == "d":
                return list(struct.unpack("=q", bits.to_bytes(8, sys.byteorder)))
            (value,) = struct.unpack("=d", bits.to_bytes(8, sys.byteorder))
        else:
            value = int(number) if self.code in "qi" else float(number)
        return list(struct.unpack("=q", struct.pack(f"={self.code}", value).ljust(8, b"\0")))


_LENGTHS: Final = "lengths of "


def _address(slot: int) -> str:
    return f"getelementptr (i8, ptr {_ADDRESS}, i64 {8 * slot})"


def _literal(code: str, number: str, pointed: dict[str, None]) -> str:
    """Return a number as it stands in the text of a module; enter the constant that it needs."""
    if code == DROPPED:
        return f" dereferenceable({number})"
    if code == SHAPE:
        return f"[{number}]"
    if code in "IQ":
        kind, type_ = ("int", "i32") if code == "I" else ("trip_count", "i64")
        pointed[f"@{kind}.{number} = internal constant {type_} {number}"] = None
        return f"@{kind}.{number}"
    return number


def _with_shapes(text: str) -> str:
    """Return a module that reads from the table the shapes which it has there."""
    slots_by_name: dict[str, int] = {}

    def enter(match: re.Match[str]) -> str:
        slots_by_name[match[1]] = int(match[2])
        return ""

    text = _FREE_SHAPE.sub(enter, text)
    return _SHAPE_NAME.sub(
        lambda match: _address(slots_by_name[match[0]]) if match[0] in slots_by_name else match[0], text
    )


_FREE_SHAPE: Final = re.compile(rf"^(@entry\.shape\d+) = .*{_LENGTHS}(\d+)\n", re.MULTILINE)
_SHAPE_NAME: Final = re.compile(r"@entry\.shape\d+")


_BEGIN: Final = re.compile(r"\{\n(?:[\w.]+:\n)?")


def _splat(match: re.Match[str]) -> str:
    """Return a vector of one number."""
    lanes, type_, number = match.groups()
    if number.startswith("%"):
        return f"{number}.x{lanes}"
    return f"<{', '.join([f'{type_} {number}'] * int(lanes))}>"


def _with_loads(function: str, slots: dict[str, _Slot]) -> str:
    """Return the text of a function with the loads of its numbers at its begin."""
    loaded = dict.fromkeys(_LOADED.findall(function))
    if not loaded:
        return function
    begin = _BEGIN.search(function).end()  # type: ignore[union-attr]  # a function has a body
    loads = "".join([f"{slots[slot].load()}\n" for slot in dict.fromkeys(slot for slot, _ in loaded)])
    loads += "".join([slots[slot].vector(lanes) for slot, lanes in loaded if lanes])
    return function[:begin] + loads + function[begin:]


@dataclass(slots=True)
class _Family:
    """The programs of one form."""

    samples: list[tuple[str, ...]] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)


_arguments: Final[LRU[Any, list[tuple[tuple[int, ...], ...]]]] = LRU(lambda: config.memory_cache)
"""By the name of a function and the dtypes and ranks of its arguments: two of the shapes that it was compiled for."""


def note_lengths(graph: Graph) -> tuple[set[int], set[int]]:
    """Return which lengths of a graph's arguments vary, as far as has been seen, and the other ones. It is a hint: nothing but how much
    machine code is shared depends on it."""
    shapes = tuple([value.shape for value in graph.inputs])
    key = graph.name, tuple([(value.dtype, len(value.shape)) for value in graph.inputs])
    earlier_shapes = _arguments.get(key) or []
    if not earlier_shapes or (len(earlier_shapes) == 1 and shapes != earlier_shapes[0]):
        _arguments[key] = earlier_shapes = [*earlier_shapes, shapes]
    varying: set[int] = set()
    fixed: set[int] = set()
    for shape, *others in zip(shapes, *earlier_shapes, strict=True):
        for length, *earlier_lengths in zip(shape, *others, strict=True):
            (fixed if len({length, *earlier_lengths}) == 1 else varying).add(length)
    return varying, fixed


class SymbolicCode(NamedTuple):
    """Object code, the table of its numbers (None for an exact kernel, which has none), and what to say about it."""

    code: bytes
    table: tuple[int, ...] | None
    note: str


families: Final[LRU[bytes, _Family]] = LRU(lambda: 8 * config.memory_cache)
"""The calls of each form so far, by its hash."""
_lock: Final = new_lock(Rank.LEAF)
symbolic_codes: Final[MemoryCache[bytes]] = MemoryCache()
"""Object code of templates, by their texts."""


def symbolic_code(text: str, compile_: Callable[[str], bytes], unroll: bool) -> SymbolicCode:
    """Return the object code of a module: that of the first of its form is exact, that of all others is shared.

    Parameters
    ----------
    text : str
        The module.
    compile_ : callable
        Compiles a module.
    unroll : bool
        Whether that unrolls loops.
    """
    form, numbers = parse(text)
    template, table = _template(form, numbers, unroll)
    if template is None or table is None:
        return SymbolicCode(
            compile_(text), None, "exact: the first kernel with these loops is for its own lengths"
        )
    key = f"{template.text}{unroll}"

    def build() -> bytes:
        return cached_object(key, lambda: CachedObject(compile_(template.text)), SIZES).code

    note = f"symbolic: the machine code is that of other lengths, too, and reads {len(table)} numbers from a table"
    return SymbolicCode(symbolic_codes.get(key, build), table, note)


def _template(form: str, numbers: tuple[str, ...], unroll: bool) -> tuple[Template | None, Any]:
    """Return the template for a program and the table of its numbers; None and None where the program is compiled as it is."""
    key = hashlib.blake2b(f"{form}{unroll}".encode(), digest_size=16).digest()
    family = families.get(key)
    if family is None:
        family = families[key] = _Family()
    with _lock:
        for template in reversed(family.templates):
            table = template.table(numbers)
            if table is not None:
                return template, table
        samples = family.samples
        if numbers not in samples:
            samples.append(numbers)
        if len(samples) < 2 or len(family.templates) >= MOST_TEMPLATES:
            return None, None
        template = Template(form, samples)
        family.templates.append(template)
        return template, template.table(numbers)
