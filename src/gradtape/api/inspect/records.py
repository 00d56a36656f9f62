"""Records of the profiler: times and counts by function, per thread."""

from __future__ import annotations

import functools
import inspect
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from gradtape.api.transforms.jit import Jitted
from gradtape.ir.graph import Node
from gradtape.ir.op import NDArray
from gradtape.locks import Rank, new_lock
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.runtime.compile.program import Program
from gradtape.runtime.profile.profiled_kernel import ProfiledKernel, profiled_kernel
from gradtape.trace.jit.callsite import CallSite

PROFILING = "profiling"
"""The time spent by the profiler itself: compiling kernels that time themselves, and linking them."""


class _Code:
    """A kernel that Python calls through a function."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[bytes, bytes, int | None], int]) -> None:
        self._call = call


@dataclass(slots=True, eq=False)
class Metered:
    """A program with the machine code that times it; `nested` where that stands behind the Python call site."""

    program: Program
    nested: bool
    profiled: ProfiledKernel
    code: _Code


@dataclass(slots=True, eq=False)
class Record:
    """The measurements of one function, or of one line that reads numbers from a tape.

    Attributes
    ----------
    spent : Counter
        Nanoseconds: ``call``, ``trace``, ``compile``, ``interpreter``, each without the others that happened meanwhile.
    programs : dict
        By the identity of their kernels, and by `nested`.
    lines : dict
        For what the interpreter has computed: by file, line and direction the place, the ops, and the elements.
    """

    name: str
    filename: str
    line: int
    tape: bool
    calls: int = 0
    traces: int = 0
    compiled: int = 0
    interpreted: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    programs: dict[tuple[int, bool], Metered] = field(default_factory=dict)
    lines: dict[tuple[str, int, bool], tuple[Any, dict[str, None], list[int]]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Frame:
    record: Record
    kind: str
    begin: int
    inside: int = 0


class _Stack(threading.local):
    def __init__(self) -> None:
        self.frames: list[_Frame] = []


class Recorder:
    """Takes notes of everything that compiled functions and tapes do while it is active (see `runtime.program.Profiler`)."""

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.profiling = 0
        self._lock = new_lock(Rank.LEAF)
        self._profiling_kernel = new_lock(Rank.PROFILED_KERNEL)
        self._stack = _Stack()
        self._linked: weakref.WeakSet[Jitted[..., Any]] = weakref.WeakSet()

    # Told by jitted functions

    def call(self, function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call, and let machine code that times itself answer the next one."""
        if any(frame.kind == "trace" for frame in self._stack.frames):
            return function.site.call(args, kwargs)
        record = self._record_of(function.site, function)
        with self._lock:
            record.calls += 1
        with self._spend(record, "call"):
            try:
                return function.site.call(args, kwargs)
            finally:
                if function not in self._linked:
                    self._linked.add(function)
                    with self._spend(record, PROFILING):
                        function.relink()

    def machine_code(self, site: CallSite, program: Program, *, nested: bool) -> LoadedModule | None:
        """Return machine code that times itself."""
        record = self._record_of(site)
        return self._metered(record, program, nested).profiled.loaded

    def is_linked(self, function: Jitted[..., Any]) -> bool:
        """Return whether a function has been called, so that machine code that times itself answers it."""
        return function in self._linked

    def tracing(self, site: CallSite) -> AbstractContextManager[None]:
        """Time a trace."""
        record = self._record_of(site)
        with self._lock:
            record.traces += 1
        return self._spend(record, "trace")

    # Told by programs

    def run(self, program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run a program with machine code that times itself."""
        frames = self._stack.frames
        record = (
            frames[-1].record
            if frames
            else self._record(program.graph.name, program.graph.name, "", 0, False)
        )
        if program.kernel.loaded is None:
            with self._interpreted(record, program.graph.nodes):
                return program.compute(arrays, None)
        return program.compute(arrays, self._metered(record, program, False).code)

    def compiled(self, seconds: float) -> None:
        """Take note of a kernel that was compiled, or loaded from disk."""
        for frame in self._stack.frames[-1:]:
            with self._lock:
                frame.record.compiled += 1
                frame.record.spent["compile"] += round(seconds * 1e9)
            frame.inside += round(seconds * 1e9)

    def interpreting(self, nodes: Iterable[Node]) -> AbstractContextManager[None]:
        """Time work on the interpreter."""
        frames = self._stack.frames
        record = frames[-1].record if frames else self._record("tape", "tape", "", 0, True)
        return self._interpreted(record, nodes)

    def forcing(self, place: Any) -> AbstractContextManager[None]:
        """Time a forced recording: it belongs to the function that is being called, or else to the line that asks."""
        frames = self._stack.frames
        if frames and frames[-1].kind == "call":
            return nullcontext()
        key = (place.filename, place.line)
        record = self._record(key, place.function, place.filename, place.line, True)
        with self._lock:
            record.calls += 1
        return self._spend(record, "call")

    # Told by tapes

    def unconnected(self, tape: Any, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """A profile does not tell of gradients."""

    # Records

    def _record_of(self, site: CallSite, function: Jitted[..., Any] | None = None) -> Record:
        found = self.records.get(site)
        if found is None:
            filename, line = _definition(site.function if function is None else function)
            found = self._record(site, site.name, filename, line, False)
        return found

    def _record(self, key: Any, name: str, filename: str, line: int, tape: bool) -> Record:
        with self._lock:
            return self.records.setdefault(key, Record(name, filename, line, tape))

    def _metered(self, record: Record, program: Program, nested: bool) -> Metered:
        key = (id(program.kernel), nested)
        found = record.programs.get(key)
        if found is not None:
            return found
        with self._profiling_kernel, self._spend(record, PROFILING):
            if key not in record.programs:
                profiled = profiled_kernel(program.graph, program.kernel)
                # The machine code may be running in another thread when all else has let go of it.
                weakref.finalize(profiled.loaded, id, profiled.counters)
                code = _Code(self._timed(profiled.loaded._call))
                record.programs[key] = Metered(program, nested, profiled, code)
            return record.programs[key]

    def _timed(
        self, call: Callable[[bytes, bytes, int | None], int]
    ) -> Callable[[bytes, bytes, int | None], int]:
        """Return a kernel whose time is not counted to what calls it."""

        def timed(inputs: bytes, outputs: bytes, workspace: int | None) -> int:
            begin = time.perf_counter_ns()
            status = call(inputs, outputs, workspace)
            took = time.perf_counter_ns() - begin
            for frame in self._stack.frames[-1:]:
                frame.inside += took
            return status

        return timed

    @contextmanager
    def _interpreted(self, record: Record, nodes: Iterable[Node]) -> Iterator[None]:
        with self._spend(record, PROFILING), self._lock:
            record.interpreted += 1
            for node in nodes:
                site = node.site
                place = ("", 0) if site is None else (site.filename, site.line)
                key = (*place, bool(getattr(site, "backward", False)))
                _, ops, elements = record.lines.setdefault(key, (site, {}, []))
                ops[node.op.name] = None
                elements.append(max((out.size for out in node.outs), default=1))
        with self._spend(record, "interpreter"):
            yield

    @contextmanager
    def _spend(self, record: Record, kind: str) -> Iterator[None]:
        """Count the time inside to a record, but for what is counted on its own meanwhile."""
        frames = self._stack.frames
        frame = _Frame(record, kind, time.perf_counter_ns())
        try:
            frames.append(frame)
            yield
        finally:
            if frame in frames:
                del frames[frames.index(frame) :]
            took = time.perf_counter_ns() - frame.begin
            for around in frames[-1:]:
                around.inside += took
            with self._lock:
                if kind == PROFILING:
                    self.profiling += took - frame.inside
                else:
                    record.spent[kind] += took - frame.inside


def _definition(function: Callable[..., Any]) -> tuple[str, int]:
    """Return where the user's function begins; nothing for what has no Python code."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    code = getattr(function, "__code__", None)
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
