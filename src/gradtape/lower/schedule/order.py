"""From a graph to placed roots: what is computed in which loop, and what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any, Final

from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.loops.affine import Affine, Position
from gradtape.loops.ir import Buffer
from gradtape.lower.building.calls import call_root, is_call, prepare_call, transposed_leaves
from gradtape.lower.building.rotate import test_ahead
from gradtape.lower.schedule.access import Explorer
from gradtape.lower.schedule.control import control_roots, operands_in_memory, share_carry
from gradtape.lower.schedule.costs import REPEATED, STORED
from gradtape.lower.schedule.fusion import Block, Placement
from gradtape.lower.schedule.nests import Root, base_of_view, check_dtype, count_uses, parallel_axes, root_for
from gradtape.lower.schedule.row_functions import functions_of_rows
from gradtape.lower.schedule.storage import assign_storage, choose_in_place, readers_of, share_outputs
from gradtape.passes.rewrite import closed
from gradtape.records import record

DEPTH: Final = 40
"""Nodes in a chain after which one becomes a root, so that the walks need not recurse deeper."""

TANGLED: Final = 4
"""Reshapes in a chain after which one becomes a root: each may double the length of a position."""

PLACES: Final = 24
"""Positions of a value at which one element of another may read it: beyond, the other is stored, or a chain of stencils would be
followed to each of the elements in its cone."""

ROUNDS: Final = 3
"""Placements tried: each but the first stores what the one before computed twice."""


@record
class Schedule:
    """Placed roots, ready to be built."""

    top: Block
    roots: list[Root]
    by_value: dict[Value, Root]
    sources: dict[Value, Buffer]
    inputs: list[Buffer]
    outputs: list[Buffer]
    scratch: list[Buffer]
    explain: list[str]


def schedule(
    graph: Graph,
    traced: Graph,
    carried: Mapping[int, int] | None = None,
    prefix: str = "",
    apart: bool = False,
) -> Schedule:
    """Decide what is computed in which loop, and what is stored.

    Parameters
    ----------
    graph : Graph
        Of primitive rows.
    traced : Graph
        What it was before the passes: its constants, in their order, follow the inputs.
    carried : mapping of int to int, optional
        For the body of a loop: the inputs that the next turn finds as these outputs have left them.
    prefix : str, optional
        What the names of buffers begin with.
    apart : bool
        Whether loops are kernels of their own, which find all that they read in memory.

    Raises
    ------
    LoweringError
        For ops and dtypes that kernels do not know.
    """
    for value in (*graph.inputs, *graph.outputs):
        check_dtype(value)
    carried = carried or {}
    inputs, sources = _source_buffers(traced, prefix)
    outputs = [
        Buffer(f"{prefix}out{k}", value.dtype, value.size, "output") for k, value in enumerate(graph.outputs)
    ]
    stored: set[Value] = set()
    uses = count_uses(graph)
    for turn in range(ROUNDS):
        explain: list[str] = []
        held = {graph.inputs[place]: outputs[output] for place, output in carried.items()}
        roots, by_value = create_roots(graph, stored, outputs, held, apart)
        costs: dict[Value, float] = {}
        explorer = Explorer(by_value, costs)
        for root in roots:
            explorer.explore(root)
        _find_prepared(roots)
        placement = Placement(readers_of(roots))
        for root in small_first(roots):
            placement.place(root)
        more = _computed_twice(roots, costs, uses, by_value) if turn < ROUNDS - 1 else set()
        if turn == 0:
            more |= functions_of_rows(roots)
        choose_in_place(roots, by_value, explain, apart, replaces)
        exposed = _read_while_written(roots, by_value)
        if turn == ROUNDS - 1:
            for root in exposed:
                root.in_place_of = None
        else:
            more |= {root.node.inputs[1] for root in exposed if root.node is not None}
        if not more:
            break
        stored |= more
    scratch = assign_storage(roots, explain, prefix)
    for value in held:
        share_carry(by_value[value], sources[value], roots)
    share_outputs(roots, explain)
    return Schedule(
        placement.top, roots, by_value, sources, inputs, outputs, scratch, [*placement.explain, *explain]
    )


@lru_cache(maxsize=1024)
def replaces(branch: Body, place: int, output: int) -> bool:
    """Return whether a branch makes an output in the memory of an input."""
    if branch.outputs[output] is branch.inputs[place]:
        return True
    traced = closed(branch)
    plan = schedule(test_ahead(traced), traced, {place: output})
    return plan.by_value[traced.inputs[place]].storage is plan.outputs[output]


def _source_buffers(graph: Graph, prefix: str) -> tuple[list[Buffer], dict[Value, Buffer]]:
    inputs: list[Buffer] = []
    sources: dict[Value, Buffer] = {}
    for k, value in enumerate(graph.inputs):
        sources[value] = Buffer(f"{prefix}x{k}", value.dtype, value.size, "input")
        inputs.append(sources[value])
    for k, value in enumerate(graph.constants()):
        check_dtype(value)
        sources[value] = Buffer(f"{prefix}c{k}", value.dtype, value.size, "constant")
        inputs.append(sources[value])
    return inputs, sources


def create_roots(
    graph: Graph, stored: set[Value], outputs: Sequence[Buffer], held: Mapping[Value, Buffer], apart: bool
) -> tuple[list[Root], dict[Value, Root]]:
    """Return the roots in topological order, and which of them makes which value."""
    claimed = _claim_outputs(graph, outputs)
    roots: list[Root] = []
    by_value: dict[Value, Root] = {}
    for value, following in held.items():
        _enter(Root(value, "held", (), (), None, following=following), roots, by_value)
    depth: dict[Value, int] = {}
    reach = _Reach()
    for_calls = prepare_call(graph) | transposed_leaves(graph)
    operands = for_calls | _packed_operands(graph) | operands_in_memory(graph, apart)
    for node in graph.nodes:
        if isinstance(node.op, Structured):
            for part in control_roots(node):
                part.order = len(roots)
                roots.append(part)
                if part.main is not None:
                    by_value[part.value] = part
                    part.output = claimed.get(part.value)
            continue
        root = root_for(node)
        out = node.outs[0]
        if root is not None and is_call(node):
            root = call_root(node)
        if root is None:
            deep = max([depth.get(value, 0) for value in node.inputs], default=0)
            deep += DEPTH // TANGLED if node.op.name == "reshape" else 1
            depth[out] = deep
            wanted = out in claimed or out in stored or out in operands
            far = reach.enter(node) > PLACES
            if wanted or deep > DEPTH or far:
                root = Root(out, "each", parallel_axes(out.shape), (), node)
                root.prepares = out in for_calls and out not in claimed
                depth[out] = 0
                reach.stop(out)
        if root is not None:
            _enter(root, roots, by_value)
            root.output = claimed.get(out)
    taken = {id(buffer) for buffer in claimed.values()}
    for value, buffer in zip(graph.outputs, outputs, strict=True):
        if id(buffer) not in taken and held.get(value) is not buffer:
            copy = Root(value, "each", parallel_axes(value.shape), (), None, output=buffer)
            copy.order = len(roots)
            roots.append(copy)
    for number, (value, expected) in enumerate(graph.guards, 1):
        guard = Root(value, "guard", (), (), None, order=len(roots), guard=(number, expected))
        roots.append(guard)
    return roots, by_value


class _Reach:
    """At how many positions of what is stored an element of a value is computed from it.

    The ways from one to the other are told apart by the index maps on them, in any order: shifts, of which stencils are made, commute.
    """

    def __init__(self) -> None:
        self._ways: dict[Value, frozenset[tuple[int, ...]]] = {}
        self._maps: dict[Any, int] = {}

    def enter(self, node: Node) -> int:
        """Take note of a value that is computed where it is used; return the number of its ways."""
        ways: set[tuple[int, ...]] = set()
        for place, value in enumerate(node.inputs):
            if isinstance(value, Literal):
                continue
            before = self._ways.get(value, _HERE)
            if isinstance(node.op, Elementwise):
                ways |= before
            else:
                map_ = self._maps.setdefault(self._key(node, place), len(self._maps))
                ways.update([tuple(sorted((*way, map_))) for way in before])
        self._ways[node.outs[0]] = frozenset(ways)
        return len(ways)

    def stop(self, value: Value) -> None:
        """Take note that a value is stored."""
        del self._ways[value]

    def _key(self, node: Node, place: int) -> Any:
        return node.op, place, *[(name, repr(param)) for name, param in node.params.items()]


_HERE: Final = frozenset([()])


def small_first(roots: Sequence[Root]) -> list[Root]:
    """Return a topological order in which what takes few turns comes as early as it can, and what is made for
    a call just before it.

    Then what large loops need from small ones is there when the first large loop is placed, and the others
    can share it. What a turn leaves of a carry is copied first: the next carry may replace it then.
    """
    needs = {root: _needs(root) for root in roots if not root.prepares}
    waiting = {root: len(needed) for root, needed in needs.items()}
    readers: dict[Root, list[Root]] = {}
    for root, needed in needs.items():
        for read in needed:
            readers.setdefault(read, []).append(root)
    ready = [_urgency(root) for root, count in waiting.items() if not count]
    heapify(ready)
    order: dict[Root, None] = {}
    while ready:
        root = heappop(ready)[-1]
        _prepare(root, order)
        order[root] = None
        for reader in readers.get(root, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, _urgency(reader))
    return list(order | dict.fromkeys(roots))


def _find_prepared(roots: Sequence[Root]) -> None:
    """Keep as made for a call what can share the outermost loop of all that read it; the rest is better out of
    the way early."""
    for root, readers in readers_of(roots).items():
        place = root.axes[0].position if root.axes else None
        root.prepares &= place is not None and all(
            bool(reader.axes)
            and all(position[place] == reader.variables[0] for position in reader.reads[root])
            for reader in readers
        )


def _turns(root: Root) -> int:
    return root.value.size if root.kind == "blas" else prod(axis.extent for axis in root.axes)


def _needs(root: Root) -> set[Root]:
    """Return what must be placed before a root, but for what is made for it."""
    found: set[Root] = set()
    for read in root.reads:
        found |= _needs(read) if read.prepares else {read}
    return found


def _prepare(root: Root, order: dict[Root, None]) -> None:
    for read in root.reads:
        if read.prepares and read not in order:
            read.made_for = root
            _prepare(read, order)
            order[read] = None


def _urgency(root: Root) -> tuple[int, bool, int, Root]:
    copies = root.kind == "each" and root.node is None and any(read.kind == "held" for read in root.reads)
    return _turns(root), not copies, root.order, root


def _packed_operands(graph: Graph) -> set[Value]:
    return {
        value
        for node in graph.nodes
        if isinstance(node.op, Contract)
        for value in node.inputs
        if value.node is not None and value.node.op.name == "permute"
    }


def _enter(root: Root, roots: list[Root], by_value: dict[Value, Root]) -> None:
    root.order = len(roots)
    roots.append(root)
    by_value[root.value] = root


def _claim_outputs(graph: Graph, outputs: Sequence[Buffer]) -> dict[Value, Buffer]:
    """Return which values are written straight into an output: each once, and views for what they view."""
    claimed: dict[Value, Buffer] = {}
    inputs = set(graph.inputs)
    for value, buffer in zip(graph.outputs, outputs, strict=True):
        base = base_of_view(value)
        if base in inputs or base.node is None or isinstance(base, Literal) or base in claimed:
            continue
        claimed[base] = buffer
    return claimed


def _computed_twice(
    roots: Sequence[Root], costs: dict[Value, float], uses: dict[Value, int], by_value: dict[Value, Root]
) -> set[Value]:
    """Return costly values that several loops would compute, or one loop over and over."""
    sites: dict[Value, set[tuple[object, ...]]] = {}
    repeated: set[Value] = set()
    for root in roots:
        for value, positions in root.sites.items():
            for index in positions:
                site = (id(root.block), tuple([_level(position, root) for position in index]))
                sites.setdefault(value, set()).add(site)
                if _repeats(root, index) and costs[value] > REPEATED:
                    repeated.add(value)
    chosen: set[Value] = set()
    for value, where in sites.items():
        if value in by_value or value in chosen:
            continue
        cost = _cost_beyond(value, costs, chosen, by_value)
        if (value in repeated and cost > REPEATED) or (
            len(where) > 1 and uses.get(value, 0) > 1 and cost > STORED
        ):
            chosen.add(value)
    return chosen


def _cost_beyond(
    value: Value, costs: dict[Value, float], chosen: set[Value], by_value: dict[Value, Root]
) -> float:
    """Return what a value costs when those already chosen are only loaded."""
    cost = costs[value]
    stack = [value]
    steps = 0
    while stack and steps < 64:
        steps += 1
        node = stack.pop().node
        for operand in () if node is None else node.inputs:
            if operand in chosen:
                cost -= costs[operand]
            elif operand not in by_value and isinstance(operand.node, Node):
                stack.append(operand)
    return cost


def _level(position: Position, root: Root) -> object:
    """Name a position by the loop that it follows, so that roots in the same loops can be compared."""
    for level, variable in enumerate(root.variables):
        if position == variable and not isinstance(variable, int):
            return level
    return (root.order, position)


def _repeats(root: Root, index: tuple[Position, ...]) -> bool:
    """Whether a loop outside of those that a position follows would compute the element again and again."""
    if not root.axes:
        return False
    followed = set()
    for position in index:
        if isinstance(position, Affine):
            followed |= position.variables()
    levels = [
        level
        for level, variable in enumerate(root.variables)
        if isinstance(variable, Affine) and variable.variables() & followed
    ]
    if not levels:
        return False
    turns = 1
    for level in range(max(levels)):
        if level not in levels:
            turns *= root.axes[level].extent
    return turns > 1


def _read_while_written(roots: Sequence[Root], by_value: dict[Value, Root]) -> list[Root]:
    """Return scatters in place whose operand reads the base while it is being written: the operand is to
    be stored first."""
    found = []
    bases: set[Root] = set()
    for root in roots:
        if root.in_place_of is None:
            continue
        assert root.node is not None
        if root.in_place_of in bases:
            root.in_place_of = None
            continue
        bases.add(root.in_place_of)
        if (
            root.kind == "scatter"
            and root.node.inputs[1] not in by_value
            and root.reads[root.in_place_of]
            - {
                root.base_index,
                root.target,
            }
        ):
            found.append(root)
    return found
