"""The sample that a plain `python -m pytest` runs: what it must contain, and that it is the same in each run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
import gradtape.loops.passes.pipeline as loop_pipeline
import gradtape.passes.pipeline as graph_pipeline
import gradtape.passes.procedures.pipeline as procedure_pipeline
from gradtape.kinds.registry import ROWS
from tests.conftest import COLLECTED
from tests.programs.test_docs import PAGES
from tests.suite.selection import (
    LEVELS,
    TOTAL,
    Durations,
    file_of,
    sample,
    sample_within,
    spread,
    subjects,
)
from tests.suite.selection import tested_subjects as subjects_of
from tests.support.numpy_calls import CASES


class Stand:
    """A test as the sample sees it: a name, and arguments."""

    def __init__(self, name: str, **indices: int) -> None:
        self.nodeid = name
        if indices:
            cell = "-".join(f"{key}{place}" for key, place in indices.items())
            self.nodeid += f"[{cell}]"
            self.callspec = type("Spec", (), {"params": indices, "indices": indices, "id": cell})


def grid(name: str, rows: int, dtypes: int) -> list[Any]:
    return [Stand(name, row=row, dtype=dtype) for row in range(rows) for dtype in range(dtypes)]


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """All tests of the suite."""
    items = request.config.stash.get(COLLECTED, None)
    if items is None:
        pytest.skip("only a run of the whole suite has collected all tests: python -m pytest -n auto")
    return items


@pytest.fixture(scope="session")
def sampled(collected: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of the sample."""
    return sample(collected, Durations.load())


def test_all_cells_run_where_they_are_quick() -> None:
    cells = grid("tests/a.py::test_f", 10, 2)
    assert sample(cells, Durations({})) == cells


def test_each_value_of_a_parameter_is_in_the_sample() -> None:
    cells = grid("tests/a.py::test_f", 20, 3)
    chosen = sample(cells, Durations({"tests/a.py::test_f": LEVELS[0].budget / 4}))
    assert 20 <= len(chosen) < 30
    assert {cell.callspec.params["row"] for cell in chosen} == set(range(20))
    assert {cell.callspec.params["dtype"] for cell in chosen} == {0, 1, 2}


def test_a_long_sample_gets_a_smaller_budget() -> None:
    cells = [cell for k in range(40) for cell in grid(f"tests/a.py::test_{k}", 100, 1)]
    durations = Durations({f"tests/a.py::test_{k}": 0.1 for k in range(40)})
    assert sample(cells, durations) == sample_within(cells, durations, LEVELS[0])
    cells = [cell for k in range(2000) for cell in grid(f"tests/a.py::test_{k}", 4, 1)]
    durations = Durations({f"tests/a.py::test_{k}": 0.1 for k in range(2000)})
    chosen = sample(cells, durations)
    assert 2000 <= len(chosen) < 8000


def test_new_values_come_first() -> None:
    order = spread(grid("tests/a.py::test_f", 4, 4))
    assert len({cell.callspec.params["row"] for cell in order[:3]}) == 3
    assert len({cell.callspec.params["dtype"] for cell in order[:3]}) == 3


def test_one_cell_of_a_costly_function_runs() -> None:
    cells = grid("tests/a.py::test_f", 5, 1)
    assert len(sample(cells, Durations({"tests/a.py::test_f": LEVELS[0].slow - 1}))) == 1


def test_slow_tests_run_only_where_nothing_else_tests_the_same() -> None:
    slow, quick, alone = Stand("tests/a.py::test_f"), Stand("tests/a.py::test_g"), Stand("tests/b.py::test_h")
    durations = Durations(
        {"tests/a.py::test_f": 2 * LEVELS[0].slow, "tests/b.py::test_h": 2 * LEVELS[0].slow}
    )
    items: Any = [slow, quick, alone]
    assert sample(items, durations) == [quick, alone]


def test_each_op_of_a_slow_function_runs() -> None:
    cells = []
    for number, name in enumerate(("sin", "cos", "tan")):
        cell: Any = Stand("tests/a.py::test_f", row=number)
        cell.callspec.params = {"row": ROWS[name]}
        cells.append(cell)
    assert sample(cells, Durations({"tests/a.py::test_f": 2 * LEVELS[0].slow})) == cells


def test_the_file_has_means_and_cells_that_take_much_longer() -> None:
    measured = {f"tests/a.py::test_f[{k}]": 0.1 for k in range(20)} | {"tests/a.py::test_f[20]": 2.0}
    durations = {"tests/a.py::test_f": 0.1, "tests/a.py::test_f[20]": 2.0}
    durations |= {"tests/b.py::test_h": 3.0}
    before = Durations({"tests/a.py::test_g": 1.0, "tests/b.py::test_h": 3.0})
    lines = before.text(measured | {"tests/a.py::test_g": 0.001}).splitlines()[1:]
    assert lines == [f"{seconds:.2g} {name}" for name, seconds in durations.items()]


def test_the_sample_takes_minutes(sampled: list[pytest.Item]) -> None:
    durations = Durations.load()
    total = sum(durations.of(item.nodeid) for item in sampled)
    assert total <= TOTAL, (
        f"the sample takes {total:.0f} s of a processor: see CONTRIBUTING.md, Which tests run"
    )


def test_each_op_is_in_the_sample(sampled: list[pytest.Item], collected: list[pytest.Item]) -> None:
    ops = {name for kind, name in subjects_of(sampled) if kind == "op"}
    assert ops == {name for kind, name in subjects_of(collected) if kind == "op"}
    kinds = {type(ROWS[name]) for name in ops}
    assert kinds == {type(row) for row in ROWS.values()}, "a kind has no row that is an argument of tests"


def test_each_numpy_function_with_samples_is_in_the_sample(sampled: list[pytest.Item]) -> None:
    functions = {subject for key, *_ in (case.values for case in CASES) for subject in subjects(key)}
    assert functions <= subjects_of(sampled)


def test_each_page_is_in_the_sample(sampled: list[pytest.Item]) -> None:
    cells = [item for item in sampled if "::test_page[" in item.nodeid]
    assert {item.callspec.params["page"] for item in cells} == set(PAGES)  # type: ignore[attr-defined]


def test_each_file_has_a_test_in_the_sample(sampled: list[pytest.Item], collected: list[pytest.Item]) -> None:
    assert {file_of(item.nodeid) for item in sampled} == {file_of(item.nodeid) for item in collected}


def test_each_public_name_is_in_the_sample(sampled: list[pytest.Item]) -> None:
    names = {item.name for item in sampled if file_of(item.nodeid) == "tests/programs/test_docs.py"}
    assert "test_public_names_have_an_example" in names  # goes through all of them


def test_one_compiled_function_takes_each_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that each test of the sample that compiles runs all passes."""
    taken: set[str] = set()

    def recorded(step: Any) -> Any:
        @functools.wraps(step)
        def take(*args: Any, **kwargs: Any) -> Any:
            taken.add(step.__name__)
            return step(*args, **kwargs)

        return take

    passes = set()
    pipelines: Any = (
        (graph_pipeline, "PASSES"),
        (loop_pipeline, "LOOP_PASSES"),
        (procedure_pipeline, "PASSES"),
    )
    for module, name in pipelines:
        passes |= {step.__name__ for step in getattr(module, name)}
        monkeypatch.setattr(module, name, tuple(map(recorded, getattr(module, name))))
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops, cache_dir=str(tmp_path)):  # type: ignore[arg-type]
            gt.jit(gt.grad(looped))(np.arange(3.0))
    assert taken == passes


def looped(x: Any) -> Any:
    total = 0.0
    for k in range(len(x)):
        total = total + np.sin(x[k]) * np.sum(x)
    return total
