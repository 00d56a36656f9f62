"""Values of what users give and return: arguments, seeds, tangents, results of functions and of their derivative rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, literal
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import convert
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site


def operand(given: Any, argument: str) -> Value:
    """Return the value of an array or a number; `argument` is what it is, for errors."""
    return given.value if isinstance(given, Handle) else as_value(given, argument)


def traceable(value: Value) -> Value:
    """Return a number as an array of rank 0, which can have a tag; other values as they are."""
    return Value(value.aval, data=value.data) if isinstance(value, Literal) else value


def traceable_operand(given: Any, argument: str) -> Value:
    """Return the value of an array or a number as one that can have a tag."""
    return traceable(operand(given, argument))


def fitted(
    given: Any, like: Value, what: str, of: str, verb: str = "give", remedy: str = "convert it first"
) -> Value:
    """Return a seed, tangent or cotangent as a value of the shape and dtype of the value that it belongs to.

    Parameters
    ----------
    given : array_like
        What the user gave.
    like : Value
        What it belongs to.
    what, of : str
        The names of both, for errors.
    verb, remedy : str
        How the shape and the dtype are mended: "give an array of shape ..." and what to do about the dtype.

    Raises
    ------
    ShapeError, DtypeError
        Where it does not fit.
    """
    value = operand(given, what)
    if value.shape != like.shape:
        raise ShapeError(
            f"{what} has shape {value.shape}, but {of} has shape {like.shape}",
            where=here.site,
            remedy=f"{verb} an array of shape {like.shape} (np.broadcast_to, np.sum)",
        )
    if not np.can_cast(value.dtype, like.dtype, "same_kind"):
        raise DtypeError(
            f"{what} has dtype {value.dtype}, but {of} has dtype {like.dtype}", where=here.site, remedy=remedy
        )
    return literal(value.data, like.dtype) if isinstance(value, Literal) else convert(value, like.dtype)


def generator_of(given: Any, argument: str) -> np.random.Generator:
    """Return the random number generator that a generator or a seed stands for.

    Parameters
    ----------
    given : object
        What the user gave.
    argument : str
        The function and its argument, for errors: ``"solve_sde: rng"``.

    Raises
    ------
    ArgumentError
        If it is neither.
    """
    try:
        return np.random.default_rng(given)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{argument} is {given!r}",
            where=user_site(),
            why="it is neither a generator nor a seed",
            remedy="pass np.random.default_rng(0), or a seed: a whole number of at least 0, or a sequence of them",
        ) from error
