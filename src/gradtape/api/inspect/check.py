"""``python -m gradtape check``: a script, run as Python would run it, and a report of code that is not compiled, traced or exact."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from gradtape.api.inspect.findings import (
    KINDS,
    Finding,
    Place,
    Point,
    at_point,
    code_line,
    copied_point,
    is_small,
    place_of,
)
from gradtape.api.inspect.page.model import Watch, WatchedRun
from gradtape.api.inspect.records import Recorder
from gradtape.api.inspect.report import INTERPRETER, FunctionFigures, KernelFigures
from gradtape.api.inspect.script import USAGE, check_output, print_text, runner, status_of, wait_for_threads
from gradtape.api.inspect.text import duration
from gradtape.api.inspect.views import every_node
from gradtape.api.transforms.jit import Jitted
from gradtape.errors import (
    ArgumentError,
    CompileWarning,
    GradtapeWarning,
    SideEffectWarning,
    TraceLimitWarning,
    counted,
)
from gradtape.kinds.routines.callback import Callback
from gradtape.lower.resident.callbacks import site_of_row
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.explain import Event

FOUND: Final = 1
"""The exit status of a script that ended well, where something was found, or there was nothing to check."""

INTERRUPTED: Final = 130

CAUSES: Final = {
    "signature": 'pass arrays of the same dtypes and lengths; where lengths vary, gt.jit(f, shapes="symbolic")',
    "guard": "use np.where(condition, a, b) instead of the branch, if more paths are to be expected",
    "capture": "pass it as an argument, or keep it in an array or a gt.Variable",
}
"""The events after which a function is traced again, with what to do."""

SMALL: Final = 0.01
BRIEF: Final = 0.05
"""The part of the run, and the seconds, below which a tape may leave a line to the interpreter: compiling it would have taken longer."""

NOTHING: Final = """there is nothing to check in {target}: in this process it called no compiled function, and no tape computed anything
  why: the check covers functions of gt.jit, gt.grad and other transforms, but not those in worker processes
  what to do: write @gt.jit above a function; where a pool of processes calls it, map(work, tasks) in place of pool.map(work, tasks)"""


def run_checked(
    target: str,
    arguments: Sequence[str],
    *,
    as_module: bool = False,
    as_json: bool = False,
    output: str | None = None,
) -> int:
    """Run a script, print what was found in it, and return the exit status: the script's own, if that is not 0, or else 1 for findings.

    Parameters
    ----------
    target : str
        A file, or the name of a module.
    arguments : sequence of str
        What the script is to find in ``sys.argv``.
    as_module : bool, default False
        Whether `target` is a module, as for ``python -m``.
    as_json : bool, default False
        Print JSON in place of the page.
    output : str, optional
        A file that the page is written to in place of the standard output.
    """
    try:
        run = runner(target, arguments, as_module, "check")
        check_output(output, "page")
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return USAGE
    checked = CheckedRun()
    with checked.warnings(), checked:
        status = status_of(run)
        wait_for_threads()
    try:
        checked.look_closer()
    except KeyboardInterrupt:
        checked.skipped.append("interrupted: some derivatives were not checked")
        status = status or INTERRUPTED
    findings = checked.findings()
    if not (findings or checked.functions):
        if not status:
            print(NOTHING.format(target=target), file=sys.stderr)
        return status or FOUND
    if as_json:
        text = json.dumps(
            {
                "seconds": checked.seconds,
                "findings": [asdict(each) for each in findings],
                "skipped": checked.skipped,
            },
            indent=2,
        )
    else:
        text = page(Path(target).name, findings, checked.seconds, checked.skipped)
    if output is None:
        print_text(text)
    else:
        Path(output).write_text(text + "\n", encoding="utf-8")
    return status or (FOUND if findings else 0)


def page(title: str, findings: Sequence[Finding], seconds: float, skipped: Sequence[str]) -> str:
    """Return findings as text: what may be wrong, then what takes time, the most expensive first."""
    grouped = _by_place(findings)
    lines = [f"check of {title}: {counted(len(grouped), 'finding')} in {duration(seconds)}"]
    groups = {kind: [each for each in grouped if each.kind == kind] for kind in KINDS}
    costs = {kind: sum(each.seconds or 0.0 for each in group) for kind, group in groups.items()}
    for kind, group in sorted(groups.items(), key=lambda item: (costs[item[0]] > 0, -costs[item[0]])):
        if not group:
            continue
        cost = f" ({duration(costs[kind])})" if costs[kind] else ""
        lines += ["", f"{KINDS[kind]}{cost}"]
        for each in sorted(group, key=lambda finding: -(finding.seconds or 0.0)):
            lines += _entry(each)
    if skipped:
        often = Counter(skipped)
        lines += ["", *[text if count == 1 else f"{text} ({count} times)" for text, count in often.items()]]
    return "\n".join(lines)


def _by_place(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that have one line and one remedy as one: the most expensive, with the time of all, and how many others there are."""
    groups: dict[Any, list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.kind, each.filename, each.line, each.remedy), []).append(each)
    merged = []
    for group in groups.values():
        first = max(group, key=lambda finding: finding.seconds or 0.0)
        if len(group) > 1:
            costs = [each.seconds for each in group if each.seconds is not None]
            first = replace(
                first,
                what=f"{first.what}; and {counted(len(group) - 1, 'finding')} more like it on this line",
                seconds=sum(costs) if costs else None,
                count=1,
            )
        merged.append(first)
    return merged


def _entry(finding: Finding) -> Iterator[str]:
    location = f"{os.path.basename(finding.filename)}:{finding.line}" if finding.line else finding.function
    code = code_line(finding.filename, finding.line) if finding.line else ""
    cost = f"  [{duration(finding.seconds)}]" if finding.seconds is not None else ""
    yield f"  {location}{cost}{'  ' if code else ''}{code}"
    inside = f" (in {finding.function})" if finding.function and finding.line and not finding.seconds else ""
    often = f", {finding.count} times" if finding.count > 1 else ""
    yield f"      {finding.what}{often}{inside}"
    if finding.why:
        yield f"      why: {finding.why}"
    if finding.remedy:
        yield f"      what to do: {finding.remedy}"


class _Watch(Watch):
    """A watch that keeps the first and the last arguments of derivatives."""

    def __init__(self, files: Any) -> None:
        super().__init__(files)
        self.points: dict[CallSite, list[Point]] = {}

    def call(self, function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call, and keep a copy of its arguments."""
        if not any(frame.kind == "trace" for frame in self._stack.frames):
            point = copied_point(function, args, kwargs)
            if point is not None:
                points = self.points.setdefault(function.site, [])
                points[1:] = [point] if points else []
                if not points:
                    points.append(point)
        return super().call(function, args, kwargs)


class CheckedRun(WatchedRun):
    """A run that looks for code that is not compiled, not differentiated or not exact.

    Attributes
    ----------
    skipped : list of str
        What was not looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[str] = []
        self._told: list[tuple[GradtapeWarning, Place]] = []
        self._closer: list[Finding] = []

    def _new_recorder(self) -> Recorder:
        self._watch = _Watch(self.files)
        return self._watch

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Take note of the warnings that are shown in the block."""
        show: Any = warnings.showwarning

        def note(
            message: Any, category: Any, filename: str, line: int, *arguments: Any, **options: Any
        ) -> None:
            if isinstance(message, GradtapeWarning):
                self._told.append((message, (filename, line)))
            show(message, category, filename, line, *arguments, **options)

        noting: Any = note
        warnings.showwarning = noting
        try:
            yield
        finally:
            if warnings.showwarning is noting:  # the script may have its own by now
                warnings.showwarning = show

    def look_closer(self) -> None:
        """Compute the script's derivatives again, op by op; its output is hidden meanwhile."""
        assert isinstance(self._watch, _Watch)
        for site, points in self._watch.points.items():
            if not is_small(each.graph for each in site.specialisations()):
                self.skipped.append(
                    f"kinks and lost digits of {site.name} were not checked: it has many operations or loops of unknown length; "
                    "gt.debug.kinks(f, x) and gt.debug.digits(f, x) look at them"
                )
                continue
            for number, point in enumerate(points):
                with warnings.catch_warnings(), redirect_stdout(StringIO()):
                    warnings.simplefilter("ignore")
                    try:
                        self._closer += at_point(point, exact=number == 0)
                    except Exception as error:
                        text = str(error).partition("\n")[0]
                        self.skipped.append(
                            f"{site.name} could not be repeated op by op: {type(error).__name__}: {text}"
                        )
                        break

    def findings(self) -> list[Finding]:
        """Return all findings, each once: what may be wrong first, then by cost."""
        merged: dict[Any, Finding] = {}
        for each in (
            *self._problems(),
            *self._closer,
            *self._of_warnings(),
            *self._uncompiled(),
            *self._recompiled(),
            *self._callbacks(),
        ):
            key = (each.kind, each.filename, each.line, each.what)
            merged_finding = merged.get(key)
            if merged_finding is not None and each.seconds is not None:
                each = replace(
                    merged_finding,
                    seconds=(merged_finding.seconds or 0.0) + each.seconds,
                    count=merged_finding.count + each.count,
                )
            merged[key] = merged_finding if merged_finding is not None and each.seconds is None else each
        order = list(KINDS)
        return sorted(
            merged.values(),
            key=lambda each: (each.seconds is not None, -(each.seconds or 0.0), order.index(each.kind)),
        )

    def _problems(self) -> Iterator[Finding]:
        """Yield gradients that are None or zero, and numbers that are not finite."""
        assert self._watch is not None
        problems = [*self._watch.problems, *self._explained()]
        names = {number: name for name, number in self.files.numbers.items()}
        for problem in problems:
            yield Finding(
                "number" if problem["kind"] == "nan" else "derivative",
                problem["what"],
                problem["why"],
                problem["remedy"],
                names.get(problem["file"], ""),
                problem["line"],
            )

    def _of_warnings(self) -> Iterator[Finding]:
        """Yield what was warned of, but for what the other findings tell with its cost."""
        for warning, shown_at in self._told:
            if isinstance(warning, CompileWarning | TraceLimitWarning):
                continue
            kind = "effect" if isinstance(warning, SideEffectWarning) else "warning"
            kind = "derivative" if type(warning) is GradtapeWarning and "gradient" in warning.what else kind
            filename, line = place_of(warning.where)
            location = (filename, line) if line else shown_at
            yield Finding(kind, warning.what, warning.why, warning.remedy, *location)

    def _uncompiled(self) -> Iterator[Finding]:
        """Yield programs and lines that the interpreter ran, and ops of compiled programs that NumPy computes."""
        for key, _, function, programs in self._seen:
            limits = [
                event
                for event in (key.explain.events if isinstance(key, CallSite) else ())
                if event.kind == "limit"
            ]
            for event in limits:
                yield _timed(
                    "compile",
                    event.text,
                    event.remedy,
                    event.site,
                    function,
                    function.interpreter / len(limits),
                )
            reasons = {
                program.kernel.reason: program.kernel.remedy
                for program, _ in programs
                if program.kernel.loaded is None
            }
            small = function.interpreter < max(SMALL * self.seconds, BRIEF)
            for reason, remedy in reasons.items():
                yield from _interpreted(function, reason, remedy)
            if not reasons and not limits and not small:
                yield from _interpreted(
                    function,
                    "the interpreter computes this line",
                    "put it into a function, and compile that: gt.jit, or gt.value_and_grad in place of the tape",
                )
            for program, measured in programs:
                for row, dtypes in program.kernel.fallbacks:
                    yield _timed(
                        "compile",
                        f"{row} of {', '.join(dtypes)} has no machine code: NumPy computes it inside the compiled program",
                        "nothing, if the speed does not matter; or use another dtype",
                        site_of_row(program.graph.nodes, row, dtypes),
                        function,
                        _cost_of(row, measured),
                    )

    def _recompiled(self) -> Iterator[Finding]:
        """Yield why functions were traced and compiled again, with what each reason took."""
        for key, _, function, _ in self._seen:
            if not isinstance(key, CallSite):
                continue
            causes: list[tuple[Event, float]] = []
            for event in key.explain.events:
                if event.kind in CAUSES:
                    causes.append((event, 0.0))
                elif causes and event.kind != "limit":
                    causes[-1] = (causes[-1][0], causes[-1][1] + event.seconds)
            for (before, _), (event, seconds) in pairwise(causes):
                text = event.text
                if event.kind == before.kind == "signature":
                    text += f", before {before.text.rpartition(': ')[2]}"
                yield _timed("recompile", text, CAUSES[event.kind], event.site, function, seconds)

    def _callbacks(self) -> Iterator[Finding]:
        """Yield where compiled programs call functions of Python."""
        for _, _, function, programs in self._seen:
            for program, measured in programs:
                for node in every_node(program.graph):
                    if isinstance(node.op, Callback):
                        is_local = node.op.is_local
                        description = (
                            "a function of Python"
                            if is_local
                            else f"{node.op.name}, a routine of NumPy or SciPy,"
                        )
                        yield replace(
                            _timed(
                                "callback",
                                f"{description} is called back from machine code",
                                "write it with NumPy's functions, which are compiled"
                                if is_local
                                else "nothing, if its own time is long: a call from machine code takes some 10 us",
                                node.site,
                                function,
                                _cost_of(node.op.name, measured),
                            ),
                            count=measured.runs,
                        )


def _timed(
    kind: str, description: str, remedy: str, site: Any, function: FunctionFigures, seconds: float
) -> Finding:
    """Return a finding of a function, at a site or at its definition."""
    filename, line = place_of(site)
    location: Place = (filename, line) if line else (function.filename, function.line)
    return Finding(kind, description, "", remedy, *location, function=function.name, seconds=seconds)


def _interpreted(function: FunctionFigures, description: str, remedy: str) -> Iterator[Finding]:
    """Yield the lines that the interpreter ran."""
    for kernel in function.kernels:
        for nest in kernel.nests if kernel.origin == INTERPRETER else ():
            for line in nest.lines:
                yield Finding(
                    "compile",
                    description,
                    f"it runs {', '.join(line.ops)}",
                    remedy,
                    line.filename or function.filename,
                    line.line or function.line,
                    "" if function.tape else function.name,
                    nest.seconds * line.share,
                )


def _cost_of(row: str, measured: KernelFigures) -> float:
    """Return the seconds of the nests that compute an op."""
    return sum(
        nest.seconds * (1.0 if nest.kind == row else line.share)
        for nest in measured.nests
        for line in nest.lines
        if nest.kind == row or row in line.ops
    )
