"""The memory pool: what results and scratch memory leave is kept, within bounds, and results are arrays like any other."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import gradtape as gt
from gradtape.lower.resident import memory
from gradtape.runtime.call.entry import trim
from gradtape.runtime.memory import pool as pool
from tests.support.processes import run_python

SIZE = memory.LARGE // 8
BLOCK = 2 * memory.LARGE
POSIX = pytest.mark.skipif(os.name != "posix", reason="the pool needs posix_memalign")

pytestmark = POSIX


@gt.jit
def doubled(x):
    return x * 2.0


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    doubled(np.ones(SIZE))
    trim()
    yield
    trim()


def test_results_own_their_data() -> None:
    result = doubled(np.ones(SIZE))
    assert type(result) is np.ndarray
    assert result.flags.owndata and result.flags.writeable and result.flags.c_contiguous
    assert result.base is None
    np.testing.assert_array_equal(result, np.full(SIZE, 2.0))


def test_small_results_keep_to_numpys_own_memory() -> None:
    assert np._core.multiarray.get_handler_name(doubled(np.ones(8))) == "default_allocator"
    assert np._core.multiarray.get_handler_name(doubled(np.ones(SIZE))) == "gradtape results"


def test_numpys_allocator_is_back_after_a_call() -> None:
    before = np._core.multiarray.get_handler_name()
    doubled(np.ones(SIZE))
    assert np._core.multiarray.get_handler_name() == before == "default_allocator"


def test_numpys_allocator_is_back_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may raise its error as soon as the allocator is set."""

    def interrupted(specs: object) -> None:
        allocator = pool._allocator()
        allocator.set_handler(allocator.handler)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "_pooled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.empty_results([((SIZE,), np.dtype(float))])
    assert np._core.multiarray.get_handler_name() == "default_allocator"


def test_the_memory_of_a_freed_result_is_that_of_the_next_one() -> None:
    x = np.ones(SIZE)
    first = doubled(x)
    page = first.ctypes.data // 4096
    del first
    assert 0 < memory.kept_bytes() <= BLOCK
    again = doubled(x)
    assert again.ctypes.data // 4096 == page
    assert memory.kept_bytes() == 0


def test_results_that_live_never_share_memory() -> None:
    x = np.ones(SIZE)
    alive = [doubled(x) for _ in range(8)]
    del alive[::2]
    alive += [doubled(x) for _ in range(8)]
    for k, one in enumerate(alive):
        one[:] = k
    assert [int(one.min()) for one in alive] == [int(one.max()) for one in alive] == list(range(len(alive)))


def test_results_of_one_call_begin_at_different_cache_lines() -> None:
    both = gt.grad(lambda x, y: np.sum(np.exp(x) * y), argnums=(0, 1))(np.ones(SIZE), np.ones(SIZE))
    places = {result.ctypes.data % 4096 for result in both}
    assert len(places) == 2 and all(place % 64 == 0 for place in places)


def test_what_is_kept_is_bounded() -> None:
    x = np.ones(SIZE)
    with gt.config.override(memory_pool=3 * BLOCK):
        alive = [doubled(x) for _ in range(10)]
        del alive
        assert memory.LARGE <= memory.kept_bytes() <= 3 * BLOCK
    with gt.config.override(memory_pool=0):
        assert memory.kept_bytes() == 0
        del x
        result = doubled(np.ones(SIZE))
        del result
        assert memory.kept_bytes() == 0


def test_a_lower_limit_gives_memory_back_at_once() -> None:
    alive = [doubled(np.ones(SIZE)) for _ in range(4)]
    del alive
    held = memory.kept_bytes()
    with gt.config.override(memory_pool=held // 2):
        assert memory.kept_bytes() <= held // 2


def test_many_small_blocks_are_bounded_in_number() -> None:
    x = np.ones(SIZE)
    alive = [doubled(x) for _ in range(200)]
    del alive
    assert memory.kept_bytes() <= 64 * BLOCK


def test_the_oldest_sizes_go_first() -> None:
    results = [doubled(np.ones(SIZE * k)) for k in (1, 2, 3)]
    last = results[-1].ctypes.data // 4096
    with gt.config.override(memory_pool=4 * BLOCK):
        while results:
            del results[0]
        assert doubled(np.ones(3 * SIZE)).ctypes.data // 4096 == last


def test_results_can_be_resized_pickled_and_written_to() -> None:
    result = doubled(np.arange(float(SIZE)))
    restored = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(restored, result)
    result.resize(2 * SIZE, refcheck=False)
    np.testing.assert_array_equal(result[:SIZE], 2.0 * np.arange(SIZE))
    np.testing.assert_array_equal(result[SIZE:], np.zeros(SIZE))
    result.resize(3, refcheck=False)
    np.testing.assert_array_equal(result, [0.0, 2.0, 4.0])
    result.resize(0, refcheck=False)
    assert result.size == 0


def test_calls_by_way_of_python_take_their_results_from_the_pool() -> None:
    result = doubled(x=np.ones(SIZE))
    assert np._core.multiarray.get_handler_name(result) == "gradtape results"


def test_threads_get_memory_of_their_own() -> None:
    failures: list[float] = []

    def work(number: float) -> None:
        x = np.full(SIZE, number)
        for _ in range(50):
            result = doubled(x)
            if result[0] != 2 * number or result[-1] != 2 * number:
                failures.append(number)

    threads = [threading.Thread(target=work, args=(float(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_results_may_outlive_the_interpreters_end() -> None:
    code = (
        "import atexit, numpy as np, gradtape as gt\n"
        f"f = gt.jit(lambda x: x * 2.0)\nkeep = f(np.ones({SIZE}))\n"
        "class Late:\n    def __del__(self): self.held = None\n"
        f"late = Late(); late.held = f(np.ones({SIZE})); late.me = late\n"
        f"atexit.register(lambda: f(np.ones({SIZE})))\n"
        "np.kept_by_another_module = f(np.ones(100_000))\nprint('done')"
    )
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
def test_repeated_calls_fault_no_new_pages() -> None:
    import resource

    x = np.ones(8 * SIZE)
    both = gt.value_and_grad(lambda x: np.sum(np.exp(-x * x)))
    for _ in range(3):
        both(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        both(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < x.nbytes / 4096


# Scratch memory

STEPS = 20


def waves(frequency: float):
    def total(x):
        y = x
        for _ in range(STEPS):
            y = np.sin(y) + frequency * x
        return np.sum(y)

    return gt.grad(total)


def test_functions_share_the_memory_of_their_records_and_give_it_back() -> None:
    x = np.linspace(0.0, 1.0, SIZE)
    functions = [waves(float(k)) for k in range(4)]
    kept = []
    for function in functions:
        for _ in range(3):
            function(x)
        kept.append(memory.kept_bytes())
    assert STEPS * x.nbytes <= kept[0] <= 2 * STEPS * x.nbytes
    assert len(set(kept)) == 1
    del functions, function
    gc.collect()
    assert memory.kept_bytes() <= 2 * BLOCK  # results


def test_scratch_memory_is_bounded() -> None:
    x, function = np.linspace(0.0, 1.0, SIZE), waves(1.0)
    with gt.config.override(memory_pool=BLOCK):
        for _ in range(3):
            function(x)
        assert memory.kept_bytes() <= BLOCK


def converge(x):
    def improved(y):
        return (y + x / y) / 2

    return np.sum(gt.while_loop(lambda y: np.any(np.abs(y * y - x) > 1e-9), improved, x))


def test_records_of_unknown_number_are_in_the_pool() -> None:
    small, large = np.linspace(1.0, 4.0, 3), np.linspace(1.0, 4.0, SIZE)
    gradient = gt.grad(converge)
    for x in (small, large):
        for _ in range(3):
            np.testing.assert_allclose(gradient(x), 0.5 / np.sqrt(x), rtol=1e-9)
    kept = memory.kept_bytes()
    assert kept >= large.nbytes
    trim()
    assert memory.kept_bytes() == 0
    for x in (large, small, large):
        np.testing.assert_allclose(gradient(x), 0.5 / np.sqrt(x), rtol=1e-9)


def test_concurrent_calls_have_scratch_memory_of_their_own() -> None:
    function = waves(0.5)
    inputs = [np.linspace(0.0, 1.0 + k, SIZE) for k in range(4)]
    expected = [function(x) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(20) if not np.array_equal(function(inputs[k]), expected[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
