"""A record of what a function or a script did, as plain data for the inspector."""

from __future__ import annotations

import inspect
import linecache
import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from gradtape.api.debug.explain import explain_gradient
from gradtape.api.inspect.page.problems import (
    arrays_in,
    copied,
    explain_nonfinite,
    explain_zeros,
    has_zero_gradient,
    is_finite,
)
from gradtape.api.inspect.page.program import Files, describe_program
from gradtape.api.inspect.profiles import Report
from gradtape.api.inspect.records import Metered, Record, Recorder
from gradtape.api.inspect.report import (
    INTERPRETER,
    FunctionFigures,
    KernelFigures,
    figures,
    kernel_figures,
    signature,
)
from gradtape.api.transforms.jit import Jitted
from gradtape.errors import counted
from gradtape.ir.graph import Node
from gradtape.ir.op import NDArray
from gradtape.runtime.compile.program import Program
from gradtape.runtime.profile.profiled_kernel import clock
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.explain import Event
from gradtape.trace.jit.signature import CallArguments

MOST_PROGRAMS: Final = 24
"""Programs that are shown whole: those that took the most time."""

MOST_SOURCE: Final = 3000
"""Lines of a file that are shown: of a longer one, those around what was compiled."""

AROUND: Final = 40

KEPT: Final = 2**26
"""Bytes of arguments of which a copy is kept for an explanation."""

REPEATS: Final = 20
SECONDS: Final = 0.2
"""How often, and for how long, a call without side effects is repeated, so that its times are not those of cold caches."""


class Suspect:
    """A call whose results are to be explained, with copies of its arguments."""

    def __init__(self, kind: str, function: Jitted[..., Any], args: Any, kwargs: Any, number: int) -> None:
        self.kind = kind
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.number = number


class Watch(Recorder):
    """A recorder that sees the arguments and results of each call: machine code is called through Python."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self.files = files
        self.functions: dict[CallSite, Jitted[..., Any]] = {}
        self.suspects: dict[tuple[str, CallSite], Suspect] = {}
        self.interpreted: dict[Record, dict[int, Program]] = {}
        self.of_tapes: dict[Record, list[Event]] = {}
        self.problems: list[dict[str, Any]] = []
        self._counts: Counter[CallSite] = Counter()

    def call(self, function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call, and look at its results."""
        site = function.site
        if any(frame.kind == "trace" for frame in self._stack.frames):
            return site.call(args, kwargs)
        record = self._record_of(site, function)
        with self._lock:
            record.calls += 1
            self._counts[site] += 1
            self.functions[site] = function
            number = self._counts[site]
        traces = site.traces
        with self._spend(record, "call"):
            result = site.call(args, kwargs)
        if site.traces != traces:
            function.suspend()  # what has just been bound would answer the next call
        if not is_finite(result):
            self._suspect("nan", function, args, kwargs, number)
        if has_zero_gradient(function, result):
            self._suspect("zero", function, args, kwargs, number)
        return result

    def is_linked(self, function: Jitted[..., Any]) -> bool:
        """Return that machine code answers no call: Python looks at each."""
        return False

    def run(self, program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run a program, and keep one that the interpreter runs."""
        if program.kernel.loaded is None and self._stack.frames:
            self.interpreted.setdefault(self._stack.frames[-1].record, {})[id(program.graph)] = program
        return super().run(program, arrays)

    def compiled(self, seconds: float) -> None:
        """Take note of a kernel; for a tape it is an event."""
        super().compiled(seconds)
        for frame in self._stack.frames[-1:]:
            if frame.record.tape:
                text = "machine code for what this line computes, compiled or loaded from disk"
                self._happened(frame.record, "kernel", text, seconds)

    def interpreting(self, nodes: Iterable[Node]) -> AbstractContextManager[None]:
        """Time work on the interpreter, which is an event of a line the first time."""
        nodes = list(nodes)
        for frame in self._stack.frames[-1:]:
            if frame.record.tape and not frame.record.interpreted:
                text = f"the interpreter computes {counted(len(nodes), 'operation')}: compiling them would cost more so far"
                self._happened(frame.record, "interpreter", text)
        return super().interpreting(nodes)

    def _happened(self, record: Record, kind: str, text: str, seconds: float = 0.0) -> None:
        with self._lock:
            self.of_tapes.setdefault(record, []).append(Event(time.time(), kind, text, seconds))

    def unconnected(self, tape: Any, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """Explain why a tape has no gradient, while it still has its record."""
        for source in sources:
            explanation = explain_gradient(tape, targets[0], source)
            file, line = self.files.place(explanation.site)
            problem: dict[str, Any] = {
                "kind": "none",
                "what": f"a gradient is None: {explanation.reason}",
                "why": explanation.text,
                "remedy": explanation.remedy,
                "file": file,
                "line": line,
                "op": explanation.op or "",
                "of": "",
                "call": 0,
            }
            if problem not in self.problems:
                self.problems.append(problem)

    def _suspect(self, kind: str, function: Jitted[..., Any], args: Any, kwargs: Any, number: int) -> None:
        size = sum(array.nbytes for array in arrays_in((args, kwargs)))
        if (kind, function.site) not in self.suspects and size <= KEPT:
            suspect = Suspect(kind, function, copied(args), copied(kwargs), number)
            self.suspects[kind, function.site] = suspect


class WatchedRun(Report):
    """A profile that keeps what the inspector shows.

    Attributes
    ----------
    files : Files
        The user's files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files = Files()
        self._watch: Watch | None = None
        self._seen: list[tuple[Any, Record, FunctionFigures, list[tuple[Program, KernelFigures]]]] = []

    def _new_recorder(self) -> Recorder:
        self._watch = Watch(self.files)
        return self._watch

    def forget_times(self) -> None:
        """Start the clocks of kernels again: what ran until now was the first time."""
        assert self._watch is not None
        for record in self._watch.records.values():
            for metered in record.programs.values():
                metered.profiled.counters[:] = 0

    def _figures(self) -> list[FunctionFigures]:
        found = super()._figures()
        watch, rate = self._watch, clock().seconds_per_tick(self._begin)
        assert watch is not None
        self._seen = []
        for key, record in watch.records.items():
            groups: dict[int, list[Metered]] = {}
            for (kernel, _), metered in list(record.programs.items()):
                groups.setdefault(kernel, []).append(metered)
            programs = [
                (group[0].program, kernel_figures(group, rate, clock().cost)) for group in groups.values()
            ]
            for function in figures([record], rate, clock().cost):
                shown = next((kernel for kernel in function.kernels if kernel.origin == INTERPRETER), None)
                if shown is not None:
                    programs += [(program, shown) for program in watch.interpreted.get(record, {}).values()]
                self._seen.append((key, record, function, programs))
        return found

    def model(self, title: str, *, failure: str = "") -> dict[str, Any]:
        """Return all that the page shows, of dicts, lists, strings and numbers.

        Parameters
        ----------
        title : str
            Of the page.
        failure : str
            How the script ended, if by an exception.
        """
        assert self._watch is not None
        files = self.files
        functions: list[dict[str, Any]] = []
        programs: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        entries = sorted(self._seen, key=lambda entry: -entry[2].seconds)
        ranked = sorted(
            (figures for *_, kernels in entries for _, figures in kernels), key=lambda kernel: -kernel.seconds
        )
        shown = {id(kernel) for kernel in ranked[:MOST_PROGRAMS]}
        total = sum(entry[2].seconds for entry in entries) or 1.0
        for key, record, function, kernels in entries:
            number = len(functions)
            names = _parameters(self._watch.functions.get(key))
            file = (
                files.numbers.setdefault(function.filename, len(files.numbers)) if function.filename else -1
            )
            functions.append(
                {
                    "name": f"tape in {function.name}" if function.tape else function.name,
                    "file": file,
                    "line": function.line,
                    "calls": function.calls,
                    "traces": function.traces,
                    "misses": function.misses,
                    "seconds": function.seconds,
                    "share": function.seconds / total,
                    "trace": function.trace,
                    "compile": function.compile,
                    "programs": [],
                    "left": sum(id(figures) not in shown for _, figures in kernels),
                }
            )
            for program, measured in sorted(kernels, key=lambda pair: -pair[1].seconds):
                if id(measured) in shown:
                    functions[-1]["programs"].append(len(programs))
                    programs.append(_program(program, measured, files, key, number, names))
            if isinstance(key, CallSite):
                events += _events(list(key.explain.events), number, files)
            for event in _events(self._watch.of_tapes.get(record, []), number, files):
                events.append({**event, "file": file, "line": function.line})
        problems = [*self._watch.problems, *self._explained()]
        for problem in problems:
            problem.setdefault("function", -1)
            problem["nodes"] = _marks(problem, programs)
        first = min((event["at"] - event["seconds"] for event in events), default=0.0)
        events = [
            {**event, "at": event["at"] - first} for event in sorted(events, key=lambda event: event["at"])
        ]
        return {
            "title": title,
            "made": time.strftime("%Y-%m-%d %H:%M:%S"),
            "machine": f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}",
            "failure": failure,
            "files": _sources(files, functions, programs),
            "functions": functions,
            "programs": programs,
            "events": events,
            "problems": problems,
        }

    def _explained(self) -> list[dict[str, Any]]:
        """Return why results were not finite or zero: the calls are repeated op by op."""
        assert self._watch is not None
        problems: list[dict[str, Any]] = []
        sites = [key for key, *_ in sorted(self._seen, key=lambda entry: -entry[2].seconds)]
        for (kind, site), suspect in self._watch.suspects.items():
            call = (suspect.function, suspect.args, suspect.kwargs)
            explained = (
                explain_zeros(*call, self.files)
                if kind == "zero"
                else [explain_nonfinite(*call, suspect.number, self.files)]
            )
            problems += [{**problem, "function": sites.index(site)} for problem in explained]
        return problems


def watch_call(function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedRun:
    """Call a function under watch; more than once, if it has no side effects."""
    watched = WatchedRun()
    with watched:
        watched.result = function(*args, **kwargs)
        if _is_pure(function.site, args, kwargs):
            watched.forget_times()
            begin = time.perf_counter()
            for _ in range(REPEATS):
                function(*args, **kwargs)
                if time.perf_counter() - begin > SECONDS:
                    break
    return watched


def _is_pure(site: CallSite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether calls like this one run machine code that changes nothing."""
    specialisations = site.specialisations_for(CallArguments(args, kwargs, site.static))
    return bool(specialisations) and all(
        not specialisation.state.assigned
        and specialisation.draws is None
        and specialisation.program.kernel.loaded is not None
        for specialisation in specialisations
    )


def _parameters(function: Jitted[..., Any] | None) -> list[str]:
    """Return the names of the parameters of a function, if it says so."""
    try:
        return [] if function is None else list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _program(
    program: Program, measured: KernelFigures, files: Files, key: Any, function: int, names: list[str]
) -> dict[str, Any]:
    kernel = program.kernel
    described = describe_program(
        program.graph, measured, files, names, kernel.reason if kernel.loaded is None else ""
    )
    guards: list[dict[str, Any]] = []
    traces = key.specialisations() if isinstance(key, CallSite) else []
    own_trace = next((trace for trace in traces if trace.graph is program.graph), None)
    for guard in () if own_trace is None else own_trace.guards:
        file, line = files.place(guard.site)
        found_then = bool(guard.expected) if guard.value.dtype.kind == "b" else guard.expected
        guards.append({"file": file, "line": line, "expected": str(found_then)})
    return {
        **described,
        "function": function,
        "signature": signature(program.graph),
        "for_python": own_trace is None and isinstance(key, CallSite),
        "origin": kernel.origin if kernel.loaded is not None else INTERPRETER,
        "runs": measured.runs,
        "misses": measured.misses,
        "seconds": measured.seconds / max(measured.runs, 1),
        "input": measured.input_bytes,
        "output": measured.output_bytes,
        "workspace": kernel.workspace,
        "compiling": kernel.seconds,
        "guards": guards,
    }


def _events(events: Iterable[Event], number: int, files: Files) -> Iterable[dict[str, Any]]:
    for event in events:
        file, line = files.place(event.site)
        yield {
            "at": event.at,
            "kind": event.kind,
            "text": event.text,
            "seconds": event.seconds,
            "function": number,
            "file": file,
            "line": line,
        }


def _marks(problem: dict[str, Any], programs: Sequence[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """Return the nodes that a problem is about: of its op at its line, or else all of its line, in each program of its function."""
    marks: list[tuple[int, str, int]] = []
    for number, program in enumerate(programs):
        if problem["line"] and problem["function"] in (-1, program["function"]):
            for stage in ("compiled", "traced"):
                rows = program[stage]["nodes"] if program[stage] else []
                here = [
                    k
                    for k, row in enumerate(rows)
                    if (row["file"], row["line"]) == (problem["file"], problem["line"])
                ]
                exact = [
                    k
                    for k in here
                    if rows[k]["op"] == problem["op"] and rows[k].get("of", "") == problem["of"]
                ]
                marks += [(number, stage, k) for k in exact or here]
    return marks


def _sources(
    files: Files, functions: Sequence[dict[str, Any]], programs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the text of the user's files, or of the parts around what was compiled."""
    used: dict[int, set[int]] = {}
    for function in functions:
        used.setdefault(function["file"], set()).add(function["line"])
    for program in programs:
        for stage in ("compiled", "traced"):
            for row in program[stage]["nodes"] if program[stage] else ():
                used.setdefault(row["file"], set()).add(row["line"])
    sources = []
    for name, number in files.numbers.items():
        lines = [line.rstrip("\n") for line in linecache.getlines(name)]
        first, last = 1, len(lines)
        if len(lines) > MOST_SOURCE:
            first = max(min(used.get(number, {1})) - AROUND, 1)
            last = min(max(used.get(number, {1})) + AROUND, first + MOST_SOURCE)
        sources.append(
            {
                "name": name.replace("\\", "/").rpartition("/")[2],
                "path": name,
                "first": first,
                "lines": lines[first - 1 : last],
            }
        )
    return sources
