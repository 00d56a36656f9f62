"""Numbers that a procedure computes at two places and compares: they have to be equal, to the last bit.

``if x[i] * x[i] + y[i] >= best`` looks for the element of which an earlier loop has found that it is the largest. LLVM fuses the product
and the sum to one operation, which rounds once, in a loop where nothing else reads the product, takes the terms of a sum in another order,
and calls functions for vectors, which round otherwise than those for numbers. The difference of the two in ``np.sqrt(best - e)`` would be
a rounding error below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cache
from itertools import permutations
from typing import Final

from gradtape.ir.graph import Literal, Node, Value, extract, number_of
from gradtape.kinds.elementwise import Body, Elementwise, Instruction, Intrinsic, Libm
from gradtape.procedures.affine import linear_form
from gradtape.procedures.dataflow import depend_on, free_sums
from gradtape.procedures.ir import Assign, For, Load, Procedure, Push, Read, Store
from gradtape.procedures.tape import match_tape
from gradtape.procedures.traversal import roots
from gradtape.statements import walk

LEVELS: Final = 3
"""How many operations of two numbers are compared to find out whether both may be the same computation."""

COMMUTATIVE: Final = frozenset({"fadd", "fmul"})
EXTREMA: Final = frozenset({"llvm.maximum", "llvm.minimum", "llvm.maxnum", "llvm.minnum"})
SELECTIONS: Final = EXTREMA | {"llvm.fabs"}
BOUNDED: Final = frozenset(
    {"llvm.sqrt", "log", "log2", "log10", "log1p", "pow", "asin", "acos", "acosh", "atanh"}
)
"""Functions that are NaN outside an interval, at whose ends rounding decides."""

Sources = Callable[[Value], "tuple[Value, ...]"]
"""The values that a leaf may have, as far as the procedure computes them."""


def rounded_alike(procedure: Procedure) -> set[Value]:
    """Return what has to be rounded alike wherever it is computed: as written, by the functions for numbers.

    These are values that are compared, each with one that the same operations compute at another place, and all from which they are
    computed. Values that are selected are also compared with those that are subtracted, if a root or logarithm is taken of the difference.

    Parameters
    ----------
    procedure : Procedure
        Its scalar code consists of primitive rows.
    """
    nodes, _ = extract(roots(procedure))
    compared = [node.inputs for node in nodes if _is_comparison(node.op)]
    extrema = [node.inputs for node in nodes if _is_extremum(node.op)]
    if not compared and not extrema:
        return set()
    sources = _sources(procedure)
    similar = [x for sides in compared for pair in _alike(sides, sources) for x in pair]
    differences = _differences(nodes, sources)
    if differences:
        selected = {x for sides in compared + extrema for side in sides for x in _reached(side, sources)}
        pairs = [pair for sides in differences for pair in _alike(sides, sources)]
        similar += [x for pair in pairs if not selected.isdisjoint(pair) for x in pair]
    return _behind(similar, sources)


def _alike(sides: Sequence[Value], sources: Sources) -> Iterator[tuple[Value, Value]]:
    """Yield two results each, one of either side, that may be the same computation at two places."""
    if any(isinstance(side, Literal) for side in sides):
        return
    first, second = (list(_computed(side, sources)) for side in sides)
    for left in first:
        for right in second:
            if left is not right and _may_be_same(left, right, sources, LEVELS):
                yield left, right


def _differences(nodes: Iterable[Node], sources: Sources) -> list[tuple[Value, ...]]:
    """Return the operands of differences from which arithmetic alone computes what a bounded function is called with."""
    bounded = [node.inputs[0] for node in nodes if _name(node.op) in BOUNDED]
    behind = _behind(bounded, sources, lambda node: isinstance(_body(node.op), Instruction))
    return [x.node.inputs for x in behind if x.node is not None and _name(x.node.op) == "fsub"]


def sums_of_any_order(procedure: Procedure, alike: Set[Value]) -> dict[Value, Value]:
    """Return what `free_sums` does, without sums that are to be rounded alike in loops that LLVM may treat differently."""
    sums = free_sums(procedure.body)
    forms = _forms(procedure)
    forms_of_alike = {forms.get(out) for out in sums if out in alike}
    if len(forms_of_alike) == 1 and None not in forms_of_alike:
        return sums
    return {out: term for out, term in sums.items() if out not in alike}


def _forms(procedure: Procedure) -> dict[Value, object]:
    """Return by sum, where a loop does nothing else, the number of terms and the distances of the elements that these are made of."""
    forms_by_sum: dict[Value, object] = {}
    for loop in walk(procedure.body):
        if not isinstance(loop, For) or not all(isinstance(s, Load | Read | Assign) for s in loop.body):
            continue
        values = [s.value for s in loop.body if isinstance(s, Assign)]
        steps = [_step(s.index, loop.index) for s in loop.body if isinstance(s, Load)]
        if len(values) == 1 and isinstance(values[0], Value) and None not in steps:
            forms_by_sum[values[0]] = (number_of(loop.count), *steps)
    return forms_by_sum


def _step(index: Value, number: Value) -> int | None:
    """Return how far an index moves in an iteration of a loop; None if that is not known."""
    form = linear_form(index)
    step = form.pop(number, 0)
    return None if depend_on([x for x in form if x is not None], {number}) else step


def _body(op: object) -> Body:
    return op.body if isinstance(op, Elementwise) else None


def _name(op: object) -> str | None:
    """Return what computes the row of an op for real numbers: an instruction, an intrinsic or a function of the C library."""
    body = _body(op)
    if isinstance(body, Libm):
        return body.name
    return body.real if isinstance(body, Instruction | Intrinsic) else None


def _is_comparison(op: object) -> bool:
    return str(_name(op)).startswith("fcmp")


def _is_extremum(op: object) -> bool:
    return _name(op) in EXTREMA


def _sources(procedure: Procedure) -> Sources:
    stored_values: dict[object, list[Value]] = {}
    locations: dict[Value, object] = {}
    tape = match_tape(procedure.body) or {}
    for statement in walk(procedure.body):
        if isinstance(statement, Assign) and isinstance(statement.value, Value):
            stored_values.setdefault(statement.variable, []).append(statement.value)
        elif isinstance(statement, Store):
            stored_values.setdefault(statement.pointer.memory, []).append(statement.value)
        elif isinstance(statement, Read) and isinstance(statement.out, Value):
            locations[statement.out] = statement.variable
        elif isinstance(statement, Load):
            locations[statement.out] = statement.pointer.memory
        elif isinstance(statement, Push) and statement in tape:
            for value, out in zip(statement.values, tape[statement].outs, strict=True):
                if isinstance(value, Value) and isinstance(out, Value):
                    stored_values[out], locations[out] = [value], out
    return cache(lambda leaf: tuple(stored_values.get(locations.get(leaf), ())))


def _computed(value: Value, sources: Sources) -> Iterator[Value]:
    """Yield the results of operations of which a value is one, or one up to its sign."""
    return (x for x in _reached(value, sources) if x.node is not None and not _selects(x))


def _reached(value: Value, sources: Sources) -> Iterable[Value]:
    reached: dict[Value, None] = {}
    stack = [value]
    while stack:
        value = stack.pop()
        if value in reached or value.dtype.kind != "f":
            continue
        reached[value] = None
        if value.node is None:
            stack += sources(value)
        elif _selects(value):
            stack += value.node.inputs
    return reached


def _selects(value: Value) -> bool:
    """Return whether a result is one of the operands, up to its sign."""
    return value.node is not None and _name(value.node.op) in SELECTIONS | {"select", "fneg"}


def _may_be_same(first: Value, second: Value, sources: Sources, levels: int) -> bool:
    """Return whether two values may be computed alike, by their last operations."""
    if first is second or levels == 0 or (first.node is None and second.node is None):
        return True
    if first.node is None or second.node is None:
        leaf, value = (first, second) if first.node is None else (second, first)
        return any(_may_be_same(source, value, sources, levels - 1) for source in sources(leaf))
    if first.node.op is not second.node.op:
        return False
    swaps = _name(first.node.op) in COMMUTATIVE
    return any(
        all(_may_be_same(x, y, sources, levels - 1) for x, y in zip(first.node.inputs, order, strict=True))
        for order in (permutations(second.node.inputs) if swaps else [second.node.inputs])
    )


def _behind(
    values: Iterable[Value], sources: Sources, passes: Callable[[Node], bool] = lambda node: True
) -> set[Value]:
    """Return the numbers from which values are computed, and these; `passes` says for which nodes the operands count."""
    behind: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in behind or value.dtype.kind != "f":
            continue
        behind.add(value)
        if value.node is None:
            stack += sources(value)
        elif passes(value.node):
            stack += value.node.inputs
    return {value for value in behind if value.node is not None}
