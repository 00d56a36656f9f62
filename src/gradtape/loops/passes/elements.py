"""The effects of a loop on the elements of long arrays: those it reads and writes at their own position, and its sums over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Const,
    Declare,
    DoubleBuffer,
    For,
    Load,
    Number,
    Register,
    SequentialFor,
    Statement,
    Store,
)
from gradtape.loops.passes.monoids import COMBINE
from gradtape.loops.traversal import Definitions
from gradtape.records import record, value_record
from gradtape.statements import walk

Kind: TypeAlias = Literal["element", "shared", "sum", "row", "other"]
"""How a buffer is touched: at the position of an element, at the same one for all elements, by adding to it, as memory of one element, or
otherwise, which only memory that is never written may be."""


@value_record
class Total:
    """A number that depends on all elements: a sum over them.

    Attributes
    ----------
    monoid : str
        ``add`` or ``or``: how the parts are combined that different elements have in it.
    base : Number or None
        The number that the sum is added to.
    """

    monoid: str = "add"
    base: Number | None = None


@value_record
class Access:
    """How a statement touches a buffer.

    Attributes
    ----------
    kind : str
        See `Kind`.
    position : Position
        Where.
    var : Var or None
        The variable of the loop over the elements around it.
    stores : bool
        Whether it writes.
    """

    kind: Kind
    position: Position
    var: Var | None
    stores: bool


@record
class StripPart:
    """A statement that computes its elements independently, as seen from a single one.

    Attributes
    ----------
    statement : Statement
        The statement.
    loops : set of int
        The identities of its loops over elements.
    accesses : dict of Buffer to list of Access
        What it touches, in the order of the text.
    totals : dict of str to str
        Accumulators outside it that it combines with what is of single elements, and by which monoids.
    restarts : set of str
        Accumulators outside it that it changes in a way that is the same for all elements.
    reads : set of str
        The other registers from outside that it reads.
    filled : dict of Buffer to (int, str)
        Buffers that it fills with sums over elements: the identity of the statement that stores them, and their monoid.
    pairs : list of DoubleBuffer
        The buffers that its loops swap.
    is_sequential : bool
        Whether it is a sequential loop.
    """

    statement: Statement
    loops: set[int] = field(default_factory=set)
    accesses: dict[Buffer, list[Access]] = field(default_factory=dict)
    totals: dict[str, str] = field(default_factory=dict)
    restarts: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    filled: dict[Buffer, tuple[int, str]] = field(default_factory=dict)
    pairs: list[DoubleBuffer] = field(default_factory=list)
    is_sequential: bool = False


def is_zero(number: Number) -> bool:
    """Whether a number is 0 or False."""
    return isinstance(number, Const) and bool(number.value == 0)


def monoid_of_function(compute: Compute) -> str | None:
    """Return the monoid by which an instruction combines two numbers, if it is one."""
    return next(
        (name for name, (row, _) in COMBINE.items() if compute.function in (name, row, f"bitwise_{name}")),
        None,
    )


def placed(position: Position, var: Var, length: int) -> tuple[int, Position, Position] | None:
    """Return how far apart neighbouring elements of a buffer are, the row and the position inside an element; None if it is not known.

    Rows hold all `length` elements, of which `var` is the number.

    Examples
    --------
    >>> i, k = Var("i", 0, 99), Var("k", 0, 9)
    >>> placed(affine(k) * 100 + affine(i), i, 100)
    (1, k, 0)
    >>> placed(affine(i) + 1, i, 100) is None
    True
    """
    factor = position.terms.get(var, 0) if isinstance(position, Affine) else 0
    if (
        factor <= 0
        or not isinstance(position, Affine)
        or not all(isinstance(atom, Var) for atom in position.terms)
    ):
        return None
    remainder = position - affine(var) * factor
    row = remainder // (factor * length)
    if isinstance(row, Affine) and not all(isinstance(atom, Var) for atom in row.terms):
        return None
    within = remainder - row * (factor * length)
    low, high = interval(within)
    return (factor, row, within) if low >= 0 and high < factor else None


def strip_part(statement: Statement, length: int, sums: Mapping[str, Total]) -> StripPart | None:
    """Return what a statement does to single elements of arrays of a length; None if it is no loop over them, or does not keep them apart.

    `sums` are the registers from outside that hold sums over elements.
    """
    if not isinstance(statement, For | SequentialFor):
        return None
    analysis = _Analysis(statement, length, sums)
    if not analysis.part.loops or not analysis.is_valid():
        return None
    return analysis.part


class _Analysis:
    """Walks a loop in the order of the text."""

    def __init__(self, statement: For | SequentialFor, length: int, sums: Mapping[str, Total]) -> None:
        self.part = StripPart(statement, is_sequential=isinstance(statement, SequentialFor))
        self._length = length
        self._statement = statement
        self._definitions = Definitions(list(walk([statement])))
        self._sums = dict(sums)
        self._around: list[For | SequentialFor] = []
        self._find_loops([statement])
        self._reduced = self._find_reduced()

    def _find_loops(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, For) and (statement.var.low, statement.trip_count) == (0, self._length):
                self.part.loops.add(id(statement))
            elif isinstance(statement, For | SequentialFor):
                self._find_loops(statement.body)

    def _find_reduced(self) -> dict[str, str]:
        """Return the accumulators that loops over elements change and do not declare, and by which monoid."""
        reduced: dict[str, str] = {}
        for loop in walk([self._statement]):
            if id(loop) in self.part.loops:
                inside = list(walk([loop]))
                declared = {s.target.name for s in inside if isinstance(s, Declare)}
                for statement in inside:
                    if isinstance(statement, Assign) and statement.target.name not in declared:
                        step = self._definitions.computed(statement.value)
                        monoid = None if step is None else monoid_of_function(step)
                        reduced[statement.target.name] = monoid or ""
        return reduced

    def is_valid(self) -> bool:
        """Collect what the loop touches; return whether it keeps its elements apart."""
        return self._shared([self._statement])

    def _shared(self, statements: Sequence[Statement]) -> bool:
        """Visit statements that are the same for all elements, but for sums over them."""
        return all(self._shared_statement(statement) for statement in statements)

    def _shared_statement(self, statement: Statement) -> bool:
        if isinstance(statement, For) and id(statement) in self.part.loops:
            return self._over_elements(statement)
        if isinstance(statement, For | SequentialFor):
            self._around.append(statement)
            is_kept = self._reads(statement.uses()) and self._shared(statement.body)
            self._around.pop()
            if not is_kept:
                return False
            return isinstance(statement, For) or all(map(self._swap, statement.pairs))
        if isinstance(statement, Load):
            self._touch(statement.buffer, Access("shared", statement.index, None, False))
            return True
        if isinstance(statement, Compute):
            return self._compute(statement)
        if isinstance(statement, Declare):
            return self._declare(statement)
        if isinstance(statement, Assign):
            return self._assign(statement)
        return isinstance(statement, Store) and self._store(statement)

    def _touch(self, buffer: Buffer, access: Access) -> None:
        self.part.accesses.setdefault(buffer, []).append(access)

    def _reads(self, numbers: Sequence[Number]) -> bool:
        """Note registers that are read; return whether they are the same for all elements."""
        for number in numbers:
            if isinstance(number, Register):
                if number.name in self._sums:
                    return False
                if not self._is_defined(number):
                    self.part.reads.add(number.name)
        return True

    def _is_defined(self, register: Register) -> bool:
        definitions = self._definitions
        return any(
            register.name in table
            for table in (definitions.loads, definitions.computes, definitions.declares)
        )

    def _swap(self, pair: DoubleBuffer) -> bool:
        """Note that a loop whose body was visited swaps two buffers; return whether it does so element by element."""
        if pair.landing is not None or pair.aside is not None or pair.first[1] != 0 or pair.second[1] != 0:
            return False
        inside = [*self.part.accesses.get(pair.current, ()), *self.part.accesses.get(pair.following, ())]
        placements = [
            placed(each.position, each.var, self._length) for each in inside if each.var is not None
        ]
        if (
            len(placements) < len(inside)
            or len({None if each is None else each[0] for each in placements}) != 1
            or placements[0] is None
        ):
            return False
        var = inside[0].var
        assert var is not None
        position = affine(var) * placements[0][0]
        first, second = pair.first[0], pair.second[0]
        self._touch(first, Access("element", position, var, False))
        self._touch(second, Access("element", position, var, pair.carries == 1))
        for buffer in (first, second):
            self._touch(buffer, Access("element", position, var, True))
        self.part.pairs.append(pair)
        return True

    # Sums over elements

    def _sum_of(self, number: Number) -> Total | None:
        return self._sums.get(number.name) if isinstance(number, Register) else None

    def _compute(self, compute: Compute) -> bool:
        totals = [self._sum_of(arg) for arg in compute.args]
        if not any(totals):
            return self._reads(compute.args)
        combined = self.combined(compute, totals)
        if combined is None:
            return False
        self._sums[compute.target.name] = combined
        return True

    def combined(self, compute: Compute, totals: Sequence[Total | None]) -> Total | None:
        """Return what a function makes of sums over elements; None where the parts of the sum do not combine to it."""
        function, monoid = compute.function, monoid_of_function(compute)
        if monoid not in ("add", "or"):
            monoid = None
        sums = [each for each in totals if each is not None]
        others = [arg for arg, each in zip(compute.args, totals, strict=True) if each is None]
        bases = [each.base for each in sums if each.base is not None]
        if function == "identity":
            return sums[0]
        if any(each.monoid != (monoid or "add") for each in sums):
            return None
        if monoid is not None and len(others) + len(bases) <= 1:
            return Total(monoid, *others, *bases) if others or bases else Total(monoid)
        if bases or not self._reads(others):
            return None
        is_last = totals[-1] is not None
        if (
            function == "negative"
            or (function == "multiply" and others)
            or (function == "divide" and not is_last)
        ):
            return Total()
        if function == "subtract":
            return Total() if not others else Total("add", others[0]) if is_last else None
        return None

    def _declare(self, declare: Declare) -> bool:
        value = declare.value
        if declare.target.name in self._reduced:
            monoid = self._reduced[declare.target.name]
            self._sums[declare.target.name] = Total(monoid)
            return monoid in ("add", "or") and is_zero(value)
        return self._reads([value])

    def _assign(self, assign: Assign) -> bool:
        name, total = assign.target.name, self._sum_of(assign.value)
        is_outside = name not in self._definitions.declares
        if total is None:
            if is_outside:
                self.part.restarts.add(name)
            return self._reads([assign.value])
        if not is_outside or not self._is_only_read_for(total.base, name):
            return False
        self.part.totals[name] = total.monoid
        self.part.reads.discard(name)
        return True

    def _is_only_read_for(self, base: Number | None, name: str) -> bool:
        """Whether a number is what an accumulator holds, and the only one who reads it is the sum that it is for."""
        uses = self._definitions.uses
        while isinstance(base, Register) and base.name != name:
            copy = self._definitions.computed(base)
            if copy is None or copy.function != "identity" or uses[base.name] != 1:
                return False
            base = copy.args[0]
        return isinstance(base, Register) and uses[name] == 1

    def _store(self, store: Store) -> bool:
        total = self._sum_of(store.value)
        if total is None:
            self._touch(store.buffer, Access("shared", store.index, None, True))
            return self._reads([store.value])
        if total.base is None:
            return self._is_filled(store, total.monoid)
        load = self._definitions.loaded(total.base)
        if load is None or self._definitions.uses[load.target.name] != 1:
            return False
        return self._adds_to(store, load, None)

    def _is_filled(self, store: Store, monoid: str) -> bool:
        """Note that sums are stored; return whether the loops around store one in each element of a buffer."""
        position = store.index
        terms = position.terms if isinstance(position, Affine) else {}
        extent = 1
        for loop in sorted(self._around, key=lambda loop: abs(terms.get(loop.var, 0))):
            if (isinstance(loop, SequentialFor) and loop.count is not None) or abs(
                terms.get(loop.var, 0)
            ) != extent:
                return False
            extent *= loop.var.high - loop.var.low + 1
        if extent != store.buffer.size or len(terms) != len(self._around):
            return False
        self._touch(store.buffer, Access("sum", position, None, True))
        self.part.filled[store.buffer] = (id(store), monoid)
        return True

    def _adds_to(self, store: Store, load: Load, var: Var | None) -> bool:
        """Note that what a load reads is stored again with something added to it."""
        if (load.buffer, load.index) != (store.buffer, store.index):
            return False
        accesses = self.part.accesses[load.buffer]
        last = max(number for number, access in enumerate(accesses) if access.position == load.index)
        accesses[last] = Access("sum", load.index, var, False)
        accesses.append(Access("sum", store.index, var, True))
        return True

    # Elements

    def _over_elements(self, loop: For) -> bool:
        inside = list(walk(loop.body))
        if not all(isinstance(s, For | Load | Store | Compute | Declare | Assign) for s in inside):
            return False
        declared = {s.target.name for s in inside if isinstance(s, Declare)}
        steps: set[int] = set()
        for statement in inside:
            if isinstance(statement, Assign) and statement.target.name not in declared:
                chain = self._chain(statement)
                if chain is None:
                    return False
                steps.add(id(chain[-1]))
        written = {s.buffer for s in inside if isinstance(s, Store)}
        for statement in inside:
            numbers = statement.uses()
            if isinstance(statement, Assign) and statement.target.name not in declared:
                numbers = ()
            elif id(statement) in steps:
                assert isinstance(statement, Compute)
                numbers = statement.args[1:]
            if not self._reads(numbers):
                return False
            if isinstance(statement, Load | Store):
                stores = isinstance(statement, Store)
                kind = self._kind(statement.index, loop.var, statement.buffer in written)
                self._touch(statement.buffer, Access(kind, statement.index, loop.var, stores))
        return True

    def _chain(self, assign: Assign) -> list[Compute] | None:
        """Return the instructions that combine an accumulator with numbers of one element, the last one first; None if that is not all."""
        uses, name = self._definitions.uses, assign.target.name
        is_outside = name not in self._definitions.declares
        chain: list[Compute] = []
        value: Number = assign.value
        while not (isinstance(value, Register) and value.name == name):
            step = self._definitions.computed(value)
            if step is None or uses[step.target.name] != 1 or monoid_of_function(step) is None:
                return None
            chain.append(step)
            value = step.args[0]
        if not chain or len({monoid_of_function(step) for step in chain}) > 1:
            return None
        if is_outside:
            if uses[name] != 1:
                return None
            self.part.totals[name] = monoid_of_function(chain[0]) or ""
        return chain

    def _kind(self, position: Position, var: Var, is_written: bool) -> Kind:
        if placed(position, var, self._length) is not None:
            return "element"
        follows = isinstance(position, Affine) and var in position.variables()
        return "other" if follows else "row" if is_written else "shared"


def sum_of(compute: Compute, sums: Mapping[str, Total]) -> Total | None:
    """Return the sum over elements that a number is which is computed from such sums; None if it is none."""
    totals = [sums.get(arg.name) if isinstance(arg, Register) else None for arg in compute.args]
    if not any(totals):
        return None
    total = _Analysis(For(Var("none", 0, 0), [compute]), 1, {}).combined(compute, totals)
    return total if total is not None and total.base is None else None
