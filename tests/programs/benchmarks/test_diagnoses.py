"""What `gt.debug` says about the programs of `benchmarks/kinks.py`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

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
