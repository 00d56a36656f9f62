"""Workspaces of kernels that are called from Python: a few blocks, shared by all programs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[Any]

MAX_FREE_BLOCKS: Final = 4
"""Free blocks that are kept. Fresh memory costs a page fault per 4 KB, which takes as long as to write it."""

_free: Final[list[Block]] = []


def take(size: int) -> Block:
    """Return a block of at least `size` bytes, on a 64-byte boundary, with room for a guard's number.

    Examples
    --------
    >>> block = take(100)
    >>> block.nbytes >= 100, block.ctypes.data % 64
    (True, 0)
    >>> give_back(block)
    """
    wanted = max(size, 8)
    for number in range(len(_free) - 1, -1, -1):
        try:
            block = _free.pop(number)
        except IndexError:  # another thread took it
            continue
        if block.nbytes >= wanted:
            return block
        _free.append(block)
    raw = np.empty(wanted + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + wanted]


def give_back(block: Block) -> None:
    """Keep a block for the next call."""
    _free.append(block)
    if len(_free) > MAX_FREE_BLOCKS:
        _free.pop(0)


def trim() -> None:
    """Free all blocks."""
    _free.clear()
