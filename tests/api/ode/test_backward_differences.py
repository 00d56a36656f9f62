"""BDF: the steps of SciPy, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.integrate._ivp.bdf import change_D
from scipy.sparse import diags_array

import gradtape as gt
from gradtape.api.ode.backward_differences import MOST_ORDERS, ROWS, _grids


@pytest.fixture(autouse=True)
def seconds_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gt.config, "progress", False)


@pytest.mark.parametrize("order", range(1, MOST_ORDERS + 1))
@pytest.mark.parametrize("factor", [0.2, 0.9, 3.0])
def test_differences_on_another_grid(order: int, factor: float) -> None:
    differences = np.random.default_rng(order).normal(size=(ROWS, 3))
    found = np.tensordot(factor ** np.arange(6.0), _grids()[order], 1) @ differences
    change_D(differences, order, factor)
    np.testing.assert_allclose(found, differences, rtol=1e-12, atol=1e-12)


def robertson(t: Any, y: Any, k: Any) -> Any:
    slow, fast = 0.04 * k * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return [-slow, slow - fast, fast]


def van_der_pol(t: Any, y: Any, k: Any) -> Any:
    """It relaxes again and again: steps are rejected, Newton's iterations fail, and orders go up and down."""
    return [y[1], k * 1e3 * (1 - y[0] ** 2) * y[1] - y[0]]


def driven(t: Any, y: Any, k: Any) -> Any:
    """Not stiff: all orders are in use, and `max_step` matters."""
    return [y[1], -k * y[0] + np.sin(3 * t)]


@pytest.mark.parametrize(
    ("fun", "y0", "times", "options"),
    [
        (robertson, [1.0, 0.0, 0.0], [0.4, 40.0, 4000.0], {"rtol": 1e-7, "atol": 1e-10}),
        (van_der_pol, [2.0, 0.0], [100.0, 900.0, 2000.0], {"rtol": 1e-4, "atol": 1e-7}),
        (driven, [1.0, 0.0], [9.5, 3.0, 0.1], {"max_step": 0.1, "first_step": 0.05, "rtol": 1e-6}),
    ],
)
def test_its_steps_are_those_of_scipy(fun: Any, y0: Any, times: Any, options: dict[str, Any]) -> None:
    span = (0.0 if times[0] < times[-1] else 10.0, times[-1])

    def states(k: Any) -> Any:
        return solve_ivp(fun, span, y0, t_eval=np.array(times), args=(k,), method="BDF", **options).y

    np.testing.assert_allclose(gt.jit(states)(1.1), states(1.1), rtol=1e-7, atol=1e-12)


def test_steps_on_a_tape() -> None:
    plain = solve_ivp(driven, (0, 5), [1.0, 0.0], args=(1.1,), method="BDF", dense_output=True)
    k = gt.Variable(1.1)
    with gt.GradientTape():
        found = solve_ivp(driven, (0, 5), [1.0, 0.0], args=(k,), method="BDF", dense_output=True)
        between = found.sol(2.2)
    np.testing.assert_array_equal(found.t, plain.t)
    np.testing.assert_allclose(found.y, plain.y, rtol=1e-10)
    np.testing.assert_allclose(between, plain.sol(2.2), rtol=1e-10)


def decayed(q: Any, **options: Any) -> Any:
    """y' = -q0 y^2 from (q1, q3) to q2."""
    given = {"method": "BDF", "rtol": 1e-8, "atol": 1e-10, **options}
    return solve_ivp(lambda t, y: -q[0] * y**2, (q[1], q[2]), [q[3]], **given).y[0, -1]


def decayed_exactly(q: Any) -> Any:
    return 1 / (1 / q[3] + q[0] * (q[2] - q[1]))


def test_derivatives_in_the_interval_and_the_state() -> None:
    q = np.array([1.3, 0.1, 2.0, 1.5])
    np.testing.assert_allclose(gt.grad(decayed)(q), gt.grad(decayed_exactly)(q), rtol=1e-6)
    with gt.config.override(ode_adjoint="continuous"):
        np.testing.assert_allclose(gt.grad(decayed)(q), gt.grad(decayed_exactly)(q), rtol=1e-6)


def test_second_derivatives() -> None:
    q = np.array([1.3, 0.1, 2.0, 1.5])
    found, exact = (gt.hvp(f, (q,), (np.arange(4.0),)) for f in (decayed, decayed_exactly))
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_that_of_the_steps() -> None:
    """With equal steps, differences of the values are those of the same formulas."""

    def loss(k: Any) -> Any:
        options = {"max_step": 0.02, "first_step": 0.02, "rtol": 1e-2, "atol": 1e-2}
        y = solve_ivp(driven, (0, 1), [1.0, 0.0], t_eval=[0.53, 1.0], args=(k,), method="BDF", **options).y
        return np.sum(y**2)

    slope, h = gt.grad(loss)(1.1), 1e-4
    np.testing.assert_allclose(slope, (loss(1.1 + h) - loss(1.1 - h)) / (2 * h), rtol=1e-6)


def test_bands() -> None:
    def end(k: Any) -> Any:
        def heat(t: Any, y: Any) -> Any:
            left, right = np.append(y[1:], y[-1]), np.append(y[0], y[:-1])
            return k * 400.0 * (left - 2 * y + right) - y**2

        options = {"method": "BDF", "rtol": 1e-6, "atol": 1e-8}
        return np.sum(solve_ivp(heat, (0, 1), np.linspace(0, 1, 24) ** 2, t_eval=[0.1, 1.0], **options).y)

    value, slope = gt.value_and_grad(end)(0.7)
    np.testing.assert_allclose(value, end(0.7), rtol=1e-8)
    np.testing.assert_allclose(slope, (end(0.71) - end(0.69)) / 0.02, rtol=1e-2)


@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_a_right_hand_side_with_a_branch_in_python(method: str) -> None:
    """It is compiled from its code: the derivative of its equations is the transpose of a procedure's."""

    def doses(t: Any, y: Any, p: Any) -> Any:
        if t < 0.5:
            return -p * y
        return -2 * p * y

    def left(p: Any) -> Any:
        options = {"method": method, "rtol": 1e-6, "atol": 1e-8}
        return solve_ivp(doses, (0, 1), [1.0, 2.0], args=(p,), **options).y[1, -1]

    np.testing.assert_allclose(gt.grad(left)(1.0), -3 * np.exp(-1.5), rtol=1e-4)


def test_the_right_hand_side_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Each evaluation for a state prints, and those of Jacobians print nothing."""

    def fun(t: Any, y: Any, p: Any) -> Any:
        gt.print("t = {:.2f}", t)
        return -p * y

    def end(p: Any) -> Any:
        options = {"method": "BDF", "first_step": 0.5, "max_step": 0.5, "rtol": 0.1, "atol": 0.1}
        return solve_ivp(fun, (0, 1), [1.0], args=(p,), **options).y[0, -1]

    gt.jit(end)(0.1)
    found = capsys.readouterr().out.splitlines()
    assert found[0] == "t = 0.00" and {*found[1:]} == {"t = 0.50", "t = 1.00"}


def rotating(t: Any, y: Any, k: Any) -> Any:
    """Stiff and complex; not analytic."""
    return np.array([[5j - 2, 1], [0.5j, -30]]) @ y * k + np.exp(1j * t) - 0.1 * y * np.abs(y) ** 2


def test_complex_states() -> None:
    options: dict[str, Any] = {"method": "BDF", "rtol": 1e-7, "atol": 1e-9}

    def end(k: Any, y0: Any) -> Any:
        return solve_ivp(rotating, (0, 1), y0, t_eval=[1.0], args=(k,), **options).y[:, 0]

    y0 = np.array([1 + 0.5j, 0.3 - 1j])
    np.testing.assert_allclose(gt.jit(end)(1.1, y0), end(1.1, y0), rtol=1e-7)

    def size(k: Any, y0: Any) -> Any:
        return np.sum(np.abs(end(k, y0)))

    found = gt.jit(gt.grad(size, argnums=(0, 1)))(1.1, y0)
    step = 1e-4
    moves = [(step, 0), (0, np.array([step, 0])), (0, np.array([0, 1j * step]))]
    slopes = [(size(1.1 + k, y0 + y) - size(1.1 - k, y0 - y)) / (2 * step) for k, y in moves]
    np.testing.assert_allclose([found[0], found[1][0].real, found[1][1].imag], slopes, rtol=1e-3)


@pytest.mark.parametrize("given", [False, True])
def test_complex_states_with_a_sparse_jacobian(given: bool) -> None:
    n = 16
    second = diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    options = {"jac_sparsity": second} if given else {}

    def fun(t: Any, y: Any, k: Any) -> Any:
        return 1j * k * np.concatenate([y[1:2] - y[:1], y[2:] - 2 * y[1:-1] + y[:-2], y[-2:-1] - y[-1:]])

    def end(k: Any, **options: Any) -> Any:
        y0 = np.exp(-((np.arange(n) - 8) ** 2) / 4) + 0j
        return solve_ivp(fun, (0, 1), y0, "BDF", [1.0], args=(k,), rtol=1e-6, **options).y[:, 0]

    value, change = gt.jit(lambda k: gt.jvp(lambda k: end(k, **options), (k,), (1.0,)))(1.3)
    np.testing.assert_allclose(value, end(1.3), rtol=1e-7)
    step = 1e-4
    np.testing.assert_allclose(change, (end(1.3 + step) - end(1.3 - step)) / (2 * step), rtol=1e-2, atol=1e-4)
