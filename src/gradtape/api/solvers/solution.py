"""Solvers of SciPy that get traced arrays: they run with numbers, and what they return has the derivatives of its equations."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.tape.create import stop_gradient
from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import SOLVERS
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import abstracting_trace
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.patching.opaque import paused, traced_parts
from gradtape.trace.source.sites import user_site

Function = Callable[..., Any]


class SolverCall:
    """A call of one of SciPy's solvers with traced arrays in its arguments, or in what the user's function reads.

    Parameters
    ----------
    name : str
        The solver, as users import it.
    plain : callable
        SciPy's own function.
    args, kwargs
        What it was called with.

    Attributes
    ----------
    given : dict
        The arguments by name, with defaults.
    """

    def __init__(self, name: str, plain: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name, self.plain = name, plain
        self._arguments = args, kwargs
        module, _, function = name.rpartition(".")
        home: Any = importlib.import_module(module)
        self._bound = inspect.signature(getattr(home, function)).bind(*args, **kwargs)
        self._bound.apply_defaults()
        self.given: dict[str, Any] = dict(self._bound.arguments)
        self.values = [handle.value for handle in traced_parts((args, kwargs))]
        self.is_compiled = any(abstracting_trace(value) is not None for value in self.values)

    def extra(self, name: str = "args") -> tuple[Any, ...]:
        """Return the further arguments of the user's function."""
        extra = self.given.get(name, ())
        if extra is None:
            return ()
        return tuple(extra) if isinstance(extra, tuple | list) else (extra,)

    def options(self, *names: str) -> dict[str, Any]:
        """Return those of the arguments that have these names, as numbers: they steer the solver, and have no derivative."""
        return {name: _as_option(self.given[name]) for name in names if name in self.given}

    def numbers(self, **added: Any) -> Any:
        """Return what the solver returns on a tape: it runs with numbers, and with further arguments, while the tape pauses."""
        args, kwargs = self._arguments
        if added:
            self._bound.arguments.update(added)
            args, kwargs = self._bound.args, self._bound.kwargs
        return paused(self.name, self.plain, args, kwargs, self.values)

    def on_host(
        self, function: Function, start: Any, solve: Function, results: Sequence[Any], *numbers: Any
    ) -> list[Any]:
        """Return what a solver returns in a compiled function.

        Parameters
        ----------
        function : callable
            ``function(x)``, the user's: it is compiled, and called with numbers by the solver.
        start : array_like
            An array of the type of `x`.
        solve : callable
            ``solve(function, *numbers) -> results``: calls SciPy's solver; the function is compiled.
        results : sequence of array_like
            Arrays of the types of the results.
        *numbers : array_like
            Further arguments that may be traced, for `solve`.

        Returns
        -------
        list of Array
            The results, without derivatives.
        """
        closed = ClosedFunction(function, as_value(unwrap(start)), f"the function given to {self.name}")
        inputs = [as_value(unwrap(number)) * 1.0 for number in numbers]
        count = len(inputs)

        def call(*arrays: Any) -> tuple[Any, ...]:
            given = [array if array.ndim else array[()] for array in arrays[:count]]
            return tuple(map(np.asarray, solve(Bound(closed, arrays[count:]), *given)))

        types = [as_value(result).aval for result in results]
        constants = [_constant(value) for value in (*inputs, *closed.captured)]
        outs = call_host(enter_function(call), types, constants)
        return [Array(out) for out in outs]


def result_of(**fields: Any) -> Any:
    """Return a result as SciPy's solvers do."""
    optimize: Any = importlib.import_module("scipy.optimize")
    return optimize.OptimizeResult(fields)


def _as_option(item: Any) -> Any:
    """Return an option with Python's numbers for scalars that are arrays of a trace: a name outside of the function may have them."""
    if isinstance(item, Handle) and not item.ndim:
        kind: Any = {"b": bool, "i": int, "u": int}.get(item.dtype.kind, float)
        return kind(item)
    if isinstance(item, dict):
        return {key: _as_option(part) for key, part in item.items()}
    return type(item)(map(_as_option, item)) if type(item) in (list, tuple) else item


def _constant(value: Value) -> Value:
    constant: Value = unwrap(stop_gradient(Array(value)))
    return constant


class Bound:
    """The user's function with numbers for the arrays that it reads from outside, and its derivatives, compiled."""

    def __init__(self, closed: ClosedFunction, captured: Sequence[Any]) -> None:
        self._closed, self._captured = closed, captured

    def __call__(self, x: Any) -> Any:
        return self._closed.compiled(_floats(x), *self._captured)

    def derivative(self, transform: Function) -> Function:
        """Return ``transform(function)`` in its first argument: `gradtape.grad`, `jacobian` or `hessian`."""
        derived = self._closed.derived(transform)
        return lambda x: derived(_floats(x), *self._captured)


def _floats(x: Any) -> Any:
    return np.asarray(x, float)


def warn_of(name: str, residual: Any, message: str = "") -> None:
    """Warn that a solver has not converged."""
    size = float(np.max(np.abs(np.asarray(residual, float)), initial=0.0))
    warn(
        GradtapeWarning,
        f"{name} has not converged: the residual is {size:.3g}",
        where=user_site(),
        why=message,
        remedy="the derivative is that of the point returned; start nearer to the solution, or allow more iterations",
    )


def solver(*names: str) -> Callable[[Function], Function]:
    """Let the decorated function, of a `SolverCall`, run in place of SciPy's solvers when traced arrays reach them.

    It returns NotImplemented where it does not follow a call.
    """

    def enter(rule: Function) -> Function:
        for name in names:

            def run(plain: Function, args: Any, kwargs: Any, name: str = name) -> Any:
                return rule(SolverCall(name, plain, args, kwargs))

            SOLVERS[name] = run
        return rule

    return enter
