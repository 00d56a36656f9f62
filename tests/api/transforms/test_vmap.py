"""Maps over an axis: equal to a loop, in any nesting with the other transforms, with errors that say what to do."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.interpolate
import scipy.ndimage

import gradtape as gt
from gradtape.errors import ArgumentError, ConcretizationError, DtypeError, ShapeError, StructureError
from gradtape.ops.core.sorting import MOST_COUNTED
from tests.support.recording import Runs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3))
W = RNG.normal(size=3)
M = RNG.normal(size=(3, 4))

Function = Callable[..., Any]


def written(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = x[:-1] * 2
    y[0] += np.sum(x)
    return y


def branched(x: Any) -> Any:
    total = np.sum(x)
    return np.where(total > 0, np.sqrt(np.abs(total)), -total)


def looped(x: Any) -> Any:
    state = x * 0.0
    for k in range(3):
        state = np.tanh(state + x[k])
    return state


FUNCTIONS: dict[str, Function] = {
    "elementwise": lambda x: np.exp(-(x**2)) + 1,
    "to a number": lambda x: np.sum(x * W),
    "product": lambda x: x @ M,
    "outer": lambda x: np.outer(x, x),
    "sorted": np.sort,
    "median": np.median,
    "running": np.cumprod,
    "extremum": lambda x: np.max(x) - np.argmin(x),
    "taken": lambda x: x[np.array([2, 0])] * x[::-1][:2],
    "taken at traced places": lambda x: x[np.argmax(x)],
    "shared table": lambda x: gt.constant(M)[np.argsort(x)],
    "searched": lambda x: np.searchsorted(np.sort(x), x + 0.1),
    "joined": lambda x: np.concatenate([x, W, [1.0]]),
    "written": written,
    "branched": branched,
    "looped": looped,
    "norm": np.linalg.norm,
    "interpolated": lambda x: np.interp(x, np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 4.0])),
    "constant": lambda x: np.ones(2),
    "nested": lambda x: {"sum": np.sum(x), "parts": (x, None, [x[0]])},
}
SMOOTH = [name for name in FUNCTIONS if name not in ("constant", "searched", "shared table", "nested")]


def same(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert type(a) is type(b) and len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif a is None:
        assert b is None
    else:
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-12)


def stacked(results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, dict):
        return {key: stacked([result[key] for result in results]) for key in first}
    if isinstance(first, list | tuple):
        return type(first)(stacked(list(column)) for column in zip(*results, strict=True))
    return None if first is None else np.stack([np.asarray(result) for result in results])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_a_loop(name: str) -> None:
    function = FUNCTIONS[name]
    expected = stacked([np.asarray(y) if isinstance(y := function(x), gt.Array) else y for x in X])
    same(gt.vmap(function)(X), expected)
    same(gt.jit(gt.vmap(function))(X), expected)
    with gt.config.override(jit=False):
        same(gt.vmap(function)(X), expected)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_inside_and_around(name: str) -> None:
    def total(x: Any) -> Any:
        return np.sum(FUNCTIONS[name](x) ** 2)

    expected = np.stack([gt.grad(total)(x) for x in X])
    same(gt.vmap(gt.grad(total))(X), expected)
    same(gt.grad(lambda xs: np.sum(gt.vmap(total)(xs)))(X), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_chunks_have_the_results_of_all_elements_at_once(name: str) -> None:
    """Of five elements: one at a time, two (and one that is left over), and more than there are."""
    function = FUNCTIONS[name]
    expected = gt.vmap(function)(X)
    for chunk_size in (1, 2, 5, 9):
        chunked = gt.vmap(function, chunk_size=chunk_size)
        same(chunked(X), expected)
        with gt.config.override(jit=False):
            same(chunked(X), expected)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_chunks(name: str) -> None:
    def total(x: Any, w: Any) -> Any:
        return np.sum(FUNCTIONS[name](x * w) ** 2)

    def around(chunk_size: int | None) -> Function:
        mapped = gt.vmap(total, (0, None), chunk_size=chunk_size)
        return gt.grad(lambda xs, w: np.sum(np.sin(mapped(xs, w))), (0, 1))

    same(gt.vmap(gt.grad(total), (0, None), chunk_size=2)(X, W), gt.vmap(gt.grad(total), (0, None))(X, W))
    expected = around(None)(X, W)
    same(around(2)(X, W), expected)
    with gt.GradientTape() as tape:
        x, w = tape.watch(X), tape.watch(W)
        y = np.sum(np.sin(gt.vmap(total, (0, None), chunk_size=2)(x, w)))
    same(tuple(part.numpy() for part in tape.gradient(y, [x, w])), expected)


def test_results_of_machine_code_and_of_eager_evaluation() -> None:
    with gt.config.override(eager=True):
        same(gt.vmap(FUNCTIONS["looped"])(X), stacked([looped(x) for x in X]))


@pytest.mark.parametrize(
    ("in_axes", "out_axes"),
    [
        ((0, 1), 0),
        ((1, 0), 1),
        ((-1, None), -1),
        ((None, -2), 2),
        ([1, None], 0),
        ((np.int64(1), None), np.int32(-1)),
    ],
)
def test_axes(in_axes: Any, out_axes: int) -> None:
    a, b = RNG.normal(size=(3, 3)), RNG.normal(size=(3, 3, 2))
    a_axis, b_axis = in_axes
    rows = [
        np.outer(
            a if a_axis is None else np.take(a, k, a_axis), b if b_axis is None else np.take(b, k, b_axis)
        )
        for k in range(3)
    ]
    for chunk_size in (None, 1, 2):
        found = gt.vmap(np.outer, in_axes=in_axes, out_axes=out_axes, chunk_size=chunk_size)(a, b)
        same(found, np.stack(rows, axis=out_axes))


def test_axes_of_nested_arguments_and_results() -> None:
    parameters = {"w": RNG.normal(size=(3, 5)), "b": 2.0}

    def layer(p: Any, x: Any) -> Any:
        return {"y": np.dot(p["w"], x) + p["b"], "shared": p["b"]}

    for chunk_size in (None, 2):
        mapped = gt.vmap(
            layer,
            in_axes=({"w": 1, "b": None}, None),
            out_axes={"y": 0, "shared": None},
            chunk_size=chunk_size,
        )
        found = mapped(parameters, W)
        same(found["y"], parameters["w"].T @ W + 2.0)
        assert float(found["shared"]) == 2.0


def test_chunks_nest() -> None:
    a, b = RNG.normal(size=(7, 3)), RNG.normal(size=(3, 5))
    inner = gt.vmap(lambda x, y: np.sum(np.sin(x * y)), in_axes=(None, 1), chunk_size=2)
    product = gt.vmap(inner, in_axes=(0, None), chunk_size=3)
    pairs = np.sin(a[:, :, None] * b)
    same(product(a, b), np.sum(pairs, axis=1))
    same(gt.jit(lambda a, b: product(a, b) + 1.0)(a, b), np.sum(pairs, axis=1) + 1.0)
    slopes = np.sum(np.cos(a[:, :, None] * b) * b, axis=2)
    same(gt.grad(lambda a: np.sum(product(a, b)))(a), slopes)
    same(gt.jacfwd(lambda a: np.sum(product(a, b), axis=1))(a), np.eye(7)[:, :, None] * slopes[:, None])
    curved = gt.hessian(lambda a: np.sum(product(a, b)))(a)
    same(np.einsum("ijij->ij", curved), -np.sum(pairs * b**2, axis=2))


def test_chunks_of_any_length() -> None:
    """A function that is called with many lengths, whose machine code lengths share after some of them."""
    for shapes in ("exact", "symbolic", "auto"):
        mapped = gt.jit(lambda x: gt.vmap(lambda row: np.sum(np.sin(row)), chunk_size=3)(x), shapes=shapes)
        slopes = gt.grad(lambda x, mapped=mapped: np.sum(mapped(x)))
        for length in (0, 1, 2, 3, 5, 6, 7, 8, 9, 60, 61):
            x = RNG.normal(size=(length, 4))
            same(mapped(x), np.sum(np.sin(x), axis=1))
            same(slopes(x), np.cos(x))


def test_chunks_share_what_does_not_depend_on_elements() -> None:
    """Random numbers, variables, calls of Python functions and checks are those of all elements at once."""
    calls = []

    def counted(w: Any) -> Any:
        calls.append(w)
        return w * 2

    def noisy(x: Any) -> Any:
        rng = np.random.default_rng(3)
        return gt.vmap(lambda row: row + rng.normal(size=3), chunk_size=2)(x)

    drawn = np.random.default_rng(3).normal(size=3)
    same(noisy(X), X + drawn)
    same(gt.jit(noisy)(X), X + drawn)
    scale = gt.Variable(2.0)
    scaled = gt.vmap(lambda row: row * scale, chunk_size=2)
    same(scaled(X), 2 * X)
    scale.assign(3.0)
    same(scaled(X), 3 * X)
    added = gt.vmap(lambda row, w: row + gt.callback(counted, np.zeros(3), w), (0, None), chunk_size=2)
    same(added(X, W), X + 2 * W)
    assert len(calls) == 1
    calls.clear()
    each = gt.vmap(lambda row: gt.callback(counted, np.zeros(3), row), chunk_size=2)
    same(each(X), 2 * X)
    same(np.stack(calls), X)


def test_chunks_check_and_print_for_all_elements(capsys: Any) -> None:
    def checked(x: Any) -> Any:
        if np.any(x < 0):
            raise ValueError("negative")
        gt.print("x = {}", x)
        return np.sqrt(x)

    mapped = gt.vmap(checked, chunk_size=2)
    same(mapped(np.arange(5.0)), np.sqrt(np.arange(5.0)))
    assert capsys.readouterr().out == "x = [0. 1. 2. 3. 4.]\n"
    for bad in range(5):
        x = np.arange(5.0)
        x[bad] = -1.0
        with pytest.raises(ValueError, match="negative"):
            mapped(x)


def test_chunks_bound_the_memory_of_values_and_derivatives() -> None:
    def spread(x: Any, y: Any) -> Any:
        return np.sum(np.sort(np.abs(x - y)) * np.sort(np.sin(x * y)))

    x, y = np.linspace(0.0, 1.0, 64), np.linspace(0.0, 1.0, 512)

    def largest(function: Function) -> int:
        sizes = re.findall(r"np\.empty\((\d+)", gt.inspect.loops(function, x, y))
        return max([int(size) for size in sizes], default=0)

    def total(chunk_size: int | None) -> Function:
        mapped = gt.vmap(spread, (0, None), chunk_size=chunk_size)
        return lambda x, y: np.sum(mapped(x, y) ** 2)

    for transform in (gt.jit, gt.grad):
        assert largest(transform(total(None))) >= 64 * 512
        assert largest(transform(total(2))) <= 2 * 512


def test_chunk_sizes_that_do_not_exist() -> None:
    for bad, error in ((0, ArgumentError), (-1, ArgumentError), (1.5, DtypeError), (True, DtypeError)):
        with pytest.raises(error, match=r"vmap: chunk_size .*\n.*where: .*test_vmap.*\n.*number of elements"):
            gt.vmap(np.sin, chunk_size=bad)
    same(gt.vmap(np.sin, chunk_size=np.int64(2))(X), np.sin(X))


def test_maps_nest() -> None:
    a, b = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))
    product = gt.vmap(gt.vmap(np.dot, in_axes=(None, 1)), in_axes=(0, None))
    same(product(a, b), a @ b)
    pairs = gt.vmap(lambda x: gt.vmap(lambda y: np.sum((x - y) ** 2))(a))(a)
    same(pairs, np.sum((a[:, None] - a[None]) ** 2, -1))


def test_keywords_are_mapped_along_the_first_axis() -> None:
    same(gt.vmap(lambda x, scale: x * scale)(X, scale=np.arange(5.0)), X * np.arange(5.0)[:, None])


def test_other_transforms_inside() -> None:
    def newton(x: Any) -> Any:
        return x - gt.jvp(np.sin, (x,), (x * 0 + 1.0,))[1]

    same(gt.vmap(newton)(W), W - np.cos(W))

    def pulled(x: Any) -> Any:
        y, pullback = gt.vjp(np.sin, x)
        return pullback(y)[0]

    same(gt.vmap(pulled)(W), np.sin(W) * np.cos(W))

    def taped(x: Any) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(x**3)
        return tape.gradient(y, x)

    same(gt.vmap(taped)(X), 3 * X**2)
    same(gt.vmap(gt.hessian(lambda x: np.sum(x**3)))(X), np.stack([np.diag(6 * x) for x in X]))


def test_transforms_around() -> None:
    square = gt.vmap(lambda x, w: np.dot(x, w) ** 2, in_axes=(0, None))
    same(gt.grad(lambda w: np.sum(square(X, w)))(W), 2 * X.T @ (X @ W))
    value, tangent = gt.jvp(lambda w: square(X, w), (W,), (W,))
    same(tangent, 2 * value)
    same(gt.jacobian(lambda w: square(X, w))(W), 2 * (X @ W)[:, None] * X)
    with gt.GradientTape() as tape:
        w = tape.watch(W)
        y = np.sum(square(X, w))
    same(tape.gradient(y, w).numpy(), 2 * X.T @ (X @ W))


def test_a_branch_on_what_is_shared_is_followed() -> None:
    @gt.jit
    def scaled(x: Any, w: Any) -> Any:
        return gt.vmap(lambda x: x * 2 if w > 0 else x)(x)

    same(scaled(X, 1.0), 2 * X)
    same(scaled(X, -1.0), X)


BRANCHES: dict[str, Function] = {
    "switch": lambda x: gt.switch(np.argmax(x), [lambda v: v * 2, np.sin, lambda v: v**2], x),
    "cond": lambda x: gt.cond(x[0] > 0, lambda v: np.sum(v**2), lambda v: v[0], np.exp(x)),
    "while": lambda x: gt.while_loop(lambda v: np.sum(v) < 5, lambda v: v**2 + 1, (np.sin(x),))[0],
    "sorted in a loop": lambda x: gt.fori_loop(0, 3, lambda _, v: np.sort(v + 1), x),
}


def test_zero_elements() -> None:
    assert gt.vmap(lambda x: np.sum(np.sort(x)))(np.zeros((0, 3))).shape == (0,)
    assert gt.vmap(np.linalg.norm)(np.zeros((0, 3))).shape == (0,)
    for name, program in BRANCHES.items():
        found = gt.vmap(program)(np.ones((0, 3)))
        assert found.shape == (0, *np.shape(program(np.ones(3)))), name


def test_vectorized_map() -> None:
    same(gt.vectorized_map(lambda pair: pair["a"] * np.sum(pair["b"]), {"a": W, "b": M}), W * M.sum(1))
    x = gt.constant(X)
    with gt.GradientTape() as tape:
        tape.watch(x)
        y = gt.vectorized_map(fn=lambda row: np.sum(row**2), elems=x)
    assert isinstance(y, gt.Array)
    same(tape.gradient(y, x).numpy(), 2 * X)


def test_vectorized_map_sees_what_has_changed() -> None:
    factor = 2.0

    def scaled(x: Any) -> Any:
        return x * factor

    same(gt.vectorized_map(scaled, W), 2 * W)
    factor = 3.0
    same(gt.vectorized_map(scaled, W), 3 * W)


def test_the_program_is_kept() -> None:
    calls = Runs()

    def counted(x: Any) -> Any:
        calls.append(1)
        return np.sum(x)

    mapped = gt.vmap(counted)
    mapped(X)
    mapped(X + 1)
    assert len(calls) == 1
    assert mapped.__name__ == "vmap(counted)"


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (lambda: gt.vmap(lambda x: x if np.sum(x) > 0 else -x)(X), ConcretizationError, ("np.where", "vmap")),
        (lambda: gt.vmap(lambda x: x[: int(x[0])])(X), ConcretizationError, ("index arrays", "vmap")),
        (lambda: gt.vmap(float)(W), ConcretizationError, ("float(x)", "vmap")),
        (
            lambda: gt.vmap(lambda x: np.zeros(3) + x.numpy())(X),
            ConcretizationError,
            ("x.numpy()", "vmap"),
        ),
        (lambda: gt.vectorized_map(lambda x: 1 if x else 0, W), ConcretizationError, ("vectorized_map",)),
        (lambda: gt.vmap(np.add)(X, M), ShapeError, ("argument 0 has 5", "argument 1 has 3")),
        (
            lambda: gt.vmap(lambda d: d["a"])({"a": 1.0}),
            ShapeError,
            ("argument 0['a']", "a number", "axis 0"),
        ),
        (
            lambda: gt.vmap(np.add, in_axes=(0, 2))(X, X),
            ShapeError,
            ("argument 1 is an array of shape (5, 3)", "axis 2"),
        ),
        (
            lambda: gt.vmap(lambda x, *, k: x * k)(X, k=2.0),
            ShapeError,
            ("keyword 'k' is a number", "by position"),
        ),
        (lambda: gt.vmap(np.add, in_axes=(0, True)), DtypeError, ("in_axes", "True", "bool")),
        (lambda: gt.vmap(np.add, in_axes=(0,))(X, X), StructureError, ("in_axes",)),
        (lambda: gt.vmap(np.add, in_axes="0"), DtypeError, ("in_axes", "'0'", "str")),
        (lambda: gt.vmap(np.add, out_axes=1.5), DtypeError, ("out_axes", "1.5", "float")),
        (lambda: gt.vmap(np.sin, in_axes=None)(X), ArgumentError, ("no argument is mapped",)),
        (lambda: gt.vmap(np.sin, out_axes=None)(X), ArgumentError, ("out_axes is None", "differs")),
        (lambda: gt.vmap(np.sin, out_axes=3)(X), ShapeError, ("out_axes", "3", "2 axes")),
        (lambda: gt.vmap(np.sin, out_axes=(0, 0))(X), StructureError, ("out_axes",)),
        (lambda: gt.vmap(lambda x: "text")(X), DtypeError, ("returned a str",)),
        (lambda: gt.vmap(3), ArgumentError, ("vmap", "int")),
        (lambda: gt.vectorized_map(3, X), ArgumentError, ("vectorized_map", "int")),
    ],
)
def test_errors(program: Function, error: type[Exception], words: tuple[str, ...]) -> None:
    with gt.config.override(loops="trace"), pytest.raises(error) as caught:
        program()
    assert type(caught.value) is error
    for word in (*words, "what to do", "test_vmap.py"):
        assert word in str(caught.value)


def test_variables() -> None:
    w, steps = gt.Variable(W), gt.Variable(0)

    def product(x: Any) -> Any:
        steps.assign_add(1)
        return np.dot(x, w)

    mapped = gt.vmap(product)
    for run in range(2):
        with gt.GradientTape() as tape:
            y = mapped(X)
        same(tape.gradient(y, w).numpy(), X.sum(axis=0))
        assert int(steps) == run + 1

    def stored(x: Any) -> Any:
        w.assign(x)
        return x

    for program in (lambda: gt.vmap(stored)(X), lambda: gt.vectorized_map(stored, X)):
        with pytest.raises(ArgumentError, match="assigned to in the function 'stored' that v"):
            program()
    same(w.numpy(), W)


def test_after_an_error_the_values_are_dead() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError(x)

    with pytest.raises(ZeroDivisionError) as caught:
        gt.vmap(fails)(X)
    with pytest.raises(gt.errors.LeakedValueError):
        float(caught.value.args[0][0])


def test_python_may_look_at_what_all_elements_agree_in() -> None:
    points = np.array([[1.0, 2.0, 3.0], [1.5, 2.5, 4.0]])

    def interpolate(x: Any) -> Any:
        return scipy.interpolate.CubicSpline(x, np.exp(-x))(2.2)

    mapped = gt.vmap(interpolate)
    np.testing.assert_allclose(mapped(points), [interpolate(x) for x in points])
    np.testing.assert_allclose(
        gt.grad(lambda x: np.sum(mapped(x)))(points), [gt.grad(interpolate)(x) for x in points]
    )
    with pytest.raises(ValueError, match="increasing"):
        mapped(points[:, ::-1].copy())
    with pytest.raises(ValueError, match="increasing"):  # the error of one element is that of the call
        mapped(np.stack([points[0], points[1, ::-1]]))


def test_elements_agree_in_what_is_asked() -> None:
    """A filter asks for the integer part of its radius, and that its width is positive; the widths may differ."""
    image, widths = np.arange(12.0).reshape(3, 4) ** 2, np.array([1.0, 1.05])

    def smoothed(s: Any) -> Any:
        return scipy.ndimage.gaussian_filter(image, s)

    mapped = gt.vmap(smoothed)
    np.testing.assert_allclose(mapped(widths), [smoothed(s) for s in widths])
    np.testing.assert_allclose(
        gt.grad(lambda s: np.sum(mapped(s)[:, 1]))(widths),
        [gt.grad(lambda s: np.sum(smoothed(s)[1]))(s) for s in widths],
    )
    with pytest.raises(ConcretizationError, match="do not agree"):
        mapped(np.array([1.0, 1.6]))


def test_a_number_that_elements_agree_in_is_guarded() -> None:
    trimmed = gt.vmap(np.trim_zeros)
    np.testing.assert_array_equal(trimmed(np.array([[0.0, 5.0], [0.0, 3.0]])), [[5.0], [3.0]])
    np.testing.assert_array_equal(trimmed(np.array([[2.0, 5.0], [4.0, 3.0]])), [[2.0, 5.0], [4.0, 3.0]])
    with pytest.raises(ConcretizationError, match="do not agree"):
        trimmed(np.array([[2.0, 5.0], [0.0, 3.0]]))


def test_elements_agree_in_each_iteration_of_a_loop() -> None:
    """What is guarded is outside the map: no loop may compute both."""
    points = RNG.normal(size=(3, 8, 2))

    def centres(x: Any) -> Any:
        return scipy.cluster.vq.kmeans2(x, x[:2] * 1.0, iter=10, minit="matrix")[0]

    expected = [centres(x) for x in points]
    np.testing.assert_allclose(gt.jit(lambda x: gt.vmap(centres)(x))(points), expected)
    slopes = gt.jit(gt.vmap(gt.grad(lambda x: np.sum(centres(x) ** 2))))(points)
    np.testing.assert_allclose(slopes, gt.grad(lambda x: np.sum(gt.vmap(centres)(x) ** 2))(points))


def test_nested_maps_ask_all_elements() -> None:
    roots = gt.vmap(gt.vmap(np.roots))
    coefficients = np.array([[[1.0, -3.0, 2.0], [1.0, -5.0, 6.0]], [[2.0, 3.0, 1.0], [1.0, 0.0, -4.0]]])
    expected = [[np.roots(p) for p in row] for row in coefficients]
    np.testing.assert_allclose(roots(coefficients), expected, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("extent", [0, MOST_COUNTED, MOST_COUNTED + 1])
@pytest.mark.parametrize("dtype", [float, np.int64])
def test_each_element_is_searched_in_a_haystack_of_its_own(dtype: type, extent: int, side: Any) -> None:
    # Short haystacks are counted, long ones are sorted with what is searched for: both with ties and with NaN at the end.
    rng = np.random.default_rng(0)
    haystacks = np.sort(rng.integers(0, 9, (5, extent)).astype(dtype), axis=1)
    needles = rng.integers(-1, 10, (5, 2, 3)).astype(dtype)
    if dtype is float:
        haystacks[::2, -2:] = np.nan
        needles[:, 0, 0] = np.nan

    def searched(a: Any, v: Any) -> Any:
        return np.searchsorted(a, v, side=side)

    expected = np.stack([searched(a, v) for a, v in zip(haystacks, needles, strict=True)])
    np.testing.assert_array_equal(gt.vmap(searched)(haystacks, needles), expected)
    np.testing.assert_array_equal(gt.jit(gt.vmap(searched))(haystacks, needles), expected)


class Caching:
    """An object with a total that is computed once."""

    def __init__(self) -> None:
        self.parts: Any = np.arange(3.0)
        self.factor: Any = 1.0

    @functools.cached_property
    def total(self) -> Any:
        return np.sum(np.exp(self.parts)) * self.factor


@pytest.mark.parametrize("transform", [lambda f: f, gt.jit], ids=["eager", "jit"])
def test_what_does_not_depend_on_the_element_is_cached(transform: Any) -> None:
    thing, x = Caching(), np.arange(4.0)
    mapped = transform(gt.vmap(lambda element: element * thing.total))
    for parts in (np.arange(3.0), np.arange(3.0), np.ones(3)):
        thing.parts = parts
        vars(thing).pop("total", None)
        for _ in range(2):
            np.testing.assert_allclose(mapped(x), x * np.sum(np.exp(parts)), rtol=1e-12)
        np.testing.assert_allclose(vars(thing)["total"], np.sum(np.exp(parts)), rtol=1e-12)
        assert isinstance(vars(thing)["total"], float)


def test_derivatives_of_what_a_mapped_function_caches() -> None:
    x = np.arange(4.0)

    def loss(parts: Any) -> Any:
        thing = Caching()
        thing.parts = parts
        return np.sum(gt.vmap(lambda element: element * thing.total)(x))

    parts = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(gt.grad(loss)(parts), np.sum(x) * np.exp(parts), rtol=1e-12)
    np.testing.assert_allclose(gt.hessian(loss)(parts), np.diag(np.sum(x) * np.exp(parts)), atol=1e-12)


def test_what_depends_on_the_element_is_not_cached() -> None:
    thing = Caching()

    def mapped(element: Any) -> Any:
        before, thing.factor = thing.factor, element
        result, thing.factor = thing.total, before
        return result

    with pytest.raises(gt.errors.InPlaceError, match="writes to the attribute 'total' of Caching"):
        gt.vmap(mapped)(np.arange(4.0))
