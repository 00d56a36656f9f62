"""The log-likelihood of a hidden Markov model by the forward algorithm, in log space."""

import numpy as np

from wordings.plain import scan


def logsumexp(terms):
    """Over the first axis."""
    top = np.max(terms, axis=0)
    return top + np.log(np.sum(np.exp(terms - top), axis=0))


def hmm_scan(start, transition, emission, symbols):
    seen = emission[:, symbols].T

    def step(forward, row):
        return logsumexp(forward[:, None] + transition) + row, None

    forward, _ = scan(step, start + seen[0], seen[1:])
    return logsumexp(forward)


def hmm_loop(start, transition, emission, symbols):
    seen = emission[:, symbols].T
    forward = start + seen[0]
    for t in range(1, len(symbols)):
        forward = logsumexp(forward[:, None] + transition) + seen[t]
    return logsumexp(forward)
