"""The pass that puts the rows' axis first changes the layout of intermediates and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.passes.layout.row_major import make_row_major
from tests.support.compiled import graph_of, mixture


def turned(mu, q, x):
    """The same with a permuted intermediate, a mean over the points and a result that keeps their axis last."""
    scaled = np.einsum("kij,kjn->kin", q, x.T[None] - mu[:, :, None])
    centred = scaled - scaled.mean(axis=2, keepdims=True)
    return np.transpose(centred, (1, 0, 2)) * 2, np.argmax(scaled, axis=1)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 4)), rng.normal(size=(2000, 4))


def test_a_program_over_many_points_is_rebuilt_and_stays_right(data):
    graph = graph_of(gt.value_and_grad(mixture, argnums=(0, 1)), *data)
    moved = make_row_major(graph)
    assert moved is not graph
    shapes = {node.out.shape for node in moved.nodes if node.op.name == "multiply"}
    assert any(shape[0] == 2000 for shape in shapes if len(shape) == 3)
    value, gradients = gt.value_and_grad(mixture, argnums=(0, 1))(*data)
    np.testing.assert_allclose(value, mixture(*data), rtol=1e-12)
    with gt.config.override(jit=False):
        _, expected = gt.value_and_grad(mixture, argnums=(0, 1))(*data)
    for got, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)


def test_outputs_keep_their_layout(data):
    got = gt.jit(turned)(*data)
    for mine, numpys in zip(got, turned(*data), strict=True):
        assert mine.shape == numpys.shape and mine.dtype == numpys.dtype
        np.testing.assert_allclose(mine, numpys, rtol=1e-12, atol=1e-13)


def test_few_points_stay_as_they_are(data):
    mu, q, x = data
    graph = graph_of(gt.jit(mixture), mu, q, x[:50])
    assert make_row_major(graph) is graph
