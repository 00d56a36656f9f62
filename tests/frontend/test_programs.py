"""The text-book programs with scalar loops, translated: the same results as Python's."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import gradtape as gt
from tests.frontend.support import check, run
from tests.programs.loops import fuzz
from tests.programs.loops.all import PROGRAMS
from tests.programs.loops.random_sources import random_source


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_translated(name):
    case = PROGRAMS[name]
    check(case.function, *case.arguments())


@pytest.mark.parametrize("seed", [*range(8), 14, 62, 86, 147, 323, 431, 604])
def test_random_functions_are_translated(seed):
    namespace = {"np": np, "math": math, "__name__": "random_loops"}
    exec(compile(random_source(seed), f"random_{seed}.py", "exec"), namespace)
    random = np.random.default_rng(seed)
    check(namespace["f"], random.standard_normal(4), random.standard_normal((4, 4)), 0.7)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_functions_of_all_kinds_of_statements(seed):
    fuzz.check(seed)


def test_a_function_of_numba_is_translated_from_its_python_code():
    case = PROGRAMS["cholesky"]
    arguments = case.arguments()
    np.testing.assert_allclose(run(numba.njit(case.function), *arguments), case.function(*arguments))


def test_hundreds_of_straight_lines_are_compiled():
    lines = [
        f"    a, b = a + 0.001 * math.sin(b) * {k % 7}, b * 0.999 + a * x[{k % 4}] * 0.001"
        for k in range(250)
    ]
    source = "\n".join(["def f(x):", "    a, b = x[0], x[1]", *lines, "    return a * b"])
    namespace = {"math": math, "__name__": "straight"}
    exec(compile(source, "straight.py", "exec"), namespace)
    x = np.array([0.1, 0.2, 0.3, 0.4])
    value, slope = gt.value_and_grad(numba.njit(namespace["f"]))(x)
    step = np.array([0.0, 1e-6, 0.0, 0.0])
    assert abs(value - namespace["f"](x)) < 1e-12
    assert abs(slope[1] - (namespace["f"](x + step) - namespace["f"](x - step)) / 2e-6) < 1e-8
