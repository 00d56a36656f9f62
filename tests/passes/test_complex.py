"""Complex numbers in compiled functions: every formula in parts is NumPy's function, at the edges as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradtape as gt
from gradtape.ir.graph import Value, constant
from gradtape.kinds.elementwise import Elementwise, SciPy
from gradtape.kinds.registry import ROWS
from gradtape.runtime.interpret import interpret
from tests.support.lowering import Compiled, check, graph_of, inputs_like
from tests.support.registry_cases import Case

NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-200, -1e200, 1e308, 5e-324, 700.0, -750.0, 711.0)
CORNERS = np.array([complex(a, b) for a in NUMBERS for b in NUMBERS])
RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


def numbers(*shape: int, dtype: Any = np.complex128) -> Array:
    return np.asarray(RNG.normal(size=shape) + 1j * RNG.normal(size=shape), dtype)


OPERANDS = {
    "where": "?{0}{0}",
    "from_parts": "{1}{1}",
    "_lambertw": "{0}l{1}",
    **dict.fromkeys(("hankel1", "hankel2", "hankel1e", "hankel2e"), "{1}{0}"),
}
"""The dtypes of operands that are not all complex: {0} is the complex one, {1} that of its parts."""


def cases() -> list[Any]:
    found = []
    for name, row in ROWS.items():
        # Rows by a loop of SciPy's have no formula: see tests/registry/test_fallbacks.py.
        if not isinstance(row, Elementwise) or row.complex_body is None or isinstance(row.body, SciPy):
            continue
        codes = OPERANDS.get(name, "{0}" * row.arity)
        for params in row.params:
            for code in "DF":
                case = Case(row, codes.format(code, code.lower()), params)
                found.append(pytest.param(case, id=str(case)))
    return found


def compiled_and_interpreted(case: Case, *operands: list[Array]) -> list[tuple[Array, Array]]:
    """Return what the kernel and NumPy make of each list of operands."""
    groups = [inputs_like(arrays) for arrays in operands]
    inputs = [value for group in groups for value in group]
    arrays = [array for group in operands for array in group]
    graph = graph_of(inputs, [case.apply(*group) for group in groups])
    pairs = list(zip(Compiled(graph)(arrays), interpret(graph, arrays), strict=True))
    for actual, expected in pairs:
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    return pairs


def assert_close(actual: Array, expected: Array, tolerance: float) -> None:
    """Compare part by part, relative to the whole: where one part is tiny, NumPy's own rounding shows."""
    if expected.dtype.kind == "b":
        np.testing.assert_array_equal(actual, expected)
        return
    with np.errstate(all="ignore"):
        lengths = [np.where(np.isfinite(part), np.abs(part), 0) for part in (expected.real, expected.imag)]
        scale = np.maximum(*lengths) * tolerance
        for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= scale)
            assert same.all(), f"{a[~same][:3]} for {b[~same][:3]}"


@pytest.mark.parametrize("case", cases())
def test_formula(case: Case) -> None:
    operands = [case.arrays(shape) for shape in ((19,), (), (2, 3), (0,))]
    tolerance = 1e-5 if "f" in case.codes.lower() else 1e-13
    for actual, expected in compiled_and_interpreted(case, *operands):
        assert_close(actual, expected, tolerance)


LARGE_EXPONENTS = ("power", "float_power")
"""There the angle is a large product, known to no more than its rounding."""


@pytest.mark.parametrize("case", [case for case in cases() if "F" not in str(case.id)])
def test_formula_at_the_edges(case: Any) -> None:
    row = case.row
    if row.name in OPERANDS or row.name in LARGE_EXPONENTS:  # the corners are complex
        return
    chosen = np.random.default_rng(0).integers(0, len(CORNERS), (row.arity, 400))
    arrays = [CORNERS] if row.arity == 1 else [CORNERS[line] for line in chosen]
    ((actual, expected),) = compiled_and_interpreted(case, arrays)
    coarse = np.any([(np.abs(array) < 1e-300) & (array != 0) for array in arrays], axis=0)
    if row.name == "multiply":  # a fused multiplication overflows later
        coarse |= ~np.isfinite(expected)
    assert_close(actual[~coarse], expected[~coarse], 1e-13)


def test_infinite_operands() -> None:
    inf, nan = np.inf, np.nan
    points = np.array([complex(inf, 0), complex(-inf, 0), complex(-inf, 2), complex(2, inf), complex(nan, 1)])
    for name in ("absolute", "sqrt", "log", "isnan", "isinf", "isfinite", "negative", "conjugate", "equal"):
        case = Case(ROWS[name], "D" * ROWS[name].arity, {})  # type: ignore[arg-type, attr-defined]
        ((actual, expected),) = compiled_and_interpreted(case, [points] * case.row.arity)
        assert_close(actual, expected, 1e-14)


EXPONENTS = (0, 1, 2, 3, -1, -4, 17, 99, 0.5, -2.5, 1j, 2 - 1j, 150)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_of_numbers(exponent: complex) -> None:
    z = np.append(numbers(7) * 0.9, 0)
    with np.errstate(all="ignore"):
        expected = z**exponent
    np.testing.assert_allclose(gt.jit(lambda z: z**exponent)(z), expected, rtol=1e-12)


STRUCTURES = {
    "sum": lambda z: np.sum(z, axis=1),
    "mean": lambda z: np.mean(z),
    "var": lambda z: np.var(z, axis=0),
    "running": lambda z: np.cumsum(z, axis=1),
    "transposed": lambda z: z.T + 1,
    "sliced": lambda z: z[::2, ::-1],
    "gathered": lambda z: z[[2, 0, 0]],
    "joined": lambda z: np.concatenate([z, z * 1j], axis=1),
    "stacked": lambda z: np.stack([z, z.conj(), z * 2, z - 1j]),
    "padded": lambda z: np.pad(z, 1),
    "repeated": lambda z: np.broadcast_to(z[0], (4, z.shape[1])),
    "real": lambda z: z.real * 2,
    "both": lambda z: (z.imag, z, np.abs(z), z * z),
    "cast": lambda z: np.abs(z).astype(np.complex64),
    "constant": lambda z: z * np.arange(z.shape[1]) + np.array([1j] * z.shape[1]),
    "swapped": lambda z: np.ones(z.shape[1]) * 1j + z * np.linspace(0, 1, z.shape[1]),
    "matmul": lambda z: z @ z.conj().T,
    "vector": lambda z: z @ z[0],
    "inner": lambda z: np.vdot(z, z * 1j),
    "einsum": lambda z: np.einsum("ij,ik,i->jk", z, z, z[:, 0]),
    "norm": lambda z: np.linalg.norm(z, axis=1),
    "chosen": lambda z: np.where(z.real > z.imag, z, 0),
    "tested": lambda z: (z == z.conj(), z != 0, np.any(z), np.isnan(z)),
    "unchanged": lambda z: z,
    "written": lambda z: written(z),
}


def written(z: Any) -> Any:
    out = z * 1
    out[1] = 2j
    out[:, 0] += z[:, 1]
    return out


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64], ids=["double", "single"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_compiled(name: str, dtype: Any) -> None:
    z = numbers(4, 5, dtype=dtype)
    function = gt.jit(STRUCTURES[name])
    result, expected = function(z), STRUCTURES[name](z)
    assert "interpreter" not in gt.inspect.explain(function)
    pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
    for ours, numpys in pairs:
        assert ours.dtype == numpys.dtype
        np.testing.assert_allclose(ours, numpys, rtol=1e-12 if dtype == np.complex128 else 1e-4, atol=1e-6)


PRODUCTS = {
    "ij,jk->ik": ((40, 40), (40, 50)),
    "ji,jk->ik": ((40, 40), (40, 50)),
    "ij,kj->ik": ((40, 60), (30, 60)),
    "ij,jk->ki": ((40, 40), (40, 50)),
    "bij,bjk->bik": ((3, 40, 40), (3, 40, 40)),
    "ijk,jkl->il": ((20, 8, 20), (8, 20, 30)),
    "ji,kj->ki": ((40, 50), (30, 40)),
    "ij,j->i": ((200, 200), (200,)),
    "i,j->ij": ((200,), (200,)),
}


@pytest.mark.parametrize("subscripts", PRODUCTS)
def test_large_products(subscripts: str) -> None:
    a, b = (numbers(*shape) for shape in PRODUCTS[subscripts])
    function = gt.jit(lambda a, b: np.einsum(subscripts, a, b))
    np.testing.assert_allclose(function(a, b), np.einsum(subscripts, a, b), rtol=1e-10, atol=1e-11)
    assert "compiled" in gt.inspect.explain(function) or "disk" in gt.inspect.explain(function)


def test_one_matrix_product_is_one_call_of_blas() -> None:
    text = gt.inspect.loops(gt.jit(lambda a, b: a @ b), numbers(64, 64), numbers(64, 64))
    assert text.count("gemm(") == 1


def test_parts_are_computed_in_one_loop() -> None:
    text = gt.inspect.loops(gt.jit(lambda z: np.exp(z) * z), numbers(50))
    assert text.count("for ") == 1
    assert text.count("exp(") == 1


def test_the_optimised_graph_is_real() -> None:
    text = gt.inspect.graph(gt.jit(lambda z: z * 1j), numbers(3), optimised=True)
    assert "c128" not in text
    assert "f64[3,2]" in text


@pytest.mark.parametrize("function", [np.prod, np.sort, np.max, np.cumprod])
def test_reductions_and_sorts_are_compiled(function: Any) -> None:
    z = numbers(4)
    compiled = gt.jit(function)
    np.testing.assert_allclose(compiled(z), function(z), rtol=1e-14)
    assert "called natively" in gt.inspect.explain(compiled)


def test_constants_arrive_in_their_order() -> None:
    """Formulas read them in another order than the graph did."""
    z: Value = inputs_like([numbers(3)])[0]
    first, second, third = (constant(numbers(3)) for _ in range(3))
    factor = constant(RNG.normal(size=3))
    scaled: Any = ROWS["convert"](factor, dtype=np.dtype(complex))
    check(graph_of([z], [(first - z) * scaled + second * (third - z) * first]), [numbers(3)])


def test_guards_on_complex_numbers() -> None:
    @gt.jit
    def turned(z: Any) -> Any:
        return z * 1j if np.abs(z[0]) > 1 else z.conj()

    far, near = np.array([2.0 + 1j, 1.0]), np.array([0.1j, 1.0])
    for z, expected in ((far, far * 1j), (near, near.conj()), (far, far * 1j)):
        np.testing.assert_array_equal(turned(z), expected)


UNARY: list[Any] = [np.exp, np.sqrt, np.sin, np.conj, np.tanh, lambda z: z.real * 1j + z.imag, np.cumsum]
BINARY: list[Any] = [
    np.add,
    np.multiply,
    lambda a, b: a / (b * b.conj() + 1),
    lambda a, b: np.where(a.real > 0, a, b),
]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    recipe=st.lists(
        st.one_of(
            st.tuples(st.just(1), st.integers(0, len(UNARY) - 1), st.integers(0, 3), st.just(0)),
            st.tuples(st.just(2), st.integers(0, len(BINARY) - 1), st.integers(0, 3), st.integers(0, 3)),
        ),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**16),
)
def test_random_programs(recipe: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, w = (rng.normal(size=5) + 1j * rng.normal(size=5) for _ in range(2))

    def program(z: Any, w: Any) -> Any:
        values = [z, w]
        for arity, which, first, second in recipe:
            a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
            new = UNARY[which](a) if arity == 1 else BINARY[which](a, b)
            values.append(new / (1 + np.abs(new)))
        return values[-1]

    def loss(z: Any, w: Any) -> Any:
        return np.sum(np.abs(program(z, w) - 0.5) ** 2)

    np.testing.assert_allclose(gt.jit(program)(z, w), program(z, w), rtol=1e-11, atol=1e-13)
    compiled = gt.grad(loss, argnums=(0, 1))(z, w)
    with gt.config.override(jit=False):
        interpreted = gt.grad(loss, argnums=(0, 1))(z, w)
    for ours, theirs in zip(compiled, interpreted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


def test_tapes_that_repeat_themselves_are_compiled() -> None:
    def loss(z: Any) -> Any:
        return np.sum(np.abs(np.exp(z) * np.conj(z)) ** 2)

    gradient = gt.grad(loss)
    for k in range(5):
        start = (k + 1) * np.array([0.1 + 0.2j, 0.3j])
        with gt.GradientTape() as tape:
            z = tape.watch(start)
            value = loss(z)
        np.testing.assert_allclose(tape.gradient(value, z).numpy(), gradient(start), rtol=1e-12)


def test_custom_derivatives_and_checkpoints_are_compiled() -> None:
    @gt.custom_gradient
    def power(z: Any) -> Any:
        return z * np.conj(z) * 1j, lambda upstream: 2 * z * np.imag(upstream)

    kept = gt.recompute_grad(lambda z: np.exp(z) * z)

    def loss(z: Any) -> Any:
        return np.sum(np.abs(power(kept(z))) ** 2)

    def plain(z: Any) -> Any:
        return np.sum(np.abs(np.exp(z) * z) ** 4)

    gradient = gt.grad(loss)
    z = numbers(4)
    np.testing.assert_allclose(gradient(z), gt.grad(plain)(z), rtol=1e-11)
    assert "interpreter" not in gt.inspect.explain(gradient)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("consts", [0, 1, 2])
def test_complex_carries_between_constants_and_rows(consts: int, others: int) -> None:
    """Each of the three groups of operands has complex and real ones: their parts are counted group by group."""
    scales = (0.5 + 1j, 2.0)[:consts]
    rows = (numbers(4), *(numbers(4).real, numbers(4))[:others])

    def step(scales: Any, carry: Any, row: Any) -> Any:
        z, r = carry
        for scale in scales:
            z = z * scale
        for other in row[1:]:
            r = r + np.real(other)
        return (0.5 * z + row[0] + r, r + np.abs(z)), (z * 1j, r)

    def f(scales: Any, rows: Any) -> Any:
        return gt.scan(lambda carry, row: step(scales, carry, row), (1.0 + 2j, 0.5), rows)

    (z, r), made = gt.jit(f)(scales, rows)
    carry, expected = (1.0 + 2j, 0.5), []
    for row in zip(*rows, strict=True):
        carry, out = step(scales, carry, row)
        expected.append(out)
    np.testing.assert_allclose(z, carry[0], rtol=1e-12)
    np.testing.assert_allclose(r, carry[1], rtol=1e-12)
    for one, other in zip(made, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
