"""Prologues: what depends on data that does not change is computed once, and changed data is always seen."""

import ctypes
import gc
import threading

import numpy as np
import pytest
from scipy import special

import gradtape as gt
from gradtape.passes.prologue import may_pay
from gradtape.runtime.compile import prologue as prologues
from gradtape.runtime.compile.background import finish_all
from gradtape.runtime.compile.prologue import MOST_CHANGES, MOST_KEPT, kept_bytes

RNG = np.random.default_rng(119)


def warm(function, *args):
    """Call a function until what it keeps is ready."""
    for _ in range(3):
        function(*args)
        finish_all()
    return function(*args)


def prologue(function):
    """Return the prologue of the only trace of a function."""
    (specialisation,) = function.site.specialisations()
    return specialisation.prologue


def fresh(function, *args):
    """Return what a function gives that keeps nothing."""
    with gt.config.override(kept_memory=0):
        return function(*args)


def powers(x, t, j, s):
    return 0.5 * np.sum((s - np.dot(t[:, None] ** j, x)) ** 2)


def power_data(rows=2000, columns=32):
    return RNG.uniform(0.1, 1.0, rows), np.arange(float(columns)), RNG.standard_normal(rows)


def test_captured_data_is_computed_with_once():
    t, j, s = power_data()
    gradient = gt.grad(lambda x: powers(x, t, j, s))
    x = np.ones(32)
    first = gradient(x)
    assert prologue(gradient).runs == 0  # the first call runs the whole program
    np.testing.assert_allclose(warm(gradient, x), first, rtol=1e-12)
    for number in range(20):
        gradient(x + number)
    assert prologue(gradient).runs == 1
    (kept,) = prologue(gradient).kept
    assert sorted(copy.size for copy in kept.inputs.values()) == [32, 2000]  # the main program alone reads s
    assert kept.nbytes == t.nbytes + j.nbytes + t.nbytes * 32
    expected = fresh(gt.grad(powers), x + 7.0, t, j, s)
    np.testing.assert_allclose(gradient(x + 7.0), expected, rtol=1e-12)


def test_arguments_that_are_not_differentiated_count_as_data():
    data = power_data()
    for transform in (gt.grad, gt.value_and_grad, gt.hessian, gt.jacobian):
        function = transform(powers)
        warm(function, np.ones(32), *data)
        assert prologue(function).runs == 1, transform
        got, expected = function(np.full(32, 0.3), *data), fresh(transform(powers), np.full(32, 0.3), *data)
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, expected)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def test_differentiated_arguments_are_no_data():
    x = RNG.uniform(0.5, 1.0, 100_000)
    gradient = gt.grad(lambda x: np.sum(np.exp(x) * np.log(x)))
    warm(gradient, x)
    assert prologue(gradient) is None


def test_arguments_of_a_jitted_function_count_where_another_one_changes():
    data, function = power_data(), gt.jit(powers)
    for _ in range(4):
        warm(function, np.ones(32), *data)
    assert prologue(function).runs == 0  # all arguments are the same: nobody asks for that
    for number in range(4):
        warm(function, np.full(32, float(number)), *data)
    assert prologue(function).runs == 1


def test_the_only_argument_of_a_jitted_function_is_no_data():
    scale = np.ones(3)
    function = gt.jit(lambda x: np.sum(np.exp(x) * np.log(x)) * scale)
    warm(function, RNG.uniform(0.5, 1.0, 100_000))
    assert prologue(function) is None


def test_what_is_too_little_is_found_out_once(monkeypatch):
    """A walk over a large graph takes longer than many calls."""
    asked = []
    monkeypatch.setattr(
        prologues, "may_pay", lambda graph, stable: asked.append(stable) or pays(graph, stable)
    )
    pays = may_pay
    function, x, y = gt.jit(lambda x, y: np.sum(np.exp(x) * y)), np.ones(100_000), np.ones(100_000)
    for _ in range(MOST_CHANGES + 2):
        function(x, y)
    assert len(asked) == len(set(map(frozenset, asked))) <= 2
    assert prologue(function).is_over


def test_cheap_work_is_not_kept():
    a, b = RNG.standard_normal((2, 100_000))
    function = gt.grad(lambda x: np.sum((a + 2.0 * b - x) ** 2))
    warm(function, np.ones(100_000))
    assert prologue(function) is None or prologue(function).runs == 0


def test_a_view_of_much_is_not_kept():
    a = RNG.uniform(0.5, 1.0, 1000)
    function = gt.grad(lambda x: np.sum(x * np.broadcast_to(np.log(a)[:, None], (1000, 1000))))
    warm(function, np.ones(1000))
    assert kept_of(function) <= 2 * a.nbytes


def kept_of(function):
    found = prologue(function)
    return 0 if found is None else found.nbytes


def regression(beta, design, y):
    eta = design @ beta
    return -np.sum(y * eta - np.exp(eta) - special.gammaln(y + 1.0) * np.log1p(beta[0] ** 2))


def distances(x, points):
    squares = np.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=-1)
    return np.sum(np.exp(-np.sqrt(squares)) * x[:, None] * x[None, :])


def factors(x, matrix):
    return (
        x @ np.linalg.solve(matrix, x)
        + np.sum(np.linalg.inv(matrix) @ x)
        + np.sum(np.linalg.cholesky(matrix) @ x)
    )


def products(x, a, b):
    return np.sum(np.einsum("ij,jk->ik", a, b) @ x) ** 2


def spd(n):
    a = RNG.standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


CASES = {
    "regression": (
        regression,
        np.full(4, 0.1),
        (RNG.standard_normal((100_000, 4)), RNG.gamma(2.0, 1.0, 100_000)),
    ),
    "distances": (distances, np.ones(300), (RNG.standard_normal((300, 3)),)),
    "factors": (factors, np.ones(120), (spd(120),)),
    "einsum": (products, np.ones(150), tuple(RNG.standard_normal((2, 150, 150)))),
    "powers of float32": (powers, np.ones(32, np.float32), tuple(a.astype(np.float32) for a in power_data())),
    "complex": (
        lambda x, z: np.sum(np.abs(np.exp(1j * np.exp(np.sin(z))) * x) ** 2),
        np.ones(50_000),
        (RNG.standard_normal(50_000) + 0.1j,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_programs_of_data_keep_what_they_compute(name):
    function, x, data = CASES[name]
    gradient = gt.grad(function)
    warm(gradient, x, *data)
    assert prologue(gradient).runs == 1
    single = x.dtype == np.float32
    tolerance = {"rtol": 1e-4, "atol": 1e-2} if single else {"rtol": 1e-9, "atol": 1e-9}
    for step in (0.0, 0.1):
        point = x + x.dtype.type(step)
        np.testing.assert_allclose(
            gradient(point, *data), fresh(gt.grad(function), point, *data), **tolerance
        )


def test_everything_of_captures_alone_is_kept_and_results_are_fresh():
    a = RNG.uniform(0.5, 1.0, 100_000)
    function = gt.jit(lambda: np.log(a + 1.0) ** 1.5)
    first = warm(function)
    second = function()
    assert prologue(function).runs == 1
    second[:] = 0.0
    np.testing.assert_array_equal(function(), first)


def test_two_data_that_take_turns_are_both_kept():
    gradient, x = gt.grad(powers), np.ones(32)
    train, test = power_data(), power_data()
    for data in (train, test):
        warm(gradient, x, *data)
    assert prologue(gradient).runs == 2
    expected = [fresh(gt.grad(powers), x, *data) for data in (train, test)]
    for _ in range(5):
        for data, right in zip((train, test), expected, strict=True):
            np.testing.assert_allclose(gradient(x, *data), right, rtol=1e-12)
    assert prologue(gradient).runs == 2
    for _ in range(4):
        warm(gradient, x, *power_data())
    assert len(prologue(gradient).kept) == MOST_KEPT


def test_data_that_is_new_in_each_call_ends_it():
    gradient, x = gt.grad(powers), np.ones(32)
    for _ in range(MOST_CHANGES + 2):
        data = power_data()
        np.testing.assert_allclose(gradient(x, *data), fresh(gt.grad(powers), x, *data), rtol=1e-12)
        finish_all()
    assert prologue(gradient).is_over
    assert kept_of(gradient) == 0


def test_data_that_is_kept_stays_so_after_many_others():
    gradient, x, train = gt.grad(powers), np.ones(32), power_data()
    right = warm(gradient, x, *train)
    for _ in range(MOST_CHANGES + 4):
        data = power_data()
        np.testing.assert_allclose(gradient(x, *data), fresh(gt.grad(powers), x, *data), rtol=1e-12)
        np.testing.assert_allclose(gradient(x, *train), right, rtol=1e-12)
    assert prologue(gradient).is_over
    assert prologue(gradient).runs == len(prologue(gradient).kept) == 1


def test_memory_is_given_back_with_the_function():
    t, j, s = power_data()
    before = kept_bytes()
    gradient = gt.grad(lambda x: powers(x, t, j, s))
    warm(gradient, np.ones(32))
    assert kept_bytes() - before >= t.nbytes * 32
    del gradient
    gc.collect()
    assert kept_bytes() == before


@pytest.mark.parametrize("room", [0, 1000, 100_000])
def test_memory_has_a_bound(room):
    t, j, s = power_data()
    with gt.config.override(kept_memory=kept_bytes() + room if room else 0):
        gradient = gt.grad(lambda x: powers(x, t, j, s))
        warm(gradient, np.ones(32))
        found = prologue(gradient)
        assert found is None if room == 0 else found.is_over
        np.testing.assert_allclose(
            gradient(np.ones(32)), fresh(gt.grad(powers), np.ones(32), t, j, s), rtol=1e-12
        )


def test_errors_are_those_of_the_whole_program():
    matrix = spd(120)
    gradient = gt.grad(lambda x: np.sum(np.linalg.cholesky(matrix) @ x))
    warm(gradient, np.ones(120))
    assert prologue(gradient).runs == 1
    good = matrix.copy()
    matrix[:] = -matrix
    for _ in range(3):
        with pytest.raises(np.linalg.LinAlgError):
            gradient(np.ones(120))
    matrix[:] = good
    np.testing.assert_allclose(gradient(np.ones(120)), np.linalg.cholesky(good).sum(0), rtol=1e-12)


def test_functions_of_the_user_are_called_in_each_call():
    a, calls = RNG.uniform(0.5, 1.0, 100_000), []

    def look(z):
        calls.append(1)
        return np.log(z)

    function = gt.jit(lambda x: np.sum(x * gt.callback(look, np.zeros(100_000), np.sqrt(a))))
    warm(function, np.ones(100_000))
    before = len(calls)
    function(np.ones(100_000))
    assert len(calls) == before + 1


def test_branches_on_data_are_still_looked_at():
    t, j, s = power_data()

    def loss(x):
        return powers(x, t, j, s) * (2.0 if np.sum(np.exp(t)) > 0 else 1.0) * (3.0 if x[0] > 0 else 1.0)

    gradient = gt.grad(loss)
    one = warm(gradient, np.ones(32))
    two = gradient(-np.ones(32))
    np.testing.assert_allclose(one, 6 * fresh(gt.grad(powers), np.ones(32), t, j, s), rtol=1e-12)
    np.testing.assert_allclose(two, 2 * fresh(gt.grad(powers), -np.ones(32), t, j, s), rtol=1e-12)


def test_keyword_and_nested_arguments():
    t, j, s = power_data()

    def loss(p, *, data):
        return powers(p["x"], data["t"], j, data["s"])

    gradient = gt.grad(loss)
    for _ in range(4):
        result = gradient({"x": np.ones(32)}, data={"t": t, "s": s})
        finish_all()
    assert prologue(gradient).runs == 1
    t[3] = 0.5
    expected = fresh(gt.grad(powers), np.ones(32), t, j, s)
    np.testing.assert_allclose(gradient({"x": np.ones(32)}, data={"t": t, "s": s})["x"], expected, rtol=1e-12)
    assert not np.array_equal(result["x"], expected)


def test_an_inspector_says_what_is_kept():
    t, j, s = power_data()
    gradient = gt.grad(lambda x: powers(x, t, j, s))
    warm(gradient, np.ones(32))
    (text,) = [event.text for event in gradient.site.explain.events if event.kind == "prologue"]
    assert f"1 array of {t.nbytes * 32:,} bytes" in text
    assert text in gt.inspect.explain(gradient)


def test_machine_code_answers_calls_with_kept_numbers(monkeypatch):
    counts = RNG.gamma(2.0, 1.0, 50_000)
    gradient = gt.grad(lambda x: x**2 * np.sum(special.gammaln(counts)))
    warm(gradient, 1.0)
    assert prologue(gradient).kept[0].results[0].shape == ()
    monkeypatch.setattr(type(prologue(gradient)), "run", None)  # what Python would call
    np.testing.assert_allclose(gradient(3.0), 6.0 * np.sum(special.gammaln(counts)), rtol=1e-12)


def test_it_is_pickled_lowered_and_exported_as_before():
    import pickle

    t, j, s = power_data()
    gradient = gt.grad(powers)
    right = warm(gradient, np.ones(32), t, j, s)
    other = pickle.loads(pickle.dumps(gradient))
    np.testing.assert_allclose(other(np.ones(32), t, j, s), right, rtol=1e-12)
    compiled = gradient.lower(np.ones(32), t, j, s).compile()
    np.testing.assert_allclose(compiled(np.ones(32), t, j, s), right, rtol=1e-12)


def by_array(array, place):
    array.view(np.uint8).reshape(-1)[place] ^= 1


def by_memoryview(array, place):
    memoryview(array).cast("B")[place] ^= 1


def by_ctypes(array, place):
    ctypes.c_uint8.from_address(array.ctypes.data + place).value ^= 1


def by_other_dtype(array, place):
    array.view(np.int32).reshape(-1)[place // 4] ^= 1 << 8 * (place % 4)


def by_buffer(array, place):
    np.frombuffer(array.data, np.uint8)[place] ^= 1 if array.flags.writeable else 0


CHANGES = [by_array, by_memoryview, by_ctypes, by_other_dtype, by_buffer]


@pytest.mark.parametrize("captured", [True, False])
def test_each_changed_byte_is_seen(captured):
    rng = np.random.default_rng(int(captured) + 1)
    shared = bytearray(8 * 40_000)
    data = np.frombuffer(shared, np.float64)
    data[:] = rng.uniform(1.0, 2.0, 40_000)
    weights = rng.standard_normal(40_000)

    def loss(x, data=data):
        return np.sum(x * weights * np.log(data) ** 1.5 * np.exp(data))

    gradient = gt.grad(loss)
    arguments = () if captured else (data,)
    x = np.ones(40_000)
    warm(gradient, x, *arguments)
    assert prologue(gradient).runs == 1
    for trial in range(60):
        place = int(rng.integers(8 * 40_000))
        CHANGES[trial % len(CHANGES)](data, place)
        element = place // 8
        got = gradient(x, *arguments)
        with np.errstate(all="ignore"):
            right = weights[element] * np.log(data[element]) ** 1.5 * np.exp(data[element])
        np.testing.assert_allclose(got[element], right, rtol=1e-13)
        others = rng.integers(40_000, size=10)
        with np.errstate(all="ignore"):
            right = weights * np.log(data) ** 1.5 * np.exp(data)
        np.testing.assert_allclose(got[others], right[others], rtol=1e-12)
        if trial % 3 == 0:
            warm(gradient, x, *arguments)
    assert prologue(gradient).runs > 5


def test_last_bits_are_seen():
    """What a change of the last bit of one number does to a result of integers."""
    data = np.arange(1, 60_001)
    function = gt.jit(lambda x: x * (np.cumsum(data) % 1009))
    warm(function, np.ones(60_000, int))
    for place in (0, 59_999, 31_234):
        data[place] ^= 1
        np.testing.assert_array_equal(function(np.ones(60_000, int)), np.cumsum(data) % 1009)


def test_signs_of_zeros_and_nans_are_data():
    data = np.full(60_000, 0.0)
    function = gt.jit(lambda x: x + np.arctan2(np.sin(data), -np.ones(60_000)))
    warm(function, np.zeros(60_000))
    data[17] = -0.0
    np.testing.assert_array_equal(function(np.zeros(60_000))[16:18], [np.pi, -np.pi])
    data[18] = np.nan
    for _ in range(4):
        assert np.isnan(function(np.zeros(60_000))[18])
        finish_all()


def test_layouts_and_dtypes_of_data_that_replace_it():
    gradient, x = gt.grad(powers), np.ones(32)
    t, j, s = power_data()
    warm(gradient, x, t, j, s)
    strided = np.repeat(t, 2)[::2]
    for other in (strided, t[::-1], t.astype(np.float32), np.asfortranarray(t), t.astype(">f8"), list(t)):
        got = gradient(x, np.array(other) if isinstance(other, list) else other, j, s)
        right = fresh(gt.grad(powers), x, np.array(other, np.float64), j, s)
        np.testing.assert_allclose(got, right, rtol=1e-4 if np.asarray(other).dtype == np.float32 else 1e-12)


def test_threads_with_data_of_their_own_get_their_results():
    gradient, x = gt.grad(powers), np.ones(32)
    sets = [power_data() for _ in range(3)]
    right = [fresh(gt.grad(powers), x, *data) for data in sets]
    wrong = []

    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(60):
            which = int(rng.integers(3)) if number else 0
            got = gradient(x, *sets[which])
            if not np.allclose(got, right[which], rtol=1e-12, atol=0):
                wrong.append((number, which))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish_all()
    assert wrong == []


def test_data_that_changes_while_threads_call():
    t, j, s = power_data()
    gradient = gt.grad(lambda x: powers(x, t, j, s))
    x = np.ones(32)
    stop, errors = threading.Event(), []

    def call():
        try:
            while not stop.is_set():
                gradient(x)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(5)
    for _ in range(40):
        t[rng.integers(len(t))] = rng.uniform(0.1, 1.0)
        np.testing.assert_allclose(gradient(x), fresh(gt.grad(powers), x, t, j, s), rtol=1e-12)
    stop.set()
    for thread in threads:
        thread.join()
    finish_all()
    assert errors == []
    warm(gradient, x)
    np.testing.assert_allclose(gradient(x), fresh(gt.grad(powers), x, t, j, s), rtol=1e-12)


def test_floats_are_compared_by_their_bits():
    a = RNG.uniform(0.5, 1.0, 100_000)
    gradient = gt.grad(lambda x, scale: np.sum(x * np.log(a) ** scale * 1.0), argnums=0)
    for scale in (2.0, 3.0, np.float64(2.0)):
        got = warm(gradient, np.ones(100_000), scale)
        np.testing.assert_allclose(got, np.log(a) ** float(scale), rtol=1e-12)
    assert prologues.kept_bytes() > 0


def test_solvers_and_minimisers_get_right_results():
    design, y = RNG.standard_normal((5000, 3)), RNG.gamma(2.0, 1.0, 5000)
    loss = gt.value_and_grad(regression)
    from scipy.optimize import minimize

    found = minimize(loss, np.zeros(3), args=(design, y), jac=True)
    finish_all()
    with gt.config.override(kept_memory=0):
        right = minimize(gt.value_and_grad(regression), np.zeros(3), args=(design, y), jac=True)
    np.testing.assert_allclose(found.x, right.x, rtol=1e-5, atol=1e-6)
