"""Computes a gradient of Rosenbrock's function and prints the monotonic clock; arguments: TOOL [CORE]."""

import os
import sys
import time

import numpy as np
from wordings import rosen as wording

if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
x = np.linspace(-1.0, 1.0, 1000)
if sys.argv[1] == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)
    wording.np = jax.numpy
    gradient = np.asarray(jax.jit(jax.grad(wording.rosen))(x))
else:
    import gradtape as gt

    gradient = gt.grad(wording.rosen)(x)
finished = time.monotonic()
assert gradient.shape == x.shape
print(finished)
