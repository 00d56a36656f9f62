"""Where the arrays of procedures are, and how much memory they take."""

import numpy as np
import pytest

from gradtape.ir.types import aval
from gradtape.lower.procedures.allocation import plan_allocations
from gradtape.lower.resident.memory import kept_bytes, trim_memory
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Allocate, For
from gradtape.statements import walk
from tests.lower.procedures.standalone import compile_procedure

N = 8192
TRIPS = 40


def doubled_and_shifted(keeps, with_inner_loop=False):
    """Make a new array in each iteration, by another one that no other iteration reads; `keeps` hands on the new one."""
    build = ProcedureBuilder("states")
    x = build.array("x", (N,))
    start = build.allocate("start", N)
    with build.loop(N) as i:
        build.store(start, i, build.load(x, i))
    state = build.variable("state", start)
    total = build.variable("total", 0.0)
    with build.loop(TRIPS) as k:
        before = build.read(state)
        between = build.allocate("between", N)
        with build.loop(N) as i:
            build.store(between, i, build.load(before, i) * 0.5 + 1.0)
        if with_inner_loop:
            with build.loop(2):
                inner = build.allocate("inner", N)
                with build.loop(N) as i:
                    build.store(inner, i, build.load(between, i) * 0.25)
                with build.loop(N) as i:
                    build.store(between, i, build.load(between, i) + build.load(inner, N - 1 - i))
        after = build.allocate("after", N, memory=start.memory)
        with build.loop(N) as i:
            build.store(after, i, build.load(between, N - 1 - i))
        build.assign(total, build.read(total) + build.load(after, k))
        if keeps:
            build.assign(state, after)
    return build.finish([build.read(total)], [aval((), np.dtype(float))])


@pytest.mark.parametrize("with_inner_loop", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_arrays_that_no_later_iteration_reads_are_freed_beside_others(keeps, with_inner_loop):
    procedure = doubled_and_shifted(keeps, with_inner_loop)
    x = np.random.default_rng(0).normal(size=N)
    plan = plan_allocations(procedure)
    loops = [s for s in procedure.body if isinstance(s, For)]
    assert {s.out.name for s in plan.in_scratch} == ({"between"} if keeps else set())
    assert plan.scratches == ({loops[-1]} if keeps else set())
    assert (loops[-1] in plan.rewound) is not keeps
    inner = [s for s in walk(procedure.body) if isinstance(s, Allocate) and s.out.name == "inner"]
    assert not plan.in_scratch.intersection(inner)
    trim_memory()
    (found,) = compile_procedure(procedure)(x)
    # the states of all iterations, and some arrays of one; a new chunk may be as large as all before
    assert kept_bytes() < (2 * TRIPS if keeps else 10) * 8 * N
    (expected,) = run_procedure(procedure, [x])
    assert found == pytest.approx(expected, rel=1e-12)
