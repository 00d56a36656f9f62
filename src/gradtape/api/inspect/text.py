"""A profile as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from gradtape.api.inspect.report import (
    BETWEEN,
    INTERPRETER,
    FunctionFigures,
    KernelFigures,
    LineFigures,
    NestFigures,
)

SMALL: Final = 0.005
"""The part of a function's time below which nests are summed up in one line, and functions get no section of their own."""

BAR: Final = 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def profile_text(functions: Sequence[FunctionFigures], seconds: float, profiling: float) -> str:
    """Return the table of functions, then the nests and lines of each."""
    if not functions:
        return f"profile of {duration(seconds)}: no compiled function was called"
    lines = [headline(functions, seconds, profiling), "", *_table(functions)]
    for function in functions:
        if function.share >= SMALL and function.kernels:
            lines += ["", *_section(function)]
    return "\n".join(lines)


def headline(functions: Sequence[FunctionFigures], seconds: float, profiling: float) -> str:
    """Return the sentence at the top."""
    total = sum(function.seconds for function in functions)
    parts = {
        "kernels": sum(function.kernel for function in functions),
        "interpreter": sum(function.interpreter for function in functions),
        "dispatch": sum(function.dispatch for function in functions),
        "tracing": sum(function.trace for function in functions),
        "compiling": sum(function.compile for function in functions),
    }
    shares = ", ".join(f"{name} {percent(part / (total or 1.0))}" for name, part in parts.items() if part)
    own = f" ({duration(profiling)} more went into profiling itself)" if profiling >= 0.01 * seconds else ""
    return f"profile of {duration(max(seconds - profiling, 0.0))}{own}: {duration(total)} in compiled functions and tapes ({shares})"


_COLUMNS: Final = (
    "share",
    "total",
    "calls",
    "kernels",
    "dispatch",
    "trace",
    "compile",
    "traces",
    "misses",
    "moved",
)


def _table(functions: Sequence[FunctionFigures]) -> list[str]:
    rows = [_COLUMNS, *[_row(function) for function in functions]]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_COLUMNS))]
    names = ["function", *[_title(function) for function in functions]]
    return [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), name])
        for row, name in zip(rows, names, strict=True)
    ]


def _row(function: FunctionFigures) -> tuple[str, ...]:
    return (
        percent(function.share),
        duration(function.seconds),
        str(function.calls),
        duration(function.kernel + function.interpreter),
        duration(function.dispatch),
        duration(function.trace),
        duration(function.compile),
        str(function.traces),
        str(function.misses),
        size(function.moved),
    )


def _title(function: FunctionFigures) -> str:
    name = f"tape in {function.name}" if function.tape else function.name
    return f"{name}  {place(function.filename, function.line)}"


def _section(function: FunctionFigures) -> list[str]:
    lines = [_title(function)]
    for kernel in function.kernels:
        lines.append(f"  {kernel_title(kernel)}")
        shown = [nest for nest in kernel.nests if nest.share >= SMALL]
        for nest in shown:
            lines.append(f"  {bar(nest.share)} {percent(nest.share):>6}  {nest_title(nest, kernel.runs)}")
            lines += _lines(nest.lines)
        rest = [nest for nest in kernel.nests if nest.share < SMALL and nest.kind != BETWEEN]
        if rest:
            lines.append(
                f"  {bar(0.0)} {percent(sum(nest.share for nest in rest)):>6}  {len(rest)} smaller {'one' if len(rest) == 1 else 'ones'}"
            )
    return lines


def kernel_title(kernel: KernelFigures) -> str:
    """Return what a kernel takes and returns, and how often it ran."""
    runs = f"{kernel.runs} {'run' if kernel.runs == 1 else 'runs'} of {duration(kernel.seconds / max(kernel.runs, 1))}"
    if kernel.origin == INTERPRETER:
        return f"on the NumPy interpreter: {runs}"
    origin = "compiled" if kernel.origin == "compiled" else "from the disk cache"
    sizes = f"{size(kernel.input_bytes)} in, {size(kernel.output_bytes)} out"
    missed = f", {kernel.misses} missed a guard" if kernel.misses else ""
    return f"{kernel.signature}: {runs}{missed}, {sizes}, {origin}"


def nest_title(nest: NestFigures, runs: int) -> str:
    """Return the time of a nest, its loops, and its rates."""
    each = nest.seconds / max(runs, 1)
    if nest.kind == BETWEEN:
        return f"{duration(each)}  outside loops: {count(nest.operations)} numbers"
    if nest.kind == INTERPRETER:
        return f"{duration(each)}  op by op"
    what = " + ".join(" x ".join(str(trips or "?") for trips in chain) for chain in nest.extents[:3])
    if len(nest.extents) > 3:
        what += f" + {len(nest.extents) - 3} more"
    if nest.kind != "loop":
        what = f"{nest.kind} for each of {what}" if what else nest.kind
    else:
        what = f"loop {what}" + (f", in {nest.blocks} blocks" if nest.blocks else "")
    if each <= 0:
        return f"{duration(each)}  {what}"
    rates = (
        f"{size(nest.footprint)} at {size(nest.footprint / each)}/s, {count(nest.operations / each)} ops/s"
    )
    return f"{duration(each)}  {what}: {rates}"


def _lines(all_lines: Sequence[LineFigures]) -> list[str]:
    lines = [line for line in all_lines if line.share >= SMALL]
    places = [place(line.filename, line.line) for line in lines]
    width = max((len(text) for text in places), default=0)
    codes = [code(line) for line in lines]
    wide = min(max((len(text) for text in codes), default=0), 60)
    return [
        f"    {where.ljust(width)}  {percent(line.share, about=True):>7}  {text.ljust(wide)}  {', '.join(line.ops)}"
        for where, text, line in zip(places, codes, lines, strict=True)
    ]


def code(line: LineFigures) -> str:
    """Return the text of a line, marked where it is its derivative that is computed."""
    text = line.text if len(line.text) <= 56 else line.text[:55] + "…"
    return f"∂ {text}" if line.backward else text


def bar(share: float) -> str:
    """Return a bar of a length from nothing to everything."""
    eighths = round(min(max(share, 0.0), 1.0) * BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR)


def place(filename: str, line: int) -> str:
    """Return a file's name and a line, or that there is none."""
    return f"{os.path.basename(filename)}:{line}" if filename else "no line"


def percent(share: float, *, about: bool = False) -> str:
    """Return a share in per cent."""
    return f"~{100 * share:.0f} %" if about else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Return a time with three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.9995:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds * 1e9)} ns" if seconds > 0 else "0"


def size(number: float) -> str:
    """Return a number of bytes with three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= 0.9995 * scale:
            return f"{_three(number / scale)} {unit}"
    return f"{number:.0f} B"


def count(number: float) -> str:
    """Return a number with three digits."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * scale:
            return f"{_three(number / scale)} {unit}"
    return f"{number:.0f}"


def _three(number: float) -> str:
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
