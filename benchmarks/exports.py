"""Exported C against the kernels of gradtape: time of the value and the gradient, each as a ratio in one run.

python benchmarks/exports.py
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import works

import gradtape as gt
from gradtape.trees import flatten

WORKS: Final = (
    ("rosen", "1000000"),
    ("bs", "1000000"),
    ("lse", "1000000"),
    ("gmm", "d10_K25_n1000"),
    ("mlp", "784_256_10_n128"),
)
ROUNDS: Final = 15


def exported(function: Any, arguments: Any, folder: Path, target: str) -> Callable[[], int]:
    """Return the call of a function in a shared library."""
    library, header = gt.export(
        function, *arguments, path=folder / f"{target}.so", name="work", target=target
    )
    call = ctypes.CDLL(str(library)).work
    size = int(header.read_text().split("#define WORK_WORKSPACE ")[1].split()[0])
    leaves = [np.ascontiguousarray(leaf) for leaf in flatten(arguments)[0]]
    results = [np.array(leaf) for leaf in flatten(function(*arguments))[0]]
    workspace = np.zeros(size + 8, np.uint8)
    pointer = ctypes.c_void_p
    given = [leaf.ctypes.data_as(pointer) if leaf.ndim else np.ctypeslib.as_ctypes(leaf) for leaf in leaves]
    made = [result.ctypes.data_as(pointer) for result in results]
    kept = (leaves, results)
    return lambda: call(*given, *made, workspace.ctypes.data_as(pointer)) + 0 * len(kept)


def main() -> None:
    """Print a table of the least times, which the load of a machine spares."""
    print("| work | jitted, ms | C, generic | C, native |\n|---|---|---|---|")
    for name, size in WORKS:
        work = works.work(name, size)
        function = gt.value_and_grad(work.function(), argnums=work.argnums)
        with tempfile.TemporaryDirectory() as folder:
            calls: list[Callable[[], Any]] = [partial(function, *work.arguments)]
            calls += [exported(function, work.arguments, Path(folder), t) for t in ("generic", "native")]
            seconds: list[list[float]] = [[], [], []]
            for _ in range(ROUNDS):
                for call, times in zip(calls, seconds, strict=True):
                    begin = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - begin)
        own, generic, native = map(min, seconds)
        print(f"| {name} {size} | {own * 1e3:.2f} | {generic / own:.2f} | {native / own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
