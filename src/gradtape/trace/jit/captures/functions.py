"""Visits of functions: globals, closures, defaults and attributes; of methods, partial functions, builtins and weak references."""

from __future__ import annotations

import functools
import sys
import weakref
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from gradtape.trace.jit.captures.methods import name_method, read_code
from gradtape.trace.jit.captures.namespaces import namespace_of, read_names
from gradtape.trace.jit.captures.steps import Check, Origin, Source
from gradtape.trace.jit.captures.varying import (
    ENVIRONMENT,
    OS_MODULES,
    check_environment,
    note_function,
    note_generator,
)
from gradtape.trace.jit.captures.walk import MOST_STEPS, WRITABLE, CaptureWalk, CellCopy, always
from gradtape.trace.patching.copies import (
    ReferenceCopy,
    closure_of,
    copy_function,
    is_filled,
    is_made_anew,
)
from gradtape.trace.patching.name_reads import APPENDING, NO_READS, Reads, reads_of
from gradtape.trace.patching.type_calls import answer_classes
from gradtape.trace.source.sites import PACKAGE, is_user_file


def visit_function(
    walk: CaptureWalk, function: FunctionType, origin: Origin, label: str, copying: bool
) -> Any:
    """Check a function by identity and code, and visit its globals, closure and defaults; return its copy."""
    answer_classes(function)
    code, name = function.__code__, function.__name__
    is_users = is_user_file(code.co_filename)
    if walk.by_parts:
        read_code(walk.facts, function)
    if name in ENVIRONMENT and function.__module__ in OS_MODULES:
        check_environment(walk)
    by_parts = walk.by_parts and origin[0] is not Source.FIXED and is_made_anew(function)
    if not is_users and not by_parts and _encloses_libraries_only(function):
        walk.by_identity(function, origin, label)
        return function
    if by_parts:
        step = walk.step(origin, Check.TYPE, FunctionType, label)
    else:
        step = walk.identity_step(origin, function, label)
    check = Check.SAME if is_users or by_parts else Check.NOTHING
    walk.step((Source.ATTRIBUTE, step, "__code__"), check, code, f"the code of {name}")
    if len(walk.spec.steps) >= MOST_STEPS:
        return walk.remember(function, function, step, copying)
    copy = function
    if copying:
        names = function.__globals__
        cells = tuple([_cell_copy(walk, cell).copy for _, cell in closure_of(function)])
        copy = copy_function(function, namespace_of(walk, names).copy if is_users else names, cells)
        copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        walk.spec.function_copies.append((copy, function))
    walk.remember(function, copy, step, copying)
    if by_parts:
        _check_parts(walk, function, step, label)
    reads = reads_of(code) if is_users or by_parts or not _is_own(function) else NO_READS
    if is_users:
        walk.facts.add(reads)
        read_names(walk, namespace_of(walk, function.__globals__), reads, copying)
    _visit_closure(walk, function, copying, reads, step if by_parts else None)
    if is_users or by_parts:
        _visit_defaults(walk, function, copy, step, copying, by_parts)
        _visit_attributes(walk, function, copy, step, copying, by_parts)
    return copy


_OTHER_PARTS: Final = ("__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__")
"""What code seldom reads of a function."""


def _check_parts(walk: CaptureWalk, function: FunctionType, step: int, label: str) -> None:
    """Check what a function has besides its code, closure and defaults, and what code may read."""
    namespace = function.__globals__
    walk.step((Source.ATTRIBUTE, step, "__globals__"), Check.SAME, namespace, f"the names of {label}")
    facts = walk.facts
    reads_all = facts.everything or facts.asks
    for part in ("__name__", *_OTHER_PARTS):
        if hasattr(function, part) and (part == "__name__" or reads_all or part in facts.attributes):
            origin = Source.ATTRIBUTE, step, part
            walk.visit(getattr(function, part), origin, f"{part} of {label}", False)


def _is_own(function: FunctionType) -> bool:
    """Return whether a function is gradtape's own."""
    return (function.__module__ or "").partition(".")[0] == PACKAGE


def _cell_copy(walk: CaptureWalk, cell: Any) -> CellCopy:
    copy = walk.cells.get(id(cell))
    if copy is None:
        copy = walk.cells[id(cell)] = CellCopy(cell)
    return copy


def _visit_closure(
    walk: CaptureWalk, function: FunctionType, copying: bool, reads: Reads, owner: int | None
) -> None:
    """Visit the closure variables of a function, and fill the cells of its copy.

    `owner` is the step of a function that is checked by its parts: its cells are read anew.
    """
    # gradtape's own functions assign to their closure variables once.
    is_fixed = _is_own(function) and owner is None
    closure = -1
    if owner is not None and function.__closure__:
        expected = tuple, len(function.__closure__)
        origin: Origin = Source.ATTRIBUTE, owner, "__closure__"
        closure = walk.step(origin, Check.LENGTH, expected, f"the closure of {function.__name__}")
    for number, (variable, original) in enumerate(closure_of(function)):
        label = f"the closure variable {variable!r} of {function.__name__}"
        cell = _cell_copy(walk, original)
        walk.note_use(cell.label or label, variable in reads.logs, variable in reads.stores)
        origin = Source.CELL, -1, original
        if owner is not None:
            origin = Source.CELL, _check_cell(walk, cell, (Source.ITEM, closure, number), label), None
        elif cell.step is not None:
            walk.step((Source.FIXED, -1, original), Check.AS_STEP, cell.step, label)
        where = -1 if cell.step is None else cell.step
        try:
            content = original.cell_contents
        except ValueError:
            walk.step(origin, Check.ABSENT, None, label)
            if not copying:
                walk.leave_writable(original, where, label, always(label))
            elif not cell.label:
                cell.label = label
                walk.substitute(original, cell.copy, label, always(label), where)
            continue
        content_origin = (Source.FIXED, -1, content) if is_fixed else origin
        if not copying:
            walk.visit(content, content_origin, label, False)
            walk.leave_writable(original, where, label, always(label))
            continue
        if cell.label:
            continue
        cell.label, copy = label, cell.copy
        if variable == "__class__":
            walk.by_identity(content, origin, label)
            copy.cell_contents = content
            continue
        copy.cell_contents = walk.visit(content, content_origin, label)
        walk.substitute(original, copy, label, always(label), where)


def _check_cell(walk: CaptureWalk, cell: CellCopy, origin: Origin, label: str) -> int:
    """Check that functions share a cell as those of the trace did, and return the step that has read it."""
    if cell.step is not None:
        walk.step(origin, Check.AS_STEP, cell.step, label)
        return cell.step
    check, expected = (Check.SAME, cell.original) if cell.label else (Check.TYPE, CellType)
    cell.step = walk.step(origin, check, expected, label)
    return cell.step


def _visit_defaults(
    walk: CaptureWalk, function: FunctionType, copy: FunctionType, step: int, copying: bool, by_parts: bool
) -> None:
    """Visit the defaults of a function, and set those of its copy."""
    label = f"the defaults of {function.__name__}"
    for part in ("__defaults__", "__kwdefaults__") if by_parts else ():
        if getattr(function, part) is None:
            walk.step((Source.ATTRIBUTE, step, part), Check.SAME, None, label)
    if function.__defaults__ is not None:
        origin = Source.ATTRIBUTE, step, "__defaults__"
        defaults = walk.visit(function.__defaults__, origin, label, copying)
        if copy is not function:
            copy.__defaults__ = defaults
    if function.__kwdefaults__ is not None:
        origin = Source.ATTRIBUTE, step, "__kwdefaults__"
        by_name = walk.visit(function.__kwdefaults__, origin, label, copying)
        if copy is not function:
            copy.__kwdefaults__ = dict(by_name)


def _visit_attributes(
    walk: CaptureWalk, function: FunctionType, copy: FunctionType, step: int, copying: bool, by_parts: bool
) -> None:
    """Visit the attributes of a function that code reads, and set those of its copy."""
    name, fields = function.__name__, vars(function)
    keys, where = [key for key in fields if key in walk.facts.attributes and key != "__wrapped__"], -1
    if by_parts:  # signatures are read of what a function wraps, and of any of its attributes
        keys = list(fields)
        origin = Source.ATTRIBUTE, step, "__dict__"
        where = walk.step(origin, Check.KEYS, (dict, tuple(keys)), f"the attributes of {name}")
    for key in keys:
        label = f"the attribute {key!r} of {name}"
        content = walk.visit(fields[key], (Source.FIELD, step, key), label, copying)
        if copy is not function:
            copy.__dict__[key] = content
    described, part = f"the function {name}", "the attribute {!r} of " + name
    if copy is not function and (keys or walk.facts.stored):
        walk.substitute(fields, vars(copy), described, part, where)
    elif walk.facts.stored:
        walk.leave_writable(fields, where, described, part)


def visit_method(walk: CaptureWalk, method: MethodType, origin: Origin, label: str, copying: bool) -> Any:
    """Check a bound method by its function and its owner."""
    step = walk.step(origin, Check.TYPE, MethodType, label)
    if walk.by_parts and type(method.__func__) is FunctionType:
        name_method(walk.facts, method.__func__)
    function = walk.visit(method.__func__, (Source.ATTRIBUTE, step, "__func__"), label, copying)
    owner = walk.visit(method.__self__, (Source.ATTRIBUTE, step, "__self__"), f"self of {label}", copying)
    if function is method.__func__ and owner is method.__self__:
        return method
    return MethodType(function, owner)


def visit_partial(
    walk: CaptureWalk, partial: functools.partial[Any], origin: Origin, label: str, copying: bool
) -> Any:
    """Check a partial function by its parts."""
    step = walk.step(origin, Check.TYPE, type(partial), label)
    function, args, keywords = (
        walk.visit(getattr(partial, part), (Source.ATTRIBUTE, step, part), f"{label} ({part})", copying)
        for part in ("func", "args", "keywords")
    )
    if function is partial.func and args is partial.args and keywords is partial.keywords:
        return partial
    return type(partial)(function, *args, **keywords)


def visit_reference(
    walk: CaptureWalk, reference: weakref.ref[Any], origin: Origin, label: str, copying: bool
) -> Any:
    """Check a weak reference by identity, and visit what it refers to."""
    target = reference()
    step = walk.step(origin, Check.SAME, reference, label)
    copy: Any = reference
    if target is not None and copying:
        target_copy = walk.visit(target, (Source.REFERENT, step, None), label)
        if target_copy is not target:
            copy = ReferenceCopy(target_copy)
    return walk.remember(reference, copy, step, copying)


def visit_builtin(walk: CaptureWalk, function: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check a function that is written in C by identity, and note those whose results differ from call to call."""
    note_function(walk, function, label)
    owner = getattr(function, "__self__", None)
    note_generator(walk, owner)
    if type(owner) not in WRITABLE:
        walk.by_identity(function, origin, label)
        return function
    step = walk.identity_step(origin, function, label)
    part = f"the {type(owner).__name__} of {label}"
    walk.note_use(part, function.__name__ in APPENDING)
    copy = walk.visit(owner, (Source.ATTRIBUTE, step, "__self__"), part, copying)
    return walk.remember(
        function, function if copy is owner else getattr(copy, function.__name__), step, copying
    )


def _encloses_libraries_only(function: FunctionType, outer: tuple[FunctionType, ...] = ()) -> bool:
    """Return whether a function encloses only functions of libraries, and constants: a library's decorator has made it.

    A function that encloses itself, or one around it, has been looked at.
    """
    if function in outer:
        return True
    for _, cell in closure_of(function):
        content = cell.cell_contents if is_filled(cell) else None
        if is_filled(cell) and _is_constant(content):
            continue
        if type(content) is not FunctionType or is_user_file(content.__code__.co_filename):
            return False
        if not _encloses_libraries_only(content, (*outer, function)):
            return False
    return True


def _is_constant(content: Any) -> bool:
    """Return whether an object cannot change: a number, a text, a class of a library, a tuple of such, or a dict of flags."""
    if isinstance(content, type):
        module = sys.modules.get(content.__module__)
        return not is_user_file(getattr(module, "__file__", None) or "")
    if type(content) is tuple:
        return all(map(_is_constant, content))
    if type(content) is dict:
        return all(type(flag) is bool for flag in content.values())
    return content is None or type(content) in (bool, int, float, str)
