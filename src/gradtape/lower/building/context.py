"""State that the builders of a program share with those of its bodies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from gradtape.ir.graph import Graph, Node
from gradtape.loops.ir import Buffer, Statement
from gradtape.records import frozen_record

LoopKernels: TypeAlias = Callable[[Graph], tuple[str, int]]
"""Returns the symbol of the kernel of an outlined loop's graph, and the bytes of workspace that it needs."""


@frozen_record
class LoweredBody:
    """The body of a loop or a branch as loops, over buffers of its own.

    Attributes
    ----------
    inputs, outputs, scratch : sequence of Buffer
        Its buffers.
    statements : list of Statement
        What one iteration runs.
    in_place : set of int
        The inputs that it replaces by the outputs that become them.
    notes : list of str
        Why it has this form.
    """

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    scratch: Sequence[Buffer]
    statements: list[Statement]
    in_place: set[int]
    notes: list[str]


@frozen_record
class BuildContext:
    """How bodies are lowered, and the names that are taken.

    Attributes
    ----------
    lower_body : callable
        ``(graph, carried, prefix, context) -> LoweredBody`` for the body of a loop or a branch. `carried` has the outputs that become
        inputs of the next iteration, by these inputs; the names of its buffers begin with `prefix`.
    kernels : callable or None
        Where the kernels of outlined loops are; without it loops are part of the program.
    trip_count : Buffer or None
        For the kernel of an outlined loop, the memory in which it finds its trip count.
    names : iterator of int
        Numbers for names.
    makers : dict of str to Node
        By name, the node for which something is computed.
    """

    lower_body: LowerBody
    kernels: LoopKernels | None = None
    trip_count: Buffer | None = None
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    makers: dict[str, Node] = field(default_factory=dict)

    def of_body(self) -> BuildContext:
        """Return the context of a body: its loops are not outlined."""
        return BuildContext(self.lower_body, None, None, self.names, self.makers)


LowerBody: TypeAlias = Callable[[Graph, Mapping[int, int], str, BuildContext], LoweredBody]
