"""Functions that run on ndarrays, never on traced ones, with rules that get the arguments of the function."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gradtape.api.custom.call import (
    BothModes,
    ForwardRule,
    Operands,
    ReverseRule,
    attached,
    name_of,
    named,
    rule_result,
    zeros_for,
)
from gradtape.api.custom.callback import callback
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.recording import recordable_body
from gradtape.api.units import UNITS_AROUND, refuse_quantities
from gradtape.errors import RuleError
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import visible_inputs
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import abstracting_trace
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.source.contexts import in_rule
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec, flatten, flatten_arguments, unflatten

VjpRule: TypeAlias = Callable[[Sequence[int], Any, Any, Any], Callable[[Any], Sequence[Any]]]
"""``rule(argnums, result, args, kwargs) -> pullback``, which returns a cotangent, or None, for each of the arguments."""

JvpRule: TypeAlias = Callable[[Sequence[int], Sequence[Any], Any, Any, Any], Any]
"""``rule(argnums, tangents, result, args, kwargs) -> tangent``."""


class BoundArguments:
    """The arguments of one call, of which the traced arrays are operands.

    Parameters
    ----------
    args, kwargs : tuple, dict
        The arguments. Containers are looked into, objects are not.

    Attributes
    ----------
    handles : list of Handle
        The traced arrays.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_quantities((args, kwargs), "an argument of a primitive", UNITS_AROUND)
        self._leaves, self._spec = flatten_arguments((args, kwargs))
        self._places = [k for k, leaf in enumerate(self._leaves) if isinstance(leaf, Handle)]
        self.handles = [self._leaves[k] for k in self._places]
        self._of_argument = [len(flatten_arguments(argument)[0]) for argument in args]

    def filled(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with other arrays in place of the traced ones."""
        leaves = list(self._leaves)
        for position, array in zip(self._places, arrays, strict=True):
            leaves[position] = array
        filled: tuple[tuple[Any, ...], dict[str, Any]] = unflatten(self._spec, leaves)
        return filled

    def by_argument(self) -> dict[int, list[tuple[int, int]]]:
        """Return, for each positional argument with traced arrays, their places among its leaves and among `handles`."""
        by_position: dict[int, list[tuple[int, int]]] = {}
        order = {position: k for k, position in enumerate(self._places)}
        begin = 0
        for argnum, count in enumerate(self._of_argument):
            leaf_and_operand = [(k, order[begin + k]) for k in range(count) if begin + k in order]
            if leaf_and_operand:
                by_position[argnum] = leaf_and_operand
            begin += count
        return by_position


class Primitive:
    """A function that runs on ndarrays, with rules that are set after it has been made.

    A function without rules is differentiated through.

    Parameters
    ----------
    fun : callable
        It gets ndarrays and numbers, and everything else as it is.

    Attributes
    ----------
    fun : callable
        The function.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        check_callable(fun, "primitive")
        named(self, fun)
        self.fun, self.name = fun, name_of(fun)
        self._body = recordable_body(fun)
        self._vjp: VjpRule | None = None
        self._jvp: JvpRule | None = None

    def set_vjp(self, rule: VjpRule) -> None:
        """Set the rule of reverse mode. It serves forward mode too, where there is none for that and it is linear in the cotangent."""
        self._vjp = recordable_body(rule, is_linear=True)

    def set_jvp(self, rule: JvpRule) -> None:
        """Set the rule of forward mode. It serves reverse mode too, where there is none for that and it is linear in the tangents."""
        self._jvp = recordable_body(rule, is_linear=True)

    @property
    def _functions_called(self) -> tuple[str, ...]:
        """The functions that are traced with a function that calls this one: the rules; the body if there are none."""
        return ("_vjp", "_jvp") if self._vjp or self._jvp else ("_vjp", "_jvp", "fun")

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = BoundArguments(args, kwargs)
        if not bound.handles:
            return self.fun(*args, **kwargs)
        if self._vjp is None and self._jvp is None:
            return self._body(*args, **kwargs)
        here.site = user_site()
        operands = Operands(tuple(bound.handles))
        raw = function = self.fun
        if kwargs or not all(isinstance(arg, Handle) for arg in args):

            def raw(*arrays: Any) -> Any:
                own_args, own_kwargs = bound.filled(arrays)
                return function(*own_args, **own_kwargs)

        if all(abstract_of(value) is None and abstracting_trace(value) is None for value in operands.values):
            arrays = force(list(operands.values))
            result = raw(*(array if array.ndim else array[()] for array in arrays))
        else:
            result = operands.run(lambda *handles: callback(raw, None, *handles), {})
        kind = _BothRules if self._vjp and self._jvp else _PullRule if self._vjp else _PushRule
        rule = kind(self.name, operands, bound, flatten(result)[1], self._vjp, self._jvp)
        return attached(result, operands, [], rule)


class _Rules(BothModes):
    def __init__(
        self,
        name: str,
        operands: Operands,
        bound: BoundArguments,
        spec: TreeSpec,
        vjp: VjpRule | None,
        jvp: JvpRule | None,
    ) -> None:
        super().__init__(name, operands)
        self.bound, self.spec, self.vjp, self.jvp = bound, spec, vjp, jvp

    def arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call that a node stands for."""
        return self.bound.filled(
            [Array(value) for value in visible_inputs(node)[: len(self.operands.values)]]
        )

    def results(self, node: Node) -> Any:
        """Return what the call has computed."""
        return unflatten(self.spec, [Array(out) for out in node.outs])


class _PullRule(_Rules, ReverseRule):
    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        assert self.vjp is not None
        by_argument = self.bound.by_argument()
        argnums = [
            argnum
            for argnum, positions in by_argument.items()
            if any(is_needed[operand] for _, operand in positions)
        ]
        upstream = [
            Array(zeros_for(out) if cotangent is None else cotangent)
            for out, cotangent in zip(node.outs, cotangents, strict=True)
        ]
        with self.operands.snapshot.restored(), in_rule():
            args, kwargs = self.arguments(node)
            pullback = self.vjp(argnums, self.results(node), args, kwargs)
            returned = list(pullback(unflatten(self.spec, upstream)))
        here.site = node.site
        pulled: list[Value | None] = [None] * len(is_needed)
        description = f"a cotangent that the rule of {self.name} returned"
        for argnum, cotangent in zip(argnums, returned, strict=True):
            if cotangent is None:
                continue
            parts, _ = flatten_arguments(cotangent)
            for leaf, operand in by_argument[argnum]:
                value = self.operands.values[operand]
                if is_needed[operand] and is_inexact(value.dtype):
                    pulled[operand] = _fitting(parts[leaf], value, description)
        return pulled


class _PushRule(_Rules, ForwardRule):
    moves_all = False

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        assert self.jvp is not None
        moving = {
            argnum: positions
            for argnum, positions in self.bound.by_argument().items()
            if any(tangents[operand] is not None for _, operand in positions)
        }
        with self.operands.snapshot.restored(), in_rule():
            args, kwargs = self.arguments(node)
            gs = []
            for argnum, positions in moving.items():
                leaves, spec = flatten_arguments(args[argnum])
                for leaf, operand in positions:
                    tangent = tangents[operand]
                    leaves[leaf] = Array(zeros_for(leaves[leaf].value) if tangent is None else tangent)
                gs.append(unflatten(spec, leaves))
            returned = self.jvp(list(moving), gs, self.results(node), args, kwargs)
        here.site = node.site
        if returned is None:
            return [None] * len(node.outs)
        parts, spec = flatten(returned)
        if spec != self.spec:
            raise RuleError(
                f"the tangent that the rule of {self.name} returned does not have the structure of the result",
                where=node.site,
                remedy="return the containers of the result",
            )
        description = f"the tangent that the rule of {self.name} returned"
        return [
            _fitting(part, out, description) if is_inexact(out.dtype) else None
            for part, out in zip(parts, node.outs, strict=True)
        ]


class _BothRules(_PullRule):
    push = _PushRule.push


def _fitting(part: Any, like: Value, description: str) -> Value | None:
    """Return a derivative with the shape and dtype of what it belongs to: the real part where that is real."""
    if like.dtype.kind == "f":
        if np.iscomplexobj(part):
            part = np.real(part)
        if np.result_type(part) != like.dtype:
            part = np.asarray(part).astype(like.dtype)
    return rule_result(part, like, description, "what it belongs to")
