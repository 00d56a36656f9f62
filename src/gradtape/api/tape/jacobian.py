"""Jacobians of what a tape has recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gradtape.api.custom.complex_convention import Convention
from gradtape.api.tape.endpoints import (
    Source,
    UnconnectedGradients,
    array_leaves,
    as_results,
    completed,
    in_convention,
    per_source,
    unconnected_choice,
)
from gradtape.api.tape.memory import Memory, memory_limit
from gradtape.api.tape.row_probe import check_rows
from gradtape.api.units import like, magnitudes, may_have_units, per_argument, unit_of
from gradtape.config import bytes_of, config
from gradtape.containers.quantities import units_are_known
from gradtape.errors import ArgumentError, ConcretizationError, DtypeError, ShapeError, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, TraceTag, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP, is_inexact
from gradtape.ops.core.join import stack
from gradtape.ops.core.shape import permute, reshape
from gradtape.progress import progress
from gradtape.runtime.compile.program import program_for
from gradtape.runtime.interpret import interpret
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import Mapped
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.gradient_cache import Derivatives, Derive, Stop, derivatives
from gradtape.trace.source.sites import user_site
from gradtape.transforms.basis import LinearMap, pullback, unit_rows, unit_vectors, unit_vectors_at
from gradtape.transforms.chunks import Bound, applied_in_chunks, chunk_of_rows, in_loop
from gradtape.transforms.one_hot import OneHot
from gradtape.transforms.row_independence import UNKNOWN, row_axis
from gradtape.transforms.vjp import vjp


class Jacobians(ABC):
    """The methods of a tape that return Jacobians."""

    _convention: Convention

    @abstractmethod
    def _differentiated(
        self, caller: str, target: Handle, sources: Sequence[Handle]
    ) -> AbstractContextManager[tuple[TraceTag, Value, list[Source], bool]]:
        """Return a context that uses up the record of a one-shot tape unless it fails, with the tape's tag, what target and
        sources stand for in the record, and whether it is used up."""

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
        *,
        chunk_size: int | None = None,
        memory: Memory = None,
    ) -> Any:
        """Return the Jacobian of `target` in `sources`.

        Parameters
        ----------
        target : Array or Variable
            The array to differentiate.
        sources : Array, Variable or nest of them
            The values to differentiate with respect to: watched arrays and variables, or values computed from them. An array that
            has been written to since it was watched stands for the value that was watched.
        unconnected_gradients : UnconnectedGradients or {"none", "zero", "raise"}, default "none"
            The gradient of a source from which no differentiable path leads to the target.
        parallel_iterations : int, optional
            How many rows of the Jacobian are computed at once; by default as many as `memory` allows. Fewer take less memory: one
            program runs once for each chunk of rows. A bar shows the progress of what takes long (`gt.config.progress`).
        experimental_use_pfor : bool, default True
            Whether rows are computed together; otherwise one after another, with the same result.
        chunk_size : int, optional
            The same as `parallel_iterations`.
        memory : int or str, optional
            The bytes, as a number or as in ``"2 GB"``, that the rows of a chunk may take on their way, by default
            `gt.config.jacobian_memory`: a part of what is free. Records of reversed loops are bounded by the tape's own `memory`.

        Returns
        -------
        nest of Array or None
            In the structure of `sources`, each of shape ``target.shape + source.shape``.

        Raises
        ------
        TapeError
            If the tape was never entered, or is a one-shot tape whose record has been used.
        ArgumentError
            For several targets, and for arguments that cannot be used.
        UnconnectedError
            If there is no path, with ``unconnected_gradients="raise"``.

        Notes
        -----
        The reverse sweep is recorded once, for one cotangent, and then done for all unit vectors at once (A. Agarwal and
        I. Ganichev, "Auto-Vectorizing TensorFlow Graphs", 2019).

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(np.array([1.0, 2.0]))
        ...     y = x**2 * x[::-1]
        >>> tape.jacobian(y, x)
        Array([[4., 1.],
               [4., 4.]])
        """
        here.site = user_site()
        request = _Request(
            "jacobian", unconnected_gradients, parallel_iterations, experimental_use_pfor, chunk_size, memory
        )
        has_units = units_are_known() and may_have_units(target, sources)
        y = _one_target(magnitudes(target) if has_units else target, "jacobian")
        leaves, nest = array_leaves(sources, "source", "jacobian")
        with self._differentiated("jacobian", y, leaves) as (tag, value, starts, last):
            begins = [begin for source in starts for begin in source.values]

            def derive(targets: Sequence[Value], sources: Sequence[Value], _: Any, stop: Stop) -> Derivatives:
                (y,) = targets
                return [*_applied(_pulled(y, sources, stop, "jacobian"), _all_units(y), request)]

            try:
                parts = _found(derive, "jacobian", request, value, begins, tag, last)
            except ConcretizationError:
                if not request.sequential:
                    raise
                parts = _row_by_row(tag, value, starts, _all_units(value))
            blocks = [Source((*value.shape, *begin.shape), begin.dtype, begin.values) for begin in starts]
            parts = _shaped(parts, blocks)
            found = completed(per_source(blocks, parts), blocks, request.choice, sources)
        jacobians = nest(as_results(in_convention(found, self._convention), blocks))
        return per_argument(unit_of(target), jacobians) if has_units else jacobians

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
        *,
        chunk_size: int | None = None,
        memory: Memory = None,
    ) -> Any:
        """Return the Jacobian of each row of `target` in the same row of `source`.

        The first axis of both counts examples that do not influence each other.

        Parameters
        ----------
        target, source : Array or Variable
            Of rank 2 at least, with the same first extent.
        unconnected_gradients, parallel_iterations, experimental_use_pfor, chunk_size, memory
            As for `jacobian`; what is counted by `parallel_iterations` are the rows of the Jacobian of one example.

        Returns
        -------
        Array or None
            Of shape ``target.shape + source.shape[1:]``.

        Raises
        ------
        TapeError, UnconnectedError
            As for `jacobian`.
        ShapeError
            Where the shapes are not as said.
        ArgumentError
            If a row of `target` depends on another row of `source`; the error names the rows.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(np.array([[1.0, 2.0], [3.0, 4.0]]))
        ...     y = x**2
        >>> tape.batch_jacobian(y, x)
        Array([[[2., 0.],
                [0., 4.]],
        <BLANKLINE>
               [[6., 0.],
                [0., 8.]]])
        """
        here.site = user_site()
        caller = "batch_jacobian"
        request = _Request(
            caller, unconnected_gradients, parallel_iterations, experimental_use_pfor, chunk_size, memory
        )
        y = _one_target(magnitudes(target), caller)
        x = _one_source(magnitudes(source), caller)
        _check_batches(y, x, caller)
        with self._differentiated(caller, y, [x]) as (tag, value, (begin,), last):

            def derive(targets: Sequence[Value], sources: Sequence[Value], _: Any, stop: Stop) -> Derivatives:
                (y,) = targets
                linear = _pulled(y, sources, stop, caller)
                for start, out in zip(sources, linear.outs, strict=True):
                    if out is not None and row_axis(y, start, stop) == UNKNOWN:
                        if y is not value:  # a copy of the record
                            raise ConcretizationError("whether rows mix depends on numbers")
                        check_rows(_pulled(y, [start], stop, caller, of_units=False), caller)
                return [
                    None if part is None else permute(part, (1, 0, *range(2, part.ndim)))
                    for part in _applied(linear, _units_of_rows(y), request)
                ]

            parts = _found(derive, caller, request, value, begin.values, tag, last)
            blocks = [Source((*value.shape, *begin.shape[1:]), begin.dtype, begin.values)]
            found = completed(per_source(blocks, _shaped(parts, blocks)), blocks, request.choice, source)
        (rows,) = as_results(in_convention(found, self._convention), blocks)
        return per_argument(unit_of(target), like(source, rows))


class _Request:
    """How a Jacobian is to be computed."""

    __slots__ = ("choice", "memory", "parallel_iterations", "sequential")

    def __init__(
        self,
        caller: str,
        unconnected: Any,
        parallel_iterations: Any,
        use_pfor: bool,
        chunk_size: Any = None,
        memory: Memory = None,
    ) -> None:
        self.choice = unconnected_choice(unconnected, caller)
        self.sequential = not use_pfor
        bound = chunk_limit(chunk_size, memory, caller)
        self.memory = bound.memory
        if bound.chunk_size is not None:
            if parallel_iterations is not None:
                raise ArgumentError(
                    f"{caller}: both parallel_iterations and chunk_size are given",
                    where=here.site,
                    remedy="they are two names of one thing: give one of them",
                )
            parallel_iterations = bound.chunk_size
        self.parallel_iterations: int | None = parallel_iterations
        if parallel_iterations is None:
            return
        if isinstance(parallel_iterations, bool) or not isinstance(parallel_iterations, int | np.integer):
            raise DtypeError(
                f"{caller}: parallel_iterations must be an int or None, got {kind_of(parallel_iterations)}",
                where=here.site,
                remedy="it is the number of rows that are computed at once; None for all",
            )
        if parallel_iterations < 1:
            raise ArgumentError(
                f"{caller}: parallel_iterations is {parallel_iterations}",
                where=here.site,
                remedy="it is the number of rows computed at once: at least 1, or None for all",
            )


def chunk_limit(chunk_size: Any, memory: Memory, caller: str, counted: str = "rows or columns") -> Bound:
    """Return how many rows or columns are computed at once, as a user asks for it."""
    meaning = f"it is the number of {counted} computed at once"
    if chunk_size is not None:
        if isinstance(chunk_size, bool) or not isinstance(chunk_size, int | np.integer):
            raise DtypeError(
                f"{caller}: chunk_size must be an int or None, got {kind_of(chunk_size)}",
                where=here.site,
                remedy=meaning,
            )
        if chunk_size < 1:
            raise ArgumentError(
                f"{caller}: chunk_size is {chunk_size}", where=here.site, remedy=f"{meaning}: at least 1"
            )
    limit = None if memory is None else bytes_of(memory_limit(memory, caller))
    if chunk_size is not None and memory is not None:
        raise ArgumentError(
            f"{caller}: both chunk_size and memory are given",
            where=here.site,
            remedy="give one of them: memory limits the size of chunks",
        )
    return Bound(None if chunk_size is None else int(chunk_size), limit)


def _one_target(target: Any, caller: str) -> Handle:
    leaves, _ = array_leaves(target, "target", caller)
    if not isinstance(target, Handle):
        raise ArgumentError(
            f"{caller} takes one target, got a {type(target).__name__} of {len(leaves)}",
            where=here.site,
            why="each target has a Jacobian of its own",
            remedy="call it once for each target on a persistent tape, or put them into one array: np.concatenate",
        )
    return target


def _one_source(source: Any, caller: str) -> Handle:
    leaves, _ = array_leaves(source, "source", caller)
    if not isinstance(source, Handle):
        raise ArgumentError(
            f"{caller} takes one source, got a {type(source).__name__} of {len(leaves)}",
            where=here.site,
            remedy="call it once for each source, on a persistent tape",
        )
    return source


def _check_batches(y: Handle, x: Handle, caller: str) -> None:
    for role, handle in (("target", y), ("source", x)):
        if handle.ndim < 2:
            raise ShapeError(
                f"{caller}: the {role} has shape {handle.shape}; it needs a batch axis and at least one more",
                where=here.site,
                remedy="use jacobian, or give it a trailing axis: x[:, None]",
            )
    if y.shape[0] != x.shape[0]:
        raise ShapeError(
            f"{caller}: the target has {y.shape[0]} rows and the source {x.shape[0]}",
            where=here.site,
            remedy="the first axis of both is the batch; use jacobian for other Jacobians",
        )


@dataclass(frozen=True)
class _Basis:
    """The cotangents for which a pullback is computed.

    Attributes
    ----------
    count : int
        How many there are.
    target : Value
        What they are cotangents of.
    chosen : callable
        ``(positions) -> seeds`` at these positions.
    whole : callable
        ``() -> seeds``: all of them.
    single : callable
        ``(array of zeros, position)`` makes the array the one at a position.
    """

    count: int
    target: Value
    chosen: Callable[[Value], Value | OneHot]
    whole: Callable[[], Value | OneHot]
    single: Callable[[NDArray, int], None]


def _all_units(value: Value) -> _Basis:
    return _Basis(
        value.size, value, lambda rows: unit_vectors_at(value, rows), lambda: unit_vectors(value), _unit
    )


def _units_of_rows(value: Value) -> _Basis:
    inner = prod(value.shape[1:])
    whole = constant(np.arange(inner, dtype=INTP))
    return _Basis(
        inner,
        value,
        lambda rows: unit_rows(value, rows),
        lambda: unit_rows(value, whole),
        _unit_in_each_row,
    )


def _unit(zeros: NDArray, position: int) -> None:
    zeros.reshape(-1)[position] = 1


def _unit_in_each_row(zeros: NDArray, position: int) -> None:
    zeros.reshape(len(zeros), -1)[:, position] = 1


def mapped_tag(caller: str, remedy: str = "") -> Mapped:
    """Return the tags of the row or column that represents all."""
    return Mapped(f"a derivative that {caller} computes for all rows or columns at once", remedy)


def _found(
    derive: Derive,
    caller: str,
    request: _Request,
    y: Value,
    starts: Sequence[Value],
    tag: TraceTag,
    last: bool,
) -> list[Any]:
    """Return the rows for every value that stands for a source; only floats that the tape has recorded have a path."""
    if tag not in y.tags or not is_inexact(y.dtype):
        return [None] * len(starts)
    count = prod(y.shape[1:]) if caller == "batch_jacobian" else y.size
    if len(_chunks(request, count)) > 1:
        return derive([y], starts, None, lambda value: tag not in value.tags)
    return derivatives(derive, caller, [y], starts, None, tag, last=last)


def _pulled(
    y: Value, starts: Sequence[Value], stop: Stop, caller: str, *, of_units: bool = True
) -> LinearMap:
    follower = mapped_tag(caller, "; experimental_use_pfor=False computes row after row")
    return pullback(y, starts, stop, follower, of_units=of_units)


def _row_by_row(tag: TraceTag, y: Value, sources: Sequence[Source], basis: _Basis) -> list[Value | None]:
    """Sweep back anew for each row: for gradient functions that look at the numbers of what they get."""
    starts = [start for source in sources for start in source.values]
    swept: list[list[Value | None]] = []
    for row in progress(range(basis.count), "jacobian", [1] * basis.count, "row"):
        seed = np.zeros(y.shape, y.dtype)
        basis.single(seed, row)
        unit = constant(seed)
        parts = vjp([y], starts, [unit], lambda value: tag not in value.tags, constant=[unit], are_units=True)
        force([part for part in parts if part is not None])
        swept.append(parts)
    return [
        None if column[0] is None else stack(*[part for part in column if part is not None])
        for column in zip(*swept, strict=True)
    ]


def _shaped(parts: Sequence[Value | None], blocks: Sequence[Source]) -> list[Value | None]:
    """Return the blocks of a Jacobian in their shapes."""
    shapes = [block.shape for block in blocks for _ in block.values]
    return [None if part is None else reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _applied(linear: LinearMap, basis: _Basis, request: _Request) -> list[Value | None]:
    """Return the pullback of the basis: along a leading axis, or None where there is no path."""
    if all(out is None for out in linear.outs):
        return list(linear.outs)
    chunks = _chunks(request, basis.count)
    if request.parallel_iterations is None and not request.sequential and basis.target.size:
        found = applied_in_chunks(linear, basis.chosen, basis.count, Bound(memory=request.memory))
        if found is not None:
            return found
    if len(chunks) <= 1 or not basis.target.size:
        return linear.apply(basis.whole())
    if any(each.recording for out in linear.outs if out is not None for each in out.tags):
        return in_loop(linear, basis.chosen, basis.count, len(chunks[0]))
    return _one_by_one(linear, basis) if request.sequential else _by_chunks(linear, basis, chunks)


def _chunks(request: _Request, count: int) -> list[range]:
    """Return the rows that are computed at once."""
    size = 1 if request.sequential else request.parallel_iterations or max(count, 1)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _by_chunks(linear: LinearMap, basis: _Basis, chunks: Sequence[range]) -> list[Value | None]:
    """Run one program once per chunk; the last chunk is filled up with its last row."""
    size = len(chunks[0])
    chunk = chunk_of_rows(linear, basis.chosen, size)
    arrays = force(chunk.shared)
    run = _runner(Graph([chunk.rows, *chunk.shared], chunk.nodes, chunk.outs, "jacobian"))
    results = [np.empty((basis.count, *out.shape[1:]), out.dtype) for out in chunk.outs]
    weights = [len(each) for each in chunks]
    for each in progress(chunks, "jacobian", weights, "row"):
        positions = np.minimum(np.arange(each.start, each.start + size, dtype=INTP), basis.count - 1)
        for result, piece in zip(results, run([positions, *arrays]), strict=True):
            result[each.start : each.stop] = piece[: len(each)]
    return _in_place_of(linear.outs, results)


def _one_by_one(linear: LinearMap, basis: _Basis) -> list[Value | None]:
    """Run one program, the pullback of a single cotangent, once per row."""
    outs = [out for out in linear.outs if out is not None]
    nodes, shared = linear.nodes_between()
    arrays = force(shared)
    run = _runner(Graph([linear.seed, *shared], nodes, outs, "jacobian"))
    results = [np.empty((basis.count, *out.shape), out.dtype) for out in outs]
    rows = range(basis.count)
    for row in progress(rows, "jacobian", [1] * len(rows), "row"):
        seed = np.zeros(basis.target.shape, basis.target.dtype)
        basis.single(seed, row)
        for result, piece in zip(results, run([seed, *arrays]), strict=True):
            result[row] = piece
    return _in_place_of(linear.outs, results)


def _runner(graph: Graph) -> Callable[[Sequence[NDArray]], list[NDArray]]:
    """Return what computes the outputs of a graph, time and again."""
    return program_for(graph).run if config.jit else partial(interpret, graph)


def _in_place_of(outs: Sequence[Value | None], results: Sequence[NDArray]) -> list[Value | None]:
    found = iter(results)
    return [None if out is None else constant(next(found)) for out in outs]
