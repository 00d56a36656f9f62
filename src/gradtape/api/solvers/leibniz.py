"""Leibniz' rule: the derivative of an integral that SciPy computes is the integral of the derivative, by the same routine.

For ``I = integral of f(x, p) from a to b``, ``dI = f(b, p) db - f(a, p) da + (integral of df/dp) dp``. The integrals of the partial
derivatives are those of one function with as many results as there are parameters, and are integrals of the same sort: their
derivatives follow in turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.custom.call import ForwardRule, Operands, attached
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ConcretizationError
from gradtape.ir.graph import Node, Value
from gradtape.kinds.control import visible_inputs
from gradtape.kinds.operands import as_value
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.lru import LRU
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap
from gradtape.trace.translation.calls import call_translated
from gradtape.trees import flatten


class Integrand:
    """An integrand with numbers for its parameters, compiled.

    Parameters
    ----------
    closed : ClosedFunction
    captured : sequence of ndarray
        The parameters.
    """

    def __init__(self, closed: ClosedFunction, captured: Sequence[Any]) -> None:
        self._closed, self._captured = closed, captured
        self.shape: tuple[int, ...] = closed.body.outputs[0].shape

    def __call__(self, x: float) -> Any:
        return self._closed.compiled(np.float64(x), *self._captured)

    def at(self, points: Any) -> Any:
        """Return its values at an array of points, on the first axes; they are padded, lest each number of points is compiled."""
        flat = np.ravel(points)
        padded = np.full(max(16, 1 << (flat.size - 1).bit_length()), flat[0] if flat.size else 1.0)
        padded[: flat.size] = flat
        values = self._closed.derived(_along_points)(padded, *self._captured)
        return np.reshape(values[: flat.size], (*np.shape(points), *self.shape))


def _along_points(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, *captured: Any) -> Any:
        return vmap(lambda point: function(point, *captured))(x)

    return apply


class Routine(NamedTuple):
    """A routine of SciPy's for integrals (or sums) over one variable.

    Attributes
    ----------
    name : str
        By which messages name it.
    run : callable
        ``run(f, a, b, **options) -> (value, error)``, with numbers: `f` is an `Integrand`.
    options : dict
        Numbers and texts that steer it.
    weight : callable or None
        By which it multiplies the integrand; None for 1.
    has_moving_limits : bool
        Whether there is a derivative in the limits; else they are constants.
    """

    name: str
    run: Callable[..., tuple[Any, Any]]
    options: dict[str, Any]
    weight: Callable[[Any], Any] | None = None
    has_moving_limits: bool = True


def called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what a function of the user's returns for traced arguments; one that looks at their numbers is translated from its code."""
    try:
        return function(*args)
    except ConcretizationError as error:
        try:
            return call_translated(function, args, {}, error.what)
        except Exception:
            raise error from None


def array_of(returned: Any) -> Any:
    """Return what a user's function returned as one array: it may be a list of numbers."""
    if not isinstance(returned, list | tuple):
        return returned
    return np.stack([array_of(part) * 1.0 for part in returned])


_known: Final[LRU[Any, str]] = LRU(lambda: 1024)
"""The keys of host functions by integrand and routine, so that each iteration of a loop around a tape finds the same."""


def integrate(function: Callable[[Any], Any], limits: Sequence[Any], routine: Routine) -> tuple[Any, Any]:
    """Return an integral with its derivatives, and the estimate of its error.

    Parameters
    ----------
    function : callable
        ``function(x) -> array``, traced once. What it reads from outside are the parameters.
    limits : sequence of array_like
        The two limits, numbers.
    routine : Routine
    """
    described = f"the function given to {routine.name}"
    closed = ClosedFunction(lambda x: array_of(function(x)) * 1.0, as_value(1.0), described)
    if not routine.has_moving_limits:
        limits = [stop_gradient(limit) for limit in limits]
    ends = tuple([Array(as_value(unwrap(limit)) * 1.0) for limit in limits])
    operands = Operands((*ends, *[Array(value) for value in closed.captured]))
    integral = operands.run(lambda *values: _on_host(closed, routine, values), {})
    rule = _LeibnizRule(operands, closed, routine)
    value, error = attached(integral, operands, (), rule)
    return value, error


def _on_host(closed: ClosedFunction, routine: Routine, operands: Sequence[Any]) -> tuple[Any, Any]:
    like = closed.body.outputs[0]
    shape, dtype = like.shape, np.dtype(np.result_type(like.dtype, np.float64))

    def call(*arrays: Any) -> tuple[Any, ...]:
        a, b = [array[()] for array in arrays[:2]]
        value, error = routine.run(Integrand(closed, arrays[2:]), a, b, **routine.options)
        if np.isnan(a) or np.isnan(b):  # QUADPACK returns 0
            value, error = np.full(shape, np.nan), np.nan
        return np.asarray(value, dtype), np.asarray(error, float)

    identity = (closed.body, routine.name, repr(sorted(routine.options.items())))
    key = None if closed.body.has_rules else _known.get(identity)
    if key is None:
        key = enter_function(call)
        if not closed.body.has_rules:
            _known[identity] = key
    types = [as_value(np.zeros(shape, dtype)).aval, as_value(0.0).aval]
    value, error = call_host(key, types, [unwrap(stop_gradient(operand)) for operand in operands])
    return Array(value), Array(error)


class _LeibnizRule(ForwardRule):
    """Leibniz' rule. The first two operands are the limits, the others are the parameters."""

    moves_all = False

    def __init__(self, operands: Operands, closed: ClosedFunction, routine: Routine) -> None:
        super().__init__(routine.name, operands)
        self._closed, self._routine = closed, routine

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        values = [Array(value) for value in visible_inputs(node)]
        limits, captured = values[:2], values[2:]
        terms = []
        for limit, tangent, sign in zip(limits, tangents, (-1.0, 1.0), strict=False):
            if tangent is not None:
                terms.append(sign * self._at(limit, captured) * Array(tangent))
        moved = {k: tangent for k, tangent in enumerate(tangents[2 : len(values)]) if tangent is not None}
        if moved:
            moving = list(moved)
            slopes, _ = integrate(lambda x: self._slopes(x, captured, moving), limits, self._routine)
            change = slopes @ np.concatenate([np.reshape(Array(tangent), -1) for tangent in moved.values()])
            terms.append(np.reshape(change, node.outs[0].shape))
        return [unwrap(sum(terms[1:], terms[0])), None]

    def _at(self, limit: Any, captured: Sequence[Any]) -> Any:
        """Return the integrand at a limit; it is zero at an infinite one, or there would be no integral, and NaN at NaN."""
        is_finite = np.isfinite(limit)
        x = np.where(is_finite, limit, np.float64(1.0))  # the integrand takes double precision
        weight = 1.0 if self._routine.weight is None else self._routine.weight(x)
        beyond = np.where(np.isnan(limit), np.nan, 0.0)
        return np.where(is_finite, weight * self._closed.apply(x, *captured), beyond)

    def _slopes(self, x: Any, captured: Sequence[Any], moving: Sequence[int]) -> Any:
        """Return the Jacobian of the integrand in parameters: a vector, or a matrix with a row for each of its results."""

        def of_moving(*parts: Any) -> Any:
            every = list(captured)
            for position, part in zip(moving, parts, strict=True):
                every[position] = part
            return self._closed.apply(x, *every)

        self._closed.check(x, *captured)
        shape = self._closed.body.outputs[0].shape
        slopes = jacobian(of_moving, argnums=tuple(range(len(moving))))(*[captured[k] for k in moving])
        lead = (int(np.prod(shape)),) if shape else ()
        return np.concatenate([np.reshape(slope, (*lead, -1)) for slope in slopes], axis=-1)


def componentwise(scalar: Callable[..., tuple[Any, Any]], f: Integrand, *, takes_arrays: bool = False) -> Any:
    """Return the integrals of the components of a function, and their largest error, by a routine for one number.

    Parameters
    ----------
    scalar : callable
        ``scalar(function) -> (value, error)``. Most components are evaluated at the same points.
    f : Integrand
    takes_arrays : bool
        Whether the routine calls the function with arrays of points.
    """
    evaluate = f.at if takes_arrays else f
    if not f.shape:
        return scalar(evaluate)
    evaluated: dict[Any, Any] = {}

    def component(k: int, x: Any) -> Any:
        key = (np.shape(x), x.tobytes()) if takes_arrays else x
        components = evaluated.get(key)
        if components is None:
            components = evaluated[key] = np.reshape(evaluate(x), (*np.shape(x), -1))
        return components[..., k]

    parts = [scalar(functools.partial(component, k)) for k in range(int(np.prod(f.shape)))]
    values = np.reshape(np.array([value for value, _ in parts], float), f.shape)
    return values, max([error for _, error in parts], default=0.0)


def is_traced(*items: Any) -> bool:
    """Return whether an option is traced."""
    return any(isinstance(leaf, Array) for leaf in flatten(items)[0])
