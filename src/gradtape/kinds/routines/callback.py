"""The callback kind: routines of other libraries that are called through Python, one problem at a time, with derivatives of our own.

A row says what one problem is: `shapes` and `dtypes` of its results, and the function of NumPy or SciPy that solves it. All operands may
have further axes in front, the same ones, for a stack of problems. Kernels call back into Python, once for a whole stack.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gradtape.errors import LoweringError, NotDifferentiableError, ShapeError
from gradtape.ir.builder import emit_all, here
from gradtape.ir.graph import Literal, Node, Value, constant
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import Aval, Shape, aval, part_dtype
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import ROWS, register
from gradtape.kinds.routines.derivatives import Outs, Push, RoutineDerivatives
from gradtape.kinds.routines.matrix import Matrix


class Callback(RoutineDerivatives):
    """A row of the callback kind.

    Parameters
    ----------
    name : str
        The op's name.
    ranks : tuple of int, or callable
        The number of axes of each operand of one problem; axes in front of these count problems. A function gets the parameters.
    shapes : callable
        ``(*shapes, **params) -> shapes`` of the results of one problem.
    dtypes : callable, optional
        ``(*dtypes, **params) -> dtypes`` of the results; by default they all have the dtype of the first operand.
    evaluate : callable
        ``(*arrays, **params) -> array``, or a tuple of arrays where there are several results, for one problem. What it returns is cast.
        If it raises an error, so does the compiled program.
    tangent : callable or None
        ``(outs, inputs, params) -> (tangents -> tangents of the results)``, linear in the tangents (None is zero); a single tangent
        where there is one result. Operands and results may be stacks. None where there is no derivative.
    transpose : callable or None
        ``(ct, node) -> Value``: the cotangent of the input `linear_in`, for rows with one result.
    linear_in : int or None
        The input in which the row is linear.
    kinks : str
        What the derivative is where it is a matter of choice.
    samples : sequence of tuples
        ``(*shapes of the inputs, params)``, for tests.
    takes_stacks : bool
        Whether `evaluate` takes stacks of problems.
    prepare : callable, optional
        ``(*values) -> values``: the operands of a test from random ones, where not all will do.
    codes : str
        The dtypes of the tests, by NumPy's character codes.
    is_local : bool
        Whether its parameters mean something to this process only, as functions of the user's do.
    """

    def __init__(
        self,
        name: str,
        *,
        ranks: tuple[int, ...] | Callable[..., tuple[int, ...]],
        shapes: Callable[..., tuple[Shape, ...]],
        dtypes: Callable[..., tuple[np.dtype[Any], ...]] | None = None,
        evaluate: Callable[..., NDArray | tuple[NDArray, ...]],
        tangent: Callable[..., Push] | None,
        transpose: Callable[[Value, Node], Value] | None = None,
        linear_in: int | None = None,
        kinks: str = "",
        samples: Sequence[tuple[Any, ...]],
        takes_stacks: bool = False,
        prepare: Callable[..., Sequence[Any]] | None = None,
        codes: str = "fdFD",
        is_local: bool = False,
    ) -> None:
        super().__init__(name)
        self._ranks = ranks
        self.shapes = shapes
        self.dtypes = dtypes
        self.numpy = evaluate
        self.tangent = tangent
        self.transpose_rule = transpose
        self.linear_in = linear_in
        self.kinks = kinks
        self.samples = samples
        self.takes_stacks = takes_stacks
        self.prepare = prepare
        self.codes = codes
        self.is_local = is_local

    def __call__(self, *inputs: Any, **params: Any) -> Value:
        """Return the result of a row that has one."""
        (result,) = self.results(*inputs, **params)
        return result

    def results(self, *inputs: Any, **params: Any) -> tuple[Value, ...]:
        """Return all results."""
        return emit_all(self, [_stored(as_value(x)) for x in inputs], **params)

    def ranks(self, params: dict[str, Any]) -> tuple[int, ...]:
        """Return the number of axes of each operand of one problem."""
        return self._ranks(**params) if callable(self._ranks) else self._ranks

    def lead(self, shapes: Sequence[Shape], params: dict[str, Any]) -> Shape:
        """Return the axes that count problems, given the shapes of the operands."""
        ranks = self.ranks(params)
        leads = [shape[: len(shape) - rank] for shape, rank in zip(shapes, ranks, strict=True)]
        if len(set(leads)) > 1 or len(leads[0]) + ranks[0] != len(shapes[0]):
            raise ShapeError(
                f"{self.name} of operands of shapes {', '.join(map(str, shapes))}", where=here.site
            )
        return leads[0]

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        shapes = [type_.shape for type_ in avals]
        lead = self.lead(shapes, params)
        shapes_of_results = self.shapes(*[shape[len(lead) :] for shape in shapes], **params)
        operand_dtypes = [type_.dtype for type_ in avals]
        dtypes = (
            operand_dtypes[:1] * len(shapes_of_results)
            if self.dtypes is None
            else self.dtypes(*operand_dtypes, **params)
        )
        return tuple(
            [aval((*lead, *shape), dtype) for shape, dtype in zip(shapes_of_results, dtypes, strict=True)]
        )

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        types = self.infer([aval(array.shape, array.dtype) for array in arrays], params)
        return self.run(arrays, params, [(type_.shape, type_.dtype) for type_ in types])

    def run(
        self, arrays: Sequence[NDArray], params: dict[str, Any], types: Sequence[tuple[Shape, DTypeLike]]
    ) -> tuple[NDArray, ...]:
        """Evaluate, given the shapes and dtypes of the results."""
        rank = self.ranks(params)[0]
        if self.takes_stacks or arrays[0].ndim == rank:
            results = self._one(arrays, params)
            return tuple([np.asarray(x, dtype) for x, (_, dtype) in zip(results, types, strict=True)])
        outs = tuple([np.empty(shape, dtype) for shape, dtype in types])
        for index in np.ndindex(arrays[0].shape[: arrays[0].ndim - rank]):
            parts = self._one([array[index] for array in arrays], params)
            for out, part in zip(outs, parts, strict=True):
                out[index] = part
        return outs

    def _one(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        result = self.numpy(*arrays, **params)
        return result if isinstance(result, tuple) else (result,)


def _stored(x: Value) -> Value:
    """Return an array in memory: Python cannot be given a literal."""
    return constant(x.data) if isinstance(x, Literal) and x.data is not None else x


def callback_row(name: str, **facts: Any) -> Callback:
    """Enter a row of the callback kind; see `Callback` for the facts."""
    return register(Callback(name, **facts))


class PythonCall(Op):
    """The evaluation of a row by Python, as kernels do it: complex numbers are pairs of floats on a last axis, single ones are two values.

    Routines of the callback kind are computed like this, and each node for which kernels have no code. Its parameters are the name of the
    row, the row's parameters as pairs, which of the row's operands are complex arrays (1) or complex numbers (2), and the shapes and dtypes
    of the row's results.
    """

    def __call__(
        self,
        row: Op,
        inputs: Sequence[Value],
        packed: Sequence[int],
        params: dict[str, Any],
        outs: Outs,
    ) -> tuple[Value, ...]:
        types = tuple([(out.shape, out.dtype.char) for out in outs])
        options = tuple(sorted(params.items()))
        if ROWS.get(row.name) is not row or not _is_text(options):
            raise LoweringError(
                f"{row.name} has no kernel, and kernels cannot call it",
                where=here.site,
                why="they name a row and its parameters as text",
            )
        return emit_all(self, inputs, row=row.name, options=options, packed=tuple(packed), types=types)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        types: list[Aval] = []
        for shape, char in params["types"]:
            dtype = np.dtype(char)
            if dtype.kind != "c":
                types.append(aval(shape, dtype))
            elif shape:
                types.append(aval((*shape, 2), part_dtype(dtype)))
            else:
                types += [aval((), part_dtype(dtype))] * 2
        return tuple(types)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        parts = iter(arrays)
        inputs = [
            _paired(next(parts)) if form == 1 else _number(next(parts), next(parts)) if form else next(parts)
            for form in params["packed"]
        ]
        row, options = ROWS[params["row"]], dict(params["options"])
        made: Sequence[NDArray]
        if isinstance(row, Callback):
            made = row.run(
                inputs, options, params["types"]
            )  # infers no types, which takes longer than a short call
        else:
            with np.errstate(all="ignore"):  # as on the interpreter
                made = row.evaluate(inputs, options)
        results: list[NDArray] = []
        for result, (shape, char) in zip(made, params["types"], strict=True):
            array = np.asarray(result, char)
            if array.dtype.kind != "c":
                results.append(array)
            else:
                results += [_parted(array)] if shape else [array.real, array.imag]
        return tuple(results)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        raise _lowered(node)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        raise _lowered(node)


def _lowered(node: Node) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"internal error: {node.op.name} must not be differentiated after lowering", where=node.site
    )


python_call = PythonCall("python_call")


@lru_cache(maxsize=1024)
def _is_text(options: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether the parameters of a row can be read again from their text."""
    try:
        return bool(literal_eval(repr(options)) == options)
    except (ValueError, SyntaxError):
        return False


def _paired(parts: NDArray) -> NDArray:
    """Return complex numbers, given their parts on a last axis."""
    dtype = np.result_type(parts.dtype, np.complex64)
    return np.ascontiguousarray(parts).view(dtype).reshape(parts.shape[:-1])


def _number(real: NDArray, imaginary: NDArray) -> NDArray:
    """Return the complex number with these parts, which may be infinite."""
    number = np.empty((), np.result_type(real.dtype, np.complex64))
    number.real, number.imag = real, imaginary
    return number


def _parted(numbers: NDArray) -> NDArray:
    parts = np.ascontiguousarray(numbers).reshape((*numbers.shape, 1)).view(part_dtype(numbers.dtype))
    return parts.reshape((*numbers.shape, 2))


def calls_locally(node: Node) -> bool:
    """Return whether a node calls a function that this process only has."""
    op = ROWS.get(node.params["row"]) if isinstance(node.op, PythonCall) else node.op
    return isinstance(op, Callback) and op.is_local


def falls_back(row: Op) -> bool:
    """Return whether Python computes a row because kernels have no code for its operands: it does so with routines anyway."""
    return not isinstance(row, Callback | Matrix)


def multiplications(node: Node) -> int:
    """Return about how many multiplications a call is worth: most routines take the cube of the size, and the call itself a microsecond."""
    sizes = [prod(value.shape) for value in (*node.inputs, *node.outs)]
    return int(max(sizes, default=0) ** 1.5) + 10_000
