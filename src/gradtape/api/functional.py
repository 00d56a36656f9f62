"""Function transforms with more than a gradient: Jacobians, Hessians, and their products with vectors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ..errors import ArgumentError, DtypeError, StructureError
from ..ir.builder import emit, here
from ..ir.graph import OPERATORS, Mark, Value, literal
from ..ir.types import Shape
from ..kinds.batching import from_front
from ..kinds.contract import Contract
from ..kinds.operands import broadcast_to
from ..trace.array import Array
from ..trace.handle import Handle
from ..trace.rolling import moment_now, with_loops
from ..trace.signature import EVERYTHING_TRACED
from ..trace.sites import user_site
from ..transforms.basis import columns, rows
from ..trees import flatten, unflatten
from .convention import flipped
from .jacobian import one_of_many
from .jit import Jitted, jit_of
from .transform import (
    check_callable,
    chosen_arguments,
    grad,
    inner,
    jvp,
    named,
    positions_of,
    result_value,
    split_aux,
    start,
)

Mode: TypeAlias = Literal["auto", "fwd", "rev"]
MODES: Final = ("auto", "fwd", "rev")


def jacobian(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    mode: Mode = "auto",
) -> Jitted:
    """Return a function that computes the Jacobian of `function`.

    Parameters
    ----------
    function : callable
        NumPy code whose result is a float, an array of floats, or nested containers of these (with ``has_aux``: a pair of
        that and anything else).
    argnums : int or sequence of int, default 0
        Which positional arguments to differentiate in. Each may be a number, an array, or nested containers of these.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then the result is ``(jacobian, aux)``.
    mode : {"auto", "fwd", "rev"}, default "auto"
        Forward mode computes the columns, reverse mode the rows; "auto" takes what is fewer.

    Returns
    -------
    Jitted
        Takes the arguments of `function`. It returns, in the structure of the result, the structure of the argument (a tuple
        if `argnums` is a sequence), with arrays of shape ``result.shape + argument.shape``.

    Raises
    ------
    IntegerInputError
        At a call, for an integer array to differentiate in.
    DtypeError
        At a call, if a result is no float.
    ArgumentError
        For a mode that does not exist, or, at a call, for `argnums` without an argument.

    See Also
    --------
    GradientTape.jacobian : The same for what a tape has recorded.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.jacobian(lambda x: x**2 * x[::-1])(np.array([1.0, 2.0]))
    array([[4., 1.],
           [4., 4.]])
    """
    return _jacobian(function, argnums, has_aux, mode, "jacobian")


def jacrev(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Jitted:
    """Return a function that computes the Jacobian by reverse mode, row by row: for few results.

    Parameters
    ----------
    function, argnums, has_aux
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
    return _jacobian(function, argnums, has_aux, "rev", "jacrev")


def jacfwd(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Jitted:
    """Return a function that computes the Jacobian by forward mode, column by column: for few arguments.

    Parameters
    ----------
    function, argnums, has_aux
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
    return _jacobian(function, argnums, has_aux, "fwd", "jacfwd")


def hessian(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Jitted:
    """Return a function that computes the second derivatives of `function`: forward mode over reverse mode.

    Parameters
    ----------
    function, argnums, has_aux
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
    first = _jacobian(function, argnums, has_aux, "rev", "hessian")
    second = _jacobian(first, argnums, has_aux, "fwd", "hessian")
    return jit_of(inner(second), named("hessian", function), EVERYTHING_TRACED)


def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the product of the Hessian of `function` with a vector, without the Hessian.

    Parameters
    ----------
    function : callable
        NumPy code whose result is one real number. It must compute it from its arguments: for a function that was seen before, the
        program is kept.
    primals : sequence of array_like or nests of them
        Its arguments.
    tangents : sequence
        The vector: of the structure and shapes of `primals`.

    Returns
    -------
    nest of ndarray
        In the structure of the argument; a tuple with one entry per argument if there are several.

    Raises
    ------
    StructureError, ShapeError, IntegerInputError
        Where primals and tangents do not match or are integers.
    NonScalarOutputError
        If the result of `function` is not one number.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    check_callable(function, "hvp")
    here.site = user_site()
    for argument, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list) or not given:
            raise StructureError(
                f"hvp: {argument} must be a tuple or list with one entry per argument, got "
                f"{'an empty one' if isinstance(given, tuple | list) else f'a {type(given).__name__}'}",
                where=here.site,
                remedy="gt.hvp(f, (x,), (v,))",
            )
    known = _known_product(function)
    if len(primals) != len(tangents):
        raise StructureError(
            f"hvp: {len(primals)} primals, but {len(tangents)} tangents",
            where=here.site,
            remedy="give one tangent per primal",
        )
    return known(*primals, *tangents)


def _known_product(function: Callable[..., Any]) -> Jitted:
    """Return the compiled product of a function; what cannot be a key is compiled anew."""
    try:
        known = _products.get(function)
        if known is None:
            known = _products[function] = _product_of(weakref.ref(function))
    except TypeError:
        return _product_of(lambda: function)
    return known


_products: Final[weakref.WeakKeyDictionary[Any, Jitted]] = weakref.WeakKeyDictionary()
"""The compiled products, by function."""


def _product_of(held: Callable[[], Callable[..., Any] | None]) -> Jitted:
    """Return the compiled product, called with primals and then tangents.

    It may stand in a dictionary by its function, so it must not keep the function alive itself: `held` returns it.
    """

    def hvp(*arguments: Any) -> Any:
        alive = held()
        assert alive is not None
        count = len(arguments) // 2
        gradient = inner(grad(alive, tuple(range(count)) if count > 1 else 0))
        return jvp(gradient, arguments[:count], arguments[count:])[1]

    return jit_of(hvp, hvp, EVERYTHING_TRACED)


def _jacobian(
    function: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, mode: Mode, caller: str
) -> Jitted:
    check_callable(function, caller)
    positions = positions_of(argnums, caller)
    if mode not in MODES:
        raise ArgumentError(
            f"{caller}: mode is {mode!r}", where=user_site(), remedy='choose "auto", "fwd" or "rev"'
        )

    def compute(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        chosen = chosen_arguments(args, positions, caller)
        mark = Mark()
        leaves, spec = flatten(chosen)
        starts = [start(leaf, mark, f"{caller}: an argument in argnums={argnums}") for leaf in leaves]
        moment = moment_now()
        followed = unflatten(spec, [Array(value) for value in starts])
        arguments = list(args)
        for position, argument in zip(positions, followed, strict=True):
            arguments[position] = argument
        result = inner(function)(*arguments, **kwargs)
        result, aux = split_aux(result, caller) if has_aux else (result, None)
        results, result_spec = flatten(result)
        targets = [_target(leaf, caller) for leaf in results]
        mark.recording = False
        targets, aux = with_loops(moment, targets, aux, starts)
        blocks = _blocks(targets, starts, mark, mode, caller)
        mark.over = True
        nested = []
        for row in blocks:
            by_argument = unflatten(spec, [Array(block) for block in row])
            nested.append(by_argument[0] if isinstance(argnums, int) else tuple(by_argument))
        jacobians = unflatten(result_spec, nested)
        return (jacobians, aux) if has_aux else jacobians

    return jit_of(compute, named(caller, function), EVERYTHING_TRACED)


def _blocks(
    targets: Sequence[Value], starts: Sequence[Value], mark: Mark, mode: Mode, caller: str
) -> list[list[Value]]:
    """Return the Jacobian of each target in each start."""
    if mode == "auto":
        wide, high = sum(begin.size for begin in starts), sum(target.size for target in targets)
        is_complex = any(begin.dtype.kind == "c" for begin in starts)
        mode = "fwd" if wide < high and not is_complex else "rev"
    if mode == "fwd" and any(begin.dtype.kind == "c" for begin in starts):
        raise DtypeError(
            f"{caller}: an argument is complex",
            where=here.site,
            why="forward mode moves along one direction at a time, and a complex number has two",
            remedy="use gt.jacrev, or differentiate in the real and imaginary parts",
        )

    def outside(value: Value) -> bool:
        return mark not in value.marks

    if mode == "rev":
        return [
            [
                _block(part, (*target.shape, *begin.shape), begin, flipped)
                for part, begin in zip(
                    rows(target, starts, outside, one_of_many(caller)), starts, strict=True
                )
            ]
            for target in targets
        ]
    columns_of = [columns(targets, begin, outside, one_of_many(caller)) for begin in starts]
    return [
        [
            _block(parts[k], (*target.shape, *begin.shape), target, _last)
            for parts, begin in zip(columns_of, starts, strict=True)
        ]
        for k, target in enumerate(targets)
    ]


def _block(part: Value | None, shape: Shape, like: Value, turned: Callable[[Value], Value]) -> Value:
    """Return a part of the Jacobian in its shape; zeros where there is no influence."""
    if part is None:
        return broadcast_to(literal(0, like.dtype), shape)
    block: Value = OPERATORS["reshape"](turned(part), shape)
    return block


def _last(part: Value) -> Value:
    """Return the columns of a Jacobian, which stand along the first axis, along the last."""
    node = part.node
    if node is not None and isinstance(node.op, Contract):
        # A product comes out in any order at no cost; turned afterwards it would be copied.
        first, *others = node.params["out"]
        return emit(node.op, node.inputs, **{**node.params, "out": (*others, first)})
    return from_front(part, part.ndim - 1)


def _target(leaf: Any, caller: str) -> Value:
    """Return a result that must be a float."""
    if not isinstance(leaf, Handle | np.ndarray | np.generic | int | float | complex):
        raise DtypeError(
            f"{caller} needs a function that returns arrays of floats; this one returned a {type(leaf).__name__}",
            where=here.site,
            remedy="return arrays or nests of them; has_aux=True for a pair of them and something else",
        )
    value = result_value(leaf)
    if value.dtype.kind != "f":
        raise DtypeError(
            f"{caller} needs a function that returns floats; this one returned {value.dtype}",
            where=here.site,
            why="only real numbers have a derivative of this form",
            remedy="return floats: x.astype(float); for a complex z, np.stack([np.real(z), np.imag(z)])",
        )
    return value
