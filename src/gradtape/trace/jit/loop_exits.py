"""Loop-exit analysis: whether Python leaves a loop because of traced values alone, or by its own counter as well."""

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
from gradtape.trees import TreeSpec, structure_key

LEAST_GUARDS: Final = 4
"""The number of guards of one line from which it may be the condition of a loop."""


def may_be_loop(sites: Sequence[Any]) -> bool:
    """Return whether one line has so many guards that it may be the condition of a loop."""
    if len(sites) < LEAST_GUARDS:
        return False
    lines = Counter([condition_line(site) for site in sites])
    return max(lines.values()) >= LEAST_GUARDS


def condition_line(site: Any) -> Any:
    """Return the line of a condition, which is the same for all its guards: Python may test it before a loop and at its end."""
    return (site.code, site.line) if isinstance(site, Site) else None


def has_uncertain_exit(site: Any, sites: Sequence[Any]) -> bool:
    """Return whether Python may leave the loop around a condition for another reason than traced values.

    Then the trip count of the trace is the only one that is known to be possible.
    """
    if not isinstance(site, Site):
        return True
    looked = frozenset(
        other.instruction for other in sites if isinstance(other, Site) and other.code is site.code
    )
    return has_other_exit(site.code, site.instruction, looked)


def dynamic_loop_key(
    graph: Graph, guards: Sequence[Guard], spec: TreeSpec, outputs: Sequence[Any], state: object
) -> Any:
    """Return a key that two traces with dynamic trip counts share exactly if they compute the same.

    The limits of trip counts, which are those of the traced call for want of a better bound, are left out.
    """
    constants = hashlib.blake2b(digest_size=20)
    for value in graph.constants():
        constants.update(repr(value.aval).encode())
        constants.update(b"?" if value.data is None else np.ascontiguousarray(value.data).tobytes())
    results = tuple([output if isinstance(output, int) else _result_key(output()) for output in outputs])
    looks = tuple([(repr(guard.site), guard.expected) for guard in guards])
    structure = spec, structure_key(spec.unflatten(range(spec.num_leaves)))
    return (
        fingerprint(_without_trip_limits(graph)),
        constants.digest(),
        structure,
        results,
        looks,
        repr(state),
    )


def _result_key(leaf: Any) -> Any:
    """Return a key of a constant result."""
    if issubclass(type(leaf), np.ndarray | np.generic):
        return leaf.dtype.str, leaf.shape, leaf.tobytes()
    return type(leaf), repr(leaf)


def _without_trip_limits(graph: Graph) -> Graph:
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
