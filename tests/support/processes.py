"""Programs that run in a Python process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that finds the modules that this one finds."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def words_printed(code: str, *arguments: str) -> list[str]:
    """Run a program that must succeed, and return the words that it prints."""
    done = run_python(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
