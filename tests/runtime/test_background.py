"""Compilation in the background: the interpreter answers while threads compile."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.errors import CompileWarning
from gradtape.lru import LRU
from gradtape.runtime.call.capi import FREE_THREADED
from gradtape.runtime.compile import background, engine, kernel, program
from tests.support.processes import run_python, words_printed

X = np.linspace(0.1, 1.0, 7)


class Gate:
    """Holds the threads that compile until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self.arrived = threading.Event(), threading.Event()
        compile_ = program._kernel

        def gated(*args: Any) -> Any:
            if threading.current_thread().name == "gradtape-background":
                self.arrived.set()
                assert self._open.wait(60)
            return compile_(*args)

        monkeypatch.setattr(program, "_kernel", gated)

    def open(self) -> None:
        """Let the threads compile, and wait until they have."""
        self._open.set()
        background.finish_all()


@pytest.fixture(autouse=True)
def others_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave aside what other tests of the process have not compiled."""
    monkeypatch.setattr(background, "_unfinished", WeakValueDictionary())


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(program, "PATIENCE", 0.0)
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 0.0)
    made = Gate(monkeypatch)
    with gt.config.override(compile="background", disk_cache=False):
        yield made
        made.open()


def loss(x: Any) -> Any:
    return np.sum(np.tanh(x) * np.cumsum(x, axis=-1) ** 2)


def on_tape(x: Any) -> Any:
    with gt.GradientTape() as tape:
        a = tape.watch(x)
        y = loss(a)
    return tape.gradient(y, a).numpy()


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (gt.jit, X),
        (gt.value_and_grad, X),
        (gt.hessian, X[:3]),
        (lambda f: gt.jit(gt.vmap(f)), np.stack([X, X + 1])),
        (lambda f: gt.jit(lambda nest: {"y": f(nest["x"])}), {"x": X}),
    ],
    ids=["jit", "value_and_grad", "hessian", "vmap", "nested"],
)
def test_calls_are_answered_before_the_kernel_is_there(
    gate: Gate, make: Callable[[Any], Any], given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = np.random.default_rng(0).normal(size=2)  # no kernel of another test is that of this function

    def f(x: Any) -> Any:
        return loss(x) * float(scale[0]) + float(scale[1])

    function = make(f)
    early = [function(given) for _ in range(2)]
    said = gt.inspect.explain(function)
    assert "by a thread" in said
    assert "answered by the NumPy interpreter while it was compiled: 2" in said
    gate.open()
    late = [function(given) for _ in range(2)]
    assert "compiled in" in gt.inspect.explain(function)
    (made,) = function.site.specialisations()
    assert made.is_native
    if not FREE_THREADED:
        monkeypatch.setattr(program.Program, "run", None)  # machine code answers
    late.append(function(given))
    for one in (*early, *late):
        for got, wanted in zip(optree.tree_leaves(one), optree.tree_leaves(late[0]), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_tapes_and_files_are_answered(gate: Gate, tmp_path: Any) -> None:
    wanted = np.array([on_tape(X) for _ in range(3)])
    gt.export(loss, gt.spec(7), path=str(tmp_path / "loss.gradtape"))
    loaded = gt.load(str(tmp_path / "loss.gradtape"))
    value = loaded(X)
    gate.open()
    for _ in range(3):
        np.testing.assert_allclose(on_tape(X), wanted[0], rtol=1e-12)
    np.testing.assert_allclose(loaded(X), value, rtol=1e-12)
    np.testing.assert_allclose(wanted, wanted[:1] + np.zeros((3, 1)), rtol=1e-12)


def test_branches_are_guarded_in_the_meantime(gate: Gate) -> None:
    @gt.jit
    def f(x: Any) -> Any:
        return np.sum(x) if x[0] > 0 else np.prod(x)

    signs = (1.0, -1.0, 1.0, -1.0)
    early = [f(sign * X) for sign in signs]
    gate.open()
    np.testing.assert_allclose([f(sign * X) for sign in signs], early, rtol=1e-14)
    np.testing.assert_allclose(early, [np.sum(X), np.prod(-X)] * 2, rtol=1e-14)


def test_variables_are_assigned_once_for_each_call(gate: Gate) -> None:
    total = gt.Variable(np.zeros(7))

    @gt.jit
    def add(x: Any) -> Any:
        total.assign_add(x)
        return np.sum(total)

    early = [float(add(X)) for _ in range(2)]
    gate.open()
    np.testing.assert_allclose([*early, float(add(X))], np.sum(X) * np.arange(1, 4))


def test_an_interpretation_ends_when_the_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PATIENCE", 0.0)
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 0.0)
    f = gt.jit(lambda x: gt.fori_loop(0, 10**8, lambda i, c: c * 0.5 + x, x))
    with gt.config.override(compile="background", disk_cache=False):
        assert float(f(1.25)) == 2.5
    assert f.site.specialisations()[0].program.interpreted == 0


def test_what_has_effects_or_cannot_be_stopped_waits(gate: Gate) -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append(float(x))
        return np.asarray(x)

    gt.jit(lambda x: gt.callback(look, np.zeros(()), np.sum(x * 3.0)))(X)
    assert not gate.arrived.is_set()
    assert len(seen) == 1


def test_what_needs_machine_code_waits(gate: Gate) -> None:
    opened = threading.Timer(0.05, gate.open)
    opened.start()
    compiled = gt.jit(loss).lower(gt.spec(7)).compile()
    np.testing.assert_allclose(compiled(X), loss(X))
    function = gt.grad(loss)
    function(X)
    there = pickle.loads(pickle.dumps(function))
    np.testing.assert_array_equal(there(X), function(X))
    opened.join()


def test_errors_of_the_compiler_reach_the_next_call(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> bytes:
        raise ValueError("no such register")

    monkeypatch.setattr(kernel, "compile_object", fail)
    f = gt.jit(lambda x: np.sum(x * 12.75))
    early = f(X)
    gate.open()
    with pytest.warns(CompileWarning, match="no such register"):
        late = f(X)
    assert early == late == f(X)
    assert "no such register" in gt.inspect.explain(f)


def test_a_change_of_what_the_compiler_reads_waits_for_it(gate: Gate) -> None:
    f = gt.jit(lambda x: np.sum(np.exp(x) * 0.62))
    f(X)
    opened = threading.Timer(0.05, gate.open)
    opened.start()
    with gt.config.override(precise_math=not gt.config.precise_math):
        assert not background._unfinished
    opened.join()


def test_threads_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    optimise = engine._optimise

    def together(*args: Any) -> None:
        both.wait(60)
        optimise(*args)

    monkeypatch.setattr(engine, "_optimise", together)
    factors = np.random.default_rng(1).normal(size=2)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        factor = float(factors[number])
        found[number] = gt.jit(lambda x: np.sum(x * factor))(X[: number + 3])

    with gt.config.override(disk_cache=False):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    np.testing.assert_allclose([found[0], found[1]], [np.sum(X[:3]) * factors[0], np.sum(X[:4]) * factors[1]])


def test_ctrl_c_leaves_a_compilation_that_others_use(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = background.Compilation.wait_for_share

    def interrupted(self: Any, most: float) -> bool:
        monkeypatch.setattr(background.Compilation, "wait_for_share", wait)
        raise KeyboardInterrupt

    f = gt.jit(lambda x: np.sum(x * 3.375))
    monkeypatch.setattr(background.Compilation, "wait_for_share", interrupted)
    with pytest.raises(KeyboardInterrupt):
        f(X)
    early = f(X)
    gate.open()
    np.testing.assert_allclose([f(X), f(X)], early)


BUSY = """
import os, sys, threading, time
import numpy as np
import gradtape as gt
from gradtape.runtime.compile import engine, program

program.PATIENCE = program.SECONDS_PER_NODE = 0.0
gt.config.compile, gt.config.disk_cache, gt.config.progress = "background", False, False
arrived, go_on = threading.Event(), threading.Event()
optimise = engine._optimise

def slowly(*args):
    arrived.set()
    go_on.wait(0.1)
    optimise(*args)

engine._optimise = slowly
f = gt.grad(lambda x: np.sum(np.tanh(x) ** 3))
other = gt.grad(lambda x: np.sum(np.tanh(x) ** 4))
x = np.ones(3)
wanted = f(x), other(x)
arrived.wait(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_compiles_what_a_thread_was_compiling() -> None:
    words = words_printed(
        f"""{BUSY}
process = os.fork()
if process == 0:
    f.site.specialisations()[0].program.kernel
    assert np.allclose((f(x), other(x)), wanted)
    while not all(function.site.specialisations()[0].is_native for function in (f, other)):
        assert np.allclose((f(x), other(x)), wanted)
        time.sleep(0.01)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
    )
    assert words == ["0"]


def test_a_process_that_ends_leaves_what_is_not_compiled() -> None:
    run = run_python(
        f"""{BUSY}
import atexit

def last():
    gt.config.compile = "wait"
    print(float(gt.jit(lambda x: np.sum(x * 4.5))(np.ones(2))))

atexit.register(last)
print('end')
"""
    )
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["end", "9.0"], "")


class _Kernels:
    """Counts compilations in a test of when they are requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_node: float) -> None:
        self.count = 0
        compile_ = program._kernel

        def counted(*args: Any) -> Any:
            self.count += 1
            return compile_(*args)

        monkeypatch.setattr(program, "_kernel", counted)
        monkeypatch.setattr(program, "SECONDS_PER_NODE", per_node)


def test_what_is_called_seldom_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = _Kernels(monkeypatch, 1e6)
    with gt.config.override(compile="background", disk_cache=False):
        f = gt.jit(lambda x: np.sum(np.tanh(x) * 8.125))
        values = [f(X) for _ in range(3)]
        said = gt.inspect.explain(f)
        assert (kernels.count, "if it is called often" in said) == (0, True)
        assert "answered by the NumPy interpreter while it was compiled: 3" in said
        assert len(background._unfinished) == 1
        assert f.lower(gt.spec(7)).compile()(X) == pytest.approx(values[0], rel=1e-12)
        assert kernels.count == 1
        assert values == pytest.approx([f(X)] * 3, rel=1e-12)
    assert not background._unfinished


def test_what_was_not_compiled_does_not_keep_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    _Kernels(monkeypatch, 1e6)
    with gt.config.override(compile="background", disk_cache=False):
        f = gt.jit(lambda x: np.sum(np.tanh(x) * 8.25))
        f(X)
        assert len(background._unfinished) == 1
        del f
        gc.collect()
        assert not background._unfinished


def test_calls_of_functions_made_anew_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = _Kernels(monkeypatch, 1e6)
    accounts: LRU[str, Any] = LRU(lambda: 8)
    monkeypatch.setattr(background, "_accounts", accounts)
    with gt.config.override(compile="background", disk_cache=False):
        for _ in range(2):
            gt.jit(lambda x: np.sum(np.tanh(x) * 8.375))(X)
            gc.collect()
            assert kernels.count == 0
        (key,) = accounts._entries
        accounts.get(key).seconds = 1e9  # type: ignore[union-attr]
        gt.jit(lambda x: np.sum(np.tanh(x) * 8.375))(X)
        background.finish_all()
        assert kernels.count == 1


def test_the_interpreter_takes_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    pauses: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            nonlocal now
            pauses.append(timeout)
            now += timeout
            return False

    monkeypatch.setattr(background.time, "perf_counter", lambda: now)
    monkeypatch.setattr(background, "_start_thread", lambda: None)
    making = background.compilation_of("share", lambda: 1, expected=2.0)
    making._over = Event()
    making.note_interpreting(0.15)
    assert (making.is_requested, making.wait_for_share(0.2), pauses) == (False, False, [])
    making.note_interpreting(0.0501)
    assert (making.is_requested, making.wait_for_share(0.2), pauses) == (True, False, [])
    now += 0.1
    making.note_interpreting(0.02)
    assert not making.wait_for_share(0.2)
    assert pauses == [pytest.approx(0.101)]
    making.note_interpreting(0.1)
    assert not making.wait_for_share(0.2)
    assert not making.wait_for_share(0.0)
    assert pauses[1:] == [0.2, 0.0]
    assert making.result() == 1
    assert making.wait_for_share(0.2)
