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

from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced, unwrap_preallocated
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.translation.calls import call_translated
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
        return call_translated(dispatcher, args, kwargs, "it is a function of Numba's")
    return dispatcher(
        *map(unwrap_preallocated, args), **{k: unwrap_preallocated(x) for k, x in kwargs.items()}
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
