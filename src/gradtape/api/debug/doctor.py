"""What this installation is, and whether it works."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from gradtape.api.tape.tape import GradientTape
from gradtape.api.transforms.functional import hessian
from gradtape.api.transforms.gradient import grad
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.vmap import vmap
from gradtape.config import config
from gradtape.lower.target.host import cpu_name, vector_bytes, vector_functions
from gradtape.runtime.compile.cache import cache_info, cache_path
from gradtape.trace.patching.scipy import missing_names, replaced_names

PACKAGES: Final = ("gradtape", "numpy", "scipy", "numba", "llvmlite", "optree", "opt_einsum")


def doctor() -> bool:
    """Print versions and settings, and check that the installation works. Include the output in bug reports.

    The output has the versions of the packages, the processor and the features that gradtape uses, threads, the state of the disk
    cache, the settings, and the results of a few programs with known derivatives.

    Returns
    -------
    bool
        Whether all of them are correct.

    Examples
    --------
    >>> import gradtape as gt
    >>> healthy = gt.doctor()  # doctest: +ELLIPSIS
    Python:        ...
    >>> healthy
    True
    """
    cores = os.cpu_count() or 1
    rows = {
        "Python": f"{platform.python_version()} on {platform.platform()}",
        **{package: _version(package) for package in PACKAGES},
        **_machine(cores),
        "BLAS": f"{_blas('numpy')} (NumPy), {_blas('scipy')} (SciPy)",
        "threads": _threads(config.num_threads, cores),
        "cache folder": _folder(),
        "replaced names": _replaced_names(),
    }
    for name, value in rows.items():
        print(f"{name + ':':<14} {value}")
    print(f"\n{cache_info()}\n\n{config}\n")
    healthy = True
    for name, check in CHECKS.items():
        try:
            wrong = "" if check() else "gives a wrong result"
        except Exception as error:
            wrong = f"raises {type(error).__name__}: {error}"
        healthy = healthy and not wrong
        print(f"{name + ':':<14} {wrong or 'ok'}")
    return healthy


def _machine(cores: int) -> dict[str, str]:
    if find_spec("llvmlite") is None:
        return {"compiler": "none, since llvmlite is not installed: the NumPy interpreter runs everything"}
    width = vector_bytes()
    return {
        "CPU": f"{cpu_name()}, {cores} {'core' if cores == 1 else 'cores'}",
        "vectors": f"{8 * width} bits, {width // 8} doubles",
        "vector maths": ", ".join(vector_functions(width)) or "none: the scalar C library is used",
    }


X: Final = np.array([0.5, -1.0, 2.0])


def _energy(x: Any) -> Any:
    return np.sum(np.sin(x) ** 2)


def _is_compiled_right() -> bool:
    return bool(np.isclose(jit(_energy)(X), np.sum(np.sin(X) ** 2)))


def _is_gradient_right() -> bool:
    return np.allclose(grad(_energy)(X), np.sin(2 * X))


def _is_tape_right() -> bool:
    with GradientTape() as tape:
        x = tape.watch(X)
        y = _energy(x)
    return np.allclose(np.asarray(tape.gradient(y, x)), np.sin(2 * X))


def _is_hessian_right() -> bool:
    return np.allclose(hessian(_energy)(X), np.diag(2 * np.cos(2 * X)))


def _is_batch_right() -> bool:
    return np.allclose(vmap(lambda x: x * np.exp(x))(X), X * np.exp(X))


def _is_solver_right() -> bool:
    matrix = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
    slope = grad(lambda b: np.sum(np.linalg.solve(matrix, b)))(X)
    return np.allclose(slope, np.linalg.solve(matrix, np.ones(3)))


CHECKS: Final[dict[str, Callable[[], bool]]] = {
    "compiled code": _is_compiled_right,
    "gradient": _is_gradient_right,
    "tape": _is_tape_right,
    "Hessian": _is_hessian_right,
    "batch": _is_batch_right,
    "LAPACK": _is_solver_right,
}
"""Programs whose results are known."""


def _threads(threads: int, cores: int) -> str:
    """Return how many threads a kernel may use, and how to let it use all cores.

    Examples
    --------
    >>> _threads(1, 4)
    '1 per kernel, of 4 cores: gt.config.num_threads = 4 divides long loops among the cores'
    >>> _threads(4, 4)
    '4 per kernel, of 4 cores'
    """
    more = f": gt.config.num_threads = {cores} divides long loops among the cores" if threads < cores else ""
    return f"{threads} per kernel, of {cores} {'core' if cores == 1 else 'cores'}{more}"


def _version(package: str) -> str:
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    try:
        importlib.import_module(package)
    except Exception as error:  # a package that is half there, or made for another NumPy
        return f"{version}, but cannot be imported: {error}"
    return version


def _blas(name: str) -> str:
    module: Any = importlib.import_module(name)
    built = module.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{built['name']} {built['version']}"


def _replaced_names() -> str:
    """Return whether SciPy has the functions, many of them private, that gradtape replaces."""
    missing, count = missing_names(), len(replaced_names())
    if not missing:
        return f"all {count} exist"
    modules = sorted({name.partition(":")[0].rpartition(".")[0] or name for name in missing})
    return (
        f"{len(missing)} of {count} do not exist in the installed SciPy {_version('scipy')}, in {', '.join(modules)}: functions that call "
        "them may stop at a traced array"
    )


def _folder() -> str:
    folder = cache_path()
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(
            dir=nearest
        ):  # permissions do not tell of full disks, and not of files in the place of folders
            return str(folder)
    except OSError as error:
        return f"{folder}, where nothing can be written ({error.strerror}): set GRADTAPE_CACHE_DIR"
