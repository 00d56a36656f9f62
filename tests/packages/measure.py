"""The measurement of a call, in a process of the package's environment: values and derivatives, compiled and on a tape, and times."""

from __future__ import annotations

import re
import timeit
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as gt
from tests.packages.differences import DOUBLE, Slope, agrees, slopes

INSTALLED = "site-packages"
"""The folder of an environment that packages are installed in."""

Stage = tuple[str, dict[str, Any]]

MOST_COMPONENTS = 6
"""Elements of the argument whose derivatives are compared; a direction along all elements is compared, too."""

VALUE = 1e-6
"""The relative error of a value: solvers of differential equations and searches stop at tolerances."""

SLOW = 0.02
"""Seconds of a plain call above which only the direction along all elements is compared."""


def leaves_of(result: Any) -> list[Any]:
    """Return the numbers of a result as a list of arrays."""
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in leaves_of(item)]
    if isinstance(result, dict):
        return [leaf for item in result.values() for leaf in leaves_of(item)]
    return [] if result is None or isinstance(result, str) else [result]


def objective(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with one real number as its result: the sum of all numbers, each with a weight of its own."""

    def weighted(p: Any) -> Any:
        total: Any = 0.0
        for k, leaf in enumerate(leaves_of(function(p))):
            weights = np.cos(1.7 * np.arange(np.size(leaf)) + 0.9 * k + 0.4).reshape(np.shape(leaf))
            if np.iscomplexobj(leaf):
                total = total + np.sum(weights * np.real(leaf)) + 0.7 * np.sum(weights * np.imag(leaf))
            else:
                total = total + np.sum(weights * leaf)
        return total

    return weighted


def rounding_of(result: Any) -> float:
    """Return the rounding of the least precise of the numbers in a result."""
    dtypes = [np.asarray(leaf).dtype for leaf in leaves_of(result)]
    return max([float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind in "fc"], default=DOUBLE)


def seconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes at best."""
    once = timeit.timeit(function, number=1)
    number = max(1, min(1000, int(0.02 / max(once, 1e-7))))
    return min(
        [once, *(timeit.timeit(function, number=number) / number for _ in range(5 if once < SLOW else 1))]
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    lines = str(error).strip().splitlines()
    line = re.sub(r" (of|in) the jitted function '[^']*'| \\(at [^)]*\\)", "", lines[0]) if lines else ""
    return line[:240]


def line_of(error: BaseException) -> str:
    """Return the innermost line of a package that an error passed, as ``folder/file.py:12``."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if INSTALLED in Path(frame.filename).parts
    ]
    return _location(frames[-1].filename, frames[-1].lineno) if frames else ""


def _location(filename: str, line: int | None) -> str:
    parts = Path(filename).parts
    return f"{'/'.join(parts[parts.index(INSTALLED) + 1 :])}:{line}" if INSTALLED in parts else ""


def directions(p: np.ndarray, slow: bool) -> list[np.ndarray]:
    """Return the directions in which derivatives are compared: elements of the argument, and one along all of them."""
    scale = np.where(p == 0, max(float(np.max(np.abs(p), initial=0.0)), 1e-3), np.abs(p))
    every = scale * np.random.default_rng(11).uniform(0.5, 1.0, p.shape)
    if slow:
        return [every]
    chosen = np.unique(np.linspace(0, p.size - 1, min(p.size, MOST_COMPONENTS)).astype(int))
    units = []
    for k in chosen:
        unit = np.zeros(p.size)
        unit[k] = scale.ravel()[k]
        units.append(unit.reshape(p.shape))
    return [*units, every]


def verdict(
    value: Any, gradient: Any, plain: float, expected: list[tuple[np.ndarray, list[Slope]]]
) -> dict[str, Any]:
    """Return the status of a way whose value and gradient arrived."""
    value = float(np.real(np.asarray(value)))
    if not np.isclose(value, plain, rtol=VALUE, atol=1e-10, equal_nan=True):
        return {"status": "wrong", "reason": f"value {value!r} instead of {plain!r}"}
    largest = max(abs(found[0].value) for _, found in expected)
    for direction, found in expected:
        ours = 0.0 if gradient is None else float(np.sum(np.asarray(gradient) * direction))
        if not agrees(ours, found, 1e-8 * largest):
            reason = f"a derivative is {ours:.9g} instead of {found[0].value:.9g} (+- {found[0].error:.1g})"
            return {"status": "wrong", "reason": reason}
    return {"status": "right"}


def said_by(error: BaseException) -> dict[str, str]:
    """Return an error as results store it."""
    said = {"error": type(error).__name__, "reason": first_line(error)}
    return {**said, "line": line} if (line := line_of(error)) else said


def is_explained(error: BaseException) -> bool:
    """Return whether gradtape has added to an error why it is raised, and what to do."""
    return any("what to do:" in text for text in (str(error), *getattr(error, "__notes__", ())))


def attempt(way: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a way comes to: its own verdict, or the error that it raises; wrong results with a warning are "warned"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = way()
        except gt.errors.GradtapeError as error:
            outcome = {"status": "refused", **said_by(error)}
        except Exception as error:
            outcome = {"status": "refused" if is_explained(error) else "raised", **said_by(error)}
    ours = [w for w in caught if issubclass(w.category, gt.errors.GradtapeWarning)]
    if ours:
        outcome["warning"] = f"{ours[0].category.__name__}: {first_line(ours[0].message)}"  # type: ignore[arg-type]
        if location := _location(ours[0].filename, ours[0].lineno):
            outcome["warned_at"] = location
        if outcome["status"] == "wrong":
            outcome["status"] = "warned"
    return outcome


def stages(function: Callable[[Any], Any], p: np.ndarray) -> Iterator[Stage]:
    """Measure a call; yield each stage's result as soon as it is there: what follows may crash the process."""
    target = objective(function)

    def at(point: np.ndarray) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.real(np.asarray(target(point))))

    try:
        plain = at(p.copy())
        if not np.isfinite(plain):
            raise ValueError("its result is not finite")
        plain_seconds = seconds(lambda: at(p.copy()))
        again = at(p.copy())
        if not np.isclose(plain, again, rtol=1e-12, atol=0):
            raise ValueError(f"its result differs from call to call: {plain!r} and {again!r}")
    except Exception as error:
        yield "plain", {"status": "fails", **said_by(error)}
        return
    with warnings.catch_warnings(action="ignore"):
        rounding = rounding_of(function(p.copy()))
    expected = [
        (d, slopes(lambda t, d=d: at(p + t * d), rounding)) for d in directions(p, plain_seconds > SLOW)
    ]
    if not all(found for _, found in expected):
        yield "plain", {"status": "fails", "error": "", "reason": "its differences do not converge"}
        return
    constant = all(found[0].value == 0 for _, found in expected)
    yield (
        "plain",
        {"status": "constant" if constant else "runs", "microseconds": round(plain_seconds * 1e6, 2)},
    )
    value_and_gradient = gt.value_and_grad(target)
    first: list[float] = []

    def compiled() -> dict[str, Any]:
        start = timeit.default_timer()
        value, gradient = value_and_gradient(p.copy())
        first.append(timeit.default_timer() - start)
        return verdict(value, gradient, plain, expected)

    outcome = attempt(compiled)
    if outcome["status"] == "right":
        outcome["first"] = round(first[0], 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome["microseconds"] = round(seconds(lambda: value_and_gradient(p)) * 1e6, 2)
    yield "jit", outcome

    def on_a_tape() -> dict[str, Any]:
        with gt.GradientTape() as tape:
            watched = tape.watch(p.copy())
            value = target(watched)
        return verdict(value, tape.gradient(value, watched), plain, expected)

    yield "tape", attempt(on_a_tape)
