"""`expectation`: means over random numbers, with unbiased derivatives, also where chance decides what is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from gradtape.api.custom.rules import custom_jvp
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.recording import named, recordable_body
from gradtape.api.transforms.vmap import _Mapping
from gradtape.api.uncertainty.decisions import Decision, found_in, replayed, still
from gradtape.api.uncertainty.discrete import RULES
from gradtape.config import config
from gradtape.errors import ArgumentError, NotDifferentiableError, UnsupportedFunctionError
from gradtape.ir.graph import Value, extract
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.random.generators import _trace_around as trace_around
from gradtape.trace.random.lanes import LaneGenerator, Lanes, refuse_draws
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, flatten_with_none, unflatten

EXPLORED: Final = 0.1
"""The part of the choices among decisions that is uniform: no decision is never chosen because its importance is estimated as small."""


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
        If `samples` is not a positive integer.
    UnsupportedFunctionError
        At a call, if `function` draws from a generator that is not an argument, or in the body of a loop of `gt.scan`.
    NotDifferentiableError
        For second derivatives, if chance decides in `function`.

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
    threshold in both runs that are compared.

    References
    ----------
    Arya, Schauer, Schäfer and Rackauckas, Automatic differentiation of programs with discrete randomness, 2022 (smoothed perturbation
    analysis, pruning, coupling); Pflug, Optimization of stochastic models, 1996 (measure-valued derivatives); Fu and Hu, Conditional Monte
    Carlo, 1997.

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
    generator = rng if rng is None or isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
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
            return _with_alternatives(values, lanes)

        sample.__name__ = getattr(self._function, "__name__", "a function")
        # The mean is rolled up around; in a sample, what samples share would become elements of what they do not.
        with config.override(reroll=False):
            results, weight, changes = _Mapping(sample, 0, 0, "gt.expectation")(np.arange(size))
        if weight is not None:
            results = [
                _attached(result, np.reshape(weight, (size, *[1] * (result.ndim - 1))), change)
                for result, change in zip(results, changes, strict=True)
            ]
        return unflatten(specs[-1], [np.mean(result, axis=0) for result in results])


def _with_lanes(arguments: Any, lanes: Lanes) -> Any:
    """Return arguments whose generators draw for each sample."""
    leaves, spec = flatten_with_none(arguments)
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


def _with_alternatives(values: list[Value], lanes: Lanes) -> tuple[list[Any], Any, list[Any]]:
    """Return the results of a sample; the weight of the decision that is chosen, and by what the results change with it, or None."""
    tag = lanes.tag

    def stop(value: Value) -> bool:
        return tag not in value.tags or not value.is_made

    nodes, _ = extract(values, (), stop)
    kept = [node.outs for node in nodes]  # a node holds its outputs weakly
    present = {out for outs in kept for out in outs}
    drawn = [each for each in lanes.decisions if each.outcome in present]
    further = [part for each in drawn for part in (each.weight, each.importance)]
    ends = [*values, *[part.value for part in further if isinstance(part, Handle)]]
    every, _ = extract(ends, (), stop)
    compared, still_at = found_in(nodes, values, lanes, {})
    if not compared and not drawn:
        return list(map(Array, values)), None, []
    # Weights are computed of what is recorded again: comparisons have no derivatives there.
    ends, becomes = replayed(every, ends, still_at, {})
    now = list(map(Array, ends[: len(values)]))
    if compared:
        compared, _ = found_in(nodes, values, lanes, becomes)
    decisions = compared + [
        each._replace(weight=_again(each.weight, becomes), importance=_again(each.importance, becomes))
        for each in drawn
    ]
    chosen, chance, starts = _chosen(decisions, lanes)
    weights = np.concatenate([np.ravel(each.weight) for each in decisions])
    weight = np.take(weights, chosen)

    def run(is_above: bool) -> list[Any]:
        changes: dict[Value, Callable[[Any], Any]] = {}
        for each, start in zip(decisions, starts, strict=True):
            mask = _mask(chosen, start, each.outcome.shape)
            if is_above and each.above is None:
                continue
            other = each.above if is_above else each.other
            _change(changes, each.outcome, mask, other)
            if each.number is not None:
                at = each.threshold
                _change(changes, each.number, np.reshape(mask, each.number.shape), partial(_threshold, at))
        return list(map(Array, replayed(nodes, values, still_at, changes)[0]))

    below = run(False)
    above = run(True) if any(each.above is not None for each in decisions) else now
    is_still = still(weight) == 0.0
    changes = [
        np.where(is_still, 0.0, (low * 1.0 - high * 1.0) / chance)
        for low, high in zip(below, above, strict=True)
    ]
    del kept
    return now, weight, changes


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


def _chosen(decisions: list[Decision], lanes: Lanes) -> tuple[Any, Any, list[int]]:
    """Choose one of the outcomes of all decisions; return its number, with what probability, and where each decision begins."""
    ends = np.cumsum([each.outcome.size for each in decisions])
    starts, count = [0, *map(int, ends[:-1])], int(ends[-1])
    if count == 1:
        return 0, 1.0, starts
    sizes = np.concatenate([np.ravel(still(each.importance)) for each in decisions]) + 1e-300
    chances = (1.0 - EXPLORED) * sizes / np.sum(sizes) + EXPLORED / count
    sums = np.cumsum(chances)
    u = lanes.drawn_numbers[-1].draw()
    chosen = np.minimum(np.sum(sums <= u * sums[-1]), count - 1)
    return chosen, np.take(chances, chosen), starts


@custom_jvp
def _attached(result: Any, weight: Any, change: Any) -> Any:
    """Return the result; its derivative has the part ``change * d weight`` besides its own."""
    return result * 1.0


@_attached.defjvp
def _attached_rule(primals: Any, tangents: Any) -> Any:
    result, weight, change = primals
    moved, weight_moved, _ = tangents
    return _attached(result, weight, change), moved + weight_moved * _of_first_order(change)


@custom_jvp
def _of_first_order(x: Any) -> Any:
    """Return x, which has no derivative: it would need two decisions that change together."""
    return x * 1.0


@_of_first_order.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise NotDifferentiableError(
        "gt.expectation has no second derivatives where chance decides",
        where=user_site(),
        why="they need the difference of two decisions that change together",
        remedy="use gt.score_function, whose derivatives of all orders are unbiased; or differences of gradients",
    )
