"""Write docs/reference/kinks.md from the rows: what the derivative is where there is none. Run it when rows change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.matrix import Matrix
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS

PAGE = Path(__file__).parent / "reference" / "kinks.md"

HEAD = """\
# Kinks

Where a function has no derivative, or several, gradtape settles on one value. This page is written by
`docs/make_kinks.py` from the facts that stand with each function in `gradtape/ops`; tests hold them to be
true in forward and in reverse mode.

A choice, such as `np.where(c, a, b)`, never lets the branch that was not taken touch the derivative: one that
is infinite or NaN there does no harm.

## Conventions

| function | derivative |
|---|---|
"""

POINTS = """
## Derivatives at single points

One number per argument: the partial derivative in it.

| function | at | partial derivatives |
|---|---|---|
"""


def name_of(row: Any) -> str:
    """Return the name under which a user knows a row."""
    name = row.name.removeprefix("reduce_")
    if name in dir(np):
        return f"np.{name}"
    if name in dir(np.linalg):
        return f"np.linalg.{name}"
    if name in dir(scipy.special):
        return f"scipy.special.{name}"
    return str(name)


def number(value: Any) -> str:
    return f"{float(value):.6g}"


def page() -> str:
    """Return the text of the page."""
    known = [row for row in ROWS.values() if isinstance(row, Elementwise | Reduction | Cumulative | Matrix)]
    rows = sorted([row for row in known if row.kinks], key=name_of)
    lines = [f"| `{name_of(row)}` | {row.kinks} |" for row in rows]
    points = [
        f"| `{name_of(row)}` | {', '.join(map(number, at))} | {', '.join(map(number, slopes))} |"
        for row in rows
        if isinstance(row, Elementwise)
        for at, slopes in row.slopes
    ]
    return HEAD + "\n".join(lines) + "\n" + POINTS + "\n".join(points) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
