"""The corpus: its table, the scheme that judges derivatives, processes that crash and hang, and the page that is made of the results."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.packages import results as stored
from tests.packages.differences import agrees, slopes
from tests.packages.page import PAGE, WORDS, page
from tests.packages.run import measure
from tests.packages.table import Package, package
from tests.packages.trades import PACKAGES, SAMPLE, TRADES

FEWEST = 5
"""Calls of a package."""


@pytest.mark.parametrize("name", PACKAGES)
def test_rows_are_programs(name: str) -> None:
    row = PACKAGES[name]
    compile(row.module, name, "exec")
    assert len({call.program for call in row.calls}) == len(row.calls) >= FEWEST
    for call in row.calls:
        p = eval(call.at, {"np": np, "rng": np.random.default_rng(7)})
        assert isinstance(p, np.ndarray) and p.dtype == float and p.size


def test_a_package_is_in_one_trade() -> None:
    assert sum(map(len, TRADES.values())) == len(PACKAGES)
    assert set(SAMPLE) <= set(PACKAGES)


def test_results_are_those_of_the_table() -> None:
    assert {
        name: (package["version"], list(package["calls"]))
        for name, package in stored.load()["packages"].items()
    } == {name: (row.version, [call.program for call in row.calls]) for name, row in PACKAGES.items()}


def test_the_page_is_made_of_the_results() -> None:
    assert PAGE.read_text() == page(stored.load()), "python -m tests.packages --write"


def test_results_are_stored_as_they_are() -> None:
    assert stored.text(stored.load()) == stored.PATH.read_text()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t: math.sin(3 * t), 3.0),
        (lambda t: math.log(1e-3 + t), 1e3),  # not defined at most steps
        (lambda t: math.sin(2e5 * t), 2e5),  # aliased at large steps
        (lambda t: round(math.exp(t), 9), 1.0),  # an iteration that stops early
        (lambda t: max(t, -1e-4), 1.0),  # a branch that large steps leave
        (lambda t: 5.0, 0.0),
    ],
)
def test_right_derivatives_agree_with_differences(
    function: Callable[[float], float], expected: float
) -> None:
    found = slopes(function)
    assert agrees(expected, found, 0.0)
    assert not agrees(1.1 * expected + 0.1, found, 0.0)


def test_a_small_slope_of_a_function_in_single_precision_is_not_called_wrong() -> None:
    def single(t: float) -> float:
        return float(np.float32(1.0 + 1e-9 * t))

    assert not agrees(1e-9, slopes(single), 0.0)  # in steps of rounding the function is constant
    assert agrees(1e-9, slopes(single, float(np.finfo(np.float32).eps)), 0.0)
    assert not agrees(0.5, slopes(lambda t: float(np.float32(t)), float(np.finfo(np.float32).eps)), 0.0)


def test_differences_of_noise_do_not_converge() -> None:
    rng = np.random.default_rng(0)
    found = slopes(lambda t: rng.normal())
    assert agrees(0.0, found, 0.0) or not found


def run(*programs: str, setup: str = "", patience: float = 60.0) -> list[dict[str, dict[str, object]]]:
    """Return the results of calls of no package."""
    return measure(made(*programs, setup=setup), Path(sys.executable), patience=patience)


def made(*programs: str, setup: str = "") -> Package:
    return package("none 0", setup, *((program, [0.5, 2.0]) for program in programs))


def test_results_of_calls() -> None:
    right, wrong, unsupported, raised, explained, hashed = run(
        "np.sin(p) * 2",
        "hidden(p)",
        "np.frompyfunc(abs, 1, 1)(p).astype(float)",
        "other(p)",
        "checked(p)",
        "{p[0]: 2.0}[p[0]] * p",
        setup="""
        import gradtape as gt
        @gt.custom_vjp
        def hidden(p):
            return p * p
        hidden.defvjp(lambda p: (p * p, None), lambda residuals, ct: (ct,))
        def other(p):
            if isinstance(p, gt.Array):
                raise KeyError("what is this?")
            return p
        def checked(p):
            try:
                return other(p)
            except KeyError as error:
                error.add_note("  what to do: nothing")
                raise
        """,
    )
    assert right["jit"]["status"] == right["tape"]["status"] == "right"
    assert wrong["jit"]["status"] == wrong["tape"]["status"] == "wrong"
    assert "instead of" in str(wrong["jit"]["reason"])
    assert unsupported["jit"]["status"] == "refused"
    assert (raised["jit"]["status"], raised["jit"]["error"]) == ("raised", "KeyError")
    assert (explained["jit"]["status"], explained["jit"]["error"]) == ("refused", "KeyError")
    assert (hashed["jit"]["status"], hashed["jit"]["error"]) == ("refused", "TypeError")


def test_a_crash_and_a_hang_are_results_and_the_next_call_runs() -> None:
    crash, hang, last = run(
        "os.abort() if isinstance(p, gt.Array) else p",
        "time.sleep(1000) if isinstance(p, gt.Array) else p",
        "p * 2",
        setup="import os, time\nimport gradtape as gt",
        patience=20.0,
    )
    assert (crash["jit"]["status"], crash["jit"]["reason"]) == ("crashes", "crashes: SIGABRT")
    assert hang["jit"]["status"] == "hangs"
    assert last["tape"]["status"] == "right"


def test_a_package_that_fails_by_itself_does_not_count() -> None:
    (result,) = run("p", setup="import no_such_module")
    assert result["plain"]["status"] == "fails" and "jit" not in result
    (result,) = run("p.no_such_method()")
    assert result["plain"]["status"] == "fails"


def test_the_page_says_what_is_not_right() -> None:
    way = {"status": "refused", "error": "ConcretizationError", "reason": "a *traced* array"}
    call = {"plain": {"status": "runs", "microseconds": 2.0}, "jit": way, "tape": {"status": "right"}}
    name = next(iter(PACKAGES))
    text = page(
        {"environment": {"numpy": "2"}, "packages": {name: {"version": "1", "calls": {"f(p)": call}}}}
    )
    assert "- `f(p)`: compiled refused (ConcretizationError: a \\*traced\\* array)." in text
    assert set(WORDS) >= {"wrong", "warned", "crashes", "hangs"}
