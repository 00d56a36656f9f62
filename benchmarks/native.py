"""Builds the hand-written C of limits/ with gcc and binds it to the arrays of a work."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from works import Work

LIMITS = Path(__file__).resolve().parent / "limits"
FLAGS = (
    "-O3",
    "-march=native",
    "-ffast-math",
    "-fopenmp-simd",
    # Rosenbrock's gradient is interchanged into scalar code otherwise.
    "-fno-loop-unroll-and-jam",
    "-fPIC",
)
WIDE = "-mprefer-vector-width=512"
ALIGNMENT = 64


class BuildError(Exception):
    """The limits cannot be built here."""


def build() -> Path:
    """The shared library of all limits, compiled if sources, flags or machine are new."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise BuildError(
            "gcc is needed to build the hand-written limits, and is not on the PATH.\n"
            "Install it (Debian: apt install gcc), or leave the tool `c` out: --tools gradtape,numpy"
        )
    sources = sorted(LIMITS.glob("*.c"))
    machine = subprocess.run(
        [compiler, "-march=native", "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=True
    ).stdout
    flags = (*FLAGS, WIDE) if b"__AVX512F__" in machine else FLAGS
    digest = hashlib.blake2b(machine + " ".join(flags).encode(), digest_size=8)
    for source in [*sources, LIMITS / "vector.h"]:
        digest.update(source.read_bytes())
    library = LIMITS / "build" / f"limits-{digest.hexdigest()}.so"
    if library.exists():
        return library
    library.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        objects = [Path(folder) / f"{source.stem}.o" for source in sources]
        for source, target in zip(sources, objects, strict=True):
            _run([compiler, *flags, "-c", str(source), "-o", str(target)])
        # Linked without -ffast-math, which would have the library flush the subnormal numbers of the whole process.
        fresh = Path(folder) / library.name
        _run([compiler, "-shared", *map(str, objects), "-o", str(fresh), "-lm"])
        fresh.replace(library)
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"gcc could not build the limits:\n{' '.join(command)}\n{done.stderr}")


@dataclass(frozen=True)
class Bound:
    """Value and gradient without arguments; the gradient fills `outputs`."""

    value: Callable[[], float]
    gradient: Callable[[], float]
    outputs: tuple[np.ndarray, ...]


# What value and gradient are called with, and the memory that only the gradient wants.
Binding = tuple[list[Any], list[np.ndarray]]


def bind(work: Work) -> Bound:
    library = ctypes.CDLL(str(build()))
    inputs = [np.asarray(argument, order="C") for argument in work.arguments]
    if work.name == "pendulum":
        # Together in an array, because ten pointers would take longer than a hundred steps.
        inputs = [np.array(inputs)]
        gradient = np.empty(work.n_differentiated)
        outputs = tuple(part.reshape(()) for part in np.split(gradient, len(gradient)))
        filled = [gradient]
    else:
        outputs = tuple(np.empty_like(argument) for argument in inputs[: work.n_differentiated])
        filled = list(outputs)
    arguments, scratch = BINDINGS[work.name](library, work, inputs)
    value, gradient = library[f"{work.name}_value"], library[f"{work.name}_gradient"]
    value.restype = gradient.restype = ctypes.c_double
    return Bound(
        partial(value, *arguments),
        partial(gradient, *arguments, *map(_pointer, filled), *map(_pointer, scratch)),
        outputs,
    )


def _vectors(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    n = inputs[0].size
    scratch = [np.empty(n // 1024 + 1)] if work.name == "lse" else []
    return [ctypes.c_int64(n), *map(_pointer, inputs)], scratch


def _observations(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    return [ctypes.c_int64(len(inputs[0])), *map(_pointer, inputs)], []


def _mixture(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    _, mu, _, _, x = inputs
    k, d = mu.shape
    gamma, m = work.settings["gamma"], work.settings["m"]
    prior = [ctypes.c_double(number) for number in (gamma, m, wishart_constant(d, k, gamma, m))]
    shape, workspace = _workspace(library, "gmm", d, k)
    return [*shape, ctypes.c_int64(len(x)), *map(_pointer, inputs), *prior, workspace], []


def _pendulum(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    return [ctypes.c_int64(work.settings["steps"]), *map(_pointer, inputs)], []


def _lstm(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    main, _, _, sequence = inputs
    shape, workspace = _workspace(library, "lstm", len(main) // 2, *sequence.shape)
    return [*shape, *map(_pointer, inputs), workspace], []


def _hmm(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    _, _, emission, symbols = inputs
    shape, workspace = _workspace(library, "hmm", *emission.shape, len(symbols))
    return [*shape, *map(_pointer, inputs), workspace], []


def _newton(library: ctypes.CDLL, work: Work, inputs: list[np.ndarray]) -> Binding:
    arguments, scratch = _vectors(library, work, inputs)
    return [*arguments, ctypes.c_double(work.settings["tolerance"])], scratch


BINDINGS: dict[str, Callable[[ctypes.CDLL, Work, list[np.ndarray]], Binding]] = {
    "rosen": _vectors,
    "bs": _vectors,
    "lse": _vectors,
    "gmm": _mixture,
    "ba": _observations,
    "pendulum": _pendulum,
    "lstm": _lstm,
    "hmm": _hmm,
    "newton": _newton,
}


def _workspace(library: ctypes.CDLL, name: str, *shape: int) -> tuple[list[Any], Any]:
    """The shape as C takes it, and memory for it."""
    sizes = [ctypes.c_int64(size) for size in shape]
    needed = library[f"{name}_workspace"]
    needed.restype = ctypes.c_int64
    return sizes, _pointer(_aligned(needed(*sizes)))


def wishart_constant(d: int, k: int, gamma: float, m: int) -> float:
    """The part of the Gaussian mixture's log posterior that depends on shapes and prior alone."""
    v = d + m + 1
    log_gamma = 0.25 * d * (d - 1) * math.log(math.pi)
    log_gamma += sum(math.lgamma(0.5 * (v - j)) for j in range(d))
    return k * (v * d * math.log(gamma / math.sqrt(2.0)) - log_gamma)


def _pointer(array: np.ndarray) -> Any:
    """It keeps the array alive."""
    return array.ctypes.data_as(ctypes.c_void_p)


def _aligned(size: int) -> np.ndarray:
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
