"""Loops in the abstract interpreter: a fixpoint over what they carry, unrolling, and the statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import numpy as np

from gradtape.frontend.carries import Fixed, Held, Plan, Planner, Slot, arrays_of, assign_all, holds
from gradtape.frontend.growing_lists import Growth, item_at, joined, most, movable, type_of_items, with_room
from gradtape.frontend.interpreter import Interpreter, get_item, in_memory
from gradtape.frontend.operators import both, counted, either, negated
from gradtape.frontend.structure import ForLoop, Run, WhileLoop
from gradtape.frontend.values import (
    MISSING,
    Conflict,
    Enumerated,
    GrowingList,
    ListReference,
    NeedsStaticError,
    Places,
    RangeValue,
    Reversed,
    Unrolled,
    Zipped,
    as_condition,
    refuse,
    same,
    shown,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal, next_serial
from gradtape.ir.types import BOOL, INT64, aval
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.view import ArrayView, Expression, Loads
from gradtape.procedures.builder import integer, leaf
from gradtape.procedures.ir import For, If, Pointer, Read, Statement, Variable, While
from gradtape.procedures.traversal import stored
from gradtape.records import record

MOST_UNROLLED: Final = 512
"""Iterations up to which a loop is unrolled that has to be."""

MOST_VALUES: Final = 8192
"""Values that the iterations of an unrolled loop may compute: the time to differentiate and compile so much code grows with its square."""

MOST_SMALL: Final = 16
"""Iterations up to which a loop is unrolled that indexes tuples of numbers."""

MOST_TINY: Final = 4
MOST_TINY_CODE: Final = 40
"""Iterations, and instructions of straight-line code, up to which a loop inside of another one is unrolled."""

MOST_PASSES: Final = 24
"""Passes after which a fixpoint over the carries of a loop is given up."""


@record
class Sequence:
    """What a loop runs over.

    Attributes
    ----------
    count : int or Value
        The number of items.
    item : callable
        Returns the item at an index, which is in range.
    is_static : bool
        Whether items may have different types, so that the loop is unrolled.
    parallel : bool
        Whether iterations may run at the same time.
    """

    count: Any
    item: Callable[[Any], Any]
    is_static: bool = False
    parallel: bool = False


def sequence(self: Interpreter, iterable: Any) -> Sequence:
    """Return an iterable as a sequence."""
    if isinstance(iterable, range):
        iterable = RangeValue(iterable.start, iterable.stop, iterable.step)
    if isinstance(iterable, RangeValue):
        start, step = iterable.start, iterable.step
        return Sequence(
            counted(self.build, iterable),
            lambda k: ix.add(start, ix.multiply(k, step)),
            parallel=iterable.parallel,
        )
    if isinstance(iterable, Enumerated):
        inner, first = sequence(self, iterable.iterable), iterable.start
        return Sequence(inner.count, lambda k: (ix.add(first, k), inner.item(k)), inner.is_static)
    if isinstance(iterable, Zipped):
        parts = [sequence(self, one) for one in iterable.iterables]
        count = parts[0].count if parts else 0
        for part in parts[1:]:
            count = ix.minimum(count, part.count, self.build.counts)
        static = any(part.is_static for part in parts)
        return Sequence(count, lambda k: tuple([part.item(k) for part in parts]), static)
    if isinstance(iterable, Reversed):
        inner = sequence(self, iterable.iterable)
        last = ix.subtract(inner.count, 1)
        return Sequence(inner.count, lambda k: inner.item(ix.subtract(last, k)), inner.is_static)
    if isinstance(iterable, Unrolled):
        inner = sequence(self, iterable.iterable)
        return Sequence(inner.count, inner.item, True)
    if isinstance(iterable, Places):
        return _places(iterable)
    if isinstance(iterable, Expression):
        if not iterable.ndim:
            refuse("iteration over a 0-d array")
        return Sequence(iterable.shape[0], lambda k: get_item(self, iterable, k))
    grown = self.growing(iterable)
    if grown is not None:
        content = grown
        return Sequence(content.length, lambda k: item_at(content, k))
    items = self.items(iterable)
    if items is None:
        refuse(f"iteration over {shown(iterable)}")
    return Sequence(len(items), lambda k: items[k], True)


def _stored(iterable: Any) -> Any:
    """Return an iterable whose arrays are in memory."""
    if isinstance(iterable, Enumerated):
        return Enumerated(_stored(iterable.iterable), iterable.start)
    if isinstance(iterable, Zipped):
        return Zipped(tuple(map(_stored, iterable.iterables)))
    if isinstance(iterable, Reversed):
        return Reversed(_stored(iterable.iterable))
    return in_memory(iterable)


def _places(places: Places) -> Sequence:
    def indices(k: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for extent in reversed(places.shape):
            rest = ix.floor_divide(k, extent)
            found.append(ix.subtract(k, ix.multiply(rest, extent)))
            k = rest
        return tuple(reversed(found))

    def item(k: Any) -> Any:
        found = indices(k)
        return found if places.array is None else (found, places.array.element(found, Loads()))

    return Sequence(ix.product(places.shape), item)


def for_loop(self: Interpreter, node: ForLoop) -> None:
    """Interpret a loop over an iterable."""
    rows = sequence(self, _stored(self.value(node.iterator)))
    key = (self.path, id(node))
    if rows.is_static or key in self.unrolled or _is_tiny(self, node, rows):
        unroll(self, node, rows)
        return
    if isinstance(rows.count, int) and rows.count <= 0:
        return
    before, mark = self.state(), self.build.mark()
    try:
        _Fixpoint(self, node, key, rows.count).run(lambda loop: _counted_pass(loop, node, rows))
    except NeedsStaticError:
        if not isinstance(rows.count, int) or rows.count > MOST_UNROLLED:
            raise
        self.restore(before)
        self.build.forget(mark)
        self.dead = False
        self.unrolled.add(key)
        unroll(self, node, rows)


def _is_tiny(self: Interpreter, node: ForLoop, rows: Sequence) -> bool:
    """Return whether a loop inside of another one is so small that its iterations are written one after the other.

    Loops over the coordinates of points are such: their derivatives need no records then.
    """
    if not self.loops or not isinstance(rows.count, int) or rows.count > MOST_TINY or node.stops:
        return False
    return (
        len(node.body) == 1
        and isinstance(node.body[0], Run)
        and len(node.body[0].instructions) <= MOST_TINY_CODE
    )


def unroll(self: Interpreter, node: ForLoop, rows: Sequence, first: int = 0) -> None:
    """Interpret the body once for each item."""
    if not isinstance(rows.count, int):
        raise NeedsStaticError("the trip count of a loop over a tuple follows from data", where=here.site)
    begin = next_serial()
    for k in range(first, rows.count):
        if next_serial() - begin > MOST_VALUES:
            refuse(
                f"a loop over different types, or one that changes them, has {rows.count} iterations: too many to write them all out"
            )
        with self.inside(id(node), k):
            self.bind(node.item, rows.item(k))
            self.run(node.body)
        if self.dead:
            return
        stop = any_stop(self, node.stops)
        if isinstance(stop, Value):
            self.branch(stop, _nothing, partial(unroll, self, node, rows, k + 1), node.live_after)
            return
        if stop:
            return


def _nothing() -> None:
    pass


def any_stop(self: Interpreter, stops: list[str]) -> Any:
    """Return whether one of some variables is true."""
    stop: Any = False
    for name in stops:
        stop = either(stop, as_condition(self.value(name)))
    return stop


class _Fixpoint:
    """The passes over one loop, until its plans cover what its body leaves in the names that it carries.

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
        self.plans = interpreter.plans.setdefault(key, {})
        self.before = interpreter.state()
        self.names = sorted(node.assigned & node.live)
        self.slots: dict[Any, Slot] = {}
        self.current: dict[Any, Plan] = {}
        self.planner = Planner(interpreter.build)
        self.widened = False
        self.refuted = interpreter.refuted.setdefault(key, {})
        self.lengths: dict[ListReference, Any] = {}
        self.body: list[Statement] = []
        self.bounds: dict[str, tuple[list[Any], list[Any]]] = {}
        self.aliased: set[tuple[Any, str]] = set()
        self.entered: list[tuple[Pointer, Pointer]] = []
        self.ends: dict[Any, Any] = {}

    def run(self, one_pass: Callable[[_Fixpoint], None]) -> None:
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

    def _run(self, one_pass: Callable[[_Fixpoint], None], mark: int) -> None:
        interpreter, build, roomy = self.interpreter, self.interpreter.build, self.interpreter.roomy
        copied, site = len(build.copied), here.site
        for _ in range(MOST_PASSES):
            here.site = site  # of the loop, not of the last line of its body
            statements: list[Statement] = []
            interpreter.appended, interpreter.roomy = {}, set(roomy)
            with build.block(statements):
                self.enter()
                one_pass(self)
                if not self.widened:
                    self.leave()
            if not self.widened:
                for statement in statements:
                    build.append(statement)
                return
            interpreter.restore(self.before)
            build.forget(mark)
            del build.copied[copied:]
        refuse("what a loop carries from one iteration to the next does not settle")

    def enter(self) -> None:
        """Append what stores the first values of the carries."""
        build = self.interpreter.build
        names, lists = self.before
        self.widened = False
        self.planner = planner = Planner(build, build.next_serial)
        entries: dict[Any, Any] = {name: names.get(name, MISSING) for name in self.names}
        entries.update((key, lists[key]) for key in self.plans if key in lists)
        self._enter_growing(lists)
        entries.update(self.moving)
        self.current = {
            key: planner.widen(planner.seed(self.plans.get(key), value), value)
            for key, value in entries.items()
        }
        lengths = {key: grown.length for key, grown in self.grown.items() if self._step(key) is None}
        self.current.update(dict.fromkeys(lengths, Held(aval((), INT64, True))))
        entries.update(lengths)
        self.slots = {
            key: Slot(build, plan, _name(key))
            for key, plan in self.current.items()
            if not isinstance(plan, Fixed)
        }
        self.bounds = {key: self._bounds(key, entries[key]) for key in self._counters()}
        copied = len(build.copied)
        assign_all(self.slots, entries)
        self.entered = build.copied[copied:]
        planner.first = build.next_serial
        planner.owned = {view.pointer.memory for slot in self.slots.values() for view in slot.arrays()}

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

    def _grow(self, key: ListReference, before: Any, after: Any) -> None:
        """Plan for a list that an iteration leaves with another length."""
        appended = self.interpreter.appended.get(key, 0)
        old = self.growths.get(key)
        type_ = type_of_items(after) if old is None else joined(old.type, type_of_items(after))
        if before != () and not isinstance(before, GrowingList):
            type_ = joined(type_of_items(before), type_)
        small = isinstance(self.count, int) and self.count <= MOST_SMALL
        length = None if isinstance(after, Conflict) else _length(after)
        if type_ is None or (small and old is None and isinstance(length, int)):
            raise NeedsStaticError(
                "the items that a loop appends to a list have different types",
                where=here.site,
                remedy="write into an array: out = np.empty(n); out[i] = x",
            )
        if appended is None or self.count is None or (old is not None and old.room is None):
            if old is None or old.room is not None or old.type is not type_:
                self.growths[key] = Growth(type_, None, None)
                self.plans.pop(key, None)
                self.widened = True
            return
        grown = None if length is None else ix.difference(length, _length(before))
        step = grown if old is None or old.step == grown else None
        new = Growth(type_, max(appended, (old and old.room) or 0), step)
        if old is None or not (old.type is new.type and old.room == new.room and old.step == new.step):
            self.growths[key] = new
            self.plans.pop(key, None)
            self.widened = True

    def _counters(self) -> list[str]:
        """Return the names that hold integers which change."""
        return [
            key
            for key, plan in self.current.items()
            if isinstance(plan, Held) and plan.type.dtype == INT64 and isinstance(key, str)
        ]

    def _bounds(self, key: str, entry: Any) -> tuple[list[Any], list[Any]]:
        """Return the bounds of an integer that are assumed until an iteration refutes them: its first value, and 0."""
        if not isinstance(entry, int | np.integer | Value):
            return [], []
        first = ix.polynomial(ix.extent(entry))
        return self.refuted.get((key, 1), [first]), self.refuted.get((key, -1), [first])

    def _refute(self, key: str, value: Any) -> None:
        """Give up bounds that what an iteration leaves in a name does not keep; try a number instead, the first time."""
        counts = self.interpreter.build.counts
        if not any(self.bounds[key]):
            return
        first, last = ix.extent(self.before[0][key]), ix.extent(value)
        for bounds, sign in zip(self.bounds[key], (1, -1), strict=True):
            gaps = [ix.minus(ix.scaled(last, sign), ix.scaled(bound, sign)) for bound in bounds]
            if all(ix.is_not_negative(gap, counts) for gap in gaps):
                continue
            found = [ix.lowest(ix.multiply(x, sign), counts) for x in (first, last)]
            known = [number for number in found if number is not None]
            is_new = (key, sign) not in self.refuted and len(known) == 2
            self.refuted[key, sign] = [ix.polynomial(sign * min(known))] if is_new else []
            self.widened = True

    def begin(self) -> None:
        """Append what reads the carries, at the beginning of an iteration or after the loop."""
        interpreter = self.interpreter
        for key, plan in self.current.items():
            if key in self.grown:
                continue
            value = plan.value if isinstance(plan, Fixed) else self.slots[key].read()
            if key in self.bounds:
                interpreter.build.counts.limit(value, *self.bounds[key])
            self._put(key, value)
        self._begin_growing()
        interpreter.dead = False
        for key, other in self.aliased:
            for view in arrays_of(interpreter.names.get(other)):
                own = self.slots[key].arrays() if key in self.slots else []
                interpreter.build.copied += [(one.pointer, view.pointer) for one in own]

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
        """Compare what an iteration leaves with the plans; append what stores it if they cover it."""
        interpreter = self.interpreter
        ends: dict[Any, Any] = {name: interpreter.names.get(name, MISSING) for name in self.names}
        for key, items in self.before[1].items():
            after = interpreter.lists.get(key, items)
            if key in self.grown:
                before = GrowingList(self.grown[key].arrays, self.grown[key].type, self.lengths[key])
                self._grow(key, before, after)
                if self._step(key) is None and isinstance(after, GrowingList):
                    ends[key] = after.length
            elif key in self.moving:
                if type_of_items(after) is not self.moving[key].type:
                    self._grow(key, items, after)
                else:
                    ends[key] = after
            elif _is_movable(items):
                if not same(items, after):
                    ends[key] = after
            elif not same(items, after) and _grows(items, after):
                self._grow(key, items, after)
            elif key in self.current or not same(items, after):
                ends[key] = after
        if interpreter.dead:
            ends = {}
        for key, value in ends.items():
            old = self.current.get(key) or Fixed(self.before[1].get(key))
            new = self.planner.widen(old, value)
            if isinstance(key, ListReference) and isinstance(new, Fixed) and isinstance(new.value, Conflict):
                raise NeedsStaticError(
                    "the items of a list have other types after an iteration",
                    where=here.site,
                    remedy="write into an array: out = np.empty(n); out[i] = x",
                )
            if new is not old:
                self.plans[key] = new
                self.widened = True
            elif key in self.bounds and isinstance(value, int | np.integer | Value):
                self._refute(key, value)
        self._note_aliases(ends)
        if not self.widened and not interpreter.dead:
            self._check_shared(ends)
            assign_all(self.slots, ends)
            self.ends = ends

    def _note_aliases(self, ends: dict[Any, Any]) -> None:
        """Note which names hold arrays, at the end of an iteration, of which the next one has copies."""
        names = self.interpreter.names
        found = {
            (key, other)
            for key, slot in self.slots.items()
            for view in arrays_of(ends.get(key))
            if slot.arrays()
            for other in self.node.live
            if other != key and holds(names.get(other), view.pointer.memory)
        }
        if not found <= self.aliased:
            self.aliased |= found
            self.widened = True

    def _check_shared(self, ends: dict[Any, Any]) -> None:
        """Refuse arrays that a loop binds anew and also writes to, if another name holds the same one: theirs would be another copy."""
        written = {pointer.memory for pointer in stored(self.body)}
        for key, slot in self.slots.items():
            if slot.view is None or slot.view.pointer.memory not in written:
                continue
            end = ends.get(key)
            others = [value for other, value in ends.items() if other != key]
            if self._is_held(self.before[0].get(key), key) or (
                isinstance(end, ArrayView) and any(holds(value, end.pointer.memory) for value in others)
            ):
                refuse(
                    f"the array {_name(key)} is written and also bound anew in a loop, and another name holds it",
                    f"write into the array instead ({_name(key)}[:] = ...), or copy it before the loop",
                )

    def _is_held(self, entry: Any, key: Any) -> bool:
        """Return whether somebody else holds the array that a name holds before the loop."""
        if not isinstance(entry, ArrayView):
            return False
        memory, build = entry.pointer.memory, self.interpreter.build
        if any(isinstance(one, Pointer) and one.memory is memory for one in build.parameters):
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

    def _is_rebound(self, key: Any, own: ArrayView) -> bool:
        """Return whether each iteration lets a name hold another array than at its beginning."""
        end, entry = self.ends.get(key), self.before[0].get(key)
        known = [own, *arrays_of(entry)]
        return isinstance(end, Expression) and not any(holds(end, view.pointer.memory) for view in known)

    def stops(self) -> bool:
        """Return whether the loop may end by a jump."""
        return any(not isinstance(self.current[name], Fixed) for name in self.node.stops)


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


def _counted_pass(loop: _Fixpoint, node: ForLoop, rows: Sequence) -> None:
    """Append a counted loop; one that may end early is a while loop with a counter."""
    self, build = loop.interpreter, loop.interpreter.build
    if loop.stops():
        _stopped_pass(loop, node, rows)
        return
    index = Value(aval((), INT64, True))
    statement = For(index, integer(rows.count), [], rows.parallel, here.site)
    build.append(statement)
    loop.body = statement.body
    with (
        build.block(statement.body),
        build.own_start(statement.body) if rows.parallel else nullcontext(),
        _counting(build, index, statement.count),
    ):
        loop.trip = index
        loop.begin()
        small = isinstance(rows.count, int) and rows.count <= MOST_SMALL
        self.small_loops += small
        try:
            with self.inside(id(node)):
                self.bind(node.item, rows.item(index))
                self.run(node.body)
        finally:
            self.small_loops -= small
        loop.end()


@contextmanager
def _counting(build: Any, index: Value, count: Value) -> Iterator[None]:
    """Let the bounds of an index be known inside."""
    build.counts[index] = count
    try:
        yield
    finally:
        del build.counts[index]


def _stopped_pass(loop: _Fixpoint, node: ForLoop, rows: Sequence) -> None:
    self, build = loop.interpreter, loop.interpreter.build
    counter = Variable(build.unique("k"), aval((), INT64, True))
    build.assign(counter, 0)
    count = integer(rows.count)
    statement = While(leaf(BOOL))
    build.append(statement)
    with build.block(statement.test):
        index = build.read(counter)
        loop.begin()
        going = negated(any_stop(self, node.stops))
        statement.condition = both(index < count, going)
    loop.body = statement.body
    with build.block(statement.body), _counting(build, index, count):
        with self.inside(id(node)):
            self.bind(node.item, rows.item(index))
            self.run(node.body)
        loop.end()
        build.assign(counter, index + 1)


def while_loop(self: Interpreter, node: WhileLoop) -> None:
    """Interpret a loop with a condition, or one that only jumps end."""
    key = (self.path, id(node))
    _Fixpoint(self, node, key).run(lambda loop: _while_pass(loop, node))


def _while_pass(loop: _Fixpoint, node: WhileLoop) -> None:
    self, build = loop.interpreter, loop.interpreter.build
    statement = While(leaf(BOOL))
    with build.block(statement.test):
        loop.begin()
        condition = _test(self, node)
    if condition is False:
        for one in statement.test:
            build.append(one)
        return
    build.append(statement)
    statement.condition = condition if isinstance(condition, Value) else literal(np.bool_(True))
    loop.body = statement.body
    with build.block(statement.body), build.assuming(statement.condition), self.inside(id(node)):
        self.run(node.body)
        loop.end()
    if not isinstance(condition, Value) and not loop.widened:
        refuse("a loop has no end", "let a condition that changes end it")


def _test(self: Interpreter, node: WhileLoop) -> Any:
    """Append the test of a loop, and return the condition under which it goes on."""
    stop = any_stop(self, node.stops)
    if not node.name:
        return negated(stop)
    build = self.build
    statements: list[Statement] = []
    with build.block(statements):
        self.run_instructions(Run(node.test, node.live))
        condition = as_condition(self.value(node.name))
        if node.negated:
            condition = negated(condition)
    if not isinstance(stop, Value) or all(isinstance(one, Read) for one in statements):
        for one in statements:
            build.append(one)
        return both(condition, negated(stop))
    going = Variable(build.unique("going"), aval((), BOOL))
    stopped: list[Statement] = []
    with build.block(stopped):
        build.assign(going, np.bool_(False))
    with build.block(statements):
        build.assign(going, condition)
    build.append(If(stop, stopped, statements))
    return build.read(going)
