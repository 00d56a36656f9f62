"""Routines in LLVM IR that a process loads once and keeps: llvmlite alone compiles them, in a few ms."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from .host import cpu_features, cpu_name, load_libraries

__all__ = ["load_permanently"]


def load_permanently(text: str, exported: Sequence[str], name: str, *, effort: int = 2) -> Any:
    """Compile and load a module that stays as long as the process, since others hold addresses in it.

    Parameters
    ----------
    text : str
        The module, without triple and layout.
    exported : sequence of str
        The names whose addresses are wanted.
    name : str
        What the library is called.
    effort : int, optional
        How hard LLVM optimises, 0 to 3.

    Returns
    -------
    mapping
        Addresses by name.
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
    for symbol in exported:
        builder.export_symbol(symbol)
    linker = llvm.create_lljit_compiler(machine, use_jit_link=os.name != "nt")
    tracker = builder.link(linker, name)
    for kept in (linker, tracker):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return tracker
