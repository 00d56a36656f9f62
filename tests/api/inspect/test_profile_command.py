"""``python -m gradtape profile``: scripts run as Python would run them, with a profile at their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, threading, numpy as np, gradtape as gt

f = gt.value_and_grad(lambda x: np.sum(np.sin(x) * x))

def main():
    print("arguments", sys.argv[1:])
    f(np.ones(1000))
    threading.Thread(target=lambda: [f(np.ones(1000)) for _ in range(3)]).start()
    if "raise" in sys.argv:
        raise ValueError("as asked")
    sys.exit("stopped" if "exit" in sys.argv else 0)

if __name__ == "__main__":
    main()
"""


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradtape", "profile", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(SCRIPT)
    return tmp_path


def test_the_command_profiles_a_script(script: Path) -> None:
    done = command("work.py", "--json", "-o", "x", cwd=script)
    assert done.returncode == 0
    assert done.stderr.startswith("gradtape: --json comes after work.py, so it is passed to the script")
    assert done.stdout.startswith("arguments ['--json', '-o', 'x']\nprofile of ")
    assert "value_and_grad(<lambda>)  work.py:4" in done.stdout and "np.sum(np.sin(x) * x)" in done.stdout
    assert "4 runs of" in done.stdout


def test_the_command_writes_json(script: Path) -> None:
    done = command("--json", "--sort", "calls", "-o", "out.json", "-m", "work", "raise", cwd=script)
    assert done.returncode == 1 and done.stdout == "arguments ['raise']\n"
    assert done.stderr.startswith("Traceback") and done.stderr.endswith("ValueError: as asked\n")
    assert "gradtape" not in done.stderr
    found = json.loads((script / "out.json").read_text())
    assert [(f["name"], f["calls"]) for f in found["functions"]] == [("value_and_grad(<lambda>)", 4)]


def test_the_command_ends_as_the_script_does(script: Path) -> None:
    done = command("work.py", "exit", cwd=script)
    assert done.returncode == 1 and done.stderr == "stopped\n" and "4 runs of" in done.stdout
    done = command("work.py", "raise", cwd=script)
    assert done.returncode == 1 and "4 runs of" in done.stdout
    assert "runpy" not in done.stderr and "gradtape" not in done.stderr and "main()" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.py",), "nowhere.py does not exist"),
        (("folder",), "folder is a folder"),
        (("-m", "no.such.module"), "no.such.module cannot be found"),
        (("-o", "nowhere/x", "work.py"), "cannot be written to nowhere/x"),
        (("--sort", "size", "work.py"), "invalid choice"),
        ((), "required: script"),
    ],
)
def test_the_command_says_what_is_wrong(script: Path, arguments: tuple[str, ...], message: str) -> None:
    (script / "folder").mkdir()
    done = command(*arguments, cwd=script)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
