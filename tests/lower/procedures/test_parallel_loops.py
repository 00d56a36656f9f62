"""Parallel loops of procedures: blocks, what they share, and results that do not depend on the number of threads."""

import math

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.types import is_inexact
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import For
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from gradtape.trees import flatten
from tests.frontend.support import translated
from tests.support.processes import words_printed

RNG = np.random.default_rng(5)


def energy(loop):
    def f(x):
        n = x.shape[0]
        total = 0.0
        for i in loop(n):
            own = 0.0
            for j in range(n):
                if j != i:
                    r2 = 0.3
                    for d in range(3):
                        t = x[i, d] - x[j, d]
                        r2 += t * t
                    own += 1.0 / (r2 * r2 * r2) - 1.0 / r2
            total += own
        return total

    return f


def forces(loop):
    def f(x):
        n = x.shape[0]
        out = np.zeros((n, 3))
        for i in loop(n):
            for j in range(n):
                if j != i:
                    dx, dy, dz = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
                    c = 1.0 / (0.3 + dx * dx + dy * dy + dz * dz)
                    out[i, 0] += c * dx
                    out[i, 1] += c * dy
                    out[i, 2] += c * dz
        return out

    return f


def in_place(loop):
    def f(x):
        y = x.copy()
        for i in loop(x.shape[0]):
            for j in range(1, x.shape[1]):
                y[i, j] = math.sin(y[i, j]) * math.exp(-(y[i, j - 1] ** 2))
        return y

    return f


def temporaries(loop):
    def f(x):
        n, m = x.shape
        out = np.empty(n)
        for i in loop(n):
            row = np.exp(x[i] - np.max(x[i]))
            other = np.zeros(m)
            for j in range(1, m):
                other[j] = other[j - 1] * 0.5 + row[j] / np.sum(row[: j + 1])
            out[i] = other[m - 1]
        return out

    return f


def option(loop):
    def f(start, sigma, z):
        paths, steps = z.shape
        total, least, hits = 0.0, 0.0, 0
        for p in loop(paths):
            s = start
            for k in range(steps):
                s *= math.exp(sigma * z[p, k] - 0.5 * sigma * sigma)
            if s > 1.0:
                total += s - 1.0
                hits += 1
            least -= 0.5 * s
        return total / paths + 1e-3 * hits + math.tanh(least / paths)

    return f


def gathers(loop):
    def f(x, places):
        total = 0.0
        for i in loop(places.shape[0]):
            a, b = x[places[i, 0]], x[places[i, 1]]
            total += math.exp(math.sin(a) * b)
        return total

    return f


def time_steps(loop):
    def f(x):
        y = x.copy()
        n = x.shape[0]
        force = np.empty(n)
        for _ in range(4):
            for i in loop(n):
                s = 0.0
                for j in range(n):
                    s += math.exp(-((y[i] - y[j]) ** 2))
                force[i] = s
            for i in range(n):
                y[i] += 0.1 * force[i] / n
        return y

    return f


def counted_by_data(loop):
    def f(x, n):
        total = 0.0
        for i in loop(int(n)):
            total += math.sin(x[i]) * math.exp(x[i])
        return total

    return f


PLACES = RNG.integers(0, 40, (30_000, 2))
PROGRAMS = {
    energy: (RNG.normal(size=(300, 3)),),
    forces: (RNG.normal(size=(300, 3)),),
    in_place: (RNG.normal(size=(400, 60)),),
    temporaries: (RNG.normal(size=(600, 12)),),
    option: (1.0, 0.2, RNG.normal(size=(2000, 20))),
    gathers: (RNG.normal(size=40), PLACES),
    time_steps: (RNG.normal(size=400),),
    counted_by_data: (RNG.normal(size=30_000), 29_990.0),
}


def value_and_gradient(f, args):
    """Return what is seen of a function: its results, and the gradient of a sum over them."""

    def loss(*given):
        return np.sum(f(*given) * 0.7)

    numbers = tuple(k for k, x in enumerate(args) if np.asarray(x).dtype.kind == "f")
    return flatten((gt.jit(f)(*args), gt.grad(loss, argnums=numbers)(*args)))[0]


def block_loops(procedure):
    """Return the loops over blocks of a procedure as it is compiled."""
    body = optimise_procedure(procedure, check=True).body
    return [s for s in walk(body) if isinstance(s, For) and s.parallel]


def reverse_of(procedure):
    active = [is_inexact(type_.dtype) for type_ in procedure.types]
    return vjp_procedure(procedure, active, [is_inexact(x.dtype) for x in procedure.result_types])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_any_number_of_threads_gives_the_same_bits_and_the_right_numbers(program):
    args = PROGRAMS[program]
    wanted = value_and_gradient(numba.njit(program(range)), args)
    parallel = numba.njit(program(numba.prange))
    seen = []
    for threads in (1, 2, 3):
        with gt.config.override(num_threads=threads):
            seen += [value_and_gradient(parallel, args) for _ in range(2)]
    for found in seen:
        for x, y in zip(found, seen[0], strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    for x, y in zip(seen[0], wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_long_loops_are_cut_into_blocks(program):
    procedure = translated(program(numba.prange), *PROGRAMS[program]).procedure
    assert len(block_loops(procedure)) == 1
    assert not block_loops(translated(program(range), *PROGRAMS[program]).procedure)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_reverse_sweep_is_cut_too(program):
    """Blocks have sums of their own where many iterations add to the adjoint of one element, and tapes of their own."""
    procedure = reverse_of(translated(program(numba.prange), *PROGRAMS[program]).procedure)
    assert len(block_loops(procedure)) == 2


def test_blocks_compute_what_the_interpreter_does():
    args = PROGRAMS[energy]
    procedure = reverse_of(translated(energy(numba.prange), *args).procedure)
    divided = optimise_procedure(procedure)
    for x, y in zip(
        run_procedure(divided, [*args, 1.0]), run_procedure(procedure, [*args, 1.0]), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


def test_inner_loops_of_unknown_length_are_taken_to_be_long():
    @numba.njit
    def f(x, n):
        total = 0.0
        for i in numba.prange(100):
            for j in range(n):
                total += math.sin(x * j + i)
        return total

    assert block_loops(translated(f.py_func, 0.5, np.array(3)).procedure)


def test_short_loops_stay_whole():
    assert not block_loops(translated(energy(numba.prange), RNG.normal(size=(5, 3))).procedure)


@pytest.mark.parametrize("n", [0, 1, 5, 20_000])
def test_trip_counts_of_data(n):
    x = RNG.normal(size=20_000)
    f = numba.njit(counted_by_data(numba.prange))
    with gt.config.override(num_threads=2):
        value, gradient = gt.value_and_grad(f)(x, float(n))
    np.testing.assert_allclose(value, np.sum(np.sin(x[:n]) * np.exp(x[:n])), rtol=1e-11)
    np.testing.assert_allclose(gradient[:n], (np.sin(x) + np.cos(x))[:n] * np.exp(x[:n]), rtol=1e-11)
    assert not np.any(gradient[n:])


def last_value(x):
    last = 0.0
    for i in numba.prange(len(x)):
        last = math.exp(math.sin(x[i]))
    return last


def recurrence(x):
    s = 0.5
    for i in numba.prange(len(x)):
        s = math.exp(math.sin(s * x[i]))
    return s


@pytest.mark.parametrize("function", [last_value, recurrence])
def test_iterations_that_hand_something_on_run_in_order(function):
    x = RNG.normal(size=50_000)
    assert not block_loops(translated(function, x).procedure)
    with gt.config.override(num_threads=2):
        np.testing.assert_allclose(gt.jit(numba.njit(function))(x), function(x), rtol=1e-11)


def test_a_failed_check_in_a_block_is_an_error():
    @numba.njit
    def f(x, places):
        total = 0.0
        for i in numba.prange(len(places)):
            total += math.exp(math.sin(x[places[i]]))
        return total

    x, places = RNG.normal(size=10), RNG.integers(0, 10, 30_000)
    wrong = places.copy()
    wrong[17_000] = 10
    with gt.config.override(num_threads=2):
        gradient = gt.grad(f)
        np.testing.assert_allclose(
            gradient(x, places), np.bincount(places) * np.cos(x) * np.exp(np.sin(x)), rtol=1e-11
        )
        with pytest.raises(IndexError):
            gradient(x, wrong)


def test_forward_mode_and_second_order():
    x = RNG.normal(size=(60, 3)) * 0.7
    f, g = numba.njit(energy(numba.prange)), numba.njit(energy(range))
    v = RNG.normal(size=x.shape)
    with gt.config.override(num_threads=2):
        for ours, theirs in zip(gt.jvp(f, (x,), (v,)), gt.jvp(g, (x,), (v,)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11)
        ours = gt.jvp(gt.grad(f), (x,), (v,))[1]
    step = 1e-5
    theirs = (gt.grad(g)(x + step * v) - gt.grad(g)(x - step * v)) / (2 * step)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


INTERRUPTED = """
import math, os, signal, threading, time
import numba, numpy as np
import gradtape as gt

signal.signal(signal.SIGINT, signal.default_int_handler)
gt.config.num_threads = 2

@numba.njit
def long(x, n):
    total = 0.0
    for i in numba.prange(64):
        for k in range(n):
            for j in range(n):
                total += math.sin(x * j + i + k)
    return total

run = gt.jit(long)
run(0.5, 10)

def fire():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=fire).start()
try:
    run(0.5, 10**6)
except KeyboardInterrupt:
    print("stopped")
print("fine" if np.isfinite(run(0.5, 10)) else "wrong")
"""


def test_ctrl_c_ends_the_blocks_of_all_threads():
    assert words_printed(INTERRUPTED) == ["stopped", "fine"]
