"""The hooks of the site's build: pages made of what lies outside of ``docs``, links to it, and the navigation.

Notebooks are rendered with their outputs, examples and `anatomy.py` are shown as code. Links in the pages are those of the repository, so
that they work there; here they are turned to where the pages are on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]*\.\w+|[^)\s#]*/)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
SECTIONS = {
    "How-to guides": ("how-to/",),
    "Gallery": ("gallery/", "examples/"),
    "Reference": ("reference/", "coverage.md"),
    "Explanation": ("explanation/", "anatomy.md", "glossary.md", "CONTRIBUTING.md"),
    "Decisions": ("adr/",),
    "Benchmarks": ("benchmarks/",),
}
"""What the sections of the navigation hold, in this order."""


TITLES = {"api": "Public names", "errors": "Errors and warnings"}


def sources() -> dict[str, str]:
    """Return the files outside of the pages that have a page, by their paths in the repository, and the paths of the pages."""
    found = {
        "CHANGELOG.md": "CHANGELOG.md",
        "CONTRIBUTING.md": "CONTRIBUTING.md",
        "docs/anatomy.py": "anatomy.md",
    }
    for folder, pattern, place in (
        ("notebooks", "*.ipynb", "gallery"),
        ("examples", "*.py", "examples"),
        ("benchmarks", "*.md", "benchmarks"),
    ):
        for path in sorted((ROOT / folder).glob(pattern)):
            found[f"{folder}/{path.name}"] = f"{place}/{path.stem}.md"
    return found


def on_config(config: Any) -> Any:
    """Make the navigation of the pages that there are."""
    docs = Path(config["docs_dir"])
    pages = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))] + list(
        sources().values()
    )
    nav: list[Any] = [
        {"Home": "index.md"},
        {"Install": "install.md"},
        {"Tutorial": "tutorials/getting-started.md"},
    ]
    for section, places in SECTIONS.items():
        found = [page for place in places for page in pages if page.startswith(place)]
        groups: dict[str, list[str]] = {}
        for page in found:
            inner = page.removeprefix(next(place for place in places if page.startswith(place))).rpartition(
                "/"
            )[0]
            groups.setdefault(inner, []).append(page)
        nav.append(
            {
                section: [
                    *groups.pop("", []),
                    *[{TITLES.get(name, name): group} for name, group in groups.items()],
                ]
            }
        )
    config["nav"] = [*nav, {"Changes": "CHANGELOG.md"}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for source, page in sources().items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            text, resources = MarkdownExporter().from_filename(str(path))
            for name, content in resources["outputs"].items():
                picture = f"{path.stem}_{name}"
                text = text.replace(f"]({name})", f"]({picture})")
                files.append(File.generated(config, f"gallery/{picture}", content=content))
        elif path.suffix == ".py":
            text = f"# {path.name}\n\n```python\n{path.read_text()}```\n"
        else:
            text = path.read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn the links of a page from places in the repository to pages of the site; what has no page is named without a link."""
    made = sources()
    here = page.file.src_uri
    source = {place: source for source, place in made.items()}.get(here, f"docs/{here}")
    folder = posixpath.dirname(source)

    def turned(match: re.Match[str]) -> str:
        picture, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if ":" in target or (
            files.get_file_from_path(posixpath.join(posixpath.dirname(here), target)) and picture
        ):
            return match[0]
        goal = posixpath.normpath(posixpath.join(folder, target))
        place = "index.md" if goal == "README.md" else made.get(goal, goal.removeprefix("docs/"))
        if files.get_file_from_path(place) is None:
            return text
        return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor})"

    return "".join(
        part if part.startswith("```") else LINK.sub(turned, part) for part in FENCE.split(markdown)
    )
