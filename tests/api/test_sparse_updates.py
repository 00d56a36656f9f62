"""Optimisers on rows of tables, eagerly and compiled: the same contents."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, ConcretizationError, DtypeError

ROWS = 7
START = np.random.default_rng(0).standard_normal((ROWS, 3))
BATCHES = np.random.default_rng(1).integers(-ROWS, ROWS, (6, 5))


def table(dtype, of=START):
    return gt.Variable(of.astype(dtype))


def loss_of(w, batch):
    return np.sum((w[batch] - 1.0) ** 2)


def slope_of(w, batch):
    slope = np.zeros_like(w)
    np.add.at(slope, batch, 2 * (w[batch] - 1))
    return slope


def gradient(w, batch):
    with gt.GradientTape() as tape:
        loss = loss_of(w, batch)
    return tape.gradient(loss, w)


class Sgd:
    def __init__(self, dtype):
        self.w = table(dtype)

    def step(self, batch):
        self.w.assign_sub(0.1 * gradient(self.w, batch))

    @staticmethod
    def reference(w, batches):
        for batch in batches:
            w = w - 0.1 * slope_of(w, batch)
        return w


class Momentum(Sgd):
    def __init__(self, dtype):
        super().__init__(dtype)
        self.m = table(dtype, np.zeros_like(START))

    def step(self, batch):
        self.m *= 0.9
        self.m += gradient(self.w, batch)
        self.w -= 0.1 * self.m

    @staticmethod
    def reference(w, batches):
        m = 0
        for batch in batches:
            m = 0.9 * m + slope_of(w, batch)
            w = w - 0.1 * m
        return w


class Adam(Momentum):
    def __init__(self, dtype):
        super().__init__(dtype)
        self.v = table(dtype, np.zeros_like(START))
        self.t = gt.Variable(0, trainable=False)

    def step(self, batch):
        g = gradient(self.w, batch)
        self.t.assign_add(1)
        self.m.assign(0.9 * self.m + 0.1 * g)
        self.v.assign(0.999 * self.v + 0.001 * g**2)
        slow, fast = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        self.w.assign_sub(0.1 * slow / (np.sqrt(fast) + 1e-8))

    @staticmethod
    def reference(w, batches):
        m, v = 0, 0
        for t, batch in enumerate(batches, 1):
            g = slope_of(w, batch)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return w


class LazyAdam(Adam):
    """Moments of the rows of a batch alone."""

    def step(self, batch):
        g = gradient(self.w, batch).combined()
        at = g.indices
        m, v = 0.9 * self.m[at] + 0.1 * g.values, 0.999 * self.v[at] + 0.001 * g.values**2
        self.m.scatter_update(gt.IndexedSlices(m, at))
        self.v.scatter_update(gt.IndexedSlices(v, at))
        self.w.scatter_sub(gt.IndexedSlices(0.1 * m / (np.sqrt(v) + 1e-8), at))

    @staticmethod
    def reference(w, batches):
        w, m, v = w.copy(), np.zeros_like(w), np.zeros_like(w)
        for batch in batches:
            g, at = slope_of(w, batch), np.unique(batch % ROWS)
            m[at], v[at] = 0.9 * m[at] + 0.1 * g[at], 0.999 * v[at] + 0.001 * g[at] ** 2
            w[at] -= 0.1 * m[at] / (np.sqrt(v[at]) + 1e-8)
        return w


class Clipped(Sgd):
    def step(self, batch):
        g = gradient(self.w, batch)
        norm = np.sqrt(np.sum(g**2))
        self.w.assign_sub(g * np.minimum(1.0, 0.5 / norm))

    @staticmethod
    def reference(w, batches):
        for batch in batches:
            g = slope_of(w, batch)
            w = w - g * min(1.0, 0.5 / np.sqrt(np.sum(g**2)))
        return w


class Adagrad(Momentum):
    def __init__(self, dtype):
        super().__init__(dtype)
        self.m.assign(np.full_like(START, 0.1))

    def step(self, batch):
        g = gradient(self.w, batch)
        self.m.assign_add(np.square(g))
        self.w.assign_sub(0.1 * g / np.sqrt(self.m))

    @staticmethod
    def reference(w, batches):
        m = 0.1
        for batch in batches:
            g = slope_of(w, batch)
            m = m + g**2
            w = w - 0.1 * g / np.sqrt(m)
        return w


class Accumulated(Sgd):
    def step(self, batch):
        g = sum(gradient(self.w, half) for half in (batch[:2], batch[2:]))
        assert isinstance(g, gt.IndexedSlices)
        self.w.scatter_sub(0.1 * g)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [Sgd, Momentum, Adam, LazyAdam, Clipped, Adagrad, Accumulated])
def test_optimisers(kind, compiled, dtype):
    optimiser = kind(dtype)
    step = gt.jit(optimiser.step) if compiled else optimiser.step
    for batch in BATCHES:
        step(batch)
    assert optimiser.w.dtype == dtype
    expected = kind.reference(START.astype(dtype), BATCHES)
    np.testing.assert_allclose(optimiser.w, expected, rtol=1e-4 if dtype == np.float32 else 1e-12)


def test_a_sum_begins_with_nothing():
    g = gt.IndexedSlices([[1.0, 2.0]], [3], (5, 2))
    assert (0 + g) is g
    for found, factor in ((sum([g, g]), 2), (0 - g, -1), (g - 0.0, 1)):
        assert isinstance(found, gt.IndexedSlices)
        np.testing.assert_array_equal(gt.asarray(found), factor * gt.asarray(g))
    free = gt.IndexedSlices([1.0], [0])
    assert isinstance(free + 0, gt.IndexedSlices)
    assert not isinstance(g + 1, gt.IndexedSlices)


def test_combined_rows_are_the_same_in_a_jitted_function():
    combined = gt.jit(lambda values, indices: gt.IndexedSlices(values, indices, (5, 2)).combined())
    rng = np.random.default_rng(0)
    for indices in ([3, 0, 3], [1, 2, 4], [-1, 4, 4], [0, 0, 0], [2, 2, 1]):
        values = rng.standard_normal((3, 2))
        found = combined(values, np.array(indices))
        expected = gt.IndexedSlices(values, indices, (5, 2)).combined()
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-15)
    assert repr(combined).endswith("3 traces>")
    empty = combined(np.zeros((0, 2)), np.zeros(0, int))
    assert (empty.values.shape, empty.indices.shape) == ((0, 2), (0,))


def test_combined_rows_have_derivatives():
    def squares(values, indices):
        return np.sum(gt.IndexedSlices(values, indices, (5, 2)).combined().values ** 2)

    expected = np.array([[4.0, 4.0], [2.0, 2.0], [4.0, 4.0]])
    for slope in (gt.grad(squares), gt.jit(gt.grad(squares))):
        np.testing.assert_allclose(slope(np.ones((3, 2)), np.array([3, 0, 3])), expected)


def test_how_many_rows_there_are_is_not_known_for_many_elements_at_once():
    with pytest.raises(ConcretizationError):
        gt.vmap(lambda i: gt.IndexedSlices(np.ones((3, 2)), i, (5, 2)).combined().values)(
            np.array([[3, 0, 3], [1, 1, 1]])
        )


def test_an_array_of_integers_takes_no_floats():
    n = np.zeros((4, 2), int)
    with pytest.raises(DtypeError, match="rows of float64 cannot be put into an array of int64"):
        n -= gt.IndexedSlices(np.ones((1, 2)), [1], (4, 2))
    assert not n.any()
    n -= gt.IndexedSlices(np.ones((2, 2), np.int32), [1, 1], (4, 2))
    assert n.tolist() == [[0, 0], [-2, -2], [0, 0], [0, 0]]


def test_an_axis_may_be_numpys_integer():
    assert gt.gather(np.ones((2, 3)), [0], axis=np.int64(1)).shape == (2, 1)
    with pytest.raises(ArgumentError, match="axis is True"):
        gt.gather(np.ones((2, 3)), [0], axis=True)
