"""Programs that functions of one code share: what a transform makes anew at each call, or of a function made anew, is traced once.

``gt.grad(lambda p: f(p, k))(x)`` in a loop makes a function and a gradient in each iteration. Their programs are kept by the transform,
its options and the code of the function. Such a program takes the function before its arguments, and checks it by its parts: code,
globals, closure cells, defaults and attributes (see `visit_function`), and assigns what the function writes to objects that it reaches by
these. It answers plain calls alone: what belongs to a recording, has other side effects, draws random numbers or fails is left to the
function that was made, as if nothing were kept.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from gradtape.config import config
from gradtape.interruptions import raise_interruption
from gradtape.kinds.refusals import bytes_of
from gradtape.lru import LRU
from gradtape.runtime.call.callable import FastCallable
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Source
from gradtape.trace.jit.captures.walk import MOST_STEPS
from gradtape.trace.jit.explain import Explain
from gradtape.trace.jit.lookup import Captured, CaptureSet
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.side_effects import kept_variables
from gradtape.trace.jit.signature import CallArguments, FunctionFirst, StaticArguments
from gradtape.trace.jit.specialisation import Assign, Specialisation
from gradtape.trace.jit.tracing import AcceptTrace
from gradtape.trace.patching.copies import is_filled
from gradtape.trace.source.contexts import running_trace
from gradtape.trees import exact_key

NOT_SHARED: Final = object()
"""The result of a shared program for calls that it leaves to the function that was made."""

MOST_BYTES: Final = 1 << 16
"""The size of constants up to which a program outlives the functions that it was traced from."""


_MOST_ERRORS: Final = 8
"""How many calls of a family may fail before its functions share no more programs: each of them is traced twice."""

BodyOf: TypeAlias = Callable[[Any], Callable[..., Any]]
"""Returns what a transform compiles of a function."""


class Sharing(Protocol):
    """A function that a transform has made, which may share the program of others."""

    @property
    def site(self) -> CallSite:
        """Its traces and programs."""

    def share(self, program: Any, function: Any) -> None:
        """Let calls be answered by a program that takes `function` before their arguments."""


class _NotShared(OutcomeFailed):
    """Raised to end a call that is not shared."""


class _Thread(threading.local):
    """The settings in force on a thread.

    Attributes
    ----------
    refuses_writes : bool
        Whether calls that write to objects are not shared.
    """

    refuses_writes = False


_thread: Final = _Thread()


@contextmanager
def refusing_writes() -> Iterator[None]:
    """Let shared programs answer no call that writes to objects, in this block: the function has run for it, and has written."""
    before, _thread.refuses_writes = _thread.refuses_writes, True
    try:
        yield
    finally:
        _thread.refuses_writes = before


class _OfMany(Explain):
    """The events of shared programs: the functions that were made give the warnings of what each of them does."""

    def warn_of_disagreement(self, *_: Any) -> None:
        """Give no warning."""

    warn_of_effects = warn_of_disagreement  # type: ignore[assignment]


class SharedSite(CallSite):
    """The traces and programs of functions that have one code; the first argument of a call is the function."""

    by_parts = True

    named_by: str
    """The part of `name` that is the name of the function."""

    def __init__(self, function: Callable[..., Any], name: str, static: StaticArguments) -> None:
        super().__init__(function, name, static)
        self.explain = _OfMany(name)
        self.refused = False
        self._errors = 0
        self.named_by = name

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call, or return `NOT_SHARED`."""
        if self.refused or ACTIVE.profiler is not None:
            return NOT_SHARED
        try:
            return super().call(args, kwargs)
        except _NotShared:
            return NOT_SHARED
        except Exception as error:  # the function that was made raises it again, and says what it is about
            raise_interruption(error)
            self._errors += 1
            self.refused = self.refused or self._errors > _MOST_ERRORS
            return NOT_SHARED

    def run_op_by_op(self, call: CallArguments, *_: Any, **__: Any) -> Any:
        """Leave the call to the function that was made."""
        raise _NotShared

    def _recorded(self, call: CallArguments, captured: Any) -> Any:
        raise _NotShared

    def _assigning(self, call: CallArguments, captured: Captured, *, is_first: bool = False) -> Assign:
        return _refuse if _thread.refuses_writes else super()._assigning(call, captured, is_first=is_first)

    def trace(
        self,
        call: CallArguments,
        captures: CaptureSet | None = None,
        *,
        dynamic_trips: bool = False,
        accept: AcceptTrace | None = None,
    ) -> Specialisation | None:
        """Trace one call, whose side effects are undone if it is not kept; messages name the function that is called."""
        called = _name_of(call.objects[0])
        before, found, after = self.name.rpartition(self.named_by)
        if found:
            self.name = self.explain.name = before + called + after
            self.named_by = called
        accept = accept or (lambda _: True)
        return super().trace(call, captures, dynamic_trips=dynamic_trips, accept=accept)

    def _run(self, request: Any, spec: CaptureSpec) -> Any:
        # What cannot be undone is not done twice.
        if spec.unrepeatable or spec.python_generators or spec.files or spec.may_draw:
            self.refused = True
            raise _NotShared
        return super()._run(request, spec)

    def _conclude(self, request: Any, spec: CaptureSpec, specialisation: Any, states: Any) -> None:
        if specialisation is None or not _may_outlive(spec, specialisation):
            self.refused = True
            raise _NotShared
        super()._conclude(request, spec, specialisation, states)


def _refuse(specialisation: Specialisation, outputs: list[Any]) -> None:
    raise _NotShared


def _may_outlive(spec: CaptureSpec, specialisation: Specialisation) -> bool:
    """Return whether the next function may have a trace: it repeats a computation, and assignments to what each function reads, and keeps
    nothing large alive."""
    if len(spec.steps) >= MOST_STEPS or specialisation.state.read:
        return False
    effects = specialisation.effects
    if effects.to_arguments or effects.of_trace or spec.unrepeatable or kept_variables(spec):
        return False
    size = sum(value.data.nbytes for value in specialisation.graph.constants() if value.data is not None)
    for step in spec.steps:
        if step.source is Source.FIXED and isinstance(step.key, type) and "<locals>" in step.key.__qualname__:
            return False
        if step.check is Check.CONTENT:
            size += step.expected.nbytes
        elif step.check is Check.DATA:
            size += bytes_of(step.expected)
        elif step.check is Check.PINNED:
            size += step.expected[1].nbytes
    return size <= MOST_BYTES


class Family:
    """The results of a transform, with some options, for functions that have one code.

    Attributes
    ----------
    program : Jitted or None
        The program that they share, once one of them has been made after another one is gone.
    held : object
        What is kept with the program.
    is_new : bool
        Whether a transform that computes at once has not been called.
    """

    __slots__ = ("_gone", "_made", "held", "is_new", "program")

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []
        self._gone = False
        self.program: Any = None
        self.held: Any = None
        self.is_new = True

    def add(self, made: Sharing, function: Any, body_of: BodyOf) -> None:
        """Let a function share the program if others of the family are gone: what is kept has programs of its own."""
        if not self._gone:
            self._gone = any(each() is None for each in self._made)
        if not self._gone:
            self._made = [*self._made[-1:], weakref.ref(made)]
            return
        if self.program is None:
            self.program = _program_of(body_of, made, function)
        made.share(self.program, function)


def _name_of(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _program_of(body_of: BodyOf, made: Sharing, function: Any) -> Any:
    """Return the program that takes a function and the arguments of what a transform makes of it."""

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        return body_of(function)(*args, **kwargs)

    run.__name__ = made.site.name
    static = made.site.static
    kind: Any = type(made)
    program = kind(run, run, FunctionFirst(static.positions, static.names), SharedSite)
    program.site.named_by = _name_of(function)
    return program


def program_of_calls(
    options: tuple[Any, ...], function: Any, run: Callable[..., Any], kind: Any, held: Any = None
) -> tuple[Any, Any] | None:
    """Return the program of a transform that computes at once, and what is held with it; None for the first call of a family.

    Parameters
    ----------
    options : tuple
        The transform and its options, each of one type: equal ones are the same.
    function : callable
        The function that is transformed.
    run : callable
        What is compiled; takes the function and its arguments.
    kind : callable
        Makes a compiled function of `run`, what it shows itself as, its static arguments, and the class of its call site.
    held : object, optional
        What `run` refers to, of the call that has made the program.
    """
    family = _family_of(function, options, is_exact=True)
    if family is None or running_trace()[0] is not None:
        return None
    if family.program is None:
        if family.is_new:
            family.is_new = False
            return None
        run.__name__ = f"{options[0]}({_name_of(function)})"
        family.program, family.held = kind(run, run, FunctionFirst(), SharedSite), held
        family.program.site.named_by = _name_of(function)
    return family.program, family.held


_families: Final[LRU[Any, Family]] = LRU(lambda: config.memory_cache)


def share(made: Sharing, options: tuple[Any, ...], function: Any, body_of: BodyOf) -> None:
    """Let a function that a transform has made share the program of others of its kind.

    Parameters
    ----------
    made : Jitted
        The function.
    options : tuple
        The transform and its options.
    function : callable
        Of which it was made.
    body_of : callable
        Returns what the transform compiles of a function.
    """
    family = _family_of(function, options)
    if family is not None:
        family.add(made, function, body_of)


def program_of(options: tuple[Any, ...], function: Any) -> Any:
    """Return the program that answers calls of what a transform makes of a function, by the code of both; None where there is none yet."""
    kind = type(function)
    is_plain = kind is types.FunctionType or kind is types.MethodType
    if not is_plain and (kind is not functools.partial or any(options[1:])):
        return None  # of others, options are checked against more than their code
    family = _family_of(function, options)
    return None if family is None else family.program


def _family_of(function: Any, options: tuple[Any, ...], *, is_exact: bool = False) -> Family | None:
    """Return the family of a function; None for a function or options that have no key."""
    try:
        is_exact = is_exact or options[1:] == ((), ())
        key = _key_of(function), options if is_exact else exact_key(options)
        family = _families.get(key)
    except TypeError:  # a list, or a dict, of options
        return None
    if family is None:
        family = _families[key] = Family()
    return family


def _key_of(function: Any, outer: tuple[Any, ...] = ()) -> Any:
    """Return what functions that may share a program have in common: their code, and that of the functions that they enclose.

    Raises
    ------
    TypeError
        For a callable object of a class that code makes anew.
    """
    kind = type(function)
    if kind is types.FunctionType:
        code = function.__code__
        if not function.__closure__ or code in outer:
            return code
        contents = [cell.cell_contents for cell in function.__closure__ if is_filled(cell)]
        enclosed = [_key_of(content, (*outer, code)) for content in contents if isinstance(content, _MADE)]
        return (code, *enclosed) if enclosed else code
    if kind is types.MethodType:
        return kind, _key_of(function.__func__, outer)
    if issubclass(kind, functools.partial):
        return kind, _key_of(function.func, outer)
    if issubclass(kind, FastCallable):
        return kind, _key_of(function.site.function, outer)
    if kind in (types.BuiltinFunctionType, np.ufunc):
        return function
    if "<locals>" in kind.__qualname__:
        raise TypeError
    return kind


_MADE: Final = (types.FunctionType, types.MethodType, functools.partial, FastCallable)
"""Functions that are told apart by their code."""


def clear() -> int:
    """Drop all shared programs, and return their number."""
    return _families.clear()
