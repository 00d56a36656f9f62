"""Masks that follow from the program: numbers where they are the same everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import BOOL
from gradtape.kinds.registry import ROWS
from gradtape.ops.core.shape import expand
from gradtape.passes.pipeline import optimise
from gradtape.passes.simplify import masks
from gradtape.passes.simplify.masks import fold_masks
from gradtape.runtime.interpret import interpret
from tests.support.lowering import array_input, graph_of

ROW: dict[str, Any] = dict(ROWS)


def repeated(value: bool, *shape: int) -> Value:
    return expand(literal(value, BOOL), shape, ())


def padded(x: Value, before: int, behind: int, axis: int = -1) -> Value:
    shape, starts = list(x.shape), [0] * x.ndim
    shape[axis] += before + behind
    starts[axis] = before
    return ROW["pad"](x, shape=tuple(shape), starts=tuple(starts), strides=(1,) * x.ndim)


def sliced(x: Value, start: int, stop: int) -> Value:
    shape = (*x.shape[:-1], stop - start)
    return ROW["slice"](x, shape=shape, starts=(*[0] * (x.ndim - 1), start), strides=(1,) * x.ndim)


def random_mask(rng: np.random.Generator, depth: int, shape: tuple[int, ...]) -> Value:
    """Return a mask of a shape, made by what derivatives make theirs of."""
    if depth == 0 or shape[-1] < 3:
        return repeated(bool(rng.random() < 0.7), *shape)
    choice = rng.integers(6)
    if choice == 0:
        cut = int(rng.integers(1, shape[-1]))
        return padded(random_mask(rng, depth - 1, (*shape[:-1], shape[-1] - cut)), cut, 0)
    if choice == 1:
        more = int(rng.integers(1, 4))
        start = int(rng.integers(0, more + 1))
        return sliced(random_mask(rng, depth - 1, (*shape[:-1], shape[-1] + more)), start, start + shape[-1])
    if choice == 2:
        return ROW["reduce_any"](random_mask(rng, depth - 1, (*shape, 3)), axes=(len(shape),))
    if choice == 3:
        cut = int(rng.integers(1, shape[-1]))
        parts = [(*shape[:-1], cut), (*shape[:-1], shape[-1] - cut)]
        return ROW["join"](*[random_mask(rng, depth - 1, part) for part in parts], axis=len(shape) - 1)
    row = "logical_or" if choice == 4 else "logical_and"
    return ROW[row](random_mask(rng, depth - 1, shape), random_mask(rng, depth - 1, shape))


@pytest.mark.parametrize("seed", range(200))
def test_folding_keeps_what_masks_are(seed):
    rng = np.random.default_rng(seed)
    x = array_input(2, 5)
    graph = graph_of([x], [ROW["where"](random_mask(rng, 4, (2, 5)), x, literal(0.0))])
    numbers = rng.normal(size=(2, 5))
    before, after = [interpret(g, [numbers])[0] for g in (graph, fold_masks(graph))]
    np.testing.assert_array_equal(before, after)


def test_a_mask_that_is_the_same_everywhere_is_a_number():
    x = array_input(5)
    whole = ROW["logical_or"](padded(repeated(True, 2), 0, 3), padded(repeated(True, 3), 2, 0))
    graph = fold_masks(graph_of([x], [ROW["where"](whole, x, literal(0.0))]))
    assert [node.op.name for node in graph.nodes] == ["expand", "where"]
    half = fold_masks(graph_of([x], [ROW["where"](padded(repeated(True, 2), 0, 3), x, literal(0.0))]))
    assert "pad" in [node.op.name for node in half.nodes]


@pytest.mark.parametrize("place, count", [(0, 1), (1, 3), (2, 2)])
def test_a_mask_of_moved_numbers_is_known(place, count):
    """A seed is ones that are put into zeros: whether an element of it is not zero follows from the program."""
    x = array_input(4, 5)
    ones = padded(expand(literal(1.0), (4, count), ()), place, 5 - place - count)
    mask = ROW["not_equal"](ones, literal(0.0))
    selected = ROW["where"](sliced(mask, place, place + count), sliced(x, 0, count), literal(0.0))
    any_place = ROW["where"](
        ROW["reduce_any"](mask, axes=(1,)), ROW["reduce_sum"](x, axes=(1,)), literal(0.0)
    )
    graph = graph_of([x], [selected, any_place])
    folded = fold_masks(graph)
    assert not {"not_equal", "reduce_any", "pad"} & {node.op.name for node in folded.nodes}
    numbers = np.arange(20.0).reshape(4, 5)
    for mine, other in zip(interpret(folded, [numbers]), interpret(graph, [numbers]), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_repeated_axes_cost_nothing(monkeypatch):
    sizes = []
    evaluated = masks._evaluated

    def counted(node, operands):
        result = evaluated(node, operands)
        sizes.append(0 if result is None else result.size)
        return result

    monkeypatch.setattr(masks, "_evaluated", counted)
    x = array_input(1_000_000, 5)
    whole = ROW["logical_or"](
        padded(repeated(True, 1_000_000, 2), 0, 3), padded(repeated(True, 1_000_000, 3), 2, 0)
    )
    any_row = ROW["reduce_any"](whole, axes=(0,))
    graph = fold_masks(graph_of([x], [ROW["where"](whole, x, literal(0.0)), any_row]))
    assert max(sizes) == 5
    assert not {node.op.name for node in graph.nodes} - {"expand", "where"}


def test_masks_of_data_stay():
    x = array_input(5)
    graph = fold_masks(graph_of([x], [ROW["where"](ROW["greater"](x, literal(0.0)), x, literal(0.0))]))
    assert [node.op.name for node in graph.nodes] == ["greater", "where"]


def test_a_derivative_of_slices_selects_nothing():
    def radial(z):
        direction = z[:3] / np.sqrt(np.sum(z[:3] ** 2))
        return np.sum(direction * z[3:6]) * z[6] + np.sum(z[7:9] ** 2)

    total = gt.grad(lambda z: np.sum(gt.vmap(radial)(z)))
    z = np.random.default_rng(0).normal(size=(50, 9))
    text = str(gt.inspect.loops(total, z))
    assert text.count(" if ") == 1  # the slope of the root of squares at 0, once for each row
    assert "+ 0.0" not in text
    assert text.count("range(50)") == 1
    np.testing.assert_allclose(total(z), np.stack([gt.grad(radial)(row) for row in z]), rtol=1e-13)


@pytest.mark.parametrize("axis", [0, 1])
def test_gates_of_a_loop_need_neither_masks_nor_their_array(axis):
    """Gates are computed together and read one by one: their cotangents are padded, and begin as zeros, which nothing selects."""

    def loss(w, b, h, xs):
        def step(h, x):
            gates = np.stack([x, h, x, h], axis=axis) * w + b
            i, f, o, c = [gates[k] if axis == 0 else gates[:, k] for k in range(4)]
            h = np.tanh(i) * h + 1.0 / (1.0 + np.exp(-f)) * np.tanh(o) + c**2
            return h, np.sum(h)

        _, terms = gt.scan(step, h, xs)
        return np.sum(terms)

    def unrolled(w, b, h, xs):
        total = 0.0
        for x in xs:
            gates = np.stack([x, h, x, h], axis=axis) * w + b
            i, f, o, c = [gates[k] if axis == 0 else gates[:, k] for k in range(4)]
            h = np.tanh(i) * h + 1.0 / (1.0 + np.exp(-f)) * np.tanh(o) + c**2
            total = total + np.sum(h)
        return total

    rng = np.random.default_rng(0)
    shape = (4, 5) if axis == 0 else (5, 4)
    arguments = [0.3 * rng.normal(size=s) for s in (shape, shape, (5,), (6, 5))]
    gradient = gt.grad(loss, argnums=(0, 1, 2, 3))
    text = str(gt.inspect.loops(gradient, *arguments))
    assert "bool" not in text and " if " not in text
    expected = gt.grad(unrolled, argnums=(0, 1, 2, 3))(*arguments)
    for actual, wanted in zip(gradient(*arguments), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("begin", "goes"),
    [
        (lambda x: np.full_like(x, 0.0), True),
        (lambda x: np.full_like(x, -0.0), False),
        (lambda x: np.full_like(x, 2.0), False),
    ],
)
def test_a_selection_of_the_first_iteration_goes_where_it_selects_the_same(first, begin, goes):
    """Only a number with the same sign as the initial value is the same."""

    def run(x):
        def step(carry, _):
            flag, h = carry
            chosen = np.where(flag, h, 0.0) if not first else np.where(flag, 0.0, h)
            return (np.full_like(x, not first, dtype=bool), np.sin(h) + x), (chosen, h)

        begins = np.full_like(x, first, dtype=bool), begin(x)
        _, (chosen, h) = gt.scan(step, begins, None, length=4)
        return chosen, h

    x = np.array([0.1, 0.2, 0.3])
    chosen, h = gt.jit(run)(x)
    expected = np.concatenate([np.zeros((1, 3)), h[1:]])
    np.testing.assert_array_equal(chosen, expected)
    np.testing.assert_array_equal(np.signbit(chosen), np.signbit(expected))
    text = str(gt.inspect.loops(gt.jit(run), x))
    assert (" if " not in text) == goes


def test_one_known_mask_is_enough_where_it_decides():
    x = array_input(5)
    known = ROW["logical_or"](repeated(True, 5), ROW["greater"](x, literal(0.0)))
    neither = ROW["bitwise_and"](ROW["greater"](x, literal(0.0)), repeated(False, 5))
    graph = fold_masks(graph_of([x], [ROW["bitwise_or"](known, neither), neither]))
    assert {node.op.name for node in graph.nodes} <= {"expand", "logical_or", "greater", "bitwise_or"}


def test_zeros_around_a_selected_part_are_zeros_already():
    x = array_input(3)
    chosen = ROW["where"](padded(repeated(True, 3), 2, 1), padded(x, 2, 1), literal(0.0))
    assert [node.op.name for node in optimise(graph_of([x], [chosen])).nodes] == ["pad"]
    other = ROW["where"](padded(repeated(True, 3), 1, 2), padded(x, 2, 1), literal(0.0))
    negative = ROW["where"](padded(repeated(True, 3), 2, 1), padded(x, 2, 1), literal(-0.0))
    for value in (other, negative):
        assert "where" in [node.op.name for node in optimise(graph_of([x], [value])).nodes]
