"""Views: arrays that are a part of another array, and see and make its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.errors import InPlaceError
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.elementwise.complex_parts import from_parts, imag, real
from gradtape.ops.core.indexing import Advanced, Basic, getitem, put_row, slice_row_view
from gradtape.ops.core.shape import reshape
from gradtape.transforms.linear import pull_linear

NumpyView = Callable[[NDArray], NDArray]
"""Returns the view that NumPy makes of an array; it reads no element."""


@dataclass(frozen=True)
class BasicIndexView:
    """A basic index of the base."""

    index: Basic

    def read(self, base: Value) -> Value:
        return self.index.read(base)

    def write(self, base: Value, v: Value) -> Value:
        return self.index.write(base, v)

    def numpy_view(self, array: NDArray) -> NDArray:
        """Return NumPy's view of an array of the base's shape; see `gradtape.trace.array.layout`."""
        index = self.index
        return slice_row_view(array, index.starts, index.shape, index.strides).reshape(
            index.result, copy=False
        )


@dataclass(slots=True, eq=False)
class IntegerIndexView:
    """A basic index of the base with integers that are traced: a row of a matrix, whose number is not known."""

    index: Advanced

    def read(self, base: Value) -> Value:
        return self.index.read(base)

    def write(self, base: Value, v: Value) -> Value:
        return self.index.write(base, v)

    def numpy_view(self, array: NDArray) -> NDArray:
        """Return NumPy's view of an array; which row it is does not matter to its layout."""
        index = self.index
        seen = BasicIndexView(index.basic).numpy_view(array)
        first = [slice(0, 1) if axis in index.axes else slice(None) for axis in range(seen.ndim)]
        return seen[tuple(first)].reshape(index.result, copy=False)


@dataclass(slots=True, eq=False)
class PermutedView:
    """The base with its elements in another order or shape."""

    rearrange: Callable[[Value], Value]
    numpy_view: NumpyView

    def read(self, base: Value) -> Value:
        return self.rearrange(base)

    def write(self, base: Value, v: Value) -> Value:
        """A rearrangement is a permutation of the elements: its transpose is its inverse."""
        tag = TraceTag()
        start = Value(base.aval, tags=(tag,))
        pulled = pull_linear([(self.rearrange(start), Cotangent(v))], [start], tag).get(start)
        assert pulled is not None
        return pulled.value


@dataclass(frozen=True)
class SubsetView:
    """Some elements of the base, each of them once, such as a diagonal."""

    select: Callable[[Value], Value]
    numpy_view: NumpyView

    def read(self, base: Value) -> Value:
        return self.select(base)

    def write(self, base: Value, v: Value) -> Value:
        positions = self.numpy_view(np.arange(base.size, dtype=INTP).reshape(base.shape))
        flat = put_row(reshape(base, (base.size,)), reshape(v, (v.size,)), constant(positions.reshape(-1)))
        return reshape(flat, base.shape)


@dataclass(frozen=True)
class ReadOnlyView:
    """What NumPy shows of the base, and does not let anybody write to: a diagonal, an array that is broadcast."""

    show: Callable[[Value], Value]
    numpy_view: NumpyView

    def read(self, base: Value) -> Value:
        return self.show(base)

    def write(self, base: Value, v: Value) -> Value:
        raise self.refusal()

    def refusal(self) -> InPlaceError:
        """Return the error that a write raises."""
        return InPlaceError(
            "assignment destination is read-only",
            where=here.site,
            why="np.diagonal, np.diag, np.broadcast_to, np.meshgrid(copy=False) and np.imag of real numbers return read-only "
            "views, and an array that was read-only when a tape watched it stays read-only",
            remedy="write to a copy, such as np.diagonal(x).copy(), or to the array itself; np.fill_diagonal sets a diagonal",
        )


def _unchanged(array: Any) -> Any:
    return array


READ_ONLY: Final = ReadOnlyView(_unchanged, _unchanged)
"""The view of all of an array, to be read only."""


def check_writable(array: Any) -> None:
    """Raise the error of a write to an array that is a read-only view, or a view of one."""
    while getattr(array, "_base", None) is not None:
        if type(getattr(array, "_view", None)) is ReadOnlyView:
            raise array._view.refusal()
        array = array._base


@dataclass(frozen=True)
class UncertainView:
    """A reshaped array of which it is not known whether NumPy's is a view or a copy.

    It can be read until the base changes; a write makes it an array of its own, after which the base cannot be read (see `Handle.rebind`).
    """

    what: str

    def read(self, base: Value) -> Value:
        raise self.refusal()

    def write(self, base: Value, v: Value) -> Value:
        raise self.refusal()

    def numpy_view(self, array: NDArray) -> NDArray:
        raise self.refusal()

    def refusal(self) -> InPlaceError:
        """Return the error for reading one of two arrays after the other was written to."""
        return InPlaceError(
            f"an array is read after a write that may have changed it: {self.what}",
            where=here.site,
            why="whether NumPy returns a view or a copy depends on the order of the elements in memory, which is not known here",
            remedy="make clear which is meant: y = x.reshape(...).copy() for a copy, or x = x.copy() before the reshape for a view",
        )


@dataclass(slots=True, eq=False)
class StridedView:
    """Elements of the memory of the base by strides, of which some may be the same element: ``as_strided``."""

    positions: NDArray
    """The position of each element in the flattened base."""

    writeable: bool

    def read(self, base: Value) -> Value:
        return getitem(reshape(base, (base.size,)), self.positions)

    def write(self, base: Value, v: Value) -> Value:
        if not self.writeable:
            raise InPlaceError(
                "assignment destination is read-only", where=here.site, remedy="pass writeable=True"
            )
        places = constant(self.positions.reshape(-1))
        return reshape(put_row(reshape(base, (base.size,)), reshape(v, (v.size,)), places), base.shape)

    def numpy_view(self, array: NDArray) -> NDArray:
        """Return an array of the layout of a copy: views of views by strides are not views of the memory."""
        return np.empty(self.positions.shape, array.dtype)


class StaleBase:
    """Stands in the place of the base of an array that may have been changed by a write."""

    __slots__ = ("_current", "_view")

    def __init__(self, view: UncertainView) -> None:
        self._view = view
        self._current = None

    @property
    def value(self) -> Any:
        """Refuse: there is no telling."""
        raise self._view.refusal()

    def rebind(self, value: Value) -> None:
        """Refuse: the elements that a write to a part would leave unchanged are not known."""
        raise self._view.refusal()


@dataclass(frozen=True)
class RealView:
    """The real parts of the base's complex numbers."""

    def read(self, base: Value) -> Value:
        return real(base)

    def numpy_view(self, array: NDArray) -> NDArray:
        """Return NumPy's view of an array."""
        return array.real

    def write(self, base: Value, v: Value) -> Value:
        return from_parts(v, imag(base))


@dataclass(frozen=True)
class ImaginaryView:
    """The imaginary parts of the base's complex numbers."""

    def read(self, base: Value) -> Value:
        return imag(base)

    def numpy_view(self, array: NDArray) -> NDArray:
        """Return NumPy's view of an array."""
        return array.imag

    def write(self, base: Value, v: Value) -> Value:
        return from_parts(real(base), v)


View = (
    StridedView
    | BasicIndexView
    | IntegerIndexView
    | PermutedView
    | SubsetView
    | ReadOnlyView
    | UncertainView
    | RealView
    | ImaginaryView
)


def stays_contiguous(index: Basic, base: tuple[int, ...]) -> bool:
    """Return whether a basic index of a C-contiguous array is itself C-contiguous."""
    partial = False
    for extent, whole, stride in zip(index.shape, base, index.strides, strict=True):
        if partial and extent != whole:
            return False
        if extent > 1:
            if stride != 1:
                return False
            partial = True
    return True
