"""Calls of Python from kernels: a kernel names a row, its parameters and the types of its operands, and passes their addresses.

What a kernel passes is text, so that object code from the disk cache serves other processes.
"""

from __future__ import annotations

import ast
import ctypes
import functools
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.interruptions import raise_interruption
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Node, extract
from gradtape.ir.op import NDArray
from gradtape.ir.site import Site
from gradtape.ir.types import whole_dtype
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import falls_back, python_call
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.interrupts import keep_address
from gradtape.lower.resident.routine import load_resident
from gradtape.procedures.traversal import roots
from gradtape.reference_counts import keep_for_ever
from gradtape.transforms.procedures.ops import ProcedureOp

CALL_PYTHON: Final = "gradtape.call_python"
"""The symbol of the routine ``int32_t (const char *call, void **operands)``.

It returns 0; 1 for an error, which the interpreter raises again; and `INTERRUPTED` for what a signal handler has raised, and for exceptions
that are no `Exception`.
"""


@functools.lru_cache(maxsize=1024)
def _array_type(kind: Any, count: int) -> Any:
    """Return a type of ctypes, which is made anew, as a cycle of references, where nothing keeps it."""
    return kind * count


class _Operand(NamedTuple):
    """The shape, the dtype and the number of bytes of an operand or a result."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    def array(self, address: int) -> NDArray:
        memory = memoryview(_array_type(ctypes.c_char, self.nbytes).from_address(address)).cast("B")
        return np.ndarray(self.shape, self.dtype, memory)


def call_text(node: Node) -> str:
    """Return what a kernel says of a node that Python computes."""
    types = [[(value.shape, value.dtype.str) for value in values] for values in (node.inputs, node.outs)]
    return repr((node.params, *types))


class Fallback(NamedTuple):
    """A row that a kernel has no code for, and the dtypes of its operands: Python computes it.

    Attributes
    ----------
    row : str
    dtypes : tuple of str
    """

    row: str
    dtypes: tuple[str, ...]


def fallbacks(calls: Iterable[str]) -> tuple[Fallback, ...]:
    """Return the rows that kernels call Python for because they have no code, given what `call_text` returned."""
    found: dict[Fallback, None] = {}
    for call in calls:
        params, inputs, _ = _read(call.encode())
        if not falls_back(ROWS[params["row"]]):
            continue
        given = iter(inputs)
        dtypes = []
        for form in params["packed"]:
            dtype = next(given).dtype
            if form == 2:
                next(given)
            dtypes.append(whole_dtype(dtype).name if form else dtype.name)
        found[Fallback(params["row"], tuple(dtypes))] = None
    return tuple(found)


def site_of_row(nodes: Iterable[Node], row: str, dtypes: tuple[str, ...] | None = None) -> Site | None:
    """Return the line of the first node of a row, with operands of these dtypes; None where the formula of another row uses it."""
    for node in nodes:
        if node.op.name == row and dtypes in (None, tuple([x.dtype.name for x in node.inputs])):
            found: Site | None = node.site
            return found
        inner: list[Sequence[Node]] = [body.nodes for body in bodies_of(node)]
        if isinstance(node.op, ProcedureOp):
            inner.append(extract(roots(node.op.whole(node.params).procedure))[0])
        for nodes_inside in inner:
            site = site_of_row(nodes_inside, row, dtypes)
            if site is not None:
                return site
    return None


@functools.lru_cache(maxsize=1024)
def _read(call: bytes) -> tuple[dict[str, Any], list[_Operand], list[_Operand]]:
    params, *types = ast.literal_eval(call.decode())
    inputs, outs = [
        [_Operand(shape, np.dtype(dtype), prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in each]
        for each in types
    ]
    return params, inputs, outs


def _run(call: bytes, table: int) -> int:
    try:
        params, inputs, outs = _read(call)
        addresses = _array_type(ctypes.c_void_p, len(inputs) + len(outs)).from_address(table)
        arrays = [
            operand.array(addresses[k] or 0) if operand.nbytes else np.empty(operand.shape, operand.dtype)
            for k, operand in enumerate(inputs)
        ]
        made = python_call.evaluate(arrays, params)
        for k, (operand, result) in enumerate(zip(outs, made, strict=True), len(inputs)):
            if operand.nbytes:
                operand.array(addresses[k] or 0)[...] = result
    except Exception as error:  # the interpreter computes the row again, and raises the error
        raise_interruption(error)
        return 1
    return 0


@functools.cache
def call_python_address() -> int:
    """Return the address of the routine that kernels call as `CALL_PYTHON`.

    It is no callback of ctypes: a signal handler may raise before the first instruction of `_run`, where no clause can catch it, and
    ctypes drops such an exception.

    Examples
    --------
    >>> call_python_address() == call_python_address() != 0
    True
    """
    text = read_ll(__package__, "call_python.ll", run=id(keep_for_ever(_run)))
    return load_resident(text, CALL_PYTHON, ("call_python",), {"keep": keep_address()})["call_python"]
