"""Sample procedures with arguments: those that are differentiated, and others with every statement and dtype."""

from __future__ import annotations

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.types import INT64, aval
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exponential import sin
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.elementwise.logic import bitwise_xor, equal, less, logical_and
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.ir import Apply, Pop, Push, Span
from tests.transforms.procedures.samples import SAMPLES, copy_of

RNG = np.random.default_rng(11)
FLOAT = np.dtype(float)


def matmul(n=3, m=4, k=2):
    build = ProcedureBuilder("matmul")
    a, b = build.array("a", (n, k)), build.array("b", (k, m))
    c = build.allocate("c", n * m, zero=True)
    with build.loop(n, parallel=True) as i, build.loop(m) as j, build.loop(k) as p:
        place = i * m + j
        product = build.load(a, i * k + p) * build.load(b, p * m + j)
        build.store(c, place, build.load(c, place) + product)
    return build.finish([c], [aval((n, m), FLOAT)]), [RNG.normal(size=(n, k)), RNG.normal(size=(k, m))]


def fdtd(n=6, steps=4):
    """Two fields that are updated in turns, with a source."""
    build = ProcedureBuilder("fdtd")
    e0, h0 = build.array("e0", (n,)), build.array("h0", (n,))
    e, h = copy_of(build, e0, n), copy_of(build, h0, n)
    with build.loop(steps) as t:
        with build.loop(n - 1) as i:
            build.store(h, i, build.load(h, i) + 0.5 * (build.load(e, i + 1) - build.load(e, i)))
        with build.loop(n - 2) as i:
            build.store(e, i + 1, build.load(e, i + 1) + 0.5 * (build.load(h, i + 1) - build.load(h, i)))
        build.store(e, 0, sin(0.3 * convert(t, FLOAT)))
    shape = aval((n,), FLOAT)
    return build.finish([e, h], [shape, shape]), [RNG.normal(size=n), RNG.normal(size=n)]


def generator(n=5):
    """A random walk: integers that wrap, shifts, remainders, branches in a row."""
    build = ProcedureBuilder("generator")
    seed = build.scalar("seed", np.int64)
    state = build.variable("state", 42)
    build.assign(state, build.read(state) + seed)
    path = build.allocate("path", n, np.int64, zero=True)
    with build.loop(n) as i:
        new = build.read(state) * 6364136223846793005 + 1442695040888963407
        build.assign(state, bitwise_xor(new, floor_divide(new, 65536)))
        build.store(path, i, build.read(state))
        with build.branch(equal(remainder(build.read(state), 3), 0)) as branch:
            build.assign(state, -build.read(state))
            build.start_otherwise(branch)
            with build.branch(equal(remainder(build.read(state), 3), 1)) as inner:
                build.assign(state, build.read(state) + i)
                build.start_otherwise(inner)
                build.assign(state, build.read(state) - i)
    return build.finish([path, build.read(state)], [aval((n,), INT64), aval((), INT64)]), [7]


def dtypes(n=4):
    """Small floats and integers, unsigned ones, bools and complex numbers."""
    build = ProcedureBuilder("dtypes")
    f, b = build.array("f", (n,), np.float32), build.array("b", (n,), np.uint8)
    z, w = build.array("z", (n,), complex), build.scalar("w", np.uint64)
    total = build.variable("total", 0.0, np.float32)
    count = build.variable("count", 250, np.uint8)
    found = build.variable("found", False)
    sum_ = build.variable("sum", 0.0, complex)
    with build.loop(n) as i:
        build.assign(total, build.read(total) * 0.5 + sin(build.load(f, i)))
        build.assign(count, build.read(count) + build.load(b, i))
        small = less(build.load(f, i), literal(0.0)) | build.read(found)
        build.assign(found, logical_and(small, less(convert(i, FLOAT), 100.0)))
        build.assign(sum_, build.read(sum_) * build.load(z, i) + 1j)
    results = [build.read(total), build.read(count), build.read(found), build.read(sum_), w + w]
    arguments = [
        RNG.normal(size=n).astype(np.float32),
        RNG.integers(0, 99, n).astype(np.uint8),
        RNG.normal(size=n) + 1j * RNG.normal(size=n),
        np.uint64(2**63 + 5),
    ]
    return build.finish(results), arguments


def tape(n=4):
    """Values of several dtypes, and pointers, on the tape and back."""
    build = ProcedureBuilder("tape")
    x = build.array("x", (n,))
    first = build.allocate("p", n, zero=True)
    second = build.allocate("q", n, zero=True, memory=first.memory)
    current = build.variable("current", first)
    with build.loop(n) as i:
        value = build.load(x, i)
        pointer = build.read(current)
        build.store(pointer, i, value * value)
        build.append(Push((value, i, less(value, literal(0.0)), pointer)))
        with build.branch(less(value, literal(0.0))) as branch:
            build.assign(current, first)
            build.start_otherwise(branch)
            build.assign(current, second)
    out = build.allocate("out", n, zero=True)
    with build.loop(n) as i:
        value, place, negative = leaf(float), leaf(np.int64), leaf(bool)
        pointer = type(first)("popped", first.memory)
        build.append(Pop((value, place, negative, pointer)))
        with build.branch(negative) as branch:
            build.store(out, i, build.load(pointer, place) - value)
            build.start_otherwise(branch)
            build.store(out, place, build.load(out, place) + build.load(pointer, place) + value)
    return build.finish([out], [aval((n,), FLOAT)]), [RNG.normal(size=n)]


def stale_reads(n=4):
    """Loads and reads whose place or variable changes before their last use."""
    build = ProcedureBuilder("stale_reads")
    x0 = build.array("x0", (n,))
    x = copy_of(build, x0, n)
    a, b = build.variable("a", build.load(x, 0)), build.variable("b", build.load(x, 1))
    k = build.variable("k", 0)
    with build.loop(n - 1) as i:
        was_a, was_b, was_k = build.read(a), build.read(b), build.read(k)
        at = build.load(x, was_k)
        build.assign(k, was_k + 1)
        build.store(x, was_k, was_a + at)
        build.assign(a, was_b)
        build.assign(b, was_a)
        with build.branch(less(was_a, at)):
            build.store(x, i + 1, build.load(x, i) * at)
        build.store(x, build.read(k), build.load(x, build.read(k)) + sin(at) * was_b)
    results = [x, build.read(a) - build.read(b), build.read(k)]
    return build.finish(results, [aval((n,), FLOAT), aval((), FLOAT), aval((), INT64)]), [RNG.normal(size=n)]


def divisions():
    """Quotients of variables that are zero, and of negative integers."""
    build = ProcedureBuilder("divisions")
    n = build.scalar("n", np.int64)
    zero, one = build.variable("zero", 0.0), build.variable("one", 1.0)
    low = build.variable("low", -7)
    results = [
        build.read(one) / build.read(zero),
        1.0 / build.read(zero),
        floor(build.read(one) / 3.0),
        floor_divide(build.read(low), n),
        remainder(build.read(low), n),
        floor_divide(build.read(low), n - n),
        remainder(build.read(low), 4),
        build.read(low) / n,
    ]
    return build.finish(results), [2]


def array_graph(n=3):
    """An array computation in a loop."""
    x = Value(aval((n,), FLOAT))
    factor = Value(aval((), FLOAT))
    out = sqrt(multiply(x, x) + factor)
    graph = Body([x, factor], extract([out], [x, factor])[0], [out], "length")
    build = ProcedureBuilder("array_graph")
    a = build.array("a", (2 * n,))
    r = build.allocate("r", 2 * n)
    with build.loop(2) as i:
        half = aval((n,), FLOAT)
        build.append(Apply(graph, (Span(a, i * n, half), convert(i, FLOAT)), (Span(r, n - i * n, half),)))
    return build.finish([r], [aval((2 * n,), FLOAT)]), [RNG.normal(size=2 * n)]


def checked(n=3):
    """An index that is checked."""
    build = ProcedureBuilder("checked")
    x, index = build.array("x", (n,)), build.scalar("index", np.int64)
    valid = (literal(0) <= index) & (index < n)
    build.check(valid, "IndexError", "index is out of bounds")
    return build.finish([build.load(x, index)]), [RNG.normal(size=n), 1]


EVERY_STATEMENT = [
    matmul,
    fdtd,
    generator,
    dtypes,
    tape,
    stale_reads,
    divisions,
    array_graph,
    checked,
]
PROCEDURES = [*SAMPLES, *EVERY_STATEMENT]
