"""The compiler: LLVM IR to optimised object code.

Compiling is done with llvmlite, Numba's LLVM, with the target machine and the optimisations of Numba's code generator. Numba itself
is not imported: that takes longer than compiling a small program. The same loader serves fresh object code and cached object code,
and dropping a :class:`LoadedModule` unmaps its machine code.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from gradtape.locks import Rank, new_lock
from gradtape.lower.target.host import (
    cpu_identity,
    emit_object,
    has_symbol,
    parse_module,
    target_machine,
    vector_bytes,
    without_lock,
)
from gradtape.lower.target.vecmath import INLINE
from gradtape.runtime.compile.loader import LoadedModule, call_flat

__all__ = [
    "LoadedModule",
    "assembly",
    "call_flat",
    "compile_object",
    "cpu_identity",
    "has_symbol",
    "listings",
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

LONG_BLOCK: Final = 10_000
"""Instructions in the largest basic block from which the code generator does not schedule instructions.

Measured on straight-line code of 18,000 instructions: 2.5 s to generate, and 0.1 s without.
"""


class _Compiler:
    """What one thread at a time compiles with: LLVM compiles in several threads if each has its own context and target machines.

    Attributes
    ----------
    lock : Lock
        Held while a module is compiled: a fork waits for it.
    """

    def __init__(self) -> None:
        self.lock = new_lock(Rank.COMPILER)
        self._machines: dict[tuple[int, bool], Any] = {}

    def machine(self, pipeline: _Pipeline) -> Any:
        """Return the target machine of a pipeline."""
        key = pipeline.code_generation, pipeline.gathers
        if key not in self._machines:
            opt, gathers = key
            self._machines[key] = target_machine(gathers=gathers, opt=opt, reloc="pic", codemodel="default")
        return self._machines[key]


_compilers: Final[list[_Compiler]] = []
"""The compilers that no thread uses now."""


class Abandoned(BaseException):
    """Nobody waits any more for what is being compiled."""


class _Thread(threading.local):
    """What may end the compilations of this thread."""

    def __init__(self) -> None:
        self.is_abandoned: Callable[[], bool] | None = None


_thread: Final = _Thread()


def abandon_when(is_abandoned: Callable[[], bool]) -> None:
    """Let compilations of this thread raise `Abandoned`, before their next step, once `is_abandoned` returns True."""
    _thread.is_abandoned = is_abandoned


def _check_wanted() -> None:
    if _thread.is_abandoned is not None and _thread.is_abandoned():
        raise Abandoned


class _Pipeline(NamedTuple):
    """The options of LLVM's pass pipeline for one module, the level of its code generator, whether the module defines functions that the
    vectorisers call, and whether vectorisers may use gathers."""

    opt: int
    slp: bool
    interleaved: bool
    unrolled: bool
    code_generation: int
    inlines: bool
    gathers: bool = True


def compile_object(ir_text: str, name: str, *, opt: int = 3, unroll: bool = True) -> bytes:
    """Compile a module of LLVM IR to optimised object code for the host CPU.

    Parameters
    ----------
    ir_text : str
        A complete module; its target triple and data layout are set here.
    name : str
        What error messages call the module.
    opt : int, optional
        LLVM's optimisation level, 0 to 3.
    unroll : bool, optional
        Whether loops may be unrolled.

    Returns
    -------
    bytes
        Position independent object code, to be loaded by :class:`LoadedModule`.

    Notes
    -----
    In the main thread the work is done by a helper thread, so that Ctrl-C is answered at once and never
    leaves a lock of llvmlite's half taken.

    Examples
    --------
    >>> code = compile_object("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }", "seven")
    >>> call_flat(LoadedModule(code), [], [])
    7
    """
    return _away_from_signals(lambda: _emit(ir_text, name, opt, unroll, _object))


def optimised_llvm(ir_text: str, *, opt: int = 3, unroll: bool = True) -> str:
    """Return the module as LLVM IR after every optimisation that :func:`compile_object` applies.

    Examples
    --------
    >>> text = optimised_llvm("define i32 @kernel(ptr %i, ptr %o, ptr %w) { %x = add i32 3, 4 ret i32 %x }")
    >>> "ret i32 7" in text
    True
    """
    return _away_from_signals(lambda: _emit(ir_text, "inspection", opt, unroll, _text))


def assembly(ir_text: str, *, opt: int = 3, unroll: bool = True) -> str:
    """Return the host's assembly for the module, optimised as by :func:`compile_object`.

    Examples
    --------
    >>> "kernel:" in assembly("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }")
    True
    """
    return _away_from_signals(lambda: _emit(ir_text, "inspection", opt, unroll, _assembly))


def listings(ir_text: str, *, unroll: bool = True) -> tuple[str, str]:
    """Return the optimised LLVM IR and the assembly of a module, which is compiled once.

    Examples
    --------
    >>> llvm, assembly = listings("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }")
    >>> "ret i32 7" in llvm, "kernel:" in assembly
    (True, True)
    """
    return _away_from_signals(lambda: _emit(ir_text, "inspection", 3, unroll, _both))


def _both(machine: Any, module: Any) -> tuple[str, str]:
    return _text(machine, module), _assembly(machine, module)


def _object(machine: Any, module: Any) -> bytes:
    return emit_object(machine, module)


def _text(machine: Any, module: Any) -> str:
    return str(module)


def _assembly(machine: Any, module: Any) -> str:
    text: str = machine.emit_assembly(module)
    return text


def _emit(ir_text: str, name: str, opt: int, unroll: bool, product: Callable[[Any, Any], T]) -> T:
    """Parse and optimise a module, and return `product` of the target machine and the module."""
    _check_wanted()
    try:
        compiler = _compilers.pop()
    except IndexError:
        compiler = _Compiler()
    with compiler.lock:
        import llvmlite.binding as llvm

        pipeline: _Pipeline | None = _choose_pipeline(ir_text, opt, unroll)
        while pipeline is not None:
            machine = compiler.machine(pipeline)
            with llvm.create_context() as context, parse_module(ir_text, machine, context) as module:
                module.name = name
                _optimise(machine, module, pipeline)
                _check_wanted()
                pipeline = _instead_of(pipeline, module)
                if pipeline is None:
                    made = product(machine, module)
    _compilers.append(compiler)
    return made


def _instead_of(pipeline: _Pipeline, module: Any) -> _Pipeline | None:
    """Return the pipeline to compile a module with again, where the SLP vectoriser of LLVM 22 may have broken it; None otherwise.

    It may use a product before it is computed: the module is invalid, and the code generator would end the process. And it may move a
    store past a gather of its own making that reads the element: the results are wrong. It asks once whether the address of an array
    leaves the function, and keeps the answer; the gather's vector of addresses changes it. (Gathers of loops are there before, and safe.)
    """
    if not pipeline.slp:
        return None
    if not _is_valid(module):
        return pipeline._replace(slp=False)
    if _gathers_in_straight_code(module):
        return pipeline._replace(gathers=False) if pipeline.gathers else pipeline._replace(slp=False)
    return None


def _is_valid(module: Any) -> bool:
    """Return whether an optimised module can be translated to machine code."""
    try:
        module.verify()
    except RuntimeError:
        return False
    return True


def _gathers_in_straight_code(module: Any) -> bool:
    """Return whether the SLP vectoriser made a gather: those of the loop vectoriser have a name."""
    if not any(function.name.startswith("llvm.masked.gather.") for function in module.functions):
        return False
    return any(not match[1].startswith("wide.masked.gather") for match in _GATHER.finditer(str(module)))


_GATHER: Final = re.compile(r"^ *%(\S+) = .*call .*@llvm\.masked\.gather\.", re.MULTILINE)


def _optimise(machine: Any, module: Any, pipeline: _Pipeline) -> None:
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(pipeline.opt)
    options.loop_vectorization = True
    options.slp_vectorization = pipeline.slp
    options.loop_interleaving = pipeline.interleaved
    options.loop_unrolling = pipeline.unrolled
    builder = llvm.create_pass_builder(machine, options)
    _run(builder.getModulePassManager(), module, builder)
    if pipeline.inlines:
        # The calls exist only from here on.
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_instruction_combine_pass()
        _run(manager, module, builder)


def _run(manager: Any, module: Any, builder: Any) -> None:
    """Run the passes of a manager, and drop it."""
    from llvmlite.binding.ffi import lib
    from llvmlite.binding.newpassmanagers import NewPassManager

    try:
        without_lock(lib.LLVMPY_RunNewModulePassManager)(manager, module, builder)
    finally:
        # A base class hides llvmlite's own disposal, and 140 KB would stay behind.
        NewPassManager._dispose(manager)
        manager.detach()


def _choose_pipeline(ir_text: str, opt: int, unroll: bool = True) -> _Pipeline:
    """Return the options for a module, by the lengths of its basic blocks: each instruction is an indented line."""
    total = largest = block = 0
    for line in ir_text.splitlines():
        if line.startswith("  "):
            block += 1
        elif block:
            total += block
            largest = max(largest, block)
            block = 0
    lean = total > LEAN_MODULE_LIMIT
    return _Pipeline(
        opt,
        slp=largest <= SLP_BLOCK_LIMIT,
        interleaved=not lean,
        unrolled=unroll and not lean,
        code_generation=3 if largest <= LONG_BLOCK else 0,
        inlines=f"({INLINE}" in ir_text,
    )


def _away_from_signals(work: Callable[[], T]) -> T:
    """Run `work` in a thread in which no signal handler runs.

    Python raises `KeyboardInterrupt` in the main thread only, so a thread of its own always runs to its end.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=run, name="gradtape-compile")
    try:
        worker.start()
    except RuntimeError:  # in exit handlers there are no new threads
        return work()
    worker.join()
    if failures:
        raise failures[0]
    return results[0]
