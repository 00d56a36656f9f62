"""A compiled program as plain data for the inspector: its nodes, nests, loops, instructions and costs, each with the others' numbers.

Everything refers to everything by node: lines have nodes, nests compute nodes, and each line of the loops, of the LLVM IR and of the
assembly is there for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final
from zlib import compress, decompress

from gradtape.api.inspect.report import BETWEEN, KernelFigures
from gradtape.api.pictures.svg import backward_nodes
from gradtape.errors import LoweringError
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.loops.ir import ControlFlow, For, RoutineCall, Statement
from gradtape.loops.printer import print_block
from gradtape.lower.attribution import Item, NestSummary, describe_procedure, maker_of
from gradtape.lower.llvm.profiled import timed_statements
from gradtape.lower.locations import Listing, assembly_listing, llvm_listing, with_locations
from gradtape.lower.pipeline import LocatedProgram, lower_located
from gradtape.lower.schedule.nests import Note
from gradtape.procedures.ir import Procedure
from gradtape.procedures.printer import source_of
from gradtape.runtime.compile.cache import CachedObject, MemoryCache, cached_object
from gradtape.runtime.compile.engine import listings
from gradtape.transforms.observers import DerivativeSite
from gradtape.transforms.procedures.ops import ProcedureOp

OPERATION, INPUT, CONSTANT = 0, 1, 2
"""Kinds of nodes."""

FORWARD, BACKWARD, TANGENT = 0, 1, 2
"""Directions: of the function, of its derivative in reverse, and of its derivative forward."""

MOST_LINES: Final = 3000
"""Lines of a listing that are shown; assembly of this length is not read by anybody."""


class Files:
    """The files of the user's code, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def place(self, site: Any) -> tuple[int, int]:
        """Return the number of a site's file, and its line; -1 and 0 where there is none."""
        if site is None or not site.filename:
            return -1, 0
        return self.numbers.setdefault(site.filename, len(self.numbers)), site.line


class Nodes:
    """The nodes of a graph and of the bodies in it, with their numbers from 0.

    Attributes
    ----------
    rows : list of dict
        What is known of each.
    edges : list of (int, int, str)
        From which to which, with the type of what flows.
    """

    def __init__(
        self,
        graph: Graph,
        files: Files,
        names: Sequence[str] = (),
        procedures: Sequence[tuple[Procedure, Procedure]] = (),
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.edges: list[tuple[int, int, str]] = []
        self._files = files
        self._names = names
        self._procedures = procedures
        self._numbers: dict[tuple[Item | None, Procedure | None], int] = {}
        self._alike: dict[Any, int] = {}
        self._backward = backward_nodes(graph)
        self._graph(graph, -1, "")

    def number(self, node: Item | None, procedure: Procedure | None = None) -> int:
        """Return the number of a node, or of that of which it is a copy, or of what stands in a procedure; -1 where there is none."""
        if node is None:
            return -1
        number = self._numbers.get((node, procedure))
        if number is None and isinstance(node, Node):
            return self._alike.get(_likeness(node), -1)
        return -1 if number is None else number

    def around(self, number: int) -> Iterator[int]:
        """Yield the nodes in whose bodies a node is, the innermost first."""
        while (number := self.rows[number]["parent"]) >= 0:
            yield number

    def _graph(self, graph: Graph, parent: int, part: str) -> None:
        numbers: dict[Value, int] = {}
        outputs = {value: k for k, value in enumerate(graph.outputs)}
        used = {value for node in graph.nodes for value in node.inputs}.union(graph.outputs)
        names = self._names if parent < 0 and len(self._names) == len(graph.inputs) else ()
        for k, value in enumerate(graph.inputs):
            if value in used:
                numbers[value] = self._leaf(
                    INPUT,
                    value.name or (names[k] if names else f"{'input' if part else 'argument'} {k}"),
                    value,
                    parent,
                    part,
                )
        for k, value in enumerate(graph.constants()):
            numbers[value] = self._leaf(CONSTANT, value.name or f"constant {k}", value, parent, part)
        for node in graph.nodes:
            number = self._operation(node, parent, part)
            results = [outputs[out] for out in node.outs if out in outputs]
            if results:
                self.rows[number]["result"] = results[0]
            for value in dict.fromkeys(node.inputs):
                if value in numbers:
                    self.edges.append((numbers[value], number, repr(value.aval)))
            numbers.update((out, number) for out in node.outs)
            for body, name in zip(bodies_of(node), _names_of_bodies(node), strict=True):
                self._graph(body, number, name)
            if isinstance(node.op, ProcedureOp):
                called = node.op.whole(node.params).procedure
                self.rows[number]["name"] = called.name
                emitted = next(
                    (procedure for source, procedure in self._procedures if source is called), called
                )
                self._procedure(emitted, number)

    def _procedure(self, procedure: Procedure, parent: int) -> None:
        """Add what a procedure does: its loops and branches hold others."""
        first = len(self.rows)
        for step in describe_procedure(procedure):
            file, line = self._files.place(step.site)
            derivative = isinstance(step.site, DerivativeSite)
            way = BACKWARD if step.backward else FORWARD
            if derivative and not step.site.backward:
                way = TANGENT
            number = self._add(
                kind=OPERATION,
                op=step.name,
                type=step.type,
                file=file,
                line=line,
                way=way,
                parent=parent if step.parent < 0 else first + step.parent,
                part=step.part,
            )
            row = self.rows[number]
            row["call"] = procedure.name if step.site is None else step.site.function
            if isinstance(step.item, Node):
                numbers = [_literal(value) for value in step.item.inputs if isinstance(value, Literal)]
                if numbers:
                    row["numbers"] = ", ".join(numbers)
            if derivative:
                row["of"] = step.site.op
            self._numbers[step.item, procedure] = number
            self.edges += [(first + source, number, type_) for source, type_ in step.inputs]

    def _leaf(self, kind: int, name: str, value: Value, parent: int, part: str) -> int:
        return self._add(
            kind=kind, op=name, type=repr(value.aval), file=-1, line=0, way=FORWARD, parent=parent, part=part
        )

    def _operation(self, node: Node, parent: int, part: str) -> int:
        site = node.site
        file, line = self._files.place(site)
        derivative = isinstance(site, DerivativeSite)
        way = FORWARD
        if node in self._backward or (parent >= 0 and self.rows[parent]["way"] == BACKWARD):
            way = BACKWARD
        elif derivative:
            way = BACKWARD if site.backward else TANGENT
        numbers = [_literal(value) for value in node.inputs if isinstance(value, Literal)]
        name = next((out.name for out in node.outs if out.name), None)
        number = self._add(
            kind=OPERATION,
            op=node.op.name,
            type=", ".join(repr(out.aval) for out in node.outs),
            file=file,
            line=line,
            way=way,
            parent=parent,
            part=part,
        )
        row = self.rows[number]
        row["call"] = "" if site is None else site.function
        if numbers:
            row["numbers"] = ", ".join(numbers)
        if name:
            row["name"] = name
        if derivative:
            row["of"] = site.op
        params = {
            key: repr(value)
            for key, value in node.params.items()
            if not isinstance(value, Graph) and key != "branches"
        }
        if params:
            row["params"] = ", ".join(f"{key}={text[:80]}" for key, text in params.items())
        self._numbers[node, None] = number
        self._alike.setdefault(_likeness(node), number)
        return number

    def _add(self, **row: Any) -> int:
        self.rows.append(row)
        return len(self.rows) - 1


def _likeness(node: Node) -> Any:
    """Return what copies of a node have in common."""
    return node.op, id(node.site), id(node.params), node.types


def _names_of_bodies(node: Node) -> list[str]:
    count = len(bodies_of(node))
    return (
        [f"branch {k}" for k in range(count)] if "branches" in node.params else ["body", "condition"][:count]
    )


def _literal(value: Value) -> str:
    assert value.data is not None
    number = value.data.item()
    return f"{number:g}" if isinstance(number, float) else str(number)


def describe_program(
    graph: Graph,
    figures: KernelFigures | None,
    files: Files,
    names: Sequence[str] = (),
    interpreted: str = "",
) -> dict[str, Any]:
    """Return what the inspector shows of a program.

    Parameters
    ----------
    graph : Graph
        As traced and differentiated.
    figures : KernelFigures or None
        What was measured.
    files : Files
        The user's files, to which those of the program are added.
    names : sequence of str
        What the user calls the inputs; they are numbered if there are not as many.
    interpreted : str
        Why the interpreter runs it; empty for machine code.
    """
    traced = Nodes(graph, files, names)
    described: dict[str, Any] = {"traced": _view(traced)}
    if not interpreted:
        try:
            described.update(_compiled(lower_located(graph), figures, files, names))
        except LoweringError as error:
            interpreted = error.what
    if interpreted:
        described.update(compiled=None, nests=[], loops=[], notes=[], listings={}, reason=interpreted)
        described["lines"] = _interpreted_lines(figures, files)
    return described


_known_listings: Final[MemoryCache[CachedObject]] = MemoryCache()
"""The listings of modules, by the digests of their texts."""


def _listings(text: str, unroll: bool) -> tuple[str, str]:
    """Return the optimised LLVM IR and the assembly of a module: from memory, from the disk, or made now."""
    key = f"{blake2b(text.encode(), digest_size=20).hexdigest()}:{unroll}:listing"

    def build() -> CachedObject:
        return CachedObject(compress("\0".join(listings(text, unroll=unroll)).encode()))

    cached = _known_listings.get(key, lambda: cached_object(key, build))
    llvm, _, assembly = decompress(cached.code).decode().partition("\0")
    return llvm, assembly


def _view(nodes: Nodes) -> dict[str, Any]:
    return {"nodes": nodes.rows, "edges": nodes.edges}


def _compiled(
    located: LocatedProgram, figures: KernelFigures | None, files: Files, names: Sequence[str]
) -> dict[str, Any]:
    nodes = Nodes(located.graph, files, names, located.procedures)

    def number(names: Iterable[str]) -> int:
        return nodes.number(maker_of(names, located.makers))

    def numbered(function: str, name: str) -> int:
        if function not in located.scalar_makers:
            return number([name]) + 1
        procedure, makers = located.scalar_makers[function]
        return nodes.number(makers.get(name), procedure) + 1

    text = with_locations(located.ir_text, numbered)
    llvm, assembly = _listings(text, located.unrolls)
    functions = {name for group in located.functions for name in group}
    in_llvm = llvm_listing(llvm)
    in_assembly = assembly_listing(assembly, functions.__contains__)
    measured = [] if figures is None else list(figures.nests)
    nests = [
        _nest(nest, group, measured[k] if k < len(measured) else None, figures, nodes)
        for k, (nest, group) in enumerate(zip(located.nests, located.functions, strict=True))
    ]
    total = sum(nest["seconds"] or 0.0 for nest in nests) or 1.0
    for nest in nests:
        nest["share"] = (nest["seconds"] or 0.0) / total
        shown_functions = [name for name in nest["functions"] if name in in_llvm or name in in_assembly]
        # The loops before what hands their blocks to threads.
        nest["functions"] = sorted(shown_functions, key=lambda name: not name.startswith("nest"))
    return {
        "compiled": _view(nodes),
        "nests": nests,
        "lines": _lines(nests, nodes),
        "loops": list(_loops(located, number, nodes)),
        "notes": [_note(note, nodes) for note in dict.fromkeys(located.notes)],
        "listings": {
            "llvm": _short(in_llvm, functions),
            "assembly": _short(in_assembly, functions),
        },
        "reason": "",
    }


def _nest(
    nest: NestSummary, functions: Sequence[str], measured: Any, figures: KernelFigures | None, nodes: Nodes
) -> dict[str, Any]:
    runs = max(figures.runs, 1) if figures is not None else 1
    total = sum(step.cost for step in nest.steps) or 1.0
    numbers = [nodes.number(step.item, step.procedure) for step in nest.steps]
    done = [
        [number, step.cost / total, step.operations, step.moved]
        for number, step in zip(numbers, nest.steps, strict=True)
        if number >= 0
    ]
    # A loop, a branch or a procedure is chosen with what is inside, and does nothing itself.
    around = dict.fromkeys(other for number in numbers if number >= 0 for other in nodes.around(number))
    numbered = set(numbers)
    is_between = functions[:1] == ("kernel",)
    return {
        "kind": BETWEEN if is_between else nest.routine or "loop",
        "extents": nest.extents,
        "blocks": nest.blocks,
        "seconds": None if measured is None else measured.seconds / runs,
        "operations": nest.operations,
        "moved": nest.moved,
        "footprint": nest.footprint,
        "functions": list(functions),
        "nodes": [*done, *([number, 0.0, 0.0, 0] for number in around if number not in numbered)],
    }


def _lines(nests: Sequence[dict[str, Any]], nodes: Nodes) -> list[dict[str, Any]]:
    """Return the costs of each line and direction, of all nests together."""
    by_position: dict[tuple[int, int, int], dict[str, Any]] = {}
    for nest in nests:
        for number, share, operations, moved in nest["nodes"]:
            row = nodes.rows[number]
            key = row["file"], row["line"], row["way"]
            line = by_position.setdefault(
                key,
                dict(
                    zip(("file", "line", "way"), key, strict=True),
                    seconds=0.0,
                    operations=0.0,
                    moved=0,
                    ops={},
                ),
            )
            line["seconds"] += share * (nest["seconds"] or 0.0)
            line["operations"] += operations
            line["moved"] += moved
            line["ops"][row["op"]] = None
    return _with_shares(by_position.values())


def _with_shares(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = list(lines)
    total = sum(line["seconds"] for line in lines) or 1.0
    return [
        {**line, "ops": list(line["ops"]), "share": line["seconds"] / total}
        for line in lines
        if line["file"] >= 0
    ]


def _interpreted_lines(figures: KernelFigures | None, files: Files) -> list[dict[str, Any]]:
    """Return the costs of the lines of a program that the interpreter runs: their shares are estimates from the elements."""
    lines = []
    for nest in () if figures is None else figures.nests:
        for line in nest.lines:
            if line.filename:
                number = files.numbers.setdefault(line.filename, len(files.numbers))
                lines.append(
                    {
                        "file": number,
                        "line": line.line,
                        "way": BACKWARD if line.backward else FORWARD,
                        "seconds": line.share * nest.seconds / max(figures.runs if figures else 1, 1),
                        "operations": line.share * nest.operations,
                        "moved": 0,
                        "ops": dict.fromkeys(line.ops),
                    }
                )
    return _with_shares(lines)


_TARGET: Final = re.compile(r"\s*(\w+)(\[)?")
_NAMES: Final = re.compile(r"[A-Za-z_]\w*")


def _loops(located: LocatedProgram, number: Any, nodes: Nodes) -> Iterator[tuple[str, int, int]]:
    """Yield the lines of the loops and of the procedures that they call, each with its node and its nest."""
    timed = {id(nest): k for k, nest in enumerate(timed_statements(located.program))}
    outside = len(timed)
    for statement in located.program.body:
        nest = timed.get(id(statement), outside)
        for line in _printed(statement):
            yield line, number(_names_in(line)), nest
        for call in _calls([statement]):
            called = call.numbers[0].procedure
            for source, emitted in located.procedures:
                if source is called:
                    yield "", -1, nest
                    for line, node in _source(emitted, nodes):
                        yield line, node, nest


def _calls(statements: Sequence[Statement]) -> Iterator[RoutineCall]:
    """Yield the calls of procedures in statements."""
    for statement in statements:
        if isinstance(statement, RoutineCall) and statement.library == "procedure":
            yield statement
        elif isinstance(statement, ControlFlow):
            for block in statement.blocks():
                yield from _calls(block)
        elif isinstance(statement, For):
            yield from _calls(statement.body)


def _source(procedure: Procedure, nodes: Nodes) -> list[tuple[str, int]]:
    """Return the lines of a procedure as Python, with the nodes for which they are there."""
    source = source_of(procedure)
    lines = source.text.splitlines()
    numbers = [nodes.number(statement, procedure) for statement in source.statements]
    shown = list(zip(lines, numbers, strict=True))[:MOST_LINES]
    return (
        shown if len(lines) <= MOST_LINES else [*shown, (f"... and {len(lines) - MOST_LINES} more lines", -1)]
    )


def _printed(statement: Statement) -> list[str]:
    lines = print_block([statement])
    return (
        lines
        if len(lines) <= MOST_LINES
        else [*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines"]
    )


def _names_in(line: str) -> list[str]:
    """Return the names that tell for which node a line is there: of a number, or of what is stored."""
    target = _TARGET.match(line)
    if target is None or line.lstrip().startswith(("for ", "while ", "if ", "elif ", "else", "break")):
        return []
    if target[2]:
        return [*_NAMES.findall(line.partition(" = ")[2]), target[1]]
    if " = " in line:
        return [target[1]]
    return list(reversed(_NAMES.findall(line)))


def _note(note: str, nodes: Nodes) -> tuple[str, int]:
    return str(note), nodes.number(note.node) if isinstance(note, Note) else -1


def _short(listing: Listing, functions: set[str]) -> dict[str, list[tuple[str, int]]]:
    """Return the shown functions of a listing, with the numbers of nodes from 0, cut off if they are very long."""
    shortened = {}
    for name, lines in listing.items():
        if name in functions:
            shown = [(line, node - 1) for line, node in lines[:MOST_LINES]]
            if len(lines) > MOST_LINES:
                shown.append((f"... and {len(lines) - MOST_LINES} more lines", -1))
            shortened[name] = shown
    return shortened
