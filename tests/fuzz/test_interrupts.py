"""A few rounds of the interruptions by chance; see `interrupts`."""

import pytest

from .interrupts import SCENARIOS, Fuzzer


@pytest.fixture(scope="module")
def fuzzer():
    return Fuzzer(seed=10)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_interruption_leaves_everything_as_it_was(fuzzer, name):
    for _ in range(2):
        _, at, problems = fuzzer.round(name)
        assert not problems, f"--scenario {name} --at {at}\n" + "\n".join(problems)
    assert fuzzer.raised or name != list(SCENARIOS)[-1]
