"""Reads by name: the global names, attributes and modules that code reads, found in its bytecode once for each code object."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from types import CodeType
from typing import Final, NamedTuple

from gradtape.trace.patching.bytecode import nested_codes

MOST_KNOWN: Final = 4096

DYNAMIC: Final = frozenset(
    {
        "__dict__",
        "asdict",
        "astuple",
        "attrgetter",
        "eval",
        "exec",
        "getattr",
        "getattr_static",
        "getmembers",
        "getmembers_static",
        "hasattr",
        "vars",
    }
)
"""Names by which code reads attributes whose names are computed."""

WHOLE: Final = frozenset(
    {"deepcopy", "fields", "replace", "tree_flatten", "tree_leaves", "tree_map", "tree_reduce"}
)
"""Names by which code reads all attributes of an object."""


_BY_NAME: Final = frozenset({"getattr", "hasattr"})
_IDLE: Final = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME"})

APPENDING: Final = frozenset({"append", "extend", "add"})
"""Methods that add to a container without reading it."""


SETTING: Final = frozenset({"__delattr__", "__dict__", "__setattr__", "delattr", "setattr", "vars"})
"""Names by which code assigns to attributes that strings name."""

WRITES_FILES: Final = frozenset({"tofile", "write_bytes", "write_text", "writelines"})
"""Methods that write to files."""

ASKING: Final = frozenset({"isinstance", "type", "issubclass", "isscalar"})
KINDS: Final = frozenset(
    {"float", "int", "complex", "Number", "Real", "Complex", "Integral", "isscalar", "floating", "generic"}
)
"""Names by which code tests whether an object is a Python number: a traced number is not."""


class Reads(NamedTuple):
    """The names that a code object, and all code inside it, reads.

    Attributes
    ----------
    names : frozenset of str
        Global names that are read.
    attributes : frozenset of str
        Attributes, and strings where attributes may be named by strings.
    modules : frozenset of str
        Modules that are imported when the code runs.
    logs : frozenset of str
        Names, global or of the closure, whose object is only ever appended to.
    stores : frozenset of str
        Names whose object is only ever written to, and of which items are set: ``info[key] = ...``.
    appended : frozenset of str
        Attributes whose object is only ever appended to.
    stored : frozenset of str
        Attributes that are assigned to or deleted.
    stores_globals : bool
        Whether it assigns to global names.
    everything : bool
        Whether attributes may be read whose names are not in the code.
    asks_types : bool
        Whether it tests whether an object is a Python number.
    asks : bool
        Whether it may continue where an attribute is missing.
    """

    names: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]
    logs: frozenset[str]
    stores: frozenset[str]
    appended: frozenset[str]
    stored: frozenset[str]
    stores_globals: bool
    everything: bool
    asks_types: bool
    asks: bool


_NONE: Final[frozenset[str]] = frozenset()

NO_READS: Final = Reads(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, False, False, False, False)
"""Those of code that reads no names."""

_known: Final[dict[int, tuple[CodeType, Reads]]] = {}
"""By the id of the code: the code, which keeps the id valid, and its reads."""


def reads_of(code: CodeType) -> Reads:
    """Return the names that code reads.

    Examples
    --------
    >>> reads = reads_of((lambda x: scale * x.width).__code__)
    >>> sorted(reads.names), sorted(reads.attributes)
    (['scale'], ['width'])
    """
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[id(code)] = code, _found_in(code)
    return known[1]


def _found_in(code: CodeType) -> Reads:
    """Return the names that code reads, from one pass over the instructions of it and of the code inside it."""
    names: set[str] = set()
    attributes: set[str] = set()
    modules: set[str] = set()
    strings: set[str] = set()
    loaded: set[str] = set()
    read: set[str] = set()
    stored: set[str] = set()
    assigned: set[str] = set()
    stores_globals = False
    appended: set[str] = set()
    met: set[str] = set()
    for inner in nested_codes(code):
        instructions = [one for one in dis.get_instructions(inner) if one.opname not in _IDLE]
        for number, instruction in enumerate(instructions):
            kind, argument = instruction.opname, instruction.argval
            is_attribute = kind.startswith("LOAD_ATTR")
            if is_attribute or kind in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
                group, seen = (appended, met) if is_attribute else (loaded, read)
                group.add(argument)
                following = instructions[number + 1 : number + 3]
                if not is_attribute and _gets_item(following):
                    stored.add(argument)
                elif not _is_appended_to(following):
                    seen.add(argument)
            if kind in ("STORE_ATTR", "DELETE_ATTR"):
                assigned.add(argument)
            stores_globals = stores_globals or kind in ("STORE_GLOBAL", "DELETE_GLOBAL")
            if kind in ("LOAD_GLOBAL", "LOAD_NAME", "DELETE_GLOBAL"):
                names.add(argument)
            elif kind.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")):
                attributes.add(argument)
            elif kind in ("IMPORT_NAME", "IMPORT_FROM"):
                (modules if kind == "IMPORT_NAME" else attributes).add(argument)
        strings |= set(_strings(inner.co_consts))
    used = names | attributes
    if used & SETTING:
        assigned |= {string for string in strings if string.isidentifier()}
    if used & {"eval", "exec", "globals", "__globals__"}:
        names |= {word for string in strings for word in re.findall(r"[^\W\d]\w*", string)}
    if used & DYNAMIC:
        named = {string for string in strings if string.isidentifier()}
        attributes |= named
        met |= named
    return Reads(
        frozenset(names),
        frozenset(attributes),
        frozenset(modules),
        frozenset(loaded - read - stored),
        frozenset(stored - read),
        frozenset(appended - met),
        frozenset(assigned),
        stores_globals,
        bool(used & WHOLE) or bool(used & (DYNAMIC - _BY_NAME)) or _computes_names(code, used),
        bool(used & ASKING) and bool(used & KINDS),
        bool(used & (_BY_NAME | {"suppress"})) or _catches(code),
    )


def _is_appended_to(following: list[dis.Instruction]) -> bool:
    """Return whether the object that was loaded before these instructions is appended to."""
    return bool(following) and (
        following[0].argval in APPENDING and following[0].opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))
    )


def _gets_item(following: list[dis.Instruction]) -> bool:
    """Return whether an item of the object that was loaded before these instructions is set, by a key that is a name or constant."""
    return (
        len(following) == 2
        and following[0].opname in ("LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME")
        and following[1].opname == "STORE_SUBSCR"
    )


def _strings(constant: object) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple | frozenset):
        for item in constant:
            yield from _strings(item)


def _computes_names(code: CodeType, used: set[str]) -> bool:
    """Return whether code may read an attribute by a computed name: `getattr(thing, name)`."""
    return bool(used & _BY_NAME) and any(
        instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        and instruction.argval in _BY_NAME
        and not _is_spelt(instructions[number + 1 :])
        for inner in nested_codes(code)
        for instructions in [[one for one in dis.get_instructions(inner) if one.opname not in _IDLE]]
        for number, instruction in enumerate(instructions)
    )


def _is_spelt(instructions: list[dis.Instruction]) -> bool:
    """Return whether the load of `getattr` is followed by a name, its attributes, and a constant string."""
    for number, instruction in enumerate(instructions):
        if instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD") if number else "LOAD_"):
            continue
        is_string = instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str)
        return number > 0 and is_string and _is_second_argument(instructions[number + 1 :])
    return False


def _is_second_argument(following: list[dis.Instruction]) -> bool:
    """Return whether what was loaded before these instructions is the second argument of a call, and not a part of it: ``f"x{i}"``."""
    above = 0
    for instruction in following:
        kind, count = instruction.opname, instruction.arg or 0
        if kind == "PRECALL":
            continue
        if kind == "CALL" and above < count + 2:
            return above == count - 2
        if kind == "CALL":
            above -= count + 1
        elif kind.startswith("LOAD_") and (above or not kind.startswith(("LOAD_ATTR", "LOAD_METHOD"))):
            above += dis.stack_effect(instruction.opcode, instruction.arg)
        else:
            return False
    return False


def _catches(code: CodeType) -> bool:
    """Return whether code handles an exception."""
    return any(
        instruction.opname in ("CHECK_EXC_MATCH", "JUMP_IF_NOT_EXC_MATCH", "POP_EXCEPT")
        for inner in nested_codes(code)
        for instruction in dis.get_instructions(inner)
    )
