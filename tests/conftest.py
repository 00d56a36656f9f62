"""Options and fixtures for all tests; the choice of the tests that a plain run takes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

os.environ.setdefault(
    "GRADTAPE_VERIFY", "1"
)  # read when gradtape is imported, also by programs that tests start

import pytest
from hypothesis import settings

from gradtape.api.transforms import sharing
from gradtape.config import config
from gradtape.ir.builder import here
from gradtape.kinds.registry import HOOKS
from gradtape.transforms.observers import OBSERVERS
from tests.suite.other_cpus import MISSING, compile_for
from tests.suite.selection import DURATIONS, TESTS, Durations, processor_seconds, sample, tested_names

COLLECTED: Final = pytest.StashKey[list[pytest.Item]]()
"""All tests, in a run of the whole suite."""

COUNTS: Final = pytest.StashKey[tuple[int, int]]()
"""The number of tests in the sample and of all tests, where a sample runs."""

STARTED: Final = pytest.StashKey[float]()
"""The seconds that its process had taken when a test began."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write expected printed forms anew instead of comparing"
    )
    parser.addoption("--all", action="store_true", help="run all tests, not the sample of a plain run")
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="as --all, and run what takes minutes inside a test in place of a sample of it",
    )
    parser.addoption(
        "--sample", action="store_true", help="run a sample of the files or tests that are named"
    )
    parser.addoption(
        "--op",
        action="append",
        default=[],
        metavar="NAME",
        help="run the tests that have this op or function of NumPy's as an argument; may be repeated",
    )
    parser.addoption("--write-durations", action="store_true", help=f"write {DURATIONS.name} anew")
    parser.addoption("--cpu", choices=list(MISSING), help="compile kernels for this CPU")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same random programs in each run: what a change breaks fails, and a kink that is hit by chance does not; set the CPU."""
    settings.register_profile("same", derandomize=True)
    settings.load_profile("default" if config.getoption("--exhaustive") else "same")
    if cpu := config.getoption("--cpu"):
        compile_for(cpu)


def is_whole(config: pytest.Config) -> bool:
    """Return whether a run names no files, tests or keywords: one that does runs all that it names."""
    paths = {Path(str(arg)).resolve() for arg in config.args}
    return paths <= {TESTS, TESTS.parent} and not (config.option.keyword or config.option.markexpr)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the sample of a plain run."""
    if is_whole(config):
        config.stash[COLLECTED] = list(items)
    if ops := set(config.getoption("--op")):
        keep(config, items, [item for item in items if ops & tested_names(item)])
    elif config.getoption("--sample") or (is_whole(config) and not runs_all(config)):
        chosen = sample(items, Durations.load())
        config.stash[COUNTS] = len(chosen), len(items)
        if output := getattr(config, "workeroutput", None):
            output["counts"] = config.stash[COUNTS]
        keep(config, items, chosen)


def runs_all(config: pytest.Config) -> bool:
    """Return whether an option asks for all tests."""
    return bool(config.getoption("--all") or config.getoption("--exhaustive"))


def keep(config: pytest.Config, items: list[pytest.Item], chosen: list[pytest.Item]) -> None:
    """Keep the chosen tests, and report the others as deselected."""
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the counts of the sample from a process of pytest-xdist."""
    if counts := getattr(node, "workeroutput", {}).get("counts"):
        node.config.stash[COUNTS] = tuple(counts)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins."""
    item.stash[STARTED] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Tell the first process of pytest-xdist how long a test took."""
    report = yield
    if report.when == "teardown" and STARTED in item.stash:
        report.user_properties.append(("processor_seconds", processor_seconds() - item.stash[STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which part of the tests ran; write how long they took."""
    if config.getoption("--write-durations"):
        measured = {
            report.nodeid: seconds
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, seconds in getattr(report, "user_properties", ())
            if name == "processor_seconds"
        }
        DURATIONS.write_text(Durations.load().text(measured))
    if counts := config.stash.get(COUNTS, None):
        some, every = counts
        terminalreporter.write_line(
            f"This run was a sample of {some:,} of {every:,} tests, with tests for each op, pass, way and page. "
            "All tests: python -m pytest -n auto --all"
        )


@pytest.fixture(scope="module")
def others_set_aside() -> Iterator[None]:
    """Let collections of cycles pass over what describes the tests and what others have left: each takes 0.8 s otherwise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def loops_are_traced() -> Iterator[None]:
    """Run functions as they stand: code that needs numbers is compiled otherwise, and raises no error."""
    with config.override(loops="trace"):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file in the folder `golden` beside the test, or write it there."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text + "\n")
        assert path.exists(), f"{path.name} is missing: run pytest --update-golden"
        assert text + "\n" == path.read_text(), (
            f"{path.name} differs; if it should, run pytest --update-golden"
        )

    return compare


@pytest.fixture
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether all cases are to run, and not a sample of them."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture
def no_trace() -> Iterator[None]:
    """Let rows and functions stand alone: numbers are known of constants only, and functions of the user's see values."""
    numbers, call = HOOKS.numbers, HOOKS.call
    HOOKS.numbers = lambda value: value.data
    HOOKS.call = lambda function, *args, **kwargs: function(*args, **kwargs)
    yield
    HOOKS.numbers, HOOKS.call = numbers, call


@pytest.fixture(autouse=True)
def no_place_left_over() -> None:
    """Nodes made by hand belong to no line of a test that ran before."""
    here.site = None


@pytest.fixture(autouse=True)
def no_shared_programs() -> None:
    """Functions that a test makes share no programs with those of a test that ran before: each test counts its own traces."""
    sharing.clear()


@pytest.fixture(autouse=True)
def no_observers() -> None:
    """Debuggers in reference cycles of earlier tests would keep the loops of a test from being rolled."""
    OBSERVERS.clear()
