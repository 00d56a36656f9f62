"""The system's C compiler, which makes object files and libraries of exported C."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gradtape.errors import ArgumentError

FLAGS: Final = (
    *("-std=gnu11", "-O3", "-fPIC"),
    *("-DGRADTAPE_VECTORS", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
)
"""Options that keep NumPy's results: none lets NaN, infinities, signed zeros or the order of other sums than the marked ones go."""

NATIVE: Final = (
    "-march=native",
    *["-mprefer-vector-width=512"][: platform.machine() in ("x86_64", "AMD64")],  # compilers prefer 256 bits
)

TARGETS: Final = ("generic", "native")


def find_tool(wanted: str | None, candidates: Sequence[str], variable: str) -> str:
    """Return the path of a program: the one that is asked for, that of an environment variable, or the first that is installed."""
    names = [wanted] if wanted else [os.environ[variable]] if os.environ.get(variable) else candidates
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise ArgumentError(
        f"no C compiler was found: {', '.join(names)}",
        why="the system's compiler builds libraries and object files from the exported C",
        remedy=f'install gcc or clang, set {variable}, or pass compiler="..."; a .c file needs none',
    )


def build(source: Path, target: Path, *, libraries: Sequence[str], cpu: str, compiler: str | None) -> None:
    """Compile a C file to an object file, a static library, or a shared library, by the suffix of `target`.

    Raises
    ------
    ArgumentError
        If there is no compiler, or it fails; with what it said.
    """
    cc = find_tool(compiler, ("cc", "gcc", "clang"), "CC")
    options = [*FLAGS, *(NATIVE if cpu == "native" else [])]
    if target.suffix == ".o":
        _run([cc, *options, "-c", str(source), "-o", str(target)])
    elif target.suffix == ".a":
        compiled = source.with_suffix(".o")
        _run([cc, *options, "-c", str(source), "-o", str(compiled)])
        target.unlink(missing_ok=True)
        _run([find_tool(None, ("ar", "llvm-ar"), "AR"), "rcs", str(target), str(compiled)])
    else:
        shared = "-dynamiclib" if sys.platform == "darwin" else "-shared"
        _run([cc, *options, shared, str(source), "-o", str(target), *libraries])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ArgumentError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        raise ArgumentError(
            f"{os.path.basename(command[0])} failed with status {done.returncode}",
            why=done.stderr.strip() or "it printed nothing",
            remedy="export a .c file, and compile it with the options that your system needs",
        )
