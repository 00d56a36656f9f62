"""The shift of a log-sum-exp needs no derivative: which shifts are found, which are not, and what becomes of the numbers.

Random programs around exponentials of shifted numbers have the same derivatives without the shifts.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtape as gt
from gradtape.kinds.registry import ROWS
from gradtape.ops.core.shift_rules import NotAShift, Shift
from gradtape.transforms import jvp as forward
from gradtape.transforms import vjp as backward
from tests.support.graphs import input_like

X = np.random.default_rng(5).normal(size=(4, 5)) * 3.0
W = np.random.default_rng(6).uniform(0.1, 1.0, (5, 3))
Y = np.random.default_rng(7).uniform(size=(4, 5))


def rows(x, **settings):
    return np.max(x, axis=1, keepdims=True, **settings)


def whole(x):
    m = np.max(x)
    return m + np.log(np.sum(np.exp(x - m)))


def by_row(x):
    m = np.max(x, axis=1)
    return np.sum(np.sin(m + np.log(np.sum(np.exp(x - m[:, None]), axis=1))))


def by_column(x):
    m = np.max(x, axis=0)
    return np.sum(np.sin(m + np.log(np.sum(np.exp(x - m), axis=0))))


def kept(x):
    m = rows(x)
    return np.sum(np.sin(np.squeeze(m, 1) + np.log(np.sum(np.exp(x - m), axis=1))))


def softmax(x):
    e = np.exp(x - rows(x))
    return np.sum(np.sin(e / np.sum(e, axis=1, keepdims=True)))


def log_softmax(x):
    s = x - rows(x)
    return -np.sum(Y * (s - np.log(np.sum(np.exp(s), axis=1, keepdims=True))))


def tempered(x):
    m = rows(x)
    return np.sum((np.log(np.sum(np.exp((x - m) / 3.0), axis=1)) * 3.0 + m[:, 0]) ** 2)


def negated(x):
    m = np.min(x, axis=1, keepdims=True)
    return np.sum(np.sin(m[:, 0] - np.log(np.sum(np.exp(-(x - m)), axis=1))))


def base_two(x):
    m = rows(x)
    return np.sum(np.sin(m[:, 0] + np.log2(np.sum(np.exp2(x - m), axis=1))))


def masked(x):
    m = rows(x)
    e = np.where(Y > 0.5, np.exp(x - m), 0.0)
    return np.sum(np.sin(m[:, 0] + np.log(np.sum(e, axis=1) + 0.0)))


def hidden(x):
    m = rows(x)
    return np.sum(np.sin(m[:, 0] + np.log(np.sum(np.exp(np.where(Y > 0.5, x - m, -np.inf)), axis=1))))


def guarded(x):
    m = rows(x)
    m = np.where(np.isfinite(m), m, 0.0)
    return np.sum(np.sin(m[:, 0] + np.log(np.sum(np.exp(x - m), axis=1))))


def product(x):
    m = rows(x)
    return np.sum(np.sin(np.log(np.exp(x - m) @ W) + m))


def two(x):
    a, b = x[0], x[1]
    m = np.maximum(a, b)
    return np.sum(np.sin(m + np.log(np.exp(a - m) + np.exp(b - m))))


def mean(x):
    m = np.mean(x, axis=1, keepdims=True)
    return np.sum(np.sin(m[:, 0] + np.log(np.sum(np.exp(x - m), axis=1))))


def transposed(x):
    m = np.max(x, axis=0)
    return np.sum(np.sin(np.log(np.sum(np.exp(x.T - m[:, None]), axis=1)) + m))


def powers(x):
    e = np.exp(x - rows(x))
    return np.sum(np.sin(e / np.sqrt(np.sum(e**2, axis=1, keepdims=True))))


def nested(x):
    s = x - rows(x)
    t = s - np.max(s, axis=1, keepdims=True)
    return np.sum(np.sin(t - np.log(np.sum(np.exp(t), axis=1, keepdims=True))))


FOUND = (
    whole,
    by_row,
    by_column,
    kept,
    softmax,
    log_softmax,
    tempered,
    negated,
    base_two,
    masked,
    hidden,
    guarded,
    product,
    two,
    mean,
    transposed,
    powers,
    nested,
)


def used_elsewhere(x):
    m = rows(x)
    return np.sum(np.sin(m[:, 0] + np.log(np.sum(np.exp(x - m), axis=1)))) + np.sum(m**2)


def counted_twice(x):
    m = np.max(x)
    return 2.0 * m + np.log(np.sum(np.exp(x - m)))


def left_out(x):
    m = np.max(x)
    return np.log(np.sum(np.exp(x - m)))


def with_epsilon(x):
    m = np.max(x)
    return m + np.log(np.sum(np.exp(x - m)) + 1e-3)


def one_more(x):
    m = np.max(x)
    return m + np.log1p(np.sum(np.exp(x - m)))


def other_base(x):
    m = np.max(x)
    return m + np.log2(np.sum(np.exp(x - m)))


def across(x):
    m = rows(x)
    return np.sum(np.sin(np.mean(m) + np.log(np.sum(np.exp(x - m), axis=0))))


def other_order(x):
    m = np.max(x, axis=1)
    return np.sum(np.sin(m[::-1] + np.log(np.sum(np.exp(x - m[:, None]), axis=1))))


def outer(x):
    m = np.max(x, axis=1)
    e = np.exp(x - m[:, None])
    return np.sum(np.sin((e @ e.T) / np.sum(e, axis=1)))


def squared(x):
    m = np.max(x)
    return np.sum(np.exp(-((x - m) ** 2)))


NOT_FOUND = (
    used_elsewhere,
    counted_twice,
    left_out,
    with_epsilon,
    one_more,
    other_base,
    across,
    other_order,
    outer,
    squared,
)


def name_of(function):
    return function.__name__


def differentiates_the_shift(function, *arguments):
    """Whether it is asked which elements are the extremum."""
    return " equal(" in str(gt.inspect.graph(function, *arguments))


@pytest.fixture
def by_the_book(monkeypatch):
    """Derivatives of all that there is."""

    def compute(what):
        with monkeypatch.context() as patch:
            for module in (backward, forward):
                patch.setattr(module, "cancelling_shifts", lambda nodes, targets, sources: set())
            return what()

    return compute


@pytest.mark.parametrize("function", FOUND, ids=name_of)
def test_shifts_that_cancel_have_no_derivative(function):
    assert not differentiates_the_shift(gt.grad(function), X)
    assert not differentiates_the_shift(gt.jit(lambda x: gt.jvp(function, (x,), (X,))[1]), X)
    assert not differentiates_the_shift(gt.grad(lambda x: np.sum(gt.grad(function)(x) ** 2)), X)


@pytest.mark.parametrize("function", NOT_FOUND, ids=name_of)
def test_other_maxima_are_left_alone(function):
    assert differentiates_the_shift(gt.grad(function), X)


@pytest.mark.parametrize("function", [*FOUND, *NOT_FOUND], ids=name_of)
def test_derivatives_are_those_of_all_that_there_is(function, by_the_book):
    gradient = gt.grad(function)

    def second(x):
        return gt.grad(lambda x: np.sum(Y * gradient(x)))(x)

    def computed():
        return [
            gt.grad(lambda x: function(x))(X),
            gt.jvp(lambda x: function(x), (X,), (Y,))[1],
            gt.jvp(lambda x: gt.grad(function)(x), (X,), (Y,))[1],
            gt.grad(lambda x: np.sum(Y * gt.grad(function)(x)))(X),
        ]

    with gt.config.override(jit=False):
        expected = by_the_book(computed)
        found = computed()
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(gradient(X), expected[0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(second(X), expected[3], rtol=1e-9, atol=1e-11)


def test_a_shift_may_be_any_value():
    graph = str(gt.inspect.graph(gt.grad(mean), X, optimised=True))
    assert graph.count("reduce_sum(") == 2  # the mean's own, and that of the exponentials


def shifted_by(x, m):
    return np.sum(np.sin(m + np.log(np.sum(np.exp(x - m[:, None]), axis=1))))


def test_a_shift_that_is_differentiated_in_has_its_derivative():
    np.testing.assert_allclose(gt.grad(shifted_by, argnums=1)(X, np.ones(4)), np.zeros(4), atol=1e-14)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        m = np.max(x, axis=1)
        y = shifted_by(x, m)
    to_x, to_m = tape.gradient(y, [x, m])
    np.testing.assert_allclose(to_m, np.zeros(4), atol=1e-14)
    np.testing.assert_allclose(to_x, gt.grad(by_row)(X), rtol=1e-12)


def test_a_result_of_the_shift_keeps_it():
    def both(x):
        m = np.max(x, axis=1)
        return m, m + np.log(np.sum(np.exp(x - m[:, None]), axis=1))

    slopes = gt.jacobian(both)(X)
    softmaxes = np.exp(X - X.max(1, keepdims=True))
    softmaxes /= softmaxes.sum(1, keepdims=True)
    for row in range(4):
        np.testing.assert_array_equal(slopes[0][row, row], X[row] == X[row].max())
        np.testing.assert_allclose(slopes[1][row, row], softmaxes[row], rtol=1e-12)


EDGES = np.array(
    [
        [np.inf, 1.0, 2.0],
        [-np.inf, -np.inf, -np.inf],
        [-np.inf, 0.0, 800.0],
        [np.nan, 1.0, 2.0],
        [3.0, 3.0, 3.0],
        [-800.0, 0.0, 800.0],
    ]
)


@pytest.mark.parametrize("finite", [False, True])
def test_infinities_and_nans(finite, by_the_book):
    def total(x):
        m = np.max(x, axis=1)
        if finite:
            m = np.where(np.isfinite(m), m, 0.0)
        return np.sum(m + np.log(np.sum(np.exp(x - m[:, None]), axis=1)))

    gradient = gt.grad(lambda x: total(x))(EDGES)
    expected = by_the_book(lambda: gt.grad(lambda x: total(x))(EDGES))
    np.testing.assert_allclose(gradient, expected, atol=1e-15)
    third = [1 / 3] * 3
    np.testing.assert_allclose(gradient[[2, 4, 5]], [[0, 0, 1], third, [0, 0, 1]], atol=1e-15)
    assert np.isnan(gradient[1]).all()
    assert np.isnan(gradient[3]).all()


def test_bodies_of_loops():
    def chain(forward, transition, seen):
        def step(forward, row):
            terms = forward[:, None] + transition
            m = np.max(terms, axis=0)
            return m + np.log(np.sum(np.exp(terms - m), axis=0)) + row, None

        forward, _ = gt.scan(step, forward, seen)
        return whole(forward)

    def unrolled(forward, transition, seen):
        for row in seen:
            forward = np.log(np.exp(forward) @ np.exp(transition)) + row
        return np.log(np.sum(np.exp(forward)))

    arguments = (X[0, :4], X[:, :4], X[1:, :4])
    gradient = gt.grad(chain, argnums=(0, 1, 2))
    assert not differentiates_the_shift(gradient, *arguments)
    for own, other in zip(
        gradient(*arguments), gt.grad(unrolled, argnums=(0, 1, 2))(*arguments), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-13)


def test_passes_over_the_data():
    """One for the maximum, one for exponentials and their sum, one for the gradient."""
    x = np.random.default_rng(0).normal(size=10_000)
    assert str(gt.inspect.loops(gt.value_and_grad(whole), x)).count("for ") == 3


def test_many_shifts_in_a_chain():
    def chain(x):
        for _ in range(40):
            m = np.max(x)
            x = np.sin(x - (m + np.log(np.sum(np.exp(x - m)))))
        return np.sum(x)

    with gt.config.override(reroll=False):
        assert np.all(np.isfinite(gt.grad(chain)(X[0])))
        assert not differentiates_the_shift(gt.grad(chain), X[0])


POINTS = np.random.default_rng(0).normal(size=(3, 4))
V = np.random.default_rng(2).normal(size=(3, 4))
WEIGHTS = np.random.default_rng(1).uniform(0.2, 1.0, (4, 4))

SHIFTS = (
    lambda x: np.max(x, axis=1),
    lambda x: np.min(x, axis=1),
    lambda x: np.mean(x, axis=1),
    lambda x: x[:, 0] * 2.0,
    lambda x: np.max(x) * np.ones(3),
    lambda x: np.where(np.isfinite(np.max(x, axis=1)), np.max(x, axis=1), 0.0),
)

MATRICES = (
    lambda a, b, u, v: a / u[:, None],
    lambda a, b, u, v: a * b,
    lambda a, b, u, v: a - u[:, None],
    lambda a, b, u, v: a @ WEIGHTS,
    lambda a, b, u, v: np.where(V > 0.0, a, 0.0),
    lambda a, b, u, v: np.maximum(a, b),
    lambda a, b, u, v: np.exp(-np.abs(a)),
    lambda a, b, u, v: np.sqrt(np.abs(a)),
    lambda a, b, u, v: a[:, ::-1],
)

VECTORS = (
    lambda a, b, u, v: np.sum(a, axis=1),
    lambda a, b, u, v: np.max(a, axis=1),
    lambda a, b, u, v: np.sum(a * b, axis=1),
    lambda a, b, u, v: np.log(np.abs(u)),
    lambda a, b, u, v: u + v,
    lambda a, b, u, v: u - v,
    lambda a, b, u, v: u / v,
    lambda a, b, u, v: u * -0.5,
    lambda a, b, u, v: u[::-1],
)

places = st.integers(0, 7)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 8), places, places), min_size=2, max_size=8)


def program(shift, scale, recipe, added):
    def function(x):
        m = SHIFTS[shift](x)
        s = (x - m[:, None]) * scale
        e = np.exp(s)
        total = np.sum(e, axis=1)
        matrices, vectors = [s, e, e / total[:, None], x], [m, m + np.log(total) / scale]
        for matrix, which, first, second in recipe:
            a, b = (matrices[place % len(matrices)] for place in (first, second))
            u, v = (vectors[place % len(vectors)] for place in (first, second))
            (matrices if matrix else vectors).append((MATRICES if matrix else VECTORS)[which](a, b, u, v))
        return (
            np.sum(np.tanh(vectors[-1])) + added * np.sum(np.sin(vectors[1])) + np.sum(np.tanh(matrices[-1]))
        )

    return function


def derivatives(function, x):
    gradient = gt.grad(lambda x: function(x))
    pushed = gt.jvp(lambda x: function(x), (x,), (V,))[1]
    return np.asarray(gradient(x)), np.asarray(pushed)


@given(st.integers(0, 5), st.sampled_from([1.0, 0.5, 2.0]), steps, st.booleans())
@settings(max_examples=120, deadline=None)
def test_derivatives_stay_the_same(shift, scale, recipe, added):
    function = program(shift, scale, recipe, added)
    find = backward.cancelling_shifts
    with gt.config.override(jit=False):
        found = derivatives(function, POINTS)
        try:
            backward.cancelling_shifts = forward.cancelling_shifts = lambda nodes, targets, sources: set()
            expected = derivatives(function, POINTS)
        finally:
            backward.cancelling_shifts = forward.cancelling_shifts = find
    for own, other in zip(found, expected, strict=True):
        known = np.isfinite(other)
        scale_of = 1.0 + np.max(np.abs(other), initial=0.0, where=known)
        np.testing.assert_allclose((own / scale_of)[known], (other / scale_of)[known], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if row.shift is not None], ids=lambda row: row.name
)
def test_shift_rules_of_rows(row):
    """Wherever a rule gives a shift, the result changes by it when the operands change by theirs."""
    samples = np.random.default_rng(8).uniform(0.5, 2.0, (3, 4, 2))
    arity, params = (row.arity, row.params[0]) if hasattr(row, "arity") else (1, {"axes": (1,)})
    operands = list(samples[:arity])
    if row.name == "where":
        operands[0] = np.array([True, False])
    elif row.name == "power":
        operands[1] = 2.0
    node = row(*[x if isinstance(x, float) else input_like(x) for x in operands], **params).node
    (before,) = row.evaluate(operands, params)
    d, known = 0.3, 0
    for bases in itertools.product((0.0, None, np.e, 2.0), repeat=arity):
        shifts = [None if base == 0.0 else Shift(base, 1, (None, None)) for base in bases]
        if not any(shifts) or any(
            shift and np.shape(x) != (4, 2) for x, shift in zip(operands, shifts, strict=True)
        ):
            continue
        try:
            found = row.shift(node, shifts)
        except NotAShift:
            continue
        moved = [moved_by(array, shift, d) for array, shift in zip(operands, shifts, strict=True)]
        (after,) = row.evaluate(moved, params)
        np.testing.assert_allclose(after, moved_by(before, found, d), rtol=1e-6)
        known += 1
    assert known


def moved_by(array, shift, d):
    if shift is None:
        return array
    change = float(shift.degree) * d
    return array + change if shift.base is None else array * shift.base**change
