"""Resident routines: LLVM IR that is compiled by llvmlite alone, in a few milliseconds, and stays in memory."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gradtape.lower.target.host import cpu_identity, parse_module, python_function, target_machine
from gradtape.reference_counts import keep_for_ever

_PYTHON: Final = re.compile(r"^declare [^@]*@(_?Py\w+)\(", re.MULTILINE)


def python_functions(text: str) -> dict[str, int]:
    """Return the addresses of the functions of Python's C API that a module declares; 0 for what this Python does not export.

    Examples
    --------
    >>> list(python_functions("declare void @Py_IncRef(ptr)"))
    ['Py_IncRef']
    """
    return {name: python_function(name) for name in _PYTHON.findall(text)}


keepers: Final[list[Callable[[str, Callable[[], bytes]], bytes]]] = []
"""Called with a name and what computes object code; returns that of an earlier process. The disk cache enters itself here."""


def _object_code(text: str, machine: Any, effort: int) -> bytes:
    """Return the object code of a module, which an earlier process may have compiled: all modules together take 50 ms."""
    import llvmlite

    def compiled() -> bytes:
        code: bytes = machine.emit_object(parse_module(text, machine))
        return code

    identity = repr((text, effort, cpu_identity(), llvmlite.__version__)).encode()
    name = f"routines-{hashlib.blake2b(identity, digest_size=16).hexdigest()}"
    return keepers[0](name, compiled) if keepers else compiled()


def load_resident(
    text: str, name: str, exports: Sequence[str], imports: Mapping[str, int] | None = None, *, effort: int = 0
) -> dict[str, int]:
    """Compile and load routines that are never unmapped: threads may sleep in them.

    Parameters
    ----------
    text : str
        A module of LLVM IR. The functions of Python's C API that it declares are bound.
    name : str
        What the linker calls it.
    exports : sequence of str
        The symbols whose addresses are wanted.
    imports : mapping of str to int, optional
        Addresses of what else the module names and the process's libraries do not export.
    effort : int, optional
        How hard LLVM's code generator works, 0 to 3. The first process compiles the routines, and 1 takes four to six times as long as
        0: it is for what each call runs.

    Examples
    --------
    >>> load_resident("define i32 @seven() { ret i32 7 }", "seven", ["seven"])["seven"] != 0
    True
    """
    import llvmlite.binding as llvm

    machine = target_machine(opt=effort, reloc="pic", jit=True)
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(_object_code(text, machine, effort)).add_current_process()
    for symbol in exports:
        builder.export_symbol(symbol)
    for symbol, address in {**python_functions(text), **(imports or {})}.items():
        builder.import_symbol(symbol, address)
    linker = llvm.create_lljit_compiler(machine, use_jit_link=os.name != "nt")
    tracker: Any = builder.link(linker, name)
    keep_for_ever(linker)
    keep_for_ever(tracker)
    return {symbol: tracker[symbol] for symbol in exports}
