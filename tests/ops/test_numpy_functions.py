"""What the samples of the functions cannot say: kinks, results that depend on numbers, functions of the user's, refusals."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special

import gradtape as gt
from gradtape.errors import ConcretizationError, UnsupportedFunctionError
from gradtape.ir.graph import Value, constant
from gradtape.kinds.registry import FUNCTIONS, HOOKS, UFUNCS, find_method, out_place
from gradtape.ops.scipy.softmax import log_softmax, logsumexp, softmax
from tests.support.graphs import Differentiated, check_derivatives, input_like, run

pytestmark = pytest.mark.usefixtures("no_trace")

Array = np.ndarray[Any, Any]


def gradient(key: Any, x: Array, *args: Any, **kwargs: Any) -> Array:
    """Return the gradient of the sum of a followed function's result."""
    function = find_method(*key) if isinstance(key, tuple) else FUNCTIONS[key]
    assert function is not None
    source = input_like(x)
    graph = Differentiated([function(source, *args, **kwargs)], [source])
    (found,) = graph.pull([x], [np.ones(graph.outputs[0].shape)])
    return found


def follow(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call what follows a function on constants and return arrays."""
    result = FUNCTIONS[function](*args, **kwargs)
    return run([result], [], [])[0] if isinstance(result, Value) else result


@pytest.fixture
def known() -> Iterator[None]:
    """Let the numbers of pending values be had, as on a tape."""
    before = HOOKS.numbers
    HOOKS.numbers = lambda value: run([value], [], [])[0]
    yield
    HOOKS.numbers = before


# Kinks


@pytest.mark.parametrize("order", [None, 2, 3, "fro", np.inf, 1])
def test_the_derivative_of_a_norm_at_zero_is_zero(order: Any) -> None:
    x = np.zeros((2, 3)) if order == "fro" else np.zeros(3)
    np.testing.assert_array_equal(gradient(np.linalg.norm, x, order), np.zeros_like(x))


def test_the_derivative_of_a_row_of_zeros_is_zero_beside_others() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(gradient(np.linalg.norm, x, axis=1), [[0, 0], [0.6, 0.8]])


def test_the_derivative_of_a_standard_deviation_of_equal_numbers_is_zero() -> None:
    np.testing.assert_array_equal(gradient(np.std, np.full(4, 2.5)), np.zeros(4))
    np.testing.assert_array_equal(gradient(np.nanstd, np.array([1.0, np.nan, 1.0])), np.zeros(3))


def test_the_second_derivative_of_a_variance() -> None:
    x = np.array([1.0, -2.0, 4.0])
    source = input_like(x)
    first = Differentiated([FUNCTIONS[np.var](source)], [source])
    (pulled,) = first.pulled
    assert pulled is not None
    second = Differentiated([pulled], [source, *first.cotangents])
    hessian = [second.push([x, np.array(1.0)], [e, np.array(0.0)])[0] for e in np.eye(3)]
    np.testing.assert_allclose(hessian, 2 / 3 * (np.eye(3) - 1 / 3), atol=1e-15)


def test_extrema_share_ties() -> None:
    x = np.array([1.0, 3.0, 3.0, 0.0])
    np.testing.assert_array_equal(gradient(np.max, x), [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(gradient(("maximum", "reduce"), x), [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(gradient(("maximum", "accumulate"), x), [1, 1 + 0.5 + 0.5, 0.5 + 0.5, 0])


def test_where_keeps_the_branch_that_is_not_taken_apart() -> None:
    x = np.array([0.0, 4.0])
    source = input_like(x)
    chosen = FUNCTIONS[np.where](source > 0, UFUNCS["sqrt"](source), 0.0)
    (found,) = Differentiated([chosen], [source]).pull([x], [np.ones(2)])
    np.testing.assert_array_equal(found, [0.0, 0.25])


# Softmax and its kin

INF = np.inf


@pytest.mark.parametrize(
    ("x", "weights"),
    [
        ([1.0, 2.0, 3.0], scipy.special.softmax([1.0, 2.0, 3.0])),
        ([1000.0, 0.0], [1.0, 0.0]),
        ([-1000.0, -1000.0], [0.5, 0.5]),
        ([INF, 1.0, 2.0], [1.0, 0.0, 0.0]),
        ([INF, INF, 0.0], [0.5, 0.5, 0.0]),
        ([-INF, 1.0], [0.0, 1.0]),
        ([-INF, -INF], [0.5, 0.5]),
    ],
)
def test_the_derivative_of_logaddexp_reduce_is_the_softmax(x: list[float], weights: Any) -> None:
    np.testing.assert_allclose(gradient(("logaddexp", "reduce"), np.array(x)), weights, rtol=1e-14)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_softmax_and_its_kin_agree_with_scipy(axis: Any) -> None:
    x = np.array([[1.0, -2.0, 800.0], [0.0, 0.5, -900.0]])
    for own, scipys in (
        (softmax, scipy.special.softmax),
        (log_softmax, scipy.special.log_softmax),
        (logsumexp, scipy.special.logsumexp),
    ):
        source = input_like(x)
        value = own(source, axis)
        (found,) = run([value], [source], [x])
        np.testing.assert_allclose(found, scipys(x, axis=axis), rtol=1e-13, atol=1e-300)
        check_derivatives([value], [source], [x])


def test_logsumexp_with_factors() -> None:
    x, b = np.array([1.0, 2.0, 700.0]), np.array([0.5, 2.0, 0.0])
    source, factors = input_like(x), input_like(b)
    value = logsumexp(source, b=factors, keepdims=True)
    (found,) = run([value], [source, factors], [x, b])
    np.testing.assert_allclose(found, scipy.special.logsumexp(x, b=b, keepdims=True))


# Creation


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (np.zeros, ((2, 3),), {}),
        (np.zeros, (3,), {"dtype": "f4"}),
        (np.ones, ((2,), int), {}),
        (np.full, ((2, 2), 7), {}),
        (np.full, ((2, 2), [1.0, 2.0]), {}),
        (np.full, (3, 2.5), {"dtype": "f4"}),
        (np.eye, (3,), {"k": 1}),
        (np.identity, (2,), {}),
        (np.arange, (1, 7, 2), {}),
        (np.arange, (5.0,), {}),
        (np.tri, (3, 4, -1), {}),
        (np.array, ([[1, 2.5]],), {"ndmin": 3}),
        (np.asarray, ([1, 2],), {"dtype": float}),
        (np.asanyarray, (np.float32(3),), {}),
        (np.ascontiguousarray, (3.0,), {}),
        (np.require, ([1.0], "f4"), {}),
        (np.fromiter, ([1, 2, 3], float), {}),
        (np.frombuffer, (b"\x01\x02", "u1"), {}),
        (np.fromstring, ("1 2 3",), {"sep": " "}),
        (np.fromfunction, (lambda i, j: i + j, (2, 2)), {}),
    ],
)
def test_creation_like_a_traced_array(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(follow(function, *args, **kwargs), function(*args, **kwargs), strict=True)


def test_empty_arrays_have_a_shape_and_a_dtype() -> None:
    assert FUNCTIONS[np.empty]((2, 3), "f4").aval == FUNCTIONS[np.zeros]((2, 3), "f4").aval
    assert FUNCTIONS[np.empty_like](np.ones(3)).shape == (3,)


def test_creation_from_traced_numbers() -> None:
    x, y = np.array(2.0), np.array(3.0)
    source, other = input_like(x), input_like(y)
    for value, expected in (
        (FUNCTIONS[np.array]([[source, 1.0], [other, source]]), np.array([[2.0, 1.0], [3.0, 2.0]])),
        (FUNCTIONS[np.full]((2,), source), np.array([2.0, 2.0])),
        (FUNCTIONS[np.asarray](source, dtype="f4"), np.float32(2.0)),
    ):
        (found,) = run([value], [source, other], [x, y])
        np.testing.assert_array_equal(found, expected)
        check_derivatives([value], [source, other], [x, y])


def test_a_ragged_list_is_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        FUNCTIONS[np.array]([input_like(np.ones(2)), input_like(np.ones(3))])


# Results that depend on numbers

DATA = np.array([[3, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    "function",
    [np.nonzero, np.flatnonzero, np.argwhere, np.where, np.array_repr, np.array_str, np.array2string],
)
def test_functions_of_known_numbers(function: Any) -> None:
    np.testing.assert_equal(follow(function, constant(DATA)), function(DATA))


@pytest.mark.parametrize("function", [np.nonzero, np.argwhere, np.unique, np.bincount, np.array_repr])
def test_functions_of_unknown_numbers_say_so(function: Any) -> None:
    with pytest.raises(ConcretizationError, match="traced"):
        FUNCTIONS[function](input_like(np.array([1, 2])))


@pytest.mark.parametrize(
    "kwargs", [{}, {"return_counts": True}, {"axis": 1}, {"return_index": True, "return_inverse": True}]
)
def test_unique_takes_its_values_from_the_array(kwargs: dict[str, Any], known: None) -> None:
    result = FUNCTIONS[np.unique](constant(DATA), **kwargs)
    found = result if isinstance(result, tuple) else (result,)
    expected = np.unique(DATA, **kwargs)
    for ours, numpys in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(run([ours], [], [])[0] if isinstance(ours, Value) else ours, numpys)


@pytest.mark.parametrize(
    ("x", "kwargs"),
    [
        ([0, 0, 1, 2, 0], {}),
        ([0, 1, 2, 0], {"trim": "f"}),
        ([0, 1, 0, 0], {"trim": "b"}),
        ([0, 0], {}),
        ([1, 2], {}),
    ],
)
def test_trim_zeros(x: list[float], kwargs: dict[str, Any]) -> None:
    array = np.array(x, float)
    np.testing.assert_array_equal(
        follow(np.trim_zeros, constant(array), **kwargs), np.trim_zeros(array, **kwargs)
    )


def test_bincount_with_traced_weights() -> None:
    positions, w = np.array([0, 2, 2, 1]), np.array([0.5, 1.0, 2.0, -1.0])
    weights = input_like(w)
    value = FUNCTIONS[np.bincount](positions, weights, minlength=5)
    (found,) = run([value], [weights], [w])
    np.testing.assert_array_equal(found, np.bincount(positions, w, minlength=5))
    check_derivatives([value], [weights], [w])
    np.testing.assert_array_equal(follow(np.bincount, constant(positions)), np.bincount(positions))
    for wrong in (np.array([-1]), np.array([0.5]), np.array([[1]])):
        with pytest.raises((ValueError, TypeError)):
            FUNCTIONS[np.bincount](wrong)


@pytest.mark.parametrize(
    ("function", "pick"), [(np.partition, lambda p, a: p), (np.argpartition, lambda p, a: a[p])]
)
def test_a_partition(function: Any, pick: Any) -> None:
    x = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    result = pick(follow(function, constant(x), 2), x)
    assert result[2] == 3.0 and set(result[:2]) == {1.0, 2.0}
    with pytest.raises(ValueError, match="out of bounds"):
        FUNCTIONS[function](constant(x), 9)


def test_saving_writes_the_numbers(tmp_path: Any) -> None:
    target = io.BytesIO()
    FUNCTIONS[np.save](target, constant(DATA))
    FUNCTIONS[np.savetxt](tmp_path / "a.txt", constant(DATA))
    FUNCTIONS[np.savez](tmp_path / "a.npz", constant(DATA), b=constant(DATA))
    FUNCTIONS[np.savez_compressed](tmp_path / "c.npz", b=constant(DATA))
    target.seek(0)
    np.testing.assert_array_equal(np.load(target), DATA)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.txt"), DATA)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["b"], DATA)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npz")["b"], DATA)


def test_bits_and_memory() -> None:
    bits = np.array([1, 0, 1, 1], np.uint8)
    np.testing.assert_array_equal(follow(np.packbits, constant(bits)), np.packbits(bits))
    np.testing.assert_array_equal(follow(np.unpackbits, constant(bits)), np.unpackbits(bits))
    assert not follow(np.shares_memory, constant(bits), np.ones(3))
    assert not follow(np.may_share_memory, constant(bits), np.ones(3))


def test_types() -> None:
    x = input_like(np.ones(2, "f4"))
    assert FUNCTIONS[np.can_cast](x, "f8")
    assert not FUNCTIONS[np.can_cast](x, "i4")
    assert FUNCTIONS[np.min_scalar_type](x) == np.float32
    assert FUNCTIONS[np.min_scalar_type](constant(np.array(3))) == np.uint8


# Functions of the user's


def test_apply_along_axis() -> None:
    x = np.arange(12.0).reshape(2, 3, 2)
    source = input_like(x)

    def outer_with_itself(row: Any) -> Any:
        return (
            UFUNCS["multiply"](FUNCTIONS[np.reshape](row, (3, 1)), row)
            if isinstance(row, Value)
            else np.multiply.outer(row, row)
        )

    value = FUNCTIONS[np.apply_along_axis](outer_with_itself, 1, source)
    (found,) = run([value], [source], [x])
    np.testing.assert_array_equal(found, np.apply_along_axis(outer_with_itself, 1, x))
    check_derivatives([value], [source], [x])
    total = FUNCTIONS[np.apply_along_axis](FUNCTIONS[np.sum], -1, source)
    np.testing.assert_array_equal(run([total], [source], [x])[0], x.sum(-1))


def test_apply_over_axes() -> None:
    x = np.arange(12.0).reshape(2, 3, 2)
    source = input_like(x)
    value = FUNCTIONS[np.apply_over_axes](FUNCTIONS[np.sum], source, [0, -1])
    np.testing.assert_array_equal(run([value], [source], [x])[0], np.apply_over_axes(np.sum, x, [0, -1]))


@pytest.mark.parametrize(
    ("conditions", "pieces"),
    [
        (lambda x: [x < 0, x > 1], [lambda x: -x, lambda x: x * x]),
        (lambda x: [x < 0], [lambda x: x * 2.0, 7.0]),
        (lambda x: x < 0, [1, lambda x: x]),
        (lambda x: [x < 0, x < 1], [1, 2, 3]),
    ],
)
def test_piecewise(conditions: Any, pieces: Any) -> None:
    x = np.array([-2.0, -0.5, 0.5, 3.0])
    source = input_like(x)
    value = FUNCTIONS[np.piecewise](source, conditions(source), pieces)
    (found,) = run([value], [source], [x])
    np.testing.assert_array_equal(found, np.piecewise(x, conditions(x), pieces))
    check_derivatives([value], [source], [x])


def test_the_functions_of_the_user_see_arrays() -> None:
    seen: list[str] = []
    before = HOOKS.call
    HOOKS.call = lambda function, *args, **kwargs: seen.append("called") or function(*args, **kwargs)
    try:
        FUNCTIONS[np.apply_along_axis](FUNCTIONS[np.sum], 0, input_like(np.ones((2, 3))))
    finally:
        HOOKS.call = before
    assert seen == ["called"] * 3


# Refusals


def test_changes_at_repeated_indices_are_made_one_after_the_other() -> None:
    changed = find_method("divide", "at")
    assert changed is not None
    for indices in ([1, 1, -3], np.array([[0, 2, 0]])):
        x, v = np.array([3.0, 5.0, 7.0]), np.array([2.0, 4.0, 8.0])
        known, traced = input_like(x), input_like(np.asarray(indices))
        values = input_like(v)
        found = run(
            [changed(known, indices, values), changed(known, traced, values)],
            [known, traced, values],
            [x, np.asarray(indices), v],
        )
        np.divide.at(x, indices, v)
        for result in found:
            np.testing.assert_array_equal(result, x)


def test_unary_changes_in_place() -> None:
    x = np.array([1.0, 2.0, 3.0])
    source = input_like(x)
    at = find_method("negative", "at")
    assert at is not None
    (found,) = run([at(source, [0, 2])], [source], [x])
    np.testing.assert_array_equal(found, [-1.0, 2.0, -3.0])


def test_the_polynomial_of_a_matrix_has_its_eigenvalues_as_zeros() -> None:
    a = np.array([[2.0, 1.0], [0.5, 3.0]])
    (found,) = run([FUNCTIONS[np.poly](source := input_like(a))], [source], [a])
    np.testing.assert_allclose(found, np.poly(a))


def test_padding_by_a_function_is_refused_with_a_reason() -> None:
    with pytest.raises(UnsupportedFunctionError, match="what to do"):
        FUNCTIONS[np.pad](input_like(np.ones(3)), 1, lambda *args: None)


def test_numbers_that_are_needed_are_asked_for() -> None:
    x, n = input_like(np.ones((2, 3))), input_like(np.array(1))
    for function, args in (
        (np.sum, (x, n)),
        (np.roll, (x, n)),
        (np.repeat, (x, n)),
        (np.reshape, (x, (n, 6))),
        (np.tile, (x, n)),
    ):
        with pytest.raises(ConcretizationError, match="traced, and its values are needed"):
            FUNCTIONS[function](*args)


def test_where_out_stands() -> None:
    assert (out_place(np.sum), out_place(np.clip), out_place(np.dot)) == (3, 3, 2)
    assert out_place(np.einsum) is None and out_place(np.where) is None


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: np.select([x > 0], [x, x]), "condlist has 1, choicelist 2"),
        (lambda x: np.select([x], [x]), "entry 0 in condlist.*float64"),
        (lambda x: np.select([x > 0, x[:2] > 0], [x, 2.0]), r"conditions of the shapes \[\(3,\), \(2,\)\]"),
        (lambda x: np.linalg.multi_dot([np.outer(x, x)]), "at least two arrays, got 1"),
    ],
)
def test_wrong_lists_of_arrays_are_refused_with_what_to_do(function: Any, words: str) -> None:
    x = np.array([1.0, -2.0, 3.0])
    with pytest.raises((TypeError, ValueError)):
        function(x)
    for way in (gt.jit(function), lambda x: gt.grad(lambda y: np.sum(function(y)))(x)):
        with pytest.raises(gt.errors.GradtapeError, match=f"(?s){words}.*what to do"):
            way(x)


def test_factors_of_a_chain_that_are_no_matrices_are_named() -> None:
    a = np.ones((2, 3))
    with pytest.raises(np.linalg.LinAlgError, match=r"factor 1 of 3 has the shape \(3,\)"):
        gt.grad(lambda a: np.sum(np.linalg.multi_dot([a, a[0], a.T])))(a)


def test_arrays_stand_for_lists_of_their_items_in_select_and_multi_dot() -> None:
    x, stack = np.array([1.0, -2.0, 3.0]), np.arange(12.0).reshape(3, 2, 2)
    for compiled in ("compile", "trace"):
        with gt.config.override(loops=compiled):
            assert gt.jit(lambda x: np.select(x > 0, x))(x) == np.select(x > 0, x)
            np.testing.assert_allclose(gt.jit(np.linalg.multi_dot)(stack), np.linalg.multi_dot(stack))
            np.testing.assert_array_equal(gt.grad(lambda x: np.select(x < 0, x**2))(x), [0.0, -4.0, 0.0])
