"""What a trace that is given up has done to the user's own objects is undone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradtape.trace.random.observation import own_calls


class Undo:
    """The contents of containers of which a trace has no copies, and the states of random number generators, at its beginning.

    Parameters
    ----------
    containers : iterable
        Lists, dicts, sets, deques and bytearrays; other objects are left alone.
    generators : iterable
        Of NumPy and of Python's library.
    """

    __slots__ = ("_contents", "_states")

    def __init__(self, containers: Iterable[Any], generators: Iterable[Any]) -> None:
        self._contents: list[tuple[Any, Any]] = [
            (thing, thing.copy())
            for thing in containers
            if isinstance(thing, list | dict | set | deque | bytearray)
        ]
        self._states = [(generator, state_of(generator)) for generator in generators]

    def changed(self) -> list[tuple[Any, Any]]:
        """Return the containers whose content differs from that at the beginning, with the latter."""
        return [pair for pair in self._contents if not _is_unchanged(*pair)]

    def __call__(self) -> None:
        """Restore them."""
        for thing, before in self.changed():
            thing.clear()
            if isinstance(thing, dict | set):
                thing.update(before)
            else:
                thing.extend(before)
        for generator, state in self._states:
            restore(generator, state)


def _is_unchanged(thing: Any, before: Any) -> bool:
    now, then = (list(x.items() if isinstance(x, dict) else x) for x in (thing, before))
    return len(now) == len(then) and all(_is_same(*pair) for pair in zip(now, then, strict=True))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two items of a container are one; those of a dict are pairs."""
    if type(one) is tuple and type(other) is tuple and len(one) == len(other) == 2:
        return one[0] is other[0] and one[1] is other[1]
    return one is other


def state_of(generator: Any) -> Any:
    """Return the state of a random number generator."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    with own_calls():
        return generator.get_state(legacy=False)


def restore(generator: Any, state: Any) -> None:
    """Set a random number generator back to a state."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        with own_calls():
            generator.set_state(state)
