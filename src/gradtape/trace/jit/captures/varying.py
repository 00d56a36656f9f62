"""Functions whose results differ from call to call, and the answer to them: a warning, or a check of the values that they read."""

from __future__ import annotations

import os
import random
import time
import warnings
from types import ModuleType
from typing import Any, Final

import numpy as np

from gradtape.trace.jit.captures.steps import Check, Source
from gradtape.trace.jit.captures.user_classes import is_generator
from gradtape.trace.jit.captures.walk import CaptureWalk

_MODULES: Final = frozenset({"datetime", "numpy", "os", "random", "secrets", "time", "uuid"})

_CLOCK = "a clock: the compiled function has the time of the trace"
_FUNCTIONS: Final[dict[Any, str]] = {
    open: "a file: the compiled function keeps the content that was read during the trace",
    input: "user input: the compiled function keeps the input of the trace",
    os.urandom: "random bytes: the compiled function keeps those of the trace",
    **{
        getattr(time, name): _CLOCK
        for name in dir(time)
        if name.startswith(("time", "perf_counter", "monotonic", "process_time", "thread_time"))
        and callable(getattr(time, name))
    },
}
"""Functions whose results differ in each call, with the reason why compiled calls do not repeat them."""

_SHOWING: Final = frozenset({print, warnings.warn})
_SHOWN_BY: Final[dict[str, frozenset[str]]] = {
    "logging": frozenset(
        {"critical", "debug", "error", "exception", "getLogger", "info", "log", "warn", "warning"}
    ),
    "sys": frozenset({"stderr", "stdout"}),
    "warnings": frozenset({"warn", "warn_explicit"}),
}
"""Functions that show something, and names of modules by which code does so."""

OS_MODULES: Final = ("os", "posixpath", "ntpath")
ENVIRONMENT: Final = frozenset({"environ", "environb", "expanduser", "expandvars", "getenv", "getenvb"})
"""Names of the module `os` and of `os.path` by which code reads environment variables."""


def note_function(walk: CaptureWalk, function: Any, label: str) -> None:
    """Note a function whose results differ in each call."""
    if type(function).__hash__ is not None:
        if function in _FUNCTIONS:
            walk.spec.unrepeatable[label] = _FUNCTIONS[function]
        walk.spec.shows = walk.spec.shows or function in _SHOWING


def note_module(walk: CaptureWalk, module: ModuleType) -> None:
    """Note the functions of a library's module whose results differ in each call, and reads of the environment."""
    attributes, name = walk.facts.attributes, module.__name__
    if name in OS_MODULES and attributes & ENVIRONMENT:
        check_environment(walk)
    if name == "numpy" and "random" in attributes:
        note_module(walk, np.random)
    walk.spec.shows = walk.spec.shows or bool(attributes & _SHOWN_BY.get(name, frozenset()))
    if name.partition(".")[0] not in _MODULES:
        return
    for key in attributes & vars(module).keys():
        function = vars(module)[key]
        note_function(walk, function, f"{name}.{key}")
        note_generator(walk, getattr(function, "__self__", None))
        walk.spec.may_draw = walk.spec.may_draw or function is np.random.default_rng


def note_generator(walk: CaptureWalk, thing: Any) -> None:
    """Note a random number generator that is not copied: the owner of a method, or an object that is passed on."""
    walk.spec.may_draw = walk.spec.may_draw or is_generator(thing)
    if isinstance(thing, random.Random):
        walk.spec.python_generators.append(thing)


def check_environment(walk: CaptureWalk) -> None:
    """Check the environment variables by value, all of them: which ones are read is known when the code runs."""
    variables: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined] # a dict, of which reads run no code
    if walk.is_visited(variables, False):
        return
    expected = dict, tuple(variables)
    step = walk.step((Source.FIXED, -1, variables), Check.KEYS, expected, "the environment")
    walk.remember(variables, variables, step, False)
    for key, content in list(variables.items()):
        label = f"the environment variable {os.fsdecode(key)!r}"
        walk.step((Source.ENTRY, step, key), Check.SAME, content, label)
