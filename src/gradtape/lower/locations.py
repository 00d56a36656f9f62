"""Debug locations: each instruction knows the node for which it is there, through LLVM's optimisations and in the assembly.

A location is the "line" of a debug directive; its number is that of a node, from 1 on, and 0 for what belongs to no node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

Listing: TypeAlias = dict[str, list[tuple[str, int]]]
"""By function, its lines, each with the number of a node or 0."""

_DEFINITION: Final = re.compile(r'define .*?@"?([\w.$]+)"?\(')
_NAMED: Final = re.compile(r"  %([\w.]+) = ")
_OWN: Final = re.compile(r"%([\w.]+)")
_INSTRUCTION: Final = re.compile(r"  (?:%[\w.]+ = |store |(?:tail )?call |br |ret )")
_ENDS: Final = ("  br ", "  ret ", "  call ", "  tail call ")
_NUMBERED: Final = re.compile(r"!(\d+)")


def with_locations(ir_text: str, node_of: Callable[[str, str], int]) -> str:
    """Return a module of LLVM IR in which each instruction has a debug location.

    Parameters
    ----------
    ir_text : str
        The module, an instruction a line.
    node_of : callable
        Returns the number of the node for which a register is there, by the names of its function and of itself; 0 if it is there for none.

    Examples
    --------
    >>> text = "define i64 @f(i64 %x) {\\n  %t1 = add i64 %x, 1\\n  ret i64 %t1\\n}\\n"
    >>> located = with_locations(text, lambda function, name: {"t1": 7}.get(name, 0))
    >>> "%t1 = add i64 %x, 1, !dbg" in located and "!DILocation(line: 7" in located
    True
    """
    first = max((int(number) for number in _NUMBERED.findall(ir_text)), default=-1) + 1
    metadata = [
        '!DIFile(filename: "nodes", directory: "")',
        f"distinct !DICompileUnit(language: DW_LANG_C99, file: !{first}, isOptimized: true, emissionKind: DebugDirectivesOnly)",
        f"!DISubroutineType(types: !{first + 3})",
        "!{null}",
        '!{i32 2, !"Debug Info Version", i32 3}',
    ]
    numbers: dict[str, int] = {}

    def add(text: str) -> int:
        if text not in numbers:
            numbers[text] = first + len(metadata)
            metadata.append(text)
        return numbers[text]

    lines: list[str] = []
    scope, function = 0, ""
    waiting: list[int] = []

    def settle(node: int) -> None:
        location = add(f"!DILocation(line: {node}, scope: !{scope})")
        for place in waiting:
            lines[place] += f", !dbg !{location}"
        waiting.clear()

    for line in ir_text.splitlines():
        definition = _DEFINITION.match(line)
        # Routines, which nodes share, and whose heads have several lines, have no locations. Where they are inlined, LLVM gives their
        # instructions that of the call.
        if definition is not None and line.endswith("{") and " alwaysinline " not in line:
            function = definition[1]
            scope = add(
                f'distinct !DISubprogram(name: "{function}", file: !{first}, type: !{first + 2}, unit: !{first + 1}, '
                "spFlags: DISPFlagLocalToUnit | DISPFlagDefinition)"
            )
            line = f"{line[:-1]}!dbg !{scope} {{"
        lines.append(line)
        if scope and ";" in line:
            lines[-1] = line.partition(";")[0].rstrip()
        if not scope or not _INSTRUCTION.match(line):
            if waiting and not line.startswith("  "):
                settle(0)
            scope = 0 if line == "}" else scope
            continue
        waiting.append(len(lines) - 1)
        named = _NAMED.match(line)
        node = node_of(function, named[1]) if named else 0
        if line.startswith("  store "):
            # What is stored belongs to the number; addresses and loads of accumulators wait for what uses them.
            node = next((found for name in _OWN.findall(line) if (found := node_of(function, name))), 0)
        if node or line.startswith(_ENDS):
            settle(node or 0)
    footer = [f"!llvm.dbg.cu = !{{!{first + 1}}}", f"!llvm.module.flags = !{{!{first + 4}}}"]
    footer += [f"!{first + number} = {text}" for number, text in enumerate(metadata)]
    return "\n".join([*lines, *footer]) + "\n"


_LOCATION: Final = re.compile(r"!(\d+) = (?:distinct )?!DILocation\(line: (\d+)")
_DEBUG: Final = re.compile(r"(,)? ?!dbg !(\d+)")


def llvm_listing(text: str) -> Listing:
    """Return the functions of a module with locations."""
    located = {number: int(line) for number, line in _LOCATION.findall(text)}
    found: Listing = {}
    body: list[tuple[str, int]] | None = None
    for line in text.splitlines():
        definition = _DEFINITION.match(line)
        if definition is not None:
            body = found.setdefault(definition[1], [])
        if body is None:
            continue
        debug = _DEBUG.search(line)
        node = 0 if debug is None or definition is not None else located.get(debug[2], 0)
        body.append((_DEBUG.sub("", line).partition("  ; preds")[0].rstrip(), node))
        if line == "}":
            body = None
    return found


_LABEL: Final = re.compile(r'_?"?([A-Za-z_][\w.$]*)"?:')
_POSITION: Final = re.compile(r"\s+\.loc\s+\d+\s+(\d+)")
_NOISE: Final = re.compile(
    r"\s+\.(?:cfi|p2align|file|type|size|loc|section|text|globl|addrsig)|\.?L(?:tmp|func_)"
)


def assembly_listing(text: str, functions: Callable[[str], bool]) -> Listing:
    """Return functions of an assembly with locations; `functions` says whether a label is one of them."""
    found: Listing = {}
    body: list[tuple[str, int]] | None = None
    node = 0
    for line in _code_lines(text):
        label = _LABEL.match(line)
        if label is not None and functions(label[1]):
            body, node = found.setdefault(label[1], []), 0
        position = _POSITION.match(line)
        if position is not None:
            node = int(position[1])
        elif line.lstrip().startswith((".size", ".section", ".subsections")):
            body = None
        elif body is not None and not _NOISE.match(line):
            body.append((line, 0 if label is not None else node))
    return found


def _code_lines(text: str) -> Iterator[str]:
    """Yield lines without the comments that LLVM adds to locations."""
    for line in text.splitlines():
        code = line.partition(" #")[0].rstrip() if "\t.loc" not in line else line
        if code.strip():
            yield code.expandtabs(8)
