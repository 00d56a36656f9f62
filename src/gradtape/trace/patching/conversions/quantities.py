"""Quantities of pint whose magnitude is a traced number: ``q += p`` binds a name anew, as with a number, and changes an array in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.trace.array.array import Array
from gradtape.trace.patching.imports import when_imported

_OPERATORS: Final = ("add", "sub", "mul", "truediv", "pow")


def _by_magnitude(in_place: Callable[[Any, Any], Any], anew: Callable[[Any, Any], Any]) -> Any:
    """Return an operator of quantities; pint asks the class of the magnitude whether it is an array, and numbers have that class, too."""

    @functools.wraps(in_place)
    def operator(self: Any, other: Any) -> Any:
        magnitude = self._magnitude
        is_number = type(magnitude) is Array and magnitude._numpy_class() is not np.ndarray
        return (anew if is_number else in_place)(self, other)

    return operator


def _install(pint: Any) -> None:
    kind = next(base for base in pint.Quantity.__mro__ if "__iadd__" in vars(base))
    for name in _OPERATORS:
        in_place = getattr(kind, f"__i{name}__")
        setattr(kind, f"__i{name}__", _by_magnitude(in_place, getattr(kind, f"__{name}__")))


when_imported("pint", _install)
