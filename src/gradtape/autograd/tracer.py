"""Boxes, which are gradtape's traced arrays here, and primitives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from gradtape.api.tape.create import stop_gradient
from gradtape.autograd.core import VJPNode, defjvp_argnums, defvjp_argnums
from gradtape.autograd.core import primitive as primitive
from gradtape.errors import ConcretizationError
from gradtape.trace.array.handle import Handle, is_recorded


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
    return is_recorded(value)


def getval(value: Any) -> Any:
    """Return the numbers of a traced array; where a function is compiled, a constant that stands for them."""
    if not isinstance(value, Handle):
        return value
    constant: Any = stop_gradient(value)
    try:
        return constant.numpy() if constant.ndim else constant.item()
    except ConcretizationError:
        return constant


def notrace_primitive(f_raw: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function have no derivative: it gets numbers, or constants in their place."""

    @functools.wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        return f_raw(*map(getval, args), **kwargs)

    return f_wrapped


def register_notrace(trace_type: Any, primitive_fun: Callable[..., Any]) -> None:
    """Let a primitive have no derivative in a mode."""
    if trace_type is VJPNode:
        defvjp_argnums(primitive_fun, lambda argnums, *_: lambda g: (None,) * len(argnums))
    else:
        defjvp_argnums(primitive_fun, lambda *_: None)
