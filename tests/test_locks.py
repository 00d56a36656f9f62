"""A process that forks while another thread imports, traces, compiles or computes: the child goes on by itself."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from gradtape import locks
from gradtape.locks import Rank
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


class Lock:
    """A lock that writes down what is done to it."""

    def __init__(self, done: list[str], name: str) -> None:
        self.done = done
        self.name = name

    def __enter__(self) -> None:
        self.done.append(f"take {self.name}")

    def __exit__(self, *_: object) -> None:
        self.done.append(f"release {self.name}")

    def _is_owned(self) -> bool:
        return self.name == "mine"

    def _at_fork_reinit(self) -> None:
        self.done.append(f"renew {self.name}")


def test_a_fork_takes_locks_in_their_order_or_renews_them(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    ranks = {
        "linkers": Rank.LINKERS,
        "mine": Rank.TRACE,
        "patches": Rank.PATCHES,
        "leaf": Rank.LEAF,
        "compiler": Rank.COMPILER,
    }
    made = {Lock(done, name): rank for name, rank in ranks.items()}
    entries = WeakKeyDictionary(made)
    monkeypatch.setattr(locks, "_locks", entries)
    # This process is no child: its threads wait on what would be renewed.
    monkeypatch.setattr(locks, "_renew", [])
    monkeypatch.delitem(sys.modules, "llvmlite.binding.ffi", raising=False)
    locks._before()
    locks._in_child()
    order = ["patches", "compiler", "linkers"]
    assert done[:3] == [f"take {name}" for name in order]
    assert done[3:6] == [f"release {name}" for name in order[::-1]]
    assert set(done[6:]) == {f"renew {name}" for name in ranks if name != "mine"}


def test_a_child_has_the_locks_of_the_thread_that_forked_alone() -> None:
    run = run_python(
        """
        import os, threading
        from gradtape.locks import Rank, new_lock

        mine, theirs = new_lock(Rank.TRACE), new_lock(Rank.VARIABLE)
        entered, leave = threading.Event(), threading.Event()

        def work():
            with theirs:
                entered.set()
                leave.wait(60)

        worker = threading.Thread(target=work)
        worker.start()
        entered.wait(60)
        with mine:
            child = os.fork()
            held = mine._is_owned()
        if not child:
            os._exit(not (held and not mine._is_owned() and theirs.acquire(timeout=5)))
        leave.set()
        worker.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert run.stdout.strip() == "0", run.stdout + run.stderr


def test_locks_are_made_and_forks_are_observed_in_one_module() -> None:
    primitives = {
        "Lock",
        "RLock",
        "Condition",
        "Semaphore",
        "BoundedSemaphore",
        "allocate_lock",
        "register_at_fork",
    }
    source = Path(locks.__file__).parent
    for path in source.rglob("*.py"):
        used = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not used & primitives or path == source / "locks.py", path.name


ORDER = """
import sys, threading

RLock = threading.RLock
held = threading.local()
wrong = []


class Checked:
    "A lock that looks at the ranks of those that its thread holds already."

    def __init__(self):
        self.lock = RLock()

    def acquire(self, *args, **kwargs):
        locks = sys.modules.get("gradtape.locks")
        rank = locks._locks.get(self) if hasattr(locks, "_locks") else None
        if rank is not None and not self.lock._is_owned():
            several = {locks.Rank.PROGRAM, locks.Rank.VARIABLE}
            for other in held.__dict__.setdefault("ranks", []):
                if other > rank or other == rank and rank not in several:
                    wrong.append((other, rank))
        got = self.lock.acquire(*args, **kwargs)
        if got and rank is not None:
            held.__dict__.setdefault("ranks", []).append(rank)
        return got

    def release(self):
        locks = sys.modules.get("gradtape.locks")
        rank = locks._locks.get(self) if hasattr(locks, "_locks") else None
        if rank is not None:
            held.ranks.reverse()
            held.ranks.remove(rank)
            held.ranks.reverse()
        self.lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def __getattr__(self, name):
        return getattr(self.lock, name)


threading.RLock = Checked
import numpy as np
import gradtape as gt

gt.config.disk_cache = False
x = np.linspace(0.1, 1.0, 7)
v = gt.Variable(np.ones(7))


@gt.jit
def step(x):
    y = np.sum(np.sin(x * v) @ np.linalg.solve(np.eye(7) * 3.0 + x[:, None] * x, x))
    v.assign_sub(0.1 * x)
    return y


def work(k):
    for _ in range(6):
        with gt.GradientTape() as tape:
            tape.watch(v)
            y = np.sum(np.tanh(v * k) ** 2) + step(x)
        v.assign_sub(0.01 * tape.gradient(y, v))
        gt.grad(lambda x: np.sum(np.exp(x) * k))(x)
        gt.scan(lambda c, a: (np.tanh(c * a + k), None), x, np.ones(2000))
        np.array([x[0], y.numpy()])


threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
work(9.0)
for thread in threads:
    thread.join()
with gt.inspect.profile() as report:
    work(11.0)
str(report)
print(sorted({(a.name, b.name) for a, b in wrong}))
"""


def test_locks_are_taken_in_their_order() -> None:
    run = run_python(ORDER)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr
