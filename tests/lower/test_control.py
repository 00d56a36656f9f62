"""Loops and branches as kernels: against the interpreter, printed and compiled."""

import numpy as np
import pytest

from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from tests.support.control_cases import all_cases, graph_of
from tests.support.loop_derivatives import pulled, pushed
from tests.support.lowering import check

CASES = all_cases()


def program_of(case, orders):
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    outs = list(case.loop(*inputs))
    for order in orders:
        outs = pushed(outs, inputs) if order == "f" else pulled(outs, inputs)
    outs = [out for out in outs if out.dtype.kind != "O"]
    return graph_of(outs, inputs)


@pytest.mark.parametrize("orders", ["", "f", "r", "rf"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_kernel_computes_what_the_interpreter_does(case, orders):
    graph = program_of(case, orders)
    check(graph, [np.asarray(x) for x in case.arrays])
