"""Jacobians of what a tape has recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..config import config
from ..errors import ArgumentError, DtypeError, ShapeError, UnconnectedError
from ..ir.builder import here
from ..ir.graph import OPERATORS, Graph, Literal, Mark, Value, constant, extract, literal
from ..ir.op import NDArray
from ..ir.types import INTP, Shape, aval, is_inexact
from ..kinds.operands import broadcast_to
from ..ops.join import join
from ..runtime.interpret import interpret
from ..runtime.program import program_for
from ..trace.array import Array
from ..trace.force import force
from ..trace.handle import Handle
from ..trace.sites import user_site
from ..transforms.basis import LinearMap, chosen_unit_vectors, pullback, unit_rows, unit_vectors
from ..transforms.one_hot import OneHot
from ..transforms.rowwise import UNKNOWN, row_axis
from ..trees import flatten, place_of_leaf, unflatten
from .convention import flipped
from .mixing import check_rows
from .progress import progress

UNCONNECTED = ("none", "zero", "raise")


@dataclass(frozen=True)
class Request:
    """How a Jacobian is to be computed: the arguments that `jacobian` and `batch_jacobian` have in common."""

    caller: str
    unconnected_gradients: Any = "none"
    parallel_iterations: int | None = None
    experimental_use_pfor: bool = True

    def checked(self) -> Request:
        """Return the request; raise where it cannot be met."""
        if str(self.unconnected_gradients) not in UNCONNECTED:
            raise ArgumentError(
                f"Unknown value for unconnected_gradients: {self.unconnected_gradients!r} ({self.caller})",
                where=here.site,
                remedy='choose "none", "zero" or "raise"',
            )
        given = self.parallel_iterations
        if given is not None and (isinstance(given, bool) or not isinstance(given, int | np.integer)):
            raise DtypeError(
                f"{self.caller}: parallel_iterations must be an int or None, got a {type(given).__name__}",
                where=here.site,
                remedy="it says how many rows are computed at once; None for all",
            )
        if given is not None and given < 1:
            raise ArgumentError(
                f"{self.caller}: parallel_iterations is {given}",
                where=here.site,
                remedy="it says how many rows are computed at once: at least 1, or None for all",
            )
        return self

    @property
    def sequential(self) -> bool:
        return not self.experimental_use_pfor


def jacobian(mark: Mark, target: Any, sources: Any, request: Request) -> Any:
    """Return the Jacobian of a target in each source; `mark` is the tape's. See `GradientTape.jacobian`."""
    request.checked()
    y = _one_target(target, request.caller)
    if sources is None:
        raise DtypeError(
            f"{request.caller} got None as sources",
            where=here.site,
            remedy="pass the arrays that were watched",
        )
    leaves, spec = flatten(sources)
    starts = [_followed(leaf, "source", request.caller) for leaf in leaves]
    linear = _pulled(mark, y, starts)
    basis = _Basis(y.size, y, lambda rows: chosen_unit_vectors(y, rows), lambda: unit_vectors(y), _unit)
    parts = _applied(linear, basis, request, mark)
    results = []
    for place, (part, start) in enumerate(zip(parts, starts, strict=True)):
        shape = (*y.shape, *start.shape)
        results.append(
            _finished(part, shape, start, request, lambda place=place: place_of_leaf(sources, place))
        )
    return unflatten(spec, results)


def batch_jacobian(mark: Mark, target: Any, source: Any, request: Request) -> Any:
    """Return the Jacobian of each row of a target in the same row of a source. See `GradientTape.batch_jacobian`."""
    request.checked()
    caller = request.caller
    y = _one_target(target, caller)
    if not isinstance(source, Handle) and flatten(source)[0] != [source]:
        raise ArgumentError(
            f"{caller} takes one source, got a {type(source).__name__}",
            where=here.site,
            remedy="call it once for each source, on a persistent tape",
        )
    x = _followed(source, "source", caller)
    for role, value in (("target", y), ("source", x)):
        if value.ndim < 2:
            raise ShapeError(
                f"{caller}: the {role} has shape {value.shape}; it needs a batch axis and at least one more",
                where=here.site,
                remedy="use jacobian, or give it a trailing axis: x[:, None]",
            )
    if y.shape[0] != x.shape[0]:
        raise ShapeError(
            f"{caller}: the target has {y.shape[0]} rows and the source {x.shape[0]}",
            where=here.site,
            remedy="the first axis of both is the batch; use jacobian for other Jacobians",
        )
    linear = _pulled(mark, y, [x])
    if linear.outs[0] is not None and row_axis(y, x, lambda value: mark not in value.marks) == UNKNOWN:
        check_rows(linear, caller)
    inner = prod(y.shape[1:])
    whole = constant(np.arange(inner, dtype=INTP))
    basis = _Basis(inner, y, lambda rows: unit_rows(y, rows), lambda: unit_rows(y, whole), _unit_in_each_row)
    (part,) = _applied(linear, basis, request, mark)
    if part is not None:
        part = OPERATORS["permute"](part, (1, 0, *range(2, part.ndim)))
    return _finished(part, (*y.shape, *x.shape[1:]), x, request, lambda: "")


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


def _unit(zeros: NDArray, position: int) -> None:
    zeros.reshape(-1)[position] = 1


def _unit_in_each_row(zeros: NDArray, position: int) -> None:
    zeros.reshape(len(zeros), -1)[:, position] = 1


def _pulled(mark: Mark, y: Value, starts: Sequence[Value]) -> LinearMap:
    """Return the pullback; only what the tape has followed, and only floats, have a path."""
    if mark not in y.marks or not is_inexact(y.dtype):
        return LinearMap(Value(y.aval), (None,) * len(starts), Mark())
    linear = pullback(y, starts, lambda value: mark not in value.marks)
    outs = [
        out if mark in start.marks and is_inexact(start.dtype) else None
        for out, start in zip(linear.outs, starts, strict=True)
    ]
    return LinearMap(linear.seed, tuple(outs), linear.mark)


def _applied(linear: LinearMap, basis: _Basis, request: Request, mark: Mark) -> list[Value | None]:
    """Return the pullback of the basis: along a leading axis, or None where there is no path."""
    if all(out is None for out in linear.outs):
        return list(linear.outs)
    size = 1 if request.sequential else request.parallel_iterations or max(basis.count, 1)
    chunks = [range(start, min(start + size, basis.count)) for start in range(0, basis.count, size)]
    if len(chunks) <= 1 or not basis.target.size:
        return linear.at(basis.whole())
    if any(each.recording for out in linear.outs if out is not None for each in out.marks):
        return _recorded(linear, basis, chunks)
    return _one_by_one(linear, basis) if request.sequential else _by_chunks(linear, basis, chunks)


def _recorded(linear: LinearMap, basis: _Basis, chunks: Sequence[range]) -> list[Value | None]:
    """Append the nodes of every chunk, since somebody follows them."""
    pieces = [linear.at(basis.chosen(constant(np.asarray(chunk, INTP)))) for chunk in chunks]
    return [
        None if column[0] is None else join([piece for piece in column if piece is not None], 0)
        for column in zip(*pieces, strict=True)
    ]


def _by_chunks(linear: LinearMap, basis: _Basis, chunks: Sequence[range]) -> list[Value | None]:
    """Run one program once per chunk; the last chunk is filled up with its last row."""
    size = len(chunks[0])
    follows = Mark()
    rows = Value(aval((size,), INTP), marks=(follows,))
    outs = [out for out in linear.outs if out is not None]
    single, _ = extract(outs, [linear.seed], stop=lambda value: value.node is None)
    before = {out for node in single for out in node.outs}
    batched = [out for out in linear.at(basis.chosen(rows)) if out is not None]
    nodes, shared = extract(
        batched, [rows], stop=lambda value: value in before or value.data is not None or value.node is None
    )
    arrays = force(shared)
    run = _runner(Graph([rows, *shared], nodes, batched, "jacobian"))
    results = [np.empty((basis.count, *out.shape[1:]), out.dtype) for out in batched]
    weights = [len(chunk) for chunk in chunks]
    for chunk in progress(chunks, "jacobian", weights, "row"):
        positions = np.minimum(np.arange(chunk.start, chunk.start + size, dtype=INTP), basis.count - 1)
        for result, piece in zip(results, run([positions, *arrays]), strict=True):
            result[chunk.start : chunk.stop] = piece[: len(chunk)]
    return _in_place_of(linear.outs, results)


def _one_by_one(linear: LinearMap, basis: _Basis) -> list[Value | None]:
    """Run one program, the pullback of a single cotangent, once per row."""
    outs = [out for out in linear.outs if out is not None]
    nodes, shared = extract(outs, [linear.seed], stop=lambda value: linear.mark not in value.marks)
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


def _finished(
    part: Value | None, shape: Shape, start: Value, request: Request, place: Callable[[], str]
) -> Array | None:
    """Return a part of the result in its shape, or what stands for one without a path."""
    if part is not None:
        return Array(flipped(OPERATORS["reshape"](part, shape)))
    wanted = str(request.unconnected_gradients)
    if wanted == "none":
        return None
    if wanted == "zero":
        return Array(broadcast_to(literal(0, start.dtype), shape))
    raise UnconnectedError(
        f"no differentiable path leads from sources{place()} to the target of {request.caller}",
        where=here.site,
        why="the source was not watched before it was used, was not used, or the way leads through something without a derivative "
        "(an integer, x.numpy(), stop_gradient)",
        remedy='watch it first and stay with arrays, or take zeros: unconnected_gradients="zero"',
    )


def _one_target(target: Any, caller: str) -> Value:
    if isinstance(target, list | tuple | dict):
        raise ArgumentError(
            f"{caller} takes one target, got a {type(target).__name__} of {len(target)}",
            where=here.site,
            why="each target has a Jacobian of its own",
            remedy="call it once for each target on a persistent tape, or put them into one array: np.concatenate",
        )
    return _followed(target, "target", caller)


def _followed(leaf: Any, role: str, caller: str) -> Value:
    if isinstance(leaf, Handle):
        value = leaf.value
        assert not isinstance(value, Literal)
        return value
    if isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        raise ArgumentError(
            f"{caller} got a plain {type(leaf).__name__} as a {role}",
            where=user_site(),
            why="a tape follows Arrays; an ndarray or number does not know where it came from",
            remedy="use what watch returns: x = tape.watch(x)",
        )
    raise DtypeError(
        f"{caller} got a {type(leaf).__name__} as a {role}",
        where=user_site(),
        remedy="pass an Array" if role == "target" else "pass Arrays, or nests of them",
    )
