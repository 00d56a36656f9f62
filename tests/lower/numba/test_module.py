"""Modules that Numba compiles: kernels of graphs with procedures, routines, complex numbers and constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.errors import LoweringError
from gradtape.ir.graph import Value, constant
from gradtape.ir.types import is_inexact
from gradtape.kinds.registry import ROWS
from gradtape.lower.numba.compile import compile_by_numba
from gradtape.lower.numba.module import EntryPoint, print_module
from gradtape.transforms.procedures.ops import procedure, procedure_vjp
from gradtape.transforms.procedures.reference import reference_to
from tests.support.lowering import array_input, assert_same, graph_of, inputs_like, interpret
from tests.support.other_kernels import NumbaFailed, run_by_numba
from tests.support.procedure_samples import array_graph, checked
from tests.transforms.procedures.samples import newton


def compare(inputs: Any, outputs: Any, arrays: Any) -> None:
    graph = graph_of(inputs, outputs)
    assert_same(run_by_numba(graph, arrays), interpret(graph, arrays), 1e-11, "Numba")


def node_of(sample: Any) -> tuple[list[Value], Any, list[Any]]:
    """Return the inputs, the results and the arguments of a procedure as a node."""
    made, arguments = sample()
    arrays = [np.asarray(x, type_.dtype) for x, type_ in zip(arguments, made.types, strict=True)]
    inputs = inputs_like(arrays)
    return inputs, procedure(reference_to(made), inputs), arrays


@pytest.mark.parametrize("sample", [newton, array_graph, checked], ids=lambda sample: sample.__name__)
def test_procedures_among_other_operations(sample: Any) -> None:
    inputs, outs, arrays = node_of(sample)
    compare(inputs, [ROWS["multiply"](out, 2.0) for out in outs], arrays)


@pytest.mark.parametrize("sample", [newton], ids=lambda sample: sample.__name__)
def test_pullbacks_of_procedures(sample: Any) -> None:
    made, arguments = sample()
    reference = reference_to(made)
    seeds = [np.ones(type_.shape) for type_ in made.result_types]
    arrays = [*[np.asarray(x) for x in arguments], *seeds]
    inputs = inputs_like(arrays)
    active = tuple(is_inexact(type_.dtype) for type_ in made.types)
    outs = procedure_vjp(reference, active, (True,) * len(made.results), inputs)
    compare(inputs, outs, arrays)


def test_a_failed_check_is_a_status() -> None:
    inputs, outs, (x, _) = node_of(checked)
    with pytest.raises(NumbaFailed):
        run_by_numba(graph_of(inputs, outs), [x, np.asarray(99)])


def test_products_and_sorting() -> None:
    x, y = array_input(20, 30), array_input(30, 25)
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=(20, 30)), rng.normal(size=(30, 25))]
    product = ROWS["contract"](x, y, x=(0, 1), y=(1, 2), out=(0, 2))
    order = ROWS["argsort"](x)
    knots = array_input(7)
    places = ROWS["searchsorted"](knots, x, side="left")
    compare([x, y, knots], [product, order, places], [*arrays, np.linspace(-1.0, 1.0, 7)])


def test_complex_numbers_and_constants() -> None:
    z = array_input(3, dtype=np.complex128)
    captured = constant(np.array([1.0, np.inf, -2.5]))
    out = ROWS["multiply"](ROWS["exp"](z), captured)
    arrays = [np.array([0.5 + 1j, -0.2j, 0.3 + 0.0j])]
    graph = graph_of([z], [out])
    expected = interpret(graph, arrays)[0]
    finite = np.isfinite(expected)
    names: dict[str, Any] = {}
    exec(print_module([EntryPoint("f", graph, (0,))]), names)
    np.testing.assert_allclose(names["f"](arrays[0])[finite], expected[finite])
    assert "np.inf" in print_module([EntryPoint("f", graph, (0,))])


def test_what_numba_does_not_have_is_refused() -> None:
    x = array_input(3)
    with pytest.raises(LoweringError, match=r"(?s)cannot be compiled by Numba.*scipy.special.psi"):
        compile_by_numba(graph_of([x], [ROWS["psi"](x)]))
    large = constant(np.zeros(20_000))
    with pytest.raises(LoweringError, match="captured array of 20000 elements"):
        print_module([EntryPoint("f", graph_of([x], [ROWS["negative"](large), x]), (0,))])
