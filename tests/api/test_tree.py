"""Nested containers: flattened, mapped over, and as one vector."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import expect


class Pair(NamedTuple):
    low: Any
    high: Any


@dataclasses.dataclass
class Layer:
    weights: Any
    bias: Any


TREES = {
    "number": 2.0,
    "array": np.arange(6.0).reshape(2, 3),
    "dict": {"b": np.ones(2), "a": 3.0, "none": None},
    "mixed": [np.ones(2, np.float32), (np.arange(3), [1.5])],
    "named tuple": Pair(1.0, np.zeros((2, 0))),
    "dataclass": Layer(np.ones((2, 2)), [0.5, 2.0]),
    "empty": {"a": [], "b": None},
}


@pytest.mark.parametrize("name", TREES)
def test_round_trips(name: str) -> None:
    tree = TREES[name]
    leaves, structure = gt.tree.flatten(tree)
    assert gt.tree.structure(tree) == structure and len(gt.tree.leaves(tree)) == len(leaves)
    again = gt.tree.unflatten(structure, leaves)
    assert type(again) is type(tree)
    assert all(a is b for a, b in zip(gt.tree.leaves(again), leaves, strict=True))


@pytest.mark.parametrize("name", TREES)
def test_one_vector(name: str) -> None:
    tree = TREES[name]
    flat, unravel = gt.tree.ravel(tree)
    leaves = gt.tree.leaves(tree)
    assert flat.shape == (sum(np.size(leaf) for leaf in leaves),)
    for leaf, again in zip(leaves, gt.tree.leaves(unravel(flat)), strict=True):
        assert np.asarray(again).dtype == np.asarray(leaf).dtype
        np.testing.assert_array_equal(again, leaf)
    expect(errors.ShapeError, lambda: unravel(np.zeros(99)), "(99,)")


def test_maps() -> None:
    left, right = {"a": 1.0, "b": [2.0, None]}, {"a": 10.0, "b": [20.0, None]}
    assert gt.tree.map(lambda x, y: x + y, left, right) == {"a": 11.0, "b": [22.0, None]}
    expect(errors.StructureError, lambda: gt.tree.map(max, left, {"a": 1.0}), "tree 2")
    expect(errors.ArgumentError, lambda: gt.tree.unflatten(gt.tree.structure(left), [1.0]), "1 leaves", "2")
    zeros = gt.tree.zeros_like({"w": np.ones(2, np.float32), "n": 3})
    assert zeros["w"].dtype == np.float32 and zeros["w"].tolist() == [0.0, 0.0] and zeros["n"] == 0


def test_derivatives_of_a_vector_of_parameters() -> None:
    flat, unravel = gt.tree.ravel({"w": np.array([[1.0, 2.0]]), "b": np.float64(3.0)})

    def loss(vector: Any) -> Any:
        params = unravel(vector)
        return np.sum(params["w"] ** 2) * params["b"]

    expected = [5.0, 6.0, 12.0]
    np.testing.assert_allclose(gt.grad(loss)(flat), expected)
    np.testing.assert_allclose(gt.hessian(loss)(flat)[0], [0.0, 2.0, 4.0])
    with gt.GradientTape() as tape:
        x = tape.watch(flat)
        y = loss(x)
    np.testing.assert_allclose(tape.gradient(y, x), expected)
    ravelled = gt.jit(lambda tree: gt.tree.ravel(gt.tree.map(np.sin, tree))[0])
    np.testing.assert_allclose(ravelled({"w": flat[1:], "b": flat[0]}), np.sin(flat))
