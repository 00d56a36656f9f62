"""Lists that loops and branches bind anew, so that names hold another one in each iteration."""

# ruff: noqa: PERF401 - the loops are what is tested

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from gradtape.ir.graph import number_of
from gradtape.procedures.ir import Allocate, For, While
from gradtape.statements import walk
from gradtape.transforms.procedures.reference import cotangent_of, reference_to
from tests.frontend.support import check, translated

X = np.array([0.3, 0.5, 0.7, 0.9])


def display(x):
    state = [x[0], x[1]]
    for i in range(60):
        state = [state[1] * 0.9, math.sin(state[0]) + x[i % 4]]
    return state[0] * state[1]


def comprehension(x):
    state = [x * 0.5, x + 1.0]
    for i in range(60):
        state = [0.9 * s + x[i % 4] for s in state]
    return np.sum(state[0] * state[1])


def appended_anew(x):
    """As the LSTM of ADBench does."""
    state = [x[i] * x for i in range(4)]
    total = 0.0
    for i in range(60):
        after = []
        y = x * math.cos(i)
        for k in range(len(state) // 2):
            h, c = state[2 * k], state[2 * k + 1]
            c = np.tanh(c * y + h)
            y = np.tanh(c) * 0.5
            after += [y, c]
        state = after
        total = total + np.sum(y * y)
    return total


def step(state, a):
    return [state[1], state[0] * 0.5 + a], a * state[1]


def by_a_function(x):
    state = [x[0], x[1]]
    total = 0.0
    for i in range(60):
        state, term = step(state, x[i % 4])
        total += term
    return total + state[0]


def swapped(x):
    a, b = [x[0], 1.0], [x[1], 2.0]
    for i in range(61):
        a, b = b, a
        if i % 3 == 0:
            a = [a[0] * 0.9, a[1] + x[i % 4]]
    return a[0] * 100.0 + a[1] * 10.0 + b[0] + b[1] * 0.1


def of_lists(x):
    state = [[x[0], x[1]], [x[2], x[3]]]
    for _ in range(60):
        state = [[b * 0.9, a + 0.1 * b] for a, b in state]
    return state[0][0] * state[1][1] + state[0][1] * state[1][0]


def rows_changed(x):
    table = [[x[0], x[1]], [x[2], x[3]]]
    for i in range(60):
        table[0] = [table[1][0] * 0.9, table[0][1] * 0.8]
        table[1] = [v + 0.1 * x[i % 4] for v in table[1]]
    return table[0][0] * table[1][1] + table[0][1]


def in_tuples(x):
    pair = ([x[0], x[1]], 1.0)
    for i in range(60):
        (a, b), n = pair
        pair = ([b * 0.9, a + 0.1 * x[i % 4]], n * 0.99)
    return pair[0][0] * pair[0][1] * pair[1]


def tuples_inside(x):
    state = [(x[0], x), (x[1], 2.0 * x)]
    for i in range(60):
        state = [(a * 0.9 + b[i % 4], 0.5 * b + a) for a, b in state]
    return state[0][0] * np.sum(state[1][1])


def written_after(x):
    """The list that an iteration makes is its own until the next one."""
    state = [x[0], x[1]]
    for i in range(60):
        new = [state[0], state[1]]
        new[0] = new[0] * 0.9 + x[i % 4]
        new[1] += new[0] * 0.1
        state = new
    state[0] = state[0] * 2.0
    return state[0] * state[1]


def written_before(x):
    state = [x[0], x[1]]
    for i in range(60):
        state[0] = state[0] + state[1]
        state = [state[0] * 0.5, x[i % 4]]
    return state[0] * state[1]


def one_list_of_two_names(x):
    a = [x[0], x[1]]
    b = a
    for i in range(60):
        a = [a[0] * 0.9, a[1] + x[i % 4]]
        b = a
        b[0] = b[0] + 0.1
    return a[0] * b[1]


def two_names_at_the_beginning(x):
    a = b = [x[0], x[1]]
    for i in range(60):
        a[0] = a[0] + 0.1 * b[0]
        a = b = [b[0] * 0.7, a[1] * 0.9 + x[i % 4]]
    return a[0] + b[0] * b[1]


def the_last_one(x):
    previous = [0.0, 0.0]
    current = [x[0], x[1]]
    for i in range(60):
        previous, current = current, [previous[1] + 0.5 * current[0], x[i % 4]]
    return previous[0] * current[0] + previous[1]


def first_made_inside(x):
    for i in range(60):
        last = [x[i % 4], i * x[0]]
    return last[0] + last[1]


def read_in_the_next_iteration(x):
    total = 0.0
    for i in range(60):
        if i == 0:
            kept = [x[0], 0.0]
        total += kept[0] * kept[1]
        kept = [x[i % 4], total * 0.1 + i]
    return total


def in_a_tuple_made_inside(x):
    for i in range(60):
        last = ([x[i % 4], i * x[0]], i)
    (a, b), n = last
    return a + b * n


def chosen_among_three(x):
    a, b = [x, 1.0], [2.0 * x, 2.0]
    for i in range(60):
        new = [np.sin(a[0]) + b[0] * x[i % 4], a[1] + 1.0]
        best = (new, a) if new[0][1] > 0.2 else (b, new)
        a, b = best
    return np.sum(a[0] * b[0]) * b[1]


def arrays_in_tuples(x):
    best = (x, 2.0 * x)
    for i in range(60):
        a, b = best
        new = np.sin(a) + b * x[i % 4]
        best = (new, a) if new[1] > 0.2 else (b, new)
    return np.sum(best[0] * best[1])


def until(x):
    state = [x[0], 0.0]
    while state[1] < 40.0 + x[0]:
        state = [math.sin(state[0]) + x[1], state[1] + 1.0]
    return state[0] * state[1]


def left_early(x):
    state = [x[0], x[1]]
    for i in range(1000):
        state = [state[1], state[0] * 0.9 + x[i % 4]]
        if state[0] > 5.0 * x[3]:
            break
    return state[0] * state[1]


def nested(x):
    state = [x[0], x[1]]
    for i in range(20):
        inner = [state[1], state[0]]
        for k in range(30):
            inner = [inner[1] * 0.9, inner[0] + x[k % 4] * 0.01]
        state = [inner[0], state[1] * 0.5 + inner[1] * x[i % 4]]
    return state[0] * state[1]


def edit_distance(x):
    """A row of a table, as a list that grows in an inner loop."""
    row = [float(j) for j in range(9)]
    for i in range(40):
        new = [row[0] + 1.0]
        for j in range(1, 9):
            cost = (x[i % 4] - x[j % 4]) ** 2
            new.append(-math.log(math.exp(-row[j - 1] - cost) + math.exp(-row[j]) + math.exp(-new[j - 1])))
        row = new
    return row[8]


def rows_of_one_length(x):
    row = list(x)
    for _ in range(30):
        new = []
        for j in range(4):
            new.append(0.5 * row[j] + 0.4 * row[(j + 1) % 4])
        row = new
    total = 0.0
    for v in row:
        total += v * v
    return total


def copied(x):
    state = [x[0], x[1]]
    kept = state
    for i in range(60):
        state = state.copy()
        state[0] = state[0] * 0.9 + x[i % 4]
    return state[0] * kept[0]


def by_branch(x):
    state = [x[0], x[1]] if x[0] > 0.1 else [x[1], x[2]]
    total = 0.0
    for i in range(60):
        state = [state[1], state[0] * 0.9] if math.sin(i + x[0]) > 0.0 else [state[0] + x[i % 4], state[1]]
        total += state[0]
    return total * state[1]


def array_items(x):
    best = [x, 2.0 * x]
    for i in range(60):
        a, b = best
        new = np.sin(a) + b * x[i % 4]
        new[0] = a[1]
        best = [new, a] if new[1] > 0.2 else [b, new]
    return np.sum(best[0] * best[1])


def turned(state, x):
    after = []
    for layer in range(len(state) // 2):
        h, c = state[2 * layer], state[2 * layer + 1]
        gates = np.stack([x, h, x, h])
        c = c * np.tanh(gates[0]) + np.tanh(gates[1]) * np.tanh(gates[3])
        x = np.sin(gates[2]) * np.tanh(c)
        after += [x, c]
    return after, x


def arrays_turned_by_a_function(x):
    """The gradient of its 500 iterations, if they were all written out, would be compiled for minutes."""
    state = [x, x, x, x]
    for _ in range(500):
        state, y = turned(state, x)
    return np.sum(y)


def sorted_rows(x):
    state = [x[2], x[0], x[1]]
    for i in range(60):
        if state[0] > state[1]:
            state = [state[1], state[0], state[2]]
        state = [state[0] + 0.1 * x[i % 4], state[1] * 0.9, state[2]]
    return state[0] * state[1] + state[2]


PROGRAMS = [
    display, comprehension, appended_anew, by_a_function, swapped, of_lists, rows_changed, in_tuples,
    tuples_inside, written_after, written_before, one_list_of_two_names, two_names_at_the_beginning, the_last_one,
    first_made_inside, read_in_the_next_iteration, in_a_tuple_made_inside, until, left_early, nested, edit_distance,
    rows_of_one_length, copied, by_branch,
    array_items, sorted_rows, chosen_among_three, arrays_in_tuples,
    arrays_turned_by_a_function,
]  # fmt: skip
"""All are translated, as loops."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_lists_that_are_bound_anew_are_carried_by_loops(program: Callable[..., Any]) -> None:
    check(program, X)
    body = translated(program, X).procedure.body
    assert any(isinstance(statement, For | While) for statement in walk(body))
    assert len(list(walk(body))) < 700  # no loop is written out


@pytest.mark.parametrize("program", PROGRAMS)
def test_their_derivatives_are_those_of_recorded_loops(program: Callable[..., Any]) -> None:
    def results(way: str) -> list[Any]:
        gt.config.loops = way
        try:
            value, gradient = gt.value_and_grad(lambda x: program(x))(X)
            direction = gt.jvp(lambda x: program(x), (X,), (X[::-1].copy(),))
        finally:
            gt.config.loops = "auto"
        return [value, gradient, *direction]

    for compiled, recorded in zip(results("compile"), results("trace"), strict=True):
        np.testing.assert_allclose(compiled, recorded, rtol=1e-9, atol=1e-12)


# What Python sees in one list, and copies would not show


def written_through_an_alias(x):
    a = [x[0], x[1]]
    kept = a
    for i in range(60):
        a[0] = a[0] + x[i % 4]
        a = [a[0] * 0.5, a[1]]
    return a[0] + kept[0]


def written_while_two_names_may_hold_it(x):
    a = [x[0], x[1]]
    b = [x[2], x[3]]
    for i in range(60):
        b[0] = b[0] * 0.9
        if x[i % 4] > 0.6:
            b = a
        else:
            a = [a[0] + b[0], a[1]]
    return a[0] + b[0]


def written_after_a_branch(x):
    a, b = [x[0], 1.0], [x[1], 2.0]
    c = a if x[0] > x[1] else b
    c[0] = 7.0 * x[2]
    return a[0] + b[0] * 3.0 + c[0] * 5.0


def appended_after_a_branch(x):
    a, b = [x[0], 1.0], [x[1], 2.0]
    c = a if x[0] > x[1] else b
    append = c.append
    append(x[2])
    return a[-1] + b[-1] * 3.0 + c[-1] * 5.0


def compared(x):
    a, b = [x[0], 1.0], [x[1], 2.0]
    c = a if x[0] > x[1] else b
    return x[0] if c is a else x[1]


def kept_for_the_next_iteration(x):
    a = [x[0], x[1]]
    b = a
    for i in range(60):
        a = [a[0] * 0.5 + x[i % 4], b[1]]
        a[1] = a[1] + 1.0
        c = b
        b = a
        c[0] = 3.0 * x[0]
    return a[0] + b[0] + b[1]


def inside_a_list(x):
    a = [x[0], x[1]]
    table = [a, [x[2], x[3]]]
    for i in range(60):
        a = [a[0] * 0.5 + x[i % 4], a[1]]
        table = [a, table[1]]
    a[0] = 5.0 * x[1]
    return table[0][0] + a[0]


ALIASED = [
    written_through_an_alias, written_while_two_names_may_hold_it, written_after_a_branch, appended_after_a_branch,
    compared, kept_for_the_next_iteration, inside_a_list,
]  # fmt: skip


@pytest.mark.parametrize("program", ALIASED)
def test_writes_that_a_copy_would_not_show_are_refused_or_seen(program: Callable[..., Any]) -> None:
    try:
        check(program, X)
    except UnsupportedCodeError as error:
        assert "the same one" in str(error) or "compared with `is`" in str(error)
    gt.config.loops = "compile"
    try:
        compiled = gt.value_and_grad(lambda x: program(x))(X)
    finally:
        gt.config.loops = "auto"
    recorded = gt.value_and_grad(lambda x: program(x))(X)
    assert compiled[0] == pytest.approx(program(X), rel=1e-12)
    np.testing.assert_allclose(compiled[1], recorded[1], rtol=1e-10)


@pytest.mark.parametrize("program", [written_after_a_branch, written_through_an_alias, compared])
def test_the_refusal_names_the_line(program: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedCodeError) as caught:
        translated(program, X)
    assert caught.value.where is not None
    assert caught.value.where.function == program.__name__


def test_numba_functions_carry_lists_too() -> None:
    function = numba.njit(display)
    check(function, X)


# Random programs


def random_program(seed: int) -> str:
    """Return the source of a function that binds, writes and chooses lists of two items in a loop."""
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c"]

    def name() -> str:
        return str(rng.choice(names))

    def number() -> str:
        return f"({name()}[{rng.integers(2)}] * 0.5 + x[i % 4])"

    def statement() -> list[str]:
        kind = rng.integers(9)
        if kind < 3:
            return [f"{name()} = [{number()}, {number()}]"]
        if kind == 3:
            return [f"{name()} = {name()}"]
        if kind == 4:
            return [f"{name()}[{rng.integers(2)}] = {number()}"]
        if kind == 5:
            return [f"{name()} = {name()} if {number()} > x[{rng.integers(4)}] else {name()}"]
        if kind == 6:
            return [f"{name()}, {name()} = {name()}, [{number()}, {number()}]"]
        if kind == 7:
            return [
                f"if {number()} > x[{rng.integers(4)}]:",
                *["    " + line for line in statement()],
                "else:",
                *["    " + line for line in statement()],
            ]
        return [
            f"for k in range({rng.integers(3, 6)}):",
            *["    " + line for _ in range(2) for line in statement()],
        ]

    body = [f"        {line}" for _ in range(rng.integers(2, 6)) for line in statement()]
    start = rng.choice(["[x[2], 0.2]", "a", "b"])
    return "\n".join(
        [
            "def program(x):",
            "    a, b = [x[0], 1.0], [x[1], 0.5]",
            f"    c = {start}",
            "    for i in range(25):",
            *body,
            "    return a[0] + 2.0 * b[0] + 3.0 * c[0] + 5.0 * a[1] + 7.0 * b[1] + 11.0 * c[1]",
        ]
    )


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs_compute_what_python_does_or_are_refused(first: int) -> None:
    is_translated = []
    for seed in range(first, first + 10):
        scope: dict[str, Any] = {}
        source = random_program(seed)
        exec(source, scope)
        try:
            check(scope["program"], X)
            is_translated.append(True)
        except UnsupportedCodeError as error:
            assert "the same one" in str(error), source
            is_translated.append(False)
        except AssertionError as error:
            raise AssertionError(source) from error
    assert any(is_translated)


def gates(main, sequence):
    """An LSTM whose four gates are rows of a matrix."""
    state = [main[0] * 0.1, main[1] * 0.1]
    total = 0.0
    for t in range(40):
        h, c = state
        x = sequence[t]
        z = np.stack([x, h, x, h]) * main[:4] + main[4:]
        c = c / (1.0 + np.exp(-z[0])) + np.tanh(z[3]) / (1.0 + np.exp(-z[1]))
        h = np.tanh(c) / (1.0 + np.exp(-z[2]))
        state = [h, c]
        total = total + np.sum(h * h)
    return total


def test_the_gates_of_a_recurrent_network_are_one_loop_over_its_units() -> None:
    rng = np.random.default_rng(1)
    arguments = rng.normal(size=(8, 14)), rng.normal(size=(40, 14))
    check(gates, *arguments)
    reference = reference_to(translated(gates, *arguments).procedure)
    procedure = cotangent_of(reference, (True, False), (True,)).procedure
    sweeps = [s for s in procedure.body if isinstance(s, For) and number_of(s.count) == 40]
    assert len(sweeps) == 2
    for sweep in sweeps:
        assert [number_of(s.count) for s in walk(sweep.body) if isinstance(s, For)] == [14]
    large = [s for s in walk(procedure.body) if isinstance(s, Allocate) and number_of(s.size) == 56]
    assert not large  # neither the stack nor the gates are in memory
