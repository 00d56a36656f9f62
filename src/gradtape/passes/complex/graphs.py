"""Graphs of complex numbers as graphs of real ones."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Node, extract
from gradtape.passes.complex.procedures import flat_type, split_complex_procedure
from gradtape.passes.complex.split import ComplexSplit, holds_complex, is_complex
from gradtape.passes.simplify.annotations import inline_custom_calls
from gradtape.passes.simplify.inline_calls import inline_calls
from gradtape.transforms.procedures.ops import ProcedureOp, procedure
from gradtape.transforms.procedures.reference import ProcedureReference


def split_complex(graph: Graph) -> Graph:
    """Return the graph with real numbers only.

    An input or output of complex numbers becomes one of floats with a last axis of real and imaginary part, which is how it lies in memory.
    Constants become inputs after the others, in the order in which their arrays are passed: formulas may use them in another.

    Raises
    ------
    LoweringError
        For what has no formula in parts.
    """
    whole = inline_custom_calls(inline_calls(graph))
    if not (any(map(is_complex, (*graph.constants(), *whole.outputs))) or holds_complex(whole)):
        return graph
    split = _GraphSplit()
    inputs = [split.source(value) for value in (*graph.inputs, *graph.constants())]
    for node in whole.nodes:
        with at(node.site):
            split.node(node)
    outputs = [split.output(value) for value in whole.outputs]
    guards = [(split.value(value), expected) for value, expected in whole.guards]
    nodes, _ = extract(
        [*outputs, *[value for value, _ in guards]], inputs, stop=lambda value: value.node is None
    )
    return Graph(inputs, nodes, outputs, graph.name, guards)


class _GraphSplit(ComplexSplit):
    """The split of a graph, which may run procedures."""

    __slots__ = ()

    def node(self, node: Node) -> None:
        """Enter what the outputs of a node become; a procedure of complex numbers becomes one of floats."""
        if not isinstance(node.op, ProcedureOp) or not any(map(is_complex, (*node.inputs, *node.outs))):
            super().node(node)
            return
        reference = _split_reference(node.op.whole(node.params))
        made = procedure(reference, [self.output(value) for value in node.inputs])
        for out, new in zip(node.outs, made, strict=True):
            if is_complex(out):
                self.enter_flat(out, new)
            else:
                self._becomes[out] = new


@lru_cache(maxsize=256)
def _split_reference(reference: ProcedureReference) -> ProcedureReference:
    """Return the reference to the procedure of floats that computes what one of complex numbers does."""
    digest = hashlib.blake2b(f"split {reference.digest}".encode(), digest_size=20).hexdigest()
    return ProcedureReference(
        reference.name,
        digest,
        [flat_type(type_) for type_ in reference.types],
        [flat_type(type_) for type_ in reference.result_types],
        lambda: split_complex_procedure(reference.procedure),
        None if reference.primal is None else _split_reference(reference.primal),
    )
