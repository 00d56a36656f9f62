"""Where numbers that left a tape go: the expressions of the source that are computed from them.

A number has no history, but the code that computes with it is known. The search begins at the expression that took the number out, and
follows names, attributes, items of containers, returned values and arguments through the functions on the way, whatever the order in
which their statements run.
"""

from __future__ import annotations

import ast
import linecache
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Final

from gradtape.lru import LRU
from gradtape.trace.patching.bytecode import position_at

Place = tuple[CodeType, int]
"""A code object, and the offset of an instruction in it."""

COUNTS: Final = frozenset(
    {"argmax", "argmin", "bool", "ceil", "fix", "floor", "hash", "id", "int", "isfinite", "isinf"}
    | {"isinstance", "isnan", "len", "print", "range", "rint", "round", "sign", "type"}
)
"""Functions whose results do not change with a small change of a number."""

WRITES_TEXT: Final = frozenset({"format", "repr", "str"})
"""Functions whose results are text, from which numbers may be read again."""

READS_TEXT: Final = frozenset(
    {
        "Decimal",
        "Fraction",
        "array",
        "asarray",
        "complex",
        "eval",
        "float",
        "fromfile",
        "fromstring",
        "genfromtxt",
    }
    | {"literal_eval", "load", "loads", "loadtxt", "memmap", "read_csv"}
)
"""Functions that read numbers from text and files."""

SAVES: Final = frozenset({"save", "savetxt", "savez", "savez_compressed", "tofile", "write", "writelines"})
"""Functions and methods that write into a file, which is the first argument of a function, and what a method belongs to."""

OPENS: Final = frozenset({"BytesIO", "Path", "StringIO", "fdopen", "open"})
"""Functions that make a file, or the object by which it is reached, of their first argument."""

FIXED: Final = frozenset({"dtype", "ndim", "shape", "size"})
"""Attributes that do not change with the numbers of an array."""

ADDS: Final = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})
"""Methods that put their arguments into a container."""

CARRIERS: Final = (
    ast.Assign,
    ast.AugAssign,
    ast.NamedExpr,
    ast.AnnAssign,
    ast.For,
    ast.comprehension,
    ast.withitem,
    ast.Return,
    ast.Lambda,
    ast.Call,
)
"""The parts of the syntax that pass a number on."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _File:
    """The syntax tree of a file.

    Attributes
    ----------
    tree : ast.Module
        The whole.
    scopes : dict
        The function, or the module, that each expression and statement belongs to.
    """

    __slots__ = ("_by_end", "_parents", "scopes", "tree")

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.scopes: dict[ast.AST, Any] = {}
        self._by_end: dict[tuple[int, int], list[ast.expr]] = defaultdict(list)
        pending: list[tuple[ast.AST, Any]] = [(tree, tree)]
        while pending:
            node, scope = pending.pop()
            self.scopes[node] = scope
            if isinstance(node, ast.expr):
                self._by_end[node.end_lineno or 0, node.end_col_offset or 0].append(node)
            inner = node if isinstance(node, Function) else scope
            pending += [(child, inner) for child in ast.iter_child_nodes(node)]

    def expression(self, position: tuple[int, int, int, int]) -> ast.expr | None:
        """Return the expression at a position: the smallest that ends there and begins not after it."""
        line, end_line, column, end_column = position
        candidates = [
            node
            for node in self._by_end.get((end_line, end_column), ())
            if (node.lineno, node.col_offset) <= (line, column)
        ]
        return max(candidates, key=lambda node: (node.lineno, node.col_offset), default=None)


@lru_cache(maxsize=32)
def _parsed(source: str) -> _File | None:
    try:
        return _File(ast.parse(source))
    except (SyntaxError, ValueError):
        return None


def _file_of(code: CodeType) -> _File | None:
    return _parsed("".join(linecache.getlines(code.co_filename)))


def _expression_at(place: Place) -> tuple[_File, ast.expr] | None:
    position, file = position_at(*place), _file_of(place[0])
    node = None if position is None or file is None else file.expression(position)
    return None if node is None or file is None else (file, node)


class _Flow:
    """The expressions that are computed from a number.

    Parameters
    ----------
    chain : sequence of Place
        Where the number was taken out, and the calls that led there, the innermost first.
    uses : iterable of Place
        Where operations were recorded.
    is_text : bool
        Whether it was taken out as text, or into a file.
    """

    __slots__ = (
        "_attributes",
        "_bound",
        "_chain",
        "_files",
        "_is_text",
        "_marked",
        "_names",
        "_paths",
        "_scopes",
    )

    def __init__(self, chain: Sequence[Place], uses: Iterable[Place], is_text: bool = False) -> None:
        expressions = [_expression_at(place) for place in chain]
        self._marked: set[ast.AST] = set()
        self._names: set[tuple[ast.AST, str]] = set()
        self._attributes: set[str] = set()
        self._chain = [
            None if expression is None else (expression[0].scopes[expression[1]], expression[1])
            for expression in expressions
        ]
        self._files: dict[ast.AST, _File] = {}
        self._scopes: dict[str, Any] = {}
        self._bound: dict[ast.AST, frozenset[str]] = {}
        self._paths: set[str] = set()
        """Expressions of the source that are paths of files."""
        self._is_text = is_text
        for located in [*expressions, *map(_expression_at, uses)]:
            if located is not None:
                file, node = located
                scope = file.scopes[node]
                self._files[scope] = file
                if isinstance(scope, ast.FunctionDef):
                    self._scopes[scope.name] = scope
        if self._chain and self._chain[0] is not None:
            _, node = self._chain[0]
            if is_text and isinstance(node, ast.Call) and _name_of(node.func) in SAVES:
                self._save(node, self._files[self._chain[0][0]])
            else:
                self._marked.add(node)
            self._spread()
        if is_text:
            self._go_on(self._calls(READS_TEXT), False)
        elif written := [*self._calls(WRITES_TEXT), *self._formatted()]:
            marked = self._marked
            self._go_on(written, True)
            self._go_on([*marked, *self._calls(READS_TEXT)], False)

    def reaches(self, place: Place) -> bool:
        """Return whether the expression at a place is computed from the number."""
        located = _expression_at(place)
        return located is not None and self._is_computed(located[1], located[0])

    def _go_on(self, marked: Iterable[ast.AST], is_text: bool) -> None:
        """Begin anew at other expressions, with numbers in place of text or the reverse."""
        self._marked, self._is_text = set(marked), is_text
        self._names, self._attributes, self._paths = set(), set(), set()
        self._spread()

    def _calls(self, names: frozenset[str]) -> list[ast.AST]:
        """Return the calls of some functions that get what is computed from the number."""
        return [
            node
            for scope, file in self._files.items()
            for node in _inside(scope)
            if isinstance(node, ast.Call)
            and _name_of(node.func) in names
            and any(self._is_computed(argument, file) for argument in node.args)
        ]

    def _formatted(self) -> list[ast.AST]:
        """Return the f-strings that have what is computed from the number in them."""
        return [
            node
            for scope, file in self._files.items()
            for node in _inside(scope)
            if isinstance(node, ast.JoinedStr)
            and any(self._is_computed(part, file) for part in ast.iter_child_nodes(node))
        ]

    def _size(self) -> int:
        return len(self._marked) + len(self._names) + len(self._attributes) + len(self._paths)

    def _spread(self) -> None:
        size = 0
        parts = [
            (file, [node for node in _inside(scope) if isinstance(node, CARRIERS)])
            for scope, file in self._files.items()
        ]
        while size != self._size():
            size = self._size()
            for file, nodes in parts:
                for node in nodes:
                    self._visit(node, file)

    def _visit(self, node: ast.AST, file: _File) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, file)
            case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, value, file)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, file)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                if self._is_computed(value, file):
                    self._bind(target, file)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assign(target, value, file)
            case ast.Return(value=ast.expr() as value):
                self._return(value, file.scopes[node], file)
            case ast.Lambda(body=value):
                self._return(value, node, file)
            case ast.Call():
                self._call(node, file)

    def _assign(self, target: ast.expr, value: ast.expr, file: _File) -> None:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
        ):
            for element, part in zip(target.elts, value.elts, strict=True):
                self._assign(element, part, file)
        elif self._is_computed(value, file):
            self._bind(target, file)
        elif (
            self._is_text
            and isinstance(value, ast.Call)
            and _name_of(value.func) in OPENS
            and isinstance(target, ast.Name)
            and (file.scopes[target], target.id) in self._names
        ):
            self._save(value, file)  # the file of that name has been written to

    def _save(self, call: ast.Call, file: _File) -> None:
        """Go on where the file is read that a call writes to, or opens."""
        written: list[ast.expr] = call.args[:1]
        if isinstance(call.func, ast.Attribute) and _name_of(call.func) in ("tofile", "write", "writelines"):
            written = [call.func.value] if _name_of(call.func) != "tofile" else written
        for target in written:
            if isinstance(target, ast.Name | ast.Attribute):
                self._bind(target, file)
            else:
                self._paths.add(ast.dump(target))

    def _bind(self, target: ast.expr, file: _File) -> None:
        match target:
            case ast.Name(id=name):
                self._names.add((file.scopes[target], name))
            case ast.Attribute(attr=name):
                self._attributes.add(name)
            case ast.Subscript(value=value) | ast.Starred(value=value):
                self._bind(value, file)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element in elts:
                    self._bind(element, file)

    def _return(self, value: ast.expr, scope: ast.AST, file: _File) -> None:
        """Go on at the call of a function in which the number was taken out, if it returns what is computed from it."""
        numbers = [k for k, link in enumerate(self._chain[:-1]) if link is not None and link[0] is scope]
        if numbers and self._is_computed(value, file):
            self._marked.update(link[1] for k in numbers if (link := self._chain[k + 1]) is not None)

    def _call(self, call: ast.Call, file: _File) -> None:
        """Go on in a function that gets what is computed from the number, and in a container that gets it."""
        computed = [argument for argument in call.args if self._is_computed(argument, file)]
        named = [keyword.arg for keyword in call.keywords if self._is_computed(keyword.value, file)]
        if not computed and not named:
            return
        name = _name_of(call.func)
        if isinstance(call.func, ast.Attribute) and name in ADDS:
            self._bind(call.func.value, file)
        if self._is_text and name in SAVES:
            self._save(call, file)
        scope = self._scopes.get(name)
        if scope is None:
            return
        parameters = [argument.arg for argument in (*scope.args.posonlyargs, *scope.args.args)]
        if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
            del parameters[0]
        numbers = [k for k, argument in enumerate(call.args) if argument in computed and k < len(parameters)]
        for parameter in [*[parameters[k] for k in numbers], *named]:
            if parameter is not None:
                self._names.add((scope, parameter))

    def _is_computed(self, node: ast.AST, file: _File) -> bool:
        """Return whether an expression is computed from the number, and may change with a small change of it."""
        if node in self._marked or (self._paths and ast.dump(node) in self._paths):
            return True
        match node:
            case ast.Compare() | ast.Lambda():
                return False
            case ast.JoinedStr() if not self._is_text:
                return False
            case ast.Name(id=name):
                return self._is_name(name, file.scopes[node], file)
            case ast.Attribute(value=value, attr=name):
                return name in self._attributes or (name not in FIXED and self._is_computed(value, file))
            case ast.IfExp(body=body, orelse=other):
                parts: Iterable[ast.AST] = (body, other)
            case ast.Subscript(value=value):
                parts = (value,)
            case ast.Call(func=function) if _name_of(function) in COUNTS:
                return False
            case ast.Call(func=function) if not self._is_text and _name_of(function) in WRITES_TEXT:
                return False
            case _:
                parts = ast.iter_child_nodes(node)
        return any(self._is_computed(part, file) for part in parts)

    def _is_name(self, name: str, scope: ast.AST, file: _File) -> bool:
        while (scope, name) not in self._names:
            outer = file.scopes[scope]
            if outer is scope:
                return False
            if scope not in self._bound:
                self._bound[scope] = _bound(scope)
            if name in self._bound[scope]:
                return False
            scope = outer
        return True


def _inside(scope: Any) -> Iterator[ast.AST]:
    """Yield the statements and expressions of a function, without those of functions inside it but with these themselves."""
    pending: list[ast.AST] = [scope]
    while pending:
        node = pending.pop()
        yield node
        if node is scope or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending += ast.iter_child_nodes(node)


def _bound(scope: ast.AST) -> frozenset[str]:
    """Return the names that belong to a function: its parameters, and what it assigns."""
    nodes = list(_inside(scope))
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return frozenset(names).union(
        [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    )


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


_flows: Final[LRU[tuple[Any, ...], tuple[Any, frozenset[int]]]] = LRU(lambda: 256)
"""The answers by place, which keep their code alive: a loop of training asks for the same in each step."""


def reached(chain: Sequence[Place], uses: Sequence[Place], is_text: bool = False) -> frozenset[int]:
    """Return which of some places compute from a number that was taken out, by their positions in the sequence.

    Parameters
    ----------
    chain : sequence of Place
        Where the number was taken out, and the calls that led there, the innermost first.
    uses : sequence of Place
        Where operations were recorded.
    is_text : bool
        Whether it was taken out as text, or into a file: then a function has to read numbers from it.
    """
    key = is_text, *[(id(code), offset) for code, offset in (*chain, *uses)]
    cached = _flows.get(key)
    if cached is None:
        flow = _Flow(chain, uses, is_text)
        numbers = frozenset([k for k, place in enumerate(uses) if flow.reaches(place)])
        cached = _flows[key] = (chain, uses), numbers
    return cached[1]
