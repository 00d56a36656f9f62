"""LLVM types, constants, and instructions of single operations."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.varying import code_is_shared
from gradtape.kinds.elementwise import Instruction, Intrinsic, Libm
from gradtape.loops.ir import Const, Dtype, const
from gradtape.lower.target.host import has_fused_multiply_add
from gradtape.lower.target.vecmath import c_name

_MEMORY: Final = {
    "?": "i8",
    "b": "i8",
    "B": "i8",
    "h": "i16",
    "H": "i16",
    "f": "float",
    "d": "double",
}
_FLAGGED: Final = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem", "fneg"))
_EXTREMA: Final = frozenset(("llvm.maximum", "llvm.minimum"))


def memory_type(dtype: Dtype) -> str:
    """Return the LLVM type of an element in memory."""
    return _MEMORY.get(dtype.char) or f"i{dtype.itemsize * 8}"


def register_type(dtype: Dtype) -> str:
    """Return the LLVM type of a number in a register."""
    return "i1" if dtype.kind == "b" else memory_type(dtype)


def constant_text(number: Const) -> str:
    """Return a constant in LLVM's notation; floats are written as their bits."""
    value = number.value
    if number.dtype.kind == "f":
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(value)))
        return f"0x{bits:016X}"
    if number.dtype.kind == "b":
        return "true" if value else "false"
    return str(int(value))


def operation(
    body: Any, dtypes: tuple[Dtype, ...], out: Dtype, args: tuple[str, ...], reassociate: bool
) -> str:
    """Return the right-hand side of an instruction that applies `body` to operands of these dtypes."""
    if isinstance(body, Instruction):
        return _instruction(body, dtypes, out, args, reassociate)
    if isinstance(body, Intrinsic):
        name = body.real if dtypes[0].kind == "f" else body.integer
        if name is None:
            raise LoweringError(f"no intrinsic for {dtypes[0].name} operands")
        return _intrinsic(name, dtypes, out, args)
    if isinstance(body, Libm):
        typed = ", ".join(f"{register_type(dtype)} {arg}" for dtype, arg in zip(dtypes, args, strict=True))
        return f"call {register_type(out)} @{c_name(body.name, out)}({typed})"
    raise LoweringError(f"{body!r} is not a primitive")


def reciprocal(body: Any, out: Dtype, divisor: str) -> tuple[str, str] | None:
    """Return the reciprocal of a constant divisor as a sum of two constants, by which to multiply instead; None where that is no use.

    ``fma(x, high, x * low)`` is ``x / divisor``, rounded once: the sum is right to more than 100 bits. Where ``x * low`` is
    subnormal, the result may be the other neighbour. A quotient takes eight times as long.

    The first part is rounded towards zero, so that infinities and zeros keep their signs. After N. Brisebarre, J. Muller and S. Raina,
    "Accelerating correctly rounded floating-point division when the divisor is known in advance", IEEE Transactions on Computers 53, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> divide = Instruction(real="fdiv")
    >>> reciprocal(divide, np.dtype(float), "%x"), reciprocal(divide, np.dtype(float), "0x4000000000000000")  # a power of 2
    (None, None)
    """
    if not isinstance(body, Instruction) or body.real != "fdiv" or out.char not in "fd":
        return None
    if not divisor.startswith("0x") or not has_fused_multiply_add():
        return None
    (number,) = struct.unpack("<d", struct.pack("<Q", int(divisor, 16)))
    limit = float(np.sqrt(np.finfo(out).max))
    if not 1.0 / limit < abs(number) < limit or (code_is_shared() and number.is_integer()):
        return None  # what is whole may be a length
    exact = 1 / Fraction(number)
    high = out.type(float(exact))
    if abs(Fraction(float(high))) > abs(exact):
        high = np.nextafter(high, out.type(0.0))
    low = out.type(float(exact - Fraction(float(high))))
    if low == 0.0:
        return None
    return constant_text(const(high, out)), constant_text(const(low, out))


def _class(dtype: Dtype) -> str:
    return {"f": "real", "i": "signed", "u": "unsigned", "b": "boolean"}[dtype.kind]


def _instruction(
    body: Instruction, dtypes: tuple[Dtype, ...], out: Dtype, args: tuple[str, ...], reassociate: bool
) -> str:
    kind = _class(dtypes[0])
    if body.real == "select" or body.signed == "select":
        type_ = register_type(out)
        return f"select i1 {args[0]}, {type_} {args[1]}, {type_} {args[2]}"
    name = getattr(body, kind)
    if name is None:
        raise LoweringError(f"no instruction for {dtypes[0].name} operands")
    type_ = register_type(dtypes[0])
    if name.startswith("llvm."):
        return _intrinsic(name, dtypes, out, args)
    if name == "neg":
        return f"sub {type_} 0, {args[0]}"
    if name == "not":
        return f"xor {type_} {args[0]}, -1" if kind != "boolean" else f"xor i1 {args[0]}, true"
    flags = ""
    if name in _FLAGGED:
        flags = " reassoc contract" if reassociate else " contract"
    return f"{name}{flags} {type_} {', '.join(args)}"


def _intrinsic(name: str, dtypes: tuple[Dtype, ...], out: Dtype, args: tuple[str, ...]) -> str:
    type_ = register_type(dtypes[0])
    suffix = {"float": "f32", "double": "f64"}.get(type_, type_)
    flags = ""
    if name in _EXTREMA:
        # x86 selects where the first operand is NaN: it is the new element, so that the result so far waits for the extremum alone.
        flags, args = " nsz", args[::-1]
    typed = ", ".join(f"{register_type(dtype)} {arg}" for dtype, arg in zip(dtypes, args, strict=True))
    if name in ("llvm.abs", "llvm.ctlz", "llvm.cttz"):
        typed += ", i1 false"
    return f"call{flags} {type_} @{name}.{suffix}({typed})"


def conversion(source: Dtype, target: Dtype, arg: str) -> tuple[str, ...]:
    """Return the instructions of a conversion as C (and so NumPy) makes it; each but the first takes the
    one before as ``{}``.

    Floats outside an integer's range go where the CPU's instruction takes them: to the least number of
    the register.
    """
    a, b = register_type(source), register_type(target)
    if target.kind == "b":
        if source.kind == "b":
            return (f"and i1 {arg}, true",)
        return (f"fcmp une {a} {arg}, 0.0" if source.kind == "f" else f"icmp ne {a} {arg}, 0",)
    if source.kind == "f":
        return _from_float(source, target, arg)
    if target.kind == "f":
        return (f"{'sitofp' if source.kind == 'i' else 'uitofp'} {a} {arg} to {b}",)
    if target.itemsize > source.itemsize or source.kind == "b":
        return (f"{'sext' if source.kind == 'i' else 'zext'} {a} {arg} to {b}",)
    if target.itemsize < source.itemsize:
        return (f"trunc {a} {arg} to {b}",)
    return (f"or {b} {arg}, 0",)


def _from_float(source: Dtype, target: Dtype, arg: str) -> tuple[str, ...]:
    a, b = register_type(source), register_type(target)
    if target.kind == "f":
        if a == b:
            return (f"select i1 true, {a} {arg}, {a} {arg}",)
        return (f"{'fptrunc' if target.itemsize < source.itemsize else 'fpext'} {a} {arg} to {b}",)
    if target.itemsize == 8:
        return (f"{'fptosi' if target.kind == 'i' else 'fptoui'} {a} {arg} to i64", "freeze i64 {}")
    wide = "i64" if target.kind == "u" and target.itemsize == 4 else "i32"
    steps = (f"fptosi {a} {arg} to {wide}", f"freeze {wide} {{}}")
    return steps if wide == b else (*steps, f"trunc {wide} {{}} to {b}")
