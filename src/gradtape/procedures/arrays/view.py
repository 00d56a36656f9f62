"""Array views and deferred elementwise expressions over procedures.

Examples
--------
A front end wraps the arrays of a procedure in views. Indexing, transposes and broadcasting make other views, without statements.
Arithmetic makes deferred expressions. Assigned to a view such an expression is one loop nest, and a reduction of it is one too.

>>> from gradtape.procedures.builder import ProcedureBuilder
>>> from gradtape.procedures.arrays.creation import zeros
>>> from gradtape.procedures.arrays.indexing import getitem, setitem
>>> from gradtape.procedures.arrays.reductions import sum_
>>> build = ProcedureBuilder("smooth")
>>> x = ArrayView.of_pointer(build, build.array("x", (10,)), (10,))
>>> y = zeros(build, (10,))
>>> ends = apply(build, np.add, getitem(x, slice(2, None)), getitem(x, slice(None, -2)))
>>> mean = apply(build, np.multiply, 0.5, ends)
>>> setitem(y, slice(1, -1), mean)
>>> total = sum_(apply(build, np.multiply, x, y))
>>> build.finish([total, y.pointer], [total.aval, y.aval]).result_types
(f64[], f64[10])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradtape.errors import ShapeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.ir.types import PYTHON_DTYPES, Aval, aval
from gradtape.kinds.operands import SEQUENCES, as_value, items_of
from gradtape.kinds.registry import FUNCTIONS, UFUNCS
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Dtype, Memory, Pointer

Shape: TypeAlias = tuple[Extent, ...]

Scalar: TypeAlias = Value | int | float | complex | bool | np.generic
"""A number, known or not."""


class Place(NamedTuple):
    """Where an axis of an array is read: at ``start + step * index[axis]``, or at `start` alone if `axis` is None."""

    start: Extent
    axis: int | None = None
    step: Extent = 1


class Loads:
    """The elements that were loaded for one iteration of a loop nest, so that each is loaded once."""

    def __init__(self) -> None:
        self.known: dict[Any, Value] = {}


class Expression:
    """An array whose elements can be computed one by one: a view, an elementwise expression, a formula of the indices.

    Attributes
    ----------
    build : ProcedureBuilder
        Where statements go.
    shape : tuple of int or Value
        The extents.
    dtype : numpy.dtype
        Of the elements.
    """

    build: ProcedureBuilder
    shape: Shape
    dtype: Dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Extent:
        return ix.product(self.shape)

    @property
    def aval(self) -> Aval:
        """The type; the shape has to be static."""
        shape = ix.static_shape(self.shape)
        if shape is None:
            raise UnsupportedFunctionError(
                "an array whose shape depends on data is used where a shape must be known",
                where=here.site,
                why="results of compiled functions and operands of linear algebra routines need a shape that is known before the code runs",
                remedy="write into an array of the largest size (np.zeros(n)), or return a number",
            )
        return aval(shape, self.dtype)

    def remapped(self, shape: Shape, places: Sequence[Place]) -> Any:
        """Return the array of another shape that reads axis k of this one at ``places[k]``."""
        raise NotImplementedError

    def element(self, indices: Sequence[Extent], loads: Loads) -> Value:
        """Return the element at indices that are in range."""
        raise NotImplementedError

    def views(self) -> Iterator[ArrayView | Formula]:
        """Yield what the elements are read from."""
        raise NotImplementedError

    def broadcast(self, shape: Shape) -> Any:
        """Return this array with more axes, or longer ones, by NumPy's rules.

        A dynamic extent that is neither 1 nor the asked one fails a `Check`.
        """
        if len(shape) == self.ndim and all(map(ix.same, shape, self.shape)):
            return self
        lead = len(shape) - self.ndim
        if lead < 0:
            raise ShapeError(
                f"an array of {self.ndim} axes does not broadcast to {len(shape)}", where=here.site
            )
        places = [_stretched(self.build, own, shape[lead + k], lead + k) for k, own in enumerate(self.shape)]
        return self.remapped(shape, places)


def _stretched(build: ProcedureBuilder, extent: Extent, target: Extent, axis: int) -> Place:
    if ix.same(extent, target):
        return Place(0, axis)
    if isinstance(extent, int) and extent == 1:
        return Place(0)
    if isinstance(extent, int) and isinstance(target, int):
        raise ShapeError(
            f"operands could not be broadcast together: extents {extent} and {target}", where=here.site
        )
    equal, single = ix.is_equal(extent, target), ix.is_equal(extent, 1)
    valid = as_value(equal) | as_value(single)
    build.check(valid, "ValueError", "operands could not be broadcast together")
    return Place(0, axis, ix.choose(equal, 1, 0))


class ArrayView(Expression):
    """Elements of a memory: those at ``offset + sum(strides[k] * index[k])`` from a pointer.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    pointer : Pointer
        What the offset counts from.
    offset : int or Value
        The position of the first element.
    shape, strides : tuple of int or Value
        Extents, and strides in elements.
    writable : bool
        Whether stores are allowed.
    """

    def __init__(
        self,
        build: ProcedureBuilder,
        pointer: Pointer,
        offset: Extent,
        shape: Shape,
        strides: Shape,
        writable: bool = True,
    ) -> None:
        self.build = build
        self.pointer = pointer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = pointer.dtype
        self.writable = writable

    @classmethod
    def of_pointer(
        cls, build: ProcedureBuilder, pointer: Pointer, shape: Shape, writable: bool = True
    ) -> ArrayView:
        """Return the contiguous array of a shape that begins at a pointer."""
        shape = tuple([ix.extent(extent) for extent in shape])
        return cls(build, pointer, 0, shape, ix.row_major(shape), writable)

    def __repr__(self) -> str:
        return f"<view of {self.pointer.name}: {self.dtype}{list(self.shape)}>"

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are known to stand one after the other in row-major order."""
        return all(
            ix.same(mine, theirs) or (isinstance(extent, int) and extent <= 1)
            for mine, theirs, extent in zip(self.strides, ix.row_major(self.shape), self.shape, strict=True)
        )

    def remapped(self, shape: Shape, places: Sequence[Place]) -> ArrayView:
        offset = self.offset
        strides: list[Extent] = [0] * len(shape)
        for place, stride in zip(places, self.strides, strict=True):
            offset = ix.add(offset, ix.multiply(place.start, stride))
            if place.axis is not None:
                strides[place.axis] = ix.add(strides[place.axis], ix.multiply(place.step, stride))
        return ArrayView(self.build, self.pointer, offset, shape, tuple(strides), self.writable)

    def position(self, indices: Sequence[Extent]) -> Extent:
        """Return how far the element at some indices is from the pointer."""
        offset = self.offset
        for index, stride in zip(indices, self.strides, strict=True):
            offset = ix.add(offset, ix.multiply(index, stride))
        return offset

    @property
    def key(self) -> Any:
        """What two views of the same elements share."""
        return id(self.pointer), ix.key(self.offset), tuple([ix.key(stride) for stride in self.strides])

    def element(self, indices: Sequence[Extent], loads: Loads) -> Value:
        position = self.position(indices)
        key = (id(self.pointer), ix.key(position))
        value = loads.known.get(key)
        if value is None:
            value = loads.known[key] = self.build.load(self.pointer, position)
        return value

    def views(self) -> Iterator[ArrayView | Formula]:
        yield self

    def store(self, indices: Sequence[Extent], value: Scalar) -> None:
        """Append the store of an element at indices that are in range."""
        self.build.store(self.pointer, self.position(indices), value)


class FlatIterator(ArrayView):
    """The elements of an array in a row, as NumPy's ``x.flat``: reading more than one of them copies, and writing writes to the array."""

    @classmethod
    def over(cls, row: ArrayView, writable: bool) -> FlatIterator:
        """Return the iterator over an array with one axis."""
        return cls(row.build, row.pointer, row.offset, row.shape, row.strides, writable)


class Formula(Expression):
    """An array whose elements a function computes from their indices.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    shape : tuple of int or Value
        The extents.
    dtype : numpy.dtype
        Of the elements.
    function : callable
        ``(indices, loads) -> Value``; it may append statements.
    reads : sequence of Memory
        The memories from which it loads.
    places : sequence of Place, optional
        Where the axes of the function are read; by default one after the other.
    """

    def __init__(
        self,
        build: ProcedureBuilder,
        shape: Shape,
        dtype: Dtype,
        function: Callable[[Sequence[Extent], Loads], Any],
        reads: Sequence[Memory] = (),
        places: Sequence[Place] | None = None,
    ) -> None:
        self.build = build
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.function = function
        self.reads = tuple(reads)
        self.places = tuple([Place(0, k) for k in range(len(shape))] if places is None else places)

    def remapped(self, shape: Shape, places: Sequence[Place]) -> Formula:
        composed = []
        for start, axis, step in self.places:
            if axis is None:
                composed.append(Place(start))
            else:
                outer = places[axis]
                composed.append(
                    Place(
                        ix.add(start, ix.multiply(step, outer.start)),
                        outer.axis,
                        ix.multiply(step, outer.step),
                    )
                )
        return Formula(self.build, shape, self.dtype, self.function, self.reads, composed)

    def element(self, indices: Sequence[Extent], loads: Loads) -> Value:
        own_indices = [
            start if axis is None else ix.add(start, ix.multiply(step, indices[axis]))
            for start, axis, step in self.places
        ]
        return as_value(self.function(own_indices, loads))

    def views(self) -> Iterator[ArrayView | Formula]:
        yield self


class Deferred(Expression):
    """An elementwise expression: a function of the elements of operands. Nothing is computed until elements are needed.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    function : callable
        A row, or a composite of rows.
    operands : sequence of Expression or Value
        Arrays of one shape, and numbers.
    shape : tuple of int or Value
        The shape of the result.
    dtype : numpy.dtype
        Of the result.

    Attributes
    ----------
    viewed : ArrayView or None
        The array of which NumPy's result is a view, as the real part of complex numbers is one. Stored, it is a copy here.
    """

    viewed: ArrayView | None = None

    def __init__(
        self,
        build: ProcedureBuilder,
        function: Callable[..., Any],
        operands: Sequence[Expression | Value],
        shape: Shape,
        dtype: Dtype,
    ) -> None:
        self.build = build
        self.function = function
        self.operands = tuple(operands)
        self.shape = shape
        self.dtype = dtype

    def remapped(self, shape: Shape, places: Sequence[Place]) -> Deferred:
        operands = [x.remapped(shape, places) if isinstance(x, Expression) else x for x in self.operands]
        return Deferred(self.build, self.function, operands, shape, self.dtype)

    def element(self, indices: Sequence[Extent], loads: Loads) -> Value:
        elements = [x.element(indices, loads) if isinstance(x, Expression) else x for x in self.operands]
        return as_value(self.function(*elements))

    def views(self) -> Iterator[ArrayView | Formula]:
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield from operand.views()


def common_shape(build: ProcedureBuilder, shapes: Sequence[Shape]) -> Shape:
    """Return the shape to which arrays are broadcast."""
    ndim = max(map(len, shapes), default=0)
    result: list[Extent] = []
    for axis in range(ndim):
        longest: Extent = 1
        for shape in shapes:
            own_axis = axis - ndim + len(shape)
            if own_axis >= 0:
                longest = _longer(longest, shape[own_axis])
        result.append(longest)
    return tuple(result)


def _longer(x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and x == 1:
        return y
    if (isinstance(y, int) and y == 1) or ix.same(x, y):
        return x
    if isinstance(x, int) and isinstance(y, int):
        raise ShapeError(
            f"operands could not be broadcast together: extents {x} and {y}",
            where=here.site,
            remedy="make the trailing axes equal in length, or of length 1 (x[:, None] adds an axis)",
        )
    if isinstance(x, int):
        return x
    return y if isinstance(y, int) else ix.choose(ix.is_equal(x, 1), y, x)


def as_operand(build: ProcedureBuilder, operand: Any) -> Expression | Value:
    """Return an array as an expression, and a number as a value."""
    if isinstance(operand, Expression | Value):
        return operand
    if type(operand) in PYTHON_DTYPES or isinstance(operand, np.generic):
        return as_value(operand)
    if isinstance(operand, np.ndarray) and operand.ndim == 0:
        return as_value(operand[()])
    if isinstance(operand, SEQUENCES):
        operand = items_of(operand)
    if isinstance(operand, np.ndarray | list | tuple):
        return of_numbers(build, operand)
    return as_value(operand)


def as_expression(build: ProcedureBuilder, x: Any) -> Expression:
    """Return an operand as an array; a number has no axes."""
    operand = as_operand(build, x)
    if isinstance(operand, Expression):
        return operand
    return Formula(build, (), operand.dtype, lambda indices, loads: operand)


MOST_NUMBERS = 4096
"""An array in the program text is stored number by number up to this size."""


def of_numbers(build: ProcedureBuilder, nested: Any, dtype: Any = None) -> ArrayView:
    """Return a new array of a nested list (or an array) of numbers, of which some may be values."""
    shape = _nested_shape(nested)
    flat = list(_flattened(nested, len(shape)))
    size = math.prod(shape)
    if len(flat) != size:
        raise ValueError("setting an array element with a sequence: the nested lists have different lengths")
    if size > MOST_NUMBERS:
        raise UnsupportedFunctionError(
            f"an array of {size} numbers in the code of a compiled loop",
            where=here.site,
            remedy="make it before the function, as a global, or pass it as an argument",
        )
    if isinstance(nested, np.ndarray):
        common_dtype = nested.dtype
    elif flat:
        common_dtype = np.result_type(
            *[as_value(x).dtype for x in flat]
        )  # numbers of Python are strong in an array
    else:
        common_dtype = np.dtype(np.float64)
    pointer = build.allocate("array", size, common_dtype if dtype is None else np.dtype(dtype))
    view = ArrayView.of_pointer(build, pointer, shape)
    for k, number in enumerate(flat):
        build.store(pointer, k, number)
    return view


def _nested_shape(nested: Any) -> tuple[int, ...]:
    if isinstance(nested, np.ndarray):
        return tuple(nested.shape)
    if not isinstance(nested, list | tuple):
        return ()
    return (len(nested), *(_nested_shape(nested[0]) if len(nested) else ()))


def _flattened(nested: Any, depth: int) -> Iterator[Any]:
    if isinstance(nested, np.ndarray):
        yield from nested.ravel()
    elif depth == 0:
        yield nested
    else:
        for item in nested:
            yield from _flattened(item, depth - 1)


def apply(build: ProcedureBuilder, function: Any, *operands: Any, **params: Any) -> Any:
    """Apply an elementwise function of NumPy: a number if all operands are, otherwise a deferred expression.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    function : callable
        A ufunc, one of NumPy's functions that work element by element, or a composite of rows. One that returns several results, as
        `numpy.divmod`, makes as many expressions.
    *operands : Expression, Value or number
        What it is applied to.
    **params : object
        Further arguments.
    """
    if isinstance(function, np.ufunc):
        rule: Callable[..., Any] = UFUNCS[function.__name__]
    else:
        rule = FUNCTIONS.get(function, function)
    if params:
        plain, rule = rule, lambda *values: plain(*values, **params)
    values = [x if type(x) in PYTHON_DTYPES else as_operand(build, x) for x in operands]
    arrays = [x for x in values if isinstance(x, Expression)]
    if not arrays:
        return rule(*values)
    shape = common_shape(build, [x.shape for x in arrays])
    typed = [Value(aval((), x.dtype)) if isinstance(x, Expression) else x for x in values]
    result = rule(*typed)
    spread = [x.broadcast(shape) if isinstance(x, Expression) else x for x in values]
    if not isinstance(result, tuple):
        return Deferred(build, rule, spread, shape, as_value(result).dtype)
    return tuple(
        [
            Deferred(build, lambda *values, k=k: rule(*values)[k], spread, shape, part.dtype)
            for k, part in enumerate(result)
        ]
    )


def is_number(operand: Any) -> bool:
    """Return whether an operand is one number."""
    return (
        isinstance(operand, Literal | np.generic)
        or type(operand) in PYTHON_DTYPES
        or (isinstance(operand, Value) and not operand.ndim)
    )
