"""Visits of numbers, arrays and random number generators."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.captures.steps import Check, Origin, Source
from gradtape.trace.jit.captures.walk import CaptureWalk
from gradtape.trace.jit.leaf_kinds import NUMBERS


def visit_plain(walk: CaptureWalk, thing: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check a number, text or other constant by value; let floats, and numbers that have changed, become hidden inputs.

    Where code asks for the types of numbers, floats are checked by value until they have changed.
    """
    if origin[0] is Source.FIXED:
        return thing
    kind = type(thing)
    varies = label in walk.varying or not (kind is int or walk.facts.asks_types)
    if copying and varies and kind in NUMBERS:
        return walk.input(thing, origin, label, weak=True)
    walk.step(origin, Check.SAME, thing, label)
    return thing


def visit_scalar(walk: CaptureWalk, scalar: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check a NumPy scalar by value, or let it become a hidden input."""
    if copying and scalar.dtype.kind in "fc" and _is_supported(scalar.dtype):
        return walk.input(scalar, origin, label)
    return walk.remember(scalar, scalar, walk.step(origin, Check.SAME, scalar, label), copying)


def visit_array(walk: CaptureWalk, array: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Let an array become a hidden input; check those of other dtypes and of subclasses by content."""
    if copying and type(array) is np.ndarray and _is_supported(array.dtype):
        return walk.input(array, origin, label)
    content = np.array(np.ndarray.view(array, np.ndarray))
    return walk.remember(array, array, walk.step(origin, Check.CONTENT, content, label), copying)


def visit_handle(walk: CaptureWalk, handle: Handle, origin: Origin, label: str, copying: bool) -> Any:
    """Let an Array become a hidden input; check variables, and all where a tape's record is read, by identity."""
    # The record of a tape belongs to the arrays themselves, not to others with the same numbers.
    if type(handle) is Array and copying and not walk.facts.reads_records:
        return walk.input(handle, origin, label)
    walk.by_identity(handle, origin, label)
    return handle


def visit_generator(walk: CaptureWalk, generator: Any, origin: Origin, label: str) -> Any:
    """Check a random number generator of NumPy's for its type: each call draws from the one that it finds."""
    step = walk.step_unless_fixed(origin, Check.TYPE, type(generator), label)
    walk.spec.generators.append(step)
    walk.spec.numpy_generators.append(generator)
    walk.spec.may_draw = True
    for copying in (True, False):
        walk.remember(generator, generator, step, copying)
    return generator


def _is_supported(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" and dtype.char not in "gG"
