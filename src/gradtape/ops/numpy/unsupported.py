"""Functions of NumPy that gradtape does not support: why, and after the semicolon what to do instead."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gradtape.kinds.registry import UNSUPPORTED


def _group(reason: str, prefix: str, names: str | Iterable[str]) -> None:
    """Enter functions that share a reason."""
    for name in names.split() if isinstance(names, str) else names:
        UNSUPPORTED[f"{prefix}.{name}"] = reason


_group(
    "dates are not numbers; call it outside the traced code",
    "numpy",
    "isnat is_busday busday_count busday_offset",
)
_group("dates are not numbers; call it outside the traced code", "numpy", "datetime_as_string")
_group("strings are not numbers; call it outside the traced code", "numpy.strings", np.strings.__all__)
