"""What a function writes outside happens once for each call, also where a trace of it is given up, and not at all if the call fails."""

import array
import collections
import io
from types import SimpleNamespace

import numpy as np
import pytest

import gradtape as gt
from gradtape.runtime.compile.program import GuardMiss
from gradtape.trace.jit.specialisation import Specialisation

pytestmark = pytest.mark.filterwarnings("ignore::gradtape.errors.SideEffectWarning")


class Model:
    def __init__(self):
        self.calls = 0
        self.weights = np.ones(2)


class Counted:
    """A function that writes to a list, to a dictionary with an array in it, and to an object, before it computes."""

    def __init__(self, body):
        log, table, model = [], {"calls": 0, "weights": np.ones(2)}, Model()

        def function(x):
            log.append(1)
            table["calls"] += 1
            model.calls += 1
            return body(x * model.weights * table["weights"])

        self.compiled = gt.jit(function)
        self.written = lambda: (len(log), table["calls"], model.calls)

    def on_tape(self, x):
        with gt.GradientTape() as tape:
            y = self.compiled(tape.watch(x))
        return y


def factor_or_diagonal(x):
    try:
        return np.linalg.cholesky(np.diag(x))
    except np.linalg.LinAlgError:
        return np.diag(x)


def beyond(x):
    return x[7]


def test_python_that_runs_again_after_an_error_that_is_handled_writes_once():
    counted = Counted(factor_or_diagonal)
    x = np.array([-1.0, 2.0])
    for run in (1, 2):
        np.testing.assert_array_equal(counted.compiled(x), np.diag(x))
        assert counted.written() == (run, run, run)


def test_functions_that_assign_write_once_in_a_call_that_a_tape_follows():
    variable = gt.Variable(np.zeros(2))

    def accumulate(x):
        variable.assign_add(x)
        return x * variable

    counted = Counted(accumulate)
    for run in (1, 2, 3):
        np.testing.assert_array_equal(counted.on_tape(np.array([1.0, 2.0])), np.array([1.0, 4.0]) * run)
        assert counted.written() == (run, run, run)


@pytest.mark.parametrize("tape", [False, True])
def test_a_call_that_fails_has_written_nothing(tape):
    counted = Counted(beyond)
    for _ in range(2):
        with pytest.raises(IndexError):
            (counted.on_tape if tape else counted.compiled)(np.ones(2))
        assert counted.written() == (0, 0, 0)


def parity(x):
    """Look at the last bit of a sum, which depends on the order of the terms."""
    total = np.sum(np.exp(x))
    return total * 2.0 if total * 2.0**42 % 2.0 >= 1.0 else total * 3.0


def rounded_otherwise():
    """Return numbers of which the kernel makes a sum whose last bit differs from that of NumPy's."""
    kernel = gt.jit(lambda x: np.sum(np.exp(x)))
    for seed in range(100):
        x = np.random.default_rng(seed).normal(size=1000)
        if (kernel(x) - np.sum(np.exp(x))) * 2.0**42 % 2.0 == 1.0:
            return x
    pytest.skip("the kernel rounds as NumPy does")


def test_a_kernel_that_rounds_otherwise_than_the_trace_does_not_run_python_again():
    x, calls = rounded_otherwise(), []

    @gt.jit
    def function(x):
        calls.append(1)
        return parity(x)

    assert function(x) == pytest.approx(parity(x), rel=1e-12)
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_a_guard_on_which_kernel_and_trace_always_disagree_is_not_traced_again(monkeypatch):
    @gt.jit
    def function(x):
        return x * 2.0 if x[0] > 0.0 else x * 3.0

    def missed(specialisation, arrays, generators=(), assign=None):
        raise GuardMiss(0, 0)

    x = np.array([1.0, 0.0, -1.0, 0.0])[::2]  # which machine code does not take directly
    monkeypatch.setattr(Specialisation, "run", missed)
    for traces in (1, 2, 2, 2):
        np.testing.assert_array_equal(function(x), x * 2.0)
        assert function.site.traces == traces


NAMESPACE: dict = {}
exec("def double(x):\n    return 2.0 * x\n\ndef typed(x):\n    return x if x is None else input()", NAMESPACE)


@pytest.mark.filterwarnings("error")
def test_a_namespace_of_exec_warns_of_no_builtins():
    """exec puts all builtins into its namespace, open and input among them."""
    assert gt.jit(lambda x: NAMESPACE["double"](x))(3.0) == 6.0
    assert gt.grad(lambda x: NAMESPACE["double"](x))(3.0) == 2.0
    assert gt.jit(NAMESPACE["double"])(3.0) == 6.0


def test_code_of_a_namespace_of_exec_that_reads_input_warns(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1.0\n"))
    with pytest.warns(gt.errors.SideEffectWarning, match="input"):
        gt.jit(lambda x: x + float(NAMESPACE["typed"](x)))(3.0)


@pytest.mark.filterwarnings("error")
def test_arrays_and_texts_are_put_into_lists():
    arrays, names = [0.0], ["a"]

    def keep_array(x):
        arrays[0] = arrays[0] + x * 2
        return x + 1

    def keep_text(x):
        names[0] = names[0] + "b"
        names.append("c")
        return x + 1

    gt.jit(keep_array)(np.ones(2))
    gt.jit(keep_text)(np.ones(2))
    assert type(arrays[0]) is np.ndarray and arrays[0].tolist() == [2.0, 2.0]
    assert names == ["ab", "c"]


LONG = {
    "list": lambda items: items,
    "tuple": tuple,
    "deque": collections.deque,
    "array": lambda items: array.array("d", items),
    "dict": lambda items: dict(enumerate(items)),
    "set": lambda items: {*map(int, items)},
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_container_that_is_read_is_not_written(kind):
    """Its numbers above 256 are objects that Python makes at each iteration."""
    container = LONG[kind]([float(k) for k in range(400)])
    last = 399

    def read(x):
        item = 1.0 * (last in container) if kind == "set" else container[last]
        return np.sum(x * item) + len(container)

    function = gt.jit(read)
    assert function(np.ones(2)) == read(np.ones(2))
    assert not function.site.specialisations()[0].effects.changes
    assert function.site.specialisations()[0].is_native
    if kind in ("list", "tuple", "dict"):
        gradient = gt.grad(lambda items: items[last] ** 2 + items[0])
        found = gradient(container)
        assert type(found) is type(container) and (found[0], found[last], found[5]) == (1.0, 798.0, 0.0)
        assert gradient.site.specialisations()[0].is_native
        batch = type(container)(LONG[kind]([np.arange(3.0)] * 400))
        np.testing.assert_array_equal(
            gt.vmap(lambda items: items[0] * items[last])(batch), np.arange(3.0) ** 2
        )


def test_an_item_of_a_long_array_of_the_standard_library_that_changes_is_seen():
    numbers = array.array("d", [0.0] * 400)

    def write(x):
        numbers[300] = -0.0
        return x * 2.0

    function = gt.jit(write)
    for _ in range(2):
        numbers[300] = 0.0
        function(1.0)
        assert np.signbit(numbers[300])


@pytest.mark.parametrize("options", [{}, {"static_argnums": 1}], ids=["", "static"])
def test_what_objects_and_functions_among_the_arguments_hold_is_an_input(options):
    """One trace serves all numbers: the trace sees copies of these arguments, in which arrays and numbers are inputs."""
    model = SimpleNamespace(value=1.0)
    scale = np.array([1.0, 2.0])
    read = gt.jit(lambda x, model: x * model.value, **options)
    called = gt.jit(lambda x, function: function(x), **options)

    def scaled(x):
        return x * scale[0]

    for number in (1.0, 2.0, 5.0):
        model.value = scale[0] = number
        assert read(3.0, model) == called(3.0, scaled) == 3.0 * number
    assert read.site.traces == called.site.traces == 1


@pytest.mark.parametrize("options", [{}, {"static_argnums": 1}], ids=["", "static"])
def test_objects_among_the_arguments_are_written_to(options):
    def doubled(x, model):
        model.value = model.value * 2.0
        return x * model.value

    model, compiled = SimpleNamespace(value=1.0), gt.jit(doubled, **options)
    assert [compiled(3.0, model) for _ in range(3)] == [6.0, 12.0, 24.0]
    assert model.value == 8.0
