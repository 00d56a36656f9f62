"""The inputs of the works: from a file where there is one, else random with a fixed seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
DATA_FOLDERS = (HERE / "data", HERE.parent / "examples" / "data")

Arrays = tuple[np.ndarray, ...]
# The arguments, how many of them are differentiated, and the settings of the function.
Inputs = tuple[Arrays, int, dict[str, Any]]


def sizes(name: str, size: str, example: str) -> tuple[int, ...]:
    """The numbers in a size that is written like the example."""
    found = re.fullmatch(re.sub(r"\d+", r"(\\d+)", example), size)
    if found is None:
        raise SystemExit(f"The size of {name} is written like {example}; got {size!r}.")
    return tuple(map(int, found.groups()))


def count(name: str, size: str, fewest: int, what: str) -> int:
    if not size.isdecimal() or int(size) < fewest:
        raise SystemExit(f"The size of {name} is a number of {what}, at least {fewest}; got {size!r}.")
    return int(size)


def data_file(name: str) -> Path | None:
    paths = (folder / f"{name}.txt" for folder in DATA_FOLDERS)
    return next((path for path in paths if path.exists()), None)


def vector(name: str, size: str) -> Inputs:
    x = np.random.default_rng(0).normal(size=count(name, size, 2, "elements"))
    return (x,), 1, {}


def options(name: str, size: str) -> Inputs:
    n = count(name, size, 2, "elements")
    rng = np.random.default_rng(0)
    ranges = ((80.0, 120.0), (80.0, 120.0), (0.1, 2.0), (0.0, 0.08), (0.1, 0.5))
    return tuple(rng.uniform(*limits, size=n) for limits in ranges), 5, {}


def mixture(name: str, size: str) -> Inputs:
    d, k, n = sizes(name, size, "d10_K25_n1000")
    path = data_file(f"gmm_{size}")
    parameters, x, gamma, m = read_mixture(path) if path else generate_mixture(d, k, n)
    return (*parameters, x), len(parameters), {"places": places(d), "gamma": gamma, "m": m}


Mixture = tuple[Arrays, np.ndarray, float, int]


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


def generate_mixture(d: int, k: int, n: int) -> Mixture:
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


def pendulum(name: str, size: str) -> Inputs:
    steps = count(name, size, 1, "steps")
    return tuple(np.array(number) for number in (1.0, 0.2, 0.15, 9.81, 0.3)), 5, {"steps": steps}


CHARACTER = 14


def lstm(name: str, size: str) -> Inputs:
    """Main and extra parameters, h and c of each layer, and the sequence."""
    layers, length = sizes(name, size, "l2_c1024")
    path = data_file(f"lstm_{size}")
    if path:
        words = path.read_text().split()
        b = int(words[2])
        numbers = np.array(words[3:], dtype=float)
    else:
        b = CHARACTER
        numbers = np.random.default_rng(0).uniform(size=(10 * layers + 3 + length) * b)
    ends = np.cumsum([8 * layers * b, 3 * b, 2 * layers * b])
    main, extra, state, sequence = np.split(numbers, ends)
    return (
        (main.reshape(-1, 4 * b), extra.reshape(3, b), state.reshape(-1, b), sequence.reshape(-1, b)),
        2,
        {},
    )


def hmm(name: str, size: str) -> Inputs:
    """Logarithms of the probabilities of starts, transitions and symbols, as many as states; what was seen."""
    states, length = sizes(name, size, "K16_T500")
    rng = np.random.default_rng(0)
    start, transition, emission = (rng.normal(size=shape) for shape in ((states,), *[(states, states)] * 2))
    logs = (
        part - np.log(np.sum(np.exp(part), axis=-1, keepdims=True)) for part in (start, transition, emission)
    )
    return (*logs, rng.integers(0, states, size=length)), 3, {}


def observations(name: str, size: str) -> Inputs:
    """Cameras, points in front of them, weights, and where the points are seen."""
    n = count(name, size, 1, "observations")
    rng = np.random.default_rng(0)
    cameras = 0.3 * rng.normal(size=(n, 11))
    points = rng.normal(size=(n, 3)) + np.array([0.0, 0.0, 5.0])
    return (cameras, points, rng.uniform(size=n), rng.normal(size=(n, 2))), 3, {}


def newton(name: str, size: str) -> Inputs:
    """For a size of 1 a number, else a vector."""
    n = count(name, size, 1, "elements")
    a = np.random.default_rng(0).uniform(0.1, 10.0, size=n)
    return (np.array(a[0]) if n == 1 else a,), 1, {"tolerance": 1e-9}


def layers(rng: np.random.Generator, *widths: int) -> Arrays:
    """Weights and biases, alternating."""
    result: list[np.ndarray] = []
    for fan_in, fan_out in pairwise(widths):
        result += [rng.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in), 0.1 * rng.normal(size=fan_out)]
    return tuple(result)


def mlp(name: str, size: str) -> Inputs:
    *widths, n = sizes(name, size, "784_256_10_n128")
    rng = np.random.default_rng(0)
    weights = layers(rng, *widths)
    labels = np.eye(widths[-1])[rng.integers(0, widths[-1], n)]
    return (*weights, rng.normal(size=(n, widths[0])), labels), 4, {}


def jacmlp(name: str, size: str) -> Inputs:
    widths = sizes(name, size, "256_256_64")
    rng = np.random.default_rng(0)
    return (rng.normal(size=widths[0]), *layers(rng, *widths)), 1, {}


def hesslr(name: str, size: str) -> Inputs:
    n_weights, n = sizes(name, size, "100_n1000")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, n_weights))
    return (rng.normal(size=n_weights) / np.sqrt(n_weights), rows, rng.choice([-1.0, 1.0], size=n)), 1, {}


MAKERS: dict[str, Callable[[str, str], Inputs]] = {
    "rosen": vector,
    "bs": options,
    "lse": vector,
    "gmm": mixture,
    "ba": observations,
    "mlp": mlp,
    "jacmlp": jacmlp,
    "hesslr": hesslr,
    "pendulum": pendulum,
    "lstm": lstm,
    "hmm": hmm,
    "newton": newton,
}
