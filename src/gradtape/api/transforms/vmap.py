"""`vmap` and `vectorized_map`: a function of one element, batched over an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, overload

import numpy as np

from gradtape.api.tape.jacobian import chunk_limit
from gradtape.api.transforms.argnums import integer
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.pickling import pickled_as_call
from gradtape.api.transforms.recording import named, recordable_body
from gradtape.errors import ArgumentError, DtypeError, InPlaceError, ShapeError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.kinds.batching import Shared, from_front, in_front, to_front
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import layout_of_element
from gradtape.trace.jit.bodies import final, unhidden_errors
from gradtape.trace.jit.captures.arguments import argument_copies
from gradtape.trace.jit.captures.user_classes import is_package_object
from gradtape.trace.jit.captures.writes import watch_over
from gradtape.trace.jit.guards import Mapped, note_write
from gradtape.trace.jit.side_effects import depends_on
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.reroll import moment_now, rolled_since
from gradtape.trace.patching.copies import Substitute, WriteWatch
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import user_site
from gradtape.transforms.batch import batch_more
from gradtape.transforms.chunks import batched_in_chunks
from gradtape.trees import element_spec, flatten, flatten_with_none, place_of_leaf, spread_prefix, unflatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import N, Q, X


@overload
def vmap(
    function: Callable[Concatenate[X, Q], N],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    chunk_size: int | None = None,
) -> Jitted[..., N]: ...
@overload
def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, chunk_size: int | None = None
) -> Jitted[..., Any]: ...
@pickled_as_call
def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, chunk_size: int | None = None
) -> Jitted[..., Any]:
    """Return a function that applies `function` to every element along an axis.

    `function` is written for one element. It runs once, and its operations are vectorised over all elements.

    Parameters
    ----------
    function : callable
        NumPy code for one element.
    in_axes : int, None, or nests of them, default 0
        The axis of each argument that is mapped, or None for an argument that all elements share. One entry for all arguments, or a
        tuple with one entry per positional argument; an entry may have the containers of its argument. Negative axes count from the
        end. Arguments passed by keyword are mapped along axis 0.
    out_axes : int, None, or nests of them, default 0
        The position of the mapped axis in the results, or None for a result that is the same for all elements.
    chunk_size : int, optional
        The number of elements that are computed at once, by default all. A loop computes one chunk after another, so only the
        intermediate values of one chunk are in memory at a time; derivatives recompute them. The results are the same.

    Returns
    -------
    Jitted
        Takes the arguments with the mapped axis and returns the results with it. A call with `Array`s is recorded, so tapes, gradients
        and other maps apply to it.

    Raises
    ------
    ShapeError
        At a call, if an argument does not have the axis, or if the lengths of mapped axes differ.
    StructureError
        At a call, if `in_axes` or `out_axes` does not match the arguments or the results.
    ConcretizationError
        At a call, if the function needs the concrete value of a mapped array (``if x > 0``), cannot be compiled from its code, and the
        elements differ in that value.

    See Also
    --------
    vectorized_map : The same with TensorFlow's order of arguments.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> points, w = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, -1.0])
    >>> gt.vmap(lambda x, w: np.dot(x, w), in_axes=(0, None))(points, w)
    array([-1., -1.])

    The gradient for each example:

    >>> gt.vmap(gt.grad(lambda x: np.sum(x**3)))(points)
    array([[ 3., 12.],
           [27., 48.]])

    Medians of distances, with the distances of 10 points in memory at a time:

    >>> x = np.linspace(0.0, 1.0, 1001)
    >>> medians = gt.vmap(lambda point: np.median(np.abs(x - point)), chunk_size=10)(x)
    >>> float(medians[0]), float(medians[500])
    (0.5, 0.25)
    """
    check_callable(function, "vmap")
    axes_in = _axes("in_axes", tuple(in_axes) if isinstance(in_axes, list) else in_axes)
    here.site = user_site()
    size = chunk_limit(chunk_size, None, "vmap", "elements").chunk_size
    mapped = Mapping(function, axes_in, _axes("out_axes", out_axes), "vmap", size)
    return jit_of(mapped, named("vmap", function), EVERYTHING_TRACED)


def _axes(argument: str, nested_axes: Any) -> Any:
    """Return a nest of axes with Python integers for its entries."""
    entries, spec = flatten(nested_axes)
    axes = [integer(entry) for entry in entries]
    for entry, axis in zip(entries, axes, strict=True):
        if axis is None:
            raise DtypeError(
                f"vmap: {argument} must be an int, None, or a nest of them, got {entry!r} of type {type(entry).__name__}",
                where=user_site(),
                remedy="in_axes=(0, None) maps the first argument and shares the second",
            )
    return unflatten(spec, axes)


@overload
def vectorized_map(fn: Callable[[Any], N], elems: Any) -> N: ...
@overload
def vectorized_map(fn: Callable[[Any], Any], elems: Any) -> Any: ...
@suggests_keywords
def vectorized_map(fn: Callable[[Any], Any], elems: Any) -> Any:
    """Apply a function to every element of arrays along their first axis.

    Parameters
    ----------
    fn : callable
        NumPy code for one element. It is called with one argument of the structure of `elems`.
    elems : array_like or nest of them
        The elements, along the first axis.

    Returns
    -------
    nest of ndarray, or of Array where `elems` holds them
        What `fn` returns, for all elements along the first axis.

    See Also
    --------
    vmap : Other axes, several arguments, and a program that is kept.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.vectorized_map(lambda pair: pair[0] * np.sum(pair[1]), (np.array([1.0, 2.0]), np.ones((2, 3))))
    array([3., 6.])
    """
    check_callable(fn, "vectorized_map")
    results = Mapping(fn, 0, 0, "vectorized_map")(elems)
    if any(isinstance(leaf, Handle) for leaf in flatten(elems)[0]):
        return results
    leaves, spec = flatten(results)
    arrays = force([leaf.value for leaf in leaves])
    return unflatten(spec, [array.copy() if array.ndim else array[()] for array in arrays])


class Mapping:
    """A function with the axes along which it is mapped; works on arrays in a recording."""

    holds_functions = True
    __slots__ = ("_caller", "_chunk_size", "_function", "_in_axes", "_out_axes")

    def __init__(
        self,
        function: Callable[..., Any],
        in_axes: Any,
        out_axes: Any,
        caller: str,
        chunk_size: int | None = None,
    ) -> None:
        self._function = function
        self._in_axes = in_axes
        self._out_axes = out_axes
        self._caller = caller
        self._chunk_size = chunk_size

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        leaves, spec = flatten_with_none((args, kwargs))
        axes = [
            *spread_prefix(self._in_axes, args, f"{self._caller}: in_axes", "the arguments", here.site),
            *[0] * len(flatten_with_none(kwargs)[0]),
        ]
        wholes = self._wholes(leaves, axes, args, kwargs)
        size = self._size(wholes, args, kwargs)
        name = getattr(self._function, "__name__", "a function")
        tag = Mapped(f"the function {name!r} that {self._caller} maps", depth=len(contexts.stack))
        singles = {k: Value(aval(w.shape[1:], w.dtype), tags=(tag,)) for k, w in wholes.items()}
        elements = [Array(singles[k]) if k in singles else leaf for k, leaf in enumerate(leaves)]
        for k in singles:
            if elements[k].ndim != 1:
                elements[k]._contiguous = layout_of_element(leaves[k], axes[k])
        arguments, keywords = unflatten(element_spec((args, kwargs), spec, axes), elements)
        substituted = {single: wholes[k] for k, single in singles.items()}
        tag.whole, tag.element = _elements_of(substituted, size, tag)
        moment = moment_now()
        try:
            contexts.mapped.append(tag)
            watch = watch_over(self._function)
            containers = argument_copies((args, kwargs), (tuple(arguments), keywords), "the arguments")
            with unhidden_errors():
                results = recordable_body(self._function)(*arguments, **keywords)
            if tag.disagreement is not None:
                raise tag.disagreement
            for k, single in singles.items():
                if elements[k].value is not single and isinstance(leaves[k], Handle):
                    note_write(leaves[k].value)
            self._refuse_writes(watch, containers, tag)
            outs, out_spec = flatten_with_none(results)
            values = [None if leaf is None else _result(leaf, self._caller) for leaf in outs]
            traced_values = [value for value in values if value is not None]
            seen = [value for shown, _ in tag.deferred for value in shown]
            rolled = iter(rolled_since(moment, [*traced_values, *seen], list(substituted)))
            values = [None if value is None else next(rolled) for value in values]
            seen = list(rolled)
        finally:
            if tag in contexts.mapped:
                contexts.mapped.remove(tag)
            tag.whole = tag.element = None
            tag.finish()
        batched = batched_in_chunks(
            [*[value for value in values if value is not None], *seen],
            substituted,
            size,
            self._chunk_size or max(size, 1),
            lambda value: tag not in value.tags,
        )
        shared = iter(zip(batched[len(batched) - len(seen) :], seen, strict=True))
        for shown, finish in tag.deferred:
            finish(
                [
                    value if tag_of_elements is None else tag_of_elements
                    for tag_of_elements, value in (next(shared) for _ in shown)
                ]
            )
        out_axes = spread_prefix(
            self._out_axes, results, f"{self._caller}: out_axes", "the results", here.site
        )
        batched_values, placed = iter(batched), []
        for position, (value, axis) in enumerate(zip(values, out_axes, strict=True)):
            path = place_of_leaf(results, position, none_is_leaf=True)
            placed.append(
                None if value is None else self._placed(value, next(batched_values), size, axis, path)
            )
        return unflatten(out_spec, placed)

    @staticmethod
    def _refuse_writes(watch: WriteWatch, containers: list[Substitute], tag: Mapped) -> None:
        """Refuse to write to objects outside: there is one run for all elements, and each would write in its turn."""

        def may_store(target: Any, is_cached: bool, new: Any) -> bool:
            return (is_cached or is_package_object(target)) and not depends_on(new, tag)

        changed = [each.name for each in containers if each.is_changed(each.initial)]
        for name in (*watch.written(may_store), *changed):
            watch.undo()
            raise final(
                InPlaceError(
                    f"{tag.described} writes to {name}",
                    where=user_site(),
                    why="it runs once for the whole batch, and a loop over the elements would write once for each of them: there is no "
                    "one value to be assigned",
                    remedy="return the value, and assign it outside, for the whole batch: its last element, its mean or its sum",
                )
            )

    def _wholes(
        self, leaves: Sequence[Any], axes: Sequence[int | None], args: Any, kwargs: Any
    ) -> dict[int, Value]:
        """Return the mapped leaves by position, the mapped axis in front."""
        wholes: dict[int, Value] = {}
        for position, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
            if axis is None or leaf is None:
                continue
            path = self._place(position, args, kwargs)
            value = leaf.value if isinstance(leaf, Handle) else as_value(leaf, path)
            if not -value.ndim <= axis < value.ndim:
                description = "a number" if value.ndim == 0 else f"an array of shape {value.shape}"
                raise ShapeError(
                    f"{self._caller}: {path} is {description}; it has no axis {axis} to map",
                    where=here.site,
                    remedy="in_axes gives the mapped axis of each argument; None for arguments that all elements share"
                    + ("; for that, pass it by position" if path.startswith("keyword") else ""),
                )
            wholes[position] = to_front(value, axis % value.ndim)
        return wholes

    def _size(self, wholes: dict[int, Value], args: Any, kwargs: Any) -> int:
        if not wholes:
            raise ArgumentError(
                f"{self._caller}: no argument is mapped",
                where=here.site,
                why="the number of elements is the length of a mapped axis, and there is none",
                remedy="give at least one argument an axis in in_axes, or call the function itself",
            )
        sizes = {position: value.shape[0] for position, value in wholes.items()}
        if len(set(sizes.values())) > 1:
            listed = "; ".join(f"{self._place(k, args, kwargs)} has {size}" for k, size in sizes.items())
            raise ShapeError(
                f"{self._caller}: the mapped axes have different extents: {listed}",
                where=here.site,
                remedy="map axes of one length, or share an argument with None in in_axes",
            )
        return next(iter(sizes.values()))

    @staticmethod
    def _place(position: int, args: Any, kwargs: Any) -> str:
        """Return where a leaf stands in the arguments, for an error."""
        path = place_of_leaf((args, kwargs), position, none_is_leaf=True)
        kind = "argument" if path.startswith("[0]") else "keyword"
        return f"{kind} {path[4:].replace(']', '', 1)}"

    def _placed(self, value: Value, batched: Value | None, size: int, axis: int | None, path: str) -> Array:
        """Return a result with the mapped axis where it is wanted."""
        if axis is None:
            if batched is not None:
                raise ArgumentError(
                    f"{self._caller}: out_axes is None for result{path}, which differs between the elements",
                    where=here.site,
                    remedy="give it an axis, or reduce it in the function to something that all elements share",
                )
            return Array(value)
        with_axis = in_front(value, size) if batched is None else batched
        if not -with_axis.ndim <= axis < with_axis.ndim:
            raise ShapeError(
                f"{self._caller}: out_axes puts the mapped axis at {axis} in result{path}, which has {with_axis.ndim} axes with it",
                where=here.site,
                remedy=f"choose an axis from {-with_axis.ndim} to {with_axis.ndim - 1}",
            )
        return Array(from_front(with_axis, axis % with_axis.ndim))


def _elements_of(
    substituted: dict[Value, Value], size: int, tag: Mapped
) -> tuple[Callable[[Value], Value], Callable[[Value, bool], Value]]:
    """Return the functions that compute the values of all elements from those of one, and let one stand for those of all."""
    batched_of: dict[Value, Any] = dict(substituted)

    def whole(value: Value) -> Value:
        (result,) = batch_more([value], batched_of, size, lambda each: tag not in each.tags)
        return in_front(result.value, size) if isinstance(result, Shared) else result

    def element(array: Value, weak: bool) -> Value:
        single = Value(aval(array.shape[1:], array.dtype, weak), tags=(tag,))
        substituted[single] = batched_of[single] = array
        return single

    return whole, element


def _result(leaf: Any, caller: str) -> Value:
    if isinstance(leaf, Handle):
        return leaf.value
    if not isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        raise DtypeError(
            f"{caller}: the function returned {kind_of(leaf)}",
            where=here.site,
            remedy="return arrays, numbers, None, or nests of these",
        )
    return as_value(leaf, "a result")
