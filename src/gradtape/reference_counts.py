"""Reference counts of CPython's: no other module reads or changes them."""

from __future__ import annotations

import ctypes
import sys
from typing import Final, TypeVar

T = TypeVar("T")

reference_count: Final = sys.getrefcount
"""Return how many references an object has, that of the call among them: what it means follows from comparing two counts of the same
expression."""


def keep_for_ever(thing: T) -> T:
    """Keep an object until the process ends, and return it: C code has pointers to it that outlive every module of Python's.

    Examples
    --------
    >>> block = keep_for_ever(bytearray(2))
    >>> reference_count(block) > reference_count(bytearray(2))
    True
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
