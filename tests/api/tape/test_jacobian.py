"""Jacobians and Hessians: of what a tape has recorded, and of functions."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gradtape as gt
from gradtape import progress as bars
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    IntegerInputError,
    NonScalarOutputError,
    ShapeError,
    StructureError,
    TapeError,
    UnconnectedError,
)
from gradtape.runtime.compile.program import Program

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3,))
A = RNG.normal(size=(4, 3))
WAYS: list[dict[str, Any]] = [
    {},
    {"parallel_iterations": 1},
    {"parallel_iterations": 3},
    {"parallel_iterations": 100},
    {"experimental_use_pfor": False},
    {"experimental_use_pfor": False, "parallel_iterations": 2},
]

Function = Callable[..., Any]


def slopes(function: Function, x: Any) -> Any:
    """Return the Jacobian by central differences."""
    x = np.asarray(x, float)
    columns = []
    for k in range(x.size):
        step = np.zeros(x.size)
        step[k] = 1e-6
        step = step.reshape(x.shape)
        ahead, behind = np.asarray(function(x + step)), np.asarray(function(x - step))
        columns.append((ahead - behind) / 2e-6)
    shape = (*np.shape(function(x)), *x.shape)
    return np.moveaxis(np.array(columns).reshape(x.size, *np.shape(function(x))), 0, -1).reshape(shape)


FUNCTIONS: dict[str, Function] = {
    "layers": lambda x: np.tanh(A.T @ np.tanh(A @ x)),
    "diagonal": lambda x: np.exp(x) * x,
    "a number": lambda x: np.sum(x**2),
    "matrix": lambda x: np.outer(x, np.sin(x)),
    "batched product": lambda x: np.outer(x, x) @ A.T,
    "joined": lambda x: np.concatenate([x[::-1], x[:1] * x]),
    "selected": lambda x: np.where(x > 0, x**2, -x) / np.sum(x**2),
    "sorted": lambda x: np.sort(x) * np.arange(1.0, 4.0),
    "running": np.cumprod,
    "written": lambda x: np.put_along_axis(y := x * 2, np.array([1]), x[0], 0) or y,
    "solved by steps": lambda x: x / np.linalg.norm(x),
}


def on_tape(function: Function, x: Any, persistent: bool = True) -> tuple[gt.GradientTape, Any, Any]:
    with gt.GradientTape(persistent=persistent) as tape:
        followed = tape.watch(x)
        y = function(followed)
    return tape, y, followed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_tape(name: str) -> None:
    expected = slopes(FUNCTIONS[name], X)
    tape, y, x = on_tape(FUNCTIONS[name], X)
    for way in WAYS:
        found = tape.jacobian(y, x, **way)
        assert isinstance(found, gt.Array) and found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", [gt.jacobian, gt.jacfwd, gt.jacrev])
def test_of_a_function(name: str, transform: Any) -> None:
    expected = slopes(FUNCTIONS[name], X)
    compiled = transform(FUNCTIONS[name])
    for _ in range(2):
        np.testing.assert_allclose(compiled(X), expected, rtol=1e-6, atol=1e-8)
    with gt.config.override(jit=False):
        np.testing.assert_allclose(transform(FUNCTIONS[name])(X), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessian(name: str) -> None:
    function = FUNCTIONS[name]
    expected = slopes(gt.jacrev(function), X)
    np.testing.assert_allclose(gt.hessian(function)(X), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("way", WAYS)
def test_without_compiling(way: dict[str, Any]) -> None:
    with gt.config.override(jit=False):
        tape, y, x = on_tape(FUNCTIONS["layers"], X)
        found = tape.jacobian(y, x, **way).numpy()
    np.testing.assert_allclose(found, slopes(FUNCTIONS["layers"], X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("way", WAYS)
def test_a_one_shot_tape_gives_one_jacobian(way: dict[str, Any]) -> None:
    tape, y, x = on_tape(np.sin, X, persistent=False)
    np.testing.assert_allclose(tape.jacobian(y, x, **way).numpy(), np.diag(np.cos(X)))
    with pytest.raises(TapeError, match="jacobian on a one-shot tape"):
        tape.jacobian(y, x, **way)


def test_a_failing_call_leaves_the_tape_as_it_was() -> None:
    tape, y, x = on_tape(np.sin, X, persistent=False)
    for program in (
        lambda: tape.jacobian([y, y], x),
        lambda: tape.jacobian(y, X),
        lambda: tape.jacobian(y, x, parallel_iterations=0),
        lambda: tape.batch_jacobian(y, x),
    ):
        with pytest.raises(ValueError):
            program()
    assert tape.jacobian(y, x).shape == (3, 3)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_chunks_bound_the_memory(batched: bool, compiled: bool, monkeypatch: Any) -> None:
    """A row needs 40 x 300 numbers on its way: the workspace is that of the rows that are computed at once."""
    v, m, n = np.linspace(-1, 1, 300), np.cos(np.arange(300 * 100)).reshape(300, 100), 40
    points = np.sin(np.arange(2.0 * n)).reshape(2, n) if batched else np.sin(np.arange(1.0 * n))
    used: list[int] = []
    run = Program.run

    def noted(self: Program, arrays: Any) -> Any:
        used.append(self.kernel.workspace)
        return run(self, arrays)

    def function(x: Any) -> Any:
        layer = np.tanh(np.tanh(x[..., :, None] * v) @ m)
        return np.sum(np.cos(layer) + layer, axis=-2)

    def rows(points: Any, together: int | None) -> Any:
        tape, y, x = on_tape(function, points)
        return (tape.batch_jacobian if batched else tape.jacobian)(y, x, parallel_iterations=together)

    monkeypatch.setattr(Program, "run", noted)
    results, sizes = [], []
    for together in (None, 8, 1):
        used.clear()
        if compiled:
            whole = gt.jit(lambda points, together=together: rows(points, together))
            results.append(whole(points))
            words = str(gt.inspect.explain(whole)).split()
            used.append(int(words[words.index("workspace:") + 1]))
        else:
            results.append(rows(points, together).numpy())
        sizes.append(max(used))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-10, atol=1e-12)
    assert 2 * sizes[2] < sizes[1] < sizes[0] / 8


@pytest.mark.parametrize("way", WAYS[:3])
def test_what_loops_of_unknown_length_leave_behind_stays_inside_of_chunks(way: dict[str, Any]) -> None:
    """The probe of rows has computed it before the chunks are made."""

    def grow(x: Any) -> Any:
        return gt.while_loop(lambda v: np.sum(v * v) < 30, lambda v: v * 1.3 + np.sin(v), (x,))[0]

    def total(x: Any) -> Any:
        with gt.GradientTape() as tape:
            followed = tape.watch(x)
            y = gt.vmap(grow)(followed)
        return np.sum(np.sin(tape.batch_jacobian(y, followed, **way)))

    slopes_of_rows = [gt.grad(lambda x: np.sum(np.sin(gt.jacobian(grow)(x))))(row) for row in A]
    np.testing.assert_allclose(gt.grad(total)(A), slopes_of_rows, rtol=1e-9)


def test_nested_sources_and_those_without_a_path() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x, w, n, k = tape.watch((X, A, np.array(2.0), np.arange(2.0)))
        y = w @ x
        whole = x * 1.0
    found = tape.jacobian(y, {"x": x, "rest": [w, n]})
    np.testing.assert_allclose(found["x"].numpy(), A)
    np.testing.assert_allclose(found["rest"][0].numpy(), np.einsum("ij,k->ijk", np.eye(4), X))
    assert found["rest"][1] is None
    zeros = tape.jacobian(y, [n, k], unconnected_gradients="zero")
    assert [zero.shape for zero in zeros] == [(4,), (4, 2)] and not np.any(zeros[1].numpy())
    with pytest.raises(UnconnectedError, match=r"sources\['n'\]"):
        tape.jacobian(y, {"x": x, "n": n}, unconnected_gradients="raise")
    np.testing.assert_allclose(tape.jacobian(whole, whole).numpy(), np.eye(3))
    assert tape.jacobian(np.argsort(y), x) is None
    assert tape.jacobian(y, []) == []


def test_batch_jacobian_without_a_path() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x, z = tape.watch((np.ones((4, 2)), np.ones((4, 3))))
        y = x * 2.0
    assert tape.batch_jacobian(y, z) is None
    assert tape.batch_jacobian(y, z, unconnected_gradients="zero").shape == (4, 2, 3)
    with pytest.raises(UnconnectedError, match="batch_jacobian"):
        tape.batch_jacobian(y, z, unconnected_gradients="raise")


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (1, 0), (0,), ()])
@pytest.mark.parametrize("way", WAYS)
def test_shapes_without_elements(shape: tuple[int, ...], way: dict[str, Any]) -> None:
    tape, y, x = on_tape(lambda x: x * 2.0, np.ones(shape))
    assert tape.jacobian(y, x, **way).shape == (*shape, *shape)
    if len(shape) > 1:
        assert tape.batch_jacobian(y, x, **way).shape == (*shape, *shape[1:])
    assert gt.jacobian(lambda x: x * 2.0)(np.ones(shape)).shape == (*shape, *shape)


@pytest.mark.parametrize("way", WAYS)
def test_a_jacobian_is_recorded_by_tapes_around(way: dict[str, Any]) -> None:
    with gt.GradientTape() as outer:
        x = outer.watch(X)
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = x**3 * np.sum(x)
        total = np.sum(tape.jacobian(y, x, **way) ** 2)
    expected = gt.grad(lambda x: np.sum(gt.jacrev(lambda x: x**3 * np.sum(x))(x) ** 2))(X)
    np.testing.assert_allclose(outer.gradient(total, x).numpy(), expected)


@pytest.mark.parametrize("way", WAYS)
def test_inside_of_a_jitted_function(way: dict[str, Any]) -> None:
    @gt.jit
    def compute(x: Any) -> Any:
        tape, y, x = on_tape(FUNCTIONS["layers"], x, persistent=False)
        return tape.jacobian(y, x, **way)

    np.testing.assert_allclose(compute(X), slopes(FUNCTIONS["layers"], X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("way", WAYS)
def test_variables(way: dict[str, Any]) -> None:
    """What was read before and after an assignment adds up, and every reading has its own value."""
    w = gt.Variable(X)
    with gt.GradientTape(persistent=True) as tape:
        before = np.sin(w)
        w.assign(2 * X)
        y = before * w
    expected = np.diag(np.cos(X) * 2 * X + np.sin(X))
    np.testing.assert_allclose(tape.jacobian(y, w, **way).numpy(), expected)
    rows = gt.Variable(np.ones((2, 3)))
    with gt.GradientTape(persistent=True) as tape:
        y = rows**3 + rows
    np.testing.assert_allclose(tape.batch_jacobian(y, rows, **way).numpy(), np.stack([4 * np.eye(3)] * 2))
    np.testing.assert_allclose(tape.jacobian(rows, rows, **way).numpy().reshape(6, 6), np.eye(6))


def test_a_complex_source_and_target() -> None:
    z = X + 1j
    tape, y, x = on_tape(lambda z: np.abs(z) ** 2, z)
    for way in WAYS:
        np.testing.assert_allclose(tape.jacobian(y, x, **way).numpy(), np.diag(2 * z))
    np.testing.assert_allclose(gt.jacrev(lambda z: np.abs(z) ** 2)(z), np.diag(2 * z))


def test_float32_stays_float32() -> None:
    tape, y, x = on_tape(FUNCTIONS["diagonal"], X.astype(np.float32))
    for way in WAYS:
        assert tape.jacobian(y, x, **way).dtype == np.float32
    assert gt.jacfwd(np.sin)(X.astype(np.float32)).dtype == np.float32


def nested(p: Any, x: Any) -> Any:
    h = np.tanh(p["w"] @ x + p["b"])
    return {"y": h, "norm": [np.sum(h**2)]}


@pytest.mark.parametrize("transform", [gt.jacobian, gt.jacfwd, gt.jacrev])
def test_nested_arguments_and_results(transform: Any) -> None:
    p = {"w": A, "b": np.ones(4)}
    one = transform(nested)(p, X)
    assert one["y"]["w"].shape == (4, 4, 3) and one["norm"][0]["b"].shape == (4,)
    both = transform(nested, argnums=(0, 1))(p, X)
    assert isinstance(both["y"], tuple) and both["y"][1].shape == (4, 3)
    np.testing.assert_allclose(both["norm"][0][0]["w"], one["norm"][0]["w"])
    np.testing.assert_allclose(transform(nested, argnums=-1)(p, X)["y"], both["y"][1])
    alone = transform(nested, argnums=(1,))(p, X)
    assert isinstance(alone["y"], tuple) and len(alone["y"]) == 1
    second = gt.hessian(nested, argnums=(0, 1))(p, X)
    assert second["norm"][0][0]["w"][1].shape == (4, 3, 3)
    np.testing.assert_allclose(second["y"][0]["b"][1], np.moveaxis(second["y"][1][0]["b"], -1, -2))


def test_what_is_no_float_comes_along() -> None:
    def function(x: Any) -> Any:
        return x**2, {"steps": 3, "x": x}

    for transform in (gt.jacobian, gt.jacfwd, gt.jacrev, gt.hessian):
        _, aux = transform(function, has_aux=True)(X)
        assert aux["steps"] == 3
        np.testing.assert_array_equal(aux["x"], X)


def test_numbers_and_constants() -> None:
    assert gt.jacobian(np.sin)(0.0) == 1.0
    assert gt.jacfwd(lambda x: x**2)(3) == 6.0
    np.testing.assert_array_equal(gt.jacobian(lambda x: 3.0)(X), np.zeros(3))
    np.testing.assert_array_equal(gt.jacfwd(lambda x: np.ones(2))(X), np.zeros((2, 3)))
    np.testing.assert_array_equal(gt.jacobian(lambda x: x)(X), np.eye(3))


def test_numpys_integers_name_arguments() -> None:
    for transform in (gt.grad, gt.jacobian, gt.hessian):
        one = transform(lambda x, y: x * y**2, argnums=np.int64(1))
        assert one(2.0, 3.0) == transform(lambda x, y: x * y**2, argnums=1)(2.0, 3.0)
    with pytest.raises(DtypeError, match="True"):
        gt.grad(np.multiply, argnums=True)


def test_the_mode_follows_the_shapes() -> None:
    def rows_of(transform: Any, function: Function, x: Any) -> str:
        return str(gt.inspect.graph(transform(function), x))

    wide, high = (lambda x: A.T[:2] @ np.sin(np.ones(4) * x[0])), (lambda x: np.sin(A @ x))
    x = np.ones(3)
    assert rows_of(gt.jacobian, high, x).split("\n")[1:] == rows_of(gt.jacfwd, high, x).split("\n")[1:]
    assert rows_of(gt.jacobian, wide, x).split("\n")[1:] == rows_of(gt.jacrev, wide, x).split("\n")[1:]


def test_products_with_the_hessian() -> None:
    def function(x: Any, w: Any) -> Any:
        return np.sum(np.exp(x * w)) * np.sum(x)

    w, v, u = RNG.normal(size=(3, 3))
    second = gt.hessian(function, argnums=(0, 1))(X, w)
    for _ in range(2):
        first, last = gt.hvp(function, (X, w), (v, u))
        np.testing.assert_allclose(first, second[0][0] @ v + second[0][1] @ u)
        np.testing.assert_allclose(last, second[1][0] @ v + second[1][1] @ u)
    alone = gt.hvp(lambda p: np.sum(p["x"] ** 3), ({"x": X},), ({"x": v},))
    np.testing.assert_allclose(alone["x"], 6 * X * v)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        product = gt.hvp(lambda x: np.sum(x**3), (x,), (v,))
    np.testing.assert_allclose(tape.gradient(product, x).numpy(), 6 * v)
    np.testing.assert_allclose(gt.hvp(np.sum, (X,), (v,)), 0.0)


def test_a_product_does_not_keep_its_function_alive() -> None:
    def cube(x: Any) -> Any:
        return np.sum(x**3)

    gt.hvp(cube, (X,), (X,))
    alive = weakref.ref(cube)
    del cube
    gc.collect()
    assert alive() is None


def test_other_transforms_around() -> None:
    jacobian = gt.jacobian(FUNCTIONS["layers"])
    points = np.stack([X, -X])
    np.testing.assert_allclose(gt.vmap(jacobian)(points), np.stack([jacobian(x) for x in points]))
    np.testing.assert_allclose(gt.jit(lambda x: jacobian(x) @ x)(X), jacobian(X) @ X)
    third = gt.jacobian(gt.hessian(lambda x: np.sum(x**4)))(X)
    np.testing.assert_allclose(np.einsum("iii->i", third), 24 * X)


@pytest.mark.parametrize("installed", [True, False])
def test_progress(installed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(bars, "PATIENCE", -1.0)
    monkeypatch.setattr(bars, "_is_terminal", lambda stream: True)
    if not installed:
        monkeypatch.setattr(bars.importlib.util, "find_spec", lambda name: None)
    elif bars.importlib.util.find_spec("tqdm") is None:
        monkeypatch.setitem(sys.modules, "tqdm", mock.Mock())
    tape, y, x = on_tape(np.sin, X)
    tape.jacobian(y, x, parallel_iterations=1)
    shown = capsys.readouterr().err
    assert "jacobian" in shown and "3" in shown
    with gt.config.override(progress=False):
        tape.jacobian(y, x, parallel_iterations=1)
    assert not capsys.readouterr().err


def pair() -> tuple[gt.GradientTape, Any, Any]:
    return on_tape(lambda x: x * 2.0, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (lambda t, y, x: t.jacobian([y], x), ArgumentError, ("one target", "list of 1")),
        (lambda t, y, x: t.jacobian(None, x), DtypeError, ("None as a target",)),
        (lambda t, y, x: t.jacobian(y, None), DtypeError, ("None as a source",)),
        (lambda t, y, x: gt.GradientTape().jacobian(y, x), TapeError, ("never entered",)),
        (lambda t, y, x: t.jacobian(y, "x"), DtypeError, ("str as a source",)),
        (lambda t, y, x: t.jacobian(y, np.ones(2)), ArgumentError, ("plain ndarray as a source", "watch")),
        (lambda t, y, x: t.jacobian(2.0, x), ArgumentError, ("plain float as a target",)),
        (
            lambda t, y, x: t.jacobian(y, x, unconnected_gradients="bad"),
            ArgumentError,
            ("Unknown value for unconnected_gradients: 'bad'",),
        ),
        (
            lambda t, y, x: t.jacobian(y, x, parallel_iterations=0),
            ArgumentError,
            ("parallel_iterations is 0",),
        ),
        (lambda t, y, x: t.jacobian(y, x, parallel_iterations=1.5), DtypeError, ("got a float",)),
        (lambda t, y, x: t.batch_jacobian(y, [x, x]), ArgumentError, ("one source", "list")),
        (lambda t, y, x: t.batch_jacobian(y[0] * 1.0, x), ShapeError, ("target has shape (2,)",)),
        (lambda t, y, x: t.batch_jacobian(y[:1] * 1.0, x), ShapeError, ("1 rows", "source 2")),
        (lambda t, y, x: gt.jacobian(np.sin)(np.arange(3)), IntegerInputError, ("int64", "astype")),
        (lambda t, y, x: gt.jacrev(lambda x: x > 0)(X), DtypeError, ("jacrev", "bool")),
        (lambda t, y, x: gt.jacfwd(lambda x: "text")(X), DtypeError, ("jacfwd", "str")),
        (lambda t, y, x: gt.jacfwd(np.abs)(X + 0j), DtypeError, ("complex", "jacrev")),
        (lambda t, y, x: gt.jacrev(lambda x: x * 1j)(X), DtypeError, ("complex", "jacfwd", "np.real")),
        (lambda t, y, x: gt.jacobian(np.sin)(X + 0j), DtypeError, ("complex", "holomorphic=True")),
        (lambda t, y, x: gt.hessian(lambda z: np.sum(np.abs(z)))(X + 0j), DtypeError, ("complex", "gt.hvp")),
        (lambda t, y, x: gt.jacobian(np.sin, convention="ours"), ArgumentError, ("'ours'", "jax")),
        (lambda t, y, x: gt.jacobian(np.sin, argnums=1)(X), ArgumentError, ("argument 1",)),
        (lambda t, y, x: gt.jacobian(np.sin, argnums="x"), DtypeError, ("argnums", "'x'")),
        (lambda t, y, x: gt.jacobian(np.sin, mode="both"), ArgumentError, ("'both'", '"fwd"')),
        (lambda t, y, x: gt.jacobian(np.sin, has_aux=True)(X), StructureError, ("has_aux",)),
        (lambda t, y, x: gt.hessian(3), ArgumentError, ("hessian", "int")),
        (lambda t, y, x: gt.hvp(np.sum, X, X), StructureError, ("primals", "ndarray")),
        (lambda t, y, x: gt.hvp(np.sum, (), ()), StructureError, ("primals", "empty")),
        (lambda t, y, x: gt.hvp(np.sum, (X,), (X, X)), StructureError, ("1 primals", "2 tangents")),
        (lambda t, y, x: gt.hvp(np.sum, (X,), (A,)), ShapeError, ("(4, 3)", "(3,)")),
        (lambda t, y, x: gt.hvp(np.sin, (X,), (X,)), NonScalarOutputError, ("hvp needs", "one number")),
    ],
)
def test_errors(program: Function, error: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        program(*pair())
    assert type(caught.value) is error
    for word in (*words, "what to do", "test_jacobian.py"):
        assert word in str(caught.value)
