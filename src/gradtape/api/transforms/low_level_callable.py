"""Compiled functions of numbers as C functions, for SciPy."""

from __future__ import annotations

import ctypes
import inspect
from typing import Any, Final

from gradtape.api.transforms.numba_type import trace_of
from gradtape.errors import ArgumentError
from gradtape.lower.llvm.writer import KERNEL
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.trace.source.sites import user_site

_OF_ONE: Final = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
_OF_MANY: Final = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int, ctypes.POINTER(ctypes.c_double))


def low_level_callable(function: Any, count: int | None) -> Any:
    """Return a compiled function of numbers as a `scipy.LowLevelCallable`; see `Jitted.as_low_level_callable`."""
    from scipy import LowLevelCallable

    count = _positional(function) if count is None else count
    found, hidden = trace_of(function, [1.0] * count)
    outputs = None if found is None else found.graph.outputs
    if found is None or outputs is None or [str(value.aval).rstrip("*") for value in outputs] != ["f64[]"]:
        raise ArgumentError(
            f"{function.site.name} is not a function of {count} numbers whose result is one number of float64",
            where=user_site(),
        )
    kernel = found.program.kernel
    if kernel.loaded is None:
        raise ArgumentError(f"{function.site.name} has no machine code", where=user_site(), why=kernel.reason)
    captured = [*hidden, *[value.data for value in found.graph.constants() if value.data is not None]]
    constants = [array.ctypes.data for array in captured]
    text = _source(count, constants, kernel.workspace)
    code = compile_object(text, "low_level")
    imports = {"gradtape_kernel": kernel.loaded.address(KERNEL)}
    loaded = LoadedModule(code, "call", imports=imports, needs=[found, *hidden])
    pointer: Any = (_OF_ONE if count == 1 else _OF_MANY)(loaded.address("call"))
    pointer.owner = loaded
    callable_: Any = LowLevelCallable
    return callable_(pointer)


def _positional(function: Any) -> int:
    parameters = inspect.signature(function.__wrapped__).parameters.values()
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def _source(count: int, constants: list[int], workspace: int) -> str:
    """Return the LLVM of ``double (double)`` or, for more numbers, ``double (int, double *)``; NaN where the kernel fails."""
    many = count > 1
    head = "i32 %n, ptr %x" if many else "double %x"
    size = count + len(constants)
    lines = [
        "declare i32 @gradtape_kernel(ptr, ptr, ptr)",
        f"define double @call({head}) {{",
        f"  %inputs = alloca [{size} x ptr]",
        "  %outputs = alloca [1 x ptr]",
        "  %result = alloca double",
        f"  %workspace = alloca [{max(workspace, 8)} x i8], align 64",
    ]
    if not many:
        lines += ["  %number = alloca double", "  store double %x, ptr %number"]
    for k in range(count):
        source = f"getelementptr double, ptr {'%x' if many else '%number'}, i64 {k}"
        lines += [f"  %source{k} = {source}", *_entry("inputs", k, f"%source{k}")]
    for k, address in enumerate(constants, count):
        lines += [f"  %source{k} = inttoptr i64 {address} to ptr", *_entry("inputs", k, f"%source{k}")]
    lines += _entry("outputs", 0, "%result")
    lines += [
        "  %status = call i32 @gradtape_kernel(ptr %inputs, ptr %outputs, ptr %workspace)",
        "  %fine = icmp eq i32 %status, 0",
        "  %made = load double, ptr %result",
        "  %answer = select i1 %fine, double %made, double 0x7FF8000000000000",
        "  ret double %answer",
        "}",
    ]
    return "\n".join(lines)


def _entry(table: str, number: int, pointer: str) -> list[str]:
    return [
        f"  %{table}{number} = getelementptr ptr, ptr %{table}, i64 {number}",
        f"  store ptr {pointer}, ptr %{table}{number}",
    ]
