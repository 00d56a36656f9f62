"""Where gradtape runs a function of the user's: it is run on traced arrays, or translated by the front end.

``gt.config.loops`` chooses. With "auto" a function is run. If Python needs numbers that a trace does not have, or a loop goes on for long,
the trace is made again, and this time functions are translated first. What the front end does not support is run as always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from traceback import clear_frames, walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

from gradtape.config import config
from gradtape.errors import (
    CompileWarning,
    ConcretizationError,
    GradtapeError,
    UnsupportedCodeError,
    is_defect,
    warn,
)
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced
from gradtape.trace.jit.guards import Trace
from gradtape.trace.patching.functions import answered_by, functions_of
from gradtape.trace.patching.type_calls import answer_classes
from gradtape.trace.source.sites import Site, is_program_file
from gradtape.trace.translation import ufuncs as ufuncs  # ufuncs of Numba hand over their calls
from gradtape.trace.translation.calls import TranslatedCall, Way, call_translated, trace_around
from gradtape.trace.translation.dispatcher import call_dispatcher, is_dispatcher
from gradtape.trace.translation.trace_budget import TranslationWanted, watched
from gradtape.trees import flatten


def run_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], is_linear: bool = False
) -> Any:
    """Call a function of the user's, or translate it.

    One that `is_linear` in some arguments, a rule of derivatives, is run where Python can: a procedure cannot be transposed in them.
    """
    function, args, kwargs = _plain_call(function, args, kwargs)
    if is_dispatcher(function):
        return call_dispatcher(function, args, kwargs)
    trace = trace_around()
    wanted = "" if trace is None else trace.translates
    if config.loops == "compile":
        wanted = wanted or 'gt.config.loops is "compile"'
    answer_classes(function)
    may_be = (wanted or (trace is None and config.loops == "auto")) and _is_programs(function)
    if not may_be or not any(map(is_traced, flatten((args, kwargs), tables=False)[0])):
        return function(*args, **kwargs)
    if not wanted or is_linear:  # a rule that has to be translated has one direction of differentiation
        return _run_or_translate(function, args, kwargs)
    try:
        return call_translated(function, args, kwargs, wanted)
    except Exception as refusal:  # if it is of the user's code, the trace raises it as well
        raise_interruption(refusal)
        if trace is not None:
            trace.ways.append(Way(function.__name__, False, _said(refusal)))
        return _run_instead(function, args, kwargs, refusal)


def _plain_call(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a call of a partial, of a method or of an object as the call of the function of the user's that it makes."""
    while True:
        if type(function) is partial:
            function, args, kwargs = function.func, (*function.args, *args), function.keywords | kwargs
        elif type(function) is MethodType:
            function, args = function.__func__, (function.__self__, *args)
        elif type(method := type(function).__call__) is FunctionType:
            function, args = method, (function, *args)
        else:
            return function, args, kwargs


def _run_instead(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], refusal: Exception
) -> Any:
    """Run a function whose code could not be compiled."""
    _let_go(refusal)
    result = function(*args, **kwargs)
    _warn_of(function, refusal)
    return result


def _let_go(refusal: BaseException | None) -> None:
    """Free what the frames of a refusal hold: who else holds an array's memory decides whether a traced value can be written to it."""
    while refusal is not None:
        clear_frames(refusal.__traceback__)
        refusal = refusal.__cause__ or refusal.__context__


def _failed(refusal: Exception) -> bool:
    """Return whether the front end, or what runs its result, failed in place of refusing the code."""
    return is_defect(refusal) or (isinstance(refusal, UnsupportedCodeError) and refusal.unexpected)


def _warn_of(function: Callable[..., Any], refusal: Exception | None) -> None:
    """Warn of a function that ran without an error, so that nothing is wrong with its code, if the front end failed."""
    if refusal is None or not _failed(refusal):
        return
    code = function.__code__
    where = refusal.where if isinstance(refusal, GradtapeError) else None
    warn(
        CompileWarning,
        f"the code of {function.__name__} could not be compiled, so the function is run and recorded",
        where=where or f"{code.co_filename}:{code.co_firstlineno} in {function.__name__}",
        why=f"an internal error: {_error_in(refusal)}",
        remedy="nothing, if the speed does not matter; please report it",
    )


def _error_in(refusal: Exception) -> str:
    """Return the type and the message of the exception that was not expected."""
    cause = refusal.__cause__ if isinstance(refusal, UnsupportedCodeError) else refusal
    return f"{type(cause).__name__}: {getattr(cause, 'what', cause)}"


def inner_codes(error: BaseException) -> list[CodeType]:
    """Return the code of the user's functions that were running when a trace ended, the outermost first, without the traced function."""
    if isinstance(error, TranslationWanted):
        frames = list(_frames_up(error.frame))[::-1]
    else:
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]  # begins inside the trace
    begin = max((k for k, frame in enumerate(frames) if frame.f_code is run_function.__code__), default=-1)
    codes = [frame.f_code for frame in frames[begin + 1 :] if is_program_file(frame.f_code.co_filename)]
    unknown = error if isinstance(error, ConcretizationError) else error.__cause__
    if not codes and isinstance(unknown, ConcretizationError) and isinstance(unknown.where, Site):
        return [unknown.where.code]  # it was raised after the function had returned
    return list(dict.fromkeys(codes[1:]))


def _frames_up(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextmanager
def translating(codes: Sequence[CodeType], trace: Trace) -> Iterator[None]:
    """Translate the functions with these codes where a trace calls them: it could not translate the function that calls them."""

    def handler(function: FunctionType, args: Any, kwargs: Any) -> Any:
        return (run_function if trace_around() is trace else _plainly)(function, args, kwargs)

    with answered_by(functions_of(codes), handler):
        yield


def _plainly(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


_long_running: Final[WeakKeyDictionary[CodeType, str]] = WeakKeyDictionary()
"""Functions that are translated outside traces, by their code, with the reason."""


def _run_or_translate(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function outside jitted functions; translate it if it needs numbers that its arguments do not have, or goes on for long."""
    reason = _long_running.get(function.__code__)
    if reason is not None:
        try:
            return call_translated(function, args, kwargs, reason)
        except Exception as failure:  # of other arguments than before
            raise_interruption(failure)
            return _run_instead(function, args, kwargs, failure)
    leaves, spec = flatten((args, kwargs), tables=False)
    before = [(leaf, leaf.value) for leaf in leaves if isinstance(leaf, Handle) and is_traced(leaf)]
    refusal: Exception | None = None

    def can_be_translated() -> bool:
        """Return whether a run that goes on for long can be given up: what it has done outside cannot be undone."""
        nonlocal refusal
        site = here.site
        try:
            if flatten((args, kwargs), tables=False)[1] == spec:
                TranslatedCall(function, args, kwargs).prepare()
                return True
        except Exception as error:
            raise_interruption(error)
            _let_go(error)
            refusal = error
            return False
        finally:
            here.site = site
        return False

    try:
        with watched(_run_or_translate.__code__, can_be_translated):
            result = function(*args, **kwargs)
        _warn_of(function, refusal)
        return result
    except (ConcretizationError, TranslationWanted) as error:
        for leaf, value in before:
            if leaf.value is not value:
                leaf.rebind(value)
        if isinstance(error, TranslationWanted):
            _long_running[function.__code__] = error.reason
            return call_translated(function, args, kwargs, error.reason)
        try:
            return call_translated(function, args, kwargs, error.what)
        except Exception as failure:
            raise_interruption(failure)
            if _failed(failure):
                error.add_note(
                    f"  its code could not be compiled either; please report it: {_error_in(failure)}"
                )
            raise error from None


def _said(refusal: Exception) -> str:
    """Return why the code of a function could not be compiled."""
    if _failed(refusal):
        return f"an internal error, {_error_in(refusal)}"
    if not isinstance(refusal, GradtapeError):
        return f"{type(refusal).__name__}: {refusal}"
    return refusal.what if refusal.where is None else f"{refusal.what} ({refusal.where})"


def _is_programs(function: Callable[..., Any]) -> bool:
    return type(function) is FunctionType and is_program_file(function.__code__.co_filename)
