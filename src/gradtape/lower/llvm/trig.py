"""The sine and the cosine of single numbers, written out where they are needed.

A call of the C library takes all vector registers from the loop around it, and the CPU sees little of what comes after it: half the time
of a loop over time with a few sines. Angles up to a right one, of which most loops are full, need no reduction, and wait for none: the
branch is foreseen. Both are within 3 units in the last place, as those of vectors are.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from gradtape.config import config
from gradtape.lower.llvm.math import has_fused_additions

INLINED: Final = ("sin", "cos")

_SERIES: Final = (
    -0.16666666666666666,
    0.008333333333333316,
    -0.00019841269841254974,
    2.7557319219163205e-06,
    -2.505210761699229e-08,
    1.605897731221174e-10,
    -7.643970288741763e-13,
    2.7314446665270123e-15,
)
"""Of ``(sin(sqrt(u)) / sqrt(u) - 1) / u`` for u up to (pi / 2)**2: the rest is 4e-19."""

_PI: Final = (math.pi, 1.2246467991473532e-16, -2.9947698097183397e-33)
"""Pi, what it is short of, and what both are short of."""

_MAGIC: Final = 6755399441055744.0
"""2**52 * 1.5: what is added to it is rounded to a whole number, which then stands in the last bits."""

_MOST: Final = 1048576.0
"""Angles from which three parts of pi are too few."""


def can_inline_single(name: str, element: str) -> bool:
    """Return whether a function of the C library is written out on this machine: it takes fused additions."""
    return name in INLINED and element == "double" and has_fused_additions() and not config.precise_math


def inline_single(name: str) -> tuple[str, str]:
    """Return the symbol of a function of one number, and its definition.

    Zeros, infinities and NaN are left to the C library with the angles that are too large.

    Examples
    --------
    >>> symbol, text = inline_single("cos")
    >>> symbol, text.splitlines()[0]
    ('inline.cos', 'define internal double @inline.cos(double %x) nounwind {')
    """
    symbol = f"inline.{name}"
    reduction = _SINE if name == "sin" else _COSINE
    pairs = [
        f"  %p{k} = call double @llvm.fma.f64(double {_bits(_SERIES[2 * k + 1])}, double %u, double {_bits(_SERIES[2 * k])})"
        for k in range(4)
    ]
    right, most = (struct.unpack("<q", struct.pack("<d", limit))[0] for limit in (math.pi / 2, _MOST))
    text = f"""define internal double @{symbol}(double %x) nounwind {{
  %size = call double @llvm.fabs.f64(double %x)
  %bits = bitcast double %size to i64
  %before = add i64 %bits, -1
  %near = icmp ult i64 %before, {right}
  br i1 %near, label %plain, label %far
far:
  %beyond = sub i64 %before, {right}
  %reducible = icmp ult i64 %beyond, {most - right}
  br i1 %reducible, label %reduced, label %library, !prof !{{!"branch_weights", i32 2000, i32 1}}
library:
  %called = call double @{name}(double %x) nounwind willreturn memory(none)
  ret double %called
plain:
{reduction[0]}
  br label %series
reduced:
{reduction[1]}
  %r1 = call double @llvm.fma.f64(double %n, double {_bits(-_PI[0])}, double %x)
  %r2 = call double @llvm.fma.f64(double %n, double {_bits(-_PI[1])}, double %r1)
  %r3 = call double @llvm.fma.f64(double %n, double {_bits(-_PI[2])}, double %r2)
  %whole = bitcast double %shifted to i64
  %odd = {"or i64 %whole, 0" if name == "sin" else "xor i64 %whole, 1"}
  %sign = shl i64 %odd, 63
  %r3.bits = bitcast double %r3 to i64
  %signed = xor i64 %r3.bits, %sign
  %away = bitcast i64 %signed to double
  br label %series
series:
  %r = phi double [ %here, %plain ], [ %away, %reduced ]
  %u = fmul double %r, %r
  %u2 = fmul double %u, %u
  %u4 = fmul double %u2, %u2
  %ru = fmul double %r, %u
{chr(10).join(pairs)}
  %low = call double @llvm.fma.f64(double %p1, double %u2, double %p0)
  %high = call double @llvm.fma.f64(double %p3, double %u2, double %p2)
  %sum = call double @llvm.fma.f64(double %high, double %u4, double %low)
  %result = call double @llvm.fma.f64(double %ru, double %sum, double %r)
  ret double %result
}}"""
    return symbol, text


def intrinsics() -> list[str]:
    """Return the declarations that these functions need besides that of the C library's."""
    return ["declare double @llvm.fma.f64(double, double, double)", "declare double @llvm.fabs.f64(double)"]


def _bits(number: float) -> str:
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


_ROUNDED: Final = f"""  %shifted = fadd double %turns, {_bits(_MAGIC)}
  %rounded = fsub double %shifted, {_bits(_MAGIC)}"""

_SINE: Final = (
    "  %here = fadd double %x, -0.0",
    f"""  %turns = fmul double %x, {_bits(1 / math.pi)}
{_ROUNDED}
  %n = fadd double %rounded, -0.0""",
)

# cos((n + 1/2) pi + r) is -sin(r) for an even n, sin(r) for an odd one; below a right angle that is sin(pi / 2 - abs(x)).
_COSINE: Final = (
    f"""  %short = fsub double {_bits(_PI[0] / 2)}, %size
  %here = fadd double %short, {_bits(_PI[1] / 2)}""",
    f"""  %turns = call double @llvm.fma.f64(double %x, double {_bits(1 / math.pi)}, double -0.5)
{_ROUNDED}
  %n = fadd double %rounded, 0.5""",
)
