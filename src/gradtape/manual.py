"""The manual as one text: the pages of the documentation that users read, one after the other.

A wheel has the text as a file, which its build writes with `whole_text`; a clone has the pages. This module imports nothing of the package,
so that the build can run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log1p
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


_PASSED_OVER: Final = frozenset(
    {"a", "an", "and", "do", "for", "how", "i", "in", "is", "of", "on", "the", "to", "what", "with"}
)
"""Words of questions that say nothing of their topic."""


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
    """Return the pages that a topic names, else those that contain all of its words, the most relevant first.

    Examples
    --------
    >>> text = "<!-- page: docs/how-to/loops.md -->\\n# Loops\\nscan and scan\\n<!-- page: docs/how-to/lengths.md -->\\n# Lengths\\nscan"
    >>> [page.topic for page in search(text, "loops")], [page.topic for page in search(text, "scan")]
    (['loops'], ['loops', 'lengths'])
    """
    every = list(pages(text))
    wanted = words.lower()
    named = [page for page in every if _as_words(wanted) == _as_words(page.topic.lower().removeprefix("gt."))]
    if named:
        return named
    asked = [word for word in wanted.split() if word not in _PASSED_OVER] or wanted.split()
    ranks = {page: [_rank(word, page) for word in asked] for page in every}
    containing = [page for page in every if all(ranks[page])]
    return sorted(containing, key=lambda page: -sum(ranks[page]))


def _as_words(topic: str) -> str:
    return re.sub("[-_ ]+", " ", topic.removeprefix("gt."))


def _rank(word: str, page: Page) -> float:
    """Return how much a page is about a word; 0 where no word of it begins so. Headings tell more than text, and long pages less."""
    begins = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    count = len(begins.findall(page.text))
    headings = re.findall("^#.*$", page.text, re.MULTILINE)
    named = sum(bool(begins.search(_as_words(name))) for name in (page.topic, page.title))
    about = 3.0 * named + sum(bool(begins.search(line)) for line in headings)
    is_error = page.topic.endswith(("Error", "Warning"))
    return count and (log1p(1e4 * count / len(page.text)) + about) * (0.5 if is_error else 1.0)
