"""Solvers of SciPy that get traced arrays: they run with numbers, and what they return has the derivatives of its equations."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import hessian
from gradtape.api.transforms.gradient import grad, jvp
from gradtape.errors import ArgumentError, ConcretizationError, GradtapeWarning, warn
from gradtape.habits import nearest
from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import SOLVERS
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import abstracting_trace, array_of
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.patching.opaque import as_numbers, paused, traced_parts
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten

Function = Callable[..., Any]


METHODS: Final = {
    "minimize": "Nelder-Mead Powell CG BFGS Newton-CG L-BFGS-B TNC COBYLA COBYQA SLSQP trust-constr dogleg trust-ncg "
    "trust-exact trust-krylov",
    "minimize_scalar": "Brent Bounded Golden",
    "root": "hybr lm broyden1 broyden2 anderson linearmixing diagbroyden excitingmixing krylov df-sane",
    "root_scalar": "bisect brentq brenth ridder toms748 newton secant halley",
    "linprog": "highs highs-ds highs-ipm",
    "least_squares": "trf dogbox lm",
    "curve_fit": "lm trf dogbox",
}
"""The methods of SciPy's solvers, as its documentation spells them."""


def check_method(caller: str, solver: str, method: Any) -> None:
    """Raise ArgumentError for the name of a method that a solver does not have, with the one that was probably meant.

    SciPy's own description of its solvers decides about names that are not in `METHODS`. Other objects are left to SciPy.
    """
    names = METHODS.get(solver, "").split()
    if not isinstance(method, str) or method.lower() in [name.lower() for name in names]:
        return
    optimize: Any = importlib.import_module("scipy.optimize")
    with suppress(ValueError):
        optimize.show_options(solver, method, disp=False)
        return
    folded = {name.lower().replace("-", ""): name for name in names}
    meant = nearest(method.lower().replace("-", ""), [*folded])
    raise ArgumentError(
        f"{caller} has no method {method!r}",
        where=user_site(),
        remedy=f"did you mean {folded[meant]!r}?" if meant else f"choose {', '.join(map(repr, names))}",
    )


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
    is_compiled : bool
        Whether the call is in a compiled function, and not on a tape.
    """

    def __init__(self, name: str, plain: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name, self.plain = name, plain
        module, _, function = name.rpartition(".")
        home: Any = importlib.import_module(module)
        signature = inspect.signature(getattr(home, function))
        bound = signature.bind(*args, **kwargs)
        self._explicit = [*bound.arguments]
        bound.apply_defaults()
        self.given: dict[str, Any] = dict(bound.arguments)
        if "args" in self.given and "kwargs" in signature.parameters:
            self._name_arguments(next(iter(self.given)))
        self.values = [handle.value for handle in traced_parts((args, kwargs))]
        self.is_compiled = any(abstracting_trace(value) is not None for value in self.values)

    def _name_arguments(self, function: str) -> None:
        """Give the user's function its named arguments, which SciPy takes since version 1.18, as further arguments by position."""
        called, named, count = self.given[function], self.given["kwargs"] or {}, len(self.extra())
        if named:
            self.given["args"] = (*self.extra(), *named.values())
            self.given[function] = lambda x, *parameters: called(
                x, *parameters[:count], **dict(zip(named, parameters[count:], strict=True))
            )

    def extra(self, name: str = "args") -> tuple[Any, ...]:
        """Return the further arguments of the user's function."""
        extra = self.given.get(name, ())
        if extra is None:
            return ()
        return tuple(extra) if isinstance(extra, tuple | list) else (extra,)

    def start(self, name: str = "x0") -> Any:
        """Return the point where the solver starts as an array of at least one axis: users pass lists too, with traced numbers in them."""
        point = self.given[name]
        return (np.stack(point) if isinstance(point, list | tuple) and point else point) * np.ones(1)

    def options(self, *names: str) -> dict[str, Any]:
        """Return those of the arguments that have these names, as numbers: they steer the solver, and have no derivative."""
        return {name: _as_option(self.given[name]) for name in names if name in self.given}

    def method(self) -> str:
        """Return the method in lower case; "" for the default.

        Raises
        ------
        ArgumentError
            For a name that SciPy's documentation of the solver does not have. SciPy itself says so when it runs: in a compiled function
            late, and never if nothing reads what it returns.
        """
        method = self.given["method"]
        if method is None:
            return ""
        check_method(self.name, self.name.rpartition(".")[2], method)
        return str(method).lower()

    def check(self, name: str, allowed: Sequence[Any]) -> None:
        """Raise ArgumentError if an argument is none of those that are known."""
        if self.given[name] not in allowed:
            raise self._no_such(
                name, ", ".join(repr(allowed_value) for allowed_value in allowed if allowed_value is not None)
            )

    def _no_such(self, name: str, choices: str) -> ArgumentError:
        return ArgumentError(
            f"{self.name} has no {name} {self.given[name]!r}", where=user_site(), remedy=f"choose {choices}"
        )

    def other_options(self, *names: str) -> dict[str, Any]:
        """Return the arguments of the call but those of these names, as `options` does; keyword arguments of any name are among them."""
        names_kept = [name for name in self._explicit if name not in (*names, "args", "kw", "kwargs")]
        further = {**(self.given.get("kw") or {}), **(self.given.get("kwargs") or {})}
        return self.options(*names_kept) | {key: _as_option(item) for key, item in further.items()}

    def derivative(self, name: str, function: Bound, transform: Function) -> Any:
        """Return what the solver gets for a derivative: the caller's own function on tapes, if there is one, or a compiled one.

        Parameters
        ----------
        name : str
            The argument of the solver.
        function : Bound
            What is to be differentiated.
        transform : callable
            `gradtape.grad`, `jacobian`, `hessian` or `product`.
        """
        derivative = self.given.get(name)
        if isinstance(derivative, str):
            return derivative
        if callable(derivative) and not self.is_compiled:
            function_of_user, extra = as_numbers(derivative), as_numbers(self.extra())
            return lambda *points: function_of_user(*points, *extra)
        return function.derivative(transform)

    def on_host(
        self, function: Any, start: Any, solve: Function, like: dict[str, Any], *numbers: Any
    ) -> dict[str, Any]:
        """Return what a solver returns, without derivatives.

        Parameters
        ----------
        function : callable, or a sequence of callables
            ``function(x)``, the user's. In compiled functions it is compiled.
        start : array_like
            An array of the type of `x`.
        solve : callable
            ``solve(function, *numbers) -> results``, a dictionary: calls SciPy's solver.
        like : dict of array_like
            Arrays of the types of the results, by name. On a tape there may be further results.
        *numbers : array_like, or nests of them
            Further arguments that may be traced, for `solve`.

        Returns
        -------
        dict
            The results.
        """
        functions = list(function) if isinstance(function, list | tuple) else [function]
        start = zeros_like(start)
        leaves, spec = flatten(numbers)
        if not self.is_compiled:

            def run() -> Any:
                bound: list[Any] = [PlainFunction(each, start) for each in functions]
                arguments = unflatten(spec, [as_numbers(leaf) for leaf in leaves])
                return solve(bound if function is not functions[0] else bound[0], *arguments)

            result: dict[str, Any] = paused(self.name, run, (), {}, self.values)
            return result
        closed = [
            ClosedFunction(each, as_value(unwrap(start)), f"the function given to {self.name}")
            for each in functions
        ]
        inputs = [as_value(unwrap(leaf)) * 1.0 for leaf in leaves]
        ends = np.cumsum([len(inputs), *[len(each.captured) for each in closed]])

        def call(*arrays: Any) -> tuple[Any, ...]:
            arguments = unflatten(
                spec, [array if array.ndim else array[()] for array in arrays[: len(inputs)]]
            )
            bound = [
                CompiledFunction(each, arrays[first:last])
                for each, first, last in zip(closed, ends, ends[1:], strict=False)
            ]
            results = solve(bound if function is not functions[0] else bound[0], *arguments)
            return tuple([_result(results, name, example) for name, example in like.items()])

        types = [as_value(unwrap(example)).aval for example in like.values()]
        constants = [
            _constant(value) for value in (*inputs, *[part for each in closed for part in each.captured])
        ]
        outs = call_host(enter_function(call), types, constants)
        return dict(zip(like, map(Array, outs), strict=True))


def _result(results: dict[str, Any], name: str, example: Any) -> Any:
    array = results.get(name)
    return np.zeros(np.shape(example)) if array is None else np.asarray(array)


def result_of(fields_of_result: dict[str, Any], **fields: Any) -> Any:
    """Return a result as SciPy's solvers do: the fields that were found, with some replaced."""
    optimize: Any = importlib.import_module("scipy.optimize")
    result = (
        fields_of_result
        if isinstance(fields_of_result, optimize.OptimizeResult)
        else optimize.OptimizeResult(fields_of_result)
    )
    result.update(fields)
    return result


def _as_option(item: Any) -> Any:
    """Return an option with Python's numbers for scalars that are arrays of a trace: a name outside the function may have them."""
    if isinstance(item, Handle) and not item.ndim:
        return array_of(unwrap(item), "an option of a solver, which is the number").item()
    if isinstance(item, dict):
        return {key: _as_option(part) for key, part in item.items()}
    return type(item)(map(_as_option, item)) if type(item) in (list, tuple) else item


def _constant(value: Value) -> Value:
    constant: Value = unwrap(stop_gradient(Array(value)))
    return constant


class Bound:
    """The user's function, of numbers, and its derivatives, compiled."""

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError

    def derivative(self, transform: Function) -> Function:
        """Return ``transform(function)`` in its first argument: of `gradtape.grad`, `jacobian`, `hessian` or `product`."""
        raise NotImplementedError


class CompiledFunction(Bound):
    """A closed function with numbers for the arrays that it reads from outside."""

    def __init__(self, closed: ClosedFunction, captured: Sequence[Any]) -> None:
        self._closed, self._captured = closed, captured

    def __call__(self, x: Any) -> Any:
        return self._closed.compiled(_floats(x), *self._captured)

    def derivative(self, transform: Function) -> Function:
        derived = self._closed.derived(transform)
        return lambda *points: derived(*map(_floats, points), *self._captured)


class PlainFunction(Bound):
    """The user's function as it is, on a tape that pauses; its derivatives are compiled if it can be traced apart from its parameters."""

    def __init__(self, function: Function, start: Any) -> None:
        self._function, self._start = function, start
        self._numeric = as_numbers(function)
        self._compiled: CompiledFunction | None = None

    def __call__(self, x: Any) -> Any:
        return self._numeric(_floats(x))

    def derivative(self, transform: Function) -> Function:
        if self._compiled is None:
            try:
                closed = ClosedFunction(
                    self._function, as_value(self._start), "the function given to a solver"
                )
            except ConcretizationError:
                return lambda *points: as_numbers(transform(self._function)(*map(_floats, points)))
            numbers = [as_numbers(Array(value)) for value in closed.captured]
            self._compiled = CompiledFunction(closed, numbers)
        return self._compiled.derivative(transform)


def _floats(x: Any) -> Any:
    return np.asarray(x, complex if np.iscomplexobj(x) else float)


def zeros_like(x: Any) -> Any:
    """Return zeros of the shape of an array, complex if it is."""
    return np.zeros(np.shape(x), complex if np.iscomplexobj(x) else float)


def product(function: Function) -> Function:
    """Return the product of the Hessian of a function with a vector: ``product(x, vector, *parameters)``."""

    def multiplied(x: Any, vector: Any, *parameters: Any) -> Any:
        return jvp(lambda x: grad(function)(x, *parameters), (x,), (vector,))[1]

    return multiplied


def weighted_hessian(function: Function) -> Function:
    """Return the Hessian of the product of a function's vector with another: ``weighted_hessian(x, vector, *parameters)``."""

    def weighted(x: Any, vector: Any, *parameters: Any) -> Any:
        return hessian(lambda x: np.sum(function(x, *parameters) * vector))(x)

    return weighted


def second(function: Function) -> Function:
    """Return the second derivative of a function of one number."""
    return grad(grad(function))


def warn_of(name: str, residual: Any, message: str = "") -> None:
    """Warn that a solver has not converged."""
    residual = np.nan if residual is None else residual
    size = float(np.max(np.abs(np.asarray(as_numbers(residual), float)), initial=0.0))
    warn(
        GradtapeWarning,
        f"{name} has not converged: the residual is {size:.3g}",
        where=user_site(),
        why=message,
        remedy="the derivative is that of the point returned; start nearer to the solution, or allow more iterations",
    )


INTEGERS: Final = {"success": True, "status": 0, "nit": 0, "nfev": 0}
"""What most solvers say of their work, and its types."""


def solver(*names: str) -> Callable[[Function], Function]:
    """Let the decorated function, of a `SolverCall`, run in place of SciPy's solvers when traced arrays reach them.

    It returns NotImplemented where it does not follow a call.
    """

    def enter(rule: Function) -> Function:
        for name in names:
            public = name if "." in name else f"scipy.optimize.{name}"

            def run(plain: Function, args: Any, kwargs: Any, name: str = public) -> Any:
                return rule(SolverCall(name, plain, args, kwargs))

            SOLVERS[public] = run
        return rule

    return enter
