"""Warnings where a random number is compared with a value that is differentiated: the derivative of a mean lacks this part."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

RNG = np.random.default_rng(0)


def _where(p: Any) -> Any:
    return np.mean(np.where(RNG.random(2000) < p, 3.0, 1.0))


def _branch(p: Any) -> Any:
    x = p * 1.0
    if RNG.random() < p:
        x = x + 1
    return x


def _mask(p: Any) -> Any:
    return np.mean((RNG.random(200) < p) * 2.0)


def _logical(p: Any) -> Any:
    u = RNG.random(200)
    return np.mean(np.where((u > 0.1 * p) & (u < p), 2.0, p))


def _searched(p: Any) -> Any:
    return np.mean(np.searchsorted(np.cumsum(np.stack([p, 1 - p])), RNG.random(20)) * 1.0 * p)


def _floor(p: Any) -> Any:
    return np.mean(np.floor(RNG.random(20) * p * 10))


def _integer(p: Any) -> Any:
    return p * int(RNG.random() * p * 10)


def _while(p: Any) -> Any:
    n = 0.0 * p
    while RNG.random() < p and n < 3:
        n = n + 1
    return n


def _scan(p: Any) -> Any:
    return gt.scan(lambda c, v: (c + np.where(v < p, 1.0, 0.0), None), 0.0 * p, RNG.random(5))[0]


def _vmap(p: Any) -> Any:
    return np.sum(gt.vmap(lambda v: np.where(v < p, 1.0, 0.0))(RNG.random(4)))


def _loop(p: Any) -> Any:
    u, total = RNG.random(5), 0.0 * p
    for i in range(5):
        if u[i] < p:
            total = total + 1
    return total


CHANCE = [_where, _branch, _mask, _logical, _searched, _floor, _integer, _while, _scan, _vmap, _loop]


def _dropout(p: Any) -> Any:
    return np.mean(np.where(RNG.random(20) < 0.5, p, 0.0))


def _noise(p: Any) -> Any:
    z = p + RNG.normal(size=20)
    return np.mean(np.where(z > 0, z, 0.0))


def _meant(p: Any) -> Any:
    return np.mean(np.where(RNG.random(20) < gt.stop_gradient(p), p, 1.0))


def _product(p: Any) -> Any:
    return np.mean(RNG.random(20) * p)


def _hinge(p: Any) -> Any:
    return np.mean(np.maximum(RNG.random(20) - p, 0))


def _not_used(p: Any) -> Any:
    np.sum(RNG.random(20) < p)
    return p * 2


def _other_branch(p: Any) -> Any:
    if RNG.random() < 0.5:
        return p
    return 2 * p


def _branch_without_chance(p: Any) -> Any:
    return p * RNG.random() if p > 0 else p


def _chosen_constant(p: Any) -> Any:
    width = RNG.choice(np.array([0.5, 0.5]))
    return p * width + (1.0 if p > 0.5 else 0.0)


PLAIN = [
    _dropout,
    _noise,
    _meant,
    _product,
    _hinge,
    _not_used,
    _other_branch,
    _branch_without_chance,
    _chosen_constant,
]


def _on_tape(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def gradient(p: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(np.float64(p))
            y = function(watched)
        return tape.gradient(y, watched)

    return gradient


WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": gt.grad,
    "jit of grad": lambda f: gt.jit(gt.grad(f)),
    "grad of jit": lambda f: gt.grad(gt.jit(f)),
    "jvp": lambda f: lambda p: gt.jvp(f, (p,), (1.0,)),
    "tape": _on_tape,
}


def _warnings_of(gradient: Callable[[Any], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradient(0.3)
        messages = [str(one.message) for one in caught]
    return [message for message in messages if "random number is compared" in message]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", CHANCE)
def test_decision_by_chance_warns(function: Callable[[Any], Any], way: str) -> None:
    gradient = WAYS[way](function)
    found = _warnings_of(gradient)
    assert len(found) >= 1
    assert all("test_comparisons.py" in message and "gt.score_function" in message for message in found)
    if way == "jit of grad" and function in (_where, _mask, _searched, _floor, _scan):
        assert not _warnings_of(gradient)  # once for each trace


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", PLAIN)
def test_no_warning_without_such_a_comparison(function: Callable[[Any], Any], way: str) -> None:
    assert not _warnings_of(WAYS[way](function))


def test_loop_warns_once_for_each_line() -> None:
    def program(p: Any) -> Any:
        u, total = RNG.random(300), 0.0 * p
        for i in range(300):
            if u[i] < p:
                total = total + p
        return total

    assert len(_warnings_of(_on_tape(program))) == 1
    assert len(_warnings_of(gt.grad(program))) <= 2  # of two traces
