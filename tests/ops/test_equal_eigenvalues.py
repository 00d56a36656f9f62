"""Functions of a matrix by its eigenvalues or singular values: exact derivatives where some of these are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

RANDOM = np.random.default_rng(5)
WEIGHTS = RANDOM.normal(size=(4, 4))
VECTOR = RANDOM.normal(size=4)
ROTATION = np.linalg.qr(RANDOM.normal(size=(4, 4)))[0]
VALUES = {
    "all equal": [1.5, 1.5, 1.5, 1.5],
    "two and two": [1.0, 1.0, 2.0, 2.0],
    "two": [1.0, 1.0, 2.0, 3.0],
    "all different": [1.0, 1.5, 2.0, 3.0],
}


def matrix(values: list[float], rotated: bool) -> Any:
    a = (ROTATION if rotated else np.eye(4)) @ np.diag(values) @ (ROTATION.T if rotated else np.eye(4))
    return (a + a.T) / 2


def scaled(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * ((v * f(w)) @ v.T))


def of_rows(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * (v @ (f(w)[:, None] * v.T)))


def on_a_diagonal(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * (v @ np.diag(f(w)) @ v.T))


def by_einsum(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * np.einsum("ij,j,kj->ik", v, f(w), v))


def on_a_vector(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return WEIGHTS[0] @ (v @ (f(w) * (v.T @ VECTOR)))


def twice(a: Any, f: Any) -> Any:
    """Two functions after one another, and a sum of functions."""
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * ((v * np.sqrt(f(w)) * np.sqrt(f(w)) + 2.0 * v * f(w)) @ v.T)) / 3.0


def divided(a: Any, f: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return np.sum(WEIGHTS * ((v / (1 / f(w))) @ v.T))


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__: f for f in (scaled, of_rows, on_a_diagonal, by_einsum, on_a_vector, twice, divided)
}
FUNCTIONS = {"exp": (np.exp, np.exp), "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x))}


def expected(a: Any, weights: Any, f: Any, slope: Any) -> Any:
    """The formula of Daleckii and Krein."""
    w, v = np.linalg.eigh(a)
    gaps = w[None, :] - w[:, None]
    near = np.abs(gaps) < 1e-9
    share = np.where(
        near, slope((w[None, :] + w[:, None]) / 2), (f(w)[None, :] - f(w)[:, None]) / np.where(near, 1, gaps)
    )
    return v @ (share * (v.T @ ((weights + weights.T) / 2) @ v)) @ v.T


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("form", FORMS)
def test_functions_of_a_symmetric_matrix(form: str, values: str) -> None:
    for name, rotated in (("exp", True), ("sqrt", False)):
        f, slope = FUNCTIONS[name]
        a = matrix(VALUES[values], rotated)
        weights = np.outer(WEIGHTS[0], VECTOR) if form == "on_a_vector" else WEIGHTS
        wanted = expected(a, weights, f, slope)
        with gt.config.override(jit=rotated):
            found = gt.grad(lambda x, g=f: FORMS[form](x, g))(a)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)


def test_in_tapes_maps_and_stacks() -> None:
    stack = np.stack([matrix(v, rotated) for v in VALUES.values() for rotated in (False, True)])
    wanted = [expected(a, WEIGHTS, np.exp, np.exp) for a in stack]
    mapped = gt.vmap(gt.grad(lambda a: scaled(a, np.exp)))(stack)
    np.testing.assert_allclose(mapped, wanted, rtol=1e-10, atol=1e-10)

    def whole(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum(WEIGHTS * ((v * np.exp(w)[:, None, :]) @ np.swapaxes(v, 1, 2)))

    np.testing.assert_allclose(gt.grad(whole)(stack), wanted, rtol=1e-10, atol=1e-10)
    with gt.GradientTape() as tape:
        x = tape.watch(stack[1])
        y = scaled(x, np.exp)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), wanted[1], rtol=1e-10, atol=1e-10)


def test_traces_of_functions() -> None:
    """The values alone: the derivative is a function of the matrix too."""
    a = matrix(VALUES["two and two"], True)
    found = gt.grad(lambda x: np.sum(np.exp(np.linalg.eigvalsh(x))))(a)
    np.testing.assert_allclose(found, ROTATION @ np.diag(np.exp(VALUES["two and two"])) @ ROTATION.T)
    curvature = gt.hessian(lambda x: np.sum(np.linalg.eigvalsh(x) ** 2))(np.eye(2))
    assert np.isfinite(curvature).all()


def polar(b: Any) -> Any:
    left, _, right = np.linalg.svd(b)
    return np.sum(WEIGHTS * (left @ right))


def cubed(b: Any) -> Any:
    left, s, right = np.linalg.svd(b)
    return np.sum(WEIGHTS * ((left * s**3) @ right))


def cubed_on_the_right(b: Any) -> Any:
    left, s, right = np.linalg.svd(b)
    return np.sum(WEIGHTS * (left @ (np.diag(s**3) @ right)))


def cubed_without(b: Any) -> Any:
    return np.sum(WEIGHTS * (b @ b.T @ b))


def polar_by_inverses(b: Any) -> Any:
    for _ in range(30):
        b = (b + np.linalg.inv(b).T) / 2
    return np.sum(WEIGHTS * b)


@pytest.mark.parametrize("values", VALUES)
def test_functions_of_singular_values(values: str) -> None:
    for rotated in (True, False):
        b = (ROTATION if rotated else np.eye(4)) @ np.diag(VALUES[values])
        without = gt.grad(cubed_without)(b)
        np.testing.assert_allclose(gt.grad(cubed)(b), without, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(gt.grad(cubed_on_the_right)(b), without, rtol=1e-10, atol=1e-10)
        inverses = gt.grad(polar_by_inverses)(b)
        np.testing.assert_allclose(gt.grad(polar)(b), inverses, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gt.jacfwd(polar)(b), inverses, rtol=1e-9, atol=1e-9)
        nuclear = gt.grad(lambda b: np.linalg.norm(b, "nuc"))(b)
        np.testing.assert_allclose(nuclear, ROTATION if rotated else np.eye(4), atol=1e-12)
        inverse = gt.grad(lambda b: np.sum(WEIGHTS * np.linalg.pinv(b)))(b)
        np.testing.assert_allclose(
            inverse, gt.grad(lambda b: np.sum(WEIGHTS * np.linalg.inv(b)))(b), rtol=1e-9
        )


def test_a_rectangle() -> None:
    b = np.vstack([np.eye(3), np.zeros((1, 3))])

    def by_vectors(b: Any) -> Any:
        left, s, right = np.linalg.svd(b, full_matrices=False)
        return np.sum(WEIGHTS[:, :3] * ((left * s**3) @ right))

    wanted = gt.grad(lambda b: np.sum(WEIGHTS[:, :3] * (b @ b.T @ b)))(b)
    np.testing.assert_allclose(gt.grad(by_vectors)(b), wanted, atol=1e-12)
