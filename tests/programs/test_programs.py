"""Whole programs: NumPy's value, and gradients that agree with differences and between the ways into gradtape."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import gradtape as gt
from tests.support.programs.user_code import PROGRAMS, Program

everywhere = pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))


def same(actual: Any, expected: Any, rtol: float = 1e-10) -> None:
    """Check that two nests hold the same numbers."""
    got, structure = optree.tree_flatten(actual)
    assert structure == optree.tree_structure(expected)
    for a, b in zip(got, optree.tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol)


@everywhere
def test_value(program: Program) -> None:
    compiled = gt.jit(program.function)
    for args in (program.args, program.other, program.larger, program.args):
        if args:
            same(compiled(*args), program.function(*args))


@everywhere
def test_single_precision(program: Program) -> None:
    args: Any = optree.tree_map(
        lambda leaf: leaf if type(leaf) is float else np.asarray(leaf, np.float32)[()], program.args
    )
    value, expected = gt.jit(program.function)(*args), program.function(*args)
    assert value.dtype == np.asarray(expected).dtype
    same(value, expected, rtol=1e-3)


@everywhere
def test_gradient_of_function_and_tape(program: Program) -> None:
    gradient = gt.grad(program.function, argnums=tuple(range(len(program.args))))
    with gt.GradientTape() as tape:
        watched = tape.watch(program.args)
        value = program.function(*watched)
    slopes = tape.gradient(value, optree.tree_leaves(watched), unconnected_gradients="zero")
    # An argument that is only gathered from has a sparse gradient, which is a nest.
    same([np.asarray(slope) for slope in slopes], optree.tree_leaves(gradient(*program.args)))


@everywhere
def test_gradient_is_the_difference(program: Program) -> None:
    gt.check_grads(program.function, program.args, order=1)
