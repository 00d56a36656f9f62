"""`gt.from_jax`: functions of JAX as operations, compared with the same code in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.ways import expect

jax = pytest.importorskip("jax", reason="an optional extra: pip install 'gradtape[jax]'")
jnp = pytest.importorskip("jax.numpy", reason="comes with JAX")

X = {"w": np.array([[0.3, -1.2, 0.7], [0.5, 0.1, -0.4]]), "b": np.array([1.1, 0.4])}
MANY = {name: np.stack([value, 2 * value, -value]) for name, value in X.items()}


def code(xp: Any) -> Callable[..., Any]:
    """Return a function of a dict, a tuple and an option that returns several arrays."""

    def function(params: Any, pair: Any = (2.0, 1), *, mode: str = "sum") -> Any:
        hidden = xp.tanh(params["w"].T @ params["b"]) * pair[0]
        total = getattr(xp, mode)(hidden**2) + pair[1]
        return {"total": total, "rest": (xp.outer(hidden, params["b"]), xp.argsort(hidden))}

    return function


ours, theirs = code(np), gt.from_jax(code(jnp))


def number(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_params(params: Any) -> Any:
        results = function(params)
        return results["total"] + np.sum(np.exp(results["rest"][0]))

    return of_params


def same(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def on_tape(function: Callable[..., Any]) -> Callable[..., Any]:
    def derivative(params: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(params)
            result = function(watched)
        return tape.gradient(result, watched)

    return derivative


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        gt.jit,
        gt.grad,
        gt.hessian,
        gt.jacfwd,
        on_tape,
        lambda f: gt.jacobian(lambda p: np.stack([f(p), f(p) ** 2])),
        lambda f: lambda p: gt.jvp(f, (p,), (p,)),
        lambda f: lambda p: gt.jvp(gt.grad(f), (p,), (p,)),
        lambda f: gt.grad(lambda p: gt.jvp(f, (p,), (p,))[1]),
        lambda f: lambda p: gt.hvp(f, (p,), (p,)),
    ],
    ids=["call", "jit", "grad", "hessian", "jacfwd", "tape", "jacobian", "jvp", "fwd rev", "rev fwd", "hvp"],
)
def test_derivatives_are_those_of_the_same_code_in_numpy(transform: Callable[..., Any]) -> None:
    same(transform(number(theirs))(X), transform(number(ours))(X))


@pytest.mark.parametrize(
    "transform",
    [
        gt.vmap,
        lambda f: gt.vmap(gt.grad(f)),
        lambda f: gt.jit(gt.grad(lambda many: np.sum(gt.vmap(f)(many)))),
        lambda f: gt.jacobian(gt.vmap(f)),
        lambda f: (
            lambda many: gt.vmap(gt.vmap(lambda w, b: f({"w": w, "b": b}), (None, 0)), (0, None))(
                many["w"], many["b"]
            )
        ),
    ],
    ids=["vmap", "of grad", "under grad", "jacobian", "twice"],
)
def test_batches(transform: Callable[..., Any]) -> None:
    same(transform(number(theirs))(MANY), transform(number(ours))(MANY))


def test_a_batch_is_one_call() -> None:
    f = gt.jit(gt.vmap(gt.from_jax(lambda x: jnp.sum(x**2))))
    assert f(np.ones((4, 3))).tolist() == [3, 3, 3, 3]
    text = str(gt.inspect.graph(f, np.ones((4, 3))))
    assert text.count("host_function_of_stacks") == 1
    assert f(np.ones((0, 3))).shape == (0,)


def test_containers_constants_and_options() -> None:
    result = gt.jit(theirs)(X, (3.0, 2), mode="mean")
    same(result, ours(X, (3.0, 2), mode="mean"))
    assert result["rest"][1].dtype.kind == "i"
    same(gt.grad(lambda s: theirs(X, (s, 1))["total"])(2.0), gt.grad(lambda s: ours(X, (s, 1))["total"])(2.0))
    f = gt.from_jax(lambda x, n: x * (3 if n is True else n))
    assert [float(f(2.0, n)) for n in (1, True, 5)] == [2, 6, 10]
    draws = gt.from_jax(lambda key, x: x * jax.random.uniform(key, (2,)))
    key = jax.random.key(0)
    assert gt.jit(lambda x: draws(key, x))(np.ones(2)).tolist() == draws(key, 1.0).tolist()


def test_in_loops() -> None:
    def steps(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: gt.fori_loop(0, 4, lambda i, c: 0.5 * c + f(c), x)

    def written(f: Callable[..., Any]) -> Callable[..., Any]:
        def loop(x: Any) -> Any:
            result = np.zeros(len(x) + 1)
            for i in range(len(x)):
                result[i + 1] = f(result[i] + x[i])
            return result

        return loop

    x = np.array([0.3, -0.2, 1.1])
    for loop in (steps, written):
        for transform in (gt.jit, gt.jacrev, gt.jacfwd):
            same(transform(loop(gt.from_jax(jnp.sin)))(x), transform(loop(np.sin))(x))


def test_where_one_mode_serves_the_other() -> None:
    f = gt.from_jax(lambda x: jnp.sin(x) * x)

    def through(f: Callable[..., Any]) -> Any:
        @gt.custom_jvp
        def function(x: Any) -> Any:
            return f(x)

        @function.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            return gt.jvp(f, primals, tangents)

        return lambda x: np.sum(function(x) ** 2)

    x = np.array([0.3, -1.2])
    same(gt.grad(through(f))(x), gt.grad(through(lambda x: np.sin(x) * x))(x))
    same(gt.linear_transpose(gt.linearize(f, x)[1], x)(x), (np.cos(x) * x + np.sin(x)) * x)


def test_complex_numbers() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])

    def loss(xp: Any) -> Callable[..., Any]:
        return lambda z: xp.sum(xp.abs(z) ** 2) + xp.sum(xp.real(z**3))

    for convention in ("jax", "tensorflow"):
        same(
            gt.grad(gt.from_jax(loss(jnp)), convention=convention)(z),
            gt.grad(loss(np), convention=convention)(z),
        )
    same(gt.jvp(gt.from_jax(loss(jnp)), (z,), (z,)), gt.jvp(loss(np), (z,), (z,)))
    square = gt.from_jax(jnp.square)
    same(gt.grad(lambda z: square(z)[0], holomorphic=True)(z), np.array([2 * z[0], 0]))
    same(
        gt.grad(lambda x: np.sum(np.abs(square(x + 1j))))(z.real),
        gt.grad(lambda x: np.sum(np.abs((x + 1j) ** 2)))(z.real),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 0), (3,)])
def test_dtypes_and_shapes_stay(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, dtype)
    f = gt.from_jax(lambda x: x[...])
    for result in (f(x), gt.jit(f)(x), gt.vmap(f)(x[None])[0]):
        assert result.dtype == x.dtype and result.shape == shape and (result == x).all()


def test_numbers_of_python_do_not_widen() -> None:
    f = gt.from_jax(lambda x, s: x * s)
    x = np.ones(3, np.float32)
    assert f(x, 2.0).dtype == gt.jit(f)(x, 2.0).dtype == np.float32
    slope = gt.grad(lambda x, s: np.sum(f(x, s)), argnums=(0, 1))(x, 2.0)
    assert slope[0].dtype == np.float32 and float(slope[1]) == 3


def test_layouts_and_memory() -> None:
    x = np.arange(12.0).reshape(3, 4)
    f = gt.from_jax(lambda x: x)
    for view in (x.T, x[::-1, ::2], np.broadcast_to(x[0], (2, 4)), np.asfortranarray(x)):
        result = f(view)
        assert (result == view).all() and not np.shares_memory(result, x)
        result[...] = 0  # the caller's
        assert (gt.jit(f)(view) == view).all()
    assert x.sum() == 66


def test_threads() -> None:
    slope = gt.grad(lambda x: np.sum(gt.from_jax(lambda x: x**3)(x)))
    inputs = [np.full(5, float(k)) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(inputs, pool.map(slope, inputs), strict=True):
            np.testing.assert_allclose(found, 3 * x**2)


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


def test_dtypes_of_one_library_only() -> None:
    f = gt.from_jax(lambda x: x + 1)
    assert f(np.arange(3.0).astype(">f8")).tolist() == [1, 2, 3]
    for x in (np.ones(2, np.longdouble), np.array(["a"]), np.array([1.0, None])):
        expect(gt.errors.DtypeError, lambda x=x: f(x), "JAX does not have", "astype")
    expect(gt.errors.DtypeError, lambda: gt.from_jax(lambda x: jax.random.key(0))(1.0), "key_data")
