"""From a graph to the text of an LLVM module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..ir.graph import Graph
from ..ir.types import Aval
from ..loops.batch import batch_rows
from ..loops.collapse import collapse
from ..loops.ir import Program
from ..passes.pipeline import optimise
from ..passes.rewrite import closed
from ..passes.split_complex import split_complex
from .build import Builder
from .memory import plan_memory
from .modules import KERNEL, emit_module
from .schedule import schedule
from .split import split_rows


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A kernel in LLVM's notation and what its caller needs to know.

    Attributes
    ----------
    ir_text : str
        The module.
    kernel_name : str
        Its function: ``int32_t (void **inputs, void **outputs, void *workspace)``.
    inputs, outputs : tuple of Aval
        What the pointers point to; the inputs are followed by the captured constants.
    constants : int
        How many constants follow the inputs.
    workspace_bytes : int
        Size of the workspace.
    symbols : tuple of str
        Routines to bind at load, named ``module.function``; see `gradtape.lower.symbols.address_of`.
    estimated_cost : float
        Seconds that one run may take, roughly.
    explain : tuple of str
        What was fused and stored, and why.
    """

    ir_text: str
    kernel_name: str
    inputs: tuple[Aval, ...]
    outputs: tuple[Aval, ...]
    constants: int
    workspace_bytes: int
    symbols: tuple[str, ...]
    estimated_cost: float
    explain: tuple[str, ...]


ELEMENTS_PER_SECOND: Final = 1e9


def lower(graph: Graph) -> LoweredProgram:
    """Compile a graph as far as LLVM's notation.

    Raises
    ------
    LoweringError
        For ops and dtypes that kernels do not know; the interpreter runs such graphs.
    """
    constants = graph.constants()
    program, explain = build_loops(graph)
    offsets, workspace = plan_memory(program)
    module = emit_module(program, offsets)
    cost = (
        sum(max((value.size for value in node.outs), default=0) for node in graph.nodes) / ELEMENTS_PER_SECOND
    )
    return LoweredProgram(
        module.text(),
        KERNEL,
        tuple(value.aval for value in graph.inputs),
        tuple(value.aval for value in graph.outputs),
        len(constants),
        workspace,
        tuple(module.symbols),
        cost,
        tuple(explain),
    )


def schedule_of(graph: Graph) -> Program:
    """Return the loops that compute a graph."""
    return build_loops(graph)[0]


def build_loops(graph: Graph) -> tuple[Program, list[str]]:
    """Return the loops that compute a graph, and the reasons for their form."""
    graph = split_complex(closed(graph))
    notes: list[str] = []
    plan = schedule(optimise(graph, notes=notes), graph)
    builder = Builder(plan.by_value, plan.sources)
    builder.block(plan.top)
    collapse(builder.body)
    program = Program(graph.name, plan.inputs, plan.outputs, plan.scratch, builder.body)
    return split_rows(batch_rows(program)), [*notes, *plan.explain]
