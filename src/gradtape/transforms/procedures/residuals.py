"""How the values of the forward sweep come to the reverse sweep: from the tape, by new loads, or by computation from these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gradtape.costs import EXPENSIVE_ON_TAPE, UNKNOWN_TRIP_COUNT
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.kinds.elementwise import Elementwise
from gradtape.procedures.builder import leaf
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    Load,
    Pointer,
    Read,
    Statement,
    Store,
)
from gradtape.statements import walk
from gradtape.transforms.loops.residuals import is_expensive, residuals
from gradtape.transforms.procedures.activity import Location
from gradtape.transforms.procedures.adjoint import Adjoint
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place, written
from gradtape.transforms.procedures.checkpoint import Rerun
from gradtape.transforms.procedures.dependence import Dependence

MOST_EXTRA: Final = 128
"""Bytes, from which a record is not made larger to save the computation of expensive rows."""

Reader: TypeAlias = tuple[Location, Statement, Place]
"""A location that the reverse sweep reads again, the statement that read or wrote it, and where."""

MOST_TRIALS: Final = 16
"""Sets of restored locations that are compared."""


class Plan:
    """The values that the forward sweep records, and those that the reverse sweep restores, loads and recomputes.

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
        Bytes that are recorded, if each loop has `UNKNOWN_TRIP_COUNT` iterations.
    """

    def __init__(self) -> None:
        self.records: dict[Block, list[Content]] = {}
        self.reloads: dict[Block, dict[int, list[Load | Read]]] = {}
        self.olds: dict[Block, dict[int, Value | None]] = {}
        self.live: set[Block] = set()
        self.cost = 0.0
        self.order: dict[Statement, int] = {}
        self.recorded_locations: dict[Location, float] = {}
        self.readers: list[Reader] = []


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
    dependence : Dependence
        Of the procedure.
    reruns : mapping of Block to Rerun
        The loops that run again in the reverse sweep: what they read then is there.
    """

    def __init__(
        self,
        tree: BlockTree,
        adjoint: Adjoint,
        definitions: dict[Content, Statement],
        forward: Collection[Node],
        dependence: Dependence,
        reruns: Mapping[Block, Rerun],
    ) -> None:
        self._reruns = reruns
        self._tree = tree
        self._adjoint = adjoint
        self._definitions = definitions
        self._forward = forward
        self._dependence = dependence
        self._stores: dict[Location, list[tuple[Statement, Place]]] = {}
        for block in tree.blocks:
            for position, statement in enumerate(block.statements):
                for location in written(statement):
                    self._stores.setdefault(location, []).append((statement, Place(block, position)))
        self._stored: dict[Block, dict[Value, tuple[Store, int]]] = {
            block: {
                statement.value: (statement, position)
                for position, statement in enumerate(block.statements)
                if isinstance(statement, Store) and statement.value.dtype.kind in "fc"
            }
            for block in tree.blocks
        }
        self._accessed: dict[Block, set[Location]] = {
            block: {
                statement.variable if isinstance(statement, Read) else statement.pointer.memory
                for statement in block.statements
                if isinstance(statement, Load | Read | Store)
            }
            for block in tree.blocks
        }
        self._again: list[tuple[Location, Statement, Place, Block]] = []
        self._resolved: dict[object, tuple[list[Content], Plan]] = {}
        self._weights: dict[Block, float] = {}
        for block in tree.blocks:
            around = 1.0 if block.parent is None else self._weights[block.parent]
            self._weights[block] = around * (UNKNOWN_TRIP_COUNT if block.is_loop else 1)
        self._needs = {block: list(self._needs_of(block)) for block in tree.blocks}

    def best(self) -> Plan:
        """Return the plan: a location is restored where that makes the tape smaller."""
        forced = {
            span.pointer.memory
            for place, span in self._adjoint.contents
            if self._tree.is_changed_after(span.pointer.memory, Place(place.block, place.position - 1))
        }
        for rerun in self._reruns.values():
            parent = rerun.block.parent
            assert parent is not None
            after = Place(parent, rerun.block.place)
            for access, place in rerun.accesses:
                for memory in dict.fromkeys(pointer.memory for pointer in access.pointers_read()):
                    if memory not in rerun.own and self._tree.is_changed_after(memory, after):
                        forced.add(memory)
                        self._again.append((memory, access, place, rerun.block))
        restored: set[Location] = set(forced)
        best = self._plan(restored)
        trials = 0
        while trials < MOST_TRIALS:
            candidates = [
                x
                for x in sorted(best.recorded_locations, key=lambda x: -best.recorded_locations[x])
                if x not in restored and not any(x in rerun.totals for rerun in self._reruns.values())
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
        extracted_of_block: set[Value] = (
            set()
        )  # by steps that are there in any plan; these come with the latest position first
        for position, steps in self._adjoint.steps[block].items():
            for step in steps:
                extracted = set(extracted_of_block) if step in self._adjoint.inner else extracted_of_block
                for inner in self._adjoint.inner.get(step, ()):
                    if inner in self._reruns:
                        for content in self._reruns[inner].contents:
                            for needed in self._of_forward_sweep(content, block):
                                yield position, step, needed
                for statement in walk([step]):
                    for content in statement.uses():
                        for needed in self._of_forward_sweep(content, block, extracted):
                            yield position, step, needed

    def _of_forward_sweep(
        self, content: Content, block: Block, already_extracted: set[Value] | None = None
    ) -> list[Content]:
        """Return the largest parts of an expression in a block that are computed from the forward sweep alone.

        What depends on the reverse sweep and is in `already_extracted` is left out, and is entered there.
        """
        places = self._tree.places
        if isinstance(content, Pointer):
            return [content] if places.get(content) is not None else []
        if isinstance(content, Literal):
            return []
        self._tree.place_of(content, block)
        extracted: set[Value] = set() if already_extracted is None else already_extracted
        nodes, leaves = extract(
            [content], stop=lambda x: not x.is_made or places.get(x) is not None or x in extracted
        )
        extracted.update(out for node in nodes for out in node.outs)
        return [leaf for leaf in leaves if places.get(leaf) is not None]

    def _plan(self, restored: Collection[Location]) -> Plan:
        """Return the plan for restored locations, where only what some load would see is undone."""
        readers: list[Reader] = [
            (span.pointer.memory, place.block.statements[place.position], place)
            for place, span in self._adjoint.contents
        ]
        while True:  # terminates: each round but the last has more readers
            plan = self._plan_for(restored, readers)
            accesses = {access for _, access, _ in readers}
            new_readers = [reader for reader in plan.readers if reader[1] not in accesses]
            if not new_readers or not restored:
                return plan
            readers += new_readers

    def _plan_for(self, restored: Collection[Location], readers: Sequence[Reader]) -> Plan:
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
            overwritten = [old for old in plan.olds[block].values() if old is not None]
            plan.records[block] = [*plan.records[block], *overwritten]
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
        readers: Sequence[Reader],
        needs: dict[Content, int],
    ) -> None:
        """Enter the statements of a block that are undone, and their demands."""
        overwritten = plan.olds[block] = {}
        if not restored:
            return
        for position, statement in enumerate(block.statements):
            place = Place(block, position)
            for location in written(statement):
                if location not in restored or not (
                    any(
                        read is location and self._overwrites(location, statement, place, access, where)
                        for read, access, where in readers
                    )
                    or any(
                        read is location
                        and loop not in block.around()
                        and self._overwrites(location, statement, place, access, where)
                        for read, access, where, loop in self._again
                    )
                ):
                    continue
                contents: list[Content] = []
                if isinstance(statement, Apply):
                    overwritten[position] = None
                    for span in statement.outputs:
                        contents += [span.pointer, span.offset]
                        size = span.aval.size * span.aval.dtype.itemsize
                        plan.cost += self._weights[block] * size
                elif isinstance(statement, Store):
                    overwritten[position] = leaf(statement.value.dtype)
                    contents += [statement.pointer, statement.index]
                elif isinstance(statement, Assign) and isinstance(statement.value, Value):
                    overwritten[position] = leaf(statement.value.dtype)
                for content in contents:
                    for needed in self._of_forward_sweep(content, block):
                        needs[needed] = max(position, needs.get(needed, -1))

    def _resolve(
        self, plan: Plan, block: Block, needs: dict[Content, int], restored: Collection[Location]
    ) -> list[Content]:
        """Enter the record and the loads of a block; return what is needed of the blocks around it."""
        key = block, frozenset(needs.items()), frozenset(self._accessed[block].intersection(restored))
        resolution = self._resolved.get(key)
        if resolution is None:
            resolution = self._resolved[key] = self._resolve_anew(block, dict(needs), restored)
        outer, part = resolution
        plan.records[block] = part.records[block]
        plan.reloads[block] = part.reloads[block]
        plan.order.update(part.order)
        plan.readers += part.readers
        for location, cost in part.recorded_locations.items():
            plan.recorded_locations[location] = plan.recorded_locations.get(location, 0.0) + cost
        return outer

    def _resolve_anew(
        self, block: Block, needs: dict[Content, int], restored: Collection[Location]
    ) -> tuple[list[Content], Plan]:
        """Return the demands on the blocks around a block, and its part of the plan."""
        while True:  # terminates: each round but the last needs more, or something earlier
            part = Plan()
            outer, new_demands = self._resolve_once(part, block, needs, restored)
            grown = [content for content, last in new_demands.items() if needs.get(content, -2) < last]
            if not grown:
                return outer, part
            for content in grown:
                needs[content] = new_demands[content]

    def _resolve_once(
        self, plan: Plan, block: Block, needs: dict[Content, int], restored: Collection[Location]
    ) -> tuple[list[Content], dict[Content, int]]:
        """Enter what `_resolve` does; return the demands on other blocks, and those of the loads on this one.

        Leaves whose locations are clobbered are recorded, by a minimum cut; all other ones are loaded or read again.
        """
        outer: dict[Content, None] = {}
        values: list[Value] = []
        pointers: list[Pointer] = []
        for content in needs:
            if self._stands(content, block):
                (pointers if isinstance(content, Pointer) else values).append(content)  # type: ignore[arg-type]
            else:
                outer[content] = None

        latest = max(needs.values(), default=-1)
        in_memory: dict[Content, Store] = {
            value: statement
            for value, (statement, position) in self._stored[block].items()
            if self._stands(value, block)
            and self._holds(statement, Place(block, position), max(position, latest), restored)
        }

        def is_leaf(value: Value) -> bool:
            return not value.is_made or not self._stands(value, block) or value in in_memory

        nodes, _ = extract(values, stop=is_leaf)
        last = self._last_uses(block, needs, values, nodes)
        clobbered = [
            value
            for value in last
            if isinstance(value, Value)
            and not value.is_made
            and value not in in_memory
            and self._stands(value, block)
            and not self._is_readable(value, block, last[value], restored)
        ]
        recorded: list[Content] = list(self._cut(clobbered, values, nodes))
        for value in clobbered:
            location = self._location(value)
            if location is not None:
                before = plan.recorded_locations.get(location, 0.0)
                plan.recorded_locations[location] = before + self._weights[block] * _bytes(value)
        for pointer in pointers:
            place = self._tree.places[pointer]
            assert place is not None
            last[pointer] = max(needs[pointer], place.position)
            if not self._is_readable(pointer, block, last[pointer], restored):
                recorded.append(pointer)
        plan.records[block] = recorded
        saved = set(recorded)
        _, leaves = extract(values, stop=lambda value: value in saved or is_leaf(value))
        leaves_and_pointers: list[Content] = [*leaves, *pointers]
        demanded = [content for content in leaves_and_pointers if content not in saved]
        outer.update(dict.fromkeys(content for content in demanded if not self._stands(content, block)))
        reloaded = [
            content for content in demanded if content not in outer and content not in self._tree.counted
        ]
        return list(outer), self._enter_reloads(plan, block, reloaded, last, in_memory)

    def _last_uses(
        self, block: Block, needs: Mapping[Content, int], values: Sequence[Value], nodes: Sequence[Node]
    ) -> dict[Content, int]:
        """Return the last position in a block at which values are needed, and the operands of the nodes that compute them."""
        last: dict[Content, int] = {value: needs[value] for value in values}
        for node in reversed(nodes):
            latest = max(last.get(out, -1) for out in node.outs)
            for operand in node.inputs:
                last[operand] = max(latest, last.get(operand, -1))
        for content in (
            last
        ):  # cotangents of what stands before a load may need it: it is repeated at its own place then
            place = self._tree.places.get(content)
            if place is not None and place.block is block:
                last[content] = max(last[content], place.position)
        return last

    def _enter_reloads(
        self,
        plan: Plan,
        block: Block,
        contents: Sequence[Content],
        last: Mapping[Content, int],
        in_memory: Mapping[Content, Store],
    ) -> dict[Content, int]:
        """Enter the loads and reads that get contents again; return what these need of the block."""
        demands: dict[Content, int] = {}
        reloads: dict[int, list[Load | Read]] = {}
        for content in contents:
            store = in_memory.get(content)
            if store is not None and isinstance(content, Value):
                position = self._stored[block][content][1]
                reload = Load(content, store.pointer, store.index)
                when = max(last[content], position)
                reloads.setdefault(when, []).append(reload)
                plan.order[reload] = position
                plan.readers.append((store.pointer.memory, store, Place(block, position)))
                for needed in (*self._of_forward_sweep(store.index, block), store.pointer):
                    demands[needed] = max(when, demands.get(needed, -1))
                continue
            statement = self._definitions.get(content)
            if isinstance(statement, Load | Read):
                reloads.setdefault(last[content], []).append(statement)
                place = self._tree.places[content]
                location = self._location(content)
                assert place is not None and location is not None
                plan.readers.append((location, statement, place))
                if isinstance(statement, Load):
                    for needed in (*self._of_forward_sweep(statement.index, block), statement.pointer):
                        demands[needed] = max(last[content], demands.get(needed, -1))
        plan.reloads[block] = reloads
        return demands

    def _cut(self, clobbered: Sequence[Value], needed: Sequence[Value], nodes: Sequence[Node]) -> list[Value]:
        """Return what to record: results of expensive rows rather than their operands, unless these are far fewer and rows so few
        that the forward sweep computes too that their cost, in additions, is below the bytes that are saved."""
        fast = residuals(clobbered, needed, nodes, self._forward, (), EXPENSIVE_ON_TAPE)
        size = sum(map(_bytes, fast))
        if size < MOST_EXTRA:
            return fast
        small = residuals(clobbered, needed, nodes, (), (), EXPENSIVE_ON_TAPE)
        extra = size - sum(map(_bytes, small))
        if extra < MOST_EXTRA or 3 * extra <= 2 * size:
            return fast
        recomputed, _ = extract(needed, stop=lambda value: not value.is_made or value in small)
        rows = [
            node.op for node in recomputed if node in self._forward and is_expensive(node, EXPENSIVE_ON_TAPE)
        ]
        return fast if sum(row.cost for row in rows if isinstance(row, Elementwise)) >= extra else small

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
        statement = self._definitions.get(content)
        if isinstance(content, Pointer) and not self._tree.is_assigned_outermost(statement):
            return False
        return isinstance(statement, Load | Read) and self._holds(statement, place, last, restored)

    def _holds(
        self, access: Load | Store | Read, place: Place, last: int, restored: Collection[Location]
    ) -> bool:
        """Return whether a location still holds what an access read or wrote, when the reverse sweep comes to a position in its block."""
        location = access.variable if isinstance(access, Read) else access.pointer.memory
        if not self._is_overwritten(location, access, place):
            return True
        return location in restored and not self._tree.is_changed_between(
            location, place.block, place.position, last
        )

    def _is_overwritten(self, location: Location, access: Statement, place: Place) -> bool:
        """Return whether a later statement may overwrite what an access read or wrote."""
        if not isinstance(access, Load | Store):
            return self._tree.is_changed_after(location, place)
        return any(
            self._overwrites(location, statement, where, access, place)
            for statement, where in self._stores.get(location, ())
        )

    def _overwrites(
        self, location: Location, statement: Statement, where: Place, access: Statement, place: Place
    ) -> bool:
        """Return whether a statement, at `where`, may overwrite in a location what an access at `place` reads before that."""
        if isinstance(statement, Store) and isinstance(access, Load | Store):
            return self._dependence.overwrites(statement, where, access, place)
        pointers = {x for each in (statement, access) for x in each.uses() if isinstance(x, Pointer)}
        pointers = {x for x in pointers if x.memory is location}
        if len(pointers) == 1:
            (pointer,) = pointers
            home = self._tree.places.get(pointer)
            if home is not None and isinstance(self._definitions.get(pointer), Allocate):
                return self._tree.may_precede(place, where, home.block)
        return self._tree.may_precede(place, where)


def _bytes(content: Content) -> int:
    return 8 if isinstance(content, Pointer) else content.dtype.itemsize
