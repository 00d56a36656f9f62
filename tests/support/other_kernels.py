"""Running graphs by kernels that other compilers have made: Numba, and that of the system, of C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Graph
from gradtape.lower.c.module import CFunction, CModule, Operand
from gradtape.lower.numba.compile import compile_by_numba
from gradtape.runtime.compile.loader import call_flat

_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


class NumbaFailed(ArithmeticError):
    """The kernel returned a status other than zero."""


class _Code:
    def __init__(self, address: int) -> None:
        self._call = _KERNEL(address)


def run_by_numba(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Return the outputs of a graph, by Numba."""
    kernel = compile_by_numba(graph)
    inputs = [
        np.ascontiguousarray(array, value.dtype) for array, value in zip(arrays, graph.inputs, strict=True)
    ]
    constants = [np.ascontiguousarray(value.data) for value in graph.constants()]
    outputs = [np.full(value.shape, 77, value.dtype) for value in graph.outputs]
    if call_flat(_Code(kernel.address), [*inputs, *constants], outputs):
        raise NumbaFailed(kernel.source)
    return outputs


COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wno-type-limits", "-Werror")

needs_c = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def run(command: Sequence[str]) -> str:
    """Run a command; return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class CKernels:
    """Graphs as functions of one C file."""

    def __init__(self, folder: Path, blas: bool = False, options: Sequence[str] = ("-O1",)) -> None:
        self.folder = folder
        self.options = options
        self.module = CModule(blas)
        self.graphs: list[tuple[Graph, int]] = []
        self._library: Any = None

    def add(self, graph: Graph) -> int:
        """Add a graph; return its number."""
        number = len(self.graphs)
        inputs = tuple([Operand(f"x{k}", f"x{k}", value) for k, value in enumerate(graph.inputs)])
        outputs = tuple([Operand(f"y{k}", f"y{k}", value) for k, value in enumerate(graph.outputs)])
        before = dict(self.module.parts)
        try:
            function = CFunction(f"kernel{number}", "a test", graph, inputs, outputs)
            workspace = self.module.add_function(function)
        except BaseException:
            self.module.parts = before
            raise
        self.graphs.append((graph, workspace))
        return number

    def library(self) -> Any:
        """Compile what has been added, with warnings as errors."""
        if self._library is None:
            source, made = self.folder / "kernels.c", self.folder / "kernels.so"
            heads = [text.split("\n{")[0] for text in self.module.parts.values() if text.startswith("int ")]
            text = self.module.text()
            declared = "".join([f"{head};\n" for head in heads])
            source.write_text(text.replace("\n\n", f"\n\n{declared}\n", 1))
            assert COMPILER is not None
            run([COMPILER, *WARNINGS, *self.options, "-shared", "-fPIC", str(source), "-o", str(made), "-lm"])
            self._library = ctypes.CDLL(str(made))
        return self._library

    def call(self, number: int, arrays: Sequence[Any]) -> tuple[int, list[np.ndarray[Any, Any]]]:
        """Return the status and the outputs."""
        graph, size = self.graphs[number]
        given = []
        for array, value in zip(arrays, graph.inputs, strict=True):
            flat = np.ascontiguousarray(array, value.dtype)
            is_number = not value.shape and value.dtype.kind != "c"
            kind: Any = np.ctypeslib.as_ctypes_type(value.dtype) if is_number else None
            given.append((kind(flat.item()) if is_number else flat.ctypes.data_as(ctypes.c_void_p), flat))
        outputs = [np.full(value.shape, 77, value.dtype) for value in graph.outputs]
        workspace = np.zeros(size + 64, np.uint8)
        made = [output.ctypes.data_as(ctypes.c_void_p) for output in outputs]
        function = getattr(self.library(), f"kernel{number}")
        status = function(*[one for one, _ in given], *made, workspace.ctypes.data_as(ctypes.c_void_p))
        return status, outputs
