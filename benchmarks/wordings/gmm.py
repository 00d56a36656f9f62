"""ADBench's log posterior of a Gaussian mixture."""

import math

import numpy as np
from scipy.special import multigammaln


def logsumexp(terms):
    """Over the first axis."""
    top = np.max(terms, axis=0)
    return top + np.log(np.sum(np.exp(terms - top), axis=0))


def gmm(alpha, mu, q, lower, x, *, places, gamma, m):
    """`places[i, j]` says where Q[i, j] lies among exp(q), the strict lower triangle and a zero."""
    n, d = x.shape
    k = len(alpha)
    diagonal = np.exp(q)
    factors = np.concatenate([diagonal, lower, np.zeros((k, 1))], axis=1)[:, places]
    scaled = factors @ (x.T - mu[:, :, None])
    log_weight = alpha + np.sum(q, axis=1)
    densities = logsumexp(log_weight[:, None] - 0.5 * np.sum(scaled**2, axis=1))
    likelihood = np.sum(densities) - n * (logsumexp(alpha) + 0.5 * d * math.log(2.0 * math.pi))
    v = d + m + 1
    normaliser = v * d * math.log(gamma / math.sqrt(2.0)) - multigammaln(0.5 * v, d)
    squares = np.sum(diagonal**2) + np.sum(lower**2)
    return likelihood - 0.5 * gamma**2 * squares + m * np.sum(q) + k * normaliser
