"""Loops of known length: `scan` and `map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gradtape.api.control.carries import CarryTypes, element_types, placeholders
from gradtape.api.control.checks import flag_of, function_of, integer_of, policy_of
from gradtape.api.control.nested import (
    NumericLeaves,
    at,
    described,
    handed_back,
    refuse_static,
    result_value,
    returned_nest,
)
from gradtape.api.control.unrolling import unrolled
from gradtape.api.control.variables import carry_on, contents, operand
from gradtape.errors import ArgumentError, ShapeError, StructureError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.body import Body
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.operands import broadcast_to
from gradtape.trace.array.array import Array
from gradtape.trace.jit.bodies import BodyInput, BodyTracer, TracedBody, definition_site
from gradtape.trace.jit.guards import InLoop
from gradtape.trace.random.draws import LoopDraws
from gradtape.trace.random.generators import loop_draws
from gradtape.trace.source.sites import user_site
from gradtape.transforms.loops.ops import Policy
from gradtape.transforms.loops.ops import scan as scan_node
from gradtape.transforms.loops.squares import with_squares
from gradtape.trees import flatten, place_of_leaf, unflatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import N, X


@suggests_keywords
def scan(
    f: Callable[[X, Any], tuple[X, Any]],
    init: X,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    checkpoint: Any = None,
) -> tuple[X, Any]:
    """Apply a function to the elements of arrays one after the other, with a carry from each to the next.

    The loop is one operation: `f` runs once in Python, whatever the length.

    Parameters
    ----------
    f : callable
        ``f(carry, x) -> (carry, y)``: NumPy code for one iteration.
    init : array_like, number, or nest of them
        The first carry. Shapes and dtypes are the same in each iteration; Python numbers take the dtype of the next carry.
    xs : array_like or nest of them, optional
        One element along the first axis for each iteration; without it, `x` is None.
    length : int, optional
        The number of iterations; required without `xs`.
    reverse : bool, default False
        Whether to begin with the last element. Each `y` is stored at the position of its element.
    unroll : int, default 1
        The number of iterations that are unrolled into one iteration of the compiled loop.
    checkpoint : None, "all", "sqrt", int or ("treeverse", int), optional
        Which carries are stored for the gradient: all of them, about the square root of their number, every k-th, or at most this
        number at a time (treeverse). The others are recomputed.

    Returns
    -------
    carry : nest
        The last carry.
    ys : nest
        The second results of `f`, stacked along a new first axis. ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    ShapeError, DtypeError, StructureError
        If `f` returns a carry of another structure, shape or dtype than it got, or if the arrays of `xs` differ in length.
    ArgumentError
        If the length is not known, or an argument is out of range.
    ConcretizationError
        If `f` needs a concrete value that differs between iterations: ``if x > 0``, ``float(x)``.

    See Also
    --------
    fori_loop, while_loop, associative_scan

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def step(balance, payment):
    ...     balance = 1.1 * balance + payment
    ...     return balance, balance
    >>> last, all_ = gt.scan(step, 0.0, np.array([100.0, 100.0, 100.0]))
    >>> np.round(all_, 6)
    array([100., 210., 331.])
    """
    here.site = user_site()
    body = function_of(f, "scan", "f", 2, ": the carry and an element of xs")
    loop = ScanTracer(
        body, f, NumericLeaves(init, "init"), NumericLeaves(xs, "xs", elements=True), "scan", pair=True
    )
    loop.length = _length(loop.elements, length)
    loop.reverse = flag_of(reverse, "scan", "reverse")
    loop.unroll = integer_of(unroll, "scan", "unroll", 1, "unroll=4 unrolls four iterations into one")
    loop.policy = policy_of(checkpoint, "scan")
    return loop.run()


@overload
def map(f: Callable[[Any], N], xs: Any) -> N: ...
@overload
def map(f: Callable[[Any], Any], xs: Any) -> Any: ...
@suggests_keywords
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Apply a function to the elements of arrays one after the other.

    Parameters
    ----------
    f : callable
        NumPy code for one element.
    xs : array_like or nest of them
        The elements, along the first axis.

    Returns
    -------
    nest
        What `f` returns, stacked along a new first axis: ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    ShapeError, ArgumentError
        Where the arrays of `xs` differ in length, or there are none.

    See Also
    --------
    vmap : All elements at once, which needs more memory and is faster where the work for one is small.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.map(lambda x: x / np.sum(x), np.array([[1.0, 3.0], [1.0, 1.0]]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    here.site = user_site()
    body = function_of(f, "map", "f", 1, ": an element of xs")
    loop = ScanTracer(
        lambda _, x: (None, body(x)),
        f,
        NumericLeaves(None, "init"),
        NumericLeaves(xs, "xs", elements=True),
        "map",
        pair=True,
    )
    loop.length = _length(loop.elements, None, "map")
    return loop.run()[1]


class ScanTracer:
    """Traces a loop with known trip count and records its node.

    Parameters
    ----------
    body : callable
        ``(carry, x) -> (carry, y)``; without `pair`, ``(number of the iteration, carry) -> carry``.
    written : callable
        The user's function, for errors.
    init, elements : NumericLeaves
        The initial carry, and the arrays.
    caller : str
        The user's loop, for errors.
    pair : bool
        The form of `body`.
    """

    reverse = False
    unroll = 1
    policy: Policy = None
    length = 0
    draws: LoopDraws | None = None

    def __init__(
        self,
        body: Callable[..., Any],
        written: Callable[..., Any],
        init: NumericLeaves,
        elements: NumericLeaves,
        caller: str,
        *,
        pair: bool,
    ) -> None:
        self.body, self.init, self.elements, self.caller, self._pair = body, init, elements, caller, pair
        self.name, self.site, self._written = described(written), definition_site(written), written
        self.carried = CarryTypes(init, caller)
        self._ys: Any = None

    def run(self) -> tuple[Any, Any]:
        """Record the loop, and return the final carry and the stacked outputs."""
        site = here.site
        quiet = nullcontext() if self.length else np.errstate(all="ignore")
        with BodyTracer() as tracing, quiet:
            traced, carries = self.carried.settled(lambda types: self._trace(tracing, types), self._carries)
            ys = self._stacked_outputs(traced)
            traced.collect_nodes([*carries, *ys])
            consts, assigned = traced.reads, traced.assigned
            count = 1 + len(carries)
            body = traced.closed(
                [*traced.inputs[:1], *consts, *traced.inputs[1:count], *assigned, *traced.inputs[count:]],
                [*carries, *assigned, *ys],
                f"{self.caller} {self.name}",
            )
        here.site = site
        outs = self._emitted(body, consts, [*self.carried.initial(), *contents(assigned, self.caller)])
        carry_on(assigned, outs[len(carries) : len(carries) + len(assigned)])
        outs_of_body = [*outs[: len(carries)], *outs[len(carries) + len(assigned) :]]
        results = handed_back(outs_of_body, self.init.recorded or self.elements.recorded)
        spec = None if self._ys is None else flatten(self._ys)[1]
        stacked = None if spec is None else unflatten(spec, results[len(carries) :])
        return self.init.rebuild(results[: len(carries)]), stacked

    def _trace(self, tracing: BodyTracer, types: list[Aval]) -> TracedBody:
        tag = InLoop(
            f"the body {self.name} of gt.{self.caller}",
            "return it as the second element of the pair: outputs are stacked"
            if self._pair
            else "carry it, and return it",
        )
        tag.draws = self.draws = loop_draws()
        index = Value(aval((), INT64, True), tags=(tag,))
        carries = placeholders(types, tag)
        elements = placeholders(element_types(self.elements.values), tag)
        carry = self.init.with_arrays(carries)
        body_arguments = (carry, self.elements.with_arrays(elements)) if self._pair else (index, carry)
        traced = tracing.run(self.body, self._written, tag, [index, *carries, *elements], *body_arguments)
        if self.draws is not None:
            traced.inputs = (*traced.inputs, *[draw.value for draw in self.draws.calls])
        return traced

    def _carries(self, traced: TracedBody) -> list[Value]:
        """Return the next carries of a run of the body."""
        result = traced.result
        if self._pair:
            if not isinstance(result, tuple | list) or len(result) != 2:
                kind_returned = kind_of(result)
                raise StructureError(
                    f"{self.caller}: {self.name} returned {kind_returned}, not a pair of the carry and an output",
                    where=self.site,
                    remedy="return carry, y; without an output, return carry, None",
                )
            result, self._ys = result
        description = f"{self.caller}: the carry that {self.name} returned"
        leaves = returned_nest(result, self.init, description, self.site)
        values = [result_value(leaf, description) for leaf in leaves]
        traced.collect_nodes(
            [*values, *[leaf.value for leaf in flatten(self._ys)[0] if isinstance(leaf, Array)]]
        )
        return values

    def _stacked_outputs(self, traced: TracedBody) -> list[Value]:
        """Return the elements of the stacked outputs of a run of the body."""
        stacked = []
        for position, leaf in enumerate(flatten(self._ys)[0]):
            description = at(f"{self.caller}: the output of {self.name}", place_of_leaf(self._ys, position))
            refuse_static(leaf, description, self.site)
            stacked.append(result_value(leaf, description))
        return stacked

    def _emitted(self, body: Body, consts: Sequence[BodyInput], carries: list[Value]) -> list[Value]:
        shared = [operand(body_input) for body_input in consts]
        arrays = [*self.elements.values]
        if self.length and self.draws is not None:
            arrays += self.draws.stacks(self.length, self.reverse)
        if self.length == 0:
            ys = body.outputs[len(carries) :]
            return [*carries, *[broadcast_to(literal(0, y.dtype), (0, *y.shape)) for y in ys]]
        outs = with_squares(scan_node(body, shared, carries, arrays, self.length, self.reverse, self.policy))
        return list(outs) if self.unroll == 1 or not outs else unrolled(outs, self.unroll)


def _length(elements: NumericLeaves, length: Any, caller: str = "scan") -> int:
    """Return the trip count."""
    for position, leaf in elements.statics():
        raise ShapeError(
            f"{caller}: {elements.place(position)} is {kind_of(leaf)}, which has no first axis",
            where=here.site,
            remedy="pass np.arange(n) for a range, np.array(xs) for numbers; f can read other objects from the scope around it",
        )
    extents: dict[str, int] = {}
    for path, value in zip(elements.places(), elements.values, strict=True):
        if not value.ndim:
            raise ShapeError(
                f"{caller}: {path} is a number; it has no first axis",
                where=here.site,
                why="each iteration gets one element along the first axis of every array in xs (a list is a container, not an array)",
                remedy="np.array(xs) makes an array of a list of numbers; what all iterations share can be read from outside f",
            )
        extents[path] = value.shape[0]
    remedy = "length=10 for ten iterations"
    stated_length = None if length is None else integer_of(length, caller, "length", 0, remedy)
    if not extents:
        if stated_length is None:
            raise ArgumentError(
                f"{caller}: {'neither xs nor length is given' if caller == 'scan' else 'xs holds no array'}",
                where=here.site,
                why="the number of iterations is not known",
                remedy=f"pass arrays as xs{', or length=10 for ten iterations' if caller == 'scan' else ''}",
            )
        return stated_length
    if len(set(extents.values())) > 1 or (
        stated_length is not None and stated_length not in extents.values()
    ):
        listed = "; ".join(f"{path} has {extent}" for path, extent in extents.items())
        stated = "" if stated_length is None else f"; length is {stated_length}"
        raise ShapeError(
            f"{caller}: the first axes of xs have different extents: {listed}{stated}"
            if len(set(extents.values())) > 1
            else f"{caller}: length is {stated_length}, but {listed} elements",
            where=here.site,
            remedy="cut the arrays to the same length (x[:n])"
            + ("" if stated_length is None else ", or omit length"),
        )
    return next(iter(extents.values()))
