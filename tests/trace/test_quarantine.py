"""The quarantine of tricks: `gradtape.trace.patching` alone reads bytecode and changes objects of others."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradtape
from tests.suite.several import several_cases
from tests.support.processes import words_printed

ROOT = Path(gradtape.__file__).parent
QUARANTINE = "trace/patching/"

FOR_MESSAGES = {"co_filename", "co_firstlineno", "co_name", "co_flags"}
"""Attributes of code that say where a line of the user's is."""

OFFSET_READERS = {
    "trace/source/sites.py",
    "trace/lazy/trace_prediction.py",
    "trace/source/log.py",  # the places of the calls from which a number left a tape
}
"""Modules that store or compare the offset of an instruction with each operation: a call would cost more than all else there.
They read no instruction."""

FRONT_END = "frontend/"
"""The folder that translates bytecode, as a compiler does: it changes nothing of the function."""

NAMESPACE_WRITERS = {
    "autograd/redirect.py": "modules stand under autograd's names, as who calls it asks for",
    "trace/subclasses/instances.py": "an object that stands for one of a package has the attributes of that one",
    "trace/routines/sparse_matrices.py": "a constructor fills its own matrix, and copies are matrices that it has made",
    "trace/translation/trace_budget.py": "our own clock counts while a trace is watched, and is a plain object otherwise",
    "api/inspect/script.py": "a script that is inspected runs in a module of its own, as __main__",
    "api/inspect/check.py": "warnings that a script shows are noted: Python's documentation lets programs replace warnings.showwarning",
}
"""Modules that write to a namespace of others, and why."""

COPYING = {
    "trace/jit/captures/functions.py",
    "trace/jit/captures/spec.py",
    "trace/jit/captures/user_classes.py",
}
"""Build the copies of functions that a traced function sees, and reset them after the trace."""

FUNCTION_PARTS = {"__code__", "__closure__", "__globals__", "__defaults__", "__kwdefaults__", "cell_contents"}
"""What makes a function do something else when it is assigned to."""

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.lru_cache(maxsize=1)
def nodes_by_class(tree: ast.AST) -> dict[type[ast.AST], list[Any]]:
    """Return all nodes of a tree by their classes."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return found


def nodes_of(tree: ast.AST, *classes: type[ast.AST]) -> Iterator[Any]:
    """Yield the nodes of some classes, which several checks visit."""
    for each in classes:
        yield from nodes_by_class(tree).get(each, ())


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in nodes_of(tree, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def targets(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is assigned to or deleted."""
    for node in nodes_of(tree, ast.Assign, ast.Delete, ast.AugAssign, ast.AnnAssign):
        found: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            found = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            found = [node.target]
        while found:
            target = found.pop()
            if isinstance(target, ast.Tuple | ast.List):
                found += target.elts
            else:
                yield target


def module_names(tree: ast.Module) -> set[str]:
    """Return the names of a file that stand for modules of others."""
    found = set()
    for node in nodes_of(tree, ast.Import):
        found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


def root_of(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def name_called(node: ast.Call) -> str:
    """Return the last part of the name of the called function."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def bytecode_reads(tree: ast.Module) -> set[str]:
    found = {f"import {name}" for name in imported(tree) & {"dis", "opcode"}}
    for node in nodes_of(tree, ast.Attribute, ast.Call):
        if isinstance(node, ast.Attribute):
            if (node.attr.startswith("co_") and node.attr not in FOR_MESSAGES) or node.attr == "f_lasti":
                found.add(node.attr)
        elif name_called(node) == "FunctionType" and ast.unparse(node.func) in (
            "FunctionType",
            "types.FunctionType",
        ):
            found.add("FunctionType(...)")
    return found


def changes(tree: ast.Module) -> set[str]:
    """Return the assignments to classes, functions, modules and namespaces that a file does not own, as text."""
    found = set()
    modules = module_names(tree)
    for target in targets(tree):
        if not isinstance(target, ast.Attribute | ast.Subscript):
            continue
        text = ast.unparse(target)
        if isinstance(target, ast.Attribute) and target.attr in FUNCTION_PARTS | {"__class__"}:
            found.add(text)
        root = root_of(target)
        if (
            (isinstance(root, ast.Name) and root.id in modules)
            or text.startswith("vars(")
            or any(part in text for part in ("__globals__", ".f_locals", ".f_globals"))
        ):
            found.add(text)
    for node in nodes_of(tree, ast.Call, ast.Subscript):
        if isinstance(node, ast.Call):
            name = name_called(node)
            if name in ("setattr", "delattr") and isinstance(node.args[0], ast.Name):
                if node.args[0].id in modules or node.args[0].id in ("module", "namespace", "builtins"):
                    found.add(ast.unparse(node))
            elif name in ("update", "setdefault", "pop"):
                text = ast.unparse(node.func)
                if text.startswith("vars(") or "__dict__." in text:
                    found.add(ast.unparse(node))
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and ast.unparse(node)
            in (
                "vars(object)['__class__']",
                "object.__dict__['__class__']",
            )
        ):
            found.add(ast.unparse(node))
    return found


def memory_writes(tree: ast.Module) -> set[str]:
    """Return the assignments through pointers, as text."""
    written = [ast.unparse(t) for t in targets(tree) if isinstance(t, ast.Attribute | ast.Subscript)]
    found = {text for text in written if ".from_address(" in text or ".contents." in text}
    for node in nodes_of(tree, ast.Call):
        if name_called(node) in ("memmove", "memset"):
            found.add(ast.unparse(node))
    return found


def outside() -> list[Path]:
    return [path for path in MODULES if not name_of(path).startswith(QUARANTINE)]


def check_tricks(path: Path) -> None:
    tree = ast.parse(path.read_text())
    name = name_of(path)
    if name.startswith(FRONT_END):
        return
    read = bytecode_reads(tree) - ({"f_lasti"} if name in OFFSET_READERS else set())
    assert not read, f"{name} reads bytecode: {sorted(read)}; that is the work of gradtape.trace.patching"
    changed = changes(tree)
    if name in COPYING:
        changed = {text for text in changed if not text.startswith("copy.")}
    assert not changed or name in NAMESPACE_WRITERS, f"{name} changes objects of others: {sorted(changed)}"
    written = memory_writes(tree)
    assert not written, f"{name} writes to memory through pointers: {sorted(written)}"


def test_no_tricks() -> None:
    with several_cases() as case:
        for path in outside():
            with case(name_of(path)):
                check_tricks(path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import dis", bytecode_reads),
        ("from opcode import opmap", bytecode_reads),
        ("size = len(f.__code__.co_code)", bytecode_reads),
        ("place = frame.f_lasti", bytecode_reads),
        ("import types\ng = types.FunctionType(code, {})", bytecode_reads),
        ("x.__class__ = y", changes),
        ("vars(object)['__class__'].__set__(x, y)", changes),
        ("import numpy as np\nnp.zeros = zeros", changes),
        ("import numpy as np\nnp.linalg.zeros = zeros", changes),
        ("import builtins\nsetattr(builtins, name, f)", changes),
        ("import sys\nsys.modules['a'] = module", changes),
        ("f.__code__, g = code, 1", changes),
        ("f.__globals__['a'] = 1", changes),
        ("vars(module).update(a=1)", changes),
        ("del f.__closure__", changes),
        ("import ctypes\nctypes.c_int.from_address(id(x)).value = 1", memory_writes),
        ("import ctypes\nctypes.memmove(a, b, 8)", memory_writes),
    ],
)
def test_tricks_are_found(text: str, kind: object) -> None:
    assert callable(kind) and kind(ast.parse(text))


NAMESPACES = """
import atexit, builtins, cmath, math, os, sys, threading
import numba, pandas  # else a finder on sys.meta_path waits for them
import numpy as np, scipy.fft, scipy.linalg, scipy.ndimage, scipy.signal, scipy.special, scipy.stats
import scipy.cluster, scipy.integrate, scipy.interpolate, scipy.optimize, scipy.sparse.linalg, scipy.spatial.transform
SPACES = [builtins, cmath, math, np, np.linalg, np.fft,
    scipy.fft, scipy.linalg, scipy.signal, scipy.ndimage, scipy.special, scipy.stats, sys.modules["__main__"]]
import gradtape as gt

scale, log, table = 2.0, [], {"a": np.ones(2)}

def snapshot():
    mine = {"BEFORE", "checked", "results", "work"}
    return [{name: id(thing) for name, thing in vars(space).items() if name not in mine} for space in SPACES], [
        # One waits for the packages that are not imported.
        id(finder) for finder in sys.meta_path if type(finder).__module__ != gt.trace.patching.imports.__name__]

def f(x):
    y = np.zeros(2)
    y[0] = scale * x[0] + table["a"][1]
    return np.sum(y) + np.array([x[1], 1.0]).sum() + scipy.special.logsumexp(x) + scipy.linalg.det(np.outer(x, x) + np.eye(2))

def failing(x):
    f(x)
    raise KeyError("in the middle")

def suspended():
    with gt.GradientTape() as tape:
        f(tape.watch(np.ones(2)))
        yield
        yield

def runs(x):
    gt.grad(f)(x)
    gt.jit(f)(x)
    gt.jit(gt.grad(f))(x)

def fails(x):
    for function, given in ((gt.jit(failing), x), (gt.grad(failing), x), (gt.vmap(failing), np.ones((2, 2)))):
        try:
            function(given)
        except KeyError:
            pass

def suspends(x):
    generator = suspended()
    next(generator)
    checked.append(snapshot() == BEFORE)
    gt.grad(f)(x)
    del generator

def in_threads(x):
    threads = [threading.Thread(target=work, args=(x,)) for work in (runs, fails) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def in_a_child(x):
    with gt.GradientTape():
        child = os.fork() if hasattr(os, "fork") else 0
        if not child and hasattr(os, "fork"):
            runs(x)
            os._exit(snapshot() != BEFORE)
    if child:
        checked.append(os.waitpid(child, 0)[1] == 0)

checked = []
BEFORE = []
BEFORE = snapshot()
for work in (runs, fails, suspends, in_threads, in_a_child):
    work(np.array([1.0, 2.0]))
    checked.append(snapshot() == BEFORE)

class AtExit:
    def __del__(self, snapshot=snapshot, before=BEFORE, write=os.write, runs=runs, x=np.ones(2)):
        now = snapshot()
        write(1, f"{now[0][:-1] == before[0][:-1]}".encode())

print(*checked, flush=True)
results = AtExit()
atexit.register(lambda: globals().pop("results"))
"""


def test_namespaces_are_what_they_were() -> None:
    """After exceptions, in threads, around suspended generators, in a child process, and when the interpreter ends."""
    words = words_printed(NAMESPACES)
    assert words == ["True"] * 8, words
