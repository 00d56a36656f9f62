"""Branches whose other side only raises an error: in the bodies of loops, in functions that are mapped, and in those that solvers call."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from scipy import interpolate, optimize
from scipy.integrate import quad, solve_ivp

import gradtape as gt
from gradtape.errors import ConcretizationError
from gradtape.trace.patching.bytecode import only_raises
from tests.support.differences import gradient_by_differences

X = np.array([4.0, 5.0, 4.5, 6.0, 5.0])
NEGATIVE = np.array([1.0, 2.0, 1.5, -3.0, 2.0])
TIMES = np.linspace(0.0, 3.0, 5)


def _checked(v: Any, name: str = "v") -> Any:
    if np.any(v < 0):
        raise ValueError(f"negative {name}")
    return v


def _fail(message: str) -> Any:
    raise KeyError(message)


def _is_positive(v: Any) -> bool:
    return bool(np.all(v >= 0))


def _in_helper(v: Any) -> Any:
    if not _is_positive(v):
        _fail("not positive")
    return v


def _asserted(v: Any) -> Any:
    assert np.all(v >= 0), "not positive"
    return v


def _in_any(v: Any) -> Any:
    if any(one < 0 for one in (v, v + 1)):
        raise OverflowError("one of them")
    return v


def _in_finally(v: Any) -> Any:
    try:
        return _checked(v)
    finally:
        np.sin(1.0)


def _as_other_error(v: Any) -> Any:
    try:
        return _checked(v)
    except ValueError as error:
        raise RuntimeError("another error") from error


def _scan(step: Any) -> Any:
    return lambda x: gt.scan(lambda c, v: (c + step(v) ** 2, None), 0.0, x)[0]


PROGRAMS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "scan": (_scan(_checked), ValueError, "negative v"),
    "helper": (_scan(_in_helper), KeyError, "not positive"),
    "assert": (_scan(_asserted), AssertionError, "not positive"),
    "any": (_scan(_in_any), OverflowError, "one of them"),
    "finally": (_scan(_in_finally), ValueError, "negative v"),
    "other error": (_scan(_as_other_error), RuntimeError, "another error"),
    "second": (
        _scan(lambda v: _checked(_checked(v * v, "first") * 0 + v, "second")),
        ValueError,
        "negative second",
    ),
    "map": (lambda x: np.sum(gt.map(lambda v: _checked(v) ** 2, x)), ValueError, "negative v"),
    "vmap": (lambda x: np.sum(gt.vmap(lambda v: _checked(v) ** 2)(x)), ValueError, "negative v"),
    "cond": (
        lambda x: gt.cond(np.sum(x) > 0, lambda x: np.sum(_checked(x)), lambda x: np.sum(x), x),
        ValueError,
        "negative v",
    ),
    "while_loop": (
        lambda x: gt.while_loop(
            lambda i, c: i < 3, lambda i, c: (i + 1, c + np.sum(_checked(x * i))), (0, 0.0)
        )[1],
        ValueError,
        "negative v",
    ),
    "fori_loop": (
        lambda x: gt.fori_loop(0, 3, lambda i, c: c + np.sum(_checked(x * i)), 0.0),
        ValueError,
        "negative v",
    ),
    "scan in scan": (
        lambda x: gt.scan(
            lambda c, v: (c + gt.scan(lambda d, w: (d + _checked(v * w), None), 0.0, TIMES)[0], None), 0.0, x
        )[0],
        ValueError,
        "negative v",
    ),
    "scan in vmap": (
        lambda x: np.sum(
            gt.vmap(lambda v: gt.scan(lambda d, w: (d + _checked(v * w), None), 0.0, TIMES)[0])(x)
        ),
        ValueError,
        "negative v",
    ),
    "vmap in scan": (
        lambda x: gt.scan(
            lambda c, v: (c + np.sum(gt.vmap(lambda w: _checked(v * w))(TIMES)), None), 0.0, x
        )[0],
        ValueError,
        "negative v",
    ),
    "gradient in scan": (
        lambda x: gt.scan(lambda c, v: (gt.grad(lambda q: _checked(q * v) ** 2)(c), None), 1e-3, x)[0],
        ValueError,
        "negative v",
    ),
    "brentq": (lambda x: optimize.brentq(lambda r: np.sum(_checked(r * x)) - 3, 0.1, 10), ValueError, "negative v"),
    "minimize": (
        lambda x: optimize.minimize(lambda r: np.sum((r * _checked(x) - 3.0) ** 2), np.ones(1)).x[0],  # type: ignore[misc] # SciPy's overloads
        ValueError,
        "negative v",
    ),
    "solve_ivp": (
        lambda x: np.sum(
            solve_ivp(lambda t, y: -y * np.sum(_checked(x + t * 0)) * 0.1, (0, 1), np.ones(1), method="BDF").y[:, -1]
        ),
        ValueError,
        "negative v",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_check_raises_the_error_of_the_call_whose_numbers_ask_for_it(name: str) -> None:
    program, error, message = PROGRAMS[name]
    gradient = gt.jit(gt.grad(program))
    loop, slopes = gt.jit(program), gradient(X)
    tolerance = 1e-3 if name in ("minimize", "solve_ivp") else 1e-6
    np.testing.assert_allclose(slopes, gradient_by_differences(program, X), rtol=tolerance, atol=tolerance)
    value = loop(X)
    for _ in range(2):
        for function in (program, loop, gradient, gt.grad(program)):
            with pytest.raises(error) as caught:
                function(NEGATIVE)
            assert str(caught.value.args[0]).startswith(message)
            assert str(caught.traceback[-1].path).endswith("test_checks.py")
        assert loop(X) == value  # nothing was traced again
        np.testing.assert_array_equal(gradient(X), slopes)
    assert len(loop.site.specialisations()) == len(gradient.site.specialisations()) == 1


def test_error_that_code_handles_is_no_check() -> None:
    def handled(v: Any) -> Any:
        try:
            return _checked(v)
        except ValueError:
            return v * 0

    assert gt.scan(lambda c, v: (c + v, None), 0.0, NEGATIVE)[0] == 3.5
    with pytest.raises(ConcretizationError):
        gt.scan(lambda c, v: (c + handled(v), None), 0.0, NEGATIVE)


def test_error_around_the_loop_can_be_handled() -> None:
    @gt.jit
    def total(x: Any) -> Any:
        try:
            return _scan(_checked)(x)
        except ValueError:
            return np.sum(x)

    assert total(X) == np.sum(X**2)
    assert total(NEGATIVE) == np.sum(NEGATIVE)
    assert total(X) == np.sum(X**2)


def test_check_that_is_not_reached_does_not_fail() -> None:
    def body(c: Any, v: Any) -> Any:
        return gt.cond(v > 0, lambda v: np.sqrt(_checked(v)), lambda v: v * 0, v) + c, None

    assert gt.jit(lambda x: gt.scan(body, 0.0, x)[0])(NEGATIVE) == np.sum(np.sqrt(NEGATIVE[NEGATIVE > 0]))


SPLINES: dict[str, Callable[[Any], Any]] = {
    "cubic": lambda y: interpolate.CubicSpline(TIMES, y)(1.2),
    "natural": lambda y: interpolate.CubicSpline(TIMES, y, bc_type="natural")(1.2),
    "pchip": lambda y: interpolate.PchipInterpolator(TIMES, y)(1.2),
    "akima": lambda y: interpolate.Akima1DInterpolator(TIMES, y)(1.2),
    "makima": lambda y: interpolate.Akima1DInterpolator(TIMES, y, method="makima")(1.2),
    "barycentric": lambda y: interpolate.BarycentricInterpolator(TIMES, y)(1.2),
    "hermite": lambda y: interpolate.CubicHermiteSpline(TIMES, y, y)(1.2),
    "interp1d": lambda y: interpolate.interp1d(TIMES, y, kind="cubic")(1.2),
    "times": lambda y: interpolate.CubicSpline(np.cumsum(y), TIMES)(y[0] * 2),
}
"""Their code looks whether all numbers are finite, and whether points are in order."""

CALLERS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "brentq": lambda spline: lambda y: optimize.brentq(lambda r: spline(y * r) - 9.0, 0.1, 10),
    "root": lambda spline: lambda y: optimize.root(lambda r: spline(y * r[0]) * r - 9.0, np.ones(1)).x[0],  # type: ignore[misc] # SciPy's overloads
    "quad": lambda spline: lambda y: quad(lambda s: spline(y * (1 + s)), 0, 1)[0],
    "scan": lambda spline: lambda y: gt.scan(lambda c, r: (c + spline(y * r), None), 0.0, TIMES + 1)[0],
    "vmap": lambda spline: lambda y: np.sum(gt.vmap(lambda r: spline(y * r))(TIMES + 1)),
}


@pytest.mark.parametrize(
    ("spline", "caller"),
    # The value of "times" does not depend on a factor of the points.
    [
        (spline, caller)
        for spline in SPLINES
        for caller in CALLERS
        if (spline, caller) not in {("times", "brentq"), ("times", "root")}
    ],
)
def test_splines_in_solvers_and_loops(caller: str, spline: str) -> None:
    program = CALLERS[caller](SPLINES[spline])
    slopes = gt.jit(gt.grad(program))
    np.testing.assert_allclose(slopes(X), gradient_by_differences(program, X), rtol=1e-5, atol=1e-6)
    if spline in ("interp1d", "barycentric"):
        return  # they do not check for NaNs
    with pytest.raises(ValueError, match=r"finite|increasing|infs or NaNs"):
        slopes(np.where(X == 6, np.nan, X))
    np.testing.assert_allclose(slopes(X), gradient_by_differences(program, X), rtol=1e-5, atol=1e-6)


def test_risk_of_a_portfolio_on_a_bootstrapped_curve() -> None:
    maturities = np.array([1.0, 2.0, 3.0, 5.0])

    def factor(nodes: Any, t: Any) -> Any:
        points = np.concatenate([np.zeros(1), maturities[: len(nodes)]])
        return np.exp(-interpolate.CubicSpline(points, np.concatenate([np.zeros(1), np.stack(nodes)]))(t))

    def par_error(nodes: Any, maturity: float, rate: Any) -> Any:
        paid = np.arange(1.0, maturity + 1)
        return rate * np.sum(factor(nodes, paid)) + factor(nodes, maturity) - 1.0

    def value(rates: Any) -> Any:
        nodes: list[Any] = []
        for k, maturity in enumerate(maturities):
            nodes.append(
                optimize.brentq(
                    lambda r, k=k, m=maturity: par_error([*nodes[:k], r], m, rates[k]), -1.0, 2.0, xtol=1e-14
                )
            )
        flows = np.array([0.5, 1.5, 2.5, 4.0])
        return np.sum(np.array([1.0, -2.0, 3.0, 5.0]) * factor(nodes, flows))

    rates = np.array([0.02, 0.025, 0.028, 0.03])
    risk = gt.jit(gt.value_and_grad(value))
    found, slopes = risk(rates)
    assert abs(found - value(rates)) < 1e-12
    np.testing.assert_allclose(slopes, gradient_by_differences(value, rates), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gt.grad(value)(rates), slopes, rtol=1e-9)


class _Asked:
    """Answers as code goes on, and notes the answer."""

    def __init__(self) -> None:
        self.answers: list[bool | None] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        if_true, if_false = (only_raises(frame, answer, self.is_own) for answer in (True, False))
        self.answers.append(None if if_true == if_false else if_false)
        return if_false

    @staticmethod
    def is_own(frame: FrameType) -> bool:
        return frame.f_code.co_name == "test_only_raises"


def _returns(b: Any) -> int:
    return 1 if b else 2


def _warns(b: Any) -> int:
    if b:
        print("not an error")
    return 1


def _catches(b: Any) -> int:
    try:
        if b:
            raise ValueError
    except ValueError:
        return 1
    return 2


def _chooses_an_error(b: Any) -> None:
    raise ValueError("a" if b else "b")


def _while(b: Any) -> None:
    while b:
        pass


def _raises(b: Any) -> int:
    if b:
        raise ValueError("x")
    return 1


def _raises_in_with(b: Any) -> int:
    with np.errstate(all="ignore"):
        if not b:
            message = "x"
            for _ in range(2):
                message += "y"
            raise ValueError(message)
    return 1


def _raises_by_and(b: Any) -> int:
    if not (b and b):
        raise ValueError
    return 1


def _raises_by_or(b: Any) -> int:
    if b or b:
        raise ValueError
    return 1


def _raises_later(b: Any) -> int:
    is_bad = not b
    number = 1
    if is_bad:
        raise ValueError(number)
    return 1


def _raises_in_expression(b: Any) -> Any:
    return 1 if b else _fail("x")


def _raises_by_all(b: Any) -> int:
    if all([b, 1]):
        return 1
    raise ValueError


@pytest.mark.parametrize(
    ("function", "answers"),
    [
        (_returns, [None]),
        (_warns, [None]),
        (_catches, [None]),
        (_chooses_an_error, [None]),
        (_while, [None]),
        (_raises, [False]),
        (_raises_in_with, [True]),
        (_raises_by_and, [True, True]),
        (_raises_by_or, [False, False]),
        (_raises_later, [True]),
        (_raises_in_expression, [True]),
        (_raises_by_all, [True]),
    ],
)
def test_only_raises(function: Callable[[Any], Any], answers: list[bool | None]) -> None:
    asked = _Asked()
    if function is _chooses_an_error:
        with pytest.raises(ValueError, match=r"^a$"):
            function(asked)
    else:
        function(asked)
    assert asked.answers == answers


def test_roots_of_polynomials_in_functions_of_solvers() -> None:
    @gt.jit
    def coefficient(a: Any) -> Any:
        return optimize.brentq(lambda s: np.max(np.real(np.roots(np.stack([1.0, s, -a])))) - 1.0, -3.0, 3.0)

    np.testing.assert_allclose(coefficient(2.0), 1.0)
    np.testing.assert_allclose(gt.grad(coefficient)(2.0), 1.0)  # 1 + s - a = 0


def _roots_in_scan(c: Any) -> Any:
    def step(s: Any, _: Any) -> Any:
        return s - 1.0, np.sum(np.abs(np.roots(np.stack([1.0, 3.0, s]))))

    return gt.scan(step, c, np.arange(3.0))[1]


def test_roots_in_bodies_check_the_ends() -> None:
    expected = [np.sum(np.abs(np.roots([1.0, 3.0, s]))) for s in (5.0, 4.0, 3.0)]
    np.testing.assert_allclose(gt.jit(_roots_in_scan)(5.0), expected)
    for function in (_roots_in_scan, gt.jit(_roots_in_scan), gt.jacobian(_roots_in_scan)):
        with pytest.raises(ConcretizationError, match="begins or ends with a zero"):
            function(2.0)


TEXT = np.array(["a"])


def test_an_argument_that_is_no_array_is_named_with_its_place():
    f = gt.jit(lambda d, **more: d)
    with pytest.raises(TypeError, match=r"argument 0\['a'\]\[1\]"):
        f({"a": [1.0, TEXT]})
    with pytest.raises(TypeError, match=r"argument 0 "):
        f(TEXT)
    with pytest.raises(TypeError, match=r"extra\[0\]"):
        f(1.0, extra=(TEXT,))
