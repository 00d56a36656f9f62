"""Quantities of pint are containers, and derivatives have the unit of the result by that of the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import expect

pint: Any = pytest.importorskip("pint", reason="pip install pint")

UNITS = pint.UnitRegistry()
Q = UNITS.Quantity
METRES, SECONDS = Q(3.0, "m"), Q(2.0, "s")
WAY, TIMES = Q(np.array([1.0, 2.0]), "m"), Q(np.array([5.0, 2.0]), "s")


def same(found: Any, magnitude: Any, unit: str | None) -> None:
    """Compare a quantity, as it is written; a unit of None stands for a number or an array without one."""
    if unit is None:
        assert not isinstance(found, Q)
    else:
        assert isinstance(found, Q)
        assert dict(found.unit_items()) == dict(UNITS.Unit(unit)._units.unit_items()), found.units
        found = found.magnitude
    np.testing.assert_allclose(np.asarray(found), magnitude, rtol=1e-12)


def energy(v: Any) -> Any:
    return 0.5 * Q(1200.0, "kg") * (v**2).sum()


# function, arguments, value of the gradient in the first argument, its unit
GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, str | None]] = {
    "metres": (lambda x: x**2, (METRES,), 6.0, "m"),
    "metres by seconds": (lambda t, x: x * t, (SECONDS, METRES), 3.0, "m"),
    "quotient": (lambda t, x: x / t, (SECONDS, METRES), -0.75, "m/s**2"),
    "of a number": (lambda x: (x * UNITS.km) ** 2, (3.0,), 6.0, "km**2"),
    "of an array": (lambda x: (x * UNITS.km).sum(), (np.ones(2),), np.ones(2), "km"),
    "to a number": (lambda x: (x**2).to("cm**2").magnitude, (METRES,), 6e4, "1/m"),
    "array": (energy, (Q(np.array([1.0, 2.0]), "m/s"),), [1200.0, 2400.0], "kg m/s"),
    "conversion": (lambda x: x.to("cm"), (METRES,), 100.0, "cm/m"),
    "degrees Celsius": (lambda t: t.to("K") ** 2, (Q(20.0, "degC"),), 2 * 293.15, "K**2/delta_degC"),
    "to degrees Fahrenheit": (lambda t: t.to("degF"), (Q(20.0, "degC"),), 1.8, "delta_degF/delta_degC"),
    "numbers with a unit": (np.sin, (Q(0.5, ""),), np.cos(0.5), ""),
    "percent": (lambda x: np.sin(x).to(""), (Q(50.0, "percent"),), np.cos(0.5) / 100, "1/percent"),
    "angles": (np.sin, (Q(60.0, "deg"),), np.pi / 360, "1/deg"),
    "integer": (lambda x: x**2, (Q(3, "m"),), 6.0, "m"),
    "rank 0": (lambda x: x**2, (Q(np.array(3.0), "m"),), 6.0, "m"),
    "empty": (lambda x: (x**2).sum(), (Q(np.zeros(0), "m"),), np.zeros(0), "m"),
    "norm": (np.linalg.norm, (Q(np.array([3.0, 4.0]), "m"),), [0.6, 0.8], ""),
    "unused": (lambda x, t: t * 1.0, (METRES, SECONDS), 0.0, "s/m"),
    "no unit anywhere": (lambda x: x**2, (3.0,), 6.0, None),
}

WEIGHTS = np.array([0.5, 1.5])

BESIDE_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "ufunc": lambda a, q: np.sum(np.multiply(a, q)),
    "reflected": lambda a, q: np.sum(a * q),
    "where": lambda a, q: np.sum(np.where(a > 1, q, 2 * q) * a),
    "where of numbers": lambda a, q: np.sum(np.where(q > Q(150.0, "cm"), a, 2 * a)) * q[0],
    "dot": np.dot,
    "product of matrices": lambda a, q: np.outer(a, a) @ q @ a,
    "einsum": lambda a, q: np.einsum("i,i", a, q),
    "solve": lambda a, q: np.sum(np.linalg.solve(np.outer(a, a) + np.eye(2), q)),
    "interp": lambda a, q: np.sum(np.interp(a, np.array([0.0, 2.0]), q)),
    "keywords": lambda a, q: np.average(q, weights=a),
}


@pytest.mark.parametrize("name", BESIDE_ARRAYS)
def test_functions_of_arrays_and_quantities(name: str) -> None:
    function = BESIDE_ARRAYS[name]
    expected = function(WEIGHTS, WAY)
    for made in (gt.jit(function)(WEIGHTS, WAY), gt.jit(lambda a: function(a, WAY))(WEIGHTS)):
        same(made, expected.magnitude, "m")
    by_numbers, by_length = gt.grad(function, (0, 1))(WEIGHTS, WAY)
    same(by_length, gt.grad(lambda x: function(WEIGHTS, Q(x, "m")).magnitude)(WAY.magnitude), "")
    step, slopes = 1e-6, []
    for unit in np.eye(2):
        up, down = function(WEIGHTS + step * unit, WAY), function(WEIGHTS - step * unit, WAY)
        slopes.append((up - down).magnitude / (2 * step))
    assert dict(by_numbers.unit_items()) == {"meter": 1}
    np.testing.assert_allclose(by_numbers.magnitude, slopes, rtol=1e-6, atol=1e-8)
    with gt.GradientTape() as tape:
        a = tape.watch(WEIGHTS)
        y = function(a, WAY)
    same(tape.gradient(y, a), by_numbers.magnitude, "m")


NOT_ON_TAPES = {"integer", "unused"}
"""Tapes follow floats, and their targets are arrays that they have followed."""


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_have_the_unit_of_the_quotient(name: str, compiled: bool) -> None:
    function, args, expected, unit = GRADIENTS[name]
    with gt.config.override(jit=compiled):
        for _ in range(2):
            value, gradient = gt.value_and_grad(function)(*args)
            same(gradient, expected, unit)
            reference = function(*args)
            if isinstance(reference, Q):
                same(value, reference.magnitude, str(reference.units))
            else:
                same(value, reference, None)


@pytest.mark.parametrize("name", GRADIENTS)
def test_tapes_and_other_modes_agree(name: str) -> None:
    function, args, expected, unit = GRADIENTS[name]
    if name not in NOT_ON_TAPES:
        with gt.GradientTape() as tape:
            x = tape.watch(args[0])
            y = function(x, *args[1:])
        same(tape.gradient(y, x), expected, unit)
    first, *rest = args

    def of_first(x: Any) -> Any:
        return function(x, *rest)

    same(gt.jacfwd(of_first)(first), expected, unit)
    same(gt.jacrev(of_first)(first), expected, unit)
    # Here products with numbers are taken, which are numbers of no unit: by percents and degrees there is a factor left.
    ones = np.ones(np.shape(expected))
    products = [
        (gt.jvp(of_first, (first,), (ones,))[1], np.sum(expected)),
        (gt.linearize(of_first, first)[1](ones), np.sum(expected)),
        (gt.vjp(of_first, first)[1](1.0)[0], expected),
    ]
    for found, number in products:
        same(found if unit is None else found.to(unit), number, unit)


def test_second_derivatives() -> None:
    same(gt.grad(gt.grad(lambda x: x**3))(METRES), 18.0, "m")
    same(gt.grad(gt.grad(gt.grad(lambda x: (x * UNITS.km) ** 4)))(3.0), 72.0, "km**4")
    same(gt.hessian(energy)(WAY / SECONDS), 1200 * np.eye(2), "kg")
    mixed = gt.hessian(lambda p: p["x"] ** 2 * p["t"])({"x": METRES, "t": SECONDS})
    same(mixed["x"]["x"], 4.0, "s")
    same(mixed["x"]["t"], 6.0, "m")
    same(mixed["t"]["t"], 0.0, "m**2/s")
    along = Q(np.array([1.0, 0.0]), "m")
    same(gt.hvp(lambda x: (x**3).sum(), (WAY,), (along,)), [6.0, 0.0], "m**2")
    same(gt.hvp(lambda x: (x**3).sum(), (WAY,), (np.array([1.0, 0.0]),)), [6.0, 0.0], "m")
    same(gt.hessian_diagonal(lambda x: (x**3).sum())(WAY), [6.0, 12.0], "m")
    same(gt.laplacian(lambda x: (x**3).sum())(WAY), 18.0, "m")
    with gt.GradientTape() as outer:
        x = outer.watch(METRES)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        slope = inner.gradient(y, x)
    same(outer.gradient(slope, x), 18.0, "m")


def test_laplacians_add_what_has_one_dimension() -> None:
    lengths = {"x": METRES, "y": Q(200.0, "cm")}
    same(gt.laplacian(lambda p: p["x"] ** 2 + p["y"] ** 2)(lengths), 4.0, "m**2/m**2")
    mixed = {"x": METRES, "t": SECONDS}
    expect(errors.ArgumentError, lambda: gt.laplacian(lambda p: p["x"] ** 2 * p["t"])(mixed), "meter")


def test_containers_and_several_arguments() -> None:
    found = gt.grad(lambda p: p["x"] ** 2 / p["t"] * p["n"])({"x": METRES, "t": SECONDS, "n": 2.0})
    same(found["x"], 6.0, "m/s")
    same(found["t"], -4.5, "m**2/s**2")
    same(found["n"], 4.5, "m**2/s")
    by_both = gt.grad(lambda x, t: x / t, argnums=(0, 1))(METRES, SECONDS)
    same(by_both[0], 0.5, "1/s")
    same(by_both[1], -0.75, "m/s**2")
    (value, aux), slope = gt.value_and_grad(lambda x: (x**2, x), has_aux=True)(METRES)
    same(value, 9.0, "m**2")
    same(aux, 3.0, "m")
    same(slope, 6.0, "m")
    rows = gt.jacobian(lambda p: {"v": p["x"] / p["t"], "n": p["x"].magnitude})({"x": METRES, "t": SECONDS})
    same(rows["v"]["t"], -0.75, "m/s**2")
    same(rows["n"]["x"], 1.0, "1/m")


def test_compiled_functions_and_batches() -> None:
    square = gt.jit(lambda x: x**2)
    same(square(WAY), [1.0, 4.0], "m**2")
    same(square(WAY.to("cm")), [1e4, 4e4], "cm**2")  # another unit is another trace
    same(square(TIMES), [25.0, 4.0], "s**2")
    same(gt.jit(lambda p: p["x"])({"x": METRES}), 3.0, "m")
    same(gt.jit(lambda x: x * UNITS.m)(2.0), 2.0, "m")
    same(gt.vmap(gt.grad(lambda x: x**2))(WAY), [2.0, 4.0], "m")
    same(gt.vmap(lambda x, t: x * t, in_axes=(0, None))(WAY, SECONDS), [2.0, 4.0], "m*s")
    same(gt.scan(lambda c, _: (c * 2.0, c), METRES, None, length=2)[1], [3.0, 6.0], "m")
    single = gt.grad(lambda x: (x**2).sum())(Q(np.ones(2, np.float32), "m"))
    assert single.magnitude.dtype == np.float32
    vector, back = gt.tree.ravel({"x": WAY, "t": SECONDS})
    same(back(vector)["x"], [1.0, 2.0], "m")


def test_cotangents_and_tangents_are_quantities() -> None:
    def speed(x: Any, t: Any) -> Any:
        return x / t

    by_way, by_time = gt.vjp(speed, WAY, TIMES)[1](Q(np.ones(2), "s/m"))
    same(by_way, [0.2, 0.5], "1/m")
    same(by_time, [-0.04, -0.5], "1/s")
    # Cotangents of two results: the products are of one dimension, here numbers, and milliseconds are converted.
    both = gt.vjp(lambda x, t: (2 * x, t), WAY, TIMES)[1]((Q(np.ones(2), "1/m"), Q(np.ones(2), "1/ms")))
    same(both[0], [2.0, 2.0], "1/m")
    same(both[1], [1000.0, 1000.0], "1/s")
    _, moved = gt.jvp(speed, (WAY, TIMES), (Q(np.ones(2), "km"), Q(np.ones(2), "s")))
    same(moved, [199.96, 499.5], "m/s")
    same(gt.jvp(lambda x: x**2, (WAY,), (Q(np.ones(2), "m/s"),))[1], [2.0, 4.0], "m**2/s")
    same(gt.linear_transpose(lambda x: x / SECONDS, WAY)(np.ones(2))[0], [0.5, 0.5], "1/s")
    primal = Q(gt.constant(np.ones(2)), "m")
    with gt.ForwardAccumulator(primal, Q(np.ones(2), "m/s")) as accumulator:
        y = primal**2
    same(accumulator.jvp(y), [2.0, 2.0], "m**2/s")
    ones = np.ones(2)
    said = "quotients of tangents and primals are in 1 / meter and in 1 / second"
    expect(errors.ArgumentError, lambda: gt.jvp(speed, (WAY, TIMES), (ones, ones)), said)
    expect(
        errors.ArgumentError,
        lambda: gt.vjp(lambda x, t: (x, t), WAY, TIMES)[1]((ones, ones)),
        "give quantities",
    )


def recorded() -> tuple[gt.GradientTape, Any, Any, Any]:
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        q = tape.watch(WAY)
        y = q * x / SECONDS
    return tape, x, q, y


def test_tapes() -> None:
    tape, x, q, y = recorded()
    by_number, by_way = tape.gradient(y, [x, q], output_gradients=Q(np.ones(2), "s"))
    same(by_number, [0.5, 1.0], "m")
    same(by_way, [0.5, 1.0], "")
    tape, x, q, y = recorded()
    blocks = tape.jacobian(y, [x, q])
    same(blocks[0], np.diag([0.5, 1.0]), "m/s")
    same(blocks[1], np.diag([0.5, 1.0]), "1/s")
    tape, x, q, y = recorded()
    assert tape.gradient(x, [x, q])[1] is None
    tape, x, q, y = recorded()
    expect(errors.ArgumentError, lambda: tape.gradient([y, y.to("km/s")], [x, q]), "in several units")
    expect(errors.ArgumentError, lambda: tape.gradient([y, q], [x, q]), "in meter / second and in meter")
    with gt.GradientTape() as rows:
        q = rows.watch(Q(np.ones((3, 2)), "m"))
        y = q**2
    same(rows.batch_jacobian(y, q), np.broadcast_to(2 * np.eye(2), (3, 2, 2)), "m")


REFUSED: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "array of integers": (
        errors.IntegerInputError,
        lambda: gt.grad(lambda x: (x**2).sum())(Q(np.array([1, 2]), "m")),
        "x.magnitude is an array of int64",
    ),
    "more than one number": (
        errors.NonScalarOutputError,
        lambda: gt.grad(lambda x: x**2)(WAY),
        r"shape (2,)",
    ),
    "logarithmic": (errors.DtypeError, lambda: gt.grad(lambda x: x.to("") * 1)(Q(20.0, "dB")), "decibel"),
    "mixed": (pint.DimensionalityError, lambda: gt.grad(lambda x: x + SECONDS)(METRES), "second"),
    "constant": (errors.DtypeError, lambda: gt.constant(WAY), "a.magnitude"),
    "sparse": (errors.DtypeError, lambda: gt.sparse_jacobian(lambda x: x**2)(WAY), "pass magnitudes"),
    "sparse result": (
        errors.DtypeError,
        lambda: gt.sparse_jacobian(lambda x: x * UNITS.m)(np.ones(2)),
        "return magnitudes",
    ),
    "series": (errors.DtypeError, lambda: gt.taylor(lambda x: x**2, METRES, METRES, 2), "pass magnitudes"),
    "errors": (
        errors.DtypeError,
        lambda: gt.propagate(lambda x: x**2, METRES, Q(0.1, "m**2")),
        "gt.propagate: mean is a quantity",
    ),
    "minimum": (
        errors.DtypeError,
        lambda: gt.scipy.minimize(lambda x: (x**2).magnitude.sum(), WAY),
        "x0 is a quantity",
    ),
    "optimiser": (errors.DtypeError, lambda: gt.optimizers.Adam(0.1).init({"x": WAY}), "optimise magnitudes"),
    "step": (
        errors.DtypeError,
        lambda: gt.optimizers.SGD(0.1).update({"x": WAY}, {"step": 0}, {"x": np.ones(2)}),
        "a gradient or a parameter is a quantity",
    ),
    "callback in another unit": (
        errors.StructureError,
        lambda: gt.jit(lambda x: gt.callback(lambda a: a**2, WAY, x))(WAY),
        "meter ** 2",
    ),
    "callback without a unit": (
        errors.StructureError,
        lambda: gt.jit(lambda x: gt.callback(lambda a: a**2, np.zeros(2), x))(WAY),
        "result_like is *",
    ),
    "rule": (
        errors.DtypeError,
        lambda: gt.grad(gt.custom_gradient(lambda x: (x**2, lambda dy: 2 * dy * x)))(METRES),
        "put units around it",
    ),
    "result of a rule": (
        errors.DtypeError,
        lambda: gt.grad(gt.custom_gradient(lambda x: (x * UNITS.m, lambda dy: dy)))(3.0),
        "put units around it",
    ),
    "carry": (
        errors.StructureError,
        lambda: gt.fori_loop(0, 3, lambda i, c: c * METRES, METRES),
        r"Quantity[meter ** 2]",
    ),
}


def to_centimetres(q: Any) -> None:
    q.ito("cm")


def add_in_place(q: Any) -> None:
    q += Q(50.0, "cm")


def write_magnitude(q: Any) -> None:
    q._magnitude = q.magnitude * 3.0


def there_and_back(q: Any) -> None:
    q.ito("km")
    q.ito("m")


CHANGES: dict[str, Callable[[Any], None]] = {
    "unit": to_centimetres,
    "sum": add_in_place,
    "magnitude": write_magnitude,
    "nothing": lambda q: None,
    "unit and back": there_and_back,
}


class Holder:
    def __init__(self, content: Any) -> None:
        self.q = content


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "cell": (lambda q: q, lambda held: held),
    "attribute": (Holder, lambda held: held.q),
    "entry": (lambda q: {"q": [q]}, lambda held: held["q"][0]),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("magnitude", [3.0, np.array([1.0, 2.0])])
def test_changes_in_place_of_what_is_read_from_outside(holder: str, change: str, magnitude: Any) -> None:
    hold, read = HOLDERS[holder]
    quantity = Q(np.copy(magnitude) if np.ndim(magnitude) else magnitude, "m")
    held = hold(quantity)

    def f(x: Any) -> Any:
        return np.sum((x * read(held)) ** 2)

    compiled, gradient = gt.jit(f), gt.grad(f)
    for step in (CHANGES["nothing"], CHANGES[change], CHANGES["nothing"], CHANGES[change]):
        step(quantity)
        expected = f(2.0)
        same(compiled(2.0), expected.magnitude, str(expected.units))
        same(gradient(2.0), expected.magnitude, str(expected.units))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("magnitude", [3.0, np.array([1.0, 2.0])])
def test_changes_in_place_by_the_function(change: str, magnitude: Any) -> None:
    found = []
    for way in (lambda f: f, gt.jit):
        quantity = Q(np.copy(magnitude) if np.ndim(magnitude) else magnitude, "m")

        def f(x: Any) -> Any:
            CHANGES[change](quantity)  # noqa: B023
            return np.sum((x * quantity) ** 2)  # noqa: B023

        run = way(f)
        found.append([run(2.0) for _ in range(3)] + [quantity])
    for expected, made in zip(*found, strict=True):
        same(made, expected.magnitude, str(expected.units))


def sums(x: Any) -> Any:
    y = x
    y += Q(1.0, "m")
    y -= Q(1.0, "cm")
    return np.sum(x * y)


def products(x: Any) -> Any:
    y = x * 1.0
    z = y
    z *= Q(2.0, "s")
    w = z
    w /= 3.0
    v = w
    v **= 2
    return [np.sum(each) for each in (y, z, w, v)]


@pytest.mark.parametrize("function", [sums, products])
@pytest.mark.parametrize("magnitude", [3.0, np.float64(3.0), np.array([1.0, 2.0])])
def test_operators_in_place_change_arrays_and_bind_numbers_anew(function: Any, magnitude: Any) -> None:
    def given() -> Any:
        return Q(magnitude.copy() if type(magnitude) is np.ndarray else magnitude, "m")

    expected = function(given())
    for way in (gt.jit, lambda f: lambda x: gt.jvp(f, (x,), (x,))[0], lambda f: lambda x: gt.vjp(f, x)[0]):
        found = way(function)(given())
        for made, each in zip(
            *[each if isinstance(each, list) else [each] for each in (found, expected)], strict=True
        ):
            same(made, each.magnitude, str(each.units))


def test_a_quantity_that_is_bound_anew_is_no_other_program() -> None:
    quantity = METRES
    compiled = gt.jit(lambda x: x * quantity)
    for number in range(4):
        quantity = Q(float(number), "m")
        same(compiled(2.0), 2.0 * number, "m")
    assert compiled.site.traces == 1


def test_callbacks_of_quantities() -> None:
    square = gt.jit(lambda x: gt.callback(lambda a: a**2, Q(np.zeros(2), "m**2"), x))
    same(square(WAY), [1.0, 4.0], "m**2")


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_units_yet_is_refused(name: str) -> None:
    kind, call, said = REFUSED[name]
    expect(kind, call, said)


def test_checks_and_recomputation_take_quantities() -> None:
    gt.check_grads(lambda x: (x**3).sum(), (WAY,), order=2)
    same(gt.grad(gt.checkpoint(lambda x: (x**3).sum()))(WAY), [3.0, 12.0], "m**2")
    same(gt.grad(lambda x: x * gt.stop_gradient(x))(METRES), 3.0, "m")
