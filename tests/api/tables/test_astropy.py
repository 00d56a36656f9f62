"""Quantities of astropy are containers, as those of pint are: 40 programs against astropy itself, and derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import expect

u: Any = pytest.importorskip("astropy.units", reason="pip install astropy")
constants: Any = pytest.importorskip("astropy.constants", reason="pip install astropy")
coordinates: Any = pytest.importorskip("astropy.coordinates", reason="pip install astropy")
Quantity = u.Quantity

METRES, SECONDS, KILOGRAMS = 3.0 * u.m, 2.0 * u.s, 5.0 * u.kg
WAY, TIMES = np.array([1.0, 2.0, 4.0]) * u.km, np.array([5.0, 2.0, 3.0]) * u.s
PLACES = np.array([[1.0, 0.5, 2.0], [0.3, -1.0, 0.7]]) * u.pc
ANGLE = 0.3 * u.rad
GREEN = 530.0 * u.nm

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "square": (lambda x: x**2, (METRES,)),
    "quotient": (lambda x, t: x / t, (METRES, SECONDS)),
    "array by array": (lambda x, t: x / t, (WAY, TIMES)),
    "conversion": (lambda x: x.to(u.km) ** 2, (METRES,)),
    "value": (lambda x: x.value**3, (METRES,)),
    "value in a unit": (lambda x: x.to_value(u.cm) ** 2, (METRES,)),
    "SI": (lambda x: (x**2).si, (WAY,)),
    "CGS": (lambda x: (x * KILOGRAMS).cgs, (WAY,)),
    "decompose": (lambda x: (x / (1 * u.m)).decompose(), (WAY,)),
    "sum of units": (lambda x: x + 20 * u.cm - 0.001 * u.km, (METRES,)),
    "unit by number": (lambda x: (x * u.km) ** 2, (3.0,)),
    "unit shifted": (lambda x: (x << u.km) * 2, (np.array([1.0, 2.0]),)),
    "shifted quantity": (lambda x: (x << u.cm) * x, (METRES,)),
    "sine": (lambda a: np.sin(a), (ANGLE,)),
    "sine of degrees": (lambda a: np.sin(a) * np.cos(2 * a), (30.0 * u.deg,)),
    "arc": (lambda x, y: np.arctan2(x, y), (WAY, 2.0 * u.km)),
    "root": (lambda x: np.sqrt(x * x + METRES**2), (WAY,)),
    "power": (lambda x: x**1.5, (WAY,)),
    "exponential": (lambda x, t: np.exp(-x / (2 * u.m)) * t, (METRES, SECONDS)),
    "logarithm": (lambda x: np.log(x / (1 * u.m)), (WAY,)),
    "sum": (lambda x: (x**2).sum(), (WAY,)),
    "mean and spread": (lambda x: x.mean() * x.std(), (WAY,)),
    "variance": (lambda x: np.var(x, ddof=1), (WAY,)),
    "product by axes": (lambda x: x.sum(axis=0) * x[1], (PLACES,)),
    "norm": (lambda x: np.linalg.norm(x, axis=1), (PLACES,)),
    "matrix": (lambda x: x @ x.T, (PLACES,)),
    "dot": (lambda x, t: np.dot(x, t), (WAY, TIMES)),
    "cross": (lambda x: np.cross(x[0], x[1]), (PLACES,)),
    "slices": (lambda x: x[1:] * x[:-1], (WAY,)),
    "mask": (lambda x: x[x > 1.5 * u.km] ** 2, (WAY,)),
    "where": (lambda x: np.where(x > 1.5 * u.km, x, 3 * x), (WAY,)),
    "limits": (lambda x: np.clip(x, 1.5 * u.km, 3.0 * u.km) * x, (WAY,)),
    "maximum": (lambda x: np.maximum(x, 2500.0 * u.m) * x.max(), (WAY,)),
    "joined": (lambda x, y: np.concatenate([x, y]) ** 2, (WAY, np.array([7.0, 1.0]) * u.m)),
    "stacked": (lambda x, y: np.stack([x, 2 * x]) * y, (WAY, SECONDS)),
    "differences": (lambda x, t: np.diff(x) / np.diff(t), (WAY, TIMES)),
    "trapezoids": (lambda x, t: np.trapezoid(x, t), (WAY, np.array([1.0, 2.0, 4.0]) * u.s)),
    "interpolation": (
        lambda x: np.interp(1.5 * u.s, np.array([1.0, 2.0, 4.0]) * u.s, x),
        (WAY,),
    ),
    "cumulative": (lambda x: np.cumsum(x) * x, (WAY,)),
    "constants": (lambda m, r: np.sqrt(2 * constants.G * m / r).to(u.km / u.s), (KILOGRAMS, METRES)),
    "spectral equivalence": (lambda x: x.to(u.THz, equivalencies=u.spectral()), (GREEN,)),
    "energy of light": (lambda x: x.to(u.eV, equivalencies=u.spectral()) ** 2, (GREEN,)),
    "parallax": (lambda x: x.to(u.pc, equivalencies=u.parallax()), (10.0 * u.mas,)),
    "mass and energy": (lambda m: m.to(u.J, equivalencies=u.mass_energy()) * m, (KILOGRAMS,)),
    "small angles": (
        lambda a: a.to(u.one, equivalencies=u.dimensionless_angles()) ** 2,
        (ANGLE,),
    ),
    "set of equivalencies": (
        lambda x: x.to(u.Hz, equivalencies=u.spectral() + u.dimensionless_angles()),
        (GREEN,),
    ),
    "angles": (lambda a: np.cos(a) * a, (coordinates.Angle(40.0, u.deg),)),
    "dict": (
        lambda p: 0.5 * p["m"] * p["v"][0] ** 2 + p["m"] * p["v"][1],
        ({"m": KILOGRAMS, "v": [3.0 * u.m / u.s, 2.0 * u.J / u.kg]},),
    ),
    "kepler": (
        lambda a, m: (2 * np.pi * np.sqrt(a**3 / (constants.G * m))).to(u.yr),
        (1.2 * u.AU, 0.9 * u.Msun),
    ),
    "black body": (
        lambda x, t: (
            2
            * constants.h
            * constants.c**2
            / x**5
            / np.expm1(constants.h * constants.c / (x * constants.k_B * t))
        ).to(u.W / u.m**3),
        (GREEN, 5800.0 * u.K),
    ),
    "reshaped": (lambda x: x.reshape(3, 2).T.ravel() * x.size, (PLACES,)),
    "branch": (lambda x: x**2 if x > 1 * u.m else x * METRES, (METRES,)),
    "loop": (lambda x: sum((k * x for k in range(1, 4)), 0 * u.m) * x, (METRES,)),
    "in place": (lambda x: _written(x), (WAY,)),
    "unwrapped": (lambda x: x.unit * x.value * 2, (METRES,)),
    "check of units": (lambda x: x * (2.0 if x.unit.is_equivalent(u.km) else 3.0), (METRES,)),
}


def _written(x: Any) -> Any:
    y = x.copy()
    y[0] = 300.0 * u.m
    y += 2 * x
    y *= 2 * u.s
    return y


def same(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Compare results with those of astropy: the unit as it is written, and the class."""
    assert isinstance(found, Quantity) == isinstance(expected, Quantity), (found, expected)
    if isinstance(expected, Quantity):
        assert str(found.unit) == str(expected.unit)
        assert type(found) is type(expected)
        found, expected = found.value, expected.value
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(
        np.asarray(found), expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected), initial=0.0)
    )


def unit_of(thing: Any) -> Any:
    return thing.unit if isinstance(thing, Quantity) else u.dimensionless_unscaled


def value_of(thing: Any) -> Any:
    return np.asarray(thing.value if isinstance(thing, Quantity) else thing, dtype=float)


def moved(args: tuple[Any, ...], step: float) -> tuple[Any, ...]:
    return gt.tree.map(lambda leaf: leaf * (1 + step), args)


def jacobian_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the derivatives in the first argument by differences, and their unit: magnitudes by magnitudes."""
    first = args[0]
    start = value_of(first)
    columns = []
    for place in np.ndindex(start.shape):
        ends = []
        for sign in (1, -1):
            there = start.copy()
            there[place] += sign * 1e-5 * abs(start[place])
            moved_first = there * unit_of(first) if isinstance(first, Quantity) else there[()]
            if isinstance(first, coordinates.Angle):
                moved_first = coordinates.Angle(moved_first)
            ends.append(value_of(function(moved_first, *args[1:])))
        columns.append((ends[0] - ends[1]) / (2e-5 * abs(start[place])))
    result = function(*args)
    block = np.stack(columns, axis=-1).reshape(np.shape(result) + np.shape(first))
    return block, unit_of(result) / unit_of(first)


def same_derivative(found: Any, expected: Any, unit: Any, tolerance: float = 1e-6) -> None:
    if isinstance(found, Quantity):
        assert found.unit == unit, (found.unit, unit)
        found = found.value
    else:
        assert unit == u.dimensionless_unscaled
    np.testing.assert_allclose(
        np.asarray(found), expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected), initial=0.0)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_astropy(name: str) -> None:
    function, args = PROGRAMS[name]
    compiled = gt.jit(function)
    for given in (args, args, moved(args, 0.01)):
        same(compiled(*given), function(*given))


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_those_of_differences(name: str) -> None:
    function, args = PROGRAMS[name]
    if name == "dict":
        found = gt.grad(function)(*args)
        assert found["m"].unit == u.J / u.kg and found["v"][1].unit == u.kg
        np.testing.assert_allclose([found["m"].value, found["v"][0].value], [6.5, 15.0])
        return
    expected, unit = jacobian_of(function, args)
    same_derivative(gt.jacfwd(function)(*args), expected, unit)
    same_derivative(gt.jacrev(function)(*args), expected, unit)
    same_derivative(gt.jit(gt.jacrev(function))(*args), expected, unit)
    pushed = gt.jvp(lambda x: function(x, *args[1:]), (args[0],), (args[0],))[1]
    along = np.tensordot(expected, value_of(args[0]), np.ndim(args[0]))
    same_derivative(pushed, along, unit_of(function(*args)))
    with gt.GradientTape() as tape:
        x = tape.watch(args[0])
        y = function(x, *args[1:])
    whole = np.sum(expected, axis=tuple(range(expected.ndim - np.ndim(args[0]))))
    same_derivative(tape.gradient(y, x), whole, unit)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "dict"])
def test_second_derivatives_and_batches(name: str) -> None:
    function, args = PROGRAMS[name]

    def total(x: Any) -> Any:
        return np.sum(function(x, *args[1:]))

    block, unit = jacobian_of(gt.grad(total), args[:1])
    same_derivative(gt.hessian(total)(args[0]), block, unit, 1e-5)
    first = args[0]
    rows = np.stack([first, 1.01 * first])
    plain = [function(row, *args[1:]) for row in rows]
    if len({np.shape(row) for row in plain}) == 1 and name not in ("branch", "mask"):
        mapped = gt.vmap(lambda x: function(x, *args[1:]))(rows)
        same(mapped, np.stack(plain))


def test_loops_branches_and_nests() -> None:
    same(gt.scan(lambda c, _: (c * 2.0, c), METRES, None, length=2)[1], np.array([3.0, 6.0]) * u.m)
    same(gt.fori_loop(0, 3, lambda i, c: c + 1 * u.m, METRES), 6.0 * u.m)
    same(gt.while_loop(lambda c: c < 20 * u.m, lambda c: c * 2, METRES), 24.0 * u.m)
    same(gt.cond(1 * u.m < METRES, lambda x: x * 2, lambda x: x * 3, METRES), 6.0 * u.m)
    mixed = gt.hessian(lambda p: p["x"] ** 2 * p["t"])({"x": METRES, "t": SECONDS})
    same(mixed["x"]["t"], 6.0 * u.m)
    same(mixed["t"]["t"], 0.0 * u.m**2 / u.s)
    same(gt.grad(gt.grad(gt.grad(lambda x: x**4)))(METRES), 72.0 * u.m)
    with gt.GradientTape() as outer:
        x = outer.watch(METRES)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        slope = inner.gradient(y, x)
    assert slope.unit == u.m**2
    assert outer.gradient(slope, x).value == 18.0


def test_loops_that_are_compiled() -> None:
    def total(x: Any) -> Any:
        y = 0 * u.m**2
        for k in range(4):
            y = y + x * x * k
        return y

    with gt.config.override(loops="compile"):
        same(gt.grad(gt.jit(total))(METRES), 36.0 * u.m)


def test_another_unit_is_another_trace() -> None:
    square = gt.jit(lambda x: x**2)
    for way in (WAY, WAY.to(u.cm), WAY * 2, 1 * u.km, 1 * u.Unit("1000 m")):
        same(square(way), way**2)
    assert square.site.traces == 4


def test_kinds_of_numbers_and_of_quantities() -> None:
    single = gt.grad(lambda x: (x**2).sum())(u.Quantity([1.0, 2.0], u.m, dtype=np.float32))
    assert single.dtype == np.float32
    same(gt.jit(lambda x: x * 2)(u.Quantity([1, 2], u.m, dtype=int)), u.Quantity([2, 4], u.m, dtype=int))
    same(gt.jit(lambda x: x + 1 * u.mag)(5 * u.ABmag), 6 * u.ABmag)
    angle = coordinates.Longitude([350.0, 10.0] * u.deg)
    same(gt.jit(lambda x: x + 20 * u.deg)(angle), angle + 20 * u.deg)
    same(gt.jit(lambda x: x[1:])(angle), angle[1:])


@pytest.mark.parametrize("step", ["element", "unit", "sum", "product"])
def test_changes_in_place_of_what_is_read_from_outside(step: str) -> None:
    way = WAY.copy()
    compiled = gt.jit(lambda x: x * way.sum())
    same(compiled(2.0), 2.0 * way.sum())
    if step == "element":
        way[0] = 7 * u.m
    elif step == "unit":
        way <<= u.cm
    elif step == "sum":
        way += 3 * u.m
    else:
        way *= 2 * u.s
    same(compiled(2.0), 2.0 * way.sum())
    same(gt.grad(lambda x: x * way.sum())(2.0), way.sum())


class Spring:
    def __init__(self, stiffness: Any, places: Any) -> None:
        self.stiffness, self.places = stiffness, places


def test_objects_with_quantities() -> None:
    found = gt.grad(lambda s: (s.stiffness * s.places**2).sum())(Spring(2.0 * u.N / u.m, WAY))
    same(found.stiffness, (WAY**2).sum())
    same(found.places, 4.0 * u.N / u.m * WAY)
    spring = Spring(2.0 * u.N / u.m, WAY)

    def energy(x: Any) -> Any:
        return (0.5 * spring.stiffness * x**2).to(u.J)

    for stiffness in (2.0, 5.0):
        spring.stiffness = stiffness * u.N / u.m
        same(gt.jit(energy)(METRES), energy(METRES))
        same(gt.grad(energy)(METRES), stiffness * 3.0 * u.J / u.m)


def test_tangents_and_cotangents_are_quantities() -> None:
    def speed(x: Any, t: Any) -> Any:
        return x / t

    ones = np.ones(3)
    same(gt.vjp(speed, WAY, TIMES)[1](ones * u.s / u.km)[0], (1 / TIMES.value) / u.km)
    moved = gt.jvp(speed, (WAY, TIMES), (ones * u.Mm, ones * u.s))[1]
    same(moved, (1000 / TIMES.value - WAY.value / TIMES.value**2) * u.km / u.s, 1e-9)
    same(gt.linear_transpose(lambda x: x / SECONDS, WAY)(ones)[0], ones / 2 / u.s)
    said = "quotients of tangents and primals are in 1 / km and in 1 / s"
    expect(errors.ArgumentError, lambda: gt.jvp(speed, (WAY, TIMES), (ones, ones)), said)


def test_warnings_name_no_lost_gradient() -> None:
    with gt.GradientTape() as tape:  # np.cross, whose code in Python converts what it gets
        x = tape.watch(PLACES)
        y = np.cross(x[0], x[1])
    assert tape.gradient(y, x).unit == u.pc


REFUSED: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "sum of two dimensions": (
        u.UnitConversionError,
        lambda: gt.grad(lambda x: x + SECONDS)(METRES),
        "compatible dimensions",
    ),
    "logarithm of metres": (u.UnitTypeError, lambda: gt.jit(np.log10)(METRES), "dimensionless"),
    "traced exponent": (
        errors.ConcretizationError,
        lambda: gt.jit(lambda x, p: x**p)(METRES, 2.0),
        "x.item() of a traced array",
    ),
    "number of a quantity": (
        errors.ConcretizationError,
        lambda: gt.jit(lambda x: float(x / u.m))(METRES),
        "float",
    ),
    "logarithmic": (errors.DtypeError, lambda: gt.grad(lambda x: x.physical)(5 * u.ABmag), "logarithmic"),
    "integers": (
        errors.IntegerInputError,
        lambda: gt.grad(lambda x: (x**2).sum())(u.Quantity([1, 2], u.m, dtype=int)),
        "x.value is an array of int64",
    ),
    "carry": (
        errors.StructureError,
        lambda: gt.fori_loop(0, 3, lambda i, c: c * METRES, METRES),
        r"Quantity[m2]",
    ),
    "constant": (errors.DtypeError, lambda: gt.constant(WAY), "pass a.value"),
    "variable": (errors.ArraySubclassError, lambda: gt.Variable(WAY), "a Quantity"),
    "series": (errors.DtypeError, lambda: gt.taylor(lambda x: x**2, METRES, METRES, 2), "pass magnitudes"),
    "sparse": (errors.DtypeError, lambda: gt.sparse_jacobian(lambda x: x**2)(WAY), "q.to_value('m')"),
    "minimum": (
        errors.DtypeError,
        lambda: gt.scipy.minimize(lambda x: (x**2).value.sum(), WAY),
        "x0 is a quantity",
    ),
    "rule": (
        errors.DtypeError,
        lambda: gt.grad(gt.custom_gradient(lambda x: (x**2, lambda dy: 2 * dy * x)))(METRES),
        "put units around it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    kind, call, said = REFUSED[name]
    expect(kind, call, said)
