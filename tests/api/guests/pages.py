"""The programs of the page about other frameworks, which tests run where the framework is installed."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "other-frameworks.md"
FRAMEWORKS = ("numpyro", "pymc", "jax", "torch", "casadi")
"""A program is about the first of these that it imports."""
PROGRAM = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def check_programs(framework: str) -> None:
    """Run the programs that import a framework and compare what they print with the page."""
    programs = [
        program
        for program in PROGRAM.findall(PAGE.read_text())
        if framework
        == next(
            name
            for name in FRAMEWORKS
            if f"import {name}\n" in program[0] or f"import {name} as" in program[0]
        )
    ]
    assert programs
    for program, output in programs:
        namespace: dict[str, Any] = {}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(PAGE), "exec"), namespace)
        assert printed.getvalue() == output
