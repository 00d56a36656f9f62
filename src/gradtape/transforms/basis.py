"""Linear maps on a basis: the rows or columns of a Jacobian, many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from gradtape.ir.graph import Node, TraceTag, Value, constant, extract
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INTP, aval
from gradtape.kinds.batching import in_front
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
        What depends on it; None where nothing does.
    tag : TraceTag
        On every value between the seed and the outs.
    """

    seed: Value
    outs: tuple[Value | None, ...]
    tag: TraceTag

    def opened(self) -> tuple[list[Node], list[Value]]:
        """Return the nodes between the seed and the outs, and the arrays that they read beside the seed."""
        outs = [out for out in self.outs if out is not None]
        return extract(outs, [self.seed], stop=lambda value: self.tag not in value.tags and is_array(value))

    def at(self, seeds: Value | OneHot) -> list[Value | None]:
        """Append the nodes that apply the map to many seeds; seeds and results stand along a leading axis."""
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
    """Return whether a value can be passed from program to program: what a loop of unknown length leaves behind cannot."""
    return value.dtype.kind != "O"


def pullback(target: Value, sources: Sequence[Value], stop: Stop, tag: TraceTag) -> LinearMap:
    """Return the map from a cotangent of `target` to cotangents of `sources`, by reverse mode (see `vjp`).

    `tag` follows what depends on the cotangent.
    """
    seed = Value(aval(target.shape, target.dtype), tags=(tag,))
    pulled = vjp([target], sources, [seed], stop)
    tag.end()
    return LinearMap(seed, tuple(pulled), tag)


def pushforward(targets: Sequence[Value], source: Value, stop: Stop, tag: TraceTag) -> LinearMap:
    """Return the map from a tangent of `source` to tangents of `targets`, by forward mode (see `jvp`).

    `tag` follows what depends on the tangent.
    """
    seed = Value(aval(source.shape, source.dtype), tags=(tag,))
    pushed = jvp(targets, [source], [seed], stop)
    tag.end()
    return LinearMap(seed, tuple(pushed), tag)


def unit_vectors(like: Value) -> OneHot:
    """Return the basis of arrays like this one, along a leading axis."""
    return OneHot(like.shape, like.dtype, constant(np.arange(prod(like.shape), dtype=INTP)), True)


def chosen_unit_vectors(like: Value, rows: Value) -> OneHot:
    """Return the elements of the basis at these positions."""
    return OneHot(like.shape, like.dtype, rows, False)


def unit_rows(like: Value, rows: Value) -> Value:
    """Return the elements of the basis of one row, at these positions, in every row of arrays like this one."""
    inner = OneHot(like.shape[1:], like.dtype, rows, False).dense()
    shape = (rows.shape[0], *like.shape)
    return PRIMITIVES["expand"](inner, shape, (0, *range(2, len(shape))))
