"""The logarithm of the posterior of a Gaussian mixture with a Wishart prior."""

import numpy as np
from gradbench import wrap
from scipy.special import logsumexp, multigammaln

import gradtape as gt


def log_posterior(unknowns, x, m, gamma):
    alpha, mu, q, below = (unknowns[name] for name in ("alpha", "mu", "q", "l"))
    n, d = x.shape
    k = len(alpha)
    columns, rows = np.triu_indices(d, 1)  # strictly lower triangle, column by column
    lower = np.zeros((k, d, d))
    lower[:, rows, columns] = below
    diagonal = np.exp(q)
    log_determinants = np.sum(q, axis=1)

    centred = x[:, None, :] - mu
    scaled = diagonal * centred + np.einsum("kij,nkj->nki", lower, centred)
    exponents = alpha + log_determinants - 0.5 * np.sum(scaled**2, axis=2)
    log_likelihood = np.sum(logsumexp(exponents, axis=1)) - n * (
        logsumexp(alpha) + 0.5 * d * np.log(2 * np.pi)
    )

    degrees = d + m + 1
    constant = degrees * d * np.log(gamma / np.sqrt(2)) - multigammaln(0.5 * degrees, d)
    squares = 0.5 * gamma**2 * (np.sum(diagonal**2) + np.sum(below**2))
    return log_likelihood + k * constant - squares + m * np.sum(log_determinants)


value = gt.jit(log_posterior)
derivative = gt.grad(log_posterior)


def arguments(message):
    unknowns = {name: np.array(message[name]) for name in ("alpha", "mu", "q", "l")}
    unknowns["l"] = unknowns["l"].reshape(message["k"], -1)
    return unknowns, np.array(message["x"]), message["m"], message["gamma"]


@wrap.multiple_runs(pre=arguments, post=float)
def objective(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=lambda result: {name: part.tolist() for name, part in result.items()})
def jacobian(arguments):
    return derivative(*arguments)
