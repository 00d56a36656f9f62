"""The expression of NumPy for each op, with the brackets that it needs and the shape that it has before NumPy broadcasts it."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.expressions import ATOM as ATOM
from gradtape.ir.expressions import BIT_AND, BIT_OR, BIT_XOR, COMPARISON, COMPARISONS, INFIX, PRODUCT, UNARY
from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import Shape
from gradtape.kinds.contract import Contract
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise, SciPy
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import calls_locally
from gradtape.ops.core.correlation import correlate_row
from gradtape.ops.core.cumulative import cummax, cummin, cumprod, cumsum
from gradtape.ops.core.determinants import determinant
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.exponential import sech_squared
from gradtape.ops.core.elementwise.logic import invert, logical_not
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.fourier import complex_fourier, half_fourier
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.matrices import (
    cholesky,
    eigh,
    log_det,
    lu_solve,
    pseudoinverse,
    qr,
    svd,
    triangular_solve,
)
from gradtape.ops.core.reductions import (
    argmax,
    argmin,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from gradtape.ops.core.shape import expand_row, permute_row, reshape_row, slice_row, windows_row
from gradtape.ops.core.sorting import argsort, searchsorted
from gradtape.procedures.traversal import site_of
from gradtape.records import value_record
from gradtape.statements import walk
from gradtape.transforms.procedures.ops import ProcedureOp

POWER: Final = 12
"""How tightly ``**`` binds, among the levels of `gradtape.ir.expressions`."""


@value_record
class Piece:
    """The text of a value.

    Attributes
    ----------
    text : str
    level : int
        How tightly the outermost operator binds.
    shape : tuple of int
        Of what the text computes: NumPy broadcasts it to that of the value.
    node : Node or None
        What the text computes, where it may be written in another way inside a larger expression.
    """

    text: str
    level: int
    shape: Shape
    node: Node | None = None

    def within(self, level: int) -> str:
        """Return the text as an operand that binds at least as tightly as `level`."""
        return self.text if self.level >= level else f"({self.text})"

    def whole(self, shape: Shape) -> Piece:
        """Return the piece as an array of this shape."""
        if self.shape == shape:
            return self
        return Piece(f"np.broadcast_to({self.text}, {shape})", ATOM, shape)


PYTHON_TYPES: Final = {"float64": "float", "int64": "int", "bool": "bool", "complex128": "complex"}
"""The types of Python that NumPy takes for these dtypes."""


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as an argument of NumPy's functions."""
    return PYTHON_TYPES.get(dtype.name, f"np.{dtype.name}")


def number_text(value: Literal, *, plain: bool) -> str:
    """Return a number; one that stands beside a float in arithmetic may be `plain`, without its decimal point."""
    assert value.data is not None
    number = value.data.item()
    if isinstance(number, float):
        if np.isnan(number):
            return "np.nan"
        if np.isinf(number):
            return "np.inf" if number > 0 else "-np.inf"
        if plain and number.is_integer() and abs(number) < 1e15 and (number or not np.signbit(number)):
            return repr(int(number))
    text = repr(number)
    return text if value.aval.weak or value.dtype.name in PYTHON_TYPES else f"np.{value.dtype.name}({text})"


def literal_piece(value: Literal, *, plain: bool = False) -> Piece:
    """Return a number as an expression."""
    text = number_text(value, plain=plain)
    return Piece(text, UNARY if text.startswith("-") else ATOM, ())


Read = Callable[[Value], Piece]


def expression(node: Node, read: Read) -> Piece:
    """Return the expression of a node with one result.

    Parameters
    ----------
    node : Node
    read : callable
        Returns the piece of an operand.

    Raises
    ------
    LoweringError
        Where NumPy and SciPy have no expression for it.
    """
    op = node.op
    special = SPECIAL.get(op)
    if special is not None:
        return special(node, read)
    if isinstance(op, Elementwise):
        return _elementwise(op, node, read)
    if isinstance(op, Contract):
        return _contract(node, read)
    if isinstance(op, Join):
        pieces = ", ".join(read(value).whole(value.shape).text for value in node.inputs)
        axis = node.params["axis"]
        return Piece(f"np.concatenate([{pieces}]{f', axis={axis}' if axis else ''})", ATOM, node.out.shape)
    raise refusal(node)


def refusal(node: Node) -> LoweringError:
    """Return the error about an op that has no readable form."""
    if isinstance(node.op, ProcedureOp):
        procedure = node.params["procedure"].procedure
        sites = [site for part in walk(procedure.body) if (site := site_of(part)) is not None]
        return LoweringError(
            "gt.source has no NumPy code for loops that are compiled from their code",
            where=sites[0] if sites else node.site,
            why="it prints recorded operations, and the operations of such loops are not recorded",
            remedy='use gt.scan, gt.fori_loop or gt.while_loop; gt.config.loops = "trace" traces loops outside Numba functions',
        )
    if calls_locally(node):
        return LoweringError(
            "gt.source has no NumPy code for a function that is called through Python",
            where=node.site,
            why="the function belongs to this process",
            remedy="call it outside, and pass its result as an argument",
        )
    return LoweringError(
        f"gt.source has no NumPy code for {node.op.name}",
        where=node.site,
        why="it does not correspond to a public function of NumPy or SciPy",
        remedy="differentiate a function without this line, or look at gt.inspect.graph",
    )


def has_function(op: Op) -> bool:
    """Return whether an elementwise row is written as an operator or a public function."""
    return op in SPECIAL or (
        isinstance(op, Elementwise) and (op.name in COMPARISONS or bool(_function_name(op)))
    )


def _function_name(op: Elementwise) -> str:
    """Return the public name of the function that computes a row; empty if it has none."""
    function = op.function
    name = getattr(function, "__name__", "")
    if name and getattr(np, name, None) is function:
        return f"np.{name}"
    if isinstance(op.body, SciPy):
        return "" if "." in op.body.name or op.body.name.startswith("_") else f"scipy.special.{op.body.name}"
    if isinstance(function, np.ufunc):
        import scipy.special

        special_function = getattr(scipy.special, name, None)
        if getattr(special_function, "__wrapped__", special_function) is function:
            return f"scipy.special.{name}"
    return ""


def _operands(node: Node, read: Read) -> tuple[list[Piece], Shape]:
    """Return the operands of an elementwise node and the shape of its result before it is broadcast."""
    beside_float = node.inputs[-1].dtype.kind in "fc" and not all(isinstance(x, Literal) for x in node.inputs)
    pieces = [
        literal_piece(
            value, plain=beside_float and isinstance(node.op, Elementwise) and _is_arithmetic(node.op)
        )
        if isinstance(value, Literal)
        else read(value)
        for value in node.inputs
    ]
    return pieces, np.broadcast_shapes(*[piece.shape for piece in pieces])


def _is_arithmetic(op: Elementwise) -> bool:
    return op.name in INFIX or op.name in COMPARISONS or op is power


def _elementwise(op: Elementwise, node: Node, read: Read) -> Piece:
    pieces, shape = _operands(node, read)
    if node.params:
        raise refusal(node)
    if op.name in COMPARISONS:
        first, second = pieces
        sign = COMPARISONS[op.name]
        return Piece(f"{first.within(BIT_OR)} {sign} {second.within(BIT_OR)}", COMPARISON, shape)
    if (op.name in INFIX and node.out.dtype.kind != "b") or op.name.startswith("bitwise"):
        sign, level = INFIX[op.name]
        first, second = pieces
        return Piece(f"{first.within(level)} {sign} {second.within(level + 1)}", level, shape)
    name = _function_name(op)
    if not name:
        raise refusal(node)
    texts = [piece.text for piece in pieces]
    if isinstance(op.body, SciPy):
        return Piece(op.body.text(texts), ATOM, shape)
    return Piece(f"{name}({', '.join(texts)})", ATOM, shape)


def _is_number(value: Value, number: float) -> bool:
    """Return whether a value is a number, or repeats it."""
    if value.node is not None and value.node.op is expand_row:
        value = value.node.inputs[0]
    return isinstance(value, Literal) and number_of(value) == number


def _add(node: Node, read: Read) -> Piece:
    x, y = node.inputs
    for value, other in ((x, y), (y, x)):
        if _is_number(value, 0) and node.out.dtype.kind != "b":
            return read(other)
    if node.out.dtype.kind == "b":
        return Piece(f"{read(x).within(BIT_OR)} | {read(y).within(BIT_XOR)}", BIT_OR, _shape(node, read))
    (first, second), shape = _operands(node, read)
    if second.text.startswith("-") and second.level in (UNARY, PRODUCT):
        return Piece(f"{first.within(_SUM)} - {second.text[1:]}", _SUM, shape)
    if first.text.startswith("-") and first.level in (UNARY, PRODUCT):
        return Piece(f"{second.within(_SUM)} - {first.text[1:]}", _SUM, shape)
    return Piece(f"{first.within(_SUM)} + {second.within(PRODUCT)}", _SUM, shape)


def _subtract(node: Node, read: Read) -> Piece:
    if _is_number(node.inputs[1], 0):
        return read(node.inputs[0])
    (first, second), shape = _operands(node, read)
    if second.text.startswith("-") and second.level in (UNARY, PRODUCT):
        return Piece(f"{first.within(_SUM)} + {second.text[1:]}", _SUM, shape)
    return Piece(f"{first.within(_SUM)} - {second.within(PRODUCT)}", _SUM, shape)


_SUM: Final = INFIX["add"][1]


def _multiply(node: Node, read: Read) -> Piece:
    x, y = node.inputs
    if node.out.dtype.kind == "b":
        return Piece(
            f"{read(x).within(BIT_AND)} & {read(y).within(BIT_AND + 1)}", BIT_AND, _shape(node, read)
        )
    for value, other in ((x, y), (y, x)):
        if _is_number(value, 1):
            return read(other)
    (first, second), shape = _operands(node, read)
    for value, piece in ((x, second), (y, first)):
        if _is_number(value, -1):
            return _minus(piece)
    if second.text.startswith("-") and second.level in (UNARY, PRODUCT):
        if first.text.startswith("-") and first.level in (UNARY, PRODUCT):
            return Piece(f"{first.text[1:]} * {_after(second.text[1:], second.level)}", PRODUCT, shape)
        return Piece(f"-{first.within(PRODUCT)} * {_after(second.text[1:], second.level)}", PRODUCT, shape)
    return Piece(f"{first.within(PRODUCT)} * {second.within(UNARY)}", PRODUCT, shape)


def _after(text: str, level: int) -> str:
    """Return a factor that follows another."""
    return f"({text})" if level == PRODUCT else text


def _minus(piece: Piece) -> Piece:
    """Return the negative of a piece."""
    if piece.text.startswith("-") and piece.level in (UNARY, PRODUCT):
        return Piece(
            piece.text[1:],
            ATOM if piece.level == UNARY and piece.text[1:].isidentifier() else PRODUCT,
            piece.shape,
        )
    level = PRODUCT if piece.level == PRODUCT else UNARY
    return Piece(f"-{piece.within(PRODUCT)}", level, piece.shape)


def _divide(node: Node, read: Read) -> Piece:
    if _is_number(node.inputs[1], 1) and node.inputs[0].dtype == node.out.dtype:
        return read(node.inputs[0])
    (first, second), shape = _operands(node, read)
    return Piece(f"{first.within(PRODUCT)} / {second.within(UNARY)}", PRODUCT, shape)


def _power(node: Node, read: Read) -> Piece:
    x, exponent = node.inputs
    if _is_number(exponent, 1):
        return read(x)
    (base, top), shape = _operands(node, read)
    return Piece(f"{base.within(ATOM)}**{top.within(UNARY)}", POWER, shape)


def _where(node: Node, read: Read) -> Piece:
    condition, x, y = node.inputs
    for chosen, other in ((True, x), (False, y)):
        if _is_number(condition, chosen):
            return read(other)
    pieces, shape = _operands(node, read)
    return Piece(f"np.where({', '.join(piece.text for piece in pieces)})", ATOM, shape)


def _sech_squared(node: Node, read: Read) -> Piece:
    piece = read(node.inputs[0])
    return Piece(f"1 / np.cosh({piece.text})**2", PRODUCT, piece.shape)


def _not(node: Node, read: Read) -> Piece:
    piece = read(node.inputs[0])
    if node.inputs[0].dtype.kind != "b" and node.op is logical_not:
        return Piece(f"np.logical_not({piece.text})", ATOM, piece.shape)
    return Piece(f"~{piece.within(UNARY)}", UNARY, piece.shape)


def _convert(node: Node, read: Read) -> Piece:
    (x,) = node.inputs
    piece, dtype = read(x), node.params["dtype"]
    if x.dtype == dtype:
        return piece
    text = piece.text
    if x.dtype.kind == "c" and dtype.kind in "iuf":
        text = f"np.real({text})"
    name = dtype_text(dtype)
    return Piece(
        f"np.asarray({text}, {name})" if x.dtype.kind != "c" else f"np.asarray({text}).astype({name})",
        ATOM,
        piece.shape,
    )


def _shape(node: Node, read: Read) -> Shape:
    return np.broadcast_shapes(*[read(value).shape for value in node.inputs])


# Moved elements


def _expand(node: Node, read: Read) -> Piece:
    (x,), shape, axes = node.inputs, node.params["shape"], node.params["axes"]
    piece = read(x)
    if piece.shape == ():
        return piece
    piece = piece.whole(x.shape)
    if list(axes) != sorted(axes):
        order = tuple(int(k) for k in np.argsort(axes))
        piece = Piece(f"np.transpose({piece.text}, {order})", ATOM, tuple(x.shape[k] for k in order))
        axes = tuple(sorted(axes))
    lead = axes[0]
    index_texts = [":" if axis in axes else "None" for axis in range(lead, len(shape))]
    kept_shape = tuple(shape[axis] if axis in axes else 1 for axis in range(lead, len(shape)))
    if "None" not in index_texts:
        return Piece(piece.text, piece.level, kept_shape)
    return Piece(f"{piece.within(ATOM)}[{', '.join(index_texts)}]", ATOM, kept_shape)


def _permute(node: Node, read: Read) -> Piece:
    (x,), axes = node.inputs, node.params["axes"]
    piece = read(x).whole(x.shape)
    if axes == tuple(reversed(range(x.ndim))):
        text = (
            piece.text[:-2]
            if piece.text.endswith(".T") and piece.level == ATOM
            else f"{piece.within(ATOM)}.T"
        )
        return Piece(text, ATOM, node.out.shape)
    return Piece(f"np.transpose({piece.text}, {axes})", ATOM, node.out.shape)


def index_text(
    starts: Shape, extents: Shape, strides: Shape, shape: Shape, dropped: Sequence[int] = ()
) -> str:
    """Return what stands in the brackets that select ``start + k * stride`` of each axis of an array of this shape."""
    items = []
    for axis, (start, extent, stride, size) in enumerate(zip(starts, extents, strides, shape, strict=True)):
        if axis in dropped:
            items.append(str(start - size if start == size - 1 and size > 1 else start))
            continue
        stop = start + (extent - 1) * stride + (1 if stride > 0 else -1)
        if not extent:
            items.append("0:0")
        elif stride > 0:
            first = "" if start == 0 else str(start)
            last = "" if stop >= size or start + extent * stride >= size else str(stop)
            items.append(f"{first}:{last}" + (f":{stride}" if stride != 1 else ""))
        else:
            first = "" if start == size - 1 else str(start)
            last = "" if stop < 0 else str(stop)
            items.append(f"{first}:{last}:{stride}")
    while len(items) > 1 and items[-1] == ":":
        items.pop()
    return ", ".join(items)


def _slice(node: Node, read: Read) -> Piece:
    (x,), params = node.inputs, node.params
    piece = read(x).whole(x.shape)
    text = index_text(params["starts"], params["shape"], params["strides"], x.shape)
    return Piece(f"{piece.within(ATOM)}[{text}]", ATOM, node.out.shape, node)


def _reshape(node: Node, read: Read) -> Piece:
    (x,), shape = node.inputs, node.params["shape"]
    piece = read(x)
    if piece.shape == () or (len(shape) > x.ndim and shape == (1,) * (len(shape) - x.ndim) + x.shape):
        return piece  # NumPy broadcasts it
    if piece.shape == shape:
        return piece
    inner = piece.node
    if inner is not None and inner.op is reshape_row:  # two of them are one
        x, piece = inner.inputs[0], read(inner.inputs[0])
        inner = piece.node
        if piece.shape == shape:
            return piece
    if inner is not None and inner.op is slice_row:
        dropped = _dropped_axes(x.shape, shape)
        if dropped is not None:
            (source,), params = inner.inputs, inner.params
            text = index_text(params["starts"], params["shape"], params["strides"], source.shape, dropped)
            return Piece(f"{read(source).whole(source.shape).within(ATOM)}[{text}]", ATOM, shape, node)
    piece = piece.whole(x.shape)
    if len(shape) > x.ndim and (added := _dropped_axes(shape, x.shape)) is not None:
        index_texts = ["None" if axis in added else ":" for axis in range(len(shape))]
        while index_texts and index_texts[-1] == ":":
            index_texts.pop()
        return Piece(
            f"np.reshape({piece.text}, {shape})"
            if x.ndim == 0
            else f"{piece.within(ATOM)}[{', '.join(index_texts)}]",
            ATOM,
            shape,
            node,
        )
    return Piece(f"np.reshape({piece.text}, {shape})", ATOM, shape, node)


def _dropped_axes(before: Shape, after: Shape) -> list[int] | None:
    """Return the axes of extent 1 without which a shape is another; None if there are none such."""
    dropped, remaining = [], list(after)
    for axis, extent in enumerate(before):
        if remaining and remaining[0] == extent and (extent != 1 or len(before) - axis <= len(remaining)):
            remaining.pop(0)
        elif extent == 1:
            dropped.append(axis)
        else:
            return None
    return None if remaining else dropped


def _gather(node: Node, read: Read) -> Piece:
    x, *indices = node.inputs
    texts = ", ".join(read(index).whole(index.shape).text for index in indices)
    return Piece(f"{read(x).whole(x.shape).within(ATOM)}[{texts}]", ATOM, node.out.shape)


def _windows(node: Node, read: Read) -> Piece:
    (x,), params = node.inputs, node.params
    if len(params["extents"]) != 1 or x.ndim != 1:
        raise refusal(node)
    (count,), (step,), (size,), (start,) = (params[key] for key in ("extents", "steps", "shape", "starts"))
    piece = read(x).whole(x.shape)
    views = f"np.lib.stride_tricks.sliding_window_view({piece.text}, {size})"
    return Piece(f"{views}[{start}:{start + (count - 1) * step + 1}:{step}]", ATOM, node.out.shape)


# Products and reductions


def _contract(node: Node, read: Read) -> Piece:
    (a, b), (x, y, out) = node.inputs, (node.params[key] for key in ("x", "y", "out"))
    if not x or not y:
        scalar, array, order = (a, b, y) if not x else (b, a, x)
        factor, piece = read(scalar), read(array).whole(array.shape)
        if order != out:
            piece = Piece(
                f"np.transpose({piece.text}, {tuple(order.index(s) for s in out)})", ATOM, node.out.shape
            )
        if _is_number(scalar, 1):
            return piece
        return Piece(f"{factor.within(PRODUCT)} * {piece.within(UNARY)}", PRODUCT, node.out.shape)
    first, second = read(a).whole(a.shape), read(b).whole(b.shape)
    simple = _matmul(first, second, x, y, out)
    if simple is not None:
        return Piece(simple, PRODUCT if "@" in simple else ATOM, node.out.shape)
    letters = string.ascii_lowercase[8:] + string.ascii_lowercase[:8]
    spelled = [
        "".join(letters[sorted({*x, *y}).index(subscript)] for subscript in subscripts)
        for subscripts in (x, y, out)
    ]
    text = f'np.einsum("{spelled[0]},{spelled[1]}->{spelled[2]}", {first.text}, {second.text})'
    return Piece(text, ATOM, node.out.shape)


def _matmul(first: Piece, second: Piece, x: Any, y: Any, out: Any) -> str | None:
    """Return a contraction as a product of vectors and matrices; None if it is no such product."""
    summed = [s for s in x if s in y and s not in out]
    if len(x) == len(y) == 1 and not summed and x != y:
        return (
            f"np.outer({first.text}, {second.text})"
            if out == (*x, *y)
            else f"np.outer({second.text}, {first.text})"
        )
    if len(summed) != 1 or len(x) > 2 or len(y) > 2 or any(s in x and s in y for s in out):
        return None
    (s,) = summed
    if len(x) == len(y) == 2 and out[0] in y:
        first, second, x, y = second, first, y, x
    left = first.within(PRODUCT) if len(x) == 1 or x[1] == s else f"{first.within(ATOM)}.T"
    right = second.within(UNARY) if len(y) == 1 or y[0] == s else f"{second.within(ATOM)}.T"
    return f"{left} @ {right}"


REDUCTIONS: Final[dict[Op, str]] = {
    reduce_sum: "np.sum",
    reduce_prod: "np.prod",
    reduce_max: "np.max",
    reduce_min: "np.min",
    reduce_any: "np.any",
    reduce_all: "np.all",
    argmax: "np.argmax",
    argmin: "np.argmin",
}


def _reduce(node: Node, read: Read) -> Piece:
    (x,), axes = node.inputs, node.params["axes"]
    assert isinstance(node.op, Reduction)
    piece = read(x).whole(x.shape)
    axis_text = ""
    if len(axes) < x.ndim or (node.op.positional and x.ndim > 1):
        axis_text = f", axis={axes[0] if len(axes) == 1 else axes}"
    return Piece(f"{REDUCTIONS[node.op]}({piece.text}{axis_text})", ATOM, node.out.shape)


CUMULATIVE: Final[dict[Op, str]] = {
    cumsum: "np.cumsum",
    cumprod: "np.cumprod",
    cummax: "np.maximum.accumulate",
    cummin: "np.minimum.accumulate",
}


def _cumulative(node: Node, read: Read) -> Piece:
    (x,), axis = node.inputs, node.params["axis"]
    assert isinstance(node.op, Cumulative)
    piece = read(x).whole(x.shape)
    axis_text = f", axis={axis}" if x.ndim > 1 else ""
    name = CUMULATIVE[node.op]
    if not node.params["reverse"]:
        return Piece(f"{name}({piece.text}{axis_text})", ATOM, x.shape)
    flip = ", ".join([":"] * axis + ["::-1"])
    return Piece(f"{name}({piece.within(ATOM)}[{flip}]{axis_text})[{flip}]", ATOM, x.shape)


def _argsort(node: Node, read: Read) -> Piece:
    (x,) = node.inputs
    return Piece(f'np.argsort({read(x).whole(x.shape).text}, kind="stable")', ATOM, x.shape)


def _searchsorted(node: Node, read: Read) -> Piece:
    a, v = (read(value).whole(value.shape).text for value in node.inputs)
    side = "" if node.params["side"] == "left" else ', side="right"'
    return Piece(f"np.searchsorted({a}, {v}{side})", ATOM, node.out.shape)


# Matrices


def _lu_solve(node: Node, read: Read) -> Piece:
    a, _, _, b = node.inputs
    matrix, right = read(a).whole(a.shape), read(b).whole(b.shape)
    if node.params["transposed"]:
        matrix = _transposed(matrix, a.ndim)
    return Piece(f"np.linalg.solve({matrix.text}, {right.text})", ATOM, node.out.shape)


def _transposed(matrix: Piece, ndim: int) -> Piece:
    text = matrix.text
    if ndim == 2:
        text = text[:-2] if text.endswith(".T") and matrix.level == ATOM else f"{matrix.within(ATOM)}.T"
    else:
        text = f"np.swapaxes({text}, -1, -2)"
    return Piece(text, ATOM, matrix.shape[:-2] + matrix.shape[:-3:-1])


def _triangular_solve(node: Node, read: Read) -> Piece:
    a, b = node.inputs
    params = node.params
    if a.ndim != 2:
        if params["unit"]:
            raise refusal(node)
        matrix = Piece(
            f"np.{'tril' if params['lower'] else 'triu'}({read(a).whole(a.shape).text})", ATOM, a.shape
        )
        matrix = _transposed(matrix, a.ndim) if params["transposed"] else matrix
        return Piece(f"np.linalg.solve({matrix.text}, {read(b).whole(b.shape).text})", ATOM, node.out.shape)
    options = "".join(
        [
            ", lower=True" if params["lower"] else "",
            ', trans="T"' if params["transposed"] else "",
            ", unit_diagonal=True" if params["unit"] else "",
        ]
    )
    text = f"scipy.linalg.solve_triangular({read(a).whole(a.shape).text}, {read(b).whole(b.shape).text}{options})"
    return Piece(text, ATOM, node.out.shape)


def _of_matrix(pattern: str) -> Callable[[Node, Read], Piece]:
    def text(node: Node, read: Read) -> Piece:
        x = node.inputs[0]
        return Piece(pattern.format(read(x).whole(x.shape).text), ATOM, node.out.shape)

    return text


def _correlate(node: Node, read: Read) -> Piece:
    x, w = node.inputs
    if x.ndim != 1 or w.size > x.size:
        raise refusal(node)
    text = f'np.correlate({read(x).whole(x.shape).text}, {read(w).whole(w.shape).text}, "valid")'
    return Piece(text, ATOM, node.out.shape)


def _fft(node: Node, read: Read) -> Piece:
    (x,) = node.inputs
    text = read(x).whole(x.shape).text
    forward = node.params["sign"] < 0
    return Piece(
        f"np.fft.fft({text})" if forward else f'np.fft.ifft({text}, norm="forward")', ATOM, node.out.shape
    )


SPECIAL: Final[dict[Op, Callable[[Node, Read], Piece]]] = {
    add: _add,
    subtract: _subtract,
    multiply: _multiply,
    divide: _divide,
    negative: lambda node, read: _minus(read(node.inputs[0])),
    power: _power,
    sech_squared: _sech_squared,
    where: _where,
    logical_not: _not,
    invert: _not,
    convert_row: _convert,
    expand_row: _expand,
    permute_row: _permute,
    slice_row: _slice,
    reshape_row: _reshape,
    gather_row: _gather,
    windows_row: _windows,
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(CUMULATIVE, _cumulative),
    argsort: _argsort,
    searchsorted: _searchsorted,
    lu_solve: _lu_solve,
    triangular_solve: _triangular_solve,
    cholesky: _of_matrix("np.linalg.cholesky({})"),
    pseudoinverse: lambda node, read: read(node.inputs[1]),
    determinant: _of_matrix("np.linalg.det({})"),
    log_det: _of_matrix("np.linalg.slogdet({}).logabsdet"),
    correlate_row: _correlate,
    complex_fourier: _fft,
    half_fourier: _of_matrix("np.fft.rfft({})"),
}
"""The ops whose text is not the call of their function of NumPy."""

SEVERAL: Final[dict[Op, Callable[[Node, Read], str]]] = {
    eigh: lambda node, read: (
        f"np.linalg.eigh({read(node.inputs[0]).text}{'' if node.params['lower'] else ', UPLO=' + repr('U')})"
    ),
    qr: lambda node, read: f"np.linalg.qr({read(node.inputs[0]).text})",
    svd: lambda node, read: f"np.linalg.svd({read(node.inputs[0]).text}, full_matrices=False)",
}
"""The ops with several results."""

ADJOINT: Final = {(svd, 2)}
"""The results, by their number, that NumPy's function returns with rows and columns exchanged."""
