"""Functions that gradtape calls again for their derivatives: what they assign is assigned once."""

import tracemalloc

import numpy as np
import pytest

import gradtape as gt

X = np.array([0.1, 0.2, 0.3])


def doubled(count):
    def function(x):
        count.assign_add(1.0)
        return 2.0 * x

    return function


def with_gradient(count):
    def function(x):
        count.assign_add(1.0)
        return 2.0 * x, lambda upstream: 2.0 * upstream

    return gt.custom_gradient(function)


def with_reverse_rule(count):
    f = gt.custom_vjp(doubled(count))
    f.defvjp(lambda x: (f(x), x), lambda residuals, cotangent: (2.0 * cotangent,))
    return f


def with_forward_rule(count):
    f = gt.custom_jvp(doubled(count))
    f.defjvp(lambda primals, tangents: (f(*primals), 2.0 * tangents[0]))
    return f


KINDS = {
    "plain": doubled,
    "gradient": with_gradient,
    "reverse": with_reverse_rule,
    "forward": with_forward_rule,
    "recomputed": lambda count: gt.recompute_grad(doubled(count)),
}


def on_tape(f):
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = np.sum(f(x))
    return tape.gradient(y, x)


def in_scan(f):
    return gt.grad(lambda x: np.sum(gt.scan(lambda carry, _: (f(carry), None), x, None, length=3)[0]))(X)


def in_while_loop(f):
    def loop(x):
        return np.sum(gt.while_loop(lambda x, i: i < 3, lambda x, i: (f(x), i + 1), (x, 0))[0])

    return gt.grad(loop)(X)


USES = {
    "call": (lambda f: f(X), 1, None),
    "tape": (on_tape, 1, 2.0),
    "grad": (lambda f: gt.grad(lambda x: np.sum(f(x)))(X), 1, 2.0),
    "compiled": (lambda f: gt.jit(gt.grad(lambda x: np.sum(f(x))))(X), 1, 2.0),
    "second": (lambda f: gt.hessian(lambda x: np.sum(f(x)))(X), 1, 0.0),
    "forward": (lambda f: gt.jvp(f, (X,), (np.ones(3),))[1], 1, 2.0),
    "rows": (lambda f: np.diag(gt.jacobian(f)(X)), 1, 2.0),
    "branch": (lambda f: gt.grad(lambda x: np.sum(gt.cond(x[0] > 0, f, lambda x: x, x)))(X), 1, 2.0),
    "scan": (in_scan, 3, 8.0),
    "while": (in_while_loop, 3, 8.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
def test_each_call_counts_once(use, kind):
    run, calls, slope = USES[use]
    count = gt.Variable(0.0, trainable=False)
    found = run(KINDS[kind](count))
    assert float(count) == calls
    if slope is not None:
        np.testing.assert_allclose(found, slope)


@pytest.mark.parametrize("wrap", [lambda f: f, gt.recompute_grad], ids=["plain", "recomputed"])
@pytest.mark.parametrize("compiled", [False, True])
def test_running_statistics(wrap, compiled):
    mean, w = gt.Variable(np.zeros(3), trainable=False), gt.Variable(0.2)

    @wrap
    def normalised(w, state, x):
        state["mean"].assign(state["mean"] + x)
        return np.sum(np.tanh(w * x + 0.1 * state["mean"]))

    def step(x):
        with gt.GradientTape() as tape:
            y = normalised(w, {"mean": mean}, x)
        return tape.gradient(y, w)

    run = gt.jit(step) if compiled else step
    x, total = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    for _ in range(3):
        total = total + x
        slope = run(x)
        np.testing.assert_allclose(slope, np.sum(x / np.cosh(0.2 * x + 0.1 * total) ** 2), rtol=1e-12)
        np.testing.assert_array_equal(mean, total)


def test_variables_stay_variables_in_recomputed_functions():
    w, v = gt.Variable(2.0), gt.Variable(np.ones(3))
    seen = []

    @gt.recompute_grad
    def f(parameters, x):
        seen.append(parameters["w"])
        return parameters["w"] ** 2 * np.sum(parameters["v"] * x)

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f({"w": w, "v": v}, x)
    w.assign(100.0)
    gradients = tape.gradient(y, {"w": w, "v": v, "x": x})
    assert seen == [w, w]
    np.testing.assert_allclose(gradients["w"], 4 * 0.6)
    np.testing.assert_allclose(gradients["v"], 4 * X)
    np.testing.assert_allclose(gradients["x"], 4 * np.ones(3))
    w.assign(2.0)
    with gt.ForwardAccumulator(w, 1.0) as accumulator:
        y = f({"w": w, "v": v}, X)
    np.testing.assert_allclose(accumulator.jvp(y), 4 * 0.6)


def test_a_gradient_function_may_count():
    count = gt.Variable(0.0, trainable=False)

    @gt.custom_gradient
    def counted(x):
        def grad_fn(upstream):
            count.assign_add(1.0)
            return upstream

        return x, grad_fn

    on_tape(counted)
    assert float(count) == 1.0


def test_rows_that_are_changed_again_are_changed_once():
    table = gt.Variable(np.zeros((3, 2)), trainable=False)

    @gt.recompute_grad
    def f(x):
        table.scatter_add(gt.IndexedSlices(np.ones((1, 2)), [1]))
        return np.sum(x * table[1, 0])

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x), [1, 1, 1])
    np.testing.assert_array_equal(table, [[0, 0], [1, 1], [0, 0]])


# What was read at the call counts, whatever is assigned before the gradient is taken.


def reading_gradient(w):
    @gt.custom_gradient
    def f(x):
        read = w.value()

        def grad_fn(upstream, variables=()):
            return (upstream * read, [np.sum(upstream * x)]) if variables else upstream * read

        return x * read, grad_fn

    return f


def reading_reverse_rule(w):
    f = gt.custom_vjp(lambda x: x * w)
    f.defvjp(lambda x: (x * w, w.value()), lambda read, cotangent: (read * cotangent,))
    return f


def reading_forward_rule(w):
    f = gt.custom_jvp(lambda x: x * w)
    f.defjvp(lambda primals, tangents: (primals[0] * w, w * tangents[0]))
    return f


READERS = {
    "gradient": reading_gradient,
    "reverse": reading_reverse_rule,
    "forward": reading_forward_rule,
    "recomputed": lambda w: gt.recompute_grad(lambda x: x * w),
}


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("kind", READERS)
def test_derivatives_are_about_the_contents_at_the_call(kind, trainable):
    w = gt.Variable(2.0, trainable=trainable)
    f = READERS[kind](w)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = f(x)
    w.assign(100.0)
    np.testing.assert_allclose(tape.gradient(y, x), [2, 2, 2])
    np.testing.assert_allclose(np.diag(tape.jacobian(y, x)), [2, 2, 2])
    assert float(w) == 100.0

    @gt.jit
    def inside(x):
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        w.assign(7.0)
        return tape.gradient(y, x)

    np.testing.assert_allclose(inside(X), [100, 100, 100])
    np.testing.assert_allclose(inside(X), [7, 7, 7])


def test_large_variables_are_not_copied_to_be_found_again():
    w = gt.Variable(np.ones(500_000))
    f = gt.recompute_grad(lambda x: np.sum(x * w[:2]))

    def work(later):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(2)))
            y = f(x)
        w.assign(later)
        return tape.gradient(y, x).numpy()

    work(np.full(500_000, 2.0))
    work(np.full(500_000, 3.0))
    later = np.full(500_000, 4.0)
    tracemalloc.start()
    found = work(later)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, [3, 3])
    assert peak < 1.5 * w.nbytes  # what is assigned is copied once
