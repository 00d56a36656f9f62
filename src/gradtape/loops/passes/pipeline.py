"""From the loops as built to the loops that are emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gradtape.loops.ir import LoopProgram
from gradtape.loops.passes.collapse import collapse_loops
from gradtape.loops.passes.parallelise import parallelise
from gradtape.loops.passes.poll import insert_polls
from gradtape.loops.passes.row_blocking import block_rows
from gradtape.loops.passes.strip_mine import strip_mine

LoopPass = Callable[[LoopProgram], LoopProgram]

LOOP_PASSES: Final[tuple[LoopPass, ...]] = (strip_mine, collapse_loops, block_rows, parallelise)
"""In this order, on a program, and on the body of each loop and branch before it is put where it runs."""

LAST: Final[tuple[LoopPass, ...]] = (insert_polls,)
"""After these, on the whole program: what a loop costs is known once its body is in its place."""


def optimise_loops(program: LoopProgram) -> LoopProgram:
    """Return an equivalent program that is ready to be emitted."""
    return _run(LAST, _run(LOOP_PASSES, program))


def optimise_body(program: LoopProgram) -> LoopProgram:
    """Return an equivalent program, which another one is to run."""
    return _run(LOOP_PASSES, program)


def _run(steps: tuple[LoopPass, ...], program: LoopProgram) -> LoopProgram:
    for step in steps:
        program = step(program)
    return program
