"""Graphs that a node holds as parameters: the bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtape.ir.builder import keep_names
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Node, Value, extract
from gradtape.ir.types import aval


class Body(Graph):
    """A closed graph without constants other than literals and without guards; it equals another that computes the same.

    One that holds derivatives given by the user equals itself alone, and has no hash: its fingerprint sees only their names, and no cache
    may keep the arrays that they hold.

    Parameters
    ----------
    inputs, nodes, outputs, name
        As of `Graph`. No input has a history.

    Attributes
    ----------
    digest : str
        The graph's fingerprint.
    has_rules : bool
        Whether there are derivatives given by the user in it.
    is_verified : bool
        Whether the verifier has seen it; nodes are never changed, so that once is enough.
    """

    __slots__ = ("digest", "has_rules", "is_verified")

    def __init__(
        self, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value], name: str = "body"
    ) -> None:
        super().__init__(inputs, nodes, outputs, name)
        self.digest = fingerprint(self)
        self.has_rules = holds_rules(nodes)
        self.is_verified = False

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Body)
            and self.digest == other.digest
            and not self.has_rules
            and not other.has_rules
        )

    def __hash__(self) -> int:
        if self.has_rules:
            raise TypeError("a body with derivatives given by the user has no hash")
        return hash(self.digest)

    def __repr__(self) -> str:
        """Say all of it: fingerprints see a parameter by its repr."""
        return f"<{self.name}: {self.digest}>"


def make_body(inputs: Sequence[Value], outputs: Sequence[Value], name: str = "body") -> Body:
    """Return a closed body: copies of the nodes between `inputs` and `outputs`, with inputs of its own."""
    nodes, _ = extract(outputs, inputs)
    becomes: dict[Value, Value] = {value: Value(aval(value.shape, value.dtype)) for value in inputs}
    copies = []
    for node in nodes:
        copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
        before, after = node.outs, copy.outs
        keep_names(before, after)
        for out, copied in zip(before, after, strict=True):
            becomes.setdefault(out, copied)
        copies.append(copy)
    return Body([becomes[v] for v in inputs], copies, [becomes.get(v, v) for v in outputs], name)


def holds_rules(nodes: Iterable[Node]) -> bool:
    """Return whether there are derivatives given by the user among nodes, or in bodies that they hold."""
    return any("rule" in node.params or any(body.has_rules for body in bodies_of(node)) for node in nodes)


def bodies_of(node: Node) -> list[Body]:
    """Return the bodies that a node holds: a loop's body before its condition, branches in their order."""
    params = node.params
    if not params:  # most nodes
        return []
    if "branches" in params:
        return list(params["branches"])
    return [params[name] for name in ("body", "condition") if isinstance(params.get(name), Body)]
