"""Loops by `prange`: the same bits for any number of threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import gradtape as gt
from tests.programs.loops.all import PROGRAMS

SIZES = {"pair_energy": 400, "smooth_rows": 120, "asian_option": 3000}


@pytest.mark.parametrize("name", SIZES)
def test_any_number_of_threads_computes_the_same(name):
    case = PROGRAMS[name]
    arguments = case.arguments(SIZES[name])
    both = gt.value_and_grad(numba.njit(case.function), argnums=case.active)
    found = []
    for threads in (1, 2, 3):
        with gt.config.override(num_threads=threads):
            found.append(both(*arguments))
    for value, slopes in found[1:]:
        assert value == found[0][0]
        for one, other in zip(slopes, found[0][1], strict=True):
            np.testing.assert_array_equal(one, other)
