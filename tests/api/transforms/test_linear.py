"""Derivatives as linear maps, and transposes of linear functions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from gradtape.api.transforms.linear import MOST_SWEEPS
from tests.support.ways import PAIR, expect

MATRIX = np.arange(6.0).reshape(2, 3)


def test_linearize_is_jvp() -> None:
    def f(x: Any, tree: Any) -> Any:
        return {"a": np.sin(x) * tree["w"], "b": np.sum(x)}

    x, tree = np.array([1.0, 2.0, 3.0]), {"w": 2.0}
    y, push = gt.linearize(f, x, tree)
    for dx, dw in ((np.ones(3), 0.5), (x, 0.0), (np.zeros(3), 1.0)):
        expected, moved = gt.jvp(f, (x, tree), (dx, {"w": dw}))
        found = push(dx, {"w": dw})
        for key in ("a", "b"):
            np.testing.assert_allclose(y[key], expected[key], rtol=1e-15)
            np.testing.assert_allclose(found[key], moved[key], rtol=1e-14)
            assert type(found[key]) is type(moved[key])


def test_linearize_with_aux() -> None:
    y, push, aux = gt.linearize(lambda x: (x**2, "kept"), 3.0, has_aux=True)
    assert (y, push(2.0), aux) == (9.0, 12.0, "kept")
    expect(errors.StructureError, lambda: gt.linearize(np.sin, 1.0, has_aux=True), "linearize", "pair")


def test_linearize_within_other_transforms() -> None:
    def slope(x: Any) -> Any:
        return gt.linearize(np.sin, x)[1](1.0)

    np.testing.assert_allclose([gt.jit(slope)(0.5), slope(0.5)], np.cos(0.5), rtol=1e-15)
    np.testing.assert_allclose(gt.grad(slope)(0.5), -np.sin(0.5), rtol=1e-15)
    np.testing.assert_allclose(gt.vmap(slope)(PAIR), np.cos(PAIR), rtol=1e-15)
    with gt.GradientTape() as tape:
        x = tape.watch(0.5)
        y = slope(x)
    np.testing.assert_allclose(tape.gradient(y, x), -np.sin(0.5), rtol=1e-15)
    _, push = gt.linearize(lambda x: x * x, 3.0)
    assert gt.grad(lambda t: push(t))(1.0) == 6.0


def test_arguments_of_linearize() -> None:
    expect(errors.ArgumentError, lambda: gt.linearize(3, 1.0), "linearize", "int")
    expect(errors.IntegerInputError, lambda: gt.linearize(np.sin, np.array([1, 2])), "linearize")
    _, push = gt.linearize(lambda x, y: x * y, PAIR, PAIR)
    expect(errors.StructureError, lambda: push(PAIR), "2 primals", "1 tangents")
    expect(errors.DtypeError, lambda: push(PAIR, {"a": PAIR}), "a tangent is a dict")
    expect(errors.ShapeError, lambda: push(PAIR, np.ones(3)), "(3,)", "(2,)")
    expect(errors.DtypeError, lambda: push(PAIR, PAIR * 1j), "complex128")


def shifted(x: Any) -> Any:
    y = np.zeros(3)
    y[1:] = x[:-1]
    return y


def iterated(x: Any) -> Any:
    for _ in range(40):
        x = 0.5 * x + x[::-1]
    return x


LINEAR = {
    "matrix": lambda x: MATRIX @ x,
    "cumsum": np.cumsum,
    "fft": np.fft.fft,
    "mean": np.mean,
    "where": lambda x: np.where(np.arange(3) > 1, x, 0),
    "solve": lambda x: np.linalg.solve(2 * np.eye(3) + np.ones((3, 3)), x),
    "in place": shifted,
    "gather": lambda x: x[np.array([0, 0, 2])] / 3,
    "complex": lambda x: x * (1 + 2j),
    "real": lambda x: np.real(x * (1 + 2j)),
    "scan": lambda x: gt.scan(lambda c, a: (c * 0.5 + a, c), 0.0 * x[0], x)[1],
    "fori_loop": lambda x: gt.fori_loop(0, 3, lambda i, c: c * 0.5 + x, 0 * x),
    "a long Python loop": iterated,
    "vmap": gt.vmap(lambda a: 2 * a),
    "jit": gt.jit(lambda x: x + x[::-1]),
}


@pytest.mark.parametrize("function", LINEAR.values(), ids=LINEAR)
def test_transposes(function: Any) -> None:
    x = np.array([1.0, -2.0, 3.0])
    y = gt.jit(function)(x)
    ct = np.arange(1.0, 1.0 + np.size(y)).reshape(np.shape(y)) * (1 - 1j if np.iscomplexobj(y) else 1)
    transpose = gt.linear_transpose(function, np.zeros(3))
    for scale in (1.0, 2.0):
        (back,) = transpose(scale * ct)
        np.testing.assert_allclose(np.sum(back * x), scale * np.real(np.sum(ct * y)), rtol=1e-13)


def test_a_transpose_is_not_conjugated() -> None:
    a = MATRIX + 1j * MATRIX[::-1]
    (back,) = gt.linear_transpose(lambda z: a @ z, np.zeros(3, complex))(np.array([1.0, 1j]))
    np.testing.assert_allclose(back, a.T @ [1.0, 1j])


def test_transposes_of_nests() -> None:
    transpose = gt.linear_transpose(lambda x, p: {"a": x + p["w"], "b": 2 * p["w"]}, PAIR, {"w": PAIR})
    dx, dp = transpose({"a": PAIR, "b": np.ones(2)})
    np.testing.assert_array_equal(dx, PAIR)
    np.testing.assert_array_equal(dp["w"], PAIR + 2)
    expect(errors.StructureError, lambda: transpose(PAIR), "cotangent")
    expect(errors.ShapeError, lambda: transpose({"a": np.ones(3), "b": PAIR}), "(3,)")


def test_transposes_within_other_transforms() -> None:
    def back(a: Any, ct: Any) -> Any:
        return gt.linear_transpose(lambda x: a @ x, np.zeros(3))(ct)[0]

    np.testing.assert_allclose(gt.jit(back)(MATRIX, PAIR), MATRIX.T @ PAIR)
    np.testing.assert_allclose(gt.grad(lambda a: np.sum(back(a, PAIR)))(MATRIX), np.outer(PAIR, np.ones(3)))
    with gt.config.override(eager=True):
        np.testing.assert_allclose(back(MATRIX, PAIR), MATRIX.T @ PAIR)
        expect(errors.NotDifferentiableError, lambda: gt.linear_transpose(np.sin, PAIR), "not linear")


NOT_LINEAR = {
    "square": lambda x: x * x,
    "sine": np.sin,
    "constant added": lambda x: x + 1,
    "constant": lambda x: np.ones(2),
    "abs": np.abs,
    "floor": np.floor,
    "max": np.max,
    "sort": np.sort,
    "product": lambda x: x[0] * x[1],
    "choice": lambda x: np.where(x > 0, x, 2 * x),
    "constant chosen": lambda x: np.where(np.arange(2) > 0, x, 1.0),
    "in a scan": lambda x: gt.scan(lambda c, a: (c * a, c), 1.0 + x[0], x)[1],
}


@pytest.mark.parametrize("function", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_what_is_not_linear_is_refused(function: Any) -> None:
    for point in (np.zeros(2), PAIR):
        error = expect(
            errors.NotDifferentiableError,
            lambda p=point: gt.linear_transpose(function, p),
            "not linear",
            "gt.vjp",
        )
        assert error.where.filename == __file__


def test_arguments_of_linear_transpose() -> None:
    expect(errors.ArgumentError, lambda: gt.linear_transpose(None, PAIR), "linear_transpose", "None")
    expect(
        errors.IntegerInputError, lambda: gt.linear_transpose(np.cumsum, np.array([1, 2])), "linear_transpose"
    )
    expect(errors.DtypeError, lambda: gt.linear_transpose(np.cumsum, "x"), "linear_transpose", "str")


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x, **options: gt.vjp(f, x, **options),
        lambda f, x, **options: gt.jvp(f, (x,), (1.0,), **options),
        lambda f, x, **options: gt.linearize(f, x, **options),
    ],
    ids=["vjp", "jvp", "linearize"],
)
def test_what_is_returned_besides(transform: Any) -> None:
    def f(x: Any) -> Any:
        return x**2, {"more": x + 1, "text": "kept"}

    y, _, aux = transform(f, 3.0, has_aux=True)
    assert y == 9.0 and aux == {"more": 4.0, "text": "kept"} and isinstance(aux["more"], np.float64)
    assert gt.jit(lambda x: transform(f, x, has_aux=True)[2]["more"])(3.0) == 4.0
    assert gt.grad(lambda x: transform(f, x, has_aux=True)[2]["more"] * x)(3.0) == 7.0
    with gt.GradientTape() as tape:
        x = tape.watch(3.0)
        more = transform(f, x, has_aux=True)[2]["more"] ** 2
    assert float(tape.gradient(more, x)) == 8.0
    expect(errors.StructureError, lambda: transform(np.sin, 1.0, has_aux=True), "pair")


@pytest.mark.parametrize("size", [(), (3,), (0,)])
def test_maps_that_are_called_often_are_compiled(size: tuple[int, ...]) -> None:
    x = np.full(size, 0.3)

    def function(x: Any) -> Any:
        return {"y": np.sin(x) * 2.0, "s": np.sum(x**2)}

    maps = [
        (gt.vjp(function, x)[1], ({"y": x, "s": 2.0},)),
        (gt.linearize(function, x)[1], (x,)),
        (gt.linear_transpose(lambda x: x * 2.0, x), (x,)),
    ]
    for linear_map, seeds in maps:
        expected = linear_map(*seeds)
        for _ in range(MOST_SWEEPS + 2):
            found = linear_map(*seeds)
        assert gt.tree.structure(found) == gt.tree.structure(expected)
        for one, other in zip(gt.tree.leaves(found), gt.tree.leaves(expected), strict=True):
            assert type(one) is type(other) and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-14)
        with pytest.raises(gt.errors.GradtapeError):
            linear_map({"z": x})
        again = pickle.loads(pickle.dumps(linear_map))(*seeds)
        np.testing.assert_allclose(gt.tree.leaves(again)[0], gt.tree.leaves(expected)[0])


def test_maps_on_tapes_stay_on_them() -> None:
    x = np.array([0.3, -0.2])
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        _, pullback = gt.vjp(np.sin, watched)
        for _ in range(MOST_SWEEPS + 2):
            (slope,) = pullback(np.ones(2))
        total = np.sum(slope)
    np.testing.assert_allclose(tape.gradient(total, watched), -np.sin(x))
