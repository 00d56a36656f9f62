"""Numbers of a program as formulas of the lengths that vary: fitted to samples exactly, and checked by further samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, Final

import numpy as np

from gradtape.records import value_record

DEGREE: Final = 3
"""Of formulas: an array has up to so many varying extents."""

SPARE: Final = 2
"""Samples that a fit has to meet besides those that determine it."""

Point = tuple[int, ...]
Exponents = tuple[int, ...]


@value_record
class Formula:
    """A polynomial of the lengths with rational coefficients, or a number divided by one.

    Attributes
    ----------
    terms : tuple of (tuple of int, Fraction)
        The exponents of the lengths in each monomial, and its coefficient.
    numerator : float or None
        What is divided by the polynomial; None for the polynomial itself.
    """

    terms: tuple[tuple[Exponents, Fraction], ...]
    numerator: float | None = None

    @property
    def denominator(self) -> int:
        """The common denominator of the coefficients."""
        return int(np.lcm.reduce([factor.denominator for _, factor in self.terms] or [1]))

    def at(self, point: Point) -> Any:
        """Return the value: a Fraction, or the float that is the quotient."""
        found = sum((factor * prod(map(pow, point, powers)) for powers, factor in self.terms), Fraction(0))
        if self.numerator is None:
            return found
        with np.errstate(all="ignore"):
            return float(np.divide(self.numerator, float(found)))

    def text(self, names: Sequence[str]) -> str:
        """Return the polynomial times its denominator, as C and Python write it.

        Examples
        --------
        >>> Formula((((1, 1), Fraction(2)), ((0, 0), Fraction(-1)))).text(["n", "m"])
        '2 * n * m - 1'
        """
        text = ""
        for powers, factor in self.terms:
            whole = int(factor * self.denominator)
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

    def fit(self, column: Sequence[int | float], dtype: str = "f8") -> Formula | None:
        """Return a formula that has all values of a column; None where there is no simple one.

        Parameters
        ----------
        column : sequence of int or float
            The values.
        dtype : str
            That of floats: quotients are rounded to it.
        """
        key = (dtype, *column)
        if key not in self._known:
            found = self._polynomial(column)
            if found is None and isinstance(column[0], float):
                found = self._quotient(column, dtype)
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

    def _quotient(self, column: Sequence[float], dtype: str) -> Formula | None:
        """Return the constant over a product of lengths, moved by a small number, that has all values."""
        count = len(self.points[0])
        for powers in monomials(count, 2):
            for shift in (0, -1, 1, -2, 2) if any(powers) else ():
                terms: tuple[tuple[Exponents, Fraction], ...] = ((powers, Fraction(1)),)
                if shift:
                    terms = (*terms, ((0,) * count, Fraction(shift)))
                divisors = [float(Formula(terms).at(point)) for point in self.points]
                known = next(
                    (k for k, divisor in enumerate(divisors) if divisor and np.isfinite(column[k])), None
                )
                if known is None:
                    continue
                numerator = float(f"{column[known] * divisors[known]:.{6 if dtype == 'f4' else 12}g}")
                formula = Formula(terms, numerator)
                if numerator and all(
                    np.dtype(dtype).type(formula.at(point)) == value
                    for point, value in zip(self.points, column, strict=True)
                ):
                    return formula
        return None


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


def packed(formula: Formula, real: bool) -> dict[str, Any]:
    """Return a formula as data of JSON."""
    terms = [[list(powers), [factor.numerator, factor.denominator]] for powers, factor in formula.terms]
    return {"sized": terms, "over": formula.numerator, "real": real}


def evaluated(data: Mapping[str, Any], point: Point) -> int | float:
    """Return the number for lengths of a formula that is data."""
    terms = [(tuple(powers), Fraction(*factor)) for powers, factor in data["sized"]]
    value = Formula(tuple(terms), data["over"]).at(point)
    return float(value) if data["real"] else int(value)
