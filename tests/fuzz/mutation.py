"""Mutation run over the source: is there a test that fails for each small change of a function?

    python -m tests.fuzz.mutation --mutants 300 --seed 1 --report survivors.md
    python -m tests.fuzz.mutation --paths transforms,trace/jit --mutants 300
    python -m tests.fuzz.mutation --paths ops/numpy/statistics/sort.py,ops/core/elementwise/power.py --mutants 0

A mutant is a function of gradtape with one operator, comparison, constant, condition or argument changed. The tests that a plain
`python -m pytest` runs are collected once. Each mutant runs in a fork of that process, in which the code object of the function is
exchanged; it is *killed* when one of the tests that cover the changed line fails, raises, or does not end in time. What survives is either
equivalent (the change has no effect that anybody could see) or names a test that is missing. A test that fails without the mutant too kills
none. `--mutants` are drawn from each of the `--paths`; 0 takes all of them.

Tests that are likely to kill for little time run first: those that killed mutants before, those of the folder that mirrors the changed
file, short ones before long ones; up to `--tests` tests and `--seconds` seconds.

The first run records which tests cover which line and how long they take (coverage.py, in `--processes` processes), and stores that in the
file given by `--coverage`, outside the repository; tests that the file does not contain are added to it. `--test-paths` and `--slowest`
leave out tests that are far from the changed files, or long: a run over one folder then takes minutes.

No mutant is made of what has no effect by construction: the order of the operands of commutative functions, products for quotients by
1 or -1, the strictness of `zip` and other assertions, and changes that compile to the same code. Lines that run only on
import are not counted, since the exchange comes after them: "on import" in the summary.

References
----------
DeMillo, Lipton and Sayward, "Hints on test data selection", Computer 11 (4), 1978.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import gradtape
from tests.suite.selection import Durations

ROOT: Final = Path(gradtape.__file__).parent
TESTS: Final = Path(__file__).parents[1]

DETECTORS: Final = (
    "fuzz",
    "test_docs",
    "test_notebooks",
    "test_examples",
    "test_benchmarks",
    "test_reference",
)
"""Test files that are left out: they take long, and the tests of the folders have to find what they would find."""

PER_FUNCTION: Final = 4
"""Of each test function, so many cells are stored for a line: the shortest."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    Attributes
    ----------
    file : Path
        Whose function it is.
    line : int
        The changed line.
    change : str
        What is changed, for the report.
    number : int
        Its position among the possible changes of the file.
    """

    file: Path
    line: int
    change: str
    number: int

    @property
    def name(self) -> str:
        """The file's path below `src/gradtape/`."""
        return name_of(self.file)


def name_of(file: Path) -> str:
    """Return a file's path below `src/gradtape/`."""
    return file.relative_to(ROOT).as_posix()


OPERATORS: Final[dict[type, tuple[type, ...]]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Add,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.USub: (ast.UAdd,),
}

COMMUTATIVE: Final = frozenset(
    {"add", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "logical_and", "logical_or", "logical_xor"}
    | {"max", "maximum", "min", "minimum", "multiply", "not_equal"}
    | {"broadcast_shapes", "common_dtype", "promote_types", "result_type"}
)
"""Functions whose two operands may stand in either order."""

Edit = Callable[[], None]


def edits(tree: ast.Module) -> Iterator[tuple[int, str, Edit]]:
    """Yield (line, description, what makes the change in the tree) for each possible change inside a function."""
    for function in _outermost_functions(tree):
        yield from _edits_in(function)


def _outermost_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node
        else:
            yield from _outermost_functions(node)


def _edits_in(node: ast.AST, in_index: bool = False) -> Iterator[tuple[int, str, Edit]]:
    for child in _evaluated(node):
        is_index = isinstance(node, ast.Subscript) and child is node.slice
        negative = in_index and isinstance(node, ast.UnaryOp)
        yield from _edits_of(child, is_index or negative)
        yield from _edits_in(child, is_index)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that are code of the function: not annotations, documentation, or the making of an error."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for part in field if isinstance(field, list) else [field]:
            documentation = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
            if (
                isinstance(part, ast.AST)
                and not isinstance(part, ast.Raise | ast.JoinedStr)
                and not documentation
                and not (isinstance(part, ast.keyword) and part.arg == "strict")
                and not isinstance(part, ast.Assert)
            ):
                yield part


def _edits_of(node: ast.AST, is_index: bool) -> Iterator[tuple[int, str, Edit]]:
    """Yield the changes of one node. The neighbours of an index are taken for it, not its negative, which may be the same place."""
    line = getattr(node, "lineno", 0)
    signed_constant = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.AugAssign) and not signed_constant:
        for other in OPERATORS.get(type(node.op), ()):
            if not (other in (ast.Mult, ast.Div) and _is_one(getattr(node, "right", None))):
                yield line, f"{type(node.op).__name__} -> {other.__name__}", _setting(node, "op", other())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield line, "not x -> x", lambda: _replace(node, node.operand)
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in OPERATORS.get(type(operator), ()):
                changed = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield line, f"{type(operator).__name__} -> {other.__name__}", _setting(node, "ops", changed)
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield line, f"{value} -> {not value}", _setting(node, "value", not value)
        elif isinstance(value, int | float):
            for other in (value + 1, (value - 1 if is_index else -value) if value else None):
                if other is not None:
                    yield line, f"{value} -> {other}", _setting(node, "value", other)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        for outcome in (True, False) if not isinstance(node, ast.While) else (False,):
            yield line, f"condition -> {outcome}", _setting(node, "test", ast.Constant(outcome))
    if isinstance(node, ast.Call) and not node.keywords and len(node.args) == 2:
        first, second = node.args
        differ = ast.dump(first) != ast.dump(second)
        if (
            differ
            and not any(isinstance(x, ast.Starred) for x in node.args)
            and _called(node) not in COMMUTATIVE
        ):
            yield line, "arguments swapped", _setting(node, "args", [second, first])
    if isinstance(node, ast.Call) and node.keywords:
        for place, keyword in enumerate(node.keywords):
            if keyword.arg not in (None, "strict"):
                rest = [*node.keywords[:place], *node.keywords[place + 1 :]]
                yield line, f"without {keyword.arg}=", _setting(node, "keywords", rest)


def _is_one(node: ast.expr | None) -> bool:
    """Whether a factor is 1 or -1, by which one may multiply as well as divide."""
    return node is not None and ast.unparse(node).lstrip("-") in ("1", "1.0")


def _called(node: ast.Call) -> str:
    """Return the name of the called function: ``f`` of ``f(x)``, ``m.f(x)`` and ``PRIMITIVES["f"](x)``."""
    match node.func:
        case ast.Name(name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(name)):
            return str(name)
    return ""


def _setting(node: Any, name: str, value: Any) -> Edit:
    return lambda: setattr(node, name, value)


def _replace(node: ast.UnaryOp, operand: ast.expr) -> None:
    """Turn ``not x`` into ``bool``-like ``x``: the node itself becomes ``+``-free by comparing with True."""
    changed = ast.copy_location(ast.Compare(operand, [ast.NotEq()], [ast.Constant(False)]), node)
    node.__class__ = changed.__class__  # type: ignore[assignment]
    node.__dict__.clear()
    node.__dict__.update(changed.__dict__)


def mutants_of(file: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    tree = ast.parse(file.read_text())
    return [Mutant(file, line, change, number) for number, (line, change, _) in enumerate(edits(tree))]


def source_of(mutant: Mutant) -> str:
    """Return the line that a mutant changes."""
    return mutant.file.read_text().splitlines()[mutant.line - 1].strip()


def code_of(mutant: Mutant) -> tuple[types.CodeType, types.CodeType]:
    """Return the code of the module as it stands and as the mutant has it."""
    own = own_code(mutant.file)
    tree = ast.parse(mutant.file.read_text())
    for number, (_, _, make) in enumerate(edits(tree)):
        if number == mutant.number:
            make()
            break
    return own, compile(ast.fix_missing_locations(tree), str(mutant.file), "exec")


@cache
def own_code(file: Path) -> types.CodeType:
    """Return the code of a module as it stands."""
    return compile(file.read_text(), str(file), "exec")


@cache
def live_functions() -> dict[types.CodeType, list[types.FunctionType]]:
    """Return the functions of gradtape by their code.

    They are collected once, in the process that forks. What is there then is taken out of the cycle collector's sight: each collection of a
    test would pass over all tests otherwise, and write to memory that the forks share.
    """
    functions: dict[types.CodeType, list[types.FunctionType]] = {}
    gc.collect()
    for item in gc.get_objects():
        # not by isinstance, which asks proxies of objects that are gone
        if type(item) is types.FunctionType and item.__code__.co_filename.startswith(str(ROOT)):
            functions.setdefault(item.__code__, []).append(item)
    gc.freeze()
    return functions


def put_in(own: types.CodeType, changed: types.CodeType) -> bool:
    """Exchange the code of the functions in which two versions of a module differ; return whether any live function has it."""
    pairs: dict[types.CodeType, types.CodeType] = {}

    def walk(old: types.CodeType, new: types.CodeType) -> None:
        olds = [const for const in old.co_consts if isinstance(const, types.CodeType)]
        news = [const for const in new.co_consts if isinstance(const, types.CodeType)]
        for left, right in zip(olds, news, strict=False):
            if left != right:
                pairs[left] = right
                walk(left, right)

    walk(own, changed)
    changes = False
    for old, new in pairs.items():
        if len(new.co_freevars) == len(old.co_freevars):
            for function in live_functions().get(old, ()):
                function.__code__ = new
                changes = True
    return changes


class Session:
    """The collected tests, in a process that forks for each mutant."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.items: list[Any] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        durations = Durations.load()
        items[:] = [
            item
            for item in items
            if not any(name in item.nodeid for name in DETECTORS)
            and durations.of(item.nodeid) <= self.options.slowest
        ]

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = session.items
        file = Path(self.options.coverage)
        coverage = Coverage.load(file)
        if new := [item for item in self.items if item.nodeid not in coverage.seconds]:
            for part in in_forks(new, self.options.processes):
                coverage.add(part)
            file.parent.mkdir(parents=True, exist_ok=True)
            coverage.store(file)
        if not self.options.only_coverage:
            run(self.options, coverage, {item.nodeid: item for item in self.items})
        return True


@dataclass
class Coverage:
    """Which tests cover which line, and how long they take.

    Attributes
    ----------
    lines : dict of str to list of str
        Tests that cover a line, by ``"file:line"``; of each test function at most `PER_FUNCTION`.
    seconds : dict of str to float
        Seconds of the processor that a test took while it was traced.
    """

    lines: dict[str, list[str]]
    seconds: dict[str, float]

    @classmethod
    def load(cls, file: Path) -> Coverage:
        """Return what is stored in a file; nothing if there is none."""
        if not file.exists():
            return cls({}, {})
        stored = json.loads(file.read_text())
        names = list(stored["seconds"])
        lines = {line: [names[number] for number in tests] for line, tests in stored["lines"].items()}
        return cls(lines, stored["seconds"])

    def store(self, file: Path) -> None:
        """Write it to a file, tests as numbers."""
        numbers = {name: number for number, name in enumerate(self.seconds)}
        lines = {line: [numbers[name] for name in tests] for line, tests in self.lines.items()}
        file.write_text(json.dumps({"seconds": self.seconds, "lines": lines}))

    def add(self, other: Coverage) -> None:
        """Add what another process recorded."""
        self.seconds |= other.seconds
        for line, tests in other.lines.items():
            self.lines[line] = self._shortest([*self.lines.get(line, ()), *tests])

    def _shortest(self, tests: Sequence[str]) -> list[str]:
        by_function: dict[str, list[str]] = {}
        for name in sorted(tests, key=lambda name: self.seconds[name]):
            by_function.setdefault(name.partition("[")[0], []).append(name)
        return [name for names in by_function.values() for name in names[:PER_FUNCTION]]

    def record(self, items: Sequence[Any]) -> None:
        """Run tests, and note the lines that each covers."""
        import coverage  # only needed here

        recorder = coverage.Coverage(data_file=None, include=[f"{ROOT}/*"], messages=False)
        recorder.set_option("run:disable_warnings", ["no-data-collected", "trace-changed"])
        failed = set()  # also without a mutant: they would kill all of them
        for item, following in zip(items, [*items[1:], None], strict=True):
            recorder.start()  # for each test, since a test may set another tracer
            recorder.switch_context(item.nodeid)
            start = time.process_time()
            if _run_item(item, following):
                failed.add(item.nodeid)
            self.seconds[item.nodeid] = time.process_time() - start
            recorder.stop()
        data = recorder.get_data()
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                passing = [name for name in tests if name in self.seconds and name not in failed]
                self.lines[f"{name_of(Path(file))}:{line}"] = self._shortest(passing)


def in_forks(items: Sequence[Any], processes: int) -> Iterator[Coverage]:
    """Record the coverage of tests in several forks of this process; tests of one module stay together."""
    modules: dict[str, list[Any]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    shares: list[list[Any]] = [[] for _ in range(processes)]
    for module in sorted(modules.values(), key=len, reverse=True):
        min(shares, key=len).extend(module)
    folder = Path(tempfile.mkdtemp())
    children = []
    for number, share in enumerate(shares):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ["GRADTAPE_CACHE_DIR"] = gradtape.config.cache_dir = str(folder / f"cache{number}")
                own = Coverage({}, {})
                own.record(share)
                own.store(folder / f"{number}.json")
                code = 0
            except BaseException:
                sys.__stderr__.write(traceback.format_exc())
                sys.__stderr__.flush()
            finally:
                os._exit(code)
        children.append(child)
    for number, child in enumerate(children):
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError("a process that recorded coverage has failed")
        yield Coverage.load(folder / f"{number}.json")
    shutil.rmtree(folder, ignore_errors=True)


def _run_item(item: Any, following: Any = None) -> bool:
    """Run one test, and leave what the following one needs; return whether it failed."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _first_that_fails(items: Sequence[Any]) -> int | None:
    """Run tests up to the first one that fails; return its number, None if there is none."""
    for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        if _run_item(item, following):
            return number
    return None


def files_of(paths: str) -> list[Path]:
    """Return the source files that are named by folders and files, separated by commas."""
    files = []
    for name in filter(None, paths.split(",")):
        path = ROOT / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return files


def drawn(options: argparse.Namespace) -> list[tuple[str, Mutant]]:
    """Return the mutants to try, each with its path: the paths take turns, so that a run that ends early has tried as many of each."""
    rng = random.Random(options.seed)
    again: set[tuple[str, ...]] = set()
    if options.only:
        # identified by their text, because lines move
        again = set(re.findall(r"`(\S+):\d+` (.*?): `(.*)` \(", Path(options.only).read_text()))
    parts = []
    for path in options.paths.split(","):
        every = [mutant for file in files_of(path) for mutant in mutants_of(file)]
        if options.only:
            every = [m for m in every if (m.name, m.change, source_of(m)) in again]
        elif options.mutants:
            every = rng.sample(every, min(options.mutants, len(every)))
        parts.append([(path, mutant) for mutant in every])
    return [pair for row in itertools.zip_longest(*parts) for pair in row if pair is not None]


def run(options: argparse.Namespace, coverage: Coverage, items: dict[str, Any]) -> None:
    """Try the mutants, and print and write what survived."""
    begin = time.monotonic()
    mutants = drawn(options)
    preload()
    live_functions()
    outcomes: dict[str, Counter[str]] = {path: Counter() for path in options.paths.split(",")}
    kills: Counter[str] = Counter()
    sound: set[str] = set()
    lines = []
    on_import = run_on_import()
    for count, (path, mutant) in enumerate(mutants, 1):
        covering = [name for name in coverage.lines.get(f"{mutant.name}:{mutant.line}", ()) if name in items]
        names = chosen(mutant, covering, coverage.seconds, kills, options.tests, options.seconds)
        if names:
            limit = 20 + 10 * sum(coverage.seconds[name] for name in names)
            outcome, killer = tried(mutant, [items[name] for name in names], min(limit, options.limit), sound)
            if killer is not None:
                kills[killer.partition("[")[0]] += 1
        else:
            outcome = "on import" if f"{mutant.name}:{mutant.line}" in on_import else "not covered"
        outcomes[path][outcome] += 1
        if outcome in ("survived", "not covered"):
            lines.append(
                f"- {outcome}: `{mutant.name}:{mutant.line}` {mutant.change}: `{source_of(mutant)}` "
                f"({len(names)} of {len(covering)} tests)"
            )
            sys.__stdout__.write(lines[-1] + "\n")
        is_last = count == len(mutants) or time.monotonic() - begin > 60 * options.minutes
        if count % 10 == 0 or is_last:
            total = sum(outcomes.values(), Counter())
            sys.__stdout__.write(f"{count} of {len(mutants)}: {dict(total)}\n")
        sys.__stdout__.flush()
        if is_last:
            break
    seconds = time.monotonic() - begin
    rows = [row_of(path, outcomes[path]) for path in outcomes] + [
        row_of("all", sum(outcomes.values(), Counter()))
    ]
    summary = "\n".join([*HEAD, *rows, "", f"{seconds / max(count, 1):.2f} s for a mutant"])
    sys.__stdout__.write(summary + "\n")
    if options.report:
        Path(options.report).write_text("\n".join([f"# Mutants that survived\n\n{summary}\n", *lines, ""]))


HEAD: Final = (
    "| Path | Mutants | Killed | Survived | Not covered | Killed of those covered |",
    "|---|---|---|---|---|---|",
)


def row_of(path: str, outcomes: Counter[str]) -> str:
    """Return the row of the table for a path."""
    killed = outcomes["killed"] + outcomes["hung"]
    covered = killed + outcomes["survived"]
    mutants = covered + outcomes["not covered"]
    cells = (
        mutants,
        killed,
        outcomes["survived"],
        outcomes["not covered"],
        f"{killed / max(covered, 1):.1%}",
    )
    return " | ".join([f"| `{path}`", *map(str, cells)]) + " |"


def run_on_import() -> set[str]:
    """Return the lines inside functions that run when gradtape is imported."""
    program = f"""
import sys
lines = set()
def trace(frame, event, arg):
    if frame.f_code.co_filename.startswith({str(ROOT)!r}):
        if frame.f_code.co_name != "<module>":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace
sys.settrace(trace)
import gradtape
sys.settrace(None)
for file, line in lines:
    print(file.removeprefix({str(ROOT) + os.sep!r}) + ":" + str(line))
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def preload() -> None:
    """Import what most tests import, once for all forks."""
    for name in (
        "llvmlite.binding",
        "numba",
        "scipy.linalg",
        "scipy.optimize",
        "scipy.special",
        "scipy.sparse",
    ):
        importlib.import_module(name)


def chosen(
    mutant: Mutant,
    covering: Sequence[str],
    seconds: dict[str, float],
    kills: Counter[str],
    most: int,
    longest: float,
) -> list[str]:
    """Return tests in the order in which they run: first those of the mirroring folder, and one of each function; short ones first.

    The seconds of a function that killed mutants before count for less.
    """
    folder = f"{mutant.name.rpartition('/')[0]}/"
    rounds: Counter[tuple[bool, str]] = Counter()
    ordered = []
    for name in sorted(covering, key=lambda name: seconds[name]):
        function = name.partition("[")[0]
        is_far = folder not in function
        is_late = is_far and not kills[function]
        ordered.append(
            (is_late, rounds[is_far, function], (0.02 + seconds[name]) / (1 + kills[function]), name)
        )
        rounds[is_far, function] += 1
    names: list[str] = []
    total = 0.0
    for *_, name in sorted(ordered)[:most]:
        if not names or total + seconds[name] <= longest:
            names.append(name)
            total += seconds[name]
    return names


def tried(mutant: Mutant, tests: Sequence[Any], seconds: float, sound: set[str]) -> tuple[str, str | None]:
    """Run the tests with the mutant put in, in a fork of this process, for so many seconds of the processor.

    A test that fails also without the mutant is left out, and the others run again. Those that pass without it are added to `sound`.

    Returns
    -------
    outcome : str
        "killed", "survived", "hung", "same code", or "not live" where no function is left that has the code.
    killer : str or None
        The test that failed.
    """
    own, changed = code_of(mutant)
    if own == changed:
        return "same code", None
    tests = list(tests)
    while True:  # terminates: each round but the last has fewer tests
        outcome, number = in_fork(tests, seconds, lambda: put_in(own, changed))
        if number is None:
            return outcome, None
        name = tests[number].nodeid
        if name in sound or in_fork([tests[number]], seconds)[0] == "survived":
            sound.add(name)
            return outcome, name
        del tests[number]


def in_fork(
    tests: Sequence[Any], seconds: float, change: Callable[[], bool] = lambda: True
) -> tuple[str, int | None]:
    """Run tests in a fork of this process after a change of it; return the outcome, and the number of the test that failed, if one did."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        folder = tempfile.mkdtemp()
        code = 4
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(int(10 * seconds))
            os.environ["GRADTAPE_CACHE_DIR"] = folder
            gradtape.config.cache_dir = folder
            is_changed = change()
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            code = 1
            if not is_changed:
                code = 3
            elif (failed := _first_that_fails(tests)) is not None:
                os.write(writing, str(failed).encode())
            else:
                code = 0
        except BaseException:
            if code == 4:
                traceback.print_exc(file=sys.__stderr__)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    number = os.read(reading, 20)
    os.close(reading)
    if os.WIFSIGNALED(status):
        return "hung" if os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF) else "killed", None
    if os.WEXITSTATUS(status) == 4:
        raise RuntimeError("the mutant could not be put in")
    outcome = {0: "survived", 1: "killed", 3: "not live"}.get(os.WEXITSTATUS(status), "killed")
    return outcome, int(number) if number else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mutants", type=int, default=200, help="how many of each path, drawn at random; 0 for all"
    )
    parser.add_argument(
        "--paths", default="ops", help="folders and files of src/gradtape, separated by commas"
    )
    parser.add_argument("--only", default="", help="a report whose mutants are tried again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tests", type=int, default=400, help="how many tests at the most run for one mutant"
    )
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long at the most the tests of a mutant take"
    )
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds of the processor after which a mutant hangs"
    )
    parser.add_argument(
        "--coverage",
        default=str(Path(tempfile.gettempdir()) / "gradtape-mutation-coverage.json"),
        help="the file that says which test covers which line",
    )
    parser.add_argument(
        "--test-paths",
        default="",
        help="folders and files of tests to use, separated by commas; all by default",
    )
    parser.add_argument("--slowest", type=float, default=2, help="seconds from which on a test is left out")
    parser.add_argument("--processes", type=int, default=2, help="how many record the coverage")
    parser.add_argument("--only-coverage", action="store_true", help="record the coverage, try no mutants")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="how long the run takes at the most"
    )
    parser.add_argument("--report", default="", help="a file for what survived")
    options = parser.parse_args()
    paths = [path for path in options.test_paths.split(",") if path] or [str(TESTS)]
    raise SystemExit(
        pytest.main(["-q", "-p", "no:cacheprovider", "-s", "--sample", *paths], plugins=[Session(options)])
    )


if __name__ == "__main__":
    main()
