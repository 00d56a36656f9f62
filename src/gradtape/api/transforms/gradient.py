"""Function transforms: grad, value_and_grad, vjp, jvp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, overload
from weakref import WeakKeyDictionary

import numpy as np

from gradtape.api.custom.complex_convention import (
    Convention,
    check_convention,
    check_holomorphic,
    conjugated,
    not_of_kind,
    unchanged,
)
from gradtape.api.tape.memory import Memory, memory_limit
from gradtape.api.tape.missing_paths import warn_of_cuts
from gradtape.api.transforms.argnums import Names, Positions, selection_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.linear import LinearMap
from gradtape.api.transforms.pickling import pickled_as_call
from gradtape.api.transforms.recording import (
    Recording,
    as_given,
    differentiable_leaves,
    named,
    recordable_body,
    split_aux,
    zeros_like,
)
from gradtape.api.transforms.residual_programs import applied
from gradtape.api.transforms.sharing import NOT_SHARED, program_of_calls, refusing_writes
from gradtape.api.units import like, magnitudes, per_argument, unit_of
from gradtape.config import within_memory
from gradtape.errors import NonScalarOutputError, StructureError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, TraceTag, Value, literal
from gradtape.kinds.operands import as_value
from gradtape.kinds.refusals import is_table, values_of
from gradtape.trace.array.array import Array, placeholder
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import flatten_arrays
from gradtape.trace.jit.captures.arguments import argument_copies, write_through
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.reroll import moment_now, with_loops
from gradtape.trace.random.comparisons import warn_of_chance
from gradtape.trace.source.sites import user_site
from gradtape.trace.subclasses.instances import without_class
from gradtape.transforms.taylor.orders import derivatives
from gradtape.transforms.vjp import vjp as pull_back
from gradtape.trees import unflatten

if TYPE_CHECKING:
    from typing import Literal as Exactly

    from gradtape.api.type_variables import A, Q, V, X, Xs, Y, Z


@overload
def grad(
    function: Callable[Concatenate[X, Q], Any],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], X]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Q], Any],
    argnums: Exactly[1],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], Y]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Q], Any],
    argnums: tuple[Exactly[0]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[X]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Q], Any],
    argnums: tuple[Exactly[0], Exactly[1]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[X, Y]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Z, Q], Any],
    argnums: tuple[Exactly[0], Exactly[1], Exactly[2]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Z, Q], tuple[X, Y, Z]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Q], tuple[Any, A]],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[X, A]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Q], tuple[Any, A]],
    argnums: Exactly[1],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[Y, A]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Q], tuple[Any, A]],
    argnums: tuple[Exactly[0]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[tuple[X], A]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Q], tuple[Any, A]],
    argnums: tuple[Exactly[0], Exactly[1]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[tuple[X, Y], A]]: ...
@overload
def grad(
    function: Callable[Concatenate[X, Y, Z, Q], tuple[Any, A]],
    argnums: tuple[Exactly[0], Exactly[1], Exactly[2]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Z, Q], tuple[tuple[X, Y, Z], A]]: ...
@overload
def grad(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def grad(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the gradient of `function`.

    Parameters
    ----------
    function : callable
        NumPy code that returns one real number (with ``has_aux``: a pair of this number and anything else).
    argnums : int or sequence of int, optional
        Positions of the arguments to differentiate with respect to, by default the first. Each argument may be a number, an array, or
        nested containers of these.
    argnames : str or sequence of str, optional
        Names of the arguments, instead of `argnums`. The arguments may be passed by position or by keyword, or omitted if they have a
        default.
    has_aux : bool, default False
        Whether `function` returns ``(number, aux)``; then the result is ``(gradient, aux)``.
    holomorphic : bool, default False
        Whether `function` is a holomorphic function of complex arguments. It must return one complex number; the result is then the
        complex derivative f'(z).
    convention : {"tensorflow", "jax"}, default "tensorflow"
        The gradient of a real function with respect to a complex argument x + iy: df/dx + i df/dy, as in TensorFlow and PyTorch, or its
        conjugate, as in JAX.
    memory : int or str, optional
        The bytes that the records of each reversed loop may take, as a number or as in ``"2 GB"``, by default `gt.config.memory`. A loop
        that would take more computes steps again; `gt.inspect.explain` says how many.

    Returns
    -------
    Jitted
        Takes the arguments of `function`. It returns the gradient in the structure of the argument (a tuple of gradients if `argnums`
        or `argnames` is a sequence); each leaf has the shape and dtype of the argument's leaf. The gradient is zero for arguments that
        do not influence the result.

    Raises
    ------
    IntegerInputError
        At a call, if an argument to differentiate with respect to is an integer array. A Python int is converted to float.
    NonScalarOutputError
        At a call, if the result is not one real number (with `holomorphic`, one complex number).
    DtypeError
        At a call with `holomorphic`, if an argument to differentiate with respect to is real.
    NotDifferentiableError
        At a call with `holomorphic`, if the path to the result leads through a function that is not holomorphic, such as np.abs.
    MemoryBudgetError
        At a call, if the gradient of a loop does not fit in `memory`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> bool(np.isclose(gt.grad(gt.grad(np.sin))(0.5), -np.sin(0.5)))
    True
    >>> float(gt.grad(lambda x, scale=2.0: scale * x, argnames="scale")(3.0))
    3.0
    """
    both = value_and_gradient(function, argnums, argnames, has_aux, "grad", holomorphic, convention, memory)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, result = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    if both in _nestings:
        _nestings[gradient] = _nestings.pop(both)
    return jit_of(gradient, named("grad", function), EVERYTHING_TRACED)


@overload
def value_and_grad(
    function: Callable[Concatenate[X, Q], V],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[V, X]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Q], V],
    argnums: Exactly[1],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[V, Y]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Q], V],
    argnums: tuple[Exactly[0]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[V, tuple[X]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Q], V],
    argnums: tuple[Exactly[0], Exactly[1]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[V, tuple[X, Y]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Z, Q], V],
    argnums: tuple[Exactly[0], Exactly[1], Exactly[2]],
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Z, Q], tuple[V, tuple[X, Y, Z]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Q], tuple[V, A]],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[tuple[V, A], X]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Q], tuple[V, A]],
    argnums: Exactly[1],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[tuple[V, A], Y]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Q], tuple[V, A]],
    argnums: tuple[Exactly[0]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Q], tuple[tuple[V, A], tuple[X]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Q], tuple[V, A]],
    argnums: tuple[Exactly[0], Exactly[1]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Q], tuple[tuple[V, A], tuple[X, Y]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[X, Y, Z, Q], tuple[V, A]],
    argnums: tuple[Exactly[0], Exactly[1], Exactly[2]],
    *,
    argnames: None = None,
    has_aux: Exactly[True],
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Concatenate[X, Y, Z, Q], tuple[tuple[V, A], tuple[X, Y, Z]]]: ...
@overload
def value_and_grad(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def value_and_grad(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the value of `function` and its gradient, in one program.

    Parameters
    ----------
    function, argnums, argnames, has_aux, holomorphic, convention, memory
        As for `grad`.

    Returns
    -------
    Jitted
        Returns ``(value, gradient)``, with ``has_aux`` ``((value, aux), gradient)``; see `grad`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> value, gradient = gt.value_and_grad(lambda x, y: np.sum(x * y), argnums=(0, 1))(np.ones(2), np.array([2.0, 3.0]))
    >>> float(value), [g.tolist() for g in gradient]
    (5.0, [[2.0, 3.0], [1.0, 1.0]])
    """
    both = value_and_gradient(
        function, argnums, argnames, has_aux, "value_and_grad", holomorphic, convention, memory
    )
    return jit_of(both, named("value_and_grad", function), EVERYTHING_TRACED)


def value_and_gradient(
    function: Callable[..., Any],
    argnums: Positions,
    argnames: Names,
    has_aux: bool,
    caller: str,
    holomorphic: bool,
    convention: Convention,
    memory: Memory = None,
) -> Callable[..., Any]:
    """Return what computes both inside a recording; `caller` is who asks."""
    check_callable(function, caller)
    check_convention(convention, caller)
    limit = memory_limit(memory, caller)
    selection = selection_of(function, argnums, argnames, caller)
    bilinear = holomorphic or convention == "jax"
    is_plain = argnums is None and argnames is None and not (has_aux or holomorphic)
    compiled = function.site.function if is_plain and isinstance(function, Jitted) else None
    inner = (
        _nestings.get(compiled) if isinstance(compiled, FunctionType) else None
    )  # others may take no weak references
    order = 1 if inner is None else inner.order + 1

    def both(*args: Any, **kwargs: Any) -> Any:
        return within(None, args, kwargs)

    def within(orders: Orders | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with within_memory(limit):
            return at_order(orders, args, kwargs)

    def at_order(orders: Orders | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the function, and pull 1 back from its result, or take the derivative from those of all orders."""
        here.site = user_site()
        places = selection.places(args, kwargs)
        chosen = selection.chosen(args, kwargs, places)
        tag = TraceTag()
        leaves, filled = flatten_arrays(chosen, none_is_leaf=False)
        starts = differentiable_leaves(
            leaves, tag, lambda position: f"{caller}: {selection.leaf(places, chosen, position)}"
        )
        moment = moment_now()
        copies = list(map(placeholder, starts, leaves))
        arguments, keywords = selection.replaced(args, kwargs, places, filled(copies))
        containers = argument_copies((args, kwargs), (tuple(arguments), keywords), "the arguments")
        if (
            orders is None
            and order >= LEAST_ORDER
            and is_plain
            and _is_one_number(args, kwargs, leaves, starts)
        ):
            orders = Orders(order)
        if orders is None or inner is None:
            result = recordable_body(function)(*arguments, **keywords)
        else:
            result = recordable_body(partial(inner.gradient, orders))(*arguments)
        selection.check_copies(args, kwargs, leaves, copies, starts)
        write_through(containers, copies, leaves)
        value, aux = split_aux(result, caller) if has_aux else (result, None)
        tag.recording = False
        target = number_result(value, caller, "c" if holomorphic else "f")
        warn_of_cuts(tag, [target], starts)
        warn_of_chance(tag, [target], starts)
        cotangents: Sequence[Value | None]
        if orders is not None and orders.are_computed:
            cotangents = [orders.next()]
        else:
            (target,), aux = with_loops(moment, [target], aux, starts)
            if holomorphic:
                check_holomorphic(target, starts, tag, caller)
            if orders is not None and inner is None and orders.compute(target, starts[0], tag):
                cotangents = [orders.next()]
            else:
                cotangents = pull_back([target], starts, [_one(target)], lambda v: tag not in v.tags)
        tag.end()
        gradients = [
            Array(
                zeros_like(begin) if cotangent is None else cotangent if bilinear else conjugated(cotangent)
            )
            for begin, cotangent in zip(starts, cotangents, strict=True)
        ]
        nested = per_argument(unit_of(value), filled(gradients))
        value = like(value, Array(target))
        return ((value, aux) if has_aux else value), selection.filled(nested)

    if is_plain and caller == "grad":
        _nestings[both] = Nesting(order, lambda orders, *args: within(orders, args, {})[1])
    return both


LEAST_ORDER: Final = 3
"""Nested gradients from this order on are computed by one series, where that is possible."""


class Nesting(NamedTuple):
    """A gradient in one argument, as a gradient of it sees it.

    Attributes
    ----------
    order : int
        How many gradients are nested in it, itself included.
    gradient : callable
        Returns it inside a recording, from the derivatives of all orders and the argument.
    """

    order: int
    gradient: Callable[..., Any]


_nestings: Final[WeakKeyDictionary[Callable[..., Any], Nesting]] = WeakKeyDictionary()
"""By what `grad` has compiled."""


class Orders:
    """The derivatives of a function of one number, which nested gradients have in common.

    The innermost gradient computes all of them by a series, since nested sweeps take exponential time. Those around it take one each.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._rest: Iterator[Value | None] | None = None

    @property
    def are_computed(self) -> bool:
        return self._rest is not None

    def compute(self, target: Value, source: Value, tag: TraceTag) -> bool:
        """Compute all derivatives; return whether that has succeeded."""
        computed = derivatives(target, source, self._order, lambda v: tag not in v.tags)
        if computed is not None:
            self._rest = iter(computed)
        return self.are_computed

    def next(self) -> Value | None:
        """Return the derivative of the next order; None for zero."""
        assert self._rest is not None
        return next(self._rest)


def _is_one_number(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], starts: Sequence[Value]
) -> bool:
    """Return whether a function is differentiated in its only argument, a real number."""
    if kwargs or len(args) != 1 or len(leaves) != 1 or leaves[0] is not args[0]:
        return False
    return starts[0].ndim == 0 and starts[0].dtype.kind == "f"


def number_result(result: Any, caller: str, kind: str = "f") -> Value:
    """Return the value of a result that must be one number: a real one, or a complex one for the kind "c"."""
    if is_table(result):
        result = values_of(result)
    result = magnitudes(result)
    if not isinstance(result, Handle | np.ndarray | np.generic | int | float | complex):
        raise NonScalarOutputError(
            f"{caller} needs a function that returns one number; this one returned {kind_of(result)}",
            where=user_site(),
            why="only a single number has a gradient",
            remedy="return a number (has_aux=True for a number and something else); for many numbers use vjp or a jacobian",
        )
    result = without_class(result)
    value = result.value if isinstance(result, Handle) else as_value(result, "the result")
    if value.size != 1 or value.ndim:
        raise NonScalarOutputError(
            f"{caller} needs a function that returns one number; this one returned an array of shape {value.shape}",
            where=user_site(),
            why="only a single number has a gradient",
            remedy="sum it (np.sum), or use gt.vjp, gt.jvp or a jacobian",
        )
    if value.dtype.kind != kind:
        raise not_of_kind(value.dtype, kind, caller)
    return value if not isinstance(value, Literal) else Value(value.aval, data=value.data)


def _one(target: Value) -> Value:
    return literal(1, target.dtype)


@overload
def vjp(
    function: Callable[[*Xs], V],
    *primals: *Xs,
    has_aux: Exactly[False] = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> tuple[V, Callable[[Any], tuple[*Xs]]]: ...
@overload
def vjp(
    function: Callable[[*Xs], tuple[V, A]],
    *primals: *Xs,
    has_aux: Exactly[True],
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> tuple[V, Callable[[Any], tuple[*Xs]], A]: ...
@suggests_keywords  # type: ignore[misc] # mypy: *primals
def vjp(
    function: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Any:
    """Evaluate a function and return a callable that pulls cotangents back.

    Parameters
    ----------
    function : callable
        NumPy code with one or more floating results in any nest.
    *primals : array_like or nests of them
        Its arguments.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then aux is returned as well.
    convention : {"tensorflow", "jax"}, default "tensorflow"
        Cotangents of complex numbers, those that the pullback takes and those that it returns. In TensorFlow's convention the cotangent
        of z = x + iy is a + ib for the map dz -> a dx + b dy, and in JAX's the conjugate.
    memory : int or str, optional
        The bytes that the records of each reversed loop may take, as for `grad`.

    Returns
    -------
    y : nest of ndarray
        ``function(*primals)``.
    pullback : callable
        ``pullback(ct) -> tuple``: takes a cotangent of the structure and shapes of `y` and returns one per primal (zeros where there is
        no influence). It can be called any number of times.
    aux : anything
        With ``has_aux`` only.

    Raises
    ------
    IntegerInputError
        For an integer array among the primals.
    StructureError, ShapeError
        By the pullback, for a cotangent that does not match `y`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> y, pullback = gt.vjp(np.sin, np.array([0.0, 1.0]))
    >>> bool(np.allclose(pullback(np.ones(2))[0], np.cos([0.0, 1.0])))
    True

    For a holomorphic function JAX's pullback multiplies by the derivative, and TensorFlow's by its conjugate:

    >>> for convention in ("jax", "tensorflow"):
    ...     y, pullback = gt.vjp(lambda z: z**2, 1.0 + 2.0j, convention=convention)
    ...     print(*pullback(1.0 + 0.0j))
    (2+4j)
    (2-4j)
    """
    check_callable(function, "vjp")
    check_convention(convention, "vjp")
    converted = unchanged if convention == "jax" else conjugated
    limit = memory_limit(memory, "vjp")
    here.site = user_site()
    kept = applied("vjp", function, primals, has_aux, converted, limit)
    if kept is None:
        recording = Recording("vjp", primals)
        with within_memory(limit):
            aux = recording.run_untold(function, has_aux)
        if recording.is_cut:
            with refusing_writes():
                kept = applied("vjp", function, primals, has_aux, converted, limit)
    if kept is not None:

        def pull(cotangent: Any) -> tuple[Any, ...]:
            here.site = user_site()
            pulled: tuple[Any, ...] = kept(
                cotangent, "the cotangent", "the function's result", "a cotangent", "the result"
            )
            return pulled

        linear_map = LinearMap("pullback", pull, lambda: (kept.program.specimen(),))
        return (kept.result, linear_map, kept.aux) if has_aux else (kept.result, linear_map)
    recording.tell_cuts()

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        here.site = user_site()
        seeds, arrays = recording.seeds(cotangent)
        with within_memory(limit):
            pulled = list(map(converted, recording.pull(list(map(converted, seeds)))))
        returned: tuple[Any, ...] = recording.pulled(as_given(pulled, arrays), cotangent)
        return returned

    y = recording.result()
    transposed = LinearMap("pullback", pullback, lambda: (recording.target_nest(),), recording)
    return (y, transposed, recording.aux(aux)) if has_aux else (y, transposed)


@overload
def jvp(
    function: Callable[[*Xs], V],
    primals: tuple[*Xs],
    tangents: Sequence[Any],
    *,
    has_aux: Exactly[False] = False,
) -> tuple[V, V]: ...
@overload
def jvp(
    function: Callable[[*Xs], tuple[V, A]],
    primals: tuple[*Xs],
    tangents: Sequence[Any],
    *,
    has_aux: Exactly[True],
) -> tuple[V, V, A]: ...
@overload
def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any: ...
@suggests_keywords
def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Evaluate a function and its directional derivative by forward mode.

    Parameters
    ----------
    function : callable
        NumPy code with one or more results in any nest.
    primals : sequence of array_like or nests of them
        Its arguments.
    tangents : sequence
        The direction, with the structure and shapes of `primals`.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then aux is returned as well.

    Returns
    -------
    y : nest of ndarray
        ``function(*primals)``.
    tangent : nest of ndarray
        The derivative of `y` along `tangents`, of the structure and shapes of `y` (zeros where there is no influence).
    aux : anything
        With ``has_aux`` only.

    Raises
    ------
    StructureError, ShapeError, IntegerInputError
        If primals and tangents do not match, or are integers.

    Examples
    --------
    >>> import gradtape as gt
    >>> y, t = gt.jvp(lambda x: x**2, (3.0,), (1.0,))
    >>> float(y), float(t)
    (9.0, 6.0)
    """
    check_callable(function, "jvp")
    here.site = user_site()
    for argument, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise StructureError(
                f"jvp: {argument} must be a tuple or list with one entry per argument, got {type(given).__name__}",
                where=here.site,
                remedy="gt.jvp(f, (x,), (dx,))",
            )
    options = "jvp", bool(has_aux), len(primals), len(tangents)

    def kept() -> Any:
        program = program_of_calls(options, function, _pushed(has_aux), Jitted)
        if program is None or len(primals) != len(tangents):
            return NOT_SHARED
        return program[0](function, *primals, *tangents)

    result = kept()
    if result is not NOT_SHARED:
        return result
    return _jvp(function, tuple(primals), tuple(tangents), has_aux, kept)


def _pushed(has_aux: bool) -> Callable[..., Any]:
    """Return what functions share that are called by `jvp`: nobody differentiates in the tangents, whose zeros are zeros by selection."""

    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        count = len(arguments) // 2
        return _jvp(function, arguments[:count], arguments[count:], has_aux)

    return run


def _jvp(
    function: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    has_aux: bool,
    kept: Callable[[], Any] | None = None,
) -> Any:
    """Record the function, and push tangents forward.

    `kept` returns the result of a program, which answers where numbers have left; in that program itself it is None.
    """
    recording = Recording("jvp", primals)
    seeds, recording.recorded = recording.directions(tangents)
    aux = recording.run_untold(function, has_aux)
    if recording.is_cut and kept is not None:
        with refusing_writes():
            result = kept()
        if result is not NOT_SHARED:
            return result
    recording.tell_cuts()
    pushed = recording.push(seeds, set(seeds) if kept is None else None)
    computed = as_given([*recording.targets, *pushed], recording.recorded)
    count = len(recording.targets)
    y = unflatten(recording.result_spec, computed[:count])
    moved, _ = flatten_arrays(unflatten(recording.result_spec, computed[count:]), none_is_leaf=False)
    tangent = recording.pushed(flatten_arrays(y, none_is_leaf=False)[1](moved), tangents)
    return (y, tangent, recording.aux(aux)) if has_aux else (y, tangent)
