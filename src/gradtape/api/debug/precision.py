"""`digits`: how many digits of a value and its derivative are right, where they were lost, and what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.debug.arithmetic import normal, rounded_off
from gradtape.api.debug.call import Call
from gradtape.api.debug.linalg import evaluate_extended, refined
from gradtape.api.debug.nonsmooth.recording import op_by_op, run_checked
from gradtape.api.debug.programs import KnownCalls, NotKept, closed, depends_on_trace, guard_ways
from gradtape.api.debug.unrolled import UnrolledLoops, compute_op_by_op, in_place_of_loops
from gradtape.api.transforms.recording import Recording
from gradtape.errors import ArgumentError, GradtapeError
from gradtape.ir.graph import Graph, Literal, Node, Value, constant, extract, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.kinds.contract import Contract
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.trace.source.sites import user_site
from gradtape.transforms.call import inlined
from gradtape.transforms.observers import DerivativeSite
from gradtape.transforms.vjp import vjp as pulled
from gradtape.trees import unflatten

EXTENDED: Final = np.longdouble
"""The arithmetic of the second run: 64 bits instead of 53 on x86-64, 113 in software on other machines, where it is not that of doubles."""

HAS_EXTENDED: Final = bool(np.finfo(EXTENDED).eps < np.finfo(np.float64).eps / 100)

TINY: Final = float(np.finfo(np.float64).tiny)

UNIT_ROUNDOFF: Final = float(np.finfo(np.float64).eps / 2)

ALL_DIGITS: Final = 15.95
"""-log10 of the unit roundoff of doubles."""

ENOUGH: Final = 12.0
"""Digits of a result from which no loss is reported."""

LOST: Final = 2.0
"""Digits that an op or a line must lose to be looked at."""

MOST: Final = 24
"""Ops and lines that are tried: whether the result is better if they have lost nothing."""

REPORTED: Final = 4
"""Losses that are reported."""


@dataclass(frozen=True, eq=False, repr=False)
class Loss:
    """An op that lost digits that a result depends on.

    Attributes
    ----------
    op : str
        Its name.
    site : object
        The user's line.
    lost : float
        How many digits its result has lost, compared with its operands.
    in_derivative_of : str or None
        The op whose derivative it computes; None where it is part of the value.
    remedy : str
        What to write instead, or how to look for it.
    """

    op: str
    site: Any
    lost: float
    in_derivative_of: str | None
    remedy: str

    def __repr__(self) -> str:
        derivative = f", in the derivative of {self.in_derivative_of}" if self.in_derivative_of else ""
        return f"{self.op} at {self.site}{derivative} loses {self.lost:.0f} digits: {self.remedy}"


@dataclass(frozen=True, eq=False, repr=False)
class Digits:
    """The numbers of correct digits that `digits` found.

    Attributes
    ----------
    value : float
        Of the value: those of its largest element, if it has several; 16 at most.
    derivative : float
        Of the gradient, or of the product of the Jacobian with ones.
    value_elements, derivative_elements : nest of ndarray
        The digits of each number.
    losses : tuple of Loss
        Where they were lost, the largest loss first; empty if no result has lost more than four of its digits.
    """

    value: float
    derivative: float
    value_elements: Any
    derivative_elements: Any
    losses: tuple[Loss, ...]

    def __repr__(self) -> str:
        lines = [f"{self.value:.0f} digits of the value are right, {self.derivative:.0f} of the derivative"]
        return "\n".join([*lines, *(f"  {loss!r}" for loss in self.losses)])


def digits(f: Callable[..., Any], *args: Any) -> Digits:
    """Return the number of correct digits of a function's value and derivative, and the lines where digits are lost.

    Parameters
    ----------
    f : callable
        NumPy code. The derivative is with respect to its floating-point arguments.
    *args : array_like, or nests of them
        Its arguments, which count as exact.

    Returns
    -------
    Digits
        The lines at which digits were lost, and replacements where one is known.

    Raises
    ------
    ArgumentError
        If no argument is a float, or the machine's long double is a double.

    See Also
    --------
    kinks : Where a derivative is one of several.

    Notes
    -----
    Value and gradient are computed op by op, with all loops unrolled, in double precision and twice in extended precision with random
    rounding (J. Vignes, "A Stochastic Arithmetic for Reliable Scientific Computation", 1993). Digits on which the extended runs agree are
    correct. Where they do not agree on the error, they are computed once more, with what sums, products, quotients and roots round off.
    Linear systems, determinants and Cholesky's factors are computed by elimination. Other ops that NumPy has in double precision only, such
    as eigenvalues and most special functions, hand on the errors of their operands by their derivatives. An op, or a line of a loop, is
    blamed if the result has more right digits when its own results are replaced by the extended ones. Of a function that was called before
    the ops are known, and it does not run again unless something that it reads has changed.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> found = gt.debug.digits(lambda x: (1 - np.cos(x)) / x**2, 1e-7)
    >>> found.value < 5, found.derivative < 1, found.losses[0].remedy
    (True, True, '2*np.sin(x/2)**2 for 1 - np.cos(x)')
    >>> gt.debug.digits(lambda x: 2 * np.sin(x / 2) ** 2 / x**2, 1e-7).value > 15
    True
    """
    call = Call("digits", f, args, "fc")
    if not HAS_EXTENDED:
        raise ArgumentError(
            "gt.debug.digits: long double is double on this machine",
            where=user_site(),
            why="the second run needs more digits",
            remedy="run it on x86-64",
        )
    with np.errstate(all="ignore"):
        run = _Run(*_computed(call))
        value, slopes = run.digits(run.targets), run.digits(run.gradient)
        losses = run.losses() if min(value.least, slopes.least) < ENOUGH else ()
    return Digits(
        value.least,
        slopes.least,
        unflatten(run.result_spec, value.elements),
        call.nest(slopes.elements),
        losses,
    )


class _Accuracy(NamedTuple):
    """The digits of several arrays: of each number, and of the largest of each array, the least of these."""

    elements: list[NDArray]
    least: float


class _Suspect(NamedTuple):
    """An op, or all those of a line; the one that loses the most digits, and how many are lost."""

    nodes: tuple[Node, ...]
    worst: Node
    lost: float


class _Nodes:
    """What computes value and gradient, op by op, with all loops unrolled.

    Parameters
    ----------
    recording : Recording
        It has run the function.

    Attributes
    ----------
    nodes, leaves : list
        Of both.
    sources, targets, gradient : sequence of Value
    result_spec : TreeSpec
    """

    def __init__(self, recording: Recording) -> None:
        self.loops = UnrolledLoops()
        self.sources: Sequence[Value] = recording.sources
        self.result_spec = recording.result_spec
        self.targets: Sequence[Value] = in_place_of_loops(recording.targets, self.loops)
        floating = [target for target in self.targets if is_inexact(target.dtype)]
        compute_op_by_op(self.targets, all_ancestors=True)
        _, leaves = extract(self.targets, self.sources, stop=lambda value: False)
        constants = set(leaves) - set(self.sources)
        seeds = [broadcast_to(literal(1.0, target.dtype), target.shape) for target in floating]
        parts = pulled(floating, self.sources, seeds, lambda value: value in constants)
        slopes = [
            broadcast_to(literal(0.0, source.dtype), source.shape) if part is None else part
            for part, source in zip(parts, self.sources, strict=True)
        ]
        self.gradient: Sequence[Value] = in_place_of_loops(slopes, self.loops, self.sources)
        ends = [*self.targets, *self.gradient]
        self.nodes, self.leaves = extract(ends, self.sources, stop=lambda value: False)


class _KeptNodes(_Nodes):
    """The same of a trace: copies without numbers, and the values outside that differ from call to call."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        guard_ways(self.loops)
        ends = [*self.targets, *self.gradient]
        nodes, leaves = closed(recording, ends, self.loops, with_constants=True)
        self.frame = list(filter(depends_on_trace, leaves))
        behind = [*self.sources, *self.frame]
        self.inputs = [Value(value.aval) for value in behind]
        outputs = inlined(Graph(behind, nodes, ends), self.inputs)
        self.sources = self.inputs[: len(self.sources)]
        self.targets, self.gradient = outputs[: len(self.targets)], outputs[len(self.targets) :]
        self.nodes, constants = extract(outputs, self.inputs, stop=lambda value: False)
        self.leaves = [*self.inputs[len(self.sources) :], *constants]
        self.loops = UnrolledLoops()

    def computed(self, arrays: Sequence[NDArray]) -> dict[Value, Any]:
        """Return all numbers, for those of the inputs."""
        data: dict[Value, Any] = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            operands: list[Any] = [data.get(operand, operand.data) for operand in node.inputs]
            data.update(zip(node.outs, node.op.evaluate(operands, node.params), strict=True))
        return data


def _computed(call: Call) -> tuple[_Nodes, dict[Value, Any]]:
    """Return the nodes of value and gradient, and all numbers: known from the calls before, or of a run op by op."""
    floats = [call.leaves[k] for k in call.moving]
    try:
        nodes, frame = KnownCalls(call, _analysed)(floats)
        return nodes, nodes.computed(list(map(np.asarray, [*floats, *frame])))
    except NotKept:
        pass

    with op_by_op():
        recording = Recording("gt.debug.digits", tuple(floats))
        run_checked(recording, call, lambda values: None)
        found = _Nodes(recording)
        compute_op_by_op(found.gradient, all_ancestors=True)
    values = [*found.leaves, *found.sources, *[out for node in found.nodes for out in node.outs]]
    return found, {value: value.data for value in values}


def _analysed(
    recording: Recording, function: Callable[..., Any], _: Sequence[Any]
) -> tuple[_KeptNodes, Sequence[Value]]:
    recording.run(function)
    nodes = _KeptNodes(recording)
    frame, nodes.frame = nodes.frame, []
    return nodes, frame


class _Run:
    """Value and gradient, op by op, in both arithmetics."""

    def __init__(self, nodes: _Nodes, data: dict[Value, Any]) -> None:
        self.result_spec, self.targets, self.gradient = nodes.result_spec, nodes.targets, nodes.gradient
        self._nodes, self._leaves, self._sources = nodes.nodes, set(nodes.leaves), nodes.sources
        self._data = data
        self._known: dict[Value, float] = {}
        self._lows: list[dict[Value, NDArray]] = [{}, {}]
        self._shadows = [self._extended(seed) for seed in (1, 2)]
        if not all(map(self._is_certain, (*self.targets, *self.gradient))):
            self._shadows = [self._extended(seed, low) for seed, low in zip((1, 2), self._lows, strict=True)]
            self._known.clear()

    def _numbers(self, value: Value) -> Any:
        found = self._data.get(value)
        return value.data if found is None else found

    def _extended(self, seed: int, low: dict[Value, NDArray] | None = None) -> dict[Value, NDArray]:
        """Return all values in extended precision, with random rounding; what is rounded off is entered in `low`, where it is known."""
        rng = np.random.default_rng(seed)
        shadow: dict[Value, NDArray] = {}
        for leaf in (*self._leaves, *self._sources):
            shadow[leaf] = _widened(np.asarray(self._numbers(leaf)))
        for node in self._nodes:
            for operand in node.inputs:
                if operand not in shadow:
                    shadow[operand] = _widened(np.asarray(operand.data))  # a literal
            operands = [shadow[operand] for operand in node.inputs]
            results = self._results(node, operands, rng, refines=low is not None)
            if low is not None:
                lows = [low.get(operand, 0.0) for operand in node.inputs]
                rest = rounded_off(node, operands, lows, results[0]) if len(results) == 1 else None
                if rest is not None and np.all(np.isfinite(rest)):
                    (out,) = node.outs
                    shadow[out], low[out] = normal(results[0], rest)
                    continue
                if any(map(np.any, lows)):  # the low parts end here, and are replaced by random rounding
                    operands = [
                        wide * (1 + _noise(wide, rng) * (rest != 0)) if np.any(rest) else wide
                        for wide, rest in zip(operands, lows, strict=True)
                    ]
                    results = self._results(node, operands, rng, refines=True)
            for out, result in zip(node.outs, results, strict=True):
                shadow[out] = _perturbed(node, operands, result, rng)
        return shadow

    def _results(
        self, node: Node, operands: list[NDArray], rng: np.random.Generator, refines: bool
    ) -> list[NDArray]:
        results = _evaluated(node, operands, self._numbers, rng)
        is_refined = refines and isinstance(node.op, Matrix)
        return refined(node.op.name, operands, node.params, results, rng) if is_refined else results

    def _is_certain(self, value: Value) -> bool:
        """Return whether both runs agree on the error of a result, or say that it has none."""
        if not is_inexact(value.dtype) or self._digits_of(value) >= ALL_DIGITS:
            return True
        first, second = (self._errors(value, self._numbers(value), run) for run in (0, 1))
        return bool(np.all(np.abs(first - second) <= 0.1 * np.maximum(np.abs(first), np.abs(second))))

    def _errors(self, value: Value, computed: Any, run: int) -> NDArray:
        """Return the differences of numbers from those of a run."""
        found = _widened(np.asarray(computed)) - self._shadows[run][value]
        low = self._lows[run].get(value)
        return np.asarray(found if low is None else found - low)

    def digits(self, values: Sequence[Value]) -> _Accuracy:
        """Return how many digits of values are right."""
        elements, least = [], ALL_DIGITS
        for value in values:
            if not is_inexact(value.dtype):
                elements.append(np.full(value.shape, ALL_DIGITS))
                continue
            errors = [np.abs(self._errors(value, self._numbers(value), run)) for run in (0, 1)]
            elements.append(_digits(np.max(errors, axis=0), np.abs(self._shadows[0][value])))
            least = min(least, self._digits_of(value))
        return _Accuracy(elements, least)

    def losses(self) -> tuple[Loss, ...]:
        """Return the lines whose lost digits the results have lost, found by replacing their results one after the other."""
        found: dict[tuple[str, str], Loss] = {}
        for ends in (self.targets, self.gradient):
            fixed: dict[Node, None] = {}
            suspects = sorted(self._suspects(ends), key=lambda suspect: -suspect.lost)[:MOST]
            before = len(found)
            best = self._quality(fixed, ends)
            enough = ENOUGH * len(ends)
            while suspects and best < enough and len(found) < REPORTED:
                tried = [
                    (self._quality(fixed | dict.fromkeys(each.nodes), ends), each.lost, -number)
                    for number, each in enumerate(suspects)
                ]
                quality, _, place = max(tried)
                if quality < best + 0.5:
                    break
                suspect = suspects.pop(-place)
                fixed.update(dict.fromkeys(suspect.nodes))
                best = quality
                self._report(found, suspect)
            if best < enough and len(found) == before and suspects:
                # Two lines would have to be right at once, such as those of the terms of a difference.
                self._report(found, suspects[0])
        return tuple(found.values())

    def _report(self, found: dict[tuple[str, str], Loss], suspect: _Suspect) -> None:
        node, site = suspect.worst, suspect.worst.site
        derivative_of = site.op if isinstance(site, DerivativeSite) else None
        where = site.site if isinstance(site, DerivativeSite) else site
        remedy = remedy_for(node, self._numbers)
        if derivative_of is not None and remedy == GENERAL:
            remedy = PATHS
        loss = Loss(node.op.name, where, suspect.lost, derivative_of, remedy)
        found.setdefault((repr(where), loss.remedy), loss)

    def _suspects(self, ends: Sequence[Value]) -> list[_Suspect]:
        """Return the ops, and lines together, that lose digits, and on which some results depend."""
        nodes, _ = extract(ends, self._sources, stop=self._leaves.__contains__)
        lines: dict[Any, list[Node]] = {}
        for node in nodes:
            if any(is_inexact(out.dtype) for out in node.outs):
                lines.setdefault(_line_of(node), []).append(node)
        readers: dict[Value, set[Any]] = {value: {None} for value in ends}
        for line, group in lines.items():
            for node in group:
                for value in node.inputs:
                    readers.setdefault(value, set()).add(line)
        found = []
        for line, group in lines.items():
            single = [(self._lost(node), -number) for number, node in enumerate(group)]
            found += [_Suspect((group[-k],), group[-k], lost) for lost, k in single if lost >= LOST]
            if len(group) > 1:
                # A line of a loop, and ops that lose a little each, lose digits together.
                made = {out for node in group for out in node.outs}
                read = [x for node in group for x in node.inputs if x not in made]
                kept = [out for out in made if readers.get(out, set()) - {line}]
                lost, (most, k) = self._least(read) - self._least(kept), max(single)
                if lost >= max(LOST, most + 1.0):
                    found.append(_Suspect(tuple(group), group[-k], lost))
        return found

    def _least(self, values: Sequence[Value]) -> float:
        return min([ALL_DIGITS, *(self._digits_of(value) for value in values if is_inexact(value.dtype))])

    def _digits_of(self, value: Value) -> float:
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._count(value, self._numbers(value), 2)
        return known

    def _count(self, value: Value, computed: Any, runs: int) -> float:
        """Return the digits of the largest number of an array that are right, compared with one of the runs or both."""
        if not np.size(computed):
            return ALL_DIGITS
        error = max(np.abs(self._errors(value, computed, run)).max() for run in range(runs))
        return float(_digits(error, np.abs(self._shadows[0][value]).max()))

    def _lost(self, node: Node) -> float:
        """Return how many digits a node loses."""
        before, after = self._least(node.inputs), self._least(node.outs)
        if isinstance(node.op, Elementwise) and node.outs[0].ndim:
            after = min(after, self._elementwise_loss(node, before))
        return before - after

    def _elementwise_loss(self, node: Node, before: float) -> float:
        """Return the digits of the worst element whose operands have at least as many as the whole."""
        (elements,), _ = self.digits(node.outs)
        return float(np.min(elements, initial=before))

    def _quality(self, fixed: dict[Node, None], ends: Sequence[Value]) -> float:
        """Return the digits of some results together, if some nodes lost none."""
        data: dict[Value, Any] = {}
        for node in self._nodes:
            arrays: list[Any] = [data[x] if x in data else self._numbers(x) for x in node.inputs]
            if node in fixed:
                results: Sequence[Any] = [self._shadows[0][out].astype(out.dtype) for out in node.outs]
            elif any(x in data for x in node.inputs):
                results = node.op.evaluate(arrays, node.params)
            else:
                continue
            data.update(zip(node.outs, results, strict=True))
        # One run alone: where so much cancels that the two disagree, what is replaced by one of them is still seen to be better.
        counted = [value for value in ends if is_inexact(value.dtype)]
        found = sum(
            self._count(value, data[value] if value in data else self._numbers(value), 1) for value in counted
        )
        return found + ALL_DIGITS * (len(ends) - len(counted))


def _widened(array: NDArray) -> NDArray:
    if array.dtype.kind == "f":
        return array.astype(EXTENDED)
    return array.astype(np.clongdouble) if array.dtype.kind == "c" else array


def _digits(error: Any, size: Any) -> Any:
    """Return the digits that an error leaves of numbers of a size."""
    if np.ndim(error) == 0:
        relative = 0.0 if error == 0 else float(error / (size if size > 0 else TINY))
        if relative == 0:
            return ALL_DIGITS
        return min(-math.log10(relative), ALL_DIGITS) if relative < 1 else 0.0  # 0 for NaN
    quotient = np.where(error == 0, 0.0, error / np.where(size > 0, size, TINY))
    found = np.clip(-np.log10(quotient.astype(float)), 0.0, ALL_DIGITS)
    return np.where(np.isnan(found), 0.0, found)


Numbers = Callable[[Value], Any]
"""Returns the numbers of a value in double precision."""


def _evaluated(
    node: Node, operands: Sequence[NDArray], numbers: Numbers, rng: np.random.Generator
) -> list[NDArray]:
    """Return the results of a node in extended precision."""
    if not any(is_inexact(out.dtype) for out in node.outs):
        return [
            np.asarray(numbers(out)) for out in node.outs
        ]  # the same branches and positions in both arithmetics
    if node.op is convert_row:
        if is_inexact(node.inputs[0].dtype):
            return [operands[0]]
        return [_widened(np.asarray(numbers(node.outs[0])))]
    if not isinstance(node.op, Matrix | Callback):
        try:
            results = [np.asarray(result) for result in node.op.evaluate(list(operands), node.params)]
        except (TypeError, ValueError, GradtapeError):
            results = []
        if results and all(_is_wide(result, out) for result, out in zip(results, node.outs, strict=True)):
            return results
    if isinstance(node.op, Matrix):
        found = evaluate_extended(node.op.name, list(operands), node.params, rng)
        if found is not None:
            return found
    return _corrected(node, operands, numbers, rng)


def _is_wide(result: NDArray, out: Value) -> bool:
    return result.dtype in (EXTENDED, np.clongdouble) or not is_inexact(out.dtype)


def _corrected(
    node: Node, operands: Sequence[NDArray], numbers: Numbers, rng: np.random.Generator
) -> list[NDArray]:
    """Return the results in double precision, with random rounding, and with what the errors of the operands make of them."""
    results = [_widened(np.asarray(numbers(out))) for out in node.outs]
    is_elementwise = isinstance(node.op, Elementwise)
    if isinstance(node.op, Elementwise):
        accuracy = max(node.op.accuracy, UNIT_ROUNDOFF)
        # Not of one size: two errors of the same sign would cancel in a difference, as if there were none.
        sizes = rng.uniform(0.5, 1.0, np.shape(results[0]))
        results = [result * (1 + accuracy * sizes * _signs(rng, result.shape)) for result in results]
    tangents: list[Value | None] = []
    for operand, wide in zip(node.inputs, operands, strict=True):
        error = None
        if is_inexact(operand.dtype):
            narrow = np.asarray(numbers(operand))
            error = np.asarray(wide - _widened(narrow))
            if not is_elementwise and error.size:
                # Factorisations are backward stable: their result is that of operands which differ by rounding.
                error = error + UNIT_ROUNDOFF * np.max(np.abs(narrow)) * rng.uniform(-1, 1, error.shape)
        rounded = None if error is None else error.astype(operand.dtype)
        tangents.append(None if rounded is None or not np.any(rounded) else constant(rounded))
    if all(tangent is None for tangent in tangents):
        return results
    try:
        moved = node.op.jvp(_with_numbers(node, numbers), tangents)
    except GradtapeError:
        return results
    compute_op_by_op([part for part in moved if part is not None])
    return [
        result if part is None else result + _widened(np.asarray(part.data))
        for result, part in zip(results, moved, strict=True)
    ]


def _with_numbers(node: Node, numbers: Numbers) -> Node:
    """Return a copy of a node whose operands and results have numbers, for the rule of its derivative."""
    copy = node.copy(tuple([Value(x.aval, data=np.asarray(numbers(x))) for x in node.inputs]))
    for out, original in zip(copy.outs, node.outs, strict=True):
        out.data = np.asarray(numbers(original))
    return copy


_NOT_ROUNDED: Final = frozenset(
    ROWS[name]
    for name in (
        "negative",
        "absolute",
        "fabs",
        "where",
        "maximum",
        "minimum",
        "clip",
        "identity",
        "sign",
        "copysign",
        "conjugate",
        "floor",
        "ceil",
        "rint",
        "trunc",
    )
    if name in ROWS
)
"""Elementwise rows whose results are not rounded."""


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    return rng.integers(0, 2, shape) * EXTENDED(2.0) - EXTENDED(1.0)


def _perturbed(node: Node, operands: Sequence[NDArray], result: NDArray, rng: np.random.Generator) -> NDArray:
    """Return results of which the last bit is random where it is rounded: a difference of two such results shows what cancels."""
    is_rounded = (
        isinstance(node.op, Elementwise) and node.op not in _NOT_ROUNDED and node.op is not convert_row
    )
    is_rounded = is_rounded or (
        isinstance(node.op, Reduction | Contract | Cumulative) and result.dtype.kind in "fc"
    )
    if not is_rounded or result.dtype.kind not in "fc" or isinstance(node.outs[0], Literal):
        return result
    return np.where(_is_exact(node, operands, result), result, result * (1 + _noise(result, rng)))


def _noise(x: NDArray, rng: np.random.Generator) -> Any:
    """Return relative rounding errors of random sign."""
    return _signs(rng, x.shape) * np.finfo(EXTENDED).eps / 2


def _is_exact(node: Node, operands: Sequence[NDArray], result: NDArray) -> Any:
    """Return where a result is exact, as far as that is cheap to see."""
    name = node.op.name
    if name in ("add", "subtract") and len(operands) == 2:
        a, b = operands[0], operands[1] if name == "add" else -operands[1]
        virtual = result - a
        return (a - (result - virtual)) + (b - virtual) == 0  # the rounding error of a sum (Knuth)
    if name in ("multiply", "divide") and len(operands) == 2 and result.dtype.kind == "f":
        second = _is_power_of_two(operands[1])
        return second | _is_power_of_two(operands[0]) if name == "multiply" else second
    if isinstance(node.op, Reduction | Contract | Cumulative):
        return result == np.rint(result.real) if result.dtype.kind == "f" else False
    if name == "power" and result.dtype.kind == "f":
        return (operands[1] == 1) | (operands[0] == 1)
    inexact = [np.asarray(x) for x in operands if np.asarray(x).dtype.kind in "fc"]
    return inexact[0] == 0 if inexact else False


def _is_power_of_two(x: NDArray) -> Any:
    mantissa, _ = np.frexp(np.abs(x))
    return (mantissa == 0.5) | (x == 0)


def _line_of(node: Node) -> tuple[Any, ...]:
    """Return what tells lines apart; the derivative of a line is another one."""
    site = node.site
    return getattr(site, "filename", None), getattr(site, "line", None), isinstance(site, DerivativeSite)


# Remedies


def _op(value: Value) -> str:
    return "" if value.node is None else value.node.op.name


def _is_number(value: Value, number: float, numbers: Numbers) -> bool:
    data = numbers(value)
    return (
        data is not None
        and np.size(data) > 0
        and bool(np.all(np.asarray(data) == number))
        and (
            isinstance(value, Literal)
            or value.node is None
            or _op(value) in ("broadcast_to", "expand", "convert")
        )
    )


def _is_square(value: Value, numbers: Numbers) -> bool:
    if value.node is None:
        return False
    operands = value.node.inputs
    if _op(value) == "multiply":
        return operands[0] is operands[1]
    return _op(value) == "square" or (_op(value) == "power" and _is_number(operands[1], 2.0, numbers))


WITH_ONE: Final = {
    "cos": "2*np.sin(x/2)**2 for 1 - np.cos(x)",
    "exp": "np.expm1(x) for np.exp(x) - 1",
    "cosh": "2*np.sinh(x/2)**2 for np.cosh(x) - 1",
    "tanh": "2/(np.exp(2*x) + 1) for 1 - np.tanh(x)",
    "erf": "scipy.special.erfc(x) for 1 - erf(x)",
    "expit": "scipy.special.expit(-x) for 1 - expit(x)",
    "ndtr": "scipy.special.ndtr(-x) for 1 - ndtr(x)",
    "sqrt": "x/(np.sqrt(1 + x) + 1) for np.sqrt(1 + x) - 1",
    "power": "np.expm1(p*np.log1p(x)) for (1 + x)**p - 1",
    "sin": "2*np.sin((np.pi/2 - x)/2)**2 for 1 - np.sin(x)",
}
"""What to write for the difference of a function and 1."""

WITH_ITSELF: Final = {
    "sqrt": "(a - b)/(np.sqrt(a) + np.sqrt(b)) for np.sqrt(a) - np.sqrt(b)",
    "log": "np.log1p((a - b)/b) for np.log(a) - np.log(b)",
    "exp": "np.exp(b)*np.expm1(a - b) for np.exp(a) - np.exp(b)",
    "sin": "2*np.cos((a + b)/2)*np.sin((a - b)/2) for np.sin(a) - np.sin(b)",
    "cos": "-2*np.sin((a + b)/2)*np.sin((a - b)/2) for np.cos(a) - np.cos(b)",
    "tan": "np.sin(a - b)/(np.cos(a)*np.cos(b)) for np.tan(a) - np.tan(b)",
    "arctan": "np.arctan((a - b)/(1 + a*b)) for np.arctan(a) - np.arctan(b)",
    "divide": "(p*b - q*a)/(a*b) for p/a - q/b",
    "reciprocal": "(b - a)/(a*b) for 1/a - 1/b",
}
"""What to write for the difference of two results of a function."""

GENERAL: Final = (
    "nearly equal numbers are subtracted: transform the expression so that they cancel before they are rounded "
    "(multiply by the conjugate, use an identity, or a series near the point)"
)

PATHS: Final = (
    "the derivatives along several paths from here cancel, as the paths do where they meet: "
    "the remedy for that line mostly mends this one too"
)


def remedy_for(node: Node, numbers: Numbers) -> str:
    """Return what to write instead of an op that has lost digits."""
    name, operands = node.op.name, node.inputs
    if name in ("subtract", "add") and len(operands) == 2:
        plain = [_without_sign(operand) for operand in operands]
        for k in (0, 1):
            if _is_number(plain[k], 1.0, numbers) and _is_square(plain[1 - k], numbers):
                return "(1 - x)*(1 + x) for 1 - x**2"
            if _is_number(plain[k], 1.0, numbers) and _op(plain[1 - k]) in WITH_ONE:
                return WITH_ONE[_op(plain[1 - k])]
        if all(_is_square(part, numbers) for part in plain):
            return "(a - b)*(a + b) for a**2 - b**2"
        if _op(plain[0]) == _op(plain[1]) and _op(plain[0]) in WITH_ITSELF:
            return WITH_ITSELF[_op(plain[0])]
        if "sqrt" in (_op(plain[0]), _op(plain[1])):
            return "(b**2 - c)/(b + np.sqrt(c)) for b - np.sqrt(c)"
        has_square, has_quotient = (
            any(_is_square(part, numbers) for part in plain),
            "divide" in map(_op, plain),
        )
        if has_square and has_quotient:  # a mean less the square of another
            return "np.var(x), or np.mean((x - np.mean(x))**2), for np.mean(x**2) - np.mean(x)**2"
    if name == "log" and _op(operands[0]) in ("add", "subtract"):
        assert operands[0].node is not None
        if any(_is_number(_without_sign(part), 1.0, numbers) for part in operands[0].node.inputs):
            return "np.log1p(x) for np.log(1 + x)"
    if name == "log":
        return "np.log1p(x - 1) near 1, where x - 1 is known without cancellation"
    if name in ("arccos", "arcsin"):
        return "np.arctan2 of both sides of the triangle, for an angle whose cosine is near 1"
    if name == "power":
        return "np.exp(n*np.log1p(x)) for (1 + x)**n"
    if name in ("reduce_sum", "contract", "cumsum"):
        return "the terms cancel: sum differences of them, or use math.fsum"
    if isinstance(node.op, Matrix):
        return "the matrix is nearly singular: scale its rows and columns, regularise it (a ridge), or use np.linalg.lstsq with rcond"
    if name in ("sin", "cos", "tan"):
        return (
            "reduce the large argument before it is rounded: subtract multiples of the period from its terms"
        )
    return GENERAL


def _without_sign(value: Value) -> Value:
    return value.node.inputs[0] if value.node is not None and _op(value) == "negative" else value
