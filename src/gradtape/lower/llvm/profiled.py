"""Profiled kernels: the clock is read before and after each loop nest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradtape.loops.ir import LoopProgram, RoutineCall, Statement
from gradtape.lower.llvm.counters import FIRST_NEST, add
from gradtape.lower.llvm.function import FunctionEmitter
from gradtape.lower.llvm.module import NEST


def timed_statements(program: LoopProgram) -> list[Statement]:
    """Return the statements of a program that are timed, in the order of their counters."""
    return [statement for statement in program.body if isinstance(statement, NEST | RoutineCall)]


class NestTimer:
    """Writes instructions that add the time of each loop nest to its counter."""

    def __init__(self, program: LoopProgram) -> None:
        self._words = {id(statement): FIRST_NEST + k for k, statement in enumerate(timed_statements(program))}

    @contextmanager
    def around(self, kernel: FunctionEmitter, statement: Statement) -> Iterator[None]:
        """Time the instructions that are appended inside, if the statement is a nest or a routine."""
        word = self._words.get(id(statement))
        if word is None:
            yield
            return
        begin = kernel.let("call i64 @now()")
        yield
        end = kernel.let("call i64 @now()")
        for line in add(word, kernel.let(f"sub i64 {end}, {begin}"), begin):
            kernel.emit(line)
