"""Preallocated arrays, which user code creates and then writes to: ``y = np.zeros(n); y[i] = x[i]``.

Until a traced value is written, NumPy computes with the ndarray behind it: constants stay constants, and results are NumPy's. Then it
becomes a traced array.
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradtape.errors import InPlaceError
from gradtape.habits import ARRAY as ARRAY_HABITS
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape, aval
from gradtape.kinds.operands import COMPACT, HELD
from gradtape.kinds.registry import out_place
from gradtape.ops.core.elementwise.power import is_square
from gradtape.ops.core.join import full
from gradtape.reference_counts import reference_count
from gradtape.trace.array.array import Array
from gradtape.trace.array.attributes import array_namespace
from gradtape.trace.array.handle import Handle, traced_value
from gradtape.trace.array.layout import layout_of
from gradtape.trace.array.lengths import Length, counted, has_lengths
from gradtape.trace.array.masked import Selection
from gradtape.trace.array.methods import Methods
from gradtape.trace.dispatch.dispatch import WRITTEN_ARGUMENTS
from gradtape.trace.patching.classes import set_class
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import (
    has_extensions,
    is_program_file,
    is_traced_file,
    is_user_file,
    user_site,
)
from gradtape.trace.subclasses.instances import TracedNdarray
from gradtape.trees import map_nested

ViewFunction = Callable[[Any], Any]

OPERATORS_FILE: Final = NDArrayOperatorsMixin.__add__.__code__.co_filename
"""The file in which NumPy implements operators by ufuncs."""

_OPERATORS: Final = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.matmul: operator.matmul,
    np.divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.left_shift: operator.lshift,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}
"""The operators of ufuncs that operands with operators of their own answer: units of astropy, sparse matrices of SciPy."""


class Memory:
    """The memory of a preallocated array: an ndarray, and a traced array from the first traced write on.

    Attributes
    ----------
    numbers : ndarray
        The data until the first traced write.
    parent : Memory or None
        For a view: the memory that it is a view of.
    view_function : callable
        For a view: the function from the traced array of the parent to that of the view.
    root : Memory
        The last parent, which owns the memory.
    is_read : bool
        Whether NumPy has computed floating-point numbers from the data, or a view of it was used, which have no derivative.
    traced : Array or None
        The array after a traced write.
    views : set or None
        Of a root: the views of it that the user holds.
    """

    __slots__ = (
        "__weakref__",
        "_constant",
        "_root",
        "is_read",
        "numbers",
        "parent",
        "traced",
        "view_function",
        "views",
    )

    def __init__(self, numbers: NDArray, parent: Memory | None, view_function: ViewFunction) -> None:
        self.numbers = numbers
        self._constant: Value | None = None
        self.is_read = False
        HELD[id(numbers)] = self
        self.parent = parent
        self.view_function = view_function
        self.traced: Any = None
        self._root = (
            None if parent is None else parent.root
        )  # not itself: an array is freed by its reference count
        self.views: weakref.WeakSet[Memory] | None = None
        if self._root is not None:
            self._root.add_view(self)

    @property
    def root(self) -> Memory:
        return self._root or self

    def is_untraced(self) -> bool:
        """Return whether no traced value was written, through any view."""
        return self.root.traced is None

    def note_read(self) -> None:
        """Note that something was computed from the data, also from that of the memory of which this is a view."""
        self.is_read = True
        if self.parent is not None:
            self.parent.note_read()

    def add_view(self, view: Memory) -> None:
        """Register a view."""
        if self.views is None:  # made late: many arrays have none
            self.views = weakref.WeakSet()
        self.views.add(view)

    def traced_array(self) -> Any:
        """Return the traced array that replaces the numbers."""
        if self.traced is None:
            if self.parent is None:
                self._check_alone()
                first = initial_value(self.numbers)
                self.traced = Array(first)
                self.traced._contiguous = layout_of(self.numbers)
                # It is overwritten at once: no later call checks whether it has changed.
                first.owner = None
            else:
                self.traced = self.view_function(self.parent.traced_array())
        return self.traced

    def _check_alone(self) -> None:
        if self.holders() > UNSHARED_COUNT + len(self.views or ()):
            raise InPlaceError(
                "a traced value is written to an array whose memory an ndarray shares",
                where=user_site(),
                why="np.asarray(y) or a method of y returned an ndarray with the same memory, which could not see the value",
                remedy="take a copy there, such as np.array(y), or make the target a traced array: np.zeros(n, like=x)",
            )

    def holders(self) -> int:
        """Return the reference count of the numbers, that of the call included."""
        return reference_count(self.numbers)

    # The interface of a handle's base

    @property
    def value(self) -> Value:
        """The current content: one constant until another number is written, so that derivatives with respect to it find its uses."""
        if not self.is_untraced():
            current: Value = self.traced_array().value
            return current
        if self.parent is not None:
            self.parent.note_read()
        constant = self._constant
        if constant is None or not _is_content(constant.data, self.numbers):
            constant = self._constant = constant_copy(self.numbers)
        return constant

    def rebind(self, value: Value) -> None:
        """Replace the content by a traced value."""
        self.traced_array().rebind(value)

    @property
    def _current(self) -> Value | None:
        return None if self.traced is None else self.traced._current


class _WholeView:
    """The view of all of its base."""

    __slots__ = ()

    def read(self, base: Value) -> Value:
        return base

    def write(self, base: Value, value: Value) -> Value:
        return value


WHOLE_VIEW: Final = _WholeView()


def _is_content(data: Any, numbers: NDArray) -> bool:
    """Return whether an array holds these numbers, bit by bit."""
    if data is None:
        return False
    if numbers.flags.c_contiguous:
        return bool(np.array_equal(data.reshape(-1).view(np.uint8), numbers.reshape(-1).view(np.uint8)))
    return bool(data.tobytes() == numbers.tobytes())


def constant_copy(numbers: NDArray) -> Value:
    """Return a copy of the numbers as a constant."""
    return Value(aval(numbers.shape, numbers.dtype), data=np.array(numbers, order="C"))


def initial_value(numbers: NDArray) -> Value:
    """Return the numbers at the first traced write; equal numbers, such as zeros, are a fill of one number and no copy."""
    raw = numbers.tobytes()
    size = numbers.itemsize
    if numbers.ndim and raw and raw == raw[:size] * numbers.size:
        return full(numbers.shape, numbers.flat[0], numbers.dtype)
    return constant_copy(numbers)


def _identity_view(parent: Any) -> Any:
    return parent


UNSHARED_COUNT: Final = Memory(np.zeros(1), None, _identity_view).holders()
"""The reference count of numbers without views."""


class Preallocated(NDArrayOperatorsMixin, Handle):
    """An array that NumPy created for the user during a recording. It becomes an `Array` when a traced value is written to it."""

    __slots__ = ()
    __class__ = np.ndarray  # type: ignore[assignment]

    def __pow__(self, other: Any) -> Any:
        """Return ``x ** y``: NumPy's operator squares booleans with np.square, which makes int8 of them."""
        if self.ndim and is_square(self.dtype, other):
            return np.square(self)
        return super().__pow__(other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        numbers = ndarray_or_none(self)
        return np.asarray(self, dtype) if numbers is None else np.array(numbers[...], dtype, copy=copy)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return `gradtape.array_api`: functions of the array API write to what has a namespace, and to copies of other things."""
        return array_namespace(api_version)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        call = getattr(ufunc, method)
        if (
            not _WITHOUT_OPERATORS.issuperset(map(type, inputs))
            and not kwargs
            and sys._getframe(1).f_code.co_filename == OPERATORS_FILE
        ):
            call = _OPERATORS.get(ufunc, call)
        targets = (inputs[0],) if method == "at" else kwargs.get("out", ())
        result = _compute(call, inputs, kwargs, targets)
        for operand in inputs:
            if type(operand) is Preallocated:
                note_read(operand, result)
        return result if kwargs or method != "__call__" else _preallocate_result(result, sys._getframe(1))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto and args[0] is self and type(args[-1]) in CONSTANT_TYPES and len(types) == 1:
            numbers = ndarray_or_none(self)
            if numbers is not None:  # as np.ones and np.full do for each array
                return np.copyto(numbers, *args[1:], **kwargs)
        out = kwargs.get("out", ())
        out_position = out_place(function)
        if out_position is not None:
            out = args[out_position : out_position + 1] or out
        targets = args[:1] if function in WRITTEN_ARGUMENTS else out if isinstance(out, tuple) else (out,)
        return _as_view(
            self, _compute(function, args, kwargs, targets), _view_by_call(function, self, args, kwargs)
        )

    def __getitem__(self, key: Any) -> Any:
        numbers = ndarray_or_none(self)
        if numbers is None:
            return self[key]
        key = unwrap_preallocated(key)
        if is_traced(key):
            return Array(self.value)[key]
        if ASKING.questions is not None and has_lengths(key):
            return Array(traced_value(self.value))[key]
        return _as_view(self, numbers[key], lambda parent: parent[key])

    def __setitem__(self, key: Any, new: Any) -> None:
        if ndarray_or_none(self) is not None:
            if type(new) is float or not is_traced(new):
                key = unwrap_preallocated(key)
                if not is_traced(key):
                    ndarray_or_none(self)[key] = unwrap_preallocated(new)
                    return
            become_traced(self)
        self[key] = new

    @property
    def shape(self) -> Shape:
        """The extents. Others can be set, as those of any ndarray."""
        shape = self._current.aval.shape
        if ASKING.questions is not None and (questions := ASKING.by_user(sys._getframe(1))) is not None:
            return questions.extents(shape)  # type: ignore[no-any-return] # lengths stand for integers
        return shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        numbers = ndarray_or_none(self)
        if numbers is None:
            self.shape = shape
            return
        memory: Any = self._base
        view = numbers.view()
        view.shape = shape
        reshaped = preallocated(view, memory, lambda parent: parent.reshape(view.shape))
        self._base, self._current, self._derived = reshaped._base, reshaped._current, reshaped._derived

    flat = Methods.flat
    real = property(lambda self: self.__getattr__("real"), vars(Methods)["real"].fset)
    imag = property(lambda self: self.__getattr__("imag"), vars(Methods)["imag"].fset)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute or method of ndarrays, which NumPy computes until a traced value is written."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if ndarray_or_none(self) is None:
            return getattr(self, name)
        if name in ARRAY_HABITS and not hasattr(np.ndarray, name):
            return getattr(Array, name)  # raises the error that says what to write
        if not callable(getattr(np.ndarray, name, None)):
            return _as_view(self, getattr(ndarray_or_none(self), name), lambda parent: getattr(parent, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            def again(array: Any) -> Any:
                return getattr(array, name)(*args, **kwargs)

            if is_traced(args) or is_traced(tuple(kwargs.values())):
                if name not in WRITING_METHODS:
                    return again(Array(self.value))
                become_traced(self)
            numbers = ndarray_or_none(self) if type(self) is Preallocated else None
            if numbers is None:
                return again(self)
            result = getattr(numbers, name)(*unwrap_preallocated(args), **unwrap_keywords(kwargs))
            if name in COPYING_METHODS:
                note_read(self, result)
                return _preallocate_result(result, sys._getframe(1))
            return _as_view(self, result, again)

        return call

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        """Give the array another size, in place."""
        memory: Any = self._base
        if ndarray_or_none(self) is None or memory.parent is not None or memory.views:
            become_traced(self)
            self.resize(*shape, refcheck=refcheck)
            return
        numbers = memory.numbers.copy()
        numbers.resize(*shape, refcheck=False)
        resized = preallocated(numbers)
        self._base, self._current, self._derived = resized._base, resized._current, resized._derived

    def __len__(self) -> int:
        if ASKING.questions is not None:
            counted(len(self._base.numbers))
        return len(self._base.numbers)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        if ASKING.questions is not None:
            counted(self.shape[0])
        return (self[k] for k in range(self.shape[0]))

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self == item))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return to_ndarray(self).__reduce__()


def _value_of(array: Preallocated) -> Value:
    return array.value


COMPACT[Preallocated] = _value_of

WRITING_METHODS: Final = frozenset({"fill", "put", "itemset", "partition", "sort"})
"""Methods that write to their array."""

COPYING_METHODS: Final = frozenset({"copy", "astype"})
"""Methods that return a copy."""


_WITHOUT_OPERATORS: Final = frozenset({Preallocated, Array, np.ndarray, int, float, np.float64, complex})
"""Types of operands beside which operators of arrays are ufuncs. Of others, NumPy finds out."""

CONSTANT_TYPES: Final = frozenset({bool, int, float, complex, np.ndarray, np.float64})
"""Common types of written values that are not traced."""


def preallocated(
    numbers: NDArray, parent: Memory | None = None, view_function: ViewFunction = _identity_view
) -> Preallocated:
    """Return a preallocated array of an ndarray, which for a view has a parent."""
    array = object.__new__(Preallocated)
    array._base = Memory(numbers, parent, view_function)
    array._view = WHOLE_VIEW
    array._derived = array._current = Value(aval(numbers.shape, numbers.dtype))
    array._contiguous = True
    return array


def ndarray_or_none(array: Preallocated) -> Any:
    """Return the ndarray that NumPy computes with; None if the array has become a traced one, and then its class is `Array`."""
    memory: Any = array._base
    if memory.is_untraced():
        return memory.numbers
    become_traced(array)
    return None


def to_ndarray(array: Any) -> Any:
    """Return the data of an array, traced or not, as an ndarray."""
    numbers = ndarray_or_none(array)
    return array.numpy() if numbers is None else numbers


def become_traced(array: Any) -> None:
    """Make a preallocated array a traced one, in place, for everybody who holds it."""
    traced_array = array._base.traced_array()
    set_class(array, Array)
    array._contiguous = traced_array._contiguous


def unwrap_preallocated(operand: Any) -> Any:
    """Return an operand with ndarrays for preallocated arrays, also in nested lists and tuples."""
    if isinstance(operand, Preallocated):
        numbers = ndarray_or_none(operand)
        return operand if numbers is None else numbers
    if isinstance(operand, list | tuple):
        return map_nested(unwrap_preallocated, Preallocated, operand)
    return operand


def unwrap_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with ndarrays for preallocated arrays."""
    return {name: unwrap_preallocated(item) for name, item in kwargs.items()} if kwargs else kwargs


SHORT: Final = 8
"""The maximum length of a list of which each item is checked."""

NUMBERS: Final = frozenset({bool, int, float, complex, np.float64, np.int64})
"""Types of which lists are long, and of which no item is traced."""


def is_traced(operand: Any) -> bool:
    """Return whether an operand is or holds an Array, a preallocated array that has become one, or an object of a subclass with traced
    elements."""
    if isinstance(operand, slice):
        return is_traced((operand.start, operand.stop, operand.step))
    if isinstance(operand, list | tuple):
        if len(operand) > SHORT and NUMBERS.issuperset(map(type, operand)):
            return False
        return any(map(is_traced, operand))
    if isinstance(operand, Selection) or type(operand) is Length:
        return True
    if isinstance(operand, Handle):
        return not (isinstance(operand, Preallocated) and ndarray_or_none(operand) is not None)
    return isinstance(operand, TracedNdarray)


def _compute(call: Any, args: Any, kwargs: dict[str, Any], targets: Any) -> Any:
    """Call NumPy with ndarrays; preallocated arrays to which a traced value would be written become traced first."""
    writes = [
        target
        for target in targets
        if isinstance(target, Preallocated) and ndarray_or_none(target) is not None
    ]
    if writes and (is_traced(args) or is_traced(tuple(kwargs.values()))):
        for target in writes:
            become_traced(target)
        return call(*args, **kwargs)
    result = call(*unwrap_preallocated(args), **unwrap_keywords(kwargs))
    for target in writes:
        if result is ndarray_or_none(target):
            return target
    return result


def _as_view(array: Preallocated, result: Any, view_function: ViewFunction) -> Any:
    """Return a result of NumPy's, as a preallocated view where it shares memory with the array."""
    if type(result) in (list, tuple) and type(array) is Preallocated:
        return type(result)(
            [
                _as_view(array, item, _view_of_item(view_function, position))
                for position, item in enumerate(result)
            ]
        )
    if type(array) is not Preallocated:
        return result
    memory: Any = array._base
    if result is memory.numbers:
        return array
    if type(result) is np.ndarray and result.base is memory.root.numbers:
        return preallocated(result, memory, view_function)
    note_read(array, result)
    return result


def note_read(array: Any, result: Any) -> None:
    """Note that NumPy has computed a result from the numbers of a preallocated array."""
    if issubclass(type(result), np.ndarray | np.generic) and result.dtype.kind in "fc":
        array._base.note_read()


def _view_of_item(view_function: ViewFunction, position: int) -> ViewFunction:
    return lambda parent: view_function(parent)[position]


def handles_traced(frame: FrameType) -> bool:
    """Return whether a frame is of user code or of a package without compiled modules, or of another package and called with traced arrays.

    Arrays that such a package allocates for other numbers may go to its compiled code, which takes ndarrays only.
    """
    current: FrameType | None = frame
    while current is not None and is_traced_file(filename := current.f_code.co_filename):
        if is_user_file(filename) or (is_program_file(filename) and not has_extensions(filename)):
            return current is frame
        if any(map(holds_traced, current.f_locals.values())):
            return True
        current = current.f_back
    return False


def holds_traced(item: Any, depth: int = 3) -> bool:
    """Return whether an object is a traced array, or a container or an object of a package that has one."""
    if isinstance(item, Handle):
        return is_traced(item)
    if not depth or isinstance(item, type | ModuleType | FunctionType | np.ndarray):
        return False
    if type(item) in (list, tuple):
        return any(holds_traced(part, depth - 1) for part in item)
    if type(item) is dict:
        return any(holds_traced(part, depth - 1) for part in list(item.values()))
    parts = getattr(item, "__dict__", None)
    if type(parts) is dict and any(holds_traced(part, depth - 1) for part in list(parts.values())):
        return True
    cls: Any = type(item)
    return any(holds_traced(getattr(item, name, None), depth - 1) for name in _slots_of(cls))


@functools.lru_cache(maxsize=1024)
def _slots_of(cls: type) -> tuple[str, ...]:
    """Return the slots of a class that it has from classes of SciPy's; slots of others may be anything."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("scipy.")]
    return tuple([name for base in bases for name in vars(base).get("__slots__", ())])


def _preallocate_result(result: Any, frame: FrameType) -> Any:
    """Return a result of traced code, such as ``2.0 * np.ones(3)``, as another preallocated array."""
    if frame.f_code.co_filename == OPERATORS_FILE and frame.f_back is not None:
        frame = frame.f_back
    fresh = type(result) is np.ndarray and result.base is None and result.dtype.char in "fdFD"
    return preallocated(result) if fresh and contexts.stack and handles_traced(frame) else result


def _view_by_call(function: Any, array: Preallocated, args: Any, kwargs: dict[str, Any]) -> ViewFunction:
    def make(parent: Any) -> Any:
        return function(*[parent if arg is array else arg for arg in args], **kwargs)

    return make


def _delegate(name: str) -> Callable[[Any], Any]:
    def answer(self: Any, *args: Any) -> Any:
        numbers = ndarray_or_none(self)
        return getattr(self, name)(*args) if numbers is None else getattr(numbers, name)(*args)

    answer.__name__ = name
    return answer


for _name in (
    "__float__",
    "__complex__",
    "__int__",
    "__bool__",
    "__index__",
    "__repr__",
    "__str__",
    "__format__",
):
    setattr(Preallocated, _name, _delegate(_name))
