"""BLAS uses as many threads as a kernel may while a kernel calls it, and what it used before at other times.

OpenBLAS has one number for the whole process. Reading it takes a few nanoseconds and setting it 140, so that it is
set around the calls of kernels and SciPy's own calls are left alone.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gradtape.config import config, on_change
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident

if TYPE_CHECKING:
    from gradtape.lower.llvm.statements import FunctionEmitter, Module

GET: Final = "gradtape.blas_get"
SET: Final = "gradtape.blas_set"
WANTED: Final = "gradtape.blas_threads"

_NAMES: Final = ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


def with_threads(module: Module, name: str, body: str, head: str) -> str:
    """Return the function `name` that runs the function `body`, whose BLAS gets as many threads as a kernel.

    Parameters
    ----------
    module : Module
        Receives the declarations.
    name, body : str
        Functions of the same parameters.
    head : str
        What stands before the name in its definition, and the parameters.
    """
    _declare(module)
    before, parameters = head.split("@", 1)
    arguments = parameters.replace(" noalias", "")
    lines = [
        f"{before}@{name}{parameters} nounwind {{",
        "entry:",
        f'  %wanted = load i32, ptr @"{WANTED}"',
        f'  %former = call i32 @"{GET}"()',
        "  %same = icmp eq i32 %former, %wanted",
        "  br i1 %same, label %run, label %limit",
        "limit:",
        f'  call void @"{SET}"(i32 %wanted)',
        "  br label %run",
        "run:",
        f"  %status = call i32 @{body}{arguments}",
        "  br i1 %same, label %over, label %restore",
        "restore:",
        f'  call void @"{SET}"(i32 %former)',
        "  br label %over",
        "over:",
        "  ret i32 %status",
        "}",
    ]
    return "\n".join(lines)


@contextmanager
def one_thread_each(kernel: FunctionEmitter) -> Iterator[None]:
    """Let BLAS serve by itself each of the threads that share out blocks."""
    _declare(kernel.module)
    name = kernel.fresh()[1:]
    wanted = kernel.bind(f'load i32, ptr @"{WANTED}"')
    alone = kernel.bind(f"icmp eq i32 {wanted}, 1")
    kernel.line(f"br i1 {alone}, label %{name}.shared, label %{name}.several")
    kernel.start_block(f"{name}.several")
    kernel.line(f'call void @"{SET}"(i32 1)')
    kernel.line(f"br label %{name}.shared")
    kernel.start_block(f"{name}.shared")
    yield
    kernel.line(f"br i1 {alone}, label %{name}.after, label %{name}.again")
    kernel.start_block(f"{name}.again")
    kernel.line(f'call void @"{SET}"(i32 {wanted})')
    kernel.line(f"br label %{name}.after")
    kernel.start_block(f"{name}.after")


def _declare(module: Module) -> None:
    module.declarations[f'declare i32 @"{GET}"()'] = None
    module.declarations[f'declare void @"{SET}"(i32)'] = None
    module.declarations[f'@"{WANTED}" = external global i32'] = None
    module.symbols.update(dict.fromkeys((GET, SET, WANTED)))


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
