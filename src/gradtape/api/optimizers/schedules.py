"""Schedules: learning rates as functions of the number of the step, which optimisers count from 1.

A schedule is passed as the `learning_rate` of an optimiser. The first step uses the initial rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gradtape.api.optimizers.optimizer import number
from gradtape.errors import ArgumentError
from gradtape.habits import suggests_keywords
from gradtape.trace.source.sites import user_site

Schedule: TypeAlias = Callable[[Any], Any]


@suggests_keywords
def exponential_decay(
    initial: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return a learning rate that is multiplied by `decay_rate` every `decay_steps` steps.

    Parameters
    ----------
    initial : float
        The rate of the first step.
    decay_steps : int
        The number of steps in which the rate falls by the factor `decay_rate`.
    decay_rate : float
        The factor.
    staircase : bool, default False
        Whether the rate changes only after each `decay_steps` steps, rather than at each step.

    Returns
    -------
    callable
        Takes the number of the step, from 1, and returns the rate.

    Raises
    ------
    ArgumentError, DtypeError
        For negative numbers, and for arguments that are not numbers.

    Examples
    --------
    >>> import gradtape as gt
    >>> rate = gt.optimizers.exponential_decay(0.1, decay_steps=10, decay_rate=0.5)
    >>> float(rate(1)), float(rate(11)), float(rate(21))
    (0.1, 0.05, 0.025)
    >>> optimizer = gt.optimizers.Adam(rate)
    """
    caller = "exponential_decay"
    first, factor = number(initial, "initial", caller), number(decay_rate, "decay_rate", caller)
    count = _steps(decay_steps, "decay_steps", caller)

    def rate(step: Any) -> Any:
        periods = (step - 1) / count
        return first * factor ** (np.floor(periods) if staircase else periods)

    return _named(rate, f"{caller}({initial}, {decay_steps}, {decay_rate})")


@suggests_keywords
def cosine_decay(initial: float, decay_steps: int, final: float = 0.0) -> Schedule:
    """Return a learning rate that falls from `initial` to `final` along half a period of a cosine, and stays there.

    Parameters
    ----------
    initial : float
        The rate of the first step.
    decay_steps : int
        The number of steps after which the rate is `final`.
    final : float, default 0.0
        The last rate.

    Returns
    -------
    callable
        Takes the number of the step, from 1, and returns the rate.

    Raises
    ------
    ArgumentError, DtypeError
        For negative numbers, and for arguments that are not numbers.

    Notes
    -----
    ``final + (initial - final) * (1 + cos(pi * t)) / 2`` with ``t = min((step - 1) / decay_steps, 1)``: Loshchilov and Hutter,
    "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, without restarts.

    Examples
    --------
    >>> import gradtape as gt
    >>> rate = gt.optimizers.cosine_decay(0.1, decay_steps=100)
    >>> [round(float(rate(step)), 6) for step in (1, 51, 101, 500)]
    [0.1, 0.05, 0.0, 0.0]
    """
    caller = "cosine_decay"
    first, last = number(initial, "initial", caller), number(final, "final", caller)
    count = _steps(decay_steps, "decay_steps", caller)

    def rate(step: Any) -> Any:
        return last + (first - last) * (1 + np.cos(np.pi * np.minimum((step - 1) / count, 1.0))) / 2

    return _named(rate, f"{caller}({initial}, {decay_steps}, {final})")


def piecewise_constant(boundaries: Sequence[int], rates: Sequence[float]) -> Schedule:
    """Return a learning rate that changes after given numbers of steps.

    Parameters
    ----------
    boundaries : sequence of int
        The last step of each rate but the last one, increasing.
    rates : sequence of float
        One rate more than there are boundaries.

    Returns
    -------
    callable
        Takes the number of the step, from 1, and returns the rate.

    Raises
    ------
    ArgumentError, DtypeError
        If the numbers do not match, boundaries do not increase, or rates are not positive numbers.

    Examples
    --------
    >>> import gradtape as gt
    >>> rate = gt.optimizers.piecewise_constant([100, 200], [0.1, 0.01, 0.001])
    >>> [float(rate(step)) for step in (1, 100, 101, 300)]
    [0.1, 0.1, 0.01, 0.001]
    """
    caller = "piecewise_constant"
    last_steps = np.array([_steps(boundary, "boundaries", caller) for boundary in boundaries], np.int64)
    values = np.array([number(value, "rates", caller) for value in rates])
    if len(values) != len(last_steps) + 1 or np.any(np.diff(last_steps) <= 0):
        raise ArgumentError(
            f"{caller}: {len(last_steps)} boundaries and {len(values)} rates",
            where=user_site(),
            why="the boundaries increase, and there is one rate before, between and after them",
            remedy="piecewise_constant([100, 200], [0.1, 0.01, 0.001])",
        )

    def rate(step: Any) -> Any:
        return values[np.searchsorted(last_steps, step)]

    return _named(rate, f"{caller}({boundaries}, {rates})")


def warmup(steps: int, then: float | Schedule) -> Schedule:
    """Return a learning rate that rises linearly for a number of steps, and then follows another schedule.

    Parameters
    ----------
    steps : int
        The number of steps that the rise takes; the first step uses ``1 / steps`` of the rate.
    then : float or callable
        The rate after the rise, or its schedule, whose steps are counted from the end of the rise.

    Returns
    -------
    callable
        Takes the number of the step, from 1, and returns the rate.

    Raises
    ------
    ArgumentError, DtypeError
        For numbers that are not positive, and for arguments that are not numbers.

    Examples
    --------
    >>> import gradtape as gt
    >>> rate = gt.optimizers.warmup(10, gt.optimizers.cosine_decay(0.1, 100))
    >>> [round(float(rate(step)), 6) for step in (1, 5, 10, 11, 61)]
    [0.01, 0.05, 0.1, 0.1, 0.05]
    """
    count = _steps(steps, "steps", "warmup")
    later = then if callable(then) else None
    constant = None if later else number(then, "then", "warmup")

    def rate(step: Any) -> Any:
        full = constant if later is None else later(np.maximum(step - count, 1))
        return full * np.minimum(step / count, 1.0)

    return _named(rate, f"warmup({steps}, {getattr(then, '__qualname__', then)})")


def _named(rate: Schedule, call: str) -> Schedule:
    """Let a schedule print as the call that made it."""
    rate.__qualname__ = call
    return rate


def _steps(given: Any, argument: str, caller: str) -> int:
    """Return a number of steps, checked."""
    count = number(given, argument, caller)
    if count < 1 or count != int(count):
        raise ArgumentError(
            f"{caller}: {argument} is {given!r}",
            where=user_site(),
            remedy="a positive number of steps, such as 100",
        )
    return int(count)
