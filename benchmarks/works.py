"""What is measured: for each work its function, its inputs and its sizes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SIZES = {
    "rosen": ("2", "1000000"),
    "bs": ("1000000",),
    "lse": ("10000", "100000", "1000000"),
    "gmm": ("d10_K25_n1000", "d10_K25_n10000", "d64_K50_n1000"),
}
QUICK_SIZES = {"rosen": ("2", "1000"), "bs": ("1000",), "lse": ("1000",), "gmm": ("d2_K5_n1000",)}

HERE = Path(__file__).resolve().parent
DATA_FOLDERS = (HERE / "data", HERE.parent / "examples" / "data")


@dataclass(frozen=True)
class Work:
    """A function of `arguments`, to be differentiated in the first `n_differentiated` of them."""

    name: str
    size: str
    arguments: tuple[np.ndarray, ...]
    n_differentiated: int
    settings: dict[str, Any] = field(default_factory=dict)

    def wording(self) -> ModuleType:
        """The module with the function, whose `np` a tool may rebind to its own."""
        return importlib.import_module(f"wordings.{self.name}")

    def function(self) -> Callable[..., Any]:
        """The function of `arguments` alone."""
        function: Callable[..., Any] = getattr(self.wording(), self.name)
        return partial(function, **self.settings) if self.settings else function

    @property
    def argnums(self) -> int | tuple[int, ...]:
        return 0 if self.n_differentiated == 1 else tuple(range(self.n_differentiated))


def work(name: str, size: str) -> Work:
    """The work of that name and size; the same numbers each time."""
    makers = {"rosen": _vector, "lse": _vector, "bs": _options, "gmm": _mixture}
    if name not in makers:
        raise SystemExit(f"There is no work called {name!r}. Choose from: {', '.join(makers)}.")
    return makers[name](name, size)


def _vector(name: str, size: str) -> Work:
    x = np.random.default_rng(0).normal(size=_length(name, size))
    return Work(name, size, (x,), 1)


def _options(name: str, size: str) -> Work:
    n = _length(name, size)
    rng = np.random.default_rng(0)
    ranges = ((80.0, 120.0), (80.0, 120.0), (0.1, 2.0), (0.0, 0.08), (0.1, 0.5))
    return Work(name, size, tuple(rng.uniform(*limits, size=n) for limits in ranges), 5)


def _length(name: str, size: str) -> int:
    if not size.isdecimal() or int(size) < 2:
        raise SystemExit(f"The size of {name} is a number of elements, at least 2; got {size!r}.")
    return int(size)


def _mixture(name: str, size: str) -> Work:
    found = re.fullmatch(r"d(\d+)_K(\d+)_n(\d+)", size)
    if found is None:
        raise SystemExit(f"The size of {name} is written like d10_K25_n1000; got {size!r}.")
    d, k, n = map(int, found.groups())
    for folder in DATA_FOLDERS:
        if (path := folder / f"gmm_{size}.txt").exists():
            parameters, x, gamma, m = read_mixture(path)
            break
    else:
        parameters, x, gamma, m = _generate_mixture(d, k, n)
    settings = {"places": places(d), "gamma": gamma, "m": m}
    return Work(name, size, (*parameters, x), len(parameters), settings)


Mixture = tuple[tuple[np.ndarray, ...], np.ndarray, float, int]


def read_mixture(path: Path) -> Mixture:
    """(alpha, mu, q, strict lower triangle), points, gamma and m from one of ADBench's files."""
    words = path.read_text().split()
    d, k, n = map(int, words[:3])
    numbers = np.array(words[3:], dtype=float)
    ends = np.cumsum([k, k * d, k * d * (d + 1) // 2, n * d])
    alpha, mu, packed, x, (gamma, m) = np.split(numbers, ends)
    packed = packed.reshape(k, -1)
    parameters = (alpha, mu.reshape(k, d), packed[:, :d].copy(), packed[:, d:].copy())
    return parameters, x.reshape(n, d), float(gamma), int(m)


def _generate_mixture(d: int, k: int, n: int) -> Mixture:
    """With the distributions of ADBench's own files."""
    rng = np.random.default_rng(0)
    alpha, mu = rng.normal(size=k), rng.uniform(size=(k, d))
    q, lower = rng.normal(size=(k, d)), rng.normal(size=(k, d * (d - 1) // 2))
    return (alpha, mu, q, lower), rng.normal(size=(n, d)), 1.0, 0


def places(d: int) -> np.ndarray:
    """Where each element of the triangular Q lies in (exp(q), strict lower triangle by columns, zero)."""
    result = np.full((d, d), d * (d + 1) // 2)
    result[np.diag_indices(d)] = np.arange(d)
    result.T[np.triu_indices(d, 1)] = np.arange(d, d * (d + 1) // 2)
    return result
