"""Arrays that NumPy makes while somebody records, and that traced numbers are written to."""

from __future__ import annotations

import copy
import cProfile
import pickle
import threading

import numpy as np
import pytest
from scipy import interpolate, optimize, sparse

import gradtape as gt
from gradtape import errors
from tests.support.differences import gradient_by_differences
from tests.support.programs.preallocated import PROGRAMS, Function, masks

X = np.array([0.7, 1.9, 2.4, 3.1])

actual_type = type
"""Calls of `type` itself have the answer of NumPy's code."""

programs = pytest.mark.parametrize("function", PROGRAMS.values(), ids=list(PROGRAMS))


def loss(function: Function) -> Function:
    def weighed(x):
        y = function(x)
        return np.sum(np.sin(y) * np.arange(1.0, y.size + 1).reshape(y.shape))

    return weighed


@programs
def test_values(function: Function) -> None:
    wanted = function(X)
    assert type(wanted) is np.ndarray
    found = gt.jit(function)(X)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    with gt.GradientTape() as tape:
        recorded = function(tape.watch(X))
    np.testing.assert_allclose(recorded.numpy(), wanted, rtol=1e-12)
    if function is not masks:  # where its second mask leads depends on values
        rows = np.stack([X, X / 2, X + 1])
        np.testing.assert_allclose(gt.vmap(function)(rows), [function(row) for row in rows], rtol=1e-12)


@programs
def test_gradients(function: Function) -> None:
    target = loss(function)
    wanted = gradient_by_differences(target, X)
    np.testing.assert_allclose(gt.grad(target)(X), wanted, atol=1e-6)
    np.testing.assert_allclose(gt.jit(gt.grad(target))(X), wanted, atol=1e-6)
    np.testing.assert_allclose(gt.grad(gt.jit(target))(X), wanted, atol=1e-6)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = target(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), wanted, atol=1e-6)
    np.testing.assert_allclose(gt.jvp(target, (X,), (np.ones(4),))[1], wanted.sum(), atol=1e-5)


@programs
def test_jacobians(function: Function) -> None:
    rows = gt.jacrev(function)(X)
    np.testing.assert_allclose(gt.jacfwd(function)(X), rows, atol=1e-12)
    wanted = np.moveaxis(gradient_by_differences(function, X), 0, -1)
    np.testing.assert_allclose(rows, wanted, atol=1e-6)


def test_a_python_loop_of_writes_becomes_a_loop() -> None:
    n = 100

    @gt.jit
    def filtered(x):
        y, state = np.zeros(n), 0.0
        for i in range(n):
            state = 0.5 * state + x[i]
            y[i] = state
        return y

    x = np.cos(np.arange(n))
    wanted, state = [], 0.0
    for number in x:
        state = 0.5 * state + number
        wanted.append(state)
    np.testing.assert_allclose(filtered(x), wanted)
    told = str(gt.inspect.explain(filtered))
    assert "loop over 99 iterations" in told
    assert "called natively" in told


def test_plain_numbers_are_not_recorded() -> None:
    @gt.jit
    def applied(x):
        a = np.zeros((50, 50))
        for i in range(50):
            a[i, i] = 2.0
            a[i, i - 1] = -1.0
        return a @ x

    applied(np.ones(50))
    assert "setitem" not in str(gt.inspect.graph(applied, np.ones(50)))
    assert str(gt.inspect.graph(applied, np.ones(50))).count("\n") < 10


# What the array is until then


def test_until_something_traced_is_written_numpy_computes() -> None:
    with gt.GradientTape():
        y = np.zeros(3)
        y[1] = 2.0
        y += 1
        results = [y + 1, 1 - y, y @ y, np.sin(y), np.sum(y), y[0], y.sum(), y.copy(), np.concatenate([y, y])]
        results += [abs(y), y == y, np.linalg.norm(y), y.astype(int), np.array(y), np.asarray(y), y.tolist()]
    assert not any(isinstance(result, gt.Array) for result in results)
    np.testing.assert_array_equal(results[0], [2.0, 4.0, 2.0])
    assert [type(result) for result in results[4:7]] == [np.float64] * 3
    assert repr(y) == "array([1., 3., 1.])"
    assert (len(y), y.dtype, y.shape, y.strides, y.flags.writeable) == (3, np.float64, (3,), (8,), True)
    assert [type(made) for made in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y)))] == [
        np.ndarray
    ] * 3


def test_as_an_index_a_condition_and_a_bound() -> None:
    data = np.arange(5.0)
    with gt.GradientTape():
        index, mask, number = np.zeros(2, int), np.ones(5, bool), np.zeros((), int)
        index[1] = 3
        mask[0] = False
        np.testing.assert_array_equal(data[index], [0.0, 3.0])
        np.testing.assert_array_equal(data[mask], [1.0, 2.0, 3.0, 4.0])
        assert [10, 20][number] == 10
        assert list(range(int(number), 2)) == [0, 1]
        assert not number
        data[index] += np.ones(2)
    np.testing.assert_array_equal(data, [1.0, 1.0, 2.0, 4.0, 4.0])


def test_as_out() -> None:
    data = np.arange(3.0)
    with gt.GradientTape() as tape:
        y = np.zeros(3)
        assert np.add(data, 1, out=y) is y
        assert np.cumsum(data, out=y) is y
        np.testing.assert_array_equal(y, [0.0, 1.0, 3.0])
        x = tape.watch(data)
        assert np.multiply(x, 2.0, out=y) is y
        z = np.sum(y)
    np.testing.assert_array_equal(tape.gradient(z, x), [2.0, 2.0, 2.0])


def test_what_no_traced_array_can_hold_stays_numpys() -> None:
    with gt.GradientTape():
        kinds = [np.zeros(2, object), np.zeros(2, "S3"), np.zeros(2, [("a", float)]), np.zeros(2, "M8[s]")]
        kinds += [np.zeros_like(np.ma.array([1.0, 2.0])), np.zeros(2, np.longdouble)]
        assert all(isinstance(made, np.ndarray) for made in kinds)
        assert np.zeros((2, 2), order="F").flags.f_contiguous
        with pytest.raises(TypeError):
            np.zeros(2, no_such=1)
        with pytest.raises(ValueError, match="negative"):
            np.zeros(-1)


def test_like_is_honoured() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        assert isinstance(np.zeros(3, like=x), gt.Array)
        assert type(np.ones(3, like=X)) is not gt.Array
        assert np.zeros(3, float, like=x).shape == (3,)


def test_gradtape_takes_it_for_an_array() -> None:
    with gt.GradientTape() as tape:
        y = np.zeros(2)
        assert gt.Variable(y).shape == gt.asarray(y).shape == gt.constant(y).shape == (2,)
        assert isinstance(tape.watch(y), gt.Array)
        assert type(gt.jit(lambda a: a * 2)(y)) is np.ndarray
        x = tape.watch(np.ones(2))
        z = x * y
        with pytest.raises(errors.ArgumentError, match="plain ndarray as a source"):
            tape.gradient(z, y)


def test_numbers_seen_by_an_ndarray_cannot_become_traced() -> None:
    @gt.jit
    def shared(x):
        y = np.zeros(4)
        seen = np.asarray(y)
        y[0] = x[0]
        return np.sum(seen)

    @gt.jit
    def passed_on(x):
        y = np.zeros(4)
        total = np.sum(np.asarray(y))
        y[0] = x[0]
        return y + total

    with pytest.raises(errors.InPlaceError, match="whose memory an ndarray shares"):
        shared(X)
    np.testing.assert_array_equal(passed_on(X), [X[0], 0, 0, 0])


def test_a_value_that_was_read_stays_as_it_was() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = np.zeros(4)
        before = x + y
        y[0] = 5.0
        between = x * y
        y[1] = x[0]
        after = x * y
    np.testing.assert_array_equal(before, X)
    np.testing.assert_array_equal(between, [5 * X[0], 0, 0, 0])
    np.testing.assert_array_equal(after, [5 * X[0], X[0] * X[1], 0, 0])


# Results


def test_types_of_results() -> None:
    def constants(x):
        y = np.zeros(2)
        y[0] = 3.0
        return y, np.ones(2), np.zeros(2)[0], x * 2

    for function in (constants, gt.jit(constants)):
        found = function(X)
        assert [type(part) for part in found[:2]] == [np.ndarray] * 2
        np.testing.assert_array_equal(found[0], [3.0, 0.0])
    jitted = gt.jit(constants)
    first = jitted(X)[0]
    first[:] = 9.0
    np.testing.assert_array_equal(jitted(X)[0], [3.0, 0.0])
    (value, extra), gradient = gt.value_and_grad(lambda x: (np.sum(x), np.zeros(2)), has_aux=True)(X)
    assert [type(part) for part in (value, extra, gradient)] == [np.float64, np.ndarray, np.ndarray]
    assert type(gt.vmap(lambda x: np.zeros(2))(X)) is np.ndarray
    assert type(gt.grad(lambda x: np.sum(x * np.zeros(4)))(X)) is np.ndarray


# NumPy's names


def test_other_threads_get_ndarrays() -> None:
    made = []

    def work() -> None:
        made.append(np.zeros(3))

    with gt.GradientTape():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert actual_type(np.zeros(3)) is not np.ndarray
    assert [actual_type(array) for array in made] == [np.ndarray]


def test_recordings_on_threads_overlap() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with gt.GradientTape():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    assert type(np.zeros(3)) is np.ndarray
    with gt.GradientTape():
        assert actual_type(np.zeros(3)) is not np.ndarray
    leave.set()
    thread.join()
    assert type(np.zeros(3)) is np.ndarray


def test_libraries_are_left_alone() -> None:
    def fitted(x):
        start = np.zeros(2)
        return optimize.minimize(lambda p: np.sum((p - np.array([1.0, 2.0])) ** 2), start).x

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        found = fitted(x)
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, [1.0, 2.0], atol=1e-5)
        assert type(optimize.root(lambda p: p - np.ones(2), np.zeros(2)).x) is np.ndarray
        assert float(interpolate.CubicSpline(np.arange(4.0), np.zeros(4))(0.5)) == 0.0
        # Compiled code has no frame of its own: the call seems to come from here.
        empty, random = np.empty(2), np.random.default_rng(0).standard_normal(3)
        assert type(random) is np.ndarray
        assert actual_type(empty) is not np.ndarray
        assert type(np.random.default_rng(0).multivariate_normal(np.zeros(2), np.eye(2))) is np.ndarray
        assert type(next(map(np.zeros, [2]))) is np.ndarray
        y = np.sum(x) * found[0]
    np.testing.assert_allclose(tape.gradient(y, x), np.full(4, found[0]))


def test_numba_knows_the_names() -> None:
    import numba  # late: it takes a second, and one test needs it

    @numba.njit
    def made(n):
        return np.zeros(n) + np.full(n, 2.0)

    with gt.GradientTape():
        np.testing.assert_array_equal(made(2), [2.0, 2.0])


def linspace_made(x):
    y = np.linspace(0.0, 1.0, 4)
    y[1:3] = x[:2] ** 2
    return y


def list_made(x):
    y = 2.0 * np.array([[1.0, 2.0], [3.0, 4.0]])
    y[0, 1] = x[0] * x[1]
    y[1] += x[2]
    return np.exp(0.1 * y)


def made_by_a_function(x):
    def grid():
        return np.arange(4.0)

    y = grid()
    for i in range(1, 4):
        y[i] = np.sin(y[i - 1]) + x[i]
    return y


def copied(x):
    y, z = DATA.copy(), np.array(DATA)
    y[-1] = x[0] * y[0]
    z[:2] -= x[:2]
    return y * z


def repeated(x):
    y, z = np.repeat([1.0, 2.0], 2), np.tile([1.0, 3.0], 2)
    y[0], z[1:3] = x[3], x[:2]
    w = np.logspace(0, 1, 4)
    w[2] *= x[1]
    return y * z + w


def matrices(x):
    noise, weights = np.diag([1.0, 2.0]), np.outer(DATA[:2], DATA[2:])
    noise[0, 0] = x[0] * x[1]
    weights[1] += x[2:]
    lower, powers = np.tril(np.ones((2, 2))), np.vander([1.0, 3.0])
    lower[1, 0] = x[3]
    powers[0, 1] -= x[0]
    blocks, flat = np.kron(np.eye(2), [[2.0]]), np.diagflat([1.0, 2.0])
    blocks[0, 1], flat[1, 0] = x[1], x[2]
    return (noise @ weights + lower @ powers + blocks * flat).ravel()


DATA = np.array([0.5, 1.5, 2.5, 3.5])


@pytest.mark.parametrize(
    "function", [linspace_made, list_made, made_by_a_function, copied, repeated, matrices]
)
def test_arrays_that_are_made_of_numbers_can_be_written_to(function: Function) -> None:
    before = DATA.copy()
    expected = function(X)
    steps = 1e-6 * np.eye(4)
    slopes = [np.sum(function(X + step) ** 2 - function(X - step) ** 2) / 2e-6 for step in steps]
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            np.testing.assert_allclose(gt.jit(function)(X), expected, rtol=1e-14)
            np.testing.assert_allclose(
                gt.grad(lambda x: np.sum(function(x) ** 2))(X), slopes, rtol=1e-7, atol=1e-8
            )
    np.testing.assert_allclose(gt.vmap(function)(np.stack([X, X]))[1], expected, rtol=1e-14)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
        total = np.sum(y**2)
    np.testing.assert_allclose(y, expected, rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(total, x), slopes, rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(DATA, before)


def test_arrays_of_code_that_writes_to_no_element_are_ndarrays() -> None:
    def made(scale):
        return [np.linspace(0.0, 1.0, 3), np.array([1.0, 2.0]), np.arange(3.0), DATA.copy(), {"rate": scale}]

    def changed():
        settings = {}
        settings["rate"] = np.array([1.0, 2.0])
        return settings["rate"]

    with gt.GradientTape():
        assert all(type(array) is np.ndarray for array in made(2.0)[:-1])
        assert type(changed()) is np.ndarray


# What stays an error


def test_arrays_from_outside_are_written_to_and_name_the_remedy_on_a_tape() -> None:
    outside = np.zeros(4)

    def stores(x):
        outside[0] = x[0]
        return np.sum(outside)

    assert gt.jit(stores)(X) == outside[0] == X[0]
    with gt.GradientTape() as tape, pytest.warns(errors.GradtapeWarning, match="stored into an ndarray"):
        stores(tape.watch(X))


def test_a_body_must_not_write_to_an_array_from_outside() -> None:
    def filled(x):
        y = np.zeros(4)

        def body(i, total):
            y[i] = total
            return total + x[i]

        return gt.fori_loop(0, 4, body, 0.0)

    with pytest.raises(errors.InPlaceError, match="writes to 'y', an array from outside"):
        gt.jit(filled)(X)


def test_casts_are_numpys() -> None:
    def rounded(x):
        y = np.zeros(4, int)
        y[:] = x
        return y

    def added(x):
        y = np.zeros(4, int)
        y += x
        return y

    np.testing.assert_array_equal(gt.jit(rounded)(X), [0, 1, 2, 3])
    with pytest.raises(errors.InPlaceError, match="cannot cast"):
        gt.jit(added)(X)


@pytest.mark.parametrize(
    "text",
    [
        "y = np.atleast_2d(np.zeros((2, 1))); y.shape = 2, 1; y[0, 0] = x[0]",
        "y = np.zeros(6); w = y[1:]; y.shape = (2, 3); y[0] = x[:3]; w[0] = 9.0; y = y * w[0]",
        "y = np.zeros(6); y.shape = -1, 3; y[0] = x[:3]; y.shape = (3, 2)",
    ],
)
def test_a_shape_is_assigned(text):
    names = {"np": np, "__name__": "program"}
    exec("def f(x):\n    " + text.replace("; ", "\n    ") + "\n    return y", names)
    x = np.arange(1.0, 7.0)
    np.testing.assert_array_equal(gt.jit(names["f"])(x), names["f"](x))


def test_a_shape_that_does_not_fit_is_refused_as_by_numpy():
    def misfit(x):
        y = np.zeros((2, 3))
        y.shape = 5, 3
        return y * x

    with pytest.raises(ValueError, match="cannot reshape"):
        gt.jit(misfit)(1.0)


def test_squares_of_booleans_have_the_dtype_of_numpy() -> None:
    mask = np.array([True, False])
    with gt.GradientTape():
        for made in (np.zeros_like(mask), np.ones(2, bool)):
            assert (made**2).dtype == (mask**2).dtype
            assert (made**3).dtype == (mask**3).dtype


def appended(x):
    y = np.zeros(0)
    for k in range(3):
        y.resize(y.size + 1, refcheck=False)
        y[k] = x[k] * y[k - 1] + x[3]
    return y


def cut(x):
    y = np.exp(x)
    y.resize((3, 2))
    y[2] = x[:2]
    y.resize(5)
    return y


def of_numbers(x):
    y = np.arange(3.0) * np.ones(3)
    y.resize(4)
    y.resize()
    return x[: y.shape[0]] * y * y.size


@pytest.mark.parametrize("function", [appended, cut, of_numbers])
def test_arrays_are_resized(function: Function) -> None:
    np.testing.assert_allclose(gt.jit(function)(X), function(X), rtol=1e-14)
    slopes = gradient_by_differences(loss(function), X)
    np.testing.assert_allclose(gt.grad(loss(function))(X), slopes, rtol=1e-6)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = loss(function)(x)
    np.testing.assert_allclose(tape.gradient(y, x), slopes, rtol=1e-6)


def test_what_shares_memory_is_not_resized() -> None:
    def with_view(x):
        y = np.exp(x)
        view = y[:2]
        y.resize(6, refcheck=False)
        return view

    def of_view(x):
        y = np.zeros(6)
        y[0] = x[0]
        y[1:].resize(2)
        return y

    def of_argument(x):
        x.resize(6, refcheck=False)
        return x

    for function in (with_view, of_view, of_argument):
        with pytest.raises(errors.InPlaceError, match=r"np\.concatenate"):
            gt.jit(function)(X.copy())
    with pytest.raises(AttributeError, match="size of a Variable"):
        gt.Variable(X).resize(6)


@pytest.mark.parametrize("type_", [int, float])
def test_the_numbers_of_a_list_are_not_asked_one_by_one(type_):
    """`np.fromiter` of a million numbers, while somebody records, took seconds."""
    numbers = list(map(type_, range(1000)))

    def total(x):
        with cProfile.Profile() as profile:
            weights = np.fromiter(numbers, float)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
        return np.sum(weights * x)

    calls: list[int] = []
    np.testing.assert_array_equal(gt.grad(total)(np.ones(1000)), np.arange(1000.0))
    assert max(calls) < 1000

    def mixed(x):
        return np.sum(np.fromiter([*numbers, x], float))

    assert gt.grad(mixed)(2.0) == 1.0


def test_the_diagonal_of_a_matrix_stays_read_only() -> None:
    def written(x):
        y = np.diag(np.ones((2, 2)))
        y[0] = 1.0
        return x * y

    with pytest.raises(ValueError, match="read-only"), gt.GradientTape() as tape:
        written(tape.watch(np.ones(2)))


class Unit:
    """Has operators that arrays leave the result to."""

    __array_priority__ = 1000.0

    def __rmul__(self, other):
        return "product", other

    __radd__ = __rmul__

    def __mul__(self, other):
        return "product", 2.0 * other

    def __eq__(self, other):
        return "equal"

    __hash__ = None


MATRIX = sparse.csr_matrix(np.array([[1.0, 0.0, 2.0, 0.0]] * 4))
OF_OPERATORS: dict[str, Function] = {
    "matrix": lambda a: a @ MATRIX,
    "product with a matrix": lambda a: a * MATRIX,
    "sum with a matrix": lambda a: np.asarray(np.outer(a, a) + MATRIX),
    "array": lambda a: a @ sparse.csr_array(MATRIX),
    "elements of an array": lambda a: (a * sparse.csr_array(MATRIX)).toarray(),
    "from the left": lambda a: MATRIX @ a,
    "unit": lambda a: (a * Unit())[1],
    "unit from the left": lambda a: (Unit() * a)[1],
    "sum with a unit": lambda a: (a + Unit())[1],
    "power": lambda a: (a**2 * Unit())[1],
}


@pytest.mark.parametrize("function", OF_OPERATORS.values(), ids=OF_OPERATORS)
def test_operands_with_operators_of_their_own_answer(function: Function) -> None:
    def with_ones(x):
        made = function(np.ones(4))
        assert made.dtype == float
        return made * x[0]

    def with_writes(x):
        a = np.zeros(4)
        a[:] = x
        return np.sum(np.sin(function(a)))

    np.testing.assert_allclose(gt.jit(with_ones)(X), function(np.ones(4)) * X[0])
    np.testing.assert_allclose(gt.jit(with_writes)(X), with_writes(X))
    np.testing.assert_allclose(gt.grad(with_writes)(X), gradient_by_differences(with_writes, X), rtol=1e-6)


def test_comparisons_are_left_to_operands() -> None:
    said = []

    def f(x):
        said.append(np.ones(4) == Unit())
        return x

    gt.jit(f)(X)
    assert said == ["equal"]
