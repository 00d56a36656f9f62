"""What sequential loops cost: stores and copies, nests, allocations, compilations."""

import threading

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64
from gradtape.kinds.elementwise import Libm
from gradtape.kinds.registry import ROWS
from gradtape.loops.ir import For, Load, SequentialFor, Store, WhileLoop
from gradtape.loops.printer import print_loops
from gradtape.lower.llvm.math import can_inline_scalar
from gradtape.lower.pipeline import lower, schedule_of
from gradtape.lower.target.host import vector_bytes
from gradtape.lower.target.vecmath import inline_variants
from gradtape.ops.core.shape import slice_
from gradtape.runtime.compile import kernel as kernels
from gradtape.statements import walk
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop
from tests.support.control_cases import body_of, graph_of, value
from tests.support.lowering import Compiled, check

tanh, exp, sin = (ROWS[name] for name in ("tanh", "exp", "sin"))


def loops_of(graph):
    program = schedule_of(graph)
    return [s for s in walk(program.body) if isinstance(s, SequentialFor | WhileLoop)], program


def stores_in(loop):
    return [s for s in walk([loop]) if isinstance(s, Store)]


def scanned(iteration, carries, elements=(), length=5, **params):
    first = len(carries)
    inputs = [
        value((), INT64),
        *[value(v.shape, v.dtype) for v in carries],
        *[value(v.shape[1:], v.dtype) for v in elements],
    ]
    body = body_of(lambda index, *rest: iteration(index, rest[:first], rest[first:]), inputs)
    return scan(body, [], carries, elements, length, **params)


def test_numbers_are_carried_in_registers():
    x, s = value((5,)), value()
    graph = graph_of(scanned(lambda i, c, e: (c[0] * e[0], c[0]), [s], [x]), [s, x])
    (loop,), program = loops_of(graph)
    assert [store.buffer.name for store in stores_in(loop)] == ["out1"]
    assert program.scratch == []
    check(graph, [np.array(0.5), np.arange(5.0)])


@pytest.mark.parametrize("size", [3, 14, 1000])
def test_what_is_read_in_step_is_replaced_in_place(size):
    h, x = value((size,)), value((5, size))
    graph = graph_of(scanned(lambda i, c, e: (tanh(c[0] * e[0]), c[0] + e[0]), [h], [x]), [h, x])
    (loop,), program = loops_of(graph)
    assert program.scratch == []
    assert {store.buffer.name for store in stores_in(loop)} == {"out0", "out1"}
    assert sum(isinstance(s, For) for s in walk([loop])) == 1
    check(graph, [np.linspace(-1, 1, size), np.random.default_rng(0).normal(size=(5, size))])


def test_an_array_written_by_index_is_not_copied():
    """An iteration stores one element, whatever the array's length."""
    a, x = value((1000,)), value((50,))

    def iteration(index, carries, elements):
        return (
            ROWS["put_add"](
                carries[0], PRIMITIVES["reshape"](elements[0], (1,)), PRIMITIVES["reshape"](index, (1,))
            ),
        )

    graph = graph_of(scanned(iteration, [a], [x], 50), [a, x])
    (loop,), _ = loops_of(graph)
    assert len(stores_in(loop)) == 1
    assert not any(isinstance(s, For) for s in walk(loop.body))
    check(graph, [np.arange(1000.0), np.arange(50.0)])


@pytest.mark.parametrize("length", [4, 5])
def test_large_carries_are_swapped_between_two_buffers(length):
    size = 200
    a, b = value((size,)), value((size,))

    def iteration(index, carries, elements):
        return carries[1] + slice_(carries[0], (size - 1,), (size,), (-1,)), carries[0] * 0.5

    graph = graph_of(scanned(iteration, [a, b], [], length), [a, b])
    (loop,), _ = loops_of(graph)
    assert len(loop.pairs) == 1 and len(stores_in(loop)) == 2
    check(graph, [np.arange(200.0), -np.arange(200.0)])


@pytest.mark.skipif(vector_bytes() < 32, reason="needs vector registers of 32 bytes or more")
def test_small_carries_are_in_vector_registers():
    h, x = value((14,)), value((50, 14))
    graph = graph_of(scanned(lambda i, c, e: (tanh(c[0] + e[0]),), [h], [x], 50), [h, x])
    text = lower(graph).ir_text
    assert "alloca <" in text and "call void @llvm.memcpy" not in text
    check(graph, [np.linspace(-1, 1, 14), np.random.default_rng(0).normal(size=(50, 14))])


def test_a_condition_on_an_array_needs_no_pass_of_its_own():
    x = value((500,))

    def moves(index, y, step):
        return (PRIMITIVES["greater"](ROWS["reduce_max"](ROWS["absolute"](step), axes=(0,)), 1e-9),)

    def improve(index, y, step):
        after = (y + PRIMITIVES["divide"](2.0, y)) * 0.5
        return after, after - y

    inputs = [value((), INT64), value((500,)), value((500,))]
    condition, body = body_of(moves, inputs), body_of(improve, [value(v.shape, v.dtype) for v in inputs])
    outs = while_loop(condition, body, [], [x, x], None)
    graph = graph_of([outs[0], outs[2]], [x])
    (loop,), _ = loops_of(graph)
    assert sum(isinstance(s, For) for s in walk([loop])) == 1
    assert {store.buffer.name for store in stores_in(loop)} == {"out0"}
    check(graph, [np.linspace(1.0, 3.0, 500)])


def stacked_roots():
    """Return Newton's iteration for 2, and the sum of squares of what it went through, taken from the last to the first."""
    tolerance, start = value(), value()
    inputs = [value((), INT64), value(), value()]
    condition = body_of(lambda i, e, y: (PRIMITIVES["less"](e, ROWS["absolute"](y * y - 2.0)),), inputs)
    body = body_of(
        lambda i, e, y: ((y + PRIMITIVES["divide"](2.0, y)) * 0.5, y), [value((), INT64), value(), value()]
    )
    root, trips, passed = while_loop(condition, body, [tolerance], [start], None)
    add = body_of(lambda i, s, y: (s + y * y,), [value((), INT64), value(), value()])
    (total,) = repeat(add, trips, [], [PRIMITIVES["multiply"](start, 0.0)], [passed], True)
    return graph_of([root, total], [tolerance, start])


def newton(start):
    y, total = start, 0.0
    while abs(y * y - 2.0) > 1e-12:
        total += y * y
        y = (y + 2.0 / y) * 0.5
    return y, total


def test_stacks_grow_stay_and_are_each_threads_own():
    kernel = Compiled(stacked_roots())
    failures = []

    def work(start):
        expected = newton(start)
        for _ in range(200):
            found = kernel([np.array(1e-12), np.array(start)])
            if not np.allclose(found, expected, rtol=1e-12):
                failures.append(found)

    # One workspace for each: that is how callers share kernels out.
    kernel.workspace = np.zeros(kernel.lowered.workspace_bytes, np.uint8)
    for start in (1e150, 1.0, 1e300):
        work(start)
    threads = [threading.Thread(target=work, args=(start,)) for start in (1e-100, 3.0, 1e200, 7.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert "while" in print_loops(schedule_of(kernel.graph)) and ".append(" in print_loops(
        schedule_of(kernel.graph)
    )


def compilations(monkeypatch):
    found = []
    compile_object = kernels.compile_object

    def counted(text, name, **options):
        found.append(name)
        return compile_object(text, name, **options)

    monkeypatch.setattr(kernels, "compile_object", counted)
    return found


def test_another_length_compiles_what_is_around_the_loops_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(gt.config, "cache_dir", str(tmp_path))

    def loss(c, xs):
        last, passed = gt.scan(lambda s, x: (np.tanh(s * c + x), s * x + 0.123456), np.zeros(3), xs)
        return np.sum(last) + np.sum(passed**2)

    slope = gt.value_and_grad(loss)
    found = compilations(monkeypatch)
    rng = np.random.default_rng(0)
    c = rng.normal(size=3)
    slope(c, rng.normal(size=(20, 3)))
    first = list(found)
    assert first.count("loop") == 2
    for length in (21, 500, 2):
        found.clear()
        xs = rng.normal(size=(length, 3))
        value_, gradient = slope(c, xs)
        assert "loop" not in found
        state, total = np.zeros(3), 0.0
        for x in xs:
            total += np.sum((state * x + 0.123456) ** 2)
            state = np.tanh(state * c + x)
        assert np.isclose(value_, total + np.sum(state))
        nudged = [loss(c + 1e-6 * side * np.ones(3), xs) for side in (1, -1)]
        assert np.isclose((nudged[0] - nudged[1]) / 2e-6, np.sum(gradient), rtol=1e-5)


def test_the_code_of_a_loop_does_not_grow_with_its_trip_count():
    def text(length):
        x, s = value((length,)), value()
        return lower(graph_of(scanned(lambda i, c, e: (c[0] * e[0], c[0]), [s], [x], length), [s, x])).ir_text

    assert abs(len(text(1000000)) - len(text(100000))) < 100


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_functions_written_out_are_exact_to_two_units(name):
    rng = np.random.default_rng(0)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        710.0,
        -745.2,
        -746.0,
        1e-300,
        -1e-300,
        20.0,
        -20.0,
        709.78,
        -708.5,
    ]
    numbers = np.concatenate(
        [special, rng.normal(size=3000), rng.normal(size=2000) * 50, rng.normal(size=978) * 1e-5]
    )
    x = value((numbers.size // 14, 14))
    one = value((14,))
    outs = scanned(lambda i, c, e: (c[0] * c[0], ROWS[name](e[0] * c[0])), [one], [x], numbers.size // 14)
    kernel = Compiled(graph_of([outs[1]], [one, x]))
    assert f"@inline.{name}" in kernel.lowered.ir_text or not inline_variants(Libm(name), False)
    (found,) = kernel([np.ones(14), numbers.reshape(-1, 14)])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(numbers.astype(np.longdouble)).astype(float)
    found = found.ravel()
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)]))
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite & ~np.isnan(found)], expected[~finite & ~np.isnan(expected)])
    apart = np.abs(found[finite] - expected[finite])
    assert np.all(apart <= 2 * np.spacing(np.abs(expected[finite])))


def test_the_number_of_the_iteration_is_an_address():
    """What is read at the number of the iteration needs no check."""
    table, s = value((5,)), value()

    def iteration(index, carries, elements):
        (table_,) = consts
        return (carries[0] + ROWS["gather"](table_, index),)

    inputs = [value((), INT64), value((5,)), value()]
    consts = [inputs[1]]
    body = body_of(lambda i, t, c: iteration(i, (c,), ()), inputs)
    graph = graph_of(scan(body, [table], [s], [], 5), [table, s])
    (loop,), _ = loops_of(graph)
    text = print_loops(schedule_of(graph))
    assert "wrap(" not in text
    assert any(isinstance(s, Load) for s in walk([loop]))
    check(graph, [np.arange(5.0), np.array(1.0)])


def test_literals_are_no_operands_in_memory():
    x = value((6,))
    graph = graph_of(scanned(lambda i, c, e: (c[0] + e[0],), [literal(0.0)], [x], 6), [x])
    _, program = loops_of(graph)
    assert program.scratch == []
    check(graph, [np.arange(6.0)])


def test_a_table_written_in_nested_loops_is_not_copied():
    """An iteration of the outer loop stores as many elements as the inner one makes iterations."""
    table = value((30 * 40,))

    def inner(i, row, t):
        place = PRIMITIVES["reshape"](row * 40 + i, (1,))
        return (
            ROWS["put"](
                t, PRIMITIVES["reshape"](PRIMITIVES["convert"](row + i, np.dtype(float)), (1,)), place
            ),
        )

    inner_body = body_of(inner, [value((), INT64), value((), INT64), value((30 * 40,))])
    outer_body = body_of(
        lambda i, t: (scan(inner_body, [i], [t], [], 40)[0],), [value((), INT64), value((30 * 40,))]
    )
    graph = graph_of(scan(outer_body, [], [table], [], 30), [table])
    loops, _ = loops_of(graph)
    assert len(loops) == 2
    assert len(stores_in(loops[0])) == 1 and not any(isinstance(s, For) for s in walk([loops[0]]))
    check(graph, [np.zeros(30 * 40)])


def test_a_branch_that_writes_one_element_copies_nothing():
    """As does one that leaves the array as it is."""
    a, x = value((1000,)), value((50,))
    writes = body_of(
        lambda t, i, v: (ROWS["put"](t, PRIMITIVES["reshape"](v, (1,)), PRIMITIVES["reshape"](i, (1,))),),
        [value((1000,)), value((), INT64), value()],
    )
    leaves = body_of(lambda t, i, v: (t,), [value((1000,)), value((), INT64), value()])

    def iteration(index, carries, elements):
        which = PRIMITIVES["convert"](PRIMITIVES["greater"](elements[0], 0.0), INT64)
        return switch([leaves, writes], which, [carries[0], index, elements[0]])

    graph = graph_of(scanned(iteration, [a], [x], 50), [a, x])
    (loop,), _ = loops_of(graph)
    assert len(stores_in(loop)) == 1 and not any(isinstance(s, For) for s in walk(loop.body))
    check(graph, [np.arange(1000.0), np.sin(np.arange(50.0))])


def test_branches_that_still_read_what_they_replace():
    a, b = value((100,)), value((100,))
    swapped = body_of(lambda a, b: (b, a), [value((100,)), value((100,))])
    mixed = body_of(lambda a, b: (a + b, sin(a) * b), [value((100,)), value((100,))])
    flipped = body_of(
        lambda a, b: (PRIMITIVES["slice"](a, (99,), (100,), (-1,)), a), [value((100,)), value((100,))]
    )

    def iteration(index, carries, elements):
        return switch([swapped, mixed, flipped], ROWS["remainder"](index, literal(3, INT64)), list(carries))

    graph = graph_of(scanned(iteration, [a, b], [], 7), [a, b])
    check(graph, [np.linspace(0, 1, 100), np.linspace(-1, 2, 100)])


def test_the_sine_of_one_number_is_exact_to_two_units():
    rng = np.random.default_rng(0)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        np.pi / 2,
        -np.pi / 2,
        np.nextafter(np.pi / 2, 2),
        np.pi,
        1e22,
        5e-324,
    ]
    numbers = np.concatenate(
        [special, rng.uniform(-1.58, 1.58, 20000), rng.normal(size=2000) * 1e-5, rng.normal(size=2000) * 50]
    )
    x, s = value((numbers.size,)), value()
    outs = scanned(lambda i, c, e: (c[0] * c[0], sin(e[0] * c[0])), [s], [x], numbers.size)
    kernel = Compiled(graph_of([outs[1]], [s, x]))
    assert "@inline.sin" in kernel.lowered.ir_text or not can_inline_scalar("sin", np.dtype(float))
    (found,) = kernel([np.array(1.0), numbers])
    with np.errstate(all="ignore"):
        expected = np.sin(numbers.astype(np.longdouble)).astype(float)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    numeric = ~np.isnan(expected)
    found, expected = found[numeric], expected[numeric]
    assert np.array_equal(np.signbit(found), np.signbit(expected))
    assert np.all(np.abs(found - expected) <= 2 * np.spacing(np.abs(expected)))
