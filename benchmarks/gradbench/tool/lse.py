"""The logarithm of a sum of exponentials."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def logsumexp(x):
    largest = np.max(x)
    return largest + np.log(np.sum(np.exp(x - largest)))


value = gt.jit(logsumexp)
derivative = gt.grad(logsumexp)


def vector(message):
    return np.array(message["x"])


@wrap.multiple_runs(pre=vector, post=float)
def primal(x):
    return value(x)


@wrap.multiple_runs(pre=vector, post=np.ndarray.tolist)
def gradient(x):
    return derivative(x)
