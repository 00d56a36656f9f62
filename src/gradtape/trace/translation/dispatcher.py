"""Numba's functions: a dispatcher that is called with traced arrays hands them over, and its Python function is translated.

A dispatcher asks Python for the type of an argument that it does not know, and for the machine code for types that it has not met. Both
questions are answered here if an argument is traced, as those of an object of Python, for which the "machine code" is another dispatcher,
whose call is a method in Python. A call that Numba knows is not concerned. Numba itself is never imported here.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from types import ModuleType
from typing import Any, Final

from gradtape.errors import ConcretizationError, UnsupportedCodeError
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced, unwrap_preallocated
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.sites import user_site
from gradtape.trace.translation.calls import Way, call_translated, trace_around
from gradtape.trees import flatten

MODULE: Final = "numba.core.dispatcher"

UNKNOWN: Final = object()
"""An object of a type that Numba does not know."""


def is_dispatcher(thing: Any) -> bool:
    """Return whether an object is a function that Numba compiles."""
    module = sys.modules.get(MODULE)
    return module is not None and isinstance(thing, getattr(module, "Dispatcher", ()))


def call_dispatcher(dispatcher: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call such a function with traced arguments; with ndarrays, where none of them is traced."""
    if any(map(is_traced, flatten((args, kwargs))[0])):
        _refuse_classes(dispatcher.py_func, args)
        try:
            return call_translated(dispatcher, args, kwargs, "it is a function of Numba's")
        except UnsupportedCodeError as refusal:
            return run_instead(dispatcher.py_func, args, kwargs, refusal)
    return dispatcher(
        *map(unwrap_preallocated, args), **{k: unwrap_preallocated(x) for k, x in kwargs.items()}
    )


def run_instead(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], refusal: UnsupportedCodeError
) -> Any:
    """Run the Python function whose code could not be compiled, as it runs where Numba is switched off."""
    if refusal.unexpected:
        raise refusal
    trace = trace_around()
    try:
        result = function(*args, **kwargs)
    except ConcretizationError:  # calls of the traced function run op by op
        raise
    except Exception as error:
        raise refusal from error
    if trace is not None:
        trace.ways.append(Way(function.__name__, False, refusal.what))
    return result


def _refuse_classes(function: Any, args: tuple[Any, ...]) -> None:
    """Raise an error for methods and constructors of Numba's classes: Numba makes functions of them that call what it has compiled."""
    made = function.__globals__.get("__numba_cls_")
    kind = getattr(type(args[0]), "_numba_type_", None) if args else None
    if made is None and not hasattr(kind, "jit_methods"):
        return
    name = getattr(made, "__name__", None) or type(args[0]).__name__
    what = "an object" if made is not None else "a method"
    raise UnsupportedCodeError(
        f"{what} of the numba jitclass {name} {'is made' if made is not None else 'is called'} with a traced array",
        where=user_site(),
        why="attributes of such objects are memory that only Numba's code reads and writes",
        remedy="write the method as a function with @numba.njit that takes the attributes, f(obj.k, x), or use a class of Python",
    )


def _holds_handle(argument: Any) -> bool:
    if isinstance(argument, list | tuple):
        return any(map(_holds_handle, argument))
    return isinstance(argument, Handle)


def _install(module: ModuleType) -> None:
    """Let dispatchers hand over calls with traced arrays."""
    base: Any = vars(module)["_DispatcherBase"]
    omitted = module.OmittedArg
    closed: weakref.WeakSet[Any] = weakref.WeakSet()
    compile_for, type_of = base._compile_for_args, base.typeof_pyval

    class Translated(module._dispatcher.Dispatcher):  # type: ignore[misc, name-defined]
        """The answer to the question for machine code."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            given = tuple([arg.value if isinstance(arg, omitted) else arg for arg in args])
            if self.dispatcher.py_func.__code__.co_flags & inspect.CO_VARARGS:
                given = (*given[:-1], *given[-1])
            return call_dispatcher(self.dispatcher, given, kwargs)

    def _compile_for_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(_holds_handle, (*args, *kwargs.values()))):
            self._types_active_call.clear()
            if self in closed:
                self._can_compile = False
                closed.discard(self)
            made = Translated.__new__(Translated)
            made.dispatcher = self
            return made
        return compile_for(self, *args, **kwargs)

    def typeof_pyval(self: Any, val: Any) -> Any:
        if not _holds_handle(val):
            return type_of(self, val)
        if not self._can_compile:  # a function with signatures asks for no more machine code
            closed.add(self)
            self._can_compile = True
        return type_of(self, UNKNOWN)

    base._compile_for_args, base.typeof_pyval = _compile_for_args, typeof_pyval


when_imported(MODULE, _install)
