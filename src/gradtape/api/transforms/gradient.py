"""Function transforms: grad, value_and_grad, vjp, jvp."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.custom.complex_convention import (
    Convention,
    check_convention,
    check_holomorphic,
    conjugated,
    not_of_kind,
)
from gradtape.api.operands import fitted, traceable_operand
from gradtape.api.transforms.argnums import Names, Positions, selection_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.errors import IntegerInputError, NonScalarOutputError, StructureError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Literal, TraceTag, Value, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.ops.core.elementwise.cast import convert, identity
from gradtape.trace.array.array import Array, standing_for
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import arrays_in
from gradtape.trace.dispatch.call_errors import list_meant
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.reroll import moment_now, rolled_since, with_loops
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.source.sites import user_site
from gradtape.transforms.jvp import jvp as push_forward
from gradtape.transforms.loops.residuals import expensive_values
from gradtape.transforms.vjp import vjp as pull_back
from gradtape.trees import flatten, flatten_up_to, unflatten


def grad(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
) -> Jitted:
    """Return a function that computes the gradient of `function`.

    Parameters
    ----------
    function : callable
        NumPy code whose result is one real number (with ``has_aux``: a pair of it and anything else).
    argnums : int or sequence of int, optional
        Which positional arguments to differentiate in, by default the first. Each may be a number, an array, or nested containers of
        these.
    argnames : str or sequence of str, optional
        In place of `argnums`: their names. They may be passed by position or by keyword, or left out where they have a default.
    has_aux : bool, default False
        Whether `function` returns ``(number, aux)``; then the result is ``(gradient, aux)``.
    holomorphic : bool, default False
        Whether `function` is a holomorphic function of complex arguments. Its result is one complex number, and what is returned is the
        complex derivative f'(z).
    convention : {"tensorflow", "jax"}, default "tensorflow"
        The gradient of a real function in a complex argument x + iy: df/dx + i df/dy, as in TensorFlow and PyTorch, or its
        conjugate, as in JAX.

    Returns
    -------
    Jitted
        Takes the arguments of `function`. It returns the gradient in the structure of the argument (a tuple of gradients if `argnums` or
        `argnames` is a sequence); each leaf has the shape and dtype of the argument's leaf. Arguments without influence get zeros.

    Raises
    ------
    IntegerInputError
        At a call, for an integer array to differentiate in. A Python int is taken as the float it equals.
    NonScalarOutputError
        At a call, if the result is not one real number (with `holomorphic`, one complex number).
    DtypeError
        At a call with `holomorphic`, for a real argument to differentiate in.
    NotDifferentiableError
        At a call with `holomorphic`, if the path to the result leads through a function that is not holomorphic, such as np.abs.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> bool(np.isclose(gt.grad(gt.grad(np.sin))(0.5), -np.sin(0.5)))
    True
    >>> float(gt.grad(lambda x, scale=2.0: scale * x, argnames="scale")(3.0))
    3.0
    """
    both = value_and_gradient(function, argnums, argnames, has_aux, "grad", holomorphic, convention)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, result = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return jit_of(gradient, named("grad", function), EVERYTHING_TRACED)


def value_and_grad(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
) -> Jitted:
    """Return a function that computes the value of `function` and its gradient, in one program.

    Parameters
    ----------
    function, argnums, argnames, has_aux, holomorphic, convention
        As for `grad`.

    Returns
    -------
    Jitted
        Returns ``(value, gradient)``, with ``has_aux`` ``((value, aux), gradient)``; see `grad`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> value, gradient = gt.value_and_grad(lambda x, y: np.sum(x * y), argnums=(0, 1))(np.ones(2), np.array([2.0, 3.0]))
    >>> float(value), [g.tolist() for g in gradient]
    (5.0, [[2.0, 3.0], [1.0, 1.0]])
    """
    both = value_and_gradient(function, argnums, argnames, has_aux, "value_and_grad", holomorphic, convention)
    return jit_of(both, named("value_and_grad", function), EVERYTHING_TRACED)


def value_and_gradient(
    function: Callable[..., Any],
    argnums: Positions,
    argnames: Names,
    has_aux: bool,
    caller: str,
    holomorphic: bool,
    convention: Convention,
) -> Callable[..., Any]:
    """Return what computes both inside of a recording; `caller` is who asks."""
    check_callable(function, caller)
    check_convention(convention, caller)
    selection = selection_of(function, argnums, argnames, caller)
    bilinear = holomorphic or convention == "jax"

    def both(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        places = selection.places(args, kwargs)
        chosen = selection.chosen(args, kwargs, places)
        tag = TraceTag()
        leaves, filled = arrays_in(chosen, none_is_leaf=False)
        starts = [start(leaf, tag, f"{caller}: an argument in {selection.described}") for leaf in leaves]
        moment = moment_now()
        followed = filled(list(map(standing_for, starts, leaves)))
        arguments, keywords = selection.replaced(args, kwargs, places, followed)
        result = recordable_body(function)(*arguments, **keywords)
        value, aux = split_aux(result, caller) if has_aux else (result, None)
        tag.recording = False
        target = _scalar(value, caller, "c" if holomorphic else "f")
        (target,), aux = with_loops(moment, [target], aux, starts)
        if holomorphic:
            check_holomorphic(target, starts, tag, caller)
        cotangents = pull_back([target], starts, [_one(target)], lambda v: tag not in v.tags)
        tag.end()
        gradients = [
            Array(
                zeros_like_start(begin)
                if cotangent is None
                else cotangent
                if bilinear
                else conjugated(cotangent)
            )
            for begin, cotangent in zip(starts, cotangents, strict=True)
        ]
        nested = filled(gradients)
        value = Array(target)
        return ((value, aux) if has_aux else value), selection.filled(nested)

    return both


def recordable_body(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what to call inside of a recording: the body of a jitted function rather than its native entry, in a scope of its own."""
    body = function.site.function if isinstance(function, Jitted) else function

    def run(*args: Any, **kwargs: Any) -> Any:
        with inside(Scope()):
            try:
                return body(*args, **kwargs)
            except (TypeError, AttributeError) as error:
                mistake = list_meant(error, body, args, kwargs)
                if mistake is None:
                    raise
                raise mistake from None

    return run


def start(leaf: Any, tag: TraceTag, argument: str) -> Value:
    """Return a fresh value equal to an argument, from which `tag` follows."""
    value = leaf.value if isinstance(leaf, Handle) else as_value(leaf, argument)
    if not is_inexact(value.dtype):
        if not value.aval.weak or value.dtype.kind == "b":
            raise IntegerInputError(
                f"{argument} is an array of {value.dtype}",
                where=user_site(),
                why="a derivative in integers has no meaning: there is nothing between them",
                remedy="convert it: x.astype(float)",
            )
        value = convert(value, np.dtype(np.float64))
    if isinstance(value, Literal):
        value = Value(value.aval, data=value.data)
    fresh = emit(identity, [value])
    fresh.aval = value.aval
    fresh.tags = (*fresh.tags, tag)
    return fresh


def zeros_like_start(value: Value) -> Value:
    """Return the gradient of an argument without influence."""
    return broadcast_to(literal(0, value.dtype), value.shape)


def split_aux(result: Any, caller: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise StructureError(
            f"{caller} with has_aux=True needs a function that returns a pair (number, aux); "
            f"this one returned {_described(result)}",
            where=user_site(),
            remedy="return a pair, or leave has_aux away",
        )
    return result


def _described(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"


def _scalar(result: Any, caller: str, kind: str = "f") -> Value:
    """Return the value of a result that must be one number: a real one, or a complex one for the kind "c"."""
    if not isinstance(result, Handle | np.ndarray | np.generic | int | float | complex):
        raise NonScalarOutputError(
            f"{caller} needs a function that returns one number; this one returned a {type(result).__name__}",
            where=user_site(),
            why="only a single number has a gradient",
            remedy="return a number (has_aux=True for a number and something else); for many numbers use vjp or a jacobian",
        )
    value = result.value if isinstance(result, Handle) else as_value(result, "the result")
    if value.size != 1 or value.ndim:
        raise NonScalarOutputError(
            f"{caller} needs a function that returns one number; this one returned an array of shape {value.shape}",
            where=user_site(),
            why="only a single number has a gradient",
            remedy="sum it (np.sum), or use gt.vjp, gt.jvp or a jacobian",
        )
    if value.dtype.kind != kind:
        raise not_of_kind(value.dtype, kind, caller)
    return value if not isinstance(value, Literal) else Value(value.aval, data=value.data)


def _one(target: Value) -> Value:
    return literal(1, target.dtype)


def named(prefix: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that shows itself as ``grad(f)`` with the signature of `function`."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    with contextlib.suppress(AttributeError, TypeError):  # builtins and callables without a name
        # A jitted function keeps its name in its __dict__, which must not overwrite ours.
        functools.update_wrapper(stand_in, function, updated=())
    name = getattr(function, "__name__", type(function).__name__)
    stand_in.__name__ = f"{prefix}({name})"
    stand_in.__qualname__ = f"{prefix}({getattr(function, '__qualname__', name)})"
    return stand_in


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Evaluate a function and return a callable that pulls cotangents back.

    Parameters
    ----------
    function : callable
        NumPy code with one or more floating results in any nest.
    *primals : array_like or nests of them
        Its arguments.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then aux is returned as well.

    Returns
    -------
    y : nest of ndarray
        ``function(*primals)``.
    pullback : callable
        ``pullback(ct) -> tuple``: takes a cotangent of the structure and shapes of `y` and returns one per primal (zeros where there is
        no influence). It can be called any number of times.
    aux : anything
        With ``has_aux`` only.

    Raises
    ------
    IntegerInputError
        For an integer array among the primals.
    StructureError, ShapeError
        By the pullback, for a cotangent that does not match `y`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> y, pullback = gt.vjp(np.sin, np.array([0.0, 1.0]))
    >>> bool(np.allclose(pullback(np.ones(2))[0], np.cos([0.0, 1.0])))
    True
    """
    check_callable(function, "vjp")
    here.site = user_site()
    tag = TraceTag()
    leaves, spec = flatten(primals)
    recorded = any(isinstance(leaf, Handle) for leaf in leaves)
    starts = [start(leaf, tag, "vjp: a primal") for leaf in leaves]
    moment = moment_now()
    result = recordable_body(function)(*unflatten(spec, list(map(standing_for, starts, leaves))))
    result, aux = split_aux(result, "vjp") if has_aux else (result, None)
    tag.recording = False
    results, result_spec = flatten(result)
    targets = rolled_since(moment, [traceable_operand(leaf, "the result") for leaf in results], starts)
    asking = TagLifetime(tag)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        here.site = user_site()
        parts = flatten_up_to(result_spec, cotangent, "the cotangent", "the function's result", here.site)
        seeds = [
            conjugated(fitted(part, target, "a cotangent", "the result"))
            for part, target in zip(parts, targets, strict=True)
        ]
        pulled = pull_back(targets, starts, seeds, lambda v: asking.tag not in v.tags)
        values = [
            zeros_like_start(begin) if part is None else conjugated(part)
            for begin, part in zip(starts, pulled, strict=True)
        ]
        traced = recorded or any(isinstance(part, Handle) for part in parts)
        returned: tuple[Any, ...] = unflatten(spec, results_of(values, traced))
        return returned

    if not recorded and not any(each.recording for target in targets for each in target.tags):
        force([*targets, *expensive_values(targets, starts, lambda v: tag not in v.tags)])
    y = unflatten(result_spec, results_of(targets, recorded))
    return (y, pullback, aux_of(aux, recorded)) if has_aux else (y, pullback)


def aux_of(aux: Any, recorded: bool) -> Any:
    """Return what a function gave besides its result, as the caller works: arrays in it as Arrays in a recording, else as ndarrays."""
    leaves, spec = flatten(aux)
    traced = [leaf.value for leaf in leaves if isinstance(leaf, Handle)]
    arrays = iter(results_of(traced, recorded))
    return unflatten(spec, [next(arrays) if isinstance(leaf, Handle) else leaf for leaf in leaves])


class TagLifetime:
    """Ends a tag when nobody holds this any more: a pullback may ask about the record for as long as it lives."""

    __slots__ = ("tag",)

    def __init__(self, tag: TraceTag) -> None:
        self.tag = tag

    def __del__(self) -> None:
        self.tag.end()


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Evaluate a function and its directional derivative by forward mode.

    Parameters
    ----------
    function : callable
        NumPy code with one or more results in any nest.
    primals : sequence of array_like or nests of them
        Its arguments.
    tangents : sequence
        The direction: of the structure and shapes of `primals`.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then aux is returned as well.

    Returns
    -------
    y : nest of ndarray
        ``function(*primals)``.
    tangent : nest of ndarray
        The derivative of `y` along `tangents`, of the structure and shapes of `y` (zeros where there is no influence).
    aux : anything
        With ``has_aux`` only.

    Raises
    ------
    StructureError, ShapeError, IntegerInputError
        Where primals and tangents do not match or are integers.

    Examples
    --------
    >>> import gradtape as gt
    >>> y, t = gt.jvp(lambda x: x**2, (3.0,), (1.0,))
    >>> float(y), float(t)
    (9.0, 6.0)
    """
    check_callable(function, "jvp")
    here.site = user_site()
    for argument, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise StructureError(
                f"jvp: {argument} must be a tuple or list with one entry per argument, got {type(given).__name__}",
                where=here.site,
                remedy="gt.jvp(f, (x,), (dx,))",
            )
    tag = TraceTag()
    primals = tuple(primals)
    leaves, spec = flatten(primals)
    directions = flatten_up_to(spec, tuple(tangents), "tangents", "primals", here.site)
    recorded = any(isinstance(leaf, Handle) for leaf in (*leaves, *directions))
    starts = [start(leaf, tag, "jvp: a primal") for leaf in leaves]
    seeds = [fitted(d, begin, "a tangent", "its primal") for d, begin in zip(directions, starts, strict=True)]
    moment = moment_now()
    result = recordable_body(function)(*unflatten(spec, list(map(standing_for, starts, leaves))))
    result, aux = split_aux(result, "jvp") if has_aux else (result, None)
    tag.recording = False
    results, result_spec = flatten(result)
    targets = rolled_since(moment, [traceable_operand(leaf, "the result") for leaf in results], starts)
    pushed = push_forward(targets, starts, seeds, lambda v: tag not in v.tags)
    tag.end()
    outgoing = [
        zeros_like_start(target) if tangent is None else tangent
        for target, tangent in zip(targets, pushed, strict=True)
    ]
    computed = results_of([*targets, *outgoing], recorded)
    y = unflatten(result_spec, computed[: len(targets)])
    moved, _ = arrays_in(unflatten(result_spec, computed[len(targets) :]), none_is_leaf=False)
    tangent = arrays_in(y, none_is_leaf=False)[1](moved)
    return (y, tangent, aux_of(aux, recorded)) if has_aux else (y, tangent)


def results_of(values: Sequence[Value], recorded: bool) -> list[Any]:
    """Return values as the caller works: Arrays in a recording, else ndarrays."""
    values = [
        broadcast_to(value, ()) if isinstance(value, Literal) and not value.ndim else value
        for value in values
    ]
    if recorded or any(tag.recording for value in values for tag in value.tags):
        return [Array(value) for value in values]
    return [array.copy() if array.ndim else array[()] for array in force(values)]
