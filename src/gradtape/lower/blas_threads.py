"""BLAS uses as many threads as a kernel may while a kernel calls it, and what it used before at other times.

OpenBLAS has one number for the whole process. Reading it takes a few nanoseconds and setting it 140, so that it is
set around the calls of kernels and SciPy's own calls are left alone.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..config import config, on_change
from .permanent import load_permanently

if TYPE_CHECKING:
    from .emit import FunctionEmitter

GET: Final = "gradtape.blas_get"
SET: Final = "gradtape.blas_set"
WANTED: Final = "gradtape.blas_threads"

_NAMES: Final = ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads")

_NOTHING: Final = """
define i32 @get() nounwind {
  ret i32 1
}
define void @set(i32 %threads) nounwind {
  ret void
}
"""


def with_threads(kernel: FunctionEmitter, number: int, alone: bool, calls: Callable[[], None]) -> None:
    """Append calls of BLAS between instructions that set its number of threads and set it back.

    Parameters
    ----------
    kernel : FunctionEmitter
        Of the kernel.
    number : int
        Of the place in the kernel, for labels.
    alone : bool
        Whether threads of the kernel make the calls, each of which BLAS is to serve by itself.
    calls : callable
        Appends what calls BLAS.
    """
    module = kernel.module
    module.declarations[f'declare i32 @"{GET}"()'] = None
    module.declarations[f'declare void @"{SET}"(i32)'] = None
    module.symbols.update(dict.fromkeys((GET, SET)))
    wanted = "1"
    if not alone:
        module.declarations[f'@"{WANTED}" = external global i32'] = None
        module.symbols[WANTED] = None
        wanted = kernel.bind(f'load i32, ptr @"{WANTED}"')
    former = kernel.bind(f'call i32 @"{GET}"()')
    same = kernel.bind(f"icmp eq i32 {former}, {wanted}")
    kernel.line(f"br i1 {same}, label %blas{number}, label %limit{number}")
    kernel.start_block(f"limit{number}")
    kernel.line(f'call void @"{SET}"(i32 {wanted})')
    kernel.line(f"br label %blas{number}")
    kernel.start_block(f"blas{number}")
    calls()
    kernel.line(f"br i1 {same}, label %after{number}, label %restore{number}")
    kernel.start_block(f"restore{number}")
    kernel.line(f'call void @"{SET}"(i32 {former})')
    kernel.line(f"br label %after{number}")
    kernel.start_block(f"after{number}")


@functools.cache
def blas_addresses(library: str) -> dict[str, int]:
    """Return the addresses by which kernels ask for and set the number of threads of the OpenBLAS behind a library.

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
        nothing = load_permanently(_NOTHING, ("get", "set"), "gradtape.no_openblas", effort=0)
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
