"""Integers that guards check are numbers in the rest of the graph."""

import numpy as np
import pytest

import gradtape as gt


def scaled(x, n):
    y = x
    for _ in range(n):
        y = y * 2.0 ** (n - 1)
    return y * n ** (n + 1)


def test_integers_that_python_has_looked_at_are_folded():
    compiled, x = gt.jit(scaled), np.array([1.0, -2.0])
    for n in (2, 3, 2):
        np.testing.assert_allclose(compiled(x, n), scaled(x, n))
    shown = str(gt.inspect.graph(compiled, x, 3, optimised=True))
    assert "power" not in shown and "multiply(v2, 81.0)" in shown
    assert "called natively" in gt.inspect.explain(compiled)


def test_another_integer_misses_the_guard():
    compiled = gt.jit(gt.grad(scaled))
    for n in (2, 4):
        assert compiled(1.5, n) == pytest.approx((2.0 ** (n - 1)) ** n * n ** (n + 1))


def test_a_guarded_integer_may_be_the_result():
    def count(n, x):
        return n if n > 2 else x[0]

    compiled, x = gt.jit(count), np.array([0.5])
    assert (compiled(3, x), compiled(4, x), compiled(1, x)) == (3, 4, 0.5)


def test_a_branch_on_a_truth_value_that_selects_too():
    def chosen(x):
        hit = x[0] > 0
        y = x * 2 if hit else x * 3
        return np.where(hit, y, 0.0)

    compiled = gt.jit(chosen)
    for x in (np.array([1.0, 2.0]), np.array([-1.0, 2.0])):
        np.testing.assert_array_equal(compiled(x), chosen(x))


@pytest.mark.parametrize("part", [1.0, 1j])
def test_constants_keep_their_places_where_an_integer_is_substituted(part):
    """The rest of the graph uses the factors first, the graph as traced the signs."""

    def signed(x):
        n = np.sum(x * np.array([1.0, 1.0]) > 0)
        for _ in range(n):
            x = x + 1.0
        return x * n * np.array([10.0, 100.0 * part])

    compiled, x = gt.jit(signed), np.array([0.5, 2.0])
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x), signed(x))
    assert compiled.site.traces == 1
