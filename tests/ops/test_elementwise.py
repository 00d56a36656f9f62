"""What the generated tests do not reach: promotion, powers by numbers, pairs, primitives, tables."""

from __future__ import annotations

import decimal
import fractions
import importlib.util
import operator
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats
from scipy.special import cython_special

import gradtape as gt
from gradtape.errors import DtypeError, NotDifferentiableError
from gradtape.ir.evaluate import compute_values
from gradtape.ir.graph import Value, constant
from gradtape.kinds.elementwise import Libm, SciPy
from gradtape.kinds.registry import ROWS, UFUNCS, UNSUPPORTED
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.runtime.compile.engine import has_symbol
from gradtape.runtime.interpret import interpret
from gradtape.transforms.jvp import jvp
from gradtape.transforms.vjp import vjp
from tests.support.registry_cases import elementwise_rows, evaluate, graph_of, inputs_like

DOCS = Path(__file__).parents[2] / "docs"


def nowhere(value: Value) -> bool:
    return False


def apply(name: str, *operands: Any) -> Any:
    return UFUNCS[name](*operands)


def run(name: str, *operands: Any) -> Any:
    """Apply a row to arrays as inputs, and to numbers as they are."""
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    inputs = inputs_like(arrays)
    left = iter(inputs)
    result = apply(name, *[next(left) if isinstance(given, np.ndarray) else given for given in operands])
    return evaluate([result], inputs, arrays)[0]


PROMOTIONS = [
    ("multiply", np.ones(2, np.float32), 2.0),
    ("multiply", 2, np.ones(2, np.float32)),
    ("add", np.ones(2, np.int8), 1),
    ("add", np.ones(2, np.int8), 1.5),
    ("add", np.ones(2, np.uint8), True),
    ("power", np.full(2, 3, np.int16), 2),
    ("power", np.full(2, 3.0, np.float32), 2),
    ("power", 2, np.ones(2, np.float32)),
    ("float_power", np.ones(2, np.float32), 2),
    ("maximum", np.ones(2, np.float32), 0),
    ("arctan2", np.ones(2, np.float32), 1),
    ("hypot", np.ones(2, np.int8), 1),
    ("multiply", np.ones(2, np.float32), np.float64(2.0)),
    ("logaddexp", np.ones(2, np.float32), np.ones(2)),
    ("floor_divide", np.ones(2, np.uint8), np.ones(2, np.int8)),
]


@pytest.mark.parametrize("name, x, y", PROMOTIONS)
def test_promotion_is_numpys(name: str, x: Any, y: Any) -> None:
    expected = getattr(np, name)(x, y)
    actual = run(name, x, y)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_python_integers_must_fit() -> None:
    with pytest.raises(OverflowError, match="300"):
        run("add", np.ones(2, np.uint8), 300)


def test_operands_without_a_loop_are_named() -> None:
    with pytest.raises(DtypeError, match="bitwise_count does not take operands of dtype float64"):
        run("bitwise_count", np.ones(2))


COMPARISONS = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
SIGNED = np.array([-1, 0, 5, 2**62, -(2**63)])
UNSIGNED = np.array([2**64 - 1, 0, 5, 2**63, 2**63], np.uint64)
BEYOND = [
    (SIGNED, UNSIGNED),
    (UNSIGNED, SIGNED),
    (SIGNED.astype(np.int8), UNSIGNED),
    (UNSIGNED, np.int64(-1)),
    (np.array([0, 200], np.uint8), 300),
    (np.array([0, 200], np.uint8), -1),
    (300, np.array([0, 100], np.int8)),
    (-1, UNSIGNED),
    (2**70, SIGNED),
    (UNSIGNED, 7),
    (np.array([0.0, 1e30]), 2**62),
]


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("x, y", BEYOND)
def test_integers_compare_as_numbers(name: str, x: Any, y: Any) -> None:
    arrays = [operand for operand in (x, y) if isinstance(operand, np.ndarray)]
    inputs = inputs_like(arrays)
    left = iter(inputs)
    operands = [next(left) if isinstance(operand, np.ndarray) else operand for operand in (x, y)]
    graph = expand_formulas(graph_of([apply(name, *operands)], inputs))
    compared = [node for node in graph.nodes if node.op.name in COMPARISONS]
    assert all(first.dtype == second.dtype for first, second in (node.inputs for node in compared))
    np.testing.assert_array_equal(interpret(graph, arrays)[0], getattr(np, name)(x, y))


BASES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 7.25, 1e160, 1e-160, np.inf, -np.inf, np.nan, 5e-324, -1e-323]
)
EXPONENTS = [*range(-6, 12), 1.0, 2.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1 / 3, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_powers_by_products_are_numpys(exponent: float, dtype: Any) -> None:
    with np.errstate(over="ignore", under="ignore"):
        bases = BASES.astype(dtype)
    inputs = inputs_like([bases])
    graph = graph_of([apply("power", inputs[0], exponent)], inputs)
    (expected,), (actual,) = interpret(graph, [bases]), interpret(expand_formulas(graph), [bases])
    np.testing.assert_allclose(actual, expected, rtol=6 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 11, 63])
def test_integer_powers_by_a_number(exponent: int) -> None:
    bases = np.array([0, 1, -1, 2, 3, -7])
    inputs = inputs_like([bases])
    (actual,) = interpret(expand_formulas(graph_of([apply("power", inputs[0], exponent)], inputs)), [bases])
    np.testing.assert_array_equal(actual, bases**exponent)


@pytest.mark.parametrize("exponent", [-1, np.array([2, 3, 1])], ids=["negative", "signed array"])
def test_integer_powers_that_may_be_errors_stay_with_numpy(exponent: Any) -> None:
    inputs = inputs_like([np.array([1, 2, 3])])
    operand = constant(exponent) if isinstance(exponent, np.ndarray) else exponent
    graph = expand_formulas(graph_of([apply("power", inputs[0], operand)], inputs))
    assert [node.params.get("row") for node in graph.nodes] == ["power"]


@pytest.mark.parametrize("base", [-1, 1, 2, -3, np.array([2, -1, 0, 5])])
def test_integer_powers_by_counts_have_machine_code(base: Any) -> None:
    marks = np.array([[True, False, True, False], [True, False, False, True], [True, True, False, False]])

    def signed(marks: Any) -> Any:
        return base ** np.sum(marks, axis=0)

    np.testing.assert_array_equal(gt.jit(signed)(marks), signed(marks))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.5])
def test_slope_of_a_power_by_a_number(exponent: float) -> None:
    bases = np.array([0.5, 2.0, 3.0])
    inputs = inputs_like([bases])
    pulled = vjp([apply("power", inputs[0], exponent)], inputs, [constant(np.ones(3))], nowhere)
    assert pulled[0] is not None
    np.testing.assert_allclose(
        evaluate([pulled[0]], inputs, [bases])[0], exponent * bases ** (exponent - 1.0), rtol=1e-14
    )


PAIRS = [
    ("modf", (np.array([2.5, -2.5, 0.0, -0.0, np.inf, -np.inf, np.nan]),)),
    ("frexp", (np.array([0.0, 1.0, -3.5, 5e-324, 1e308]),)),
    ("divmod", (np.array([7.0, -7.0, 7.0, -7.0, 1.0]), np.array([2.0, 2.0, -2.0, -2.0, np.inf]))),
    ("divmod", (np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2]))),
    ("modf", (np.array([7, -7]),)),
    ("frexp", (np.array([7, -7], np.float32),)),
]


@pytest.mark.parametrize("name, arrays", PAIRS)
def test_results_in_pairs(name: str, arrays: Any) -> None:
    inputs = inputs_like(arrays)
    actual = evaluate(apply(name, *inputs), inputs, arrays)
    for mine, theirs in zip(actual, getattr(np, name)(*arrays), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


SIGNED_ZEROS = [
    ("modf_fraction", (np.array([-0.0, 0.0, -2.0, 2.0, -np.inf, np.inf]),)),
    ("remainder", (np.array([6.0, -6.0, 6.0, -6.0]), np.array([2.0, 2.0, -2.0, -2.0]))),
    ("floor_divide", (np.array([0.0, -0.0, 0.0, -0.0]), np.array([2.0, 2.0, -2.0, -2.0]))),
    ("ldexp", (np.array([-0.0, 0.0]), np.array([1, 1]))),
    ("trunc", (np.array([-0.5, 0.5]),)),
]


@pytest.mark.parametrize("name, arrays", SIGNED_ZEROS)
def test_signs_of_zero_are_numpys(name: str, arrays: Any) -> None:
    inputs = inputs_like(arrays)
    graph = graph_of([apply(name, *inputs)], inputs)
    (expected,), (actual,) = interpret(graph, arrays), interpret(expand_formulas(graph), arrays)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


TRAPS = np.array([-128, -1, 0, 1, 7, 8, 127], np.int8)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_the_machine_is_not_asked_for_what_it_leaves_undefined(name: str, dtype: Any) -> None:
    """Divisions by 0 and by -1 can trap, shifts by all 8 bits are undefined: the formulas avoid them."""
    x, y = (grid.ravel().astype(dtype) for grid in np.meshgrid(TRAPS, TRAPS))
    inputs = inputs_like([x, y])
    graph = expand_formulas(graph_of([apply(name, *inputs)], inputs))
    computed = compute_values(graph, [x, y])
    divisors = [node.inputs[1] for node in graph.nodes if node.op.name in ("quotient", "division_rest")]
    shifts = [node.inputs[1] for node in graph.nodes if node.op.name in ("shift_up", "shift_down")]
    assert divisors or shifts
    for divisor in divisors:
        assert not np.isin(computed[divisor].astype(int), (0, -1)).any()
    for shift in shifts:
        assert ((computed[shift] >= 0) & (computed[shift] < 8)).all()


def test_a_product_with_the_derivative_zero_is_zero() -> None:
    """floor has derivative 0 even where the cotangent is infinite; and it is a path, not None."""
    x = np.array([1.5, 2.0])
    inputs = inputs_like([x])
    seed = constant(np.array([np.inf, np.nan]))
    (pulled,) = vjp([apply("floor", inputs[0])], inputs, [seed], nowhere)
    (pushed,) = jvp([apply("floor", inputs[0])], inputs, [seed], nowhere)
    assert pulled is not None and pushed is not None
    for part in evaluate([pulled, pushed], inputs, [x]):
        np.testing.assert_array_equal(part, [0.0, 0.0])


SELECTIONS = [
    ("maximum", (np.array([1.0]), np.array([2.0])), (0.0, np.inf)),
    ("minimum", (np.array([1.0]), np.array([2.0])), (np.inf, 0.0)),
    ("fmax", (np.array([1.0]), np.array([np.nan])), (np.inf, 0.0)),
    ("fmin", (np.array([1.0]), np.array([2.0])), (np.inf, 0.0)),
    ("clip", (np.array([3.0]), np.array([0.0]), np.array([1.0])), (0.0, 0.0, np.inf)),
    ("absolute", (np.array([0.0]),), (0.0,)),
]


@pytest.mark.parametrize("name, arrays, expected", SELECTIONS)
def test_selections_do_not_multiply_by_zero(name: str, arrays: Any, expected: Any) -> None:
    """An infinite cotangent goes to the operand that was chosen and leaves the other at 0, not NaN."""
    inputs = inputs_like(arrays)
    result = apply(name, *inputs)
    seed = constant(np.array([np.inf]))
    pulled = vjp([result], inputs, [seed], nowhere)
    pushed = [jvp([result], [source], [seed], nowhere)[0] for source in inputs]
    assert None not in pulled and None not in pushed
    values = evaluate([part for part in [*pulled, *pushed] if part is not None], inputs, arrays)
    np.testing.assert_array_equal(np.ravel(values), [*expected, *expected])


SECOND_ORDER = [
    ("logaddexp", (700.0, -700.0)),
    ("logaddexp", (np.inf, np.inf)),
    ("logaddexp", (0.0, 0.0)),
    ("expit", (800.0,)),
    ("expit", (-800.0,)),
    ("log_expit", (-800.0,)),
    ("log_ndtr", (-40.0,)),
    ("log_ndtr", (40.0,)),
    ("erfc", (26.0,)),
    ("hypot", (0.0, 0.0)),
    ("hypot", (3e100, 4e100)),
    ("arctan2", (0.0, 0.0)),
    ("sinc", (0.0,)),
    ("absolute", (0.0,)),
    ("maximum", (1.0, 1.0)),
    ("tanh", (400.0,)),
    ("xlogy", (0.0, 2.0)),
    ("i1", (0.0,)),
]


@pytest.mark.parametrize("name, point", SECOND_ORDER)
def test_second_derivatives_stay_finite(name: str, point: Any) -> None:
    arrays = [np.array([number]) for number in point]
    inputs = inputs_like(arrays)
    one = constant(np.ones(1))
    first = vjp([apply(name, *inputs)], inputs, [one], nowhere)
    for part in first:
        assert part is not None
        second = [found for found in vjp([part], inputs, [one], nowhere) if found is not None]
        assert np.isfinite(evaluate(second, inputs, arrays)).all()


def test_mixed_derivatives_where_one_argument_vanishes() -> None:
    """A mask that hides more than the singular point would lose these."""
    one = constant(np.ones(1))
    for name, point, expected in (
        ("power", (2.0, 0.0), 0.5),
        ("xlogy", (0.0, 2.0), 0.5),
        ("xlog1py", (0.0, 1.0), 0.5),
        ("xlogy", (0.0, 0.0), np.inf),
        ("xlog1py", (0.0, -1.0), np.inf),
        ("boxcox", (0.0, 2.0), 0.0),
        ("boxcox1p", (-1.0, 2.0), 0.0),
        ("powm1", (0.0, 0.0), 0.0),
        ("hypot", (3.0, 0.0), 0.0),
    ):
        arrays = [np.array([number]) for number in point]
        inputs = inputs_like(arrays)
        first = vjp([apply(name, *inputs)], inputs, [one], nowhere)
        for k in (0, 1):
            assert first[k] is not None
            (mixed,) = vjp([first[k]], [inputs[1 - k]], [one], nowhere)  # type: ignore[list-item]
            assert mixed is not None
            (actual,) = evaluate([mixed], inputs, arrays)
            np.testing.assert_allclose(actual, [expected], rtol=1e-14, err_msg=name)


def test_sign_of_complex_numbers_has_no_derivative() -> None:
    inputs = inputs_like([np.ones(2, complex)])
    with pytest.raises(NotDifferentiableError, match="abs"):
        vjp([apply("sign", inputs[0])], inputs, [constant(np.ones(2, complex))], nowhere)


@pytest.mark.parametrize("name", ["real", "imag", "conjugate"])
def test_parts_of_complex_numbers_stay_with_numpy(name: str) -> None:
    inputs = inputs_like([np.ones(2, complex)])
    graph = expand_formulas(graph_of([apply(name, inputs[0])], inputs))
    assert [node.params.get("row") for node in graph.nodes] == [name]


@pytest.mark.parametrize("row", [r for r in elementwise_rows() if isinstance(r.body, Libm)], ids=repr)
def test_the_c_library_has_it(row: Any) -> None:
    for name in (row.body.name, row.body.name + "f"):
        assert has_symbol(name)


@pytest.mark.parametrize("row", [r for r in elementwise_rows() if isinstance(r.body, SciPy)], ids=repr)
def test_scipy_has_it(row: Any) -> None:
    """As one function of doubles, or else as a loop of the ufunc, which kernels call then."""
    exports = cython_special.__pyx_capi__
    names = [name for name in exports if re.fullmatch(rf"(__pyx_fuse_\d)?{row.body.name}", name)]
    overloads = [name for name in names if f'"double ({"double, " * row.arity}int' in repr(exports[name])]
    if overloads and not row.body.loop and row.body.output is None:
        assert len(overloads) == 1
        return
    codes = row.dtype_samples[0]
    types = row.body.loop.partition("->")[0] or codes * (row.arity if len(codes) == 1 else 1)
    loops = operator.attrgetter(row.body.name)(scipy.special).types
    assert [loop.partition("->")[0] for loop in loops].count(types) == 1


def test_every_ufunc_has_a_row_or_a_reason() -> None:
    for name in dir(np):
        ufunc = getattr(np, name)
        if isinstance(ufunc, np.ufunc) and ufunc.signature is None:
            assert ufunc.__name__ in UFUNCS or f"numpy.{ufunc.__name__}" in UNSUPPORTED, name


def test_rows_stand_for_the_ufunc_of_their_name() -> None:
    """The trace looks a row up by the ufunc's name and checks that it is the same function."""
    for name in dir(np):
        ufunc = getattr(np, name)
        if isinstance(ufunc, np.ufunc) and ufunc.__name__ in ROWS:
            row: Any = ROWS[ufunc.__name__]
            assert row.function is ufunc


def test_the_table_of_kinks_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_kinks", DOCS / "make_kinks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    assert (DOCS / "reference" / "kinks.md").read_text() == page, "run docs/make_kinks.py"
    # Users find names that they can call, not those of rows.
    for name in re.findall(r"^\| `([\w.]+)", page, re.MULTILINE):
        assert operator.attrgetter(name)(SimpleNamespace(np=np, gt=gt, scipy=scipy)) is not None, name


@pytest.mark.parametrize(
    "operate", [lambda x, f: f * x, lambda x, f: x / f, lambda x, f: f - x, lambda x, f: x**f]
)
def test_fractions_are_floats_beside_arrays(operate: Any) -> None:
    third = fractions.Fraction(1, 3)
    for x in (np.array([1.0, 2.0]), 2.0):
        np.testing.assert_allclose(gt.jit(lambda x: operate(x, third))(x), operate(x, 1 / 3))
        jacobian = gt.jacobian(lambda x: operate(x, third))(x)
        np.testing.assert_allclose(jacobian, gt.jacobian(lambda x: operate(x, 1 / 3))(x))


@pytest.mark.parametrize("operate", [lambda x, d: d * x, lambda x, d: x + d])
def test_decimals_say_what_to_write(operate: Any) -> None:
    with pytest.raises(DtypeError, match=r"float\(d\)"):
        gt.jit(lambda x: operate(x, decimal.Decimal("0.5")))(np.ones(2))


@pytest.mark.parametrize(
    "compare", [np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal]
)
@pytest.mark.parametrize("dtype", "?bBiIlLfd")
def test_integers_of_arguments_are_compared_as_they_are(compare: Any, dtype: str) -> None:
    """NumPy compares with a Python integer that the dtype of the array does not hold."""
    x = np.array([0, 1, 3, 100]).astype(dtype)
    functions = (lambda x, n: compare(x, n), lambda x, n: compare(n, x), lambda x, n: np.sum(compare(x, n)))
    for number in (-5, -1, 0, 3, 200, 300, 2**31, 2**40, 2**62):
        for array in (x, x[2], np.asarray(x[2])):
            for f in functions:
                with gt.config.override(jit=False):
                    np.testing.assert_array_equal(gt.jit(f)(array, number), f(array, number))
    for f in functions:
        np.testing.assert_array_equal(gt.jit(f)(x, -5), f(x, -5))


def test_arrays_of_rank_0_of_booleans_are_squared_as_arrays() -> None:
    for x in (np.array([True, False]), np.asarray(True), np.bool_(True)):
        for f in (lambda x: x**2, lambda x: x - x**2 if np.ndim(x) else (x**2) * 3):
            found = gt.jit(f)(x)
            assert found.dtype == f(x).dtype
            np.testing.assert_array_equal(found, f(x))
