"""An explanation of a gradient, which prints as a small page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from gradtape.api.pictures.svg import code_at


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explanation of a gradient.

    Attributes
    ----------
    reason : str
        In short: ``"connected"``, ``"never entered"``, ``"never watched"``, ``"watched after use"``, ``"recording stopped"``,
        ``"integer"``, ``"left the graph"``, ``"stop_gradient"``, ``"not differentiable"``, ``"another value"``, ``"not used"``,
        ``"record used"``, ``"zero derivative"``, ``"not finite"`` or ``"partly lost"``.
    site : object or None
        The line that cut the path.
    op : str or None
        The op that cut it.
    text : str
        The reason in a sentence.
    remedy : str
        What to do.
    """

    reason: str
    text: str
    site: Any = None
    op: str | None = None
    remedy: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.reason}: {self.text}"]
        if self.site is not None:
            lines.append(f"  where: {self.site}")
            code = code_at(self.site)
            if code:
                lines.append(f"      {code}")
        if self.remedy:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        place = ""
        if self.site is not None:
            code = html.escape(code_at(self.site))
            place = f"<div style='opacity:.7'>{html.escape(str(self.site))}</div><pre style='margin:.2em 1em'>{code}</pre>"
        colour = "#2a9d5c" if self.reason == "connected" else "#d9822b"
        remedy = f"<div><b>What to do:</b> {html.escape(self.remedy)}</div>" if self.remedy else ""
        return (
            f"<div style='border-left:4px solid {colour};padding:.3em .9em;line-height:1.5'>"
            f"<b>{html.escape(self.reason)}</b>: {html.escape(self.text)}{place}{remedy}</div>"
        )
