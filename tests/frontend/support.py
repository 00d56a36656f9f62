"""Translation in tests: what a procedure computes, by the interpreter of procedures."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.frontend.translate import Translation, translate
from gradtape.ir.types import aval
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.trees import flatten, unflatten

TRACED = (float, complex, np.ndarray, np.floating, np.complexfloating)
"""What of the arguments is traced; ints and bools are constants unless they are arrays."""


def translated(function: Callable[..., Any], *args: Any) -> Translation:
    """Return a verified translation for arguments like these."""
    leaves, spec = flatten(args)
    types = [_type(leaf) if isinstance(leaf, TRACED) else leaf for leaf in leaves]
    translation = translate(function, unflatten(spec, types))
    verify_procedure(translation.procedure)
    return translation


def _type(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return aval(array.shape, array.dtype, type(leaf) in (float, complex))


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Return what the procedure of a function returns, and let it write to the arguments."""
    translation = translated(function, *args)
    leaves, _ = flatten(args)
    operands = [np.asarray(leaves[place]) for place in translation.leaves]
    outs = run_procedure(translation.procedure, [*operands, *map(np.asarray, translation.captured)])
    for place, number in translation.mutated.items():
        leaves[place][...] = outs[number]
    found, spec = flatten(translation.result)
    return unflatten(spec, [outs[leaf] if type(leaf) is int else leaf for leaf in found])


def check(function: Callable[..., Any], *args: Any) -> Any:
    """Compare a function with its procedure: results, and what it leaves in its arguments. Return the result."""
    given, others = copy.deepcopy(args), copy.deepcopy(args)
    wanted, found = function(*given), run(function, *others)
    for want, have in zip(_flat((wanted, given)), _flat((found, others)), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-11, atol=1e-13)
        assert np.shape(have) == np.shape(want)
    return found


def _flat(tree: Any) -> list[Any]:
    return [leaf for leaf in flatten(tree)[0] if not callable(leaf)]
