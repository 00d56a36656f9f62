"""Products in tiles of rows: what they need is made just before them, and used just after."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.loops.ir import For, RoutineCall
from gradtape.loops.workspace import plan_memory
from gradtape.lower.pipeline import build_loops
from gradtape.passes.layout.matmul_tiling import tile_matmuls, tiling_notes
from gradtape.passes.layout.operand_privatisation import privatise_operands
from gradtape.passes.pipeline import optimise
from gradtape.statements import walk
from tests.support.compiled import graph_of, mixture

SIDE = 64


def network(weights, x):
    for w in weights[:-1]:
        x = np.tanh(x @ w)
    return np.sum((x @ weights[-1]) ** 2)


def normalised(w, v, x):
    """Each row needs the mean of all rows."""
    h = x @ w
    h = h - np.mean(h, axis=0)
    return np.sum(np.tanh(h @ v))


def rng():
    return np.random.default_rng(0)


def weights(count=3, side=SIDE):
    return [rng().normal(size=(side, side)) / side**0.5 for _ in range(count)]


def loops_of(function, *args):
    program, explain = build_loops(graph_of(function, *args))
    return program, explain


def around(statements, loops=()):
    """Yield each call with the loops around it, the outermost first."""
    for statement in statements:
        if isinstance(statement, For):
            yield from around(statement.body, (*loops, statement))
        elif isinstance(statement, RoutineCall):
            yield statement, loops


def agrees(function, *args):
    got = function(*args)
    with gt.config.override(jit=False):
        wanted = function(*args)
    for mine, interpreted in zip(flat(got), flat(wanted), strict=True):
        scale = np.max(np.abs(interpreted))
        np.testing.assert_allclose(mine, interpreted, rtol=1e-10, atol=1e-12 * scale)


def flat(tree):
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in flat(part)]
    return [tree]


def test_the_products_of_a_network_share_one_loop_over_tiles():
    x = rng().normal(size=(8000, SIDE))
    gradient = gt.value_and_grad(network)
    program, explain = loops_of(gradient, weights(), x)
    calls = list(around(program.body))
    assert len(calls) == 3 + 2 + 3
    tiles = {loops[0] for _, loops in calls}
    assert len(tiles) == 1
    assert plan_memory(program)[1] < x.nbytes
    assert any("8000 rows are computed in 40 tiles of 200" in line for line in explain)
    agrees(gradient, weights(), x)


def test_a_batch_of_products_shares_its_loop_with_what_surrounds_them():
    mu, q = rng().normal(size=(50, SIDE)), rng().normal(size=(50, SIDE, SIDE)) / 8
    gradient = gt.value_and_grad(mixture, argnums=(0, 1))
    x = rng().normal(size=(1000, SIDE))
    program, _ = loops_of(gradient, mu, q, x)
    (first, before), (second, after) = around(program.body)
    assert before[0] is after[0] and len(before) == len(after) == 2
    assert before[1] is not after[1]
    operand = {buffer for call in (first, second) for buffer, _ in call.operands[:1]}
    assert all(buffer.size == SIDE * 200 for buffer in operand)
    agrees(gradient, mu, q, x)


@pytest.mark.parametrize("rows", [1009, 1000, 777])
def test_any_number_of_rows_gives_the_same_gradients(rows):
    mu, q = rng().normal(size=(6, 32)), rng().normal(size=(6, 32, 32)) / 6
    agrees(gt.value_and_grad(mixture, argnums=(0, 1, 2)), mu, q, rng().normal(size=(rows, 32)))
    agrees(gt.value_and_grad(network, argnums=(0, 1)), weights(2), rng().normal(size=(8 * rows, SIDE)))


def test_results_with_rows_in_front_are_written_in_place():
    gradient = gt.value_and_grad(network, argnums=(0, 1))
    x = rng().normal(size=(8000, SIDE))
    program, explain = loops_of(gradient, weights(), x)
    assert any("tiles" in line for line in explain)
    assert plan_memory(program)[1] < x.nbytes
    agrees(gradient, weights(), x)


def test_rows_that_need_all_rows_are_left_as_they_are():
    graph = graph_of(
        gt.value_and_grad(normalised, argnums=(0, 1)), *weights(2), rng().normal(size=(8000, SIDE))
    )
    assert tile_matmuls(graph) is graph and tiling_notes(graph) == []
    agrees(gt.value_and_grad(normalised, argnums=(0, 1)), *weights(2), rng().normal(size=(8000, SIDE)))


@pytest.mark.parametrize(("rows", "side"), [(128, 256), (200, 64), (100_000, 8)])
def test_no_tiles_where_they_do_not_pay(rows, side):
    graph = graph_of(gt.value_and_grad(network), weights(2, side), rng().normal(size=(rows, side)))
    assert tiling_notes(graph) == []


def test_sums_over_tiles_have_the_same_bits_each_time():
    gradient = gt.value_and_grad(network)
    x = rng().normal(size=(8000, SIDE))
    first = flat(gradient(weights(), x))
    for threads in (1, 2, 3):
        with gt.config.override(num_threads=threads):
            again = flat(gradient(weights(), x))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_single_precision_is_served_alike():
    x = rng().normal(size=(16_000, SIDE)).astype(np.float32)
    ws = [w.astype(np.float32) for w in weights()]
    value, slopes = gt.value_and_grad(network)(ws, x)
    assert all(slope.dtype == np.float32 for slope in slopes)
    wanted, exact = gt.value_and_grad(network)(weights(), x.astype(float))
    np.testing.assert_allclose(value, wanted, rtol=1e-4)
    for slope, right in zip(slopes, exact, strict=True):
        np.testing.assert_allclose(slope, right, atol=1e-3 * np.max(np.abs(right)))


def test_a_cheap_operand_is_made_for_each_product():
    mu, q = rng().normal(size=(50, SIDE)), rng().normal(size=(50, SIDE, SIDE)) / 8
    graph = optimise(
        graph_of(
            gt.value_and_grad(mixture, argnums=(0, 1)),
            mu,
            q,
            rng().normal(size=(1009, SIDE)),
        )
    )
    centred = [node.out.shape for node in graph.nodes if node.op.name == "subtract" and node.out.ndim == 3]
    assert sorted(centred) == [(50, SIDE, 1009), (50, 1009, SIDE)]
    exponentials = [node.out.shape for node in graph.nodes if node.op.name == "exp"]
    assert exponentials == [(50, 1009)]  # what weights the products is small, and read by both
    assert privatise_operands(graph) is graph


def test_products_of_three_subscripts_are_summed_over_the_outer_one():
    def summed(a, b):
        return np.einsum("kim,kjm->ij", a * 2.0, b)

    a, b = rng().normal(size=(7, 40, 900)), rng().normal(size=(7, 50, 900))
    agrees(gt.jit(summed), a, b)
    program, _ = loops_of(gt.jit(summed), a, b)
    ((call, loops),) = around(program.body)
    assert call.numbers[7] == 1.0 and [loop.var.high + 1 for loop in loops] == [7]
    assert sum(isinstance(statement, For) for statement in walk(program.body)) >= 2
