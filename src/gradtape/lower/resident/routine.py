"""Routines that kernels call and that stay in memory: LLVM IR, compiled by llvmlite alone in 2 ms."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gradtape.lower.target.host import cpu_features, cpu_name, load_libraries


def load_resident(
    text: str, name: str, exports: Sequence[str], imports: Mapping[str, int] | None = None, *, effort: int = 2
) -> Mapping[str, int]:
    """Compile and load routines that are never unmapped: threads may sleep in them.

    Parameters
    ----------
    text : str
        A module of LLVM IR.
    name : str
        What the linker calls it.
    exports : sequence of str
        The symbols whose addresses are wanted.
    imports : mapping of str to int, optional
        Addresses of what the module names and the process's libraries do not export.
    effort : int, optional
        How hard LLVM optimises, 0 to 3.

    Examples
    --------
    >>> load_resident("define i32 @seven() { ret i32 7 }", "seven", ["seven"])["seven"] != 0
    True
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    load_libraries()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=cpu_name(), features=cpu_features(), opt=effort, reloc="pic", jit=True
    )
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module)).add_current_process()
    for symbol in exports:
        builder.export_symbol(symbol)
    for symbol, address in (imports or {}).items():
        builder.import_symbol(symbol, address)
    linker = llvm.create_lljit_compiler(machine, use_jit_link=os.name != "nt")
    tracker: Any = builder.link(linker, name)
    for kept in (linker, tracker):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return {symbol: tracker[symbol] for symbol in exports}
