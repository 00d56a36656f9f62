"""Tables of xarray and pandas that hold traced arrays, as arguments of NumPy's functions: ``np.dot(a, w)``, ``np.concatenate([a, b])``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from gradtape.containers.pandas import holds_traced
from gradtape.kinds.refusals import keeps_labels, values_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.recorders import RECORDERS

_METHODS: Final = {
    "xarray": frozenset({"all", "any", "clip", "max", "mean", "min", "prod", "round", "std", "sum", "var"}),
    "pandas": frozenset(
        {
            *(
                "all",
                "any",
                "argmax",
                "argmin",
                "argsort",
                "clip",
                "cumprod",
                "cumsum",
                "max",
                "mean",
                "min",
                "prod",
                "ravel",
            ),
            *(
                "repeat",
                "round",
                "searchsorted",
                "squeeze",
                "std",
                "sum",
                "swapaxes",
                "take",
                "transpose",
                "var",
            ),
        }
    ),
}
"""NumPy functions that call the method of the same name of an object that is not an ndarray, for each library."""


class _ArrayFunction:
    """The method ``__array_function__`` of tables, which they have while there is a recorder."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if not RECORDERS:
            raise AttributeError("__array_function__")
        return _called if instance is None else _called.__get__(instance)


def _called(self: Any, function: Any, types: Iterable[type], args: Any, kwargs: Any) -> Any:
    """Answer a call of a function of NumPy's: with labels where there is a method for it, and for traced arrays by their data."""
    methods = _METHODS["pandas" if hasattr(self, "iloc") else "xarray"]
    operands = args, list(kwargs.values())
    if not (_holds_traced(operands) or is_traced(operands)) or (
        args and keeps_labels(args[0]) and function.__name__ in methods
    ):
        return function._implementation(*args, **kwargs)
    return function(
        *[_data_of(each) for each in args],
        **{name: _data_of(each) for name, each in kwargs.items()},
    )


def _holds_traced(operand: Any) -> bool:
    if isinstance(operand, list | tuple):
        return any(map(_holds_traced, operand))
    return keeps_labels(operand) and (
        holds_traced(operand) if hasattr(operand, "iloc") else isinstance(operand.data, Handle)
    )


def _data_of(operand: Any) -> Any:
    """Return an operand with arrays in place of tables."""
    if isinstance(operand, list | tuple):
        return type(operand)([_data_of(each) for each in operand])
    return values_of(operand) if keeps_labels(operand) else operand


_ARRAY_FUNCTION: Final = _ArrayFunction()


def _install(*names: str) -> Callable[[Any], None]:
    def install(module: Any) -> None:
        for name in names:
            getattr(module, name).__array_function__ = _ARRAY_FUNCTION

    return install


when_imported("xarray", _install("DataArray"))
when_imported("pandas", _install("Series", "DataFrame"))
