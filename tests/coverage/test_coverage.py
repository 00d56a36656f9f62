"""Every public function of the namespaces is followed, constant, refused with its reason, or does not compute; none is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.coverage import distributions
from tests.coverage.__main__ import PAGE
from tests.coverage.cases import Case, Namespace
from tests.coverage.measure import CHECKS, check_jit, check_tape, outcome
from tests.coverage.namespaces.table import NAMESPACES
from tests.coverage.page import page
from tests.coverage.variants import filter_calls, numpy_calls, scipy_calls

WAYS = (check_jit, check_tape)


def every(group: str) -> list[Any]:
    """Return the cases of a group; those after a function's first one are measured in one way, unless the run is exhaustive."""
    return [
        pytest.param(case, k, id=f"{space.name}.{name}")
        for space in NAMESPACES
        for name, cases in getattr(space, group).items()
        for k, case in enumerate(cases)
    ]


def is_sampled(check: Any, place: int) -> bool:
    return place == 0 or WAYS[place % 2] is check


@pytest.mark.parametrize(("case", "place"), every("cases"))
@pytest.mark.parametrize("check", WAYS)
def test_values_and_derivatives(case: Case, place: int, check: Any, exhaustive: bool) -> None:
    if exhaustive or is_sampled(check, place):
        assert not outcome(check, case if exhaustive or place == 0 else case._replace(second=False))


@pytest.mark.parametrize(("case", "place"), every("constant"))
@pytest.mark.parametrize("check", WAYS)
def test_constant_functions_work_in_traced_code(case: Case, place: int, check: Any, exhaustive: bool) -> None:
    if exhaustive or is_sampled(check, place):
        assert not outcome(lambda case: check(case, constant=True), case)


SAMPLE = 17
"""Of so many cases one is measured in batches and in single precision, unless the run is exhaustive, which measures all namespaces."""

SAMPLED = ("numpy.fft", "scipy.fft", "scipy.signal.windows")


@pytest.mark.parametrize("way", ["vmap", "single"])
@pytest.mark.parametrize("first", range(SAMPLE))
def test_batches_and_single_precision(first: int, way: str, exhaustive: bool) -> None:
    """They are right, or an error says why not: a branch on a number has no answer for a batch."""
    if exhaustive or first == 0:
        params = [p for p in every("cases") if exhaustive or str(p.id).rpartition(".")[0] in SAMPLED]
        for param in params[first::SAMPLE]:
            found = outcome(CHECKS[way], param.values[0])
            assert not found.startswith("wrong"), (param.id, found)


METHODS = list(distributions.every())
METHOD_SAMPLE = 211
"""Of so many methods of distributions one is measured, on a tape or compiled, unless the run is exhaustive."""


@pytest.mark.parametrize("first", range(METHOD_SAMPLE))
def test_methods_of_distributions(first: int, exhaustive: bool) -> None:
    """They are right, unless a reason is known why not: then they are refused, or NaN, or SciPy has no value to compare with."""
    if not exhaustive and first != 7:
        return
    known = distributions.gaps()
    for place, method in enumerate(METHODS[first::METHOD_SAMPLE]):
        for compiled in (False, True) if exhaustive else (place % 2 == 1,):
            found = distributions.outcome(method, compiled=compiled)
            assert not found or (method in known and not found.startswith("wrong")), (method, compiled, found)


def test_gaps_are_methods_of_distributions() -> None:
    assert distributions.gaps().keys() <= set(METHODS)


OTHER_CALLS = [
    pytest.param(case, id=f"{namespace}: {name}")
    for module in (numpy_calls, scipy_calls, filter_calls)
    for namespace, calls in module.CALLS.items()
    for name, cases in calls.items()
    for case in cases
]
STRIDE = 25
"""Of so many of the other calls one is measured, unless the run is exhaustive."""


@pytest.mark.parametrize("first", range(STRIDE))
def test_other_calls_than_those_of_the_table(first: int, exhaustive: bool) -> None:
    if exhaustive or first == 0:
        for place, param in enumerate(OTHER_CALLS[first::STRIDE]):
            for check in WAYS if exhaustive else (WAYS[place % 2],):
                found = outcome(
                    check, param.values[0] if exhaustive else param.values[0]._replace(second=False)
                )
                assert not found, (param.id, found)


@pytest.mark.parametrize(("case", "place"), every("refusals"))
def test_refused_functions_say_so(case: Case, place: int) -> None:
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
