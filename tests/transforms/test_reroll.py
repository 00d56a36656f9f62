"""Python loops become loops again: the same bits, a size that does not grow with the trip count, the same gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.body import Body
from gradtape.ir.graph import Graph
from gradtape.ir.verifier import verify
from gradtape.transforms.reroll.store_forwarding import _disjoint as are_apart
from gradtape.trees import flatten
from tests.transforms.reroll_cases import CASES, Case, graph_of, rolled_as_well

pytestmark = pytest.mark.usefixtures("loops_are_traced")


every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def bodies(graph: Graph) -> list[str]:
    return [node.params["body"].digest for node in graph.nodes if "body" in node.params]


@every_case
def test_the_same_bits_and_few_nodes(case: Case) -> None:
    args = case.args(40)
    graph = graph_of(case.make(40), args)
    found = rolled_as_well(graph, args)
    assert found is not None
    whole, result = found
    verify(whole, case.name)
    assert len(whole.nodes) <= case.most
    assert result.loops


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name != "array_read_in_each_iteration"],
    ids=lambda case: case.name,
)
def test_the_body_does_not_depend_on_the_trip_count(case: Case) -> None:
    found = []
    for trips in (70, 130):
        args = case.args(trips)
        whole = rolled_as_well(graph_of(case.make(trips), args), args)
        assert whole is not None
        found.append((bodies(whole[0]), len(whole[0].nodes)))
    assert found[0] == found[1]


@every_case
def test_gradients_are_those_of_the_unrolled_program(case: Case) -> None:
    args = case.args(40)
    numbers = tuple(range(len(args)))

    def objective(*given):
        return sum(np.sum(leaf) for leaf in flatten(case.make(40)(*given))[0])

    rolled = gt.value_and_grad(objective, numbers)
    value, gradients = rolled(*args)
    with gt.config.override(reroll=False, jit=False):
        expected, slopes = gt.value_and_grad(objective, numbers)(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for one, other in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    (only,) = rolled.site.specialisations()
    assert only.loops and len(only.graph.nodes) * 2 < len(graph_of(case.make(40), args).nodes)


def test_a_program_runs_natively_and_once() -> None:
    case = next(case for case in CASES if case.name == "runge_kutta")
    run = gt.jit(case.make(100))
    np.testing.assert_allclose(run(0.3, 0.3), case.make(100)(np.float64(0.3), np.float64(0.3)), rtol=1e-12)
    (only,) = run.site.specialisations()
    assert run.site.traces == 1 and len(only.graph.nodes) <= 8
    assert only.program.kernel.loaded is not None


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: gt.jacobian(f),
        lambda f: gt.jacfwd(f),
        lambda f: gt.hessian(lambda x: np.sum(f(x))),
        lambda f: gt.vmap(f),
        lambda f: gt.vmap(gt.grad(lambda x: np.sum(f(x)))),
        lambda f: lambda x: gt.vjp(f, x)[1](np.ones(x.shape)),
        lambda f: lambda x: gt.jvp(f, (x,), (np.ones(x.shape),)),
        lambda f: gt.grad(lambda x: np.sum(gt.grad(lambda y: np.sum(f(y)))(x))),
        lambda f: gt.value_and_grad(lambda x: (np.sum(f(x)), f(x) * 2), has_aux=True),
    ],
    ids=["jacobian", "jacfwd", "hessian", "vmap", "vmap of grad", "vjp", "jvp", "grad of grad", "aux"],
)
def test_transforms_see_loops(transform) -> None:
    def f(x):
        for _ in range(30):
            x = np.sin(x) * 1.1 + np.mean(x)
        return x

    x = np.random.default_rng(1).normal(size=(3, 2))
    found = transform(f)(x)
    with gt.config.override(reroll=False, jit=False):
        expected = transform(f)(x)
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_without_the_setting_nothing_is_rolled() -> None:
    with gt.config.override(reroll=False):
        run = gt.jit(CASES[0].make(20))
        run(0.3, 0.3)
    (only,) = run.site.specialisations()
    assert len(only.graph.nodes) > 20 and not only.loops


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: sum([np.sin(x) for _ in range(5)]),
        lambda x: [x := np.sin(x * x) if k % (3 + k // 7) else np.cos(x) + x for k in range(40)][-1],
        lambda x: [x := np.concatenate([x, x[:1]]) for _ in range(40)][-1],
    ],
    ids=["small", "few iterations", "no period", "growing"],
)
def test_what_is_irregular_stays(function) -> None:
    args = (np.ones(3),)
    assert rolled_as_well(graph_of(function, args), args) is None


def test_arrays_from_outside_are_rows_and_are_still_watched() -> None:
    layers = [gt.Variable(np.full(3, 0.1 * k)) for k in range(40)]

    @gt.jit
    def f(x):
        for layer in layers:
            x = np.tanh(x + layer)
        return x

    def by_hand(x):
        for layer in layers:
            x = np.tanh(x + np.asarray(layer))
        return x

    x = np.ones(3)
    np.testing.assert_allclose(f(x), by_hand(x), rtol=1e-12)
    layers[7].assign(np.ones(3))
    np.testing.assert_allclose(f(x), by_hand(x), rtol=1e-12)


def test_a_variable_changed_in_each_iteration() -> None:
    total = gt.Variable(np.zeros(2))

    @gt.jit
    def f(x):
        for k in range(40):
            total.assign_add(np.sin(x) * k)
        return total * 1.0

    x = np.array([0.1, 0.2])
    np.testing.assert_allclose(f(x), np.sin(x) * sum(range(40)), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(f(x)), np.sin(x) * sum(range(40)) * 2, rtol=1e-12)


def test_values_between_iterations() -> None:
    def f(x):
        states = []
        for _ in range(40):
            x = np.sin(x) + 0.1
            states.append(x)
        return states[3], states[-2], states[20] * 2, x

    args = (np.ones(3),)
    assert rolled_as_well(graph_of(f, args), args) is not None


def test_equal_bodies_are_one_digest() -> None:
    one, other = [
        next(node.params["body"] for node in found[0].nodes if "body" in node.params)
        for trips in (30, 60)
        if (found := rolled_as_well(graph_of(CASES[0].make(trips), (0.3, 0.3)), (0.3, 0.3))) is not None
    ]
    assert isinstance(one, Body) and one == other


def test_a_tape_is_differentiated_with_loops() -> None:
    numbers = np.random.default_rng(0)
    x, start = numbers.normal(size=(200, 4)), numbers.normal(size=(4, 4)) * 0.3

    def slopes():
        with gt.GradientTape() as tape:
            w = tape.watch(start)
            h = np.zeros(4)
            states = []
            for t in range(200):
                h = np.tanh(x[t] + h @ w)
                states.append(h)
            loss = np.sum(h**2) + np.sum(np.stack(states)[::2])
        return (
            [np.asarray(part) for part in tape.gradient(loss, [w, states[3]])],
            float(loss),
            np.asarray(states[7]),
        )

    found = [slopes() for _ in range(3)]
    with gt.config.override(reroll=False, jit=False):
        expected = slopes()
    for one, other in zip(flatten(found)[0], flatten([expected] * 3)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_loops_that_are_not_traced_are_compiled_as_loops() -> None:
    def run():
        x = gt.asarray(np.linspace(0.0, 1.0, 5000))
        for _ in range(300):
            x = np.sin(x) * 1.01 + 0.1
        return np.asarray(x)

    first, again = run(), run()
    with gt.config.override(jit=False):
        np.testing.assert_allclose(first, run(), rtol=1e-12)
    np.testing.assert_array_equal(first, again)


def test_what_was_found_is_explained() -> None:
    def irregular(x):
        a, b, c = x, x * 2, x * 3
        for k in range(40):
            a = a + b * c
            if k * k % 7 > 2:
                a, b, c = b, c, a
        return a

    run = gt.jit(CASES[0].make(50))
    run(0.3, 0.3)
    assert "50 iterations of 34 nodes, 2 carried, 0 by row" in gt.inspect.explain(run)
    other = gt.jit(irregular)
    other(np.ones(3))
    assert "no loop at" in gt.inspect.explain(other)


@pytest.mark.parametrize(("size", "is_loop"), [(1_000, True), (20_000, False)])
def test_large_arrays_are_not_copied_for_a_short_loop(size: int, is_loop: bool) -> None:
    """As they stand the terms are one loop over the elements."""

    def products(x: Any, y: Any) -> Any:
        first, second = [np.sin(x), np.cos(x), np.tanh(x), x * x], [np.exp(y), np.sqrt(1.0 + y * y), y, y * y]
        total = 0.0
        for a in first:
            for b in second:
                total = total + np.arctan(np.log1p(a * a) * (b + 0.5 * a) - a / (1.0 + b * b))
        return total

    x, y = np.random.default_rng(0).normal(size=(2, size))
    jitted = gt.jit(products)
    np.testing.assert_allclose(jitted(x, y), products(x, y), rtol=1e-11, atol=1e-12)
    assert (" in range(" in str(gt.inspect.graph(jitted, x, y))) is is_loop


def test_slices_are_disjoint_where_their_ranges_are():
    starts, extents, strides = range(4), range(1, 4), (-2, -1, 1, 2, 3)
    for start, extent, stride in itertools.product((0, 3, 5), extents, strides):
        own = [start + k * stride for k in range(extent)]
        for other, count, step in itertools.product(starts, extents, strides):
            theirs = [other + k * step for k in range(count)]
            expected = max(own) < min(theirs) or max(theirs) < min(own)
            found = are_apart((start,), (extent,), (stride,), (other,), (count,), (step,))
            assert found is expected, (own, theirs)
            # One axis that is apart is enough.
            assert (
                are_apart((0, start), (1, extent), (1, stride), (0, other), (1, count), (1, step)) is expected
            )


@pytest.mark.parametrize("stride", [1, 7, 91], ids=["in order", "shuffled", "shuffled widely"])
def test_what_is_only_handed_on_is_no_loop(stride: int) -> None:
    """A kernel tests what an array of indices says; for many numbers in another order LLVM took minutes."""
    count = 200
    x = {f"x{k:03}": 0.1 + 0.01 * k for k in range(count)}
    names = [f"x{stride * k % count:03}" for k in range(count)]

    def f(x: dict[str, Any]) -> Any:
        total = 0.0
        for name in names:
            total = total + np.sin(x[name]) * x[name]
        return total

    gradient = gt.grad(f)
    found = gradient(x)
    assert list(found) == list(x)
    for name, number in x.items():
        np.testing.assert_allclose(found[name], np.cos(number) * number + np.sin(number), rtol=1e-13)
    graph = gt.inspect.graph(gradient, x, optimised=True)
    assert "gather" not in str(graph) and "sin(" in str(graph)
    second = gt.hvp(f, (x,), ({name: float(name == names[3]) for name in x},))
    number = x[names[3]]
    np.testing.assert_allclose(
        [second[name] for name in names[:5]],
        [0.0] * 3 + [2.0 * np.cos(number) - np.sin(number) * number] + [0.0],
        rtol=1e-12,
        atol=1e-14,
    )
