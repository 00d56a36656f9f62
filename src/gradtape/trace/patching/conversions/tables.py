"""Arrays of xarray that hold traced arrays, as arguments of NumPy's functions: ``np.dot(a, w)``, ``np.concatenate([a, b])``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.recorders import RECORDERS

_METHODS: Final = frozenset(
    {"all", "any", "clip", "max", "mean", "min", "prod", "round", "std", "sum", "var"}
)
"""Functions of NumPy's that call the method of the same name of what is no ndarray."""


class _ArrayFunction:
    """The method ``__array_function__`` of xarray's arrays, which they have while there is a recorder."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if not RECORDERS:
            raise AttributeError("__array_function__")
        return _called if instance is None else _called.__get__(instance)


def _called(self: Any, function: Any, types: Iterable[type], args: Any, kwargs: Any) -> Any:
    """Answer a call of a function of NumPy's: with labels where xarray has a method for it, and for traced arrays by their data."""
    kind: Any = type(self)
    traced = _holds_traced((args, list(kwargs.values())), kind)
    if not traced or (args and isinstance(args[0], kind) and function.__name__ in _METHODS):
        return function._implementation(*args, **kwargs)
    return function(
        *[_data_of(each, kind) for each in args],
        **{name: _data_of(each, kind) for name, each in kwargs.items()},
    )


def _holds_traced(operand: Any, kind: Any) -> bool:
    if isinstance(operand, list | tuple):
        return any(_holds_traced(each, kind) for each in operand)
    return isinstance(operand.data, Handle) if isinstance(operand, kind) else False


def _data_of(operand: Any, kind: Any) -> Any:
    """Return an operand with the data of xarray's arrays in place of them."""
    if isinstance(operand, list | tuple):
        return type(operand)([_data_of(each, kind) for each in operand])
    return operand.data if isinstance(operand, kind) else operand


_ARRAY_FUNCTION: Final = _ArrayFunction()


def _install(xarray: Any) -> None:
    xarray.DataArray.__array_function__ = _ARRAY_FUNCTION


when_imported("xarray", _install)
