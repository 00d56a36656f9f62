"""A gradtape backend for pymanopt (gradients, Hessian-vector products), and the leading subspace of a covariance matrix.

    pip install gradtape pymanopt
    python examples/pymanopt_backend.py
    python examples/pymanopt_backend.py --size 200 --rank 5

Cost functions are NumPy code with any number of arguments, real or complex.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

try:
    import pymanopt
except ImportError:
    sys.exit("This example needs pymanopt: pip install pymanopt")
from pymanopt.autodiff import backend_decorator_factory
from pymanopt.autodiff.backends._backend import Backend


class GradtapeBackend(Backend):
    """The derivatives of cost functions that pymanopt needs."""

    def __init__(self) -> None:
        super().__init__("gradtape")

    @staticmethod
    def is_available() -> bool:
        return True

    def prepare_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return gt.jit(function)

    def generate_gradient_operator(
        self, function: Callable[..., Any], num_arguments: int
    ) -> Callable[..., Any]:
        """The gradient with respect to the argument, or the gradients with respect to all of several."""
        return gt.grad(function, argnums=0 if num_arguments == 1 else tuple(range(num_arguments)))

    def generate_hessian_operator(
        self, function: Callable[..., Any], num_arguments: int
    ) -> Callable[..., Any]:
        """The product of the Hessian and the directions, which come after the arguments."""
        gradient = self.generate_gradient_operator(function, num_arguments)

        @gt.jit
        def product(*args: Any) -> Any:
            return gt.jvp(gradient, args[:num_arguments], args[num_arguments:])[1]

        return product


compiled = backend_decorator_factory(GradtapeBackend)
"""``@compiled(manifold)`` turns a function into a cost function for pymanopt's problems."""


def leading_subspace(covariance: np.ndarray, rank: int) -> np.ndarray:
    """An orthonormal basis of the subspace that holds the most variance."""
    manifold = pymanopt.manifolds.Grassmann(len(covariance), rank)

    @compiled(manifold)
    def cost(basis: np.ndarray) -> float:
        return -np.trace(basis.T @ covariance @ basis)

    optimizer = pymanopt.optimizers.TrustRegions(verbosity=0)
    start = np.linalg.qr(np.random.default_rng(1).standard_normal((len(covariance), rank)))[0]
    return optimizer.run(pymanopt.Problem(manifold, cost), initial_point=start).point


def main() -> None:
    parser = argparse.ArgumentParser(description="Optimise on manifolds with derivatives from gradtape.")
    parser.add_argument("--size", type=int, default=50, help="of the covariance matrix (50)")
    parser.add_argument("--rank", type=int, default=3, help="of the subspace (3)")
    options = parser.parse_args()
    if not 1 <= options.rank <= options.size:
        parser.error("--rank must be at least 1 and at most --size")

    samples = np.random.default_rng(0).standard_normal((4 * options.size, options.size))
    covariance = np.cov(samples * np.linspace(1.0, 3.0, options.size), rowvar=False)
    basis = leading_subspace(covariance, options.rank)
    known = np.linalg.eigvalsh(covariance)[-options.rank :].sum()
    print(f"variance in the subspace {np.trace(basis.T @ covariance @ basis):.10f}")
    print(f"sum of the eigenvalues   {known:.10f}")


if __name__ == "__main__":
    main()
