"""Variables: errors that name the argument, writes at traced places, copies in other processes."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ConcretizationError, DtypeError, ShapeError
from gradtape.trace.jit import state
from gradtape.trace.variables import variable

# Errors


@pytest.mark.parametrize("method", ["assign_add", "assign_sub"])
@pytest.mark.parametrize(
    ("delta", "error", "words"),
    [
        (
            np.ones((5, 2, 3)),
            ShapeError,
            r"delta has shape \(5, 2, 3\), but the variable 'w' has shape \(2, 3\)",
        ),
        (np.ones(4), ShapeError, r"delta has shape \(4,\), but the variable 'w'"),
        (None, DtypeError, "delta is a NoneType"),
        ("1", DtypeError, "delta is a str"),
        (1j, DtypeError, "has dtype complex128, but the variable 'w' has dtype float64"),
    ],
)
def test_a_delta_that_does_not_fit_is_named(method, delta, error, words):
    w = gt.Variable(np.ones((2, 3)), name="w")
    for change in (getattr(w, method), gt.jit(lambda: getattr(w, method)(delta))):
        with pytest.raises(error, match=f"{method}: .*{words}"):
            change(delta) if change == getattr(w, method) else change()
    np.testing.assert_array_equal(w, np.ones((2, 3)))
    getattr(w, method)([[1], [2]])
    sign = 1 if method == "assign_add" else -1
    np.testing.assert_array_equal(w, 1 + sign * np.array([[1, 1, 1], [2, 2, 2]]))


@pytest.mark.parametrize("make", [gt.Variable, gt.constant, gt.asarray])
@pytest.mark.parametrize("dtype", ["flaot", object, str, np.longdouble, 3])
def test_what_is_no_dtype_of_numbers_is_shown(make, dtype):
    with pytest.raises(DtypeError, match="dtype=") as caught:
        make([1.0], dtype=dtype)
    assert "test_variable_details.py" in str(caught.value)


def test_names_are_strings():
    w = gt.Variable(1.0)
    with pytest.raises(DtypeError, match="name must be a str, got a int"):
        w.name = 3
    w.name = "w"
    assert repr(w) == "Variable(1., name='w')"
    w.name = None
    assert repr(w) == "Variable(1.)"


# Compiled writes


@pytest.fixture(params=["small", "large"])
def ways(request, monkeypatch):
    """Let small variables take the ways of large ones, whose rows are written in place, or their own."""
    if request.param == "large":
        for module in (state, variable):
            monkeypatch.setattr(module, "LARGE", 0)


BASE = np.arange(24.0).reshape(4, 3, 2)


def put(w, at, x):
    w[at] = x


def add_to(w, at, x):
    w[at] += x


def add_each(w, at, x):
    np.add.at(w, at, x)


def put_and_read(w, at, x):
    w[at] = x
    w[3] = w[at] * 2.0 if np.ndim(at) == 0 else x
    add_each(w, np.array([0, 0]), x)


@pytest.mark.parametrize("change", [put, add_to, add_each, put_and_read])
@pytest.mark.parametrize(
    "at",
    [2, -1, np.array(2), np.array([1, 3]), np.array([1, 1]), np.array([[1, 3], [0, 2]]), np.zeros(0, int)],
    ids=str,
)
@pytest.mark.parametrize("traced", [False, True])
def test_rows_may_be_written_wherever_an_index_says(change, at, traced, ways):
    expected = BASE.copy()
    change(expected, at, 7.0)
    w = gt.Variable(BASE)

    @gt.jit
    def inside(x, *given):
        change(w, given[0] if given else at, x)

    for _ in range(2):
        w.assign(BASE)
        inside(7.0, *([at] if traced else []))
        np.testing.assert_array_equal(w, expected)
    w.assign(BASE)
    change(w, at, 7.0)
    np.testing.assert_array_equal(w, expected)


@pytest.mark.parametrize("at", [4, -5, np.array([[0, 4]])], ids=str)
def test_a_traced_place_out_of_bounds_changes_nothing(at, ways):
    w = gt.Variable(BASE)

    @gt.jit
    def inside(at):
        w[at] = 1.0

    inside(np.zeros_like(at))
    w.assign(BASE)
    with pytest.raises(IndexError):
        inside(at)
    np.testing.assert_array_equal(w, BASE)


KEYS = {
    "row": 2,
    "row from behind": -1,
    "rows": slice(1, 3),
    "rows backwards": slice(3, 1, -1),
    "every other row": slice(None, None, 2),
    "all": slice(None),
    "nothing": slice(2, 2),
    "element": (1, 2, 0),
    "part of a row": (2, slice(0, 2)),
    "column": (slice(None), 1),
    "parts of rows": (slice(1, 3), 1),
    "new axis": (None, 2),
    "ellipsis": (2, ...),
    "list": [3, 0],
    "list and column": ([3, 0], 1),
    "list and slice": ([3, 0], slice(None, 2)),
    "mask of rows": np.array([True, False, False, True]),
    "mask": BASE > 20,
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("compiled", [False, True])
def test_any_part_may_be_written(name, compiled, ways):
    key, expected, w = KEYS[name], BASE.copy(), gt.Variable(BASE)
    before, part = w.value(), w[2]

    def change(x):
        w[key] = x
        w[key] -= 2.0

    (gt.jit(change) if compiled else change)(7.0)
    expected[key] = 5.0
    np.testing.assert_array_equal(w, expected)
    np.testing.assert_array_equal(before, BASE)
    np.testing.assert_array_equal(part, BASE[2])
    with pytest.raises((ShapeError, ValueError)):
        w[key] = np.ones((9, 9, 9))
    np.testing.assert_array_equal(w, expected)


def test_what_a_tape_has_read_keeps_its_rows(ways):
    w = gt.Variable(BASE)
    with gt.GradientTape() as tape:
        before = np.sum(w[2] ** 2)
        w[2] = before
        loss = before + np.sum(w[2] ** 3)
    expected = np.zeros_like(BASE)
    expected[2] = 2 * BASE[2] + 3 * np.sum(BASE[2] ** 2) ** 2
    np.testing.assert_allclose(gt.asarray(tape.gradient(loss, w)), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_of_the_size_of_a_variable_is_made_to_write_rows(compiled):
    w = gt.Variable(np.zeros((100_000, 16)))
    places = np.array([5, 99_999, 7])

    def change(x):
        w[3] = x
        w[-1, 2] = x
        w[10:20] += x
        w[places] = w[places] + x

    run = gt.jit(change) if compiled else change
    for _ in range(3):
        run(1.0)
    tracemalloc.start()
    run(1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if not compiled:
        assert peak < w.nbytes / 32
    assert np.count_nonzero(w.numpy()) == 16 * 14
    only = gt.jit(lambda x: w.__setitem__(3, x))
    for _ in range(2):
        only(2.0)
    tracemalloc.start()
    only(2.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < w.nbytes / 32


# Copies


def test_arrays_can_be_pickled():
    x = gt.constant(np.array([1.0, 2.0], np.float32))
    x.name = "x"
    for value in (x, x * 2, gt.constant(3), gt.constant(BASE).T):
        other = pickle.loads(pickle.dumps(value))
        assert type(other) is gt.Array
        assert (other.dtype, other.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(other, value)
    assert pickle.loads(pickle.dumps(x)).name == "x"
    first, second = pickle.loads(pickle.dumps([x, x]))
    assert first is second
    with pytest.raises(ConcretizationError, match="pickling"):
        gt.jit(lambda x: len(pickle.dumps(x)))(1.0)


def test_sparse_arrays_can_be_pickled_and_copied():
    g = gt.IndexedSlices([1.0, 2.0], [2, 0], (3,))
    for other in (pickle.loads(pickle.dumps(g)), copy.copy(g), copy.deepcopy(g)):
        assert other.dense_shape == (3,)
        np.testing.assert_array_equal(gt.asarray(other), [2, 0, 1])
    copied = gt.jit(lambda values: copy.deepcopy(gt.IndexedSlices(values, [2, 0], (3,))))(
        np.array([1.0, 2.0])
    )
    np.testing.assert_array_equal(gt.asarray(copied), [2, 0, 1])


# Stopping gradients


def test_stop_gradient_reaches_into_containers():
    def loss(x):
        held = gt.stop_gradient({"a": (x, None), "b": [2.0, "label"]})
        assert held["b"] == [2.0, "label"]
        return np.sum(held["a"][0] * x)

    for slope in (gt.grad(loss), gt.jit(gt.grad(loss))):
        np.testing.assert_array_equal(slope(np.array([3.0, 4.0])), [3, 4])
    plain = {"a": np.ones(2)}
    assert gt.stop_gradient(plain) is plain
    rows = gt.grad(lambda x: np.sum(gt.asarray(gt.stop_gradient(gt.IndexedSlices(x, [0], (2,)))) * x[0]))
    np.testing.assert_array_equal(rows(np.array([5.0])), [5])


# Explanations


def test_an_assignment_is_where_a_value_leaves():
    w = gt.Variable(1.0)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(2.0)
        w.assign(x * 2)
        y = w * 3
    assert tape.gradient(y, x) is None
    found = gt.debug.explain_gradient(tape, y, x)
    assert found.reason == "left the graph"
    assert "an assignment to the variable" in found.text
    assert "w.assign(x * 2)" in repr(found)
