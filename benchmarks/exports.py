"""Exported C against the kernels of gradtape: time of the value and the gradient, each as a ratio in one run.

python benchmarks/exports.py
python benchmarks/exports.py --varying  # and C for varying lengths: the longest extent is a length of the call
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import works

import gradtape as gt
from gradtape.trees import flatten, tree_map

WORKS: Final = (
    ("rosen", "1000000"),
    ("bs", "1000000"),
    ("lse", "1000000"),
    ("gmm", "d10_K25_n1000"),
    ("mlp", "784_256_10_n128"),
)
ROUNDS: Final = 15


def exported(
    function: Any, arguments: Any, folder: Path, target: str, varying: bool = False
) -> Callable[[], int]:
    """Return the call of a function in a shared library."""
    longest = max(extent for leaf in flatten(arguments)[0] for extent in np.shape(leaf))
    specs = tree_map(lambda leaf: with_length(leaf, longest), arguments) if varying else arguments
    library, header = gt.export(
        function, *specs, path=folder / f"{target}{varying}.so", name="work", target=target
    )
    loaded = ctypes.CDLL(str(library))
    call = partial(loaded.work, ctypes.c_int64(longest)) if varying else loaded.work
    if varying:
        loaded.work_workspace.restype = ctypes.c_int64
        size = loaded.work_workspace(ctypes.c_int64(longest))
    else:
        size = int(header.read_text().split("#define WORK_WORKSPACE ")[1].split()[0])
    leaves = [np.ascontiguousarray(leaf) for leaf in flatten(arguments)[0]]
    results = [np.array(leaf) for leaf in flatten(function(*arguments))[0]]
    workspace = np.zeros(size + 8, np.uint8)
    pointer = ctypes.c_void_p
    given = [leaf.ctypes.data_as(pointer) if leaf.ndim else np.ctypeslib.as_ctypes(leaf) for leaf in leaves]
    made = [result.ctypes.data_as(pointer) for result in results]
    kept = (leaves, results)
    return lambda: call(*given, *made, workspace.ctypes.data_as(pointer)) + 0 * len(kept)


def with_length(leaf: Any, longest: int) -> Any:
    """Return the description of an array whose longest extent varies."""
    array = np.asarray(leaf)
    return gt.spec([gt.Dim("n") if extent == longest else extent for extent in array.shape], array.dtype)


def main() -> None:
    """Print a table of the least times, which the load of a machine spares."""
    varying = "--varying" in sys.argv
    columns = ["work", "jitted, ms", "C, generic", "C, native", *["C, native, any length"][:varying]]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name, size in WORKS:
        work = works.work(name, size)
        function = gt.value_and_grad(work.function(), argnums=work.argnums)
        with tempfile.TemporaryDirectory() as folder:
            calls: list[Callable[[], Any]] = [partial(function, *work.arguments)]
            calls += [exported(function, work.arguments, Path(folder), t) for t in ("generic", "native")]
            if varying:
                calls.append(exported(function, work.arguments, Path(folder), "native", varying=True))
            seconds: list[list[float]] = [[] for _ in calls]
            for _ in range(ROUNDS):
                for call, times in zip(calls, seconds, strict=True):
                    begin = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - begin)
        own, *others = map(min, seconds)
        ratios = " | ".join([f"{other / own:.2f}" for other in others])
        print(f"| {name} {size} | {own * 1e3:.2f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
