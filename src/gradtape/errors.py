"""What can go wrong, as a tree. Every class has a page under ``docs/reference/errors/`` that shows it happening and how to mend it.

::

    GradtapeError
    ├── ArgumentError (ValueError)              an argument that cannot be used
    │   ├── ShapeError                          shapes that do not fit together
    │   ├── StructureError                      nested containers that do not match
    │   ├── RuleError (TypeError)               a custom derivative rule that returns something else than it must
    │   └── UnconnectedError                    no differentiable path from the target to a source
    ├── DtypeError (TypeError)                  a dtype or type that cannot be used
    │   ├── IntegerInputError                   a derivative with respect to an integer
    │   ├── StaticArgumentError                 a static argument that is not hashable
    │   └── ArraySubclassError                  np.matrix, masked arrays and other subclasses
    ├── NonScalarOutputError (TypeError)        grad() of a function whose result is not one number
    ├── UnsupportedFunctionError (TypeError, LookupError)    a NumPy function without a rule
    ├── UnsupportedCodeError (TypeError)        code that the front end does not translate
    ├── ConcretizationError (TypeError)         float(x), x.item(), x.numpy() of a traced value in jit
    ├── InPlaceError (ValueError)               an in-place write that NumPy itself would refuse
    │   └── CastError (TypeError)               the result does not fit the dtype of the target
    ├── NotDifferentiableError (LookupError)    an op that has no derivative
    ├── SingularJacobianError (ArithmeticError)    the solution of a solver that has no derivative
    ├── MemoryBudgetError (MemoryError)         a loop whose gradient exceeds gt.config.memory
    ├── UnknownGradientError (LookupError)      a debugger has no gradient of this value
    ├── NumericsError (FloatingPointError)      check_numerics found a NaN or an infinity
    ├── TapeError (RuntimeError)                a tape used out of order
    ├── LeakedValueError (RuntimeError)         a traced value used after its function has returned
    ├── GradientCheckError (AssertionError)     check_grads found a wrong derivative
    └── InternalError (RuntimeError)            a defect of gradtape itself: please report it
        ├── VerifyError                         a graph that breaks the rules between two stages
        ├── CompileBudgetError                  a compilation that does not converge; the interpreter runs the graph instead
        └── LoweringError                       a graph that cannot be compiled; the interpreter runs it instead

    GradtapeWarning (UserWarning)
    ├── TraceLimitWarning                       a call site with too many traces runs on the interpreter
    ├── SideEffectWarning                       a traced function does what its compiled form does not repeat
    ├── CompileWarning                          a function, or an operation in it, has no machine code: NumPy computes it
    ├── CacheWarning                            the disk cache cannot be used
    ├── DensifyWarning                          a large array was made of a few rows
    ├── LongLoopWarning                         a tape has recorded a loop that goes on for long
    └── IntegerWatchWarning                     a tape was asked to watch integers
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

LIBRARIES: Final = frozenset(
    {__name__.partition(".")[0], "contextlib", "copy", "functools", "numpy", "scipy"}
)
"""Whose frames are not the user's: code of NumPy, of SciPy or of Python's library stands between an array and the line that used it."""

INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
STANDARD: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
"""The folder of Python's library."""


RAISED: Final[list[Callable[[Exception], None]]] = []
"""Called with each error of gradtape when it is made."""


class GradtapeError(Exception):
    """The root of what gradtape raises.

    Parameters
    ----------
    what : str
        What happened, naming the argument and what it got.
    where : object, optional
        The place in the user's code.
    why : str, optional
        The reason.
    remedy : str, optional
        What to do.
    """

    def __init__(self, what: str, *, where: Any = None, why: str = "", remedy: str = "") -> None:
        self.what, self.where, self.why, self.remedy = what, where, why, remedy
        for see in RAISED:
            see(self)
        super().__init__(_page(type(self), what, where, why, remedy))

    def __reduce__(self) -> tuple[Any, ...]:
        # Code objects, to which positions refer, stay in their process.
        where = None if self.where is None else str(self.where)
        notes = getattr(self, "__notes__", None)
        return _again, (type(self), self.what, where, self.why, self.remedy), notes and {"__notes__": notes}


def _again(kind: type[GradtapeError], what: str, where: str | None, why: str, remedy: str) -> GradtapeError:
    return kind(what, where=where, why=why, remedy=remedy)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def warn(
    category: type[GradtapeWarning], what: str, *, where: Any = None, why: str = "", remedy: str = ""
) -> None:
    """Warn at the user's line; the parameters are those of `GradtapeError`."""
    warning = category(_page(category, what, where, why, remedy))
    warning.what, warning.where, warning.why, warning.remedy = what, where, why, remedy
    warnings.warn(warning, stacklevel=user_level())


def kind_of(thing: Any) -> str:
    """Return the type of an object with its article, and the length of a tuple or list; "None" for None."""
    if thing is None:
        return "None"
    name = type(thing).__name__
    article = "an" if name == "ndarray" or name[0] in "aeioAEIO" else "a"
    return f"{article} {name}{f' of length {len(thing)}' if isinstance(thing, tuple | list) else ''}"


def note_recursion(error: BaseException | None, where: str) -> None:
    """Let an error say what to do if it is that Python's recursion went too deep; `where` names what was running."""
    if not isinstance(error, RecursionError) or any(
        RECURSION in note for note in getattr(error, "__notes__", ())
    ):
        return
    error.add_note(
        f"  where: {where}\n"
        f"  why: {RECURSION}, and so are containers inside containers, and Python allows {sys.getrecursionlimit()} nested calls\n"
        "  what to do: end the recursion on a number that is known while tracing (len(x), a static argument), write it as a loop or as "
        "gt.while_loop, pass arguments in fewer nested containers, or raise the limit with sys.setrecursionlimit"
    )


RECURSION: Final = "calls of a recursive function are traced one inside the other"


def user_level() -> int:
    """Return the ``stacklevel`` with which the caller's warning names the user's line."""
    level, first, frame = 1, 0, sys._getframe(1)
    while not is_users(frame):
        if not first and not is_internal(frame):
            first = level
        if frame.f_back is None:
            return first or level
        level, frame = level + 1, frame.f_back
    return level


def is_internal(frame: FrameType) -> bool:
    """Return whether a frame is of gradtape, or of a library whose functions gradtape supports."""
    return _is_of_library(frame.f_globals.get("__name__", ""))


@functools.lru_cache(maxsize=4096)
def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES


def is_users(frame: FrameType) -> bool:
    """Return whether a frame is of the user's own code, and not of an installed package or of Python's library."""
    return not is_internal(frame) and not is_installed(frame.f_code.co_filename)


@functools.lru_cache(maxsize=4096)
def is_installed(filename: str) -> bool:
    """Return whether a file belongs to an installed package, or to Python's library."""
    return filename.startswith(("<frozen ", STANDARD)) or any(folder in filename for folder in INSTALLED)


def _page(kind: type, what: str, where: Any, why: str, remedy: str) -> str:
    lines = [what]
    if where is not None:
        lines.append(f"  where: {where}")
    if why:
        lines.append(f"  why: {why}")
    if remedy:
        lines.append(f"  what to do: {remedy}")
    lines.append(f"  more: python -m gradtape explain {kind.__name__}")
    return "\n".join(lines)


class ArgumentError(GradtapeError, ValueError):
    """An argument cannot be used."""


class ShapeError(ArgumentError):
    """Shapes do not fit together."""


class StructureError(ArgumentError):
    """Nested containers do not match."""


class RuleError(ArgumentError, TypeError):
    """A custom derivative rule is missing, or returned something else than it must."""


class UnconnectedError(ArgumentError):
    """There is no differentiable path from the target to a source."""


class DtypeError(GradtapeError, TypeError):
    """A dtype or type cannot be used."""


class IntegerInputError(DtypeError):
    """A derivative with respect to an integer is undefined."""


class StaticArgumentError(DtypeError):
    """A static argument is not hashable."""


class ArraySubclassError(DtypeError):
    """A subclass of ndarray whose semantics gradtape does not support."""


class NonScalarOutputError(GradtapeError, TypeError):
    """The result of a function given to `grad` is not one number."""


class UnsupportedFunctionError(GradtapeError, TypeError, LookupError):
    """A NumPy function that gradtape does not support: it has no rule, of which other libraries tell by a LookupError."""


class UnsupportedCodeError(GradtapeError, TypeError):
    """Code that the front end does not translate to a procedure: strings, dicts, try statements, generators.

    Attributes
    ----------
    unexpected : bool
        Whether the front end failed with an exception that it did not expect: the code is wrong, or the front end is.
    """

    unexpected = False


class ConcretizationError(GradtapeError, TypeError):
    """A traced value was converted to a number inside a jitted function.

    Attributes
    ----------
    op_by_op : bool
        Whether the call of the jitted function runs op by op instead, in which the error does not occur.
    """

    op_by_op = False


class InPlaceError(GradtapeError, ValueError):
    """An in-place write that NumPy itself would refuse, or whose effect cannot be as in NumPy.

    Attributes
    ----------
    is_final : bool
        Whether another trace of the function would raise it as well.
    """

    is_final = False


class CastError(InPlaceError, TypeError):
    """The result of an in-place operation does not fit the dtype of its target."""


class NotDifferentiableError(GradtapeError, LookupError):
    """An op on the path has no derivative."""


class SingularJacobianError(GradtapeError, ArithmeticError):
    """The solution of a solver has no derivative: the Jacobian of its equations is singular."""


class MemoryBudgetError(GradtapeError, MemoryError):
    """The gradient of a loop does not fit in the memory budget, whatever is computed again."""


class UnknownGradientError(GradtapeError, LookupError):
    """A debugger has no gradient of this value."""


class NumericsError(GradtapeError, FloatingPointError):
    """A NaN or an infinity came up while numbers were checked.

    Attributes
    ----------
    finding : object
        The op, the element, and the numbers that made it.
    """

    def __init__(
        self, what: str, *, where: Any = None, why: str = "", remedy: str = "", finding: Any = None
    ) -> None:
        super().__init__(what, where=where, why=why, remedy=remedy)
        self.finding = finding


class TapeError(GradtapeError, RuntimeError):
    """A tape is used out of order."""


class LeakedValueError(GradtapeError, RuntimeError):
    """A traced value is used after its function has returned."""


class GradientCheckError(GradtapeError, AssertionError):
    """A derivative disagrees with differences."""


class InternalError(GradtapeError, RuntimeError):
    """A defect of gradtape itself."""


class VerifyError(InternalError):
    """A graph or loops break the rules between two stages."""


class CompileBudgetError(InternalError):
    """A compilation took more steps than its graph allows."""


class LoweringError(InternalError):
    """A graph cannot be compiled."""


def is_defect(error: Exception) -> bool:
    """Return whether an error reports a defect of gradtape, unless it is an error of the user's code.

    What a stage cannot lower is a limit. An exception of another library was not expected, unless it is a warning that a filter raises.
    """
    if isinstance(error, GradtapeError):
        return isinstance(error, InternalError) and not isinstance(error, CompileBudgetError | LoweringError)
    return not isinstance(error, Warning)


class GradtapeWarning(UserWarning):
    """The base class of gradtape's warnings, with the attributes of `GradtapeError`."""

    what: str = ""
    where: Any = None
    why: str = ""
    remedy: str = ""


class TraceLimitWarning(GradtapeWarning):
    """A call site has too many traces."""


class SideEffectWarning(GradtapeWarning):
    """A traced function reads a clock or a file, or draws from Python's `random`, or a loop writes outside: compiled calls do not."""


class CompileWarning(GradtapeWarning):
    """A function, or an operation in it, could not be compiled."""


class CacheWarning(GradtapeWarning):
    """The disk cache cannot be used."""


class DensifyWarning(GradtapeWarning):
    """A large array was made of a few rows."""


class LongLoopWarning(GradtapeWarning):
    """A tape has recorded a loop that goes on for long."""


class IntegerWatchWarning(GradtapeWarning):
    """A tape was asked to watch integers."""
