"""The Numba type of compiled functions: ``@njit`` code calls their kernels with pointers, without Python in between.

Numba knows dtypes and ranks of arrays when it compiles, and kernels are made for shapes. So what Numba calls looks the shapes up in a table
of kernels, by its address, and enters Python to make a kernel for shapes that it meets for the first time.
"""

# mypy: disable-error-code="no-untyped-call,override,misc,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError, kind_of
from gradtape.interruptions import raise_interruption
from gradtape.ir.expressions import dtype_name
from gradtape.ir.graph import Value
from gradtape.lower.llvm.writer import KERNEL
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.signature import CallArguments
from gradtape.trace.jit.specialisation import Specialisation

MOST_SHAPES: Final = 256
"""Rows of a table of kernels; those of shapes that come later take the place of others."""

EXTENTS: Final = (3, 2, 4, 5, 6, 8, 10, 1)
"""Of the arrays of examples, by which Numba learns what a function returns that Python has not called yet."""

MOST_CONSTANTS: Final = 16
"""Captured arrays of a kernel that `@njit` code calls."""


@cache
def type_class() -> Any:
    """Return the class of the types of compiled functions, and tell Numba what it has to know of it."""
    from numba.core import types
    from numba.core.imputils import lower_constant
    from numba.extending import NativeValue, models, register_model, unbox

    class JittedType(types.Callable):
        """A compiled function: calls of it are those of a function that Numba compiles for the types of the arguments."""

        def __init__(self, function: Any) -> None:
            self.function = function
            self._callers: dict[Any, Any] = {}
            super().__init__(f"gradtape.Jitted({function.site.name}, {id(function)})")

        def _caller(self, args: Sequence[Any]) -> Any:
            key = tuple([types.unliteral(arg) for arg in args])
            if key not in self._callers:
                self._callers[key] = _compiled_caller(self.function, key)
            return types.Dispatcher(self._callers[key])  # which holds it weakly

        def get_call_type(self, context: Any, args: Sequence[Any], kws: dict[str, Any]) -> Any:
            if kws:
                raise _refusal(f"{self.function.site.name} takes positional arguments in @njit code")
            return self._caller(args).get_call_type(context, args, kws)

        def get_call_signatures(self) -> tuple[tuple[Any, ...], bool]:
            return (), True

        def get_impl_key(self, sig: Any) -> Any:
            return self._caller(sig.args).get_impl_key(sig)

    register_model(JittedType)(models.OpaqueModel)

    @lower_constant(JittedType)
    def _constant(context: Any, builder: Any, type_: Any, value: Any) -> Any:
        return context.get_dummy_value()

    @unbox(JittedType)
    def _unbox(type_: Any, value: Any, c: Any) -> Any:
        return NativeValue(c.context.get_dummy_value())

    return JittedType


def numba_type(function: Any) -> Any:
    """Return the Numba type of a compiled function; each has its own."""
    return type_class()(function)


def _refusal(text: str) -> Exception:
    """Return the error by which Numba learns that a call cannot be compiled."""
    from numba.core.errors import TypingError

    return TypingError(f"gradtape: {text}")


class KernelTable:
    """The kernels of a function for arguments of given dtypes and ranks, by shape.

    Attributes
    ----------
    rows : ndarray of int64
        A row per kernel: the extents of the arguments and of the results, the address, the bytes of workspace, and the addresses of
        captured arrays. The first number of the last row says how many rows there are.
    prototype : Specialisation
        A trace for such arguments, which says what the results are.
    inputs : list of Value
        The inputs of its graph that are arguments.
    """

    def __init__(self, function: Any, prototype: Specialisation) -> None:
        self.function = function
        self.prototype = prototype
        self.inputs = arguments_of(prototype)
        extents = sum([value.ndim for value in (*self.inputs, *prototype.graph.outputs)])
        width = extents + 2 + MOST_CONSTANTS
        self.rows = np.zeros((MOST_SHAPES + 1, width), np.int64)
        self._entered = 0
        self._kept: list[Any] = [None] * MOST_SHAPES

    def add(self, *args: Any) -> int:
        """Enter the kernel for arguments like these, and return its row."""
        arguments = [np.ascontiguousarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        trace, hidden = trace_of(self.function, arguments)
        kinds = _kinds(self.prototype.graph.outputs)
        if trace is None or _kinds(trace.graph.outputs) != kinds:
            raise ArgumentError(
                f"{self.function.site.name} returns other types for these arguments than were declared to Numba",
                why="the ranks and dtypes of results, and their nesting, must be those of the first call",
            )
        constants = [*hidden, *[value.data for value in trace.graph.constants()]]
        if len(constants) > MOST_CONSTANTS:
            raise ArgumentError(
                f"{self.function.site.name} captures {len(constants)} arrays, and @njit code can pass {MOST_CONSTANTS}",
                remedy="make them arguments",
            )
        row = self._entered % MOST_SHAPES
        self._entered += 1
        loaded = trace.program.kernel.loaded
        extents = [n for value in (*arguments_of(trace), *trace.graph.outputs) for n in value.shape]
        address = 0 if loaded is None else loaded.address(KERNEL)
        addresses = [0 if data is None else data.ctypes.data for data in constants]
        numbers = [*extents, address, trace.program.kernel.workspace, *addresses]
        self._kept[row] = trace, hidden
        self.rows[row, : len(numbers)] = numbers
        self.rows[MOST_SHAPES, 0] = min(self._entered, MOST_SHAPES)
        return row

    def call(self, *args: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the results of a call that no kernel has answered, or raise its error; numbers are arrays of one element."""
        leaves = self.prototype.spec.flatten_up_to(self.function(*args))
        arrays = [np.ascontiguousarray(leaf) for leaf in leaves]  # of rank 1 at least
        return tuple(arrays)


def trace_of(function: Any, args: Sequence[Any]) -> tuple[Specialisation | None, list[np.ndarray[Any, Any]]]:
    """Return the trace for a call whose kernel takes the arguments one by one, None if there is none; and what it reads from outside.

    The kernel takes the latter after the arguments. Arrays that a closure or a global variable holds are taken as they are now.
    """
    site: CallSite = function.site
    site.call(tuple(args), {})
    trace_and_hidden = site.kernel_call(CallArguments(tuple(args), {}, site.static))
    if trace_and_hidden is None or not _is_straight(trace_and_hidden[0]):
        return None, []
    return trace_and_hidden


def arguments_of(trace: Specialisation) -> Sequence[Value]:
    """Return the inputs of the graph of a trace that are arguments of the call."""
    return trace.graph.inputs[: len(trace.graph.inputs) - len(trace.inputs)]


def _is_straight(trace: Specialisation) -> bool:
    return (
        trace.native is not None
        and not trace.state.assigned
        and not trace.state.read
        and len(arguments_of(trace)) == trace.native.leaves == len(trace.native.passed)
        and list(trace.outputs) == list(range(len(trace.graph.outputs)))
    )


def _kinds(values: Sequence[Any]) -> list[Any]:
    return [(value.dtype, value.ndim) for value in values]


def _prototype(function: Any, args: Sequence[Any]) -> Specialisation:
    """Return a trace for arguments of Numba's types."""
    from numba.core import types
    from numba.np.numpy_support import as_dtype

    kinds = []
    for arg in args:
        is_array = isinstance(arg, types.Array)
        if not is_array and not isinstance(arg, types.Number | types.Boolean):
            raise _refusal(f"an argument of {function.site.name} is {arg}, not an array or a number")
        kinds.append((as_dtype(arg.dtype if is_array else arg), arg.ndim if is_array else 0))
    trace = _known_trace(function, kinds) or _example_trace(function, kinds)
    if trace is not None:
        return trace
    shown = ", ".join([str(arg) for arg in args])
    raise _refusal(
        f"{function.site.name} has no trace for ({shown}): call it once from Python with such arguments, so that its results are known"
    )


def _known_trace(function: Any, kinds: list[Any]) -> Specialisation | None:
    """Return a trace for arguments of these dtypes and ranks."""
    site: CallSite = function.site
    for states in site.signatures.values():
        for trace in states.all():
            if _is_straight(trace) and _kinds(arguments_of(trace)) == kinds:
                return trace
    return None


def _example_trace(function: Any, kinds: list[Any]) -> Specialisation | None:
    """Return a trace of an example: all extents are the same, one of a few numbers with which the function can be traced.

    Of a trace only the dtypes and ranks of the results matter here.
    """
    ranks = [ndim for _, ndim in kinds]
    for extent in EXTENTS if any(ranks) else EXTENTS[:1]:
        arguments = [
            np.ones((extent,) * ndim, dtype) if ndim else dtype.type(1).item() for dtype, ndim in kinds
        ]
        try:
            function.site.prepare(CallArguments(tuple(arguments), {}, function.site.static))
        except Exception as error:  # the shapes do not fit: a trace of the right ones would raise it again
            raise_interruption(error)
            continue
        trace = _known_trace(function, kinds)
        if trace is not None:
            return trace
    return None


def _compiled_caller(function: Any, args: Sequence[Any]) -> Any:
    """Return the function that Numba calls for arguments of these types."""
    import numba

    table = KernelTable(function, _prototype(function, args))
    names: dict[str, Any] = {
        "np": np,
        "numba": numba,
        "table": table,
        "kernel_rows": _address_of(table.rows),
        "call_kernel": _kernel_call(),
    }
    exec(caller_source(table), names)
    return names["call"]


def caller_source(table: KernelTable) -> str:
    """Return the Python of the function that Numba calls: it finds the kernel for the shapes, and allocates the results.

    Numba allows one block of Python in a function.
    """
    inputs, outputs = table.inputs, table.prototype.graph.outputs
    parameters, results = [f"x{k}" for k in range(len(inputs))], [f"y{k}" for k in range(len(outputs))]
    arguments, made = ", ".join(parameters), "".join([f"{name}, " for name in results])
    kinds = ", ".join(
        [
            f"{name}='{value.dtype.name}[{':, ' * max(value.ndim - 1, 0)}::1]'"
            for name, value in zip(results, outputs, strict=True)
        ]
    )
    allocations, tests, column = [], [], 0
    for name, value in zip(parameters, inputs, strict=True):
        tests += [f"rows[k, {column + axis}] == {name}.shape[{axis}]" for axis in range(value.ndim)]
        column += value.ndim
        number = f"np.full(1, {name}, {dtype_name(value.dtype)})"
        allocations.append(f"{name}_array = {f'np.ascontiguousarray({name})' if value.ndim else number}")
    for name, value in zip(results, outputs, strict=True):
        extents = ", ".join([f"rows[row, {column + axis}]" for axis in range(value.ndim)]) or "1"
        column += value.ndim
        allocations.append(f"{name} = np.empty(({extents},), {dtype_name(value.dtype)})")
    leaves = [name if value.ndim else f"{name}[0]" for name, value in zip(results, outputs, strict=True)]
    arrays = "".join([f"{name}_array, " for name in parameters])
    return f"""\
@numba.njit
def add_row({arguments}):
    with numba.objmode(row="int64"):
        row = table.add({arguments})
    return row

@numba.njit
def call_python({arguments}):
    with numba.objmode({kinds}):
        {made} = table.call({arguments})
    return ({made})

@numba.njit
def call({arguments}):
    rows = numba.carray(kernel_rows(), {table.rows.shape})
    row = -1
    for k in range(rows[{MOST_SHAPES}, 0]):
        if {" and ".join(tests) or "True"}:
            row = k
            break
    if row < 0:
        row = add_row({arguments})
    {"; ".join(allocations)}
    scratch = np.empty(rows[row, {column + 1}] + 64, np.uint8)
    status = call_kernel(rows[row, {column}], ({arrays}), ({made}), rows[row, {column + 2}:], scratch)
    if status != 0:
        ({made}) = call_python({arguments})
    return {_nested(table.prototype.spec.unflatten(leaves))}
"""


def _nested(tree: Any) -> str:
    """Return the text of nested tuples of texts."""
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, tuple | list):
        raise _refusal(f"a function that returns {kind_of(tree)} cannot be called from @njit code")
    return f"({''.join([_nested(part) + ', ' for part in tree])})"


def _address_of(rows: np.ndarray[Any, Any]) -> Any:
    """Return an intrinsic for the address of an array, because of which Numba does not keep the code on the disk."""
    from numba.core import types
    from numba.extending import intrinsic

    address = rows.ctypes.data

    @intrinsic
    def kernel_rows(typing_context: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = context.add_dynamic_addr(builder, address, info="kernels of gradtape")
            return builder.bitcast(pointer, context.get_value_type(signature.return_type))

        return types.CPointer(types.int64)(), emit

    return kernel_rows


@cache
def _kernel_call() -> Any:
    """Return the intrinsic that calls a kernel: with its address, tuples of arrays, the addresses of constants, and scratch memory.

    Where the address is 0 there is no machine code, and the status is 1.
    """
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic
    def call_kernel(
        typing_context: Any, address: Any, inputs: Any, outputs: Any, constants: Any, scratch: Any
    ) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(64)
            status_type = ir.IntType(32)

            def data(type_: Any, array: Any) -> Any:
                pointer = context.make_array(type_)(context, builder, array).data
                return builder.bitcast(pointer, byte)

            def pointers(type_: Any, value: Any) -> list[Any]:
                arrays = cgutils.unpack_tuple(builder, value, len(type_))
                return [data(t, array) for t, array in zip(type_, arrays, strict=True)]

            def table_of(entries: list[Any]) -> Any:
                table = cgutils.alloca_once(builder, byte, size=max(len(entries), 1))
                for number, entry in enumerate(entries):
                    slot = builder.gep(table, [ir.Constant(word, number)])
                    builder.store(entry, slot)
                return table

            _, input_types, output_types, constants_type, scratch_type = signature.args
            where, operands, outputs, constants, room = args
            first = builder.bitcast(data(constants_type, constants), word.as_pointer())
            captured = [
                builder.inttoptr(builder.load(builder.gep(first, [ir.Constant(word, k)])), byte)
                for k in range(MOST_CONSTANTS)
            ]
            sources = table_of([*pointers(input_types, operands), *captured])
            targets = table_of(pointers(output_types, outputs))
            start = builder.ptrtoint(data(scratch_type, room), word)
            aligned = builder.and_(builder.add(start, ir.Constant(word, 63)), ir.Constant(word, -64))
            signature_ = ir.FunctionType(status_type, [byte.as_pointer(), byte.as_pointer(), byte])
            status = cgutils.alloca_once_value(builder, ir.Constant(status_type, 1))
            with builder.if_then(builder.icmp_signed("!=", where, ir.Constant(word, 0))):
                function = builder.inttoptr(where, signature_.as_pointer())
                answer = builder.call(function, [sources, targets, builder.inttoptr(aligned, byte)])
                builder.store(answer, status)
            return builder.load(status)

        return types.int32(address, inputs, outputs, constants, scratch), emit

    return call_kernel
