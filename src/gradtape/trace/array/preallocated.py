"""Arrays that user code makes to write to: ``y = np.zeros(n); y[i] = x[i]``.

Until something traced is written NumPy computes with an ndarray behind it: constants stay constants, and results are NumPy's. Then it is
a traced array.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradtape.errors import InPlaceError
from gradtape.habits import ARRAY as ARRAY_HABITS
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.kinds.operands import COMPACT
from gradtape.kinds.registry import out_place
from gradtape.ops.core.join import full
from gradtape.reference_counts import reference_count
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import layout_of
from gradtape.trace.dispatch.dispatch import IN_PLACE
from gradtape.trace.patching.classes import set_class
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import is_users, user_site

Recipe = Callable[[Any], Any]

MIXIN: Final = NDArrayOperatorsMixin.__add__.__code__.co_filename
"""Where NumPy makes calls of ufuncs of operators."""


class Memory:
    """What is behind a preallocated array: numbers of NumPy's, and a traced array from the first traced write on.

    Attributes
    ----------
    numbers : ndarray
        What NumPy computes with meanwhile.
    parent : Memory or None
        For a view: whose numbers it sees.
    recipe : callable
        For a view: what makes it of the traced array that stands for the parent.
    root : Memory
        The parent's parent, and so on: whose memory it is.
    traced : Array or None
        What stands for the numbers after a traced write.
    views : set or None
        Of a root: the views of it that are in the user's hands.
    """

    __slots__ = ("__weakref__", "_root", "numbers", "parent", "recipe", "traced", "views")

    def __init__(self, numbers: NDArray, parent: Memory | None, recipe: Recipe) -> None:
        self.numbers = numbers
        self.parent = parent
        self.recipe = recipe
        self.traced: Any = None
        self._root = (
            None if parent is None else parent.root
        )  # not itself: an array is freed by its reference count
        self.views: weakref.WeakSet[Memory] | None = None
        if self._root is not None:
            self._root.seen_by(self)

    @property
    def root(self) -> Memory:
        return self._root or self

    def is_plain(self) -> bool:
        """Return whether nothing traced was written, through any view."""
        return self.root.traced is None

    def seen_by(self, view: Memory) -> None:
        """Take notice of a view."""
        if self.views is None:  # made late: many arrays have none
            self.views = weakref.WeakSet()
        self.views.add(view)

    def stand_in(self) -> Any:
        """Return the traced array that stands for the numbers from now on."""
        if self.traced is None:
            if self.parent is None:
                self._check_alone()
                first = beginning(self.numbers)
                self.traced = Array(first)
                self.traced._contiguous = layout_of(self.numbers)
                # It is overwritten at once: no call comes back to ask whether it has changed.
                first.owner = None
            else:
                self.traced = self.recipe(self.parent.stand_in())
        return self.traced

    def _check_alone(self) -> None:
        if self.holders() > ALONE + len(self.views or ()):
            raise InPlaceError(
                "a traced value is written to an array whose memory an ndarray shares",
                where=user_site(),
                why="np.asarray(y) or a method of y returned an ndarray with the same memory, which could not see the value",
                remedy="take a copy there, such as np.array(y), or make the target a traced array: np.zeros(n, like=x)",
            )

    def holders(self) -> int:
        """Return how many objects hold the numbers, this and the call itself among them."""
        return reference_count(self.numbers)

    # What a handle asks of its base

    @property
    def value(self) -> Value:
        """The content, as it is now."""
        return snapshot(self.numbers) if self.is_plain() else self.stand_in().value

    def rebind(self, value: Value) -> None:
        """Take another content, which is followed."""
        self.stand_in().rebind(value)

    @property
    def _current(self) -> Value | None:
        return None if self.traced is None else self.traced._current


class _Whole:
    """The view that shows all of its base."""

    __slots__ = ()

    def read(self, base: Value) -> Value:
        return base

    def write(self, base: Value, value: Value) -> Value:
        return value


WHOLE: Final = _Whole()


def snapshot(numbers: NDArray) -> Value:
    """Return the numbers as they are now, as a constant."""
    return Value(aval(numbers.shape, numbers.dtype), data=np.array(numbers, order="C"))


def beginning(numbers: NDArray) -> Value:
    """Return the numbers at a first traced write: one number everywhere, such as zero, is no array to be kept and copied."""
    raw = numbers.tobytes()
    size = numbers.itemsize
    if numbers.ndim and raw and raw == raw[:size] * numbers.size:
        return full(numbers.shape, numbers.flat[0], numbers.dtype)
    return snapshot(numbers)


def _itself(parent: Any) -> Any:
    return parent


ALONE: Final = Memory(np.zeros(1), None, _itself).holders()
"""How many hold numbers of which no view was made."""


class Preallocated(NDArrayOperatorsMixin, Handle):
    """An array that NumPy made for the user while somebody records. It becomes an `Array` when a traced value is written to it."""

    __slots__ = ()
    __class__ = np.ndarray  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        seen = near(self)
        return np.asarray(self, dtype) if seen is None else np.array(seen[...], dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        call = getattr(ufunc, method)
        targets = (inputs[0],) if method == "at" else kwargs.get("out", ())
        result = _computed(call, inputs, kwargs, targets)
        return result if kwargs or method != "__call__" else _to_be_written(result, sys._getframe(1))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto and args[0] is self and type(args[-1]) in PLAIN and len(types) == 1:
            seen = near(self)
            if seen is not None:  # as np.ones and np.full do for each array
                return np.copyto(seen, *args[1:], **kwargs)
        out = kwargs.get("out", ())
        place = out_place(function)
        if place is not None:
            out = args[place : place + 1] or out
        targets = args[:1] if function in IN_PLACE else out if isinstance(out, tuple) else (out,)
        return _viewed(
            self, _computed(function, args, kwargs, targets), _calling(function, self, args, kwargs)
        )

    def __getitem__(self, key: Any) -> Any:
        seen = near(self)
        if seen is None:
            return self[key]
        key = own(key)
        if follows(key):
            return Array(self.value)[key]
        return _viewed(self, seen[key], lambda parent: parent[key])

    def __setitem__(self, key: Any, new: Any) -> None:
        if near(self) is not None:
            if type(new) is float or not follows(new):
                key = own(key)
                if not follows(key):
                    near(self)[key] = own(new)
                    return
            become_traced(self)
        self[key] = new

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if near(self) is None:
            return getattr(self, name)
        if name in ARRAY_HABITS and not hasattr(np.ndarray, name):
            return getattr(Array, name)  # raises the error that says what to write
        if not callable(getattr(np.ndarray, name, None)):
            return _viewed(self, getattr(near(self), name), lambda parent: getattr(parent, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            def again(array: Any) -> Any:
                return getattr(array, name)(*args, **kwargs)

            if follows(args) or follows(tuple(kwargs.values())):
                if name not in WRITING_METHODS:
                    return again(Array(self.value))
                become_traced(self)
            seen = near(self) if type(self) is Preallocated else None
            if seen is None:
                return again(self)
            result = getattr(seen, name)(*own(args), **own_named(kwargs))
            if name in COPYING_METHODS:
                return _to_be_written(result, sys._getframe(1))
            return _viewed(self, result, again)

        return call

    def __len__(self) -> int:
        return len(self._base.numbers)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(self.shape[0]))

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self == item))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return plain_numbers(self).__reduce__()


def _content(array: Preallocated) -> Value:
    return array.value


COMPACT[Preallocated] = _content

WRITING_METHODS: Final = frozenset({"fill", "put", "itemset", "partition", "sort"})
"""Methods that write to their array."""

COPYING_METHODS: Final = frozenset({"copy", "astype"})
"""Methods that return an array of its own."""


PLAIN: Final = frozenset({bool, int, float, complex, np.ndarray, np.float64})
"""Types of what is written, most often, that is not traced."""


def preallocated(numbers: NDArray, parent: Memory | None = None, recipe: Recipe = _itself) -> Preallocated:
    """Return the array that the user sees of numbers that NumPy made for them."""
    made = object.__new__(Preallocated)
    made._base = Memory(numbers, parent, recipe)
    made._view = WHOLE
    made._derived = made._current = Value(aval(numbers.shape, numbers.dtype))
    made._contiguous = True
    return made


def near(array: Preallocated) -> Any:
    """Return the numbers that NumPy is to compute with; None if the array has become a traced one, as is then its class."""
    memory: Any = array._base
    if memory.is_plain():
        return memory.numbers
    become_traced(array)
    return None


def plain_numbers(array: Any) -> Any:
    """Return the numbers of an array, traced or not."""
    seen = near(array)
    return array.numpy() if seen is None else seen


def become_traced(array: Any) -> None:
    """Make a traced array of a preallocated one, in place: whoever holds it goes on with it."""
    stand_in = array._base.stand_in()
    set_class(array, Array)
    array._contiguous = stand_in._contiguous


def own(operand: Any) -> Any:
    """Return an operand with preallocated arrays replaced by their numbers, in lists, tuples and slices too."""
    if isinstance(operand, Preallocated):
        seen = near(operand)
        return operand if seen is None else seen
    if isinstance(operand, list | tuple) and any(
        isinstance(item, Preallocated | list | tuple) for item in operand
    ):
        items = [own(item) for item in operand]
        return items if isinstance(operand, list) else tuple(items)
    return operand


def own_named(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with preallocated arrays replaced by their numbers."""
    return {name: own(item) for name, item in kwargs.items()} if kwargs else kwargs


def follows(operand: Any) -> bool:
    """Return whether an array of gradtape's that NumPy cannot see the numbers of stands in an operand."""
    if isinstance(operand, slice):
        return follows((operand.start, operand.stop, operand.step))
    if isinstance(operand, list | tuple):
        return any(map(follows, operand))
    return isinstance(operand, Handle) and not (
        isinstance(operand, Preallocated) and near(operand) is not None
    )


def _computed(call: Any, args: Any, kwargs: dict[str, Any], targets: Any) -> Any:
    """Let NumPy compute with the numbers; where something traced would be written to a preallocated array, make that traced first."""
    writes = [target for target in targets if isinstance(target, Preallocated) and near(target) is not None]
    if writes and (follows(args) or follows(tuple(kwargs.values()))):
        for target in writes:
            become_traced(target)
        return call(*args, **kwargs)
    result = call(*own(args), **own_named(kwargs))
    for target in writes:
        if result is near(target):
            return target
    return result


def _viewed(array: Preallocated, result: Any, recipe: Recipe) -> Any:
    """Return a result of NumPy's, as a view that follows where it shares memory with the array that it was asked of."""
    if type(result) in (list, tuple) and type(array) is Preallocated:
        return type(result)(
            [_viewed(array, item, _item_of(recipe, place)) for place, item in enumerate(result)]
        )
    if type(result) is not np.ndarray or type(array) is not Preallocated:
        return result
    memory: Any = array._base
    if result is memory.numbers:
        return array
    return preallocated(result, memory, recipe) if result.base is memory.root.numbers else result


def _item_of(recipe: Recipe, place: int) -> Recipe:
    return lambda parent: recipe(parent)[place]


def _to_be_written(result: Any, frame: FrameType) -> Any:
    """Return what the user's own code computed of a preallocated array, such as ``2.0 * np.ones(3)``, as another such array."""
    if frame.f_code.co_filename == MIXIN and frame.f_back is not None:
        frame = frame.f_back
    fresh = type(result) is np.ndarray and result.base is None and result.dtype.char in "fdFD"
    return preallocated(result) if fresh and contexts.stack and is_users(frame.f_code.co_filename) else result


def _calling(function: Any, array: Preallocated, args: Any, kwargs: dict[str, Any]) -> Recipe:
    def make(parent: Any) -> Any:
        return function(*[parent if arg is array else arg for arg in args], **kwargs)

    return make


def _by_number(name: str) -> Callable[[Any], Any]:
    def answer(self: Any, *args: Any) -> Any:
        seen = near(self)
        return getattr(self, name)(*args) if seen is None else getattr(seen, name)(*args)

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
    setattr(Preallocated, _name, _by_number(_name))
