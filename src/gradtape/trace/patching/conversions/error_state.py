"""``np.errstate`` and ``np.seterr`` in traced code: nothing raises the FloatingPointError that they ask for, and a warning says so.

Operations are computed later than they are recorded, many of them in one kernel, and none of them sets NumPy's error state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.trace.patching import recorders
from gradtape.trace.patching.conversions.sequences import Function
from gradtape.trace.patching.functions import hook_function
from gradtape.trace.source.sites import user_site


def warn_of_floating_point_errors() -> None:
    """Warn if NumPy is to raise errors that traced arrays do not raise."""
    asked = [kind for kind, answer in np.geterr().items() if answer == "raise"]
    if asked:
        warn(
            GradtapeWarning,
            f"traced arrays raise no FloatingPointError, which NumPy's error state asks for ({', '.join(asked)})",
            where=user_site(),
            why="gradtape computes after it has recorded, without NumPy's error state: results are NaN or infinite there",
            remedy="test with np.isfinite(y).all(), or find the operation with gt.debug.check_numerics()",
        )


def _changing(plain: Function) -> Function:
    """Return the handler of a function that changes NumPy's error state."""

    def change(*args: Any, **kwargs: Any) -> Any:
        before = plain(*args, **kwargs)
        warn_of_floating_point_errors()
        return before

    return change


def _hook_error_states() -> None:
    changing: Any = np.errstate.__enter__, np.seterr
    for function in changing:
        hook_function(function, _changing)


recorders.before_recording(_hook_error_states)
