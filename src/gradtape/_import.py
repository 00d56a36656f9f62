"""Holds Python's cycle collector while the package is imported: nothing becomes garbage then, and looking for some costs 4 ms."""

from __future__ import annotations

import gc

_collecting = gc.isenabled()
gc.disable()


def finish() -> None:
    """Let the collector go on."""
    if _collecting:
        gc.enable()
