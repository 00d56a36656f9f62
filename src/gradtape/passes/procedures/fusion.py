"""Loop fusion in procedures: neighbouring loops with the same trip count become one, so that elements pass between them in registers.

After R. Allen and K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001, chapter 8. A fusion is legal where
no iteration of the second loop meets an element that a later iteration of the first one uses. What stands between the loops moves before
the first one or behind the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import INT64
from gradtape.passes.procedures.accesses import LoopAccesses, conflicts
from gradtape.passes.procedures.dead import remove_dead_statements
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.passes.procedures.splitting import piece_of
from gradtape.procedures.affine import distance, linear_form
from gradtape.procedures.builder import leaf
from gradtape.procedures.dataflow import exposed_variables, total_chain
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Content,
    For,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Variable,
    While,
)
from gradtape.procedures.rewrite import BlockPass, Rewriter
from gradtape.procedures.traversal import assigned, reads
from gradtape.statements import walk
from gradtape.transforms.procedures.accumulate import structure

MOST_PAIRS: Final = 300
"""Pairs of accesses that are compared for a fusion."""

REACH: Final = 24
"""Statements between two loops that are fused, at most."""

MOST_ROWS: Final = 4
"""Rows of a matrix up to which each has its own loop, if one that uses a row can be fused with it, as with stacked gates."""

LEAST_ROW: Final = 8
"""Elements of such rows, at least: fewer are no vector."""

NEAR: Final = 64
"""Iterations after which a loop may use an element again without standing in the way of vectors."""


def fuse_loops(procedure: Procedure) -> Procedure:
    """Return the procedure with loops fused that use the same elements; the same procedure where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from gradtape.ir.types import aval
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("twice")
    >>> x = build.array("x", (5,))
    >>> y, z = build.allocate("y", 5), build.allocate("z", 5)
    >>> with build.loop(5) as i:
    ...     build.store(y, i, build.load(x, i) * 2.0)
    >>> with build.loop(5) as i:
    ...     build.store(z, i, build.load(y, i) + 1.0)
    >>> fused = fuse_loops(build.finish([z], [aval((5,), np.dtype(float))]))
    >>> [type(statement).__name__ for statement in fused.body]
    ['Allocate', 'Allocate', 'For']
    """
    return _Fusion(procedure).rewritten(procedure)


def contract_arrays(procedure: Procedure) -> Procedure:
    """Return the procedure after loop fusion, without the arrays that only hand on elements within an iteration."""
    fused = fuse_loops(procedure)
    return procedure if fused is procedure else remove_dead_statements(forward_elements(fused))


def _nested(loop: Statement) -> For | None:
    """Return the loop that is all that another one of a few iterations repeats, None if it is no such nest."""
    if not isinstance(loop, For) or loop.parallel or len(loop.body) != 1:
        return None
    rows = number_of(loop.count)
    if rows is None or not 1 < rows <= MOST_ROWS:
        return None
    inner = loop.body[0]
    return inner if isinstance(inner, For) and not inner.parallel and _is_innermost(inner) else None


class _Effects(NamedTuple):
    """The locations that a statement, with its blocks, reads, writes and defines; the tape is None."""

    reads: set[Memory | Variable | None]
    writes: set[Memory | Variable | None]
    defines: set[Content]
    uses: set[Content]

    def conflict(self, later: _Effects) -> bool:
        """Return whether a later statement cannot change places with this one."""
        return not (
            self.writes.isdisjoint(later.reads)
            and self.writes.isdisjoint(later.writes)
            and self.reads.isdisjoint(later.writes)
            and self.defines.isdisjoint(later.uses)
        )


class _Fusion(BlockPass):
    """Fuses the loops of one procedure."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._effects: dict[Statement, _Effects] = {}
        self._readers = reads(procedure.body)
        self._leaves: dict[Value, frozenset[Content]] = {}

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements of a block with loops fused, outer ones first."""
        fused = self._row_by_row(statements)
        position = 0
        while position < len(fused):  # terminates: each round has fewer statements, or a greater position
            new_position = self._join(fused, position)
            position = position + 1 if new_position is None else new_position
        return [self._inner(statement) for statement in fused]

    def _inner(self, statement: Statement) -> Statement:
        """Return a statement with the loops in its blocks fused."""
        count = self.count
        changed = self.with_blocks(statement)
        return changed if self.count > count else statement

    def _row_by_row(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return statements with a loop for each row of the nests over a few rows that share an array with a loop over one row."""
        lengths = [number_of(s.count) for s in statements if isinstance(s, For) and _is_innermost(s)]
        result: list[Statement] = []
        for statement in statements:
            inner = _nested(statement)
            length = None if inner is None else number_of(inner.count)
            if (
                length is None
                or length < LEAST_ROW
                or length not in lengths
                or not self._meets(statement, statements)
            ):
                result.append(statement)
                continue
            assert isinstance(statement, For)
            self.count += 1
            for row in range(int(number_of(statement.count) or 0)):
                result += piece_of(statement, row, row + 1)
        return result

    def _meets(self, nest: Statement, statements: Sequence[Statement]) -> bool:
        """Return whether a nest uses an array that a loop over one of its rows stores, or the other way round."""
        inner, nest_effects = _nested(nest), self._effects_of(nest)
        assert inner is not None
        for other in statements:
            if isinstance(other, For) and _is_innermost(other) and _are_equal(other.count, inner.count):
                its = self._effects_of(other)
                shared = (nest_effects.writes & (its.reads | its.writes)) | (nest_effects.reads & its.writes)
                if any(isinstance(x, Memory) for x in shared):
                    return True
        return False

    def _join(self, statements: list[Statement], position: int) -> int | None:
        """Fuse the loop at a position with one before it; return the new position, None if there is none."""
        second = statements[position]
        if not isinstance(second, For):
            return None
        for earlier in range(position - 1, max(-1, position - 1 - REACH), -1):
            first = statements[earlier]
            if not isinstance(first, For):
                continue
            first, other = self._alike(first, second)
            if not self._may_gain(first, other):
                continue
            moved = self._moved(first, statements[earlier + 1 : position], other)
            if moved is None:
                continue
            fused = self._fused(first, other)
            if fused is None:
                continue
            before, after = moved
            statements[earlier : position + 1] = [*before, fused, *after]
            self.count += 1
            return earlier + len(before)
        return None

    # Whether it pays

    def _alike(self, first: For, second: For) -> tuple[For, For]:
        """Return two loops; one over all elements of an array as a nest over rows, if the other one is such."""
        first_count, second_count = number_of(first.count), number_of(second.count)
        if first_count is None or second_count is None or first_count == second_count:
            return first, second
        flat, nest = (first, second) if first_count > second_count else (second, first)
        if not _is_innermost(flat) or None in self._effects_of(flat).writes:
            return first, second
        rows = _in_rows(flat, nest)
        if rows is None:
            return first, second
        return (rows, second) if flat is first else (first, rows)

    def _may_gain(self, first: For, second: For) -> bool:
        """Return whether one loop uses an array that the other one stores, or both the same ones, and both are of one sort."""
        if first.parallel is not second.parallel or not _are_equal(first.count, second.count):
            return False
        effects, other_effects = self._effects_of(first), self._effects_of(second)
        if None in effects.writes and None in other_effects.writes:
            return False
        shared = (effects.writes & (other_effects.reads | other_effects.writes)) | (
            effects.reads & other_effects.writes
        )
        if effects.reads - effects.writes == other_effects.reads - other_effects.writes:
            shared |= effects.reads - effects.writes
        if not any(isinstance(x, Memory) for x in shared):
            return False
        innermost = [_is_innermost(loop) for loop in (first, second)]
        if not any(innermost):
            return True
        if not all(innermost):
            return False
        return not any(is_sequential(loop) for loop in (first, second))

    # Statements between

    def _moved(
        self, first: For, between: Sequence[Statement], second: For
    ) -> tuple[list[Statement], list[Statement]] | None:
        """Return the statements between two loops that move before them, and those that move behind; None where they cannot."""
        before: list[Statement] = []
        after: list[Statement] = []
        for statement in between:
            effects = self._effects_of(statement)
            if not any(self._effects_of(s).conflict(effects) for s in (first, *after)):
                before.append(statement)
            elif not effects.conflict(self._effects_of(second)):
                after.append(statement)
            else:
                return None
        return before, after

    def _effects_of(self, statement: Statement) -> _Effects:
        effects = self._effects.get(statement)
        if effects is None:
            effects = self._effects[statement] = _Effects(set(), set(), set(statement.defines()), set())
            for inner in walk([statement]):
                for content in inner.uses():
                    effects.uses.update(self._leaves_of(content))
                effects.reads.update([pointer.memory for pointer in inner.pointers_read()])
                effects.writes.update([pointer.memory for pointer in inner.pointers_written()])
                if isinstance(inner, Read):
                    effects.reads.add(inner.variable)
                elif isinstance(inner, Assign):
                    effects.writes.add(inner.variable)
                elif isinstance(inner, Push | Pop):
                    effects.writes.add(None)
        return effects

    def _leaves_of(self, content: Content) -> frozenset[Content]:
        if isinstance(content, Pointer):
            return frozenset([content])
        leaves = self._leaves.get(content)
        if leaves is None:
            leaves = self._leaves[content] = frozenset[Content](extract([content])[1])
        return leaves

    # Whether it is legal

    def _fused(self, first: For, second: For) -> For | None:
        """Return two loops as one; None where that changes what they compute."""
        if not self._have_own_variables(first, second):
            return None
        copy = Rewriter()
        copy.becomes[second.index] = first.index
        body = copy.block(second.body)
        fused = For(first.index, first.count, [*first.body, *body], first.parallel, first.site)
        pairs = list(conflicts(first.body, body))
        if len(pairs) > MOST_PAIRS or any(
            isinstance(s, Apply) or isinstance(t, Apply) or s.pointer is not t.pointer for s, t in pairs
        ):
            return None
        accesses = LoopAccesses.around(fused, self.around)
        must_be_independent = fused.parallel or _is_innermost(fused)
        for access, other_access in pairs:
            assert not isinstance(access, Apply) and not isinstance(other_access, Apply)
            if accesses.precedes(fused, other_access, access) or (
                must_be_independent and accesses.precedes(fused, access, other_access)
            ):
                return None
        return fused

    def _have_own_variables(self, first: For, second: For) -> bool:
        """Return whether neither loop reads what the other one assigns."""
        assigned_by_loops = [assigned(loop.body) for loop in (first, second)]
        exposed = [exposed_variables(loop) for loop in (first, second)]
        if not assigned_by_loops[0].isdisjoint(exposed[1]) or not assigned_by_loops[1].isdisjoint(exposed[0]):
            return False
        inside = reads([first, second])  # of variables that are used within iterations, of either loop
        return all(
            inside[variable] >= self._readers[variable]
            for variable in assigned_by_loops[0] & assigned_by_loops[1]
        )


def _are_equal(first: Value, second: Value) -> bool:
    a, b = number_of(first), number_of(second)
    if a is not None or b is not None:
        return a == b
    return first is second or structure(first) == structure(second)


def _in_rows(flat: For, nest: For) -> For | None:
    """Return a loop as a nest with the trip counts of another one; None where their product is another one."""
    size = number_of(flat.count)
    shape = None if size is None or flat.parallel else _shape(nest, int(size))
    if shape is None or len(shape) < 2:
        return None
    numbers = [leaf(INT64) for _ in shape]
    index: Value = numbers[0]
    for extent, number in zip(shape[1:], numbers[1:], strict=True):
        index = index * extent + number
    copy = Rewriter()
    copy.becomes[flat.index] = index
    body = copy.block(flat.body)
    for extent, number in zip(reversed(shape), reversed(numbers), strict=True):
        body = [For(number, literal(extent, INT64), body)]
    (nested,) = body
    assert isinstance(nested, For)
    return nested


def _shape(nest: For, size: int) -> list[int] | None:
    """Return the trip counts of nested loops whose product is a number; None if there are none."""
    rows = number_of(nest.count)
    if rows is None or rows < 2 or size % int(rows):
        return None
    if rows == size:
        return [size]
    for inner in nest.body:
        inner_counts = _shape(inner, size // int(rows)) if isinstance(inner, For) else None
        if inner_counts is not None:
            return [int(rows), *inner_counts]
    return None


def _is_innermost(loop: For) -> bool:
    return not any(isinstance(s, For | While | Apply) for s in walk(loop.body))


def is_sequential(loop: For) -> bool:
    """Return whether iterations hand on numbers other than sums, or elements that other iterations near to them use."""
    inside = list(walk(loop.body))
    exposed = exposed_variables(loop)
    trips = number_of(loop.count)
    reach = NEAR if trips is None else min(NEAR, int(trips))
    for variable in assigned(loop.body) & exposed:
        if total_chain(variable, inside, exposed) is None:
            return True
    pairs = [
        (access, other_access)
        for access, other_access in conflicts(loop.body, loop.body)
        if not isinstance(access, Apply)
        and not isinstance(other_access, Apply)
        and access.index is not other_access.index
    ]
    if len(pairs) > MOST_PAIRS:
        return True
    for access, other_access in pairs:
        gap, step = distance(access.index, other_access.index), linear_form(access.index).get(loop.index, 0)
        if gap and step and gap % step == 0 and abs(gap // step) < reach:
            return True
    return False
