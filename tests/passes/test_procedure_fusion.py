"""Loop fusion and forwarding of elements in procedures: what is computed stays the same, bit for bit."""

import random

import numpy as np
import pytest

from gradtape.ir.graph import literal
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.exponential import sin
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import less
from gradtape.passes.procedures import fusion
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.passes.procedures.fusion import contract_arrays, fuse_loops
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Allocate, For, Load, Procedure, Store
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.transforms.procedures.random_procedures import random_procedure

N = 6
SIZE = 64


def loops(procedure):
    return [s for s in walk(procedure.body) if isinstance(s, For)]


def random_nests(seed):
    """Return a procedure of neighbouring nests of loops over arrays that they share."""
    choose = random.Random(seed)
    build = ProcedureBuilder(f"nests{seed}")
    x, y = build.array("x", (SIZE,)), build.scalar("y")
    arrays = []
    for name in "abc":
        is_zero = choose.random() < 0.5
        arrays.append(build.allocate(name, SIZE, zero=is_zero))
        if not is_zero:
            with build.loop(SIZE) as i:
                build.store(arrays[-1], i, build.load(x, i))
    sums = [build.variable(name, y) for name in "uv"]

    def index(numbers):
        i, j = choose.choice(numbers), choose.choice(numbers)
        found = (
            i * choose.choice([1, 8, 8, 7]) + j * choose.choice([0, 1, 1, 2]) + choose.choice([0, 0, 0, 1, 8])
        )
        return SIZE - 1 - found if choose.random() < 0.2 else found

    def statement(numbers):
        target = choose.choice(arrays)
        place = index(numbers)
        total = choose.choice(sums)
        term = build.load(choose.choice([*arrays, x]), index(numbers))
        kind = choose.random()
        if kind < 0.35:
            build.store(target, place, sin(term) + 0.5)
        elif kind < 0.6:
            build.store(target, place, build.load(target, place) * 0.5 + term)
        elif kind < 0.75:
            build.assign(total, build.read(total) + term)
        elif kind < 0.85:
            build.assign(total, term * y)
            build.store(target, place, build.read(total))
        else:
            build.store(target, place, 0.25)

    def nest(numbers, depth):
        inner = choose.choice([N, N, N, N - 1, numbers[-1] if numbers else N])
        with build.loop(inner) as i:
            own = [*numbers, i]
            for _ in range(choose.randint(1, 2)):
                if depth and choose.random() < 0.6:
                    nest(own, depth - 1)
                else:
                    statement(own)

    for _ in range(choose.randint(3, 6)):
        if choose.random() < 0.3:
            total = choose.choice(sums)
            build.assign(
                total, build.read(total) * 0.5 + build.load(choose.choice(arrays), choose.randint(0, 9))
            )
        nest([], 1)
    results = [build.load(arrays[2], 3) + build.read(sums[0]), build.read(sums[1])]
    types = [aval((), np.dtype(float))] * 2
    return build.finish([arrays[0], *results], [aval((SIZE,), np.dtype(float)), *types])


def check(procedure, arguments):
    expected = run_procedure(procedure, arguments)
    for step in (fuse_loops, forward_elements, contract_arrays):
        changed = step(procedure)
        verify_procedure(changed)
        for one, other in zip(run_procedure(changed, arguments), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def arguments_of(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=SIZE), rng.normal()]


def test_random_nests_compute_the_same():
    fused = 0
    for seed in range(50):
        procedure = random_nests(seed)
        check(procedure, arguments_of(seed))
        fused += len(loops(fuse_loops(procedure))) < len(loops(procedure))
    assert fused > 8


def test_random_procedures_compute_the_same():
    for seed in range(25):
        check(*random_procedure(seed))


def test_derivatives_of_random_nests():
    for seed in range(12):
        procedure = random_nests(seed)
        arguments = arguments_of(seed)
        seeds = [np.ones(SIZE), 1.0, 0.5]
        expected = run_procedure(vjp_procedure(procedure, [True, True], [True] * 3), [*arguments, *seeds])
        pulled = vjp_procedure(contract_arrays(procedure), [True, True], [True] * 3)
        check(pulled, [*arguments, *seeds])
        for one, other in zip(run_procedure(pulled, [*arguments, *seeds]), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def rows(build, count, body):
    with build.loop(count) as i, build.loop(count) as j:
        body(i * count + j)


def test_an_array_between_two_nests_is_gone():
    build = ProcedureBuilder()
    x = build.array("x", (N * N,))
    between = build.allocate("between", N * N)
    total = build.variable("total", 0.0)
    rows(build, N, lambda k: build.store(between, k, sin(build.load(x, k))))
    rows(build, N, lambda k: build.assign(total, build.read(total) + build.load(between, k)))
    procedure = build.finish([build.read(total)])
    contracted = contract_arrays(procedure)
    assert len(loops(contracted)) == 2
    assert not any(isinstance(s, Store | Allocate) for s in walk(contracted.body))
    pulled = optimise_procedure(vjp_procedure(contracted, [True], [True]))
    assert len(loops(pulled)) == 4
    assert not any(isinstance(s, Allocate) and s.zero for s in pulled.body)


@pytest.mark.parametrize("shift, fused", [(0, 1), (-1, 2), (1, 2)])
def test_neighbours_of_an_element_keep_loops_apart(shift, fused):
    """A later element is not there yet; an earlier one would keep the loop from vectors."""
    build = ProcedureBuilder()
    x, y = build.array("x", (N,)), build.allocate("y", N, zero=True)
    z = build.allocate("z", N)
    with build.loop(N) as i:
        build.store(y, i, build.load(x, i) * 2.0)
    with build.loop(N - 2) as i:
        pass
    with build.loop(N) as i:
        build.store(z, i, build.load(y, i + shift if shift < 1 else i + 1) + 1.0)
    body = [s for s in build.body if not isinstance(s, For) or s.body]
    build.body[:] = body
    procedure = build.finish([z], [aval((N,), np.dtype(float))])
    assert len(loops(fuse_loops(procedure))) == fused


@pytest.mark.parametrize("across, fused", [(1, 2), (2, 2), (8, 1)])
def test_loops_across_rows_may_use_neighbours_along_the_rows(across, fused):
    """Elements that other iterations do not meet are no reason against vectors, however near."""
    build = ProcedureBuilder()
    x, y = build.array("x", (SIZE + 8,)), build.allocate("y", SIZE + 8, zero=True)
    with build.loop(N) as i:
        build.store(y, i * across + 2, build.load(y, i * across) + build.load(x, i * across))
    with build.loop(N) as i:
        build.store(y, i * across + 2, build.load(y, i * across + 2) * 0.5)
    procedure = build.finish([y], [aval((SIZE + 8,), np.dtype(float))])
    assert len(loops(fuse_loops(procedure))) == fused


def test_outer_loops_are_fused_where_inner_ones_cannot_be():
    build = ProcedureBuilder()
    x, y = build.array("x", (N * N,)), build.allocate("y", N * N)
    z = build.allocate("z", N * N, zero=True)
    rows(build, N, lambda k: build.store(y, k, build.load(x, k) * 2.0))
    with build.loop(N) as i, build.loop(N - 1) as j:
        build.store(z, i * N + j, build.load(y, i * N + j + 1))
    fused = fuse_loops(build.finish([z], [aval((N * N,), np.dtype(float))]))
    assert [len(loop.body) for loop in loops(fused)] == [2, 2, 2]


def test_a_sum_that_the_second_loop_reads_keeps_loops_apart():
    build = ProcedureBuilder()
    x, y = build.array("x", (N,)), build.allocate("y", N)
    total = build.variable("total", 0.0)
    with build.loop(N) as i:
        build.store(y, i, build.load(x, i))
        build.assign(total, build.read(total) + build.load(x, i))
    with build.loop(N) as i:
        build.store(y, i, build.load(y, i) / build.read(total))
    procedure = build.finish([y], [aval((N,), np.dtype(float))])
    assert fuse_loops(procedure) is procedure


def test_elements_at_a_known_distance_stay_known():
    build = ProcedureBuilder()
    x, y = build.scalar("x"), build.allocate("y", 4)
    build.store(y, 0, x)
    build.store(y, 1, x * 2.0)
    procedure = build.finish([build.load(y, 0) + build.load(y, 1)])
    assert not any(isinstance(s, Load) for s in forward_elements(procedure).body)


def test_elements_at_multiples_of_what_is_computed_twice_are_different():
    build = ProcedureBuilder()
    x, y = build.scalar("x"), build.allocate("y", 8)
    with build.loop(8) as i:
        build.store(y, i, 1.0)
    with build.loop(4) as i:
        build.store(y, floor_divide(i, 2) + floor_divide(i, 2), x)
        build.store(y, i + 4, build.load(y, floor_divide(i, 2)))
    procedure = build.finish([y], [aval((8,), np.dtype(float))])
    check(procedure, [3.0])
    assert forward_elements(procedure).body == procedure.body


def test_stores_of_a_long_block_are_forwarded_one_by_one():
    build = ProcedureBuilder()
    x, y, z = build.array("x", (N,)), build.allocate("y", 3000), build.allocate("z", N)
    with build.loop(N) as i:
        for k in range(500):
            build.store(y, i * 500 + k, build.load(x, i) * k)
        build.store(z, i, build.load(y, i * 500 + 7) + build.load(y, i * 500 + 499))
    procedure = build.finish([y, z], [aval((3000,), np.dtype(float)), aval((N,), np.dtype(float))])
    (loop,) = loops(forward_elements(procedure))
    assert [s.pointer is x for s in loop.body if isinstance(s, Load)] == [True]


@pytest.mark.parametrize("is_flat_first", [True, False])
def test_a_loop_over_all_elements_is_fused_with_a_nest_over_rows(is_flat_first):
    build = ProcedureBuilder()
    x, y = build.array("x", (N * N * 2,)), build.allocate("y", N * N * 2)
    z = build.allocate("z", N * N * 2)

    def flat(target, source):
        with build.loop(N * N * 2) as i:
            build.store(target, i, build.load(source, i) * 2.0)

    def nest(target, source):
        with build.loop(N) as i, build.loop(2) as j, build.loop(N) as k:
            index = (i * 2 + j) * N + k
            build.store(target, index, build.load(source, index) + 1.0)

    for step, target, source in zip(
        (flat, nest) if is_flat_first else (nest, flat), (y, z), (x, y), strict=True
    ):
        step(target, source)
    procedure = build.finish([z], [aval((N * N * 2,), np.dtype(float))])
    contracted = contract_arrays(procedure)
    assert len(loops(contracted)) == 3
    check(procedure, [np.arange(N * N * 2.0)])


def test_a_store_that_is_overwritten_unread_is_gone():
    build = ProcedureBuilder()
    x, y = build.array("x", (N,)), build.allocate("y", N)
    with build.loop(N) as i:
        build.store(y, i, 0.0)
        build.store(y, i, build.load(y, i) + build.load(x, i))
        with build.branch(less(build.load(x, i), 0.0)):
            build.store(y, i, 1.0)
        build.store(y, i, build.load(y, i) * 2.0)
    procedure = build.finish([y], [aval((N,), np.dtype(float))])
    (loop,) = loops(forward_elements(procedure))
    assert sum(isinstance(s, Store) for s in loop.body) == 2
    check(procedure, [np.array([1.0, -1.0, 2.0, -2.0, 0.5, 0.0])])


def test_an_accumulator_that_is_used_up_in_each_iteration_is_gone():
    """The reverse sweep has such ones for what an iteration computes on the way: they hold zeros at its begin and at its end."""
    build = ProcedureBuilder("f")
    x = build.array("x", (SIZE,))
    parts = build.allocate("parts", 2, zero=True)
    total = build.variable("total", literal(0.0))
    with build.loop(SIZE) as i:
        for place in (0, 1):
            build.store(parts, place, build.load(parts, place) + build.load(x, i))
        build.assign(total, build.read(total) + build.load(parts, 0) * build.load(parts, 1))
        for place in (0, 1):
            build.store(parts, place, literal(0.0))
    procedure = build.finish([build.read(total)])
    forwarded = optimise_procedure(procedure, check=True)
    assert not any(isinstance(s, Allocate | Store) for s in walk(forwarded.body))
    assert sum(isinstance(s, Load) for s in walk(forwarded.body)) == 1
    values = np.linspace(-1.0, 1.0, SIZE)
    assert run_procedure(forwarded, [values]) == run_procedure(procedure, [values])


@pytest.mark.parametrize("last", [0.0, -0.0, 1.0])
def test_only_arrays_of_the_zeros_that_they_are_filled_with_are_zeros(last):
    """Of the elements that are read before the first store, the sign of a zero is kept."""
    build = ProcedureBuilder("f")
    n = build.scalar("n", np.int64)
    held = build.allocate("held", 2, zero=True)
    total = build.variable("total", literal(0.0))
    with build.loop(n) as i:
        build.assign(total, 1.0 / build.load(held, 0) + i)
        build.store(held, 0, literal(last))
    procedure = build.finish([build.read(total)])
    for count in (1, 3):
        with np.errstate(divide="ignore"):
            (expected,) = run_procedure(procedure, [count])
            assert run_procedure(forward_elements(procedure), [count]) == [expected]


def stacked_gates(rows: int, width: int) -> Procedure:
    """Rows of a matrix are stored one by one, changed as a matrix, and read one by one."""
    build = ProcedureBuilder("gates")
    x, weights = build.array("x", (width,)), build.array("w", (rows, width))
    gates, changed = (build.allocate(name, rows * width) for name in ("gates", "changed"))
    out = build.allocate("out", width)
    for row in range(rows):
        with build.loop(width) as i:
            build.store(gates, i + row * width, build.load(x, i) + float(row))
    with build.loop(rows) as k, build.loop(width) as i:
        build.store(
            changed, k * width + i, build.load(gates, k * width + i) * build.load(weights, k * width + i)
        )
    with build.loop(width) as i:
        total = build.load(changed, i)
        for row in range(1, rows):
            total = total * build.load(changed, i + row * width)
        build.store(out, i, total)
    return build.finish([out], [aval((width,), np.dtype(float))])


@pytest.mark.parametrize(("rows", "width", "loops"), [(4, 14, 1), (2, 8, 1), (4, 5, 4), (9, 14, 4)])
def test_rows_of_a_small_matrix_become_part_of_the_loops_over_one_row(rows, width, loops):
    procedure = stacked_gates(rows, width)
    contracted = contract_arrays(procedure)
    verify_procedure(contracted)
    found = [s for s in walk(contracted.body) if isinstance(s, For)]
    if loops == 1:
        assert len(found) == 1
        assert [s.out.name for s in walk(contracted.body) if isinstance(s, Allocate)] == ["out"]
    else:
        assert len(found) > 1  # the matrix stays a nest: too short rows, or too many
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=width), rng.normal(size=(rows, width))]
    (wanted,), (have,) = run_procedure(procedure, arguments), run_procedure(contracted, arguments)
    np.testing.assert_array_equal(have, wanted)


def test_random_nests_compute_the_same_row_by_row(monkeypatch):
    monkeypatch.setattr(fusion, "MOST_ROWS", N)
    monkeypatch.setattr(fusion, "LEAST_ROW", 2)
    test_random_nests_compute_the_same()
    test_derivatives_of_random_nests()


@pytest.mark.parametrize("second_reads, expected", [("x", 1), ("xy", 2)])
def test_nests_over_the_same_arrays_are_one(second_reads, expected):
    """The sum and the count of the elements that are the largest are such."""
    build = ProcedureBuilder("twice")
    arrays = {name: build.array(name, (N * N,)) for name in "xy"}
    outs = [build.allocate(name, N, zero=True) for name in "uv"]
    for out, names in zip(outs, ("x", second_reads), strict=True):
        with build.loop(N) as i, build.loop(N) as j:
            term = sum([build.load(arrays[name], i * N + j) for name in names], build.load(out, j))
            build.store(out, j, term)
    procedure = build.finish(outs, [aval((N,), np.dtype(float))] * 2)
    fused = fuse_loops(procedure)
    verify_procedure(fused, "a test")
    assert sum(isinstance(s, For) for s in fused.body) == expected
    x, y = np.random.default_rng(0).normal(size=(2, N * N))
    for found, wanted in zip(run_procedure(fused, [x, y]), run_procedure(procedure, [x, y]), strict=True):
        np.testing.assert_array_equal(found, wanted)
