"""Pictures for notebooks: well-formed, complete, escaped, folded when large."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.pictures.layout import layered
from gradtape.api.pictures.svg import draw
from tests.support.compiled import graph_of

PAIR = np.array([0.5, 2.0])
SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ElementTree.Element:
    """Return the elements of a picture; it must be well-formed."""
    return ElementTree.fromstring(f"<div>{picture.replace('<details open ', '<details ')}</div>")


def text(picture: str) -> str:
    return "".join(parsed(picture).itertext())


def loss(w: Any, x: Any) -> Any:
    hidden = gt.name(np.tanh(x @ w), "hidden")
    return np.mean(hidden**2)


W, X = np.linspace(-1.0, 1.0, 6).reshape(3, 2), np.linspace(0.0, 2.0, 12).reshape(4, 3)


@pytest.mark.parametrize(
    "array",
    [
        np.array(2.5),
        np.array([1.0, -2.0, np.nan, np.inf]),
        np.zeros((0, 3)),
        np.arange(5),
        np.array([True, False]),
        np.array([1.0 + 2.0j, -1.0]),
        np.ones((3, 4, 5)),
        np.arange(10_000.0).reshape(100, 100),
        np.array([1.0], np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays(array: Any) -> None:
    picture = gt.constant(array)._repr_html_()
    assert "Array" in text(picture) and "concrete" in text(picture)
    assert len(list(parsed(picture).iter("td"))) <= 9 * 9


def test_what_is_bad_is_counted() -> None:
    assert "2 not finite" in text(gt.constant(np.array([1.0, np.nan, np.inf]))._repr_html_())


def test_pending_and_followed() -> None:
    with gt.GradientTape() as tape, gt.GradientTape() as other:
        x = other.watch(tape.watch(X))
        y = gt.name(x * 2.0, "<y>")
        picture = y._repr_html_()
        assert "was pending, computed now" in text(picture) and "recorded by 2 tapes, recording" in text(
            picture
        )
        assert "<y>" in text(picture)
    assert "concrete" in text(y._repr_html_()) and "recording" not in text(y._repr_html_())


def test_a_traced_array_shows_no_numbers() -> None:
    pictures = []

    @gt.jit
    def traced(x: Any) -> Any:
        pictures.append(x._repr_html_())
        return x * 2.0

    traced(X)
    assert "traced" in text(pictures[0]) and not list(parsed(pictures[0]).iter("td"))


def test_tapes() -> None:
    tape = gt.GradientTape(persistent=True)
    assert "new" in text(tape._repr_html_())
    with tape:
        w = gt.name(tape.watch(W), "w")
        y = loss(w, X)
        assert "recording" in text(tape._repr_html_())
    picture = tape._repr_html_()
    shown = text(picture)
    for part in ("hidden", "contract(", "tanh(", "np.tanh(x @ w)", "test_html.py", "persistent", "recorded"):
        assert part in shown
    count = len(list(parsed(picture).iter("tr")))
    slope = tape.gradient(y, w)
    assert slope.shape == W.shape and len(list(parsed(tape._repr_html_()).iter("tr"))) == count
    del y, slope
    assert "nothing that is still in use" in text(tape._repr_html_())


def test_gradients_that_another_tape_records_are_shown() -> None:
    with gt.GradientTape() as outer:
        x = outer.watch(np.array([1.0, 2.0]))
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = np.sum(np.sin(x))
        slope = inner.gradient(y, x)
    assert "cos(" in text(outer._repr_html_()) and slope.shape == (2,)


def test_long_records_are_folded() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        for _ in range(450):
            x = x * 1.5
    picture = tape._repr_html_()
    assert "<details>" in picture and "and 50 more" in text(picture)


def test_compiled_functions() -> None:
    both = gt.value_and_grad(loss)
    assert "not called yet" in text(both._repr_html_())
    both(W, X)
    picture = both._repr_html_()
    shown = text(picture)
    for part in (
        "value_and_grad(loss)",
        "1 trace",
        "forward",
        "backward",
        "hidden = tanh",
        "f64[3,2]",
        "result 0",
    ):
        assert part in shown
    assert "np.tanh(x @ w)" in picture
    both(W, X[:2])
    assert "2 traces" in text(both._repr_html_())


def test_guards_are_shown() -> None:
    @gt.jit
    def either(x: Any) -> Any:
        return x * 2.0 if np.sum(x) > 0 else x * 3.0

    either(X)
    either(-X)
    shown = text(either._repr_html_())
    assert "2 traces" in shown and "while the value at test_html.py" in shown and "looked at" in shown


def test_large_graphs_are_folded_and_huge_ones_are_not_drawn() -> None:
    def repeated(times: int) -> Any:
        @gt.jit
        def grown(x: Any) -> Any:
            for k in range(times):
                x = np.sin(x) * (1.0 + k)
            return x

        with gt.config.override(reroll=False):
            grown(X)
        return grown._repr_html_()

    assert "<details open" in repeated(3) and "<svg" in repeated(3)
    assert "<details open" not in repeated(40) and "<svg" in repeated(40)
    assert "<svg" not in repeated(400) and "too large to draw" in repeated(400)


def test_names_are_escaped() -> None:
    @gt.jit
    def odd(x: Any) -> Any:
        return gt.name(x * 2.0, "a<b>&'c'")

    odd(X)
    assert "a<b>&'c'" in text(odd._repr_html_())
    assert "&lt;lambda&gt;" in gt.jit(lambda x: x)._repr_html_()


def test_a_drawing_is_complete_and_nothing_overlaps() -> None:
    graph = graph_of(gt.value_and_grad(loss, argnums=(0, 1)), W, X)
    picture = ElementTree.fromstring(draw(graph))
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for rect in picture.iter(f"{SVG}rect")
    ]
    assert len(boxes) >= len(graph.nodes) + len(graph.inputs)
    width, height = (float(picture.attrib[key]) for key in ("width", "height"))
    for k, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for u, v, a, b in boxes[:k]:
            assert x + w <= u or u + a <= x or y + h <= v or v + b <= y


def test_layers_go_down_and_boxes_keep_their_distance() -> None:
    rng = np.random.default_rng(0)
    count = 40
    edges = sorted({(int(a), int(b)) for a, b in np.sort(rng.integers(0, count, (70, 2)), axis=1) if a < b})
    widths = list(rng.uniform(30.0, 120.0, count))
    placed = layered(widths, edges)
    for (start, end), route in zip(edges, placed.routes, strict=True):
        assert placed.layer[start] < placed.layer[end]
        assert [layer for _, layer in route] == list(range(placed.layer[start], placed.layer[end] + 1))
    for a in range(count):
        assert placed.left <= placed.x[a] - widths[a] / 2 and placed.x[a] + widths[a] / 2 <= placed.right
        for b in range(a):
            if placed.layer[a] == placed.layer[b]:
                assert abs(placed.x[a] - placed.x[b]) >= (widths[a] + widths[b]) / 2


def test_an_empty_drawing() -> None:
    placed = layered([], [])
    assert (placed.x, placed.left, placed.right) == ([], 0.0, 0.0)
    constant = gt.jit(lambda: 3.0)
    assert constant() == 3.0
    assert "<svg" in constant._repr_html_()


def test_what_only_the_way_back_reads_is_drawn() -> None:
    def last(weights: Any, xs: Any) -> Any:
        return np.sum(gt.scan(lambda h, x: (np.tanh(weights @ h + x), None), np.zeros(2), xs)[0])

    slope = gt.grad(last)
    slope(np.eye(2), np.ones((3, 2)))
    (specialisation,) = slope.site.specialisations()
    drawn = draw(specialisation.graph)
    assert ">argument 0<" in drawn and ">argument 1<" in drawn
    page = slope._repr_html_()
    assert "2 nodes forward, 3 backward" in page
    assert "body of scan at test_html.py" in page and ", backward" in page
    for picture in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(picture)


def test_bodies_of_equal_loops_are_drawn_once() -> None:
    twice = gt.jit(
        lambda x: gt.scan(lambda c, v: (c * v, None), gt.scan(lambda c, v: (c * v, None), 1.0, x)[0], x)[0]
    )
    twice(PAIR)
    assert twice._repr_html_().count(" of scan at test_html.py") == 1


def test_variables_say_what_they_are() -> None:
    page = gt.Variable(PAIR, name="w")._repr_html_()
    assert "<b>Variable</b>" in page and ">w</span>" in page


def test_functions_that_never_compiled() -> None:
    with gt.config.override(jit=False):
        doubled = gt.jit(lambda x: x * 2)
        doubled(PAIR)
        assert "nothing was compiled" in doubled._repr_html_()
    single = gt.jit(np.sin)
    single(PAIR)
    assert "1 node " in single._repr_html_()
