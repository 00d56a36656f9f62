"""Graphs as pictures: forward on the left, downwards; backward on the right, upwards."""

from __future__ import annotations

import html
import itertools
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.api.pictures.layout import Placed, layered
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.trace.source.sites import notebook_cell
from gradtape.transforms.observers import DerivativeSite

FORWARD, BACKWARD, INPUT, CONSTANT = "#3b82f6", "#e8700c", "#14a38b", "#8b8b8b"
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
CHARACTER = 6.65
HEIGHT, STEP, MARGIN, BETWEEN = 34.0, 60.0, 14.0, 70.0
LABEL_LIMIT = 26


@dataclass(frozen=True)
class Box:
    """A node, an input or a constant as it is drawn."""

    value: Value
    title: str
    subtitle: str
    colour: str
    hint: str
    output: str
    round: bool = False

    @property
    def width(self) -> float:
        return max(len(self.title), len(self.subtitle) * 0.9, 4) * CHARACTER + 18


def draw(graph: Graph) -> str:
    """Return a graph as an SVG element. It takes the text colour around it, so it suits light pages and dark ones.

    Examples
    --------
    >>> from gradtape.ir.graph import Graph, Value
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> x = Value(aval((2,), FLOAT64))
    >>> y = x * 2.0
    >>> draw(Graph([x], [y.node], [y])).startswith("<svg")
    True
    """
    backward = backward_nodes(graph)
    outputs = {
        value: f"result {k}" if len(graph.outputs) > 1 else "result" for k, value in enumerate(graph.outputs)
    }
    for value, _ in graph.guards:
        outputs.setdefault(value, "looked at")
    halves = [
        _Half.of(graph, [node for node in graph.nodes if node not in backward], outputs, FORWARD),
        _Half.of(graph, [node for node in graph.nodes if node in backward], outputs, BACKWARD),
    ]
    drawn = [half for half in halves if half.boxes]
    if not drawn:
        return "<svg xmlns='http://www.w3.org/2000/svg' width='0' height='0'></svg>"
    height = max(half.height for half in drawn)
    content, centres, offset = [], {}, MARGIN
    for half in drawn:
        content.append(half.draw(offset, height))
        centres.update(half.centres(offset, height))
        offset += half.width + BETWEEN
    if len(drawn) == 2:
        content.insert(0, _crossings(drawn[1], centres))
    width = offset - BETWEEN + MARGIN
    total = height + 2 * MARGIN + 26
    titles = "".join(
        f"<text x='{centre:.0f}' y='12' text-anchor='middle' font-weight='600' fill='{half.colour}'>{half.title}</text>"
        for half, centre in zip(drawn, _middles(drawn), strict=True)
        if len(drawn) == 2
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {total:.0f}' width='{width:.0f}' "
        f"height='{total:.0f}' style='max-width:100%;height:auto' font-family='{FONT}' font-size='11' fill='currentColor'>"
        f"{titles}<g transform='translate(0,18)'>{''.join(content)}</g></svg>"
    )


def backward_nodes(graph: Graph) -> set[Node]:
    """Return the nodes that a sweep in reverse made, and those that need them."""
    backward: set[Node] = set()
    for node in graph.nodes:
        if (isinstance(node.site, DerivativeSite) and node.site.backward) or any(
            operand.node in backward for operand in node.inputs
        ):
            backward.add(node)
    return backward


class _Half:
    """One of the two drawings: its boxes, and where they are."""

    def __init__(
        self, boxes: list[Box], edges: list[tuple[int, int]], loose: list[tuple[Value, Value]], colour: str
    ) -> None:
        self.boxes = boxes
        self.colour = colour
        self.title = "forward" if colour == FORWARD else "backward"
        self.loose = loose
        self._edges = edges
        self._placed: Placed = layered([box.width for box in boxes], edges)
        self.width = self._placed.right - self._placed.left
        self.height = (max(self._placed.layer, default=0)) * STEP + HEIGHT

    @classmethod
    def of(cls, graph: Graph, nodes: Sequence[Node], outputs: dict[Value, str], colour: str) -> _Half:
        makers = {out: node for node in nodes for out in node.outs}
        read_values = {value for node in graph.nodes for value in node.inputs}
        everywhere = {out for node in graph.nodes for out in node.outs}
        boxes: list[Box] = []
        if colour == FORWARD:
            boxes += [
                _input_box(v, k, outputs)
                for k, v in enumerate(graph.inputs)
                if v in read_values or v in outputs
            ]
        known_values = {*everywhere, *graph.inputs}
        constants = [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v not in known_values]
        boxes += [_constant_box(v) for v in constants if not isinstance(v, Literal)]
        boxes += [_node_box(node, outputs, colour) for node in nodes]
        centres_of_values = {box.value: k for k, box in enumerate(boxes)}
        for value, node in makers.items():
            centres_of_values[value] = centres_of_values[node.outs[0]]
        edges, loose = [], []
        for node in nodes:
            end = centres_of_values[node.outs[0]]
            for operand in dict.fromkeys(node.inputs):
                if operand in centres_of_values:
                    edges.append((centres_of_values[operand], end))
                elif not isinstance(operand, Literal):
                    loose.append((operand, node.outs[0]))
        return cls(boxes, edges, loose, colour)

    def _y(self, layer: float, height: float) -> float:
        """Forward runs down; backward runs up, from the level at which forward ends."""
        down = layer * STEP + HEIGHT / 2
        return MARGIN + (down if self.colour == FORWARD else height - down)

    def centres(self, offset: float, height: float) -> dict[Value, tuple[float, float, float]]:
        """Return the centre and half width of every value's box."""
        centres = {}
        for box, x, layer in zip(self.boxes, self._placed.x, self._placed.layer, strict=True):
            values = (box.value,) if box.value.node is None else box.value.node.outs
            for value in values or (box.value,):
                centres[value] = (offset + x - self._placed.left, self._y(layer, height), box.width / 2)
        return centres

    def draw(self, offset: float, height: float) -> str:
        shift = offset - self._placed.left
        sign = 1 if self.colour == FORWARD else -1
        parts = []
        for route in self._placed.routes:
            points = [(x + shift, self._y(layer, height)) for x, layer in route]
            points[0] = (points[0][0], points[0][1] + sign * HEIGHT / 2)
            points[-1] = (points[-1][0], points[-1][1] - sign * (HEIGHT / 2 + 4))
            parts.append(_curve(points, self.colour))
        for box, x, layer in zip(self.boxes, self._placed.x, self._placed.layer, strict=True):
            parts.append(_draw_box(box, x + shift, self._y(layer, height), flag=sign))
        return "".join(parts)


def _middles(halves: Sequence[_Half]) -> list[float]:
    first = MARGIN + halves[0].width / 2
    return [first, MARGIN + halves[0].width + BETWEEN + halves[1].width / 2] if len(halves) == 2 else [first]


def _crossings(backward: _Half, centres: dict[Value, tuple[float, float, float]]) -> str:
    """Draw what the backward half takes from the forward half."""
    parts = []
    for start, end in backward.loose:
        if start in centres and end in centres:
            (x, y, half), (u, v, other) = centres[start], centres[end]
            a, b = x + half, u - other
            bend = max(30.0, (b - a) / 2)
            parts.append(
                f"<path d='M{a:.1f},{y:.1f} C{a + bend:.1f},{y:.1f} {b - bend:.1f},{v:.1f} {b:.1f},{v:.1f}' fill='none' "
                f"stroke='currentColor' stroke-opacity='.22' stroke-dasharray='3 3'/>"
            )
    return "".join(parts)


def _curve(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x, y), (u, v) in itertools.pairwise(points):
        middle = (y + v) / 2
        path.append(f"C{x:.1f},{middle:.1f} {u:.1f},{middle:.1f} {u:.1f},{v:.1f}")
    x, y = points[-1]
    tip = 4 if points[-1][1] > points[0][1] else -4
    head = f"M{x - 3:.1f},{y - tip:.1f} L{x:.1f},{y + tip:.1f} L{x + 3:.1f},{y - tip:.1f}z"
    return (
        f"<path d='{' '.join(path)}' fill='none' stroke='{colour}' stroke-opacity='.6' stroke-width='1.3'/>"
        f"<path d='{head}' fill='{colour}' fill-opacity='.8'/>"
    )


def _draw_box(box: Box, x: float, y: float, flag: int) -> str:
    left, top = x - box.width / 2, y - HEIGHT / 2
    border = 2.2 if box.output else 1.1
    beyond = top + HEIGHT + 10 if flag > 0 else top - 4
    label = (
        f"<text x='{x + box.width / 2 - 2:.1f}' y='{beyond:.1f}' text-anchor='end' font-size='9' "
        f"fill='{box.colour}'>{html.escape(box.output)}</text>"
        if box.output
        else ""
    )
    return (
        f"<g><title>{html.escape(box.hint, quote=True)}</title>"
        f"<rect x='{left:.1f}' y='{top:.1f}' width='{box.width:.1f}' height='{HEIGHT:.0f}' "
        f"rx='{HEIGHT / 2 if box.round else 7:.0f}' fill='{box.colour}' fill-opacity='.14' stroke='{box.colour}' "
        f"stroke-width='{border}'/>"
        f"<text x='{x:.1f}' y='{y - 2:.1f}' text-anchor='middle'>{html.escape(box.title)}</text>"
        f"<text x='{x:.1f}' y='{y + 11:.1f}' text-anchor='middle' font-size='9.5' fill-opacity='.65'>"
        f"{html.escape(box.subtitle)}</text>{label}</g>"
    )


def _input_box(value: Value, number: int, outputs: dict[Value, str]) -> Box:
    name = value.name or f"argument {number}"
    return Box(
        value, name, repr(value.aval), INPUT, f"{name}: {value.aval}", outputs.get(value, ""), round=True
    )


def _constant_box(value: Value) -> Box:
    return Box(
        value, value.name or "captured", repr(value.aval), CONSTANT, "an array from outside", "", round=True
    )


def _node_box(node: Node, outputs: dict[Value, str], colour: str) -> Box:
    numbers = [_literal(value) for value in node.inputs if isinstance(value, Literal)]
    title = " ".join([node.op.name, *numbers])
    named = next((out.name for out in node.outs if out.name), None)
    if named:
        title = f"{named} = {title}"
    if len(title) > LABEL_LIMIT:
        title = title[: LABEL_LIMIT - 1] + "…"
    types = ", ".join(repr(out.aval) for out in node.outs)
    output = ", ".join(outputs[out] for out in node.outs if out in outputs)
    return Box(node.outs[0], title, types, colour, hint(node), output)


def hint(node: Node) -> str:
    """Return what a node is and which line of the user's made it."""
    parameters = "".join(f"\n{key} = {value!r}" for key, value in node.params.items())
    site = node.site
    if site is None:
        return f"{node.op.name}{parameters}"
    origin = f"\nderivative of {site.op}" if isinstance(site, DerivativeSite) else ""
    return f"{node.op.name}{parameters}{origin}\n{short_place(site)}\n{code_at(site)}".rstrip()


def code_at(site: Any) -> str:
    """Return the line of code at a place."""
    return linecache.getline(site.filename, site.line).strip()


def short_place(site: Any) -> str:
    """Return a place without folders; a notebook's cell by its number."""
    name = notebook_cell(site.filename) or str(site.filename).replace("\\", "/").rpartition("/")[2]
    return f"{'cell' if name.removesuffix('.py').isdigit() else name}:{site.line}"


def _literal(value: Value) -> str:
    assert value.data is not None
    number = value.data.item()
    return f"{number:g}" if isinstance(number, float) else str(number)
