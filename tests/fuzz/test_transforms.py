"""Random NumPy programs: compiled, interpreted and plain NumPy agree; reverse mode is the adjoint of forward mode."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradtape as gt

UNARY = (
    np.sin,
    np.cos,
    np.tanh,
    np.exp,
    np.arctan,
    np.square,
    np.negative,
    np.abs,
    lambda x: np.log1p(x * x),
    np.cbrt,
)
BINARY = (
    np.add,
    np.subtract,
    np.multiply,
    np.maximum,
    np.minimum,
    np.hypot,
    lambda x, y: x / (2.0 + y * y),
    np.logaddexp,
)
SHAPE = (
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x.reshape(-1),
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.roll(x, 1, axis=0),
    lambda x: np.concatenate([x, x * 2.0]),
    lambda x: x[np.array([0, -1, 0])],
    lambda x: np.repeat(x, 2, axis=0)[1:],
    lambda x: np.sort(x, axis=0),
    lambda x: x - x.mean(axis=0),
    lambda x: np.where(x > 0.1, x, 0.5 * x),
    lambda x: np.sum(x, axis=-1, keepdims=True) + 0 * x,
    lambda x: x @ x.T if x.ndim == 2 else np.outer(x, x),
    lambda x: np.max(x, axis=0) * np.ones_like(x),
    lambda x: written(x),
)


def written(x):
    y = np.zeros_like(x)
    y[1:] = x[:-1]
    y[0] += x[-1] * 3
    return y


steps = st.lists(
    st.one_of(
        st.tuples(st.just("unary"), st.integers(0, len(UNARY) - 1), st.integers(0, 3)),
        st.tuples(st.just("binary"), st.integers(0, len(BINARY) - 1), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("shape"), st.integers(0, len(SHAPE) - 1), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=8,
)


def program(recipe):
    """Return a function of two arrays that does what the recipe says, skipping what would grow out of bounds."""

    def run(x, y):
        values = [x, y]
        for kind, which, *operands in recipe:
            chosen = [values[-1 - k % len(values)] for k in operands]
            if kind == "unary":
                new = UNARY[which](chosen[0])
            elif kind == "binary":
                a, b = chosen
                new = BINARY[which](a, b if a.shape == b.shape else np.sum(b))
            elif chosen[0].size > 60 or chosen[0].ndim == 0:
                continue
            else:
                new = SHAPE[which](chosen[0])
            values.append(np.tanh(new) * 2.0)
        return values[-1]

    return run


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=steps, rows=st.integers(1, 4), columns=st.integers(1, 3), seed=st.integers(0, 2**16))
def test_random_programs(recipe, rows, columns, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(rows, columns)), rng.normal(size=(rows, columns))
    f = program(recipe)
    expected = f(x, y)
    np.testing.assert_allclose(gt.jit(f)(x, y), expected, rtol=1e-11, atol=1e-13)
    with gt.config.override(jit=False):
        np.testing.assert_allclose(gt.jit(f)(x, y), expected, rtol=1e-11, atol=1e-13)

    dx, dy = rng.normal(size=x.shape), rng.normal(size=y.shape)
    _, tangent = gt.jvp(f, (x, y), (dx, dy))
    weights = rng.normal(size=np.shape(expected))

    def loss(x, y):
        return np.sum(f(x, y) * weights)

    gx, gy = gt.grad(loss, argnums=(0, 1))(x, y)
    left, right = np.sum(gx * dx) + np.sum(gy * dy), np.sum(tangent * weights)
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-11)
    with gt.config.override(jit=False):
        ix, iy = gt.grad(loss, argnums=(0, 1))(x, y)
    np.testing.assert_allclose(gx, ix, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gy, iy, rtol=1e-10, atol=1e-12)
