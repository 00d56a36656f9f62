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
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import LIBRARIES
from .sites import is_users

Function = Callable[..., Any]
Namespace = dict[str, Any]

Names = list[tuple[str, Any, Any]]
"""Names, what they stand for, and what they are to stand for."""

MOST_NAMESPACES: Final = 256


class _Place(NamedTuple):
    """A name, what stands there, and what does meanwhile."""

    namespace: Namespace
    name: str
    own: Any
    following: Any


class _Names:
    """Names that are exchanged while somebody records on any thread."""

    def __init__(self) -> None:
        # The cycle collector may run a finaliser that leaves while another enters.
        self._lock = threading.RLock()
        self.on_change: Callable[[bool], None] = lambda active: None
        self._users: set[int] = set()
        self._last: Namespace | None = None
        self._size = 0
        self._forth: list[tuple[Namespace, Names]] = []
        self._back: list[tuple[Namespace, Names]] = []
        self._methods: list[_Place] = []
        self._groups: dict[int, dict[str, _Place]] = {}
        self._borrowed: dict[str, list[_Place]] = {}
        self._wanted: set[str] = set()
        self._stand_ins: dict[int, tuple[Function, Function]] = {}
        self._awaited: dict[str, list[tuple[str, Callable[[Function], Function]]]] = {}
        self._sizes: OrderedDict[int, tuple[Namespace, int]] = OrderedDict()

    def exchange(self, own: Function, following: Function) -> None:
        """Let another function stand for one of NumPy's while somebody records."""
        self._stand_ins[id(own)] = own, following
        self._add(_Place(vars(np), own.__name__, own, following))
        self._gather()

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

    def enter(self, user: object, *namespaces: Namespace) -> None:
        """Let the names stand for functions that follow, for as long as `user` needs that.

        They do so in the modules at hand as well, where these are the user's own, and in others that they use.
        """
        with self._lock:
            changed = False
            for namespace in namespaces:
                if namespace is not self._last or len(namespace) != self._size:
                    changed = self._meet(namespace) or changed
            self._users.add(id(user))
            if len(self._users) > 1 and not changed:
                return
            self.on_change(True)
            for namespace, names in self._forth:  # no calls: this runs for every tape
                try:
                    for name, old, new in names:
                        if namespace[name] is old:
                            namespace[name] = new
                except KeyError:
                    _replace(namespace, names)
            for namespace, name, _, following in self._methods:
                namespace.setdefault(name, following)

    def leave(self, user: object) -> None:
        """Give the names back when nobody needs them any more; to leave twice does no harm."""
        with self._lock:
            self._users.discard(id(user))
            if self._users:
                return
            self.on_change(False)
            for namespace, names in self._back:
                try:
                    for name, old, new in names:
                        if namespace[name] is old:
                            namespace[name] = new
                except KeyError:
                    _replace(namespace, names)
            for namespace, name, _, following in self._methods:
                if namespace.get(name) is following:
                    del namespace[name]

    def _meet(self, namespace: Namespace) -> bool:
        """Look at what a module of the user's has, if it is not known, and return whether there are names to be exchanged now."""
        known = self._sizes.get(id(namespace))
        size = len(namespace)
        changed = bool(self._awaited) and self._imported()  # not looked at for every tape in a module
        if changed or known is None or known[1] != size:
            changed = self._look_through(namespace) or changed
            if changed:
                self._gather()
        self._last, self._size = namespace, size
        return changed

    def _add(self, place: _Place) -> None:
        self._groups.setdefault(id(place.namespace), {})[place.name] = place

    def _gather(self) -> None:
        borrowed = [place for module in self._wanted for place in self._borrowed.get(module, ())]
        together: dict[int, list[_Place]] = {}
        for place in (*[place for group in self._groups.values() for place in group.values()], *borrowed):
            if place.own is not None:
                together.setdefault(id(place.namespace), []).append(place)
        groups = [(places[0].namespace, places) for places in together.values()]
        self._forth = [
            (space, [(name, own, new) for _, name, own, new in places]) for space, places in groups
        ]
        self._back = [(space, [(name, new, own) for _, name, own, new in places]) for space, places in groups]
        self._methods = [place for place in borrowed if place.own is None]

    def _imported(self) -> bool:
        """Enter the functions of modules that have been imported meanwhile, and return whether there are any."""
        fresh = [name for name in self._awaited if name in sys.modules]
        for module in fresh:
            for path, follow in self._awaited.pop(module):
                holder: Any = sys.modules[module]
                *objects, name = path.split(".")
                for part in objects:
                    holder = getattr(holder, part, None)
                own = getattr(holder, name, None)
                if own is None:
                    continue
                following = follow(own)
                if not objects:
                    self._stand_ins[id(own)] = own, following
                place = _Place(vars(holder), name, None if objects else own, following)
                self._borrowed.setdefault(module, []).append(place)
        return bool(fresh)

    def _look_through(self, namespace: Namespace) -> bool:
        """Find the names in a module of the user's, and in others that it has functions, classes or modules of."""
        found = False
        pending, done = [namespace], set()
        while pending:
            current = pending.pop()
            if id(current) in done or not _is_the_users(current):
                continue
            done.add(id(current))
            for name, item in list(current.items()):
                known = self._stand_ins.get(id(item))
                wanted = self._borrowed.keys() & _modules_asked_by(item)
                if not wanted <= self._wanted:
                    self._wanted |= wanted
                    found = True
                if known is not None and known[0] is item:
                    self._add(_Place(current, name, *known))
                    found = True
                else:
                    other = _namespace_around(item)
                    if other is not None:
                        pending.append(other)
            self._sizes[id(current)] = current, len(current)
            self._sizes.move_to_end(id(current))
        while len(self._sizes) > MOST_NAMESPACES:
            key, _ = self._sizes.popitem(last=False)
            for place in self._groups.pop(key, {}).values():
                if place.namespace.get(place.name) is place.following:
                    place.namespace[place.name] = place.own
        return found


def _replace(namespace: Namespace, names: Names) -> None:
    """Let names stand for something else where they stand for what they are thought to; somebody has deleted one."""
    for name, old, new in names:
        if namespace.get(name) is old:
            namespace[name] = new


def _is_the_users(namespace: Namespace) -> bool:
    if str(namespace.get("__name__", "")).partition(".")[0] in LIBRARIES:
        return False
    file = namespace.get("__file__")
    return file is None or is_users(str(file))


def _modules_asked_by(item: Any) -> set[str]:
    """Return the modules whose functions something gives access to: a module, an object of its, or a function that imports it."""
    if isinstance(item, FunctionType):
        return set(item.__code__.co_names)
    if isinstance(item, ModuleType):
        name = item.__name__
        return {name, *[f"{name}.{part}" for part in vars(item)]} if name == "scipy" else {name}
    return {".".join(type(item).__module__.split(".")[:2])}


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


NAMES: Final = _Names()
