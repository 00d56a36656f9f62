"""Errors of Python's that functions of SciPy set while a kernel runs: the kernel fails then, and the interpreter raises them."""

from __future__ import annotations

import functools
from typing import Final

from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident

RAISED: Final = "gradtape.raised"
"""The symbol of the routine ``int32_t (void)``, which clears the error of this thread and returns whether there was one."""


@functools.cache
def raised_address() -> int:
    """Return the address of the routine that kernels call as `RAISED`.

    Examples
    --------
    >>> raised_address() == raised_address() != 0
    True
    """
    return load_resident(read_ll(__package__, "raised.ll"), RAISED, ("raised",))["raised"]
