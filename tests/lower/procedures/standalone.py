"""Procedures as Python functions of arrays, compiled alone: for tests and measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.lower.llvm.function import KernelModule
from gradtape.lower.llvm.module import EMITTERS
from gradtape.lower.llvm.writer import KERNEL
from gradtape.lower.pipeline import lower_body
from gradtape.lower.procedures.emit import emit_procedure
from gradtape.lower.resident.interrupts import INTERRUPTED, raise_interruption
from gradtape.lower.target.symbols import addresses_of
from gradtape.procedures.ir import Procedure
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.loader import LoadedModule, call_flat


class ProcedureFailed(ArithmeticError):
    """A check of a compiled procedure failed, or there was no memory."""


def procedure_module(procedure: Procedure) -> KernelModule:
    """Return a module whose kernel is a procedure."""
    module = KernelModule(EMITTERS, lambda function, nest: False, lower_body)
    symbol = emit_procedure(module, procedure)
    lines, pointers = [], []
    for table, count in (("inputs", len(procedure.parameters)), ("outputs", len(procedure.results))):
        for number in range(count):
            name = f"%{table}{number}"
            lines.append(f"  {name}.at = getelementptr inbounds ptr, ptr %{table}, i64 {number}")
            lines.append(f"  {name} = load ptr, ptr {name}.at")
            pointers.append(f"ptr {name}")
    lines.append(f"  %status = call i32 @{symbol}({', '.join(pointers)})")
    head = f"define i32 @{KERNEL}(ptr %inputs, ptr %outputs, ptr %workspace) nounwind {{"
    module.functions.append("\n".join([head, *lines, "  ret i32 %status", "}"]))
    return module


def compile_procedure(procedure: Procedure) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """Return a function of arrays that runs a procedure as machine code and returns its results as arrays.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("total")
    >>> x = build.array("x", (3,))
    >>> total = build.variable("s", 0.0)
    >>> with build.loop(3) as i:
    ...     build.assign(total, build.read(total) + build.load(x, i))
    >>> compile_procedure(build.finish([build.read(total)]))(np.arange(3.0))
    [array(3.)]
    """
    module = procedure_module(procedure)
    code = compile_object(module.text(), KERNEL, unroll=module.unrolls)
    loaded = LoadedModule(code, KERNEL, imports=addresses_of(module.symbols))

    def run(*arrays: Any) -> list[np.ndarray[Any, Any]]:
        given = [
            np.ascontiguousarray(array, type_.dtype).reshape(type_.shape)
            for array, type_ in zip(arrays, procedure.types, strict=True)
        ]
        results = [np.empty(type_.shape, type_.dtype) for type_ in procedure.result_types]
        status = call_flat(loaded, given, results)
        if status == INTERRUPTED:
            raise_interruption()
        if status:
            raise ProcedureFailed(f"the procedure {procedure.name} failed")
        return results

    return run
