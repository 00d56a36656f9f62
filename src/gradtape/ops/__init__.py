"""The rows: one op, one place. Every module in this folder is imported here, so that a new file needs no list."""

from __future__ import annotations

import gc
import importlib
import os

# Nothing that is made here becomes garbage; looking for some costs a tenth of the import.
_collecting = gc.isenabled()
gc.disable()
try:
    for _file in sorted(os.listdir(__path__[0])):
        if _file.endswith(".py") and not _file.startswith("_"):
            importlib.import_module(f"{__name__}.{_file.removesuffix('.py')}")
finally:
    if _collecting:
        gc.enable()
