"""The measurement of a case: values against the function itself, derivatives against differences, compiled and on a tape."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gradtape as gt
from tests.coverage.cases import Array, Case

STEP = 1e-3


def leaves_of(result: Any) -> list[Any]:
    """Return the numbers of a result as a list of arrays."""
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in leaves_of(item)]
    if isinstance(result, dict):
        return [leaf for item in result.values() for leaf in leaves_of(item)]
    return [] if result is None or isinstance(result, str) else [result]


def objective(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with one real number as its result: the sum of all numbers, each with a weight of its own."""

    def weighted(*arrays: Any) -> Any:
        total: Any = 0.0
        for k, leaf in enumerate(leaves_of(function(*arrays))):
            weights = np.cos(1.7 * np.arange(np.size(leaf)) + 0.9 * k + 0.4).reshape(np.shape(leaf))
            kind = np.dtype(getattr(leaf, "dtype", type(leaf))).kind
            if kind == "c":
                total = total + np.sum(weights * np.real(leaf)) + 0.7 * np.sum(weights * np.imag(leaf))
            else:
                total = total + np.sum(weights * leaf)
        return total

    return weighted


def directions(arrays: Sequence[Array]) -> list[Array]:
    """Return a direction for each array, the same in every run."""
    rng = np.random.default_rng(11)
    made = []
    for array in arrays:
        direction: Array = rng.uniform(0.5, 1.0, array.shape) * rng.choice([-1.0, 1.0], array.shape)
        made.append(direction * (1 + 0.6j) if array.dtype.kind == "c" else direction)
    return made


def slope(function: Callable[..., Any], arrays: Sequence[Array], k: int, direction: Array) -> float:
    """Return the derivative in one array along a direction, by differences of the fourth order."""

    def at(h: float) -> float:
        moved = [*arrays[:k], arrays[k] + h * direction, *arrays[k + 1 :]]
        return float(np.real(np.asarray(function(*moved))))

    def central(h: float) -> float:
        return (at(h) - at(-h)) / (2 * h)

    scale = STEP * max(1.0, float(np.max(np.abs(arrays[k]), initial=0.0)) / 10)
    steps = [scale, scale / 8, scale / 64]
    found = [(4 * central(h / 2) - central(h)) / 3 for h in steps]
    # the two of neighbouring steps that agree best: far steps leave the domain, near ones cancel
    gaps = [abs(found[j + 1] - found[j]) for j in range(2)]
    best = int(np.nanargmin(gaps)) if np.isfinite(gaps).any() else 0
    return found[best + 1]


def along(gradient: Any, direction: Array) -> float:
    """Return the product of a gradient and a direction; none is zero. Cotangents of complex arrays are conjugated as TensorFlow's."""
    if gradient is None:
        return 0.0
    return float(np.real(np.sum(np.conj(np.asarray(gradient)) * direction)))


class Mismatch(AssertionError):
    """A value or a derivative that is wrong."""


def compare(what: str, ours: float, expected: float, rtol: float) -> None:
    """Raise unless two numbers are the same up to the error of differences."""
    if not abs(ours - expected) <= rtol * max(1.0, abs(expected), abs(ours)):
        raise Mismatch(f"{what}: {ours} instead of {expected}")


def check_jit(case: Case, *, constant: bool = False) -> None:
    """Raise unless the compiled value, gradients and second derivatives of a case are right."""
    function, arrays = objective(case.function), case.arrays
    numbers = tuple(range(len(arrays)))
    derivative = gt.value_and_grad(function, argnums=numbers)
    value, gradients = derivative(*arrays)
    plain = float(np.real(np.asarray(function(*arrays))))
    compare("jit value", float(value), plain, case.searched)
    _check_gradients("jit", case, gradients, constant)
    real = [k for k in numbers if arrays[k].dtype.kind != "c"]
    if constant or not case.second or not real:
        return
    along_all = directions(arrays)

    def slope_along_all(*arrays: Any) -> Any:
        """Return the derivative along the directions of all arguments: its own derivatives are products with the whole Hessian."""
        gradients = derivative(*arrays)[1]
        return sum(np.sum(gradients[k] * along_all[k]) for k in real)

    second = gt.grad(slope_along_all, argnums=numbers)(*arrays)
    for j, towards in enumerate(along_all):
        compare(
            f"jit second derivative in argument {j} and along all",
            along(second[j], towards),
            slope(slope_along_all, arrays, j, towards),
            max(case.rtol, 1e-4),
        )


def check_tape(case: Case, *, constant: bool = False) -> None:
    """Raise unless the value and gradients of a case on a tape are right."""
    function, arrays = objective(case.function), case.arrays
    with gt.GradientTape() as tape:
        watched = [tape.watch(array) for array in arrays]
        value = function(*watched)
    compare(
        "value on a tape",
        float(np.real(np.asarray(value))),
        float(np.real(np.asarray(function(*arrays)))),
        case.searched,
    )
    left = not isinstance(value, gt.Array)
    _check_gradients("tape", case, [None] * len(arrays) if left else tape.gradient(value, watched), constant)


def check_vmap(case: Case, *, constant: bool = False) -> None:
    """Raise unless the values and gradients of a batch of two are those of its elements."""
    function = objective(case.function)
    moved = [a + 1e-3 * direction for a, direction in zip(case.arrays, directions(case.arrays), strict=True)]
    elements = (case.arrays, moved)
    batch = [np.stack(pair) for pair in zip(*elements, strict=True)]
    shares = (0.7, -0.4)

    def total(*batch: Any) -> Any:
        return np.sum(gt.vmap(function)(*batch) * np.array(shares))

    value, gradients = gt.value_and_grad(total, argnums=tuple(range(len(batch))))(*batch)
    plain = [float(np.real(np.asarray(function(*element)))) for element in elements]
    expected = sum(share * each for share, each in zip(shares, plain, strict=True))
    compare("value of a batch", float(value), expected, 1e-9)
    for k, direction in enumerate(directions(case.arrays)):
        if case.arrays[k].dtype.kind == "c":
            continue
        slopes = [0.0 if constant else slope(function, element, k, direction) for element in elements]
        expected = sum(share * each for share, each in zip(shares, slopes, strict=True))
        compare(f"gradient of a batch in argument {k}", along(gradients[k], direction), expected, case.rtol)


def check_single(case: Case, *, constant: bool = False) -> None:
    """Raise unless values and gradients of single precision are those of double precision up to rounding, and have the function's dtype."""
    function, double = objective(case.function), case.arrays
    arrays = [array.astype(np.complex64 if array.dtype.kind == "c" else np.float32) for array in double]
    try:
        plain = [np.asarray(leaf) for leaf in leaves_of(case.function(*arrays))]
    except Exception:
        return  # the function itself does not take it
    ours = leaves_of(gt.jit(case.function)(*arrays))
    kinds = [np.asarray(leaf).dtype for leaf in ours]
    if kinds != [leaf.dtype for leaf in plain]:
        raise Mismatch(f"dtypes {kinds} instead of {[leaf.dtype for leaf in plain]}")
    expected = float(np.real(np.asarray(function(*double))))
    off = abs(float(np.real(np.asarray(function(*arrays)))) - expected)
    numbers = tuple(range(len(arrays)))
    value, gradients = gt.value_and_grad(function, argnums=numbers)(*arrays)
    compare("value in single precision", float(value), expected, max(2e-3, 3 * off))
    for k, direction in enumerate(directions(double)):
        expected = 0.0 if constant else slope(function, double, k, direction)
        compare(
            f"gradient in single precision in argument {k}", along(gradients[k], direction), expected, 2e-2
        )


CHECKS = {"jit": check_jit, "tape": check_tape, "vmap": check_vmap, "single": check_single}
"""The ways in which cases are measured."""


def _check_gradients(way: str, case: Case, gradients: Sequence[Any], constant: bool) -> None:
    function = objective(case.function)
    for k, direction in enumerate(directions(case.arrays)):
        expected = 0.0 if constant else slope(function, case.arrays, k, direction)
        compare(f"{way} gradient in argument {k}", along(gradients[k], direction), expected, case.rtol)


def outcome(check: Callable[[Case], None], case: Case) -> str:
    """Return "" if a check succeeds, and what went wrong otherwise: ``wrong: ...``, ``refused: ...``, ``error: ...``, ``warned: ...``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", gt.errors.GradtapeWarning)
        try:
            check(case)
        except Mismatch as error:
            return f"wrong: {error}"
        except gt.errors.GradtapeWarning as warning:
            return f"warned: {warning}"
        except gt.errors.GradtapeError as error:
            return f"refused: {error}"
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"
    return ""
