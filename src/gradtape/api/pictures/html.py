"""Notebook pictures of tapes and compiled functions."""

from __future__ import annotations

import gc
import html
from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.api.pictures.svg import backward_nodes, code_at, draw, short_place
from gradtape.errors import counted
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.graph import Graph, Literal, Node, TraceTag, Value, extract
from gradtape.trace.array.html import LINE, NEGATIVE, POSITIVE, badge, card
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.specialisation import Specialisation
from gradtape.transforms.call import GraphCall
from gradtape.transforms.observers import DerivativeSite

OPEN_OPS, SHOWN_OPS = 24, 400
OPEN_NODES, DRAWN_NODES = 60, 600
SHOWN_TRACES = 4
STATES = {"recording": NEGATIVE, "recorded": POSITIVE}


def tape_card(state: str, persistent: bool, tag: TraceTag | None) -> str:
    """Return the picture of a tape: the operations that it has recorded, each with the user's line."""
    badges = badge(state, STATES.get(state, "127,127,127")) + (badge("persistent") if persistent else "")
    nodes = [] if tag is None else recorded(tag)
    if not nodes:
        return card(
            "GradientTape", badges, "<i style='opacity:.7'>nothing that is still in use was recorded</i>"
        )
    table = _operations(nodes[:SHOWN_OPS])
    if len(nodes) > SHOWN_OPS:
        table += f"<div style='opacity:.7'>and {len(nodes) - SHOWN_OPS} more</div>"
    return card(
        "GradientTape",
        badges + badge(f"{len(nodes)} operations"),
        _folded(table, "operations", len(nodes) > OPEN_OPS),
    )


def recorded(tag: TraceTag) -> list[Node]:
    """Return the nodes that a tape records, as far as somebody still holds what they computed.

    A tape keeps no list of them, so that nothing lives longer on its account; the garbage collector knows who refers to its tag.
    """
    tuples = [referrer for referrer in gc.get_referrers(tag) if type(referrer) is tuple]
    values = (
        [referrer for referrer in gc.get_referrers(*tuples) if isinstance(referrer, Value)] if tuples else []
    )
    traced = [value for value in values if tag in value.tags]
    nodes, _ = extract(traced, (), stop=lambda value: tag not in value.tags)
    return nodes


def jitted_card(site: CallSite) -> str:
    """Return the picture of a compiled function: its traces, each as a graph, forward and backward side by side."""
    specialisations = site.specialisations()
    badges = badge(counted(len(specialisations), "trace"), POSITIVE)
    if not specialisations:
        why = "not called yet, or always op by op: then nothing was compiled, and there is nothing to see"
        return card(site.name, badges, f"<i style='opacity:.7'>{why}</i>")
    body = "".join(
        _trace(s, k == len(specialisations) - 1)
        for k, s in list(enumerate(specialisations))[-SHOWN_TRACES:][::-1]
    )
    if len(specialisations) > SHOWN_TRACES:
        body += f"<div style='opacity:.7'>and {len(specialisations) - SHOWN_TRACES} older ones</div>"
    return card(site.name, badges, body)


def _trace(specialisation: Specialisation, newest: bool) -> str:
    graph, kernel = specialisation.graph, specialisation.program.kernel_so_far
    arguments = ", ".join(repr(value.aval) for value in graph.inputs)
    backward = len(backward_nodes(graph))
    parts = counted(len(graph.nodes) - backward, "node") + (
        f" forward, {backward} backward" if backward else ""
    )
    origin = {
        "compiled": f"compiled in {kernel.seconds * 1e3:.0f} ms",
        "disk": f"from the disk cache in {kernel.seconds * 1e3:.0f} ms",
        "interpreter": f"on the interpreter: {kernel.reason}",
        "background": "on the interpreter until it is compiled",
    }[kernel.origin]
    guards = "".join(
        f"<div style='opacity:.75'>while the value at {html.escape(short_place(guard.site))} is {guard.expected}</div>"
        for guard in specialisation.guards
    )
    title = f"({html.escape(arguments)}) <span style='opacity:.7'>· {parts} · {html.escape(origin)}</span>"
    if len(graph.nodes) > DRAWN_NODES:
        return f"<div>{title}{guards}<div style='opacity:.7'>too large to draw; gt.inspect.graph prints it</div></div>"
    is_open = " open" if newest and len(graph.nodes) <= OPEN_NODES else ""
    return (
        f"<details{is_open} style='margin:.2em 0'><summary style='cursor:pointer'>{title}</summary>{guards}"
        f"<div style='overflow-x:auto;padding-top:.4em'>{draw(graph)}{_bodies(graph)}</div></details>"
    )


def _bodies(graph: Graph) -> str:
    """Return the drawings of the bodies of loops and branches, folded; a body that several nodes have is there once."""
    by_digest: dict[str, tuple[Body, str]] = {}
    for node in graph.nodes:
        for body in bodies_of(node):
            way = ", backward" if isinstance(node.site, DerivativeSite) and node.site.backward else ""
            location = "" if node.site is None else f" at {short_place(node.site)}"
            by_digest.setdefault(
                body.digest, (body, html.escape(f"{body.name} of {node.op.name}{location}{way}"))
            )
    return "".join(
        f"<details style='margin:.2em 0 .2em 1em'><summary style='cursor:pointer'>{title} "
        f"<span style='opacity:.7'>· {counted(len(body.nodes), 'node')}</span></summary>{draw(body)}{_bodies(body)}</details>"
        for body, title in by_digest.values()
        if len(body.nodes) <= DRAWN_NODES
    )


def _folded(body: str, name: str, fold: bool) -> str:
    if not fold:
        return body
    return f"<details><summary style='cursor:pointer;opacity:.8'>show the {name}</summary>{body}</details>"


def _operations(nodes: Sequence[Node]) -> str:
    cell = f"padding:.1em .7em;text-align:left;border:none;border-bottom:1px solid {LINE};white-space:nowrap"
    code = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.92em"
    head = "".join(
        f"<th style='{cell};opacity:.65;font-weight:600'>{title}</th>"
        for title in ("value", "operation", "type", "line", "code")
    )
    names = _names(nodes)
    lines = []
    for node in nodes:
        colour = NEGATIVE if isinstance(node.site, DerivativeSite) and node.site.backward else POSITIVE
        operands = ", ".join(_operand(value, names) for value in node.inputs)
        call = f"<b style='border-left:3px solid rgb({colour});padding-left:.45em'>{_operation(node)}</b>({operands})"
        cells = (
            ", ".join(names[out] for out in node.outs),
            call,
            html.escape(", ".join(repr(out.aval) for out in node.outs)),
            "" if node.site is None else html.escape(short_place(node.site)),
            "" if node.site is None else html.escape(code_at(node.site)),
        )
        lines.append("<tr>" + "".join(f"<td style='{cell};{code}'>{text}</td>" for text in cells) + "</tr>")
    return f"<table style='color:inherit;font:inherit;border-collapse:collapse;margin:0'><tr>{head}</tr>{''.join(lines)}</table>"


def _operation(node: Node) -> str:
    return "a whole gradient" if isinstance(node.op, GraphCall) else html.escape(node.op.name)


def _names(nodes: Sequence[Node]) -> dict[Value, str]:
    names: dict[Value, str] = {}
    computed = {out for node in nodes for out in node.outs}
    watched = [v for v in dict.fromkeys(_operands(nodes)) if v not in computed and not isinstance(v, Literal)]
    for prefix, values in (("x", watched), ("v", [out for node in nodes for out in node.outs])):
        for number, value in enumerate(values):
            names[value] = html.escape(value.name) if value.name else f"{prefix}{number}"
    return names


def _operands(nodes: Sequence[Node]) -> Iterator[Value]:
    return (value for node in nodes for value in node.inputs)


def _operand(value: Value, names: dict[Value, str]) -> str:
    if not isinstance(value, Literal):
        return names[value]
    number: Any = value.data
    return html.escape(f"{number.item():g}" if number.dtype.kind == "f" else str(number))
