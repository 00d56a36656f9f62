"""Cases: typical calls of public functions, and what is known of functions without them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A typical call.

    Attributes
    ----------
    function : callable
        Takes the arrays and returns an array, or a tuple, list or dict of arrays.
    arrays : tuple of ndarray
        Arguments that the function is differentiated in: floats or complex numbers.
    second : bool
        Whether second derivatives are tested too.
    rtol : float
        How far derivatives may be from differences, relative to the largest.
    searched : float
        How far values may be from the function's own: as far as the search goes that it finds them by.
    """

    function: Callable[..., Any]
    arrays: tuple[Array, ...]
    second: bool = True
    rtol: float = 2e-5
    searched: float = 1e-9


def call(
    function: Callable[..., Any],
    *arrays: Any,
    second: bool = True,
    rtol: float = 2e-5,
    searched: float = 1e-9,
) -> list[Case]:
    """Return the one case of a function."""
    return [Case(function, tuple(np.asarray(array) * 1.0 for array in arrays), second, rtol, searched)]


@dataclass
class Namespace:
    """The public functions of a module, or the methods of its objects.

    Attributes
    ----------
    name : str
        As users import it: ``scipy.special``.
    public : sequence of str
        The names of all of its functions.
    cases : mapping of str to list of Case
        Calls of those that have derivatives.
    constant : mapping of str to list of Case
        Calls of those whose results are integers, booleans or steps: they work, and their derivatives are zero.
    refused : mapping of str to str
        The reasons of those that raise an error although they have derivatives.
    refusals : mapping of str to list of Case
        Calls of those.
    others : mapping of str to str
        Functions that do not compute with numbers: what they are.
    """

    name: str
    public: Sequence[str]
    cases: Mapping[str, list[Case]]
    constant: Mapping[str, list[Case]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, list[Case]] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)


def public_functions(module: ModuleType, *, classes: bool = False) -> list[str]:
    """Return the names of the public functions of a module, and of its classes if they count."""
    names = getattr(module, "__all__", None) or dir(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return sorted(
        name
        for name, thing in found.items()
        if callable(thing)
        and name != "test"
        and (classes or not inspect.isclass(thing))
        and not (inspect.isclass(thing) and issubclass(thing, BaseException))
    )


def because(**reasons: str | Iterable[str]) -> dict[str, str]:
    """Return reasons by name, from names by reason: ``because(dates="busday_count isnat")``; underscores are spaces."""
    return {
        name: reason.replace("_", " ")
        for reason, names in reasons.items()
        for name in (names.split() if isinstance(names, str) else names)
    }
