"""Functions of the C library, and their vector forms in libmvec."""

from __future__ import annotations

import functools
from typing import Final

from gradtape.config import config
from gradtape.kinds.elementwise import Libm
from gradtape.loops.ir import Dtype
from gradtape.lower.target.host import has_fused_multiply_add, has_symbol

INLINED: Final = ("exp", "tanh")
"""Functions of float64 that kernels have as instructions: `gradtape.lower.llvm.math`."""

INLINE: Final = "inline."
"""How the names of their vector forms begin, which a module defines."""


def c_name(name: str, dtype: Dtype) -> str:
    """Return the C function for a dtype: ``exp`` or ``expf``."""
    return name + "f" if dtype.char == "f" else name


@functools.cache
def vector_variants(body: Libm, single: bool) -> tuple[tuple[int, str], ...]:
    """Return the vector forms of a C function that this machine can run: lanes and symbol, the widest
    first."""
    name = body.name + "f" if single else body.name
    found = []
    for letter, lanes in _isa():
        width = lanes * 2 if single else lanes
        symbol = f"_ZGV{letter}N{width}{'v' * body.arity}_{name}"
        if has_symbol(symbol):
            found.append((width, symbol))
    return tuple(found)


@functools.cache
def inline_variants(body: Libm, single: bool) -> tuple[tuple[int, str], ...]:
    """Return the vector forms of a C function that kernels define: lanes and symbol, the widest first."""
    if single or body.name not in INLINED or not has_fused_multiply_add():
        return ()
    return tuple((lanes, f"{INLINE}{body.name}.v{lanes}") for _, lanes in _isa())


def vector_attribute(
    body: Libm, dtype: Dtype, *, inlines: bool = True
) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Return LLVM's attribute that lets its vectoriser call the vector forms, and these; empty without any.

    With `inlines` they are those that kernels define, where there are some.

    Examples
    --------
    >>> import numpy as np
    >>> vector_attribute(Libm("no_such_function"), np.dtype(float))
    ('', ())
    """
    if config.precise_math:
        return "", ()
    single = dtype.char == "f"
    variants = (inlines and inline_variants(body, single)) or vector_variants(body, single)
    if not variants:
        return "", ()
    name = f"{'v' * body.arity}_{c_name(body.name, dtype)}"
    mangled = ",".join(f"_ZGV_LLVM_N{lanes}{name}({symbol})" for lanes, symbol in variants)
    return f'"vector-function-abi-variant"="{mangled}"', variants


@functools.cache
def vector_lanes() -> int:
    """Return how many float64 a vector register holds."""
    isa = _isa()
    return isa[0][1] if isa else 2


@functools.cache
def _isa() -> tuple[tuple[str, int], ...]:
    """Return the letters of the vector function ABI that this CPU can run, with their lanes of float64."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    if triple.startswith("aarch64"):
        return (("n", 2),)
    if not triple.startswith("x86_64"):
        return ()
    features = llvm.get_host_cpu_features()
    wide = (("e", 8),) if features.get("avx512f") else ()
    middle = (("d", 4),) if features.get("avx2") else ()
    return (*wide, *middle, ("b", 2))
