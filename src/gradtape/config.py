"""Settings: one object, whose attributes are checked when they are set.

Every setting has an environment variable, read once at import: ``jit`` is ``GRADTAPE_JIT``, ``cache_dir`` is
``GRADTAPE_CACHE_DIR``. A setting that is on or off can also be disabled with ``GRADTAPE_DISABLE_<NAME>=1``.
"""

from __future__ import annotations

import difflib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from gradtape.habits import CONFIG

__all__ = ["Config", "config", "loop_policy", "on_change", "trace_settings"]

_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("0", "false", "no", "off", "")


@dataclass(frozen=True)
class _Setting:
    """One line of the table of settings."""

    default: Any
    meaning: str
    minimum: int | None = None
    optional: bool = False
    check: Callable[[Any], Any] | None = None
    allowed: str | None = None

    @property
    def expected(self) -> str:
        kind = self.allowed or ("str or None" if self.optional else type(self.default).__name__)
        return kind if self.minimum is None else f"{kind} of at least {self.minimum}"


def _policy(text: str | None) -> str | int | tuple[str, int] | None:
    """Return the memory policy that a text names; raise ValueError where it names none.

    Examples
    --------
    >>> [_policy(text) for text in (None, "all", "sqrt", "100", "treeverse:10")]
    [None, 'all', 'sqrt', 100, ('treeverse', 10)]
    """
    if text is None or text in ("all", "sqrt"):
        return text
    name, colon, number = text.rpartition(":")
    if (bool(colon), name) not in ((False, ""), (True, "treeverse")) or int(number) < 1:
        raise ValueError
    return ("treeverse", int(number)) if colon else int(number)


_UNITS: Final[Mapping[str, int]] = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def bytes_of(text: str | None) -> int | None:
    """Return the number of bytes that a text names; raise ValueError where it names none.

    Examples
    --------
    >>> [bytes_of(text) for text in (None, "2 GB", "1.5MB", "800")]
    [None, 2000000000, 1500000, 800]
    """
    if text is None:
        return None
    number = text.strip().rstrip("BbKkMmGgTt")
    unit = text.strip()[len(number) :].lower()
    count = float(number) * _UNITS.get(unit, 0)
    if not 1 <= count < 2**62:
        raise ValueError
    return int(count)


def _way(text: str) -> str:
    """Return the name of a way; raise ValueError for other texts."""
    if text not in ("trace", "compile", "auto"):
        raise ValueError
    return text


class _Traced(NamedTuple):
    """The packages of a list, and whether they are those that are traced or those that are not."""

    names: frozenset[str]
    included: bool


@functools.lru_cache(maxsize=64)
def _traced(text: str) -> _Traced:
    """Return the packages that a text names; raise ValueError for a text of another form.

    Examples
    --------
    >>> sorted(_traced("-pandas, -xarray").names)
    ['pandas', 'xarray']
    """
    if text in ("all", "none"):
        return _Traced(frozenset(), text == "none")
    names = [name.strip() for name in text.split(",")]
    left_out = [name.startswith("-") for name in names]
    names = [name.removeprefix("-") for name in names]
    if len(set(left_out)) != 1 or not all(name.isidentifier() for name in names):
        raise ValueError
    return _Traced(frozenset(names), not left_out[0])


def traces_package(name: str) -> bool:
    """Return whether the code of an installed package is traced, if it is written in Python.

    Examples
    --------
    >>> with config.override(trace_packages="-pandas, -xarray"):
    ...     traces_package("pandas"), traces_package("lmfit")
    (False, True)
    """
    listed = _traced(config.trace_packages)
    return (name in listed.names) == listed.included


def _shapes(kind: str) -> None:
    """Raise ValueError unless there are kernels of this kind."""
    if kind not in ("exact", "symbolic", "auto"):
        raise ValueError


def _effects(name: str) -> None:
    """Raise ValueError unless effects of traced functions may happen so."""
    if name not in ("trace", "run"):
        raise ValueError


def _adjoint(name: str) -> None:
    """Raise ValueError unless there is an adjoint of this name."""
    if name not in ("discrete", "continuous"):
        raise ValueError


def _compiler(name: str) -> None:
    """Raise ValueError unless there is a compiler of this name."""
    if name not in ("llvm", "numba"):
        raise ValueError


def _compile_when(name: str) -> None:
    """Raise ValueError unless calls may do this while their kernel is compiled."""
    if name not in ("wait", "background"):
        raise ValueError


def _memory_share(part: int) -> int:
    """Return so many bytes that there are `part` such shares in the machine's memory; at least 256 MB."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        total = 0
    return max(2**28, total // part)


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "jit": _Setting(
        find_spec("llvmlite") is not None,
        "compile; when False, as where llvmlite is not installed, everything runs on the NumPy interpreter",
    ),
    "eager": _Setting(False, "compute each operation at once, for a debugger"),
    "disk_cache": _Setting(True, "keep compiled code on disk for the next process"),
    "cache_dir": _Setting(
        None, "folder of the disk cache; None means the user's cache folder", optional=True
    ),
    "scratch_dir": _Setting(
        None,
        "folder of the scratch files of reversed loops that do not fit in memory; None means TMPDIR, or else that of the disk cache",
        optional=True,
    ),
    "cache_size": _Setting(2**30, "maximum size of the disk cache in bytes", minimum=0),
    "precise_math": _Setting(False, "use the scalar C library instead of vector functions of 4 ULP"),
    "compiler": _Setting(
        "llvm",
        "the compiler of the loops in kernels; Numba takes seconds for each, and LLVM compiles those that Numba cannot",
        check=_compiler,
        allowed='"llvm" or "numba"',
    ),
    "compile": _Setting(
        "wait",
        "whether a call waits until its kernel is compiled, or is answered by the NumPy interpreter until a thread has compiled it, "
        "which begins once a function is called often",
        check=_compile_when,
        allowed='"wait" or "background"',
    ),
    "shapes": _Setting(
        "auto",
        "whether arrays of other lengths are compiled for anew, or share machine code that reads the lengths when it is called, or share "
        "it from the fourth length on that a jitted function sees",
        check=_shapes,
        allowed='"exact", "symbolic" or "auto"',
    ),
    "trace_limit": _Setting(8, "traces that one call site may have before it is interpreted", minimum=1),
    "reroll": _Setting(
        True, "roll repeated iterations of Python loops up into native loops; when False they stay unrolled"
    ),
    "loops": _Setting(
        "auto",
        "how Python loops in compiled functions are handled: traced, compiled from their code, or traced first and compiled from "
        "their code if they are long or need concrete values",
        check=_way,
        allowed='"trace", "compile" or "auto"',
    ),
    "trace_packages": _Setting(
        "all",
        "which installed packages are traced like your own code: all that are written in Python, none, only those named, or all but those "
        "named after a minus sign",
        check=lambda text: _traced(text),
        allowed='"all", "none", names as in "statsmodels, lmfit", or names to leave out as in "-pandas, -xarray"',
    ),
    "reroll_checkpoint": _Setting(
        None,
        "the checkpoint policy of such loops, as checkpoint= of gt.scan; None keeps the residuals of each iteration",
        optional=True,
        check=_policy,
        allowed='"all", "sqrt", "k" for every k-th iteration, "treeverse:c" for c at a time, or None',
    ),
    "memory": _Setting(
        None,
        'bytes that the records of a reversed loop may take, as in "2 GB"; a loop that would take more computes steps again. None: half of '
        "the machine's memory",
        optional=True,
        check=bytes_of,
        allowed='a number of bytes as in "500 MB" or "2 GB", or None',
    ),
    "effects": _Setting(
        "trace",
        "whether a compiled function prints, logs, reads clocks and iterators, and uses files only while it is traced, or in each "
        "call, which then runs op by op in Python",
        check=_effects,
        allowed='"trace" or "run"',
    ),
    "ode_adjoint": _Setting(
        "discrete",
        "how reverse mode differentiates initial value problems: through the steps that were made, or by the adjoint equation, whose "
        "memory does not grow with the number of steps",
        check=_adjoint,
        allowed='"discrete" or "continuous"',
    ),
    "jacobian_memory": _Setting(
        0,
        "limit in bytes for the rows of a Jacobian that are computed together; 0 means a share of the free memory",
        minimum=0,
    ),
    "num_threads": _Setting(1, "threads that one kernel may use", minimum=1),
    "progress": _Setting(True, "show progress bars for work that takes more than two seconds"),
    "full_traceback": _Setting(False, "keep the frames of gradtape itself in tracebacks"),
    "memory_pool": _Setting(
        _memory_share(8),
        "bytes of freed results and scratch memory kept for the next call, in blocks of 256 KB and more; by default an eighth of the "
        "machine's memory",
        minimum=0,
    ),
    "kept_memory": _Setting(
        _memory_share(16),
        "bytes that compiled functions may keep of results whose inputs do not change from call to call, with copies of these; by default "
        "a sixteenth of the machine's memory, and 0 keeps nothing",
        minimum=0,
    ),
    "verify": _Setting(
        False, "check graphs and loops after every pass of the compiler, for finding its defects"
    ),
    "memory_cache": _Setting(512, "compiled programs kept in memory", minimum=1),
}


class Config:
    """The settings of gradtape; ``gt.config`` is the only instance.

    A change affects the whole process with all its threads, and everything that is compiled afterwards.

    Examples
    --------
    >>> config = Config({})
    >>> config.trace_limit
    8
    >>> config.trace_limit = 16
    >>> with config.override(jit=False):
    ...     config.jit
    False
    >>> config.jit
    True
    >>> config.trace_limits = 3
    Traceback (most recent call last):
        ...
    AttributeError: gradtape has no setting 'trace_limits'. Did you mean 'trace_limit'?
    """

    jit: bool
    eager: bool
    disk_cache: bool
    cache_dir: str | None
    scratch_dir: str | None
    cache_size: int
    precise_math: bool
    compiler: str
    compile: str
    shapes: str
    trace_limit: int
    reroll: bool
    loops: str
    trace_packages: str
    reroll_checkpoint: str | None
    memory: str | None
    effects: str
    ode_adjoint: str
    jacobian_memory: int
    num_threads: int
    progress: bool
    memory_pool: int
    kept_memory: int
    verify: bool
    memory_cache: int

    __slots__ = tuple(_SETTINGS)

    def __init__(self, environment: Mapping[str, str]) -> None:
        for name, setting in _SETTINGS.items():
            setattr(self, name, _from_environment(name, setting, environment))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeError(_unknown(name))
        _check(f"gradtape.config.{name}", _SETTINGS[name], value)
        if name in _preparations and value != getattr(config, name):
            for prepare in _preparations[name]:
                prepare()
        object.__setattr__(self, name, value)
        for notify in _listeners.get(name, ()):
            notify(getattr(config, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_unknown(name))

    def __dir__(self) -> list[str]:
        return [*_SETTINGS, "override"]

    def __repr__(self) -> str:
        assignments = [f"{name} = {getattr(self, name)!r}" for name in _SETTINGS]
        width = max(map(len, assignments))
        lines = [
            f"{text:<{width}}  # {setting.meaning}"
            for text, setting in zip(assignments, _SETTINGS.values(), strict=True)
        ]
        return "\n".join(("gradtape.config:", *(f"  {line}" for line in lines)))

    @contextmanager
    def override(self, **settings: Any) -> Iterator[Config]:
        """Change settings for the length of a `with` block.

        Every thread of the process sees the change while the block runs. If one value cannot be used, none is
        set.

        Parameters
        ----------
        **settings
            Names and values.

        Examples
        --------
        >>> from gradtape.config import config
        >>> with config.override(eager=True, num_threads=2):
        ...     config.eager, config.num_threads
        (True, 2)
        """
        before = {name: getattr(self, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield self
        finally:
            try:
                self._restore(before)
            except BaseException:  # Ctrl-C
                self._restore(before)
                raise

    def _restore(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            setattr(self, name, value)


def _unknown(name: str) -> str:
    guesses = difflib.get_close_matches(name, _SETTINGS, n=1)
    hint = f"Did you mean {guesses[0]!r}?" if guesses else f"There are: {', '.join(_SETTINGS)}."
    if name in CONFIG:
        return f"gradtape has no setting {name!r}: {CONFIG[name]}"
    return f"gradtape has no setting {name!r}. {hint}"


def _check(label: str, setting: _Setting, value: Any) -> None:
    wanted = str if setting.optional else type(setting.default)
    fits = type(value) is wanted or (setting.optional and value is None)
    if not fits:
        raise TypeError(f"{label} got {value!r} of type {type(value).__name__}; expected {setting.expected}")
    if setting.minimum is not None and value < setting.minimum:
        raise ValueError(f"{label} got {value!r}; expected {setting.expected}")
    if setting.check is not None:
        try:
            setting.check(value)
        except ValueError:
            raise ValueError(f"{label} got {value!r}; expected {setting.expected}") from None


def _from_environment(name: str, setting: _Setting, environment: Mapping[str, str]) -> Any:
    variable = f"GRADTAPE_{name.upper()}"
    negation = f"GRADTAPE_DISABLE_{name.upper()}"
    if type(setting.default) is bool:
        if _truth(negation, environment.get(negation, "0")):
            return False
        return _truth(variable, environment[variable]) if variable in environment else setting.default
    text = environment.get(variable, "")
    if not text:
        return setting.default
    if setting.optional or type(setting.default) is str:
        _check(variable, setting, text)
        return text
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{variable} is {text!r}; expected {setting.expected}") from None
    _check(variable, setting, value)
    return value


def _truth(variable: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _YES:
        return True
    if lowered in _NO:
        return False
    raise ValueError(f"{variable} is {text!r}; expected one of {', '.join(filter(None, (*_YES, *_NO)))}")


_listeners: Final[dict[str, list[Callable[[Any], None]]]] = {}


def on_change(name: str, notify: Callable[[Any], None]) -> None:
    """Call `notify` with the value of a setting of this process whenever that is set.

    Examples
    --------
    >>> seen = []
    >>> on_change("trace_limit", seen.append)
    >>> with config.override(trace_limit=3):
    ...     seen
    [3]
    """
    _listeners.setdefault(name, []).append(notify)


_preparations: Final[dict[str, list[Callable[[], None]]]] = {}


def before_change(name: str, prepare: Callable[[], None]) -> None:
    """Call `prepare` whenever a setting of this process is about to get another value.

    Examples
    --------
    >>> seen = []
    >>> before_change("trace_limit", lambda: seen.append(config.trace_limit))
    >>> with config.override(trace_limit=3):
    ...     seen
    [8]
    """
    _preparations.setdefault(name, []).append(prepare)


config: Final = Config(os.environ)
"""The settings of this process."""


class TraceSettings(NamedTuple):
    """The settings that traces of compiled functions depend on: under others, a function is traced anew."""

    reroll: bool
    reroll_checkpoint: str | None
    memory: str | None
    scratch_dir: str | None
    loops: str
    ode_adjoint: str
    trace_packages: str
    effects: str


class _Thread(threading.local):
    """What transforms that run in this thread say in place of settings."""

    def __init__(self) -> None:
        self.memory: str | None = None


running: Final = _Thread()
"""Those of the transforms that run now; None in place of what they do not say."""


def stated_memory() -> str | None:
    """Return what the user says of the records of reversed loops: ``memory=`` of the transform that runs, or else the setting."""
    return running.memory or config.memory


def memory_name() -> str:
    """Return what the user calls the limit that holds."""
    return "gt.config.memory" if running.memory is None else "memory"


@contextmanager
def within_memory(text: str | None) -> Iterator[None]:
    """Let `text` stand for ``config.memory`` in this thread; None changes nothing.

    Examples
    --------
    >>> with within_memory("2 MB"):
    ...     memory_budget()
    2000000
    """
    around = running.memory
    try:
        running.memory = around if text is None else text
        yield
    finally:
        running.memory = around


def trace_settings() -> TraceSettings:
    """Return the settings that a trace depends on now."""
    return TraceSettings(
        config.reroll,
        config.reroll_checkpoint,
        stated_memory(),
        config.scratch_dir,
        config.loops,
        config.ode_adjoint,
        config.trace_packages,
        config.effects,
    )


def memory_budget() -> int | None:
    """Return the bytes that the user lets the records of a reversed loop take; None where nothing was set."""
    return bytes_of(stated_memory())


def default_memory_budget() -> int:
    """Return the bytes that the records of a reversed loop may take where nothing was set: half of the machine's memory."""
    return _memory_share(2)


def loop_policy() -> str | int | tuple[str, int] | None:
    """Return what reversed loops store, as ``gt.config.reroll_checkpoint`` says; None where it says nothing."""
    return _policy(config.reroll_checkpoint)
