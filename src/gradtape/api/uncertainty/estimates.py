"""`uncertainty`: covariance, standard errors and confidence intervals of a fit."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Final, Literal, Self

import numpy as np

from gradtape.api.solvers.nested import (
    Program,
    Unknowns,
    compiled_hessian,
    compiled_value_and_grad,
    nested,
    vector_of,
)
from gradtape.api.solvers.optimality import NEAR
from gradtape.api.uncertainty.profiles import Objective, Profile, bound_pairs, profile_of
from gradtape.api.uncertainty.propagation import Propagated, names_of, propagate
from gradtape.api.uncertainty.robust_losses import RobustLoss, sandwich
from gradtape.errors import ArgumentError, SingularJacobianError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.op import NDArray
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten

Information = Literal["expected", "observed"]

SINGULAR: Final = 1e-13
"""The smallest eigenvalue of an information matrix with a diagonal of ones from which it has an inverse with digits left."""

SHOWN: Final = 20
"""How many unknowns a table shows."""


class Fit:
    """The origin of a result's uncertainty: the function that was minimised. It is not pickled with the result.

    Parameters
    ----------
    function : callable
        The user's.
    unknowns : Unknowns
        The structure of its unknowns.
    args : tuple
        Its further arguments.
    flat : callable
        ``flat(function, x, *args) -> number``: the objective.
    bounds : scipy.optimize.Bounds or None
        Of the unknowns, as a vector.
    refused : str
        Why there is no covariance; empty if there is one.
    loss : RobustLoss or None
        That of the residuals; None for half of their squares.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        unknowns: Unknowns,
        args: tuple[Any, ...],
        flat: Callable[..., Any],
        bounds: Any = None,
        refused: str = "",
        loss: RobustLoss | None = None,
    ) -> None:
        self._program, self._args = Program(function, unknowns, flat), args
        self.bounds, self.refused, self.loss = bounds, refused, loss

    def __reduce__(self) -> tuple[Any, ...]:
        return _forgotten, ()

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def objective(self, scale: float = 1.0) -> Objective:
        """Return the objective of a vector, divided by a scale, with its derivatives."""
        slopes, curves = (
            self._program.compiled(compiled_value_and_grad),
            self._program.compiled(compiled_hessian),
        )

        def value_and_grad(x: NDArray) -> tuple[float, NDArray]:
            value, gradient = slopes(x, *self._args)
            return float(value) / scale, gradient / scale

        return Objective(value_and_grad, lambda x: curves(x, *self._args) / scale)


def _forgotten() -> None:
    return None


FIT: Final = "_gradtape_fit"
"""The attribute of a result, which is a dict whose attributes are not among its items."""


def remember(result: Any, fit: Fit) -> Any:
    """Attach to a result what was minimised, and return it."""
    object.__setattr__(result, FIT, fit)
    return result


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """What `gradtape.scipy.uncertainty` returns. It prints as a table.

    Attributes
    ----------
    x : nest of ndarray
        The estimates, in their containers.
    covariance : ndarray
        A row and a column for each number of `x`, in order; zeros for one that stands at a bound.
    standard_error : nest of ndarray
        The square roots of its diagonal.
    interval : tuple of two nests
        Lower and upper ends of the confidence intervals: estimate -/+ quantile times standard error.
    level : float
        Their coverage.
    degrees_of_freedom : float
        Of Student's distribution, whose quantile is used; inf: the normal distribution.
    information : {"expected", "observed"}
        How the covariance was computed.
    """

    x: Any
    covariance: NDArray
    standard_error: Any
    interval: tuple[Any, Any]
    level: float
    degrees_of_freedom: float
    information: Information
    _fit: Fit | None = None
    _scale: float = 1.0

    @property
    def correlation(self) -> NDArray:
        """The covariance divided by the standard errors; NaN where one is 0."""
        scale = np.sqrt(np.diagonal(self.covariance))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.covariance / (scale[:, None] * scale))

    def propagate(self, f: Callable[..., Any], **options: Any) -> Propagated:
        """Return mean and covariance of a function of the estimates, by `gradtape.propagate`, which takes the options.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> fit = gt.scipy.least_squares(lambda x: x - np.array([1.0, 2.0, 6.0]), 0.0)
        >>> gt.scipy.uncertainty(fit).propagate(lambda x: x**2).standard_deviation.round(4)
        np.float64(9.1652)
        """
        return propagate(f, self.x, self.covariance, **options)

    def region(
        self, first: int | str, second: int | str, level: float | None = None, points: int = 100
    ) -> NDArray:
        """Return the border of the joint confidence region of two numbers: an ellipse, as an array of shape (points, 2).

        Parameters
        ----------
        first, second : int or str
            Two numbers of `x`: positions in order, or names as the table prints them ("rate" for ``['rate']``).
        level : float, optional
            Its coverage; by default that of the intervals.
        points : int
            How many points.
        """
        rows = [self._position(first), self._position(second)]
        stats: Any = importlib.import_module("scipy.stats")
        level = self.level if level is None else level
        dof = self.degrees_of_freedom
        radius = stats.chi2.ppf(level, 2) if dof == inf else 2 * stats.f.ppf(level, 2, dof)
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(rows, rows)])
        angles = np.linspace(0, 2 * np.pi, points)
        circle = np.stack([np.cos(angles), np.sin(angles)])
        axes = vectors * np.sqrt(np.maximum(values, 0) * radius)
        return np.asarray(vector_of(self.x)[rows] + (axes @ circle).T)

    def profile(self, number: int | str, level: float | None = None) -> Profile:
        """Return the profile likelihood of a number: the minimum over all others, as a function of this one.

        Parameters
        ----------
        number : int or str
            As for `region`.
        level : float, optional
            The coverage of its interval; by default that of the intervals.

        Returns
        -------
        Profile
            Its `interval` needs no symmetry of the likelihood, as that of the standard errors does.

        Raises
        ------
        ArgumentError
            If the result is not one of `gradtape.scipy.least_squares` or `minimize`, so that the function is not known; for robust
            losses, whose deviance has no known distribution.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> t = np.linspace(0.0, 4.0, 9)
        >>> y = 2 * np.exp(-0.7 * t) + np.array([3, -1, 2, -2, 1, 0, -1, 2, -2]) / 50
        >>> fit = gt.scipy.least_squares(lambda x: x["height"] * np.exp(-x["rate"] * t) - y, {"height": 1.0, "rate": 1.0})
        >>> print(gt.scipy.uncertainty(fit).profile("rate"))
        ['rate'] = 0.716857 (95 %: 0.673693 to 0.762453)
        """
        position = self._position(number)
        if self._fit is None:
            raise ArgumentError(
                "uncertainty.profile: the function that was minimised is not known",
                where=user_site(),
                why="the result is SciPy's own, was pickled, or is the pair that curve_fit returns",
                remedy="fit by gt.scipy.least_squares or gt.scipy.minimize",
            )
        if self._fit.loss is not None:
            raise ArgumentError(
                "uncertainty.profile: there is no profile likelihood of a fit with a robust loss",
                where=user_site(),
                why="the loss is not a likelihood of the data, so its deviance has no chi-square distribution",
                remedy='use the interval of the standard errors, or fit with loss="linear"',
            )
        level = self.level if level is None else level
        quantile = _quantile(level, self.degrees_of_freedom) ** 2
        best = vector_of(self.x)
        error = sqrt(self.covariance[position, position])
        return profile_of(
            self._fit.objective(self._scale),
            best,
            position,
            error,
            quantile,
            self._fit.bounds,
            names_of(self.x)[position],
            level,
        )

    def _position(self, number: int | str) -> int:
        names = names_of(self.x)
        if isinstance(number, str):
            number = next((k for k, name in enumerate(names) if name in (number, f"[{number!r}]")), number)
        if isinstance(number, str) or not -len(names) <= number < len(names):
            raise ArgumentError(
                f"uncertainty: x has no number {number!r}",
                where=user_site(),
                remedy=f"choose a position below {len(names)}, or one of {', '.join(name or 'x' for name in names[:8])}",
            )
        return number % len(names)

    def __repr__(self) -> str:
        names = names_of(self.x)
        columns = [vector_of(part) for part in (self.x, self.standard_error, *self.interval)]
        titles = ("estimate", "± std error", f"{100 * self.level:g} % from", "to")
        width = max(map(len, names[:SHOWN]), default=0)
        lines = [f"{'':{width}}" + "".join(f"  {title:>13}" for title in titles)]
        for row, name in enumerate(names[:SHOWN]):
            bound = "  at its bound" if columns[1][row] == 0 else ""
            lines.append(f"{name:{width}}" + "".join(f"  {column[row]:13.6g}" for column in columns) + bound)
        if len(names) > SHOWN:
            lines.append(f"... and {len(names) - SHOWN} more")
        return "\n".join(lines)


@suggests_keywords
def uncertainty(
    result: Any,
    *,
    level: float = 0.95,
    information: Information | None = None,
    absolute: bool = False,
) -> Uncertainty:
    """Return covariance, standard errors and confidence intervals of a fit.

    Parameters
    ----------
    result : scipy.optimize.OptimizeResult, or pair (popt, pcov)
        The result of `least_squares`, `minimize` or `curve_fit` of this module, or of SciPy's own `least_squares` or `curve_fit`.
        `minimize` must have minimised a negative log likelihood, or a negative log posterior.
    level : float
        The coverage of the intervals.
    information : {"expected", "observed"}, optional
        "expected": J'J with the Jacobian J of the residuals, the default for `least_squares`. "observed": the Hessian of the minimised
        function at the estimate, computed by gradtape; the default, and the only choice, for `minimize`.
    absolute : bool
        Whether the residuals are divided by their known standard deviations. By default their variance is estimated: the sum of
        squares divided by the degrees of freedom. Not for robust losses, whose covariance is estimated from the residuals.

    Returns
    -------
    Uncertainty
        With `covariance`, `standard_error`, `interval`, `correlation`, and the methods `profile`, `region` and `propagate`. It prints as a
        table.

    Raises
    ------
    SingularJacobianError
        If the data do not determine all unknowns. The error names a combination that remains undetermined.
    ArgumentError
        If the result is not a minimum; for constraints, with which the covariance is another one.

    See Also
    --------
    gradtape.propagate : Errors of a function of uncertain inputs.

    Notes
    -----
    Unknowns at a bound are constants. The covariance is the inverse of the information (R. A. Fisher, "Theory of Statistical
    Estimation", 1925); of the two, B. Efron and D. V. Hinkley ("Assessing the Accuracy of the Maximum Likelihood Estimator", 1978) prefer
    the observed one.

    With a robust loss of `least_squares` it is the sandwich ``inv(A) @ B @ inv(A) * m / (m - n)`` for m residuals and n unknowns: A is the
    Hessian of the minimised sum (without the curvature of the model for the expected information), and B the sum of the outer products
    of the gradients of its terms (P. J. Huber, "The Behavior of Maximum Likelihood Estimates under Nonstandard Conditions", 1967). The
    factor is that of J. G. MacKinnon and H. White, "Some Heteroskedasticity-Consistent Covariance Matrix Estimators with Improved Finite
    Sample Properties", 1985.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> t = np.linspace(0.0, 4.0, 9)
    >>> y = 2 * np.exp(-0.7 * t) + np.array([3, -1, 2, -2, 1, 0, -1, 2, -2]) / 50
    >>> fit = gt.scipy.least_squares(lambda x: x["height"] * np.exp(-x["rate"] * t) - y, {"height": 1.0, "rate": 1.0})
    >>> gt.scipy.uncertainty(fit)
                     estimate    ± std error      95 % from             to
    ['height']        2.04439      0.0308951        1.97134        2.11745
    ['rate']         0.716857      0.0186723       0.672704        0.76101
    """
    if not 0 < level < 1:
        raise ArgumentError(
            f"gt.scipy.uncertainty: level is {level!r}", where=user_site(), remedy="level=0.95 for 95 %"
        )
    if information not in (None, "expected", "observed"):
        raise ArgumentError(
            f"gt.scipy.uncertainty: unknown information {information!r}",
            where=user_site(),
            remedy='information="expected" or "observed"',
        )
    if isinstance(result, tuple) and len(result) in (2, 5):
        best, covariance = result[:2]
        return _made(best, np.asarray(covariance, float), level, inf, information or "expected", None, 1.0)
    fit = getattr(result, "__dict__", {}).get(FIT)
    if isinstance(result, dict) and {"x", "jac", "fun", "cost"} <= result.keys():
        return _of_least_squares(result, fit, level, information or "expected", absolute)
    if fit is None:
        raise ArgumentError(
            f"gt.scipy.uncertainty got {kind_of(result)}, which does not hold the minimised function",
            where=user_site(),
            remedy="pass what gt.scipy.minimize, least_squares or curve_fit returned (a pickled copy does not hold the function)",
        )
    if information == "expected":
        raise ArgumentError(
            "gt.scipy.uncertainty: a result of minimize has no expected information",
            where=user_site(),
            why="it is an expectation over data, and minimize does not know their distribution",
            remedy='information="observed", or gt.scipy.least_squares for residuals',
        )
    _refuse(fit)
    best = vector_of(result["x"])
    objective = fit.objective()
    information_matrix = objective.hessian(best)
    slopes = np.asarray(objective.value_and_grad(best)[1])
    free = _free(best, bound_pairs(fit.bounds, len(best)), slopes, np.diagonal(information_matrix))
    matrix = _inverse(information_matrix, free, names_of(result["x"]))
    return _made(result["x"], matrix, level, inf, "observed", fit, 1.0)


def _refuse(fit: Fit | None) -> None:
    if fit is not None and fit.refused:
        raise ArgumentError(
            f"gt.scipy.uncertainty: there is no covariance of a fit with {fit.refused}",
            where=user_site(),
            why="the inverse of the information is the covariance of an unconstrained fit of a likelihood",
            remedy="fit without, or resample the data",
        )


def _of_least_squares(
    result: Any, fit: Fit | None, level: float, information: Information, absolute: bool
) -> Uncertainty:
    _refuse(fit)
    best, residuals = vector_of(result["x"]), np.ravel(result["fun"])
    loss = None if fit is None else fit.loss
    _check_loss(result, residuals, fit, absolute)
    free = np.ravel(result.get("active_mask", np.zeros(len(best)))) == 0
    dof = inf if absolute else len(residuals) - int(np.sum(free))
    if dof <= 0:
        raise ArgumentError(
            f"gt.scipy.uncertainty: {len(residuals)} residuals leave no degree of freedom for {int(np.sum(free))} unknowns",
            where=user_site(),
            why="the variance is estimated from the residuals, which needs more residuals than unknowns",
            remedy="absolute=True where the residuals are divided by their standard deviations",
        )
    if information == "observed":
        if fit is None:
            raise ArgumentError(
                "gt.scipy.uncertainty: the residuals are not known as a function",
                where=user_site(),
                why="the result is SciPy's own, or was pickled",
                remedy='information="expected", or gt.scipy.least_squares',
            )
        matrix = fit.objective().hessian(best)
    slopes = result["jac"]
    slopes = slopes.toarray() if hasattr(slopes, "toarray") else np.asarray(slopes)
    if loss is None:
        matrix = slopes.T @ slopes if information == "expected" else matrix
        variance = 1.0 if absolute else float(np.sum(residuals**2)) / dof
        covariance = variance * _inverse(matrix, free, names_of(result["x"]))
    else:
        parts, variance = sandwich(loss, residuals, slopes), 1.0
        matrix = parts.bread if information == "expected" else matrix
        inverse = _inverse(matrix, free, names_of(result["x"]))
        covariance = inverse @ parts.meat @ inverse * (len(residuals) / dof)
    return _made(result["x"], covariance, level, dof, information, fit, variance)


def _check_loss(result: Any, residuals: NDArray, fit: Fit | None, absolute: bool) -> None:
    """Raise ArgumentError if a robust loss is not known, or goes with residuals of known variance."""
    if fit is None and not np.isclose(result["cost"], np.sum(residuals**2) / 2, rtol=1e-6, atol=0.0):
        raise ArgumentError(
            "gt.scipy.uncertainty: the loss of the fit is not known",
            where=user_site(),
            why="the result has another cost than half of the sum of squares, and is SciPy's own or was pickled",
            remedy="fit by gt.scipy.least_squares, which takes the same loss and f_scale",
        )
    if absolute and fit is not None and fit.loss is not None:
        raise ArgumentError(
            "gt.scipy.uncertainty: absolute=True is not for a fit with a robust loss",
            where=user_site(),
            why="the covariance of such a fit is estimated from the residuals, whatever their standard deviations",
            remedy="omit absolute",
        )


def _made(
    x: Any,
    covariance: NDArray,
    level: float,
    dof: float,
    information: Information,
    fit: Fit | None,
    scale: float,
) -> Uncertainty:
    leaves, spec = flatten(x)
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    best, errors = vector_of(x), np.sqrt(np.diagonal(covariance))
    width = _quantile(level, dof) * errors
    parts = [nested(part, shapes, spec) for part in (errors, best - width, best + width)]
    return Uncertainty(x, covariance, parts[0], (parts[1], parts[2]), level, dof, information, fit, scale)


def _quantile(level: float, dof: float) -> float:
    stats: Any = importlib.import_module("scipy.stats")
    two_sided = (1 + level) / 2
    return float(stats.norm.ppf(two_sided) if dof == inf else stats.t.ppf(two_sided, dof))


def _free(best: NDArray, pairs: NDArray, slopes: NDArray, curvatures: NDArray) -> NDArray:
    """Return which unknowns do not stand at a bound. Interior-point methods stop before it: Newton's step from there goes beyond."""
    distances = np.stack([best - pairs[:, 0], pairs[:, 1] - best])
    pushes = np.stack([slopes, -slopes])
    scale = np.maximum(1.0, np.abs(best))
    is_near = distances <= NEAR * scale
    is_beyond = is_near & (pushes > np.maximum(curvatures, 0.0) * np.where(is_near, distances, 0.0))
    return np.asarray(~((distances <= 1e-10 * scale) | (is_beyond & (pushes > 0))).any(axis=0))


def _inverse(information: NDArray, free: NDArray, names: list[str]) -> NDArray:
    """Return the inverse of the free part of an information matrix, with zeros elsewhere."""
    rows = np.flatnonzero(free)
    part = np.asarray(information, float)[np.ix_(rows, rows)]
    scale = np.sqrt(np.abs(np.diagonal(part)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(part / (scale[:, None] * scale))
    if len(values) and values[0] < -SINGULAR:
        raise ArgumentError(
            "gt.scipy.uncertainty: the result is not a minimum",
            where=user_site(),
            why=f"the Hessian has a negative eigenvalue, along the direction {_combination(vectors[:, 0] / scale, rows, names)}",
            remedy="minimise further, from another start or with a smaller tolerance",
        )
    if len(values) and values[0] < SINGULAR:
        raise SingularJacobianError(
            "gt.scipy.uncertainty: the data do not determine all unknowns",
            where=user_site(),
            why=f"the fit stays the same along the direction {_combination(vectors[:, 0] / scale, rows, names)}",
            remedy="fix one of them, add data, or add a prior to the objective",
        )
    covariance = np.zeros((len(free), len(free)))
    covariance[np.ix_(rows, rows)] = (vectors / values) @ vectors.T / (scale[:, None] * scale)
    return covariance


def _combination(direction: NDArray, rows: NDArray, names: list[str]) -> str:
    """Return a direction as a sum of the unknowns that it moves most."""
    direction = direction / np.max(np.abs(direction))
    largest = np.argsort(-np.abs(direction), kind="stable")[:4]
    terms = [f"{direction[k]:+.2g} {names[rows[k]] or 'x'}" for k in largest if abs(direction[k]) > 0.01]
    return " ".join(terms).removeprefix("+")
