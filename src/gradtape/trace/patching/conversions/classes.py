"""Classes of NumPy's that are written in Python: ``np.r_``, ``np.vectorize``, ``np.matrix``; and ``as_strided``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy._core import fromnumeric

from gradtape.errors import ArraySubclassError
from gradtape.ir.builder import here
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import numbers_for_reader
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import is_c_contiguous, with_layout_of
from gradtape.trace.array.masked import without_selections
from gradtape.trace.array.view_functions import strided
from gradtape.trace.patching import recorders
from gradtape.trace.patching.asarray import converted_by_object
from gradtape.trace.patching.conversions.sequences import Function, as_ndarray_or_traced, find_traced
from gradtape.trace.patching.functions import hook_function, with_names
from gradtape.trace.source.sites import user_site
from gradtape.trace.subclasses.instances import TracedNdarray, holds_instance
from gradtape.trace.subclasses.masked_arrays import as_traced, median_of_traced


def _index_trick(plain: Function) -> Function:
    """Return the handler of ``np.r_[...]`` and ``np.c_[...]``: NumPy's own code arranges the positions of the elements."""

    def getitem(self: Any, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if isinstance(key, str) or find_traced(items) is None:
            return plain(self, key)
        arrays: list[Any] = []
        kinds: list[Any] = []
        positions: list[Any] = []
        size = 0
        for item in items:
            if isinstance(item, str):
                positions.append(item)
                continue
            array = plain(np.r_, item) if isinstance(item, slice) else as_ndarray_or_traced(item)
            positions.append(np.arange(size, size + array.size).reshape(array.shape) if array.ndim else size)
            size += array.size
            kinds.append(item if type(item) in (bool, int, float, complex) else array.dtype)
            arrays.append(array)
        kind = np.result_type(*kinds)
        flat = np.concatenate([np.ravel(array).astype(kind) for array in arrays])
        order = np.asarray(plain(self, tuple(positions)))
        return (
            flat.reshape(order.shape)
            if np.array_equal(order.ravel(), np.arange(size))
            else np.take(flat, order)
        )

    return getitem


def _vectorize_call(plain: Function) -> Function:
    """Return the handler of functions of `numpy.vectorize`: the function is called with one traced number after the other."""

    def call(self: Any, func: Any, args: Any) -> Any:
        args = without_selections(args)
        if find_traced(args) is None:
            return plain(self, func, args)
        dims = self._in_and_out_core_dims
        cores = [0] * len(args) if dims is None else [len(names) for names in dims[0]]
        arrays = [as_ndarray_or_traced(argument) for argument in args]
        shape = np.broadcast_shapes(
            *[array.shape[: array.ndim - core] for array, core in zip(arrays, cores, strict=True)]
        )
        operands = [
            np.broadcast_to(array, (*shape, *array.shape[array.ndim - core :]))
            for array, core in zip(arrays, cores, strict=True)
        ]
        results = [func(*[array[index] for array in operands]) for index in np.ndindex(*shape)]
        if not results:
            return plain(self, func, args)
        ordered = arrays if dims is None else ()  # with a signature NumPy's results are C-ordered
        if not isinstance(results[0], tuple):
            return _stack_results(results, shape, self.otypes[0] if self.otypes else None, ordered)
        kinds = self.otypes or [None] * len(results[0])
        return tuple(
            [
                _stack_results(parts, shape, kind, ordered)
                for parts, kind in zip(zip(*results, strict=True), kinds, strict=True)
            ]
        )

    return call


def _stack_results(results: Any, shape: tuple[int, ...], kind: Any, operands: Sequence[Any]) -> Any:
    """Return the results for all elements as an array with the layout that a ufunc of the operands has."""
    array = np.stack([as_ndarray_or_traced(result) for result in results])
    array = array.reshape((*shape, *array.shape[1:]))
    array = array.astype(kind) if kind else array
    if not isinstance(array, Array) or all(map(is_c_contiguous, operands)):
        return array
    return with_layout_of(array.copy(), operands)


def _refuse_matrix(plain: Function) -> Function:
    """Return the handler of `numpy.matrix`, which raises an error for traced arrays."""

    def new(kind: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        if find_traced(data) is None:
            return plain(kind, data, *args, **kwargs)
        raise ArraySubclassError(
            "a matrix, a subclass of ndarray, meets a traced array",
            where=user_site(),
            why="its operators differ from those of arrays",
            remedy="use np.asarray(m), and @ for products",
        )

    return new


class _NameOfNdarray(type):
    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, np.ndarray | Handle)


class _Ndarray(metaclass=_NameOfNdarray):
    """The meaning of the name `ndarray` in the code that makes masked arrays, where the elements are traced."""

    @staticmethod
    def view(array: Any, kind: type) -> Any:
        return array.view(kind)


def _masked_array(plain: Function) -> Function:
    """Return the handler of masked arrays. Of traced elements they are instances, made by NumPy's code, in which `ndarray` is a name of
    traced arrays as well."""
    of_traced = with_names(plain, ndarray=_Ndarray)

    def new(cls: Any, data: Any = None, *args: Any, **options: Any) -> Any:
        numbers = numbers_for_reader(data.value) if isinstance(data, Handle) else None
        if numbers is not None:
            data = numbers
        if find_traced((args[:1], options.get("mask"))) is not None:
            data = as_traced(data)
        if not (isinstance(data, Handle) or holds_instance(data) or find_traced(data) is not None):
            return plain(cls, data, *args, **options)
        made = of_traced(cls, data, *args, **options)
        if isinstance(made, TracedNdarray):
            made._baseclass = np.ndarray
        return made

    return new


def _method_of_object(plain: Function) -> Function:
    """Return the handler of functions that call a method of what an object converts itself to: ``np.nonzero(x)`` is ``x.nonzero()``."""

    def call(obj: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        made = converted_by_object(obj)
        return plain(obj, method, *args, **kwargs) if made is None else getattr(made, method)(*args, **kwargs)

    return call


def _as_strided(plain: Function) -> Function:
    """Return the handler of ``np.lib.stride_tricks.as_strided``, which asks arrays for their memory."""

    def call(x: Any, shape: Any = None, strides: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Array):
            return plain(x, shape, strides, *args, **kwargs)
        here.site = user_site(via="as_strided")
        return strided(x, shape, strides, bool(args[1] if len(args) > 1 else kwargs.get("writeable", True)))

    return call


def _hook_classes() -> None:
    hook_function(np.lib.stride_tricks.as_strided, _as_strided)  # type: ignore[arg-type]
    joining: Any = type(np.r_).__mro__[1]
    mapping: Any = np.vectorize
    masked: Any = np.ma
    wrapping: Any = fromnumeric
    hook_function(masked.MaskedArray.__new__, _masked_array)
    hook_function(masked.extras._median, median_of_traced)
    hook_function(np.matrix.__new__, _refuse_matrix)  # type: ignore[arg-type]
    hook_function(wrapping._wrapit, _method_of_object)
    hook_function(joining.__getitem__, _index_trick)
    hook_function(mapping._vectorize_call, _vectorize_call)


recorders.before_recording(_hook_classes)
