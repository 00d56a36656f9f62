"""Ufuncs of Numba: their Python functions are translated, inside a loop over the elements, or over the arrays of a generalised ufunc."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from gradtape.errors import UnsupportedCodeError, UnsupportedFunctionError
from gradtape.trace.array.preallocated import is_traced, unwrap_preallocated
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.sites import user_site
from gradtape.trace.translation.calls import call_translated
from gradtape.trace.translation.dispatcher import run_instead

Cores = tuple[tuple[str, ...], ...]
"""The names of the axes that a function takes of each operand, or makes of each result."""

_PART: Final = re.compile(r"\(([^)]*)\)")


def _cores(signature: str) -> tuple[Cores, Cores]:
    """Return the axes of operands and results.

    Examples
    --------
    >>> _cores("(n,m),()->(n)")
    ((('n', 'm'), ()), (('n',),))
    """
    first, second = [
        tuple([tuple(filter(None, axes.replace(" ", "").split(","))) for axes in _PART.findall(side)])
        for side in signature.split("->")
    ]
    return first, second


@functools.lru_cache(maxsize=256)
def _loop(
    function: Callable[..., Any],
    operands: tuple[bool, ...],
    outs: tuple[tuple[bool, np.dtype[Any]], ...],
    returns: bool,
) -> Any:
    """Return a function of Numba's that applies a function to one element after the other.

    Parameters
    ----------
    function : callable
    operands : tuple of bool
        For each operand, whether its elements are numbers that the function takes as arrays of one element.
    outs : tuple of (bool, dtype)
        For each result, whether its elements are numbers, and its dtype.
    returns : bool
        Whether the function returns its result; otherwise it writes to its last arguments.
    """
    import numba

    inputs = [f"x{k}" for k in range(len(operands))]
    outputs = [f"y{k}" for k in range(len(outs))]
    shapes = [f"shape{k}" for k in range(len(outs))]
    elements = [f"{x}[k : k + 1]" if boxed else f"{x}[k]" for x, boxed in zip(inputs, operands, strict=True)]
    lines = [
        f"{y} = np.empty({shape}, dtype{k})" for k, (y, shape) in enumerate(zip(outputs, shapes, strict=True))
    ]
    if returns:
        body = [f"{outputs[0]}[k] = function({', '.join(elements)})"]
    else:
        places = [
            f"{y}[k : k + 1]" if is_number else f"{y}[k]"
            for y, (is_number, _) in zip(outputs, outs, strict=True)
        ]
        body = [f"function({', '.join([*elements, *places])})"]
    code = "\n    ".join(
        [
            f"def {function.__name__}(count, {', '.join([*shapes, *inputs])}):",
            *lines,
            "for k in range(count):",
            *[f"    {line}" for line in body],
            f"return {', '.join(outputs)}",
        ]
    )
    names: dict[str, Any] = {"np": np, "function": numba.njit(function), "__name__": function.__module__}
    names.update({f"dtype{k}": dtype for k, (_, dtype) in enumerate(outs)})
    exec(compile(code, f"<loop of {function.__name__}>", "exec"), names)
    return numba.njit(names[function.__name__])


def _each(function: Callable[..., Any], operands: Sequence[Any]) -> Callable[[int], Any]:
    """Return a function that calls a function with one element of each operand after the other."""

    @functools.wraps(function)
    def call(count: int) -> Any:
        return np.stack([function(*[x[k] for x in operands]) for k in range(count)])

    return call


def _takes_array(ufunc: Any, operand: int) -> bool:
    """Return whether a generalised ufunc was declared to take an operand as an array, which may have no axis in its layout."""
    builder = getattr(ufunc, "gufunc_builder", None)
    return builder is not None and any(
        hasattr(signature.args[operand], "ndim") for signature in builder._sigs
    )


def call_numba_ufunc(
    ufunc: Any, function: Callable[..., Any], signature: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Return what a ufunc of Numba's returns for operands of which some are traced."""
    cores, result_cores = _cores(signature)
    outs = kwargs.pop("out", None)
    operands_given, further = list(args[: len(cores)]), args[len(cores) :]
    outs = further or (() if outs is None else outs if isinstance(outs, tuple) else (outs,))
    if kwargs or len(operands_given) < len(cores):
        raise UnsupportedFunctionError(
            f"{function.__name__} is called with {', '.join(kwargs) or 'too few operands'}",
            where=user_site(),
            why="of a ufunc of Numba's, only calls with operands and out= are supported on traced arrays",
            remedy="select or cast outside: np.where(mask, f(x), y), x.astype(dtype)",
        )
    arrays = [x if is_traced(x) else np.asarray(unwrap_preallocated(x)) for x in operands_given]
    lead = np.broadcast_shapes(
        *[x.shape[: x.ndim - len(core)] for x, core in zip(arrays, cores, strict=True)]
    )
    inner = {
        name: n
        for x, core in zip(arrays, cores, strict=True)
        for name, n in zip(core, x.shape[x.ndim - len(core) :], strict=True)
    }
    none = [
        np.empty((0, *[inner[name] for name in core]), x.dtype) for x, core in zip(arrays, cores, strict=True)
    ]
    blanks = [
        np.empty((0, *[inner[name] for name in core]), out.dtype)
        for out, core in zip(outs, result_cores, strict=False)
    ]
    ufunc(*none, *blanks)  # Numba compiles the loop for these dtypes, if there is none
    kinds = [x.dtype for x in blanks] or [None] * len(result_cores)
    resolved = ufunc.ufunc.resolve_dtypes((*[x.dtype for x in none], *kinds))
    count = int(np.prod(lead))
    flat = [
        np.reshape(
            np.broadcast_to(x, (*lead, *x.shape[x.ndim - len(core) :])),
            (count, *x.shape[x.ndim - len(core) :]),
        ).astype(dtype)
        for x, core, dtype in zip(arrays, cores, resolved, strict=False)
    ]
    returns = not hasattr(ufunc, "gufunc_builder")
    loop = _loop(
        function,
        tuple([not core and _takes_array(ufunc, k) for k, core in enumerate(cores)]),
        tuple([(not core, dtype) for core, dtype in zip(result_cores, resolved[len(cores) :], strict=True)]),
        returns,
    )
    shapes = [(count, *[inner[name] for name in core]) for core in result_cores]
    try:
        results = call_translated(loop, (count, *shapes, *flat), {}, "it is a ufunc of Numba's")
    except UnsupportedCodeError as refusal:
        if not returns:
            raise
        results = run_instead(_each(function, flat), (count,), {}, refusal).astype(resolved[-1])
    results = results if isinstance(results, tuple) else (results,)
    wide = [np.reshape(y, (*lead, *shape[1:])) for y, shape in zip(results, shapes, strict=True)]
    for out, y in zip(outs, wide, strict=False):
        out[...] = y
    wide = [*outs, *wide[len(outs) :]]
    return wide[0] if len(wide) == 1 else tuple(wide)


def _hand_over(kind: Any, parts: Callable[[Any], tuple[Callable[..., Any], str]]) -> None:
    """Let the ufuncs of a class hand over calls with traced operands."""
    call = kind.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_traced, (*args, *kwargs.values()))):
            return call_numba_ufunc(self, *parts(self), args, kwargs)
        return call(self, *args, **kwargs)

    kind.__call__ = functools.wraps(call)(__call__)


def _install_ufuncs(module: ModuleType) -> None:
    _hand_over(
        module.DUFunc,
        lambda ufunc: (ufunc._dispatcher.py_func, f"{','.join(['()'] * ufunc.ufunc.nin)}->()"),
    )


def _install_generalised(module: ModuleType) -> None:
    _hand_over(module.GUFunc, lambda ufunc: (ufunc.gufunc_builder.py_func, ufunc.gufunc_builder.signature))


when_imported("numba.np.ufunc.dufunc", _install_ufuncs)
when_imported("numba.np.ufunc.gufunc", _install_generalised)
