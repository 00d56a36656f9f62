"""An operator as a primitive of JAX: one primitive, for the function and for its derivatives of all orders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import dtypes
from jax.core import ShapedArray
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from gradtape.api.export.specs import Spec
from gradtape.api.guests.constants import MOST_OPERATORS, key_of_all
from gradtape.api.guests.flat import NUMPYS_KINDS, Flat, dtype_of
from gradtape.api.guests.operator import Operator, OurTransforms, is_inexact
from gradtape.errors import DtypeError
from gradtape.lru import LRU
from gradtape.trace.source.sites import user_site


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX's arrays for NumPy code."""
    operators: LRU[Any, tuple[Flat, Operator]] = LRU(lambda: MOST_OPERATORS)
    transforms = OurTransforms("jax")

    @functools.wraps(function)
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        constants = {position: leaf for position, leaf in enumerate(leaves) if not is_operand(leaf)}
        key = structure, dtypes.canonicalize_dtype(np.float64), key_of_all(constants)
        flat_and_operator = operators.get(key)
        if flat_and_operator is None:
            flat = Flat(function, jax.tree.flatten, jax.tree.unflatten, structure, constants, in_dtype_of_jax)
            flat_and_operator = operators[key] = flat, Operator(flat, transforms)
        flat, operator = flat_and_operator
        operands = [leaf for leaf in leaves if is_operand(leaf)]
        results = primitive.bind(*operands, operator=operator)
        return flat.nested(results, map(jax.typeof, operands))

    return of_arrays


def is_operand(leaf: Any) -> bool:
    """Return whether an argument is an operand of the primitive. Other objects are constants: what `range` takes, texts, options."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | float | complex)


def in_dtype_of_jax(result: Any) -> Any:
    """Return a result with 32 bits where JAX has no numbers of 64."""
    dtype = dtype_of(result)
    canonical = dtypes.canonicalize_dtype(dtype)
    if dtype == canonical:
        return result
    return result.astype(canonical) if hasattr(result, "astype") else canonical.type(result)


def types_of_results(operator: Operator, *operands: ShapedArray) -> tuple[ShapedArray, ...]:
    """Return the types of an operator's results, found by a trace."""
    types = operator.types_of_results(list(map(spec_of, operands)))
    return tuple([ShapedArray(type_.shape, dtypes.canonicalize_dtype(type_.dtype)) for type_ in types])


def spec_of(operand: ShapedArray) -> Spec:
    dtype = operand.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in NUMPYS_KINDS:
        raise DtypeError(
            f"gt.jax: an array has the dtype {dtype}, which NumPy does not have",
            where=user_site(),
            remedy="f(x.astype(np.float32)), or f(jax.random.key_data(key)); gradients are converted back",
        )
    return Spec(operand.shape, dtype)


def computed(*operands: Any, operator: Operator) -> list[Any]:
    """Return the results of an operator outside programs of XLA, whose caches would keep it."""
    types = [spec_of(jax.typeof(operand)) for operand in operands]
    results = operator.program(
        *[np.asarray(o, type_.dtype) for o, type_ in zip(operands, types, strict=True)]
    )
    return list(map(jax.numpy.asarray, results))


def written(operator: Operator, context: Any, outs: Sequence[Any], *operands: Any) -> None:
    """Compute the results of an operator into the memory that XLA has for them."""
    results = operator.program(*map(np.asarray, operands))
    for out, result in zip(outs, results, strict=True):
        np.asarray(out)[...] = result


def returned(operator: Operator, types: Sequence[Any], *operands: Any) -> tuple[Any, ...]:
    """Return the results of an operator, from operands that were brought from another device."""
    results = operator.program(*map(np.asarray, operands))
    return tuple(
        [np.asarray(result, result_type.dtype) for result, result_type in zip(results, types, strict=True)]
    )


def in_place(*operands: Any, operator: Operator) -> Any:
    """Call an operator from a program of XLA on the CPU, which hands over its memory."""
    types = types_of_results(operator, *map(jax.typeof, operands))
    return buffer_callback(functools.partial(written, operator), types)(*operands)


def from_device(*operands: Any, operator: Operator) -> Any:
    """Call an operator from a program of XLA on any device."""
    types = types_of_results(operator, *map(jax.typeof, operands))
    return jax.pure_callback(functools.partial(returned, operator, types), types, *operands)


def pushed(primals: Sequence[Any], tangents: Sequence[Any], *, operator: Operator) -> tuple[Any, Any]:
    """Return the results and their tangents, which are linear: JAX transposes them."""
    results = primitive.bind(*primals, operator=operator)
    moving = [
        position
        for position, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
        if is_inexact(primal) and not isinstance(tangent, ad.Zero)
    ]
    pushforward = operator.pushforward(tuple(moving), len(primals))
    directions = [tangents[position] for position in moving]
    following = iter(primitive.bind(*primals, *directions, operator=pushforward))
    return results, [
        next(following) if is_inexact(result) else ad.Zero(jax.typeof(result).to_tangent_aval())
        for result in results
    ]


def transposed(cotangents: Sequence[Any], *operands: Any, operator: Operator) -> list[Any]:
    """Return the cotangents of the operands in which the operator is linear: the same at every point, zeros for one."""
    unknown = tuple([position for position, o in enumerate(operands) if ad.is_undefined_primal(o)])
    filled_operands = [ad.zeros_like_aval(o.aval) if ad.is_undefined_primal(o) else o for o in operands]
    dense_cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    pullback = operator.pullback(unknown, len(operands))
    pulled = iter(primitive.bind(*filled_operands, *filter(is_inexact, dense_cotangents), operator=pullback))
    return [next(pulled) if ad.is_undefined_primal(o) else None for o in operands]


def mapped(operands: Sequence[Any], axes: Sequence[int | None], *, operator: Operator) -> tuple[Any, Any]:
    """Return the results for all elements along an axis."""
    results = primitive.bind(*operands, operator=operator.mapped(tuple(axes)))
    return results, [0] * len(results)


primitive = Primitive("gradtape")
primitive.multiple_results = True
primitive.def_impl(computed)
primitive.def_abstract_eval(lambda *operands, operator: types_of_results(operator, *operands))
ad.primitive_jvps[primitive] = pushed
ad.primitive_transposes[primitive] = transposed
batching.primitive_batchers[primitive] = mapped
mlir.register_lowering(primitive, mlir.lower_fun(from_device, multiple_results=True))
mlir.register_lowering(primitive, mlir.lower_fun(in_place, multiple_results=True), platform="cpu")
