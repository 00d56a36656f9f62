"""The call of a function that a diagnosis looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gradtape.api.transforms.callables import check_callable
from gradtape.errors import ArgumentError, kind_of
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten


class Call:
    """A function with its arguments, as a function of those with respect to which it is differentiated.

    Parameters
    ----------
    diagnosis : str
        The name of the diagnosis.
    function : callable
    args : sequence
        Its arguments.
    kinds : str
        The kinds of the dtypes of these arguments.

    Attributes
    ----------
    leaves, spec
        All arguments.
    moving : list of int
        The positions of the leaves in question.

    Raises
    ------
    ArgumentError
        If there are none.
    """

    def __init__(self, diagnosis: str, function: Callable[..., Any], args: Sequence[Any], kinds: str) -> None:
        caller = f"gt.debug.{diagnosis}"
        check_callable(function, caller)
        self.diagnosis, self.function, self.kinds = diagnosis, function, kinds
        self.leaves, self.spec = flatten(args)
        self.moving = [k for k, leaf in enumerate(self.leaves) if np.asarray(leaf).dtype.kind in kinds]
        if not self.moving:
            raise ArgumentError(
                f"{caller}: no argument is a float",
                where=user_site(),
                why=f"got {', '.join(map(kind_of, self.leaves)) or 'no argument'}",
                remedy="pass floats",
            )

    def __call__(self, *floats: Any) -> Any:
        return self.function(*unflatten(self.spec, replaced(self.leaves, self.moving, floats)))

    def nest(self, parts: Iterable[Any]) -> Any:
        """Return parts in the containers of all arguments, of the one alone if there is one; None for what is no float."""
        nest = unflatten(self.spec, replaced([None] * len(self.leaves), self.moving, parts))
        return nest[0] if len(nest) == 1 else nest


def replaced(items: Iterable[Any], positions: Iterable[int], others: Iterable[Any]) -> list[Any]:
    """Return items with others at some positions."""
    whole = list(items)
    for position, other in zip(positions, others, strict=True):
        whole[position] = other
    return whole
