"""Profile likelihoods: the minimum over all unknowns but one, as a function of that one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.op import NDArray
from gradtape.trace.source.sites import user_site

NEWTON_STEPS: Final = 50
HALVINGS: Final = 30
CONVERGED: Final = 1e-11
"""The decrease that Newton's step promises, as a part of the deviance that is looked for, at which the minimum is found."""

EXPANSIONS: Final = 12
"""How often the distance from the estimate is doubled before a side of a profile counts as flat."""


class Objective(NamedTuple):
    """A function of a vector with its derivatives."""

    value_and_grad: Callable[[NDArray], tuple[Any, NDArray]]
    hessian: Callable[[NDArray], NDArray]


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """The profile likelihood of one number.

    Attributes
    ----------
    name : str
        The number, as one would write it.
    estimate : float
        Where the deviance is 0.
    interval : tuple of float
        Where it reaches the quantile; inf where it never does.
    level : float
        The coverage of the interval.
    values : ndarray of shape (points,)
        Values of the number at which the minimum was computed, in order.
    deviance : ndarray of shape (points,)
        Twice the objective's minimum over all other unknowns, less that at the estimate, in units of the residuals' variance.
    x : ndarray of shape (points, unknowns)
        All unknowns there, as vectors.
    """

    name: str
    estimate: float
    interval: tuple[float, float]
    level: float
    values: NDArray
    deviance: NDArray
    x: NDArray

    def __repr__(self) -> str:
        low, high = self.interval
        return f"{self.name or 'x'} = {self.estimate:.6g} ({100 * self.level:g} %: {low:.6g} to {high:.6g})"


def profile_of(
    objective: Objective,
    best: NDArray,
    position: int,
    error: float,
    threshold: float,
    bounds: Any,
    name: str,
    level: float,
) -> Profile:
    """Return the profile of the number at a position.

    Parameters
    ----------
    objective : Objective
        What was minimised: a negative log likelihood.
    best : ndarray
        Its minimum.
    position : int
        Of the number in `best`.
    error : float
        Its standard error, the first step.
    threshold : float
        The quantile of the deviance.
    bounds : scipy.optimize.Bounds, list of pairs or None
        Of the unknowns.
    name : str
        The number's.
    level : float
        The coverage.

    Notes
    -----
    The minimum over the others moves with the number: by the implicit function theorem its derivative is ``-inv(H_oo) @ H_ok``. That
    step predicts the next minimum, and Newton's method corrects it. D. M. Bates, D. G. Watts, "Nonlinear Regression Analysis and Its
    Applications", 1988, section 6.1.
    """
    path = _Path(objective, best, position, threshold, bounds)
    ends = tuple(path.end(sign, error) for sign in (-1, 1))
    order = sorted(path.points)
    deviances = np.array([path.deviance(value) for value in order])
    return Profile(
        name,
        float(best[position]),
        (float(ends[0]), float(ends[1])),
        level,
        np.array(order),
        2 * deviances,
        np.stack([path.points[value][0] for value in order]),
    )


class _Path:
    """The minima over the others, along one number."""

    def __init__(
        self, objective: Objective, best: NDArray, position: int, threshold: float, bounds: Any
    ) -> None:
        self._objective, self._position, self._threshold = objective, position, threshold
        self._others = np.flatnonzero(np.arange(len(best)) != position)
        self._bounds = bound_pairs(bounds, len(best))
        self._best = float(best[position])
        self._minimum = float(objective.value_and_grad(best)[0])
        self.points: dict[float, tuple[NDArray, float]] = {self._best: (best, self._minimum)}

    def deviance(self, value: float) -> float:
        """Return by how much the minimum over the others exceeds that at the estimate."""
        if value not in self.points:
            nearest = min(self.points, key=lambda known: abs(known - value))
            self.points[value] = self._minimised(self._predicted(self.points[nearest][0], value))
        return self.points[value][1] - self._minimum

    def end(self, sign: int, error: float) -> float:
        """Return where the deviance reaches the threshold on one side: the bound, or inf, if it does not."""
        optimize: Any = importlib.import_module("scipy.optimize")
        limit = self._bounds[self._position, 0 if sign < 0 else 1]
        inner, step = self._best, sqrt(self._threshold) * error or max(1.0, abs(self._best)) * 0.1

        def excess(value: float) -> float:  # nearly linear in the number
            return sqrt(max(0.0, 2 * self.deviance(value))) - sqrt(self._threshold)

        for _ in range(EXPANSIONS):
            outer = self._best + sign * step
            if sign * (outer - limit) >= 0:
                outer = limit
            if not np.isfinite(excess(outer)):
                step = abs(outer - inner) / 2 + abs(inner - self._best)
                continue
            if excess(outer) >= 0:
                return float(
                    optimize.brentq(excess, inner, outer, xtol=1e-10 * abs(outer - inner), rtol=1e-12)
                )
            if outer == limit:
                return float(limit)
            inner, step = outer, 2 * step
        return sign * inf

    def _predicted(self, point: NDArray, value: float) -> NDArray:
        k, others = self._position, self._others
        predicted = point.copy()
        predicted[k] = value
        if len(others):
            curves = self._objective.hessian(point)
            slope = np.linalg.lstsq(curves[np.ix_(others, others)], -curves[others, k], rcond=None)[0]
            predicted[others] += slope * (value - point[k])
        predicted = np.clip(predicted, self._bounds[:, 0], self._bounds[:, 1])
        return (
            predicted
            if np.isfinite(self._objective.value_and_grad(predicted)[0])
            else np.append(point[:k], [value, *point[k + 1 :]])
        )

    def _minimised(self, point: NDArray) -> tuple[NDArray, float]:
        """Return the minimum over the others from a point near it, and the objective there."""
        others = self._others
        if not len(others):
            return point, float(self._objective.value_and_grad(point)[0])
        if np.any(np.isfinite(self._bounds[others])):
            return self._minimised_in_bounds(point)
        value, slopes = self._objective.value_and_grad(point)
        for _ in range(NEWTON_STEPS):
            curves = self._objective.hessian(point)[np.ix_(others, others)]
            eigenvalues, vectors = np.linalg.eigh(curves)
            eigenvalues = np.maximum(np.abs(eigenvalues), 1e-14 * np.max(np.abs(eigenvalues), initial=1e-300))
            step = -(vectors / eigenvalues) @ (vectors.T @ slopes[others])
            promised = -float(slopes[others] @ step) / 2
            if not promised > CONVERGED * self._threshold:
                break
            for halving in range(HALVINGS):
                trial = point.copy()
                trial[others] += step * 0.5**halving
                tried, tried_slopes = self._objective.value_and_grad(trial)
                if tried <= value - 1e-4 * promised * 0.5**halving:
                    break
            else:
                break
            point, value, slopes = trial, tried, tried_slopes
        else:
            _warn_not_converged()
        return point, float(value)

    def _minimised_in_bounds(self, point: NDArray) -> tuple[NDArray, float]:
        optimize: Any = importlib.import_module("scipy.optimize")
        others = self._others

        def of_others(part: NDArray) -> tuple[float, NDArray]:
            whole = point.copy()
            whole[others] = part
            value, slopes = self._objective.value_and_grad(whole)
            return float(value), np.asarray(slopes)[others]

        found = optimize.minimize(
            of_others,
            point[others],
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds[others],
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
        )
        whole = point.copy()
        whole[others] = found.x
        return whole, float(found.fun)


def _warn_not_converged() -> None:
    warn(
        GradtapeWarning,
        "uncertainty.profile: a minimum over the other unknowns is not found",
        where=user_site(),
        why=f"Newton's method has taken {NEWTON_STEPS} steps",
        remedy="scale the unknowns to numbers near 1, or give them bounds",
    )


def bound_pairs(bounds: Any, count: int) -> NDArray:
    """Return the bounds of unknowns as rows of two numbers, infinite where there is none."""
    if bounds is None:
        return np.tile([-inf, inf], (count, 1))
    if isinstance(bounds, list):
        pairs = [(-inf if low is None else low, inf if high is None else high) for low, high in bounds]
        return np.array(pairs, float)
    return np.stack(np.broadcast_arrays(bounds.lb, bounds.ub, np.zeros(count))[:2], axis=1).astype(float)
