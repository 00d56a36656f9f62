"""The inspector's page: one HTML file that needs nothing else, with tables in place of panes on paper and without scripts."""

from __future__ import annotations

import html
import json
import pkgutil
from collections.abc import Sequence
from typing import Any, Final

from gradtape.api.inspect.text import count, duration, percent, size

WAYS: Final = ("forward", "backward", "tangent")


def write_page(model: dict[str, Any]) -> str:
    """Return the page of a model.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> from gradtape.api.inspect.page.model import watch_call
    >>> page = write_page(watch_call(gt.jit(lambda x: np.sum(x * x)), (np.ones(3),), {}).model("square"))
    >>> page.startswith("<!doctype html>"), 'src="http' in page
    (True, False)
    """
    parts = {
        "title": html.escape(model["title"]),
        "style": _file("inspector.css"),
        "script": _file("inspector.js"),
        "tables": _tables(model),
        "model": _embedded(model),
    }
    page = _file("inspector.html")
    pieces = page.split("{{")
    filled = [parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:])]
    return "".join([pieces[0], *filled])


def _file(name: str) -> str:
    data = pkgutil.get_data(__package__ or "", name)
    assert data is not None
    return data.decode()


def _embedded(model: dict[str, Any]) -> str:
    """Return JSON that can stand in a script element: no ``<`` can end it, and no NaN, which browsers do not read."""
    return json.dumps(model, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _tables(model: dict[str, Any]) -> str:
    """Return the lines, nests and loops of all programs as tables."""
    found = [
        f"<h1>{html.escape(model['title'])}</h1><p>{html.escape(model['made'])}, {html.escape(model['machine'])}</p>"
    ]
    for problem in model["problems"]:
        place = _place(model, problem["file"], problem["line"])
        found.append(
            f"<p><b>{html.escape(problem['what'])}</b> {html.escape(place)} {html.escape(problem['why'])}</p>"
        )
    for program in model["programs"]:
        found += _program(model, program)
    if model["events"]:
        rows = [
            (
                duration(event["at"]),
                model["functions"][event["function"]]["name"],
                event["text"],
                duration(event["seconds"]),
            )
            for event in model["events"]
        ]
        found.append("<h2>Timeline</h2>" + _table(("after", "function", "event", "took"), rows, "rllr"))
    return "\n".join(found)


def _program(model: dict[str, Any], program: dict[str, Any]) -> list[str]:
    function = model["functions"][program["function"]]
    found = [
        f"<h2>{html.escape(function['name'])}</h2>",
        f"<p>{html.escape(program['signature'])}: {program['runs']} runs of {duration(program['seconds'])}</p>",
    ]
    lines = [
        (
            _place(model, line["file"], line["line"]),
            WAYS[line["way"]],
            _code(model, line["file"], line["line"]),
            duration(line["seconds"]),
            percent(line["share"]),
            count(line["operations"]),
            size(line["moved"]),
        )
        for line in sorted(program["lines"], key=lambda line: (line["file"], line["line"], line["way"]))
    ]
    if lines:
        titles = ["line", "direction", "code", "time", "share", "operations", "bytes"]
        found.append("<h3>Lines</h3>" + _table(titles, lines, "llcrrrr"))
    if program["reason"]:
        found.append(f"<p>The NumPy interpreter runs it: {html.escape(program['reason'])}</p>")
    nodes = program["compiled"]["nodes"] if program["compiled"] else []
    nests = [
        (
            str(number),
            nest["kind"],
            " + ".join(" x ".join(str(trips or "?") for trips in chain) for chain in nest["extents"]),
            ", ".join(dict.fromkeys(nodes[node]["op"] for node, *_ in nest["nodes"])),
            duration(nest["seconds"] or 0.0),
            percent(nest["share"]),
            count(nest["operations"]),
            size(nest["moved"]),
        )
        for number, nest in enumerate(program["nests"])
    ]
    if nests:
        titles = ["nest", "kind", "iterations", "computes", "time", "share", "operations", "bytes"]
        found.append("<h3>Loop nests</h3>" + _table(titles, nests, "rlllrrrr"))
    if program["notes"]:
        found.append(
            "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note, _ in program["notes"]) + "</ul>"
        )
    if program["loops"]:
        text = "\n".join(line for line, *_ in program["loops"])
        found.append(f"<h3>Loops</h3><pre>{html.escape(text)}</pre>")
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kinds: str) -> str:
    """Return a table; a letter for each column says whether it is aligned left or right, or code."""
    names = {"l": "", "r": " class='figure'", "c": " class='code'"}
    head = "".join(
        f"<th{names[kind]}>{html.escape(text)}</th>" for text, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{names[kind]}>{html.escape(text)}</td>" for text, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _place(model: dict[str, Any], file: int, line: int) -> str:
    return f"{model['files'][file]['name']}:{line}" if file >= 0 and line else ""


def _code(model: dict[str, Any], file: int, line: int) -> str:
    source = model["files"][file]
    offset = line - source["first"]
    return source["lines"][offset].strip() if 0 <= offset < len(source["lines"]) else ""
