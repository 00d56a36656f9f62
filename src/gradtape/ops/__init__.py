"""The rows: one op, one place. Every module below this folder is imported here, so that a new file needs no list."""

from __future__ import annotations

import importlib
import pkgutil

from gradtape.collector import collector_paused

with (
    collector_paused()
):  # nothing that is made here becomes garbage; looking for some costs a tenth of the import
    for _module in sorted(module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")):
        importlib.import_module(_module)
