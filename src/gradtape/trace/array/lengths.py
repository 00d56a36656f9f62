"""Lengths that record what Python asks of them, while a function is traced for an export in which they vary.

Inside such a trace, the shapes, sizes and lengths of arrays are `Length` objects for the user's code. Sums, differences, products and whole
quotients of lengths are lengths again, with a polynomial that says how they follow from the lengths that were read. Each comparison
is a `Question` with its answer, and so is each use that needs the number itself (``range(n)``, ``hash(n)``, ``float(n)``). The export then
proves that the answers are the same for all lengths for which the program is used, or refuses the function.

gradtape's own code, and that of NumPy and SciPy, gets plain integers.
"""

from __future__ import annotations

import builtins
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
from gradtape.ir.types import Shape
from gradtape.kinds.operands import NUMBER_LIKE
from gradtape.records import record
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.outcomes import is_handled
from gradtape.trace.patching.callers import callee_of
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.sites import PACKAGE, Site, site_of

Polynomial = Mapping[tuple[int, ...], Fraction]
"""Coefficients by monomials: the numbers of the atoms that are multiplied, in ascending order."""

CREATORS: Final[frozenset[Any]] = frozenset(
    {np.zeros, np.empty, np.ones, np.full, np.eye, np.identity, np.tri, np.arange, np.linspace}
)
"""Functions that make an array of so many elements: nothing that Python sees follows from the number."""

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
        return self.kind, _form(self.polynomial), self.divisor


@record
class Question:
    """What Python asked of lengths.

    Attributes
    ----------
    relation : {"<", "<=", "==", "number", "error"}
        A comparison of the polynomial with 0; ``number`` if the number itself was needed; ``error`` if an error was caught.
    polynomial : Polynomial or None
        None if the number is no polynomial of atoms, but follows from some.
    atoms : frozenset of int
        These atoms.
    answer : object
        Of the comparison.
    site : Site
        The line.
    text : str
        What was asked.
    """

    relation: str
    polynomial: Polynomial | None
    atoms: frozenset[int]
    answer: Any
    site: Site
    text: str

    def form(self) -> Any:
        """All of it but the place in the code."""
        answer = None if self.relation == "number" else self.answer
        return self.relation, _form(self.polynomial), tuple(sorted(self.atoms)), answer


def _form(polynomial: Polynomial | None) -> Any:
    return None if polynomial is None else tuple(sorted(polynomial.items()))


class Questions:
    """The atoms of one trace, and what was asked of them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.asked: list[Question] = []
        self.thread = threading.get_ident()
        self._known: dict[Any, int] = {}

    def form(self) -> Any:
        """All of it but the numbers: equal if the trace took the same way."""
        return tuple([atom.form() for atom in self.atoms]), tuple([one.form() for one in self.asked])

    def extent(self, number: int) -> Any:
        """Return an extent of an array as a length."""
        self.atoms.append(Atom("extent", number))
        return Length(number, {(len(self.atoms) - 1,): Fraction(1)})

    def extents(self, shape: Shape) -> Any:
        """Return a shape as lengths."""
        return tuple([self.extent(number) for number in shape])

    def derived(self, kind: str, length: Length, divisor: int) -> Any:
        """Return a quotient or remainder as a length."""
        assert length.polynomial is not None
        key = kind, _form(length.polynomial), divisor
        value = length.number // divisor if kind == "floor" else length.number % divisor
        if key not in self._known:
            self._known[key] = len(self.atoms)
            self.atoms.append(Atom(kind, value, length.polynomial, divisor))
        return Length(value, {(self._known[key],): Fraction(1)})

    def ask(self, relation: str, length: Length, answer: Any, frame: FrameType, text: str) -> None:
        """Record a question."""
        self.asked.append(Question(relation, length.polynomial, length.atoms, answer, site_of(frame), text))

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
    before, found = ASKING.questions, Questions()
    try:
        ASKING.questions = found
        RAISED.append(found.note_error)
        yield found
    finally:
        ASKING.questions = before
        if found.note_error in RAISED:
            RAISED.remove(found.note_error)


def length_of(thing: Any) -> Any:
    """Return ``len(thing)``, for arrays as a length where the user's code asks; it is called in the place of `len`."""
    number = _len(thing)
    if not isinstance(thing, Handle | np.ndarray):
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
    """Return the number of a length; where the user's code gets it, that is a question."""
    questions = ASKING.questions
    frame = _users(_frame(2))
    if questions is None or frame is None or questions.thread != threading.get_ident():
        return length.number
    if text != "the index" or callee_of(frame) not in CREATORS:
        questions.ask("number", length, length.number, frame, f"needs {text} of a length")
    return length.number


class Length:
    """A whole number that follows from the lengths of arrays, or a number that is computed with one.

    It is no integer for the functions of C, which read an integer's digits and ask nothing.

    Attributes
    ----------
    number : int or float
        In this trace.
    polynomial : Polynomial or None
        How it follows from atoms; None if it is no polynomial.
    atoms : frozenset of int
        The atoms that it follows from.
    """

    __slots__ = ("atoms", "number", "polynomial")

    number: Any
    polynomial: Polynomial | None
    atoms: frozenset[int]

    def __init__(
        self, number: Any, polynomial: Polynomial | None, atoms: frozenset[int] = frozenset()
    ) -> None:
        self.number = number
        self.polynomial = polynomial
        self.atoms = (
            atoms if polynomial is None else frozenset([one for monomial in polynomial for one in monomial])
        )

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
        found = _compared("<=", self, other, _frame(1), operator.le)
        return found if found is NotImplemented else not found

    def __ge__(self, other: Any) -> Any:
        found = _compared("<", self, other, _frame(1), operator.lt)
        return found if found is NotImplemented else not found

    def __eq__(self, other: Any) -> Any:
        return _compared("==", self, other, _frame(1), operator.eq)

    def __ne__(self, other: Any) -> Any:
        found = _compared("==", self, other, _frame(1), operator.eq)
        return found if found is NotImplemented else not found

    # Arithmetic

    def __neg__(self) -> Length:
        return _scaled(self, -1)

    def __pos__(self) -> Length:
        return self

    def __abs__(self) -> Length:
        return -self if self < 0 else self

    def __round__(self, digits: Any = None) -> Length:
        return self if self.polynomial is not None else _opaque(round(self.number, digits), self)

    def __floor__(self) -> Length:
        return self if self.polynomial is not None else _opaque(math.floor(self.number), self)

    def __ceil__(self) -> Length:
        return self if self.polynomial is not None else _opaque(math.ceil(self.number), self)

    def __trunc__(self) -> Length:
        return self if self.polynomial is not None else _opaque(math.trunc(self.number), self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        made = getattr(ufunc, method)(*plain(inputs), **plain(kwargs))
        return _result(made, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _result(function(*plain(args), **plain(kwargs)), (args, kwargs))


def _opaque(number: Any, *operands: Any) -> Length:
    """Return a number that follows from lengths, but is no polynomial of them."""
    return Length(number, None, frozenset().union(*[one.atoms for one in operands if type(one) is Length]))


def _scaled(length: Length, factor: Any) -> Length:
    if length.polynomial is None:
        return _opaque(length.number * factor, length)
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
    found = dict(x)
    for monomial, coefficient in y.items():
        found[monomial] = found.get(monomial, Fraction(0)) + factor * coefficient
    return {monomial: coefficient for monomial, coefficient in found.items() if coefficient}


def multiplied(x: Polynomial, y: Polynomial) -> Polynomial:
    """Return ``x * y``."""
    found: dict[tuple[int, ...], Fraction] = {}
    for a, p in x.items():
        for b, q in y.items():
            monomial = tuple(sorted((*a, *b)))
            found[monomial] = found.get(monomial, Fraction(0)) + p * q
    return {monomial: coefficient for monomial, coefficient in found.items() if coefficient}


_NUMBERS: Final = (int, float, complex, np.number, np.bool_)


def _is_number(thing: Any) -> bool:
    return type(thing) is Length or (isinstance(thing, _NUMBERS) and not isinstance(thing, Handle))


def _number(thing: Any) -> Any:
    return thing.number if type(thing) is Length else thing


def _compared(relation: str, x: Length, y: Any, frame: FrameType, compare: Callable[[Any, Any], Any]) -> Any:
    if not _is_number(y):
        return NotImplemented
    answer = bool(compare(x.number, _number(y)))
    questions = ASKING.by_user(frame)
    if questions is None:
        return answer
    p, q = x.polynomial, polynomial_of(y)
    difference = Length(0, None, x.atoms | (y.atoms if type(y) is Length else frozenset()))
    if p is not None and q is not None:
        difference = Length(0, added(p, q, -1))
    if difference.atoms:
        questions.ask(relation, difference, answer, frame, f"compares a length ({relation})")
    return answer


_POWERS: Final = 4
"""The greatest exponent of a power that is kept as a polynomial."""


def _combined(name: str, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """Return what an operator makes of two numbers of which one is a length."""
    if not (_is_number(x) and _is_number(y)):
        return NotImplemented
    number = function(_number(x), _number(y))
    if type(number) is not int:
        return _opaque(number, x, y)
    p, q = polynomial_of(x), polynomial_of(y)
    if p is not None and q is not None:
        if name in ("add", "sub"):
            return Length(number, added(p, q, 1 if name == "add" else -1))
        if name == "mul":
            return Length(number, multiplied(p, q))
        questions = ASKING.questions
        if name in ("floordiv", "mod") and type(y) is int and y > 0 and questions is not None:
            return questions.derived("floor" if name == "floordiv" else "remainder", x, y)
        if name == "pow" and type(y) is int and 0 <= y <= _POWERS:
            power: Polynomial = {(): Fraction(1)}
            for _ in range(y):
                power = multiplied(power, p)
            return Length(number, power)
    return _opaque(number, x, y)


def _operators(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = getattr(operator, name if name not in ("and", "or") else f"{name}_")

    def operate(self: Any, other: Any) -> Any:
        return _combined(name, function, self, other)

    def reflected(self: Any, other: Any) -> Any:
        return _combined(name, function, other, self)

    return operate, reflected


for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor",
):  # fmt: skip
    _operate, _reflected = _operators(_name)
    setattr(Length, f"__{_name}__", _operate)
    setattr(Length, f"__r{_name}__", _reflected)


def plain(things: Any) -> Any:
    """Return arguments with numbers in place of lengths."""
    if type(things) is Length:
        return things.number
    if type(things) in (tuple, list):
        return type(things)([plain(item) for item in things])
    if type(things) is dict:
        return {key: plain(item) for key, item in things.items()}
    if type(things) is slice:
        return slice(plain(things.start), plain(things.stop), plain(things.step))
    return things


def has_lengths(things: Any) -> bool:
    """Return whether lengths stand among arguments."""
    if type(things) in (tuple, list):
        return any(map(has_lengths, things))
    if type(things) is dict:
        return any(map(has_lengths, things.values()))
    return type(things) is Length


def _all_lengths(things: Any) -> list[Length]:
    if type(things) in (tuple, list):
        return [length for item in things for length in _all_lengths(item)]
    if type(things) is dict:
        return _all_lengths(list(things.values()))
    return [things] if type(things) is Length else []


def _result(made: Any, given: Any) -> Any:
    """Return what a function made of lengths: numbers as numbers that follow from them."""
    if isinstance(made, tuple):
        return tuple([_result(item, given) for item in made])
    return (
        _opaque(made, *_all_lengths(given))
        if isinstance(made, _NUMBERS) and not isinstance(made, Handle)
        else made
    )


def answered(questions: Questions, function: Callable[..., Any], *args: Any) -> Any:
    """Call a method of an array for the user's code: numbers of elements become lengths, and errors that it catches are questions."""
    try:
        made = function(*args)
    except Exception as error:
        if not isinstance(error, GradtapeError):  # those have been noted
            questions.note_error(error)
        raise
    if isinstance(made, tuple | list) and any(isinstance(item, Handle) for item in made):
        frame = _users(_frame(2))
        if frame is not None:
            questions.ask(
                "number",
                questions.extent(_len(made)),
                _len(made),
                frame,
                "needs the number of arrays in a list",
            )
        return made
    return _with_extents(questions, made)


def _with_extents(questions: Questions, made: Any) -> Any:
    if type(made) is int:
        return questions.extent(made)
    return tuple([_with_extents(questions, item) for item in made]) if type(made) is tuple else made


def of_lengths(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of C for lengths."""
    return _result(function(*plain(args), **plain(kwargs)), (args, kwargs))


NUMBER_LIKE[Length] = lambda length: length.number
