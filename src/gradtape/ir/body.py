"""Graphs that a node holds as parameters: the bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Sequence

from .fingerprint import fingerprint
from .graph import Graph, Node, Value


class Body(Graph):
    """A closed graph without constants other than literals and without guards; it equals another that computes the same.

    Parameters
    ----------
    inputs, nodes, outputs, name
        As of `Graph`. No input has a history.

    Attributes
    ----------
    digest : str
        The graph's fingerprint.
    """

    __slots__ = ("digest",)

    def __init__(
        self, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value], name: str = "body"
    ) -> None:
        super().__init__(inputs, nodes, outputs, name)
        self.digest = fingerprint(self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Body) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        """Say all of it: fingerprints see a parameter by its repr."""
        return f"<{self.name}: {self.digest}>"


def bodies_of(node: Node) -> list[Body]:
    """Return the bodies that a node holds: a loop's body before its condition, branches in their order."""
    params = node.params
    if "branches" in params:
        return list(params["branches"])
    return [params[name] for name in ("body", "condition") if isinstance(params.get(name), Body)]
