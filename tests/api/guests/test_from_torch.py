"""`gt.from_torch`: functions of PyTorch as operations, compared with the same code in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.ways import expect

torch = pytest.importorskip("torch", reason="wheels of PyTorch have gigabytes of CUDA: run by hand")
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
"""PyTorch warns of itself where it first computes in forward mode."""

X = {"w": np.array([[0.3, -1.2, 0.7], [0.5, 0.1, -0.4]]), "b": np.array([1.1, 0.4])}
MANY = {name: np.stack([value, 2 * value, -value]) for name, value in X.items()}


def code(xp: Any) -> Callable[..., Any]:
    """Return a function of a dict, a tuple and an option that returns several arrays."""

    def function(params: Any, pair: Any = (2.0, 1), *, mode: str = "sum") -> Any:
        hidden = xp.tanh(params["w"].T @ params["b"]) * pair[0]
        total = getattr(xp, mode)(hidden**2) + pair[1]
        return {"total": total, "rest": (xp.outer(hidden, params["b"]), xp.argsort(hidden))}

    return function


ours, theirs = code(np), gt.from_torch(code(torch))


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
    ],
    ids=["call", "jit", "grad", "hessian", "jacfwd", "tape", "jacobian", "jvp", "fwd rev", "rev fwd"],
)
def test_derivatives_are_those_of_the_same_code_in_numpy(transform: Callable[..., Any]) -> None:
    same(transform(number(theirs))(X), transform(number(ours))(X))


@pytest.mark.parametrize(
    "transform",
    [
        gt.vmap,
        lambda f: gt.vmap(gt.grad(f)),
        lambda f: gt.jit(gt.grad(lambda many: np.sum(gt.vmap(f)(many)))),
        lambda f: (
            lambda many: gt.vmap(gt.vmap(lambda w, b: f({"w": w, "b": b}), (None, 0)), (0, None))(
                many["w"], many["b"]
            )
        ),
    ],
    ids=["vmap", "of grad", "under grad", "twice"],
)
def test_batches(transform: Callable[..., Any]) -> None:
    same(transform(number(theirs))(MANY), transform(number(ours))(MANY))


def test_containers_constants_and_options() -> None:
    result = gt.jit(theirs)(X, (3.0, 2), mode="mean")
    same(result, ours(X, (3.0, 2), mode="mean"))
    assert result["rest"][1].dtype.kind == "i"
    same(gt.grad(lambda s: theirs(X, (s, 1))["total"])(2.0), gt.grad(lambda s: ours(X, (s, 1))["total"])(2.0))


def branching(x: Any) -> Any:
    return x**2 if x.sum() > 0 else -x


def test_functions_that_ask_for_numbers() -> None:
    f = gt.from_torch(branching)
    x = np.array([0.5, 1.5])
    for sign in (1, -1, 1):
        expected = 2 * x if sign == 1 else -np.ones(2)
        same(f(sign * x), branching(sign * x))
        same(gt.grad(lambda x: np.sum(f(x)))(sign * x), expected)
    same(gt.vmap(f)(np.stack([x, -x])), np.stack([x**2, x]))
    same(gt.vmap(gt.grad(lambda x: np.sum(f(x))))(np.stack([x, -x])), np.stack([2 * x, -np.ones(2)]))
    expect(
        gt.errors.ConcretizationError,
        lambda: gt.fori_loop(0, 2, lambda i, x: gt.from_torch(branching)(x), x),
        "branching",
        "gt.callback",
    )


def test_parameters_of_modules() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    f = gt.from_torch(module)
    x = np.array([0.3, -1.2])
    given = torch.tensor(x, requires_grad=True)
    module(given).sum().backward()
    expected = {name: parameter.grad.clone().numpy() for name, parameter in module.named_parameters()}
    module.zero_grad()
    same(gt.grad(lambda x: np.sum(f(x)))(x), given.grad.numpy())
    assert all(parameter.grad is None for parameter in module.parameters())
    params = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    call = gt.from_torch(lambda params, x: torch.func.functional_call(module, params, (x,)))
    same(gt.grad(lambda params: np.sum(call(params, x)))(params), expected)


def test_normalisation_keeps_its_statistics_while_shapes_are_found() -> None:
    norm = torch.nn.BatchNorm1d(2).double()
    before = norm.running_mean.clone()
    gt.jit(gt.from_torch(norm)).lower(np.ones((3, 2)))
    assert torch.equal(norm.running_mean, before)


def test_complex_numbers() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])

    def loss(xp: Any) -> Callable[..., Any]:
        return lambda z: xp.sum(xp.abs(z) ** 2) + xp.sum(xp.real(z**3))

    for convention in ("jax", "tensorflow"):
        same(
            gt.grad(gt.from_torch(loss(torch)), convention=convention)(z),
            gt.grad(loss(np), convention=convention)(z),
        )
    same(gt.jvp(gt.from_torch(loss(torch)), (z,), (z,)), gt.jvp(loss(np), (z,), (z,)))
    f = gt.from_torch(lambda z: (z.conj(), torch.real(z), z.imag))
    same(gt.jit(f)(z), (z.conj(), z.real, z.imag))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 0), (3,)])
def test_dtypes_and_shapes_stay(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, dtype)
    f = gt.from_torch(lambda x: x.clone())
    for result in (f(x), gt.jit(f)(x), gt.vmap(f)(x[None])[0]):
        assert result.dtype == x.dtype and result.shape == shape and (result == x).all()
    assert gt.vmap(f)(np.ones((0, *shape), dtype)).shape == (0, *shape)


def test_numbers_of_python_do_not_widen() -> None:
    f = gt.from_torch(lambda x, s: x * s)
    x = np.ones(3, np.float32)
    assert f(x, 2.0).dtype == gt.jit(f)(x, 2.0).dtype == np.float32
    slope = gt.grad(lambda x, s: np.sum(f(x, s)), argnums=(0, 1))(x, 2.0)
    assert slope[0].dtype == np.float32 and float(slope[1]) == 3


def test_layouts_and_memory() -> None:
    x = np.arange(12.0).reshape(3, 4)
    f = gt.from_torch(lambda x: x)
    for view in (x.T, x[::-1, ::2], np.broadcast_to(x[0], (2, 4)), np.asfortranarray(x)):
        result = f(view)
        assert (result == view).all() and not np.shares_memory(result, x)
        result[...] = 0  # the caller's
        assert (gt.jit(f)(view) == view).all()
    assert x.sum() == 66


def test_threads() -> None:
    slope = gt.grad(lambda x: np.sum(gt.from_torch(lambda x: x**3)(x)))
    inputs = [np.full(5, float(k)) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(inputs, pool.map(slope, inputs), strict=True):
            np.testing.assert_allclose(found, 3 * x**2)


def test_one_inside_the_other() -> None:
    f = gt.torch(lambda x: np.sum(gt.from_torch(torch.sin)(x) ** 2))
    x = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x,)) and torch.autograd.gradgradcheck(f, (x,))


def test_errors() -> None:
    x = np.ones(3)
    for transform in (lambda f: f, gt.jit):
        expect(
            gt.errors.ArgumentError,
            lambda t=transform: t(gt.from_torch(lambda x: x.sum().item()))(x),
            "returned a float",
            "tensors",
        )
        expect(
            gt.errors.DtypeError,
            lambda t=transform: t(gt.from_torch(lambda x: x.bfloat16()))(x),
            "bfloat16",
            "float32",
        )
        expect(
            gt.errors.ArgumentError,
            lambda t=transform: t(gt.from_torch(lambda x: x.to_sparse()))(x),
            "to_dense",
        )
        with pytest.raises(RuntimeError, match="inconsistent tensor size"):
            transform(gt.from_torch(torch.dot))(x, np.ones(4))
    expect(gt.errors.ArgumentError, lambda: gt.from_torch(3), "from_torch got an int")


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_a_function_of_numpy_has_no_derivative() -> None:
    slope = gt.grad(lambda x: np.sum(gt.from_torch(np.sin)(x)))
    expect(gt.errors.ArgumentError, lambda: slope(np.ones(3)), "sin converts tensors", "without NumPy")


def test_shapes_that_depend_on_numbers_are_refused_after_the_first_call() -> None:
    f = gt.jit(gt.from_torch(lambda x: x[x > 0]))
    assert f(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [1, 2, 3, 4, 5]
    x = np.array([5.0, -1.0, -1.0, -1.0, -1.0])
    expect(gt.errors.ArgumentError, lambda: f(x), r"shape (1,), and one of shape (5,)", "torch.where")
    slope = gt.grad(lambda x: np.sum(gt.from_torch(lambda x: x[x > 0])(x) ** 2))
    assert slope(x).tolist() == [10, 0, 0, 0, 0]


@pytest.mark.parametrize("x", [np.arange(3.0).astype(">f8"), np.zeros(3, "i1,f8")["f1"]])
def test_byte_orders_and_fields_of_records(x: Any) -> None:
    assert np.array_equal(gt.from_torch(lambda x: x + 1)(x), x + 1)


def test_gradients_refuse_other_shapes_than_those_of_the_first_call() -> None:
    kept = gt.from_torch(lambda x: x[x > 0])
    slope = gt.grad(lambda x: np.sum(kept(x) ** 2))
    np.testing.assert_allclose(slope(np.array([1.0, 2.0, -3.0])), [2.0, 4.0, 0.0])
    expect(gt.errors.ArgumentError, lambda: slope(np.array([1.0, -2.0, -3.0])), "shape", "torch.where")


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_a_function_of_numpy_has_no_tangent() -> None:
    def tangent() -> Any:
        return gt.jvp(lambda x: np.sum(gt.from_torch(np.sin)(x)), (np.ones(3),), (np.ones(3),))

    expect(gt.errors.ArgumentError, tangent, "sin converts tensors", "without NumPy")


@pytest.mark.parametrize(
    "array", [np.arange(6.0)[::-2], np.broadcast_to(2.0, (3,))], ids=["reversed", "read-only"]
)
def test_arrays_with_other_strides(array: Any) -> None:
    function = gt.from_torch(lambda x: (x**2).sum())
    assert function(array) == np.sum(array**2)
    np.testing.assert_allclose(gt.grad(function)(array), 2 * array)


def test_mistakes_in_mapped_functions_are_shown_as_the_library_says_them() -> None:
    expect(
        gt.errors.ConcretizationError,
        lambda: gt.vmap(gt.from_torch(lambda x: x @ torch.ones(4, dtype=torch.float64)))(np.ones((2, 3))),
        "were not found without the values",
        "the library says",
        "if that is a mistake",
    )
