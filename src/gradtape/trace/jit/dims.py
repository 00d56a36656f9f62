"""Symbolic dimensions: which lengths of a jitted function's arguments vary, and within which bounds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.errors import ArgumentError, ShapeError
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site

__all__ = ["ANY_SHAPES", "EXACT_SHAPES", "Dim", "Shapes", "shapes_of"]

REMEDY: Final = (
    'shapes="exact", "symbolic" or "auto", or one shape for each argument: shapes={"x": (gt.Dim("n"), 3)}'
)


@dataclass(frozen=True, init=False)
class Dim:
    """A length that varies from call to call, for ``gt.jit(f, shapes=...)`` and, in `gradtape.spec`, for `gradtape.export`.

    Parameters
    ----------
    name : str
        Dimensions of the same name have the same length in a call.
    min, max : int, optional
        The least and the greatest length that a call may have; 0 and no limit by default.

    Raises
    ------
    ArgumentError
        For a name that is no text, or bounds that are no whole numbers, or without a length between them.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> n = gt.Dim("n", min=1)
    >>> @gt.jit(shapes={"X": (n, 2), "y": (n,)})
    ... def loss(w, X, y):
    ...     return np.mean((X @ w - y) ** 2)
    >>> [float(loss(np.ones(2), np.ones((k, 2)), np.zeros(k))) for k in (3, 4, 5)]
    [4.0, 4.0, 4.0]
    >>> try:
    ...     loss(np.ones(2), np.ones((3, 2)), np.zeros(4))
    ... except gt.errors.ShapeError as error:
    ...     print(error.what)
    loss: argument 'y' has shape (4,), which is not (n,): n is 3 in this call
    """

    name: str
    min: int
    max: int | None

    def __init__(self, name: str, *, min: int = 0, max: int | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise ArgumentError(
                f"Dim: name must be a text; got {name!r}", where=user_site(), remedy='gt.Dim("n")'
            )
        for role, bound in (("min", min), ("max", max)):
            if bound is not None and (type(bound) is bool or not isinstance(bound, int | np.integer)):
                raise ArgumentError(
                    f"Dim: {role} must be a whole number; got {bound!r}",
                    where=user_site(),
                    remedy='gt.Dim("n", min=1, max=1000)',
                )
        if min < 0 or (max is not None and max < min):
            raise ArgumentError(
                f"Dim: no length is between min={min} and max={max}",
                where=user_site(),
                remedy='gt.Dim("n", min=1, max=1000)',
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "min", int(min))
        object.__setattr__(self, "max", None if max is None else int(max))

    def __repr__(self) -> str:
        bounds = f", min={self.min}" * (self.min > 0) + f", max={self.max}" * (self.max is not None)
        return f"gt.Dim({self.name!r}{bounds})"


Shape: TypeAlias = "tuple[Dim | int, ...] | None"


class Shapes:
    """The shapes that the arguments of a jitted function may have.

    Parameters
    ----------
    kind : {"exact", "symbolic", "auto"} or None
        Whether other lengths have machine code of their own; None for what ``gt.config.shapes`` says.
    declared : sequence or mapping
        The shapes of arguments, by position or by name; None for any shape.
    """

    def __init__(
        self, kind: str | None, declared: Sequence[Shape] | Mapping[str, Shape] | None = None
    ) -> None:
        self.kind = kind
        self.declared = declared

    def check(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Raise ShapeError for a call with other shapes."""
        if self.declared is None:
            return
        lengths: dict[str, int] = {}
        for argument, given, shape in self._arguments(name, function, args, kwargs):
            if shape is None:
                continue
            actual_shape = given.shape if isinstance(given, np.ndarray | np.generic | Handle) else None
            wrong = "" if actual_shape is not None else "it is no array"
            if actual_shape is not None and len(actual_shape) != len(shape):
                wrong = f"it has {len(actual_shape)} axes"
            for length, wanted in zip(actual_shape or (), shape, strict=False):
                if wrong:
                    break
                wrong = _difference(length, wanted, lengths)
            if wrong:
                description = type(given).__name__ if actual_shape is None else f"shape {tuple(actual_shape)}"
                raise ShapeError(
                    f"{name}: argument {argument} has {description}, which is not {_text(shape)}: {wrong}",
                    where=user_site(),
                    remedy="pass arrays of the shapes that jit was given, or change them",
                )

    def _arguments(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the arguments with a declared shape: name, argument and shape of each."""
        if isinstance(self.declared, Mapping):
            bound = _signature(name, function).bind(*args, **kwargs).arguments
            return [(repr(key), bound[key], shape) for key, shape in self.declared.items() if key in bound]
        return [
            (str(number), argument, shape)
            for number, (argument, shape) in enumerate(zip(args, self.declared or (), strict=False))
        ]


ANY_SHAPES: Final = Shapes(None)
"""What holds where nothing is said."""

EXACT_SHAPES: Final = Shapes("exact")


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name} has no names of arguments to which shapes could belong",
            where=user_site(),
            remedy="give them by position: shapes=((gt.Dim('n'), 3), None)",
        ) from None


def _difference(length: int, expected: Dim | int, lengths: dict[str, int]) -> str:
    """Return the problem of a length; "" if there is none."""
    if not isinstance(expected, Dim):
        return "" if length == expected else f"{length} is not {expected}"
    if length < expected.min:
        return f"{expected.name} must be at least {expected.min}"
    if expected.max is not None and length > expected.max:
        return f"{expected.name} must be at most {expected.max}"
    earlier = lengths.setdefault(expected.name, length)
    return "" if earlier == length else f"{expected.name} is {earlier} in this call"


def _text(shape: tuple[Dim | int, ...]) -> str:
    names = [length.name if isinstance(length, Dim) else str(length) for length in shape]
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def shapes_of(shapes: Any, function: Callable[..., Any]) -> Shapes:
    """Return the shapes that jit was given; raise ArgumentError for what are none."""
    if shapes is None:
        return ANY_SHAPES
    if isinstance(shapes, str):
        if shapes not in ("exact", "symbolic", "auto"):
            raise ArgumentError(f"jit: shapes is {shapes!r}", where=user_site(), remedy=REMEDY)
        return Shapes(shapes)
    if isinstance(shapes, Mapping):
        named = {name: _shape(shape) for name, shape in shapes.items()}
        parameters = _signature("jit: the function", function).parameters
        for name in named:
            if name not in parameters:
                raise ArgumentError(
                    f"jit: shapes names {name!r}, and the function has no such parameter",
                    where=user_site(),
                    remedy=f"it has: {', '.join(parameters)}",
                )
        return Shapes("symbolic", named)
    if isinstance(shapes, list | tuple):
        return Shapes("symbolic", [_shape(shape) for shape in shapes])
    raise ArgumentError(
        f"jit: shapes is {shapes!r} of type {type(shapes).__name__}", where=user_site(), remedy=REMEDY
    )


def _shape(shape: Any) -> Shape:
    if shape is None:
        return None
    lengths = shape if isinstance(shape, list | tuple) else (shape,)
    for length in lengths:
        if not isinstance(length, Dim) and (
            type(length) is bool or not isinstance(length, int) or length < 0
        ):
            raise ArgumentError(
                f"jit: shapes has {shape!r}, which is no shape: {length!r} is neither a gt.Dim nor a length",
                where=user_site(),
                remedy=REMEDY,
            )
    return tuple(lengths)
