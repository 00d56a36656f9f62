"""Forward mode as a context: directional derivatives of code as it runs."""

from __future__ import annotations

import typing
from types import TracebackType
from typing import Any, Final, TypeAlias

import numpy as np

from ..errors import (
    ArgumentError,
    DtypeError,
    IntegerInputError,
    ShapeError,
    StructureError,
    UnconnectedError,
)
from ..ir.builder import here
from ..ir.graph import Literal, Mark, Value, literal
from ..ir.types import is_inexact
from ..kinds.operands import as_value, broadcast_to
from ..ops.cast import convert
from ..trace.array import Array
from ..trace.handle import Handle
from ..trace.sites import user_site
from ..transforms.jvp import jvp as push_forward
from ..trees import flatten, flatten_up_to, place_of_leaf, unflatten
from .custom_call import unliteral

Unconnected: TypeAlias = typing.Literal["none", "zero", "raise"]
UNCONNECTED: Final = typing.get_args(Unconnected)


class ForwardAccumulator:
    """Compute directional derivatives (Jacobian-vector products) of code as it runs, in forward mode.

    Parameters
    ----------
    primals : Array or nest of Arrays
        What to differentiate in.
    tangents : array_like or nest of them
        The direction: of the structure, shapes and dtypes of `primals`.

    Raises
    ------
    ArgumentError
        If a primal is not an Array or is given twice, or if a tangent has another dtype than its primal.
    StructureError, ShapeError
        If tangents and primals do not match.
    IntegerInputError
        If a primal holds integers.

    Notes
    -----
    What is computed from the primals inside of the ``with`` block has a tangent; what was computed before does not. Leaving the block and
    entering it again continues. Nested accumulators give higher orders, and a `GradientTape` inside of one gives Hessian-vector
    products (forward over reverse). The interface is TensorFlow's.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> x = gt.constant([1.0, 2.0])
    >>> with gt.ForwardAccumulator(x, np.array([1.0, 0.0])) as accumulator:
    ...     y = x**2
    >>> accumulator.jvp(y)
    Array([2., 0.])
    """

    def __init__(self, primals: Any, tangents: Any) -> None:
        here.site = user_site()
        leaves, spec = flatten(primals)
        directions = flatten_up_to(spec, tangents, "tangents", "primals", here.site)
        arrays = [_primal(leaf) for leaf in leaves]
        self._starts = [_start(array) for array in arrays]
        if len(set(self._starts)) < len(self._starts):
            raise ArgumentError(
                "ForwardAccumulator got the same array as two primals",
                where=here.site,
                why="it would have two tangents",
                remedy="give it once, with the sum of its tangents",
            )
        self._tangents = [
            _tangent(given, start) for given, start in zip(directions, self._starts, strict=True)
        ]
        self._mark = Mark()
        self._mark.recording = False
        for start in self._starts:
            start.marks = (*start.marks, self._mark)

    def __enter__(self) -> ForwardAccumulator:
        if self._mark.recording:
            raise ArgumentError(
                "this accumulator is recording already",
                where=user_site(),
                remedy="leave its with block first, or make another accumulator",
            )
        self._mark.recording = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mark.recording = False

    def __repr__(self) -> str:
        return f"<ForwardAccumulator: {'recording' if self._mark.recording else 'not recording'}>"

    def jvp(self, target: Any, unconnected_gradients: Unconnected = "none") -> Any:
        """Return the derivative of `target` along the tangents.

        Parameters
        ----------
        target : Array or nest of Arrays
            Computed from the primals inside of the ``with`` block; a primal has its own tangent. It may be asked for inside of the block
            and after it, any number of times.
        unconnected_gradients : {"none", "zero", "raise"}, default "none"
            What stands for a target that does not depend on a primal: None, zeros of its shape, or an error.

        Returns
        -------
        nest of Array or None
            In the structure of `target`.

        Raises
        ------
        ArgumentError, DtypeError
            If a target is no Array.
        UnconnectedError
            If a target does not depend on a primal, and that is to be an error.
        """
        here.site = user_site()
        if unconnected_gradients not in UNCONNECTED:
            raise ArgumentError(
                f"jvp: unconnected_gradients is {unconnected_gradients!r}",
                where=here.site,
                remedy='choose "none", "zero" or "raise"',
            )
        if target is None:
            raise DtypeError(
                "jvp got None as target", where=here.site, remedy="pass the Array that was computed"
            )
        leaves, spec = flatten(target)
        values = [_followed(leaf, "target") for leaf in leaves]
        recording, self._mark.recording = self._mark.recording, False
        try:
            pushed = push_forward(
                values, self._starts, self._tangents, lambda value: self._mark not in value.marks
            )
        finally:
            self._mark.recording = recording
        if unconnected_gradients == "raise" and None in pushed:
            raise UnconnectedError(
                f"target{place_of_leaf(target, pushed.index(None))} does not depend on a primal",
                where=here.site,
                why="it was computed before the accumulator was entered, or the way leads through something without a derivative",
                remedy='compute it inside of the with block, or take zeros: unconnected_gradients="zero"',
            )
        if unconnected_gradients == "zero":
            pushed = [
                broadcast_to(literal(0, value.dtype), value.shape) if tangent is None else tangent
                for tangent, value in zip(pushed, values, strict=True)
            ]
        return unflatten(spec, [None if tangent is None else Array(unliteral(tangent)) for tangent in pushed])


def _followed(leaf: Any, role: str) -> Value:
    if isinstance(leaf, Handle):
        return leaf.value
    if isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        raise ArgumentError(
            f"ForwardAccumulator got a plain {type(leaf).__name__} as a {role}",
            where=here.site,
            why="it follows Arrays; an ndarray or number does not know where it came from",
            remedy="make an Array of it first: x = gt.constant(x)",
        )
    raise DtypeError(
        f"ForwardAccumulator got a {type(leaf).__name__} as a {role}",
        where=here.site,
        remedy="pass Arrays, or nests of them",
    )


def _primal(leaf: Any) -> Handle:
    value = _followed(leaf, "primal")
    assert isinstance(leaf, Handle)
    if not is_inexact(value.dtype):
        raise IntegerInputError(
            f"ForwardAccumulator: a primal is an array of {value.dtype}",
            where=here.site,
            why="a derivative in integers has no meaning: there is nothing between them",
            remedy="convert it: x.astype(float)",
        )
    return leaf


def _start(array: Handle) -> Value:
    value = array.value
    if isinstance(value, Literal):
        array.rebind(unliteral(value))
    return array.value


def _tangent(given: Any, start: Value) -> Value:
    if given is None:
        raise StructureError(
            "ForwardAccumulator: a tangent is None",
            where=here.site,
            remedy="give zeros (np.zeros_like), or leave the primal out",
        )
    value = given.value if isinstance(given, Handle) else as_value(given, "a tangent")
    if value.shape != start.shape:
        raise ShapeError(
            f"ForwardAccumulator: a tangent has shape {value.shape}, but its primal has shape {start.shape}",
            where=here.site,
            remedy=f"give a tangent of shape {start.shape}",
        )
    if value.dtype != start.dtype and not (
        value.aval.weak and np.can_cast(value.dtype, start.dtype, "same_kind")
    ):
        raise ArgumentError(
            f"ForwardAccumulator: a tangent has dtype {value.dtype}, but its primal has dtype {start.dtype}",
            where=here.site,
            remedy=f"convert it: t.astype(np.{start.dtype})",
        )
    return unliteral(convert(value, start.dtype))
