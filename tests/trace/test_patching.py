"""Hooks in functions of NumPy and SciPy: the functions stay the objects that they are, whoever records, and user code is followed."""

import functools
import importlib.util
import inspect
import os
import pickle
import threading
import types
import weakref

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
import scipy.special
import scipy.stats
from numpy import zeros as zeros_by_another_name

import gradtape as gt
from gradtape.trace.patching import interpose, recorders
from gradtape.trace.patching.interpose import without_hook
from gradtape.trace.patching.recorders import RECORDERS
from tests.support.processes import words_printed
from tests.support.recording import Runs

X = np.array([1.0, 2.0])

actual_type = type
"""Calls of `type` itself have the answer of NumPy's code."""
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
        if name[0] != "_" and not isinstance(item, float)  # numbers that a traced function reads are traced
    }


BEFORE = names_of_numpy()


def numpy_is_as_it_was():
    now = names_of_numpy()
    return all(now[name][0] is item and now[name][1] == number for name, (item, number) in BEFORE.items())


# NumPy is NumPy's


def test_nothing_differs_while_somebody_records():
    runs = Runs()

    def look(x):
        assert numpy_is_as_it_was()
        runs.append(x)
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
    assert runs
    assert not RECORDERS


@pytest.mark.parametrize("name", HOOKED)
def test_a_hooked_function_is_as_it_was(name):
    gt.grad(np.sum)(X)
    function, plain = getattr(np, name), without_hook(getattr(np, name))
    assert plain is not function
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__name__ == name and "function" in repr(function) and f" {name}" in repr(function)
    assert function.__doc__ and function.__module__ == "numpy"
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
    zeros_of_two = staticmethod(np.zeros)

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

    def drawn(sample=rng.standard_normal):
        arrays = [
            draw(size=3),
            draws["normal"](size=2),
            sample(2),
            rng.normal(size=2),
            functools.partial(draw, size=2)(),
        ]
        return {type(array) for array in arrays}

    with gt.GradientTape():
        assert drawn() == {np.ndarray}


def test_a_compiled_function_of_the_same_name_gets_ndarrays():
    class Generator:
        zeros = staticmethod(np.random.default_rng(0).standard_normal)

    with gt.GradientTape():
        for _ in range(3):
            assert type(Generator.zeros(size=3)) is np.ndarray
        assert actual_type(np.zeros(3)) is not np.ndarray


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


# Processes


NUMBA = """
import numpy as np, numba, gradtape as gt

def compiled():
    @numba.njit
    def f(n):
        a, b = np.zeros(n), np.empty(n)
        b[:] = 1
        return (a + b + np.ones(n) + np.full(n, 2.0)).sum()
    return f(3)

def traced(x):
    print(compiled())
    return x * 2

{first}
print(compiled())
"""


@pytest.mark.parametrize(
    "first", ["gt.jit(gt.grad(traced))(1.0)", "with gt.GradientTape(): print(compiled())"]
)
def test_numba_compiles_for_the_first_time_while_somebody_records(first):
    assert words_printed(NUMBA.format(first=first)) == ["12.0", "12.0"]


LATE = """
import sys
import threading
import numpy as np, gradtape as gt
from gradtape.trace.patching import imports

def f(x):
    from scipy.special import logsumexp
    import scipy.stats
    return logsumexp(x) + scipy.stats.norm.logpdf(x[0])

assert "scipy.special" not in sys.modules and "scipy.stats" not in sys.modules
if sys.argv[1] == "jit":
    gradient = gt.jit(gt.grad(f))(np.array([1.0, 1.0]))
else:
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.0, 1.0]))
        y = f(x)
    gradient = tape.gradient(y, x).numpy()
print(*gradient)
import scipy.linalg, scipy.fft, scipy.ndimage, scipy.signal, scipy.cluster, scipy.integrate, scipy.interpolate
import scipy.optimize, scipy.sparse.linalg, scipy.spatial.transform
assert not imports._awaited.keys() & sys.modules.keys()
for module in (scipy.special, scipy.stats, scipy.linalg, scipy.fft):
    assert "gradtape" not in type(module.__loader__).__module__ + type(module.__spec__.loader).__module__
"""


@pytest.mark.parametrize("way", ["jit", "tape"])
def test_scipy_is_imported_for_the_first_time_while_somebody_records(way):
    assert words_printed(LATE, way) == ["-0.5", "0.5"]


END = """
import builtins, math, os
import numpy as np, gradtape as gt

class Late:
    def __del__(self, zeros=np.zeros, array=np.array, sin=math.sin, dot=np.ndarray.dot, write=os.write):
        write(1, f"{zeros(2).shape[0] + array([1.0, 2.0]).size + sin(0.0) + dot(zeros(1), zeros(1))} ".encode())

def suspended():
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(2))
        yield np.zeros(2)

builtins.kept, np.kept, kept = Late(), Late(), Late()
builtins.generator = suspended()
next(builtins.generator)
"""


def test_finalisers_call_numpy_while_python_ends():
    assert words_printed(END) == ["4.0"] * 3


FORK = """
import os, threading, warnings
import numpy as np, gradtape as gt
warnings.simplefilter("ignore")

def work():
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(2))
        y = np.zeros(2)
        y[0] = 3 * x[0]
        z = y.sum() + np.array([x[1], 1.0]).sum()
    return tape.gradient(z, x).numpy().tolist()

first = threading.Thread(target=work)
first.start()
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        os._exit(work() != [3.0, 1.0])
    children.append(child)
first.join()
with gt.GradientTape():
    child = os.fork()
    if not child:
        os._exit(type(np.zeros(2)) is np.ndarray)
children.append(child)
print(*[os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_before_while_and_after_hooks_are_installed():
    assert words_printed(FORK) == ["0"] * 5


INTERRUPTED = """
import sys
import numpy as np
before = {name: (item, hash(item)) for name, item in vars(np).items() if callable(item) and item.__hash__}
import gradtape as gt
from gradtape.trace.patching.recorders import RECORDERS

def work():
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(2))
        y = np.zeros(2)
        y[0] = 3 * x[0]
        z = y.sum() + np.array([x[1], 1.0]).sum() + np.ones(1).sum()
    return tape.gradient(z, x).numpy().tolist()

def interrupted(k):
    count = 0
    def see(frame, event, argument):
        nonlocal count
        if event in ("call", "c_return") and "patching" in frame.f_code.co_filename:
            count += 1
            if count == k + 1:
                raise KeyboardInterrupt
    sys.setprofile(see)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return count > k

k = 0
while interrupted(k):
    k += 1
    assert not RECORDERS
    assert all(vars(np)[name] is item and hash(item) == number for name, (item, number) in before.items())
assert work() == [3.0, 1.0]
print(k > 10)
"""


def test_an_interruption_from_the_first_recording_on_leaves_numpy_as_it_was():
    assert words_printed(INTERRUPTED) == ["True"]


def test_threads_that_record_nothing_get_ndarrays_while_others_record():
    done, kinds = threading.Event(), []

    def plain():
        while not done.is_set():
            kinds.append(set(map(actual_type, (np.zeros(2), np.array([1.0]), np.ones_like(X), np.eye(2)))))

    threads = [threading.Thread(target=plain) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        np.testing.assert_array_equal(gt.grad(by_alias)(X), [1.0, 0.0])
        with gt.GradientTape():
            assert actual_type(np.zeros(2)) is not np.ndarray
    done.set()
    for thread in threads:
        thread.join()
    assert kinds and all(kind == {np.ndarray} for kind in kinds)


def test_a_python_with_other_objects_is_left_alone(monkeypatch):
    monkeypatch.setattr(interpose, "HEAD", 24)
    interpose._can_install.cache_clear()
    try:
        with pytest.warns(gt.errors.GradtapeWarning, match="what to do: write np.zeros"):
            interpose.interpose(None, interpose.When.ALWAYS, [np.frombuffer])
        interpose.interpose(None, interpose.When.ALWAYS, [np.frombuffer])
        assert np.frombuffer not in interpose._hooks
    finally:
        interpose._can_install.cache_clear()


REFUSED = """
import warnings
import numpy as np, gradtape as gt
from gradtape.trace.patching import interpose

def load(*args, **kwargs):
    raise RuntimeError("no memory to execute")

interpose.load_resident = load
number = hash(np.zeros)
for k in range(2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gt.GradientTape() as tape:
            x = tape.watch(np.ones(2))
            y = np.zeros(2, like=x)
            y[0] = 3 * x[0]
            z = np.stack([x[1], 0.0]).sum() + y.sum()
    assert len(caught) == (k == 0), caught
    assert tape.gradient(z, x).numpy().tolist() == [3.0, 1.0]
    assert hash(np.zeros) == number and type(np.zeros(2)) is np.ndarray and np.array([1.0]).size == 1
print("fine")
"""


def test_where_no_machine_code_can_be_loaded():
    assert words_printed(REFUSED) == ["fine"]


def test_functions_that_take_a_tuple_and_a_dict():
    """Those have no pointer of their own to be called by; np.zeros was one of them in earlier versions of NumPy."""
    seen, function = [], np.frombuffer

    def look(called, *args, **kwargs):
        seen.append((called, args, kwargs))
        return NotImplemented if kwargs else interpose.without_hook(called)(*args)

    number = hash(function)
    recorders.before_recording(lambda: interpose.interpose(look, interpose.When.ALWAYS, [function]))
    data = X.tobytes()
    with gt.GradientTape():
        np.testing.assert_array_equal(function(data, float), X)
        np.testing.assert_array_equal(function(data, dtype=float), X)
    assert [(called, len(args), kwargs) for called, args, kwargs in seen] == [
        (function, 2, {}),
        (function, 1, {"dtype": float}),
    ]
    np.testing.assert_array_equal(function(data, dtype=float), X)
    with pytest.raises(TypeError):
        function()
    assert len(seen) == 2 and hash(function) == number
    interpose._hooks[function] = lambda called, *args, **kwargs: NotImplemented


def test_a_hooked_generator_stays_one():
    """`generate_knots` yields its knots: while somebody records, and afterwards."""
    x = np.linspace(0.0, 1.0, 12)
    expected = [len(knots) for knots in scipy.interpolate.generate_knots(x, np.sin(9 * x), k=3, s=1e-4)]
    with gt.GradientTape() as tape:
        tape.watch(1.0)
        recorded = [len(knots) for knots in scipy.interpolate.generate_knots(x, np.sin(9 * x), k=3, s=1e-4)]
    assert inspect.isgeneratorfunction(scipy.interpolate.generate_knots)
    assert recorded == expected and len(expected) > 1
