"""Where scratch buffers stand in the workspace: those that are not needed at the same time share memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..loops.ir import Buffer, Call, Control, For, Load, Program, Store
from .free import free_names

ALIGNMENT: Final = 64
RESERVED: Final = 64
"""Bytes at the start in which a missed guard leaves its number."""


def plan_memory(program: Program) -> tuple[dict[Buffer, int], int]:
    """Return the offset of each scratch buffer and the size of the workspace."""
    lives: dict[Buffer, tuple[int, int]] = {}
    scratch = set(program.scratch)
    for turn, statement in enumerate(program.body):
        if isinstance(statement, Load | Store):
            touched = {statement.buffer} & scratch
        elif isinstance(statement, For | Call | Control):
            touched = scratch.intersection(free_names([statement]).buffers)
        else:
            continue
        for buffer in touched:
            first, _ = lives.get(buffer, (turn, turn))
            lives[buffer] = (first, turn)
    offsets: dict[Buffer, int] = {}
    end = RESERVED
    placed: list[tuple[int, int, Buffer]] = []
    for buffer in sorted(lives, key=lambda b: (-b.nbytes, lives[b], b.name)):
        offset = _lowest(buffer, lives, placed)
        offsets[buffer] = offset
        placed.append((offset, offset + max(buffer.nbytes, 1), buffer))
        end = max(end, offset + max(buffer.nbytes, 1))
    return offsets, (end + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _lowest(
    buffer: Buffer, lives: dict[Buffer, tuple[int, int]], placed: Sequence[tuple[int, int, Buffer]]
) -> int:
    """Return the lowest free place for a buffer among those that live at the same time."""
    first, last = lives[buffer]
    taken = sorted(
        (start, stop) for start, stop, other in placed if lives[other][0] <= last and first <= lives[other][1]
    )
    offset = RESERVED
    for start, stop in taken:
        if offset + max(buffer.nbytes, 1) <= start:
            break
        offset = max(offset, (stop + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
    return offset
