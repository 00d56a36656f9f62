"""`check_grads`: derivatives compared with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gradtape.api.custom.differences import observing
from gradtape.api.operands import generator_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.recording import recordable_body
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradientCheckError,
    GradtapeWarning,
    kind_of,
    warn,
)
from gradtape.habits import suggests_keywords
from gradtape.kinds.refusals import integer_input
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten

Mode = Literal["fwd", "rev"]


@suggests_keywords
def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Mode | Sequence[Mode] = ("fwd", "rev"),
    *,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> None:
    """Compare the derivatives of a function with central finite differences along random directions.

    Parameters
    ----------
    function : callable
        NumPy code that returns floats.
    args : sequence of array_like or nests of them
        The point at which derivatives are checked; floats.
    order : int, default 2
        The highest order that is checked.
    modes : {"fwd", "rev"} or sequence of them
        The modes that are checked. Forward mode is compared with finite differences. Reverse mode is compared with forward mode, or
        with finite differences if it is the only mode.
    rtol, atol : float, optional
        Tolerances, relative to the largest number or to 1. The defaults are 1e-6 and 1e-8 in double precision, 1e-3 and 1e-5 in
        single, 5e-2 and 1e-2 in half, because finite differences are inaccurate: for well-scaled functions their error is about
        1e-9 in double precision.
    seed : int
        The seed of the random directions.

    Raises
    ------
    GradientCheckError
        If they disagree or are not finite. The message has the order, the mode and both numbers.
    DtypeError
        If `function` returns no floats.

    Warns
    -----
    GradtapeWarning
        If `callback` computes a derivative by finite differences, since the check then compares finite differences with each other.

    Notes
    -----
    Richardson's extrapolation of central differences (L. F. Richardson 1911) in the direction v:
    (4 d(h/2) - d(h)) / 3 has an error of h**4. The reverse mode is right exactly if <w, J v> = <J^T w, v> for
    random v and w.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.check_grads(lambda x: np.sin(x) * x, (np.array([0.3, 1.2]),))
    """
    check_callable(function, "check_grads")
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"check_grads: args must be a tuple of arguments, got {kind_of(args)}",
            where=user_site(),
            remedy="gt.check_grads(f, (x,))",
        )
    chosen: tuple[Mode, ...] = (modes,) if isinstance(modes, str) else tuple(modes)
    if not chosen:
        raise ArgumentError("check_grads: modes is empty", where=user_site(), remedy='modes=("fwd", "rev")')
    for mode in chosen:
        if mode not in ("fwd", "rev"):
            raise ArgumentError(
                f"check_grads: unknown mode {mode!r}", where=user_site(), remedy='modes=("fwd", "rev")'
            )
    if type(order) is not int or order < 1:
        raise ArgumentError(
            f"check_grads: order must be an int of at least 1, got {order!r}",
            where=user_site(),
            remedy="order=1",
        )
    for leaf in flatten(args)[0]:
        if np.asarray(leaf).dtype.kind not in "fc" and not isinstance(leaf, int):
            array = np.asarray(leaf)
            raise integer_input("check_grads: an argument", array.dtype, array.ndim, user_site())
    rng = generator_of(seed, "check_grads: seed")
    precision = _precision(args)
    rtol = precision.rtol if rtol is None else rtol
    atol = precision.atol if atol is None else atol
    body = recordable_body(function)
    with observing() as by_differences:
        for level in range(1, order + 1):
            _check_level(body, tuple(args), level, chosen, precision.step, rtol, atol, rng)
            body = _directional(body, tuple(args), rng)
    if by_differences:
        warn(
            GradtapeWarning,
            f"check_grads: derivatives of {', '.join(sorted(by_differences))} are differences themselves",
            where=user_site(),
            why="gt.callback computes them that way: the check would compare differences with differences",
            remedy="compare with known values",
        )


class _Precision(NamedTuple):
    """How far apart the points of a difference are, and how far it may be from the derivative."""

    step: float
    rtol: float
    atol: float


_PRECISIONS: Final = {
    np.dtype(np.float16): _Precision(2e-1, 5e-2, 1e-2),
    np.dtype(np.float32): _Precision(3e-2, 1e-3, 1e-5),
    np.dtype(np.float64): _Precision(2e-3, 1e-6, 1e-8),
}
"""Rounding divided by the step about balances the error of the extrapolation, its fourth power."""


def _precision(args: Any) -> _Precision:
    """Return what suits the least precise of the arguments; Python's numbers are double."""
    dtypes = [np.asarray(leaf).dtype for leaf in flatten(args)[0]]
    found = [
        _PRECISIONS.get(np.zeros(0, dtype).real.dtype, _PRECISIONS[np.dtype(np.float64)]) for dtype in dtypes
    ]
    return max(found, default=_PRECISIONS[np.dtype(np.float64)])


def _directional(
    function: Callable[..., Any], args: tuple[Any, ...], rng: np.random.Generator
) -> Callable[..., Any]:
    direction = _random_like(args, rng)
    return lambda *inputs: jvp(function, inputs, direction)[1]


def _random_like(tree: Any, rng: np.random.Generator) -> Any:
    leaves, spec = flatten(tree)
    return unflatten(
        spec, [_random(np.shape(leaf), np.result_type(np.asarray(leaf), np.float16), rng) for leaf in leaves]
    )


def _weights_like(tree: Any, rng: np.random.Generator) -> Any:
    """Return random weights of results; a result that is not a float has none."""
    leaves, spec = flatten(tree)
    weights = [
        _random(np.shape(leaf), dtype, rng)
        if (dtype := np.asarray(leaf).dtype).kind in "fc"
        else np.zeros(np.shape(leaf), dtype)
        for leaf in leaves
    ]
    return unflatten(spec, weights)


def _random(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    drawn = rng.standard_normal(shape)
    if dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(shape)
    return np.asarray(drawn, dtype)[()]


def _check_level(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    level: int,
    modes: Sequence[Mode],
    step: float,
    rtol: float,
    atol: float,
    rng: np.random.Generator,
) -> None:
    """Compare forward mode with differences along a random direction, and reverse mode with forward mode: w . (J v) = (J' w) . v."""
    direction = _random_like(args, rng)
    result, pull = vjp(function, *args)
    if not any(np.asarray(leaf).dtype.kind in "fc" for leaf in flatten(result)[0]):
        raise DtypeError(
            f"check_grads: the function returns no floats, but {result!r}",
            where=user_site(),
            why="there is no derivative of anything else",
            remedy="return numbers: a float, an array of floats, or a nest of them",
        )
    moving = _richardson(lambda width: _moved(function, args, direction, width), step)
    reference = "differences"
    if "fwd" in modes:
        tangent = _vector(jvp(function, args, direction)[1])
        _compare(tangent, moving, f"forward mode, order {level}", reference, rtol, atol)
        moving, reference = tangent, "forward mode"
    if "rev" in modes:
        weights = _weights_like(result, rng)
        left, right = _dot(_vector(weights), moving), _dot(_vector(pull(weights)), _vector(direction))
        _compare(np.array([right]), np.array([left]), f"reverse mode, order {level}", reference, rtol, atol)


def _moved(
    function: Callable[..., Any], args: tuple[Any, ...], direction: Any, step: float
) -> np.ndarray[Any, Any]:
    leaves, spec = flatten(args)
    moved = [
        np.asarray(leaf) + step * np.asarray(d) for leaf, d in zip(leaves, flatten(direction)[0], strict=True)
    ]
    result, _ = vjp(function, *unflatten(spec, moved))
    return _vector(result)


def _richardson(evaluate: Callable[[float], np.ndarray[Any, Any]], step: float) -> np.ndarray[Any, Any]:
    wide = (evaluate(step) - evaluate(-step)) / (2 * step)
    narrow = (evaluate(step / 2) - evaluate(-step / 2)) / step
    extrapolated: np.ndarray[Any, Any] = (4 * narrow - wide) / 3
    return extrapolated


def _vector(tree: Any) -> np.ndarray[Any, Any]:
    leaves = [np.ravel(leaf) for leaf in flatten(tree)[0]]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def _dot(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(np.real(np.vdot(a, b)))


def _compare(got: Any, expected: Any, what: str, reference: str, rtol: float, atol: float) -> None:
    bad = ~(np.isfinite(got) & np.isfinite(expected))
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if not bad.any() and np.allclose(got, expected, rtol=rtol, atol=max(atol, rtol * scale)):
        return
    worst = int(np.argmax(bad if bad.any() else np.abs(got - expected)))
    raise GradientCheckError(
        f"{what} disagrees with {reference}: element {worst} is {got[worst]:.8g}, expected {expected[worst]:.8g}",
        where=user_site(),
        why="the function or its derivative is not finite at these arguments, or close to them"
        if bad.any()
        else "a derivative is cut or wrong, or the function has a kink or jump near these arguments",
        remedy="check at other arguments; gt.debug.check_numerics finds where the number comes from"
        if bad.any()
        else "check at other arguments; look for stop_gradient and conversions to integers",
    )
