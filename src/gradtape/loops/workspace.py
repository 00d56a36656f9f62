"""Workspace planning: scratch buffers that are not live at the same time share memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import numpy as np

from gradtape.ir.op import NDArray
from gradtape.ir.varying import lengths_vary
from gradtape.loops.ir import Buffer, ControlFlow, For, Load, LoopProgram, RoutineCall, Store
from gradtape.loops.live_ins import live_ins
from gradtape.scratch import ALIGNMENT as FILE_ALIGNMENT

T = TypeVar("T", int, NDArray)

ALIGNMENT: Final = 64
RESERVED: Final = 64
"""Bytes at the start in which a missed guard leaves its number."""


def plan_memory(program: LoopProgram) -> tuple[dict[Buffer, int], int]:
    """Return the offset of each scratch buffer and the size of the workspace."""
    lives: dict[Buffer, tuple[int, int]] = {}
    scratch = set(program.scratch)
    for time, statement in enumerate(program.body):
        if isinstance(statement, Load | Store):
            touched = {statement.buffer} & scratch
        elif isinstance(statement, For | RoutineCall | ControlFlow):
            touched = scratch.intersection(live_ins([statement]).buffers)
        else:
            continue
        for buffer in touched:
            first, _ = lives.get(buffer, (time, time))
            lives[buffer] = (first, time)
    if lengths_vary():
        return _side_by_side(lives)
    order = sorted(lives, key=lambda b: (-b.nbytes, lives[b], b.name))
    order = [
        *[buffer for buffer in order if not buffer.in_file],
        *[buffer for buffer in order if buffer.in_file],
    ]
    # One row per buffer that has its place: where it begins and ends, and when it is written first and read last.
    placed = np.empty((4, len(order)), np.int64)
    offsets: dict[Buffer, int] = {}
    for count, buffer in enumerate(order):
        size = max(buffer.nbytes, 1)
        if buffer.in_file:  # behind all others, and apart from each other
            end = int(placed[1, :count].max(initial=RESERVED))
            offset = offsets[buffer] = -(-end // FILE_ALIGNMENT) * FILE_ALIGNMENT
        else:
            offset = offsets[buffer] = _lowest(size, lives[buffer], placed[:, :count])
        placed[:, count] = offset, offset + size, *lives[buffer]
    end = int(placed[1].max(initial=RESERVED))
    return offsets, _aligned(end)


def file_begin(offsets: Mapping[Buffer, int]) -> int | None:
    """Return where the part of a workspace begins that is in a scratch file; None where there is none."""
    return min([offset for buffer, offset in offsets.items() if buffer.in_file], default=None)


def _side_by_side(buffers: Iterable[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Return a plan that is one for all lengths: which buffers could share memory depends on them, and rounded sizes are no polynomials.

    Buffers of the largest elements come first, so that all are aligned.
    """
    offsets: dict[Buffer, int] = {}
    end = RESERVED
    for buffer in sorted(buffers, key=lambda b: (-b.dtype.itemsize, b.name)):
        offsets[buffer] = end
        end += buffer.nbytes
    return offsets, end


def _lowest(size: int, life: tuple[int, int], placed: NDArray) -> int:
    """Return the lowest free place for a buffer among those that live at the same time."""
    starts, stops, firsts, lasts = placed
    alive = np.flatnonzero((firsts <= life[1]) & (lasts >= life[0]))
    if not alive.size:
        return RESERVED
    starts, stops = starts[alive], stops[alive]
    order = np.lexsort((stops, starts))
    free_from = np.maximum.accumulate(_aligned(stops[order]))
    gaps = np.concatenate(([RESERVED], free_from[:-1])) + size <= starts[order]
    first = int(gaps.argmax())
    if not gaps[first]:
        return int(free_from[-1])
    return int(free_from[first - 1]) if first else RESERVED


def _aligned(offset: T) -> T:
    """Return the next multiple of the alignment, of one offset or of many."""
    return (offset + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
