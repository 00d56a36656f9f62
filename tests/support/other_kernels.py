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


# C programs that call exported functions of varying lengths: arguments from standard input, results to standard output

C_TYPES = {"float64": "double", "float32": "float", "int64": "int64_t", "bool": "bool"}
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0")

MAIN = """
#include "{header}"
#include <stdio.h>
#include <stdlib.h>

static void read_all(void *to, size_t size, size_t count)
{{
    if (fread(to, size, count, stdin) != count)
        exit(9);
}}

int main(void)
{{
    int64_t calls, {lengths}, sizes[{operands}];
    read_all(&calls, 8, 1);
    for (int64_t call = 0; call < calls; call++) {{
{body}
    }}
    return 0;
}}
"""


def program_of(
    header: str, name: str, lengths: Sequence[str], given: Sequence[Any], made: Sequence[Any]
) -> str:
    """Return a program that calls a function as often as its input says, with memory of exactly the sizes that are needed.

    `given` and `made` are arrays of the types of the parameters and results; numbers of rank 0 are passed by value.
    """
    body = [f"read_all(&{length}, 8, 1);" for length in lengths]
    body.append("read_all(sizes, 8, sizeof sizes / 8);")
    arguments = list(lengths)
    for k, array in enumerate([*given, *made]):
        type_ = C_TYPES[array.dtype.name]
        body.append(f"{type_} *p{k} = malloc((size_t)sizes[{k}] * sizeof *p{k});")
        if k < len(given):
            body.append(f"read_all(p{k}, sizeof *p{k}, (size_t)sizes[{k}]);")
        arguments.append(f"*p{k}" if k < len(given) and not array.ndim else f"p{k}")
    body.append(f"int64_t workspace = {name}_workspace({', '.join(lengths)});")
    body.append("void *memory = workspace > 0 ? malloc((size_t)workspace) : NULL;")
    body.append(f"int64_t status = {name}({', '.join([*arguments, 'memory'])});")
    body.append("fwrite(&status, 8, 1, stdout);")
    results = range(len(given), len(given) + len(made))
    body += [f"fwrite(p{k}, sizeof *p{k}, status ? 0 : (size_t)sizes[{k}], stdout);" for k in results]
    body += [f"free(p{k});" for k in range(len(given) + len(made))]
    body.append("free(memory);")
    return MAIN.format(
        header=header,
        lengths=", ".join(lengths),
        operands=len(given) + len(made),
        body="\n".join([f"        {line}" for line in body]),
    )


def built(folder: Path, source: Path, program: str, options: Sequence[str] = SANITIZERS) -> Path:
    """Compile an exported file, with warnings as errors, and a program that calls it; return the program."""
    assert COMPILER is not None
    main, made = folder / "main.c", folder / "main"
    main.write_text(program)
    subprocess.run(
        [COMPILER, *WARNINGS, *options, str(main), str(source), "-o", str(made), "-lm"], check=True
    )
    return made


def called(program: Path, calls: Sequence[tuple[Sequence[int], Sequence[Any], Sequence[Any]]]) -> list[Any]:
    """Run a program for the lengths, arguments and results of each call; return the results, or the status of calls that failed."""
    data = np.int64(len(calls)).tobytes()
    for lengths, given, made in calls:
        sizes = [array.size for array in (*given, *made)]
        data += np.array([*lengths, *sizes], np.int64).tobytes() + b"".join(
            [array.tobytes() for array in given]
        )
    output = subprocess.run([str(program)], input=data, check=True, capture_output=True).stdout
    found: list[Any] = []
    at = 0
    for _, _, made in calls:
        (status,) = np.frombuffer(output, np.int64, 1, at)
        at += 8
        if status:
            found.append(int(status))
            continue
        results = []
        for array in made:
            results.append(np.frombuffer(output, array.dtype, array.size, at).reshape(array.shape))
            at += array.nbytes
        found.append(results)
    return found
