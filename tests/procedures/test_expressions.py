"""Every elementwise row prints as Python, which computes what NumPy does, and Numba compiles it to the same."""

import math

import numba
import numpy as np
import pytest

from gradtape.ir.types import aval
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.expansion import expand
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.printer import source_of
from tests.support.registry_cases import cases

CASES = cases()


def operands_of(case):
    """Return random operands and edges, as columns of one length."""
    return [
        np.concatenate([drawn, edges]) for drawn, edges in zip(case.arrays((5,)), case.edges(), strict=True)
    ]


def procedure_of(case, arrays=None):
    """Return a loop over the operands of a row."""
    build = ProcedureBuilder("rows")
    arrays = operands_of(case) if arrays is None else arrays
    size = len(arrays[0])
    inputs = [build.array("x", (size,), array.dtype) for array in arrays]
    with build.loop(size) as i:
        made = case.apply(*[build.load(pointer, i) for pointer in inputs])
        out = build.allocate("out", size, made.dtype)
        build.body.insert(0, build.body[-1].body.pop())
        build.store(out, i, made)
    return build.finish([out], [aval((size,), made.dtype)]), arrays


def same(actual, expected, text):
    exact = expected.dtype.kind not in "fc"
    rtol = 0 if exact else 3e-6 if expected.dtype in ("f4", "c8") else 2e-13
    atol = 0 if exact else 1e-6 if expected.dtype in ("f4", "c8") else 1e-14
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=text)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_row_prints_as_python(case):
    procedure, arrays = procedure_of(case)
    (actual,) = run_procedure(procedure, arrays)
    expected = case.numpy(arrays)
    assert actual.dtype == expected.dtype
    same(actual, expected, source_of(procedure).text)
    if not case.row.is_formula and expected.dtype.kind == "f":
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(actual)[zero], np.signbit(expected)[zero])


def test_formulas_that_are_written_out_have_the_dtypes_of_their_rows():
    for case in CASES:
        made = case.apply(*[leaf(array.dtype) for array in operands_of(case)])
        assert expand(made, {}).dtype == made.dtype, str(case)


def printed(chunk):
    """Return one Python function of the arrays of many rows, with the arrays and what NumPy makes of them."""
    lines, arrays, expected, calls = [], [], [], []
    for number, case in enumerate(chunk):
        procedure, own = procedure_of(case)
        if procedure.result_types[0].dtype == np.float16:
            continue  # Numba has no such numbers
        if own[0].dtype.kind == "c":
            own = [array[:5] for array in own]  # infinite parts come out otherwise
            procedure, _ = procedure_of(case, own)
        text = source_of(procedure).text.replace("def rows(", f"def rows_{number}(")
        if "scipy." not in text:
            lines.append(f"@numba.njit(error_model='numpy')\n{text}")
            calls.append(f"rows_{number}")
            arrays.append(own)
            expected.append(case.numpy(own))
    return "\n\n".join(lines), calls, arrays, expected


@pytest.mark.parametrize("letter", ["d", "l", "b", "f", "B", "Q", "?", "D"])
def test_rows_compile_under_numba(letter, exhaustive):
    chunk = [case for case in CASES if case.codes == letter * case.row.arity]
    if not exhaustive:  # of doubles what is no formula, of others every tenth row
        chunk = [case for case in chunk if not case.row.is_formula] if letter == "d" else chunk[::10]
    text, calls, arrays, expected = printed(chunk)
    names = {"np": np, "math": math, "numba": numba}
    exec(text, names)
    for call, own, right in zip(calls, arrays, expected, strict=True):
        same(names[call](*own), right, call)
