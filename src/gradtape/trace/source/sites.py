"""Sites: the places of operations in user code."""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import numpy as np

from gradtape.errors import is_installed, is_internal, is_users
from gradtape.trace.patching.bytecode import line_at

PACKAGE = __name__.split(".")[0]


OWN: Final = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (np, sys.modules[PACKAGE])
)
"""The folders of NumPy and gradtape."""


SKLEARN: Final = f"-packages{os.sep}sklearn{os.sep}"
"""The folder of scikit-learn; other packages have a folder or a module of this name."""


FOLLOWED: Final = tuple(
    f"{os.sep}{os.path.join(*name.split('.'))}{end}"
    for end in (os.sep, ".py")
    for name in (
        f"{PACKAGE}.trace.routines",
        "numpy._core._asarray",
        "numpy.lib",
        "numpy.polynomial",
        "scipy._external.array_api_compat",
        "scipy._external.array_api_extra",
        "scipy._lib",
        "scipy.cluster",
        "scipy.fft",
        "scipy.integrate",
        "scipy.interpolate",
        "scipy.linalg",
        "scipy.ndimage",
        "scipy.signal",
        "scipy.sparse.linalg._interface",
        "scipy.spatial",
        "scipy.special",
        "scipy.stats",
    )
) + (SKLEARN,)
"""The folders and files of packages whose functions, if they are written in Python, are traced as user code is, and of our own NumPy code
in place of their compiled code."""

COMPILED: Final = tuple(
    f"{SKLEARN}{os.path.join(*name.split('.'))}{end}"
    for end in (os.sep, ".py")
    for name in (
        "decomposition._dict_learning",
        "decomposition._lda",
        "decomposition._nmf",
        "ensemble",
        "linear_model._coordinate_descent",
        "linear_model._sag",
        "linear_model._stochastic_gradient",
        "manifold",
        "neighbors",
        "svm",
        "tree",
    )
)
"""The folders and files of followed packages that give their arrays to compiled code, which takes numbers."""

COMPILED_FITS: Final = tuple(
    f"{SKLEARN}{os.path.join(*name.split('.'))}"
    for name in (
        "calibration",
        "cluster",
        "linear_model._glm",
        "linear_model._least_angle",
        "linear_model._logistic",
        "mixture",
    )
)
"""The folders and files whose functions ``fit`` do so, while what was fitted is evaluated in Python."""

VALIDATION: Final = tuple(f"{SKLEARN}{name}" for name in (f"utils{os.sep}", "base.py"))
"""The files of followed packages that convert arguments for the others: what they return is for their callers."""


READERS: Final = frozenset({"matplotlib", "mpl_toolkits", "numpy.testing", "pytest", "seaborn", "unittest"})
"""Packages that show or check numbers, and give nothing back that derivatives could be asked of."""


@functools.lru_cache(maxsize=4096)
def is_followed_file(filename: str) -> bool:
    """Return whether the code of a file is traced: user code, and that of the followed packages of NumPy and SciPy."""
    return is_user_file(filename) or (
        any(path in filename for path in FOLLOWED) and not any(path in filename for path in COMPILED)
    )


def is_followed_frame(frame: FrameType) -> bool:
    """Return whether the code of a frame is traced, which is a question of its file but for functions that fit by compiled code."""
    return is_followed_file(frame.f_code.co_filename) and not gives_to_compiled(frame)


def gives_to_compiled(frame: FrameType) -> bool:
    """Return whether a frame is of a followed package, and gives its arrays to compiled code."""
    code = frame.f_code
    paths = (*COMPILED, *COMPILED_FITS) if code.co_name.startswith("fit") else COMPILED
    return any(path in code.co_filename for path in paths)


def converting_frame(frame: FrameType) -> FrameType:
    """Return the frame for which another one converts an array: the first one that does not only validate arguments."""
    current: FrameType | None = frame
    while current is not None and _is_validation(current.f_code.co_filename):
        current = current.f_back
    return current or frame


@functools.lru_cache(maxsize=4096)
def _is_validation(filename: str) -> bool:
    return any(path in filename for path in VALIDATION)


@functools.lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Return whether a file is user code: neither of Python's library nor of an installed package."""
    return not (filename.startswith(OWN) or is_installed(filename))


class _Clock:
    """A counter of watches, which orders operations before and after a watch."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


CLOCK = _Clock()


class Site:
    """A place in user code, whose line is computed on access, with the tick of the clock."""

    __slots__ = ("code", "instruction", "tick", "via")

    def __init__(self, code: CodeType, instruction: int, via: str = "") -> None:
        self.code = code
        self.instruction = instruction
        self.via = via
        self.tick = CLOCK.ticks

    @property
    def filename(self) -> str:
        return self.code.co_filename

    @property
    def function(self) -> str:
        return self.code.co_name

    @property
    def line(self) -> int:
        return line_at(self.code, self.instruction)

    def __repr__(self) -> str:
        via = f" (in {self.via})" if self.via else ""
        cell = notebook_cell(self.filename)
        return f"{f'Cell {cell}' if cell else self.filename}:{self.line} in {self.function}{via}"


def notebook_cell(filename: str) -> str:
    """Return the cell of a notebook that a file name stands for, as ``In[3]``; empty for other files.

    A notebook's kernel compiles each cell under the name of a file that does not exist.
    """
    if f"{os.sep}ipykernel_" not in filename:
        return ""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    named = None if shell is None else shell.compile.format_code_name(filename)
    return "" if named is None else str(named[1])


def user_frame(depth: int = 1) -> FrameType:
    """Return the nearest frame of the user's code, starting `depth` callers up; of any package if the user's are over."""
    frame = calling = nearest_frame(depth + 1)
    while not is_users(frame):
        if frame.f_back is None:
            return calling
        frame = frame.f_back
    return frame


def nearest_frame(depth: int = 1) -> FrameType:
    """Return the nearest frame that is neither of gradtape nor of a library that it follows, starting `depth` callers up."""
    frame = sys._getframe(depth)
    while is_internal(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def asking_package() -> str:
    """Return the package that asks an array for its numbers: that of the nearest frame which is not of gradtape; empty for user code."""
    frame: FrameType | None = sys._getframe(2)
    nearest = nearest_frame(2)
    while frame is not None and frame is not nearest:
        if frame.f_globals.get("__name__", "").startswith("numpy.testing"):
            return "numpy.testing"
        frame = frame.f_back
    if is_user_file(nearest.f_code.co_filename):
        return ""
    package: str = nearest.f_globals.get("__name__", "").partition(".")[0]
    return package.lstrip("_")


_libraries: dict[Any, bool] = {}
"""Whether a module is not the user's, by its name."""

_frame = sys._getframe
_make = object.__new__


def user_site(depth: int = 2, via: str = "") -> Site:
    """Return the place in user code that called."""
    frame = _frame(depth)
    library = _libraries.get(frame.f_globals.get("__name__"))
    if library is not False:
        if library is None:
            name = frame.f_globals.get("__name__", "")
            library = _libraries[name] = not is_users(frame)
        if library:
            frame = user_frame(depth + 1)
    site = _make(Site)  # a faster form of the constructor: this runs for each recorded operation
    site.code = frame.f_code
    site.instruction = frame.f_lasti
    site.via = via
    site.tick = CLOCK.ticks
    return site


def site_of(frame: FrameType) -> Site:
    """Return the current place of a frame."""
    return Site(frame.f_code, frame.f_lasti)


def without_internals(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback with the frames of user code only, so that an error ends at a line of the user's."""
    frames = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] != PACKAGE:
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for entry in reversed(frames):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
