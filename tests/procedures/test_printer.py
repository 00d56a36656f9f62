"""Printed procedures run under plain Python, and compile under Numba to the same."""

import math

import numba
import numpy as np
import pytest

from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.printer import print_procedure, source_of
from gradtape.procedures.verifier import verify_procedure
from tests.support.procedure_samples import PROCEDURES, checked, generator, stale_reads
from tests.transforms.procedures import evaluator
from tests.transforms.procedures.samples import cholesky, newton


@pytest.mark.parametrize("sample", PROCEDURES, ids=lambda sample: sample.__name__)
def test_the_printed_procedure_is_the_procedure(sample):
    procedure, arguments = sample()
    verify_procedure(procedure)
    expected = evaluator.run_procedure(procedure, arguments)
    actual = run_procedure(procedure, arguments)
    assert [x.dtype for x in actual] == [type_.dtype for type_ in procedure.result_types]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=print_procedure(procedure))


def compiled(source):
    names = {"np": np, "math": math}
    exec(source.text, names)
    return numba.njit(error_model="numpy")(names[source.name])


@pytest.mark.parametrize("sample", PROCEDURES, ids=lambda sample: sample.__name__)
def test_numba_compiles_the_printed_procedure(sample):
    procedure, arguments = sample()
    source = source_of(procedure)
    if source.graphs:
        pytest.skip("calls array computations, which are printed as loops elsewhere")
    flat = [
        np.asarray(array, type_.dtype).reshape(-1) if type_.ndim else type_.dtype.type(array)
        for array, type_ in zip(arguments, procedure.types, strict=True)
    ]
    results = compiled(source)(*flat)
    results = results if len(procedure.results) > 1 else (results,)
    for actual, expected in zip(results, run_procedure(procedure, arguments), strict=True):
        rtol = 1e-12 if expected.dtype != np.float32 else 1e-5
        np.testing.assert_allclose(np.ravel(actual), expected.ravel(), rtol=rtol, err_msg=source.text)


def test_a_procedure_reads_like_a_program():
    procedure, _ = cholesky(3)
    assert print_procedure(procedure) == (
        """def cholesky(a):
    l = np.zeros(9, np.float64)
    for i in range(3):
        for j in range(i + 1):
            s = a[i * 3 + j]
            for k in range(j):
                s -= l[i * 3 + k] * l[j * 3 + k]
            if i <= j:
                l[i * 3 + j] = np.sqrt(s)
            else:
                l[i * 3 + j] = s / l[j * 3 + j]
    return l"""
    )


def test_branches_in_a_row_and_tests_with_statements():
    text = print_procedure(generator()[0])
    assert "        elif state % 3 == 1:\n" in text and "state = np.int64(42)" in text
    assert "            if not (0.001 < abs(t1)):\n                break\n" in print_procedure(newton()[0])


def test_a_test_without_statements_stands_in_the_head():
    build = ProcedureBuilder("halve")
    x = build.variable("x", build.scalar("x0"))
    with build.loop_while() as loop:
        build.start_body(loop, build.read(x) > 1.0)
        build.assign(x, build.read(x) * 0.5)
    text = print_procedure(build.finish([build.read(x)]))
    assert "    while x > 1.0:\n        x *= 0.5\n" in text


def test_what_is_overwritten_is_kept_under_a_name():
    text = print_procedure(stale_reads()[0])
    assert "        t2 = a\n        a = b\n        t3 = b\n        b = t2\n" in text


def test_a_failed_check_raises_its_error():
    procedure, (x, _) = checked()
    with pytest.raises(IndexError, match="index is out of bounds"):
        run_procedure(procedure, [x, 3])
    assert run_procedure(procedure, [x, 2])[0] == x[2]


def test_a_failed_check_names_the_line_of_the_user():
    build = ProcedureBuilder("f")
    x = build.scalar("x")
    build.check(x > 0.0, "ValueError", "x is negative")
    procedure = build.finish([x + x])
    procedure.body[0].site = "model.py:12 in f"
    with pytest.raises(ValueError, match=r"x is negative\n  where: model.py:12 in f"):
        run_procedure(procedure, [-1.0])


def test_names_are_those_that_python_can_define():
    build = ProcedureBuilder("<lambda>")
    x, y = build.scalar("range"), build.scalar("x.y")
    loop = build.variable("for", x)
    build.assign(loop, build.read(loop) + y)
    procedure = build.finish([build.read(loop)])
    assert run_procedure(procedure, [1.0, 2.0])[0] == 3.0


def test_deep_expressions_are_printed_in_parts():
    build = ProcedureBuilder("deep")
    x = build.scalar("x")
    y = x
    for _ in range(3000):
        y = y * 0.999 + x
    procedure = build.finish([y])
    expected = 0.5
    for _ in range(3000):
        expected = expected * 0.999 + 0.5
    (actual,) = run_procedure(procedure, [0.5])
    assert actual == expected
    assert len(print_procedure(procedure).splitlines()) < 300


def test_sums_of_integers_that_share_their_terms_are_printed_at_once():
    build = ProcedureBuilder("doubled")
    total = build.variable("n", build.scalar("k", np.int64))
    number = build.read(total)
    for _ in range(50):
        number = number + number
    build.assign(total, number)
    (actual,) = run_procedure(build.finish([build.read(total)]), [3])
    assert actual == 3 << 50


def test_what_is_used_twice_has_its_own_name():
    build = ProcedureBuilder("named")
    x = build.array("x", (3,))
    loaded = [build.load(x, k) for k in range(3)]
    for value, name in zip(loaded, ("rate", "rate", None), strict=True):
        value.name = name
        build.store(x, 0, value * value)
    text = print_procedure(build.finish([loaded[0] + loaded[1]]))
    assert "rate = x[0]" in text and "rate_1 = x[1]" in text and "t0 = x[2]" in text
