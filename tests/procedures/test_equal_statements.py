"""Equal statements: what is left out gives the same numbers, and what differs in anything stays."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ops.core.elementwise.signs import absolute
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.equal_statements import merge_equal_statements
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import For
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk

X = np.array([3.0, -4.0, 12.0])


def loops_of(procedure):
    return sum(isinstance(statement, For) for statement in walk(procedure.body))


def checked(build, results):
    """Return the procedures before and after, whose results are equal."""
    procedure = build.finish(results)
    merged = merge_equal_statements(procedure)
    verify_procedure(merged, "merge_equal_statements")
    for before, after in zip(run_procedure(procedure, [X]), run_procedure(merged, [X]), strict=True):
        np.testing.assert_array_equal(before, after)
    return procedure, merged


def total(build, pointer, start=0.0, count=3, factor=1.0):
    s = build.variable("s", start)
    with build.loop(count) as i:
        build.assign(s, build.read(s) + factor * build.load(pointer, i))
    return s


def filled(build, pointer, count=3):
    y = build.allocate("y", 3)
    with build.loop(count) as i:
        build.store(y, i, absolute(build.load(pointer, i)))
    return y


def test_equal_sums_become_one():
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    first = total(build, x)
    once = build.read(first)
    build.assign(first, 7.0)  # the sum is read where it was complete
    second = total(build, x)
    procedure, merged = checked(build, [once * build.read(second) + build.read(first)])
    assert (loops_of(procedure), loops_of(merged)) == (2, 1)


def test_equal_arrays_become_one_and_what_is_computed_of_them():
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    sums = [build.read(total(build, filled(build, x))) for _ in range(3)]
    procedure, merged = checked(build, [sums[0] * sums[1] + sums[2]])
    assert (loops_of(procedure), loops_of(merged)) == (6, 2)


@pytest.mark.parametrize(
    "other",
    [{"start": 1.0}, {"count": 2}, {"factor": 2.0}],
    ids=["start", "count", "factor"],
)
def test_sums_that_differ_stay(other):
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    results = [build.read(total(build, x)), build.read(total(build, x, **other))]
    procedure, merged = checked(build, results)
    assert merged is procedure


def test_writes_between_two_loops_keep_them_apart():
    build = ProcedureBuilder("f")
    y = filled(build, build.array("x", (3,)))
    once = build.read(total(build, y))
    build.store(y, 0, 1.0)
    procedure, merged = checked(build, [once, build.read(total(build, y))])
    assert merged is procedure


def test_arrays_that_are_written_to_later_stay():
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    y, z = filled(build, x), filled(build, x)
    build.store(z, 0, 1.0)
    procedure, merged = checked(build, [build.read(total(build, y)), build.read(total(build, z))])
    assert merged is procedure


def test_variables_that_loops_read_have_the_same_content():
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    factor = build.variable("factor", 2.0)

    def scaled():
        s = build.variable("s", 0.0)
        with build.loop(3) as i:
            build.assign(s, build.read(s) + build.read(factor) * build.load(x, i))
        return build.read(s)

    results = [scaled(), scaled()]
    build.assign(factor, 3.0)
    results.append(scaled())
    procedure, merged = checked(build, results)
    assert (loops_of(procedure), loops_of(merged)) == (3, 2)


def test_arrays_that_are_filled_element_by_element():
    build = ProcedureBuilder("f")
    x = build.array("x", (3,))
    last = [2.0, 2.0, 5.0]
    sums = []
    for number in last:
        y = build.allocate("y", 3)
        for k in range(2):
            build.store(y, k, build.load(x, 0) * float(k))
        build.store(y, 2, number)
        sums.append(build.read(total(build, y)))
    procedure = build.finish(sums)
    merged = merge_equal_statements(procedure)
    assert loops_of(merged) == 3  # what is loaded twice are two values, until loads are forwarded
    merged = merge_equal_statements(forward_elements(procedure))
    assert loops_of(merged) == 2
    for before, after in zip(run_procedure(procedure, [X]), run_procedure(merged, [X]), strict=True):
        np.testing.assert_array_equal(before, after)
