"""Random programs around exponentials of shifted numbers: leaving shifts out changes no derivative."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtape as gt
from gradtape.transforms import jvp as forward
from gradtape.transforms import vjp as backward

X = np.random.default_rng(0).normal(size=(3, 4))
V = np.random.default_rng(2).normal(size=(3, 4))
W = np.random.default_rng(1).uniform(0.2, 1.0, (4, 4))

SHIFTS = (
    lambda x: np.max(x, axis=1),
    lambda x: np.min(x, axis=1),
    lambda x: np.mean(x, axis=1),
    lambda x: x[:, 0] * 2.0,
    lambda x: np.max(x) * np.ones(3),
    lambda x: np.where(np.isfinite(np.max(x, axis=1)), np.max(x, axis=1), 0.0),
)

MATRICES = (
    lambda a, b, u, v: a / u[:, None],
    lambda a, b, u, v: a * b,
    lambda a, b, u, v: a - u[:, None],
    lambda a, b, u, v: a @ W,
    lambda a, b, u, v: np.where(V > 0.0, a, 0.0),
    lambda a, b, u, v: np.maximum(a, b),
    lambda a, b, u, v: np.exp(-np.abs(a)),
    lambda a, b, u, v: np.sqrt(np.abs(a)),
    lambda a, b, u, v: a[:, ::-1],
)

VECTORS = (
    lambda a, b, u, v: np.sum(a, axis=1),
    lambda a, b, u, v: np.max(a, axis=1),
    lambda a, b, u, v: np.sum(a * b, axis=1),
    lambda a, b, u, v: np.log(np.abs(u)),
    lambda a, b, u, v: u + v,
    lambda a, b, u, v: u - v,
    lambda a, b, u, v: u / v,
    lambda a, b, u, v: u * -0.5,
    lambda a, b, u, v: u[::-1],
)

places = st.integers(0, 7)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 8), places, places), min_size=2, max_size=8)


def program(shift, scale, recipe, added):
    def function(x):
        m = SHIFTS[shift](x)
        s = (x - m[:, None]) * scale
        e = np.exp(s)
        total = np.sum(e, axis=1)
        matrices, vectors = [s, e, e / total[:, None], x], [m, m + np.log(total) / scale]
        for matrix, which, first, second in recipe:
            a, b = (matrices[place % len(matrices)] for place in (first, second))
            u, v = (vectors[place % len(vectors)] for place in (first, second))
            (matrices if matrix else vectors).append((MATRICES if matrix else VECTORS)[which](a, b, u, v))
        return (
            np.sum(np.tanh(vectors[-1])) + added * np.sum(np.sin(vectors[1])) + np.sum(np.tanh(matrices[-1]))
        )

    return function


def derivatives(function, x):
    gradient = gt.grad(lambda x: function(x))
    pushed = gt.jvp(lambda x: function(x), (x,), (V,))[1]
    return np.asarray(gradient(x)), np.asarray(pushed)


@given(st.integers(0, 5), st.sampled_from([1.0, 0.5, 2.0]), steps, st.booleans())
@settings(max_examples=120, deadline=None, derandomize=True)
def test_derivatives_stay_the_same(shift, scale, recipe, added):
    function = program(shift, scale, recipe, added)
    find = backward.cancelling_shifts
    with gt.config.override(jit=False):
        found = derivatives(function, X)
        try:
            backward.cancelling_shifts = forward.cancelling_shifts = lambda nodes, targets, sources: set()
            expected = derivatives(function, X)
        finally:
            backward.cancelling_shifts = forward.cancelling_shifts = find
    for own, other in zip(found, expected, strict=True):
        known = np.isfinite(other)
        scale_of = 1.0 + np.max(np.abs(other), initial=0.0, where=known)
        np.testing.assert_allclose((own / scale_of)[known], (other / scale_of)[known], rtol=1e-7, atol=1e-9)
