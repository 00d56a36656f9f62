"""Calls of the ufuncs of `scipy.special`: by the address of a function on doubles, or by that of a loop for one element."""

from __future__ import annotations

import numpy as np

from gradtape.kinds.elementwise import SciPy
from gradtape.loops.ir import Dtype
from gradtape.lower.llvm.writer import PURE, FunctionWriter, ModuleWriter
from gradtape.lower.resident.errors import RAISED
from gradtape.lower.target.symbols import LOOPS, find_loop, has_loop_data, special_function


def emit_special(
    writer: FunctionWriter, body: SciPy, dtypes: tuple[Dtype, ...], operands: tuple[str, ...]
) -> str:
    """Return the call of a special function as a double; float32 operands are widened."""
    module = writer.module
    given: list[str] = []
    types: list[str] = []
    for dtype, operand in zip(dtypes, operands, strict=True):
        wide = writer.let(f"fpext float {operand} to double") if dtype.char == "f" else operand
        type_ = "double" if dtype.kind == "f" else f"i{dtype.itemsize * 8}"
        given.append(f"{type_} {wide}")
        types.append("d" if dtype.kind == "f" else dtype.char)
    plain = body.output is None and not body.loop and set(types) == {"d"}
    symbol = special_function(body.name) if plain else None
    group = module.attribute(PURE)
    if symbol is not None:
        module.bind(symbol)
        module.declare(f'declare double @"{symbol}"({", ".join(["double"] * len(given))}) #{group}')
        return f'call double @"{symbol}"({", ".join(given)}) #{group}'
    loop = body.loop or find_loop(body.name, "".join(types))
    symbol, results = _add_call_of_loop(module, body, loop)
    group = module.attribute(f"{PURE} noinline")
    found = writer.let(f'call {results} @"{symbol}"({", ".join(given)}) #{group}')
    before = loop.partition("->")[2][: body.output or 0].replace("D", "DD")
    return f"extractvalue {results} {found}, {len(before) + (body.part == 'imag')}"


def _add_call_of_loop(module: ModuleWriter, body: SciPy, loop: str) -> tuple[str, str]:
    """Add a function to a module that runs a ufunc's loop on one element, and return its symbol and the type of its results.

    The loop has NumPy's signature: ``void (char **args, intp *count, intp *strides, void *data)``. All results are returned, so that LLVM
    merges the calls for several of them, or for both parts of one.
    """
    symbol = f"special.{body.name}.{loop}"
    kinds, _, results = loop.partition("->")
    places = [(k, part) for k, kind in enumerate(results) for part in range(2 if kind == "D" else 1)]
    type_ = f"{{ {', '.join(['double'] * len(places))} }}"
    if symbol in module.helpers:
        return symbol, type_
    function, data = f"{LOOPS}{body.name}.{loop}", "null"
    if body.may_raise:
        module.bind(RAISED)
    module.declare(f'declare void @"{function}"(ptr, ptr, ptr, ptr)')
    module.bind(function)
    if has_loop_data(body.name, loop):
        data = f'@"{function}.data"'
        module.declare(f"{data} = external global i8")
        module.bind(f"{function}.data")
    writer = FunctionWriter(module)
    pointers: list[str] = []
    parameters: list[str] = []
    for kind in kinds:
        operand = _type(kind)
        place = writer.slot(f"[2 x {operand}]")
        for part in range(2 if kind == "D" else 1):
            name = f"%x{len(parameters)}"
            writer.store(operand, name, writer.offset(place, 8 * part))
            parameters.append(f"{operand} {name}")
        pointers.append(place)
    pointers += [writer.slot("[2 x double]") for _ in results]
    args = writer.slot(f"[{len(pointers)} x ptr]")
    for position, pointer in enumerate(pointers):
        writer.store("ptr", pointer, writer.offset(args, 8 * position))
    count = writer.slot("i64", initial="1")
    strides = writer.slot(f"[{len(pointers)} x i64]", initial="zeroinitializer")
    writer.emit(f'call void @"{function}"(ptr {args}, ptr {count}, ptr {strides}, ptr {data})')
    whole = "poison"
    for number, (k, part) in enumerate(places):
        result = writer.load("double", pointers[len(kinds) + k], 8 * part)
        whole = writer.let(f"insertvalue {type_} {whole}, double {result}, {number}")
    group = module.attribute(f"{PURE} noinline")
    header = f'define internal {type_} @"{symbol}"({", ".join(parameters)}) #{group}'
    module.helpers[symbol] = writer.text(header, f"  ret {type_} {whole}")
    return symbol, type_


def _type(kind: str) -> str:
    return "double" if kind in "dD" else f"i{np.dtype(kind).itemsize * 8}"
