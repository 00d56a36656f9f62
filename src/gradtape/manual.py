"""The manual as one text: the pages of the documentation that users read, one after the other.

A wheel has the text as a file, which its build writes with `whole_text`; a clone has the pages. This module imports nothing of the package,
so that the build can run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ORDER: Final = (
    "README.md",
    "docs/install.md",
    "docs/tutorials/*.md",
    "docs/how-to/*.md",
    "docs/cookbook/*.md",
    "docs/reference/*.md",
    "docs/explanation/*.md",
    "docs/reference/api/*.md",
    "docs/reference/errors/*.md",
    "docs/glossary.md",
)
"""The files of the manual, in its order."""

_SEPARATOR: Final = "\n\n<!-- page: {} -->\n\n"
_BEGINNING: Final = re.compile(r"^<!-- page: (\S+) -->$", re.MULTILINE)


class Page(NamedTuple):
    """A page of the manual.

    Attributes
    ----------
    topic : str
        Its name on the command line: ``loops``, ``gt.grad``, ``ShapeError``.
    title : str
        Its heading.
    text : str
        Markdown.
    """

    topic: str
    title: str
    text: str


def whole_text(root: Path) -> str:
    """Return the manual of a clone of the repository."""
    files = [file for pattern in ORDER for file in sorted(root.glob(pattern))]
    parts = [
        _SEPARATOR.format(file.relative_to(root).as_posix()) + file.read_text(encoding="utf-8")
        for file in files
    ]
    return "".join(parts).lstrip("\n")


def installed_text() -> str:
    """Return the manual of this installation; empty if it has none."""
    package = Path(__file__).parent
    written = package / "manual.txt"
    return written.read_text(encoding="utf-8") if written.is_file() else whole_text(package.parents[1])


def pages(text: str) -> Iterator[Page]:
    """Yield the pages of a manual."""
    pieces = _BEGINNING.split(text)[1:]
    for path, content in zip(pieces[::2], pieces[1::2], strict=True):
        body = content.strip() + "\n"
        heading = re.search(r"^# (.*)$", body, re.MULTILINE)
        name = path.rpartition("/")[2].removesuffix(".md")
        topic = f"gt.{name}" if "/api/" in path and name != "index" else name
        if name == "index":
            topic = "api"
        yield Page(topic, heading[1] if heading else name, body)


def search(text: str, words: str) -> list[Page]:
    """Return the pages that a topic names, else those that contain all of its words, the most frequent first.

    Examples
    --------
    >>> text = "<!-- page: docs/how-to/loops.md -->\\n# Loops\\nscan and scan\\n<!-- page: docs/how-to/lengths.md -->\\n# Lengths\\nscan"
    >>> [page.topic for page in search(text, "loops")], [page.topic for page in search(text, "scan")]
    (['loops'], ['loops', 'lengths'])
    """
    every = list(pages(text))
    wanted = words.lower()
    named = [page for page in every if wanted in (page.topic.lower(), page.topic.lower().removeprefix("gt."))]
    if named:
        return named
    counts = {page: [page.text.lower().count(word) for word in wanted.split()] for page in every}
    containing = [page for page in every if all(counts[page])]
    return sorted(containing, key=lambda page: -sum(counts[page]))
