"""Each program by chance leaves no cycle behind; see `leaks` for what the process may grow by."""

import pytest

from tests.fuzz.interrupts import SCENARIOS
from tests.fuzz.leaks import cycles_of


@pytest.mark.usefixtures("others_set_aside")
@pytest.mark.parametrize(
    "name", [name for name in SCENARIOS if name != "profiled"]
)  # which compiles each time
def test_a_program_leaves_nothing_to_the_cycle_collector(name):
    assert not cycles_of(name)
