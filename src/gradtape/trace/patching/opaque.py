"""Opaque functions of SciPy: they compute with numbers in compiled code, or call the user's functions with numbers.

A result of theirs would be a constant in silence where a traced value comes in through the user's function: through its closure, the
object that it is a method of, or a global name. So the arguments of a call are searched for traced values. In a jitted function one of
them is an error, which names the function. On a tape there is a warning, and the function runs with numbers while the tape pauses.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from gradtape.errors import GradtapeWarning, UnsupportedFunctionError, warn
from gradtape.ir.graph import TraceTag, Value
from gradtape.kinds.registry import BORROWED, MAKERS, OPAQUE, SOLVERS
from gradtape.runtime.call.callable import FastCallable
from gradtape.trace.array.concretize import abstracting_trace
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import Preallocated, to_ndarray, unwrap_keywords, unwrap_preallocated
from gradtape.trace.jit.guards import Trace
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.patching.copies import copy_function, outer_variables
from gradtape.trace.patching.functions import Function, hook_function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.log import note_exit, opaque_call
from gradtape.trace.source.sites import OWN, is_user_file, user_site

DEPTH: Final = 4
"""The depth of the search, without containers: a function in an argument, an object in its closure, and two more (parts of a mixture)."""

WHY: Final = "it is compiled code, or takes steps that depend on values, and its result would be a constant"
REMEDY: Final = (
    "give it a derivative with gt.custom_gradient (for a root or a minimum by the implicit function theorem)"
)


def traced_parts(item: Any, *, every: bool = False) -> Iterator[Handle]:
    """Return the traced arrays that an argument is, holds, or may read if it is a function of the user's; with `every`, all arrays."""
    pending: list[tuple[Any, int]] = [(item, DEPTH)]  # containers may be nested deeper than Python's stack
    depths: dict[
        int, tuple[int, Any]
    ] = {}  # the depth that was left, and what it is: ids of what is gone are used again
    while pending:
        part, depth = pending.pop()
        if isinstance(part, Handle):
            value = part.value
            if (
                every
                or any(tag.recording and not isinstance(tag, Trace) for tag in value.tags)
                or abstracting_trace(value) is not None
            ):
                yield part
        elif type(part) not in PLAIN and depths.get(id(part), (0, None))[0] < depth:
            depths[id(part)] = depth, part
            below = depth if isinstance(part, CONTAINERS) or _is_own(part) else depth - 1
            pending.extend([(inner, below) for inner in reversed(_parts(part))])


CONTAINERS: Final = (list, tuple, set, frozenset, dict, functools.partial, MethodType, FastCallable)
"""Types of objects that do not count for the depth."""

PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, ModuleType})
"""Types of objects that hold no arrays."""


def _is_own(part: Any) -> bool:
    """Return whether a function is one of gradtape's that wraps another one."""
    is_own = isinstance(part, FunctionType) and part.__code__.co_filename.startswith(OWN)
    return is_own and hasattr(part, "__wrapped__")


def _parts(item: Any) -> list[Any]:
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, FastCallable):  # completes one that was made at each call
        return [item.__wrapped__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, FunctionType):
        if not is_user_file(item.__code__.co_filename):
            return [cell.cell_contents for cell in item.__closure__ or () if _is_filled(cell)]
        defaults = [*(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()]
        return [*outer_variables(item).values(), *defaults]
    attributes = getattr(item, "__dict__", None)
    if inspect.isclass(item) or not isinstance(attributes, dict):  # an object may answer for any name
        return []
    return [*attributes.values(), *([type(item).__call__] if callable(item) else [])]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _refusal(name: str, reason: str) -> UnsupportedFunctionError:
    return UnsupportedFunctionError(
        f"{name} is not supported by gradtape", where=user_site(), why=reason or WHY, remedy=REMEDY
    )


def handler_for(name: str, reason: str = "", *, on_tapes: bool = True) -> Callable[[Function], Function]:
    """Return what makes the handler of an opaque function.

    Parameters
    ----------
    name : str
        The function, for messages.
    reason : str
        Why it is not supported, if it is not for the common reason.
    on_tapes : bool
        Whether it runs on a tape, with a warning; else it is an error there too.
    """

    def handler_of(plain: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not contexts.stack:
                return plain(*args, **kwargs)
            traced = list(traced_parts((args, kwargs)))
            rule = SOLVERS.get(name)
            if rule is not None and (traced or name in MAKERS or any(map(_has_array_of_elements, args))):
                result = rule(plain, args, kwargs)
                if result is not NotImplemented:
                    return result
            if not traced and name not in MAKERS:
                return _run(name, plain, unwrap_preallocated(args), unwrap_keywords(kwargs))
            values = [handle.value for handle in traced]
            if not on_tapes or any(abstracting_trace(value) is not None for value in values):
                raise _refusal(name, reason)
            return _paused_with_warning(name, plain, args, kwargs, values)

        return call

    return handler_of


def _has_array_of_elements(matrix: Any) -> bool:
    """Return whether a sparse matrix has elements that depend on captures of a trace alone: SciPy's C code does not take them."""
    return not isinstance(matrix, Handle) and isinstance(getattr(matrix, "data", None), Handle)


def _run(name: str, plain: Function, args: Any, kwargs: Any) -> Any:
    around = opaque_call.name, opaque_call.tags
    tags = [getattr(context, "tag", None) for context in contexts.stack]
    try:
        opaque_call.name, opaque_call.tags = name, frozenset(filter(None, tags))
        return plain(*args, **kwargs)
    finally:
        opaque_call.name, opaque_call.tags = around


def _paused_with_warning(name: str, plain: Function, args: Any, kwargs: Any, values: list[Value]) -> Any:
    """Call a function with numbers while the tapes that record the values do not record."""
    for value in values:
        note_exit(value, f"{name}(...)", meant=False)
    warn(
        GradtapeWarning,
        f"{name} gets a watched array, and its result has no gradient",
        where=user_site(),
        why=WHY,
        remedy=f"{REMEDY}; x.numpy() if this is intended",
    )
    return paused(name, plain, args, kwargs, values)


def paused(name: str, plain: Function, args: Any, kwargs: Any, values: list[Value]) -> Any:
    """Call a function with numbers while the tapes that record the values do not record."""
    prediction.materialise()
    tags = {tag for value in values for tag in value.tags if type(tag) is TraceTag and tag.recording}
    try:
        for tag in tags:
            tag.recording = False
        return as_numbers(_run(name, plain, as_numbers(args), as_numbers(kwargs)))
    finally:
        for tag in tags:
            tag.recording = True


def as_numbers(item: Any) -> Any:
    """Return an argument or a result with ndarrays for arrays; functions return ndarrays."""
    if isinstance(item, Handle):
        data = to_ndarray(item) if isinstance(item, Preallocated) else item.numpy()  # type: ignore[attr-defined]
        return data if data.ndim else data[()]
    if isinstance(item, dict):
        parts = {key: as_numbers(part) for key, part in item.items()}
        if type(item) is dict:
            return parts
        item.update(parts)  # a result of SciPy's, which is a dict with attributes
        return item
    if type(item) in (list, tuple):
        return type(item)([as_numbers(part) for part in item])
    if isinstance(item, FunctionType | MethodType | functools.partial):
        return _with_numbers(item)
    return item


def _with_numbers(function: Any) -> Function:
    plain = function if isinstance(function, functools.partial) else reading_numbers(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return as_numbers(plain(*args, **kwargs))

    return call


def reading_numbers(function: Any) -> Function:
    """Return a function whose closure and global names have ndarrays for arrays: it runs as fast as plain NumPy code."""
    if isinstance(function, MethodType) or not _holds_arrays(function):
        reading: Function = function
        return reading
    cells = tuple(
        CellType(as_numbers(cell.cell_contents))
        if _is_filled(cell) and _holds_arrays(cell.cell_contents)
        else cell
        for cell in function.__closure__ or ()
    )
    names = function.__globals__
    changed = {
        name: as_numbers(names[name])
        for name in function.__code__.co_names
        if name in names and _holds_arrays(names[name])
    }
    copy = copy_function(function, {**names, **changed} if changed else None, cells or None)
    copy.__defaults__ = as_numbers(function.__defaults__)
    copy.__kwdefaults__ = as_numbers(function.__kwdefaults__)
    return copy


def _holds_arrays(item: Any) -> bool:
    return any(True for _ in traced_parts(item, every=True))


def _hook(module: ModuleType, names: dict[str, str]) -> None:
    for name, reason in names.items():
        public = f"{module.__name__}.{name}"
        current: Any = module
        for part in name.split("."):
            current = getattr(current, part, None)
        if isinstance(current, FunctionType) and public not in BORROWED:
            constructor = name.endswith(".__init__")
            handler = handler_for(public.removesuffix(".__init__"), reason, on_tapes=not constructor)
            hook_function(current, handler)


def _functions_of(module: ModuleType) -> list[str]:
    return [
        name
        for name in getattr(module, "__all__", ())
        if isinstance(getattr(module, name, None), FunctionType)
    ]


def _hook_when_imported(module: str, names: dict[str, str], is_whole: bool) -> None:
    def hook(imported: ModuleType) -> None:
        listed = {name: names.get(name, "") for name in _functions_of(imported)} if is_whole else {}
        _hook(imported, {name: why for name, why in {**listed, **names}.items() if why != "supported"})

    when_imported(module, hook)


for _module, (_names, _whole) in OPAQUE.items():
    _hook_when_imported(_module, _names, _whole)
