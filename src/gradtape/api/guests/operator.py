"""A function of arrays with those that its derivatives and batches are computed by, each an operator again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.custom.complex_convention import Convention
from gradtape.api.export.specs import Spec, examples
from gradtape.api.guests.constants import MOST_TYPES
from gradtape.api.guests.flat import dtype_of
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.vmap import vmap
from gradtape.lru import LRU
from gradtape.trees import flatten, structure_key, unflatten


class Transforms(ABC):
    """The operators that a library makes of functions of its arrays."""

    @abstractmethod
    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function compiled."""

    @abstractmethod
    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Return the results of a function, and the function from their cotangents to those of its arguments."""

    @abstractmethod
    def jvp(
        self, function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """Return the results of a function, and their tangents."""

    @abstractmethod
    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """Return the function for all elements along an axis of each argument; the results have them along the first axis."""

    @abstractmethod
    def leaves(self, results: Any) -> Sequence[Any]:
        """Return the arrays among the results of a function, one after another."""

    @abstractmethod
    def is_inexact(self, leaf: Any) -> bool:
        """Return whether a result has a derivative by its type: real and complex floating-point numbers, but no integers."""


class OurTransforms(Transforms):
    """Those of gradtape, with the complex cotangents of a framework."""

    def __init__(self, convention: Convention) -> None:
        self._convention = convention

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jit(function)

    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        return vjp(function, *primals, convention=self._convention)

    def jvp(
        self, function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        pushed: tuple[Any, Any] = jvp(function, primals, tangents)
        return pushed

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        return vmap(function, in_axes=axes)

    def leaves(self, results: Any) -> Sequence[Any]:
        return flatten(results)[0]

    def is_inexact(self, leaf: Any) -> bool:
        return is_inexact(leaf)


class Operator:
    """A function that takes arrays and other objects one after another, and returns a nest.

    Its pullbacks and pushforwards take the same operands, followed by cotangents or tangents. They are operators themselves, so that a
    framework differentiates any number of times, with one rule for each of its modes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        transforms: Transforms,
        pushes: tuple[Operator, tuple[int, ...], int] | None = None,
    ) -> None:
        self.function = function
        self.transforms = transforms
        self.program: Any = transforms.jit(function)
        self._made: dict[Any, Operator] = {}
        self._types: LRU[Any, list[Spec]] = LRU(_most_types)
        # What this is the pushforward of, and in which of how many operands: their tangents come after all operands.
        self._pushes = pushes

    def types_of_results(self, operands: Sequence[Spec]) -> list[Spec]:
        """Return the types of the results of a compiled function of ours, by a trace for operands of these types.

        Where Python looks at values it takes the way that ones take.
        """
        key = tuple([(operand.shape, operand.dtype) for operand in operands])
        found = self._types.get(key)
        if found is None:
            arrays, _ = examples(list(operands))
            leaves, _ = flatten(self.program.lower(*arrays).out_specs)
            found = self._types[key] = [Spec(np.shape(leaf), dtype_of(leaf)) for leaf in leaves]
        return found

    def pullback(self, positions: tuple[int, ...], count: int) -> Operator:
        """Return the operator of cotangents: from `count` operands and the cotangents of the inexact results to those of some operands."""

        below = self.transposed(positions)

        def pull(*operands: Any) -> Any:
            if below is not None:
                pullback, primals = below
                return pullback.function(*operands[:primals], *operands[count:])
            of_chosen, chosen = self._of_chosen(operands[:count], positions)
            _, pulled = self.transforms.vjp(of_chosen, *chosen)
            return pulled(operands[count:])

        return self._kept(("pullback", positions, count), pull)

    def pushforward(self, positions: tuple[int, ...], count: int) -> Operator:
        """Return the operator of tangents: from `count` operands and the tangents of some of them to those of the inexact results."""

        def push(*operands: Any) -> Any:
            of_chosen, chosen = self._of_chosen(operands[:count], positions)
            return self.transforms.jvp(of_chosen, tuple(chosen), operands[count:])[1]

        return self._kept(("pushforward", positions, count), push, (self, positions, count))

    def mapped(self, axes: tuple[int | None, ...]) -> Operator:
        """Return the operator for all elements along an axis of each operand; the results have them along the first axis."""
        made = self._made.get(axes)
        if made is None:
            made = self._made[axes] = Operator(self.transforms.vmap(self.function, axes), self.transforms)
        return made

    def _kept(self, key: Any, function: Callable[..., Any], pushes: Any = None) -> Operator:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Operator(function, self.transforms, pushes)
        return made

    def transposed(self, positions: Sequence[int]) -> tuple[Operator, int] | None:
        """Return the pullback of a pushforward in tangents alone, and the number of operands before the cotangents.

        It is that of the operator below, and does not read the tangents. None for other operators, and for other operands.
        """
        if self._pushes is None:
            return None
        operator, moving, below = self._pushes
        if any(position < below for position in positions):
            return None
        return operator.pullback(tuple([moving[position - below] for position in positions]), below), below

    def _of_chosen(
        self, operands: Sequence[Any], positions: Sequence[int]
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function of some operands that returns the inexact results, and these operands."""

        def of_chosen(*chosen: Any) -> Any:
            filled = list(operands)
            for position, operand in zip(positions, chosen, strict=True):
                filled[position] = operand
            return tuple(filter(self.transforms.is_inexact, self.transforms.leaves(self.function(*filled))))

        return of_chosen, [operands[position] for position in positions]


def _most_types() -> int:  # no lambda: PyTensor's graphs are pickled with their operators
    return MOST_TYPES


class Operators:
    """The operators of one function, one for each structure of the arguments."""

    def __init__(self, function: Callable[..., Any], convention: Convention) -> None:
        self._function = function
        self._transforms = OurTransforms(convention)
        self._made: dict[Any, Operator] = {}

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaf: type) -> tuple[Operator, Sequence[Any]]:
        """Return the operator for arguments, and its operands. Arguments that are all of the type `leaf` are the operands."""
        if not kwargs and all(isinstance(arg, leaf) for arg in args):
            made = self._made.get(len(args))
            if made is None:
                made = self._made[len(args)] = Operator(self._function, self._transforms)
            return made, args
        key = structure_key((args, kwargs))
        leaves, spec = flatten((args, kwargs))
        made = self._made.get(key)
        if made is None:
            function = self._function

            def of_leaves(*operands: Any) -> Any:
                args, kwargs = unflatten(spec, operands)
                return function(*args, **kwargs)

            made = self._made[key] = Operator(of_leaves, self._transforms)
        return made, leaves


def is_inexact(leaf: Any) -> bool:
    """Return whether a result has a derivative by its type: real and complex floating-point numbers, but no integers."""
    dtype = getattr(leaf, "dtype", None)
    return isinstance(leaf, float | complex) if dtype is None else np.dtype(dtype).kind in "fc"
