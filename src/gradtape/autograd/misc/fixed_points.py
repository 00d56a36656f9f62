"""Fixed points with their derivatives."""

from __future__ import annotations

from typing import Any

from gradtape.autograd.core import defvjp, vspace
from gradtape.autograd.core import make_vjp as pulled
from gradtape.autograd.differential_operators import make_vjp
from gradtape.autograd.tracer import primitive


@primitive
def fixed_point(f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Any:
    """Return the fixed point of ``f(a)`` that iteration from `x0` leads to.

    Parameters
    ----------
    f : callable
        ``f(a)`` returns the function that is iterated.
    a : nest of array_like
        What the fixed point is differentiated in.
    x0 : nest of array_like
        The start.
    distance : callable
        ``distance(x, previous_x) -> float``.
    tol : float
        The distance at which the iteration ends.
    """
    step = f(a)
    x, previous = step(x0), x0
    while distance(x, previous) > tol:
        x, previous = step(x), x
    return x


def _fixed_point_vjp(ans: Any, f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Any:
    def reverse(params: Any) -> Any:
        a, x_star, x_star_bar = params
        vjp_x, _ = pulled(f(a), x_star)
        space = vspace(x_star)
        return lambda g: space.add(vjp_x(g), x_star_bar)

    vjp_a, _ = make_vjp(lambda x, y: f(x)(y))(a, ans)
    return lambda g: vjp_a(fixed_point(reverse, (a, ans, g), vspace(x0).zeros(), distance, tol))


defvjp(fixed_point, None, _fixed_point_vjp, None)
