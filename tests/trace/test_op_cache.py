"""The op cache: a cached call does what the first one did, in few calls of Python functions, which are counted."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import warnings
import weakref
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Graph, Value, extract
from gradtape.ir.templates import placeholder, template_of
from gradtape.ir.types import FLOAT64, aval
from gradtape.kinds.registry import TRIALS
from gradtape.runtime.compile.program import Program, tape_program
from gradtape.trace.lazy import force
from gradtape.trace.lazy.pending import live_arrays
from tests.support.numpy_calls import TOLERANCE, Call, flatten, title
from tests.support.recording import FUNCTIONS, Runs, arrays_for, calls_of, shown

kept: list[Any] = []
"""References to the arrays that a collection has left: modules hold them, or reports of tests."""


@pytest.fixture(autouse=True)
def no_pending_garbage() -> None:
    """Arrays in reference cycles of earlier tests would be computed along with those of a test that counts calls.

    A collection takes seconds in a process that has run all tests: there is none where only arrays are left that the last one left.
    """
    if not {id(reference) for reference in _living()} <= {id(reference) for reference in kept}:
        gc.collect()
        kept[:] = _living()


def _living() -> list[Any]:
    return [reference for reference in tuple(live_arrays.handles) if reference() is not None]


# Cached calls


@pytest.mark.parametrize("key", FUNCTIONS, ids=title)
def test_the_third_call_does_what_the_first_did(key):
    for sample in TRIALS[key].samples:
        outcomes = []
        for number in range(4):
            call = Call(sample)
            call.rng = np.random.default_rng(3 + (number == 3))
            args = [arrays_for(argument) for argument in call.args]
            expected = call.expected(key)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = shown(key(*args, **call.kwargs))
            except Exception as error:
                found = error
            outcomes.append(type(found))
            if isinstance(expected, Exception) or isinstance(found, Exception):
                continue
            for ours, theirs in zip(found, flatten(expected) if found else (), strict=True):
                assert ours.dtype == np.asarray(theirs).dtype
                np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE.get(ours.dtype.char, 1e-9), atol=1e-9)
        assert len(set(outcomes)) == 1


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_other_signs_are_other_numbers(zeros):
    condition, x = gt.constant([False]), gt.constant([1.0])
    for _ in range(3):
        for zero in zeros:
            signs = [np.where(condition, x, zero), np.copysign(x, zero), x * zero, np.full_like(x, zero)]
            assert [bool(np.signbit(np.asarray(gt.asarray(s).numpy()))[0]) for s in signs] == [
                bool(np.signbit(zero))
            ] * 4


def test_equal_numbers_of_other_types_are_others():
    x = gt.constant(np.arange(4, dtype=np.int8).reshape(2, 2))
    for _ in range(3):
        dtypes = [np.where(x > 1, x, number).dtype for number in (True, 1, 1.0, 1j, np.float32(1))]
        assert dtypes == [
            np.where(np.zeros((2, 2), bool), x.numpy(), n).dtype for n in (True, 1, 1.0, 1j, np.float32(1))
        ]
        assert np.sum(x, 1).shape == (2,)
        assert np.sum(x, keepdims=True).shape == (1, 1)


def test_numpy_warns_each_time_that_imaginary_parts_are_lost():
    z = gt.constant([1 + 2j])
    for _ in range(4):
        with pytest.warns(np.exceptions.ComplexWarning):
            np.sum(z, dtype=float)


def test_what_asks_for_numbers_is_asked_each_time():
    for numbers in ([3.0, 1.0, 3.0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [5.0, 4.0, 4.0]):
        found = np.unique(gt.constant(numbers))
        np.testing.assert_array_equal(found.numpy(), np.unique(numbers))


def test_errors_come_each_time_at_their_own_line():
    x, y = gt.constant(np.ones((2, 3))), gt.constant(np.ones((4, 5)))
    places = []
    for _ in range(4):
        with pytest.raises(gt.errors.ShapeError) as first:
            np.concatenate((x, y), axis=7) if False else np.matmul(x, y)
        with pytest.raises(gt.errors.ShapeError) as second:
            x @ y
        places.append((str(first.value), str(second.value)))
    assert len(set(places)) == 1
    assert places[0][0] != places[0][1]


def test_nodes_belong_to_the_line_that_made_them():
    x = gt.constant([1.0, 2.0])
    sites = []
    for _ in range(3):
        sites.append(np.sum(x).value.node.site.line)
        sites.append(np.sum(x).value.node.site.line)
    assert len(set(sites)) == 2
    assert {np.sum(x).value.node.site.via, x.sum().value.node.site.via} == {"np.sum", "x.sum"}


def test_a_placeholder_has_no_data():
    start = placeholder(aval((2,), FLOAT64))
    with pytest.raises(AttributeError):
        start.data  # noqa: B018
    assert template_of([start], [Value(aval((2,), FLOAT64), data=np.ones(2))]) is None
    template = template_of([start], [(start * 2.0) + start])
    other = Value(aval((2,), FLOAT64), data=np.ones(2))
    nodes, leaves = extract([template(other)])
    assert [node.op.name for node in nodes] == ["multiply", "add"]
    assert leaves == [other]


def test_views_of_cached_calls_write_through():
    for _ in range(4):
        x = gt.constant(np.arange(6.0)) * 1.0
        x.reshape(2, 3)[1] = 7.0
        x[1:3] += 1.0
        part = x[::2]
        part *= 2.0
        expected = np.arange(6.0)
        expected.reshape(2, 3)[1] = 7.0
        expected[1:3] += 1.0
        expected[::2] *= 2.0
        np.testing.assert_array_equal(x.numpy(), expected)


# Templates of derivatives


def gradient_of(function, *numbers, **options):
    with gt.GradientTape() as tape:
        watched = tape.watch([gt.constant(n) for n in numbers])
        y = function(*watched)
    return [None if g is None else g.numpy().tolist() for g in tape.gradient(y, watched, **options)]


def test_records_that_differ_in_one_place_are_told_apart():
    for _ in range(4):
        assert gradient_of(lambda x, y: np.sum(x * y), [2.0], [3.0]) == [[3.0], [2.0]]
        assert gradient_of(lambda x, y: np.sum(x * x), [2.0], [3.0]) == [[4.0], None]
        assert gradient_of(lambda x, y: np.sum(y * x), [2.0], [3.0]) == [[3.0], [2.0]]
        assert gradient_of(lambda x, y: np.sum(x * y * 2.0), [2.0], [3.0]) == [[6.0], [4.0]]
        assert gradient_of(lambda x, y: np.sum(x * y * 3.0), [2.0], [3.0]) == [[9.0], [6.0]]


def test_joints_of_the_same_arrays_in_other_places_are_told_apart():
    def joined(first):
        def function(*arrays):
            left, right = np.concatenate(arrays[:first]), np.concatenate(arrays[first:])
            return np.sum(left) * 2.0 + np.sum(right) * 3.0

        return function

    for _ in range(4):
        for first in (2, 3):
            found = gradient_of(joined(first), [1.0], [2.0], [3.0], [4.0], [5.0])
            assert found == [[2.0]] * first + [[3.0]] * (5 - first)


def test_numbers_of_targets_are_told_apart():
    def slope(count):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(3.0))
            targets = [x * 2.0, x * x][:count]
        return float(tape.gradient(targets, x))

    assert [slope(count) for count in (1, 2, 1, 2, 1, 2)] == [2.0, 8.0] * 3


def test_outputs_of_one_operation_are_told_apart():
    for _ in range(4):
        assert gradient_of(lambda x, y: np.sum(np.divmod(x, y)[1] * 2.0), [7.0], [3.0]) == [[2.0], [-4.0]]
        assert gradient_of(lambda x, y: np.sum(np.divmod(x, y)[0] * x), [7.0], [3.0]) == [[2.0], [0.0]]
        assert gradient_of(lambda x, y: np.sum(np.divmod(x, y)[1] * x), [7.0], [3.0]) == [[8.0], [-14.0]]


def test_what_is_not_recorded_this_time_is_constant_this_time():
    def slope(stopped):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(3.0))
            if stopped:
                with tape.stop_recording():
                    factor = x * 2.0
            else:
                factor = x * 2.0
            y = factor * x
        return float(tape.gradient(y, x))

    assert [slope(stopped) for stopped in (False, False, False, True, True, False, True)] == [
        12.0, 12.0, 12.0, 6.0, 6.0, 12.0, 6.0,
    ]  # fmt: skip


def test_weights_of_targets_may_change_their_form():
    def slope(weight):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(3.0))
            y = x * x
        return float(tape.gradient(y, x, output_gradients=weight))

    weights = [
        gt.constant(2.0),
        gt.constant(3.0),
        gt.constant(4.0),
        5.0,
        np.float64(6.0),
        np.array(7.0),
        None,
    ]
    assert [slope(weight) for weight in weights] == [12.0, 18.0, 24.0, 30.0, 36.0, 42.0, 6.0]


def test_derivatives_that_depend_on_numbers_are_derived_from_the_numbers():
    def slope(places):
        with gt.GradientTape() as tape:
            v = tape.watch(np.array([1.0, 2.0]))
            y = gt.constant(np.zeros(3)) * 1.0
            y[np.array(places)] = v * 2
            total = np.sum(y * np.array([1.0, 10.0, 100.0]))
        return tape.gradient(total, v).numpy().tolist()

    assert [slope([0, 1]) for _ in range(4)] == [[2.0, 20.0]] * 4
    assert [slope(places) for places in ([1, 1], [2, 2], [0, 2])] == [[0.0, 20.0], [0.0, 200.0], [2.0, 200.0]]


def test_a_gradient_of_ones_own_that_branches_is_asked_each_time():
    @gt.custom_gradient
    def steep(x):
        return x * 1.0, lambda upstream: upstream * (10.0 if float(x) > 0 else -10.0)

    def slope(number):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(number))
            y = steep(x)
        return float(tape.gradient(y, x))

    assert [slope(number) for number in (1.0, 2.0, 3.0, -1.0, 4.0, -2.0)] == [
        10.0,
        10.0,
        10.0,
        -10.0,
        10.0,
        -10.0,
    ]


def test_a_record_is_given_up_with_its_gradient():
    for known in (False, False, True, True):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            inner = np.sin(x) * gt.constant(np.ones(3))
            y = np.sum(inner)
        slope = tape.gradient(y, x)
        gone = weakref.ref(inner.value)
        gc.disable()
        try:
            slope.numpy()
            del inner
            assert not known or gone() is None
        finally:
            gc.enable()


def test_jacobians_of_a_known_structure_are_not_derived_again():
    def jacobian(scale):
        with gt.GradientTape() as tape:
            x = tape.watch(scale * np.array([1.0, 2.0, 3.0]))
            y = np.sin(x) * x[::-1]
        return tape.jacobian(y, x)

    first, *_ = [jacobian(1.0).numpy() for _ in range(3)]
    np.testing.assert_allclose(jacobian(1.0).numpy(), first)
    x = 2.0 * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(
        jacobian(2.0).numpy(), np.diag(np.cos(x) * x[::-1]) + np.diag(np.sin(x))[:, ::-1]
    )
    assert min(calls_of(jacobian, 3.0) for _ in range(3)) <= 175  # modules imported since are searched once


def test_jacobians_of_rows_that_mix_are_refused_each_time():
    def jacobian():
        with gt.GradientTape() as tape:
            x = tape.watch(np.ones((2, 3)))
            y = x[np.array([1, 0])] * 1.0
        return tape.batch_jacobian(y, x)

    for _ in range(4):
        with pytest.raises(gt.errors.ArgumentError, match="depend on other rows"):
            jacobian()


def test_a_jitted_function_of_variables_runs_once():
    w = gt.Variable(np.array([1.0, 2.0]))
    runs = Runs()

    @gt.jit
    def loss(x):
        runs.append(1)
        return np.sum(np.tanh(x * w) * w)

    def step(x):
        with gt.GradientTape() as tape:
            y = loss(x)
        return float(y), tape.gradient(y, w).numpy()

    x = np.array([0.5, 0.25])
    for _ in range(4):
        value, slope = step(x)
        t = np.tanh(x * w.numpy())
        np.testing.assert_allclose(value, np.sum(t * w.numpy()))
        np.testing.assert_allclose(slope, t + (1 - t**2) * x * w.numpy())
        w.assign_add(np.array([0.1, -0.1]))
    assert len(runs) == 1


def test_a_jitted_function_that_looks_or_assigns_runs_each_time():
    w, calls = gt.Variable(1.0), gt.Variable(0.0, trainable=False)

    @gt.jit
    def looking(x):
        return np.sum(x * w) if np.sum(x) * w > 0 else np.sum(x * -w)

    @gt.jit
    def counting(x):
        calls.assign_add(1.0)
        return np.sum(x * w * calls)

    def slope(function, x):
        with gt.GradientTape() as tape:
            y = function(np.array(x))
        return float(tape.gradient(y, w))

    assert [slope(looking, [x]) for x in (1.0, 2.0, -3.0, 4.0, -5.0)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [slope(counting, [1.0]) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_types_of_arrays_are_interned():
    type_ = aval((2, 3), FLOAT64)
    assert aval((2, 3), np.dtype("f8")) is type_
    assert copy.deepcopy(type_) is type_
    assert pickle.loads(pickle.dumps(type_)) is type_
    assert aval((2, 3), FLOAT64, True) != type_


def test_a_node_is_put_together_once_and_keeps_its_place():
    x = gt.constant([1.0, 2.0])
    first = (x * 2.0).value
    second = (x * 3.0).value
    late, early = second.node, first.node
    assert early.serial < late.serial
    assert first.node is early
    assert early.out is first
    assert (early.op.name, early.inputs[0]) == ("multiply", x.value)
    first.node = None
    assert not first.is_made
    assert first.node is None


# What it costs

OPERATIONS = {
    "x * y": (lambda x, y, m: x * y, 6),
    "x + 1.5": (lambda x, y, m: x + 1.5, 7),
    "-x": (lambda x, y, m: -x, 7),
    "x > y": (lambda x, y, m: x > y, 12),
    "np.sin(x)": (lambda x, y, m: np.sin(x), 9),
    "np.maximum(x, 0.0)": (lambda x, y, m: np.maximum(x, 0.0), 10),
    "m + x": (lambda x, y, m: m + x, 11),
    "np.sum(x)": (lambda x, y, m: np.sum(x), 11),
    "x.sum()": (lambda x, y, m: x.sum(), 10),
    "np.mean(m, axis=1)": (lambda x, y, m: np.mean(m, axis=1), 16),
    "np.where(x > y, x, 0.0)": (lambda x, y, m: np.where(x > y, x, 0.0), 26),
    "x[3]": (lambda x, y, m: x[3], 14),
    "x[1:]": (lambda x, y, m: x[1:], 12),
    "x.reshape(2, 5)": (lambda x, y, m: x.reshape(2, 5), 19),
    "x @ y": (lambda x, y, m: x @ y, 14),
    "np.concatenate((x, y))": (lambda x, y, m: np.concatenate((x, y)), 17),
}
"""Python functions that one operation calls, lambda and NumPy's dispatcher included, and a few more."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_recording_an_operation_takes_few_calls(name):
    operation, most = OPERATIONS[name]
    with gt.GradientTape() as tape:
        x, y, m = tape.watch([np.ones(10), np.ones(10), np.ones((4, 10))])
        for _ in range(3):
            operation(x, y, m)
        assert calls_of(operation, x, y, m) <= most


def network(weights, x):
    for w in weights:
        x = np.tanh(x @ w)
    return np.sum(x * x)


@pytest.mark.parametrize(("layers", "most"), [(1, 48), (8, 75)])
def test_the_gradient_of_a_known_structure_takes_few_calls(layers, most):
    arrays = [np.full((3, 3), 0.1)] * layers
    for _ in range(4):
        with gt.GradientTape() as tape:
            weights = tape.watch([gt.constant(a) for a in arrays])
            y = network(weights, np.ones((2, 3)))
        count = calls_of(tape.gradient, y, weights)
    assert count <= most


@pytest.mark.parametrize(("layers", "most"), [(1, 49), (8, 76)])
def test_a_gradient_takes_as_few_calls_once_pint_is_imported(layers, most, monkeypatch):
    """Each leaf of the target and of the sources was asked whether it is a quantity."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pint", ModuleType("pint"))
        test_the_gradient_of_a_known_structure_takes_few_calls(layers, most)
    with gt.GradientTape():  # which takes note of the modules that there are again
        pass


def test_opening_a_tape_and_watching_take_few_calls():
    x = gt.constant(np.ones(3))

    def watched():
        with gt.GradientTape() as tape:
            tape.watch(x)

    assert calls_of(watched) <= 26


def test_looking_at_a_gradient_of_a_known_structure_takes_few_calls():
    for _ in range(4):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            y = np.sum(np.sin(x) * x)
        slope = tape.gradient(y, x)
        count = calls_of(slope.numpy)
    assert count <= 25


def test_known_work_is_computed_by_a_native_entry(monkeypatch):
    def refuse(*_):
        raise AssertionError("called from Python")

    def slope():
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.arange(3.0)))
            y = np.sum(np.sin(x) * x)
        return y, tape.gradient(y, x)

    for _ in range(3):
        y, gradient = slope()
        gradient.numpy()
    monkeypatch.setattr(Program, "compute", refuse)
    y, gradient = slope()
    x = np.arange(3.0)
    np.testing.assert_allclose(gradient.numpy(), np.cos(x) * x + np.sin(x))
    np.testing.assert_allclose(float(y), np.sum(np.sin(x) * x))
    assert type(y.value.data) is np.ndarray


def test_a_native_entry_leaves_other_arrays_to_python():
    start = Value(aval((2, 3), FLOAT64))
    doubled = start * 2.0
    nodes, _ = extract([doubled], [start])
    program = tape_program(Graph([start], nodes, [doubled], "doubled"))
    array = np.arange(6.0).reshape(3, 2).T
    for given in (array, np.ascontiguousarray(array), array[::-1]):
        (result,) = program.run([given])
        np.testing.assert_array_equal(result, given * 2)


def weights_after(steps, look):
    w, b = gt.constant(np.array([1.0, -1.0])), gt.constant(0.5)
    seen = []
    for _ in range(steps):
        with gt.GradientTape() as tape:
            tape.watch([w, b])
            hidden = np.tanh(w * 2.0 + b)
            loss = np.sum(hidden**2)
        slope_w, slope_b = tape.gradient(loss, [w, b])
        w, b = w - 0.1 * slope_w, b - 0.1 * slope_b
        seen.append(look(locals()))
    return w.numpy(), b.numpy(), seen


LOOKS = {
    "the loss": lambda names: float(names["loss"]),
    "a weight": lambda names: float(names["b"]),
    "what lies between": lambda names: float(np.sum(names["hidden"])),
    "a gradient, then the loss": lambda names: [*names["slope_w"].numpy(), float(names["loss"])],
    "now this and now that": lambda names: float(names[["loss", "b", "slope_b"][names["steps"] % 3]]),
    "nothing": lambda names: None,
}


@pytest.mark.parametrize("look", LOOKS)
def test_steps_do_the_same_whatever_is_looked_at(look):
    def now_and_then(names):
        now_and_then.count += 1
        return LOOKS[look](names | {"steps": now_and_then.count})

    now_and_then.count = 0
    w, b, seen = weights_after(9, now_and_then)
    now_and_then.count = 0
    with gt.config.override(jit=False):
        expected_w, expected_b, expected = weights_after(9, now_and_then)
    np.testing.assert_allclose(w, expected_w, rtol=1e-12)
    np.testing.assert_allclose(b, expected_b, rtol=1e-12)
    for ours, theirs in zip(seen, expected, strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_what_somebody_else_needs_is_computed_once():
    def step(keep):
        x = gt.constant(np.array([0.1, 0.2]))
        inner = np.exp(x) * 2.0
        outer = np.sum(inner * 3.0)
        kept = inner if keep else None
        del inner
        return float(outer), kept

    for keep in (False, False, False, True, True, False, True):
        total, kept = step(keep)
        np.testing.assert_allclose(total, 6 * np.sum(np.exp([0.1, 0.2])))
        if keep:
            assert kept.value.data is not None
            np.testing.assert_allclose(kept.numpy(), 2 * np.exp([0.1, 0.2]))


def test_work_that_comes_again_is_not_described_again(monkeypatch):
    monkeypatch.setattr(force, "SMALL_WORK", 0)
    monkeypatch.setattr(force, "WORK_PER_NODE", 0)

    def step():
        x = gt.constant(np.array([0.1, 0.2]))
        y = np.exp(x) * 2.0
        return y, np.sin(y) + 1.0

    for _ in range(4):
        first, second = step()
        live_arrays.handles.clear()
        live_arrays.handles.extend([weakref.ref(first), weakref.ref(second)])
        count = calls_of(first.numpy, clear=False)
        assert second.value.data is not None
    assert count <= 40


def test_what_is_given_by_name_is_not_what_is_given_by_position():
    x = gt.constant(np.arange(6.0).reshape(2, 3))
    for _ in range(3):
        assert np.sum(x, 1).shape == (2,)
        assert np.sum(x, axis=0).shape == (3,)
        assert np.reshape(x, (3, 2)).shape == np.reshape(x, shape=(3, 2)).shape == (3, 2)
        assert np.reshape(x, (3, 2), "F").value.node is not None
        assert (
            np.reshape(x, (3, 2), order="F").numpy().tolist() == np.reshape(x.numpy(), (3, 2), "F").tolist()
        )
        assert np.transpose(x, None).shape == x.T.shape == (3, 2)
        with pytest.raises(TypeError):
            x.reshape(2.0, 3)
        with pytest.raises(TypeError):
            np.sum(x, "axis", 1)
