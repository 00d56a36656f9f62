"""Random bodies, nested at random: derivatives, batches, passes and kernels against the same computation without loops."""

import numpy as np
import pytest

from gradtape.ir.evaluate import compute_outputs
from gradtape.passes.pipeline import optimise
from gradtape.runtime.compile.program import program_for
from tests.support.loop_derivatives import SIZE, batched, derived, pulled, repeated, varied
from tests.support.random_loops import drawn, whole_graph


@pytest.mark.parametrize("seed", range(40))
def test_derivatives(seed):
    case = drawn(seed)
    for orders in ("", "f", "r", "rf", "fr", "rr"):
        got, want = derived(case.loop, case.arrays, orders), derived(case.plain, case.arrays, orders)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7, err_msg=orders)


@pytest.mark.parametrize("seed", range(100, 130))
def test_batches(seed):
    case = drawn(seed)
    rng = np.random.default_rng(seed)
    mapped = tuple(map(bool, rng.integers(0, 2, len(case.arrays))))
    if not any(mapped):
        mapped = (True, *mapped[1:])
    arrays = [
        varied(x, k) if flag else x for k, (x, flag) in enumerate(zip(case.arrays, mapped, strict=True))
    ]

    def gradient(*inputs):
        return pulled(list(case.loop(*inputs)), inputs)

    for function in (case.loop, gradient):
        got, want = batched(function, arrays, mapped), repeated(function, arrays, mapped)
        for one, other in zip(got, want, strict=True):
            assert one.shape[0] == SIZE
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("seed", range(200, 230))
def test_passes(seed):
    case = drawn(seed)
    for orders in ("", "r", "f"):
        graph = whole_graph(case, orders)
        want = compute_outputs(graph, case.arrays)
        for one, other in zip(compute_outputs(optimise(graph, check=True), case.arrays), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(300, 312))
def test_kernels(seed):
    case = drawn(seed)
    graph = whole_graph(case, "r")
    program = program_for(graph)
    assert program.kernel.loaded is not None, program.kernel.reason
    for one, other in zip(program.run(list(case.arrays)), compute_outputs(graph, case.arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
