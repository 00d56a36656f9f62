"""Extension modules of SciPy, loaded without importing their packages."""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from gradtape.locks import Rank, new_lock

_loading: Final = new_lock(Rank.EXTENSIONS)
"""Held while a module is loaded past Python's own locks of imports."""


_WITHOUT_PACKAGE: Final = frozenset(("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack"))
"""Modules that need nothing of their packages. Importing `scipy.linalg` for its BLAS takes 0.1 to 0.3 s and 27 MB, the module alone
0.03 s and 4 MB; `scipy.special.cython_special` imports its package itself."""


@functools.cache
def compiled_module(name: str) -> ModuleType:
    """Return an extension module of SciPy; its package is imported only if the module is not found beside SciPy's own files.

    Examples
    --------
    >>> "dgemm" in compiled_module("scipy.linalg.cython_blas").__pyx_capi__
    True
    """
    package = name.rpartition(".")[0]
    if name in _WITHOUT_PACKAGE and package not in sys.modules:
        with _loading:
            try:
                found = _load_without_package(name)
            except (ImportError, OSError):
                found = None
        if found is not None:
            return found
    return importlib.import_module(name)


def _load_without_package(name: str) -> ModuleType | None:
    top, *folders, last = name.split(".")
    for root in importlib.import_module(top).__path__:
        for suffix in EXTENSION_SUFFIXES:
            file = Path(root, *folders, last + suffix)
            spec = spec_from_file_location(name, file) if file.is_file() else None
            if spec is not None and spec.loader is not None:
                module = module_from_spec(spec)
                spec.loader.exec_module(module)
                # It has entered itself, but its package does not know it. An import finds the same module again, and tells the package.
                sys.modules.pop(name, None)
                return module
    return None
