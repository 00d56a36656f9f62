"""`gt.from_torch`: functions of PyTorch as operations, compared with the same code in NumPy; see `LibraryCases`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.library_cases import LibraryCases, same
from tests.support.ways import expect

torch = pytest.importorskip("torch", reason="wheels of PyTorch have gigabytes of CUDA: run by hand")
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
"""PyTorch warns of itself where it first computes in forward mode."""


class TestFunctionsOfPyTorch(LibraryCases):
    xp = torch
    wrap = staticmethod(gt.from_torch)


def test_parts_of_complex_numbers() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])
    f = gt.from_torch(lambda z: (z.conj(), torch.real(z), z.imag))
    same(gt.jit(f)(z), (z.conj(), z.real, z.imag))


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


def test_mistakes_in_mapped_functions_are_shown_as_the_library_says_them() -> None:
    expect(
        gt.errors.ConcretizationError,
        lambda: gt.vmap(gt.from_torch(lambda x: x @ torch.ones(4, dtype=torch.float64)))(np.ones((2, 3))),
        "could not be determined without values",
        "the library's error",
        "if that is a mistake",
    )
