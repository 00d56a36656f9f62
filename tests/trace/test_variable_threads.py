"""Threads that share variables and pending arrays."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as gt

THREADS = 4
REPEATS = 100


@pytest.fixture(autouse=True)
def hurried() -> Iterator[None]:
    """Let threads give way to each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], Any]) -> None:
    errors: list[BaseException] = []

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def often(work: Callable[[], Any]) -> Callable[[], None]:
    def again() -> None:
        for _ in range(REPEATS):
            work()

    return again


ROWS = gt.IndexedSlices(np.ones((2, 3)), [1, -1])


def add_in_place(v: gt.Variable) -> None:
    v += 1.0


CHANGES: dict[str, Callable[[gt.Variable], Any]] = {
    "assign_add": lambda v: v.assign_add(1.0),
    "assign_sub": lambda v: v.assign_sub(-1.0),
    "+=": add_in_place,
    "scatter_add": lambda v: v.scatter_add(ROWS),
    "scatter_sub": lambda v: v.scatter_sub(-ROWS),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_no_change_is_lost(name: str, compiled: bool) -> None:
    v = gt.Variable(np.zeros((2, 3)))

    def change() -> Any:
        CHANGES[name](v)
        return v[0, 0]

    work = gt.jit(change) if compiled else change
    together(*[often(work)] * THREADS)
    expected = np.array([[0.0], [2.0]] if "scatter" in name else [[1.0], [1.0]]) * THREADS * REPEATS
    np.testing.assert_array_equal(v.numpy(), np.broadcast_to(expected, (2, 3)))


def test_compiled_functions_that_change_the_same_variables_in_other_orders_do_not_wait_for_each_other() -> (
    None
):
    v, u = gt.Variable(0.0), gt.Variable(0.0)
    there = gt.jit(lambda: (v.assign_add(1.0), u.assign_add(1.0)))
    back = gt.jit(lambda: (u.assign_add(1.0), v.assign_add(1.0)))
    together(often(there), often(back), often(there), often(back))
    assert (float(v), float(u)) == (4 * REPEATS, 4 * REPEATS)


def test_what_is_assigned_while_another_thread_computes_the_content_before_it_stays() -> None:
    v, count = gt.Variable(np.zeros(3)), gt.Variable(0.0)
    torn = []

    def write() -> None:
        for repeat in range(REPEATS):
            v.assign(np.full(3, float(repeat)))
            count.assign_add(1.0)

    def read() -> None:
        for _ in range(REPEATS):
            seen = v.numpy()
            if seen.min() != seen.max():
                torn.append(seen)
            float(np.sum(v * 2.0 + count))

    together(write, read, write, read)
    assert not torn
    assert v.numpy().tolist() == [REPEATS - 1.0] * 3
    assert float(count) == 2 * REPEATS


def test_pending_arrays_are_computed_by_whoever_looks_first() -> None:
    for seed in range(30):
        x = gt.constant(np.arange(4.0) + seed)
        pending = [np.sin(x) * k + np.sum(x) for k in range(6)]
        ends = [np.sum(y * y) for y in pending]
        found: list[list[float]] = []
        together(*[lambda ends=ends, found=found: found.append([float(end) for end in ends])] * THREADS)  # type: ignore[misc]
        array = np.arange(4.0) + seed
        expected = [np.sum((np.sin(array) * k + np.sum(array)) ** 2) for k in range(6)]
        for one in found:
            np.testing.assert_allclose(one, expected)


def test_threads_train_models_of_their_own() -> None:
    ends: list[float] = []

    def train() -> None:
        w = gt.Variable(np.ones(3))
        for _ in range(30):
            with gt.GradientTape() as tape:
                loss = np.sum((w - 3.0) ** 2)
            w.assign_sub(0.25 * tape.gradient(loss, w))
        ends.append(float(w[0]))

    together(*[train] * THREADS)
    np.testing.assert_allclose(ends, 3.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork")  # other tests may have imported libraries that warn of it
def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    v = gt.Variable(np.zeros(3))
    stop = threading.Event()

    def keep_changing() -> None:
        while not stop.is_set():
            v.assign_add(1.0)
            v.numpy()

    thread = threading.Thread(target=keep_changing)
    thread.start()
    codes = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            threading.Timer(20, lambda: os._exit(1)).start()
            v.assign(np.zeros(3))
            v.assign_add(1.0)
            os._exit(0 if v.numpy().tolist() == [1.0] * 3 else 2)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    thread.join()
    assert codes == [0] * 10


def test_everything_at_once() -> None:
    variables = [gt.Variable(np.ones((4, 3))) for _ in range(3)]
    nothing = gt.IndexedSlices(np.zeros((2, 3)), [1, -1])
    shared = gt.jit(lambda x: np.sum(variables[0] * x + variables[1]))

    def on_a_tape(v: gt.Variable, u: gt.Variable) -> None:
        with gt.GradientTape() as tape:
            loss = np.sum(v**2) + np.sum(u)
        first, second = tape.gradient(loss, [v, u])
        np.testing.assert_array_equal(first, 3.0 if v is u else 2.0)
        np.testing.assert_array_equal(second, 3.0 if v is u else 1.0)

    def around_a_compiled_function() -> None:
        with gt.GradientTape() as tape:
            y = shared(2.0)
        np.testing.assert_array_equal(tape.gradient(y, variables[0]), 2.0)

    def recomputed(v: gt.Variable) -> None:
        with gt.GradientTape() as tape:
            y = gt.recompute_grad(lambda x: np.sum(v * x**2))(gt.constant(np.ones((4, 3))))
        np.testing.assert_array_equal(tape.gradient(y, v), 1.0)

    def compiled(v: gt.Variable, u: gt.Variable) -> None:
        gt.jit(lambda: (v.assign_add(0.0), u.scatter_add(nothing)))()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            v, u = (variables[k] for k in rng.integers(0, 3, 2))
            match rng.integers(0, 7):
                case 0:
                    v.assign_add(0.0)
                case 1:
                    v.scatter_sub(nothing)
                case 2:
                    v[1] = 1.0
                case 3:
                    on_a_tape(v, u)
                case 4:
                    around_a_compiled_function()
                case 5:
                    recomputed(v)
                case 6:
                    compiled(v, u)

    together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])  # type: ignore[misc]
    for v in variables:
        np.testing.assert_array_equal(v, np.ones((4, 3)))


def test_what_one_thread_finds_again_is_not_seen_by_others() -> None:
    w = gt.Variable(2.0, trainable=False)

    def again(x: Any) -> Any:
        w.assign_add(0.0)
        return x * w

    f = gt.recompute_grad(again)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(gt.constant(3.0))
        y = f(x)
    w.assign(100.0)
    seen: list[float] = []

    def differentiate() -> None:
        for _ in range(20):
            assert float(tape.gradient(y, x)) == 2.0

    together(differentiate, often(lambda: seen.append(float(w))), often(lambda: w.assign(100.0)))
    assert set(seen) == {100.0}
    assert float(w) == 100.0
