"""Arithmetic of extents, strides and offsets: what is static stays an int, and what follows from the loops around is known.

An extent is an int, or a 0-d int64 value. Two extents are compared as polynomials of what statements define, so that ``(n - 1) - 1`` is
``n - 2`` wherever it was computed. Bounds follow from the counts of the loops: ``j < i`` and ``i < n`` tell that ``A[i, :j]`` needs no
clamping.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gradtape.ir.graph import Literal, Value, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import INT64
from gradtape.kinds.operands import as_value, conform
from gradtape.ops.core.elementwise import extrema
from gradtape.ops.core.elementwise.arithmetic import add as add_row
from gradtape.ops.core.elementwise.arithmetic import multiply as multiply_row
from gradtape.ops.core.elementwise.arithmetic import negative as negative_row
from gradtape.ops.core.elementwise.arithmetic import subtract as subtract_row
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.integer import floor_divide as floor_divide_row
from gradtape.ops.core.elementwise.integer import remainder as remainder_row
from gradtape.ops.core.elementwise.logic import (
    bitwise_and,
    bitwise_or,
    greater,
    greater_equal,
    invert,
    less,
    less_equal,
    not_equal,
)
from gradtape.ops.core.elementwise.logic import equal as equal_row
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.affine import plus

Extent: TypeAlias = int | Value

Counts: TypeAlias = Mapping[Value, Value]
"""The count of the loop of each index."""

Polynomial: TypeAlias = dict[tuple[Any, ...], int]
"""The factor of each product of atoms. An atom is what a statement defines, or a node that is no sum or product, by its structure."""

SUMS: Final = (add_row, subtract_row, multiply_row, negative_row)
"""What polynomials are made of."""

MOST_TERMS: Final = 24
"""Polynomials with more terms are not made: the value is an atom then."""


def extent(number: Any) -> Extent:
    """Return an integer, given as a number or as a value, as an extent."""
    if isinstance(number, Value):
        constant = number_of(number)
        if constant is not None:
            return int(constant)
        return number if number.dtype == INT64 else conform(number, INT64, ())
    return int(number)


def add(x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0 and isinstance(x, int):
        return y
    if y == 0 and isinstance(y, int):
        return x
    return _simple(add_row(x, y))


def subtract(x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    if y == 0 and isinstance(y, int):
        return x
    return _simple(subtract_row(x, y))


def multiply(x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    for first, second in ((x, y), (y, x)):
        if isinstance(first, int) and first in (0, 1):
            return second if first else 0
    return multiply_row(x, y)


def floor_divide(x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x // y
    return x if isinstance(y, int) and y == 1 else floor_divide_row(x, y)


def product(extents: Sequence[Extent]) -> Extent:
    """Return the product of extents: the size of an array."""
    total: Extent = 1
    for extent in extents:
        total = multiply(total, extent)
    return total


def _simple(value: Value) -> Extent:
    """Return a sum as a number or as what a statement defines, where it is no more than that."""
    terms = polynomial(value)
    if not terms:
        return 0
    if len(terms) == 1:
        ((atoms, factor),) = terms.items()
        if not atoms:
            return factor
        if factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Value):
            return atoms[0]
    return value


# Polynomials


def polynomial(x: Extent) -> Polynomial:
    """Return the normal form of an extent."""
    return _polynomial(x, {})


def _polynomial(x: Extent, expanded: dict[Value, Polynomial]) -> Polynomial:
    if isinstance(x, int):
        return {(): x} if x else {}
    number = number_of(x)
    if number is not None and x.dtype.kind in "biu":
        return {(): int(number)} if number else {}
    polynomial = expanded.get(x)
    if polynomial is None:
        for value in _inner_first(x, expanded):
            polynomial = expanded[value] = _expanded(value, expanded)
    return polynomial  # type: ignore[return-value]  # the last one is that of x


def _inner_first(x: Value, expanded: Mapping[Value, Polynomial]) -> Iterator[Value]:
    """Yield the sums and products of which an integer consists, and the integer last: Python recurses less deep than code may be long."""
    stack = [x]
    while stack:
        maker = stack[-1].maker() if stack[-1].dtype == INT64 else None
        inner = maker[1] if maker is not None and maker[0] in SUMS else ()
        waiting = [each for each in inner if each not in expanded and number_of(each) is None]
        if waiting:
            stack += waiting
        elif stack[-1] in expanded:
            stack.pop()
        else:
            yield stack.pop()


def _expanded(x: Value, expanded: dict[Value, Polynomial]) -> Polynomial:
    maker = x.maker()
    if maker is None:
        return {(x,): 1}
    op, inputs, params = maker
    if x.dtype == INT64 and op in SUMS:
        parts = [_polynomial(part, expanded) for part in inputs]
        if op is multiply_row:
            result = _times(*parts)
        elif op is negative_row:
            result = plus({}, parts[0], -1)
        else:
            result = plus(parts[0], parts[1], 1 if op is add_row else -1)
        if len(result) <= MOST_TERMS:
            return result
    return {(_atom(x, op, inputs, params, expanded),): 1}


def _atom(
    x: Value, op: Op, inputs: Sequence[Value], params: Mapping[str, Any], expanded: dict[Value, Polynomial]
) -> Any:
    """Return a node by its structure: its op, its parameters and its operands."""
    operands = []
    for operand in inputs:
        if operand.dtype.kind in "iu" or (isinstance(operand, Literal) and operand.dtype.kind == "b"):
            operands.append(frozenset(_polynomial(operand, expanded).items()))
        elif isinstance(operand, Literal):
            operands.append((str(operand.dtype), operand.data.tobytes()))  # type: ignore[union-attr, arg-type]
        else:
            maker = operand.maker()
            operands.append(operand if maker is None else _atom(operand, *maker, expanded))  # type: ignore[arg-type]
    try:
        key = (op, tuple(sorted((k, str(v)) for k, v in params.items())), tuple(operands))
        hash(key)
    except TypeError:
        return x
    return key


def minus(first: Polynomial, second: Polynomial) -> Polynomial:
    """Return the difference of two normal forms."""
    return plus(first, second, -1)


def scaled(x: Extent | Polynomial, factor: int) -> Polynomial:
    """Return the normal form of a multiple of an extent, or of a normal form."""
    return plus({}, x if isinstance(x, dict) else polynomial(x), factor)


def _times(first: Polynomial, second: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, a in first.items():
        for right, b in second.items():
            atoms = tuple(sorted((*left, *right), key=hash))
            count = total.pop(atoms, 0) + a * b
            if count:
                total[atoms] = count
    return total


def key(x: Extent) -> Any:
    """Return what two extents share exactly if they are known to be equal."""
    return x if isinstance(x, int) else _key(polynomial(x))


def _key(terms: Polynomial) -> Any:
    return terms.get((), 0) if not set(terms) - {()} else frozenset(terms.items())


def same(x: Extent, y: Extent) -> bool:
    """Return whether two extents are known to be equal."""
    return x is y or key(x) == key(y)


def difference(x: Extent, y: Extent) -> int | None:
    """Return how much one extent is larger than another, where that is static."""
    terms = plus(polynomial(x), polynomial(y), -1)
    return terms.get((), 0) if not set(terms) - {()} else None


# Bounds


class Bounds(dict[Value, Value]):
    """The counts of loops by index, with bounds of other values, and conditions that hold.

    Attributes
    ----------
    lower, upper : dict of Value to list of Polynomial
        What a value is not below, and not above.
    assumed : list of Polynomial
        What is known not to be negative.
    meant : dict of Value to (bool, Value, Value)
        Conditions that were stored: whether one is the conjunction of two others, or their disjunction.
    order : dict of Value to int
        The order in which values were defined; bounds name earlier values only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lower: dict[Value, list[Polynomial]] = {}
        self.upper: dict[Value, list[Polynomial]] = {}
        self.assumed: list[Polynomial] = []
        self.meant: dict[Value, tuple[bool, Value, Value]] = {}
        self.order: dict[Value, int] = {}

    def __setitem__(self, index: Value, count: Value) -> None:
        super().__setitem__(index, count)
        self.order[index] = len(self.order)

    def limit(self, x: Value, lower: list[Polynomial], upper: list[Polynomial]) -> None:
        """Let bounds of a value be known."""
        self.lower[x], self.upper[x] = lower, upper
        self.order[x] = len(self.order)

    def is_natural(self, x: Any) -> bool:
        """Return whether a value is an index or another one that is known not to be negative."""
        return x in self or any(
            set(bound) <= {()} and bound.get((), 0) >= 0 for bound in self.lower.get(x, ())
        )


def lowest(x: Extent, counts: Counts) -> int | None:
    """Return a number that an extent is not below, as far as the loops around tell."""
    return _lowest(polynomial(x), counts, _order(counts), 12)


def at_least(x: Extent, y: Extent, counts: Counts) -> bool:
    """Return whether ``x >= y`` is known."""
    return is_not_negative(plus(polynomial(x), polynomial(y), -1), counts)


def is_not_negative(terms: Polynomial, counts: Counts) -> bool:
    """Return whether the sum of terms is known not to be negative, from bounds and at most one condition that holds."""
    order = _order(counts)
    bound = _lowest(terms, counts, order, 12)
    if bound is not None and bound >= 0:
        return True
    atoms = {atom for product in terms for atom in product}
    for assumption in counts.assumed if isinstance(counts, Bounds) else ():
        if atoms.isdisjoint({atom for product in assumption for atom in product}):
            continue
        bound = _lowest(plus(terms, assumption, -1), counts, order, 12)
        if bound is not None and bound >= 0:
            return True
    return False


def _order(counts: Counts) -> Mapping[Value, int]:
    return counts.order if isinstance(counts, Bounds) else {x: k for k, x in enumerate(counts)}


def _is_bounded(atom: Any, counts: Counts) -> bool:
    return atom in counts or (isinstance(counts, Bounds) and atom in counts.lower)


def _is_natural(atom: Any, counts: Counts) -> bool:
    return counts.is_natural(atom) if isinstance(counts, Bounds) else atom in counts


COMPARISONS: Final[dict[Op, tuple[int, int, int]]] = {
    less: (-1, 1, -1),
    less_equal: (-1, 1, 0),
    greater: (1, -1, -1),
    greater_equal: (1, -1, 0),
}
"""The factors of two operands, and the number, of the sum that a comparison tells not to be negative."""

OPPOSITES: Final[dict[Op, Op]] = {
    less: greater_equal,
    less_equal: greater,
    greater: less_equal,
    greater_equal: less,
    equal_row: not_equal,
    not_equal: equal_row,
}


def implied(condition: Value, counts: Counts, negated: bool = False) -> list[Polynomial]:
    """Return sums that are not negative where a condition holds, or where it does not."""
    maker = condition.maker()
    if maker is None:
        parts = counts.meant.get(condition) if isinstance(counts, Bounds) else None
        if parts is None or parts[0] is negated:
            return []
        return [*implied(parts[1], counts, negated), *implied(parts[2], counts, negated)]
    op, inputs, _ = maker
    if op is invert:
        return implied(inputs[0], counts, not negated)
    if op is (bitwise_or if negated else bitwise_and):
        return [*implied(inputs[0], counts, negated), *implied(inputs[1], counts, negated)]
    if op not in OPPOSITES or any(x.dtype.kind not in "iu" for x in inputs):
        return []
    x, y = map(polynomial, inputs)
    difference_ = plus(x, y, -1)
    comparison = OPPOSITES[op] if negated else op
    if comparison is equal_row:
        return [difference_, plus({}, difference_, -1)]
    if comparison is not_equal:
        for sign in (1, -1):
            if is_not_negative(plus({}, difference_, sign), counts):
                return [plus(plus({}, difference_, sign), {(): 1}, -1)]
        return []
    first, _, number = COMPARISONS[comparison]
    return [plus(plus({}, difference_, first), {(): number} if number else {}, 1)]


def _lowest(terms: Polynomial, counts: Counts, order: Mapping[Value, int], depth: int) -> int | None:
    """Replace atoms by bounds until a number is left; those of inner loops come first, as their bounds name outer ones."""
    products = [atoms for atoms in terms if atoms]
    if not products:
        return terms.get((), 0)
    if depth == 0:
        return None
    all_atoms = {atom for atoms in products for atom in atoms}
    nodes = [atom for atom in all_atoms if isinstance(atom, tuple)]
    indices = [atom for atom in all_atoms if isinstance(atom, Value) and _is_bounded(atom, counts)]
    if not nodes and not indices:
        return None
    atom = _first(nodes, order) if nodes else max(indices, key=order.__getitem__)
    with_atom = {atoms: factor for atoms, factor in terms.items() if atom in atoms}
    if any(atoms.count(atom) > 1 for atoms in with_atom):
        return None
    rising = {factor > 0 for factor in with_atom.values()}
    others = {other for atoms in with_atom for other in atoms if other is not atom and other != atom}
    if len(rising) > 1 or not all(
        isinstance(other, Value) and _is_natural(other, counts) for other in others
    ):
        return None  # products are bounded factor by factor where the other ones are indices, which are not negative
    bounds, all_hold = _bounds(atom, rising == {True}, counts, order, depth)
    results = []
    for bound in bounds:
        replaced = {atoms: factor for atoms, factor in terms.items() if atoms not in with_atom}
        for atoms, factor in with_atom.items():
            factors = list(atoms)
            factors.remove(atom)
            replaced = plus(replaced, _times(bound, {tuple(factors): factor}), 1)
        results.append(_lowest(replaced, counts, order, depth - 1))
    numbers = [result for result in results if result is not None]
    if all_hold:
        return max(numbers, default=None)
    return min(numbers) if numbers and len(numbers) == len(results) else None


LONG_TEXT: Final = 200
"""Characters from which on a digest stands for a text."""


def _first(nodes: list[Any], order: Mapping[Value, int]) -> Any:
    """Return the node that comes first in an order which is the same in each process: that of texts."""
    if len(nodes) == 1:
        return nodes[0]
    texts: dict[Any, str] = {}
    return min(nodes, key=lambda node: _text(node, order, texts))


def _text(part: Any, order: Mapping[Value, int], texts: dict[Any, str]) -> str:
    """Return a text for an atom, for one of its operands, or for a normal form, without addresses.

    Parts that several others share are written once, and a long text is its digest: the length of texts is not that of paths.
    """
    if isinstance(part, Value):
        return f"v{order.get(part, -1)}"
    if part in texts:
        return texts[part]
    if isinstance(part, frozenset):
        terms = [
            [str(factor), *sorted(_text(atom, order, texts) for atom in atoms)] for atoms, factor in part
        ]
        text = str(sorted(terms))
    elif isinstance(part, tuple) and isinstance(part[0], Op):
        op, params, operands = part
        text = f"{op.name}{params}{[_text(operand, order, texts) for operand in operands]}"
    else:
        text = str(part)
    if len(text) > LONG_TEXT:
        text = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    texts[part] = text
    return text


AtomBounds: TypeAlias = tuple[list[Polynomial], bool]
"""Bounds of an atom, and whether all of them hold; otherwise the atom is beyond one of them."""

NO_BOUNDS: Final[AtomBounds] = ([], True)


def _bounds(atom: Any, rising: bool, counts: Counts, order: Mapping[Value, int], depth: int) -> AtomBounds:
    """Return lower bounds of an atom if `rising`, otherwise upper ones."""
    if not isinstance(atom, Value):
        op, _, operands = atom
        rule = BOUNDS.get(op)
        parts = [dict(part) if isinstance(part, frozenset) else None for part in operands]
        if rule is None:
            return NO_BOUNDS
        return rule(parts, rising, lambda terms: _lowest(terms, counts, order, depth - 1))
    if atom not in counts:
        assert isinstance(counts, Bounds)
        return (counts.lower if rising else counts.upper)[atom], True
    return [{} if rising else plus(polynomial(counts[atom]), {(): 1}, -1)], True


Parts: TypeAlias = list[Polynomial | None]
"""Operands of an atom; None for those that are no integers."""

LowestOf: TypeAlias = Callable[[Polynomial], int | None]


def _bounds_of_maximum(parts: Parts, rising: bool, _: LowestOf) -> AtomBounds:
    terms = [part for part in parts if part is not None]
    return (terms, rising) if len(terms) == len(parts) else NO_BOUNDS


def _bounds_of_minimum(parts: Parts, rising: bool, lowest_of: LowestOf) -> AtomBounds:
    return _bounds_of_maximum(parts, not rising, lowest_of)


def _bounds_of_choice(parts: Parts, _: bool, __: LowestOf) -> AtomBounds:
    first, second = parts[1:]
    return NO_BOUNDS if first is None or second is None else ([first, second], False)


def _bounds_of_quotient(parts: Parts, rising: bool, lowest_of: LowestOf) -> AtomBounds:
    dividend, divisor = parts
    number = 0 if dividend is None or divisor is None or set(divisor) != {()} else divisor[()]
    if number <= 0 or dividend is None:
        return NO_BOUNDS
    least = lowest_of(dividend)
    if least is None or (not rising and least < 0):
        return NO_BOUNDS
    return [{(): least // number} if rising else dividend], True


def _bounds_of_remainder(parts: Parts, rising: bool, lowest_of: LowestOf) -> AtomBounds:
    divisor = parts[1]
    least = None if divisor is None else lowest_of(divisor)
    if divisor is None or least is None or least <= 0:
        return NO_BOUNDS
    return [{} if rising else plus(divisor, {(): 1}, -1)], True


def _bounds_of_conversion(parts: Parts, _: bool, __: LowestOf) -> AtomBounds:
    return NO_BOUNDS if not parts or parts[0] is None else ([parts[0]], True)


BOUNDS: Final[dict[Op, Callable[[Parts, bool, LowestOf], AtomBounds]]] = {
    extrema.maximum: _bounds_of_maximum,
    extrema.minimum: _bounds_of_minimum,
    where: _bounds_of_choice,
    floor_divide_row: _bounds_of_quotient,
    remainder_row: _bounds_of_remainder,
    convert_row: _bounds_of_conversion,
}
"""Interval arithmetic of the ops that are atoms."""


def maximum(x: Extent, y: Extent, counts: Counts) -> Extent:
    """Return the larger of two extents, one of them where it is known which."""
    if isinstance(x, int) and isinstance(y, int):
        return max(x, y)
    if at_least(x, y, counts):
        return x
    return y if at_least(y, x, counts) else extrema.maximum(x, y)


def minimum(x: Extent, y: Extent, counts: Counts) -> Extent:
    """Return the smaller of two extents, one of them where it is known which."""
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    if at_least(x, y, counts):
        return y
    return x if at_least(y, x, counts) else extrema.minimum(x, y)


def choose(condition: bool | Value, x: Extent, y: Extent) -> Extent:
    """Return one of two extents."""
    if isinstance(condition, Value):
        number = number_of(condition)
        if number is None:
            return x if same(x, y) else where(condition, _int64(x), _int64(y))
        condition = bool(number)
    return x if condition else y


def _int64(x: Extent) -> Value:
    return conform(as_value(x), INT64, ())


def is_equal(x: Extent, y: Extent) -> bool | Value:
    """Return whether two extents are equal: a truth value, or what computes it."""
    gap = difference(x, y)
    return equal_row(x, y) if gap is None else gap == 0


def is_negative(x: Extent, counts: Counts) -> bool | Value:
    """Return whether an extent is negative."""
    if at_least(x, 0, counts):
        return False
    return True if at_least(-1, x, counts) else less(x, 0)


def is_below(x: Extent, y: Extent, counts: Counts) -> bool | Value:
    """Return whether ``x < y``."""
    if at_least(subtract(y, 1), x, counts):
        return True
    return False if at_least(x, y, counts) else less(x, y)


def wrapped(index: Extent, size: Extent, counts: Counts) -> Extent:
    """Return an index counted from the front."""
    return choose(is_negative(index, counts), add(index, size), index)


def resolved_slice(
    start: Extent | None, stop: Extent | None, step: Extent | None, size: Extent, counts: Counts
) -> tuple[Extent, Extent, Extent]:
    """Return first element, number of elements and step of a slice of an axis, as Python clamps them.

    Examples
    --------
    >>> resolved_slice(-3, None, 2, 10, {})
    (7, 2, 2)
    """
    step = 1 if step is None else step
    if isinstance(step, Value):
        up = resolved_direction(start, stop, step, size, True, counts)
        down = resolved_direction(start, stop, step, size, False, counts)
        rises = greater_equal(step, 1)
        return choose(rises, up[0], down[0]), choose(rises, up[1], down[1]), step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    first, count = resolved_direction(start, stop, step, size, step > 0, counts)
    return first, count, step


def resolved_direction(
    start: Extent | None, stop: Extent | None, step: Extent, size: Extent, rises: bool, counts: Counts
) -> tuple[Extent, Extent]:
    """Return first element and number of elements of a slice whose step is known to be positive or negative."""
    low: Extent = 0 if rises else -1
    high = size if rises else subtract(size, 1)

    def clamped(bound: Extent | None, default: Extent) -> Extent:
        if bound is None:
            return default
        if same(bound, size) and rises:
            return size
        negative = is_negative(bound, counts)
        if negative is False:
            return minimum(bound, high, counts)
        from_end = maximum(add(bound, size), low, counts)
        return from_end if negative is True else choose(negative, from_end, minimum(bound, high, counts))

    first = clamped(start, low if rises else high)
    last = clamped(stop, high if rises else low)
    if rises:
        span, stride = subtract(last, first), step
    else:
        span, stride = subtract(first, last), subtract(0, step)
    if not (isinstance(stride, int) and stride == 1):
        span = floor_divide(subtract(add(span, stride), 1), stride)
    return first, maximum(span, 0, counts)


def row_major(shape: Sequence[Extent]) -> tuple[Extent, ...]:
    """Return the strides of a contiguous array."""
    strides: list[Extent] = []
    step: Extent = 1
    for extent in reversed(shape):
        strides.append(step)
        step = multiply(step, extent)
    return tuple(reversed(strides))


def static_shape(shape: Sequence[Extent]) -> tuple[int, ...] | None:
    """Return a shape if all extents are static."""
    static = tuple([extent for extent in shape if isinstance(extent, int)])
    return static if len(static) == len(shape) else None
