"""Concrete numbers and arrays of values, for Python. In a jitted function truth and integers are guarded, floats are an error."""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from gradtape.config import traces_package
from gradtape.errors import (
    ConcretizationError,
    GradtapeWarning,
    UnsupportedFunctionError,
    warn,
)
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape, is_inexact, part_dtype
from gradtape.kinds.refusals import is_table, values_of
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.ops.core.elementwise.logic import equal, truth
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.reductions import reduce_all
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.arrays.select import nonzero
from gradtape.trace.array.checks import answer_of_check
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.jit.guards import Mapped, Trace, abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.bytecode import callee_names, constant_key, instruction_at
from gradtape.trace.patching.callers import callee_of, extension_module_of
from gradtape.trace.random.comparisons import warn_of_chance_in_branch
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.log import is_told_at_end, note_exit
from gradtape.trace.source.sites import (
    READERS,
    Site,
    asking_package,
    is_program_file,
    is_traced_file,
    is_user_file,
    nearest_frame,
    package_of,
    path_in_package,
    site_of,
    user_frame,
    user_site,
)
from gradtape.trace.translation.trace_budget import watch_branch

WHY_CONSTANT = "the result would be frozen at trace time, and wrong in every later call"
WHY_UNKNOWN = "its numbers are known only when the compiled function runs"
REMEDY_FOR_STORE = "write to an array created in traced code: y = np.zeros(n) (np.zeros(n, like=x) in a library), or to y = gt.constant(y)"
REMEDY_FOR_FIELD = "use an array for each field: x = np.zeros(n), or a dict of arrays: no structured array holds traced numbers"
REMEDY_FOR_INDEX = "gt.constant(y)[k] for an ndarray y; np.stack a list first"
NUMERIC_PACKAGES = frozenset({"math", "cmath", "numpy", "scipy"})
"""Packages whose functions compute with the numbers of their arguments."""

IN_PACKAGES = {
    "json": "encode what the function returns, outside it",
    "logging": "log what the function returns, outside it, or print in each call: gt.print('{:.3f}', x)",
    "matplotlib": "plot what the function returns, outside it; on a tape arrays can be plotted as they are",
    "numpy.testing": "check the results outside the function; on a tape arrays can be checked as they are",
    "pandas": "columns of pandas hold numbers: keep traced values in arrays or in a dict of arrays (a column times an array "
    "is one), and make a table of the results, outside",
    "pickle": "pickle the results, outside the function",
    "random": "draw with a generator of NumPy's: rng = np.random.default_rng(seed), rng.normal(x)",
    "statistics": "use NumPy's function: np.mean(x), np.median(x), np.std(x)",
    "unittest": "check the results outside the function; on a tape arrays can be checked as they are",
    "xarray": "keep traced values in arrays: da.data, and not da.values, is the traced array, for NumPy's functions",
}
"""Packages that ask arrays for their numbers, with what to do instead."""

INSTEAD_OF_EXTENSION = "call it by gt.callback(f, result_like, x), with a derivative by gt.custom_vjp, or write it with functions of NumPy"
"""What to do instead of giving a traced array to a function of an extension module."""

ARRAY_LIBRARIES = frozenset({"cupy", "jax", "jaxlib", "tensorflow", "torch"})
"""Libraries with arrays of their own, whose functions do not take traced arrays."""

PREDICATES = frozenset(
    {
        math.isnan,
        math.isinf,
        math.isfinite,
        math.isclose,
        cmath.isnan,
        cmath.isinf,
        cmath.isfinite,
        cmath.isclose,
    }
)
"""Predicates of numbers: their results have no derivative."""


def array_of(value: Value, expression: str, *, meant: bool = True, as_list: bool = False) -> NDArray:
    """Return the array of a value that does not depend on a running trace."""
    trace = abstracting_trace(value) if value.tags else None
    if trace is not None:
        abstract = abstract_of(value)
        raise ConcretizationError(
            f"{expression} of a traced array in {(abstract or trace).described}",
            where=user_site(),
            why=WHY_CONSTANT if abstract is None else abstract.why,
            remedy=f"{_instead_of_number(expression)}{trace.remedy}",
        )
    (data,) = force([value])
    if value.tags and asking_package() not in READERS:
        note_exit(value, expression, data, meant=meant, in_list=as_list)
    return data


def note_text(value: Value, data: NDArray, expression: str) -> None:
    """Note that numbers leave as text, or into a file, from which they may come back."""
    if value.tags and is_inexact(value.dtype) and asking_package() not in READERS:
        note_exit(value, expression, data, form="text")


def abstracting_trace(value: Value) -> Trace | None:
    """Return the running trace whose arguments a value depends on, so that it has no data; None if it depends on captures alone."""
    trace = trace_of(value)
    return None if trace is None or trace.depends_on_captures_only(value) else trace


def scalar_of(value: Value, expression: str) -> Any:
    """Return the only element of a value; see `array_of`."""
    if value.size != 1 or value.ndim:
        if value.size == 1:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        raise TypeError(
            f"only length-1 arrays can be converted to Python scalars; got shape {value.shape}: "
            "functions of arrays are NumPy's, np.sin(x) in place of math.sin(x)"
        )
    if not value.tags:
        return force([value])[0].item()
    frame = nearest_frame(3)
    trace = abstracting_trace(value)
    if instruction_at(frame) == "STORE_SUBSCR":
        return _data_for_store(value, trace, frame).item()
    read = trace is not None or not _loses_derivative(value) or asking_package() in READERS
    if not read:
        _refuse_compiled_code(frame)
    function = None if read else callee_of(frame)
    home = getattr(function, "__module__", None) or ""
    is_library_call = (
        function is not None and home.partition(".")[0] in NUMERIC_PACKAGES and function not in PREDICATES
    )
    # A number made of a complex number does not have the bits of the parts that were read.
    hidden = not read and callee_names(frame) == ("complex",)
    array = array_of(value, expression, meant=not (is_library_call or hidden))
    if issubclass(type(getattr(function, "__self__", None)), np.ndarray):  # y.fill(x)
        _warn_of_store(value)
    if function is not None and is_library_call and home != "scipy" and not is_told_at_end(value):
        name = f"{home.replace('numpy', 'np')}.{function.__name__}"
        instead = _instead_of(function) if home == "numpy" else "use NumPy's function"
        warn(
            GradtapeWarning,
            f"{name} converts a watched array to a number, and its result has no gradient",
            where=user_site(3),
            remedy=f"{instead}; {name}(float(x)) to state that this is intended",
        )
    return array.item()


def as_ndarray(value: Value, dtype: Any) -> NDArray:
    """Return a value as an ndarray for NumPy: an error in jit, a warning where a tape loses the derivative."""
    frame = nearest_frame(3)
    trace = abstracting_trace(value)
    package = asking_package()
    if instruction_at(frame) == "STORE_SUBSCR":
        return np.array(_data_for_store(value, trace, frame), dtype)
    subscript = instruction_at(frame) == "BINARY_SUBSCR"
    if trace is not None and subscript:
        raise ConcretizationError(
            f"an ndarray or list is indexed with a traced array of {trace.described}",
            where=site_of(frame),
            why=WHY_UNKNOWN,
            remedy=REMEDY_FOR_INDEX,
        )
    if trace is not None:
        raise ConcretizationError(
            f"a traced array of {trace.described} cannot be converted to an ndarray",
            where=user_site(3),
            why=WHY_UNKNOWN,
            remedy=_instead_in(package) or _instead_of(callee_of(frame)),
        )
    (data,) = force([value])
    if _loses_derivative(value) and package not in READERS:
        _refuse_compiled_code(frame)
        note_exit(value, "np.asarray(x)", data, meant=False)
        if not is_told_at_end(value):
            warn(
                GradtapeWarning,
                "a watched array is converted to an ndarray, which is not recorded",
                where=user_site(3),
                remedy=f"{REMEDY_FOR_INDEX if subscript else _instead_in(package) or _instead_of(callee_of(frame))}; "
                "x.numpy() if this is intended",
            )
    return np.array(data, dtype)


def _refuse_compiled_code(frame: FrameType) -> None:
    """Raise an error if compiled code of a package needs the numbers of a watched array, and Python code of a package calls it.

    Packages whose compiled code takes buffers raise one, too. After a warning, part of the result would have no derivative.
    """
    file = frame.f_code.co_filename
    if is_user_file(file) or not is_program_file(file):
        return
    function = callee_of(frame)
    module = extension_module_of(function)
    if module:
        raise UnsupportedFunctionError(
            f"{getattr(function, '__name__', 'a function')} of {module} takes the numbers of a watched array",
            where=user_site(4),
            why=f"it is compiled, and what it computes for {path_in_package(file)}:{frame.f_lineno} cannot be traced",
            remedy=f"call the function of {package_of(file)} outside the tape, with x.numpy(), or by gt.callback(f, result_like, x), "
            "to which gt.custom_vjp gives a derivative",
        )


def numbers_for_reader(value: Value) -> NDArray | None:
    """Return the numbers of a value that are known, if a package asks that draws or checks them; else None."""
    if asking_package() not in READERS or abstracting_trace(value) is not None:
        return None
    return np.array(force([value])[0])


def _loses_derivative(value: Value) -> bool:
    """Return whether a tape records a value and loses its derivative if it is converted; integers have none."""
    return is_inexact(value.dtype) and any(tag.recording for tag in value.tags)


def _instead_in(package: str) -> str:
    """Return what to do instead of giving a traced array to a package; empty for the user's code."""
    if not package:
        return ""
    if package in IN_PACKAGES:
        return IN_PACKAGES[package]
    frame = nearest_frame(3)
    inside = path_in_package(frame.f_code.co_filename)
    asking = f"{inside}:{frame.f_lineno} needs the numbers" if inside else f"{package} needs the numbers"
    left_out = (
        "" if not inside or traces_package(package) else f" (gt.config.trace_packages leaves {package} out)"
    )
    return f"{asking}{left_out}: call the function outside, or by gt.callback(f, result_like, x), to which gt.custom_vjp gives a derivative"


def _instead_of_number(expression: str) -> str:
    """Return what to do instead of asking a traced array for its number in a jitted function."""
    package = asking_package()
    if package or expression == "pickling":
        return _instead_in(package or "pickle")
    if expression == "float(x)" and instruction_at(nearest_frame(2)) == "BINARY_OP":  # "%.3f" % x
        return "print in each call with gt.print('{:.3f}', x), or write f'{x:.3f}', which shows what is known while a function is traced"
    if expression == "x.tolist()":
        return "list(x) has the elements, traced; or return the value and convert it outside"
    return (
        "stay with arrays (np.sin(x) instead of np.sin(float(x))), or return the value and convert it outside"
    )


def _instead_of(function: Any) -> str:
    """Return the expression to write instead of a call that needs ndarrays."""
    if function is np.take:
        return "gt.constant(y)[k], or gt.gather(y, k), for an ndarray y"
    if function is np.full:
        return "np.full(n, a, like=a)"
    if type(getattr(function, "__self__", None)) is np.ndarray:
        name = function.__name__
        product = " (or y @ x)" if name == "dot" else ""
        return f"y.{name}(x) of an ndarray y needs numbers: write np.{name}(y, x){product}, or gt.constant(y).{name}(x)"
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] == "scipy":
        return f"write {function.__name__} with NumPy's functions and the ufuncs of scipy.special: it takes ndarrays only"
    if extension_module_of(function):
        return INSTEAD_OF_EXTENSION
    return "use x itself (NumPy's functions take it); for a list of traced numbers, [a, b], write np.stack([a, b])"


def _data_for_store(value: Value, trace: Trace | None, frame: FrameType) -> NDArray:
    """Return the array of a value that is assigned to elements of an ndarray."""
    remedy = REMEDY_FOR_FIELD if isinstance(constant_key(frame), str) else REMEDY_FOR_STORE
    if trace is not None:
        abstract = abstract_of(value)
        raise ConcretizationError(
            f"a traced array of {(abstract or trace).described} cannot be stored into an ndarray",
            where=site_of(user_frame(3)),
            why=WHY_UNKNOWN if abstract is None else abstract.why,
            remedy=remedy if abstract is None else abstract.write_remedy,
        )
    (data,) = force([value])
    if _loses_derivative(value) and asking_package() not in READERS:
        note_exit(value, "y[k] = x", data, meant=False)
        _warn_of_store(value, remedy)
    return data


def _warn_of_store(value: Value, remedy: str = REMEDY_FOR_STORE) -> None:
    if not is_told_at_end(value):
        warn(
            GradtapeWarning,
            "a watched array is stored into an ndarray, which is not recorded",
            where=site_of(user_frame(3)),
            remedy=f"{remedy}; x.numpy() if this is intended",
        )


def ratio_of(value: Value) -> tuple[int, int]:
    """Return the pair of integers whose quotient a number is. The module `statistics` calls this, and computes with fractions."""
    if any(tag.recording for tag in value.tags):
        raise ConcretizationError(
            "x.as_integer_ratio() of a traced array",
            where=user_site(3),
            why="a Fraction is an exact Python number, which neither tapes nor compiled functions support",
            remedy=IN_PACKAGES["statistics"],
        )
    return float(scalar_of(value, "x.as_integer_ratio()")).as_integer_ratio()


def unhashable(value: Value) -> TypeError:
    """Return the error for an array that is to be a key of a dict, an item of a set, or an argument of a cached function."""
    number = "" if value.ndim else ", and a traced number has no fixed value to be found by"
    return TypeError(
        f"unhashable type: 'Array'\n  where: {user_site(3)}\n"
        f"  why: keys of dicts, items of sets and arguments of functools.lru_cache are hashed{number}\n"
        "  what to do: call the cached function directly, f.__wrapped__(x); use keys that are not arrays, such as positions; "
        "np.unique(x) returns the distinct elements"
    )


def truth_of(value: Value) -> bool:
    """Return ``bool(x)``; in a trace, guarded."""
    if value.size != 1:
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            if value.size
            else "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
        )
    if value.tags:
        if abstract_of(value) is not None and (asking := sys._getframe(1)).f_code.co_name == "__bool__":
            assert asking.f_back is not None
            answer = answer_of_check(value, asking.f_back)
            if answer is not None:
                return answer
        value = agreed(value, truth)
    trace = trace_of(value)
    (data,) = force([value])
    is_true = bool(data.item())
    if value.tags:
        warn_of_chance_in_branch(value)
    if trace is None:
        return is_true
    site = user_site(3)
    guarded = bool(trace.guard(truth(reshape(value, ())), int(is_true), site))
    if isinstance(site, Site):
        branch = trace.branches.setdefault((site.code, site.instruction), [])
        branch.append(guarded)
        watch_branch(branch, site)
    return guarded


def agreed(value: Value, question: Callable[[Value], Value] = lambda element: element) -> Value:
    """Return the value that all elements of a mapped axis have, for one of which Python asks something in a function that is mapped.

    Python then goes on for all of them as for one; outside, the same is guarded. A value that is not mapped is returned as it is. So is
    one that the user's code looks at before it was tried to compile that code, which serves elements that do not agree as well.

    Raises
    ------
    ConcretizationError
        Where the elements do not agree.
    """
    tag = abstract_of(value)
    if not isinstance(tag, Mapped) or tag.whole is None or value.size != 1 or _may_be_translated():
        return value
    element = reshape(value, ())
    elements = tag.whole(question(element))
    if elements.shape[0] == 0:
        return value
    first = reshape(getitem(elements, slice(0, 1)), ())
    if not truth_of(reduce_all(equal(elements, expand(first, elements.shape, ())), axes=(0,))):
        raise ConcretizationError(
            f"Python needed the concrete value of a traced array in {tag.described}, and the elements do not agree",
            where=user_site(),
            why=tag.why,
            remedy=f"{tag.instead}{tag.remedy}",
        )
    return agreed(first, question)


def _may_be_translated() -> bool:
    """Return whether it is the user's code that looks at a value, and it was not yet tried to compile that code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_traced_file(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or not is_program_file(frame.f_code.co_filename):
        return False
    return not was_translation_tried()


def stays_traced(value: Value, filename: str) -> bool:
    """Return whether code in a file that asks for a number of Python's gets a traced one, and takes it for a number.

    That is code of a traced package, and the user's code in a trace that cannot compile it from its source: there are no numbers.
    """
    if not value.tags or not is_traced_file(filename):
        return False
    if abstracting_trace(value) is not None:
        return not is_user_file(filename) or was_translation_tried()
    return not is_user_file(filename) and _loses_derivative(value)


def was_translation_tried() -> bool:
    """Return whether a trace runs code because it cannot be compiled from its source, or not all of it."""
    return any(isinstance(context, Trace) and context.translates for context in contexts.stack)


def integer_of(value: Value) -> int:
    """Return ``int(x)``; in a trace, guarded."""
    if value.ndim:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    value = real_number(value)
    if value.tags:
        value = agreed(value, lambda element: trunc(element) if element.dtype.kind == "f" else element)
    trace = trace_of(value)
    if value.tags and trace is None:
        note_exit(value, "int(x)")
    (data,) = force([value])
    number = int(data.item())
    if value.tags:
        warn_of_chance_in_branch(value)
    if trace is None:
        return number
    return trace.guard(
        convert(value, np.dtype(np.int64)) if value.dtype.kind == "f" else value, number, user_site(3)
    )


def real_number(value: Value) -> Value:
    """Return the real part of a complex number of NumPy's, as its conversion to a number of Python's does, with NumPy's warning."""
    is_complex = value.dtype.kind == "c" and not value.aval.weak
    return convert(value, part_dtype(value.dtype)) if is_complex else value


def index_of(value: Value) -> int:
    """Return the integer that an integer scalar is; in a trace, guarded."""
    if not value.ndim and value.dtype.kind == "f":  # as of range(3.0)
        raise TypeError(
            f"'{'float' if value.aval.weak else value.dtype.name}' object cannot be interpreted as an integer"
        )
    if value.ndim or value.dtype.kind not in "iu":
        raise TypeError("only integer scalar arrays can be converted to a scalar index")
    return integer_of(value)


def concrete_key(key: Any, shape: Shape, *, masks: bool = False) -> Any:
    """Return an index with values for arrays; integer scalars become guarded Python integers, masks concrete arrays.

    In a trace, masks become the positions of their true elements, whose number is guarded.

    Parameters
    ----------
    key : object
        What stands in the brackets.
    shape : tuple of int
        The shape of the indexed array.
    masks : bool
        Whether a mask may stay traced (for writes of one number).
    """
    _check_masks(key if isinstance(key, tuple) else (key,), shape)
    if isinstance(key, tuple):
        return tuple(part for item in key for part in _concrete_items(item))
    if masks and isinstance(key, Handle) and key.dtype.kind == "b":
        value = key.value
        return value if abstracting_trace(value) is not None else force([value])[0]
    items = _concrete_items(key)
    return items[0] if len(items) == 1 else items


def _check_masks(items: Sequence[Any], shape: Shape) -> None:
    """Raise NumPy's error where a traced mask, of which positions alone are left, does not have the extents of its axes."""
    if not any(isinstance(item, Handle) and item.dtype.kind == "b" for item in items):
        return
    axes = [
        0
        if item is None or item is Ellipsis
        else item.ndim
        if isinstance(item, Handle | np.ndarray) and item.dtype.kind == "b"
        else 1
        for item in items
    ]
    first = 0
    for item, used_axes in zip(items, axes, strict=True):
        if item is Ellipsis:
            first += max(len(shape) - sum(axes), 0)
        elif isinstance(item, Handle) and item.dtype.kind == "b":
            for axis, (extent, extent_of_mask) in enumerate(
                zip(shape[first:], item.shape, strict=False), first
            ):
                if extent_of_mask not in (extent, 0):  # NumPy lets a mask without elements pass
                    raise IndexError(
                        f"boolean index did not match indexed array along axis {axis}; size of axis is {extent} but size of "
                        f"corresponding boolean axis is {extent_of_mask}"
                    )
        first += used_axes


def _concrete_items(item: Any) -> tuple[Any, ...]:
    if isinstance(item, slice):
        return (slice(*[_slice_bound(part) for part in (item.start, item.stop, item.step)]),)
    if not isinstance(item, Handle):
        return (values_of(item) if is_table(item) else unwrap(item),)
    value = item.value
    if value.dtype.kind != "b":
        return (value,)
    if abstracting_trace(value) is None:
        return (force([value])[0],)
    return nonzero(value) if value.ndim else (truth_of(value),)


def _slice_bound(part: Any) -> Any:
    return index_of(part.value) if isinstance(part, Handle) else part
