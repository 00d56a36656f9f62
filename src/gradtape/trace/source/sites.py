"""Sites: the places of operations in user code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import numpy as np

from gradtape.config import on_change, traces_package
from gradtape.errors import INSTALLED, is_installed, is_internal, is_users
from gradtape.trace.patching.bytecode import line_at

PACKAGE = __name__.split(".")[0]


OWN: Final = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (np, sys.modules[PACKAGE])
)
"""The folders of NumPy and gradtape."""


TRACED: Final = tuple(
    f"{os.sep}{os.path.join(*name.split('.'))}{end}"
    for end in (os.sep, ".py")
    for name in (
        f"{PACKAGE}.autograd",
        f"{PACKAGE}.trace.routines",
        "numpy._core._asarray",
        "numpy.lib",
        "numpy.ma",
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
)
"""The folders and files of the libraries in `WITH_RULES` whose functions are traced, where they are written in Python: the rules are those
of what they call. All other packages are traced as user code is; see `is_traced_file`."""

WITH_RULES: Final = frozenset({PACKAGE, "numpy", "scipy"})
"""The libraries whose functions have rules."""


READERS: Final = frozenset({"matplotlib", "mpl_toolkits", "numpy.testing", "pytest", "seaborn", "unittest"})
"""Packages that show or check numbers, and give nothing back that derivatives could be asked of."""


@functools.lru_cache(maxsize=4096)
def is_traced_file(filename: str) -> bool:
    """Return whether the code of a file is traced: user code and that of installed packages, and the parts of libraries in `TRACED`."""
    return is_program_file(filename) or any(path in filename for path in TRACED)


@functools.lru_cache(maxsize=4096)
def is_program_file(filename: str) -> bool:
    """Return whether a file is user code, or of an installed package that is traced like user code.

    Python's library, the libraries that have rules, packages that only read numbers, and those that `gt.config.trace_packages`
    excludes are not.
    """
    if is_user_file(filename):
        return True
    package = package_of(filename)
    return bool(package) and package not in WITH_RULES | READERS and traces_package(package)


@functools.lru_cache(maxsize=4096)
def tells_scalars_apart(filename: str) -> bool:
    """Return whether the code of a file is to see NumPy's scalars as such: user code, and Python's library, which works for it."""
    return is_program_file(filename) or (is_installed(filename) and not package_of(filename))


@functools.lru_cache(maxsize=4096)
def package_of(filename: str) -> str:
    """Return the name of the installed package that a file belongs to; empty for user code and Python's library."""
    return path_in_package(filename).partition(os.sep)[0].removesuffix(".py")


def path_in_package(filename: str) -> str:
    """Return the part of a path that begins with the name of an installed package; empty for user code and Python's library."""
    for folder in INSTALLED:
        _, installed, inside = filename.rpartition(folder)
        if installed:
            return inside
    return ""


_forget: Final = [is_traced_file.cache_clear, is_program_file.cache_clear, tells_scalars_apart.cache_clear]
"""What forgets the decisions about files."""


def when_files_change(forget: Callable[[], None]) -> None:
    """Call a function when other packages are to be traced."""
    _forget.append(forget)


def _forget_files(_: str) -> None:
    for forget in _forget:
        forget()


on_change("trace_packages", _forget_files)


_extensions: Final[dict[str, tuple[int, bool]]] = {}
"""By package: how many modules were imported when it was asked, and whether some of the package's were compiled."""


def has_extensions(filename: str) -> bool:
    """Return whether the package of a file has compiled modules, to which its own arrays may go; these take ndarrays only."""
    package = package_of(filename)
    modules, known = _extensions.get(package, (0, False))
    if not known and modules != len(sys.modules):
        known = any(
            _is_extension(module)
            for name, module in list(sys.modules.items())
            if name.startswith(f"{package}.")
        )
        _extensions[package] = len(sys.modules), known
    return known


def _is_extension(module: Any) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and origin.endswith(tuple(EXTENSION_SUFFIXES))


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
    """Return the nearest frame that is neither in gradtape nor in a library that it traces, starting `depth` callers up."""
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
