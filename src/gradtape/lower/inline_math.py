"""The exponential and the hyperbolic tangent of vectors, and the sine of one number, written out where they are needed.

A call of libmvec makes the loop around it give up all its vector registers, and waits where other work could be done meanwhile: in a
loop over time with five such calls for a few numbers that is most of the time. All are within about 2 units in the last place.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from ..config import config
from .host import cpu_features

INLINED: Final = ("exp", "tanh")

_MAGIC: Final = 6755399441055744.0
"""2**52 * 1.5: what is added to it is rounded to a whole number, which then stands in the last bits."""

_LOG2_E: Final = 1.4426950408889634
_LN2: Final = (-0.6931471805599453, -2.3190468138462996e-17)
"""Less the logarithm of 2, and less what that is short of it."""

_SERIES: Final = tuple([1.0 / math.factorial(k) for k in range(2, 14)])
"""Of ``(exp(r) - 1 - r) / r**2``: the rest is 4e-18 of the result for abs(r) < log(2) / 2."""


def can_inline(name: str, element: str) -> bool:
    """Return whether a function of the C library is written out on this machine: it takes fused additions."""
    return name in INLINED and element == "double" and has_fused_additions()


def can_inline_sine() -> bool:
    """Return whether sines of single numbers are written out."""
    return has_fused_additions() and not config.precise_math


def has_fused_additions() -> bool:
    """Return whether the machine adds to a product in one step."""
    features = cpu_features().split(",")
    return "+fma" in features or "+neon" in features


def inline_function(name: str, width: int) -> tuple[str, str]:
    """Return the symbol of a function of so many numbers, and its definition.

    Examples
    --------
    >>> symbol, text = inline_function("exp", 4)
    >>> symbol, text.splitlines()[0]
    ('inline.exp.v4', 'define internal <4 x double> @inline.exp.v4(<4 x double> %x) alwaysinline nounwind {')
    """
    writer = _Writer(width)
    symbol = f"inline.{name}.v{width}"
    result = writer.exp() if name == "exp" else writer.tanh()
    type_ = writer.double
    head = f"define internal {type_} @{symbol}({type_} %x) alwaysinline nounwind {{"
    return symbol, "\n".join([head, *writer.lines, f"  ret {type_} {result}", "}"])


def intrinsics(width: int) -> list[str]:
    """Return the declarations that these functions need."""
    type_ = f"<{width} x double>"
    return [
        f"declare {type_} @llvm.fma.v{width}f64({type_}, {type_}, {type_})",
        f"declare {type_} @llvm.fabs.v{width}f64({type_})",
        f"declare {type_} @llvm.copysign.v{width}f64({type_}, {type_})",
    ]


SINE: Final = "inline.sin"
"""The sine of one number, written out for angles of no more than a right angle: a chain of steps waits for it less long."""

_SINE: Final = (
    -0.16666666666666666,
    0.008333333333333212,
    -0.00019841269841215254,
    2.7557319212127685e-06,
    -2.505210695988653e-08,
    1.6058943919705614e-10,
    -7.643097367943905e-13,
    2.7222556097083504e-15,
)
"""Of ``(sin(x) / x - 1) / x**2``, by powers of x squared: within 6e-19 of the sine up to a right angle."""


def sine_function() -> str:
    """Return the definition of `SINE`."""
    u, u2, u4 = "%u", "%u2", "%u4"
    lines = [
        f"define internal double @{SINE}(double %x) alwaysinline nounwind {{",
        "  %size = call double @llvm.fabs.f64(double %x)",
        "  %whole = bitcast double %size to i64",
        # Zero, which has a sign to keep, counts as more than all.
        "  %less = add i64 %whole, -1",
        f"  %small = icmp ult i64 %less, {int(_bits(math.pi / 2), 16)}",
        '  br i1 %small, label %near, label %far, !prof !{!"branch_weights", i32 2000, i32 1}',
        "near:",
        f"  {u} = fmul double %x, %x",
        f"  {u2} = fmul double {u}, {u}",
        f"  {u4} = fmul double {u2}, {u2}",
    ]
    for k in range(4):
        high, low = _bits(_SINE[2 * k + 1]), _bits(_SINE[2 * k])
        lines.append(f"  %p{k} = call double @llvm.fma.f64(double {high}, double {u}, double {low})")
    lines += [
        f"  %low = call double @llvm.fma.f64(double %p1, double {u2}, double %p0)",
        f"  %high = call double @llvm.fma.f64(double %p3, double {u2}, double %p2)",
        f"  %series = call double @llvm.fma.f64(double %high, double {u4}, double %low)",
        f"  %cubed = fmul double %x, {u}",
        "  %sine = call double @llvm.fma.f64(double %cubed, double %series, double %x)",
        "  ret double %sine",
        "far:",
        "  %other = call double @sin(double %x)",
        "  ret double %other",
        "}",
    ]
    return "\n".join(lines)


def _bits(number: float) -> str:
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


class _Writer:
    """Writes the body of one function."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.double = f"<{width} x double>"
        self.whole = f"<{width} x i64>"
        self.lines: list[str] = []

    def exp(self) -> str:
        """Outside of the clamps the result is infinite or zero anyway; a NaN passes both."""
        above = self._clamped("%x", "ogt", 710.0)
        x = self._clamped(above, "olt", -746.0)
        n, _, p = self._reduced(x)
        one = self._real("fadd", p, self._same(1.0))
        half = self._real("fmul", n, self._same(0.5))
        shifted = self._real("fadd", half, self._same(_MAGIC))
        first = self._real("fsub", shifted, self._same(_MAGIC))
        second = self._real("fadd", self._real("fsub", n, first), self._same(_MAGIC))
        # Two factors: one alone cannot make a denormal number.
        return self._real("fmul", self._real("fmul", one, self._power(shifted)), self._power(second))

    def tanh(self) -> str:
        """By exp(2 x) - 1, without its 1 where that is small."""
        size = self._let(f"call {self.double} @llvm.fabs.v{self.width}f64({self.double} %x)")
        x = self._clamped(size, "ogt", 20.0)
        _, shifted, p = self._reduced(self._real("fadd", x, x))
        power = self._power(shifted)
        most = self._fma(p, power, self._real("fsub", power, self._same(1.0)))
        result = self._real("fdiv", most, self._real("fadd", most, self._same(2.0)))
        return self._let(
            f"call {self.double} @llvm.copysign.v{self.width}f64({self.double} {result}, {self.double} %x)"
        )

    def _reduced(self, x: str) -> tuple[str, str, str]:
        """Return n, n as it stands in the last bits, and ``exp(x - n log 2) - 1``."""
        shifted = self._fma(x, self._same(_LOG2_E), self._same(_MAGIC))
        n = self._real("fsub", shifted, self._same(_MAGIC))
        r = self._fma(n, self._same(_LN2[1]), self._fma(n, self._same(_LN2[0]), x))
        r2 = self._real("fmul", r, r)
        r4 = self._real("fmul", r2, r2)
        r8 = self._real("fmul", r4, r4)
        pairs = [
            self._fma(self._same(_SERIES[k + 1]), r, self._same(_SERIES[k]))
            for k in range(0, len(_SERIES), 2)
        ]
        low, middle, high = (self._fma(pairs[k + 1], r2, pairs[k]) for k in (0, 2, 4))
        series = self._fma(high, r8, self._fma(middle, r4, low))
        return n, shifted, self._fma(series, r2, r)

    def _power(self, shifted: str) -> str:
        """Return 2 to the whole number in the last bits."""
        bits = self._let(f"bitcast {self.double} {shifted} to {self.whole}")
        raised = self._let(f"add {self.whole} {bits}, {self._whole(1023)}")
        exponent = self._let(f"shl {self.whole} {raised}, {self._whole(52)}")
        return self._let(f"bitcast {self.whole} {exponent} to {self.double}")

    def _clamped(self, x: str, test: str, limit: float) -> str:
        beyond = self._let(f"fcmp {test} {self.double} {x}, {self._same(limit)}")
        bound = f"{self.double} {self._same(limit)}"
        return self._let(f"select <{self.width} x i1> {beyond}, {bound}, {self.double} {x}")

    def _fma(self, a: str, b: str, c: str) -> str:
        type_ = self.double
        return self._let(f"call {type_} @llvm.fma.v{self.width}f64({type_} {a}, {type_} {b}, {type_} {c})")

    def _real(self, operation: str, a: str, b: str) -> str:
        return self._let(f"{operation} {self.double} {a}, {b}")

    def _same(self, number: float) -> str:
        return f"<{', '.join([f'double {_bits(number)}'] * self.width)}>"

    def _whole(self, number: int) -> str:
        return f"<{', '.join([f'i64 {number}'] * self.width)}>"

    def _let(self, expression: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {expression}")
        return name
