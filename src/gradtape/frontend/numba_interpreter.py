"""Numba's interpreter of bytecode, with what it leaves out.

Added are functions that name themselves or each other before they are defined, defaults of arguments by keyword only, targets with a
star, and assignments inside expressions. Numba is imported here when the first function is translated, and nowhere else.
"""

from __future__ import annotations

import dis
import types
from collections import Counter
from functools import cache
from typing import Any


def numba_ir(function: types.FunctionType) -> Any:
    """Return what Numba's interpreter makes of a function: blocks of statements."""
    from numba.core import bytecode, postproc

    identity: Any = bytecode.FunctionIdentity
    code: Any = bytecode.ByteCode
    post: Any = postproc.PostProcessor
    given = identity.from_function(function)
    interpreter = _interpreter_class()(given)
    interpreter.stars = {}
    found = code(func_id=given)
    for instruction in found.table.values():
        if (
            instruction.opname == "UNPACK_EX"
        ):  # moves the stack as the unpacking of as many items without a star
            before, after = instruction.arg & 0xFF, instruction.arg >> 8
            interpreter.stars[instruction.offset] = before, after
            instruction.opname, instruction.arg = "UNPACK_SEQUENCE", before + 1 + after
            instruction.opcode = dis.opmap[instruction.opname]
    read = interpreter.interpret(found)
    post(read).run(False)
    return read


@cache
def _interpreter_class() -> Any:
    from numba.core.interpreter import Interpreter

    methods = {
        "op_LOAD_CLOSURE": _load_closure,
        "op_LOAD_DEREF": _load_shared,
        "op_LOAD_FAST": _load_local,
        "op_LOAD_FAST_BORROW": _load_local,
        "op_MAKE_FUNCTION": _make_function,
        "op_UNPACK_SEQUENCE": _unpack,
        "_remove_unused_temporaries": _remove_unused,
    }
    return type("Interpreter", (Interpreter,), {"plain": Interpreter, **methods})


def _load_closure(self: Any, inst: Any, res: str) -> None:
    """Load a cell: which variables a function shares says its code."""
    from numba.core import ir

    constant: Any = ir.Const
    self.store(constant(None, self.loc), res)


def _load_local(self: Any, inst: Any, res: str, **options: Any) -> None:
    """Load a local variable, or, since Python 3.13, a cell: contents of cells are loaded by ``LOAD_DEREF``."""
    name = self.func_id.func.__code__._varname_from_oparg(inst.arg)
    if name in self.code_cellvars or name in self.code_freevars:
        _load_closure(self, inst, res)
    else:
        self.plain.op_LOAD_FAST(self, inst, res, **options)


def _load_shared(self: Any, inst: Any, res: str) -> None:
    """Load a variable that functions share, which another one may have assigned."""
    name = self.func_id.func.__code__._varname_from_oparg(inst.arg)
    if name in self.code_cellvars:
        self.store(self.current_scope.get_or_define(name, self.loc), res)
    else:
        self.plain.op_LOAD_DEREF(self, inst, res)


def _make_function(self: Any, inst: Any, kwdefaults: str | None, **parts: Any) -> None:
    """Make a function; the defaults of arguments by keyword only are variables, by name."""
    self.plain.op_MAKE_FUNCTION(self, inst, kwdefaults=None, **parts)
    made = self.definitions[self.get(parts["res"]).name][-1]
    made.keywords = {}
    if kwdefaults is not None:
        table = self.definitions[self.get(kwdefaults).name][0]
        statements = self.current_block.body
        statements[:] = [one for one in statements if getattr(one, "value", None) is not table]
        made.keywords = {self.definitions[key.name][0].value: value for key, value in table.items}


def _unpack(self: Any, inst: Any, iterable: str, stores: list[str], tupleobj: str) -> None:
    """Unpack a sequence; the count of what is before and after a target with a star stands in place of the count."""
    self.plain.op_UNPACK_SEQUENCE(self, inst, iterable, stores, tupleobj)
    star = self.stars.get(inst.offset)
    if star is not None:
        self.definitions[self.get(tupleobj).name][-1].count = star


def _remove_unused(self: Any) -> None:
    """Remove temporaries from a block, unless one is stored to a name and read again, as that of ``(y := f(x)) > 0``."""
    from numba.core import ir

    body = self.current_block.body
    copies = [one.value for one in body if isinstance(one, ir.Assign) and isinstance(one.value, ir.Var)]
    reads = Counter([variable.name for statement in body for variable in _read(statement)])
    if all(reads[source.name] < 2 for source in copies if source.is_temp):
        self.plain._remove_unused_temporaries(self)
        return
    unused = self.assigner.unused_dests
    body[:] = [one for one in body if not (isinstance(one, ir.Assign) and one.target.name in unused)]


def _read(statement: Any) -> list[Any]:
    """Return the variables that a statement reads."""
    from numba.core import ir

    value = statement.value if isinstance(statement, ir.Assign) else statement
    if isinstance(value, ir.Var):
        return [value]
    variables: list[Any] = value.list_vars() if hasattr(value, "list_vars") else []
    return variables
