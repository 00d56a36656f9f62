"""From a graph to the text of an LLVM module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from gradtape.config import config
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.budget import budget
from gradtape.ir.graph import Graph, Node
from gradtape.ir.types import Aval
from gradtape.loops.ir import LoopProgram, Statement
from gradtape.loops.passes.pipeline import optimise_body, optimise_loops
from gradtape.loops.passes.strip_mine import LARGE as LARGE_RECORDS
from gradtape.loops.workspace import file_begin, plan_memory
from gradtape.lower.attribution import Item, NestSummary, all_makers, describe_nests
from gradtape.lower.building.builder import Builder
from gradtape.lower.building.context import BuildContext, LoopKernels, LoweredBody
from gradtape.lower.llvm.counters import counted
from gradtape.lower.llvm.function import FunctionEmitter, KernelModule
from gradtape.lower.llvm.module import WITH_BLAS, WITH_ERRORS, WITH_STACKS, add_kernel, emit_module
from gradtape.lower.llvm.profiled import NestTimer, timed_statements
from gradtape.lower.llvm.stacks import DRAIN
from gradtape.lower.llvm.writer import KERNEL
from gradtape.lower.resident.callbacks import Fallback, fallbacks
from gradtape.lower.resident.interrupts import RAISE
from gradtape.lower.schedule.order import Schedule, schedule
from gradtape.lower.schedule.outlined import TRIP_COUNT
from gradtape.passes.complex.graphs import split_complex
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import closed
from gradtape.passes.simplify.guards import substitute_guarded_numbers
from gradtape.procedures.ir import Procedure
from gradtape.records import value_record
from gradtape.transforms.loops.ops import Repeat, Scan, While
from gradtape.transforms.procedures.ops import ProcedureOp


@value_record
class LoweredProgram:
    """A kernel in LLVM's notation and what its caller needs to know.

    Attributes
    ----------
    ir_text : str
        The module.
    inputs, outputs : tuple of Aval
        What the pointers point to; the inputs are followed by the captured constants.
    constants : int
        How many constants follow the inputs.
    workspace_bytes : int
        Size of the workspace.
    file_from : int or None
        Where the part of the workspace begins that is in a scratch file; None where there is none.
    symbols : tuple of str
        Routines to bind at load, named ``module.function``; see `gradtape.lower.target.symbols.address_of`.
    estimated_cost : float
        Seconds that one run may take, roughly.
    drain : str or None
        The function of the module that gives back the memory which it keeps between calls.
    polls : bool
        Whether a signal may end a run.
    unrolls : bool
        Whether LLVM may unroll loops.
    explain : tuple of str
        What was fused and stored, and why.
    fallbacks : tuple of Fallback
        The rows that Python computes because there is no code for them.
    """

    ir_text: str
    inputs: tuple[Aval, ...]
    outputs: tuple[Aval, ...]
    constants: int
    workspace_bytes: int
    file_from: int | None
    symbols: tuple[str, ...]
    estimated_cost: float
    drain: str | None
    polls: bool
    unrolls: bool
    explain: tuple[str, ...]
    fallbacks: tuple[Fallback, ...]


ELEMENTS_PER_SECOND: Final = 1e9

ENDLESS: Final = 1.0
"""Seconds that a loop takes which ends when it ends, and a procedure."""


def lower(graph: Graph, kernels: LoopKernels | None = None) -> LoweredProgram:
    """Compile a graph as far as LLVM's notation.

    Parameters
    ----------
    graph : Graph
        What to compute.
    kernels : callable, optional
        Says where the kernels of loops are, which are not part of the program then.

    Raises
    ------
    LoweringError
        For dtypes that kernels do not know; the interpreter runs such graphs.
    CompileBudgetError
        Where a stage does not come to an end.
    """
    with budget(graph):
        return _lowered(graph, *_built(graph, kernels)[:2])


def lower_loop(graph: Graph) -> LoweredProgram:
    """Compile the graph of a loop alone, for any trip count; see `gradtape.lower.schedule.outlined`."""
    with budget(graph):
        program, plan, _ = _loops(graph, graph, BuildContext(_build_body, trip_count=TRIP_COUNT))
        return _lowered(graph, program, plan)


def _lowered(graph: Graph, program: LoopProgram, plan: Schedule) -> LoweredProgram:
    offsets, workspace = plan_memory(program)
    module = emit_module(program, offsets, lower_body)
    cost = _seconds(graph)
    return LoweredProgram(
        module.text(),
        tuple(value.aval for value in graph.inputs),
        tuple(value.aval for value in graph.outputs),
        len(graph.constants()),
        workspace,
        file_begin(offsets),
        tuple(module.symbols),
        cost,
        DRAIN if module.stacks else None,
        RAISE in module.symbols,
        module.unrolls,
        tuple(map(str, plan.explain)),  # without their nodes: caches keep them
        fallbacks(module.python_calls),
    )


def _seconds(graph: Graph) -> float:
    """Return what one run may take, roughly; a loop that a condition ends may take any time."""
    total = 0.0
    for node in graph.nodes:
        if isinstance(node.op, While | Repeat | ProcedureOp):
            return ENDLESS
        trips = node.params["length"] if isinstance(node.op, Scan) else 1
        total += sum(map(_seconds, bodies_of(node))) * trips
        total += max((value.size for value in node.outs), default=0) / ELEMENTS_PER_SECOND
    return total


@value_record
class ProfiledProgram:
    """A kernel that times itself, as `LoweredProgram`, and the contents of the timed nests."""

    ir_text: str
    symbols: tuple[str, ...]
    drain: str | None
    unrolls: bool
    nests: list[NestSummary]


def lower_profiled(graph: Graph) -> ProfiledProgram:
    """Compile a graph as far as the LLVM of a kernel that times itself."""
    program, plan, context = _profiled[graph] = _built(graph)
    offsets, _ = plan_memory(program)
    module = emit_module(program, offsets, lower_body, NestTimer(program).around)
    nests = describe_nests(program, context.makers, plan, module.procedures)
    drain = DRAIN if module.stacks else None
    text = counted(module.text(), KERNEL)
    return ProfiledProgram(text, tuple(module.symbols), drain, module.unrolls, nests)


@value_record
class LocatedProgram:
    """A program in all its forms, with what connects them.

    Attributes
    ----------
    graph : Graph
        After the passes.
    program : LoopProgram
        The loops.
    makers : dict of str to Node
        By the names of registers and buffers, the nodes of the graph and of its bodies for which they are there.
    procedures : list of (Procedure, Procedure)
        Those that are called, as they were and after the passes.
    scalar_makers : dict of str to (Procedure, dict)
        By function of a procedure: this, and by register the node or statement for which it is there.
    nests : list of NestSummary
        What is timed in a profiled kernel, and last what is outside.
    functions : list of tuple of str
        The functions of the module that compute these nests: for a routine none, and last those that the kernel itself consists of.
    ir_text : str
        The module.
    unrolls : bool
        Whether LLVM may unroll loops.
    notes : list of str
        Why loops are shared and values are stored, and why not.
    """

    graph: Graph
    program: LoopProgram
    makers: dict[str, Node]
    procedures: list[tuple[Procedure, Procedure]]
    scalar_makers: dict[str, tuple[Procedure, dict[str, Item]]]
    nests: list[NestSummary]
    functions: list[tuple[str, ...]]
    ir_text: str
    unrolls: bool
    notes: list[str]


_profiled: Final[WeakKeyDictionary[Graph, tuple[LoopProgram, Schedule, BuildContext]]] = WeakKeyDictionary()
"""The loops of graphs of which there is a kernel that times itself: who profiles a program may look at it next."""


def lower_located(graph: Graph) -> LocatedProgram:
    """Compile a graph as far as LLVM's notation, and keep what was made of what."""
    program, plan, context = _profiled.get(graph) or _built(graph)
    offsets, _ = plan_memory(program)
    called: dict[int, list[str]] = {}

    @contextmanager
    def noting_calls(kernel: FunctionEmitter, statement: Statement) -> Iterator[None]:
        before = len(kernel.lines)
        yield
        called[id(statement)] = _SYMBOL.findall("\n".join(kernel.lines[before:]))

    module = emit_module(program, offsets, lower_body, noting_calls)
    calls: dict[str, list[str]] = {}
    for function in module.functions:
        head, _, body = function.partition("\n")
        calls[_SYMBOL.findall(head)[0]] = _SYMBOL.findall(body)
    functions = [tuple(_reached(called[id(nest)], calls)) for nest in timed_statements(program)]
    functions.append((KERNEL, WITH_STACKS, WITH_ERRORS, WITH_BLAS))
    nests = describe_nests(program, context.makers, plan, module.procedures)
    makers = all_makers(context.makers, plan)
    notes = [*plan.explain, *plan.apart]
    return LocatedProgram(
        plan.graph,
        program,
        makers,
        module.procedures,
        module.scalar_makers,
        nests,
        functions,
        module.text(),
        module.unrolls,
        notes,
    )


_SYMBOL: Final = re.compile(r'@"?([\w.$]+)')


def _reached(names: Iterable[str], calls: Mapping[str, Sequence[str]]) -> dict[str, None]:
    """Return the functions of a module that are called, directly or by others."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in calls and name not in found:
            found[name] = None
            waiting += calls[name]
    return found


def lower_body(module: KernelModule, body: Body) -> tuple[str, int]:
    """Add the kernel of an array computation in a procedure to a module; return its symbol and the bytes of workspace that it needs."""
    program, _, _ = _built(body)
    offsets, workspace = plan_memory(program)
    return add_kernel(module, program, offsets), workspace


def schedule_of(graph: Graph) -> LoopProgram:
    """Return the loops that compute a graph."""
    return build_loops(graph)[0]


def build_loops(graph: Graph) -> tuple[LoopProgram, list[str]]:
    """Return the loops that compute a graph, and the reasons for their form."""
    program, plan, _ = _built(graph)
    return program, plan.explain


def _built(graph: Graph, kernels: LoopKernels | None = None) -> tuple[LoopProgram, Schedule, BuildContext]:
    graph = split_complex(substitute_guarded_numbers(closed(graph)))
    notes: list[str] = []
    optimised = optimise(graph, check=config.verify, notes=notes)
    program, plan, context = _in_strips(optimised, graph, kernels) or _loops(
        optimised, graph, BuildContext(_build_body, kernels)
    )
    plan.explain[:0] = notes
    return program, plan, context


def _in_strips(
    graph: Graph, traced: Graph, kernels: LoopKernels | None
) -> tuple[LoopProgram, Schedule, BuildContext] | None:
    """Return the loops of a graph, none of which is a kernel of its own, if their records are scratch of strips then; otherwise None."""
    records = sum(
        out.size * out.dtype.itemsize
        for node in graph.nodes
        if isinstance(node.op, Scan)
        for out in node.outs[node.params["carries"] :]
    )
    if kernels is None or records < LARGE_RECORDS:
        return None
    found = _loops(graph, traced, BuildContext(_build_body))
    return found if plan_memory(found[0])[1] < records // 2 else None


def _loops(graph: Graph, traced: Graph, context: BuildContext) -> tuple[LoopProgram, Schedule, BuildContext]:
    plan = schedule(graph, traced, outline=context.kernels is not None)
    builder = Builder(plan, context)
    program = optimise_loops(builder.build(graph.name), check=config.verify)
    plan.explain.extend(builder.notes)
    return program, plan, context


def _build_body(graph: Graph, carried: Mapping[int, int], prefix: str, context: BuildContext) -> LoweredBody:
    """Lower the body of a loop or a branch; see `BuildContext`."""
    traced = closed(graph)
    plan = schedule(traced, traced, carried, prefix)
    builder = Builder(plan, context)
    program = optimise_body(builder.build(graph.name), check=config.verify)
    in_place = {
        place
        for place, output in carried.items()
        if plan.storage[plan.by_value[traced.inputs[place]]].buffer is plan.outputs[output]
    }
    notes = [*map(str, plan.explain), *builder.notes]
    return LoweredBody(program.inputs, program.outputs, program.scratch, program.body, in_place, notes)
