"""Loop rotation: a while loop whose condition reads arrays computes it where these are made, for the next iteration.

The first test is computed before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Graph, Node, Value, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import INT64, Aval
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.ops import While


class RotatedWhile(While):
    """A while loop whose last input says whether there is a first iteration."""

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return super().infer(avals[:-1], params)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return super().evaluate(arrays[:-1], params)


rotated_while: Final = RotatedWhile("rotated_while")


def rotate_loops(graph: Graph) -> Graph:
    """Return the graph in which the first test of a loop on arrays is computed along with what comes before the loop."""
    return rewrite(graph, _rotated)


def _rotated(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if type(node.op) is not While or not _reads_arrays(node.params["condition"]):
        return None
    (goes_on,) = inlined(node.params["condition"], [literal(0, INT64), *inputs])
    return emit_all(rotated_while, (*inputs, goes_on), **node.params)


def _reads_arrays(condition: Graph) -> bool:
    """Whether a condition takes long: what it needs of arrays is at hand where they are made."""
    read = {value for node in condition.nodes for value in node.inputs}
    return any(value.shape != () and value in read for value in condition.inputs)


def next_condition(node: Node) -> list[Value]:
    """Return the condition of the next iteration, as a value of the body: of the carries that an iteration makes."""
    body, condition = node.params["body"], node.params["condition"]
    consts, carries = node.params["consts"], node.params["carries"]
    index, *inputs = body.inputs
    with at(None):
        following = add(index, literal(1, INT64))
        return inlined(condition, [following, *inputs[:consts], *body.outputs[:carries]])
