"""Between arrays and NumPy's ndarrays, Python's numbers and truth: what is followed, what is said, and what is written in place."""

import math
import warnings

import numpy as np
import pytest

import gradtape as gt

X = np.array([1.0, 2.0, 3.0])


def on_a_tape(function, x=X):
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        return function(watched)


def differentiated(function, x=X):
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = function(watched)
    return y, tape.gradient(y, watched)


# Truth and whole numbers in compiled functions

DTYPES = [
    np.bool_,
    np.int8,
    np.uint8,
    np.int16,
    np.uint32,
    np.int64,
    np.uint64,
    np.float32,
    np.float64,
    np.complex128,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_numbers_are_true_unless_zero(dtype, shape):
    def scaled(x):
        return x * 2.0 if x else x * 3.0 + 1

    compiled = gt.jit(scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (1, 2, 0, 3, 0):
            x = np.full(shape, number, dtype)
            np.testing.assert_array_equal(compiled(x), scaled(x))
    assert compiled.site.traces == 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_the_truth_of_a_number_is_not_the_number(dtype):
    def whole(x):
        return (int(x) if x else 7) * x + (x and 2 * x) + (not x)

    compiled = gt.jit(whole)
    for number in (3, 1, 0, 3):
        x = np.array(number, dtype)
        np.testing.assert_array_equal(compiled(x), whole(x))


def test_counting_down():
    @gt.jit
    def halvings(x):
        y = x
        while x:
            x = x - 1
            y = y * 2
        return y

    for number in (3.0, 1.0, 0.0, 4.0):
        assert halvings(number) == number * 2**number


# Numbers that leave a tape


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (lambda x: math.frexp(x[0]), r"math\.frexp converts a watched array"),
        (lambda x: X.copy().fill(x[0]), "stored into an ndarray"),
        (lambda x: X.copy().__setitem__(0, x[0]), "stored into an ndarray"),
    ],
)
def test_what_leaves_the_tape_is_said(leave, words):
    def left(x):
        y = leave(x)
        return x, y

    with pytest.warns(gt.errors.GradtapeWarning, match=words):
        on_a_tape(left)


def test_fields_of_structured_arrays_have_another_remedy_than_elements():
    def fields(x):
        points = np.zeros(3, dtype=[("x", float), ("m", float)])
        points["x"] = x
        return np.sum(points["x"])

    def record(x):
        points = np.zeros(3, dtype=[("x", float), ("m", float)])
        points[1]["m"] = x[0]
        return np.sum(points["m"])

    def elements(x):
        y = np.fromfunction(lambda i: 1.0 * i, (3,))
        y[0] = x[0]
        return {"y": y}["y"][0]

    for function in (fields, record, elements):
        words = r"np\.zeros\(n, like=x\)" if function is elements else "an array for each field"
        with pytest.raises(gt.errors.ConcretizationError, match=words):
            gt.grad(function)(X)
        with pytest.warns(gt.errors.GradtapeWarning, match=words):
            on_a_tape(function)


@pytest.mark.parametrize(
    "leave",
    [
        lambda x: X[np.argsort(x)],
        lambda x: X[x > 1.5],
        lambda x: np.asarray(np.argmax(x)),
        lambda x: math.sqrt(np.argmax(x)),
        lambda x: X.copy().fill(np.argmax(x)),
        lambda x: [float(x[0]), int(x[1]), x.tolist(), f"{x[0]:.1f}", math.isnan(x[0]), x[0] in [1.0]],
    ],
)
def test_what_has_no_derivative_to_lose_or_is_said_already_leaves_in_silence(leave):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_a_tape(leave)


def test_views_have_the_same_dtype():
    x = gt.constant(np.arange(4.0))
    view = x.view()
    view[0] = 5.0
    assert float(x.view(np.float64)[0]) == 5.0
    assert float(x.view(np.ndarray)[0]) == 5.0  # the class without those derived from it
    for dtype in (np.int64, complex):
        with pytest.raises(gt.errors.DtypeError, match="no bytes"):
            x.view(dtype)


@pytest.mark.parametrize("way", [gt.jit, gt.grad, gt.vmap, lambda f: lambda x: f(gt.constant(x))])
def test_views_as_other_classes_of_numpy_are_refused_by_their_class(way):
    with pytest.raises(gt.errors.ArraySubclassError, match="recarray, a subclass of ndarray"):
        way(lambda x: np.sum(x.view(np.recarray)))(np.ones(3))
    assert way(lambda x: np.sum(x.view(type=np.ndarray)))(np.ones(3)) is not None


@pytest.mark.parametrize("name", ["tobytes", "tofile", "byteswap"])
def test_what_only_ndarrays_have_names_the_way_there(name):
    for array in (gt.constant(X), gt.Variable(X)):
        with pytest.raises(AttributeError, match=rf"{name!r}.*x\.numpy\(\)\.{name}"):
            getattr(array, name)
        with pytest.raises(AttributeError, match=r"no attribute 'weights'$"):
            array.weights  # noqa: B018


def test_arrays_of_objects_are_refused_by_the_dtype():
    for attempt in (
        lambda x: x.astype(object),
        lambda x: gt.asarray(x, dtype="U3"),
    ):
        with pytest.raises(TypeError, match=r"dtype=(object|<U3) is not (.*\n)+.*dtype=float"):
            on_a_tape(attempt)


# In-place results


def step(w, g):
    w -= 0.5 * g


def test_what_nobody_follows_is_written_into_ndarrays():
    w = X.copy()
    for _ in range(3):
        with gt.GradientTape() as tape:
            x = tape.watch(w)
            y = np.sum(x * x) / 2
        step(w, tape.gradient(y, x))
    np.testing.assert_array_equal(w, X / 8)
    c, out = gt.constant(X), np.zeros(3)
    assert np.add(c, 1.0, out=out) is out
    np.testing.assert_array_equal(out, X + 1)
    np.add.at(out, [0, 0], c[:2])
    np.copyto(out[1:], c[:2])
    np.testing.assert_array_equal(out, [5.0, 1.0, 2.0])
    assert np.sum(np.stack([c, c]), axis=0, out=out) is out
    np.testing.assert_array_equal(out, 2 * X)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (np.zeros(3, int), gt.errors.InPlaceError, "from float64 to int64 in place"),
        (np.zeros(1), gt.errors.ShapeError, "non-broadcastable"),
        (np.zeros(2), gt.errors.ShapeError, "could not be broadcast"),
    ],
)
@pytest.mark.parametrize("way", [on_a_tape, lambda f: gt.jit(f)(X), lambda f: f(gt.constant(X))])
def test_what_numpy_refuses_to_write_in_place_is_refused(way, target, error, words):
    def added(x):
        n = target.copy()
        n += x
        return n

    with pytest.raises(error, match=words):
        way(added)


def test_a_followed_result_keeps_the_dtype_and_the_shape_of_the_name():
    def added(x):
        n = np.array([[1.0, 1.0, 1.0]] * 2, np.float32)
        n += x
        return n

    y, gradient = differentiated(added)
    assert (y.dtype, y.shape) == (np.float32, (2, 3))
    np.testing.assert_array_equal(gradient, [2.0, 2.0, 2.0])
    assert gt.jit(added)(X).dtype == np.float32


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda x, n: np.add(x, 1.0, out=n), r"out= of np\.add is an ndarray"),
        (lambda x, n: np.sum(x, axis=0, keepdims=True, out=n[:1]), r"out= of np\.sum is an ndarray"),
        (lambda x, n: np.add.at(n, [0, 0], x[:2]), r"np\.add\.at writes to an ndarray"),
        (lambda x, n: np.copyto(n, x), r"np\.copyto writes to an ndarray"),
    ],
)
def test_what_is_followed_is_not_written_into_ndarrays(write, what):
    n = X.copy()
    with pytest.raises(gt.errors.InPlaceError, match=what):
        on_a_tape(lambda x: write(x, n))
    np.testing.assert_array_equal(n, X)
    compiled, wanted = gt.jit(lambda x: write(x, n)), X.copy()
    for scale in (1.0, 2.0, 3.0):
        compiled(X * scale)
        write(X * scale, wanted)
        np.testing.assert_array_equal(n, wanted)


def into_zeros(write):
    def function(x):
        out = np.zeros(3)
        return write(x, out)

    return function


@pytest.mark.parametrize(
    ("write", "value", "slope"),
    [
        (lambda x, out: np.multiply(x, x, out=out), X * X, 2 * X),
        (lambda x, out: np.clip(x, 1.5, 2.5, out), np.clip(X, 1.5, 2.5), [0.0, 1.0, 0.0]),
        (lambda x, out: x.clip(1.5, 2.5, out), np.clip(X, 1.5, 2.5), [0.0, 1.0, 0.0]),
        (lambda x, out: np.cumsum(x, out=out), np.cumsum(X), [3.0, 2.0, 1.0]),
        (lambda x, out: np.dot(np.diag(x), x, out), X * X, 2 * X),
        (lambda x, out: np.maximum.accumulate(x, out=out), X, np.ones(3)),
        (lambda x, out: np.full_like(np.ones(3), x[1]), [2.0, 2.0, 2.0], [0.0, 3.0, 0.0]),
        (lambda x, out: np.full_like(out, fill_value=x[1]), [2.0, 2.0, 2.0], [0.0, 3.0, 0.0]),
    ],
)
def test_results_in_arrays_that_numpy_made_are_arrays(write, value, slope):
    assert type(on_a_tape(into_zeros(write))) is gt.Array
    y, gradient = differentiated(into_zeros(write))
    np.testing.assert_allclose(y, value)
    np.testing.assert_allclose(gradient, slope)
    np.testing.assert_allclose(gt.jit(into_zeros(write))(X), value)


def test_slices_take_no_results():
    slices = gt.IndexedSlices(X[:1], [0], (3,))
    for attempt in (
        lambda: np.add(gt.constant(X), 1.0, out=slices),
        lambda: np.add(X, 1.0, out=slices),
        lambda: np.sum(gt.constant([X, X]), axis=0, out=slices),
    ):
        with pytest.raises(gt.errors.InPlaceError, match="IndexedSlices"):
            attempt()


# What a tape says about its arguments


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"a": [1.0, "text"]}, TypeError, r"x\['a'\]\[1\] is a str"),
        ([1.0, {"b": np.ma.array([1.0])}], TypeError, r"x\[1\]\['b'\] is a MaskedArray"),
        ("text", TypeError, "x is a str"),
        ({"a": None}, ValueError, r"watch got None \(at \['a'\]\)"),
    ],
)
def test_watch_says_where_a_wrong_leaf_stands(given, error, words):
    with gt.GradientTape() as tape, pytest.raises(error, match=words):
        tape.watch(given)


def test_watch_says_where_integers_stand():
    with (
        gt.GradientTape() as tape,
        pytest.warns(gt.errors.IntegerWatchWarning, match=r"int64 \(at \['n'\]\)"),
    ):
        tape.watch({"n": np.array([1, 2]), "x": 1.0})


def test_a_plain_target_and_a_plain_source_have_different_remedies():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = x * x
    with pytest.raises(ValueError, match=r"stay with arrays: float\(x\) and x\.numpy\(\) leave the tape"):
        tape.gradient(y.numpy(), x)
    with pytest.raises(ValueError, match="use what watch returns"):
        tape.gradient(y, X)


def test_weights_by_name_have_the_names_of_the_targets():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        targets = {"loss": np.sum(x), "penalty": np.sum(x * x)}
    found = tape.gradient(targets, x, output_gradients={"penalty": 0.5, "loss": 1.0})
    np.testing.assert_array_equal(found, 1 + X)
    for wrong in ({"loss": 1.0, "penalties": 0.5}, {"loss": 1.0}):
        with pytest.raises(
            gt.errors.StructureError, match="output_gradients does not have the structure of target"
        ):
            tape.gradient(targets, x, output_gradients=wrong)


def test_slices_are_weights():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y, total = x * x, np.sum(x)
    slices = gt.IndexedSlices(np.array([10.0]), [1], (3,))
    np.testing.assert_array_equal(tape.gradient(y, x, output_gradients=slices), [0.0, 40.0, 0.0])
    np.testing.assert_array_equal(
        tape.gradient([y, total], x, output_gradients=[slices, 1.0]), [1.0, 41.0, 1.0]
    )


def test_errors_of_a_used_tape_name_the_users_line():
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(gt.errors.TapeError, match=r"where: .*test_concretize\.py"):
        tape.jacobian(y, x)


def test_a_tape_that_was_called_wrongly_dies_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="unexpected keyword"):
            gt.GradientTape(persistant=True)
