"""Reading the arguments of NumPy's functions: arrays, axes, and numbers on which a shape depends."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.exceptions import AxisError
from numpy.lib.array_utils import normalize_axis_index

from gradtape.errors import ConcretizationError, DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, Shape
from gradtape.kinds.elementwise import promotion_type, result_dtype
from gradtape.kinds.operands import NUMBER_LIKE, as_value
from gradtape.kinds.registry import HOOKS

NO_VALUE: Any = np._NoValue
"""What NumPy's own signatures have for "not given"."""


def as_array(operand: Any, argument: str = "operand") -> Value:
    """Return an operand as np.asarray would: a Python number has its dtype for good."""
    value = as_value(operand, argument)
    if not value.aval.weak:
        return value
    if isinstance(value, Literal):
        return literal(value.data, value.dtype)
    return PRIMITIVES["convert"](value, value.dtype)


def promoted(*operands: Any) -> list[Value]:
    """Return operands as arrays of their common dtype."""
    arrays = [as_array(operand) for operand in operands]
    dtype = arrays[0].dtype
    if all(array.dtype is dtype for array in arrays):
        return arrays
    dtype = np.result_type(*[array.dtype for array in arrays])
    return [PRIMITIVES["convert"](array, dtype) for array in arrays]


def common_dtype(*operands: Value) -> np.dtype[Any]:
    """Return NumPy's common dtype, in which weak operands give way."""
    return result_dtype(*[promotion_type(operand.aval) for operand in operands])


def operand_dtypes(
    ufunc: Any, types: Sequence[Aval], dtype: Any, casting: str = "same_kind"
) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes to which a ufunc converts its operands where its results are to have a dtype.

    Raises
    ------
    TypeError
        NumPy's, where it has no loop for the dtype, or `casting` does not allow the conversion.
    """
    given = [promotion_type(type_) for type_ in types]
    results = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    resolved: tuple[np.dtype[Any], ...] = ufunc.resolve_dtypes(
        (*given, *(None,) * ufunc.nout), signature=results, casting=casting
    )
    return resolved[: ufunc.nin]


def known_numbers(operand: Any) -> NDArray | None:
    """Return the numbers of an argument on which a shape depends; None where they are not known while tracing."""
    return HOOKS.numbers(operand) if isinstance(operand, Value) else np.asarray(operand)


def concrete(operand: Any, argument: str) -> NDArray:
    """Return the numbers of an argument on which a shape depends.

    Raises
    ------
    ConcretizationError
        Where they are not known while tracing.
    """
    if isinstance(operand, Value):
        data = HOOKS.numbers(operand)
        if data is None:
            raise ConcretizationError(
                f"{argument} of shape {operand.shape} is traced, and its values are needed",
                where=here.site,
                why="the shape or the operations depend on them, and a trace knows only shapes and dtypes",
                remedy="pass an ndarray or a Python number, or call it outside the jitted function",
            )
        return data
    if type(operand) in NUMBER_LIKE:
        number: NDArray = operand.__array__()
        return number
    if isinstance(operand, list | tuple):
        return np.asarray([concrete(item, argument) for item in operand], None if len(operand) else np.intp)
    return np.asarray(operand)


def known(value: Value) -> NDArray | None:
    """Return the numbers of a value, None where they cannot be had: in a function that is mapped, or in the body of a loop."""
    try:
        return HOOKS.numbers(value)
    except ConcretizationError:
        return None


def as_int(operand: Any, argument: str) -> int:
    """Return an argument as a Python integer; TypeError where it is not one."""
    if isinstance(operand, Value):
        return operator.index(concrete(operand, argument)[()])
    if isinstance(operand, str):
        raise _is_a_name(operand, argument)
    return operator.index(operand)


def _is_a_name(operand: str, argument: str) -> DtypeError:
    """Return the error for a string in the place of an integer: most often the name of a dimension in xarray's methods."""
    if argument != "axis":
        return DtypeError(
            f"{argument} is {operand!r}: 'str' object cannot be interpreted as an integer", where=here.site
        )
    return DtypeError(
        f"axis is {operand!r}: 'str' object cannot be interpreted as an integer",
        where=here.site,
        why="a traced array has no labels and no named dimensions",
        remedy="write the number of the axis, np.sum(x**2, axis=0); or pass an array of xarray, or label the array inside the function, "
        "xr.DataArray(x, dims=...).sum('t')",
    )


def as_shape(shape: Any) -> Shape:
    """Return a shape as a tuple of integers."""
    if isinstance(shape, Value):
        shape = concrete(shape, "shape")
    if (
        hasattr(shape, "tolist") and shape.ndim
    ):  # an ndarray, or a preallocated array; not a number, which may be traced
        shape = shape.tolist()
    if isinstance(shape, Sequence):
        return tuple(as_int(extent, "shape") for extent in shape)
    return (as_int(shape, "shape"),)


def listed(axes: Any) -> Any:
    """Return axes that are given as an array as lists of integers, and others as they are.

    NumPy takes arrays where it goes through the axes, as in `numpy.flip`, and not in reductions.
    """
    return concrete(axes, "axis").tolist() if getattr(axes, "ndim", 0) else axes


def one_axis(axis: Any, ndim: int) -> int:
    """Return an axis as a non-negative integer.

    Raises
    ------
    numpy.exceptions.AxisError
        Where there is no such axis.
    """
    return normalize_axis_index(as_int(axis, "axis"), ndim)


def some_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return an axis, a tuple of axes or None (all) as non-negative integers in the order given."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple(one_axis(each, ndim) for each in axes)
    if len(set(found)) != len(found):
        raise ValueError("duplicate value in 'axis'")
    return found


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return what a reduction runs over, sorted. Axis 0 of a number is allowed, as in NumPy."""
    if ndim == 0 and not isinstance(axis, tuple) and axis is not None:
        if as_int(axis, "axis") not in (0, -1):
            raise AxisError(axis, ndim)
        return ()
    return tuple(sorted(some_axes(axis, ndim)))


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return the shape with extent 1 for the reduced axes."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def lookup(namespace: Any, name: str) -> Any:
    """Return a function of NumPy, or None where the NumPy at hand lacks it."""
    return getattr(namespace, name, None)


OWN_ORDER: Final[frozenset[Any]] = frozenset(
    {
        np.cross,
        np.linalg.cross,
        np.nanquantile,
        np.nanpercentile,
        np.quantile,
        np.percentile,
        np.einsum,
        np.apply_along_axis,
        np.apply_over_axes,
    }
)
"""Functions whose results may be in another order than that of C even where their arguments are."""


def iteration_order(ndim: int, strides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the axes from the slowest to the fastest, sorted by insertion as `numpy.nditer` sorts them: C order wins where operands
    disagree or do not tell."""
    order = list(range(ndim))[::-1]  # the fastest first
    for place in range(1, ndim):
        moving = order[place]
        goal = place
        for before in range(place - 1, -1, -1):
            ambiguous, swap = True, False
            for own in strides:
                slow, fast = abs(own[moving]), abs(own[order[before]])
                if slow and fast:
                    swap = swap if not ambiguous and fast > slow else fast > slow
                    ambiguous = False
            if ambiguous:
                continue
            if not swap:
                break
            goal = before
        order.insert(goal, order.pop(place))
    return tuple(order[::-1])
