"""`numexpr.evaluate`, which is a virtual machine in C: expressions of traced arrays are computed by NumPy's functions."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.trace.array.preallocated import is_traced, unwrap_keywords, unwrap_preallocated
from gradtape.trace.patching.conversions.sequences import Function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.recorders import RECORDERS
from gradtape.trace.source.sites import user_site

_NAMES: Final = (
    *(
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "cos",
        "cosh",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ),
    *(
        "abs",
        "ceil",
        "conj",
        "copysign",
        "exp",
        "expm1",
        "floor",
        "fmod",
        "hypot",
        "imag",
        "log",
        "log10",
        "log1p",
        "log2",
    ),
    *(
        "isfinite",
        "isinf",
        "isnan",
        "max",
        "maximum",
        "min",
        "minimum",
        "nextafter",
        "ones_like",
        "prod",
        "real",
        "round",
    ),
    *("sign", "signbit", "sqrt", "sum", "trunc", "where"),
)
_FUNCTIONS: Final = {"complex": lambda a, b: a + 1j * b, **{name: getattr(np, name) for name in _NAMES}}
"""What the names in an expression mean that is called."""


def _check_names(names: list[str], caller: FrameType) -> None:
    """Refuse names of the module that a traced function runs without: it has those that its code reads."""
    module = vars(sys.modules.get(caller.f_globals.get("__name__", ""), object))
    missing = [name for name in names if name in module and name not in _FUNCTIONS]
    if missing:
        raise UnsupportedFunctionError(
            f"numexpr.evaluate reads the global variable {missing[0]!r} in the text of an expression",
            where=user_site(),
            why="a traced function has the variables that its code reads",
            remedy=f"name it: local_dict={{{missing[0]!r}: {missing[0]}, ...}}, or a local variable",
        )


def _evaluated(plain: Function) -> Function:
    @functools.wraps(plain)
    def evaluate(
        ex: str, local_dict: Any = None, global_dict: Any = None, out: Any = None, **options: Any
    ) -> Any:
        if RECORDERS:
            caller = sys._getframe(1)
            code = compile(ex.strip(), "<numexpr>", "eval")
            spaces = (
                caller.f_locals if local_dict is None else local_dict,
                caller.f_globals if global_dict is None else global_dict,
            )
            names = [name for name in code.co_names if any(name in space for space in spaces)]
            _check_names([name for name in code.co_names if name not in names], caller)
            given = {name: next(space[name] for space in spaces if name in space) for name in names}
            if is_traced((tuple(given.values()), out)):
                made = eval(code, {"__builtins__": {}, **given, **_FUNCTIONS})
                if out is None:
                    return made
                out[...] = made
                return out
            local_dict, out = unwrap_keywords(given), unwrap_preallocated((out,))[0]
        options["_frame_depth"] = options.get("_frame_depth", 3) + 1  # that of the caller, from plain
        return plain(ex, local_dict, global_dict, out, **options)

    return evaluate


def _install(module: Any) -> None:
    module.evaluate = module.necompiler.evaluate = _evaluated(module.evaluate)


when_imported("numexpr", _install)
