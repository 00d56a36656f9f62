"""Gradients of recorded values inside traced functions: TensorFlow's ``tf.gradients`` and ``tf.hessians``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.api.tape.endpoints import (
    NUMBERS,
    Source,
    UnconnectedGradients,
    as_results,
    completed,
    followable,
    per_source,
    seed_for,
    unconnected_choice,
)
from gradtape.api.units import refuse_quantities
from gradtape.errors import ArgumentError, DtypeError, ShapeError, TapeError, UnconnectedError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Value, constant
from gradtape.ir.types import is_inexact
from gradtape.ops.core.elementwise.cast import identity, zeros_like
from gradtape.ops.core.join import stack
from gradtape.ops.core.shape import reshape
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.array.preallocated import Preallocated, ndarray_or_none
from gradtape.trace.jit.bodies import refuse_outside_derivative
from gradtape.trace.jit.guards import InBody
from gradtape.trace.lazy.gradient_cache import one_like
from gradtape.trace.source.contexts import scopes
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.masks import constants
from gradtape.transforms.sparse_grads import SparseGradient, densify, sparsify
from gradtape.transforms.vjp import vjp


class AggregationMethod(enum.IntEnum):
    """The way in which the terms of a gradient are added.

    The members are TensorFlow's. In gradtape the compiler decides how sums are evaluated, so they make no difference beyond rounding.

    Attributes
    ----------
    ADD_N, DEFAULT
        In one sum.
    EXPERIMENTAL_TREE
        In pairs.
    EXPERIMENTAL_ACCUMULATE_N
        One after the other, as they arrive.

    Examples
    --------
    >>> import gradtape as gt
    >>> @gt.jit
    ... def slope(x):
    ...     return gt.gradients(x * x, x, aggregation_method=gt.AggregationMethod.EXPERIMENTAL_TREE)[0]
    >>> float(slope(3.0))
    6.0
    """

    ADD_N = 0
    DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@suggests_keywords
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: AggregationMethod | int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
) -> list[Any]:
    """Return the gradients of the sum of `ys` with respect to each of `xs`, inside a traced function.

    Parameters
    ----------
    ys : Array or sequence of Arrays
        The targets; the elements of arrays are summed.
    xs : Array, Variable or sequence of them
        The sources; they need not be watched.
    grad_ys : array_like or sequence of array_like or None, optional
        One weight per entry of `ys`, of its shape; None stands for ones.
    name : str, default "gradients"
        The prefix of the names of the results: that of the gradient with respect to an array called "w" is ``"gradients/w"``, in one
        without a name its position in `xs`, ``"gradients/0"``. A second call with the same name in one function uses ``"gradients_1"``.
    colocate_gradients_with_ops : bool, default False
        Accepted for compatibility with TensorFlow; it has no effect, since there is one device.
    gate_gradients : bool, default False
        Accepted for compatibility with TensorFlow; it has no effect, since results never depend on the order of evaluation.
    aggregation_method : AggregationMethod, optional
        Accepted for compatibility with TensorFlow; every method gives the same sums up to rounding.
    stop_gradients : Array or sequence of Arrays, optional
        Values that count as constants in this call. One that is also among `xs` still gets its own gradient.
    unconnected_gradients : UnconnectedGradients or {"none", "zero", "raise"}, default "none"
        What is returned for an entry of `xs` without a differentiable path to `ys`.

    Returns
    -------
    list of Array, IndexedSlices or None
        One entry per entry of `xs`, in the forms that `GradientTape.gradient` gives.

    Raises
    ------
    TapeError
        Outside a function that gradtape traces: use a `GradientTape` there.
    DtypeError
        For entries that are not arrays, complex `ys` without a weight, or weights of a wrong dtype.
    ArgumentError
        For unknown options, ndarrays and numbers among `xs` or `ys`, or a wrong count of weights.
    ShapeError
        For weights of a wrong shape.

    Examples
    --------
    >>> import gradtape as gt
    >>> @gt.jit
    ... def both(x):
    ...     a = 2 * x
    ...     b = a * x
    ...     return gt.gradients(b, [a, x])
    >>> [float(g) for g in both(3.0)]
    [3.0, 12.0]
    """
    here.site = user_site()
    _check_options("gradients", name, colocate_gradients_with_ops, gate_gradients, aggregation_method)
    choice = unconnected_choice(unconnected_gradients, "gradients")
    targets = [leaf.value for leaf in _entries(ys, "ys", "gradients")]
    entries = _entries(xs, "xs", "gradients")
    sources = [_source(leaf) for leaf in entries]
    stopped = [] if stop_gradients is None else _entries(stop_gradients, "stop_gradients", "gradients")
    seeds = _weights(grad_ys, targets)
    barriers = {value for leaf in stopped for value in _source(leaf).values}
    results = completed(
        _pulled(targets, seeds, sources, barriers), sources, choice, list(range(len(sources)))
    )
    return _named(as_results(results, sources), entries, name)


@suggests_keywords
def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: AggregationMethod | int | None = None,
) -> list[Any]:
    """Return the second derivatives of the sum of `ys` with respect to each of `xs`, inside a traced function.

    Parameters
    ----------
    ys, xs, name, colocate_gradients_with_ops, gate_gradients, aggregation_method
        As for `gradients`.

    Returns
    -------
    list of Array
        One Hessian per entry of `xs`, of the shape ``x.shape + x.shape``. There are no blocks across entries.

    Raises
    ------
    UnconnectedError
        If no differentiable path leads from an entry of `xs` to `ys`.
    TapeError, DtypeError, ArgumentError
        As for `gradients`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.jit
    ... def curvature(x):
    ...     return gt.hessians(np.sum(x**3), x)[0]
    >>> curvature(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    here.site = user_site()
    _check_options("hessians", name, colocate_gradients_with_ops, gate_gradients, aggregation_method)
    targets = [leaf.value for leaf in _entries(ys, "ys", "hessians")]
    entries = _entries(xs, "xs", "hessians")
    sources = [_source(leaf) for leaf in entries]
    slopes = _pulled(targets, _weights(None, targets), sources, frozenset())
    if None in slopes:
        raise UnconnectedError(
            f"hessians: None values not supported: no differentiable path leads from xs[{slopes.index(None)}] to ys",
            where=here.site,
            why="a Hessian needs a gradient that can be differentiated again",
            remedy="omit this entry of xs",
        )
    blocks = [
        Array(_jacobian(followable(densify(slope, source.shape)), source))
        for slope, source in zip(slopes, sources, strict=True)
        if slope is not None
    ]
    return _named(blocks, entries, name)


def _named(results: list[Any], entries: Sequence[Handle], stem: str) -> list[Any]:
    """Return results under names made of `stem` and the name, or the position, of the entry that each belongs to."""
    prefix = scopes()[-1].unique_name(stem)
    for position, (result, entry) in enumerate(zip(results, entries, strict=True)):
        array = result.values if isinstance(result, IndexedSlices) else result
        if array is not None:
            entry_name = entry.name if isinstance(entry, Variable) else entry.value.name
            if array.value.name is not None:  # a value of the user's, who has named it
                array.rebind(emit(identity, [array.value]))
            array.value.name = f"{prefix}/{position if entry_name is None else entry_name}"
    return results


def _jacobian(slope: Value, source: Source) -> Value:
    """Return the derivatives of each element of `slope`, row by row."""
    zero = zeros_like(constant(np.zeros(source.shape, source.dtype)))
    rows = []
    for position in range(slope.size):
        seed = np.zeros(slope.shape, slope.dtype)
        seed.flat[position] = 1
        (row,) = _pulled([slope], [constant(seed)], [source], frozenset())
        rows.append(zero if row is None else densify(row, source.shape))
    shape = (*slope.shape, *source.shape)
    if not rows:
        return constant(np.zeros(shape, source.dtype))
    return reshape(stack(*rows), shape)


def _pulled(
    targets: Sequence[Value], seeds: Sequence[Value], sources: Sequence[Source], barriers: Any
) -> list[Value | SparseGradient | None]:
    chosen = [(value, seed) for value, seed in zip(targets, seeds, strict=True) if is_inexact(value.dtype)]
    ends = [value for value, _ in chosen]
    begins = [value for source in sources for value in source.values]
    for value in begins:
        bodies = [tag for tag in value.tags if isinstance(tag, InBody)]
        refuse_outside_derivative(
            "gt.gradients", ends, bodies, "take it outside, of the result, or use gt.grad inside"
        )

    def stop(value: Value) -> bool:
        return False

    weights = [seed for _, seed in chosen]
    parts = vjp(ends, begins, weights, stop, barriers, constants(weights))
    return per_source(sources, sparsify(parts, begins, ends, stop))


def _source(leaf: Handle) -> Source:
    """Return what stands for an array, or for a variable: all that was read of it in the functions around."""
    if not isinstance(leaf, Variable):
        if isinstance(leaf, Preallocated) and ndarray_or_none(leaf) is not None and leaf._base.is_read:
            raise ArgumentError(
                "an array of xs was made by NumPy, and NumPy has computed with it or taken a view of it",
                where=here.site,
                why="computations with constants only are not recorded, so the gradient would lack those terms",
                remedy="make it a recorded constant: c = gt.constant(np.ones(2))",
            )
        values: tuple[Value, ...] = (leaf.value,)
    else:
        read = [value for scope in scopes() for value in scope.reads.get(leaf.serial, ())]
        values = tuple(dict.fromkeys(read))
    return Source(leaf.shape, leaf.dtype, values if is_inexact(leaf.dtype) else ())


def _entries(sources: Any, argument: str, caller: str) -> list[Handle]:
    """Return the arrays of an argument that is one array or a flat sequence of arrays."""
    entries = list(sources) if isinstance(sources, list | tuple) else [sources]
    for position, entry in enumerate(entries):
        path = f"{argument}[{position}]" if isinstance(sources, list | tuple) else argument
        if isinstance(entry, Handle):
            continue
        refuse_quantities(
            entry, f"{caller}: {path}", "use gt.grad, or the gradient of a tape, which have units"
        )
        if isinstance(entry, NUMBERS):
            raise ArgumentError(
                f"{caller}: {path} is a plain {type(entry).__name__}",
                where=here.site,
                why="an ndarray or number does not know how it was computed",
                remedy="pass the arrays that the traced function is given or computes",
            )
        raise DtypeError(
            f"{caller}: {path} is {kind_of(entry)}",
            where=here.site,
            remedy="pass one Array or Variable, or a flat list of them",
        )
    return entries


def _weights(weights: Any, targets: Sequence[Value]) -> list[Value]:
    entries = (
        [None] * len(targets)
        if weights is None
        else list(weights)
        if isinstance(weights, list | tuple)
        else [weights]
    )
    if len(entries) != len(targets):
        raise ShapeError(
            f"gradients: grad_ys has {len(entries)} entries for {len(targets)} entries of ys",
            where=here.site,
            remedy="give one weight per entry of ys, or None for ones",
        )
    seeds = []
    for position, (entry, target) in enumerate(zip(entries, targets, strict=True)):
        if entry is None and target.dtype.kind == "c":
            raise DtypeError(
                f"gradients: ys[{position}] is complex ({target.dtype}) and has no weight",
                where=here.site,
                why="only a real number has a gradient; in complex numbers the direction must be chosen",
                remedy="give its weight in grad_ys, or differentiate np.real(y) or np.abs(y)**2",
            )
        seeds.append(one_like(target) if entry is None else seed_for(entry, target, "gradients", "grad_ys"))
    return seeds


def _check_options(
    caller: str, name: Any, colocate: Any, gate_gradients: Any, aggregation_method: Any
) -> None:
    """Check the options that `gradients` and `hessians` share, and that the call stands in a traced function."""
    if not scopes():
        raise TapeError(
            f"gt.{caller} was called outside a traced function",
            where=here.site,
            why="only a function under @gt.jit, or one given to gt.grad, gt.vjp and the like, records its computation",
            remedy="put @gt.jit on the function around it, or use gt.GradientTape",
        )
    if not isinstance(name, str) or not name:
        raise DtypeError(
            f"{caller}: name must be a str that is not empty, got {name!r}",
            where=here.site,
            remedy='name="gradients"',
        )
    for argument, flag in (("colocate_gradients_with_ops", colocate), ("gate_gradients", gate_gradients)):
        if not isinstance(flag, bool | np.bool_):
            raise DtypeError(
                f"{caller}: {argument} must be a bool, got {kind_of(flag)}",
                where=here.site,
                why="by position, what follows name is colocate_gradients_with_ops, gate_gradients, aggregation_method",
                remedy=f"{argument}=False",
            )
    if aggregation_method is None:
        return
    try:
        AggregationMethod(aggregation_method)
    except ValueError:
        raise ArgumentError(
            f"{caller}: unknown aggregation_method {aggregation_method!r}",
            where=here.site,
            remedy="choose a member of gt.AggregationMethod",
        ) from None
