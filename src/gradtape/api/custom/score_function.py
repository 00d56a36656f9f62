"""`score_function`: derivatives of expectations over random numbers that have none themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.tape.create import stop_gradient
from gradtape.errors import DtypeError
from gradtape.ir.types import is_inexact
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site


def score_function(log_prob: Any) -> Any:
    r"""Return weights with the value 1 and the derivatives of log probabilities.

    Multiplied with what is computed from random numbers, they make its mean an estimate that has the derivatives of the expectation:
    ``d/dp E[f(x)] = E[f(x) d/dp log P(x; p)]``. This holds for discrete numbers, which have no derivatives themselves, and for functions f
    with jumps.

    Parameters
    ----------
    log_prob : array_like of floats
        The logarithms of the probabilities, or densities, of the numbers that were drawn, as functions of the parameters. The numbers
        themselves are constants: draw them with ``gt.stop_gradient(p)``.

    Returns
    -------
    array
        ``exp(log_prob - stop_gradient(log_prob))``: ones, where the logarithms are finite.

    Raises
    ------
    DtypeError
        For integers.

    See Also
    --------
    stop_gradient : Says that the derivative does not see a parameter.

    Notes
    -----
    The estimate has no bias in derivatives of any order. Its variance grows with the size of f: subtract a constant from f, such as its
    mean over earlier draws, and add it to the result. Where the numbers are differentiable functions of the parameters, which are those of
    NumPy's continuous distributions, derivatives without it have less variance.

    References
    ----------
    Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning, 1992; for higher orders Foerster
    et al., DiCE: The infinitely differentiable Monte Carlo estimator, 2018.

    Examples
    --------
    The expectation of ``k**2`` for Poisson's distribution is ``p + p**2``, with the derivative ``1 + 2 p``:

    >>> import numpy as np, gradtape as gt
    >>> from scipy.special import gammaln
    >>> rng = np.random.default_rng(0)
    >>> def mean_square(p):
    ...     k = rng.poisson(gt.stop_gradient(p), 100_000)
    ...     log_prob = k * np.log(p) - p - gammaln(k + 1.0)
    ...     return np.mean(k**2 * gt.score_function(log_prob))
    >>> value, slope = gt.value_and_grad(mean_square)(2.0)
    >>> bool(np.isclose(value, 6.0, rtol=0.05)), bool(np.isclose(slope, 5.0, rtol=0.05))
    (True, True)
    """
    array: Any = log_prob if isinstance(log_prob, Handle) else np.asarray(log_prob)
    if not is_inexact(array.dtype):
        raise DtypeError(
            f"score_function: log_prob must be an array of floats, got one of {array.dtype}",
            where=user_site(),
            remedy="pass the logarithms of the probabilities of the numbers, not the numbers",
        )
    return np.exp(array - stop_gradient(array))
