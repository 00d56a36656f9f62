"""Python's cycle collector: its pauses, and what it knows of objects.

It is paused during imports, traces and compilations: it would traverse all new objects again and again.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from gradtape.locks import renewed_in_child

T = TypeVar("T")

_depths: Final[dict[int, int]] = {}
"""The nesting depth of pauses of each thread, by its identifier."""


class _State:
    """Whether the collector is off because of pauses, and not because the user has disabled it."""

    __slots__ = ("paused",)

    def __init__(self) -> None:
        self.paused = False


_state: Final = _State()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the cycle collector until the last pause, of any thread, has ended.

    In a young process one collection takes 5 ms, and compiling would cause several; collections take half of the time of a long trace.

    Examples
    --------
    >>> with collector_paused():
    ...     with collector_paused():
    ...         pass
    ...     inside = gc.isenabled()
    >>> inside, gc.isenabled()
    (False, True)
    """
    thread = threading.get_ident()
    depth = _depths.get(thread, 0)
    try:
        _depths[thread] = depth + 1
        if gc.isenabled():
            _state.paused = True
            gc.disable()
        yield
    finally:
        # No call stands before the last one: Ctrl-C can come in between only after a call.
        if depth:
            _depths[thread] = depth
        elif thread in _depths:
            del _depths[thread]
        if not _depths and _state.paused:
            _state.paused = False
            gc.enable()


def promote_all() -> None:
    """Make all objects old ones, without a look at them: the first collection after the import would take longer than those it was spared.

    Nothing is done where objects are set aside by ``gc.freeze()``.

    Examples
    --------
    >>> promote_all()
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class _Frozen:
    """The objects that ``gc.freeze()`` has set aside, as far as they are known: those of some types, found by a walk over all objects.

    Attributes
    ----------
    known : dict of type to list of weakref
        By type, the objects that were there at the walk.
    mark, holder : object and list
        The collector tells that the second refers to the first until the next ``gc.freeze()``, after which `known` is out of date.
    """

    __slots__ = ("holder", "known", "mark")

    known: dict[type, list[weakref.ref[Any]]]
    mark: object
    holder: list[object]

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.known = {}
        self.mark = object()
        self.holder = [self.mark]

    def objects(self, kind: type[T], holders: Iterable[Any]) -> list[T]:
        """Return the objects of a type; `holders` are those of which the collector tells that they refer to the mark."""
        if not any(other is self.holder for other in holders):
            self.forget()
        # A frame keeps the variables that somebody has asked for, also those that are deleted, until somebody asks again.
        _variables()
        if kind not in self.known:
            self.known[kind] = [weakref.ref(other) for other in _reachable() if issubclass(type(other), kind)]
        return [other for reference in self.known[kind] if (other := reference()) is not None]


_frozen: Final = _Frozen()


def referrers(targets: Iterable[Any], kind: type[T]) -> list[T]:
    """Return the living objects of a type that refer to one of some objects. They can be referred to weakly.

    The collector does not tell of objects that ``gc.freeze()`` has set aside, as servers do before they fork. If there are such objects,
    all objects are walked once after each freeze that modules and the variables of running functions lead to, which takes about 0.2 s.

    Examples
    --------
    >>> def function(): pass
    >>> referrers([function.__code__], type(function)) == [function]
    True
    """
    targets = list(targets)
    holders = gc.get_referrers(*targets, _frozen.mark)
    # By its type: a weak proxy has the class of its object, and none if that is gone.
    referring = {id(other): other for other in holders if issubclass(type(other), kind)}
    if gc.get_freeze_count():
        target_ids = {*map(id, targets)}
        for other in _frozen.objects(kind, holders):
            if not target_ids.isdisjoint(map(id, gc.get_referents(other))):
                referring[id(other)] = other
    return list(referring.values())


def _reachable() -> list[Any]:
    """Return the containers that modules, and the variables of running functions, lead to."""
    level: list[Any] = [sys.modules, *_variables()]
    reached: dict[int, Any] = {}
    while level:
        next_level = {id(other): other for other in gc.get_referents(*level)}
        level = [other for key, other in next_level.items() if key not in reached and gc.is_tracked(other)]
        reached.update(zip(map(id, level), level, strict=True))
    return list(reached.values())


def _variables() -> list[Any]:
    """Return the variables of running functions, local and global ones; without those here, which would hold what is returned."""
    namespaces: list[Any] = []
    own_globals = globals()
    for around in [*sys._current_frames().values()]:
        frame: FrameType | None = around
        while frame is not None:
            if frame.f_globals is not own_globals:
                # a copy: since Python 3.13 the mapping of a function's variables is a proxy, which the collector does not look into
                namespaces += [dict(frame.f_locals), frame.f_globals]
            frame = frame.f_back
    del around  # the frame of this call: it would hold itself, and through its callers what they found
    return namespaces


def _forget_other_threads() -> None:
    """End the pauses of threads that a forked process does not have."""
    thread = threading.get_ident()
    for other in _depths.keys() - {thread}:
        del _depths[other]
    if not _depths and _state.paused:
        _state.paused = False
        gc.enable()


renewed_in_child(_forget_other_threads)
