"""Write docs/reference/kinks.md, the derivatives at non-differentiable points, from the rows. Run it when rows change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix

PAGE = Path(__file__).parent / "reference" / "kinks.md"

HEAD = """\
# Kinks

This page lists the derivative that gradtape returns at points where a function has no derivative, or several.
`docs/make_kinks.py` writes the page from the rows in `gradtape/ops`. Tests check each entry in forward and in
reverse mode.

In a selection, such as `np.where(c, a, b)`, the branch that is not selected does not affect the derivative, also
if a derivative before or behind the selection is infinite or NaN. The same holds for elements that are overwritten or
not read, and for constants that are joined with other elements. Forward and reverse mode agree on this.

The square of a function with a kink, such as `np.linalg.norm(x) ** 2` or `np.abs(x) ** 2`, is differentiated as a
smooth function: its second derivative at the kink is right. Kinks that cancel only together, as in
`(np.max(x) - np.min(x)) ** 2`, `(x * np.sign(x)) ** 2` or a sum of `np.outer(np.abs(x), np.abs(x))`, have the second
derivative of the chain rule, which is 0 there.

Where an argument is infinite, forward mode multiplies the infinity by each tangent, and 0 times infinity is NaN: `gt.jvp` and `gt.jacfwd`
of `np.linalg.det`, `np.kron` or `np.cumprod` can be NaN where `gt.jacrev` has a number, and the other way around
([ADR 176](../adr/0176-products-with-infinities.md)).

Elements that tie share the derivative of NumPy's reductions, such as `np.max`. Python's `max` and `min`, and code such as
`if x[i] > best: best = x[i]`, choose one element, and the derivative is that of this element.

## Conventions

| function | derivative |
|---|---|
"""

POINTS = """
## Derivatives at single points

The last column has one partial derivative per argument; derivatives with respect to integers are refused.

| function | at | partial derivatives |
|---|---|---|
"""


NAMES = {
    "_binom_isf": "scipy.stats.binom.isf",
    "_binom_ppf": "scipy.stats.binom.ppf",
    "_nbinom_isf": "scipy.stats.nbinom.isf",
    "_nbinom_ppf": "scipy.stats.nbinom.ppf",
    "cummax": "np.maximum.accumulate",
    "cummin": "np.minimum.accumulate",
    "eig_pair": "np.linalg.eig",
    "eigh_banded": "scipy.linalg.eig_banded",
    "eigh_by": "scipy.linalg.eigh",
    "eigh_pair": "np.linalg.eigh",
    "eigh_tridiagonal": "scipy.linalg.eigh_tridiagonal",
    "frexp_mantissa": "np.frexp",
    "full_qr": "np.linalg.qr",
    "full_svd": "np.linalg.svd",
    "ldl": "scipy.linalg.ldl",
    "modf_fraction": "np.modf",
    "normal_factor": "np.random.Generator.multivariate_normal",
    "packed_lu": "scipy.linalg.lu_factor",
    "pseudoinverse": "np.linalg.pinv",
    "qr_with_0": "scipy.linalg.qr",
    "qr_with_1": "scipy.linalg.qr",
    "qr_with_2": "scipy.linalg.qr",
    "riccati": "scipy.linalg.solve_continuous_are",
    "root": "np.linalg.norm",
    "schur": "scipy.linalg.schur",
    "schur_of_blocks": "scipy.linalg.schur",
    "stop_gradient": "gt.stop_gradient",
}
"""The public functions of rows that have names of their own."""
INTERNAL = {"below", "masked_product"}
"""Rows for parts of functions, whose kinks no user meets."""


def name_of(row: Any) -> str:
    """Return the name under which a user knows a row."""
    name = row.name.removeprefix("reduce_")
    if name in NAMES:
        return NAMES[name]
    if name in dir(np):
        return f"np.{name}"
    if name in dir(np.linalg):
        return f"np.linalg.{name}"
    if name in dir(scipy.special):
        return f"scipy.special.{name}"
    return str(name)


def number(value: Any) -> str:
    return "refused" if value is None else f"{float(value):.6g}"


def page() -> str:
    """Return the text of the page."""
    known = [
        row
        for row in ROWS.values()
        if isinstance(row, Elementwise | Reduction | Cumulative | Matrix | Callback)
        and row.name not in INTERNAL
    ]
    rows = sorted([row for row in known if row.kinks], key=name_of)
    lines = list(dict.fromkeys(f"| `{name_of(row)}` | {row.kinks} |" for row in rows))
    points = [
        f"| `{name_of(row)}` | {', '.join(map(number, at))} | {', '.join(map(number, slopes))} |"
        for row in rows
        if isinstance(row, Elementwise)
        for at, slopes in row.slopes
    ]
    return HEAD + "\n".join(lines) + "\n" + POINTS + "\n".join(points) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
