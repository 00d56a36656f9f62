"""Programs with loops and branches as operations, each beside the same written as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gradtape as gt

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6, 3))
SQUARE = RNG.normal(size=(3, 3)) * 0.5
VECTOR = RNG.normal(size=3)


class Program(NamedTuple):
    """A function of floats, the same without combinators, and arguments."""

    function: Callable[..., Any]
    plain: Callable[..., Any]
    args: tuple[Any, ...]


PROGRAMS: dict[str, Program] = {}


def program(name: str, plain: Callable[..., Any], *args: Any) -> Callable[[Callable[..., Any]], Any]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[name] = Program(function, plain, args)
        return function

    return enter


def rnn_plain(w: Any, h: Any, xs: Any) -> Any:
    ys = []
    for x in xs:
        h = np.tanh(w @ h + x)
        ys.append(h * 2)
    return h, np.stack(ys)


@program("recurrent network", rnn_plain, SQUARE, VECTOR, ROWS)
def rnn(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, h * 2

    return gt.scan(step, h, xs)


def nests_plain(h: Any, xs: Any, factors: Any) -> Any:
    counts, left = [None] * len(xs), [None] * len(xs)
    for n, k in enumerate(reversed(range(len(xs)))):
        h = np.tanh(h + xs[k] * factors[k])
        counts[k], left[k] = n, h * factors[k]
    return {"h": h, "count": len(xs)}, (np.array(counts), None, [np.stack(left)])


def nests_of(unroll: int) -> Callable[..., Any]:
    def nests(h: Any, xs: Any, factors: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h = np.tanh(carry["h"] + x["row"] * x["factor"])
            return {"h": h, "count": carry["count"] + 1}, (carry["count"], None, [h * x["factor"]])

        xs = {"row": xs, "factor": factors}
        return gt.scan(step, {"h": h, "count": 0}, xs, reverse=True, unroll=unroll)

    return nests


for factor in (1, 2, 4, 6, 9):
    program(f"nests backward, {factor} iterations in one", nests_plain, VECTOR, ROWS, ROWS[:, 0])(
        nests_of(factor)
    )


def in_iteration_plain(x: Any) -> Any:
    c, ys = 1.0, []
    for row in x:
        s = 0.0
        for v in row:
            s = s * c + v
        c = c + np.sin(s)
        ys.append(s)
    return c, np.stack(ys)


@program("scan in scan", in_iteration_plain, ROWS)
def in_iteration(x: Any) -> Any:
    def iterate(c: Any, row: Any) -> Any:
        s, _ = gt.scan(lambda s, v: (s * c + v, None), 0.0, row)
        return c + np.sin(s), s

    return gt.scan(iterate, 1.0, x)


def root_plain(a: Any) -> Any:
    x, step = 1.0, 1.0
    while np.abs(step) > 1e-12:
        step = (x * x - a) / (2 * x)
        x = x - step
    return x


@program("Newton's method", root_plain, 2.0)
def root(a: Any) -> Any:
    def newton(x: Any, step: Any) -> Any:
        step = (x * x - a) / (2 * x)
        return x - step, step

    return gt.while_loop(lambda x, step: np.abs(step) > 1e-12, newton, (1.0, 1.0))[0]


def grown_plain(x: Any) -> Any:
    while np.sum(x) < 50:
        x = x * 1.5
    return x


@program("the while of one array", grown_plain, np.array([1.0, 0.5, 2.0]))
def grown(x: Any) -> Any:
    return gt.while_loop(lambda x: np.sum(x) < 50, lambda x: x * 1.5, x)


def limited_plain(x: Any) -> Any:
    for _ in range(3):
        x = np.sin(x) * 2
    return {"x": x}


@program("a while that is cut short", limited_plain, VECTOR)
def limited(x: Any) -> Any:
    return gt.while_loop(
        lambda v: np.sum(v["x"]) < 1e9, lambda v: {"x": np.sin(v["x"]) * 2}, {"x": x}, max_iterations=3
    )


def roots_plain(xs: Any) -> Any:
    return np.stack([root_plain(1 + x * x) for x in xs])


@program("while in map", roots_plain, VECTOR)
def roots(xs: Any) -> Any:
    return gt.map(lambda x: root(1 + x * x), xs)


def branched_plain(x: Any) -> Any:
    return np.stack([np.sqrt(v) if v > 0 else -v * v for v in x])


@program("cond in map", branched_plain, VECTOR)
def branched(x: Any) -> Any:
    return gt.map(lambda v: gt.cond(v > 0, np.sqrt, lambda v: -v * v, v), x)


@program("cond with captures", lambda x, w: (x @ w, 1.0) if x[0] > 0 else (x * 2, 0.0), VECTOR, SQUARE)
def captured(x: Any, w: Any) -> Any:
    return gt.cond(x[0] > 0, lambda: (x @ w, 1), lambda: (x * 2, 0.0))


@program("switch", lambda x: (np.sin(x), np.cos(x) * 2.0), VECTOR)
def switched(x: Any) -> Any:
    pick = [np.cos, np.sin, lambda x: x**2]
    return gt.switch(1, pick, x), gt.switch(np.int32(-3), pick, x) * 2


def table_plain(x: Any) -> Any:
    y = [x[0], x[1]]
    for i in range(2, 6):
        y.append(y[i - 1] + y[i - 2] * x[i])
    return np.stack(y)


@program("a table written by index", table_plain, ROWS[:, 0])
def table(x: Any) -> Any:
    def fill(i: Any, y: Any) -> Any:
        y[i] = y[i - 1] + y[i - 2] * gt.asarray(x)[i]
        return y

    start = np.zeros_like(x)
    start[:2] = x[:2]
    return gt.fori_loop(2, 6, fill, start)


def powers_plain(x: Any) -> Any:
    total = 0.0
    for i in range(-2, 4):
        total = total + i * x**2
    return total


@program("integers from below zero", powers_plain, VECTOR)
def powers(x: Any) -> Any:
    return gt.fori_loop(-2, 4, lambda i, total: total + i * x**2, 0)


@program("no iteration", lambda x: (x * 2, np.zeros((0, 3))), VECTOR)
def still(x: Any) -> Any:
    return gt.scan(lambda c, row: (c + row, c * row), x * 2, np.zeros((0, 3)))


@program("one iteration", lambda x: (x * 3, (x * 2)[None]), VECTOR)
def once(x: Any) -> Any:
    return gt.scan(lambda c, row: (c + row, c), x * 2, x[None])


@program("prefixes", lambda a: np.cumprod(a, axis=1), ROWS)
def prefixes(a: Any) -> Any:
    return gt.associative_scan(np.multiply, a, axis=1)


def products_plain(a: Any) -> Any:
    found = [a[-1]]
    for k in reversed(range(len(a) - 1)):
        found.append(a[k] @ found[-1])
    return np.stack(found[::-1])


STACKED = RNG.normal(size=(5, 3, 3))


@program("products of matrices", products_plain, STACKED)
def products(a: Any) -> Any:
    return gt.associative_scan(lambda p, q: q @ p, a, reverse=True)


def recurrence_plain(a: Any, b: Any) -> Any:
    x, xs = 0.0, []
    for k in range(len(a)):
        x = a[k] * x + b[k]
        xs.append(x)
    return np.stack(xs)


@program("a linear recurrence", recurrence_plain, ROWS[:, 0], ROWS[:, 1])
def recurrence(a: Any, b: Any) -> Any:
    def then(first: Any, second: Any) -> Any:
        return {"a": first["a"] * second["a"], "b": first["b"] * second["a"] + second["b"]}

    return gt.associative_scan(then, {"a": a, "b": b})["b"]


def descent_plain(x: Any) -> Any:
    for v in ROWS[:, 0]:
        x = x - 0.1 * (2 * (x - v) + np.cos(x))
    return x


@program("a gradient in each iteration", descent_plain, VECTOR)
def descent(x: Any) -> Any:
    def step(x: Any, v: Any) -> Any:
        return x - 0.1 * gt.grad(lambda x: np.sum((x - v) ** 2 + np.sin(x)))(x), None

    return gt.scan(step, x, ROWS[:, 0])[0]


@program("a tape in each iteration", descent_plain, VECTOR)
def taped_descent(x: Any) -> Any:
    def step(x: Any, v: Any) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(x)
            loss = np.sum((x - v) ** 2 + np.sin(x))
        return x - 0.1 * tape.gradient(loss, x), None

    return gt.scan(step, x, ROWS[:, 0])[0]


def mapped_plain(x: Any) -> Any:
    for row in ROWS:
        x = np.stack([np.sum(np.sin(v * row)) for v in x])
    return x


@program("a map in each iteration", mapped_plain, VECTOR)
def mapped(x: Any) -> Any:
    return gt.scan(lambda x, row: (gt.vmap(lambda v: np.sum(np.sin(v * row)))(x), None), x, ROWS)[0]


def recomputed_plain(x: Any, w: Any) -> Any:
    for row in ROWS:
        x = np.tanh(w @ x + row)
    return x


@program("checkpointed iterations", recomputed_plain, VECTOR, SQUARE)
def recomputed(x: Any, w: Any) -> Any:
    return gt.scan(lambda x, row: (gt.checkpoint(lambda x: np.tanh(w @ x + row))(x), None), x, ROWS)[0]


for policy in ("all", "sqrt", 1, 2, 4, 100, ("treeverse", 2), ["treeverse", 3]):

    def kept(x: Any, w: Any, policy: Any = policy) -> Any:
        return gt.scan(lambda x, row: (np.tanh(w @ x + row), None), x, ROWS, checkpoint=policy)[0]

    program(f"checkpoint={policy!r}", recomputed_plain, VECTOR, SQUARE)(kept)
