"""Arguments of loops and branches, checked."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.control.nested import type_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.recording import recordable_body
from gradtape.errors import ArgumentError, DtypeError, StructureError, counted, kind_of
from gradtape.ir.builder import here
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.copies import outer_variables
from gradtape.transforms.loops.ops import Policy

CODE: Final = (
    types.ModuleType,
    type,
    types.BuiltinFunctionType,
    np.ufunc,
    type(np.sum),
    Handle,
    str,
    bool,
    type(None),
)
"""The types of what a function may name without reading numbers that are not traced."""

POLICIES: Final = ("all", "sqrt", "treeverse")


def function_of(
    function: Any, caller: str, argument: str, count: int, takes: str = "", remedy: str = ""
) -> Callable[..., Any]:
    """Return a function of the user's, to be called in a recording.

    Parameters
    ----------
    given : object
        What was passed.
    caller, argument : str
        To whom, and as what.
    count : int
        With how many arguments it will be called.
    takes : str
        What these are.
    remedy : str
        What to do where it does not take so many.

    Raises
    ------
    ArgumentError
        If it cannot be called, or not with so many arguments.
    """
    if not callable(function):
        raise ArgumentError(
            f"{caller}: {argument} is {kind_of(function)}, which cannot be called",
            where=here.site,
            remedy=f"pass a function as {argument}",
        )
    check_callable(function, caller)
    if not _takes(function, count):
        raise ArgumentError(
            f"{caller}: {argument} is called with {counted(count, 'argument')}{takes}, which {signature_of(function)} does not take",
            where=here.site,
            remedy=remedy or f"write {argument} as a function of {counted(count, 'argument')}",
        )
    return recordable_body(function)


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins and ufuncs that do not tell
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def signature_of(function: Callable[..., Any]) -> str:
    """Return a function's name and parameters."""
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"


def captures_data(function: Any, visited: set[int] | None = None) -> bool:
    """Return whether a function may read numbers, ndarrays, or objects that hold some, except for arguments and traced values."""
    visited = set() if visited is None else visited
    if id(function) in visited:
        return False
    visited.add(id(function))
    if isinstance(function, functools.partial):
        captured = [function.func, *function.args, *function.keywords.values()]
    elif isinstance(function, types.FunctionType):
        outer = outer_variables(function).values()
        captured = [*outer, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    else:
        return not isinstance(function, CODE)
    return any(captures_data(value, visited) for value in captured)


def integer_of(number_given: Any, caller: str, argument: str, least: int, remedy: str) -> int:
    """Return an integer argument that is part of the program; one that a compiled function is given is guarded.

    Raises
    ------
    DtypeError
        If it is no integer.
    ArgumentError
        If it is less than `least`.
    """
    if isinstance(number_given, Handle):
        is_integer = not number_given.ndim and number_given.dtype.kind in "iu"
        description = f"an array {type_of(number_given.value)}"
    else:
        is_integer = not isinstance(number_given, bool | np.bool_) and _is_index(number_given)
        description = f"{number_given!r} of type {type(number_given).__name__}"
    if not is_integer:
        raise DtypeError(
            f"{caller}: {argument} must be an int, got {description}", where=here.site, remedy=remedy
        )
    number = operator.index(number_given)
    if number < least:
        raise ArgumentError(
            f"{caller}: {argument} is {number}; it must be at least {least}", where=here.site, remedy=remedy
        )
    return number


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def flag_of(flag: Any, caller: str, argument: str) -> bool:
    """Return a flag; raise DtypeError for anything but a bool."""
    if not isinstance(flag, bool | np.bool_):
        raise DtypeError(
            f"{caller}: {argument} must be a bool, got {kind_of(flag)}",
            where=here.site,
            remedy=f"{argument}=True or {argument}=False",
        )
    return bool(flag)


def policy_of(policy: Any, caller: str) -> Policy:
    """Return which carries a loop keeps for its gradient.

    Raises
    ------
    ArgumentError
        For a policy that does not exist, or a number that is too small.
    DtypeError
        For what is no policy.
    """
    remedy = 'checkpoint="all", "sqrt", an int k for every k-th, or ("treeverse", n) for n at a time'
    if policy is None or (isinstance(policy, str) and policy in ("all", "sqrt")):
        return policy
    if isinstance(policy, tuple | list) and len(policy) == 2 and policy[0] == "treeverse":
        return (
            "treeverse",
            integer_of(policy[1], caller, "the number of checkpoints for treeverse", 1, remedy),
        )
    name = policy[0] if isinstance(policy, tuple | list) and policy else policy
    if isinstance(name, str):
        if name == "treeverse":
            raise StructureError(
                f"{caller}: checkpoint is {policy!r}; treeverse needs the number of carries to keep at a time",
                where=here.site,
                remedy='checkpoint=("treeverse", 10)',
            )
        guesses = difflib.get_close_matches(name, POLICIES, n=1)
        nearest = f"; did you mean {guesses[0]!r}?" if guesses else ""
        raise ArgumentError(f"{caller}: checkpoint is {policy!r}{nearest}", where=here.site, remedy=remedy)
    return integer_of(policy, caller, "checkpoint", 1, remedy)
