"""Observers of reverse sweeps: debuggers, statistics and checks."""

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
    """One reverse sweep.

    Attributes
    ----------
    targets, sources : tuple of Value
        The values from which and to which cotangents were propagated.
    results : tuple of Value or None
        The cotangents of the sources; None where no path leads to one.
    arrived : callable
        Returns pairs of each value on a path and its total cotangent, targets first. Among them are the stacks of loops with unknown
        trip count.
    inner : sequence of Sweep
        The sweeps of rules in this one: a rule that runs code again sweeps back through it.
    node : Node or None
        For an inner sweep, the node of the rule.
    """

    targets: tuple[Value, ...]
    sources: tuple[Value, ...]
    results: tuple[Value | None, ...]
    arrived: Callable[[], tuple[tuple[Value, Cotangent], ...]]
    inner: Sequence[Sweep] = ()
    node: Node | None = None


class Observer(ABC):
    """Is notified of every sweep while it is in `OBSERVERS`."""

    @abstractmethod
    def see(self, sweep: Sweep) -> None:
        """Process a sweep that has just been appended to the graph."""


OBSERVERS: WeakSet[Observer] = WeakSet()
"""The active observers, by weak references."""


class _SweepStack(threading.local):
    """The inner sweeps of the sweeps that are going on in a thread, the innermost last."""

    def __init__(self) -> None:
        self.inner: list[list[Sweep]] = []


_stack: Final = _SweepStack()


@contextmanager
def inner_sweeps() -> Iterator[list[Sweep]]:
    """Collect the sweeps of a block. Observers are not notified: these sweeps are parts of another one."""
    found: list[Sweep] = []
    outer = _stack.inner
    try:
        _stack.inner = [*outer, found]
        yield found
    finally:
        _stack.inner = outer


def is_observed() -> bool:
    """Return whether a sweep has to be passed to `notify`."""
    return bool(_stack.inner) or len(OBSERVERS) > 0


def notify(sweep: Sweep) -> None:
    """Pass a sweep to the observers, or enter it in the sweep that it is a part of."""
    if _stack.inner:
        _stack.inner[-1].append(sweep)
        return
    for observer in tuple(OBSERVERS):
        observer.see(sweep)


class DerivativeSite:
    """The site of a node that computes a derivative: the user's line of the op that is differentiated.

    Parameters
    ----------
    site : object
        The site of that op.
    op : str
        Its name.
    backward : bool
        Whether the node belongs to a reverse sweep.
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


def derivative_site(node: Node, *, backward: bool) -> Any:
    """Return the site of the nodes that compute the derivative of a node; None where the node has none."""
    return site_of_derivative(node.site, node.op.name, backward=backward)


def site_of_derivative(site: Any, name: str, *, backward: bool) -> Any:
    """Return the site of the derivative of what stands at a site; None where it stands nowhere."""
    if site is None:
        return None
    return DerivativeSite(site.site if isinstance(site, DerivativeSite) else site, name, backward)
