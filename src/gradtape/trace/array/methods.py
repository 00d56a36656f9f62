"""The methods of ndarrays on Arrays: each is the NumPy function of its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.kinds.operands import number_dtype
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import as_element
from gradtape.trace.array import view_functions
from gradtape.trace.array.handle import unwrap
from gradtape.trace.array.iterators import FlatIterator
from gradtape.trace.array.layout import layout_in_order, with_layout_of
from gradtape.trace.array.view_functions import VIEWING, view_of
from gradtape.trace.array.views import ImaginaryView, RealView
from gradtape.trace.dispatch.dispatch import as_strong, call_function, call_ufunc
from gradtape.trace.lazy.call_observer import observed, prediction
from gradtape.trace.source.sites import user_site

_frame = sys._getframe


def _method(function: Any, viewer: Any = None) -> Callable[..., Any]:
    """Return the method of the name of a NumPy function; with a viewer, it returns a view where that does."""
    via = f"x.{function.__name__}"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = prediction.observer
        if (
            observer is not None
            and (result := observer.observe(call, (self, *args), _frame(1), kwargs)) is not None
        ):
            return result
        here.site = user_site(via=via)
        if viewer is not None and (view := viewer(function, self, args, kwargs)) is not None:
            return view
        result = call_function(function, (self, *args), kwargs)
        if viewer is None and self._contiguous is True:
            return self.wrap_value(result)
        return self.with_layout(function, result)

    call.__name__ = function.__name__
    view_or_array = "the array" if viewer is None else "the array, as a view"
    call.__doc__ = f"Return ``np.{function.__name__}`` of {view_or_array}; see there."
    return call


class Methods:
    """Mixin: every method of ndarrays that makes sense for a value."""

    __slots__ = ()

    sum, prod, mean, var, std = (_method(f) for f in (np.sum, np.prod, np.mean, np.var, np.std))
    max, min, any, all, argmax, argmin = (
        _method(f) for f in (np.max, np.min, np.any, np.all, np.argmax, np.argmin)
    )
    cumsum, cumprod, dot, round = (_method(f) for f in (np.cumsum, np.cumprod, np.dot, np.round))
    take, repeat, trace = (_method(f) for f in (np.take, np.repeat, np.trace))
    argsort, argpartition, searchsorted = (_method(f) for f in (np.argsort, np.argpartition, np.searchsorted))
    nonzero, choose = (_method(f) for f in (np.nonzero, np.choose))
    swapaxes, squeeze = _method(np.swapaxes, VIEWING[np.swapaxes]), _method(np.squeeze, VIEWING[np.squeeze])
    ravel, diagonal = _method(np.ravel, VIEWING[np.ravel]), _method(np.diagonal, VIEWING[np.diagonal])

    def reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return the array with another shape: ``np.reshape``."""
        observer = prediction.observer
        if observer is not None:
            named = {} if order == "C" and copy is None else {"order": order, "copy": copy}
            result = observer.observe(Methods.reshape, (self, *shape), _frame(1), named)
            if result is not None:
                return result
        here.site = user_site(via="x.reshape")
        new_shape = shape[0] if len(shape) == 1 else shape
        return view_functions.reshape(self, new_shape, order, copy)

    @observed
    def transpose(self: Any, *axes: Any) -> Any:
        """Return the array with its axes permuted: ``np.transpose``."""
        here.site = user_site(3, "x.transpose")
        is_tuple = len(axes) == 1 and (axes[0] is None or np.ndim(axes[0]))
        order = None if not axes else axes[0] if is_tuple else axes
        return view_of(np.transpose, (self, order), {})

    @property
    def T(self: Any) -> Any:
        """The array with its axes reversed."""
        observer = prediction.observer
        if observer is not None:
            result = observer.observe(_TRANSPOSED, (self,), _frame(1))
            if result is not None:
                return result
        here.site = user_site(via="x.T")
        return _moved(np.transpose, self, (), {})

    @property
    @observed
    def mT(self: Any) -> Any:
        """The array with its last two axes swapped."""
        here.site = user_site(3, "x.mT")
        return view_of(np.matrix_transpose, (self,), {})

    @property
    def real(self: Any) -> Any:
        """The real part: a view, which can be written to. Of real numbers it is the array itself."""
        here.site = user_site(via="x.real")
        return self.part_view(RealView()) if self.dtype.kind == "c" else self

    @real.setter
    def real(self: Any, new: Any) -> None:
        here.site = user_site(via="x.real")
        self.real[...] = new

    @property
    def imag(self: Any) -> Any:
        """The imaginary part: a view, which can be written to. Of real numbers it is zero."""
        here.site = user_site(via="x.imag")
        if self.dtype.kind == "c":
            return self.part_view(ImaginaryView())
        return np.imag(self)

    @imag.setter
    def imag(self: Any, new: Any) -> None:
        here.site = user_site(via="x.imag")
        if self.dtype.kind != "c":
            raise DtypeError(
                "array does not have imaginary part to set",
                where=here.site,
                remedy="make it complex first: x = x.astype(complex)",
            )
        self.imag[...] = new

    @observed
    def compress(self: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """Return slices along an axis, or elements of the flattened array: ``np.compress``."""
        here.site = user_site(3, "x.compress")
        return self.with_layout(np.compress, call_function(np.compress, (condition, self, axis, out), {}))

    @observed
    def clip(self: Any, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the array with its elements limited: ``np.clip``, one bound may be left out."""
        here.site = user_site(3, "x.clip")
        if out is not None:
            return np.clip(self, min, max, out, **options)
        return self.with_layout(np.clip, call_function(np.clip, (self, min, max), options))

    def conj(self: Any) -> Any:
        """Return the complex conjugate: of real numbers, as NumPy's method does, the array itself."""
        if self.dtype.kind != "c":
            return self
        observer = prediction.observer
        if (
            observer is not None
            and (result := observer.observe(Methods.conj, (self,), _frame(1))) is not None
        ):
            return result
        here.site = user_site(via="x.conj")
        return with_layout_of(self.wrap_value(call_ufunc(np.conjugate, "__call__", (self,), {})), (self,))

    conjugate = conj

    @observed
    def flatten(self: Any, order: str = "C") -> Any:
        """Return a copy with one axis."""
        here.site = user_site(3, "x.flatten")
        return view_functions.flatten(self, order)

    def copy(self: Any, order: str = "C") -> Any:
        """Return a copy with the same content."""
        return (
            self.wrap_value(self.value) if order == "C" and self.ndim else view_functions.copied(self, order)
        )

    @observed
    def astype(
        self: Any,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """Return the array with another dtype; between floats, the conversion is differentiated."""
        here.site = user_site(3, "x.astype")
        target_dtype = number_dtype(dtype)
        if not np.can_cast(self.dtype, target_dtype, casting):  # type: ignore[arg-type]
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {target_dtype!r} according to the rule '{casting}'"
            )
        if not copy and target_dtype == self.dtype and (order in "KA" or self._contiguous is True):
            return self
        converted = self.wrap_value(as_strong(convert(self.value, target_dtype)))
        if not self.ndim:
            converted._contiguous = self._contiguous is True and self._base is None
            return converted
        converted._contiguous = layout_in_order(self, order)
        return converted

    def fill(self: Any, number: Any) -> None:
        """Set every element. NumPy's scalars have the method too, which does not change them."""
        here.site = user_site(via="x.fill")
        number = as_element(unwrap(number), self.dtype)
        if not self.is_scalar:
            self[...] = number

    def put(self: Any, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Set elements by their flat indices: ``np.put``."""
        np.put(self, indices, values, mode)

    def sort(
        self: Any, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
    ) -> None:
        """Sort in place: ``np.sort``."""
        here.site = user_site(via="x.sort")
        self.rebind(call_function(np.sort, (self,), {"axis": axis}))

    def partition(self: Any, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
        """Partition in place: ``np.partition``."""
        here.site = user_site(via="x.partition")
        self.rebind(call_function(np.partition, (self, kth), {"axis": axis}))

    @property
    def flat(self: Any) -> Any:
        """The elements in C order, to be iterated over, read and written."""
        return FlatIterator(self)

    @flat.setter
    def flat(self: Any, new: Any) -> None:
        FlatIterator(self)[:] = new


_moved: Any = VIEWING[np.transpose]

_TRANSPOSED: Any = vars(Methods)["T"].fget
