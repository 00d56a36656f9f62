"""Inlined mathematics: functions of the C library as instructions of the kernel, all within 3 units in the last place.

A call takes all vector registers from the loop around it, and the CPU sees little of what comes after it. So sequential loops on a few
numbers, of whose time calls would be the most, get the exponential and the hyperbolic tangent of vectors, and the sine and the cosine of
single numbers, as instructions.
"""

from __future__ import annotations

import struct
from typing import Final

from gradtape.config import config
from gradtape.loops.ir import Dtype
from gradtape.lower.llvm.writer import FunctionWriter, ModuleWriter
from gradtape.lower.target.host import cpu_features, has_fused_multiply_add

SCALAR_FUNCTIONS: Final = ("sin", "cos")

_MAGIC: Final = 6755399441055744.0
"""2**52 * 1.5: a float that is added to it is rounded to an integer, which is then in the last bits of the sum."""

_LOG2_E: Final = 1.4426950408889634
_LN2: Final = (-0.6931471805599453, -2.3190468138462996e-17)
"""-log(2) as a sum of two floats."""

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
"""Coefficients of ``(exp(r) - 1 - r) / r**2``, with an error of 2e-18 for abs(r) < log(2) / 2."""


def can_inline_scalar(name: str, dtype: Dtype) -> bool:
    """Return whether a function of the C library can be inlined for scalars."""
    return (
        name in SCALAR_FUNCTIONS
        and dtype.char == "d"
        and has_fused_multiply_add()
        and not config.precise_math
    )


def inline_scalar(module: ModuleWriter, name: str) -> str:
    """Add the sine or the cosine of a scalar to a module, and return its symbol.

    Angles up to pi / 2, which are the most frequent, need no range reduction: the branch is predicted. The C library, which the module
    declares, computes zeros, infinities, NaN, and angles that are too large for a reduction with pi in three parts.
    """
    module.add_routine("sine_series")
    return module.add_routine(name)


def inline_vectors(module: ModuleWriter, symbol: str) -> None:
    """Add a function of vectors to a module, of a name such as ``inline.exp.v4``.

    Examples
    --------
    >>> module = ModuleWriter()
    >>> inline_vectors(module, "inline.exp.v4")
    >>> module.helpers["inline.exp.v4"].splitlines()[0]
    'define internal <4 x double> @inline.exp.v4(<4 x double> %x) alwaysinline nounwind {'
    """
    if symbol in module.helpers:
        return
    _, name, width = symbol.split(".")
    writer = _VectorFunction(module, int(width.removeprefix("v")))
    result = writer.exp() if name == "exp" else writer.tanh()
    type_ = writer.double
    header = f"define internal {type_} @{symbol}({type_} %x) alwaysinline nounwind"
    module.helpers[symbol] = writer.text(header, f"  ret {type_} {result}")


def _can_scale() -> bool:
    """Return whether there is an instruction that multiplies by a power of 2, denormal and infinite results included."""
    features = cpu_features().split(",")
    return "+avx512f" in features and "+avx512vl" in features


class _VectorFunction(FunctionWriter):
    """Writes a function of vectors with `width` lanes of float64."""

    def __init__(self, module: ModuleWriter, width: int) -> None:
        super().__init__(module)
        self.width = width
        self.double = f"<{width} x double>"
        self.whole = f"<{width} x i64>"

    def exp(self) -> str:
        """Write the exponential. Arguments are clamped to where the result is finite and not zero; a NaN passes the clamps."""
        n, p = self._reduced("%x")
        return self._scaled(self._real("fadd", p, self._all(1.0)), n)

    def tanh(self) -> str:
        """Write the hyperbolic tangent, as (1 - e) / (1 + e) with e = exp(-2 abs(x)), which the derivative needs as well."""
        n, p = self._reduced(self._real("fmul", self._intrinsic("fabs", "%x"), self._all(-2.0)))
        power = self._scaled(self._all(1.0), n)
        above = self._fma(p, power, self._real("fadd", power, self._all(1.0)))
        below = self._fma(p, power, self._real("fsub", power, self._all(1.0)))
        return self._intrinsic("copysign", self._real("fdiv", below, above), "%x")

    def _reduced(self, x: str) -> tuple[str, str]:
        """Range reduction: return n as a float, and ``exp(x - n log 2) - 1``."""
        x = self._clamped(self._clamped(x, "ogt", 710.0), "olt", -746.0)
        shifted = self._fma(x, self._all(_LOG2_E), self._all(_MAGIC))
        n = self._real("fsub", shifted, self._all(_MAGIC))
        r = self._fma(n, self._all(_LN2[1]), self._fma(n, self._all(_LN2[0]), x))
        r2 = self._real("fmul", r, r)
        r4 = self._real("fmul", r2, r2)
        pairs = [
            self._fma(self._all(_SERIES[k + 1]), r, self._all(_SERIES[k]))
            for k in range(0, len(_SERIES) - 1, 2)
        ]
        pairs.append(self._all(_SERIES[-1]))
        low, middle, high = (self._fma(pairs[k + 1], r2, pairs[k]) for k in (0, 2, 4))
        series = self._fma(self._fma(high, r4, middle), r4, low)
        return n, self._fma(series, r2, r)

    def _scaled(self, x: str, n: str) -> str:
        """Return x times 2 to the n."""
        type_ = self.double
        if _can_scale():
            rounding = ["i32 4"] if self.width == 8 else []
            scale = f"llvm.x86.avx512.mask.scalef.pd.{64 * self.width}"
            return self.call(
                type_, scale, f"{type_} {x}", f"{type_} {n}", f"{type_} undef", "i8 -1", *rounding
            )
        # Two factors: one alone cannot make a denormal number.
        half = self._real("fadd", self._real("fmul", n, self._all(0.5)), self._all(_MAGIC))
        first = self._real("fsub", half, self._all(_MAGIC))
        second = self._real("fadd", self._real("fsub", n, first), self._all(_MAGIC))
        return self._real("fmul", self._real("fmul", x, self._power(half)), self._power(second))

    def _power(self, shifted: str) -> str:
        """Return 2 to the power of the integer in the last bits."""
        bits = self.let(f"bitcast {self.double} {shifted} to {self.whole}")
        raised = self.let(f"add {self.whole} {bits}, {self._whole(1023)}")
        exponent = self.let(f"shl {self.whole} {raised}, {self._whole(52)}")
        return self.let(f"bitcast {self.whole} {exponent} to {self.double}")

    def _clamped(self, x: str, test: str, limit: float) -> str:
        beyond = self.let(f"fcmp {test} {self.double} {x}, {self._all(limit)}")
        bound = f"{self.double} {self._all(limit)}"
        return self.let(f"select <{self.width} x i1> {beyond}, {bound}, {self.double} {x}")

    def _fma(self, a: str, b: str, c: str) -> str:
        return self._intrinsic("fma", a, b, c)

    def _intrinsic(self, name: str, *operands: str) -> str:
        typed = [f"{self.double} {operand}" for operand in operands]
        return self.call(self.double, f"llvm.{name}.v{self.width}f64", *typed)

    def _real(self, operation: str, a: str, b: str) -> str:
        return self.let(f"{operation} {self.double} {a}, {b}")

    def _all(self, number: float) -> str:
        (bits,) = struct.unpack("<Q", struct.pack("<d", number))
        return f"<{', '.join([f'double 0x{bits:016X}'] * self.width)}>"

    def _whole(self, number: int) -> str:
        return f"<{', '.join([f'i64 {number}'] * self.width)}>"
