"""The rows: one op, one place. Every module below this folder is imported here, so that a new file needs no list."""

from __future__ import annotations

import gc
import importlib
import pkgutil

# Nothing that is made here becomes garbage; looking for some costs a tenth of the import.
_collecting = gc.isenabled()
gc.disable()
try:
    for _module in sorted(module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")):
        importlib.import_module(_module)
finally:
    if _collecting:
        gc.enable()
