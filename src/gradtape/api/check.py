"""Comparing derivatives with differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError, GradientCheckError
from ..trace.sites import user_site
from ..trees import flatten, unflatten
from .transform import check_callable, inner, jvp, vjp

Mode = Literal["fwd", "rev"]


def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Mode | Sequence[Mode] = ("fwd", "rev"),
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    seed: int = 0,
) -> None:
    """Compare the derivatives of a function with central differences along random directions.

    Parameters
    ----------
    function : callable
        NumPy code with floating results.
    args : sequence of array_like or nests of them
        Where to differentiate; floats.
    order : int, default 2
        Up to which order: the derivatives themselves are functions and are checked in turn.
    modes : {"fwd", "rev"} or sequence of them
        Forward mode is compared with differences, reverse mode with forward mode.
    rtol, atol : float
        Tolerances. Differences have about 1e-9 of relative accuracy for well-scaled functions.
    seed : int
        For the random directions.

    Raises
    ------
    GradientCheckError
        Where they disagree; it says the order, the mode and both numbers.

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
            f"check_grads: args must be a tuple of arguments, got a {type(args).__name__}",
            where=user_site(),
            remedy="gt.check_grads(f, (x,))",
        )
    chosen: tuple[Mode, ...] = (modes,) if isinstance(modes, str) else tuple(modes)
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
    rng = np.random.default_rng(seed)
    body = inner(function)
    for level in range(1, order + 1):
        _check_level(body, tuple(args), level, chosen, rtol, atol, rng)
        body = _directional(body, tuple(args), rng)


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
    rtol: float,
    atol: float,
    rng: np.random.Generator,
) -> None:
    direction = _random_like(args, rng)
    result, tangent = jvp(function, args, direction)
    if "fwd" in modes:
        expected = _richardson(lambda step: _moved(function, args, direction, step))
        _compare(_vector(tangent), expected, f"forward mode, order {level}", "differences", rtol, atol)
    if "rev" in modes:
        weights = _random_like(result, rng)
        pulled = vjp(function, *args)[1](weights)
        left, right = _dot(weights, tangent), _dot(pulled, direction)
        _compare(
            np.array([right]), np.array([left]), f"reverse mode, order {level}", "forward mode", rtol, atol
        )


def _moved(
    function: Callable[..., Any], args: tuple[Any, ...], direction: Any, step: float
) -> np.ndarray[Any, Any]:
    leaves, spec = flatten(args)
    moved = [
        np.asarray(leaf) + step * np.asarray(d) for leaf, d in zip(leaves, flatten(direction)[0], strict=True)
    ]
    result, _ = jvp(
        function, unflatten(spec, moved), unflatten(spec, [np.zeros_like(leaf) for leaf in moved])
    )
    return _vector(result)


def _richardson(
    evaluate: Callable[[float], np.ndarray[Any, Any]], step: float = 2e-3
) -> np.ndarray[Any, Any]:
    wide = (evaluate(step) - evaluate(-step)) / (2 * step)
    narrow = (evaluate(step / 2) - evaluate(-step / 2)) / step
    extrapolated: np.ndarray[Any, Any] = (4 * narrow - wide) / 3
    return extrapolated


def _vector(tree: Any) -> np.ndarray[Any, Any]:
    leaves = [np.ravel(leaf) for leaf in flatten(tree)[0]]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def _dot(a: Any, b: Any) -> float:
    return float(np.real(np.vdot(_vector(a), _vector(b))))


def _compare(got: Any, expected: Any, what: str, reference: str, rtol: float, atol: float) -> None:
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if not np.allclose(got, expected, rtol=rtol, atol=max(atol, rtol * scale), equal_nan=True):
        worst = int(np.argmax(np.abs(got - expected)))
        raise GradientCheckError(
            f"{what} disagrees with {reference}: element {worst} is {got[worst]:.8g} and not {expected[worst]:.8g}",
            where=user_site(),
            why="a derivative is cut or wrong, or the function has a kink or jump near these arguments",
            remedy="check at other arguments; look for stop_gradient and conversions to integers",
        )
