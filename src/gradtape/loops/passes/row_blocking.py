"""Row blocking: a loop over many rows with short loops inside is cut into blocks, and the loop over the rows of a block moves innermost.

Short loops fill vectors badly. Where the rows, the iterations of the outer loop, do not depend on each other, a block of them makes a long
innermost loop: what a row keeps in a register or in scratch becomes an array with one element for each row of the block, and a sum over
rows becomes a sum over the block.
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
from gradtape.loops.traversal import Definitions, positions_of, replace_loops, touched_outside
from gradtape.records import record
from gradtape.statements import walk

BLOCKS: Final = (32, 16, 8)
"""Rows of a block, the most first: whole vectors of AVX-512, four of which hide the time that an
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

    def blocked(loop: For, scratch: list[Buffer]) -> list[Statement] | None:
        plan = _plan(loop, program)
        if plan is None:
            return None
        plan = _plan(*copied_in(loop, program, scratch)) or plan
        wide = {
            buffer: Buffer(buffer.name, buffer.dtype, buffer.size * plan.block, buffer.role)
            for buffer in plan.rows
        }
        statements = _Rewriter(plan, wide, scratch).result()
        scratch[:] = [wide.get(buffer, buffer) for buffer in scratch]
        return statements

    return replace_loops(program, blocked)


@record
class _BlockingPlan:
    """The facts about a loop over rows.

    Attributes
    ----------
    loop : For
        The loop.
    block : int
        Rows of a block.
    rows : set of Buffer
        Scratch of which each row of a block needs its own.
    shared : set of Buffer
        The other buffers that are written.
    varying : set of str
        Registers that differ from row to row.
    accumulators : set of str
        Those that go from row to row.
    lane_wise : set of str
        Registers that become arrays, with an element for each row of a block.
    sums : LaneSums
        Sums in memory with an element for each lane.
    """

    loop: For
    block: int = 0
    rows: set[Buffer] = field(default_factory=set)
    varying: set[str] = field(default_factory=set)
    accumulators: set[str] = field(default_factory=set)
    shared: set[Buffer] = field(default_factory=set)
    lane_wise: set[str] = field(default_factory=set)
    sums: LaneSums = field(default_factory=LaneSums)


def _plan(loop: For, program: LoopProgram) -> _BlockingPlan | None:
    """Return how the rows of a loop of a program are blocked; None where they depend on each other or it does not pay."""
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
    plan = _BlockingPlan(loop)
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
    """Whether there is enough to compute for each element that the lanes of a vector must gather from their rows."""
    computed = gathered = 0

    def visit(statements: Sequence[Statement], trips: int) -> None:
        nonlocal computed, gathered
        for statement in statements:
            if isinstance(statement, For):
                visit(statement.body, trips * statement.trip_count)
            elif isinstance(statement, Compute):
                computed += trips
            elif isinstance(statement, Load | Store) and isinstance(statement.index, Affine):
                gathered += trips * (statement.index.terms.get(loop.var, 1) != 1)

    visit(loop.body, 1)
    return computed >= DENSE * gathered


def _separate_rows(plan: _BlockingPlan, inside: Sequence[Statement], program: LoopProgram) -> bool:
    """Find the scratch of single rows; return whether no row reads what another one writes."""
    row = plan.loop.var
    positions_by_buffer: dict[Buffer, set[Position]] = {}
    written: set[Buffer] = set()
    for statement in inside:
        if isinstance(statement, Load | Store):
            positions_by_buffer.setdefault(statement.buffer, set()).add(statement.index)
            if isinstance(statement, Store):
                written.add(statement.buffer)
        for position in positions_of(statement):
            if isinstance(position, Affine) and any(
                not isinstance(atom, Var) and row in atom.whole.variables() for atom in position.terms
            ):
                return False
    elsewhere = touched_outside(program, [plan.loop])
    for buffer in written:
        follows = [row in _variables(position) for position in positions_by_buffer[buffer]]
        if any(follows):
            if (
                not all(follows)
                or len({_without_others(position, row) for position in positions_by_buffer[buffer]}) > 1
            ):
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


def _only_sums(plan: _BlockingPlan, inside: Sequence[Statement]) -> bool:
    """Return whether what is carried from row to row are sums and other reductions, whose order is free."""
    definitions = Definitions(inside)
    uses = definitions.uses
    for statement in inside:
        if isinstance(statement, Assign) and statement.target.name not in definitions.declares:
            step = definitions.computed(statement.value)
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
            step = definitions.computed(statement.value)
            if step is None or not step.reassociate:
                return False
    return True


def _find_varying(plan: _BlockingPlan, inside: Sequence[Statement]) -> None:
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


def _find_lane_wise(plan: _BlockingPlan, statements: Sequence[Statement]) -> None:
    """Find the varying registers that are used beyond the straight line of statements that defines them: each becomes an array."""
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
            for number in statement.uses():
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
    """Builds the loop over the blocks, and the loop over the rows that are left over.

    Parameters
    ----------
    plan : _BlockingPlan
        What is known of the loop.
    wide : dict of Buffer to Buffer
        What becomes of the scratch of single rows.
    scratch : list of Buffer
        Receives what is needed besides.
    """

    def __init__(self, plan: _BlockingPlan, wide: dict[Buffer, Buffer], scratch: list[Buffer]) -> None:
        self.plan = plan
        self.wide = wide
        self.scratch = scratch
        self.lanes: dict[str, Buffer] = {}
        self.count = 0
        self.prefix = plan.loop.var.name

    def result(self) -> list[Statement]:
        """Return what replaces the loop."""
        row = self.plan.loop.var
        blocks = self.plan.loop.trip_count // self.plan.block
        block = Var(f"{self.prefix}_block", 0, blocks - 1)
        first = row.low + affine(block) * self.plan.block
        sums = self.plan.sums
        self.scratch.extend(sums.buffers.values())
        rows = For(block, self._body(self.plan.loop.body, first))
        statements: list[Statement] = [*sums.before(), rows, *sums.after()]
        start = row.low + blocks * self.plan.block
        if start <= row.high:
            rest_buffers = {
                old: Buffer(f"{old.name}_rest", old.dtype, old.size, old.role) for old in self.wide
            }
            self.scratch.extend(rest_buffers.values())
            rest_row = Var(f"{row.name}_rest", start, row.high)
            moved: dict[Buffer, tuple[Buffer, Position]] = {
                old: (new, 0) for old, new in rest_buffers.items()
            }
            copier = Copier({row: affine(rest_row)}, moved, suffix="_rest")
            statements.append(For(rest_row, copier.block(self.plan.loop.body)))
        return statements

    def _body(self, statements: Sequence[Statement], first: Position) -> list[Statement]:
        """Return what one block does, whose first row is `first`: each straight line of statements becomes a loop over the rows."""
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

    def _flush(self, run: Sequence[Statement], out_block: list[Statement], first: Position) -> None:
        """Append a straight line of statements: what is the same for all rows once, the rest in a loop over the rows of the block.

        Parameters
        ----------
        run : sequence of Statement
            The straight line.
        made : list of Statement
            Receives them.
        first : Position
            The first row of the block.
        """
        varying = [statement for statement in run if not self._same_for_all(statement)]
        out_block.extend(statement for statement in run if self._same_for_all(statement))
        if not varying:
            return
        self.count += 1
        lane = Var(f"{self.prefix}_lane{self.count}", 0, self.plan.block - 1)
        lane_position = affine(lane)
        row = first + lane_position
        body: list[Statement] = []
        if any(isinstance(s, Store) and s.buffer in self.plan.sums.buffers for s in varying):
            out_block.append(self._lane_by_lane(varying, first))
            return
        before, after = self._sums(varying)
        finish: list[Statement] = []
        for statement in varying:
            if isinstance(statement, Load) and statement.target.name in before:
                out_block.append(statement)
                out_block.append(Declare(before[statement.target.name], statement.target))
                continue
            value = statement.value if isinstance(statement, Store) else None
            if isinstance(statement, Store) and isinstance(value, Register) and value.name in after:
                total = after[value.name]
                body.append(Assign(total, value))
                final = Register(f"{total.name}_final", total.dtype)
                finish.append(Compute(final, "identity", None, (total,)))
                finish.append(Store(statement.buffer, statement.index, final))
                continue
            self._lane_statement(statement, lane_position, row, before, body)
        out_block.append(For(lane, body, lanes=True))
        out_block.extend(finish)

    def _lane_by_lane(self, run: Sequence[Statement], first: Position) -> For:
        """Return the loop over the lanes of one vector, with the vectors of the block one after the other.

        Each vector continues the totals of the one before. `run` and `first` are as of `_flush`.
        """
        wide = self.plan.sums.buffers
        lane = Var(f"{self.prefix}_lane{self.count}", 0, LANES - 1)
        inner = [s for s in run if not (isinstance(s, Load | Store) and s.buffer in wide)]
        loads = [s for s in run if isinstance(s, Load) and s.buffer in wide]
        stores = {
            s.value.name: s
            for s in run
            if isinstance(s, Store) and s.buffer in wide and isinstance(s.value, Register)
        }
        body: list[Statement] = [
            Load(load.target, wide[load.buffer], load.index * LANES + affine(lane)) for load in loads
        ]
        totals = {load.target.name: load.target for load in loads}
        ends: dict[str, Register] = {}
        for vector in range(self.plan.block // LANES):
            lane_position = affine(lane) + vector * LANES
            part: list[Statement] = []
            for statement in inner:
                self._lane_statement(statement, lane_position, first + lane_position, totals, part)
            copier = Copier({}, {}, suffix=f"_{vector}")
            body.extend(copier.block(part))
            for statement in inner:
                if isinstance(statement, Compute) and statement.target.name in stores:
                    end, total = copier.numbers[statement.target.name], statement.args[0]
                    assert isinstance(end, Register) and isinstance(total, Register)
                    ends[statement.target.name] = totals[total.name] = end
        body.extend(
            Store(wide[store.buffer], store.index * LANES + affine(lane), ends[name])
            for name, store in stores.items()
        )
        return For(lane, body, lanes=True)

    def _same_for_all(self, statement: Statement) -> bool:
        return isinstance(statement, Load | Compute) and statement.target.name not in self.plan.varying

    def _sums(self, run: Sequence[Statement]) -> tuple[dict[str, Register], dict[str, Register]]:
        """Find sums over rows in memory: loaded, added to, and stored at one place that is the same for all rows.

        Returns
        -------
        tuple of dict of str to Register
            The accumulators, by the register that was loaded and by the one that is stored.
        """
        before: dict[str, Register] = {}
        after: dict[str, Register] = {}
        definitions = Definitions(run)
        for statement in run:
            if not isinstance(statement, Store) or statement.buffer in self.wide:
                continue
            if self.plan.loop.var in _variables(statement.index) or not isinstance(statement.value, Register):
                continue
            step = definitions.computed(statement.value)
            load = None if step is None else definitions.loaded(step.args[0])
            if load is not None and (load.buffer, load.index) == (statement.buffer, statement.index):
                total = Register(f"{load.target.name}_sum", load.target.dtype)
                before[load.target.name] = after[statement.value.name] = total
        return before, after

    def _lane_statement(
        self,
        statement: Statement,
        lane_position: Position,
        row: Position,
        totals: dict[str, Register],
        body: list[Statement],
    ) -> None:
        """Append a statement for one row of the block.

        Parameters
        ----------
        statement : Statement
            Of the loop over rows.
        place, row : Position
            The number of the row in the block, and in the loop.
        totals : dict of str to Register
            The accumulators that replace registers.
        body : list of Statement
            Receives the statement, with what it loads and stores besides.
        """
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
                    body.append(Load(read, self._lane_buffer(old), lane_position))
                    return read
            return old

        if isinstance(statement, Load):
            index = self._index(statement.buffer, substitute(statement.index, values), lane_position)
            body.append(Load(statement.target, self.wide.get(statement.buffer, statement.buffer), index))
            self._spread(statement.target, body, lane_position)
        elif isinstance(statement, Store):
            index = self._index(statement.buffer, substitute(statement.index, values), lane_position)
            value = number(statement.value)
            body.append(Store(self.wide.get(statement.buffer, statement.buffer), index, value))
        elif isinstance(statement, Compute):
            args = tuple([number(arg) for arg in statement.args])
            body.append(
                Compute(statement.target, statement.function, statement.body, args, statement.reassociate)
            )
            self._spread(statement.target, body, lane_position)
        elif isinstance(statement, Declare | Assign):
            value = number(statement.value)
            if statement.target.name in self.plan.lane_wise:
                body.append(Store(self._lane_buffer(statement.target), lane_position, value))
            else:
                body.append(type(statement)(statement.target, value))

    def _spread(self, target: Register, body: list[Statement], lane_position: Position) -> None:
        if target.name in self.plan.lane_wise:
            body.append(Store(self._lane_buffer(target), lane_position, target))

    def _lane_buffer(self, register: Register) -> Buffer:
        buffer = self.lanes.get(register.name)
        if buffer is None:
            buffer = self.lanes[register.name] = Buffer(
                f"l_{register.name}", register.dtype, self.plan.block, "scratch"
            )
            self.scratch.append(buffer)
        return buffer

    def _index(self, buffer: Buffer, index: Position, lane_position: Position) -> Position:
        return index * self.plan.block + lane_position if buffer in self.wide else index
