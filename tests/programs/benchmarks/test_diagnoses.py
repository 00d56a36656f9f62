"""What `gt.debug` says about the programs of `benchmarks/kinks.py` and `benchmarks/cancellations.py`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from gradtape.api.debug.precision import HAS_EXTENDED
from tests.suite.several import several_cases

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def benchmark(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)


def test_kinks_are_found_with_their_lines_and_none_is_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = benchmark(monkeypatch, "kinks").PROGRAMS
    assert len(programs) == 50
    assert sum(len(program.planted) for program in programs.values()) >= 45
    with several_cases() as case:
        for name, program in programs.items():
            with case(name):
                assert program.reported() == program.planted


@pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")
def test_lost_digits_are_counted_and_their_lines_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpmath", reason="digits are compared with mpmath's: pip install mpmath")
    digits = benchmark(monkeypatch, "digits")
    assert (len(digits.ILL), len(digits.WELL)) == (100, 60)
    close = []
    with several_cases() as case:
        for name, program in list(digits.ILL.items())[::10]:
            with case(name):
                row = digits.measured(program)
                close += row.close
                assert (row.is_found or not row.has_lost) and not row.is_false
        for name, program in list(digits.WELL.items())[::10]:
            with case(name):
                row = digits.measured(program)
                assert row.losses == [] and all(row.close)
    assert sum(close) >= 0.9 * len(close)
