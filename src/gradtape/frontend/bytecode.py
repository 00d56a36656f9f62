"""From the bytecode of a function to basic blocks of simple instructions, by Numba's interpreter of bytecode.

Numba is imported here when the first function is translated, and nowhere else.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from gradtape.errors import UnsupportedCodeError
from gradtape.frontend.blocks import BasicBlock, Code, Instruction
from gradtape.frontend.code_cache import NotStorableError, Store, code_key, from_bytes, to_bytes
from gradtape.frontend.numba_interpreter import numba_ir
from gradtape.ir.site import Site

Function: TypeAlias = types.FunctionType

_READ: Final[WeakKeyDictionary[types.CodeType, Code]] = WeakKeyDictionary()


def read_code(code: types.CodeType, module: dict[str, Any]) -> Code:
    """Return the blocks of a code object; `module` are the globals in which it runs.

    Raises
    ------
    UnsupportedCodeError
        For what Numba's interpreter of bytecode or the front end does not take.
    """
    code_read = _READ.get(code)
    if code_read is None:
        code_read = _READ[code] = _stored(code, module)
    return code_read


class _Kept:
    """Where what was read is kept for other processes, if anywhere."""

    store: Store | None = None


def keep_code_in(store: Store) -> None:
    """Let what is read from now on be kept for other processes."""
    _Kept.store = store


def _stored(code: types.CodeType, module: dict[str, Any]) -> Code:
    """Return what a code object does, read by another process or by this one."""
    if _Kept.store is None:
        return _read(code, module)
    read_now: list[Code] = []

    def make() -> bytes:
        read_now.append(_read(code, module))
        return to_bytes(read_now[0])

    try:
        data = _Kept.store(code_key(code), make)
    except NotStorableError:
        return read_now[0]
    return read_now[0] if read_now else from_bytes(data)


def _read(code: types.CodeType, module: dict[str, Any]) -> Code:
    from numba.core.errors import NumbaError, UnsupportedBytecodeError

    site = Site(code.co_filename, code.co_firstlineno, code.co_name)
    if code.co_flags & (0x20 | 0x80 | 0x200):  # generators and coroutines
        raise unsupported("a generator or coroutine", site, "write a loop, or a function that fills an array")
    cells = tuple([types.CellType(None) for _ in code.co_freevars])
    function = types.FunctionType(code, module, code.co_name, None, cells)
    try:
        read = numba_ir(function)
    except (
        NumbaError,
        UnsupportedBytecodeError,
        NotImplementedError,
        AssertionError,
        KeyError,
        IndexError,
    ) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UnsupportedCodeError(
            f"the code of {code.co_name} cannot be translated: {reason}",
            where=site,
            why="Numba's bytecode interpreter, which reads the code, does not support it",
            remedy="leave out try, with, sets, del and generators, or trace the function with gt.config.loops = 'trace'",
        ) from None
    inner = _assigned_inside(code, module)
    nonlocals = (_targets(read.blocks.values()) | inner) & set(code.co_freevars)
    shared = nonlocals.union(code.co_cellvars)
    blocks = {}
    for label, block in sorted(read.blocks.items()):
        reader = _BlockReader(code, shared, nonlocals)
        blocks[label] = reader.read(label, block)
    changed = (inner & shared) | nonlocals
    return Code(code.co_name, code.co_filename, code.co_firstlineno, blocks, shared, nonlocals, changed)


def _assigned_inside(code: types.CodeType, module: dict[str, Any]) -> frozenset[str]:
    """Return the variables of a function that functions which it defines assign."""
    assigned: frozenset[str] = frozenset()
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType) and inner.co_freevars:
            try:
                assigned |= read_code(inner, module).nonlocals
            except UnsupportedCodeError:  # a call of it will say so
                continue
    return assigned


def _targets(blocks: Iterable[Any]) -> frozenset[str]:
    """Return the variables that are assigned."""
    from numba.core import ir

    return frozenset(
        [
            base_name(statement.target.name)
            for block in blocks
            for statement in block.body
            if isinstance(statement, ir.Assign)
        ]
    )


def base_name(name: str) -> str:
    """Return the name that a variable has in Python; Numba numbers those that are assigned again, as ``x.1``."""
    return name.partition(".")[0]


def unsupported(description: str, where: Any, remedy: str = "") -> UnsupportedCodeError:
    return UnsupportedCodeError(
        f"{description} cannot be translated",
        where=where,
        remedy=remedy or "write it with numbers, arrays, tuples and loops, or use gt.config.loops = 'trace'",
    )


class _BlockReader:
    """Converts the statements of one block of Numba's IR."""

    def __init__(self, code: types.CodeType, cells: frozenset[str], nonlocals: frozenset[str]) -> None:
        self.code = code
        self.cells = cells
        self.nonlocals = nonlocals
        self.out: list[Instruction] = []
        self.line = code.co_firstlineno

    def read(self, label: int, block: Any) -> BasicBlock:
        from numba.core import ir

        for statement in block.body[:-1]:
            self.line = statement.loc.line
            if isinstance(statement, ir.Assign):
                self.assign(statement.target.name, statement.value)
            elif isinstance(statement, ir.SetItem):
                names = (statement.target.name, statement.index.name, statement.value.name)
                self.emit("", "setitem", names)
            elif isinstance(statement, ir.SetAttr):
                self.emit("", "setattr", (statement.target.name, statement.value.name), statement.attr)
            elif isinstance(statement, ir.Del):
                pass
            else:
                self.refuse(type(statement).__name__)
        last = block.body[-1]
        self.line = last.loc.line
        if isinstance(last, ir.Jump):
            end: tuple[str, str, list[int]] = ("jump", "", [last.target])
        elif isinstance(last, ir.Branch):
            end = ("branch", self.name(last.cond.name), [last.truebr, last.falsebr])
        elif isinstance(last, ir.Return):
            end = ("return", self.name(last.value.name), [])
        elif isinstance(last, ir.Raise):
            end = ("raise", "" if last.exception is None else self.name(last.exception.name), [])
        else:
            raise self.refusal(type(last).__name__)
        return BasicBlock(label, self.out, *end, self.line)

    def emit(self, target: str, kind: str, names: tuple[str, ...] = (), detail: Any = None) -> None:
        self.out.append(Instruction(self.name(target), kind, tuple(map(self.name, names)), detail, self.line))

    def name(self, name: str) -> str:
        """Return the name of a variable; one that functions share has the same name wherever it is assigned."""
        base = base_name(name)
        return base if base in self.cells else name

    def refusal(self, operation: str) -> UnsupportedCodeError:
        return unsupported(
            _NAMES.get(operation, f"a statement ({operation})"),
            Site(self.code.co_filename, self.line, self.code.co_name),
        )

    def refuse(self, operation: str) -> None:
        raise self.refusal(operation)

    def assign(self, target: str, value: Any) -> None:
        from numba.core import ir

        if isinstance(value, ir.Var):
            self.emit(target, "copy", (value.name,))
        elif isinstance(value, ir.Const):
            self.emit(target, "const", (), value.value)
        elif isinstance(value, ir.Global):
            if "load_global" in target or not hasattr(builtins, value.name):
                self.emit(target, "global", (), value.name)
            else:
                self.emit(target, "const", (), value.value)
        elif isinstance(value, ir.FreeVar) and value.name in self.nonlocals:
            self.emit(target, "copy", (value.name,))
        elif isinstance(value, ir.FreeVar):
            self.emit(target, "free", (), value.name)
        elif isinstance(value, ir.Arg):
            self.emit(target, "argument", (), value.index)
        elif isinstance(value, ir.Expr):
            self.expression(target, value)
        else:
            self.refuse(type(value).__name__)

    def expression(self, target: str, value: Any) -> None:
        read = _EXPRESSIONS.get(value.op)
        if read is None:
            raise self.refusal(value.op)
        for instruction in read(value):
            self.emit(target, *instruction)


_Parts: TypeAlias = Iterator[tuple[str, tuple[str, ...], Any]]


def _call(value: Any) -> _Parts:
    names = [value.func.name, *[v.name for v in value.args], *[v.name for _, v in value.kws]]
    keywords = tuple([k for k, _ in value.kws])
    extra = [v.name for v in (value.vararg, value.varkwarg) if v is not None]
    detail = (len(value.args), keywords, value.vararg is not None, value.varkwarg is not None)
    yield "call", (*names, *extra), detail


def _function(value: Any) -> _Parts:
    keywords: dict[str, Any] = value.keywords
    is_known = isinstance(value.defaults, tuple)
    names = [] if is_known or value.defaults is None else [value.defaults.name]
    defaults = value.defaults if is_known else value.defaults is not None
    detail = (value.code, defaults, tuple(keywords))
    yield "function", (*names, *[variable.name for variable in keywords.values()]), detail


def _one(kind: str, detail: Callable[[Any], Any] = lambda value: None) -> Callable[[Any], _Parts]:
    def read(value: Any) -> _Parts:
        yield kind, (value.value.name,), detail(value)

    return read


def _items(kind: str) -> Callable[[Any], _Parts]:
    def read(value: Any) -> _Parts:
        yield kind, tuple([v.name for v in value.items]), None

    return read


_EXPRESSIONS: Final[dict[str, Callable[[Any], _Parts]]] = {
    "call": _call,
    "binop": lambda value: iter([("binary", (value.lhs.name, value.rhs.name), value.fn)]),
    "inplace_binop": lambda value: iter([("inplace", (value.lhs.name, value.rhs.name), value.immutable_fn)]),
    "unary": _one("unary", lambda value: value.fn),
    "getitem": lambda value: iter([("getitem", (value.value.name, value.index.name), None)]),
    "static_getitem": _one("static_getitem", lambda value: value.index),
    "getattr": _one("getattr", lambda value: value.attr),
    "build_tuple": _items("tuple"),
    "build_list": _items("list"),
    "getiter": _one("iterator"),
    "iternext": _one("next"),
    "pair_first": _one("first"),
    "pair_second": _one("second"),
    "exhaust_iter": _one("unpack", lambda value: value.count),
    "cast": _one("copy"),
    "make_function": _function,
    # What a name was before a comprehension took it: Python 3.12 runs comprehensions in the frame of the function.
    "undef": lambda value: iter([("const", (), None)]),
}

_NAMES: Final = {
    "build_map": "a dict",
    "build_set": "a set",
    "DelItem": "the deletion of an element",
    "EnterWith": "a with statement",
    "PopBlock": "a with or try statement",
    "StaticRaise": "an error that a try or with statement may catch",
    "StaticTryRaise": "a try statement",
    "TryRaise": "a try statement",
    "yield": "a generator",
    "Yield": "a generator",
    "StoreMap": "a dict",
}
