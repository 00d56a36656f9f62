"""Several threads compute the same bits as one; the blocks follow from the shapes alone."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.loops.ir import Compute, For, Load
from gradtape.loops.passes.parallelise import ALIGNED, MOST_BLOCKS
from gradtape.lower.pipeline import build_loops
from gradtape.statements import walk
from tests.support.compiled import mixture
from tests.support.processes import run_python

N = 300_001


def curved(x):
    return np.sum(np.exp(-x * x) * np.sin(x) + np.log1p(x * x) * np.cos(x))


def soft(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top))) + np.sum(np.tanh(x) * np.arctan(x))


def mixture_data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 5)), rng.normal(size=(8, 5, 5)), rng.normal(size=(10_007, 5))


def program_of(function, *args):
    jitted = gt.jit(function)
    jitted(*args)
    made = jitted.site.specialisations()
    return build_loops(made[0].graph)[0]


def split_loops(program):
    return [s for s in program.body if isinstance(s, For) and s.private is not None]


def bits(results):
    leaves = [np.asarray(leaf) for leaf in gt_leaves(results)]
    return [leaf.tobytes() for leaf in leaves]


def gt_leaves(results):
    if isinstance(results, tuple):
        return [leaf for result in results for leaf in gt_leaves(result)]
    return [results]


CASES = {
    "curved": (gt.value_and_grad(curved), lambda: (np.random.default_rng(1).normal(size=N),)),
    "soft": (gt.value_and_grad(soft), lambda: (np.random.default_rng(1).normal(size=N),)),
    "mixture": (gt.value_and_grad(mixture, argnums=(0, 1)), mixture_data),
}


@pytest.mark.parametrize("name", CASES)
def test_any_number_of_threads_gives_the_same_bits_and_the_right_numbers(name):
    function, data = CASES[name]
    args = data()
    seen = []
    for threads in (1, 2, 3):
        with gt.config.override(num_threads=threads):
            seen.extend(bits(function(*args)) for _ in range(5))
    assert all(run == seen[0] for run in seen)
    with gt.config.override(jit=False):
        expected = gt_leaves(function(*args))
    for mine, numpys in zip(gt_leaves(function(*args)), expected, strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=1e-9, atol=1e-9)


def test_large_loops_are_split_into_aligned_blocks_and_small_ones_are_not():
    (loop,) = split_loops(program_of(curved, np.ones(N)))
    blocks = loop.var.high + 1
    assert 2 <= blocks <= MOST_BLOCKS
    (rows,) = [s for s in loop.body if isinstance(s, For)]
    assert (rows.var.high + 1) % ALIGNED == 0
    assert N - blocks * (rows.var.high + 1) < blocks * ALIGNED
    assert not split_loops(program_of(curved, np.ones(2000)))


def test_rows_that_are_left_over_have_names_of_their_own():
    """Both loops may be in one function of LLVM's, where a name is defined once."""
    program = program_of(curved, np.ones(N))
    assert any(s.var.name.endswith("_left") for s in program.body if isinstance(s, For))
    defined = [s.target.name for s in walk(program.body) if isinstance(s, Load | Compute)]
    assert len(set(defined)) == len(defined)


def test_the_number_of_threads_changes_no_program():
    with gt.config.override(num_threads=1):
        one = program_of(curved, np.ones(N))
    with gt.config.override(num_threads=3):
        three = program_of(curved, np.ones(N))
    assert [s.var.high for s in split_loops(one)] == [s.var.high for s in split_loops(three)]


def test_each_thread_has_scratch_of_its_own_for_its_rows():
    graph_program = program_of(gt.value_and_grad(mixture, argnums=(0, 1)), *mixture_data())
    (loop,) = split_loops(graph_program)
    assert loop.private


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.cumsum(np.exp(np.sin(x)) * np.tanh(x)),
        lambda x: np.argmax(np.exp(np.sin(x)) * np.tanh(x)),
        lambda x: np.max(np.exp(np.sin(x)) * np.tanh(x)),
        lambda x: np.min(np.where(x > 3.9, np.nan, np.exp(np.sin(x)) * np.tanh(x))),
        lambda x: np.any(np.exp(np.sin(x)) * np.tanh(x) > 2.7),
        lambda x: np.prod(1 + 1e-6 * np.exp(np.sin(x)) * np.tanh(x)),
        lambda x: np.convolve(np.exp(np.sin(x)) * np.tanh(x), np.array([1.0, 2.0, 3.0])),
        lambda x: np.sum((np.exp(np.sin(x)) * np.tanh(x) * 10).astype(np.int64)),
        lambda x: np.sin(np.exp(x[::-1])) * np.tanh(np.exp(x)),
    ],
    ids=["cumsum", "argmax", "max", "min-nan", "any", "prod", "convolve", "integers", "flip"],
)
def test_what_goes_from_row_to_row_stays_right(function):
    x = np.random.default_rng(3).normal(size=N)
    compiled = gt.jit(function)
    with gt.config.override(num_threads=2):
        two = compiled(x)
    assert np.asarray(two).tobytes() == np.asarray(compiled(x)).tobytes()
    np.testing.assert_allclose(two, function(x), rtol=1e-9, atol=1e-12)


def test_one_total_may_be_added_to_by_two_split_loops():
    def both(x, y):
        return np.sum(np.tanh(np.concatenate([np.exp(np.sin(x)), np.exp(np.cos(y))])))

    x, y = np.random.default_rng(4).normal(size=(2, N))
    assert len(split_loops(program_of(both, x, y))) == 2
    np.testing.assert_allclose(gt.jit(both)(x, y), both(x, y), rtol=1e-12)


def test_kernels_of_several_python_threads_share_the_helpers():
    function, data = CASES["curved"]
    args = data()
    expected = bits(function(*args))
    failures = []

    def work():
        failures.extend(run for run in range(20) if bits(function(*args)) != expected)

    with gt.config.override(num_threads=3):
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


FORK = """
import os
import numpy as np
import gradtape as gt

gt.config.num_threads = 2
f = gt.jit(lambda x: np.sum(np.exp(np.sin(x)) * np.tanh(x)))
x = np.linspace(0, 1, 400_000)
before = f(x)
child = os.fork()
if child == 0:
    same = all(f(x) == before for _ in range(5))
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
assert f(x) == before
print("child", os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_has_threads_of_its_own():
    done = run_python(FORK)
    assert done.stdout == "child 0\n", done.stderr


def blas_threads() -> tuple[Any, Any]:
    """What reads and what sets the number of threads of SciPy's OpenBLAS."""
    from scipy.linalg import cython_blas

    library = ctypes.CDLL(cython_blas.__file__)
    for prefix in ("scipy_openblas", "openblas"):
        if hasattr(library, f"{prefix}_get_num_threads"):
            return library[f"{prefix}_get_num_threads"], library[f"{prefix}_set_num_threads"]
    return None, None


@pytest.mark.skipif(blas_threads()[0] is None, reason="SciPy has another BLAS")
@pytest.mark.parametrize(("before", "wanted"), [(2, 1), (1, 2), (1, 1)])
def test_blas_keeps_its_number_of_threads_beyond_a_kernel(before: int, wanted: int) -> None:
    get, change = blas_threads()
    x = np.ones((200, 200))
    product = gt.jit(lambda x: x @ x)
    former = get()
    try:
        change(before)
        with gt.config.override(num_threads=wanted):
            np.testing.assert_array_equal(product(x), x @ x)
        assert get() == before
    finally:
        change(former)


def recurrence(x):
    for _ in range(20):
        x = np.tanh(x + 0.1 * np.roll(x, 1))
    return np.sum(x)


def strips(x):
    y = x
    for _ in range(40):
        y = np.sin(y) + x
    return np.sum(y)


def rows(x):
    table = x[:300_000].reshape(1000, 300)
    return np.sum(np.log(np.sum(np.exp(table - np.max(table, axis=1, keepdims=True)), axis=1)))


def running(x):
    return np.sum(np.cumsum(np.sin(x)) ** 2) / x.size


def spectrum(x):
    return np.sum(np.abs(np.fft.rfft(x[:4096])) ** 2) + np.sum(np.convolve(x[:50_000], np.ones(31)) ** 2)


def ordered(x):
    return np.sum(np.sort(x[:20_000])[::2] ** 2) + np.sum(
        np.bincount(np.arange(x.size) % 1000, weights=np.exp(x)) ** 2
    )


@pytest.mark.parametrize("memory", [None, "20 MB"])
@pytest.mark.parametrize("function", [recurrence, strips, rows, running, spectrum, ordered])
def test_programs_have_the_same_bits_for_any_number_of_threads(function, memory: str | None) -> None:
    x = np.random.default_rng(0).normal(size=N)
    both = gt.value_and_grad(function)
    with gt.config.override(memory=memory):
        alone = bits(both(x))
        for threads in (2, 3):
            with gt.config.override(num_threads=threads):
                assert bits(both(x)) == alone


def test_large_products_agree_to_rounding_for_any_number_of_threads() -> None:
    """BLAS divides a large product between its threads, and adds up in an order that depends on their number."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(300, 280)), rng.normal(size=(280, 320))
    slope = gt.grad(lambda x: np.sum(np.sin(first @ x)))
    alone = slope(second)
    for threads in (2, 3):
        with gt.config.override(num_threads=threads):
            np.testing.assert_allclose(slope(second), alone, rtol=1e-10, atol=1e-10)


def test_blocks_with_products_have_the_same_bits_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    first, second, x = rng.normal(size=(48, 48)), rng.normal(size=(48, 48)), rng.normal(size=(30_000, 48))
    both = gt.value_and_grad(lambda v, w, x: np.sum(np.tanh(np.tanh(x @ v) @ w)), argnums=(0, 1, 2))
    value, slopes = both(first, second, x)
    loops = gt.inspect.loops(both, first, second, x)
    assert "_part in range" in loops and "gemm(" in loops
    for threads in (2, 3):
        with gt.config.override(num_threads=threads):
            again, others = both(first, second, x)
        assert again == value
        for one, other in zip(slopes, others, strict=True):
            np.testing.assert_array_equal(one, other)
    with gt.config.override(jit=False):
        _, wanted = both(first, second, x)
    for one, right in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-10 * np.max(np.abs(right)))
