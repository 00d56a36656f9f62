"""The methods of ndarrays on traced arrays: each is the NumPy function of its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DtypeError, InPlaceError
from ..ir.builder import here
from ..ir.graph import Value
from ..kinds.operands import number_dtype
from ..kinds.registry import FUNCTIONS
from ..ops.cast import convert
from .dispatch import call_function, call_ufunc, strengthen
from .handle import Handle, plain
from .recall import recall, reshaped
from .sites import user_site
from .speculation import attended, speculation
from .views import ImaginaryPart, RealPart, Rearranged

_frame = sys._getframe

VIEWS = frozenset(
    {
        np.reshape,
        np.ravel,
        np.transpose,
        np.swapaxes,
        np.moveaxis,
        np.rollaxis,
        np.squeeze,
        np.expand_dims,
        np.matrix_transpose,
        np.atleast_1d,
        np.atleast_2d,
        np.atleast_3d,
    }
)
"""Functions that return the elements of their argument in another order or shape: a view, where NumPy makes one."""

KEEP_ORDER = frozenset(
    {np.reshape, np.ravel, np.squeeze, np.expand_dims, np.atleast_1d, np.atleast_2d, np.atleast_3d}
)
"""Those of them after which a contiguous array is contiguous."""

ONLY_CONTIGUOUS = frozenset({np.reshape, np.ravel})
"""Those of them that copy what is not contiguous."""

PARTS = {np.real: "real", np.imag: "imag"}
"""Functions that return a part of complex numbers, with the property that is the view."""

VIEWING = VIEWS | PARTS.keys()


def _method(function: Any) -> Callable[..., Any]:
    via = f"x.{function.__name__}"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        attendant = speculation.attendant
        if (
            attendant is not None
            and (made := attendant.take(call, (self, *args), _frame(1), kwargs)) is not None
        ):
            return made
        here.site = user_site(via=via)
        return self.wrapped(call_function(function, (self, *args), kwargs))

    call.__name__ = function.__name__
    call.__doc__ = f"Return ``np.{function.__name__}`` of the array; see there."
    return call


def _view_method(function: Any) -> Callable[..., Any]:
    via = f"x.{function.__name__}"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        attendant = speculation.attendant
        if (
            attendant is not None
            and (made := attendant.take(call, (self, *args), _frame(1), kwargs)) is not None
        ):
            return made
        here.site = user_site(via=via)
        return Methods.as_view(self, function, (self, *args), kwargs)

    call.__name__ = function.__name__
    call.__doc__ = f"Return ``np.{function.__name__}`` of the array, as a view; see there."
    return call


class Methods:
    """Mixin: every method of ndarrays that makes sense for a value."""

    __slots__ = ()

    sum, prod, mean, var, std = (_method(f) for f in (np.sum, np.prod, np.mean, np.var, np.std))
    max, min, any, all, argmax, argmin = (
        _method(f) for f in (np.max, np.min, np.any, np.all, np.argmax, np.argmin)
    )
    cumsum, cumprod, dot, round = (_method(f) for f in (np.cumsum, np.cumprod, np.dot, np.round))
    take, repeat, diagonal, trace = (_method(f) for f in (np.take, np.repeat, np.diagonal, np.trace))
    argsort, argpartition, searchsorted = (_method(f) for f in (np.argsort, np.argpartition, np.searchsorted))
    compress, nonzero, choose = (_method(f) for f in (np.compress, np.nonzero, np.choose))
    swapaxes, squeeze = _view_method(np.swapaxes), _view_method(np.squeeze)
    ravel = _view_method(np.ravel)

    @staticmethod
    def as_view(self: Any, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the view that `function` makes of its first argument, or None where it makes none."""
        if function in PARTS and len(args) == 1 and isinstance(args[0], Handle):
            return getattr(args[0], PARTS[function])
        if (
            function not in VIEWS
            or not args
            or not isinstance(args[0], Handle)
            or (len(args) > 1 and function in _VARIADIC)
        ):
            return None
        source: Any = args[0]
        if function in ONLY_CONTIGUOUS and not source._contiguous:
            return None if function is not np.ravel else self.wrapped(call_function(function, args, kwargs))
        contiguous = source._contiguous and function in KEEP_ORDER
        call = recall(FUNCTIONS[function], args, kwargs, [])
        if call is not None and call.view is not None:
            return source.rearranged(call.view, contiguous=contiguous)
        rest = [plain(argument) for argument in args[1:]]

        def rearrange(value: Value) -> Value:
            result: Value = call_function(function, (value, *rest), dict(kwargs))
            return result

        return source.rearranged(Rearranged(rearrange), contiguous=contiguous)

    def reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return the array with another shape: ``np.reshape``."""
        attendant = speculation.attendant
        if attendant is not None:
            named = {} if order == "C" and copy is None else {"order": order, "copy": copy}
            made = attendant.take(Methods.reshape, (self, *shape), _frame(1), named)
            if made is not None:
                return made
        here.site = user_site(via="x.reshape")
        wanted = shape[0] if len(shape) == 1 else shape
        if order == "C" and self._contiguous and (known := reshaped(self.value.aval, wanted)) is not None:
            return self.rearranged(known, contiguous=True)
        args, kwargs = (self, wanted), {"order": order}
        view = Methods.as_view(self, np.reshape, args, kwargs)
        return self.wrapped(call_function(np.reshape, args, kwargs)) if view is None else view

    @attended
    def transpose(self: Any, *axes: Any) -> Any:
        """Return the array with its axes permuted: ``np.transpose``."""
        here.site = user_site(3, "x.transpose")
        order = None if not axes else axes[0] if len(axes) == 1 else axes
        return Methods.as_view(self, np.transpose, (self, order), {})

    @property
    def T(self: Any) -> Any:
        """The array with its axes reversed."""
        attendant = speculation.attendant
        if attendant is not None:
            made = attendant.take(_TRANSPOSED, (self,), _frame(1))
            if made is not None:
                return made
        here.site = user_site(via="x.T")
        call = recall(FUNCTIONS[np.transpose], (self,), {}, [])
        if call is not None and call.view is not None:
            return self.rearranged(call.view, contiguous=False)
        return Methods.as_view(self, np.transpose, (self,), {})

    @property
    @attended
    def mT(self: Any) -> Any:
        """The array with its last two axes swapped."""
        here.site = user_site(3, "x.mT")
        return Methods.as_view(self, np.matrix_transpose, (self,), {})

    @property
    def real(self: Any) -> Any:
        """The real part: a view, which can be written to. Of real numbers it is the array itself."""
        here.site = user_site(via="x.real")
        return self.seen_through(RealPart()) if self.dtype.kind == "c" else self

    @real.setter
    def real(self: Any, new: Any) -> None:
        here.site = user_site(via="x.real")
        self.real[...] = new

    @property
    def imag(self: Any) -> Any:
        """The imaginary part: a view, which can be written to. Of real numbers it is zero."""
        here.site = user_site(via="x.imag")
        if self.dtype.kind == "c":
            return self.seen_through(ImaginaryPart())
        return self.wrapped(call_function(np.imag, (self,), {}))

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

    @attended
    def clip(self: Any, min: Any = None, max: Any = None) -> Any:
        """Return the array with its elements limited: ``np.clip``, one bound may be left out."""
        here.site = user_site(3, "x.clip")
        return self.wrapped(call_function(np.clip, (self, min, max), {}))

    @attended
    def conj(self: Any) -> Any:
        """Return the complex conjugate."""
        here.site = user_site(3, "x.conj")
        return self.wrapped(call_ufunc(np.conjugate, "__call__", (self,), {}))

    conjugate = conj

    @attended
    def flatten(self: Any, order: str = "C") -> Any:
        """Return a copy with one axis."""
        here.site = user_site(3, "x.flatten")
        return self.wrapped(call_function(np.ravel, (self,), {"order": order}))

    def copy(self: Any, order: str = "C") -> Any:
        """Return an array of its own with the same content."""
        return self.wrapped(self.value)

    @attended
    def astype(
        self: Any,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """Return the array with another dtype; the derivative follows between floats."""
        here.site = user_site(3, "x.astype")
        wanted = number_dtype(dtype)
        if not np.can_cast(self.dtype, wanted, casting):  # type: ignore[arg-type]
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {wanted!r} according to the rule '{casting}'"
            )
        return self.wrapped(strengthen(convert(self.value, wanted)))

    def fill(self: Any, number: Any) -> None:
        """Set every element."""
        self[...] = number

    def put(self: Any, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Set elements by their flat indices: ``np.put``."""
        np.put(self, indices, values, mode)

    def sort(self: Any, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        """Sort in place: ``np.sort``."""
        here.site = user_site(via="x.sort")
        self.rebind(call_function(np.sort, (self,), {"axis": axis}))

    def partition(self: Any, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
        """Partition in place: ``np.partition``."""
        here.site = user_site(via="x.partition")
        self.rebind(call_function(np.partition, (self, kth), {"axis": axis}))

    @property
    def flat(self: Any) -> Any:
        """Refuse: NumPy's flat iterators have no traced form."""
        raise InPlaceError(
            "x.flat of a traced array", where=user_site(), remedy="use x.ravel() (a view), or x.reshape(-1)"
        )


_VARIADIC = frozenset({np.atleast_1d, np.atleast_2d, np.atleast_3d})

_TRANSPOSED: Any = vars(Methods)["T"].fget
