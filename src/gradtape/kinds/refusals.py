"""Objects of other libraries. Tables are taken by their values where an array is wanted: series, data frames, indices, labelled arrays.
What else is neither a number nor an array is refused, with what to pass instead.

None of the libraries is imported: objects are known by the modules of their classes.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Coroutine, ItemsView, Iterator, KeysView, Set, ValuesView
from typing import Any, Final

import numpy as np

from gradtape.containers.pandas import column_values, numbers_in, values_in
from gradtape.errors import DtypeError, IntegerInputError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.trees import HOOKS, CyclicObject

LIBRARIES: Final = {
    "astropy": "{x}.value, and make the quantity within the function",
    "autograd": "{x}._value",
    "casadi": "np.array({x})",
    "cupy": "{x}.get()",
    "dask": "{x}.compute()",
    "h5py": "{x}[...]",
    "jax": "np.asarray({x})",
    "jaxlib": "np.asarray({x})",
    "mlx": "np.array({x})",
    "mpmath": "float({x})",
    "netCDF4": "{x}[...]",
    "pandas": "its numbers as an array",
    "pint": "{x}.magnitude",
    "polars": "{x}.to_numpy()",
    "pyarrow": "{x}.to_numpy()",
    "scipy": "{x}.toarray()",
    "sparse": "{x}.todense()",
    "sympy": "float({x}), or sympy.lambdify",
    "tensorflow": "{x}.numpy()",
    "torch": "{x}.detach().cpu().numpy()",
    "uncertainties": "{x}.nominal_value",
    "xarray": "one of its arrays, or dict({x}.data_vars)",
    "zarr": "{x}[...]",
}
"""Libraries with arrays, tables or numbers of their own, and what makes NumPy's of them."""

SUPPORTED: Final = "arrays have booleans, integers, floats up to float64, or complex numbers up to complex128"
"""The dtypes of arrays, for errors."""

WRAPPERS: Final = {
    "casadi": "gt.casadi(f) for use in CasADi",
    "jax": "gt.jax(f) for use in JAX",
    "jaxlib": "gt.jax(f) for use in JAX",
    "torch": "gt.torch(f) for use in PyTorch",
}
"""What makes a function of gradtape one that programs of other libraries call."""

WITH_OPERATORS: Final = frozenset({"astropy", "pint", "scipy"})
"""Libraries whose operators take traced arrays: quantities have them as elements or hold them, sparse arrays of SciPy are supported."""

_ITERATORS: Final = (Iterator, AsyncIterator)
_VIEWS: Final = (KeysView, ValuesView, ItemsView)


def library_of(value: Any) -> str:
    """Return the library in `LIBRARIES` that an object is from; empty for others."""
    kind = type(value)
    name = str(getattr(kind, "__module__", "")).partition(".")[0]
    if name not in LIBRARIES or (name == "scipy" and not hasattr(kind, "toarray")):
        return ""
    return (
        name if hasattr(kind, "__array__") or hasattr(kind, "__mul__") or hasattr(kind, "__dlpack__") else ""
    )


def is_used_up(value: Any) -> bool:
    """Return whether an object gives its items once, or is no value yet: an iterator other than a file, a coroutine."""
    return isinstance(value, (*_ITERATORS, Coroutine)) and not hasattr(value, "read")


def comes_later(value: Any) -> bool:
    """Return whether the numbers of an object are read only after it was returned: an iterator, a coroutine, a view of a dict."""
    return is_used_up(value) or isinstance(value, _VIEWS)


def refusal(value: Any, argument: str) -> DtypeError:
    """Return the error for an argument that is neither a number nor an array."""
    x = argument if argument.isidentifier() else "x"
    kind = type(value).__name__
    kind = "array.array" if isinstance(value, array) else kind
    problem = f"{argument} is {'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}, which is neither a number nor an array"
    why, remedy = "", "pass an ndarray, a number, or a (nested) list of numbers"
    library = library_of(value)
    if is_table(value):
        problem, remedy = not_numbers(value, argument, x)
    elif library:
        problem = f"{argument} is {'an' if library[:1] in 'aeiou' else 'a'} {library} {kind}"
        why = "gradtape supports NumPy arrays"
        remedy = f"pass {LIBRARIES[library].format(x=x)}"
        if library in WRAPPERS and kind.endswith("Tracer"):
            why, remedy = f"{library} is tracing this call", f"wrap the function: {WRAPPERS[library]}"
        elif library in WRAPPERS:
            remedy += f", or wrap the function: {WRAPPERS[library]}"
    elif isinstance(value, CyclicObject):
        problem = f"{argument} is a {type(value.thing).__name__} that contains itself, so it is not a tree of numbers"
        remedy = "pass its numbers in an array, or in lists and dicts"
    elif isinstance(value, Coroutine):
        why, remedy = "it has not run yet", f"pass what it returns: await {x}"
    elif isinstance(value, _ITERATORS):
        why, remedy = "its items can be read only once", f"pass an array: np.array(list({x}))"
    elif isinstance(value, Set) and not isinstance(value, _VIEWS):
        why, remedy = "a set has no order", f"pass an array: np.array(sorted({x}))"
    elif isinstance(value, (*_VIEWS, range)):
        remedy = f"pass an array: np.array(list({x}))"
    elif kind in ("Decimal", "Fraction"):
        remedy = f"pass float({x})"
    elif isinstance(value, array | memoryview | bytearray) or hasattr(value, "__array__"):
        remedy = f"pass np.asarray({x})"
    return DtypeError(problem, where=here.site, why=why, remedy=remedy)


def integer_input(argument: str, dtype: np.dtype[Any], ndim: int, where: object) -> IntegerInputError:
    """Return the error for integers or booleans as an argument that a derivative is taken with respect to."""
    return IntegerInputError(
        f"{argument} is {'an array of' if ndim else 'a number of dtype'} {dtype}",
        where=where,
        why="derivatives with respect to integers are undefined",
        remedy=f"convert it: {'x.astype(float)' if ndim else 'float(x)'}",
    )


def too_long(number: int, argument: str) -> OverflowError:
    """Return the error for a Python integer that no integer dtype holds."""
    return OverflowError(f"{argument} is the integer {number}, which does not fit in 64 bits: pass float(x)")


def wrong_dtype(dtype: np.dtype[Any], argument: str) -> DtypeError:
    """Return the error for an array of something else than numbers that kernels compute with."""
    x = argument if argument.isidentifier() else "x"
    problem = f"{argument} has dtype {dtype}, which is not supported"
    why, remedy = SUPPORTED, f"convert it first, for example {x}.astype(float)"
    if dtype.name == "bfloat16" or dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        why = f"kernels compute with float32 and float64; {dtype.name} is a dtype of ml_dtypes"
        remedy = f"compute in float32, {x}.astype(np.float32), and convert the result back"
    elif dtype.char in "gG":
        remedy = f"convert it: {x}.astype({'complex' if dtype.kind == 'c' else 'float'})"
    elif dtype.kind == "O":
        why = "its elements are Python objects"
    elif dtype.names is not None:
        why = "its elements are records"
        remedy = f"pass the fields one by one, in a dict for example: {{'{dtype.names[0]}': {x}['{dtype.names[0]}']}}"
    return DtypeError(problem, where=here.site, why=why, remedy=remedy)


_WITH_TABLES: Final = frozenset({"pandas", "xarray"})

_labelled: Final[dict[type, bool]] = {}
"""Whether a class is of labelled data."""


def is_labelled(value: Any) -> bool:
    """Return whether an object is one of pandas or xarray that holds data: a table, or a Dataset."""
    kind = type(value)
    has_labels = _labelled.get(kind)
    if has_labels is None:
        bases = (base.__module__.partition(".")[0] for base in kind.__mro__)
        has_labels = not _WITH_TABLES.isdisjoint(bases) and hasattr(kind, "equals") and hasattr(kind, "copy")
        _labelled[kind] = has_labels
    return has_labels


def is_table(value: Any) -> bool:
    """Return whether an object is an array with labels, or several of one length: a Series, DataFrame, Index, DataArray and the like."""
    return is_labelled(value) and hasattr(value, "__array__") and not hasattr(type(value), "data_vars")


def keeps_labels(value: Any) -> bool:
    """Return whether operators and ufuncs of an object return one with labels: tables of pandas and xarray other than indices."""
    return is_labelled(value) and any(hasattr(type(value), name) for name in ("iloc", "dims"))


def values_of(table: Any) -> Any:
    """Return the values of a table as an ndarray, without its labels; missing ones are NaN. None if they are not numbers.

    Arrays of xarray may hold what computes as ndarrays do, traced arrays among them: these are returned as they are.
    """
    data = getattr(table, "data", None)
    if isinstance(getattr(data, "value", None), Value):
        return data
    if not hasattr(table, "columns"):
        return column_values(table)
    numbers = [numbers_in(dtype) for dtype in table.dtypes]
    if any(number is None for number in numbers):
        return None
    if len(set(table.dtypes)) == 1 and isinstance(table.dtypes.iloc[0], np.dtype):
        return values_in(table)
    columns: list[Any] = [column_values(table.iloc[:, column]) for column in range(len(numbers))]
    return np.stack(columns, axis=1) if columns else np.zeros(table.shape)


def not_numbers(table: Any, argument: str, x: str) -> tuple[str, str]:
    """Return what is wrong with a table whose values are not numbers, and the remedy, in which it is called `x`."""
    if hasattr(table, "columns"):
        by_name = [(name, numbers_in(dtype)) for name, dtype in zip(table.columns, table.dtypes, strict=True)]
        others = [name for name, numbers in by_name if numbers is None]
        named = [name for name, numbers in by_name if numbers is not None]
        return (
            f"{argument} is a DataFrame with columns that are not numbers: {', '.join(map(repr, others))}",
            f"pass the columns of numbers: {x}[{named!r}]"
            if named
            else f"convert its columns to numbers first, for example {x}[{others[0]!r}].astype(float)",
        )
    kind = str(table.dtype)
    remedy = f"convert it to numbers, for example {x}.astype(float)"
    if kind.startswith(("datetime", "timedelta")):
        remedy = f"convert it to numbers, for example ({x} - {x}[0]) / np.timedelta64(1, 's')"
    elif kind == "category":
        remedy = (
            f"pass the numbers of its categories, {x}.cat.codes, or {x}.astype(float) where these are numbers"
        )
    return f"{argument} is a {type(table).__name__} of dtype {kind}, which are not numbers", remedy


def copy_of(labelled: Any) -> Any:
    """Return a copy of labelled data that later changes do not reach."""
    return labelled.copy(deep=True)


def bytes_of(labelled: Any) -> int:
    """Return the size of labelled data in memory, without that of its labels."""
    return int(
        sum(labelled.dtypes.map(lambda dtype: dtype.itemsize)) * len(labelled)
        if hasattr(labelled, "columns")
        else labelled.nbytes
    )


def is_same_data(labelled: Any, other: Any) -> bool:
    """Return whether two objects have the same values, labels, names and attributes; missing values are equal to each other."""
    if type(labelled) is not type(other):
        return False
    if hasattr(labelled, "identical"):
        return bool(labelled.identical(other))
    has_name = hasattr(type(labelled), "name")  # a table may have a column of that name
    mine, theirs = [
        (table.name if has_name else None, getattr(table, "attrs", {})) for table in (labelled, other)
    ]
    axes = zip(getattr(labelled, "axes", ()), getattr(other, "axes", ()), strict=True)
    return (
        bool(labelled.equals(other))
        and all(table.identical(two) for table, two in axes)
        and (type(mine[0]), mine[0]) == (type(theirs[0]), theirs[0])
        and mine[1].keys() == theirs[1].keys()
        and all(np.array_equal(content, theirs[1][key]) for key, content in mine[1].items())
    )


def _as_leaf(leaf: Any) -> Any:
    if not is_table(leaf):
        return leaf
    if getattr(leaf, "hasnans", False):
        raise DtypeError(
            f"an {type(leaf).__name__} has NaN",
            where=here.site,
            why="it becomes an array, whose methods do not leave NaN out",
            remedy="pass its values, index.to_numpy()",
        )
    values = values_of(leaf)
    return leaf if values is None else values


HOOKS.table = _as_leaf
