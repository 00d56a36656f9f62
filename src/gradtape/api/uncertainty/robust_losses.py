"""Robust losses of least squares: the covariance of an estimate whose loss is no likelihood of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.solvers.least_squares import LOSSES
from gradtape.api.solvers.nested import vector_of
from gradtape.api.transforms.gradient import grad
from gradtape.ir.op import NDArray


class RobustLoss(NamedTuple):
    """What `least_squares` of SciPy minimises: the sum of ``scale**2 / 2 * rho((residual / scale)**2)``.

    Attributes
    ----------
    rho : str or callable
        As `scipy.optimize.least_squares` takes a loss: a callable returns the values in the first row.
    scale : float
        SciPy's `f_scale`: the size of a residual from which on it counts as an outlier.
    """

    rho: str | Callable[[Any], Any]
    scale: float

    def of(self, residuals: Any) -> Any:
        """Return the sum for a vector of residuals."""
        squares = (residuals / self.scale) ** 2
        terms = self.rho(squares)[0] if callable(self.rho) else LOSSES[self.rho](squares)
        return self.scale**2 / 2 * np.sum(terms)

    def of_function(self, function: Callable[..., Any], x: Any, *args: Any) -> Any:
        """Return the sum for a function's residuals."""
        return self.of(vector_of(function(x, *args)))

    def slopes(self, residuals: NDArray) -> tuple[NDArray, NDArray]:
        """Return the first and the second derivative of each term in its residual."""
        influence = grad(self.of)
        # Each term has a residual of its own: the sum of the slopes has the diagonal of the Hessian for its gradient.
        return influence(residuals), grad(lambda r: np.sum(influence(r)))(residuals)


class Sandwich(NamedTuple):
    """The two matrices of the covariance ``inv(bread) @ meat @ inv(bread)``.

    P. J. Huber, "The Behavior of Maximum Likelihood Estimates under Nonstandard Conditions", 1967; L. A. Stefanski, D. D. Boos,
    "The Calculus of M-Estimation", The American Statistician 56, 2002.

    Attributes
    ----------
    bread : ndarray
        The Hessian of the sum of losses, without the curvature of the model.
    meat : ndarray
        The sum of the outer products of the gradients of the losses.
    """

    bread: NDArray
    meat: NDArray


def sandwich(loss: RobustLoss, residuals: NDArray, scaled: NDArray) -> Sandwich:
    """Return the matrices of a result.

    Parameters
    ----------
    loss : RobustLoss
    residuals : ndarray of shape (m,)
    scaled : ndarray of shape (m, n)
        The Jacobian in a result of SciPy's: each row times the root of the loss's second derivative, or of a tiny number where that is
        smaller.
    """
    slopes, curves = loss.slopes(residuals)
    jacobian = scaled / np.sqrt(np.maximum(curves, np.finfo(float).eps))[:, None]
    gradients = slopes[:, None] * jacobian
    return Sandwich(jacobian.T @ (curves[:, None] * jacobian), gradients.T @ gradients)
