"""Division with remainder, divisors, shifts and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.graph import Value, literal
from gradtape.kinds.elementwise import Instruction, Intrinsic, elementwise, flat, result_dtype
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import floor, rint
from gradtape.ops.core.elementwise.logic import equal, greater, less, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute, copysign

inf, nan = np.inf, np.nan
PAIR = ((-9.0, 9.0), (0.7, 4.0))
DIVISIONS = (
    (7.0, -2.0),
    (-7.0, 2.0),
    (-7.0, -2.0),
    (6.0, 2.0),
    (-6.0, 2.0),
    (0.0, -3.0),
    (1.0, 0.0),
    (0.0, 0.0),
    (1.0, inf),
    (-1.0, inf),
    (1.0, -inf),
    (inf, 2.0),
    (nan, 2.0),
    (2.0, nan),
    (1e17, 3.0),
    (1.0, 0.1),
)
NUMBERS = "dfblBQ"
INTEGERS = "bhilBHIQ"


def _quotient(x: Any, y: Any) -> Any:
    """Divide integers, rounding towards zero, as the instruction does."""
    return (x - np.fmod(x, y)) // y


def _integer_dtypes(x: Any, y: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    out = result_dtype(x, y)
    return (out, out), out


quotient = elementwise(
    "quotient",
    _quotient,
    body=Instruction(signed="sdiv", unsigned="udiv"),
    dtypes=_integer_dtypes,
    domain=((-50.0, 50.0), (1.0, 9.0)),
    dtype_samples=INTEGERS,
)
division_rest = elementwise(
    "division_rest",
    np.fmod,
    body=Instruction(real="frem", signed="srem", unsigned="urem"),
    domain=((-50.0, 50.0), (1.0, 9.0)),
    dtype_samples="df" + INTEGERS,
)


def _harmless(y: Value) -> Value:
    """Return a divisor with 1 in place of 0 and -1, on which the machine's division can trap."""
    bad = equal(y, 0) | equal(y, -1) if y.dtype.kind == "i" else equal(y, 0)
    return where(bad, literal(1, y.dtype), y)


def _fmod_body(x: Value, y: Value) -> Value:
    return division_rest(x, y) if x.dtype.kind == "f" else division_rest(x, _harmless(y))


def _crossed(rest: Value, y: Value) -> Value:
    """Return where rest and divisor differ in sign: there the floor is one below the truncated quotient."""
    return not_equal(rest, 0) & not_equal(less(rest, 0), less(y, 0))


def _remainder_body(x: Value, y: Value) -> Value:
    rest = _fmod_body(x, y)
    shifted = where(_crossed(rest, y), rest + y, rest)
    return where(equal(rest, 0), copysign(0.0, y), shifted) if x.dtype.kind == "f" else shifted


def _floor_divide_body(x: Value, y: Value) -> Value:
    """For floats NumPy's algorithm: x less the rest is nearly a multiple of y, its ratio nearly whole."""
    if x.dtype.kind != "f":
        divisor = _harmless(y)
        towards_zero = quotient(x, divisor)
        if x.dtype.kind == "u":
            return where(equal(y, 0), literal(0, x.dtype), towards_zero)
        below = towards_zero - convert(_crossed(division_rest(x, divisor), divisor), x.dtype)
        return where(equal(y, 0), literal(0, x.dtype), where(equal(y, -1), -x, below))
    rest = division_rest(x, y)
    ratio = (x - rest) / y - convert(_crossed(rest, y), x.dtype)
    whole = floor(ratio)
    whole = whole + convert(greater(ratio - whole, 0.5), x.dtype)
    return where(equal(y, 0), x / y, where(equal(ratio, 0.0), copysign(0.0, x / y), whole))


floor_divide = elementwise(
    "floor_divide",
    np.floor_divide,
    body=_floor_divide_body,
    partials=(flat, flat),
    domain=PAIR,
    edges=DIVISIONS,
    slopes=(((6.0, 2.0), (0.0, 0.0)),),
    kinks="0 everywhere",
    dtype_samples=NUMBERS,
)
remainder = elementwise(
    "remainder",
    np.remainder,
    body=_remainder_body,
    partials=(lambda z, x, y: literal(1.0), lambda z, x, y: -floor_divide(x, y)),
    domain=PAIR,
    edges=DIVISIONS,
    slopes=(
        ((6.0, 2.0), (1.0, -3.0)),
        ((-7.0, 2.0), (1.0, 4.0)),
        ((7.0, -2.0), (1.0, 4.0)),
        ((1.0, inf), (1.0, -0.0)),
    ),
    kinks="1 with respect to the first argument, -floor(x / y) with respect to the second",
    dtype_samples=NUMBERS,
)
fmod = elementwise(
    "fmod",
    np.fmod,
    body=_fmod_body,
    partials=(lambda z, x, y: literal(1.0), lambda z, x, y: rint((z - x) / y)),
    domain=PAIR,
    edges=DIVISIONS,
    slopes=(
        ((6.0, 2.0), (1.0, -3.0)),
        ((-7.0, 2.0), (1.0, 3.0)),
        ((7.0, -2.0), (1.0, 3.0)),
        ((1.0, inf), (1.0, 0.0)),
    ),
    kinks="1 with respect to the first argument, -trunc(x / y) with respect to the second",
    dtype_samples=NUMBERS,
)


def divmod_(x: Any, y: Any) -> tuple[Value, Value]:
    """Stand in for np.divmod: the floor of the quotient, and the remainder."""
    return floor_divide(x, y), remainder(x, y)


UFUNCS["divmod"] = divmod_


def _only_interpreted(name: str) -> Any:
    def body(x: Value, y: Value) -> Value:
        raise LoweringError(
            f"np.{name} cannot be compiled", why="how many steps it takes depends on the numbers"
        )

    return body


gcd = elementwise(
    "gcd",
    np.gcd,
    body=_only_interpreted("gcd"),
    domain=((-60.0, 60.0), (-60.0, 60.0)),
    dtype_samples=INTEGERS,
)
lcm = elementwise(
    "lcm",
    np.lcm,
    body=_only_interpreted("lcm"),
    domain=((-9.0, 9.0), (-9.0, 9.0)),
    dtype_samples=INTEGERS,
)

shift_up = elementwise(
    "shift_up",
    np.left_shift,
    body=Instruction(signed="shl", unsigned="shl"),
    domain=((-50.0, 50.0), (0.0, 7.0)),
    dtype_samples=INTEGERS,
)
shift_down = elementwise(
    "shift_down",
    np.right_shift,
    body=Instruction(signed="ashr", unsigned="lshr"),
    domain=((-50.0, 50.0), (0.0, 7.0)),
    dtype_samples=INTEGERS,
)


def _within(x: Value, y: Value) -> Value:
    """Return where a shift is by fewer bits than there are; beyond that the machine's shift is undefined."""
    inside = less(y, 8 * x.dtype.itemsize)
    return inside & less(-1, y) if y.dtype.kind == "i" else inside


def _left_shift_body(x: Value, y: Value) -> Value:
    inside, zero = _within(x, y), literal(0, x.dtype)
    return where(inside, shift_up(x, where(inside, y, zero)), zero)


def _right_shift_body(x: Value, y: Value) -> Value:
    """What is shifted out entirely leaves the sign bit everywhere, as a shift by all bits but one does."""
    inside, zero = _within(x, y), literal(0, x.dtype)
    if x.dtype.kind == "i":
        return shift_down(x, where(inside, y, literal(8 * x.dtype.itemsize - 1, x.dtype)))
    return where(inside, shift_down(x, where(inside, y, zero)), zero)


SHIFTS = ((1, 0), (1, 7), (3, 8), (100, 64), (5, 127))
left_shift = elementwise(
    "left_shift",
    np.left_shift,
    body=_left_shift_body,
    domain=((-50.0, 50.0), (-3.0, 70.0)),
    edges=SHIFTS,
    dtype_samples=INTEGERS + "?",
)
right_shift = elementwise(
    "right_shift",
    np.right_shift,
    body=_right_shift_body,
    domain=((-50.0, 50.0), (-3.0, 70.0)),
    edges=SHIFTS,
    dtype_samples=INTEGERS + "?",
)


def _same(type_: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    own = np.dtype(type_)
    return (own,), own


ones_in = elementwise(
    "ones_in",
    lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype),
    body=Intrinsic(integer="llvm.ctpop"),
    dtypes=_same,
    domain=((-50.0, 50.0),),
    dtype_samples=INTEGERS,
)
bitwise_count = elementwise(
    "bitwise_count",
    np.bitwise_count,
    body=lambda x: convert(ones_in(absolute(x)), np.dtype(np.uint8)),
    domain=((-50.0, 50.0),),
    edges=((0,), (127,)),
    dtype_samples=INTEGERS,
)
