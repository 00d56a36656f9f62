"""Errors of Python that are caused by the arguments of a call: a list where an array was meant, an array where an ndarray is needed.

Some are replaced by errors of gradtape; others get a note, since they may have another cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from types import FrameType, TracebackType
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.errors import DtypeError, GradtapeError, UnsupportedFunctionError, is_internal, is_users
from gradtape.habits import KEYWORDS
from gradtape.trace.array.array import NO_NUMBERS, Array
from gradtape.trace.array.concretize import ARRAY_LIBRARIES, IN_PACKAGES, INSTEAD_OF_EXTENSION
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.bytecode import is_extension_code, local_names
from gradtape.trace.patching.callers import callee_of, extension_module_of, library_of
from gradtape.trace.source.sites import Site, is_program_file, package_of, path_in_package, user_site

_USED_AS_ARRAY: Final = re.compile(
    r"'(list|tuple)'"
    r"(?! object cannot be interpreted)|\"(list|tuple)\"\)|can't multiply sequence by non-int|can only concatenate (list|tuple)|"
    r"(list|tuple) indices must be integers"
)
"""What Python says where a list is used as an array."""

_NEEDS_NDARRAY: Final = f"Cannot convert {Array.__name__} to numpy.ndarray"
"""What code that Cython has compiled says of an Array."""


def is_list_of_numbers(argument: Any) -> bool:
    """Return whether an argument is a list or tuple of numbers, or of such lists."""
    return (
        type(argument) in (list, tuple)
        and len(argument) > 0
        and all(
            is_list_of_numbers(item)
            or isinstance(item, int | float | complex | np.generic)
            or (isinstance(item, Handle) and item.ndim == 0)
            for item in argument
        )
    )


def _lists_of_numbers(argument: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the lists of numbers in nested containers, with where they stand."""
    if is_list_of_numbers(argument):
        yield path, argument
    elif isinstance(argument, dict | list | tuple):
        for key, item in argument.items() if isinstance(argument, dict) else enumerate(argument):
            yield from _lists_of_numbers(item, f"{path}[{key!r}]")


def is_list_error(error: BaseException | None) -> bool:
    """Return whether an error of Python says that a list was used as an array."""
    return type(error) in (TypeError, AttributeError) and bool(_USED_AS_ARRAY.search(str(error)))


def list_error(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> DtypeError | None:
    """Return the error for a list that the function uses as an array, from the error that it raised; None for other errors."""
    if not is_list_error(error):
        return None
    names = local_names(function) or ()
    named = [(names[k] if k < len(names) else str(k), argument) for k, argument in enumerate(args)]
    for name, argument in [*named, *kwargs.items()]:
        for path, numbers in _lists_of_numbers(argument, name):
            kind = type(numbers).__name__
            if kind not in str(error) and "sequence" not in str(error):
                continue
            return DtypeError(
                f"the argument {path} is a {kind} of length {len(numbers)}, and the function uses it as an array: {error}",
                where=_raised_at(error.__traceback__),
                why=f"a {kind} of numbers stays a {kind}, of traced numbers; Python {kind}s do not support arithmetic",
                remedy=f"pass np.array({path}) instead of the {kind}, or write np.array({path}) at the beginning of the function",
            )
    return None


def call_error(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> DtypeError | UnsupportedFunctionError | None:
    """Return the error that says what is wrong with the arguments of a call, from the one that Python raised; None for other errors."""
    if str(error) != _NEEDS_NDARRAY:
        return list_error(error, function, args, kwargs)
    return UnsupportedFunctionError(
        "compiled code got a traced array where it takes an ndarray only",
        where=_raised_at(error.__traceback__),
        why="its computation cannot be traced",
        remedy="use a supported function (scipy.spatial.KDTree in place of cKDTree), or call it by gt.callback(f, result_like, x)",
    )


def _raised_at(trace: TracebackType | None) -> Site:
    """Return the last line of the user's in a traceback."""
    last_site = None
    while trace is not None:
        if is_users(trace.tb_frame):
            last_site = Site(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    return user_site() if last_site is None else last_site


def note_package(error: Exception, doing: str) -> None:
    """Let an error that a package raised say what to do instead of giving it traced arrays.

    Packages that look at an array before they ask for its numbers raise errors of their own (pandas: no numeric types to aggregate), and
    so do functions of extension modules, which take the memory of an ndarray (a bytes-like object is required, not 'Array').

    Parameters
    ----------
    error : Exception
        What the user's function raised.
    doing : str
        What was done with that function: "while f was traced".
    """
    if isinstance(error, GradtapeError | LookupError | OSError):
        return
    steps = _steps(error)
    users = [
        (frame, line) for frame, line, _ in steps if is_users(frame) and not is_extension_code(frame.f_code)
    ]
    is_explained = any("what to do: " in note for note in getattr(error, "__notes__", ()))
    in_python = [
        (frame, line)
        for frame, line, _ in steps
        if not (is_internal(frame) or is_extension_code(frame.f_code))
    ]
    if not in_python or is_explained:
        return
    about = (
        _about_keyword(error, steps)
        or _about_text(error)
        or _about_number(error)
        or _about_package(steps)
        or _about_library(steps)
        or _about_extension(error, steps)
    )
    why, remedy = about or _about_type(error, steps) or ("", "")
    if not remedy:
        return
    frame, line = (users or in_python)[-1]
    error.add_note(
        f"  where: {frame.f_code.co_filename}:{line} in {frame.f_code.co_name}, {doing}\n"
        f"  why: {why}\n"
        f"  what to do: {remedy}"
    )


_Steps: TypeAlias = list[tuple[FrameType, int, int]]
"""The frames of a traceback, with the line and the instruction of each."""


def _steps(error: Exception) -> _Steps:
    """Return the frames that an error has left, from the outermost to the innermost."""
    steps, trace = [], error.__traceback__
    while trace is not None:
        steps.append((trace.tb_frame, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
    return steps


_UNKNOWN_KEYWORD: Final = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")
"""What NumPy says of a keyword that a function does not have."""


def _about_keyword(error: Exception, steps: _Steps) -> tuple[str, str] | None:
    """Return why a function of NumPy does not have a keyword of another library, and NumPy's; None for other errors."""
    match = (
        _UNKNOWN_KEYWORD.match(str(error))
        if isinstance(error, TypeError) and is_users(steps[-1][0])
        else None
    )
    if match is None or match[2] not in KEYWORDS or not callable(getattr(np, match[1], None)):
        return None
    return f"{match[2]} is a keyword of another library", f"np.{match[1]} has {KEYWORDS[match[2]]}"


def _about_text(error: Exception) -> tuple[str, str] | None:
    """Return why the text of a traced array was not read as a number, and what to do instead; None for other errors."""
    if not isinstance(error, ValueError) or not any(NO_NUMBERS in str(part) for part in error.args):
        return None
    return (
        "a traced array was written as text, which has no numbers while a function is traced, and the text was read as a number",
        "use the number, not its text; a function of a package that does this is called by gt.callback(f, result_like, x), with a "
        "derivative by gt.custom_vjp",
    )


_NO_NUMBER: Final = re.compile(rf"__(\w+)__ returned non-\w+ \(type {Array.__name__}\)")
"""What Python says where the method of an object for ``float(thing)`` returns a traced number."""


def _about_number(error: Exception) -> tuple[str, str] | None:
    """Return why an object of a package was not converted to a number, and what to do instead; None for other errors."""
    match = _NO_NUMBER.search(str(error)) if isinstance(error, TypeError) and len(error.args) == 1 else None
    if match is None:
        return None
    return (
        f"Python takes nothing but a number from the method __{match[1]}__ of an object, which has a traced one",
        f"use the number that the object holds in place of {match[1]}(thing), or call the function that does it by "
        "gt.callback(f, result_like, x), with a derivative by gt.custom_vjp",
    )


def _about_package(steps: _Steps) -> tuple[str, str] | None:
    """Return why a package of `IN_PACKAGES` has raised an error, and what to do instead; None for others."""
    frames = [frame for frame, _, _ in steps if not is_internal(frame)]
    package = frames[-1].f_globals.get("__name__", "").partition(".")[0]
    if is_users(frames[-1]) or package not in IN_PACKAGES:
        return None
    why = f"{package} may have been given traced arrays, whose values are not known yet"
    return why, IN_PACKAGES[package]


def _about_library(steps: _Steps) -> tuple[str, str] | None:
    """Return why a function of another array library refuses a traced array, and NumPy's function of that name; None for others."""
    for frame, _, offset in reversed(steps):
        if not is_users(frame):
            continue
        function = callee_of(frame, offset)
        library = library_of(function)
        if library not in ARRAY_LIBRARIES:
            return None
        name = getattr(function, "__name__", "")
        has_numpy = callable(getattr(np, name, None))
        return (
            f"{library} computes with its own arrays, and gradtape traces NumPy's functions",
            f"np.{name}(...)" if has_numpy else INSTEAD_OF_EXTENSION,
        )
    return None


_TYPES: Final = re.compile(
    r"\b(type|types|instance|ndarray|array|scalar|number|numbers|float|floats|int|list|understood)\b|Array\("
)
"""What packages say where they refuse the type of an argument."""


def _about_type(error: Exception, steps: _Steps) -> tuple[str, str] | None:
    """Return why code in Python of a package has refused a traced array, and what to do instead; None for other errors."""
    frame, line, _ = steps[-1]
    inside = path_in_package(frame.f_code.co_filename)
    if not inside or not is_program_file(frame.f_code.co_filename):
        return None
    texts = " ".join(part for part in error.args if isinstance(part, str))
    traced = [item for item in list(frame.f_locals.values()) if isinstance(item, Handle)]
    if not traced or not (isinstance(error, TypeError | AssertionError) or _TYPES.search(texts)):
        return None
    package = package_of(frame.f_code.co_filename)
    return (
        f"{inside}:{line} rejects an argument, and one is a traced array: isinstance(x, np.ndarray) and type(x) report an ndarray, but "
        f"compiled code, and functions that use the type `type` itself, see a gt.Array",
        f"if that is the reason, call the function of {package} outside, or by gt.callback(f, result_like, x), with a derivative "
        "by gt.custom_vjp",
    )


def _about_extension(error: Exception, steps: _Steps) -> tuple[str, str] | None:
    """Return why a function of an extension module has raised an error, and what to do instead; None for other errors.

    Cython's functions have frames in a traceback; those of pybind11 and f2py have none, and are looked up in the frame that called them.
    """
    # Without the text of the error: it may contain a traced array, which has no numbers to print.
    texts = [part for part in error.args if isinstance(part, str)]
    if not isinstance(error, TypeError | BufferError) and not any(Array.__name__ in text for text in texts):
        return None
    frame, _, offset = steps[-1]
    compiled = list(takewhile(lambda step: is_extension_code(step[0].f_code), reversed(steps)))
    if compiled:
        outermost = compiled[-1][0]
        module = outermost.f_globals.get("__name__") or outermost.f_code.co_name.rpartition(".")[0]
    elif any(isinstance(item, Handle) for item in list(frame.f_locals.values())):
        module = extension_module_of(callee_of(frame, offset))
    else:
        return None
    if not module:
        return None
    calling = [step for step in steps if not is_extension_code(step[0].f_code)][-1:]
    inside = "".join(
        f", which {path_in_package(asking.f_code.co_filename)}:{line} calls,"
        for asking, line, _ in calling
        if package_of(asking.f_code.co_filename)
    )
    return (
        f"this function of {module}{inside} is compiled: it takes ndarrays, not traced arrays, and its computation cannot be traced",
        INSTEAD_OF_EXTENSION,
    )
