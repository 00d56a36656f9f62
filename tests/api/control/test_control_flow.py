"""Loops and branches as operations: the values of plain Python, in every way of running."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.runtime.compile import program as programs
from tests.support.programs.control_flow import PROGRAMS, ROWS, VECTOR, Program

Function = Callable[..., Any]
programs_of_all = pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
COLUMN = ROWS[:, 0]


def same(found: Any, wanted: Any) -> None:
    """Compare nests: containers, shapes, kinds of dtypes, numbers."""
    ours, spec = optree.tree_flatten(found)
    theirs, wanted_spec = optree.tree_flatten(wanted)
    assert spec == wanted_spec
    for one, other in zip(ours, theirs, strict=True):
        one = one.numpy() if isinstance(one, gt.Array) else np.asarray(one)
        other = other.numpy() if isinstance(other, gt.Array) else np.asarray(other)
        assert one.shape == other.shape
        assert one.dtype.kind == other.dtype.kind
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@programs_of_all
def test_eager_values(program: Program) -> None:
    found = program.function(*program.args)
    same(found, program.plain(*program.args))
    assert not any(isinstance(leaf, gt.Array) for leaf in optree.tree_leaves(found))


@programs_of_all
def test_values_in_jit(program: Program) -> None:
    same(gt.jit(program.function)(*program.args), program.plain(*program.args))


@programs_of_all
def test_values_on_a_tape(program: Program) -> None:
    with gt.GradientTape() as tape:
        found = program.function(*tape.watch(program.args))
    same(found, program.plain(*program.args))
    assert any(isinstance(leaf, gt.Array) for leaf in optree.tree_leaves(found))


@programs_of_all
def test_values_one_operation_at_a_time(program: Program) -> None:
    with gt.config.override(eager=True):
        same(program.function(*program.args), program.plain(*program.args))
    with gt.config.override(jit=False):
        same(gt.jit(program.function)(*program.args), program.plain(*program.args))


# What is carried


def loop_of(c: Any, xs: Any, iterate: Function) -> Any:
    ys = []
    for x in xs:
        c, y = iterate(c, x)
        ys.append(y)
    return c, np.stack(ys)


TYPES = {
    "int that becomes a float": (0, COLUMN, lambda c, x: (c + x, c * x)),
    "float that becomes an array": (0.0, ROWS, lambda c, x: (c * 0.5 + x, x)),
    "int that becomes an array": (1, ROWS, lambda c, x: (np.sin(c) + x, x)),
    "int that stays one": (2, COLUMN, lambda c, x: (c + 1, c * x)),
    "float that takes float32": (0.0, COLUMN.astype(np.float32), lambda c, x: (c * 0.5 + x, x)),
    "int that takes int8": (3, np.arange(4, dtype=np.int8), lambda c, x: (x, x)),
    "int that takes uint8": (3, np.arange(4, dtype=np.uint8), lambda c, x: (c + x, x)),
    "int that becomes complex": (0, COLUMN, lambda c, x: (c * 1j + x, x)),
    "bool that stays one": (False, COLUMN, lambda c, x: (c | (x > 0), c)),
    "bool that becomes an int": (True, np.arange(3), lambda c, x: (c * x, x)),
    "float array set to an int": (np.float64(2.5), COLUMN, lambda c, x: (0, c * x)),
    "float set to an int": (2.5, COLUMN, lambda c, x: (0, c * x)),
    "float32 array": (np.ones(3, np.float32), ROWS.astype(np.float32), lambda c, x: (c * 2 + x, c)),
    "complex array": (np.ones(3, complex), ROWS, lambda c, x: (c * 1j + x, np.abs(c))),
    "int array": (np.arange(3), np.arange(6).reshape(2, 3), lambda c, x: (c + x, c // 2)),
}


@pytest.mark.parametrize("case", TYPES.values(), ids=list(TYPES))
def test_numbers_take_the_type_of_what_becomes_of_them(case: tuple[Any, Any, Function]) -> None:
    init, xs, iterate = case
    last, left = loop_of(init, xs, iterate)
    for run in (gt.scan, gt.jit(functools.partial(gt.scan, iterate)).__call__):
        found = run(iterate, init, xs) if run is gt.scan else run(init, xs)
        np.testing.assert_allclose(found[0], last)
        np.testing.assert_allclose(found[1], left)
        assert found[1].dtype == left.dtype


def test_two_numbers_that_change_each_other() -> None:
    def iterate(c: Any, x: Any) -> Any:
        first, second = c
        return (first + second, second + x), first

    (first, second), left = gt.scan(iterate, (0, 0), COLUMN)
    sums = np.cumsum(COLUMN)
    np.testing.assert_allclose([first, second], [np.sum(sums[:-1]), sums[-1]])
    np.testing.assert_allclose(left, np.concatenate([[0, 0], np.cumsum(sums)[:-2]]))


Pair = namedtuple("Pair", "left right")


def test_containers_stay() -> None:
    start = {"pair": Pair(1.0, [np.ones(2), None]), "name": "tag"}

    def iterate(c: Any, x: Any) -> Any:
        pair = c["pair"]
        return {"pair": Pair(pair.left * 2, [pair.right[0] + x, None]), "name": "tag"}, Pair(x, {})

    last, left = gt.scan(iterate, start, np.arange(3.0))
    assert last["name"] == "tag"
    assert last["pair"].left == 8
    assert last["pair"].right[0].tolist() == [4, 4]
    assert last["pair"].right[1] is None
    assert isinstance(left, Pair)
    assert left.left.tolist() == [0, 1, 2]
    assert left.right == {}


@pytest.mark.parametrize("variables", [(1.0, 3), [1.0, 3], Pair(1.0, 3)])
def test_loop_variables_come_back_in_their_containers(variables: Any) -> None:
    found = gt.while_loop(
        lambda x, n: n > 0,
        lambda x, n: (x * 2, n - 1) if type(variables) is not Pair else Pair(x * 2, n - 1),
        variables,
    )
    assert type(found) is type(variables)
    assert list(found) == [8, 0]


def test_the_only_entry_may_be_returned_alone() -> None:
    assert gt.while_loop(lambda x: x < 9, lambda x: x * 2, (1,)) == (16,)
    assert gt.while_loop(lambda x: x < 9, lambda x: (x * 2,), [1]) == [16]
    assert gt.while_loop(lambda x: x < 9, lambda x: x * 2, 1) == 16


@pytest.mark.parametrize(("most", "wanted"), [(0, 1), (2, 4), (100, 16), (np.int64(3), 8)])
def test_a_loop_ends_after_the_maximum_of_iterations(most: Any, wanted: int) -> None:
    assert gt.while_loop(lambda x: x < 9, lambda x: x * 2, 1, max_iterations=most) == wanted


def test_a_condition_that_never_held() -> None:
    assert gt.while_loop(lambda x: x < 0, lambda x: x + 0.5, 1) == 1.0
    assert gt.jit(lambda x: gt.while_loop(lambda x: x < 0, lambda x: x * 2, x))(3.0) == 3.0


def collatz(n: Any) -> Any:
    def halve(n: Any) -> Any:
        return n // 2

    def rise(n: Any) -> Any:
        return 3 * n + 1

    return gt.while_loop(
        lambda n, k: n != 1, lambda n, k: (gt.cond(n % 2 == 0, halve, rise, n), k + 1), (n, 0)
    )[1]


def test_branches_in_a_loop_in_a_loop() -> None:
    numbers = np.array([1, 2, 3, 7, 27])
    wanted = [0, 1, 7, 16, 111]
    assert gt.map(collatz, numbers).tolist() == wanted
    assert gt.jit(lambda n: gt.map(collatz, n))(numbers).tolist() == wanted
    assert gt.vmap(collatz)(numbers).tolist() == wanted


# Bounds, lengths and choices


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 5), (2, 4), (-3, 3), (4, 4), (4, 2), (np.int32(1), np.uint8(4))]
)
def test_bounds(lower: Any, upper: Any) -> None:
    wanted = sum(range(lower, upper))
    assert gt.fori_loop(lower, upper, lambda i, total: total + i, 0) == wanted
    counted = gt.jit(lambda low, high: gt.fori_loop(low, high, lambda i, total: total + i, 0))
    assert counted(lower, upper) == wanted
    low, high = gt.constant(int(lower)), gt.constant(int(upper))
    assert gt.fori_loop(low, high, lambda i, total: total + i, 0) == wanted


def test_one_program_serves_every_traced_bound() -> None:
    function = gt.jit(lambda n, x: gt.fori_loop(0, n, lambda i, c: c * x + i, 1.0))
    for n in range(5):
        assert function(n, 2.0) == functools.reduce(lambda c, i: c * 2.0 + i, range(n), 1.0)
    assert function.site.traces == 1


def test_an_integer_of_the_range_is_weak() -> None:
    assert gt.fori_loop(0, 3, lambda i, c: c + i, np.zeros(2, np.float32)).dtype == np.float32
    traced = gt.jit(lambda n: gt.fori_loop(0, n, lambda i, c: c + np.float32(1) * i, np.float32(0)))
    assert traced(3) == 3


@pytest.mark.parametrize("index", [-5, -1, 0, 1, 2, 3, 99])
def test_a_switch_takes_the_nearest_branch(index: int) -> None:
    branches = [lambda x: x, lambda x: x * 10, lambda x: x * 100]
    wanted = 10 ** min(max(index, 0), 2)
    assert gt.switch(index, branches, 1.0) == wanted
    assert gt.jit(lambda i: gt.switch(i, branches, 1.0))(index) == wanted
    assert gt.jit(lambda i: gt.switch(i, branches, 1.0))(np.int8(index)) == wanted


@pytest.mark.parametrize("pred", [True, np.True_, np.array(True), gt.constant(2.0) > 1])
def test_what_counts_as_a_choice(pred: Any) -> None:
    assert gt.cond(pred, lambda: 1, lambda: 2) == 1


def test_numbers_of_branches_meet() -> None:
    found = gt.cond(False, lambda: 1, lambda: 2.5)
    assert found == 2.5
    assert gt.cond(True, lambda: 1, lambda: 2.5).dtype == float
    assert gt.cond(True, lambda: 1, lambda: np.float32(2.5)).dtype == np.float32
    assert gt.cond(True, lambda: (None, "same", 1j), lambda: (None, "same", 0))[1:] == ("same", 1j)


def test_a_branch_that_is_not_taken_is_not_computed() -> None:
    # Computed, it would not end.
    endless = functools.partial(gt.while_loop, lambda x: x == x, lambda x: x)
    assert gt.cond(True, lambda x: x, endless, 1.0) == 1
    assert gt.jit(lambda x: gt.cond(x > 0, lambda x: x, endless, x))(1.0) == 1


def test_length_without_arrays() -> None:
    assert gt.scan(lambda c, x: (c * 2, x), 1, length=5) == (32, None)
    assert gt.scan(lambda c, x: (c * 2, c), 1, length=np.int16(3))[1].tolist() == [1, 2, 4]
    assert gt.scan(lambda c, x: (c * 2, c), 1, (), length=0)[0] == 1
    assert gt.scan(lambda c, x: (c + x, None), 0, np.arange(4), length=4)[0] == 6


def test_lengths_and_options_may_be_arguments_of_a_compiled_function() -> None:
    double = gt.jit(
        lambda n, k: gt.scan(lambda c, x: (c * 2, None), 1.0, length=n, unroll=k, checkpoint=k)[0]
    )
    assert [float(double(n, k)) for n, k in ((3, 1), (4, 2), (3, 1))] == [8, 16, 8]
    assert double.site.traces == 2
    assert gt.scan(lambda c, x: (c * 2, None), 1.0, length=gt.constant(3))[0] == 8


def test_extents_of_nothing() -> None:
    last, left = gt.scan(lambda c, x: (c + x, np.outer(x, x)), np.zeros(0), np.zeros((4, 0)))
    assert last.shape == (0,)
    assert left.shape == (4, 0, 0)
    assert gt.map(lambda x: x * 2, np.zeros((0, 2))).shape == (0, 2)
    assert gt.associative_scan(np.add, np.zeros((0, 2))).shape == (0, 2)
    assert gt.fori_loop(0, 0, lambda i, c: c / 0, 1) == 1


@pytest.mark.parametrize("count", range(1, 18))
@pytest.mark.parametrize("reverse", [False, True])
def test_prefixes_of_any_number(count: int, reverse: bool) -> None:
    numbers = np.random.default_rng(count).normal(size=(2, count))
    wanted = np.cumsum(numbers[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(numbers, 1)
    np.testing.assert_allclose(gt.associative_scan(np.add, numbers, reverse, axis=-1), wanted)


def test_prefixes_take_few_steps() -> None:
    calls = []
    gt.associative_scan(lambda a, b: calls.append(a.shape[0]) or a + b, np.ones(1000))
    assert len(calls) < 20
    assert sum(calls) < 2000


# Functions of all kinds


class Step:
    factor = 2.0

    def __call__(self, c: Any, x: Any) -> Any:
        return c * self.factor + x, None

    method = __call__


@pytest.mark.parametrize(
    "step",
    [
        Step(),
        Step().method,
        functools.partial(lambda factor, c, x: (c * factor + x, None), 2.0),
        gt.jit(lambda c, x: (c * 2.0 + x, None)),
        lambda c, x, factor=2.0: [c * factor + x, None],
        lambda *pair: (pair[0] * 2.0 + pair[1], None),
    ],
)
def test_whatever_can_be_called_is_a_body(step: Any) -> None:
    wanted = functools.reduce(lambda c, x: c * 2 + x, COLUMN, 0.0)
    np.testing.assert_allclose(gt.scan(step, 0.0, COLUMN)[0], wanted)


def test_functions_of_numpy_are_bodies() -> None:
    assert gt.cond(True, np.sin, np.cos, 0.0) == 0
    assert gt.switch(1, (np.sin, np.cos), 0.0) == 1
    np.testing.assert_allclose(gt.map(np.exp, VECTOR), np.exp(VECTOR))


def test_recursion_while_tracing() -> None:
    def power(x: Any, n: int) -> Any:
        if n == 0:
            return x
        return gt.cond(x > 1, lambda x: power(x - 1, n - 1), lambda x: power(x * 2, n - 1), x)

    def plain(x: float, n: int) -> float:
        return x if n == 0 else plain(x - 1 if x > 1 else x * 2, n - 1)

    for x in (0.3, 1.7, 5.0):
        np.testing.assert_allclose(gt.jit(lambda x: power(x, 4))(x), plain(x, 4))


def test_results_that_do_not_depend_on_the_iteration() -> None:
    ones = np.ones(2)
    last, left = gt.scan(lambda c, x: (ones, (c, ones * 2, 3)), np.zeros(2), COLUMN[:2])
    assert last.tolist() == [1, 1]
    assert [part.tolist() for part in left] == [[[0, 0], [1, 1]], [[2, 2], [2, 2]], [3, 3]]
    assert gt.map(lambda x: None, ROWS) is None
    assert gt.scan(lambda c, x: (None, None), None, ROWS) == (None, None)
    assert gt.while_loop(lambda: False, lambda: (), ()) == ()
    assert gt.cond(True, lambda: None, lambda: None) is None


def test_in_place_code_in_a_body_writes_to_copies() -> None:
    start, rows = np.zeros(3), ROWS.copy()

    def iterate(c: Any, row: Any) -> Any:
        c[0] += row[0]
        row *= 2
        return c, row

    last, left = gt.scan(iterate, start, rows)
    np.testing.assert_allclose(last, [COLUMN.sum(), 0, 0])
    np.testing.assert_allclose(left, ROWS * 2)
    assert not start.any()
    assert (rows == ROWS).all()


def test_arrays_from_outside_are_taken_as_they_are() -> None:
    weights = np.ones(3)
    with gt.GradientTape() as tape:
        x = tape.watch(VECTOR)
        last, _ = gt.scan(lambda c, row: (c + row * weights, None), x, ROWS)
        weights[:] = 100
    np.testing.assert_allclose(last.numpy(), VECTOR + ROWS.sum(0))


def test_what_is_printed_in_a_body_is_a_placeholder(capsys: pytest.CaptureFixture[str]) -> None:
    gt.scan(lambda c, x: (print(c) or c + x, None), np.zeros(3), ROWS)
    assert capsys.readouterr().out == "<f64[3], traced: gt.print shows the numbers>\n"


def test_branches_on_what_lies_outside_are_guarded() -> None:
    @gt.jit
    def function(xs: Any, n: Any, up: Any) -> Any:
        def iterate(c: Any, x: Any) -> Any:
            for _ in range(n):
                c = c + x if up > 0 else c - x
            return c, None

        return gt.scan(iterate, 0.0, xs)[0]

    traces = []
    for n, up in 2 * ((1, 1), (3, 1), (3, -1)):
        np.testing.assert_allclose(function(COLUMN, n, up), n * up * COLUMN.sum())
        traces.append(function.site.traces)
    assert traces[0] < traces[1] < traces[2] == traces[-1]


# How often things happen


@pytest.mark.filterwarnings("ignore::gradtape.errors.SideEffectWarning")
def test_a_body_runs_once_for_any_length() -> None:
    calls = []

    def iterate(c: Any, x: Any) -> Any:
        calls.append(None)
        return c + x, None

    gt.scan(iterate, np.zeros(3), np.ones((1000, 3)))
    assert len(calls) == 1


def test_equal_bodies_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_ = programs._compiled
    monkeypatch.setattr(programs, "_compiled", lambda *args: made.append(args) or compile_(*args))
    for k in range(20):
        start, xs = np.full(5, float(k)), np.full((7, 5), k / 10)
        last, _ = gt.scan(lambda c, x: (np.tanh(c * 0.25 + x), None), start, xs)
        if k % 2:
            last = gt.while_loop(lambda c: np.sum(c) < 3, lambda c: c * 1.25 + 0.125, last)
    assert len(made) <= 2


def test_a_long_loop_is_compiled_at_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_ = programs._compiled
    monkeypatch.setattr(programs, "_compiled", lambda *args: made.append(args) or compile_(*args))
    gt.scan(lambda c, x: (c * 0.375 + x, None), 0.0, np.ones(100_000))
    assert len(made) == 1


def test_arrays_come_back_where_arrays_go_in() -> None:
    x = gt.constant(VECTOR)
    assert isinstance(gt.scan(lambda c, row: (c, row), x, ROWS)[1], gt.Array)
    assert isinstance(gt.scan(lambda c, row: (c, row), VECTOR, gt.constant(ROWS))[0], gt.Array)
    assert isinstance(gt.map(np.sin, x), gt.Array)
    assert isinstance(gt.cond(True, np.sin, np.cos, x), gt.Array)
    assert isinstance(gt.cond(x[0] > 0, lambda: 1.0, lambda: 2.0), gt.Array)
    assert isinstance(gt.while_loop(lambda x: x[0] < 0, lambda x: x + 1, x), gt.Array)
    assert isinstance(gt.associative_scan(np.add, x), gt.Array)
    # What is only read from outside follows the tape that watches it.
    assert isinstance(gt.scan(lambda c, row: (c * x, None), VECTOR, ROWS)[0], np.ndarray)
    with gt.GradientTape() as tape:
        tape.watch(x)
        assert isinstance(gt.scan(lambda c, row: (c * x, None), VECTOR, ROWS)[0], gt.Array)
