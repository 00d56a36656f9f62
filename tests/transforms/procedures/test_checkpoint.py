"""Checkpointing: the same derivatives from less memory, whatever is kept of loops."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.lower.resident.memory import kept_bytes, trim_memory
from gradtape.procedures.ir import For, Push
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.frontend.support import translated
from tests.transforms.procedures.evaluator import Evaluator, run_procedure
from tests.transforms.procedures.random_procedures import random_procedure
from tests.transforms.procedures.samples import SAMPLES
from tests.transforms.procedures.test_jvp import active_parameters, directions
from tests.transforms.procedures.test_random_procedures import random_like
from tests.transforms.procedures.test_vjp import seeded_results, seeds_of

POLICIES = [1, 3, "sqrt", ("treeverse", 1), ("treeverse", 3)]


def pulled(procedure, policy):
    found = vjp_procedure(procedure, active_parameters(procedure), seeded_results(procedure), policy)
    verify_procedure(found)
    return found


def check(procedure, arguments, seeds):
    """Compare all policies, bit for bit."""
    expected = run_procedure(pulled(procedure, None), [*arguments, *seeds])
    for policy in POLICIES:
        found = run_procedure(pulled(procedure, policy), [*arguments, *seeds])
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_all_policies_give_the_same_gradient(sample):
    procedure, arguments = sample()
    check(procedure, arguments, seeds_of(procedure))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_second_derivatives_have_the_policy_too(sample):
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    check(pushed, [*arguments, *directions(procedure, arguments)], seeds_of(pushed))


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    procedure, arguments = random_procedure(seed)
    check(procedure, arguments, random_like(procedure.result_types, 2))


def counted(x, k):
    y, v = x, 0.1
    for _ in range(120):
        v -= k * math.sin(y)
        y += 0.1 * v
    return y


def until(x, k):
    y, v = x, 0.1
    steps = 0
    while steps < 120 or y > 1e9:
        v -= k * math.sin(y)
        y += 0.1 * v
        steps += 1
    return y


def swapped(x, k):
    u = x + np.arange(6.0)
    new = np.zeros(6)
    for _ in range(120):
        for i in range(1, 5):
            new[i] = u[i] + k * math.sin(u[i - 1] + u[i + 1])
        u, new = new, u
    return np.sum(u)


def appended(x, k):
    path = np.empty(121)
    path[0] = x
    for i in range(120):
        path[i + 1] = k * math.sin(path[i]) + math.exp(-path[i])
    return np.sum(path)


@pytest.mark.parametrize("function", [counted, until, swapped, appended])
def test_the_tape_is_short(function):
    """Its longest extent is asked for: entries of 8 bytes."""
    procedure = translated(function, 0.5, 0.3).procedure
    lengths, results = {}, {}
    for policy in (None, 10, "sqrt"):
        evaluator = Evaluator()
        results[policy] = run_procedure(pulled(procedure, policy), [0.5, 0.3, 1.0], evaluator)
        lengths[policy] = evaluator.most
        assert not evaluator.tape
    for policy in (10, "sqrt"):
        assert lengths[policy] < lengths[None] / 2
        np.testing.assert_array_equal(results[policy], results[None])


def test_elements_that_are_written_once_need_no_checkpoint():
    """The path is there when its chunks run again."""
    body = pulled(translated(appended, 0.5, 0.3).procedure, 10).body
    forward = next(s for s in body if isinstance(s, For) and any(isinstance(x, For) for x in s.body))
    assert not any(isinstance(s, Push) for s in walk(forward.body))


def test_loops_without_records_stay_as_they_are():
    def f(x):
        total = 0.0
        for i in range(100):
            total += x[i] * x[i]
        return total

    procedure = translated(f, np.ones(100)).procedure
    assert not any(
        isinstance(s, For) and any(isinstance(x, For) for x in s.body) for s in pulled(procedure, 10).body
    )


def heat(u0, k):
    n = len(u0)
    u, new = u0.copy(), np.empty(n)
    for _ in range(4000):
        for i in range(1, n - 1):
            new[i] = u[i] + k * (u[i + 1] - 2.0 * u[i] + u[i - 1]) * (1.0 + 0.1 * u[i] * u[i])
        for i in range(1, n - 1):
            u[i] = new[i]
    return np.sum(u * u)


def orbit(x, k):
    v, t = 0.0, 0.0
    while t < 100.0:
        v -= 0.002 * k * math.sin(x)
        x += 0.002 * v * math.exp(-0.001 * v * v)
        t += 0.002
    return x


@pytest.mark.parametrize(
    ("function", "x", "all_", "some"),
    [(heat, np.linspace(-1.0, 1.0, 1000) ** 3, 30e6, 4e6), (orbit, 0.5, 0.8e6, 0.2e6)],
    ids=["heat", "orbit"],
)
def test_memory_of_a_compiled_gradient(function, x, all_, some):
    """The memory that a call takes, in bytes: 4000 time steps of 1000 cells, 50,000 steps of unknown number."""
    gradient, found = gt.grad(numba.njit(function), argnums=(0, 1)), {}
    for policy in (None, "sqrt"):
        with gt.config.override(reroll_checkpoint=policy):
            gradient(x, 0.2)
            trim_memory()
            found[policy] = gradient(x, 0.2)
            assert kept_bytes() > all_ if policy is None else kept_bytes() < some
    for ours, theirs in zip(found[None], found["sqrt"], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_compiled_functions_follow_the_setting():
    f = numba.njit(until)
    gradient = gt.grad(f, argnums=(0, 1))
    expected = gradient(0.5, 0.3)
    for policy in ("sqrt", "7", "all", "treeverse:4"):
        with gt.config.override(reroll_checkpoint=policy):
            np.testing.assert_array_equal(gradient(0.5, 0.3), expected)
            np.testing.assert_array_equal(gt.grad(f, argnums=(0, 1))(0.5, 0.3), expected)
            hessian = gt.hessian(f)(0.5, 0.3)
    np.testing.assert_allclose(hessian, gt.hessian(f)(0.5, 0.3), rtol=1e-12)
