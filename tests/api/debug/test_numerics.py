"""Finding the first NaN or infinity; statistics of gradients over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug.origin import Finding
from gradtape.api.debug.statistics import OpStatistics, sparkline
from gradtape.errors import ArgumentError, NumericsError
from gradtape.runtime.compile import program
from gradtape.trace.lazy.instruments import CHECKS, MADE, RECORDING
from gradtape.transforms.observers import OBSERVERS

matplotlib.use("Agg")
WITH_ZERO = np.array([1.0, 0.0, 4.0])


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    gt.debug.clear_gradient_debuggers()
    yield
    assert not CHECKS and not MADE and not RECORDING.tools and not OBSERVERS
    plt.close("all")


def found_in(work: Callable[[], Any]) -> Finding:
    with pytest.raises(NumericsError) as caught, gt.debug.check_numerics():
        work()
    assert isinstance(caught.value, FloatingPointError)
    assert isinstance(caught.value.finding, Finding)
    return caught.value.finding


def on_tape(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def gradient(x: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = function(watched)
        return tape.gradient(y, watched)

    return gradient


both = pytest.mark.parametrize("slope_of", [gt.grad, on_tape], ids=["jitted", "tape"])


@both
def test_forward(slope_of: Any) -> None:
    finding = found_in(lambda: slope_of(lambda x: np.sum(np.log(x)))(WITH_ZERO))
    assert (finding.op, finding.derivative_of, finding.shape) == ("log", None, (3,))
    (sample,) = finding.samples
    assert (sample.index, sample.operands) == ((1,), (0.0,)) and sample.result == -np.inf
    assert finding.site.filename == __file__


@both
def test_backward(slope_of: Any) -> None:
    finding = found_in(lambda: slope_of(lambda x: np.sum(np.sqrt(x)))(WITH_ZERO))
    assert finding.derivative_of == "sqrt" and finding.samples[0].index == (1,)


def test_forward_mode() -> None:
    finding = found_in(lambda: gt.jvp(np.sqrt, (WITH_ZERO,), (np.ones(3),)))
    assert finding.derivative_of == "sqrt"


def test_python_numbers_are_checked_in_double_precision() -> None:
    with gt.debug.check_numerics():
        gt.check_grads(np.sin, (1.0,), order=2)


def test_after_native_calls() -> None:
    slope = gt.grad(lambda x: np.sum(np.sqrt(x)))
    slope(WITH_ZERO), slope(WITH_ZERO)
    assert found_in(lambda: slope(WITH_ZERO)).derivative_of == "sqrt"
    assert slope(WITH_ZERO)[1] == np.inf


QUIET: dict[str, Callable[[Any], Any]] = {
    "the branch not taken": lambda x: np.sum(np.where(x > 0, np.log(x), 0.0)),
    "its derivative": lambda x: np.sum(np.where(x > 0, np.sqrt(x), x)),
    "an overflow that is swallowed": lambda x: np.sum(x / (1.0 + np.exp(1000.0 + 0 * gt.stop_gradient(x)))),
    "the branch not taken, computed again": lambda x: np.sum(np.where(x > 0, gt.checkpoint(np.sqrt)(x), x)),
    "a maximum over minus infinity": lambda x: np.max(x, initial=-np.inf),
}


@both
@pytest.mark.parametrize("case", QUIET)
def test_no_false_alarm(slope_of: Any, case: str) -> None:
    with gt.debug.check_numerics():
        gradient = slope_of(QUIET[case])(WITH_ZERO)
    assert np.isfinite(np.asarray(gradient)).all()


def test_the_branch_that_is_taken_is_blamed() -> None:
    with_zero = np.array([-1.0, 0.0, 1.0])
    finding = found_in(lambda: gt.jit(lambda x: np.where(x >= 0, np.log(x), 1.0))(with_zero))
    assert finding.op == "log" and finding.samples[0].index == (1,)


def test_an_index_that_passes_over_it() -> None:
    with gt.debug.check_numerics():
        assert gt.jit(lambda x: np.sum(np.log(x)[::2]))(WITH_ZERO) == np.log(4.0)
    finding = found_in(lambda: gt.jit(lambda x: np.sum((1.0 / x)[::-1][:2]))(WITH_ZERO))
    assert finding.op == "divide" and finding.samples[0].index == (1,)


def test_through_matrix_products_and_reductions() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 0.0]])
    finding = found_in(lambda: gt.jit(lambda m: np.sum(np.log(m) @ np.ones(2)) * 2.0)(matrix))
    assert finding.op == "log" and finding.samples[0].index == (1, 1)


def test_an_overflowing_sum() -> None:
    finding = found_in(lambda: gt.jit(np.sum)(np.full(4, 1e308)))
    assert (finding.op, finding.samples[0].operands) == ("reduce_sum", ())


def test_several_elements() -> None:
    finding = found_in(lambda: gt.jit(np.log)(np.zeros(10)))
    assert finding.count == 10 and len(finding.samples) == 3


def test_bad_input() -> None:
    finding = found_in(lambda: gt.jit(lambda x: np.sum(x) * 2.0)(np.array([1.0, np.nan])))
    assert finding.op == "input" and finding.samples[0].index == (1,)


def test_what_is_left_at_the_end() -> None:
    kept = []
    assert found_in(lambda: kept.append(np.log(gt.constant(WITH_ZERO)))).op == "log"


def test_what_is_only_a_step_on_the_way_is_not_looked_at() -> None:
    kept = []
    with gt.debug.check_numerics():
        x = gt.constant(WITH_ZERO)
        kept += [logarithm := np.log(x), np.where(x > 0, logarithm, 0.0)]
    assert np.isneginf(kept[0].numpy()[1])


def test_inside_of_a_gradient_recorded_as_one_call() -> None:
    slope = on_tape(lambda x: np.sum(np.sqrt(x)))
    for _ in range(3):
        pending = slope(WITH_ZERO)
    assert pending.value.data is None
    finding = found_in(lambda: float(np.sum(pending)))
    assert finding.derivative_of == "sqrt" and finding.samples[0].index == (1,)


def test_an_exception_in_the_block_is_not_hidden() -> None:
    with pytest.raises(KeyError), gt.debug.check_numerics():
        kept = np.log(gt.constant(WITH_ZERO))
        raise KeyError(kept.shape)


def test_eager() -> None:
    with gt.config.override(eager=True):
        assert found_in(lambda: gt.jit(lambda x: np.sum(np.log(x)))(WITH_ZERO)).op == "log"
        with gt.debug.check_numerics():
            gt.grad(QUIET["the branch not taken"])(WITH_ZERO)


def test_second_order() -> None:
    bent = gt.grad(gt.grad(lambda x: x * np.sqrt(x)))
    assert found_in(lambda: bent(0.0)).derivative_of is not None
    with gt.debug.check_numerics():
        assert np.isclose(bent(4.0), 0.375)


def test_for_a_whole_program() -> None:
    gt.debug.enable_check_numerics()
    gt.debug.enable_check_numerics()
    try:
        with pytest.raises(NumericsError):
            gt.jit(np.log)(WITH_ZERO)
    finally:
        gt.debug.disable_check_numerics()
    gt.debug.disable_check_numerics()
    assert gt.jit(np.log)(WITH_ZERO)[1] == -np.inf


# Statistics


def chain(scale: float) -> Callable[[Any], Any]:
    def loss(x: Any) -> Any:
        for number in range(4):
            x = gt.name(x * scale, f"layer {number}")
        return np.sum(x)

    return loss


def by_label(statistics: Any) -> dict[str, OpStatistics]:
    return {row.label: row for row in statistics.rows}


@both
def test_statistics(slope_of: Any) -> None:
    slope = slope_of(chain(10.0))
    slope(np.ones(4))
    with gt.debug.gradient_statistics() as statistics:
        for _ in range(3):
            slope(np.ones(4))
    slope(np.ones(4))
    rows = by_label(statistics)
    assert statistics.steps == 3
    assert rows["layer 3"].steps == [0, 1, 2]
    assert np.allclose([rows[f"layer {k}"].norm[-1] for k in range(4)], [2000.0, 200.0, 20.0, 2.0])
    assert rows["source 0"].mean[-1] == pytest.approx(1e4)
    assert rows["source 0"].zeros == rows["source 0"].nonfinite == [0.0] * 3


def test_verdicts() -> None:
    def verdict(scale: float, x: Any = WITH_ZERO) -> str:
        with gt.debug.gradient_statistics() as statistics:
            gt.grad(chain(scale))(x)
        return by_label(statistics)["source 0"].verdict()

    assert verdict(1e-3) == "vanishing"
    assert verdict(1e3) == "exploding"
    assert verdict(1.0) == ""
    assert verdict(0.0) == "dead"
    assert verdict(1e100) == "not finite"


def test_large_gradients_do_not_overflow_the_norm() -> None:
    row = OpStatistics("x", (4,))
    row.add(0, np.full(4, 1e300))
    assert row.norm == [pytest.approx(2e300)] and row.nonfinite == [0.0]


def test_shares() -> None:
    row = OpStatistics("x", (4,))
    row.add(0, np.array([0.0, 0.0, np.nan, 1.0]))
    row.add(1, np.array([]))
    assert (row.zeros, row.nonfinite) == ([0.5, 0.0], [0.25, 0.0])


def recurrent(scale: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = gt.name(np.tanh(scale * h + x), "state")
        return h, None

    return np.sum(gt.scan(step, 0.0, xs)[0])


@both
@pytest.mark.parametrize(("scale", "verdict"), [(0.01, "vanishing"), (1e4, "exploding")])
def test_the_iterations_of_a_loop_have_a_row_each(slope_of: Any, scale: float, verdict: str) -> None:
    def loss(w: Any) -> Any:
        return gt.scan(lambda h, x: (gt.name(w * h * x, "state"), None), 1.0, np.ones(6))[0]

    with gt.debug.gradient_statistics() as statistics:
        for _ in range(2):
            slope_of(loss)(np.array(scale))
    rows = by_label(statistics)
    states = [rows[f"state, iteration {iteration}"] for iteration in range(6)]
    assert np.allclose([row.norm[-1] for row in states], [scale ** (5 - iteration) for iteration in range(6)])
    assert (states[0].verdict(), states[-1].verdict(), states[0].steps) == (verdict, "", [0, 1])
    order = list(rows)
    assert order[0] == "source 0" and order.index("state, iteration 5") > order.index("state, iteration 4")


def test_unrolled_iterations_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    before = program.compile_graph
    monkeypatch.setattr(
        program, "compile_graph", lambda graph, form: compiled.append(len(graph.nodes)) or before(graph, form)
    )
    with gt.debug.GradientsDebugger().watch_gradients_by_tensor_names(None, "state") as debugger:
        for _ in range(3):
            with gt.debug.gradient_statistics() as statistics:
                on_tape(lambda w: recurrent(w, np.ones(90)))(np.array(0.5)).numpy()
            assert len(statistics.rows) > 270 and len(debugger.gradient_tensors()) == 90
    assert all(nodes < 90 for nodes in compiled)


def test_what_is_computed_again_belongs_to_the_same_step() -> None:
    loss = gt.checkpoint(lambda x: np.sum(gt.name(np.tanh(x), "inside") ** 2))
    with gt.debug.gradient_statistics() as statistics:
        for _ in range(2):
            gt.grad(loss)(WITH_ZERO)
    assert statistics.steps == 2 and by_label(statistics)["inside"].steps == [0, 1]
    assert not any(label.startswith("barrier") for label in by_label(statistics))


def test_functions_with_rules_are_called_by_their_names() -> None:
    def squared(x: Any) -> Any:
        return np.sum(x**2), lambda upstream: 2 * x * upstream

    with gt.debug.gradient_statistics() as statistics:
        gt.grad(gt.custom_gradient(squared))(WITH_ZERO)
    assert any(label.startswith("squared test_numerics.py") for label in by_label(statistics))


def test_of_many_rows_the_first_and_the_last_are_printed() -> None:
    with gt.debug.gradient_statistics() as statistics:
        gt.grad(recurrent)(0.5, np.ones(100))
    assert len(statistics.rows) > 300
    assert len(repr(statistics).splitlines()) < 70 and f"{len(statistics.rows) - 60} more rows" in repr(
        statistics
    )


def test_lines_that_run_several_times_have_a_row_each() -> None:
    def loss(x: Any) -> Any:
        for _ in range(3):
            x = np.tanh(x)
        return np.sum(x)

    with gt.debug.gradient_statistics() as statistics:
        gt.grad(loss)(WITH_ZERO)
    labels = [label for label in by_label(statistics) if label.startswith("tanh")]
    assert len(labels) == 3 and all("test_numerics.py" in label for label in labels)


def test_table_and_plots() -> None:
    slope = gt.grad(chain(2.0))
    with gt.debug.gradient_statistics() as statistics:
        for step in range(3):
            slope(np.array([1.0, np.nan if step == 2 else 1.0]))
    assert "layer 0" in repr(statistics) and "norm over time" in repr(statistics)
    assert statistics._repr_html_().count("<tr>") == 1 + len(statistics.rows)
    for measure in ("norm", "mean", "zeros", "nonfinite"):
        axes = statistics.plot(measure)
        assert len(axes.lines) >= len(statistics.rows)
    assert len(statistics.plot(match="layer 0").get_legend().get_texts()) == 1
    _, given = plt.subplots()
    assert statistics.plot(axes=given) is given
    with pytest.raises(ArgumentError, match="unknown measure"):
        statistics.plot("size")


def test_nothing_to_show() -> None:
    with gt.debug.gradient_statistics() as statistics:
        pass
    assert "0 steps" in repr(statistics)
    assert statistics.plot() is not None


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert len(sparkline([1.0] * 1000)) <= 16
    assert sparkline([float("inf"), 1.0, 100.0]) == "!▁█"


# Loops and branches


def falling(c: Any, x: Any) -> Any:
    c = c - x
    return np.log(c), c


FALL = np.array([1.0, 2.0, 3.0, 0.5])
BAD_LOOPS: dict[str, tuple[Callable[[], Any], str]] = {
    "carry": (lambda: gt.scan(falling, 30.0, FALL)[0], "log gave nan as its result, in iteration 2 of scan"),
    "jit": (
        lambda: gt.jit(lambda x: gt.scan(falling, 30.0, x)[0])(FALL),
        "log gave nan as its result, in iteration 2 of scan",
    ),
    "left behind": (
        lambda: gt.scan(lambda c, x: (c - x, np.sqrt(np.stack([c, c - 2]))), 4.0, FALL)[1],
        "sqrt gave nan at [1], in iteration 2 of scan",
    ),
    "backward": (
        lambda: gt.scan(lambda c, x: (c - x, np.sqrt(c)), 4.0, FALL, reverse=True)[1],
        "sqrt gave nan as its result, in iteration 0 of scan",
    ),
    "while": (
        lambda: gt.while_loop(lambda x, i: i < 6, lambda x, i: (np.log(x), i + 1), (3.0, 0))[0],
        "log gave nan as its result, in iteration 3 of while_loop",
    ),
    "branch": (lambda: gt.cond(True, np.log, lambda x: x, -1.0), "log gave nan as its result"),
    "loop in a loop": (
        lambda: gt.scan(lambda c, x: (gt.scan(lambda d, y: (np.log(d), None), c, FALL)[0], None), 20.0, FALL)[
            0
        ],
        "log gave nan as its result, in iteration 0 of scan, in iteration 1 of scan",
    ),
    "derivative": (
        lambda: gt.grad(lambda w: gt.scan(lambda c, x: (np.sqrt(c * w), None), 0.0, FALL)[0])(2.0),
        "divide gave inf as its result, in the derivative of sqrt, in iteration 3 of scan",
    ),
    "derivative of a while": (
        lambda: gt.grad(
            lambda w: gt.while_loop(lambda x, i: i < 3, lambda x, i: (np.sqrt(x * w), i + 1), (0.0, 0))[0]
        )(2.0),
        "in the derivative of sqrt, in iteration 2 of",
    ),
}


@pytest.mark.parametrize(("loop", "message"), BAD_LOOPS.values(), ids=list(BAD_LOOPS))
def test_the_iteration_of_a_loop_is_found(loop: Callable[[], Any], message: str) -> None:
    with pytest.raises(NumericsError) as caught, gt.debug.check_numerics():
        loop()
    assert message in str(caught.value)
    assert __file__ in str(caught.value)


def test_a_bad_number_in_the_program_text_is_that_of_its_op() -> None:
    def spoilt(x: Any) -> Any:
        return np.sum(x**2), lambda upstream: upstream * x * np.nan

    finding = found_in(lambda: gt.grad(gt.custom_gradient(spoilt))(WITH_ZERO))
    assert finding.op == "multiply" and finding.site.filename == __file__
    assert found_in(lambda: gt.jit(lambda x: np.where(x > 0, x, np.inf))(WITH_ZERO)).op == "where"


def test_a_branch_in_an_iteration() -> None:
    with (
        pytest.raises(NumericsError, match="log gave -inf as its result, in iteration 1 of scan"),
        gt.debug.check_numerics(),
    ):
        gt.scan(lambda c, x: (c + gt.cond(x >= 0, np.log, lambda x: x, x), None), 0.0, WITH_ZERO)


def test_a_sweep_of_a_rule_is_not_looked_at_by_itself() -> None:
    def chosen(x: Any) -> Any:
        def pull(upstream: Any) -> Any:
            slope = gt.grad(lambda x: np.sum(np.sqrt(x)))(x)
            return np.where(np.isfinite(slope), slope, 0.0) * upstream

        return np.sum(np.sqrt(x)), pull

    with gt.debug.check_numerics():
        assert np.array_equal(gt.grad(gt.custom_gradient(chosen))(WITH_ZERO), [0.5, 0.0, 0.25])


def test_what_comes_into_a_loop_is_found() -> None:
    with (
        pytest.raises(NumericsError, match=r"that was not computed under the check has nan at \[1\]"),
        gt.debug.check_numerics(),
    ):
        gt.scan(lambda c, x: (c + x, None), 0.0, np.array([1.0, np.nan, 2.0]))
    # A branch that is not taken is no alarm.
    with gt.debug.check_numerics():
        gt.scan(lambda c, x: (gt.cond(x > 0, lambda: c, lambda: np.log(-c)), None), 20.0, FALL)
