"""What the first call of a process costs: counts of collections, modules, compilations and readings of code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.lower.resident import routine
from gradtape.lower.resident.routine import load_resident
from gradtape.runtime.compile.disk import cache_path, remembered
from gradtape.trace.jit.captures import functions
from gradtape.trace.source.sites import is_user_file
from tests.support.processes import run_python

PROGRAM = """
import gc, json, sys
import numpy as np
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]) if phase == "start" else None)
before = set(sys.modules)
import gradtape as gt
slow = ("importlib.resources", "tempfile", "llvmlite", "scipy")
early = [name for name in slow if name in set(sys.modules) - before]
from gradtape.lower.resident import routine
parsed = []
parse = routine.parse_module
routine.parse_module = lambda *args: (parsed.append(1), parse(*args))[1]
collections, young = len(seen), gc.get_count()[0]
frozen, enabled = gc.get_freeze_count(), gc.isenabled()
gt.grad(lambda x: np.sum(np.sin(x) ** 2))(np.arange(5.0))
early += [name for name in sys.modules if name == "gradtape.passes.procedures.pipeline"]
print(json.dumps([collections, young, frozen, enabled, len(parsed), early]))
"""


def test_the_first_gradient_makes_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """The collector does not run while gradtape is imported, and has nothing to look at afterwards; routines are compiled once."""
    counts = [
        json.loads(run_python(PROGRAM, GRADTAPE_CACHE_DIR=str(tmp_path)).stdout.splitlines()[-1])
        for _ in range(2)
    ]
    for collections, young, frozen, enabled, _, early in counts:
        assert collections <= 12  # those of other packages, which are imported before
        assert young < 5000
        assert frozen == 0
        assert enabled
        assert early == []
    assert counts[0][4] >= 2
    assert counts[1][4] == 0


def test_routines_are_compiled_anew_where_the_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Any] = []
    parse = routine.parse_module
    monkeypatch.setattr(routine, "parse_module", lambda *args: (parsed.append(1), parse(*args))[1])

    def load(result: int) -> None:
        load_resident(f"define i32 @number() {{ ret i32 {result} }}", f"number{len(parsed)}", ["number"])

    with gt.config.override(cache_dir=str(tmp_path), disk_cache=True):
        load(7)
        load(7)
        assert len(parsed) == 1
        load(8)
        assert len(parsed) == 2
        (path, *_) = cache_path().glob("routines-*")
        for file in cache_path().glob("routines-*"):
            file.write_bytes(b"no code")
        load(7)
        assert len(parsed) == 3
        assert path.exists()
    with gt.config.override(disk_cache=False):
        load(7)
        load(7)
    assert len(parsed) == 5


@pytest.mark.skipif(os.name != "posix", reason="folders have other rights on Windows")
def test_what_others_can_write_is_not_remembered(tmp_path: Path) -> None:
    with gt.config.override(cache_dir=str(tmp_path), disk_cache=True):
        assert remembered("routines-1", lambda: b"first") == b"first"
        assert remembered("routines-1", lambda: b"second") == b"first"
        cache_path().chmod(0o777)
        assert remembered("routines-1", lambda: b"second") == b"second"


def test_code_of_gradtape_is_not_read_for_names(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    reads_of = functions.reads_of
    monkeypatch.setattr(functions, "reads_of", lambda code: (read.append(code), reads_of(code))[1])
    scale = 3.0
    assert gt.grad(lambda x: scale * np.sum(x))(np.ones(2)).tolist() == [3.0, 3.0]
    assert read
    assert all(is_user_file(code.co_filename) for code in read)


@pytest.mark.parametrize("count", [40, 200])
def test_what_loops_read_is_stacked_once(count: int) -> None:
    """Each number of a list is a leaf: to make a row of each is no loop, whose stack would be made by a loop again."""
    numbers = list(np.linspace(0.1, 2.0, count))

    def f(x: Any) -> Any:
        total = 0.0
        for c in numbers:
            total = total + np.sin(x * c)
        return total

    text = str(gt.inspect.graph(gt.jit(f), 0.5))
    assert sum(line.strip().startswith("for ") for line in text.splitlines()) == 1
    expected = sum(c * np.cos(0.5 * c) for c in numbers)
    np.testing.assert_allclose(gt.grad(f)(0.5), expected, rtol=1e-12)


def test_lists_of_numbers_are_stacked_once_in_comprehensions() -> None:
    xs, ys = (list(np.linspace(0.0, high, 100)) for high in (5.0, 7.0))

    def nearest(s: Any) -> Any:
        dx = [s[0] - x for x in xs]
        dy = [s[1] - y for y in ys]
        return np.min(np.hypot(dx, dy))

    point = np.array([1.0, 2.0])
    text = str(gt.inspect.graph(gt.jit(nearest), point))
    assert sum(line.strip().startswith("for ") for line in text.splitlines()) <= 2
    value, gradient = gt.value_and_grad(nearest)(point)
    assert value == nearest(point)
    offsets = point - np.stack([xs, ys], 1)
    chosen = offsets[np.argmin(np.hypot(*offsets.T))]
    np.testing.assert_allclose(gradient, chosen / np.hypot(*chosen), rtol=1e-12)
