"""Procedures as machine code, against Python and NumPy."""

import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gradtape.ir.graph import Value, literal
from gradtape.ir.types import aval
from gradtape.lower.resident.memory import trim_memory
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exponential import sin
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import solve
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.ir import Apply, Pop, Push, Span
from gradtape.transforms.loops.draft import make_body
from tests.lower.procedures.standalone import ProcedureFailed, compile_procedure, procedure_module

RANDOM = np.random.default_rng(0)


def array(*shape, dtype=float):
    return aval(shape, np.dtype(dtype))


def cholesky(n):
    build = ProcedureBuilder("cholesky")
    a = build.array("a", (n, n))
    out = build.allocate("l", n * n, zero=True)
    with build.loop(n) as i, build.loop(i + 1) as j:
        total = build.variable("s", build.load(a, i * n + j))
        with build.loop(j) as k:
            product = build.load(out, i * n + k) * build.load(out, j * n + k)
            build.assign(total, build.read(total) - product)
        with build.branch(equal(i, j)) as branch:
            build.store(out, i * n + j, sqrt(build.read(total)))
            build.start_otherwise(branch)
            build.store(out, i * n + j, build.read(total) / build.load(out, j * n + j))
    return build.finish([out], [array(n, n)])


def test_cholesky():
    x = RANDOM.normal(size=(20, 20))
    x = x @ x.T + np.eye(20)
    (found,) = compile_procedure(cholesky(20))(x)
    np.testing.assert_allclose(found, np.linalg.cholesky(x), rtol=1e-12, atol=1e-12)


def test_while_loop():
    build = ProcedureBuilder("collatz")
    number = build.variable("n", build.scalar("n0", np.int64))
    steps = build.variable("steps", 0)
    with build.loop_while() as loop:
        n = build.read(number)
        build.start_body(loop, n > 1)
        with build.branch(equal(remainder(n, 2), 0)) as branch:
            build.assign(number, floor_divide(n, 2))
            build.start_otherwise(branch)
            build.assign(number, 3 * n + 1)
        build.assign(steps, build.read(steps) + 1)
    run = compile_procedure(build.finish([build.read(steps)]))
    assert [int(run(n)[0]) for n in (1, 2, 6, 27)] == [0, 1, 8, 111]


@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_trip_count_of_data(count):
    build = ProcedureBuilder("total")
    x = build.array("x", (1000,))
    count_ = build.scalar("n", np.int64)
    total = build.variable("s", 0.0)
    with build.loop(count_) as i:
        build.assign(total, build.read(total) + sin(build.load(x, i)))
    x = RANDOM.normal(size=1000)
    (found,) = compile_procedure(build.finish([build.read(total)]))(x, count)
    np.testing.assert_allclose(found, np.sin(x[:count]).sum(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("count", [-3, 0])
def test_loop_without_iterations(count):
    build = ProcedureBuilder("nothing")
    out = build.allocate("out", 2, np.int32)
    build.store(out, 0, 7)
    build.store(out, 1, 8)
    with build.loop(count) as i:
        build.store(out, i, 9)
    (found,) = compile_procedure(build.finish([out], [array(2, dtype=np.int32)]))()
    assert found.tolist() == [7, 8]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64", "float32", "float64"])
def test_dtypes_in_memory(dtype):
    build = ProcedureBuilder("copy")
    x = build.array("x", (5,), dtype)
    held = build.variable("held", build.load(x, 4))
    out = build.allocate("out", 5, dtype)
    with build.loop(5) as i:
        build.store(out, i, build.read(held))
        build.assign(held, build.load(x, i))
    last = build.read(held)
    procedure = build.finish(
        [out, last, convert(last, np.dtype(float))], [array(5, dtype=dtype), last.aval, array()]
    )
    x = np.array([1, 0, 1, 1, 0]).astype(dtype)
    rolled, held, number = compile_procedure(procedure)(x)
    assert rolled.dtype == held.dtype == x.dtype
    assert rolled.tolist() == np.roll(x, 1).tolist()
    assert held == x[-1]
    assert number == 0.0


def rows_with_work_space(size, zero=True):
    """For each row i of x, the sum of a new array of i elements that are set from the row before."""
    build = ProcedureBuilder("rows")
    x = build.array("x", (size,))
    out = build.allocate("out", size, zero=True)
    with build.loop(size) as i:
        work = build.allocate("work", i, zero=zero)
        with build.loop(i) as j:
            build.store(work, j, (build.load(work, j) if zero else 0.0) + build.load(x, j))
        with build.loop(i) as j:
            build.store(out, i, build.load(out, i) + build.load(work, i - 1 - j))
    return build.finish([out], [array(size)])


@pytest.mark.parametrize("zero", [False, True])
def test_allocation_in_a_loop(zero):
    x = RANDOM.normal(size=300)
    run = compile_procedure(rows_with_work_space(300, zero))
    for _ in range(3):  # the arena is in use again
        (found,) = run(x)
        np.testing.assert_allclose(found, np.concatenate([[0.0], np.cumsum(x)[:-1]]), atol=1e-12)


def test_arrays_in_a_loop_are_freed_after_the_iteration():
    assert "arena.release" in procedure_module(rows_with_work_space(300)).text()


def test_pointers_that_outlive_the_iteration():
    build = ProcedureBuilder("swap")
    steps = build.scalar("n", np.int64)
    first = build.allocate("first", 3)
    for k in range(3):
        build.store(first, k, float(k))
    held = build.variable("held", first)
    with build.loop(steps):
        old = build.read(held)
        new = build.allocate("new", build.scalar("size", np.int64), memory=first.memory)
        with build.loop(3) as j:
            build.store(new, j, 2.0 * build.load(old, remainder(j + 1, 3)))
        build.assign(held, new)
    out = build.allocate("out", 3)
    last = build.read(held)
    with build.loop(3) as j:
        build.store(out, j, build.load(last, j))
    procedure = build.finish([out], [array(3)])
    assert "arena.release" not in procedure_module(procedure).text()
    (found,) = compile_procedure(procedure)(4, 30000)
    assert found.tolist() == [16.0, 32.0, 0.0]


@pytest.mark.parametrize("count", [0, 1, 10, 100_000])
def test_tape_of_a_counted_loop(count):
    build = ProcedureBuilder("reverse")
    n = build.scalar("n", np.int64)
    state = build.variable("x", 1.0)
    with build.loop(n) as i:
        x = build.read(state)
        build.assign(state, x + 1.0)
        build.append(Push((equal(remainder(i, 3), 0), x, convert(i, np.dtype(np.int32)))))
    good = build.variable("good", 0)
    with build.loop(n) as back:
        i = n - 1 - back
        outs = (leaf(np.bool_), leaf(float), leaf(np.int32))
        build.append(Pop(outs))
        build.assign(state, build.read(state) - 1.0)
        right = (
            equal(outs[1], build.read(state)) & equal(outs[2], i) & equal(outs[0], equal(remainder(i, 3), 0))
        )
        build.assign(good, build.read(good) + convert(right, np.dtype(np.int64)))
    run = compile_procedure(build.finish([build.read(good), build.read(state)]))
    for _ in range(2):
        assert [float(x) for x in run(count)] == [count, 1.0]


def test_tape_of_a_while_loop_with_branches():
    """The number of iterations and the branches are data; the tape is longer than its first room."""
    build = ProcedureBuilder("records")
    bound = build.scalar("bound", np.int64)
    i, total = build.variable("i", 0), build.variable("total", 0)
    with build.loop_while() as loop:
        now = build.read(i)
        build.start_body(loop, now < bound)
        odd = equal(remainder(now, 2), 1)
        with build.branch(odd):
            with build.loop(3) as j:
                build.append(Push((now * 10 + j,)))
            build.append(Push((now, odd)))
        build.assign(i, now + 1)
        build.append(Push((odd,)))
    with build.loop(build.read(i)):
        was_odd = leaf(np.bool_)
        build.append(Pop((was_odd,)))
        build.assign(i, build.read(i) - 1)
        with build.branch(was_odd):
            number, flag = leaf(np.int64), leaf(np.bool_)
            build.append(Pop((number, flag)))
            build.check(equal(number, build.read(i)) & flag, "AssertionError", "record")
            with build.loop(3) as back:
                entry = leaf(np.int64)
                build.append(Pop((entry,)))
                build.check(equal(entry, build.read(i) * 10 + 2 - back), "AssertionError", "entry")
                build.assign(total, build.read(total) + entry)
    run = compile_procedure(build.finish([build.read(total), build.read(i)]))
    for n in (0, 1, 7, 20_000):
        expected = sum(30 * k + 3 for k in range(1, n, 2))
        assert [int(x) for x in run(n)] == [expected, 0]


def test_pointers_on_the_tape():
    build = ProcedureBuilder("pointers")
    n = build.scalar("n", np.int64)
    first = build.allocate("first", 1)
    memory = first.memory
    with build.loop(n) as i:
        made = build.allocate("made", n, memory=memory)
        build.store(made, n - 1, convert(i, np.dtype(float)))
        build.append(Push((made,)))
    total = build.variable("total", 0.0)
    with build.loop(n) as back:
        pointer = type(first)("popped", memory)
        build.append(Pop((pointer,)))
        build.check(equal(build.load(pointer, n - 1), n - 1 - back), "AssertionError", "pointer")
        build.assign(total, build.read(total) + build.load(pointer, n - 1))
    assert compile_procedure(build.finish([build.read(total)]))(200)[0] == 19900.0


def test_check_fails():
    build = ProcedureBuilder("take")
    x = build.array("x", (4,))
    i = build.scalar("i", np.int64)
    build.check((i >= 0) & (i < 4), "IndexError", "index out of bounds")
    run = compile_procedure(build.finish([build.load(x, i)]))
    assert run(np.arange(4.0), 2)[0] == 2.0


def test_failed_check_raises():
    build = ProcedureBuilder("positive")
    x = build.array("x", (4,))
    total = build.variable("total", 0.0)
    with build.loop(4) as i:
        build.check(build.load(x, i) > 0.0, "ValueError", "negative")
        build.assign(total, build.read(total) + build.load(x, i))
    run = compile_procedure(build.finish([build.read(total)]))
    assert run(np.ones(4))[0] == 4.0
    with pytest.raises(ProcedureFailed):
        run(np.array([1.0, 1.0, -1.0, 1.0]))


def test_while_loop_ends_after_a_failed_check():
    build = ProcedureBuilder("endless")
    x = build.variable("x", build.scalar("x0"))
    with build.loop_while() as loop:
        build.start_body(loop, build.read(x) > 0.0)
        build.check(build.read(x) < 10.0, "ValueError", "too large")
        build.assign(x, build.read(x) + 1.0)
    with pytest.raises(ProcedureFailed):
        compile_procedure(build.finish([build.read(x)]))(1.0)


def test_too_much_memory_is_a_failure():
    build = ProcedureBuilder("huge")
    size, place = build.scalar("size", np.int64), build.scalar("place", np.int64)
    work = build.allocate("work", size)
    build.store(work, place, 1.0)
    run = compile_procedure(build.finish([build.load(work, 0)]))
    assert run(10, 0)[0] == 1.0
    with pytest.raises(ProcedureFailed):
        run(2**58, 0)


def test_dead_statements_are_gone():
    build = ProcedureBuilder("dead")
    x = build.array("x", (10,))
    unused = build.allocate("unused", 10_000)
    kept, dead = build.variable("kept", 0.0), build.variable("dead", 0.0)
    with build.loop(10) as i:
        element = build.load(x, i)
        build.store(unused, i, element)
        build.assign(dead, build.read(dead) + sin(element))
        build.append(Push((sin(element), element)))
    with build.loop(10):
        outs = (leaf(float), leaf(float))
        build.append(Pop(outs))
        build.assign(dead, outs[0])
        build.assign(kept, build.read(kept) * 0.5 + outs[1])
    text = procedure_module(procedure := build.finish([build.read(kept)])).text()
    assert "sin" not in text
    assert "arena.allocate" not in text
    x = RANDOM.normal(size=10)
    assert math.isclose(
        compile_procedure(procedure)(x)[0], sum(x[k] * 0.5**k for k in range(10)), rel_tol=1e-12
    )


def applied(operation, n, *, offset=0):
    """Apply an array computation to pieces of x and a number, and add its results over three iterations."""
    matrix, factor = aval((n, n), np.dtype(float)), aval((), np.dtype(float))
    inputs = [Value(matrix), Value(factor)]
    body = make_body(inputs, [operation(*inputs)])
    build = ProcedureBuilder("applied")
    x = build.array("x", (3, n, n))
    work, out = build.allocate("work", n * n + 5), build.allocate("out", n * n, zero=True)
    with build.loop(3) as i:
        number = convert(i, np.dtype(float)) + 1.0
        where = literal(5, np.dtype(np.int64))
        build.append(Apply(body, (Span(x, i * (n * n), matrix), number), (Span(work, where, matrix),)))
        with build.loop(n * n) as j:
            build.store(out, j, build.load(out, j) + build.load(work, j + 5))
    return build.finish([out], [array(n, n)])


@pytest.mark.parametrize("n", [3, 100])
def test_array_computations(n):
    procedure = applied(lambda x, factor: matmul(x, x) * factor, n)
    x = RANDOM.normal(size=(3, n, n))
    (found,) = compile_procedure(procedure)(x)
    expected = sum((k + 1) * x[k] @ x[k] for k in range(3))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_array_computation_that_fails():
    run = compile_procedure(applied(lambda x, factor: solve(x, x) * factor, 3))
    x = RANDOM.normal(size=(3, 3, 3))
    (found,) = run(x)
    np.testing.assert_allclose(found, 6.0 * np.eye(3), atol=1e-9)
    with pytest.raises(ProcedureFailed):
        run(np.zeros((3, 3, 3)))


def test_calls_at_the_same_time_have_memory_of_their_own():
    """Machine code runs without the interpreter lock; each call takes an arena, and a tape in it."""
    build = ProcedureBuilder("threads")
    n, start = build.scalar("n", np.int64), build.scalar("start")
    work = build.allocate("work", n)
    with build.loop(n) as i:
        build.store(work, i, start + i)
    with build.loop(n) as i:
        build.append(Push((build.load(work, i),)))
    total = build.variable("total", 0.0)
    with build.loop(n):
        out = leaf(float)
        build.append(Pop((out,)))
        build.assign(total, build.read(total) + out)
    run = compile_procedure(build.finish([build.read(total)]))
    count = 20_000

    def check(start):
        expected = count * start + count * (count - 1) / 2
        return all(run(count, start)[0] == expected for _ in range(30))

    with ThreadPoolExecutor(24) as pool:  # more than arenas are kept
        assert all(pool.map(check, map(float, range(48))))
    trim_memory()
    assert check(1.0)


@pytest.mark.parametrize("in_loop", [False, True])
def test_mathematics_is_inlined_in_loops_alone(in_loop):
    build = ProcedureBuilder("straight")
    total = build.variable("s", build.scalar("x"))

    def body():
        for _ in range(70):
            build.assign(total, sin(build.read(total)) + 0.5)

    if in_loop:
        with build.loop(3):
            body()
    else:
        body()
    procedure = build.finish([build.read(total)])
    text = procedure_module(procedure).text()
    groups = {
        name: re.search(rf"attributes #(\d+) = {{ {name} }}", text) for name in ("alwaysinline", "noinline")
    }
    calls = {name: 0 if group is None else text.count(f") #{group[1]}\n") for name, group in groups.items()}
    if sum(calls.values()):  # where the machine has what inlined code needs
        assert calls == (
            {"alwaysinline": 64, "noinline": 6} if in_loop else {"alwaysinline": 0, "noinline": 70}
        )
    expected = 0.3
    for _ in range(210 if in_loop else 70):
        expected = math.sin(expected) + 0.5
    assert abs(compile_procedure(procedure)(np.array(0.3))[0] - expected) < 1e-12
