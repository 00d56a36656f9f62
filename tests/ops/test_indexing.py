"""``x[key]`` and ``x[key] = v`` do as NumPy does: values, shapes, errors and derivatives, over many keys."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

import gradtape as gt
from gradtape.errors import ConcretizationError
from gradtape.ir.graph import TraceTag, Value
from gradtape.ops.core.indexing import getitem, setitem
from tests.support.graphs import check_derivatives, input_like, run

pytestmark = pytest.mark.usefixtures("no_trace")

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
FEW = settings(max_examples=120, deadline=None)
Array = np.ndarray[Any, Any]


def numbers(shape: tuple[int, ...]) -> Array:
    return np.linspace(0.5, 7.5, int(np.prod(shape))).reshape(shape)


def others(shape: tuple[int, ...]) -> Array:
    return np.asarray(-numbers(shape))


@st.composite
def array_items(draw: st.DrawFn, extent: int, shape: tuple[int, ...]) -> Any:
    """Draw an integer array, as an ndarray or a list, of a shape that broadcasts with others."""
    cut = draw(st.integers(0, len(shape)))
    own = tuple(draw(st.sampled_from((1, n))) for n in shape[cut:])
    size = int(np.prod(own))
    values = draw(st.lists(st.integers(-extent, extent - 1), min_size=size, max_size=size)) if extent else []
    array = np.array(values, dtype=np.intp).reshape(own if extent else (0,))
    return array.tolist() if own and array.size and draw(st.booleans()) else array


@st.composite
def mixed_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw slices, integers, index arrays, masks, new axes and an ellipsis in any order."""
    common = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    key: list[Any] = []
    axis = 0
    while axis < len(shape):
        extent = shape[axis]
        kinds = ["slice", "array", "stop"] + (["integer"] if extent else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "stop":
            break
        if kind == "slice":
            key.append(draw(st.slices(extent)))
        elif kind == "integer":
            key.append(draw(st.integers(-extent, extent - 1)))
        elif extent:
            key.append(draw(array_items(extent, common)))
        else:
            key.append(slice(None))
        axis += 1
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.booleans()):
        if axis == len(shape):
            key.insert(draw(st.integers(0, len(key))), Ellipsis)
        else:
            key.append(Ellipsis)
    return tuple(key)


def outcome(function: Any) -> Any:
    """Return what a call returns, or the public class of what it raises."""
    try:
        return function()
    except (IndexError, ValueError, TypeError) as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def read(x: Array, key: Any) -> Any:
    source = input_like(x)
    result = outcome(lambda: getitem(source, key))
    return run([result], [source], [x])[0] if isinstance(result, Value) else result


def written(x: Array, key: Any, v: Array) -> Any:
    source, value = input_like(x), input_like(v)
    result = outcome(lambda: setitem(source, key, value))
    return run([result], [source, value], [x, v])[0] if isinstance(result, Value) else result


def numpy_written(x: Array, key: Any, v: Array) -> Array:
    x = x.copy()
    x[key] = v
    return x


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert found is expected
    else:
        assert isinstance(found, np.ndarray), found
        np.testing.assert_array_equal(found, expected, strict=True)


def check_read(x: Array, key: Any) -> None:
    expected = outcome(lambda: np.asarray(x[key]))
    same(read(x, key), expected)
    if isinstance(expected, np.ndarray) and expected.size:
        source = input_like(x)
        check_derivatives([getitem(source, key)], [source], [x], second=False)


def check_write(x: Array, key: Any, v: Array) -> None:
    expected = outcome(lambda: numpy_written(x, key, v))
    same(written(x, key, v), expected)
    if isinstance(expected, np.ndarray) and expected.size:
        source, value = input_like(x), input_like(v)
        check_derivatives([setitem(source, key, value)], [source, value], [x, v], second=False)


@FEW
@given(st.data(), SHAPES)
def test_basic_keys(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    key = data.draw(hnp.basic_indices(shape, min_dims=0, max_dims=6, allow_newaxis=True))
    check_read(x, key)
    v = others(np.asarray(x[key]).shape)
    check_write(x, key, v)
    check_write(x, key, np.array(7.0))


@FEW
@given(st.data(), SHAPES)
def test_mixed_keys(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    key = data.draw(mixed_keys(shape))
    check_read(x, key)
    expected = outcome(lambda: np.asarray(x[key]))
    if isinstance(expected, np.ndarray):
        check_write(x, key, others(expected.shape))
        check_write(x, key, np.array([7.0] if expected.ndim else 7.0))


@FEW
@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
def test_masks(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    rank = data.draw(st.integers(1, len(shape)))
    mask = data.draw(hnp.arrays(bool, shape[:rank]))
    rest = tuple(data.draw(st.slices(n)) for n in shape[rank:])
    key = (mask, *rest) if data.draw(st.booleans()) else mask
    check_read(x, key)
    check_write(x, key, others(x[key].shape))
    check_write(x, key, np.array(7.0))


@FEW
@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
def test_traced_integer_arrays(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    common = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    items = [
        np.asarray(data.draw(array_items(n, common))) if k in axes else slice(None)
        for k, n in enumerate(shape)
    ]
    expected = x[tuple(items)]
    source = input_like(x)
    indices = [input_like(item) for item in items if isinstance(item, np.ndarray)]
    supply = iter(indices)
    key = tuple(next(supply) if isinstance(item, np.ndarray) else item for item in items)
    arrays = [x, *[item for item in items if isinstance(item, np.ndarray)]]
    (found,) = run([getitem(source, key)], [source, *indices], arrays)
    np.testing.assert_array_equal(found, expected, strict=True)
    v = others(expected.shape)
    value = input_like(v)
    result = setitem(source, key, value)
    (changed,) = run([result], [source, value, *indices], [x, v, *arrays[1:]])
    np.testing.assert_array_equal(changed, numpy_written(x, tuple(items), v), strict=True)
    check_derivatives([result], [source, value, *indices], [x, v, *arrays[1:]], second=False)


WRONG_KEYS = [
    3,
    -4,
    (0, 0, 0),
    1.0,
    "a",
    (0, 9),
    [[0, 3]],
    [0.5],
    np.array([0.0]),
    np.array([]),
    (Ellipsis, Ellipsis),
    slice("a"),
    ([0, 1], [0, 1, 2]),
    np.array([True, False]),
    np.ones((3, 3), bool),
    (slice(None), [7]),
    (slice(0, 0), 9),
    (slice(0, 0), [9]),
    ([[]], [7]),
    (np.array([], int), 9),
    [[0, 1], [2]],
    pytest.param(object(), id="object"),
    {0},
    np.array(1.0),
    (0, [True, False]),
    np.array([3], np.uint8),
    slice(0, 3, 0),
]


@pytest.mark.parametrize("key", WRONG_KEYS, ids=str)
def test_keys_that_numpy_refuses_or_barely_takes(key: Any) -> None:
    x = numbers((3, 4))
    same(read(x, key), outcome(lambda: x[key]))


GOOD_KEYS = [
    [],
    [[]],
    np.array([], int),
    np.uint8(1),
    np.array(1),
    np.array([1], np.uint8),
    ((0, 1),),
    [True, False, True],
    (0, [True] * 4),
    ([0, 1], None, [1, 2]),
    (0, slice(None)),
    (slice(None), 0, None),
    (None, [0, 2], ...),
    ([0, 1], 2),
    (2, [0, 1]),
    (..., [0, 1]),
    (np.ones((3, 4), bool),),
    (slice(None), np.array([True, False, True, False])),
    (None, None),
    (),
    ...,
    None,
    [np.int64(1), 2],
]


@pytest.mark.parametrize("key", GOOD_KEYS, ids=str)
def test_particular_keys(key: Any) -> None:
    x = numbers((3, 4))
    check_read(x, key)
    check_write(x, key, others(np.asarray(x[key]).shape))


@pytest.mark.parametrize(
    ("key", "shape"),
    list(
        itertools.product(
            [0, [0, 1], slice(1, 3), (..., 1)], [(3,), (4,), (1, 4), (1, 1, 4), (2, 4), (0,), (2, 1)]
        )
    ),
)
def test_values_that_fit_or_not(key: Any, shape: tuple[int, ...]) -> None:
    check_write(numbers((3, 4)), key, others(shape))


def test_values_are_cast_to_the_arrays_dtype() -> None:
    for dtype, v in (
        ("f4", np.array([0.1, 0.2])),
        ("i8", np.array([1.9, -1.9])),
        ("?", np.array([0.0, 3.0])),
    ):
        x = np.zeros((3, 2), dtype)
        same(written(x, 1, v), numpy_written(x, 1, v))


def test_lists_of_traced_numbers_are_index_arrays() -> None:
    x, i, j = numbers((3, 4)), np.array(2), np.array(0)
    source, first, second = input_like(x), input_like(i), input_like(j)
    (found,) = run([getitem(source, [first, second])], [source, first, second], [x, i, j])
    np.testing.assert_array_equal(found, x[[2, 0]])
    (found,) = run([getitem(source, (1, (first, second)))], [source, first, second], [x, i, j])
    np.testing.assert_array_equal(found, x[1, (2, 0)])


def test_a_traced_number_is_an_index() -> None:
    x, i = numbers((3, 4)), np.array(-1)
    source, index = input_like(x), input_like(i)
    for key, expected in (
        ((index,), x[-1]),
        ((slice(None), index), x[:, -1]),
        ((index, [0, 1]), x[-1, [0, 1]]),
    ):
        (found,) = run([getitem(source, key)], [source, index], [x, i])
        np.testing.assert_array_equal(found, expected, strict=True)


def test_the_numbers_of_an_index_that_is_followed_are_not_taken_for_constants() -> None:
    base, v, example, later = np.zeros(3), np.array([1.0, 2.0]), np.array([0, 1]), np.array([1, 1])
    source, value, index = input_like(base), input_like(v), input_like(example)
    index.data, index.tags = example, (TraceTag(),)
    written_value = setitem(source, index, value)
    index.data = None
    check_derivatives([written_value], [source, value, index], [base, v, later])


def test_a_traced_mask_chooses_where_a_scalar_is_written() -> None:
    x, mask, v = numbers((3, 4)), numbers((3, 4)) % 1 == 0, np.array(-1.0)
    source, where, value = input_like(x), input_like(mask), input_like(v)
    written_value = setitem(source, where, value)
    (found,) = run([written_value], [source, where, value], [x, mask, v])
    np.testing.assert_array_equal(found, np.where(mask, -1.0, x))
    check_derivatives([written_value], [source, where, value], [x, mask, v])


def test_what_a_traced_mask_selects_has_no_shape() -> None:
    source, mask = input_like(numbers((3,))), input_like(np.ones(3, bool))
    with pytest.raises(ConcretizationError, match="mask"):
        getitem(source, mask)


def test_an_ellipsis_parts_index_arrays_even_where_it_stands_for_no_axis() -> None:
    check_read(numbers((2, 3, 4)), (slice(None), [0, 1, 2], ..., 0))
    check_read(numbers((2, 3, 4)), (slice(None), [0, 1, 2], 0, ...))


def test_an_augmented_assignment_writes_once():
    """Python assigns the view `x[1:]` to `x[1:]` after it has changed the view."""

    @gt.jit
    def shifted(x):
        x = x.copy()
        x[1:] -= 0.5 * x[:-1]
        return x

    x = np.arange(5.0)
    assert np.array_equal(shifted(x), [0.0, 1.0, 1.5, 2.0, 2.5])
    assert str(gt.inspect.graph(shifted, x)).count("update(") == 1


TRUTHS = [
    (True, None),
    (None, True),
    (True, slice(1, None)),
    (True, 0),
    (0, np.True_),
    (np.True_, np.array([0, 2])),
    (slice(None), True, np.array([1])),
    (False, slice(None)),
    (np.array(False), 0),
    (..., True),
    (True, ..., 1),
    (np.array(True), np.array([True, False, True])),
    (True, True),
    (True, False),
    (slice(None), None, True, 2),
    (numbers((3, 4)) > 3.0, True),
]


@pytest.mark.parametrize("key", TRUTHS, ids=repr)
def test_truths_beside_other_items(key: Any) -> None:
    x = numbers((3, 4))
    check_read(x, key)
    check_write(x, key, others(x[key].shape))
    np.testing.assert_array_equal(gt.jit(lambda x: (x * x)[key])(x), (x * x)[key])


def test_truths_beside_new_axes_of_a_number() -> None:
    for key in ((np.True_, None), (None, False)):
        np.testing.assert_array_equal(
            gt.jit(lambda x, key=key: np.sum(x)[key])(numbers((3,))), np.float64(12.0)[key]
        )
