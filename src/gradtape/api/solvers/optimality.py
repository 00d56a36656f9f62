"""The equations of a minimum with bounds and constraints: those of Karush, Kuhn and Tucker, with the active ones as equalities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.solvers.dependence import without_dependence
from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import grad
from gradtape.errors import ArgumentError, kind_of
from gradtape.habits import nearest
from gradtape.trace.source.sites import user_site

TIGHT: Final = 1e-9
"""How near to a bound an unknown is at it, relative to both: solvers put it there."""

NEAR: Final = 1e-3
"""How near to its limit a constraint, or to its bound an unknown, may be active, if Newton's step without it would go beyond: solvers stop
before it."""

SMALLEST_PUSH: Final = 1e-10
"""Multipliers below this part of the largest one are zero."""

EQUAL: Final = 1e-12
"""Limits that are as near to each other as this are equal."""


FOLLOWS: Final = 2
"""The mark of a constraint that is met wherever the other active ones are: its multiplier stays as it is."""


TYPES: Final = ("eq", "ineq")
KEYS: Final = ("type", "fun", "jac", "args")
"""The types, and the keys, of a constraint that is a dictionary."""


class Constraint(NamedTuple):
    """A constraint ``low <= function(x) <= high`` on a vector.

    Attributes
    ----------
    function : callable
        ``function(x) -> vector``.
    low, high : array_like
        The limits; both may be traced.
    given : object
        What the caller passed.
    """

    function: Callable[[Any], Any]
    low: Any
    high: Any
    given: Any

    def full(self, x: Any) -> Constraint:
        """Return the constraint with limits that have the shape of its values."""
        zero = np.zeros(np.shape(self.function(x)))
        return self._replace(low=self.low + zero, high=self.high + zero)


class Box(NamedTuple):
    """Lower and upper bounds, each a number or an array."""

    lb: Any
    ub: Any


class Optimum(NamedTuple):
    """A minimum, and its active bounds and constraints, as numbers.

    Attributes
    ----------
    x : array
        The minimum.
    sides : array of int
        For each unknown: -1 at its lower bound, 1 at its upper bound, 2 fixed where it is, 0 free.
    duals : array
        The multipliers, one for each element of the constraints; zero where it is not active.
    active : array of int
        For each element of the constraints: -1 at its lower limit, 1 at its upper limit, 0 not active, `FOLLOWS` from the other ones.
    """

    x: Any
    sides: Any
    duals: Any
    active: Any


def limits(bounds: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return bounds, in any form that SciPy takes, as two arrays; None are infinite."""
    if bounds is None:
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    if hasattr(bounds, "lb"):
        low, high = [
            np.stack(end) if isinstance(end, list | tuple) else end for end in (bounds.lb, bounds.ub)
        ]
    elif len(bounds) == 2 and not any(
        np.ndim(bound) for bound in bounds
    ):  # the same for all, as `milp` takes them
        low, high = bounds
    else:
        low = np.array([-np.inf if pair[0] is None else pair[0] for pair in bounds])
        high = np.array([np.inf if pair[1] is None else pair[1] for pair in bounds])
    return low + np.zeros(shape), high + np.zeros(shape)


def constraints_of(given: Any) -> list[Constraint] | None:
    """Return constraints, in any form that SciPy takes; None if one has another form."""
    single = isinstance(given, dict) or not isinstance(given, list | tuple)
    converted = []
    for constraint in [given] if single else given:
        if isinstance(constraint, dict) and str(constraint.get("type")).lower() in TYPES:
            converted.append(_of_dictionary(constraint))
        elif hasattr(constraint, "A") and hasattr(constraint, "lb"):
            matrix = constraint.A.toarray() if hasattr(constraint.A, "toarray") else constraint.A
            converted.append(Constraint(_linear(matrix), constraint.lb, constraint.ub, constraint))
        elif hasattr(constraint, "fun") and hasattr(constraint, "lb"):
            converted.append(
                Constraint(_vector(constraint.fun, ()), constraint.lb, constraint.ub, constraint)
            )
        else:
            return None
    return converted


def check_constraint(given: Any, caller: str) -> None:
    """Raise ArgumentError unless something is a constraint as SciPy takes it, by a dictionary that has no other keys."""
    remedy = 'pass {"type": "eq" or "ineq", "fun": f}, or a LinearConstraint or NonlinearConstraint of scipy.optimize'
    if isinstance(given, dict) and set(given) & {*KEYS}:
        unknown = next((key for key in given if key not in KEYS), None)
        missing = next((key for key in KEYS[:2] if key not in given), None)
        if unknown is not None:
            problem = f"has the unknown key {unknown!r}"
            similar = nearest(str(unknown), [*KEYS])
            remedy = f"did you mean {similar!r}?" if similar else f"the keys are {', '.join(map(repr, KEYS))}"
        elif missing is not None:
            problem = f"has no {missing!r}"
        elif str(given["type"]).lower() not in TYPES:
            problem = f"has the type {given['type']!r}"
        else:
            return check_callable(given["fun"], caller)
    elif not (hasattr(given, "lb") and (hasattr(given, "A") or hasattr(given, "fun"))):
        problem = f"is {kind_of(given)}"
    else:
        return None
    raise ArgumentError(f"{caller}: a constraint {problem}", where=user_site(), remedy=remedy)


def _of_dictionary(given: dict[str, Any]) -> Constraint:
    extra = given.get("args", ())
    high = 0.0 if given["type"].lower() == "eq" else np.inf
    return Constraint(_vector(given["fun"], extra), 0.0, high, given)


def _linear(matrix: Any) -> Callable[[Any], Any]:
    return lambda x: np.reshape(np.dot(matrix, x), -1)


def _vector(function: Callable[..., Any], extra: Any) -> Callable[[Any], Any]:
    extra = tuple(extra) if isinstance(extra, list | tuple) else (extra,)

    def vector(x: Any) -> Any:
        value = function(x, *extra)
        return np.reshape(np.stack(value) if isinstance(value, list | tuple) else value, -1)

    return vector


def side_of(x: Any, low: Any, high: Any) -> Any:
    """Return, for each unknown, at which of its bounds it is: see `Optimum.sides`."""
    return np.where(_is_at(x, low), -1, np.where(_is_at(x, high), 1, 0))


def _is_at(x: Any, end: Any) -> Any:
    finite = np.where(np.isfinite(end), end, 0.0)
    return np.isfinite(end) & (np.abs(x - finite) <= TIGHT * np.maximum(np.abs(x), np.abs(finite)))


def is_near(x: Any, low: Any, high: Any, near: float) -> Any:
    """Return, for each unknown, whether it is near to one of its bounds, relative to its size, or to the width between them."""
    width = np.where(np.isfinite(high - low), high - low, 0.0)
    margin = near * np.maximum(1 + np.abs(x), width)
    return (x <= low + margin) | (x >= high - margin)


def active_set(
    x: Any,
    sides: Any,
    slope: Any,
    values: Any,
    slopes: Any,
    low: Any,
    high: Any,
    near: Any,
    curvature: Callable[[Any, Any], Any],
) -> tuple[Any, Any]:
    """Return the multipliers of constraints at a minimum, and which are active; all are numbers.

    A constraint near to its limit is active if Newton's step without it goes beyond: along the direction that changes this constraint
    alone, the Lagrangian has a slope, which is the multiplier, and a curvature. That does not depend on the units of the function and of
    the unknowns.

    Parameters
    ----------
    x, sides, slope : array, n
        The minimum, the active bounds, and the gradient.
    values : array, m
        The constraints.
    slopes : array, m times n
        Their Jacobian.
    low, high : array, m
        Their limits.
    near : array, m
        How near to its limit a constraint may be active.
    curvature : callable
        ``curvature(direction, multipliers)``: the second derivative of the Lagrangian along a direction.

    Returns
    -------
    multipliers, active : array, m
        See `Optimum`.
    """
    scale = 1 + np.abs(values)
    below, above = values - low, high - values
    side = np.where(above < below, 1, -1)
    slack = np.minimum(below, above)
    equal = high - low <= EQUAL * scale
    candidates = equal | (slack <= near)
    free = slopes * (sides == 0)
    directions = np.zeros(free.shape)
    directions[candidates] = np.linalg.pinv(free[candidates]).T

    multipliers = -directions @ slope
    push = np.where(side > 0, multipliers, -multipliers)
    active = equal | (candidates & (push > SMALLEST_PUSH * np.max(np.abs(multipliers), initial=0.0)))
    for number in np.flatnonzero(active & ~equal & (slack > TIGHT * np.abs(values))):
        curved = curvature(directions[number], multipliers)
        active[number] = curved <= 0 or push[number] > curved * slack[number]
    duals = np.zeros(len(values))
    if active.any():
        duals[active] = np.linalg.lstsq(free[active].T, -slope * (sides == 0), rcond=None)[0]
    marks = np.where(active, side, 0)
    marks[active], duals[active] = with_independent(marks[active], duals[active], free[active], equal[active])
    return duals, marks


def with_independent(marks: Any, multipliers: Any, slopes: Any, equal: Any) -> tuple[Any, Any]:
    """Return the marks of active constraints, with `FOLLOWS` for those whose gradients depend on the gradients of others, and multipliers.

    Where constraints say the same near the solution (an equation that is given twice), the solution is a smooth function of parameters,
    although its multipliers are not unique: the other constraints determine it, for any constant multipliers of these.

    Parameters
    ----------
    marks : array of int, m
        See `Optimum`.
    multipliers : array, m
        Any that fit.
    slopes : array or sparse matrix, m times n
        The gradients in the unknowns that are free.
    equal : array of bool, m
        Which of them are equations.
    """
    if not len(marks):
        return marks, multipliers
    follows, multipliers = without_dependence(slopes, multipliers, equal)
    return np.where(follows, FOLLOWS, marks), multipliers


def optimum(
    found: Optimum,
    function: Callable[[Any], Any],
    constraints: Sequence[Constraint] = (),
    bounds: tuple[Any, Any] | None = None,
    *,
    sparse: bool = False,
) -> tuple[Any, Any]:
    """Return a minimum and its multipliers with their derivatives.

    Parameters
    ----------
    found : Optimum
        The minimum. Its arrays are constants.
    function : callable
        ``function(x)``, a number.
    constraints : sequence of Constraint
        The constraints.
    bounds : tuple of two arrays, optional
        The lower and the upper bounds of `x`.
    sparse : bool
        Whether the Jacobian of the equations is a sparse matrix.

    Returns
    -------
    x, multipliers : Array
        The same numbers.
    """
    count = np.size(found.x)
    shape = np.shape(found.x)
    sides, active = stop_gradient(found.sides), stop_gradient(found.active)

    def lagrangian(x: Any, multipliers: Any) -> Any:
        return function(x) + np.sum(multipliers * _joined(constraints, x))

    def with_bounds(x: Any, slope: Any) -> Any:
        if bounds is None:
            return slope
        low, high = bounds
        target = np.where(sides < 0, low, np.where(sides == 1, high, 0.0))
        target = np.where(sides == 2, stop_gradient(found.x), target)
        return np.where(sides == 0, slope, x - target)

    if not constraints:
        x = attach_derivative(lambda x: with_bounds(x, grad(function)(x)), found.x, sparse=sparse)
        return x, found.duals

    def equations(unknowns: Any) -> Any:
        x, multipliers = np.reshape(unknowns[:count], shape), unknowns[count:]
        first = with_bounds(x, grad(lagrangian)(x, multipliers))
        values = _joined(constraints, x)
        low = np.concatenate([constraint.low for constraint in constraints])
        high = np.concatenate([constraint.high for constraint in constraints])
        target = np.where(active < 0, low, np.where(active == 1, high, 0.0))
        constant = (active == 0) | (active == FOLLOWS)
        rest = np.where(constant, multipliers - stop_gradient(found.duals), values - target)
        return np.concatenate([np.ravel(first), rest])

    whole = np.concatenate([np.ravel(found.x), found.duals])
    whole = attach_derivative(equations, whole, sparse=sparse)
    return np.reshape(whole[:count], shape), whole[count:]


def _joined(constraints: Sequence[Constraint], x: Any) -> Any:
    return np.concatenate([one.function(x) for one in constraints])
