"""Loops in plain NumPy, as they are found in scripts: values, gradients, tapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.differences import gradients_by_differences

Array = Any


def gauss_seidel(a: Array, b: Array) -> Array:
    x = np.zeros(5)
    for _ in range(10):
        for i in range(5):
            x[i] = (b[i] - a[i, :i] @ x[:i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.sum(x**2)


def gauss_seidel_by_numbers(a: Array, b: Array) -> Array:
    x = np.zeros_like(b)
    for _ in range(12):
        for i in range(len(b)):
            rest = b[i]
            for j in range(len(b)):
                if j != i:
                    rest = rest - a[i, j] * x[j]
            x[i] = rest / a[i, i]
    return np.sum(x**2)


def ring(a: Array, b: Array) -> Array:
    buffer = np.array([a, b, a * b, a + b])
    for i in range(30):
        buffer[i % 4] = 0.9 * buffer[(i - 1) % 4] + 0.1 * np.sin(buffer[(i + 1) % 4])
    return np.sum(buffer)


def recurrence(a: Array, b: Array) -> Array:
    f = np.zeros(40)
    f[0], f[1], f[2] = a, b, a * b
    for i in range(3, 40):
        f[i] = 0.5 * f[i - 1] + 0.3 * np.sin(f[i - 2]) + 0.1 * f[i - 3] ** 2
    return f[-1] + f.sum()


def matrix_by_hand(a: Array, b: Array) -> Array:
    c = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            for k in range(4):
                c[i, j] += a[i, k] * b[k, j]
    return np.sum(np.tanh(c))


MATRIX = np.random.default_rng(0).uniform(size=(5, 5)) + 6 * np.eye(5)
SYSTEM = (MATRIX, np.arange(5.0) + 1)
CASES = {
    "gauss_seidel": (gauss_seidel, SYSTEM),
    "gauss_seidel_by_numbers": (gauss_seidel_by_numbers, SYSTEM),
    "ring": (ring, (0.9, 0.2)),
    "recurrence": (recurrence, (0.9, 0.05)),
    "matrix_by_hand": (matrix_by_hand, (MATRIX[:4, :4] / 4, MATRIX[1:, 1:] / 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_numpy(name: str) -> None:
    f, args = CASES[name]
    expected, slopes = f(*args), gradients_by_differences(f, args)
    both = gt.value_and_grad(f, argnums=(0, 1))
    for factor in (1.0, 1.001, 1.0):
        value, found = both(*[arg * factor for arg in args])
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gt.jit(f)(*args), expected, rtol=1e-12)
    for got, slope in zip(found, slopes, strict=True):
        np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_tapes_record_it_again_and_again(name: str) -> None:
    f, args = CASES[name]
    expected, slopes = f(*args), gradients_by_differences(f, args)
    gt.value_and_grad(f, argnums=(0, 1))(*args)
    for _ in range(4):
        with gt.GradientTape() as tape:
            watched = [tape.watch(arg) for arg in args]
            result = f(*watched)
        found = tape.gradient(result, watched)
        assert float(result) == pytest.approx(float(expected), rel=1e-12)
        for got, slope in zip(found, slopes, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_number_may_become_an_array_that_a_loop_reads(shape: tuple[int, ...]) -> None:
    def f(x: Array) -> Array:
        fixed = np.reshape(np.sum(x) * 2, shape)
        first = np.reshape(x[0] * x[1], shape)
        last, steps = gt.scan(lambda carry, _: (carry * 0.9 + fixed, carry), first, length=20)
        return np.sum(last) + np.sum(steps)

    x = np.array([1.0, 2.0, 3.0])
    with gt.config.override(jit=False):
        expected = gt.value_and_grad(f)(x)
    value, slope = gt.value_and_grad(f)(x)
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-12)


def test_a_loop_may_read_and_carry_arrays_without_elements() -> None:
    def f(x: Array) -> Array:
        nothing = x[:0]

        def inner(carry: Array, _: None) -> tuple[Array, None]:
            return (carry[0] * 0.5 + np.sum(nothing), carry[1] * 2), None

        def step(carry: Array, _: None) -> tuple[Array, Array]:
            number, empty = gt.scan(inner, carry, length=9)[0]
            return (number + np.sum(empty) + 1, empty), number

        (last, empty), steps = gt.scan(step, (x[0], x[3:3]), length=20)
        return last * np.sum(x) + np.sum(steps) + np.sum(empty)

    x = np.array([1.0, 2.0, 3.0])
    with gt.config.override(jit=False):
        expected = gt.value_and_grad(f)(x)
    value, slope = gt.value_and_grad(f)(x)
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-12)


def selected_in_the_turn(x: Array) -> Array:
    product = 1.0
    for v in x:
        product = np.where(v > 0, np.sqrt(v) * product, product)
    return product


def selected_by_what_is_the_same(x: Array) -> Array:
    product = 1.0
    for turn in range(20):
        product = np.where(product > turn + 2, np.log(x[turn] * x[1]) * product, 0.9 * product)
    return product * x[0]


def selected_inverses(x: Array) -> Array:
    total = 0.0
    for v in x:
        total = total * 0.5 + np.where(v > 0, 1 / v, 0.0) * np.where(total < 3, np.sqrt(total + 1), 1.0)
    return total


def selected_and_stacked(x: Array) -> Array:
    return np.sum(np.stack([np.where(v > 0, np.log(v), 0.0) for v in x]))


@pytest.mark.parametrize(
    "f", [selected_in_the_turn, selected_by_what_is_the_same, selected_inverses, selected_and_stacked]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_was_not_selected_has_no_part_in_the_gradient(f: Callable[..., Array]) -> None:
    x = np.tile([1.0, 0.0, 4.0, -1.0], 5)
    with gt.config.override(reroll=False):
        expected = gt.grad(f)(x)
    assert np.all(np.isfinite(expected))
    np.testing.assert_allclose(gt.grad(f)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(gt.grad(gt.jit(f))(x), expected, rtol=1e-12)


@pytest.mark.parametrize("checkpoint", [None, "all", "sqrt", 4, ("treeverse", 2)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_selections_are_the_same_whatever_is_kept(checkpoint: Any) -> None:
    def f(x: Array) -> Array:
        def step(product: Array, v: Array) -> tuple[Array, None]:
            return np.where(v > 0, np.sqrt(v) * product, product), None

        return gt.scan(step, 1.0, x, checkpoint=checkpoint)[0]

    x = np.tile([1.0, 0.0, 4.0, -1.0], 4)
    np.testing.assert_allclose(gt.grad(f)(x), np.tile([8.0, 0.0, 2.0, 0.0], 4), rtol=1e-12)


def test_guards_of_a_line_are_told_once(loops_are_traced: None) -> None:
    @gt.jit
    def middle(a: Array) -> Array:
        low, high = 0.0 * a, a + 1.0
        while high - low > 1e-6:
            half = (low + high) / 2
            if half * half < a:
                low = half
            else:
                high = half
        return low

    assert float(middle(2.0)) == pytest.approx(2**0.5, abs=1e-5)
    report = gt.inspect.explain(middle)
    assert report.startswith("middle: 1 trace for 1 signature\n")
    assert report.count("guard: ") == 4
    assert repr(middle) == "<gradtape.jit of middle: 1 trace>"


def restarted(x: Any, restart: Any) -> Any:
    """A selection in one turn cuts a root of zero in the turn before."""
    s = x[0]
    for t in range(len(x)):
        s = np.where(restart[t], 1.0, s)
        s = s * 0.9 + np.sqrt(x[t])
    return s


def never_taken(a: Any, s: Any) -> Any:
    """A selection that no turn takes cuts what is the same in all turns."""
    for t in range(40):
        s = np.where(t > 50, np.sqrt(a) * s, s) * 1.001 + 0.1 * np.sin(s)
    return s


def with_zero() -> tuple[np.ndarray, np.ndarray]:
    x, restart = np.linspace(1.0, 2.0, 40), np.zeros(40, bool)
    restart[20], x[19], x[5] = True, 0.0, 0.0
    return x, restart


def test_a_selection_cuts_an_infinite_slope_of_an_earlier_turn() -> None:
    x, restart = with_zero()
    gradient = gt.grad(restarted)(x, restart)
    with gt.config.override(reroll=False):
        unrolled = gt.grad(lambda x: restarted(x, restart))(x)
    assert np.isfinite(gradient).all() and gradient[19] == 0.0 and gradient[30] > 0
    np.testing.assert_allclose(gradient, unrolled, rtol=1e-13)


def test_a_selection_cuts_what_is_the_same_in_all_turns() -> None:
    by_a, by_s = gt.grad(never_taken, argnums=(0, 1))(0.0, 1.0)
    with gt.config.override(reroll=False):
        expected = gt.grad(lambda a, s: never_taken(a, s), argnums=(0, 1))(0.0, 1.0)
    assert by_a == expected[0] == 0.0
    np.testing.assert_allclose(by_s, expected[1], rtol=1e-13)


@pytest.mark.parametrize("checkpoint", [None, "all", 7, "sqrt", ("treeverse", 3)])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_selections_across_turns_in_scans(checkpoint: Any, shape: tuple[int, ...]) -> None:
    x, restart = with_zero()
    x = np.multiply.outer(x, np.ones(shape))

    def scanned(x: Any) -> Any:
        def step(s: Any, now: Any) -> Any:
            element, again = now
            s = np.where(again, 1.0, s)
            return s * 0.9 + np.sqrt(element), None

        return np.sum(gt.scan(step, x[0], (x, restart), checkpoint=checkpoint)[0])

    gradient = gt.grad(scanned)(x)
    np.testing.assert_allclose(
        gradient, np.multiply.outer(gt.grad(restarted)(*with_zero()), np.ones(shape)), rtol=1e-13
    )


def test_selections_across_turns_of_a_while() -> None:
    def stepped(a: Any) -> Any:
        def step(k: Any, s: Any) -> Any:
            s = np.where(k == 2, 1.0, s)
            return k + 1, s * 0.9 + np.sqrt(a * (k != 1))

        return gt.while_loop(lambda k, s: k < 5, step, (0, a))[1]

    slope = 0.9**2 * 0.5 + 0.9 * 0.5 + 0.5
    assert gt.grad(stepped)(1.0) == pytest.approx(slope)


@pytest.mark.parametrize("checkpoint", [None, "all", 7, "sqrt", ("treeverse", 3)])
def test_a_carry_that_is_left_behind_as_well_keeps_its_own_cotangents(checkpoint: Any) -> None:
    """The mask of the next turn holds for what is carried, and not for what is left behind."""
    x, restart = with_zero()
    x = x + 0.5

    def scanned(x: Any) -> Any:
        def step(s: Any, now: Any) -> Any:
            element, again = now
            s = np.where(again, 1.0, s) * 0.9 + np.sqrt(element)
            return s, s

        end, states = gt.scan(step, x[0], (x, restart), checkpoint=checkpoint)
        return end + np.sum(np.sin(states))

    gt.check_grads(scanned, (x,), order=2)


@pytest.mark.parametrize("checkpoint", [None, "all", 7, "sqrt", ("treeverse", 3)])
def test_a_selection_behind_a_loop_cuts_infinite_slopes_inside(checkpoint: Any) -> None:
    x, _ = with_zero()

    def chosen(x: Any, wanted: Any) -> Any:
        end, _ = gt.scan(lambda s, element: (s * 0.9 + np.sqrt(element), None), 0.1, x, checkpoint=checkpoint)
        return np.where(wanted, end, 1.0) + x[30]

    np.testing.assert_array_equal(gt.grad(chosen)(x, np.array(False)), np.eye(40)[30])


@pytest.mark.parametrize("checkpoint", [None, "all", ("treeverse", 3)])
def test_a_selection_of_what_turns_leave_cuts_infinite_slopes_inside(checkpoint: Any) -> None:
    x, _ = with_zero()

    def chosen(x: Any, wanted: Any) -> Any:
        _, states = gt.scan(lambda s, element: (s, 2.0 * np.sqrt(element)), 0.1, x, checkpoint=checkpoint)
        return np.sum(np.where(wanted, states, 1.0)) + x[30]

    np.testing.assert_array_equal(gt.grad(chosen)(x, np.array(False)), np.eye(40)[30])
