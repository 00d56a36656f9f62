"""`gt.from_jax`: functions of JAX as operations, compared with the same code in NumPy; see `LibraryCases`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.library_cases import LibraryCases
from tests.support.ways import expect

jax = pytest.importorskip("jax", reason="an optional extra: pip install 'gradtape[jax]'")
jnp = pytest.importorskip("jax.numpy", reason="comes with JAX")


class TestFunctionsOfJax(LibraryCases):
    xp = jnp
    wrap = staticmethod(gt.from_jax)


def test_constants() -> None:
    draws = gt.from_jax(lambda key, x: x * jax.random.uniform(key, (2,)))
    key = jax.random.key(0)
    assert gt.jit(lambda x: draws(key, x))(np.ones(2)).tolist() == draws(key, 1.0).tolist()


def test_one_inside_the_other() -> None:
    f = gt.jax(lambda x: np.sum(gt.from_jax(jnp.sin)(x) ** 2))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(jnp.ones(2)), np.sin(2 * np.ones(2)), rtol=1e-6)


def test_errors() -> None:
    x = np.ones(3)
    expect(
        gt.errors.ArgumentError, lambda: gt.from_jax(np.sin)(x), "sin converts arrays of JAX", "without NumPy"
    )
    expect(
        gt.errors.ArgumentError,
        lambda: gt.jit(gt.from_jax(np.sin))(x),
        "sin converts arrays of JAX",
        "without NumPy",
    )
    expect(gt.errors.ArgumentError, lambda: gt.from_jax(lambda x: (x, "text"))(x), "returned", "str")
    expect(
        gt.errors.DtypeError, lambda: gt.from_jax(lambda x: x.astype(jnp.bfloat16))(x), "bfloat16", "float32"
    )
    expect(gt.errors.ArgumentError, lambda: gt.from_jax(3), "from_jax got an int")
    with pytest.raises(TypeError, match=r"\(3,\).*\(4,\)"):
        gt.jit(gt.from_jax(jnp.dot))(x, np.ones(4))


def test_errors_of_the_computation_arrive() -> None:
    def refuse(x: Any) -> None:
        raise ValueError("too hot")

    def checked(x: Any) -> Any:
        return jax.pure_callback(refuse, x, x)

    with pytest.raises(Exception, match="too hot"):
        gt.jit(gt.from_jax(checked))(np.ones(2))


def test_keys_are_no_numbers() -> None:
    expect(gt.errors.DtypeError, lambda: gt.from_jax(lambda x: jax.random.key(0))(1.0), "key_data")
