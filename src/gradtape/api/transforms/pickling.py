"""Pickled functions: a function that a transform has made is pickled as the call that made it, with its object code."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, Protocol, Self, TypeVar, overload

from gradtape.api.transforms.sharing import program_of, share
from gradtape.api.type_variables import P, R_co
from gradtape.habits import suggests_keywords
from gradtape.runtime.call.callable import FastCallable
from gradtape.runtime.compile.cache import Shipment, ship
from gradtape.runtime.compile.kernel import Kernel

if TYPE_CHECKING:
    from gradtape.api.type_variables import Q


class Call(NamedTuple):
    """The call of a transform that made a function."""

    transform: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Made(Protocol):
    """A function that may know the call that made it."""

    made_by: Call | None


F = TypeVar("F", bound=Made)


class Repeatable:
    """An object that a transform has made: it is pickled by its name in a module, or else as the call of the transform."""

    holds_functions = True
    made_by: Call | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        return self


class Wrapper(Repeatable, Generic[P, R_co]):
    """A function that runs in place of the user's and shows itself as that one, in Python code: its closure need not be pickled."""

    def __init__(self, run: Callable[..., Any], function: Callable[P, Any]) -> None:
        # A jitted function keeps its name in its __dict__, which must not overwrite ours.
        with suppress(AttributeError, TypeError):
            functools.update_wrapper(self, function, updated=())
        self._run = run

    def __repr__(self) -> str:
        made = self.made_by.transform.__name__ if self.made_by is not None else "function"
        return f"<gradtape.{made} of {getattr(self, '__name__', 'a function')}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        made: R_co = self._run(*args, **kwargs)
        return made

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Wrapper[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
    ) -> Callable[Q, R_co]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def pickled_as_call(transform: Callable[P, F]) -> Callable[P, F]:
    """Let what a transform makes be pickled as the call of the transform, and share the program of others of its kind."""
    checked = suggests_keywords(transform)

    @functools.wraps(transform)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> F:
        made_by = Call(remembering, args, kwargs)
        options = transform, args[1:], tuple(kwargs.items())
        program = program_of(options, args[0]) if args else None
        if program is not None:
            shared: F = program.of_one_code(args[0], functools.partial(checked, *args, **kwargs), made_by)
            return shared
        made = checked(*args, **kwargs)
        made.made_by = made_by
        if isinstance(made, FastCallable) and args:
            function, *others = args
            sharing: Any = made
            share(sharing, options, function, _Body(transform, others, kwargs))
        return made

    return remembering


class _Body:
    """A transform with its options, which compiles a program of a function."""

    __slots__ = ("_options", "_others", "_transform")

    def __init__(self, transform: Callable[..., Any], others: list[Any], options: dict[str, Any]) -> None:
        self._transform, self._others, self._options = transform, others, options

    def __call__(self, function: Any) -> Callable[..., Any]:
        body: Callable[..., Any] = self._transform(function, *self._others, **self._options).site.function
        return body


def reduced(function: Made, state: Any = None) -> tuple[Any, ...]:
    """Return how a function is pickled: by its name in its module, as functions are, or else as the call that made it, with a state."""
    found = _name_of(function)
    if found is not None and not _is_pickled_by_value(found[0]):
        return named, found
    if function.made_by is None:
        raise pickle.PicklingError(
            f"{function!r} is neither found by its name in a module nor was it made by a transform of gradtape"
        )
    return called, tuple(function.made_by), state


def shipment_of(kernels: Iterable[Kernel]) -> Shipment:
    """Return the object code of kernels, which travels with their functions."""
    return ship(dict.fromkeys([key for kernel in kernels for key in kernel.keys]))


def named(module: str, name: str) -> Any:
    """Return the function of a module that was pickled by its name."""
    return attrgetter(name)(importlib.import_module(module))


def called(transform: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a function again that was pickled as a call."""
    return transform(*args, **kwargs)


def _name_of(function: Any) -> tuple[str, str] | None:
    """Return the module and the name under which it has a function: the function's own, or that of the function which it decorates."""
    for each in (function, inspect.unwrap(function)):
        module, name = str(getattr(each, "__module__", "")), str(getattr(each, "__qualname__", ""))
        with suppress(AttributeError, KeyError):
            if attrgetter(name)(sys.modules[module]) is function:
                return module, name
    return None


def _is_pickled_by_value(module: str) -> bool:
    """Return whether the pickler at work takes the functions of a module as code: cloudpickle and dill do so for those of ``__main__``, so
    that scripts and notebooks send them to processes without them. They tell nobody, so their frames are looked for: many packages have a
    copy of cloudpickle.
    """
    known: set[str] = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set)()
    if module != "__main__" and not any(module == name or module.startswith(f"{name}.") for name in known):
        return False
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        if not {"cloudpickle", "dill"}.isdisjoint(frame.f_globals.get("__name__", "").split(".")):
            return True
    return False
