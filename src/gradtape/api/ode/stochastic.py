"""`solve_sde`: stochastic differential equations by explicit methods, with pathwise derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gradtape.api.control.scanning import scan
from gradtape.api.operands import generator_of
from gradtape.api.sparsity.transform import jacobian_pattern
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import jvp
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ArgumentError, GradtapeWarning, ShapeError, kind_of, warn
from gradtape.habits import suggests_keywords
from gradtape.ir.op import NDArray
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site

Function = Callable[..., Any]
Method = Literal["euler-maruyama", "milstein", "srk"]
Noise = Literal["diagonal", "general"]

METHODS: Final = ("euler-maruyama", "milstein", "srk")

BLOCK: Final = 1 << 22
"""Numbers that are drawn at once, some 0.1 s: NumPy looks for no Ctrl-C meanwhile."""


class Increments(NamedTuple):
    """What drives the paths, so that they can be computed again, with other steps or parameters.

    Attributes
    ----------
    dw : array of shape (steps, m) or (paths, steps, m)
        The increments of the Brownian motions in each step: normal, of variance h.
    dz : array of the same shape, or None
        Further independent ones, of which "srk" makes the integrals of the motions over time.
    """

    dw: Any
    dz: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class SDESolution:
    """What `solve_sde` returns.

    Attributes
    ----------
    t : ndarray of shape (points,)
        The times.
    y : array of shape (points, *y0.shape), or (paths, points, *y0.shape)
        The paths.
    increments : Increments
        What drove them.
    """

    t: Any
    y: Any
    increments: Increments

    def __repr__(self) -> str:
        return f"<solution of a stochastic differential equation: t {np.shape(self.t)}, y {np.shape(self.y)}>"


@suggests_keywords
def solve_sde(
    drift: Function,
    diffusion: Function,
    t_span: Sequence[float],
    y0: Any,
    *,
    steps: int,
    paths: int | None = None,
    method: Method = "euler-maruyama",
    noise: Noise = "diagonal",
    rng: Any = None,
    increments: Increments | None = None,
    args: Sequence[Any] = (),
    save: Literal["all", "last"] = "all",
) -> SDESolution:
    """Solve dy = drift(t, y) dt + diffusion(t, y) dW (Itô), with fixed steps.

    Parameters
    ----------
    drift : callable
        ``drift(t, y, *args)``, of the shape of `y`.
    diffusion : callable
        ``diffusion(t, y, *args)``: of the shape of `y` for diagonal noise, where each number has its own Brownian motion, and
        (d, m) for general noise, m motions that move d numbers.
    t_span : pair of float
        From when to when.
    y0 : array_like
        The start: a number, or an array of shape (d,).
    steps : int
        How many steps are taken.
    paths : int, optional
        How many paths, from the same start; None for one, without an axis for paths. They are computed side by side.
    method : {"euler-maruyama", "milstein", "srk"}
        Of strong order 0.5, 1 and 1.5. "milstein" takes the derivative of the diffusion from gradtape. "milstein" and "srk" are for
        diagonal noise in which each number's diffusion depends on this number alone, or on none.
    noise : {"diagonal", "general"}
        See `diffusion`.
    rng : numpy.random.Generator or seed, optional
        Where increments are drawn.
    increments : Increments, optional
        Those of an earlier solution, instead of new ones.
    args : sequence
        Further arguments.
    save : {"all", "last"}
        Which points of the paths are returned.

    Returns
    -------
    SDESolution
        With `t`, `y` and `increments`. On tapes and in compiled functions `y` has the derivatives of the paths for the same increments.

    Raises
    ------
    ArgumentError
        For unknown methods, and for methods that are wrong for general noise, or for a diffusion of a number that depends on others; if
        an argument is of another type, the ends of `t_span` are not finite and increasing, or `y0` is not finite.
    ShapeError
        If drift, diffusion or increments have another shape.

    See Also
    --------
    scipy.integrate.solve_ivp : Without noise.

    Notes
    -----
    A path that becomes NaN or infinite stays so to its end. A warning names the first one, its step, and whether drift or diffusion is
    not finite there; on tapes and in compiled functions, which do not look at numbers, `gt.debug.check_numerics` finds the operation.

    P. E. Kloeden, E. Platen, "Numerical Solution of Stochastic Differential Equations", 1992, sections 10.2 and 10.3, and the method
    SRI1W1 of A. Rößler, "Runge-Kutta Methods for the Strong Approximation of Solutions of Stochastic Differential Equations", 2010.

    Examples
    --------
    A price with its Delta, pathwise:

    >>> import numpy as np, gradtape as gt
    >>> def payoff(s0):
    ...     found = gt.solve_sde(
    ...         lambda t, s: 0.03 * s, lambda t, s: 0.2 * s, (0.0, 1.0), s0, steps=20, paths=20_000, rng=1, save="last"
    ...     )
    ...     return np.exp(-0.03) * np.mean(np.maximum(found.y - 100.0, 0.0))
    >>> price, delta = gt.value_and_grad(payoff)(100.0)
    >>> print(f"{price:.0f} {delta:.1f}")
    9 0.6
    """
    check_callable(drift, "solve_sde")
    check_callable(diffusion, "solve_sde")
    _check(method, noise, steps, paths, save)
    first, last = _ends(t_span)
    start: Any = y0 if isinstance(y0, Handle) else np.asarray(y0, float)
    _check_start(start)
    step = (last - first) / steps
    times = first + step * np.arange(steps + 1)
    motions = _motions(diffusion, first, start, args, noise)
    if method != "euler-maruyama":
        _check_commutes(lambda y: diffusion(first, y, *args), np.shape(start), method)
    lead = (steps,) if paths is None else (paths, steps)
    if increments is None:
        generator = generator_of(rng, "solve_sde: rng")
        dw = _drawn(generator, np.sqrt(step), (*lead, *motions))
        increments = Increments(
            dw, _drawn(generator, np.sqrt(step), (*lead, *motions)) if method == "srk" else None
        )
    else:
        _check_increments(increments, (*lead, *motions), method)
    advance = _STEPS[method]

    def f(t: Any, y: Any) -> Any:
        return _shaped(drift(t, y, *args), np.shape(y), "drift")

    def g(t: Any, y: Any) -> Any:
        return diffusion(t, y, *args)

    def path(dw: Any, dz: Any, save: str = save) -> Any:
        def advanced(y: Any, step_values: Any) -> tuple[Any, Any]:
            moved = advance(f, g, step_values[0], step, y, step_values[1], step_values[2], noise)
            return moved, moved if save == "all" else None

        end, states = scan(advanced, start * 1.0, (times[:-1], dw, dz))
        return end if save == "last" else np.concatenate([np.reshape(start, (1, *np.shape(start))), states])

    dz = increments.dw if increments.dz is None else increments.dz
    y = path(increments.dw, dz) if paths is None else vmap(path)(increments.dw, dz)
    if not isinstance(y, Handle) and not np.all(np.isfinite(y)):
        increment, whose = increments.dw, ""
        if paths is not None:
            ends = y if save == "last" else y[:, -1]
            is_lost = ~np.isfinite(np.reshape(ends, (paths, -1))).all(axis=1)
            which = int(np.argmax(is_lost))
            increment, dz = increments.dw[which], dz[which]
            whose = f" in {np.count_nonzero(is_lost)} of {paths} paths, first in path {which}"
        _warn_of_lost(f, g, times, path(increment, dz, "all"), whose)
    return SDESolution(times if save == "all" else times[-1:], y, increments)


def _drawn(generator: np.random.Generator, deviation: Any, shape: tuple[int, ...]) -> Any:
    """Return normal numbers, which are those of one call of the generator."""
    count = prod(shape)
    if count <= BLOCK:
        return deviation * generator.standard_normal(shape)
    blocks = [
        deviation * generator.standard_normal(min(BLOCK, count - start)) for start in range(0, count, BLOCK)
    ]
    return np.reshape(np.concatenate(blocks), shape)


def _check(method: str, noise: str, steps: Any, paths: Any, save: str) -> None:
    for name, choice, choices in (
        ("method", method, METHODS),
        ("noise", noise, ("diagonal", "general")),
        ("save", save, ("all", "last")),
    ):
        if choice not in choices:
            raise ArgumentError(
                f"solve_sde: unknown {name} {choice!r}",
                where=user_site(),
                remedy=f"choose {', '.join(map(repr, choices))}",
            )
    if noise == "general" and method != "euler-maruyama":
        raise ArgumentError(
            f"solve_sde: {method!r} is for diagonal noise",
            where=user_site(),
            why="for general noise it needs iterated integrals of pairs of motions, which have no simple distribution",
            remedy='method="euler-maruyama"',
        )
    for name, count in (("steps", steps), ("paths", 1 if paths is None else paths)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ArgumentError(
                f"solve_sde: {name} is {count!r}", where=user_site(), remedy=f"{name}=100, a positive integer"
            )


def _ends(t_span: Any) -> tuple[Any, Any]:
    try:
        first, last = t_span
    except (TypeError, ValueError):
        raise ArgumentError(
            f"solve_sde: t_span is {t_span!r}", where=user_site(), remedy="pass both ends: t_span=(0.0, 1.0)"
        ) from None
    if not isinstance(first, Handle) and not isinstance(last, Handle) and not 0 <= last - first < np.inf:
        raise ArgumentError(
            f"solve_sde: t_span is {t_span!r}",
            where=user_site(),
            why="the variance of a Brownian motion is the time that passes",
            remedy="pass finite ends, the earlier one first: t_span=(0.0, 1.0)",
        )
    return first, last


def _check_start(start: Any) -> None:
    if not isinstance(start, Handle) and not np.all(np.isfinite(start)):
        raise ArgumentError(
            f"solve_sde: y0 has {np.count_nonzero(~np.isfinite(start))} of {np.size(start)} numbers that are not finite",
            where=user_site(),
            remedy="pass finite numbers",
        )


def _warn_of_lost(f: Function, g: Function, times: NDArray, states: NDArray, whose: str) -> None:
    """Warn of a path that becomes NaN or infinite, and name the step and what is not finite there."""
    is_finite = np.isfinite(states).all(axis=tuple(range(1, np.ndim(states))))
    step = int(np.argmin(is_finite)) - 1
    t, y = times[step], states[step]
    with np.errstate(all="ignore"):
        terms = {"drift": np.asarray(f(t, y)), "diffusion": np.asarray(g(t, y))}
    causes = [
        f"the {name} is {terms[name].flat[np.argmin(np.isfinite(terms[name]))]}"
        for name in terms
        if not np.all(np.isfinite(terms[name]))
    ]
    at = f"at t = {t:.6g} and y = {np.array2string(y, precision=6, threshold=6)}"
    warn(
        GradtapeWarning,
        f"solve_sde: y is not finite after step {step}{whose}",
        where=user_site(),
        why=f"{' and '.join(causes)} {at}"
        if causes
        else f"drift and diffusion are finite {at}, but the step computed from them is not",
        remedy="keep their arguments where they are defined, np.sqrt(np.maximum(y, 0.0)), or take more steps",
    )


def _check_increments(increments: Any, shape: tuple[int, ...], method: str) -> None:
    if not isinstance(increments, Increments):
        raise ArgumentError(
            f"solve_sde: increments is {kind_of(increments)}",
            where=user_site(),
            remedy="pass those of another solution: increments=found.increments",
        )
    if method == "srk" and increments.dz is None:
        raise ArgumentError(
            'solve_sde: "srk" needs increments.dz as well',
            where=user_site(),
            remedy='draw them with method="srk"',
        )
    for name, increment in zip(Increments._fields, increments, strict=True):
        if increment is not None and np.shape(increment) != shape:
            raise ShapeError(
                f"solve_sde: increments.{name} has the shape {np.shape(increment)}, and this equation takes {shape}",
                where=user_site(),
                why="there is an increment for each path, step and motion",
                remedy="pass the steps, the paths and the noise of the solution that has drawn them",
            )
        if increment is not None and not isinstance(increment, Handle) and not np.all(np.isfinite(increment)):
            raise ArgumentError(
                f"solve_sde: increments.{name} has numbers that are not finite",
                where=user_site(),
                remedy="pass finite numbers",
            )


def _motions(diffusion: Function, t: Any, start: Any, args: Sequence[Any], noise: str) -> tuple[int, ...]:
    """Return the shape of the increments of one step."""
    shape = np.shape(start)
    if noise == "diagonal":
        return tuple(shape)
    diffusion_shape = np.shape(diffusion(t, start, *args))
    if len(diffusion_shape) != 2 or diffusion_shape[:1] != tuple(shape):
        raise ShapeError(
            f"solve_sde: the diffusion has the shape {diffusion_shape}",
            where=user_site(),
            why=f"with general noise, the diffusion of a y of shape {shape} is a matrix of shape (d, m)",
            remedy='return such a matrix, or use noise="diagonal"',
        )
    return (diffusion_shape[1],)


def _check_commutes(diffusion: Callable[[Any], Any], shape: tuple[int, ...], method: str) -> None:
    """Raise if the diffusion of a number depends on another number: then the motions do not commute."""
    if np.prod(shape) == 1:
        return

    def flat(y: Any) -> Any:
        return np.ravel(_shaped(diffusion(y), shape, "diffusion") + 0 * y)

    with np.errstate(all="ignore"):  # of what depends on the time alone
        pattern = jacobian_pattern(flat, np.zeros(shape))
    if pattern is None:
        return
    rows, columns = pattern.nonzero()
    wrong = np.flatnonzero(rows != columns)
    if len(wrong):
        row, column = [
            "y[" + ", ".join(map(str, np.unravel_index(numbers[wrong[0]], shape))) + "]"
            for numbers in (rows, columns)
        ]
        raise ArgumentError(
            f"solve_sde: {method!r} is for noise whose motions commute, and here the diffusion of {row} depends on {column}",
            where=user_site(),
            why="it would need iterated integrals of pairs of motions, which have no simple distribution",
            remedy='method="euler-maruyama", or a diffusion of each number that depends on this number alone',
        )


def _shaped(result: Any, shape: tuple[int, ...], part: str) -> Any:
    if result is None:
        raise ArgumentError(
            f"solve_sde: the {part} returned None", where=user_site(), remedy="end it with a return statement"
        )
    if np.shape(result) not in ((), tuple(shape)):
        raise ShapeError(
            f"solve_sde: the {part} has the shape {np.shape(result)}, and y has {tuple(shape)}",
            where=user_site(),
            remedy=f"return an array of shape {tuple(shape)}"
            + (', or pass noise="general" for a matrix of shape (d, m)' if part == "diffusion" else ""),
        )
    return result


def _euler_maruyama(f: Function, g: Function, t: Any, h: Any, y: Any, dw: Any, dz: Any, noise: str) -> Any:
    if noise == "general":
        return y + h * f(t, y) + g(t, y) @ dw
    return y + h * f(t, y) + _shaped(g(t, y), np.shape(y), "diffusion") * dw


def _milstein(f: Function, g: Function, t: Any, h: Any, y: Any, dw: Any, dz: Any, noise: str) -> Any:
    spread = _shaped(g(t, y), np.shape(y), "diffusion") + 0 * y
    bend = jvp(lambda y: g(t, y) + 0 * y, (y,), (spread,))[1]
    return y + h * f(t, y) + spread * dw + 0.5 * bend * (dw**2 - h)


def _srk(f: Function, g: Function, t: Any, h: Any, y: Any, dw: Any, dz: Any, noise: str) -> Any:
    """Advance by SRI1W1. The integrals of the motion, divided by powers of h, multiply stages of the diffusion."""
    root = np.sqrt(h)
    double = (dw**2 - h) / (2 * root)  # I_(1,1) / sqrt(h)
    area = (dw + dz / sqrt(3)) / 2  # I_(1,0) / h
    triple = (dw**3 - 3 * h * dw) / (6 * h)  # I_(1,1,1) / h
    f1 = f(t, y)
    g1 = _shaped(g(t, y), np.shape(y), "diffusion")
    g2 = g(t + h / 4, y + h * f1 / 4 + root * g1 / 2)
    g3 = g(t + h, y + h * f1 - root * g1)
    f2 = f(t + 3 * h / 4, y + 3 * h * f1 / 4 + 3 * area * g1 / 2)
    g4 = g(t + h / 4, y + h * f1 / 4 + root * (-5 * g1 + 3 * g2 + g3 / 2))
    moved = y + h * (f1 + 2 * f2) / 3
    moved = moved + g1 * (-dw - double + 2 * area - 2 * triple)
    moved = moved + g2 * (4 * dw / 3 + 4 * double / 3 - 4 * area / 3 + 5 * triple / 3)
    moved = moved + g3 * (2 * dw / 3 - double / 3 - 2 * area / 3 - 2 * triple / 3)
    return moved + g4 * triple


_STEPS: Final[dict[str, Function]] = {"euler-maruyama": _euler_maruyama, "milstein": _milstein, "srk": _srk}
