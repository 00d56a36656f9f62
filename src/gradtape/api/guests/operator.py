"""A function of arrays with those that its derivatives and batches are computed by, each an operator again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.custom.complex_convention import Convention
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.vmap import vmap
from gradtape.trees import flatten, structure_key, unflatten


class Operator:
    """A function that takes arrays and other objects one after another, and returns a nest.

    Its pullbacks and pushforwards take the same operands, followed by cotangents or tangents. They are operators themselves, so that a
    framework differentiates any number of times, with one rule for each of its modes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        convention: Convention,
        pushes: tuple[Operator, tuple[int, ...], int] | None = None,
    ) -> None:
        self.function = function
        self.convention = convention
        self.program = jit(function)
        self._made: dict[Any, Operator] = {}
        # What this is the pushforward of, and in which of how many operands: their tangents come after all operands.
        self._pushes = pushes

    def pullback(self, positions: tuple[int, ...], count: int) -> Operator:
        """Return the operator of cotangents: from `count` operands and the cotangents of the inexact results to those of some operands."""

        def pull(*operands: Any) -> Any:
            of_chosen, chosen = self._of_chosen(operands[:count], positions)
            _, pulled = vjp(of_chosen, *chosen, convention=self.convention)
            return pulled(operands[count:])

        return self._kept(("pullback", positions, count), self._transposed(positions, count) or pull)

    def pushforward(self, positions: tuple[int, ...], count: int) -> Operator:
        """Return the operator of tangents: from `count` operands and the tangents of some of them to those of the inexact results."""

        def push(*operands: Any) -> Any:
            of_chosen, chosen = self._of_chosen(operands[:count], positions)
            return jvp(of_chosen, tuple(chosen), operands[count:])[1]

        return self._kept(("pushforward", positions, count), push, (self, positions, count))

    def mapped(self, axes: tuple[int | None, ...]) -> Operator:
        """Return the operator for all elements along an axis of each operand; the results have them along the first axis."""
        made = self._made.get(axes)
        if made is None:
            made = self._made[axes] = Operator(vmap(self.function, in_axes=axes), self.convention)
        return made

    def _kept(self, key: Any, function: Callable[..., Any], pushes: Any = None) -> Operator:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Operator(function, self.convention, pushes)
        return made

    def _transposed(self, positions: Sequence[int], count: int) -> Callable[..., Any] | None:
        """Return the pullback of a pushforward in tangents alone, which is that of the operator below: it does not read the tangents."""
        if self._pushes is None:
            return None
        operator, moving, below = self._pushes
        if any(position < below for position in positions):
            return None
        pull = operator.pullback(tuple([moving[position - below] for position in positions]), below).function
        return lambda *operands: pull(*operands[:below], *operands[count:])

    def _of_chosen(
        self, operands: Sequence[Any], positions: Sequence[int]
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function of some operands that returns the inexact results, and these operands."""

        def of_chosen(*chosen: Any) -> Any:
            filled = list(operands)
            for position, operand in zip(positions, chosen, strict=True):
                filled[position] = operand
            return tuple(filter(is_inexact, flatten(self.function(*filled))[0]))

        return of_chosen, [operands[position] for position in positions]


class Operators:
    """The operators of one function, one for each structure of the arguments."""

    def __init__(self, function: Callable[..., Any], convention: Convention) -> None:
        self._function = function
        self._convention = convention
        self._made: dict[Any, Operator] = {}

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaf: type) -> tuple[Operator, Sequence[Any]]:
        """Return the operator for arguments, and its operands. Arguments that are all of the type `leaf` are the operands."""
        if not kwargs and all(isinstance(arg, leaf) for arg in args):
            made = self._made.get(len(args))
            if made is None:
                made = self._made[len(args)] = Operator(self._function, self._convention)
            return made, args
        key = structure_key((args, kwargs))
        leaves, spec = flatten((args, kwargs))
        made = self._made.get(key)
        if made is None:
            function = self._function

            def of_leaves(*operands: Any) -> Any:
                args, kwargs = unflatten(spec, operands)
                return function(*args, **kwargs)

            made = self._made[key] = Operator(of_leaves, self._convention)
        return made, leaves


def is_inexact(leaf: Any) -> bool:
    """Return whether a result has a derivative by its type: real and complex floating-point numbers, but no integers."""
    dtype = getattr(leaf, "dtype", None)
    return isinstance(leaf, float | complex) if dtype is None else np.dtype(dtype).kind in "fc"
