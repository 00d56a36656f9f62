"""The convention for derivatives in complex numbers.

Inside, the cotangent g of z stands for the map dz -> Re(g dz), so that transposing never conjugates. Outside,
the gradient of a real function f of z = x + iy is df/dx + i df/dy, the direction of steepest ascent: the conjugate.
(|z|^2 has the gradient 2z.) Both are the same for real numbers.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, NonScalarOutputError, NotDifferentiableError
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Literal, Node, TraceTag, Value, extract, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import visible_inputs
from gradtape.ops.core.elementwise.complex_parts import conjugate
from gradtape.trace.source.sites import user_site

Convention: TypeAlias = typing.Literal["tensorflow", "jax"]
CONVENTIONS: Final = typing.get_args(Convention)


def conjugated(value: Value) -> Value:
    """Return a cotangent of one convention in the other."""
    if value.dtype.kind != "c":
        return value
    if isinstance(value, Literal):
        assert value.data is not None
        return literal(value.data.conj(), value.dtype)
    return conjugate(value)


def unchanged(value: Value) -> Value:
    """Return a cotangent of a convention in the same."""
    return value


def check_convention(convention: Any, caller: str) -> None:
    """Raise ArgumentError for a convention that there is not."""
    if convention not in CONVENTIONS:
        raise ArgumentError(
            f"{caller}: convention is {convention!r}",
            where=user_site(),
            remedy='choose "tensorflow" (df/dx + i df/dy) or "jax" (its conjugate)',
        )


def not_of_kind(dtype: np.dtype[Any], kind: str, caller: str) -> NonScalarOutputError:
    """Return the error for a result that is not real, or not complex where that is asked for."""
    if kind == "c":
        return NonScalarOutputError(
            f"{caller} with holomorphic=True needs a function that returns a complex number; this one returned {dtype}",
            where=user_site(),
            why="a holomorphic function with real values only is constant",
            remedy="omit holomorphic: a real function of complex numbers has a gradient",
        )
    return NonScalarOutputError(
        f"{caller} needs a function that returns a real number; this one returned {dtype}",
        where=user_site(),
        why="only a real number has a gradient",
        remedy="return a float: np.real(z), np.abs(z)**2, x.astype(float)"
        + (
            "; holomorphic=True for the complex derivative of a holomorphic function"
            if dtype.kind == "c"
            else ""
        ),
    )


def check_holomorphic(target: Value, starts: Sequence[Value], tag: TraceTag, caller: str) -> None:
    """Raise unless arguments are complex and every node between them and the target is holomorphic.

    Raises
    ------
    DtypeError
        For a real argument.
    NotDifferentiableError
        For a conjugate, or a real number made of a complex one.
    """
    for start in starts:
        if start.dtype.kind != "c":
            raise DtypeError(
                f"{caller} with holomorphic=True got an argument of {start.dtype} to differentiate with respect to",
                where=user_site(),
                why="a complex derivative is taken with respect to a complex argument",
                remedy="pass z.astype(complex), or name only complex arguments in argnums",
            )
    nodes, _ = extract([target], starts, stop=lambda value: tag not in value.tags)
    needed = {target}
    for node in reversed(nodes):
        if node.op.name != "stop_gradient" and not needed.isdisjoint(node.outs):
            needed.update(operand for operand in visible_inputs(node) if is_inexact(operand.dtype))
    reached = set(starts)
    for node in nodes:
        outs = needed.intersection(node.outs)
        if not outs or reached.isdisjoint(visible_inputs(node)):
            continue
        met = (
            node
            if any(out.dtype.kind != "c" for out in outs) or node.op.name == "conjugate"
            else _inside(node)
        )
        if met is not None:
            raise NotDifferentiableError(
                f"{caller} with holomorphic=True met {met.op.name}, which is not holomorphic",
                where=met.site,
                why="the difference quotient has another limit for each direction in the complex plane",
                remedy="omit holomorphic and differentiate a real result, or write the function without conjugates and parts",
            )
        reached.update(outs)


def _inside(node: Node) -> Node | None:
    """Return a node in the bodies of a loop or a branch that makes its complex results depend on conjugates."""
    for body in bodies_of(node):
        ends = [out for out in body.outputs if out.dtype.kind == "c"]
        for inner in extract(ends, body.inputs)[0]:
            parts = inner.op.name == "conjugate" or any(out.dtype.kind == "f" for out in inner.outs)
            if parts and any(value.dtype.kind == "c" for value in inner.inputs) and not bodies_of(inner):
                return inner
            found = _inside(inner)
            if found is not None:
                return found
    return None
