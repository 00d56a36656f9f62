"""Selections: ``x[mask]`` with a traced mask, whose number of elements is not known.

What does not depend on the number of elements needs no guard: elementwise operations, reductions, and writes to the same mask:
``x[mask] *= 2``, ``y[mask] = np.sqrt(x[mask])``, ``np.mean(x[mask])``. All elements take part in the operations; those that are not
selected are left out of the result. For anything else, writes to the selection among it, the selection becomes an array of the selected
elements, and stays one: their number is guarded, and the function is traced anew where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.kinds.operands import COMPACT
from gradtape.ops.core.elementwise.cast import convert_number, identity
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand
from gradtape.ops.numpy.statistics.reductions import limits
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.source.sites import user_site

REDUCTIONS: Final = frozenset(
    {np.sum, np.prod, np.mean, np.std, np.var, np.max, np.min, np.any, np.all, np.count_nonzero}
)
"""Functions of a selection that return one number, or one row."""

_UFUNCS: Final = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min}


class Selection(NDArrayOperatorsMixin):
    """The elements ``x[mask]`` of a traced mask.

    Parameters
    ----------
    whole : Array
        All elements, selected or not.
    mask : Array
        Booleans, along the first axes of `whole`.
    """

    __slots__ = ("_array", "_mask", "_whole")
    __array_priority__ = 2000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: Any, mask: Any) -> None:
        self._whole = whole
        self._mask = mask
        self._array: Any = None
        """The array that the selection has become, which holds what was written to it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        kind: np.dtype[Any] = self._whole.dtype
        return kind

    @property
    def ndim(self) -> int:
        """The rank: one axis for all axes of the mask, and the rest."""
        return int(self._whole.ndim - self._mask.ndim + 1)

    def elements(self) -> Any:
        """Return the array of the selected elements, whose number is guarded: the same one each time."""
        if self._array is None:
            # the cotangents of the others are left out too, where slopes can be infinite
            whole = np.where(self._wide_mask(), self._whole, np.zeros((), self.dtype))
            self._array = whole[np.nonzero(self._mask)]
        return self._array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce" and ufunc in _UFUNCS and inputs[0] is self:
            return self._reduced(_UFUNCS[ufunc], kwargs.pop("axis", 0), kwargs)
        out = kwargs.pop("out", None)
        beside = [self._beside(operand) for operand in inputs]
        if (
            method != "__call__"
            or kwargs
            or ufunc.signature is not None
            or not (out is None or out[0] is self)
            or any(operand is NotImplemented for operand in beside)
        ):
            return self._on_elements(getattr(ufunc, method), inputs, kwargs, out)
        result = ufunc(*beside)
        if out is not None:
            if not np.can_cast(result.dtype, self.dtype, "same_kind"):
                return self._on_elements(ufunc, inputs, kwargs, out)
            self._whole = result.astype(self.dtype)
            return self
        return (
            tuple(Selection(part, self._mask) for part in result)
            if isinstance(result, tuple)
            else Selection(result, self._mask)
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in REDUCTIONS and args and args[0] is self and len(args) <= 2:
            axis = args[1] if len(args) > 1 else kwargs.pop("axis", None)
            return self._reduced(function, axis, kwargs)
        if self._array is not None:
            return function(*without_selections(args), **without_selections(kwargs))
        if function is np.where and len(args) == 3 and not kwargs:
            beside = [self._beside(operand) for operand in args]
            if not any(operand is NotImplemented for operand in beside):
                return Selection(np.where(*beside), self._mask)
        if function is np.size and len(args) == 1:
            return np.sum(self._mask) * int(np.prod(self._whole.shape[self._mask.ndim :]))
        return function(*without_selections(args), **without_selections(kwargs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.elements(), dtype)

    def __len__(self) -> int:
        return len(self.elements())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Selection):
            if (
                is_same_value(key._mask.value, self._mask.value)
                and key.dtype == bool
                and key._whole.ndim == key._mask.ndim
                and self._array is None
                and key._array is None
            ):
                return Selection(self._whole, self._mask & key._whole)
            key = key.elements()
        return self.elements()[key]

    def __setitem__(self, key: Any, new: Any) -> None:
        self.elements()[without_selections(key)] = without_selections(new)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        function = getattr(np, name, None)
        if function in REDUCTIONS:
            return lambda *args, **kwargs: function(self, *args, **kwargs)
        return getattr(self.elements(), name)

    def astype(self, dtype: Any, copy: bool = True) -> Selection:
        """Return the elements with another dtype; a selection shares no memory, whatever `copy` is."""
        if self._array is not None:
            return self._array.astype(dtype)  # type: ignore[no-any-return] # it behaves alike
        return Selection(self._whole.astype(dtype), self._mask)

    def copy(self) -> Any:
        """Return the elements, which are written to apart from these."""
        return Selection(self._whole, self._mask) if self._array is None else self._array.copy()

    def __repr__(self) -> str:
        return f"Selection({self._whole!r}[{self._mask!r}])"

    def _beside(self, operand: Any) -> Any:
        """Return an operand with the shape of the whole array; NotImplemented for one that has the number of elements."""
        if self._array is not None:
            return NotImplemented
        if isinstance(operand, Selection):
            if operand._array is not None:
                return NotImplemented
            return operand._whole if is_same_value(operand._mask.value, self._mask.value) else NotImplemented
        rest = self._whole.shape[self._mask.ndim :]
        if np.ndim(operand) > len(rest) and np.size(operand) != 1:
            return NotImplemented
        return np.reshape(operand, ()) if np.ndim(operand) > len(rest) else operand

    def _reduced(self, function: Callable[..., Any], axis: Any, kwargs: dict[str, Any]) -> Any:
        lead = self._mask.ndim
        if self._array is not None:
            return function(self._array, axis=axis, **kwargs)
        along = axis == 0 or (axis == -1 and self.ndim == 1)
        if not (axis is None or along) or not kwargs.keys() <= {"ddof", "dtype", "initial"}:
            return function(self.elements(), axis=axis, **kwargs)
        axes = None if axis is None else tuple(range(lead))
        mask = self._wide_mask()
        if function is np.count_nonzero:
            return np.sum((self._whole != 0) & mask, axis=axes)
        if function in (np.max, np.min) and "initial" not in kwargs:
            name = "maximum" if function is np.max else "minimum"
            if not np.any(self._mask):
                raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
            kwargs["initial"] = limits(self.dtype)[function is np.min]
        return function(self._whole, axis=axes, where=mask, **kwargs)

    def _wide_mask(self) -> Any:
        """Return the mask with an axis of extent 1 for each other axis of the whole array."""
        return self._mask[(...,) + (None,) * (self._whole.ndim - self._mask.ndim)]

    def _on_elements(
        self, function: Callable[..., Any], inputs: Any, kwargs: dict[str, Any], out: Any
    ) -> Any:
        if out is not None:
            kwargs["out"] = without_selections(out)
        made = function(*without_selections(inputs), **kwargs)
        return self if out is not None and out[0] is self else made


def without_selections(tree: Any) -> Any:
    """Return arguments with arrays for selections."""
    if type(tree) is Selection:
        return tree.elements()
    if type(tree) in (list, tuple):
        return type(tree)(map(without_selections, tree))
    return {name: without_selections(item) for name, item in tree.items()} if type(tree) is dict else tree


def is_traced_mask(x: Any, key: Any) -> bool:
    """Return whether an index is a traced mask."""
    return (
        isinstance(key, Handle)
        and key.dtype.kind == "b"
        and 0 < key.ndim <= x.ndim
        and key.shape == x.shape[: key.ndim]
        and trace_of(key.value) is not None
    )


def write_selection(x: Value, mask: Any, new: Selection) -> Value | None:
    """Return `x` after ``x[mask] = new``; None where the selection is of another mask or array."""
    here.site = user_site()
    if (
        new._array is not None
        or not is_same_value(mask.value, new._mask.value)
        or new._whole.shape != x.shape
    ):
        return None
    wide = expand(mask.value, x.shape, tuple(range(mask.ndim)))
    return where(wide, convert_number(new._whole.value, x.dtype), x)


def is_same_value(one: Value, other: Value, depth: int = 8) -> bool:
    """Return whether two values are the same expression of the same values, up to a depth."""
    one, other = _original(one), _original(other)
    if one is other:
        return True
    if isinstance(one, Literal) and isinstance(other, Literal):
        return one.dtype == other.dtype and bool(np.array_equal(one.data, other.data))  # type: ignore[arg-type]
    first, second = one.node, other.node
    if not depth or first is None or second is None or one.index != other.index or first.op is not second.op:
        return False
    if len(first.inputs) != len(second.inputs) or repr(first.params) != repr(second.params):
        return False
    return all(is_same_value(a, b, depth - 1) for a, b in zip(first.inputs, second.inputs, strict=True))


def _original(value: Value) -> Value:
    """Return the value that a value is a copy of."""
    while value.node is not None and value.node.op is identity:
        value = value.node.inputs[0]
    return value


COMPACT[Selection] = lambda selection: selection.elements().value
