"""The README of the package index: links and pictures of the repository with whole addresses, since the index has no files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")


def with_addresses(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead to files of a repository, and whose pictures to their content."""

    def whole(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(whole, text)


class ReadmeHook(MetadataHookInterface):
    """Sets the `readme` of the metadata, when a wheel or an sdist is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_addresses(text, metadata["urls"]["Repository"]),
        }
