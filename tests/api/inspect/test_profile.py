"""The profiler: exact counts, shares that add up, the right lines, and nothing of it while it is off."""

from __future__ import annotations

import json
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.inspect.report import FunctionFigures, KernelFigures
from gradtape.api.inspect.text import bar, duration, percent, size
from gradtape.runtime.call.capi import FREE_THREADED
from gradtape.runtime.compile.program import ACTIVE
from gradtape.runtime.profile.profiled_kernel import profiled_objects

HERE = Path(__file__).resolve()


def line_of(marker: str) -> int:
    """Return the number of the line of this file that ends with a comment."""
    (found,) = [n for n, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# {marker}")]
    return found


def loss(x: Any, w: Any) -> Any:
    hidden = np.tanh(x @ w)  # hidden
    total = np.sum(hidden**2)  # total
    return total / 2


def only(report: gt.inspect.Report, name: str) -> FunctionFigures:
    (found,) = [function for function in report.functions if function.name == name]
    return found


def kernel_of(function: FunctionFigures) -> KernelFigures:
    (kernel,) = function.kernels
    return kernel


def shares(function: FunctionFigures) -> float:
    return sum(nest.share for kernel in function.kernels for nest in kernel.nests)


# Counts


def test_calls_are_counted_exactly() -> None:
    f = gt.jit(lambda x: np.sum(np.exp(x)))
    f(np.zeros(10))
    with gt.inspect.profile() as report:
        for _ in range(57):
            f(np.zeros(10))
        f(np.zeros(20)[::2])  # traced for its layout, and copied by the Python call site for the same kernel
        f(np.zeros(7))
    figures = only(report, "<lambda>")
    assert (figures.calls, figures.traces, figures.misses, figures.compiled) == (59, 2, 0, 1)
    assert sorted(kernel.runs for kernel in figures.kernels) == [1, 58]
    assert report.functions == [figures] and figures.share == 1.0


def test_guards_that_are_missed_are_counted() -> None:
    @gt.jit
    def branching(x: Any) -> Any:
        return np.sum(np.exp(x)) if x[0] > 0 else np.sum(np.sin(x))

    x = np.ones(5)
    branching(x)
    branching(-x)
    with gt.inspect.profile() as report:
        branching(-x)  # in Python, where the first trace is tried first
        for _ in range(20):
            branching(x)
        for _ in range(10):
            branching(-x)
    figures = only(report, "branching")
    assert figures.calls == 31 and figures.traces == 0
    runs, missed = sum(kernel.runs for kernel in figures.kernels), figures.misses
    assert runs - missed == 31
    # one in Python, and 20 of the newest trace, which machine code tries first; without the lock, Python tries the first trace
    assert missed == (11 if FREE_THREADED else 21)


def test_nested_arguments_and_keywords_are_counted_once() -> None:
    @gt.jit
    def tree(d: Any, scale: float = 1.0) -> Any:
        return {"double": d["x"] * 2 * scale, "sum": np.sum(d["x"])}

    tree({"x": np.ones(3)}, scale=2.0)
    with gt.inspect.profile() as report:
        for _ in range(9):
            tree({"x": np.ones(3)}, scale=2.0)
    figures = only(report, "tree")
    assert figures.calls == 9 and sum(kernel.runs for kernel in figures.kernels) == 9
    assert figures.dispatch >= 0


def test_calls_inside_of_a_trace_are_a_part_of_it() -> None:
    inner = gt.jit(lambda x: np.sin(x) * 2)

    @gt.jit
    def outer(x: Any) -> Any:
        return np.sum(inner(x))

    with gt.inspect.profile() as report:
        outer(np.ones(4))
        outer(np.ones(4))
    assert [(f.name, f.calls, f.traces) for f in report.functions] == [("outer", 2, 1)]


def test_other_threads_are_counted() -> None:
    f = gt.value_and_grad(loss, argnums=1)
    x, w = np.ones((50, 3)), np.ones(3)

    def work() -> None:
        for _ in range(200):
            f(x, w)

    with gt.inspect.profile() as report:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    figures = only(report, "value_and_grad(loss)")
    assert figures.calls == 800 and kernel_of(figures).runs == 800 and figures.traces == 1


def test_functions_that_raise_are_counted() -> None:
    @gt.jit
    def stops(x: Any) -> Any:
        raise KeyError("no")

    with gt.inspect.profile() as report, pytest.raises(KeyError):
        stops(np.ones(2))
    assert (only(report, "stops").calls, only(report, "stops").traces) == (1, 1)
    assert "stops" in str(report) and ACTIVE.profiler is None


# Times and bytes


def test_shares_sum_to_one() -> None:
    f, g = gt.value_and_grad(loss, argnums=1), gt.jit(lambda x: np.cumsum(np.sort(x)))
    with gt.inspect.profile() as report:
        for _ in range(3):
            f(np.ones((300, 40)), np.ones(40))
            g(np.linspace(1, 0, 100))
    assert sum(function.share for function in report.functions) == pytest.approx(1.0)
    for function in report.functions:
        assert shares(function) == pytest.approx(1.0)
        parts = function.kernel, function.interpreter, function.dispatch, function.trace, function.compile
        assert min(parts) >= 0 and sum(parts) == pytest.approx(function.seconds)
        for kernel in function.kernels:
            assert sum(nest.seconds for nest in kernel.nests) == pytest.approx(kernel.seconds)
            for nest in kernel.nests:
                assert not nest.lines or sum(line.share for line in nest.lines) == pytest.approx(1.0)
    assert sum(function.seconds for function in report.functions) <= report.seconds
    assert {nest.kind for nest in kernel_of(only(report, "<lambda>")).nests} == {"argsort", "loop", "between"}


def test_bytes_are_those_of_the_loops() -> None:
    f = gt.jit(lambda x, y: np.exp(x) + y)
    report = gt.inspect.profile(f, np.ones(1000), np.ones(1000))
    kernel = kernel_of(report.functions[0])
    (nest, between) = kernel.nests
    assert (kernel.input_bytes, kernel.output_bytes) == (16000, 8000)
    assert (nest.extents, nest.moved, nest.footprint, nest.operations) == (((1000,),), 24000, 24000, 2000.0)
    assert between.kind == "between" and report.functions[0].moved == 24000


def test_a_product_is_a_routine_with_its_operations() -> None:
    f = gt.jit(lambda x, y: x @ y)
    report = gt.inspect.profile(f, np.ones((64, 32)), np.ones((32, 48)))
    (nest,) = [nest for nest in kernel_of(report.functions[0]).nests if nest.kind == "gemm"]
    assert nest.operations == 2 * 64 * 32 * 48 and nest.extents == ()
    assert [line.ops for line in nest.lines] == [("contract",)]


def test_blocks_for_threads_are_named() -> None:
    f = gt.jit(lambda x: np.sum(np.sin(x) * np.cos(x)))
    report = gt.inspect.profile(f, np.ones(1_000_000))
    nest = max(kernel_of(report.functions[0]).nests, key=lambda nest: nest.operations)
    assert nest.blocks == nest.extents[0][0] > 1
    assert all(nest.lines for nest in kernel_of(report.functions[0]).nests)


# Lines


def test_lines_are_those_of_the_code() -> None:
    f = gt.value_and_grad(loss, argnums=1)
    report = gt.inspect.profile(f, np.ones((40, 3)), np.ones(3))
    figures = only(report, "value_and_grad(loss)")
    assert (figures.filename, figures.line) == (str(HERE), line_of("hidden") - 1)
    lines = [line for nest in kernel_of(figures).nests for line in nest.lines]
    assert {line.filename for line in lines} == {str(HERE)}
    assert {line.line for line in lines} <= {line_of("hidden"), line_of("total"), line_of("total") + 1}
    (tanh,) = [line for line in lines if "tanh" in line.ops]
    assert (tanh.line, tanh.backward, tanh.text) == (
        line_of("hidden"),
        False,
        "hidden = np.tanh(x @ w)  # hidden",
    )
    assert any(line.backward and line.line == line_of("hidden") for line in lines)
    assert any("reduce_sum" in line.ops and line.line == line_of("total") for line in lines)


def test_code_without_loops_has_lines_too() -> None:
    def small(x: Any) -> Any:
        return x[0] * x[1]  # small

    kernel = kernel_of(gt.inspect.profile(gt.jit(small), np.ones(2)).functions[0])
    (between,) = kernel.nests
    assert between.kind == "between" and {line.line for line in between.lines} == {line_of("small")}


def test_rows_side_by_side_keep_their_lines() -> None:
    """The blocks of rows, the sums with a place for each lane, and the rows that are left."""

    def moments(x: Any, m: Any) -> Any:
        d = np.exp(x[:, None, :] - m)  # difference
        return np.einsum("nki,nkj->ij", d, d)  # moments

    report = gt.inspect.profile(
        gt.grad(lambda m, x: np.sum(moments(x, m)), argnums=0), np.ones((5, 4)), np.ones((401, 4))
    )
    nests = kernel_of(report.functions[0]).nests
    places = {line_of("difference"), line_of("moments")}
    assert len(nests) > 2 and all(nest.lines for nest in nests if nest.kind == "loop")
    assert {
        line.line for nest in nests for line in nest.lines if line.text.endswith(("difference", "moments"))
    } == places


def test_loops_of_the_user_are_nests_with_the_lines_of_their_bodies() -> None:
    def run(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = np.tanh(carry + row)  # step
            return carry, carry

        return np.sum(gt.scan(step, np.zeros(6), x)[1])

    nests = kernel_of(gt.inspect.profile(gt.jit(run), np.ones((31, 6))).functions[0]).nests
    (found,) = [nest for nest in nests if any("tanh" in line.ops for line in nest.lines)]
    assert found.extents == ((31, 6),) and found.operations >= 2 * 31 * 6
    assert [line.line for line in found.lines if "tanh" in line.ops] == [line_of("step")]


def test_loops_that_a_condition_ends_count_one_iteration() -> None:
    def halve(x: Any) -> Any:
        return gt.while_loop(lambda v: np.max(v) > 1, lambda v: np.sqrt(v), x)

    report = gt.inspect.profile(gt.jit(halve), np.full(50, 1e6))
    (found,) = [
        nest
        for nest in kernel_of(report.functions[0]).nests
        if nest.kind == "loop" and nest.extents[0][0] == 0
    ]
    assert (0, 50) in found.extents and "loop ? x 50" in str(report)


# Tapes


def test_tapes_are_named_by_the_line_that_asks() -> None:
    x = gt.constant(np.linspace(0, 1, 500_000))
    with gt.inspect.profile() as report:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(np.sin(x))  # recorded
        slope = tape.gradient(y, x)
        np.asarray(slope)  # asked
    (figures,) = report.functions
    assert figures.tape and figures.line == line_of("asked") and figures.filename == str(HERE)
    assert (figures.calls, figures.compiled, figures.interpreter) == (1, 1, 0.0) and figures.kernel > 0
    assert line_of("recorded") in {line.line for nest in kernel_of(figures).nests for line in nest.lines}
    assert "tape in test_tapes_are_named" in str(report)


def test_what_the_interpreter_runs_has_lines() -> None:
    with gt.inspect.profile() as report:
        x = gt.constant(np.ones(3))
        y = np.sin(x) + 2.5  # interpreted
        float(np.sum(y))
    (figures,) = report.functions
    kernel = kernel_of(figures)
    assert (kernel.origin, kernel.runs, figures.kernel) == ("interpreter", 1, 0.0) and figures.interpreter > 0
    assert line_of("interpreted") in {line.line for line in kernel.nests[0].lines}
    assert "op by op" in str(report)


def test_functions_that_cannot_be_compiled_are_shown() -> None:
    f = gt.jit(lambda z: np.sin(z))
    with pytest.warns(gt.errors.CompileWarning, match="float16"):
        report = gt.inspect.profile(f, np.array([2.0, 1.0], np.float16))
    assert kernel_of(report.functions[0]).origin == "interpreter" and report.functions[0].calls == 1


# On and off


@pytest.mark.skipif(FREE_THREADED, reason="Python checks what the function reads")
def test_off_means_off() -> None:
    before = profiled_objects.misses
    f = gt.jit(lambda x: np.sum(np.log1p(x)))
    f(np.ones(11))
    native = f._native
    assert profiled_objects.misses == before
    with gt.inspect.profile():
        f(np.ones(11))
        f(np.ones(11))
        assert f.entry and f._native is not native
    assert profiled_objects.misses == before + 1
    assert f.entry
    f(np.ones(11))
    f(np.ones(12))
    assert profiled_objects.misses == before + 1


def test_profiles_are_compiled_once() -> None:
    f = gt.jit(lambda x: np.sum(np.log1p(x) * 3))
    gt.inspect.profile(f, np.ones(11))
    before = profiled_objects.misses
    report = gt.inspect.profile(f, np.ones(11))
    assert profiled_objects.misses == before and kernel_of(report.functions[0]).runs == 1


def test_results_are_the_same() -> None:
    f = gt.value_and_grad(loss, argnums=1)
    x, w = np.random.default_rng(0).normal(size=(1000, 30)), np.ones(30)
    value, slope = f(x, w)
    profiled_value, profiled_slope = gt.inspect.profile(f, x, w).result
    assert value == profiled_value and np.array_equal(slope, profiled_slope)


def test_variables_and_debugging_work_while_a_profile_is_taken() -> None:
    counter = gt.Variable(0.0)

    @gt.jit
    def count(x: Any) -> Any:
        counter.assign_add(np.sum(x))
        return counter * 2

    with gt.inspect.profile() as report:
        for _ in range(4):
            count(np.ones(2))
        with gt.debug.GradientsDebugger():
            count(np.ones(2))
        count(np.ones(2))
    assert float(counter) == 12.0 and only(report, "count").calls == 6


def test_a_debugger_in_a_profile_compiles_nothing_for_functions_that_are_not_called() -> None:
    called, other = gt.jit(lambda x: np.sum(x * 3)), gt.jit(lambda x: np.sum(x * 7))
    called(np.ones(2)), other(np.ones(2))
    with gt.inspect.profile() as report:
        called(np.ones(2))
        with gt.debug.GradientsDebugger():
            called(np.ones(2))
        assert ACTIVE.profiler is not None
        known = {key for key, record in report._recorder.records.items() if record.programs}
        called(np.ones(2))
    assert known == {called.site}
    assert only(report, "<lambda>").calls == 3
    assert other(np.ones(2)) == 14.0


def test_one_profile_at_a_time() -> None:
    with (
        gt.inspect.profile(),
        pytest.raises(gt.errors.ArgumentError, match="already"),
        gt.inspect.profile(),
    ):
        pass
    assert ACTIVE.profiler is None
    taken = gt.inspect.profile(lambda: None)
    with pytest.raises(gt.errors.ArgumentError, match="taken already"), taken:
        pass


def test_wrong_arguments() -> None:
    with pytest.raises(gt.errors.ArgumentError, match="profile got an int"):
        gt.inspect.profile(3)  # type: ignore[arg-type]
    with pytest.raises(gt.errors.ArgumentError, match="sorted by 'size'"):
        gt.inspect.profile(lambda: None).sorted("size")  # type: ignore[arg-type]


def test_a_profile_can_be_looked_at_before_its_end() -> None:
    f = gt.jit(lambda x: np.sum(x * 5))
    with gt.inspect.profile() as report:
        f(np.ones(3))
        assert report.functions[0].calls == 1
        f(np.ones(3))
    assert report.functions[0].calls == 2


# Forms


def test_an_empty_profile() -> None:
    report = gt.inspect.profile(lambda: 1)
    assert (
        report.result == 1 and "no compiled function" in str(report) and "no compiled" in report._repr_html_()
    )
    assert report.to_dict()["functions"] == []


def test_the_text_names_functions_lines_and_times() -> None:
    f = gt.value_and_grad(loss, argnums=1)
    report = gt.inspect.profile(f, np.ones((400, 3)), np.ones(3))
    text = str(report)
    assert repr(report) == text == report.text()
    for part in (
        "value_and_grad(loss)  test_profile.py:",
        "hidden = np.tanh(x @ w)",
        "∂ hidden",
        "loop ",
        "1 run of",
        "tanh",
    ):
        assert part in text


def test_functions_are_sorted() -> None:
    often, long = gt.jit(lambda x: x + 1.0), gt.jit(lambda x: np.sum(np.sin(x)))
    with gt.inspect.profile() as report:
        for _ in range(50):
            often(np.ones(2))
        long(np.ones(100_000))
    assert [f.calls for f in report.sorted("calls")] == [50, 1]
    assert [f.calls for f in report.sorted("moved")] == [1, 50]
    totals = [f.seconds for f in report.functions]
    assert totals == sorted(totals, reverse=True)


def test_figures_are_json() -> None:
    report = gt.inspect.profile(gt.grad(loss, argnums=1), np.ones((40, 3)), np.ones(3))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["functions"][0]["kernels"][0]["nests"][0]["lines"][0]["filename"] == str(HERE)


def test_the_picture_has_a_bar_for_each_nest() -> None:
    report = gt.inspect.profile(gt.grad(loss, argnums=1), np.ones((40, 3)), np.ones(3))
    picture = report._repr_html_()
    opened: list[str] = []

    class Check(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Check().feed(picture)
    nests = [nest for nest in kernel_of(report.functions[0]).nests if nest.kind == "loop"]
    assert opened == [] and picture.count("linear-gradient") >= len(nests) and "grad(loss)" in picture


def test_numbers_are_short() -> None:
    assert [duration(s) for s in (0.0, 1.5e-9, 2.34567e-5, 0.0123, 61.23)] == [
        "0",
        "1.50 ns",
        "23.5 us",
        "12.3 ms",
        "61.2 s",
    ]
    assert [size(b) for b in (12, 1234, 5.6e7, 7.89e9)] == ["12 B", "1.23 kB", "56.0 MB", "7.89 GB"]
    assert (percent(0.5), percent(0.123, about=True), bar(1.0), bar(0.0)) == (
        "50.0 %",
        "~12 %",
        "█" * 20,
        " " * 20,
    )
