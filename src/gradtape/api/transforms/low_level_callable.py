"""Compiled functions as C functions, for SciPy."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.transforms.numba_type import trace_of
from gradtape.errors import ArgumentError
from gradtape.lower.llvm.writer import KERNEL
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.trace.source.sites import user_site

_DOUBLE: Final = ctypes.c_double
_DOUBLES: Final = ctypes.POINTER(ctypes.c_double)
_SIZE: Final = ctypes.c_ssize_t


class Callback(NamedTuple):
    """A signature of C functions that SciPy calls.

    Attributes
    ----------
    name : str
        By which users choose it.
    text : str
        The signature as SciPy writes it.
    pointer : type
        That of pointers to such functions.
    parameters : str
        Those of the LLVM function.
    """

    name: str
    text: str
    pointer: Any
    parameters: str

    @property
    def is_buffered(self) -> bool:
        """Whether the numbers come in one array and the results are written to another, with a status for a result."""
        return self.name != "quad"


_OF_ONE: Final = Callback("quad", "double (double)", ctypes.CFUNCTYPE(_DOUBLE, _DOUBLE), "double %x")
_OF_MANY: Final = Callback(
    "quad", "double (int, double *)", ctypes.CFUNCTYPE(_DOUBLE, ctypes.c_int, _DOUBLES), "i32 %n, ptr %x"
)
_BUFFERED: Final = (
    Callback(
        "generic_filter",
        "int (double *, npy_intp, double *, void *)",
        ctypes.CFUNCTYPE(ctypes.c_int, _DOUBLES, _SIZE, _DOUBLES, ctypes.c_void_p),
        "ptr %x, i64 %n, ptr %out, ptr %data",
    ),
    Callback(
        "generic_filter1d",
        "int (double *, npy_intp, double *, npy_intp, void *)",
        ctypes.CFUNCTYPE(ctypes.c_int, _DOUBLES, _SIZE, _DOUBLES, _SIZE, ctypes.c_void_p),
        "ptr %x, i64 %n, ptr %out, i64 %m, ptr %data",
    ),
    Callback(
        "geometric_transform",
        "int (npy_intp *, double *, int, int, void *)",
        ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(_SIZE), _DOUBLES, ctypes.c_int, ctypes.c_int, ctypes.c_void_p
        ),
        "ptr %places, ptr %out, i32 %n, i32 %m, ptr %data",
    ),
)
SIGNATURES: Final = {"quad": _OF_MANY} | {one.name: one for one in _BUFFERED}


def low_level_callable(function: Any, count: int | None, signature: str) -> Any:
    """Return a compiled function as a `scipy.LowLevelCallable`; see `Jitted.as_low_level_callable`."""
    from scipy import LowLevelCallable

    callback = SIGNATURES.get(signature)
    if callback is None:
        raise ArgumentError(
            f"as_low_level_callable: signature is {signature!r}",
            where=user_site(),
            remedy=f"choose one of {', '.join(map(repr, SIGNATURES))}",
        )
    if callback.is_buffered:
        if count is None:
            raise ArgumentError(
                f"as_low_level_callable: {signature} needs to know how many numbers the array has that SciPy passes",
                where=user_site(),
                remedy="give it as the first argument, f.as_low_level_callable(9, ...) for a filter of 3 by 3",
            )
        given: list[Any] = [np.ones(count)]
    else:
        count = _positional(function) if count is None else count
        callback = _OF_ONE if count == 1 else callback
        given = [1.0] * count
    found, hidden = trace_of(function, given)
    outputs = () if found is None else found.graph.outputs
    shapes = [value.shape for value in outputs if value.dtype == np.float64]
    if found is None or len(shapes) != len(outputs) or not _fits(callback, shapes):
        what = f"an array of {count} numbers" if callback.is_buffered else f"{count} numbers"
        wanted = (
            "one array of float64"
            if callback.name in ("generic_filter1d", "geometric_transform")
            else "one number of float64"
        )
        raise ArgumentError(
            f"{function.site.name} is not a function of {what} whose result is {wanted}", where=user_site()
        )
    kernel = found.program.kernel
    if kernel.loaded is None:
        raise ArgumentError(f"{function.site.name} has no machine code", where=user_site(), why=kernel.reason)
    captured = [*hidden, *[value.data for value in found.graph.constants() if value.data is not None]]
    constants = [array.ctypes.data for array in captured]
    text = _source(
        callback,
        count,
        sum([int(np.prod(shape)) for shape in shapes]),
        len(shapes),
        constants,
        kernel.workspace,
    )
    code = compile_object(text, "low_level")
    imports = {"gradtape_kernel": kernel.loaded.address(KERNEL)}
    loaded = LoadedModule(code, "call", imports=imports, needs=[found, *hidden])
    pointer = callback.pointer(loaded.address("call"))
    pointer.owner = loaded
    callable_: Any = LowLevelCallable
    return callable_(pointer, signature=callback.text)


def _positional(function: Any) -> int:
    parameters = inspect.signature(function.__wrapped__).parameters.values()
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def _fits(callback: Callback, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether results of these shapes can be those of a callback; coordinates may be numbers one by one."""
    if callback.name == "geometric_transform" and all(shape == () for shape in shapes):
        return bool(shapes)
    rank = 1 if callback.name in ("generic_filter1d", "geometric_transform") else 0
    return [len(shape) for shape in shapes] == [rank]


def _source(
    callback: Callback, count: int, size: int, outs: int, constants: list[int], workspace: int
) -> str:
    """Return the LLVM of the C function: the result is NaN, or the status 0, where the kernel fails.

    Parameters
    ----------
    callback : Callback
    count, size : int
        How many numbers there are, and how many results.
    outs : int
        How many results the kernel has: one array, or numbers.
    constants : list of int
        The addresses of captured arrays.
    workspace : int
        Bytes.
    """
    buffered = callback.is_buffered
    sources = ["%x"] if buffered else [f"%source{k}" for k in range(count)]
    lines = [
        "declare i32 @gradtape_kernel(ptr, ptr, ptr)",
        f"define {'i32' if buffered else 'double'} @call({callback.parameters}) {{",
        f"  %inputs = alloca [{len(sources) + len(constants)} x ptr]",
        f"  %outputs = alloca [{outs} x ptr]",
        f"  %workspace = alloca [{max(workspace, 8)} x i8], align 64",
    ]
    if buffered:
        lines += _checked(callback, count, size)
    if callback is _OF_ONE:
        lines += ["  %number = alloca double", "  store double %x, ptr %number"]
    if not buffered:
        lines.append("  %out = alloca double")
        base = "%number" if callback is _OF_ONE else "%x"
        lines += [f"  {name} = getelementptr double, ptr {base}, i64 {k}" for k, name in enumerate(sources)]
    for k, address in enumerate(constants):
        lines.append(f"  %constant{k} = inttoptr i64 {address} to ptr")
    for k, name in enumerate([*sources, *[f"%constant{k}" for k in range(len(constants))]]):
        lines += _entry("inputs", k, name)
    for k in range(outs):
        lines += [
            f"  %result{k} = getelementptr double, ptr %out, i64 {k}",
            *_entry("outputs", k, f"%result{k}"),
        ]
    lines += [
        "  %status = call i32 @gradtape_kernel(ptr %inputs, ptr %outputs, ptr %workspace)",
        "  %fine = icmp eq i32 %status, 0",
    ]
    if buffered:
        lines += ["  %answer = zext i1 %fine to i32", "  ret i32 %answer", "wrong:", "  ret i32 0", "}"]
    else:
        lines += [
            "  %made = load double, ptr %out",
            "  %answer = select i1 %fine, double %made, double 0x7FF8000000000000",
            "  ret double %answer",
            "}",
        ]
    return "\n".join(lines)


def _checked(callback: Callback, count: int, size: int) -> list[str]:
    """Return the check of the sizes that SciPy says, and what makes numbers of integer coordinates."""
    extent = "i32" if callback.name == "geometric_transform" else "i64"
    lines = [f"  %right.n = icmp eq {extent} %n, {count}"]
    right = "%right.n"
    if "%m" in callback.parameters:
        lines += [f"  %right.m = icmp eq {extent} %m, {size}", "  %right = and i1 %right.n, %right.m"]
        right = "%right"
    lines += [f"  br i1 {right}, label %go, label %wrong", "go:"]
    if callback.name == "geometric_transform":
        lines.append(f"  %x = alloca [{max(count, 1)} x double]")
        for k in range(count):
            lines += [
                f"  %place{k} = getelementptr i64, ptr %places, i64 {k}",
                f"  %integer{k} = load i64, ptr %place{k}",
                f"  %float{k} = sitofp i64 %integer{k} to double",
                f"  %coordinate{k} = getelementptr double, ptr %x, i64 {k}",
                f"  store double %float{k}, ptr %coordinate{k}",
            ]
    return lines


def _entry(table: str, number: int, pointer: str) -> list[str]:
    return [
        f"  %{table}{number} = getelementptr ptr, ptr %{table}, i64 {number}",
        f"  store ptr {pointer}, ptr %{table}{number}",
    ]
