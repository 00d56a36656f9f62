"""Machine code: LLVM IR in, object code out, callable addresses back.

Compiling is done by Numba's code generator (its target machine, its pass pipeline) and needs Numba; loading
is done by llvmlite alone, so a process that finds its kernels in the disk cache never imports Numba. The same
loader serves fresh object code and cached object code.

Numba's just-in-time engine never frees a module. Its ahead-of-time library type hands the object code over
instead, and ORC's JITLink loads it: dropping a :class:`LoadedModule` unmaps its machine code.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ..lower.host import cpu_features, cpu_identity, cpu_name, has_symbol, vector_bytes
from .loader import LoadedModule, call_flat, linkers

__all__ = [
    "LoadedModule",
    "assembly",
    "call_flat",
    "compile_object",
    "cpu_identity",
    "has_symbol",
    "optimised_llvm",
    "vector_bytes",
]

T = TypeVar("T")

SLP_BLOCK_LIMIT: Final = 300
"""Instructions in the largest basic block above which the SLP vectoriser is off.

Measured on eight interleaved chains: 9 ms at 100 instructions, 28 at 200, 70 at 400, 300 at 800; without SLP
5, 7, 12, 21.
"""

LEAN_MODULE_LIMIT: Final = 6000
"""Instructions in a module above which loops are vectorised, but neither interleaved nor unrolled.

Measured on 50 small loop nests: 200 ms with both, 95 ms with neither.
"""


_import_lock: Final = threading.RLock()


class _Pipeline(NamedTuple):
    """What distinguishes one way of optimising a module from another."""

    opt: int
    slp: bool
    lean: bool


def compile_object(ir_text: str, name: str, *, opt: int = 3) -> bytes:
    """Compile a module of LLVM IR to optimised object code for the host CPU.

    Parameters
    ----------
    ir_text : str
        A complete module; its target triple and data layout are set here.
    name : str
        The name that Numba's code generator gives the library, for its diagnostics.
    opt : int, optional
        LLVM's optimisation level, 0 to 3.

    Returns
    -------
    bytes
        Position independent object code, to be loaded by :class:`LoadedModule`.

    Notes
    -----
    In the main thread the work is done by a helper thread, so that Ctrl-C is answered at once and never
    leaves a lock of Numba's or llvmlite's half taken.

    Examples
    --------
    >>> code = compile_object("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }", "seven")
    >>> call_flat(LoadedModule(code), [], [])
    7
    """
    return _away_from_signals(lambda: _emit(ir_text, name, opt, _library_object))


def optimised_llvm(ir_text: str, *, opt: int = 3) -> str:
    """Return the module as LLVM IR after every optimisation that :func:`compile_object` applies.

    Examples
    --------
    >>> text = optimised_llvm("define i32 @kernel(ptr %i, ptr %o, ptr %w) { %x = add i32 3, 4 ret i32 %x }")
    >>> "ret i32 7" in text
    True
    """
    return _away_from_signals(lambda: _emit(ir_text, "inspection", opt, _library_llvm))


def assembly(ir_text: str, *, opt: int = 3) -> str:
    """Return the host's assembly for the module, optimised as by :func:`compile_object`.

    Examples
    --------
    >>> "kernel:" in assembly("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }")
    True
    """
    return _away_from_signals(lambda: _emit(ir_text, "inspection", opt, _library_assembly))


def _library_object(library: Any) -> bytes:
    code: bytes = library.emit_native_object()
    return code


def _library_llvm(library: Any) -> str:
    text: str = library.get_llvm_str()
    return text


def _library_assembly(library: Any) -> str:
    text: str = library.get_asm_str()
    return text


def _emit(ir_text: str, name: str, opt: int, product: Callable[[Any], T]) -> T:
    import llvmlite.binding as llvm

    with _numba_lock():
        codegen = _codegen(_choose_pipeline(ir_text, opt))
        try:
            library = codegen.create_library(name)
            module = llvm.parse_assembly(ir_text)
            module.triple = llvm.get_process_triple()
            module.data_layout = str(codegen.target_data)
            module.verify()
            library.add_llvm_module(module)
            library.finalize()
            return product(library)
        finally:
            codegen.dispose_pass_managers()


def _numba_lock() -> Any:
    """Import Numba and return its compiler lock.

    Two threads must not import Numba at once: Python lets them see modules of an import cycle half made.
    """
    with _import_lock:
        import numba.core.codegen
        import numba.core.compiler_lock

        return numba.core.compiler_lock.global_compiler_lock


_paused: Final = contextlib.ExitStack()


def _pause() -> None:
    """Wait for the compilers and linkers of other threads, in the order in which they take their locks.

    A forked process would inherit the locks, and nobody to release them.
    """
    _paused.enter_context(_import_lock)
    _paused.enter_context(linkers.lock)
    numba_lock = sys.modules.get("numba.core.compiler_lock")
    if numba_lock is not None:
        _paused.enter_context(numba_lock.global_compiler_lock)
    llvmlite_lock = sys.modules.get("llvmlite.binding.ffi")
    if llvmlite_lock is not None:
        _paused.enter_context(llvmlite_lock.lib._lock)


if os.name == "posix":
    os.register_at_fork(before=_pause, after_in_parent=_paused.close, after_in_child=_paused.close)


def _choose_pipeline(ir_text: str, opt: int) -> _Pipeline:
    total = largest = block = 0
    for line in ir_text.splitlines():
        if line.startswith("  "):
            block += 1
        elif block:
            total += block
            largest = max(largest, block)
            block = 0
    return _Pipeline(opt, slp=largest <= SLP_BLOCK_LIMIT, lean=total > LEAN_MODULE_LIMIT)


@functools.cache
def _codegen(pipeline: _Pipeline) -> Any:
    return _codegen_class()(pipeline)


@functools.cache
def _codegen_class() -> Any:
    """Define the code generator at the first compile, because Numba is imported only then."""
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi
    from llvmlite.binding.newpassmanagers import NewPassManager
    from numba.core import codegen

    base: Any = codegen.CPUCodegen

    class HostCodegen(base):  # type: ignore[misc]
        """Numba's code generator, tuned to this very CPU and returning object code."""

        _library_class = codegen.AOTCodeLibrary

        def __init__(self, pipeline: _Pipeline) -> None:
            self._pipeline = pipeline
            self._pass_managers: list[Any] = []
            super().__init__("gradtape")

        def _customize_tm_features(self) -> str:
            return cpu_features()

        def _customize_tm_options(self, options: dict[str, Any]) -> None:
            options.update(cpu=cpu_name(), features=cpu_features(), opt=3, reloc="pic", codemodel="default")

        def _add_module(self, module: Any) -> None:
            """Keep the module out of the engine, which would never free it."""

        def _pass_builder(
            self, *, opt: int | None = None, loop_vectorize: bool = True, slp_vectorize: bool = True
        ) -> Any:
            options = llvm.create_pipeline_tuning_options()
            options.speed_level = self._pipeline.opt if opt is None else opt
            options.loop_vectorization = loop_vectorize
            options.slp_vectorization = slp_vectorize and self._pipeline.slp
            options.loop_interleaving = options.loop_unrolling = not self._pipeline.lean
            return llvm.create_pass_builder(self._tm, options)

        def _module_pass_manager(self, **kwargs: Any) -> Any:
            manager, builder = super()._module_pass_manager(**kwargs)
            self._pass_managers.append(manager)
            return manager, builder

        def _function_pass_manager(self, **kwargs: Any) -> Any:
            manager, builder = super()._function_pass_manager(**kwargs)
            self._pass_managers.append(manager)
            return manager, builder

        def dispose_pass_managers(self) -> None:
            """Free 140 KB of pass managers per compilation: a base class hides llvmlite's own disposal."""
            for manager in self._pass_managers:
                if type(manager)._dispose is ffi.ObjectRef._dispose:
                    NewPassManager._dispose(manager)
                    manager.detach()
            self._pass_managers.clear()

    return HostCodegen


def _away_from_signals(work: Callable[[], T]) -> T:
    """Run `work` where a signal handler cannot interrupt it between two steps.

    Python raises `KeyboardInterrupt` in the main thread only, so a thread of its own always runs to its end.
    A main thread that already holds Numba's compiler lock works in place, since a second thread would wait
    for that lock for ever.
    """
    numba_lock = sys.modules.get("numba.core.compiler_lock")
    holds_lock = numba_lock is not None and numba_lock.global_compiler_lock.is_locked()
    if holds_lock or threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=run, name="gradtape-compile")
    worker.start()
    worker.join()
    if failures:
        raise failures[0]
    return results[0]
