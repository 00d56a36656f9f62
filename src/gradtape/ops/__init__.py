"""The rows: one op, one place. Every module in this folder is imported here, so that a new file needs no list."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
