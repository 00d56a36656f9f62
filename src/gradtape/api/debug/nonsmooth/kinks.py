"""`kinks`: where a function stands at, or near, a switch between two formulas, and what its derivative is on each side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.debug.nonsmooth.programs import Kept
from gradtape.api.debug.nonsmooth.recording import Point, Recorded, Run, Switch, op_by_op, vector_of
from gradtape.api.debug.nonsmooth.switches import Margins, margins_of
from gradtape.api.debug.programs import NotKept
from gradtape.api.debug.unrolled import Iterations
from gradtape.errors import ArgumentError
from gradtape.habits import suggests_keywords
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten

STEP: Final = 1e-5
"""How far from a switch its sides are looked at, as a part of the arguments' size; a tenth of it as well."""

NEARER: Final = 30.0
"""How much nearer the sides of what looks like a jump and a kink at once are looked at."""

SHRINKS: Final = 0.5
"""A difference between the sides that falls below this part of itself at a tenth of the distance is curvature, or the slope."""

TOLERANCE: Final = 1e-7
"""The smallest difference between the sides that counts, as a part of what is compared."""


@dataclass(frozen=True, eq=False, repr=False)
class Kink:
    """A switch at or near which a function was evaluated.

    Attributes
    ----------
    kind : {"kink", "jump"}
        Whether the derivative jumps there, or the function.
    op : str
        The op that switches.
    site : Site
        The user's line.
    iterations : tuple of (str, int)
        The loops that it is in, each with the number of the iteration, the innermost first.
    count : int
        How many elements, or iterations, of the line stand as near.
    margin : float
        How far the nearest of them is from its switch, in the number that decides: 0 at the switch.
    distance : float
        How far the arguments are from the switch, along the gradient of that number.
    direction : nest
        The unit vector along which the arguments cross the switch.
    slopes : tuple of two nests
        The derivative along `direction` before and after the switch, in the containers of the function's results.
    returned : nest
        The derivative along `direction` that gradtape returns at the arguments.
    gradients : tuple of two nests or None
        The gradients on both sides, in the containers of the arguments, for a function of which the result is one number.
    jumps : nest
        By how much the results jump.
    is_stationary : bool or None
        Whether zero is a generalised gradient there (F. H. Clarke, "Optimization and Nonsmooth Analysis", 1983), as far as the two
        sides show: in the convex hull of their gradients. None where there are no gradients, and at jumps.
    """

    kind: str
    op: str
    site: Any
    iterations: Iterations
    count: int
    margin: float
    distance: float
    direction: Any
    slopes: tuple[Any, Any]
    returned: Any
    gradients: tuple[Any, Any] | None
    jumps: Any
    is_stationary: bool | None

    def is_same_as(self, other: Kink) -> bool:
        """Return whether two ops of one line have found the same switch, such as ``x < 0`` and ``x >= 0``."""
        if (self.kind, repr(self.site)) != (other.kind, repr(other.site)):
            return False
        mine, theirs = (
            [vector_of(flatten(part)[0]) for part in (kink.direction, *kink.slopes, kink.jumps)]
            for kink in (self, other)
        )
        return all(np.allclose(a, b, rtol=1e-6, equal_nan=True) for a, b in zip(mine, theirs, strict=True))

    def __repr__(self) -> str:
        where = f"{self.site}" + "".join(
            f", in iteration {number} of {loop}" for loop, number in self.iterations
        )
        more = f", and {self.count - 1} more" if self.count > 1 else ""
        lines = [f"{self.kind} of {self.op} at {where}{more}"]
        lines.append(
            f"  distance: {self.distance:.3g} in the arguments, {self.margin:.3g} between the compared values"
        )
        if self.kind == "jump":
            lines.append(f"  the result jumps by {_short(self.jumps)}")
        before, behind = self.slopes
        lines.append(
            f"  slopes: {_short(before)} before, {_short(behind)} after; gradtape returns {_short(self.returned)}"
        )
        if self.is_stationary:
            lines.append("  zero is between the gradients of both sides: it may be a minimum or maximum")
        return "\n".join(lines)


class Kinks(tuple[Kink, ...]):
    """The kinks and jumps that `kinks` has found, the nearest first; it prints as a report.

    Attributes
    ----------
    seen : int
        How many comparisons were looked at.
    """

    seen: int

    def __new__(cls, found: Sequence[Kink], seen: int) -> Kinks:
        """Make a report."""
        self = super().__new__(cls, found)
        self.seen = seen
        return self

    def __repr__(self) -> str:
        head = f"comparisons at or near a kink or jump: {len(self)} of {self.seen}"
        return "\n".join([head, *map(repr, self)])


@suggests_keywords
def kinks(f: Callable[..., Any], *args: Any, near: float = 1e-6) -> Kinks:
    """Return the kinks and jumps at or near a point, with the derivatives on each side.

    Reported are selections (`np.where`, `np.select`, masks), branches of Python and of `cond`, `np.abs`, `np.maximum`, `np.max` and
    others where elements tie, norms and roots at 0, `np.sort`, `np.clip`, `np.sign`, `np.floor`, `np.round`, remainders,
    `np.searchsorted` and `np.argmax`. Smooth cases, such as ``np.abs(x) ** 2`` or two branches that meet smoothly, are not reported.

    Parameters
    ----------
    f : callable
        NumPy code. The derivative is with respect to its floating-point arguments.
    *args : array_like, or nests of them
        Its arguments.
    near : float
        The distance that counts as near, relative to the numbers that are compared, or to 1.

    Returns
    -------
    Kinks
        A tuple of `Kink`, the nearest first: one for each line and op.

    Raises
    ------
    ArgumentError
        If no argument is a float, or `near` is not a distance.

    See Also
    --------
    check_numerics : Where a NaN comes from.

    Notes
    -----
    The function runs op by op, with all loops unrolled; later calls run programs that are kept, as long as what it reads is as it was. A
    switch is where a difference m of two numbers is 0. The arguments move along
    its gradient to where it is 0 in linear approximation, and the function is differentiated on both sides. Of several switches in the
    same place those are reported without which the results would be others: their ops are computed once more, with the formula of
    the other side.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> found = gt.debug.kinks(lambda x: np.sum(np.abs(x)), np.array([0.0, 1.0]))
    >>> found[0].kind, found[0].op, found[0].slopes, found[0].is_stationary
    ('kink', 'absolute', (np.float64(-1.0), np.float64(1.0)), False)
    >>> gt.debug.kinks(lambda x: np.sum(np.abs(x) ** 2), np.array([0.0, 1.0]))
    comparisons at or near a kink or jump: 0 of 2
    """
    point = Point(f, args)
    if not isinstance(near, int | float | np.number) or not near >= 0:
        raise ArgumentError(
            f"gt.debug.kinks: near is {near!r}",
            where=user_site(),
            why="it is a distance",
            remedy="near=1e-6",
        )
    try:
        found, seen = _crossed(Kept(point), near)
    except NotKept:
        with op_by_op():
            found, seen = _crossed(Recorded(point), near)
    different: list[Kink] = []
    for kink in sorted((each.kink for each in found), key=lambda kink: kink.distance):
        if not any(kink.is_same_as(other) for other in different):
            different.append(kink)
    return Kinks(different, seen)


class _Candidate(NamedTuple):
    """The nearest switch of a line and op.

    Attributes
    ----------
    node : Node
        The nearest.
    others : sequence of Node
        All nodes of the line and op that are near.
    margin, gradient
        The difference that decides, and its gradient.
    instances : int
        How many elements, or iterations, are near.
    iterations : tuple
        Those that the nearest is in.
    is_asked : bool
        Whether Python's or a loop's way depends on it, so that the other side may run other ops.
    """

    node: Node
    others: Sequence[Node]
    margin: float
    instances: int
    gradient: NDArray
    iterations: Iterations
    is_asked: bool


def _crossed(run: Run, near: float) -> tuple[list[_Crossing], int]:
    """Return the switches at or near the point that make kinks, and how many there are at all."""
    candidates, seen = _near_switches(run, near)
    crossings = [each for one in candidates if (each := _examined(run, one)) is not None]
    return _responsible(run, crossings), seen


def _near_switches(run: Run, near: float) -> tuple[list[_Candidate], int]:
    """Return the nearest switch of each line and op that depends on the arguments, and how many were looked at."""
    nearest: dict[Any, _Nearest] = {}
    seen = 0
    for switch in run.switches:
        for margins in margins_of(switch.node, run.numbers):
            seen += len(margins.distances)
            close = np.flatnonzero(np.abs(margins.distances) <= near * margins.scales)
            if len(close):
                best = int(close[np.argmin(np.abs(margins.distances[close]))])
                one = _Nearest(margins, best, abs(float(margins.distances[best])), len(close), (switch,))
                key = switch.node.op, repr(switch.node.site)
                nearest[key] = one if key not in nearest else nearest[key].with_others(one)
    found = []
    for one in nearest.values():
        node, margin = one.margins.node, float(one.margins.distances[one.position])
        gradient = run.gradient(node, one.margins.seeds(one.position))
        is_asked = any(switch.is_asked for switch in one.switches)
        iterations = next(switch.iterations for switch in one.switches if switch.node is node)
        nodes = [switch.node for switch in one.switches]
        found.append(_Candidate(node, nodes, margin, one.instances, gradient.real, iterations, is_asked))
    return found, seen


class _Nearest(NamedTuple):
    """The nearest switch of a line and op so far, and how many are near."""

    margins: Margins
    position: int
    distance: float
    instances: int
    switches: tuple[Switch, ...]

    def with_others(self, other: _Nearest) -> _Nearest:
        nearer = other if other.distance < self.distance else self
        return nearer._replace(
            instances=self.instances + other.instances,
            switches=tuple(dict.fromkeys(self.switches + other.switches)),
        )


class _Crossing(NamedTuple):
    """A kink of the function, where it is crossed, and the switch that was looked at."""

    kink: Kink
    candidate: _Candidate
    border: NDArray
    direction: NDArray

    def is_where(self, other: _Crossing) -> bool:
        """Return whether another switch is crossed in the same place."""
        scale = max(1.0, _largest(self.border))
        return bool(
            _largest(self.border - other.border) <= 1e-7 * scale
            and abs(float(self.direction @ other.direction)) > 1.0 - 1e-6
        )


def _responsible(run: Run, crossings: Sequence[_Crossing]) -> list[_Crossing]:
    """Return the switches that make the kinks, of those in the same place; a switch alone in its place is the one."""
    kept, left = [], list(crossings)
    while left:
        here_too = [each for each in left if left[0].is_where(each)]
        left = [each for each in left if not any(each is other for other in here_too)]
        if len(here_too) == 1:
            kept += here_too
            continue
        effects = _effects(run, here_too)
        # A guard, as of a logarithm whose result is not selected on one side, counts only if nothing else makes the kink.
        most = min(2, max(map(len, effects)))
        for each, kinds in zip(here_too, effects, strict=True):
            if len(kinds) >= most:
                is_bend = kinds and "jump" not in kinds
                kept.append(each._replace(kink=replace(each.kink, kind="kink")) if is_bend else each)
    return kept


def _effects(run: Run, here_too: Sequence[_Crossing]) -> list[list[str]]:
    """Return of switches in one place, for each of the two sides on which the results depend on which formula the switch has, whether they
    jump or bend."""
    place, wide = here_too[0], STEP * run.point.size
    groups = [tuple([out for node in each.candidate.others for out in node.outs]) for each in here_too]
    known: dict[float, tuple[NDArray, dict[Value, NDArray]]] = {}

    def at(step: float) -> NDArray:
        return np.asarray(place.border + step * place.direction)

    def computed(step: float) -> tuple[NDArray, dict[Value, NDArray]]:
        if step not in known:
            known[step] = run.computed_at(at(step), tuple(dict.fromkeys(itertools.chain(*groups))))
        return known[step]

    def difference(step: float, outs: Sequence[Value]) -> float:
        """Return how much the results change at a step from the switch, if the formula is that of the other side."""
        (here, _), (_, near), (_, far) = (computed(step * k) for k in (1.0, -1.0, -2.0))
        forced = {
            # Numbers go on as they came: in a line.
            out: (3.0 * near[out] - 2.0 * far[out]).astype(out.dtype) if is_inexact(out.dtype) else near[out]
            for out in outs
        }
        return _largest(run.results_with(at(step), forced) - here)

    def effects(each: _Crossing, outs: Sequence[Value]) -> list[str]:
        if each.candidate.is_asked:
            return [each.kink.kind] * 2
        found = []
        for sign in (1.0, -1.0):
            large, small = difference(sign * wide, outs), difference(sign * wide / 10, outs)
            if not small <= SHRINKS * large:
                if not small <= TOLERANCE * size:
                    found.append("jump")
            elif small > SHRINKS * large / 10 and small > TOLERANCE * wide * size / 10:
                found.append("kink")
        return found

    with np.errstate(all="ignore"):
        size = max(1.0, _largest(run.results))
        return [effects(*pair) for pair in zip(here_too, groups, strict=True)]


def _examined(run: Run, candidate: _Candidate) -> _Crossing | None:
    """Return the kink at a switch; None if the function is smooth there."""
    if not np.isfinite(candidate.margin):
        return None
    point = run.point
    steepness = float(np.sqrt(candidate.gradient @ candidate.gradient))
    if np.isfinite(steepness) and steepness > 0:
        direction = candidate.gradient / steepness
        distance = candidate.margin / steepness
        directions = [direction]
    else:
        # What decides is at its minimum, such as the norm at 0: any direction crosses it.
        distance = 0.0
        rng = np.random.default_rng(0)
        drawn = rng.standard_normal((3, len(point.vector)))
        directions = [np.ones(len(point.vector)) / np.sqrt(len(point.vector)), *_unit_rows(drawn)]
    border = point.vector - distance * directions[0]
    for direction in directions:
        kink = _across(run, candidate, border, direction, abs(distance))
        if kink is not None:
            return _Crossing(kink, candidate, border, direction)
    return None


def _unit_rows(rows: NDArray) -> NDArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _across(
    run: Run, candidate: _Candidate, border: NDArray, direction: NDArray, distance: float
) -> Kink | None:
    point = run.point
    wide, narrow = STEP * point.size, STEP * point.size / 10
    with np.errstate(all="ignore"):
        far = [run.side(border + sign * wide * direction, direction) for sign in (-1, 1)]
        close = [run.side(border + sign * narrow * direction, direction) for sign in (-1, 1)]
        jump = _left_over(far[1].value - far[0].value, close[1].value - close[0].value, close[0].value)
        bend = _left_over(far[1].slope - far[0].slope, close[1].slope - close[0].slope, close[0].slope)
        if not (jump or bend):
            return None
        if jump and bend:
            # Two kinks that are closer than the steps look like a jump, except from nearer.
            ends = [run.side(border + sign * narrow / NEARER * direction, direction) for sign in (-1, 1)]
            jump = _left_over(close[1].value - close[0].value, ends[1].value - ends[0].value, ends[0].value)
        at_point = run.side(point.vector, direction)
    gradients = None
    stationary = None
    if close[0].gradient is not None and close[1].gradient is not None:
        gradients = point.nest_of(close[0].gradient), point.nest_of(close[1].gradient)
        stationary = None if jump else _holds_zero(close[0].gradient, close[1].gradient)
    return Kink(
        kind="jump" if jump else "kink",
        op=candidate.node.op.name,
        site=candidate.node.site,
        iterations=candidate.iterations,
        count=candidate.instances,
        margin=abs(candidate.margin),
        distance=distance,
        direction=point.nest_of(direction),
        slopes=(at_point.nest(close[0].slope), at_point.nest(close[1].slope)),
        returned=at_point.nest(at_point.slope),
        gradients=gradients,
        jumps=at_point.nest(close[1].value - close[0].value - narrow * (close[0].slope + close[1].slope)),
        is_stationary=stationary,
    )


def _left_over(far: NDArray, close: NDArray, size: NDArray) -> bool:
    """Return whether a difference between the sides stays as they come nearer."""
    large, small = _largest(far), _largest(close)
    if not np.isfinite(small):
        return True
    return small > SHRINKS * large and small > TOLERANCE * max(1.0, _largest(size))


def _largest(vector: NDArray) -> float:
    """Return the size of the largest number of a vector; NaN if there is one."""
    return float(np.abs(vector).max(initial=0.0))


def _holds_zero(first: NDArray, second: NDArray) -> bool:
    """Return whether zero is in the segment between two gradients, which are finite."""
    if not (np.all(np.isfinite(first)) and np.all(np.isfinite(second))):
        return False
    between = second - first
    square = float(between @ between)
    share = float(np.clip(-(first @ between) / square, 0, 1)) if square else 0.0
    nearest = first + share * between
    return bool(np.linalg.norm(nearest) <= 1e-6 * max(np.linalg.norm(first), np.linalg.norm(second)))


def _short(tree: Any) -> str:
    vector = vector_of(flatten(tree)[0])
    shown = ", ".join(f"{number:.6g}" for number in vector[:4])
    return shown if len(vector) == 1 else f"[{shown}{', ...' if len(vector) > 4 else ''}]"
