"""SciPy's optimisers with nested unknowns, compiled functions, and all the derivatives that a method takes.

The arguments are those of `scipy.optimize`. Results are its results, with the unknowns in the containers of `x0`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.debug.nonsmooth.line_search import Trials
from gradtape.api.ode.initial_value import METHODS as _ODE_METHODS
from gradtape.api.ode.initial_value import OWN, solve_by_own_steps
from gradtape.api.ode.initial_value import solve_ivp as traced_solve_ivp
from gradtape.api.solvers.minimize import WITH_GRADIENT, WITH_HESSIAN, WITH_PRODUCTS
from gradtape.api.solvers.nested import (
    Function,
    Program,
    Sparse,
    Unknowns,
    compiled_hessian,
    compiled_jacobian,
    compiled_product,
    compiled_value_and_grad,
    compiled_weighted_hessian,
    hessian_pattern,
    is_sparse,
    vector_of,
)
from gradtape.api.solvers.optimality import check_constraint
from gradtape.api.solvers.roots import WITH_JACOBIAN
from gradtape.api.solvers.solution import SolverCall, check_method
from gradtape.api.sparsity.transform import sparse_hessian
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import value_and_grad
from gradtape.api.transforms.jit import jit
from gradtape.api.uncertainty.estimates import Fit, remember, uncertainty
from gradtape.api.uncertainty.robust_losses import RobustLoss
from gradtape.errors import ArgumentError, GradtapeError, GradtapeWarning, ShapeError, warn
from gradtape.habits import SCIPY as _HABITS
from gradtape.habits import answering as _answering
from gradtape.habits import nearest as _nearest
from gradtape.habits import suggests_keywords, unknown_keyword
from gradtape.progress import counting
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.opaque import traced_parts
from gradtape.trace.source.sites import user_site

NEAR_KINK: Final = 1e-2
"""How near a kink counts where a run has failed: a line search gives up some way before it, since the slopes beyond it are others."""

NEAR_CROSSING: Final = 1e-6
"""How near a kink counts where the gradient is known to jump."""

ENDS_ON_SLOPES: Final = frozenset({"l-bfgs-b"})
"""Methods of which a run has success where its steps reduce the function by little, however steep it is there."""

OUT_OF_ITERATIONS: Final = 1
"""SciPy's status of a run that has reached its limit of iterations, at no place of its own."""

__all__ = ["curve_fit", "least_squares", "minimize", "root", "solve_ivp", "uncertainty"]


def _number(function: Function, x: Any, *args: Any) -> Any:
    value = function(x, *args)
    return np.reshape(value, ()) if np.size(value) == 1 else value


def _numbers(function: Function, x: Any, *args: Any) -> Any:
    return vector_of(function(x, *args))


def _half_of_squares(function: Function, x: Any, *args: Any) -> Any:
    return np.sum(vector_of(function(x, *args)) ** 2) / 2


def _tuple(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, tuple | list) else (args,)


@suggests_keywords
def minimize(
    fun: Function,
    x0: Any,
    args: Any = (),
    *,
    method: str | None = None,
    bounds: Any = None,
    constraints: Any = (),
    sparse: Sparse = "auto",
    tol: float | None = None,
    callback: Function | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Minimise a function of nested arrays with `scipy.optimize.minimize`, and pass the derivatives that the method uses.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)``: NumPy code that returns a number.
    x0 : nest of array_like
        The initial guess; a list of numbers is an array. `x` has its containers and shapes.
    args : tuple
        Further arguments.
    method : str, optional
        A method of `scipy.optimize.minimize`; by default the same as there. Compiled derivatives are passed to methods that use them:
        gradients, and Hessians ("dogleg", "trust-exact") or Hessian-vector products ("Newton-CG", "trust-ncg", "trust-krylov",
        "trust-constr").
    bounds : pair, scipy.optimize.Bounds or list, optional
        Lower and upper bounds: each None, a number, or containers like `x0` or its outer ones; for a single array a list of pairs too.
    constraints : dict, constraint of scipy.optimize, or list of these
        Their functions get nested unknowns; derivatives are compiled.
    sparse : {"auto", True, False}
        Whether "trust-constr" gets the Hessian as a sparse matrix: by default where there are 500 unknowns or more, and at most a tenth
        of its elements differ from zero.
    tol, callback, options
        As for `scipy.optimize.minimize`; ``callback(x)`` gets nested unknowns.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With nested `x` and `jac`.

    Raises
    ------
    DtypeError
        If `x0` is not real.
    NonScalarOutputError
        If `fun` returns several numbers.

    See Also
    --------
    least_squares : For sums of squares.

    Notes
    -----
    Functions are compiled at their first use. Runs that take longer than two seconds show a progress bar, unless ``gt.config.progress``
    is False. On tapes and in compiled functions the solution has derivatives, like that of SciPy's own function.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def misfit(x):
    ...     return np.sum((x["slope"] * np.arange(3.0) + x["level"] - np.array([1.0, 3.0, 5.0])) ** 2)
    >>> found = gt.scipy.minimize(misfit, {"slope": 0.0, "level": 0.0}, tol=1e-9)
    >>> print(f"{found.x['slope']:.4f} {found.x['level']:.4f}")
    2.0000 1.0000
    """
    check_callable(fun, "gt.scipy.minimize")
    check_method("gt.scipy.minimize", "minimize", method)
    optimize: Any = importlib.import_module("scipy.optimize")
    unknowns, args = Unknowns(x0, "gt.scipy.minimize"), _tuple(args)
    program = Program(fun, unknowns, _number)
    ends = unknowns.bounds(bounds, "gt.scipy.minimize")
    several = constraints if isinstance(constraints, list | tuple) else [constraints]
    for each in several:
        check_constraint(each, "gt.scipy.minimize")
    solver = (method or ("slsqp" if several else "l-bfgs-b" if bounds is not None else "bfgs")).lower()
    more: dict[str, Any] = {"method": method, "tol": tol, "options": options}
    if callback is not None:
        more["callback"] = _nested_callback(callback, unknowns)
    start = unknowns.vector
    if any(True for _ in traced_parts((fun, x0, args, constraints, bounds))):
        limits = [_plain_constraint(constraint, unknowns) for constraint in several]
        result = optimize.minimize(
            lambda x: program.traced(x, *args), start, bounds=ends, constraints=limits, **more
        )
        return _with_nested(result, unknowns)
    more["constraints"] = [
        _compiled_constraint(constraint, unknowns, solver == "trust-constr") for constraint in several
    ]
    more["args"] = args
    value = program.compiled(compiled_value_and_grad)
    if solver in WITH_GRADIENT:
        more["jac"] = True
    if solver in WITH_HESSIAN:
        more["hess"] = program.compiled(compiled_hessian)
    elif solver == "trust-constr" and is_sparse(
        sparse, lambda: program.compiled(hessian_pattern)(start, *args), start
    ):
        more["hess"] = program.compiled(sparse_hessian)
    elif solver in WITH_PRODUCTS:
        more["hessp"] = _with_vector_second(program.compiled(compiled_product))
    plain = program.compiled(jit)
    trials = Trials(value)
    function = trials if solver in WITH_GRADIENT else lambda x, *args: float(plain(x, *args))
    with counting("minimising", "evaluation", lambda: program.calls):
        result = optimize.minimize(function, start, bounds=ends, **more)
    if not np.isfinite(result.fun):
        _warn_of_nan(fun, unknowns.nested(result.x), args, result.fun)
    elif solver in WITH_GRADIENT and _may_chatter(result, solver, trials):
        _warn_of_kink(fun, unknowns, result, args, trials)
    elif not result.success and result.status != OUT_OF_ITERATIONS:
        _warn_of_kink(fun, unknowns, result, args, None)
    fit = Fit(fun, unknowns, args, _number, ends, "constraints" if several else "")
    return remember(_with_nested(result, unknowns), fit)


def _warn_of_nan(fun: Function, x: Any, args: tuple[Any, ...], value: Any) -> None:
    """Warn of a run that has ended where the function is not finite, with the op that made the number if it can be found."""
    numerics: Any = importlib.import_module("gradtape.api.debug.numerics")
    why = "a step has left the domain of the function, or the function has no minimum"
    try:
        with numerics.check_numerics(), np.errstate(all="ignore"):
            value_and_grad(lambda x: fun(x, *args))(x)
    except GradtapeError as cause:
        why += f"; {str(cause).splitlines()[0]}"
    with np.printoptions(precision=4, threshold=8, legacy="1.25"):
        place = str(x)
    warn(
        GradtapeWarning,
        f"gt.scipy.minimize has ended where the function is {float(value)}: x = {place}",
        where=user_site(),
        why=why,
        remedy="keep the unknowns in the domain by bounds=, write positive unknowns as np.exp(x), or start nearer to the minimum, with "
        "unknowns of similar magnitude",
    )


def _may_chatter(found: Any, method: str, trials: Trials) -> bool:
    """Return whether a run may have ended between the sides of a kink: its line search failed, or its steps became small on a slope."""
    if method not in ENDS_ON_SLOPES:
        return not found.success and found.status != OUT_OF_ITERATIONS
    return found.status != OUT_OF_ITERATIONS and trials.is_steep(np.ravel(found.jac))


def _warn_of_kink(
    fun: Function, unknowns: Unknowns, found: Any, args: tuple[Any, ...], trials: Trials | None
) -> None:
    """Warn if a run has ended between the sides of a kink, which gradients cannot tell from a slope."""
    debug: Any = importlib.import_module("gradtape.api.debug")
    crossing = None if trials is None else trials.crossing(found.x, *args)
    places = [] if crossing is None else [(crossing, NEAR_CROSSING)]
    if not found.success:
        places.append((found.x, NEAR_KINK))
    kinks: list[Any] = []
    for x, near in places:
        with contextlib.suppress(GradtapeError):  # a function that cannot run op by op
            kinks += debug.kinks(lambda x: fun(x, *args), unknowns.nested(x), near=near)
    at = next((kink for kink in kinks if kink.is_stationary), kinks[0] if kinks else None)
    if at is not None:
        others = f" and {at.count - 1} more" if at.count > 1 else ""
        distance = (
            at.distance if crossing is None or at.is_stationary else float(np.linalg.norm(found.x - crossing))
        )
        warn(
            GradtapeWarning,
            f"gt.scipy.minimize stopped near a {at.kind} of {at.op}{others}, at a distance of {distance:.2g}",
            where=at.site,
            why="zero is between the gradients of both sides: it is likely a minimum, at which no gradient is small"
            if at.is_stationary
            else "a line search that crosses it finds slopes of one side and values of the other",
            remedy='accept it, smooth the kink (np.sqrt(x**2 + tiny) for np.abs), or use a method without gradients ("Nelder-Mead"); '
            "gt.debug.kinks shows both sides",
        )


def _with_vector_second(function: Function) -> Function:
    return lambda x, vector, *args: function(x, np.asarray(vector, float), *args)


def _with_nested(found: Any, unknowns: Unknowns) -> Any:
    """Return a result with nested unknowns."""
    found.x = unknowns.nested(found.x)
    for name in ("jac", "grad"):  # "trust-constr" has a list of the constraints' Jacobians as jac
        slope = found.get(name)
        if isinstance(slope, np.ndarray) and slope.shape == unknowns.vector.shape:
            found[name] = unknowns.nested(slope)
    return found


def _nested_callback(callback: Function, unknowns: Unknowns) -> Function:
    """Return a callback of the kind that the caller's is: SciPy looks at the names of its arguments."""
    if list(inspect.signature(callback).parameters) == ["intermediate_result"]:

        def report(*, intermediate_result: Any) -> Any:
            return callback(intermediate_result=_with_nested(intermediate_result, unknowns))

        return report
    return lambda x, *more: callback(unknowns.nested(x), *more)


def _plain_constraint(given: Any, unknowns: Unknowns) -> Any:
    """Return a constraint on the vector, in traced code."""
    if isinstance(given, dict):
        program = Program(given["fun"], unknowns, _numbers)
        return {"type": given["type"], "fun": program.traced, "args": _tuple(given.get("args", ()))}
    if hasattr(given, "A"):
        return given
    optimize: Any = importlib.import_module("scipy.optimize")
    program = Program(given.fun, unknowns, _numbers)
    return optimize.NonlinearConstraint(program.traced, given.lb, given.ub)


def _compiled_constraint(given: Any, unknowns: Unknowns, takes_hessian: bool) -> Any:
    """Return a constraint on the vector with compiled derivatives."""
    if hasattr(given, "A"):
        return given
    optimize: Any = importlib.import_module("scipy.optimize")
    program = Program(given["fun"] if isinstance(given, dict) else given.fun, unknowns, _numbers)
    values, slopes = program.compiled(jit), program.compiled(compiled_jacobian)
    if isinstance(given, dict):
        extra = _tuple(given.get("args", ()))
        if not takes_hessian:
            return {"type": given["type"], "fun": values, "jac": slopes, "args": extra}
        high = 0.0 if given["type"].lower() == "eq" else np.inf
        second = program.compiled(compiled_weighted_hessian)
        return optimize.NonlinearConstraint(
            lambda x: values(x, *extra),
            0.0,
            high,
            lambda x: slopes(x, *extra),
            lambda x, v: second(x, v, *extra),
        )
    more = {"hess": program.compiled(compiled_weighted_hessian)} if takes_hessian else {}
    keep = {"keep_feasible": given.keep_feasible} if takes_hessian else {}
    return optimize.NonlinearConstraint(values, given.lb, given.ub, slopes, **more, **keep)


def least_squares(
    fun: Function,
    x0: Any,
    args: Any = (),
    *,
    bounds: Any = None,
    method: str | None = None,
    sparse: Sparse = "auto",
    **options: Any,
) -> Any:
    """Minimise a sum of squares with `scipy.optimize.least_squares` and a compiled Jacobian.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)``: NumPy code that returns the residuals, as an array or nested arrays.
    x0 : nest of array_like
        The initial guess; a list of numbers is an array. `x` has its containers and shapes.
    args : tuple
        Further arguments.
    bounds : pair or scipy.optimize.Bounds, optional
        As for `minimize`.
    method : {"trf", "dogbox", "lm"}, optional
        By default "trf".
    sparse : {"auto", True, False}
        Whether the Jacobian is a sparse matrix ("trf" and "dogbox"): by default where there are 500 unknowns or more, and at most a tenth
        of its elements differ from zero.
    **options
        As `scipy.optimize.least_squares` takes them: ``loss``, ``f_scale``, ``x_scale``, ``ftol``, ...

    Returns
    -------
    scipy.optimize.OptimizeResult
        With nested `x` and `grad`. `fun` is a vector, and `jac` a matrix.

    Raises
    ------
    DtypeError
        If `x0` is not real.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> t = np.linspace(0.0, 2.0, 5)
    >>> found = gt.scipy.least_squares(lambda x: x[0] * np.exp(-x[1] * t) - 3 * np.exp(-0.5 * t), (1.0, 1.0))
    >>> print(f"{found.x[0]:.4f} {found.x[1]:.4f}")
    3.0000 0.5000
    """
    check_callable(fun, "gt.scipy.least_squares")
    check_method("gt.scipy.least_squares", "least_squares", method)
    optimize: Any = importlib.import_module("scipy.optimize")
    _check_options(least_squares, options, optimize.least_squares)
    unknowns, args = Unknowns(x0, "gt.scipy.least_squares"), _tuple(args)
    program = Program(fun, unknowns, _numbers)
    ends = unknowns.bounds(bounds, "gt.scipy.least_squares")
    more = dict(options) | ({"bounds": ends} if ends is not None else {})
    more |= {"method": method} if method is not None else {}
    start = unknowns.vector
    if any(True for _ in traced_parts((fun, x0, args, bounds, options))):
        return _with_nested(
            optimize.least_squares(lambda x: program.traced(x, *args), start, **more), unknowns
        )
    slopes = program.jacobian(method != "lm", sparse, start, *args)
    with counting("minimising", "evaluation", lambda: program.calls):
        result = optimize.least_squares(program.compiled(jit), start, jac=slopes, args=args, **more)
    loss_name = options.get("loss", "linear")
    loss = None if loss_name == "linear" else RobustLoss(loss_name, float(options.get("f_scale", 1.0)))
    flat: Function = _half_of_squares if loss is None else loss.of_function
    return remember(_with_nested(result, unknowns), Fit(fun, unknowns, args, flat, ends, loss=loss))


@suggests_keywords
def root(
    fun: Function,
    x0: Any,
    args: Any = (),
    *,
    method: str = "hybr",
    tol: float | None = None,
    callback: Function | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Find a root of a system by `scipy.optimize.root`, with a compiled Jacobian.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)``: NumPy code that returns as many numbers as `x` has, as an array or nested arrays.
    x0 : nest of array_like
        The initial guess; a list of numbers is an array. `x` has its containers and shapes.
    args : tuple
        Further arguments.
    method : str
        A method of `scipy.optimize.root`. "hybr" and "lm" get the Jacobian; the others take none.
    tol, callback, options
        As `scipy.optimize.root` takes them.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With nested `x`. `fun` is a vector.

    Raises
    ------
    ShapeError
        If there are not as many equations as unknowns.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> found = gt.scipy.root(lambda x: {"a": x["a"] ** 2 - 2, "b": x["b"] - x["a"]}, {"a": 1.0, "b": 0.0})
    >>> print(f"{found.x['b']:.6f}")
    1.414214
    """
    check_callable(fun, "gt.scipy.root")
    check_method("gt.scipy.root", "root", method)
    optimize: Any = importlib.import_module("scipy.optimize")
    unknowns, args = Unknowns(x0, "gt.scipy.root"), _tuple(args)
    program = Program(fun, unknowns, _numbers)
    more: dict[str, Any] = {"method": method, "tol": tol, "options": options}
    if callback is not None:
        more["callback"] = lambda x, *rest: callback(unknowns.nested(x), *rest)
    start = unknowns.vector
    if any(True for _ in traced_parts((fun, x0, args))):
        return _with_nested(optimize.root(lambda x: program.traced(x, *args), start, **more), unknowns)
    values = program.compiled(jit)
    count = np.size(values(start, *args))
    if count != start.size and method != "lm":
        raise ShapeError(
            f"gt.scipy.root: fun returned {count} numbers for {start.size} unknowns",
            where=user_site(),
            remedy="return one equation for each unknown, or use gt.scipy.least_squares",
        )
    slopes = {"jac": program.compiled(compiled_jacobian)} if method.lower() in WITH_JACOBIAN else {}
    with counting("solving", "evaluation", lambda: program.calls):
        found = optimize.root(values, start, args=args, **slopes, **more)
    return _with_nested(found, unknowns)


def solve_ivp(
    fun: Function,
    t_span: Any,
    y0: Any,
    method: str | None = None,
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Any = None,
    *,
    mass_matrix: Any = None,
    **options: Any,
) -> Any:
    """Solve an initial value problem by Taylor's method, or M y' = fun(t, y) with a matrix M that may be singular (index 1).

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *args)``, of shape (n,).
    t_span : pair of float
        From when to when.
    y0 : array_like, of shape (n,)
        The initial values. M y is that of `y0`; algebraic unknowns are guesses, and Newton's method finds consistent ones.
    method : {"Taylor", "Radau", "BDF"} or method of SciPy's, optional
        By default "Radau" with a mass matrix, and SciPy's default "RK45" without. "Taylor" sums the power series of the solution, to an
        order that `rtol` decides (20 for 2.2e-16): for analytic right-hand sides that are not stiff, to high accuracy. "Radau" and "BDF"
        take a mass matrix.
    t_eval, dense_output, events, vectorized, args
        As `scipy.integrate.solve_ivp` takes them.
    mass_matrix : array_like or sparse matrix of shape (n, n), optional
        M, a constant. A row of zeros states an algebraic equation. None, with a method of SciPy's, calls `scipy.integrate.solve_ivp`.
    **options
        ``rtol``, ``atol``, ``max_step``, ``first_step``, and ``jac_sparsity`` of "Radau" and "BDF". "Taylor" takes an `rtol` down to
        2.2e-16.

    Returns
    -------
    scipy.integrate result
        As that of `scipy.integrate.solve_ivp`, with consistent values in ``y[:, 0]``; `nfev`, `njev` and `nlu` are not counted (0). On
        tapes and in compiled functions it has the derivatives of the steps, in the elements of M too. With "Taylor", dense output is the
        series of each step, on which events are found.

    Raises
    ------
    NotDifferentiableError
        With "Taylor", for a right-hand side that selects by the state or the time (`np.where`, `abs`, `maximum`, a branch): it has no
        series there.
    ArgumentError
        For an unknown method, negative tolerances, and sizes of steps that are not positive. With a mass matrix, for explicit methods, for
        equations of higher index, where there are no consistent values near `y0`, and for a matrix that is a function. Equations that are
        singular for some numbers only raise LinAlgError in a compiled function, and values that are not found are NaN there, with
        `success` False.
    ShapeError, DtypeError
        If M has another shape, or is complex; if `y0`, a tolerance, or what `fun` returns has another shape.
    TypeError
        For a misspelt `mass_matrix`, of which SciPy would only warn.

    Warns
    -----
    GradtapeWarning
        If `y0` is changed by more than the tolerances.

    Notes
    -----
    E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", 2nd ed., 1996, sections IV.8 and VI.1, and L. F. Shampine, M. W.
    Reichelt, "The MATLAB ODE Suite", 1997. Derivatives in elements of M are those for changes that keep its rank. "Taylor": A. Jorba,
    M. Zou, "A software package for the numerical integration of ODEs by means of high-order Taylor methods", Experimental Mathematics 14,
    2005.

    Examples
    --------
    The kinetics of Robertson, with the conservation of mass as an algebraic equation:

    >>> import numpy as np, gradtape as gt
    >>> def reactions(t, y, k):
    ...     slow, fast = k * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    ...     return [-slow, slow - fast, y[0] + y[1] + y[2] - 1.0]
    >>> def left(k):
    ...     found = gt.scipy.solve_ivp(
    ...         reactions, (0.0, 40.0), [1.0, 0.0, 0.0], args=(k,), mass_matrix=np.diag([1.0, 1.0, 0.0]), rtol=1e-8, atol=1e-10
    ...     )
    ...     return found.y[0, -1]
    >>> value, slope = gt.value_and_grad(left)(0.04)
    >>> print(f"{value:.5f} {slope:.2f}")
    0.71583 -4.25

    A turn of an oscillator to the last digits:

    >>> def oscillator(t, y):
    ...     return [y[1], -y[0]]
    >>> turn = gt.scipy.solve_ivp(oscillator, (0.0, 2 * np.pi), [1.0, 0.0], "Taylor", rtol=1e-15, atol=1e-15)
    >>> bool(np.max(np.abs(turn.y[:, -1] - [1.0, 0.0])) < 1e-14)
    True
    """
    check_callable(fun, "gt.scipy.solve_ivp")
    _check_span(t_span)
    if isinstance(method, str) and method not in _ODE_METHODS:
        near = _nearest(method, list(_ODE_METHODS))
        raise ArgumentError(
            f"gt.scipy.solve_ivp has no method {method!r}",
            where=user_site(),
            remedy=f"did you mean {near!r}?" if near else f"choose among {', '.join(_ODE_METHODS)}",
        )
    for name in options:  # SciPy would warn of it, and solve another equation
        if name in ("M", "Mass", "mass") or _nearest(name, ["mass_matrix"]):
            raise TypeError(
                f"gt.scipy.solve_ivp() got an unexpected keyword argument {name!r}: did you mean mass_matrix?"
            )
    keywords = {
        "t_eval": t_eval,
        "dense_output": dense_output,
        "events": events,
        "vectorized": vectorized,
        "args": args,
        **options,
    }
    if mass_matrix is None and method not in OWN:
        integrate: Any = importlib.import_module("scipy.integrate")
        return integrate.solve_ivp(fun, t_span, y0, method or "RK45", **keywords)
    positions = fun, t_span, y0, method or "Radau"
    if mass_matrix is not None:
        keywords["mass_matrix"] = mass_matrix
    if any(True for _ in traced_parts((positions, keywords))):
        return traced_solve_ivp(
            SolverCall("scipy.integrate.solve_ivp", solve_by_own_steps, positions, keywords)
        )
    return solve_by_own_steps(*positions, **keywords)


def _check_span(t_span: Any) -> None:
    """Raise unless it is a pair of numbers: with NaN SciPy's loop over steps never ends."""
    if isinstance(t_span, Handle):
        return
    ends = [end for end in t_span if not isinstance(end, Handle)] if isinstance(t_span, Sequence) else t_span
    try:
        numbers = np.asarray(ends, float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim != 1 or np.isnan(numbers).any() or len(t_span) != 2:
        raise ArgumentError(
            f"gt.scipy.solve_ivp: t_span is {t_span!r}",
            where=user_site(),
            remedy="pass the initial and the final time: (0.0, 1.0)",
        )


def curve_fit(
    f: Function,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    **options: Any,
) -> Any:
    """Fit a curve by `scipy.optimize.curve_fit`, with a compiled Jacobian.

    Parameters
    ----------
    f : callable
        ``f(xdata, *parameters)``: NumPy code. The parameters are the entries of `p0`, by name if it is a dict.
    xdata, ydata : array_like
        The data.
    p0 : sequence or dict, optional
        Where to start: numbers, arrays or nests of these. By default ones, as many as `f` has parameters.
    sigma, absolute_sigma
        As `scipy.optimize.curve_fit` takes them.
    bounds : pair or scipy.optimize.Bounds, optional
        As for `minimize`.
    **options
        As `scipy.optimize.curve_fit` takes them.

    Returns
    -------
    popt : sequence or dict
        The parameters, in the containers of `p0`; an array if it is an array, a list of numbers or None.
    pcov : ndarray
        Their covariance, as one matrix.

    Raises
    ------
    RuntimeError
        If the fit fails.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> t = np.linspace(0.0, 2.0, 9)
    >>> def decay(t, height, rate):
    ...     return height * np.exp(-rate * t)
    >>> best, covariance = gt.scipy.curve_fit(decay, t, decay(t, 2.0, 0.7), {"height": 1.0, "rate": 1.0})
    >>> print(f"{best['height']:.4f} {best['rate']:.4f}", covariance.shape)
    2.0000 0.7000 (2, 2)
    """
    check_callable(f, "gt.scipy.curve_fit")
    optimize: Any = importlib.import_module("scipy.optimize")
    _check_options(curve_fit, options, optimize.curve_fit, optimize.leastsq, optimize.least_squares)
    if p0 is None:
        p0 = np.ones(len(inspect.signature(f).parameters) - 1)
    unknowns = Unknowns(p0, "gt.scipy.curve_fit")
    ends = unknowns.bounds(bounds, "gt.scipy.curve_fit")
    more = dict(options) | ({"bounds": ends} if ends is not None else {})
    start = unknowns.vector
    program = Program(f, unknowns, _model)
    if any(True for _ in traced_parts((f, xdata, ydata, p0, sigma, bounds))):

        def traced(x: Any, *vector: Any) -> Any:
            return program.traced(np.stack(vector), x)

        best, covariance = optimize.curve_fit(traced, xdata, ydata, start, sigma, absolute_sigma, **more)[:2]
        return unknowns.nested(best), covariance
    model, slopes = program.compiled(jit), program.compiled(compiled_jacobian)
    data = np.asarray(xdata, float) if not isinstance(xdata, dict) else xdata

    def jac(x: Any, *vector: Any) -> Any:
        return np.reshape(slopes(np.array(vector), x), (-1, start.size))

    with counting("fitting", "evaluation", lambda: program.calls):
        found = optimize.curve_fit(
            lambda x, *vector: np.ravel(model(np.array(vector), x)),
            data,
            np.ravel(ydata),
            start,
            sigma,
            absolute_sigma,
            jac=jac,
            **more,
        )
    best, covariance = found[:2]
    return (unknowns.nested(best), covariance, *found[2:])


def _check_options(function: Function, options: Any, *passed_to: Function) -> None:
    """Raise TypeError for an option of `function` that no function of SciPy's which it is passed to has."""
    if not options:  # signatures take 0.1 ms
        return
    known = [
        name
        for each in (function, *passed_to)
        for name, parameter in list(inspect.signature(each).parameters.items())[1:]
        if parameter.default is not parameter.empty and name not in ("args", "jac", "Dfun", "kwargs")
    ]
    for name in options:
        if name not in known:
            raise unknown_keyword(f"gt.scipy.{function.__name__}", name, list(dict.fromkeys(known)))


def _model(function: Function, parameters: Any, x: Any) -> Any:
    return function(x, **parameters) if isinstance(parameters, dict) else function(x, *parameters)


__getattr__, __dir__ = _answering("gradtape.scipy", globals(), _HABITS)
