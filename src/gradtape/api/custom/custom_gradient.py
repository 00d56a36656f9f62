"""Custom gradients in TensorFlow's form: `custom_gradient` and `grad_pass_through`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gradtape.api.custom.call import (
    Operands,
    ReverseRule,
    attached,
    dense_for,
    matched,
    name_of,
    named,
    rule_result,
    zeros_for,
)
from gradtape.api.custom.complex_convention import conjugated
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.pickling import Call, Wrapper, pickled_as_call
from gradtape.api.transforms.recording import recordable_body
from gradtape.api.units import UNITS_AROUND, refuse_quantities
from gradtape.errors import RuleError, ShapeError, counted, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.control import visible_inputs
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.masked import without_selections
from gradtape.trace.patching.bytecode import local_names
from gradtape.trace.source.contexts import in_rule
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten_with_none

if TYPE_CHECKING:
    from gradtape.api.type_variables import Q, V


@overload
def custom_gradient(
    function: None = None,
) -> Callable[[Callable[Q, tuple[V, Callable[..., Any]]]], Callable[Q, V]]: ...
@overload
def custom_gradient(function: Callable[Q, tuple[V, Callable[..., Any]]]) -> Callable[Q, V]: ...
def custom_gradient(function: Callable[..., Any] | None = None) -> Any:
    """Decorate a function that returns its result and the function that computes its gradient.

    Parameters
    ----------
    function : callable
        ``function(*args, **kwargs) -> (outputs, grad_fn)``. ``grad_fn(*upstream)`` gets the upstream gradient of each output (one per
        leaf, if `outputs` is a nest) and returns one gradient per positional argument: in the structure of the argument, or None for
        zero. For one argument it may return the gradient alone.

    Returns
    -------
    callable
        Returns the outputs alone. Its derivative, in reverse and in forward mode, is that of `grad_fn`: the body is not differentiated.

    Raises
    ------
    RuleError
        At a call, if `function` does not return such a pair; when a gradient is taken, if the gradients do not match the arguments.
        It is a ValueError and a TypeError.
    ShapeError
        If a gradient has another shape than its argument.
    NotDifferentiableError
        In forward mode, if `grad_fn` is not linear in the upstream gradients: forward mode transposes it.

    Notes
    -----
    `grad_fn` runs while outer tapes record, so it is differentiated for higher orders; custom gradients inside it override these.
    Keyword arguments are passed through and are not differentiated; a captured array is a constant.

    If the body reads trainable variables, `grad_fn` must take ``variables=``, the list of them, and return
    ``(gradients, variable_gradients)`` with one gradient per variable.

    The interface is TensorFlow's.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.custom_gradient
    ... def log1pexp(x):
    ...     e = np.exp(x)
    ...     def grad_fn(upstream):
    ...         return upstream * (1 - 1 / (1 + e))
    ...     return np.log(1 + e), grad_fn
    >>> float(gt.grad(log1pexp)(0.0))
    0.5
    """
    if function is None:
        return custom_gradient
    check_callable(function, "custom_gradient")
    body, name = recordable_body(function), name_of(function)

    def decorated(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        refuse_quantities(args, f"an argument of {name}", UNITS_AROUND)
        operands = Operands(args)

        def again(values: Sequence[Value]) -> Callable[..., Any]:
            with operands.snapshot.restored(), in_rule():
                return _split(body(*operands.filled(values), **kwargs), name)[1]

        outputs, grad_fn = _split(operands.run(body, kwargs), name)
        accessed = {v: value for v, value in operands.snapshot.reads.items() if v.trainable}
        variables = list(accessed)
        if variables and not _takes_variables(grad_fn):
            raise RuleError(
                f"custom_gradient: {name} reads variables, and its gradient function does not take them",
                where=here.site,
                why="their gradients would be lost",
                remedy="def grad_fn(*upstream, variables): ...; return gradients, variable_gradients",
            )
        rule = GradientRule(name, operands, grad_fn, again, variables)
        return attached(outputs, operands, tuple(accessed.values()), rule)

    wrapper: Wrapper[..., Any] = Wrapper(decorated, function)
    wrapper.made_by = Call(custom_gradient, (function,), {})
    return wrapper


class GradientRule(ReverseRule):
    """The rule of `custom_gradient`.

    Parameters
    ----------
    name, operands
        As for `BothModes`.
    grad_fn : callable
        What the body returned.
    again : callable
        ``(operands) -> grad_fn``: calls the body again. A gradient function knows what its own call computed, and must not be
        used for a copy of the node.
    variables : list of Variable
        What the body read. What it read of them follows the arguments among the node's operands.
    """

    def __init__(
        self,
        name: str,
        operands: Operands,
        grad_fn: Callable[..., Any],
        again: Callable[[Sequence[Value]], Callable[..., Any]],
        variables: list[Variable],
    ) -> None:
        super().__init__(name, operands)
        self.grad_fn, self.again, self.variables = grad_fn, again, variables

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        upstream = [
            Array(zeros_for(out) if cotangent is None else conjugated(cotangent))
            for out, cotangent in zip(node.outs, cotangents, strict=True)
        ]
        operands = visible_inputs(node)
        values = operands[: len(self.operands.values)]
        grad_fn = self.grad_fn if self.operands.are(values) else self.again(values)
        takes_variables = bool(self.variables) or _needs_variables(grad_fn)
        gradients = grad_fn(*upstream, variables=self.variables) if takes_variables else grad_fn(*upstream)
        here.site = node.site
        parts = self._of_operands(gradients, takes_variables)
        description = f"a gradient of {self.name}"
        fitting = [
            rule_result(part, value, description, "its argument") if flag else None
            for part, value, flag in zip(parts, operands, is_needed, strict=True)
        ]
        return [None if part is None else conjugated(part) for part in fitting]

    def _of_operands(self, gradients: Any, takes_variables: bool) -> list[Any]:
        """Return one gradient per operand: those of the arguments, then those of the variables, of which `grad_fn` may have been told."""
        if not takes_variables:
            return self.operands.select(self._by_leaf(gradients))
        if not isinstance(gradients, tuple | list) or len(gradients) != 2:
            raise RuleError(
                f"the gradient function of {self.name} got variables and did not return a pair",
                where=here.site,
                remedy="return gradients, variable_gradients",
            )
        of_arguments, of_variables = gradients
        if not isinstance(of_variables, tuple | list) or len(of_variables) != len(self.variables):
            raise RuleError(
                f"the gradient function of {self.name} did not return a list of {len(self.variables)} gradients, one per variable",
                where=here.site,
                remedy="return one gradient per entry of `variables`, in that order, with None for zero",
            )
        return [*self.operands.select(self._by_leaf(of_arguments)), *of_variables]

    def _by_leaf(self, gradients: Any) -> list[Any]:
        """Return one gradient per leaf of the arguments."""
        args, leaves = self.operands.args, self.operands.leaves
        gradients = dense_for(gradients, args)
        parts, _ = flatten_with_none(gradients)
        if len(parts) == len(leaves) or not leaves:
            return parts if leaves else []
        numbers = [position for position, leaf in enumerate(leaves) if _is_numeric(leaf)]
        if len(parts) == len(numbers):
            placed: list[Any] = [None] * len(leaves)
            for position, part in zip(numbers, parts, strict=True):
                placed[position] = part
            return placed
        entries = [gradients] if len(args) == 1 and not flatten_with_none(args[0])[1].is_leaf() else gradients
        if not isinstance(entries, tuple | list) or len(entries) != len(args):
            has_nones = len(parts) > len(numbers)
            raise RuleError(
                f"the gradient function of {self.name} returned {counted(len(parts), 'gradient')} "
                f"for {counted(len(numbers), 'argument')}",
                where=here.site,
                why="each entry of a list or tuple is a gradient; omitted arguments and keyword arguments have none"
                if has_nones
                else "",
                remedy="return one gradient per positional argument, with None for zero",
            )
        return [
            part
            for entry, arg in zip(entries, args, strict=True)
            for part in matched(entry, arg, f"a gradient of {self.name}", "its argument")
        ]


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, Handle | np.ndarray | np.generic | int | float | complex)


def _takes_variables(function: Callable[..., Any]) -> bool:
    parameters = _parameters(function)
    return "variables" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _needs_variables(function: Callable[..., Any]) -> bool:
    """Return whether a gradient function cannot be called without them, even if there are none."""
    names = local_names(function)
    if names is not None and "variables" not in names:  # quicker than to ask for the parameters
        return False
    parameter = _parameters(function).get("variables")
    return parameter is not None and parameter.default is parameter.empty


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin
        return {}


def _split(result: Any, name: str) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(result, tuple | list) or len(result) != 2 or not callable(result[1]):
        kind_returned = kind_of(result)
        raise RuleError(
            f"custom_gradient: {name} returned {kind_returned}, not a pair of outputs and a gradient function",
            where=here.site,
            remedy="return outputs, grad_fn",
        )
    return result[0], result[1]


@pickled_as_call
def grad_pass_through(function: Callable[Q, V]) -> Wrapper[Q, V]:
    """Return a function that computes `function` and has the gradient of the identity.

    Parameters
    ----------
    function : callable
        As many results as positional arguments, of their shapes: rounding, a sign, a quantiser, a lookup.

    Returns
    -------
    callable
        The gradient that reaches a result is passed to the argument in its place, unchanged.

    Raises
    ------
    RuleError, ShapeError
        When a gradient is taken, if the results do not match the arguments.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> rounded = gt.grad_pass_through(np.round)
    >>> gt.grad(lambda x: np.sum(3 * rounded(x)))(np.array([0.4, 1.6]))
    array([3., 3.])
    """
    check_callable(function, "grad_pass_through")
    body, name = recordable_body(function), name_of(function)

    def with_identity(*args: Any, **kwargs: Any) -> Any:
        """Call the function, and hand the upstream gradients on to those arguments that have the shapes of the results."""
        args = without_selections(args)
        leaves, _ = flatten_with_none(args)
        shapes = [leaf.shape if isinstance(leaf, Handle) else None for leaf in leaves]
        numbers = [position for position, leaf in enumerate(leaves) if _is_numeric(leaf)]
        arrays = [position for position in numbers if shapes[position] is not None]

        def handed_on(*upstream: Any, variables: Sequence[Variable] = ()) -> Any:
            # Numbers among the arguments (np.clip(x, 0, 1)) may have results in their places or none.
            positions = numbers if len(upstream) == len(numbers) else arrays
            got = [part.shape for part in upstream]
            if len(got) != len(positions) or any(
                shapes[position] not in (None, shape) for position, shape in zip(positions, got, strict=True)
            ):
                needed = [shapes[position] for position in arrays]
                kind = ShapeError if len(got) == len(needed) else RuleError
                raise kind(
                    f"grad_pass_through: {name} returned arrays of shape {_listed(got)} for arguments of shape {_listed(needed)}",
                    where=here.site,
                    why="the gradient of each result is passed to the argument at the same position",
                    remedy="return as many results as there are positional arguments, of their shapes",
                )
            handed = dict(zip(positions, upstream, strict=True))
            of_leaves = [handed.get(position) for position in range(len(leaves))]
            return (of_leaves, [None] * len(variables)) if variables else of_leaves

        return body(*args, **kwargs), handed_on

    return Wrapper(custom_gradient(named(with_identity, function)), function)


def _listed(shapes: Sequence[Shape | None]) -> str:
    return ", ".join(map(str, shapes)) or "none"
