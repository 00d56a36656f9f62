"""The tape: record NumPy code as it runs, then ask for gradients."""

from __future__ import annotations

import threading
import typing
from types import TracebackType
from typing import Any, Final, TypeAlias

import numpy as np

from ..errors import (
    ArgumentError,
    DtypeError,
    IntegerWatchWarning,
    ShapeError,
    TapeError,
    UnconnectedError,
    warn,
)
from ..ir.builder import here
from ..ir.graph import Literal, Mark, Value, literal
from ..ir.types import is_inexact
from ..kinds.operands import as_value, broadcast_to
from ..ops.cast import convert
from ..trace.array import Array
from ..trace.handle import Handle
from ..trace.replay import gradients
from ..trace.sites import user_site
from ..trees import flatten, place_of_leaf, unflatten
from . import jacobian as jacobians
from .convention import flipped

Unconnected: TypeAlias = typing.Literal["none", "zero", "raise"]
UNCONNECTED: Final = typing.get_args(Unconnected)


class _Recording(Mark):
    """Follows what a tape has seen; it records on the thread that entered the tape."""

    __slots__ = ()


class GradientTape:
    """Record operations on watched arrays, and differentiate what was recorded.

    Parameters
    ----------
    persistent : bool, default False
        Whether `gradient` may be called more than once. A one-shot tape stops recording when asked for a gradient.

    Notes
    -----
    Operations are recorded while the tape is active and one of their inputs is watched; results are then watched as well. Nothing is
    computed until somebody looks at a number. A gradient taken while another tape records is recorded by that tape, so derivatives of any
    order need no more than nested tapes. The interface is TensorFlow's (Abadi et al., OSDI 2016).

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     y = np.sum(x**2)
    >>> tape.gradient(y, x)
    Array([2., 4.])
    """

    def __init__(self, persistent: bool = False) -> None:
        if not isinstance(persistent, bool | np.bool_):
            raise DtypeError(
                f"persistent must be a bool, got a {type(persistent).__name__}",
                where=user_site(),
                remedy="gt.GradientTape(persistent=True)",
            )
        self._persistent = bool(persistent)
        self._mark: Mark | None = None
        self._thread: int | None = None
        self._used = False

    def __enter__(self) -> GradientTape:
        if self._mark is not None and self._mark.recording:
            raise ArgumentError(
                "this tape is recording already",
                where=user_site(),
                remedy="leave its with block first, or make another tape",
            )
        if self._mark is None or self._used:
            self._mark = _Recording()
            self._used = False
        self._mark.recording = True
        self._thread = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mark is not None:
            self._mark.recording = False

    def __repr__(self) -> str:
        state = (
            "new"
            if self._mark is None
            else "used"
            if self._used
            else "recording"
            if self._mark.recording
            else "recorded"
        )
        return f"<GradientTape: {state}{', persistent' if self._persistent else ''}>"

    def watch(self, x: Any) -> Any:
        """Follow arrays from here on.

        Parameters
        ----------
        x : Array, array_like, or nests of them
            An Array is watched in place. What is not an Array is copied into one: use what is returned.

        Returns
        -------
        nest of Array
            `x`, with Arrays for ndarrays and numbers.

        Raises
        ------
        TapeError
            If the tape was never entered, or its record has been used.
        DtypeError
            For what holds no numbers.
        """
        mark = self._live("watch")
        here.site = user_site()
        if x is None:
            raise DtypeError(
                "watch got None", where=user_site(), remedy="pass an array, a number, or a nest of these"
            )
        leaves, spec = flatten(x)
        return unflatten(spec, [self._watch(leaf, mark) for leaf in leaves])

    def _watch(self, leaf: Any, mark: Mark) -> Array:
        array = leaf if isinstance(leaf, Array) else Array(_unliteral(as_value(leaf, "x")))
        value = array.value
        if isinstance(value, Literal):
            array.rebind(_unliteral(value))
            value = array.value
        if not is_inexact(value.dtype):
            warn(
                IntegerWatchWarning,
                f"watch got an array of {value.dtype}",
                where=here.site,
                why="integers and booleans have no gradient: it will be None",
                remedy="x.astype(float)",
            )
        if mark not in value.marks:
            value.marks = (*value.marks, mark)
        return array

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Unconnected = "none",
    ) -> Any:
        """Return the gradient of `target` in `sources`.

        Parameters
        ----------
        target : Array or nest of Arrays
            What to differentiate; several targets, and the elements of arrays, are summed.
        sources : Array or nest of Arrays
            What to differentiate in: watched arrays, or anything computed from them.
        output_gradients : array_like or nest of them, optional
            One weight per target, of its shape, in place of ones.
        unconnected_gradients : {"none", "zero", "raise"}, default "none"
            What stands for a source from which no differentiable path leads to a target: None, zeros of the
            source's shape, or an error.

        Returns
        -------
        nest of Array or None
            In the structure of `sources`.

        Raises
        ------
        TapeError
            If the tape was never entered, or is a one-shot tape whose record has been used.
        DtypeError
            If a source or target is no Array.
        ShapeError
            If `output_gradients` does not match the targets.
        UnconnectedError
            If there is no path, and that is to be an error.
        """
        mark = self._live("gradient")
        here.site = user_site()
        if unconnected_gradients not in UNCONNECTED:
            raise ArgumentError(
                f"gradient: unconnected_gradients is {unconnected_gradients!r}",
                where=here.site,
                remedy='choose "none", "zero" or "raise"',
            )
        targets = [self._followed(leaf, "target") for leaf in _leaves(target, "target")]
        source_leaves, spec = flatten(sources)
        if sources is None:
            raise DtypeError(
                "gradient got None as sources", where=user_site(), remedy="pass the arrays that were watched"
            )
        starts = [self._followed(leaf, "source") for leaf in source_leaves]
        seeds = _seeds(targets, output_gradients)
        recording = mark.recording
        if not self._persistent:
            mark.recording = False
        chosen = [
            (value, seed)
            for value, seed in zip(targets, seeds, strict=True)
            if mark in value.marks and is_inexact(value.dtype)
        ]
        pulled = gradients(
            [v for v, _ in chosen], starts, [s for _, s in chosen], mark, last=not self._persistent
        )
        found = [
            part if mark in begin.marks and is_inexact(begin.dtype) else None
            for part, begin in zip(pulled, starts, strict=True)
        ]
        if unconnected_gradients == "raise" and None in found:
            mark.recording = recording
            raise _unconnected(sources, found.index(None))
        if not self._persistent:
            self._used = True
        if unconnected_gradients == "zero":
            found = [
                broadcast_to(literal(0, begin.dtype), begin.shape) if part is None else part
                for part, begin in zip(found, starts, strict=True)
            ]
        return unflatten(spec, [None if part is None else Array(_unliteral(flipped(part))) for part in found])

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Unconnected = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the Jacobian of `target` in `sources`.

        Parameters
        ----------
        target : Array
            What to differentiate: one array.
        sources : Array or nest of Arrays
            What to differentiate in: watched arrays, or anything computed from them.
        unconnected_gradients : {"none", "zero", "raise"}, default "none"
            What stands for a source from which no differentiable path leads to the target.
        parallel_iterations : int, optional
            How many rows of the Jacobian are computed at once; by default all. Fewer take less memory: one program runs once per chunk.
        experimental_use_pfor : bool, default True
            Whether rows are computed together; otherwise one after another, with the same result.

        Returns
        -------
        nest of Array or None
            In the structure of `sources`, each of shape ``target.shape + source.shape``.

        Raises
        ------
        TapeError
            If the tape was never entered, or is a one-shot tape whose record has been used.
        ArgumentError
            For several targets, and for arguments that cannot be used.
        UnconnectedError
            If there is no path, and that is to be an error.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(np.array([1.0, 2.0]))
        ...     y = x**2 * x[::-1]
        >>> tape.jacobian(y, x)
        Array([[4., 1.],
               [4., 4.]])
        """
        request = jacobians.Request(
            "jacobian", unconnected_gradients, parallel_iterations, experimental_use_pfor
        )
        return self._consumed(jacobians.jacobian, target, sources, request)

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Unconnected = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the Jacobian of each row of `target` in the same row of `source`.

        The first axis of both counts examples that do not influence each other.

        Parameters
        ----------
        target, source : Array
            Of rank 2 at least, with the same first extent.
        unconnected_gradients, parallel_iterations, experimental_use_pfor
            As for `jacobian`; the rows that count for `parallel_iterations` are those of the Jacobian of one example.

        Returns
        -------
        Array or None
            Of shape ``target.shape + source.shape[1:]``.

        Raises
        ------
        ShapeError
            Where the shapes are not as said.
        ArgumentError
            If a row of `target` depends on another row of `source`; it says which.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(np.array([[1.0, 2.0], [3.0, 4.0]]))
        ...     y = x**2
        >>> tape.batch_jacobian(y, x)
        Array([[[2., 0.],
                [0., 4.]],
        <BLANKLINE>
               [[6., 0.],
                [0., 8.]]])
        """
        request = jacobians.Request(
            "batch_jacobian", unconnected_gradients, parallel_iterations, experimental_use_pfor
        )
        return self._consumed(jacobians.batch_jacobian, target, source, request)

    def _consumed(self, work: Any, target: Any, sources: Any, request: jacobians.Request) -> Any:
        """Do work that uses up the record of a one-shot tape; one that fails leaves the tape as it was."""
        mark = self._live(request.caller)
        here.site = user_site(3)
        recording = mark.recording
        if self._persistent:
            return work(mark, target, sources, request)
        try:
            mark.recording = False
            result = work(mark, target, sources, request)
            recording, self._used = False, True
        finally:
            mark.recording = recording
        return result

    def _live(self, caller: str) -> Mark:
        if self._mark is None:
            raise TapeError(
                f"{caller} on a tape that was never entered",
                where=user_site(3),
                why="a tape records, and watches, only inside its with block",
                remedy="with gt.GradientTape() as tape: ...",
            )
        if self._used:
            raise TapeError(
                f"{caller} on a one-shot tape whose record has been used",
                where=user_site(3),
                why="it gives up its record with the first gradient, so that the memory can be used again",
                remedy="make it with gt.GradientTape(persistent=True) to ask for several gradients",
            )
        return self._mark

    @staticmethod
    def _followed(leaf: Any, role: str) -> Value:
        if isinstance(leaf, Handle):
            return leaf.value
        if isinstance(leaf, np.ndarray | np.generic | int | float | complex):
            raise ArgumentError(
                f"gradient got a plain {type(leaf).__name__} as a {role}",
                where=user_site(4),
                why="a tape follows Arrays; an ndarray or number does not know where it came from",
                remedy="use what watch returns: x = tape.watch(x)",
            )
        raise DtypeError(
            f"gradient got a {type(leaf).__name__} as a {role}",
            where=user_site(4),
            remedy="pass Arrays, or nests of them",
        )


def _unconnected(sources: Any, position: int) -> UnconnectedError:
    return UnconnectedError(
        f"no differentiable path leads from sources{place_of_leaf(sources, position)} to the target",
        where=here.site,
        why="the source was not watched before it was used, was not used, or the way leads through something "
        "without a derivative (an integer, x.numpy(), stop_gradient)",
        remedy='watch it first and stay with arrays, or take zeros: unconnected_gradients="zero"',
    )


def _leaves(target: Any, role: str) -> list[Any]:
    if target is None:
        raise DtypeError(
            f"gradient got None as {role}", where=user_site(3), remedy="pass the Array that was computed"
        )
    return flatten(target)[0]


def _seeds(targets: list[Value], given: Any) -> list[Value]:
    if given is None:
        return [broadcast_to(literal(1, target.dtype), target.shape) for target in targets]
    leaves = flatten(given)[0] if len(targets) != 1 else [given]
    if len(leaves) != len(targets):
        raise ShapeError(
            f"output_gradients has {len(leaves)} entries for {len(targets)} targets",
            where=user_site(3),
            remedy="give one array per target, in the same order",
        )
    seeds = []
    for leaf, target in zip(leaves, targets, strict=True):
        value = leaf.value if isinstance(leaf, Handle) else as_value(leaf, "output_gradients")
        if value.shape != target.shape:
            raise ShapeError(
                f"output_gradients has an entry of shape {value.shape} for a target of shape {target.shape}",
                where=user_site(3),
                remedy=f"give an array of shape {target.shape}",
            )
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise DtypeError(
                f"output_gradients has an entry of dtype {value.dtype} for a target of dtype {target.dtype}",
                where=user_site(3),
                remedy="convert it first",
            )
        seeds.append(flipped(convert(value, target.dtype)))
    return seeds


def _unliteral(value: Value) -> Value:
    """Return a literal as an array of rank 0, which can be followed and computed."""
    return Value(value.aval, data=value.data) if isinstance(value, Literal) else value
