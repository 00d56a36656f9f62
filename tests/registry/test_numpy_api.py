"""Every public function of NumPy is followed, or refused with a reason; and nothing is listed that does not
exist."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.kinds.registry import FUNCTIONS, TRIALS, UFUNC_METHODS, UFUNCS, UNSUPPORTED, WRITERS
from gradtape.trace.dispatch.dispatch import implementation_in_python

NAMESPACES = (np, np.linalg, np.fft)

UNTRIED = {
    "apply_along_axis",
    "apply_over_axes",
    "argpartition",
    "argwhere",
    "array2string",
    "array_repr",
    "array_str",
    "bincount",
    "can_cast",
    "empty_like",
    "flatnonzero",
    "lstsq",
    "may_share_memory",
    "min_scalar_type",
    "nonzero",
    "partition",
    "piecewise",
    "polymul",
    "roots",
    "save",
    "savetxt",
    "savez",
    "savez_compressed",
    "shares_memory",
    "trim_zeros",
    "unique",
}
"""Functions without samples: what they return depends on numbers, calls the user, or is not defined.
Each has a test of its own."""


def dispatching() -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield the public functions of NumPy that ask their arguments' protocols."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for namespace in NAMESPACES:
            for name in sorted(dir(namespace)):
                function = getattr(namespace, name)
                if not name.startswith("_") and (
                    isinstance(function, np.ufunc) or hasattr(function, "_implementation")
                ):
                    yield namespace, name, function


def followed(function: Any) -> bool:
    if isinstance(function, np.ufunc):
        return function.__name__ in UFUNCS
    return function in FUNCTIONS or implementation_in_python(function) is not None


def refused(namespace: ModuleType, function: Any) -> bool:
    return f"{namespace.__name__}.{function.__name__}" in UNSUPPORTED


@pytest.mark.parametrize(
    ("namespace", "name", "function"),
    [pytest.param(*each, id=f"{each[0].__name__}.{each[1]}") for each in dispatching()],
)
def test_each_function_is_followed_or_refused(namespace: ModuleType, name: str, function: Any) -> None:
    assert followed(function) != refused(namespace, function), (
        f"{namespace.__name__}.{name} must have either a row or function, or a line in ops/numpy/unsupported.py"
    )


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_each_refusal_is_of_a_function_that_exists_and_says_what_to_do(name: str) -> None:
    module, _, function = name.rpartition(".")
    namespace: Any = np
    for part in module.split(".")[1:]:
        namespace = getattr(namespace, part)
    assert hasattr(namespace, function)
    why, separator, remedy = UNSUPPORTED[name].partition("; ")
    assert why and separator and remedy


def test_each_replacement_is_tried() -> None:
    creation = {function for function in FUNCTIONS if not hasattr(function, "_implementation")}
    without = {
        function.__name__
        for function in FUNCTIONS
        if not TRIALS[function].samples and function not in creation
    }
    assert without == UNTRIED
    assert all(TRIALS[key].samples for key in UFUNC_METHODS)


def test_functions_that_write_return_what_the_first_argument_becomes() -> None:
    functions = {key.__name__ for key in WRITERS if not isinstance(key, tuple)}
    assert functions == {"copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"}
    assert {key[1] for key in WRITERS if isinstance(key, tuple)} == {"at"}
