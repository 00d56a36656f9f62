"""A profile as a picture for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from gradtape.api.inspect.report import BETWEEN, FunctionFigures, KernelFigures, LineFigures, NestFigures
from gradtape.api.inspect.text import code, duration, headline, kernel_title, nest_title, percent, place, size
from gradtape.errors import counted
from gradtape.trace.array.html import LINE, NEGATIVE, POSITIVE, badge, card

_OPEN: Final = 0.1
_WIDTH: Final = 24.0
_CELL: Final = (
    f"padding:.1em .7em;text-align:right;border:none;border-bottom:1px solid {LINE};white-space:nowrap"
)
_CODE: Final = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.92em"
_PARTS: Final = (
    ("kernels", POSITIVE),
    ("dispatch", NEGATIVE),
    ("tracing", "20,163,139"),
    ("compiling", "127,127,127"),
)


def profile_card(functions: Sequence[FunctionFigures], seconds: float) -> str:
    """Return a bar for each function, with a bar for each of its nests inside."""
    if not functions:
        return card(
            "profile", badge(duration(seconds)), "<i style='opacity:.7'>no compiled function was called</i>"
        )
    body = f"<div style='opacity:.8;margin-bottom:.4em'>{html.escape(headline(functions, seconds, 0.0))}</div>{_legend()}"
    return card("profile", badge(duration(seconds)), body + "".join(map(_function, functions)))


def _legend() -> str:
    return "".join(badge(name, colour) for name, colour in _PARTS)


def _function(function: FunctionFigures) -> str:
    parts = (function.kernel + function.interpreter, function.dispatch, function.trace, function.compile)
    title = f"tape in {function.name}" if function.tape else function.name
    where = place(function.filename, function.line)
    counts = counted(function.calls, "call"), counted(function.traces, "trace"), f"{function.misses} misses"
    facts = f"{', '.join(counts)}, {size(function.moved)} moved"
    scale = _WIDTH * function.share / (function.seconds or 1.0)
    bars = "".join(
        f"<span title='{name} {duration(part)}' style='display:inline-block;height:.8em;width:{scale * part:.3f}em;"
        f"background:rgba({colour},.6)'></span>"
        for part, (name, colour) in zip(parts, _PARTS, strict=True)
    )
    is_open = " open" if function.share >= _OPEN else ""
    return (
        f"<details{is_open} style='margin:.3em 0'><summary style='cursor:pointer'><b>{html.escape(title)}</b> "
        f"<span style='opacity:.7'>{html.escape(where)} · {percent(function.share)} · {duration(function.seconds)} · {facts}</span>"
        f"<div>{bars}</div></summary>{''.join(map(_kernel, function.kernels))}</details>"
    )


def _kernel(kernel: KernelFigures) -> str:
    rows = "".join(
        _nest(nest, kernel.runs) for nest in kernel.nests if nest.kind != BETWEEN or nest.share > 0
    )
    return f"<div style='margin:.2em 0 .4em 1em'><div style='opacity:.8'>{html.escape(kernel_title(kernel))}</div>{rows}</div>"


def _nest(nest: NestFigures, runs: int) -> str:
    lines = "".join(map(_line, nest.lines))
    table = f"<table style='color:inherit;font:inherit;border-collapse:collapse;margin:0 0 .3em 1em'>{lines}</table>"
    return (
        f"<div style='position:relative;margin:.15em 0;padding:.05em .5em;border-radius:3px;background:linear-gradient(90deg,"
        f"rgba({POSITIVE},.30) {100 * nest.share:.2f}%,rgba(127,127,127,.08) {100 * nest.share:.2f}%)'>"
        f"{percent(nest.share)} · {html.escape(nest_title(nest, runs))}</div>{table if lines else ''}"
    )


def _line(line: LineFigures) -> str:
    colour = NEGATIVE if line.backward else POSITIVE
    cells = (place(line.filename, line.line), percent(line.share, about=True))
    texts = (code(line), ", ".join(line.ops))
    left = "".join(f"<td style='{_CELL}'>{html.escape(cell)}</td>" for cell in cells)
    right = "".join(
        f"<td style='{_CELL};{_CODE};text-align:left;border-left:3px solid rgba({colour},.6)'>{html.escape(text)}</td>"
        for text in texts
    )
    return f"<tr>{left}{right}</tr>"
