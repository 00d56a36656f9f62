"""Samples of the functions as calls: of NumPy's function, and of ours on traced arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.errors import GradtapeError
from gradtape.ir.graph import Value
from gradtape.kinds.registry import FUNCTIONS, TRIALS, UFUNCS, WRITERS, Sample, find_method
from tests.support.graphs import input_like, run

TOLERANCE = {"f": 2e-5, "F": 2e-5, "e": 2e-2}


def title(key: Any) -> str:
    """Return the name under which a function is tested."""
    return ".".join(key) if isinstance(key, tuple) else f"{key.__module__}.{key.__name__}"


def ours(key: Any) -> Callable[..., Any]:
    if not isinstance(key, tuple):
        return FUNCTIONS[key]
    return UFUNCS[key[0]] if key[1] == "__call__" else find_method(*key)


def theirs(key: Any) -> Callable[..., Any]:
    function = getattr(getattr(np, key[0]), key[1]) if isinstance(key, tuple) else key
    if key not in WRITERS:
        return function

    def write(first: Any, *rest: Any, **kwargs: Any) -> Any:
        first = np.array(first)
        function(first, *rest, **kwargs)
        return first

    return write


def is_shape(argument: Any) -> bool:
    return isinstance(argument, tuple) and all(isinstance(extent, int) for extent in argument)


def random_array(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if kind in "iu":
        return np.asarray(rng.integers(0 if kind == "u" else -3, 5, shape), dtype)
    if kind == "c":
        return np.asarray(rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape), dtype)
    return np.asarray(rng.uniform(-3, 3, shape), dtype)


class Call:
    """A sample made into arguments: arrays for NumPy, graph inputs for ours."""

    def __init__(
        self, sample: Sample, dtype: str = "d", reshape: Callable[..., Any] = lambda shape: shape
    ) -> None:
        self.rng = np.random.default_rng(3)
        self.dtype = dtype
        self.reshape = reshape
        args, self.kwargs = sample
        self.args = [self.filled(argument) for argument in args]

    def filled(self, argument: Any) -> Any:
        if is_shape(argument):
            return random_array(self.reshape(argument), self.dtype, self.rng)
        if isinstance(argument, list):
            return [self.filled(item) for item in argument]
        if isinstance(argument, np.ndarray) and argument.dtype == float and self.dtype in "f":
            return argument.astype(self.dtype)
        return argument

    def traced(self, plain: int = 0) -> tuple[list[Any], list[Value], list[np.ndarray[Any, Any]]]:
        """Return the arguments with graph inputs in place of arrays (but for the first `plain` of them),
        these, and the arrays."""
        inputs: list[Value] = []
        arrays: list[np.ndarray[Any, Any]] = []
        seen = 0

        def trace(argument: Any) -> Any:
            nonlocal seen
            if isinstance(argument, list):
                return [trace(item) for item in argument]
            if not isinstance(argument, np.ndarray):
                return argument
            seen += 1
            if seen <= plain:
                return argument
            inputs.append(input_like(argument))
            arrays.append(argument)
            return inputs[-1]

        return [trace(argument) for argument in self.args], inputs, arrays

    def expected(self, key: Any) -> Any:
        """Return what NumPy returns, or the exception that it raises."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return theirs(key)(*self.args, **self.kwargs)
            except Exception as error:
                return error


def root_class(error: Exception) -> type:
    """Return the public class of an exception."""
    public = (np.exceptions.AxisError, np.linalg.LinAlgError)
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins" or kind in public)


def flatten(result: Any) -> list[Any]:
    if isinstance(result, tuple | list) and any(
        isinstance(item, Value | np.ndarray | np.generic | tuple | list) for item in result
    ):
        return [leaf for item in result for leaf in flatten(item)]
    return [result]


def compare(
    key: Any, call: Call, plain: int = 0
) -> tuple[list[Value], list[Value], list[np.ndarray[Any, Any]]]:
    """Compare our result with NumPy's and return the graph: outputs, inputs, and the arrays for these."""
    expected = call.expected(key)
    args, inputs, arrays = call.traced(plain)
    if isinstance(expected, Exception):
        with pytest.raises(root_class(expected)):
            result = ours(key)(*args, **call.kwargs)
            run([value for value in flatten(result) if isinstance(value, Value)], inputs, arrays)
            raise AssertionError(f"NumPy raises {expected!r}, we return {result!r}")
        return [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        result = ours(key)(*args, **call.kwargs)
    found = flatten(result)
    wanted = flatten(expected)
    assert len(found) == len(wanted)
    values = [value for value in found if isinstance(value, Value)]
    computed = iter(run(values, inputs, arrays))
    for ours_, theirs_ in zip(found, wanted, strict=True):
        if not isinstance(ours_, Value):
            np.testing.assert_equal(ours_, theirs_)
            continue
        array, reference = next(computed), np.asarray(theirs_)
        assert (array.shape, array.dtype) == (reference.shape, reference.dtype)
        tolerance = TOLERANCE.get(call.dtype, 1e-12)
        tolerance = (
            2e-5 if reference.dtype.char in "fF" else 2e-2 if reference.dtype.char == "e" else tolerance
        )
        np.testing.assert_allclose(array, reference, rtol=tolerance, atol=tolerance, equal_nan=True)
    return values, inputs, arrays


CASES = [
    pytest.param(key, sample, id=f"{title(key)}-{number}")
    for key, trial in TRIALS.items()
    for number, sample in enumerate(trial.samples)
]


CLEAR = (TypeError, ValueError, IndexError, np.linalg.LinAlgError, RuntimeError, GradtapeError)
"""What may be raised for an argument that NumPy refuses as well: which of two mistakes is named first is left open."""
