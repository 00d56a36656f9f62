"""Reductions and prefixes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import METHODS, implements
from gradtape.procedures.arrays import reductions
from gradtape.procedures.arrays.view import as_expression
from gradtape.procedures.builder import ProcedureBuilder


def _enter(rule: Callable[..., Any], functions: tuple[Any, ...], method: str | None = None) -> None:
    """Let a reduction of an expression stand for functions of NumPy and for a method."""

    def replacement(build: ProcedureBuilder, a: Any, *args: Any, **kwargs: Any) -> Any:
        return rule(as_expression(build, a), *args, **kwargs)

    first, *rest = inspect.signature(rule).parameters.values()
    builder = first.replace(name="build")
    replacement.__signature__ = inspect.Signature([builder, first, *rest])  # type: ignore[attr-defined]
    implements(*functions)(replacement)
    if method is not None:
        METHODS[method] = replacement


_enter(reductions.sum_, (np.sum,), "sum")
_enter(reductions.prod, (np.prod,), "prod")
_enter(reductions.mean, (np.mean,), "mean")
_enter(reductions.max_, (np.max, np.amax), "max")
_enter(reductions.min_, (np.min, np.amin), "min")
_enter(reductions.any_, (np.any,), "any")
_enter(reductions.all_, (np.all,), "all")
_enter(reductions.count_nonzero, (np.count_nonzero,))
_enter(reductions.cumsum, (np.cumsum,), "cumsum")
_enter(reductions.cumprod, (np.cumprod,), "cumprod")
_enter(reductions.var, (np.var,), "var")
_enter(reductions.std, (np.std,), "std")
_enter(reductions.argmax, (np.argmax,), "argmax")
_enter(reductions.argmin, (np.argmin,), "argmin")
