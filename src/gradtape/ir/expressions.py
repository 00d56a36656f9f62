"""Expressions: rows on scalars as Python that plain CPython runs with NumPy's numbers and that Numba compiles to the same.

NumPy's scalars and Numba's differ where dtypes are concerned: Numba computes with small integers in 64 bits and takes a literal for a
double. So numbers other than doubles, int64 and bools are written with their dtype, and small integers are converted back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.records import value_record

Dtype = np.dtype[Any]

CONDITIONAL, OR, AND, NOT, COMPARISON = 0, 1, 2, 3, 4
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = 5, 6, 7, 8, 9, 10, 11, 13


@value_record
class Code:
    """The text of an expression.

    Attributes
    ----------
    text : str
    level : int
        How tightly the outermost operator binds.
    operands : (str, str, str) or None
        The first operand, the operator and the second operand of arithmetic.
    """

    text: str
    level: int = ATOM
    operands: tuple[str, str, str] | None = None

    def assigned_to(self, target: str) -> str:
        """Return the assignment of the expression to a name or an element: an augmented one where that is the first operand.

        Examples
        --------
        >>> Code("s + x", SUM, ("s", "+", "x")).assigned_to("s")
        's += x'
        """
        if self.operands is not None and self.operands[0] == target:
            return f"{target} {self.operands[1]}= {self.operands[2]}"
        return f"{target} = {self.text}"

    def within(self, level: int) -> str:
        """Return the text as an operand that binds at least as tightly as `level`."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def is_name(self) -> bool:
        """Whether it can be repeated at no cost."""
        return self.text.isidentifier() or self.text.lstrip("-").replace(".", "").isalnum()


INFIX: Final = {
    "add": ("+", SUM),
    "subtract": ("-", SUM),
    "multiply": ("*", PRODUCT),
    "divide": ("/", PRODUCT),
    "bitwise_and": ("&", BIT_AND),
    "bitwise_or": ("|", BIT_OR),
    "bitwise_xor": ("^", BIT_XOR),
    "shift_up": ("<<", SHIFT),
    "shift_down": (">>", SHIFT),
}
"""Rows that Python writes as operators between two numbers."""

COMPARISONS: Final = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}

BOOLEAN: Final = {
    "add": ("or", OR),
    "bitwise_or": ("or", OR),
    "logical_or": ("or", OR),
    "maximum": ("or", OR),
    "multiply": ("and", AND),
    "bitwise_and": ("and", AND),
    "logical_and": ("and", AND),
    "minimum": ("and", AND),
    "bitwise_xor": ("!=", COMPARISON),
    "logical_xor": ("!=", COMPARISON),
}
"""The same between two bools."""

_SHARED: Final = (
    *("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "isnan", "isfinite", "isinf", "power"),
    *(
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arcsin",
        "arccos",
        "arctan",
        "arcsinh",
        "arccosh",
        "arctanh",
    ),
)
_FLOATS: Final = (
    *("cbrt", "arctan2", "hypot", "copysign", "signbit", "nextafter", "floor", "ceil", "trunc", "rint"),
    *("maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "float_power"),
)
_INTEGERS: Final = ("maximum", "minimum", "fmax", "fmin", "remainder", "floor_divide", "gcd", "lcm")

OF_COMPLEX: Final = {
    **{name: f"np.{name}" for name in (*_SHARED, "conjugate")},
    "root": "np.sqrt",
    "pow_real": "np.power",
    "absolute": "abs",
}
"""Rows on complex numbers that are one function of NumPy or of Python."""

OF_FLOATS: Final = {
    **{name: f"np.{name}" for name in (*_SHARED, *_FLOATS)},
    "root": "np.sqrt",
    "floor_real": "np.floor",
    "ceil_real": "np.ceil",
    "trunc_real": "np.trunc",
    "scale_by_power": "np.ldexp",
    "pow_real": "np.power",
    "division_rest": "np.fmod",
    "absolute": "abs",
    "fabs": "abs",
}
"""The same on floats."""

OF_DOUBLES: Final = {"erf": "math.erf", "erfc": "math.erfc"}
"""Rows on floats that are one function of `math`, which returns a double."""

OF_INTEGERS: Final = {name: f"np.{name}" for name in _INTEGERS}

LIBRARY: Final[dict[str, Callable[[Sequence[str]], str]]] = {}
"""How programs write rows that SciPy alone has, of the texts of the operands; each such row enters itself. Numba cannot compile them."""

PLAIN: Final = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))
"""Dtypes that Python's own numbers have in Numba as well."""


def number(value: Any, dtype: Dtype) -> Code:
    """Return a number of a dtype.

    Examples
    --------
    >>> number(-0.5, np.dtype("f4")).text
    'np.float32(-0.5)'
    >>> number(np.inf, np.dtype("f8")).text
    'np.inf'
    """
    value = np.asarray(value, dtype).item()
    if isinstance(value, complex):
        code = Code(f"complex({_real(value.real)}, {_real(value.imag)})")
    else:
        text = repr(value) if isinstance(value, bool | int) else _real(value)
        code = Code(text, UNARY if text.startswith("-") else ATOM)
    return code if dtype in PLAIN else of_dtype(code, dtype)


def _real(value: float) -> str:
    if np.isfinite(value):
        return repr(value)
    return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "-np.inf"


def of_dtype(code: Code, dtype: Dtype) -> Code:
    """Return an expression converted to a dtype."""
    return Code(f"{dtype_name(dtype)}({code.text})")


def dtype_name(dtype: Dtype) -> str:
    """Return the name of a dtype as programs write it: ``np.float64``, ``np.bool_``."""
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"


def expression(
    name: str, args: Sequence[Code], dtypes: Sequence[Dtype], dtype: Dtype, plain: bool = False
) -> Code | None:
    """Return a row applied to operands; None for a row that has to be expanded first.

    Parameters
    ----------
    name : str
        Of the row.
    args : sequence of Code
    dtypes : sequence of dtype
        Of the operands.
    dtype : dtype
        Of the result.
    plain : bool
        Whether the operands may be Python's own numbers, which raise an error where they are divided by zero.

    Examples
    --------
    >>> f8 = np.dtype("f8")
    >>> total = expression("add", [Code("a"), Code("b")], [f8, f8], f8)
    >>> expression("multiply", [total, Code("c")], [f8, f8], f8).text
    '(a + b) * c'
    """
    kind = dtypes[0].kind
    if name == "identity" or name == "stop_gradient" or name == "positive":
        return args[0]
    if name == "where":
        return Code(f"{args[1].within(OR)} if {args[0].within(OR)} else {args[2].within(OR)}", CONDITIONAL)
    if name == "convert":
        return _converted(args[0], dtypes[0], dtype)
    if name in COMPARISONS:
        low, high = args[0].within(BIT_OR), args[1].within(BIT_OR)
        return Code(f"{low} {COMPARISONS[name]} {high}", COMPARISON)
    if name in ("real", "imag"):
        return Code(f"{args[0].within(ATOM)}.{name}") if kind == "c" else None
    if name == "from_parts":
        return of_dtype(Code(f"complex({args[0].text}, {args[1].text})"), dtype)
    if name in LIBRARY:
        return of_dtype(Code(LIBRARY[name]([arg.text for arg in args])), dtype)
    if kind == "b":
        return _of_bools(name, args)
    if name == "divide" and plain and kind == "f":
        return Code(f"np.divide({args[0].text}, {args[1].text})")
    if name in INFIX:
        symbol, level = INFIX[name]
        text = f"{args[0].within(level)} {symbol} {args[1].within(level + 1)}"
        return _narrowed(Code(text, level, (args[0].text, symbol, args[1].text)), dtype)
    if name in ("negative", "invert"):
        sign = "-" if name == "negative" else "~"
        return _narrowed(Code(f"{sign}{args[0].within(UNARY + 1)}", UNARY), dtype)
    if kind in "iu":
        return _of_integers(name, args, dtype)
    return _of_inexact(name, args, dtype)


def _narrowed(code: Code, dtype: Dtype) -> Code:
    """Return the result of integer arithmetic in its dtype: Numba has computed with 64 bits."""
    return of_dtype(code, dtype) if dtype.kind in "iu" and dtype not in PLAIN else code


def _converted(operand: Code, source: Dtype, target: Dtype) -> Code:
    if target.kind == "b":
        return operand if source.kind == "b" else Code(f"{operand.within(BIT_OR)} != 0", COMPARISON)
    if source.kind == "c" and target.kind != "c":
        operand = Code(f"{operand.within(ATOM)}.real")
    return of_dtype(operand, target)


def _of_bools(name: str, args: Sequence[Code]) -> Code | None:
    if name in BOOLEAN:
        symbol, level = BOOLEAN[name]
        return Code(f"{args[0].within(level)} {symbol} {args[1].within(level + 1)}", level)
    if name in ("invert", "logical_not"):
        return Code(f"not {args[0].within(NOT)}", NOT)
    return None


def _of_integers(name: str, args: Sequence[Code], dtype: Dtype) -> Code | None:
    if name in ("floor_divide", "remainder") and args[1].text.isdigit() and args[1].text != "0":
        symbol = "//" if name == "floor_divide" else "%"
        return Code(f"{args[0].within(PRODUCT)} {symbol} {args[1].text}", PRODUCT)
    if name == "absolute" and dtype.kind == "i":
        return _narrowed(Code(f"abs({args[0].text})"), dtype)
    if name in ("quotient", "division_rest") and (
        dtype.kind == "u" or all(arg.is_name or arg.level == ATOM for arg in args)
    ):
        return _narrowed(_truncated("//" if name == "quotient" else "%", args, dtype), dtype)
    if name in OF_INTEGERS:
        return _narrowed(_called(OF_INTEGERS[name], args), dtype)
    return None


def _truncated(symbol: str, args: Sequence[Code], dtype: Dtype) -> Code:
    """Return a quotient that is rounded towards zero, or its rest: Python rounds down, which is the same for equal signs."""
    x, y = args[0].within(ATOM), args[1].within(ATOM)
    if dtype.kind == "u":
        return Code(f"{x} {symbol} {y}", PRODUCT)
    return Code(f"{x} {symbol} {y} if ({x} < 0) == ({y} < 0) else -(-{x} {symbol} {y})", CONDITIONAL)


def _of_inexact(name: str, args: Sequence[Code], dtype: Dtype) -> Code | None:
    if name == "leading_bit" and args[0].is_name:
        x = args[0].within(COMPARISON)
        exponent = of_dtype(Code(f"math.frexp({x})[1] - 1"), dtype)
        return Code(
            f"{number(-np.inf, dtype).text} if {x} == 0 else "
            f"{exponent.text} if np.isfinite({x}) else {of_dtype(Code(f'abs({x})'), dtype).text}",
            CONDITIONAL,
        )
    if name in OF_DOUBLES:
        called = _called(OF_DOUBLES[name], args)
        return called if dtype in PLAIN else of_dtype(called, dtype)
    table = OF_COMPLEX if dtype.kind == "c" or name == "absolute" else OF_FLOATS
    return _called(table[name], args) if name in table else None


def _called(function: str, args: Sequence[Code]) -> Code:
    return Code(f"{function}({', '.join([arg.text for arg in args])})")
