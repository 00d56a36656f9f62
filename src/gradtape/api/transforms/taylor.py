"""All orders at once: Taylor coefficients along a direction, and second derivatives along unit vectors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

from gradtape.api.operands import fitted
from gradtape.api.tape.jacobian import chunk_limit, mapped_tag
from gradtape.api.tape.memory import Memory
from gradtape.api.transforms.argnums import Names, Positions, selection_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import number_result
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.pickling import pickled_as_call
from gradtape.api.transforms.recording import Recording, differentiable_leaves, named, recordable_body
from gradtape.api.units import (
    common_unit,
    leaf_units,
    per_argument,
    refuse_quantities,
    scaled,
    times,
    unit_of,
)
from gradtape.errors import ArgumentError, DtypeError, StructureError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.operands import broadcast_to
from gradtape.lru import LRU
from gradtape.ops.core.join import stack
from gradtape.trace.array.array import Array, placeholder
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.reroll import moment_now, with_loops
from gradtape.trace.source.sites import user_site
from gradtape.transforms.taylor.sweep import hessian_diagonal as diagonal
from gradtape.transforms.taylor.sweep import laplacian as summed
from gradtape.transforms.taylor.sweep import taylor as sweep
from gradtape.trees import flatten, flatten_up_to, unflatten

X = TypeVar("X")


@suggests_keywords
def taylor(function: Callable[[X], Any], x: X, v: X, order: int, *, higher: Sequence[X] = ()) -> Any:
    """Return the Taylor coefficients of ``t -> function(x + t*v)`` at t = 0, all orders at once.

    Parameters
    ----------
    function : callable
        NumPy code of one argument, with one or more results in any nest. The results must depend on the argument only, because the
        compiled program is kept and used again for the same function.
    x : array_like or nest of them
        The argument.
    v : array_like or nest of them
        The direction: of the structure and shapes of `x`.
    order : int
        The highest order.
    higher : sequence, optional
        Coefficients of a path in place of a line: ``higher[0]`` is that of ``t**2``, ``higher[1]`` that of ``t**3``, each of the structure
        and shapes of `x`. Then the path is ``x + v*t + higher[0]*t**2 + ...``.

    Returns
    -------
    nest of ndarray
        In the structure of the result. Each leaf has a leading axis of length ``order + 1``: its element k is the coefficient of ``t**k``,
        which is the k-th derivative divided by k!.

    Raises
    ------
    ArgumentError
        For an order that is not an integer of at least 0.
    StructureError, ShapeError, IntegerInputError
        Where `v` or `higher` do not match `x`, or `x` is of integers.
    NotDifferentiableError
        Where the path to the result leads through a function without derivatives, or through one that has none of so high an order.

    See Also
    --------
    jvp : The derivative along a direction.
    hvp : The derivative of the gradient along a direction.

    Notes
    -----
    The cost grows with the square of the order, where that of nested derivatives grows exponentially.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.taylor(lambda t: 1 / (1 - t), 0.0, 1.0, 4)
    array([1., 1., 1., 1., 1.])

    The k-th derivative is ``k!`` times coefficient k:

    >>> gt.taylor(np.exp, 0.0, 1.0, 3) * [1, 1, 2, 6]
    array([1., 1., 1., 1.])

    Along a path, the exponential of t**2:

    >>> gt.taylor(np.exp, 0.0, 0.0, 4, higher=[1.0])
    array([1. , 0. , 1. , 0. , 0.5])
    """
    check_callable(function, "taylor")
    here.site = user_site()
    highest = _checked_order(order)
    if not isinstance(higher, tuple | list):
        raise StructureError(
            f"taylor: higher must be a tuple or list of coefficients, got {kind_of(higher)}",
            where=here.site,
            remedy="gt.taylor(f, x, v, 3, higher=[x2, x3])",
        )
    return _known_series(function, highest)(x, v, *higher)


def _checked_order(order: Any) -> int:
    """Return the order as an int."""
    try:
        highest = -1 if isinstance(order, bool) else operator.index(order)
    except TypeError:
        highest = -1
    if highest < 0:
        raise ArgumentError(
            f"taylor: order is {order!r}",
            where=here.site,
            why="it is the number of the last coefficient, and decides which program is compiled",
            remedy="give an integer of at least 0",
        )
    return highest


MOST_KEPT: Final = 64
"""Functions whose series are kept: an entry keeps its function alive, since only then machine code answers a call without Python's help."""

_series: Final[LRU[tuple[Callable[..., Any], int], Jitted[..., Any]]] = LRU(lambda: MOST_KEPT)
"""The compiled series, by function and order."""


def _known_series(function: Callable[..., Any], order: int) -> Jitted[..., Any]:
    """Return the compiled series of a function; what cannot be a key is compiled anew."""
    key = function, order
    try:
        compiled_series = _series.get(key)
    except TypeError:
        return _series_of(function, order)
    if compiled_series is None:
        compiled_series = _series[key] = _series_of(function, order)
    return compiled_series


def _series_of(function: Callable[..., Any], order: int) -> Jitted[..., Any]:
    """Return the compiled series, called with the coefficients of the path."""

    def taylor(x: Any, *path: Any) -> Any:
        here.site = user_site()
        refuse_quantities((x, path), "taylor: x, or a coefficient of the path,")
        recording = Recording("taylor", (x,))
        by_order = []
        for position, part in enumerate(path):
            name = "v" if position == 0 else f"higher[{position - 1}]"
            leaves = flatten_up_to(recording.spec, (part,), name, "x", here.site)
            by_order.append(
                [
                    fitted(leaf, source, name, "x")
                    for leaf, source in zip(leaves, recording.sources, strict=True)
                ]
            )
        recording.run(function)
        refuse_quantities(recording.result_nest(), "taylor: the result", "return magnitudes")
        coefficients = list(zip(*by_order, strict=True))
        series = sweep(recording.targets, recording.sources, coefficients, order, recording.is_outside)
        stacked = [
            Array(stack(_dense(target, target), *[_dense(part, target) for part in parts]))
            for target, parts in zip(recording.targets, series, strict=True)
        ]
        return unflatten(recording.result_spec, stacked)

    return jit_of(taylor, taylor, EVERYTHING_TRACED)


def _dense(part: Value | None, target: Value) -> Value:
    """Return a coefficient as an array."""
    return broadcast_to(literal(0, target.dtype) if part is None else part, target.shape)


@pickled_as_call
def hessian_diagonal(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the diagonal of the Hessian of `function` without forming the Hessian.

    Parameters
    ----------
    function : callable
        NumPy code whose result is one real number.
    argnums : int or sequence of int, optional
        Positions of the arguments to differentiate with respect to, by default the first. Each argument may be a number, an array, or
        nested containers of these.
    argnames : str or sequence of str, optional
        Names of the arguments, instead of `argnums`, as for `grad`.
    chunk_size : int, optional
        The number of elements that are computed at once, by default as many as `memory` allows.
    memory : int or str, optional
        The bytes that the intermediate values of a chunk may take, as for `jacobian`.

    Returns
    -------
    Jitted
        Takes the arguments of `function`. It returns the second derivative with respect to each element, in the structure and shapes of
        the argument (a tuple if `argnums` or `argnames` is a sequence).

    Raises
    ------
    IntegerInputError
        At a call, if an argument to differentiate with respect to is an integer array.
    NonScalarOutputError
        At a call, if the result is not one number.
    DtypeError
        At a call, for complex arguments or a complex result.

    See Also
    --------
    laplacian : The sum of these derivatives.
    hessian : All second derivatives.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.hessian_diagonal(lambda x: np.sum(x**3) + x[0] * x[1])(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    return _second_derivatives(function, argnums, argnames, chunk_size, memory, "hessian_diagonal", False)


@pickled_as_call
def laplacian(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the Laplacian of `function`: the trace of its Hessian.

    Parameters
    ----------
    function, argnums, argnames, chunk_size, memory
        As for `hessian_diagonal`. The sum is over the elements of all arguments that are chosen.

    Returns
    -------
    Jitted
        Takes the arguments of `function`, and returns one number.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> float(gt.laplacian(lambda x: np.sum(x**2) ** 2)(np.array([1.0, 2.0])))
    80.0
    """
    return _second_derivatives(function, argnums, argnames, chunk_size, memory, "laplacian", True)


def _second_derivatives(
    function: Callable[..., Any],
    argnums: Positions,
    argnames: Names,
    chunk_size: int | None,
    memory: Memory,
    caller: str,
    is_summed: bool,
) -> Jitted[..., Any]:
    """Return the compiled diagonal of the Hessian, or its sum; `caller` names the public function in errors."""
    check_callable(function, caller)
    here.site = user_site()
    bound = chunk_limit(chunk_size, memory, caller)
    selection = selection_of(function, argnums, argnames, caller)

    def compute(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        chosen_places = selection.places(args, kwargs)
        chosen = selection.chosen(args, kwargs, chosen_places)
        tag = TraceTag()
        leaves, spec = flatten(chosen)
        starts = differentiable_leaves(
            leaves, tag, lambda position: f"{caller}: {selection.leaf(chosen_places, chosen, position)}"
        )
        for start in starts:
            if start.dtype.kind == "c":
                raise DtypeError(
                    f"{caller}: an argument is complex",
                    where=here.site,
                    why="second derivatives are those with respect to real numbers",
                    remedy="differentiate with respect to real and imaginary parts",
                )
        moment = moment_now()
        copies = list(map(placeholder, starts, leaves))
        arguments, keywords = selection.replaced(args, kwargs, chosen_places, unflatten(spec, copies))
        result = recordable_body(function)(*arguments, **keywords)
        selection.check_copies(args, kwargs, leaves, copies, starts)
        target = number_result(result, caller)
        tag.recording = False
        (target,), _ = with_loops(moment, [target], None, starts)
        along = summed if is_summed else diagonal
        derivatives = [
            along(target, start, lambda value: tag not in value.tags, mapped_tag(caller), bound)
            for start in starts
        ]
        tag.end()
        if is_summed:
            squares = [None if own is None else own**2 for own in leaf_units(chosen, spec)[0]]
            numbers = [0.0] * len(squares)
            unit, factors = common_unit(numbers, None, squares, -1, "second derivatives")
            derivatives = scaled(derivatives, factors)
            sums = [part for part in derivatives if part is not None]
            chosen_arguments = Array(reduce(PRIMITIVES["add"], sums) if sums else _dense(None, target))
            return per_argument(times(unit_of(result), unit), chosen_arguments)
        parts = [Array(_dense(part, start)) for part, start in zip(derivatives, starts, strict=True)]
        return selection.filled(per_argument(unit_of(result), unflatten(spec, parts), -2))

    return jit_of(compute, named(caller, function), EVERYTHING_TRACED)
