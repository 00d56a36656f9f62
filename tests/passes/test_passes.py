"""What each pass does to a graph, and that all of them together keep its meaning."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import VerifyError
from gradtape.ir.graph import Graph, Node, Value, literal
from gradtape.ir.types import FLOAT64, aval
from gradtape.ir.verifier import verify
from gradtape.kinds.registry import ROWS
from gradtape.passes.pipeline import PASSES, optimise
from gradtape.passes.simplify.algebra import simplify_algebra
from gradtape.passes.simplify.joins import slice_pieces
from gradtape.passes.simplify.product_sums import drop_repeated_axes
from gradtape.runtime.interpret import interpret
from gradtape.transforms.vjp import vjp
from tests.support.lowering import array_input, graph_of, inputs_like, with_gradient

ROW: dict[str, Any] = dict(ROWS)


def names(outputs: list[Value], inputs: list[Value]) -> list[str]:
    """Return the ops that are left after the passes."""
    return [node.op.name for node in optimise(graph_of(inputs, outputs), check=True).nodes]


def test_formulas_open_up_and_numbers_fold() -> None:
    x = array_input(3)
    assert names([ROW["logical_not"](x)], [x]) == ["not_equal", "invert"]
    two = ROW["expand"](literal(2.0), shape=(3,), axes=())
    assert names([x * (two + two)], [x]) == ["multiply"]
    assert names([ROW["reduce_sum"](two, axes=(0,))], [x]) == []
    assert names([ROW["identity"](ROW["stop_gradient"](ROW["positive"](x)))], [x]) == []


def test_what_is_equal_is_merged_and_what_is_unused_goes() -> None:
    x = array_input(3)
    assert names([ROW["exp"](x) + ROW["exp"](x)], [x]) == ["exp", "add"]
    ROW["sin"](x)
    assert names([x * 0.1, x * 0.1], [x]) == ["multiply"]


def test_powers_are_products_and_roots() -> None:
    x = array_input(3)
    assert names([x**2], [x]) == ["multiply"]
    assert names([x**3], [x]) == ["multiply", "multiply"]
    assert names([x**0.5], [x]) == ["sqrt"]
    assert names([x**1], [x]) == []


def test_identities_that_hold_for_every_number() -> None:
    x = array_input(3)
    assert names([x * 1.0, x / 1.0, x - 0.0, x + -0.0, ROW["negative"](-x)], [x]) == []
    assert names([x + 0.0], [x]) == ["add"]
    assert names([x * 0.0], [x]) == ["multiply"]
    assert names([x / 4.0], [x]) == ["multiply"]
    assert names([x / 3.0], [x]) == ["divide"]


def test_of_two_equal_operands_one_is_enough() -> None:
    x, y = array_input(3), array_input(3)
    first, second = ROW["less"](x, y), ROW["less"](x, 0.5)
    for name in ("bitwise_and", "bitwise_or"):
        assert names([ROW[name](first, first)], [x, y]) == ["less"]
        assert names([ROW[name](first, second)], [x, y]) == ["less", "less", name]
    for name in ("maximum", "minimum"):
        assert names([ROW[name](x, x)], [x]) == []


def test_pieces_that_are_joined_again_in_their_order_are_the_whole() -> None:
    x = array_input(6)

    def pieces(*bounds: tuple[int, int]) -> list[Value]:
        return [ROW["slice"](x, starts=(low,), shape=(high - low,), strides=(1,)) for low, high in bounds]

    assert names([ROW["join"](*pieces((0, 1), (1, 3), (3, 6)), axis=0)], [x]) == []
    for bounds in (
        [(1, 3), (0, 1), (3, 6)],
        [(0, 1), (1, 3)],
        [(0, 2), (1, 3), (3, 6)],
        [(0, 3), (3, 6), (0, 3)],
    ):
        assert "join" in names([ROW["join"](*pieces(*bounds), axis=0)], [x]), bounds


def test_choices_between_the_same_branches_merge() -> None:
    x, y = array_input(3), array_input(3)
    hit = ROW["less"](x, y)
    parts = ROW["where"](hit, x, 0.0) + ROW["where"](hit, 0.0, y)
    assert names([parts], [x, y]) == ["less", "where"]
    assert names([ROW["where"](ROW["invert"](hit), x, y)], [x, y]) == ["less", "where"]
    assert names([ROW["where"](hit, x, x)], [x, y]) == []


@pytest.mark.parametrize("choice", [True, False])
def test_choices_that_are_known_are_made(choice: bool) -> None:
    x, y = array_input(3), array_input(3)
    known = ROW["expand"](literal(choice), shape=(3,), axes=())
    graph = optimise(graph_of([x, y], [ROW["where"](known, x, y)]), check=True)
    assert graph.nodes == () and graph.outputs == (graph.inputs[0 if choice else 1],)


def test_moves_compose() -> None:
    x = array_input(2, 3)
    turned = ROW["permute"](ROW["permute"](x, axes=(1, 0)), axes=(1, 0))
    shaped = ROW["reshape"](ROW["reshape"](x, shape=(6,)), shape=(2, 3))
    assert names([turned, shaped], [x]) == []


def test_factors_leave_sums_that_are_computed_anyway() -> None:
    x, s = array_input(4), array_input()
    wide = ROW["expand"](s, shape=(4,), axes=())
    total = ROW["reduce_sum"](x, axes=(0,))
    scaled = ROW["reduce_sum"](-(x * wide), axes=(0,))
    assert names([total, scaled], [x, s]) == ["reduce_sum", "multiply", "negative"]
    assert names([scaled], [x, s]) == ["expand", "multiply", "reduce_sum", "negative"]


@pytest.mark.parametrize(
    ("shape", "reshaped", "axes", "before"),
    [
        ((2, 3, 4), (6, 4), (0,), (0, 1)),
        ((2, 3, 4), (6, 4), (1,), (2,)),
        ((6, 4), (2, 3, 4), (0, 1), (0,)),
        ((6, 4), (2, 3, 4), (0,), None),
        ((6, 4), (2, 3, 4), (1, 2), None),
        ((6, 4), (4, 6), (0, 1), (0, 1)),
        ((2, 1, 3), (1, 6, 1), (1, 2), (0, 1, 2)),
        ((2, 1, 3), (2, 3), (1,), (1, 2)),
        ((2, 3), (2, 1, 3), (1,), ()),
        ((0, 3), (0,), (0,), None),
    ],
)
def test_sums_pass_reshapes(shape: Any, reshaped: Any, axes: Any, before: Any) -> None:
    x = array_input(*shape)
    total = ROW["reduce_sum"](ROW["reshape"](x, shape=reshaped), axes=axes)
    graph = graph_of([x], [total])
    changed = simplify_algebra(graph)
    verify(changed, "the pass")
    sums = [node for node in changed.nodes if node.op.name == "reduce_sum"]
    if before is None:
        assert sums[0].inputs[0] is not x
    else:
        assert [node.params["axes"] for node in sums] == ([before] if before else [])
    data = np.random.default_rng(0).normal(size=shape)
    (found,), (expected,) = interpret(changed, [data]), interpret(graph, [data])
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_the_sum_of_a_reshaped_product_of_matrices_has_no_product() -> None:
    a, b = array_input(2, 10, 1, 30), array_input(30, 40)
    product = ROW["contract"](a, b, x=(0, 1, 2, 3), y=(3, 4), out=(0, 1, 2, 4))
    total = ROW["reduce_sum"](ROW["reshape"](product, shape=(2, 10, 40)), axes=(0, 1, 2))
    (contraction,) = [
        n for n in optimise(graph_of([a, b], [total]), check=True).nodes if n.op.name == "contract"
    ]
    assert contraction.inputs[1].ndim == 1


def test_contractions_read_transposed_operands() -> None:
    x, y = array_input(4, 3), array_input(4, 5)
    product = ROW["contract"](ROW["permute"](x, axes=(1, 0)), y, x=(0, 1), y=(1, 2), out=(0, 2))
    (node,) = optimise(graph_of([x, y], [product])).nodes
    assert node.params["x"] == (1, 0)


@pytest.mark.parametrize(
    ("shapes", "x", "y", "out", "left"),
    [
        ([("", (4, 3)), ((3, 5), None)], (0, 1), (1, 2), (0, 2), 0),  # ones @ b
        ([((4, 3), None), ("", (3, 5))], (0, 1), (1, 2), (0, 2), 0),
        ([("", (4, 3)), ("", (3, 5))], (0, 1), (1, 2), (2, 0), 0),
        ([((3,), (4, 3)), ((3, 5), None)], (0, 1), (1, 2), (0, 2), 1),  # equal rows
        ([((4,), (4, 3)), ((3, 5), None)], (0, 1), (1, 2), (2, 0), 1),  # equal columns
        ([((2, 4), (2, 4, 3)), ((2, 3, 5), None)], (0, 1, 2), (0, 2, 3), (0, 1, 3), 1),
        ([((4, 3), (2, 4, 3)), ((2, 3, 5), None)], (0, 1, 2), (0, 2, 3), (0, 3, 1), 1),
        ([("", (2, 0)), ((0, 3), None)], (0, 1), (1, 2), (0, 2), 0),
        ([((2, 3), None), ((3, 4), None)], (0, 1), (1, 2), (0, 2), 1),
    ],
)
@pytest.mark.parametrize("dtype", [float, complex])
def test_contractions_sum_what_their_other_factor_repeats(
    shapes: Any, x: Any, y: Any, out: Any, left: int, dtype: Any
) -> None:
    rng = np.random.default_rng(1)
    arrays = [np.asarray(rng.uniform(0.5, 2.0, shape or ()), dtype) for shape, _ in shapes]
    inputs = inputs_like(arrays)
    wide = []
    for value, (shape, whole) in zip(inputs, shapes, strict=True):
        if whole is not None:  # the extents of the axes are all different
            value = ROW["expand"](value, shape=whole, axes=tuple(map(whole.index, shape)))
            value = value * ROW["expand"](literal(2.0, value.dtype), shape=whole, axes=())
        wide.append(value)
    graph = graph_of(inputs, [ROW["contract"](*wide, x=x, y=y, out=out)])
    changed = drop_repeated_axes(graph)
    verify(changed, "the pass")
    contractions = [node for node in changed.nodes if node.op.name == "contract"]
    assert len(contractions) == left
    assert all(node.inputs[0].size < wide[0].size or shapes[0][1] is None for node in contractions)
    for actual, expected in zip(interpret(changed, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-13)


def test_the_gradient_of_a_sum_of_products_of_matrices_has_no_further_product() -> None:
    a, b, c = array_input(20, 30), array_input(30, 40), array_input(40, 50)
    product = ROW["contract"](a, b, x=(0, 1), y=(1, 2), out=(0, 2))
    product = ROW["contract"](2.0 * product, c, x=(0, 1), y=(1, 2), out=(0, 2))
    seeds = [ROW["expand"](literal(1.0), shape=(20, 50), axes=())]
    gradients = [g for g in vjp([product], [a, b, c], seeds, lambda value: False) if g is not None]
    left = optimise(graph_of([a, b, c], [product, *gradients]), check=True)
    contractions = [node for node in left.nodes if node.op.name == "contract"]
    assert len(gradients) == 3
    assert sum(all(value.ndim == 2 for value in node.inputs) for node in contractions) == 2


def test_nodes_are_shared_and_never_changed() -> None:
    x = array_input(3)
    inner = ROW["exp"](x)
    graph = graph_of([x], [inner * 1.0 + inner])
    before = [(node, node.inputs, node.outs) for node in graph.nodes]
    optimised = optimise(graph)
    assert [(node, node.inputs, node.outs) for node in graph.nodes] == before
    assert optimised.nodes[0] is inner.node


def test_places_in_the_users_code_are_kept() -> None:
    x = array_input(3)
    y = ROW["logical_not"](x)
    assert y.node is not None
    y.node.site = "user.py:3"
    assert {node.site for node in optimise(graph_of([x], [y])).nodes} == {"user.py:3"}


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_each_pass_keeps_the_meaning(step: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2.0, (4, 3)), rng.uniform(0.5, 2.0, (4, 3))]
    x, y = inputs_like(arrays)
    z = ROW["maximum"](x**3, y) / 2.0 + ROW["logaddexp"](x, -y) * ROW["where"](ROW["less"](x, y), x, 1.0)
    product = ROW["contract"](ROW["permute"](z, axes=(1, 0)), x, x=(0, 1), y=(1, 2), out=(0, 2))
    graph = with_gradient([x, y], ROW["reduce_sum"](product, axes=(0, 1)))
    changed = step(graph)
    verify(changed, step.__name__)
    for actual, expected in zip(interpret(changed, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_what_the_verifier_finds() -> None:
    x, stranger = array_input(3), array_input(3)
    y = x + 1.0
    z = y * 2.0
    assert y.node is not None and z.node is not None
    verify(Graph([x], [y.node, z.node], [z]))
    wrong = Node(y.node.op, (x, literal(1.0)), {})
    wrong.outs = (Value(aval((4,), FLOAT64), wrong),)
    for graph, message in (
        (Graph([x], [z.node, y.node], [z]), "before it is defined"),
        (Graph([x, x], [], []), "an input twice"),
        (Graph([x], [y.node, y.node], [y]), "defined twice"),
        (Graph([x], [], [stranger]), "is not defined"),
        (Graph([x], [wrong], [wrong.out]), "its output says"),
        (Graph([x], [y.node], [y], guards=[(y, 1)]), "not a boolean or integer"),
    ):
        with pytest.raises(VerifyError, match=message):
            verify(graph, "a pass")


def test_the_derivative_of_a_quotient_stays_finite_where_a_shared_division_would_overflow() -> None:
    """(x / y) / y * c is 0 for x = 0 however small y is; x / y * (c / y) would be NaN."""
    weighted = gt.grad(lambda x, y, c: c * (x / y), argnums=(0, 1))
    by_x, by_y = weighted(0.0, 2.0**-1000, 2.0**500)
    assert by_x == np.inf and by_y == 0.0


def test_the_derivatives_of_a_quotient_share_a_division() -> None:
    quotient = gt.grad(lambda x, y, c: np.sum(c * (x / y)), argnums=(0, 1))
    rng = np.random.default_rng(0)
    x, y, c = (rng.uniform(0.5, 2.0, 9) for _ in range(3))
    assert str(gt.inspect.loops(quotient, x, y, c)).count(" / ") == 2
    edges = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
    x, y, c = (part.ravel() for part in np.meshgrid(edges, edges, edges))
    with np.errstate(all="ignore"):
        by_x, by_y = quotient(x, y, c)
        np.testing.assert_array_equal(by_x, c / y)
        np.testing.assert_allclose(by_y, -(x / y) / y * c, rtol=1e-15)
    alone = gt.grad(lambda y, x: np.sum(x / y))
    assert str(gt.inspect.loops(alone, y, x)).count(" / ") == 2


@pytest.mark.parametrize("seed", range(12))
def test_slices_of_joins_are_slices_of_their_pieces(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(2))
    shapes = []
    for _ in range(4):
        extents = [3, 3]
        extents[axis] = int(rng.integers(0, 4))
        shapes.append(tuple(extents))
    arrays = [rng.normal(size=shape) for shape in shapes]
    inputs = inputs_like(arrays)
    whole = ROW["join"](*inputs, axis=axis)
    factor = array_input(*whole.shape)
    scaled = ROW["sin"](ROW["multiply"](whole, factor) + 2.0) - whole
    borders = np.cumsum([0, *[shape[axis] for shape in shapes]])
    parts = []
    for start, stop in pairwise(borders):
        if rng.random() < 0.3:  # across a border
            start = max(start - 1, 0)
        starts, extents = [0, 0], [3, 3]
        starts[axis], extents[axis] = int(start), int(stop - start)
        params = {"starts": tuple(starts), "shape": tuple(extents), "strides": (1, 1)}
        parts.append(ROW["slice"](scaled if rng.random() < 0.8 else whole, **params))
    graph = graph_of([*inputs, factor], parts)
    arrays.append(rng.normal(size=whole.shape))
    changed = slice_pieces(graph)
    verify(changed, "slice_pieces")
    for actual, expected in zip(interpret(changed, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_gates_that_slices_alone_read_are_never_joined() -> None:
    x, y, w = array_input(3), array_input(3), array_input(6)
    gates = ROW["join"](x, y, axis=0) * w + 1.0
    parts = [ROW["slice"](gates, starts=(at,), shape=(3,), strides=(1,)) for at in (0, 3)]
    assert "join" not in names([ROW["exp"](parts[0]) * parts[1]], [x, y, w])
    assert names([*parts, ROW["reduce_sum"](gates, axes=(0,))], [x, y, w]).count("multiply") == 1
    assert names([*parts, parts[0] + parts[1], gates], [x, y, w]).count("multiply") == 1


def test_pieces_of_what_is_read_twice_are_made_once() -> None:
    x, y = array_input(3), array_input(3)
    powers = ROW["join"](x, y, axis=0)
    for _ in range(12):
        powers = powers * powers
    parts = [ROW["slice"](powers, starts=(at,), shape=(3,), strides=(1,)) for at in (0, 3)]
    changed = slice_pieces(graph_of([x, y], parts))
    assert [node.op.name for node in changed.nodes] == ["multiply"] * 24


@pytest.mark.parametrize(
    ("function", "count", "is_product"),
    [
        (lambda x: np.sum(np.full_like(x, 2.0)), 10, True),
        (lambda x: np.sum(np.full_like(x, -3.0)), 4, True),
        (lambda x: np.sum(np.full_like(x, 0.1)), 10, False),
        (lambda x: np.sum(np.full_like(x, 2.5)), 4, False),
        (lambda x: np.sum(np.full_like(x, 8388608.0)), 4, False),
        (lambda x: np.sum(np.full_like(x, 8388608.0)), 1, True),
        (lambda x: np.max(np.full_like(x, 0.1)), 10, True),
    ],
)
def test_the_sum_of_equal_numbers_is_a_product_where_that_is_exact(function, count, is_product):
    f = gt.jit(lambda x: x * function(x))
    text = str(gt.inspect.graph(f, np.linspace(0.0, 1.0, count), optimised=True))
    assert ("reduce_" not in text) == is_product, text
