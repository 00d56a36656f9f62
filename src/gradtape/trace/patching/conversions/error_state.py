"""``np.errstate`` and ``np.seterr`` in traced code: nothing raises the FloatingPointError that they ask for, and a warning says so.

Operations are computed later than they are recorded, many of them in one kernel, and none of them sets NumPy's error state.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.trace.patching import recorders
from gradtape.trace.patching.conversions.sequences import Function
from gradtape.trace.patching.functions import hook_function
from gradtape.trace.source.sites import is_program_file, user_site


def _changing(plain: Function) -> Function:
    """Return the handler of a function that changes NumPy's error state."""

    def change(*args: Any, **kwargs: Any) -> Any:
        before: dict[str, Any] = {**np.geterr()}
        result = plain(*args, **kwargs)
        asked = [kind for kind, answer in np.geterr().items() if answer == "raise" != before[kind]]
        # the callers are the hook, NumPy's function, and the code that changes the state: SciPy's has rules of ours in its place
        if asked and is_program_file(sys._getframe(3).f_code.co_filename):
            try:
                _warn_of_floating_point_errors(asked)
            except Warning:  # the caller's block is not entered, and leaves no state behind
                np.seterr(**before)
                raise
        return result

    return change


def _warn_of_floating_point_errors(kinds: Sequence[str]) -> None:
    warn(
        GradtapeWarning,
        f"traced arrays raise no FloatingPointError, which NumPy's error state asks for ({', '.join(kinds)})",
        where=user_site(),
        why="gradtape computes after it has recorded, without NumPy's error state: results are NaN or infinite there",
        remedy="test with np.isfinite(y).all(), or find the operation with gt.debug.check_numerics()",
    )


def _hook_error_states() -> None:
    changing: Any = np.errstate.__enter__, np.seterr
    for function in changing:
        hook_function(function, _changing)


recorders.before_recording(_hook_error_states)
