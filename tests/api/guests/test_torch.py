"""`gt.torch`: NumPy code as a function of PyTorch's tensors, compared with PyTorch's own derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.functions import FUNCTIONS
from tests.api.guests.pages import check_programs
from tests.support.ways import expect

torch = pytest.importorskip("torch", reason="wheels of PyTorch have gigabytes of CUDA: run by hand")
func = pytest.importorskip("torch.func", reason="comes with PyTorch")
autograd = torch.autograd
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
"""PyTorch warns of itself where it first computes in forward mode."""


@pytest.fixture
def x() -> Any:
    return torch.tensor([0.3, -1.2, 0.7, 2.1], dtype=torch.float64, requires_grad=True)


@pytest.fixture
def y() -> Any:
    return torch.tensor([1.1, 0.4, -0.6, 0.9], dtype=torch.float64, requires_grad=True)


def several(x: Any, y: Any) -> Any:
    return np.sum(np.sin(x) * y**2), np.outer(x, y)


def filtered(x: Any, rate: Any) -> Any:
    """Compute a recurrence in a loop with writes."""
    levels = np.zeros(x.shape[0])
    level = 0.0
    for i in range(x.shape[0]):
        level = level + rate[0] * (x[i] - level)
        levels[i] = level if level > 0 else level * rate[1]
    return levels


@pytest.mark.parametrize("function", [several, filtered])
def test_first_and_second_derivatives_in_both_modes(function: Any, x: Any, y: Any) -> None:
    f = gt.torch(function)
    assert autograd.gradcheck(f, (x, y), check_forward_ad=True)
    assert autograd.gradgradcheck(f, (x, y), check_fwd_over_rev=True)


@pytest.mark.parametrize(("function", "point"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_loops_and_solvers(function: Any, point: Any) -> None:
    f = gt.torch(function)
    tensors = [torch.tensor(array, requires_grad=True) for array in point]
    assert autograd.gradcheck(f, tensors, check_forward_ad=True)
    assert autograd.gradgradcheck(f, tensors, check_fwd_over_rev=True, atol=1e-4)


def test_third_derivatives(x: Any) -> None:
    f = gt.torch(lambda x: np.sum(np.sin(x)))
    derivative = f(x)
    for _ in range(3):
        (derivative,) = autograd.grad(derivative.sum(), x, create_graph=True)
    assert torch.allclose(derivative, -torch.cos(x))


def test_complex_gradients_follow_pytorch() -> None:
    z = torch.tensor([1 + 2j, -0.5 + 0.3j], dtype=torch.complex128, requires_grad=True)
    f = gt.torch(lambda z: (z**2, np.sum(np.abs(z) ** 2), np.real(z)))
    assert autograd.gradcheck(f, (z,), check_forward_ad=True)
    assert autograd.gradgradcheck(f, (z,))
    (mine,) = autograd.grad(gt.torch(lambda z: np.sum(np.abs(z) ** 2))(z), z)
    assert torch.allclose(mine, 2 * z)


def test_containers_numbers_and_integers_pass_through(x: Any, y: Any) -> None:
    def loss(params: Any, power: int, *, mode: str = "sum", rows: Any = None) -> Any:
        total = getattr(np, mode)(params["w"] ** power)
        return {
            "total": total,
            "rows": params["w"][rows] * params["b"],
            "order": np.argsort(params["b"]),
            "mode": mode,
        }

    f = gt.torch(loss)
    rows = torch.tensor([1, 2, 3, 0])
    result = f({"w": x, "b": y}, 3, mode="mean", rows=rows)
    assert result["mode"] == "mean"
    assert result["order"].dtype == torch.int64 and not result["order"].requires_grad
    assert torch.equal(result["order"], torch.argsort(y))
    (result["total"] + result["rows"].sum()).backward()
    assert torch.allclose(x.grad, 3 * x**2 / 4 + y[torch.argsort(rows)])
    assert torch.allclose(y.grad, x[rows])
    for mode, power in (("sum", 2), ("mean", 2), ("sum", 3)):
        assert torch.allclose(
            f({"w": x, "b": y}, power, mode=mode, rows=rows)["total"], getattr(torch, mode)(x**power)
        )
    assert torch.equal(f({"b": y, "w": x}, 3, rows=rows)["rows"], x[rows] * y)


def test_only_what_requires_a_gradient_gets_one(x: Any, y: Any) -> None:
    f = gt.torch(several)
    f(x, y.detach())[0].backward()
    assert y.grad is None and torch.allclose(x.grad, torch.cos(x) * y**2)
    with torch.no_grad():
        assert not f(x, y)[0].requires_grad
    assert not f(x.detach(), y.detach())[1].requires_grad


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_dtypes_stay(dtype: str) -> None:
    t = torch.ones(3, dtype=getattr(torch, dtype), requires_grad=True)
    y = gt.torch(lambda t: t * t)(t)
    y.abs().sum().backward()
    assert y.dtype == t.grad.dtype == t.dtype


def test_vmap_over_and_under_derivatives(x: Any, y: Any) -> None:
    f = gt.torch(several)
    x, y = x.detach(), y.detach()
    many = torch.stack([x, 2 * x, -x])
    assert torch.allclose(func.vmap(f, (0, None))(many, y)[1], torch.einsum("ni,j->nij", many, y))
    slopes = func.vmap(func.grad(lambda a, b: f(a, b)[0]), (0, None))(many, y)
    assert torch.allclose(slopes, torch.cos(many) * y**2)
    inner = func.grad(lambda a: func.vmap(lambda b: f(b, y)[0])(a).sum())(many)
    assert torch.allclose(inner, slopes)
    twice = func.vmap(func.vmap(lambda a, b: f(a, b)[0], (None, 0)), (0, None))(many, many)
    assert torch.allclose(twice, torch.einsum("ni,mi->nm", torch.sin(many), many**2))


def test_transforms_of_functions(x: Any) -> None:
    f = gt.torch(lambda x: np.sum(np.exp(x) * x))
    x = x.detach()
    expected = torch.diag(torch.exp(x) * (2 + x))
    assert torch.allclose(func.hessian(f)(x), expected)
    assert torch.allclose(func.jacrev(func.jacrev(f))(x), expected)
    assert torch.allclose(func.jvp(func.grad(f), (x,), (torch.ones_like(x),))[1], expected.sum(0))


def test_memory_is_shared_and_results_are_the_callers(x: Any) -> None:
    x = x.detach()
    f = gt.torch(lambda x: (x, x[::-1], np.broadcast_to(np.sum(x), (3,))))
    results = f(x)
    for result in results:
        result.add_(1)  # nobody else holds it
    assert torch.equal(f(x)[0], x) and torch.equal(f(x)[1], x.flip(0))
    assert torch.equal(gt.torch(lambda x: x * 2)(x[::2]), 2 * x[::2])
    assert torch.allclose(
        gt.torch(np.sum)(torch.ones(3, dtype=torch.complex128).conj().imag), torch.zeros(()).double()
    )


def test_changed_operands_are_noticed(x: Any) -> None:
    leaf = x.clone()
    loss = gt.torch(lambda x: np.sum(x**3))(leaf)
    with torch.no_grad():
        leaf.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_modules_train_through_it() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 3).double()
    f = gt.torch(lambda h, params: np.sum((h @ params["weight"]) ** 2))
    weight = torch.ones(3, dtype=torch.float64)
    inputs = torch.randn(5, 2, dtype=torch.float64)
    losses = []
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
    for _ in range(5):
        optimiser.zero_grad()
        loss = f(layer(inputs), {"weight": weight})
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_what_numpy_cannot_read_is_an_error() -> None:
    f = gt.torch(np.sum)
    expect(
        gt.errors.DtypeError, lambda: f(torch.ones(3, dtype=torch.bfloat16)), "torch.bfloat16", "x.double()"
    )
    expect(gt.errors.ArgumentError, lambda: f(torch.ones(3).to_sparse()), "torch.sparse_coo", "x.to_dense()")
    expect(gt.errors.ArgumentError, lambda: f(torch.ones(3, device="meta")), "'meta'", "x.cpu()")


def test_not_a_function() -> None:
    expect(gt.errors.ArgumentError, lambda: gt.torch(3), "torch got an int")


def test_the_page_prints_what_it_says() -> None:
    check_programs("torch")
