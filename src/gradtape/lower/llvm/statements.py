"""LLVM instructions for straight-line statements and for loops with independent iterations."""

from __future__ import annotations

from typing import Final

from gradtape.ir.varying import code_is_shared, is_varying
from gradtape.kinds.elementwise import Libm, SciPy
from gradtape.loops.ir import Assign, Compute, Declare, Dtype, For, Guard, Load, Store, Wrap
from gradtape.lower.llvm.function import Emitters, FunctionEmitter
from gradtape.lower.llvm.instructions import register_type
from gradtape.lower.llvm.vectors import emit_vectors
from gradtape.lower.target.vecmath import vector_attribute

ONE_VECTOR: Final = 8
"""Iterations that fill a vector register."""


def _compute(function: FunctionEmitter, statement: Compute) -> None:
    target, body, args = statement.target, statement.body, statement.args
    if body is None:
        function.names[target.name] = function.number(args[0])
        return
    dtypes = tuple(arg.dtype for arg in args)
    operands = tuple(function.number(arg) for arg in args)
    inlines = None if function.depth else function.in_control_flow
    text = function.computed(body, dtypes, target.dtype, operands, statement.reassociate, inlines)
    function.emit(f"%{target.name} = {text}")


def _load(function: FunctionEmitter, statement: Load) -> None:
    buffer = statement.buffer
    text = function.loaded(buffer.dtype, function.pointer(buffer, statement.index))
    function.emit(f"%{statement.target.name} = {text}")


def _store(function: FunctionEmitter, statement: Store) -> None:
    buffer = statement.buffer
    value = function.number(statement.value)
    function.store_element(buffer.dtype, value, function.pointer(buffer, statement.index))


def _declare(function: FunctionEmitter, statement: Declare) -> None:
    target = statement.target
    type_ = register_type(target.dtype)
    if target.name not in function.mutable:
        function.mutable[target.name] = target.dtype
        function.entry.append(f"  %{target.name}.slot = alloca {type_}")
    function.store(type_, function.number(statement.value), f"%{target.name}.slot")


def _assign(function: FunctionEmitter, statement: Assign) -> None:
    target = statement.target
    function.store(register_type(target.dtype), function.number(statement.value), f"%{target.name}.slot")


def _wrap(function: FunctionEmitter, statement: Wrap) -> None:
    """Resolve a negative index; note an index that is out of bounds, and use element 0 in its place."""
    dtype = statement.value.dtype
    value = function.number(statement.value)
    if dtype.itemsize < 8:
        value = _as_int64(function, value, dtype)
    if not statement.is_checked:
        function.names[statement.target.name] = value
        return
    function.may_fail = True
    if dtype.kind == "i":
        negative = function.let(f"icmp slt i64 {value}, 0")
        from_end = function.let(f"add i64 {value}, {statement.extent}")
        value = function.let(f"select i1 {negative}, i64 {from_end}, i64 {value}")
    inside = function.let(f"icmp ult i64 {value}, {statement.extent}")
    function.emit(f"%{statement.target.name} = select i1 {inside}, i64 {value}, i64 0")
    function.note_failure(function.let(f"xor i1 {inside}, true"))


def _guard(function: FunctionEmitter, statement: Guard) -> None:
    """End the kernel with the guard's number as its status, and the actual value in the workspace, if the value is not the expected one."""
    dtype = statement.value.dtype
    value = function.number(statement.value)
    if dtype.itemsize < 8 or dtype.kind == "b":
        value = _as_int64(function, value, dtype)
    number = statement.number
    function.branch(
        function.let(f"icmp eq i64 {value}, {statement.expected}"), f"held{number}", f"missed{number}"
    )
    function.start_block(f"missed{number}")
    function.store("i64", value, "%workspace")
    function.emit(f"ret i32 {number}")
    function.start_block(f"held{number}")


def _as_int64(function: FunctionEmitter, value: str, dtype: Dtype) -> str:
    return function.let(f"{'sext' if dtype.kind == 'i' else 'zext'} {register_type(dtype)} {value} to i64")


def _loop(function: FunctionEmitter, statement: For) -> None:
    """Append a loop with at least one iteration."""
    if function.in_control_flow and emit_vectors(function, statement):
        return
    var = statement.var
    before, head = function.label, f"{var.name}.head"
    function.jump(head)
    function.start_block(head)
    at = len(function.lines)
    function.positions.append({})
    function.depth += 1
    for inner in statement.body:
        function.statement(inner)
    function.depth -= 1
    function.positions.pop()
    following = function.let(f"add nuw nsw i64 %{var.name}, 1")
    phi = f"phi i64 [ {var.low}, %{before} ], [ {following}, %{function.label} ]"
    function.lines.insert(at, f"  %{var.name} = {phi}")
    done = function.let(f"icmp eq i64 {following}, {var.high + 1}")
    function.branch(done, f"{var.name}.exit", head, _metadata(function, statement))
    function.start_block(f"{var.name}.exit")


def _metadata(function: FunctionEmitter, loop: For) -> str:
    """Return loop metadata that forbid unrolling, where the loop is nested and fills a vector.

    LLVM would unroll it before it vectorises, and then vectorise the loop around it with gathers and scatters: 5 times slower on batches
    of 10 by 10 products.
    """
    if loop.lanes and not _calls_scalars(loop):
        return f"!llvm.loop !{function.module.loop_metadata(loop.trip_count)}"
    nested = len(function.positions) > 1 or any(isinstance(inner, For) for inner in loop.body)
    # What is left after the blocks may be of any length, where other lengths share the code.
    is_rest = loop.var.low > 0 and code_is_shared()
    is_long = loop.trip_count >= ONE_VECTOR or is_rest or is_varying(loop.trip_count)
    return f"!llvm.loop !{function.module.loop_metadata(0)}" if nested and is_long else ""


def _calls_scalars(loop: For) -> bool:
    """Return whether a loop calls functions that there is no vector code for: to be told to vectorise it, LLVM answers with a remark."""
    computed = [(s.body, s.target.dtype) for s in loop.body if isinstance(s, Compute)]
    return any(
        isinstance(body, SciPy) or (isinstance(body, Libm) and not vector_attribute(body, dtype)[1])
        for body, dtype in computed
    )


STATEMENTS: Final[Emitters] = {
    Compute: _compute,
    Load: _load,
    Store: _store,
    Declare: _declare,
    Assign: _assign,
    Wrap: _wrap,
    Guard: _guard,
    For: _loop,
}
