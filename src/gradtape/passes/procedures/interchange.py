"""Loop interchange in procedures: the inner loop becomes the one that walks along neighbouring elements, where vectors are possible.

A nest ``for j: before; for k: inner; after`` becomes ``for j: before``, ``for k: for j: inner`` and ``for j: after``: the loop over j is
distributed, and the loops in the middle are exchanged. Numbers that pass between the parts are expanded to arrays. So products of a matrix
and the columns of another one are sums of rows. Each element gets the same terms in the same order.

A perfect nest ``for k: for i: for j: body`` becomes ``for i: for j: for k: body`` where k counts neighbouring elements: columns of a grid
that a loop over their heights goes through are computed one after the other, in the caches.

After R. Allen and K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001, chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gradtape.costs import CACHE_LINE
from gradtape.ir.graph import Value, extract, number_of
from gradtape.ir.types import INT64, Aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.passes.procedures.accesses import LoopAccesses, conflicts
from gradtape.passes.procedures.fusion import is_sequential
from gradtape.procedures.affine import linear_form
from gradtape.procedures.builder import leaf
from gradtape.procedures.dataflow import exposed_variables
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    For,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import BlockPass, Rewriter
from gradtape.procedures.traversal import assigned, leaves_of, reads
from gradtape.records import replaced
from gradtape.statements import walk

FEWEST: Final = 8
"""Iterations of a loop from which on it is moved inwards."""

MOST: Final = 4096
"""Iterations of such a loop at most: expanded numbers are to stay in the caches."""

NEAR_CACHE: Final = 2**18
"""Bytes of lines that stay in a near cache from one iteration to the next."""

COSTLY: Final = 10.0
"""Additions in the time of an operation that is worth vectors, whatever the caches do."""

MOST_PAIRS: Final = 200
"""Pairs of accesses that are compared for an interchange."""


def interchange_loops(procedure: Procedure) -> Procedure:
    """Return the procedure with inner loops that walk along neighbours; the same procedure where nothing changes."""
    return _Interchange(procedure, permutes_only=False).rewritten(procedure)


def permute_loops(procedure: Procedure) -> Procedure:
    """Return the procedure with perfect nests permuted so that inner loops walk along neighbours, and all other loops as they are."""
    return _Interchange(procedure, permutes_only=True).rewritten(procedure)


class _Nest(NamedTuple):
    """A loop with one loop in it, and what stands before and after that."""

    outer: For
    before: list[Statement]
    inner: For
    after: list[Statement]

    @property
    def parts(self) -> tuple[Sequence[Statement], ...]:
        return self.before, self.inner.body, self.after


class _Interchange(BlockPass):
    """Interchanges the nests of one procedure.

    Attributes
    ----------
    allocated : list of Allocate
        The arrays of expanded numbers.
    """

    def __init__(self, procedure: Procedure, permutes_only: bool) -> None:
        super().__init__()
        self._permutes_only = permutes_only
        self.allocated: list[Statement] = []
        self._readers = reads(procedure.body)

    def rewritten(self, procedure: Procedure) -> Procedure:
        changed = super().rewritten(procedure)
        return replaced(changed, body=[*self.allocated, *changed.body]) if self.count else procedure

    def replacements(self, statement: Statement) -> list[Statement]:
        if isinstance(statement, For):
            permuted = self._permuted(statement)
            if permuted is not None:
                self.count += 1
                return [permuted]
            nest = None if self._permutes_only else _nest(statement)
            changed = self._changed(nest) if nest is not None else None
            if changed is not None:
                self.count += 1
                return changed
        return super().replacements(statement)

    def block_in(self, holder: Statement, body: Sequence[Statement]) -> list[Statement]:
        """Iterations of a parallel loop have their own arrays."""
        if not (isinstance(holder, For) and holder.parallel):
            return super().block_in(holder, body)
        before, self.allocated = self.allocated, []
        changed = super().block_in(holder, body)
        own_arrays, self.allocated = self.allocated, before
        return [*own_arrays, *changed]

    def _permuted(self, outer: For) -> For | None:
        """Return a perfect nest with its outer loop innermost; None where it would be slower, or something else."""
        inner = _perfect(outer)
        if not inner or not _gains(outer, inner[-1]) or not _is_worth_vectors(outer, inner):
            return None
        body = inner[-1].body
        exposed = exposed_variables(outer)
        inside = reads(body)
        if any(x in exposed or inside[x] < self._readers[x] for x in assigned(body)):
            return None
        pairs = list(conflicts(body, body))
        if len(pairs) > MOST_PAIRS:
            return None
        permuted = For(outer.index, outer.count, body, site=outer.site)
        loops = [permuted]
        for loop in reversed(inner):
            permuted = For(loop.index, loop.count, [permuted], site=loop.site)
            loops.insert(0, permuted)
        around = list(self.around)
        for loop in loops[:-1]:
            accesses = LoopAccesses.around(loop, around)
            for first_access, second_access in pairs:
                assert not isinstance(first_access, Apply) and not isinstance(second_access, Apply)
                if first_access.pointer is not second_access.pointer or accesses.precedes(
                    loop, first_access, second_access
                ):
                    return None
            around.append((loop, True))
        return permuted

    def _changed(self, nest: _Nest) -> list[Statement] | None:
        """Return the loops that take the place of a nest; None where they would be slower, or something else."""
        if not _gains(nest.outer, nest.inner):
            return None
        expanded = self._expanded_variables(nest)
        if expanded is None or not self._is_legal(nest):
            return None
        leaves = _expanded_leaves(nest)
        if leaves is None:
            return None
        return self._written(nest, expanded, leaves)

    def _is_legal(self, nest: _Nest) -> bool:
        """Return whether the loop can be distributed, and the loops in the middle exchanged."""
        tape = [any(isinstance(s, Push | Pop) for s in walk(part)) for part in nest.parts]
        if tape[1] or (tape[0] and tape[2]):
            return False
        accesses = LoopAccesses.around(nest.outer, self.around)
        pairs = list(_pairs(nest))
        if len(pairs) > MOST_PAIRS:
            return False
        for first_access, second_access, are_in_one_part in pairs:
            if first_access.pointer is not second_access.pointer or accesses.precedes(
                nest.outer, second_access, first_access
            ):
                return False
            if are_in_one_part and accesses.precedes(nest.outer, first_access, second_access):
                return False
        return True

    def _expanded_variables(self, nest: _Nest) -> list[Variable] | None:
        """Return the variables that get an array; None where the parts cannot have their own."""
        expanded: list[Variable] = []
        exposed = exposed_variables(nest.outer)
        handed_on = exposed_variables(nest.inner)
        inside = [list(walk(part)) for part in nest.parts]
        readers = reads(nest.outer.body)
        for variable in dict.fromkeys(s.variable for part in inside for s in part if isinstance(s, Assign)):
            users = [
                number
                for number, part in enumerate(inside)
                if any(isinstance(s, Read | Assign) and s.variable is variable for s in part)
            ]
            if variable in exposed:  # a sum of a part that keeps its order, or a state
                if users in ([0], [2]):
                    continue
                return None
            if readers[variable] < self._readers[variable] or not isinstance(variable.type, Aval):
                return None
            if len(users) > 1 or (users == [1] and variable in handed_on):
                expanded.append(variable)
        return expanded

    def _written(
        self, nest: _Nest, variables: Sequence[Variable], leaves: Sequence[Value]
    ) -> list[Statement]:
        outer = nest.outer
        arrays: dict[Variable | Value, Pointer] = {}
        expanded: list[Variable | Value] = [*variables, *leaves]
        for number, item in enumerate(expanded):
            type_ = item.type if isinstance(item, Variable) else item.aval
            dtype = type_.dtype
            name = f"expanded.{self.count}.{len(self.allocated)}.{number}"
            arrays[item] = Pointer(name, Memory(name, dtype))
        self.allocated += [Allocate(pointer, outer.count) for pointer in arrays.values()]
        loops: list[Statement] = []
        for k, part in enumerate(nest.parts):
            if not part:
                continue
            index = leaf(INT64)
            copy = _Expansion(arrays, index)
            copy.becomes[outer.index] = index
            defined = {content for s in walk(part) for content in s.defines()}
            needed = {x for s in walk(part) for x in leaves_of(s)}
            body: list[Statement] = []
            for value in leaves:
                if value not in defined and value in needed:
                    out = leaf(value.dtype)
                    body.append(Load(out, arrays[value], index))
                    copy.becomes[value] = out
            body += copy.block(part)
            loop = For(index, outer.count, body, outer.parallel, outer.site)
            if k == 1:
                loop = For(nest.inner.index, nest.inner.count, [loop], site=nest.inner.site)
            loops.append(loop)
        return loops


class _Expansion(Rewriter):
    """Copies statements; variables and leaves that have an array are in it."""

    def __init__(self, arrays: dict[Variable | Value, Pointer], index: Value) -> None:
        super().__init__()
        self._arrays = arrays
        self._index = index

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        expanded: list[Statement] = []
        for statement in statements:
            changed = self.statement(statement)
            expanded.append(changed)
            expanded += [
                Store(self._arrays[content], self._index, content)
                for content in changed.defines()
                if isinstance(content, Value) and content in self._arrays
            ]
        return expanded

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Read) and statement.variable in self._arrays:
            assert isinstance(statement.out, Value)
            return Load(statement.out, self._arrays[statement.variable], self._index)
        if isinstance(statement, Assign) and statement.variable in self._arrays:
            assert isinstance(statement.value, Value)
            array = self._arrays[statement.variable]
            return Store(array, self._index, self.value(statement.value), statement.site)
        return super().statement(statement)


def _nest(outer: For) -> _Nest | None:
    """Return a loop of a known trip count as a nest, if one innermost loop is in it, with the same trip count for all iterations."""
    count = number_of(outer.count)
    loop_positions = [k for k, s in enumerate(outer.body) if isinstance(s, For)]
    if outer.parallel or count is None or not FEWEST <= int(count) <= MOST or len(loop_positions) != 1:
        return None
    inner = outer.body[loop_positions[0]]
    assert isinstance(inner, For)
    nest = _Nest(outer, outer.body[: loop_positions[0]], inner, outer.body[loop_positions[0] + 1 :])
    if inner.parallel or any(
        isinstance(s, For | While | Apply | Allocate) for part in nest.parts for s in walk(part)
    ):
        return None
    defined_before = {outer.index, *[x for s in walk(nest.before) for x in s.defines()]}
    return nest if defined_before.isdisjoint(leaves_of(inner)) else None


def _perfect(outer: For) -> list[For]:
    """Return the inner loops of a nest of loops of known trip counts with nothing between them; none where it may not be permuted."""
    loops = [outer]
    while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
        loops.append(loops[-1].body[0])
    if any(loop.parallel or number_of(loop.count) is None for loop in loops) or any(
        isinstance(s, For | While | Apply | Allocate | Push | Pop) for s in walk(loops[-1].body)
    ):
        return []
    count = number_of(outer.count)
    return loops[1:] if count is not None and count >= FEWEST else []


def _is_worth_vectors(outer: For, inner: Sequence[For]) -> bool:
    """Return whether a nest gains more by its walk along rows than it loses if iterations of its innermost loop wait for each other.

    Vectors across rows read a line of the caches for each element. That costs more than vectors gain if the lines are not in a near cache
    any more when the next iteration of the outer loop comes, and if no elements are costly.
    """
    body = inner[-1].body
    if not is_sequential(For(outer.index, outer.count, body)):
        return True
    nodes, _ = extract([x for s in walk(body) for x in s.uses() if isinstance(x, Value)])
    if any(isinstance(node.op, Elementwise) and node.op.cost >= COSTLY for node in nodes):
        return False
    across, along = 0, 0
    for statement in walk(body):
        if isinstance(statement, Load | Store):
            stride = abs(linear_form(statement.index).get(inner[-1].index, 0))
            across, along = across + (stride > 1), along + (stride == 1)
    rows = math.prod(int(number_of(loop.count) or 0) for loop in inner)
    return across >= 2 * along and across * rows * CACHE_LINE >= NEAR_CACHE


def _gains(outer: For, inner: For) -> bool:
    """Return whether the inner loop walks across rows, and the outer one along them."""
    score = 0
    for statement in walk(inner.body):
        if not isinstance(statement, Load | Store):
            continue
        form = linear_form(statement.index)
        across, along = form.get(inner.index, 0), form.get(outer.index, 0)
        others = [x for x in form if x is not None and x not in (inner.index, outer.index)]
        if any(outer.index in extract([x])[1] or inner.index in extract([x])[1] for x in others):
            return False
        if abs(across) > 1 and abs(along) == 1:
            score += 1
        elif abs(along) > 1:
            return False
    return score > 0


def _pairs(nest: _Nest) -> Iterator[tuple[Load | Store, Load | Store, bool]]:
    """Yield accesses that may conflict in another order, the first one's part before the second one's.

    The last entry says whether both are in the inner loop.
    """
    for number, part in enumerate(nest.parts):
        for later in range(number, len(nest.parts)):
            for first_access, second_access in conflicts(part, nest.parts[later]):
                assert not isinstance(first_access, Apply) and not isinstance(second_access, Apply)
                if number != later:
                    yield first_access, second_access, False
                elif number == 1 and not _meet_in_one_iteration(nest, first_access, second_access):
                    yield first_access, second_access, True


def _meet_in_one_iteration(nest: _Nest, first: Load | Store, second: Load | Store) -> bool:
    """Return whether two accesses are to one element in the same iteration of the inner loop only, for all of the outer loop."""
    form, other = linear_form(first.index), linear_form(second.index)
    if form != other or not form.get(nest.inner.index) or form.get(nest.outer.index):
        return False
    varying = {nest.outer.index, *[x for s in walk(nest.outer.body) for x in s.defines()]}
    return varying.isdisjoint(extract([x for x in form if x is not None and x is not nest.inner.index])[1])


def _expanded_leaves(nest: _Nest) -> list[Value] | None:
    """Return what the part before the inner loop defines and the other parts use; None if there are pointers among it."""
    before = [x for s in nest.before for x in s.defines()]
    needed = {x for part in nest.parts[1:] for s in walk(part) for x in leaves_of(s)}
    expanded = [x for x in before if x in needed]
    values = [x for x in expanded if isinstance(x, Value)]
    return values if len(values) == len(expanded) else None
