"""What debugging tools need of a recording: that nothing runs natively, and that values are looked at as they are computed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.graph import Value

CHECKS: list[Callable[[Sequence[Value]], None]] = []
"""Called with values that are read, after they have been computed node by node."""

MADE: list[weakref.ref[Any]] = []
"""The handles made while there are checks: what has not been read when the last check ends is checked then."""


class _Recording:
    """Which tools need jitted functions to run as they stand."""

    __slots__ = ("tools",)

    def __init__(self) -> None:
        self.tools: set[object] = set()


RECORDING = _Recording()
