"""The machine code: what vectorises, and what LLVM may assume."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.config import config
from gradtape.ir.graph import Graph
from gradtape.kinds.elementwise import Libm
from gradtape.kinds.registry import ROWS
from gradtape.loops.ir import For
from gradtape.lower.llvm.function import MOST_INLINED
from gradtape.lower.pipeline import build_loops, lower
from gradtape.lower.target.host import has_fused_multiply_add
from gradtape.lower.target.vecmath import inline_variants, vector_variants
from gradtape.passes.pipeline import optimise
from gradtape.runtime.compile.engine import assembly, optimised_llvm
from gradtape.statements import walk
from tests.support.compiled import graph_of as compiled_graph
from tests.support.compiled import mixture
from tests.support.lowering import Compiled, array_input, check, graph_of

ROW: dict[str, Any] = dict(ROWS)


def sum_of(name: str) -> Graph:
    x = array_input(1000)
    return graph_of([x], [ROW["reduce_sum"](ROW[name](x), axes=(0,)), ROW[name](x)])


@pytest.mark.parametrize("name", ("exp", "log", "sin", "tanh", "erf"))
def test_functions_are_called_by_the_vector(name: str) -> None:
    inline, variants = inline_variants(Libm(name), False), vector_variants(Libm(name), False)
    text = lower(sum_of(name)).ir_text
    assert ("vector-function-abi-variant" in text) == bool(inline or variants)
    called = re.findall(r"call\S*\s+(\w+)", assembly(text))
    if inline:
        assert not any(symbol.endswith(f"v_{name}") for symbol in called)
    elif variants:
        assert variants[0][1] in called


def test_long_code_calls_functions() -> None:
    x = array_input(1000)
    ys = [x]
    for _ in range(MOST_INLINED + 8):
        ys.append(ROW["exp"](ROW["negative"](ys[-1])))
    graph = graph_of([x], [ys[-1]])
    text = lower(graph).ir_text
    expected = numbers = np.linspace(0.0, 1.0, 1000)
    for _ in range(MOST_INLINED + 8):
        expected = np.exp(-expected)
    np.testing.assert_allclose(Compiled(graph)([numbers])[0], expected, rtol=1e-12)
    if inline_variants(Libm("exp"), False):
        assert text.count("call double @exp(") == MOST_INLINED + 8
        numbers = {line.rpartition("#")[2] for line in text.splitlines() if "call double @exp(" in line}
        assert len(numbers) == 2


@pytest.mark.parametrize("name", ("exp", "tanh"))
def test_inlined_functions_are_exact_to_two_units(name: str) -> None:
    rng = np.random.default_rng(0)
    edges = np.array(
        [0.0, 5e-324, 1e-310, 19.0, 22.0, 709.78, 709.79, 710.5, 745.1, 745.2, 746.5, 1e300, np.inf]
    )
    random = [rng.normal(size=3000), rng.uniform(-750.0, 720.0, 3001), rng.normal(size=997) * 1e-5]
    numbers = np.concatenate([edges, -edges, [np.nan], *random])
    (found,) = Compiled(graph_of([x := array_input(numbers.size)], [ROW[name](x)]))([numbers])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(numbers.astype(np.longdouble)).astype(float)
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    assert np.array_equal(np.signbit(found[finite]), np.signbit(expected[finite]))
    found, expected = found[finite], expected[finite]
    assert np.all(np.abs(found - expected) <= 2 * np.spacing(np.abs(expected)))


def test_precise_mathematics_is_scalar() -> None:
    with config.override(precise_math=True):
        text = lower(sum_of("exp")).ir_text
    assert "vector-function-abi-variant" not in text


def test_single_precision_has_its_own_functions() -> None:
    x = array_input(100, dtype=np.float32)
    kernel = check(graph_of([x], [ROW["exp"](x)]), [np.linspace(-1, 1, 100, dtype=np.float32)])
    assert "@expf(" in kernel.lowered.ir_text


def test_nothing_is_assumed_of_nan_and_infinity() -> None:
    for name in ("exp", "sqrt", "absolute"):
        text = lower(sum_of(name)).ir_text
        assert not re.search(r"\b(nnan|ninf|fast|arcp|afn)\b", text)
        assert len(re.findall(r"fadd reassoc contract", text)) == 1


def test_sums_and_extrema_run_in_vectors() -> None:
    if not vector_variants(Libm("exp"), False):
        return
    x = array_input(1000)
    rows = [ROW[name](x, axes=(0,)) for name in ("reduce_sum", "reduce_max")]
    text = assembly(lower(graph_of([x], rows)).ir_text)
    assert re.search(r"vaddpd\s+.*%[yz]mm", text) or "addpd" in text
    assert re.search(r"v?maxpd", text)


@pytest.mark.parametrize("name", ("reduce_max", "reduce_min"))
def test_the_element_and_not_the_extremum_so_far_is_tested_for_nan(name: str) -> None:
    """x86 compares the first operand with itself, for which a chain of extrema would have to wait."""
    x = array_input(16, 8)
    kernel = check(graph_of([x], [ROW[name](x, axes=(0,))]), [np.random.default_rng(0).normal(size=(16, 8))])
    text = kernel.lowered.ir_text
    ((element, so_far),) = re.findall(r"@llvm\.m\w+\.f64\(double (%\w+), double (%\w+)\)", text)
    loads = dict(re.findall(r"(%\w+) = load double, ptr (%\w+)", text))
    bases = dict(
        re.findall(r"(%\w+) = getelementptr inbounds double, ptr (%\w+), i64 %\w+\n  %\w+ = load", text)
    )
    assert [bases[loads[name]] for name in (element, so_far)] == ["%x0", "%out0"]


def test_what_a_lowered_program_tells() -> None:
    x = array_input(50, 60)
    y = array_input(60, 70)
    product = ROW["contract"](ROW["exp"](x), y, x=(0, 1), y=(1, 2), out=(0, 2))
    lowered = lower(graph_of([x, y], [product]))
    limits = {"gradtape.blas_get", "gradtape.blas_set", "gradtape.blas_threads"}
    assert set(lowered.symbols) == {"scipy.linalg.cython_blas.dgemm"} | limits
    assert lowered.workspace_bytes >= 50 * 60 * 8
    assert lowered.constants == 0
    assert [str(type_) for type_ in lowered.inputs] == ["f64[50,60]", "f64[60,70]"]
    assert any("exp[50, 60] is stored" in reason for reason in lowered.explain)
    assert lowered.estimated_cost > 0


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
@pytest.mark.parametrize("divisor", (3.0, -7.0, 2.0**0.5, 1.1e-30, 1e30, np.pi))
def test_quotients_by_numbers_are_rounded_once(divisor: float, dtype: Any) -> None:
    """The machine's quotients take eight times as long as the product and the sum that give the same."""
    rng = np.random.default_rng(0)
    limits = np.finfo(dtype)
    edges = [0.0, limits.max, limits.tiny, 1.0, np.inf]
    numbers = (rng.normal(size=20000) * 10.0 ** rng.integers(-8, 8, 20000)).astype(dtype)
    numbers = np.concatenate([np.array([*edges, *[-x for x in edges], np.nan], dtype), numbers])
    kernel = Compiled(graph_of([x := array_input(numbers.size, dtype=dtype)], [x / divisor]))
    with np.errstate(all="ignore"):
        expected = numbers / dtype(divisor)
    (found,) = kernel([numbers])
    apart = found.view(f"i{found.itemsize}") - expected.view(f"i{found.itemsize}")
    assert not np.any(apart[~(np.abs(expected) < limits.tiny)])
    assert np.max(np.abs(apart)) <= 1  # subnormal numbers, for which the second product has no digits left
    is_near = 1.0 / np.sqrt(limits.max) < abs(divisor) < np.sqrt(limits.max)
    assert ("fdiv" in kernel.lowered.ir_text) != (is_near and has_fused_multiply_add())


def test_sums_of_lanes_stay_in_registers() -> None:
    """LLVM would copy them through memory where a row of lanes is stored twice."""
    rng = np.random.default_rng(0)
    gradient = gt.value_and_grad(mixture, argnums=(0, 1))
    arguments = [rng.normal(size=shape) for shape in ((5, 4), (5, 4, 4), (640, 4))]
    graph = compiled_graph(gradient, *arguments)
    program, _ = build_loops(graph)
    assert any(isinstance(statement, For) and statement.lanes for statement in walk(program.body))
    assert "call void @llvm.memcpy" not in optimised_llvm(lower(optimise(graph)).ir_text)
