"""Indexed slices: sparse gradients that hold some rows of an array and their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from gradtape.errors import DensifyWarning, DtypeError, InPlaceError, ShapeError, warn
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INTP, Shape
from gradtape.kinds.operands import COMPACT, as_value, broadcast_to
from gradtape.kinds.registry import FUNCTIONS, UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import gather, put_add, put_row
from gradtape.ops.core.join import join
from gradtape.trace.array import concretize
from gradtape.trace.array.array import Array, to_array
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.source.sites import user_site
from gradtape.trees import (
    TreeSpec,
    flatten,
    flatten_to,
    flatten_with_none,
    map_nested,
    register_node,
    unflatten,
)


def _binary(ufunc: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: ufunc(self, other)


def _reflected(ufunc: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: ufunc(other, self)


def _unary(ufunc: Any) -> Callable[[Any], Any]:
    return lambda self: ufunc(self)


LARGE: Final = 10_000_000
"""The number of elements from which densifying gives a warning: 80 MB of float64."""


class IndexedSlices:
    """Rows of an array that is zero elsewhere: ``dense[indices[i]] += values[i]`` for each i.

    The gradient of a table in which only some rows were looked up comes in this form, so that nothing of the table's size is computed.
    It can be negated, scaled, added and subtracted; every other NumPy function takes the whole array. Indices may repeat (their rows
    add up), and count from the end where they are negative.

    Parameters
    ----------
    values : array_like
        The rows, along the first axis.
    indices : array_like of int
        Where each row belongs: of rank 1, one per row.
    dense_shape : sequence of int, optional
        The shape of the whole array. Without it there is no whole array to be had.

    Attributes
    ----------
    values, indices : Array
        As given. (What a jitted function returns has ndarrays.)
    dense_shape, shape : tuple of int or None
        The shape of the whole array.
    dtype : numpy.dtype
        That of the values.
    name : str or None
        That of the values.

    Raises
    ------
    ShapeError, DtypeError
        For fields that do not fit together; the message names the field.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     table = tape.watch(np.ones((4, 2)))
    ...     loss = np.sum(table[np.array([3, 0, 3])])
    >>> g = tape.gradient(loss, table)
    >>> g.indices
    Array([3, 0, 3], dtype=int64)
    >>> gt.asarray(2 * g)
    Array([[2., 2.],
           [0., 0.],
           [0., 0.],
           [4., 4.]])
    """

    __slots__ = ("__weakref__", "dense_shape", "indices", "values")
    __hash__ = None  # type: ignore[assignment]

    values: Any
    indices: Any
    dense_shape: Shape | None

    def __init__(self, values: Any, indices: Any, dense_shape: Sequence[int] | None = None) -> None:
        here.site = user_site()
        self.values = to_array(values, "values")
        self.indices = _checked_indices(to_array(indices, "indices"), self.values.shape)
        self.dense_shape = None if dense_shape is None else _checked_shape(dense_shape, self.values.shape)

    @property
    def shape(self) -> Shape | None:
        """The shape of the whole array; None if it is unknown."""
        return self.dense_shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def name(self) -> str | None:
        """The name of the values, for debugging."""
        return self.values.name if isinstance(self.values, Array) else None

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(values={self.values!r}, indices={self.indices!r}, dense_shape={self.dense_shape})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _slices, (self.values, self.indices, self.dense_shape)

    def _with(self, values: Any) -> IndexedSlices:
        return _slices(values, self.indices, self.dense_shape)

    # The whole array

    def to_value(self) -> Value:
        """Return the whole array as a value of the graph."""
        shape = self._known_shape()
        size = int(np.prod(shape))
        if size >= LARGE:
            warn(
                DensifyWarning,
                f"IndexedSlices of {self.values.shape[0]} rows become an array of shape {shape}, {size} elements",
                where=user_site(),
                why="only +, - and multiplication by a scalar keep a gradient sparse",
                remedy="work with .values and .indices, or update the table with gt.scatter_sub",
            )
        values, indices = self.parts()
        return put_add(broadcast_to(literal(0, values.dtype), shape), values, indices)

    def to_dense(self) -> Array:
        """Return the whole array."""
        return Array(self.to_value())

    def numpy(self) -> Any:
        """Return the whole array as a new ndarray, which no tape records."""
        here.site = user_site()
        return np.array(concretize.array_of(self.to_value(), "slices.numpy()"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        here.site = user_site()
        return concretize.as_ndarray(self.to_value(), dtype)

    def combined(self) -> IndexedSlices:
        """Return the same array with the rows of equal indices added up, in the order of the indices.

        How many rows there are depends on the indices: a jitted function is traced for each number of them.

        Examples
        --------
        >>> import gradtape as gt
        >>> gt.IndexedSlices([1.0, 2.0, 4.0], [3, 0, 3]).combined()
        IndexedSlices(values=Array([2., 5.]), indices=Array([0, 3], dtype=int64), dense_shape=None)
        """
        here.site = user_site()
        return self._summed(exact=True)

    def _summed(self, *, exact: bool = False) -> IndexedSlices:
        """Return the same array without two rows for one index. In a trace, unless it is to be `exact`, each index keeps as many as it
        has; one of them has the sum, and the others are zero."""
        values, indices = self.parts()
        if self.dense_shape is not None:
            indices = wrap_negative(indices, self.dense_shape[0])
        if trace_of(indices) is None or not indices.size:
            unique, inverse = np.unique(force([indices])[0], return_inverse=True)
            places, kept = as_value(inverse.reshape(-1)), as_value(unique)
        else:
            kept = FUNCTIONS[np.sort](indices)
            places = FUNCTIONS[np.searchsorted](kept, indices)
            if exact:
                begins = np.concatenate([np.ones(1, bool), Array(kept)[1:] != Array(kept)[:-1]])
                slots = as_value(unwrap(np.cumsum(begins) - 1))
                blank = broadcast_to(literal(0, INTP), (int(np.sum(begins)),))
                kept, places = put_row(blank, kept, slots), gather(slots, places)
        blank = broadcast_to(literal(0, values.dtype), (*kept.shape, *values.shape[1:]))
        return _slices(Array(put_add(blank, values, places)), Array(kept), self.dense_shape)

    def parts(self) -> tuple[Value, Value]:
        """Return values and indices as values of the graph."""
        return as_value(unwrap(self.values)), as_value(unwrap(self.indices))

    def _known_shape(self) -> Shape:
        if self.dense_shape is None:
            raise ShapeError(
                "IndexedSlices without dense_shape cannot be converted to an array",
                where=here.site,
                why="the number of rows is unknown",
                remedy="gt.IndexedSlices(values, indices, dense_shape)",
            )
        return self.dense_shape

    # NumPy's operators and protocols

    __add__, __radd__ = _binary(np.add), _reflected(np.add)
    __sub__, __rsub__ = _binary(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _binary(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _binary(np.divide), _reflected(np.divide)
    __floordiv__, __rfloordiv__ = _binary(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _binary(np.remainder), _reflected(np.remainder)
    __pow__, __rpow__ = _binary(np.power), _reflected(np.power)
    __matmul__, __rmatmul__ = _binary(np.matmul), _reflected(np.matmul)
    __lt__, __le__, __gt__, __ge__ = map(_binary, (np.less, np.less_equal, np.greater, np.greater_equal))
    __eq__, __ne__ = _binary(np.equal), _binary(np.not_equal)
    __neg__, __pos__, __abs__ = _unary(np.negative), _unary(np.positive), _unary(np.absolute)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        rule = RULES.get(ufunc)
        if rule is not None and method == "__call__":
            if not kwargs:
                result = rule(*inputs)
                if result is not None:
                    return result
            elif _is_in_place_update(ufunc, inputs, kwargs):
                values, indices = inputs[1].parts()
                rows, places = force([values, indices])
                if not np.can_cast(rows.dtype, inputs[0].dtype, "same_kind"):
                    raise DtypeError(
                        f"rows of {rows.dtype} cannot be put into an array of {inputs[0].dtype} in place",
                        where=here.site,
                        remedy="convert one of them first",
                    )
                ufunc.at(inputs[0], places, rows)
                return inputs[0]
        _refuse_as_out(kwargs)
        return getattr(ufunc, method)(*[densified(operand) for operand in inputs], **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        here.site = user_site(via=f"np.{getattr(function, '__name__', function)}")
        if function in FIELDS and len(args) == 1 and not kwargs:
            return FIELDS[function](self)
        _refuse_as_out(kwargs)
        return function(
            *[densified(argument) for argument in args],
            **{key: densified(value) for key, value in kwargs.items()},
        )


def _slices(values: Any, indices: Any, dense_shape: Shape | None) -> IndexedSlices:
    """Return slices of fields that are not checked: they are known to fit, or are placeholders in a tree."""
    made = object.__new__(IndexedSlices)
    made.values, made.indices, made.dense_shape = values, indices, dense_shape
    return made


COMPACT[IndexedSlices] = IndexedSlices.to_value
register_node(
    IndexedSlices,
    lambda slices: ((slices.values, slices.indices), slices.dense_shape, ("values", "indices")),
    lambda dense_shape, fields: _slices(fields[0], fields[1], dense_shape),
)


def flatten_arrays(
    tree: Any, *, none_is_leaf: bool = True
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the leaves of a tree, and a function that rebuilds the tree with other leaves.

    The leaf of slices is their values: their indices have no derivative and stay. None in place of a leaf replaces the slices.
    """
    leaves, spec = (flatten_with_none if none_is_leaf else flatten)(tree)
    if spec.num_nodes <= len(leaves) + 1 and type(tree) is not IndexedSlices:  # one container, or none
        return leaves, partial(unflatten, spec)
    parts, outer = flatten_to(IndexedSlices, tree, none_is_leaf=none_is_leaf)
    return [part.values if isinstance(part, IndexedSlices) else part for part in parts], partial(
        _unflatten_arrays, outer, parts
    )


def _unflatten_arrays(spec: TreeSpec, parts: Sequence[Any], leaves: Sequence[Any]) -> Any:
    return unflatten(
        spec,
        [
            part._with(leaf) if isinstance(part, IndexedSlices) and leaf is not None else leaf
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


def wrap_negative(indices: Value, extent: int) -> Value:
    """Return indices with `extent` added to the negative ones; those out of bounds stay out of bounds."""
    negative = UFUNCS["less"](indices, 0) & UFUNCS["greater_equal"](indices, -extent)
    counted: Value = UFUNCS["add"](indices, UFUNCS["multiply"](convert(negative, INTP), extent))
    return counted


def densified(argument: Any) -> Any:
    """Return an argument with dense arrays for slices, also in nested lists and tuples."""
    return map_nested(lambda slices: Array(slices.to_value()), IndexedSlices, argument)


def _checked_indices(indices: Array, values: Shape) -> Array:
    if indices.dtype.kind not in "iu":
        raise DtypeError(
            f"IndexedSlices: indices must be integers, got {indices.dtype}",
            where=here.site,
            remedy="indices.astype(int)",
        )
    if indices.ndim != 1:
        raise ShapeError(
            f"IndexedSlices: indices must be of rank 1, got shape {indices.shape}",
            where=here.site,
            remedy="flatten them, and give one row of values for each",
        )
    if not values or values[0] != indices.shape[0]:
        raise ShapeError(
            f"IndexedSlices: values of shape {values} do not have one row for each of the {indices.shape[0]} indices",
            where=here.site,
            remedy="values[i] is the row that belongs to indices[i]",
        )
    return indices if indices.dtype == INTP else Array(convert(indices.value, INTP))


def _checked_shape(dense_shape: Any, values: Shape) -> Shape:
    try:
        shape = tuple([extent.__index__() for extent in dense_shape])
    except (TypeError, AttributeError):
        raise DtypeError(
            f"IndexedSlices: dense_shape must be a sequence of integers, got {dense_shape!r}",
            where=here.site,
            remedy="dense_shape=table.shape",
        ) from None
    if not shape or min(shape) < 0 or shape[1:] != values[1:]:
        raise ShapeError(
            f"IndexedSlices: dense_shape {shape} does not fit rows of shape {values[1:]}",
            where=here.site,
            remedy=f"its extents after the first must be {values[1:]}",
        )
    return shape


# Rules for ufuncs of slices. Each returns None where it does not apply: then the slices are densified.


def _is_number(operand: Any) -> bool:
    return isinstance(operand, int | float | complex | np.generic) or (
        isinstance(operand, np.ndarray | Handle) and operand.ndim == 0
    )


def _sum(sign: int) -> Callable[[Any, Any], Any]:
    ufunc = np.add if sign > 0 else np.subtract

    def rule(a: Any, b: Any) -> Any:
        if isinstance(a, IndexedSlices) and isinstance(b, IndexedSlices):
            return _concatenated(a, b if sign > 0 else b._with(-b.values))
        slices, other = (a, b) if isinstance(a, IndexedSlices) else (b, a)
        if type(other) in (int, float) and other == 0:  # where sum() begins
            return slices if sign > 0 or slices is a else -slices
        shape = slices._known_shape()
        if not isinstance(other, Handle | np.ndarray) or other.shape != shape:
            return None
        base = as_value(unwrap(other))
        values, indices = slices.parts()
        dtype = np.result_type(base.dtype, values.dtype)
        base, values = convert(base, dtype), convert(values, dtype)
        if sign < 0:
            base, values = (
                (UFUNCS["negative"](base), values) if slices is a else (base, UFUNCS["negative"](values))
            )
        return Array(put_add(base, values, indices))

    rule.__name__ = ufunc.__name__
    return rule


def _concatenated(a: IndexedSlices, b: IndexedSlices) -> IndexedSlices:
    """Return the sum of two slices: their rows, concatenated."""
    shapes = a.dense_shape, b.dense_shape
    if (None not in shapes and shapes[0] != shapes[1]) or a.values.shape[1:] != b.values.shape[1:]:
        raise ShapeError(
            f"IndexedSlices of dense_shape {shapes[0]} and {shapes[1]}, with rows of shape {a.values.shape[1:]} and "
            f"{b.values.shape[1:]}, cannot be added",
            where=here.site,
            remedy="only slices of arrays of the same shape can be added",
        )
    (first, before), (second, after) = a.parts(), b.parts()
    dtype = np.result_type(first.dtype, second.dtype)
    values = Array(join([convert(first, dtype), convert(second, dtype)], 0))
    return _slices(values, Array(join([before, after], 0)), shapes[0] if shapes[0] is not None else shapes[1])


def _product(a: Any, b: Any) -> Any:
    if isinstance(a, IndexedSlices) and _is_number(b):
        return a._with(a.values * b)
    if isinstance(b, IndexedSlices) and _is_number(a):
        return b._with(a * b.values)
    return _zero_preserving(np.square)(a) if a is b else None


def _quotient(a: Any, b: Any) -> Any:
    return a._with(a.values / b) if isinstance(a, IndexedSlices) and _is_number(b) else None


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, IndexedSlices) and issubclass(type(b), int | float) and b > 0:
        rows = a._summed()
        return rows._with(rows.values**b)
    return None


def _linear(ufunc: Any) -> Callable[[Any], Any]:
    return lambda a: a._with(ufunc(a.values))


def _zero_preserving(ufunc: Any) -> Callable[[Any], Any]:
    """Return the rule of a nonlinear function that maps 0 to 0: rows of equal indices are summed first."""

    def rule(a: Any) -> Any:
        rows = a._summed()
        return rows._with(ufunc(rows.values))

    return rule


def _refuse_as_out(kwargs: dict[str, Any]) -> None:
    out = kwargs.get("out")
    for target in out if isinstance(out, tuple) else (out,):
        if isinstance(target, IndexedSlices):
            raise InPlaceError(
                "out= is an IndexedSlices",
                where=here.site,
                why="slices hold some rows, and the result is a whole array",
                remedy="omit out=, or pass an array: out=gt.asarray(slices)",
            )


def _is_in_place_update(ufunc: Any, inputs: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call is ``n += slices`` or ``n -= slices``, for an ndarray n that can be updated in place."""
    target, *_ = out = kwargs.get("out", (None,))
    if (
        ufunc not in (np.add, np.subtract)
        or list(kwargs) != ["out"]
        or len(out) != 1
        or target is not inputs[0]
    ):
        return False
    slices = inputs[1]
    return (
        type(target) is np.ndarray
        and isinstance(slices, IndexedSlices)
        and target.shape == slices.dense_shape
        and not any(tag.recording for value in slices.parts() for tag in value.tags)
    )


RULES: Final[dict[Any, Callable[..., Any]]] = {
    np.add: _sum(1),
    np.subtract: _sum(-1),
    np.multiply: _product,
    np.divide: _quotient,
    np.power: _power,
    np.negative: _linear(np.negative),
    np.positive: _linear(np.positive),
    np.conjugate: _linear(np.conjugate),
    np.absolute: _zero_preserving(np.absolute),
    np.square: _zero_preserving(np.square),
    np.sqrt: _zero_preserving(np.sqrt),
    np.sign: _zero_preserving(np.sign),
}
"""The ufuncs whose results are slices."""

FIELDS: Final[dict[Any, Callable[[IndexedSlices], Any]]] = {
    np.shape: lambda slices: slices._known_shape(),
    np.ndim: lambda slices: len(slices._known_shape()),
    np.size: lambda slices: int(np.prod(slices._known_shape())),
    np.sum: lambda slices: np.sum(slices.values),
    np.linalg.norm: lambda slices: np.linalg.norm(np.ravel(slices._summed().values)),
}
"""Functions of one argument that need only the rows."""
