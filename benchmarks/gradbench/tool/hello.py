"""The square of a number, and its derivative."""

from gradbench import wrap

import gradtape as gt


@wrap.function(pre=float, post=float)
def square(x):
    return x * x


@wrap.function(pre=float, post=float)
def double(x):
    return gt.grad(lambda x: x * x)(x)
