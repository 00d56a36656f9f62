"""The choice between two values, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import BOOL
from gradtape.kinds.elementwise import Elementwise, Instruction, Parts, elementwise, result_dtype
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.elementwise.logic import logical_not
from gradtape.ops.core.shift_rules import selection


def _where_dtypes(c: Any, a: Any, b: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    out = result_dtype(a, b)
    return (BOOL, out, out), out


def complex_where(c: Value, x: Parts, y: Parts) -> Parts:
    return where(c, x[0], y[0]), where(c, x[1], y[1])


where: Elementwise = elementwise(
    "where",
    np.where,
    body=Instruction(real="select", signed="select", unsigned="select", boolean="select"),
    complex_body=complex_where,
    tangents=(
        None,
        lambda d, z, c, a, b: where(c, d, zeros_like(d)),
        lambda d, z, c, a, b: where(c, zeros_like(d), d),
    ),
    transpose=(None, lambda ct, c, a, b: ct, lambda ct, c, a, b: ct),
    confine=(None, lambda c, a, b: c, lambda c, a, b: logical_not(c)),
    additive=(1, 2),
    finite_derivatives=True,
    dtypes=_where_dtypes,
    domain=((-1.0, 1.0), (-3.0, 3.0), (-3.0, 3.0)),
    edges=((True, 1.0, np.nan), (False, np.inf, 2.0)),
    kinks="the branch that is not selected has no influence",
    shift=selection,
)

PRIMITIVES["where"] = where
