"""Several tapes at once, tapes in generators and coroutines, and tapes that are interrupted: each keeps what it has recorded."""

import asyncio
import contextlib
import copy
import gc
import itertools
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest

import gradtape as gt
from gradtape import progress
from gradtape.api.tape import forward
from gradtape.api.tape import tape as tape_module
from gradtape.trace.patching import recorders
from gradtape.trace.patching.recorders import RECORDERS
from gradtape.trace.source import contexts as contexts_module
from gradtape.trace.source.contexts import contexts

X = np.array([0.5, -1.2, 2.0])
SIN, COS = np.sin(X), np.cos(X)
REPEATED = range(4)
"""A structure that is known is differentiated otherwise than a new one."""


# Several tapes that have recorded the same


@pytest.mark.parametrize("persistent", [*itertools.product([False, True], repeat=2)])
def test_a_gradient_of_one_tape_leaves_the_record_of_another(persistent):
    for _ in REPEATED:
        first, second = (gt.GradientTape(persistent=one) for one in persistent)
        with first, second:
            x = second.watch(first.watch(X))
            y = np.sin(x)
            z = y * x
        np.testing.assert_allclose(first.gradient(z, x), COS * X + SIN)
        at_x, at_y, at_z = second.gradient(z, [x, y, z])
        np.testing.assert_allclose(at_x, COS * X + SIN)
        np.testing.assert_allclose(at_y, X)
        np.testing.assert_array_equal(at_z, np.ones(3))
        np.testing.assert_allclose(z, SIN * X)


def test_a_gradient_leaves_what_an_accumulator_follows():
    for _ in REPEATED:
        x = gt.constant(X)
        with gt.GradientTape() as tape, gt.ForwardAccumulator(x, np.ones(3)) as accumulator:
            tape.watch(x)
            y = np.sin(x)
            z = y * x
        np.testing.assert_allclose(tape.gradient(z, x), COS * X + SIN)
        np.testing.assert_allclose(accumulator.jvp(z), COS * X + SIN)
        np.testing.assert_allclose(accumulator.jvp(y), COS)


def test_a_target_that_was_watched_before_it_was_computed():
    for _ in REPEATED:
        y = np.sin(gt.constant(X))
        with gt.GradientTape() as tape:
            tape.watch(y)
        np.testing.assert_array_equal(tape.gradient(y, y), np.ones(3))
        np.testing.assert_allclose(y, SIN)
    for _ in REPEATED:
        other, y = gt.constant(X), np.sin(gt.constant(X))
        with gt.GradientTape() as tape:
            tape.watch(y)
        assert tape.gradient(y, other) is None
        np.testing.assert_allclose(y, SIN)


def test_a_target_that_a_constant_of_another_one_is_made_of():
    for _ in REPEATED:
        with gt.GradientTape() as tape:
            x = tape.watch(X)
            z = np.sin(x)
            with tape.stop_recording():
                weight = np.exp(z * 2)
            w = z + weight * x
        gradient = tape.gradient([z, w], x)
        np.testing.assert_allclose(gradient, 2 * COS + np.exp(2 * SIN))
        np.testing.assert_allclose(z, SIN)
        np.testing.assert_allclose(weight, np.exp(2 * SIN))
        np.testing.assert_allclose(w, SIN + np.exp(2 * SIN) * X)


def test_targets_and_sources_are_told_apart_by_their_number():
    asked = [
        (lambda x, y, z: ([z], [x, y]), [COS * X, SIN]),
        (lambda x, y, z: ([z, x], [y]), [SIN]),
        (lambda x, y, z: ([z, x, y], []), []),
        (lambda x, y, z: ([], [z, x, y]), [None, None, None]),
    ]
    for ask, expected in [*asked, *asked]:
        for _ in REPEATED:
            with gt.GradientTape() as tape:
                x, y = tape.watch((X, X + 0.0))
                z = np.sin(x) * y
            found = tape.gradient(*ask(x, y, z))
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other) if other is not None else None
                assert (one is None) == (other is None)


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_what_was_computed_before_it_was_watched_begins_there(looked_at, order):
    def recorded(x):
        y = np.sin(x)
        if looked_at:
            y.numpy()
        with gt.GradientTape() as outer:
            outer.watch(y)
        with gt.GradientTape(persistent=True) as tape:
            for place in order:
                tape.watch((x, y)[place])
            z = y * x
        assert tape.gradient(y, x) is None
        np.testing.assert_allclose(outer.gradient(y, y), np.ones(3))
        return tape.gradient(z, [x, y])

    for _ in REPEATED:
        at_x, at_y = recorded(gt.constant(X))
        np.testing.assert_allclose(at_x, SIN)
        np.testing.assert_allclose(at_y, X)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_was_computed_while_recording_was_stopped_begins_where_it_is_watched(compiled):
    def gradients(x):
        with gt.GradientTape() as outer:
            outer.watch(x)
            with gt.GradientTape() as tape:
                tape.watch(x)
                with tape.stop_recording():
                    y = np.sin(x)
                tape.watch(y)
                z = y * x
            at_x, at_y = tape.gradient(z, [x, y])
        return at_x, at_y, outer.gradient(z, x)

    for _ in REPEATED:
        at_x, at_y, at_x_around = (gt.jit(gradients) if compiled else gradients)(gt.constant(X))
        np.testing.assert_allclose(at_x, SIN)
        np.testing.assert_allclose(at_y, X)
        np.testing.assert_allclose(at_x_around, SIN + X * COS)


# Entering and leaving


def nothing_is_in_force():
    return not contexts.stack and type(np.zeros(1)) is np.ndarray


def test_a_used_tape_entered_again_inside_of_its_block():
    tape = gt.GradientTape()
    with tape:
        x = tape.watch(2.0)
        assert float(tape.gradient(x * x, x)) == 4.0
        with tape:
            y = tape.watch(3.0)
            z = y**3
        unseen = z * y
    assert nothing_is_in_force()
    assert [None if g is None else float(g) for g in tape.gradient([z, unseen], [y])] == [27.0]


def test_tapes_may_be_left_in_any_order():
    first, second = gt.GradientTape(), gt.GradientTape()
    x = gt.constant(2.0)
    for tape in (first, second):
        tape.__enter__()
        tape.watch(x)
    y = x * x
    first.__exit__(None, None, None)
    z = y * x
    second.__exit__(None, None, None)
    assert nothing_is_in_force()
    with pytest.warns(gt.errors.GradtapeWarning, match="did not record this line"):
        assert first.gradient(z, x) is None
    assert float(second.gradient(z, x)) == 12.0


def test_leaving_on_another_thread_ends_the_recording():
    tape = gt.GradientTape()
    tape.__enter__()
    thread = threading.Thread(target=tape.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert nothing_is_in_force()


def steps(at, found):
    with gt.GradientTape() as tape:
        x = tape.watch(at)
        yield x
        y = x * x
        yield y
    found.append(float(tape.gradient(y, x)))


def test_tapes_in_generators():
    found = []
    for one, other in zip(steps(2.0, found), steps(3.0, found), strict=True):
        assert one.shape == other.shape
    assert found == [4.0, 6.0]
    left = steps(2.0, found)
    next(left)
    del left
    gc.collect()
    assert nothing_is_in_force()


def test_tapes_in_coroutines():
    async def step(at):
        with gt.GradientTape() as tape:
            x = tape.watch(at)
            await asyncio.sleep(0)
            y = x**3
            await asyncio.sleep(0)
        return float(tape.gradient(y, x))

    async def steps_together():
        given_up = asyncio.create_task(step(1.0))
        await asyncio.sleep(0)
        given_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await given_up
        return await asyncio.gather(*map(step, (1.0, 2.0, 3.0)))

    assert asyncio.run(steps_together()) == [3.0, 12.0, 27.0]
    assert nothing_is_in_force()


def recorded():
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        with gt.ForwardAccumulator(x, np.ones(3)) as accumulator:
            y = np.sum(x * x)
    accumulator.jvp(y)
    return tape.gradient(y, x)


def compiled():
    return gt.jit(lambda x: np.sum(x * x))(X)


FILES = {
    module.__file__ for module in (tape_module, forward, contexts_module, recorders, progress, contextlib)
}
FINALISERS = {"__del__", "_end"}


def interrupted(work, k):
    """Do some work, and let Ctrl-C come at the k-th place where Python looks for it, of what enters and leaves.

    It looks where a function begins, and where a built-in one has returned. Returns whether there are so many places.
    """
    count = 0

    def see(frame, event, argument):
        nonlocal count
        if event not in ("call", "c_return") or frame.f_code.co_filename not in FILES:
            return
        count += 1
        if count == k + 1:
            outer = frame
            while outer is not None and outer.f_code.co_name not in FINALISERS:
                outer = outer.f_back
            if outer is None:  # Python lets no exception out of a finaliser
                raise KeyboardInterrupt

    sys.setprofile(see)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return count > k


@pytest.mark.parametrize("work", [recorded, compiled])
def test_an_interruption_leaves_nothing_in_force(work):
    expected = np.asarray(work())
    k = 0
    while interrupted(work, k):
        if not nothing_is_in_force() or RECORDERS:
            gc.collect()  # what was interrupted on its way out is still in a traceback
        assert nothing_is_in_force()
        assert not RECORDERS
        assert progress._work is None
        k += 1
    assert k > 20
    np.testing.assert_allclose(work(), expected)


def test_a_finaliser_may_leave_while_a_tape_enters(monkeypatch):
    """The cycle collector may run at any place, also where somebody enters."""
    enter = recorders.enter

    def collecting(recorder):
        gc.collect()
        enter(recorder)

    def work():
        accumulator = gt.ForwardAccumulator(gt.constant(1.0), 1.0)
        cycle = [accumulator]
        cycle.append(cycle)
        del accumulator, cycle
        with gt.GradientTape():
            pass

    monkeypatch.setattr(recorders, "enter", collecting)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not RECORDERS


@pytest.mark.parametrize("place", ["append", "enter"])
def test_an_interruption_while_entering_enters_nothing(monkeypatch, place):
    class Interrupting(list):
        def append(self, item):
            super().append(item)
            raise KeyboardInterrupt

    def interrupted(recorder):
        raise KeyboardInterrupt

    for make in (gt.GradientTape, lambda: gt.ForwardAccumulator(gt.constant(1.0), 1.0)):
        entered = make()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            if place == "append":
                patch.setattr(contexts, "stack", Interrupting())
            else:
                patch.setattr(recorders, "enter", interrupted)
            entered.__enter__()
        assert nothing_is_in_force()
        with entered:
            pass


def test_a_tape_that_could_not_leave_does_so_in_the_end(monkeypatch):
    def interrupted(recorder):
        raise KeyboardInterrupt

    tape = gt.GradientTape()
    gone = weakref.ref(tape)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt), tape:
        patch.setattr(recorders, "leave", interrupted)
    del tape
    gc.collect()
    assert gone() is None
    assert nothing_is_in_force()


# Copies of tapes, and of what they follow


def test_a_tape_that_has_recorded_is_not_copied():
    fresh = gt.GradientTape(persistent=True, watch_accessed_variables=False)
    assert repr(copy.deepcopy(fresh)) == "<GradientTape: new, persistent>"
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(RuntimeError, match="neither copied nor pickled"):
                attempt(tape)
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0


def test_arrays_are_pickled_by_their_numbers():
    x = gt.constant(X)
    x.name = "weights"
    again, pending, slices = pickle.loads(
        pickle.dumps([x, np.sin(x) * 2, gt.IndexedSlices(X[:1], [2], (3,))])
    )
    assert type(again) is gt.Array
    assert again.name == "weights"
    np.testing.assert_array_equal(again, X)
    np.testing.assert_allclose(pending, 2 * SIN)
    np.testing.assert_array_equal(gt.asarray(slices), [0.0, 0.0, 0.5])
    with pytest.raises(gt.errors.ConcretizationError, match="pickling"):
        gt.jit(lambda x: pickle.dumps(x))(X)


def test_errors_are_pickled_with_their_page():
    with pytest.raises(gt.errors.TapeError) as caught:
        gt.GradientTape().watch(1.0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is gt.errors.TapeError
    assert str(again) == str(caught.value)
    assert again.remedy == caught.value.remedy
