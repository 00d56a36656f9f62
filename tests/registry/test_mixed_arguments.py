"""The samples of the functions with arguments of different dtypes, with arrays by keyword traced, and with ties, zeros and nan among
the numbers: we do as NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.errors import ConcretizationError
from gradtape.ir.graph import Value
from gradtape.kinds.registry import TRIALS, WRITERS, Sample
from tests.support.graphs import check_derivatives, input_like, run
from tests.support.numpy_calls import CASES, CLEAR, Call, compare, flatten, ours, title

pytestmark = pytest.mark.usefixtures("no_trace")

Array = np.ndarray[Any, Any]


class Changed(Call):
    """A sample whose arrays are changed, each by its number among them."""

    def __init__(self, sample: Sample, change: Callable[[int, Array], Any]) -> None:
        super().__init__(sample)
        count = iter(range(100))

        def through(argument: Any) -> Any:
            if isinstance(argument, list):
                return [through(item) for item in argument]
            return change(next(count), argument) if isinstance(argument, np.ndarray) else argument

        self.args = [through(argument) for argument in self.args]


def agree(key: Any, call: Call) -> None:
    expected = call.expected(key)
    try:
        compare(key, call)
    except CLEAR:
        if not isinstance(expected, Exception):
            raise


def arrays_of(sample: Sample) -> int:
    return len(Call(sample).traced()[1])


SEVERAL = [
    case for case in CASES if arrays_of(case.values[1]) > 1 and case.values[0] not in (np.geomspace, *WRITERS)
]  # type: ignore[arg-type]
MIXED = [("q", "d"), ("f", "d"), ("d", "f"), ("?", "h"), ("q", "f"), ("D", "d"), ("f", "D")]


@pytest.mark.parametrize(("key", "sample"), SEVERAL)
def test_dtypes_are_mixed_as_numpy_mixes_them(key: Any, sample: Sample) -> None:
    taken = {"d", *TRIALS[key].dtypes}
    for pair in MIXED:
        if taken.issuperset(pair):
            agree(key, Changed(sample, lambda k, x, pair=pair: with_dtype(x, pair[k % 2])))


@pytest.mark.parametrize(("key", "sample"), SEVERAL)
def test_the_other_order_of_arrays(key: Any, sample: Sample) -> None:
    call = Call(sample)
    checked = title(key).endswith("quantile")  # by numbers, which a trace does not know
    if all(isinstance(argument, np.ndarray) for argument in call.args[:2]) and not checked:
        call.args[:2] = call.args[1::-1]
        agree(key, call)


def with_dtype(x: Array, code: str) -> Array:
    kind = np.dtype(code).kind
    x = np.where(np.isfinite(x), x, 1) if kind in "iub" else x
    return np.abs(x).astype(code) if kind == "b" else x.astype(code)


# Numbers that are special. The index is that of an array among the arguments.


def ties(k: int, x: Array) -> Array:
    return np.random.default_rng(k).choice([-1.0, 0.0, 1.0, 2.0, 1.0, 0.5], x.shape)


def with_nan(k: int, x: Array) -> Array:
    x = x.copy()
    x.flat[x.size // 2] = np.nan
    return x


def with_inf(k: int, x: Array) -> Array:
    x = x.copy()
    x.flat[x.size // 2] = np.inf
    x.flat[x.size // 3] = -0.0
    return x


APART = {
    ties: {"quantile", "nanquantile"},
    with_nan: {"histogram", "histogram_bin_edges", "irfft", "hfft", "slogdet", "at"},
    with_inf: {
        "histogram",
        "histogram_bin_edges",
        "geomspace",
        "interp",
        "at",
        "einsum",
        "dot",
        "inner",
        "cross",
        "polyval",
    }
    | {"quantile", "nanquantile"},
}
"""Functions that check numbers, which a trace does not know, and transforms, which do not say what inf and nan make of them."""


@pytest.mark.parametrize(("key", "sample"), CASES)
def test_special_numbers(key: Any, sample: Sample) -> None:
    name = title(key)
    for change, apart in APART.items():
        if name.rpartition(".")[2] not in apart and (
            change is not with_inf or not name.startswith(("numpy.fft", "numpy.linalg"))
        ):
            agree(
                key,
                Changed(
                    sample, lambda k, x, change=change: change(k, x) if x.dtype == float and x.size else x
                ),
            )


# Arrays by keyword


@pytest.mark.parametrize(
    ("key", "sample"),
    [
        case
        for case in CASES
        if any(isinstance(value, np.ndarray) for value in case.values[1][1].values())  # type: ignore[union-attr, index]
    ],
)
def test_arrays_by_keyword_are_traced_as_well(key: Any, sample: Sample) -> None:
    """What NumPy computes from numbers of these arrays may have to be known: then the error says so."""
    call = Call(sample)
    expected = call.expected(key)
    args, inputs, arrays = call.traced()
    kwargs = dict(call.kwargs)
    for name, value in kwargs.items():
        if isinstance(value, np.ndarray) and not (isinstance(key, tuple) and name == "out"):
            kwargs[name] = input_like(value)
            inputs.append(kwargs[name])
            arrays.append(value)
    if isinstance(expected, Exception):
        return
    try:
        result = ours(key)(*args, **kwargs)
    except ConcretizationError:
        return
    values = [value for value in flatten(result) if isinstance(value, Value)]
    wanted = flatten(expected)
    for found, reference in zip(run(values, inputs, arrays), wanted, strict=True):
        assert (found.shape, found.dtype) == (np.shape(reference), np.asarray(reference).dtype)
        np.testing.assert_allclose(found, reference, rtol=1e-12, atol=1e-12)
    check_derivatives(values, inputs, arrays)
