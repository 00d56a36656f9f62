"""What may stand in the brackets of ``x[...]``, brought to integers, slices, new axes and index arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP, Shape
from gradtape.kinds.arguments import as_int, concrete
from gradtape.kinds.operands import as_value


@dataclass(frozen=True)
class Hits:
    """Where a mask holds along one of its axes, and the extent of that axis."""

    positions: NDArray
    extent: int


PLAIN = frozenset({int, type(None), type(Ellipsis)})


def plain_code(key: Any) -> tuple[Any, ...] | None:
    """Return a key made of integers, slices of integers, new axes and ellipses as something to be looked up; else None."""
    code = []
    for item in key if type(key) is tuple else (key,):
        if type(item) is slice:
            item = (item.start, item.stop, item.step)
            if not PLAIN.issuperset(map(type, item)):
                return None
        elif type(item) not in PLAIN:
            return None
        code.append(item)
    return tuple(code)


def normal_items(shape: Shape, key: Any) -> list[Any]:
    """Return one item for each axis, and None for each new one; masks become integer arrays.

    An ellipsis stays in front of the slices that it stands for: it parts index arrays even where it stands for none.

    Raises
    ------
    IndexError
        Where there are more indices than axes, or two ellipses.
    """
    items = _without_masks(key if isinstance(key, tuple) else (key,))
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed"
        )
    fill = [slice(None)] * (len(shape) - used)
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not places:
        return [*items, *fill]
    return [*items[: places[0] + 1], *fill, *items[places[0] + 1 :]]


def _without_masks(items: Sequence[Any]) -> list[Any]:
    """Replace boolean arrays by the integer arrays that NumPy's nonzero makes of them."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, list | tuple | range) and not any(isinstance(element, Value) for element in item):
            array = np.asarray(item)
            item = array.astype(INTP) if array.size == 0 else array
        elif isinstance(item, tuple):  # within a key, NumPy takes it for a list
            item = list(item)
        if isinstance(item, Value) and item.dtype.kind == "b":
            item = concrete(item, "a mask")
        if isinstance(item, bool | np.bool_) or (
            isinstance(item, np.ndarray) and item.dtype == bool and item.ndim == 0
        ):
            raise UnsupportedFunctionError(
                "x[True] and x[False] beside other indices are not supported here",
                where=here.site,
                remedy="use x[None] or np.where",
            )
        if isinstance(item, np.ndarray) and item.dtype.kind == "b":
            found.extend(Hits(hits, extent) for hits, extent in zip(item.nonzero(), item.shape, strict=True))
        elif isinstance(item, np.ndarray) and item.ndim == 0:
            found.append(item.item())
        else:
            found.append(item)
    return found


def is_array_index(item: Any) -> bool:
    """Return whether an item makes the index an advanced one."""
    return isinstance(item, Value | np.ndarray | list | Hits)


def slice_bounds(item: slice, extent: int) -> tuple[int, int, int]:
    """Return start, number of elements and step of a slice; its bounds may be traced where their numbers
    are known."""
    bounds = [
        as_int(bound, "a slice's bound") if isinstance(bound, Value) else bound
        for bound in (item.start, item.stop, item.step)
    ]
    start, stop, step = slice(*bounds).indices(extent)
    count = len(range(start, stop, step))
    return (start if count else 0), count, step


TABLE_HINT: Final = (
    " (a column by its name: pass the DataFrame itself, or dict(df.items()), and not its values)"
)


def wrapped(item: Any, extent: int, axis: int) -> int:
    """Return an integer as a position from the front.

    Raises
    ------
    IndexError
        Where it is not an integer, or out of bounds.
    """
    try:
        index = item.__index__()
    except AttributeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
            "boolean arrays are "
            f"valid indices; got a {type(item).__name__}{TABLE_HINT if isinstance(item, str) else ''}"
        ) from None
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")
    return int(index) % extent


def index_array(item: Any, extent: int, axis: int) -> Value:
    """Return what stands for an axis next to index arrays as an integer array.

    Raises
    ------
    IndexError
        For a mask of another extent, an array of floats, and a plain integer out of bounds.
    """
    if isinstance(item, Hits):
        if item.extent not in (extent, 0):
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is "
                f"{extent} but size of"
                f" corresponding boolean axis is {item.extent}"
            )
        return as_value(item.positions)
    if not is_array_index(item):
        # Next to an index array, NumPy treats a plain integer as an array of rank 0.
        return as_value(np.asarray(wrapped(item, extent, axis), INTP))
    index = as_value(item)
    if index.dtype.kind not in "iu":
        raise IndexError(
            f"arrays used as indices must be of integer (or boolean) type; axis {axis} got {index.dtype}: "
            "x[i.astype(int)]"
        )
    return index


def check_bounds(index: Value, extent: int, axis: int) -> None:
    """Raise IndexError where a known index is out of bounds."""
    if index.data is not None and index.data.size:
        low, high = int(index.data.min()), int(index.data.max())
        if low < -extent or high >= extent:
            wrong = low if low < -extent else high
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {extent}")
