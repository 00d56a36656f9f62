"""Whether the user's code is to get lengths that record what it asks of them, in place of integers."""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any, Final

from gradtape.errors import is_internal


class _Asking:
    """The questions of the trace that is going on, if lengths vary in it.

    Attributes
    ----------
    questions : Questions or None
        See `gradtape.trace.array.lengths`.
    """

    __slots__ = ("questions",)

    def __init__(self) -> None:
        self.questions: Any = None

    def by_user(self, frame: FrameType) -> Any:
        """Return the questions if a frame of this thread is not of gradtape, NumPy or SciPy; None otherwise."""
        found = self.questions
        if found is None or is_internal(frame) or found.thread != threading.get_ident():
            return None
        return found


ASKING: Final = _Asking()
