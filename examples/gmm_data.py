"""Reads the mixtures of Gaussians of the ADBench suite."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).resolve().parent / "data"


class Mixture(NamedTuple):
    """K Gaussians in d dimensions, with precisions Q'Q and weights softmax(alpha)."""

    alpha: np.ndarray  # (K,)
    mu: np.ndarray  # (K, d)
    q: np.ndarray  # (K, d): logarithms of the diagonals of Q
    lower: np.ndarray  # (K, d(d-1)/2): Q below its diagonal, column by column


@dataclass(frozen=True)
class Wishart:
    """The prior of the precisions."""

    gamma: float
    m: int


def load(path: Path) -> tuple[Mixture, np.ndarray, Wishart]:
    """Read one of ADBench's files; leave with a message if it is not one."""
    try:
        words = path.read_text().split()
        d, k, n = map(int, words[:3])
        numbers = np.array(words[3:], dtype=float)
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read as a mixture in ADBench's format (see data/README.md): {error}")
    if min(d, k, n) < 1:
        sys.exit(f"{path}: d={d}, K={k} and n={n} must be positive.")
    *ends, total = np.cumsum([k, k * d, k * d * (d + 1) // 2, n * d, 2])
    if len(numbers) != total:
        sys.exit(f"{path}: d={d}, K={k}, n={n} call for {total} more numbers, but {len(numbers)} follow.")
    alpha, mu, packed, points, (gamma, m) = np.split(numbers, ends)
    packed = packed.reshape(k, -1)
    mixture = Mixture(alpha, mu.reshape(k, d), packed[:, :d].copy(), packed[:, d:].copy())
    return mixture, points.reshape(n, d), Wishart(float(gamma), int(m))


def relative_errors(name: str, value: float, gradient: Mixture) -> dict[str, float]:
    """By block, against the results that come with the data."""
    found = dict(zip(("value", "alpha", "mu", "q", "l"), (value, *gradient), strict=True))
    with np.load(DATA / "expected.npz") as expected:
        wanted = {block: expected[f"{name}/{block}"] for block in found if f"{name}/{block}" in expected}
    return {block: float(np.max(np.abs(found[block] - w)) / np.max(np.abs(w))) for block, w in wanted.items()}
