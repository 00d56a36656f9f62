"""Arrays that NumPy makes of lengths that vary: each program is right at other lengths, or is refused at the user's line."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal

import gradtape as gt
from gradtape.errors import GradtapeError
from tests.api.export.random_lengths import outcome

LENGTHS = (1, 2, 3, 5, 24, 49, 100, 365, 2899, 2900, 5799)
"""At which exports are compared with NumPy."""

LIMIT = 29 * 100
"""A number that stands in no program."""


def lengths_in_array(x: Any) -> Any:
    y = np.zeros(2)
    y[0] = len(x)
    return y[0] % 24 == 0


def ones_by_slice(x: Any) -> Any:
    y = np.empty(len(x))
    y[:] = 1.0
    return np.sum(y) % 24 == 0


def ones_by_fill(x: Any) -> Any:
    y = np.empty(len(x))
    y.fill(1.0)
    return np.sum(y) % 24 == 0


ASKED: dict[str, Callable[[Any], Any]] = {
    # What Python asks of shapes
    "arange.shape": lambda x: np.arange(len(x)).shape[0] % 24 == 0,
    "arange.size": lambda x: np.arange(len(x)).size % 24 == 0,
    "arange.nbytes": lambda x: np.arange(len(x)).nbytes % 1024 == 0,
    "len(arange)": lambda x: len(np.arange(len(x))) % 24 == 0,
    "ones.strides": lambda x: np.ones((3, len(x))).strides[0] % 1024 == 0,
    "ones.shape": lambda x: np.ones(len(x)).shape[0] % 24 == 0,
    "zeros.size": lambda x: np.zeros((len(x), 2)).size % 48 == 0,
    "full.shape": lambda x: np.full(len(x), 3.0).shape[0] % 24 == 0,
    "empty.shape": lambda x: np.empty(len(x)).shape[0] % 24 == 0,
    "zeros_like": lambda x: np.zeros_like(x).shape[0] % 24 == 0,
    "full_like": lambda x: np.full_like(x, 2).size % 24 == 0,
    "np.shape": lambda x: np.shape(np.zeros(len(x)))[0] % 24 == 0,
    "np.size": lambda x: np.size(np.zeros(len(x))) % 24 == 0,
    "np.prod of a shape": lambda x: np.prod(np.shape(np.ones(len(x)))) % 24 == 0,
    "linspace": lambda x: np.linspace(0, 1, len(x)).shape[0] % 24 == 0,
    "logspace": lambda x: len(np.logspace(0, 1, len(x))) % 24 == 0,
    "geomspace": lambda x: len(np.geomspace(1, 2, len(x))) % 24 == 0,
    "tile": lambda x: len(np.tile([1.0, 2.0], len(x))) % 48 == 0,
    "repeat": lambda x: len(np.repeat([1.0, 2.0], len(x))) % 48 == 0,
    "x.repeat": lambda x: len(np.ones(2).repeat(len(x))) % 48 == 0,
    "meshgrid": lambda x: np.meshgrid(np.arange(len(x)), np.arange(3))[0].shape[1] % 24 == 0,
    "indices": lambda x: np.indices((len(x),)).shape[1] % 24 == 0,
    "mgrid": lambda x: len(np.mgrid[0 : len(x)]) % 24 == 0,
    "ogrid": lambda x: len(np.ogrid[0 : len(x)]) % 24 == 0,
    "r_": lambda x: len(np.r_[0 : len(x)]) % 24 == 0,
    "fromfunction": lambda x: len(np.fromfunction(lambda i: i * 2, (len(x),))) % 24 == 0,
    "hanning": lambda x: len(np.hanning(len(x))) % 24 == 0,
    "hamming": lambda x: len(np.hamming(len(x))) % 24 == 0,
    "blackman": lambda x: len(np.blackman(len(x))) % 24 == 0,
    "bartlett": lambda x: len(np.bartlett(len(x))) % 24 == 0,
    "kaiser": lambda x: len(np.kaiser(len(x), 5.0)) % 24 == 0,
    "scipy.signal.windows": lambda x: len(scipy.signal.windows.hann(len(x))) % 24 == 0,
    "eye": lambda x: np.eye(len(x)).shape[0] % 24 == 0,
    "identity": lambda x: np.identity(len(x)).shape[0] % 24 == 0,
    "tri": lambda x: np.tri(len(x)).shape[0] % 24 == 0,
    "fftfreq": lambda x: len(np.fft.fftfreq(len(x))) % 24 == 0,
    "rfftfreq": lambda x: len(np.fft.rfftfreq(len(x))) % 24 == 0,
    "broadcast_to": lambda x: np.broadcast_to(1.0, (len(x),)).shape[0] % 24 == 0,
    "diag": lambda x: np.diag(np.arange(len(x))).shape[0] % 24 == 0,
    "outer": lambda x: np.outer(np.arange(len(x)), [1.0, 2.0]).shape[0] % 24 == 0,
    "concatenate": lambda x: len(np.concatenate([np.zeros(len(x)), [1.0]])) % 24 == 0,
    "stack": lambda x: np.stack([np.zeros(len(x))] * 2).shape[1] % 24 == 0,
    "a computed array": lambda x: (np.arange(len(x)) * 2.0)[1:].shape[0] % 24 == 0,
    "a transpose": lambda x: np.ones((len(x), 2)).T.shape[1] % 24 == 0,
    "partial": lambda x: len(functools.partial(np.zeros)(len(x))) % 24 == 0,
    "bytes": lambda x: len(bytes(len(x))) % 24 == 0,
    "a list": lambda x: len([0] * len(x)) % 24 == 0,
    # What Python asks of elements
    "the last of arange": lambda x: np.arange(len(x))[-1] % 24 == 0,
    "the last of linspace": lambda x: np.linspace(0, len(x), 5)[-1] % 24 == 0,
    "sum": lambda x: np.sum(np.ones(len(x))) % 24 == 0,
    "cumsum": lambda x: np.cumsum(np.ones(len(x)))[-1] % 24 == 0,
    "cumsum of ones_like": lambda x: np.cumsum(np.ones_like(x))[-1] % 24 == 0,
    "max": lambda x: np.arange(len(x)).max() % 24 == 0,
    "trace": lambda x: np.trace(np.eye(len(x))) % 24 == 0,
    "count_nonzero": lambda x: np.count_nonzero(np.ones(len(x))) % 24 == 0,
    "item": lambda x: np.arange(len(x))[-1].item() % 24 == 0,
    "tolist": lambda x: len(np.arange(len(x)).tolist()) % 24 == 0,
    "in": lambda x: 47 in np.arange(len(x)),
    "nonzero": lambda x: len(np.nonzero(np.arange(len(x)) % 24 == 0)[0]) == 2,
    "array_equal": lambda x: np.array_equal(np.arange(len(x)) % 24, np.arange(len(x))),
    "all": lambda x: np.all(np.arange(len(x)) < 53),
    "array": lambda x: np.array([len(x), 1])[0] % 24 == 0,
    "asarray": lambda x: np.asarray(len(x)) % 24 == 0,
    "full of lengths": lambda x: np.full(3, len(x))[0] % 24 == 0,
    "ones times a length": lambda x: (np.ones(3) * len(x))[0] % 24 == 0,
    "a length times ones": lambda x: (len(x) * np.ones(3))[0] % 24 == 0,
    "an array times a length": lambda x: (np.array([1.0, 2.0]) * len(x))[0] % 24 == 0,
    "a length in an array": lengths_in_array,
    "ones by a slice": ones_by_slice,
    "ones by fill": ones_by_fill,
}

NUMBERS: dict[str, Callable[[Any], Any]] = {
    "float of an element": lambda x: np.sum(x) * (float(np.linspace(0, len(x), 5)[2]) % 7),
    "int of an element": lambda x: np.sum(x) * (int(np.arange(len(x))[-1]) % 7),
    "iteration": lambda x: np.sum(x) * sum(1 for _ in np.arange(len(x))),
    "a table": lambda x: np.sum(x) * np.arange(10.0)[len(x) % 10],
    "a table that is computed": lambda x: np.sum(x) * (np.zeros(100) + np.arange(100))[len(x) % 100],
    "a dict": lambda x: np.sum(x) * {48: 3.0}.get(len(np.zeros(len(x))), 1.0),
    "polyfit": lambda x: np.sum(x) * np.polyfit(np.arange(len(x)), np.arange(len(x)) ** 2, 1)[0],
    "arange of fractions": lambda x: np.sum(x) * len(np.arange(0, 1, 1 / len(x))),
    "arange of tenths": lambda x: np.sum(np.arange(0, len(x), 0.1)) * np.sum(x),
    "round": lambda x: np.sum(x) * (1.0 + round(len(x) / 1e7)),
    "a power of 2": lambda x: np.sum(x) * 2 ** len(x),
    "a product of many lengths": lambda x: np.sum(x) * len(x) ** 4,
    "roll": lambda x: np.sum(np.roll(x, (len(x) % LIMIT) // (LIMIT - 1)) * x),
    "a slice": lambda x: np.sum(x[(len(x) % LIMIT) // (LIMIT - 1) :]),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_python_asks_is_refused_at_the_line(name: str, tmp_path: Path) -> None:
    def factor(x: Any) -> Any:
        return np.sum(x) * (5.0 if ASKED[name](x) else 1.0)

    refused(factor, tmp_path)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_not_proved_are_refused_at_the_line(name: str, tmp_path: Path) -> None:
    refused(NUMBERS[name], tmp_path)


def refused(function: Any, folder: Path) -> None:
    with pytest.raises(GradtapeError) as caught:
        gt.export(function, gt.spec((gt.Dim("n", min=1),)), path=folder / "f.gradtape")
    (line,) = [line for line in str(caught.value).splitlines() if line.startswith("  where: ")]
    assert "test_arrays_of_lengths.py:" in line and not line.endswith(" in refused"), line
    assert "what to do: " in str(caught.value) and not list(folder.iterdir())


def written(x: Any) -> Any:
    y = np.zeros(len(x))
    y[0] = 2.0
    y[1:] = x[1:] * 3.0
    return np.sum(y * np.arange(len(x)))


def second_differences(x: Any) -> Any:
    count = len(x)
    return x @ (2.0 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)) @ x


def scanned(x: Any) -> Any:
    return gt.scan(lambda sum_, a: (sum_ + a[0] * a[1], sum_), 0.0, (x, np.linspace(0, 1, len(x))))[0]


RIGHT: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: np.sum(x * np.arange(len(x))),
    "arange of floats": lambda x: np.sum(np.arange(len(x), dtype=float) * x),
    "arange by steps": lambda x: np.sum(np.arange(0, 2 * len(x), 2) * x),
    "squares modulo 7": lambda x: np.sum(x * (np.arange(len(x)) ** 2 % 7)),
    "elements modulo a number": lambda x: np.sum(x * (np.arange(len(x)) % LIMIT == LIMIT - 1)),
    "the last element": lambda x: np.sum(x) * np.arange(len(x))[-1],
    "the last element modulo 24": lambda x: np.sum(x) * (np.arange(len(x))[-1] % 24),
    "where": lambda x: np.sum(x) * np.where(np.arange(len(x))[-1] % LIMIT == 0, 5.0, 1.0),
    "linspace": lambda x: np.sum(x * np.linspace(0, 1, len(x))),
    "the third of linspace": lambda x: np.sum(x) * (np.linspace(0, 1, len(x))[2] if len(x) > 2 else 1.0),
    "logspace": lambda x: np.sum(np.logspace(0, 1, len(x)) * x),
    "weights": lambda x: np.sum(x * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(len(x)) / (len(x) + 1)))),
    "squared sines": lambda x: np.sum(x * np.sin(np.pi * np.linspace(0, 1, len(x))) ** 2),
    "cardinal sines": lambda x: np.sum(np.sinc(np.arange(len(x)) / 4) * x),
    "cosines": lambda x: np.sum(0.5 - 0.5 * np.cos(x)),  # two literals of one number
    "full": lambda x: np.sum(np.full(len(x), 2.5) * x),
    "full of lengths": lambda x: np.sum(np.full(len(x), len(x)) * x),
    "ones": lambda x: np.dot(np.ones(len(x)), x),
    "zeros": written,
    "zeros_like": lambda x: np.sum((np.zeros_like(x) + 2) * x),
    "tile": lambda x: np.sum(np.tile([1.0, 2.0], len(x))) + np.sum(x),
    "repeat": lambda x: np.sum(np.repeat(2.0, len(x)) * x),
    "broadcast_to": lambda x: np.sum(np.broadcast_to(2.0, (len(x),)) * x),
    "meshgrid": lambda x: np.sum(np.meshgrid(np.arange(len(x)), np.arange(3))[0] * x),
    "indices": lambda x: np.sum(np.indices((len(x),))[0] * x),
    "fromfunction": lambda x: np.sum(np.fromfunction(lambda i: i * 2, (len(x),)) * x),
    "outer": lambda x: np.sum(np.outer(np.arange(len(x)), x[:3])),
    "vander": lambda x: np.sum(np.vander(np.linspace(0, 1, len(x)), 3).T @ x),
    "polyval": lambda x: np.sum(np.polyval([1.0, 2.0, 3.0], np.arange(len(x))) * x),
    "index arrays": lambda x: np.sum(x[np.arange(len(x))[::-1]] * x),
    "masks": lambda x: np.sum(x[np.arange(len(x)) % 2 == 0]),
    "cumsum": lambda x: np.sum(np.cumsum(np.ones(len(x))) * x),
    "norm": lambda x: np.sum(x) / np.linalg.norm(np.arange(1, len(x) + 1)),
    "mean": lambda x: np.sum(x) * np.mean(np.arange(len(x))),
    "interp": lambda x: np.sum(np.interp(np.linspace(0, 1, len(x)), [0.0, 0.5, 1.0], [1.0, 3.0, 2.0]) * x),
    "concatenate": lambda x: np.sum(np.concatenate([np.zeros(len(x)), x]) * np.arange(2 * len(x))),
    "array": lambda x: np.sum(x) * np.sum(np.array([len(x), 2.0])),
    "ones times a length": lambda x: np.sum(x) * np.sum(np.ones(3) * len(x)),
    "scan": scanned,
    "products of shapes": lambda x: np.sum(x) / np.prod(x.shape) + math.prod(np.ones((len(x), 2)).shape),
    "halves": lambda x: np.sum(x[: math.ceil(len(x) / 2)]) + np.sum(x[math.floor(0.5 * len(x)) :]),
    "equal shapes": lambda x: np.sum(x) if np.arange(len(x)).shape == x.shape else None,
    "a threshold": lambda x: np.sum(x) if np.zeros(len(x)).size > 57 else np.sum(x**2),
    "a fixed array": lambda x: sum(float(k) for k in np.arange(3)) * np.sum(x),
    "trapezoid": lambda x: np.trapezoid(x, np.linspace(0, 1, len(x))),
    "number of axes": lambda x: np.sum(x) * np.ndim(np.zeros(len(x))),
    "a remainder": lambda x: np.sum(x) * (1.0 + (len(x) % LIMIT) // (LIMIT - 1)),
    "floor": lambda x: np.sum(x) * (1.0 + np.floor(len(x) / 2898.0)),
    "sign": lambda x: np.sum(x) * np.sign(len(x) - LIMIT),
    "sum of a comparison": lambda x: np.sum(x) * (1.0 + np.sum([len(x), 1.0]) // LIMIT),
    "a bump": lambda x: np.sum(x) * (1.0 + 5.0 * np.exp(-((len(x) - 2899.0) ** 2))),
    "a bump of an element": lambda x: np.sum(x) / (1e-3 + abs(np.arange(len(x))[-1] - 2898.0)),
    "a function of a length": lambda x: np.sum(x) * np.tanh(len(x) / 100) * math.cos(len(x)),
    "bits": lambda x: np.sum(x) * (len(x) & 7) + (len(x) >> 1),
    "powers": lambda x: np.sum(x) * len(x) ** -2 * len(x) ** 0.3 / (len(x) * (len(x) ** 2 + 1)),
    "remainders": lambda x: np.sum(x) * (1 + len(x) % 24) / (1 + len(x) // 365),
    "two lengths": lambda x: np.sum(x) * (len(x) // len(x[::2])) + len(x) % (len(x) // 2 + 1),
    "an average with its count": lambda x: np.sum(np.average(x, returned=True)),
    "covariance": lambda x: np.cov(x, bias=True) + np.var(x, ddof=0.5),
    "hanning": lambda x: np.sum(x * np.hanning(len(x))) + np.sum(np.hamming(len(x)) * np.blackman(len(x))),
    "bartlett": lambda x: np.sum(x * np.bartlett(len(x))) + np.sum(np.kaiser(len(x), 5.0)),
    "windows": lambda x: np.sum(x * scipy.signal.windows.hann(len(x))),
    "fftfreq": lambda x: np.sum(x * np.fft.fftfreq(len(x))) + np.sum(np.fft.rfftfreq(len(x), 0.1)),
    "gradient": lambda x: gt.grad(lambda y: np.sum(np.sin(y) * np.arange(len(y))))(x),
}

MATRICES: dict[str, Callable[[Any], Any]] = {
    "eye": lambda x: np.sum(np.eye(len(x)) @ x),
    "eyes": second_differences,
    "identity": lambda x: x @ (np.identity(len(x)) * 2) @ x,
    "tri": lambda x: np.sum(np.tri(len(x)) @ x),
    "diag": lambda x: np.sum(np.diag(np.arange(len(x))) @ x),
    "convolve": lambda x: np.sum(np.convolve(np.arange(len(x)), [1.0, 2.0])[: len(x)] * x),
    "solve": lambda x: np.sum(np.linalg.solve(np.eye(len(x)) * 2 + np.tri(len(x)), x)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_arrays_of_lengths(name: str, tmp_path: Path) -> None:
    assert outcome(RIGHT[name], tmp_path / "f.gradtape", LENGTHS) == "exported"


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_of_lengths(name: str, tmp_path: Path) -> None:
    lengths = (1, 2, 3, 5, 24, 49, 100, 199)
    assert outcome(MATRICES[name], tmp_path / "f.gradtape", lengths, longest=200) == "exported"


def test_what_compiled_code_gets_is_an_array(tmp_path: Path) -> None:
    """Random generators call `numpy.empty` in the frame of the user."""
    rng = np.random.default_rng(0)
    with pytest.raises(GradtapeError, match="draws random numbers"):
        gt.export(
            lambda x: np.sum(x * rng.normal(size=len(x))),
            gt.spec((gt.Dim("n"),)),
            path=tmp_path / "f.gradtape",
        )


def test_lengths_in_captured_arrays(tmp_path: Path) -> None:
    """Arrays from outside the function do not follow from lengths, but what is computed with both does."""
    weights = np.array([1.0, 2.0, 3.0])
    assert (
        outcome(lambda x: np.sum(x) * np.sum(weights / len(x)), tmp_path / "f.gradtape", LENGTHS)
        == "exported"
    )
    (tmp_path / "f.gradtape").unlink()
    refused(lambda x: np.sum(x) * (5.0 if (weights * len(x))[1] % 48 == 0 else 1.0), tmp_path)


def test_ufuncs_of_two_numbers(tmp_path: Path) -> None:
    """They make of lengths what operators make of them, and greater and lesser numbers are comparisons."""

    def whole(x: Any) -> Any:
        mean = np.sum(x) / np.maximum(np.subtract(len(x), 1), 1)
        half = np.sum(x[: np.floor_divide(len(x), 2)])
        return mean + half

    def split(x: Any) -> Any:
        return np.sum(x) * (2.0 if np.minimum(len(x), 40) > 29 else 1.0)

    for function in (whole, split):
        assert outcome(function, tmp_path / "f.gradtape", LENGTHS) == "exported"
    (path,) = gt.export(
        lambda x: x * np.add(len(x), 1),
        gt.spec((gt.Dim("n", min=1, max=40),), np.float32),
        path=tmp_path / "f.gradtape",
    )
    assert gt.load(path)(np.ones(3, np.float32)).dtype == (np.ones(3, np.float32) * np.add(3, 1)).dtype
