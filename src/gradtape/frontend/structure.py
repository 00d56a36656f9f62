"""From control flow graphs to structured programs: loops and branches without jumps.

The tree follows the dominator tree (Ramsey 2022, "Beyond Relooper"): a block whose only predecessor dominates it stands in the branch that
leads to it, a block where control joins follows the smallest statement that contains all ways to it. Ways that leave more than one
statement at once (``break``, ``continue``, early ``return``, short-circuit ``or``) set a boolean variable, and what they skip is
guarded by it. Such a variable is an ordinary name: where its value is known in translation it costs nothing.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from gradtape.frontend.blocks import BasicBlock, Instruction
from gradtape.frontend.bytecode import read_code
from gradtape.frontend.control_flow import FlowGraph, flow_graph
from gradtape.records import record

RESULT: Final = "$result"
"""The name of what a function returns."""

Names: TypeAlias = frozenset[str]
NO_NAMES: Final[Names] = frozenset()


@record
class Run:
    """Straight-line code.

    Attributes
    ----------
    live : frozenset of str
        The names that are live after it.
    """

    instructions: list[Instruction]
    live: Names = NO_NAMES


@record
class Raise:
    """An error; what follows in the tree is not run in Python."""

    name: str
    line: int


@record
class Branch:
    """One of two blocks.

    Attributes
    ----------
    live : frozenset of str
        The names that are live after it.
    """

    name: str
    then: list[Node]
    otherwise: list[Node]
    line: int
    live: Names = NO_NAMES


@record
class ForLoop:
    """``for item in iterator: body``.

    Attributes
    ----------
    stops : list of str
        Variables, false at first, that end the loop when one of them is true after an iteration.
    live, live_after : frozenset of str
        The names that are live at the header, and after the loop.
    assigned : frozenset of str
        The names that the body assigns.
    """

    iterator: str
    item: str
    body: list[Node]
    stops: list[str]
    line: int
    live: Names = NO_NAMES
    live_after: Names = NO_NAMES
    assigned: Names = NO_NAMES


@record
class WhileLoop:
    """``while True: test; if bool(name) is negated: break; body; if a stop: break``; without a name it ends by its stops alone."""

    test: list[Instruction]
    name: str
    negated: bool
    body: list[Node]
    stops: list[str]
    line: int
    live: Names = NO_NAMES
    live_after: Names = NO_NAMES
    assigned: Names = NO_NAMES


Node: TypeAlias = Run | Raise | Branch | ForLoop | WhileLoop


@record
class Tree:
    """The structured body of a function; it leaves what it returns in `RESULT`.

    Attributes
    ----------
    single : frozenset of str
        The temporaries that are read at one place.
    nonlocals : frozenset of str
        The variables of functions around that it, or a function inside it, assigns.
    """

    name: str
    filename: str
    line: int
    nodes: list[Node]
    single: Names
    nonlocals: Names = NO_NAMES


_KNOWN: Final[WeakKeyDictionary[types.CodeType, Tree]] = WeakKeyDictionary()


def structured(code: types.CodeType, module: dict[str, Any]) -> Tree:
    """Return the structured body of a code object."""
    tree = _KNOWN.get(code)
    if tree is None:
        read = read_code(code, module)
        nodes = _Structurer(flow_graph(read)).function()
        annotate(nodes, read.cells | {RESULT}, Shared(read.cells, read.changed))
        tree = _KNOWN[code] = Tree(
            read.name, read.filename, read.line, nodes, _read_once(nodes), read.nonlocals
        )
    return tree


# A jump is a label: of a later block, of a loop that continues, or of the end of the function.

Label: TypeAlias = tuple[str, int]
RETURN: Final[Label] = ("return", 0)


@record
class _Jump:
    label: Label


@record
class _Block:
    """A block whose statements may jump to its end."""

    label: Label
    nodes: list[_Raw]


@record
class _Loop:
    """An endless loop whose statements may jump to its beginning."""

    label: Label
    nodes: list[_Raw]
    line: int


@record
class _For:
    label: Label
    iterator: str
    item: str
    nodes: list[_Raw]
    exhausted: list[_Raw]
    line: int


@record
class _If:
    name: str
    then: list[_Raw]
    otherwise: list[_Raw]
    line: int


_Raw: TypeAlias = Run | Raise | _Jump | _Block | _Loop | _For | _If


@record
class _Lowered:
    """Nodes without jumps.

    Attributes
    ----------
    pending : set of Label
        Where control may have to go after them, told by variables; what follows is guarded.
    flags : set of Label
        All labels whose variables are set inside.
    """

    nodes: list[Node]
    pending: set[Label] = field(default_factory=set)
    flags: set[Label] = field(default_factory=set)


def _flag(label: Label) -> str:
    return f"$to.{label[0]}.{label[1]}"


def _set(label: Label, value: bool, line: int) -> Run:
    return Run([Instruction(_flag(label), "const", (), value, line)])


class _Structurer:
    """Builds the tree of one function."""

    def __init__(self, graph: FlowGraph) -> None:
        self.graph = graph
        self.children: dict[int, list[int]] = {label: [] for label in graph.blocks}
        for label, above in graph.dominators.items():
            self.children[above].append(label)
        self.after: dict[int, list[int]] = {label: [] for label in graph.loops}
        self.placed: set[int] = set()
        self._place()

    def function(self) -> list[Node]:
        """Return the nodes of the whole function."""
        lowered = lower(self.tree(min(self.graph.blocks)), frozenset([RETURN]))
        if RETURN in lowered.flags:
            return [_set(RETURN, False, 0), *lowered.nodes]
        return lowered.nodes

    def _place(self) -> None:
        """Find the blocks that follow a statement instead of standing in the branch that leads to them: joins, and exits of loops."""
        graph = self.graph
        exits: dict[int, list[int]] = {}
        for label, above in graph.dominators.items():
            left = [h for h, loop in graph.loops.items() if above in loop and label not in loop]
            if left:
                exits.setdefault(max(left, key=lambda h: len(graph.loops[h])), []).append(label)
            elif len(graph.predecessors[label]) > 1 and not self._only_back_edges(label):
                self.placed.add(label)
        for header, labels in exits.items():
            targets = graph.blocks[header].targets
            ending = [one for one in labels if graph.blocks[one].end == "raise"]
            for label in labels:
                if (
                    len(graph.predecessors[label]) > 1
                    or label in targets
                    or (len(labels) - len(ending) == 1 and label not in ending)
                ):
                    self.placed.add(label)
                    self.after[header].append(label)

    def _only_back_edges(self, label: int) -> bool:
        """Return whether all but one of the ways to a block come from its own loop."""
        loop = self.graph.loops.get(label, set())
        return sum(predecessor not in loop for predecessor in self.graph.predecessors[label]) <= 1

    def tree(self, label: int) -> list[_Raw]:
        """Return a block with all that it dominates."""
        joins = [
            child for child in self.children[label] if child in self.placed and not self._leaves(label, child)
        ]
        loop = label in self.graph.loops
        nodes: list[_Raw]
        if loop:
            nodes = self.loop(label, joins)
            joins = self.after[label]
        else:
            nodes = self.inside(label)
        return self.with_joins(nodes, joins)

    def with_joins(self, nodes: list[_Raw], joins: Iterable[int]) -> list[_Raw]:
        """Return nodes with the blocks that come after them, the earliest innermost."""
        for join in sorted(joins, key=self.graph.order.__getitem__):
            nodes = [_Block(("block", join), nodes), *self.tree(join)]
        return nodes

    def _leaves(self, above: int, label: int) -> bool:
        return any(above in loop and label not in loop for loop in self.graph.loops.values())

    def loop(self, label: int, joins: list[int]) -> list[_Raw]:
        block = self.graph.blocks[label]
        for_loop = self._for(block) if not joins else None
        if for_loop is not None:
            return [for_loop]
        return [_Loop(("loop", label), self.with_joins(self.inside(label), joins), block.line)]

    def _for(self, block: BasicBlock) -> _For | None:
        kinds = {instruction.kind: instruction for instruction in block.instructions}
        if set(kinds) - {"next", "first", "second"} or block.end != "branch" or "next" not in kinds:
            return None
        body, end = block.targets
        if body not in self.graph.loops[block.label] or end in self.graph.loops[block.label]:
            return None
        return _For(
            ("loop", block.label),
            kinds["next"].names[0],
            kinds["first"].target,
            self.go(block.label, body),
            self.go(block.label, end),
            block.line,
        )

    def inside(self, label: int) -> list[_Raw]:
        """Return a block with what stands in its branches."""
        block = self.graph.blocks[label]
        nodes: list[_Raw] = [Run(block.instructions)] if block.instructions else []
        if block.end == "return":
            nodes.append(Run([Instruction(RESULT, "copy", (block.name,), None, block.line)]))
            nodes.append(_Jump(RETURN))
        elif block.end == "raise":
            nodes.append(Raise(block.name, block.line))
            nodes.append(_Jump(RETURN))
        elif block.end == "jump":
            nodes.extend(self.go(label, block.targets[0]))
        else:
            yes, no = block.targets
            nodes.append(_If(block.name, self.go(label, yes), self.go(label, no), block.line))
        return nodes

    def go(self, source: int, target: int) -> list[_Raw]:
        """Return what stands where control goes from one block to another."""
        if source in self.graph.loops.get(target, ()):
            return [_Jump(("loop", target))]
        if target in self.placed:
            return [_Jump(("block", target))]
        return self.tree(target)


def lower(nodes: Sequence[_Raw], follow: frozenset[Label]) -> _Lowered:
    """Replace jumps by variables and guards.

    Parameters
    ----------
    nodes : sequence
        With jumps.
    follow : frozenset of Label
        The labels to which control comes anyway at the end of the nodes.
    """
    out = _Lowered([])
    for number, node in enumerate(nodes):
        is_last = number == len(nodes) - 1
        lowered = _lower_node(node, follow if is_last else frozenset())
        out.nodes.extend(lowered.nodes)
        out.flags |= lowered.flags
        if lowered.pending and not is_last:
            following = lower(nodes[number + 1 :], follow)
            guarded = following.nodes
            for label in sorted(lowered.pending):
                guarded = [Branch(_flag(label), [], guarded, 0)] if guarded else []
            out.nodes.extend(guarded)
            out.flags |= following.flags
            out.pending |= (lowered.pending | following.pending) - follow
            return out
        out.pending |= lowered.pending
    return out


def _lower_node(node: _Raw, follow: frozenset[Label]) -> _Lowered:
    if isinstance(node, Run | Raise):
        return _Lowered([node])
    if isinstance(node, _Jump):
        if node.label in follow:
            return _Lowered([])
        return _Lowered([_set(node.label, True, 0)], {node.label}, {node.label})
    if isinstance(node, _If):
        then, otherwise = lower(node.then, follow), lower(node.otherwise, follow)
        branch = Branch(node.name, then.nodes, otherwise.nodes, node.line)
        return _Lowered([branch], then.pending | otherwise.pending, then.flags | otherwise.flags)
    if isinstance(node, _Block):
        inner = lower(node.nodes, follow | {node.label})
        return _closed(inner, node.label)
    if isinstance(node, _For):
        body = _closed(lower(node.nodes, frozenset([node.label])), node.label)
        loop: Node = ForLoop(node.iterator, node.item, body.nodes, _names(body.pending), node.line)
        return _ended([loop], body, node.exhausted, follow)
    return _lower_loop(node, follow)


def _closed(inner: _Lowered, label: Label) -> _Lowered:
    """Let the variable of a label begin as false where it is used."""
    if label in inner.flags:
        inner.nodes.insert(0, _set(label, False, 0))
        inner.flags.discard(label)
    inner.pending.discard(label)
    return inner


def _names(labels: set[Label]) -> list[str]:
    return [_flag(label) for label in sorted(labels)]


def _ended(loop: list[Node], body: _Lowered, exhausted: list[_Raw], follow: frozenset[Label]) -> _Lowered:
    """Return a loop with its else clause, which runs unless a jump has left the loop."""
    else_nodes = lower(exhausted, follow)
    guarded = else_nodes.nodes
    for label in sorted(body.pending):
        guarded = [Branch(_flag(label), [], guarded, 0)] if guarded else []
    pending = (body.pending | else_nodes.pending) - follow
    return _Lowered([*loop, *guarded], pending, body.flags | else_nodes.flags)


def _lower_loop(node: _Loop, follow: frozenset[Label]) -> _Lowered:
    """Return an endless loop as a while loop: with the test that it begins with, if it begins with one."""
    test: list[Instruction] = []
    nodes = node.nodes
    if nodes and isinstance(nodes[0], Run):
        test, nodes = nodes[0].instructions, nodes[1:]
    is_plain = all(instruction.target.startswith("$") for instruction in test)
    if is_plain and len(nodes) == 1 and isinstance(nodes[0], _If):
        branch = nodes[0]
        for arm, other, negated in (
            (branch.then, branch.otherwise, True),
            (branch.otherwise, branch.then, False),
        ):
            if len(arm) == 1 and isinstance(arm[0], _Jump) and arm[0].label != node.label:
                body = _closed(lower(other, frozenset([node.label])), node.label)
                loop: Node = WhileLoop(
                    test, branch.name, negated, body.nodes, _names(body.pending), node.line
                )
                return _ended([loop], body, list(arm), follow)
    body = _closed(lower(node.nodes, frozenset([node.label])), node.label)
    loop = WhileLoop([], "", False, body.nodes, _names(body.pending), node.line)
    return _Lowered([loop], body.pending - follow, body.flags)


# Live names


@record
class Shared:
    """The variables that a function shares with others.

    Attributes
    ----------
    cells : frozenset of str
        All of them: they are live everywhere.
    changed : frozenset of str
        Those that calls may assign.
    """

    cells: Names = NO_NAMES
    changed: Names = NO_NAMES


NOT_SHARED: Final = Shared()


def annotate(nodes: Sequence[Node], live: Names, shared: Shared = NOT_SHARED) -> Names:
    """Fill in the live names of nodes, given those after them; return those before them."""
    for node in reversed(nodes):
        if isinstance(node, Run):
            node.live = live
            live = _before(node.instructions, live, shared)
        elif isinstance(node, Raise):
            live = live | {node.name} if node.name else live
        elif isinstance(node, Branch):
            node.live = live
            arms = annotate(node.then, live, shared) | annotate(node.otherwise, live, shared)
            live = arms | {node.name}
        else:
            live = _annotate_loop(node, live, shared)
    return live


def _before(instructions: Sequence[Instruction], live: Names, shared: Shared) -> Names:
    names = set(live)
    for instruction in reversed(instructions):
        if instruction.target not in shared.cells:
            names.discard(instruction.target)
        names.update(instruction.names)
    return frozenset(names)


def _annotate_loop(node: ForLoop | WhileLoop, live: Names, shared: Shared) -> Names:
    node.live_after = live
    node.assigned = frozenset(assigned([node], shared.changed))
    header = live | set(node.stops)
    while True:
        if isinstance(node, ForLoop):
            new = header | (annotate(node.body, header, shared) - {node.item})
        else:
            named = {node.name} if node.name else set()
            inner = annotate(node.body, header, shared)
            new = header | _before(node.test, inner | named | live, shared)
        if new == header:
            break
        header = new
    node.live = header
    used = {node.iterator} if isinstance(node, ForLoop) else set()
    return frozenset(header | used)


def assigned(nodes: Sequence[Node], changed: Names = NO_NAMES) -> set[str]:
    """Return the names that nodes assign; calls may assign those of `changed`."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, Run):
            names.update(instruction.target for instruction in node.instructions if instruction.target)
            if any(instruction.kind in ("call", "shortcut") for instruction in node.instructions):
                names |= changed
        elif isinstance(node, Branch):
            names |= assigned(node.then, changed) | assigned(node.otherwise, changed)
        elif isinstance(node, ForLoop):
            names |= assigned(node.body, changed) | {node.item}
        elif isinstance(node, WhileLoop):
            names |= assigned([Run(node.test), *node.body], changed)
    return names


def _read_once(nodes: Sequence[Node]) -> Names:
    counts: Counter[str] = Counter()
    _count(nodes, counts)
    return frozenset([name for name, count in counts.items() if count == 1 and name.startswith("$")])


def _count(nodes: Sequence[Node], counts: Counter[str]) -> None:
    """Count at how many places names are read."""
    for node in nodes:
        if isinstance(node, Run | WhileLoop):
            for instruction in node.instructions if isinstance(node, Run) else node.test:
                counts.update(instruction.names)
        if isinstance(node, Raise | Branch | WhileLoop):
            counts[node.name] += 1
        if isinstance(node, Branch):
            _count(node.then, counts)
            _count(node.otherwise, counts)
        elif isinstance(node, ForLoop | WhileLoop):
            _count(node.body, counts)
            counts.update(node.stops)
            if isinstance(node, ForLoop):
                counts[node.iterator] += 1


def show(nodes: Sequence[Node], indent: str = "") -> str:
    """Return nodes as text, for tests and debugging."""
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, Run):
            for instruction in node.instructions:
                detail = "" if instruction.detail is None else f"[{instruction.detail}]"
                lines.append(
                    f"{indent}{instruction.target} = {instruction.kind}{detail} {' '.join(instruction.names)}"
                )
        elif isinstance(node, Raise):
            lines.append(f"{indent}raise {node.name}")
        elif isinstance(node, Branch):
            lines.append(f"{indent}if {node.name}:")
            lines.append(show(node.then, indent + "    "))
            lines.append(f"{indent}else:")
            lines.append(show(node.otherwise, indent + "    "))
        elif isinstance(node, ForLoop):
            lines.append(f"{indent}for {node.item} in {node.iterator}: # stops {node.stops}")
            lines.append(show(node.body, indent + "    "))
        else:
            sign = "not " if node.negated else ""
            lines.append(f"{indent}while {sign}{node.name}: # stops {node.stops}")
            lines.append(show([Run(node.test)], indent + "  test "))
            lines.append(show(node.body, indent + "    "))
    return "\n".join(line for line in lines if line)
