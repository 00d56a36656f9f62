"""Kinds of leaves: Arrays, variables, ndarrays, numbers, and static leaves, which are parts of the program.

A jitted function traces arrays and numbers, and takes booleans and variables as they are (`is_dynamic`). A body of a loop or branch takes
all of them as arguments (`is_numeric`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.ir.types import PYTHON_DTYPES
from gradtape.kinds.operands import COMPACT
from gradtape.trace.array.handle import Handle
from gradtape.trace.variables.variable import Variable

NUMBERS: Final = (float, int, complex)
_NDARRAYS: Final = (np.ndarray, np.generic)
_NUMERIC: Final = (Handle, *_NDARRAYS, *NUMBERS)


def is_handle(leaf: Any) -> bool:
    """Return whether a leaf is an `Array` or a variable."""
    return isinstance(leaf, Handle)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an `Array` that is no variable."""
    return isinstance(leaf, Handle) and not isinstance(leaf, Variable)


def is_dynamic(leaf: Any) -> bool:
    """Return whether a leaf is an argument of a kernel: an array or a number, no boolean and no variable."""
    return issubclass(type(leaf), _NDARRAYS) or type(leaf) in NUMBERS or is_array(leaf)


def is_numeric(leaf: Any) -> bool:
    """Return whether a leaf is an argument of a body: an array, a variable, a number or a boolean."""
    return isinstance(leaf, _NUMERIC) or type(leaf) in COMPACT


def is_weak(leaf: Any) -> bool:
    """Return whether a leaf has a weak type, as Python's numbers have."""
    return leaf.value.aval.weak if isinstance(leaf, Handle) else type(leaf) in PYTHON_DTYPES
