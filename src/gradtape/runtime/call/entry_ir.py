"""The native entry in LLVM IR: the C function of a compiled Python callable.

It looks at its arguments by pointer (exact types, dtype objects, dimensions, flags), makes the results
with NumPy's C functions and runs the kernel. What it cannot take goes to the object's Python fallback by
a tail call, so that no frame of machine code is on the stack while Python code, which may drop this very
machine code, runs.

Nothing that differs between processes is written into the code: addresses of types, dtypes and C
functions are symbols with the prefix ``gt.``, filled in when the code is loaded, and what differs between
two uses of the same code is in the state block that the called object points to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gradtape.ir.varying import code_is_shared
from gradtape.lower.llvm.counters import ENTRIES, ENTRY_TICKS, add
from gradtape.lower.llvm.writer import KERNEL, LIKELY, FunctionWriter, ModuleWriter
from gradtape.lower.resident.interrupts import INTERRUPTED
from gradtape.runtime.call.callable import FALLBACK_OFFSET, STATE_OFFSET
from gradtape.runtime.call.capi import (
    ALIGNED,
    ARRAY_DATA,
    ARRAY_DESCR,
    ARRAY_DIMENSIONS,
    ARRAY_FLAGS,
    ARRAY_NDIM,
    C_CONTIGUOUS,
    DTYPE_NUMBER,
    DTYPE_ORDER,
    FREE_THREADED,
    HEAD,
    TUPLE_ITEMS,
    TYPE,
    WORD,
    WRITEABLE,
    prototype,
    scalar_holds_data,
)
from gradtape.runtime.call.convention import (
    ACTIVE_WORD,
    CONSTANT_WORD,
    ENTRY,
    ENTRY_DRAIN,
    HEAVY,
    STACK_WORKSPACE,
    WORKSPACE_WORD,
    ArraySpec,
    ScalarSpec,
    Signature,
    StaticSpec,
    Structure,
)
from gradtape.runtime.memory.pool import is_pooled

__all__ = ["add_entry"]

SWAPPED: Final = ord(">" if sys.byteorder == "little" else "<")
"""The character of the other byte order in a dtype; there are several for the machine's own."""


def add_entry(ir_text: str, signature: Signature | None, *, profiled: bool = False) -> str:
    """Append the native entry for a kernel to the module that defines the kernel.

    Parameters
    ----------
    ir_text : str
        A module of LLVM IR that defines a kernel.
    signature : Signature or None
        What the entry expects and returns; None for a kernel that needs no entry.
    profiled : bool, optional
        Whether the module is that of a kernel which times itself, so that the entry does the same.

    Returns
    -------
    str
        The module with one more function, to be compiled and given to :func:`~gradtape.runtime.call.entry.load`.

    Examples
    --------
    >>> signature = Signature((ScalarSpec("float"),), (ArraySpec("float64", ()),), 0)
    >>> "define ptr @entry(" in add_entry("", signature)
    True
    """
    if signature is None:
        return ir_text
    return f"{ir_text.rstrip()}\n\n{_EntryWriter(signature, profiled).write()}"


class _EntryWriter(FunctionWriter):
    """Writes one entry from top to bottom; each method appends the instructions of one step."""

    def __init__(self, signature: Signature, profiled: bool) -> None:
        super().__init__(ModuleWriter())
        self.signature = signature
        self.owned: list[str] = []
        self.status = ""
        # Read once: another thread may install other machine code in the called object while the kernel runs.
        self.state_block = self.load("ptr", "%self", STATE_OFFSET)
        self.profiled = profiled
        self.begin = self.let("call i64 @now()") if profiled else ""
        self.ticks = ""

    def write(self) -> str:
        sources = self.check_arguments()
        self.count_calls("add")
        targets = self.make_outputs()
        self.run_kernel(sources, [pointer for pointer, _ in targets])
        for spec, (pointer, owner) in zip(self.signature.outputs, targets, strict=True):
            if spec.shape == ():
                self.box(spec, pointer, owner)
        self.return_results([owner for _, owner in targets])
        self.write_exits()
        # Optimising the straight-line code of the entry takes 8 ms for two arguments, 24 for ten, and gains nothing.
        parameters = "ptr %self, ptr %args, i64 %nargsf, ptr %kwnames"
        functions = [self.text(f"define ptr @{ENTRY}({parameters}) noinline optnone")]
        if self.signature.keeps_workspace:
            functions.append(self.drain())
        self.module.functions += functions
        return self.module.text()

    # The steps

    def check_arguments(self) -> list[str]:
        """Make sure that the call is one that the kernel is for; return pointers to the inputs' data."""
        count = self.let("and i64 %nargsf, 9223372036854775807")
        self.require(self.let("icmp eq ptr %kwnames, null"))
        self.require(self.let(f"icmp eq i64 {count}, {len(self.signature.arguments)}"))
        sources, statics = [], 0
        data: dict[int, str] = {}
        for number, spec in enumerate(self.signature.arguments):
            argument = self.load("ptr", "%args", WORD * number)
            match spec:
                case ArraySpec():
                    data[number] = self.check_array(spec, argument)
                    sources.append(data[number])
                case ScalarSpec():
                    sources.append(self.check_scalar(spec, argument))
                case StaticSpec():
                    word = CONSTANT_WORD + self.signature.constants + statics
                    self.require_same(argument, self.state(word))
                    statics += 1
        self.check_memory(data)
        return sources + [self.state(CONSTANT_WORD + k) for k in range(self.signature.constants)]

    def check_memory(self, data: dict[int, str]) -> None:
        """Make sure that arguments that are written to are writeable, and have no memory in common with others."""
        for number in self.signature.written:
            flags = self.load("i32", self.load("ptr", "%args", WORD * number), ARRAY_FLAGS)
            self.require(self.let(f"icmp ne i32 {self.let(f'and i32 {flags}, {WRITEABLE}')}, 0"))
        spans: dict[int, tuple[str, str]] = {}
        for number in sorted({number for pair in self.signature.apart for number in pair}):
            spec = self.signature.arguments[number]
            assert isinstance(spec, ArraySpec)
            begin, size = self.let(f"ptrtoint ptr {data[number]} to i64"), str(spec.dtype.itemsize)
            if spec.shape:  # read from the array, since entries for several lengths have the same text
                argument = self.load("ptr", "%args", WORD * number)
                dimensions = self.load("ptr", argument, ARRAY_DIMENSIONS)
                for axis in range(len(spec.shape)):
                    size = self.let(f"mul i64 {size}, {self.load('i64', dimensions, WORD * axis)}")
            spans[number] = begin, self.let(f"add i64 {begin}, {size}")
        for one, other_argument in self.signature.apart:
            (begin, end), (start, stop) = spans[one], spans[other_argument]
            is_before = self.let(f"icmp ule i64 {end}, {start}")
            is_behind = self.let(f"icmp ule i64 {stop}, {begin}")
            self.require(self.let(f"or i1 {is_before}, {is_behind}"))

    def check_array(self, spec: ArraySpec, argument: str) -> str:
        kind = self.load("ptr", argument, TYPE)
        is_array = self.let(f"icmp eq ptr {kind}, {self.symbol('PyArray_Type')}")
        if spec.shape or spec.kind == "array" or not scalar_holds_data(spec.dtype):
            self.require(is_array)
            return self.check_layout(spec, argument)
        if spec.kind == "scalar":
            self.require_same(kind, self.symbol(f"scalar.{spec.dtype.name}"))
            return self.offset(argument, HEAD)
        array, scalar, checked = self.new_label(), self.new_label(), self.new_label()
        self.emit(f"br i1 {is_array}, label %{array}, label %{scalar}")
        self.start_block(array)
        from_array = self.check_layout(spec, argument)
        array_end = self.label
        self.emit(f"br label %{checked}")
        self.start_block(scalar)
        self.require_same(kind, self.symbol(f"scalar.{spec.dtype.name}"))
        from_scalar = self.offset(argument, HEAD)
        scalar_end = self.label
        self.emit(f"br label %{checked}")
        self.start_block(checked)
        return self.let(f"phi ptr [{from_array}, %{array_end}], [{from_scalar}, %{scalar_end}]")

    def check_layout(self, spec: ArraySpec, argument: str) -> str:
        self.check_dtype(spec.dtype, self.load("ptr", argument, ARRAY_DESCR))
        self.require(self.let(f"icmp eq i32 {self.load('i32', argument, ARRAY_NDIM)}, {len(spec.shape)}"))
        flags = self.let(f"and i32 {self.load('i32', argument, ARRAY_FLAGS)}, {C_CONTIGUOUS | ALIGNED}")
        self.require(self.let(f"icmp eq i32 {flags}, {C_CONTIGUOUS | ALIGNED}"))
        if spec.shape:
            dimensions = self.load("ptr", argument, ARRAY_DIMENSIONS)
            for axis, length in enumerate(spec.shape):
                self.require(self.let(f"icmp eq i64 {self.load('i64', dimensions, WORD * axis)}, {length}"))
        return self.load("ptr", argument, ARRAY_DATA)

    def check_dtype(self, dtype: np.dtype[Any], descr: str) -> None:
        """Make sure that an array has a dtype: NumPy's own object, or one that is equal to it.

        Arrays from pickles, of other processes, of memory views and of pointers have objects of their own.
        """
        other, checked = self.new_label(), self.new_label()
        same = self.let(f"icmp eq ptr {descr}, {self.symbol(f'dtype.{dtype.name}')}")
        self.emit(f"br i1 {same}, label %{checked}, label %{other}, {LIKELY}")
        self.start_block(other)
        number, order = self.load("i32", descr, DTYPE_NUMBER), self.load("i8", descr, DTYPE_ORDER)
        self.require(self.let(f"icmp eq i32 {number}, {dtype.num}"))
        self.require(self.let(f"icmp ne i8 {order}, {SWAPPED}"))
        self.emit(f"br label %{checked}")
        self.start_block(checked)

    def check_scalar(self, spec: ScalarSpec, argument: str) -> str:
        if spec.kind == "bool":
            is_true = self.let(f"icmp eq ptr {argument}, {self.symbol('Py_True')}")
            is_false = self.let(f"icmp eq ptr {argument}, {self.symbol('Py_False')}")
            self.require(self.let(f"or i1 {is_true}, {is_false}"))
            return self.stored("i8", self.let(f"zext i1 {is_true} to i8"))
        types = {"float": "PyFloat_Type", "int": "PyLong_Type", "complex": "PyComplex_Type"}
        self.require_same(self.load("ptr", argument, TYPE), self.symbol(types[spec.kind]))
        if spec.kind != "int":
            return self.offset(argument, HEAD)
        overflow = self.slot("i32")
        value = self.call_c("PyLong_AsLongLongAndOverflow", argument, overflow)
        self.require(self.let(f"icmp eq i32 {self.let(f'load i32, ptr {overflow}')}, 0"))
        return self.stored("i64", value)

    def make_outputs(self) -> list[tuple[str, str]]:
        """Allocate the outputs; return where the data of each go, and the slots that own the Python objects."""
        specs = self.signature.outputs
        owners = [self.owner() for _ in specs]
        arrays: dict[int, str] = {}
        if any(is_pooled(spec) for spec in specs):
            # NumPy's own allocator is restored before anything is checked.
            former = self.call_c("PyDataMem_SetHandler", self.symbol("result_handler"))
            self.require(self.let(f"icmp ne ptr {former}, null"), otherwise="failed")
            for number, spec in enumerate(specs):
                if is_pooled(spec):
                    arrays[number] = self.make_array(spec, number)
                    self.emit(f"store ptr {arrays[number]}, ptr {owners[number]}")
            self.call_c("Py_DecRef", self.call_c("PyDataMem_SetHandler", former))
            self.call_c("Py_DecRef", former)
        targets = []
        for number, (spec, owner) in enumerate(zip(specs, owners, strict=True)):
            if spec.shape == ():
                targets.append((self.slot(f"[{spec.nbytes} x i8]"), owner))
                continue
            array = arrays[number] if number in arrays else self.make_array(spec, number)
            self.keep(array, owner)
            targets.append((self.load("ptr", array, ARRAY_DATA), owner))
        return targets

    def make_array(self, spec: ArraySpec, number: int) -> str:
        lengths = ", ".join(f"i64 {length}" for length in spec.shape)
        ndim = len(spec.shape)
        self.module.declare(f"@{ENTRY}.shape{number} = private constant [{ndim} x i64] [{lengths}]")
        dtype, kind = self.symbol(f"dtype.{spec.dtype.name}"), self.symbol("PyArray_Type")
        self.call_c("Py_IncRef", dtype)
        shape = f"@{ENTRY}.shape{number}"
        return self.call_c("PyArray_NewFromDescr", kind, dtype, str(ndim), shape, "null", "null", "0", "null")

    def run_kernel(self, sources: list[str], targets: list[str]) -> None:
        inputs, outputs = self.pointer_list(sources), self.pointer_list(targets)
        size = self.signature.workspace
        block = workspace = "null"
        if self.signature.pools_workspace:
            block = workspace = self.call_c("pool_allocate", str(size))
            self.require(self.let(f"icmp ne ptr {block}, null"), otherwise="nomemory")
        elif size and not self.signature.keeps_workspace:
            # The entries of programs that differ in lengths have the same text.
            size = STACK_WORKSPACE if code_is_shared() else size
            workspace = self.slot(f"[{size} x i8]", align=64)
        elif size:
            block = self.take_workspace(size + 64)
            address = self.let(f"ptrtoint ptr {block} to i64")
            padding = self.let(f"and i64 {self.let(f'sub i64 0, {address}')}, 63")
            workspace = self.let(f"getelementptr i8, ptr {block}, i64 {padding}")
        thread = self.release_gil()
        before = self.let("call i64 @now()") if self.profiled else ""
        status = self.let(f"call i32 @{KERNEL}(ptr {inputs}, ptr {outputs}, ptr {workspace})")
        if self.profiled:
            after = self.let("call i64 @now()")
            self.ticks = self.let(f"sub i64 {after}, {before}")
        if thread:
            self.take_gil(thread)
        if self.signature.pools_workspace:
            self.call_c("pool_release", block)
        elif block != "null":
            self.return_workspace(block)
        self.status = status
        self.require(self.let(f"icmp eq i32 {status}, 0"), otherwise="missed")

    def release_gil(self) -> str:
        """Let other threads run, if that pays; return their state, or nothing if this code never does so."""
        if not code_is_shared():
            return self.call_c("PyEval_SaveThread") if self.signature.release_gil else ""
        release, run = self.new_label(), self.new_label()
        self.emit(f"{HEAVY} = icmp ne i32 {int(self.signature.release_gil)}, 0")
        before = self.label
        self.emit(f"br i1 {HEAVY}, label %{release}, label %{run}")
        self.start_block(release)
        saved = self.call_c("PyEval_SaveThread")
        self.emit(f"br label %{run}")
        self.start_block(run)
        return self.let(f"phi ptr [{saved}, %{release}], [null, %{before}]")

    def take_gil(self, thread: str) -> None:
        """Wait for the other threads that were let run."""
        if not code_is_shared():
            self.call_c("PyEval_RestoreThread", thread)
            return
        restore, go_on = self.new_label(), self.new_label()
        self.emit(f"br i1 {HEAVY}, label %{restore}, label %{go_on}")
        self.start_block(restore)
        self.call_c("PyEval_RestoreThread", thread)
        self.emit(f"br label %{go_on}")
        self.start_block(go_on)

    def take_workspace(self, size: int) -> str:
        """Take the block that is kept between calls, or allocate one for a concurrent call."""
        have, need, ready = self.new_label(), self.new_label(), self.new_label()
        block = self.exchange(WORKSPACE_WORD, "null")
        is_kept = self.let(f"icmp ne ptr {block}, null")
        self.emit(f"br i1 {is_kept}, label %{have}, label %{need}, {LIKELY}")
        self.start_block(have)
        self.emit(f"br label %{ready}")
        self.start_block(need)
        fresh = self.call_c("PyMem_RawMalloc", str(size))
        allocated = self.let(f"icmp ne ptr {fresh}, null")
        self.emit(f"br i1 {allocated}, label %{ready}, label %nomemory, {LIKELY}")
        self.start_block(ready)
        return self.let(f"phi ptr [{block}, %{have}], [{fresh}, %{need}]")

    def return_workspace(self, block: str) -> None:
        spare, done = self.new_label(), self.new_label()
        displaced = self.exchange(WORKSPACE_WORD, block)
        alone = self.let(f"icmp eq ptr {displaced}, null")
        self.emit(f"br i1 {alone}, label %{done}, label %{spare}, {LIKELY}")
        self.start_block(spare)
        self.call_c("PyMem_RawFree", displaced)
        self.emit(f"br label %{done}")
        self.start_block(done)

    def box(self, spec: ArraySpec, pointer: str, owner: str) -> None:
        """Make a NumPy scalar of a 0-d output."""
        name = spec.dtype.name
        if not scalar_holds_data(spec.dtype):
            self.keep(self.call_c("PyArray_Scalar", pointer, self.symbol(f"dtype.{name}"), "null"), owner)
            return
        scalar = self.call_c(f"allocate.{name}", self.symbol(f"scalar.{name}"), "0")
        self.keep(scalar, owner)
        word = f"i{8 * spec.nbytes}"
        value = self.let(f"load {word}, ptr {pointer}")
        self.emit(f"store {word} {value}, ptr {self.offset(scalar, HEAD)}, align 8")

    def return_results(self, owners: list[str]) -> None:
        """Build the result; containers are allocated before one is filled, so that filling cannot fail."""
        results = [self.let(f"load ptr, ptr {owner}") for owner in owners]
        containers = []
        for node in _containers(self.signature.structure):
            function = "PyTuple_New" if isinstance(node, tuple) else "PyList_New"
            containers.append(self.call_c(function, str(len(node))))
            self.keep(containers[-1], self.owner())
        used: set[int] = set()
        root = self.place(self.signature.structure, results, iter(containers), used)
        for number in set(range(len(results))) - used:
            self.call_c("Py_DecRef", results[number])
        self.count_calls("sub")
        self.read_clock(answered=1)
        self.emit(f"ret ptr {root}")

    def place(self, node: Structure, results: list[str], containers: Iterator[str], used: set[int]) -> str:
        """Fill containers with results, in the order in which `_containers` lists them."""
        if node is None:
            self.call_c("Py_IncRef", self.symbol("Py_None"))
            return self.symbol("Py_None")
        if isinstance(node, int):
            if node in used:
                self.call_c("Py_IncRef", results[node])
            used.add(node)
            return results[node]
        container = next(containers)
        for position, child in enumerate(node):
            item = self.place(child, results, containers, used)
            if isinstance(node, tuple):
                self.emit(f"store ptr {item}, ptr {self.offset(container, TUPLE_ITEMS + WORD * position)}")
            else:
                self.call_c("PyList_SetItem", container, str(position), item)
        return container

    def write_exits(self) -> None:
        """Write the exits without a result: arguments that are refused, a missed guard, no memory, an interruption."""
        self.start_block("missed")
        if self.signature.polls:
            self.require(self.let(f"icmp ne i32 {self.status}, {INTERRUPTED}"), otherwise="interrupted")
        self.release_owned()
        self.read_clock(answered=0)
        self.emit("br label %fallback")
        self.start_block("fallback")
        fallback = self.load("ptr", "%self", FALLBACK_OFFSET)
        vectorcall = self.function("PyObject_Vectorcall")
        operands = f"ptr {fallback}, ptr %args, i64 %nargsf, ptr %kwnames"
        self.emit(f"ret ptr {self.let(f'musttail call ptr {vectorcall}({operands})')}")
        self.start_block("nomemory")
        self.call_c("PyErr_NoMemory")
        self.emit("br label %failed")
        if self.signature.polls:
            self.start_block("interrupted")
            self.call_c("raise")
            self.emit("br label %failed")
        self.start_block("failed")
        self.release_owned()
        self.emit("ret ptr null")

    def release_owned(self) -> None:
        for owner in self.owned:
            self.call_c("Py_DecRef", self.let(f"load ptr, ptr {owner}"))
        self.count_calls("sub")

    def read_clock(self, answered: int) -> None:
        """Add the time of the call outside the kernel to the counters."""
        if not self.profiled:
            return
        call_ticks = self.let(f"sub i64 {self.let('call i64 @now()')}, {self.begin}")
        outside = self.let(f"sub i64 {call_ticks}, {self.ticks}")
        for word, amount in ((ENTRY_TICKS, outside), (ENTRIES, str(answered))):
            for line in add(word, amount, outside):
                self.emit(line)

    def drain(self) -> str:
        """Return a second function, which frees the kept workspace atomically."""
        free = self.function("PyMem_RawFree")
        take = ["  %block = load ptr, ptr %state", "  store ptr null, ptr %state"]
        if FREE_THREADED:
            take = ["  %block = atomicrmw xchg ptr %state, ptr null seq_cst"]
        lines = (f"define void @{ENTRY_DRAIN}(ptr %state) {{", *take, f"  call void {free}(ptr %block)")
        return "\n".join((*lines, "  ret void", "}"))

    # Instructions

    def require(self, condition: str, otherwise: str = "fallback") -> None:
        """Go on if the condition holds."""
        follow = self.new_label()
        self.branch(condition, follow, otherwise, LIKELY)
        self.start_block(follow)

    def require_same(self, left: str, right: str) -> None:
        """Go on if two pointers are equal."""
        self.require(self.let(f"icmp eq ptr {left}, {right}"))

    def stored(self, type_: str, value: str) -> str:
        """Put a value into memory on the stack."""
        slot = self.slot(type_)
        self.store(type_, value, slot)
        return slot

    def pointer_list(self, pointers: list[str]) -> str:
        """Put pointers one after the other into memory on the stack."""
        array = self.slot(f"[{len(pointers)} x ptr]")
        for number, pointer in enumerate(pointers):
            self.store("ptr", pointer, self.offset(array, WORD * number))
        return array

    def symbol(self, name: str) -> str:
        """Return the address of an object of Python's or NumPy's."""
        self.module.declare(f'@"gt.{name}" = external global i8')
        return f'@"gt.{name}"'

    def function(self, name: str) -> str:
        """Return the address of a C function of Python's or NumPy's."""
        result, parameters = prototype(name)
        self.module.declare(f'declare {result} @"gt.{name}"({", ".join(parameters)})')
        return f'@"gt.{name}"'

    def call_c(self, function: str, *operands: str) -> str:
        """Call a C function of Python's or NumPy's."""
        result, parameters = prototype(function)
        typed = [f"{type_} {operand}" for type_, operand in zip(parameters, operands, strict=True)]
        return self.call(result, f'"gt.{function}"', *typed)

    # Ownership

    def owner(self) -> str:
        """Return a slot for a reference that is released if the call fails."""
        slot = self.slot("ptr", initial="null")
        self.owned.append(slot)
        return slot

    def keep(self, python_object: str, owner: str) -> None:
        """Check that an object was allocated, and store it in its slot."""
        self.require(self.let(f"icmp ne ptr {python_object}, null"), otherwise="failed")
        self.emit(f"store ptr {python_object}, ptr {owner}")

    # State

    def state(self, word: int) -> str:
        return self.let(f"load ptr, ptr {self.state_address(word)}")

    def state_address(self, word: int) -> str:
        return self.offset(self.state_block, WORD * word)

    def count_calls(self, operation: str) -> None:
        """Count the active calls: code is not unmapped while a call lets other threads run."""
        address = self.state_address(ACTIVE_WORD)
        if FREE_THREADED:
            self.let(f"atomicrmw {operation} ptr {address}, i64 1 seq_cst")
            return
        changed = self.let(f"{operation} i64 {self.let(f'load i64, ptr {address}')}, 1")
        self.emit(f"store i64 {changed}, ptr {address}")

    def exchange(self, word: int, pointer: str) -> str:
        """Exchange a pointer in the state block; the interpreter lock makes it atomic."""
        address = self.state_address(word)
        if FREE_THREADED:
            return self.let(f"atomicrmw xchg ptr {address}, ptr {pointer} seq_cst")
        former = self.let(f"load ptr, ptr {address}")
        self.emit(f"store ptr {pointer}, ptr {address}")
        return former


def _containers(node: Structure) -> Iterator[tuple[Structure, ...] | list[Structure]]:
    """Yield the tuples and lists of a structure, parents before children."""
    if isinstance(node, tuple | list):
        yield node
        for child in node:
            yield from _containers(child)
