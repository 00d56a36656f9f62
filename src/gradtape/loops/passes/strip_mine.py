"""Strip mining of sequential loops over long arrays whose elements do not depend on each other: the loop over strips comes outermost.

With the sequential loop outermost, each array that is carried goes through the caches in each iteration, and what iterations record for the
reverse loop has one element for each of them. A strip goes through all loops in turn, forward and back: its carries stay in the first
cache, and its records are scratch memory of the size of a strip, which the second one holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from gradtape.loops.affine import Affine, Position, Var, affine, substitute
from gradtape.loops.copies import Copier
from gradtape.loops.ir import (
    Buffer,
    Compute,
    Declare,
    For,
    Guard,
    Load,
    LoopProgram,
    Place,
    Register,
    SequentialFor,
    Statement,
    Wrap,
)
from gradtape.loops.live_ins import LiveIns, live_ins
from gradtape.loops.passes.elements import Access, StripPart, Total, is_zero, placed, strip_part, sum_of
from gradtape.loops.traversal import touched_outside, walk, with_blocks
from gradtape.records import record

STRIP: Final = 512
"""Elements of a strip without records: 4 KB of each array."""

LONG: Final = 8 * STRIP
"""Elements from which a loop without records is cut: below, all arrays are in the second cache."""

ROOM: Final = 2**19
"""Bytes of the records of a strip."""

LARGE: Final = 2**20
"""Bytes of records from which shorter loops are cut: below, they are in the second cache as a whole."""

LEAST: Final = 32
"""Elements of a strip at least: whole vectors, several of which hide the time that an operation takes."""

WHOLE: Final = 8
"""Elements of which a strip is a multiple where that leaves none over: whole vectors of AVX-512."""


def strip_mine(program: LoopProgram) -> LoopProgram:
    """Return the program with its sequential loops cut into strips, where their iterations are loops over independent elements.

    Neighbouring loops over the same elements are cut along with them, where that is possible.
    """
    miner = _Miner(program)
    body = miner.block(program.body)
    if body is program.body:
        return program
    return LoopProgram(program.name, program.inputs, program.outputs, miner.scratch, body)


@record
class _Effects:
    """What a statement reads and changes.

    Attributes
    ----------
    touched, written : set of Buffer
        Memory.
    read, changed : set of str
        Registers.
    """

    touched: set[Buffer]
    written: set[Buffer]
    read: set[str]
    changed: set[str]

    def must_follow(self, other: _Effects) -> bool:
        """Whether the order of the two statements matters."""
        return not (
            self.touched.isdisjoint(other.written)
            and self.written.isdisjoint(other.touched)
            and self.read.isdisjoint(other.changed)
            and self.changed.isdisjoint(other.read | other.changed)
        )


def _effects(statement: Statement, found: LiveIns) -> _Effects:
    read = {register.name for register in found.registers} | set(found.variables)
    changed = {register.name for register in found.assigned}
    if isinstance(statement, Load | Compute | Declare | Wrap):
        changed.add(statement.target.name)
    return _Effects(set(found.buffers), found.written, read, changed)


@record
class _Group:
    """Statements that are cut into strips together.

    Attributes
    ----------
    length : int
        How many elements there are.
    before, after : list of Statement
        The other statements of the block: those that can run before the group, and those that must run after it.
    parts : list of StripPart
        Its statements.
    accesses : dict of Buffer to list of (int, Access)
        What they touch: by which part, and how.
    own : dict of Buffer to int
        Scratch that holds the elements of a strip only, and how far apart neighbouring elements are.
    inside, following : list of _Effects
        What the group and the statements after it read and change.
    sums : dict of str to Total
        Registers that hold sums over elements.
    begun : set of str
        Accumulators of which each strip needs its own part alone.
    begins : list of Statement
        The declarations of what each strip begins anew.
    size : int
        Elements of a strip.
    """

    length: int
    before: list[Statement] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)
    parts: list[StripPart] = field(default_factory=list)
    accesses: dict[Buffer, list[tuple[int, Access]]] = field(default_factory=dict)
    own: dict[Buffer, int] = field(default_factory=dict)
    inside: list[_Effects] = field(default_factory=list)
    following: list[_Effects] = field(default_factory=list)
    sums: dict[str, Total] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    begins: list[Statement] = field(default_factory=list)
    size: int = 0

    def is_sequential(self) -> bool:
        """Whether there is a sequential loop."""
        return any(part.is_sequential for part in self.parts)

    def add(self, part: StripPart) -> bool:
        """Add a statement at the end; return whether that is possible."""
        reads = set().union(part.reads, *[other.reads for other in self.parts])
        totals = {*part.totals, *[name for other in self.parts for name in other.totals]}
        restarts = set().union(part.restarts, *[other.restarts for other in self.parts])
        if totals & (reads | restarts):
            return False
        number = len(self.parts)
        for buffer, found in part.accesses.items():
            if not self._keeps_apart(
                buffer, [*self.accesses.get(buffer, ()), *[(number, each) for each in found]]
            ):
                return False
        for buffer, found in part.accesses.items():
            self.accesses.setdefault(buffer, []).extend((number, each) for each in found)
        self.parts.append(part)
        return True

    def _keeps_apart(self, buffer: Buffer, accesses: Sequence[tuple[int, Access]]) -> bool:
        """Whether no element reads what another one writes, and what all elements read is written anew in each strip."""
        if not any(access.stores for _, access in accesses):
            return True
        kinds = {access.kind for _, access in accesses}
        if kinds == {"element"}:
            return len({self._factor(access) for _, access in accesses}) == 1
        if kinds == {"row"}:
            loops = {(number, access.var) for number, access in accesses}
            return len(loops) == 1 and accesses[0][1].stores and buffer.role == "scratch"
        return kinds == {"sum"} or (kinds == {"shared"} and accesses[0][1].stores)

    def _factor(self, access: Access) -> int:
        assert access.var is not None
        found = placed(access.position, access.var, self.length)
        assert found is not None
        return found[0]

    def find_own(self, elsewhere: set[Buffer]) -> None:
        """Find the scratch of which only the elements of one strip are needed at a time; `elsewhere` is touched by other statements."""
        for buffer, accesses in self.accesses.items():
            if buffer.role == "scratch" and buffer not in elsewhere:
                first = accesses[0][1]
                if first.kind == "element" and first.stores:
                    self.own[buffer] = self._factor(first)

    def choose_size(self) -> None:
        """Choose how many elements a strip has, if it is worth it."""
        records = sum(
            buffer.nbytes for buffer, factor in self.own.items() if buffer.size > factor * self.length
        )
        if self.length < 2 * LEAST or (self.length < LONG and records < LARGE):
            return
        per_element = sum(buffer.nbytes for buffer in self.own) // self.length
        fitting = ROOM // max(per_element, 1) // LEAST * LEAST
        self.size = _even(self.length, min(max(fitting, LEAST), STRIP, self.length // 2))


def _even(length: int, size: int) -> int:
    """Return a number of elements not far below another one that leaves none over, if there is one: whole vectors."""
    sizes = range(size // WHOLE * WHOLE, size // 2, -WHOLE)
    return next((each for each in sizes if length % each == 0), size)


class _Miner:
    """Cuts the sequential loops of a program.

    Attributes
    ----------
    scratch : list of Buffer
        That of the new program.
    """

    def __init__(self, program: LoopProgram) -> None:
        self.scratch = list(program.scratch)
        self._program = program

    def block(self, statements: list[Statement]) -> list[Statement]:
        """Return a block with its loops cut, and those of the blocks inside; the same one where there is nothing to cut."""
        for length in _lengths(statements):
            group = self._grouped(statements, length)
            if group is not None and group.size:
                return [*self.block(group.before), *self._strips(group), *self.block(group.after)]
            if group is not None and group.after:
                rest = self.block(group.after)
                if rest is not group.after:
                    moved = set(map(id, group.after))
                    return [*[each for each in statements if id(each) not in moved], *rest]
        made = [with_blocks(statement, self.block) for statement in statements]
        return made if any(new is not old for new, old in zip(made, statements, strict=True)) else statements

    def _grouped(self, statements: Sequence[Statement], length: int) -> _Group | None:
        """Return the first sequential loops of a block over so many elements, and what can be cut along with them, if there are some."""
        group = _Group(length)
        readers = _readers(statements)
        zeros = {s.target.name for s in statements if isinstance(s, Declare) and is_zero(s.value)}
        for place, statement in enumerate(statements):
            found = live_ins([statement])
            if isinstance(statement, Guard) or found.uses_stacks:
                if group.is_sequential():
                    group.after.extend(statements[place:])
                    break
                group = _Group(length, [*statements[: place + 1]])
                continue
            effects = _effects(statement, found)
            if not self._pull(group, statement, effects, readers):
                group.after.append(statement)
                group.following.append(effects)
                continue
            part = strip_part(statement, length, group.sums)
            if part is not None and group.add(part):
                group.inside.append(effects)
                group.sums.update(
                    (name, Total(monoid))
                    for name, monoid in part.totals.items()
                    if name in zeros and monoid in ("add", "or")
                )
            elif any(map(effects.must_follow, group.inside)):
                group.after.append(statement)
                group.following.append(effects)
            else:
                group.before.append(statement)
        if not group.is_sequential() or not _begin_anew(group):
            return None
        group.find_own(touched_outside(self._program, [part.statement for part in group.parts]))
        group.choose_size()
        return group

    def _pull(
        self, group: _Group, statement: Statement, effects: _Effects, readers: Mapping[str, set[int]]
    ) -> bool:
        """Let a statement of a block follow a group; return whether it depends on nothing after it.

        Sums over elements that the statement alone reads, to make other sums of them, are pulled into the group: each strip has its own
        part of them. `readers` are the statements that read a register.
        """
        needed: list[int] = []
        for place in reversed(range(len(group.after))):
            waiting = [effects, *[group.following[later] for later in needed]]
            if any(each.must_follow(group.following[place]) for each in waiting):
                needed.insert(0, place)
        if not needed:
            return True
        sums = dict(group.sums)
        pulled = [group.after[place] for place in needed]
        begun: set[str] = set()
        for each in pulled:
            total = sum_of(each, sums) if isinstance(each, Compute) else None
            if total is None or not isinstance(each, Compute):
                return False
            sums[each.target.name] = total
            begun |= {arg.name for arg in each.args if isinstance(arg, Register) and arg.name in group.sums}
        if strip_part(statement, group.length, sums) is None:
            return False
        inside = {id(part.statement) for part in group.parts} | {id(each) for each in (*pulled, statement)}
        names = begun | {each.target.name for each in pulled if isinstance(each, Compute)}
        if any(not readers.get(name, set()) <= inside for name in names):
            return False
        group.sums = sums
        group.begun |= begun
        for place in reversed(needed):
            del group.after[place]
            group.inside.append(group.following.pop(place))
        group.parts.extend(StripPart(each) for each in pulled)
        return True

    def _strips(self, group: _Group) -> list[Statement]:
        count, rest = divmod(group.length, group.size)
        number = Var(f"{_first_loop(group).name}_number", 0, count - 1)
        first = affine(number) * group.size
        made: list[Statement] = [SequentialFor(number, self._strip(group, first, group.size, "_strip"))]
        if rest:
            made.extend(self._strip(group, count * group.size, rest, "_rest"))
        self.scratch = [buffer for buffer in self.scratch if buffer not in group.own]
        return made

    def _strip(self, group: _Group, start: Position, size: int, suffix: str) -> list[Statement]:
        """Return what a group does for `size` elements from `start` on."""
        own: dict[Buffer, Buffer] = {}
        for buffer in group.own:
            elements = buffer.size // group.length * size
            own[buffer] = Buffer(buffer.name + suffix, buffer.dtype, elements, "scratch")
        self.scratch.extend(own.values())
        return _StripCopier(group, own, start, size, suffix).block(
            [*group.begins, *[part.statement for part in group.parts]]
        )


def _readers(statements: Sequence[Statement]) -> dict[str, set[int]]:
    """Return, by register, the identities of the statements of a block that read it."""
    found: dict[str, set[int]] = {}
    for statement in statements:
        for register in live_ins([statement]).registers:
            found.setdefault(register.name, set()).add(id(statement))
    return found


def _lengths(statements: Sequence[Statement]) -> list[int]:
    """Return the trip counts of the loops in sequential loops, the longest first."""
    found: set[int] = set()
    for statement in statements:
        if isinstance(statement, SequentialFor):
            found |= {
                s.trip_count for s in walk(statement.body) if isinstance(s, For) and s.trip_count >= 2 * LEAST
            }
    return sorted(found, reverse=True)


def _begin_anew(group: _Group) -> bool:
    """Move the declarations of numbers that each strip begins anew into a group; return whether only the group uses them."""
    names = group.begun.union(*[part.restarts for part in group.parts])
    if not names:
        return True
    group.begins = [s for s in group.before if isinstance(s, Declare) and s.target.name in names]
    group.before = [s for s in group.before if s not in group.begins]
    others = live_ins([*group.before, *group.after])
    used = {register.name for register in [*others.registers, *others.assigned]}
    return len(group.begins) == len(names) and used.isdisjoint(names)


def _first_loop(group: _Group) -> Var:
    part = next(part for part in group.parts if part.is_sequential)
    return next(s.var for s in walk([part.statement]) if isinstance(s, For) and id(s) in part.loops)


class _StripCopier(Copier):
    """Copies statements for some elements from `start` on; `own` is the scratch that holds these elements alone."""

    def __init__(
        self, group: _Group, own: Mapping[Buffer, Buffer], start: Position, size: int, suffix: str
    ) -> None:
        super().__init__({}, {}, suffix=suffix)
        self._group = group
        self._loops = set().union(*[part.loops for part in group.parts])
        self._own = own
        self._start = start
        self._size = size
        self._elements: dict[Var, Var] = {}

    def _for(self, loop: For) -> For | None:
        if id(loop) not in self._loops:
            return super()._for(loop)
        element = self._elements[loop.var] = Var(loop.var.name + self._suffix, 0, self._size - 1)
        self._values[loop.var] = self._start + affine(element)
        return For(element, self._inner(loop.body), initial=loop.initial)

    def _control_flow(self, statement: Statement) -> Statement:
        assert isinstance(statement, SequentialFor)
        var = Var(statement.var.name + self._suffix, statement.var.low, statement.var.high)
        self._values[statement.var] = affine(var)
        count = None if statement.count is None else self._number(statement.count)
        return SequentialFor(var, self._inner(statement.body), count)

    def _place(self, old: Buffer, index: Position) -> Place:
        own = self._own.get(old)
        if own is None:
            return super()._place(old, index)
        assert isinstance(index, Affine)
        (var,) = [atom for atom in index.terms if isinstance(atom, Var) and atom in self._elements]
        found = placed(index, var, self._group.length)
        assert found is not None
        factor, row, within = found
        whole = substitute(row, self._values) * (factor * self._size) + substitute(within, self._values)
        return own, whole + affine(self._elements[var]) * factor
