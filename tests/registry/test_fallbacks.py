"""Every row in every dtype has a kernel: what Python computes inside a kernel is listed here, so that no row loses its kernel unnoticed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from gradtape.errors import GradtapeError
from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.kinds.elementwise import Elementwise, SciPy
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback
from gradtape.lower.pipeline import lower
from tests.support.lowering import graph_of
from tests.support.registry_cases import samples_of

SIGNED: Final = ("int8", "int16", "int32", "int64")
INTEGERS: Final = (*SIGNED, "uint8", "uint16", "uint32", "uint64")

WITHOUT_A_KERNEL: Final[dict[str, tuple[str, ...]]] = {
    "gcd": INTEGERS,
    "lcm": INTEGERS,
    "power": SIGNED,
}
"""Rows that Python computes, for operands of these dtypes."""

REAL: Final = "?bhilqBHILQfd"
COMPLEX: Final = "FD"


def combinations(row: Any, codes: str) -> list[tuple[list[Value], list[Value]]]:
    """Return operands and results of a row for each dtype, parameter and sample that NumPy takes."""
    found = []
    if isinstance(row, Elementwise):
        mixed = [code for code in row.dtype_samples if len(code) > 1 and set(code) <= set(codes + REAL)]
        for code in dict.fromkeys([*[code * row.arity for code in codes], *mixed]):
            for params in row.params:
                inputs = [Value(aval((5,), np.dtype(char))) for char in code]
                arrays = [np.ones(5, char) for char in code]
                found.append((inputs, arrays, params))
    else:
        for code in codes:
            for shapes, indices, params in samples_of(row):
                arrays = [np.ones(shape, code) for shape in shapes] + [np.asarray(index) for index in indices]
                found.append(([Value(aval(x.shape, x.dtype)) for x in arrays], arrays, params))
    calls = []
    for inputs, arrays, params in found:
        try:
            if not isinstance(row, Elementwise):  # whose dtypes are those of ufuncs
                row.evaluate(arrays, params)
            results = row.results(*inputs, **params) if hasattr(row, "results") else row(*inputs, **params)
        except (TypeError, ValueError, LookupError, GradtapeError):
            continue  # NumPy does not take such operands
        outs = list(results) if isinstance(results, tuple) else [results]
        if not any(
            x.dtype == np.float16 for x in (*inputs, *outs, *operands_of(outs))
        ):  # of booleans: kernels have no float16
            calls.append((inputs, outs))
    return calls


def operands_of(outs: list[Value]) -> list[Value]:
    return [x for out in outs if out.node is not None for x in out.node.inputs]


def compiled(row: Any, codes: str) -> set[tuple[str, str]]:
    """Compile a row in all dtypes, and return what Python computes: rows, with the dtypes of their operands."""
    calls = combinations(row, codes)
    if not calls:
        return set()
    graph = graph_of([x for inputs, _ in calls for x in inputs], [x for _, outs in calls for x in outs])
    return {(name, dtype) for name, dtypes in lower(graph).fallbacks for dtype in dtypes}


def rows() -> list[str]:
    return [name for name, row in ROWS.items() if not isinstance(row, Callback)]


NARROW: Final = {
    **dict.fromkeys(("ceil_real", "floor_real", "trunc_real"), "fd"),
    "cumlogaddexp": "fd",
    "ones_in": "bhilqBHILQ",
    "quotient": "bhilqBHILQ",
    **dict.fromkeys(("reduce_any", "reduce_all"), "?"),
}
"""Rows that are only recorded with operands of these dtypes."""

SLOPES: Final = ("exp2_slope", "expit_slope", "inverse_of_one_plus_square", "odds_gap", "sech_squared")
"""Derivatives of functions of real numbers."""

REAL_ONLY: Final = (*NARROW, *SLOPES, "from_parts", "inverse_mills", "pow_real", "polygamma", "root")
"""Rows that are only recorded with real operands."""


@pytest.mark.parametrize("name", rows())
def test_real_numbers(name: str) -> None:
    codes = NARROW.get(name, REAL)
    expected = {(name, dtype) for dtype in WITHOUT_A_KERNEL.get(name, ())}
    assert compiled(ROWS[name], codes) == expected


def takes_complex(name: str) -> bool:
    """Return whether a row may be recorded with complex operands: parts of results and random numbers are not."""
    row: Any = ROWS[name]
    takes_parts = isinstance(row, Elementwise) and (
        (isinstance(row.body, SciPy) and "D" in row.body.loop) or row.is_sample
    )
    return name not in REAL_ONLY and not takes_parts


@pytest.mark.parametrize("name", list(filter(takes_complex, rows())))
def test_complex_numbers(name: str) -> None:
    assert compiled(ROWS[name], COMPLEX) == set()
