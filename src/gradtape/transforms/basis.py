"""Linear maps on a basis: the rows or columns of a Jacobian, many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from gradtape.ir.graph import Node, TraceTag, Value, extract
from gradtape.ir.types import aval
from gradtape.kinds.batching import in_front
from gradtape.ops.core.lengths import count_to
from gradtape.ops.core.shape import expand
from gradtape.transforms.batch import batch
from gradtape.transforms.jvp import jvp
from gradtape.transforms.one_hot import OneHot
from gradtape.transforms.vjp import vjp

Stop = Callable[[Value], bool]


@dataclass(frozen=True, eq=False, slots=True)
class LinearMap:
    """Values that depend linearly on a seed.

    Attributes
    ----------
    seed : Value
        A placeholder.
    outs : tuple of Value or None
        Values that depend on it; None for zero.
    tag : TraceTag
        The tag of every value between the seed and the outs.
    """

    seed: Value
    outs: tuple[Value | None, ...]
    tag: TraceTag

    def nodes_between(self) -> tuple[list[Node], list[Value]]:
        """Return the nodes between the seed and the outs, and the other arrays that they read."""
        outs = [out for out in self.outs if out is not None]
        return extract(outs, [self.seed], stop=lambda value: self.tag not in value.tags and is_array(value))

    def apply(self, seeds: Value | OneHot) -> list[Value | None]:
        """Append the nodes that apply the map to many seeds, stacked along a leading axis; return the stacked results."""
        count = seeds.count if isinstance(seeds, OneHot) else seeds.shape[0]
        connected = [out for out in self.outs if out is not None]
        found = iter(batch(connected, {self.seed: seeds}, count, lambda value: self.tag not in value.tags))
        results: list[Value | None] = []
        for out in self.outs:
            if out is None:
                results.append(None)
            else:
                applied = next(found)
                results.append(in_front(out, count) if applied is None else applied)
        return results


def is_array(value: Value) -> bool:
    """Return whether a value is an array, and not the stack of a loop with unknown trip count, which programs do not pass on."""
    return value.dtype.kind != "O"


def pullback(
    target: Value, sources: Sequence[Value], stop: Stop, tag: TraceTag, *, of_units: bool = True
) -> LinearMap:
    """Return the map from a cotangent of `target` to cotangents of `sources`, by reverse mode (see `vjp`).

    `tag` is the tag of values that depend on the cotangent. With `of_units` the map is right for zeros and ones only.
    """
    seed = Value(aval(target.shape, target.dtype), tags=(tag,))
    pulled = vjp([target], sources, [seed], stop, constant=[seed], are_units=of_units)
    tag.end()
    return LinearMap(seed, tuple(pulled), tag)


def pushforward(targets: Sequence[Value], source: Value, stop: Stop, tag: TraceTag) -> LinearMap:
    """Return the map from a tangent of `source` to tangents of `targets`, by forward mode (see `jvp`).

    `tag` is the tag of values that depend on the tangent. The map is right for zeros and ones only.
    """
    seed = Value(aval(source.shape, source.dtype), tags=(tag,))
    pushed = jvp(targets, [source], [seed], stop, constant=[seed], are_units=True)
    tag.end()
    return LinearMap(seed, tuple(pushed), tag)


def unit_vectors(like: Value) -> OneHot:
    """Return the basis of arrays like this one, along a leading axis."""
    return OneHot(like.shape, like.dtype, count_to(prod(like.shape)), True)


def unit_vectors_at(like: Value, positions: Value) -> OneHot:
    """Return the unit vectors with these positions in the basis."""
    return OneHot(like.shape, like.dtype, positions, False)


def unit_rows(like: Value, positions: Value) -> Value:
    """Return arrays like this one, (count, *shape), each with the same unit vector in every row, by its position in a row."""
    inner = OneHot(like.shape[1:], like.dtype, positions, False).dense()
    shape = (positions.shape[0], *like.shape)
    return expand(inner, shape, (0, *range(2, len(shape))))
