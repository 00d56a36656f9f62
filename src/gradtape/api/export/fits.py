"""Numbers of a program as formulas of the lengths that vary: fitted to samples, and checked by further samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, Final, Literal

import numpy as np

from gradtape.records import value_record

DEGREE: Final = 3
"""Of polynomials: an array has up to so many varying extents."""

SPARE: Final = 2
"""Samples that a fit has to meet besides those that determine it."""

LARGEST_FLOOR: Final = 8
"""The largest divisor of a length in a floor: all its remainders are among the samples."""

APART: Final = 2 * LARGEST_FLOOR**2
"""Samples that lie so far apart have the values of one slope alone: two of these fractions differ by ``1 / LARGEST_FLOOR**2`` or more."""

Point = tuple[int, ...]
Exponents = tuple[int, ...]
Terms = tuple[tuple[Exponents, Fraction], ...]
Language = Literal["c", "python"]


@value_record
class Formula:
    """A number that follows from the lengths exactly: a polynomial with rational coefficients, or its floor.

    Attributes
    ----------
    terms : tuple of (tuple of int, Fraction)
        The exponents of the lengths in each monomial, and its coefficient.
    floor : int
        What the polynomial is divided by, rounded down; 1 for the polynomial itself.
    """

    terms: Terms
    floor: int = 1

    @property
    def denominator(self) -> int:
        """The common denominator of the coefficients."""
        return int(np.lcm.reduce([factor.denominator for _, factor in self.terms] or [1]))

    def at(self, point: Point) -> Fraction:
        """Return the value."""
        value = polynomial_at(self.terms, point)
        return value if self.floor == 1 else Fraction(value // self.floor)

    def text(self, names: Sequence[str], language: Language = "c", real: bool = False) -> str:
        """Return the formula as an expression of C or Python: of integers, or of floats.

        Examples
        --------
        >>> Formula((((1, 1), Fraction(2)), ((0, 0), Fraction(-1)))).text(["n", "m"])
        '2 * n * m - 1'
        >>> Formula((((1,), Fraction(1)), ((0,), Fraction(1))), floor=2).text(["n"], "python")
        '(n + 1) // 2'
        """
        text, divisor = polynomial_text(self.terms, self.denominator, names), self.denominator * self.floor
        if real:
            whole = f"(double)({text})" if language == "c" else f"float({text})"
            return whole if divisor == 1 else f"{whole} / {divisor}.0"
        return text if divisor == 1 else f"({text}) {'/' if language == 'c' else '//'} {divisor}"

    def packed(self) -> dict[str, Any]:
        """Return the formula as data of JSON."""
        return {"sized": _packed(self.terms), "floor": self.floor}


def polynomial_at(terms: Terms, point: Point) -> Fraction:
    """Return the value of a polynomial."""
    return sum((factor * prod(map(pow, point, powers)) for powers, factor in terms), Fraction(0))


def polynomial_text(terms: Terms, denominator: int, names: Sequence[str]) -> str:
    """Return the polynomial times its denominator, as C and Python write it."""
    text = ""
    for powers, factor in terms:
        whole = int(factor * denominator)
        names_in = [name for name, power in zip(names, powers, strict=True) for _ in range(power)]
        factors = [str(abs(whole))] if abs(whole) != 1 or not names_in else []
        sign = ("-" if whole < 0 else "") if not text else " - " if whole < 0 else " + "
        text += sign + " * ".join([*factors, *names_in])
    return text or "0"


def monomials(count: int, degree: int) -> list[Exponents]:
    """Return the exponents of all monomials of so many lengths up to a degree, the highest first."""
    found = [p for p in itertools.product(range(degree + 1), repeat=count) if sum(p) <= degree]
    return sorted(found, key=lambda powers: (-sum(powers), [-power for power in powers]))


def samples_needed(count: int) -> int:
    """Return how many samples a fit of so many lengths needs."""
    return len(monomials(count, DEGREE)) + SPARE


class Fitter:
    """Fits columns of numbers, one for each sample, to the lengths of the samples.

    Parameters
    ----------
    points : sequence of tuple of int
        The lengths of each sample.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self._known: dict[tuple[Any, ...], Formula | None] = {}

    def fit(self, column: Sequence[int | float]) -> Formula | None:
        """Return a formula that has all values of a column; None where there is no simple one.

        Parameters
        ----------
        column : sequence of int or float
            The values. Floats are polynomials alone.
        """
        key = (type(column[0]), *column)
        if key not in self._known:
            found = self._polynomial(column)
            if found is None and not isinstance(column[0], float):
                found = self._floor(column)  # type: ignore[arg-type] # all are whole, as the first one is
            self._known[key] = found
        return self._known[key]

    def _polynomial(self, column: Sequence[int | float]) -> Formula | None:
        if not all(np.isfinite(column)):
            return None
        values = [Fraction(value) for value in column]
        for degree in range(DEGREE + 1):
            basis = monomials(len(self.points[0]), degree)
            if len(basis) + min(degree, SPARE) > len(values):
                return None
            factors = _solved(self.points, values, basis)
            if factors is not None:
                terms = tuple([(p, f) for p, f in zip(basis, factors, strict=True) if f])
                if all(factor.denominator <= 1024 for _, factor in terms):
                    return Formula(terms)
        return None

    def _floor(self, column: Sequence[int]) -> Formula | None:
        """Return ``(a * n + b) // c`` that has all values, where no other one with this divisor does."""
        if len(self.points[0]) != 1:
            return None
        lengths = [n for (n,) in self.points]
        if max(lengths) - min(lengths) < APART:
            return None
        for divisor in range(2, LARGEST_FLOOR + 1):
            slope = _slope(lengths, column, divisor)
            # (slope * n + shift) // divisor is the value where divisor * value <= slope * n + shift < divisor * (value + 1).
            bounds = [divisor * value - slope * n for n, value in zip(lengths, column, strict=True)]
            shift = max(bounds)
            if slope > 0 and shift == min(bounds) + divisor - 1 and slope * min(lengths) + shift >= 0:
                terms = (((1,), Fraction(slope)), ((0,), Fraction(shift)))
                return Formula(tuple([term for term in terms if term[1]]), divisor)
        return None


def _slope(lengths: Sequence[int], column: Sequence[int], divisor: int) -> int:
    """Return how much a number grows over so many lengths: the nearest whole number, by the two lengths that lie farthest apart."""
    first, last = int(np.argmin(lengths)), int(np.argmax(lengths))
    apart = lengths[last] - lengths[first]
    return round(Fraction(divisor * (column[last] - column[first]), apart)) if apart else 0


def _solved(
    points: Sequence[Point], values: Sequence[Fraction], basis: Sequence[Exponents]
) -> list[Fraction] | None:
    """Return the coefficients of the only polynomial that has these values; None if there is none, or more than one."""
    rows = [
        [*[Fraction(prod(map(pow, point, powers))) for powers in basis], value]
        for point, value in zip(points, values, strict=True)
    ]
    count = len(basis)
    for column in range(count):
        pivot = next((k for k in range(column, len(rows)) if rows[k][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = [entry / rows[column][column] for entry in rows[column]]
        rows[column] = head
        for k, row in enumerate(rows):
            if k != column and row[column]:
                rows[k] = [a - row[column] * b for a, b in zip(row, head, strict=True)]
    if any(row[count] for row in rows[count:]):
        return None
    return [row[count] for row in rows[:count]]


def _packed(terms: Terms) -> list[Any]:
    return [[list(powers), [factor.numerator, factor.denominator]] for powers, factor in terms]


def evaluated(data: Mapping[str, Any], point: Point) -> int | float:
    """Return the number for lengths of a formula that is data."""
    terms = tuple([(tuple(powers), Fraction(*factor)) for powers, factor in data["sized"]])
    if "function" in data or data.get("over") is not None:
        return _of_older_file(data, float(polynomial_at(terms, point)))
    value = Formula(terms, data.get("floor", 1)).at(point)
    return float(value) if data["real"] else int(value)


def _of_older_file(data: Mapping[str, Any], value: float) -> float:
    """Return a number that files of the formats 2 and 3 compute of a polynomial."""
    power, factor, offset = data["numbers"] if "function" in data else (-1.0, data["over"], 0.0)
    functions = {
        "identity": lambda x: factor * x,
        "reciprocal": lambda x: np.divide(factor, x),
        "sqrt": lambda x: factor * np.sqrt(x),
        "log": lambda x: factor * np.log(x),
        "power": lambda x: factor * np.power(x, power),
    }
    with np.errstate(all="ignore"):
        return float(functions[data.get("function", "reciprocal")](value)) + offset
