"""The operators: gradients, Jacobians, and products with them."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gradtape.api.custom.checkpoint import checkpoint as recomputed
from gradtape.api.transforms.functional import jacobian as jacobian_of
from gradtape.api.transforms.gradient import value_and_grad as gradient_of
from gradtape.autograd.core import make_jvp as _make_jvp
from gradtape.autograd.core import make_vjp as _make_vjp
from gradtape.autograd.core import vspace
from gradtape.autograd.vector_spaces import differentiable
from gradtape.autograd.wrap_util import unary_to_nary
from gradtape.errors import ArgumentError

make_vjp = unary_to_nary(_make_vjp)
make_jvp = unary_to_nary(_make_jvp)


def _compiled_value_and_grad(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what computes the value and the gradient of a function that is called again and again."""

    def number(x: Any) -> Any:
        ans = fun(x)
        _one(ans, "Grad")
        if vspace(ans).iscomplex:
            raise ArgumentError("use make_vjp for derivatives of complex results")
        return np.reshape(ans, ()), ans

    value_and_gradient = gradient_of(number, has_aux=True, convention="jax")

    def computed(x: Any) -> Any:
        (_, ans), gradient = value_and_gradient(differentiable(x))
        return ans, gradient

    return computed


def _compiled_grad(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    computed = _compiled_value_and_grad(fun)
    return lambda x: computed(x)[1]


@partial(unary_to_nary, compiled=_compiled_grad)
def grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the gradient of a function whose result is one real number.

    That of a real function of x + iy is df/dx - i df/dy.
    """
    vjp, ans = _make_vjp(fun, x)
    return vjp(_one(ans, "Grad"))


@unary_to_nary
def elementwise_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the sum of each column of the Jacobian, which is its diagonal where it is diagonal."""
    vjp, ans = _make_vjp(fun, x)
    if vspace(ans).iscomplex:
        raise TypeError("Elementwise_grad only applies to real-output functions.")
    return vjp(vspace(ans).ones())


@unary_to_nary
def deriv(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the derivative along ones, by forward mode."""
    return _make_jvp(fun, x)(vspace(differentiable(x)).ones())[1]


@unary_to_nary
def jacobian(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the Jacobian, of shape ``result.shape + argument.shape``."""
    return jacobian_of(fun, convention="jax")(differentiable(x))


@unary_to_nary
def holomorphic_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the complex derivative of a holomorphic function."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=3)
    return grad(lambda x: np.real(fun(x)))(x)


def grad_named(fun: Callable[..., Any], argname: str) -> Callable[..., Any]:
    """Return the gradient in an argument that is named."""
    gradient: Callable[..., Any] = grad(fun, inspect.getfullargspec(fun).args.index(argname))
    return gradient


@unary_to_nary
def hessian(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the Hessian, of shape ``result.shape + 2 * argument.shape``."""
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def make_hvp(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the pair of the function that multiplies by the Hessian at a point and the gradient there."""
    return _make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """Return the function of ``(*args, tensor, **kwargs)`` that multiplies the Hessian by a tensor."""
    fun_grad = grad(fun, argnum)

    def vector_dot_grad(*args: Any, **kwargs: Any) -> Any:
        args, vector = args[:-1], args[-1]
        return np.tensordot(fun_grad(*args, **kwargs), vector, np.ndim(vector))

    product: Callable[..., Any] = grad(vector_dot_grad, argnum)
    return product


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """Return the function of ``(*args, tensor, **kwargs)`` that multiplies the Jacobian by a tensor at its left."""

    def vector_dot_fun(*args: Any, **kwargs: Any) -> Any:
        args, vector = args[:-1], args[-1]
        return np.tensordot(vector, fun(*args, **kwargs), axes=np.ndim(vector))

    product: Callable[..., Any] = jacobian(vector_dot_fun, argnum)
    return product


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the function that pushes tangents forward, by two pullbacks."""
    vjp, y = _make_vjp(fun, x)
    vjp_vjp, _ = _make_vjp(vjp, vspace(y).zeros())
    return vjp_vjp


def _half_of_squares(x: Any) -> Any:
    return 1.0 / 2 * np.sum(x**2, axis=-1)


def make_ggnvp(
    f: Callable[..., Any], g: Callable[[Any], Any] = _half_of_squares, f_argnum: int = 0
) -> Callable[..., Any]:
    """Return the function that takes a point and returns what multiplies by the generalised Gauss-Newton matrix of ``g(f(x))`` there."""

    @unary_to_nary
    def _make_ggnvp(f: Callable[[Any], Any], x: Any) -> Any:
        f_vjp, f_x = _make_vjp(f, x)
        g_hvp, grad_g_x = _make_vjp(grad(g), f_x)
        f_jvp, _ = _make_vjp(f_vjp, vspace(grad_g_x).zeros())

        def ggnvp(v: Any) -> Any:
            return f_vjp(g_hvp(f_jvp(v)))

        return ggnvp

    product: Callable[..., Any] = _make_ggnvp(f, f_argnum)
    return product


@partial(unary_to_nary, compiled=_compiled_value_and_grad)
def value_and_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the value of a function whose result is one real number, and its gradient."""
    vjp, ans = _make_vjp(fun, x)
    return ans, vjp(_one(ans, "value_and_grad"))


@unary_to_nary
def grad_and_aux(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the gradient of the first of two results, and the second as it is."""
    vjp, (ans, aux) = _make_vjp(lambda x: tuple(fun(x)), x)
    return vjp((vspace(ans).ones(), vspace(aux).zeros())), aux


def multigrad_dict(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that takes the arguments of another one and returns the gradients in all of them, by name."""
    signature = inspect.signature(fun)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}

    def gradfun(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def newfun(arguments: dict[str, Any]) -> Any:
            positional: list[Any] = []
            by_name: dict[str, Any] = {}
            for name, value in arguments.items():
                if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                    positional.extend(value)
                elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
                    by_name.update(value)
                elif kinds[name] is inspect.Parameter.KEYWORD_ONLY:
                    by_name[name] = value
                else:
                    positional.append(value)
            return fun(*positional, **by_name)

        gradients = grad(newfun)(dict(bound.arguments))
        return OrderedDict((name, gradients[name]) for name in bound.arguments)

    return gradfun


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose intermediate values are computed again for its gradient rather than kept."""
    kept: Callable[..., Any] = recomputed(fun)
    return kept


def _one(ans: Any, operator: str) -> Any:
    """Return the cotangent one of a real number."""
    space = vspace(ans)
    if space.size != 1:
        raise TypeError(
            f"{operator} only applies to real scalar-output functions. Try jacobian, elementwise_grad or holomorphic_grad."
        )
    return space.ones()
