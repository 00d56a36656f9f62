"""The exponential and the hyperbolic tangent of vectors, written out where they are needed.

A call of libmvec makes the loop around it give up all its vector registers, and waits where other work could be done meanwhile: in a
loop over time with five such calls for a few numbers that is most of the time. Both are within 3 units in the last place.
"""

from __future__ import annotations

import struct
from typing import Final

from gradtape.lower.target.host import cpu_features

INLINED: Final = ("exp", "tanh")

_MAGIC: Final = 6755399441055744.0
"""2**52 * 1.5: what is added to it is rounded to a whole number, which then stands in the last bits."""

_LOG2_E: Final = 1.4426950408889634
_LN2: Final = (-0.6931471805599453, -2.3190468138462996e-17)
"""Less the logarithm of 2, and less what that is short of it."""

_SERIES: Final = (
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326136,
    0.0013888888888883748,
    0.00019841269874820627,
    2.4801587325547743e-05,
    2.7557255400206422e-06,
    2.75572736431103e-07,
    2.5105217004720745e-08,
    2.0914686968086876e-09,
)
"""Of ``(exp(r) - 1 - r) / r**2``: the rest is 2e-18 for abs(r) < log(2) / 2."""


def can_inline(name: str, element: str) -> bool:
    """Return whether a function of the C library is written out on this machine: it takes fused additions."""
    return name in INLINED and element == "double" and has_fused_additions()


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
    scale = [f"declare {type_} @{_scale(width)}({_scale_types(width)})"] if _can_scale() else []
    return [
        *scale,
        f"declare {type_} @llvm.fma.v{width}f64({type_}, {type_}, {type_})",
        f"declare {type_} @llvm.fabs.v{width}f64({type_})",
        f"declare {type_} @llvm.copysign.v{width}f64({type_}, {type_})",
    ]


def _can_scale() -> bool:
    """Return whether there is an instruction that multiplies by a power of 2, denormal and infinite results included."""
    features = cpu_features().split(",")
    return "+avx512f" in features and "+avx512vl" in features


def _scale(width: int) -> str:
    return f"llvm.x86.avx512.mask.scalef.pd.{64 * width}"


def _scale_types(width: int) -> str:
    rounding = ", i32" if width == 8 else ""
    return f"{', '.join([f'<{width} x double>'] * 3)}, i8{rounding}"


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
        if _can_scale():
            return self._scaled(one, n)
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
        n, shifted, p = self._reduced(self._real("fadd", x, x))
        power = self._scaled(self._same(1.0), n) if _can_scale() else self._power(shifted)
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
        pairs = [
            self._fma(self._same(_SERIES[k + 1]), r, self._same(_SERIES[k]))
            for k in range(0, len(_SERIES) - 1, 2)
        ]
        pairs.append(self._same(_SERIES[-1]))
        low, middle, high = (self._fma(pairs[k + 1], r2, pairs[k]) for k in (0, 2, 4))
        series = self._fma(self._fma(high, r4, middle), r4, low)
        return n, shifted, self._fma(series, r2, r)

    def _power(self, shifted: str) -> str:
        """Return 2 to the whole number in the last bits."""
        bits = self._let(f"bitcast {self.double} {shifted} to {self.whole}")
        raised = self._let(f"add {self.whole} {bits}, {self._whole(1023)}")
        exponent = self._let(f"shl {self.whole} {raised}, {self._whole(52)}")
        return self._let(f"bitcast {self.whole} {exponent} to {self.double}")

    def _scaled(self, x: str, n: str) -> str:
        """Return x times 2 to the n."""
        type_ = self.double
        rounding = ", i32 4" if self.width == 8 else ""
        operands = f"{type_} {x}, {type_} {n}, {type_} undef, i8 -1{rounding}"
        return self._let(f"call {type_} @{_scale(self.width)}({operands})")

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
        (bits,) = struct.unpack("<Q", struct.pack("<d", number))
        return f"<{', '.join([f'double 0x{bits:016X}'] * self.width)}>"

    def _whole(self, number: int) -> str:
        return f"<{', '.join([f'i64 {number}'] * self.width)}>"

    def _let(self, expression: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {expression}")
        return name
