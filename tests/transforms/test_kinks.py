"""One program has one derivative at a kink, whatever the way: recorded, translated, on a tape, compiled, mapped, forward or in reverse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradtape as gt

SLOPES = {
    "sqrt": np.sqrt,
    "log": np.log,
    "reciprocal": lambda t: 1.0 / t,
    "power": lambda t: t**0.5,
    "cbrt": np.cbrt,
    "arctanh": lambda t: np.arctanh(1.0 - t),
    "arcsin": lambda t: np.arcsin(1.0 - t),
    "xlogx": lambda t: t * np.log(t),
    "sqrt of square": lambda t: np.sqrt(t * t),
}
"""Functions of numbers from 0 on whose slope at 0 is infinite or NaN."""

SELECTIONS = {
    "maximum": lambda x: np.maximum(x, 0.0),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "clip": lambda x: np.clip(x, 0.0, 4.0),
    "minimum": lambda x: -np.minimum(-x, 0.0),
}
"""Selections that do not take negative numbers, but 0."""


def points(count):
    """Return arguments below the kinks of `SELECTIONS` and above them."""
    return np.resize([-1.0, 0.5, -2.0, 2.0, 3.0], count)


def stored(x):
    y = np.sqrt(x)
    y[0] = 5.0
    return y


def stored_in_parts(x):
    y = np.zeros(len(x))
    half = len(x) // 2
    y[:half] = np.log(x[:half])
    y[half:] = np.log(x[half:])
    return np.where(x > 0, y, 0.0)


def loop_of_logs(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.log(x[i])
    return np.where(x > 0, y, 0.0)


def loop_with_branch(x):
    total = 0.0
    for i in range(len(x)):
        if x[i] > 0.0:
            total += np.sqrt(x[i])
    return total


def loop_of_maxima(x):
    total = 0.0
    for i in range(len(x)):
        total += np.sqrt(np.maximum(x[i] - 0.5, 0.0))
    return total


def padded(x):
    y = np.zeros(len(x) + 2)
    y[1:-1] = x * x + 1.0
    return np.sqrt(y)


AT_ZERO = {
    "stored": (stored, 0.0),
    "stored in parts": (stored_in_parts, 0.0),
    "loop of logs": (loop_of_logs, 0.0),
    "loop with a branch": (loop_with_branch, 0.0),
    "loop of maxima": (loop_of_maxima, 0.0),
    "rest of roots": (lambda x: np.sqrt(x)[1:], 0.0),
    "gathered roots": (lambda x: np.sqrt(x)[np.arange(1, len(x))], 0.0),
    "zeros joined": (lambda x: np.sqrt(np.concatenate([np.zeros(2), x[1:]])), 0.0),
    "zeros around": (padded, 0.0),
    "running sum of a selection": (lambda x: np.cumsum(np.where(x > 0, np.sqrt(x), 0.0)), 0.0),
    "product with a selection": (lambda x: np.where(x > 0, np.log(x), 0.0) @ np.ones((len(x), 2)), 0.0),
}
"""Programs whose first argument is 0 at a slope that is not selected, or not read, and the derivative there."""


def ways(function, x):
    """Return the gradient of the sum of a function by each way."""

    def total(x):
        return np.sum(function(x))

    ones = np.eye(len(x))

    def on_a_tape():
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = np.sum(function(watched))
        return tape.gradient(y, watched)

    def forward():
        return [gt.jvp(total, (x,), (direction,))[1] for direction in ones[:3]]

    computed = {"tape": on_a_tape()}
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            computed[f"reverse, {loops}"] = gt.grad(total)(x)
            computed[f"jitted, {loops}"] = gt.jit(gt.grad(total))(x)
            computed[f"forward, {loops}"] = forward()
            computed[f"jacobian, {loops}"] = gt.jacobian(lambda x: total(x) * np.ones(len(x) + 1))(x)[0]
            if function is not loop_with_branch:  # elements need not agree in a branch
                computed[f"mapped, {loops}"] = gt.vmap(gt.grad(total))(np.stack([x, x]))[1]
    return computed


def disagreements(computed, expected):
    """Return what differs from the expected values, one line for each way."""
    lines = []
    for way, value in computed.items():
        value = np.asarray(value)
        wanted = expected[: len(value)]
        if not np.allclose(value, wanted, rtol=1e-9, atol=1e-12, equal_nan=True):
            lines.append(f"{way}: {value.tolist()}, expected {wanted.tolist()}")
    return lines


@pytest.fixture(autouse=True)
def quiet():
    """Ignore warnings of NumPy's about the values."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def counts(exhaustive, default):
    """Return the numbers of elements to run with."""
    return (1, 2, 3, 10, 100, 300) if exhaustive else default


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("slope", SLOPES)
def test_a_selection_before_an_infinite_slope(slope, selection, exhaustive):
    def function(x):
        return SLOPES[slope](SELECTIONS[selection](x))

    failures = []
    for count in counts(exhaustive, (3,) if selection == "maximum" else ()):
        x = points(count)
        slopes = [gt.grad(SLOPES[slope])(v) if v > 0 else 0.0 for v in x]
        failures += [f"{count}: {line}" for line in disagreements(ways(function, x), np.array(slopes))]
    x = points(2)  # both modes at least, for each pair
    total = gt.grad(lambda x: np.sum(function(x)))(x)[0], gt.jvp(function, (x,), (np.ones(2),))[1][0]
    if total != (0.0, 0.0):
        failures.append(f"reverse and forward: {total}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", AT_ZERO)
def test_what_is_not_selected_or_not_read_has_the_derivative_zero(name, exhaustive):
    function, expected = AT_ZERO[name]
    failures = []
    for count in counts(exhaustive, (3,)):
        x = np.arange(float(count))
        computed = {way: np.asarray(value) for way, value in ways(function, x).items()}
        first = {way: value[:1] for way, value in computed.items()}
        failures += [f"{count}: {line}" for line in disagreements(first, np.array([expected]))]
        rest = computed.pop("reverse, compile")
        failures += [f"{count}: {line}" for line in disagreements(computed, rest)]
    assert not failures, "\n".join(failures)


def neighbours(x):
    return np.sqrt(x[:-1]) + 2.0 * np.sqrt(x[1:])


def loop_of_roots(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.sqrt(np.maximum(x[i], 0.0))
    return y


ROOTS = {
    "roots": np.sqrt,
    "loop of roots": loop_of_roots,
    "neighbours": neighbours,
    "permuted": lambda x: np.sqrt(x.reshape(-1, 1)).T.sum(axis=0),
    "repeated": lambda x: (np.sqrt(x)[:, None] * np.array([1.0, 2.0])).ravel(),
    "running sum": lambda x: np.cumsum(np.sqrt(x)),
    "product with a matrix": lambda x: np.arange(1.0, 10.0).reshape(3, 3) @ np.sqrt(x),
    "lengths of rows": lambda x: np.sqrt(np.sum((x[:, None] - x) ** 2, axis=1) * np.array([0.0, 1.0, 1.0])),
    "divided by a sum": lambda x: np.arange(1.0, 4.0) / np.sqrt(x) / np.sum(x),
}
"""Functions with infinite slopes at 0."""


def jacobians(function, x):
    """Return the Jacobian of a function by each way: by seeds that are unit vectors."""
    rows, columns = np.eye(len(function(x))), np.eye(len(x))
    computed = {
        "jacfwd": gt.jacfwd(function)(x),
        "jacrev": gt.jacrev(function)(x),
        "jitted jacfwd": gt.jit(gt.jacfwd(function))(x),
        "jitted jacrev": gt.jit(gt.jacrev(function))(x),
        "mapped jacfwd": gt.vmap(gt.jacfwd(function))(np.stack([x, x]))[1],
        "chunks of columns": gt.jacfwd(function, chunk_size=2)(x),
        "chunks of rows": gt.jacrev(function, chunk_size=2)(x),
        "jvp": np.stack([gt.jvp(function, (x,), (column,))[1] for column in columns], axis=1),
        "vjp": np.stack([gt.vjp(function, x)[1](row)[0] for row in rows]),
    }
    with gt.GradientTape(persistent=True) as tape:
        watched = tape.watch(x)
        y = function(watched)
    computed["tape"] = tape.jacobian(y, watched)
    computed["tape, row by row"] = tape.jacobian(y, watched, experimental_use_pfor=False)
    computed["weights on a tape"] = np.stack(
        [tape.gradient(y, watched, output_gradients=row) for row in rows]
    )
    start, tangents = gt.constant(x), []
    for column in columns:
        with gt.ForwardAccumulator(start, column) as accumulator:
            tangents.append(accumulator.jvp(function(start)))
    computed["accumulator"] = np.stack(tangents, axis=1)
    with gt.GradientTape() as tape:
        watched = tape.watch(np.stack([x, x]))
        y = np.stack([function(watched[0]), function(watched[1])])
    computed["batch_jacobian"] = tape.batch_jacobian(y, watched)[1]
    return computed


@pytest.mark.parametrize("name", ROOTS)
def test_zeros_of_unit_vectors_are_zeros_by_selection(name):
    function, x = ROOTS[name], np.array([0.0, 4.0, 9.0])
    with gt.config.override(loops="trace"):
        one_by_one = [gt.grad(lambda x, k=k: function(x)[k])(x) for k in range(len(function(x)))]
        failures = disagreements(jacobians(function, x), np.stack(one_by_one))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("name", ["loop of maxima", "roots"])
def test_columns_of_hessians_at_infinite_curvature(name, loops):
    function = {"loop of maxima": loop_of_maxima, "roots": lambda x: np.sum(np.sqrt(x - 0.5))}[name]
    x = np.array([0.5, 1.5, 4.5])
    with gt.config.override(loops=loops):
        hessian = gt.hessian(function)(x)
        forward = gt.jacfwd(gt.grad(function))(x)
    expected = np.diag([-np.inf, -0.25, -0.03125])
    np.testing.assert_array_equal(hessian, expected)
    np.testing.assert_array_equal(forward, expected)


def test_seeds_are_masked_in_front_of_reductions_and_what_is_behind_them():
    function, x = lambda x: np.max(x) * np.sum(x * np.array([1.0, 1.1, 1.2])), np.zeros(3)
    expected = [[2 / 3, 0.7, 2.2 / 3], [0.7, 2.2 / 3, 2.3 / 3], [2.2 / 3, 2.3 / 3, 0.8]]
    with gt.config.override(loops="trace"):
        for hessian in (
            gt.hessian(function)(x),
            gt.jacfwd(gt.grad(function))(x),
            gt.jacrev(gt.grad(function))(x),
        ):
            np.testing.assert_allclose(hessian, expected, rtol=1e-12)
        lengths = gt.jacfwd(lambda x: np.sqrt(np.sum(x * x)) / np.prod(x + 1.0) * x)(x + [1.0, 0.0, 2.0])
        rows = gt.jacrev(lambda x: np.sqrt(np.sum(x * x)) / np.prod(x + 1.0) * x)(x + [1.0, 0.0, 2.0])
        np.testing.assert_allclose(lengths, rows, rtol=1e-12)


def test_sparse_jacobians_by_colours_have_zeros_by_selection():
    x = np.arange(8.0)
    found = gt.sparse_jacobian(neighbours)(x).toarray()
    np.testing.assert_array_equal(found, gt.jacrev(neighbours)(x))
    assert np.isinf(found[0, 0]) and not np.isnan(found).any()


@pytest.mark.parametrize("product", ["jvp", "vjp"])
def test_the_derivative_in_a_seed_that_is_zero_for_once(product):
    x, zeros = np.array([1.0, 4.0]), np.zeros(2)
    expected = np.diag([-0.5, -0.0625])

    def function(x):
        return np.sqrt(x) / x

    def of_seed(v):
        return gt.jvp(function, (x,), (v,))[1] if product == "jvp" else gt.vjp(function, x)[1](v)[0]

    def summed(carry, _):
        return carry + of_seed(carry), None

    computed = {
        "forward": gt.jacfwd(of_seed)(zeros),
        "reverse": gt.jacrev(of_seed)(zeros),
        "jitted": gt.jit(gt.jacrev(of_seed))(zeros),
        "of a jitted function": gt.jacrev(gt.jit(of_seed))(zeros),
        "in a loop": gt.jacrev(lambda v: gt.scan(summed, v, None, length=1)[0])(zeros) - np.eye(2),
        "gradients": np.diag(gt.jit(lambda v: gt.gradients(of_seed(v), v)[0])(zeros)),
        "checkpoint": gt.jacrev(gt.checkpoint(of_seed))(zeros),
    }
    for times in range(3):  # later records are taken from the gradient cache
        with gt.GradientTape() as outer:
            v = outer.watch(zeros)
            with gt.GradientTape() as tape:
                watched = tape.watch(x)
                y = function(watched)
            slope = tape.gradient(y, watched, output_gradients=v)
        computed[f"weights on a tape, {times}"] = outer.jacobian(slope, v)
    failures = disagreements(computed, expected)
    assert not failures, "\n".join(failures)


def the_norm(x):
    return np.linalg.norm(x)


def norm_times_itself(x):
    norm = np.linalg.norm(x)
    return norm * norm


EYE = np.eye(2)
CANCELLING = {
    "norm squared": (lambda x: the_norm(x) ** 2, 2.0 * EYE),
    "half of it": (lambda x: 0.5 * the_norm(x) ** 2, EYE),
    "norm times itself": (norm_times_itself, 2.0 * EYE),
    "square of abs": (lambda x: np.sum(np.square(np.abs(x))), 2.0 * EYE),
    "fabs times fabs": (lambda x: np.sum(np.fabs(x) * np.fabs(x)), 2.0 * EYE),
    "hypot": (lambda x: np.hypot(x[0], x[1]) ** 2, 2.0 * EYE),
    "complex abs": (lambda x: np.abs(x[0] + 1j * x[1]) ** 2, 2.0 * EYE),
    "rows": (lambda x: np.sum(np.linalg.norm(np.stack([x, x]), axis=1)[:, None] ** 2), 4.0 * EYE),
    "std": (lambda x: np.std(x) ** 2, 0.5 * EYE - 0.25 * 2 * (1 - EYE)),
    "loop": (lambda x: sum(np.abs(x[i]) ** 2 for i in range(2)), 2.0 * EYE),
}
"""Functions of two numbers that square away a kink at zero, and their second derivatives there."""


@pytest.mark.parametrize("name", CANCELLING)
def test_the_second_derivative_of_what_squares_away_a_kink(name):
    function, expected = CANCELLING[name]
    x, computed = np.zeros(2), {}
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            computed[f"hessian, {loops}"] = gt.hessian(function)(x)
            computed[f"reverse twice, {loops}"] = [
                gt.grad(lambda x, row=row: gt.grad(function)(x) @ row)(x) for row in EYE
            ]
            computed[f"forward over reverse, {loops}"] = [
                gt.jvp(gt.grad(function), (x,), (row,))[1] for row in EYE
            ]
            computed[f"forward twice, {loops}"] = [
                [gt.jvp(lambda x, v=v: gt.jvp(function, (x,), (v,))[1], (x,), (w,))[1] for w in EYE]
                for v in EYE
            ]
    failures = disagreements(computed, expected)
    assert not failures, "\n".join(failures)


def test_the_derivative_in_the_operand_of_the_square_is_that_of_a_square():
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([3.0, 4.0]))
        length = np.linalg.norm(x)
        y = length**2
    of_length, of_x = tape.gradient(y, [length, x])
    assert of_length == 10.0
    np.testing.assert_allclose(of_x, [6.0, 8.0])


@pytest.mark.parametrize(
    ("name", "order", "slope", "curvature"),
    [
        ("spherical_jn", 0, 0.0, -1 / 3),
        ("spherical_jn", 1, 1 / 3, 0.0),
        ("spherical_in", 0, 0.0, 1 / 3),
        ("spherical_in", 1, 1 / 3, 0.0),
    ],
)
def test_spherical_bessel_functions_are_smooth_at_zero(name, order, slope, curvature):
    special = pytest.importorskip("scipy.special")

    def function(t):
        return getattr(special, name)(order, t)

    assert gt.grad(function)(0.0) == pytest.approx(slope)
    assert gt.jvp(function, (0.0,), (1.0,))[1] == pytest.approx(slope)
    assert gt.grad(gt.grad(function))(0.0) == pytest.approx(curvature)


def test_a_tangent_that_vanishes_for_once_has_derivatives():
    def function(x):
        total = 0.0
        for i in range(len(x)):
            y = x[i] * x[i]
            total += np.exp(y)
        return total

    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            second = gt.jvp(lambda x: gt.jvp(function, (x,), (np.ones(1),))[1], (np.zeros(1),), (np.ones(1),))
            assert second[1] == 2.0


def roll_of_logs(x):
    return np.roll(np.log(x), 1) * x


def products_of_logs(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.log(x[i]) * x[i - 1] * x[i - 2]
    return y


def carried_logs(x):
    total, y = 0.0, np.zeros(len(x))
    for i in range(len(x)):
        total = total + np.log(x[i])
        y[i] = total * x[len(x) - 1 - i]
    return y


def stored_quotients(x):
    y = np.zeros((len(x), 2))
    y[:, 0] = 1.0 / x
    y[1:, 1] = y[:-1, 0]
    return y[:, 1] * x[::-1]


INFINITE_FACTORS = {
    "roll of logs": roll_of_logs,
    "products of logs": products_of_logs,
    "carried logs": carried_logs,
    "stored quotients": stored_quotients,
    "padded": lambda x: np.pad(x**-0.5, (1, 0))[1:] * x[::-1],
    "joined": lambda x: np.concatenate([np.log(x)[1:], np.log(x)[:1]]) * x,
    "transposed": lambda x: (np.log(x)[:, None] * np.ones(len(x))).T[1] * x[::-1],
    "cumsum": lambda x: np.cumsum(np.log(x)) * x[::-1],
}
"""Functions whose products have a factor that is infinite where the argument is 0, and that comes from memory in compiled code."""


@pytest.mark.parametrize("name", INFINITE_FACTORS)
def test_a_zero_times_an_infinite_factor_from_memory_is_zero_by_selection(name):
    function, x = INFINITE_FACTORS[name], np.array([0.0, 4.0, 0.0, 1.0])
    with gt.config.override(loops="trace"):
        expected = gt.jacfwd(function)(x)
        failures = disagreements({"reverse, trace": gt.jacrev(function)(x)}, expected)
    with gt.config.override(loops="compile"):
        failures += disagreements({"forward, compile": gt.jacfwd(function)(x)}, expected)
        backward = gt.jacrev(function)(x)
    # In reverse mode the cotangent 0 * 1 of a product counts as zero by selection (ADR 104), also of paths that make NaN of a sum.
    backward = np.where(np.isnan(expected), np.nan, backward)
    failures += disagreements({"reverse, compile": backward}, expected)
    assert np.isinf(expected).any()
    assert (expected == 0).any()
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_forward_mode_of_forward_mode_at_infinite_curvature(loops):
    special = pytest.importorskip("scipy.special")

    def function(x):
        y = np.maximum(x, 0.0)
        return np.sum(special.xlogy(y, y))

    with gt.config.override(loops=loops):
        expected = gt.jacrev(gt.grad(function))(np.zeros(3))
        twice = gt.jacfwd(gt.jacfwd(function))(np.zeros(3))
    np.testing.assert_array_equal(twice, expected)
    np.testing.assert_array_equal(twice, np.where(np.eye(3) > 0, np.inf, 0.0))


def _outside(x):
    root = np.sqrt(x)
    return np.sum(
        gt.scan(lambda c, _: (np.sin(c) + np.where(x > 0, root, 0.0), None), np.zeros(3), length=4)[0]
    )


def _after(x):
    c, _ = gt.scan(lambda c, _: (np.sin(np.sqrt(c)), None), x, length=3)
    return np.sum(np.where(x > 0, c, 0.0))


def _until(x):
    root = np.sqrt(x)
    step = lambda i, c: (i + 1, np.sin(c) * np.where(x > 0, root, 1.0))  # noqa: E731
    return np.sum(gt.while_loop(lambda i, c: i < 3, step, (0, x + 1))[1])


def _branch(x):
    root = np.sqrt(x)

    def step(c, _):
        return gt.cond(np.sum(x) > 100, lambda: np.sin(c) * root, lambda: np.sin(c)), None

    return np.sum(gt.scan(step, x + 1, length=4)[0])


def _elements(x):
    root = np.sqrt(x)
    return gt.scan(lambda c, v: (np.sin(c) + np.where(v > 0, np.sqrt(v), 0.0), None), 0.0, root)[0]


@pytest.mark.parametrize("checkpoint", [None, "sqrt", "treeverse:2"])
@pytest.mark.parametrize("f", [_outside, _after, _until, _branch, _elements])
def test_what_a_loop_does_not_select_is_zero_outside_of_it(f, checkpoint):
    """The slope of the root is infinite, at an element that the loop or what follows leaves out."""
    x = np.array([0.0, 1.0, 4.0])
    wanted = gt.jacfwd(f)(x)
    assert np.isfinite(wanted).all()
    with gt.config.override(reroll_checkpoint=checkpoint):
        for found in (gt.grad(f)(x), gt.jit(gt.grad(f))(x), gt.jacrev(f)(x)):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        with gt.GradientTape() as tape:
            v = tape.watch(x)
            y = f(v)
        np.testing.assert_allclose(tape.gradient(y, v), wanted, rtol=1e-12)


ZERO_BY_ARITHMETIC = {
    "reciprocal of a square": lambda v: 1 / (v * v),
    "root of a square": lambda v: np.sqrt(v * v),
    "product with a root": lambda v: v * np.sqrt(v),
    "product with a logarithm": lambda v: v * np.log(v),
    "exponential of a reciprocal": lambda v: np.exp(-1 / (v * v)),
    "root of a difference": lambda v: np.sqrt(1 - np.cos(v)),
    "power of a square": lambda v: (v * v) ** 0.75,
    "root of a maximum": lambda v: np.sqrt(2 * np.maximum(v, 0.0)),
    "root of a selection": lambda v: np.sqrt(np.where(v >= 0, v * v, v + 1)),
    "selection of a logarithm": lambda v: np.where(v > 0, np.log(v * v), 0.0),
    "two paths": lambda v: np.sqrt(v * v + 2 * v),
}


@pytest.mark.parametrize("name", ZERO_BY_ARITHMETIC)
@pytest.mark.parametrize("size", [1, 3, 30])
def test_what_is_zero_by_arithmetic_is_multiplied_in_procedures_as_in_graphs(name, size):
    element = ZERO_BY_ARITHMETIC[name]

    def each(x):
        y = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            y[i] = element(x[i])
        return y

    def total(x):
        return np.sum(each(x))

    def slopes(x):
        return gt.jvp(each, (x,), (np.ones(size),))[1]

    x = np.resize([0.0, 2.0, -1.0], size)
    derivatives = {
        "forward": gt.jacfwd(each),
        "reverse": gt.jacrev(each),
        "forward over reverse": lambda x: np.diag(gt.jacfwd(gt.grad(total))(x)),
        "reverse over reverse": lambda x: np.diag(gt.jacrev(gt.grad(total))(x)),
        "forward over forward": lambda x: np.diag(gt.jacfwd(slopes)(x)),
        "along a direction": slopes,
    }
    with np.errstate(all="ignore"):
        for way, derivative in derivatives.items():
            with gt.config.override(loops="trace"):
                traced = derivative(x)
            with gt.config.override(loops="compile"):
                compiled = derivative(x)
            np.testing.assert_allclose(compiled, traced, rtol=1e-9, atol=1e-12, err_msg=way)


@pytest.mark.parametrize("name", ZERO_BY_ARITHMETIC)
@pytest.mark.parametrize("size", [2, 30])
def test_second_derivatives_of_procedures_have_zeros_beside_the_diagonal(name, size):
    element = ZERO_BY_ARITHMETIC[name]

    def total(x):
        y = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            y[i] = element(x[i])
        return np.sum(y)

    x = np.resize([0.0, 2.0, -1.0], size)
    wanted, actual = [], []
    with np.errstate(all="ignore"):
        for loops, results in (("trace", wanted), ("compile", actual)):
            with gt.config.override(loops=loops):
                results.append(gt.jacfwd(gt.jacfwd(total))(x))
    np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["exponential of a reciprocal", "product with a root", "root of a square"])
def test_second_derivatives_of_procedures_are_linear_in_directions_that_are_zero(name):
    element = ZERO_BY_ARITHMETIC[name]

    def each(x):
        y = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            y[i] = element(x[i])
        return y

    def second(v, w):
        def first(x):
            return gt.jvp(each, (x,), (v,))[1]

        return gt.jvp(first, (np.array([0.5, 2.0, 0.7]),), (w,))[1]

    v, w = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    for argument in (0, 1):
        with gt.config.override(loops="trace"):
            wanted = gt.jacfwd(second, argument)(v, w)
        with gt.config.override(loops="compile"):
            np.testing.assert_allclose(gt.jacfwd(second, argument)(v, w), wanted, rtol=1e-9, atol=1e-12)
