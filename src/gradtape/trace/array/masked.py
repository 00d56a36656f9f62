"""Selections: ``x[mask]`` with a traced mask, whose number of elements is not known.

As an array it would have a shape that depends on values. As a selection it supports what does not depend on the number of elements:
elementwise operations, reductions, and writes to the same mask: ``x[mask] *= 2``, ``y[mask] = np.sqrt(x[mask])``,
``np.mean(x[mask])``. All elements take part in the operations; those that are not selected are left out of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import convert_number
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand
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

    __slots__ = ("_mask", "_whole")
    __array_priority__ = 2000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: Any, mask: Any) -> None:
        self._whole = whole
        self._mask = mask

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        kind: np.dtype[Any] = self._whole.dtype
        return kind

    @property
    def ndim(self) -> int:
        """The rank: one axis for all axes of the mask, and the rest."""
        return int(self._whole.ndim - self._mask.ndim + 1)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce" and ufunc in _UFUNCS and inputs[0] is self:
            return self._reduced(_UFUNCS[ufunc], kwargs.pop("axis", 0), kwargs)
        out = kwargs.pop("out", None)
        if (
            method != "__call__"
            or kwargs
            or ufunc.signature is not None
            or not (out is None or out[0] is self)
        ):
            self.refuse(f"np.{ufunc.__name__}")
        result = ufunc(*[self._beside(operand, ufunc.__name__) for operand in inputs])
        return (
            tuple(Selection(part, self._mask) for part in result)
            if isinstance(result, tuple)
            else Selection(result, self._mask)
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in REDUCTIONS and args and args[0] is self and len(args) <= 2:
            axis = args[1] if len(args) > 1 else kwargs.pop("axis", None)
            return self._reduced(function, axis, kwargs)
        if function is np.where and len(args) == 3 and not kwargs:
            return Selection(np.where(*[self._beside(operand, "where") for operand in args]), self._mask)
        if function is np.size and len(args) == 1:
            return np.sum(self._mask) * int(np.prod(self._whole.shape[self._mask.ndim :]))
        return self.refuse(f"np.{function.__name__}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.refuse("np.asarray")

    def __len__(self) -> NoReturn:
        self.refuse("len")

    def __iter__(self) -> NoReturn:
        self.refuse("iteration")

    def __getitem__(self, key: Any) -> NoReturn:
        self.refuse("an index of it")

    def __setitem__(self, key: Any, new: Any) -> NoReturn:
        self.refuse("a write to it")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        function = getattr(np, name, None)
        if function in REDUCTIONS:
            return lambda *args, **kwargs: function(self, *args, **kwargs)
        return self.refuse(f".{name}")

    def astype(self, dtype: Any) -> Selection:
        """Return the elements with another dtype."""
        return Selection(self._whole.astype(dtype), self._mask)

    def copy(self) -> Selection:
        """Return a copy of the elements."""
        return Selection(self._whole.copy(), self._mask)

    def __repr__(self) -> str:
        return f"Selection({self._whole!r}[{self._mask!r}])"

    def _beside(self, operand: Any, name: str) -> Any:
        """Return an operand with the shape of the whole array."""
        if isinstance(operand, Selection):
            if not is_same_value(operand._mask.value, self._mask.value):
                self.refuse(f"np.{name} of two selections")
            return operand._whole
        rest = self._whole.shape[self._mask.ndim :]
        if np.ndim(operand) > len(rest) and np.size(operand) != 1:
            self.refuse(f"np.{name} with an array along the selected elements")
        return np.reshape(operand, ()) if np.ndim(operand) > len(rest) else operand

    def _reduced(self, function: Callable[..., Any], axis: Any, kwargs: dict[str, Any]) -> Any:
        lead = self._mask.ndim
        if axis is None:
            axes = None
        elif axis == 0 or (axis == -1 and self.ndim == 1):
            axes = tuple(range(lead))
        else:
            self.refuse(f"np.{function.__name__} along axis {axis}")
        if not kwargs.keys() <= {"ddof", "dtype", "initial"}:
            self.refuse(f"np.{function.__name__} with {', '.join(kwargs)}")
        mask = self._mask[(...,) + (None,) * (self._whole.ndim - lead)]
        if function is np.count_nonzero:
            return np.sum((self._whole != 0) & mask, axis=axes)
        if function in (np.max, np.min):
            kwargs.setdefault("initial", _lower_bound(self.dtype, -1 if function is np.max else 1))
        return function(self._whole, axis=axes, where=mask, **kwargs)

    def refuse(self, what: str) -> NoReturn:
        """Raise the error for an operation that depends on the number of selected elements."""
        raise UnsupportedFunctionError(
            f"{what}: x[mask] with a traced mask of shape {self._mask.shape}" + _in_trace(self._mask.value),
            where=user_site(),
            why="the shape of the result would depend on values that are not known while tracing",
            remedy="elementwise operations, reductions and x[mask] = ... work; for others use np.where(mask, x, 0), "
            "np.sum(x, where=mask), or x[mask] outside of the traced function",
        )


def _in_trace(value: Value) -> str:
    trace = trace_of(value)
    return "" if trace is None else f" in {trace.described}"


def _lower_bound(dtype: np.dtype[Any], sign: int) -> Any:
    """Return the lower (or upper) bound of all numbers of a dtype."""
    if dtype.kind == "f":
        return sign * np.inf
    if dtype.kind == "b":
        return sign > 0
    limits = np.iinfo(dtype)
    return limits.min if sign < 0 else limits.max


def is_traced_mask(x: Any, key: Any) -> bool:
    """Return whether an index is a traced mask."""
    return (
        isinstance(key, Handle)
        and key.dtype.kind == "b"
        and 0 < key.ndim <= x.ndim
        and key.shape == x.shape[: key.ndim]
        and trace_of(key.value) is not None
    )


def write_selection(x: Value, mask: Any, new: Selection) -> Value:
    """Return `x` after ``x[mask] = new``."""
    here.site = user_site()
    if not is_same_value(mask.value, new._mask.value) or new._whole.shape != x.shape:
        new.refuse("a write to where another mask selects")
    wide = expand(mask.value, x.shape, tuple(range(mask.ndim)))
    return where(wide, convert_number(as_value(new._whole.value), x.dtype), x)


def is_same_value(one: Value, other: Value, depth: int = 8) -> bool:
    """Return whether two values are the same expression of the same values, up to a depth."""
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
