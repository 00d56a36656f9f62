"""Pauses of the cycle collector: nested, in several threads at once, and across a fork."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import gradtape as gt
from gradtape import collector
from gradtape.collector import collector_paused, referrers
from gradtape.errors import InPlaceError
from tests.support.processes import run_python


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    assert gc.isenabled()
    yield
    assert gc.isenabled()


def test_the_outermost_pause_ends_it() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()


def test_an_error_ends_it() -> None:
    with pytest.raises(ValueError, match="inside"), collector_paused(), collector_paused():
        raise ValueError("inside")


def test_who_has_stopped_the_collector_keeps_it_stopped() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_compiling_and_tracing_leave_it_on() -> None:
    with gt.config.override(disk_cache=False):
        gt.jit(lambda x: np.sum(np.tanh(x) * 1.375))(np.ones(3))


class Pause(threading.Thread):
    """A thread that pauses the collector until it is told to end."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.leave = threading.Event(), threading.Event()
        self.start()
        assert self.entered.wait(60)

    def run(self) -> None:
        with collector_paused():
            self.entered.set()
            self.leave.wait(60)

    def end(self) -> None:
        self.leave.set()
        self.join()


def test_the_last_thread_ends_it() -> None:
    first, second = Pause(), Pause()
    first.end()
    assert not gc.isenabled()
    with collector_paused():
        second.end()
        assert not gc.isenabled()


def test_threads_that_pause_at_once_leave_it_on() -> None:
    def work() -> None:
        for _ in range(2000):
            with collector_paused():
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_forked_process_has_the_pauses_of_its_own_thread_alone() -> None:
    finished = run_python(
        """
        import gc, os, sys, threading
        from gradtape.collector import collector_paused

        if not hasattr(os, "fork"):
            sys.exit()
        entered, leave = threading.Event(), threading.Event()

        def work():
            with collector_paused():
                entered.set()
                leave.wait(60)

        worker = threading.Thread(target=work)
        worker.start()
        entered.wait(60)
        outside = os.fork()
        if not outside:
            os._exit(not gc.isenabled())
        with collector_paused():
            inside = os.fork()
            paused = not gc.isenabled()
        if not inside:
            os._exit(not (paused and gc.isenabled()))
        leave.set()
        worker.join()
        assert gc.isenabled()
        assert [os.waitpid(child, 0)[1] for child in (outside, inside)] == [0, 0]
        """
    )
    assert finished.returncode == 0, finished.stderr


@pytest.fixture
def frozen() -> Iterator[None]:
    """What there is when a test begins to freeze is set aside until it ends."""
    yield
    gc.unfreeze()


class Holder:
    """Refers to another object."""

    def __init__(self, held: object) -> None:
        self.held = held


held_by_the_module = Holder([1, 2])


def test_referrers_are_found_though_they_are_frozen(frozen: None) -> None:
    thing: list[object] = [3, 4]
    local, nested = Holder(thing), {"deep": [(Holder(thing),)]}
    before = referrers([thing, held_by_the_module.held], Holder)
    gc.freeze()
    assert not any(isinstance(other, Holder) for other in gc.get_referrers(thing))
    after = referrers([thing, held_by_the_module.held], Holder)
    assert {*before} == {*after} == {local, nested["deep"][0][0], held_by_the_module}


def test_all_objects_are_walked_once_after_each_freeze(frozen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []
    walk = collector._reachable
    monkeypatch.setattr(collector, "_reachable", lambda: walks.append(1) or walk())
    first, second = [5, 6], [7, 8]
    early = Holder(first)
    gc.freeze()
    for _ in range(3):
        assert referrers([first], Holder) == [early]
    assert len(walks) == 1
    early.held = second  # what is frozen can refer to something else
    assert referrers([first], Holder) == [] and referrers([second], Holder) == [early]
    late = Holder(first)
    assert referrers([first], Holder) == [late] and len(walks) == 1
    gc.freeze()
    assert referrers([first], Holder) == [late] and len(walks) == 2
    del early, late
    assert referrers([first, second], Holder) == [] and len(walks) == 2


def halve_often(x: float) -> float:
    count = 0.0
    while x > 1.0:
        x = x / 2.0
        count = count + x
    return count


def test_functions_that_are_frozen_are_translated(frozen: None) -> None:
    """A function with a loop that ends on a value, called by a function that cannot be translated."""
    names: list[str] = []

    def outer(x: float) -> float:
        names.append("outer")  # lists outside the function are not written to by translated code
        return halve_often(x) * 2.0

    gc.collect()
    gc.freeze()
    with gt.config.override(loops="compile"):
        f = gt.jit(outer)
        for x in (5.0, 90.0, 1e6):
            np.testing.assert_allclose(f(x), 2.0 * halve_often(x))


def test_weak_proxies_whose_objects_are_gone_are_passed_over(frozen: None) -> None:
    def function() -> None: ...

    proxies = [weakref.proxy(Pause), weakref.proxy(set())]
    gc.freeze()
    assert referrers([function.__code__], type(function)) == [function]
    del proxies


def test_a_view_that_is_frozen_is_a_view(frozen: None) -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(gt.constant(np.arange(6.0)))
        y = x * 2.0
        part = y[1:]
        gc.freeze()
        with pytest.raises(InPlaceError, match="it has views"):
            y.shape = (2, 3)
        del part
        y.shape = (2, 3)
    assert y.shape == (2, 3)
