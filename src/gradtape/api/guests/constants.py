"""What tells arguments apart that are constants of an operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

MOST_OPERATORS: Final = 256
"""How many operations a function keeps that differ in the structure of the arguments, and in the constants among them."""

MOST_TYPES: Final = 256
"""Of how many combinations of shapes and dtypes an operation knows the types of its results."""


class Same:
    """An object as a key, by identity."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


def key_of_all(constants: Mapping[int, Any]) -> tuple[tuple[int, Any], ...]:
    """Return what tells constants apart, by their positions."""
    return tuple([(position, key_of(constant)) for position, constant in constants.items()])


def key_of(constant: Any) -> Any:
    """Return the value of a constant with its type, or the object itself where values are not compared."""
    if isinstance(constant, np.ndarray):
        return constant.shape, constant.dtype, constant.tobytes()
    try:
        hash(constant)
    except TypeError:
        return Same(constant)
    return type(constant), constant
