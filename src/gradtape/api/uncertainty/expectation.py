"""`expectation`: means over random numbers, with unbiased derivatives, also where chance decides what is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.custom.rules import custom_jvp
from gradtape.api.operands import generator_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.recording import named, recordable_body
from gradtape.api.transforms.vmap import Mapping
from gradtape.api.uncertainty.control_variates import Known, Track, control_variate
from gradtape.api.uncertainty.decisions import (
    Decision,
    Step,
    Unseen,
    deciding_among,
    differentiated,
    found_in,
    replayed,
    still,
    unseen_in,
)
from gradtape.api.uncertainty.discrete import RULES
from gradtape.api.uncertainty.score_estimates import Steps, combined
from gradtape.api.uncertainty.steps import Control, State, steps_in
from gradtape.api.uncertainty.unrolled_loops import unroll_deciding
from gradtape.config import config
from gradtape.errors import ArgumentError, NotDifferentiableError, UnsupportedFunctionError
from gradtape.habits import suggests_keywords
from gradtape.ir.graph import Node, Value, extract
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.random.generators import trace_around
from gradtape.trace.random.lanes import LaneGenerator, Lanes, refuse_draws
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, flatten_with_none, unflatten

BY_CHANGE: Final = 0.3
"""The part of the choices that is in proportion to how much the results are expected to change."""

BY_EFFECT: Final = 0.4
"""The part that is in equal proportions to all decisions that are expected to change the results."""

COMPUTED: Final = ("weight", "importance", "has_other", "size", "ratio")
"""Attributes of decisions of discrete distributions that are computed from parameters."""

EXPLORED: Final = 0.1
"""The part of the choices among decisions that is uniform: no decision is never chosen because its importance is estimated as small."""


@suggests_keywords
def expectation(function: Callable[..., Any], samples: int = 1000, *, rng: Any = None) -> Jitted[..., Any]:
    r"""Return a function that estimates the expectation of `function` by a mean over samples, with unbiased derivatives.

    Parameters
    ----------
    function : callable
        NumPy code for one sample, which draws from generators that are its arguments: ``f(x, rng)``.
    samples : int, default 1000
        How many samples are drawn in a call.
    rng : numpy.random.Generator or seed, optional
        Passed to `function` as its argument `rng`. Each call draws new numbers from it. By default generators are arguments of the calls.

    Returns
    -------
    Jitted
        Takes the arguments of `function`, without `rng` if that is given here, and returns the mean of its results, in their
        containers. `grad`, `value_and_grad`, `jvp`, `jacobian`, tapes and the other transforms of first order apply.

    Raises
    ------
    ArgumentError
        If `samples` is not a positive integer, or `rng` is neither a generator nor a seed.
    UnsupportedFunctionError
        At a call, if `function` draws from a generator that is not an argument, or in the body of a loop of `gt.scan`.
    NotDifferentiableError
        For second derivatives, if chance decides in `function`; and for derivatives, if a decision by chance is not among those in
        Notes: ``np.sin(z) < p``, ``np.floor(u + p)``, ``rng.multinomial(n, p)``, comparisons in bodies of `while_loop` and of loops of
        more than 100 iterations.

    See Also
    --------
    score_function : Estimates with logarithms of probabilities that you write.
    vmap : How samples are computed together.

    Notes
    -----
    The derivative of a mean over samples, for fixed random numbers, is not that of the expectation if parameters change how often
    something happens: in ``np.where(rng.random() < p, a, b)``, with ``rng.poisson(rate)``, ``rng.binomial(n, p)``, ``rng.geometric(p)``
    and ``rng.choice(n, p=p)``, or if another random number is compared with a parameter. There are two parts:

    .. math:: \frac{d}{dp} E[f] = E\Big[\frac{\partial f}{\partial p}\Big] + E\Big[\sum_i w_i (f_i - f)\Big]

    In f_i the outcome of decision i is the other one, and all random numbers are the same. For ``u < r`` the weight is the density of u at
    r times dr/dp, with the sign of the outcome; for an integer k with the distribution function F it is ``-(dF(k)/dp) / P(k)``, and the
    outcome k + 1. In each sample one i is chosen at random, and its term divided by the probability of the choice: so there is
    one further run of the samples, however many decisions there are. A random number that is read in several places has its value at the
    threshold in both runs that are compared. For results of up to eight numbers the sum over all decisions is computed as well with each
    ``f_i - f`` in linear approximation, by one reverse sweep; the chosen decision corrects it (a control variate). For comparisons of
    uniform numbers and for resampling, with about 30 to 150 samples for each, the estimate is combined with that of the score function,
    from which martingales are subtracted: the outcome less its probability, or a polynomial of a draw or of what is resampled less its
    mean, times a function of the state that is fitted to other samples.

    Outcomes of `choice` whose probability is 0 are passed over: a derivative with respect to such a probability is not seen.

    References
    ----------
    Arya, Schauer, Schäfer and Rackauckas, Automatic differentiation of programs with discrete randomness, 2022 (smoothed perturbation
    analysis, pruning, coupling); Gu, Levine, Sutskever and Mnih, MuProp, 2016 (the control variate); Pflug, Optimization of stochastic
    models, 1996 (measure-valued derivatives); Fu and Hu, Conditional Monte Carlo, 1997; Henderson and Glynn, Approximating martingales for
    variance reduction in Markov process simulation, 2002.

    Examples
    --------
    Someone wins 3 with probability p, else 1. The expectation is ``1 + 2 p``:

    >>> import numpy as np, gradtape as gt
    >>> rng = np.random.default_rng(0)
    >>> def gain(p, rng):
    ...     return np.where(rng.random() < p, 3.0, 1.0)
    >>> mean = gt.expectation(gain, samples=10_000, rng=rng)
    >>> bool(np.isclose(mean(0.3), 1.6, atol=0.05))
    True
    >>> bool(np.isclose(gt.grad(mean)(0.3), 2.0))
    True
    """
    check_callable(function, "gt.expectation")
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise ArgumentError(
            f"gt.expectation: samples is {samples!r}", where=user_site(), remedy="samples=1000"
        )
    generator = None if rng is None else generator_of(rng, "gt.expectation: rng")
    mean = _Expectation(function, int(samples), generator)
    return jit_of(mean, named("expectation", function), EVERYTHING_TRACED)


class _Expectation:
    """A function and how often it is sampled; works on arrays in a recording."""

    holds_functions = True
    __slots__ = ("__weakref__", "_function", "_rng", "_samples")

    def __init__(self, function: Callable[..., Any], samples: int, rng: np.random.Generator | None) -> None:
        self._function = function
        self._samples = samples
        self._rng = rng

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace, size = trace_around(), self._samples
        specs: list[Any] = []
        unseen: list[list[tuple[int, Unseen]]] = []
        steps: list[Steps | None] = []

        if self._rng is not None:
            kwargs["rng"] = self._rng

        def sample(_: Any) -> Any:
            lanes = Lanes(size, contexts.mapped[-1], trace, RULES)
            arguments, keywords = _with_lanes((args, kwargs), lanes)
            with refuse_draws(_refusal):
                result = recordable_body(self._function)(*arguments, **keywords)
            leaves, spec = flatten(result)
            specs.append(spec)
            values = [x.value if isinstance(x, Handle) else as_value(x, "a result") for x in leaves]
            values = _unrolled(values, lanes)
            alternatives = _with_alternatives(values, lanes)
            refused = _unseen(values, lanes, alternatives.compared)
            unseen.append(refused)
            steps.append(alternatives.steps)
            return *alternatives[:4], [_parameters(each.parameters) for _, each in refused]

        sample.__name__ = getattr(self._function, "__name__", "a function")
        # The mean is rolled up around; in a sample, what samples share would become elements of what they do not.
        with config.override(reroll=False):
            results, weights, changes, known_parts, parameters = Mapping(sample, 0, 0, "gt.expectation")(
                np.arange(size)
            )
        share, scores = None, None
        if known_parts is not None:
            changes, share, scores = combined(Known(*known_parts), steps[-1], results, changes)
        if weights is not None:
            results = [
                _attached(result, np.reshape(weights, (size, *[1] * (result.ndim - 1), -1)), change)
                for result, change in zip(results, changes, strict=True)
            ]
        if scores is not None:
            results = [_attached(result, *each) for result, each in zip(results, scores, strict=True)]
        for (number, each), parameter in zip(unseen[-1], parameters, strict=True):
            results[number] = _refused(results[number], parameter, each)
        if share is None:
            return unflatten(specs[-1], [np.mean(result, axis=0) for result in results])
        return unflatten(specs[-1], [_mean(result, share) for result in results])


def _with_lanes(arguments: Any, lanes: Lanes) -> Any:
    """Return arguments whose generators draw for each sample."""
    leaves, spec = flatten_with_none(arguments)
    if any(isinstance(leaf, np.random.RandomState) for leaf in leaves):
        raise UnsupportedFunctionError(
            "gt.expectation got a RandomState",
            where=user_site(),
            why="samples are drawn by numpy.random.Generator, which replaces it in NumPy",
            remedy="pass np.random.default_rng(seed)",
        )
    return unflatten(
        spec, [LaneGenerator(x, lanes) if isinstance(x, np.random.Generator) else x for x in leaves]
    )


def _refusal() -> UnsupportedFunctionError:
    return UnsupportedFunctionError(
        "gt.expectation: the function draws from a generator that is not its argument",
        where=user_site(),
        why="all samples would have the same numbers",
        remedy="make it an argument: def f(x, rng), and gt.expectation(f, rng=rng)",
    )


class _Alternatives(NamedTuple):
    """The results of a sample, and how they change with a decision.

    Attributes
    ----------
    results : list of Array
        As they are, with the derivatives of the path.
    weights : Array or None
        Of the decision that is chosen, if there are any, or of all decisions if `known` is set.
    changes : list of Array
        By what the results change with the one that is chosen, divided by the probability of the choice; the last axis has one number.
    known : Known or None
        What is known of all decisions.
    compared : set of Node
        The comparisons among the decisions.
    steps : Steps or None
        What is the same in all samples of those of `known`.
    """

    results: list[Any]
    weights: Any
    changes: list[Any]
    known: Known | None
    compared: set[Node]
    steps: Steps | None = None


def _nodes(values: list[Value], lanes: Lanes) -> list[Node]:
    """Return what computes values of a sample."""
    tag = lanes.tag
    return extract(values, (), lambda value: tag not in value.tags or not value.is_made)[0]


def _unrolled(values: list[Value], lanes: Lanes) -> list[Value]:
    """Return results of a sample without loops, as far as chance decides in their bodies, and let the decisions be those of them."""
    while becomes := unroll_deciding(_nodes([*values, *_parts_of(lanes.decisions)], lanes), lanes):
        values = [becomes.get(value, value) for value in values]
        lanes.decisions[:] = [
            each._replace(
                outcome=becomes.get(each.outcome, each.outcome),
                **{part: _again(getattr(each, part), becomes) for part in COMPUTED},
            )
            for each in lanes.decisions
        ]
    return values


def _parts_of(decisions: Sequence[Decision]) -> list[Value]:
    """Return what decisions are computed from."""
    parts = [getattr(each, part) for each in decisions for part in COMPUTED]
    return [part.value for part in parts if isinstance(part, Handle)]


def _unseen(values: list[Value], lanes: Lanes, compared: set[Node]) -> list[tuple[int, Unseen]]:
    """Return the results, by number, that depend on decisions whose part in the derivative is not computed, each with one of them."""
    nodes = _nodes(values, lanes)
    reasons: dict[Value, list[Unseen]] = {}
    at: dict[Node, list[Unseen]] = {}
    for each in unseen_in(nodes, compared, lanes):
        if each.node is None:
            reasons[each.outs[0]] = [each]
        else:
            at.setdefault(each.node, []).append(each)
    for node in nodes:
        every = [each for value in node.inputs for each in reasons.get(value, ())] + at.get(node, [])
        if every:
            distinct = list({id(each): each for each in every}.values())
            reasons.update((out, distinct) for out in node.outs)
    return [(number, each) for number, value in enumerate(values) for each in reasons.get(value, ())]


def _parameters(parameters: Sequence[Value]) -> Any:
    """Return one number that depends on parameters."""
    return sum(np.sum(np.real(Array(value))) for value in parameters)


def _refused(result: Any, parameter: Any, unseen: Unseen) -> Any:
    """Return a result whose derivative with respect to a parameter is an error."""

    @custom_jvp
    def moved(x: Any) -> Any:
        return x * 1.0

    @moved.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise NotDifferentiableError(
            unseen.message,
            where=unseen.site,
            why=unseen.why,
            remedy="compare rng.random() or rng.normal() with the parameter, and write a Python loop in place of gt.scan, gt.fori_loop or "
            "gt.while_loop; draw from rng.choice(p=...), rng.binomial or rng.poisson; use gt.score_function; "
            "gt.stop_gradient(x) states that this part is meant to have no derivative",
        )

    weight = np.reshape(moved(parameter), (-1, *[1] * (result.ndim - 1)))
    return _attached(result, weight[..., None], np.zeros((*result.shape, 1)))


def _with_alternatives(values: list[Value], lanes: Lanes) -> _Alternatives:
    """Return the results of a sample, and how they change with the decision that is chosen."""
    nodes = _nodes(values, lanes)
    kept_outputs = [node.outs for node in nodes]  # a node holds its outputs weakly
    present = {out for outs in kept_outputs for out in outs}
    drawn = [each for each in lanes.decisions if each.outcome in present]
    ends = [*values, *_parts_of(drawn)]
    every = _nodes(ends, lanes)
    compared, still_at = found_in(nodes, values, lanes, {})
    if not compared and not drawn:
        return _Alternatives(list(map(Array, values)), None, [], None, still_at)
    # Weights are computed of what is recorded again: comparisons have no derivatives there.
    ends, becomes = replayed(every, ends, still_at, {})
    now = list(map(Array, ends[: len(values)]))
    if compared:
        compared, _ = found_in(nodes, values, lanes, becomes)
    decisions = compared + [
        each._replace(**{part: _again(getattr(each, part), becomes) for part in COMPUTED}) for each in drawn
    ]
    decisions = sorted(differentiated(decisions), key=lambda each: each.step is None)
    steps, controls = (
        steps_in(nodes, values, lanes, becomes, decisions)
        if any(each.step or each.search for each in decisions)
        else ([], [])
    )
    for number, step, _ in steps:
        if number is not None:
            felt = np.where(step.is_felt, decisions[number].ratio, 0.0)
            decisions[number] = decisions[number]._replace(ratio=felt)
    control_variates = None
    if sum(each.outcome.size for each in decisions) > 1:
        control_variates = control_variate(
            nodes,
            values,
            still_at,
            drawn,
            [each.outcome for each in decisions],
            partial(deciding_among, nodes, values, lanes),
        )
    chosen, chance, starts = _chosen(decisions, lanes, control_variates)

    def run(is_above: bool) -> list[Any]:
        changes: dict[Value, Callable[[Any], Any]] = {}
        for each, start in zip(decisions, starts, strict=True):
            mask = _mask(chosen, start, each.outcome.shape)
            other = each.above if is_above else each.other
            if other is None:
                continue
            _change(changes, each.outcome, mask, other)
            if each.number is not None:
                at = each.threshold
                _change(changes, each.number, np.reshape(mask, each.number.shape), partial(_threshold, at))
        return list(map(Array, replayed(nodes, values, still_at, changes)[0]))

    below = run(False)
    above = run(True) if any(each.above is not None for each in decisions) else now
    possible = _of_all(decisions, "has_other")
    has_other = np.take(possible, chosen)
    changes = [
        np.where(has_other, (low * 1.0 - high * 1.0) / chance, 0.0)[..., None]
        for low, high in zip(below, above, strict=True)
    ]
    del kept_outputs
    weights = _of_all(decisions, "weight")
    if control_variates is None:
        return _Alternatives(now, weights[chosen, None], changes, None, still_at)
    inverse = np.where(has_other, 1.0 / chance, 0.0)
    sizes = [each.importance if each.size is None else each.size for each in decisions]
    ratio = _of_all(decisions, "ratio") if any(each.ratio is not None for each in decisions) else None
    track, of_steps = _of_steps(steps, controls) if steps or controls else (None, None)
    of_all = Known(control_variates, chosen, inverse, _joined(decisions, sizes), ratio, track)
    searches = [each.search for each in decisions if each.search is not None]
    if searches and track is not None:
        of_all = of_all._replace(
            is_scored=_joined(
                decisions, [each.search is not None and each.search.is_likely for each in decisions]
            ),
            log_chance=sum(np.sum(search.log_chances) for search in searches),
            score_size=sum(np.sum(search.sizes) for search in searches),
        )
    return _Alternatives(now, weights, changes, of_all, still_at, of_steps)


def _of_steps(
    decided_steps: Sequence[tuple[int | None, Step, State]], controls: Sequence[Control]
) -> tuple[Track, Steps]:
    """Return the steps of the first decisions, then of further comparisons, and then of controls; and what is the same in all samples."""
    ordered = sorted(decided_steps, key=lambda each: _position(each[0]))
    every = [(step.increment, state.shared, state.own) for _, step, state in ordered]
    every += [(x, each.shared, each.own) for each in controls for x in each.functions]
    increments = [increment for increment, *_ in every]
    shared, own_variates = [
        [
            [part[number_of_state] if number_of_state < len(part) else 0.0 for part in parts]
            for number_of_state in range(max(map(len, parts)))
        ]
        for parts in zip(*[(shared, own_variates) for _, shared, own_variates in every], strict=True)
    ]
    decisions = sum(number is not None for number, *_ in ordered)

    def of_elements(parts: Sequence[Any]) -> Any:
        pairs = zip(parts, increments[:decisions], strict=False)
        flat = [np.ravel(np.broadcast_to(x, np.shape(like))) for x, like in pairs]
        return np.concatenate(flat) if flat else np.zeros(0)

    track = Track(
        np.stack([np.sum(x) for x in increments]),
        [np.stack([np.sum(x * y) for x, y in zip(increments, parts, strict=True)]) for parts in own_variates],
        list(map(np.stack, shared)),
        list(map(of_elements, own_variates)),
    )
    sizes = [math.prod(np.shape(x)) for x in increments[:decisions]]
    return track, Steps(len(every), sizes, len(every) - len(ordered))


def _position(number: int | None) -> float:
    """Return where the steps of decisions stand: those of further comparisons are the last."""
    return math.inf if number is None else number


def _of_all(decisions: list[Decision], part: str) -> Any:
    """Return an attribute of all decisions as a vector; 0 where it is None."""
    values = [getattr(each, part) for each in decisions]
    return _joined(decisions, [0.0 if x is None else x for x in values])


def _joined(decisions: list[Decision], parts: list[Any]) -> Any:
    pairs = zip(decisions, parts, strict=True)
    return np.concatenate([np.ravel(np.broadcast_to(x, each.outcome.shape)) for each, x in pairs])


def _again(x: Any, becomes: dict[Value, Value]) -> Any:
    return Array(becomes.get(x.value, x.value)) if isinstance(x, Handle) else x


def _threshold(at: Any, _: Any) -> Any:
    return at


def _change(changes: dict[Value, Any], value: Value, mask: Any, other: Callable[[Any], Any]) -> None:
    before = changes.get(value)

    def change(x: Any) -> Any:
        x = x if before is None else before(x)
        return np.where(mask, other(x), x).astype(x.dtype)

    changes[value] = change


def _mask(chosen: Any, start: int, shape: tuple[int, ...]) -> Any:
    if not shape:
        return chosen == start
    return chosen == start + np.arange(int(np.prod(shape))).reshape(shape)


def _chosen(decisions: list[Decision], lanes: Lanes, changes: list[Any] | None) -> tuple[Any, Any, list[int]]:
    """Choose one of the outcomes of all decisions; return its number, with what probability, and where each decision begins.

    Parameters
    ----------
    decisions : list of Decision
    lanes : Lanes
        The samples.
    changes : list of Array or None
        About how much each result changes with each decision.
    """
    ends = np.cumsum([each.outcome.size for each in decisions])
    starts, count = [0, *map(int, ends[:-1])], int(ends[-1])
    if count == 1:
        return 0, 1.0, starts
    sizes = still(_of_all(decisions, "importance"))
    chances = EXPLORED / count
    if changes:
        change_sizes = sum(np.sum(np.reshape(np.abs(each), (-1, count)), axis=0) for each in changes)
        chances = (
            chances
            + BY_CHANGE * _parts(sizes * change_sizes)
            + BY_EFFECT * _parts(sizes * (change_sizes > 0.0))
        )
    chances = chances + (1.0 - EXPLORED - (BY_CHANGE + BY_EFFECT) * bool(changes)) * _parts(sizes)
    sums = np.cumsum(chances)
    u = lanes.drawn_numbers[-1].draw()
    chosen = np.minimum(np.sum(sums <= u * sums[-1]), count - 1)
    return chosen, np.take(chances, chosen), starts


def _parts(x: Any) -> Any:
    """Return numbers as parts of their sum, with one quotient."""
    return (x + 1e-300) * (1.0 / np.sum(x + 1e-300))


@custom_jvp
def _mean(results: Any, parts: Any) -> Any:
    """Return the mean over samples; its derivative is the sum of the samples' derivatives times `parts`."""
    return np.mean(results, axis=0)


@_mean.defjvp
def _mean_rule(primals: Any, tangents: Any) -> Any:
    results, parts = primals
    return _mean(results, parts), np.tensordot(still(parts), tangents[0], axes=1)


@custom_jvp
def _attached(result: Any, weight: Any, change: Any) -> Any:
    """Return the result; its derivative is its own, and the sum of ``change * d weight`` over the last axis."""
    return result * 1.0


@_attached.defjvp
def _attached_rule(primals: Any, tangents: Any) -> Any:
    result, weight, change = primals
    moved, weight_moved, _ = tangents
    by_decisions = np.sum(weight_moved * _of_first_order(change, weight), axis=-1)
    return _attached(result, weight, change), moved + by_decisions


@custom_jvp
def _of_first_order(change: Any, weight: Any) -> Any:
    """Return a change, whose derivative is refused with respect to all that the weight depends on: that changes how often it occurs."""
    return change * 1.0


@_of_first_order.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise NotDifferentiableError(
        "gt.expectation has no second derivatives where chance decides",
        where=user_site(),
        why="they need the difference of two decisions that change together",
        remedy="compare with gt.stop_gradient(p), and multiply the result by gt.score_function of the logarithm of the outcomes' "
        "probability: its derivatives of all orders are unbiased",
    )
