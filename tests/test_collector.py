"""Pauses of the cycle collector: nested, in several threads at once, and across a fork."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import gradtape as gt
from gradtape.collector import collector_paused
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
