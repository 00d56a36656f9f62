"""What a call of gradtape's code costs inside other frameworks, and what theirs cost inside gradtape: ``python -m benchmarks.guests``.

PyTorch and JAX must be installed. Each time is the median of many calls for four elements, in microseconds, with one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import gradtape as gt

CALLS = 500


def microseconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call."""
    call()
    call()
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def in_jax() -> None:
    """Print the times of `gt.jax`."""
    x = jnp.arange(4.0)
    ours, theirs = gt.jax(lambda x: np.sum(np.sin(x) ** 2)), lambda x: jnp.sum(jnp.sin(x) ** 2)
    print(f"{'':22}{'gt.jax':>14}{'JAX':>12}")
    for name, transform in {
        "jit": jax.jit,
        "jit, grad": lambda f: jax.jit(jax.grad(f)),
        "jit, hessian": lambda f: jax.jit(jax.hessian(f)),
    }.items():
        own, other = transform(ours), transform(theirs)
        report(
            name, lambda own=own: own(x).block_until_ready(), lambda other=other: other(x).block_until_ready()
        )


class Smallest(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The same function by hand, as the smallest class that PyTorch takes."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.from_numpy(np.asarray(np.sum(np.sin(x.detach().numpy()) ** 2)))

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(np.sin(2 * x.detach().numpy()) * cotangent.numpy())


def in_torch() -> None:
    """Print the times of `gt.torch`."""
    x = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    ours = gt.torch(lambda x: np.sum(np.sin(x) ** 2))

    def backward(function: Callable[..., Any]) -> Callable[[], None]:
        def call() -> None:
            x.grad = None
            function(x).backward()

        return call

    def theirs(x: Any) -> Any:
        return torch.sum(torch.sin(x) ** 2)

    print(f"{'':22}{'gt.torch':>14}{'by hand':>12}{'PyTorch':>12}")
    report("forward", lambda: ours(x), lambda: Smallest.apply(x), lambda: theirs(x))
    report("forward and backward", backward(ours), backward(Smallest.apply), backward(theirs))


def from_others() -> None:
    """Print the times of `gt.from_jax` and `gt.from_torch` in a compiled gradient."""
    x = np.arange(4.0)
    print(f"{'':22}{'gt.from_jax':>14}{'gt.from_torch':>15}")
    functions = gt.from_jax(jnp.sin), gt.from_torch(torch.sin)
    values = [gt.jit(lambda x, f=f: np.sum(f(x) ** 2)) for f in functions]
    report("jit", *[lambda v=v: v(x) for v in values])
    report("grad", *[lambda g=g: g(x) for g in map(gt.grad, values)])


def linear_maps() -> None:
    """Print the times of a pullback that is called again and again, of the first `gt.vjp` of a function and of the next."""
    x = np.arange(4.0)

    def function(x: Any) -> Any:
        return np.sum(np.sin(x) ** 2)

    pullbacks = [gt.vjp(function, x)[1] for _ in range(2)]
    print(f"{'':22}{'first gt.vjp':>14}{'later':>12}")
    report("pullback", *[lambda p=p: p(1.0) for p in pullbacks])


def report(name: str, *calls: Callable[[], Any]) -> None:
    print(f"{name:22}" + "".join([f"{microseconds(call):13.1f}" for call in calls]), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    jax.config.update("jax_enable_x64", True)
    in_jax()
    in_torch()
    from_others()
    linear_maps()


if __name__ == "__main__":
    main()
