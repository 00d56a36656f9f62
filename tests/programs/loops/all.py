"""All programs: importing the modules enters them into the table."""

from __future__ import annotations

from tests.programs.loops import (  # noqa: F401 - they enter their programs
    dynamics,
    finance,
    grids,
    iterations,
    linear_algebra,
    parallel,
    recurrences,
)
from tests.programs.loops.cases import PROGRAMS

__all__ = ["PROGRAMS"]
