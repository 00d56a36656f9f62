"""Instances: objects of a subclass of ndarray whose elements are a traced array, as ``np.asarray(x).view(Quantity)`` makes them.

An instance is of a class made here, between the package's class and ndarray: `Quantity`, then `TracedNdarray`, then `ndarray`. So the
code of the package runs as it is, its ``super()`` reaches `TracedNdarray`, and `isinstance` holds. What ndarray does for subclasses
(``__array_finalize__``, ``__array_wrap__``, priorities) is done here, by NumPy's rules, for the traced array inside.

An instance has memory, as any ndarray, but of objects that refuse: compiled code that reads it gets an error, and no wrong number.
"""

from __future__ import annotations

import abc
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import numpy as np
from numpy import _core
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradtape.containers.astropy import HOOKS
from gradtape.errors import ArraySubclassError, GradtapeError
from gradtape.kinds.registry import FUNCTIONS
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.bytecode import names_in
from gradtape.trace.source.sites import user_site

ndarray: Any = np.ndarray
_METHODS: Final[Any] = _core._methods  # type: ignore[attr-defined] # the code of NumPy's methods of ndarray
_CLIP: Final = _core.umath.clip  # type: ignore[attr-defined]
_NO_VALUE: Final = np._NoValue

_UNTRACED: Final = (np.memmap, np.matrix, np.recarray, np.char.chararray)
"""Subclasses whose objects are never made of traced arrays: memory maps are ndarrays, and the others are NumPy's own."""

front_of: Final[dict[type, type]] = {}
"""By class: what its instances do before the class is asked, beside what all instances do."""


def refused(kind: type, why: str) -> ArraySubclassError:
    """Return the error for what an instance of a class cannot do."""
    return ArraySubclassError(
        f"code reads the memory of a {kind.__name__}, a subclass of ndarray, whose elements are traced",
        where=user_site(3),
        why=why,
        remedy="call the function with np.asarray(x), or by gt.callback(f, result_like, x), to which gt.custom_vjp gives a derivative",
    )


def _returned_masked(message: str) -> ArraySubclassError:
    return ArraySubclassError(
        message,
        where=user_site(3),
        why="its elements without the mask would be another result",
        remedy="return x.filled(...), and np.ma.getmaskarray(x) beside it",
    )


def returned_instance(array: TracedNdarray) -> ArraySubclassError:
    """Return the error for an object that a jitted function returns."""
    if isinstance(array, np.ma.MaskedArray):
        return _returned_masked("the jitted function returned a MaskedArray, a subclass of ndarray")
    return ArraySubclassError(
        f"the jitted function returned a {kind_of(type(array)).__name__}, a subclass of ndarray",
        where=user_site(3),
        why="a compiled call returns arrays, and what else belongs to such an object is made by Python code",
        remedy="return np.asarray(x), and make the object of what the call returns",
    )


def _masked(function: Any, error: Exception) -> ArraySubclassError:
    """Return the error for a function of NumPy's that a masked array with traced elements stops."""
    return ArraySubclassError(
        f"np.{function.__name__} got a masked array whose elements are traced",
        where=user_site(3),
        why=f"NumPy's code of this function asks its memory: {str(error).splitlines()[0]}",
        remedy=f"use np.ma.{function.__name__} if there is one, or x.compressed() or x.filled(...), which are arrays",
    )


class _Withheld:
    """The element of the memory of instances: whatever is to be made of it, an error says that there is no number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "traced"


def _withhold(*_: Any) -> Any:
    raise refused(ndarray, "its numbers are known to a trace or a tape only, and compiled code reads memory")


for _name in (
    *("float", "int", "complex", "index", "bool", "abs", "neg", "pos", "invert", "hash"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
    *(
        f"{side}{name}"
        for side in ("", "r")
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
    ),
):
    setattr(_Withheld, f"__{_name}__", _withhold)


class _Number(_Withheld):
    """The element of an instance of rank 0, which is asked for its number as the traced array is."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __float__(self) -> float:
        return float(self.content)

    def __complex__(self) -> complex:
        return complex(self.content)

    def __int__(self) -> int:
        return int(self.content)

    def __bool__(self) -> bool:
        return bool(self.content)


def _boxed(item: Any) -> Any:
    box = np.empty((), dtype=object)
    box[()] = item
    return box


_MEMORY: Final = _boxed(_Withheld())
"""The memory of all instances of higher rank, in which all elements are this one."""


class _Making(threading.local):
    """Whether an instance is being made on this thread: then NumPy makes a view, and its content follows."""

    now = False


_making: Final = _Making()


class _InNumpy(threading.local):
    """Whether code of NumPy's runs on this thread with instances: then its ``asarray(x)`` returns a traced array, and no ndarray."""

    now = False


in_numpy: Final = _InNumpy()


class _Front:
    """What instances do before the package's class is asked."""

    __slots__ = ()

    def __init_subclass__(cls, **_: Any) -> None:
        """Do nothing: the package is not told of a class that stands for its own."""

    def __array_finalize__(self: Any, parent: Any) -> None:
        if _making.now:
            return
        if not hasattr(self, "_gradtape_content"):
            if type(parent) is ndarray and parent.dtype != object:  # ``y.view(type(x))`` of numbers
                self._gradtape_content = parent[...]
                return self.__array_finalize__(parent)  # type: ignore[no-any-return]
            raise refused(
                type(self)._gradtape_kind,
                "a method of ndarray was called by its class, which reads the memory",
            )
        super().__array_finalize__(parent)  # type: ignore[misc] # of the package's class

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # A traced array beside it has attributes that ndarrays do not have, such as `value`, for which packages look.
        beside = [_Beside.of(each) if isinstance(each, Handle) else each for each in inputs]
        made = super().__array_ufunc__(ufunc, method, *beside, **kwargs)  # type: ignore[misc]
        if made is NotImplemented and all(
            isinstance(each, ndarray | Handle | float | int) for each in inputs
        ):
            _let_package_refuse(ufunc, method, inputs)
        return made

    # The code of the package is traced: where ndarray has a number it gets an array.

    def __float__(self) -> float:
        return float(super().__float__())  # type: ignore[misc]

    def __int__(self) -> int:
        return int(super().__int__())  # type: ignore[misc]


def _let_package_refuse(ufunc: Any, method: str, inputs: Any) -> None:
    """Raise the error of the package for a call of a ufunc that it does not answer. NumPy's would print operands, which are traced.

    Raises
    ------
    ArraySubclassError
        If it answers the call with ones in place of traced elements.
    """
    plain = []
    for each in inputs:
        is_instance = isinstance(each, TracedNdarray)
        ones = np.ones(each.shape, each.dtype) if is_instance or isinstance(each, Handle) else each
        if is_instance:
            ones = ones.view(kind_of(type(each)))
            vars(ones).update(vars(each))
        plain.append(ones)
    getattr(ufunc, method)(*plain)
    kind = next(kind_of(type(each)) for each in inputs if isinstance(each, TracedNdarray))
    raise refused(kind, f"np.{ufunc.__name__} of it needs numbers: the unit of x**p depends on p")


def is_subclass(operand: Any) -> bool:
    """Return whether an operand is an object of a subclass of ndarray that can have traced elements."""
    return is_subclass_of_ndarray(type(operand))


def is_subclass_of_ndarray(kind: type) -> bool:
    """Return whether objects of a class are arrays of a subclass of ndarray that can have traced elements."""
    return (
        kind is not ndarray
        and issubclass(kind, ndarray)
        and not issubclass(kind, _UNTRACED)
        and kind is not _Beside
    )


def kind_of(kind: type) -> type:
    """Return the class of the package for a class of instances; other classes are returned as they are."""
    return getattr(kind, "_gradtape_kind", kind)


_OF_CLASSES: Final = frozenset({"__module__", "__doc__", "__slots__"})


@functools.lru_cache(maxsize=16)
def _metaclass_of_instances(meta: Any) -> Any:
    """Return a metaclass by which instances of a class are instances of its bases: NumPy asks the operand of the derived class first."""

    def is_instance(cls: Any, item: Any) -> bool:
        kind = getattr(type(item), "_gradtape_kind", None)
        return meta.__instancecheck__(cls, item) or (
            kind is not None and issubclass(kind, cls._gradtape_kind)
        )

    return type(meta)("Instances", (meta,), {"__instancecheck__": is_instance})


@functools.lru_cache(maxsize=256)
def _class_of_instances(kind: type) -> Any:
    attributes = {
        "__slots__": ("_gradtape_content",),
        "_gradtape_kind": kind,
        "__class__": property(lambda _: kind),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    fronts = []
    for base, front in front_of.items():
        if issubclass(kind, base):
            own_names = {name for each in kind.__mro__[: kind.__mro__.index(base)] for name in vars(each)}
            if name := next(iter(own_names & vars(front).keys() - _OF_CLASSES), None):
                raise refused(kind, f"it has an own {name}, which cannot be called with traced elements")
            fronts.append(front)
    meta = _metaclass_of_instances(type(kind))
    cls = type.__new__(meta, kind.__name__, (_Front, *fronts, kind, TracedNdarray), attributes)
    if isinstance(kind, abc.ABCMeta):
        abc._abc_init(cls)  # type: ignore[attr-defined]
    return cls


def instance(kind: type, content: Any, parent: Any) -> Any:
    """Return an object of a subclass of ndarray.

    Parameters
    ----------
    kind : type
        The class, or that of its instances.
    content : Array or ndarray
        The elements. Writes to the object are writes to it.
    parent : object
        What ``__array_finalize__`` gets: the array of which the object is a view, a copy or a result.
    """
    if kind_of(kind) is ndarray:
        return content
    if issubclass(kind, _UNTRACED):
        raise refused(kind, "NumPy's own subclasses of ndarray read its memory")
    content = _as_array(content)
    memory = np.broadcast_to(_MEMORY, content.shape) if content.ndim else _boxed(_Number(content))
    before, _making.now = _making.now, True
    try:
        result: Any = ndarray.view(memory, _class_of_instances(kind_of(kind)))
    finally:
        _making.now = before
    result._gradtape_content = content
    result.__array_finalize__(parent)
    return result


def content_of(operand: Any) -> Any:
    """Return the elements of an object of a subclass as an array; other operands are returned as they are."""
    if isinstance(operand, TracedNdarray):
        return operand._gradtape_content
    return ndarray.view(operand, ndarray) if is_subclass(operand) else operand


def without_class(operand: Any) -> Any:
    """Return the elements of an object with traced elements; other operands are returned as they are."""
    if not isinstance(operand, TracedNdarray):
        return operand
    if isinstance(operand, np.ma.MaskedArray) and operand.mask is not np.ma.nomask:
        raise _returned_masked("a MaskedArray, a subclass of ndarray, is to be differentiated")
    return operand._gradtape_content


def contents(items: Any) -> Any:
    """Return arguments with arrays for the objects of subclasses in them."""
    kind = type(items)
    if kind in (list, tuple):
        return kind(map(contents, items))
    return {key: contents(item) for key, item in items.items()} if kind is dict else content_of(items)


def holds_instance(items: Any) -> bool:
    """Return whether an object of a subclass with traced elements stands in a list."""
    if isinstance(items, list | tuple):
        return any(map(holds_instance, items))
    return isinstance(items, TracedNdarray)


def as_instances(items: Any) -> Any:
    """Return arguments with instances for the package's own objects in them, which have the attributes of these."""
    kind = type(items)
    if kind in (list, tuple):
        return kind(map(as_instances, items))
    if kind is dict:
        return {key: as_instances(item) for key, item in items.items()}
    if not is_subclass(items) or isinstance(items, TracedNdarray) or items is np.ma.masked:
        return items
    result = instance(kind, ndarray.view(items, ndarray), items)
    vars(result).update(getattr(items, "__dict__", ()))
    return result


def _like(array: Any, result: Any) -> Any:
    """Return a result of a method of an object: of its class, unless it is a number."""
    return result if is_scalar(result) or type(array) is _Beside else instance(type(array), result, array)


def is_scalar(result: Any) -> bool:
    """Return whether NumPy has a scalar, or something that is no array, in this place."""
    if isinstance(result, Handle):
        return bool(getattr(result, "is_scalar", False))
    return not isinstance(result, ndarray)


def _as_array(result: Any) -> Any:
    """Return a result as an array, also one of rank 0, which NumPy's functions hand to ``__array_wrap__``."""
    handle: Any = result
    return handle[...] if is_scalar(result) and isinstance(result, Handle) else result


def _method(name: str, *, plain: bool = False) -> Callable[..., Any]:
    """Return a method of ndarray for instances, whose result is of their class, or an array where `plain` is true."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._gradtape_content, name)(*contents(args), **contents(kwargs))
        return result if plain or result is None else _like(self, result)

    call.__name__ = name
    return call


def _reduction(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return a method of ndarray that reduces by a ufunc: its class may have a meaning of its own for it."""

    def reduce(
        self: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
    ) -> Any:
        keywords = {name: option for name, option in options.items() if option is not _NO_VALUE}
        if dtype is not None:
            keywords["dtype"] = dtype
        if out is not None:
            keywords["out"] = out
        if keepdims is not False and keepdims is not _NO_VALUE:
            keywords["keepdims"] = keepdims
        return ufunc.reduce(self, axis=axis, **keywords)

    return reduce


def _limit(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return ``x.max`` or ``x.min``, which take no dtype."""
    reduce = _reduction(ufunc)

    def limit(self: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:
        return reduce(self, axis, None, out, keepdims, **options)

    return limit


def _accumulation(ufunc: np.ufunc) -> Callable[..., Any]:
    def accumulate(self: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        keywords = {"dtype": dtype, "out": out}
        array = self if axis is not None else self.ravel()
        return ufunc.accumulate(
            array, axis=axis or 0, **{name: x for name, x in keywords.items() if x is not None}
        )

    return accumulate


class _Probe(np.ndarray[Any, Any]):
    """An array whose operators return the ufunc that NumPy calls for them."""

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> Any:
        return ufunc


@functools.lru_cache(maxsize=64, typed=True)
def _power(dtype: Any, exponent: float) -> tuple[Any, Any]:
    """Return the ufuncs that NumPy calls for ``x ** exponent`` and ``x **= exponent``: for some exponents not `numpy.power`; which ones
    differs between versions."""
    probe: Any = np.ones(1, dtype).view(_Probe)
    raised = probe**exponent
    probe **= exponent  # probe is now the ufunc
    return raised, probe


class TracedNdarray(NDArrayOperatorsMixin, ndarray):  # type: ignore[misc]
    """What ndarray is for a subclass, for elements that are traced. The elements are `_gradtape_content`, an Array or an ndarray."""

    __slots__ = ()
    _gradtape_content: Any
    _gradtape_kind: Any

    def __array_finalize__(self, parent: Any) -> None:
        """Do nothing, as that of ndarray."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return an array as an object of this class."""
        return array if type(array) is type(self) else instance(type(self), content_of(array), self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a ufunc to the elements; the operand of the highest priority wraps the result."""
        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function of NumPy's to objects of the class by NumPy's own code, which decides what keeps the class; where that is
        compiled, or reads memory, to the elements."""
        if not holds_instance(
            (args, *kwargs.values())
        ):  # the package hands on what it has taken out of such objects
            return function(*args, **kwargs)
        implementation = getattr(function, "_implementation", None)
        if not isinstance(implementation, FunctionType):
            if function not in FUNCTIONS:
                raise refused(kind_of(type(self)), f"{function.__name__} of NumPy is compiled")
        elif _COMPILED.isdisjoint(names_in(implementation.__code__)) and (
            function not in _BY_ELEMENTS or isinstance(self, np.ma.MaskedArray)
        ):
            before, in_numpy.now = in_numpy.now, True
            try:
                result = implementation(*args, **kwargs)
                if not isinstance(result, ndarray) or result.dtype != object:
                    return result
            except (GradtapeError, TypeError) as error:  # of compiled code inside
                if isinstance(self, np.ma.MaskedArray):  # whose elements alone are something else
                    raise _masked(function, error) from error
            finally:
                in_numpy.now = before
        result = function(*contents(args), **contents(kwargs))
        if kwargs.get("out") is not None:
            return kwargs["out"]
        return _classified(function, args, kwargs, result)

    # What is asked of the elements

    def _not_set(self, _: Any) -> None:
        raise refused(kind_of(type(self)), "the shape of such an object stays as it is; use x.reshape(...)")

    def _set_shape(self, shape: Any) -> None:
        if np.reshape(self._gradtape_content, shape).shape != self.shape:
            self._not_set(shape)

    shape = property(lambda self: self._gradtape_content.shape, _set_shape)
    dtype = property(lambda self: self._gradtape_content.dtype, _not_set)
    strides = property(lambda self: self._gradtape_content.strides, _not_set)
    ndim = property(lambda self: self._gradtape_content.ndim)
    size = property(lambda self: self._gradtape_content.size)
    flags = property(lambda self: self._gradtape_content.flags)
    itemsize = property(lambda self: self._gradtape_content.itemsize)
    nbytes = property(lambda self: self._gradtape_content.nbytes)
    base = property(lambda self: self._gradtape_content.base)
    T = property(lambda self: _like(self, self._gradtape_content.T))
    mT = property(lambda self: _like(self, self._gradtape_content.mT))
    flat = property(
        lambda self: self._gradtape_content.flat,
        lambda self, new: setattr(self._gradtape_content, "flat", contents(new)),
    )
    real = property(
        lambda self: _like(self, self._gradtape_content.real),
        lambda self, new: setattr(self._gradtape_content, "real", contents(new)),
    )
    imag = property(
        lambda self: _like(self, self._gradtape_content.imag),
        lambda self, new: setattr(self._gradtape_content, "imag", contents(new)),
    )

    def __len__(self) -> int:
        return len(self._gradtape_content)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __getitem__(self, key: Any) -> Any:
        return _like(self, self._gradtape_content[contents(key)])

    def __setitem__(self, key: Any, new: Any) -> None:
        self._gradtape_content[contents(key)] = contents(new)

    def __float__(self) -> float:
        return float(self._gradtape_content)

    def __complex__(self) -> complex:
        return complex(self._gradtape_content)

    def __int__(self) -> int:
        return int(self._gradtape_content)

    def __bool__(self) -> bool:
        return bool(self._gradtape_content)

    def __index__(self) -> int:
        return operator.index(self._gradtape_content)

    def __repr__(self) -> str:
        return f"{kind_of(type(self)).__name__}({self._gradtape_content!r})"

    def __str__(self) -> str:
        return str(self._gradtape_content)

    def __format__(self, spec: str) -> str:
        return format(self._gradtape_content, spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._gradtape_content, dtype, copy=copy)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        raise refused(kind_of(type(self)), "pickling writes numbers")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __pow__(self, other: Any, mod: Any = None) -> Any:
        """Return ``x ** y``, for some exponents by another ufunc, as NumPy's operator."""
        if mod is not None:
            return NotImplemented
        if type(other) in (int, float) and (ufunc := _power(self.dtype, other)[0]) is not np.power:
            return ufunc(self)
        return super().__pow__(other)

    def __ipow__(self, other: Any) -> Any:  # type: ignore[misc] # Python gives it no third number
        """Do ``x **= y``, for some exponents by another ufunc, as NumPy's operator."""
        if type(other) in (int, float) and (ufunc := _power(self.dtype, other)[1]) is not np.power:
            return ufunc(self, out=(self,))
        return super().__ipow__(other)

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        """Return the same elements as an object of this class, or of another one; an array for ``np.ndarray``."""
        kinds = [each for each in (dtype, type) if isinstance(each, abc.ABCMeta | _TYPE)]
        kind = next((each for each in kinds if issubclass(each, ndarray)), None)
        new_dtype = None if dtype is kind else dtype
        result = (
            self._gradtape_content.view() if new_dtype is None else self._gradtape_content.view(new_dtype)
        )
        if kind is ndarray:
            return result
        return instance(self.__class__ if kind is None else kind, result, self)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """Return the elements with another dtype."""
        content = self._gradtape_content
        result = content.astype(dtype, order=order, casting=casting, copy=copy)
        if result is content:
            return self
        return instance(type(self), _as_array(result), self) if subok else result

    def conj(self) -> Any:
        """Return the complex conjugate: of real numbers the object itself."""
        return np.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Return the elements rounded: an array where there are decimals, as NumPy's method."""
        target = () if out is None else (out,)
        return (
            self._gradtape_content.round(decimals, *contents(target)) if decimals else np.rint(self, *target)
        )

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the elements limited to an interval."""
        return _METHODS._clip(self, min, max, out, **options)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
    ) -> Any:
        """Return the mean, as NumPy's code computes it."""
        return _METHODS._mean(self, axis, dtype, out, keepdims, **options)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        **options: Any,
    ) -> Any:
        """Return the variance, as NumPy's code computes it."""
        return _METHODS._var(self, axis, dtype, out, ddof, keepdims, **options)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        **options: Any,
    ) -> Any:
        """Return the standard deviation, as NumPy's code computes it."""
        return _METHODS._std(self, axis, dtype, out, ddof, keepdims, **options)

    sum, prod = _reduction(np.add), _reduction(np.multiply)
    any, all = _reduction(np.logical_or), _reduction(np.logical_and)
    max, min = _limit(np.maximum), _limit(np.minimum)
    cumsum, cumprod = _accumulation(np.add), _accumulation(np.multiply)


class _Beside(TracedNdarray):
    """A traced array as an operand beside objects of a subclass: an ndarray in all that a package can ask."""

    __slots__ = ("_gradtape_content",)
    _gradtape_kind = ndarray
    __class__ = ndarray

    @classmethod
    def of(cls, array: Handle) -> _Beside:
        """Return a traced array in this form."""
        view: _Beside = ndarray.view(np.broadcast_to(_MEMORY, array.shape), cls)
        view._gradtape_content = array
        return view


_TYPE: Final = type

for _name in (
    *(
        "reshape",
        "ravel",
        "flatten",
        "copy",
        "squeeze",
        "swapaxes",
        "transpose",
        "diagonal",
        "take",
        "repeat",
    ),
    *("compress", "choose", "argsort", "argpartition", "dot", "trace", "argmax", "argmin"),
):
    setattr(TracedNdarray, _name, _method(_name))
for _name in ("item", "tolist", "nonzero", "searchsorted", "fill", "put", "sort", "partition", "setflags"):
    setattr(TracedNdarray, _name, _method(_name, plain=True))


def _refusing(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise refused(kind_of(type(self)), f"x.{name} reads or changes the memory")

    return call


for _name in (
    "byteswap",
    "dump",
    "dumps",
    "getfield",
    "resize",
    "setfield",
    "tobytes",
    "tofile",
    "__dlpack__",
):
    setattr(TracedNdarray, _name, _refusing(_name))
for _name in ("ctypes", "data", "__array_interface__", "__array_struct__"):
    setattr(TracedNdarray, _name, property(_refusing(_name)))


_COMPILED: Final = frozenset({"c_einsum", "compiled_interp", "nditer", "_umath_linalg"})
"""Compiled functions, in the code of NumPy's functions, that read memory."""

_WRAPPED: Final[dict[Any, tuple[int, tuple[int, ...]]]] = {
    np.linalg.solve: (1, (0,)),
    np.linalg.tensorsolve: (0, (0,)),
    np.linalg.lstsq: (1, (0, 1)),
    np.linalg.qr: (0, (0, 1)),
    np.linalg.eig: (0, (1,)),
    np.linalg.eigh: (0, (1,)),
    np.linalg.svd: (0, (0, 2)),
    **dict.fromkeys((np.linalg.inv, np.linalg.pinv, np.linalg.cholesky), (0, (0,))),
}
"""Functions whose results ``__array_wrap__`` of an argument gets: the number of the argument, and those of the results."""

_OF_FIRST: Final = {
    **dict.fromkeys((np.empty_like, np.i0, np.nanvar), True),
    **dict.fromkeys((np.insert, np.delete, np.diagflat, np.linspace, np.logspace, np.geomspace), False),
    **dict.fromkeys((np.quantile, np.percentile, np.nanquantile, np.nanpercentile, np.nanmedian), False),
}
"""Functions whose results have the class of their first argument, and whose code in Python reads memory; whether those of rank 0 do."""

_OF_PRIORITY: Final = frozenset((np.dot, np.inner, np.correlate))
"""Compiled functions whose result has the class of the operand of the higher priority."""

_BY_ELEMENTS: Final = frozenset({np.array_equiv, np.i0, np.linspace, np.logspace, np.geomspace, *_WRAPPED})
"""Functions whose code in Python takes an error of compiled code for an answer, converts, or wraps what compiled code returns."""


def _classified(function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
    """Return the result of a function of arrays as the class that NumPy's compiled code, or code that reads memory, gives it."""
    operands = _flat((args, kwargs))
    if function in _WRAPPED:
        position, wrapped = _WRAPPED[function]
        owner = args[position]
        if not is_subclass(owner):
            return result
        if not isinstance(result, tuple):
            return result if function is np.linalg.svd else _wrapped(owner, result, None)
        parts = [_wrapped(owner, part, None) if k in wrapped else part for k, part in enumerate(result)]
        return type(result)(parts) if type(result) is tuple else type(result)(*parts)
    if function in _OF_FIRST and is_subclass(operands[0]):
        if isinstance(result, tuple):  # np.linspace(..., retstep=True)
            return tuple(instance(type(operands[0]), part, operands[0]) for part in result)
        return (
            result
            if is_scalar(result) and not _OF_FIRST[function]
            else instance(type(operands[0]), result, operands[0])
        )
    if function is np.meshgrid:
        return type(result)(
            instance(type(array), part, array) if is_subclass(array) else part
            for array, part in zip(args, result, strict=True)
        )
    if function is np.concatenate:
        owner = _wrapping(operands, 0.0)
        return result if owner is None else instance(type(owner), result, None)
    if function in _OF_PRIORITY and not is_scalar(result):
        if function is np.correlate and np.size(operands[0]) < np.size(operands[1]):
            operands[:2] = operands[1::-1]
        owner = operands[int(_priority(operands[1]) > _priority(operands[0]))]
        return instance(type(owner), result, owner) if is_subclass(owner) else result
    return result


def _flat(items: Any) -> list[Any]:
    if isinstance(items, dict):
        items = tuple(items.values())
    return [leaf for item in items for leaf in _flat(item)] if isinstance(items, list | tuple) else [items]


def _priority(operand: Any) -> float:
    return float(getattr(operand, "__array_priority__", 0.0)) if is_subclass(operand) else 0.0


def _wrapping(operands: Any, lowest: float = -np.inf) -> Any:
    """Return the operand that decides on the class of a result: the first with the highest priority above `lowest`; None if none does."""
    owner = None
    for operand in filter(is_subclass, operands):
        if _priority(operand) > lowest:
            owner, lowest = operand, _priority(operand)
    return owner


def _wrapped(owner: Any, array: Any, context: Any, result: Any = None) -> Any:
    """Return an array as the class of an object wraps it; `result` is the result as NumPy's functions return it, which may be a number."""
    is_number = result is not None and is_scalar(result)
    wrap = as_instances(owner).__array_wrap__
    names = getattr(getattr(wrap, "__code__", None), "co_varnames", ("return_scalar",))
    # without the last parameter as it was defined before NumPy 2
    return wrap(array, context, is_number) if {"return_scalar", "args"} & {*names} else wrap(array, context)


_LOWEST_PRIORITY: Final = -1e6
"""That of NumPy's scalars, and of objects that say none."""


def _operator_priority(operand: Any) -> Any:
    is_scalar = isinstance(operand, np.generic)
    return _LOWEST_PRIORITY if is_scalar else getattr(operand, "__array_priority__", _LOWEST_PRIORITY)


def _with_priorities(name: str) -> Callable[[Any, Any], Any]:
    """Return an operator that leaves operands without ufuncs and with a higher priority to their own operators, as that of ndarray does."""
    own = getattr(TracedNdarray, name)

    def operator(self: Any, other: Any, *modulus: Any) -> Any:
        is_asked = not hasattr(type(other), "__array_ufunc__") and _operator_priority(
            other
        ) > _operator_priority(self)
        return NotImplemented if is_asked else own(self, other, *modulus)

    return operator


_BINARY: Final = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
_IN_PLACE: Final = "iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor"

for _operator in f"{_BINARY} {_IN_PLACE} lt le eq ne gt ge".split():
    setattr(TracedNdarray, f"__{_operator}__", _with_priorities(f"__{_operator}__"))


def apply_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a ufunc to the elements of objects of subclasses, as ``ndarray.__array_ufunc__`` does."""
    out = kwargs.get("out")
    called = np.clip if ufunc is _CLIP else getattr(ufunc, method)
    made = called(*contents(inputs), **contents(kwargs))
    if method == "at" or made is NotImplemented:
        return made
    several = isinstance(made, tuple)
    results: Any = made if several else (made,)
    owner = _wrapping(inputs)
    wrapped = []
    for k, result in enumerate(results):
        context = (ufunc, inputs, k) if method in ("__call__", "outer") else None
        target = None if out is None else out[k]
        if target is None:
            wrapped.append(result if owner is None else _wrapped(owner, _as_array(result), context, result))
        else:
            wrapped.append(_wrapped(target, target, context) if is_subclass(target) else target)
    return tuple(wrapped) if several else wrapped[0]


def ufunc_beside_array(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a ufunc to a traced array and objects of subclasses; NotImplemented where these are asked next."""
    kinds = [type(each) for each in (*inputs, *kwargs.get("out", ())) if is_subclass(each)]
    if any(issubclass(kind, TracedNdarray) for kind in kinds):
        return NotImplemented
    if all(kind.__array_ufunc__ is ndarray.__array_ufunc__ for kind in kinds):
        return apply_ufunc(ufunc, method, inputs, kwargs)
    return getattr(ufunc, method)(*as_instances(inputs), **kwargs)


HOOKS.instance, HOOKS.content = instance, content_of
HOOKS.is_traced = lambda leaf: isinstance(leaf, Handle)
