"""Loops of graphs as procedures: the same results, arrays written in place, derivatives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.evaluate import compute_values
from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Allocate
from gradtape.procedures.traversal import roots
from gradtape.statements import walk
from gradtape.transforms.loops.ops import Scan, While
from gradtape.transforms.procedures.loop_conversion import procedure_of_loop, writes_in_place
from gradtape.transforms.procedures.ops import procedure
from gradtape.transforms.procedures.reference import reference_to
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.support import lowering
from tests.support.compiled import graph_of

N = 5
X = np.random.default_rng(0).normal(size=N)
M = np.random.default_rng(1).normal(size=(N, N))
M = M @ M.T + N * np.eye(N)


def cholesky(a):
    def row(i, lower):
        def column(j, lower):
            s = gt.fori_loop(0, j, lambda k, s: s - lower[i, k] * lower[j, k], a[i, j])
            lower = lower.copy()
            lower[i, j] = gt.cond(i == j, lambda s: np.sqrt(s), lambda s: s / lower[j, j], s)
            return lower

        return gt.fori_loop(0, i + 1, column, lower)

    return gt.fori_loop(0, N, row, np.zeros((N, N)))


def slices(a):
    def step(i, a):
        a = a.copy()
        a[i, 1:] = a[i, 1:] * 2 + a[0, :-1]
        a[i] += 1.0
        a[:, i] *= a[i, 0]
        return a

    return gt.fori_loop(0, 4, step, a)


def heat(u):
    def step(i, u):
        u = u.copy()
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return u

    return gt.fori_loop(0, 7, step, u)


def swapped(u, w):
    def step(i, pair):
        u, w = pair
        w = w.copy()
        w[1:-1] = u[2:] * u[:-2]
        return w, u

    return gt.fori_loop(0, 5, step, (u, w))


def until(x):
    def goes_on(i, x):
        return (i < 4) & (x[0] < 100)

    def step(i, x):
        x = x.copy()
        x[i] = x[i] * np.sum(x)
        return i + 1, x

    return gt.while_loop(goes_on, step, (0, x))


def branches(x):
    def step(i, x):
        def write(x):
            x = x.copy()
            x[i] = 2.0 * x[i - 1] ** 2
            return x

        return gt.cond(x[i] > 0, write, lambda x: x + 1.0, x)

    return gt.fori_loop(0, N, step, x)


def stacked(x, a):
    def step(x, row):
        x = x.copy()
        x[0] = x[1] + row @ x
        return x, x * 2

    return gt.scan(step, x, a)


def solved(x, a):
    def step(i, x):
        x = x.copy()
        x[i] = np.max(a @ x) + np.linalg.solve(a, x)[i]
        return x

    return gt.fori_loop(0, N, step, x)


def kept(x):
    """The old array is needed after the write."""

    def step(i, pair):
        x, y = pair
        z = x.copy()
        z[i] = np.sin(x[i]) + y[0]
        return z, x * z

    return gt.fori_loop(0, N, step, (x, x))


def runs_over_its_carry(a):
    """Later iterations of the inner loop read what the first one overwrites."""

    def step(i, c):
        c, sums = gt.scan(lambda c, column: (np.tanh(c), np.sum(np.sin(column))), c, c.T)
        return 0.9 * c + sums

    return gt.fori_loop(0, 4, step, a)


LOOPS = [
    (cholesky, (M,)),
    (slices, (M,)),
    (heat, (X,)),
    (swapped, (X, M[0])),
    (until, (X,)),
    (branches, (X,)),
    (stacked, (X, M)),
    (solved, (X, M)),
    (kept, (X,)),
    (runs_over_its_carry, (M,)),
]


def loop_of(
    function: Any, arrays: Any
) -> tuple[Node, list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """Return the outermost loop that a function records, its inputs and its outputs."""
    graph = graph_of(gt.jit(function), *arrays)
    values = compute_values(graph, [np.asarray(array) for array in arrays])
    (node,) = [node for node in graph.nodes if isinstance(node.op, Scan | While)]
    inputs = [values.get(value, value.data) for value in node.inputs]
    return node, inputs, [values[out] for out in node.outs]


@pytest.mark.parametrize(("function", "arrays"), LOOPS, ids=lambda x: getattr(x, "__name__", ""))
def test_results_and_derivatives(function, arrays):
    node, inputs, outputs = loop_of(function, arrays)
    procedure = procedure_of_loop(node)
    for result, output in zip(run_procedure(procedure, inputs), outputs, strict=True):
        np.testing.assert_allclose(result, output, rtol=1e-12)
    active = [type_.dtype.kind == "f" for type_ in procedure.types]
    seeded = [type_.dtype.kind == "f" for type_ in procedure.result_types]
    random = np.random.default_rng(2)
    seeds = [
        random.normal(size=t.shape) for t, flag in zip(procedure.result_types, seeded, strict=True) if flag
    ]
    moves = [random.normal(size=np.shape(x)) if flag else 0 for x, flag in zip(inputs, active, strict=True)]

    def weighted(step: float) -> float:
        moved = [x + step * move if flag else x for x, move, flag in zip(inputs, moves, active, strict=True)]
        results = [r for r, flag in zip(run_procedure(procedure, moved), seeded, strict=True) if flag]
        return sum(float(np.sum(seed * result)) for seed, result in zip(seeds, results, strict=True))

    pulled = run_procedure(vjp_procedure(procedure, active, seeded), [*inputs, *seeds])[len(outputs) :]
    slopes = [move for move, flag in zip(moves, active, strict=True) if flag]
    product = sum(float(np.sum(p * m)) for p, m in zip(pulled, slopes, strict=True))
    assert product == pytest.approx((weighted(1e-6) - weighted(-1e-6)) / 2e-6, rel=1e-5)


def test_arrays_are_written_in_place():
    for function, arrays, copies in ((cholesky, (M,), 1), (branches, (X,), 1), (heat, (X,), 2)):
        node, _, _ = loop_of(function, arrays)
        statements = Counter(type(statement) for statement in walk(procedure_of_loop(node).body))
        assert statements[Allocate] == copies, function.__name__


def test_which_loops_write_in_place():
    for function, arrays in LOOPS:
        node, _, _ = loop_of(function, arrays)
        assert writes_in_place(node) == (function in (cholesky, until, branches, solved, kept)), function


def masked(x, mask, a):
    """A carried mask is padded, which needs a False of its dtype, and chooses elements."""

    def step(carry, row):
        x, mask = carry
        mask = np.concatenate([mask[1:], [False]]) ^ np.pad(mask, (1, 0))[:-1]
        return (np.where(np.pad(mask[1:], (0, 1)), x + row, 0.5 * x), mask), np.pad(mask[1:], (1, 0))

    return gt.scan(step, (x, mask), a)


def test_padded_masks_stay_masks():
    node, inputs, outputs = loop_of(masked, (X, X > 0, M))
    made = procedure_of_loop(node)
    nodes = extract(roots(made))[0]
    assert all(x.inputs[0].dtype == bool for x in nodes if x.op is where)
    call = [Value(aval(x.shape, x.dtype)) for x in inputs]
    graph = lowering.graph_of(call, procedure(reference_to(made), call))
    lowering.assert_same(lowering.Compiled(graph)(inputs), outputs, 1e-12, "kernel")


def test_what_is_costly_is_computed_once_for_all_that_read_it():
    def chained(x):
        def step(i, carry):
            x, y, z = carry
            t = 1.0 + np.exp(x) * y
            return t, y + t, z * t

        return gt.fori_loop(0, 3, step, (x, x, x))

    node, _, _ = loop_of(chained, (X,))
    made = procedure_of_loop(node)
    nodes = extract(roots(made))[0]
    assert Counter(node.op.name for node in nodes)["exp"] == 1
