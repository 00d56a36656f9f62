"""Programs with selections give one answer at kinks, ties, zeros and infinities, whatever the way, the mode, the order and the size."""

from __future__ import annotations

import pytest

from tests.programs.selections.ways import (
    INFINITE,
    POINTS,
    PROGRAMS,
    SIZES,
    WITH_INFINITIES,
    disagreements,
)

EVERY = [*[(name, False) for name in PROGRAMS], *[(name, True) for name in WITH_INFINITIES]]


@pytest.mark.parametrize(("name", "with_infinities"), EVERY)
def test_one_answer(name, with_infinities, exhaustive):
    points = list(INFINITE if with_infinities else POINTS)
    number = EVERY.index((name, with_infinities))
    cases = [(point, size, order) for point in points for size in SIZES for order in (1, 2)]
    if not exhaustive:  # each point and each small size with many programs
        small = [case for case in cases if case[1] <= 3]
        cases = [small[(7 * number) % len(small)], small[(7 * number + 5) % len(small)]]
    failures = []
    for point, size, order in cases:
        failures += disagreements(name, point, size, order)
    assert not failures, "\n".join(failures)
