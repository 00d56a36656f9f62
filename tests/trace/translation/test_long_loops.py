"""Python loops that go on for long, under each transform: the run is given up, and the code is compiled."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import next_serial
from gradtape.trace.translation import mode

MANY = 20_000
FACTOR = np.array([1.0, 2.0, 3.0])


def decay(x):
    y = np.zeros(3)
    for _ in range(MANY):
        y = 0.5 * y + np.sin(x)
    return y


def run_once(call):
    """Return what a call returns, and how many operations it recorded."""
    before = next_serial()
    return call(), next_serial() - before


X = np.array([0.1, 0.2, 0.3])
SLOPE = 2.0 * np.cos(X)
TRANSFORMS = {
    "vjp": lambda f: gt.vjp(f, X)[1](np.ones(3))[0],
    "jvp": lambda f: gt.jvp(f, (X,), (np.ones(3),))[1],
    "linearize": lambda f: gt.linearize(f, X)[1](np.ones(3)),
    "jacobian": lambda f: np.diag(gt.jacobian(f)(X)),
    "jacfwd": lambda f: np.diag(gt.jacfwd(f)(X)),
    "grad": lambda f: gt.grad(lambda x: np.sum(f(x)))(X),
    "hessian": lambda f: -np.diag(gt.hessian(lambda x: np.sum(f(x)))(X)) / np.tan(X),
    "hvp": lambda f: -gt.hvp(lambda x: np.sum(f(x)), (X,), (np.ones(3),)) / np.tan(X),
    "vmap": lambda f: gt.vmap(gt.grad(lambda x: np.sum(f(x))))(np.stack([X, X]))[1],
    "a jitted function on a tape": lambda f: slope_on_a_tape(gt.jit(f)),
    "vectorized_map": lambda f: np.sqrt(4.0 - gt.vectorized_map(f, np.stack([X, X]))[0] ** 2),
}


def slope_on_a_tape(f):
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = np.sum(f(x))
    return tape.gradient(y, x)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_run_is_given_up_and_the_code_compiled(name):
    result, operations = run_once(lambda: TRANSFORMS[name](decay))
    assert np.allclose(result, SLOPE)
    assert operations < MANY  # of 3 * MANY that the loop has
    mode._long_running.pop(decay.__code__, None)


def test_check_grads_is_quick():
    _, operations = run_once(lambda: gt.check_grads(decay, (X,)))
    assert operations < MANY


def test_it_is_remembered():
    for factor in (1.0, 2.0, 3.0):  # the second call makes the program of both
        result, operations = run_once(lambda factor=factor: gt.jvp(decay, (factor * X,), (np.ones(3),))[1])
        assert np.allclose(result, 2.0 * np.cos(factor * X))
    assert operations < 500


def test_what_cannot_be_translated_runs_to_its_end_once():
    seen = []

    def function(x):
        y = 0.0
        for k in range(5_000):
            seen.append(k)
            y = 0.5 * y + np.sin(x)
        return y

    assert np.isclose(gt.vjp(function, 0.7)[1](1.0)[0], 2.0 * np.cos(0.7))
    assert seen == list(range(5_000))


def smooth(x):
    for _ in range(600):
        for i in range(1, 4):
            x[i] = 0.5 * x[i] + 0.5 * np.sin(x[i - 1])
    return x


def test_arguments_that_a_run_has_written_to_are_restored():
    start = np.array([0.1, 0.2, 0.3, 0.4])
    expected = smooth(start.copy())
    value, pull = gt.vjp(smooth, start)
    assert np.allclose(value, expected) and np.array_equal(start, [0.1, 0.2, 0.3, 0.4])
    with gt.GradientTape() as tape:
        x = tape.watch(start)
        inner, _ = gt.vjp(smooth, x)
        y = np.sum(inner**2)
    assert np.allclose(tape.gradient(y, x), pull(2.0 * expected)[0])


def scaled(x):
    y = np.zeros(3)
    for _ in range(3_000):
        y = 0.5 * y + FACTOR * np.sin(x)
    return y


def test_what_is_read_from_outside_may_change(monkeypatch):
    def slope():
        return gt.jvp(scaled, (X,), (np.ones(3),))[1]

    assert np.allclose(slope(), FACTOR * SLOPE)
    monkeypatch.setattr(f"{__name__}.FACTOR", FACTOR * 2.0)
    assert np.allclose(slope(), FACTOR * SLOPE)
    FACTOR[0] = -1.0
    assert np.allclose(slope(), FACTOR * SLOPE)
    monkeypatch.setattr(f"{__name__}.FACTOR", [2.0, 3.0, 4.0])
    assert np.allclose(slope(), FACTOR * SLOPE)
    FACTOR[0] = 5.0
    assert np.allclose(slope(), FACTOR * SLOPE)


def test_a_loop_around_a_transform_does_not_count():
    lines = ["def straight(x):", "    y = x", *["    y = y + np.sin(x)"] * 2_500, "    return y"]
    space = {"np": np}
    exec(compile("\n".join(lines), __file__, "exec"), space)
    straight = space["straight"]
    for x in (1.0, 2.0):
        value, slope = gt.jvp(straight, (x,), (1.0,))
        assert np.isclose(value, x + 2_500 * np.sin(x)) and np.isclose(slope, 1.0 + 2_500 * np.cos(x))
    assert straight.__code__ not in mode._long_running


def diffuse(u, steps=400):
    for _ in range(steps):
        inner = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2]) * (1 - 0.1 * u[1:-1])
        u = np.concatenate([u[:1], inner, u[-1:]])
    return np.sum(u * u)


def shrink(u, steps=500):
    """Compute with shorter arrays in each step, so that no two steps are alike."""
    total = 0.0
    for k in range(steps):
        u = 0.25 * u[1:] + 0.75 * u[:-1] - 0.01 * np.sin(u[1:])
        total = total + np.sum(u) + u[0] * k
    return total


@pytest.mark.parametrize("size, way", [(40_000, "400 iterations"), (50, "compiled from its code")])
def test_loops_over_large_arrays_stay_loops_of_the_graph(size, way):
    value_and_grad = gt.value_and_grad(diffuse)
    u = np.cos(np.linspace(0.0, 9.0, size)) ** 2
    value, slope = value_and_grad(u)
    assert way in str(gt.inspect.explain(value_and_grad))
    direction = np.sin(np.arange(size))
    step = 1e-6
    difference = (diffuse(u + step * direction) - diffuse(u - step * direction)) / (2 * step)
    assert value == pytest.approx(diffuse(u), rel=1e-12)
    assert slope @ direction == pytest.approx(difference, rel=1e-5, abs=1e-5)


def test_loops_over_large_arrays_that_are_no_loops_of_the_graph_are_compiled_from_their_code():
    jitted = gt.jit(shrink)
    u = np.cos(np.linspace(0.0, 9.0, 40_000)) ** 2
    assert jitted(u) == pytest.approx(shrink(u), rel=1e-12)
    assert "compiled from its code" in str(gt.inspect.explain(jitted))
