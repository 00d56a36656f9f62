"""Shared parts of custom derivatives: their arguments as operands of a node, and rules that serve both modes."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from gradtape.api.operands import fitted, traceable, traceable_operand
from gradtape.api.units import UNITS_AROUND, refuse_quantities
from gradtape.config import config
from gradtape.errors import LeakedValueError, NotDifferentiableError, RuleError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Node, TraceTag, Value, extract, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import Rule, custom_call, pulled_by_value, visible_inputs
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import IndexedSlices, densified
from gradtape.trace.array.masked import without_selections
from gradtape.trace.jit.captures.arguments import argument_copies, write_through
from gradtape.trace.jit.leaf_kinds import is_array, is_handle
from gradtape.trace.jit.side_effects import settle
from gradtape.trace.source.contexts import inside
from gradtape.trace.variables.snapshot import VariableSnapshot
from gradtape.transforms.adjoint import adjoint
from gradtape.trees import Leaves, flatten, flatten_to, flatten_with_none, outline, unflatten

F = TypeVar("F", bound=Callable[..., Any])


class Operands(Leaves):
    """The positional arguments of a function with a derivative of its own.

    Parameters
    ----------
    args : tuple
        The arguments.
    variables : bool
        Whether variables among them are operands too; if not, the function gets them as they are.

    Attributes
    ----------
    args : tuple
        The arguments.
    values : tuple of Value
        What these hold: the operands.
    starts : tuple of Value
        What the body gets in their place.
    tag : TraceTag
        Follows what the body computes from these.
    snapshot : VariableSnapshot
        What variables held when the body was called.
    """

    __slots__ = ("args", "snapshot", "starts", "tag", "values")

    def __init__(self, args: tuple[Any, ...], *, variables: bool = True) -> None:
        args = without_selections(args)
        self.args = args
        super().__init__(*flatten_with_none(args), is_handle if variables else is_array)
        self.values = tuple(traceable(leaf.value) for leaf in self.traced())
        self.tag = TraceTag()
        self.snapshot = VariableSnapshot()
        self.starts = tuple(_fresh(value, self.tag) for value in self.values)

    def run(
        self, function: Callable[..., Any], kwargs: dict[str, Any], arguments: tuple[Any, ...] | None = None
    ) -> Any:
        """Call a function with what stands for the arguments; what it writes to containers in them is made in the caller's, `arguments`."""
        site = here.site
        arguments = self.args if arguments is None else arguments
        copies = self.filled(self.starts)
        containers = argument_copies(arguments, copies, "the arguments")
        leaves = flatten_with_none(copies)[0] if containers else []
        try:
            with inside(self.snapshot):
                result = function(*copies, **kwargs)
            if containers:
                for each in write_through(containers, leaves, flatten_with_none(arguments)[0]):
                    settle(each)
            return result
        finally:
            self.tag.end()
            here.site = site

    def filled(self, values: Sequence[Value]) -> tuple[Any, ...]:
        """Return the arguments with other values in place of the operands."""
        filled: tuple[Any, ...] = self.rebuild(map(Array, values))
        return filled

    def are(self, values: Sequence[Value]) -> bool:
        """Return whether these are the operands of the call itself, and not of a copy of its node."""
        return all(mine is theirs for mine, theirs in zip(self.values, values, strict=True))

    def tangents(self, tangents: Sequence[Value | None]) -> tuple[Any, ...]:
        """Return one tangent per argument: zeros where there is none, and None for an argument that is not a number."""
        leaves = [_zeros_of(leaf) for leaf in self.leaves]
        for position, tangent in zip(self.positions, tangents, strict=True):
            if tangent is not None:
                leaves[position] = Array(tangent)
        arguments: tuple[Any, ...] = unflatten(self.spec, leaves)
        return arguments

    def read_by(self, outputs: Sequence[Value]) -> list[Value]:
        """Return the values that the body read besides its arguments, in the order of their use."""
        _, leaves = extract(outputs, self.starts, lambda value: self.tag not in value.tags, visible_inputs)
        return leaves


class BothModes(Rule):
    """A rule that a user wrote for one direction, and that serves the other by transposition."""

    def __init__(self, name: str, operands: Operands) -> None:
        super().__init__(name)
        self.operands = operands

    def pull_back(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pulled_by_value(self, node, cotangents, is_needed)

    def refuse_captured(self, node: Node, active: Sequence[bool]) -> None:
        """Raise NotDifferentiableError where the derivative is asked for in what the body read besides its arguments."""
        if any(active[len(self.operands.values) :]):
            raise NotDifferentiableError(
                f"the derivative of {self.name} with respect to an array that it reads from outside is not known",
                where=node.site,
                why="its rule has derivatives with respect to its arguments only",
                remedy="pass the array as an argument, or read gt.stop_gradient(array)",
            )


class ReverseRule(BothModes):
    """A rule that pulls cotangents back; forward mode transposes it where it is linear."""

    @abstractmethod
    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]: ...

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        tag = TraceTag()
        starts = [Value(out.aval, tags=(tag,)) for out in node.outs]
        cotangents = [start if is_inexact(start.dtype) else None for start in starts]
        description = (
            f"forward mode of {self.name} needs a gradient function that is linear in the upstream gradient"
        )
        parts = abstractly(
            description, node, lambda: self.pull(node, cotangents, [t is not None for t in tangents])
        )
        return _finished(adjoint(parts, starts, tangents, tag, description), tag)


class ForwardRule(BothModes):
    """A rule that pushes tangents forward; reverse mode transposes it.

    All arguments move in the transposition, wanted or not, unless `moves_all` is False: that a user's rule is linear is easier to see
    without zeros in it.
    """

    opens = True
    moves_all = True

    @abstractmethod
    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]: ...

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        tag = TraceTag()
        values = visible_inputs(node)
        starts = [Value(value.aval, tags=(tag,)) for value in values]
        count = len(self.operands.values)
        seeds = [
            start if is_inexact(start.dtype) and (flag or (self.moves_all and position < count)) else None
            for position, (start, flag) in enumerate(zip(starts, is_needed, strict=True))
        ]
        description = f"reverse mode of {self.name} needs a rule that is linear in the tangents"
        parts = abstractly(description, node, lambda: self.push(node, seeds))
        return _finished(adjoint(parts, starts, cotangents, tag, description), tag)


def _finished(result: list[Value | None], tag: TraceTag) -> list[Value | None]:
    tag.recording = False
    return result


def abstractly(
    description: str, node: Node, work: Callable[[], Sequence[Value | None]]
) -> Sequence[Value | None]:
    """Call a rule with (co)tangents that have no numbers yet."""
    try:
        with config.override(eager=False):
            return work()
    except LeakedValueError as error:
        raise NotDifferentiableError(
            f"{description}, but the rule reads the values of these",
            where=node.site,
            why="the rule of one mode is transposed for the other mode, before numbers are known",
            remedy="let branches and factors depend on the primals alone",
        ) from error


def attached(result: Any, operands: Operands, captured: Sequence[Value], rule: Rule) -> Any:
    """Return what a body returned, with the derivative that a rule gives."""
    refuse_quantities(result, f"a result of {rule.name}", UNITS_AROUND)
    leaves, spec = flatten(result)
    if not operands.values and not any(isinstance(leaf, Handle) for leaf in leaves):
        return result
    values = [traceable_operand(leaf, f"a result of {rule.name}") for leaf in leaves]
    outs = custom_call(values, (*operands.values, *captured), rule)
    return unflatten(spec, [Array(out) for out in outs])


def captured_by(result: Any, operands: Operands, name: str) -> list[Value]:
    """Return the traced values that a body read besides its arguments to compute a result."""
    read = operands.read_by([traceable_operand(leaf, f"a result of {name}") for leaf in flatten(result)[0]])
    return [value for value in read if any(tag.recording for tag in value.tags)]


def zeros_for(value: Value) -> Value:
    """Return zeros of the shape and dtype of a value."""
    return broadcast_to(literal(0, value.dtype), value.shape)


def matched(part: Any, model: Any, description: str, of: str) -> list[Any]:
    """Return the leaves of `part`, which has the structure of `densified` or is None.

    Raises
    ------
    RuleError
        Where the structures differ.
    """
    leaves, spec = flatten_with_none(model)
    if part is None:
        return [None] * len(leaves)
    parts, part_spec = flatten_with_none(part)
    if part_spec != spec:
        raise RuleError(
            f"{description} has the structure {outline(part_spec)}, but {of} has {outline(spec)} (* is an array)",
            where=here.site,
            remedy=f"return the containers of {of}, with None where the derivative is zero",
        )
    return parts


def dense_for(returned: Any, args: Sequence[Any]) -> Any:
    """Return what a rule returned with whole arrays for sparse ones, which would count as containers beside arguments that are none."""
    leaves, _ = flatten_to(IndexedSlices, args)
    if any(isinstance(leaf, IndexedSlices) for leaf in leaves):
        return returned
    parts, spec = flatten_to(IndexedSlices, returned)
    return unflatten(spec, [densified(part) for part in parts])


def rule_result(part: Any, like: Value, description: str, of: str) -> Value | None:
    """Return what a rule returned as a value of the shape and dtype of `like`; None stays None."""
    dtype_remedy = "convert it first (np.real for the real part)"
    return None if part is None else fitted(part, like, description, of, "return", dtype_remedy)


def named(wrapper: F, function: Callable[..., Any]) -> F:
    """Let a wrapper show itself as the function that it wraps."""
    # A jitted function keeps its name in its __dict__, which must not overwrite ours.
    with contextlib.suppress(AttributeError, TypeError):
        functools.update_wrapper(wrapper, function, updated=())
    return wrapper


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a callable."""
    return str(getattr(function, "__name__", type(function).__name__))


def _fresh(value: Value, tag: TraceTag) -> Value:
    fresh = emit(identity, [value])
    fresh.aval = value.aval
    fresh.tags = (*fresh.tags, tag)
    return fresh


def _zeros_of(leaf: Any) -> Any:
    if isinstance(leaf, Handle):
        return Array(broadcast_to(literal(0, _tangent_dtype(leaf.dtype)), leaf.shape))
    if isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        return np.zeros(np.shape(leaf), _tangent_dtype(np.asarray(leaf).dtype))[()]
    return None


def _tangent_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if is_inexact(dtype) else np.dtype(np.float64)
