"""Index expressions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gradtape.loops.affine import Affine, Var, affine, clamp, flat, interval, substitute


def test_expressions_compute_as_integers_do() -> None:
    i, j = Var("i", 0, 4), Var("j", -3, 6)
    x, y = affine(i), affine(j)
    expressions: list[Any] = [
        (x * 7 + y) // 7,
        (x * 6 + y * 2 + 5) % 4,
        (y - x) // 3 * 3 + (y - x) % 3,
        clamp(x * 2 - y, 0, 5) + (x + 1) // 2,
        -(y + 2) // 5,
        (x * 5 + 2) % 5 + (x * 5 + 2) // 5,
    ]
    meanings: list[Any] = [
        lambda a, b: (a * 7 + b) // 7,
        lambda a, b: (a * 6 + b * 2 + 5) % 4,
        lambda a, b: b - a,
        lambda a, b: min(max(a * 2 - b, 0), 5) + (a + 1) // 2,
        lambda a, b: -(b + 2) // 5,
        lambda a, b: 2 + a,
    ]
    for expression, meaning in zip(expressions, meanings, strict=True):
        low, high = interval(expression)
        for a, b in itertools.product(range(5), range(-3, 7)):
            value = substitute(expression, {i: a, j: b})
            assert value == meaning(a, b)
            assert low <= value <= high
            assert eval(str(expression), {"i": a, "j": b, "min": min, "max": max}) == value


def test_quotients_and_remainders_simplify() -> None:
    i, j = affine(Var("i", 0, 9)), affine(Var("j", 0, 3))
    address = flat((i, j), (10, 4))
    assert address == i * 4 + j
    assert (address // 4, address % 4) == (i, j)
    assert (i * 8 + j) % 4 == j
    assert i - i == 0 and i * 0 == 0 and i // 1 == i and i % 1 == 0
    assert (i + 10) // 10 == 1
    with pytest.raises(TypeError, match="not affine"):
        i * j
    assert isinstance(address // 3, Affine)
