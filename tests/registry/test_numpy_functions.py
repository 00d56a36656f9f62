"""Every NumPy function that is followed does as NumPy does, and its derivative is right; driven by the
functions' own samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.kinds.registry import TRIALS, WRITERS, Sample
from tests.suite.several import several_cases
from tests.support.graphs import check_derivatives
from tests.support.numpy_calls import (
    CASES,
    Call,
    compare,
)

pytestmark = pytest.mark.usefixtures("no_trace")


@pytest.mark.parametrize(("key", "sample"), CASES)
def test_function_is_numpys_and_its_derivative_is_right(key: Any, sample: Sample) -> None:
    values, inputs, arrays = compare(key, Call(sample))
    check_derivatives(values, inputs, arrays)


@pytest.mark.parametrize(("key", "sample"), CASES)
def test_other_dtypes(key: Any, sample: Sample) -> None:
    for dtype in TRIALS[key].dtypes:
        compare(key, Call(sample, dtype))


@pytest.mark.parametrize(("key", "sample"), CASES)
def test_some_arguments_are_plain_arrays(key: Any, sample: Sample) -> None:
    call = Call(sample)
    count = len(call.traced()[1])
    if count > 1 and key not in WRITERS:
        compare(key, call, plain=count - 1)
        compare(key, call, plain=1)


def degenerate() -> Iterator[tuple[str, Callable[..., Any]]]:
    """How shapes are made degenerate: to numbers, to nothing in front, to nothing behind, to single
    elements."""
    yield "number", lambda shape: ()
    yield "empty-first", lambda shape: (0, *shape[1:]) if shape else ()
    yield "empty-last", lambda shape: (*shape[:-1], 0) if shape else ()
    yield "single", lambda shape: (1,) * len(shape)


@pytest.mark.parametrize(("key", "sample"), CASES)
def test_degenerate_shapes(key: Any, sample: Sample) -> None:
    with several_cases() as case:
        for name, change in degenerate():
            with case(name):
                compare(key, Call(sample, reshape=change))
