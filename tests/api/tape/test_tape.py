"""The tape: what it records, and the gradients it gives."""

import gc
import threading
import weakref

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import extract
from gradtape.runtime.compile.program import _kernels


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


def test_leaving_and_entering_continues_the_record():
    tape = gt.GradientTape()
    with tape:
        x = tape.watch(2.0)
        a = x * x
    unseen = x * 10.0
    with tape:
        b = a * x + unseen
    assert float(tape.gradient(b, x)) == 12.0


def test_entering_twice_is_an_error():
    tape = gt.GradientTape()
    with tape, pytest.raises(ValueError, match="recording already"):
        tape.__enter__()


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
        misses.append(_kernels.misses)
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


def test_integer_watch_warns():
    with pytest.warns(gt.errors.IntegerWatchWarning), gt.GradientTape() as tape:
        tape.watch(np.array([1, 2]))


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
