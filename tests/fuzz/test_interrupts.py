"""A few rounds of the interruptions by chance; see `interrupts`."""

import threading

import numpy as np
import pytest

import gradtape as gt
from gradtape import progress
from tests.fuzz.interrupts import SCENARIOS, Fuzzer


@pytest.fixture(scope="module")
def fuzzer():
    return Fuzzer(seed=10)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_interruption_leaves_everything_as_it_was(fuzzer, name):
    raised = fuzzer.raised
    for _ in range(2):
        _, at, problems = fuzzer.round(name)
        assert not problems, f"--scenario {name} --at {at}\n" + "\n".join(problems)
    assert fuzzer.raised > raised or fuzzer.lost


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
