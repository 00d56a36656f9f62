"""The rows: one op, one place. Every module below this folder is imported here, so that a new file needs no list."""

from __future__ import annotations

import importlib
from pathlib import Path

from gradtape.collector import collector_paused

_here = Path(__file__).parent
# Objects made here never become garbage; the collector would take a tenth of the import time.
with collector_paused():
    for _path in sorted(_here.rglob("[!_]*.py")):
        importlib.import_module(".".join((__name__, *_path.relative_to(_here).with_suffix("").parts)))
