"""What is neither a number nor an array for gradtape, and what to pass instead."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Coroutine, ItemsView, Iterator, KeysView, Set, ValuesView
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here

LIBRARIES: Final = {
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
    "pandas": "{x}.to_numpy()",
    "pint": "{x}.magnitude",
    "polars": "{x}.to_numpy()",
    "pyarrow": "{x}.to_numpy()",
    "scipy": "{x}.toarray()",
    "sparse": "{x}.todense()",
    "sympy": "float({x}), or sympy.lambdify",
    "tensorflow": "{x}.numpy()",
    "torch": "{x}.detach().cpu().numpy()",
    "uncertainties": "{x}.nominal_value",
    "xarray": "{x}.to_numpy()",
    "zarr": "{x}[...]",
}
"""Libraries with arrays, tables or numbers of their own, and what makes NumPy's of them."""

_ITERATORS: Final = (Iterator, AsyncIterator)
_VIEWS: Final = (KeysView, ValuesView, ItemsView)


def library_of(thing: Any) -> str:
    """Return the library in `LIBRARIES` that an object is from; empty for others."""
    kind = type(thing)
    name = str(getattr(kind, "__module__", "")).partition(".")[0]
    if name not in LIBRARIES or (name == "scipy" and not hasattr(kind, "toarray")):
        return ""
    return (
        name if hasattr(kind, "__array__") or hasattr(kind, "__mul__") or hasattr(kind, "__dlpack__") else ""
    )


def is_used_up(thing: Any) -> bool:
    """Return whether an object gives its items once, or is no value yet: an iterator other than a file, a coroutine."""
    return isinstance(thing, (*_ITERATORS, Coroutine)) and not hasattr(thing, "read")


def comes_later(thing: Any) -> bool:
    """Return whether the numbers of an object are asked for after it was returned: an iterator, a coroutine, a view of a dict."""
    return is_used_up(thing) or isinstance(thing, _VIEWS)


def refusal(thing: Any, argument: str) -> DtypeError:
    """Return the error for an argument that is neither a number nor an array."""
    x = argument if argument.isidentifier() else "x"
    kind = type(thing).__name__
    kind = "array.array" if isinstance(thing, array) else kind
    what = f"{argument} is {'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}, which is neither a number nor an array"
    why, remedy = "", "pass an ndarray, a number, or a (nested) list of numbers"
    library = library_of(thing)
    if library:
        what = f"{argument} is a {library} {kind}"
        why = "gradtape follows NumPy's arrays"
        remedy = f"pass {LIBRARIES[library].format(x=x)}"
    elif isinstance(thing, Coroutine):
        why, remedy = "it has not run yet", f"pass what it returns: await {x}"
    elif isinstance(thing, _ITERATORS):
        why, remedy = "its items can be read once only", f"pass an array: np.array(list({x}))"
    elif isinstance(thing, Set) and not isinstance(thing, _VIEWS):
        why, remedy = "a set has no order", f"pass an array: np.array(sorted({x}))"
    elif isinstance(thing, (*_VIEWS, range)):
        remedy = f"pass an array: np.array(list({x}))"
    elif kind in ("Decimal", "Fraction"):
        remedy = f"pass float({x})"
    elif isinstance(thing, array | memoryview | bytearray) or hasattr(thing, "__array__"):
        remedy = f"pass np.asarray({x})"
    return DtypeError(what, where=here.site, why=why, remedy=remedy)


def wrong_dtype(dtype: np.dtype[Any], argument: str) -> DtypeError:
    """Return the error for an array of something else than numbers that kernels compute with."""
    x = argument if argument.isidentifier() else "x"
    what = f"{argument} has dtype {dtype}, which is not a bool, integer, float or complex of at most 64 bits a part"
    why, remedy = "", f"convert it first, for example {x}.astype(float)"
    if dtype.name == "bfloat16" or dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        why = f"kernels compute with float16, float32 and float64; {dtype.name} is a dtype of ml_dtypes"
        remedy = f"compute in float32, {x}.astype(np.float32), and convert the result back"
    elif dtype.char in "gG":
        why = "kernels compute with 64 bits a part at most"
        remedy = f"convert it: {x}.astype({'complex' if dtype.kind == 'c' else 'float'})"
    elif dtype.kind == "O":
        why = "its elements are Python objects"
    elif dtype.names is not None:
        why = "its elements are records"
        remedy = f"pass the fields one by one, in a dict for example: {{'{dtype.names[0]}': {x}['{dtype.names[0]}']}}"
    return DtypeError(what, where=here.site, why=why, remedy=remedy)
