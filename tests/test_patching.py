"""Hooks in functions of NumPy and SciPy: the functions stay the objects that they are, whoever records, and user code is followed."""

import functools
import importlib.util
import inspect
import pickle
import types
import weakref

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats
from numpy import zeros as zeros_by_another_name

import gradtape as gt
from gradtape.trace.patching.interpose import original
from gradtape.trace.patching.recorders import RECORDERS

X = np.array([1.0, 2.0])
HOOKED = [
    "array",
    "asarray",
    "asanyarray",
    "ascontiguousarray",
    "asfortranarray",
    "zeros",
    "empty",
    "zeros_like",
    "empty_like",
    "ones_like",
    "full_like",
]
IN_PYTHON = ["ones", "full", "eye", "identity", "vectorize"]
SCIPY = [
    scipy.special.logsumexp,
    scipy.linalg.cholesky,
    scipy.linalg.solve,
    scipy.linalg.inv,
    scipy.stats.norm.cdf,
]


def names_of_numpy():
    return {
        name: (item, hash(item) if item.__hash__ else None)
        for name, item in vars(np).items()
        if name[0] != "_"
    }


BEFORE = names_of_numpy()


def numpy_is_as_it_was():
    now = names_of_numpy()
    return all(now[name][0] is item and now[name][1] == number for name, (item, number) in BEFORE.items())


# NumPy is NumPy's


def test_nothing_differs_while_somebody_records():
    seen = []

    def look(x):
        seen.append(numpy_is_as_it_was())
        return np.sum(x)

    with gt.GradientTape():
        look(X)
    for transform in (gt.jit, gt.grad, gt.vmap, gt.jacobian):
        transform(look)(X)
    with gt.ForwardAccumulator(gt.constant(1.0), 1.0):
        look(X)

    def generator():
        with gt.GradientTape():
            yield
            yield

    suspended = generator()
    next(suspended)
    look(X)
    with pytest.raises(KeyError), gt.GradientTape():
        raise KeyError
    look(X)
    del suspended
    look(X)
    assert seen and all(seen)
    assert not RECORDERS


@pytest.mark.parametrize("name", HOOKED)
def test_a_hooked_function_is_as_it_was(name):
    gt.grad(np.sum)(X)
    function, plain = getattr(np, name), original(getattr(np, name))
    assert plain is not function
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__name__ == name and "function" in repr(function) and f" {name}" in repr(function)
    assert function.__doc__ and function.__module__ == "numpy"
    inspect.signature(np.zeros)
    if type(function) is types.BuiltinFunctionType:
        assert function.__self__ is np._core._multiarray_umath
        assert plain.__self__ is function
    assert hash(function) == BEFORE[name][1]


@pytest.mark.parametrize("function", SCIPY)
def test_a_function_of_scipy_is_as_it_was(function):
    gt.grad(np.sum)(X)
    assert inspect.signature(function)
    function = getattr(function, "__func__", function)
    source = inspect.getsource(function)
    assert f"def {function.__name__}(" in source
    assert (
        function.__code__.co_filename == inspect.getsourcefile(inspect.unwrap(function))
        or "_lib" in source + function.__code__.co_filename
    )
    assert pickle.loads(pickle.dumps(scipy.special.logsumexp)) is scipy.special.logsumexp


CALLS = [
    lambda: np.zeros(3),
    lambda: np.zeros(shape=(2, 3), dtype=np.int32, order="F"),
    lambda: np.zeros(*(3,), dtype="f4"),
    lambda: np.empty((0, 2)),
    lambda: np.array([[1, 2], [3, 4]], dtype=float),
    lambda: np.array(X, copy=True, ndmin=2),
    lambda: np.asarray((1, 2.5)),
    lambda: np.asarray(a=[1]),
    lambda: np.zeros_like(X, dtype=int),
    lambda: np.full_like(X, 3.0),
    lambda: np.ones(2, like=X),
    lambda: np.array([1, "a", None], dtype=object),
    lambda: functools.partial(np.zeros, 2)(),
    lambda: list(map(np.zeros, [1, 2])),
    lambda: np.vectorize(np.sqrt)(X),
    lambda: np.fromiter(map(np.asarray, [1.0, 2.0]), float),
]
WRONG = [
    lambda: np.zeros(),
    lambda: np.zeros(3, shape=3),
    lambda: np.zeros(3, colour=1),
    lambda: np.array(),
    lambda: np.array([1], [2], [3], [4]),
    lambda: np.asarray([1], dtype="nonsense"),
    lambda: np.zeros(-1),
    lambda: np.zeros_like(),
    lambda: np.empty("a"),
    lambda: np.full_like(X),
]


@pytest.mark.parametrize("call", CALLS)
def test_results_are_numpys(call):
    wanted = call()
    with gt.GradientTape():
        found = call()
    for a, b in zip(*[item if isinstance(item, list) else [item] for item in (wanted, found)], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if "empty" not in call.__code__.co_names:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("call", WRONG)
def test_errors_are_numpys(call):
    with pytest.raises((TypeError, ValueError)) as before:
        call()
    with pytest.raises(type(before.value)) as now, gt.GradientTape():
        call()
    assert str(now.value) == str(before.value)


# Names in other modules

MODULE = """
from numpy import zeros, array, ones as einsen
from scipy.special import logsumexp

def f(x):
    y = zeros(2)
    y[0], y[1] = 3 * x[0], 5 * x[1]
    return y.sum() + 0 * array([x[0], 1.0]).sum() + 0 * logsumexp(x)

def g(x):
    y = einsen(2)
    y[0] = x[0] * x[1]
    return y.sum()
"""


def module_of_the_users(tmp_path, name):
    path = tmp_path / f"{name}.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRAINER = """
import gradtape as gt

def by_tape(f, x):
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)

def by_jit(f, x):
    return gt.jit(gt.grad(f))(x)
"""


@pytest.mark.parametrize("way", ["by_tape", "by_jit"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_names_imported_into_other_modules(tmp_path, way, when):
    trainer = {}
    exec(compile(TRAINER, str(tmp_path / "trainer.py"), "exec"), trainer)
    made = []

    def loaded():
        if not made:
            made.append(module_of_the_users(tmp_path, f"users_{way}_{when}"))
        return made[0]

    if when == "before":
        loaded()
    np.testing.assert_array_equal(trainer[way](lambda x: loaded().f(x), X), [3.0, 5.0])
    np.testing.assert_array_equal(trainer[way](loaded().f, X), [3.0, 5.0])
    np.testing.assert_array_equal(trainer[way](loaded().g, X), [2.0, 1.0])
    assert made[0].zeros is np.zeros and made[0].array is np.array and made[0].einsen is np.ones
    assert made[0].logsumexp is scipy.special.logsumexp
    assert type(made[0].zeros(3)) is np.ndarray


def by_alias(x):
    make = np.zeros
    y = make(2)
    y[0] = x[0]
    return y.sum()


def by_argument(x, make=np.zeros):
    y = make(2)
    y[0] = x[0]
    return y.sum()


def by_closure(x):
    make = np.empty

    def inner():
        y = make(1)
        y[0] = x[0]
        return y.sum()

    return inner() + 0 * make(1).size


def by_cell_of_its_own(x):
    make = np.zeros
    y = make(2)
    y[0] = x[0]
    return y.sum() + 0 * (lambda: make(1).size)()


def by_partial(x):
    make = functools.partial(np.full, 2)
    y = make(0.0)
    y[0] = x[0]
    return y.sum()


class Makers:
    zeros_of_two = np.zeros

    def __init__(self):
        self.eye = np.eye
        self.other = np.identity


def by_attribute(x):
    makers = Makers()
    y = makers.eye(1)
    y[0] = x[0]
    z = makers.other(1)
    z[0] = 0 * x[0]
    w = Makers.zeros_of_two(1)
    w[0] = 0 * x[0]
    return y.sum() + z.sum() + w.sum()


def by_global_alias(x):
    y = zeros_by_another_name(2)
    y[0] = x[0]
    return y.sum()


def by_stars(x):
    y = np.zeros(*(2,), dtype=float)
    y[0] = x[0]
    return y.sum()


def by_several_lines(x):
    y = np.zeros(
        2,
        dtype=float,
    )
    y[0] = x[0]
    return y.sum()


def in_a_comprehension(x):
    rows = [np.zeros(1) for _ in range(2)]
    rows[0][0] = x[0]
    return rows[0].sum()


def in_a_class_body(x):
    class Body:
        zero = np.zeros
        y = zero(1)
        y[0] = x[0]

    return Body.y.sum()


@pytest.mark.parametrize(
    "function",
    [
        by_alias,
        by_argument,
        by_closure,
        by_cell_of_its_own,
        by_partial,
        by_attribute,
        by_global_alias,
        by_stars,
        by_several_lines,
        in_a_comprehension,
        in_a_class_body,
    ],
)
def test_arrays_made_by_other_names(function):
    np.testing.assert_array_equal(gt.grad(function)(X), [1.0, 0.0])
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 0.0])


def test_compiled_code_in_a_users_frame_gets_ndarrays():
    rng = np.random.default_rng(0)
    draw = rng.normal
    draws = {"normal": draw}

    def drawn(x, sample=rng.standard_normal):
        arrays = [
            draw(size=3),
            draws["normal"](size=2),
            sample(2),
            rng.normal(size=2),
            functools.partial(draw, size=2)(),
        ]
        assert {type(array) for array in arrays} == {np.ndarray}
        return np.sum(x) + 0 * sum(array.sum() for array in arrays)

    np.testing.assert_array_equal(gt.grad(drawn)(X), [1.0, 1.0])


def test_a_name_leaves_no_reference_to_locals():
    """Before Python 3.13 frame.f_locals would keep what the names stood for."""

    class Thing:
        pass

    def work():
        make, thing = np.zeros, Thing()
        gone = weakref.ref(thing)
        make(2)
        del thing
        return gone() is None

    with gt.GradientTape():
        assert work()
