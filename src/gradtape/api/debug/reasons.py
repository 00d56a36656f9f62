"""Explanations of missing, zero and non-finite gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gradtape.api.debug.explanation import Explanation
from gradtape.api.debug.origin import Finding, in_iterations, number
from gradtape.api.debug.paths import Cut, Loss, is_flat
from gradtape.errors import counted
from gradtape.kinds.control import Custom, Structured
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.extrema import clip, fmax, fmin, maximum, minimum
from gradtape.ops.core.elementwise.select import where
from gradtape.trace.source.log import Log
from gradtape.trace.source.sites import Site
from gradtape.transforms.loops.ops import Switch
from gradtape.transforms.observers import DerivativeSite

EXTREMA: Final = frozenset({maximum, minimum, fmax, fmin, clip})
"""Rows whose result is one of the operands."""


def explain_cut(cuts: Sequence[Cut], log: Log) -> Explanation:
    """Explain the op at which a path ends."""
    cut = cuts[0]
    node, name, site = cut.node, cut.node.op.name, cut.node.site
    others = {id(other.node) for other in cuts} - {id(node)}
    more = f" (and others at {counted(len(others), 'more place')})" if others else ""
    if cut.kind == "recording":
        return _unrecorded(cut, log)
    if cut.kind == "stop_gradient":
        text = "stop_gradient cuts the gradient off (gt.constant and assignments to variables use it too)"
        return Explanation("stop_gradient", text + more, site, name, "remove it if that was not intended")
    if cut.kind == "integer":
        text = f"the value is converted to {node.outs[0].dtype} here, and integers carry no derivative"
        return Explanation(
            "integer",
            text + more,
            site,
            name,
            "stay with floats (np.floor and np.round do, but their derivative is 0)",
        )
    if cut.kind == "comparison":
        text = f"{name} gives booleans: they jump, and have no derivative"
        remedy = "let the floats themselves reach the target, as in np.where(x > 0, x, 0); for a smooth step, a sigmoid"
        return Explanation("not differentiable", text + more, site, name, remedy)
    if cut.kind == "position":
        text = f"{name} gives integers ({node.outs[0].dtype}): they jump, and have no derivative"
        remedy = (
            "use the values in place of the positions (np.max for np.argmax), or a smooth stand-in (softmax)"
        )
        return Explanation("not differentiable", text + more, site, name, remedy)
    if isinstance(node.op, Structured):
        text = f"no derivative leads through {name} from there to this result"
        remedy = "check how it is used there: as a condition, an index, the trip count, or another result"
        return Explanation("not differentiable", text + more, site, name, remedy)
    if isinstance(node.op, Custom):
        called = node.params["rule"].name
        text = f"the derivative rule given for {called} returns nothing for this argument{more}"
        return Explanation("not differentiable", text, site, called, "return a gradient for it")
    return Explanation(
        "not differentiable",
        f"{name} has no derivative with respect to this argument{more}",
        site,
        name,
        "write it with other functions",
    )


def _unrecorded(cut: Cut, log: Log) -> Explanation:
    """Explain a result that the tape does not record although it records the operand."""
    value, site = cut.operand, cut.node.site
    watched = log.watched.get(value)
    if watched is not None and isinstance(site, Site) and site.tick <= watched.tick:
        return Explanation(
            "watched after use",
            f"the array was watched only afterwards (at {watched})",
            site,
            cut.node.op.name,
            "watch it first, then compute",
        )
    if isinstance(site, DerivativeSite):
        return Explanation(
            "recording stopped",
            f"the tape was not recording when the gradient was taken: this is a part of the derivative of {site.op}",
            site,
            cut.node.op.name,
            "take that gradient inside the with block of this tape",
        )
    return Explanation(
        "recording stopped",
        "the tape was not recording when this line ran, or it ran on another thread than the with block",
        site,
        cut.node.op.name,
        "move the line into the with block; a one-shot tape ends with its first gradient, so make it "
        "gt.GradientTape(persistent=True) to go on",
    )


def explain_zero(loss: Loss, log: Log) -> Explanation:
    """Explain where a gradient with a path becomes zero."""
    if loss.cuts:
        return _located(explain_cut(loss.cuts, log), loss)
    remedy = "check the values there, or use a function with a nonzero derivative"
    if not loss.nodes:
        return Explanation("zero derivative", "the contributions of several paths cancel", remedy=remedy)
    node = loss.nodes[0]
    name = node.op.name
    if node.op is stop_gradient:
        return _located(explain_cut([Cut("stop_gradient", node, node.inputs[0])], log), loss)
    if is_flat(node):
        text = f"{name} is piecewise constant, so its derivative is 0"
    elif node.op is where:
        text = "the condition chooses the other branch everywhere"
    elif node.op in EXTREMA:
        text = f"another operand of {name} is the result everywhere"
    elif node.op is multiply:
        text = "the other factor is 0"
    elif isinstance(node.op, Switch):
        text = "the branch that is taken does not use it"
    elif isinstance(node.op, Structured):
        text = f"the derivative of each iteration of {name} is 0 (or there is no iteration)"
    elif isinstance(node.op, Custom):
        name = node.params["rule"].name
        text = f"the derivative rule given for {name} is 0 at these values"
    else:
        text = f"the derivative of {name} is 0 at these values (or the contributions of several paths cancel there)"
    return _located(Explanation("zero derivative", text, node.site, name, remedy), loss)


def _located(explanation: Explanation, loss: Loss) -> Explanation:
    """Return an explanation that names the iterations of a loss."""
    return replace(explanation, text=explanation.text + in_iterations(loss.iterations))


def explain_nonfinite(finding: Finding) -> Explanation:
    """Explain the origin of a NaN or an infinity in a gradient."""
    text = f"there is a path, and the gradient has {number(finding.samples[0].result)} in it"
    if finding.op == "input":
        called = f" {finding.name!r}" if finding.name else ""
        return Explanation(
            "not finite",
            f"{text}, which came in with an array{called} of shape {finding.shape}",
            remedy="clean the data: np.isfinite finds the elements",
        )
    return Explanation(
        "not finite",
        f"there is a path, and the gradient is not finite: {finding.headline}; {finding.reason}",
        finding.site,
        finding.derivative_of or finding.op,
        finding.remedy,
    )
