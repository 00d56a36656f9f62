"""The environment of the processes that are measured."""

from __future__ import annotations

import os


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a measured process, which keeps the byte code of what it imports, as a user's does."""
    return {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | changes
