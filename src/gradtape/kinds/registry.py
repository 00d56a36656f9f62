"""Where rows enter themselves, and where the trace looks them up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray, Op

ROWS: dict[str, Op] = {}
"""Every op, by name."""

UFUNCS: dict[str, Callable[..., Any]] = {}
"""What runs in place of a ufunc of NumPy or SciPy, by the ufunc's name: a row, or a function for a
generalised ufunc."""

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What runs in place of a NumPy function when an argument is traced, by the function."""

UFUNC_METHODS: dict[tuple[str, str], Callable[..., Any]] = {}
"""The same for methods of ufuncs, by the ufunc's name and the method: ``("add", "reduce")``."""

GENERIC_METHODS: dict[str, Callable[..., Any]] = {}
"""Methods that work alike for every ufunc, by name; what runs takes the ufunc's row before the arguments."""

WRITERS: set[Any] = set()
"""The functions (and ufunc methods) among these that write into their first argument: what runs returns
what it becomes."""

BY_ITEM: set[Any] = set()
"""The functions among these that convert the items of lists to the dtype of their first argument."""

Sample = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a function under test; see `sample`."""


class Trial(NamedTuple):
    """How a function is tested: with which arguments, in which dtypes besides float64, and whether against
    differences."""

    samples: Sequence[Sample]
    dtypes: str
    smooth: bool


TRIALS: dict[Any, Trial] = {}
"""The trial of each function in `FUNCTIONS`, and of each ufunc method by ``(ufunc, method)``."""

UNSUPPORTED: dict[str, str] = {}
"""Why a function is not supported and what to do instead, by its qualified name: ``numpy.linalg.eigvals``."""

BORROWED: dict[str, Callable[..., Any]] = {}
"""What runs in place of functions that are written in Python and do not dispatch, by where users find them: ``scipy.special.logsumexp``."""

OPAQUE: dict[str, tuple[dict[str, str], bool]] = {}
"""Functions that compute with numbers only, and may call the user's functions with numbers, by their module: why, empty for the common
reason, ``supported`` for one that is none of them; and whether the other public functions of the module are opaque as well."""

SOLVERS: dict[str, Callable[..., Any]] = {}
"""What runs in place of an opaque function when a traced array reaches it, by its name: ``(plain, args, kwargs) -> result``, or
NotImplemented."""

MAKERS: set[str] = set()
"""The functions in `SOLVERS` whose rule also stands for calls without traced arrays: what they return may be called with traced arrays."""

BORROWED_OUTPUTS: dict[str, int] = {}
"""The position of the argument that such a function writes its result into, by the same names."""

OpT = TypeVar("OpT", bound=Op)
F = TypeVar("F", bound=Callable[..., Any])


def register(row: OpT) -> OpT:
    """Enter a row; a name may be used once."""
    if row.name in ROWS:
        raise ValueError(f"two rows are called {row.name!r}")
    ROWS[row.name] = row
    return row


class Hooks:
    """Functions of the trace that lower layers call.

    Attributes
    ----------
    numbers : callable
        ``(Value) -> array or None``: the array itself where it can be had now. None inside a trace that
        must not look.
    check : callable
        ``(Value) -> bool or None``: whether a condition holds, on which a shape depends, where values have no numbers: the program checks
        it, and code goes on as if it held. None where numbers can be had.
    fit : callable
        ``(Value, dtype) -> None``: lets the program check that a Python number without a literal fits an integer dtype.
    written : callable
        ``(Value, array, what) -> None``: notes that numbers are written as text or into a file, by a call that `what` describes.
    call : callable
        ``(function, *args, **kwargs)`` calls a user's function, with arrays in place of values, and returns
        values.
    scan : callable
        ``(step, consts, carries, elements, reverse=False) -> (carries, ys)`` loops over the leading axis of the elements:
        ``step(consts, carries, elements) -> (carries, ys)`` in each iteration.
    """

    __slots__ = ("call", "check", "fit", "numbers", "scan", "written")

    def __init__(self) -> None:
        self.numbers: Callable[[Value], NDArray | None] = lambda value: value.data
        self.check: Callable[[Value], bool | None] = lambda ok: None
        self.fit: Callable[[Value, np.dtype[Any]], None] = lambda value, dtype: None
        self.written: Callable[[Value, NDArray, str], None] = lambda value, array, what: None
        self.call: Callable[..., Any] = lambda function, *args, **kwargs: function(*args, **kwargs)
        self.scan: Callable[..., tuple[Sequence[Value], Sequence[Value]]]


HOOKS = Hooks()


def sample(*args: Any, **kwargs: Any) -> Sample:
    """Return arguments to test a function with.

    Among the positional ones a tuple of integers is a shape, for a random traced array; an ndarray is a
    traced array with these
    numbers; a list holds such arguments. Whatever else, and what is passed by keyword, is passed on as it is.
    """
    return args, kwargs


def implements(
    *functions: Any,
    samples: Sequence[Sample] = (),
    dtypes: str = "?bBqfFD",
    smooth: bool = True,
    writes: bool = False,
    by_item: bool = False,
) -> Callable[[F], F]:
    """Let the decorated function run in place of these NumPy functions when an argument is traced.

    Parameters
    ----------
    *functions : callable
        NumPy's; those that the NumPy at hand lacks are given as None.
    samples : sequence of Sample
        What it is tested with (see `sample`), against each of the functions.
    dtypes : str
        Character codes of the dtypes that it is tested with besides float64.
    smooth : bool
        Whether the derivative is tested against differences.
    writes : bool
        Whether it writes into its first argument: then the replacement returns what that becomes.
    by_item : bool
        Whether it converts the items of a list to the dtype of its first argument, so that each has to fit; other functions make an array
        of the list first.
    """

    def enter(replacement: F) -> F:
        for function in dict.fromkeys(functions):
            if function is None:
                continue
            if function in FUNCTIONS:
                raise ValueError(f"two replacements for {function!r}")
            FUNCTIONS[function] = replacement
            TRIALS[function] = Trial(samples, dtypes, smooth)
            if writes:
                WRITERS.add(function)
            if by_item:
                BY_ITEM.add(function)
        return replacement

    return enter


def borrows(*names: str, writes: int | None = None) -> Callable[[F], F]:
    """Let the decorated function run in place of these functions, which do not dispatch, when an argument is traced.

    Parameters
    ----------
    *names : str
        Where they are found, private modules included: functions written in Python or in C.
    writes : int, optional
        For a function that writes its result into an argument: the position of this argument. What runs gets its `Aval`
        there, and returns what is written.
    """

    def enter(replacement: F) -> F:
        for name in names:
            if name in BORROWED:
                raise ValueError(f"two replacements for {name}")
            BORROWED[name] = replacement
            if writes is not None:
                BORROWED_OUTPUTS[name] = writes
        return replacement

    return enter


def implements_method(
    ufunc: str,
    *methods: str,
    samples: Sequence[Sample] = (),
    dtypes: str = "?bBqf",
    smooth: bool = True,
    writes: bool = False,
) -> Callable[[F], F]:
    """Let the decorated function run in place of these methods of a ufunc (parameters as `implements`)."""

    def enter(replacement: F) -> F:
        for method in methods:
            UFUNC_METHODS[ufunc, method] = replacement
            TRIALS[ufunc, method] = Trial(samples, dtypes, smooth)
            if writes:
                WRITERS.add((ufunc, method))
        return replacement

    return enter


@lru_cache(maxsize=512)
def out_place(function: Any) -> int | None:
    """Return where among the positional arguments of a NumPy function ``out`` stands, which replacements do
    not take."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    for place, parameter in enumerate(parameters):
        if parameter.name == "out" and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            return place
    return None


def find_method(ufunc: str, method: str) -> Callable[..., Any] | None:
    """Return what runs in place of a method of a ufunc, or None where it is not supported."""
    own = UFUNC_METHODS.get((ufunc, method))
    if own is not None:
        return own
    row, generic = UFUNCS.get(ufunc), GENERIC_METHODS.get(method)
    return None if row is None or generic is None else partial(generic, row)
