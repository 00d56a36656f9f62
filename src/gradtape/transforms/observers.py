"""Who looks on while gradients are made: debuggers, statistics, checks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from gradtape.ir.graph import Node, Value
from gradtape.kinds.cotangent import Cotangent


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep in reverse.

    Attributes
    ----------
    targets : tuple of Value
        Where it began.
    sources : tuple of Value
        Where it leads.
    results : tuple of Value or None
        The cotangents of the sources; None where no path leads to one.
    arrived : callable
        Returns pairs of every value on the way and its total cotangent, in the order of arrival: targets first. Among them are the
        stacks that loops of unknown length hand on.
    inner : sequence of Sweep
        Those that rules made on the way: what is computed again for its gradient is swept by itself.
    node : Node or None
        Of an inner one, that to which the rule belongs.
    """

    targets: tuple[Value, ...]
    sources: tuple[Value, ...]
    results: tuple[Value | None, ...]
    arrived: Callable[[], tuple[tuple[Value, Cotangent], ...]]
    inner: Sequence[Sweep] = ()
    node: Node | None = None


class Observer(ABC):
    """Is told of every sweep while it is among `OBSERVERS`."""

    @abstractmethod
    def see(self, sweep: Sweep) -> None:
        """Take note of a sweep that has just been appended to the graph."""


OBSERVERS: WeakSet[Observer] = WeakSet()
"""Those who are told. An observer that nobody holds any more is gone."""


class _Around(threading.local):
    """The sweeps that are going on, each with those that were made in it."""

    def __init__(self) -> None:
        self.inner: list[list[Sweep]] = []


_around: Final = _Around()


@contextmanager
def inner_sweeps() -> Iterator[list[Sweep]]:
    """Collect the sweeps that are made meanwhile. Nobody is told: what they lead to is not what somebody asked for."""
    found: list[Sweep] = []
    outer = _around.inner
    try:
        _around.inner = [*outer, found]
        yield found
    finally:
        _around.inner = outer


def is_observed() -> bool:
    """Return whether somebody wants to be told of a sweep that is made now."""
    return bool(_around.inner) or len(OBSERVERS) > 0


def tell(sweep: Sweep) -> None:
    """Tell the observers of a sweep, or the sweep that it is a part of."""
    if _around.inner:
        _around.inner[-1].append(sweep)
        return
    for observer in tuple(OBSERVERS):
        observer.see(sweep)


class Derived:
    """The place of a node that computes a derivative: the user's line of the op that is differentiated.

    Parameters
    ----------
    site : object
        The place of that op.
    op : str
        Its name.
    backward : bool
        Whether a sweep in reverse made the node.
    """

    __slots__ = ("backward", "op", "site")

    def __init__(self, site: Any, op: str, backward: bool) -> None:
        self.site = site
        self.op = op
        self.backward = backward

    @property
    def filename(self) -> str:
        name: str = self.site.filename
        return name

    @property
    def line(self) -> int:
        line: int = self.site.line
        return line

    @property
    def function(self) -> str:
        name: str = self.site.function
        return name

    def __repr__(self) -> str:
        return repr(self.site)


def derived(node: Node, *, backward: bool) -> Any:
    """Return the place of what computes the derivative of a node; nothing is known where the node's own place is not."""
    site = node.site
    if site is None:
        return None
    return Derived(site.site if isinstance(site, Derived) else site, node.op.name, backward)
