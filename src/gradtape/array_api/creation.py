"""Creation functions of the array API standard: NumPy's arguments, an `Array` as the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import ArgumentError, DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, constant
from gradtape.kinds.operands import check_dtype, number_dtype
from gradtape.ops.core.elementwise import cast
from gradtape.ops.core.join import full as full_value
from gradtape.trace.array.array import Array, to_array
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.source.sites import user_site


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Array:
    """Return an `Array` of numbers, nested lists, an ndarray, or an Array.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.asarray([1, 2], dtype=xp.float32)
    Array([1., 2.], dtype=float32)
    """
    here.site = user_site()
    check_device(device)
    wanted = None if dtype is None else number_dtype(dtype)
    if isinstance(obj, Handle):
        array = obj if isinstance(obj, Array) else Array(obj.value)
        if wanted is not None and wanted != array.dtype:
            if copy is False:
                raise _copied("obj", f"its dtype is {array.dtype}, not {wanted}")
            return _writable(Array(cast.convert(array.value, wanted)))
        return _writable(array.copy() if copy else array)
    if copy is False:
        if hasattr(obj, "__dlpack__"):
            return from_dlpack(obj, device=device, copy=False)
        raise _copied("obj", "an Array is a value, and takes the numbers of other objects as a copy")
    if isinstance(obj, list | tuple) and any(isinstance(item, Handle | list | tuple) for item in obj):
        array = to_array(unwrap(obj), "obj")
    else:
        numbers = np.asarray(obj)
        array = to_array(obj if numbers.dtype == object else numbers, "obj")
    made = array if wanted is None or wanted == array.dtype else Array(cast.convert(array.value, wanted))
    value = made.value
    return _writable(Array(Value(value.aval, data=value.data)) if isinstance(value, Literal) else made)


def _writable(array: Array) -> Array:
    """Return an array of rank 0, whose element can be set, for what is a number in NumPy; the standard has no numbers."""
    made: Array = array[...] if array.is_scalar else array
    return made


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """Return an `Array` on the memory of an array of another library, without a copy.

    The other library must not change the numbers afterwards: an Array is a value. Memory that is not in C order, or not aligned, is
    copied, unless `copy` is False.

    Raises
    ------
    ArgumentError
        If `copy` is False and a copy is needed.
    DtypeError
        For a dtype that NumPy does not have, such as bfloat16.

    Examples
    --------
    >>> import numpy as np, gradtape.array_api as xp
    >>> xp.from_dlpack(np.arange(3.0))
    Array([0., 1., 2.])
    """
    here.site = user_site()
    check_device(device)
    if isinstance(x, Array):
        return x.copy() if copy else x
    if isinstance(x, Handle):
        return asarray(x, copy=copy)
    try:
        shared = np.from_dlpack(x, copy=copy) if copy is not None else np.from_dlpack(x)
    except RuntimeError as error:
        raise DtypeError(
            f"from_dlpack got an array of {getattr(x, 'dtype', type(x).__name__)}",
            where=user_site(),
            why="NumPy has no such dtype",
            remedy="convert it first: x.float() in PyTorch, x.astype(jnp.float32) in JAX",
        ) from error
    dtype = check_dtype(shared.dtype, "x")
    plain = np.require(shared, dtype, ["C", "A"])
    if copy is False and plain is not shared:
        raise _copied("x", "its memory is not in C order, or not aligned")
    return Array(constant(plain))


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Array:
    """Return the numbers from `start` to `stop`, without `stop`, in steps of `step`.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.arange(3)
    Array([0, 1, 2], dtype=int64)
    """
    check_device(device)
    given = (0, start, step) if stop is None else (start, stop, step)
    return asarray(np.arange(*given, dtype=dtype))


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Array:
    """Return `num` numbers at equal distances.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.linspace(0.0, 1.0, 3)
    Array([0. , 0.5, 1. ])
    """
    check_device(device)
    return asarray(np.linspace(start, stop, num, dtype=dtype, endpoint=endpoint))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: str | None = None,
) -> Array:
    """Return a matrix with ones on a diagonal.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.eye(2)
    Array([[1., 0.],
           [0., 1.]])
    """
    check_device(device)
    return asarray(np.eye(n_rows, n_cols, k=k, dtype=np.float64 if dtype is None else dtype))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Array:
    """Return an array of one number, which may be traced.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.full(2, 7.0)
    Array([7., 7.])
    """
    check_device(device)
    if isinstance(fill_value, Handle):
        number: Any = fill_value if dtype is None else asarray(fill_value, dtype=dtype)
        return asarray(np.broadcast_to(number, shape).copy())
    return asarray(np.full(shape, fill_value, dtype))


def zeros(shape: Any, *, dtype: Any = None, device: str | None = None) -> Array:
    """Return an array of zeros.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.zeros(2)
    Array([0., 0.])
    """
    return _filled(shape, 0, dtype, device)


def ones(shape: Any, *, dtype: Any = None, device: str | None = None) -> Array:
    """Return an array of ones.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.ones(2)
    Array([1., 1.])
    """
    return _filled(shape, 1, dtype, device)


def empty(shape: Any, *, dtype: Any = None, device: str | None = None) -> Array:
    """Return an array of zeros: an Array has no memory that could be left as it is.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.empty(2).shape
    (2,)
    """
    return _filled(shape, 0, dtype, device)


def full_like(
    x: Any, /, fill_value: Any, *, dtype: Any = None, device: str | None = None, shape: Any = None
) -> Array:
    """Return an array of one number, with the shape and the dtype of `x`, unless others are given.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.full_like(xp.ones(2), 7)
    Array([7., 7.])
    """
    return full(
        x.shape if shape is None else shape,
        fill_value,
        dtype=x.dtype if dtype is None else dtype,
        device=device,
    )


def zeros_like(x: Any, /, *, dtype: Any = None, device: str | None = None, shape: Any = None) -> Array:
    """Return an array of zeros, with the shape and the dtype of `x`, unless others are given.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.zeros_like(xp.arange(2))
    Array([0, 0], dtype=int64)
    """
    return _filled(x.shape if shape is None else shape, 0, x.dtype if dtype is None else dtype, device)


def ones_like(x: Any, /, *, dtype: Any = None, device: str | None = None, shape: Any = None) -> Array:
    """Return an array of ones, with the shape and the dtype of `x`, unless others are given.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.ones_like(xp.arange(2))
    Array([1, 1], dtype=int64)
    """
    return _filled(x.shape if shape is None else shape, 1, x.dtype if dtype is None else dtype, device)


def empty_like(x: Any, /, *, dtype: Any = None, device: str | None = None, shape: Any = None) -> Array:
    """Return an array of zeros, with the shape and the dtype of `x` unless others are given; see `empty`.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.empty_like(xp.arange(2)).dtype
    dtype('int64')
    """
    return _filled(x.shape if shape is None else shape, 0, x.dtype if dtype is None else dtype, device)


def check_device(device: str | None) -> None:
    """Raise ArgumentError for a device other than that of all arrays."""
    if device not in (None, "cpu"):
        raise ArgumentError(
            f"device={device!r}",
            where=user_site(),
            why="arrays are in the memory of the host",
            remedy='pass device="cpu", or none',
        )


def _filled(shape: Any, number: int, dtype: Any, device: str | None) -> Array:
    """Return an array of one known number: a fill, of which a kernel needs no memory."""
    here.site = user_site(2)
    check_device(device)
    wanted = number_dtype(np.float64 if dtype is None else dtype)
    extents = np.broadcast_shapes(shape)
    return Array(full_value(extents, number, wanted)) if extents else asarray(np.full((), number, wanted))


def _copied(argument: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"{argument} cannot be taken without a copy",
        where=user_site(),
        why=why,
        remedy="omit copy=False",
    )
