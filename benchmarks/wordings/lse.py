"""log-sum-exp with the maximum subtracted."""

import numpy as np


def lse(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top)))
