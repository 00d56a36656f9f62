"""Functions of nested arguments as functions of operands, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

Flatten = Callable[[Any], tuple[list[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]

NUMPYS_KINDS: Final = "biufc"
"""The kinds of dtypes that are numbers."""


class Flat:
    """A function of operands that returns the arrays among its results.

    Parameters
    ----------
    function : callable
        A function of nested arguments.
    flatten, unflatten : callable
        How a framework takes containers apart, and puts them together.
    structure : object
        The structure of the arguments ``(args, kwargs)``.
    constants : dict
        The leaves of the arguments that are no operands, by position.
    converted : callable, optional
        What is done with each array among the results.

    Attributes
    ----------
    results : dict
        By the types of the operands: the structure of the results, and those that are no arrays, by position.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        flatten: Flatten,
        unflatten: Unflatten,
        structure: Any,
        constants: Mapping[int, Any],
        converted: Callable[[Any], Any] | None = None,
    ) -> None:
        self.function = function
        self.structure = structure
        self.constants = constants
        self.results: dict[Any, tuple[Any, dict[int, Any]]] = {}
        self._flatten, self._unflatten, self._converted = flatten, unflatten, converted

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        args, kwargs = self._unflatten(self.structure, inserted(operands, self.constants))
        results, nesting = self._flatten(self.function(*args, **kwargs))
        others = {position: result for position, result in enumerate(results) if not is_array(result)}
        self.results[types_of(operands)] = nesting, others
        arrays = filter(is_array, results)
        return tuple(arrays if self._converted is None else map(self._converted, arrays))

    def nested(self, arrays: Sequence[Any], operands: Iterable[Any]) -> Any:
        """Return arrays and what else the function has returned for operands like these, as it has nested them."""
        nesting, others = self.results[types_of(operands)]
        return self._unflatten(nesting, inserted(arrays, others))


def inserted(items: Iterable[Any], others: Mapping[int, Any]) -> list[Any]:
    """Return items in order, with others at their positions; these are in ascending order."""
    whole = list(items)
    for position, other in others.items():
        whole.insert(position, other)
    return whole


def types_of(operands: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([(tuple(operand.shape), np.dtype(operand.dtype)) for operand in operands])


def is_array(result: Any) -> bool:
    return hasattr(result, "dtype") or isinstance(result, float | complex)


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return the dtype of an array, a number, or what describes them."""
    return np.dtype(getattr(value, "dtype", type(value)))
