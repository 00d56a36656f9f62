"""What a call of gradtape's code costs inside other frameworks, and what theirs cost inside gradtape: ``python -m benchmarks.guests``.

Frameworks that are not installed are left out. Each time is the median of many calls for four elements, in microseconds, with one thread.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

CALLS = 500

FRAMEWORKS = [name for name in ("jax", "torch", "casadi", "pytensor") if importlib.util.find_spec(name)]


def energy(x: Any) -> Any:
    return np.sum(np.sin(x) ** 2)


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
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x = jnp.arange(4.0)
    ours, theirs = gt.jax(energy), lambda x: jnp.sum(jnp.sin(x) ** 2)
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


def in_torch() -> None:
    """Print the times of `gt.torch`."""
    import torch

    torch.set_num_threads(1)

    class Smallest(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
        """The same function by hand, as the smallest class that PyTorch takes."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.from_numpy(np.asarray(energy(x.detach().numpy())))

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            return torch.from_numpy(np.sin(2 * x.detach().numpy()) * cotangent.numpy())

    x = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    ours = gt.torch(energy)

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


def in_casadi() -> None:
    """Print the times of `gt.casadi`."""
    import casadi as ca

    x, point = ca.MX.sym("x", 4), ca.DM([0, 1, 2, 3])
    ours, theirs = gt.casadi(energy)(x), ca.sum1(ca.sin(x) ** 2)
    print(f"{'':22}{'gt.casadi':>14}{'CasADi':>12}")
    for name, derived in {
        "value": lambda y: y,
        "gradient": lambda y: ca.gradient(y, x),
        "Hessian": lambda y: ca.hessian(y, x)[0],
    }.items():
        calls = [ca.Function("f", [x], [derived(y)]) for y in (ours, theirs)]
        report(name, *[lambda f=f: f(point) for f in calls])


def in_pytensor() -> None:
    """Print the times of `gt.pytensor`, with graphs that PyTensor runs in C."""
    import pytensor
    import pytensor.tensor as pt

    x, point = pt.vector("x"), np.arange(4.0)
    ours, theirs = gt.pytensor(energy)(x), pt.sum(pt.sin(x) ** 2)
    print(f"{'':22}{'gt.pytensor':>14}{'PyTensor':>12}")
    for name, derived in {"value": lambda y: y, "gradient": lambda y: pytensor.grad(y, x)}.items():
        calls = [pytensor.function([x], derived(y), mode="FAST_RUN") for y in (ours, theirs)]
        report(name, *[lambda f=f: f(point) for f in calls])


def from_others() -> None:
    """Print the times of `gt.from_jax` and `gt.from_torch`, beside the library's own calls: one, and two for a gradient."""
    x = np.arange(4.0)
    made = {}
    if "jax" in FRAMEWORKS:
        import jax
        import jax.numpy as jnp

        forward, reverse = jax.jit(jnp.sin), jax.jit(lambda x, c: jax.vjp(jnp.sin, x)[1](c))
        made["gt.from_jax"] = (
            gt.from_jax(jnp.sin),
            lambda: np.asarray(forward(x)),
            lambda: np.asarray(reverse(x, x)[0]),
        )
    if "torch" in FRAMEWORKS:
        import torch

        def by_graph() -> Any:
            point = torch.from_numpy(x).requires_grad_()
            return torch.autograd.grad(torch.sin(point), point, torch.from_numpy(x))[0].numpy()

        made["gt.from_torch"] = (
            gt.from_torch(torch.sin),
            lambda: torch.sin(torch.from_numpy(x)).numpy(),
            by_graph,
        )
    for name, (function, once, back) in made.items():
        value = gt.jit(lambda x, f=function: np.sum(f(x) ** 2))
        print(f"{'':22}{name:>14}{'its calls':>12}")
        slope = gt.grad(value)
        report("jit", lambda v=value: v(x), once)
        report("grad", lambda g=slope: g(x), lambda once=once, back=back: (once(), back()))


def linear_maps() -> None:
    """Print the times of a pullback that is called again and again, of the first `gt.vjp` of a function and of the next."""
    x = np.arange(4.0)

    pullbacks = [gt.vjp(energy, x)[1] for _ in range(2)]
    print(f"{'':22}{'first gt.vjp':>14}{'later':>12}")
    report("pullback", *[lambda p=p: p(1.0) for p in pullbacks])


def report(name: str, *calls: Callable[[], Any]) -> None:
    print(f"{name:22}" + "".join([f"{microseconds(call):13.1f}" for call in calls]), flush=True)


def main() -> None:
    for framework, times in {
        "jax": in_jax,
        "torch": in_torch,
        "casadi": in_casadi,
        "pytensor": in_pytensor,
    }.items():
        if framework in FRAMEWORKS:
            times()
    from_others()
    linear_maps()


if __name__ == "__main__":
    main()
