"""Random functions with loops: all ways to compute them agree, and their derivatives agree with each other."""

from __future__ import annotations

import pytest

from tests.programs.loops.fuzz import check_compiled

PLAIN = (0, 1, 2, 3, 5, 6, 7, 8, 9, 10)
RICH = (18, 31, 40)
"""Seeds of functions with all kinds of statements."""


@pytest.mark.parametrize("seed", PLAIN)
def test_all_ways_agree(seed: int) -> None:
    check_compiled(seed, rich=False)


@pytest.mark.parametrize("seed", RICH)
def test_all_ways_agree_on_all_kinds_of_statements(seed: int) -> None:
    check_compiled(seed)
