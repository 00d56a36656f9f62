"""The rows that move and combine elements do what their index maps say, position by position, and their
derivatives are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.ir.graph import Value, constant, literal
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join, starts
from gradtape.kinds.reduction import Reduction, remaining
from gradtape.kinds.registry import ROWS
from gradtape.kinds.sort import Sort
from tests.support.graphs import check_derivatives, input_like, run

Array = np.ndarray[Any, Any]
Position = tuple[int, ...]


def rows(kind: type) -> list[Any]:
    """Return every sample of every row of a kind as a test case."""
    return [
        pytest.param(row, sample, id=f"{row.name}-{number}")
        for row in ROWS.values()
        if isinstance(row, kind)
        for number, sample in enumerate(row.samples)
    ]


def numbers(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.uniform(-3, 3, shape) for shape in shapes]


def positions(shape: tuple[int, ...]) -> Iterator[Position]:
    return itertools.product(*map(range, shape))


def readers(indices: list[Array], extents: tuple[int, ...]) -> list[Callable[[Position], int]]:
    """Return what the kernel would have: functions from a position in an index array to the wrapped integer
    there."""

    def reader(index: Array, extent: int) -> Callable[[Position], int]:
        return lambda position: int(index[position]) % extent

    return [reader(index, extent) for index, extent in zip(indices, extents, strict=False)]


def check(outputs: list[Value], inputs: list[Value], arrays: list[Array], expected: Array) -> None:
    (found,) = run(outputs, inputs, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    check_derivatives(outputs, inputs, arrays)


@pytest.mark.parametrize(("row", "sample"), rows(IndexMap))
def test_index_map(row: IndexMap, sample: tuple[Any, ...]) -> None:
    shape, indices, params = sample if len(sample) == 3 else (sample[0], [], sample[1])
    (x,) = numbers(shape)
    out = row.shape_rule(shape, *[index.shape for index in indices], **params)
    expected = np.zeros(out)
    read = readers(indices, shape)
    for i in positions(out):
        tests = row.inside(i, shape, **params) if row.inside else ()
        if all(low <= value < high for value, low, high in tests):
            expected[i] = x[row.source(i, shape, *read, **params)]
    traced = input_like(x)
    check([row(traced, *indices, **params)], [traced], [x], expected)


@pytest.mark.parametrize("traced_indices", [False, True])
@pytest.mark.parametrize(("row", "sample"), rows(Accumulate))
def test_accumulate(row: Accumulate, sample: tuple[Any, ...], traced_indices: bool) -> None:
    base_shape, v_shape, indices, params = sample
    base, v = numbers(base_shape, v_shape)
    expected = base.copy()
    read = readers(row.split((base, v, *indices))[2], base_shape)
    for j in positions(v_shape):
        target = row.target(j, base_shape, *read, **params)
        expected[target] = v[j] if row.combine == "set" else expected[target] + v[j]
    inputs = [input_like(base), input_like(v)]
    places = [input_like(index) if traced_indices else constant(index) for index in indices]
    traced = [*inputs, *places] if traced_indices else inputs
    arrays = [base, v, *indices] if traced_indices else [base, v]
    check([row(*inputs, *places, **params)], traced, arrays, expected)


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "or": lambda a, b: a or b,
    "and": lambda a, b: a and b,
}


@pytest.mark.parametrize(("row", "sample"), rows(Reduction))
def test_reduction(row: Reduction, sample: tuple[Any, ...]) -> None:
    shape, params = sample
    (x,) = numbers(shape)
    if row.monoid in ("or", "and"):
        x = x > 0
    axes = params["axes"]
    groups: dict[Position, list[Any]] = {}
    for i in positions(shape):
        groups.setdefault(tuple(k for axis, k in enumerate(i) if axis not in axes), []).append(x[i])
    expected = np.zeros(remaining(shape, axes))
    for place, group in groups.items():
        if row.positional:
            expected[place] = group.index(max(group) if row.monoid == "argmax" else min(group))
        else:
            total = group[0]
            for element in group[1:]:
                total = COMBINE[row.monoid](total, element)
            expected[place] = total
    traced = input_like(x)
    check([row(traced, **params)], [traced], [x], expected)


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if isinstance(row, Reduction) and row.identity is not None]
)
def test_a_reduction_over_nothing_is_its_identity(row: Reduction) -> None:
    x = np.zeros((0, 2), bool if row.monoid in ("or", "and") else float)
    traced = input_like(x)
    (found,) = run([row(traced, axes=(0,))], [traced], [x])
    np.testing.assert_array_equal(found, np.full(2, row.identity))


@pytest.mark.parametrize(("row", "sample"), rows(Cumulative))
def test_cumulative(row: Cumulative, sample: tuple[Any, ...]) -> None:
    shapes, params = sample
    arrays = numbers(*shapes)
    axis = params["axis"]
    moved = [np.moveaxis(array, axis, 0)[:: -1 if params["reverse"] else 1] for array in arrays]
    out = np.zeros(moved[0].shape)
    for rest in positions(moved[0].shape[1:]):
        previous: Value | None = None
        for k in range(len(out)):
            elements = [literal(float(array[(k, *rest)])) for array in moved]
            previous = row.first(*elements) if previous is None else row.step(previous, *elements)
            assert previous.data is not None
            out[(k, *rest)] = previous.data
    expected = np.moveaxis(out[:: -1 if params["reverse"] else 1], 0, axis)
    inputs = [input_like(array) for array in arrays]
    check([row(*inputs, **params)], inputs, arrays, expected)


def test_the_derivative_of_a_product_does_not_divide_by_zero() -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, -1.0])
    for row, params in (
        (ROWS["cumprod"], {"axis": 0, "reverse": False}),
        (ROWS["reduce_prod"], {"axes": (0,)}),
    ):
        traced = input_like(x)
        check_derivatives([row(traced, **params)], [traced], [x])  # type: ignore[operator]


@pytest.mark.parametrize(("row", "sample"), rows(Correlation))
def test_correlation(row: Correlation, sample: tuple[Any, ...]) -> None:
    x_shape, w_shape, params = sample
    arrays = numbers(x_shape, w_shape)
    x, w = arrays
    lead = x.ndim - params["rank"]
    out = (*x_shape[:lead], *[n - k + 1 for n, k in zip(x_shape[lead:], w_shape[lead:], strict=True)])
    expected = np.zeros(out)
    for i in positions(out):
        window = tuple(slice(o, o + k) for o, k in zip(i[lead:], w_shape[lead:], strict=True))
        expected[i] = np.sum(x[(*i[:lead], *window)] * w[i[:lead]])
    inputs = [input_like(array) for array in arrays]
    check([row(*inputs, **params)], inputs, arrays, expected)


@pytest.mark.parametrize(("row", "sample"), rows(Contract))
def test_contract(row: Contract, sample: tuple[Any, ...]) -> None:
    x_shape, y_shape, params = sample
    a, b = numbers(x_shape, y_shape)
    extents = dict(zip((*params["x"], *params["y"]), (*x_shape, *y_shape), strict=True))
    subscripts = sorted(extents)
    expected = np.zeros(tuple(extents[subscript] for subscript in params["out"]))
    for place in positions(tuple(extents[subscript] for subscript in subscripts)):
        at = dict(zip(subscripts, place, strict=True))
        pick = [tuple(at[subscript] for subscript in params[operand]) for operand in ("x", "y", "out")]
        expected[pick[2]] += a[pick[0]] * b[pick[1]]
    inputs = [input_like(a), input_like(b)]
    check([row(*inputs, **params)], inputs, [a, b], expected)


@pytest.mark.parametrize(("row", "sample"), rows(Join))
def test_join(row: Join, sample: tuple[Any, ...]) -> None:
    shapes, params = sample
    arrays = numbers(*shapes)
    inputs = [input_like(array) for array in arrays]
    joined = row(*inputs, **params)
    assert joined.node is not None
    expected = np.zeros(joined.shape)
    for start, array in zip(starts(joined.node), arrays, strict=True):
        for j in positions(array.shape):
            expected[tuple(k + start if axis == params["axis"] else k for axis, k in enumerate(j))] = array[j]
    check([joined], inputs, arrays, expected)


@pytest.mark.parametrize(("row", "sample"), rows(Sort))
def test_sort(row: Sort, sample: tuple[Any, ...]) -> None:
    *shapes, params = sample
    arrays = [np.round(array) for array in numbers(*shapes)]
    if row.name == "searchsorted":
        arrays[0] = np.sort(arrays[0])
    inputs = [input_like(array) for array in arrays]
    (found,) = run([row(*inputs, **params)], inputs, arrays)
    assert found.dtype == np.intp
    if row.name == "searchsorted":
        for place in positions(shapes[1]):
            key = arrays[1][place]
            before = [x < key if params["side"] == "left" else x <= key for x in arrays[0]]
            assert found[place] == sum(before)
        return
    for place in positions(shapes[0][:-1]):
        keys = arrays[0][place]
        assert found[place].tolist() == sorted(range(len(keys)), key=lambda k, keys=keys: (keys[k], k))


def test_argsort_puts_nan_last() -> None:
    x = np.array([np.nan, 1.0, -np.inf, np.nan, 0.0])
    traced = input_like(x)
    (found,) = run([ROWS["argsort"](traced)], [traced], [x])  # type: ignore[operator]
    assert found.tolist() == [2, 4, 1, 0, 3]


def test_a_repeated_write_takes_the_last_value_and_only_that_has_a_derivative() -> None:
    base, v, index = np.zeros(3), np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0])
    for place in (constant(index), input_like(index)):
        inputs = [input_like(base), input_like(v)]
        traced, arrays = (
            (inputs, [base, v]) if place.data is not None else ([*inputs, place], [base, v, index])
        )
        written = ROWS["put"](*inputs, place)  # type: ignore[operator]
        check([written], traced, arrays, np.array([4.0, 2.0, 0.0]))
