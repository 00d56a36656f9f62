"""A process that forks while another thread imports, traces, compiles or computes: the child goes on by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradtape import locks
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PROGRAM = """
import importlib.abc, os, signal, sys, threading, time
import numpy as np
import gradtape as gt

stage = sys.argv[1]
reached, forking = threading.Event(), threading.Event()


def fork_now():
    "Called by the working thread, once: lets the main thread begin to fork, and goes on while it does."
    if not reached.is_set():
        reached.set()
        forking.wait(60)
        time.sleep(0.05)


class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == stage:
            fork_now()


def train(x, number):
    return np.sum(np.sin(x * number) @ np.linalg.solve(np.eye(3) * number + x[:, None] * x, x))


def traced(x):
    if stage == "a trace":
        fork_now()
    return train(x, 1.5)


def work():
    if "." in stage:
        sys.meta_path.insert(0, Watch())
    elif stage != "a trace":
        import gradtape.lower.target.extensions as extensions
        import gradtape.runtime.compile.engine as engine
        module, name = (extensions, "module_from_spec") if stage == "a library" else (engine, "_optimise")
        work_of = getattr(module, name)

        def slowly(*args):
            half = work_of(*args)
            fork_now()
            return half

        setattr(module, name, slowly)
    gt.grad(traced)(np.ones(3))


def child():
    signal.alarm(30)
    got = gt.grad(lambda x: train(x, 4.5) * 1.75)(np.ones(3))
    with gt.config.override(jit=False):
        want = gt.grad(lambda x: train(x, 4.5) * 1.75)(np.ones(3))
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(3))
        y = np.sum(x**3)
    right = np.allclose(got, want) and np.allclose(tape.gradient(y, x), 3.0)
    os._exit(0 if right else 9)


worker = threading.Thread(target=work)
worker.start()
reached.wait(60)
forking.set()
process = os.fork()
if process == 0:
    child()
print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.parametrize(
    "stage", ["llvmlite.binding.ffi", "gradtape.lower.pipeline", "a library", "LLVM", "a trace"]
)
def test_a_child_of_a_busy_process_compiles(stage: str) -> None:
    """The process forks while another thread is in the middle of an import, of loading a library, of LLVM, of a trace."""
    run = run_python(PROGRAM, stage, GRADTAPE_DISABLE_DISK_CACHE="1")
    assert run.stdout.strip() == "0", run.stdout + run.stderr


def test_locks_are_taken_in_their_order_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    class Lock:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def __enter__(self) -> None:
            taken.append(self.rank)

        def __exit__(self, *_: object) -> None:
            taken.append(-self.rank)

    monkeypatch.setattr(locks, "_held", [])
    # This process is no child: its threads wait on what would be renewed.
    monkeypatch.setattr(locks, "_renew", [])
    for rank in (7, 5, 6):
        locks.held_at_fork(rank, lambda rank=rank: Lock(rank))  # type: ignore[misc]
    locks.held_at_fork(8, lambda: None)
    locks._before()
    locks._in_child()
    assert taken == [5, 6, 7, -7, -6, -5]


def test_every_lock_has_a_place() -> None:
    """A new lock is entered in the order, and says what a fork does with it."""
    source = Path(locks.__file__).parent
    with_locks = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "threading.Lock()" in (text := path.read_text()) or "threading.RLock()" in text
    }
    told = {
        name
        for name in with_locks
        if "renewed_in_child(" in (source / name).read_text()
        or "held_at_fork(" in (source / name).read_text()
    }
    assert with_locks == told
