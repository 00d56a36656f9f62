"""Loop interchange in procedures: products across rows become sums of rows, term by term in the same order."""

import random

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import number_of
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.exponential import sin
from gradtape.ops.core.elementwise.logic import less
from gradtape.passes.procedures import interchange
from gradtape.passes.procedures.interchange import interchange_loops, permute_loops
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import For, Load, Pop, Push
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure

N = 9
SIZE = N * N
TYPE = aval((SIZE,), np.dtype(float))


def copied(build, name, source):
    array = build.allocate(name, SIZE)
    with build.loop(SIZE) as i:
        build.store(array, i, build.load(source, i))
    return array


def triangular_product(count=N):
    """For each row, add the rows below, scaled by a column of another matrix."""
    build = ProcedureBuilder("product")
    a, x = build.array("a", (SIZE,)), build.array("x", (SIZE,))
    b = copied(build, "b", x)
    with build.loop(N) as i, build.loop(count) as j:
        total = build.variable("total", 0.0)
        first = build.load(b, i * N + j)
        with build.loop(N - 1 - i) as k:
            row = i + 1 + k
            build.assign(total, build.read(total) + build.load(a, row * N + i) * build.load(b, row * N + j))
        build.store(b, i * N + j, first + build.read(total))
    return build.finish([b], [TYPE])


def innermost(procedure):
    """Return by innermost loop the factors of its number in the indices of loads and stores."""
    return [
        s
        for s in walk(procedure.body)
        if isinstance(s, For) and not any(isinstance(t, For) for t in walk(s.body))
    ]


def random_nest(seed):
    """Return a procedure of nests whose inner loop is between statements."""
    choose = random.Random(seed)
    build = ProcedureBuilder(f"nest{seed}")
    x, y = build.array("x", (SIZE,)), build.scalar("y")
    a, b, c = (copied(build, name, x) for name in "abc")
    state = build.variable("state", y)
    for _ in range(2):
        with build.loop(N - 1) as i, build.loop(N - 1) as j:
            places = [i * N + j, i * N, j, j * N + i, (i + 1) * N + j + 1, 3]
            total = build.variable("total", 0.0)
            known = [y, build.load(choose.choice([a, b, c]), choose.choice(places))]
            if choose.random() < 0.3:
                build.assign(state, build.read(state) * 0.5 + known[-1])
            if choose.random() < 0.4:
                build.store(choose.choice([a, b, c]), choose.choice(places), sin(known[-1]))
            with build.loop(choose.choice([N - 1, N - 1 - i, j])) as k:
                inner = [
                    k * N + j,
                    k * N + j,
                    k * N + j + 1,
                    k * N + i,
                    k,
                    i * N + j,
                    (k + 1) * N + j,
                    i * N + k,
                ]
                term = build.load(choose.choice([a, b, c, x]), choose.choice(inner)) * 0.3 + choose.choice(
                    known
                )
                if choose.random() < 0.8:
                    build.assign(total, build.read(total) + term)
                if choose.random() < 0.4:
                    array, place = choose.choice([a, b, c]), choose.choice(inner)
                    build.store(array, place, build.load(array, place) + term * 0.1)
                if choose.random() < 0.2:
                    with build.branch(less(term, 0.3)):
                        build.store(choose.choice([a, b, c]), choose.choice(inner), term)
            if choose.random() < 0.8:
                build.store(choose.choice([a, b, c]), choose.choice(places), build.read(total) + known[-1])
            if choose.random() < 0.3:
                build.assign(state, build.read(state) + sin(build.read(total)))
    return build.finish([a, b, c, build.read(state)], [TYPE] * 3 + [aval((), np.dtype(float))])


def arguments_of(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=SIZE) * 0.5, rng.normal()]


def check(procedure, arguments):
    changed = interchange_loops(procedure)
    verify_procedure(changed)
    for one, other in zip(
        run_procedure(changed, arguments), run_procedure(procedure, arguments), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return changed is not procedure


def test_random_nests_compute_the_same():
    assert sum(check(random_nest(seed), arguments_of(seed)) for seed in range(80)) > 5


def test_derivatives_of_random_nests_compute_the_same():
    for seed in range(12):
        pulled = vjp_procedure(random_nest(seed), [True, True], [True] * 4)
        check(pulled, [*arguments_of(seed), *[np.ones(SIZE)] * 3, 1.0])


def test_the_inner_loop_walks_along_rows():
    changed = interchange_loops(triangular_product())
    (product,) = [s for s in innermost(changed) if sum(isinstance(t, Load) for t in s.body) == 3]
    assert [type(s).__name__ for s in product.body] == ["Load", "Load", "Load", "Store"]
    check(triangular_product(), [np.arange(SIZE) * 0.1, np.ones(SIZE)])


def test_a_short_loop_stays_outside():
    procedure = triangular_product(5)
    assert interchange_loops(procedure) is procedure


def test_the_reverse_sweep_walks_along_rows():
    pulled = optimise_procedure(vjp_procedure(triangular_product(), [True, True], [True]))
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=SIZE) for _ in range(3)]
    expected = run_procedure(vjp_procedure(triangular_product(), [True, True], [True]), arguments)
    for one, other in zip(run_procedure(pulled, arguments), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    for one, other in zip(compile_procedure(pulled)(*arguments), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    kinds = [[type(t).__name__ for t in loop.body] for loop in innermost(pulled)]
    assert ["Load", "Load", "Load", "Load", "Store", "Load", "Store"] in kinds


@pytest.mark.parametrize("places, changes", [("b", True), ("a", True), ("ab", False), ("i", False)])
def test_the_order_of_the_tape_is_kept(places, changes):
    """Records of one part stay in their order; those of two parts would be exchanged."""
    build = ProcedureBuilder("records")
    x = build.array("x", (SIZE,))
    total = build.variable("total", 0.0)
    sums = build.allocate("sums", N)

    def push(place, value):
        if place in places:
            build.append(Push((value,)))

    with build.loop(N) as j:
        build.assign(total, 0.0)
        push("b", build.load(x, j))
        with build.loop(N) as k:
            build.assign(total, build.read(total) + build.load(x, k * N + j))
            push("i", build.read(total))
        build.store(sums, j, build.read(total))
        push("a", build.read(total) * 2.0)
    last = build.variable("last", 0.0)
    with build.loop(N * len(places) if places != "i" else SIZE):
        out = leaf(float)
        build.append(Pop((out,)))
        build.assign(last, build.read(last) * 0.5 + out)
    procedure = build.finish(
        [sums, build.read(last)], [aval((N,), np.dtype(float)), aval((), np.dtype(float))]
    )
    changed = interchange_loops(procedure)
    assert (changed is not procedure) is changes
    x = np.random.default_rng(0).normal(size=SIZE)
    for one, other in zip(run_procedure(changed, [x]), run_procedure(procedure, [x]), strict=True):
        np.testing.assert_array_equal(one, other)


HEIGHT, ROWS, COLUMNS = 9, 3, 4


def random_columns(seed):
    """Return a procedure of perfect nests over a grid, of which the outer loop goes through the heights."""
    choose = random.Random(seed)
    size = HEIGHT * ROWS * (COLUMNS + 1)
    build = ProcedureBuilder(f"columns{seed}")
    x, y = build.array("x", (size,)), build.scalar("y")
    arrays = []
    for name in "ab":
        arrays.append(build.allocate(name, size))
        with build.loop(size) as i:
            build.store(arrays[-1], i, build.load(x, i))
    flat = build.allocate("flat", ROWS * COLUMNS, zero=True)
    total = build.variable("total", y)
    for _ in range(choose.randint(1, 2)):
        with build.loop(HEIGHT - 1) as k, build.loop(ROWS) as i, build.loop(COLUMNS) as j:
            place = (i * COLUMNS + j) * HEIGHT + k
            places = [place, place, place + 1, place + 1]
            if choose.random() < 0.5:  # the column beside it, the same one for all, or one from the other end
                places.append(choose.choice([place + HEIGHT, i * COLUMNS * HEIGHT + k, size - 1 - place]))
            for _ in range(choose.randint(1, 3)):
                array = choose.choice(arrays)
                term = build.load(choose.choice([*arrays, x]), choose.choice(places)) * 0.5
                if choose.random() < 0.3:
                    term = term + build.load(flat, i * COLUMNS + j)
                kind = choose.random()
                if kind < 0.6:
                    where = choose.choice(places)
                    build.store(array, where, build.load(array, where) * 0.5 + term)
                elif kind < 0.75:
                    build.store(flat, i * COLUMNS + j, term)
                elif kind < 0.85:
                    with build.branch(less(term, 0.3)):
                        build.store(array, choose.choice(places), term)
                elif kind < 0.9:
                    build.assign(total, build.read(total) * 0.5 + term)
                else:
                    own = build.variable("own", 0.0)
                    build.assign(own, term * y)
                    build.store(array, choose.choice(places), build.read(own))
    results = [*arrays, flat, build.read(total)]
    types = [aval((size,), np.dtype(float))] * 2 + [
        aval((ROWS * COLUMNS,), np.dtype(float)),
        aval((), np.dtype(float)),
    ]
    return build.finish(results, types)


def test_random_columns_compute_the_same(monkeypatch):
    monkeypatch.setattr(interchange, "NEAR_CACHE", 0)
    changed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        changed += check(random_columns(seed), [rng.normal(size=HEIGHT * ROWS * (COLUMNS + 1)), rng.normal()])
    assert 12 < changed < 60


def smoothed_columns(rows=80, height=12, function=lambda x: x, apart=0):
    """Hand on numbers from height to height, in each column of a grid."""
    size = rows * rows * height
    build = ProcedureBuilder("columns")
    x = build.array("x", (size,))
    a = build.allocate("a", size, zero=True)
    with build.loop(height - 1) as k, build.loop(rows) as i, build.loop(rows) as j:
        place = (i * rows + j) * height + k
        before = build.load(a, place) + build.load(a, place + 1 + apart)
        build.store(a, place + 1, function(before) + build.load(x, place))
    return build.finish([a], [aval((size,), np.dtype(float))])


@pytest.mark.parametrize("change", [interchange_loops, permute_loops])
def test_columns_are_computed_one_after_the_other(change):
    nest = change(smoothed_columns()).body[-1]
    assert [number_of(loop.count) for loop in walk([nest]) if isinstance(loop, For)] == [80, 80, 11]


@pytest.mark.parametrize(
    "program",
    [
        smoothed_columns(rows=10),  # the lines of a height stay in the near cache
        smoothed_columns(function=sin),  # is worth vectors
        smoothed_columns(height=8),  # has seven iterations
        smoothed_columns(apart=-12),  # a column needs the one before, at the same height
    ],
    ids=["near", "costly", "short", "dependent"],
)
def test_columns_stay_in_their_order(program):
    assert interchange_loops(program) is program


def test_values_and_gradients_of_columns_walk_along_rows():
    """Thomas's algorithm for the columns of a grid, in vectorised code."""

    def thomas(b, x):
        c, d = np.zeros_like(x), x.copy()
        for k in range(1, x.shape[2]):
            c[:, :, k] = 1.0 / (b[:, :, k] - c[:, :, k - 1])
            d[:, :, k] = (d[:, :, k] - d[:, :, k - 1]) * c[:, :, k]
        return np.sum(d**2)

    rng = np.random.default_rng(0)
    b, x = 3.0 + rng.uniform(size=(2, 40, 40, 12))
    both = gt.value_and_grad(thomas, argnums=(0, 1))
    with gt.config.override(loops="compile"):
        value, gradients = both(b, x)
        source = gt.inspect.numba_source(both, b, x)
    moves = rng.normal(size=(2, 40, 40, 12))
    step = 1e-6
    ahead, behind = (thomas(b + s * moves[0], x + s * moves[1]) for s in (step, -step))
    assert value == pytest.approx(thomas(b, x))
    slope = sum(np.sum(g * m) for g, m in zip(gradients, moves, strict=True))
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)
    assert "for k in range(11):" in source
    assert "for i in range(11):" not in source
