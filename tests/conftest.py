"""Options and fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

os.environ.setdefault(
    "GRADTAPE_VERIFY", "1"
)  # read when gradtape is imported, also by programs that tests start

import pytest
from hypothesis import settings

from gradtape.config import config
from gradtape.ir.builder import here
from gradtape.kinds.registry import HOOKS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write expected printed forms anew instead of comparing"
    )
    parser.addoption(
        "--exhaustive", action="store_true", help="run what takes minutes in place of a sample of it"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same random programs in each run: what a change breaks fails, and a kink that is hit by chance does not."""
    settings.register_profile("same", derandomize=True)
    settings.load_profile("default" if config.getoption("--exhaustive") else "same")


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
