"""`gt.jax`: NumPy code as a function of JAX's arrays, compared with JAX's own derivatives."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.guests.flat import Flat
from tests.api.guests.pages import check_programs
from tests.support.ways import expect

jax = pytest.importorskip("jax", reason="an optional extra")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def numpys(params: Any, power: int = 2) -> Any:
    """Return several results, some of them no arrays with a derivative, of a function with writes in a loop."""
    x, y = params["x"], params["y"]
    sums, total = np.zeros(3), 0.0
    for i in range(3):
        total = total + np.sin(x[i]) * y[i] ** power
        sums[i] = np.where(total > 0, total, 0.5 * total)
    return {"sums": sums, "outer": np.outer(x, y), "order": np.argsort(x), "text": "yes", "number": 3}


def jaxes(params: Any) -> Any:
    sums = jnp.cumsum(jnp.sin(params["x"]) * params["y"] ** 2)
    return {"sums": jnp.where(sums > 0, sums, 0.5 * sums), "outer": jnp.outer(params["x"], params["y"])}


def number(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_params(params: Any) -> Any:
        results = function(params)
        return jnp.sum(results["sums"] ** 2) + jnp.sum(jnp.exp(results["outer"]))

    return of_params


PARAMS = {"x": np.array([0.3, -1.2, 0.7]), "y": np.array([1.1, 0.4, -0.6])}
MANY = {name: np.stack([value, 2 * value, -value]) for name, value in PARAMS.items()}


def same(ours: Any, theirs: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13), ours, theirs)


def test_results_keep_their_containers_and_what_is_no_array() -> None:
    results = gt.jax(numpys)(PARAMS)
    assert results.pop("text") == "yes" and results.pop("number") == 3
    assert results.pop("order").tolist() == [1, 0, 2]
    same(results, jaxes(PARAMS))
    assert all(isinstance(result, jax.Array) for result in results.values())
    third = gt.jax(numpys)(PARAMS, power=3)["sums"]
    np.testing.assert_allclose(third, numpys(PARAMS, 3)["sums"])


@pytest.mark.parametrize(
    "transform",
    [
        jax.jit,
        jax.grad,
        lambda f: jax.jit(jax.grad(f)),
        jax.jacfwd,
        lambda f: jax.jit(jax.hessian(f)),
        lambda f: jax.jacrev(jax.jacrev(f)),
        lambda f: lambda p: jax.vjp(lambda p: jax.jvp(f, (p,), (p,))[1], p)[1](1.0),
        lambda f: jax.grad(jax.checkpoint(f)),
    ],
    ids=["jit", "grad", "grad in jit", "jacfwd", "hessian", "rev rev", "vjp of jvp", "remat"],
)
def test_derivatives_agree(transform: Callable[..., Any]) -> None:
    same(transform(number(gt.jax(numpys)))(PARAMS), transform(number(jaxes))(PARAMS))


@pytest.mark.parametrize(
    "transform",
    [
        jax.vmap,
        lambda f: jax.jit(jax.vmap(jax.grad(f))),
        lambda f: jax.grad(lambda many: jnp.sum(jax.vmap(f)(many))),
        lambda f: lambda many: jax.linear_transpose(jax.vmap(jax.linearize(f, PARAMS)[1]), many)(jnp.ones(3)),
    ],
    ids=["vmap", "of grad", "under grad", "transposed"],
)
def test_batches_agree(transform: Callable[..., Any]) -> None:
    same(transform(number(gt.jax(numpys)))(MANY), transform(number(jaxes))(MANY))


def test_branches_of_python_are_taken_at_each_call() -> None:
    f = jax.jit(jax.value_and_grad(gt.jax(lambda x: x[0] * x[1] if x[0] > 0 else -x[1])))
    for x in ([2.0, 3.0], [-2.0, 3.0], [2.0, 3.0]):
        value, slope = f(jnp.array(x))
        assert (float(value), slope.tolist()) == ((6, [3, 2]) if x[0] > 0 else (-3, [0, -1]))


def test_batches_of_some_operands_along_other_axes() -> None:
    f = jax.vmap(jax.vmap(gt.jax(lambda a, b: np.sum(a) * b), (None, 0)), (1, None), out_axes=1)
    a, b = np.arange(6.0).reshape(3, 2), np.arange(4.0)
    np.testing.assert_allclose(f(a, b), np.outer(b, a.sum(0)))


def test_third_derivatives() -> None:
    f = jax.grad(jax.grad(jax.grad(gt.jax(np.sin))))
    np.testing.assert_allclose(f(0.4), -np.cos(0.4))


def test_in_loops_of_jax() -> None:
    def steps(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jax.lax.scan(lambda c, _: (0.5 * c + f(c), None), x, None, length=3)[0]

    x = jnp.array([0.3, -0.2])
    ours, theirs = steps(gt.jax(np.sin)), steps(jnp.sin)
    same(jax.jacrev(ours)(x), jax.jacrev(theirs)(x))
    same(jax.jacfwd(ours)(x), jax.jacfwd(theirs)(x))


def test_complex_derivatives_follow_jax() -> None:
    z = jnp.array([1 + 2j, -0.5 + 0.3j])

    def loss(xp: Any) -> Callable[..., Any]:
        return lambda z: xp.sum(xp.abs(z) ** 2) + xp.sum(xp.real(z**3))

    ours, theirs = gt.jax(loss(np)), loss(jnp)
    same(jax.grad(ours)(z), jax.grad(theirs)(z))
    same(jax.jvp(ours, (z,), (z,)), jax.jvp(theirs, (z,), (z,)))
    same(jax.jacrev(gt.jax(np.square), holomorphic=True)(z), jnp.diag(2 * z))


def test_pytrees_of_jax_alone() -> None:
    Pair = jax.tree_util.Partial
    result = gt.jax(lambda pair: Pair(np.add, pair.args[0] * 2, rest=pair.keywords["rest"]))(
        Pair(np.add, np.ones(2), rest=None)
    )
    assert (
        isinstance(result, Pair) and result.args[0].tolist() == [2, 2] and result.keywords == {"rest": None}
    )


def test_single_precision_where_jax_has_no_other() -> None:
    jax.config.update("jax_enable_x64", False)
    f = gt.jax(lambda x: (np.linspace(0, 1, 2) * x, np.cumsum(x > 0)))
    values, counts = f(np.ones(2))
    assert values.dtype == "float32" and counts.dtype == "int32"
    slopes = jax.jacrev(lambda x: f(x)[0])(jnp.ones(2))
    assert slopes.dtype == "float32" and slopes.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 0)])
def test_dtypes_and_shapes_stay(dtype: str, shape: tuple[int, ...]) -> None:
    x = jnp.ones(shape, dtype)
    result = jax.jit(gt.jax(lambda x: x[...]))(x)
    assert result.dtype == x.dtype and result.shape == shape and (result == x).all()


def test_what_one_thread_computes_is_not_anothers() -> None:
    slope = jax.jit(jax.grad(gt.jax(lambda x: np.sum(x**3))))
    inputs = [np.full(5, float(k)) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(inputs, pool.map(slope, inputs), strict=True):
            np.testing.assert_allclose(found, 3 * x**2)


def test_constants_are_told_apart() -> None:
    f = gt.jax(lambda x, n: x * (3 if n is True else n))
    assert float(f(2.0, 1)) == 2 and float(f(2.0, True)) == 6 and float(f(2.0, 5)) == 10
    g = gt.jax(lambda x, options: x * len(options))  # sets have no hash, and are no pytree
    assert float(g(2.0, {1, 2})) == 4 and float(g(2.0, {1})) == 2


def test_operators_for_constants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtape.api.guests.jax_primitive.MOST_OPERATORS", 3)

    def product(x: Any, n: int) -> Any:
        return x * n

    f = gt.jax(product)
    for n in range(8):
        assert float(f(2.0, n)) == 2 * n
    gc.collect()
    own = [thing for thing in gc.get_objects() if type(thing) is Flat and thing.function is product]
    assert len(own) == 3


def test_what_numpy_does_not_have_is_an_error() -> None:
    expect(gt.errors.DtypeError, lambda: gt.jax(np.sum)(jnp.ones(3, jnp.bfloat16)), "bfloat16", "x.astype")
    expect(gt.errors.DtypeError, lambda: gt.jax(np.sum)(jax.random.key(0)), "key<fry>", "key_data")
    expect(gt.errors.ShapeError, lambda: gt.jax(np.dot)(jnp.ones(3), jnp.ones(4)), "(3,)", "(4,)")


def test_errors_of_the_computation_arrive() -> None:
    with pytest.raises(Exception, match="not positive definite"):
        jax.block_until_ready(gt.jax(np.linalg.cholesky)(-jnp.eye(2)))


def test_not_a_function() -> None:
    expect(gt.errors.ArgumentError, lambda: gt.jax(3), "jax got an int")


def test_the_page_prints_what_it_says() -> None:
    check_programs("jax")


def test_a_model_of_numpyro_samples() -> None:
    pytest.importorskip("numpyro", reason="no part of the test environment: pip install numpyro")
    jax.config.update("jax_enable_x64", False)
    check_programs("numpyro")
