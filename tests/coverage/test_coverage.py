"""Every public function of the namespaces is followed, constant, refused with its reason, or does not compute; none is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.coverage.__main__ import PAGE
from tests.coverage.cases import Case, Namespace
from tests.coverage.measure import check_jit, check_tape, outcome
from tests.coverage.namespaces.table import NAMESPACES
from tests.coverage.page import page


def every(group: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{space.name}.{name}")
        for space in NAMESPACES
        for name, cases in getattr(space, group).items()
        for case in cases
    ]


@pytest.mark.parametrize("case", every("cases"))
@pytest.mark.parametrize("check", [check_jit, check_tape])
def test_values_and_derivatives(case: Case, check: Any) -> None:
    assert not outcome(check, case)


@pytest.mark.parametrize("case", every("constant"))
@pytest.mark.parametrize("check", [check_jit, check_tape])
def test_constant_functions_work_in_traced_code(case: Case, check: Any) -> None:
    assert not outcome(lambda case: check(case, constant=True), case)


@pytest.mark.parametrize("case", every("refusals"))
def test_refused_functions_say_so(case: Case) -> None:
    """Some are refused in one of the ways only."""
    found = [outcome(check, case) for check in (check_jit, check_tape)]
    assert all(not one or one.startswith(("refused", "warned")) for one in found), found
    assert any(found), "it is followed: enter it in the cases"


@pytest.mark.parametrize("space", NAMESPACES, ids=lambda space: space.name)
def test_every_public_function_is_in_one_group(space: Namespace) -> None:
    groups = [space.cases, space.constant, space.refused, space.others]
    for first, second in itertools.combinations(groups, 2):
        assert not first.keys() & second.keys()
    assert set().union(*groups) == set(space.public)
    assert space.refusals.keys() <= space.refused.keys()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(NAMESPACES), "python -m tests.coverage --write"
