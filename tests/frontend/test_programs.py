"""The text-book programs with scalar loops, translated: the same results as Python's."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from tests.frontend.support import check, run
from tests.programs.loops.all import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_translated(name):
    case = PROGRAMS[name]
    check(case.function, *case.arguments())


def test_a_function_of_numba_is_translated_from_its_python_code():
    case = PROGRAMS["cholesky"]
    arguments = case.arguments()
    np.testing.assert_allclose(run(numba.njit(case.function), *arguments), case.function(*arguments))
