"""What a selection did not take never reaches the result, whatever moves or adds up elements in between: 0 * inf does not arise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

X = np.array([1.0, 0.0, 4.0, 0.0])
PICK = np.array([2, 1, 0, 3, 2, 1])
WEIGHTS = np.arange(1.0, 5.0)


def root(x: Any) -> Any:
    return np.sqrt(x) * WEIGHTS


def chosen(x: Any, moved: Callable[[Any], Any]) -> Any:
    """Return the sum of what is moved of the root where the same of x is positive."""
    return np.sum(np.where(moved(x) > 0, moved(root(x)), 0.0))


MOVES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "reshape": lambda x: x.reshape(2, 2),
    "reshape there and back": lambda x: x.reshape(4, 1).reshape(4),
    "reshape twice": lambda x: x.reshape(2, 2).reshape(1, 4),
    "transpose": lambda x: x.reshape(2, 2).T,
    "reverse": lambda x: x[::-1],
    "slice": lambda x: x[1:],
    "every other": lambda x: x[::2],
    "one": lambda x: x[1],
    "new axis": lambda x: x[:, None],
    "broadcast": lambda x: x * np.ones((3, 1)),
    "broadcast of a column": lambda x: x[:, None] * np.ones(3),
    "stack": lambda x: np.stack([x, x]),
    "concatenate": lambda x: np.concatenate([x, x[1:]]),
    "roll": lambda x: np.roll(x, 1),
    "repeat": lambda x: np.repeat(x, 2),
    "tile": lambda x: np.tile(x, 2),
    "pad": lambda x: np.pad(x, 1),
    "gather": lambda x: x[PICK],
    "rows": lambda x: x.reshape(2, 2)[np.array([1, 0, 1])],
    "split": lambda x: np.concatenate(np.split(x, 2)[::-1]),
    "loop": lambda x: np.stack([x[k] for k in range(4)]),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", MOVES)
def test_a_mask_moves_with_its_elements(name: str, jit: bool) -> None:
    moved = MOVES[name]
    with gt.config.override(jit=jit):
        found = gt.grad(lambda x: chosen(x, moved))(X)
    counts = np.bincount(np.ravel(moved(np.arange(1.0, 5.0))).astype(int), minlength=5)[1:]
    slopes = np.divide(WEIGHTS, 2 * np.sqrt(X), out=np.zeros(4), where=X > 0)
    np.testing.assert_allclose(found, counts * slopes)


@pytest.mark.parametrize("name", ["reshape", "broadcast", "gather", "slice"])
def test_derivatives_of_any_kind_are_cut(name: str) -> None:
    moved = MOVES[name]

    def f(x: Any) -> Any:
        return chosen(x, moved)

    slope = gt.grad(f)(X)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(gt.jacfwd(f)(X), slope)
    curvature = gt.hessian(f)(X)
    assert np.isfinite(curvature).all()
    np.testing.assert_allclose(np.diag(curvature)[[0, 2]], -slope[[0, 2]] / (2 * X[[0, 2]]))
    rows = gt.vmap(gt.grad(f))(np.stack([X, X[::-1]]))
    np.testing.assert_allclose(rows, [slope, gt.grad(f)(X[::-1])])
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope)


def test_a_sum_that_is_not_chosen() -> None:
    f = gt.grad(lambda x: np.where(np.min(x) > 0, np.sum(root(x)), 2.0 * x[0]))
    np.testing.assert_array_equal(f(X), [2.0, 0.0, 0.0, 0.0])
    g = gt.grad(lambda x: np.sum(np.where(x > 0, np.mean(np.sqrt(x * X)), 0.0) * 0.0))
    assert np.isfinite(g(X)[[0, 2]]).all()


def test_what_is_chosen_somewhere_counts() -> None:
    """Where one of the elements that are added up was chosen, an infinite slope is infinite."""
    f = gt.grad(lambda x: np.sum(np.where(np.array([[False], [True]]), np.sqrt(x) * np.ones((2, 1)), 0.0)))
    np.testing.assert_array_equal(f(X), [0.5, np.inf, 0.25, np.inf])
    g = gt.grad(lambda x: np.sum(np.where(np.arange(6) > 2, np.sqrt(x)[PICK], 0.0)))
    np.testing.assert_array_equal(g(X), [0.0, np.inf, 0.25, np.inf])


def test_a_zero_that_is_no_selection_stays_an_ordinary_zero() -> None:
    """Otherwise second derivatives at a minimum would vanish."""

    def f(x: Any) -> Any:
        return np.sum((np.where(x > 0, x, 0.0).reshape(2, 2) - np.array([[1.0, 0.0], [4.0, 0.0]])) ** 2)

    np.testing.assert_array_equal(gt.grad(f)(X), np.zeros(4))
    np.testing.assert_array_equal(gt.hessian(f)(X), np.diag([2.0, 0.0, 2.0, 0.0]))


def test_masks_of_what_is_added_up_cost_nothing_where_nobody_asks() -> None:
    """The bias of a layer is broadcast: its gradient is a sum of what a selection cut, and no mask is added up for it."""

    def layer(w: Any, b: Any, x: Any) -> Any:
        return np.sum(np.maximum(x @ w + b, 0.0) ** 2)

    text = str(gt.inspect.graph(gt.grad(layer, argnums=(0, 1)), np.ones((3, 4)), np.ones(4), np.ones((5, 3))))
    assert "reduce_sum" in text
    assert "reduce_any" not in text


LANES = 6
SCALES = np.arange(1.0, LANES + 1)


def rows(y: Any) -> Any:
    return y[:, None] * np.arange(1.0, 4.0)


def summed(checkpoint: Any) -> Callable[[Any], Any]:
    return lambda y: gt.scan(lambda c, v: (c + v, c + v), 0.0, y, checkpoint=checkpoint)[1]


def mapped(checkpoint: Any) -> Callable[[Any], Any]:
    return lambda y: gt.scan(lambda c, v: (c, v * 2.0), 0.0, y, checkpoint=checkpoint)[1]


CAUSAL: dict[str, Callable[[Any], Any]] = {
    "cumsum": np.cumsum,
    "cumsum twice": lambda y: np.cumsum(np.cumsum(y)),
    "cumprod": np.cumprod,
    "add.accumulate": np.add.accumulate,
    "maximum.accumulate": np.maximum.accumulate,
    "minimum.accumulate": np.minimum.accumulate,
    "logaddexp.accumulate": np.logaddexp.accumulate,
    "nancumsum": np.nancumsum,
    "diff": lambda y: np.concatenate([y[:1], np.diff(y)]),
    "convolve": lambda y: np.convolve(y, np.array([1.0, 2.0, 3.0]))[:LANES],
    "scan": summed(None),
    "scan, all": summed("all"),
    "scan, chunks": summed(2),
    "scan, sqrt": summed("sqrt"),
    "scan, treeverse": summed(("treeverse", 2)),
    "associative_scan": lambda y: gt.associative_scan(np.add, y),
    "Python loop": lambda y: np.stack([np.sum(y[: k + 1]) for k in range(LANES)]),
}
"""What an element depends on the ones before it, and not on the ones behind."""

LOCAL: dict[str, Callable[[Any], Any]] = {
    "map": lambda y: gt.map(lambda v: v * 2.0, y),
    "scan, chunks": mapped(2),
    "scan, sqrt": mapped("sqrt"),
    "scan, treeverse": mapped(("treeverse", 2)),
    "cond": lambda y: gt.map(lambda v: gt.cond(v == v, lambda: v * 2.0, lambda: v * 3.0), y),
    "checkpoint": lambda y: gt.checkpoint(lambda z: z * 2.0)(y),
    "jit": lambda y: gt.jit(lambda z: z * 2.0)(y),
    "vmap": lambda y: gt.vmap(lambda v: np.sum(v * np.ones(3)))(y),
    "matmul": lambda y: (rows(y) @ np.arange(6.0).reshape(3, 2))[:, 1],
    "matmul from the left": lambda y: (np.arange(6.0).reshape(2, 3) @ rows(y).T)[1],
    "einsum": lambda y: np.einsum("ij,ij->i", rows(y), np.ones((LANES, 3))),
    "einsum of three": lambda y: np.einsum("ij,jk,k->i", rows(y), np.ones((3, 2)), np.ones(2)),
    "outer": lambda y: np.outer(y, SCALES)[:, 2],
    "kron": lambda y: np.kron(y, np.array([1.0, 2.0]))[::2],
    "dot": lambda y: np.stack([np.dot(y[k : k + 1], SCALES[k : k + 1]) for k in range(LANES)]),
    "sort": lambda y: np.sort(rows(y), axis=1)[:, 1],
    "take": lambda y: np.take(y, np.arange(LANES)),
    "take_along_axis": lambda y: np.take_along_axis(y, np.arange(LANES), 0),
    "norm": lambda y: np.linalg.norm(rows(y), axis=1),
    "prod": lambda y: np.prod(rows(y), axis=1),
    "var": lambda y: np.var(rows(y), axis=1),
    "median": lambda y: np.median(rows(y), axis=1),
    "cumsum of rows": lambda y: np.cumsum(rows(y), axis=1)[:, 1],
    "cumprod of rows": lambda y: np.cumprod(rows(y), axis=1)[:, 1],
    "fft": lambda y: np.fft.fft(rows(y), axis=1).real[:, 1],
    "solve": lambda y: np.linalg.solve(np.broadcast_to(np.eye(3) * 2, (LANES, 3, 3)), rows(y)[..., None])[
        :, 1, 0
    ],
    "trapezoid": lambda y: np.trapezoid(rows(y), axis=1),
    "add.at": lambda y: added_at(y),
    "bincount": lambda y: np.bincount(np.arange(LANES), weights=y, minlength=LANES),
}
"""What an element depends on itself alone."""

BAD: dict[str, tuple[Callable[[Any], Any], float]] = {
    "root at 0": (np.sqrt, 0.0),
    "logarithm at 0": (np.log, 0.0),
    "root of what is negative": (np.sqrt, -1.0),
}


def added_at(y: Any) -> Any:
    z = np.zeros(LANES, like=y)
    np.add.at(z, np.arange(LANES), y)
    return z


def check_like_harmless(f: Callable[[Any], Any], mask: Any, bad: float, *, second: bool = True) -> None:
    """Derivatives are those of the program whose lanes that are not selected hold harmless numbers."""
    x = np.linspace(0.5, 2.0, LANES)
    harmless, x = np.where(mask, x, 1.25), np.where(mask, x, bad)
    expected = gt.grad(f)(harmless)
    assert not expected[~mask].any()
    np.testing.assert_allclose(gt.grad(f)(x), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gt.jacfwd(f)(x), expected, rtol=1e-9, atol=1e-12)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = f(watched)
    np.testing.assert_allclose(tape.gradient(y, watched).numpy(), expected, rtol=1e-9, atol=1e-12)
    if second:
        np.testing.assert_allclose(gt.hessian(f)(x), gt.hessian(f)(harmless), rtol=1e-9, atol=1e-9)


TAIL = np.arange(LANES) < LANES - 2


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", CAUSAL)
def test_what_runs_along_an_axis_keeps_masks(name: str, jit: bool) -> None:
    """The last elements are not selected, and none of the others depends on them."""
    for function, bad in BAD.values():
        with gt.config.override(jit=jit), np.errstate(all="ignore"):
            check_like_harmless(
                lambda x, g=function: np.sum(np.where(TAIL, CAUSAL[name](g(x)), 0.0) * SCALES),
                TAIL,
                bad,
                second=jit and bad == 0,
            )


@pytest.mark.parametrize("name", LOCAL)
def test_what_mixes_no_lanes_keeps_masks(name: str) -> None:
    """Of sums over other axes too: products of matrices, transforms, solutions of equations, loops."""
    mask = np.array([True, False, True, True, False, True])
    for jit, (function, bad) in zip((False, True, False), BAD.values(), strict=True):
        with gt.config.override(jit=jit), np.errstate(all="ignore"):
            check_like_harmless(
                lambda x, g=function: np.sum(np.where(mask, LOCAL[name](g(x)), 0.0) * SCALES),
                mask,
                bad,
                second=not jit,
            )


def test_what_all_turns_share_keeps_masks() -> None:
    """The root is read by each turn and selected by none; or its first element only."""

    def f(x: Any, chosen: Any, checkpoint: Any = None) -> Any:
        root = np.sqrt(x)
        return gt.scan(
            lambda c, v: (c + np.sum(np.where(chosen & (v > 0), root, 0.0)), None),
            0.0,
            np.arange(4.0),
            checkpoint=checkpoint,
        )[0]

    x = np.array([4.0, 0.0])
    none, first = np.array([False, False]), np.array([True, False])
    for policy in (None, 2, "sqrt", ("treeverse", 2)):
        np.testing.assert_array_equal(gt.grad(lambda x, p=policy: f(x, none, p))(x), [0.0, 0.0])
        np.testing.assert_array_equal(gt.grad(lambda x, p=policy: f(x, first, p))(x), [0.75, 0.0])

    def repeated(x: Any, n: Any) -> Any:
        root = np.sqrt(x)
        return gt.while_loop(
            lambda k, c: k < n, lambda k, c: (k + 1, c + np.sum(np.where(x > 0, root, 0.0))), (0, 0.0)
        )[1]

    np.testing.assert_array_equal(gt.grad(lambda x: repeated(x, 3))(x), [0.75, 0.0])


def test_a_product_that_is_not_chosen() -> None:
    f = gt.grad(lambda a, b: np.where(a[0] > 0, np.dot(a, b), 0.0), argnums=(0, 1))
    a, b = f(np.array([-1.0, 2.0]), np.array([np.inf, np.nan]))
    np.testing.assert_array_equal(a, [0.0, 0.0])
    np.testing.assert_array_equal(b, [0.0, 0.0])


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_masks(seed: int) -> None:
    """Some of the above after one another, a selection, and something linear."""
    random = np.random.default_rng(seed)
    steps = [*CAUSAL.values(), *LOCAL.values()]
    chosen = [steps[k] for k in random.integers(len(steps), size=random.integers(2, 5))]
    function, bad = list(BAD.values())[random.integers(len(BAD))]
    after = [np.cumsum, lambda y: y[::-1], lambda y: np.convolve(y, [1.0, -0.5]), np.diff, lambda y: y * 2.0]
    last = after[random.integers(len(after))]

    def f(x: Any) -> Any:
        y = function(x)
        for step in chosen:
            y = step(y)
        return np.sum(np.sin(last(np.where(TAIL, y, 0.5))))

    with gt.config.override(jit=bool(seed % 2)), np.errstate(all="ignore"):
        check_like_harmless(f, TAIL, bad, second=False)


def test_whether_an_array_is_close_to_a_real_one_is_guarded() -> None:
    close = gt.jit(lambda z: np.real_if_close(z * 1.0))
    for z in (
        np.array([1 + 1e-18j, 2.0]),
        np.array([1 + 1j, 2.0]),
        np.array([3.0 + 0j, 2.0]),
        np.zeros(0, complex),
    ):
        expected = np.real_if_close(z)
        assert close(z).dtype == expected.dtype
        np.testing.assert_array_equal(close(z), expected)


METHODS = {
    "compress": [([True, False, True],), ([True, False, True], 1), (np.array([1, 1]), 0)],
    "take": [([0, 2, 5],), ([2, 0], 1)],
    "repeat": [(2,), ([1, 2], 0)],
    "argpartition": [(1,), (1, 0)],
    "argsort": [(), (0,)],
    "trace": [(), (1,)],
    "diagonal": [(), (1,)],
    "dot": [(np.arange(3.0),)],
    "var": [(), (1,), (0, None, None, 1)],
    "max": [(1, None, True)],
    "clip": [(0.2, 1.0), (None, 0.5)],
    "cumsum": [(), (1,)],
    "nonzero": [()],
    "swapaxes": [(0, 1)],
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_arguments_of_those_of_ndarrays(name: str) -> None:
    x = np.array([[0.3, 0.0, 2.0], [1.0, 0.7, -1.0]])
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        for args in METHODS[name]:
            np.testing.assert_array_equal(getattr(watched, name)(*args), getattr(x, name)(*args))
    column = np.array([0.5, 1.5, 2.5])
    with gt.GradientTape() as tape:
        np.testing.assert_array_equal(tape.watch(column).searchsorted([1.0, 9.0], "right"), [1, 3])


def test_bincount_of_traced_positions_follows_their_greatest() -> None:
    def heaps(k: Any, w: Any) -> Any:
        return np.bincount(k, weights=w, minlength=2) ** 2

    function = gt.jit(heaps)
    w = np.array([0.5, 1.0, 2.0])
    for positions in (np.array([0, 2, 2]), np.array([1, 0, 0]), np.array([4, 0, 4]), np.array([0, 2, 1])):
        np.testing.assert_array_equal(function(positions, w), heaps(positions, w))
        np.testing.assert_array_equal(gt.jit(np.bincount)(positions), np.bincount(positions))
    np.testing.assert_array_equal(gt.jit(np.bincount)(np.zeros(0, int)), np.bincount(np.zeros(0, int)))
    assert function.site.traces == 3  # of 3, 2 and 5 heaps
    slope = gt.grad(lambda x, k: np.sum(heaps(k, x)))(w, np.array([0, 2, 2]))
    np.testing.assert_allclose(slope, [1.0, 6.0, 6.0])
    for wrong in (np.array([-1]), np.array([0.5]), np.array([[1]])):
        with pytest.raises((ValueError, TypeError)):
            gt.jit(np.bincount)(wrong)
