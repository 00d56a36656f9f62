"""The user's arrays: NumPy's interface on values of the graph."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from gradtape.config import config
from gradtape.containers.quantities import is_wrapped, is_wrapper_class
from gradtape.errors import ArgumentError, DtypeError, InPlaceError, LeakedValueError, ShapeError
from gradtape.habits import ARRAY as ARRAY_HABITS
from gradtape.habits import Missing
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import TraceTag, Value, constant, merge_tags
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape, aval
from gradtape.kinds.arguments import OWN_ORDER
from gradtape.kinds.operands import COMPACT, as_value
from gradtape.kinds.refusals import keeps_labels
from gradtape.kinds.registry import HOOKS
from gradtape.ops.core.elementwise.cast import convert, identity
from gradtape.ops.core.indexing import (
    Basic,
    getitem,
    has_ellipsis,
    has_truths,
    parse_index,
    setitem,
    truth_index,
)
from gradtape.trace.array import concretize
from gradtape.trace.array.attributes import Attributes
from gradtape.trace.array.checks import check_fit, passes_in_body
from gradtape.trace.array.handle import Handle, fresh_value, run_checks, unwrap
from gradtape.trace.array.layout import (
    is_c_contiguous,
    laid_out_as,
    layout_of_copy,
    layout_of_operand,
    layout_of_picked,
    remember_memory,
    with_layout_of,
)
from gradtape.trace.array.lengths import answered, ask_bounds, counted, plain
from gradtape.trace.array.masked import Selection, is_traced_mask, without_selections, write_selection
from gradtape.trace.array.methods import Methods
from gradtape.trace.array.operators import Operators
from gradtape.trace.array.view_functions import (
    ALWAYS_C,
    COPYING,
    KEEPING,
    MAKES_ARRAYS,
    VIEWING,
    resize,
    set_shape,
    view_of,
)
from gradtape.trace.array.views import (
    READ_ONLY,
    BasicIndexView,
    ImaginaryView,
    IntegerIndexView,
    PermutedView,
    ReadOnlyView,
    RealView,
    SubsetView,
    UncertainView,
    check_writable,
    stays_contiguous,
)
from gradtape.trace.dispatch.dispatch import (
    FUNCTION_RULES,
    OPERAND_TYPES,
    UFUNC_RULES,
    as_strong_result,
    call_function,
    call_ufunc,
    implementation_in_python,
    public_name,
)
from gradtape.trace.dispatch.op_cache import index_template, run
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.jit.outcomes import MAY_FAIL, call_now, is_handled
from gradtape.trace.lazy.call_observer import Deferred, prediction
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.lazy.pending import live_arrays
from gradtape.trace.patching.asarray import capture_element
from gradtape.trace.patching.bytecode import callee_names
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import contexts, scopes
from gradtape.trace.source.sites import is_traced_file, tells_scalars_apart, user_site
from gradtape.trace.subclasses.instances import (
    TracedNdarray,
    as_instances,
    contents,
    holds_instance,
    is_subclass,
    is_subclass_of_ndarray,
    ufunc_beside_array,
)
from gradtape.trace.translation.trace_budget import watch_store

NO_NUMBERS: Final = "traced: gt.print shows the numbers"
"""What stands in the text of a traced array."""

_CLASSES: Final = {np.dtype(kind).kind: kind for kind in (int, float, complex)}
"""The classes of Python's numbers, by the kind of their dtype."""

_make = object.__new__
_reference = weakref.ref
_frame = sys._getframe


def _called_in_python(implementation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call NumPy's own implementation of a function with traced arrays among its arguments.

    It may make an array of ndarrays, and multiply it in place by a traced one (``polyfit(x, y, 2, w=w)``). Then all arrays are traced.
    """
    try:
        return implementation(*args, **kwargs)
    except InPlaceError:
        if kwargs.get("out") is not None:
            raise
    handles = [x.value for x in (*args, *kwargs.values()) if isinstance(x, Handle)]
    tagged = functools.partial(_tagged_array, tags=merge_tags(handles))
    return implementation(*map(tagged, args), **{name: tagged(x) for name, x in kwargs.items()})


def _called_with_instances(function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Call a function with objects of subclasses of ndarray among its arguments; NotImplemented where they are to be asked."""
    if all(issubclass(kind, TracedNdarray) for kind in types if is_subclass_of_ndarray(kind)):
        return NotImplemented
    return function(*as_instances(args), **as_instances(kwargs))


def _tagged_array(argument: Any, tags: tuple[TraceTag, ...]) -> Any:
    """Return an ndarray, or a list of numbers, as an array with these tags; any other argument unchanged."""
    if type(argument) not in (np.ndarray, list, tuple) or not np.ndim(argument):
        return argument
    array = np.asarray(argument)
    if array.dtype.kind not in "fciu":
        return argument
    value = emit(identity, [constant(array.copy())])
    value.tags = tags
    return wrap_value(value)


def wrap_value(result: Any) -> Any:
    """Return the Array of a value that one row has returned; a faster form of the constructor."""
    if type(result) is not Value or result.owner is not None:
        return wrap(result)
    array = _make(Array)
    array._base = None
    array._contiguous = True
    array._current = result
    result.owner = reference = _reference(array)
    if result.data is None:
        live_arrays.handles.append(reference)
    if config.eager or CHECKS:
        run_checks(array)
    return array


class Array(Operators, Methods, Attributes, Handle):
    """A value with NumPy's interface: pending (recorded, not yet computed) or concrete.

    An `Array` behaves as an ndarray in NumPy's functions, operators, methods and indexing. In-place syntax rebinds it to a new value;
    views write through to their base, as NumPy's do. Nothing is computed until a value is read: `print`, `float`, `bool`, `.numpy()`.

    Arrays are made by `gradtape.constant`, `gradtape.asarray`, `GradientTape.watch` and by operations on other arrays.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> x = gt.constant([1.0, 2.0, 3.0])
    >>> y = np.sin(x) * 2
    >>> y.shape
    (3,)
    >>> bool(np.isclose(float(y[0]), 2 * np.sin(1.0)))
    True
    """

    __slots__ = ()
    __array_priority__ = 500.0  # below that of series and data frames of pandas, whose own operators and ufuncs keep the labels
    __pandas_priority__ = 2500  # and above that of indices, which hold numbers alone

    wrap_value = staticmethod(wrap_value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that ``isinstance`` reads: that of the object which NumPy's code would have here.

        Code that takes ndarrays takes Arrays, and code that tests for a float takes the number of a caller who passed a float.
        """
        # Packages convert NumPy scalars by np.asarray, as anything that is not an ndarray.
        return self._numpy_class(scalars=tells_scalars_apart(_frame(1).f_code.co_filename))

    def _numpy_class(self, *, scalars: bool = True) -> type:
        """Return the class of the object which NumPy's code would have here; np.ndarray for NumPy scalars unless `scalars`."""
        known = self._current.aval
        if known.shape:
            return np.ndarray
        if known.weak:
            return _CLASSES.get(known.dtype.kind, np.ndarray)
        return known.dtype.type if scalars and self.is_scalar else np.ndarray

    @property
    def name(self) -> str | None:
        """The name that the user gave it, for debugging. In a traced function every array has one: that of its operation."""
        value = self.value
        if value.name is None and contexts.stack and (around := scopes()):
            return around[-1].name_of(value)
        return value.name

    @name.setter
    def name(self, name: str | None) -> None:
        self.value.name = name

    @property
    def shape(self) -> Shape:
        """The extents. Others can be set, where NumPy need not move elements for it."""
        shape = self._current.aval.shape
        if ASKING.questions is not None and (questions := ASKING.by_user(_frame(1))) is not None:
            return questions.extents(shape)  # type: ignore[no-any-return] # lengths stand for integers
        return shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        here.site = user_site(via="x.shape")
        if type(self) is not Array:
            raise AttributeError(f"the shape of a {type(self).__name__} stays as it is; use x.reshape(...)")
        set_shape(self, shape)

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        """Give the array another size, in place: its first elements stay, and zeros follow. It must have no views."""
        here.site = user_site(via="x.resize")
        if type(self) is not Array:
            raise AttributeError(
                f"the size of a {type(self).__name__} stays as it is; use np.resize(x, shape)"
            )
        resize(self, *shape, refcheck=refcheck)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        if ASKING.questions is not None:
            counted(self.shape[0])
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        if ASKING.questions is not None:
            counted(self.shape[0])
        return (self[k] for k in range(self.shape[0]))

    def __repr__(self) -> str:
        data = printable_data(self.value, "repr(x)")
        if data is None:
            return f"Array({self.value.aval}, traced)"
        body = np.array2string(data, separator=", ", prefix="Array(")
        suffix = "" if self.dtype == np.float64 else f", dtype={self.dtype}"
        return f"Array({body}{suffix})"

    def _repr_html_(self) -> str:
        from gradtape.trace.array.html import (
            array_card,  # late: pictures are drawn in notebooks only, and cost 7 ms to import
        )

        return array_card(self.value, type(self).__name__)

    def __str__(self) -> str:
        data = printable_data(self.value, "str(x)")
        return self._placeholder() if data is None else str(data)

    def __format__(self, spec: str) -> str:
        data = printable_data(self.value, "f'{x}'")
        return self._placeholder() if data is None else format(data if self.ndim else data[()], spec)

    def _placeholder(self) -> str:
        """Return what stands for the numbers in text, which was meant to show them."""
        return f"<{self.value.aval}, {NO_NUMBERS}>"

    # Leaving the graph

    def __hash__(self) -> int:
        raise concretize.unhashable(self.value)

    def as_integer_ratio(self) -> tuple[int, int]:
        """Return a pair of integers whose quotient is the number, as NumPy's scalars do; an error for a traced number."""
        return concretize.ratio_of(self.value)

    def numpy(self) -> NDArray:
        """Return the values as a new ndarray, which no tape records."""
        return laid_out_as(np.array(concretize.array_of(self.value, "x.numpy()")), self)

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number, which no tape records; installed packages and traces get the traced number."""
        if concretize.stays_traced(self.value, _frame(1).f_code.co_filename):
            (key,) = index if len(index) == 1 else (index or None,)
            if key is None and self.size != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return as_python_number(
                self[key] if isinstance(key, tuple) else self.reshape(-1)[0 if key is None else key]
            )
        if index and self.value.tags:  # the element leaves, not the array
            (key,) = index if len(index) == 1 else (index,)
            element = self[key] if isinstance(key, tuple) else self.reshape(-1)[key]
            return concretize.array_of(element.value, "x.item()").item()
        return concretize.array_of(self.value, "x.item()").item(*index)

    def tolist(self) -> Any:
        """Return the values as nested lists of numbers, which no tape records; installed packages and traces get traced numbers."""
        if concretize.stays_traced(self.value, _frame(1).f_code.co_filename):
            return as_python_number(self) if not self.ndim else [_listed(part) for part in self]
        return concretize.array_of(self.value, "x.tolist()", as_list=True).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        asking = _frame(1)
        if callee_names(asking)[-1:] == ("__array__",) and is_traced_file(asking.f_code.co_filename):
            # Code in Python calls the method itself, for an array.
            made: Any = self if dtype is None else self.astype(dtype, copy=False)
            made = made.copy() if copy and made is self else made
            return made  # type: ignore[no-any-return]
        return (
            np.zeros(self.shape, self.dtype)
            if capture_element(self)
            else laid_out_as(concretize.as_ndarray(self.value, dtype), self)
        )

    def __float__(self) -> float:
        return (
            0.0
            if capture_element(self)
            else float(concretize.scalar_of(concretize.real_number(self.value), "float(x)"))
        )

    def __complex__(self) -> complex:
        return 0j if capture_element(self) else complex(concretize.scalar_of(self.value, "complex(x)"))

    def __bool__(self) -> bool:
        return False if capture_element(self) else concretize.truth_of(self.value)

    def __int__(self) -> int:
        return 0 if capture_element(self) else concretize.integer_of(self.value)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return int(np.round(self))
        rounded: Any = np.round(self, digits)
        if self.value.aval.weak:  # a number of Python's stays one
            rounded.value.aval = self.value.aval
        return rounded

    def __trunc__(self) -> int:
        return int(self)

    def __floor__(self) -> int:
        return int(np.floor(self))

    def __ceil__(self) -> int:
        return int(np.ceil(self))

    def __index__(self) -> int:
        return concretize.index_of(self.value)

    def __copy__(self) -> Array:
        array = Array(fresh_value(self.value))
        array._contiguous = self._contiguous is True or layout_of_copy(self)
        return array

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (concretize.array_of(self.value, "pickling"), self._current.name)

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a ufunc. The common case, a call with one or two operands and no keywords, is written out at the top."""
        if not kwargs and method == "__call__":
            observer = prediction.observer
            if observer is not None and (made := observer.observe(ufunc, inputs, _frame(1))) is not None:
                return made
            rule = UFUNC_RULES.get(ufunc)
            if rule is not None:
                here.site = user_site()
                if len(inputs) == 1:
                    made = wrap_value(as_strong_result(rule(self.value)))
                    return made if self._contiguous is True else with_layout_of(made, inputs)
                x, y = inputs
                # Inlined: a Python call per operand would add a tenth to the cost of recording.
                if isinstance(x, Handle):
                    ordered = x._contiguous is True
                    x = x.value
                else:
                    ordered = type(x) is not np.ndarray or x.flags.c_contiguous
                    x = x if type(x) in OPERAND_TYPES else None
                if isinstance(y, Handle):
                    ordered = ordered and y._contiguous is True
                    y = y.value
                else:
                    ordered = ordered and (type(y) is not np.ndarray or y.flags.c_contiguous)
                    y = y if type(y) in OPERAND_TYPES else None
                if x is not None and y is not None:
                    made = wrap_value(as_strong_result(rule(x, y)))
                    return made if ordered else with_layout_of(made, inputs, ufunc.signature)
        if not COMPACT.keys().isdisjoint(map(type, (*inputs, *kwargs.get("out", ())))):
            return NotImplemented
        if any(type(operand) is Selection for operand in inputs):  # which knows what to do beside an array
            return NotImplemented
        if any(
            is_wrapped(each) or keeps_labels(each) for each in inputs
        ):  # who call the ufunc with what they hold
            return NotImplemented
        if any(map(is_subclass, inputs)):
            return ufunc_beside_array(ufunc, method, inputs, kwargs)
        here.site = user_site()
        keeps_layout = "out" in kwargs or all(
            map(is_c_contiguous, inputs)
        )  # as an array does that is written to
        made = wrap(call_ufunc(ufunc, method, inputs, kwargs))
        if keeps_layout:
            return made
        return with_layout_of(made, inputs, ufunc.signature) if method == "__call__" else unknown_layout(made)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a NumPy function: a predicted call, a known rule, a view, or the general case, in this order."""
        if len(types) > 1:
            if Selection in types:
                return NotImplemented
            if any(map(is_wrapper_class, types)):  # pint calls the function with magnitudes
                return NotImplemented
            if any(map(is_subclass_of_ndarray, types)):
                return _called_with_instances(function, types, args, kwargs)
        if ASKING.questions is not None and (questions := ASKING.by_user(_frame(1))) is not None:
            return answered(questions, self.__array_function__, function, types, plain(args), plain(kwargs))
        if function in MAY_FAIL and is_handled(_frame(1)):
            return call_now(self, function, types, args, kwargs)
        observer = prediction.observer
        if observer is not None and (made := observer.observe(function, args, _frame(1), kwargs)) is not None:
            return made
        known = FUNCTION_RULES.get(function)
        if known is not None and len(args) <= known.most and "out" not in kwargs and function not in VIEWING:
            here.site = user_site(2, known.via)
            made = wrap_value(run(known.rule, args, kwargs))
            if (
                function not in OWN_ORDER
                and (function not in MAKES_ARRAYS or (type(made) is Array and made._current.aval.shape))
                and all(map(is_c_contiguous, args))
                and (not kwargs or all(map(is_c_contiguous, kwargs.values())))
            ):
                return made
            return with_layout(function, made, (*args, *kwargs.values()))
        if len(types) > 1 and not COMPACT.keys().isdisjoint(types):
            return NotImplemented
        if known is None and (implementation := implementation_in_python(function)) is not None:
            return _called_in_python(implementation, args, kwargs)
        here.site = user_site(2, public_name(function))
        view = view_of(function, args, kwargs)
        if view is not None:
            return view
        operands = (*args, *kwargs.values())
        return with_layout(function, wrap(call_function(function, args, kwargs)), operands)

    # Indexing

    def __getitem__(self, key: Any) -> Array:
        """Return a scalar, a view for a basic index, a copy for index arrays, or a `Selection` for a traced mask."""
        observer = prediction.observer
        if (
            observer is not None
            and (made := observer.observe(Array.__getitem__, (self, key), _frame(1))) is not None
        ):
            return made  # type: ignore[no-any-return] # what the observed call returns
        if ASKING.questions is not None:
            if (questions := ASKING.by_user(_frame(1))) is not None:
                ask_bounds(questions, key, self._current.aval.shape)
                return answered(questions, self.__getitem__, plain(key))  # type: ignore[no-any-return] # an Array
            key = plain(key)
        here.site = user_site()
        value = self.value
        known = index_template(value.aval, key)
        if known is not None:
            if known.scalar or self.is_scalar:
                return wrap_value(known.read(value))  # type: ignore[no-any-return] # a row of one result
            view = Array(known.read(value), self, known.part)
            view._contiguous = known.contiguous and self._contiguous is True
            return view
        if is_traced_mask(self, key):
            trace = trace_of(key.value)
            if trace is not None:
                trace.has_general_ops = True
            # what is written to the array or the mask afterwards does not reach the selection
            return Selection(wrap_value(value), wrap_value(key.value))  # type: ignore[return-value] # it behaves as an Array
        plain_key = concretize.concrete_key(without_selections(key), value.shape)
        if truth_index(plain_key) is not None or has_truths(plain_key):
            return wrap_value(getitem(value, plain_key))  # type: ignore[no-any-return] # a row of one result
        index = parse_index(value.shape, plain_key)
        if not isinstance(index, Basic):
            if index.result and all(map(_is_basic, key if isinstance(key, tuple) else (key,))):
                view = Array(index.read_rows(value), self, IntegerIndexView(index))
                view._contiguous = self._contiguous is True and index.picks_rows(value.shape)
                return view
            picked_array = Array(index.read_rows(value))
            picked = [item for item in (key if isinstance(key, tuple) else (key,)) if not _is_basic(item)]
            if len(picked) == self.ndim and not any(map(_is_mask, picked)):
                picked_array._contiguous = layout_of_picked(picked_array.shape, picked)
            else:  # NumPy's result begins in memory with the axes of the index arrays, wherever these stand in its shape
                picked_array._contiguous = picked_array.ndim < 2 or (
                    index.place == 0 and self._contiguous is True
                )
            return picked_array
        if (
            (self.is_scalar or value.aval.weak) and has_ellipsis(key) and not index.result
        ):  # s[...] and np.asarray(s): an array of rank 0
            number = Array(convert(value, value.dtype) if value.aval.weak else index.read(value))
            number._contiguous = False
            return number
        if self.is_scalar or not (index.result or has_ellipsis(key)):
            read: Array = wrap_value(index.read(value))
            return read
        if not all(map(_is_basic, key if isinstance(key, tuple) else (key,))):
            copy = Array(index.read(value))  # an index array, even of rank 0, selects a copy
            copy._contiguous = copy.ndim == 1 or (copy.ndim > 0 and self._contiguous is True)
            return copy
        view = Array(index.read(value), self, BasicIndexView(index))
        view._contiguous = self._contiguous is True and stays_contiguous(index, value.shape)
        return view

    def __setitem__(self, key: Any, new: Any) -> None:
        here.site = user_site()
        if self.is_scalar:
            raise TypeError(
                f"'numpy.{self.dtype}' object does not support item assignment (at {here.site}): an element or a sum is a number; "
                "assign to the array (y[0] = 1.0), or to a view of it (y[0, ...])"
            )
        watch_store(key, self.ndim)
        if ASKING.questions is not None:
            if (questions := ASKING.by_user(_frame(1))) is not None:
                ask_bounds(questions, key, self._current.aval.shape)
            key = plain(key)
        if type(new) is Selection:
            written = write_selection(self.value, key, new) if is_traced_mask(self, key) else None
            if written is not None:
                return self.rebind(written)
            new = new.elements()
        elif type(new).__name__ in ("Decimal", "Fraction"):
            new = float(new)  # NumPy converts what it stores, in contrast to operands
        elif holds_instance(new):
            new = contents(new)  # what is stored has no class, and no mask
        try:
            written = setitem(
                self.value,
                concretize.concrete_key(without_selections(key), self.shape, masks=np.size(new) == 1),
                unwrap(new),
            )
        except (DtypeError, ShapeError):
            check_writable(
                self
            )  # NumPy looks first whether an array can be written to, then at what is written
            raise
        self.rebind(written)
        return None

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements; np.delete(x, key) returns an array without them")

    def __dir__(self) -> list[str]:
        kind = type(self)
        return [name for name in object.__dir__(self) if hasattr(kind, name)]

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self == item))

    @property
    def is_scalar(self) -> bool:
        """Whether NumPy has a scalar in this place, of which there are no views. An argument may be a scalar or an array."""
        if self._contiguous is not True or self.ndim:
            return False
        base = self._base
        return base is None or (isinstance(base, Deferred) and not base.is_view(self._view))

    def rearranged(self, view: PermutedView | SubsetView | ReadOnlyView, *, contiguous: bool) -> Array:
        """Return a view with the elements in another order or shape."""
        if not self.ndim and self._base is None and type(view) is not ReadOnlyView:
            value = view.read(self.value)
            if not self.is_scalar:
                return self.uncertain_view(value, UncertainView("a number as an array"))
            return wrap_value(value)  # type: ignore[no-any-return]
        rearranged = Array(view.read(self.value), self, view)
        rearranged._contiguous = contiguous
        return rearranged

    def part_view(self, view: RealView | ImaginaryView) -> Array:
        """Return the view of the real or imaginary part."""
        if self.is_scalar:
            return wrap_value(view.read(self.value))  # type: ignore[no-any-return]
        part = Array(view.read(self.value), self, view)
        part._contiguous = False
        return part

    def uncertain_view(self, value: Value, view: UncertainView) -> Array:
        """Return a reshaped array that may be a view or a copy."""
        array = Array(value, self, view)
        array._contiguous = False
        return array

    def read_only(self) -> Array:
        """Return a view of this array that cannot be written to."""
        view = Array(self.value, self, READ_ONLY)
        view._contiguous = self._contiguous
        return view

    def unknown_layout_result(self, value: Value) -> Any:
        """Return results with an unknown layout."""
        return unknown_layout(wrap(value))

    def with_layout(self, function: Any, result: Any) -> Any:
        """Return results of a function of this array, with their layout."""
        return with_layout(function, wrap(result), (self,))


def _is_basic(item: Any) -> bool:
    """Return whether an entry of an index is none of NumPy's arrays: a scalar that is traced is an integer."""
    return not isinstance(item, list | Handle | np.ndarray) or (type(item) is Array and item.is_scalar)


def _is_mask(item: Any) -> bool:
    """Return whether an entry of an index is an array of truth values, whose elements need not stand at one axis each."""
    return isinstance(item, Handle | np.ndarray) and item.dtype.kind == "b"


def placeholder(value: Value, operand: Any) -> Array:
    """Return an Array of a value that stands for an argument, with the layout of the argument."""
    array = Array(value)
    array._contiguous = layout_of_operand(operand)
    remember_memory(array, operand)
    return array


def unknown_layout(made: Any) -> Any:
    """Mark the layout of results as unknown, and return them."""
    for array in made if isinstance(made, tuple | list) else (made,):
        if isinstance(array, Array) and array._base is None and array.ndim > 1:
            array._contiguous = False
    return made


def with_layout(function: Any, made: Any, operands: tuple[Any, ...]) -> Any:
    """Set the layout of results to that of NumPy's results, as far as it is known, and return them."""
    if any(made is operand for operand in operands):  # written to
        return made
    if function in MAKES_ARRAYS:
        for array in made if isinstance(made, tuple) else (made,):
            if type(array) is Array and array._base is None and not array._current.aval.shape:
                array._contiguous = False
    if function in OWN_ORDER:
        return unknown_layout(made)
    if function in ALWAYS_C or all(map(is_c_contiguous, operands)):
        return made
    if function in COPYING and isinstance(made, Array) and made.ndim > 1:
        made._contiguous = layout_of_copy(operands[0])
        return made
    return with_layout_of(made, operands) if function in KEEPING else unknown_layout(made)


def printable_data(value: Value, what: str) -> NDArray | None:
    """Return the data of a value for text, or None for one that is traced or that is the symbolic tangent of a rule."""
    trace = concretize.abstracting_trace(value)
    if trace is not None:
        trace.has_text = True
        return None
    try:
        data = force([value])[0]
    except LeakedValueError:
        if any(tag.recording for tag in value.tags):
            return None
        raise
    concretize.note_text(value, data, what)
    return data


Missing.teach(
    Array,
    {
        name: f"it is a value, which has no memory of its own; x.numpy().{name} is that of an ndarray with the same numbers"
        for name in dir(np.ndarray)
        if not name.startswith("__") or name in ("__array_interface__", "__array_struct__")
    }
    | ARRAY_HABITS,
)


_PYTHON: Final = {
    "f": np.dtype(float),
    "c": np.dtype(complex),
    "i": np.dtype(np.int64),
    "u": np.dtype(np.int64),
}
"""The dtypes of Python's numbers, by the kind of an array's dtype."""


def as_python_number(number: Array, kind: type | None = None) -> Any:
    """Return a traced number as one of Python's, which takes the dtype of arrays that it meets."""
    wanted = _PYTHON.get(number.dtype.kind) if kind is None else np.dtype(kind)
    if wanted is None:
        return number
    value = emit(identity, [convert(number.value, wanted)])
    value.aval = aval((), wanted, True)
    return wrap_value(value)


def _listed(part: Array) -> Any:
    return [_listed(item) for item in part] if part.ndim else as_python_number(part)


def _unpickle(data: NDArray, name: str | None) -> Array:
    array = Array(constant(data))
    array._current.name = name
    return array


def wrap(result: Any) -> Any:
    """Return results of rows and composites with Arrays for values."""
    if isinstance(result, Value):
        return Array(fresh_value(result))
    if isinstance(result, tuple) and any(isinstance(item, Value) for item in result):
        items = [wrap(item) for item in result]
        return tuple(items) if type(result) is tuple else type(result)(*items)
    if isinstance(result, list):
        return [wrap(item) for item in result]
    return result


def known_ndarray(value: Value) -> NDArray | None:
    """Return the data of a value on which the shape of a result depends, or None: on a tape it is computed; in a jitted function
    only an integer is available, and it is guarded."""
    if concretize.abstracting_trace(value) is None:
        return force([value])[0]
    if value.ndim == 0 and value.dtype.kind in "iu":
        return np.asarray(concretize.index_of(value), value.dtype)
    trace = trace_of(value)
    if trace is not None:
        trace.has_general_ops = True
    return None


def call_user_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's with Arrays for values, and return values."""
    return unwrap(function(*[wrap(arg) for arg in args], **{name: wrap(arg) for name, arg in kwargs.items()}))


HOOKS.numbers = known_ndarray
HOOKS.check = passes_in_body
HOOKS.fit = check_fit
HOOKS.written = concretize.note_text
HOOKS.call = call_user_function


def to_array(operand: Any, argument: str = "x") -> Array:
    """Return an operand as an Array; an Array is returned as it is."""
    if isinstance(operand, Array):
        return operand
    if operand is None:
        raise ArgumentError(f"{argument} is None", remedy=f"pass an array or a number as {argument}")
    return Array(as_value(operand, argument))
