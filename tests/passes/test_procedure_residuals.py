"""Residuals of array computations: factors and products that the adjoint needs are computed once."""

import numpy as np
import pytest

from gradtape.ir.body import make_body
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INT64, aval
from gradtape.kinds.registry import FUNCTIONS
from gradtape.passes.procedures import residuals
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Apply, Push, Span
from gradtape.statements import walk
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.transforms.procedures.test_random_procedures import check

N = 3


def solving(trips, known=True):
    """Solve systems whose matrix changes from iteration to iteration, in one array."""
    build = ProcedureBuilder("solving")
    a, b = build.array("a", (N, N)), build.array("b", (N,))
    number = build.scalar("trips", np.int64)
    matrix, x = build.allocate("matrix", N * N), build.allocate("x", N)
    total = build.variable("total", 0.0)
    inner, right = Value(aval((N, N), np.dtype(float))), Value(aval((N,), np.dtype(float)))
    body = make_body([inner, right], [FUNCTIONS[np.linalg.solve](inner, right)])
    zero = literal(0, INT64)
    with build.loop(N) as i:
        build.store(x, i, build.load(b, i))
    with build.loop(trips if known else number) as t:
        with build.loop(N * N) as i:
            build.store(matrix, i, build.load(a, i) * (t + 1.0))
        right_side = Span(b, zero, right.aval)
        build.append(Apply(body, (Span(matrix, zero, inner.aval), right_side), (Span(x, zero, right.aval),)))
        with build.loop(N) as i:
            build.assign(total, build.read(total) + build.load(x, i) * build.load(x, i))
    return build.finish([build.read(total)])


def arguments():
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=(N, N)).reshape(-1) + 3.0 * np.eye(N).reshape(-1),
        rng.normal(size=N),
        np.int64(4),
    ]


def factorisations(procedure):
    applies = [s for s in walk(procedure.body) if isinstance(s, Apply)]
    return [sum(node.op.name == "lu" for node in s.graph.nodes) for s in applies]


@pytest.mark.parametrize("known", [True, False])
def test_systems_are_factorised_once(known):
    procedure = solving(4, known)
    pulled = vjp_procedure(procedure, [True, True, False], [True])
    assert factorisations(pulled) == (
        [1, 0] if known else [1, 1]
    )  # residuals of any number of iterations could be too large
    a, b, number = arguments()
    check(procedure, [a.reshape(N, N), b, number], 1e-9)


def test_residuals_have_a_limit(monkeypatch):
    monkeypatch.setattr(residuals, "MOST_BYTES", 100)
    assert factorisations(vjp_procedure(solving(4), [True, True, False], [True])) == [1, 1]


def test_the_matrix_is_no_record_where_its_factors_are():
    """Then what the loop overwrites in it is not needed: its elements are not on the tape."""
    pulled = vjp_procedure(solving(4), [False, True, False], [True])
    assert factorisations(pulled) == [1, 0]
    assert max(len(s.values) for s in walk(pulled.body) if isinstance(s, Push)) <= 8
