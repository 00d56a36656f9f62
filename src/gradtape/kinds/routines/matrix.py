"""The matrix kind: routines of linear algebra on the last two axes, for each matrix of a stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.builder import emit_all
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, Shape, aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register
from gradtape.kinds.routines.derivatives import Push, RoutineDerivatives
from gradtape.records import value_record

Places = dict[str, str]


def _no_places(dtype: np.dtype[Any]) -> Places:
    return {}


@value_record
class Routine:
    """How kernels compute a row: an LLVM function around routines of LAPACK, in ``lower/llvm/routines/<name of the row>.ll``.

    Attributes
    ----------
    work : float
        Its multiplications, as a part of the cube of its size, or of the square of it times the columns to solve for.
    spare : callable
        Returns how many elements it needs besides its operands and its result, for m by n matrices.
    extents : int
        How many extents it gets: 2 for matrices that need not be square, and where there are columns to solve for.
    is_rectangular : bool
        Whether matrices need not be square.
    uses : tuple of str
        Files of routines that it calls.
    places : callable
        Returns what its file has places for, given the dtype and the parameters; under ``file`` its file if that is not its name.
    """

    work: float
    spare: Callable[[int, int], int] = lambda m, n: 1
    extents: int = 1
    is_rectangular: bool = False
    uses: tuple[str, ...] = ()
    places: Callable[..., Places] = _no_places

    def multiplications(self, numbers: Sequence[object]) -> int:
        """Return about how many multiplications a call takes with these numbers, the extents first."""
        n, *others = [number for number in numbers if type(number) is int]
        return int(n * n * next(iter(others), n) * self.work)


class Matrix(RoutineDerivatives):
    """A row of the matrix kind. All operands have the same axes in front of those of one matrix.

    Parameters
    ----------
    name : str
        The op's name, and that of the routine.
    shapes : callable
        ``(*shapes, **params) -> shapes`` of the results.
    dtypes : callable, optional
        ``(dtype) -> dtypes`` of the results; by default they all have the dtype of the first operand.
    evaluate : callable
        ``(*arrays, **params) -> array``, or a tuple of arrays where there are several results, with NumPy or SciPy.
    routine : Routine
        How kernels compute it.
    tangent : callable or None
        ``(outs, inputs, params) -> (tangents -> tangents of the results)``, linear in the tangents (None is zero); a single tangent
        where there is one result. None for a factorisation whose derivative is that of what is computed with it.
    transpose : callable or None
        ``(ct, node) -> Value``: the cotangent of the input `linear_in`, for rows with one result.
    linear_in : int or None
        The input in which the row is linear.
    reads : tuple of int
        The inputs whose numbers the routine reads; the others only carry derivatives.
    kinks : str
        What the derivative is where it is a matter of choice.
    samples : sequence of tuples
        ``(*shapes of the inputs, params)``.
    """

    def __init__(
        self,
        name: str,
        *,
        shapes: Callable[..., tuple[Shape, ...]],
        dtypes: Callable[[np.dtype[Any]], tuple[np.dtype[Any], ...]] | None = None,
        evaluate: Callable[..., NDArray | tuple[NDArray, ...]],
        routine: Routine,
        tangent: Callable[..., Push] | None,
        transpose: Callable[[Value, Node], Value] | None = None,
        linear_in: int | None = None,
        reads: tuple[int, ...] = (0,),
        kinks: str = "",
        samples: Sequence[tuple[Any, ...]],
    ) -> None:
        super().__init__(name)
        self.shapes = shapes
        self.dtypes = dtypes
        self.numpy = evaluate
        self.routine = routine
        self.tangent = tangent
        self.transpose_rule = transpose
        self.linear_in = linear_in
        self.reads = reads
        self.kinks = kinks
        self.samples = samples

    def __call__(self, *inputs: Any, **params: Any) -> Value:
        """Return the result of a row that has one."""
        (result,) = self.results(*inputs, **params)
        return result

    def results(self, *inputs: Any, **params: Any) -> tuple[Value, ...]:
        """Return all results."""
        return emit_all(self, [as_value(x) for x in inputs], **params)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        shapes = self.shapes(*[type_.shape for type_ in avals], **params)
        own = avals[0].dtype
        dtypes = (own,) * len(shapes) if self.dtypes is None else self.dtypes(own)
        return tuple(map(aval, shapes, dtypes))

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        results = self.numpy(*arrays, **params)
        return tuple(results) if isinstance(results, tuple) else (results,)


def matrix_row(name: str, **facts: Any) -> Matrix:
    """Enter a row of the matrix kind; see `Matrix` for the facts."""
    return register(Matrix(name, **facts))
