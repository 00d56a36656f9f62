"""Rows side by side: a loop over many rows with short loops inside becomes short loops with a block of
rows inside.

Short loops fill vectors badly. Where the rows do not depend on each other, a block of them makes a long
innermost loop: what a row keeps in a register or in scratch becomes an array with one element per row of
the block, and a sum over rows becomes a sum over the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from gradtape.loops.affine import Affine, Atom, Position, Var, affine, substitute
from gradtape.loops.copies import Copier
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Index,
    Load,
    LoopProgram,
    Number,
    Register,
    Statement,
    Store,
)
from gradtape.loops.passes.gathers import copied_in
from gradtape.loops.passes.lanes import LANES, LaneSums, find_lane_sums
from gradtape.loops.traversal import numbers_of, positions_of, touched, walk
from gradtape.records import record

BLOCKS: Final = (32, 16, 8)
"""Rows side by side, the most first: whole vectors of AVX-512, four of which hide the time that an
addition takes."""

SHORT: Final = 64
"""Iterations of an inner loop above which it fills vectors by itself."""

DENSE: Final = 24
"""Operations per gathered element from which blocks pay: a softmax of rows of 16 has 4 and loses a third,
a mixture of 25 Gaussians in 10 dimensions has 80 and gains a factor of 6."""

ROOM: Final = 2**18
"""Bytes of scratch for a block of rows that the second cache holds."""

MANY: Final = 8
"""Blocks from which sums with a place for each lane pay for being brought together."""


def block_rows(program: LoopProgram) -> LoopProgram:
    """Return the program with blocks of rows where that is possible and pays."""
    scratch = list(program.scratch)
    body: list[Statement] = []
    for statement in program.body:
        plan = _plan(statement, program) if isinstance(statement, For) else None
        if plan is None:
            body.append(statement)
            continue
        plan = _plan(*copied_in(plan.loop, program, scratch)) or plan
        wide = {
            buffer: Buffer(buffer.name, buffer.dtype, buffer.size * plan.block, buffer.role)
            for buffer in plan.rows
        }
        body.extend(_Rewriter(plan, wide, scratch).result())
        scratch = [wide.get(buffer, buffer) for buffer in scratch]
    if body == program.body:
        return program
    return LoopProgram(program.name, program.inputs, program.outputs, scratch, body)


@record
class _Plan:
    """What is known of a loop over rows."""

    loop: For
    block: int = 0
    rows: set[Buffer] = field(default_factory=set)
    varying: set[str] = field(default_factory=set)
    accumulators: set[str] = field(default_factory=set)
    shared: set[Buffer] = field(default_factory=set)
    lane_wise: set[str] = field(default_factory=set)
    sums: LaneSums = field(default_factory=LaneSums)


def _plan(loop: For, program: LoopProgram) -> _Plan | None:
    inside = list(walk(loop.body))
    inner = [statement for statement in inside if isinstance(statement, For)]
    if (
        loop.trip_count < 2 * BLOCKS[-1]
        or not inner
        or any(statement.trip_count > SHORT for statement in inner)
    ):
        return None
    if not all(isinstance(s, For | Load | Store | Compute | Declare | Assign) for s in inside):
        return None
    if not _pays(loop):
        return None
    plan = _Plan(loop)
    if not _separate_rows(plan, inside, program) or not _only_sums(plan, inside):
        return None
    room = sum(buffer.nbytes for buffer in plan.rows)
    plan.block = next((block for block in BLOCKS if room * block <= ROOM and loop.trip_count >= 2 * block), 0)
    if not plan.block:
        return None
    _find_varying(plan, inside)
    _find_lane_wise(plan, loop.body)
    if loop.trip_count >= MANY * plan.block:
        plan.sums = find_lane_sums(inside, plan.shared, loop.var)
    return plan


def _pays(loop: For) -> bool:
    """Whether there is enough to compute for each element that the lanes of a vector must gather from
    their rows."""
    computed = gathered = 0

    def visit(statements: Sequence[Statement], turns: int) -> None:
        nonlocal computed, gathered
        for statement in statements:
            if isinstance(statement, For):
                visit(statement.body, turns * statement.trip_count)
            elif isinstance(statement, Compute):
                computed += turns
            elif isinstance(statement, Load | Store) and isinstance(statement.index, Affine):
                gathered += turns * (statement.index.terms.get(loop.var, 1) != 1)

    visit(loop.body, 1)
    return computed >= DENSE * gathered


def _separate_rows(plan: _Plan, inside: Sequence[Statement], program: LoopProgram) -> bool:
    """Find the scratch of single rows; return whether no row reads what another one writes."""
    row = plan.loop.var
    places: dict[Buffer, set[Position]] = {}
    written: set[Buffer] = set()
    for statement in inside:
        if isinstance(statement, Load | Store):
            places.setdefault(statement.buffer, set()).add(statement.index)
            if isinstance(statement, Store):
                written.add(statement.buffer)
        for position in positions_of(statement):
            if isinstance(position, Affine) and any(
                not isinstance(atom, Var) and row in atom.whole.variables() for atom in position.terms
            ):
                return False
    elsewhere = touched([statement for statement in program.body if statement is not plan.loop])
    for buffer in written:
        follows = [row in _variables(position) for position in places[buffer]]
        if any(follows):
            if not all(follows) or len({_without_others(position, row) for position in places[buffer]}) > 1:
                return False
        elif buffer.role == "scratch" and buffer not in elsewhere:
            plan.rows.add(buffer)
    plan.shared = written - plan.rows
    return True


def _variables(position: Position) -> set[Var]:
    return position.variables() if isinstance(position, Affine) else set()


def _without_others(position: Position, row: Var) -> tuple[int, int]:
    """Return the row's factor, and the offset in rows: equal for places in the same row."""
    assert isinstance(position, Affine)
    factor = position.terms[row]
    return factor, position.offset // factor


def _only_sums(plan: _Plan, inside: Sequence[Statement]) -> bool:
    """Return whether what is carried from row to row are sums and other reductions, whose order is free."""
    declared = {s.target.name for s in inside if isinstance(s, Declare)}
    made = {s.target.name: s for s in inside if isinstance(s, Compute)}
    uses: dict[str, int] = {}
    for statement in inside:
        for number in numbers_of(statement):
            if isinstance(number, Register):
                uses[number.name] = uses.get(number.name, 0) + 1
    for statement in inside:
        if isinstance(statement, Assign) and statement.target.name not in declared:
            value = statement.value
            step = made.get(value.name) if isinstance(value, Register) else None
            if (
                step is None
                or not step.reassociate
                or uses[step.target.name] != 1
                or uses[statement.target.name] != 1
            ):
                return False
            plan.accumulators.add(statement.target.name)
        if isinstance(statement, Store) and statement.buffer in plan.shared:
            if plan.loop.var in _variables(statement.index):
                continue
            value = statement.value
            step = made.get(value.name) if isinstance(value, Register) else None
            if step is None or not step.reassociate:
                return False
    return True


def _find_varying(plan: _Plan, inside: Sequence[Statement]) -> None:
    """Find the registers that differ from row to row."""
    row = plan.loop.var
    changed = {s.buffer for s in inside if isinstance(s, Store)}
    plan.varying |= {s.target.name for s in inside if isinstance(s, Declare | Assign)}
    for statement in inside:
        if isinstance(statement, Load):
            if statement.buffer in changed or row in _variables(statement.index):
                plan.varying.add(statement.target.name)
        elif isinstance(statement, Compute):
            for number in statement.args:
                if (isinstance(number, Register) and number.name in plan.varying) or (
                    isinstance(number, Index) and row in _variables(number.position)
                ):
                    plan.varying.add(statement.target.name)


def _find_lane_wise(plan: _Plan, statements: Sequence[Statement]) -> None:
    """Find the varying registers that are used beyond the run of statements that makes them: each becomes
    an array."""
    home: dict[str, int] = {}
    count = 0

    def visit(body: Sequence[Statement]) -> None:
        nonlocal count
        count += 1
        for statement in body:
            if isinstance(statement, For):
                visit(statement.body)
                count += 1
                continue
            for number in numbers_of(statement):
                if (
                    isinstance(number, Register)
                    and number.name in plan.varying
                    and home.get(number.name, count) != count
                ):
                    plan.lane_wise.add(number.name)
            if isinstance(statement, Load | Compute | Declare):
                home[statement.target.name] = count
            elif isinstance(statement, Assign) and home.get(statement.target.name, count) != count:
                plan.lane_wise.add(statement.target.name)

    visit(statements)
    plan.lane_wise -= plan.accumulators


class _Rewriter:
    """Builds the blocks, and the loop over the rows that are left."""

    def __init__(self, plan: _Plan, wide: dict[Buffer, Buffer], scratch: list[Buffer]) -> None:
        self.plan = plan
        self.wide = wide
        self.scratch = scratch
        self.lanes: dict[str, Buffer] = {}
        self.count = 0
        self.prefix = plan.loop.var.name

    def result(self) -> list[Statement]:
        row = self.plan.loop.var
        blocks = self.plan.loop.trip_count // self.plan.block
        block = Var(f"{self.prefix}_block", 0, blocks - 1)
        first = row.low + affine(block) * self.plan.block
        sums = self.plan.sums
        self.scratch.extend(sums.buffers.values())
        rows = For(block, self._body(self.plan.loop.body, first))
        made: list[Statement] = [*sums.before(), rows, *sums.after()]
        start = row.low + blocks * self.plan.block
        if start <= row.high:
            own = {old: Buffer(f"{old.name}_rest", old.dtype, old.size, old.role) for old in self.wide}
            self.scratch.extend(own.values())
            rest = Var(f"{row.name}_rest", start, row.high)
            moved: dict[Buffer, tuple[Buffer, Position]] = {old: (new, 0) for old, new in own.items()}
            copier = Copier({row: affine(rest)}, moved, suffix="_rest")
            made.append(For(rest, copier.block(self.plan.loop.body)))
        return made

    def _body(self, statements: Sequence[Statement], first: Position) -> list[Statement]:
        made: list[Statement] = []
        run: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For):
                self._flush(run, made, first)
                run = []
                made.append(For(statement.var, self._body(statement.body, first)))
            else:
                run.append(statement)
        self._flush(run, made, first)
        return made

    def _flush(self, run: Sequence[Statement], made: list[Statement], first: Position) -> None:
        """Append a run of statements: what is the same for all rows once, the rest in a loop over the
        block."""
        varying = [statement for statement in run if not self._same_for_all(statement)]
        made.extend(statement for statement in run if self._same_for_all(statement))
        if not varying:
            return
        self.count += 1
        lane = Var(f"{self.prefix}_lane{self.count}", 0, self.plan.block - 1)
        place = affine(lane)
        row = first + place
        body: list[Statement] = []
        if any(isinstance(s, Store) and s.buffer in self.plan.sums.buffers for s in varying):
            made.append(self._lanes_apart(varying, first))
            return
        before, after = self._sums(varying)
        finish: list[Statement] = []
        for statement in varying:
            if isinstance(statement, Load) and statement.target.name in before:
                made.append(statement)
                made.append(Declare(before[statement.target.name], statement.target))
                continue
            value = statement.value if isinstance(statement, Store) else None
            if isinstance(statement, Store) and isinstance(value, Register) and value.name in after:
                total = after[value.name]
                body.append(Assign(total, value))
                final = Register(f"{total.name}_final", total.dtype)
                finish.append(Compute(final, "identity", None, (total,)))
                finish.append(Store(statement.buffer, statement.index, final))
                continue
            self._lane_statement(statement, place, row, before, body)
        made.append(For(lane, body, lanes=True))
        made.extend(finish)

    def _lanes_apart(self, run: Sequence[Statement], first: Position) -> For:
        """Return the loop over the lanes of one vector, with the vectors of the block one after the other."""
        wide = self.plan.sums.buffers
        lane = Var(f"{self.prefix}_lane{self.count}", 0, LANES - 1)
        body: list[Statement] = []
        totals: dict[str, Register] = {}
        for statement in run:
            if isinstance(statement, Load) and statement.buffer in wide:
                body.append(
                    Load(statement.target, wide[statement.buffer], statement.index * LANES + affine(lane))
                )
                totals[statement.target.name] = statement.target
        ends: dict[str, Register] = {}
        for vector in range(self.plan.block // LANES):
            place = affine(lane) + vector * LANES
            part: list[Statement] = []
            for statement in run:
                if not (isinstance(statement, Load | Store) and statement.buffer in wide):
                    self._lane_statement(statement, place, first + place, totals, part)
            copier = Copier({}, {}, suffix=f"_{vector}")
            body.extend(copier.block(part))
            for statement in run:
                if isinstance(statement, Store) and statement.buffer in wide:
                    assert isinstance(statement.value, Register)
                    end = copier.numbers[statement.value.name]
                    assert isinstance(end, Register)
                    ends[statement.value.name] = end
            for statement in run:
                if isinstance(statement, Compute) and statement.target.name in ends:
                    (total, *_) = statement.args
                    assert isinstance(total, Register)
                    totals[total.name] = ends[statement.target.name]
        for statement in run:
            if isinstance(statement, Store) and statement.buffer in wide:
                assert isinstance(statement.value, Register)
                body.append(
                    Store(
                        wide[statement.buffer],
                        statement.index * LANES + affine(lane),
                        ends[statement.value.name],
                    )
                )
        return For(lane, body, lanes=True)

    def _same_for_all(self, statement: Statement) -> bool:
        return isinstance(statement, Load | Compute) and statement.target.name not in self.plan.varying

    def _sums(self, run: Sequence[Statement]) -> tuple[dict[str, Register], dict[str, Register]]:
        """Find sums over rows in memory: loaded, added to, and stored at one place that is the same for
        all rows.

        Returns the running totals by what was loaded, and by what is stored.
        """
        before: dict[str, Register] = {}
        after: dict[str, Register] = {}
        loads = {s.target.name: s for s in run if isinstance(s, Load)}
        made = {s.target.name: s for s in run if isinstance(s, Compute)}
        for statement in run:
            if not isinstance(statement, Store) or statement.buffer in self.wide:
                continue
            if self.plan.loop.var in _variables(statement.index) or not isinstance(statement.value, Register):
                continue
            step = made.get(statement.value.name)
            loaded = step.args[0] if step is not None else None
            if not isinstance(loaded, Register) or loaded.name not in loads:
                continue
            load = loads[loaded.name]
            if (load.buffer, load.index) == (statement.buffer, statement.index):
                total = Register(f"{loaded.name}_sum", loaded.dtype)
                before[loaded.name] = after[statement.value.name] = total
        return before, after

    def _lane_statement(
        self,
        statement: Statement,
        place: Position,
        row: Position,
        totals: dict[str, Register],
        body: list[Statement],
    ) -> None:
        values: dict[Atom, Position] = {self.plan.loop.var: row}

        def number(old: Number) -> Number:
            if isinstance(old, Index):
                return Index(substitute(old.position, values))
            if isinstance(old, Register):
                if old.name in totals:
                    return totals[old.name]
                if old.name in self.plan.lane_wise:
                    self.count += 1
                    read = Register(f"{old.name}_at{self.count}", old.dtype)
                    body.append(Load(read, self._lane_buffer(old), place))
                    return read
            return old

        if isinstance(statement, Load):
            index = self._index(statement.buffer, substitute(statement.index, values), place)
            body.append(Load(statement.target, self.wide.get(statement.buffer, statement.buffer), index))
            self._spread(statement.target, body, place)
        elif isinstance(statement, Store):
            index = self._index(statement.buffer, substitute(statement.index, values), place)
            value = number(statement.value)
            body.append(Store(self.wide.get(statement.buffer, statement.buffer), index, value))
        elif isinstance(statement, Compute):
            args = tuple([number(arg) for arg in statement.args])
            body.append(
                Compute(statement.target, statement.function, statement.body, args, statement.reassociate)
            )
            self._spread(statement.target, body, place)
        elif isinstance(statement, Declare | Assign):
            value = number(statement.value)
            if statement.target.name in self.plan.lane_wise:
                body.append(Store(self._lane_buffer(statement.target), place, value))
            else:
                body.append(type(statement)(statement.target, value))

    def _spread(self, target: Register, body: list[Statement], place: Position) -> None:
        if target.name in self.plan.lane_wise:
            body.append(Store(self._lane_buffer(target), place, target))

    def _lane_buffer(self, register: Register) -> Buffer:
        buffer = self.lanes.get(register.name)
        if buffer is None:
            buffer = self.lanes[register.name] = Buffer(
                f"l_{register.name}", register.dtype, self.plan.block, "scratch"
            )
            self.scratch.append(buffer)
        return buffer

    def _index(self, buffer: Buffer, index: Position, place: Position) -> Position:
        return index * self.plan.block + place if buffer in self.wide else index
