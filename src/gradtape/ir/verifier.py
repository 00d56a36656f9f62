"""The rules that every graph keeps between two stages."""

from __future__ import annotations

from gradtape.errors import GradtapeError, VerifyError
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.graph import Graph, Node, Value


def verify(graph: Graph, stage: str = "") -> None:
    """Check that values are defined once and before their use, and that types are what the ops infer.

    Raises
    ------
    VerifyError
        Naming the node, the rule and the stage that broke it.
    """
    defined: set[Value] = set()
    for value in graph.inputs:
        if value in defined:
            raise VerifyError(f"{value!r} is an input twice", why=_after(stage))
        defined.add(value)
    made = {out for node in graph.nodes for out in node.outs}
    for node in graph.nodes:
        for operand in node.inputs:
            if operand in defined or (operand.node is None and operand.data is not None):
                continue
            if operand in made or operand.data is None:
                raise VerifyError(
                    f"{node.op.name} uses {operand!r} before it is defined",
                    where=node.site,
                    why=_after(stage),
                )
        _check_types(node, stage)
        for body in bodies_of(node):
            _check_body(body, node, stage)
        for index, out in enumerate(node.outs):
            if out in defined:
                raise VerifyError(f"{out!r} is defined twice", where=node.site, why=_after(stage))
            if out.node is not node or out.index != index:
                raise VerifyError(f"{out!r} does not know its node", where=node.site, why=_after(stage))
            defined.add(out)
    for value in (*graph.outputs, *[value for value, _ in graph.guards]):
        if value not in defined and value.data is None:
            raise VerifyError(f"output {value!r} is not defined", why=_after(stage))
    for value, _ in graph.guards:
        if value.shape != () or value.dtype.kind not in "biu":
            raise VerifyError(f"guard {value!r} is not a boolean or integer", why=_after(stage))


def _check_body(body: Body, node: Node, stage: str) -> None:
    """Check the graph that a loop or a branch holds: it is closed."""
    if body.is_verified:
        return
    if any(value.node is not None or value.data is not None for value in body.inputs):
        raise VerifyError(
            f"an input of the body of {node.op.name} is known", where=node.site, why=_after(stage)
        )
    verify(body, stage)
    if body.guards or body.constants():
        raise VerifyError(
            f"the body of {node.op.name} has guards or constants", where=node.site, why=_after(stage)
        )
    body.is_verified = True


def _check_types(node: Node, stage: str) -> None:
    try:
        inferred = node.op.infer([operand.aval for operand in node.inputs], node.params)
    except GradtapeError as error:
        raise VerifyError(
            f"{node.op.name} cannot take its inputs: {error.what}", where=node.site, why=_after(stage)
        ) from error
    for out, type_ in zip(node.outs, inferred, strict=True):
        if out.shape != type_.shape or out.dtype != type_.dtype:
            raise VerifyError(
                f"{node.op.name} makes {type_!r} and its output says {out.aval!r}",
                where=node.site,
                why=_after(stage),
            )


def _after(stage: str) -> str:
    return f"after the pass {stage}" if stage else ""
