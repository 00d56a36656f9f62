"""``gt.inspect.open`` and ``python -m gradtape inspect``: what they write, and what they say of wrong input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError

SCRIPT = """
import sys, numpy as np, gradtape as gt

def loss(x, power):
    return np.sum(x**power)

@gt.jit
def double(x):
    return x * 2

def unused(x):
    return x

number = 3
if "quiet" not in sys.argv:
    slope = gt.grad(loss)
    slope(np.ones(5), 3)
    double(np.ones(5))
if "raise" in sys.argv:
    raise ValueError("as asked")
"""


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradtape", "inspect", "--no-open", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(SCRIPT)
    return tmp_path


def test_the_command_writes_a_page_of_what_ran(script: Path) -> None:
    done = command("work.py:loss", "raise", cwd=script)
    assert done.returncode == 1 and done.stdout == "wrote work.inspect.html\n"
    assert done.stderr.endswith("ValueError: as asked\n") and "gradtape" not in done.stderr
    page = (script / "work.inspect.html").read_text()
    assert (
        "grad(loss)" in page and "double" in page and "ValueError: as asked" in page
    )  # double is in the source
    assert '"name":"double"' not in page and '"title":"loss in work.py"' in page


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("nowhere.py",), 2, "there is no script to inspect: nowhere.py does not exist"),
        (("-o", "nowhere/x", "work.py"), 2, "the page cannot be written to nowhere/x"),
        (("work.py", "quiet"), 1, "there is nothing to show of work.py"),
        (("work.py:los",), 1, "did you mean loss?"),
        (("work.py:unused",), 1, "call it in the script with its arguments: gt.jit(unused)(...)"),
        (("work.py:number",), 1, "number in work.py is no function"),
    ],
)
def test_the_command_says_what_is_wrong(
    script: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = command(*arguments, cwd=script)
    assert done.returncode == status and message in done.stderr
    assert not list(script.glob("*.html"))


def test_a_function_is_opened_and_refreshed(tmp_path: Path) -> None:
    double = gt.jit(lambda x: np.sin(x) * 2)
    page = gt.inspect.open(double, np.zeros(3), path=tmp_path / "page.html", show=False)
    assert page.result.tolist() == [0, 0, 0] and page.url == (tmp_path / "page.html").as_uri()
    before = (tmp_path / "page.html").read_text()
    page.refresh(np.zeros(4))
    assert '"signature":"(f64[4]' in (tmp_path / "page.html").read_text()
    assert '"signature":"(f64[4]' not in before
    with gt.inspect.open(double, np.zeros(3), serve=True, show=False) as live:
        assert live.url.startswith("http://127.0.0.1:") and live.path is None
        server = live._server
        live.refresh(np.zeros(5))
        assert server is not None and '"signature":"(f64[5]' in server.page()
    assert live._server is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: gt.inspect.open(np.sin, 1.0), "which is not a compiled function"),
        (lambda f: gt.inspect.open(f, 1.0, path=os.path.join("no", "such", "place")), "cannot be written to"),
        (lambda f: gt.inspect.open(f, 1.0, path="x", serve=True), "serve=True and a path"),
    ],
)
def test_open_says_what_is_wrong(call, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(gt.jit(lambda x: x * 2))


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        gt.inspect.open(gt.jit(lambda x, y: x * y), 1.0, show=False)
    assert "profile of" in str(gt.inspect.profile())  # none is left active
