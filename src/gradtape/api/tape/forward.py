"""Forward mode as a context: directional derivatives of code as it runs."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any

import numpy as np

from gradtape.api.tape.endpoints import UnconnectedGradients, followable, unconnected_choice
from gradtape.api.units import RATES, common_unit, leaf_units, magnitudes, per_argument, scaled
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    ShapeError,
    StructureError,
    UnconnectedError,
)
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, TraceTag, Value, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.refusals import integer_input
from gradtape.ops.core.elementwise.cast import convert
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import flatten_arrays
from gradtape.trace.dispatch.call_errors import note_package
from gradtape.trace.jit.bodies import refuse_outside_derivative
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.patching import recorders
from gradtape.trace.source.contexts import Context, Watcher, bodies_around, contexts, leave
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.jvp import jvp as push_forward
from gradtape.transforms.masks import constants
from gradtape.trees import flatten, flatten_up_to, place_of_leaf


class _Directions(Watcher):
    """The tangents of an accumulator: of the primals, and of what is read of variables among them.

    Attributes
    ----------
    tag : TraceTag
        Follows what is computed from these.
    stack : list
        Of the thread that entered.
    variables : dict
        The tangents of variables, by serial number.
    tangents : mapping
        The tangents of values.
    """

    __slots__ = ("stack", "tag", "tangents", "variables")

    def __init__(self) -> None:
        self.stack: list[Context] = []
        self.tag = TraceTag()
        self.tag.recording = False
        self.variables: dict[int, Value] = {}
        self.tangents: weakref.WeakKeyDictionary[Value, Value] = weakref.WeakKeyDictionary()

    def enter(self) -> None:
        """Follow what this thread computes."""
        self.stack = contexts.stack
        try:
            self.tag.thread = threading.get_ident()
            self.tag.recording = True
            self.stack.append(self)
            recorders.enter(self)
        except BaseException:  # Ctrl-C: nobody would leave what was entered by half
            self.leave()
            raise

    def leave(self) -> None:
        """Follow nothing more."""
        try:
            self.tag.recording = False
            leave(self.stack, self, self)
        except BaseException:  # Ctrl-C again
            leave(self.stack, self, self)
            raise

    def add(self, primal: Handle, tangent: Value) -> None:
        """Take a primal."""
        if isinstance(primal, Variable):
            known: Any = self.variables
            key: Any = primal.serial
        else:
            known, key = self.tangents, _start(primal)
            prediction.materialise(key)
            key.tags = (*[tag for tag in key.tags if not tag.over], self.tag)
        if key in known:
            raise ArgumentError(
                "ForwardAccumulator got the same array as two primals",
                where=here.site,
                why="it would have two tangents",
                remedy="give it once, with the sum of its tangents",
            )
        known[key] = tangent

    def tag_for(self, variable: Any) -> TraceTag | None:
        return self.tag if self.tag.recording and variable.serial in self.variables else None

    def note(self, variable: Any, value: Value) -> None:
        self.tangents[value] = self.variables[variable.serial]


class ForwardAccumulator:
    """Compute directional derivatives (Jacobian-vector products) of code as it runs, in forward mode.

    Parameters
    ----------
    primals : Array, Variable or nest of them
        The values to differentiate with respect to.
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
    Values computed from the primals inside the ``with`` block have a tangent; values computed before do not. Leaving the block and
    entering it again continues. Nested accumulators give higher orders, and a `GradientTape` inside one gives Hessian-vector
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

    reads_records = True

    @suggests_keywords
    def __init__(self, primals: Any, tangents: Any) -> None:
        here.site = user_site()
        leaves, spec = flatten(primals)
        units, bare = leaf_units(primals, spec)
        directions = flatten_up_to(bare, magnitudes(tangents), "tangents", "primals", here.site)
        self._rate, factors = common_unit(tangents, bare, units, -1, RATES)
        primals_ = [_primal(leaf) for leaf in leaves]
        fitting = [_tangent(d, primal) for primal, d in zip(primals_, directions, strict=True)]
        pairs = zip(primals_, scaled(fitting, factors), strict=True)
        self._directions = _Directions()
        self._around = bodies_around()
        for primal, tangent in pairs:
            self._directions.add(primal, tangent)
        # Nobody can ask for tangents any more when the accumulator is gone.
        weakref.finalize(self, _end, self._directions)
        # The tangents are held weakly, by their primals.
        self._primals = [primal.value for primal in primals_ if not isinstance(primal, Variable)]

    def __enter__(self) -> ForwardAccumulator:
        if self._directions.tag.recording:
            raise ArgumentError(
                "this accumulator is recording already",
                where=user_site(),
                remedy="leave its with block first, or make another accumulator",
            )
        self._around = bodies_around()
        self._directions.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            note_package(error, "while a forward accumulator recorded")
        self._directions.leave()

    def __repr__(self) -> str:
        return f"<ForwardAccumulator: {'recording' if self._directions.tag.recording else 'not recording'}>"

    def jvp(
        self, target: Any, unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE
    ) -> Any:
        """Return the derivative of `target` along the tangents.

        Parameters
        ----------
        target : Array or nest of Arrays
            Computed from the primals inside the ``with`` block; a primal has its own tangent. It may be asked for inside the block
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
            If a target does not depend on a primal, with ``unconnected_gradients="raise"``.
        """
        here.site = user_site()
        choice = unconnected_choice(unconnected_gradients, "jvp")
        if target is None:
            raise DtypeError(
                "jvp got None as target", where=here.site, remedy="pass the Array that was computed"
            )
        leaves, filled = flatten_arrays(target, none_is_leaf=False)
        values = [_recorded_array(leaf, "target").value for leaf in leaves]
        refuse_outside_derivative("jvp", values, self._around, "take it outside, of the result")
        tag, tangents = self._directions.tag, dict(self._directions.tangents)
        recording, tag.recording = tag.recording, False
        try:
            pushed = push_forward(
                values,
                list(tangents),
                list(tangents.values()),
                lambda value: tag not in value.tags,
                constants(list(tangents.values())),
            )
        finally:
            tag.recording = recording
        pushed = [
            self._directions.variables.get(leaf.serial) if isinstance(leaf, Variable) else tangent
            for leaf, tangent in zip(leaves, pushed, strict=True)
        ]
        if choice is UnconnectedGradients.RAISE and None in pushed:
            raise UnconnectedError(
                f"target{place_of_leaf(target, pushed.index(None))} does not depend on a primal",
                where=here.site,
                why="it was computed before the accumulator was entered, or the path leads through something without a derivative",
                remedy='compute it inside the with block, or take zeros: unconnected_gradients="zero"',
            )
        if choice is UnconnectedGradients.ZERO:
            pushed = [
                broadcast_to(literal(0, value.dtype), value.shape) if tangent is None else tangent
                for tangent, value in zip(pushed, values, strict=True)
            ]
        found = filled([None if tangent is None else Array(followable(tangent)) for tangent in pushed])
        return per_argument(self._rate, found, 1)


def _end(directions: _Directions) -> None:
    directions.tag.end()
    directions.leave()  # an interruption may have kept it from that


def _recorded_array(leaf: Any, role: str) -> Handle:
    if isinstance(leaf, Handle):
        return leaf
    if isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        raise ArgumentError(
            f"ForwardAccumulator got a plain {type(leaf).__name__} as a {role}",
            where=here.site,
            why="it records Arrays; an ndarray or number does not know how it was computed",
            remedy="make an Array of it first: x = gt.constant(x)",
        )
    raise DtypeError(
        f"ForwardAccumulator got a {type(leaf).__name__} as a {role}",
        where=here.site,
        remedy="pass Arrays, or nests of them",
    )


def _primal(leaf: Any) -> Handle:
    primal = _recorded_array(leaf, "primal")
    if not is_inexact(primal.dtype):
        raise integer_input("ForwardAccumulator: a primal", primal.dtype, primal.ndim, here.site)
    return primal


def _start(array: Handle) -> Value:
    value = array.value
    if isinstance(value, Literal):
        array.rebind(followable(value))
    return array.value


def _tangent(given: Any, start: Handle) -> Value:
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
    return followable(convert(value, start.dtype))
