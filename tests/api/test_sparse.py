"""Sparse gradients: when they come, what can be done with them, and that nothing of the table's size is made.

Sparse arrays as sources, as targets, and as seeds.
"""

from __future__ import annotations

import gc
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.errors import DensifyWarning, DtypeError, ShapeError, UnconnectedError
from gradtape.trace.jit import state
from gradtape.trace.variables import variable

TABLE = np.arange(12.0).reshape(4, 3) / 4
ROWS = np.array([2, 0, -1, 2])
ROUNDS = range(4)
"""The first gradients of a structure are built, the later ones are one call of what was built."""

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tables take the ways of large ones."""
    for module in (state, variable):
        monkeypatch.setattr(module, "LARGE", 0)


def tape_gradient(function: Function, table: Any = TABLE, **options: Any) -> Any:
    with gt.GradientTape() as tape:
        x = tape.watch(table)
        y = function(x)
    return tape.gradient(y, x, **options)


def slices(*shape: int) -> gt.IndexedSlices:
    rng = np.random.default_rng(len(shape))
    return gt.IndexedSlices(rng.normal(size=(3, *shape[1:])), [1, 3, 1], shape)


def dense(g: Any) -> np.ndarray[Any, Any]:
    result = np.zeros(g.dense_shape, g.dtype)
    np.add.at(result, np.asarray(g.indices), np.asarray(g.values))
    return result


# When a gradient is sparse

GATHERS: dict[str, Function] = {
    "gather": lambda x: gt.gather(x, ROWS),
    "take": lambda x: np.take(x, ROWS, axis=0),
    "take from behind": lambda x: np.take(x, ROWS, axis=-2),
    "the method": lambda x: x.take(ROWS, axis=0),
    "index": lambda x: x[ROWS],
    "index and slices": lambda x: x[ROWS, :],
    "list": lambda x: x[[2, 0, -1, 2]],
    "array": lambda x: x[gt.constant(ROWS)],
    "small integers": lambda x: x[ROWS.astype(np.int8)],
}


@pytest.mark.parametrize("name", GATHERS)
def test_a_gather_of_rows_of_the_source_has_a_sparse_gradient(name: str) -> None:
    for _ in ROUNDS:
        g = tape_gradient(lambda x: np.sum(GATHERS[name](x) ** 2))
        assert type(g) is gt.IndexedSlices
        assert g.indices.numpy().tolist() == [2, 0, 3, 2]
        np.testing.assert_allclose(g.values.numpy(), 2 * TABLE[ROWS])
        assert g.shape == g.dense_shape == (4, 3)
        assert g.dtype == np.float64


def test_indices_of_any_rank_are_flattened() -> None:
    for _ in ROUNDS:
        g = tape_gradient(lambda x: np.sum(x[ROWS.reshape(2, 2)] ** 3))
        assert g.values.shape == (4, 3) and g.indices.shape == (4,)
        np.testing.assert_allclose(g.values.numpy(), 3 * TABLE[ROWS] ** 2)
    one = tape_gradient(lambda x: np.sum(gt.gather(x, 2)))
    assert one.values.shape == (1, 3) and one.indices.numpy().tolist() == [2]
    none = tape_gradient(lambda x: np.sum(x[np.array([], int)]))
    assert none.values.shape == (0, 3)
    np.testing.assert_array_equal(none.numpy(), np.zeros((4, 3)))


def test_elements_of_a_vector_are_rows() -> None:
    g = tape_gradient(lambda x: np.sum(x[[0, 2, 2]] ** 2), np.array([1.0, 2.0, 3.0]))
    assert g.indices.numpy().tolist() == [0, 2, 2] and g.values.numpy().tolist() == [2.0, 6.0, 6.0]


def test_gathers_are_laid_end_to_end_in_their_order() -> None:
    for _ in ROUNDS:
        g = tape_gradient(lambda x: np.sum(x[ROWS]) + np.sum(gt.gather(x, [1, 1]) * 5))
        assert g.indices.numpy().tolist() == [2, 0, 3, 2, 1, 1]
        assert g.values.numpy()[:, 0].tolist() == [1, 1, 1, 1, 5, 5]


DENSE: dict[str, Function] = {
    "of an intermediate": lambda x: np.sum((x * 2)[ROWS]),
    "of a sum": lambda x: np.sum((x + 1)[ROWS]),
    "of a copy": lambda x: np.sum(x.copy().T.T[ROWS]),
    "of a part": lambda x: np.sum(x[:3][[0, 2]]),
    "along another axis": lambda x: np.sum(np.take(x, [0, 2], axis=1)),
    "along both axes": lambda x: np.sum(x[[0, 1], [2, 2]]),
    "with a new axis": lambda x: np.sum(x[[0, 1], None]),
    "of all elements": lambda x: np.sum(np.take(x, [5, 7])),
    "by a mask": lambda x: np.sum(x[np.array([True, False, True, True])]),
    "by compress": lambda x: np.sum(np.compress([True, False, True], x, axis=0)),
    "by an integer": lambda x: np.sum(x[2]),
    "by a sort": lambda x: np.sum(np.sort(x, axis=0) * TABLE),
    "and a dense use": lambda x: np.sum(x[ROWS]) + np.sum(x**2),
    "and one of an intermediate": lambda x: np.sum(x[ROWS]) + np.sum((x + 1)[ROWS]),
    "that is the target as well": lambda x: [x[ROWS], x],
}


@pytest.mark.parametrize("name", DENSE)
def test_anything_else_is_dense(name: str) -> None:
    for _ in ROUNDS:
        g = tape_gradient(DENSE[name])
        assert type(g) is gt.Array
    f = DENSE[name]
    expected = gt.grad(lambda x: sum(np.sum(part) for part in optree.tree_leaves(f(x))))(TABLE)
    np.testing.assert_allclose(g.numpy(), expected)


def test_a_table_that_is_doubled_many_times_is_dense() -> None:
    def loss(x: Any) -> Any:
        for _ in range(60):
            x = x + x
        return np.sum(x[ROWS])

    g = tape_gradient(loss)
    assert type(g) is gt.Array and g.numpy()[2, 0] == 2.0**61


def test_an_intermediate_may_be_the_source() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(TABLE)
        y = x * 2
        z = np.sum(y[ROWS] ** 2)
    for _ in ROUNDS:
        gx, gy = tape.gradient(z, (x, y))
        assert type(gy) is gt.IndexedSlices and type(gx) is gt.Array
        np.testing.assert_allclose(gx, 2 * dense(gy))


def test_several_sources_each_have_their_form() -> None:
    for _ in ROUNDS:
        with gt.GradientTape() as tape:
            table, weights, unused = tape.watch((TABLE, np.ones(3), np.ones(2)))
            loss = np.sum((table[ROWS] @ weights) ** 2)
        g, dense_one, none = tape.gradient(loss, [table, weights, unused])
        assert type(g) is gt.IndexedSlices and type(dense_one) is gt.Array and none is None
        expected = gt.grad(lambda t, w: np.sum((t[ROWS] @ w) ** 2), argnums=(0, 1))(TABLE, np.ones(3))
        np.testing.assert_allclose(dense(g), expected[0])
        np.testing.assert_allclose(dense_one, expected[1])


def test_weights_and_missing_paths_are_as_ever() -> None:
    weights = np.arange(12.0).reshape(4, 3)
    g = tape_gradient(lambda x: x[ROWS], output_gradients=weights)
    np.testing.assert_array_equal(g.values, weights)
    assert tape_gradient(lambda x: np.sum(gt.stop_gradient(x)[ROWS])) is None
    zero = tape_gradient(lambda x: np.sum(gt.stop_gradient(x)[ROWS]), unconnected_gradients="zero")
    np.testing.assert_array_equal(zero, np.zeros((4, 3)))


def test_complex_gradients_follow_the_convention() -> None:
    z = TABLE + 1j
    for _ in ROUNDS:
        g = tape_gradient(lambda x: np.sum(np.abs(x[ROWS]) ** 2), z)
        np.testing.assert_allclose(g.values, 2 * z[ROWS])


def test_transforms_give_dense_gradients() -> None:
    def loss(x: Any) -> Any:
        return np.sum(gt.gather(x, ROWS) ** 2)

    expected = np.zeros((4, 3))
    np.add.at(expected, ROWS, 2 * TABLE[ROWS])
    np.testing.assert_allclose(gt.grad(loss)(TABLE), expected)
    np.testing.assert_allclose(gt.value_and_grad(loss)(TABLE)[1], expected)
    np.testing.assert_allclose(gt.vjp(loss, TABLE)[1](1.0)[0], expected)
    assert type(gt.grad(loss)(TABLE)) is np.ndarray
    gt.check_grads(loss, (TABLE,), order=2)


@pytest.mark.parametrize("option", ["eager", "jit"])
def test_neither_mode_changes_the_form(option: str) -> None:
    with gt.config.override(**{option: option == "eager"}):
        g = tape_gradient(lambda x: np.sum(x[ROWS] ** 2))
    np.testing.assert_allclose(g.values.numpy(), 2 * TABLE[ROWS])


def test_a_jitted_function_is_followed_and_returns_slices() -> None:
    looked_up = gt.jit(lambda x, k: np.sum(x[k] ** 2))
    g = tape_gradient(lambda x: looked_up(x, ROWS))
    assert type(g) is gt.IndexedSlices

    @gt.jit
    def inside(x: Any, k: Any) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(x[k] ** 2)
        return tape.gradient(y, x)

    for k in (ROWS, ROWS[::-1].copy()):
        g = inside(TABLE, k)
        assert type(g) is gt.IndexedSlices and type(g.values) is np.ndarray
        np.testing.assert_array_equal(g.indices, k % 4)
        np.testing.assert_allclose(gt.asarray(2 * g), 2 * dense(g))


def test_gradients_by_name_are_sparse_too() -> None:
    @gt.jit
    def inside(x: Any) -> Any:
        (g,) = gt.gradients(np.sum(x[ROWS] ** 2), x)
        (h,) = gt.gradients(np.sum(x[ROWS] ** 2) + np.sum(x), x)
        return g, h

    g, h = inside(TABLE)
    assert type(g) is gt.IndexedSlices and type(h) is np.ndarray
    np.testing.assert_allclose(dense(g) + 1, h)


def test_variables_are_sources_like_any_other() -> None:
    v = gt.Variable(TABLE)
    for _ in ROUNDS:
        with gt.GradientTape() as tape:
            loss = np.sum(v[ROWS] ** 2) + np.sum(gt.gather(v, [1]))
        g = tape.gradient(loss, v)
        assert type(g) is gt.IndexedSlices
        assert g.indices.numpy().tolist() == [2, 0, 3, 2, 1]


def test_reads_before_and_after_an_assignment_add_up() -> None:
    for mixed in (False, True):
        v = gt.Variable(TABLE)
        with gt.GradientTape() as tape:
            loss = np.sum(v[[0, 1]] ** 2)
            v.assign(2 * TABLE)
            loss = loss + (np.sum(v * v) if mixed else np.sum(v[[1, 2]] ** 2))
        g = tape.gradient(loss, v)
        expected = np.zeros((4, 3))
        expected[:2] += 2 * TABLE[:2]
        expected[slice(None) if mixed else slice(1, 3)] += 4 * TABLE[slice(None) if mixed else slice(1, 3)]
        assert type(g) is (gt.Array if mixed else gt.IndexedSlices)
        np.testing.assert_allclose(gt.asarray(g).numpy(), expected)


def test_values_are_followed_to_the_second_order() -> None:
    for _ in ROUNDS:
        with gt.GradientTape() as outer:
            x = outer.watch(TABLE)
            with gt.GradientTape() as inner:
                inner.watch(x)
                y = np.sum(x[ROWS] ** 3)
            g = inner.gradient(y, x)
            z = np.sum(g**2)
        assert type(g) is gt.IndexedSlices
        h = outer.gradient(z, x)
        expected = gt.grad(lambda x: np.sum(gt.grad(lambda x: np.sum(x[ROWS] ** 3))(x) ** 2))(TABLE)
        np.testing.assert_allclose(gt.asarray(h).numpy(), expected)


# The class

FIELDS: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    (([1.0, 2.0], [0]), ShapeError, "values"),
    ((3.0, [0]), ShapeError, "values"),
    (([1.0], [0.5]), DtypeError, "indices"),
    (([1.0], [[0]]), ShapeError, "indices"),
    (([[1.0]], [0], (3, 2)), ShapeError, "dense_shape"),
    (([1.0], [0], ()), ShapeError, "dense_shape"),
    (([1.0], [0], (-3,)), ShapeError, "dense_shape"),
    (([1.0], [0], 3), DtypeError, "dense_shape"),
    (([1.0], [0], (2.5,)), DtypeError, "dense_shape"),
    ((None, [0]), ValueError, "values"),
    (([1.0], None), ValueError, "indices"),
    ((["a"], [0]), DtypeError, "values"),
]


@pytest.mark.parametrize(("fields", "error", "name"), FIELDS)
def test_misshapen_fields_are_named(fields: tuple[Any, ...], error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        gt.IndexedSlices(*fields)


def test_fields() -> None:
    g = gt.IndexedSlices(np.ones((2, 3), np.float32), [0, 2], dense_shape=np.array([4, 3]))
    assert g.dtype == np.float32 and g.shape == g.dense_shape == (4, 3)
    assert type(g.values) is type(g.indices) is gt.Array
    assert g.name is None
    g.values.name = "rows"
    assert g.name == "rows"
    assert gt.IndexedSlices([1.0], [0]).shape is None
    assert repr(gt.IndexedSlices([1.0], [2], (3,))) == (
        "IndexedSlices(values=Array([1.]), indices=Array([2], dtype=int64), dense_shape=(3,))"
    )
    gone = weakref.ref(g)
    del g
    assert gone() is None


def test_it_is_a_container_of_values_and_indices() -> None:
    g = slices(4, 2)
    leaves, spec = optree.tree_flatten({"g": g})
    assert leaves[0] is g.values and leaves[1] is g.indices
    again = optree.tree_unflatten(spec, leaves)["g"]
    assert type(again) is gt.IndexedSlices and again.dense_shape == (4, 2)
    doubled = gt.jit(lambda g: 2 * g)(optree.tree_map(np.asarray, g))
    np.testing.assert_allclose(dense(doubled), 2 * dense(g))


def test_repeated_rows_add_up_and_negative_ones_count_from_the_end() -> None:
    g = gt.IndexedSlices([1.0, 2.0, 4.0], [-1, 0, 3], (4,))
    np.testing.assert_array_equal(gt.asarray(g), [2, 0, 0, 5])
    np.testing.assert_array_equal(np.asarray(g), [2, 0, 0, 5])
    np.testing.assert_array_equal(np.array(g, dtype=np.float32), [2, 0, 0, 5])
    np.testing.assert_array_equal(g.numpy(), [2, 0, 0, 5])
    both = g.combined()
    assert both.indices.numpy().tolist() == [0, 3] and both.values.numpy().tolist() == [2.0, 5.0]
    assert g.combined().combined().values.numpy().tolist() == [2.0, 5.0]


@pytest.mark.parametrize("index", [4, -5])
def test_rows_out_of_bounds_are_found_when_the_array_is_wanted(index: int) -> None:
    g = gt.IndexedSlices([1.0], [index], (4,))
    with pytest.raises(IndexError):
        np.asarray(g)


def test_without_the_shape_there_is_no_whole_array() -> None:
    g = gt.IndexedSlices([1.0, 2.0], [0, 0])
    for use in (gt.asarray, np.asarray, np.exp, lambda g: g + np.ones(3), np.shape):
        with pytest.raises(ValueError, match="dense_shape"):
            use(g)
    assert (2 * g).values.numpy().tolist() == [2.0, 4.0]
    assert float(np.linalg.norm(g)) == 3.0


def test_a_large_array_is_warned_of() -> None:
    g = gt.IndexedSlices([1.0], [0], (200_000_000,))
    for use in (gt.asarray, np.exp, lambda g: g * np.ones(1)):
        with pytest.warns(DensifyWarning, match="200000000"):
            use(g)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(np.linalg.norm(-2 * g + g)) == 1.0


def test_in_a_trace_it_cannot_become_an_ndarray() -> None:
    with pytest.raises(gt.errors.ConcretizationError):
        gt.jit(np.asarray)(optree.tree_map(np.asarray, slices(4)))


# Arithmetic

SPARSE: dict[str, tuple[Function, Function]] = {
    "minus": (lambda g: -g, lambda d: -d),
    "plus": (lambda g: +g, lambda d: d),
    "number": (lambda g: 2 * g, lambda d: 2 * d),
    "number behind": (lambda g: g * 2.5, lambda d: d * 2.5),
    "NumPy's number": (lambda g: np.float64(2) * g, lambda d: 2 * d),
    "array of rank 0": (lambda g: np.array(2.0) * g, lambda d: 2 * d),
    "Array of rank 0": (lambda g: gt.constant(2.0) * g, lambda d: 2 * d),
    "Array of rank 0 by ufunc": (lambda g: np.multiply(gt.constant(2.0), g), lambda d: 2 * d),
    "quotient": (lambda g: g / 4, lambda d: d / 4),
    "sum": (lambda g: g + 2 * g, lambda d: 3 * d),
    "difference": (lambda g: g - 3 * g, lambda d: -2 * d),
    "square": (lambda g: g**2, lambda d: d**2),
    "np.square": (np.square, np.square),
    "product with itself": (lambda g: g * g, lambda d: d * d),
    "root": (lambda g: np.sqrt(g * g), np.abs),
    "abs": (abs, np.abs),
    "sign": (np.sign, np.sign),
    "conjugate": (np.conjugate, np.conjugate),
}


@pytest.mark.parametrize("name", SPARSE)
def test_slices_stay_slices(name: str) -> None:
    of_slices, of_array = SPARSE[name]
    g = slices(4, 2)
    result = of_slices(g)
    assert type(result) is gt.IndexedSlices and result.dense_shape == (4, 2)
    np.testing.assert_allclose(dense(result), of_array(dense(g)))


WHOLE: dict[str, Function] = {
    "sum with an array": lambda g: g + np.ones((4, 2)),
    "array first": lambda g: np.ones((4, 2)) + g,
    "array minus": lambda g: np.ones((4, 2)) - g,
    "minus array": lambda g: g - np.ones((4, 2)),
    "Array minus": lambda g: gt.constant(np.ones((4, 2))) - g,
    "minus Array": lambda g: g - gt.constant(np.ones((4, 2))),
    "integers": lambda g: g + np.ones((4, 2), int),
    "row": lambda g: g + np.ones(2),
    "number": lambda g: g + 1,
    "power": lambda g: (g + 3) ** g,
    "zeroth power": lambda g: g**0,
    "inverse": lambda g: 1 / (g + 9),
    "product": lambda g: g * np.arange(8.0).reshape(4, 2),
    "two factors": lambda g: g * (g + g),
    "matmul": lambda g: g @ np.ones(2),
    "matmul behind": lambda g: np.ones(4) @ g,
    "floor": lambda g: g // 0.5,
    "remainder": lambda g: g % 0.5,
    "exp": np.exp,
    "stack": lambda g: np.stack([g, g]),
    "mean": np.mean,
    "max": lambda g: np.max(g, axis=0),
    "sum along an axis": lambda g: np.sum(g, axis=1),
    "sum of squares": lambda g: np.sum(g**2),
    "sum of all": np.sum,
    "norm": np.linalg.norm,
    "norm along an axis": lambda g: np.linalg.norm(g, axis=1),
    "shape": lambda g: (np.shape(g), np.ndim(g), np.size(g)),
    "less": lambda g: g < 0.5,
    "equal": lambda g: (g == g, np.zeros((4, 2)) == g, gt.constant(np.zeros((4, 2))) != g),
    "reduce": np.add.reduce,
    "outer": lambda g: np.multiply.outer(g, np.ones(2)),
    "where": lambda g: np.where(g > 0, g, 1.0),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_other_function_takes_the_whole_array(name: str) -> None:
    g = slices(4, 2)
    found, expected = optree.tree_leaves(WHOLE[name](g)), optree.tree_leaves(WHOLE[name](dense(g)))
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-13, atol=1e-15)


def test_norms_add_repeated_rows_first() -> None:
    g = gt.IndexedSlices([3.0, 3.0], [0, 0], (2,))
    assert (
        float(np.linalg.norm(g))
        == float(np.sqrt(np.sum(g**2)))
        == float(np.sqrt(np.sum(np.square(g))))
        == 6.0
    )


def test_in_a_jitted_function_repeated_rows_are_added_as_well() -> None:
    @gt.jit
    def measures(values: Any, indices: Any) -> Any:
        g = gt.IndexedSlices(values, indices, (5, 2))
        return np.linalg.norm(g), np.sum(g**2), gt.asarray(g), g.combined(), np.sum(abs(g))

    rng = np.random.default_rng(0)
    for indices in ([0, 0, 0], [4, -1, 2], [1, 0, 1]):
        values = rng.normal(size=(3, 2))
        whole = dense(gt.IndexedSlices(values, np.array(indices) % 5, (5, 2)))
        norm, squares, array, combined, sizes = measures(values, np.array(indices))
        np.testing.assert_allclose(array, whole)
        np.testing.assert_allclose(
            [norm, squares, sizes], [np.linalg.norm(whole), np.sum(whole**2), np.sum(abs(whole))]
        )
        np.testing.assert_allclose(dense(combined), whole)


def test_sums_need_one_shape() -> None:
    for other in (gt.IndexedSlices([[1.0, 1.0]], [0], (5, 2)), gt.IndexedSlices([1.0], [0], (4,))):
        with pytest.raises(ShapeError):
            slices(4, 2) + other
    free = gt.IndexedSlices([[1.0, 1.0]], [0])
    assert (slices(4, 2) + free).dense_shape == (free + slices(4, 2)).dense_shape == (4, 2)


def test_dtypes_follow_numpy() -> None:
    g = gt.IndexedSlices(np.ones(2, np.float32), [0, 1], (3,))
    assert (2.0 * g).dtype == np.float32
    assert (np.float64(2) * g).dtype == np.float64
    assert (g + np.ones(3)).dtype == np.float64
    assert (g + gt.IndexedSlices(np.ones(1), [0], (3,))).dtype == np.float64
    assert gt.asarray(g, dtype=np.float64).dtype == np.float64


def test_derivatives_pass_through_the_arithmetic() -> None:
    def f(values: Any) -> Any:
        g = gt.IndexedSlices(values, [1, 3, 1], (4, 2))
        return (
            np.sum((g + 2 * g - g / 2) ** 2)
            + np.linalg.norm(g)
            + np.sum(np.exp(g))
            + np.sum(np.ones((4, 2)) - g)
        )

    gt.check_grads(f, (np.random.default_rng(0).normal(size=(3, 2)),), order=2)


def test_in_place_syntax() -> None:
    g, n = slices(4, 2), np.ones((4, 2))
    same = n
    n -= 0.5 * g
    n += g
    assert n is same
    np.testing.assert_allclose(n, 1 + 0.5 * dense(g))
    x = gt.constant(np.ones((4, 2)))
    part = x[1:]
    x -= g
    np.testing.assert_allclose(x, 1 - dense(g))
    np.testing.assert_allclose(part, 1 - dense(g)[1:])
    h = g
    h += g
    assert type(h) is gt.IndexedSlices and h is not g
    m = np.ones((2, 4, 2))
    m += g
    np.testing.assert_allclose(m, 1 + np.stack([dense(g)] * 2))


def test_gather_along_any_axis() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis in range(-3, 3):
        for k in ([1, 0, -1], [[0, 1], [1, 1]], 1, []):
            np.testing.assert_array_equal(gt.gather(x, k, axis=axis), np.take(x, np.array(k, int), axis=axis))
    with pytest.raises(IndexError):
        gt.gather(x, [2])
    for wrong in ({"indices": [0.5]}, {"indices": [True, False]}):
        with pytest.raises(DtypeError, match="indices"):
            gt.gather(x, **wrong)
    for axis in (3, -4, 1.0, None):
        with pytest.raises(ValueError, match="axis"):
            gt.gather(x, [0], axis=axis)
    with pytest.raises(ValueError, match="axis"):
        gt.gather(1.0, [0])
    with pytest.raises(TypeError, match="params"):
        gt.gather("table", [0])


# Updates

TARGETS: dict[str, Function] = {"ndarray": np.array, "array": gt.constant, "variable": gt.Variable}
UPDATES: dict[str, tuple[Function, Function]] = {
    "scatter_add": (gt.scatter_add, lambda n, g: n + dense(g)),
    "scatter_sub": (gt.scatter_sub, lambda n, g: n - dense(g)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UPDATES)
def test_updates(name: str, target: str) -> None:
    update, expected = UPDATES[name]
    x, g = TARGETS[target](TABLE), slices(4, 3)
    assert update(x, g) is x
    np.testing.assert_allclose(np.asarray(x), expected(TABLE, g))
    update(x, gt.IndexedSlices(np.ones((1, 3)), [-1]))
    whole = gt.IndexedSlices(np.ones((1, 3)), [3], (4, 3))
    np.testing.assert_allclose(np.asarray(x), expected(expected(TABLE, g), whole))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_replaced_and_the_last_wins(target: str) -> None:
    x = TARGETS[target](TABLE)
    gt.scatter_update(x, gt.IndexedSlices([[1.0] * 3, [2.0] * 3, [3.0] * 3], [1, -1, 1]))
    expected = TABLE.copy()
    expected[1], expected[3] = 3, 2
    np.testing.assert_array_equal(np.asarray(x), expected)


def test_methods_of_variables() -> None:
    v, g = gt.Variable(TABLE, name="table"), slices(4, 3)
    assert v.scatter_sub(g) is v.scatter_add(g) is v
    np.testing.assert_allclose(v.numpy(), TABLE, atol=1e-15)
    v.scatter_update(gt.IndexedSlices([[0.0, 0.0, 0.0]], [2]))
    assert not v.numpy()[2].any() and v.name == "table"


def address(x: Any) -> int:
    """Return where the elements of an array are."""
    start: int = x.value.data.ctypes.data
    return start


def test_memory_that_somebody_else_holds_is_copied() -> None:
    for make in (gt.constant, gt.Variable):
        x = make(TABLE)
        held, place = x.value.data, address(x)
        gt.scatter_add(x, slices(4, 3))
        np.testing.assert_array_equal(held, TABLE)
        assert address(x) != place
        del held
        place = address(x)
        gt.scatter_add(x, slices(4, 3))
        assert address(x) == place
        np.testing.assert_allclose(np.asarray(x), TABLE + 2 * dense(slices(4, 3)))


def test_assignments_of_differences_touch_the_rows_alone() -> None:
    v, g = gt.Variable(TABLE), slices(4, 3)
    same, place = v, address(v)
    v += g
    v -= 3 * g
    assert v.assign_add(g).assign_sub(g) is same is v
    assert address(v) == place
    np.testing.assert_allclose(v.numpy(), TABLE - 2 * dense(g))
    v += TABLE
    v -= 1
    np.testing.assert_allclose(v.numpy(), 2 * TABLE - 2 * dense(g) - 1)


@pytest.mark.parametrize("target", TARGETS)
def test_updates_that_do_not_fit_change_nothing(target: str) -> None:
    x = TARGETS[target](TABLE)
    for wrong, error in (
        (gt.IndexedSlices(np.ones((1, 2)), [0]), ShapeError),
        (gt.IndexedSlices(np.ones((1, 3)), [0], (5, 3)), ShapeError),
        (gt.IndexedSlices(np.ones((1, 3), complex), [0]), DtypeError),
        (gt.IndexedSlices(np.ones((2, 3)), [0, 4]), IndexError),
        (gt.IndexedSlices(np.ones((2, 3)), [0, -5]), IndexError),
        (TABLE, DtypeError),
    ):
        for update in (gt.scatter_add, gt.scatter_sub, gt.scatter_update):
            with pytest.raises(error):
                update(x, wrong)
    np.testing.assert_array_equal(np.asarray(x), TABLE)
    with pytest.raises(DtypeError, match="target"):
        gt.scatter_sub([1.0, 2.0], gt.IndexedSlices([1.0], [0]))
    with pytest.raises(ShapeError):
        gt.scatter_sub(TARGETS[target](1.0), gt.IndexedSlices([1.0], [0]))


def test_what_was_recorded_before_an_update_keeps_the_old_rows() -> None:
    for make in (gt.constant, gt.Variable):
        x = make(TABLE)
        ends = []
        for _ in range(5):
            before = np.asarray(x).copy()
            with gt.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = np.sum(x[ROWS] ** 2)
                z = np.sum(np.exp(x))
            snapshot, view = x.copy(), x[1:3] * 1
            g = tape.gradient(y, x)
            gt.scatter_sub(x, 0.25 * g)
            ends.append((before, y, z, snapshot, view, tape))
            np.testing.assert_allclose(np.asarray(x), before - 0.25 * dense(g))
        for before, y, z, snapshot, view, _ in ends:
            np.testing.assert_allclose(float(y), np.sum(before[ROWS] ** 2))
            np.testing.assert_allclose(float(z), np.sum(np.exp(before)))
            np.testing.assert_array_equal(snapshot.numpy(), before)
            np.testing.assert_array_equal(view.numpy(), before[1:3])


def test_a_persistent_tape_remembers_the_array_that_it_saw() -> None:
    v = gt.Variable(TABLE)
    with gt.GradientTape(persistent=True) as tape:
        y = np.sum(v[ROWS] ** 3)
        z = np.sum(v**3)
        v.scatter_update(gt.IndexedSlices(np.zeros((1, 3)), [2]))
        v.scatter_update(gt.IndexedSlices(np.zeros((1, 3)), [0]))
    for _ in ROUNDS:
        np.testing.assert_allclose(tape.gradient(y, v).values.numpy(), 3 * TABLE[ROWS] ** 2)
        np.testing.assert_allclose(tape.gradient(z, v).numpy(), 3 * TABLE**2)
    assert not v.numpy()[[0, 2]].any()


def test_tapes_follow_updates_of_arrays_and_not_of_variables() -> None:
    rows = np.ones((2, 3))
    with gt.GradientTape() as tape:
        x, values = tape.watch((TABLE, rows))
        gt.scatter_sub(x, gt.IndexedSlices(values, [1, 1]))
        y = np.sum(x**2)
    (g,) = tape.gradient(y, [values])
    np.testing.assert_allclose(g.numpy(), np.tile(-2 * (TABLE[1] - 2), (2, 1)))
    v = gt.Variable(TABLE)
    with gt.GradientTape() as tape:
        values = tape.watch(rows)
        v.scatter_sub(gt.IndexedSlices(values, [1, 1]))
        y = np.sum(v**2)
    assert tape.gradient(y, values) is None


def test_copies_and_views_are_not_changed_behind_their_back() -> None:
    x = gt.constant(TABLE)
    copy, transposed, array = gt.asarray(x), x.T, x.numpy()
    gt.scatter_update(x, gt.IndexedSlices(np.zeros((1, 3)), [1]))
    assert copy is x and not np.asarray(transposed)[:, 1].any()
    np.testing.assert_array_equal(array, TABLE)
    part = x[1:3]
    gt.scatter_update(part, gt.IndexedSlices(np.full((1, 3), 7.0), [0]))
    assert (np.asarray(x)[1] == 7).all()
    captured = gt.jit(lambda k: np.sum(x[k]))
    first = captured(np.array([1]))
    gt.scatter_update(x, gt.IndexedSlices(np.zeros((1, 3)), [1]))
    assert first == 21 and captured(np.array([1])) == 0


def test_a_copy_that_a_jitted_function_found_may_be_changed() -> None:
    for make in (gt.constant, gt.Variable):
        x = make(TABLE)
        copy = x.copy()
        gt.scatter_update(x, gt.IndexedSlices(np.zeros((1, 3)), [1]))
        captured = gt.jit(lambda k: np.sum(copy[k]))  # noqa: B023
        assert captured(np.array([1])) == np.sum(TABLE[1])
        copy[1] = 5
        assert captured(np.array([1])) == 15


def test_updates_by_nothing() -> None:
    for target in TARGETS.values():
        x, nothing = target(TABLE), gt.IndexedSlices(np.empty((0, 3)), np.array([], int))
        for update in (gt.scatter_add, gt.scatter_sub, gt.scatter_update):
            update(x, nothing)
        np.testing.assert_array_equal(np.asarray(x), TABLE)
        gt.scatter_add(target(np.empty((0, 3))), nothing)


def test_compiled_updates_that_fail_change_no_variable() -> None:
    first, second = gt.Variable(TABLE), gt.Variable(TABLE)

    @gt.jit
    def step(k: Any) -> None:
        first.scatter_add(gt.IndexedSlices(np.ones((1, 3)), [0]))
        second.scatter_add(gt.IndexedSlices(np.ones((2, 3)), k))

    step(np.array([1, -1]))
    for wrong in (np.array([0, 4]), np.array([-5, 0])):
        with pytest.raises(IndexError, match="out of bounds"):
            step(wrong)
    np.testing.assert_array_equal(first.numpy() - TABLE, [[1] * 3, [0] * 3, [0] * 3, [0] * 3])
    np.testing.assert_array_equal(second.numpy() - TABLE, [[0] * 3, [1] * 3, [0] * 3, [1] * 3])


def test_updates_in_jitted_functions() -> None:
    v = gt.Variable(TABLE)

    @gt.jit
    def step(k: Any) -> Any:
        with gt.GradientTape() as tape:
            loss = np.sum(v[k] ** 2)
        v.scatter_sub(0.25 * tape.gradient(loss, v))
        return loss

    plain = TABLE.copy()
    for k in (ROWS, ROWS[::-1].copy()):
        np.testing.assert_allclose(step(k), np.sum(plain[k] ** 2))
        np.subtract.at(plain, k, 0.5 * plain[k].copy())
        np.testing.assert_allclose(v.numpy(), plain)

    v = gt.Variable(TABLE)

    @gt.jit
    def several(rows: Any, k: Any) -> Any:
        v.scatter_add(gt.IndexedSlices(rows, k))
        middle = np.sum(v)
        v.scatter_update(gt.IndexedSlices(np.ones((1, 3)), [1]))
        v.scatter_sub(gt.IndexedSlices(rows, k))
        return middle

    plain, rows = TABLE.copy(), np.arange(12.0).reshape(4, 3)
    for k in (ROWS, ROWS[::-1].copy()):
        np.add.at(plain, k, rows)
        np.testing.assert_allclose(several(rows, k), np.sum(plain))
        plain[1] = 1
        np.subtract.at(plain, k, rows)
        np.testing.assert_allclose(v.numpy(), plain)
    with pytest.raises(IndexError):
        several(rows, ROWS + 9)
    np.testing.assert_allclose(v.numpy(), plain)

    @gt.jit
    def updated(x: Any, k: Any) -> Any:
        return gt.scatter_add(x, gt.IndexedSlices(np.ones((4, 3)), k))

    np.testing.assert_allclose(updated(TABLE, ROWS)[2], TABLE[2] + 2)


# All together


@pytest.mark.parametrize("kind", ["array", "variable"])
@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_updates_and_reads_is_numpys(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, n = TARGETS[kind](TABLE), TABLE.copy()
    promised: list[tuple[Any, Any]] = []
    for _ in range(30):
        count = int(rng.integers(0, 5))
        rows, places = rng.normal(size=(count, 3)), rng.integers(-4, 4, count)
        g = gt.IndexedSlices(rows, places)
        match rng.integers(8):
            case 0:
                gt.scatter_add(x, g)
                np.add.at(n, places, rows)
            case 1:
                gt.scatter_sub(x, g)
                np.subtract.at(n, places, rows)
            case 2:
                gt.scatter_update(x, g)
                n[places] = rows
            case 3:
                promised.append((np.sum(x[places] ** 2), np.sum(n[places] ** 2)))
            case 4:
                promised.append((x.copy(), n.copy()))
            case 5:
                with gt.GradientTape() as tape:
                    tape.watch(x)
                    y = np.sum(x[places] ** 2)
                slope = np.zeros((4, 3))
                np.add.at(slope, places, 2 * n[places])
                promised.append((tape.gradient(y, x), slope))
                promised.append((y, np.sum(n[places] ** 2)))
            case 6:
                x[1] = n[1] = rows.sum()
            case 7:
                np.testing.assert_allclose(np.asarray(x), n, atol=1e-12)
    rng.shuffle(promised)  # type: ignore[arg-type]
    for ours, numpys in promised:
        np.testing.assert_allclose(np.asarray(ours), numpys, atol=1e-12)
    np.testing.assert_allclose(np.asarray(x), n, atol=1e-12)


# Memory


def measured(work: Callable[[], Any]) -> int:
    """Return how many bytes a piece of work takes at its peak, beyond what was there before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["array", "variable", "variable in jit"])
def test_nothing_of_the_size_of_a_table_is_made(kind: str) -> None:
    rows, width, count = 1_000_000, 16, 256
    rng = np.random.default_rng(0)
    table = TARGETS[kind.removesuffix(" in jit")](np.zeros((rows, width)))
    batches = [rng.integers(0, rows, count) for _ in range(6)]
    losses = []

    def update(batch: Any) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(table)
            loss = np.sum((gt.gather(table, batch) - 1.0) ** 2)
        g = tape.gradient(loss, table)
        assert type(g) is gt.IndexedSlices
        norm = np.linalg.norm(g)
        gt.scatter_sub(table, 0.5 * g)
        return loss, norm

    compiled = gt.jit(update) if kind.endswith("jit") else update

    def step(batch: np.ndarray[Any, Any]) -> None:
        loss, norm = compiled(batch)
        losses.append(float(loss))
        assert float(norm) > 0

    # The first steps import and compile, which takes some 20 MB.
    assert measured(lambda: [step(batch) for batch in batches[:3]]) < rows * width * 8 / 2
    peak = measured(lambda: [step(batch) for batch in batches[3:]])
    assert peak < 2**20 < rows * width * 8 / 64
    touched = np.unique(np.concatenate(batches))
    assert np.count_nonzero(table.numpy()[:, 0]) == touched.size
    assert losses[0] == count * width


SHAPE = (5, 2)


def of_two_rows(values=None, indices=(1, 3)):
    return gt.IndexedSlices(np.arange(4.0).reshape(2, 2) if values is None else values, indices, SHAPE)


def check(found, values, indices=(1, 3)):
    assert isinstance(found, gt.IndexedSlices)
    np.testing.assert_allclose(found.values, values)
    np.testing.assert_array_equal(found.indices, indices)
    assert found.dense_shape == SHAPE


@pytest.mark.parametrize("choice", ["none", "zero", "raise"])
def test_a_gradient_in_a_sparse_array_has_its_places(choice, recwarn):
    with gt.GradientTape(persistent=True) as tape:
        given = tape.watch({"table": of_two_rows(), "rest": [np.ones(2)]})
        loss = np.sum(gt.asarray(given["table"]) ** 2) * np.sum(given["rest"][0])
    assert not recwarn.list
    found = tape.gradient(loss, given, unconnected_gradients=choice)
    check(found["table"], 4.0 * np.arange(4.0).reshape(2, 2))
    np.testing.assert_allclose(found["rest"][0], [14, 14])
    check(tape.gradient(loss, given["table"], unconnected_gradients=choice), found["table"].values)


def test_sparse_arrays_without_influence():
    with gt.GradientTape(persistent=True) as tape:
        given = tape.watch([of_two_rows()])
        loss = gt.constant(1.0) * 2.0
    assert tape.gradient(loss, given) == [None]
    check(tape.gradient(loss, given, unconnected_gradients="zero")[0], np.zeros((2, 2)))
    with pytest.raises(UnconnectedError):
        tape.gradient(loss, given, unconnected_gradients="raise")


def test_the_values_of_a_sparse_target_are_summed():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.ones((2, 2)))
        target = of_two_rows(3.0 * x)
        whole = 3.0 * x
    np.testing.assert_allclose(tape.gradient([target], x), np.full((2, 2), 3.0))
    for seed in (of_two_rows(np.full((2, 2), 2.0)), np.full((2, 2), 2.0)):
        np.testing.assert_allclose(tape.gradient(target, x, output_gradients=seed), np.full((2, 2), 6.0))
    # For an array, a sparse weight is the array that it stands for.
    seed = gt.IndexedSlices(np.ones((1, 2)), [1], (2, 2))
    np.testing.assert_allclose(tape.gradient(whole, x, output_gradients=seed), [[0, 0], [3, 3]])
    with pytest.raises(ShapeError):
        tape.gradient(whole, x, output_gradients=of_two_rows())


def test_grad_in_a_sparse_argument():
    def loss(table, w):
        return np.sum(gt.asarray(table) ** 2) * w

    for slope in (gt.grad(loss), gt.jit(gt.grad(loss))):
        check(slope(of_two_rows(), 2.0), 4.0 * np.arange(4.0).reshape(2, 2))
    table, w = gt.grad(loss, argnums=(0, 1))(of_two_rows(), 2.0)
    check(table, 4.0 * np.arange(4.0).reshape(2, 2))
    assert float(w) == 14.0


@pytest.mark.parametrize("jit", [False, True])
def test_the_tangent_of_a_sparse_result_has_its_places(jit):
    def function(x):
        return {"rows": of_two_rows(2.0 * x), "none": None, "sum": np.sum(x)}

    def both(x, d):
        return gt.jvp(function, (x,), (d,))

    y, tangent = (gt.jit(both) if jit else both)(np.ones((2, 2)), np.full((2, 2), 3.0))
    check(y["rows"], np.full((2, 2), 2.0))
    check(tangent["rows"], np.full((2, 2), 6.0))
    assert (tangent["none"], float(tangent["sum"])) == (None, 12.0)


def test_forward_over_a_sparse_gradient():
    table = gt.constant(np.ones(SHAPE))
    with gt.ForwardAccumulator(table, np.ones(SHAPE)) as accumulator:
        with gt.GradientTape() as tape:
            tape.watch(table)
            loss = np.sum(table[[1, 3]] ** 3)
        gradient = tape.gradient(loss, table)
    check(accumulator.jvp(gradient), np.full((2, 2), 6.0))
    check(accumulator.jvp([gradient, None], unconnected_gradients="raise")[0], np.full((2, 2), 6.0))
