"""Random procedures: the interpreter, the printed form, machine code and all derivatives agree."""

import pytest

from tests.fuzz.procedures import check, check_numba, generate


@pytest.mark.parametrize("seed", range(40))
def test_all_ways_to_compute_a_procedure_agree(seed):
    check(*generate(seed), seed, compiled=seed % 10 == 0)


@pytest.mark.parametrize("seed", [10, 42])
def test_numba_compiles_printed_pullbacks(seed):
    check_numba(*generate(seed))
