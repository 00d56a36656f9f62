"""How the values of the forward sweep come to the reverse sweep: from the tape, by new loads, or by computation from these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.procedures.builder import leaf
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Content,
    Load,
    Pointer,
    Read,
    Statement,
    Store,
)
from gradtape.procedures.traversal import uses, walk
from gradtape.transforms.loops.residuals import residuals
from gradtape.transforms.procedures.activity import Location
from gradtape.transforms.procedures.adjoint import Adjoint
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place, written

ITERATIONS: Final = 64
"""Iterations that a loop is taken to have."""

MOST_TRIALS: Final = 16
"""Sets of restored locations that are compared."""


class Plan:
    """What the forward sweep records, and what the reverse sweep restores, loads and computes again.

    Attributes
    ----------
    records : dict
        By block: the values and pointers that its instances record.
    reloads : dict
        By block and position: the loads and reads that the reverse sweep repeats when it comes there.
    olds : dict
        By block and position: what holds the overwritten value of a statement that is undone; None for an array, element by element.
    live : set of Block
        The blocks that have a reverse.
    cost : float
        Bytes that are recorded, if each loop has `ITERATIONS`.
    """

    def __init__(self) -> None:
        self.records: dict[Block, list[Content]] = {}
        self.reloads: dict[Block, dict[int, list[Load | Read]]] = {}
        self.olds: dict[Block, dict[int, Value | None]] = {}
        self.live: set[Block] = set()
        self.cost = 0.0
        self.recorded_locations: dict[Location, float] = {}
        self.readers: list[tuple[Location, Place]] = []


class Planner:
    """Finds the plan of least cost.

    Parameters
    ----------
    tree : BlockTree
        The blocks of the forward sweep.
    adjoint : Adjoint
        The reverse sweep in terms of the forward sweep.
    definitions : dict
        By leaf: the statement of the forward sweep that defines it.
    forward : collection of Node
        What the forward sweep computes.
    """

    def __init__(
        self,
        tree: BlockTree,
        adjoint: Adjoint,
        definitions: dict[Content, Statement],
        forward: Collection[Node],
    ) -> None:
        self._tree = tree
        self._adjoint = adjoint
        self._definitions = definitions
        self._forward = forward
        self._weights: dict[Block, float] = {}
        for block in tree.blocks:
            around = 1.0 if block.parent is None else self._weights[block.parent]
            self._weights[block] = around * (ITERATIONS if block.is_loop else 1)
        self._needs = {block: list(self._needs_of(block)) for block in tree.blocks}

    def best(self) -> Plan:
        """Return the plan: a location is restored where that makes the tape smaller."""
        forced = {
            span.pointer.memory
            for place, span in self._adjoint.contents
            if self._tree.is_changed_after(span.pointer.memory, Place(place.block, place.position - 1))
        }
        restored: set[Location] = set(forced)
        best = self._plan(restored)
        trials = 0
        while trials < MOST_TRIALS:
            candidates = [
                x
                for x in sorted(best.recorded_locations, key=lambda x: -best.recorded_locations[x])
                if x not in restored
            ]
            sets = [{*restored, x} for x in candidates]
            if len(candidates) > 1:
                sets.append({*restored, *candidates})
            plans = []
            for chosen in sets[: MOST_TRIALS - trials]:
                trials += 1
                plans.append((self._plan(chosen), chosen))
            plan, chosen = min(plans, key=lambda each: each[0].cost, default=(best, restored))
            if plan.cost >= best.cost:
                break
            best, restored = plan, chosen
        return best

    def _needs_of(self, block: Block) -> Iterator[tuple[int, Statement, Content]]:
        """Yield what the steps of a block need of the forward sweep, with the position and the step."""
        for position, steps in self._adjoint.steps[block].items():
            for step in steps:
                for statement in walk([step]):
                    for content in uses(statement):
                        for needed in self._of_forward_sweep(content, block):
                            yield position, step, needed

    def _of_forward_sweep(self, content: Content, block: Block) -> list[Content]:
        """Return the largest parts of an expression in a block that are computed from the forward sweep alone."""
        places = self._tree.places
        if isinstance(content, Pointer):
            return [content] if places.get(content) is not None else []
        if isinstance(content, Literal):
            return []
        self._tree.place_of(content, block)
        _, leaves = extract([content], stop=lambda x: not x.is_made or places.get(x) is not None)
        return [leaf for leaf in leaves if places.get(leaf) is not None]

    def _plan(self, restored: Collection[Location]) -> Plan:
        """Return the plan for restored locations; a second pass undoes only what some load would see."""
        plan = self._plan_for(restored, None)
        if not restored:
            return plan
        readers = plan.readers
        readers += [(span.pointer.memory, place) for place, span in self._adjoint.contents]
        return self._plan_for(restored, readers)

    def _plan_for(
        self, restored: Collection[Location], readers: Sequence[tuple[Location, Place]] | None
    ) -> Plan:
        plan = Plan()
        demands: dict[Block, dict[Content, int]] = {block: {} for block in self._tree.blocks}
        for block in reversed(self._tree.blocks):
            needs = demands[block]
            self._undo(plan, block, restored, readers, needs)
            if not self._is_live(plan, block):
                continue
            plan.live.add(block)
            for position, step, content in self._needs[block]:
                inner = self._adjoint.inner.get(step)
                if inner is None or not plan.live.isdisjoint(inner):
                    needs[content] = max(position, needs.get(content, -1))
            if block.parent is None:
                continue
            outer = demands[block.parent]
            for content in self._resolve(plan, block, needs, restored):
                outer[content] = max(block.place, outer.get(content, -1))
            olds = [old for old in plan.olds[block].values() if old is not None]
            plan.records[block] = [*plan.records[block], *olds]
            weight = self._weights[block]
            plan.cost += weight * sum(_bytes(content) for content in plan.records[block])
        return plan

    def _is_live(self, plan: Plan, block: Block) -> bool:
        if plan.olds[block] or self._adjoint.begins[block] or block.parent is None:
            return True
        inner = self._adjoint.inner
        return any(
            step not in inner or not plan.live.isdisjoint(inner[step])
            for steps in self._adjoint.steps[block].values()
            for step in steps
        )

    def _undo(
        self,
        plan: Plan,
        block: Block,
        restored: Collection[Location],
        readers: Sequence[tuple[Location, Place]] | None,
        needs: dict[Content, int],
    ) -> None:
        """Enter the statements of a block that are undone, and what is needed for that."""
        olds = plan.olds[block] = {}
        if not restored:
            return
        for position, statement in enumerate(block.statements):
            place = Place(block, position)
            for location in written(statement):
                if location not in restored or not (
                    readers is None
                    or any(
                        read is location and self._tree.may_precede(where, place) for read, where in readers
                    )
                ):
                    continue
                contents: list[Content] = []
                if isinstance(statement, Apply):
                    olds[position] = None
                    for span in statement.outputs:
                        contents += [span.pointer, span.offset]
                        size = span.aval.size * span.aval.dtype.itemsize
                        plan.cost += self._weights[block] * size
                elif isinstance(statement, Store):
                    olds[position] = leaf(statement.value.dtype)
                    contents += [statement.pointer, statement.index]
                elif isinstance(statement, Assign) and isinstance(statement.value, Value):
                    olds[position] = leaf(statement.value.dtype)
                for content in contents:
                    for needed in self._of_forward_sweep(content, block):
                        needs[needed] = max(position, needs.get(needed, -1))

    def _resolve(
        self, plan: Plan, block: Block, needs: dict[Content, int], restored: Collection[Location]
    ) -> list[Content]:
        """Enter the record and the loads of a block; return what is needed of the blocks around it."""
        while True:  # terminates: each round but the last needs more, or something earlier
            outer, more = self._resolve_once(plan, block, needs, restored)
            grown = [content for content, last in more.items() if needs.get(content, -2) < last]
            if not grown:
                return outer
            for content in grown:
                needs[content] = more[content]

    def _resolve_once(
        self, plan: Plan, block: Block, needs: dict[Content, int], restored: Collection[Location]
    ) -> tuple[list[Content], dict[Content, int]]:
        """Enter what `_resolve` does; return what is needed of other blocks, and what the loads need of this one."""
        places = self._tree.places
        outer: dict[Content, None] = {}
        values: list[Value] = []
        pointers: list[Pointer] = []
        for content in needs:
            if self._stands(content, block):
                (pointers if isinstance(content, Pointer) else values).append(content)  # type: ignore[arg-type]
            else:
                outer[content] = None

        def is_leaf(value: Value) -> bool:
            return not value.is_made or not self._stands(value, block)

        nodes, _ = extract(values, stop=is_leaf)
        last: dict[Content, int] = {value: needs[value] for value in values}
        for node in reversed(nodes):
            latest = max(last.get(out, -1) for out in node.outs)
            for operand in node.inputs:
                last[operand] = max(latest, last.get(operand, -1))
        for content in (
            last
        ):  # cotangents of what stands before a load may need it: it is repeated at its own place then
            place = places.get(content)
            if place is not None and place.block is block:
                last[content] = max(last[content], place.position)
        gone = [
            value
            for value in last
            if isinstance(value, Value)
            and not value.is_made
            and self._stands(value, block)
            and not self._is_readable(value, block, last[value], restored)
        ]
        recorded: list[Content] = list(residuals(gone, values, nodes, self._forward, ()))
        for value in gone:
            location = self._location(value)
            if location is not None:
                before = plan.recorded_locations.get(location, 0.0)
                plan.recorded_locations[location] = before + self._weights[block] * _bytes(value)
        for pointer in pointers:
            place = places[pointer]
            assert place is not None
            last[pointer] = max(needs[pointer], place.position)
            if not self._is_readable(pointer, block, last[pointer], restored):
                recorded.append(pointer)
        kept = set(recorded)
        _, leaves = extract(values, stop=lambda value: value in kept or is_leaf(value))
        more: dict[Content, int] = {}
        reloads: dict[int, list[Load | Read]] = {}
        found: list[Content] = [*leaves, *pointers]
        for content in found:
            if content in kept:
                continue
            if not self._stands(content, block):
                outer[content] = None
                continue
            if content in self._tree.counted:
                continue
            statement = self._definitions.get(content)
            if isinstance(statement, Load | Read):
                reloads.setdefault(last[content], []).append(statement)
                place = places[content]
                location = self._location(content)
                assert place is not None and location is not None
                plan.readers.append((location, place))
                if isinstance(statement, Load):
                    for needed in (*self._of_forward_sweep(statement.index, block), statement.pointer):
                        more[needed] = max(last[content], more.get(needed, -1))
        plan.records[block] = recorded
        plan.reloads[block] = reloads
        return list(outer), more

    def _stands(self, content: Content, block: Block) -> bool:
        place = self._tree.places.get(content)
        return place is not None and place.block is block

    def _location(self, content: Content) -> Location | None:
        statement = self._definitions.get(content)
        if isinstance(statement, Load):
            return statement.pointer.memory
        return statement.variable if isinstance(statement, Read) else None

    def _is_readable(self, content: Content, block: Block, last: int, restored: Collection[Location]) -> bool:
        """Return whether a leaf of a block can be had again when the reverse sweep comes to the position where it is first needed."""
        place = self._tree.places[content]
        assert place is not None
        if content in self._tree.counted:
            return True
        location = self._location(content)
        if location is None:
            return False
        if location in restored:
            return not self._tree.is_changed_between(location, block, place.position, last)
        return not self._tree.is_changed_after(location, place)


def _bytes(content: Content) -> int:
    return 8 if isinstance(content, Pointer) else content.dtype.itemsize
