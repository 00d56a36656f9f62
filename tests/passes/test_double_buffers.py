"""Double buffers: arrays that iterations would copy are exchanged, and the results stay."""

import numpy as np
import pytest

from gradtape.ir.types import aval
from gradtape.passes.procedures.double_buffers import exchange_arrays
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Assign, For, Pointer
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.ops import procedure as procedure_row
from gradtape.transforms.procedures.reference import reference_to
from tests.support import lowering

SIZE = 1000
X = np.random.default_rng(0).normal(size=SIZE)


def stencil(steps, size=SIZE, begin=0, read_later=False, two_axes=False):
    """Return a procedure whose iterations make an array anew of its neighbours, and copy it."""
    build = ProcedureBuilder("stencil")
    given = build.array("given", (size,))
    count = build.scalar("count", np.int64) if steps is None else steps
    x, y = build.allocate("x", size), build.allocate("y", size)
    with build.loop(size) as i:
        build.store(x, i, build.load(given, i))
    with build.loop(count):
        if begin == 0:
            build.store(y, 0, build.load(x, 0))
        with build.loop(size - 2) as i:
            build.store(y, i + 1, build.load(x, i) - 0.5 * build.load(x, i + 2))
        build.store(y, size - 1, build.load(x, size - 1))
        if two_axes:
            with build.loop(size // 10) as i, build.loop(10) as j:
                build.store(x, i * 10 + j, build.load(y, i * 10 + j))
        else:
            with build.loop(size) as i:
                build.store(x, i, build.load(y, i))
        if read_later:
            build.store(x, 0, build.load(x, 1))
    type_ = aval((size,), np.dtype(float))
    return build.finish([x], [type_])


def expected(steps, x, read_later=False):
    x = x.copy()
    for _ in range(steps):
        y = x.copy()
        y[1:-1] = x[:-2] - 0.5 * x[2:]
        x = y
        if read_later:
            x[0] = x[1]
    return x


def exchanges(procedure):
    return any(isinstance(s, Assign) and isinstance(s.value, Pointer) for s in walk(procedure.body))


@pytest.mark.parametrize("two_axes", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_copies_become_exchanges(steps, two_axes):
    before = stencil(steps, two_axes=two_axes)
    after = exchange_arrays(before)
    verify_procedure(after, "exchange_arrays")
    assert exchanges(after)
    (loop,) = [s for s in after.body if isinstance(s, For) and len(s.body) > 4]
    assert sum(isinstance(s, For) for s in walk(loop.body)) == 1
    (result,) = run_procedure(after, [X])
    np.testing.assert_allclose(result, expected(steps, X), rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 4, 5])
def test_machine_code(steps):
    made = stencil(None)
    assert exchanges(optimise_procedure(made, check=True))
    inputs = lowering.inputs_like([X, np.asarray(steps)])
    graph = lowering.graph_of(inputs, procedure_row(reference_to(made), inputs))
    (result,) = lowering.Compiled(graph)([X, np.asarray(steps)])
    np.testing.assert_allclose(result, expected(steps, X), rtol=1e-12)


def test_loops_with_a_condition():
    build = ProcedureBuilder("halving")
    given = build.array("given", (SIZE,))
    x, y = build.allocate("x", SIZE), build.allocate("y", SIZE)
    with build.loop(SIZE) as i:
        build.store(x, i, build.load(given, i))
    trips = build.variable("trips", 0)
    with build.loop_while() as loop:
        build.start_body(loop, abs(build.load(x, 3)) > 0.01)
        with build.loop(SIZE) as i:
            build.store(y, i, build.load(x, SIZE - 1 - i) * 0.5)
        with build.loop(SIZE) as i:
            build.store(x, i, build.load(y, i))
        build.assign(trips, build.read(trips) + 1)
    made = build.finish(
        [x, build.read(trips)], [aval((SIZE,), np.dtype(float)), aval((), np.dtype(np.int64))]
    )
    after = exchange_arrays(made)
    verify_procedure(after, "exchange_arrays")
    assert exchanges(after)
    for one, other in zip(run_procedure(after, [X]), run_procedure(made, [X]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options",
    [{"size": 100}, {"begin": 1}, {"read_later": True}],
    ids=["small", "not-made-anew", "written-after-the-copy"],
)
def test_what_is_copied_nevertheless(options):
    before = stencil(3, **options)
    assert exchange_arrays(before) is before
