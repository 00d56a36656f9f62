"""Tapes over functions that are translated: what they write, long loops, and what each query of a tape answers."""

import math

import numba
import numpy as np
import pytest

import gradtape as gt

START = np.array([0.3, 0.5, 0.7, 0.2])


def chain(x):
    for i in range(1, x.shape[0]):
        x[i] = math.sin(x[i - 1]) + x[i] ** 2
    return x.sum()


def silent(x):
    for i in range(1, x.shape[0]):
        x[i] = math.sin(x[i - 1]) + x[i] ** 2


def pure(x):
    x = x.copy()
    return chain(x)


SLOPES = np.array([(pure(START + e) - pure(START - e)) / 2e-6 for e in 1e-6 * np.eye(4)])


@pytest.mark.parametrize("loops", ["auto", "compile", "trace"])
@pytest.mark.parametrize("function", [chain, silent], ids=["chain", "silent"])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "njit"])
def test_the_gradient_is_that_in_what_was_watched(loops, function, compiled):
    function = numba.njit(function) if compiled else function
    given = START.copy()
    with gt.config.override(loops=loops), gt.GradientTape() as tape:
        x = tape.watch(given)
        y = function(x)
        y = np.sum(x) if y is None else y
    assert np.allclose(tape.gradient(y, x), SLOPES)
    assert np.array_equal(given, START)
    assert np.isclose(np.sum(x), pure(START))  # the array itself has the new contents


def test_each_query_of_a_tape_asks_for_what_was_watched():
    function = numba.njit(silent)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(START)
        function(x)
        y = np.sum(x)
        z = np.stack([y, 2.0 * y])
    assert np.allclose(tape.gradient(y, x), SLOPES)
    assert np.allclose(tape.jacobian(z, x), [SLOPES, 2.0 * SLOPES])
    assert np.allclose(tape.gradient([y, z], x, [1.0, np.array([2.0, 3.0])]), 9.0 * SLOPES)
    assert np.allclose(tape.gradient(x, x), np.sum(tape.jacobian(x, x), axis=0))
    assert gt.debug.explain_gradient(tape, y, x).reason == "connected"


def test_what_is_watched_again_counts_from_there():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(START)
        x *= 2.0
        tape.watch(x)
        y = np.sum(x**2)
    assert np.allclose(tape.gradient(y, x), 4.0 * START)


def test_what_is_written_after_its_use_has_the_gradient_of_its_use():
    with gt.GradientTape() as tape:
        x = tape.watch(START)
        y = np.sum(x**2)
        x += 1.0
    assert np.allclose(tape.gradient(y, x), 2.0 * START)


def test_of_an_intermediate_array_the_present_contents_count():
    with gt.GradientTape() as tape:
        x = tape.watch(START)
        z = 3.0 * x
        z[0] = 0.0
        y = np.sum(z**2)
    assert np.allclose(tape.gradient(y, z), [0.0, *6.0 * START[1:]])


def test_a_step_that_is_repeated_is_answered_the_same_way():
    for _ in range(5):  # from the third time on the record is predicted
        with gt.GradientTape() as tape:
            x = tape.watch(START)
            x *= 3.0
            y = np.sum(x**2)
        assert np.allclose(tape.gradient(y, x), 18.0 * START)


def test_a_long_loop_on_a_tape_says_what_to_do():
    def decay(x):
        y = np.zeros(2)
        for _ in range(17_000):
            y = 0.5 * y + np.sin(x)  # a long loop
        return y

    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([0.1, 0.2]))
        y = decay(x)
        z = np.sum(gt.jit(decay)(x))
    with pytest.warns(gt.errors.LongLoopWarning, match=r"(?s)test_tapes.py:\d+ in decay.*gt.jit\(f\)"):
        matrix = tape.jacobian(y, x)
    assert np.allclose(matrix, np.diag(2.0 * np.cos([0.1, 0.2])))
    assert np.allclose(tape.gradient(z, x), np.diag(matrix))  # without a warning
