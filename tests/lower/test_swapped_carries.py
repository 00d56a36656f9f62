"""Carries that exchange their memory: one becomes what the other one was, and this one is replaced element by element."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.types import INT64
from gradtape.loops.ir import SequentialFor, Store, WhileLoop
from gradtape.lower.pipeline import schedule_of
from gradtape.ops.core.indexing import update_row
from gradtape.ops.core.shape import slice_
from gradtape.statements import walk
from gradtape.transforms.loops.ops import repeat, scan
from tests.support.control_cases import body_of, graph_of, value
from tests.support.lowering import check

SIZE = 100
START = [np.linspace(0.0, 1.0, SIZE), np.linspace(1.0, -1.0, SIZE) ** 2]


def leapfrog(now, before):
    """The wave equation with two levels: the next one is computed in the memory of the one before."""
    return now * 1.9 - before, now


def jacobi(now, other):
    """A stencil of one array is written to the other one."""
    mean = slice_(now, (0,), (SIZE - 2,), (1,)) + slice_(now, (2,), (SIZE - 2,), (1,))
    return update_row(other, mean * 0.5, starts=(1,), strides=(1,)), now


def reversed_before(now, before):
    """The one before is read in another order than it is replaced in: it has to be kept."""
    return now + slice_(before, (SIZE - 1,), (SIZE,), (-1,)), now


def scanned(step, length, inputs):
    body = body_of(lambda index, a, b: step(a, b), [value((), INT64), value((SIZE,)), value((SIZE,))])
    return scan(body, [], inputs, [], length)


def loops_in(program):
    return [s for s in walk(program.body) if isinstance(s, SequentialFor | WhileLoop)]


@pytest.mark.parametrize("length", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("wanted", ["both", "first", "second"])
@pytest.mark.parametrize("step", [leapfrog, jacobi])
def test_nothing_is_copied_in_an_iteration(step, wanted, length):
    inputs = [value((SIZE,)), value((SIZE,))]
    outs = scanned(step, length, inputs)
    outs = {"both": outs, "first": outs[:1], "second": outs[1:]}[wanted]
    graph = graph_of(outs, inputs)
    check(graph, START)
    if length > 1:
        (loop,) = loops_in(schedule_of(graph))
        assert [pair.carries for pair in loop.pairs] == [2]
        assert len([s for s in walk([loop]) if isinstance(s, Store)]) == 1


def test_what_is_read_in_another_order_is_kept():
    inputs = [value((SIZE,)), value((SIZE,))]
    graph = graph_of(scanned(reversed_before, 5, inputs), inputs)
    (loop,) = loops_in(schedule_of(graph))
    assert all(pair.carries == 1 for pair in loop.pairs)
    check(graph, START)


@pytest.mark.parametrize("step", [leapfrog, jacobi])
@pytest.mark.parametrize("trips", [0, 1, 4, 7])
def test_loops_whose_trip_count_is_known_at_run_time(step, trips):
    inputs = [value((SIZE,)), value((SIZE,))]
    count = value((), INT64)
    body = body_of(lambda index, a, b: step(a, b), [value((), INT64), *inputs])
    graph = graph_of(repeat(body, count, [], inputs, []), [count, *inputs])
    (loop,) = loops_in(schedule_of(graph))
    assert [pair.carries for pair in loop.pairs] == [2]
    check(graph, [np.array(trips), *START])


@pytest.mark.parametrize("steps", [3, 40, 41])
def test_programs(steps):
    """Outlined loops do not know the trip count: the results land where they belong."""

    def waves(u, v):
        for _ in range(steps):
            u, v = 2 * u - v + 0.1 * np.convolve(u, [1, -2, 1], "same"), u
        return u, v

    def swapping(a, b):
        for _ in range(steps):
            b[1:-1] = 0.5 * (a[2:] + a[:-2])
            a[1:-1] = 0.5 * (b[2:] + b[:-2])
        return a, b

    for program in (waves, swapping):
        expected = program(*[x.copy() for x in START])
        for found in (gt.jit(program)(*START), gt.jit(lambda *xs, f=program: [*f(*xs)][::-1])(*START)[::-1]):
            np.testing.assert_allclose(found, expected, rtol=1e-12)

        def total(a, b, program=program):
            first, second = program(1.0 * a, 1.0 * b)
            return np.sum(first**2) + np.sum(second)

        gradient = gt.grad(total, argnums=(0, 1))(*START)
        for k, part in enumerate(gradient):
            moved = [
                [x + h * (j == k) * (np.arange(SIZE) == 7) for j, x in enumerate(START)]
                for h in (1e-6, -1e-6)
            ]
            difference = total(*moved[0]) - total(*moved[1])
            assert part[7] == pytest.approx(difference / 2e-6, rel=1e-4, abs=1e-6)


def test_arrays_that_are_written_in_turn_are_neither_copied_nor_kept_besides():
    """The reads of what was written are alike in all iterations, the first one included."""

    def heat(a, b):
        for _ in range(20):
            b[1:-1] = 0.25 * (a[2:] - 2.0 * a[1:-1] + a[:-2]) + a[1:-1]
            a[1:-1] = 0.25 * (b[2:] - 2.0 * b[1:-1] + b[:-2]) + b[1:-1]
        return a, b

    def fields(a, b):
        for k in range(20):
            a[0] = 0.1 * k
            a[1:] -= 0.5 * (b[1:] - b[:-1])
            b[:-1] -= 0.7 * (a[1:] - a[:-1])
        return a, b

    for program, exchanged in ((heat, 1), (fields, 0)):
        compiled = gt.jit(program)
        np.testing.assert_allclose(compiled(*START), program(*[x.copy() for x in START]), rtol=1e-12)
        loops = str(gt.inspect.loops(compiled, *START))
        assert "np.empty" not in loops
        assert sum(", p" in line for line in loops.splitlines()) == 2 * exchanged
