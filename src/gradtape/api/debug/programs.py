"""Programs of diagnoses: what a function computes op by op, with all loops unrolled, known from the calls before.

The program is that of functions of one code (`sharing`), and is traced anew where a change of what the function reads, or another way of
Python through it, needs another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any, Final, Generic, TypeVar

import numpy as np

from gradtape.api.debug.call import Call, replaced
from gradtape.api.debug.unrolled import UnrolledLoops, compute_op_by_op
from gradtape.api.transforms.jit import Jitted
from gradtape.api.transforms.recording import Recording
from gradtape.api.transforms.residual_programs import traced_number
from gradtape.api.transforms.sharing import MOST_BYTES, NOT_SHARED, SharedSite, program_of_calls
from gradtape.config import config
from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.op import NDArray
from gradtape.lru import LRU
from gradtape.runtime.compile.background import patient
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.signature import StaticArguments
from gradtape.trace.lazy.force import force
from gradtape.trace.source.contexts import compiled_trace
from gradtape.trees import TreeSpec, unflatten

MOST_NODES: Final = 2000
"""The size of functions, with all loops unrolled, of which programs are kept."""

_PLAIN: Final = (int, bool, str, type(None))
"""Arguments that are part of a program, as they are constants of a run op by op."""

T = TypeVar("T")

Analysis = Callable[[Recording, Callable[..., Any], Sequence[Any]], tuple[T, Sequence[Value]]]
"""``(recording, function, further)``: runs the function, and returns what belongs to the trace and what its program is to compute."""


class NotKept(Exception):
    """Raised where no program answers: the function runs op by op."""


class _Traces(Generic[T]):
    """What belongs to the traces of functions of one code, by the numbers that their programs return."""

    __slots__ = ("_numbers", "made")

    def __init__(self) -> None:
        self.made: LRU[int, T] = LRU(lambda: config.memory_cache)
        self._numbers = itertools.count()

    def add(self, one: T) -> int:
        """Add what belongs to a trace, and return its number."""
        number = next(self._numbers)
        self.made[number] = one
        return number


class _UnrolledSite(SharedSite):
    """Traces in which all loops of Python are unrolled, so that each has the nodes of its calls."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.translates = ""

    def _trace_translated(self, *_: Any) -> None:
        return None

    def _trace_dynamic(self, *_: Any) -> None:
        return None


def _compiled(
    run: Callable[..., Any], wrapped: Callable[..., Any], static: StaticArguments, _: Any
) -> Jitted[..., Any]:
    return Jitted(run, wrapped, static, _UnrolledSite)


class KnownCalls(Generic[T]):
    """Calls of a function by its kept program.

    Parameters
    ----------
    call : Call
    analyse : callable
        See `Analysis`.

    Raises
    ------
    NotKept
        Where there is no program.
    """

    def __init__(self, call: Call, analyse: Analysis[T]) -> None:
        # The operation of a ufunc has the line of its call, and calls of all lines share a program.
        if isinstance(call.function, np.ufunc | BuiltinFunctionType):
            raise NotKept
        if any(isinstance(leaf, Handle) for leaf in call.leaves):
            raise NotKept
        parts = tuple([(type(leaf), leaf) if type(leaf) in _PLAIN else None for leaf in call.leaves])
        traces: _Traces[T] = _Traces()
        run = _recorder(call.diagnosis, traces, parts, call.spec, call.kinds, analyse)
        program = program_of_calls((call.diagnosis, parts, call.spec), call.function, run, _compiled, traces)
        if program is None:
            raise NotKept
        self._function = call.function
        self._program, self._traces = program
        positions = [k for k, part in enumerate(parts) if part is None]
        self._leaves = [call.leaves[k] for k in positions]
        self._moving = [positions.index(k) for k in call.moving]

    def __call__(self, floats: Sequence[Any], further: Sequence[Any] = ()) -> tuple[T, Sequence[NDArray]]:
        """Return what belongs to the trace of a call, and what its program has computed."""
        leaves = replaced(self._leaves, self._moving, floats)
        with patient:
            found = self._program(self._function, *leaves, *further)
        if found is NOT_SHARED:
            raise NotKept
        one = self._traces.made.get(int(found[0]))
        if one is None:
            raise NotKept
        return one, found[1:]


def _recorder(
    diagnosis: str,
    traces: _Traces[T],
    parts: Sequence[Any],
    spec: TreeSpec,
    kinds: str,
    analyse: Analysis[T],
) -> Callable[..., Any]:
    """Return what is compiled of functions: of calls with parts of a structure, some of which are given."""
    positions = [k for k, part in enumerate(parts) if part is None]
    constants = [part if part is None else part[1] for part in parts]

    def run(function: Callable[..., Any], *leaves: Any) -> Any:
        arguments = replaced(constants, positions, leaves[: len(positions)])
        further = leaves[len(positions) :]
        moving = [
            k for k in positions if isinstance(arguments[k], Handle) and arguments[k].dtype.kind in kinds
        ]

        def of_floats(*floats: Any) -> Any:
            return function(*unflatten(spec, replaced(arguments, moving, floats)))

        with config.override(loops="trace", reroll=False):
            recording = Recording(f"gt.debug.{diagnosis}", tuple([arguments[k] for k in moving]))
            one, outputs = analyse(recording, of_floats, further)
        number = traced_number(traces.add(one), recording.sources)
        return (number, *[Array(value) for value in outputs])

    return run


def guard_ways(loops: UnrolledLoops) -> None:
    """Let the trace hold for calls alone in which loops and branches go the ways in which they were unrolled."""
    trace = compiled_trace()
    assert trace is not None
    decided = [*loops.conditions, *loops.counts]
    compute_op_by_op(decided)
    for value in decided:
        if trace in value.tags:
            trace.guard(value, int(np.asarray(value.data)), here.site)


def closed(
    recording: Recording, ends: Sequence[Value], loops: UnrolledLoops, *, with_constants: bool = False
) -> tuple[list[Node], list[Value]]:
    """Return the nodes behind the sources, without the numbers that unrolling has computed, and the leaves; those that compute constants
    as well, if `with_constants`.

    Raises
    ------
    ArgumentError
        If there is more than a program can keep.
    """
    trace = compiled_trace()
    assert trace is not None
    nodes, leaves = extract(
        ends, recording.sources, stop=lambda value: not with_constants and trace not in value.tags
    )
    force([leaf for leaf in leaves if leaf.node is not None])
    size = sum(leaf.data.nbytes for leaf in leaves if trace not in leaf.tags and leaf.data is not None)
    if (
        trace.has_general_ops
        or len(nodes) > MOST_NODES
        or recording.has_units
        or loops.reads_stacks
        or size > MOST_BYTES
    ):
        raise ArgumentError(f"{recording.caller}: the program is not kept")
    for node in nodes:
        for out in node.outs:
            if trace in out.tags:
                out.data = None
    return nodes, leaves


def depends_on_trace(value: Value) -> bool:
    """Return whether a value differs from call to call."""
    return compiled_trace() in value.tags
