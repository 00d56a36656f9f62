"""Pickled functions: a function that a transform has made is pickled as the call that made it, with its object code."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from gradtape.runtime.compile.cache import ship
from gradtape.runtime.compile.kernel import Kernel


class Call(NamedTuple):
    """The call of a transform that made a function."""

    transform: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Made(Protocol):
    """A function that may know the call that made it."""

    __module__: str
    __qualname__: str
    made_by: Call | None


P = ParamSpec("P")
F = TypeVar("F", bound=Made)

BY_VALUE: Final = ("cloudpickle", "dill", "joblib.externals.cloudpickle", "numba.cloudpickle")
"""Packages whose picklers write the functions of ``__main__`` as code: scripts and notebooks send them to processes without them."""


def pickled_as_call(transform: Callable[P, F]) -> Callable[P, F]:
    """Let what a transform makes be pickled as the call of the transform."""

    @functools.wraps(transform)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> F:
        made = transform(*args, **kwargs)
        made.made_by = Call(remembering, args, kwargs)
        return made

    return remembering


def reduced(function: Made, kernels: Iterable[Kernel]) -> tuple[Any, ...]:
    """Return how a function is pickled: by its name in its module, as functions are, or else as the call that made it, with the object
    code of its kernels.
    """
    module, name = function.__module__, function.__qualname__
    if _has_name(function, module, name) and not (module == "__main__" and _is_pickled_by_value()):
        return named, (module, name)
    if function.made_by is None:
        raise pickle.PicklingError(
            f"{function!r} is neither found by its name {module}.{name} nor was it made by a transform of gradtape"
        )
    return (
        called,
        tuple(function.made_by),
        ship(dict.fromkeys([key for kernel in kernels for key in kernel.keys])),
    )


def named(module: str, name: str) -> Any:
    """Return the function of a module that was pickled by its name."""
    return attrgetter(name)(importlib.import_module(module))


def called(transform: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a function again that was pickled as a call."""
    return transform(*args, **kwargs)


def _has_name(function: Any, module: str, name: str) -> bool:
    try:
        return attrgetter(name)(sys.modules[module]) is function
    except (AttributeError, KeyError):
        return False


def _is_pickled_by_value() -> bool:
    """Return whether the pickler at work takes the functions of ``__main__`` as code. It tells nobody, so its frames are looked for."""
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        package = frame.f_globals.get("__name__", "")
        if any(package == name or package.startswith(f"{name}.") for name in BY_VALUE):
            return True
    return False
