"""Random NumPy programs under maps and in Jacobians: equal to loops, and forward, reverse and taped ones to each other."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradtape as gt
from tests.fuzz.test_transforms import program, steps

CALM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
INPUTS = {
    "recipe": steps,
    "rows": st.integers(1, 3),
    "columns": st.integers(1, 3),
    "seed": st.integers(0, 999),
}


@CALM
@given(**INPUTS, size=st.integers(1, 3), shared=st.sampled_from([(0, 0), (0, None), (None, 0), (1, -1)]))
def test_a_map_is_a_loop(recipe, rows, columns, seed, size, shared):
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
        np.testing.assert_allclose(gt.vmap(f, in_axes=shared)(*arrays), expected, rtol=1e-10, atol=1e-12)
        slope = gt.grad(lambda x, y: np.sum(np.sin(f(x, y))), argnums=(0, 1))
        found = gt.vmap(slope, in_axes=shared)(*arrays)
        wanted = [slope(*element) for element in elements]
        for k in range(2):
            np.testing.assert_allclose(found[k], np.stack([w[k] for w in wanted]), rtol=1e-9, atol=1e-11)


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
