"""The primitives: rows that code below `gradtape.ops` applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradtape.ir.graph import Value

PRIMITIVES: Final[dict[str, Callable[..., Value]]] = {}
"""The rows by name, among them those of Python's operators on values; each such row enters itself.

Code from `gradtape.ops` up imports the row instead.
"""
