"""Functions that look at the numbers themselves: printing, saving, packing bits. NumPy runs them where the
numbers are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import concrete
from gradtape.kinds.registry import HOOKS, implements


def _plain(argument: Any, name: str) -> Any:
    if isinstance(argument, Value):
        numbers = concrete(argument, f"the array given to {name}")
        HOOKS.written(argument, numbers, f"{name}(...)")
        return numbers
    if isinstance(argument, list | tuple):
        return type(argument)([_plain(item, name) for item in argument])
    return argument


def _by_numpy(function: Any) -> Callable[..., Any]:
    name = f"np.{function.__name__}"

    def traced(*args: Any, **kwargs: Any) -> Any:
        return function(
            *[_plain(arg, name) for arg in args], **{key: _plain(arg, name) for key, arg in kwargs.items()}
        )

    return traced


for _function in (
    np.array2string,
    np.array_repr,
    np.array_str,
    np.save,
    np.savetxt,
    np.savez,
    np.savez_compressed,
):
    implements(_function)(_by_numpy(_function))


@implements(np.shares_memory, np.may_share_memory)
def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Follow `numpy.shares_memory`: arrays are values, and a value shares memory with itself."""
    return a is b
