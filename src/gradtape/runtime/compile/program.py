"""Programs: a graph, the kernel that computes it, and the arrays that it captured."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy import asarray

from gradtape.config import config
from gradtape.errors import CompileWarning, GradtapeError, InternalError, LoweringError, warn
from gradtape.ir.budget import steps_since_now
from gradtape.ir.evaluate import compute_values
from gradtape.ir.fingerprint import fingerprint, structure
from gradtape.ir.graph import Graph, Node
from gradtape.ir.op import NDArray
from gradtape.lower.resident.interrupts import INTERRUPTED, raise_interruption
from gradtape.lower.target.symbols import addresses_of
from gradtape.passes.simplify.annotations import open_custom_calls
from gradtape.progress import counting
from gradtape.runtime.call.entry import NativeFunction, add_entry, bind, load
from gradtape.runtime.call.entry_ir import in_arena
from gradtape.runtime.call.signature import ArraySpec, ScalarSpec, Signature, StaticSpec, Structure
from gradtape.runtime.collector import uncollected
from gradtape.runtime.compile.cache import CachedObject, MemoryCache, cached_object
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.loader import KernelCode, LoadedModule, call_flat
from gradtape.runtime.interpret import missed_guards
from gradtape.runtime.memory.result_pool import empty_results
from gradtape.runtime.memory.scratch import give_back, take
from gradtape.transforms.call import without_data
from gradtape.transforms.reroll.roll import without_data_rolled


class Profiler(Protocol):
    """What is told of programs while it is active."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of a jitted function that machine code did not take."""

    def machine_code(self, site: Any, program: Program, *, nested: bool) -> LoadedModule | None:
        """Return what is to be bound for a jitted function in place of a program's own machine code."""

    def run(self, program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run a program in its own way."""

    def compiled(self, seconds: float) -> None:
        """Take note that a kernel was compiled or loaded."""

    def interpreting(self, nodes: Sequence[Node]) -> AbstractContextManager[None]:
        """Take note of work on the interpreter."""

    def tracing(self, site: Any) -> AbstractContextManager[None]:
        """Take note of a trace of a jitted function."""

    def forcing(self, place: Any) -> AbstractContextManager[None]:
        """Take note that pending work is done now, because a line of the user's code asks for it."""


class _Active:
    """The profiler, if one is looking on."""

    __slots__ = ("profiler",)

    def __init__(self) -> None:
        self.profiler: Profiler | None = None


ACTIVE: Final = _Active()

LOOP: Final = "gradtape.loop."
"""What the symbols of loops' kernels begin with."""

KERNEL: Final = "kernel"
"""The function of a loop's kernel."""

GIL_SECONDS: Final = 5e-6
"""Estimated time above which a kernel lets other threads run: taking the lock back costs about a tenth of it."""


class GuardMiss(Exception):
    """A value that Python looked at while tracing is another one in this call."""

    def __init__(self, guard: int, actual: int) -> None:
        super().__init__(guard, actual)
        self.guard = guard
        self.actual = actual


class CallForm(NamedTuple):
    """How a jitted function is called and returns: what a native entry needs to know besides the kernel."""

    arguments: tuple[ArraySpec | ScalarSpec | StaticSpec, ...]
    outputs: tuple[ArraySpec, ...]
    structure: Structure


class Kernel(NamedTuple):
    """Machine code for every graph of one fingerprint.

    Attributes
    ----------
    loaded : LoadedModule or None
        None where the graph could not be compiled; `reason` says why.
    signature : Signature or None
        Of the native entry, if there is one.
    workspace : int
        Bytes of scratch memory.
    origin : str
        ``"compiled"``, ``"disk"`` or ``"interpreter"``.
    seconds : float
        What it took to compile or load.
    notes : tuple of str
        What the scheduler decided, and why.
    """

    loaded: LoadedModule | None
    signature: Signature | None
    workspace: int
    origin: str
    seconds: float
    notes: tuple[str, ...] = ()
    reason: str = ""


class Program:
    """A graph that can be run: by its kernel, or by the interpreter where there is none.

    Parameters
    ----------
    graph : Graph
        Inputs, outputs, guards; its constants' data are those of this program.
    kernel : Kernel
        Shared with other programs of the same fingerprint.
    """

    __slots__ = ("_constants", "_native", "_results", "_scalars", "graph", "kernel")

    def __init__(self, graph: Graph, kernel: Kernel) -> None:
        self.graph = graph
        self.kernel = kernel
        self._results = [(value.shape, value.dtype) for value in graph.outputs]
        self._constants: list[Any] = [np.ascontiguousarray(value.data) for value in graph.constants()]
        self._native: Callable[..., Any] | None = None
        self._scalars = any(not shape for shape, _ in self._results)

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
        if self._native is not None:
            outputs = self._native(*arrays)
            if outputs is not None:
                return list(map(asarray, outputs)) if self._scalars else outputs
        return self.compute(arrays, self.kernel.loaded)

    def enter_natively(self) -> None:
        """Let the machine code's native entry, which takes arrays one by one, serve from now on."""
        signature = self.kernel.signature
        if signature is not None and not in_arena(signature):
            self._native = self.bind(_refused, ())

    def compute(self, arrays: Sequence[NDArray], loaded: KernelCode | None) -> list[NDArray]:
        """Do what `run` does with this machine code, or on the interpreter where it is None."""
        kernel = self.kernel
        if loaded is None:
            return self._interpret(arrays)
        outputs = empty_results(self._results)
        scratch = take(kernel.workspace)
        if len(arrays) != len(self.graph.inputs):
            raise InternalError(f"a program of {len(self.graph.inputs)} arrays was given {len(arrays)}")
        # What the interpreter computed may be a view.
        inputs = [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in arrays]
        status = call_flat(loaded, [*inputs, *self._constants], outputs, scratch)
        missed = int(scratch[:8].view(np.int64)[0]) if status > 0 else 0
        give_back(scratch)
        if status == INTERRUPTED:
            raise_interruption()
        if status > 0:
            raise GuardMiss(status - 1, missed)
        return outputs if status == 0 else self._interpret(arrays)

    def _interpret(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        computed = compute_values(self.graph, arrays)
        for guard, actual in missed_guards(self.graph, computed):
            raise GuardMiss(guard, actual)
        return [np.array(computed.get(value, value.data)) for value in self.graph.outputs]

    def bind(
        self, fallback: Callable[..., Any], statics: Sequence[object], loaded: LoadedModule | None = None
    ) -> NativeFunction | None:
        """Return a native callable that answers calls of the form it was compiled for and hands all others to `fallback`.

        `loaded` is machine code to be used in place of the program's own.
        """
        kernel = self.kernel
        if kernel.loaded is None or kernel.signature is None:
            return None
        return bind(loaded or kernel.loaded, kernel.signature, fallback, self._constants, statics=statics)


def _refused(*arrays: NDArray) -> None:
    """Answer for a native entry that does not take these arrays."""


_kernels: Final[MemoryCache[Kernel]] = MemoryCache()
"""Machine code by fingerprint and form: shared by tapes, decorated functions and nested gradients."""


SMALL: Final = 65536
"""Bytes of arguments and results up to which a tape's work has a native entry: it saves some 4 us of each run."""


def tape_program(graph: Graph) -> Program:
    """Return the program of a tape's work, which is run from Python."""
    inputs = tuple([ArraySpec(value.dtype, value.shape) for value in graph.inputs])
    outputs = tuple([ArraySpec(value.dtype, value.shape) for value in graph.outputs])
    specs = (*inputs, *outputs)
    if sum(spec.nbytes for spec in specs) > SMALL or any(spec.dtype.kind not in "biufc" for spec in specs):
        return program_for(graph)
    program = program_for(graph, CallForm(inputs, outputs, list(range(len(outputs)))))
    program.enter_natively()
    return program


class _Sighting(NamedTuple):
    """A structure that a tape has computed: its program once it has come again."""

    program: Program | None
    precise: bool


_sightings: Final[OrderedDict[Any, _Sighting]] = OrderedDict()


def program_for(graph: Graph, form: CallForm | None = None) -> Program:
    """Return the program of a graph: from memory, from the disk, or compiled now.

    Parameters
    ----------
    graph : Graph
        What to run.
    form : CallForm, optional
        How a jitted function is called; with it the kernel gets a native entry.
    """
    print_ = fingerprint(graph)
    key = f"{print_}:{form}:{config.precise_math}"
    return Program(graph, _kernels.get(key, lambda: _kernel(graph, form, key)))


def repeated_program(graph: Graph, *, at_once: Callable[[], bool]) -> Program | None:
    """Return the program of a structure that has been seen before, or that is heavy; None for another one.

    Parameters
    ----------
    graph : Graph
        A tape's pending work, without constants.
    at_once : callable
        Whether it is heavy enough to be compiled at first sight.
    """
    key: Any = structure(graph.inputs, graph.nodes, graph.outputs) or fingerprint(graph)
    known = _sightings.get(key)
    if known is None or known.program is None or known.precise != config.precise_math:
        program = None if known is None and not at_once() else tape_program(_to_compile(graph))
        known = _sightings[key] = _Sighting(program, config.precise_math)
        while len(_sightings) > config.memory_cache:
            _sightings.popitem(last=False)
    _sightings.move_to_end(key)
    return known.program


def _to_compile(graph: Graph) -> Graph:
    """Return a graph as it is compiled for a tape: without the record, the user's derivatives, and with loops."""
    graph = open_custom_calls(graph)
    return without_data_rolled(graph) if config.reroll else without_data(graph)


def _kernel(graph: Graph, form: CallForm | None, key: str) -> Kernel:
    """Load a graph's machine code from the disk, or compile it; without either, the interpreter stands in."""
    with uncollected(), counting(f"compiling {graph.name}", "step", steps_since_now()):
        kernel = _found(lambda: graph, form, key, _compile)
    profiler = ACTIVE.profiler
    if profiler is not None:
        profiler.compiled(kernel.seconds)
    return kernel


def _found(
    graph_of: Callable[[], Graph],
    form: CallForm | None,
    key: str,
    compile_: Callable[[Graph, CallForm | None], CachedObject],
) -> Kernel:
    begin = time.perf_counter()
    compiled = False

    def build() -> CachedObject:
        nonlocal compiled
        compiled = True
        return compile_(graph_of(), form)

    try:
        found = cached_object(key, build)
        kernel = _loaded(graph_of, form, found)
    except LoweringError as error:
        return Kernel(None, None, 0, "interpreter", time.perf_counter() - begin, (), error.what)
    except Exception as error:  # what LLVM says of a module that it cannot compile, or a defect: the interpreter has the answer
        if is_of_interruption(error):
            raise KeyboardInterrupt from error
        reason, remedy = _reason(error)
        warn(
            CompileWarning,
            f"{graph_of().name} could not be compiled and runs on the interpreter",
            why=reason,
            remedy=remedy,
        )
        return Kernel(None, None, 0, "interpreter", time.perf_counter() - begin, (), reason)
    origin = "compiled" if compiled else "disk"
    return kernel._replace(origin=origin, seconds=time.perf_counter() - begin)


def is_of_interruption(error: BaseException) -> bool:
    """Return whether an error came up while Ctrl-C was handed on, as it can in Python's own `threading`: it says nothing of the graph."""
    seen: BaseException | None = error if isinstance(error, RuntimeError) else None
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    return seen is not None


def _reason(error: Exception) -> tuple[str, str]:
    """Return why a graph could not be compiled, and what to do."""
    remedy = "nothing, if the speed does not matter; please report it"
    if isinstance(error, GradtapeError):
        return ": ".join(filter(None, (error.what, error.why))), error.remedy or remedy
    return (str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"), remedy


def _compile(graph: Graph, form: CallForm | None) -> CachedObject:
    from gradtape.lower.pipeline import (
        lower,  # late: a process that finds its kernels on disk starts 10 ms sooner
    )

    loops: dict[str, None] = {}
    notes: list[str] = []

    def kernel_of(loop: Graph) -> tuple[str, int]:
        symbol = f"{LOOP}{fingerprint(loop)}"
        loops[symbol] = None
        kernel = _loop_kernel(symbol, lambda: loop)
        if kernel.loaded is None:
            raise LoweringError(kernel.reason)
        notes.extend(kernel.notes)
        return symbol, kernel.workspace

    lowered = lower(graph, kernel_of)
    heavy = lowered.estimated_cost > GIL_SECONDS
    signature = _signature(graph, form, lowered.workspace_bytes, heavy, lowered.polls)
    text = (
        lowered.ir_text
        if signature is None
        else add_entry(lowered.ir_text, signature, kernel=lowered.kernel_name)
    )
    facts = {
        "workspace": lowered.workspace_bytes,
        "heavy": heavy,
        "kernel": lowered.kernel_name,
        "symbols": [symbol for symbol in lowered.symbols if symbol not in loops],
        "loops": list(loops),
        "drain": lowered.drain,
        "polls": lowered.polls,
        "notes": [*lowered.explain, *notes],
    }
    return CachedObject(compile_object(text, lowered.kernel_name), metadata=facts)


def _loop_kernel(symbol: str, graph_of: Callable[[], Graph]) -> Kernel:
    """Return the kernel of a loop alone, for any number of turns: from memory, from the disk, or compiled now."""
    key = f"{symbol}:{config.precise_math}"
    return _kernels.get(key, lambda: _found(graph_of, None, key, _compile_loop))


def _compile_loop(graph: Graph, form: CallForm | None) -> CachedObject:
    from gradtape.lower.pipeline import lower_loop

    lowered = lower_loop(graph)
    facts = {
        "workspace": lowered.workspace_bytes,
        "heavy": True,
        "kernel": lowered.kernel_name,
        "symbols": list(lowered.symbols),
        "loops": [],
        "drain": lowered.drain,
        "polls": lowered.polls,
        "notes": list(lowered.explain),
    }
    return CachedObject(compile_object(lowered.ir_text, "loop"), metadata=facts)


def _loop_of(graph_of: Callable[[], Graph], wanted: str) -> Graph:
    """Return the graph of a loop that a program calls: for a program that is on the disk without its loops."""
    from gradtape.lower.pipeline import lower

    found: dict[str, Graph] = {}

    def note(loop: Graph) -> tuple[str, int]:
        symbol = f"{LOOP}{fingerprint(loop)}"
        found[symbol] = loop
        return symbol, 0

    lower(graph_of(), note)
    return found[wanted]


def _loaded(graph_of: Callable[[], Graph], form: CallForm | None, found: CachedObject) -> Kernel:
    facts = found.metadata
    signature = (
        None
        if form is None
        else _signature(graph_of(), form, facts["workspace"], facts["heavy"], facts["polls"])
    )
    imports = addresses_of(facts["symbols"])
    needs = []
    for symbol in facts["loops"]:
        code = _loop_kernel(symbol, partial(_loop_of, graph_of, symbol)).loaded
        if code is None:
            raise LoweringError("a loop of the program cannot be compiled")
        needs.append(code)
        imports[symbol] = code.address(KERNEL)
    drain, kernel = facts["drain"], facts["kernel"]
    if signature is None:
        loaded = LoadedModule(found.code, kernel, imports=imports, drain=drain, needs=needs)
    else:
        loaded = load(found.code, signature, kernel=kernel, imports=imports, drain=drain, needs=needs)
    return Kernel(loaded, signature, facts["workspace"], "", 0.0, tuple(facts["notes"]))


def _signature(
    graph: Graph, form: CallForm | None, workspace: int, heavy: bool, polls: bool
) -> Signature | None:
    if form is None:
        return None
    return Signature(
        form.arguments, form.outputs, form.structure, len(graph.constants()), max(workspace, 8), heavy, polls
    )
