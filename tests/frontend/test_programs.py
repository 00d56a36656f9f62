"""The text-book programs with scalar loops, translated: the same results as Python's."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from tests.frontend.support import check, run
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


def test_a_function_of_numba_is_translated_from_its_python_code():
    case = PROGRAMS["cholesky"]
    arguments = case.arguments()
    np.testing.assert_allclose(run(numba.njit(case.function), *arguments), case.function(*arguments))
