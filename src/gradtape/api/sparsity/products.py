"""Compressed products: the linear map of a Jacobian or Hessian between flat arrays, and its matrix by a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gradtape.api.sparsity.blocks import Blocks, block_plan, blocks_of
from gradtape.api.sparsity.plan import MANY_COLOURS, REVERSE_COST, Plan, fewest_products
from gradtape.api.tape.jacobian import mapped_tag
from gradtape.errors import ArgumentError
from gradtape.ir.graph import TraceTag, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP, aval
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import equal, truth
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.join import join
from gradtape.ops.core.reductions import reduce_all
from gradtape.ops.core.shape import expand, reshape, slice_
from gradtape.trace.jit.guards import abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.routines.sparse_matrices import known_index
from gradtape.trace.source.sites import user_site
from gradtape.transforms.basis import LinearMap, Stop
from gradtape.transforms.chunks import Bound, applied_in_chunks
from gradtape.transforms.jvp import jvp
from gradtape.transforms.sparsity.index_sets import IndexSets, empty_sets, stacked, united
from gradtape.transforms.sparsity.propagation import Known, map_pattern
from gradtape.transforms.vjp import vjp

SPARSE_MATRIX: Final = 4
"""A matrix is taken for a sparse one if fewer than one of so many elements is not zero."""


class FlatMaps:
    """The derivative of some arrays in others, as a matrix: its products with vectors in both modes.

    Parameters
    ----------
    targets, sources : sequence of Value
        The arrays, of floats.
    tag : TraceTag
        The tag of what depends on the sources.
    caller : str
        The public function, for errors.
    is_local : bool
        Whether the pattern is that of the call at hand, or holds for all values of the sources.
    """

    def __init__(
        self, targets: Sequence[Value], sources: Sequence[Value], tag: TraceTag, caller: str, is_local: bool
    ) -> None:
        self._targets, self._sources = targets, sources
        self._tag, self._caller, self._is_local = tag, caller, is_local
        self.shape = sum(x.size for x in targets), sum(x.size for x in sources)
        self.dtype = np.result_type(*[x.dtype for x in (*targets, *sources)], np.float32)

    def forward(self, *, of_units: bool = False) -> LinearMap:
        """Return the map from a flat tangent of the sources to the flat tangents of the targets: of zeros and ones, or without masks."""
        return self._map(
            self._sources,
            self._targets,
            lambda seeds, stop: jvp(
                self._targets, self._sources, seeds, stop, constant=seeds if of_units else (), are_units=True
            ),
        )

    def reverse(self, *, of_units: bool = False) -> LinearMap:
        """Return the map from a flat cotangent of the targets to the flat cotangents of the sources, as `forward` does."""
        return self._map(
            self._targets,
            self._sources,
            lambda seeds, stop: vjp(
                self._targets, self._sources, seeds, stop, constant=seeds if of_units else (), are_units=True
            ),
        )

    def _map(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        sweep: Callable[[Sequence[Value], Stop], Sequence[Value | None]],
    ) -> LinearMap:
        tag = mapped_tag(self._caller)
        size = sum(x.size for x in inputs)
        seed = Value(aval((size,), self.dtype), tags=(tag,))
        seeds, start = [], 0
        for x in inputs:
            part = slice_(seed, (start,), (x.size,), (1,))
            seeds.append(convert(reshape(part, x.shape), x.dtype))
            start += x.size
        found = sweep(seeds, self._is_constant)
        outs = [
            None if out is None or tag not in out.tags else convert(reshape(out, (x.size,)), self.dtype)
            for out, x in zip(found, outputs, strict=True)
        ]
        tag.end()
        return LinearMap(seed, tuple(outs), tag)

    def pattern(self) -> IndexSets:
        """Return the pattern of the matrix, rows for the elements of the targets."""
        return self._pattern(Known(self._numbers, self._nonzero, self._nonzero_matrix))

    def pattern_by_constants(self) -> IndexSets:
        """Return a pattern for which nothing but constants of the program is looked at: it holds for all other numbers, without a guard."""
        return self._pattern(Known(_constant, _nonzero_constant, _nonzero_constant))

    def _pattern(self, known: Known) -> IndexSets:
        found = map_pattern(self.forward(), known)
        columns = self.shape[1]
        return stacked(
            [
                empty_sets(x.size, columns) if sets is None else united([sets])
                for x, sets in zip(self._targets, found, strict=True)
            ]
        )

    def blocks(self) -> list[Blocks] | None:
        """Return the blocks of which the matrix consists; None if there are none."""
        return blocks_of(self._targets, self._sources, self._is_constant)

    def plan_by_blocks(self, pattern: IndexSets) -> Plan | None:
        """Return a plan by blocks, if that has fewer products than any other one may have, and other ones have many."""
        fewest = fewest_products(pattern)
        blocks = self.blocks() if fewest > MANY_COLOURS else None
        if blocks is None:
            return None
        cost = sum((1 if each.size.by_columns else REVERSE_COST) * len(each.size.lengths) for each in blocks)
        return block_plan(pattern, blocks, self._columns_of) if cost < fewest else None

    def _columns_of(self, read: Value) -> NDArray | None:
        """Return for each element of what is read from the sources its position in these, -1 for a zero; None where it is not known."""
        sets = FlatMaps([read], self._sources, self._tag, self._caller, self._is_local).pattern()
        counts = np.diff(sets.indptr)
        if counts.max(initial=0) > 1:
            return None
        columns = np.full(read.size, -1)
        columns[counts == 1] = sets.indices
        return columns

    def _is_constant(self, value: Value) -> bool:
        return self._tag not in value.tags

    def matrix(self, plan: Plan, bound: Bound) -> Value:
        """Return the elements of the matrix in the order of the plan."""
        columns, rows = plan.products
        pieces = []
        if plan.blocks:
            blocks = self.blocks() or []
            if tuple([each.size for each in blocks]) != plan.blocks:
                raise ArgumentError(
                    f"{self._caller}: pattern is a plan by blocks, which this function does not have",
                    where=user_site(),
                    why="the function that the plan was made for reads its arguments by rows",
                    remedy="pass the pattern alone: the method pattern of the other transform returns it",
                )
            pieces += [each.products(self._is_constant, self.dtype) for each in blocks]
        if columns:
            pieces.append(
                self._products(self.forward(of_units=True), self._targets, plan.column_colours, bound)
            )
        if rows:
            pieces.append(self._products(self.reverse(of_units=True), self._sources, plan.row_colours, bound))
        if not pieces or not plan.nnz:
            return constant(np.zeros(plan.nnz, self.dtype))
        flat = join([reshape(piece, (piece.size,)) for piece in pieces], 0)
        positions, facts = known_index(plan.positions, flat.size)
        return gather_row(flat, positions, **facts)

    def _products(self, linear: LinearMap, outputs: Sequence[Value], colours: NDArray, bound: Bound) -> Value:
        """Return the products with the sums of unit vectors of each colour, (colours, elements of the outputs)."""
        count, size = int(colours.max(initial=-1)) + 1, len(colours)
        narrow = np.dtype(np.int32)  # half of the memory that is read for each product
        known = constant(colours.astype(narrow))

        def seeds_at(positions: Value) -> Value:
            shape = (positions.shape[0], size)
            number = expand(convert(positions, narrow), shape, (0,))
            return convert(equal(expand(known, shape, (1,)), number), self.dtype)

        found = applied_in_chunks(linear, seeds_at, count, bound)
        if found is None:
            found = linear.apply(seeds_at(constant(np.arange(count, dtype=INTP))))
        parts = [
            broadcast_to(constant(np.zeros((), self.dtype)), (count, x.size)) if part is None else part
            for part, x in zip(found, outputs, strict=True)
        ]
        return join(parts, 1)

    def _numbers(self, value: Value) -> NDArray | None:
        """Return an index array, unless it depends on the sources."""
        return None if self._tag in value.tags and not self._is_local else _looked_at(value)

    def _nonzero(self, value: Value) -> NDArray | None:
        """Return which elements of a factor are not zero: of a constant, and, for the pattern of one call, of any."""
        if value.data is not None and not value.tags:
            return np.asarray(value.data != 0)
        return _looked_at(truth(value)) if self._is_local else None

    def _nonzero_matrix(self, value: Value) -> NDArray | None:
        """Return which elements of a matrix are not zero, if it is mostly zeros."""
        if value.data is None and (abstract_of(value) is not None or self._tag in value.tags):
            return self._nonzero(value)
        (data,) = force([value])
        is_sparse = SPARSE_MATRIX * np.count_nonzero(data) < data.size
        return _looked_at(truth(value)) if is_sparse else None


def _constant(value: Value) -> NDArray | None:
    return None if value.tags else value.data


def _nonzero_constant(value: Value) -> NDArray | None:
    return None if value.tags or value.data is None else np.asarray(value.data != 0)


def _looked_at(value: Value) -> NDArray | None:
    """Return the array of a value; in a compiled function, the trace holds for calls with the same one."""
    if value.data is not None and not value.tags:
        return value.data
    if abstract_of(value) is not None:
        return None
    trace = trace_of(value)
    (data,) = force([value])
    if trace is not None:
        flags = equal(value, constant(np.array(data)))
        same = reduce_all(flags, axes=tuple(range(value.ndim))) if value.ndim else flags
        trace.guard(same, 1, user_site())
    return data
