"""Extrema of elements that tie have one derivative, whatever the way: elements share equally, and Python's ``max`` takes the first one."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.ir import For
from gradtape.statements import walk
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.frontend.support import translated
from tests.programs.selections.ties import ARRAYS, NUMBERS, disagreements, function_of, is_translated, program

TIES = np.array([[2.0, 2.0, -1.0], [0.0, -0.0, 0.0], [2.0, 1.0, 2.0], [-1.0, -1.0, -1.0]])
NOT_A_NUMBER = np.array([1.0, np.nan, 2.0])


def test_random_programs(exhaustive):
    failures = []
    for seed in range(300 if exhaustive else 3):
        text, x = program(seed)
        assert is_translated(text, x), text
        failures += [f"{line}\n{text}{x.tolist()}" for line in disagreements(text, x)]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("formula", [*ARRAYS, *NUMBERS])
def test_code_and_trace_agree(formula):
    text = f"def program(a):\n    b = 2.0 * a[:, ::-1]\n    return (1.0 + {formula.format('(a + b)')}) ** 2\n"
    function = function_of(text)
    assert is_translated(text, TIES)
    found = []
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            found += [gt.jacrev(function)(TIES), gt.jacfwd(function)(TIES)]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-13, atol=1e-13)


def fold(x):
    return np.max(x)


def columns(x):
    return np.max(x, axis=0)


def rows(x):
    return np.min(np.sin(x) * x + 1.0, axis=1)


def pairs(x):
    return np.max(x.reshape((2, -1)), axis=0)


@pytest.mark.parametrize(
    ("function", "primal", "reverse"), [(fold, 2, 6), (columns, 4, 15), (rows, 3, 10), (pairs, 1, 4)]
)
def test_only_derivatives_look_for_ties(function, primal, reverse):
    """The passes that sum what ties are dead in the primal; a derivative has no other passes over the elements."""
    procedure = translated(function, np.zeros((30, 40))).procedure

    def loops(of):
        return sum(isinstance(statement, For) for statement in walk(optimise_procedure(of).body))

    assert loops(procedure) == primal
    assert loops(vjp_procedure(procedure, [True], [True])) <= reverse
    assert loops(jvp_procedure(procedure, [True])) <= reverse


def forward(log_transitions, log_start):
    """The forward algorithm of a hidden Markov model."""
    logs = log_start
    for _ in range(50):
        terms = logs[:, None] + log_transitions
        top = np.max(terms, axis=0)
        logs = top + np.log(np.sum(np.exp(terms - top), axis=0))
    return np.sum(logs)


def test_a_gradient_passes_over_the_terms_of_an_extremum_five_times():
    """Forwards the largest, those that tie, and the exponentials; backwards the exponentials, and those that tie with the sums."""
    procedure = translated(forward, np.zeros((16, 16)), np.zeros(16)).procedure
    gradient = optimise_procedure(vjp_procedure(procedure, [True, True], [True]))
    assert (
        sum(isinstance(s, For) and any(isinstance(t, For) for t in s.body) for s in walk(gradient.body)) == 7
    )
    with gt.config.override(loops="compile"):
        arguments = np.random.default_rng(0).integers(-2, 2, (16, 16)) * 1.0, np.zeros(16)
        found = gt.grad(forward, argnums=(0, 1))(*arguments)
    with gt.config.override(loops="trace"):
        expected = gt.grad(forward, argnums=(0, 1))(*arguments)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [17, 18, 23, 41, 103])
def test_the_extremum_of_a_formula_is_recognised(n):
    """Rounding that differs between loops, by vectors and by fused operations, must not hide the largest element."""
    x, y, c = np.random.default_rng(n).standard_normal((3, n))

    def largest(c):
        return np.max(np.exp(x) * y + np.sin(x) * c)

    place = np.argmax(np.exp(x) * y + np.sin(x) * c)
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            for slope in (gt.grad(largest)(c), gt.jacfwd(largest)(c)):
                np.testing.assert_allclose(slope, np.where(np.arange(n) == place, np.sin(x), 0.0))


@pytest.mark.parametrize("function", [max, min])
@pytest.mark.parametrize("x", [[1.0, 3.0, 3.0, 1.0], [1.0, np.nan, 2.0], [np.nan, 1.0], [-np.inf, -np.inf]])
def test_pythons_extrema_of_an_array_are_the_first(function, x):
    x = np.resize(x, 40)
    first = np.flatnonzero([element is function(list(x)) or element == function(list(x)) for element in x])
    expected = np.arange(40) == (first[0] if len(first) else 0)
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            np.testing.assert_array_equal(gt.jit(lambda x: function(x))(x), function(x))
            np.testing.assert_array_equal(gt.grad(lambda x: function(x))(x), expected)
            np.testing.assert_array_equal(gt.jacfwd(lambda x: function(x))(x), expected)


@pytest.mark.parametrize("function", [np.max, np.maximum.accumulate, lambda x: np.linalg.norm(x, np.inf)])
def test_not_a_number_has_one_derivative(function):
    def doubled(x):
        return 2.0 * function(x)

    found = []
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            found += [gt.jacrev(doubled)(NOT_A_NUMBER), gt.jacfwd(doubled)(NOT_A_NUMBER)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(
    "extremum",
    [
        lambda a, i: np.max(a),
        lambda a, i: np.min(a[i]),
        lambda a, i: np.max(a[i] * 2.0 + a[0]),
        lambda a, i: np.sum(np.max(a * a, axis=0) * np.arange(1.0, 4.0)),
        lambda a, i: np.sum(np.min(a, axis=1, keepdims=True)),
    ],
)
def test_loops_that_write_in_place(extremum):
    """Their pullback is that of a procedure."""

    def step(i, a):
        a = a.copy()
        a[i, 1] = 0.5 * extremum(a, i)
        return a

    def total(x):
        a = gt.fori_loop(0, 4, step, np.outer(x, np.ones(3)))
        return np.sum(a * np.arange(12.0).reshape(4, 3))

    for x in (np.zeros(4), np.array([1.0, 2.0, 2.0, 1.0])):
        np.testing.assert_allclose(gt.grad(total)(x), gt.jacfwd(total)(x), rtol=1e-13)
