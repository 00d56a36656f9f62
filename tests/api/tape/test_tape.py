"""The tape: what it records and when, what it watches, the gradients it gives, and what it says when it is used wrongly."""

import copy
import gc
import re
import threading
import warnings
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from gradtape.ir.graph import extract
from gradtape.runtime.compile.kernel import kernels


def recorded(persistent=False, function=lambda x: x * x, at=3.0):
    with gt.GradientTape(persistent=persistent) as tape:
        x = tape.watch(at)
        y = function(x)
    return tape, x, y


def test_gradient_of_a_watched_copy():
    data = np.array([1.0, 2.0])
    with gt.GradientTape() as tape:
        x = tape.watch(data)
        y = np.sum(x**2)
    data[0] = 100.0
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [2.0, 4.0])
    assert float(y) == 5.0


def test_result_has_the_structure_of_the_sources():
    with gt.GradientTape() as tape:
        p = tape.watch({"w": np.ones(2), "b": [np.float64(1.0), 2.0]})
        y = np.sum(p["w"]) * p["b"][0] * 3
    g = tape.gradient(y, p)
    assert set(g) == {"w", "b"} and isinstance(g["b"], list)
    np.testing.assert_array_equal(g["w"].numpy(), [3.0, 3.0])
    assert float(g["b"][0]) == 6.0
    assert g["b"][1] is None


def test_total_derivative_of_source_and_intermediate():
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        y = x * x
        z = y * y
    gx, gy, again = tape.gradient(z, [x, y, x])
    assert (float(gx), float(gy), float(again)) == (108.0, 18.0, 108.0)


def test_target_that_is_a_source_contributes_its_seed():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(2.0)
        y = x * x
    assert float(tape.gradient(x, x)) == 1.0
    assert float(tape.gradient([x, y], x)) == 5.0
    assert float(tape.gradient([x, x * 1.0], x)) == 1.0
    assert float(tape.gradient([y, x], x, output_gradients=[1.0, 2.0])) == 6.0


def test_one_shot_tape_is_used_up_and_can_be_entered_again():
    tape = gt.GradientTape()
    with tape:
        x = tape.watch(2.0)
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(gt.errors.TapeError, match="persistent=True"):
        tape.gradient(y, x)
    with tape:
        x = tape.watch(3.0)
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0


def test_never_watched_gives_none():
    with gt.GradientTape() as tape:
        x = gt.constant(2.0)
        y = x * x
    assert tape.gradient(y, x) is None


def test_bare_ndarray_as_source_is_explained():
    with gt.GradientTape() as tape:
        x = np.ones(2)
        y = tape.watch(x) * 2
    with pytest.raises(ValueError, match=r"x = tape\.watch\(x\)"):
        tape.gradient(y, x)


def test_second_order_by_nested_tapes():
    with gt.GradientTape() as outer:
        x = outer.watch(3.0)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        first = inner.gradient(y, x)
    assert float(first) == 27.0
    assert float(outer.gradient(first, x)) == 18.0


def test_inner_watch_does_not_make_the_outer_tape_watch():
    x = gt.constant(3.0)
    with gt.GradientTape() as outer:
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        first = inner.gradient(y, x)
    assert float(first) == 27.0
    assert outer.gradient(first, x) is None


def test_third_order_with_one_persistent_tape():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(2.0)
        y = x**4
        for _ in range(3):
            y = tape.gradient(y, x)
    assert float(y) == 48.0


def test_non_scalar_targets_are_summed_and_seeds_weigh():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        y = x * x
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [2.0, 4.0])
    np.testing.assert_array_equal(
        tape.gradient(y, x, output_gradients=np.array([1.0, 10.0])).numpy(), [2.0, 40.0]
    )
    with pytest.raises(gt.errors.ShapeError, match="output_gradients"):
        tape.gradient(y, x, output_gradients=np.ones(3))
    with pytest.raises(gt.errors.ShapeError, match="3 entries for 1 target"):
        tape.gradient(y, x, output_gradients=[1.0, 10.0, 3.0])


def test_jitted_function_under_a_tape_and_tape_in_a_jitted_function():
    @gt.jit
    def f(x):
        return np.sum(np.sin(x) * x)

    with gt.GradientTape() as tape:
        x = tape.watch(np.array([0.3, 0.8]))
        y = f(x) * 2
    expected = 2 * (np.cos([0.3, 0.8]) * [0.3, 0.8] + np.sin([0.3, 0.8]))
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected, rtol=1e-14)

    @gt.jit
    def step(x):
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(np.sin(x) * x) * 2
        return tape.gradient(y, x)

    for _ in range(3):
        np.testing.assert_allclose(step(np.array([0.3, 0.8])), expected, rtol=1e-14)
    assert step.site.traces == 1


def test_jitted_function_that_reads_a_watched_array():
    w = gt.constant(np.array([1.0, 2.0]))

    @gt.jit
    def f(x):
        return np.sum(w * x)

    x = np.array([3.0, 4.0])
    assert float(f(x)) == 11.0
    with gt.GradientTape() as tape:
        tape.watch(w)
        y = f(x)
    np.testing.assert_array_equal(tape.gradient(y, w).numpy(), x)
    assert float(f(x)) == 11.0


def test_in_place_writes_are_followed():
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.0, 2.0, 3.0]))
        y = np.zeros_like(x)
        y[1:] = x[:-1] * 10
        y += x
        view = y[:2]
        view *= 3
        z = np.sum(y * np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(tape.gradient(z, x).numpy(), [3 + 60, 6 + 40, 4.0])


def test_exception_in_the_body_leaves_the_record_usable():
    tape = gt.GradientTape()
    with pytest.raises(ZeroDivisionError), tape:
        x = tape.watch(2.0)
        y = x * x
        raise ZeroDivisionError
    assert float(tape.gradient(y, x)) == 4.0


def test_other_values_of_the_recording_are_kept_while_the_user_holds_them():
    with gt.GradientTape() as tape:
        x = tape.watch(np.arange(4.0))
        y = np.exp(x)
        z = np.sum(y)
    g = tape.gradient(z, x)
    g.numpy()
    assert y.value.data is not None


@pytest.fixture
def no_cycle_collector():
    """What other tests left behind is gone, and nothing is looked for while references are counted."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_cycle_collector")
def test_a_step_is_one_program_from_the_third_on():
    """In the first it is interpreted, in the second compiled; then nothing is left to compile, and nothing to interpret."""
    batch = gt.constant(np.linspace(-1.0, 1.0, 24).reshape(8, 3))
    w = gt.constant(np.array([0.3, -0.2, 0.1]))
    misses = []
    for _ in range(6):
        with gt.GradientTape() as tape:
            tape.watch(w)
            loss = np.sum(np.arctan(batch @ w) ** 4)
        w = w - 0.125 * tape.gradient(loss, w)
        float(loss)
        misses.append(kernels.misses)
    assert misses[2] == misses[3] == misses[5]


def test_a_training_loop_computes_each_step_once():
    """The weights of the next step wait while the loss is looked at: what they need is kept."""
    batch = gt.constant(np.linspace(-1.0, 1.0, 8).reshape(4, 2))
    w = gt.constant(np.array([0.3, -0.2]))
    plain = w.numpy()
    sizes = []
    for _ in range(12):
        with gt.GradientTape() as tape:
            tape.watch(w)
            loss = np.sum(np.tanh(batch @ w) ** 2)
        w = w - 0.1 * tape.gradient(loss, w)
        float(loss)
        sizes.append(len(extract([w.value])[0]))
        z = np.tanh(batch.numpy() @ plain)
        plain = plain - 0.1 * (2 * z * (1 - z**2)) @ batch.numpy()
    assert sizes[-1] == sizes[4] <= 8
    np.testing.assert_allclose(w.numpy(), plain, rtol=1e-12)


def test_recording_is_released_without_the_cycle_collector():
    gc.collect()
    gc.disable()
    try:
        for persistent in (False, True):
            with gt.GradientTape(persistent=persistent) as tape:
                x = tape.watch(np.arange(4.0))
                y = np.exp(x)
                gone = weakref.ref(y.value)
                z = np.sum(y * y)
            g = tape.gradient(z, x)
            g.numpy()
            del y, z, g
            assert gone() is None
    finally:
        gc.enable()


def test_each_thread_sees_its_own_line_and_result():
    results = {}

    def work(k):
        with gt.GradientTape() as tape:
            x = tape.watch(np.full(5, float(k)))
            y = np.sum(x**3)
        results[k] = tape.gradient(y, x).numpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, got in results.items():
        np.testing.assert_array_equal(got, np.full(5, 3.0 * k**2))


def test_repetition_compiles_and_gives_the_same():
    seen = []
    w = np.linspace(0.1, 1.0, 6)
    for _ in range(5):
        with gt.GradientTape() as tape:
            x = tape.watch(w)
            loss = np.sum(np.tanh(x) ** 2 + np.exp(-x))
        seen.append((tape.gradient(loss, x).numpy(), float(loss)))
    for gradient, loss in seen[1:]:
        np.testing.assert_allclose(gradient, seen[0][0], rtol=1e-14)
        np.testing.assert_allclose(loss, seen[0][1], rtol=1e-14)


@pytest.mark.parametrize("setting", ["eager", "interpreted"])
def test_settings_change_no_result(setting):
    change = {"eager": True} if setting == "eager" else {"jit": False}
    with gt.config.override(**change):
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([0.5, 1.5]))
            y = np.sum(np.log(x) * x)
            if setting == "eager":
                assert y.value.data is not None
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), np.log([0.5, 1.5]) + 1, rtol=1e-14)
        np.testing.assert_allclose(
            gt.grad(lambda x: np.sum(np.log(x) * x))(np.array([0.5, 1.5])), np.log([0.5, 1.5]) + 1
        )


def test_what_waits_for_a_number_is_computed_along_with_it():
    held = []
    gt.jit(lambda x: held.append(x * 2.0) or x)(np.ones(3))  # a leaked value, which never has a number
    for _ in range(3):  # of a record that is known, loss and gradient come from one call
        w = gt.constant(np.array([0.3, -0.2]))
        apart = np.exp(gt.constant(np.ones(3)))
        with gt.GradientTape() as tape:
            tape.watch(w)
            loss = np.sum(w**2)
        new = w - 0.1 * tape.gradient(loss, w)
        float(loss)
    assert new.value.data is not None
    assert apart.value.data is None
    np.testing.assert_allclose(new.numpy(), [0.24, -0.16])


# Entering and leaving


def test_making_a_tape_does_not_start_recording():
    x = gt.constant(3.0)
    tape = gt.GradientTape()
    y = x * x
    with tape as entered:
        assert entered is tape
        tape.watch(x)
    with pytest.warns(errors.GradtapeWarning, match="did not record this line"):
        assert tape.gradient(y, x) is None


def test_lines_that_a_tape_did_not_record_are_named():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        y = np.sum(x**3)
    late = np.sum(x * x)
    with pytest.warns(errors.GradtapeWarning, match="did not record this line") as caught:
        assert tape.gradient(late, x) is None
    assert "move the line into the with block" in str(caught[0].message)
    slope = tape.gradient(y, x)
    with pytest.warns(errors.GradtapeWarning, match=r"gt\.hessian"):
        assert tape.gradient(slope, x) is None
    assert tape.gradient(late, x, unconnected_gradients="zero").numpy().tolist() == [0.0, 0.0]
    assert tape.gradient(y, gt.constant(1.0)) is None  # another array: no line is missing


def test_a_profile_reports_lines_that_were_not_recorded_without_a_warning():
    with gt.inspect.profile():
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([1.0, 2.0]))
        late = np.sum(x * x)
        assert tape.gradient(late, x) is None


def test_entering_while_recording_is_a_value_error():
    tape = gt.GradientTape()
    with tape:
        with pytest.raises(ValueError, match="recording already"):
            tape.__enter__()
        with tape.stop_recording(), pytest.raises(ValueError, match="recording already"):
            tape.__enter__()
        x = tape.watch(2.0)
        y = x * x
    assert float(tape.gradient(y, x)) == 4.0


def test_entering_again_continues_the_record_without_what_happened_between():
    tape = gt.GradientTape()
    with tape:
        x = tape.watch(2.0)
        a = x * x
    between = x * 10.0
    with tape:
        b = a * x + between
    assert float(tape.gradient(b, x)) == 12.0


def test_a_one_shot_tape_starts_afresh_after_its_gradient():
    tape, x, y = recorded()
    tape.gradient(y, x)
    with tape:
        z = x * x
        w = tape.watch(gt.constant(5.0))
        v = w * w
    assert repr(tape) == "<GradientTape: recorded>"
    with tape:
        assert repr(tape) == "<GradientTape: recording>"
    assert tape.gradient([v, z], [w, x])[1] is None


def test_a_tape_records_on_its_own_thread_only():
    results = {}

    def elsewhere(x):
        results["y"] = x * x

    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        thread = threading.Thread(target=elsewhere, args=(x,))
        thread.start()
        thread.join()
    with pytest.warns(errors.GradtapeWarning, match="ran on another thread") as caught:
        assert tape.gradient(results["y"], x) is None
    assert "in elsewhere" in str(caught[0].message)
    assert gt.debug.explain_gradient(tape, results["y"], x).reason == "recording stopped"


def test_a_path_through_another_thread_is_said_to_be_lost():
    results = []
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.5, 2.5]))
        thread = threading.Thread(target=lambda: results.append(np.sum(x**2)))
        thread.start()
        thread.join()
        y = results[0] + x[0]
    explained = gt.debug.explain_gradient(tape, y, x)
    assert explained.reason == "partly lost" and "<lambda>" in str(explained.site)
    with pytest.warns(errors.GradtapeWarning, match="ran on another thread"):
        assert tape.gradient(y, x).numpy().tolist() == [1.0, 0.0]


OUTSIDE = np.zeros(2)


def store(x):
    OUTSIDE[:] = x


EXITS = {
    "float(x)": lambda x: np.sum(x) * float(x[0]),
    "x.numpy()": lambda x: np.sum(x) * x.numpy(),
    "x.item()": lambda x: x[0].item(),
    "x.tolist()": lambda x: x.tolist()[0],
    "y[k] = x": store,
}


@pytest.mark.parametrize("what", EXITS)
def test_a_strict_tape_refuses_what_leaves_it(what):
    with gt.GradientTape(strict=True) as tape:
        x = tape.watch(np.array([1.5, 2.5]))
        with pytest.raises(errors.TapeError, match="strict") as caught:
            EXITS[what](x)
        assert "test_tape.py" in str(caught.value) and "stop_recording" in str(caught.value)
        # Branches, indices and printing take no derivative away, and stop_recording says that it is meant.
        with tape.stop_recording():
            number = float(x[0])
        y = (x[int(np.argmax(x))] if x[0] > 1 else x[0]) * number * len(f"{x}")
        tape.reset()
        with pytest.raises(errors.TapeError):
            float(tape.watch(np.array(2.0)))
    assert float(np.sum(x)) == 4.0
    assert y.numpy() == 2.5 * 1.5 * len("[1.5 2.5]")


def test_strict_is_a_bool():
    with pytest.raises(errors.DtypeError, match="strict must be a bool"):
        gt.GradientTape(strict="yes")


def test_explain_gradient_tells_of_partly_lost_paths():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.234567, 2.5]))
        y = np.sum(x**2) * float(x[0])
        z = np.sum(x)
    explained = gt.debug.explain_gradient(tape, y, x)
    assert explained.reason == "partly lost" and "float(x)" in explained.text
    plain = gt.debug.explain_gradient(tape, z, x)
    assert plain.reason == "connected" and "float(x)" in plain.text


def test_variables_read_on_another_thread_are_not_watched():
    v = gt.Variable(3.0)
    results = {}
    with gt.GradientTape() as tape:
        thread = threading.Thread(target=lambda: results.update(y=v * v))
        thread.start()
        thread.join()
    assert tape.watched_variables() == ()
    assert tape.gradient(results["y"], v) is None


# Watching


def test_watch_takes_nests_and_returns_them():
    v = gt.Variable(2.0, trainable=False)
    c = gt.constant(3.0)
    with gt.GradientTape() as tape:
        nest = tape.watch({"a": [np.ones(2), c], "b": (v, 4.0)})
        y = np.sum(nest["a"][0]) * nest["a"][1] * nest["b"][0] * nest["b"][1]
    assert nest["a"][1] is c and nest["b"][0] is v
    g = tape.gradient(y, nest)
    assert isinstance(g["b"], tuple)
    assert (float(g["a"][1]), float(g["b"][0]), float(g["b"][1])) == (16.0, 24.0, 12.0)


@pytest.mark.parametrize("given", [None, [1.0, None], {"a": None}])
def test_watch_of_none_is_a_value_error_that_names_it(given):
    with gt.GradientTape() as tape, pytest.raises(ValueError, match=r"watch got None.*NoneType"):
        tape.watch(given)


def test_watch_that_fails_watches_nothing():
    x = gt.constant(2.0)
    with gt.GradientTape() as tape:
        with pytest.raises(TypeError, match="str"):
            tape.watch([x, "text"])
        y = x * x
    assert tape.gradient(y, x) is None


def test_watching_integers_warns_and_gives_none():
    with gt.GradientTape() as tape:
        with pytest.warns(gt.errors.IntegerWatchWarning, match="int64"):
            n = tape.watch(gt.constant([1, 2]))
        y = n * 2.0
    assert tape.gradient(y, n) is None


def test_watch_on_a_tape_without_a_record_is_a_runtime_error():
    with pytest.raises(RuntimeError, match="never entered"):
        gt.GradientTape().watch(1.0)
    tape, x, y = recorded()
    tape.gradient(y, x)
    with pytest.raises(RuntimeError, match="has been used"):
        tape.watch(x)


def test_watch_after_leaving_counts_when_the_tape_is_entered_again():
    tape = gt.GradientTape()
    x = gt.constant(3.0)
    with tape:
        pass
    tape.watch(x)
    unseen = x * x
    with tape:
        y = x * x
    assert tape.gradient([unseen, y], x).numpy() == 6.0


def test_watching_after_computing_gives_none():
    x = gt.constant(3.0)
    with gt.GradientTape() as tape:
        y = x * x
        tape.watch(x)
    with pytest.warns(errors.GradtapeWarning, match="did not record this line"):
        assert tape.gradient(y, x) is None


def test_watched_values_forget_tapes_that_are_gone():
    x = gt.constant(3.0)
    for _ in range(20):
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        tape.gradient(y, x)
    assert len(x.value.tags) <= 2


# Variables on a tape


def test_trainable_variables_are_watched_when_read():
    a, b, frozen = gt.Variable(2.0), gt.Variable(3.0), gt.Variable(5.0, trainable=False)
    with gt.GradientTape() as tape:
        y = b * frozen + a
    assert tape.watched_variables() == (a, b)
    ga, gb, gf = tape.gradient(y, [a, b, frozen])
    assert (float(ga), float(gb), gf) == (1.0, 5.0, None)


def test_variables_that_are_not_trainable_can_be_watched():
    frozen = gt.Variable(5.0, trainable=False)
    with gt.GradientTape() as tape:
        assert tape.watch(frozen) is frozen
        y = frozen * frozen
    assert tape.watched_variables() == (frozen,)
    assert float(tape.gradient(y, frozen)) == 10.0


def test_without_automatic_watching_only_what_was_asked_for_counts():
    a, b = gt.Variable(2.0), gt.Variable(3.0)
    with gt.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(a)
        y = a * b
    assert tape.watched_variables() == (a,)
    assert [None if g is None else float(g) for g in tape.gradient(y, [a, b])] == [3.0, None]


def test_watched_variables_come_in_order_of_construction_and_outlive_the_gradient():
    tape = gt.GradientTape()
    assert tape.watched_variables() == ()
    first, second = gt.Variable(1.0), gt.Variable(2.0)
    with tape:
        y = second * first * second
        third = gt.Variable(3.0)
        y = third * y
    tape.gradient(y, first)
    assert [v is w for v, w in zip(tape.watched_variables(), (first, second, third), strict=True)] == [
        True
    ] * 3
    with tape:
        third.value()
    (only,) = tape.watched_variables()
    assert only is third


def test_assigning_does_not_watch():
    v = gt.Variable(1.0)
    with gt.GradientTape() as tape:
        v.assign(2.0)
    assert tape.watched_variables() == ()


def test_a_gradient_belongs_to_the_value_that_was_read():
    v = gt.Variable(3.0)
    with gt.GradientTape() as tape:
        y = v * v
    v.assign(100.0)
    assert float(tape.gradient(y, v)) == 6.0


def test_reads_before_and_after_an_assignment_add_up():
    v = gt.Variable(3.0)
    with gt.GradientTape() as tape:
        y = v * v
        v.assign(5.0)
        y = y + v * v
    assert float(y) == 34.0
    assert float(tape.gradient(y, v)) == 16.0


def test_assign_is_no_edge():
    v = gt.Variable(1.0)
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        v.assign(x * 2)
        y = v * v
    gx, gv = tape.gradient(y, [x, v])
    assert gx is None and float(gv) == 12.0


def test_a_variable_as_target():
    v, other = gt.Variable(3.0), gt.Variable(4.0)
    with gt.GradientTape(persistent=True) as tape:
        y = v * v
    assert float(tape.gradient(v, v)) == 1.0
    assert float(tape.gradient([v, y], v)) == 7.0
    assert tape.gradient(other, v) is None
    assert float(tape.gradient(other, other)) == 1.0
    assert tape.gradient(gt.Variable(1.0, trainable=False), v) is None


def test_variables_in_nested_tapes():
    v = gt.Variable(3.0)
    with gt.GradientTape() as outer:
        with gt.GradientTape() as inner:
            y = v**3
        first = inner.gradient(y, v)
    assert float(first) == 27.0
    assert float(outer.gradient(first, v)) == 18.0


# Stopping and resetting


def test_stop_recording():
    v = gt.Variable(2.0)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(3.0)
        with tape.stop_recording():
            a = x * v
        y = x * a
    assert tape.watched_variables() == ()
    assert float(tape.gradient(y, x)) == 6.0
    assert tape.gradient(a, x) is None


def test_recording_goes_on_after_an_exception_inside():
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        with pytest.raises(KeyError), tape.stop_recording():
            raise KeyError
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0


def test_stop_recording_needs_a_recording():
    tape = gt.GradientTape()
    with pytest.raises(RuntimeError, match="never entered"):
        tape.stop_recording()
    with tape, tape.stop_recording(), pytest.raises(ValueError, match="not recording"):
        tape.stop_recording()
    with pytest.raises(ValueError, match="not recording"):
        tape.stop_recording()


def test_a_gradient_while_stopped():
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        y = x * x
        with tape.stop_recording():
            g = tape.gradient(y, x)
        assert repr(tape) == "<GradientTape: used>"
    assert float(g) == 6.0


def test_reset_forgets_and_goes_on():
    v = gt.Variable(2.0)
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        before = x * v
        tape.reset()
        assert tape.watched_variables() == ()
        after = x * v * v
        assert tape.watched_variables() == (v,)
    gx, gv = tape.gradient([before, after], [x, v])
    assert gx is None and float(gv) == 12.0


def test_reset_needs_a_recording():
    tape = gt.GradientTape()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"inside the tape's with block"):
            tape.reset()
        with tape:
            pass
    with tape:
        x = tape.watch(1.0)
        tape.gradient(x * x, x)
        with pytest.raises(ValueError, match="not recording"):
            tape.reset()


# Gradients


def test_structures_of_sources():
    with gt.GradientTape(persistent=True) as tape:
        x, y = tape.watch((2.0, 3.0))
        z = x * y
    assert tape.gradient(z, []) == []
    assert tape.gradient(z, {"a": (x, [y])})["a"][1][0].numpy() == 2.0
    one, two = tape.gradient(z, [x, x])
    assert float(one) == float(two) == 3.0
    assert tape.gradient([], x) is None
    assert float(tape.gradient([], x, unconnected_gradients="zero")) == 0.0
    assert float(tape.gradient({"p": z, "q": [x]}, x)) == 4.0


@pytest.mark.parametrize(
    ("target", "sources", "error", "words"),
    [
        (None, "x", TypeError, "None as a target"),
        ("y", None, TypeError, "None as a source"),
        ("y", ["x", None], TypeError, r"None as a source \(at \[1\]\)"),
        (["y", None], "x", TypeError, r"None as a target \(at \[1\]\)"),
        ("y", {"s": "text"}, TypeError, r"str as a source \(at \['s'\]\)"),
        (1.0, "x", ValueError, r"plain float as a target.*\n.*\n.*\n.*tape.watch"),
        ("y", np.float32(1), ValueError, "plain float32 as a source"),
        ("y", np.ones(2), ValueError, "plain ndarray as a source"),
        ("y", [1], ValueError, r"plain int as a source \(at \[0\]\)"),
    ],
)
def test_what_is_no_array_is_named(target, sources, error, words):
    tape, x, y = recorded()
    known = {"x": x, "y": y}

    def put_in(tree):
        if isinstance(tree, list):
            return [put_in(item) for item in tree]
        return known.get(tree, tree) if isinstance(tree, str) else tree

    with pytest.raises(error, match=words):
        tape.gradient(put_in(target), put_in(sources))
    assert float(tape.gradient(y, x)) == 6.0


def test_a_second_gradient_of_a_one_shot_tape_is_a_runtime_error():
    tape, x, y = recorded()
    tape.gradient(y, x)
    with pytest.raises(RuntimeError, match="persistent=True"):
        tape.gradient(y, x)
    with pytest.raises(RuntimeError, match="never entered"):
        gt.GradientTape().gradient(y, x)


def test_one_shot_gradient_inside_of_the_block_ends_the_recording():
    v = gt.Variable(1.0)
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        y = x * x
        g = tape.gradient(y, x)
        z = x * x
        v.value()
    assert float(g) == 6.0
    assert tape.watched_variables() == ()
    with tape:
        pass
    assert tape.gradient(z, x) is None


def test_the_outer_tape_must_record_while_the_inner_gradient_is_taken():
    with gt.GradientTape() as outer:
        x = outer.watch(3.0)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
    slope = inner.gradient(y, x)
    with pytest.warns(errors.GradtapeWarning, match="in the block of another tape"):
        assert outer.gradient(slope, x) is None


def test_seeds_are_matched_by_position():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        y, z = x * x, x * 3.0
    g = tape.gradient({"a": y, "b": z}, x, output_gradients=[np.array([1.0, 10.0]), np.ones(2)])
    np.testing.assert_array_equal(g, [5.0, 43.0])
    np.testing.assert_array_equal(tape.gradient(y, x, output_gradients=x), [2.0, 8.0])
    np.testing.assert_array_equal(tape.gradient([y], x, output_gradients=np.ones(2)), [2.0, 4.0])
    np.testing.assert_array_equal(tape.gradient(y, x, output_gradients=[np.ones(2)]), [2.0, 4.0])


@pytest.mark.parametrize(
    ("seeds", "error", "words"),
    [
        ([np.ones(2), np.ones(2)], ValueError, "2 entries for 1 target"),
        ([10.0, 1.0], ValueError, r"2 entries for 1 target(.|\n)*np.array"),
        ([None], ValueError, "None for target 0"),
        (np.ones(3), ValueError, r"shape \(3,\), but its target has shape \(2,\)"),
        (1.0, ValueError, r"shape \(\)"),
        (np.ones(2) * 1j, TypeError, "complex128"),
        ("text", TypeError, "str"),
    ],
)
def test_seeds_that_do_not_fit_are_errors_and_leave_the_tape(seeds, error, words):
    tape, x, y = recorded(at=np.array([1.0, 2.0]))
    with pytest.raises(error, match=words):
        tape.gradient(y, x, output_gradients=seeds)
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, 4.0])


def test_unconnected_sources():
    v = gt.Variable([1, 2], trainable=False)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.ones((2, 3), np.float32))
        y = tape.watch(3.0) * 2
    for choice in ("none", gt.UnconnectedGradients.NONE):
        assert tape.gradient(y, x, unconnected_gradients=choice) is None
    for choice in ("zero", gt.UnconnectedGradients.ZERO):
        zero, ints = tape.gradient(y, [x, v], unconnected_gradients=choice)
        assert (zero.shape, zero.dtype) == ((2, 3), np.float32)
        assert (ints.shape, ints.dtype) == ((2,), np.int64)
    for choice in ("raise", gt.UnconnectedGradients.RAISE):
        with pytest.raises(ValueError, match=r"sources\['x'\]"):
            tape.gradient(y, {"x": x}, unconnected_gradients=choice)
    for unknown in ("bad", None, 3):
        with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: "):
            tape.gradient(y, x, unconnected_gradients=unknown)


def test_failing_with_raise_leaves_a_one_shot_tape_recording():
    with gt.GradientTape() as tape:
        x, unused = tape.watch((3.0, 4.0))
        y = x * x
        with pytest.raises(gt.errors.UnconnectedError):
            tape.gradient(y, unused, unconnected_gradients="raise")
        y = y * x
    assert float(tape.gradient(y, x)) == 27.0


def test_an_op_without_a_derivative_is_a_lookup_error_and_leaves_the_tape():
    with gt.GradientTape() as tape:
        z = tape.watch(1 + 2j)
        y = np.real(np.sign(z))
        w = np.real(z * z)
        with pytest.raises(LookupError, match="sign"):
            tape.gradient(y, z)
        w = w * 2
    assert complex(tape.gradient(w, z)) == 4 - 8j


def test_no_path_is_none_and_a_path_with_derivative_zero_is_zero():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.5, -2.0]))
        cut = [gt.stop_gradient(x), x.astype(int) * 1.0, np.argmax(x) * 1.0]
        flat = np.sign(x)
    assert [tape.gradient(y, x) for y in cut] == [None] * 3
    np.testing.assert_array_equal(tape.gradient(flat, x), [0.0, 0.0])


def test_pythons_max_follows_the_chosen_one():
    a, b, c = (gt.Variable(k) for k in (1.0, 3.0, 2.0))
    with gt.GradientTape() as tape:
        y = max([a, b, c]) * 2.0
    assert [None if g is None else float(g) for g in tape.gradient(y, [a, b, c])] == [None, 2.0, None]


def test_values_that_are_equal_are_distinct_sources():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(3.0)
        y = x * 1
        z = y + 0
        one, other = tape.watch(gt.constant(2.0)), tape.watch(gt.constant(2.0))
        w = z * z + one
    assert [float(g) for g in tape.gradient(w, [x, y, z])] == [6.0] * 3
    assert tape.gradient(w, other) is None
    assert tape.gradient(y, z) is None


def repeated_once(a):
    return np.repeat(a, 1)


@pytest.mark.parametrize("make", [gt.constant, gt.Variable])
@pytest.mark.parametrize(
    "copied",
    [
        lambda a: a.copy(),
        copy.deepcopy,
        lambda a: a.astype(float),
        np.copy,
        repeated_once,
        lambda a: np.concatenate([a]),
        gt.constant,
    ],
)
def test_a_copy_is_another_source(make, copied):
    a = make(np.array([1.0, 2.0]))
    b = copied(a)
    with gt.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(a)
        y = b * b
        z = copied(a) * 3
    said = {
        (
            gt.constant,
            repeated_once,
        ): "the tape did not record this line.*\n.*in repeated_once",  # unlike a copy, it is an op
        (gt.Variable, copy.deepcopy): "left the tape through copy.deepcopy",
    }.get((make, copied))
    with nullcontext() if said is None else pytest.warns(errors.GradtapeWarning, match=said):
        assert tape.gradient(y, a) is None
    assert tape.gradient(z, b) is None


def test_what_was_read_of_a_variable_is_another_source():
    v = gt.Variable(np.array([1.0, 2.0]), trainable=False)
    for read in (lambda: v.value(), v.read_value, lambda: v[:], lambda: v.reshape(2), lambda: gt.asarray(v)):
        a, b = read(), read()
        with gt.GradientTape() as tape:
            tape.watch(a)
            y = v * b
        assert tape.gradient(y, a) is None
        with gt.GradientTape() as tape:
            tape.watch(v)
            y = read() * 3
        np.testing.assert_array_equal(tape.gradient(y, v), [3.0, 3.0])


def test_complex_gradients_are_conjugated():
    with gt.GradientTape(persistent=True) as tape:
        z = tape.watch(1 + 2j)
        modulus = np.abs(z) ** 2
        square = z * z
    assert complex(tape.gradient(modulus, z)) == pytest.approx(2 + 4j)
    assert complex(tape.gradient(square, z)) == pytest.approx(2 - 4j)


@pytest.mark.parametrize("argument", ["persistent", "watch_accessed_variables"])
def test_options_must_be_bools(argument):
    with pytest.raises(TypeError, match=f"{argument} must be a bool"):
        gt.GradientTape(**{argument: "yes"})


@pytest.mark.parametrize("setting", [{"eager": True}, {"jit": False}, {}])
def test_settings_change_no_result_of_a_compiled_function(setting):
    v = gt.Variable(np.array([1.0, 2.0]))

    @gt.jit
    def loss(x):
        return np.sum(v * v * x)

    with gt.config.override(**setting):
        for _ in range(2):
            with gt.GradientTape() as tape:
                y = loss(np.ones(2))
            np.testing.assert_array_equal(tape.gradient(y, v), 2 * v.numpy())
            v.assign_add(1.0)


# Memory


def alive(references):
    gc.collect()
    return sum(reference() is not None for reference in references)


def test_a_one_shot_gradient_releases_the_record():
    tape, x, y = recorded(function=lambda x: np.sin(x) * 2, at=np.ones(3))
    middle = weakref.ref(y.value.node.inputs[0].node)
    gradient = tape.gradient(y, x)
    gradient.numpy()
    y.numpy()
    assert alive([middle]) == 0


def test_a_persistent_tape_keeps_its_record_until_it_is_gone():
    tape, x, y = recorded(persistent=True, function=lambda x: np.sin(x) * 2, at=np.ones(3))
    middle = weakref.ref(y.value.node.inputs[0].node)
    y.numpy()
    assert alive([middle]) == 1
    np.testing.assert_allclose(tape.gradient(y, x), 2 * np.cos(np.ones(3)))
    del tape
    y.numpy()
    assert alive([middle]) == 0


def test_a_training_loop_keeps_nothing_of_earlier_steps():
    w, v, losses = gt.constant(np.ones(3)), gt.Variable(np.ones(3)), []
    for _ in range(20):
        with gt.GradientTape() as tape:
            tape.watch(w)
            loss = np.sum(np.sin(w) * v)
        gw, gv = tape.gradient(loss, [w, v])
        w = w - 0.1 * gw
        v.assign_sub(0.1 * gv)
        losses.append(weakref.ref(loss.value))
        w.numpy()
    assert alive(losses) <= 2


def test_reset_releases_the_record():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.ones(3))
        y = np.sin(x) * 2
        middle = weakref.ref(y.value.node.inputs[0].node)
        tape.reset()
        y.numpy()
        assert alive([middle]) == 0


def test_a_tape_is_not_kept_by_what_it_recorded():
    tape, x, y = recorded(persistent=True)
    reference = weakref.ref(tape)
    del tape
    assert reference() is None
    assert float(y + x) == 12.0


def test_a_tape_that_could_not_be_made_dies_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError):
            gt.GradientTape(persistent="no")
        gc.collect()


def test_a_number_as_a_target_names_the_line_where_it_left_the_tape() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.arange(3.0))
        y = float(np.sum(x))
    with pytest.raises(errors.ArgumentError) as caught:
        tape.gradient(y, x)
    line = next(
        k
        for k, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "y = float(np.sum(x))" in text
    )
    assert re.search(rf"float\(x\) at .*{Path(__file__).name}:{line} in ", caught.value.why)
