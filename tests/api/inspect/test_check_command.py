"""``python -m gradtape check``: one page of what a script loses, each with its line and what to do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import sys
import numpy as np
import gradtape as gt

"""

CLEAN = """
f = gt.value_and_grad(lambda x: np.sum(np.sin(x) * x))
f(np.ones(10)), f(np.full(10, 2.0))
"""

CASES: dict[str, tuple[str, str, str, str]] = {
    "integer": (
        "gt.grad(lambda x: np.sum(x) + np.sum(x.astype(int)))(np.array([1.5]))",
        "derivative",
        "converted to int64",
        "floats",
    ),
    "zero": ("gt.grad(lambda x: np.sum(np.round(x)))(np.array([1.2]))", "derivative", "rint", "nonzero derivative"),
    "none": (
        "with gt.GradientTape() as tape: x = tape.watch(1.0); y = gt.constant(2.0) * int(x)\ntape.gradient(y, x)",
        "derivative",
        "a gradient is None",
        "stay with Arrays",
    ),
    "number": (
        "with gt.GradientTape() as tape: x = tape.watch(1.2345); s = float(x); y = x * s\ntape.gradient(y, x)",
        "derivative",
        "left the tape through float(x)",
        "gt.stop_gradient",
    ),
    "not finite": ("gt.grad(lambda x: np.sqrt(x))(0.0)", "number", "inf", "above zero"),
    "kink": ("gt.grad(lambda x: np.abs(x) + 0.5 * x + 2 * x)(0.0)", "kink", "slope is 1.5 before and 3.5 after", "smooth"),
    "jump": ("gt.grad(lambda x, k: x + np.floor(x) * k)(2.0, 1.0)", "kink", "jump", "smooth"),
    "digits": ("gt.jit(gt.grad(lambda x: (1 - np.cos(x)) / x**2))(1e-7)", "digits", "subtract loses", "2*np.sin(x/2)**2"),
    "types": ("f = gt.jit(lambda x: x * 2)\nf(np.ones(2)), f(np.ones(3))", "recompile", "(float64[3]), before (float64[2])", "shapes="),
    "branch": (
        "f = gt.jit(lambda x: x if x > 0 else -x)\nf(1.0), f(-1.0)",
        "recompile",
        "a guard expects 1 and found 0",
        "np.where",
    ),
    "capture": (
        "name = 'a'\nf = gt.jit(lambda x: x * len(name))\nf(1.0)\nname = 'ab'\nf(1.0)",
        "recompile",
        "the global 'name', which it reads from outside",
        "argument",
    ),
    "limit": (
        "gt.config.effects = 'run'\nf = gt.jit(lambda x: print('said') or x)\nf(1.0)",
        "compile",
        "op by op",
        "gt.config.effects",
    ),
    "callback": (
        "f = gt.jit(lambda x: gt.callback(np.sort, x, x))\nf(np.ones(3)), f(np.ones(3))",
        "callback",
        "a function of Python is called back",
        "NumPy",
    ),
    "clock": ("import time\ngt.jit(lambda x: x * time.time())(1.0)", "effect", "time", "outside the function"),
}  # fmt: skip


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradtape", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[subprocess.CompletedProcess[str], Any]]:
    """What is found in each case: all in one process, as modules of a script would be."""
    folder = tmp_path_factory.mktemp("check")
    results = {}
    for name, (code, *_) in CASES.items():
        (folder / "work.py").write_text(HEAD + code + "\n")
        done = command("--json", "-o", f"{name}.json", "work.py", cwd=folder)
        results[name] = done, json.loads((folder / f"{name}.json").read_text())
    return results


@pytest.mark.parametrize("case", CASES)
def test_each_loss_is_found_with_its_line_and_remedy(found: Any, case: str) -> None:
    code, kind, what, remedy = CASES[case]
    done, report = found[case]
    assert done.returncode == 1 and report["skipped"] == []
    own = [each for each in report["findings"] if each["kind"] == kind and what in each["what"] + each["why"]]
    assert len(own) == 1, report["findings"]
    (finding,) = own
    assert remedy in finding["remedy"]
    assert finding["filename"].endswith("work.py")
    assert HEAD.count("\n") < finding["line"] <= (HEAD + code).count("\n") + 1
    timed = kind in ("recompile", "compile", "callback")
    assert (finding["seconds"] is not None) == timed
    if case == "limit":
        assert done.stdout == "said\n"


def test_a_script_that_loses_nothing_ends_well(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(HEAD + CLEAN + "print(sys.argv[1:])\n")
    done = command("work.py", "--json", "x", cwd=tmp_path)
    assert done.returncode == 0 and "--json comes after work.py, so it is passed to the script" in done.stderr
    said, head = done.stdout.splitlines()
    assert said == "['--json', 'x']" and head.startswith("check of work.py: 0 findings in ")
    done = command("-m", "work", cwd=tmp_path)
    assert done.returncode == 0 and "0 findings" in done.stdout


def test_the_page_names_what_may_be_wrong_before_what_takes_time(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        HEAD + CASES["types"][0] + "\n" + CASES["kink"][0] + "\nraise ValueError('as asked')\n"
    )
    done = command("work.py", cwd=tmp_path)
    assert (
        done.returncode == 1
        and done.stderr.endswith("ValueError: as asked\n")
        and "gradtape" not in done.stderr
    )
    kinks, again = done.stdout.index("\nkinks and jumps\n"), done.stdout.index("\ncompiled again (")
    assert kinks < again
    assert "work.py:8  gt.grad(lambda x: np.abs(x) + 0.5 * x + 2 * x)(0.0)" in done.stdout
    assert "what to do: change the arguments" in done.stdout


def test_findings_of_one_line_are_one_entry(tmp_path: Path) -> None:
    code = "f = gt.jit(lambda x: x * 2)\nfor n in range(2, 9): f(np.ones(n))\n"
    loops = "g = lambda x: gt.while_loop(lambda y: y < 10, lambda y: y * 2 + x, x)\nfor k in range(3): gt.grad(lambda x, k=k: g(x))(1.0)\n"
    (tmp_path / "work.py").write_text(HEAD + code + loops)
    done = command("work.py", cwd=tmp_path)
    assert "check of work.py: 1 finding in " in done.stdout
    assert "; and 5 findings more like it on this line\n" in done.stdout
    assert done.stdout.count("what to do: pass arrays") == 1
    assert done.stdout.count("were not checked") == 1 and done.stdout.rstrip().endswith("(3 times)")


def test_loops_that_would_take_long_op_by_op_are_left_out_and_said(tmp_path: Path) -> None:
    code = "gt.grad(lambda x: gt.while_loop(lambda y: y < 10, lambda y: y * 2 + np.abs(x), x))(1.0)\n"
    (tmp_path / "work.py").write_text(HEAD + code)
    done = command("work.py", cwd=tmp_path)
    assert done.returncode == 0 and "grad(<lambda>) were not checked" in done.stdout


def test_the_scripts_own_exit_status_and_interrupts_are_kept(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(HEAD + CLEAN + "sys.exit(7)\n")
    assert command("work.py", cwd=tmp_path).returncode == 7
    (tmp_path / "wait.py").write_text(
        HEAD + CLEAN + "print('ready', flush=True)\nimport time\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "gradtape", "check", "wait.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130 and "check of wait.py: 0 findings" in out and "KeyboardInterrupt" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.py",), "python -m gradtape check script.py"),
        (("folder",), "folder is a folder"),
        (("cells.ipynb",), "jupyter nbconvert --to script cells.ipynb"),
        (("-m", "no.such.module"), "no module to check"),
        (("-o", "nowhere/x", "work.py"), "cannot be written to nowhere/x"),
        ((), "required: script"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "work.py").write_text("print('hello')")
    (tmp_path / "cells.ipynb").write_text("{}")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""


def test_a_script_without_compiled_functions_has_nothing_to_check(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("print('hello')")
    done = command("work.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "hello\n"
    assert "nothing to check in work.py" in done.stderr and "@gt.jit" in done.stderr
