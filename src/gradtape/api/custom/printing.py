"""Printing at each call of a compiled function, in order.

A print is a call of Python's whose result is assigned to a variable, and that takes the variable's content: so it is not left out, and
comes after the prints before it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.custom.callback import callback
from gradtape.api.tape.create import stop_gradient
from gradtape.errors import ArgumentError
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import InBody, Mapped, mapped_by
from gradtape.trace.patching.opaque import as_numbers
from gradtape.trace.source.contexts import contexts, running_trace
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten_with_none, unflatten


def _counter() -> Variable:
    """Return a variable that no trace makes, although this module may be imported in one."""
    around, contexts.stack = contexts.stack, []
    try:
        return Variable(np.int64(0), trainable=False, name="count of gt.print")
    finally:
        contexts.stack = around


PRINTS: Final = _counter()
"""How many prints of compiled functions there were; it orders them."""

Emit = Callable[..., None]


class _Formatted:
    """An array that takes the format of a number, for each of its elements."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, spec: str) -> str:
        if not spec or not np.ndim(self._array):
            return format(self._array[()] if isinstance(self._array, np.ndarray) else self._array, spec)
        return np.array2string(self._array, formatter={"all": lambda number: format(number, spec)})


def print(
    *args: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False, **named: Any
) -> None:
    """Print at each call of a compiled function, as Python's `print` does; at once outside one.

    Parameters
    ----------
    *args : object
        The arrays, numbers, text and nested containers to print. If the first argument is text with fields in braces, and further
        arguments or names follow, it is a format string for them; a number format applies to each element of an array.
    sep, end, file, flush
        As Python's `print` takes them.
    **named : object
        Values for the named fields of the format.

    Raises
    ------
    ArgumentError
        In a loop inside a function that `vmap` maps, for arrays of one element.

    See Also
    --------
    callback : Calls any Python function.

    Notes
    -----
    Prints appear in the order of the program, once for each iteration of a loop, and only in the branch that is taken. A function that a
    solver calls (`scipy.optimize.minimize`, `quad`) prints at each evaluation. A function that
    `vmap` maps prints the arrays of all elements, the mapped axis in front, when it has returned. Derivatives print what the function
    prints; their own steps print nothing.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.jit
    ... def halved(x):
    ...     gt.print("x = {:.2f}", x)
    ...     return x / 2
    >>> half = halved(1.0)
    x = 1.00
    >>> half = halved(np.array([1.0, 2.5]))
    x = [1.00 2.50]
    """
    leaves, spec = flatten_with_none((args, named))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Handle)]

    def emit(*numbers: Any) -> None:
        whole = list(leaves)
        for place, number in zip(places, numbers, strict=True):
            whole[place] = number
        given, names = unflatten(spec, whole)
        if (given and isinstance(given[0], str) and "{" in given[0]) and (len(given) > 1 or names):
            fields = [_Formatted(item) if isinstance(item, np.ndarray) else item for item in given[1:]]
            for name, item in names.items():
                names[name] = _Formatted(item) if isinstance(item, np.ndarray) else item
            given = (given[0].format(*fields, **names),)
        elif names:
            raise TypeError(f"gt.print got {', '.join(names)}, but no format string that uses them")
        builtins.print(*given, sep=sep, end=end, file=file, flush=flush)

    _run(emit, [stop_gradient(leaves[place]) for place in places])


def _run(emit: Emit, arrays: Sequence[Any]) -> None:
    """Call a function with the numbers of arrays: now, or at each call of the program around."""
    mapped = next((tag for array in arrays if (tag := mapped_by(array.value)) is not None), None)
    if mapped is not None:
        _defer(mapped, emit, arrays)
        return
    trace, _ = running_trace()
    if trace is None:
        emit(*[as_numbers(array) for array in arrays])
        return

    def host(count: Any, *numbers: Any) -> Any:
        emit(*numbers)
        return np.int64(count + 1)

    PRINTS.assign(callback(host, np.int64(0), PRINTS, *arrays))


def _defer(mapped: Mapped, emit: Emit, arrays: Sequence[Any]) -> None:
    """Let a mapped function print what it has of all elements, when it has returned."""
    if any(isinstance(context, InBody) for context in contexts.stack[mapped.depth :]):
        raise ArgumentError(
            f"gt.print in a loop or a branch of {mapped.described}",
            where=user_site(),
            why="the loop runs once for all elements, so there is no array of a single one",
            remedy="return the values from the loop, and print them after it",
        )
    values = [array.value for array in arrays]
    mapped.deferred.append((values, lambda batched: _run(emit, [Array(value) for value in batched])))
