"""Numbers, positions and primitives as C expressions.

An operation of a row is written as what the machine does: from the same `body` as in LLVM's notation. Operands are names and numbers, so
that no operator needs parentheses. Integers wrap around as NumPy's do: C leaves that open for signed ones, which are computed as unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.kinds.elementwise import Instruction, Intrinsic, Libm, SciPy
from gradtape.loops.affine import Affine, Atom, Clamped, Position, Quotient, Remainder, Var
from gradtape.loops.ir import Dtype

Helper = Callable[..., str]
"""Adds a function of the folder ``routines`` to the file, for the values of its places, and returns its name."""


def c_type(dtype: Dtype) -> str:
    """Return the C type of an element.

    Examples
    --------
    >>> c_type(np.dtype("f8")), c_type(np.dtype("u2")), c_type(np.dtype("?"))
    ('double', 'uint16_t', 'bool')
    """
    if dtype.kind == "f":
        if dtype.itemsize not in (4, 8):
            raise LoweringError(f"C has no type that is {dtype.name}", remedy="use float64 or float32")
        return "double" if dtype.itemsize == 8 else "float"
    return "bool" if dtype.kind == "b" else f"{dtype.name}_t"


def constant_text(value: Any, dtype: Dtype) -> str:
    """Return a number in C's notation, which C reads back as the same bits.

    Examples
    --------
    >>> constant_text(0.1, np.dtype("f8")), constant_text(-2, np.dtype("f4")), constant_text(-3, np.dtype("i8"))
    ('0.1', '-2.0f', '-3')
    """
    number = np.asarray(value, dtype)[()]
    if dtype.kind == "f":
        if not np.isfinite(number):
            return "NAN" if np.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
        text = repr(number.item()) if dtype.itemsize == 8 else str(number)
        text = text if any(letter in text for letter in ".e") else f"{text}.0"
        return text if dtype.itemsize == 8 else f"{text}f"
    if dtype.kind == "b":
        return "true" if number else "false"
    if dtype.kind == "u":
        return f"UINT64_C({number})" if dtype.itemsize == 8 else f"{number}u"
    if dtype.itemsize == 8 and int(number) == -(2**63):
        return "INT64_MIN"
    return str(number) if abs(int(number)) < 2**31 else f"INT64_C({number})"


# Positions


def position_text(position: Position, helper: Helper) -> str:
    """Return a position."""
    if isinstance(position, int):
        return str(position)
    text = ""
    for atom, factor in position.terms.items():
        name = _atom(atom, helper)
        size = name if abs(factor) == 1 else f"{abs(factor)} * {name}"
        text += (("-" if factor < 0 else "") if not text else " - " if factor < 0 else " + ") + size
    if position.offset:
        text += f" {'-' if position.offset < 0 else '+'} {abs(position.offset)}"
    return text


def _atom(atom: Atom, helper: Helper) -> str:
    if isinstance(atom, Var):
        return atom.name
    whole = position_text(atom.whole, helper)
    if isinstance(atom, Clamped):
        return f"{helper('clamped')}({whole}, {atom.low}, {atom.high})"
    if atom.whole.low >= 0:
        inner = f"({whole})" if _is_sum(atom.whole) else whole
        return f"({inner} {'/' if isinstance(atom, Quotient) else '%'} {atom.divisor})"
    return _floored(atom, whole)


def _floored(atom: Quotient | Remainder, whole: str) -> str:
    """Return a quotient that is rounded down: C rounds towards zero, so a multiple of the divisor is added."""
    shift = -(atom.whole.low // atom.divisor)
    raised = f"({whole} + {shift * atom.divisor})"
    if isinstance(atom, Remainder):
        return f"({raised} % {atom.divisor})"
    return f"({raised} / {atom.divisor} - {shift})"


def _is_sum(whole: Affine) -> bool:
    return len(whole.terms) > 1 or bool(whole.offset) or any(factor != 1 for factor in whole.terms.values())


# Primitives

_REAL: Final = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
_ARITHMETIC: Final = {"add": "+", "sub": "-", "mul": "*", "sdiv": "/", "udiv": "/", "srem": "%", "urem": "%"}
_BITS: Final = {"and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>", "lshr": ">>"}
_OPERATORS: Final = {**_REAL, **_ARITHMETIC, **_BITS}
_LOGICAL: Final = {"and": "&&", "or": "||", "xor": "!="}
_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

_WRAPPING: Final = frozenset(("add", "sub", "mul", "shl"))

_FUNCTIONS: Final = {
    f"llvm.{name}": name for name in ("sqrt", "fabs", "copysign", "rint", "floor", "ceil", "trunc", "fma")
}
"""LLVM's intrinsics on floats that are functions of C of the same name."""

_HELPERS: Final = {
    "llvm.maximum": "maximum",
    "llvm.minimum": "minimum",
    "llvm.smax": "larger",
    "llvm.umax": "larger",
    "llvm.smin": "smaller",
    "llvm.umin": "smaller",
    "llvm.ctpop": "bit_count",
}
"""The others, with the function of the folder ``routines``."""

_SPECIAL: Final = {"gamma": "tgamma", "gammaln": "lgamma"}
"""Functions of `scipy.special` that the mathematical library of C has, too."""

_OWN_SPECIAL: Final = {"psi": "psi"}
"""Those of which the folder ``routines`` has a version."""


def operation(
    name: str,
    body: Any,
    dtypes: Sequence[Dtype],
    out: Dtype,
    args: Sequence[str],
    helper: Helper,
) -> str:
    """Return a row applied to operands: names and numbers.

    Parameters
    ----------
    name : str
        Of the row, for messages.
    body : Instruction, Intrinsic, Libm, SciPy or None
        What the machine does.
    dtypes : sequence of dtype
        Of the operands.
    out : dtype
        Of the result.
    args : sequence of str
        The operands.
    helper : callable
        Adds functions to the file.

    Raises
    ------
    LoweringError
        For functions that C does not have.
    """
    if body is None:
        return args[0]
    if isinstance(body, Instruction):
        return _instruction(name, body, dtypes, out, args, helper)
    if isinstance(body, Intrinsic):
        function = body.real if dtypes[0].kind == "f" else body.integer
        return _called(name, function, dtypes[0], args, helper)
    if isinstance(body, Libm):
        return _of_c(body.name, out, args)
    if isinstance(body, SciPy) and body[1:] == (None, "", ""):
        if body.name in _SPECIAL:
            return _in_double(_SPECIAL[body.name], out, args)
        if body.name in _OWN_SPECIAL:
            return _in_double(helper(_OWN_SPECIAL[body.name]), out, args)
    raise _missing(name, f"scipy.special.{body.name}" if isinstance(body, SciPy) else repr(body))


def _missing(name: str, function: str) -> LoweringError:
    return LoweringError(
        f"{name} cannot be exported as C",
        why=f"it calls {function}, which is not in the C library",
        remedy="export a .gradtape file, which gt.load runs with SciPy, or compute it outside and pass it as an argument",
    )


def _of_c(function: str, out: Dtype, args: Sequence[str]) -> str:
    """Return the call of a function of the C library in the precision of its result."""
    suffix = "f" if out.kind == "f" and out.itemsize == 4 else ""
    return f"{function}{suffix}({', '.join(args)})"


def _in_double(function: str, out: Dtype, args: Sequence[str]) -> str:
    text = f"{function}({', '.join(args)})"
    return text if out.itemsize == 8 else f"(float){text}"


def _called(name: str, function: str | None, dtype: Dtype, args: Sequence[str], helper: Helper) -> str:
    """Return the call of an intrinsic."""
    if function in _FUNCTIONS:
        return _of_c(_FUNCTIONS[function], dtype, args)
    if function in _HELPERS:
        return f"{helper(_HELPERS[function], T=c_type(dtype), dtype=dtype.name)}({', '.join(args)})"
    raise _missing(name, str(function))


def _instruction(
    name: str, body: Instruction, dtypes: Sequence[Dtype], out: Dtype, args: Sequence[str], helper: Helper
) -> str:
    dtype = dtypes[0]
    if "select" in (body.real, body.signed):
        return f"{args[0]} ? {args[1]} : {args[2]}"
    kind = {"f": "real", "i": "signed", "u": "unsigned", "b": "boolean"}[dtype.kind]
    instruction = getattr(body, kind)
    if instruction is None:
        raise _missing(name, f"an instruction for {dtype.name}")
    if instruction == "convert":
        return _converted(dtype, out, args[0])
    if instruction.startswith("llvm."):
        return _called(name, instruction, dtype, args, helper)
    if instruction.startswith(("fcmp ", "icmp ")):
        return f"{args[0]} {_COMPARISONS[instruction[-2:]]} {args[1]}"
    if instruction == "fneg":
        return f"-{_atomic(args[0])}"
    if instruction == "frem":
        return _of_c("fmod", dtype, args)
    if kind == "real":
        return f"{args[0]} {_OPERATORS[instruction]} {args[1]}"
    if kind == "boolean":
        return f"!{args[0]}" if instruction == "not" else f"{args[0]} {_LOGICAL[instruction]} {args[1]}"
    return _of_integers(instruction, dtype, args)


def _of_integers(instruction: str, dtype: Dtype, args: Sequence[str]) -> str:
    """Return arithmetic on integers: what may wrap around is computed without a sign, in at least 32 bits."""
    type_ = c_type(dtype)
    bare = f"uint{8 * max(dtype.itemsize, 4)}_t"
    if instruction == "neg":
        return f"({type_})(0u - ({bare}){_atomic(args[0])})"
    if instruction == "not":
        return f"({type_})~{_atomic(args[0])}"
    symbol = _OPERATORS[instruction]
    if instruction in _WRAPPING:
        first, second = (f"({bare}){_atomic(arg)}" for arg in args)
        return f"({type_})({first} {symbol} {second})"
    text = f"{args[0]} {symbol} {args[1]}"
    return text if dtype.itemsize >= 4 else f"({type_})({text})"


def _atomic(operand: str) -> str:
    """Return an operand to which a prefix can be added."""
    return operand if operand.replace("_", "").isalnum() else f"({operand})"


def _converted(source: Dtype, target: Dtype, operand: str) -> str:
    if target.kind == "b":
        return operand if source.kind == "b" else f"{operand} != 0"
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 8:
        wide = "int64_t" if target.kind == "u" and target.itemsize == 4 else "int32_t"
        return f"({c_type(target)})({wide}){_atomic(operand)}"
    return f"({c_type(target)}){_atomic(operand)}"
