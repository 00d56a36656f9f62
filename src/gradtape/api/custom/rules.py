"""Custom derivative rules in JAX's form: `custom_jvp` and `custom_vjp`."""

from __future__ import annotations

import inspect
import threading
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Self, overload

from gradtape.api.custom.call import (
    ForwardRule,
    Operands,
    ReverseRule,
    attached,
    captured_by,
    dense_for,
    matched,
    name_of,
    named,
    rule_result,
    zeros_for,
)
from gradtape.api.custom.complex_convention import conjugated
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.pickling import Call, Repeatable, reduced
from gradtape.api.transforms.recording import recordable_body
from gradtape.api.type_variables import P, R_co
from gradtape.api.units import UNITS_AROUND, refuse_quantities
from gradtape.errors import ArgumentError, RuleError, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import visible_inputs
from gradtape.trace.array.array import Array
from gradtape.trace.jit.guards import Trace
from gradtape.trace.source.contexts import in_rule
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec, flatten, flatten_with_none, unflatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import Q


class _WithRule(Repeatable, ABC, Generic[P, R_co]):
    """A function whose derivative rule is attached after it has been made."""

    def __init__(self, function: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        caller = type(self).__name__
        check_callable(function, caller)
        positions = (
            tuple(nondiff_argnums) if isinstance(nondiff_argnums, tuple | list) else (nondiff_argnums,)
        )
        for position in positions:
            if type(position) is not int or position < 0:
                raise ArgumentError(
                    f"{caller}: nondiff_argnums must be non-negative ints, got {nondiff_argnums!r}",
                    where=user_site(),
                    remedy="nondiff_argnums=(0,)",
                )
        self._function = recordable_body(function)
        self._given = function
        self._nondiff = positions
        self._positions = _positional(function)
        self._name = name_of(function)
        self._rules_given: tuple[str, tuple[Any, ...]] | None = None
        """The method that has set the rules, and its arguments."""
        self.made_by = Call(type(self), (function, nondiff_argnums), {})
        named(self, function)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, self._rules_given)

    def __setstate__(self, state: tuple[str, tuple[Any, ...]]) -> None:
        method, rules = state
        getattr(self, method)(*rules)

    def __repr__(self) -> str:
        return f"<gradtape.{type(self).__name__} of {self._name}>"

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: _WithRule[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
    ) -> Callable[Q, R_co]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        here.site = user_site()
        placed = self._by_position(args, kwargs)
        fixed = tuple(placed[k] for k in self._nondiff)
        free = [k for k in range(len(placed)) if k not in self._nondiff]
        refuse_quantities(placed, f"an argument of {self._name}", UNITS_AROUND)
        operands = Operands(tuple(placed[k] for k in free))

        def whole(*arguments: Any) -> tuple[Any, ...]:
            every = list(placed)
            for position, argument in zip(free, arguments, strict=True):
                every[position] = argument
            return tuple(every)

        result: R_co = self._call(operands, fixed, whole)
        return result

    @abstractmethod
    def _call(
        self, operands: Operands, fixed: tuple[Any, ...], with_fixed: Callable[..., tuple[Any, ...]]
    ) -> Any:
        """Compute the result; `with_fixed` puts all arguments together from those that are differentiated in."""

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments by position: rules name them so."""
        caller = f"{type(self).__name__}: {self._name}"
        if kwargs or len(args) < self._positions:
            signature = inspect.signature(self._given)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            by_position = [name for name, p in signature.parameters.items() if p.kind in POSITIONAL]
            unplaced = [name for name in kwargs if name not in by_position]
            if unplaced:
                raise RuleError(
                    f"{caller} was called with keyword arguments that have no position: {', '.join(unplaced)}",
                    where=here.site,
                    why="the rule gets its arguments by position",
                    remedy="make them positional parameters",
                )
            args = bound.args
        if any(position >= len(args) for position in self._nondiff):
            raise ArgumentError(
                f"{caller} has nondiff_argnums={self._nondiff}, but was called with {len(args)} arguments",
                where=here.site,
                remedy="pass the argument, or change nondiff_argnums",
            )
        return args

    def _missing(self, how: str) -> RuleError:
        return RuleError(
            f"{self._name} has no derivative rule yet", where=here.site, remedy=f"{self._name}.{how}"
        )


POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _positional(function: Callable[..., Any]) -> int:
    """Return how many arguments a function of the user's can take by position; NumPy's take options that are no arguments of rules."""
    if not inspect.isfunction(function):
        return 0
    return sum(p.kind in POSITIONAL for p in inspect.signature(function).parameters.values())


class custom_jvp(_WithRule[P, R_co]):
    """A function with a custom forward-mode rule. Reverse mode transposes the part of the rule that is linear in the tangents.

    Parameters
    ----------
    function : callable
        NumPy code.
    nondiff_argnums : int or sequence of int, optional
        Positions of non-differentiable arguments (functions, options): the rule gets them first.

    Notes
    -----
    The interface is JAX's.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.custom_jvp
    ... def log1pexp(x):
    ...     return np.log(1 + np.exp(x))
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return log1pexp(x), (1 - 1 / (1 + np.exp(x))) * dx
    >>> float(gt.grad(log1pexp)(0.0))
    0.5
    """

    def __init__(self, function: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self._rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule and return it.

        Parameters
        ----------
        rule : callable
            ``rule(*nondiff_args, primals, tangents) -> (output, tangent of the output)``, linear in the tangents. Tangents have the
            structure and shapes of the primals (zeros where there is none).
        """
        check_callable(rule, "defjvp")
        self._rule, self._rules_given = recordable_body(rule, is_linear=True), ("defjvp", (rule,))
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set one rule per argument.

        Parameters
        ----------
        *rules : callable or None
            ``rule(tangent, output, *primals) -> tangent of the output``; None for an argument without influence.
        """
        if self._nondiff:
            raise ArgumentError(
                f"defjvps: {self._name} has nondiff_argnums",
                where=user_site(),
                why="these rules get only the arguments that are differentiated",
                remedy="use defjvp",
            )
        for rule in rules:
            if rule is not None:
                check_callable(rule, "defjvps")

        def combined(primals: Any, tangents: Any) -> tuple[Any, Any]:
            if len(rules) != len(primals):
                raise RuleError(
                    f"defjvps: {self._name} has {len(rules)} rules for {len(primals)} arguments",
                    where=here.site,
                    remedy="give one rule (or None) per argument",
                )
            run: Callable[..., Any] = self
            output, total = run(*primals), None
            for rule, tangent in zip(rules, tangents, strict=True):
                if rule is not None:
                    term = rule(tangent, output, *primals)
                    total = term if total is None else total + term
            return output, total

        self._rule, self._rules_given = combined, ("defjvps", rules)

    def _call(
        self, operands: Operands, fixed: tuple[Any, ...], with_fixed: Callable[..., tuple[Any, ...]]
    ) -> Any:
        if self._rule is None:
            raise self._missing("defjvp(rule)")
        result = operands.run(lambda *arguments: self._function(*with_fixed(*arguments)), {})
        rule = _TangentRule(self._name, operands, self._rule, fixed, flatten(result)[1])
        return attached(result, operands, captured_by(result, operands, self._name), rule)


class custom_vjp(_WithRule[P, R_co]):
    """A function with a custom reverse-mode rule. Forward mode transposes the rule, if it is linear in the cotangent.

    Parameters
    ----------
    function : callable
        NumPy code.
    nondiff_argnums : int or sequence of int, optional
        Positions of non-differentiable arguments (functions, options): `bwd` gets them first.

    Notes
    -----
    The interface is JAX's.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.custom_vjp
    ... def clipped_gradient(x, limit):
    ...     return x
    >>> def fwd(x, limit):
    ...     return x, limit
    >>> def bwd(limit, cotangent):
    ...     return np.clip(cotangent, -limit, limit), None
    >>> clipped_gradient.defvjp(fwd, bwd)
    >>> float(gt.grad(lambda x: 5 * clipped_gradient(x, 2.0))(1.0))
    2.0
    """

    def __init__(self, function: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self._forward_rule = _Running()

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule.

        Parameters
        ----------
        fwd : callable
            ``fwd(*args) -> (output, residuals)``: takes the place of the function when it is differentiated.
        bwd : callable
            ``bwd(*nondiff_args, residuals, cotangent) -> tuple``: one cotangent per differentiated argument, of its
            structure and shapes, or None for zero.
        """
        check_callable(fwd, "defvjp")
        check_callable(bwd, "defvjp")
        self._rules, self._rules_given = (
            (recordable_body(fwd), recordable_body(bwd, is_linear=True)),
            ("defvjp", (fwd, bwd)),
        )

    def _call(
        self, operands: Operands, fixed: tuple[Any, ...], with_fixed: Callable[..., tuple[Any, ...]]
    ) -> Any:
        if self._rules is None:
            raise self._missing("defvjp(fwd, bwd)")
        fwd, bwd = self._rules

        def forward(*arguments: Any) -> tuple[Any, Any]:
            self._forward_rule.runs, before = True, self._forward_rule.runs
            try:
                returned = fwd(*with_fixed(*arguments))
            finally:
                self._forward_rule.runs = before
            return _pair(returned, f"the forward rule of {self._name}", "(output, residuals)")

        # Forward rules like to call the function itself; that call must not start them again.
        if not self._forward_rule.runs and any(_is_differentiated(value) for value in operands.values):
            result, residuals = operands.run(forward, {})
            kept_residuals = [residuals]
        else:
            result, kept_residuals = (
                operands.run(lambda *arguments: self._function(*with_fixed(*arguments)), {}),
                [],
            )
        rule = _CotangentRule(self._name, operands, forward, bwd, fixed, kept_residuals, flatten(result)[1])
        return attached(result, operands, captured_by(result, operands, self._name), rule)


class _Running(threading.local):
    """Whether something runs on this thread."""

    runs = False


class _TangentRule(ForwardRule):
    """The rule of `custom_jvp`."""

    def __init__(
        self,
        name: str,
        operands: Operands,
        rule: Callable[..., Any],
        fixed: tuple[Any, ...],
        spec: TreeSpec,
    ) -> None:
        super().__init__(name, operands)
        self._rule, self._fixed, self._spec = rule, fixed, spec

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        self.refuse_captured(node, [tangent is not None for tangent in tangents])
        count = len(self.operands.values)
        primals = self.operands.filled(visible_inputs(node)[:count])
        with self.operands.snapshot.restored(), in_rule():  # rules like to call the function itself
            returned = self._rule(*self._fixed, primals, self.operands.tangents(tangents[:count]))
        here.site = node.site
        description = f"the tangent that the rule of {self.name} returned"
        _, tangent = _pair(returned, f"the rule of {self.name}", "(output, tangent)")
        outputs = unflatten(self._spec, node.outs)
        outs, _ = flatten_with_none(outputs)
        return [
            rule_result(part, out, description, "the output") if is_inexact(out.dtype) else None
            for part, out in zip(matched(tangent, outputs, description, "the output"), outs, strict=True)
            if out is not None
        ]


class _CotangentRule(ReverseRule):
    """The rule of `custom_vjp`."""

    def __init__(
        self,
        name: str,
        operands: Operands,
        forward: Callable[..., tuple[Any, Any]],
        bwd: Callable[..., Any],
        fixed: tuple[Any, ...],
        residuals: list[Any],
        spec: TreeSpec,
    ) -> None:
        super().__init__(name, operands)
        self._forward, self._bwd, self._fixed, self._spec = forward, bwd, fixed, spec
        self._residuals = residuals

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        """Call the user's forward function for its residuals, then the backward function on the cotangents of the outputs."""
        self.refuse_captured(node, is_needed)
        operands = self.operands
        count = len(operands.values)
        values = visible_inputs(node)[:count]
        # What the call left is good for the call itself. What is made now is not kept: another derivative
        # may be taken while other tapes record.
        kept_residuals = self._residuals if operands.are(values) else []
        with operands.snapshot.restored(), in_rule():
            kept_residuals = kept_residuals or [self._forward(*operands.filled(values))[1]]
        upstream = [
            Array(zeros_for(out) if cotangent is None else conjugated(cotangent))
            for out, cotangent in zip(node.outs, cotangents, strict=True)
        ]
        returned = self._bwd(*self._fixed, kept_residuals[0], unflatten(self._spec, upstream))
        here.site = node.site
        if not isinstance(returned, tuple | list) or len(returned) != len(operands.args):
            raise RuleError(
                f"the backward rule of {self.name} returned {kind_of(returned)}, not a tuple of {len(operands.args)}: "
                "one cotangent per differentiated argument",
                where=node.site,
                remedy="return a tuple, with None for zero",
            )
        description = f"a cotangent that the backward rule of {self.name} returned"
        returned = dense_for(returned, operands.args)
        parts = [
            leaf
            for entry, arg in zip(returned, operands.args, strict=True)
            for leaf in matched(entry, arg, description, "its argument")
        ]
        fitting = [
            rule_result(part, value, description, "its argument") if flag else None
            for part, value, flag in zip(operands.select(parts), values, is_needed[:count], strict=True)
        ]
        pulled = [None if part is None else conjugated(part) for part in fitting]
        return [*pulled, *[None] * (len(is_needed) - count)]


def _is_differentiated(value: Value) -> bool:
    """Return whether somebody differentiates (a trace alone does not)."""
    return any(tag.recording and not isinstance(tag, Trace) for tag in value.tags)


def _pair(returned: Any, rule_name: str, parts: str) -> tuple[Any, Any]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise RuleError(
            f"{rule_name} returned {kind_of(returned)}, not a pair {parts}",
            where=here.site,
            remedy=f"return {parts}",
        )
    return returned[0], returned[1]
