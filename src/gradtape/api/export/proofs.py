"""Proofs that what Python asked of lengths has one answer for all lengths of a box.

The extents that were asked for are fitted to the samples of the box, as the numbers of the program are. Then each question is about a
polynomial of the lengths, of quotients that are rounded down, and of remainders. Its bounds over the box tell the answer, or the
function is refused.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from gradtape.api.export.fits import LARGEST_FLOOR, Fitter, Formula
from gradtape.trace.array.lengths import Atom, Polynomial, Question, Questions, added, form_of, multiplied

Bounds = tuple[Fraction | float, Fraction | float]
"""The least and the greatest value, or infinities."""

EVERYTHING: Final[Bounds] = (-math.inf, math.inf)

Range = tuple[int, int | None]

NEAR: Final = 8
"""Extents that are so far from a length follow from it by a difference."""

LONG: Final = 500
"""Longer extents follow from a length that is as long by a quotient; shorter ones may be fixed."""

FARTHEST: Final = 1 << 40
"""Arrays are not so long."""


class Proofs:
    """The atoms of a box as polynomials of the lengths that vary in it.

    Parameters
    ----------
    ranges : sequence of (int, int or None)
        The least and the greatest value of each of these lengths.
    points : sequence of tuple of int
        Their values in each sample.
    found : sequence of Questions
        Those of each sample, which have the same form.
    """

    def __init__(
        self, ranges: Sequence[Range], points: Sequence[tuple[int, ...]], found: Sequence[Questions]
    ) -> None:
        self._fitter = Fitter(points)
        self._found = found
        self._variables: list[Bounds] = [
            (Fraction(low), math.inf if high is None else Fraction(high)) for low, high in ranges
        ]
        self._known: dict[tuple[object, int], int] = {}
        self._lengths = len(ranges)
        self._divisors: dict[int, int] = {}
        self._atoms: list[Polynomial | None] = []
        for number, atom in enumerate(found[0].atoms):
            self._atoms.append(self._of_atom(number, atom))

    def _of_atom(self, number: int, atom: Atom) -> Polynomial | None:
        if atom.kind != "extent":
            inner = self._substituted(atom.polynomial)
            return None if inner is None else self._derived(atom.kind, inner, atom.divisor)
        formula = self._fitter.fit([one.atoms[number].value for one in self._found])
        return None if formula is None else self._of_formula(formula)

    def _of_formula(self, formula: Formula) -> Polynomial:
        terms = {
            tuple([k for k, power in enumerate(powers) for _ in range(power)]): factor
            for powers, factor in formula.terms
        }
        return terms if formula.floor == 1 else self._derived("floor", terms, formula.floor)

    def _derived(self, kind: str, inner: Polynomial, divisor: int) -> Polynomial:
        """Return a quotient or a remainder: a number where it is one, or a variable with bounds of its own."""
        low, high = self.bounds(inner)
        quotients = [n if math.isinf(n) else Fraction(math.floor(n / divisor)) for n in (low, high)]
        if quotients[0] == quotients[1]:
            quotient: Polynomial = {(): quotients[0]} if quotients[0] else {}  # type: ignore[dict-item] # equal bounds are finite
            return quotient if kind == "floor" else added(inner, quotient, -divisor)
        key = tuple(sorted(inner.items())), divisor
        if key not in self._known:
            number = self._known[key] = len(self._variables)
            if self._is_periodic(inner):
                self._divisors[number] = divisor
            self._variables.append((Fraction(0), Fraction(divisor - 1)))
        remainder: Polynomial = {(self._known[key],): Fraction(1)}
        if kind == "remainder":
            return remainder
        return {monomial: c / divisor for monomial, c in added(inner, remainder, -1).items()}

    def _substituted(self, polynomial: Polynomial | None) -> Polynomial | None:
        """Return a polynomial of atoms as one of the lengths."""
        if polynomial is None:
            return None
        total: Polynomial = {}
        for monomial, coefficient in polynomial.items():
            product: Polynomial = {(): coefficient}
            for number in monomial:
                atom = self._atoms[number]
                if atom is None:
                    return None
                product = multiplied(product, atom)
            total = added(total, product)
        return total

    def bounds(self, polynomial: Polynomial) -> Bounds:
        """Return bounds of a polynomial of the lengths: exact where it rises, or falls, with each of them."""
        shifted: Mapping[tuple[int, ...], Fraction] = {}
        for monomial, coefficient in polynomial.items():
            product: Polynomial = {(): coefficient}
            for k in monomial:
                low = self._variables[k][0]
                if math.isinf(low):
                    return EVERYTHING
                product = multiplied(product, {(k,): Fraction(1), **({(): Fraction(low)} if low else {})})
            shifted = added(shifted, product)
        least: Fraction | float = shifted.get((), Fraction(0))
        greatest = least
        for monomial, coefficient in shifted.items():
            if not monomial:
                continue
            reach: Fraction | float = Fraction(1)
            for k in monomial:
                low, high = self._variables[k]
                reach = math.inf if math.isinf(high) or reach == math.inf else reach * Fraction(high - low)
            if coefficient > 0:
                greatest = math.inf if reach == math.inf else greatest + coefficient * reach
            else:
                least = -math.inf if reach == math.inf else least + coefficient * reach
        return least, greatest

    def _is_periodic(self, polynomial: Polynomial) -> bool:
        """Return whether a polynomial is one of the lengths themselves, so that its remainders are those of one period of lengths."""
        return all(number < self._lengths for monomial in polynomial for number in monomial)

    def _is_fitted(self, question: Question) -> bool:
        """Return whether a number of the program is right for all lengths of the box if a formula has its values at the samples.

        That is so for polynomials of the lengths, and where all remainders are among the samples.
        """
        polynomial = self._substituted(question.polynomial)
        if polynomial is None:
            return False
        remainders = {number for monomial in polynomial for number in monomial if number >= self._lengths}
        return len(remainders) < 2 and all(
            self._divisors.get(number, math.inf) <= LARGEST_FLOOR for number in remainders
        )

    def holds(self, question: Question) -> bool:
        """Return whether a question has its answer for all lengths of the box."""
        if not self._variables:
            return True
        if question.relation == "content":
            return self._is_fitted(question)
        if question.relation == "error":
            return False
        polynomial = self._substituted(question.polynomial)
        if polynomial is None:
            return False
        low, high = self.bounds(polynomial)
        if question.is_whole:
            low, high = (
                (low if math.isinf(low) else math.ceil(low)),
                (high if math.isinf(high) else math.floor(high)),
            )
        if question.relation == "number":
            return low == high
        if question.relation == "==":
            return low == high == 0 if question.answer else low > 0 or high < 0
        if question.relation == "<":
            return high < 0 if question.answer else low >= 0
        return high <= 0 if question.answer else low > 0


def unproved(
    ranges: Sequence[Range], points: Sequence[tuple[int, ...]], found: Sequence[Questions]
) -> Question | None:
    """Return the first question whose answer may be another one for some lengths of a box; None if there is none."""
    if all(high is not None for _, high in ranges):
        count = math.prod([high - low + 1 for low, high in ranges if high is not None])
        if len(set(points)) == count:  # all lengths of the box were tried
            return None
    proofs = Proofs(ranges, points, found)
    return next((question for question in found[0].asked if not proofs.holds(question)), None)


def turning_points(length: int, questions: Questions) -> set[int]:
    """Return lengths at which answers change, if extents grow as the length does; where they do not, samples show it."""

    def at(n: int, atom: Atom) -> Fraction | int:
        if atom.polynomial is not None:
            inner = value(n, atom.polynomial)
            return inner // atom.divisor if atom.kind == "floor" else inner % atom.divisor
        if abs(atom.value - length) <= NEAR:
            return n + atom.value - length
        return atom.value * n // length if min(length, atom.value) > LONG else atom.value

    def value(n: int, polynomial: Polynomial) -> Fraction | int:
        return sum(c * math.prod(at(n, questions.atoms[k]) for k in m) for m, c in polynomial.items())

    found: set[int] = set()
    comparisons = [question for question in questions.asked if question.relation in ("<", "<=", "==")]
    for form in {form_of(question.polynomial) for question in comparisons}:
        polynomial = dict(form)
        whole = math.lcm(*[coefficient.denominator for coefficient in polynomial.values()])
        for goal in (
            0,
            Fraction(1, whole),
        ):  # from where on it is not negative, and from where on it is positive

            def differs(n: int, goal: Fraction | int = goal, polynomial: Polynomial = polynomial) -> bool:
                return (value(n, polynomial) >= goal) != (value(0, polynomial) >= goal)

            if differs(FARTHEST):
                found.add(bisect.bisect_left(range(FARTHEST), True, key=differs))
    return found
