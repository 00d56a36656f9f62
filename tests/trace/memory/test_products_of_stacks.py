"""Results of generalised ufuncs: NumPy orders their leading axes as those of the operands are ordered in memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Array = Any


def permuted(rng: np.random.Generator, shape: list[int]) -> Array:
    """Return random numbers whose axes are in a random order in memory."""
    order = rng.permutation(len(shape))
    return rng.normal(size=[shape[axis] for axis in order]).transpose(np.argsort(order))


@pytest.mark.parametrize(
    ("function", "cores"),
    [
        (np.vecdot, ("n", "n")),
        (np.matmul, ("nk", "km")),
        (operator.matmul, ("nk", "km")),
        (operator.matmul, ("k", "km")),
        (np.matvec, ("nk", "k")),
        (np.vecmat, ("k", "km")),
    ],
    ids=lambda given: given.__name__ if callable(given) else ",".join(given),
)
def test_writes_through_ravel_reach_the_array_where_numpy_has_a_view(
    function: Callable[[Array, Array], Array], cores: tuple[str, str]
) -> None:
    rng = np.random.default_rng(0)

    def written(a: Array, b: Array) -> Array:
        y = function(a, b)
        y.ravel()[0] = 7.0
        return y

    seen = set()
    for _ in range(40):
        lead = rng.integers(2, 4, size=3).tolist()
        extents = dict(zip("nkm", rng.integers(1, 4, 3).tolist(), strict=True))
        operands = []
        for core in cores:
            own = [extent if rng.random() < 0.7 else 1 for extent in lead[rng.integers(0, 3) :]]
            own = own if "n" in core or len(core) > 1 or len(cores[0]) > 1 else []
            operands.append(permuted(rng, own + [extents[name] for name in core]))
        expected = written(*operands)
        seen.add(bool(np.any(expected == 7.0)))
        with gt.GradientTape() as tape:
            got = written(*tape.watch(tuple(operands)))
        np.testing.assert_allclose(np.asarray(got), expected, err_msg=str([a.strides for a in operands]))
    assert seen == {True, False}, "the arguments were all in one order"
