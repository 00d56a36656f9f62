"""Places in the user's code."""

from __future__ import annotations


class Site:
    """A place in the user's code."""

    __slots__ = ("filename", "function", "line")

    def __init__(self, filename: str, line: int, function: str) -> None:
        self.filename = filename
        self.line = line
        self.function = function

    def __repr__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"
