"""Keys of the disk cache: digests of everything that object code depends on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import numpy as np

from gradtape.lower.target.host import cpu_identity
from gradtape.runtime.compile.disk import remembered

__all__ = ["ABI_VERSION", "environment_identity", "object_key"]

ABI_VERSION: Final = 1
"""Raised whenever object code or its metadata change in a way that their readers must know."""

_PACKAGE: Final = os.path.dirname(sys.modules[__name__.partition(".")[0]].__file__ or "")
_COMPILER: Final = (
    "ir",
    "loops",
    "kinds",
    "ops",
    "procedures",
    "frontend",
    "passes",
    "transforms",
    "lower",
    "runtime",
)


def object_key(fingerprint: str | bytes, *options: object) -> str:
    """Return the name of a program's object code in the disk cache.

    Parameters
    ----------
    fingerprint : str or bytes
        What the program computes, and on which shapes and dtypes.
    *options : object
        Whatever else the code depends on; compared by `repr`.

    Returns
    -------
    str
        64 hexadecimal digits. They also depend on the CPU and on the versions of Python, NumPy, SciPy,
        llvmlite and gradtape.

    Examples
    --------
    >>> key = object_key("sin:float64[3]", "precise")
    >>> len(key), key == object_key("sin:float64[3]", "precise"), key == object_key("sin:float64[3]")
    (64, True, False)
    """
    data = fingerprint.encode() if isinstance(fingerprint, str) else fingerprint
    digest = hashlib.blake2b(environment_identity().encode(), digest_size=32)
    for part in (data, repr(options).encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@functools.cache
def environment_identity() -> str:
    """Everything outside a program that its object code depends on."""
    import llvmlite

    parts = (
        f"abi {ABI_VERSION}",
        f"python {sys.version} {getattr(sys, 'abiflags', '')} {object.__basicsize__} {tuple.__basicsize__}",
        f"numpy {np.__version__}",
        f"llvmlite {llvmlite.__version__}",
        f"scipy {_scipy_version()}",
        f"gradtape {_source_stamp()}",
        cpu_identity(),
    )
    return "\n".join(parts)


def _scipy_version() -> str:
    """Return SciPy's version, since object code calls its routines by name. Reading version.py is faster than importing SciPy."""
    found = importlib.util.find_spec("scipy")
    if found is None or found.origin is None:
        return ""
    with open(os.path.join(os.path.dirname(found.origin), "version.py"), "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def _source_stamp() -> str:
    """Return a digest of the compiler's files: code of another version of the compiler is never loaded.

    The digest is that of their contents, so that equal installations on two machines share their code. To read them takes 20 ms: the
    digest is kept in the cache folder under one of their sizes and times.
    """
    files = sorted(chain.from_iterable(_files_below(os.path.join(_PACKAGE, part)) for part in _COMPILER))
    stamp = hashlib.blake2b(repr((_PACKAGE, files)).encode(), digest_size=16)
    name = f"sources-{stamp.hexdigest()}"
    return remembered(name, lambda: _content([path for path, _, _ in files]).encode()).decode()


def _files_below(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path, size and time of the source files in a folder and those below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith((".py", ".ll")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
            elif "." not in name and name != "__pycache__":
                yield from _files_below(entry.path)


def _content(files: Iterable[str]) -> str:
    """Return a digest of the names and contents of files of the package."""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(repr((path[len(_PACKAGE) + 1 :], len(content))).encode())
        digest.update(content)
    return digest.hexdigest()
