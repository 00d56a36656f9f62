"""NumPy's functions that return views of an array: their results here are views as well, which are written through or read-only.

Whether a reshape is a view depends on the order of the elements in memory (`gradtape.trace.array.layout`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from gradtape.collector import referrers
from gradtape.errors import InPlaceError, ShapeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_shape
from gradtape.kinds.operands import number_dtype
from gradtape.kinds.registry import FUNCTIONS
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.numpy.arrays.edit import trimmed
from gradtape.ops.numpy.arrays.shape import complete_shape
from gradtape.trace.array.handle import Handle, fresh_value, unwrap
from gradtape.trace.array.layout import (
    Strides,
    fortran,
    layout_of_copy,
    memory_order,
    remember_memory,
    reshaped_view,
    shadow_of,
)
from gradtape.trace.array.views import (
    ImaginaryView,
    PermutedView,
    ReadOnlyView,
    RealView,
    StridedView,
    SubsetView,
    UncertainView,
)
from gradtape.trace.dispatch.dispatch import call_function, public_name
from gradtape.trace.dispatch.op_cache import cached_call, not_set, reshape_template
from gradtape.trace.jit.guards import is_noted, note_write
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.force import force

Arguments = tuple[Any, ...]
Named = dict[str, Any]
Viewer = Callable[[Any, Any, Arguments, Named], Any]
"""``(function, array, other arguments, keywords)``: returns views, or None where the function is no view of this array."""


def view_of(function: Any, args: Sequence[Any], kwargs: Named) -> Any:
    """Return the view that a function of `VIEWING` returns, or None where it returns a copy."""
    viewer = VIEWING.get(function)
    if viewer is None:
        return None
    if function in OF_EACH:
        return viewer(function, None, tuple(args), kwargs)
    source_position = 1 if function is np.einsum else 0
    if len(args) <= source_position:
        name = _first_name(function)
        if source_position or name not in kwargs:
            return None
        args = (kwargs[name],)
        kwargs = {key: value for key, value in kwargs.items() if key != name}
    source = args[source_position]
    if not isinstance(source, Handle) or "out" in kwargs:
        return None
    return viewer(function, source, (*args[:source_position], *args[source_position + 1 :]), kwargs)


@lru_cache(maxsize=256)
def _first_name(function: Any) -> str:
    return next(iter(inspect.signature(function).parameters), "")


def _view_kind(kind: Any) -> Viewer:
    """Return the viewer of functions that permute elements and never copy: views of a `kind`."""

    def view(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
        contiguous = source._contiguous is True and function in KEEP_ORDER
        call = cached_call(FUNCTIONS[function], (source, *args), kwargs, [])
        if call is not None and call.view is not None:
            template = call.view
            if template.numpy_view is not_set:
                template.numpy_view = _numpy_view(function, args, kwargs)
            return source.rearranged(
                template if kind is PermutedView else kind(template.rearrange, template.numpy_view),
                contiguous=contiguous,
            )
        others = [unwrap(argument) for argument in args]

        def rearrange(value: Value) -> Value:
            result: Value = call_function(function, (value, *others), dict(kwargs))
            return result

        return source.rearranged(kind(rearrange, _numpy_view(function, args, kwargs)), contiguous=contiguous)

    return view


def _numpy_view(function: Any, args: Arguments, kwargs: Named) -> Any:
    def numpy_view(array: Any) -> Any:
        return function(array, *args, **kwargs)

    return numpy_view


def _reshaped(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    return reshape(source, *args, **kwargs)


def reshape(source: Any, shape: Any, order: str = "C", copy: Any = None) -> Any:
    """Return ``source.reshape(shape)``: a view where NumPy makes one."""
    if copy is not True and order == "C" and source._contiguous is True:
        template = reshape_template(source.value.aval, shape)
        if template is not None:
            return source.rearranged(template, contiguous=True)
    order = _known_order(source, order) if order == "A" else order
    extents = as_shape(shape)
    args, named = (source, extents), {"order": order}
    if copy is True or order not in ("C", "F"):
        return _fresh(source, call_function(np.reshape, args, named), order)
    shadow = shadow_of(source)
    if shadow is None:
        return _uncertain(source, call_function(np.reshape, args, named), "x.reshape")
    view = reshaped_view(shadow, extents, order)
    if view is None:
        copied_array = _fresh(source, call_function(np.reshape, args, named), order)
        if copy is False:
            raise ValueError("Unable to avoid creating a copy while reshaping.")
        return copied_array

    def rearrange(value: Value) -> Value:
        result: Value = call_function(np.reshape, (value, extents), dict(named))
        return result

    numpy_view = partial(_reshape_without_copy, shape=extents, order=order)
    return source.rearranged(PermutedView(rearrange, numpy_view), contiguous=view.flags.c_contiguous)


def set_shape(array: Any, shape: Any) -> None:
    """Follow ``array.shape = shape``: the array becomes a view of its former self, which has no other references."""
    extents, shadow = complete_shape(as_shape(shape), array.size), shadow_of(array)
    if array.shape == extents:
        return
    if math.prod(extents) != array.size:
        raise ShapeError(
            f"cannot reshape array of size {array.size} into shape {extents}",
            where=here.site,
            remedy=f"the product of the extents must be {array.size}",
        )
    if not array.ndim or shadow is None or any(x._base is array for x in referrers([array], Handle)):
        raise InPlaceError(
            f"x.shape = {extents} of a traced array of shape {array.shape}",
            where=here.site,
            why="it is a number, or it has views, or the order of its elements in memory is not known here",
            remedy="write x = x.reshape(...)",
        )
    if reshaped_view(shadow, extents, "C") is None:
        raise AttributeError(
            "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
        )
    prediction.materialise(array.value)
    base = object.__new__(type(array))
    base._base, base._contiguous = array._base, array._contiguous
    if array._base is None:
        remember_memory(base, array)
    else:
        base._view, base._derived = array._view, array._derived
    base._hold(array._current)
    view = reshape(base, extents)
    array._base, array._view, array._derived = base, view._view, view._derived
    array._contiguous = view._contiguous
    array._hold(view._current)


def resize(array: Any, *shape: Any, refcheck: bool = True) -> None:
    """Follow ``array.resize(shape)``: the array gets another size, with its first elements in it, and zeros behind them."""
    if not shape or shape == (None,):
        return
    extents = as_shape(shape[0] if len(shape) == 1 else shape)
    size, value = math.prod(extents), array.value
    owns = array._base is None or (getattr(array._base, "parent", array) is None and not array._base.views)
    has_views = any(x._base is array for x in referrers([array], Handle))
    source = value.node.inputs[0] if value.node is not None and value.node.op is identity else value
    note_write(source)
    if not owns or has_views or is_noted(source) or array.is_scalar or array._contiguous is not True:
        raise InPlaceError(
            f"x.resize({extents}) of a traced array of shape {array.shape}",
            where=here.site,
            why="it is a number or an argument, or is or has a view, or does not lie in memory in C order",
            remedy="write x = np.resize(x, shape), or np.concatenate([x, np.zeros(n)])",
        )
    prediction.materialise(value)
    zeros = np.zeros(max(size - array.size, 0), array.dtype)
    resized: Any = np.concatenate([array.ravel(), zeros])[:size].reshape(extents)
    array._base = None
    array._hold(fresh_value(resized.value))


def _reshape_without_copy(array: Any, shape: Any, order: str) -> Any:
    return array.reshape(shape, order=order, copy=False)


def _raveled(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    return ravel(source, *args, **kwargs)


def ravel(source: Any, order: str = "C") -> Any:
    """Return ``source.ravel()``: a view of an array that is contiguous in that order, else a copy."""
    order = _known_order(source, order) if order in ("A", "K") else order
    if type(order) is tuple:
        moved = source.transpose(order)
        if shadow_of(moved).flags.c_contiguous:  # type: ignore[union-attr] # its order is known
            return reshape(moved, (math.prod(source.shape),), "C")
        return flatten(source, order)
    if order in ("C", "F"):
        shadow = shadow_of(source)
        if shadow is None:
            return _maybe(source, call_function(np.ravel, (source,), {"order": order}), "x.ravel")
        if shadow.flags.c_contiguous if order == "C" else shadow.flags.f_contiguous:
            return reshape(source, (math.prod(source.shape),), order)
    return _fresh(source, call_function(np.ravel, (source,), {"order": order}), "C")


def flatten(source: Any, order: Any = "C") -> Any:
    """Return a copy with one axis."""
    order = _known_order(source, order) if order in ("A", "K") else order
    value = source.value
    if type(order) is tuple:
        value, order = FUNCTIONS[np.transpose](value, order), "C"
    return _fresh(source, call_function(np.ravel, (value,), {"order": order}), "C")


def _known_order(source: Any, order: str) -> Any:
    """Return the memory order that A or K means for an array."""
    shadow = shadow_of(source)
    if shadow is None:
        raise UnsupportedFunctionError(
            f"order={order!r} of an array whose order in memory is not known",
            where=here.site,
            why="NumPy's result depends on how an earlier function has laid out its result",
            remedy="pass order='C' or order='F', or take a copy in C order first: x.copy()",
        )
    return memory_order(shadow, order)


def _fresh(source: Any, value: Value, order: str) -> Any:
    copy = source.wrap_value(value)
    copy._contiguous = True if order != "F" else fortran(copy.ndim)
    return copy


def _uncertain(source: Any, value: Value, description: str) -> Any:
    """Return a reshaped array that may be a view of its source or a copy."""
    if [extent for extent in value.shape if extent != 1] == [
        extent for extent in source.shape if extent != 1
    ]:
        shape = value.shape  # NumPy copies nothing for the sake of axes of one element
        view: Any = PermutedView(
            lambda base: FUNCTIONS[np.reshape](base, shape),
            lambda array: array.reshape(shape, copy=False),
        )
        return source.rearranged(view, contiguous=False)
    return _maybe(source, value, description)


def _maybe(source: Any, value: Value, description: str) -> Any:
    return source.uncertain_view(
        value, UncertainView(f"{description} at {here.site}" if here.site else description)
    )


def _of_each(view: Callable[[Any, Any], Any]) -> Viewer:
    """Return the viewer of a function that returns a view of each of its arguments: an array for one, a tuple for several."""

    def views(function: Any, _: Any, args: Arguments, kwargs: Named) -> Any:
        if kwargs or not args or not all(isinstance(arg, Handle | np.ndarray) for arg in args):
            return None
        viewed = [view(function, arg) if isinstance(arg, Handle) else function(arg) for arg in args]
        return viewed[0] if len(viewed) == 1 else tuple(viewed)

    return views


def _broadcast_arrays(function: Any, _: Any, args: Arguments, kwargs: Named) -> Any:
    if kwargs or not args or not all(isinstance(arg, Handle | np.ndarray) for arg in args):
        return None
    shape = np.broadcast_shapes(*[arg.shape for arg in args])
    show = _view_kind(ReadOnlyView)
    return tuple(
        [
            (arg if arg.ndim else arg[...])
            if arg.shape == shape
            else show(np.broadcast_to, arg, (shape,), {})
            if isinstance(arg, Handle)
            else np.broadcast_to(arg, shape)
            for arg in args
        ]
    )


def _grid(function: Any, _: Any, args: Arguments, kwargs: Named) -> Any:
    """Return the arguments of ``np.ix_`` as views with one long axis each; masks become positions."""
    if kwargs or not all(
        isinstance(arg, Handle | np.ndarray) and arg.ndim == 1 and arg.dtype != bool for arg in args
    ):
        return None
    grids = []
    for own_axis, arg in enumerate(args):
        shape = tuple([arg.size if axis == own_axis else 1 for axis in range(len(args))])
        grids.append(reshape(arg, shape) if isinstance(arg, Handle) else arg.reshape(shape))
    return tuple(grids)


def _mesh(function: Any, _: Any, args: Arguments, kwargs: Named) -> Any:
    """Return the grids of ``np.meshgrid(..., copy=False)`` as views: read-only where they are broadcast.

    NumPy lets the latter be written to, with a warning, and what then is changed depends on the strides.
    """
    if kwargs.get("copy", True) is not False or not all(isinstance(arg, Handle | np.ndarray) for arg in args):
        return None
    if any(arg.ndim > 1 for arg in args):
        return None
    axes = list(range(len(args)))
    if kwargs.get("indexing", "xy") == "xy" and len(axes) > 1:
        axes[:2] = 1, 0
    grids = []
    for own_axis, arg in zip(axes, args, strict=True):
        shape = tuple([arg.size if axis == own_axis else 1 for axis in range(len(args))])
        grids.append(reshape(arg, shape) if isinstance(arg, Handle) else arg.reshape(shape))
    return tuple(grids) if kwargs.get("sparse") else _broadcast_arrays(function, None, tuple(grids), {})


def _diag(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    return _view_kind(ReadOnlyView)(function, source, args, kwargs) if source.ndim == 2 else None


def _part(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    if args or kwargs:
        return None
    if source.dtype.kind == "c":
        return source.part_view(RealView() if function is np.real else ImaginaryView())
    return source if function is np.real else zeros_for_imaginary(source)


def zeros_for_imaginary(source: Any) -> Any:
    """Return the imaginary part of real numbers: zeros that cannot be written to."""
    if source.value.aval.weak:
        return source.dtype.type(0).item()
    zeros = source.wrap_value(call_function(np.imag, (source,), {}))
    return zeros.read_only() if zeros.ndim else zeros


def _pieces(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    """Return the pieces of ``np.split`` and similar functions as views."""
    shapes = [piece.shape for piece in call_function(function, (source, *args), dict(kwargs))]
    if function is np.hsplit:
        axis = 1 if source.ndim > 1 else 0
    elif function in (np.vsplit, np.dsplit):
        axis = 0 if function is np.vsplit else 2
    else:
        axis = int(args[1] if len(args) > 1 else kwargs.get("axis", 0)) % source.ndim
    sections = args[0] if args else kwargs["indices_or_sections"]
    numbers: Any = force([sections.value])[0] if isinstance(sections, Handle) else sections
    pieces = []
    for piece, shape in zip(np.array_split(np.arange(source.shape[axis]), numbers), shapes, strict=True):
        start = int(piece[0]) if piece.size else 0
        pieces.append(source[(slice(None),) * axis + (slice(start, start + shape[axis]),)])
    return pieces


def _unstacked(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    call_function(function, (source, *args), dict(kwargs))  # which checks the arguments
    axis = int(kwargs.get("axis", 0)) % source.ndim
    return tuple([source[(slice(None),) * axis + (k,)] for k in range(source.shape[axis])])


def _einsum(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    """Return ``np.einsum`` of one operand as a view, if it has no summed subscript."""
    if len(args) != 1 or not isinstance(args[0], str) or not kwargs.keys() <= {"optimize"}:
        return None
    (subscripts,) = args
    value = call_function(function, (subscripts, source), {})
    tiny = np.zeros((2,) * source.ndim)
    view = np.einsum(subscripts, tiny)
    if not issubclass(type(view), np.ndarray) or not np.shares_memory(view, tiny):
        return source.unknown_layout_result(value)
    kind: Any = PermutedView if view.size == tiny.size else SubsetView

    def select(base: Value) -> Value:
        result: Value = call_function(np.einsum, (subscripts, base), {})
        return result

    return source.rearranged(kind(select, lambda array: np.einsum(subscripts, array)), contiguous=False)


def strided(source: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """Return ``np.lib.stride_tricks.as_strided(source, shape, strides)``, a view of the memory that the source is a part of."""
    root, chain = source, []
    while isinstance(root._base, Handle):
        chain.append(root._view)
        root = root._base
    shadow, root_shadow = shadow_of(source), shadow_of(root)
    if (
        shadow is None
        or root_shadow is None
        or type(root._contiguous) is Strides
        or StridedView in map(type, chain)
    ):
        raise UnsupportedFunctionError(
            "as_strided of an array whose memory is not known",
            where=here.site,
            why="it has gaps, or an earlier function has laid it out",
            remedy="take a copy first: x = x.copy()",
        )
    positions = np.arange(root.size).reshape(root.shape)
    order = sorted(range(root.ndim), key=lambda axis: -root_shadow.strides[axis])
    memory = positions.transpose(order).reshape(-1)
    numbers: Any = (
        np.arange(root.size).reshape([root.shape[axis] for axis in order]).transpose(np.argsort(order))
    )
    for view in chain[::-1]:
        numbers = view.numpy_view(numbers)
    size = source.dtype.itemsize
    extents = numbers.shape if shape is None else as_shape(shape)
    steps = shadow.strides if strides is None else tuple(strides)
    first = int(numbers.flat[0]) if numbers.size else 0
    index = np.full(extents, first)
    for axis, (extent, step) in enumerate(zip(extents, steps, strict=True)):
        if step % size:
            raise ValueError(f"the strides {steps} are not multiples of the {size} bytes of an element")
        index += np.arange(extent).reshape([-1 if k == axis else 1 for k in range(len(extents))]) * (
            step // size
        )
    if index.size and not 0 <= index.min() <= index.max() < memory.size:
        raise ValueError(
            f"as_strided with shape {extents} and strides {steps} reads beyond the memory of the array"
        )
    view = StridedView(memory[index], writeable)
    result = type(root)(view.read(root.value), root, view)
    result._contiguous = False
    return result


def _trimmed(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    return source[trimmed(source.value, *args, **kwargs)]


def _itself(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    """Return the argument where the function returns it as it is (``np.diff(x, 0)``)."""
    result = call_function(function, (source, *args), dict(kwargs))
    return source if result is source.value else source.unknown_layout_result(result)


def _nan_to_num(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    """Write in place where ``copy=False``."""
    copy = args[0] if args else kwargs.get("copy", True)
    if copy:
        return None
    result = call_function(function, (source, *args), dict(kwargs))
    if result is not source.value:
        source.write_result(result, public_name(function))
    return source


def _real_if_close(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    """Return the array itself, or its real part: a view, too."""
    result = call_function(function, (source, *args), dict(kwargs))
    is_part = result.dtype.kind != source.dtype.kind
    return source.part_view(RealView()) if is_part else source[...] if source.value.aval.weak else source


def _astype(function: Any, source: Any, args: Arguments, kwargs: Named) -> Any:
    dtype = number_dtype(args[0] if args else kwargs["dtype"])
    if kwargs.get("copy", True) or dtype != source.dtype:
        return None
    return source


def in_order(source: Any, order: str | None, value: Value | None = None) -> Any:
    """Return ``np.asarray(source, order=order)``: the array itself, or a copy if its elements are in another order."""
    shadow = shadow_of(source)
    if order not in ("C", "F"):
        return source[...]
    if shadow is None:
        return _maybe(source, source.value, f"np.asarray(x, order={order!r})")
    if shadow.flags.c_contiguous if order == "C" else shadow.flags.f_contiguous:
        return source[...]
    return _fresh(source, source.value, order)


def copied(source: Any, order: str) -> Any:
    """Return ``source.copy(order)``."""
    copy = source.wrap_value(source.value)
    if not copy.ndim:
        copy._contiguous = source.is_scalar
        return copy
    order = _known_order(source, order) if order == "A" else order
    if order == "K":
        copy._contiguous = layout_of_copy(source)
    else:
        copy._contiguous = fortran(copy.ndim) if order == "F" else True
    return copy


_MOVES: Final[tuple[Any, ...]] = (
    np.transpose,
    np.swapaxes,
    np.moveaxis,
    np.rollaxis,
    np.squeeze,
    np.expand_dims,
    np.flip,
    np.fliplr,
    np.flipud,
    np.rot90,
    np.matrix_transpose,
    np.linalg.matrix_transpose,
)

KEEP_ORDER: Final = frozenset({np.squeeze, np.expand_dims, np.atleast_1d, np.atleast_2d, np.atleast_3d})
"""Functions after which a contiguous array is contiguous."""

_EACH: Final = _of_each(lambda function, array: _view_kind(PermutedView)(function, array, (), {}))

OF_EACH: Final[frozenset[Any]] = frozenset(
    {np.atleast_1d, np.atleast_2d, np.atleast_3d, np.broadcast_arrays, np.ix_, np.meshgrid}
)

VIEWING: Final[dict[Any, Viewer]] = {
    **dict.fromkeys(_MOVES, _view_kind(PermutedView)),
    **dict.fromkeys(
        (np.diagonal, np.linalg.diagonal, np.broadcast_to, np.lib.stride_tricks.sliding_window_view),
        _view_kind(ReadOnlyView),
    ),
    **dict.fromkeys((np.atleast_1d, np.atleast_2d, np.atleast_3d), _EACH),
    **dict.fromkeys((np.array_split, np.split, np.hsplit, np.vsplit, np.dsplit), _pieces),
    **dict.fromkeys((np.real, np.imag), _part),
    **dict.fromkeys((np.diff, np.linalg.matrix_power, np.polyder, np.polyint), _itself),
    np.unstack: _unstacked,
    np.reshape: _reshaped,
    np.ravel: _raveled,
    np.broadcast_arrays: _broadcast_arrays,
    np.ix_: _grid,
    np.meshgrid: _mesh,
    np.diag: _diag,
    np.einsum: _einsum,
    np.trim_zeros: _trimmed,
    np.nan_to_num: _nan_to_num,
    np.real_if_close: _real_if_close,
    np.astype: _astype,
}
"""What views, by NumPy's function."""

KEEPING: Final[frozenset[Any]] = frozenset({np.where, np.clip, np.round, np.around, np.sinc})
"""Functions whose results NumPy lays out as their arguments, as elementwise operations do."""

COPYING: Final[frozenset[Any]] = frozenset(
    {
        np.copy,
        np.sort,
        np.partition,
        np.nan_to_num,
        np.zeros_like,
        np.ones_like,
        np.full_like,
        np.empty_like,
        np.astype,
    }
)
"""Functions whose results NumPy lays out as a copy of their first argument."""

ALWAYS_C: Final[frozenset[Any]] = frozenset({np.dot, np.take, np.repeat, np.tensordot})
"""Functions whose results are C-contiguous whatever their arguments are."""

MAKES_ARRAYS: Final[frozenset[Any]] = frozenset(
    {
        np.where,
        np.select,
        np.copy,
        np.piecewise,
        np.broadcast_arrays,
        np.zeros_like,
        np.ones_like,
        np.full_like,
        np.empty_like,
    }
)
"""Functions whose results of rank 0 are arrays, which can be written to, and not scalars."""
