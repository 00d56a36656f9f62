"""Checks of derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

from gradtape.autograd.core import make_jvp, make_vjp, vspace
from gradtape.autograd.wrap_util import get_name, unary_to_nary

TOL: Final = 1e-6
RTOL: Final = 1e-6
EPS: Final = 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Return whether two numbers are equal up to the tolerances."""
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def make_numerical_jvp(f: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """Return the function that pushes tangents forward by central differences."""
    x_space, y_space = vspace(x), vspace(f(x))

    def jvp(v: Any) -> Any:
        above = f(x_space.add(x, x_space.scalar_mul(v, EPS / 2)))
        below = f(x_space.add(x, x_space.scalar_mul(v, -EPS / 2)))
        return y_space.scalar_mul(y_space.add(above, y_space.scalar_mul(below, -1.0)), 1.0 / EPS)

    return jvp


def check_vjp(f: Callable[[Any], Any], x: Any) -> None:
    """Raise AssertionError unless reverse mode agrees with differences."""
    vjp, y = make_vjp(f, x)
    x_space, y_space = vspace(x), vspace(y)
    x_v, y_v = x_space.randn(), y_space.randn()
    pulled = x_space.covector(vjp(y_space.covector(y_v)))
    assert vspace(pulled) == x_space
    exact = x_space.inner_prod(x_v, pulled)
    numeric = y_space.inner_prod(y_v, make_numerical_jvp(f, x)(x_v))
    assert scalar_close(numeric, exact), (
        f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\nanalytic: {exact}\nnumeric:  {numeric}"
    )


def check_jvp(f: Callable[[Any], Any], x: Any) -> None:
    """Raise AssertionError unless forward mode agrees with differences."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


def check_equivalent(x: Any, y: Any) -> None:
    """Raise AssertionError unless two elements are of one space and equal up to the tolerances."""
    x_space, y_space = vspace(x), vspace(y)
    assert x_space == y_space, f"VSpace mismatch:\nx: {x_space}\ny: {y_space}"
    v = x_space.randn()
    assert scalar_close(x_space.inner_prod(x, v), x_space.inner_prod(y, v)), (
        f"Value mismatch:\nx: {x}\ny: {y}"
    )


@unary_to_nary
def check_grads(f: Callable[[Any], Any], x: Any, modes: Sequence[str] | None = None, order: int = 2) -> None:
    """Raise AssertionError unless the derivatives of a function agree with differences.

    Parameters
    ----------
    f : callable
        The function.
    x : array_like, or nest of them
        The point.
    modes : sequence of {"fwd", "rev"}, optional
        The modes to check, by default both.
    order : int, default 2
        Up to which order.
    """
    modes = ["fwd", "rev"] if modes is None else modes
    assert all(mode in ("fwd", "rev") for mode in modes)
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:

            def pushed(x: Any, v: Any) -> Any:
                return make_jvp(f, x)(v)[1]

            pushed.__name__ = f"jvp_{get_name(f)}"
            check_grads(pushed, (0, 1), modes, order=order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:

            def pulled(x: Any, v: Any) -> Any:
                return make_vjp(f, x)[0](v)

            pulled.__name__ = f"vjp_{get_name(f)}"
            check_grads(pulled, (0, 1), modes, order=order - 1)(x, vspace(f(x)).randn())


def combo_check(fun: Callable[..., Any], *check_args: Any, **check_kwargs: Any) -> Callable[..., None]:
    """Return the function that checks the derivatives for all combinations of arguments."""

    def check(*args: Any, **kwargs: Any) -> None:
        options = [[(name, value) for value in values] for name, values in kwargs.items()]
        for chosen in product(*args):
            for chosen_options in product(*options):
                check_grads(fun, *check_args, **check_kwargs)(*chosen, **dict(chosen_options))

    return check
