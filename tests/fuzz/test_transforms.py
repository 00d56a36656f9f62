"""Random NumPy programs: compiled, interpreted and plain NumPy agree; reverse mode is the adjoint of forward mode;
maps equal loops, and Jacobians agree in every mode.
"""

from __future__ import annotations

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


CALM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
INPUTS = {
    "recipe": steps,
    "rows": st.integers(1, 3),
    "columns": st.integers(1, 3),
    "seed": st.integers(0, 999),
}


@CALM
@given(
    **INPUTS,
    size=st.integers(1, 5),
    shared=st.sampled_from([(0, 0), (0, None), (None, 0), (1, -1)]),
    chunk=st.sampled_from([None, 1, 2]),
)
def test_a_map_is_a_loop(recipe, rows, columns, seed, size, shared, chunk):
    rng = np.random.default_rng(seed)
    f = program(recipe)
    arrays = []
    for axis in shared:
        shape = (rows, columns) if axis is None else (size, rows, columns)
        drawn = rng.normal(size=shape)
        arrays.append(drawn if axis is None else np.moveaxis(drawn, 0, axis))
    elements = [
        [
            array if axis is None else np.take(array, k, axis)
            for array, axis in zip(arrays, shared, strict=True)
        ]
        for k in range(size)
    ]
    expected = np.stack([f(*element) for element in elements])
    with gt.config.override(jit=seed % 2 == 0):
        mapped = gt.vmap(f, in_axes=shared, chunk_size=chunk)
        np.testing.assert_allclose(mapped(*arrays), expected, rtol=1e-10, atol=1e-12)
        slope = gt.grad(lambda x, y: np.sum(np.sin(f(x, y))), argnums=(0, 1))
        found = gt.vmap(slope, in_axes=shared, chunk_size=chunk)(*arrays)
        wanted = [slope(*element) for element in elements]
        for k in range(2):
            np.testing.assert_allclose(found[k], np.stack([w[k] for w in wanted]), rtol=1e-9, atol=1e-11)
        around = gt.grad(lambda *arrays: np.sum(np.sin(mapped(*arrays))), argnums=(0, 1))(*arrays)
        for k, axis in enumerate(shared):
            parts = [w[k] for w in wanted]
            total = np.sum(parts, axis=0) if axis is None else np.stack(parts, axis)
            np.testing.assert_allclose(around[k], total, rtol=1e-9, atol=1e-11)


@CALM
@given(**INPUTS, chunk=st.integers(1, 7))
def test_jacobians_agree(recipe, rows, columns, seed, chunk):
    rng = np.random.default_rng(seed)
    f = program(recipe)
    x, y = rng.normal(size=(2, rows, columns))
    with gt.config.override(jit=seed % 2 == 0):
        forward = gt.jacfwd(f, argnums=(0, 1))(x, y)
        reverse = gt.jacrev(f, argnums=(0, 1))(x, y)
        with gt.GradientTape(persistent=True) as tape:
            a, b = tape.watch((x, y))
            z = f(a, b)
        taped = tape.jacobian(z, [a, b], "zero")
        chunked = tape.jacobian(z, [a, b], "zero", parallel_iterations=chunk)
        single = tape.jacobian(z, [a, b], "zero", experimental_use_pfor=False)
    for k in range(2):
        for other in (reverse[k], taped[k].numpy(), chunked[k].numpy(), single[k].numpy()):
            assert other.shape == forward[k].shape
            np.testing.assert_allclose(other, forward[k], rtol=1e-9, atol=1e-11)
