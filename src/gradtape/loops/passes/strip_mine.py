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
    Assign,
    Buffer,
    Compute,
    ControlFlow,
    Declare,
    DoubleBuffer,
    For,
    Guard,
    Load,
    LoopProgram,
    OpenStack,
    Place,
    Register,
    SequentialFor,
    Statement,
    Store,
    Wrap,
)
from gradtape.loops.live_ins import LiveIns, live_ins
from gradtape.loops.passes.elements import Access, StripPart, Total, is_zero, placed, strip_part, sum_of
from gradtape.loops.passes.monoids import COMBINE, identity
from gradtape.loops.traversal import touched_outside, with_blocks
from gradtape.records import record
from gradtape.statements import walk

STRIP: Final = 512
"""Elements of a strip without records: 4 KB of each array."""

LONG: Final = 8 * STRIP
"""Elements from which a loop without records is cut: below, all arrays are in the second cache."""

ROOM: Final = 2**20
"""Bytes of the records of a strip."""

LARGE: Final = 2**24
"""Bytes of records from which shorter loops are cut: below, they are in the second cache as a whole."""

LEAST: Final = 32
"""Elements of a strip at least: whole vectors, several of which hide the time that an operation takes."""

MOST_LENGTHS: Final = 4
"""Lengths that are tried."""

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
    """The effects of a statement.

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


def _effects(statement: Statement, uses: LiveIns) -> _Effects:
    read = {register.name for register in uses.registers} | set(uses.variables)
    changed = {register.name for register in uses.assigned}
    if isinstance(statement, Load | Compute | Declare | Wrap):
        changed.add(statement.target.name)
    return _Effects(set(uses.buffers), uses.written, read, changed)


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
    originals : list of Statement
        The same as they stand in the block.
    is_split : bool
        Whether there are loops over a multiple of the elements.
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
    begins : list of Declare
        The declarations of what each strip begins anew.
    ends : list of Register
        What of these is the same after each strip, and used outside.
    size : int
        Elements of a strip.
    """

    length: int
    before: list[Statement] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)
    parts: list[StripPart] = field(default_factory=list)
    originals: list[Statement] = field(default_factory=list)
    is_split: bool = False
    accesses: dict[Buffer, list[tuple[int, Access]]] = field(default_factory=dict)
    own: dict[Buffer, int] = field(default_factory=dict)
    inside: list[_Effects] = field(default_factory=list)
    following: list[_Effects] = field(default_factory=list)
    sums: dict[str, Total] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    begins: list[Declare] = field(default_factory=list)
    ends: list[Register] = field(default_factory=list)
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
        filled = {*part.filled, *[buffer for other in self.parts for buffer in other.filled]}
        if any(
            len(accesses) + len(self.accesses.get(buffer, ())) > 1
            for buffer, accesses in part.accesses.items()
            if buffer in filled
        ):
            return False
        for buffer, accesses in part.accesses.items():
            if not self._keeps_apart(
                buffer, [*self.accesses.get(buffer, ()), *[(number, each) for each in accesses]]
            ):
                return False
        for buffer, accesses in part.accesses.items():
            self.accesses.setdefault(buffer, []).extend((number, each) for each in accesses)
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
        placement = placed(access.position, access.var, self.length)
        assert placement is not None
        return placement[0]

    def pull(self, statement: Statement, effects: _Effects, readers: Mapping[str, set[int]]) -> bool:
        """Let a statement of a block follow the group; return whether it depends on nothing after it.

        Sums over elements that the statement alone reads, to make other sums of them, are pulled in: each strip has its own
        part of them. `readers` are the statements that read a register.
        """
        needed: list[int] = []
        for position in reversed(range(len(self.after))):
            waiting = [effects, *[self.following[later] for later in needed]]
            if any(each.must_follow(self.following[position]) for each in waiting):
                needed.insert(0, position)
        if not needed:
            return True
        sums = dict(self.sums)
        pulled = [self.after[position] for position in needed]
        begun: set[str] = set()
        for each in pulled:
            total = sum_of(each, sums) if isinstance(each, Compute) else None
            if total is None or not isinstance(each, Compute):
                return False
            sums[each.target.name] = total
            begun |= {arg.name for arg in each.args if isinstance(arg, Register) and arg.name in self.sums}
        if strip_part(statement, self.length, sums) is None:
            return False
        inside = {id(each) for each in (*self.originals, *pulled, statement)}
        names = begun | {each.target.name for each in pulled if isinstance(each, Compute)}
        if any(not readers.get(name, set()) <= inside for name in names):
            return False
        self.sums = sums
        self.begun |= begun
        for position in reversed(needed):
            del self.after[position]
            self.inside.append(self.following.pop(position))
        self.parts.extend(StripPart(each) for each in pulled)
        self.originals.extend(pulled)
        return True

    def find_own(self, elsewhere: set[Buffer]) -> None:
        """Find the scratch of which only the elements of one strip are needed at a time; `elsewhere` is touched by other statements."""
        for buffer, accesses in self.accesses.items():
            if buffer.role == "scratch" and buffer not in elsewhere:
                first = accesses[0][1]
                if first.kind == "element" and first.stores:
                    self.own[buffer] = self._factor(first)

        pairs = [pair for part in self.parts for pair in part.pairs]
        while True:  # terminates: each round but the last leaves a buffer out
            halves = [
                (pair.current, pair.following, pair.first[0], pair.second[0])
                for pair in pairs
                if not {pair.first[0], pair.second[0]} <= self.own.keys()
            ]
            shared = [buffer for buffers in halves for buffer in buffers if buffer in self.own]
            if not shared:
                break
            for buffer in shared:
                del self.own[buffer]
        for pair in pairs:
            if pair.first[0] in self.own:
                factor = self.own[pair.first[0]]
                self.own.update({pair.current: factor, pair.following: factor})

    def records(self) -> int:
        """Return the bytes of what iterations hand on to other loops, which become scratch of a strip."""
        return sum(buffer.nbytes for buffer, factor in self.own.items() if buffer.size > factor * self.length)

    def choose_size(self) -> None:
        """Choose how many elements a strip has, if it is worth it."""
        if self.length < 2 * LEAST or (self.length < LONG and self.records() < LARGE):
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
            group = self._grouped(statements, length, False)
            other = self._grouped(statements, length, True) if group is None or group.is_split else None
            if other is not None and (group is None or other.records() > group.records()):
                group = other
            if group is not None and group.size:
                return [*self.block(group.before), *self._strips(group), *self.block(group.after)]
            if group is not None and group.after:
                following = self.block(group.after)
                if following is not group.after:
                    moved = set(map(id, group.after))
                    return [*[each for each in statements if id(each) not in moved], *following]
        blocks = [with_blocks(statement, self.block) for statement in statements]
        return (
            blocks if any(new is not old for new, old in zip(blocks, statements, strict=True)) else statements
        )

    def _grouped(self, statements: Sequence[Statement], length: int, is_slow: bool) -> _Group | None:
        """Return the first sequential loops of a block over so many elements, and what can be cut along with them, if there are some.

        Loops over a multiple of them are loops over these elements and another axis; `is_slow` says that the other one is inside.
        """
        group = _Group(length)
        readers = _readers(statements)
        zeros = {s.target.name for s in statements if isinstance(s, Declare) and is_zero(s.value)}
        for number, statement in enumerate(statements):
            uses = live_ins([statement])
            if isinstance(statement, Guard) or (uses.uses_stacks and not isinstance(statement, OpenStack)):
                if group.is_sequential():
                    group.after.extend(statements[number:])
                    break
                group = _Group(length, [*statements[: number + 1]])
                continue
            effects = _effects(statement, uses)
            if not group.pull(statement, effects, readers):
                group.after.append(statement)
                group.following.append(effects)
                continue
            split = _split(statement, length, is_slow)
            group.is_split = group.is_split or split is not statement
            part = strip_part(split, length, group.sums)
            if part is not None and group.add(part):
                group.originals.append(statement)
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
        group.find_own(touched_outside(self._program, group.originals))
        group.choose_size()
        return group

    def _strips(self, group: _Group) -> list[Statement]:
        count, remainder = divmod(group.length, group.size)
        number = Var(f"{_first_loop(group).name}_number", 0, count - 1)
        first = affine(number) * group.size
        strips = [
            _filled(buffer, monoid) for part in group.parts for buffer, (_, monoid) in part.filled.items()
        ]
        strips.append(SequentialFor(number, self._strip(group, first, group.size, "_strip")))
        if remainder:
            strips.extend(self._strip(group, count * group.size, remainder, "_rest"))
        self.scratch = [buffer for buffer in self.scratch if buffer not in group.own]
        return strips

    def _strip(self, group: _Group, start: Position, size: int, suffix: str) -> list[Statement]:
        """Return what a group does for `size` elements from `start` on."""
        strip_buffers: dict[Buffer, Buffer] = {}
        for buffer in group.own:
            elements = buffer.size // group.length * size
            strip_buffers[buffer] = Buffer(buffer.name + suffix, buffer.dtype, elements, buffer.role)
        self.scratch.extend(buffer for buffer in strip_buffers.values() if buffer.role == "scratch")
        copier = _StripCopier(group, strip_buffers, start, size, suffix)
        statements = copier.block([*group.begins, *[part.statement for part in group.parts]])
        return [*statements, *[Assign(register, copier.numbers[register.name]) for register in group.ends]]


def _readers(statements: Sequence[Statement]) -> dict[str, set[int]]:
    """Return, by register, the identities of the statements of a block that read it."""
    readers: dict[str, set[int]] = {}
    for statement in statements:
        for register in live_ins([statement]).registers:
            readers.setdefault(register.name, set()).add(id(statement))
    return readers


def _lengths(statements: Sequence[Statement]) -> list[int]:
    """Return the trip counts of the loops in sequential loops, the longest first."""
    lengths: set[int] = set()
    for statement in statements:
        if isinstance(statement, SequentialFor):
            lengths |= {
                s.trip_count for s in walk(statement.body) if isinstance(s, For) and s.trip_count >= 2 * LEAST
            }
    return sorted(lengths, reverse=True)[:MOST_LENGTHS]


def _filled(buffer: Buffer, monoid: str) -> Statement:
    """Return the loop after which a buffer holds empty sums."""
    var = Var(f"{buffer.name}_clear", 0, buffer.size - 1)
    return For(var, [Store(buffer, affine(var), identity(monoid, buffer.dtype))])


def _split(statement: Statement, length: int, is_slow: bool) -> Statement:
    """Return a statement in which loops over a multiple of the elements are two loops, of which that over the elements `is_slow` or not."""
    if isinstance(statement, SequentialFor):
        return with_blocks(statement, lambda block: _each_split(block, length, is_slow))
    if not isinstance(statement, For):
        return statement
    times, remainder = divmod(statement.trip_count, length)
    if remainder or times < 2 or statement.var.low or any(isinstance(inner, For) for inner in statement.body):
        body = (
            statement.body if times == 1 and not remainder else _each_split(statement.body, length, is_slow)
        )
        return statement if body is statement.body else For(statement.var, body, initial=statement.initial)
    element = Var(f"{statement.var.name}_element", 0, length - 1)
    other = Var(f"{statement.var.name}_other", 0, times - 1)
    if is_slow:
        position, outer, inner = affine(element) * times + affine(other), element, other
    else:
        position, outer, inner = affine(other) * length + affine(element), other, element
    body = Copier({statement.var: position}, {}).block(statement.body)
    return For(outer, [For(inner, body)], initial=statement.initial)


def _each_split(statements: list[Statement], length: int, is_slow: bool) -> list[Statement]:
    statements_split = [_split(statement, length, is_slow) for statement in statements]
    return (
        statements_split
        if any(new is not old for new, old in zip(statements_split, statements, strict=True))
        else statements
    )


def _begin_anew(group: _Group) -> bool:
    """Let each strip declare the numbers that it begins anew, and hand on those that are used outside; return whether that is possible."""
    names = group.begun.union(*[part.restarts for part in group.parts])
    others = [live_ins([statement]) for statement in (*group.before, *group.after)]
    used = {register.name for each in others for register in (*each.registers, *each.assigned)}
    group.begins = [s for s in group.before if isinstance(s, Declare) and s.target.name in names]
    group.ends = [s.target for s in group.begins if s.target.name in used]
    group.before = [s for s in group.before if s not in group.begins or s.target.name in used]
    return len(group.begins) == len(names)


def _first_loop(group: _Group) -> Var:
    part = next(part for part in group.parts if part.is_sequential)
    return next(s.var for s in walk([part.statement]) if isinstance(s, For) and id(s) in part.loops)


class _StripCopier(Copier):
    """Copies statements for some elements from `start` on; `own` is the scratch that holds these elements alone."""

    def __init__(
        self, group: _Group, strip_buffers: Mapping[Buffer, Buffer], start: Position, size: int, suffix: str
    ) -> None:
        super().__init__({}, {}, suffix=suffix)
        self._group = group
        self._loops = set().union(*[part.loops for part in group.parts])
        self._filled = {store: monoid for part in group.parts for store, monoid in part.filled.values()}
        self._own = strip_buffers
        self._start = start
        self._size = size
        self._elements: dict[Var, Var] = {}
        self._renamed: dict[Buffer, Place] = {}
        self._moved = self._renamed

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        copies_of_block: list[Statement] = []
        for statement in statements:
            copies = super().block([statement])
            if id(statement) in self._filled:
                (store,) = copies
                assert isinstance(store, Store) and isinstance(store.value, Register)
                row, body = COMBINE[self._filled[id(statement)]]
                before, total = [
                    Register(f"{store.value.name}_{name}", store.value.dtype) for name in ("before", "total")
                ]
                copies_of_block.append(Load(before, store.buffer, store.index))
                copies_of_block.append(Compute(total, row, body, (before, store.value)))
                copies = [Store(store.buffer, store.index, total)]
            copies_of_block.extend(copies)
        return copies_of_block

    def _for(self, loop: For) -> For | None:
        if id(loop) not in self._loops:
            return super()._for(loop)
        element = self._elements[loop.var] = Var(loop.var.name + self._suffix, 0, self._size - 1)
        self._values[loop.var] = self._start + affine(element)
        return For(element, self._inner(loop.body), initial=loop.initial)

    def _control_flow(self, statement: ControlFlow) -> ControlFlow:
        assert isinstance(statement, SequentialFor)
        var = Var(statement.var.name + self._suffix, statement.var.low, statement.var.high)
        self._values[statement.var] = affine(var)
        count = None if statement.count is None else self._number(statement.count)
        for buffer in statement.aliases():
            if buffer not in self._own:
                name = buffer.name + self._suffix
                self._renamed[buffer] = (Buffer(name, buffer.dtype, buffer.size, buffer.role), 0)
        pairs = tuple(map(self._pair, statement.pairs))
        return SequentialFor(var, self._inner(statement.body), count, pairs)

    def _pair(self, pair: DoubleBuffer) -> DoubleBuffer:
        """Return what a strip swaps, both buffers as a whole."""
        names = [pair.current, pair.following, pair.first[0], pair.second[0]]
        current, following, first, second = [
            self._own[buffer] if buffer in self._own else self._renamed.get(buffer, (buffer, 0))[0]
            for buffer in names
        ]
        return DoubleBuffer(current, following, (first, 0), (second, 0), carries=pair.carries)

    def _place(self, old: Buffer, index: Position) -> Place:
        strip_buffer = self._own.get(old)
        if strip_buffer is None:
            return super()._place(old, index)
        assert isinstance(index, Affine)
        (var,) = [atom for atom in index.terms if isinstance(atom, Var) and atom in self._elements]
        placement = placed(index, var, self._group.length)
        assert placement is not None
        factor, row, within = placement
        offset = substitute(row, self._values) * (factor * self._size) + substitute(within, self._values)
        return strip_buffer, offset + affine(self._elements[var]) * factor
