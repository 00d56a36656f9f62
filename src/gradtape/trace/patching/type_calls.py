"""Calls of ``type(x)`` in traced code: of a traced number they return the class that NumPy's code would see, as ``x.__class__`` does.

Python reads the class of an object from its memory, and its specialised instruction for ``type(x)`` calls no pointer. So the code of the
functions that call it is replaced by code that is the same but for this: the instruction that loads the name `type` loads a constant. Other
reads of the name, such as ``x is type``, get the type, and the names of modules and builtins stay what they are.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from gradtape.lru import LRU
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import ARRAY_LIBRARIES
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.lengths import Length
from gradtape.trace.patching.bytecode import names_in, nested_codes
from gradtape.trace.patching.copies import closure_of, is_filled
from gradtape.trace.patching.imports import at_each_import
from gradtape.trace.patching.recorders import RECORDERS, after_growth
from gradtape.trace.source.sites import is_program_file, package_of
from gradtape.trace.subclasses.instances import TracedNdarray

_TRACED: Final = (Handle, Length, TracedNdarray)


class TypeOfNumbers:
    """What stands for `type` where traced code calls it.

    Everything but the class of a traced number is left to `type`: classes that are made by it, and ``isinstance(x, type)``.
    """

    def __call__(self, value: Any, *arguments: Any, **named: Any) -> Any:
        """Return the class of an object, or make a class."""
        if len(arguments) == 2:
            # A class belongs to the module that makes it: `type` takes its name from the frame that calls it.
            bases, content = arguments
            module = sys._getframe(1).f_globals.get("__name__")
            return type(value, bases, {"__module__": module, **content} if module else content, **named)
        if arguments or named:
            return type(value, *arguments, **named)
        kind = type(value)
        if RECORDERS and issubclass(kind, _TRACED):
            return value._numpy_class() if kind is Array else value.__class__
        return kind

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, type)

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> int:
        return hash(type)

    def __repr__(self) -> str:
        return repr(type)

    def __reduce__(self) -> Any:
        return type, (type,)


TYPE_OF_NUMBERS: Final = TypeOfNumbers()


def answer_classes(function: Any) -> None:
    """Let a function, and the functions that it names, answer ``type(x)`` as NumPy's code would.

    Parameters
    ----------
    function : callable
        What is no function written in Python, or in code that is not traced, stays as it is.
    """
    open_ = [function]
    while open_:
        callee = open_.pop()
        callee = getattr(callee, "__func__", callee)
        if isinstance(callee, functools.partial):
            open_.append(callee.func)
        if type(callee) is not FunctionType:
            continue
        code, names = callee.__code__, callee.__globals__
        _answer(callee)
        if id(code) in _resolved or names.get("__name__") in _seen:
            continue
        _resolved[id(code)] = code
        _resolved[id(callee.__code__)] = callee.__code__
        for inner in nested_codes(code):
            open_ += [names[name] for name in names_in(inner) if callable(names.get(name))]
        open_ += [cell.cell_contents for _, cell in closure_of(callee) if is_filled(cell)]


_resolved: Final[LRU[int, CodeType]] = LRU(lambda: 1 << 16)
"""By its id: code of functions whose names were resolved."""


def _answer(function: FunctionType) -> None:
    """Replace the code of a function if it calls `type`."""
    if _reads_type(function.__code__) and "type" not in function.__globals__:
        changed = _with_constant(function.__code__)
        if changed is not function.__code__:
            function.__code__ = changed


def _reads_type(code: CodeType) -> bool:
    """Return whether code, or code inside it, reads the name `type`; most code does not."""
    return "type" in code.co_names or any(
        _reads_type(inner_code) for inner_code in code.co_consts if type(inner_code) is CodeType
    )


_answering: Final[LRU[int, tuple[CodeType, CodeType]]] = LRU(lambda: 1 << 20)
"""By the id of code: the code, which keeps the id valid, and the code that replaces it, which may be the same."""

_LOAD, _CONSTANT, _NOTHING = (dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_CONST", "NOP"))
_NULL, _MORE, _CACHE = (dis.opmap[name] for name in ("PUSH_NULL", "EXTENDED_ARG", "CACHE"))
_NULL_IS_FIRST: Final = sys.version_info < (3, 13)


_READERS_OF_CODE: Final = ARRAY_LIBRARIES | {"llvmlite", "numba"}
"""Packages that compile the code of their functions, and get no traced arrays."""


def _with_constant(code: CodeType) -> CodeType:
    """Return code that calls the stand-in where it calls `type`; the same code if it does not call it."""
    entry = _answering.get(id(code))
    if entry is not None:
        return entry[1]
    changed = code
    file = code.co_filename
    if is_program_file(file) and package_of(file) not in _READERS_OF_CODE:
        consts = tuple(
            [_with_constant(const) if isinstance(const, CodeType) else const for const in code.co_consts]
        )
        text = bytearray(code.co_code)
        if "type" in code.co_names and _load_constant(text, code, len(consts)):
            consts = (*consts, TYPE_OF_NUMBERS)
        if any(const is not other for const, other in zip(consts, (*code.co_consts, None), strict=False)):
            changed = code.replace(co_code=bytes(text), co_consts=consts)
    _answering[id(code)] = code, changed
    _answering[id(changed)] = changed, changed
    return changed


def _load_constant(text: bytearray, code: CodeType, constant: int) -> bool:
    """Let the instructions that load `type` to call it load a constant, and return whether there are some."""
    number, has_call = code.co_names.index("type"), False
    hands_over = "map" in code.co_names
    opcodes = bytes(text[::2])  # those of inline caches are zero
    position = -1
    while (position := opcodes.find(_LOAD, position + 1)) >= 0:
        start = first = 2 * position
        argument = text[start + 1]
        if position and opcodes[position - 1] == _MORE:
            first, argument = start - 2, argument | text[start - 1] << 8
        end = start + 2
        while end < len(text) and text[end] == _CACHE:
            end += 2
        is_called = argument & 1
        if argument >> 1 == number and (
            is_called or (hands_over and dis.opname[text[end]].startswith("LOAD"))
        ):
            load = [_CONSTANT, constant & 255]
            load = [_MORE, constant >> 8, *load] if constant > 255 else load
            null = [_NULL, 0] if is_called else []
            new = [*null, *load] if _NULL_IS_FIRST else [*load, *null]
            text[first:end] = bytes([*new, *[_NOTHING, 0] * ((end - first - len(new)) // 2)])
            has_call = True
    return has_call


def _answer_in(module: ModuleType) -> None:
    """Let the functions of a module answer, if their code is traced."""
    names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    file = names.get("__file__")
    if names.get("__name__") != "__main__" and (
        not isinstance(file, str) or not is_program_file(file) or package_of(file) in _READERS_OF_CODE
    ):
        return
    pending = [
        value
        for value in list(names.values())
        if type(value) is not FunctionType or value.__globals__ is names
    ]
    classes: set[int] = set()
    for _ in range(_DEPTH):
        pending = _answer_held(pending, names.get("__name__"), classes)


_MOST_ITEMS: Final = 1000
"""The length of a container that is taken for data, and not searched for functions."""

_DEPTH: Final = 5
"""How many levels of what modules hold are searched."""

_WRAPPED: Final = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    functools.partial: ("func",),
    MethodType: ("__func__",),
    type(functools.lru_cache(len)): ("__wrapped__",),
}
"""What holds functions, and its attributes that do."""

_HOLD_NOTHING: Final = frozenset({str, int, float, bool, type(None), ModuleType, BuiltinFunctionType})
"""What most names of modules and items of containers are."""

_CONTAINERS: Final = frozenset({dict, list, tuple})


def _answer_held(values: list[Any], module: Any, classes: set[int]) -> list[Any]:
    """Let those of the things answer that are functions, and return what the things hold; classes are of a module, and looked at once."""
    contents: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _HOLD_NOTHING:
            continue
        if kind is FunctionType:
            _answer(value)
            if value.__closure__:
                contents += [cell.cell_contents for cell in value.__closure__ if is_filled(cell)]
        elif kind in _CONTAINERS:
            if len(value) < _MOST_ITEMS:
                contents += value.values() if kind is dict else value
        elif kind in _WRAPPED:
            contents += [getattr(value, name) for name in _WRAPPED[kind]]
        elif issubclass(kind, type) and value.__module__ == module and id(value) not in classes:
            classes.add(id(value))
            contents += vars(value).values()
    return contents


_seen: Final[set[str]] = set()
"""The names of the modules whose functions answer; those of the main module and of modules that run still may become more."""


def _answer_everywhere() -> bool:
    """Let the functions of all modules answer that were imported since the last time; return whether none of them is still running."""
    running = False
    for name, module in list(sys.modules.items()):
        if name not in _seen and isinstance(module, ModuleType):
            _answer_in(module)
            if getattr(module.__spec__, "_initializing", False):
                running = True
            elif name != "__main__":
                _seen.add(name)
    return not running


after_growth(_answer_everywhere)
at_each_import(_answer_in)
