"""Functions shared by the tasks of a worker: each arrives once, and is compiled once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import cloudpickle

from gradtape.api.transforms.jit import Jitted
from gradtape.locks import Rank, new_lock
from gradtape.lru import LRU
from gradtape.trace.jit.dims import EXACT_SHAPES

KEPT: Final = 64
"""Functions that a worker keeps with their kernels."""

_arrived: Final[LRU[str, Callable[..., Any]]] = LRU(lambda: KEPT)
_lock: Final = new_lock(Rank.LEAF)


class Shared:
    """A function that transforms have made, to be called by tasks.

    Dask unpickles what a task needs for each task; a function that was unpickled anew would be traced anew. So it is pickled together with
    a name under which a process keeps it.

    Parameters
    ----------
    make : callable
        A transform of gradtape.
    function : callable
        The user's function.
    """

    def __init__(self, make: Callable[..., Any], function: Callable[..., Any]) -> None:
        self.name = uuid.uuid4().hex
        self._source = (make, function)
        self._content: bytes | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the transform makes of the function."""
        return _made(self.name, lambda: self._source)(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._content is None:
            self._content = cloudpickle.dumps(self._source)
        return Arrived, (self.name, self._content)


class Arrived:
    """A shared function in another process."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the transform makes of the function."""
        return _made(self.name, lambda: cloudpickle.loads(self._content))(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Arrived, (self.name, self._content)


def _made(name: str, source: Callable[[], Any]) -> Callable[..., Any]:
    found = _arrived.get(name)
    if found is None:
        make, function = source()
        made = make(function)  # not under the lock: the user's modules may be imported
        if isinstance(made, Jitted):
            # The bits of a result must not depend on which lengths a worker has seen before.
            made.site.shapes = EXACT_SHAPES
        with _lock:
            found = _arrived.get(name)
            if found is None:
                found = _arrived[name] = made
    return found
