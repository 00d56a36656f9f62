"""The number of BLAS threads while a kernel runs.

OpenBLAS has one setting for the whole process. Reading it takes a few nanoseconds and setting it 140, so it is set around kernels
only: SciPy's own calls use the user's setting.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from gradtape.config import config, on_change
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident

GET: Final = "gradtape.blas_get"
SET: Final = "gradtape.blas_set"
WANTED: Final = "gradtape.blas_threads"

_NAMES: Final = ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


@functools.cache
def blas_addresses(library: str) -> dict[str, int]:
    """Return the addresses of the functions that get and set the number of threads of a library's OpenBLAS, and of the number for kernels.

    Parameters
    ----------
    library : str
        A file that is linked with BLAS, such as SciPy's ``cython_blas``. Other kinds of BLAS keep to their own settings.

    Examples
    --------
    >>> from scipy.linalg import cython_blas
    >>> sorted(blas_addresses(cython_blas.__file__))
    ['gradtape.blas_get', 'gradtape.blas_set', 'gradtape.blas_threads']
    """
    threads = ctypes.c_int32(config.num_threads)

    def set_threads(count: int) -> None:
        threads.value = count

    on_change("num_threads", set_threads)
    found = _openblas(ctypes.CDLL(library))
    if not found:
        nothing = load_resident(
            read_ll(__package__, "no_openblas.ll"), "gradtape.no_openblas", ("get", "set")
        )
        found = {GET: nothing["get"], SET: nothing["set"]}
    return {**found, WANTED: ctypes.addressof(threads)}


def _openblas(library: ctypes.CDLL) -> dict[str, int]:
    for name in _NAMES:
        try:
            functions = {symbol: library[name.format(verb)] for symbol, verb in ((GET, "get"), (SET, "set"))}
        except AttributeError:
            continue
        return {
            symbol: ctypes.cast(function, ctypes.c_void_p).value or 0
            for symbol, function in functions.items()
        }
    return {}
