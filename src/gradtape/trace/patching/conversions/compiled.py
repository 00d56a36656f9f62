"""Compiled functions of other packages for which NumPy's functions, or a few lines of NumPy, stand where something is traced."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced, unwrap_keywords, unwrap_preallocated
from gradtape.trace.patching.conversions.sequences import Function, as_ndarray_or_traced
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.interpose import When, interpose, without_hook


def replace_functions(module: str, replacements: dict[str, Function]) -> None:
    """Let NumPy code stand for functions of a module, by their names; those that the installed version does not have are left out.

    The first argument is an array for the replacement, whatever its name is in the package.
    """
    when_imported(module, functools.partial(_hook, replacements=replacements))


def _hook(module: ModuleType, replacements: dict[str, Function]) -> None:
    for name, replacement in replacements.items():
        function: Any = getattr(module, name, None)
        if type(function).__name__.startswith(
            "fused_cython"
        ):  # which has one C function for each type, and a name in Python
            setattr(module, name, functools.wraps(function)(functools.partial(_call, replacement, function)))
        elif function is not None:
            interpose(functools.partial(_call, replacement), When.ANYWHERE, [function])


def _call(replacement: Function, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not is_traced((args, tuple(kwargs.values()))):
        return without_hook(function)(*unwrap_preallocated(args), **unwrap_keywords(kwargs))
    if args and not isinstance(args[0], Handle):
        args = (as_ndarray_or_traced(args[0]), *args[1:])
    return replacement(*args, **kwargs)
