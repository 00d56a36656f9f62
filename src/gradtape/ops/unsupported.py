"""Functions of NumPy that gradtape does not follow: why, and after the semicolon what to do instead."""

from __future__ import annotations

import numpy as np

from ..kinds.registry import UNSUPPORTED

UNSUPPORTED["numpy.isnat"] = "dates are not numbers; call it outside of the traced code"
UNSUPPORTED.update(
    {
        f"numpy.strings.{name}": "strings are not numbers; call it outside of the traced code"
        for name in np.strings.__all__
    }
)
