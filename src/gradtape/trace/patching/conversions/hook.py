"""The hook of functions that take arrays, which their C code calls for traced arrays; see `gradtape.trace.patching.interpose`."""

from __future__ import annotations

import math
import sys
from types import FrameType, ModuleType
from typing import Any, Final

import numpy as np

from gradtape.kinds.registry import FUNCTIONS
from gradtape.trace.array.array import Array
from gradtape.trace.array.lengths import Length, has_lengths, of_lengths
from gradtape.trace.array.preallocated import Preallocated
from gradtape.trace.patching import recorders
from gradtape.trace.patching.callers import calls
from gradtape.trace.patching.conversions import bottleneck as _bottleneck  # noqa: F401 - hooks its functions as well
from gradtape.trace.patching.conversions import classes as _classes  # noqa: F401 - hooks classes as well
from gradtape.trace.patching.conversions import error_state as _error_state  # noqa: F401 - hooks its functions as well
from gradtape.trace.patching.conversions import numexpr as _numexpr  # noqa: F401 - hooks its function as well
from gradtape.trace.patching.conversions import pandas as _pandas  # noqa: F401 - hooks its functions as well
from gradtape.trace.patching.conversions import quantities as _quantities  # noqa: F401 - hooks pint as well
from gradtape.trace.patching.conversions import tables as _tables  # noqa: F401 - hooks xarray as well
from gradtape.trace.patching.conversions.math_functions import MATHEMATICAL
from gradtape.trace.patching.conversions.scalars import CONVERSIONS
from gradtape.trace.patching.conversions.sequences import (
    call_dispatched,
    call_ufunc,
    find_traced,
    takes_sequences,
)
from gradtape.trace.patching.creation import HOOKED, MAKERS, made_writable
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.interpose import When, dispatcher_of, interpose, set_traced_types
from gradtape.trace.source.asking import ASKING
from gradtape.trace.variables.variable import Variable

_dispatched: Final = type(np.sum)
_functions: Final = {**CONVERSIONS, **MATHEMATICAL}
_FUNCTIONS_OF_LENGTHS: Final = frozenset([f for f in vars(math).values() if callable(f)])
_UFUNC_METHODS: Final = frozenset(
    vars(np.ufunc)[name] for name in ("reduce", "accumulate", "reduceat", "outer", "at")
)


def _takes_lengths(called: Any, args: Any, kwargs: Any, frame: FrameType) -> bool:
    """Return whether a function, called in a frame, has lengths among its arguments, and nothing that NumPy's protocols know."""
    if not has_lengths([args, kwargs]):
        return False
    if called is np.arange:
        return calls(frame, called)
    if type(called) is _dispatched:
        return find_traced([*args, *kwargs.values()]) is None
    return called in _FUNCTIONS_OF_LENGTHS


def _hook(called: Any, /, *args: Any, **kwargs: Any) -> Any:
    kind = type(called)
    if ASKING.questions is not None and _takes_lengths(called, args, kwargs, sys._getframe(1)):
        return of_lengths(called, args, kwargs)
    if kind is np.ufunc or called in _UFUNC_METHODS:
        return call_ufunc(called, args, kwargs)
    if kind is _dispatched:
        return call_dispatched(called, args, kwargs)
    return _functions[called](*args, **kwargs)


def _maker(called: Any, /, *args: Any, **kwargs: Any) -> Any:
    frame = sys._getframe(1)
    if ASKING.questions is not None and _takes_lengths(called, args, kwargs, frame):
        return of_lengths(called, args, kwargs)
    if find_traced([*args, *kwargs.values()]) is not None:
        return _hook(called, *args, **kwargs)
    return made_writable(called, args, kwargs, frame)


def _interpose() -> None:
    set_traced_types(Array, Variable, Preallocated, Length)
    # The same order in all processes, so that their native code is identical and compiled once.
    functions = sorted(
        [function for function in FUNCTIONS if type(function) is _dispatched and dispatcher_of(function)],
        key=lambda function: (function.__module__, function.__qualname__),
    )
    sequences = [function for function in functions if takes_sequences(function)]
    others = {*functions} - {*sequences, *HOOKED, *MAKERS}
    interpose(_maker, When.ALWAYS, MAKERS)
    interpose(_hook, When.ANYWHERE, [function for function in _functions if function not in MAKERS])
    interpose(_hook, When.WITHIN, [function for function in sequences if function not in MAKERS])
    interpose(
        _hook,
        When.NESTED,
        [*filter(others.__contains__, functions), *_ufuncs_of(np), *sorted(_UFUNC_METHODS, key=repr)],
    )
    when_imported("scipy.special", lambda special: interpose(_hook, When.NESTED, _ufuncs_of(special)))


def _ufuncs_of(module: ModuleType) -> list[Any]:
    things = [getattr(thing, "__wrapped__", thing) for thing in vars(module).values()]
    return [thing for thing in things if type(thing) is np.ufunc]


recorders.before_recording(_interpose)
