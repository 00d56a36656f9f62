"""The tests of `gt.from_jax` and `gt.from_torch` that are the same: their functions, compared with the same code in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.ways import expect

X = {"w": np.array([[0.3, -1.2, 0.7], [0.5, 0.1, -0.4]]), "b": np.array([1.1, 0.4])}
MANY = {name: np.stack([value, 2 * value, -value]) for name, value in X.items()}


def code(xp: Any) -> Callable[..., Any]:
    """Return a function of a dict, a tuple and an option that returns several arrays."""

    def function(params: Any, pair: Any = (2.0, 1), *, mode: str = "sum") -> Any:
        hidden = xp.tanh(params["w"].T @ params["b"]) * pair[0]
        total = getattr(xp, mode)(hidden**2) + pair[1]
        return {"total": total, "rest": (xp.outer(hidden, params["b"]), xp.argsort(hidden))}

    return function


def number(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_params(params: Any) -> Any:
        results = function(params)
        return results["total"] + np.sum(np.exp(results["rest"][0]))

    return of_params


def same(found: Any, expected: Any) -> None:
    for one, other in zip(gt.tree.leaves(found), gt.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def on_tape(function: Callable[..., Any]) -> Callable[..., Any]:
    def derivative(params: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(params)
            result = function(watched)
        return tape.gradient(result, watched)

    return derivative


DERIVATIVES = {
    "call": lambda f: f,
    "jit": gt.jit,
    "grad": gt.grad,
    "hessian": gt.hessian,
    "jacfwd": gt.jacfwd,
    "tape": on_tape,
    "jacobian": lambda f: gt.jacobian(lambda p: np.stack([f(p), f(p) ** 2])),
    "jvp": lambda f: lambda p: gt.jvp(f, (p,), (p,)),
    "fwd rev": lambda f: lambda p: gt.jvp(gt.grad(f), (p,), (p,)),
    "rev fwd": lambda f: gt.grad(lambda p: gt.jvp(f, (p,), (p,))[1]),
    "hvp": lambda f: lambda p: gt.hvp(f, (p,), (p,)),
}

BATCHES = {
    "vmap": gt.vmap,
    "of grad": lambda f: gt.vmap(gt.grad(f)),
    "under grad": lambda f: gt.jit(gt.grad(lambda many: np.sum(gt.vmap(f)(many)))),
    "jacobian": lambda f: gt.jacobian(gt.vmap(f)),
    "twice": lambda f: (
        lambda many: gt.vmap(gt.vmap(lambda w, b: f({"w": w, "b": b}), (None, 0)), (0, None))(
            many["w"], many["b"]
        )
    ),
}

PACKED = np.zeros(3, np.dtype([("flag", "i1"), ("x", "f8")]))
PACKED["x"] = [1.0, 2.0, 3.0]


class LibraryCases:
    """The tests of one of the two; its module sets the attributes."""

    xp: Any
    """The library's module of functions."""

    wrap: Callable[..., Any]
    """`gt.from_jax` or `gt.from_torch`."""

    def of_code(self) -> Callable[..., Any]:
        wrapped: Callable[..., Any] = self.wrap(code(self.xp))
        return wrapped

    @pytest.mark.parametrize("transform", DERIVATIVES.values(), ids=DERIVATIVES)
    def test_derivatives_are_those_of_the_same_code_in_numpy(self, transform: Callable[..., Any]) -> None:
        same(transform(number(self.of_code()))(X), transform(number(code(np)))(X))

    @pytest.mark.parametrize("transform", BATCHES.values(), ids=BATCHES)
    def test_batches(self, transform: Callable[..., Any]) -> None:
        same(transform(number(self.of_code()))(MANY), transform(number(code(np)))(MANY))

    def test_a_batch_is_one_call(self) -> None:
        f = gt.jit(gt.vmap(self.wrap(lambda x: (x**2).sum())))
        assert f(np.ones((4, 3))).tolist() == [3, 3, 3, 3]
        assert str(gt.inspect.graph(f, np.ones((4, 3)))).count("host_function_of_stacks") == 1
        assert f(np.ones((0, 3))).shape == (0,)

    def test_containers_and_options(self) -> None:
        ours, theirs = code(np), self.of_code()
        result = gt.jit(theirs)(X, (3.0, 2), mode="mean")
        same(result, ours(X, (3.0, 2), mode="mean"))
        assert result["rest"][1].dtype.kind == "i"
        same(
            gt.grad(lambda s: theirs(X, (s, 1))["total"])(2.0),
            gt.grad(lambda s: ours(X, (s, 1))["total"])(2.0),
        )
        f = self.wrap(lambda x, n: x * (3 if n is True else n))
        assert [float(f(np.array(2.0), n)) for n in (1, True, 5)] == [2, 6, 10]

    def test_in_loops(self) -> None:
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
                same(transform(loop(self.wrap(self.xp.sin)))(x), transform(loop(np.sin))(x))

    def test_where_one_mode_serves_the_other(self) -> None:
        f = self.wrap(lambda x: self.xp.sin(x) * x)

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

    def test_complex_numbers(self) -> None:
        z = np.array([1 + 2j, -0.5 + 0.3j])

        def loss(xp: Any) -> Callable[..., Any]:
            return lambda z: xp.sum(xp.abs(z) ** 2) + xp.sum(xp.real(z**3))

        ours, theirs = loss(np), self.wrap(loss(self.xp))
        for convention in ("jax", "tensorflow"):
            same(gt.grad(theirs, convention=convention)(z), gt.grad(ours, convention=convention)(z))
        same(gt.jvp(theirs, (z,), (z,)), gt.jvp(ours, (z,), (z,)))
        square = self.wrap(self.xp.square)
        same(gt.grad(lambda z: square(z)[0], holomorphic=True)(z), np.array([2 * z[0], 0]))
        same(
            gt.grad(lambda x: np.sum(np.abs(square(x + 1j))))(z.real),
            gt.grad(lambda x: np.sum(np.abs((x + 1j) ** 2)))(z.real),
        )

    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int8", "bool"])
    @pytest.mark.parametrize("shape", [(), (2, 0), (3,)])
    def test_dtypes_and_shapes_stay(self, dtype: str, shape: tuple[int, ...]) -> None:
        x = np.ones(shape, dtype)
        f = self.wrap(lambda x: x[...])
        for result in (f(x), gt.jit(f)(x), gt.vmap(f)(x[None])[0]):
            assert result.dtype == x.dtype and result.shape == shape and (result == x).all()
        assert gt.vmap(f)(np.ones((0, *shape), dtype)).shape == (0, *shape)

    @pytest.mark.parametrize(
        "x", [np.arange(3.0).astype(">f8"), np.array(2 + 1j, ">c16"), np.array([1, 2], ">i4"), PACKED["x"]]
    )
    @pytest.mark.parametrize("transform", [lambda f: f, gt.jit])
    def test_byte_orders_and_fields_of_records(self, x: Any, transform: Callable[..., Any]) -> None:
        result = transform(self.wrap(lambda x: 2 * x))(x)
        assert result.dtype == x.dtype.newbyteorder("=") and np.array_equal(result, 2 * x)

    @pytest.mark.parametrize(
        "x",
        [
            np.ones(2, np.longdouble),
            np.ones(2, np.clongdouble),
            np.array(["a"]),
            np.array([1.0, None]),
            np.array(["2020-01-01"], "M8[D]"),
        ],
        ids=["longdouble", "clongdouble", "text", "objects", "dates"],
    )
    @pytest.mark.parametrize("transform", [lambda f: f, gt.jit])
    def test_dtypes_that_the_library_does_not_have(self, x: Any, transform: Callable[..., Any]) -> None:
        f = transform(self.wrap(lambda x: x))
        expect(gt.errors.DtypeError, lambda: f(x), str(x.dtype), "astype")

    def test_numbers_of_python_do_not_widen(self) -> None:
        f = self.wrap(lambda x, s: x * s)
        x = np.ones(3, np.float32)
        assert f(x, 2.0).dtype == gt.jit(f)(x, 2.0).dtype == np.float32
        slope = gt.grad(lambda x, s: np.sum(f(x, s)), argnums=(0, 1))(x, 2.0)
        assert slope[0].dtype == np.float32 and float(slope[1]) == 3

    def test_layouts_and_memory(self) -> None:
        x = np.arange(12.0).reshape(3, 4)
        f = self.wrap(lambda x: x)
        for view in (x.T, x[::-1, ::2], np.broadcast_to(x[0], (2, 4)), np.asfortranarray(x)):
            result = f(view)
            assert (result == view).all() and not np.shares_memory(result, x)
            result[...] = 0  # the caller's
            assert (gt.jit(f)(view) == view).all()
        assert x.sum() == 66

    def test_threads(self) -> None:
        slope = gt.grad(lambda x: np.sum(self.wrap(lambda x: x**3)(x)))
        inputs = [np.full(5, float(k)) for k in range(40)]
        with ThreadPoolExecutor(4) as pool:
            for x, found in zip(inputs, pool.map(slope, inputs), strict=True):
                np.testing.assert_allclose(found, 3 * x**2)
