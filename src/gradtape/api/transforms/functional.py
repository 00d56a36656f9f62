"""Function transforms of higher rank or order: Jacobians, Hessians, and Hessian-vector products."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, NamedTuple, TypeAlias, overload

import numpy as np

from gradtape.api.custom.complex_convention import (
    Convention,
    check_convention,
    check_holomorphic,
    conjugated,
    unchanged,
)
from gradtape.api.operands import traceable_operand
from gradtape.api.tape.jacobian import chunk_limit, mapped_tag
from gradtape.api.tape.memory import Memory, memory_limit
from gradtape.api.transforms.argnums import Names, Positions, selection_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import jvp, value_and_gradient
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.pickling import pickled_as_call
from gradtape.api.transforms.recording import differentiable_leaves, named, recordable_body, split_aux
from gradtape.api.units import leaf_units, per_argument
from gradtape.config import within_memory
from gradtape.containers.pandas import labelled
from gradtape.errors import ArgumentError, DtypeError, StructureError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import TraceTag, Value, literal
from gradtape.ir.types import Shape, is_inexact
from gradtape.kinds.batching import from_front
from gradtape.kinds.contract import Contract
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.shape import reshape
from gradtape.trace.array.array import Array, placeholder
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.reroll import moment_now, with_loops
from gradtape.trace.source.sites import user_site
from gradtape.trace.subclasses.instances import without_class
from gradtape.transforms.chunks import Bound, columns, rows
from gradtape.trees import columns_of, flatten, unflatten

if TYPE_CHECKING:
    from typing import Literal as Exactly

    from gradtape.api.type_variables import N, Q, X

Mode: TypeAlias = Literal["auto", "fwd", "rev"]
MODES: Final = ("auto", "fwd", "rev")


@overload
def jacobian(
    function: np.ufunc,
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    mode: Mode = "auto",
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]: ...
@overload
def jacobian(
    function: Callable[Concatenate[N, Q], Any],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    mode: Mode = "auto",
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Concatenate[N, Q], N]: ...
@overload
def jacobian(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    mode: Mode = "auto",
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def jacobian(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    mode: Mode = "auto",
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the Jacobian of `function`.

    Parameters
    ----------
    function : callable
        NumPy code that returns a float, an array of floats, or nested containers of these (with ``has_aux``: a pair of this result and
        anything else). The result of real arguments may be complex.
    argnums : int or sequence of int, optional
        Positions of the arguments to differentiate with respect to, by default the first. Each argument may be a number, an array, or
        nested containers of these.
    argnames : str or sequence of str, optional
        Names of the arguments, instead of `argnums`, as for `grad`.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then the result is ``(jacobian, aux)``.
    mode : {"auto", "fwd", "rev"}, default "auto"
        Forward mode computes columns, reverse mode rows; "auto" chooses the smaller number. Complex arguments need reverse mode,
        complex results forward mode.
    holomorphic : bool, default False
        Whether `function` is a holomorphic function of complex arguments. Its Jacobian then consists of complex derivatives, in either
        mode.
    convention : {"tensorflow", "jax"}, default "tensorflow"
        The derivative of a real result with respect to a complex argument, as for `grad`.
    chunk_size : int, optional
        The number of rows or columns that are computed at once, by default as many as `memory` allows.
    memory : int or str, optional
        The bytes, as a number or as in ``"2 GB"``, that the intermediate values of one chunk of rows or columns may take, estimated from
        shapes, and the records of each reversed loop; by default `gt.config.jacobian_memory`, a fraction of the free memory, and
        `gt.config.memory`. A Jacobian that does not fit is computed by a loop over chunks, and a loop that does not computes steps again.

    Returns
    -------
    Jitted
        Takes the arguments of `function`. It returns, in the structure of the result, the structure of the argument (a tuple
        if `argnums` or `argnames` is a sequence), with arrays of shape ``result.shape + argument.shape``.

    Raises
    ------
    IntegerInputError
        At a call, if an argument to differentiate with respect to is an integer array.
    DtypeError
        At a call, if a result is not a float, or is complex where that is not supported.
    NotDifferentiableError
        At a call with `holomorphic`, if the path to the result leads through a function that is not holomorphic, such as np.abs.
    ArgumentError
        For a mode or convention that does not exist, or, at a call, for `argnums` without an argument.

    See Also
    --------
    GradientTape.jacobian : The same for recorded code.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.jacobian(lambda x: x**2 * x[::-1])(np.array([1.0, 2.0]))
    array([[4., 1.],
           [4., 4.]])
    """
    return _jacobian(
        function, argnums, argnames, has_aux, mode, "jacobian", holomorphic, convention, chunk_size, memory
    )


@overload
def jacrev(
    function: np.ufunc,
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]: ...
@overload
def jacrev(
    function: Callable[Concatenate[N, Q], Any],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Concatenate[N, Q], N]: ...
@overload
def jacrev(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def jacrev(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the Jacobian by reverse mode, row by row: for few results.

    Parameters
    ----------
    function, argnums, argnames, has_aux, holomorphic, convention, chunk_size, memory
        As for `jacobian`.

    Returns
    -------
    Jitted
        As `jacobian`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.jacrev(lambda x: np.array([1.0, 2.0]) * np.sum(x**2))(np.array([1.0, 3.0]))
    array([[ 2.,  6.],
           [ 4., 12.]])
    """
    return _jacobian(
        function, argnums, argnames, has_aux, "rev", "jacrev", holomorphic, convention, chunk_size, memory
    )


@overload
def jacfwd(
    function: np.ufunc,
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]: ...
@overload
def jacfwd(
    function: Callable[Concatenate[N, Q], Any],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Concatenate[N, Q], N]: ...
@overload
def jacfwd(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def jacfwd(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the Jacobian by forward mode, column by column: for few arguments.

    Parameters
    ----------
    function, argnums, argnames, has_aux, holomorphic, chunk_size, memory
        As for `jacobian`.

    Returns
    -------
    Jitted
        As `jacobian`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.jacfwd(lambda t: np.stack([np.cos(t), np.sin(t)]))(0.0)
    array([-0.,  1.])
    """
    return _jacobian(
        function, argnums, argnames, has_aux, "fwd", "jacfwd", holomorphic, "tensorflow", chunk_size, memory
    )


@overload
def hessian(
    function: Callable[Concatenate[N, Q], Any],
    argnums: Exactly[0] | None = None,
    *,
    argnames: None = None,
    has_aux: Exactly[False] = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Concatenate[N, Q], N]: ...
@overload
def hessian(
    function: Callable[Q, Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[Q, Any]: ...
@pickled_as_call
def hessian(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return a function that computes the Hessian of `function`, by forward mode over reverse mode.

    Parameters
    ----------
    function, argnums, argnames, has_aux, holomorphic, chunk_size, memory
        As for `jacobian`.

    Returns
    -------
    Jitted
        For one number and one array of shape s, returns an array of shape s + s. In general the structure is that of the
        result, then of the argument, then of the argument again.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    first = _jacobian(function, argnums, argnames, has_aux, "rev", "hessian", holomorphic)
    second = _jacobian(
        first, argnums, argnames, has_aux, "fwd", "hessian", holomorphic, "tensorflow", chunk_size, memory
    )
    return jit_of(recordable_body(second), named("hessian", function), EVERYTHING_TRACED)


@overload
def hvp(
    function: Callable[[X], Any],
    primals: tuple[X],
    tangents: Sequence[Any],
    *,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> X: ...
@overload
def hvp(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Any: ...
@suggests_keywords
def hvp(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    holomorphic: bool = False,
    convention: Convention = "tensorflow",
    memory: Memory = None,
) -> Any:
    """Return a Hessian-vector product: the Hessian of `function` times a vector, computed without forming the Hessian.

    Parameters
    ----------
    function : callable
        NumPy code that returns one real number. The result must depend on the arguments only, because the compiled program is kept
        and used again for the same function.
    primals : sequence of array_like or nests of them
        The arguments of `function`.
    tangents : sequence
        The vector, with the structure and shapes of `primals`.
    holomorphic : bool, default False
        Whether `function` is a holomorphic function of complex arguments with one complex result. Derivatives are then complex
        derivatives, as for `grad`.
    convention : {"tensorflow", "jax"}, default "tensorflow"
        For complex arguments: the convention of the gradient that is differentiated, as for `grad`.
    memory : int or str, optional
        The bytes that the records of each reversed loop may take, as for `grad`.

    Returns
    -------
    nest of ndarray
        The product, with the structure of the argument; a tuple with one entry per argument if there are several.

    Raises
    ------
    StructureError, ShapeError, IntegerInputError
        If primals and tangents do not match, or are integers.
    NonScalarOutputError
        If the result of `function` is not one number.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    check_callable(function, "hvp")
    check_convention(convention, "hvp")
    here.site = user_site()
    for argument, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list) or not given:
            raise StructureError(
                f"hvp: {argument} must be a tuple or list with one entry per argument, got "
                f"{'an empty one' if isinstance(given, tuple | list) else kind_of(given)}",
                where=here.site,
                remedy="gt.hvp(f, (x,), (v,))",
            )
    known = _known_product(function, _Kind(bool(holomorphic), convention, memory_limit(memory, "hvp")))
    if len(primals) != len(tangents):
        raise StructureError(
            f"hvp: {len(primals)} primals, but {len(tangents)} tangents",
            where=here.site,
            remedy="give one tangent per primal",
        )
    return known(*primals, *tangents)


class _Kind(NamedTuple):
    """Which derivative of a function a product is."""

    holomorphic: bool
    convention: Convention
    memory: str | None


def _known_product(function: Callable[..., Any], kind: _Kind) -> Jitted[..., Any]:
    """Return the compiled product of a function; what cannot be a key is compiled anew."""
    try:
        known = _products.setdefault(function, {})
        if kind not in known:
            known[kind] = _product_of(weakref.ref(function), kind)
    except TypeError:
        return _product_of(lambda: function, kind)
    return known[kind]


_products: Final[weakref.WeakKeyDictionary[Any, dict[_Kind, Jitted[..., Any]]]] = weakref.WeakKeyDictionary()
"""The compiled products, by function and kind."""


def _product_of(held: Callable[[], Callable[..., Any] | None], kind: _Kind) -> Jitted[..., Any]:
    """Return the compiled product, called with primals and then tangents.

    It may stand in a dictionary by its function, so it must not keep the function alive itself: `held` returns it.
    """

    def hvp(*arguments: Any) -> Any:
        alive = held()
        assert alive is not None
        count = len(arguments) // 2
        argnums = tuple(range(count)) if count > 1 else 0
        both = value_and_gradient(alive, argnums, None, False, "hvp", *kind)
        return jvp(lambda *primals: both(*primals)[1], arguments[:count], arguments[count:])[1]

    return jit_of(hvp, hvp, EVERYTHING_TRACED)


def _jacobian(
    function: Callable[..., Any],
    argnums: Positions,
    argnames: Names,
    has_aux: bool,
    mode: Mode,
    caller: str,
    holomorphic: bool,
    convention: Convention = "tensorflow",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> Jitted[..., Any]:
    """Return the compiled Jacobian; `caller` is the public function, and names it in errors."""
    check_callable(function, caller)
    check_convention(convention, caller)
    here.site = user_site()
    bound = chunk_limit(chunk_size, memory, caller)
    limit = memory_limit(memory, caller)
    selection = selection_of(function, argnums, argnames, caller)
    if mode not in MODES:
        raise ArgumentError(
            f"{caller}: mode is {mode!r}", where=user_site(), remedy='choose "auto", "fwd" or "rev"'
        )

    def compute(*args: Any, **kwargs: Any) -> Any:
        with within_memory(limit):
            return computed(args, kwargs)

    def computed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the function, and pull back or push forward the unit vectors of its results or arguments."""
        here.site = user_site()
        places = selection.places(args, kwargs)
        chosen = selection.chosen(args, kwargs, places)
        tag = TraceTag()
        leaves, spec = flatten(chosen)
        starts = differentiable_leaves(
            leaves, tag, lambda position: f"{caller}: {selection.leaf(places, chosen, position)}"
        )
        moment = moment_now()
        copies = list(map(placeholder, starts, leaves))
        arguments, keywords = selection.replaced(args, kwargs, places, unflatten(spec, copies))
        result = recordable_body(function)(*arguments, **keywords)
        selection.check_copies(args, kwargs, leaves, copies, starts)
        result, aux = split_aux(result, caller) if has_aux else (result, None)
        results, result_spec = flatten(result)
        units, bare_spec = leaf_units(result, result_spec)
        targets = [target_value(leaf, caller) for leaf in results]
        tag.recording = False
        targets, aux = with_loops(moment, targets, aux, starts)
        if holomorphic:
            for target in targets:
                check_holomorphic(target, starts, tag, caller)
        chosen_mode = _mode(mode, targets, starts, holomorphic, caller)
        convert_convention = unchanged if holomorphic or convention == "jax" else conjugated
        blocks = _blocks(targets, starts, tag, chosen_mode, caller, convert_convention, bound)
        tag.end()
        nested, columns = [], columns_of(chosen)
        for unit, column, row in zip(units, columns_of(result), blocks, strict=True):
            arrays = [labelled(Array(block), column, each) for block, each in zip(row, columns, strict=True)]
            nested.append(selection.filled(per_argument(unit, unflatten(spec, arrays))))
        jacobians = unflatten(bare_spec, nested)
        return (jacobians, aux) if has_aux else jacobians

    return jit_of(compute, named(caller, function), EVERYTHING_TRACED)


def _mode(
    mode: Mode, targets: Sequence[Value], starts: Sequence[Value], holomorphic: bool, caller: str
) -> Mode:
    """Return the mode to take; complex numbers leave no choice."""
    complex_in, complex_out = [any(v.dtype.kind == "c" for v in values) for values in (starts, targets)]
    if holomorphic or not (complex_in or complex_out):
        wide, high = sum(begin.size for begin in starts), sum(target.size for target in targets)
        return mode if mode != "auto" else "fwd" if wide < high else "rev"
    if complex_in and complex_out:
        raise DtypeError(
            f"{caller}: an argument and a result are complex",
            where=here.site,
            why="a complex number has two parts, and the four derivatives of the parts are not one complex number",
            remedy="holomorphic=True for the complex derivatives of a holomorphic function; else np.stack([np.real(z), "
            "np.imag(z)]), or gt.jvp and gt.hvp, which go in one direction",
        )
    if complex_in and mode == "fwd":
        raise DtypeError(
            f"{caller}: an argument is complex",
            where=here.site,
            why="forward mode differentiates in one direction at a time, and a complex number has two",
            remedy="use gt.jacrev, or differentiate with respect to real and imaginary parts",
        )
    if complex_out and mode == "rev":
        raise DtypeError(
            f"{caller}: a result is complex",
            where=here.site,
            why="reverse mode differentiates one real number at a time, and a complex number has two",
            remedy="use gt.jacfwd, or return np.stack([np.real(z), np.imag(z)])",
        )
    return "rev" if complex_in else "fwd"


def _blocks(
    targets: Sequence[Value],
    starts: Sequence[Value],
    tag: TraceTag,
    mode: Mode,
    caller: str,
    convert_convention: Callable[[Value], Value],
    bound: Bound,
) -> list[list[Value]]:
    """Return the Jacobian of each target in each start, what reverse mode computes in another convention."""

    def outside(value: Value) -> bool:
        return tag not in value.tags

    if mode == "rev":
        return [
            [
                _block(part, (*target.shape, *begin.shape), begin, convert_convention)
                for part, begin in zip(
                    rows(target, starts, outside, mapped_tag(caller), bound), starts, strict=True
                )
            ]
            for target in targets
        ]
    columns_of = [columns(targets, begin, outside, mapped_tag(caller), bound) for begin in starts]
    return [
        [
            _block(parts[k], (*target.shape, *begin.shape), target, _last)
            for parts, begin in zip(columns_of, starts, strict=True)
        ]
        for k, target in enumerate(targets)
    ]


def _block(
    part: Value | None, shape: Shape, like: Value, convert_convention: Callable[[Value], Value]
) -> Value:
    """Return a part of the Jacobian in its shape; zeros where there is no influence."""
    if part is None:
        return broadcast_to(literal(0, like.dtype), shape)
    return reshape(convert_convention(part), shape)


def _last(part: Value) -> Value:
    """Return the columns of a Jacobian, which stand along the first axis, along the last."""
    node = part.node
    if node is not None and isinstance(node.op, Contract):
        # A product comes out in any order at no cost; transposed afterwards it would be copied.
        first, *others = node.params["out"]
        return emit(node.op, node.inputs, **{**node.params, "out": (*others, first)})
    return from_front(part, part.ndim - 1)


def target_value(leaf: Any, caller: str) -> Value:
    """Return a result that must be a float."""
    if not isinstance(leaf, Handle | np.ndarray | np.generic | int | float | complex):
        raise DtypeError(
            f"{caller} needs a function that returns arrays of floats; this one returned {kind_of(leaf)}",
            where=here.site,
            remedy="return arrays or nests of them; has_aux=True for a pair of them and something else",
        )
    value = traceable_operand(without_class(leaf), "the result")
    if not is_inexact(value.dtype):
        raise DtypeError(
            f"{caller} needs a function that returns floats; this one returned {value.dtype}",
            where=here.site,
            why="only real and complex numbers have derivatives",
            remedy="return floats: x.astype(float)",
        )
    return value
