"""Which lengths have the same program: boxes of lengths, each with samples of which the programs differ in numbers alone."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import Any, Final, Generic, TypeVar

from gradtape.api.export.fits import Point, samples_needed
from gradtape.api.export.proofs import turning_points, unproved
from gradtape.errors import ArgumentError, GradtapeError, ShapeError
from gradtape.records import record
from gradtape.trace.array.lengths import Question, Questions
from gradtape.trace.jit.dims import Dim
from gradtape.trace.source.sites import user_site

SHORT: Final = 20
"""Lengths up to which each is tried."""

MOST_RUNS: Final = 24
"""Of lengths of one dimension with the same program; more of them are a program for each length."""

SPARSE: Final = 5
"""Fewer samples between two numbers of the code are too few for a formula."""

MOST_CELLS: Final = 81

MOST_PEELED: Final = 12
"""Divisions of lengths with the same form, for numbers of their own."""

ELEMENTS: Final = 300_000
"""Of the largest array of the samples, roughly."""

LONGEST: Final = 1009
"""The length around which long samples lie: no power of two, and longer than most numbers in a program."""

FURTHEST: Final = 4_000_000
"""Elements of the largest array in memory, roughly, where one length doubles to see that the program stays the same."""


LARGEST: Final = 24_000_000
"""Elements of the largest array in memory for which a length is tried."""

MOST_TURNS: Final = 60
"""Lengths at which answers change; where there are more, some answers are not proved."""


@record
class Sample:
    """The program of one point.

    Attributes
    ----------
    form : hashable
        All of it but its numbers.
    numbers : tuple of (int or float)
    content : object
        What the samples of a cell have in common.
    failure : Exception or None
        Why there is none: NumPy has no maximum of no numbers.
    made : int
        Elements of the largest array that NumPy made while the function was traced.
    questions : Questions or None
        What Python asked of the lengths.
    extents : set of int
        Of the arrays that the function reads from outside.
    """

    form: Hashable
    numbers: tuple[Any, ...] = ()
    content: Any = None
    failure: Exception | None = None
    made: int = 0
    questions: Questions | None = None
    extents: set[int] = field(default_factory=set)


@record
class Cell:
    """A box of lengths with one program.

    Attributes
    ----------
    ranges : tuple of (int, int or None)
        The least and the greatest length of each dimension.
    points : list of tuple of int
        The lengths that were tried.
    samples : list of Sample
    """

    ranges: tuple[tuple[int, int | None], ...]
    points: list[Point]
    samples: list[Sample]

    @property
    def free(self) -> list[int]:
        """The dimensions that vary in it."""
        return [k for k, (low, high) in enumerate(self.ranges) if low != high]

    def free_points(self) -> list[Point]:
        """Return the lengths of these in each sample."""
        return [tuple([point[k] for k in self.free]) for point in self.points]

    def holds(self, point: Point) -> bool:
        return all(
            low <= length and (high is None or length <= high)
            for length, (low, high) in zip(point, self.ranges, strict=True)
        )


SampleAt = Callable[[Point], Sample]

T = TypeVar("T")

Range = tuple[int, int | None]


class Partition(Generic[T]):
    """Boxes that hold all lengths within the bounds, each with a program that is fitted to samples.

    Parameters
    ----------
    name : str
        Of the function, for messages.
    dims : sequence of Dim
        What varies.
    shapes : sequence of shapes
        Those of the arguments: which long samples fit into memory follows from them.
    at : callable
        Returns the program of a point.
    fit : callable
        Returns what is made of the samples of a cell, None where that fails.
    """

    def __init__(
        self,
        name: str,
        dims: Sequence[Dim],
        shapes: Sequence[Any],
        at: SampleAt,
        fit: Callable[[Cell], T | None],
    ) -> None:
        self.name = name
        self.dims = dims
        self._turns = {extent for shape in shapes for extent in shape if isinstance(extent, int)}
        self.base = _long_point(dims, shapes)
        self._shapes = shapes
        self._at = at
        self._fit = fit
        self._known: dict[Point, Sample] = {}
        self.cells: list[tuple[Cell, T | None]] = []

    def divided(self) -> list[tuple[Cell, T | None]]:
        """Return the boxes, the one of long lengths last; without a program where the function has no result.

        Raises
        ------
        ArgumentError
            Where the program is another one for each length, or its numbers are no formulas.
        """
        generic = self._sample(self.base)
        if isinstance(generic.failure, ShapeError) or not isinstance(generic.failure, GradtapeError | None):
            raise ArgumentError(
                f"export: {self.name} has no result for {self._named(self.base)}: {generic.failure}",
                where=user_site(),
                remedy='bound the lengths, gt.Dim("n", max=10), and give those that are equal one name',
            ) from generic.failure
        if generic.failure is not None:
            raise generic.failure
        self._turns |= generic.extents
        self._divide(())
        return self.cells

    def long_points(self) -> list[Point]:
        """Return long lengths that are all tried."""
        steps = (0, 1, 2, 3, 5, 7, 8, 13)
        points = [tuple([n + step for n in self.base]) for step in steps]
        return [
            p for p in points if all(d.max is None or n <= d.max for n, d in zip(p, self.dims, strict=True))
        ]

    def _sample(self, point: Point) -> Sample:
        if point not in self._known:
            try:
                self._known[point] = self._at(point)
            except MemoryError as error:
                raise self._refusal(f"there is no memory for {self._named(point)}") from error
        return self._known[point]

    def _divide(self, ranges: tuple[Range, ...]) -> None:
        """Divide the lengths of which the first have these ranges: into those with the same form, the rest being long."""
        if len(ranges) == len(self.dims):
            self._finish(ranges, 0)
            return
        for extent_range in self._runs(ranges):
            self._divide((*ranges, extent_range))

    def _finish(self, ranges: tuple[Range, ...], peeled: int) -> None:
        """Enter a box. Where no formula fits, it is divided at a number in the code, or tried without the shortest length."""
        if len(self.cells) >= MOST_CELLS:
            raise self._refusal(f"there are more than {MOST_CELLS} programs of different lengths")
        cell = self._cell(ranges)
        self._check_questions(cell)
        fitted = None if cell.samples[0].failure is not None else self._fit(cell)
        if fitted is not None or cell.samples[0].failure is not None:
            self.cells.append((cell, fitted))
            return
        if not cell.free or peeled >= MOST_PEELED:
            raise self._unfitted(cell)
        k, start = self._divisor(cell) or (cell.free[peeled % len(cell.free)], None)
        low, high = ranges[k]
        start = low + 1 if start is None else start
        for part in ((low, start - 1), (start, high)):
            self._finish((*ranges[:k], part, *ranges[k + 1 :]), peeled + 1)

    def _check_questions(self, cell: Cell) -> None:
        """Raise an error where Python asked something of the lengths that may have another answer for some lengths of a box."""
        questions = [sample.questions for sample in cell.samples if sample.questions is not None]
        if len(questions) < len(cell.samples):
            return
        question = unproved([cell.ranges[k] for k in cell.free], cell.free_points(), questions)
        if question is not None:
            raise self._unproved(question)

    def _check_answers(self, samples: Sequence[Sample]) -> None:
        """Raise an error at the line where Python had another answer in a sample, if there is one."""
        first, *others = [sample.questions for sample in samples if sample.questions is not None]
        for other in others:
            for question, other_question in zip(first.asked, other.asked, strict=False):
                if question.form() != other_question.form():
                    raise self._unproved(question)

    def check_numbers(self, questions_of_samples: Sequence[Questions]) -> None:
        """Raise an error where Python needed a number that differs between long lengths."""
        for pair in zip(
            *[questions.asked for questions in (questions_of_samples[0], questions_of_samples[-1])],
            strict=False,
        ):
            first, last = pair
            if first.form() != last.form():
                return
            if first.relation == "number" and first.answer != last.answer:
                raise self._unproved(first)

    def _not_for_all(self, problem_text: str, where: Any, why: str, remedy: str) -> ArgumentError:
        names = ", ".join([dim.name for dim in self.dims])
        problem = f"export: {self.name} cannot be exported for all lengths {names}: {problem_text}"
        return ArgumentError(problem, where=where, why=why, remedy=remedy)

    def _unproved(self, question: Question) -> ArgumentError:
        return self._not_for_all(
            f"Python {question.text}",
            where=question.site,
            why="the program is verified for the lengths that were tried, but not for all others",
            remedy="compare lengths with numbers (len(x) > 100), write loops over elements as gt.scan, use n // 2 in place of "
            "int(n / 2), pass the result as an argument, or export one file for each length",
        )

    def _divisor(self, cell: Cell) -> tuple[int, int] | None:
        """Return a dimension and the least length from which on formulas fit; None if there is none."""
        samples = dict(zip(cell.points, cell.samples, strict=True))
        for k in cell.free:
            low, high = cell.ranges[k]

            def fits(start: int, k: int = k, high: int | None = high) -> bool:
                """Return whether formulas fit from a length on, which is among the samples."""
                fitting = {point: sample for point, sample in samples.items() if point[k] >= start}
                point = next(iter(fitting or samples))
                steps = (0, 1, 2, 3, 5) if len(fitting) < SPARSE else (0,)
                probes = [(*point[:k], start + step, *point[k + 1 :]) for step in steps]
                fitting |= {p: self._sample(p) for p in probes if high is None or p[k] <= high}
                ranges = (*cell.ranges[:k], (start, high), *cell.ranges[k + 1 :])
                alike = len({sample.form for sample in fitting.values()}) == 1
                return alike and self._fit(Cell(ranges, list(fitting), list(fitting.values()))) is not None

            starts = sorted({point[k] for point in samples} - {low})
            first = bisect.bisect_left(starts, True, key=fits)
            if first == len(starts):
                continue
            between = range([low, *starts][first] + 1, starts[first])
            return k, [*between, starts[first]][bisect.bisect_left(between, True, key=fits)]
        return None

    def _runs(self, ranges: tuple[Range, ...]) -> list[Range]:
        """Return the ranges of the next length over which the form is the same."""
        k = len(ranges)
        dim, base = self.dims[k], self.base
        before = tuple([low if low == high else base[j] for j, (low, high) in enumerate(ranges)])

        def form(length: int) -> Hashable:
            return self._sample((*before, length, *base[k + 1 :])).form

        near = [base[k] + step for step in (0, 1, 2, 3, 7, 15)]
        far = self._doublings(k)
        lengths = {*range(dim.min, dim.min + SHORT), *range(SHORT), *near, *far}
        if dim.max is not None and dim.max <= LARGEST:
            lengths.add(dim.max)
        tried = self._with_turns(k, lengths, lambda length: self._sample((*before, length, *base[k + 1 :])))
        runs = [[tried[0], tried[0]]]
        for start, length in itertools.pairwise(tried):
            current = start
            while form(current) != form(length):
                if len(runs) > MOST_RUNS:
                    points = [(*before, n, *base[k + 1 :]) for n in (current, current + 1, length)]
                    self._check_answers([self._sample(point) for point in points])
                    raise self._refusal(
                        f"the program of {dim.name} = {current} is not that of {dim.name} = {current + 1}"
                    )
                end = _last_alike(current, length, form)
                runs[-1][1] = end
                runs.append([end + 1, end + 1])
                current = end + 1
            runs[-1][1] = length
        merged: list[Range] = [(low, high) for low, high in runs]
        last = merged[-1][0]
        if dim.max is None and far and last > far[-1] // 8 and _beside({last}).isdisjoint(self._turns):
            raise self._refusal(
                f"the program of {dim.name} = {last - 1} is not that of {dim.name} = {last}, and longer ones may differ again"
            )
        merged[-1] = (last, dim.max)
        return merged

    def _with_turns(self, k: int, lengths: set[int], at: Callable[[int], Sample]) -> list[int]:
        """Return lengths, and those beside which an answer that Python got at some of them changes."""
        dim, tried = self.dims[k], set[int]()
        lengths = lengths | _beside(self._turns)
        while new := {n for n in lengths - tried if n >= dim.min and (dim.max is None or n <= dim.max)}:
            turns: set[int] = set()
            for length in new:
                questions = at(length).questions
                if questions is not None and len(self._turns) <= MOST_TURNS:
                    turns |= {n for n in turning_points(length, questions) if self._elements(k, n) <= LARGEST}
            self._turns |= turns
            tried |= new
            lengths = lengths | _beside(turns)
        return sorted(tried)

    def _doublings(self, k: int) -> list[int]:
        """Return lengths that grow until arrays are large, each odd if the one before is even.

        What NumPy makes while the function is traced (``np.eye(len(x))``) counts too.
        """
        dim, length, lengths = self.dims[k], 2 * self.base[k], list[int]()
        while self._elements(k, length) <= FURTHEST and (dim.max is None or length <= dim.max):
            lengths.append(length)
            length = 2 * length + (1 - length % 2)
        return lengths

    def _elements(self, k: int, length: int) -> int:
        """Return the size of the largest array in memory, roughly, where one length is this and the others are long."""
        base = self.base
        largest_constant = self._sample(base).made
        power = math.ceil(math.log(max(largest_constant, 1), max(base[k], 2)) - 0.5)
        largest_argument = _elements(self._shapes, self.dims, (*base[:k], length, *base[k + 1 :]))
        return max(largest_argument, int(largest_constant * (length / max(base[k], 1)) ** power) // 2)

    def _cell(self, ranges: tuple[Range, ...]) -> Cell:
        """Return a box with its samples: each length short while the others are long, and all long.

        Points with several short lengths count where they have the same form: equal lengths, for instance, share loops that others do
        not, which is only faster.
        """
        pools = [_pool(low, high, self.base[k]) for k, (low, high) in enumerate(ranges)]
        free = [k for k, pool in enumerate(pools) if len(pool) > 1]
        count = samples_needed(len(free)) + 3
        long = [pool[len(pool) // 2 :] for pool in pools]
        draw = random.Random(0)

        def drawn(k: int | None, length: int = 0) -> Point:
            lengths = [length if j == k else draw.choice(long[j]) for j in range(len(pools))]
            return tuple(lengths)

        points = dict.fromkeys([drawn(k, length) for k in free for length in pools[k]] or [drawn(None)])
        tries = 0
        while len(points) < count and free and tries < 4 * count:
            points[drawn(None)] = None
            tries += 1
        samples = {point: self._sample(point) for point in points}
        first, form = next((point, sample.form) for point, sample in samples.items())
        for point, sample in samples.items():
            if sample.form != form:
                self._check_answers([samples[first], sample])
                raise self._refusal(
                    f"the program of {self._named(point)} is not that of {self._named(first)}"
                )
        if len(free) > 1:
            for _ in range(count // 2):
                point = tuple([draw.choice(pool[: len(pool) // 2 + 1]) for pool in pools])
                sample = self._sample(point)
                if sample.form == form:
                    samples[point] = sample
        # What is known of the box counts too: a number may stay the same over short lengths (n // 2000).
        samples |= {
            point: sample
            for point, sample in self._known.items()
            if sample.form == form
            and all(
                low <= n and (high is None or n <= high) for n, (low, high) in zip(point, ranges, strict=True)
            )
        }
        return Cell(ranges, list(samples), list(samples.values()))

    def _named(self, point: Point) -> str:
        return ", ".join([f"{dim.name} = {length}" for dim, length in zip(self.dims, point, strict=True)])

    def _refusal(self, message: str) -> ArgumentError:
        return self._not_for_all(
            message,
            where=user_site(),
            why="a Python loop over elements, medians, functions of arrays that NumPy makes of a length (np.hanning(len(x))), and "
            "branches on lengths make another program",
            remedy=f'bound the lengths, gt.Dim("{self.dims[0].name}", min=2), write it without (gt.scan for loops), '
            "or export one file for each length",
        )

    def _unfitted(self, cell: Cell) -> ArgumentError:
        return self._not_for_all(
            "some numbers of its program are not expressions in the lengths",
            where=user_site(),
            why="extents of arrays have to be polynomials of the lengths, or their floors",
            remedy="export one file for each length, or ranges of lengths: gt.Dim('n', min=..., max=...)",
        )


def _beside(lengths: Iterable[int]) -> set[int]:
    """Return lengths, and the next ones."""
    return {length + step for length in lengths for step in (-1, 0, 1)}


def _long_point(dims: Sequence[Dim], shapes: Sequence[Any]) -> Point:
    """Return lengths that are long, differ, and leave the arguments in memory."""
    long = LONGEST
    for shape in shapes:
        fixed, free = 1, 0
        for extent in shape:
            if isinstance(extent, Dim):
                free += 1
            else:
                fixed *= max(extent, 1)
        if free:
            long = min(long, int(max(ELEMENTS / fixed, 1.0) ** (1 / free)))
    long = max(long, SHORT + 13)
    return tuple([max(d.min, min(long + 40 * k, d.max or long + 40 * k)) for k, d in enumerate(dims)])


def _elements(shapes: Sequence[Any], dims: Sequence[Dim], point: Point) -> int:
    """Return the size of the largest argument."""
    lengths = dict(zip([dim.name for dim in dims], point, strict=True))
    return max(
        [math.prod([lengths[e.name] if isinstance(e, Dim) else e for e in shape]) for shape in shapes],
        default=1,
    )


def _last_alike(low: int, high: int, form: Callable[[int], Hashable]) -> int:
    """Return the last length from `low` on that has its form, where `high` has another one."""
    low_form = form(low)
    while high - low > 1:
        middle = (low + high) // 2
        if form(middle) == low_form:
            low = middle
        else:
            high = middle
    return low


def _pool(low: int, high: int | None, base: int) -> list[int]:
    """Return lengths of a range to try: short ones and long ones."""
    candidates = [*range(low, low + 5), low + 7, low + 11, *range(base, base + 8), base + 17]
    return sorted({length for length in candidates if length >= low and (high is None or length <= high)})


def attempted(trace: Callable[[], Sample]) -> Sample:
    """Return a sample, or the failure that is in its place."""
    try:
        return trace()
    except MemoryError:
        raise
    except (GradtapeError, ValueError, IndexError, ArithmeticError) as error:
        return Sample(("failure", type(error).__name__), failure=error)
