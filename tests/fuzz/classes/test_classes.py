"""A few random classes, and that a wrong result, a wrong slope and a wrong state are found."""

from __future__ import annotations

import pytest

import gradtape as gt
from tests.fuzz.classes import programs
from tests.fuzz.classes.programs import Program, failures, plain


@pytest.mark.parametrize("seed", range(3))
def test_objects_are_called_again_and_again(seed):
    assert len(list(Program(seed).run(plain))) == 8
    assert list(failures(seed)) == []


def result(root, space):
    return lambda x: root(x) + 0.01


def state(root, space):
    def call(x):
        y = root(x)
        root.a = root.a + 0.01
        return y

    return call


def slope(root, space):
    call = gt.value_and_grad(lambda x: programs.weighted(root, x))

    def doubled(x):
        value, slope = call(x)
        return value, 2.0 * slope

    return doubled


@pytest.mark.parametrize(
    ("make", "table", "what"),
    [(result, "VALUES", " for "), (state, "VALUES", "state"), (slope, "SLOPES", "slope")],
)
def test_a_wrong_way_is_found(monkeypatch, make, table, what):
    monkeypatch.setattr(programs, "VALUES", {})
    monkeypatch.setattr(programs, "SLOPES", {})
    monkeypatch.setattr(programs, table, {"wrong": make})
    (found,) = failures(0)
    assert found.startswith("wrong, call 0") and what in found
