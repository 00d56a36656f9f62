"""The native checks of captures: what they pass on, what they hand to the fallback, and interpreters that lack what they read."""

from __future__ import annotations

from typing import Any

import pytest

import gradtape as gt
from gradtape.runtime.call import capture_entry
from tests.support.kernels import told
from tests.trace.jit.key_cases import CASES, result_of


def checked(arguments: int, passed: list[int] | None, **rest: Any) -> Any:
    return capture_entry.checked(capture_entry.collecting(), told, arguments, (), (), passed, **rest)


def test_arguments_are_passed_on_as_they_are() -> None:
    function = checked(2, None)
    assert function("a", 2.0) == ("a", 2.0)


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3)])
def test_calls_with_other_numbers_of_arguments_go_to_the_fallback(args: tuple[int, ...]) -> None:
    assert checked(2, None)(*args) == told(*args)


def test_arguments_are_passed_on_by_number() -> None:
    assert checked(3, [-2, -1])("a", "b", "c") == ("b", "a")
    assert checked(1, [])("a") == ()


def test_an_interpreter_of_other_layouts_has_no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_entry, "_has_functions", lambda: False)
    assert checked(1, None) is None
    assert (
        capture_entry.collecting.__wrapped__()(1) is capture_entry.MISSED
    )  # the function keeps what it has made


def test_an_interpreter_of_other_classes_has_no_checks_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_entry, "can_check_classes", lambda: False)
    assert checked(1, None)(1) == (1,)
    assert checked(1, None, tags=[(0, int, lambda: True)]) is None


@pytest.mark.parametrize("lacking", ["_has_functions", "can_check_classes", "_dicts_have_versions"])
def test_other_interpreters_see_the_same_changes(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    monkeypatch.setattr(capture_entry, lacking, lambda: False)
    for name in list(CASES)[::6]:
        function, first, second = CASES[name]()
        compiled = gt.jit(function)
        for state in (first, first, first, second, first, second):
            wanted = float(result_of(function, state()))
            assert float(result_of(compiled, state())) == pytest.approx(wanted, rel=1e-6), name
