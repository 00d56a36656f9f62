"""Array-conversion capture of `numpy.array` and `numpy.asarray`: lists of traced numbers become traced arrays.

NumPy has no protocol for the elements of a list: ``np.array([x[0], -x[1]])`` converts each element to a number. During a recording,
handlers of these functions do the same and, if NumPy has converted a traced element, apply the function once more as an operation.
User code with ``x = np.asarray(x)`` gets a traced array as well.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, Final

import numpy as np

from gradtape.kinds.operands import COMPACT
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.iterators import FlatIterator, with_vectors
from gradtape.trace.array.layout import layout_in_order
from gradtape.trace.array.lengths import ARRAYS, has_lengths
from gradtape.trace.array.masked import Selection
from gradtape.trace.array.view_functions import in_order
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.patching.bytecode import callee_names
from gradtape.trace.patching.callers import called_directly, calling_frame, calls
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.patching.recorders import before_recording
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import (
    READERS,
    asking_package,
    is_program_file,
    is_traced_file,
    is_user_file,
)
from gradtape.trace.subclasses.instances import (
    TracedNdarray,
    content_of,
    contents,
    holds_instance,
    in_numpy,
    instance,
)

_frame = sys._getframe


class _CapturedElements(threading.local):
    """The traced elements that NumPy has converted during the conversion of a list; None at any other time."""

    items: list[Any] | None = None


_captured: Final = _CapturedElements()


def capture_element(item: Any) -> bool:
    """Return whether an element of a list is being converted, and note it: then any number will do, since the call is repeated."""
    if _captured.items is None or not is_observed(item):
        return False
    _captured.items.append(item)
    return True


def is_observed(array: Handle) -> bool:
    """Return whether an active tape, trace or prediction records an array."""
    promised = array._base is not None and array._base is prediction.observer
    return promised or any(tag.recording for tag in array.value.tags)


def _array_or_traced(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a conversion function; the result is traced if the argument is or holds a traced array."""
    if ASKING.questions is not None and has_lengths(args[:1]) and calls(_frame(1), function):
        return ARRAYS["call"](function, args, kwargs)
    dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
    if dtype in OBJECTS and not is_program_file(calling_frame(_frame(1))[0].f_code.co_filename):
        return NotImplemented  # as np.vectorize converts, to call a function of the user's for each element
    if args and dtype in OBJECTS:
        return _array_of_objects(args[0]) if _holds_traced(args[0]) else NotImplemented
    if args and type(args[0]) is FlatIterator:
        args = (args[0].copy(), *args[1:])
    if args and type(args[0]) is Selection:
        args = (args[0].elements(), *args[1:])
    is_plain = (
        bool(args) and type(args[0]) is np.ndarray and args[0].dtype != object
    )  # the most frequent: without a further call
    if args and isinstance(args[0], TracedNdarray):
        return _of_instance(function, args, kwargs)
    if args and not is_plain and not issubclass(type(args[0]), Handle | list | tuple):
        args = (unpacked := _taken_apart(original := args[0], dtype), *args[1:])
        if unpacked is not original and isinstance(unpacked, Handle) and not is_observed(unpacked):
            # NumPy would call the object again, so it gets the memory of an untraced array.
            return function(unpacked.__array__(), *args[1:], **kwargs)  # type: ignore[attr-defined]
    if not args or not isinstance(args[0], list | tuple) or kwargs.get("like") is not None:
        source: Any = args[0] if args else None
        if type(source) is np.ndarray and function is np.array:
            outer = _frame(1)
            if outer.f_code.co_name == "__array__" and _is_called_by_numpy(outer):
                return NotImplemented
            is_alone = len(args) == 1 and not kwargs
            if not contexts.stack or (is_alone and not is_user_file(outer.f_code.co_filename)):
                return NotImplemented
            return FRESH[0](without_hook(function)(*args, **kwargs), function, outer, source=source)
        # numpy.polynomial adds in place to what it has converted with other arrays.
        is_copied = "ndmin" in kwargs and not is_user_file(_frame(1).f_code.co_filename)
        if (
            not is_copied
            and isinstance(source, Handle)
            and _is_kept(source, function, args, kwargs, _frame(1))
        ):
            return source
        if not isinstance(source, Handle) or not _is_traced_copy(source, _frame(1), function):
            return NotImplemented
        if is_copied:
            return _traced_call(source, function, args, kwargs)
        name = function.__name__
        axes = _new_axes(source, kwargs)
        if _returns_argument(name, source, args, {**kwargs, "ndmin": 0} if axes else kwargs):
            handle: Any = source
            return in_order(handle[(*axes, ...)], ORDERS.get(name, kwargs.get("order")))
        return _traced_call(source, function, args, kwargs)
    before, _captured.items = _captured.items, []
    try:
        array = without_hook(function)(*args, **kwargs)
        of_instance = _captured.items
    except ValueError as error:
        if isinstance(error.__cause__, Exception | None):
            raise
        raise error.__cause__ from None  # Ctrl-C during the conversion, which NumPy replaces by another error
    finally:
        _captured.items = before
    if of_instance and asking_package() in READERS:
        return without_hook(function)(*args, **kwargs)
    if not of_instance and array.dtype == object and holds_instance(args[0]):
        return function(contents(args[0]), *args[1:], **kwargs)
    if of_instance:
        return _traced_call(of_instance[0], function, args, kwargs)
    is_users = contexts.stack and is_user_file(_frame(1).f_code.co_filename)
    return FRESH[0](array, function, _frame(1)) if is_users else array


def _of_instance(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a conversion function with an object of a subclass of ndarray, whose class it may keep."""
    source, options = args[0], dict(kwargs)
    keeps = options.pop("subok", False) or function is np.asanyarray
    content = content_of(source)
    if not isinstance(content, Handle):
        result = function(content, *args[1:], **options)
    elif _returns_argument(
        function.__name__,
        content,
        args,
        {**options, "ndmin": 0} if (axes := _new_axes(content, options)) else options,
    ):
        result = content if keeps and not axes else content[(*axes, ...)]  # type: ignore[index] # it is an Array
    else:
        result = _traced_call(content, function, (content, *args[1:]), options)
    if not keeps:
        return result
    return source if result is content else instance(type(source), result, source)


def _shared_or_traced(function: Any, source: Any = None, /, **kwargs: Any) -> Any:
    """Call `numpy.from_dlpack`, which is a view of a traced array: the protocol would hand over numbers."""
    if not isinstance(source, Handle) or kwargs.get("device") not in (None, "cpu"):
        return NotImplemented
    if not _is_traced_copy(source, _frame(1), function):
        return NotImplemented
    handle: Any = source
    return handle.copy() if kwargs.get("copy") else handle[...]


def converted_by_object(source: Any) -> Any:
    """Return what an object converts itself to, if that is an array of gradtape's: the numbers where it is not traced. None for others."""
    converted = _taken_apart(source, None)
    if converted is source or not isinstance(converted, Handle):
        return None
    return converted if is_observed(converted) else converted.__array__()  # type: ignore[attr-defined]


def _taken_apart(source: Any, dtype: Any) -> Any:
    """Return what an object converts itself to, or the elements of an array of objects, where these are traced."""
    if type(source) is np.ndarray:
        if dtype is not None and _holds_traced(items := source.tolist()):
            return items
    elif _converts_in_python(source) and isinstance(converted := source.__array__(), Handle):
        return converted
    return source


def _converts_in_python(source: Any) -> bool:
    """Return whether an object has a method ``__array__`` that is traced: it may return a traced array, which NumPy would refuse."""
    convert = getattr(type(source), "__array__", None)
    return (
        type(convert) is FunctionType
        and not isinstance(source, Handle)
        and is_program_file(convert.__code__.co_filename)
    )


def _holds_traced(items: Any) -> bool:
    """Return whether an object is a traced array, or a list with such."""
    if isinstance(items, list | tuple):
        return any(map(_holds_traced, items))
    return isinstance(items, Handle) and is_observed(items)


class _Held:
    """An element of an array of objects, which NumPy must not take apart."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


def _array_of_objects(items: Any) -> Any:
    """Return an array of objects whose elements are traced numbers."""
    array: Any = np.array(_held(items), dtype=object)
    for index in np.ndindex(array.shape):
        if type(array[index]) is _Held:
            array[index] = array[index].item
    return array


def _held(items: Any) -> Any:
    if isinstance(items, list | tuple):
        return [_held(item) for item in items]
    if not isinstance(items, Handle):
        return items
    return _Held(items) if not items.ndim else [_held(item) for item in items]  # type: ignore[attr-defined]


Keeper = Callable[[Any, FrameType], bool]

KEEPERS: Final[list[Keeper]] = [lambda source, frame: in_numpy.now]
"""Functions that say whether a call in a frame that would return its argument returns it, and not the ndarray behind it."""


def _is_kept(
    source: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> bool:
    return any(keeps(source, frame) for keeps in KEEPERS) and _returns_argument(
        function.__name__, source, args, kwargs
    )


def _new_axes(source: Handle, kwargs: dict[str, Any]) -> tuple[None, ...]:
    """Return the axes of one element that ``np.array(x, ndmin=n)`` puts before those of an array."""
    count: int = kwargs.get("ndmin", 0) - source.ndim
    return (None,) * count


def _traced_call(like: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = like.__array_function__(function, (type(like),), with_vectors(args), kwargs)
    if isinstance(result, Handle) and result._base is None:
        if not result.ndim:
            result._contiguous = False  # an array of rank 0, which can be written to
        elif result.ndim > 1 and isinstance(args[0], Handle) and args[0].ndim == result.ndim:
            order = ORDERS.get(function.__name__) or kwargs.get("order") or "K"
            result._contiguous = layout_in_order(args[0], order)
    return result


OBJECTS: Final = (object, "O", "object")
"""The dtype of arrays of objects, as it may be written."""

ORDERS: Final = {"ascontiguousarray": "C", "asfortranarray": "F"}
"""The memory order of the results of a function."""


def _returns_argument(name: str, source: Handle, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function returns its argument itself, unless the memory order differs."""
    if (
        len(args) > 2
        or not kwargs.keys() <= {"dtype", "order", "copy", "subok", "ndmin"}
        or kwargs.get("order") == "A"
        or kwargs.get("ndmin", 0) > source.ndim
    ):
        return False
    if (kwargs.get("copy", True) if name == "array" else kwargs.get("copy")) is True:
        return False
    dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
    same = dtype is None or np.dtype(dtype) == source.dtype
    return same and not (name in ORDERS and source.ndim == 0)


def _is_traced_copy(array: Handle, frame: FrameType, function: Any) -> bool:
    """Return whether traced code calls ``np.asarray(x)`` with a traced array, rather than compiled code that needs the numbers. An array
    of a trace has no numbers. While a tape records, one that it does not follow may be written to by both names."""
    outer = calling_frame(frame)[0]
    if outer.f_code.co_name == "__array__" and _is_called_by_numpy(outer):
        return False
    if trace_of(array.value) is not None:
        return is_traced_file(calling_frame(frame)[0].f_code.co_filename)
    traced = is_observed(array) or (bool(contexts.stack) and not _is_constant(array))
    return traced and called_directly(frame, function)


def _is_called_by_numpy(frame: FrameType) -> bool:
    """Return whether a method ``__array__`` is called by compiled code, which takes ndarrays only, rather than by code in Python."""
    calling = frame.f_back
    return calling is None or not (
        calling.f_globals.get("__name__") == __name__ or callee_names(calling)[-1:] == ("__array__",)
    )


def _is_constant(array: Handle) -> bool:
    """Return whether an array is preallocated and no traced value was written to it."""
    base: Any = array._base
    return type(array) in COMPACT and (not hasattr(base, "is_untraced") or base.is_untraced())


def calling_module(depth: int) -> str:
    """Return the module that called a function `depth` callers up, or that called np.array there."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


FRESH: Final[list[Callable[..., Any]]] = []
"""What returns the arrays that are made of numbers; see `creation`, which is above this module."""

CONVERTING: Final = (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
"""Functions that convert anything to an array."""

before_recording(lambda: interpose(_array_or_traced, When.ALWAYS, CONVERTING[:1]))
before_recording(lambda: interpose(_array_or_traced, When.NO_ARRAY, CONVERTING[1:]))
before_recording(lambda: interpose(_shared_or_traced, When.NO_ARRAY, {np.from_dlpack}))
