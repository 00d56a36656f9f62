"""The memory layout that NumPy's array would have: whether a reshape is a view or a copy depends on it.

A traced array has no memory. What is known of the layout is kept in `Handle._contiguous`: True for a C-contiguous array, the axes from the
slowest to the fastest for an array of its own that is dense in another order, `Strides` for an argument with gaps, and False where the
base of a view has to be asked, or where nothing is known. The questions themselves are answered by NumPy, on arrays of the same shape
and strides without content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import iteration_order
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.views import UncertainView


class Strides(tuple[int, ...]):
    """The strides of an argument that is not dense, or of an array that NumPy treats alike."""

    __slots__ = ()


Layout = bool | tuple[int, ...] | Strides


class ArgumentMemory(NamedTuple):
    """What code can ask of the memory of an argument, beyond what results may depend on.

    An `Array` that stands for an argument has it in place of a view.
    """

    strides: tuple[int, ...]
    writeable: bool
    aligned: bool
    owndata: bool


def memory_of(operand: Any) -> ArgumentMemory | None:
    """Return the memory of an ndarray, or of the ndarray for which an array stands; None for others."""
    if issubclass(type(operand), np.ndarray):
        flags = operand.flags
        return ArgumentMemory(operand.strides, flags.writeable, flags.aligned, flags.owndata)
    memory = (
        getattr(operand, "_view", None) if isinstance(operand, Handle) and operand._base is None else None
    )
    return memory if type(memory) is ArgumentMemory else None


def remember_memory(array: Handle, operand: Any) -> None:
    """Let an array that stands for an argument know the memory of it."""
    memory = memory_of(operand)
    if memory is not None:
        array._view = memory


def root_of(array: Any) -> Any:
    """Return the array of which an array is a view, directly or not; itself if it is none."""
    while isinstance(array._base, Handle):
        array = array._base
    return array


def layout_of(array: NDArray) -> Layout:
    """Return the layout of an ndarray that is not a view."""
    if array.flags.c_contiguous:
        return True
    order = tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))
    return order if array.transpose(order).flags.c_contiguous else _simplest(array)


def _simplest(array: NDArray) -> Strides:
    """Return strides of the same signs and order, with gaps where the array has gaps: few calls differ in those."""
    strides, shape = array.strides, array.shape
    simple = [0 if stride == 0 else array.itemsize for stride in strides]
    before = None
    for axis in sorted(range(array.ndim), key=lambda axis: (abs(strides[axis]), axis)):
        if shape[axis] <= 1 or strides[axis] == 0:
            continue
        if before is None:
            step = array.itemsize
            gap = abs(strides[axis]) != step
        else:
            step = abs(simple[before]) * shape[before]
            gap = abs(strides[axis]) != abs(strides[before]) * shape[before]
        step *= 2 if gap else 1
        simple[axis] = step if strides[axis] > 0 else -step
        before = axis
    return Strides(simple)


def argument_layout(array: NDArray | np.generic) -> Layout:
    """Return the layout of an argument: of an ndarray of rank 0 it is False, since that is not a scalar; of a scalar it is True."""
    return layout_of(array) if isinstance(array, np.ndarray) and array.ndim else isinstance(array, np.generic)


def layout_of_operand(operand: Any) -> Layout:
    """Return the layout of the placeholder of an argument: that of the array; of an array of rank 0 False, of a number True."""
    if isinstance(operand, Handle):
        layout: Layout = operand._contiguous
        if operand._base is None:
            return layout
        shadow = shadow_of(operand)
        return shadow is not None and operand.ndim > 0 and layout_of(shadow)
    return argument_layout(operand) if isinstance(operand, np.ndarray | np.generic) else True


def layout_of_element(batch: Any, axis: int) -> Layout:
    """Return the layout of an element of an array along an axis, a view: True for a number, False where nothing is known."""
    shadow = shadow_of(batch)
    if shadow is None or shadow.ndim < 2 or not shadow.size:
        return shadow is not None and shadow.ndim == 1
    return layout_of(np.moveaxis(shadow, axis, 0)[0])


def laid_out_as(numbers: NDArray, array: Any) -> NDArray:
    """Return the numbers of a traced array, which are C-contiguous, in the order that NumPy's array would have, where that is known."""
    if array._contiguous is True or numbers.ndim < 2 or (shadow := shadow_of(array)) is None:
        return numbers
    order = iteration_order(numbers.ndim, [_own_strides(shadow)])
    return np.ascontiguousarray(numbers.transpose(order)).transpose(np.argsort(order))


def fortran(ndim: int) -> Layout:
    """Return the layout of Fortran-ordered arrays."""
    return True if ndim < 2 else tuple(range(ndim))[::-1]


@lru_cache(maxsize=1024)
def _shadow(shape: Shape, strides: tuple[int, ...] | None, dtype: np.dtype[Any]) -> NDArray:
    """Return an array with a shape and strides, whose elements must not be read. Without strides it is C-contiguous."""
    if strides is None:
        strides = _c_strides(shape, dtype.itemsize)
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def _c_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(strides[::-1])


def _dense(shape: Shape, order: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    inner = _shadow(tuple([shape[axis] for axis in order]), None, dtype)
    return inner.transpose([order.index(axis) for axis in range(len(order))])


def shadow_of(operand: Any) -> NDArray | None:
    """Return an array with the layout of NumPy's, whose elements must not be read; None where the layout is not known."""
    if not isinstance(operand, Handle):
        return operand if isinstance(operand, np.ndarray) else None
    layout = operand._contiguous
    if layout is True or not operand.ndim:
        return _shadow(operand.shape, None, operand.dtype)
    if type(layout) is Strides:
        return _shadow(operand.shape, tuple(layout), operand.dtype)
    if layout is not False:
        return _dense(operand.shape, layout, operand.dtype)
    operand.value  # noqa: B018 - lets what was promised become what it is
    base = operand._base
    if isinstance(base, Handle):
        shadow = None if type(operand._view) is UncertainView else shadow_of(base)
        return None if shadow is None else operand._view.numpy_view(shadow)
    numbers = getattr(base, "numbers", None)  # the memory of a preallocated array
    return numbers if issubclass(type(numbers), np.ndarray) else None


def exact_shadow_of(array: Handle) -> NDArray | None:
    """Return what `shadow_of` returns, with the exact strides and flags where the array is an argument or a view of one."""
    memory = memory_of(root_of(array))
    if memory is None:
        return shadow_of(array)
    views = []
    while isinstance(array._base, Handle):
        if type(array._view) is UncertainView:
            return None
        views.append(array._view)
        array = array._base
    start = 0 if memory.aligned else 1
    item = np.empty(array.dtype.itemsize + start, np.uint8)[start:].view(array.dtype)
    shadow = np.lib.stride_tricks.as_strided(item, array.shape, memory.strides, writeable=memory.writeable)
    for view in reversed(views):
        shadow = view.numpy_view(shadow)
    return shadow


def strides_of(operand: Any) -> Shape | None:
    """Return the strides, in elements, of an array that is not C-contiguous; None for others.

    They are ``()`` where they are not known, and where elements are repeated: NumPy lays out copies of such an array and elementwise
    results of it in different orders.
    """
    shadow = shadow_of(operand)
    if shadow is None:
        return () if isinstance(operand, Handle) and operand.ndim > 1 else None
    if shadow.flags.c_contiguous:
        return None
    simple = _simplest(shadow)
    return () if 0 in simple else tuple([stride // shadow.itemsize for stride in simple])


def layout_of_copy(operand: Any) -> Layout:
    """Return the layout of a copy of an array (``order="K"``), whose axes NumPy sorts by their strides, those of repeated elements last."""
    shadow = shadow_of(operand)
    if shadow is None:
        return False
    order = tuple(sorted(range(shadow.ndim), key=lambda axis: -abs(shadow.strides[axis])))
    return True if order == tuple(range(shadow.ndim)) else order


def layout_in_order(operand: Handle, order: str) -> Layout:
    """Return the layout of a copy of an array in order C, F, A or K."""
    if order == "K" and operand._contiguous is not True:
        return layout_of_copy(operand)
    if order == "A" and operand._contiguous is not True:
        shadow = shadow_of(operand)
        if shadow is None:
            return False
        order = "F" if shadow.flags.f_contiguous and not shadow.flags.c_contiguous else "C"
    return fortran(operand.ndim) if order == "F" else True


def layout_of_result(shape: Shape, operands: Iterable[Any], cores: Sequence[int] = ()) -> Layout:
    """Return the layout of a new array of a shape that NumPy's iterators fill from operands (``order="K"``).

    Of generalised ufuncs they go over all axes but the last ones of each operand, `cores`, and those of the result are the innermost.
    """
    if len(shape) < 2:
        return True
    strides_of_operands = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, Handle | np.ndarray):
            continue
        shadow = shadow_of(operand)
        if shadow is None:
            return False
        operand_strides = _own_strides(shadow)
        strides_of_operands.append(
            operand_strides[: max(len(operand_strides) - cores[position], 0)] if cores else operand_strides
        )
    axes = max(map(len, strides_of_operands), default=0) if cores else len(shape)
    strides = [
        [0] * (axes - len(operand_strides)) + operand_strides + [0] * (len(shape) - axes)
        for operand_strides in strides_of_operands
    ]
    order = iteration_order(len(shape), strides)
    return True if order == tuple(range(len(shape))) else order


def layout_of_picked(shape: Shape, indices: Sequence[Any]) -> Layout:
    """Return the layout of what index arrays pick that stand at all axes: NumPy fills it in their order, and lists are C-contiguous."""
    return layout_of_result(
        shape, [np.empty(_extents(item)) if isinstance(item, list) else item for item in indices]
    )


def _extents(nested: Any) -> Shape:
    """Return the shape of nested lists, whose items may be traced."""
    return (
        (len(nested), *(_extents(nested[0]) if nested else ()))
        if isinstance(nested, list | tuple)
        else np.shape(nested)
    )


def _own_strides(array: NDArray) -> list[int]:
    """Return the strides of an array that say something about its order."""
    return [0 if extent == 1 else stride for extent, stride in zip(array.shape, array.strides, strict=True)]


def with_layout_of(result: Any, operands: Iterable[Any], signature: str | None = None) -> Any:
    """Set the layout of the results of a ufunc, or of another elementwise operation, to that of NumPy's results, and return them."""
    operands = tuple(operands)
    cores = () if signature is None else _core_ranks(signature)
    for array in result if type(result) in (tuple, list) else (result,):
        if isinstance(array, Handle) and array._base is None and len(shape := array._current.aval.shape) > 1:
            array._contiguous = layout_of_result(shape, operands, cores)
    return result


@lru_cache
def _core_ranks(signature: str) -> tuple[int, ...]:
    """Return how many axes a generalised ufunc takes of each operand: (2, 1) for ``(m,n),(n)->(m)``."""
    operands = signature.partition("->")[0].replace(" ", "").split("),(")
    return tuple([len(operand.strip("()").split(",")) for operand in operands])


def is_c_contiguous(operand: Any) -> bool:
    """Return whether an operand is known to be C-contiguous, or is not an array."""
    if isinstance(operand, Handle):
        return operand._contiguous is True
    if isinstance(operand, np.ndarray):
        return operand.flags.c_contiguous
    return not isinstance(operand, list | tuple) or all(map(is_c_contiguous, operand))


def reshaped_view(array: NDArray, shape: Shape, order: str) -> NDArray | None:
    """Return the view of an array in another shape; None where NumPy copies."""
    try:
        return array.reshape(shape, order=order, copy=False)  # type: ignore[call-overload,no-any-return]
    except ValueError:
        return None


def memory_order(array: NDArray, order: str) -> str | tuple[int, ...]:
    """Return the order, C or F, that A or K means for an array; or, for K, its axes from the slowest to the fastest."""
    flags = array.flags
    if flags.c_contiguous:
        return "C"
    if flags.f_contiguous:
        return "F"
    return "C" if order == "A" else iteration_order(array.ndim, [_own_strides(array)])
