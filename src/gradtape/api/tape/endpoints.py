"""Targets and sources of a derivative: weights of targets, and gradients of unconnected sources."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.custom.complex_convention import Convention, conjugated
from gradtape.api.operands import fitted
from gradtape.errors import ArgumentError, DtypeError, ShapeError, UnconnectedError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.types import Shape
from gradtape.kinds.operands import broadcast_to
from gradtape.trace.array.array import Array, wrap_value
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.array.indexed_slices import IndexedSlices, flatten_arrays
from gradtape.trace.array.preallocated import Preallocated, unwrap_preallocated
from gradtape.trace.source.log import Log
from gradtape.trace.subclasses.instances import without_class
from gradtape.transforms.sparse_grads import SparseGradient, sparse_sum
from gradtape.trees import flatten_to, place_of_leaf, unflatten


class UnconnectedGradients(enum.StrEnum):
    """The gradient of a source from which no differentiable path leads to the target.

    The strings ``"none"``, ``"zero"`` and ``"raise"`` are taken everywhere instead.

    Attributes
    ----------
    NONE
        None.
    ZERO
        Zeros of the source's shape and dtype.
    RAISE
        `UnconnectedError`, which names the source.

    Examples
    --------
    >>> import gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     x, y = tape.watch((1.0, 2.0))
    ...     z = x * x
    >>> tape.gradient(z, y, unconnected_gradients=gt.UnconnectedGradients.ZERO)
    Array(0.)
    """

    NONE = "none"
    ZERO = "zero"
    RAISE = "raise"


NUMBERS: Final = (np.ndarray, np.generic, int, float, complex)


class Source(NamedTuple):
    """The sources of a derivative.

    Attributes
    ----------
    shape, dtype
        Of the gradient.
    values : tuple of Value
        What stands for it in the graph: one value for an array, one for each reading of a variable.
    """

    shape: Shape
    dtype: np.dtype[Any]
    values: tuple[Value, ...]


def unconnected_choice(choice: Any, caller: str) -> UnconnectedGradients:
    """Return the choice that a string or member stands for."""
    if type(choice) is UnconnectedGradients:
        return choice
    try:
        return UnconnectedGradients(choice)
    except ValueError:
        raise ArgumentError(
            f"{caller}: Unknown value for unconnected_gradients: {choice!r}",
            where=here.site,
            remedy='choose "none", "zero" or "raise" (or a member of gt.UnconnectedGradients)',
        ) from None


def array_leaves(
    tree: Any, role: str, caller: str, log: Log | None = None
) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of a nest of arrays, and what makes such a nest of other leaves.

    Parameters
    ----------
    tree : nest
        Of arrays.
    role, caller : str
        What it is, and for whom.
    log : Log, optional
        Of the tape: an error for a number says where values left it.

    Raises
    ------
    DtypeError
        For None, strings and other objects.
    ArgumentError
        For ndarrays and numbers, which do not know where they came from.
    """
    if type(tree) is Preallocated:
        tree = unwrap_preallocated(tree)
    if isinstance(tree, Handle):
        return [tree], _only
    leaves, filled = flatten_arrays(tree)
    if role == "target":
        leaves = list(map(without_class, leaves))
    if Preallocated in map(type, leaves):
        leaves = [unwrap_preallocated(leaf) for leaf in leaves]
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, Handle):
            continue
        location = "" if leaf is tree else f" (at {place_of_leaf(tree, position, none_is_leaf=True)})"
        if leaf is None:
            raise DtypeError(
                f"{caller} got None as a {role}{location}",
                where=here.site,
                remedy=f"pass the Array that {'was computed' if role == 'target' else 'was watched'}",
            )
        if isinstance(leaf, NUMBERS):
            left = (
                f"; {log.exits[-1].what} at {log.exits[-1].site} converted a value to a number"
                if log and log.exits
                else ""
            )
            raise ArgumentError(
                f"{caller} got a plain {type(leaf).__name__} as a {role}{location}",
                where=here.site,
                why=f"a tape records Arrays; an ndarray or number does not know how it was computed{left}",
                remedy="compute it from x = tape.watch(x) and stay with arrays: float(x) and x.numpy() leave the tape"
                if role == "target"
                else "use what watch returns: x = tape.watch(x)",
            )
        raise DtypeError(
            f"{caller} got a {type(leaf).__name__} as a {role}{location}",
            where=here.site,
            remedy="pass Arrays or Variables, or nests of them",
        )
    return leaves, filled


def _only(leaves: list[Any]) -> Any:
    return leaves[0]


def with_values(weights: Any, target: Any) -> Any:
    """Return weights with the values of a sparse one in its place where the target is sparse, whose values count."""
    parts, spec = flatten_to(IndexedSlices, weights)
    ends, _ = flatten_to(IndexedSlices, target)
    if len(parts) != len(ends):
        return weights
    sparse = [
        isinstance(part, IndexedSlices) and isinstance(end, IndexedSlices)
        for part, end in zip(parts, ends, strict=True)
    ]
    return unflatten(spec, [part.values if flag else part for part, flag in zip(parts, sparse, strict=True)])


def seeds_for(
    given: Any, targets: Sequence[Value], caller: str, argument: str = "output_gradients"
) -> list[Value]:
    """Return one weight per target: the leaves of `given` by position."""
    leaves, _ = flatten_to(IndexedSlices, given)
    if len(leaves) != len(targets):
        listed = isinstance(given, list | tuple) and len(targets) == 1
        raise ShapeError(
            f"{caller}: {argument} has {len(leaves)} entries for {len(targets)} target{'s' * (len(targets) != 1)}",
            where=here.site,
            why="a list holds one entry per target, also where the entries are numbers" if listed else "",
            remedy=f"pass an array: {argument}=np.array(...)"
            if listed
            else "give one array per target, in the same order",
        )
    seeds = []
    for position, (leaf, target) in enumerate(zip(leaves, targets, strict=True)):
        if leaf is None:
            raise ArgumentError(
                f"{caller}: {argument} has None for target {position}",
                where=here.site,
                remedy="give an array of ones, or omit the target",
            )
        seeds.append(seed_for(leaf, target, caller, argument))
    return seeds


def seed_for(seed: Any, target: Value, caller: str, argument: str) -> Value:
    """Return the weight of one target, checked."""
    return conjugated(fitted(seed, target, f"{caller}: an entry of {argument}", "its target"))


def per_source(
    sources: Sequence[Source], parts: Sequence[Value | SparseGradient | None]
) -> list[Value | SparseGradient | None]:
    """Return one gradient per source from one cotangent per value that stands for a source: they add up."""
    results: list[Value | SparseGradient | None] = []
    position = 0
    for source in sources:
        count = len(source.values)
        part = parts[position] if count == 1 else None
        if isinstance(part, Value) and source.dtype.kind != "c":
            results.append(part)
        else:
            results.append(_gathered(source, parts[position : position + count]))
        position += count
    return results


def _gathered(
    source: Source, parts: Sequence[Value | SparseGradient | None]
) -> Value | SparseGradient | None:
    arrived = [part for part in parts if part is not None]
    if not arrived:
        return None
    return _conjugated(sparse_sum(arrived, source.shape) if len(arrived) > 1 else arrived[0])


def in_convention(
    gradients: Sequence[Value | SparseGradient | None], convention: Convention
) -> Sequence[Value | SparseGradient | None]:
    """Return gradients of TensorFlow's convention in the one that is asked for."""
    return gradients if convention == "tensorflow" else list(map(_conjugated, gradients))


def _conjugated(part: Value | SparseGradient | None) -> Value | SparseGradient | None:
    if isinstance(part, SparseGradient):
        return SparseGradient(conjugated(part.values), part.positions)
    return None if part is None else conjugated(part)


def completed(
    gradients: Sequence[Value | SparseGradient | None],
    sources: Sequence[Source | Handle],
    choice: UnconnectedGradients,
    tree: Any,
) -> Sequence[Value | SparseGradient | None]:
    """Return gradients with `choice` for the missing ones.

    The sources are of the shapes and dtypes of `sources`; `tree` is what the user gave for them.
    """
    if choice is UnconnectedGradients.NONE:
        return gradients
    if choice is UnconnectedGradients.RAISE and None in gradients:
        raise UnconnectedError(
            f"no differentiable path leads from sources{place_of_leaf(tree, gradients.index(None))} to the target",
            where=here.site,
            why="the source was not watched before it was used, was not used, or the path leads through something without a "
            "derivative (an integer, x.numpy(), stop_gradient)",
            remedy="watch it first and stay with arrays (on a tape, gt.debug.explain_gradient shows where the path ends), or take zeros: "
            'unconnected_gradients="zero"',
        )
    if choice is UnconnectedGradients.ZERO:
        return [
            broadcast_to(literal(0, source.dtype), source.shape) if part is None else part
            for part, source in zip(gradients, sources, strict=True)
        ]
    return gradients


def as_results(
    gradients: Sequence[Value | SparseGradient | None], sources: Sequence[Source | Handle]
) -> list[Any]:
    """Return gradients as the user sees them: Arrays, IndexedSlices, and None."""
    return [
        wrap_value(part)
        if type(part) is Value
        else None
        if part is None
        else IndexedSlices(Array(followable(part.values)), Array(part.positions), source.shape)
        if isinstance(part, SparseGradient)
        else wrap_value(followable(part))
        for part, source in zip(gradients, sources, strict=True)
    ]


def followable(value: Value) -> Value:
    """Return a literal as an array of rank 0, and any other value in its own array, so that it can be recorded and computed."""
    return Value(value.aval, data=value.data) if isinstance(value, Literal) else fresh_value(value)
