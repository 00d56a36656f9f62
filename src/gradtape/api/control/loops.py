"""Loops that end on a value or count: `while_loop` and `fori_loop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from gradtape.api.control.carries import CarryTypes, placeholders
from gradtape.api.control.checks import function_of, integer_of, policy_of
from gradtape.api.control.nested import (
    NumericLeaves,
    described,
    handed_back,
    refuse_static,
    result_value,
    returned_nest,
    type_of,
)
from gradtape.api.control.scanning import ScanTracer
from gradtape.api.control.variables import carry_on, contents, operand
from gradtape.errors import ArgumentError, ConcretizationError, DtypeError, GradtapeError, ShapeError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import logical_and
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import index_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.bodies import BodyTracer, TracedBody, definition_site
from gradtape.trace.jit.guards import InLoop, trace_of
from gradtape.trace.source.sites import user_site
from gradtape.transforms.loops.ops import Policy
from gradtape.transforms.loops.ops import while_loop as while_node
from gradtape.transforms.loops.squares import with_squares
from gradtape.trees import flatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import X, Xs


ROLES: Final = ("condition", "body")


@overload
def while_loop(
    cond: Callable[[*Xs], Any],
    body: Callable[[*Xs], tuple[*Xs]],
    loop_vars: tuple[*Xs],
    max_iterations: int | None = None,
    checkpoint: Any = None,
) -> tuple[*Xs]: ...
@overload
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: list[Any],
    max_iterations: int | None = None,
    checkpoint: Any = None,
) -> Any: ...
@overload
def while_loop(
    cond: Callable[[X], Any],
    body: Callable[[X], X],
    loop_vars: X,
    max_iterations: int | None = None,
    checkpoint: Any = None,
) -> X: ...
@suggests_keywords
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    checkpoint: Any = None,
) -> Any:
    """Repeat a function as long as a condition holds.

    The loop is one operation: `cond` and `body` run once in Python, whatever the number of iterations.

    Parameters
    ----------
    cond : callable
        ``cond(*loop_vars) -> bool``: whether there is another iteration.
    body : callable
        ``body(*loop_vars) -> loop_vars``: NumPy code for one iteration.
    loop_vars : array_like, number, or nest of them
        The initial loop variables. The entries of a tuple or list are passed one by one; anything else is one argument. Shapes and dtypes
        are the same in each iteration; Python numbers take the dtype of the next carry.
    max_iterations : int, optional
        The maximum number of iterations: the loop ends then even if `cond` holds.
    checkpoint : None, "all", "sqrt", int or ("treeverse", int), optional
        Which loop variables are kept for the gradient, as for `scan`; the number of iterations need not be known.

    Returns
    -------
    nest
        The loop variables after the last iteration, in the containers of `loop_vars`: ndarrays, or Arrays while a tape or trace is
        recording.

    Raises
    ------
    ShapeError, DtypeError, StructureError
        If `body` returns another structure, shape or dtype than it got, or if `cond` does not return one bool.
    ArgumentError
        If an argument is out of range, or `checkpoint` is unknown.
    ConcretizationError
        If a function needs a concrete value that differs between iterations: ``if x > 0``, ``float(x)``.

    See Also
    --------
    scan, fori_loop

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def unsettled(x, step):
    ...     return np.abs(step) > 1e-12
    >>> def newton(x, step):
    ...     step = (x**2 - 2) / (2 * x)
    ...     return x - step, step
    >>> root, _ = gt.while_loop(unsettled, newton, (1.0, 1.0))
    >>> bool(np.isclose(root, np.sqrt(2)))
    True
    """
    here.site = user_site()
    one_by_one = isinstance(loop_vars, tuple | list)
    count = len(loop_vars) if one_by_one else 1
    takes = ": the entries of loop_vars" if one_by_one else ": loop_vars"
    remedy = (
        "take the entries one by one, or pass loop_vars=(variables,) to take them as one"
        if one_by_one
        else ""
    )
    goes_on = function_of(cond, "while_loop", "cond", count, takes, remedy)
    iterate = function_of(body, "while_loop", "body", count, takes, remedy)
    limit = None
    if max_iterations is not None:
        limit = integer_of(
            max_iterations, "while_loop", "max_iterations", 0, "max_iterations=100, or None for no limit"
        )

    def spread(function: Callable[..., Any]) -> Callable[..., Any]:
        return (lambda variables: function(*variables)) if one_by_one else function

    def once(variables: Any) -> Any:
        returned = spread(iterate)(variables)
        if not one_by_one:
            return returned
        if count == 1 and flatten(returned)[1] == flatten(loop_vars[0])[1] != flatten(loop_vars)[1]:
            return (
                type(loop_vars)([returned])
                if type(loop_vars) in (tuple, list)
                else loop_vars._make([returned])
            )
        if {type(returned), type(loop_vars)} == {tuple, list}:
            return type(loop_vars)(returned)
        return returned

    policy = policy_of(checkpoint, "while_loop")
    return _WhileTracer(
        spread(goes_on), once, NumericLeaves(loop_vars, "loop_vars"), (cond, body), limit, policy
    ).run()


@suggests_keywords
def fori_loop(lower: Any, upper: Any, body: Callable[[Any, X], X], init: X, checkpoint: Any = None) -> X:
    """Repeat a function for each integer of a range.

    The loop is one operation: `body` runs once in Python, whatever the range.

    Parameters
    ----------
    lower, upper : int or integer scalar
        The first integer, and the one after the last. In a compiled function they may depend on its arguments: then the loop is a
        `while_loop`.
    body : callable
        ``body(i, carry) -> carry``: NumPy code for one iteration.
    init : array_like, number, or nest of them
        The first carry. Shapes and dtypes are the same in each iteration; Python numbers take the dtype of the next carry.
    checkpoint : None, "all", "sqrt", int or ("treeverse", int), optional
        Which carries are kept for the gradient, as for `scan`.

    Returns
    -------
    nest
        The last carry: ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    ShapeError, DtypeError, StructureError
        If `body` returns a carry of another structure, shape or dtype than it got, or if a bound is not an integer.
    ArgumentError
        If `checkpoint` is unknown.
    ConcretizationError
        If `body` needs a concrete value that differs between iterations: ``if x > 0``, ``range(i)``.

    See Also
    --------
    scan, while_loop

    Examples
    --------
    >>> import gradtape as gt
    >>> int(gt.fori_loop(1, 6, lambda i, product: product * i, 1))
    120
    """
    here.site = user_site()
    iterate = function_of(body, "fori_loop", "body", 2, ": the integer and the carry")
    first, last = _bound(lower, "lower"), _bound(upper, "upper")
    policy = policy_of(checkpoint, "fori_loop")
    start = NumericLeaves(init, "init")
    if isinstance(first, int) and isinstance(last, int):
        loop = ScanTracer(
            lambda number, carry: iterate(Array(number + first), carry),
            body,
            start,
            NumericLeaves(None, "xs"),
            "fori_loop",
            pair=False,
        )
        loop.length = max(last - first, 0)
        loop.policy = policy
        last_carry: X = loop.run()[0]
        return last_carry
    bounds = [as_value(bound) if isinstance(bound, int) else convert(bound, INT64) for bound in (first, last)]
    count = Array(bounds[1] - bounds[0])
    counting = _WhileTracer(
        lambda number, carry: Array(number) < count,
        lambda number, carry: iterate(Array(number + bounds[0]), carry),
        start,
        (body, body),
        None,
        policy,
        counted=True,
    )
    result: X = counting.run()
    return result


def _bound(given: Any, argument: str) -> int | Value:
    """Return a bound as an integer where it is known, and as a value in a trace."""
    if isinstance(given, Handle):
        if given.ndim or given.dtype.kind not in "iu":
            raise DtypeError(
                f"fori_loop: {argument} must be an integer scalar, got {type_of(given.value)}",
                where=here.site,
                remedy=f"{argument}=n, or x.astype(int) for a float scalar",
            )
        return given.value if trace_of(given.value) is not None else index_of(given.value)
    return integer_of(given, "fori_loop", argument, -(2**63), "gt.fori_loop(0, n, body, init)")


class _WhileTracer:
    """Traces a loop with a condition and records its node.

    Parameters
    ----------
    condition, body : callable
        Functions of the carry; with `counted`, of the number of the iteration and the carry.
    init : NumericLeaves
        The initial carry.
    written : tuple of callable
        The user's condition and body, for errors.
    limit : int or None
        The maximum trip count.
    policy : Policy
        Which carries are stored for the gradient.
    counted : bool
        Whether it is a loop over integers.
    """

    def __init__(
        self,
        condition: Callable[..., Any],
        body: Callable[..., Any],
        init: NumericLeaves,
        written: tuple[Callable[..., Any], Callable[..., Any]],
        limit: int | None,
        policy: Policy,
        *,
        counted: bool = False,
    ) -> None:
        self._condition, self._body, self._init, self._limit = condition, body, init, limit
        self._names = tuple(described(function) for function in written)
        self._policy = policy
        self._written = written
        self._sites = tuple(definition_site(function) for function in written)
        self._counted = counted
        self._caller = "fori_loop" if counted else "while_loop"
        self._checks: list[Value] = []
        self._carried = CarryTypes(init, self._caller)

    def run(self) -> Any:
        """Record the loop, and return the final carry."""
        site = here.site
        with BodyTracer() as tracing:
            try:
                with np.errstate(all="ignore"):  # there may be no iteration
                    traced, carries = self._carried.settled(
                        lambda types: self._trace(tracing, self._body, 1, types), self._carries
                    )
            except GradtapeError:
                raise
            except Exception as failure:
                raise_interruption(failure)
                if self._has_iteration(failure):
                    raise
                return self._init.rebuild(handed_back(self._carried.initial(), self._init.recorded))
            traced.collect_nodes(carries)
            asked = self._trace(tracing, self._condition, 0, self._carried.types)
            truth = self._truth(asked)
            for ok in self._checks:
                truth = logical_and(truth, ok)
            asked.collect_nodes([truth])
            if asked.assigned:
                raise ArgumentError(
                    f"{self._caller}: the condition {self._names[0]} assigns to a variable",
                    where=self._sites[0],
                    remedy="assign in the body, or carry the number",
                )
            assigned = traced.assigned
            consts = list(
                dict.fromkeys(
                    [
                        *traced.reads,
                        *[place for place in asked.reads if not any(place is one for one in assigned)],
                    ]
                )
            )
            body = traced.closed(
                [traced.inputs[0], *consts, *traced.inputs[1:], *assigned],
                [*carries, *assigned],
                f"{self._caller} {self._names[1]}",
            )
            condition = asked.closed(
                [asked.inputs[0], *consts, *asked.inputs[1:], *assigned],
                [truth],
                f"{self._caller} {self._names[0]}",
            )
        here.site = site
        recorded = while_node(
            condition,
            body,
            [operand(place) for place in consts],
            [*self._carried.initial(), *contents(assigned, self._caller)],
            self._limit,
            self._policy,
        )
        outs = with_squares(recorded)
        carry_on(assigned, outs[len(carries) : len(carries) + len(assigned)])
        if self._checks:
            # A check that fails has ended the loop: for the last carry it fails again, and raises the error.
            self._condition(self._init.with_arrays(outs[: len(carries)]))
        return self._init.rebuild(handed_back(outs[: len(carries)], self._init.recorded))

    def _trace(
        self, tracing: BodyTracer, function: Callable[..., Any], role: int, types: list[Aval]
    ) -> TracedBody:
        tag = InLoop(
            f"the {ROLES[role]} {self._names[role]} of gt.{self._caller}",
            "make it one of the loop's variables, and return it",
        )
        number = Value(aval((), INT64, True), tags=(tag,))
        carries = placeholders(types, tag)
        carry = self._init.with_arrays(carries)
        given = (number, carry) if self._counted else (carry,)
        if not role and not self._counted:
            tag.check, tag.is_condition = self._noted, True
        return tracing.run(function, self._written[role], tag, [number, *carries], *given, checks=bool(role))

    def _noted(self, ok: Value) -> bool:
        """Note a check of the condition, and let code go on as if it had passed."""
        self._checks.append(ok)
        return True

    def _has_iteration(self, failure: Exception) -> bool:
        """Return whether there is a first iteration, for a body that fails while it is traced; in a trace, guarded."""
        carry = self._init.with_arrays(self._carried.initial())
        goes_on = self._condition(*((constant(np.asarray(0)), carry) if self._counted else (carry,)))
        try:
            return bool(index_of(convert(result_value(goes_on, "the condition"), INT64)))
        except ConcretizationError:
            raise failure from None

    def _carries(self, traced: TracedBody) -> list[Value]:
        what = f"{self._caller}: what {self._names[1]} returned"
        leaves = returned_nest(traced.result, self._init, what, self._sites[1])
        values = [result_value(leaf, what) for leaf in leaves]
        traced.collect_nodes(values)
        return values

    def _truth(self, asked: TracedBody) -> Value:
        """Return the value of the condition."""
        leaves, _ = flatten(asked.result)
        what = f"{self._caller}: the condition {self._names[0]} returned"
        where = self._sites[0]
        remedy = "return one bool: x > 0, or np.any(x > 0), np.all(x > 0) for an array"
        if len(leaves) != 1 or leaves[0] is not asked.result:
            raise DtypeError(f"{what} {kind_of(asked.result)}", where=where, remedy=remedy)
        refuse_static(leaves[0], what, where)
        truth = result_value(leaves[0], what)
        if truth.ndim or truth.dtype.kind != "b":
            kind = ShapeError if truth.ndim else DtypeError
            raise kind(
                f"{what} {type_of(truth)}, and not one bool", where=asked.line_of(truth), remedy=remedy
            )
        return truth
