"""The data-flow fixpoint of a loop: how it carries each name, joined over passes over its body until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from gradtape.frontend.interpreter import Interpreter
from gradtape.frontend.loops.growing_lists import (
    Growth,
    joined,
    most,
    movable,
    type_of_items,
    with_room,
)
from gradtape.frontend.loops.merged_lists import LoopMerges, all_keys
from gradtape.frontend.loops.storage import (
    Constant,
    Scalar,
    Slot,
    Storage,
    StorageLattice,
    arrays_of,
    assign_all,
    holds,
)
from gradtape.frontend.structure import ForLoop, WhileLoop
from gradtape.frontend.values import (
    MISSING,
    Conflict,
    GrowingList,
    ListReference,
    NeedsStaticError,
    refuse,
    same,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64, aval
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.view import ArrayView, Expression
from gradtape.procedures.ir import Pointer, Statement
from gradtape.procedures.traversal import stored

MOST_SMALL: Final = 16
"""Iterations up to which a loop is unrolled that indexes tuples of numbers."""

MOST_PASSES: Final = 24
"""Passes after which a fixpoint over the carries of a loop is given up."""


class Fixpoint:
    """The passes over one loop, until the storage of each name that it carries covers what its body leaves in it.

    Each pass interprets the body with the join of the values at its beginning and its end (G. Kildall, "A unified approach to global
    program optimization", 1973). Chains of storage classes are short; bounds of integers are widened (P. Cousot and R. Cousot,
    "Abstract interpretation", 1977).

    Parameters
    ----------
    interpreter : Interpreter
    node : ForLoop or WhileLoop
    key : object
        Names the loop in all passes over loops around it.
    count : int, Value or None
        The trip count, or what it is not above; None if that is not known.
    """

    def __init__(
        self, interpreter: Interpreter, node: ForLoop | WhileLoop, key: Any, count: Any = None
    ) -> None:
        self.count = count
        self.growths: dict[ListReference, Growth] = interpreter.growths.setdefault(key, {})
        self.grown: dict[ListReference, GrowingList] = {}
        self.moving: dict[ListReference, GrowingList] = {}
        self.trip: Any = None
        self.interpreter = interpreter
        self.node = node
        self.storages = interpreter.storages.setdefault(key, {})
        self.before = interpreter.state()
        self.names = sorted(node.assigned & node.live)
        self.slots: dict[Any, Slot] = {}
        self.current: dict[Any, Storage] = {}
        self.lattice = StorageLattice(interpreter.build)
        self.has_changed = False
        self.widened_bounds = interpreter.widened_bounds.setdefault(key, {})
        self.merges = LoopMerges(interpreter.merged_lists.setdefault(key, {}))
        self.entries: dict[Any, Any] = {}
        self.lengths: dict[ListReference, Any] = {}
        self.body: list[Statement] = []
        self.bounds: dict[str, tuple[list[Any], list[Any]]] = {}
        self.aliased: dict[tuple[Any, str], None] = {}
        self.entered: list[tuple[Pointer, Pointer]] = []
        self.ends: dict[Any, Any] = {}

    def run(self, one_pass: Callable[[Fixpoint], None]) -> None:
        """Make passes; the statements of the last one are kept."""
        interpreter, build = self.interpreter, self.interpreter.build
        mark = build.mark()
        appended, roomy = interpreter.appended, interpreter.roomy
        interpreter.loops += 1
        try:
            self._run(one_pass, mark)
            inside = interpreter.appended
        finally:
            interpreter.loops -= 1
            interpreter.appended, interpreter.roomy = appended, roomy
        trips = most(self.count, build.counts)
        for key, number in inside.items():
            before = appended.get(key, 0)
            if before is None or number is None or trips is None:
                appended[key] = None
            else:
                appended[key] = before + number * max(trips, 0)

    def _run(self, one_pass: Callable[[Fixpoint], None], mark: int) -> None:
        interpreter, build, roomy = self.interpreter, self.interpreter.build, self.interpreter.roomy
        copied, site = len(build.copied), here.site
        for _ in range(MOST_PASSES):
            here.site = site  # of the loop, not of the last line of its body
            statements: list[Statement] = []
            interpreter.appended, interpreter.roomy = {}, set(roomy)
            with build.block(statements):
                self.enter()
                one_pass(self)
                if not self.has_changed:
                    self.leave()
            if not self.has_changed:
                for statement in statements:
                    build.append(statement)
                return
            interpreter.restore(self.before)
            build.forget(mark)
            del build.copied[copied:]
        refuse("the types that a loop carries from one iteration to the next do not converge")

    def enter(self) -> None:
        """Append what stores the first values of the carries."""
        build = self.interpreter.build
        names, lists = self.before
        self.has_changed = False
        self.lattice = lattice = StorageLattice(build, build.next_serial)
        merges = self.merges
        merges.begin()
        entries: dict[Any, Any] = {
            name: merges.entered((name,), names.get(name, MISSING)) for name in self.names
        }
        self.entries = entries
        contents = merges.contents(lists)
        carried = merges.entries.keys() | merges.roots() | self.storages.keys()
        entries.update((key, contents[key]) for key in contents if key in carried)
        self.interpreter.shared_lists.add_merges(merges.entries, lists)
        self._enter_growing(contents)
        entries.update(self.moving)
        self.current = {
            key: lattice.join(lattice.initial(self.storages.get(key), value), value)
            for key, value in entries.items()
        }
        lengths = {key: grown.length for key, grown in self.grown.items() if self._step(key) is None}
        self.current.update(dict.fromkeys(lengths, Scalar(aval((), INT64, True))))
        entries.update(lengths)
        self.slots = {
            key: Slot(build, storage, _name(key))
            for key, storage in self.current.items()
            if not isinstance(storage, Constant)
        }
        self.bounds = {key: self._bounds(key, entries[key]) for key in self._counters()}
        copied = len(build.copied)
        assign_all(self.slots, entries)
        self.entered = build.copied[copied:]
        lattice.first = build.next_serial
        lattice.owned = {view.pointer.memory for slot in self.slots.values() for view in slot.arrays()}

    def _enter_growing(self, lists: dict[ListReference, Any]) -> None:
        """Append what makes room for the items that the loop appends to lists."""
        interpreter = self.interpreter
        counts = interpreter.build.counts
        self.trip, self.grown, self.moving = None, {}, {}
        for key, growth in self.growths.items():
            content = lists.get(key)
            if content is None:  # another one stands for it in this pass over a loop around
                continue
            if growth.room is None:
                self.moving[key] = movable(interpreter.build, content, growth.type)
                continue
            if (
                key in interpreter.roomy
                and isinstance(content, GrowingList)
                and joined(content.type, growth.type) is content.type
            ):
                self.grown[key] = content
                continue
            room = ix.multiply(ix.maximum(self.count, 0, counts), growth.room)
            self.grown[key] = with_room(interpreter.build, content, growth.type, room)
            interpreter.roomy.add(key)

    def _step(self, key: ListReference) -> int | None:
        """Return by how much a list is longer after each iteration, if that is known and no iteration may be the last."""
        return None if self.stops() else self.growths[key].step

    def _join_growth(self, key: ListReference, before: Any, after: Any) -> None:
        """Storage for a list that an iteration leaves with another length."""
        appended = self.interpreter.appended.get(key, 0)
        old = self.growths.get(key)
        type_ = type_of_items(after) if old is None else joined(old.type, type_of_items(after))
        if before != () and not isinstance(before, GrowingList):
            type_ = joined(type_of_items(before), type_)
        small = isinstance(self.count, int) and self.count <= MOST_SMALL
        length = None if isinstance(after, Conflict) else _length(after)
        if type_ is None or (small and old is None and isinstance(length, int)):
            refuse_items("the items that a loop appends to a list have different types")
        if appended is None or self.count is None or (old is not None and old.room is None):
            if old is None or old.room is not None or old.type is not type_:
                self.growths[key] = Growth(type_, None, None)
                self.storages.pop(key, None)
                self.has_changed = True
            return
        grown = None if length is None else ix.difference(length, _length(before))
        step = grown if old is None or old.step == grown else None
        new = Growth(type_, max(appended, (old and old.room) or 0), step)
        if old is None or not (old.type is new.type and old.room == new.room and old.step == new.step):
            self.growths[key] = new
            self.storages.pop(key, None)
            self.has_changed = True

    def _counters(self) -> list[str]:
        """Return the names that hold integers which change."""
        return [
            key
            for key, storage in self.current.items()
            if isinstance(storage, Scalar) and storage.type.dtype == INT64 and isinstance(key, str)
        ]

    def _bounds(self, key: str, entry: Any) -> tuple[list[Any], list[Any]]:
        """Return the lower and upper bounds of an integer that are assumed until an iteration widens them: at first, its first value."""
        if not isinstance(entry, int | np.integer | Value):
            return [], []
        first = ix.polynomial(ix.extent(entry))
        return self.widened_bounds.get((key, 1), [first]), self.widened_bounds.get((key, -1), [first])

    def _widen_bounds(self, key: str, value: Any) -> None:
        """Widen the bounds that an iteration does not keep: to a number the first time, then to none."""
        counts = self.interpreter.build.counts
        if not any(self.bounds[key]):
            return
        first, last = ix.extent(self.before[0][key]), ix.extent(value)
        for bounds, sign in zip(self.bounds[key], (1, -1), strict=True):
            gaps = [ix.minus(ix.scaled(last, sign), ix.scaled(bound, sign)) for bound in bounds]
            if all(ix.is_not_negative(gap, counts) for gap in gaps):
                continue
            lowest = [ix.lowest(ix.multiply(x, sign), counts) for x in (first, last)]
            numbers = [number for number in lowest if number is not None]
            has_number = (key, sign) not in self.widened_bounds and len(numbers) == 2
            self.widened_bounds[key, sign] = [ix.polynomial(sign * min(numbers))] if has_number else []
            self.has_changed = True

    def begin(self) -> None:
        """Append what reads the carries, at the beginning of an iteration or after the loop."""
        interpreter = self.interpreter
        for key, storage in self.current.items():
            if key in self.grown:
                continue
            value = storage.value if isinstance(storage, Constant) else self.slots[key].read()
            if key in self.bounds:
                interpreter.build.counts.limit(value, *self.bounds[key])
            self._put(key, value)
        self._begin_growing()
        interpreter.dead = False
        for key, other in self.aliased:
            for view in arrays_of(interpreter.names.get(other)):
                own_arrays = self.slots[key].arrays() if key in self.slots else []
                interpreter.build.copied += [(array.pointer, view.pointer) for array in own_arrays]

    def _begin_growing(self) -> None:
        """Let growing lists have the length that they have at the beginning of an iteration, or after the loop."""
        for key, grown in self.grown.items():
            step = self._step(key)
            if step is None:
                length = self.slots[key].read()
                first = ix.polynomial(ix.extent(0))
                self.interpreter.build.counts.limit(length, [first], [])
            else:
                length = ix.add(grown.length, ix.multiply(self.trip, step))
            self.interpreter.lists[key] = GrowingList(grown.arrays, grown.type, length)
            self.lengths[key] = length

    def _put(self, key: Any, value: Any) -> None:
        if isinstance(key, ListReference):
            self.interpreter.lists[key] = value
        else:
            self.interpreter.names[key] = value

    def end(self) -> None:
        """Join what an iteration leaves with the storage of the carries; append what stores it if that covers it."""
        ends = self._values_at_end()
        self._join(ends)
        self._note_aliases(ends)
        if not self.has_changed and not self.interpreter.dead:
            self._check_shared(ends)
            assign_all(self.slots, ends)
            self.ends = ends

    def _values_at_end(self) -> dict[Any, Any]:
        """Return what an iteration leaves in the carries: nothing, if none comes to its end."""
        interpreter = self.interpreter
        if interpreter.dead:
            return {}
        merges, lists = self.merges, self.before[1]
        ends: dict[Any, Any] = {
            name: merges.ended((name,), self.entries[name], interpreter.names.get(name, MISSING), lists)
            for name in self.names
        }
        for key, before in lists.items():
            after = self._list_at_end(key, self.entries.get(key, before))
            if after is not None:
                ends[key] = merges.ended((key,), self.entries.get(key, before), after, lists)
        for key in all_keys(merges.ends):
            after = self._merged_at_end(key, interpreter.lists[merges.ends[key]])
            if after is not None:
                ends[key] = merges.ended((key,), self.entries[key], after, lists)
        is_new = interpreter.shared_lists.add_merges(merges.ends, lists)
        self.has_changed |= is_new or merges.has_changed
        return ends

    def _merged_at_end(self, key: ListReference, after: Any) -> Any:
        """Return what the next iteration takes as the content of a merged list; None if another pass has to find out."""
        if key not in self.entries:  # it was made in this pass
            if key in self.merges.undefined:
                self.storages[key] = self.lattice.join(Constant(MISSING), after)
            return None
        before = self.entries[key]
        if key in self.moving and type_of_items(after) is self.moving[key].type:
            return movable(self.interpreter.build, after, self.moving[key].type)
        if before is MISSING or isinstance(before, Conflict) or not _grows(before, after):
            return after
        type_ = joined(type_of_items(before), type_of_items(after)) if before != () else type_of_items(after)
        if type_ is None or (key in self.moving and type_ is self.moving[key].type):
            refuse_items("the items of a list have other types after an iteration")
        self.growths[key] = Growth(type_, None, None)
        self.storages.pop(key, None)
        self.has_changed = True
        return None

    def _list_at_end(self, key: ListReference, before: Any) -> Any:
        """Return what the next iteration takes of a list, its content or its length; None if all iterations have the same."""
        after = self.interpreter.lists.get(key, before)
        if key in self.grown:
            grown = self.grown[key]
            self._join_growth(key, GrowingList(grown.arrays, grown.type, self.lengths[key]), after)
            return after.length if self._step(key) is None and isinstance(after, GrowingList) else None
        if key in self.moving:
            if type_of_items(after) is self.moving[key].type:
                return after
            self._join_growth(key, before, after)
            return None
        if same(before, after):
            return after if key in self.current and not _is_movable(before) else None
        if not _is_movable(before) and _grows(before, after):
            self._join_growth(key, before, after)
            return None
        return after

    def _join(self, ends: dict[Any, Any]) -> None:
        """Join the storage of the carries with what an iteration leaves; widen the bounds of integers that it does not keep."""
        for key, value in ends.items():
            old = self.current.get(key) or Constant(self.before[1].get(key))
            new = self.lattice.join(old, value)
            if (
                isinstance(key, ListReference)
                and isinstance(new, Constant)
                and isinstance(new.value, Conflict)
            ):
                refuse_items("the items of a list have other types after an iteration")
            if new is not old:
                self.storages[key] = new
                self.has_changed = True
            elif key in self.bounds and isinstance(value, int | np.integer | Value):
                self._widen_bounds(key, value)

    def _note_aliases(self, ends: dict[Any, Any]) -> None:
        """Note which names hold arrays, at the end of an iteration, of which the next one has copies."""
        names = self.interpreter.names
        aliases = [
            (key, other)
            for key, slot in self.slots.items()
            for view in arrays_of(ends.get(key))
            if slot.arrays()
            for other in sorted(self.node.live)
            if other != key and holds(names.get(other), view.pointer.memory)
        ]
        if not self.aliased.keys() >= set(aliases):
            self.aliased.update(dict.fromkeys(aliases))
            self.has_changed = True

    def _check_shared(self, ends: dict[Any, Any]) -> None:
        """Refuse arrays that a loop binds anew and also writes to, if another name holds the same one: theirs would be another copy."""
        written = {pointer.memory for pointer in stored(self.body)}
        for key, slot in self.slots.items():
            if slot.view is None or slot.view.pointer.memory not in written:
                continue
            end = ends.get(key)
            others = [value for other, value in ends.items() if other != key]
            if self._is_shared(self.before[0].get(key), key) or (
                isinstance(end, ArrayView) and any(holds(value, end.pointer.memory) for value in others)
            ):
                refuse(
                    f"the array {_name(key)} is written and also bound anew in a loop, and another name holds it",
                    f"write into the array instead ({_name(key)}[:] = ...), or copy it before the loop",
                )

    def _is_shared(self, entry: Any, key: Any) -> bool:
        """Return whether somebody else holds the array that a name holds before the loop."""
        if not isinstance(entry, ArrayView):
            return False
        memory, build = entry.pointer.memory, self.interpreter.build
        if any(
            isinstance(parameter, Pointer) and parameter.memory is memory for parameter in build.parameters
        ):
            return True
        frames = self.interpreter.frames
        live = self.node.live | self.node.live_after
        mine = [value for name, value in self.before[0].items() if name != key and name in live]
        theirs = [value for frame in frames[:-1] for value in frame.names.values()]
        return any(holds(value, memory) for value in (*mine, *theirs, *self.before[1].values()))

    def leave(self) -> None:
        """Let names hold what the loop leaves in them."""
        interpreter = self.interpreter
        interpreter.restore(self.before)
        self.trip = None if self.count is None else ix.maximum(self.count, 0, interpreter.build.counts)
        self.begin()
        for key in self.grown:
            content = interpreter.lists[key]
            if _is_movable(self.before[1][key]):  # there was room for this loop; one around may append more
                interpreter.lists[key] = GrowingList(content.arrays, content.type, content.length, True)
        if isinstance(self.count, int):
            rebound = {
                slot.view.pointer
                for key, slot in self.slots.items()
                if slot.view is not None and self._is_rebound(key, slot.view)
            }
            for pair in self.entered:
                if not rebound.isdisjoint(pair):
                    interpreter.build.copied.remove(pair)

    def _is_rebound(self, key: Any, own_view: ArrayView) -> bool:
        """Return whether each iteration lets a name hold another array than at its beginning."""
        end, entry = self.ends.get(key), self.before[0].get(key)
        own_and_entry = [own_view, *arrays_of(entry)]
        return isinstance(end, Expression) and not any(
            holds(end, view.pointer.memory) for view in own_and_entry
        )

    def stops(self) -> bool:
        """Return whether the loop may end by a jump."""
        return any(not isinstance(self.current[name], Constant) for name in self.node.stops)


def refuse_items(message: str) -> NoReturn:
    """Raise the error for a list whose items a loop cannot carry; the loop is unrolled if it is short."""
    raise NeedsStaticError(
        message, where=here.site, remedy="write into an array: out = np.empty(n); out[i] = x"
    )


def _grows(before: Any, after: Any) -> bool:
    """Return whether the length of a list differs between the beginning and the end of an iteration, or may differ."""
    if isinstance(before, Conflict):
        return False
    return isinstance(after, GrowingList | Conflict) or _length(before) != _length(after)


def _is_movable(content: Any) -> bool:
    return isinstance(content, GrowingList) and content.is_movable


def _length(content: Any) -> Any:
    return content.length if isinstance(content, GrowingList) else len(content)


def _name(key: Any) -> str:
    return "list" if isinstance(key, ListReference) else "t" if key[0] == "$" else key.partition(".")[0]
