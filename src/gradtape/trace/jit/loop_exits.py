"""How Python may leave a loop: by what it saw of traced values alone, or by its own counting as well."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Node, Value
from gradtape.trace.jit.guards import Guard
from gradtape.trace.patching.bytecode import has_other_exit
from gradtape.trace.source.sites import Site
from gradtape.trees import TreeSpec

LEAST_LOOKS: Final = 4
"""Looks of one line from which it may be the condition of a loop."""


def looked_at_again(sites: Sequence[Any]) -> bool:
    """Return whether some line looked at values so often that it may be the condition of a loop."""
    if len(sites) < LEAST_LOOKS:
        return False
    lines = Counter([line_of(site) for site in sites])
    return max(lines.values()) >= LEAST_LOOKS


def line_of(site: Any) -> Any:
    """Return what all looks of one condition have in common: Python may test it at two places, ahead of a loop and at its end."""
    return (site.code, site.line) if isinstance(site, Site) else None


def is_bounded(site: Any, sites: Sequence[Any]) -> bool:
    """Return whether Python may leave the loop around a condition because of anything but traced values.

    Then it is certain only that the loop may turn as often as it was seen to.
    """
    if not isinstance(site, Site):
        return True
    looked = frozenset(
        other.instruction for other in sites if isinstance(other, Site) and other.code is site.code
    )
    return has_other_exit(site.code, site.instruction, looked)


def open_form(
    graph: Graph, guards: Sequence[Guard], spec: TreeSpec, outputs: Sequence[Any], state: object
) -> Any:
    """Return what two traces with loops that turn as often as they must share exactly if they compute the same.

    How often they turned at most, for want of a better bound, is left out.
    """
    constants = hashlib.blake2b(digest_size=20)
    for value in graph.constants():
        constants.update(repr(value.aval).encode())
        constants.update(b"?" if value.data is None else np.ascontiguousarray(value.data).tobytes())
    results = tuple([output if isinstance(output, int) else _told(output()) for output in outputs])
    looks = tuple([(repr(guard.site), guard.expected) for guard in guards])
    return fingerprint(_without_limits(graph)), constants.digest(), spec, results, looks, repr(state)


def _told(leaf: Any) -> Any:
    """Return all of a result that depends on no argument."""
    if issubclass(type(leaf), np.ndarray | np.generic):
        return leaf.dtype.str, leaf.shape, leaf.tobytes()
    return type(leaf), repr(leaf)


def _without_limits(graph: Graph) -> Graph:
    becomes: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        params = {**node.params, "limit": None} if "limit" in node.params else node.params
        copy = Node(node.op, tuple([becomes.get(value, value) for value in node.inputs]), params)
        copy.set_types(node.types)
        becomes.update(zip(node.outs, copy.outs, strict=True))
        nodes.append(copy)
    guards = [(becomes.get(value, value), expected) for value, expected in graph.guards]
    return Graph(graph.inputs, nodes, [becomes.get(value, value) for value in graph.outputs], "f", guards)
