"""A few rounds of the interruptions and alarms by chance; see `interrupts`."""

import signal
import threading

import numpy as np
import pytest

import gradtape as gt
from gradtape import progress
from gradtape.runtime.compile import kernel
from tests.fuzz.interrupts import SCENARIOS, Alarm, Fuzzer


@pytest.fixture(scope="module")
def fuzzer():
    return Fuzzer(seed=10)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_interruption_leaves_everything_as_it_was(fuzzer, name):
    before = fuzzer.raised + fuzzer.lost
    for _ in range(2):
        _, at, problems = fuzzer.round(name)
        assert not problems, f"--scenario {name} --at {at}\n" + "\n".join(problems)
    assert fuzzer.raised + fuzzer.lost > before


@pytest.fixture(scope="module")
def alarming():
    return Fuzzer(seed=11, raises=Alarm)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_signal_handler_raises_is_no_failure_of_what_it_interrupts(alarming, name):
    _, at, problems = alarming.round(name)
    assert not problems, f"--alarms --scenario {name} --at {at}\n" + "\n".join(problems)


class Handler:
    def __call__(self, number, frame):
        raise Alarm("time is over")


@pytest.mark.parametrize(
    ("handler", "function"),
    [(Handler(), np.arctan), (Handler().__call__, np.arcsinh)],
    ids=["object", "method"],
)
def test_an_alarm_during_a_compilation_ends_the_call(monkeypatch, handler, function):
    f = gt.jit(lambda x: function(x) * x - function(x + 1))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with gt.config.override(disk_cache=False), monkeypatch.context() as patch:
            patch.setattr(kernel, "cached_object", lambda *args, **kw: signal.raise_signal(signal.SIGALRM))
            with pytest.raises(Alarm, match="time is over"):
                f(np.arange(3.0))
    finally:
        signal.signal(signal.SIGALRM, before)
    x = np.arange(3.0)
    np.testing.assert_allclose(f(x), function(x) * x - function(x + 1))


@pytest.mark.parametrize("scale", [2.0, np.ones(2)])
def test_an_interruption_inside_of_threading_is_no_error_of_the_function(monkeypatch, scale):
    def interrupted(self):
        try:
            raise KeyboardInterrupt
        finally:
            threading.RLock().release()  # as Condition.wait does when it is interrupted

    f = gt.jit(lambda x: x * scale)
    gt.jit(np.sin)(0.5)  # installs the hooks, by a thread
    with gt.config.override(disk_cache=False, progress=True):
        with monkeypatch.context() as patch:
            patch.setattr(progress, "_watcher", None)
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                f(3.5)
        np.testing.assert_array_equal(f(3.5), scale * 3.5)
