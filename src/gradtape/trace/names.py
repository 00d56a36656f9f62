"""The names by which user code calls functions that ask arrays for their numbers, exchanged while somebody records.

Most of NumPy asks its arguments who they are. What does not (`numpy.array` of a list, `numpy.zeros`, functions of SciPy that are
written in Python) is given a stand-in under its name: in its own module, and in modules of the user's that imported it by itself.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import LIBRARIES
from .sites import is_users

Function = Callable[..., Any]
Namespace = dict[str, Any]

NOTHING: Final = object()
"""What stands under the name of a method in its object, which has it of its class."""

MOST_NAMESPACES: Final = 256


class _Place(NamedTuple):
    """A name, what stands there, and what does meanwhile."""

    namespace: Namespace
    name: str
    own: Any
    following: Any

    def put(self) -> None:
        if self.namespace.get(self.name, NOTHING) is self.own:
            self.namespace[self.name] = self.following

    def give_back(self) -> None:
        if self.namespace.get(self.name) is self.following:
            if self.own is NOTHING:
                del self.namespace[self.name]
            else:
                self.namespace[self.name] = self.own


class _Seen(NamedTuple):
    """A module of the user's that was looked through, and how many names it had."""

    namespace: Namespace
    size: int
    places: list[_Place]


class _Names:
    """Names that are exchanged while somebody records on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._places: list[_Place] = []
        self._stand_ins: dict[int, tuple[Function, Function]] = {}
        self._awaited: dict[str, list[tuple[str, Callable[[Function], Function]]]] = {}
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def exchange(self, own: Function, following: Function) -> None:
        """Let another function stand for one of NumPy's while somebody records."""
        self._add(vars(np), own.__name__, own, following)

    def exchange_later(self, name: str, follow: Callable[[Function], Function]) -> None:
        """Let what `follow` makes of a function stand for it, once its module has been imported.

        Parameters
        ----------
        name : str
            Such as ``scipy.special.logsumexp``, or with an object of the module before that of a method.
        follow : callable
            Makes a stand-in of the function.
        """
        module = ".".join(name.split(".")[:2])
        self._awaited.setdefault(module, []).append((name[len(module) + 1 :], follow))

    def standing_for(self, function: Function) -> Function:
        """Return what stands for a function while somebody records: itself, if nothing does."""
        known = self._stand_ins.get(id(function))
        return function if known is None else known[1]

    def enter(self, *namespaces: Namespace) -> None:
        """Let the names stand for functions that follow, in the user's modules at hand as well, and in those that they use."""
        with self._lock:
            self._users += 1
            fresh = list(self._imported())
            for namespace in namespaces:
                seen = self._seen.get(id(namespace))
                if fresh or seen is None or seen.size != len(namespace):
                    fresh += self._look_through(namespace)
            if self._users == 1:
                for place in self._places:
                    place.put()
                for module in self._seen.values():
                    for place in module.places:
                        place.put()
            else:
                for place in fresh:
                    place.put()

    def leave(self) -> None:
        """Give the names back when nobody needs them any more."""
        with self._lock:
            self._users -= 1
            if not self._users:
                for place in self._places:
                    place.give_back()
                for module in self._seen.values():
                    for place in module.places:
                        place.give_back()

    def _add(self, namespace: Namespace, name: str, own: Any, following: Function) -> _Place:
        if own is not NOTHING:
            self._stand_ins[id(own)] = own, following
        place = _Place(namespace, name, own, following)
        self._places.append(place)
        return place

    def _imported(self) -> Iterator[_Place]:
        """Enter the functions of modules that have been imported meanwhile."""
        for module in [name for name in self._awaited if name in sys.modules]:
            for path, follow in self._awaited.pop(module):
                holder: Any = sys.modules[module]
                *objects, name = path.split(".")
                for part in objects:
                    holder = getattr(holder, part, None)
                own = getattr(holder, name, None)
                if own is not None:
                    yield self._add(vars(holder), name, NOTHING if objects else own, follow(own))

    def _look_through(self, namespace: Namespace) -> list[_Place]:
        """Find the names in a module of the user's, and in others that it has functions, classes or modules of."""
        fresh: list[_Place] = []
        pending, done = [namespace], set()
        while pending:
            current = pending.pop()
            if id(current) in done or not _is_the_users(current):
                continue
            done.add(id(current))
            places = []
            for name, item in list(current.items()):
                known = self._stand_ins.get(id(item))
                if known is not None and known[0] is item:
                    places.append(_Place(current, name, *known))
                else:
                    other = _namespace_around(item)
                    if other is not None:
                        pending.append(other)
            before = self._seen.pop(id(current), None)
            kept = [] if before is None else [place for place in before.places if place not in places]
            self._seen[id(current)] = _Seen(current, len(current), kept + places)
            fresh += places
        while len(self._seen) > MOST_NAMESPACES:
            _, oldest = self._seen.popitem(last=False)
            for place in oldest.places:
                place.give_back()
        return fresh


def _is_the_users(namespace: Namespace) -> bool:
    if str(namespace.get("__name__", "")).partition(".")[0] in LIBRARIES:
        return False
    file = namespace.get("__file__")
    return file is None or is_users(str(file))


def _namespace_around(item: Any) -> Namespace | None:
    if isinstance(item, FunctionType):
        return item.__globals__
    if isinstance(item, ModuleType):
        return vars(item)
    if isinstance(item, type):
        module = sys.modules.get(item.__module__)
        return None if module is None else vars(module)
    return None


def namespaces_of(function: Any) -> Iterator[Namespace]:
    """Yield the global names that a function sees, and those of what it encloses."""
    for _ in range(8):
        if isinstance(function, FunctionType):
            inner = getattr(function, "__wrapped__", None)
            if inner is None:
                yield function.__globals__
                yield from _enclosed(function)
                return
            function = inner
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        else:
            function = vars(type(function)).get("__call__")


def _enclosed(function: FunctionType) -> Iterator[Namespace]:
    for cell in function.__closure__ or ():
        try:
            item = cell.cell_contents
        except ValueError:  # it is not assigned yet
            continue
        around = _namespace_around(item) or _namespace_around(type(item))
        if around is not None:
            yield around


def namespaces_at(frame: FrameType | None) -> tuple[Namespace, ...]:
    """Return the global names of the nearest code, from a frame on, that is not of a library."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in LIBRARIES:
            return (frame.f_globals,)
        frame = frame.f_back
    return ()


NAMES: Final = _Names()
