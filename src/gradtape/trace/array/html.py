"""Notebook pictures: the frame that all of them share, and the array's own.

Colours are translucent or the page's own text colour, so that they suit light pages and dark ones.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.trace.jit.guards import Trace, trace_of
from gradtape.trace.lazy.force import force

LINE = "rgba(127,127,127,.35)"
POSITIVE, NEGATIVE, BAD = "59,130,246", "232,112,12", "220,38,38"
ROWS, COLUMNS = 8, 8
MINUS = "\N{MINUS SIGN}"


def badge(text: str, colour: str = "127,127,127") -> str:
    """Return a short text in a coloured pill."""
    return (
        f"<span style='display:inline-block;padding:0 .6em;margin-left:.5em;border-radius:1em;font-size:.85em;"
        f"background:rgba({colour},.16);border:1px solid rgba({colour},.5)'>{html.escape(text)}</span>"
    )


def card(title: str, badges: str, body: str) -> str:
    """Return a frame with a headline."""
    return (
        f"<div style='display:inline-block;max-width:100%;border:1px solid {LINE};border-radius:8px;overflow:hidden;"
        f"line-height:1.45;margin:.2em 0'><div style='padding:.35em .8em;background:rgba(127,127,127,.10);"
        f"border-bottom:1px solid {LINE}'><b>{html.escape(title)}</b>{badges}</div>"
        f"<div style='padding:.5em .8em;overflow-x:auto'>{body}</div></div>"
    )


def array_card(value: Value, title: str) -> str:
    """Return the card of an array or a variable: its type, and its numbers (computed now, if they are pending)."""
    tapes = sum(not isinstance(tag, Trace) and tag.recording for tag in value.tags)
    trace = trace_of(value)
    kept = sum(not isinstance(tag, Trace) for tag in value.tags)
    badges = badge(repr(value.aval))
    if value.name:
        badges += badge(value.name, "20,163,139")
    if trace is not None:
        note = f"<span style='opacity:.75'>stands for an argument of every call of {html.escape(trace.described)}</span>"
        return card(title, badges + badge("traced", NEGATIVE), note)
    pending = value.data is None
    (data,) = force([value])
    badges += badge("was pending, computed now" if pending else "concrete")
    if kept:
        plural = "" if kept == 1 else "s"
        badges += badge(f"recorded by {kept} tape{plural}{', recording' if tapes else ''}", POSITIVE)
    return card(title, badges, _numbers(data) + _summary(data))


def _numbers(data: np.ndarray[Any, Any]) -> str:
    if not data.ndim:
        return f"<div style='font-size:1.3em;font-variant-numeric:tabular-nums'>{_number(data[()])}</div>"
    if not data.size:
        return "<i style='opacity:.7'>no elements</i>"
    page, caption = data, ""
    if data.ndim > 2:
        page = data[(0,) * (data.ndim - 2)]
        index = ", ".join(["0"] * (data.ndim - 2) + [":", ":"])
        caption = f"<div style='opacity:.7'>the slice [{index}]</div>"
    rows = page[None, :] if page.ndim == 1 else page
    scale = _scale(rows)
    down, across = (
        _shown(rows.shape[0], ROWS),
        _shown(rows.shape[1], COLUMNS if page.ndim == 2 else 2 * COLUMNS),
    )
    lines = "".join(
        "<tr>"
        + "".join(_cell(None if i is None or j is None else rows[i, j], scale) for j in across)
        + "</tr>"
        for i in down
    )
    return f"{caption}<table style='color:inherit;font:inherit;border-collapse:separate;border-spacing:2px;margin:0'>{lines}</table>"


def _shown(extent: int, limit: int) -> list[int | None]:
    """Return the positions that are shown: the first and the last ones, and None for those between."""
    if extent <= limit:
        return list(range(extent))
    half = limit // 2
    return [*range(half), None, *range(extent - half, extent)]


def _scale(data: np.ndarray[Any, Any]) -> float:
    finite = np.abs(data[np.isfinite(data)]).astype(float)
    return float(finite.max()) if finite.size else 0.0


def _cell(number: Any, scale: float) -> str:
    if number is None:
        return "<td style='text-align:center;opacity:.5;border:none'>⋯</td>"
    colour, share = NEGATIVE if number.real < 0 else POSITIVE, 0.0
    if not np.isfinite(number):
        colour, share = BAD, 1.0
    elif scale > 0:
        share = float(abs(number)) / scale
    return (
        f"<td style='text-align:right;padding:.1em .55em;border:none;border-radius:3px;font-variant-numeric:tabular-nums;"
        f"background:rgba({colour},{0.04 + 0.30 * share:.2f})'>{_number(number)}</td>"
    )


def _number(number: Any) -> str:
    text = f"{number:.5g}" if number.dtype.kind in "fc" else str(number)
    return html.escape(text.replace("-", MINUS))


def _summary(data: np.ndarray[Any, Any]) -> str:
    if data.size < 2:
        return ""
    facts = [f"{data.size} elements"]
    if data.dtype.kind in "iuf":
        finite = data[np.isfinite(data)]
        if finite.size:
            facts += [
                f"min {_number(finite.min())}",
                f"mean {_number(np.mean(finite, dtype=np.float64))}",
                f"max {_number(finite.max())}",
            ]
    if data.dtype.kind in "fc":
        bad = int(data.size - np.count_nonzero(np.isfinite(data)))
        if bad:
            facts.append(f"<b style='color:rgb({BAD})'>{bad} not finite</b>")
    return f"<div style='opacity:.75;font-size:.9em;margin-top:.3em'>{' · '.join(facts)}</div>"
