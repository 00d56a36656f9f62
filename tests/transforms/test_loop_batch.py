"""Batches of loops and branches: against one element after another."""

import numpy as np
import pytest

from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import aval
from gradtape.ir.verifier import verify
from gradtape.transforms.batch import batch
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop
from tests.support.control_cases import (
    INT64,
    all_cases,
    body_of,
    convert,
    graph_of,
    matvec,
    sin,
    sqrt,
    tanh,
    total,
    value,
    where,
)
from tests.support.loop_derivatives import SIZE, batched, never, pulled, pushed, repeated, varied

CASES = [case for case in all_cases() if not case.name.endswith("-1")]
cases = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def masks(arrays):
    count = len(arrays)
    some = [tuple(k == place for k in range(count)) for place in range(count)]
    return {(True,) * count, *some}


@cases
@pytest.mark.parametrize("orders", ["", "f", "r"])
def test_as_element_by_element(case, orders):
    for mapped in masks(case.arrays):
        arrays = [
            varied(x, k) if flag else x for k, (x, flag) in enumerate(zip(case.arrays, mapped, strict=True))
        ]

        def function(*inputs):
            outs = case.loop(*inputs)
            for order in orders:
                outs = pushed(outs, inputs) if order == "f" else pulled(outs, inputs)
            return outs

        got = batched(function, arrays, mapped)
        want = repeated(function, arrays, mapped)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5 if one.dtype == np.float32 else 1e-9, atol=1e-6)


INPUTS = [value((), INT64), value((2, 2)), value((2,)), value()]


def growing(c, x, y):
    """Iterations until the norm is large; sqrt is infinite after the last iteration."""
    test = body_of(lambda i, c, x, y: (y > 0.0,), INPUTS)
    body = body_of(
        lambda i, c, x, y: (tanh(matvec(c, x)) + x * total(sqrt(PRIMITIVES["expand"](y, (2,), ()))), y - 1.0),
        INPUTS,
    )
    return while_loop(test, body, [c], [x, y])[:3]


def rooted(c, x, y):
    """Only elementwise formulas in the body."""
    inputs = [value((), INT64), value(), value()]
    test = body_of(lambda i, x, y: (y > 0.0,), inputs)
    body = body_of(lambda i, x, y: (sin(x) + sqrt(y) * x, y - 1.0), inputs)
    return while_loop(test, body, [], [total(x) + total(c), y], None)[:2]


def limited(c, x, y):
    inputs = [value((), INT64), value(), value()]
    test = body_of(lambda i, x, y: (y > convert(i, float) * 0.5,), inputs)
    body = body_of(lambda i, x, y: (sin(x) * y, y + convert(i, float) * 0.1), inputs)
    return while_loop(test, body, [], [total(x) + total(c), y], 3)[:2]


ARRAYS = (
    np.random.default_rng(0).normal(size=(SIZE, 2, 2)) * 0.4,
    np.random.default_rng(1).normal(size=(SIZE, 2)),
    np.array([2.5, -1.0, 0.75]),
)
LANES = [(False, False, True), (True, False, True), (True, True, True), (False, True, True)]


@pytest.mark.parametrize("orders", ["", "f", "r", "rf", "fr", "rr"])
@pytest.mark.parametrize("mapped", LANES)
@pytest.mark.parametrize("function", [growing, rooted, limited])
def test_each_element_leaves_the_loop_when_it_is_done(function, mapped, orders):
    arrays = [x if flag else x[0] for x, flag in zip(ARRAYS, mapped, strict=True)]
    got = batched(function, arrays, mapped, orders)
    want = repeated(function, arrays, mapped, orders)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("orders", ["r", "fr", "rr", "rf"])
@pytest.mark.parametrize("mapped", LANES)
@pytest.mark.parametrize("function", [growing, rooted, limited])
def test_derivatives_of_each_element(function, mapped, orders):
    def differentiated(*inputs):
        outs = function(*inputs)
        for order in orders:
            outs = pulled(outs, inputs) if order == "r" else pushed(outs, inputs)
        return outs

    arrays = [x if flag else x[0] for x, flag in zip(ARRAYS, mapped, strict=True)]
    got = batched(differentiated, arrays, mapped)
    want = repeated(differentiated, arrays, mapped)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def branched(index, c, x):
    branches = [
        body_of(lambda c, x: (tanh(matvec(c, x)), total(x)), [value((2, 2)), value((2,))]),
        body_of(lambda c, x: (sqrt(x), total(sqrt(x))), [value((2, 2)), value((2,))]),
        body_of(lambda c, x: (where(x > 0.0, x, 1.0), total(c)), [value((2, 2)), value((2,))]),
    ]
    return switch(branches, index, [c, x])


@pytest.mark.parametrize("orders", ["", "f", "r", "rr", "rf"])
@pytest.mark.parametrize("index", [[0, 2, 2], [0, 1, 2], [7, -1, 1], [0, 0, 0]])
@pytest.mark.parametrize("mapped", [(True, False, True), (True, True, True), (True, True, False)])
def test_each_element_takes_its_branch(index, mapped, orders):
    # Roots of what other branches take are NaN, and must not be seen.
    rng = np.random.default_rng(0)
    x = np.where(np.clip(index, 0, 2) == 1, 1.0, -1.0)[:, None] * rng.uniform(1, 2, (SIZE, 2))
    if not mapped[2]:
        x = np.abs(x[0])
    c = rng.normal(size=(SIZE, 2, 2))
    arrays = [np.array(index), c if mapped[1] else c[0], x]
    got = batched(branched, arrays, mapped, orders)
    want = repeated(branched, arrays, mapped, orders)
    for one, other in zip(got, want, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_what_is_the_same_for_all_elements_is_computed_once():
    inputs = [value((), INT64), value(), value()]
    body = body_of(lambda i, x, y: (sin(x), y * x), inputs)
    x, ys = Value(aval((), np.dtype(float))), Value(aval((SIZE,), np.dtype(float)))
    y = value()
    outs = scan(body, [], [x, y], [], 5)
    found = batch(outs, {y: ys}, SIZE, never)
    graph = graph_of(found, [x, ys])
    (node,) = [node for node in graph.nodes if node.op is scan]
    assert [value.shape for value in node.outs] == [(), (SIZE,)]


def test_a_loop_that_all_leave_together_has_one_count():
    inputs = [value((), INT64), value(), value()]
    test = body_of(lambda i, x, n: (n < 3.0,), inputs)
    body = body_of(lambda i, x, n: (sin(x), n + 1.0), inputs)
    x, n, xs = value(), value(), value((SIZE,))
    outs = while_loop(test, body, [], [x, n])
    (gradient,) = pulled([outs[0]], [x])
    (found,) = batch([gradient], {x: xs}, SIZE, never)
    graph = graph_of([found], [xs, n])
    verify(graph)
    counts = [node.inputs[0].shape for node in graph.nodes if node.op is repeat]
    assert counts == [()]
    assert np.isfinite(compute_outputs(graph, [np.ones(SIZE), np.asarray(0.0)])[0]).all()
