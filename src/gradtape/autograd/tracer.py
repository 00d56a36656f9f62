"""Boxes, which are gradtape's traced arrays here, and primitives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from gradtape.api.custom.primitive import Primitive
from gradtape.api.tape.create import stop_gradient
from gradtape.autograd.core import SparseObject, primitive_jvps, primitive_vjps
from gradtape.autograd.wrap_util import get_name
from gradtape.errors import ConcretizationError
from gradtape.trace.array.handle import Handle, is_followed
from gradtape.trees import flatten_arguments


class _Boxes(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Handle)


class Box(metaclass=_Boxes):
    """The class of traced arrays, for instance checks."""

    type_mappings: ClassVar[dict[type, type]] = {}

    @classmethod
    def register(cls, value_type: type) -> None:
        """Do nothing: arrays in containers of any class that is registered with gradtape are traced."""


def isbox(value: Any) -> bool:
    """Return whether a derivative in a value is computed."""
    return is_followed(value)


def getval(value: Any) -> Any:
    """Return the numbers of a traced array; where a function is compiled, a constant that stands for them."""
    if not isinstance(value, Handle):
        return value
    constant = stop_gradient(value)
    try:
        return constant.numpy() if constant.ndim else constant.item()
    except ConcretizationError:
        return constant


def primitive(f_raw: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function run on ndarrays, with the rules that `defvjp` and `defjvp` set for it.

    A function without rules is differentiated through.

    Parameters
    ----------
    f_raw : callable
        The function.

    Returns
    -------
    callable
        The function that rules are set for.
    """

    @functools.wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        vjp, jvp = primitive_vjps.get(f_wrapped), primitive_jvps.get(f_wrapped)
        if (vjp is None and jvp is None) or not _any_traced(args, kwargs):
            return f_raw(*args, **kwargs)
        return Primitive(f_raw, get_name(f_raw), vjp and _dense(vjp), jvp).call(args, kwargs)

    f_wrapped.fun = f_raw  # type: ignore[attr-defined]
    f_wrapped._is_autograd_primitive = True  # type: ignore[attr-defined]
    return f_wrapped


def notrace_primitive(f_raw: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function have no derivative: it gets numbers, or constants in their place."""

    @functools.wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        return f_raw(*map(getval, args), **kwargs)

    f_wrapped._is_primitive = True  # type: ignore[attr-defined]
    return f_wrapped


def register_notrace(trace_type: Any, primitive_fun: Callable[..., Any]) -> None:
    """Let a primitive have no derivative in a mode."""
    rules = primitive_vjps if get_name(trace_type) == "VJPNode" else primitive_jvps
    rules[primitive_fun] = (
        (lambda argnums, result, args, kwargs: lambda g: (None,) * len(argnums))
        if rules is primitive_vjps
        else (lambda argnums, gs, result, args, kwargs: None)
    )


def _any_traced(args: Any, kwargs: Any) -> bool:
    return any(isinstance(leaf, Handle) for leaf in flatten_arguments((args, kwargs))[0])


def _dense(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule with elements in place of sparse objects."""

    def dense_rule(argnums: Any, result: Any, args: Any, kwargs: Any) -> Any:
        pullback = rule(argnums, result, args, kwargs)
        return lambda g: [part.dense() if isinstance(part, SparseObject) else part for part in pullback(g)]

    return dense_rule
