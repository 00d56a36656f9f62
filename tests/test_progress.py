"""Bars for what takes long: tracing a long function shows how many operations it has recorded."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import types
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import progress as bars


@pytest.fixture(params=["tqdm", "text"])
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "PATIENCE", 0.0)
    monkeypatch.setattr(bars, "PAUSE", 0.001)
    monkeypatch.setattr(bars, "_watcher", None)  # that of another test may sleep for longer: it ends
    if request.param == "text":
        monkeypatch.setattr(bars.importlib.util, "find_spec", lambda name: None)


def slow(x: Any) -> Any:
    for k in range(20):
        x = np.sin(x) * (1.0 + k)
        time.sleep(0.005)
    return x


@pytest.mark.usefixtures("impatient")
def test_tracing_shows_what_it_has_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    expected = slow(np.float64(0.3))
    assert gt.jit(slow)(0.3) == pytest.approx(expected)
    shown = capsys.readouterr().err
    assert "tracing slow" in shown and "operation" in shown


@pytest.mark.usefixtures("impatient")
def test_functions_inside_are_counted_along(capsys: pytest.CaptureFixture[str]) -> None:
    gt.jit(lambda x: gt.jit(slow)(x) + 1.0)(0.3)
    shown = capsys.readouterr().err
    assert "tracing <lambda>" in shown and "tracing slow" not in shown


@pytest.mark.usefixtures("impatient")
def test_it_can_be_switched_off_and_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with gt.config.override(progress=False):
        gt.jit(slow)(0.3)
    assert not capsys.readouterr().err

    def fails(x: Any) -> Any:
        raise RuntimeError(slow(x))

    with pytest.raises(RuntimeError):
        gt.jit(fails)(0.3)
    capsys.readouterr()
    time.sleep(0.01)
    assert not capsys.readouterr().err  # the bar is closed
    assert gt.jit(slow)(0.3) == pytest.approx(slow(np.float64(0.3)))


@pytest.mark.usefixtures("impatient")
def test_a_notebook_without_widgets_shows_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", types.ModuleType("ipykernel.zmqshell"))
    found = bars.importlib.util.find_spec
    monkeypatch.setattr(
        bars.importlib.util, "find_spec", lambda name: None if name == "ipywidgets" else found(name)
    )
    gt.jit(slow)(0.3)
    shown = capsys.readouterr()
    assert "tracing slow" in shown.out and not shown.err


def test_one_thread_watches_many_works_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "PAUSE", 0.02)
    monkeypatch.setattr(bars, "_watcher", None)
    watchers = set()
    for k in range(5):
        with bars.counting(f"work {k}", "step", lambda: 0):
            watchers.add(bars._watcher)
    (watcher,) = watchers
    assert watcher is not None and watcher.is_alive() and watcher.daemon
    watcher.join(30.0)
    assert not watcher.is_alive()
    with bars.counting("work", "step", lambda: 0):
        assert bars._watcher is not watcher


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings(
    "ignore:.*fork"
)  # other tests may have imported libraries that warn of it, and started threads
def test_no_watcher_is_there_when_the_process_forks() -> None:
    with bars.counting("work", "step", lambda: 0):
        watcher = bars._watcher
    assert watcher is not None and watcher.is_alive()
    context = multiprocessing.get_context("fork")
    child = context.Process(target=int)
    child.start()
    assert not watcher.is_alive() and bars._watcher is None
    child.join(30.0)
    assert child.exitcode == 0


def test_what_is_quick_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    gt.jit(np.sin)(0.3)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("impatient")
def test_compiling_shows_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    scale = time.perf_counter_ns()  # a number in the program: what was compiled before is known

    def deep(x: Any) -> Any:
        for k in range(60):
            x = np.tanh(x * (scale + k)) if k % 3 else np.roll(x, k) + 0.5 * x
        return x

    with gt.config.override(disk_cache=False, reroll=False):
        gt.jit(deep)(np.ones(7))
    shown = capsys.readouterr().err
    assert "compiling deep" in shown and "step" in shown
