"""The table of programs: each with arguments of any size, and which of them are differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class LoopProgram:
    """A program with loops, as a plain function that runs under Python and under ``numba.njit``.

    Attributes
    ----------
    function : callable
        Returns a float, an array of floats or a tuple of these.
    make : callable
        Makes the arguments from a size and a random generator.
    active : tuple of int
        The positions of the arguments that are differentiated.
    small, large : int
        The sizes of tests and of measurements.
    """

    function: Callable[..., Any]
    make: Callable[[int, np.random.Generator], tuple[Any, ...]]
    active: tuple[int, ...]
    small: int
    large: int

    @property
    def name(self) -> str:
        return self.function.__name__

    def arguments(self, size: int | None = None, seed: int = 0) -> tuple[Any, ...]:
        return self.make(self.small if size is None else size, np.random.default_rng(seed))


PROGRAMS: dict[str, LoopProgram] = {}


def program(
    make: Callable[[int, np.random.Generator], tuple[Any, ...]],
    active: tuple[int, ...] = (0,),
    *,
    small: int,
    large: int,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table, and leave it as it is."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = LoopProgram(function, make, active, small, large)
        return function

    return enter


def definite(n: int, random: np.random.Generator) -> Array:
    """Return a symmetric positive definite matrix."""
    root = random.standard_normal((n, n))
    return root @ root.T / n + np.eye(n)


def dominant(n: int, random: np.random.Generator) -> Array:
    """Return a matrix whose diagonal outweighs its rows."""
    return random.uniform(-1.0, 1.0, (n, n)) + 2.0 * n * np.eye(n)
