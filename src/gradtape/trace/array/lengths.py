"""Lengths that record what Python asks of them, while a function is traced for an export in which they vary.

Inside such a trace, the shapes, sizes and lengths of arrays are `Length` objects for the user's code. Sums, differences, products and whole
quotients of lengths are lengths again, with a polynomial that says how they follow from the lengths that were read. Each comparison
is a `Question` with its answer, and so is each use that needs the number itself (``range(n)``, ``hash(n)``, ``float(n)``). The export then
proves that the answers are the same for all lengths for which the program is used, or refuses the function.

Arrays that NumPy makes of lengths (``np.arange(n)``, ``np.ones(3) * n``) are traced, as those that depend on arguments are: their shapes
are lengths, and Python that looks at their elements is refused. Where a length is an operand, or the argument of a rule, its number becomes
a part of the program (``content``); the export proves that the formula that is fitted to this number holds for all lengths.

gradtape's own code, and that of NumPy and SciPy, gets plain integers from shapes.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import RAISED, GradtapeError, is_internal
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import FLOAT64, INT64, Shape
from gradtape.kinds.operands import NUMBER_LIKE, as_value
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.lengths import as_number
from gradtape.records import record
from gradtape.trace.array.handle import Handle, traced_value
from gradtape.trace.jit.outcomes import is_handled
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.sites import PACKAGE, Site, site_of, user_frame

Polynomial = Mapping[tuple[int, ...], Fraction]
"""Coefficients by monomials: the numbers of the atoms that are multiplied, in ascending order."""

FOLDS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    math.prod: operator.mul,
    np.prod: operator.mul,
    np.sum: operator.add,
}
"""Functions of one sequence of numbers that are lengths again, with the operators that they apply."""

FUNCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "xor")
    },
    "and": operator.and_,
    "or": operator.or_,
}
"""The operators that make numbers of lengths."""

OPERATORS: Final[dict[Any, str]] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "truediv",
    np.floor_divide: "floordiv",
    np.remainder: "mod",
    np.power: "pow",
}
"""Ufuncs that make of lengths what operators make of them."""

SIGNS: Final[dict[Any, Callable[[Any], Any]]] = {
    np.absolute: operator.abs,
    np.negative: operator.neg,
    np.positive: operator.pos,
}

ARRAYS: Final[dict[str, Callable[..., Any]]] = {}
"""What makes a traced array of a value (``"wrap"``), and of a call with lengths (``"call"``): entered by modules above this one."""

DOMAINS: Final[dict[Any, tuple[str, Callable[[Any, Any], Any]]]] = {
    **dict.fromkeys((math.log, math.log2, math.log10), ("<=", operator.le)),
    math.sqrt: ("<", operator.lt),
}
"""Functions of `math` that raise an error for numbers which are so compared with 0."""

_frame = sys._getframe


@record
class Atom:
    """A whole number that polynomials are made of.

    Attributes
    ----------
    kind : {"extent", "floor", "remainder"}
        The extent of an array, or a quotient of a polynomial and a number, rounded down, or what is left of it.
    value : int
        In this trace.
    polynomial : Polynomial
        For the last two.
    divisor : int
    """

    kind: str
    value: int
    polynomial: Polynomial | None = None
    divisor: int = 1

    def form(self) -> Any:
        """All of it but its value."""
        return self.kind, form_of(self.polynomial), self.divisor


@record
class Question:
    """What Python asked of lengths.

    Attributes
    ----------
    relation : {"<", "<=", "==", "number", "content", "error"}
        A comparison of the polynomial with 0; ``number`` if Python needed the number itself; ``content`` if it is a number of the
        program, or a shape or index in it; ``error`` if an error was caught.
    polynomial : Polynomial or None
        None for an error.
    atoms : frozenset of int
        The atoms that it follows from.
    answer : object
        Of the comparison.
    site : Site
        The line.
    text : str
        What was asked.
    is_whole : bool
        Whether the polynomial is a whole number for all lengths.
    """

    relation: str
    polynomial: Polynomial | None
    atoms: frozenset[int]
    answer: Any
    site: Site
    text: str
    is_whole: bool = False

    def form(self) -> Any:
        """All of it but the place in the code."""
        answer = None if self.relation in ("number", "content") else self.answer
        return self.relation, form_of(self.polynomial), tuple(sorted(self.atoms)), answer


def form_of(polynomial: Polynomial | None) -> Any:
    return None if polynomial is None else tuple(sorted(polynomial.items()))


class Questions:
    """The atoms of one trace, and what was asked of them.

    Attributes
    ----------
    largest : int
        Elements of the largest array that was made of lengths.
    """

    def __init__(self) -> None:
        self.largest = 0
        self.atoms: list[Atom] = []
        self.asked: list[Question] = []
        self.thread = threading.get_ident()
        self._known: dict[Any, int] = {}

    def form(self) -> Any:
        """All of it but the numbers: equal if the trace took the same way."""
        return tuple([atom.form() for atom in self.atoms]), tuple(
            [question.form() for question in self.asked]
        )

    def extent(self, number: int) -> Any:
        """Return an extent of an array as a length."""
        self.atoms.append(Atom("extent", number))
        return Length(number, {(len(self.atoms) - 1,): Fraction(1)})

    def extents(self, shape: Shape) -> Any:
        """Return a shape as lengths."""
        return tuple([self.extent(number) for number in shape])

    def derived(self, kind: str, length: Length, divisor: int) -> Any:
        """Return a quotient or remainder as a length."""
        key = kind, form_of(length.polynomial), divisor
        value = length.number // divisor if kind == "floor" else length.number % divisor
        if key not in self._known:
            self._known[key] = len(self.atoms)
            self.atoms.append(Atom(kind, value, length.polynomial, divisor))
        return Length(value, {(self._known[key],): Fraction(1)})

    def ask(self, relation: str, length: Length, answer: Any, frame: FrameType, text: str) -> None:
        """Record a question."""
        is_whole = isinstance(length.number, int)
        self.asked.append(
            Question(relation, length.polynomial, length.atoms, answer, site_of(frame), text, is_whole)
        )

    def note_error(self, error: BaseException) -> None:
        """Record that the user's code catches an error, which shapes may have raised."""
        frame: FrameType | None = _frame(1)
        while frame is not None and is_internal(frame):
            frame = frame.f_back
        if frame is not None and self.thread == threading.get_ident() and is_handled(frame):
            text = f"catches {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            atoms = frozenset(range(len(self.atoms)))
            self.asked.append(Question("error", None, atoms, True, site_of(frame), text))


@contextmanager
def asking_lengths() -> Iterator[Questions]:
    """Let lengths record what the user's code asks of them in this block, on this thread."""
    before, questions = ASKING.questions, Questions()
    try:
        ASKING.questions = questions
        RAISED.append(questions.note_error)
        yield questions
    finally:
        ASKING.questions = before
        if questions.note_error in RAISED:
            RAISED.remove(questions.note_error)


def length_of(array: Any) -> Any:
    """Return ``len(thing)``, for arrays as a length where the user's code asks; it is called in the place of `len`."""
    number = _len(array)
    if not isinstance(array, Handle | np.ndarray):
        return number
    questions = ASKING.by_user(_frame(1))
    return number if questions is None else questions.extent(number)


_len: Final = builtins.len


def counted(count: int) -> None:
    """Record that the user's code gets so many items of an array, one after the other: their number follows from that."""
    frame = _users(_frame(2))
    if frame is not None and (questions := ASKING.by_user(frame)) is not None:
        questions.ask(
            "number",
            questions.extent(count),
            count,
            frame,
            "iterates over an array: needs the number of its items",
        )


def _users(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame of the user's code, unless one of gradtape comes first."""
    while frame is not None and is_internal(frame):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE:
            return None
        frame = frame.f_back
    return frame


def _asked_number(length: Length, text: str) -> Any:
    """Return the number of a length. Where the user's code gets it, or NumPy's, that is a question; gradtape makes it a part of the
    program."""
    questions = ASKING.questions
    if questions is None or questions.thread != threading.get_ident():
        return length.number
    frame = _users(_frame(2))
    if frame is None:
        return _content(questions, length)
    questions.ask("number", length, length.number, frame, f"needs {text} of a length")
    return length.number


def _content(questions: Questions, length: Length) -> Any:
    """Return the number of a length, which becomes a part of the program."""
    frame = user_frame(2)
    text = "rounds a length, or takes a remainder, for a number of the program"
    questions.ask("content", length, length.number, frame, text)
    questions.ask(
        "<", length, bool(length.number < 0), frame, "uses a length as an extent, an index or a bound"
    )
    return length.number


def ask_bounds(questions: Questions, key: Any, shape: Shape) -> None:
    """Record on which side of the extents of an array the numbers of an index lie, from which rules make extents."""
    parts = [part for part in (key if type(key) is tuple else (key,)) if part is not None]
    for position, part in enumerate(parts):
        if part is Ellipsis:
            continue
        is_behind = any(item is Ellipsis for item in parts[:position])
        axis = position - len(parts) if is_behind else position
        bounds = (part.start, part.stop) if type(part) is slice else (part,)
        for bound in bounds if -len(shape) <= axis < len(shape) else ():
            if type(bound) is Length or type(bound) is int:
                extent = questions.extent(shape[axis])
                low = extent + bound if bound < 0 else extent - bound
                _compared("<", low, 0, user_frame(2), operator.lt)


def value_of(length: Length) -> Value:
    """Return a length as an operand, which the program computes from extents: Python is not to look at it."""
    questions, constant = ASKING.questions, as_value(length.number)
    if questions is None:
        return constant
    is_whole = constant.dtype.kind in "iu"
    if is_whole and any(len(monomial) > WHOLE_POWERS for monomial in length.polynomial):
        return as_value(_needed(length))
    dtype = INT64 if is_whole else FLOAT64
    value = traced_value(convert(_sum_of_products(length.polynomial, dtype, questions), constant.dtype))
    value.aval = constant.aval
    return value


def _sum_of_products(polynomial: Polynomial, dtype: np.dtype[Any], questions: Questions) -> Value:
    total: Value = literal(0, dtype)
    for monomial, coefficient in polynomial.items():
        term: Value = literal(int(coefficient) if dtype == INT64 else float(coefficient), dtype)
        for number in monomial:
            term = term * convert(_value_of_atom(questions.atoms[number], questions), dtype)
        total = total + term
    return total


def _value_of_atom(atom: Atom, questions: Questions) -> Value:
    if atom.polynomial is None:
        return as_value(as_number(atom.value))
    row = floor_divide if atom.kind == "floor" else remainder
    return row(_sum_of_products(atom.polynomial, INT64, questions), literal(atom.divisor, INT64))


def array_of(length: Length, dtype: np.dtype[Any] | None = None) -> Any:
    """Return a length as a traced number."""
    if dtype is not None and type(length.number) is int:
        length = Length(float(length.number), length.polynomial)
    return ARRAYS["wrap"](value_of(length))


def _computed(function: Callable[..., Any], number: Any, *operands: Any) -> Any:
    """Return what a function makes of numbers of which some are lengths, as a traced number."""
    is_float = isinstance(number, float)  # n**-2 and products of many lengths are no integers
    numbers = [
        array_of(operand, FLOAT64 if is_float else None) if type(operand) is Length else operand
        for operand in operands
    ]
    return function(*numbers)


class Length:
    """A number that is a polynomial of extents of arrays, of their rounded quotients and remainders.

    It is no integer for the functions of C, which read an integer's digits and ask nothing.

    Attributes
    ----------
    number : int or float
        In this trace.
    polynomial : Polynomial
        How it follows from atoms.
    """

    __slots__ = ("number", "polynomial")

    def __init__(self, number: Any, polynomial: Polynomial) -> None:
        self.number = number
        self.polynomial = polynomial

    @property
    def atoms(self) -> frozenset[int]:
        """The atoms that it follows from."""
        return frozenset([atom for monomial in self.polynomial for atom in monomial])

    @property  # type: ignore[misc] # what isinstance asks
    def __class__(self) -> Any:
        return type(self.number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_asked_number(self, f"the attribute {name!r}"), name)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> int:
        return 0

    def __copy__(self) -> Length:
        return self

    def __deepcopy__(self, memo: Any) -> Length:
        return self

    # Where Python needs the number

    def __index__(self) -> int:
        if not isinstance(self.number, int | np.integer):
            raise TypeError(f"'{type(self.number).__name__}' object cannot be interpreted as an integer")
        return int(_asked_number(self, "the index"))

    def __int__(self) -> int:
        return int(_asked_number(self, "the number"))

    def __float__(self) -> float:
        return float(_asked_number(self, "the number"))

    def __complex__(self) -> complex:
        return complex(_asked_number(self, "the number"))

    def __hash__(self) -> int:
        return hash(_asked_number(self, "the hash"))

    def __str__(self) -> str:
        return str(_asked_number(self, "the text"))

    def __repr__(self) -> str:
        return repr(_asked_number(self, "the text"))

    def __format__(self, spec: str) -> str:
        return format(_asked_number(self, "the text"), spec)

    def __reduce__(self) -> Any:
        return type(self.number), (_asked_number(self, "the number"),)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(_asked_number(self, "an array"), dtype)

    # Comparisons

    def __bool__(self) -> bool:
        return not _compared("==", self, 0, _frame(1), operator.eq)

    def __lt__(self, other: Any) -> Any:
        return _compared("<", self, other, _frame(1), operator.lt)

    def __le__(self, other: Any) -> Any:
        return _compared("<=", self, other, _frame(1), operator.le)

    def __gt__(self, other: Any) -> Any:
        answer = _compared("<=", self, other, _frame(1), operator.le)
        return answer if answer is NotImplemented else not answer

    def __ge__(self, other: Any) -> Any:
        answer = _compared("<", self, other, _frame(1), operator.lt)
        return answer if answer is NotImplemented else not answer

    def __eq__(self, other: Any) -> Any:
        return _compared("==", self, other, _frame(1), operator.eq)

    def __ne__(self, other: Any) -> Any:
        answer = _compared("==", self, other, _frame(1), operator.eq)
        return answer if answer is NotImplemented else not answer

    # Arithmetic

    def __neg__(self) -> Length:
        return _scaled(self, -1)

    def __pos__(self) -> Length:
        return self

    def __abs__(self) -> Length:
        return -self if self < 0 else self

    def __round__(self, digits: Any = None) -> Any:
        if digits is None and _denominator(self) == 1:
            return _rounded_down(self)
        return _computed(lambda x: round(x, digits), self.number, self)

    def __floor__(self) -> Length:
        return _rounded_down(self)

    def __ceil__(self) -> Length:
        return -_rounded_down(-self)

    def __trunc__(self) -> Length:
        return _rounded_down(self) if self >= 0 else -_rounded_down(-self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and all(map(_is_number, inputs)):
            number = ufunc(*map(_number, inputs))  # of NumPy's types, which are strong
            if ufunc in SIGNS:
                return Length(number, SIGNS[ufunc](*inputs).polynomial)
            if ufunc in OPERATORS:
                result = _polynomial_result(OPERATORS[ufunc], *inputs)
                if result is not None:
                    return Length(number, result.polynomial)
            elif ufunc in (np.maximum, np.minimum):
                extreme = _extreme(ufunc, *inputs)
                return Length(number, extreme.polynomial) if type(extreme) is Length else number
        return ARRAYS["call"](ufunc, inputs, kwargs, method)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return of_lengths(function, args, kwargs)


def _scaled(length: Length, factor: Any) -> Length:
    return Length(length.number * factor, {m: c * factor for m, c in length.polynomial.items() if factor})


def polynomial_of(number: Any) -> Polynomial | None:
    """Return a number or length as a polynomial; None if it is none."""
    if type(number) is Length:
        return number.polynomial
    if isinstance(number, int | np.integer):
        number = int(number)
    elif not isinstance(number, float | np.floating) or not math.isfinite(number):
        return None
    return {(): Fraction(number if isinstance(number, int) else float(number))} if number else {}


def added(x: Polynomial, y: Polynomial, factor: int = 1) -> Polynomial:
    """Return ``x + factor * y``."""
    coefficients = dict(x)
    for monomial, coefficient in y.items():
        coefficients[monomial] = coefficients.get(monomial, Fraction(0)) + factor * coefficient
    return {monomial: coefficient for monomial, coefficient in coefficients.items() if coefficient}


def multiplied(x: Polynomial, y: Polynomial) -> Polynomial:
    """Return ``x * y``."""
    coefficients: dict[tuple[int, ...], Fraction] = {}
    for a, p in x.items():
        for b, q in y.items():
            monomial = tuple(sorted((*a, *b)))
            coefficients[monomial] = coefficients.get(monomial, Fraction(0)) + p * q
    return {monomial: coefficient for monomial, coefficient in coefficients.items() if coefficient}


_NUMBERS: Final = (int, float, complex, np.number, np.bool_)


def _is_number(value: Any) -> bool:
    return type(value) is Length or (isinstance(value, _NUMBERS) and not isinstance(value, Handle))


def _number(value: Any) -> Any:
    return value.number if type(value) is Length else value


def _numbers(arguments: Any) -> Any:
    """Return arguments with numbers in place of lengths, of a call that makes nothing of the program."""
    return mapped(_number, arguments)


def _compared(relation: str, x: Length, y: Any, frame: FrameType, compare: Callable[[Any, Any], Any]) -> Any:
    if not _is_number(y):
        return NotImplemented
    answer = bool(compare(x.number, _number(y)))
    asking = _users(frame)  # NumPy's functions compare for the user's code
    questions = None if asking is None else ASKING.by_user(asking)
    if questions is None or asking is None:
        return answer
    q = polynomial_of(y)
    if q is not None:
        difference = Length(x.number - _number(y), added(x.polynomial, q, -1))
        if difference.atoms:
            questions.ask(relation, difference, answer, asking, f"compares a length ({relation})")
    elif isinstance(y, complex):
        needed(x)
    return answer


def _extreme(ufunc: Any, x: Any, y: Any) -> Any:
    """Return the greater or the lesser of two numbers of which one is a length."""
    length, other = (x, y) if type(x) is Length else (y, x)
    is_less = _compared("<", length, other, user_frame(2), operator.lt)
    return length if is_less == (ufunc is np.minimum) else other


WHOLE_POWERS: Final = 3
"""The most lengths that are multiplied as integers of 64 bits; the program cannot tell where more of them overflow."""

_POWERS: Final = 4
"""The greatest exponent of a power that is kept as a polynomial."""


def _combined(name: str, x: Any, y: Any) -> Any:
    """Return what an operator makes of two numbers of which one is a length."""
    if not (_is_number(x) and _is_number(y)):
        return NotImplemented
    result = _polynomial_result(name, x, y)
    if result is not None:
        return result
    function = FUNCTIONS[name]
    number = function(_number(x), _number(y))
    if name in ("truediv", "floordiv", "mod") and type(y) is Length:
        _compared("==", y, 0, user_frame(1), operator.eq)  # Python raises an error for 0
    if name in ("pow", "lshift") and isinstance(number, int):  # which may become longer than 64 bits
        return function(needed(x), needed(y))
    return _computed(function, number, x, y)


def _polynomial_result(name: str, x: Any, y: Any) -> Length | None:
    """Return what an operator makes of two numbers, if it is a polynomial."""
    p, q = polynomial_of(x), polynomial_of(y)
    if p is None or q is None or (name in ("truediv", "floordiv", "mod") and not _number(y)):
        return None
    number = FUNCTIONS[name](_number(x), _number(y))
    if type(number) is float:
        polynomial = _exact(name, p, q)
        return None if polynomial is None else Length(number, polynomial)
    if not isinstance(number, int | np.integer):
        return None
    if name in ("add", "sub"):
        return Length(number, added(p, q, 1 if name == "add" else -1))
    if name == "mul":
        return Length(number, multiplied(p, q))
    questions = ASKING.questions
    if name in ("floordiv", "mod") and type(y) is int and y > 0 and questions is not None:
        made_: Length = questions.derived("floor" if name == "floordiv" else "remainder", x, y)
        return made_
    if name == "pow" and type(y) is int and 0 <= y <= _POWERS:
        power: Polynomial = {(): Fraction(1)}
        for _ in range(y):
            power = multiplied(power, p)
        return Length(number, power)
    return None


EXACT_BITS: Final = 20
"""Of the coefficients of polynomials that are computed in floating point without rounding, for all lengths that arrays have."""


def _exact(name: str, p: Polynomial, q: Polynomial) -> Polynomial | None:
    """Return what an operator makes of polynomials in floating point, if nothing is rounded: then comparisons hold for the numbers, too."""
    polynomial: Polynomial
    if name == "truediv" and q.keys() == {()}:
        polynomial = {monomial: coefficient / q[()] for monomial, coefficient in p.items()}
    elif name in ("add", "sub"):
        polynomial = added(p, q, 1 if name == "add" else -1)
    elif name == "mul":
        polynomial = multiplied(p, q)
    else:
        return None
    limit = 1 << EXACT_BITS
    exact = all(
        c.denominator <= limit and not c.denominator & (c.denominator - 1) and abs(c.numerator) <= limit
        for c in polynomial.values()
    )
    return polynomial if exact else None


def _denominator(length: Length) -> int:
    """Return the common denominator of the coefficients of a polynomial."""
    return math.lcm(*[coefficient.denominator for coefficient in length.polynomial.values()])


def _rounded_down(length: Length) -> Length:
    denominator, questions = _denominator(length), ASKING.questions
    if denominator == 1:
        return Length(int(length.number), length.polynomial)
    if questions is None:
        return Length(math.floor(length.number), length.polynomial)
    numerator = {monomial: c * denominator for monomial, c in length.polynomial.items()}
    quotient: Length = questions.derived(
        "floor", Length(int(length.number * denominator), numerator), denominator
    )
    return quotient


def _operators(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def operate(self: Any, other: Any) -> Any:
        return _combined(name, self, other)

    def reflected(self: Any, other: Any) -> Any:
        return _combined(name, other, self)

    return operate, reflected


for _name in FUNCTIONS:
    _operate, _reflected = _operators(_name)
    setattr(Length, f"__{_name}__", _operate)
    setattr(Length, f"__r{_name}__", _reflected)


def mapped(function: Callable[[Any], Any], arguments: Any) -> Any:
    if type(arguments) in (tuple, list):
        return type(arguments)([mapped(function, item) for item in arguments])
    if type(arguments) is dict:
        return {key: mapped(function, item) for key, item in arguments.items()}
    if type(arguments) is slice:
        return slice(*[mapped(function, item) for item in (arguments.start, arguments.stop, arguments.step)])
    return function(arguments)


def plain(arguments: Any) -> Any:
    """Return arguments of a rule with numbers in place of lengths: they become parts of the program."""
    questions = ASKING.questions
    if questions is None:
        return _numbers(arguments)
    return mapped(lambda item: _content(questions, item) if type(item) is Length else item, arguments)


def needed(arguments: Any) -> Any:
    """Return arguments of a function that needs the numbers of lengths."""
    return mapped(lambda item: _needed(item) if type(item) is Length else item, arguments)


def _needed(length: Length) -> Any:
    questions = ASKING.questions
    if questions is not None:
        questions.ask("number", length, length.number, user_frame(2), "needs the number of a length")
    return length.number


def has_lengths(arguments: Any) -> bool:
    """Return whether lengths stand among arguments."""
    return bool(_all_lengths(arguments))


def _all_lengths(arguments: Any) -> list[Length]:
    lengths: list[Length] = []
    mapped(lambda item: lengths.append(item) if type(item) is Length else None, arguments)
    return lengths


def answered(questions: Questions, function: Callable[..., Any], *args: Any) -> Any:
    """Call a method of an array for the user's code: numbers of elements become lengths, and errors that it catches are questions."""
    try:
        result = function(*args)
    except Exception as error:
        if not isinstance(error, GradtapeError):  # those have been noted
            questions.note_error(error)
        raise
    if isinstance(result, tuple | list) and any(isinstance(item, Handle) for item in result):
        frame = _users(_frame(2))
        if frame is not None:
            questions.ask(
                "number",
                questions.extent(_len(result)),
                _len(result),
                frame,
                "needs the number of arrays in a list",
            )
        return result
    return _with_extents(questions, result)


def _with_extents(questions: Questions, result: Any) -> Any:
    if type(result) is int:
        return questions.extent(result)
    return tuple([_with_extents(questions, item) for item in result]) if type(result) is tuple else result


def of_lengths(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy's or `math` for lengths; arrays that it makes are traced."""
    fold = FOLDS.get(function)
    if fold is not None and not kwargs and _are_numbers(args):
        return functools.reduce(fold, args[0])
    if getattr(function, "__module__", None) != "math":
        return ARRAYS["call"](function, args, kwargs)
    function(*_numbers(args), **_numbers(kwargs))  # raises what it raises for numbers
    if function in DOMAINS and type(args[0]) is Length:
        relation, compare = DOMAINS[function]
        _compared(relation, args[0], 0, user_frame(2), compare)
    return function(*mapped(_as_array, args), **mapped(_as_array, kwargs))


def _as_array(value: Any) -> Any:
    return array_of(value) if type(value) is Length else value


def _are_numbers(args: tuple[Any, ...]) -> bool:
    """Return whether the only argument is a sequence of numbers."""
    return (
        _len(args) == 1 and type(args[0]) in (tuple, list) and bool(args[0]) and all(map(_is_number, args[0]))
    )


NUMBER_LIKE[Length] = value_of
