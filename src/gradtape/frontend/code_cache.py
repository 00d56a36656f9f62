"""What code objects do, as bytes: another process that translates the same code reads them, and need not import Numba."""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import marshal
import operator
import os
import types
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from gradtape.frontend.blocks import BasicBlock, Code, Instruction

Store: TypeAlias = Callable[[str, Callable[[], bytes]], bytes]
"""Returns the bytes of a key, from where they are kept, or from the function that makes them."""

_CONSTANTS: Final = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
_MODULES: Final = {module.__name__: module for module in (builtins, operator)}


FORMAT: Final = 3
"""Changes where what stands in the bytes does."""


class NotStorableError(Exception):
    """A part of code has no form as bytes."""


def code_key(code: types.CodeType) -> str:
    """Return a digest of a code object and of the interpreter of bytecode that reads it."""
    numba_spec = importlib.util.find_spec("numba")
    origin = "" if numba_spec is None or numba_spec.origin is None else numba_spec.origin
    stamp = f"{origin} {os.stat(origin).st_mtime_ns}" if origin else ""
    data = marshal.dumps(_content(code), 2)  # later versions depend on reference counts
    digest: str = hashlib.blake2b(data + stamp.encode(), digest_size=20).hexdigest()
    return f"code {FORMAT} {digest}"


def _content(thing: Any) -> Any:
    """Return code or a constant in a form that version 2 of `marshal` takes: slices, constants since Python 3.14, are lists."""
    if isinstance(thing, types.CodeType):
        consts = thing.co_consts
        return [thing.replace(co_consts=(None,) * len(consts)), [_content(constant) for constant in consts]]
    if isinstance(thing, tuple):
        return tuple([_content(item) for item in thing])
    if isinstance(thing, slice):
        return [thing.start, thing.stop, thing.step]
    return [thing.__name__] if callable(thing) else thing  # what stands for a builtin


def to_bytes(code: Code) -> bytes:
    """Return what code does as bytes."""
    blocks = [
        (
            block.label,
            [
                (
                    instruction.target,
                    instruction.kind,
                    instruction.names,
                    _encoded(instruction.detail),
                    instruction.line,
                )
                for instruction in block.instructions
            ],
            (block.end, block.name, block.targets, block.line),
        )
        for block in code.blocks.values()
    ]
    shared = code.cells, code.nonlocals, code.changed
    return marshal.dumps((code.name, code.filename, code.line, blocks, shared))


def from_bytes(data: bytes) -> Code:
    """Return what `to_bytes` made bytes of."""
    name, filename, line, blocks, shared = marshal.loads(data)
    read = {}
    for label, instructions, end in blocks:
        instructions_read = [
            Instruction(target, kind, names, _decoded(detail), at)
            for target, kind, names, detail, at in instructions
        ]
        read[label] = BasicBlock(label, instructions_read, *end)
    return Code(name, filename, line, read, *shared)


def _encoded(value: Any) -> Any:
    kind = type(value)
    if kind is types.CodeType:
        consts = value.co_consts
        items = [
            _encoded(const) if callable(const) or type(const) is kind else ("constant", const)
            for const in consts
        ]
        return "code", (value.replace(co_consts=(None,) * len(consts)), items)
    if kind in _CONSTANTS:
        return "constant", value
    if kind is tuple or kind is list:
        return kind.__name__, [_encoded(item) for item in value]
    if kind is slice:
        return "slice", [_encoded(item) for item in (value.start, value.stop, value.step)]
    for name, module in _MODULES.items():
        named = str(getattr(value, "__name__", ""))
        if getattr(module, named, None) == value:  # or what stands for it
            return name, named
    raise NotStorableError(repr(value))


def _decoded(encoded: Any) -> Any:
    kind, content = encoded
    if kind == "constant":
        return content
    if kind == "code":
        code, consts = content
        return code.replace(co_consts=tuple(map(_decoded, consts)))
    if kind in _MODULES:
        return getattr(_MODULES[kind], content)
    items = map(_decoded, content)
    return slice(*items) if kind == "slice" else tuple(items) if kind == "tuple" else list(items)
