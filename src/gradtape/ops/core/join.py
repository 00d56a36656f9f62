"""The row that lays arrays end to end, and the two ways to ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import DtypeError, ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.arguments import one_axis, promoted
from gradtape.kinds.join import Join
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import register
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.shape import reshape

join_row = register(Join("join"))


def join(pieces: Sequence[Value], axis: int) -> Value:
    """Return arrays of one dtype laid end to end along an axis."""
    if len(pieces) == 1:
        return pieces[0]
    alike = [pieces[0].shape[:axis], pieces[0].shape[axis + 1 :]]
    for place, piece in enumerate(pieces):
        if [piece.shape[:axis], piece.shape[axis + 1 :]] != alike:
            raise ShapeError(
                "all the input array dimensions except for the concatenation axis must match "
                "exactly, but array 0 has shape "
                f"{pieces[0].shape} and array {place} has shape {piece.shape}",
                where=here.site,
                remedy=f"make them agree on every axis but axis {axis}",
            )
    kept = [piece for piece in pieces if piece.shape[axis]]
    return join_row(*kept, axis=axis) if len(kept) > 1 else (kept or pieces)[0]


def stack(*items: Any, axis: int = 0) -> Value:
    """Return values of one shape as the elements along a new axis."""
    arrays = promoted(*items)
    shape = arrays[0].shape
    for place, array in enumerate(arrays):
        if array.shape != shape:
            raise ShapeError(
                f"all input arrays must have the same shape, but item 0 has shape {shape} and item "
                f"{place} has shape {array.shape}",
                where=here.site,
                remedy="broadcast or reshape the items first",
            )
    place = one_axis(axis, len(shape) + 1)
    return join([reshape(array, (*shape[:place], 1, *shape[place:])) for array in arrays], place)


def cast_as_asked(pieces: list[Value], dtype: Any, casting: Any) -> list[Value]:
    """Return the pieces in a dtype that the user chose."""
    if dtype is None:
        return pieces
    wanted = np.dtype(dtype)
    for piece in pieces:
        if not np.can_cast(piece.dtype, wanted, casting):
            raise DtypeError(
                f"Cannot cast array data from {piece.dtype} to {wanted} according to the rule {casting!r}",
                where=here.site,
                remedy="pass casting='unsafe' or cast with .astype(...)",
            )
    return [convert(piece, wanted) for piece in pieces]


def full(shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any]) -> Value:
    """Return an array with the same number everywhere."""
    x = as_value(fill)
    number = (
        convert(x, dtype) if x.dtype.kind == "f" else convert_number(fill, dtype)
    )  # np.full cuts floats off
    if np.broadcast_shapes(number.shape, shape) != shape:
        raise ShapeError(
            f"could not broadcast input array from shape {number.shape} into shape {shape}",
            where=here.site,
            remedy="fill with a number or with an array that broadcasts to the shape",
        )
    return broadcast_to(number, shape)


PRIMITIVES["stack"] = stack
