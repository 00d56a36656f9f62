"""What the forward sweep records: nothing that can be had again."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.body import make_body
from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.ops.core.contract import contract
from gradtape.ops.core.elementwise.exponential import exp, sin
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import Apply, Pointer, Push, Span
from gradtape.statements import walk
from tests.lower.procedures.standalone import compile_procedure
from tests.transforms.procedures.samples import cholesky, gauss_seidel, histogram, pendulum, triangular
from tests.transforms.procedures.test_vjp import check_adjoint, pullback, seeds_of


def depths(statements, depth=0):
    """Yield the depth in loops and the number of values of each record."""
    for statement in statements:
        if isinstance(statement, Push):
            yield depth, len(statement.values)
        for name in ("body", "then", "otherwise"):
            yield from depths(getattr(statement, name, ()), depth + hasattr(statement, "count"))


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (pendulum, [(1, 2)]),
        (cholesky, []),  # the elements of the factor are final where they are used
        (triangular, []),
        (gauss_seidel, [(2, 1)]),  # the overwritten element serves three loads
        (histogram, [(1, 1)]),  # an exponential; sums need nothing
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_records(sample, expected):
    procedure, _ = sample()
    assert list(depths(pullback(procedure).body)) == expected


def test_no_index_is_recorded():
    for sample in (cholesky, triangular, gauss_seidel):
        for statement in walk(pullback(sample()[0]).body):
            if isinstance(statement, Push):
                assert all(isinstance(x, Value) and x.dtype.kind == "f" for x in statement.values)


@pytest.mark.parametrize(("stages", "values"), [(4, 8), (12, 2)])
def test_a_record_is_not_much_larger_than_the_state(stages, values):
    """Each stage has a sine and a cosine that could be recorded; the state is two numbers."""
    build = ProcedureBuilder("runge_kutta")
    g = build.scalar("g")
    angle, speed = build.variable("angle", build.scalar("x")), build.variable("speed", build.scalar("v"))
    with build.loop(9):
        x, v = build.read(angle), build.read(speed)
        slopes = [(v, -g * sin(x))]
        for h in [0.05] * (stages - 2) + [0.1]:
            dx, dv = slopes[-1]
            slopes.append((v + h * dv, -g * sin(x + h * dx)))
        build.assign(angle, x + sum(0.025 * dx for dx, _ in slopes))
        build.assign(speed, v + sum(0.025 * dv for _, dv in slopes))
    procedure = build.finish([build.read(angle)])
    assert list(depths(pullback(procedure).body)) == [(1, values)]
    check_adjoint(procedure, [9.8, 1.0, 0.5])


def test_what_an_iteration_allocates_is_not_restored():
    """Each iteration has a product of its own, which the reverse sweep reaches by a pointer."""
    build = ProcedureBuilder("products")
    x = build.array("x", (4, 6, 6))
    total = build.variable("total", 0.0)
    a = Value(aval((6, 6), np.dtype(float)))
    body = make_body([a], [sin(contract(a, a, (0, 1), (1, 2), (0, 2)))])
    with build.loop(4) as i:
        y = build.allocate("y", 36)
        build.append(Apply(body, (Span(x, i * 36, a.aval),), (Span(y, integer(0), a.aval),)))
        with build.loop(36) as k:
            build.assign(total, build.read(total) + build.load(y, k))
    procedure = build.finish([build.read(total)])
    pulled = pullback(procedure)
    pushed = [value for s in walk(pulled.body) if isinstance(s, Push) for value in s.values]
    assert pushed and all(isinstance(value, Pointer) for value in pushed)
    numbers = np.random.default_rng(0).normal(size=(4, 6, 6))
    (cotangent,) = check_adjoint(procedure, [numbers])
    compiled = compile_procedure(pulled)(numbers, *seeds_of(procedure))
    np.testing.assert_allclose(compiled[1], cotangent, rtol=1e-12)


def test_what_is_allocated_before_a_loop_is_restored():
    """The second loop overwrites what the first iteration's product has left, which the reverse sweep needs."""
    build = ProcedureBuilder("products")
    x = build.array("x", (4, 6, 6))
    total = build.variable("total", 0.0)
    a = Value(aval((6, 6), np.dtype(float)))
    body = make_body([a], [contract(a, a, (0, 1), (1, 2), (0, 2))])
    y = build.allocate("y", 36)
    with build.loop(4) as i:
        build.append(Apply(body, (Span(x, i * 36, a.aval),), (Span(y, integer(0), a.aval),)))
        with build.loop(36) as k:
            build.assign(total, build.read(total) + sin(build.load(y, k)))
    check_adjoint(build.finish([build.read(total)]), [np.random.default_rng(0).normal(size=(4, 6, 6))])


def test_functions_are_recorded_where_their_computation_costs_more_than_the_bytes():
    """Eight exponentials of a chain that starts from one number: the reverse sweep would compute them all again."""
    build = ProcedureBuilder("chain")
    state = build.variable("state", build.scalar("x"))
    with build.loop(9):
        y = build.read(state)
        for _ in range(8):
            y = 0.1 * exp(y)
        build.assign(state, y)
    procedure = build.finish([build.read(state)])
    ((depth, count),) = depths(pullback(procedure).body)
    assert depth == 1
    assert count >= 8
    check_adjoint(procedure, [0.3])
