"""Kernels: machine code of graphs, compiled or loaded from the disk cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.errors import CompileWarning, GradtapeError, LoweringError, warn
from gradtape.interruptions import raise_interruption
from gradtape.ir.body import bodies_of
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Node
from gradtape.ir.varying import shared_code
from gradtape.kinds.routines.callback import calls_locally
from gradtape.lower.llvm.writer import KERNEL
from gradtape.lower.resident.callbacks import site_of_row
from gradtape.lower.target.symbols import addresses_of
from gradtape.runtime.call.convention import CallForm, Signature
from gradtape.runtime.call.entry import load
from gradtape.runtime.call.entry_ir import add_entry
from gradtape.runtime.compile.cache import CachedObject, MemoryCache, cached_object
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.runtime.compile.symbolic import SIZES, note_lengths, symbolic_code

if TYPE_CHECKING:
    from gradtape.lower.pipeline import LoweredProgram

LOOP: Final = "gradtape.loop."
"""The prefix of the symbols of loops' kernels."""

GIL_SECONDS: Final = 5e-6
"""Estimated time above which a kernel lets other threads run: taking the lock back costs about a tenth of it."""


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
        ``"compiled"``, ``"disk"`` or ``"interpreter"``; ``"background"`` while a thread compiles.
    seconds : float
        What it took to compile or load.
    notes : tuple of str
        What the scheduler decided, and why.
    reason : str
        Why there is no machine code.
    remedy : str
        What to do about that; empty where it is no defect, and no warning is due.
    keys : tuple of str
        What it is kept under on the disk, and the kernels of the loops that it calls.
    fallbacks : tuple of (str, tuple of str)
        The rows that Python computes because there is no code for operands of these dtypes.
    file_from : int or None
        Where the part of the scratch memory begins that is in a file.
    """

    loaded: LoadedModule | None
    signature: Signature | None
    workspace: int
    origin: str
    seconds: float
    notes: tuple[str, ...] = ()
    reason: str = ""
    remedy: str = ""
    keys: tuple[str, ...] = ()
    fallbacks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    file_from: int | None = None


kernels: Final[MemoryCache[Kernel]] = MemoryCache()
"""Machine code by fingerprint and form: shared by tapes, decorated functions and nested gradients."""


class _Facts(NamedTuple):
    """The metadata of a kernel's object code, which are in the disk cache with it.

    Attributes
    ----------
    workspace : int
        Bytes of scratch memory.
    heavy : bool
        Whether other threads may run meanwhile.
    polls : bool
        Whether a signal may end a run.
    drain : str or None
        The function of the module that frees the memory which it keeps between calls.
    symbols : sequence of str
        Routines to bind at load.
    loops : sequence of str
        Kernels of outlined loops to bind at load.
    notes : sequence of str
        What the scheduler decided, and why.
    table : sequence of int or None
        The numbers that the machine code reads; None for an exact kernel.
    fallbacks : sequence of (str, sequence of str)
        The rows that Python computes, with the dtypes of their operands.
    file_from : int or None
        Where the part of the scratch memory begins that is in a file.
    """

    workspace: int
    heavy: bool
    polls: bool
    drain: str | None
    symbols: tuple[str, ...]
    loops: tuple[str, ...]
    notes: tuple[str, ...]
    table: tuple[int, ...] | None = None
    fallbacks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    file_from: int | None = None

    def signature(self, form: CallForm | None, graph: Graph) -> Signature | None:
        """Return the signature of the native entry, None if there is no form in which it is called.

        A program with a scratch file is called from Python, which makes the file: it runs for long.
        """
        if form is None or self.file_from is not None:
            return None
        needs = (len(graph.constants()), max(self.workspace, 8), self.heavy, self.polls)
        return Signature(
            form.arguments, form.outputs, form.structure, *needs, apart=form.apart, written=form.written
        )


def _facts(
    lowered: LoweredProgram, heavy: bool, loops: Iterable[str] = (), notes: Iterable[str] = ()
) -> _Facts:
    loops = tuple(loops)
    symbols = tuple([symbol for symbol in lowered.symbols if symbol not in loops])
    notes = (*lowered.explain, *notes)
    return _Facts(
        lowered.workspace_bytes,
        heavy,
        lowered.polls,
        lowered.drain,
        symbols,
        loops,
        notes,
        fallbacks=tuple([(row, dtypes) for row, dtypes in lowered.fallbacks]),
        file_from=lowered.file_from,
    )


def is_local(nodes: Iterable[Node]) -> bool:
    """Return whether nodes call functions that this process only has."""
    return any(calls_locally(node) or any(is_local(body.nodes) for body in bodies_of(node)) for node in nodes)


def kernel_for(
    graph_of: Callable[[], Graph],
    form: CallForm | None,
    key: str,
    compile_: Callable[[Graph, CallForm | None], CachedObject],
) -> Kernel:
    """Load or compile the kernel of a graph. If both fail, return a kernel without machine code, whose reason says why."""
    begin = time.perf_counter()
    compiled = False
    note = ""

    def build() -> CachedObject:
        nonlocal compiled
        compiled = True
        return compile_(graph_of(), form)

    try:
        if config.compiler == "numba" and compile_ in (compile_graph, compile_symbolic):
            try:
                return _by_numba(graph_of(), form)
            except LoweringError as error:
                note = f"compiled by LLVM and not by Numba: {error.what}"
        found = cached_object(key, build, is_local=lambda: is_local(graph_of().nodes))
        kernel = _loaded(graph_of, form, found)
    except LoweringError as error:
        return Kernel(None, None, 0, "interpreter", time.perf_counter() - begin, (), error.what)
    except Exception as error:  # what LLVM says of a module that it cannot compile, or a defect: the interpreter has the answer
        raise_interruption(error)
        return Kernel(None, None, 0, "interpreter", time.perf_counter() - begin, (), *_reason(error))
    origin = "compiled" if compiled else "disk"
    notes = (*kernel.notes, note) if note else kernel.notes
    seconds = time.perf_counter() - begin
    return kernel._replace(origin=origin, seconds=seconds, notes=notes, keys=(key, *kernel.keys))


FORWARD: Final = f"""\
declare i32 @numba_kernel(ptr, ptr, ptr)

define i32 @{KERNEL}(ptr %inputs, ptr %outputs, ptr %workspace) {{
  %status = call i32 @numba_kernel(ptr %inputs, ptr %outputs, ptr %workspace)
  ret i32 %status
}}
"""
"""A kernel that calls the one which Numba has compiled."""


def _by_numba(graph: Graph, form: CallForm | None) -> Kernel:
    """Return a kernel whose loops Numba compiles; it is not kept on the disk."""
    from gradtape.lower.numba.compile import compile_by_numba

    begin = time.perf_counter()
    compiled = compile_by_numba(graph)
    facts = _Facts(0, True, False, None, (), (), ("compiled by Numba",))
    signature = facts.signature(form, graph)
    code = compile_object(add_entry(FORWARD, signature), KERNEL)
    loaded = load(code, signature, imports={"numba_kernel": compiled.address}, needs=[compiled])
    return Kernel(loaded, signature, 0, "compiled", time.perf_counter() - begin, facts.notes)


def warn_of(kernel: Kernel, graph: Graph) -> None:
    """Warn if a graph, or a node of it, could not be compiled."""
    if kernel.loaded is None and kernel.origin == "interpreter":
        warn(
            CompileWarning,
            f"{graph.name} could not be compiled and runs on the interpreter",
            why=kernel.reason,
            remedy=kernel.remedy or "nothing, if the speed does not matter",
        )
    for row, dtypes in kernel.fallbacks:
        warn(
            CompileWarning,
            f"{row} of {' and '.join(dict.fromkeys(dtypes))} has no kernel: {graph.name} calls NumPy for it",
            where=site_of_row(graph.nodes, row, dtypes),
            why="there is no machine code for this operation and dtype; the rest of the program is compiled",
            remedy="nothing, if the speed does not matter (a call takes some 10 us); or use another dtype",
        )


def _reason(error: Exception) -> tuple[str, str]:
    """Return why a graph could not be compiled, and what to do."""
    remedy = "nothing, if the speed does not matter; please report it"
    if isinstance(error, GradtapeError):
        return ": ".join(filter(None, (error.what, error.why))), error.remedy or remedy
    return (str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"), remedy


def compile_graph(graph: Graph, form: CallForm | None, *, symbolic: bool = False) -> CachedObject:
    """Compile a graph, with a native entry if there is a form in which it is called; its large loops are kernels of their own.

    A symbolic kernel shares its machine code with those of other lengths.
    """
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
            raise (RuntimeError if kernel.remedy else LoweringError)(kernel.reason)
        notes.extend(kernel.notes)
        return symbol, kernel.workspace

    lengths = note_lengths(graph)
    with shared_code(*lengths) if symbolic else nullcontext():
        # A loop has one kernel for all trip counts, but not for all lengths of its carries.
        lowered = lower(graph, None if symbolic else kernel_of)
        facts = _facts(lowered, lowered.estimated_cost > GIL_SECONDS, loops, notes)
        text = add_entry(lowered.ir_text, facts.signature(form, graph))

    def compile_(text: str) -> bytes:
        return compile_object(text, KERNEL, unroll=lowered.unrolls)

    if not symbolic:
        return CachedObject(compile_(text), metadata=facts._asdict())
    code = symbolic_code(text, compile_, lowered.unrolls)
    facts = facts._replace(table=code.table, notes=(*facts.notes, code.note))
    return CachedObject(code.code, metadata=facts._asdict())


def compile_symbolic(graph: Graph, form: CallForm | None) -> CachedObject:
    """Compile a graph as one that is also called with arrays of other lengths."""
    return compile_graph(graph, form, symbolic=True)


def _loop_kernel(symbol: str, graph_of: Callable[[], Graph]) -> Kernel:
    """Return the kernel of a loop alone, for any trip count: from memory, from the disk, or compiled now."""
    key = f"{symbol}:{config.precise_math}"
    return kernels.get(key, lambda: kernel_for(graph_of, None, key, _compile_loop))


def _compile_loop(graph: Graph, form: CallForm | None) -> CachedObject:
    from gradtape.lower.pipeline import lower_loop

    lowered = lower_loop(graph)
    facts = _facts(lowered, heavy=True)
    return CachedObject(
        compile_object(lowered.ir_text, "loop", unroll=lowered.unrolls), metadata=facts._asdict()
    )


def _loop_of(graph_of: Callable[[], Graph], wanted: str) -> Graph:
    """Return the graph of a loop that a program calls: its kernel is not on the disk any more."""
    from gradtape.lower.pipeline import lower

    found: dict[str, Graph] = {}

    def note(loop: Graph) -> tuple[str, int]:
        symbol = f"{LOOP}{fingerprint(loop)}"
        found[symbol] = loop
        return symbol, 0

    lower(graph_of(), note)
    return found[wanted]


def _loaded(graph_of: Callable[[], Graph], form: CallForm | None, found: CachedObject) -> Kernel:
    """Load object code, with the kernels of the loops that it calls."""
    facts = _Facts(**found.metadata)
    signature = None if form is None else facts.signature(form, graph_of())
    imports = addresses_of(facts.symbols)
    needs: list[LoadedModule] = []
    keys: list[str] = []
    fallbacks = [(row, tuple(dtypes)) for row, dtypes in facts.fallbacks]
    for symbol in facts.loops:
        loop = _loop_kernel(symbol, partial(_loop_of, graph_of, symbol))
        code = loop.loaded
        if code is None:
            raise LoweringError("a loop of the program cannot be compiled")
        needs.append(code)
        keys += loop.keys
        fallbacks += loop.fallbacks
        imports[symbol] = code.address(KERNEL)
    kept: list[object] = [*needs]
    if facts.table is not None:
        table = np.array(facts.table, np.int64)
        imports[SIZES] = table.ctypes.data
        kept.append(table)
    loaded = load(found.code, signature, imports=imports, drain=facts.drain, needs=kept)
    return Kernel(
        loaded,
        signature,
        facts.workspace,
        "",
        0.0,
        tuple(facts.notes),
        keys=tuple(keys),
        fallbacks=tuple(dict.fromkeys(fallbacks)),
        file_from=facts.file_from,
    )
