"""Arguments chosen by name, and holomorphic derivatives of every transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import PAIR, Function, expect

TRANSFORMS = [gt.grad, gt.value_and_grad, gt.jacobian, gt.jacrev, gt.jacfwd, gt.hessian]
transforms = pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.__name__)


def loss(x: Any, w: Any, *, scale: Any = 2.0, shift: Any = None) -> Any:
    return scale * np.sum(x**2 * w) + np.sum(w**3)


@transforms
def test_names_stand_for_positions(transform: Function) -> None:
    w = np.array([3.0, 4.0])
    for names, positions in (("x", 0), ("w", 1), (("w", "x"), (1, 0)), (["x"], [0])):
        expected = transform(loss, positions)(PAIR, w)
        for args, kwargs in (((PAIR, w), {}), ((PAIR,), {"w": w}), ((), {"w": w, "x": PAIR})):
            found = transform(loss, argnames=names)(*args, **kwargs)
            flat, flat_expected = gt.trees.flatten(found)[0], gt.trees.flatten(expected)[0]
            assert gt.trees.flatten(found)[1] == gt.trees.flatten(expected)[1]
            for a, b in zip(flat, flat_expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-14)


def test_defaults_and_keyword_only_arguments() -> None:
    expected = np.sum(PAIR**3)
    assert gt.grad(loss, argnames="scale")(PAIR, PAIR) == expected
    assert gt.grad(loss, argnames="scale")(PAIR, PAIR, scale=5.0) == expected
    by_both = gt.grad(loss, argnames=("scale", "w"))(PAIR, PAIR, scale=5.0)
    assert by_both[0] == expected
    np.testing.assert_allclose(by_both[1], 5 * PAIR**2 + 3 * PAIR**2)
    assert gt.grad(lambda x, y=3.0, /: x * y, argnames="y")(2.0, 4.0) == 2.0


def test_arguments_that_are_collected() -> None:
    def f(first: Any, *rest: Any, **options: Any) -> Any:
        return first * rest[0] * options["gain"]

    assert gt.grad(f, argnames="gain")(2.0, 3.0, gain=4.0) == 6.0
    assert gt.grad(f, argnames=("gain", "first"))(2.0, 3.0, gain=4.0) == (6.0, 12.0)
    expect(
        errors.ArgumentError, lambda: gt.grad(f, argnames="loss")(2.0, 3.0, gain=4.0), "'loss'", "loss=..."
    )
    expect(errors.ArgumentError, lambda: gt.grad(f, argnames="rest")(2.0, 3.0, gain=4.0), "'rest'")


def test_names_through_other_transforms() -> None:
    second = gt.grad(gt.grad(loss, argnames="scale"), argnames="x")
    np.testing.assert_array_equal(second(PAIR, PAIR), 2 * PAIR**2)
    np.testing.assert_array_equal(gt.jit(second)(PAIR, w=PAIR), 2 * PAIR**2)
    np.testing.assert_array_equal(gt.grad(gt.jit(loss), argnames="x")(PAIR, PAIR), 4 * PAIR**2)

    class Model:
        def __init__(self) -> None:
            self.gain = 3.0

        def loss(self, x: Any, *, y: Any) -> Any:
            return self.gain * x * y

    assert gt.grad(Model().loss, argnames="y")(2.0, y=5.0) == 6.0
    tree = gt.grad(lambda params, x: np.sum(params["w"] * x), argnames="params")(params={"w": PAIR}, x=PAIR)
    np.testing.assert_array_equal(tree["w"], PAIR)


@transforms
def test_wrong_names(transform: Function) -> None:
    name = transform.__name__
    for wrong in (1, (), ("x", 1), b"x", [None]):
        expect(errors.DtypeError, lambda w=wrong: transform(loss, argnames=w), name, "argnames", "str")
    expect(errors.ArgumentError, lambda: transform(loss, argnames=("x", "x")), name, "twice")
    expect(errors.ArgumentError, lambda: transform(loss, 0, argnames="x"), name, "argnums=0", "argnames='x'")
    expect(errors.ArgumentError, lambda: transform(loss, argnames="v"), "'v'", "x, w, scale, shift")
    expect(errors.ArgumentError, lambda: transform(loss, argnames="w")(PAIR), "'w'", "w=...")
    expect(
        errors.DtypeError,
        lambda: transform(loss, argnames="shift")(PAIR, PAIR, shift=None),
        "'shift'",
        "None",
    )
    expect(
        errors.IntegerInputError,
        lambda: transform(loss, argnames="x")(np.array([1, 2]), PAIR),
        f"{name}: x is an array of int64",
    )


def test_a_default_of_none_has_no_derivative() -> None:
    expect(errors.DtypeError, lambda: gt.grad(loss, argnames="shift")(PAIR, PAIR), "None")


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: gt.grad(gt.grad(f, holomorphic=True), holomorphic=True),
        lambda f: gt.hessian(f, holomorphic=True),
        lambda f: lambda z: gt.hvp(f, (z,), (1.0 + 0j,), holomorphic=True),
        lambda f: gt.jacfwd(gt.jacrev(f, holomorphic=True), holomorphic=True),
        lambda f: lambda z: gt.linearize(gt.grad(f, holomorphic=True), z)[1](1.0 + 0j),
    ],
    ids=["grad", "hessian", "hvp", "jacfwd of jacrev", "linearize"],
)
def test_holomorphic_second_derivatives(derivative: Any) -> None:
    z = 1.0 + 2.0j
    np.testing.assert_allclose(derivative(lambda z: z**3)(z), 6 * z, rtol=1e-14)
    expect(errors.NotDifferentiableError, lambda: derivative(lambda z: z * np.conj(z))(z), "holomorphic")


def test_products_of_one_function_with_and_without_holomorphic_are_two() -> None:
    def f(z: Any) -> Any:
        return z**2

    assert gt.hvp(f, (3.0,), (1.0,)) == 2.0
    assert gt.hvp(f, (3.0 + 0j,), (1j,), holomorphic=True) == 2j
    assert gt.hvp(f, (3.0,), (1.0,)) == 2.0


def test_a_range_of_positions() -> None:
    assert gt.grad(lambda x, y: x * y, argnums=range(2))(2.0, 3.0) == (3.0, 2.0)
    assert gt.grad(lambda x, y: x * y, argnums=range(1, 2))(2.0, 3.0) == (2.0,)
