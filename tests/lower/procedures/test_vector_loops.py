"""What LLVM makes of inner loops: vectors in the order of memory, loops of a few vectors without a loop, records without duplicates."""

import re

import numpy as np
import pytest

from gradtape.ir.graph import literal
from gradtape.ir.types import aval
from gradtape.kinds.elementwise import Libm
from gradtape.lower.procedures.comparisons import sums_of_any_order
from gradtape.lower.target.host import vector_bytes
from gradtape.lower.target.vecmath import inline_variants
from gradtape.ops.core.elementwise.exponential import exp, tanh
from gradtape.passes.procedures.accesses import backward_loops
from gradtape.passes.procedures.records import merge_records
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Pop, Push
from gradtape.runtime.compile.engine import optimised_llvm
from tests.lower.procedures.standalone import compile_procedure, procedure_module

N = 256
LANES = vector_bytes() // 8
rng = np.random.default_rng(0)


def backward(update, count=N):
    """A loop whose iterations go down."""
    build = ProcedureBuilder("backward")
    x = build.array("x", (N,))
    out = build.allocate("out", N, zero=True)
    with build.loop(count) as i:
        update(build, x, out, i)
    return build.finish([out], [aval((N,), np.dtype(float))])


def scaled(build, x, out, i):
    build.store(out, N - 1 - i, build.load(x, N - 1 - i) * 2.0 + 1.0)


def accumulated(build, x, out, i):
    build.store(out, N - 1 - i, build.load(out, N - 1 - i) + build.load(x, N - 1 - i) * 2.0)


def turned(build, x, out, i):
    build.store(out, N - 1 - i, build.load(x, i) * 2.0 + 1.0)


def carried(build, x, out, i):
    build.store(out, N - 2 - i, build.load(out, N - 1 - i) * 0.5 + build.load(x, N - 2 - i))


def to_one_element(build, x, out, i):
    build.store(out, 0, build.load(x, N - 1 - i) * 2.0)


def in_parts(build, x, out, i, parts=16, size=N // 16):
    """As the gradient of weights of many gates: each part has its own."""
    for part in range(parts):
        place = part * size + (size - 1 - i)
        build.store(out, place, build.load(out, place) + build.load(x, place) * 2.0)


def in_parts_that_overlap(build, x, out, i):
    in_parts(build, x, out, i, 15)
    build.store(out, N // 16 - i, build.load(out, N // 16 - i) * 0.5 + build.load(x, N // 16 - i))


def between_others(build, x, out, i):
    build.store(out, N - 1 - 2 * i, build.load(out, N - 2 - 2 * i) + build.load(x, N - 1 - 2 * i))


@pytest.mark.parametrize(
    ("update", "count"),
    [(in_parts, 16), (in_parts_that_overlap, 16), (between_others, N // 2)],
)
def test_parts_of_an_array_are_told_apart_by_their_distance(update, count):
    procedure = backward(update, count)
    assert len(backward_loops(procedure, ())) == (update is not in_parts_that_overlap)
    x = rng.normal(size=N)
    (expected,), (found,) = run_procedure(procedure, [x]), compile_procedure(procedure)(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("update", [scaled, accumulated, turned, carried, to_one_element])
def test_the_order_of_iterations_is_kept_where_it_matters(update):
    procedure = backward(update, N - 1)
    x = rng.normal(size=N)
    (expected,), (found,) = run_procedure(procedure, [x]), compile_procedure(procedure)(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("update, is_reversed", [(scaled, False), (accumulated, False), (turned, True)])
def test_vectors_are_reversed_only_between_arrays_of_different_orders(update, is_reversed):
    text = optimised_llvm(procedure_module(backward(update)).text())
    assert f"<{LANES} x double>" in text
    assert ("reverse" in text) == is_reversed


def summed(build, x, out, total, i):
    build.store(out, N - 1 - i, build.load(x, N - 1 - i) * 2.0)
    build.assign(total, build.read(total) + build.load(x, N - 1 - i))


def summed_on_the_way(build, x, out, total, i):
    build.assign(total, build.read(total) + build.load(x, N - 1 - i))
    build.store(out, N - 1 - i, build.read(total) * 2.0)


def last_one(build, x, out, total, i):
    build.store(out, N - 1 - i, build.load(x, N - 1 - i) * 2.0)
    build.assign(total, build.load(x, N - 1 - i) - 1.0)


def halved(build, x, out, total, i):
    build.store(out, N - 1 - i, build.load(x, N - 1 - i) * 2.0)
    build.assign(total, build.read(total) * 0.5 + build.load(x, N - 1 - i))


@pytest.mark.parametrize(
    "update, in_any_order", [(summed, True), (summed_on_the_way, False), (last_one, False), (halved, False)]
)
def test_a_loop_that_only_adds_to_a_number_may_run_in_the_other_order(update, in_any_order):
    """The gradient of a product of a matrix and a vector is such: rows of the matrix get what they add, and the vector sums."""
    build = ProcedureBuilder("sums")
    x, out = build.array("x", (N,)), build.allocate("out", N, zero=True)
    total = build.variable("total", 0.0)
    with build.loop(N) as i:
        update(build, x, out, total, i)
    procedure = build.finish(
        [out, build.read(total)], [aval((N,), np.dtype(float)), aval((), np.dtype(float))]
    )
    text = optimised_llvm(procedure_module(procedure).text())
    if in_any_order:
        assert f"<{LANES} x double>" in text
        assert "reverse" not in text
    values = rng.normal(size=N)
    expected, found = run_procedure(procedure, [values]), compile_procedure(procedure)(values)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13)
    sums = sums_of_any_order(procedure, set())
    assert len(backward_loops(procedure, (), sums)) == in_any_order
    assert not backward_loops(procedure, ())


@pytest.mark.skipif(
    not inline_variants(Libm("exp"), False), reason="the machine cannot multiply and add at once"
)
@pytest.mark.parametrize("function", [exp, tanh])
def test_vectors_need_no_calls_of_functions(function):
    build = ProcedureBuilder("functions")
    x = build.array("x", (N,))
    out = build.allocate("out", N)
    with build.loop(N) as i:
        build.store(out, i, function(build.load(x, i)))
    procedure = build.finish([out], [aval((N,), np.dtype(float))])
    text = optimised_llvm(procedure_module(procedure).text())
    assert f"<{LANES} x double>" in text
    assert not re.search(rf"call.*{function.name}", text)
    values = rng.normal(size=N)
    np.testing.assert_allclose(
        compile_procedure(procedure)(values)[0], getattr(np, function.name)(values), rtol=1e-15
    )


def column_sums(columns, rows=40):
    build = ProcedureBuilder("column_sums")
    x = build.array("x", (rows, columns))
    out = build.allocate("out", columns, zero=True)
    with build.loop(rows) as i, build.loop(columns) as j:
        build.store(out, j, build.load(out, j) + exp(build.load(x, i * columns + j)))
    return build.finish([out], [aval((columns,), np.dtype(float))])


@pytest.mark.parametrize("vectors, loops", [(1, 1), (2, 1), (4, 1), (16, 2)])
def test_loops_of_a_few_vectors_leave_one_loop(vectors, loops):
    procedure = column_sums(vectors * LANES)
    module = procedure_module(procedure).text()
    assert ("llvm.loop.unroll.full" in module) == (loops == 1)
    text = optimised_llvm(module, unroll=False)
    back = [line for line in text.splitlines() if "!llvm.loop" in line and " br " in line]
    assert len(back) <= loops
    x = rng.normal(size=(40, vectors * LANES))
    (expected,), (found,) = run_procedure(procedure, [x]), compile_procedure(procedure)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_records_hold_no_value_twice_and_no_literals():
    build = ProcedureBuilder("f")
    x = build.scalar("x")
    first, second, third = leaf(float), leaf(float), leaf(float)
    build.append(Push((x, literal(2.0), x)))
    build.append(Pop((first, second, third)))
    procedure = build.finish([first * second - third * third])
    merged = merge_records(procedure)
    assert [len(s.values) for s in merged.body if isinstance(s, Push)] == [1]
    assert run_procedure(merged, [3.0]) == run_procedure(procedure, [3.0]) == [-3.0]
