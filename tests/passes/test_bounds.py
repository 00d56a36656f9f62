"""Comparisons of indices that the trip counts of loops decide."""

import numpy as np
import pytest

from gradtape.ir.graph import number_of
from gradtape.passes.procedures.bounds import decide_comparisons
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Check, For, If
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure


def triangle(condition):
    """Count the iterations of a triangle where a condition holds."""
    build = ProcedureBuilder("triangle")
    n, m = build.scalar("n", np.int64), build.scalar("m", np.int64)
    total = build.variable("total", 0)
    with build.loop(n) as i, build.loop(n - 1 - i) as j, build.branch(condition(i, j, n, m)):
        build.assign(total, build.read(total) + 1)
    return build.finish([build.read(total)])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda i, j, n, m: j + 1 < n, True),
        (lambda i, j, n, m: j + i < n - 1, True),
        (lambda i, j, n, m: n - 2 - i - j < 0, False),
        (lambda i, j, n, m: i >= 0, True),
        (lambda i, j, n, m: j > n - 2 - i, False),
        (lambda i, j, n, m: -3 * i <= 2 * j, True),
        (lambda i, j, n, m: m + j < m + n, True),
        (lambda i, j, n, m: j + 2 < n, None),  # not for i = 0 and the last j
        (lambda i, j, n, m: j < i, None),
        (lambda i, j, n, m: j < m, None),
        (lambda i, j, n, m: i * j >= 0, True),
        (lambda i, j, n, m: i * j >= m, None),
    ],
)
def test_comparisons_are_decided_where_they_are_the_same_in_all_iterations(condition, expected):
    procedure = triangle(condition)
    decided = decide_comparisons(procedure)
    verify_procedure(decided, "the pass")
    (branch,) = [s for s in walk(decided.body) if isinstance(s, If)]
    assert number_of(branch.condition) == expected
    assert (decided is procedure) == (expected is None)
    for n in (0, 1, 2, 7):
        for m in (-1, 3, 9):
            assert run_procedure(decided, (n, m)) == run_procedure(procedure, (n, m))


def backward_sums(guarded):
    """A triangle that is overwritten level by level, as a tree of prices is, with checks of all indices."""
    build = ProcedureBuilder("levels")
    x, n = build.scalar("x"), build.scalar("n", np.int64)
    a = build.allocate("a", n + 1)
    with build.loop(n + 1) as i:
        build.check(i < n + 1, "IndexError", "out of bounds")
        build.store(a, i, x * (2.0 * i))
    with build.loop(n) as i:
        level = n - 1 - i
        with build.loop(level + 1) as j:
            for place in (j, j + 1):
                build.check(place < n + 1, "IndexError", "out of bounds")
            held = build.load(a, j) * x + build.load(a, j + 1)
            build.store(a, j, held)
    build.check(n < 100 if guarded else n >= 0, "ValueError", "too many")
    return build.finish([build.load(a, 0)])


def test_checks_of_indices_are_left_out_and_others_stay():
    pulled = vjp_procedure(backward_sums(True), [True, False], [True])
    optimised = optimise_procedure(pulled, check=True)
    checks = [s for s in walk(optimised.body) if isinstance(s, Check)]
    assert [check.error for check in checks] == ["ValueError"]
    assert not any(
        isinstance(s, Check)
        for loop in walk(optimised.body)
        if isinstance(loop, For)
        for s in walk(loop.body)
    )
    for n in (0, 1, 5):
        np.testing.assert_allclose(
            compile_procedure(pulled)(1.5, n, 1.0), run_procedure(pulled, (1.5, n, 1.0))
        )
