"""One of several functions, chosen by a value: `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtape.api.control.carries import RANKS, placeholders
from gradtape.api.control.checks import captures_data, function_of
from gradtape.api.control.nested import (
    NumericLeaves,
    as_value_of_rank,
    described,
    handed_back,
    result_value,
    type_of,
)
from gradtape.api.control.variables import carry_on, contents, operand
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeError,
    InPlaceError,
    ShapeError,
    StructureError,
    kind_of,
)
from gradtape.habits import suggests_keywords
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import convert
from gradtape.trace.array.concretize import index_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.bodies import BodyTracer, TracedBody, final
from gradtape.trace.jit.captures.arguments import argument_copies, containers_in
from gradtape.trace.jit.guards import InBranch
from gradtape.trace.jit.leaf_kinds import is_numeric
from gradtape.trace.patching.copies import Substitute
from gradtape.trace.random.draws import BranchDraws
from gradtape.trace.random.generators import branch_draws
from gradtape.trace.source.sites import user_site
from gradtape.transforms.loops.ops import switch as switch_node
from gradtape.transforms.loops.squares import with_squares
from gradtape.trees import Leaves, TreeSpec, flatten, outline, place_of_leaf

if TYPE_CHECKING:
    from gradtape.api.type_variables import V, Xs


@suggests_keywords
def cond(pred: Any, true_fn: Callable[[*Xs], V], false_fn: Callable[[*Xs], V], *operands: *Xs) -> V:
    """Call one of two functions.

    Both run once in Python, to be recorded; only the chosen one is computed. The other one costs nothing, cannot fail, and does not
    influence a derivative, even if it uses captured values only. If `pred` is a plain bool, the other one is called only to compare
    types, and not if it captures plain numbers or ndarrays.

    Parameters
    ----------
    pred : bool or bool scalar
        Whether `true_fn` is called; in a compiled function it may depend on the arguments.
    true_fn, false_fn : callable
        NumPy code. Both return the same containers, shapes and dtypes.
    *operands : array_like, or nests of them
        Their arguments. They may also capture values.

    Returns
    -------
    nest
        The result of the chosen function: ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    DtypeError
        If `pred` is not one bool.
    ShapeError, DtypeError, StructureError
        If the functions return different structures, shapes or dtypes.

    See Also
    --------
    switch : More than two.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def root(x):
    ...     return gt.cond(x > 0, np.sqrt, lambda x: 0.0, x)
    >>> float(gt.grad(root)(4.0)), float(gt.grad(root)(-1.0))
    (0.25, 0.0)
    """
    here.site = user_site()
    condition = _scalar(pred)
    if condition is None or condition.dtype.kind != "b":
        raise DtypeError(
            f"cond: pred must be one bool, got {_shown(pred)}",
            where=here.site,
            remedy="x > 0 for a number; np.any(x > 0) or np.all(x > 0) for an array; np.where chooses for each element",
        )
    functions = {"true_fn": true_fn, "false_fn": false_fn}
    branches = _Branches("cond", functions, ("false_fn", "true_fn"), operands)
    result: V = branches.run(convert(condition, INT64), pred)
    return result


@suggests_keywords
def switch(index: Any, branches: Sequence[Callable[[*Xs], V]], *operands: *Xs) -> V:
    """Call one of several functions.

    All run once in Python, to be recorded; only the chosen one is computed (see `cond`).

    Parameters
    ----------
    index : int or integer scalar
        Which one. Negative integers choose the first, integers that are too large the last.
    branches : sequence of callable
        NumPy code. All return the same containers, shapes and dtypes.
    *operands : array_like, or nests of them
        Their arguments. They may also capture values.

    Returns
    -------
    nest
        The result of the chosen function: ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    ArgumentError
        If there are no branches.
    DtypeError
        If `index` is not one integer.
    ShapeError, DtypeError, StructureError
        If the functions return different structures, shapes or dtypes.

    See Also
    --------
    cond : One of two.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> float(gt.switch(1, [np.sin, np.cos, np.tan], 0.0))
    1.0
    """
    here.site = user_site()
    if callable(branches) or not isinstance(branches, Sequence) or not branches:
        description = "an empty one" if isinstance(branches, Sequence) else kind_of(branches)
        raise ArgumentError(
            f"switch: branches must be a list or tuple of functions, got {description}",
            where=here.site,
            remedy="gt.switch(index, [f, g], x)",
        )
    number = _scalar(index)
    if number is None or number.dtype.kind not in "iu":
        raise DtypeError(
            f"switch: index must be one integer, got {_shown(index)}",
            where=here.site,
            remedy="gt.switch(2, ...), or x.astype(int) for a float; gt.cond chooses by a bool",
        )
    if issubclass(type(index), int):
        number = as_value(min(max(index, 0), len(branches)))
    functions = {f"branches[{k}]": function for k, function in enumerate(branches)}
    result: V = _Branches("switch", functions, tuple(functions), operands).run(convert(number, INT64), index)
    return result


def _refuse_lost_writes(traced: TracedBody, containers: Sequence[Substitute], description: str) -> None:
    """Refuse a branch that writes to its copies of the containers among the operands and does not return them."""
    changed = [each for each in containers if each.is_changed(each.initial)]
    returned = set(map(id, containers_in(traced.returned))) if changed else set()
    for each in changed:
        if id(each.copy) not in returned:
            raise final(
                InPlaceError(
                    f"{description} writes to {each.name}",
                    where=traced.site,
                    why="a branch gets copies of the containers and objects among the operands, since it may not be taken",
                    remedy="return what it writes to",
                )
            )


def _scalar(index: Any) -> Value | None:
    """Return a scalar as a value; None for any other object."""
    if not isinstance(index, Handle | np.ndarray | np.generic | int):
        return None
    value = as_value_of_rank(index, "the choice")
    return None if value.ndim else value


def _shown(index: Any) -> str:
    if isinstance(index, Handle):
        return f"an array {type_of(index.value)}"
    if isinstance(index, np.ndarray):
        return f"an ndarray of shape {index.shape} and dtype {index.dtype}"
    return f"{index!r} of type {type(index).__name__}"


class _Branches:
    """Traces the branches of a choice and records its node.

    `functions` has them by role, in the order of the caller's arguments; `roles` in the order of their numbers.
    """

    def __init__(
        self,
        caller: str,
        functions: Mapping[str, Callable[..., Any]],
        roles: Sequence[str],
        operands: tuple[Any, ...],
    ) -> None:
        takes = ": the operands" if operands else ""
        remedy = (
            ""
            if operands
            else "pass the arguments after the functions, or write {} as a function of 0 arguments"
        )
        checked = {
            role: function_of(f, caller, role, len(operands), takes, remedy.format(role))
            for role, f in functions.items()
        }
        self._functions = [checked[role] for role in roles]
        self._written = [functions[role] for role in roles]
        self._names = [f"{role} {described(functions[role])}" for role in roles]
        self._operands = NumericLeaves(operands, "operands")
        self._caller = caller
        self._draws: list[tuple[int, BranchDraws]] = []

    def run(self, index: Value, original_index: Any) -> Any:
        """Record the choice, and return its results."""
        site = here.site
        with BodyTracer() as tracing:
            choice = index
            runs, index = self._traced(tracing, index, None if isinstance(original_index, Handle) else index)
            spec = self._common_spec(runs)
            results = self._common_types(runs)
            for run, values in zip(runs, results, strict=True):
                run.collect_nodes(values)
            assigned = list(dict.fromkeys([variable for run in runs for variable in run.assigned]))
            reads = [
                read for run in runs for read in run.reads if not any(read is other for other in assigned)
            ]
            shared = [*dict.fromkeys(reads), *assigned]
            drawn = [draw.value for _, draws in self._draws for draw in draws.calls]
            count = len(self._operands.values)
            bodies = [
                run.closed(
                    [*shared, *run.inputs[:count], *drawn], [*values, *assigned], f"{self._caller} {name}"
                )
                for run, values, name in zip(runs, results, self._names, strict=True)
            ]
        here.site = site
        before = contents(assigned, self._caller)
        shared_operands = [operand(read) for read in shared[: len(shared) - len(assigned)]]
        last = len(self._functions) - 1
        numbers = [value for read, draws in self._draws for value in draws.chosen(read, last, choice)]
        outs = (
            with_squares(
                switch_node(bodies, index, [*shared_operands, *before, *self._operands.values, *numbers])
            )
            if bodies[0].outputs
            else ()
        )
        count = len(outs) - len(assigned)
        carry_on(assigned, outs[count:])
        recorded = self._operands.recorded or isinstance(original_index, Handle)
        return Leaves(flatten(runs[0].result)[0], spec, is_numeric).rebuild(
            handed_back(outs[:count], recorded)
        )

    def _traced(
        self, tracing: BodyTracer, index: Value, constant: Value | None
    ) -> tuple[list[TracedBody], Value]:
        """Trace the functions; return their traces and the number among these of the one that is chosen.

        What a function computes of plain numbers that it captures, it computes while it is traced. So where the choice is `constant`, no
        other function is called that could do so; and one that fails there counts only if it is chosen.
        """
        chosen = None if constant is None else self._clamped(constant)
        runs: dict[int, TracedBody] = {}
        failures: dict[int, Exception] = {}
        for number, (function, name, written) in enumerate(
            zip(self._functions, self._names, self._written, strict=True)
        ):
            if chosen not in (None, number) and captures_data(written):
                continue
            quiet = nullcontext() if number == chosen else np.errstate(all="ignore")
            try:
                with quiet:
                    draws = branch_draws(index)
                    runs[number] = self._trace(tracing, function, name, written, draws)
                    if draws is not None:
                        self._draws.append((number, draws))
            except GradtapeError:
                raise
            except Exception as failure:
                raise_interruption(failure)
                failures[number] = failure
        if failures and chosen is None:
            try:
                chosen = self._clamped(index)
            except ConcretizationError:
                raise next(iter(failures.values())) from None
        if chosen in failures:
            raise failures[chosen]
        if len(runs) == len(self._functions):
            return list(runs.values()), index
        assert chosen is not None
        self._names = [self._names[chosen]]
        return [runs[chosen]], literal(0, INT64)

    def _clamped(self, index: Value) -> int:
        """Return the number of the branch that is chosen; in a trace, guarded."""
        return min(max(index_of(index), 0), len(self._functions) - 1)

    def _trace(
        self,
        tracing: BodyTracer,
        function: Callable[..., Any],
        name: str,
        written: Any,
        draws: BranchDraws | None,
    ) -> TracedBody:
        tag = InBranch(f"{name} of gt.{self._caller}")
        tag.draws = draws
        starts = placeholders([value.aval for value in self._operands.values], tag)
        operands = self._operands.with_arrays(starts)
        containers = argument_copies(self._operands.tree, operands, "operands")
        traced = tracing.run(function, written, tag, starts, *operands)
        _refuse_lost_writes(traced, containers, tag.described)
        if draws is not None:
            traced.inputs = (*traced.inputs, *[draw.value for draw in draws.calls])
        return traced

    def _common_spec(self, runs: Sequence[TracedBody]) -> TreeSpec:
        """Return the containers that all return, with the same leaves that are part of the program."""
        first_leaves, first = flatten(runs[0].result)
        for run, name in zip(runs[1:], self._names[1:], strict=True):
            leaves, spec = flatten(run.result)
            if spec != first:
                raise StructureError(
                    f"{self._caller}: {name} returned the structure {outline(spec)}, and {self._names[0]} returned {outline(first)}",
                    where=run.site,
                    why="which branch is taken is not known before the program runs",
                    remedy="return the same containers from all",
                )
            for position, (leaf, other) in enumerate(zip(leaves, first_leaves, strict=True)):
                if is_numeric(leaf) != is_numeric(other) or not (
                    is_numeric(leaf) or leaf is other or leaf == other
                ):
                    path = place_of_leaf(run.result, position)
                    raise DtypeError(
                        f"{self._caller}: result{path} is {leaf!r} in {name} and {other!r} in {self._names[0]}",
                        where=run.site,
                        why="objects other than arrays and numbers are part of the program and cannot depend on values",
                        remedy="return numbers, or the same object from all",
                    )
        return first

    def _common_types(self, runs: Sequence[TracedBody]) -> list[list[Value]]:
        """Return the numeric results of each function, in the same types."""
        rows = []
        for run, name in zip(runs, self._names, strict=True):
            leaves = Leaves(*flatten(run.result), is_numeric).traced()
            rows.append([result_value(leaf, f"{self._caller}: a result of {name}") for leaf in leaves])
        for column, position in enumerate(Leaves(*flatten(runs[0].result), is_numeric).positions):
            common = rows[0][column].aval
            for row, run, name in zip(rows[1:], runs[1:], self._names[1:], strict=True):
                joined = _joined(common, row[column].aval)
                if joined is None:
                    raise self._differs(run, position, row[column], name, common)
                common = joined
            for row in rows:
                value = row[column]
                if value.dtype != common.dtype or (value.aval.weak and not common.weak):
                    row[column] = convert(value, common.dtype)
        return rows

    def _differs(
        self, run: TracedBody, position: int, value: Value, name: str, common: Aval
    ) -> DtypeError | ShapeError:
        path = place_of_leaf(run.result, position)
        kind = ShapeError if value.shape != common.shape else DtypeError
        wide = max(value.shape, common.shape, key=len)
        fix = f"np.broadcast_to(x, {wide})" if kind is ShapeError else f"x.astype({common.dtype})"
        return kind(
            f"{self._caller}: result{path} is {type_of(value)} in {name} and {type_of(common)} in {self._names[0]}",
            where=run.line_of(value),
            why="which branch is taken is not known before the program runs",
            remedy=f"return arrays of the same shape and dtype from all: {fix}",
        )


def _joined(first: Aval, second: Aval) -> Aval | None:
    """Return the type in which both can stand; None if there is none."""
    if first.shape != second.shape:
        return None
    if first.dtype == second.dtype:
        return aval(first.shape, first.dtype, first.weak and second.weak)
    for number, array in ((first, second), (second, first)):
        if number.weak and RANKS[number.dtype.kind] <= RANKS[array.dtype.kind]:
            return aval(array.shape, array.dtype, array.weak)
    return None
