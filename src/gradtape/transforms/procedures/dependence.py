"""Dependence analysis: whether a store may overwrite the element of an earlier access, where indices and trip counts are affine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from gradtape.ir.graph import Value
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.procedures.affine import linear_form, plus
from gradtape.procedures.ir import Allocate, Content, For, If, Load, Pointer, Read, Statement, Store, While
from gradtape.records import record
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place

Symbol: TypeAlias = tuple[Value, int]
"""A leaf in the earlier run (0) or the later one (1) of the loops around it."""


Form: TypeAlias = dict[Symbol | None, int]
"""A sum of multiples of symbols; the constant is that of None."""

ONE: Final[Form] = {None: 1}


def with_bound(form: Form, symbol: Symbol, bound: Form) -> Form:
    """Return a sum with a symbol replaced."""
    remaining = dict(form)
    return plus(remaining, bound, remaining.pop(symbol, 0))


@record
class Access:
    """An element that a statement reads or writes, and where."""

    pointer: Pointer
    index: Value
    place: Place


class _Range(NamedTuple):
    """The number of an iteration with lower and upper bounds."""

    symbol: Symbol
    lows: Sequence[Form]
    highs: Sequence[Form]


class Dependence:
    """Answers whether elements are overwritten, for one procedure.

    After R. Allen and K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001, chapter 3: each level of the
    common loops may carry the dependence, or none. A level is excluded where the difference of the indices has one sign on all iterations;
    loops are eliminated by their bounds, the innermost first.
    """

    def __init__(self, tree: BlockTree, definitions: dict[Content, Statement]) -> None:
        self._tree = tree
        self._definitions = definitions
        self._known: dict[tuple[Statement, Statement], bool] = {}

    def overwrites(self, store: Store, where: Place, access: Load | Store, place: Place) -> bool:
        """Return whether a store, at `where`, may overwrite the element of an access at `place` after that."""
        may_overwrite = self._known.get((store, access))
        if may_overwrite is None:
            may_overwrite = self._known[store, access] = self._tree.may_precede(
                place, where
            ) and self._may_meet(
                Access(access.pointer, access.index, place), Access(store.pointer, store.index, where)
            )
        return may_overwrite

    def shares(self, store: Store, where: Place, access: Load, place: Place) -> bool:
        """Return whether a store may write the element of a load in the same run of the load's block: before it, or after it."""
        first, second = Access(access.pointer, access.index, place), Access(store.pointer, store.index, where)
        return self.meet_in(place.block, first, second)

    def meet_in(self, loop: Block, first: Access, second: Access) -> bool:
        """Return whether two accesses in a loop may be to the same element, in any iterations of it and in the same one of loops around."""
        if first.pointer is not second.pointer:
            return True
        runs = _Runs(self._tree, first, second, list(loop.around()), loop, is_ordered=False)
        return runs.may_meet(self._definitions)

    def is_carried_by(self, loop: Block, first: Access, second: Access) -> bool:
        """Return whether two accesses in a loop may be to the same element in different iterations of it, in one of the loops around."""
        if first.pointer is not second.pointer:
            return True
        common = list(loop.around())
        return any(
            _Runs(self._tree, *accesses, common, loop).may_meet(self._definitions)
            for accesses in ((first, second), (second, first))
        )

    def precedes_in(self, loop: Block, first: Access, second: Access) -> bool:
        """Return whether the second access, in a later iteration of a loop, may be to the element of the first one."""
        if first.pointer is not second.pointer:
            return True
        return _Runs(self._tree, first, second, list(loop.around()), loop).may_meet(self._definitions)

    def may_reach(self, first: Access, second: Access) -> bool:
        """Return whether the second access may be to the element of the first one after that."""
        return self._tree.may_precede(first.place, second.place) and self._may_meet(first, second)

    def _may_meet(self, first: Access, second: Access) -> bool:
        """Return whether two accesses, the second one later, may be to the same element."""
        if first.pointer is not second.pointer:
            return True
        around = list(second.place.block.around())
        common = [block for block in first.place.block.around() if block in around]
        earlier, later = [position_in(common[0], access.place) for access in (first, second)]
        if earlier < later and _Runs(self._tree, first, second, common, None).may_meet(self._definitions):
            return True
        return any(
            _Runs(self._tree, first, second, common, block).may_meet(self._definitions)
            for block in common
            if block.is_loop
        )


class _Runs:
    """Two accesses in runs of the loops around them that agree up to a level.

    Parameters
    ----------
    tree : BlockTree
    first, second : Access
    common : list of Block
        The blocks around both.
    carrier : Block or None
        The loop of which the second access is in a later iteration; the iterations of loops around it are the same. None if all common
        loops are in the same iteration.
    is_ordered : bool
        Whether that iteration is later; otherwise it is any.
    """

    def __init__(
        self,
        tree: BlockTree,
        first: Access,
        second: Access,
        common: Sequence[Block],
        carrier: Block | None,
        is_ordered: bool = True,
    ) -> None:
        self._is_ordered = is_ordered
        self._tree = tree
        self._accesses = (first, second)
        self._common = common
        self._carrier = carrier

    def may_meet(self, definitions: dict[Content, Statement]) -> bool:
        """Return whether the accesses may be to the same element."""
        first, second = self._accesses
        place = self._tree.places[first.pointer]
        assert place is not None
        if not self._is_shared(place.block):
            return not isinstance(definitions.get(first.pointer), Allocate)
        forms = self._form(first.index, 0), self._form(second.index, 1)
        return not any(_differ(*forms, order) for order in self._orders())

    def _is_shared(self, block: Block) -> bool:
        """Return whether a leaf of a block is the same in both runs."""
        if self._carrier is None:
            return block in self._common
        return self._carrier not in block.around()

    def _symbol(self, value: Value, run: int) -> Symbol:
        location = self._tree.place_of(value)
        return value, 0 if location is None or self._is_shared(location.block) else run

    def _form(self, value: Value, run: int) -> Form:
        """Return an index as a sum of symbols; what is not affine is a symbol itself."""
        terms = linear_form(value).items()
        return {None if x is None else self._symbol(x, run): factor for x, factor in terms if factor}

    def _is_counted(self, block: Block) -> bool:
        """Return whether this is an iteration whose number is known."""
        if isinstance(block.holder, While):
            first = block.statements[0] if block.statements else None
            return isinstance(first, Read) and first.out in self._tree.counted
        return block.is_loop

    def _orders(self) -> Iterator[list[_Range]]:
        """Yield orders in which the numbers of iterations can be eliminated: inner loops first."""
        shared: list[_Range] = []
        by_run: list[list[_Range]] = [[], []]
        carried: Block | None = None
        for run, access in enumerate(self._accesses):
            for block in access.place.block.around():
                if not self._is_counted(block):
                    continue
                if block is self._carrier:
                    carried = block
                elif not self._is_shared(block):
                    by_run[run].append(self._range(block, run))
                elif run == 0:
                    shared.append(self._range(block, 0))
        inner = [*by_run[0], *by_run[1]]
        if carried is None:
            yield [*inner, *shared]
            return
        first, second = (self._range(carried, run) for run in (0, 1))
        if not self._is_ordered:
            yield [*inner, second, first, *shared]
            return
        after: Form = {first.symbol: 1, None: 1}
        before: Form = {second.symbol: 1, None: -1}
        yield [*inner, second._replace(lows=[after, *second.lows]), first, *shared]
        yield [*inner, first._replace(highs=[before, *first.highs]), second._replace(lows=[ONE]), *shared]

    def _range(self, block: Block, run: int) -> _Range:
        """Return the bounds of the number of an iteration: those of the loop, and of conditions around the access."""
        symbol = self._symbol(block.number, run)
        lows: list[Form] = [{}]
        highs: list[Form] = []
        if isinstance(block.holder, For):
            highs.append(plus(self._form(block.holder.count, run), ONE, -1))
        for fact in self._facts(run):
            factor = fact.form.get(symbol)
            if factor not in (1, -1):
                continue
            bound: Form = plus({}, with_bound(fact.form, symbol, {}), -factor)
            if fact.is_unequal:
                highs += [plus(x, ONE, -1) for x in highs if x == bound]
                lows += [plus(x, ONE) for x in lows if x == bound]
            else:
                (highs if factor == -1 else lows).append(bound)
        return _Range(symbol, lows, highs)

    def _facts(self, run: int) -> Iterator[_Fact]:
        """Yield what the branches around an access say, the innermost first."""
        for block in self._accesses[run].place.block.around():
            branch = block.holder
            node = branch.condition.node if isinstance(branch, If) else None
            if not isinstance(branch, If) or node is None or len(node.inputs) != 2:
                continue
            is_taken = block.statements is branch.then
            a, b = node.inputs
            if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
                continue
            op = node.op
            if op is greater or op is greater_equal:
                a, b, op = b, a, less if op is greater else less_equal
            above = plus(self._form(b, run), self._form(a, run), -1)
            if op is less or op is less_equal:
                margin = 1 if op is less else 0
                if is_taken:
                    yield _Fact(plus(above, ONE, -margin))
                else:
                    yield _Fact(plus(plus({}, above, -1), ONE, margin - 1))
            elif op is equal or op is not_equal:
                if (op is equal) is is_taken:
                    yield _Fact(above)
                    yield _Fact(plus({}, above, -1))
                else:
                    yield _Fact(above, is_unequal=True)


class _Fact(NamedTuple):
    """A sum that is not negative, or is not zero."""

    form: Form
    is_unequal: bool = False


def position_in(block: Block, place: Place) -> int:
    """Return the position in a block of a place in it, or in a block inside it."""
    position = place.position
    for inner in place.block.around():
        if inner is block:
            return position
        position = inner.place
    raise AssertionError("the block is not around the place")


def _differ(first: Form, second: Form, order: Sequence[_Range]) -> bool:
    """Return whether two indices are different, as numbers or, as rows and columns of some extent, in one of these."""
    if _is_positive(plus(second, first, -1), order) or _is_positive(plus(first, second, -1), order):
        return True
    factors = {abs(factor) for form in (first, second) for symbol, factor in form.items() if symbol}
    extents = {extent for factor in factors for extent in (factor - 1, factor, factor + 1) if extent > 2}
    for extent in sorted(extents, reverse=True):
        first_pair, second_pair = (_rows_and_columns(form, extent, order) for form in (first, second))
        if first_pair is not None and second_pair is not None:
            (row, column), (other_row, other_column) = first_pair, second_pair
            if _differ(row, other_row, order) or _differ(column, other_column, order):
                return True
    return False


def _rows_and_columns(form: Form, extent: int, order: Sequence[_Range]) -> tuple[Form, Form] | None:
    """Return the row and the column of a flat index; None if the column may be outside its extent."""
    rows: Form = {symbol: (2 * factor + extent) // (2 * extent) for symbol, factor in form.items() if symbol}
    for row in (form.get(None, 0) // extent, form.get(None, 0) // extent + 1):
        rows[None] = row
        column = plus(form, rows, -extent)
        if _is_positive(plus(column, ONE), order) and _is_positive(plus({None: extent}, column, -1), order):
            return plus({}, rows), column
    return None


def _is_positive(form: Form, order: Sequence[_Range]) -> bool:
    """Return whether a sum is at least 1, whatever the numbers of iterations."""
    for position, (symbol, lows, highs) in enumerate(order):
        factor = form.get(symbol, 0)
        if factor:
            bounds = lows if factor > 0 else highs
            later = order[position + 1 :]
            return any(_is_positive(with_bound(form, symbol, bound), later) for bound in bounds)
    return form.keys() <= {None} and form.get(None, 0) >= 1
