"""Linear maps out of functions: the derivative at a point, and the transpose of a function that is linear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from gradtape.api.custom.complex_convention import unchanged
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.recording import Recording, as_given, primal_leaves
from gradtape.api.transforms.residual_programs import applied
from gradtape.api.transforms.sharing import refusing_writes
from gradtape.errors import NotDifferentiableError, StructureError
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape, is_inexact
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten

if TYPE_CHECKING:
    from typing import Literal as Exactly

    from gradtape.api.type_variables import A, V, Xs


MOST_SWEEPS: Final = 64
"""The calls of a map that sweep through its recording, in some hundred microseconds each, before it is compiled."""


class LinearMap:
    """A linear map out of a function at a point; made by `vjp`, `linearize` and `linear_transpose`.

    It is pickled as a program with the numbers of the point, so that it stays what it was when it was made: the function is not called
    again where it arrives, as the function that `load` returns.
    """

    def __init__(
        self,
        name: str,
        apply: Callable[..., Any],
        specimen: Callable[[], tuple[Any, ...]],
        recording: Recording | None = None,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self._apply = apply
        self._specimen = specimen
        """Returns arguments with values in place of arrays."""
        self._recording = recording
        """Through which each call sweeps; None where the map is compiled."""
        self._sweeps = 0

    def __call__(self, *args: Any) -> Any:
        if self._recording is not None:
            self._sweeps += 1
            if self._sweeps > MOST_SWEEPS:
                if self._recording.of_numbers:
                    self._apply = jit(self._apply)
                self._recording = None  # the map itself keeps it
        return self._apply(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        from gradtape.api.export.archive import (
            pickled_program,  # late: few programs pickle one, and exports are made of transforms
        )

        return pickled_program(jit(self), self._specimen())

    def __repr__(self) -> str:
        return f"<gradtape {self.__name__}>"


@overload
def linearize(
    function: Callable[[*Xs], V], *primals: *Xs, has_aux: Exactly[False] = False
) -> tuple[V, Callable[[*Xs], V]]: ...
@overload
def linearize(
    function: Callable[[*Xs], tuple[V, A]], *primals: *Xs, has_aux: Exactly[True]
) -> tuple[V, Callable[[*Xs], V], A]: ...
@suggests_keywords  # type: ignore[misc] # mypy: *primals
def linearize(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Evaluate a function and return its derivative at that point, a linear map from tangents to tangents.

    Parameters
    ----------
    function : callable
        NumPy code with one or more floating results in any nest (with ``has_aux``: a pair of these and anything else).
    *primals : array_like or nests of them
        Its arguments.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then aux is returned as well.

    Returns
    -------
    y : nest of ndarray
        ``function(*primals)``.
    push : callable
        ``push(*tangents)`` takes one tangent per primal, of its structure and shapes, and returns the derivative of `y` along them. It
        can be called any number of times; values that only depend on the primals are computed once.
    aux : anything
        With ``has_aux`` only.

    Raises
    ------
    IntegerInputError
        For an integer array among the primals.
    StructureError, ShapeError
        By ``push``, for tangents that do not match the primals.

    See Also
    --------
    jvp : The same for one tangent.
    vjp : The transpose of this map.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> y, push = gt.linearize(lambda x: x**3, np.array([1.0, 2.0]))
    >>> push(np.array([1.0, 0.0])), push(np.array([0.0, 1.0]))
    (array([3., 0.]), array([ 0., 12.]))
    """
    check_callable(function, "linearize")
    here.site = user_site()
    kept = applied("linearize", function, primals, has_aux, unchanged)
    if kept is None:
        recording = Recording("linearize", primals)
        aux = recording.run_untold(function, has_aux)
        if recording.is_cut:
            with refusing_writes():
                kept = applied("linearize", function, primals, has_aux, unchanged)
    if kept is not None:

        def push_kept(*tangents: Any) -> Any:
            here.site = user_site()
            _check_count(primals, tangents)
            return kept(tangents, "tangents", "primals", "a tangent", "its primal")

        linear_map = LinearMap("push", push_kept, kept.program.specimen)
        return (kept.result, linear_map, kept.aux) if has_aux else (kept.result, linear_map)
    recording.tell_cuts()

    def push(*tangents: Any) -> Any:
        here.site = user_site()
        _check_count(primals, tangents)
        directions, arrays = recording.directions(tangents)
        return recording.pushed(
            unflatten(recording.result_spec, as_given(recording.push(directions), arrays)), tangents
        )

    y = recording.result()
    derivative = LinearMap("push", push, recording.source_nest, recording)
    return (y, derivative, recording.aux(aux)) if has_aux else (y, derivative)


def _check_count(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> None:
    if len(tangents) != len(primals):
        raise StructureError(
            f"linearize: the function has {len(primals)} primals, but got {len(tangents)} tangents",
            where=here.site,
            remedy="give one tangent per primal: push(dx, dy)",
        )


def linear_transpose(function: Callable[[*Xs], V], *primals: *Xs) -> Callable[[V], tuple[*Xs]]:
    """Return the transpose of a function that is linear in its arguments.

    Parameters
    ----------
    function : callable
        NumPy code that is linear in all of its arguments together: no constant is added, and no two arguments are multiplied. What it
        reads from outside, such as a matrix, is a constant.
    *primals : array_like or nests of them
        Arguments of the right structure, shapes and dtypes. Their numbers do not matter.

    Returns
    -------
    callable
        ``transpose(ct) -> tuple``: takes a nest of the structure and shapes of the result and returns one entry per primal. Of a matrix
        it is the product with the transposed, not conjugated, matrix.

    Raises
    ------
    NotDifferentiableError
        If the function is not linear; the error names the line.
    IntegerInputError
        For an integer array among the primals.
    StructureError, ShapeError
        By the transpose, for what does not match the result.

    See Also
    --------
    vjp : The transpose of the derivative of any function.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> transpose = gt.linear_transpose(np.cumsum, np.zeros(3))
    >>> transpose(np.array([1.0, 0.0, 2.0]))
    (array([3., 2., 2.]),)
    """
    check_callable(function, "linear_transpose")
    here.site = user_site()
    leaves, spec = flatten(primals)
    given = [value.aval for value in primal_leaves(leaves, primals, TraceTag(), "linear_transpose")]
    point = [_numbers(type_.shape, type_.dtype) for type_ in given]
    recording = Recording("linear_transpose", unflatten(spec, point))
    recording.recorded = any(isinstance(leaf, Handle) for leaf in leaves)
    recording.run(function)

    def transpose(cotangent: Any) -> tuple[Any, ...]:
        here.site = user_site()
        seeds, arrays = recording.seeds(cotangent)
        returned: tuple[Any, ...] = recording.pulled(as_given(recording.pull(seeds), arrays), cotangent)
        return returned

    seeds = [constant(_numbers(target.shape, target.dtype)) for target in recording.targets]
    _check_linear(recording.targets, recording.tag, seeds, recording.pull(seeds), point)
    return LinearMap("transpose", transpose, lambda: (recording.target_nest(),), recording)


def _numbers(shape: Shape, dtype: np.dtype[Any]) -> NDArray:
    """Return numbers between 1 and 2, of both signs and without a pattern: a point that no function is made for."""
    positions = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    numbers = np.where(positions % 3 == 1, -1, 1) * (1 + 0.618033988749895 * (positions + 1) % 1)
    return np.asarray(numbers * (1 + 0.5j) if dtype.kind == "c" else numbers).astype(dtype)


def _check_linear(
    targets: Sequence[Value],
    tag: TraceTag,
    seeds: Sequence[Value],
    transposed: Sequence[Value],
    point: Sequence[NDArray],
) -> None:
    """Raise NotDifferentiableError unless targets are linear in what `tag` follows.

    The transpose A' of a linear map does not depend on the point x, and y . A x = A' y . x: what is constant in the targets, or is lost by
    the derivative (a floor), shows there. What depends on a trace around has no numbers, and is not tried.
    """
    remedy = "use gt.vjp(f, x), the transpose of the derivative at a point, or gt.linearize"
    seen = set(transposed)
    left = list(transposed)
    while left:
        node = left.pop().node
        for operand in () if node is None else node.inputs:
            if tag in operand.tags:
                assert node is not None
                raise NotDifferentiableError(
                    "linear_transpose: the function is not linear: its derivative depends on its arguments",
                    where=node.site,
                    why="only a linear map has a transpose",
                    remedy=remedy,
                )
            if operand not in seen:
                seen.add(operand)
                left.append(operand)
    if any(trace_of(value) is not None for value in (*targets, *transposed)):
        return
    arrays = force([*targets, *seeds, *transposed])
    forwards = [a * b for a, b in zip(arrays[: len(targets)], arrays[len(targets) :], strict=False)]
    backwards = [a * b for a, b in zip(arrays[-len(point) :], point, strict=True)]
    there, back = [sum(float(np.sum(np.real(part))) for part in parts) for parts in (forwards, backwards)]
    size = sum(float(np.sum(np.abs(part))) for part in (*forwards, *backwards))
    coarsest = max(
        (np.finfo(value.dtype).eps for value in (*targets, *transposed) if is_inexact(value.dtype)),
        default=0.0,
    )
    if np.isfinite(size) and abs(there - back) > 8 * np.sqrt(coarsest) * size:
        raise NotDifferentiableError(
            "linear_transpose: the function is not linear: it adds a constant, or a part of it has the derivative 0",
            where=next((target.node.site for target in targets if target.node is not None), here.site),
            why="only a linear map has a transpose",
            remedy=remedy,
        )
