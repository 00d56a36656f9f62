"""The basic blocks of a code object, with simple instructions."""

from __future__ import annotations

from typing import Any

from gradtape.records import record


@record
class Instruction:
    """``target = kind[detail](names)``.

    Attributes
    ----------
    target : str
        The name that is assigned, or "" where there is none. Temporaries begin with a dollar sign.
    kind : str
        What is done: ``const``, ``global``, ``free``, ``argument``, ``copy``, ``call``, ``getitem``, ``setitem``, ``getattr``, ``binary``,
        ``inplace``, ``unary``, ``tuple``, ``list``, ``iterator``, ``next``, ``first``, ``second``, ``unpack``, ``function``, ``setattr``.
    names : tuple of str
        The variables that are read.
    detail : object
        What else belongs to the kind, static.
    line : int
        Of the source.
    """

    target: str
    kind: str
    names: tuple[str, ...]
    detail: Any
    line: int


@record
class BasicBlock:
    """Instructions, and where control goes then: to one target, to one of two, or out of the function (``return``, ``raise``)."""

    label: int
    instructions: list[Instruction]
    end: str
    name: str
    targets: list[int]
    line: int


@record
class Code:
    """The blocks of a code object.

    Attributes
    ----------
    name, filename : str
        Of the function.
    line : int
        Where it begins.
    blocks : dict
        By label; the first one is where control enters.
    cells : frozenset of str
        The variables that it shares with the functions around or inside it, and may assign.
    nonlocals : frozenset of str
        Those of a function around.
    changed : frozenset of str
        Those that calls of other functions may assign.
    """

    name: str
    filename: str
    line: int
    blocks: dict[int, BasicBlock]
    cells: frozenset[str] = frozenset()
    nonlocals: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
