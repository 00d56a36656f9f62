"""The machine that kernels are compiled for: its CPU, its vector registers, its C library."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Final

__all__ = [
    "cpu_features",
    "cpu_identity",
    "cpu_name",
    "emit_object",
    "has_fused_multiply_add",
    "has_symbol",
    "load_libraries",
    "parse_module",
    "python_function",
    "target_machine",
    "vector_bytes",
    "vector_functions",
    "without_lock",
]


@functools.cache
def cpu_name() -> str:
    """LLVM's name of the host's CPU."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


@functools.cache
def cpu_features() -> str:
    """The host's instruction sets, with the full vector width even where LLVM's tuning prefers less."""
    import llvmlite.binding as llvm

    features = str(llvm.get_host_cpu_features().flatten())
    if llvm.get_process_triple().startswith("x86_64"):
        features += ",-prefer-256-bit,-prefer-128-bit"
    return features


def has_fused_multiply_add() -> bool:
    """Return whether the machine has fused multiply-add instructions."""
    features = cpu_features().split(",")
    return "+fma" in features or "+neon" in features


@functools.cache
def vector_bytes() -> int:
    """Width of the widest vector register that kernels use, in bytes.

    Examples
    --------
    >>> vector_bytes() in (16, 32, 64)
    True
    """
    features = cpu_features().split(",")
    if "+avx512f" in features:
        return 64
    return 32 if "+avx" in features else 16


@functools.cache
def cpu_identity() -> str:
    """Everything about the host that object code depends on: CPU, instruction sets, vector width, C library.

    Examples
    --------
    >>> cpu_identity().count("|")
    4
    """
    import llvmlite.binding as llvm

    vector_maths = "libmvec" if has_symbol("_ZGVbN2v_exp") or has_symbol("_ZGVnN2v_exp") else "scalar maths"
    width = f"{8 * vector_bytes()} bits"
    library = f"{_c_library()} {vector_maths}"
    return "|".join((llvm.get_process_triple(), cpu_name(), cpu_features(), width, library))


def _c_library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return "no glibc"


def target_machine(*, gathers: bool = True, **options: Any) -> Any:
    """Return LLVM's description of the host, with its CPU and instruction sets.

    Parameters
    ----------
    gathers : bool, optional
        Whether LLVM's vectorisers may use instructions that load from many addresses. Among the CPUs with wheels of llvmlite, only those
        of x86 have them for vectors of fixed length.
    **options
        Those of `create_target_machine`.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    load_libraries()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = cpu_features()
    if not gathers and llvm.get_process_triple().startswith("x86_64"):
        features += ",+prefer-no-gather"
    return target.create_target_machine(cpu=cpu_name(), features=features, **options)


def parse_module(text: str, machine: Any, context: Any = None) -> Any:
    """Return a module of LLVM IR for the host, verified."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text, context)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    return module


def without_lock(function: Any) -> Any:
    """Return a function of llvmlite's library without llvmlite's lock, which lets one thread at a time call any of them.

    It is for the two steps that take long and touch one module alone, whose context and target machine no other thread has.
    """
    return getattr(function, "_cfn", function)


def emit_object(machine: Any, module: Any) -> bytes:
    """Return the object code of a module; other threads may use llvmlite meanwhile."""
    from llvmlite.binding import ffi

    emit = without_lock(ffi.lib.LLVMPY_TargetMachineEmitToMemory)
    with ffi.OutputString() as message:
        buffer = emit(machine, module, 1, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        begin, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(begin, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def python_function(name: str) -> int:
    """Return the address of a function of Python's C API; 0 where this Python does not export it.

    Examples
    --------
    >>> python_function("Py_IncRef") != 0, python_function("Py_NoSuchFunction")
    (True, 0)
    """
    function = getattr(ctypes.pythonapi, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def load_libraries() -> None:
    """Make the C library's scalar and vector mathematics visible to the linker, where they exist."""
    import llvmlite.binding as llvm

    for library in ("libm.so.6", "libmvec.so.1"):
        try:
            llvm.load_library_permanently(library)
        except RuntimeError:
            continue


_VECTOR_PREFIXES: Final = {16: ("_ZGVbN2", "_ZGVnN2"), 32: ("_ZGVdN4",), 64: ("_ZGVeN8",)}
_VECTOR_NAMES: Final = (
    *(
        "exp",
        "exp2",
        "exp10",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
    ),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "cbrt"),
)


def vector_functions(width: int) -> tuple[str, ...]:
    """Names of the C functions that have a form for vectors of `width` bytes of float64.

    Examples
    --------
    >>> vector_functions(7)
    ()
    """
    prefixes = _VECTOR_PREFIXES.get(width, ())
    return tuple(
        name for name in _VECTOR_NAMES if any(has_symbol(f"{prefix}v_{name}") for prefix in prefixes)
    )


@functools.cache
def has_symbol(name: str) -> bool:
    """Whether compiled code may call the C function `name`, for instance a vector function of libmvec.

    Examples
    --------
    >>> has_symbol("exp"), has_symbol("no_such_function")
    (True, False)
    """
    import llvmlite.binding as llvm

    load_libraries()
    return llvm.address_of_symbol(name) is not None
