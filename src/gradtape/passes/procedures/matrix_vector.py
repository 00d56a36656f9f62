"""Recognition of products of a matrix with a vector in the body of a loop, as reductions and sums of rows are built.

A product is a loop over rows with a loop over terms in it, or the other way round:

- ``for k: y = 0; for t: y += left[t] * right[k, t]``, with other statements around the inner loop;
- ``for t: for k: y[k] += left[t] * right[t, k]``, several terms at once, and a second such loop for the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from gradtape.ir.graph import Value, extract, number_of
from gradtape.ops.core.elementwise.arithmetic import add, multiply
from gradtape.procedures.affine import linear_form
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import Assign, For, Load, Pointer, Push, Read, Statement, Store, While
from gradtape.procedures.rewrite import Rewriter
from gradtape.statements import walk
from gradtape.transforms.procedures.checkpoint import StatementCopy

Form: TypeAlias = dict[Value | None, int]
"""An index as a sum of multiples of values."""

Element: TypeAlias = Callable[[ProcedureBuilder, Value], Value]
"""Appends what computes the sum of a row, by its number from the first row on."""

FEWEST: Final = 32
"""Terms of a sum from which on its products are found."""


class RowSums(NamedTuple):
    """For each row of a matrix ``sum over t of left[left_start + t * left_stride] * right[origin + row * unit + t * stride]``.

    Attributes
    ----------
    left : Pointer
        From where the vector comes.
    left_start : Value
        The offset of its first element.
    left_stride : int
        Between its elements.
    right : Pointer
        The matrix.
    unit, stride, origin : int
        The offset of term t in row r of it is ``origin + r * unit + t * stride``.
    start : Value
        The first row.
    terms : int
        Of a sum.
    """

    left: Pointer
    left_start: Value
    left_stride: int
    right: Pointer
    unit: int
    stride: int
    origin: int
    start: Value
    terms: int

    def rows(self, size: int) -> int:
        """Return how many rows a matrix of a number of elements has at most, since all accesses are within it."""
        return (size - 1 - self.origin - (self.terms - 1) * self.stride) // self.unit + 1


class MatrixVectorProduct(NamedTuple):
    """The statements in the body of a loop that multiply a matrix with a vector.

    Attributes
    ----------
    place, extent : int
        Where they are, and how many.
    sums : RowSums
    used : Value
        How many rows they use.
    write : callable
        ``write(build, element)`` appends statements that take the sums from `element` instead.
    """

    place: int
    extent: int
    sums: RowSums
    used: Value
    write: Callable[[ProcedureBuilder, Element], None]


def product_at(body: Sequence[Statement], position: int) -> MatrixVectorProduct | None:
    """Return the product that begins at a place of a block; None if there is none."""
    return _sum_of_rows(body, position) or _rows_of_sums(body, position)


def _sum_of_rows(body: Sequence[Statement], position: int) -> MatrixVectorProduct | None:
    """Match multiples of rows that are added to a row."""
    first = _added_rows(body[position])
    if first is None:
        return None
    next_rows = _added_rows(body[position + 1]) if position + 1 < len(body) else None
    if next_rows is not None and not first.is_continued_by(next_rows):
        next_rows = None
    sums = first.sums(first.terms + (0 if next_rows is None else next_rows.terms))
    if sums is None:
        return None

    def write(build: ProcedureBuilder, element: Element) -> None:
        with build.loop(first.extent) as row:
            copy = Rewriter()
            copy.becomes[first.row] = row
            index = copy.value(first.place)
            build.store(first.target, index, build.load(first.target, index) + element(build, row))

    return MatrixVectorProduct(position, 1 if next_rows is None else 2, sums, first.extent, write)


def _rows_of_sums(body: Sequence[Statement], position: int) -> MatrixVectorProduct | None:
    """Match a sum for each row."""
    outer = body[position]
    inner = _only_loop(outer)
    terms = None if inner is None else number_of(inner.count)
    if not isinstance(outer, For) or inner is None or terms is None:
        return None
    if any(isinstance(s, Push) for s in walk(outer.body)):
        return None
    loads = {s.out: s for s in inner.body if isinstance(s, Load)}
    after_loads = [s for s in inner.body if not isinstance(s, Load)]
    if len(after_loads) != 2:
        return None
    read, assign = after_loads
    if not isinstance(read, Read) or not isinstance(assign, Assign) or read.variable is not assign.variable:
        return None
    variable = assign.variable
    operands = _summands(assign.value) if isinstance(assign.value, Value) else []
    if len(operands) != 2 or read.out not in operands:
        return None
    products = [x for x in operands if x is not read.out]
    pair = _factors(products[0], loads, outer.index) if products else None
    if pair is None:
        return None
    forms = [linear_form(load.index) for load in pair]
    strides = [form.pop(inner.index, 0) for form in forms]
    sums = _sums(pair, forms, strides, outer.index, int(terms))
    if sums is None:
        return None

    def write(build: ProcedureBuilder, element: Element) -> None:
        changed: list[Statement] = []
        with build.block(changed):
            for statement in outer.body:
                if statement is inner:
                    build.assign(variable, build.read(variable) + element(build, outer.index))
                else:
                    build.append(statement)
        copy = StatementCopy(Rewriter(), {})
        build.current.extend(copy.block([For(outer.index, outer.count, changed, site=outer.site)]))

    return MatrixVectorProduct(position, 1, sums, outer.count, write)


class _AddedRows(NamedTuple):
    """A loop that adds multiples of rows to a row, `step` terms in each iteration.

    Attributes
    ----------
    pair : sequence of Load
        Of the first term: of the vector's element, and of the row's.
    forms : sequence of Form
        Their indices without the number of the iteration.
    strides : sequence of int
        Between terms.
    terms : int
        Of all iterations.
    row, extent : Value
        The number of an element in a row, and how many there are.
    target, place
        To which element of which array is added.
    """

    pair: Sequence[Load]
    forms: Sequence[Form]
    strides: Sequence[int]
    terms: int
    row: Value
    extent: Value
    target: Pointer
    place: Value

    def is_continued_by(self, following: _AddedRows) -> bool:
        """Return whether another such loop adds further terms to the same sums."""
        index = Rewriter()
        index.becomes[following.row] = self.row
        if following.target is not self.target or linear_form(index.value(following.place)) != linear_form(
            self.place
        ):
            return False
        if linear_form(following.extent) != linear_form(self.extent) or list(following.strides) != list(
            self.strides
        ):
            return False
        for mine, other, form, next_form, stride in zip(
            self.pair, following.pair, self.forms, following.forms, self.strides, strict=True
        ):
            expected = {**form, None: form.get(None, 0) + self.terms * stride}
            renamed = {self.row if key is following.row else key: factor for key, factor in next_form.items()}
            if mine.pointer is not other.pointer or expected != {None: 0, **renamed}:
                return False
        return True

    def sums(self, terms: int) -> RowSums | None:
        return _sums(self.pair, self.forms, self.strides, self.row, terms)


def _added_rows(statement: Statement) -> _AddedRows | None:
    inner = _only_loop(statement)
    if not isinstance(statement, For) or inner is None:
        return None
    groups = number_of(statement.count)
    outside = [s for s in statement.body if s is not inner]
    stores = [s for s in inner.body if not isinstance(s, Load)]
    if groups is None or not all(isinstance(s, Load) for s in outside) or len(stores) != 1:
        return None
    (store,) = stores
    if not isinstance(store, Store):
        return None
    loads = {s.out: s for s in walk([statement]) if isinstance(s, Load)}
    operands = _summands(store.value)
    index = linear_form(store.index)
    before = [
        x
        for x in operands
        if x in loads and loads[x].pointer is store.pointer and linear_form(loads[x].index) == index
    ]
    pairs = [_factors(x, loads, inner.index) for x in operands if x not in before]
    if (
        len(before) != 1
        or not pairs
        or any(statement.index in extract([x])[1] for x in index if x is not None)
    ):
        return None
    terms: list[tuple[tuple[Form, Form], tuple[Load, Load]]] = []
    for pair in pairs:
        if pair is None:
            return None
        terms.append(((linear_form(pair[0].index), linear_form(pair[1].index)), pair))
    terms.sort(key=lambda term: term[0][1].get(None, 0))
    forms, pair = terms[0]
    steps = [form.pop(statement.index, 0) for form in forms]
    if any(step % len(terms) for step in steps):
        return None
    strides = [step // len(terms) for step in steps]
    for number, (others, loaded) in enumerate(terms):
        for form, other, stride, step, mine, its in zip(
            forms, others, strides, steps, pair, loaded, strict=True
        ):
            moved = {None: 0, **form, statement.index: step}
            moved[None] += number * stride
            complete = {None: 0, statement.index: 0, **other} if number else {None: 0, **moved}
            if its.pointer is not mine.pointer or moved != complete:
                return None
    return _AddedRows(
        pair,
        forms,
        strides,
        int(groups) * len(terms),
        inner.index,
        inner.count,
        store.pointer,
        store.index,
    )


def _sums(
    pair: Sequence[Load], forms: Sequence[Form], strides: Sequence[int], row: Value, terms: int
) -> RowSums | None:
    """Return sums with rows of a matrix in place of offsets; None where rows are not found."""
    left, right = pair
    form = dict(forms[1])
    unit, constant = form.pop(row, 0), form.pop(None, 0)
    if left.pointer.dtype.kind != "f" or left.pointer.dtype != right.pointer.dtype:
        return None
    if min(strides) < 1 or terms < FEWEST or unit < 1 or any(factor % unit for factor in form.values()):
        return None
    origin = constant % unit
    start: Form = {key: factor // unit for key, factor in form.items()}
    start[None] = (constant - origin) // unit
    return RowSums(
        left.pointer,
        _value(forms[0]),
        strides[0],
        right.pointer,
        unit,
        strides[1],
        origin,
        _value(start),
        terms,
    )


def _value(form: Mapping[Value | None, int]) -> Value:
    total = integer(form.get(None, 0))
    for key, factor in form.items():
        if key is not None and factor:
            total = key * factor + total
    return total


def _only_loop(statement: Statement) -> For | None:
    """Return the one loop in a sequential loop, if there is no other one in both."""
    if not isinstance(statement, For) or statement.parallel:
        return None
    loops = [s for s in walk(statement.body) if isinstance(s, For | While)]
    if len(loops) != 1 or loops[0] not in statement.body:
        return None
    (inner,) = loops
    return inner if isinstance(inner, For) and not inner.parallel else None


def _summands(value: Value) -> list[Value]:
    node = value.node
    if node is None or node.op is not add:
        return [value]
    return [x for operand in node.inputs for x in _summands(operand)]


def _factors(product: Value, loads: Mapping[Value, Load], row: Value) -> tuple[Load, Load] | None:
    """Return the loads of the two factors, the one that does not depend on the row first."""
    node = product.node
    if node is None or node.op is not multiply:
        return None
    pair = [loads[x] for x in node.inputs if x in loads]
    depend = [row in extract([load.index])[1] for load in pair]
    if len(pair) != 2 or sorted(depend) != [False, True]:
        return None
    return (pair[0], pair[1]) if depend[1] else (pair[1], pair[0])
