"""What Python asks of lengths that vary: proved for all of them, or refused at the user's line."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError
from tests.api.export.random_lengths import SOME, TABLE, fails, made, outcome, program

n, m = gt.Dim("n", min=1), gt.Dim("m", min=1)
LIMIT = 29 * 100


def by_count(x: Any) -> Any:
    count = 0
    for _ in x:
        count += 1
    return np.sum(x) * (5.0 if count % 24 == 0 else 1.0)


def by_range(x: Any) -> Any:
    return np.sum(x) * (5.0 if max(range(len(x))) % 24 == 23 else 1.0)


TRUTHS: dict[str, Any] = {
    "modulus 24": lambda x: len(x) % 24 == 0,
    "modulus 100": lambda x: len(x) % 100 == 0,
    "modulus 365": lambda x: x.shape[0] % 365 == 0,
    "modulus 1013": lambda x: x.size % 1013 == 0,
    "two moduli": lambda x: len(x) % 24 == 0 and len(x) % 365 == 0,
    "set": lambda x: len(x) in SOME,
    "table": lambda x: TABLE.get(len(x), 1.0) > 2.0,
    "logarithm": lambda x: int(math.log2(len(x))) == 12,
    "hash": lambda x: hash(len(x)) % 7 == 3,
    "text": lambda x: str(len(x)).endswith("7"),
    "format": lambda x: f"{len(x)}".endswith("7"),
    "float": lambda x: float(len(x)) % 24.0 == 0.0,
    "divmod": lambda x: divmod(len(x), 24)[1] == 0,
    "bits": lambda x: len(x) & 1023 == 0,
    "gcd": lambda x: math.gcd(len(x), 24) == 24,
    "np.mod": lambda x: np.mod(len(x), 24) == 0,
    "np.shape": lambda x: np.shape(x)[0] % 24 == 0,
    "np.size": lambda x: np.size(x) % 24 == 0,
    "bytes": lambda x: x.nbytes % 1024 == 0,
    "derived array": lambda x: len(np.sin(x[1:])) % 24 == 0,
    "preallocated": lambda x: np.zeros(len(x)).shape[0] % 24 == 0,
    "size": lambda x: np.ones(len(x)).size % 24 == 0,
    "view": lambda x: np.full((len(x), 2), 3.0).T.shape[1] % 24 == 0,
    "computed": lambda x: np.sin(2 * np.zeros(len(x))).shape[0] % 24 == 0,
    "integers": lambda x: np.zeros(len(x), int).shape[0] % 24 == 0,
    "arange": lambda x: len(np.arange(len(x))) % 24 == 0,
    "list": lambda x: len(list(x)) % 24 == 0,
    "map": lambda x: next(map(len, [x])) % 24 == 0,
    "pieces": lambda x: len(np.array_split(x, len(x) // 5 + 1)) % 24 == 0,
    "caught errors of indices": lambda x: fails(lambda: x[4999]),
    "caught errors of shapes": lambda x: fails(lambda: np.reshape(x, (-1, 24))),
    "caught errors of operands": lambda x: fails(lambda: x + np.ones(48)),
}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("suffix", [".gradtape", ".c"])
def test_what_is_not_proved_is_refused_at_the_line(name: str, suffix: str, tmp_path: Path) -> None:
    def factor(x: Any) -> Any:
        return np.sum(x) * (5.0 if TRUTHS[name](x) else 1.0)

    with pytest.raises(ArgumentError, match="Python") as caught:
        gt.export(factor, gt.spec((n,)), path=tmp_path / f"f{suffix}", name="f")
    assert "test_lengths.py" in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("function", [by_count, by_range])
def test_counts_of_elements_are_refused(function: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Python"):
        gt.export(function, gt.spec((n,)), path=tmp_path / "f.gradtape")


PROVED: dict[str, Any] = {
    "threshold": lambda x: np.sum(x) if len(x) > 29 else np.sum(x**2),
    "threshold that is computed": lambda x: np.sum(x) if len(x) > LIMIT * 2 - 1 else np.sum(x**2),
    "one length": lambda x: np.sum(x) * (5.0 if len(x) == LIMIT else 1.0),
    "between": lambda x: np.sum(x) * (5.0 if 3 < len(x) - 2 <= 57 else 1.0),
    "quotient": lambda x: np.sum(x) * (5.0 if len(x) // 3 == 57 else 1.0),
    "square": lambda x: np.sum(x) * (5.0 if len(x) ** 2 > 1000 else 1.0),
    "shapes": lambda x: np.sum(x * np.cos(x)) if x.shape == np.sin(x).shape else None,
    "assertions": lambda x: np.sum(x[: len(x) // 2]) if len(x) // 2 <= len(x) else None,
    "largest": lambda x: np.sum(x) / max(len(x), 40),
    "whole": lambda x: np.sum(x) * (2.0 if isinstance(len(x), int) else 1.0),
    "logarithms": lambda x: np.sum(x) * math.log(len(x)) + np.sqrt(x.size),
    "counts": lambda x: np.sum(x * np.arange(len(x)) / len(x)) + np.zeros(len(x)).shape[0],
    "fixed axes": lambda x: sum(np.sum(x[:, None] * np.ones(3), axis=0)[k] for k in range(3)),
    "rounded": lambda x: np.sum(x) * math.ceil(len(x) * 1.0),
    "compared with infinity": lambda x: np.sum(x) if len(x) < math.inf else None,
    "quotients": lambda x: np.sum(x) * (2.0 if len(x) / 4 > 7.5 else 1 / len(x)),
}


BOUNDS: dict[str, Any] = {
    "a bound beside a large array": lambda x: np.sum(x[:5000]) + 0 * np.sum(np.arange(len(x) ** 2)),
    "a count beside a large array": lambda x: (
        np.sum(np.arange(len(x) - 5000) ** 2 % 3) + 0 * np.sum(np.arange(len(x) ** 2)) + np.sum(x)
    ),
    "bounds of a part": lambda x: (
        np.sum(x[len(x) // 3 + 1 : 2 * len(x) // 3 - 1]) * np.sum(x[-(len(x) // 3) :])
    ),
    "what is written": lambda x: np.sum(np.stack([x, x])[:, 5:300]) + np.sum((x[:, None] * x[:7])[1:, :-2]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_extents_on_either_side_of_a_bound(name: str, tmp_path: Path) -> None:
    lengths = (1, 2, 3, 4, 5, 7, 8, 299, 300, 301, 1013, 4999, 5000, 5001, 5050, 7777)
    assert outcome(BOUNDS[name], tmp_path / "f.gradtape", lengths) == "exported"


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_is_exported(name: str, tmp_path: Path) -> None:
    assert (
        outcome(
            PROVED[name],
            tmp_path / "f.gradtape",
            (1, 2, 5, 29, 30, 31, 60, 172, 2899, 2900, 2901, 5799, 5800),
        )
        == "exported"
    )


def test_lengths_of_two_dimensions(tmp_path: Path) -> None:
    (path,) = gt.export(
        lambda x, y: np.sum(x @ y) if x.shape[1] == y.shape[0] else 0.0,
        gt.spec((n, m)),
        gt.spec((m,)),
        path=tmp_path / "f.gradtape",
    )
    assert gt.load(path)(np.ones((3, 5)), np.ones(5)) == 15.0
    with pytest.raises(ArgumentError, match="cannot be exported for all lengths"):
        gt.export(
            lambda x, y: np.sum(x) + np.sum(y) * (2.0 if len(x) == len(y) else 1.0),
            gt.spec((n,)),
            gt.spec((m,)),
            path=tmp_path / "g.gradtape",
        )


def without_long(x: Any) -> Any:
    if len(x) > 1900:
        raise ValueError("long")
    return x * 2.0


@pytest.mark.parametrize(
    ("function", "longest"),
    [
        (without_long, 1900),
        (lambda x: x * 2.0 ** len(x), 1023),  # Python raises an OverflowError
        (lambda x: x * (1 / (len(x) - 2000)), 1999),
    ],
)
def test_the_longest_lengths_may_have_no_result(function: Any, longest: int, tmp_path: Path) -> None:
    (path,) = gt.export(function, gt.spec((gt.Dim("n", min=1, max=2000),)), path=tmp_path / "f.gradtape")
    again = gt.load(path)
    for count in (1, 2, 7, 500, longest):
        x = np.linspace(0.5, 1.5, count)
        np.testing.assert_allclose(again(x), function(x), rtol=1e-12)
    for count in (longest + 1, 2000):
        with pytest.raises(ArgumentError, match=f"has no result for n = {count}"):
            again(np.ones(count))


def test_few_lengths_may_be_asked_for_their_numbers(tmp_path: Path) -> None:
    few = gt.Dim("k", min=1, max=6)
    (path,) = gt.export(
        lambda x: np.sum(x) * (5.0 if len(x) % 3 == 0 else 1.0), gt.spec((few,)), path=tmp_path / "f.gradtape"
    )
    again = gt.load(path)
    assert [float(again(np.ones(k))) for k in (1, 2, 3, 4, 6)] == [1.0, 2.0, 15.0, 4.0, 30.0]


def test_lengths_are_plain_integers_elsewhere() -> None:
    seen: list[Any] = []
    f = gt.jit(lambda x: (seen.append(type(x.shape[0])), seen.append(type(len(x))), np.sum(x))[-1])
    f(np.ones(3))
    assert set(seen) == {int} and type(len) is type(abs)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    assert outcome(made(program(random.Random(seed)), seed), tmp_path / "f.gradtape") in (
        "exported",
        "refused",
    )
