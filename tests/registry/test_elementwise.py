"""Properties of every elementwise row; nothing is listed by hand but what is special."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Value, constant, literal
from gradtape.kinds.elementwise import Elementwise, Instruction, Intrinsic, Libm, Refused, SciPy
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.runtime.interpret import interpret
from gradtape.transforms.jvp import jvp
from gradtape.transforms.vjp import vjp
from tests.suite.several import several_cases
from tests.support.differences import difference
from tests.support.registry_cases import (
    SHAPES,
    Case,
    cases,
    elementwise_rows,
    evaluate,
    fits,
    graph_of,
    inputs_like,
    or_zeros,
    smooth_cases,
)

every = pytest.mark.parametrize("case", cases(), ids=str)
smooth = pytest.mark.parametrize("case", smooth_cases(), ids=str)
differenced = pytest.mark.parametrize("case", [c for c in smooth_cases() if not c.row.is_sample], ids=str)
primitive = (Instruction, Intrinsic, Libm, SciPy, type(None))

INTERPRETED = {"gcd", "lcm"}
"""Rows that kernels leave to the interpreter."""

LOOSER = {"logaddexp": 32.0, "logaddexp2": 32.0, "ndtr": 16.0, "polygamma": 100.0}
"""Rows with more than 8 ULP between two good answers: terms cancel, or an argument is squared in a tail."""


FIRST_ONLY = {"smirnov", "smirnovi", "_smirnovc", "_smirnovci", "mathieu_a", "mathieu_b", "pro_cv", "obl_cv"}
"""Rows whose first derivatives have none."""


def nowhere(value: Value) -> bool:
    return False


def assert_ulp(actual: Any, expected: Any, ulp: float, message: str) -> None:
    """Compare up to some units in the last place; NaN and infinities must agree exactly."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, message
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, err_msg=message)
        return
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(actual), np.abs(expected))
        near = np.abs(actual - expected) <= ulp * np.spacing(size)
        good = near | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    assert good.all(), f"{message}: {actual[~good]} instead of {expected[~good]}"


@every
def test_shape_dtype_and_value_are_numpys(case: Case) -> None:
    with several_cases() as each:
        for shape in SHAPES:
            with each(shape):
                arrays = case.arrays(shape)
                inputs = inputs_like(arrays)
                result, expected = case.apply(*inputs), case.numpy(arrays)
                assert result.dtype == expected.dtype
                assert result.shape == expected.shape
                (actual,) = evaluate([result], inputs, arrays)
                assert_ulp(actual, expected, 0.0, str(case))


@every
def test_shapes_broadcast(case: Case) -> None:
    if case.row.arity == 1:
        return
    arrays = [array[:1] if k % 2 else array[..., :1] for k, array in enumerate([*case.arrays((2, 3))])]
    inputs = inputs_like(arrays)
    result = case.apply(*inputs)
    (actual,) = evaluate([result], inputs, arrays)
    assert_ulp(actual, case.numpy(arrays), 0.0, str(case))


@every
def test_body_agrees_with_the_function(case: Case) -> None:
    if isinstance(case.row.body, primitive) or "D" in case.codes:
        return
    for arrays in (case.arrays((40,)), case.edges()):
        expected = case.numpy(arrays)
        inputs = inputs_like(arrays)
        graph = graph_of([case.apply(*inputs)], inputs)
        expanded = expand_formulas(graph)
        left = [node.op for node in expanded.nodes if isinstance(node.op, Elementwise)]
        assert all(isinstance(op.body, primitive) for op in left)
        (actual,) = interpret(expanded, arrays)
        assert_ulp(actual, expected, LOOSER.get(case.row.name, 8.0), str(case))


@every
def test_body_with_numbers_agrees_with_the_function(case: Case) -> None:
    """Formulas look at operands that are numbers; each operand in turn is each of its edges."""
    if case.row.arity == 1 or isinstance(case.row.body, primitive):
        return
    if case.row.name in INTERPRETED or "D" in case.codes:
        return
    arrays = [np.concatenate(pair) for pair in zip(case.edges(), case.arrays((5,)), strict=True)]
    inputs = inputs_like(arrays)
    for position in range(case.row.arity):
        for number in arrays[position]:
            operands: list[Any] = [*inputs]
            operands[position] = literal(number)
            graph = graph_of([case.apply(*operands)], inputs)
            (expected,), (actual,) = interpret(graph, arrays), interpret(expand_formulas(graph), arrays)
            message = f"{case} with {number} at {position}"
            assert_ulp(actual, expected, LOOSER.get(case.row.name, 8.0), message)


@every
def test_edges_are_numpys(case: Case) -> None:
    arrays = case.edges()
    inputs = inputs_like(arrays)
    (actual,) = evaluate([case.apply(*inputs)], inputs, arrays)
    assert_ulp(actual, case.numpy(arrays), 0.0, str(case))


@every
def test_numbers_are_weak(case: Case) -> None:
    """A Python number among the operands promotes as it does in NumPy."""
    if case.row.arity == 1 or not isinstance(case.row.function, np.ufunc):
        return
    arrays = case.arrays((3,))
    for position in range(case.row.arity):
        number = arrays[position][0].item()
        operands: list[Any] = [*arrays]
        operands[position] = number
        inputs = inputs_like(arrays)
        traced: list[Any] = [*inputs]
        traced[position] = number
        expected = case.numpy(operands)
        result = case.apply(*traced)
        assert result.dtype == expected.dtype
        (actual,) = evaluate([result], inputs, arrays)
        assert_ulp(actual, expected, 4.0, f"{case} with number {position}")


def gradient(case: Case, inputs: Sequence[Value], seed: Value) -> list[Value]:
    sources = [inputs[position] for position in case.smooth_positions()]
    return or_zeros(vjp([case.apply(*inputs)], sources, [seed], nowhere), sources)


def directions_for(case: Case, arrays: Sequence[Any], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    moved = case.smooth_positions()
    return [
        rng.uniform(-1, 1, array.shape) if array.dtype.kind == "f" and k in moved else np.zeros_like(array)
        for k, array in enumerate(arrays)
    ]


def difference_error(case: Case) -> float:
    """Return the error of a difference quotient of a function that is not accurate to rounding: the step is 1e-3."""
    return 3e3 * case.row.accuracy


@differenced
def test_jvp_is_the_difference(case: Case) -> None:
    arrays = case.arrays((8,))
    everywhere = directions_for(case, arrays, 1)
    for alone in (None, *case.smooth_positions()):
        directions = [
            d if alone is None or alone == k else np.zeros_like(d) for k, d in enumerate(everywhere)
        ]
        inputs = inputs_like(arrays)
        active = [k for k in case.smooth_positions() if alone is None or alone == k]
        pushed = jvp(
            [case.apply(*inputs)],
            [inputs[k] for k in active],
            [constant(directions[k]) for k in active],
            nowhere,
        )
        if case.row.name == "stop_gradient":
            assert pushed == [None]
            return
        (actual,) = evaluate(or_zeros(pushed, [case.apply(*inputs)]), inputs, arrays)
        function = (lambda arrays: arrays[1]) if case.row.name == "with_tangent_of" else case.numpy
        expected = difference(function, arrays, directions)
        error = difference_error(case)
        np.testing.assert_allclose(actual, expected, rtol=1e-8 + error, atol=1e-9 + error, err_msg=str(case))


@smooth
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vjp_is_the_adjoint_of_jvp(case: Case, shape: tuple[int, ...]) -> None:
    arrays = case.arrays(shape)
    directions = directions_for(case, arrays, 2)
    inputs = inputs_like(arrays)
    result = case.apply(*inputs)
    sources = [inputs[k] for k in case.smooth_positions()]
    tangents = [constant(directions[k]) for k in case.smooth_positions()]
    (pushed,) = or_zeros(jvp([result], sources, tangents, nowhere), [result])
    seed = np.random.default_rng(3).uniform(-1, 1, shape)
    pulled = or_zeros(vjp([result], sources, [constant(seed)], nowhere), sources)
    forward, *backward = evaluate([pushed, *pulled], inputs, arrays)
    assert all(part.shape == shape for part in backward)
    pairs = zip(backward, case.smooth_positions(), strict=True)
    expected = sum(np.sum(part * directions[k]) for part, k in pairs)
    np.testing.assert_allclose(np.sum(seed * forward), expected, rtol=1e-12, atol=1e-13, err_msg=str(case))


@differenced
def test_second_derivative_is_the_difference_of_the_first(case: Case) -> None:
    arrays = case.arrays((8,))
    rng = np.random.default_rng(4)
    seed = constant(rng.uniform(-1, 1, (8,)))
    positions = case.smooth_positions()
    weights = [rng.uniform(-1, 1, (8,)) for _ in positions]
    directions = directions_for(case, arrays, 5)

    inputs = inputs_like(arrays)
    first = gradient(case, inputs, seed)
    if case.row.name in FIRST_ONLY:
        with pytest.raises(NotDifferentiableError, match=r"scipy\.special"):
            vjp(first, inputs, [seed for _ in positions], nowhere)
        return

    def weighted(moved: Sequence[Any]) -> Any:
        parts = evaluate(first, inputs, moved)
        return sum(part * weight for part, weight in zip(parts, weights, strict=True))

    sources = [inputs[k] for k in positions]
    second = or_zeros(vjp(first, sources, [constant(weight) for weight in weights], nowhere), sources)
    parts = evaluate(second, inputs, arrays)
    actual = sum(part * directions[k] for part, k in zip(parts, positions, strict=True))
    expected = difference(weighted, arrays, directions)
    error = difference_error(case)
    np.testing.assert_allclose(actual, expected, rtol=1e-7 + error, atol=1e-8 + error, err_msg=str(case))


SPECIAL = (0.0, 1.0, -1.0, 0.5, 2.0)

NOT_CURVED = {
    "tklmbda": "SciPy's values are those of the logistic function for powers below 1e-4",
    "ellipkinc": "at pi / 2 the derivative of R_D in its first argument overflows before it meets a cosine of 6e-17",
    "ellipeinc": "as for ellipkinc",
    "huber": "its values jump at a delta of 0",
    "_beta_pdf": "at an end of the support it is differentiated as 0 for all shapes",
    "lpmv": "at -1 and 1 there are first derivatives alone",
    "mathieu_modcem2_value": "at q = 0 it is 1e300 in SciPy",
    "mathieu_modsem2_value": "as for mathieu_modcem2",
}
"""Rows whose second derivatives at special points are no differences of the first ones."""


def special_points(case: Case) -> list[Any]:
    """Return the finite edges of a row, the points of its stated slopes, and some small numbers, equal and different ones."""
    arity = case.row.arity
    points = {*case.row.edges, *[point for point, _ in case.row.slopes]}
    points |= {(number,) * arity for number in SPECIAL}
    points |= {tuple(float(k == place) for k in range(arity)) for place in range(arity)}
    if arity == 2:
        points |= {(number, 0.0) for number in SPECIAL} | {(2.0, 1.0), (1.0, 2.0), (2.0, 0.5)}
    kept = [
        point
        for point in points
        if all(x == 0 or 1e-3 < abs(x) < 50 for x in point) and all(map(fits, point, case.dtypes))
    ]
    return [
        np.array(column, dtype)
        for column, dtype in zip(zip(*sorted(kept), strict=True), case.dtypes, strict=True)
    ]


@differenced
def test_second_derivatives_hold_at_special_points(case: Case) -> None:
    """Where the first derivative is smooth: a branch for one point can be right there, while its own derivative is not."""
    name = case.row.name
    if (
        name in FIRST_ONLY or name in NOT_CURVED or name.endswith("_sample")
    ):  # a sample moves with its parameters
        return
    if "_cv_" in name:  # SciPy takes the characteristic value that belongs to the other arguments
        return
    arrays, step = special_points(case), 1e-5
    if name.endswith(("_ppf", "_isf", "_pmf")):  # what is infinite is an error
        inside = [k for k, point in enumerate(zip(*arrays, strict=True)) if not {0.0, 1.0} & set(point)]
        arrays = [array[inside] for array in arrays]
    inputs = inputs_like(arrays)
    one = np.ones(len(arrays[0]))
    positions = case.smooth_positions()
    first = gradient(case, inputs, constant(one))
    for along in positions:
        second = or_zeros(jvp(first, [inputs[along]], [constant(one)], nowhere), first)
        actual = evaluate(second, inputs, arrays)
        moved = [
            evaluate(first, inputs, [x + count * step if k == along else x for k, x in enumerate(arrays)])
            for count in (-2, -1, 0, 1, 2)
        ]
        for position, found, (far_left, left, here, right, far_right) in zip(
            positions, actual, zip(*moved, strict=True), strict=True
        ):
            with np.errstate(all="ignore"):
                slope = (right - left) / (2 * step)
                allowed = 1e-3 * (1 + np.abs(slope)) + 1e-9 * np.abs(here) / step
                bends = [right - 2 * here + left, far_right - 2 * right + here, far_left - 2 * left + here]
                smooth = np.isfinite(slope) & (np.max(np.abs(bends), axis=0) < step * allowed)
                wrong = smooth & (np.abs(found - slope) > 2 * allowed)
            wheres = [tuple(float(x[k]) for x in arrays) for k in np.flatnonzero(wrong)]
            assert not wheres, (
                f"{case}: the derivative in {position} and then in {along} at {wheres} is {found[wrong]}, "
                f"the difference {slope[wrong]}"
            )


REFUSED = [
    (case, k)
    for case in cases()
    for k, code in enumerate(case.codes)
    if code == "d" and isinstance(case.rule(k), Refused)
]


@pytest.mark.parametrize(("case", "position"), REFUSED, ids=[f"{case}-{k}" for case, k in REFUSED])
def test_refused_derivatives_say_why(case: Case, position: int) -> None:
    inputs = inputs_like(case.arrays((3,)))
    result = case.apply(*inputs)
    why = case.rule(position).why
    for transform in (
        lambda: jvp([result], [inputs[position]], [constant(np.ones(3))], nowhere),
        lambda: vjp([result], [inputs[position]], [constant(np.ones(3, result.dtype))], nowhere),
    ):
        with pytest.raises(NotDifferentiableError, match=r"scipy\.special") as caught:
            transform()
        assert why in str(caught.value)


STATED = [
    pytest.param(row, point, slopes, id=f"{row.name}{point}")
    for row in elementwise_rows()
    for point, slopes in row.slopes
]


@pytest.mark.parametrize("row, point, slopes", STATED)
def test_stated_slopes_hold_in_both_modes(row: Any, point: Any, slopes: Any) -> None:
    case = Case(row, "d" * row.arity, row.params[0])
    arrays = [np.array([float(number)]) for number in point]
    inputs = inputs_like(arrays)
    result = case.apply(*inputs)
    one = constant(np.ones(1))
    stated = [slope for slope in slopes if slope is not None]
    sources = [source for source, slope in zip(inputs, slopes, strict=True) if slope is not None]
    pulled = vjp([result], sources, [one], nowhere)
    assert all(part is not None for part in pulled)
    pushed = [jvp([result], [source], [one], nowhere)[0] for source in sources]
    values = evaluate([*or_zeros(pulled, sources), *or_zeros(pushed, sources)], inputs, arrays)
    message = f"{row.name} at {point}"
    np.testing.assert_allclose(np.ravel(values), [*stated, *stated], rtol=1e-12, err_msg=message)


COMPLEX = [case for case in cases() if case.codes == "D" * case.row.arity and case.row.differentiable]


@pytest.mark.parametrize("case", COMPLEX, ids=str)
def test_complex_derivative_is_the_difference(case: Case) -> None:
    """The tangent along any complex direction; the cotangent g of z stands for the map dz -> Re(g dz)."""
    arrays = case.arrays((6,))
    rng = np.random.default_rng(6)
    directions = [rng.uniform(-1, 1, 6) + 1j * rng.uniform(-1, 1, 6) for _ in arrays]
    inputs = inputs_like(arrays)
    result = case.apply(*inputs)
    (pushed,) = or_zeros(jvp([result], inputs, [constant(d) for d in directions], nowhere), [result])
    seed = rng.uniform(-1, 1, 6) + (1j * rng.uniform(-1, 1, 6) if result.dtype.kind == "c" else 0.0)
    pulled = or_zeros(vjp([result], inputs, [constant(seed.astype(result.dtype))], nowhere), inputs)
    forward, *backward = evaluate([pushed, *pulled], inputs, arrays)
    expected = difference(case.numpy, arrays, directions)
    np.testing.assert_allclose(forward, expected, rtol=1e-8, atol=1e-9, err_msg=str(case))
    total = sum(np.sum((g * d).real) for g, d in zip(backward, directions, strict=True))
    np.testing.assert_allclose(np.sum((seed * forward).real), total, rtol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("row", [row for row in elementwise_rows() if not row.differentiable], ids=repr)
def test_rows_without_a_derivative_have_no_path(row: Any) -> None:
    """Integers and booleans end a path; an inner row of kernels, which no user meets, says so."""
    codes = next(iter(row.dtype_samples))
    case = Case(row, codes * (row.arity if len(codes) == 1 else 1), row.params[0])
    inputs = inputs_like(case.arrays((3,)))
    result = case.apply(*inputs)
    tangents = [constant(np.ones(3, source.dtype)) for source in inputs]
    if result.dtype.kind in "fc":
        with pytest.raises(NotDifferentiableError):
            jvp([result], inputs, tangents, nowhere)
    else:
        assert jvp([result], inputs, tangents, nowhere) == [None]
