"""Complex numbers: derivatives in every direction of the plane, the convention, tapes, compiled functions, second order."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import DtypeError, NotDifferentiableError
from gradtape.ir.graph import constant
from gradtape.kinds.elementwise import SciPy
from gradtape.kinds.registry import TRIALS
from gradtape.transforms.jvp import jvp
from gradtape.transforms.vjp import vjp
from tests.support.differences import difference
from tests.support.graphs import check_derivatives
from tests.support.numpy_calls import Call, compare, title
from tests.support.registry_cases import Case, elementwise_rows, evaluate, inputs_like, or_zeros

Z = 1.0 + 2.0j
RNG = np.random.default_rng(11)
POINTS = RNG.normal(size=(3, 2)) + 1j * RNG.normal(size=(3, 2))
OTHERS = RNG.normal(size=(3, 2)) + 1j * RNG.normal(size=(3, 2))

WITHOUT_A_DERIVATIVE = (
    *("sign", "psi", "_riemann_zeta", "airye_bi", "airye_bip"),
    *("stop_gradient", "with_tangent_of"),
)
APART = ("convert", "from_parts")
"""Casts to single precision, and what takes real numbers."""


def complex_cases() -> list[Any]:
    """Return a case for each row that has a derivative and that NumPy applies to complex numbers, not to their parts."""
    found = []
    for row in elementwise_rows():
        case = Case(row, "D" * row.arity, row.params[0])
        takes_parts = isinstance(row.body, SciPy) and "D" in row.body.loop
        if row.is_sample:
            continue
        if row.differentiable and not takes_parts and row.name not in (*WITHOUT_A_DERIVATIVE, *APART):
            try:
                case.numpy(case.arrays((2,)))
            except (TypeError, ValueError):
                continue
            found.append(pytest.param(case, id=row.name))
    return found


@pytest.mark.parametrize("case", complex_cases())
@pytest.mark.parametrize("turn", [1.0, 1j, 0.6 - 0.8j], ids=["real", "imaginary", "slanted"])
def test_every_row_in_every_direction(case: Case, turn: complex) -> None:
    """The tangent is the difference along any direction, and Re(w J v) is the same from both sides."""
    arrays = case.arrays((6,))
    rng = np.random.default_rng(6)
    directions = [turn * rng.uniform(-1, 1, 6) for _ in arrays]
    inputs = inputs_like(arrays)
    result = case.apply(*inputs)
    (pushed,) = or_zeros(jvp([result], inputs, [constant(d) for d in directions], lambda v: False), [result])
    seed = rng.uniform(-1, 1, 6) + (1j * rng.uniform(-1, 1, 6) if result.dtype.kind == "c" else 0.0)
    pulled = or_zeros(vjp([result], inputs, [constant(seed)], lambda v: False), inputs)
    forward, *backward = evaluate([pushed, *pulled], inputs, arrays)
    expected = difference(case.numpy, arrays, directions)
    np.testing.assert_allclose(forward, expected, rtol=1e-8, atol=1e-9)
    total = sum(np.sum((g * d).real) for g, d in zip(backward, directions, strict=True))
    np.testing.assert_allclose(np.sum((seed * forward).real), total, rtol=1e-12)


TRACED_ONLY = ("numpy.real_if_close", "numpy.histogram", "numpy.poly")
"""What needs numbers where NumPy looks at complex ones."""

FUNCTIONS = [
    pytest.param(key, sample, id=f"{title(key)}-{number}")
    for key, trial in TRIALS.items()
    if title(key) not in TRACED_ONLY
    for number, sample in enumerate(trial.samples)
]


@pytest.mark.parametrize(("key", "sample"), FUNCTIONS)
@pytest.mark.parametrize("mixed", [False, True], ids=["complex", "mixed"])
def test_every_function(key: Any, sample: Any, mixed: bool) -> None:
    """Values as NumPy's, both orders of derivatives against differences; mixed: the last array argument is real."""
    call = Call(sample, "D")
    if mixed:
        places = [k for k, argument in enumerate(call.args) if isinstance(argument, np.ndarray)]
        if len(places) > 1:
            call.args[places[-1]] = Call(sample, "d").args[places[-1]]
    check_derivatives(*compare(key, call))


def test_the_gradient_is_tensorflows() -> None:
    assert gt.grad(lambda z: np.abs(z) ** 2)(Z) == pytest.approx(2 + 4j, rel=1e-15)
    assert gt.grad(lambda z: np.real(z * np.conj(z)))(Z) == 2 + 4j
    assert gt.grad(np.real)(Z) == 1
    assert gt.grad(np.imag)(Z) == 1j
    assert gt.grad(lambda z: np.real(z**2))(Z) == np.conj(2 * Z)
    assert gt.grad(lambda z: np.angle(z))(Z) == pytest.approx(1j * Z / abs(Z) ** 2, rel=1e-14)


def test_the_gradient_in_jaxs_convention_is_the_conjugate() -> None:
    def loss(z: Any, x: Any) -> Any:
        return np.sum(np.abs(z * x + 1j) ** 2)

    x = RNG.normal(size=2)
    ours = gt.grad(loss, argnums=(0, 1))(POINTS, x)
    theirs = gt.grad(loss, argnums=(0, 1), convention="jax")(POINTS, x)
    np.testing.assert_array_equal(theirs[0], np.conj(ours[0]))
    np.testing.assert_array_equal(theirs[1], ours[1])
    value, gradient = gt.value_and_grad(loss, convention="jax")(POINTS, x)
    assert value == pytest.approx(loss(POINTS, x))
    np.testing.assert_array_equal(gradient, theirs[0])


def test_an_unknown_convention_is_named() -> None:
    for call in (
        lambda: gt.grad(np.real, convention="torch"),  # type: ignore[arg-type]
        lambda: gt.vjp(np.real, Z, convention="torch"),  # type: ignore[call-overload]
        lambda: gt.hvp(np.real, (Z,), (Z,), convention="torch"),  # type: ignore[call-overload]
        lambda: gt.GradientTape(convention="torch"),  # type: ignore[arg-type]
    ):
        with pytest.raises(gt.errors.ArgumentError, match="torch"):
            call()


def mixed(z: Any, x: Any) -> Any:
    """Neither holomorphic nor real, of complex and of real numbers."""
    return np.exp(z) * np.conj(z[::-1]) + x * 1j * z, x * np.abs(z) ** 2


def real_product(a: Any, b: Any) -> float:
    return float(sum(np.sum(np.real(one * other)) for one, other in zip(a, b, strict=True)))


@pytest.mark.parametrize("way", ["vjp", "in jit", "of a jitted function", "tape", "sparse tape"])
@pytest.mark.parametrize("convention", ["tensorflow", "jax"])
def test_pullbacks_keep_the_product_of_their_convention(convention: Any, way: str) -> None:
    """Re(w J v) = Re(g v) for JAX's cotangents w and g and any tangent v; those of TensorFlow are conjugates on both sides."""
    rng = np.random.default_rng(3)

    def drawn() -> tuple[Any, Any]:
        return rng.normal(size=4) + 1j * rng.normal(size=4), rng.normal(size=4)

    primals, weights = drawn(), drawn()
    function = (lambda z, x: mixed(z[np.arange(4)], x)) if way == "sparse tape" else mixed
    if way.endswith("tape"):
        with gt.GradientTape(convention=convention) as tape:
            points = [tape.watch(primal) for primal in primals]
            results = function(*points)
        found = tape.gradient(results, points, output_gradients=weights)
        assert isinstance(found[0], gt.IndexedSlices) == (way == "sparse tape")
        pulled = [np.asarray(part * 1.0) for part in found]
    elif way == "in jit":
        pulled = gt.jit(
            lambda primals, weights: gt.vjp(function, *primals, convention=convention)[1](weights)
        )(primals, weights)
    else:
        made = gt.jit(function) if way == "of a jitted function" else function
        pulled = gt.vjp(made, *primals, convention=convention)[1](weights)
    assert [part.dtype for part in pulled] == [np.complex128, np.float64]
    turned = np.conj if convention == "tensorflow" else np.positive
    for _ in range(3):
        tangent = drawn()
        moved = gt.jvp(function, primals, tangent)[1]
        sides = real_product(map(turned, weights), moved), real_product(map(turned, pulled), tangent)
        assert sides[0] == pytest.approx(sides[1], rel=1e-12)


def test_jaxs_convention_on_tapes() -> None:
    def energy(z: Any) -> Any:
        return np.sum(np.abs(z) ** 2 * np.real(z[:1]))

    def energies(z: Any) -> Any:
        return np.abs(z) ** 2 * np.real(z)

    tape = pickle.loads(pickle.dumps(gt.GradientTape(True, strict=True, convention="jax")))
    with tape:
        z = tape.watch(POINTS)
        y, rows = energy(z), energies(z)
        with pytest.raises(gt.errors.TapeError):
            z.numpy()
    np.testing.assert_allclose(tape.gradient(y, z), gt.grad(energy, convention="jax")(POINTS))
    np.testing.assert_allclose(tape.jacobian(rows, z), gt.jacobian(energies, convention="jax")(POINTS))
    blocks = tape.jacobian(rows, z).numpy()
    np.testing.assert_allclose(tape.batch_jacobian(rows, z), blocks[[0, 1, 2], :, [0, 1, 2]])
    with gt.GradientTape() as outer:
        outer.watch(z)
        with gt.GradientTape(convention="jax") as inner:
            inner.watch(z)
            y = energy(z)
        part = np.sum(np.imag(inner.gradient(y, z)))
    expected = gt.grad(lambda z: np.sum(np.imag(gt.grad(energy, convention="jax")(z))))(POINTS)
    np.testing.assert_allclose(outer.gradient(part, z), expected)


def test_optimisers_descend_whatever_the_convention_of_the_tape() -> None:
    stepped = []
    for convention in ("tensorflow", "jax"):
        w = gt.Variable(POINTS)
        with gt.GradientTape(convention=convention) as tape:  # type: ignore[arg-type]
            loss = np.sum(np.abs(w - 1.0) ** 2)
        gt.optimizers.GradientDescent(0.5).minimize(loss, [w], tape=tape)
        stepped.append(w.numpy())
    np.testing.assert_allclose(stepped, [np.ones_like(POINTS)] * 2)


def test_products_with_hessians_in_jaxs_convention() -> None:
    def energy(z: Any) -> Any:
        return np.sum(np.abs(z) ** 4) + np.real(np.sum(z**3))

    expected = gt.jvp(gt.grad(energy, convention="jax"), (POINTS,), (OTHERS,))[1]
    for _ in range(2):
        found = gt.hvp(energy, (POINTS,), (OTHERS,), convention="jax")
        np.testing.assert_allclose(found, expected)
        np.testing.assert_allclose(gt.hvp(energy, (POINTS,), (OTHERS,)), np.conj(expected))


def test_complex_targets_on_a_tape_are_tensorflows() -> None:
    with gt.GradientTape(persistent=True) as tape:
        z = tape.watch(np.complex128(Z))
        x = tape.watch(2.0)
        square = z**2
        length = np.abs(z) ** 2
        wave = np.exp(1j * x)
    assert tape.gradient(square, z).numpy() == np.conj(2 * Z)
    assert tape.gradient(length, z).numpy() == pytest.approx(2 + 4j, rel=1e-15)
    assert tape.gradient(square, z, output_gradients=1j).numpy() == 1j * np.conj(2 * Z)
    assert tape.gradient(z, z).numpy() == 1
    turned = tape.gradient(wave, x, output_gradients=np.exp(0.3j)).numpy()
    assert turned.dtype == float
    assert turned == pytest.approx(np.real(np.conj(np.exp(0.3j)) * 1j * np.exp(2j)), rel=1e-14)


def test_real_inputs_get_real_gradients_in_their_dtype() -> None:
    def loss(x: Any, z: Any) -> Any:
        return np.sum(np.abs(np.exp(1j * x) * z - 1) ** 2)

    x = RNG.normal(size=(3, 2)).astype(np.float32)
    gx, gz = gt.grad(loss, argnums=(0, 1))(x, POINTS.astype(np.complex64))
    assert (gx.dtype, gz.dtype) == (np.float32, np.complex64)
    step = 1e-4
    wide = x.astype(float)
    for place in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[place] = step
        slope = (loss(wide + move, POINTS) - loss(wide - move, POINTS)) / (2 * step)
        assert gx[place] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("step", [1e-6, 1e-6j], ids=["real", "imaginary"])
def test_the_gradient_against_differences_in_both_directions(step: complex) -> None:
    def loss(z: Any, w: Any) -> Any:
        h = np.tanh(z @ w.T.conj()) / (1.5 + np.sqrt(z @ w.T))
        return np.sum(np.abs(h - np.angle(z)[0, 0]) ** 2) + np.linalg.norm(w) + np.var(z) + np.vdot(z, w).real

    for position, gradient in enumerate(gt.grad(loss, argnums=(0, 1))(POINTS, OTHERS)):
        for place in np.ndindex(gradient.shape):
            ahead, behind = [POINTS, OTHERS], [POINTS, OTHERS]
            ahead[position] = ahead[position].copy()
            behind[position] = behind[position].copy()
            ahead[position][place] += step
            behind[position][place] -= step
            slope = (loss(*ahead) - loss(*behind)) / (2 * abs(step))
            ours = (np.conj(gradient[place]) * step).real / abs(step)
            assert ours == pytest.approx(slope, rel=1e-6, abs=1e-7)


NONLINEAR = {
    "holomorphic": lambda z: np.exp(z) * z / (1 + z * z),
    "conjugate": lambda z: z * np.conj(z) ** 2,
    "length": lambda z: z / np.abs(z),
    "parts": lambda z: z.real * 1j + np.exp(z.imag),
    "angle": lambda z: np.angle(z),
    "chosen": lambda z: np.where(z.real > 0, np.sqrt(z), np.conj(z)),
    "product": lambda z: np.prod(z, axis=0),
    "running": lambda z: np.cumprod(z, axis=0) + np.cumsum(z, axis=1),
    "matrix": lambda z: z @ z.conj().T + np.einsum("ij,kj->ik", z, z),
    "indexed": lambda z: z[[0, 2, 0]] * z[::-1],
    "spread": lambda z: np.std(z, axis=1) + np.mean(z, axis=1),
    "norm": lambda z: np.linalg.norm(z, axis=1) + np.linalg.norm(z, 1),
    "cast": lambda z: np.abs(z).astype(complex) ** (1.5 + 0.5j),
    "power": lambda z: z**2.5 + z**-3 + (1.5 + z) ** z,
    "sorted": lambda z: np.sort(z, axis=0),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_both_modes_to_second_order(name: str) -> None:
    gt.check_grads(NONLINEAR[name], (POINTS,), order=2)


@pytest.mark.parametrize("name", NONLINEAR)
def test_pullback_and_tangent_agree_in_the_real_inner_product(name: str) -> None:
    direction = OTHERS * 0.3j
    y, tangent = gt.jvp(NONLINEAR[name], (POINTS,), (direction,))
    weights = RNG.normal(size=y.shape) + (1j * RNG.normal(size=y.shape) if y.dtype.kind == "c" else 0)
    (pulled,) = gt.vjp(NONLINEAR[name], POINTS)[1](weights.astype(y.dtype))
    left, right = np.vdot(weights, tangent).real, np.vdot(pulled, direction).real
    assert left == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("name", NONLINEAR)
def test_tape_and_transform_agree(name: str) -> None:
    def loss(z: Any) -> Any:
        return np.sum(np.abs(NONLINEAR[name](z) - 0.5j) ** 2)

    with gt.GradientTape() as outer:
        z = outer.watch(POINTS)
        with gt.GradientTape() as inner:
            inner.watch(z)
            value = loss(z)
        gradient = inner.gradient(value, z)
        bent = np.sum(np.abs(gradient) ** 2)
    second = outer.gradient(bent, z)
    np.testing.assert_allclose(gradient, gt.grad(loss)(POINTS), rtol=1e-12)
    length = gt.grad(lambda z: np.sum(np.abs(gt.grad(loss)(z)) ** 2))
    np.testing.assert_allclose(second, length(POINTS), rtol=1e-11, atol=1e-12)


def test_holomorphic_functions_have_a_complex_derivative() -> None:
    assert gt.grad(lambda z: z**3, holomorphic=True)(Z) == pytest.approx(3 * Z**2, rel=1e-14)
    cosine = gt.grad(gt.grad(np.cos, holomorphic=True), holomorphic=True)
    assert cosine(Z) == pytest.approx(-np.cos(Z), rel=1e-14)
    value, slope = gt.value_and_grad(lambda z: np.sum(np.exp(1j * z)), holomorphic=True)(POINTS)
    assert value == pytest.approx(np.sum(np.exp(1j * POINTS)))
    np.testing.assert_allclose(slope, 1j * np.exp(1j * POINTS), rtol=1e-13)
    chosen = gt.grad(lambda z: np.where(np.abs(z) < 9, z * gt.stop_gradient(np.conj(z)), 0), holomorphic=True)
    assert chosen(Z) == np.conj(Z)


@pytest.mark.parametrize(
    "function", [np.conj, lambda z: z * np.abs(z), lambda z: np.real(z) + 0j, lambda z: np.sum(z.imag * z)]
)
def test_what_is_not_holomorphic_is_an_error_that_names_it(function: Any) -> None:
    with pytest.raises(NotDifferentiableError, match="not holomorphic"):
        gt.grad(function, holomorphic=True)(Z)


def test_holomorphic_wants_complex_numbers_in_and_out() -> None:
    with pytest.raises(gt.errors.DtypeError, match="float64"):
        gt.grad(lambda x: x + 1j, holomorphic=True)(2.0)
    with pytest.raises(gt.errors.NonScalarOutputError, match="float64"):
        gt.grad(np.abs, holomorphic=True)(Z)
    with pytest.raises(gt.errors.NonScalarOutputError, match="shape"):
        gt.grad(lambda z: z * 2, holomorphic=True)(POINTS)
    with pytest.raises(gt.errors.NonScalarOutputError, match="holomorphic=True"):
        gt.grad(lambda z: z * 2)(Z)


def test_a_cast_to_real_drops_the_imaginary_part_with_numpys_warning() -> None:
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part") as caught:
        gradient = gt.grad(lambda z: np.sum(z.astype(float) ** 2))(POINTS)
    assert {warning.filename for warning in caught} == {__file__}
    np.testing.assert_allclose(gradient, 2 * POINTS.real)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gt.jit(lambda z: z.astype(bool))(np.array([0j, 1j])).tolist() == [False, True]


def test_derivatives_that_there_are_not() -> None:
    with pytest.raises(NotDifferentiableError, match="complex"):
        gt.grad(lambda z: np.real(np.sign(z)))(Z)


def in_place(z: Any) -> Any:
    z.real[0] = 5
    z.real += 1
    z.imag = 7
    part = np.imag(z)
    part[1:] *= 2
    z[0] += 1j
    return z * part


def test_parts_are_views_that_can_be_written_to() -> None:
    expected = in_place(POINTS.copy())
    before = POINTS.copy()
    np.testing.assert_array_equal(gt.jit(in_place)(POINTS), expected)
    np.testing.assert_array_equal(POINTS, before)
    gt.check_grads(in_place, (POINTS,), order=1)
    with gt.GradientTape() as tape:
        z = tape.watch(POINTS)
        z.real[:] = 2 * z.imag
        length = np.sum(np.abs(z) ** 2)
    assert tape.gradient(length, z) is not None


def test_the_real_part_of_real_numbers_is_the_array_itself() -> None:
    @gt.jit
    def written(x: Any) -> Any:
        x.real[0] = 5.0
        np.real(x)[1] = 6.0
        return x, x.imag

    values, zeros = written(np.ones(3))
    assert values.tolist() == [5.0, 6.0, 1.0]
    assert zeros.tolist() == [0.0, 0.0, 0.0]


def test_complex_numbers_do_not_fit_real_elements() -> None:
    def write_number(x: Any) -> Any:
        x[0] = 1j
        return x

    def write_part(x: Any) -> Any:
        x.imag = 1.0
        return x

    def add(x: Any) -> Any:
        x += 1j
        return x

    for function in (write_number, write_part):
        with pytest.raises(TypeError):
            function(np.ones(2))
        with pytest.raises(gt.errors.DtypeError, match="complex"):
            gt.jit(function)(np.ones(2))
    with pytest.raises(gt.errors.InPlaceError, match="complex128"):
        gt.jit(add)(np.ones(2))


def test_infinities_stay_in_their_part() -> None:
    z = np.array([complex(np.inf, 1), complex(1, np.nan), complex(-np.inf, -0.0)])
    for function in (np.nan_to_num, lambda z: np.nan_to_num(z, posinf=np.inf)):
        np.testing.assert_array_equal(gt.jit(function)(z), function(z))


def mapping(z: Any) -> Any:
    return np.sin(z * z) * z[0] + np.exp(np.array([[0.5, 1.0j], [-1.0, 0.3]]) @ z)


@pytest.mark.parametrize("transform", [gt.jacobian, gt.jacrev, gt.jacfwd])
def test_jacobians_of_holomorphic_functions_are_complex_derivatives(transform: Any) -> None:
    z, step = np.array([0.3 + 0.2j, -0.5 + 0.1j]), 1e-6
    found = transform(mapping, holomorphic=True)(z)
    for direction in (step, 1j * step):
        columns = [
            (mapping(z + unit * direction) - mapping(z - unit * direction)) / (2 * direction)
            for unit in np.eye(2)
        ]
        np.testing.assert_allclose(found, np.stack(columns, axis=1), rtol=1e-8)
    second = gt.hessian(mapping, holomorphic=True)(z)
    np.testing.assert_allclose(second, transform(transform(mapping, holomorphic=True), holomorphic=True)(z))
    np.testing.assert_allclose(
        gt.hessian(lambda z: np.sum(z**3), holomorphic=True)(z), np.diag(6 * z), atol=1e-12
    )
    with pytest.raises(NotDifferentiableError, match="absolute"):
        transform(lambda z: z * np.abs(z), holomorphic=True)(z)
    with pytest.raises(DtypeError, match="float64"):
        transform(np.exp, holomorphic=True)(np.ones(2))


def test_complex_results_of_real_arguments_go_forward() -> None:
    x = np.array([0.3, 0.7])

    def wave(x: Any) -> Any:
        return np.exp(1j * x) * np.sum(x)

    expected = np.diag(1j * np.exp(1j * x) * x.sum()) + np.exp(1j * x)[:, None]
    for found in (gt.jacobian(wave)(x), gt.jacfwd(wave)(x), gt.jit(gt.jacobian(wave))(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(gt.vmap(gt.jacobian(wave))(np.stack([x, x]))[1], expected, rtol=1e-13)
    both = gt.jacobian(lambda x: (x * 1j, x**2))(x)
    assert [block.dtype for block in both] == [np.complex128, np.float64]


def test_jacobians_follow_the_convention() -> None:
    z = np.array([1.0 + 2.0j, 0.5 - 1.0j])

    def energies(z: Any) -> Any:
        return np.abs(z) ** 2 * np.real(z[0])

    found = gt.jacobian(energies)(z)
    rows = [gt.grad(lambda z, k=k: energies(z)[k])(z) for k in range(2)]
    np.testing.assert_allclose(found, rows)
    for transform in (gt.jacobian, gt.jacrev):
        np.testing.assert_allclose(transform(energies, convention="jax")(z), np.conj(found))
