"""Programs: a graph, its kernel, and its captured arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import prod
from typing import Any, Final, Protocol

import numpy as np
from numpy import asarray

from gradtape.collector import collector_paused
from gradtape.config import config
from gradtape.errors import InternalError
from gradtape.ir.body import bodies_of
from gradtape.ir.budget import graph_size, steps_since_now
from gradtape.ir.evaluate import Stopped, compute_values, stopped_when
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.op import NDArray
from gradtape.lower.resident.interrupts import INTERRUPTED, raise_interruption
from gradtape.passes.simplify.annotations import inline_custom_calls
from gradtape.progress import counting
from gradtape.runtime.call.convention import ArraySpec, CallForm
from gradtape.runtime.call.entry import NativeFunction, bind
from gradtape.runtime.compile.background import (
    PATIENCE,
    SECONDS_PER_NODE,
    Compilation,
    compilation_of,
    share_of_interpreter,
)
from gradtape.runtime.compile.cache import is_stored
from gradtape.runtime.compile.kernel import (
    Kernel,
    compile_graph,
    compile_symbolic,
    is_local,
    kernel_for,
    kernels,
    warn_of,
)
from gradtape.runtime.compile.loader import KernelCode, LoadedModule, call_flat
from gradtape.runtime.interpret import missed_guards
from gradtape.runtime.memory.pool import empty_results, empty_workspace
from gradtape.scratch import workspace_with_file
from gradtape.transforms.call import without_data
from gradtape.transforms.procedures.ops import ProcedureOp
from gradtape.transforms.reroll.roll import without_data_rolled


class Profiler(Protocol):
    """The events that a profiler observes."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of a jitted function that machine code has refused."""

    def machine_code(self, site: Any, program: Program, *, nested: bool) -> LoadedModule | None:
        """Return the machine code to bind for a jitted function in place of a program's own."""

    def is_linked(self, function: Any) -> bool:
        """Return whether a jitted function has been called, so that machine code that times itself answers it."""

    def run(self, program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run a program as a profiled kernel."""

    def compiled(self, seconds: float) -> None:
        """A kernel was compiled or loaded."""

    def interpreting(self, nodes: Sequence[Node]) -> AbstractContextManager[None]:
        """The interpreter evaluates nodes."""

    def tracing(self, site: Any) -> AbstractContextManager[None]:
        """A jitted function is traced."""

    def forcing(self, place: Any) -> AbstractContextManager[None]:
        """A line of the user's code materialises pending values."""

    def unconnected(self, tape: Any, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """A tape has found no path from sources to targets."""


class _Active:
    """The active profiler, if there is one."""

    __slots__ = ("profiler",)

    def __init__(self) -> None:
        self.profiler: Profiler | None = None


ACTIVE: Final = _Active()


class GuardMiss(Exception):
    """A guard has missed: a value that the trace depends on differs in this call."""

    def __init__(self, guard: int, actual: int) -> None:
        super().__init__(guard, actual)
        self.guard = guard
        self.actual = actual


class Program:
    """A graph that can be run: by its kernel, or by the interpreter where there is none.

    Parameters
    ----------
    graph : Graph
        Inputs, outputs, guards; its constants' data are those of this program.
    kernel : Kernel or Compilation
        Shared with other programs of the same fingerprint. Until a thread has compiled it, the interpreter runs the graph.
    was_known : bool
        Whether the kernel was in memory when the program was made.

    Attributes
    ----------
    interpreted : int
        How many runs the interpreter has answered before the kernel was there.
    """

    __slots__ = (
        "_compilation",
        "_constants",
        "_is_native",
        "_kernel",
        "_native",
        "_results",
        "_scalars",
        "_when_compiled",
        "graph",
        "interpreted",
        "was_known",
    )

    def __init__(self, graph: Graph, kernel: Kernel | Compilation[Kernel], was_known: bool = False) -> None:
        self.graph = graph
        self.was_known = was_known
        self._compilation: Compilation[Kernel] | None = None
        self._kernel = kernel if isinstance(kernel, Kernel) else _IN_THE_MAKING
        if isinstance(kernel, Compilation):
            self._compilation = kernel
        self._is_native = False
        self._when_compiled: list[Callable[[], object]] = []
        self.interpreted = 0
        self._results = [(value.shape, value.dtype) for value in graph.outputs]
        self._constants: list[Any] = [np.ascontiguousarray(value.data) for value in graph.constants()]
        self._native: Callable[..., Any] | None = None
        self._scalars = any(not shape for shape, _ in self._results)

    @property
    def kernel(self) -> Kernel:
        """The kernel; where a thread compiles it, it is waited for."""
        compilation = self._compilation
        if compilation is not None:
            self._take(compilation)
        return self._kernel

    @property
    def kernel_so_far(self) -> Kernel:
        """The kernel, or what to say about it while a thread compiles it."""
        compilation = self._compilation
        if compilation is None or compilation.is_over:
            return self.kernel
        if not compilation.is_requested:
            return _IN_THE_MAKING
        seconds = compilation.seconds
        return _IN_THE_MAKING._replace(
            seconds=seconds, reason=f"has been compiled by a thread for {seconds:.1f} s"
        )

    @property
    def is_in_the_making(self) -> bool:
        """Whether a thread compiles the kernel."""
        return self._compilation is not None

    def when_compiled(self, do: Callable[[], object]) -> None:
        """Call a function once the kernel is there and has been noticed, by the next run."""
        self._when_compiled.append(do)
        if self._compilation is None:
            self._notify()

    def _take(self, compilation: Compilation[Kernel]) -> None:
        """Run the kernel from now on."""
        self._kernel = compilation.result()
        self._compilation = None
        if self._is_native:
            self.enter_natively()
        self._notify()
        warn_of(self._kernel, self.graph)

    def _notify(self) -> None:
        while self._when_compiled:
            with suppress(IndexError):  # another thread has called it
                self._when_compiled.pop()()

    def _run_meanwhile(self, arrays: Sequence[NDArray], compilation: Compilation[Kernel]) -> list[NDArray]:
        """Compute the outputs on the interpreter, unless the kernel is there before these are."""
        if compilation.per_step:
            return self._run_counted(arrays, compilation)
        since, patience = time.perf_counter(), PATIENCE

        def is_overtaken() -> bool:
            nonlocal since, patience
            now = time.perf_counter()
            compilation.note_interpreting(now - since)
            is_over = compilation.wait_for_share(patience)
            since = time.perf_counter()
            patience -= since - now
            return is_over

        if not (compilation.is_requested and compilation.wait(0.0)):
            with suppress(Stopped), stopped_when(is_overtaken):
                outputs = self._interpret(arrays)
                compilation.note_interpreting(time.perf_counter() - since)
                self.interpreted += 1
                return outputs
        self._take(compilation)
        return self.run(arrays)

    def _run_counted(self, arrays: Sequence[NDArray], compilation: Compilation[Kernel]) -> list[NDArray]:
        """Compute the outputs on the interpreter, or compile if it has computed enough nodes."""
        steps, left, may_stop = 0, compilation.steps_left(), compilation.may_stop

        def is_enough() -> bool:
            nonlocal steps
            steps += 1
            return may_stop and steps > left

        if left > 0 and not compilation.is_over:
            try:
                with suppress(Stopped), stopped_when(is_enough):
                    outputs = self._interpret(arrays)
                    self.interpreted += 1
                    return outputs
            finally:
                compilation.note_steps(steps)
        self._take(compilation)
        return self.run(arrays)

    def run(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Compute the outputs.

        Parameters
        ----------
        arrays : sequence of ndarray
            One per input: aligned, native.

        Returns
        -------
        list of ndarray
            Fresh arrays.

        Raises
        ------
        GuardMiss
            Where a guard does not hold.
        InternalError
            For another number of arrays: machine code would read what stands behind them.
        """
        profiler = ACTIVE.profiler
        if profiler is not None:
            return profiler.run(self, arrays)
        if self._compilation is not None:
            return self._run_meanwhile(arrays, self._compilation)
        if self._native is not None:
            outputs = self._native(*arrays)
            if outputs is not None:
                return list(map(asarray, outputs)) if self._scalars else outputs
        return self.compute(arrays, self.kernel.loaded)

    def enter_natively(self) -> None:
        """Use the native entry, which takes arrays as positional arguments, from now on."""
        self._is_native = True
        signature = self._kernel.signature
        if signature is not None and not signature.keeps_workspace:
            self._native = self.bind(_refused, ())

    def compute(self, arrays: Sequence[NDArray], loaded: KernelCode | None) -> list[NDArray]:
        """Compute the outputs with this machine code, or on the interpreter where it is None."""
        kernel = self.kernel
        if loaded is None:
            return self._interpret(arrays)
        outputs = empty_results(self._results)
        if len(arrays) != len(self.graph.inputs):
            raise InternalError(f"a program of {len(self.graph.inputs)} arrays was given {len(arrays)}")
        # What the interpreter computed may be a view.
        inputs = [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in arrays]
        with _workspace(kernel) as workspace:
            status = call_flat(loaded, [*inputs, *self._constants], outputs, workspace)
            missed = int(workspace[:8].view(np.int64)[0]) if status > 0 else 0
            del workspace  # the interpreter may need the memory
        if status == INTERRUPTED:
            raise_interruption()
        if status > 0:
            raise GuardMiss(status - 1, missed)
        return outputs if status == 0 else self._interpret(arrays)

    def run_unguarded(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Compute the outputs by NumPy, whatever the guards come to."""
        return self._outputs(compute_values(self.graph, arrays))

    def _interpret(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        computed = compute_values(self.graph, arrays)
        for guard, actual in missed_guards(self.graph, computed):
            raise GuardMiss(guard, actual)
        return self._outputs(computed)

    def _outputs(self, computed: dict[Value, NDArray]) -> list[NDArray]:
        return [np.array(computed.get(value, value.data)) for value in self.graph.outputs]

    def bind(
        self, fallback: Callable[..., Any], statics: Sequence[object], loaded: LoadedModule | None = None
    ) -> NativeFunction | None:
        """Return a native function for calls of the form it was compiled for; `fallback` gets all others.

        `loaded` is machine code to be used in place of the program's own.
        """
        kernel = self.kernel
        if kernel.loaded is None or kernel.signature is None:
            return None
        return bind(loaded or kernel.loaded, kernel.signature, fallback, self._constants, statics=statics)


def _workspace(kernel: Kernel) -> AbstractContextManager[NDArray]:
    """Return the context in which a kernel has its scratch memory."""
    if kernel.file_from is None:
        return nullcontext(empty_workspace(kernel.workspace))
    return workspace_with_file(kernel.workspace, kernel.file_from)


def _refused(*arrays: NDArray) -> None:
    """Answer a call that the native entry refuses: with None."""


SMALL: Final = 65536
"""Bytes of arguments and results up to which the program of a tape has a native entry: it saves some 4 us of each run."""


def tape_program(graph: Graph) -> Program:
    """Return the program of a tape's graph, which is run from Python."""
    inputs = tuple([ArraySpec(value.dtype, value.shape) for value in graph.inputs])
    outputs = tuple([ArraySpec(value.dtype, value.shape) for value in graph.outputs])
    specs = (*inputs, *outputs)
    if sum(spec.nbytes for spec in specs) > SMALL or any(spec.dtype.kind not in "biufc" for spec in specs):
        return program_for(graph)
    program = program_for(graph, CallForm(inputs, outputs, list(range(len(outputs)))))
    program.enter_natively()
    return program


MOST_KEPT: Final = 1 << 28
"""Bytes of values up to which a program is interpreted first where calls compile; kernels need a small part of them."""


def program_for(graph: Graph, form: CallForm | None = None, shapes: str | None = None) -> Program:
    """Return the program of a graph: from memory, from the disk, or compiled now.

    Parameters
    ----------
    graph : Graph
        What to run.
    form : CallForm, optional
        How a jitted function is called; with it the kernel gets a native entry.
    shapes : {"exact", "symbolic"}, optional
        Whether arrays of other lengths have machine code of their own. By default as ``gt.config.shapes``, of which ``"auto"`` is exact
        here: it is for jitted functions, which know their lengths.
    """
    print_ = fingerprint(graph)
    if shapes is None:
        shapes = "symbolic" if config.shapes == "symbolic" else "exact"
    key = f"{print_}:{form}:{config.precise_math}:{config.compiler}:{shapes}"
    share = share_of_interpreter()
    if share.part and key not in kernels and ACTIVE.profiler is None and not is_stored(key):
        may_stop = _may_be_interpreted(graph)
        may_run = may_stop or (share.is_counted and _may_run_to_the_end(graph))
        if may_run and not (share.is_counted and _size_of_values(graph) > MOST_KEPT):

            def build() -> Kernel:
                return kernels.get(key, lambda: _kernel(graph, form, key, shapes))

            compilation = compilation_of(
                key,
                build,
                expected=SECONDS_PER_NODE * graph_size(graph),
                share=share.part,
                may_stop=may_stop,
                per_step=_seconds_per_step(graph) if share.is_counted else 0.0,
            )
            return Program(graph, compilation)
    made: list[Kernel] = []

    def make() -> Kernel:
        made.append(_compiled(graph, form, key, shapes))
        return made[0]

    kernel = kernels.get(key, make)
    return Program(graph, kernel, was_known=not made)


def part_program(graph: Graph, form: CallForm | None = None) -> Program:
    """Return the program of a part of another one, without progress bars or warnings: the whole has had them."""
    key = f"{fingerprint(graph)}:{form}:{config.precise_math}:{config.compiler}:exact"
    return Program(graph, kernels.get(key, lambda: _kernel(graph, form, key, "exact")))


def _may_be_interpreted(graph: Graph) -> bool:
    """Return whether the interpreter may run a graph in place of its kernel, and be stopped: it cannot be stopped inside a procedure,
    and must not where a function of the user's would be called twice.
    """
    return not is_local(graph.nodes) and not _has_procedure(graph.nodes)


def _seconds_per_step(graph: Graph) -> float:
    """Return what the interpreter is expected to take for a node."""
    return 5e-6 + _size_of_values(graph) / max(len(graph.nodes), 1) / 1e9


def _size_of_values(graph: Graph) -> int:
    """Return how many bytes the interpreter keeps: it drops no value before the end."""
    return sum(prod(out.shape) * out.dtype.itemsize for node in graph.nodes for out in node.outs)


def _may_run_to_the_end(graph: Graph) -> bool:
    """Return whether the interpreter may run a graph that cannot be stopped: it has no loops."""
    return not any(isinstance(node.op, ProcedureOp) or any(bodies_of(node)) for node in graph.nodes)


def _has_procedure(nodes: Iterable[Node]) -> bool:
    return any(
        isinstance(node.op, ProcedureOp) or any(_has_procedure(body.nodes) for body in bodies_of(node))
        for node in nodes
    )


def record_program(graph: Graph) -> Program:
    """Return the program of pending values: user-defined derivatives are opened, the record is dropped, loops are rerolled."""
    graph = inline_custom_calls(graph)
    return tape_program(without_data_rolled(graph) if config.reroll else without_data(graph))


_IN_THE_MAKING: Final = Kernel(
    None, None, 0, "background", 0.0, (), "is compiled if it is called often", keys=()
)


def _kernel(graph: Graph, form: CallForm | None, key: str, shapes: str) -> Kernel:
    compile_ = compile_symbolic if shapes == "symbolic" else compile_graph
    with collector_paused():
        return kernel_for(lambda: graph, form, key, compile_)


def _compiled(graph: Graph, form: CallForm | None, key: str, shapes: str) -> Kernel:
    """Compile or load the kernel of a graph."""
    with counting(f"compiling {graph.name}", "step", steps_since_now()):
        kernel = _kernel(graph, form, key, shapes)
    warn_of(kernel, graph)
    profiler = ACTIVE.profiler
    if profiler is not None:
        profiler.compiled(kernel.seconds)
    return kernel
