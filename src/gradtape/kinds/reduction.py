"""The reduction kind: ``out[kept] = x[i] * ... * x[i]`` over the reduced axes with a monoid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import INTP, Aval, Shape, aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register


class Reduction(Op):
    """A row of the reduction kind; ``axes`` (sorted, non-negative) are its only parameter.

    Parameters
    ----------
    name : str
        The op's name.
    monoid : str
        What the kernel combines with: ``add``, ``multiply``, ``maximum``, ``minimum``, ``or``, ``and``, ``argmax``, ``argmin``.
    evaluate : callable
        ``(x, axis) -> array`` where axis is a tuple (an integer for argmax and argmin).
    tangent : callable or None
        ``(z, x, axes) -> linear map of dx``.
    transpose : callable or None
        ``(ct, node) -> Value`` for rows that are linear.
    of_complex : callable, optional
        ``(x, axes) -> Value``: the result for complex numbers, by other rows. By default a loop over the elements, of the elementwise row
        that is called like the monoid.
    shift : callable, optional
        How the result changes when a value is shifted from which x is computed; see `gradtape.ops.core.shift_rules`.
    identity : number or None
        The result over nothing; None where that is an error, as in NumPy.
    samples : sequence of tuples
        ``(shape, params)``.
    """

    def __init__(
        self,
        name: str,
        *,
        monoid: str,
        evaluate: Callable[..., Any],
        identity: float | bool | None,
        tangent: Callable[..., Callable[[Value], Value]] | None = None,
        transpose: Callable[[Value, Node], Value] | None = None,
        of_complex: Callable[..., Value] | None = None,
        shift: Callable[..., Any] | None = None,
        kinks: str = "",
        finite_derivatives: bool = False,
        samples: Sequence[tuple[Any, ...]] = (
            ((2, 3), {"axes": (1,)}),
            ((4,), {"axes": (0,)}),
            ((2, 3, 2), {"axes": (0, 2)}),
        ),
    ) -> None:
        super().__init__(name)
        self.monoid = monoid
        self.numpy = evaluate
        self.tangent = tangent
        self.transpose_rule = transpose
        self.identity = identity
        self.of_complex = of_complex
        self.shift = shift
        self.kinks = kinks
        self.finite_derivatives = finite_derivatives
        self.samples = samples

    @property
    def positional(self) -> bool:
        """Whether the result is the position of an element rather than a combination of elements."""
        return self.monoid in ("argmax", "argmin")

    def __call__(self, x: Any, *, axes: tuple[int, ...]) -> Value:
        return emit(self, [as_value(x)], axes=axes)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        (x,) = avals
        dtype = INTP if self.positional else x.dtype
        return (aval(remaining(x.shape, params["axes"]), dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        (x,), axes = arrays, params["axes"]
        axis = axes[0] if self.positional else axes
        result = np.asarray(self.numpy(x, axis))
        return (result if self.positional else result.astype(x.dtype, copy=False),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        (tangent,) = tangents
        if tangent is None or self.positional or node.out.dtype.kind == "b":
            return (None,)
        if self.transpose_rule is not None:
            return (emit(self, [tangent], **node.params),)
        if self.tangent is None:
            raise NotDifferentiableError(f"{self.name} has no derivative", where=node.site)
        return (self.tangent(node.out, node.inputs[0], node.params["axes"])(tangent),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        if self.transpose_rule is None:
            raise NotDifferentiableError(f"{self.name} is not linear", where=node.site)
        return (None if cotangent is None else self.transpose_rule(cotangent, node),)


def remaining(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return the shape without the reduced axes."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def reduction(name: str, **facts: Any) -> Reduction:
    """Enter a row of the reduction kind; see `Reduction` for the facts."""
    return register(Reduction(name, **facts))
