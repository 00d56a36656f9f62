"""Masked arrays with traced elements: instances of `numpy.ma.MaskedArray`, whose code is NumPy's.

That code is Python, but for what it takes from ndarray by name (``ndarray.view(self, ...)``), which is in `MaskedFront`. The mask is an
attribute, as it is in NumPy: an ndarray, or a traced array where it depends on traced numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy import ma

from gradtape.trace.array.array import wrap_value
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import constant_copy
from gradtape.trace.subclasses.instances import TracedNdarray, front_of, instance, is_scalar, refused

nomask: Final[Any] = ma.nomask


def as_traced(array: Any) -> Any:
    """Return an ndarray as a traced array, whose elements may be chosen or replaced by traced ones; others are returned as they are."""
    return wrap_value(constant_copy(array)) if type(array) is np.ndarray else array


def without_mask(item: Any) -> Any:
    """Return the elements of a masked array; other objects are returned as they are."""
    return item._data if isinstance(item, ma.MaskedArray) else item


class MaskedFront:
    """What masked arrays with traced elements do before NumPy's class is asked."""

    __slots__ = ()

    @property
    def _data(self: Any) -> Any:
        return self._gradtape_content[...]

    data = _data

    @property
    def __array_interface__(self: Any) -> Any:
        """The memory, by which NumPy's code knows whether two arrays have the same elements and share the mask."""
        whole = content = self._gradtape_content
        while isinstance(whole, Handle) and getattr(whole, "_base", None) is not None:
            if whole._base.shape != content.shape:  # a part, or in another order
                return {"data": (id(content), False)}
            whole = whole._base
        return {"data": (id(whole), False)}

    def __getitem__(self: Any, key: Any) -> Any:
        key = tuple(map(without_mask, key)) if isinstance(key, tuple) else without_mask(key)
        mask = self._mask
        if mask is not nomask:
            traced = any(isinstance(part, Handle) for part in (key if isinstance(key, tuple) else (key,)))
            mask = (as_traced(mask) if traced else mask)[key]
        made = self._gradtape_content[key]
        if is_scalar(made):
            return ma.masked if mask is not nomask and mask else made
        made = instance(type(self), made, made)
        made._update_from(self)
        if mask is not nomask:
            made._mask, made._sharedmask = np.reshape(mask, made.shape), True
        return made

    def __repr__(self: Any) -> str:
        return f"masked_array({self._gradtape_content!r}, mask={self._mask!r})"

    __str__ = __repr__

    def view(self: Any, dtype: Any = None, type: Any = None, fill_value: Any = None) -> Any:
        """Return the same elements as a masked array, or as an array; see `numpy.ma.MaskedArray.view`."""
        made = TracedNdarray.view(self, dtype, type)
        masked: Any = made
        if isinstance(made, ma.MaskedArray):
            if masked._mask is not nomask:
                masked._mask = masked._mask[...]
            if fill_value is not None:
                made.fill_value = fill_value
        return made

    def compressed(self: Any) -> Any:
        """Return the elements that are not masked, as an array."""
        data = self._data.ravel()
        return data if self._mask is nomask else data[~np.ravel(self._mask)]

    def ravel(self: Any, order: Any = "C") -> Any:
        """Return all elements as a masked array of rank 1."""
        order = ("F" if self._data.flags.fnc else "C") if order in "kKaA" else order
        made = instance(type(self), self._data.ravel(order), None)
        made._update_from(self)
        made._mask = self._mask if self._mask is nomask else np.ravel(self._mask, order=order)
        return made

    def sort(self: Any, axis: Any = -1, *args: Any, **options: Any) -> None:
        """Sort the elements, the masked ones last."""
        if self._mask is nomask:
            self._gradtape_content.sort(axis, *args)
        else:
            ma.MaskedArray.sort(self, axis, *args, **options)

    def partition(self, *args: Any, **options: Any) -> None:
        """Raise an error: NumPy partitions without the mask, and only warns of it."""
        raise refused(ma.MaskedArray, "NumPy partitions all elements, also those that are masked")


def _in_place(name: str) -> Any:
    def operate(self: Any, other: Any) -> Any:
        if self._mask is not nomask:
            self._mask = as_traced(self._mask)  # the mask of a quotient depends on its elements
        return getattr(ma.MaskedArray, name)(self, other)

    return operate


for _name in ("add", "sub", "mul", "truediv", "floordiv", "pow"):
    setattr(MaskedFront, f"__i{_name}__", _in_place(f"__i{_name}__"))

front_of[ma.MaskedArray] = MaskedFront


def median_of_traced(plain: Any) -> Any:
    """Return ``np.ma.median`` for traced elements: of all of them, or along one axis of one, the median of those that are not masked."""

    def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False) -> Any:
        if (
            not isinstance(a, TracedNdarray)
            or out is not None
            or not a.size
            or (axis is not None and a.ndim > 1)
        ):
            return plain(a, axis, out, overwrite_input)
        left = a.compressed()
        return np.median(left) if np.size(left) else ma.masked

    return median
