"""From the loops as built to the loops that are emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gradtape.ir.varying import lengths_vary
from gradtape.loops.ir import LoopProgram
from gradtape.loops.passes.collapse import collapse_loops
from gradtape.loops.passes.parallelise import parallelise
from gradtape.loops.passes.poll import insert_polls
from gradtape.loops.passes.row_blocking import block_rows
from gradtape.loops.passes.strip_mine import strip_mine
from gradtape.loops.passes.unroll_and_jam import unroll_and_jam
from gradtape.loops.verifier import verify_loops

LoopPass = Callable[[LoopProgram], LoopProgram]
"""Returns the same program where there is nothing to do; what it returns may share statements with what it was given."""

BODY_PASSES: Final[tuple[LoopPass, ...]] = (collapse_loops, block_rows)
"""In this order, on the body of each loop and branch before it is put where it runs."""

LOOP_PASSES: Final[tuple[LoopPass, ...]] = (
    collapse_loops,
    strip_mine,
    collapse_loops,
    block_rows,
    unroll_and_jam,
    parallelise,
)
"""In this order, on a program with the bodies of its loops and branches in their places."""

ANY_LENGTH_PASSES: Final[tuple[LoopPass, ...]] = (collapse_loops,)
"""In their place where lengths vary: no pass that is worth it for some lengths only."""

LAST: Final[tuple[LoopPass, ...]] = (insert_polls,)
"""After these, on the whole program: what a loop costs is known once its body is in its place."""


def optimise_loops(program: LoopProgram, *, check: bool = False) -> LoopProgram:
    """Return an equivalent program that is ready to be emitted.

    Parameters
    ----------
    program : LoopProgram
        As built.
    check : bool
        Verify the program as built, and after each pass that changes it.

    Raises
    ------
    VerifyError
        Where a pass broke a rule; it is named.
    """
    return _run((*(ANY_LENGTH_PASSES if lengths_vary() else LOOP_PASSES), *LAST), program, check)


def optimise_body(program: LoopProgram, *, check: bool = False) -> LoopProgram:
    """Return an equivalent program, which another one is to run; see `optimise_loops`."""
    return _run(ANY_LENGTH_PASSES if lengths_vary() else BODY_PASSES, program, check)


def _run(steps: tuple[LoopPass, ...], program: LoopProgram, check: bool) -> LoopProgram:
    if check:
        verify_loops(program, "build")
    for step in steps:
        before = program
        program = step(before)
        if check and program is not before:
            verify_loops(program, step.__name__)
    return program
