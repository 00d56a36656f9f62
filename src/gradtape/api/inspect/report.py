"""The figures of a profile: functions, their kernels, the nests of these, and the lines of the user's code."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from gradtape.api.inspect.records import Metered, Record
from gradtape.ir.graph import Graph
from gradtape.lower.attribution import NestSummary
from gradtape.lower.llvm.counters import ENTRIES, ENTRY_TICKS, FIRST_NEST, KERNEL_TICKS, MISSES, RUNS

INTERPRETER: Final = "interpreter"
BETWEEN: Final = "between"
"""Kinds of nests that are none: work on the NumPy interpreter, and what a kernel does before, between and after its nests."""


@dataclass(frozen=True, slots=True)
class LineFigures:
    """The part of a nest that belongs to one line of the user's code.

    Attributes
    ----------
    filename, line : str and int
        Where; an empty name and 0 for what no line asked for.
    text : str
        The line.
    backward : bool
        Whether it is the derivative of the line, in reverse, that is computed.
    ops : tuple of str
        What is computed.
    share : float
        The estimated part of the nest's time: its loops run as one, so that this cannot be measured.
    """

    filename: str
    line: int
    text: str
    backward: bool
    ops: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class NestFigures:
    """One nest of loops, or one routine.

    Attributes
    ----------
    kind : str
        ``loop``, the name of a routine (``gemm``, ``argsort``, ``searchsorted``), ``interpreter``, or ``between``: what a kernel does
        before, between and after its nests.
    extents : tuple of tuple of int
        The trip counts of the loops, outermost first, for each innermost loop; 0 where only the run knows, and where `operations`, `moved`
        and `footprint` count one iteration.
    blocks : int
        Into how many blocks for threads the loop is cut.
    seconds, share : float
        The time, in all runs, and its part of the function's time in kernels and on the interpreter.
    operations : float
        Numbers computed in one run.
    moved : int
        Bytes loaded and stored in one run, from memory or from a cache.
    footprint : int
        Bytes of the arrays that one run touches.
    lines : tuple of LineFigures
        What the nest computes for which lines.
    """

    kind: str
    extents: tuple[tuple[int, ...], ...]
    blocks: int
    seconds: float
    share: float
    operations: float
    moved: int
    footprint: int
    lines: tuple[LineFigures, ...]


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """One compiled program, or what the interpreter ran.

    Attributes
    ----------
    signature : str
        What goes in and comes out.
    origin : str
        ``compiled``, ``disk`` or ``interpreter``.
    runs, misses : int
        How often it ran, and how often a guard did not hold.
    seconds : float
        In all runs.
    input_bytes, output_bytes : int
        Sizes of the arrays of one run.
    nests : tuple of NestFigures
        In the order in which they run.
    """

    signature: str
    origin: str
    runs: int
    misses: int
    seconds: float
    input_bytes: int
    output_bytes: int
    nests: tuple[NestFigures, ...]


@dataclass(frozen=True, slots=True)
class FunctionFigures:
    """One compiled function, or one line that asked a tape for numbers.

    Attributes
    ----------
    name, filename, line : str, str and int
        The function and where it begins, or the line that asked.
    tape : bool
        Whether it is such a line.
    calls, traces, misses, compiled : int
        How often it was called and traced, how often a guard did not hold, and how many programs were compiled or loaded.
    seconds, share : float
        The sum of the times below, and its part of that of all functions.
    kernel, interpreter, dispatch, trace, compile : float
        Seconds in machine code; on the NumPy interpreter; between the call and the kernel and back, recording on a tape included; in
        traces; and in compiling, or loading from disk.
    moved : int
        Bytes that its kernels loaded and stored, in all runs.
    kernels : tuple of KernelFigures
        By time.
    """

    name: str
    filename: str
    line: int
    tape: bool
    calls: int
    traces: int
    misses: int
    compiled: int
    seconds: float
    share: float
    kernel: float
    interpreter: float
    dispatch: float
    trace: float
    compile: float
    moved: int
    kernels: tuple[KernelFigures, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as numbers, strings, lists and dicts."""
        return asdict(self)


def figures(records: Iterable[Record], rate: float, cost: int) -> list[FunctionFigures]:
    """Return the figures of all functions that did anything.

    Parameters
    ----------
    records : iterable of Record
        What was noted.
    rate : float
        Seconds per tick of the kernels' clock.
    cost : int
        Ticks that reading it takes.
    """
    made = [_function(record, rate, cost) for record in records]
    made = [function for function in made if function.calls or function.seconds]
    total = sum(function.seconds for function in made) or 1.0
    return [replace(function, share=function.seconds / total) for function in made]


def _function(record: Record, rate: float, cost: int) -> FunctionFigures:
    """Return the figures of one function: its time is that of its calls, of its kernels and of what it compiled and traced."""
    spent = {kind: nanoseconds * 1e-9 for kind, nanoseconds in record.spent.items()}
    merged: dict[int, list[Metered]] = {}
    for (kernel, _), metered in list(record.programs.items()):
        merged.setdefault(kernel, []).append(metered)
    dispatch = spent.get("call", 0.0)
    calls = record.calls
    for metered in (one for group in merged.values() for one in group):
        counters = metered.profiled.counters
        if metered.nested:
            dispatch -= rate * counters[KERNEL_TICKS]
        else:
            calls += int(counters[ENTRIES])
            dispatch += rate * counters[ENTRY_TICKS]
    kernels = [kernel_figures(group, rate, cost) for group in merged.values()]
    in_kernels = sum(kernel.seconds for kernel in kernels)
    interpreter = spent.get("interpreter", 0.0)
    if record.interpreted:
        kernels.append(_interpreted(record, interpreter))
    whole = (in_kernels + interpreter) or 1.0
    trace, compiling = spent.get("trace", 0.0), spent.get("compile", 0.0)
    dispatch = max(dispatch, 0.0)
    return FunctionFigures(
        name=record.name,
        filename=record.filename,
        line=record.line,
        tape=record.tape,
        calls=calls,
        traces=record.traces,
        misses=sum(kernel.misses for kernel in kernels),
        compiled=record.compiled,
        seconds=in_kernels + interpreter + dispatch + trace + compiling,
        share=0.0,
        kernel=in_kernels,
        interpreter=interpreter,
        dispatch=dispatch,
        trace=trace,
        compile=compiling,
        moved=sum(kernel.runs * nest.moved for kernel in kernels for nest in kernel.nests),
        kernels=tuple(
            replace(k, nests=tuple(replace(nest, share=nest.seconds / whole) for nest in k.nests))
            for k in sorted(kernels, key=lambda kernel: -kernel.seconds)
            if k.runs
        ),
    )


def kernel_figures(group: Sequence[Metered], rate: float, cost: int) -> KernelFigures:
    """Return the figures of a kernel, without what reading the clock around its nests has taken."""
    program, described = group[0].program, group[0].profiled.nests
    counters = np.sum([one.profiled.counters for one in group], axis=0)
    runs = int(counters[RUNS])
    raw = [int(count) for count in counters[FIRST_NEST:]]
    between = max(int(counters[KERNEL_TICKS]) - sum(raw) - runs * cost * len(raw), 0)
    timed = [_nest(nest, rate * own) for nest, own in zip(described[:-1], raw, strict=True)]
    nests = [*timed, replace(_nest(described[-1], rate * between), kind=BETWEEN)]
    graph = program.graph
    return KernelFigures(
        signature(graph),
        program.kernel.origin,
        runs,
        int(counters[MISSES]),
        sum(nest.seconds for nest in nests),
        sum(value.size * value.dtype.itemsize for value in graph.inputs),
        sum(value.size * value.dtype.itemsize for value in graph.outputs),
        tuple(nests),
    )


def _nest(nest: NestSummary, seconds: float) -> NestFigures:
    lines = tuple(_line(site, ops, share) for site, ops, share in nest.lines)
    return NestFigures(
        nest.routine or "loop",
        nest.extents,
        nest.blocks,
        seconds,
        0.0,
        nest.operations,
        nest.moved,
        nest.footprint,
        lines,
    )


def _interpreted(record: Record, seconds: float) -> KernelFigures:
    total = sum(sum(elements) for *_, elements in record.lines.values()) or 1
    lines = tuple(
        _line(site, tuple(ops), sum(elements) / total)
        for _, (site, ops, elements) in sorted(record.lines.items(), key=lambda item: item[0])
    )
    nest = NestFigures(INTERPRETER, (), 0, seconds, 0.0, float(total), 0, 0, lines)
    return KernelFigures("", INTERPRETER, record.interpreted, 0, seconds, 0, 0, (nest,))


def _line(site: Any, ops: tuple[str, ...], share: float) -> LineFigures:
    if site is None:
        return LineFigures("", 0, "", False, ops, share)
    text = linecache.getline(site.filename, site.line).strip()
    return LineFigures(site.filename, site.line, text, bool(getattr(site, "backward", False)), ops, share)


def signature(graph: Graph) -> str:
    def names(values: Sequence[Any]) -> str:
        return ", ".join(repr(value.aval) for value in values)

    return f"({names(graph.inputs)}) -> ({names(graph.outputs)})"
