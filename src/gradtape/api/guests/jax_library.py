"""JAX's transforms, and its arrays as NumPy's: functions of JAX as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from gradtape.api.guests.flat import NUMPYS_KINDS, dtype_of
from gradtape.api.guests.foreign import ForeignCode, Library, wrapped
from gradtape.errors import DtypeError
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, aval
from gradtape.trace.source.sites import user_site

JAXS_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""The dtypes of NumPy that JAX has."""


def wrapped_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays for a function of JAX's arrays."""
    return wrapped(function, Jax())


class Jax(Library):
    """JAX with numbers of 64 bits, as NumPy has them."""

    caller = "gt.from_jax"
    results = "arrays of JAX"

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)

    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        return jax.vjp(function, *primals)

    def jvp(
        self, function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        return jax.jvp(function, primals, tangents)

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        return jax.vmap(function, axes)

    def is_inexact(self, leaf: Any) -> bool:
        return dtype_of(leaf).kind in "fc"

    def flatten(self, tree: Any) -> tuple[list[Any], Any, Any]:
        leaves, structure = jax.tree.flatten(tree)
        return leaves, structure, structure

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(structure, leaves)

    def is_operand(self, leaf: Any) -> bool:
        if isinstance(leaf, jax.Array) and not isinstance(leaf.dtype, np.dtype):  # keys of random numbers
            return False
        return isinstance(leaf, jax.Array | np.ndarray | np.generic | float | complex)

    def is_result(self, leaf: Any) -> bool:
        return isinstance(leaf, jax.Array | np.ndarray | np.generic | float | complex | int)

    def running(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = jax.enable_x64(True)
        return context

    def given(self, array: NDArray, weak: bool) -> Any:
        return array.item() if weak else array

    def taken(self, result: Any) -> NDArray:
        return np.asarray(result)

    def is_conversion(self, error: Exception) -> bool:
        return isinstance(error, jax.errors.TracerArrayConversionError)

    def types(self, flat: ForeignCode, operands: Sequence[Aval]) -> Sequence[Aval]:
        for type_ in operands:
            if type_.dtype.name not in JAXS_DTYPES:
                raise DtypeError(
                    f"{self.caller}: an argument has the dtype {type_.dtype}, which JAX does not have",
                    where=user_site(),
                    remedy="pass x.astype(float)",
                )
        examples = [
            type_.dtype.type().item() if type_.weak else jax.ShapeDtypeStruct(type_.shape, type_.dtype)
            for type_ in operands
        ]
        results = jax.eval_shape(flat, *examples)
        return self.types_of(flat, results)

    def types_of(self, flat: ForeignCode, results: Sequence[Any]) -> Sequence[Aval]:
        for result in results:
            # Keys of random numbers have a dtype of JAX's own.
            dtype = getattr(result, "dtype", None) or dtype_of(result)
            if not isinstance(dtype, np.dtype) or dtype.kind not in NUMPYS_KINDS:
                raise DtypeError(
                    f"{self.caller}: {flat.name} returned an array of {dtype}, which NumPy does not have",
                    where=user_site(),
                    remedy="return x.astype(jnp.float32), or jax.random.key_data(key)",
                )
        return [aval(np.shape(result), dtype_of(result)) for result in results]
