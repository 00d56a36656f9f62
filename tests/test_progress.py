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
from gradtape.lower.resident.interrupts import progress_after
from tests.support.processes import words_printed

ROW = np.linspace(0.0, 1.0, 300)
TABLE = np.linspace(0.0, 1.0, 1_000)
W = np.outer(np.cos(ROW), np.sin(ROW))


@pytest.fixture(params=["tqdm", "text", "file"])
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "_is_terminal", lambda stream: request.param != "file")
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


def test_a_file_gets_few_lines_without_carriage_returns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(bars.time, "perf_counter", lambda: now)
    bar = bars._bar("work", 3600, "second")
    for _ in range(3600):
        now += 1.0
        bar.update(1)
    bar.close()
    lines = capsys.readouterr().err.splitlines(keepends=True)
    assert 5 < len(lines) < 15
    assert lines[0] == "work: 1 of 3600 seconds (0 %)\n"
    assert lines[-1] == "work: 3600 of 3600 seconds (100 %)\n"
    assert "\r" not in "".join(lines)


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


def long_loop(x: Any) -> Any:
    return gt.fori_loop(0, 4_000_000, lambda k, a: np.sin(a) + 0.1, x)


def long_while(x: Any) -> Any:
    return gt.while_loop(lambda a, k: k < 4_000_000, lambda a, k: (np.sin(a) + 0.1, k + 1), (x, 0))[0]


def long_for(x: Any) -> Any:
    for _ in range(4_000_000):
        x = np.sin(x) + 0.1
    return x


def long_scan(x: Any) -> Any:
    return gt.scan(lambda a, _: (np.sin(a) + x, None), x, None, 4_000_000)[0]


def layers(x: Any) -> Any:
    for _ in range(10):
        x = np.tanh(W @ x)
    return x


def in_another_loop(x: Any) -> Any:
    def half(k: Any, a: Any) -> Any:
        return gt.fori_loop(0, 1_000_000, lambda k, a: np.sin(a) + 0.1, a)

    return gt.fori_loop(0, 4, half, x)


LONG_LOOPS: dict[str, tuple[Any, str]] = {
    "fori_loop": (gt.jit(long_loop), "4000000"),
    "while_loop": (gt.jit(long_while), "iteration"),
    "compiled from its code": (gt.jit(long_for), "4000000"),
    "outermost of two": (gt.jit(in_another_loop), "4"),
    "gradient": (gt.grad(long_scan), "4000000"),
    "chunks of a map": (gt.vmap(lambda x: np.sum(np.sort(np.sin(x * TABLE))), chunk_size=1), "300"),
    "chunks of a Jacobian": (gt.jacobian(layers, chunk_size=1), "300"),
}  # fmt: skip
"""Functions of 300 numbers or of one, with what their bars show."""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", LONG_LOOPS)
def test_long_loops_of_machine_code_show_their_iterations(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    function, total = LONG_LOOPS[name]
    x: Any = np.linspace(0.0, 1.0, 300) if name.startswith("chunks") else np.float64(0.5)
    expected = function(x)
    capsys.readouterr()
    with progress_after(0.0):
        found = function(x)
    shown = capsys.readouterr().err
    assert "loop of line" in shown and "of test_progress.py" in shown and "iteration" in shown
    assert total in shown.replace(",", "")
    assert shown.endswith("\n"), "the bar is closed before the call returns"
    np.testing.assert_array_equal(found, expected)
    with progress_after(0.0), gt.config.override(progress=False):
        function(x)
    with progress_after(3600.0):
        function(x)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("impatient")
def test_loops_are_no_part_of_a_bar_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    function, _ = LONG_LOOPS["fori_loop"]
    function(np.float64(0.5))
    with progress_after(0.0), bars.counting("work", "step", lambda: 7):
        function(np.float64(0.5))
    assert "loop of line" not in capsys.readouterr().err


def test_a_loop_goes_on_where_nothing_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise OSError("closed")

        def flush(self) -> None:
            raise OSError("closed")

    function, _ = LONG_LOOPS["fori_loop"]
    expected = function(np.float64(0.5))
    monkeypatch.setattr(sys, "stderr", Closed())
    with progress_after(0.0):
        assert function(np.float64(0.5)) == expected


def test_ctrl_c_ends_the_bar_of_a_loop() -> None:
    program = """
import os, signal, sys, threading, time
import numpy as np
import gradtape as gt
from gradtape import progress
from gradtape.lower.resident.interrupts import progress_after

signal.signal(signal.SIGINT, signal.default_int_handler)
progress._bar = lambda what, total, unit: progress._Text(what, total, unit, sys.stdout)
loop = gt.jit(lambda x, n: gt.fori_loop(0, n, lambda k, a: np.sin(a) + 0.1, x))
loop(np.float64(1.0), 10)
for _ in range(2):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with progress_after(0.0):
            loop(np.float64(1.0), 10**12)
    except KeyboardInterrupt:
        print("ended", progress._loop)
"""
    words = words_printed(program)
    assert words.count("ended") == words.count("None") == 2
    assert words[words.index("ended") - 1] == "iterations"
