"""A predicted tape does what it would have done without a prediction."""

from __future__ import annotations

import gc
import random
import threading
import warnings
import weakref

import numpy as np
import pytest

import gradtape as gt
from gradtape.kinds.registry import TRIALS
from gradtape.runtime.compile.kernel import kernels
from gradtape.runtime.compile.program import Program
from gradtape.trace.lazy import trace_prediction
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.call_trace import CallRecorder
from gradtape.trace.lazy.trace_prediction import CallPredictor
from tests.support.numpy_calls import Call, title
from tests.support.recording import FUNCTIONS, arrays_for, calls_of, shown


@pytest.fixture(autouse=True)
def no_lines():
    trace_prediction._lines.clear()
    yield
    trace_prediction._lines.clear()


@pytest.fixture
def log(monkeypatch):
    """What becomes of call traces."""
    gc.collect()  # a debugger that another test has left behind would look on
    events = []
    apply, materialise = trace_prediction._apply, CallPredictor.materialise

    def note_applied(variant, expected, observer):
        events.append("recorded" if isinstance(observer, CallRecorder) else "predicted")
        return apply(variant, expected, observer)

    def note_materialised(self):
        events.append("left")
        return materialise(self)

    monkeypatch.setattr(trace_prediction, "_apply", note_applied)
    monkeypatch.setattr(CallPredictor, "materialise", note_materialised)
    return events


def numbers(arrays):
    return [numbers(array) if isinstance(array, list) else array.numpy().tolist() for array in arrays]


def test_the_third_tape_of_a_line_is_predicted_by_the_second(log):
    for scale in (1.0, 2.0, 3.0, 4.0):
        with gt.GradientTape() as tape:
            x = tape.watch(scale * np.ones(3))
            y = np.sum(np.sin(x) * x)
        slope = tape.gradient(y, x)
        np.testing.assert_allclose(slope.numpy(), np.cos(scale) * scale + np.sin(scale))
        np.testing.assert_allclose(float(y), 3 * np.sin(scale) * scale)
    assert log == ["recorded", "predicted", "predicted"]


def test_python_may_specialise_the_instructions_of_a_line(log):
    for number in range(30):
        with gt.GradientTape() as tape:
            x = tape.watch(np.arange(5.0) + number)
            y = 0.0
            for k in range(5):
                y = y + x[k] ** 2 * x.T[k]
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), 3 * (np.arange(5.0) + number) ** 2)
    assert log == ["recorded", *["predicted"] * 28]


def test_a_line_that_requests_no_gradient_has_no_call_trace(log):
    for _ in range(4):
        with gt.GradientTape() as tape:
            x = tape.watch(np.ones(3))
            assert prediction.observer is None
            y = np.sum(x * 2)
        assert float(y) == 6
    assert log == []


def test_predicting_an_operation_takes_few_calls():
    ones = gt.constant(np.ones(3))

    def step():
        with gt.GradientTape() as tape:
            x = start = tape.watch(gt.constant(ones))
            for _ in range(20):
                x = x * 0.5
        return tape.gradient(x, start).numpy()

    for _ in range(5):
        step()
    assert min(calls_of(step) for _ in range(3)) <= 20 * 2 + 110


# Calls that match


@pytest.mark.parametrize("key", FUNCTIONS, ids=title)
def test_a_function_predicted_is_the_function_recorded(key):
    """With the same arguments and then with other numbers; a function that reads data is in no call trace.

    Every other time all arguments but one stay ndarrays.
    """

    def gradients(sample, alone, seed, persistent):
        call = Call(sample)
        call.rng = np.random.default_rng(seed)
        args = [arrays_for(argument) for argument in call.args]
        if alone:
            floats = [k for k, a in enumerate(args) if isinstance(a, gt.Array) and a.dtype.kind in "fc"]
            args = [args[k] if k in floats[:1] else argument for k, argument in enumerate(call.args)]
        with gt.GradientTape(persistent=persistent) as tape:
            tape.watch([a for a in args if isinstance(a, gt.Array) and a.dtype.kind in "fc"])
            factor = tape.watch(gt.constant(2.0))
            results = key(*args, **call.kwargs)
            results = results if isinstance(results, tuple | list) else [results]
            results = [r for r in results if isinstance(r, gt.Array)]
            total = factor * 1.0
            for result in results:
                total = total + np.sum(
                    np.real(result * 1e-3) * factor
                )  # sums of what nan_to_num makes would overflow
        sources = [a for a in args if isinstance(a, gt.Array) and a.dtype.kind in "fc"]
        found = tape.gradient(total, [factor, *sources])
        return [*shown(list(found)), total.numpy(), *shown(results)]

    samples = TRIALS[key].samples
    for number, sample in enumerate(samples[:: len(samples) // 8 + 1]):
        trace_prediction._lines.clear()
        for seed in (3, 3, 3, 4):
            outcomes = []
            for persistent in (False, True):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        outcomes.append(gradients(sample, number % 2, seed, persistent))
                except Exception as error:
                    outcomes.append(error)
            found, expected = outcomes
            if isinstance(expected, Exception):
                assert type(found) is type(expected), found
                assert str(found) == str(expected)
            else:
                assert not isinstance(found, Exception), found
                assert len(found) == len(expected)
                for one, other in zip(found, expected, strict=True):
                    assert one.dtype == other.dtype
                    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-12)


OTHERS = {
    "another number": lambda x, again: x * (3.0 if again else 2.0),
    "a number of another type": lambda x, again: x * (2 if again else 2.0),
    "zero with another sign": lambda x, again: np.copysign(x, -0.0 if again else 0.0),
    "another operation": lambda x, again: x - 2.0 if again else x * 2.0,
    "operands exchanged": lambda x, again: np.subtract(x, x * 2) if again else np.subtract(x * 2, x),
    "another axis": lambda x, again: np.cumsum(x[None] * x[:, None], axis=1 if again else 0),
    "another keyword": lambda x, again: np.sum(x[None], **{"axis" if again else "keepdims": 1}),
    "another index": lambda x, again: x[1:] * x[0] if again else x[:-1] * x[0],
    "another list": lambda x, again: np.concatenate([x, x * 2, x] if again else [x, x * 2]),
    "a tuple for a list": lambda x, again: np.concatenate((x, x * 2) if again else [x, x * 2]),
    "an ndarray of another shape": lambda x, again: x * (np.ones((2, 1)) if again else np.ones(3)) * x,
    "an ndarray of another dtype": lambda x, again: x * np.ones(3, np.float32 if again else np.float64),
    "places as numbers": lambda x, again: np.repeat(x, np.array([1, 2, 1 + again])),
    "one more": lambda x, again: x * 2 * (x if again else 1.0),
    "a branch": lambda x, again: x * 2 if again or np.sum(x) > 1e9 else x,
    "the same twice": lambda x, again: (x * 2) * (x * 2 if again else x * 3),
    "written to": lambda x, again: _written(x * 2, again),
    "a view written to": lambda x, again: _view_written(x * 2, again),
    "the source written to": lambda x, again: _source_written(x, again),
    "constant this time": lambda x, again: x * (gt.stop_gradient(x) if again else x),
    "a jitted function": lambda x, again: gt.jit(np.tanh)(x) if again else np.tanh(x),
}


def _written(y, again):
    if again:
        y[1] = 5.0
    return y * 1.0


def _view_written(y, again):
    part = y[1:]
    if again:
        part[0] = 5.0
    return y * part[0]


def _source_written(x, again):
    part = x[1:] * 1.0
    if again:
        x[1] = 5.0
    return x[1:] * part


@pytest.mark.parametrize("name", OTHERS)
def test_another_record_is_recorded(name, log):
    operation = OTHERS[name]

    def results(again, persistent):
        with gt.GradientTape(persistent=persistent) as tape:
            x = tape.watch(gt.constant(np.array([0.5, -1.0, 2.0])))
            middle = operation(x * 1.0 if name != "the source written to" else x, again)
            y = np.sum(middle * middle)
        return numbers([tape.gradient(y, x), y, middle])

    for again in (False, False, False, True, False, True, True):
        for one, other in zip(results(again, False), results(again, True), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    if name != "places as numbers":
        assert log[:2] == ["recorded", "predicted"] or "left" in log


METHODS = {
    "reshape": lambda x: x.reshape(2, 3)[1] * x.reshape((3, 2), order="F")[:, 0],
    "transpose": lambda x: x.reshape(2, 3).T @ x.reshape(2, 3).transpose(1, 0).mT,
    "astype": lambda x: x.astype(np.float32).astype(float) * x.astype(int),
    "flatten": lambda x: x.reshape(2, 3).flatten() * x,
    "clip": lambda x: x.clip(0.0, max=1.5).conj(),
    "reductions": lambda x: x.sum() * x.mean(axis=0) + x.max() * x.reshape(2, 3).std(axis=1, keepdims=True),
    "views": lambda x: x[None].ravel()[::2] * x.reshape(2, 3).swapaxes(0, 1)[:, 0] * x[None].squeeze()[3:],
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_predicted(name, log):
    for number in range(4):
        slopes = []
        for persistent in (False, True):
            with gt.GradientTape(persistent=persistent) as tape:
                x = tape.watch(gt.constant(np.arange(6.0) / 4 + number))
                y = np.sum(METHODS[name](x) * 2.0)
            slopes.append(tape.gradient(y, x).numpy())
        np.testing.assert_allclose(*slopes, rtol=1e-6)
    assert log == ["recorded", "predicted", "predicted"]


# Live arrays


def test_live_arrays_are_computed_by_the_same_program(log, monkeypatch):
    runs = []
    run = Program.run
    monkeypatch.setattr(Program, "run", lambda self, arrays: runs.append(1) or run(self, arrays))
    for scale in (1.0, 2.0, 3.0, 4.0):
        with gt.GradientTape() as tape:
            x = tape.watch(scale * np.ones(3))
            hidden = np.sin(x)
            part = hidden[1:]
            y = np.sum(hidden * x)
        slope = tape.gradient(y, x)
        runs.clear()
        np.testing.assert_allclose(float(y), 3 * np.sin(scale) * scale)
        np.testing.assert_allclose(hidden.numpy(), np.sin(scale))
        np.testing.assert_allclose(part.numpy(), np.sin(scale))
        np.testing.assert_allclose(slope.numpy(), np.cos(scale) * scale + np.sin(scale))
        hidden[1] = 7.0
        np.testing.assert_allclose(part.numpy(), [7.0, np.sin(scale)])
    assert len(runs) <= 2  # the record at once, then the view of what was written
    assert log == ["recorded", "predicted", "predicted"]


@pytest.mark.parametrize("looked_at", ["loss", "hidden"])
def test_steps_written_in_the_block_are_one_program_from_the_third_on(looked_at):
    """Names in the block hold what was computed until the next step; the weights of the next step wait meanwhile."""
    inputs = np.linspace(-1.0, 1.0, 24).reshape(8, 3)
    weights = {"w": gt.constant(np.array([0.3, -0.2, 0.1])), "b": gt.constant(np.array(0.1))}
    misses = []
    gc.collect()
    gc.disable()  # references are counted
    try:
        for _ in range(7):
            with gt.GradientTape() as tape:
                tape.watch(weights)
                score = inputs @ weights["w"] + weights["b"]
                hidden = np.arctan(score)
                loss = np.sum(hidden**4)
            gradients = tape.gradient(loss, weights)
            weights = {name: weights[name] - 0.125 * gradients[name] for name in weights}
            float(loss if looked_at == "loss" else hidden[0])
            misses.append(kernels.misses)
    finally:
        gc.enable()
    assert misses[2] == misses[3] == misses[-1]


def test_other_live_arrays_are_no_other_record(log):
    kept = []
    for hold in (False, False, True, False, True, True):
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([0.5, 1.0]))
            hidden = np.sin(x)
            y = np.sum(hidden * x)
            if not hold:
                del hidden
        slope = tape.gradient(y, x)
        np.testing.assert_allclose(slope.numpy(), np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy()))
        if hold:
            kept.append(hidden)
    np.testing.assert_allclose([value.numpy() for value in kept], [np.sin([0.5, 1.0])] * 3)
    assert log == ["recorded", *["predicted"] * 4]


def test_nothing_lives_longer_because_it_was_predicted():
    def step():
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            inner = np.sin(x)
            gone = weakref.ref(inner)
            y = np.sum(inner * 2.0)
            del inner
            assert gone() is None
        slope = tape.gradient(y, x)
        return weakref.ref(x), weakref.ref(x.value), weakref.ref(y), weakref.ref(slope)

    gc.disable()
    try:
        for _ in range(5):
            assert [reference() for reference in step()] == [None] * 4
    finally:
        gc.enable()


def test_a_tape_that_is_left_without_a_gradient_keeps_nothing():
    def step(asked):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            y = np.sum(np.sin(x))
        if asked:
            tape.gradient(y, x)
        return weakref.ref(x), weakref.ref(x.value)

    gc.disable()
    try:
        for asked in (True, True, True, False, True):
            assert [reference() for reference in step(asked)] == [None] * 2
    finally:
        gc.enable()


# Observers


def test_the_record_is_there_for_who_asks_for_it():
    def explained(ask):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            y = np.sum(np.floor(x) * 2.0)
            card = tape._repr_html_() if ask else ""
        if ask:
            return str(gt.debug.explain_gradient(tape, y, x)), "floor" in card
        return numbers([tape.gradient(y, x)])

    first = explained(True)
    for _ in range(4):
        explained(False)
    assert explained(True) == first
    assert first[1]


def test_the_sites_of_replayed_calls_are_the_users():
    def site(asked):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.ones(3)))
            inner = np.sin(x)
            part = inner[1:]
            y = np.sum(inner)
        if asked:
            tape.gradient(y, x)
            return None
        return [repr(array.value.node.site) for array in (inner, part, y)]

    first = site(False)
    for _ in range(4):
        site(True)
    assert site(False) == first
    assert len({line.split()[0] for line in first}) == 3


def test_other_derivatives_of_a_line_that_is_known(log):
    def differentiate(how):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = x * x
        if how == "gradient":
            return numbers([tape.gradient(y, x)])
        if how == "weighted":
            return numbers([tape.gradient(y, x, output_gradients=np.array([1.0, 0.0]))])
        if how == "intermediate":
            return numbers([tape.gradient(y, [x, y])])
        return numbers([tape.jacobian(y, x)])

    for _ in range(3):
        assert differentiate("gradient") == [[2.0, 4.0]]
    assert differentiate("weighted") == [[2.0, 0.0]]
    assert differentiate("jacobian") == [[[2.0, 0.0], [0.0, 4.0]]]
    assert differentiate("intermediate") == [[[2.0, 4.0], [1.0, 1.0]]]
    assert differentiate("gradient") == [[2.0, 4.0]]
    assert log.count("predicted") == 2


def test_targets_may_be_sources_views_and_each_other():
    def slopes(persistent, number):
        with gt.GradientTape(persistent=persistent) as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0]) + number))
            k = gt.constant(np.ones(2))
            y = x * k
            whole, part = y[:], y[1:]
            z = np.sum(whole * x)
        targets = [[z, x], [z, whole], [y, whole], [z, part], [z, k], [z, z], [part, x]][number % 7]
        return numbers([tape.gradient(targets, [x]), z, y, whole, part])

    for number in [*range(7), *np.repeat(range(7), 3)]:
        assert slopes(False, int(number)) == slopes(True, int(number))


def test_another_tape_knows_nothing_of_it():
    def step(mixed):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = np.sum(x * x)
        if mixed is not None:
            other, v, z = mixed
            assert other.gradient(y, x) is None
            assert tape.gradient(z, v) is None
            return None
        return tape, x, y

    for _ in range(3):
        tape, x, y = step(None)
        tape.gradient(y, x)
    step(step(None))


def test_a_later_tape_does_not_follow_what_was_computed_before(log):
    def step(asked):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = np.sum(x * x)
        if asked:
            return tape.gradient(y, x)
        with gt.GradientTape() as later:
            later.watch(x)
            z = np.sum(y * x)
        return numbers([later.gradient(z, x)])

    for _ in range(3):
        step(True)
    assert step(False) == [[5.0, 5.0]]
    assert log[-1] == "left"


def test_a_forward_accumulator_does_not_follow_what_was_computed_before():
    def step(asked):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = np.sum(x * x)
        if asked:
            return tape.gradient(y, x)
        with gt.ForwardAccumulator(x, np.ones(2)) as accumulator:
            z = y * x
        return numbers([accumulator.jvp(z)])

    for _ in range(3):
        step(True)
    assert step(False) == [[5.0, 5.0]]


@pytest.mark.parametrize("how", ["stopped", "reset", "nested", "twice"])
def test_what_else_a_tape_can_do(how):
    def step(special, persistent):
        with gt.GradientTape(persistent=persistent) as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = x * x
            if special and how == "stopped":
                with tape.stop_recording():
                    y = y * x
            if special and how == "reset":
                tape.reset()
                tape.watch(x)
            if special and how == "nested":
                with gt.GradientTape() as inner:
                    inner.watch(y)
                    z = y * y
                y = inner.gradient(z, y) * x
            if special and how == "twice":
                tape.watch(y)
            y = np.sum(y * x)
        return numbers([tape.gradient(y, x)])

    for special in (False, False, False, True, False, True):
        assert step(special, False) == step(special, True)


def test_variables_are_read_each_time(log):
    v = gt.Variable(np.array([1.0, 2.0]))
    for _ in range(5):
        with gt.GradientTape() as tape:
            y = np.sum(v * v * 2.0)
        slope = tape.gradient(y, v)
        assert tape.watched_variables() == (v,)
        np.testing.assert_allclose(slope.numpy(), 4 * v.numpy())
        v.assign_sub(0.1 * slope)
    assert log == ["recorded", "predicted", "predicted", "predicted"]
    with gt.GradientTape() as tape:
        y = np.sum(v * v * 2.0)
        v.assign(v * 2)
        y = y + np.sum(v)
    np.testing.assert_allclose(tape.gradient(y, v).numpy(), 4 * v.numpy() / 2 + 1)


def test_an_exception_in_the_block_leaves_the_record():
    def step(fails):
        with gt.GradientTape() as tape:
            try:
                x = tape.watch(gt.constant(np.array([1.0, 2.0])))
                y = x * x
                if fails:
                    y = y + np.ones(3)
            except gt.errors.ShapeError as error:
                assert "test_trace_prediction" in str(error)
            y = np.sum(y)
        return numbers([tape.gradient(y, x)])

    for fails in (False, False, False, True, False, True):
        assert step(fails) == [[2.0, 4.0]]


def test_each_thread_predicts_for_itself():
    found = []

    def step(scale):
        with gt.GradientTape() as tape:
            x = tape.watch(scale * np.ones(3))
            y = np.sum(np.sin(x) * x)
        return tape.gradient(y, x).numpy()

    def work(scale):
        for _ in range(50):
            np.testing.assert_allclose(step(scale), np.cos(scale) * scale + np.sin(scale))
        found.append(scale)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1.0, 2.0, 3.0]


def test_an_array_of_a_tape_may_be_looked_at_on_another_thread():
    def step(look):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = x * x
            if look:
                seen = []
                thread = threading.Thread(target=lambda: seen.append(y.numpy().tolist()))
                thread.start()
                thread.join()
                assert seen == [[1.0, 4.0]]
            z = np.sum(y * x)
        return numbers([tape.gradient(z, x)])

    for look in (False, False, False, True, True, False):
        assert step(look) == [[3.0, 12.0]]


def test_names_shapes_and_pictures_of_deferred_arrays():
    for number in range(5):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            y = x * x
            assert (y.shape, y.dtype, y.ndim, y.size, len(y)) == ((2,), np.dtype(float), 1, 2, 2)
            assert y.name is None
            if number == 4:
                y.name = "squares"
                assert y.name == "squares"
                assert repr(y) == "Array([1., 4.])"
            z = np.sum(y)
        assert numbers([tape.gradient(z, x)]) == [[2.0, 4.0]]


def test_a_call_trace_that_does_not_hold_is_given_up(log):
    for number in range(60):
        scale = 2.0 if number < 5 else float(number)
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([1.0, 2.0])))
            assert number < 30 or prediction.observer is None
            y = np.sum(x * scale)
        assert numbers([tape.gradient(y, x)]) == [[scale] * 2]
    assert log.count("predicted") == 3
    assert trace_prediction.MAX_MISSES < log.count("left") < 30


def test_a_path_that_is_cut_is_told_of_each_time():
    def messages():
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(np.array([0.3, 0.7])))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = np.sum(x.numpy() * x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tape.gradient(y, x)
        return [str(warning.message) for warning in caught]

    found = [messages() for _ in range(4)]
    assert ["x.numpy()" in message for (message,) in found] == [True] * 4


# Random records


UNARY = (
    np.sin,
    np.tanh,
    lambda x: -x,
    lambda x: x * 0.5,
    lambda x: 2.0 - x,
    lambda x: x[::-1],
    np.cumsum,
    lambda x: x.reshape(1, -1)[0],
    lambda x: np.mean(x, axis=0) + x,
    lambda x: x.sum() * x,
    lambda x: np.where(x > 0.3, x, 0.1 * x),
    lambda x: np.concatenate([x, x])[: len(x)],
    lambda x: np.stack([x, x * 2], axis=1).sum(axis=1),
    lambda x: np.take(x, [1, 0, 2]),
    lambda x: np.array([x[0], x[1], x[2] * 2]),
    lambda x: x @ np.eye(3),
    lambda x: x[:],
    lambda x: x.T.reshape(3),
)
BINARY = (
    lambda x, y: x + y,
    np.multiply,
    np.arctan2,
    lambda x, y: np.dot(x, y) * x,
    lambda x, y: np.where(x > y, x, y),
    lambda x, y: np.concatenate((x, y))[1:4],
)


def write(pool, place):
    pool[place][1] = 0.25


def add_in_place(pool, place):
    x = pool[place]
    x += 1.0


def write_through_view(pool, place):
    pool[place][1:][0] = pool[0][0] * 2


def look(pool, place):
    float(np.sum(pool[place]))


def ask_for_shape(pool, place):
    assert pool[place].shape == (3,)


def stop(pool, place):
    pool.append(gt.stop_gradient(pool[place]) * pool[0])


def drop(pool, place):
    if place > 1:
        pool.pop(place)


USUAL, UNUSUAL = (ask_for_shape, drop), (write, add_in_place, write_through_view, look, stop)


def program(rng, length):
    steps = []
    for _ in range(length):
        kind = rng.random()
        functions = UNARY if kind < 0.55 else BINARY if kind < 0.9 else USUAL
        steps.append((rng.choice(functions), rng.randrange(100), rng.randrange(100)))
    return steps


def changed(steps, rng):
    steps, place = list(steps), rng.randrange(len(steps))
    how = rng.random()
    if how < 0.5:
        steps.insert(place, (rng.choice(UNUSUAL), rng.randrange(100), 0))
    elif how < 0.8:
        steps[place : place + 1] = program(rng, 1)
    else:
        del steps[place:]
    return steps


def played(steps, start, constant, held, persistent):
    with gt.GradientTape(persistent=persistent) as tape:
        x = tape.watch(gt.constant(start))
        pool = [x, constant.copy()]
        for function, first, second in steps:
            place = first % len(pool)
            if function in UNARY:
                pool.append(function(pool[place]))
            elif function in BINARY:
                pool.append(function(pool[place], pool[second % len(pool)]))
            else:
                function(pool, 0 if place == 1 else place)
        y = np.sum(pool[-1] * x)
    if not held:
        pool = []
    slope = tape.gradient(y, x)
    return [slope.numpy(), y.numpy(), *[np.asarray(value) for value in pool]]


@pytest.mark.filterwarnings("ignore::gradtape.errors.GradtapeWarning")
def test_random_records(log):
    for seed in range(40):
        rng = random.Random(seed)
        numbers_ = np.random.default_rng(seed)
        steps = program(rng, rng.randrange(1, 12))
        trace_prediction._lines.clear()
        for number in range(12):
            now = steps if rng.random() < 0.75 else changed(steps, rng)
            start, constant = numbers_.normal(size=(2, 3))
            held = seed % 2 == 0
            found = played(now, start, constant, held, persistent=False)
            expected = played(now, start, constant, held, persistent=True)
            assert len(found) == len(expected), (seed, number)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=str((seed, number)))
    assert log.count("predicted") > 100
    assert log.count("left") > 20


def by_class_of_an_element(x):
    first = x[0]
    return x[1] ** 2 if isinstance(first, float) and np.isscalar(first) else x[2]


def by_type_of_a_sum(x):
    total = np.sum(x)
    return total * x[0] if type(total) is np.float64 and not isinstance(total, np.ndarray) else x[2]


def elements_change_no_other_name(x):
    first = x[0]
    before = first
    first += x[1] ** 2
    return before * first


def arrays_without_axes_change_all_names(x):
    first = x[0, ...] * 1.0 if x.ndim > 1 else x[:1].reshape(())
    before = first
    first += x[1] ** 2
    return before * first


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (by_class_of_an_element, lambda x: [0.0, 2 * x[1], 0.0]),
        (by_type_of_a_sum, lambda x: [np.sum(x) + x[0], x[0], x[0]]),
        (elements_change_no_other_name, lambda x: [2 * x[0] + x[1] ** 2, 2 * x[0] * x[1], 0.0]),
        (
            arrays_without_axes_change_all_names,
            lambda x: [2 * (x[0] + x[1] ** 2), 4 * x[1] * (x[0] + x[1] ** 2), 0.0],
        ),
    ],
)
def test_predicted_elements_are_scalars(function, slope):
    x = np.array([1.5, -2.0, 0.5])
    for turn in range(8):
        point = x + 0.1 * turn
        with gt.GradientTape() as tape:
            y = function(watched := tape.watch(point.copy()))
        np.testing.assert_allclose(float(y), function(point.copy()), rtol=1e-14)
        np.testing.assert_allclose(tape.gradient(y, watched), slope(point), rtol=1e-14)
