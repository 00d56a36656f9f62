"""Every function of NumPy that returns a view: writes through it and to its base are seen as in NumPy, or are an error."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as gt
import gradtape.ops
from gradtape.kinds.registry import TRIALS
from tests.support.differences import gradient_by_differences

LAYOUTS = {
    "C": lambda y: y,
    "transposed": lambda y: y.T.copy().T,
    "columns": lambda y: np.repeat(y, 2, axis=-1)[..., ::2] if y.ndim else y,
    "reversed": lambda y: y[::-1].copy()[::-1] if y.ndim else y,
    "computed": lambda y: y.T.copy().T * 1.0,
    "picked": lambda y: y[..., np.arange(y.shape[-1])] if y.ndim else y,
}


UNKNOWN = gt.errors.InPlaceError, gt.errors.UnsupportedFunctionError
"""What is raised where the order in memory is not known."""


def drawn(sample: Any, rng: Any) -> Any:
    if type(sample) is tuple and all(type(extent) is int for extent in sample):
        return rng.normal(size=sample)
    return sample


def cases() -> list[Any]:
    """Return each function with the arguments after the first, that returns memory of its first argument in NumPy."""
    found = []
    for function, trial in TRIALS.items():
        if isinstance(function, tuple):
            continue
        for args, kwargs in trial.samples:
            rng = np.random.default_rng(0)
            values = [drawn(arg, rng) for arg in args]
            if not values or not isinstance(values[0], np.ndarray):
                continue
            base = values[0].astype(float)
            try:
                result = function(base, *values[1:], **kwargs)
            except Exception:
                continue
            parts = result if isinstance(result, list | tuple) else [result]
            if any(isinstance(part, np.ndarray) and np.shares_memory(part, base) for part in parts):
                name = f"{function.__name__}-{len(found)}"
                found.append(pytest.param(function, base, values[1:], kwargs, id=name))
    return found


def extra(name: str, call: Any, *shape: int, dtype: Any = float) -> Any:
    base = np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return pytest.param(call, base, [], {}, id=name)


EXTRA = [
    extra("einsum-diagonal", lambda x: np.einsum("ii->i", x), 3, 3),
    extra("einsum-transpose", lambda x: np.einsum("ij->ji", x), 2, 3),
    extra("einsum-stack", lambda x: np.einsum("iij->ji", x), 2, 2, 3),
    extra("einsum-sum", lambda x: np.einsum("ij->i", x), 2, 3),
    extra("astype", lambda x: x.astype(float, copy=False), 2, 3),
    extra("astype-function", lambda x: np.astype(x, np.float64, copy=False), 2, 3),
    extra("asarray", lambda x: np.asarray(x), 2, 3),
    extra("asarray-dtype", lambda x: np.asarray(x, dtype=float), 2, 3),
    extra("ascontiguousarray", lambda x: np.ascontiguousarray(x), 2, 3),
    extra("asfortranarray", lambda x: np.asfortranarray(x), 2, 3),
    extra("from-dlpack", lambda x: np.from_dlpack(x), 2, 3),
    extra("from-dlpack-copy", lambda x: np.from_dlpack(x, copy=True), 2, 3),
    extra("array-no-copy", lambda x: np.array(x, copy=None), 2, 3),
    extra("array", lambda x: np.array(x), 2, 3),
    extra("conj", lambda x: x.conj(), 2, 3),
    extra("conj-complex", lambda x: x.conj(), 2, 3, dtype=complex),
    extra("real", lambda x: x.real, 2, 3, dtype=complex),
    extra("imag", lambda x: x.imag, 2, 3, dtype=complex),
    extra("rows", lambda x: list(x), 3, 2),
    extra("method-reshape", lambda x: x.reshape(3, 2), 2, 3),
    extra("method-reshape-F", lambda x: x.reshape(3, 2, order="F"), 2, 3),
    extra("method-reshape-A", lambda x: x.reshape(3, 2, order="A"), 2, 3),
    extra("reshape-ones", lambda x: x.reshape(2, 1, 3), 2, 3),
    extra("reshape-of-reshape", lambda x: x.reshape(2, 2, 3)[:, ::-1].reshape(4, 3), 4, 3),
    extra("reshape-of-columns", lambda x: x[:, :2].reshape(2, 2, 2), 4, 3),
    extra("reshape-of-columns-flat", lambda x: x[:, :2].reshape(-1), 4, 3),
    extra("ravel-K", lambda x: x.ravel("K"), 2, 3),
    extra("ravel-F", lambda x: x.ravel("F"), 2, 3),
    extra("ravel-A", lambda x: np.ravel(x, order="A"), 2, 3),
    extra("flatten", lambda x: x.flatten("K"), 2, 3),
    extra("copy-ravel", lambda x: x.copy("K").ravel("K"), 2, 3),
    extra("T", lambda x: x.T, 2, 3),
    extra("mT", lambda x: x.mT, 2, 2, 3),
    extra("method-swapaxes", lambda x: x.swapaxes(0, 1), 2, 3),
    extra("method-squeeze", lambda x: x.squeeze(), 2, 1, 3),
    extra("method-diagonal", lambda x: x.diagonal(), 3, 3),
    extra("diagonal-of-view", lambda x: np.diagonal(x[1:, :2])[:1], 3, 3),
    extra("several", lambda x: np.atleast_2d(x, x[0]), 2, 3),
    extra("keyword", lambda x: np.flip(m=x, axis=0), 2, 3),
    extra("part-of-split", lambda x: np.split(x.T, 3)[1].reshape(-1), 2, 3),
    extra("nan_to_num", lambda x: np.nan_to_num(x, copy=False), 2, 3),
    extra("trim_zeros", lambda x: x[1:3], 4),
]


def program(call: Any, rest: Any, kwargs: Any, layout: str, write: str) -> Any:
    """Return a function that writes through a view, or to its base, and shows what became of both."""

    def run(y: Any) -> Any:
        x = LAYOUTS[layout](y)
        result = call(x, *copy.deepcopy(rest), **kwargs)
        parts = list(result) if isinstance(result, list | tuple) else [result]
        outcome = "written"
        if write == "base":
            if x.ndim:
                x[...] = x * 2 + 1
        elif parts and np.ndim(parts[-1]):
            try:
                parts[-1][...] = parts[-1] * 2 + 1
            except (ValueError, DeprecationWarning):
                outcome = "refused"
        shown = [x + 0.0, *[part + 0.0 for part in parts if np.ndim(part)]]
        return outcome, shown

    return run


def plain(outcome: Any) -> Any:
    word, shown = outcome
    return word, [np.asarray(part) for part in shown]


@pytest.mark.parametrize("write", ["part", "base"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call, base, rest, kwargs", cases() + EXTRA)
def test_writes_are_seen_as_in_numpy(call, base, rest, kwargs, layout, write):
    run = program(call, rest, kwargs, layout, write)
    try:
        wanted = plain(run(base.copy()))
    except ValueError:  # the function does not take an array that is laid out so
        pytest.skip("NumPy refuses the call")
    word = []

    def follow(y: Any) -> Any:
        outcome, shown = run(y)
        word.append(outcome)
        return shown

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gt.errors.GradtapeWarning)
        for found in (jitted(follow, base), taped(follow, base)):
            if found is None:  # whether NumPy's is a view is not known here
                assert layout in ("computed", "picked") or not base.ndim
                continue
            assert word.pop() == wanted[0]
            assert len(found) == len(wanted[1])
            for ours, theirs in zip(found, wanted[1], strict=True):
                np.testing.assert_array_equal(np.asarray(ours), theirs)


def jitted(follow: Any, base: Any) -> Any:
    with gt.config.override(jit=False):
        try:
            return gt.jit(follow)(base)
        except UNKNOWN:
            return None


def taped(follow: Any, base: Any) -> Any:
    with gt.config.override(jit=False), gt.GradientTape() as tape:
        try:
            return [np.asarray(gt.asarray(part).numpy()) for part in follow(tape.watch(base))]
        except UNKNOWN:
            return None


def swapped(x: Any) -> Any:
    first = x[0]
    x[0] = x[-1]
    x[-1] = first
    return x


def read_before_a_write(x: Any) -> Any:
    element, array = x[1], x[1, ...]
    x[1] = 7.0
    return np.stack([element, array])


def added_to_an_element(x: Any) -> Any:
    element = np.squeeze(x[:1])
    element += 1
    return x


def scalar_reshaped(x: Any) -> Any:
    total = np.sum(x)
    column = np.atleast_1d(total)
    column[...] = 5.0
    return total + column


def swapped_twice(x: Any) -> Any:
    for i in range(len(x) - 1):
        smaller, larger = np.minimum(x[i], x[i + 1]), np.maximum(x[i], x[i + 1])
        x[i], x[i + 1] = larger, smaller
    a, b = x[0], x[1]
    x[0], x[1] = b, a
    return x


@pytest.mark.parametrize(
    "function", [swapped, read_before_a_write, added_to_an_element, scalar_reshaped, swapped_twice]
)
def test_an_element_that_was_read_is_a_number(function):
    x = np.array([3.0, 1.0, 2.0])
    wanted = function(x.copy())
    np.testing.assert_array_equal(gt.jit(function)(x), wanted)
    with gt.config.override(jit=False):
        np.testing.assert_array_equal(gt.jit(function)(x), wanted)
    for _ in range(4):  # from the third time on a tape is predicted
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            made = function(watched * 1.0)
            loss = np.sum(made * made)
        np.testing.assert_array_equal(made.numpy(), wanted)
        assert tape.gradient(loss, watched) is not None


def test_an_argument_of_another_layout_has_its_own_trace():
    @gt.jit
    def cleared(x):
        x.reshape(-1)[0] = 0.0
        return x

    def expected(x):
        x = x.copy("K")
        x.reshape(-1)[0] = 0.0
        return x

    a = np.arange(1.0, 7.0).reshape(2, 3)
    for argument in (a, a.T, np.asfortranarray(a), a, a.T):
        np.testing.assert_array_equal(cleared(argument), expected(argument))


def test_a_reshape_that_may_be_a_view_is_read_until_one_of_both_is_written_to():
    def base_read(x):
        y = x[:, np.array([1, 0])]  # NumPy lays it out column by column
        flat = y.reshape(-1)
        total = flat.sum() + y.sum()
        flat[0] = 0.0
        return total, y

    def part_read(x):
        y = x[:, np.array([1, 0])]
        flat = y.reshape(-1)
        y[0, 0] = 0.0
        return flat

    def neither(x):
        flat = x[:, np.array([1, 0])].reshape(-1)
        flat[0] = 0.0
        return flat

    x = np.arange(6.0).reshape(3, 2)
    for function in (base_read, part_read):
        with pytest.raises(gt.errors.InPlaceError, match="may have changed it"):
            gt.jit(function)(x)
    np.testing.assert_array_equal(gt.jit(neither)(x), neither(x))


def test_pieces_of_an_array_that_was_made_to_be_written_to():
    def filled(x):
        y = np.zeros((2, 3))
        top, bottom = np.split(y, 2)
        top[0] = x
        bottom[...] = 2 * top
        return y

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(gt.jit(filled)(x), filled(x))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(filled(x)))(x), [3.0, 3.0, 3.0])


def test_gradients_go_through_views_that_were_written_to():
    def f(x):
        y = x * 1.0
        np.einsum("ii->i", y)[...] = x[0] ** 2
        np.split(y, 2, axis=1)[1][...] *= 3.0
        np.rot90(y)[0, 0] = x[1, 1]
        return np.sum(y * np.arange(16.0).reshape(4, 4))

    x = np.random.default_rng(0).normal(size=(4, 4))
    gt.check_grads(f, (x,))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_view_is_followed_when_it_is_read_after_the_tape(persistent):
    with gt.GradientTape(persistent=persistent) as tape:
        x = tape.watch(np.arange(6.0).reshape(3, 2))
        y = x * 2
        view = y.T
        y[0] = 0
    assert tape.gradient(view, x).numpy().tolist() == [[0, 0], [2, 2], [2, 2]]


def enumerated(x):
    return sum((v**2 * (i + 2 * j) for (i, j), v in np.ndenumerate(x)), 0.0)


def flat_elements(x):
    return sum((v**3 for v in x.flat), 0.0) + x.flat[4] * x.flat[1:3].sum() + np.sum(np.sin(x.T.flat))


def flat_writes(x):
    y = np.zeros((3, 2))
    y.flat = x.flat
    y.flat[[0, 3]] = x[1, 1] ** 2
    return np.sum(y * np.arange(6.0).reshape(3, 2))


def iterated(x):
    y = x * 1.0
    with np.nditer(y, flags=["multi_index"], op_flags=["readwrite"]) as items:
        for v in items:
            v[...] = 2 * v + items.multi_index[0]
    total = sum((a * b for a, b in np.nditer([y, x[0]])), 0.0)
    items = np.nditer(x, ["c_index"])
    while not items.finished:
        total = total + items[0] * items.index
        items.iternext()
    return total


@pytest.mark.parametrize("function", [enumerated, flat_elements, flat_writes, iterated])
def test_iterators(function):
    x = np.array([[0.3, 1.2, -0.7], [0.9, -0.4, 1.6]])
    expected = gradient_by_differences(function, x)
    np.testing.assert_allclose(gt.jit(function)(x), function(x))
    np.testing.assert_allclose(gt.grad(function)(x), expected, atol=1e-7)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        value = function(watched)
    np.testing.assert_allclose(tape.gradient(value, watched), expected, atol=1e-7)


def test_iterators_that_are_refused_say_what():
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="external_loop"):
        gt.jit(lambda x: list(np.nditer(x, flags=["external_loop"])))(np.ones(3))


def set_own(x):
    y = x * 2
    y.shape = (2, -1)
    y[0] += 1
    return np.sum(y * np.arange(3.0))


def set_view(x):
    z = x.copy()
    v = z[:4]
    v.shape = 2, 2
    v[1] = 7 * v[0]
    return np.sum(z**2)


def set_created(x):
    z = np.zeros(6)
    z[:] = x
    z.shape = (1, *z.shape)
    return np.sum(z.T @ z * z)


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array")  # by NumPy from 2.5 on
@pytest.mark.parametrize("program", [set_own, set_view, set_created])
@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_the_shape_can_be_set(program, loops, monkeypatch):
    monkeypatch.setattr(gt.config, "loops", loops)
    x, h = np.arange(1.0, 7.0), 1e-6
    value, gradient = gt.value_and_grad(program)(x)
    np.testing.assert_allclose(value, program(x))
    slopes = [(program(x + h * row) - program(x - h * row)) / (2 * h) for row in np.eye(6)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5)
    with gt.GradientTape() as tape:
        watched = gt.constant(x)
        tape.watch(watched)
        total = program(watched)
    np.testing.assert_allclose(tape.gradient(total, watched), slopes, rtol=1e-5)


def test_a_shape_that_cannot_be_set():
    x = gt.constant(np.arange(6.0))
    with pytest.raises(ValueError, match="reshape"):
        x.shape = (4, 2)
    columns = gt.constant(np.ones((2, 3))).T
    with pytest.raises(AttributeError, match="Incompatible shape"):
        columns.shape = 6
    x.shape = (6,)
    part = x[1:]
    with pytest.raises(gt.errors.InPlaceError, match=r"x\.reshape"):
        x.shape = (2, 3)
    assert part.shape == (5,)
    with pytest.raises(AttributeError, match="Variable"):
        gt.Variable(np.ones(6)).shape = (2, 3)


def test_a_traced_extent_of_a_reshape_is_guarded():
    @gt.jit
    def rows(n, m, x):
        return np.sum(x.reshape(n * m).reshape(m, n)[0])

    x = np.arange(6.0)
    assert rows(2, 3, x.reshape(2, 3)) == 1.0
    assert rows(3, 2, x.reshape(2, 3)) == 3.0


# Grids


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
def test_grids_without_copies_are_views(indexing, sparse):
    x, y = np.arange(3.0), np.arange(2.0)

    def grids(x, y):
        return np.meshgrid(x, y, copy=False, sparse=sparse, indexing=indexing)

    for made, expected in zip(gt.jit(grids)(x, y), grids(x, y), strict=True):
        np.testing.assert_array_equal(made, expected)

    def written(x, y):
        grid = grids(x, y)[0]
        grid[...] = 7.0
        return np.sum(grid) + np.sum(x)

    if sparse:
        assert gt.jit(written)(x, y) == written(x.copy(), y)
    else:
        with pytest.raises(gt.errors.InPlaceError, match="read-only"):
            gt.jit(written)(x, y)


# Numbers as arrays


@pytest.mark.parametrize("number", [2.0, np.float64(2.0), np.array(2.0)])
def test_a_number_as_an_array_is_read(number):
    assert gt.jit(lambda s: np.ones((1, 1)) + np.atleast_2d(s))(number) == 3.0


# Items of iterators


def test_arrays_of_items_that_are_traced():
    x = np.arange(3.0)
    np.testing.assert_allclose(gt.grad(lambda x: np.sum(np.fromiter((v * v for v in x), float)))(x), 2 * x)
    made = gt.jit(lambda x: np.fromiter((v * v for v in x), np.float32, 2))(x)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, [0.0, 1.0])
    with pytest.raises(ValueError, match="iterator too short"):
        gt.jit(lambda x: np.fromiter(iter(x), float, 5))(x)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        total = np.sum(np.fromiter((v * v for v in watched), float))
    np.testing.assert_allclose(tape.gradient(total, watched), 2 * x)


# Rows whose number is traced


def row_written(p, x):
    row = p[np.argmax(x)]
    row[0] = 5.0 * x[0]
    row[1:] *= x[1]


def column_written(p, x):
    column = p[:, (x > 0).sum() % 3]
    column += x[0]
    p[0] *= 2.0
    column[1] = np.sum(column)


def rows_of_rows(p, x):
    k = np.argmin(x)
    p[k][k - 1 :][::-1][0] = x[2]
    p[k, :2] += p[np.argmax(x), 1:]
    p[np.argmax(x)] += p[k]


def read_after_the_base(p, x):
    k = np.argmax(x)
    row, copied = p[k], p[k].copy()
    p[:] = p * x[0]
    p[0] = row - copied


def listed(p, x):
    picked = p[[np.argmax(x)]]
    picked[0] = 7.0 * x[0]
    p[1] += picked[0]


def of_arrays(p, x):
    picked = p[np.asarray([1, 2])[np.argmax(x) % 2 :]]
    picked += x[0]
    p[0] += picked[0]


@pytest.mark.parametrize(
    "write", [row_written, column_written, rows_of_rows, read_after_the_base, listed, of_arrays]
)
def test_rows_whose_number_is_traced_are_views(write):
    def f(m, x):
        p = m.copy()
        write(p, x)
        write(p, -x)
        return np.sum(p * np.arange(1.0, 10.0).reshape(3, 3))

    m, x = np.arange(9.0).reshape(3, 3) / 4, np.array([0.3, 1.1, -0.6])
    expected = f(m, x)
    jitted = gt.value_and_grad(f, argnums=(0, 1))
    value, slopes = jitted(m, x)
    assert value == pytest.approx(expected, rel=1e-13)
    assert gt.jit(f)(m, -x) == pytest.approx(f(m, -x), rel=1e-13)
    with gt.config.override(jit=False):
        interpreted = jitted(m, x)
    with gt.GradientTape() as tape:
        watched = tape.watch(m), tape.watch(x)
        y = f(*watched)
    for found in (interpreted, (y.numpy(), tape.gradient(y, watched))):
        assert found[0] == pytest.approx(expected, rel=1e-13)
        for one, other in zip(found[1], slopes, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    h = 1e-6
    for k in range(3):
        step = h * np.eye(3)[k]
        difference = (f(m, x + step) - f(m, x - step)) / (2 * h)
        assert slopes[1][k] == pytest.approx(difference, rel=1e-6, abs=1e-6)


def test_zero_dimensional_arrays_pick_copies():
    def f(m, k):
        p = m.copy()
        row = p[k]
        row[0] = 5.0
        return p

    m = np.zeros((3, 3))
    for k in (1, np.array(1)):
        np.testing.assert_array_equal(gt.jit(f)(m, k), f(m, k))


STRIDED = {
    "windows": lambda x: np.lib.stride_tricks.as_strided(x, (5, 2), (8, 8)),
    "windows of a part": lambda x: np.lib.stride_tricks.as_strided(x[1:], (2, 2), (8, 8)),
    "backward": lambda x: np.lib.stride_tricks.as_strided(x[::-1], (3,), (-16,)),
    "patches": lambda x: np.lib.stride_tricks.as_strided(
        x.reshape(2, 3), (2, 2, 1, 2), x.reshape(2, 3).strides * 2
    ),
    "by columns": lambda x: np.lib.stride_tricks.as_strided(x.reshape(2, 3).T, (6,), (8,)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_of_memory(name):
    x, call = np.arange(1.0, 7.0), STRIDED[name]
    for jit in (False, True):
        with gt.config.override(jit=jit):
            np.testing.assert_array_equal(gt.jit(call)(x), call(x))
            slope = gt.grad(lambda x: np.sum(call(x) ** 2))(x)
    np.testing.assert_allclose(slope, gradient_by_differences(lambda x: np.sum(call(x) ** 2), x), rtol=1e-6)


def test_strides_beyond_the_memory_are_refused():
    with pytest.raises(ValueError, match="beyond the memory"):
        gt.jit(lambda x: np.lib.stride_tricks.as_strided(x, (7,), (8,)))(np.arange(6.0))


def test_writes_by_strides_are_seen():
    def every_second(x):
        y = np.exp(x)
        np.lib.stride_tricks.as_strided(y, (3,), (16,))[...] = 1.0
        return y

    x = np.arange(6.0)
    np.testing.assert_allclose(gt.jit(every_second)(x), every_second(x))


def test_the_same_shape_may_be_assigned_to_an_array_with_views():
    def f(x):
        y = x * 2
        row = y[0]
        y.shape = (3, 4)
        row[0] = 7.0
        return y

    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(gt.jit(f)(x), f(x))


RANK_0: dict[str, Any] = {
    "full_like": lambda x: np.full_like(x[0], x[1]),
    "zeros_like": lambda x: np.zeros_like(x[0]),
    "copy": lambda x: np.copy(x[0]),
    "where": lambda x: np.where(x[0] > 0, x[0], x[1]),
    "select": lambda x: np.select([x[0] > 0], [x[1]], 0.0),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x[0], x[1])[0].copy(),
    "broadcast_arrays of numbers": lambda x: np.broadcast_arrays(x[0], 3.0)[0].copy(),
    "astype": lambda x: np.asarray(x[0]).astype(np.float32),
    "scalar.astype": lambda x: x[0].astype(np.float32),
    "scalar.copy": lambda x: x[0].copy(),
    "clip": lambda x: np.clip(np.array(x[0]), 0, 1),
    "sum": lambda x: np.sum(x),
}
"""Functions whose results of rank 0 are arrays, or scalars."""


@pytest.mark.parametrize("name", RANK_0)
def test_results_of_rank_0_can_be_written_to_where_numpy_has_arrays(name: str) -> None:
    def written(x: Any) -> Any:
        y = RANK_0[name](x)
        if isinstance(y, np.ndarray):
            y[x[0] > 0] = 2 * x[1]
        return y * 3

    x = np.array([1.5, 0.5])
    np.testing.assert_array_equal(gt.jit(written)(x), written(x))
    np.testing.assert_array_equal(
        gt.grad(written)(x),
        [0.0, 6.0] if isinstance(RANK_0[name](x), np.ndarray) else gt.grad(lambda x: 3 * RANK_0[name](x))(x),
    )


def _owners(x: Any) -> Any:
    y, e = x[1:], x * 2
    return (
        x.base is None,
        y.base is x,
        y[1:].base is y,
        y[1:].base is x,
        x.T.T.base is x,
        x[:].base is x,
        y.base is x.base,
        e.base is None,
        e.T.base is e,
        e[0:1][0:1].base is e,
        e.reshape(-1).base is e,
        np.sort(x).base is None,
    )


@pytest.mark.parametrize("layout", ["its own", "strided", "rows", "columns"])
def test_the_base_of_a_view_is_the_owner_of_the_memory(layout: str) -> None:
    whole = np.arange(24.0).reshape(8, 3)
    x = {
        "its own": whole.copy(),
        "strided": whole[::2],
        "rows": whole[2:6],
        "columns": np.asfortranarray(whole),
    }[layout]
    found = []

    def f(x: Any) -> Any:
        found.append(_owners(x))
        return np.sum(x)

    for run in (gt.jit(f), gt.grad(f), lambda x: gt.vjp(f, x)):
        found.clear()
        run(x)
        assert found == [_owners(x)]
