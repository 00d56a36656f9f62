"""Index expressions: sums of variables with integer factors, with `//` and `%` simplified away where
ranges allow.

A position in an array is an `int` or an `Affine`. Rows' `source` functions compute with them as if they
were integers.
"""

from __future__ import annotations

from typing import TypeAlias, Union

from gradtape.records import value_record

Position: TypeAlias = Union[int, "Affine"]


@value_record
class Var:
    """A loop variable, or an integer read from memory, within ``[low, high]``."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return self.name


@value_record
class Quotient:
    """``whole // divisor`` where it does not simplify."""

    whole: Affine
    divisor: int
    low: int
    high: int

    def __str__(self) -> str:
        return f"({self.whole}) // {self.divisor}"


@value_record
class Remainder:
    """``whole % divisor`` where it does not simplify."""

    whole: Affine
    divisor: int
    low: int
    high: int

    def __str__(self) -> str:
        return f"({self.whole}) % {self.divisor}"


@value_record
class Clamped:
    """``min(max(whole, low), high)``: keeps an address inside an array where the element is not used."""

    whole: Affine
    low: int
    high: int

    def __str__(self) -> str:
        return f"min(max({self.whole}, {self.low}), {self.high})"


Atom: TypeAlias = Var | Quotient | Remainder | Clamped


class Affine:
    """``offset + sum(factor * atom)`` with at least one atom.

    Examples
    --------
    >>> i, j = affine(Var("i", 0, 4)), affine(Var("j", 0, 2))
    >>> flat = i * 3 + j
    >>> print(flat, "|", flat // 3, "|", flat % 3, "|", (flat + 1) // 3)
    3*i + j | i | j | (j + 1) // 3 + i
    """

    __slots__ = ("_hash", "high", "low", "offset", "terms")

    def __init__(self, terms: dict[Atom, int], offset: int) -> None:
        self.terms = terms
        self.offset = offset
        low = high = offset
        for atom, factor in terms.items():
            if factor > 0:
                low += factor * atom.low
                high += factor * atom.high
            else:
                low += factor * atom.high
                high += factor * atom.low
        self.low = low
        self.high = high
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.offset == other.offset and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.offset, frozenset(self.terms.items())))
        return self._hash

    def __add__(self, other: Position) -> Position:
        if isinstance(other, int):
            return Affine(self.terms, self.offset + other) if other else self
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            total = terms.get(atom, 0) + factor
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return _made(terms, self.offset + other.offset)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return Affine({atom: -factor for atom, factor in self.terms.items()}, -self.offset)

    def __sub__(self, other: Position) -> Position:
        return self + (-other)

    def __rsub__(self, other: Position) -> Position:
        return -self + other

    def __mul__(self, other: Position) -> Position:
        if not isinstance(other, int):
            raise TypeError("a product of two variables is not affine")
        if other == 0:
            return 0
        if other == 1:
            return self
        return Affine({atom: factor * other for atom, factor in self.terms.items()}, self.offset * other)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Position:
        if divisor == 1:
            return self
        quotient, remainder = self._split(divisor)
        if isinstance(remainder, int):
            return quotient
        if remainder.low // divisor == remainder.high // divisor:
            return quotient + remainder.low // divisor
        atom = Quotient(remainder, divisor, remainder.low // divisor, remainder.high // divisor)
        return affine(atom) + quotient

    def __mod__(self, divisor: int) -> Position:
        if divisor == 1:
            return 0
        _, remainder = self._split(divisor)
        if isinstance(remainder, int):
            return remainder
        if remainder.low // divisor == remainder.high // divisor:
            return remainder - remainder.low // divisor * divisor
        return affine(Remainder(remainder, divisor, 0, divisor - 1))

    def _split(self, divisor: int) -> tuple[Position, Position]:
        """Return (q, r) with ``self == q * divisor + r`` and r as small as the terms allow."""
        quotient: dict[Atom, int] = {}
        remainder: dict[Atom, int] = {}
        for atom, factor in self.terms.items():
            count, left = divmod(factor, divisor)
            if left == 0:
                quotient[atom] = count
            else:
                remainder[atom] = factor
        count, offset = divmod(self.offset, divisor)
        return _made(quotient, count), _made(remainder, offset)

    def substitute(self, values: dict[Atom, Position]) -> Position:
        """Return the expression with atoms replaced, inside quotients and remainders too."""
        total: Position = self.offset
        for atom, factor in self.terms.items():
            value = values.get(atom)
            if value is None:
                value = _substitute_atom(atom, values)
            total = total + value * factor
        return total

    def variables(self) -> set[Var]:
        """Return the variables that it depends on."""
        variables: set[Var] = set()
        for atom in self.terms:
            if isinstance(atom, Var):
                variables.add(atom)
            else:
                variables |= atom.whole.variables()
        return variables

    def __str__(self) -> str:
        text = ""
        for atom, factor in self.terms.items():
            name = str(atom)
            if isinstance(atom, Quotient | Remainder) and factor != 1:
                name = f"({name})"
            size = name if abs(factor) == 1 else f"{abs(factor)}*{name}"
            text += (("-" if factor < 0 else "") if not text else " - " if factor < 0 else " + ") + size
        if self.offset:
            text += f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}"
        return text

    __repr__ = __str__


def affine(atom: Atom) -> Affine:
    """Return an atom as an expression."""
    return Affine({atom: 1}, 0)


def clamp(position: Position, low: int, high: int) -> Position:
    """Return the nearest position within ``[low, high]``."""
    if isinstance(position, int):
        return min(max(position, low), high)
    if position.low >= low and position.high <= high:
        return position
    return affine(Clamped(position, low, high))


def interval(position: Position) -> tuple[int, int]:
    """Return the least and the greatest value."""
    return (position, position) if isinstance(position, int) else (position.low, position.high)


def substitute(position: Position, values: dict[Atom, Position]) -> Position:
    """Return a position with atoms replaced."""
    return position if isinstance(position, int) or not values else position.substitute(values)


def flat(index: tuple[Position, ...], shape: tuple[int, ...]) -> Position:
    """Return the position in a flat buffer of an index into a shape, in row-major order."""
    address: Position = 0
    for position, extent in zip(index, shape, strict=True):
        merged = _divided(position, extent)
        address = (
            merged if merged is not None and address == merged // extent else address * extent + position
        )
    return address


def _divided(position: Position, extent: int) -> Affine | None:
    """Return the number of which a position is the remainder, if it is one."""
    if isinstance(position, int) or position.offset or len(position.terms) != 1:
        return None
    ((atom, factor),) = position.terms.items()
    is_remainder = isinstance(atom, Remainder) and factor == 1 and atom.divisor == extent
    return atom.whole if is_remainder and isinstance(atom, Remainder) else None


def _made(terms: dict[Atom, int], offset: int) -> Position:
    return Affine(terms, offset) if terms else offset


def _substitute_atom(atom: Atom, values: dict[Atom, Position]) -> Position:
    if isinstance(atom, Var):
        return affine(atom)
    substituted = atom.whole.substitute(values)
    if isinstance(atom, Clamped):
        return clamp(substituted, atom.low, atom.high)
    return substituted // atom.divisor if isinstance(atom, Quotient) else substituted % atom.divisor
