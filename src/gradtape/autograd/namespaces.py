"""Modules that have the names of other ones: NumPy's and SciPy's functions are traced as they are."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def names_of(source: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module, or of an object in one, that is imported when a name is read."""

    def read(name: str) -> Any:
        if name.startswith("__") and name not in ("__version__", "__all__"):
            raise AttributeError(name)
        return getattr(_object(source), name)

    return read, lambda: dir(_object(source))


def _object(source: str) -> Any:
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError:
        module, _, name = source.rpartition(".")
        return getattr(importlib.import_module(module), name)
